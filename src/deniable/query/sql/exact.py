"""The statements that read private rows: contributions bounded, values in whole steps, one row for each group.

For an id unit each unit keeps at most `max_groups` groups, chosen by a hash with a fresh secret salt, and inside a
group its rows count for at most `max_rows` (a unit with more has its sum scaled down by max_rows / rows, which is what
sampling its rows would give on average, without the sampling noise). Every choice depends on that unit's own rows and
the salt alone, so adding or removing another unit changes nothing.
"""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable.query.expression import ColumnRef, Expression, Kind
from deniable.query.keys import FromTable, Keys, Listed, PrivateKeys, PublicKeys
from deniable.query.measure import Distinct, Measurement, Ordered, Rows, Total, Units
from deniable.query.relation import Join, Measured, Relation, Scan, Transform
from deniable.query.sql import coding
from deniable.query.sql.render import UNIT, expression, key, quoted, relation, value

if TYPE_CHECKING:
    from deniable.query.plan import Placed

LARGEST = 2**62
"""Sums are clamped here, which moves no two of them further apart, so that they fit 64 bits."""
SCALE_BITS = 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Contribution bounds in force for one grouping set; `groups` is None where no choice of groups is needed."""

    groups: int | None
    rows: int | None
    by_row: bool = False
    """Each row is a unit: nothing is bounded."""
    scaled: bool = False
    """The unit's vector over groups is scaled to a norm instead of choosing groups."""


def key_names(places: tuple[int, ...]) -> list[str]:
    """The columns of the group keys."""
    return [f"k{place}" for place in places]


def whole(measurement: Total | Ordered, source: Relation) -> str:
    """A row's value in whole steps, inside its bounds; null stays null, NaN is null. Nothing in it can fail.

    Public facts are promises about exact arithmetic, and the engine's runs in DOUBLE: so what is measured is clamped
    here once more, unless it is a column just as it was clamped where it is read.
    """
    argument = measurement.argument
    text, facts = expression(argument), argument.facts
    if facts.kind is Kind.DATE:
        text = f"date_diff('day', DATE '1970-01-01', {text})"
    elif facts.kind is Kind.DATETIME:
        text = f"epoch({text})"
    inside = facts.lower is not None and facts.upper is not None and (
        measurement.lower * measurement.step <= facts.lower and facts.upper <= measurement.upper * measurement.step
    )  # fmt: skip
    if measurement.step == 1 and facts.kind in (Kind.INTEGER, Kind.DATE) and inside and as_read(argument, source):
        return f"CAST({text} AS BIGINT)"
    number = f"NULLIF(CAST({text} AS DOUBLE), CAST('NaN' AS DOUBLE))"
    steps = number if measurement.step == 1 else f"round({number} / {float(measurement.step)!r})"
    low, high = f"CAST({measurement.lower} AS DOUBLE)", f"CAST({measurement.upper} AS DOUBLE)"
    return f"(CASE WHEN {number} IS NOT NULL THEN CAST(greatest({low}, least({high}, {steps})) AS BIGINT) END)"


def as_read(argument: Expression, source: Relation) -> bool:
    """Whether an expression is a column of a table, unchanged on its way since it was clamped."""
    if not isinstance(argument, ColumnRef):
        return False
    match source:
        case Scan():
            return True
        case Transform(below, projections):
            return as_read(dict(projections)[argument.name], below)
        case Join(left, right):
            found = next((side for side in (left, right) if argument.name in {f.name for f in side.fields}), left)
            return as_read(argument, found)
        case _:
            return False


def row_value(measurement: Measurement, source: Relation) -> str:
    """What one row gives to a measurement: a whole number, or null when it gives nothing."""
    match measurement:
        case Rows(argument, condition):
            return _when("1", condition, argument)
        case Units(condition):
            return _when("1", condition, None)
        case Total(center=center, squared=squared, condition=condition):
            text = whole(measurement, source)
            shifted = f"({text} - {center})" if center else text
            return _when(f"({shifted} * {shifted})" if squared else shifted, condition, None)
        case Distinct(argument, condition):
            return _when(expression(argument), condition, argument)
        case Ordered(condition=condition):
            return _when(whole(measurement, source), condition, None)


