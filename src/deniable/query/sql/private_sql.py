"""The statements that read private rows: contributions bounded, values in whole steps, one row for each group.

**Bounding.** Each unit keeps at most `max_groups` groups, chosen by a hash with a fresh secret salt; inside them it
counts for at most its bounds, in one of the forms of `Limits`. What is kept of a unit depends on the set of that unit's
own rows and the salt alone, so adding or removing another unit changes nothing.

**Private keys.** A key is shown when its noisy count of units reaches the threshold of `KeyThreshold`, whose delta is
proven for units that are counted once in each of at most `max_groups` keys, and in no other key at all: a key that is
there with a count of 0 could still be lifted over the threshold by its noise. Each form of bounding must leave a unit
in so few keys, for every salt:

- *sample*: ranks of a unit's keys are dense and start at 1, and only ranks up to `groups` are kept
  (`_render_chosen_rows`).
- *rows*: at most `rows` rows of a unit are kept, so at most `rows` keys; the threshold is made for `rows` keys.
- *scale*: shrinking a unit's vector keeps all its keys, so private keys are never scaled: they are sampled
  (`plan.limits_of`). Public keys may be scaled, since all of them are shown in any case.
- *row units*: a row has one key.

Double entry derives the same number from the limits that are rendered (`count_enforced_groups`).

**Declared text keys.** A column with declared categories is read as null where its value is not declared. That test
costs several times a plain scan, and it is not needed where the column is a public group key: every row whose key is
not declared is dropped by the join with the list of keys, whatever else was computed from it. The same join can hand
out the key's place in the list, which is cheaper to hash, sort and compare than the text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from deniable.engines.base import quote
from deniable.query.algebra.expression import ColumnRef, Expression, Kind
from deniable.query.algebra.relation import Join, Measured, Relation, Scan, Transform
from deniable.query.joint import add_indexes, name_part
from deniable.query.keys import FromTable, Keys, Listed, PrivateKeys, PublicKeys
from deniable.query.measurements import Distinct, Measurement, Ordered, Part, Rows, Total, Units
from deniable.query.plan import Limits, is_bounded_in_each_group, is_signed, parts_for, parts_of, reach_of
from deniable.query.sql.render import UNIT, render_each, render_expression, render_key, render_relation, render_value

if TYPE_CHECKING:
    from deniable.query.plan import Joint, Placed, Step


# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)


def key_names(places: tuple[int, ...]) -> list[str]:
    """The columns of the group keys."""
    return [f"k{place}" for place in places]


def render_whole_steps(measurement: Total | Ordered | Part | Distinct, source: Relation) -> str:
    """A row's value in whole steps, inside its bounds; null stays null, NaN is null. Nothing in it can fail.

    Public facts are promises about exact arithmetic, and the engine's runs in DOUBLE: so what is measured is clamped
    here once more, unless it is a column just as it was clamped where it is read.
    """
    argument = measurement.argument
    assert argument is not None
    text, facts = render_expression(argument), argument.facts
    if facts.kind is Kind.DATE:
        text = f"date_diff('day', DATE '1970-01-01', {text})"
    elif facts.kind is Kind.DATETIME:
        text = f"epoch({text})"
    inside = facts.lower is not None and facts.upper is not None and (
        measurement.lower * measurement.step <= facts.lower and facts.upper <= measurement.upper * measurement.step
    )  # fmt: skip
    if measurement.step == 1 and facts.kind in (Kind.INTEGER, Kind.DATE) and inside and is_as_read(argument, source):
        return f"CAST({text} AS BIGINT)"
    number = f"NULLIF(CAST({text} AS DOUBLE), CAST('NaN' AS DOUBLE))"
    steps = number if measurement.step == 1 else f"round({number} / {float(measurement.step)!r})"
    low, high = f"CAST({measurement.lower} AS DOUBLE)", f"CAST({measurement.upper} AS DOUBLE)"
    return f"(CASE WHEN {number} IS NOT NULL THEN CAST(greatest({low}, least({high}, {steps})) AS BIGINT) END)"


def is_as_read(argument: Expression, source: Relation) -> bool:
    """Whether an expression is a column of a table, unchanged on its way since it was clamped."""
    if not isinstance(argument, ColumnRef):
        return False
    match source:
        case Scan():
            return True
        case Transform(below, projections):
            return is_as_read(dict(projections)[argument.name], below)
        case Join(left, right):
            found = next((side for side in (left, right) if argument.name in {f.name for f in side.fields}), left)
            return is_as_read(argument, found)
        case _:
            return False


def render_row_value(measurement: Measurement, source: Relation) -> str:
    """What one row gives to a measurement: a whole number, or null when it gives nothing."""
    match measurement:
        case Rows(argument, condition):
            return _render_when("1", condition, argument)
        case Units(condition):
            return _render_when("1", condition, None)
        case Total(center=center, squared=squared, condition=condition):
            text = render_whole_steps(measurement, source)
            shifted = f"({text} - {center})" if center else text
            return _render_when(f"({shifted} * {shifted})" if squared else shifted, condition, None)
        case Distinct(condition=condition, summed=True):
            return _render_when(render_whole_steps(measurement, source), condition, None)
        case Distinct(argument, condition):
            return _render_when(render_expression(argument), condition, argument)
        case Ordered(condition=condition):
            return _render_when(render_whole_steps(measurement, source), condition, None)
        case Part(condition=condition):
            return _render_when(_render_part(measurement, source), condition, None)


def _render_part(part: Part, source: Relation) -> str:
    """What a row of the cell gives to one of its parts."""
    if part.argument is None:
        return "1"
    value = render_whole_steps(part, source)
    if part.order < 0:
        return f"CASE WHEN {value} IS NULL THEN {part.reach} END"
    below, above = f"({value} - ({part.lower}))", f"({part.upper} - {value})"
    factors = [below] * part.order + [above] * (part.degree - part.order)
    times = math.comb(part.degree, part.order)
    return f"({' * '.join([*factors, str(times)] if times > 1 else factors)})"


def _render_when(text: str, condition: Expression | None, argument: Expression | None) -> str:
    tests = [render_expression(condition)] if condition is not None else []
    tests += [f"({render_expression(argument)}) IS NOT NULL"] if argument is not None else []
    return f"CASE WHEN {' AND '.join(tests)} THEN {text} END" if tests else text


def render_totals(
    node: Measured, places: tuple[int, ...], wanted: Mapping[str, Measurement], limits: Limits, keys: Keys, salt: int
) -> str:
    """Counts and sums of all groups of one grouping set, one column for each measurement."""
    names = key_names(places)
    if limits.by_row:
        columns = [f"{_render_over_rows(m, node.input)} AS {name}" for name, m in wanted.items()]
        source = (
            f"({render_relation(drop_key_checks(node, places, keys))}) AS t{_render_known_keys(node, places, keys)}"
        )
        inner = f"SELECT {', '.join([*_render_keys(node, places), *columns])} FROM {source}"
        return _render_every_group(inner + render_group_by(names), names, list(wanted), keys)
    codes = find_codable(node, places, keys)
    chosen = _render_chosen_rows(node, places, wanted, limits, keys, salt, codes=codes)
    inner = render_bounded_totals(chosen, names, wanted, limits, salt)
    return _render_every_group(inner, names, list(wanted), keys, codes)


def render_step(node: Measured, step: Step, salt: int) -> str | None:
    """The statement for all counts and sums of a grouping set; None where it has none."""
    wanted = select_additive(step.placed, step.threshold is not None, step.joints)
    if not wanted:
        return None
    source = add_indexes(node, (joint.block for joint in step.joints)) if step.joints else node
    return render_totals(source, step.places, wanted, step.limits, step.keys, salt)


def select_additive(placed: Iterable[Placed], threshold: bool, joints: Iterable[Joint] = ()) -> dict[str, Measurement]:
    """The measurements of a step that are counts and sums, by column; with a threshold the units are counted too.

    Of those that are released together, the parts of their cells.
    """
    wanted: dict[str, Measurement] = {
        p.column: p.measurement for p in placed if p.mixed is None and not isinstance(p.measurement, Ordered | Distinct)
    }
    for number, joint in enumerate(joints):
        wanted |= {name_part(number, place): part for place, part in enumerate(joint.block.parts)}
    return {**wanted, THRESHOLD: Units(None)} if threshold else wanted


def render_value_counts(
    node: Measured, places: tuple[int, ...], measurement: Ordered | Distinct, limits: Limits, keys: Keys, salt: int
) -> str:
    """For ranks and distinct values: how many bounded rows each group has at each value."""
    names = key_names(places)
    chosen = _render_chosen_rows(
        node, places, {"v": measurement}, limits, keys, salt, distinct=isinstance(measurement, Distinct), sampled=True
    )
    if not limits.by_row:
        among, held = ([UNIT], [*names, "v"]) if limits.in_all else ([UNIT, *names], ["v"])
        present = f"SELECT * FROM ({chosen}) AS a WHERE v IS NOT NULL"
        kept = _render_few_rows(present, among, held, limits, salt, alike=not isinstance(measurement, Distinct))
        chosen = f"SELECT {', '.join([*names, 'v'])} FROM ({kept}) AS d"
    every = ", ".join(str(i + 1) for i in range(len(names) + 1))
    if isinstance(measurement, Distinct):
        each = clamp_to_int64("sum(v)") if measurement.summed else "count(v)"
        once = f"SELECT DISTINCT {', '.join([*names, 'v'])} FROM ({chosen}) AS e"
        counted = f"SELECT {', '.join([*names, f'{each} AS v'])} FROM ({once}) AS f{render_group_by(names)}"
        return _render_every_group(counted, names, ["v"], keys)
    return (f"SELECT {', '.join([*names, 'v', 'count(*) AS rows'])} FROM ({chosen}) AS e WHERE v IS NOT NULL "
            f"GROUP BY {every} ORDER BY {every}")  # fmt: skip


def _render_keys(node: Measured, places: tuple[int, ...], codes: Mapping[int, Listed] | None = None) -> list[str]:
    coded = codes or {}
    return [
        f"{name_code_column(place) if place in coded else render_key(node.keys[place][1])} AS k{place}"
        for place in places
    ]


def _render_chosen_rows(
    node: Measured,
    places: tuple[int, ...],
    wanted: Mapping[str, Measurement],
    limits: Limits,
    keys: Keys,
    salt: int,
    distinct: bool = False,
    codes: dict[int, Listed] | None = None,
    sampled: bool = False,
) -> str:
    """The bounded rows: unit, keys (or their codes), and each measurement's value, of the groups that a unit keeps."""
    names = key_names(places)
    carried = [] if limits.by_row else [UNIT]
    values = [f"{render_row_value(m, node.input)} AS {name}" for name, m in wanted.items()]
    columns = [*carried, *_render_keys(node, places, codes), *values]
    select = "SELECT DISTINCT" if distinct and not limits.by_row else "SELECT"
    source = render_relation(drop_key_checks(node, places, keys) if codes else node.input)
    text = f"{select} {', '.join(columns)} FROM ({source}) AS t{render_code_joins(node, codes or {})}"
    text += _render_known_keys(node, places, keys, [] if limits.by_row else [f"{UNIT} IS NOT NULL"])
    chooses = limits.groups is not None and bool(names) and not (limits.scaled and not sampled)
    if chooses or limits.in_all:
        text = _keep_read_rows(text, wanted)
    if not chooses:
        return text
    # Ranks follow a salted hash; the keys themselves break ties, so that no two groups share a rank.
    order = ", ".join([render_chance(salt, [*names, UNIT]), *names])
    rank = f"dense_rank() OVER (PARTITION BY {UNIT} ORDER BY {order}) AS g"
    return f"SELECT * FROM (SELECT *, {rank} FROM ({text}) AS b) AS r WHERE g <= {limits.groups}"


