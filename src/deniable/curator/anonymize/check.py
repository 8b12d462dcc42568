"""Checks of a table or release: k, l, t and risks, two releases against each other, and columns that link rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.anonymize.request import TABLE, Asked, Roles, demands, refuse_two_roles, statement
from deniable.errors import AccessRefused, Infeasible, ParameterError, nearest
from deniable.policy.schema import Role, Spec
from deniable.release.record import Record

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from deniable.assess.certificate import MeasuredProperty
    from deniable.assess.released_rows import Ancestors
    from deniable.curator.context import Context
    from deniable.engines.base import Engine
    from deniable.kanonymity.recoding import Recoding
    from deniable.kanonymity.request import Request


@dataclass(frozen=True, slots=True, eq=False)
class CheckReport(Record):
    """What a table holds as it stands: its classes, each sensitive column, the risks and the columns to blame."""

    rows: int
    classes: int
    k: int
    mean_class: float
    smallest_classes: int
    sensitive: Sequence[dict[str, Any]]
    risks: dict[str, Any]
    blame: Sequence[dict[str, Any]]
    uniqueness: dict[str, float] | None
    properties: Sequence[MeasuredProperty] = ()
    joint: dict[str, Any] | None = None
    """What all columns of the table single out together, named or not."""
    unnamed: Sequence[str] = ()
    """Columns of the table that nobody named: k, l and t say nothing of them."""
    policy: str | None = None
    """The policy that was accepted for these rows; what it asks was not measured."""


@dataclass(frozen=True, slots=True, eq=False)
class CompositionReport(Record):
    """How far two releases together fall below the k that was asked; see `deniable.kanonymity.composition`."""

    asked_k: int
    k: int
    atoms: int
    exposed: int
    determined: int
    singled_out: int
    certain: Sequence[tuple[str, int]]


def check(
    source: Any,
    quasi_identifiers: tuple[str, ...],
    sensitive: tuple[str, ...] = (),
    *,
    keep: tuple[str, ...] = (),
    fraction: float | None = None,
    encoding: str | None = None,
    models: tuple[Spec, ...] = (),
    hierarchies: Mapping[str, Spec] | None = None,
    population: Any = None,
    person: str | None = None,
    asked: Asked | None = None,
) -> CheckReport:
    """Measure a table as it stands: k, l, t and risks, and what all its columns together single out.

    `keep` names columns that are neither; what nobody names is told. `models` are measured too; `hierarchies` are those
    of sensitive columns, for distances along them, and `population` is a table of people whose quasi-identifiers are
    written as in this one. `person` is the column that tells people apart: models, and what is `asked`, are then
    measured in people.
    """
    from deniable.curator.policy.accepted_rows import find_policy_of
    from deniable.curator.sources import refuse_no_rows
    from deniable.kanonymity.risk import examine

    specs = _require_models(models, population, person)
    sensitive = tuple(dict.fromkeys((*sensitive, *(str(s.options["column"]) for s in specs if "column" in s.options))))
    refuse_two_roles({"a quasi-identifier": quasi_identifiers, "sensitive": sensitive, "neither": keep})
    people_of = () if person is None else (person,)
    for name in (name for name in hierarchies or () if name not in sensitive):
        raise ParameterError(
            f"A hierarchy is given for '{name}', which is not among the sensitive columns",
            expected="A hierarchy of a sensitive column, for distances along it",
            remedy=nearest(name, sensitive) or "Name it with --sensitive, or leave the hierarchy out",
        )
    table = _table(source, (*quasi_identifiers, *sensitive, *keep, *people_of), encoding)
    refuse_no_rows(table, source if isinstance(source, str | Path) else "the table")
    people = None if population is None else _table(population, quasi_identifiers, encoding)
    if person is not None:
        specs += _require_models(_list_thresholds(asked, table), population, person)
    measured = _measure_models(table, quasi_identifiers, specs, hierarchies, people, person)
    examined = examine(table, quasi_identifiers, sensitive, fraction=fraction)
    found = CheckReport(**asdict(examined), properties=measured)
    present, joint = _measure_jointly(source, encoding)
    left = tuple(name for name in present if name not in table.column_names)
    return replace(found, joint=joint, unnamed=left, policy=find_policy_of(source, encoding=encoding))


def _require_models(models: tuple[Spec, ...], population: Any, person: str | None = None) -> tuple[Spec, ...]:
    from deniable.kanonymity.request import count_people, needs_population, parse_condition, to_spec

    conditions = tuple(count_people(parse_condition(spec), person) for spec in models)
    if any(getattr(model, "person", None) != person for model in conditions if hasattr(model, "person")):
        raise ParameterError("A privacy model counts people", remedy="Name the column that tells them apart: --person")
    if needs_population(conditions) and population is None:
        raise ParameterError("A privacy model compares with the population", remedy="Name its table: --population")
    return tuple(map(to_spec, conditions))


def _measure_models(
    table: pa.Table,
    known: tuple[str, ...],
    specs: tuple[Spec, ...],
    hierarchies: Mapping[str, Spec] | None,
    people: pa.Table | None,
    person: str | None = None,
) -> list[MeasuredProperty]:
    from deniable.assess.certificate import measure_properties

    if not specs:
        return []
    trees = {name: list_ancestors(spec, name, table[name]) for name, spec in (hierarchies or {}).items()}
    return measure_properties(table, known, specs, trees, people, person)


def list_ancestors(spec: Spec, name: str, column: pa.ChunkedArray) -> Ancestors:
    """The groups of a sensitive column's values, level by level, as a hierarchy declares them."""
    import pyarrow.compute as pc

    from deniable.kanonymity.builders.specs import make_builder

    values = pc.unique(column).drop_null()
    built = make_builder(spec).hierarchy(name, values).with_missing()
    return dict(zip(built.leaves, built.rows(), strict=True))


