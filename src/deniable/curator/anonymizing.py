"""The journey of a k-anonymous release: roles, counts by quasi-identifiers, search, recoding in a stream, statement.

The rows are counted by the engine and streamed through the recoding, so that memory is bounded by the distinct
combinations of quasi-identifiers and not by the rows. Local recodings need the rows at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import AccessRefused, ParameterError, nearest
from deniable.policy.access import Anonymize
from deniable.policy.document import Policy, read
from deniable.policy.roles import Role
from deniable.policy.schema import Spec, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.engines.base import Engine
    from deniable.kanonymity.anonymize import Anonymized
    from deniable.kanonymity.recoding import Recoding
    from deniable.kanonymity.request import Prepared, Request

METHODS = ("optimal", "mondrian", "mondrian-relaxed", "local", "cells")
COUNT = "__rows"
TABLE = "table"

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked on the command line or by a caller; a policy fills what is not said."""

    source: Any
    out: Path
    policy: Path | None = None
    table: str | None = None
    quasi_identifiers: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    asked: Anonymize | None = None
    hierarchies: Mapping[str, Spec] = field(default_factory=dict)
    method: str = "optimal"
    measure: str = "loss"
    weights: Mapping[str, float] = field(default_factory=dict)
    form: str = "text"
    suppressed_rows: str = "drop"
    population: Any = None
    seconds: float | None = None
    earlier: Path | None = None
    refuse_composition: bool = False


@dataclass(frozen=True, slots=True)
class Roles:
    """Columns by role, with their declared hierarchies."""

    schema: TableSchema | None
    quasi_identifiers: tuple[str, ...]
    sensitive: tuple[str, ...]
    identifiers: tuple[str, ...]
    hierarchies: Mapping[str, Spec]


def anonymize(order: Order, progress: Progress | None = None) -> dict[str, Any]:
    """Make the release, write it with its statement and its recoding, and report in plain values."""
    from deniable.engines.duckdb import DuckDBEngine

    _refuse_unknown("method", order.method, METHODS)
    policy = _policy(order)
    with DuckDBEngine(root=policy.folder if policy else Path.cwd()) as engine:
        roles = _roles(engine, policy, order)
        request = _request(engine, policy, order, roles)
        population = _population(engine, order, request)
        if order.method == "optimal":
            return _globally(engine, policy, order, roles, request, population, progress)
        return _locally(engine, policy, order, roles, request)


def draft(source: Any, columns: tuple[str, ...] = ()) -> dict[str, Any]:
    """Hierarchies to begin with, as a policy would declare them."""
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.kanonymity.builders.draft import draft_column

    drafted = {}
    with DuckDBEngine(root=Path.cwd()) as engine:
        engine.attach(TABLE, source)
        names = _known(engine, columns) if columns else tuple(f.name for f in engine.describe(TABLE))
        for name in names:
            values = engine.run(_sql("SELECT DISTINCT {} FROM {}", name, TABLE)).column(0).combine_chunks()
            spec = draft_column(values.drop_null())
            # A column without structure is shown or withheld, for which a policy needs no words.
            drafted[name] = None if spec.kind == "withhold" else {spec.kind: _plain(spec.options)}
    return {"hierarchies": drafted}


def _policy(order: Order) -> Policy | None:
    if order.policy is None:
        return None
    policy = read(order.policy)
    if policy.expired(date.today()):
        raise AccessRefused(
            f"the policy expired on {policy.expires}", remedy="Nothing may be released under it anymore"
        )
    return policy


def _roles(engine: Engine, policy: Policy | None, order: Order) -> Roles:
    """Attach the source, and say which column plays which role."""
    schema = _schema(policy, order)
    source = order.source if order.source is not None else (schema.source if schema else None)
    if source is None:
        raise ParameterError("No table is named", remedy="Name a file, or a policy with --policy")
    engine.attach(TABLE, _absolute(source, order), schema)
    if schema is None:
        _known(engine, (*order.quasi_identifiers, *order.sensitive, *order.identifiers))
        return Roles(None, order.quasi_identifiers, order.sensitive, order.identifiers, order.hierarchies)
    from deniable.kanonymity.builders.specs import declared

    columns = {column.name: column for column in schema.columns}
    specs = {name: spec for name, column in columns.items() if (spec := declared(column, columns)) is not None}
    quasi = order.quasi_identifiers or _names(schema, Role.QUASI_IDENTIFIER)
    sensitive = order.sensitive or _names(schema, Role.SENSITIVE)
    identifiers = tuple(dict.fromkeys((*_names(schema, Role.IDENTIFIER), *order.identifiers)))
    return Roles(schema, _known(engine, quasi), sensitive, identifiers, {**specs, **order.hierarchies})


def _absolute(source: Any, order: Order) -> Any:
    """A file named on the command line is found from where the command is given, not from the policy's folder."""
    if isinstance(source, str | Path) and source == order.source and Path(source).exists():
        return Path(source).absolute()
    return source


