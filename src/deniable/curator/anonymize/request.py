"""What is asked of an anonymization, completed by the policy: columns by role, models, where the rows are.

A request may tighten the policy's demands and never loosen them."""

from __future__ import annotations

import math
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.publish import tell_charge
from deniable.engines.base import PERSON as PERSON
from deniable.engines.base import is_counted, read_rows, refuse_inexact, tell_apart
from deniable.errors import AccessRefused, ParameterError, nearest, pluralize
from deniable.policy.schema import Anonymize, Role, Spec, TableSchema, make_dialect
from deniable.storage import ACCEPTED, place_state

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.context import Context
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.kanonymity.models import Distance
    from deniable.kanonymity.request import Request
    from deniable.policy.document import Policy


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked on the command line or by a caller; None and empty leave it to the policy."""

    k: int | None = None
    l: Mapping[str, Fraction] = field(default_factory=dict)  # noqa: E741  the field's own letter
    t: Mapping[str, Fraction] = field(default_factory=dict)
    models: tuple[Spec, ...] = ()
    suppress: Fraction | None = None


def demands(policy: Policy | None, asked: Asked) -> Anonymize:
    """Both together: what is asked may be stricter than the policy, also in the share of rows that may go.

    >>> demands(None, Asked(k=3)).k
    3
    """
    _refuse_beyond(asked)
    if policy is None:
        _refuse_unprotected(asked)
    least = (policy.release.anonymize if policy else None) or Anonymize(k=1 if asked.k else 5)
    _refuse_looser("k", asked.k, least.k)
    for column, number in least.l.items():
        _refuse_looser(f"l of '{column}'", asked.l.get(column), number)
    for column, number in least.t.items():
        _refuse_looser(f"t of '{column}'", asked.t.get(column), number, sign=-1)
    if policy is not None and policy.release.anonymize is not None:
        _refuse_looser("the share of rows to suppress", asked.suppress, least.suppress, sign=-1)
    return Anonymize(
        least.k if asked.k is None else asked.k,
        {**least.l, **asked.l},
        {**least.t, **asked.t},
        least.suppress if asked.suppress is None else asked.suppress,
        tuple(dict.fromkeys((*least.models, *asked.models))),
        least.second_release,
    )


def _refuse_beyond(asked: Asked) -> None:
    """Refuse numbers that no table can have: fewer than one different value, a distance or a share above 1."""
    for column, number in asked.l.items():
        if number < 1:
            raise ParameterError(f"l of '{column}' is {float(number):g}", expected="A number from 1 up")
    shares = {f"t of '{column}'": number for column, number in asked.t.items()}
    shares |= {} if asked.suppress is None else {"the share of rows to leave out": asked.suppress}
    for what, share in shares.items():
        if not 0 <= share <= 1:
            raise ParameterError(f"{what} is {float(share):g}", expected="A number from 0 to 1")


def _refuse_unprotected(asked: Asked) -> None:
    """Refuse a k of 1 where nothing else is asked: every table as it is would do."""
    if asked.k is not None and asked.k < 2 and not (asked.l or asked.t or asked.models):
        raise ParameterError(
            f"k is {asked.k}, and no other model is asked",
            expected="k is at least 2: in a class of one row nobody is hidden",
            remedy="Ask for a larger k, or for a model with --model",
        )


def _refuse_looser(what: str, asked: Fraction | int | None, least: Fraction | int, sign: int = 1) -> None:
    if asked is not None and sign * asked < sign * least:
        bound = "at least" if sign > 0 else "at most"
        raise AccessRefused(
            f"{what} is asked to be {float(asked):g}, and the policy says {float(least):g}",
            expected=f"{what} is {bound} {float(least):g}",
            remedy="Ask for what the policy says, or for what is stricter",
        )


TABLE = "table"
COUNT = "__rows"
"""The table's name at the engine, and the column that says how many rows a combination of values has."""


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked on the command line or by a caller; a policy fills what is not said.

    Without `out` the released rows stay in memory.
    """

    source: Any
    out: Path | None
    policy: Path | Policy | None = None
    table: str | None = None
    quasi_identifiers: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    asked: Asked = field(default_factory=Asked)
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
    target: str | None = None
    tails: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    ledger: str | Path | None = None
    encoding: str | None = None
    columns: tuple[str, ...] | None = None
    """The columns to release of a policy's table; None is all that may leave. Without a policy, further columns to
    release as they are: what nobody names is left out."""
    identity: str = ""
    """The id of the approved request that this fulfills: under it the release is recorded once."""
    keep_order: bool = False
    """Whether rows leave in the order in which they stand in the table."""
    person: str | None = None
    """The column that tells people apart, to count classes in people; None is what the policy says."""
    count_rows: bool = False
    """Whether classes are counted in rows where the policy protects people."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Columns by role, with their declared hierarchies."""

    schema: TableSchema | None
    quasi_identifiers: tuple[str, ...]
    sensitive: tuple[str, ...]
    identifiers: tuple[str, ...]
    hierarchies: Mapping[str, Spec]