def _measure_jointly(source: Any, encoding: str | None) -> tuple[list[str], dict[str, Any] | None]:
    """The columns of a table, and what they single out together."""
    from deniable.assess.exposure import measure_joint_exposure
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.policy.schema import make_dialect

    with DuckDBEngine(root=Path.cwd()) as engine:
        engine.attach(TABLE, source, csv=make_dialect(encoding))
        present = [field.name for field in engine.describe(TABLE)]
        found = measure_joint_exposure(engine, TABLE, present)
    return present, None if found is None else found.to_dict()


def check_rows(
    context: Context, table: str, quasi_identifiers: Sequence[str] = (), sensitive: Sequence[str] = ()
) -> CheckReport:
    """Measure a table of the policy, for its steward alone; the figures are exact.

    Columns that are not named are those of the policy's roles.
    """
    from deniable.curator.sources import refuse_rows_here
    from deniable.engines.base import quote
    from deniable.kanonymity.risk import examine

    if context.asker is not None:
        raise AccessRefused("a check measures real rows without noise", remedy="Only the steward may see one")
    schema = context.policy.table(table)
    known = tuple(quasi_identifiers) or tuple(c.name for c in schema.with_role(Role.QUASI_IDENTIFIER))
    secret = tuple(sensitive) or tuple(c.name for c in schema.with_role(Role.SENSITIVE))
    person = schema.unit.column if schema.unit is not None else None
    named = dict.fromkeys((*known, *secret, *(() if person is None else (person,))))
    listed = ", ".join(map(quote, named)) or "*"
    refuse_rows_here(schema, context.scope.sources)
    engine = context.scope.attach(table)
    present = [field.name for field in engine.describe(table)]
    for name in named:
        if name not in present:
            raise ParameterError(
                f"the table has no column '{name}'",
                expected=f"Columns: {', '.join(present)}",
                remedy=nearest(name, present),
            )
    rows = engine.run(f"SELECT {listed} FROM {quote(table)}")  # noqa: S608  quoted names
    examined, measured = examine(rows, known, secret), list[Any]()
    if person is not None and known:
        least = demands(context.policy, Asked())
        values, distances = ({n: v for n, v in each.items() if n in secret} for each in (least.l, least.t))
        specs = _require_models(_list_thresholds(Asked(least.k, values, distances), rows), None, person)
        measured = _measure_models(rows, known, specs, None, None, person)
    return CheckReport(**asdict(examined), properties=measured)


