"""Relations: what stands between the tables and the numbers that are measured.

A question becomes a tree of these frozen nodes. Private nodes carry a unit through every step, so that contributions
can be bounded at the end; a `Measured` node is where noise is added, and everything above it is post-processing of
public numbers. No node holds rows.

**Stability**: how far one unit's rows reach through a relation.

**Work**: how much a question can cost for one row, whatever the row holds. Time is seen by whoever asks, so no row may
decide it. Every text has a public bound on its length: what the policy declares, or `LONGEST_TEXT`, where longer texts
are cut as they are read. Functions pass bounds on (`intervals`), and a text that could grow beyond `LONGEST_RESULT` is
refused. From lengths follows a bound on the work for one row, in characters that are looked at; a question above
`MOST_WORK` is refused. All of it is decided from the policy and the text of the question, before anything is charged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from deniable.errors import InternalError
from deniable.policy.schema import Bounding, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query.algebra.expression import LONGEST_TEXT, Call, ColumnRef, Expression, Facts, Kind, Literal, to_number
from deniable.query.algebra.functions import ARITHMETIC, FUNCTIONS, may_be_nan
from deniable.query.algebra.intervals import length_of


class Tag(StrEnum):
    """What a relation may be used for."""

    PRIVATE = "private"
    """Rows of people: only aggregates with noise may leave."""
    UNIT = "unit-preserving"
    """Private rows after a transformation that keeps each row with its unit."""
    DP = "differentially private"
    """Noisy numbers: everything done with them is post-processing."""
    PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a relation, and what is public about it."""

    name: str
    facts: Facts


@dataclass(frozen=True, slots=True)
class Scan:
    """A declared table; bounded columns are clamped as they are read. `alias` prefixes the field names.

    `owners` are the tables on the way to the person, where the table itself does not name her (`unit: {via: ...}`): it
    is joined with them, so that each row carries its unit, and a row that leads to nobody counts for nobody.
    """

    table: TableSchema
    alias: str
    fields: tuple[Field, ...]
    owners: tuple[TableSchema, ...] = ()


@dataclass(frozen=True, slots=True)
class Transform:
    """Keep the rows that satisfy the predicate, and compute new fields from each."""

    input: Relation
    projections: tuple[tuple[str, Expression], ...]
    predicate: Expression | None
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """An equi-join. With a public right side each private row keeps its unit; two private sides meet on the unit."""

    left: Relation
    right: Relation
    outer: bool
    """LEFT JOIN instead of INNER JOIN."""
    on: tuple[tuple[Expression, Expression], ...]
    by_unit: bool
    """Whether the units of both sides are equated."""
    fields: tuple[Field, ...]
    fan_out: int = 1
    """The most rows of a public right side that one private row meets."""
    pairs: int = 1_000_000
    """Pairs of rows that one unit may make; a unit with more is left out of the join."""
    full: bool = False
    """FULL JOIN: rows of the right side without a match are kept as well."""
    single: bool = False
    """The right side has at most one row for each key (and unit), by what it is made of: no row is copied."""


@dataclass(frozen=True, slots=True)
class Union:
    """Rows of several private relations with one unit, one after the other."""

    inputs: tuple[Relation, ...]
    fields: tuple[Field, ...]


class Summary(StrEnum):
    """Exact aggregates: over one unit's own rows, or over public rows."""

    COUNT = "count"
    DISTINCT = "distinct"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class ExactAggregate:
    """One exact aggregate; `argument` None counts rows."""

    summary: Summary
    argument: Expression | None
    condition: Expression | None = None
    step: Fraction | None = None
    """The public grid on which a sum or an average of private rows is added up; None over public rows."""


@dataclass(frozen=True, slots=True)
class PerUnit:
    """One row for each unit (and each value of further keys): the unit's rows summarized."""

    input: Relation
    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, ExactAggregate], ...]
    fields: tuple[Field, ...]