def read_policy(named: Path | Policy) -> Policy:
    """The policy that is named, if it has not expired."""
    from deniable.curator.scope import refuse_expired
    from deniable.policy.document import read

    return refuse_expired(read(named) if isinstance(named, Path) else named)


def refuse_accepted(source: Any, begun: str = "", encoding: str | None = None) -> None:
    """Refuse to release rows without a policy where one was accepted for them; but for one beside a file `begun`.

    Rows are known in any order, format and file, and a part of them too.
    """
    if not place_state(ACCEPTED).exists():
        return
    from deniable.curator.policy.accepted_rows import find_policy_of

    accepted = find_policy_of(source, encoding=encoding)
    if accepted is not None and not (begun and (Path(accepted).parent / begun).exists()):
        way = "Release them by deniable anonymize with" if begun else "Say"
        raise AccessRefused(
            "these rows have a policy that was accepted, and no policy was named",
            expected="Rows leave as their policy lets them, in whichever file they are",
            remedy=f"{way} --policy {shlex.quote(accepted)}. If these are rows of other people: write a policy for "
            "them with deniable policy init, and name it",
        )


@contextmanager
def open_order(order: Order, asker: Asker | None = None) -> Iterator[Context | None]:
    """The context of the order's policy and ledger; None without a policy."""
    if order.policy is None:
        refuse_accepted(order.source, encoding=order.encoding)
        yield None
        return
    from deniable.curator.context import find_ledger, open_context
    from deniable.curator.policy.accepted_rows import refuse_less_protected

    with tell_charge():
        policy = read_policy(order.policy)
        refuse_less_protected(policy, _name_source(policy, order))
        ledger = find_ledger(order.policy, order.ledger) if isinstance(order.policy, Path) else order.ledger
        with closing(open_context(policy, ledger=ledger, asker=asker)) as context:
            yield context


def _name_source(policy: Policy, order: Order) -> dict[str, Any]:
    """The file that an order names in place of the source of a table."""
    return {} if order.source is None else {_find_schema(policy, order).name: _absolute(order.source)}


@contextmanager
def open_table(context: Context | None, order: Order) -> Iterator[tuple[Engine, TableSchema | None]]:
    """The engine with the order's table as TABLE: of a policy as the asker may see it, else the file as it is."""
    from deniable.engines.duckdb import DuckDBEngine

    csv = make_dialect(order.encoding)
    if context is None:
        if order.source is None:
            raise ParameterError("No table is named", remedy="Name a file, or a policy with --policy")
        with DuckDBEngine(root=Path.cwd(), threads=_choose_threads(order.source)) as engine:
            engine.attach(TABLE, _absolute(order.source), None, csv=csv)
            _hold_files(engine, order)
            left = find_unnamed(engine, order)
            refuse_inexact(engine, TABLE, [each.name for each in engine.describe(TABLE) if each.name not in left])
            yield engine, None
        return
    schema = _find_schema(context.policy, order)
    sources = _name_source(context.policy, order)
    with context.scope.open_rows({TABLE: schema.name}, csv=csv, sources=sources) as engine:
        _hold_files(engine, order)
        unseen = (Role.IDENTIFIER, Role.UNDECIDED)
        refuse_inexact(engine, TABLE, [each.name for each in schema.columns if each.role not in unseen])
        yield engine, schema