def _keep_read_rows(rows: str, wanted: Mapping[str, Measurement]) -> str:
    """The rows that give something to a measurement: others must not use up a unit's bound on groups or rows.

    That follows from a row alone.
    """
    if any(isinstance(m, Rows | Units) and m.condition is None and not getattr(m, "argument", None)
           for m in wanted.values()):  # fmt: skip
        return rows
    tests = " OR ".join(f"{name} IS NOT NULL" for name in wanted)
    return f"SELECT * FROM ({rows}) AS p WHERE {tests}" if tests else rows


def _render_known_keys(node: Measured, places: tuple[int, ...], keys: Keys, tests: list[str] | None = None) -> str:
    """Rows whose public key is missing belong to no group, and must not use up a unit's groups."""
    found = list(tests or [])
    if isinstance(keys, PublicKeys):
        found += [f"({render_key(node.keys[place][1])}) IS NOT NULL" for place in places]
    return f" WHERE {' AND '.join(found)}" if found else ""


def _render_over_rows(measurement: Measurement, source: Relation) -> str:
    match measurement:
        case Rows() | Units():
            return f"count({render_row_value(measurement, source)})"
        case _:
            return clamp_to_int64(f"sum({render_row_value(measurement, source)})")


def _render_every_group(
    inner: str, names: list[str], columns: list[str], keys: Keys, codes: Mapping[int, Listed] | None = None
) -> str:
    """Public keys: every one of them, in a fixed order, zero where there is nobody. Private keys: as found, sorted."""
    if not names:
        return inner
    if isinstance(keys, PrivateKeys):
        return f"SELECT * FROM ({inner}) AS a ORDER BY {', '.join(names)}"
    zeros = ", ".join(f"COALESCE(a.{column}, 0) AS {column}" for column in columns)
    shown = ", ".join(f"k.{name}" for name in names)
    coded = {f"k{place}": name_code_column(place) for place in codes or {}}
    on = " AND ".join(f"k.{coded.get(name, name)} = a.{name}" for name in names)
    listed = f", {zeros}" if zeros else ""
    every = render_every_key(keys, codes)
    return f"SELECT {shown}{listed} FROM ({every}) AS k LEFT JOIN ({inner}) AS a ON {on} ORDER BY {shown}"