class Measure(StrEnum):
    """The aggregates that are released with noise."""

    COUNT = "count"
    UNITS = "units"
    DISTINCT = "distinct"
    SUM = "sum"
    AVG = "avg"
    VARIANCE = "variance"
    STDDEV = "stddev"
    MIN = "min"
    MAX = "max"
    QUANTILE = "quantile"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class NoisyAggregate:
    """One aggregate as it was asked: of what, under which condition, with which parameters."""

    measure: Measure
    argument: Expression | None
    condition: Expression | None = None
    quantile: Fraction | None = None
    population: bool = False
    """Whether a spread is that of the rows themselves (VAR_POP), not of what they are a sample of."""
    per_group: tuple[Fraction, Fraction] | None = None
    """Bounds of one unit's sum in one group, where the question states them (contribution_bounds_per_group)."""
    quotient: bool = False
    """Whether a sum is a part of a quotient by a count (CORR and the like)."""
    distinct: bool = False
    """Whether a sum is one of different values."""
    text: str = field(default="", compare=False, repr=False)
    place: int = field(default=0, compare=False, repr=False)
    """Where the aggregate stands in the question, for refusals."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A private relation grouped and aggregated with noise; from here on the numbers are public."""

    input: Relation
    keys: tuple[tuple[str, Expression], ...]
    grouping_sets: tuple[tuple[int, ...], ...]
    aggregates: tuple[tuple[str, NoisyAggregate], ...]
    fields: tuple[Field, ...]
    name: str = "measured"


def name_rollup_flag(key: str) -> str:
    """The field of a `Measured` node that is 1 where its key is rolled up, so that this is told apart from null."""
    return f"{key}_rolled"


@dataclass(frozen=True, slots=True)
class Ordering:
    """One part of an ORDER BY."""

    expression: Expression
    down: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """A function over public rows beside each row; `frame` is written out."""

    function: str
    arguments: tuple[Expression, ...]
    partition: tuple[Expression, ...]
    order: tuple[Ordering, ...]
    frame: str = ""


@dataclass(frozen=True, slots=True)
class PublicSelect:
    """An ordinary SELECT over public rows: post-processing, at no cost.

    Windows are computed over the rows that the predicate keeps, and `qualify` chooses among these.
    """

    input: Relation
    projections: tuple[tuple[str, Expression], ...]
    predicate: Expression | None
    fields: tuple[Field, ...]
    keys: tuple[tuple[str, Expression], ...] = ()
    aggregates: tuple[tuple[str, ExactAggregate], ...] = ()
    grouped: bool = False
    order: tuple[Ordering, ...] = ()
    limit: int | None = None
    offset: int = 0
    distinct: bool = False
    windows: tuple[tuple[str, Window], ...] = ()
    qualify: Expression | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """One row without columns: SELECT without FROM."""

    fields: tuple[Field, ...] = ()


Relation = Scan | Transform | Join | Union | PerUnit | Measured | PublicSelect | Nothing

_KINDS = {
    ColumnType.INTEGER: Kind.INTEGER,
    ColumnType.DECIMAL: Kind.DECIMAL,
    ColumnType.TEXT: Kind.TEXT,
    ColumnType.BOOLEAN: Kind.BOOLEAN,
    ColumnType.DATE: Kind.DATE,
    ColumnType.DATETIME: Kind.DATETIME,
}


def facts_of(column: Column, public: bool = False) -> Facts:
    """What the policy makes public about a column."""
    kind = _KINDS[column.type]
    lower = upper = None
    step = Fraction(1) if kind in (Kind.INTEGER, Kind.DATE) else None
    if column.bounds is not None and kind.ordered:
        lower, upper = to_number(column.bounds.lower), to_number(column.bounds.upper)
        step = step if kind is Kind.DATE else column.bounds.step
    elif column.categories and kind.numeric:
        numbers = [to_number(value) for value in column.categories]
        lower, upper = min(numbers), max(numbers)
    # What is not in the list, or not in the calendar, is read as null, whatever the policy says of nulls.
    cut = column.categories is not None or (kind in (Kind.DATE, Kind.DATETIME) and lower is None)
    longest = None
    if kind is Kind.TEXT:
        listed = max((len(str(each)) for each in column.categories or ()), default=0)
        longest = listed if column.categories else column.longest or LONGEST_TEXT
    return Facts(kind, lower, upper, step, column.categories, column.nullable or cut, public, column.opaque, longest)


def scan_table(table: TableSchema, alias: str, owners: tuple[TableSchema, ...] = ()) -> Scan:
    """The relation of a declared table, its fields named `alias.column`."""
    fields = tuple(Field(f"{alias}.{column.name}", facts_of(column, table.public)) for column in table.columns)
    return Scan(table, alias, fields, owners)


def is_private(relation: Relation) -> bool:
    """Whether rows of people are in it."""
    match relation:
        case Scan(table):
            return not table.public
        case Measured() | PublicSelect() | Nothing():
            return False
        case Join(left, right):
            return is_private(left) or is_private(right)
        case Union(inputs):
            return any(is_private(relation) for relation in inputs)
        case Transform(source) | PerUnit(source):
            return is_private(source)