SMALL_FILE = 4 << 20
"""Bytes of a CSV file that one thread reads with less work than several."""


def _choose_threads(source: Any) -> int | None:
    """One thread for a small file; None is as many as there are."""
    file = Path(source) if isinstance(source, str | Path) else None
    small = file is not None and file.suffix == ".csv" and file.is_file() and file.stat().st_size <= SMALL_FILE
    return 1 if small else None


def _hold_files(engine: Engine, order: Order) -> None:
    """Note the files that an order names, so that nothing is written over them."""
    from deniable.storage import hold_inputs

    named = (order.source, order.population, order.earlier)
    hold_inputs(engine, [Path(each) for each in named if isinstance(each, (str, Path))])


def roles_of(
    engine: Engine, context: Context | None, schema: TableSchema | None, order: Order, *, asked: bool = True
) -> Roles:
    """Which column plays which role; what an order names wrongly is refused, unless a release named it, not `asked`."""
    named = {"a quasi-identifier": order.quasi_identifiers, "sensitive": order.sensitive,
             "an identifier": order.identifiers}  # fmt: skip
    check_columns(engine, order.identifiers)
    if context is None or schema is None:
        if order.table is not None:
            raise ParameterError("A table of a policy is named, and no policy", remedy="Say --policy, or no --table")
        check_columns(engine, (*order.quasi_identifiers, *order.sensitive, *(order.columns or ())))
        refuse_two_roles(named | {"one to be kept": order.columns or ()})
        _refuse_useless_hierarchies(engine, order, order.quasi_identifiers, order.sensitive)
        specs = _with_tails(engine, order.hierarchies, order)
        left = find_unnamed(engine, order)
        return Roles(None, order.quasi_identifiers, order.sensitive, (*order.identifiers, *left), specs)
    from deniable.kanonymity.builders.specs import resolve_spec

    columns = {column.name: column for column in schema.columns}
    specs = {name: spec for name, column in columns.items() if (spec := resolve_spec(column, columns)) is not None}
    quasi = order.quasi_identifiers or _names(schema, Role.QUASI_IDENTIFIER)
    sensitive = order.sensitive or _names(schema, Role.SENSITIVE)
    _refuse_columns_of_others(context, schema, order)
    context.scope.columns_to_release(schema.name, tuple(dict.fromkeys((*order.quasi_identifiers, *order.sensitive))))
    refuse_two_roles(named)
    if asked:
        _refuse_against_policy(schema, order)
    _refuse_useless_hierarchies(engine, order, quasi, sensitive)
    withheld = _withheld(context, schema, order)
    quasi, sensitive = (tuple(n for n in names if n not in withheld) for names in (quasi, sensitive))
    dropped = _not_as_it_is(schema, quasi)
    identifiers = tuple(dict.fromkeys((*_names(schema, Role.IDENTIFIER), *order.identifiers, *withheld, *dropped)))
    specs = _with_tails(engine, {**specs, **order.hierarchies}, order)
    return Roles(schema, check_columns(engine, quasi), sensitive, identifiers, specs)


def refuse_two_roles(named: Mapping[str, Sequence[str]]) -> None:
    """Refuse a column that is named in two roles, of which only one could be minded."""
    for (one, first), (other, second) in combinations(named.items(), 2):
        for name in (name for name in first if name in second):
            raise ParameterError(
                f"Column '{name}' is named as {one} and as {other}",
                expected="One role for each column",
                remedy="Name it once: a quasi-identifier leaves coarser, what is sensitive or kept as it is, and an "
                "identifier not at all",
            )


