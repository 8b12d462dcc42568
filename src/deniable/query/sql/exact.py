"""The statements that read private rows: contributions bounded, values in whole steps, one row for each group.

For an id unit each unit keeps at most `max_groups` groups, chosen by a hash with a fresh secret salt; how much it
counts for inside them, and the other forms of bounding, are in `bounding`.
"""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from deniable.query.expression import ColumnRef, Expression, Kind
from deniable.query.keys import FromTable, Keys, Listed, PrivateKeys, PublicKeys
from deniable.query.limits import Limits
from deniable.query.measure import Distinct, Measurement, Ordered, Rows, Total, Units
from deniable.query.relation import Join, Measured, Relation, Scan, Transform
from deniable.query.sql import coding
from deniable.query.sql.bounding import THRESHOLD, fitting, grouping, totals
from deniable.query.sql.render import UNIT, expression, key, relation, value

if TYPE_CHECKING:
    from deniable.query.plan import Placed


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
        return _presented(inner + grouping(names), names, list(wanted), keys)
    codes = coding.codable(node, places, keys)
    chosen = _chosen(node, places, wanted, limits, keys, salt, codes=codes)
    inner = totals(chosen, names, wanted, limits, salt)
    return _presented(inner, names, list(wanted), keys, codes)


def additive_parts(placed: Iterable[Placed], threshold: bool) -> dict[str, Measurement]:
    """The measurements of a step that are counts and sums, by column; with a threshold the units are counted too."""
    wanted: dict[str, Measurement] = {
        p.column: p.measurement for p in placed if not isinstance(p.measurement, Ordered | Distinct)
    }
    return {**wanted, THRESHOLD: Units(None)} if threshold else wanted


def valued(
    node: Measured, places: tuple[int, ...], measurement: Ordered | Distinct, limits: Limits, keys: Keys, salt: int
) -> str:
    """For ranks and distinct values: how many bounded rows each group has at each value."""
    names = key_names(places)
    chosen = _chosen(node, places, {"v": measurement}, limits, keys, salt, distinct=isinstance(measurement, Distinct))
    if not limits.by_row:
        among, held = ([UNIT], [*names, "v"]) if limits.in_all else ([UNIT, *names], ["v"])
        order = ", ".join([f"hash(CAST({salt} AS UBIGINT), {', '.join(held)})", *held])
        rank = f"row_number() OVER (PARTITION BY {', '.join(among)} ORDER BY {order}) AS n"
        ranked = f"SELECT *, {rank} FROM ({chosen}) AS c WHERE v IS NOT NULL"
        chosen = f"SELECT {', '.join([*names, 'v'])} FROM ({ranked}) AS d WHERE n <= {limits.rows}"
    every = ", ".join(str(i + 1) for i in range(len(names) + 1))
    if isinstance(measurement, Distinct):
        counted = f"SELECT {', '.join([*names, 'count(DISTINCT v) AS v'])} FROM ({chosen}) AS e{grouping(names)}"
        return _presented(counted, names, ["v"], keys)
    return (f"SELECT {', '.join([*names, 'v', 'count(*) AS rows'])} FROM ({chosen}) AS e WHERE v IS NOT NULL "
            f"GROUP BY {every} ORDER BY {every}")  # fmt: skip


def _keys(node: Measured, places: tuple[int, ...], codes: Mapping[int, Listed] | None = None) -> list[str]:
    coded = codes or {}
    return [f"{coding.code(place) if place in coded else key(node.keys[place][1])} AS k{place}" for place in places]


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
    if limits.groups is None or not names or (limits.scaled and not distinct):
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
            return fitting(f"sum({row_value(measurement, source)})")


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


__all__ = ["Limits", "additive", "every_key", "key_names", "row_value", "valued"]
