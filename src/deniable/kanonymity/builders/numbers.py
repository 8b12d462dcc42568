"""Hierarchies of numbers, places and times: intervals, brackets, quantiles, rounding; coordinates, geohashes; dates.

Coordinates are cut to fewer decimals at each level, geohashes to fewer characters; dates to hour and part of day, day,
weekday, week, month, season, quarter, year, decade."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError, nearest
from deniable.kanonymity.builders.categories import Prefix
from deniable.kanonymity.builders.exact import (
    Edge,
    Number,
    Numbers,
    clip_numbers,
    find_finite,
    find_slots,
    label_interval,
    make_exact,
    merge_slots,
    read_numbers,
    round_edge,
    settle_edge,
    shorten,
    stack_ends,
    write_decimals,
    write_number,
)
from deniable.kanonymity.hierarchy import (
    Codes,
    Hierarchy,
    Level,
    build_hierarchy,
    group_by_label,
    sort_leaves,
    text_of,
)

AGES = (0, 15, 24, 35, 45, 55, 70)
"""Age brackets in common use for health statistics; the last is open above."""


class NumberBuilder(Protocol):
    """A builder of numbers."""

    def list_levels(self, numbers: Numbers, /) -> list[Level]:
        """The levels above the values themselves, over these distinct numbers, which rise."""


def build_numeric(column: str, values: pa.Array, builder: NumberBuilder) -> Hierarchy:
    """The hierarchy of a builder of numbers over distinct values."""
    values, numbers = read_numbers(column, values)
    codes: Codes = np.arange(len(values), dtype=np.int32)
    leaves = text_of(values)
    own = Level(codes, tuple(leaves), np.column_stack([numbers, numbers]))
    return build_hierarchy(column, leaves, [own, *builder.list_levels(numbers)], ordered=True)


def build_bracket_level(numbers: Numbers, edges: Sequence[Number]) -> Level:
    """The level whose groups are the half-open intervals between edges, open below the first and above the last."""
    cuts = [shorten(make_exact(edge)) for edge in edges]
    if numbers.dtype == np.object_:
        found = np.array([bisect.bisect_right(cuts, number) for number in numbers], np.int64)
    else:
        found = np.searchsorted(np.array([round_edge(Fraction(cut), 1) for cut in cuts]), numbers, side="right")
    lows: list[Edge] = [-math.inf, *cuts]
    used, groups = np.unique(found, return_inverse=True)
    ends = [(lows[i], [*cuts, math.inf][i]) for i in used.tolist()]
    return Level(groups.astype(np.int32), tuple(itertools.starmap(label_interval, ends)), stack_ends(ends))


ALL = ((-math.inf, math.inf),)
EACH = ((-math.inf, -math.inf), (math.inf, math.inf))
"""What infinite numbers are: one range that says nothing, or themselves."""


def build_step_level(
    numbers: Numbers,
    slots: NDArray[Any],
    steps: tuple[Number, Number],
    label: Callable[[Edge, Edge], str],
    endless: Sequence[tuple[float, float]] = EACH,
) -> Level:
    """The level whose groups are steps of equal width; `steps` are where one begins, and the width."""
    finite, (begin, width) = find_finite(numbers), map(make_exact, steps)
    used, found = np.unique(slots[finite], return_inverse=True)
    groups = np.zeros(len(numbers), np.int64)
    groups[finite] = found
    edges = ((shorten(begin + int(n) * width), shorten(begin + (int(n) + 1) * width)) for n in used)
    ends: list[tuple[Edge, Edge]] = [(settle_edge(low, -1), settle_edge(high, 1)) for low, high in edges]
    for low, high in endless:
        if (there := ~finite & np.array((numbers >= low) & (numbers <= high), np.bool_)).any():
            groups[there] = len(ends)
            ends.append((low, high))
    return Level(groups.astype(np.int32), tuple(itertools.starmap(label, ends)), stack_ends(ends))


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of equal width, one level for each width; each begins at a whole number of widths from `start`."""

    widths: tuple[Number, ...]
    start: Number = 0

    def __post_init__(self) -> None:
        if not self.widths or min(map(make_exact, self.widths)) <= 0:
            raise ParameterError("Intervals need widths above 0", expected="Widths such as [5, 10, 20]")

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        return build_numeric(column, values, self)

    def list_levels(self, numbers: Numbers) -> list[Level]:
        """One level for each width."""
        first, levels = find_slots(numbers, self.start, self.widths[0]), []
        for width in self.widths:
            many = make_exact(width) / make_exact(self.widths[0])
            nested = many.denominator == 1  # then slots are merged, which is quicker
            slots = merge_slots(first, many.numerator) if nested else find_slots(numbers, self.start, width)
            levels.append(build_step_level(numbers, slots, (self.start, width), label_interval, ALL))
        return levels