def render_keys_alone(keys: PublicKeys, places: tuple[int, ...]) -> str:
    """All public keys in the order in which `render_totals` gives them, without a look at private rows."""
    shown = ", ".join(key_names(places))
    return f"SELECT {shown} FROM ({render_every_key(keys)}) AS k ORDER BY {shown}"


def render_every_key(keys: PublicKeys, codes: Mapping[int, Listed] | None = None) -> str:
    """All public keys as a relation with columns k0, k1, ..., and the codes of those that have one."""
    parts = []
    for i, part in enumerate(keys.parts):
        match part:
            case Listed(place) if codes and place in codes:
                parts.append(f"({render_key_list(part, f'k{place}')}) AS p{i}")
            case Listed(place, values):
                parts.append(f"(SELECT {render_each(values)} AS k{place}) AS p{i}")
            case FromTable(places, table, expressions):
                columns = ", ".join(f"{render_key(e)} AS k{p}" for p, e in zip(places, expressions, strict=True))
                present = " AND ".join(f"({render_key(e)}) IS NOT NULL" for e in expressions)
                parts.append(
                    f"(SELECT DISTINCT {columns} FROM ({render_relation(table)}) AS t WHERE {present}) AS p{i}"
                )
    where = f" WHERE {' AND '.join(render_expression(test) for test in keys.restriction)}" if keys.restriction else ""
    # Two listed values may be one in the engine's type; a key that appeared twice would be paid for once only.
    return f"SELECT DISTINCT * FROM {' CROSS JOIN '.join(parts)}{where}"