def _refuse_against_policy(schema: TableSchema, order: Order) -> None:
    """Refuse roles that an order gives to columns, and the policy does not: they would be looser, or be ignored."""
    watched = (Role.SENSITIVE, Role.INSENSITIVE)
    asked = (
        ("a quasi-identifier", order.quasi_identifiers, (Role.QUASI_IDENTIFIER, Role.INSENSITIVE)),
        ("sensitive", order.sensitive, watched),
        ("what a model is about", _list_columns_modeled(order), watched),
        ("an identifier", order.identifiers, (Role.IDENTIFIER, Role.UNDECIDED)),
    )
    for words, names, roles in asked:
        for column in (column for column in map(schema.column, names) if column is not None):
            if column.role not in roles:
                raise ParameterError(
                    f"Column '{column.name}' is named as {words}, and the policy declares it as {column.role}",
                    expected="Columns in the roles that the policy gives them",
                    remedy="Leave the option out, or change the column's role in the policy. To leave a column out, "
                    "name the others in the policy (release: minimize: columns), or with columns= in Python",
                )


def _refuse_useless_hierarchies(engine: Engine, order: Order, quasi: Sequence[str], sensitive: Sequence[str]) -> None:
    """Refuse hierarchies, tops and bottoms of columns that are neither generalized nor compared along them."""
    used = (*quasi, *sensitive, *_list_columns_modeled(order))
    for name in check_columns(engine, (*order.hierarchies, *(name for end in order.tails.values() for name in end))):
        if name not in used:
            raise ParameterError(
                f"A hierarchy, top or bottom is given for '{name}', which is not generalized",
                expected=f"One of {', '.join(dict.fromkeys(used))}",
                remedy=nearest(name, used) or "Name the column as a quasi-identifier, or leave the option out",
            )


def _list_columns_modeled(order: Order) -> tuple[str, ...]:
    """The columns that the models of an order are about."""
    about = (str(model.options["column"]) for model in order.asked.models if "column" in model.options)
    return (*order.asked.l, *order.asked.t, *about)


def find_unnamed(engine: Engine, order: Order) -> tuple[str, ...]:
    """The columns that an order without a policy does not name: nobody decided on them, and they are left out."""
    about = (str(value) for model in order.asked.models for value in model.options.values())
    named = {*order.quasi_identifiers, *order.sensitive, *order.identifiers, *(order.columns or ()), *order.asked.l,
             *order.asked.t, *about, order.target}  # fmt: skip
    return tuple(field.name for field in engine.describe(TABLE) if field.name not in named)


def _not_as_it_is(schema: TableSchema, generalized: tuple[str, ...]) -> tuple[str, ...]:
    """Columns that the policy lets out changed only (quasi-identifiers, masked ones), and that are not generalized."""
    changed = (c.name for c in schema.columns if c.role is Role.QUASI_IDENTIFIER or c.mask is not None)
    return tuple(name for name in changed if name not in generalized)


def _refuse_columns_of_others(context: Context, schema: TableSchema, order: Order) -> None:
    """Refuse an analyst's request about a column that is not the analyst's: what is measured of it would be told."""
    if context.asker is None:
        return
    if order.count_rows:
        raise AccessRefused("k is asked to be counted in rows", remedy="Only the steward may count rows, not people")
    refuse_order(context, order.keep_order)
    about = (str(value) for model in order.asked.models for value in model.options.values())
    named = (*order.quasi_identifiers, *order.sensitive, *order.asked.l, *order.asked.t, *order.hierarchies,
             *order.weights, *(name for end in order.tails.values() for name in end),
             *((order.target,) if order.target else ()))  # fmt: skip
    every = dict.fromkeys((*named, *(name for name in about if name in schema.names)))
    context.scope.columns_to_release(schema.name, tuple(every))


def refuse_order(context: Context, kept: bool) -> None:
    """Refuse an analyst's request for rows in the table's own order, by which releases can be joined line by line."""
    if kept and context.asker is not None:
        raise AccessRefused(
            "rows are asked for in the table's own order",
            expected="Rows in a random order: in their own, releases can be joined line by line",
            remedy="Ask without it; only the steward may keep the order",
        )


def _withheld(context: Context, schema: TableSchema, order: Order) -> tuple[str, ...]:
    """The columns that do not leave: not asked for, outside the policy's minimization, or not the asker's."""
    allowed = context.scope.columns_to_release(schema.name, order.columns)
    return () if allowed is None else tuple(name for name in schema.names if name not in allowed)


