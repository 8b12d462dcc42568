"""From rows with their unit, keys and values to totals in which no unit counts for more than its bounds.

Three forms (see `limits`). In each, what is kept of a unit depends on that unit's own rows and the salt alone, so
adding or removing another unit changes nothing.
"""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

from collections.abc import Mapping

from deniable.query.limits import Limits, parts_for
from deniable.query.measure import Measurement, Rows, Total, Units
from deniable.query.sensitivity import in_each_group, reach_of, signed
from deniable.query.sql.render import UNIT

LARGEST = 2**62
"""Sums are clamped here, which moves no two of them further apart, so that they fit 64 bits."""
WEIGHT = 1 << 16
"""A unit's factor is a whole number of this part."""
EXACT = 2**53 - 1
"""Whole numbers up to here are exact in DOUBLE."""
THRESHOLD = "units"
"""The column of whole units that a threshold looks at."""


def totals(chosen: str, names: list[str], wanted: Mapping[str, Measurement], limits: Limits, salt: int) -> str:
    """One row for each group, from the statement that gives rows of the groups which a unit keeps."""
    if limits.scaled:
        return _scaled(chosen, names, wanted, limits)
    if not limits.in_all:
        return _sampled(chosen, names, wanted, limits)
    kept = _kept_in_all(chosen, names, wanted, limits, salt)
    if any(in_each_group(measurement) for measurement in wanted.values()):
        return _sampled(kept, names, wanted, limits)
    summed = [f"{_over_kept(name, m)} AS {name}" for name, m in wanted.items()]
    return f"SELECT {', '.join([*names, *summed])} FROM ({kept}) AS c{grouping(names)}"


def grouping(names: list[str]) -> str:
    """GROUP BY, where there are keys."""
    return f" GROUP BY {', '.join(names)}" if names else ""


def fitting(total: str) -> str:
    """A sum that fits 64 bits, 0 where there is none."""
    return f"CAST(greatest(-{LARGEST}, least({LARGEST}, COALESCE({total}, 0))) AS BIGINT)"


def _sampled(chosen: str, names: list[str], wanted: Mapping[str, Measurement], limits: Limits) -> str:
    """A unit counts for at most `rows` rows in each group, its sum scaled down where it has more.

    That is what sampling its rows would give on average, without the sampling noise.
    """
    summed = [f"{_over_units(name, m, limits)} AS {name}" for name, m in wanted.items()]
    return f"SELECT {', '.join([*names, *summed])} FROM ({_by_unit(chosen, names, wanted)}) AS u{grouping(names)}"


def _by_unit(chosen: str, names: list[str], wanted: Mapping[str, Measurement]) -> str:
    """One row for each unit and group."""
    columns = [UNIT, *names, *(_per_unit(name, m) for name, m in wanted.items())]
    return f"SELECT {', '.join(columns)} FROM ({chosen}) AS c GROUP BY {', '.join([UNIT, *names])}"


def _per_unit(name: str, measurement: Measurement) -> str:
    match measurement:
        case Rows() | Units():
            return f"count({name}) AS {name}"
        case _:
            return f"count({name}) AS n_{name}, COALESCE(sum({name}), 0) AS {name}"


def _over_units(name: str, measurement: Measurement, limits: Limits) -> str:
    match measurement:
        case Rows():
            return fitting(f"sum(least({name}, {limits.rows}))")
        case Units() | Total(per_group=(int(), int())):
            return fitting(f"sum({_entry(name, measurement)})")
        case _:
            rows = limits.rows
            return fitting(f"sum(CASE WHEN n_{name} > {rows} THEN ({name} * {rows}) // n_{name} ELSE {name} END)")


def _kept_in_all(chosen: str, names: list[str], wanted: Mapping[str, Measurement], limits: Limits, salt: int) -> str:
    """At most `rows` rows of a unit over all groups, the first ones by a salted hash of what they hold.

    Rows of a unit that agree in all that is measured are interchangeable, so that ties between them decide nothing;
    ties of the hash alone are broken by what it was made from.
    """
    held = [*names, *(name for name, m in wanted.items() if m not in (Rows(None, None), Units(None)))]
    order = ", ".join([f"hash(CAST({salt} AS UBIGINT), {', '.join([*held, UNIT])})", *held])
    rank = f"row_number() OVER (PARTITION BY {UNIT} ORDER BY {order}) AS g"
    return f"SELECT * FROM (SELECT *, {rank} FROM ({chosen}) AS b) AS r WHERE g <= {limits.rows}"