LARGEST = 2**62
"""Sums are clamped here, which moves no two of them further apart, so that they fit 64 bits."""
WEIGHT = 1 << 28
"""A unit's factor is a whole number of this part."""
COPY = "nth"
"""The column that numbers a unit's rows which hold the same."""
THRESHOLD = "units"
"""The column of whole units that a threshold looks at."""


def render_bounded_totals(
    chosen: str, names: list[str], wanted: Mapping[str, Measurement], limits: Limits, salt: int
) -> str:
    """One row for each group, from the statement that gives rows of the groups which a unit keeps."""
    if limits.scaled:
        return _render_scaled(chosen, names, wanted, limits)
    if not limits.in_all:
        return _render_sampled(chosen, names, wanted, limits)
    kept = _render_rows_in_all(chosen, names, wanted, limits, salt)
    if any(is_bounded_in_each_group(measurement) for measurement in wanted.values()):
        return _render_sampled(kept, names, wanted, limits)
    summed = [f"{_render_sum_of_rows(name, m)} AS {name}" for name, m in wanted.items()]
    return f"SELECT {', '.join([*names, *summed])} FROM ({kept}) AS c{render_group_by(names)}"


def render_group_by(names: list[str]) -> str:
    """GROUP BY, where there are keys."""
    return f" GROUP BY {', '.join(names)}" if names else ""


def clamp_to_int64(total: str) -> str:
    """A sum that fits 64 bits, 0 where there is none."""
    return f"CAST(greatest(-{LARGEST}, least({LARGEST}, COALESCE({total}, 0))) AS BIGINT)"