def _with_tails(engine: Engine, specs: Mapping[str, Spec], order: Order) -> dict[str, Spec]:
    """Hierarchies with top and bottom coding; one is drafted where none was declared."""
    check_columns(engine, tuple(order.hierarchies))
    tops, bottoms = (order.tails.get(end, {}) for end in ("top", "bottom"))
    for name in (name for name in tops if name in bottoms and bottoms[name] >= tops[name]):
        raise ParameterError(
            f"The bottom of '{name}' is {bottoms[name]}, and its top {tops[name]}",
            expected="A bottom below the top: what lies between is kept",
        )
    made = dict(specs)
    for end, numbers in order.tails.items():
        for name, number in numbers.items():
            check_columns(engine, (name,))
            if not math.isfinite(number):
                raise ParameterError(f"The {end} of '{name}' is {number}", expected="A finite number")
            spec = made.get(name) or draft_hierarchy(engine, name)
            made[name] = Spec(spec.kind, {**spec.options, end: number})
    return made


def draft_hierarchy(engine: Engine, name: str) -> Spec:
    """A hierarchy to begin with, from the distinct values of a column."""
    from deniable.kanonymity.builders.specs import draft_column

    values = engine.run(statement("SELECT DISTINCT {} FROM {}", name, TABLE)).column(0).combine_chunks()
    return draft_column(values.drop_null(), name)


def _absolute(source: Any) -> Any:
    """A file named on the command line is found from where the command is given, not from the policy's folder."""
    if isinstance(source, str | Path) and Path(source).exists():
        return Path(source).absolute()
    return source


def _find_schema(policy: Policy, order: Order) -> TableSchema:
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


def check_columns(engine: Engine, names: tuple[str, ...]) -> tuple[str, ...]:
    """These columns, or a refusal that names the nearest there is."""
    present = [f.name for f in engine.describe(TABLE)]
    for name in names:
        refuse_unknown("column", name, present)
    return names


def refuse_unknown(what: str, name: str, known: Any) -> None:
    """Refuse a word that is not known."""
    if name not in known:
        expected = f"One of {', '.join(known)}"
        raise ParameterError(f"There is no {what} '{name}'", expected=expected, remedy=nearest(name, known))


def request_for(engine: Engine, context: Context | None, order: Order, roles: Roles) -> Request:
    """The models of the policy, tightened by what was asked."""
    from deniable.kanonymity.quality import find_measure
    from deniable.kanonymity.request import Request, build_conditions, refuse_too_few

    policy = context.policy if context else None
    asked = demands(policy, order.asked)
    rows = engine.count(TABLE)
    sensitive = check_columns(engine, tuple(dict.fromkeys((*roles.sensitive, *asked.l, *asked.t))))
    secret = tuple(name for name in sensitive if name not in roles.quasi_identifiers)
    person = find_repeated(engine, find_person(engine, order, roles))
    request = Request(
        roles.quasi_identifiers,
        build_conditions(asked, rows, find_distances(engine, sensitive), person),
        secret,
        roles.identifiers,
        float(asked.suppress),
        find_measure(order.measure, dict(order.weights)),
    )
    refuse_too_few(rows, request, _tell_rows(rows, context, order))
    return request


def _tell_rows(rows: int, context: Context | None, order: Order) -> str:
    """How many rows there are to release, and which: for the steward, and not in what another one requested."""
    if order.identity or (context is not None and context.asker is not None):
        return ""
    minimize, be = context.policy.release.minimize if context else None, "is" if rows == 1 else "are"
    sample = (
        ", the sample that the policy draws (release: minimize: sample)" if minimize and minimize.sample < 1 else ""
    )
    return f"there {be} {pluralize(rows, 'row')} to release{sample}"