def _list_thresholds(asked: Asked | None, table: pa.Table) -> tuple[Spec, ...]:
    """Thresholds as models, k among them in any case, so that they can be counted in people."""
    from deniable.kanonymity.risk import is_ordered

    asked = asked or Asked()
    far = {name: "ordered" if is_ordered(table[name].type) else "equal" for name in asked.t}
    return (
        Spec("k_anonymity", {"k": asked.k or 1}),
        *(Spec("distinct_diversity", {"column": name, "l": float(least)}) for name, least in asked.l.items()),
        *(Spec("closeness", {"column": n, "t": float(most), "distance": far[n]}) for n, most in asked.t.items()),
    )


def unmet(findings: Mapping[str, Any], k: int | None, l: dict[str, float], t: dict[str, float]) -> list[str]:  # noqa: E741
    """Which thresholds a table does not meet, each in a sentence."""
    failed = []
    if findings["unnamed"] and (k is not None or l or t):
        named = ", ".join(findings["unnamed"][:12]) + (", ..." if len(findings["unnamed"]) > 12 else "")
        failed.append(f"columns that were not measured: {named}; name them with --qi, --sensitive or --keep")
    if k is not None and findings["k"] < k:
        failed.append(f"k is {findings['k']}, asked was {k}")
    held = {found["column"]: found for found in findings["sensitive"]}
    for column, least in l.items():
        if held[column]["distinct_l"] < least:
            failed.append(f"l of {column} is {held[column]['distinct_l']}, asked was {least:g}")
    for column, most in t.items():
        measured = held[column]["ordered_t"] if held[column]["ordered_t"] is not None else held[column]["t"]
        if measured > most + 1e-12:
            failed.append(f"t of {column} is {measured:.4f}, asked was {most:g}")
    return failed + [_say_unmet(one) for one in findings["properties"] if not one.holds]


def _say_unmet(one: MeasuredProperty) -> str:
    asked = ", ".join(f"{name} = {value}" for name, value in one.parameters.items())
    return f"{one.name} ({asked}) does not hold" + ("" if one.measured is None else f": it is {one.measured:.4g}")


def check_together(source: Any, first: Path, second: Path) -> CompositionReport:
    """What an intruder learns who holds two releases of the same table."""
    from deniable.kanonymity.recoding import read_recoding

    one, two = read_recoding(first), read_recoding(second)
    sensitive = tuple(dict.fromkeys((*one.sensitive, *two.sensitive)))
    table = _table(source, tuple(dict.fromkeys((*one.names, *two.names, *sensitive))))
    return composition(table, one, two, sensitive)


def composition(
    table: pa.Table, first: Recoding, second: Recoding, sensitive: tuple[str, ...], counts: str | None = None
) -> CompositionReport:
    """Class intersections of two recodings of one table."""
    from deniable.kanonymity.composition import compose
    from deniable.kanonymity.encoding import factorize, unify_spellings

    weights = table[counts].to_numpy() if counts else None
    classes = [_repeat_by_weight(_classes(table, recoding), weights) for recoding in (first, second)]
    values = {name: _repeat_by_weight(factorize(unify_spellings(table[name]))[1] + 1, weights) for name in sensitive}
    least = min(int(spec.options["k"]) for r in (first, second) for spec in r.models if spec.kind == "k_anonymity")  # type: ignore[call-overload]
    return CompositionReport(least, **asdict(compose(classes[0], classes[1], least, values)))


def refuse_composition(together: CompositionReport) -> None:
    """Refuse a release that, with an earlier one, shows groups smaller than asked."""
    if together.exposed:
        raise Infeasible(
            f"With the earlier release, {together.exposed} rows are in groups under k = {together.asked_k}",
            expected=f"The smallest group both releases leave has {together.k} rows",
            remedy="Release with the levels of the earlier recoding (deniable anonymize --update), or a larger k",
        )


def _table(source: Any, columns: tuple[str, ...] = (), encoding: str | None = None) -> pa.Table:
    from deniable.engines.base import quote, require_columns
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.policy.schema import make_dialect

    with DuckDBEngine(root=Path.cwd()) as engine:
        engine.attach(TABLE, source, csv=make_dialect(encoding))
        require_columns([f.name for f in engine.describe(TABLE)], columns, str(source))
        listed = ", ".join(map(quote, dict.fromkeys(columns))) or "*"
        return engine.run(f"SELECT {listed} FROM {quote(TABLE)}")  # noqa: S608  our own words and quoted names