def _schema(policy: Policy | None, order: Order) -> TableSchema | None:
    if policy is None:
        return None
    if order.table is not None:
        return policy.table(order.table)
    named = [t for t in policy.private if Path(t.source).name == Path(str(order.source or "")).name]
    found = named or list(policy.private)
    if len(found) == 1:
        return found[0]
    known = ", ".join(t.name for t in policy.private)
    raise ParameterError("it is not clear which table of the policy is meant", remedy=f"Say --table: {known}")


def _names(schema: TableSchema, role: Role) -> tuple[str, ...]:
    return tuple(column.name for column in schema.with_role(role))


def _known(engine: Engine, names: tuple[str, ...]) -> tuple[str, ...]:
    present = [f.name for f in engine.describe(TABLE)]
    for name in names:
        _refuse_unknown("column", name, present)
    return names


def _refuse_unknown(what: str, name: str, known: Any) -> None:
    if name not in known:
        expected = f"One of {', '.join(known)}"
        raise ParameterError(f"There is no {what} '{name}'", expected=expected, remedy=nearest(name, known))


def _request(engine: Engine, policy: Policy | None, order: Order, roles: Roles) -> Request:
    """The models of the policy, tightened or replaced by what was asked."""
    from deniable.kanonymity.quality import measure
    from deniable.kanonymity.request import Request
    from deniable.kanonymity.words import conditions

    asked = order.asked or (policy.release.anonymize if policy else None) or Anonymize()
    rows = engine.count(TABLE)
    sensitive = tuple(dict.fromkeys((*roles.sensitive, *asked.l, *asked.t)))
    return Request(
        roles.quasi_identifiers,
        conditions(asked, rows, _distances(engine, sensitive)),
        tuple(name for name in sensitive if name not in roles.quasi_identifiers),
        roles.identifiers,
        float(asked.suppress),
        measure(order.measure, dict(order.weights)),
    )


def _distances(engine: Engine, sensitive: tuple[str, ...]) -> dict[str, Any]:
    """Numbers and dates have an order to measure closeness along."""
    from deniable.kanonymity.models import Distance
    from deniable.policy.schema import ColumnType

    kinds = {f.name: f.type for f in engine.describe(TABLE)}
    unordered = (ColumnType.TEXT, ColumnType.BOOLEAN)
    return {name: Distance.ORDERED for name in sensitive if kinds.get(name, ColumnType.TEXT) not in unordered}


def _population(engine: Engine, order: Order, request: Request) -> pa.Table | None:
    from deniable.kanonymity.request import needs_population

    if order.population is None:
        if needs_population(request.models):
            raise ParameterError("A privacy model compares with the population", remedy="Name its table: --population")
        return None
    engine.attach("population", Path(order.population).absolute())
    return engine.run(_sql("SELECT {} FROM {}", request.quasi_identifiers, "population"))


def _globally(
    engine: Engine,
    policy: Policy | None,
    order: Order,
    roles: Roles,
    request: Request,
    population: pa.Table | None,
    progress: Progress | None,
) -> dict[str, Any]:
    """One level for each column: counted, searched, streamed."""
    from deniable.kanonymity.anonymize import anonymize as search
    from deniable.kanonymity.recode import Recoder
    from deniable.kanonymity.recoding import Form, Suppressed

    named = (*request.quasi_identifiers, *request.sensitive)
    counted = engine.run(_sql("SELECT {}, COUNT(*) AS {} FROM {} GROUP BY ALL", named, COUNT, TABLE))
    found = search(
        counted,
        request,
        roles.hierarchies,
        population=population,
        counts=COUNT,
        form=Form(order.form),
        suppressed_rows=Suppressed(order.suppressed_rows),
        seconds=order.seconds,
        progress=None if progress is None else lambda share: progress(0.5 * share),
    )
    composed = _composed(engine, order, found.recoding) | _warned(roles)
    written = engine.write(Recoder(found.recoding).stream(engine.stream(_rows(roles))), order.out)
    _keep(found.recoding, order.out)
    details = _details(found, request, written) | composed
    return _sealed(engine, policy, order, request, details) | {"lattice": _points(found, request)}


def _rows(roles: Roles) -> str:
    """The rows to release; columns that the policy does not declare are not among them."""
    return (
        _sql("SELECT * FROM {}", TABLE)
        if roles.schema is None
        else _sql("SELECT {} FROM {}", roles.schema.names, TABLE)
    )


def _warned(roles: Roles) -> dict[str, Any]:
    """Where a person has several rows, a class of k rows may be fewer than k people."""
    unit = roles.schema.unit if roles.schema else None
    if unit is None or unit.is_row:
        return {}
    return {"warning": f"k counts rows; the policy protects {unit}, who may have several rows in one class"}