def _when(text: str, condition: Expression | None, argument: Expression | None) -> str:
    tests = [expression(condition)] if condition is not None else []
    tests += [f"({expression(argument)}) IS NOT NULL"] if argument is not None else []
    return f"CASE WHEN {' AND '.join(tests)} THEN {text} END" if tests else text


def additive(
    node: Measured, places: tuple[int, ...], wanted: Mapping[str, Measurement], limits: Limits, keys: Keys, salt: int
) -> str:
    """Counts and sums of all groups of one grouping set, one column for each measurement."""
    names = key_names(places)
    if limits.by_row:
        columns = [f"{_over_rows(m, node.input)} AS {name}" for name, m in wanted.items()]
        source = f"({relation(coding.unchecked(node, places, keys))}) AS t{_known(node, places, keys)}"
        inner = f"SELECT {', '.join([*_keys(node, places), *columns])} FROM {source}"
        return _presented(inner + _grouping(names), names, list(wanted), keys)
    if limits.scaled:
        inner = _scaled(node, places, wanted, limits, keys)
        return _presented(inner, names, list(wanted), keys)
    codes = coding.codable(node, places, keys)
    chosen = _chosen(node, places, wanted, limits, keys, salt, codes=codes)
    per_unit = [f"{_per_unit(name, m)}" for name, m in wanted.items()]
    units = f"SELECT {', '.join([UNIT, *names, *per_unit])} FROM ({chosen}) AS c GROUP BY {', '.join([UNIT, *names])}"
    totals = [f"{_over_units(name, m, limits)} AS {name}" for name, m in wanted.items()]
    inner = f"SELECT {', '.join([*names, *totals])} FROM ({units}) AS u{_grouping(names)}"
    return _presented(inner, names, list(wanted), keys, codes)


def additive_parts(placed: Iterable[Placed], threshold: bool) -> dict[str, Measurement]:
    """The measurements of a step that are counts and sums, by column; with a threshold the units are counted too."""
    wanted: dict[str, Measurement] = {
        p.column: p.measurement for p in placed if not isinstance(p.measurement, Ordered | Distinct)
    }
    return {**wanted, "units": Units(None)} if threshold else wanted


def valued(
    node: Measured, places: tuple[int, ...], measurement: Ordered | Distinct, limits: Limits, keys: Keys, salt: int
) -> str:
    """For ranks and distinct values: how many bounded rows each group has at each value."""
    names = key_names(places)
    chosen = _chosen(node, places, {"v": measurement}, limits, keys, salt, distinct=isinstance(measurement, Distinct))
    if not limits.by_row:
        order = f"hash(CAST({salt} AS UBIGINT), v), v"
        rank = f"row_number() OVER (PARTITION BY {', '.join([UNIT, *names])} ORDER BY {order}) AS n"
        ranked = f"SELECT *, {rank} FROM ({chosen}) AS c WHERE v IS NOT NULL"
        chosen = f"SELECT {', '.join([*names, 'v'])} FROM ({ranked}) AS d WHERE n <= {limits.rows}"
    grouping = ", ".join(str(i + 1) for i in range(len(names) + 1))
    if isinstance(measurement, Distinct):
        counted = f"SELECT {', '.join([*names, 'count(DISTINCT v) AS v'])} FROM ({chosen}) AS e{_grouping(names)}"
        return _presented(counted, names, ["v"], keys)
    return (f"SELECT {', '.join([*names, 'v', 'count(*) AS rows'])} FROM ({chosen}) AS e WHERE v IS NOT NULL "
            f"GROUP BY {grouping} ORDER BY {grouping}")  # fmt: skip


def _keys(node: Measured, places: tuple[int, ...], codes: Mapping[int, Listed] | None = None) -> list[str]:
    coded = codes or {}
    return [f"{coding.code(place) if place in coded else key(node.keys[place][1])} AS k{place}" for place in places]