def _over_kept(name: str, measurement: Measurement) -> str:
    return f"count({name})" if isinstance(measurement, Rows) else fitting(f"sum({name})")


def _scaled(chosen: str, names: list[str], wanted: Mapping[str, Measurement], limits: Limits) -> str:
    """Each unit's vector, shrunk by one factor for each measurement to the norm that its noise is made for.

    For the L1 norm a vector of single rows will do: its norm is at least that of their sums in groups, which is what
    has to be bounded. The L2 norm is one of sums in groups, and so is what counts for so much in each group.
    """
    by_row = limits.norm == 1 and not any(in_each_group(m) for m in wanted.values())
    vector = chosen if by_row else _by_unit(chosen, names, wanted)
    weights = ", ".join(f"{_weight(name, m, limits, by_row)} AS w_{name}" for name, m in wanted.items())
    summed = [f"{fitting(f'sum({_shrunk(name, m, limits)})')} AS {name}" for name, m in wanted.items()]
    keys = [f"v.{name}" for name in names]
    shown = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
    return (
        f"SELECT {', '.join([*shown, *summed])} FROM ({vector}) AS v JOIN "
        f"(SELECT {UNIT}, {weights} FROM ({vector}) AS x GROUP BY {UNIT}) AS w ON v.{UNIT} = w.{UNIT}{grouping(keys)}"
    )


def _entry(name: str, measurement: Measurement) -> str:
    match measurement:
        case Units():
            return f"least({name}, 1)"
        case Total(per_group=(int(low), int(high))):
            return f"(CASE WHEN n_{name} = 0 THEN 0 ELSE greatest({low}, least({high}, {name})) END)"
        case _:
            return name


def _weight(name: str, measurement: Measurement, limits: Limits, by_row: bool) -> str:
    """A unit's factor in parts of WEIGHT: WEIGHT where its norm is within the bound, else WEIGHT * bound / norm, down.

    The L1 norm is an exact whole number. The L2 norm is a root in DOUBLE, so a margin of 1e-9 stands against rounding;
    where the square is small enough to be exact, it is compared as it is.
    """
    assert limits.groups is not None
    reach, entry = reach_of(measurement, limits.rows), _entry(name, measurement)
    if limits.norm == 1:
        norm, bound = f"COALESCE(sum(abs({entry})), 0)", limits.groups * reach
        if by_row and isinstance(measurement, Rows):
            norm = f"count({name})"
        return f"CASE WHEN {norm} <= {bound} THEN {WEIGHT} ELSE CAST({WEIGHT * bound} // {norm} AS BIGINT) END"
    squares, bound = f"sum(pow(CAST({entry} AS DOUBLE), 2))", limits.groups * reach**2
    factor = f"least(1.0, {bound**0.5!r} / greatest(sqrt({squares}) * 1.000000001, 1e-300)) * {WEIGHT}"
    return f"CASE WHEN {squares} <= {min(bound, EXACT)} THEN {WEIGHT} ELSE CAST(floor({factor}) AS BIGINT) END"


def _shrunk(name: str, measurement: Measurement, limits: Limits) -> str:
    """An entry times its unit's factor, in parts of a step, cut off toward zero: so no norm is passed by rounding.

    The factor WEIGHT itself leaves the entry as it is: entry * WEIGHT // (WEIGHT / parts) = entry * parts.
    """
    reach, entry = reach_of(measurement, limits.rows), _entry(name, measurement)
    parts = 1 if name == THRESHOLD else parts_for(reach)
    # One row's value is within its reach, so the product fits 64 bits; sums in groups are wide as they are.
    product = f"{entry} * w_{name}" if reach < LARGEST // WEIGHT else f"CAST({entry} AS HUGEINT) * w_{name}"
    if not signed(measurement):
        return f"({product}) // {WEIGHT // parts}"
    return f"sign({product}) * (abs({product}) // {WEIGHT // parts})"