def _render_sampled(chosen: str, names: list[str], wanted: Mapping[str, Measurement], limits: Limits) -> str:
    """A unit counts for at most `rows` rows in each group, its sum scaled down where it has more.

    That is what sampling its rows would give on average, without the sampling noise.
    """
    summed = [f"{_render_over_units(name, m, limits)} AS {name}" for name, m in wanted.items()]
    units = _render_by_unit(chosen, names, wanted)
    return f"SELECT {', '.join([*names, *summed])} FROM ({units}) AS u{render_group_by(names)}"


def _render_by_unit(chosen: str, names: list[str], wanted: Mapping[str, Measurement]) -> str:
    """One row for each unit and group."""
    columns = [UNIT, *names, *(_render_unit_column(name, m) for name, m in wanted.items())]
    columns += [
        f"count(COALESCE({', '.join(among)}, NULL)) AS {_name_rows(among)}"
        for among in dict.fromkeys(m.among for m in wanted.values() if isinstance(m, Part))
    ]
    return f"SELECT {', '.join(columns)} FROM ({chosen}) AS c GROUP BY {', '.join([UNIT, *names])}"


def _name_rows(among: tuple[str, ...]) -> str:
    """The column of a unit's rows in all cells of a block together: each row is in one of them."""
    return f"n_{among[0].split('_')[0]}"


def _render_unit_column(name: str, measurement: Measurement) -> str:
    match measurement:
        case Rows() | Units():
            return f"count({name}) AS {name}"
        case Part():
            return f"COALESCE(sum({name}), 0) AS {name}"
        case _:
            return f"count({name}) AS n_{name}, COALESCE(sum({name}), 0) AS {name}"


def _render_over_units(name: str, measurement: Measurement, limits: Limits) -> str:
    return clamp_to_int64(f"sum({_render_bounded_entry(name, measurement, limits)})")


def _render_bounded_entry(name: str, measurement: Measurement, limits: Limits) -> str:
    """What one unit adds to one group: within its bounds, in whole numbers."""
    match measurement:
        case Rows():
            return f"least({name}, {limits.rows})"
        case Units() | Total(per_group=(int(), int())):
            return _render_entry(name, measurement)
        case Part(among=among):
            # Parts are never negative and rounded down, so that together they stay within the bound.
            every, parts = _name_rows(among), parts_of(measurement, limits)
            shrunk = f"({name} * {parts * (limits.rows or 1)}) // {every}"
            return f"CASE WHEN {every} > {limits.rows} THEN {shrunk} ELSE {name} * {parts} END"
        case _:
            # Rounded to the nearest part: bounds are whole numbers of parts, so that none is passed.
            rows, parts = limits.rows or 1, parts_of(measurement, limits)
            shrunk = f"sign({name}) * ((abs({name}) * {2 * rows * parts} + n_{name}) // (2 * n_{name}))"
            return f"CASE WHEN n_{name} > {rows} THEN {shrunk} ELSE {name} * {parts} END"


def render_unit_entries(node: Measured, step: Step, salt: int) -> str:
    """One row for each unit and group: the unit, the keys, and what the unit adds to each count and sum there.

    Added up over all units this is what `render_step` gives. It is for whoever decides unit by unit who counts, such as
    a stream that counts each person in so many periods; vectors that are scaled to a norm have no such form.
    """
    assert not step.limits.by_row
    assert not step.limits.scaled
    names, wanted = key_names(step.places), select_additive(step.placed, threshold=False)
    chosen = _render_chosen_rows(node, step.places, wanted, step.limits, step.keys, salt)
    if step.limits.in_all:
        chosen = _render_rows_in_all(chosen, names, wanted, step.limits, salt)
    entries = [f"{_render_bounded_entry(name, m, step.limits)} AS {name}" for name, m in wanted.items()]
    units = _render_by_unit(chosen, names, wanted)
    return f"SELECT {', '.join([UNIT, *names, *entries])} FROM ({units}) AS u"


def _render_rows_in_all(
    chosen: str, names: list[str], wanted: Mapping[str, Measurement], limits: Limits, salt: int
) -> str:
    """At most `rows` rows of a unit over all groups."""
    held = [*names, *(name for name, m in wanted.items() if m not in (Rows(None, None), Units(None)))]
    return _render_few_rows(chosen, [UNIT], held, limits, salt, alike=bool(held))


def render_chance(salt: int, held: Iterable[str]) -> str:
    """A number by which rows or groups are chosen, each as likely as any other, by each unit for itself.

    Engines join the hashes of several values by shifts and exclusive or: the order of a unit's rows would follow from
    few bits that all units share. So the result is hashed once more.
    """
    return f"hash(hash(CAST({salt} AS UBIGINT), {', '.join(held)}))"