def _grouping(names: list[str]) -> str:
    return f" GROUP BY {', '.join(names)}" if names else ""


def _chosen(
    node: Measured,
    places: tuple[int, ...],
    wanted: Mapping[str, Measurement],
    limits: Limits,
    keys: Keys,
    salt: int,
    distinct: bool = False,
    codes: dict[int, Listed] | None = None,
) -> str:
    """The bounded rows: unit, keys (or their codes), and each measurement's value, of the groups that a unit keeps."""
    names = key_names(places)
    carried = [] if limits.by_row else [UNIT]
    values = [f"{row_value(m, node.input)} AS {name}" for name, m in wanted.items()]
    columns = [*carried, *_keys(node, places, codes), *values]
    select = "SELECT DISTINCT" if distinct and not limits.by_row else "SELECT"
    source = relation(coding.unchecked(node, places, keys) if codes else node.input)
    text = f"{select} {', '.join(columns)} FROM ({source}) AS t{coding.joined(node, codes or {})}"
    text += _known(node, places, keys, [] if limits.by_row else [f"{UNIT} IS NOT NULL"])
    if limits.groups is None or not names:
        return text
    # Ranks follow a salted hash; the keys themselves break ties, so that no two groups share a rank.
    order = ", ".join([f"hash(CAST({salt} AS UBIGINT), {', '.join([*names, UNIT])})", *names])
    rank = f"dense_rank() OVER (PARTITION BY {UNIT} ORDER BY {order}) AS g"
    return f"SELECT * FROM (SELECT *, {rank} FROM ({text}) AS b) AS r WHERE g <= {limits.groups}"


def _known(node: Measured, places: tuple[int, ...], keys: Keys, tests: list[str] | None = None) -> str:
    """Rows whose public key is missing belong to no group, and must not use up a unit's groups."""
    found = list(tests or [])
    if isinstance(keys, PublicKeys):
        found += [f"({key(node.keys[place][1])}) IS NOT NULL" for place in places]
    return f" WHERE {' AND '.join(found)}" if found else ""


def _over_rows(measurement: Measurement, source: Relation) -> str:
    match measurement:
        case Rows() | Units():
            return f"count({row_value(measurement, source)})"
        case _:
            return _fitting(f"sum({row_value(measurement, source)})")


def _fitting(total: str) -> str:
    return f"CAST(greatest(-{LARGEST}, least({LARGEST}, COALESCE({total}, 0))) AS BIGINT)"


def _per_unit(name: str, measurement: Measurement) -> str:
    match measurement:
        case Rows() | Units():
            return f"count({name}) AS {name}"
        case _:
            return f"count({name}) AS n_{name}, COALESCE(sum({name}), 0) AS {name}"


def _over_units(name: str, measurement: Measurement, limits: Limits) -> str:
    match measurement:
        case Units():
            return _fitting(f"sum(least({name}, 1))")
        case Rows():
            return _fitting(f"sum(least({name}, {limits.rows}))")
        case Total(per_group=(int(), int()) as bounds):
            low, high = bounds
            return _fitting(f"sum(CASE WHEN n_{name} = 0 THEN 0 ELSE greatest({low}, least({high}, {name})) END)")
        case _:
            rows = limits.rows
            return _fitting(f"sum(CASE WHEN n_{name} > {rows} THEN ({name} * {rows}) // n_{name} ELSE {name} END)")


def _scaled(
    node: Measured, places: tuple[int, ...], wanted: Mapping[str, Measurement], limits: Limits, keys: Keys
) -> str:
    """Each unit's vector over groups is scaled down to the L2 norm sqrt(groups) * rows * reach.

    The factor is a whole number of 2^-30, computed with a margin of 1e-9 against rounding, and products are truncated
    toward zero, so the norm that comes out never exceeds the one that is priced.
    """
    names = key_names(places)
    chosen = _chosen(node, places, wanted, Limits(None, limits.rows), keys, 0)
    per_unit = [_per_unit(name, m) for name, m in wanted.items()]
    units = f"SELECT {', '.join([UNIT, *names, *per_unit])} FROM ({chosen}) AS c GROUP BY {', '.join([UNIT, *names])}"
    norms = ", ".join(
        f"sqrt(sum(pow(CAST({_capped(name, m)} AS DOUBLE), 2)) OVER (PARTITION BY {UNIT})) AS norm_{name}"
        for name, m in wanted.items()
    )
    totals = [f"{_fitting(f'sum({_shrunk(name, m, limits)})')} AS {name}" for name, m in wanted.items()]
    return f"SELECT {', '.join([*names, *totals])} FROM (SELECT *, {norms} FROM ({units}) AS u) AS v{_grouping(names)}"