def tag_of(relation: Relation) -> Tag:
    """What the relation may be used for."""
    match relation:
        case Scan(table):
            return Tag.PUBLIC if table.public else Tag.PRIVATE
        case Measured():
            return Tag.DP
        case Nothing():
            return Tag.PUBLIC
        case _ if is_private(relation):
            return Tag.UNIT
        case _:
            return Tag.DP if any(tag_of(below) is Tag.DP for below in inputs_of(relation)) else Tag.PUBLIC


def inputs_of(relation: Relation) -> tuple[Relation, ...]:
    """The relations one step below."""
    match relation:
        case Scan() | Nothing():
            return ()
        case Join(left, right):
            return (left, right)
        case Union(below):
            return below
        case _:
            return (relation.input,)


def tables_of(relation: Relation) -> tuple[TableSchema, ...]:
    """Every table read below, once each."""
    if isinstance(relation, Scan):
        return (relation.table, *relation.owners)
    found = {table.name: table for below in inputs_of(relation) for table in tables_of(below)}
    return tuple(found.values())


def named_tables_of(relation: Relation) -> tuple[TableSchema, ...]:
    """Every table that the question names below, once each: not those that only say whose rows these are."""
    if isinstance(relation, Scan):
        return (relation.table,)
    found = {table.name: table for below in inputs_of(relation) for table in named_tables_of(below)}
    return tuple(found.values())


Origin = tuple[str, str]
"""A column of a table."""


def links_of(tables: tuple[TableSchema, ...]) -> frozenset[Origin]:
    """The keys through which rows of other tables lead to a person: each of them tells people apart."""
    units = [table.unit for table in tables if table.unit is not None]
    return frozenset((link.table, link.key) for unit in units for link in unit.via)


def origins_of(relation: Relation) -> dict[str, Origin]:
    """Which column of a table each field is, as it was read; a step to another table is the key that it leads to."""
    match relation:
        case Scan(table, alias, fields):
            first = table.unit.via[:1] if table.unit is not None else ()
            known = {field.name: (table.name, field.name.split(".", 1)[-1]) for field in fields}
            return known | {f"{alias}.{link.column}": (link.table, link.key) for link in first}
        case Transform(source, projections) | PerUnit(source, projections):
            known = origins_of(source)
            named = ((name, e.name) for name, e in projections if isinstance(e, ColumnRef))
            return {name: known[below] for name, below in named if below in known}
        case Join(left, right):
            return origins_of(left) | origins_of(right)
        case _:
            return {}


def personal_fields(relation: Relation, links: frozenset[Origin]) -> frozenset[str]:
    """The fields that tell people apart: the unit's own column, and keys that lead to one person."""
    linked = {name for name, origin in origins_of(relation).items() if origin in links}
    return unit_fields(relation) | frozenset(linked)


def meet_on_unit(left: Relation, right: Relation, pair: tuple[Expression, Expression]) -> bool:
    """Whether a pair equates the units of two relations, or the key through which rows of one lead to its person."""
    a, b = pair
    if not isinstance(a, ColumnRef) or not isinstance(b, ColumnRef):
        return False
    if a.name in unit_fields(left) and b.name in unit_fields(right):
        return True
    origin = origins_of(left).get(a.name)
    links = links_of((*tables_of(left), *tables_of(right)))
    return origin is not None and origin in links and origin == origins_of(right).get(b.name)


def find_noisy_nodes(relation: Relation) -> tuple[Measured, ...]:
    """Every noisy aggregate in the tree, from the bottom up, once each."""
    found = _collect_noisy_nodes(relation)
    # Hashing a tree takes as long as binding it did: one aggregate alone need not be told apart from others.
    return tuple(dict.fromkeys(found)) if len(found) > 1 else tuple(found)


def _collect_noisy_nodes(relation: Relation) -> list[Measured]:
    below = [node for source in inputs_of(relation) for node in _collect_noisy_nodes(source)]
    return [*below, relation] if isinstance(relation, Measured) else below