@dataclass(frozen=True, slots=True)
class Brackets:
    """Given brackets, one level for each list of edges; every edge begins a bracket, the last is open above."""

    levels: tuple[tuple[Number, ...], ...] = (AGES,)

    def __post_init__(self) -> None:
        for edges in self.levels:
            if any(make_exact(a) >= make_exact(b) for a, b in itertools.pairwise(edges)):
                raise ParameterError("Bracket edges do not rise", expected="Edges in rising order, such as [0, 15, 24]")

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        return build_numeric(column, values, self)

    def list_levels(self, numbers: Numbers) -> list[Level]:
        """One level for each list of edges."""
        return [build_bracket_level(numbers, edges) for edges in self.levels]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Intervals that hold about the same number of distinct values; their edges are read from the data.

    The number of intervals at each level must divide the one before, or levels would not nest.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        for finer, coarser in zip(self.counts, self.counts[1:], strict=False):
            if finer % coarser:
                raise ParameterError(
                    f"{coarser} quantiles do not nest in {finer}", expected="Numbers that divide each other: [8, 4, 2]"
                )

    def brackets(self, numbers: Numbers) -> Brackets:
        """The brackets that rising numbers give, which is what a saved recoding keeps for rows to come."""
        held = numbers[find_finite(numbers)].tolist()
        finest = [held[i * (len(held) - 1) // self.counts[0]] for i in range(1, self.counts[0])] if held else []
        return Brackets(tuple(tuple(dict.fromkeys(finest[self._every(n)])) for n in self.counts))

    def _every(self, count: int) -> slice:
        step = self.counts[0] // count
        return slice(step - 1, None, step)

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        return build_numeric(column, values, self)

    def list_levels(self, numbers: Numbers) -> list[Level]:
        """One level for each number of intervals."""
        return self.brackets(numbers).list_levels(numbers)


@dataclass(frozen=True, slots=True)
class Rounding:
    """Numbers rounded down to multiples: 39 to 20, and -1 to -20. The released value stays a number.

    Rounded down, and not half upwards, multiples of one another nest.
    """

    multiples: tuple[Number, ...]

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        return build_numeric(column, values, self)

    def list_levels(self, numbers: Numbers) -> list[Level]:
        """One level for each multiple."""
        levels = ((step, find_slots(numbers, 0, step)) for step in self.multiples)
        return [build_step_level(numbers, slots, (0, step), _label_multiple) for step, slots in levels]


def _label_multiple(low: Edge, _high: Edge) -> str:
    return write_number(low)


@dataclass(frozen=True, slots=True)
class TailCoded:
    """Top and bottom coding: values at or beyond a threshold are one leaf, from the first level on.

    What lies at the ends of a distribution is rare, and rarity identifies; '90 or more' is the classical remedy. The
    inner builder sees the numbers clipped to the thresholds; groups that hold a tail are open at that end. Without an
    inner builder, values between the thresholds stay as they are, or are withheld.
    """

    inner: NumberBuilder | None
    bottom: Number | None = None
    top: Number | None = None

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        values, numbers = read_numbers(column, values)
        clipped = self.clip(numbers)
        distinct, first, place = np.unique(clipped, return_index=True, return_inverse=True)
        leaves = text_of(values)
        codes: Codes = np.arange(len(distinct), dtype=np.int32)
        own = Level(codes, tuple(leaves[i] for i in first), np.column_stack([distinct, distinct]))
        thresholds = ((self.bottom, -math.inf), (self.top, math.inf))
        cut = float if distinct.dtype != np.object_ else shorten
        tails = [(np.array(distinct == cut(make_exact(at)), np.bool_), end) for at, end in thresholds if at is not None]
        above = [] if self.inner is None else self.inner.list_levels(distinct)
        levels = [_open_tails(each, place, tails) for each in (own, *above)]
        return build_hierarchy(column, leaves, levels, ordered=True)

    def clip(self, numbers: Numbers) -> Numbers:
        """Numbers with their tails cut to the thresholds."""
        low, high = (None if end is None else make_exact(end) for end in (self.bottom, self.top))
        return clip_numbers(numbers, low, high)


def _open_tails(level: Level, place: NDArray[np.int64], tails: list[tuple[NDArray[np.bool_], float]]) -> Level:
    """A level of clipped values as one of the values themselves, its groups open where they hold a tail."""
    assert level.ends is not None
    labels, ends = list(level.labels), level.ends.copy()
    for there, end in tails:
        for group in np.unique(level.groups[there]):
            side = 0 if end < 0 else 1
            alone = ends[group, 0] == ends[group, 1]
            ends[group, side] = end
            threshold = write_number(ends[group, 1 - side])
            labels[group] = f"{'<=' if end < 0 else '>='} {threshold}" if alone else label_interval(*ends[group])
    return Level(level.groups[place], tuple(labels), ends)


ALPHABET = "0123456789bcdefghjkmnpqrstuvwxyz"
"""The 32 letters of a geohash (public domain, G. Niemeyer 2008)."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A coordinate cut to fewer decimals at each level; 0.001 degrees of latitude are about 111 meters.

    Cutting goes downwards (floor), also below zero, so that cells have one size and nest.
    """

    digits: tuple[int, ...]

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        return build_numeric(column, values, self)

    def list_levels(self, numbers: Numbers) -> list[Level]:
        """One level for each number of decimals."""
        return [_build_cell_level(numbers, int(count)) for count in self.digits]


def _build_cell_level(numbers: Numbers, digits: int) -> Level:
    width = Fraction(1, 10**digits)
    slots = find_slots(numbers, 0, width)

    def label(low: Edge, _high: Edge) -> str:
        return str(low) if isinstance(low, float) else write_decimals(int(low * 10**digits), digits)

    return build_step_level(numbers, slots, (0, width), label)


def truncate_coordinates(numbers: NDArray[np.float64], digits: int) -> NDArray[np.float64]:
    """The number of the cell that holds each coordinate.

    The product is rounded at its ninth decimal first: 0.29 * 100 is 28.999999999999996 in binary.
    """
    return np.floor(np.round(numbers * 10.0**digits, 9))


@dataclass(frozen=True, slots=True)
class Geohash:
    """Geohashes cut to fewer characters at each level: 5 characters are about 4.9 km, 7 about 150 m."""

    lengths: tuple[int, ...]

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct geohashes."""
        return Prefix(self.lengths).hierarchy(column, values)


def encode_geohash(latitude: NDArray[np.float64], longitude: NDArray[np.float64], length: int) -> list[str]:
    """The geohash of every point: bits of longitude and latitude in turns, five to a letter.

    >>> encode_geohash(np.array([57.64911]), np.array([10.40744]), 11)
    ['u4pruydqqvj']
    """
    if not 1 <= length <= 12:
        raise ParameterError(f"A geohash of {length} characters was asked", expected="1 to 12 characters")
    bits = 5 * length
    east, north = (bits + 1) // 2, bits // 2
    x = np.clip((longitude + 180.0) / 360.0 * 2**east, 0, 2**east - 1).astype(np.uint64)
    y = np.clip((latitude + 90.0) / 180.0 * 2**north, 0, 2**north - 1).astype(np.uint64)
    woven = np.zeros(len(x), np.uint64)
    for bit in range(bits):  # the first, highest bit is of the longitude
        source, place = (x, east - 1 - bit // 2) if bit % 2 == 0 else (y, north - 1 - bit // 2)
        woven = (woven << np.uint64(1)) | ((source >> np.uint64(place)) & np.uint64(1))
    letters = [[ALPHABET[(w >> 5 * (length - 1 - i)) & 31] for i in range(length)] for w in woven.tolist()]
    return ["".join(word) for word in letters]


Moment = date | datetime


def _hour(moment: Moment) -> int:
    return moment.hour if isinstance(moment, datetime) else 0


def _part_of_day(moment: Moment) -> str:
    return ("night", "morning", "afternoon", "evening")[_hour(moment) // 6]


def _season(moment: Moment) -> str:
    return ("winter", "spring", "summer", "autumn")[moment.month % 12 // 3]


def _week(moment: Moment) -> str:
    year, week, _ = moment.isocalendar()
    return f"{year}-W{week:02}"


PARTS: dict[str, Callable[[Moment], str]] = {
    "hour": lambda m: f"{m:%Y-%m-%d} {_hour(m):02}h",
    "part_of_day": lambda m: f"{m:%Y-%m-%d} {_part_of_day(m)}",
    "day": lambda m: f"{m:%Y-%m-%d}",
    "week": _week,
    "month": lambda m: f"{m:%Y-%m}",
    "quarter": lambda m: f"{m.year:04}-Q{(m.month + 2) // 3}",
    "year": lambda m: f"{m.year:04}",
    "decade": lambda m: f"{m.year // 10 * 10:04}s",
}
"""Parts that keep the calendar: each value of one lies inside one value of any coarser part (weeks excepted)."""

CYCLES: dict[str, Callable[[Moment], str]] = {
    "hour": lambda m: f"{_hour(m):02}h",
    "part_of_day": _part_of_day,
    "weekday": lambda m: f"{m:%A}",
    "month": lambda m: f"{m:%B}",
    "season": _season,
}
"""Parts that forget the calendar and keep the rhythm: what time of day, which weekday, which season."""

CYCLIC = frozenset({"weekday", "season"})
"""Words that only a cycle has; one of them makes all levels of the hierarchy cyclic."""


@dataclass(frozen=True, slots=True)
class Dates:
    """Coarser and coarser parts of a date or time.

    With `weekday` or `season` among the levels the calendar is forgotten from the first level on: an hour is then an
    hour of any day, a month a month of any year. Levels must nest. A week may lie in two months: with a coarser level
    above it, it is cut at the month's (or quarter's, or year's) end, and says in which part it lies.

    >>> from datetime import date
    >>> list(Dates(("month", "year", "decade")).hierarchy("born", pa.array([date(1987, 5, 17)])).rows())
    [('1987-05-17', '1987-05', '1987', '1980s', '*')]
    """

    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        known = {**PARTS, **CYCLES}
        for level in self.levels:
            if level not in known:
                raise ParameterError(
                    f"'{level}' is not a part of a date",
                    expected=f"One of {', '.join(known)}",
                    remedy=nearest(level, known),
                )
        if CYCLIC & set(self.levels) and not set(self.levels) <= set(CYCLES):
            wrong = next(level for level in self.levels if level not in CYCLES)
            raise ParameterError(
                f"'{wrong}' belongs to the calendar and cannot stand beside {' or '.join(sorted(CYCLIC))}",
                expected=f"Together only {', '.join(CYCLES)}",
            )

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        values = sort_leaves(values)
        moments = _parse_moments(column, values)
        parts = CYCLES if CYCLIC & set(self.levels) else PARTS
        levels = [group_by_label([self._part(n, moment, parts) for moment in moments]) for n in range(len(self.levels))]
        leaves = text_of(values)
        return build_hierarchy(column, leaves, [group_by_label(leaves), *levels], ordered=parts is PARTS)

    def _part(self, number: int, moment: Moment, parts: dict[str, Callable[[Moment], str]]) -> str:
        part = parts[self.levels[number]](moment)
        if self.levels[number] == "week" and number + 1 < len(self.levels):
            return f"{part} in {parts[self.levels[number + 1]](moment)}"
        return part


def _parse_moments(column: str, values: pa.Array) -> list[Moment]:
    if pa.types.is_date(values.type):
        return values.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(values.type):
        whole = pc.cast(values, pa.timestamp("us", values.type.tz), safe=False)
        return whole.to_pylist()  # type: ignore[no-any-return]
    try:
        return [_parse_moment(text) for text in text_of(values)]
    except ValueError:
        raise DataError(
            f"Column '{column}' holds values that are not dates, and its hierarchy is one of dates",
            expected="Dates as 2024-05-17, or times as 2024-05-17 08:30",
            remedy="Write the column so, or declare another hierarchy for it",
        ) from None


def _parse_moment(text: str) -> Moment:
    return date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