def _capped(name: str, measurement: Measurement) -> str:
    return f"least({name}, 1)" if isinstance(measurement, Units) else name


def _shrunk(name: str, measurement: Measurement, limits: Limits) -> str:
    from deniable.query.sensitivity import reach_of

    assert limits.groups is not None
    norm = (limits.groups**0.5) * reach_of(measurement, limits.rows)
    factor = (
        f"CAST(floor(least(1.0, {norm!r} / greatest(norm_{name} * 1.000000001, 1e-300)) * {2**SCALE_BITS}) AS HUGEINT)"
    )
    product = f"(CAST({_capped(name, measurement)} AS HUGEINT) * {factor})"
    return f"(sign({product}) * (abs({product}) // {2**SCALE_BITS}))"


def _presented(
    inner: str, names: list[str], columns: list[str], keys: Keys, codes: Mapping[int, Listed] | None = None
) -> str:
    """Public keys: every one of them, in a fixed order, zero where there is nobody. Private keys: as found, sorted."""
    if not names:
        return inner
    if isinstance(keys, PrivateKeys):
        return f"SELECT * FROM ({inner}) AS a ORDER BY {', '.join(names)}"
    zeros = ", ".join(f"COALESCE(a.{column}, 0) AS {column}" for column in columns)
    shown = ", ".join(f"k.{name}" for name in names)
    coded = {f"k{place}": coding.code(place) for place in codes or {}}
    on = " AND ".join(f"k.{coded.get(name, name)} = a.{name}" for name in names)
    listed = f", {zeros}" if zeros else ""
    return (
        f"SELECT {shown}{listed} FROM ({every_key(keys, codes)}) AS k LEFT JOIN ({inner}) AS a ON {on} ORDER BY {shown}"
    )


def keys_alone(keys: PublicKeys, places: tuple[int, ...]) -> str:
    """All public keys in the order in which `additive` gives them, without a look at private rows."""
    shown = ", ".join(key_names(places))
    return f"SELECT {shown} FROM ({every_key(keys)}) AS k ORDER BY {shown}"


def every_key(keys: PublicKeys, codes: Mapping[int, Listed] | None = None) -> str:
    """All public keys as a relation with columns k0, k1, ..., and the codes of those that have one."""
    parts = []
    for i, part in enumerate(keys.parts):
        match part:
            case Listed(place) if codes and place in codes:
                parts.append(f"({coding.listing(part, f'k{place}')}) AS p{i}")
            case Listed(place, values):
                listed = ", ".join(value(v) for v in values)
                parts.append(f"(SELECT unnest([{listed}]) AS k{place}) AS p{i}")
            case FromTable(places, table, expressions):
                columns = ", ".join(f"{key(e)} AS k{p}" for p, e in zip(places, expressions, strict=True))
                present = " AND ".join(f"({key(e)}) IS NOT NULL" for e in expressions)
                parts.append(f"(SELECT DISTINCT {columns} FROM ({relation(table)}) AS t WHERE {present}) AS p{i}")
    where = f" WHERE {' AND '.join(expression(test) for test in keys.restriction)}" if keys.restriction else ""
    # Two listed values may be one in the engine's type; a key that appeared twice would be paid for once only.
    return f"SELECT DISTINCT * FROM {' CROSS JOIN '.join(parts)}{where}"


__all__ = ["Limits", "additive", "every_key", "key_names", "quoted", "row_value", "valued"]