def unit_fields(relation: Relation) -> frozenset[str]:
    """The fields that hold the privacy unit's own id."""
    match relation:
        case Scan(table, alias):
            unit = table.unit
            named = unit is not None and unit.column and not unit.via
            return frozenset({f"{alias}.{unit.column}"}) if unit is not None and named else frozenset()
        case Transform(source, projections):
            known = unit_fields(source)
            return frozenset(n for n, e in projections if isinstance(e, ColumnRef) and e.name in known)
        case PerUnit(source, keys):
            known = unit_fields(source)
            return frozenset(n for n, e in keys if isinstance(e, ColumnRef) and e.name in known)
        case Join(full=True):
            return frozenset()
        case Join(left, right, outer):
            # The right side of a LEFT JOIN may be null where there is a unit all the same.
            return unit_fields(left) if outer else unit_fields(left) | unit_fields(right)
        case Union(inputs, fields):
            everywhere = [
                {i for i, field in enumerate(side.fields) if field.name in unit_fields(side)} for side in inputs
            ]
            return frozenset(fields[i].name for i in set.intersection(*everywhere))
        case _:
            return frozenset()


def unit_of(relation: Relation) -> PrivacyUnit:
    """The one unit of all private tables below; bounds are the tightest that any of them states."""
    units = [table.unit or PrivacyUnit() for table in named_tables_of(relation) if not table.public]
    if not units:
        raise InternalError("a public relation has no privacy unit")
    return PrivacyUnit(
        units[0].column,
        _tightest([unit.max_groups for unit in units]),
        _tightest([unit.max_rows_per_group for unit in units]),
        # Replacing one unit costs two add-or-remove steps, so the stricter relation holds for all.
        max((unit.neighboring for unit in units), key=lambda relation: relation.value == "replace"),
        Bounding.ROWS if any(unit.bounding is Bounding.ROWS for unit in units) else units[0].bounding,
        _tightest([unit.max_rows for unit in units]),
    )


def has_one_unit(relation: Relation) -> bool:
    """Whether all private tables agree on what a unit is: rows, or ids."""
    return len({(table.unit or PrivacyUnit()).is_row for table in tables_of(relation) if not table.public}) <= 1


def unit_kind(table: TableSchema) -> str:
    """What kind of id the table's unit has: ids of different types are never the same person."""
    unit = table.unit or PrivacyUnit()
    column = table.column(unit.column) if unit.column else None
    return "row" if unit.is_row else (column.type.value if column is not None else "text")


UNSURE_IDS = ("decimal", "datetime")
"""Types of ids that files hold in several forms, between which different ids may become equal, or fail to be read."""


def compare_ids(*sides: Relation) -> str:
    """Why the ids of private tables cannot be compared exactly; empty where they can."""
    private = {table.name: unit_kind(table) for side in sides for table in tables_of(side)
               if not table.public and not (table.unit is not None and table.unit.via)}  # fmt: skip
    kinds = set(private.values())
    if len(kinds) > 1:
        return "have ids of different types"
    if len(private) > 1 and kinds & {*UNSURE_IDS}:
        return f"have ids of the type '{kinds.pop()}', which cannot be compared exactly between tables"
    return ""


def count_copies(relation: Relation) -> Counter[str]:
    """For row units: how many rows of this relation one row of each private table can touch."""
    match relation:
        case Scan(table):
            return Counter({table.name: 1}) if not table.public else Counter()
        case Union(inputs):
            return sum((count_copies(side) for side in inputs), Counter())
        case Join(left, right):
            # A public side is reduced to one row for each join key (see sql/render), so it copies nothing.
            return count_copies(left) if is_private(left) else count_copies(right)
        case Transform(source) | PerUnit(source):
            return count_copies(source)
        case _:
            return Counter()


def has_one_row(relation: Relation) -> bool:
    """Whether each id has at most one row: its rows were summarized by the id alone, and nothing copied them since."""
    match relation:
        case PerUnit(source, keys):
            known = unit_fields(source)
            return all(isinstance(key, ColumnRef) and key.name in known for _, key in keys)
        case Transform(source):
            return has_one_row(source)
        case _:
            return False


def multiplicity(relation: Relation) -> int:
    """The largest number of rows that one row unit can touch; 1 for id units, which are bounded at the end."""
    if not unit_of(relation).is_row:
        return 1
    return max(count_copies(relation).values(), default=1)


def _tightest(bounds: list[int | None]) -> int | None:
    stated = [bound for bound in bounds if bound is not None]
    return min(stated) if stated else None