def _render_few_rows(rows: str, among: list[str], held: list[str], limits: Limits, salt: int, alike: bool) -> str:
    """At most so many rows of each unit (in each group, where `among` has its keys), the first ones by a salted hash.

    A unit's choice depends on its own rows alone. With `alike` there may be rows that hold the same: they are numbered
    and chosen one by one, or a value that a unit has often would be chosen as seldom as one that it has once.
    """
    if alike:
        copies = f"row_number() OVER (PARTITION BY {', '.join([UNIT, *held])} ORDER BY {UNIT}) AS {COPY}"
        rows, held = f"SELECT *, {copies} FROM ({rows}) AS b", [*held, COPY]
    order = ", ".join([render_chance(salt, [*held, UNIT]), *held])
    rank = f"row_number() OVER (PARTITION BY {', '.join(among)} ORDER BY {order}) AS n"
    return f"SELECT * FROM (SELECT *, {rank} FROM ({rows}) AS c) AS r WHERE n <= {limits.rows}"


def _render_sum_of_rows(name: str, measurement: Measurement) -> str:
    return f"count({name})" if isinstance(measurement, Rows) else clamp_to_int64(f"sum({name})")


def _render_scaled(chosen: str, names: list[str], wanted: Mapping[str, Measurement], limits: Limits) -> str:
    """Each unit's counts or sums in all groups, shrunk by one factor for each measurement to the norm of its noise."""
    vector = _render_by_unit(chosen, names, wanted)
    weights = ", ".join(f"{_render_weight(name, m, limits)} AS w_{name}" for name, m in wanted.items())
    summed = [
        f"{clamp_to_int64(f'sum({_render_shrunk_entry(name, m, limits)})')} AS {name}" for name, m in wanted.items()
    ]
    keys = [f"v.{name}" for name in names]
    shown = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
    return (
        f"SELECT {', '.join([*shown, *summed])} FROM ({vector}) AS v JOIN "
        f"(SELECT {UNIT}, {weights} FROM ({vector}) AS x GROUP BY {UNIT}) AS w "
        f"ON v.{UNIT} = w.{UNIT}{render_group_by(keys)}"
    )


def _render_entry(name: str, measurement: Measurement, most: int | None = None) -> str:
    """What a unit adds to a group; with `most`, cut off there, which is far beyond what it may add."""
    match measurement:
        case Units():
            return f"least({name}, 1)"
        case Total(per_group=(int(low), int(high))):
            return f"(CASE WHEN n_{name} = 0 THEN 0 ELSE greatest({low}, least({high}, {name})) END)"
        case _:
            return name if most is None else f"greatest(-{most}, least({most}, {name}))"