def find_person(engine: Engine, order: Order, roles: Roles) -> str | None:
    """The column that tells people apart; None where rows are counted."""
    unit = roles.schema.unit if roles.schema else None
    if order.person is not None and order.count_rows:
        raise ParameterError("People and rows are both asked to be counted", remedy="Say --person or --count-rows")
    if order.person is not None and unit is not None and unit.column not in (None, order.person):
        raise ParameterError(
            f"People are to be told apart by '{order.person}', and the policy protects those of '{unit.column}'",
            expected=f"People as the policy tells them apart, by '{unit.column}'",
            remedy="Leave the option out, or change the policy's unit",
        )
    name = order.person or (unit.column if unit is not None and not order.count_rows else None)
    return None if name is None else check_columns(engine, (name,))[0]


def find_repeated(engine: Engine, person: str | None) -> str | None:
    """The column of people if somebody has several rows; where nobody has, a row is a person, and counted faster."""
    if person is None or is_counted(engine, TABLE):
        return None
    several = f"SELECT COUNT(DISTINCT {tell_apart(engine, TABLE, person)}) < COUNT(*) {statement('FROM {}', TABLE)}"
    return person if engine.run(several).column(0)[0].as_py() else None


def refuse_target(order: Order, request: Request, shown: Sequence[str]) -> None:
    """Refuse a target that the release will not have, or from whose release nothing is left to predict it."""
    if order.target is None:
        return
    leaving = (*request.quasi_identifiers, *shown)
    if order.target not in leaving:
        raise ParameterError(
            f"The target '{order.target}' is not released, and nothing can be told of it",
            expected=f"One of {', '.join(leaving)}",
            remedy="Name a column that leaves, or leave --target out",
        )
    if set(request.quasi_identifiers) == {order.target}:
        raise ParameterError("Nothing is left to predict the target from", expected="A column besides the target")


def find_distances(engine: Engine, sensitive: tuple[str, ...]) -> dict[str, Distance]:
    """Numbers and dates have an order to measure closeness along."""
    from deniable.kanonymity.models import Distance
    from deniable.policy.schema import ColumnType

    kinds = {f.name: f.type for f in engine.describe(TABLE)}
    unordered = (ColumnType.TEXT, ColumnType.BOOLEAN)
    return {name: Distance.ORDERED for name in sensitive if kinds.get(name, ColumnType.TEXT) not in unordered}


def population_of(engine: Engine, order: Order, request: Request) -> pa.Table | None:
    """The quasi-identifiers of the population, where one is named; refused where a model needs it and none is."""
    from deniable.engines.base import require_columns
    from deniable.kanonymity.request import needs_population

    if order.population is None:
        if needs_population(request.models):
            raise ParameterError("A privacy model compares with the population", remedy="Name its table: --population")
        return None
    engine.attach("population", Path(order.population).absolute())
    require_columns([f.name for f in engine.describe("population")], request.quasi_identifiers, "the population")
    refuse_inexact(engine, "population", request.quasi_identifiers)
    return engine.run(statement("SELECT {} FROM {}", request.quasi_identifiers, "population"))


def find_protected(engine: Engine, order: Order, roles: Roles, person: str | None = None) -> str | None:
    """The column of the people whom the policy protects, also where k counts rows; None where each has one row."""
    if is_counted(engine, TABLE):
        return None
    unit = roles.schema.unit if roles.schema else None
    name = person or order.person or (unit.column if unit is not None else None)
    return name if name in [field.name for field in engine.describe(TABLE)] else None


def rows_to_release(
    roles: Roles, engine: Engine | None = None, *, shuffled: bool = False, person: str | None = None
) -> str:
    """The rows to release; columns that the policy does not declare are not among them.

    Shuffled, they come in an order that a secret key chooses. With a person's column they say whose they are.
    """
    names = roles.schema.names if roles.schema is not None else ()
    whose = None if person is None or engine is None else tell_apart(engine, TABLE, person)
    return read_rows(
        TABLE, statement("{}", tuple(names)) if names else "*", secrets.token_hex(16) if shuffled else "", whose
    )


def statement(words: str, *names: str | tuple[str, ...]) -> str:
    """A statement of our own words around quoted names."""
    from deniable.engines.base import quote

    return words.format(*(quote(n) if isinstance(n, str) else ", ".join(map(quote, n)) for n in names))
