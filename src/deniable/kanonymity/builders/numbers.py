"""Hierarchies of numbers, places and times: intervals, brackets, quantiles, rounding; coordinates, geohashes; dates.

Coordinates are cut to fewer decimals at each level, geohashes to fewer characters; dates to hour and part of day, day,
weekday, week, month, season, quarter, year, decade."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError, nearest
from deniable.kanonymity.builders.categories import Prefix
from deniable.kanonymity.hierarchy import (
    Codes,
    Hierarchy,
    Label,
    Level,
    build_hierarchy,
    group_by_label,
    sort_leaves,
    text_of,
)

AGES = (0, 15, 24, 35, 45, 55, 70)
"""Age brackets in common use for health statistics; the last is open above."""

Numbers = NDArray[np.float64]
EXACT = 2.0**53
"""From here on a float stands for several whole numbers."""
WHOLE = 1e21
"""Whole numbers below this are written with all their digits."""


def numbers_of(column: str, values: pa.Array) -> Numbers:
    """Distinct values as floats; text that is not a number is refused without being shown."""
    try:
        found = np.array(pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
        return found if pa.types.is_floating(values.type) else _round_down(values, found)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"Column '{column}' holds values that are not numbers, and its hierarchy is one of numbers",
            remedy="Declare another hierarchy, or the column's type",
        ) from None


def _round_down(values: pa.Array, found: Numbers) -> Numbers:
    """Numbers beyond what floats hold exactly, as the float that is not above them: then edges compare right."""
    if pa.types.is_integer(values.type):
        beyond = found >= 2.0 ** (64 if values.type == pa.uint64() else 63)
        whole = values.to_numpy(zero_copy_only=False)
        above = beyond | (np.where(beyond, 0.0, found).astype(whole.dtype) > whole)
        return np.where(above & (np.abs(found) >= EXACT), np.nextafter(found, -np.inf), found)
    large = np.flatnonzero(np.isfinite(found) & (np.abs(found) >= EXACT))
    for place, value in zip(large.tolist(), values.take(pa.array(large)).to_pylist(), strict=True):
        if found[place] > Fraction(str(value).strip()):
            found[place] = np.nextafter(found[place], -np.inf)
    return found


def write_exactly(number: float, leaf: Label) -> str:
    """The number that a leaf stands for: as it is written, where a float does not hold it.

    >>> write_exactly(20.0, "20"), write_exactly(float(2**53), "9007199254740993")
    ('20', '9007199254740993')
    """
    text = write_number(number)
    try:
        exactly = Decimal((leaf or "").strip())
    except InvalidOperation:
        return text
    return text if exactly == Decimal(text) or not exactly.is_finite() else f"{exactly:f}"


def write_number(number: float) -> str:
    """A number as people write it: whole numbers without a point.

    >>> write_number(20.0), write_number(0.5)
    ('20', '0.5')
    """
    return str(int(number)) if float(number).is_integer() and abs(number) < WHOLE else repr(float(number))


def label_interval(low: float, high: float) -> str:
    """The label of a half-open interval.

    >>> label_interval(20, 30), label_interval(70, np.inf)
    ('[20, 30)', '[70, inf)')
    """
    first = f"[{write_number(low)}" if np.isfinite(low) else "(-inf"
    return f"{first}, {write_number(high) if np.isfinite(high) else 'inf'})"


def build_bracket_level(numbers: Numbers, edges: Sequence[float]) -> Level:
    """The level whose groups are the half-open intervals between edges, open below the first and above the last."""
    cuts = np.asarray(edges, np.float64)
    lows, highs = np.append(-np.inf, cuts), np.append(cuts, np.inf)
    found = np.searchsorted(cuts, numbers, side="right")
    used, groups = np.unique(found, return_inverse=True)
    labels: tuple[Label, ...] = tuple(label_interval(lows[i], highs[i]) for i in used)
    return Level(groups.astype(np.int32), labels, np.column_stack([lows[used], highs[used]]))


def build_value_level(values: pa.Array, numbers: Numbers) -> Level:
    """Level 0: every number by itself."""
    codes: Codes = np.arange(len(values), dtype=np.int32)
    return Level(codes, tuple(text_of(values)), np.column_stack([numbers, numbers]))


def _build_numeric(column: str, values: pa.Array, numbers: Numbers, levels: Sequence[Level]) -> Hierarchy:
    return build_hierarchy(column, text_of(values), [build_value_level(values, numbers), *levels], ordered=True)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of equal width, one level for each width; each begins at a whole number of widths from `start`."""

    widths: tuple[float, ...]
    start: float = 0.0

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) <= 0:
            raise ParameterError("Intervals need widths above 0", expected="Widths such as [5, 10, 20]")

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        values = sort_leaves(values)
        numbers = numbers_of(column, values)
        first = find_slots(values, numbers, self.start, self.widths[0])
        endless = ~np.isfinite(numbers)
        levels = [self._level(first, self.widths[0], endless)]
        for width in self.widths[1:]:
            many = _exact(width) / _exact(self.widths[0])
            nested = many.denominator == 1  # then slots are merged: two divisions of floats may disagree
            slots = first // many.numerator if nested else find_slots(values, numbers, self.start, width)
            levels.append(self._level(slots, width, endless))
        return _build_numeric(column, values, numbers, levels)

    def _level(self, slots: NDArray[Any], width: float, endless: NDArray[np.bool_]) -> Level:
        used, found = np.unique(slots[~endless], return_inverse=True)
        groups = np.full(len(slots), len(used))  # infinite numbers are in no interval but the whole
        groups[~endless] = found
        start, step = _exact(self.start), _exact(width)
        ends = [(_round_edge(start + int(n) * step, -1), _round_edge(start + (int(n) + 1) * step, 1)) for n in used]
        ends += [(-math.inf, math.inf)] * bool(endless.any())
        labels: tuple[Label, ...] = tuple(itertools.starmap(label_interval, ends))
        return Level(groups.astype(np.int32), labels, np.array(ends, np.float64).reshape(-1, 2))