def _render_weight(name: str, measurement: Measurement, limits: Limits) -> str:
    """A unit's factor in parts of WEIGHT: WEIGHT where its norm is within the bound, else WEIGHT * bound / norm, down.

    Both norms are made of whole numbers, which do not depend on the order of rows. The root of the square is taken in
    DOUBLE, so a margin of 1e-9 stands against rounding; the square itself is compared as it is.
    """
    assert limits.groups is not None
    reach = reach_of(measurement, limits)
    entry = _render_entry(name, measurement, _find_most(limits, reach))
    if isinstance(measurement, Total) and measurement.quotient:
        # A part of a quotient has the factor of its rows: a vector of sums is within its bound where that of rows is.
        entry, reach = f"n_{name}", limits.rows or 1
    if limits.norm == 1:
        norm, bound = f"COALESCE(sum(abs({entry})), 0)", limits.groups * reach
        return f"CASE WHEN {norm} <= {bound} THEN {WEIGHT} ELSE CAST({WEIGHT * bound} // {norm} AS BIGINT) END"
    unit = square_unit(reach)
    size = f"CAST((abs({entry}) + {unit - 1}) // {unit} AS HUGEINT)"
    squares, bound = f"COALESCE(sum({size} * {size}), 0)", limits.groups * (reach // unit) ** 2
    factor = f"least(1.0, {bound**0.5!r} / (sqrt(CAST({squares} AS DOUBLE)) * 1.000000001)) * {WEIGHT}"
    return f"CASE WHEN {squares} <= {bound} THEN {WEIGHT} ELSE CAST(floor({factor}) AS BIGINT) END"


def _find_most(limits: Limits, reach: int) -> int | None:
    """Where entries are cut off before they are squared, so that the sum of squares fits 128 bits."""
    return square_unit(reach) << 50 if limits.norm == 2 else None


def square_unit(reach: int) -> int:
    """The unit in which sizes are squared: 1, or so large that the squares of what a unit may add fit 128 bits.

    Sizes are rounded up to it and the bound is rounded down, so that no norm is taken for smaller than it is.
    """
    return 1 << max(0, reach.bit_length() - 33)


def _render_shrunk_entry(name: str, measurement: Measurement, limits: Limits) -> str:
    """An entry times its unit's factor, in parts of a step, cut off toward zero: so no norm is passed by rounding.

    The factor WEIGHT itself leaves the entry as it is: entry * WEIGHT // (WEIGHT / parts) = entry * parts.
    """
    reach = reach_of(measurement, limits)
    entry = _render_entry(name, measurement, _find_most(limits, reach))
    parts = 1 if name == THRESHOLD else parts_for(reach)
    # One row's value is within its reach, so the product fits 64 bits; sums in groups are wide as they are.
    product = f"{entry} * w_{name}" if reach < LARGEST // WEIGHT else f"CAST({entry} AS HUGEINT) * w_{name}"
    if not is_signed(measurement):
        return f"({product}) // {WEIGHT // parts}"
    return f"sign({product}) * (abs({product}) // {WEIGHT // parts})"


def find_codable(node: Measured, places: tuple[int, ...], keys: Keys) -> dict[int, Listed]:
    """The key places that are declared text columns as they were read, each with its list of values."""
    if not isinstance(keys, PublicKeys):
        return {}
    listed = {part.place: part for part in keys.parts if isinstance(part, Listed)}
    return {
        place: listed[place]
        for place in places
        if place in listed and _is_as_declared(node.keys[place][1], node.input, listed[place].values)
    }


def _is_as_declared(key: Expression, source: Relation, values: tuple[object, ...]) -> bool:
    field = _find_read_field(key, source)
    while isinstance(source, Transform):
        source = source.input
    return field is not None and len(set(values)) == len(values) and all(isinstance(v, str) for v in values) and (
        any(f.name == field and f.facts.kind is Kind.TEXT and f.facts.domain == values
            for f in source.fields)
    )  # fmt: skip


def _find_read_field(key: Expression, source: Relation) -> str | None:
    """The field of a single table that a key is, unchanged by the row-wise steps between; None if it is not one."""
    while isinstance(source, Transform):
        if not isinstance(key, ColumnRef):
            return None
        key, source = dict(source.projections)[key.name], source.input
    return key.name if isinstance(key, ColumnRef) and isinstance(source, Scan) else None


def drop_key_checks(node: Measured, places: tuple[int, ...], keys: Keys) -> Relation:
    """The node's input without the test of those key columns that the join with all keys tests anyway."""
    fields = {_find_read_field(node.keys[place][1], node.input) for place in find_codable(node, places, keys)}
    return _drop_checks(node.input, fields) if fields else node.input


def _drop_checks(source: Relation, names: set[str | None]) -> Relation:
    if isinstance(source, Transform):
        return replace(source, input=_drop_checks(source.input, names))
    assert isinstance(source, Scan)
    fields = tuple(
        replace(field, facts=field.facts.drop_bounds()) if field.name in names else field for field in source.fields
    )
    return replace(source, fields=fields)


def name_code_column(place: int) -> str:
    """The column of a key's place in its list."""
    return quote(f"#code{place}")


def render_key_list(part: Listed, name: str) -> str:
    """A list of keys with their places: the columns `name` and `code(part.place)`."""
    values = ", ".join(render_value(v) for v in part.values)
    return f"SELECT unnest([{values}]) AS {name}, unnest(range({len(part.values)})) AS {name_code_column(part.place)}"


def render_code_joins(node: Measured, codes: dict[int, Listed]) -> str:
    """The joins that drop rows with undeclared keys and code the others; to stand after the relation `t`."""
    text = ""
    for place, part in codes.items():
        key = node.keys[place][1]
        assert isinstance(key, ColumnRef)
        word = quote(f"#word{place}")
        text += f" JOIN ({render_key_list(part, word)}) AS w{place} ON t.{quote(key.name)} = w{place}.{word}"
    return text
