"""Hierarchies of numbers: equal intervals, given brackets, quantiles, rounding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError
from deniable.kanonymity.builders.leaves import sorted_leaves, text_of
from deniable.kanonymity.hierarchy import Codes, Hierarchy, Label, Level, hierarchy

AGES = (0, 15, 24, 35, 45, 55, 70)
"""Age brackets in common use for health statistics; the last is open above."""

Numbers = NDArray[np.float64]


def numbers_of(column: str, values: pa.Array) -> Numbers:
    """Distinct values as floats; text that is not a number is refused without being shown."""
    try:
        return np.asarray(pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"Column '{column}' holds values that are not numbers, and its hierarchy is one of numbers",
            remedy="Declare another hierarchy, or the column's type",
        ) from None


def written(number: float) -> str:
    """A number as people write it: whole numbers without a point.

    >>> written(20.0), written(0.5)
    ('20', '0.5')
    """
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e15 else repr(float(number))


def interval(low: float, high: float) -> str:
    """The label of a half-open interval.

    >>> interval(20, 30), interval(70, np.inf)
    ('[20, 30)', '[70, inf)')
    """
    return f"[{written(low) if np.isfinite(low) else '-inf'}, {written(high) if np.isfinite(high) else 'inf'})".replace(
        "[-inf", "(-inf"
    )


def bracketed(numbers: Numbers, edges: Sequence[float]) -> Level:
    """The level whose groups are the half-open intervals between edges, open below the first and above the last."""
    cuts = np.asarray(edges, np.float64)
    lows, highs = np.append(-np.inf, cuts), np.append(cuts, np.inf)
    found = np.searchsorted(cuts, numbers, side="right")
    used, groups = np.unique(found, return_inverse=True)
    labels: tuple[Label, ...] = tuple(interval(lows[i], highs[i]) for i in used)
    return Level(groups.astype(np.int32), labels, np.column_stack([lows[used], highs[used]]))


def as_they_are(values: pa.Array, numbers: Numbers) -> Level:
    """Level 0: every number by itself."""
    codes: Codes = np.arange(len(values), dtype=np.int32)
    return Level(codes, tuple(text_of(values)), np.column_stack([numbers, numbers]))


def _built(column: str, values: pa.Array, numbers: Numbers, levels: Sequence[Level]) -> Hierarchy:
    return hierarchy(column, text_of(values), [as_they_are(values, numbers), *levels], ordered=True)


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
        values = sorted_leaves(values)
        numbers = numbers_of(column, values)
        return _built(column, values, numbers, [self._level(numbers, width) for width in self.widths])

    def _level(self, numbers: Numbers, width: float) -> Level:
        slot = np.floor((numbers - self.start) / width)
        used, groups = np.unique(slot, return_inverse=True)
        lows = self.start + used * width
        labels: tuple[Label, ...] = tuple(interval(low, low + width) for low in lows)
        return Level(groups.astype(np.int32), labels, np.column_stack([lows, lows + width]))


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
        values = sorted_leaves(values)
        numbers = numbers_of(column, values)
        return _built(column, values, numbers, [bracketed(numbers, edges) for edges in self.levels])


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
        numbers = numbers_of(column, sorted_leaves(values))
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
        values = sorted_leaves(values)
        numbers = numbers_of(column, values)
        return _built(column, values, numbers, [self._level(numbers, step) for step in self.multiples])

    def _level(self, numbers: Numbers, step: float) -> Level:
        slot = np.floor(numbers / step + (0.0 if self.down else 0.5))
        used, groups = np.unique(slot, return_inverse=True)
        lows = used * step - (0.0 if self.down else step / 2)
        labels: tuple[Label, ...] = tuple(written(n) for n in used * step)
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
        values = sorted_leaves(values)
        numbers = numbers_of(column, values)
        low, high = self.bottom, self.top
        clipped, place = np.unique(np.clip(numbers, low, high) if len(numbers) else numbers, return_inverse=True)
        built = self.inner.hierarchy(column, pa.array(clipped, pa.float64()))
        thresholds = ((low, -np.inf), (high, np.inf))
        tails = [(clipped == threshold, end) for threshold, end in thresholds if threshold is not None]
        levels = [_opened(level, place, tails) for level in built.levels]
        return hierarchy(column, text_of(values), levels, ordered=True)


def _opened(level: Level, place: NDArray[np.int64], tails: list[tuple[NDArray[np.bool_], float]]) -> Level:
    """A level of clipped values as one of the values themselves, its groups open where they hold a tail."""
    if level.ends is None:
        return Level(level.groups[place], level.labels)
    labels, ends = list(level.labels), level.ends.copy()
    for there, end in tails:
        for group in np.unique(level.groups[there]):
            side = 0 if end < 0 else 1
            alone = ends[group, 0] == ends[group, 1]
            ends[group, side] = end
            threshold = written(float(ends[group, 1 - side]))
            labels[group] = f"{'<=' if end < 0 else '>='} {threshold}" if alone else interval(*ends[group])
    return Level(level.groups[place], tuple(labels), ends)


class NumberBuilder(Protocol):
    """A builder of numbers."""

    def hierarchy(self, column: str, values: pa.Array, /) -> Hierarchy:
        """The hierarchy over these distinct values."""