def _composed(engine: Engine, order: Order, recoding: Recoding) -> dict[str, Any]:
    """What an intruder learns who also holds an earlier release of the same people."""
    if order.earlier is None:
        return {}
    from deniable.curator import checking
    from deniable.kanonymity.recoding import read as read_recoding

    earlier = read_recoding(order.earlier)
    sensitive = tuple(dict.fromkeys((*earlier.sensitive, *recoding.sensitive)))
    named = _known(engine, tuple(dict.fromkeys((*earlier.names, *recoding.names, *sensitive))))
    counted = engine.run(_sql("SELECT {}, COUNT(*) AS {} FROM {} GROUP BY ALL", named, COUNT, TABLE))
    together = checking.composition(counted, earlier, recoding, sensitive, COUNT)
    if order.refuse_composition:
        checking.refuse_composition(together)
    return {"composition": together}


def _locally(engine: Engine, policy: Policy | None, order: Order, roles: Roles, request: Request) -> dict[str, Any]:
    """Each class in its own way: the rows are read, split or staged, and written."""
    from deniable.kanonymity.local import local_loss, write_local
    from deniable.kanonymity.recoding import Form
    from deniable.kanonymity.request import prepare

    table = engine.run(_rows(roles))
    prepared = prepare(table, request, roles.hierarchies)
    release = _local(prepared, order.method)
    written = engine.write(write_local(table, prepared, release, Form(order.form)), order.out)
    details = {
        "rows": table.num_rows,
        "released": written,
        "suppressed": table.num_rows - written,
        "classes": release.classes,
        "models": [str(model) for model in request.models],
        "loss": local_loss(prepared, release),
    }
    return _sealed(engine, policy, order, request, details) | {"lattice": []}


def _local(prepared: Prepared, method: str) -> Any:
    from deniable.kanonymity.search.mondrian import mondrian
    from deniable.kanonymity.search.stages import optimal_then_local, suppress_cells

    if method == "cells":
        return suppress_cells(prepared)
    if method == "local":
        return optimal_then_local(prepared)
    return mondrian(prepared, relaxed=method == "mondrian-relaxed")


def recoding_path(out: Path) -> Path:
    """Where the recoding of a release is kept, for its owner only."""
    return out.with_name(out.name + ".recoding.json")


def _keep(recoding: Recoding, out: Path) -> None:
    from deniable.kanonymity.recoding import write

    write(recoding, recoding_path(out))


def _details(found: Anonymized, request: Request, written: int) -> dict[str, Any]:
    solution, recoding = found.solution, found.recoding
    proof = solution.proof
    return {
        "rows": recoding.rows,
        "released": written,
        "suppressed": solution.suppressed,
        "classes": solution.classes,
        "models": [str(model) for model in request.models],
        str(request.measure): solution.cost,
        "levels": dict(zip(recoding.names, recoding.levels, strict=True)),
        "proof": {
            "optimal": proof.complete,
            "nodes": proof.nodes,
            "checks": proof.checks,
            "checked": proof.checked,
            "excluded_as_failing": proof.failing,
            "excluded_as_costlier": proof.costly,
            "gap": solution.gap,
        },
    }


def _sealed(
    engine: Engine, policy: Policy | None, order: Order, request: Request, details: dict[str, Any]
) -> dict[str, Any]:
    """State what is claimed, beside the file."""
    from deniable.kanonymity.words import spelled
    from deniable.release import Guarantee, Property, Provenance, seal

    properties = []
    for model in request.models:
        spec = spelled(model)
        given = tuple((name, str(value)) for name, value in spec.options.items())
        properties.append(Property(spec.kind.replace("_", "-"), given))
    parameters = {"method": order.method, "quasi_identifiers": list(request.quasi_identifiers), "form": order.form}
    provenance = Provenance(policy.hash if policy else None, {TABLE: engine.data_version(TABLE)}, parameters)
    stated = {name: value for name, value in details.items() if name != "composition"}
    statement = seal(order.out, Guarantee.syntactic(tuple(properties)), provenance, stated)
    return details | {"output": str(order.out), "statement": str(statement.path), "words": list(statement.words)}


def _points(found: Anonymized, request: Request) -> list[dict[str, Any]]:
    """The lattice as data for a picture."""
    from dataclasses import asdict

    from deniable.kanonymity.picture import lattice_points

    rows = found.recoding.rows
    names = request.quasi_identifiers
    points = [asdict(point) for point in lattice_points(found.verdicts, found.solution, rows)]
    return [point | {"levels": dict(zip(names, point["levels"], strict=True))} for point in points]


def _sql(words: str, *names: str | tuple[str, ...]) -> str:
    """A statement of our own words around quoted names."""
    from deniable.engines.base import quote

    return words.format(*(quote(n) if isinstance(n, str) else ", ".join(map(quote, n)) for n in names))


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(held) for name, held in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