def _classes(table: pa.Table, recoding: Recoding) -> NDArray[np.int64]:
    from deniable.kanonymity.recoding import Recoder

    recoder = Recoder(recoding)
    return recoder.index.find([c.codes(table[c.column.name])[0] for c in recoder.columns])


def _repeat_by_weight(values: Any, weights: Any) -> Any:
    import numpy as np

    return values.astype(np.int64) if weights is None else np.repeat(values.astype(np.int64), weights)


NEARLY = 0.1
"""A column is told of when so large a share of the rows has a value that fewer than k rows have."""


IN_ORDER = "rows keep the table's own order: other releases of it can be joined line by line, past every limit of both"


def find_warnings(
    engine: Engine, roles: Roles, request: Request, person: str | None = None, *, in_order: bool = False
) -> list[str]:
    """What a steward should know before the rows leave, never a value; `person` is the column of people, if any."""
    return [
        *_warn_rows_not_people(roles, request, person),
        *_warn_left_out(roles, request),
        *([IN_ORDER] if in_order else []),
        *_warn_linkable(engine, roles, request),
    ]


def _warn_rows_not_people(roles: Roles, request: Request, person: str | None) -> list[str]:
    """Where a person has several rows, a class of k rows may be fewer than k people."""
    unit = roles.schema.unit if roles.schema else None
    if request.person is not None:
        about = [str(model) for model in request.models if getattr(model, "person", None) is None]
        told = "which count rows: a person with several rows in a class counts several times in them"
        return [f"people are counted, but not by {', '.join(about)}, {told}"] if about else []
    if person is not None or unit is None or unit.is_row:
        return []
    return [f"k counts rows; the policy protects {unit}, who may have several rows in one class"]


def _warn_left_out(roles: Roles, request: Request) -> list[str]:
    """Columns that a reader of the policy, or of the table, may expect in the release."""
    if roles.schema is None:
        return _warn_unnamed(request)
    columns = roles.schema.columns
    gone = [c.name for c in columns if c.name in request.identifiers and c.role is not Role.IDENTIFIER and c.mask]
    if not gone:
        return []
    return [
        f"left out, since the policy lets them out masked only: {', '.join(gone)}. To have them, mask the table first"
    ]


def _warn_unnamed(request: Request) -> list[str]:
    if not request.identifiers:
        return []
    named = ", ".join(request.identifiers[:12]) + (", ..." if len(request.identifiers) > 12 else "")
    return [f"left out: {named}. Without a policy a column is released that is named, by --qi, --sensitive or --keep"]


def _warn_linkable(engine: Engine, roles: Roles, request: Request) -> list[str]:
    least = max([int(k) for model in request.models if (k := getattr(model, "k", None))] or [2])
    rare = {
        name: share for name in columns_shown(engine, roles, request) if (share := _rare(engine, name, least)) > NEARLY
    }
    if not rare:
        return []
    named = ", ".join(f"{name} ({share:.0%} of the rows)" for name, share in rare.items())
    return [
        f"nearly unique and released as they are: {named} have a value that fewer than {least} rows share, and whoever "
        "knows it finds the row. Make such a column a quasi-identifier (it is generalized) or an identifier (it is "
        "left out), or mask the table first"
    ]


def columns_shown(engine: Engine, roles: Roles, request: Request) -> Sequence[str]:
    """The columns that are released as they are."""
    names = roles.schema.names if roles.schema else [f.name for f in engine.describe(TABLE)]
    changed = {*request.quasi_identifiers, *request.identifiers}
    return [name for name in names if name not in changed]


def _rare(engine: Engine, name: str, least: int) -> float:
    """The share of rows whose value of a column fewer than so many rows have; a missing value tells nothing."""
    counted = "SELECT COUNT(*) AS n FROM {} WHERE {} IS NOT NULL GROUP BY {}"
    few = f"SELECT COALESCE(SUM(n) FILTER (n < {least}), 0) FROM ({statement(counted, TABLE, name, name)})"  # noqa: S608
    alone = int(engine.run(few).column(0)[0].as_py())
    return alone / max(engine.count(TABLE), 1)