def _exact(number: float) -> Fraction:
    """The number that a float is written as: 0.1 is a tenth."""
    return Fraction(repr(float(number)))


def _round_edge(edge: Fraction, away: int) -> float:
    """An edge of a range as a float, which is not inside the range where it cannot be written exactly."""
    try:
        near = float(edge)
    except OverflowError:
        return math.copysign(math.inf, edge)
    exactly = _exact(near)
    return near if exactly == edge or (exactly > edge) == (away > 0) else math.nextafter(near, away * math.inf)


CLEAR, SMALL = 1e-6, 2.0**30
"""A quotient of at most that size is told apart from whole numbers farther away than that."""


def find_slots(values: pa.Array, numbers: Numbers, start: float, width: float) -> NDArray[Any]:
    """The number of the interval that holds each value: whole numbers, as if nothing were rounded.

    Where a float could be rounded over an edge, the value is divided as it is written.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        quotient, shift = (numbers - start) / width, abs(start / width)
    largest = np.abs(quotient[np.isfinite(quotient)]).max(initial=0.0)
    whole = float(start).is_integer() and float(width).is_integer() and bool((numbers == np.floor(numbers)).all())
    if whole and max(np.abs(numbers).max(initial=0.0), abs(start), width) < EXACT / 2:
        return np.floor(quotient).astype(np.int64)
    with np.errstate(invalid="ignore"):
        clear = (np.abs(quotient) + shift < SMALL) & (np.abs(quotient - np.rint(quotient)) > CLEAR)
    doubtful = np.flatnonzero(~clear & np.isfinite(numbers))
    kind = np.int64 if largest < EXACT else np.object_
    found = np.floor(np.where(np.isfinite(quotient), quotient, 0.0)).astype(kind)
    begin, step = _exact(start), _exact(width)
    for place, value in zip(doubtful.tolist(), values.take(pa.array(doubtful)).to_pylist(), strict=True):
        found[place] = int((Fraction(str(value).strip()) - begin) // step)
    return found


@dataclass(frozen=True, slots=True)
class Brackets:
    """Given brackets, one level for each list of edges; every edge begins a bracket, the last is open above."""

    levels: tuple[tuple[float, ...], ...] = (AGES,)

    def __post_init__(self) -> None:
        for edges in self.levels:
            if any(a >= b for a, b in itertools.pairwise(edges)):
                raise ParameterError("Bracket edges do not rise", expected="Edges in rising order, such as [0, 15, 24]")

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        values = sort_leaves(values)
        numbers = numbers_of(column, values)
        return _build_numeric(column, values, numbers, [build_bracket_level(numbers, edges) for edges in self.levels])


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

    def brackets(self, column: str, values: pa.Array) -> Brackets:
        """The brackets these values give, which is what a saved recoding keeps for rows to come."""
        numbers = numbers_of(column, sort_leaves(values))
        finest = np.quantile(numbers, np.arange(1, self.counts[0]) / self.counts[0], method="lower")
        return Brackets(tuple(tuple(np.unique(finest[self._every(n)]).tolist()) for n in self.counts))

    def _every(self, count: int) -> slice:
        step = self.counts[0] // count
        return slice(step - 1, None, step)

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        return self.brackets(column, values).hierarchy(column, values)


@dataclass(frozen=True, slots=True)
class Rounding:
    """Numbers rounded to multiples, half upwards; the released value stays a number.

    A larger multiple must be an odd number of times the smaller one, or counted from zero downwards (`down`), for
    rounded values to nest; `down` is therefore the default.
    """

    multiples: tuple[float, ...]
    down: bool = True

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        values = sort_leaves(values)
        numbers = numbers_of(column, values)
        return _build_numeric(column, values, numbers, [self._level(numbers, step) for step in self.multiples])

    def _level(self, numbers: Numbers, step: float) -> Level:
        slot = np.floor(numbers / step + (0.0 if self.down else 0.5))
        used, groups = np.unique(slot, return_inverse=True)
        lows = used * step - (0.0 if self.down else step / 2)
        labels: tuple[Label, ...] = tuple(write_number(n) for n in used * step)
        return Level(groups.astype(np.int32), labels, np.column_stack([lows, lows + step]))


@dataclass(frozen=True, slots=True)
class TailCoded:
    """Top and bottom coding: values at or beyond a threshold are one leaf, from the first level on.

    What lies at the ends of a distribution is rare, and rarity identifies; '90 or more' is the classical remedy. The
    inner builder sees the values clipped to the thresholds; groups that hold a tail are open at that end.
    """

    inner: NumberBuilder
    bottom: float | None = None
    top: float | None = None

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        values = sort_leaves(values)
        numbers = numbers_of(column, values)
        low, high = self.bottom, self.top
        clipped, place = np.unique(np.clip(numbers, low, high) if len(numbers) else numbers, return_inverse=True)
        built = self.inner.hierarchy(column, pa.array(clipped, pa.float64()))
        thresholds = ((low, -np.inf), (high, np.inf))
        tails = [(clipped == threshold, end) for threshold, end in thresholds if threshold is not None]
        levels = [_open_tails(level, place, tails) for level in built.levels[:-1]]
        return build_hierarchy(column, text_of(values), levels, ordered=True)


def _open_tails(level: Level, place: NDArray[np.int64], tails: list[tuple[NDArray[np.bool_], float]]) -> Level:
    """A level of clipped values as one of the values themselves, its groups open where they hold a tail."""
    if level.ends is None:
        return Level(level.groups[place], level.labels)
    labels, ends = list(level.labels), level.ends.copy()
    for there, end in tails:
        for group in np.unique(level.groups[there]):
            side = 0 if end < 0 else 1
            alone = ends[group, 0] == ends[group, 1]
            ends[group, side] = end
            threshold = write_number(float(ends[group, 1 - side]))
            labels[group] = f"{'<=' if end < 0 else '>='} {threshold}" if alone else label_interval(*ends[group])
    return Level(level.groups[place], tuple(labels), ends)


class NumberBuilder(Protocol):
    """A builder of numbers."""

    def hierarchy(self, column: str, values: pa.Array, /) -> Hierarchy:
        """The hierarchy over these distinct values."""


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
        values = sort_leaves(values)
        numbers = numbers_of(column, values)
        levels = [_build_cell_level(numbers, count) for count in self.digits]
        return build_hierarchy(column, text_of(values), [build_value_level(values, numbers), *levels], ordered=True)


def _build_cell_level(numbers: Numbers, digits: int) -> Level:
    slot = truncate_coordinates(numbers, digits)
    used, groups = np.unique(slot, return_inverse=True)
    scale = 10.0**digits
    labels: tuple[Label, ...] = tuple(f"{n / scale:.{digits}f}" for n in used)
    return Level(groups.astype(np.int32), labels, np.column_stack([used / scale, (used + 1) / scale]))


def truncate_coordinates(numbers: Numbers, digits: int) -> Numbers:
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


def encode_geohash(latitude: Numbers, longitude: Numbers, length: int) -> list[str]:
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