MOST_WORK = 1 << 21
"""Characters that may be looked at for one row: a few milliseconds at worst."""
SLOW = ("replace", "regexp_replace", "lower", "upper", "trim", "ltrim", "rtrim", "ilike")
SLOWNESS = 8
"""Functions that take about so many times as long for a character as others do."""
MOST_FAN_OUT = 100
"""Public rows that one private row may meet in all joins of a question together; further ones are left out."""
MOST_PAIRS, FEWEST_PAIRS, MOST_UNIT_WORK = 1_000_000, 400, 1 << 29
"""Pairs of rows of one unit in a join: as many as can be worked on in that many steps, within limits."""
MOST_JOINED_WORK = 1 << 25
"""Characters that may be looked at for one row together with all public rows that it meets."""
ROW_WORK = 64
"""Steps that a joined row takes by itself."""
MOST_TERMS = 100_000
"""Columns, literals and calls that are written for the engine; a term that a function needs twice is written twice."""
MOST_NODES = 2_000
"""Steps of a question, WITH queries counted at each use."""
IN_CALENDAR = ("add", "subtract", "cast_date", "cast_datetime", "add_months", "shift_months", "shift_seconds")
"""Functions whose dates are null where they are not in the calendar."""
SEARCHES = ("contains", "replace", "like", "ilike", "trim", "ltrim", "rtrim", "regexp_replace")
"""Functions that may look at the second text again at each place of the first."""
_SLOT = re.compile(r"\{(?:n|int)?(\d+)\}")
_TIMES = {
    name: {int(place): found.count(place) for place in set(found)}
    for name, function in FUNCTIONS.items()
    if (found := _SLOT.findall(function.template))
}
"""By function: how often each of its arguments stands in the template."""


def count_nodes(relation: Relation, most: int = MOST_NODES) -> int:
    """The steps of a relation, each as often as it is used; counting ends above `most`."""
    count, waiting = 0, [relation]
    while waiting and count <= most:
        count += 1
        waiting += inputs_of(waiting.pop())
    return count


def bound_work(relation: Relation) -> tuple[int, int]:
    """The most characters that are looked at for one row, and the terms that are written, over all steps."""
    found = [_bound_expression(each) for each in list_expressions(relation)]
    found += [bound_work(below) for below in inputs_of(relation)]
    return sum(work for work, _ in found), sum(terms for _, terms in found)


def _bound_expression(expression: Expression) -> tuple[int, int]:
    if not isinstance(expression, Call):
        return 1, 1
    times = _TIMES.get(expression.name, {})
    lengths = [length_of(each.facts) for each in expression.arguments]
    work, terms = 1 + sum(lengths) + length_of(expression.facts), 1
    if expression.name in SLOW:
        work += SLOWNESS * lengths[0]
    if expression.name in SEARCHES and len(lengths) > 1:
        work += lengths[0] * lengths[1] // (3 if _matches_any_character(expression) else SLOWNESS)
    for place, argument in enumerate(expression.arguments):
        inner, written = _bound_expression(argument), times.get(place, 1)
        if expression.name not in ARITHMETIC and may_be_nan(argument):
            written *= 2  # it is compared with NaN
        if expression.name in IN_CALENDAR and expression.facts.kind in (Kind.DATE, Kind.DATETIME):
            written *= 3  # and a moved or read date with both ends of the calendar
        work, terms = work + inner[0], terms + written * inner[1]  # what is written twice is computed once
    return work, terms


def _matches_any_character(call: Call) -> bool:
    """Whether a pattern may hold `_`: the engine then compares the whole pattern at each place, sign by sign."""
    pattern = call.arguments[1]
    return call.name in ("like", "ilike") and not (isinstance(pattern, Literal) and "_" not in str(pattern.value))


def list_expressions(relation: Relation) -> Iterator[Expression]:
    """The expressions of one step."""
    match relation:
        case Transform(_, projections, predicate):
            yield from (each for _, each in projections)
            yield from [predicate] if predicate is not None else []
        case Join(on=on):
            yield from (side for pair in on for side in pair)
        case PerUnit(_, keys, aggregates):
            yield from (each for _, each in keys)
            yield from _list_arguments([each for _, each in aggregates])
        case Measured(_, keys, _, aggregates):
            yield from (each for _, each in keys)
            yield from _list_arguments([each for _, each in aggregates])
        case PublicSelect(_, projections, predicate, keys=keys):
            yield from (each for _, each in (*projections, *keys))
            yield from [predicate] if predicate is not None else []


def _list_arguments(aggregates: list[ExactAggregate] | list[NoisyAggregate]) -> Iterator[Expression]:
    for aggregate in aggregates:
        yield from (each for each in (aggregate.argument, aggregate.condition) if each is not None)
