"""A tree of areas, what is measured of each, with how much noise, and the table that follows.

A spine has one area at its top, which is everybody, and areas that lie in one another down to the smallest ones. It is
public: every area is listed, also one where nobody lives. Of each area the same margins of the same cells are measured,
with noise that the level's share of the budget pays for. `measure` is the last sight of exact numbers but for
invariants, which are published as they are; `infer` sees noisy numbers alone.

**Guarantee.** A unit adds at most `reach` to all cells of a level together. With add-or-remove neighbors it moves each
measured margin by at most reach in L1 norm and reach^2 in squared L2 norm. A replaced unit takes one non-negative
vector away and adds another, which moves it by at most twice as much in both: 2 reach, and 2 reach^2, because the
product of the two vectors is not negative. Levels and margins are composed.
**Utility.** Before the bound at zero, estimates are unbiased, with the variances that `compute_spreads` gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, Event, rho_within
from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.dp.mechanisms.mechanism import calibrate_part
from deniable.errors import ParameterError
from deniable.geography.consistency import (
    Counts,
    Floats,
    combine_upwards,
    fit_children,
    round_alone,
    round_children,
    round_totals,
)
from deniable.geography.grids import find_deviation
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1 << 22
"""Cells that are measured at once."""
LARGEST = np.iinfo(np.int32).max
Noise = LaplaceMechanism | GaussianMechanism
Progress = Callable[[float], None]


class Noisy(Protocol):
    """What adds noise to whole numbers."""

    def release(self, values: NDArray[np.int64]) -> NDArray[Any]:
        """The values with noise."""


@dataclass(frozen=True, slots=True, eq=False)
class Spine:
    """Areas by level, those of one parent side by side; level 0 is everybody, a single area.

    >>> spine = Spine.of(("state", "town"), [["B", "A", "A"], ["b1", "a1", "a2"]])
    >>> spine.sizes, spine.names[1].tolist(), spine.names[2].tolist(), spine.starts[1].tolist()
    ((1, 2, 3), ['A', 'B'], ['a1', 'a2', 'b1'], [0, 2, 3])
    """

    levels: tuple[str, ...]
    names: tuple[NDArray[Any], ...]
    starts: tuple[Counts, ...]
    """The children of area i of level l are starts[l][i] to starts[l][i + 1] - 1 of level l + 1."""

    @classmethod
    def of(cls, levels: Sequence[str], columns: Sequence[Sequence[Any]]) -> Spine:
        """From a public list with one entry for each smallest area: for each level its names, from large to small."""
        listed = [np.asarray(column, dtype=object) for column in columns]
        if listed and not listed[-1].size:
            raise ParameterError("the public list of areas is empty", expected="One entry for each smallest area")
        if listed and any(value is None for column in listed for value in column):
            raise ParameterError("a listed area has no name on some level", expected="A name on every level")
        codes = [np.unique(column.astype(str), return_inverse=True)[1] for column in listed]
        _refuse_other_order(levels, codes)
        if listed and len(set(listed[-1].tolist())) < len(listed[-1]):
            raise ParameterError(
                f"an area of level '{levels[-1]}' is listed twice", expected="One entry for each smallest area"
            )
        order = np.lexsort(codes[::-1]) if codes else np.zeros(1, np.int64)
        names: list[NDArray[Any]] = [np.array(["all"], dtype=object)]
        starts: list[Counts] = []
        fresh = np.zeros(len(order), bool)
        fresh[:1] = True
        firsts = np.zeros(1, np.int64)
        for code, column in zip(codes, listed, strict=True):
            ordered = code[order]
            fresh = fresh | np.concatenate(([True], ordered[1:] != ordered[:-1]))
            below = np.flatnonzero(fresh)
            starts.append(np.append(np.searchsorted(below, firsts), len(below)).astype(np.int64))
            names.append(column[order[below]])
            firsts = below
        return cls(("all", *levels), tuple(names), tuple(starts))

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many areas each level has."""
        return tuple(len(each) for each in self.names)

    @property
    def depth(self) -> int:
        """How many levels there are."""
        return len(self.levels)

    def find_parents(self, level: int) -> Counts:
        """The parent of each area of a level."""
        return np.repeat(np.arange(self.sizes[level - 1]), np.diff(self.starts[level - 1]))

    def find_ancestors(self, level: int) -> Counts:
        """The area of a level in which each smallest area lies."""
        found = np.arange(self.sizes[-1])
        for below in range(self.depth - 1, level, -1):
            found = self.find_parents(below)[found]
        return found

    def keep(self, parents: Counts) -> tuple[Spine, Counts]:
        """The spine of some areas of the last level but one and what lies in them; and those smallest areas."""
        inside = np.isin(self.find_parents(self.depth - 1), parents)
        columns = [self.names[level][self.find_ancestors(level)][inside] for level in range(1, self.depth)]
        paths = [[f"{self.find_ancestors(i)[j]:09d}" for j in np.flatnonzero(inside)] for i in range(1, self.depth)]
        assert columns
        return Spine.of(self.levels[1:], paths), np.flatnonzero(inside)


def _refuse_other_order(levels: Sequence[str], codes: Sequence[NDArray[np.int64]]) -> None:
    """Refuse a level whose areas are parts of those of a level after it; a name may stand in several larger areas."""
    sizes = [int(code.max()) + 1 for code in codes]
    for above, below in combinations(range(len(codes)), 2):
        pairs = len(np.unique(codes[above] * sizes[below] + codes[below]))
        if pairs == sizes[above] > sizes[below]:
            fitting = sorted(range(len(codes)), key=lambda level: sizes[level])
            raise ParameterError(
                f"each area of level '{levels[above]}' lies in one of level '{levels[below]}', which stands after it",
                expected=f"Levels from large to small: [{', '.join(levels[level] for level in fitting)}]",
                remedy="List the levels in that order; areas of one level with one name need names that differ",
            )


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Whole numbers of people by smallest area and cell; cells that are not listed are empty."""

    area: NDArray[np.int32]
    cell: NDArray[np.int32]
    count: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of one area: all combinations of the values of some columns."""

    columns: tuple[str, ...]
    labels: tuple[tuple[Any, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each column has."""
        return tuple(len(each) for each in self.labels)

    @property
    def count(self) -> int:
        """How many cells there are."""
        return math.prod(self.sizes)

    def map_margin(self, by: Sequence[str]) -> Counts:
        """For each cell the cell of a margin that it belongs to.

        >>> Cells(("sex", "old"), (("F", "M"), (0, 1, 2))).map_margin(["old"]).tolist()
        [0, 1, 2, 0, 1, 2]
        """
        places = np.indices(self.sizes).reshape(len(self.sizes), -1) if self.sizes else np.zeros((0, 1), np.int64)
        found = np.zeros(self.count, np.int64)
        for column, size, place in zip(self.columns, self.sizes, places, strict=True):
            if column in by:
                found = found * size + place
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """What is measured of every area, and with how much noise; the last margin is that of all cells."""

    spine: Spine
    cells: Cells
    margins: tuple[tuple[str, ...], ...]
    noises: tuple[tuple[Noise, ...] | None, ...]
    """For each level, the noise of each margin; None where the level is not measured."""
    shares: tuple[tuple[Fraction, ...], ...]
    """For each level, the share of the budget that each margin has."""

    @property
    def event(self) -> Event:
        """All noise, as it is priced."""
        return ComposedEvent(tuple(noise.event for level in self.noises if level is not None for noise in level))

    @property
    def maps(self) -> list[Counts]:
        """For each margin, which of its cells each cell belongs to."""
        return [self.cells.map_margin(by) for by in self.margins]

    def variance(self, level: int, margin: int) -> float:
        """The variance of the noise of one cell of a margin."""
        noises = self.noises[level]
        return math.inf if noises is None else find_variance(noises[margin])


def find_variance(noise: Noise) -> float:
    """The variance of noise, or what is small beside any count where it is less: for utility, never for privacy."""
    return find_deviation(noise) ** 2


def plan_noise(
    budget: Budget, spine: Spine, cells: Cells, margins: Sequence[tuple[tuple[str, ...], Fraction]],
    levels: Mapping[str, Fraction] | None, *, reach: int, replaced: bool,
) -> Design:  # fmt: skip
    """The noise of every level and margin within a budget; without `levels` shares are chosen by expected error."""
    weights = choose_shares(spine, isinstance(budget, PureDP)) if levels is None else (
        tuple(levels.get(name, Fraction(0)) for name in spine.levels)
    )  # fmt: skip
    if weights[-1] <= 0:
        raise ParameterError(
            f"level '{spine.levels[-1]}' has no share of the budget, so nothing would tell its areas apart",
            expected="A weight above 0 for the smallest areas",
        )
    whole, parts = sum(weights), sum((weight for _, weight in margins), Fraction(0))
    shares = tuple(tuple(level * weight / whole / parts for _, weight in margins) for level in weights)
    money = choose_currency(budget, [share for level in shares for share in level if share])
    noises = tuple(
        tuple(make_noise(money, share, reach, replaced) for share in level) if level[0] else None for level in shares
    )
    return Design(spine, cells, tuple(by for by, _ in margins), noises, shares)


def choose_currency(budget: Budget, shares: Sequence[Fraction]) -> Budget:
    """The budget, or the rho within it where that buys less noise: what a curve takes for noise being discrete is much
    beside a small variance.
    """
    if not isinstance(budget, ApproxDP) or not budget.delta or not (rho := rho_within(budget.epsilon, budget.delta)):
        return budget
    by_curve = sum((1 / (2 * calibrate_part(budget, 1, share).variance) for share in shares), Fraction(0))
    return ZCDP(rho) if by_curve < rho else budget


def make_noise(budget: Budget, share: Fraction, reach: int, replaced: bool) -> Noise:
    """The noise of one margin of one level for its share of the budget; see the guarantee above."""
    times = 2 if replaced else 1
    if isinstance(budget, PureDP):
        moved = Fraction(reach * times)
        return LaplaceMechanism(moved / (budget.epsilon * share), moved)
    return calibrate_part(budget, reach**2 * times, share)


def choose_shares(spine: Spine, pure: bool) -> tuple[Fraction, ...]:
    """Shares of the levels with the least sum, over the levels, of the variance of one cell after all are combined.

    Found by trying factors of each share in turn; each area is taken to have as many children as the average one.
    """
    fans = [after / before for before, after in pairwise(spine.sizes)]
    shares = np.ones(spine.depth)

    def judge(weights: Floats) -> float:
        part = weights / weights.sum()
        return float(sum(spread_evenly([1 / each ** (2 if pure else 1) for each in part], fans)))

    best, factor = judge(shares), 2.0
    while factor > 1.02:
        improved = False
        for place in range(len(shares)):
            for by in (factor, 1 / factor):
                tried = shares.copy()
                tried[place] *= by
                if (value := judge(tried)) < best * (1 - 1e-6):
                    best, shares, improved = value, tried, True
        factor = factor if improved else math.sqrt(factor)
    return tuple(Fraction(max(1, round(1000 * each / shares.sum()))) for each in shares)


def spread_evenly(own: Sequence[float], fans: Sequence[float]) -> list[float]:
    """The variance of one number of each level after all levels are combined, where all areas have equally many."""
    up = [0.0] * len(own)
    up[-1] = own[-1]
    for level in range(len(own) - 2, -1, -1):
        below = fans[level] * up[level + 1]
        up[level] = below if math.isinf(own[level]) else 1 / (1 / own[level] + 1 / below)
    found = [up[0]]
    for level in range(1, len(own)):
        many = fans[level - 1]
        found.append(up[level] * (1 - 1 / many) + found[-1] / many**2)
    return found


def compute_spreads(design: Design, margin: int) -> list[float]:
    """The expected variance of one cell of a margin on each level, before the bound at zero."""
    sizes = design.spine.sizes
    fans = [after / before for before, after in pairwise(sizes)]
    return spread_evenly([design.variance(level, margin) for level in range(len(sizes))], fans)


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """For each level and margin the best estimate of each area from what lies below it; and its variance."""

    values: tuple[tuple[NDArray[Any], ...], ...]
    variances: tuple[tuple[Floats, ...], ...]


def sum_margin(exact: Table, ancestors: Counts, areas: int, mapped: Counts, size: int) -> Counts:
    """The exact numbers of one margin of all areas of a level."""
    keys = ancestors[exact.area] * size + mapped[exact.cell]
    return np.bincount(keys, weights=exact.count, minlength=areas * size).astype(np.int64).reshape(areas, size)


def sum_level(design: Design, table: Table, level: int, by: Sequence[str]) -> Counts:
    """The numbers of a table by area of a level and cell of a margin."""
    mapped = design.cells.map_margin(by)
    ancestors = design.spine.find_ancestors(level)
    return sum_margin(table, ancestors, design.spine.sizes[level], mapped, int(mapped.max()) + 1)


def measure(
    design: Design, exact: Table, noises: Sequence[Sequence[Noisy] | None], tell: Progress = lambda _: None
) -> list[list[NDArray[np.int32]] | None]:
    """The noisy numbers of every measured level: for each margin, areas by cells. The table is sorted by area."""
    found: list[list[NDArray[np.int32]] | None] = []
    spine, maps = design.spine, design.maps
    for level, noise in enumerate(noises):
        if noise is None:
            found.append(None)
            continue
        ancestors = spine.find_ancestors(level)
        levels = []
        for mapped, each in zip(maps, noise, strict=True):
            levels.append(_measure_margin(exact, ancestors, spine.sizes[level], mapped, each))
        found.append(levels)
        tell((level + 1) / spine.depth)
    return found


def _measure_margin(exact: Table, ancestors: Counts, areas: int, mapped: Counts, noise: Noisy) -> NDArray[np.int32]:
    """One margin of all areas of a level, some areas at a time: the table and its areas rise together."""
    size = int(mapped.max()) + 1
    found = np.empty((areas, size), np.int32)
    owner, inside = ancestors[exact.area], mapped[exact.cell]
    step = max(1, CHUNK // size)
    for first in range(0, areas, step):
        last = min(areas, first + step)
        begin, end = np.searchsorted(owner, [first, last])
        keys = (owner[begin:end] - first) * size + inside[begin:end]
        counts = np.bincount(keys, weights=exact.count[begin:end], minlength=(last - first) * size)
        noisy = noise.release(counts.astype(np.int64))
        found[first:last] = np.clip(noisy, -LARGEST, LARGEST).astype(np.int32).reshape(-1, size)
    return found


def estimate(design: Design, noisy: Sequence[Sequence[NDArray[np.int32]] | None]) -> Estimates:
    """Combine what was measured upwards, from the smallest areas to everybody."""
    spine, margins = design.spine, range(len(design.margins))
    lowest = noisy[-1]
    assert lowest is not None
    values: list[tuple[NDArray[Any], ...]] = [tuple(lowest)]
    variances = [tuple(np.full(spine.sizes[-1], design.variance(spine.depth - 1, margin)) for margin in margins)]
    for level in range(spine.depth - 2, -1, -1):
        starts, own = spine.starts[level], noisy[level]
        found = [
            combine_upwards(
                None if own is None else own[margin].astype(np.float64),
                design.variance(level, margin),
                _sum_children(values[0][margin], starts),
                np.add.reduceat(variances[0][margin], starts[:-1]),
            )
            for margin in margins
        ]
        values.insert(0, tuple(each for each, _ in found))
        variances.insert(0, tuple(each for _, each in found))
    return Estimates(tuple(values), tuple(variances))


def is_laplace(design: Design) -> bool:
    """Whether the noise is Laplace's."""
    return any(level is not None and isinstance(level[0], LaplaceMechanism) for level in design.noises)


def _sum_children(values: NDArray[Any], starts: Counts) -> Floats:
    """Sums over the children of each area, some areas at a time."""
    found = np.empty((len(starts) - 1, values.shape[1]))
    for area in range(len(starts) - 1):
        found[area] = values[starts[area] : starts[area + 1]].sum(axis=0, dtype=np.float64)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Invariant:
    """Exact numbers that are published as they are: of a margin of every area of a level."""

    by: tuple[str, ...]
    values: Counts


def combine_totals(estimates: Estimates, level: int) -> tuple[Floats, Floats]:
    """For each area of a level the best estimate of its total from what lies below it, and the variance.

    Each margin adds up to the total; with fewer cells its sum has less noise. Margins have noise of their own, so their
    sums are weighed by their precision.
    """
    weights = [1 / (variance * values.shape[1]) for values, variance in
               zip(estimates.values[level], estimates.variances[level], strict=True)]  # fmt: skip
    whole = np.sum(weights, axis=0)
    sums = [values.sum(axis=1, dtype=np.float64) for values in estimates.values[level]]
    return np.asarray(np.sum([a * b for a, b in zip(sums, weights, strict=True)], axis=0) / whole), 1 / whole


def fix_totals(design: Design, estimates: Estimates, invariants: Sequence[Invariant | None]) -> list[Counts]:
    """Whole totals of all areas, level by level, that add up: the nearest to their estimates, and never negative.

    Totals come first. Cells that may not be negative are too large where there are few people: fitted together with
    them, totals of small areas would be drawn up, and those of large ones down.
    """
    spine = design.spine
    none = np.zeros((0, 1), np.int64), np.zeros(1, np.int64), np.zeros(0)
    found: list[Counts] = []
    for level in range(spine.depth):
        exact = invariants[level]
        if exact is not None:
            found.append(exact.values.sum(axis=1))
            continue
        means, variances = combine_totals(estimates, level)
        if level == 0:
            found.append(np.array([max(0, round(float(means[0])))]))
            continue
        starts, sums = spine.starts[level - 1], np.empty(spine.sizes[level], np.int64)
        for area, total in enumerate(found[-1]):
            inside = slice(int(starts[area]), int(starts[area + 1]))
            many, parent = inside.stop - inside.start, np.array([total])
            x = fit_children(means[inside, None], variances[inside], parent.astype(np.float64), True, none[0], none[1],
                             np.zeros((many, 0)), none[2])  # fmt: skip
            sums[inside] = round_totals(x, parent)[:, 0]
        found.append(sums)
    return found


def infer(
    design: Design, estimates: Estimates, invariants: Sequence[Invariant | None], tell: Progress = lambda _: None
) -> tuple[Table, list[Counts]]:
    """Whole non-negative numbers that add up and meet every invariant; and the total of each area of each level."""
    totals = fix_totals(design, estimates, invariants)
    fixed = [
        Invariant((), total[:, None]) if exact is None else exact
        for exact, total in zip(invariants, totals, strict=True)
    ]
    return _infer_cells(design, estimates, fixed, tell), totals


def _infer_cells(design: Design, estimates: Estimates, fixed: Sequence[Invariant], tell: Progress) -> Table:
    """The cells, from everybody down to the smallest areas, with an exact margin on every level."""
    spine = design.spine
    values = _fit_top(design, estimates, fixed[0])[None, :]
    parts: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
    for level in range(1, spine.depth):
        leaf = level == spine.depth - 1
        below = None if leaf else np.empty((spine.sizes[level], design.cells.count), np.int64)
        for area, found in _fit_level(design, estimates, fixed[level], level, values):
            begin, end = spine.starts[level - 1][area], spine.starts[level - 1][area + 1]
            if below is None:
                row, cell = np.nonzero(found)
                parts.append(((row + begin).astype(np.int32), cell.astype(np.int32),
                              found[row, cell].astype(np.int32)))  # fmt: skip
                tell((area + 1) / len(values))
            else:
                below[begin:end] = found
        values = values if below is None else below
    if spine.depth == 1:
        cell = np.flatnonzero(values[0])
        parts.append((np.zeros(len(cell), np.int32), cell.astype(np.int32), values[0][cell].astype(np.int32)))
    return Table(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _prepare(
    design: Design, variances: tuple[Floats, ...], exact: Invariant
) -> tuple[list[int], Counts, Counts, Floats]:
    """The margins that are fitted beside the cells: which, their maps, where each begins, and their variance in cells.

    What the exact margin says needs no fitting; the exact one stands last.
    """
    places = [place for place, by in enumerate(design.margins[:-1]) if not set(by) <= set(exact.by)]
    maps = [design.cells.map_margin(by) for by in (*(design.margins[place] for place in places), exact.by)]
    ratios = [float(np.mean(variances[place] / variances[-1])) for place in places] + [0.0]
    offsets = np.concatenate(([0], np.cumsum([int(each.max()) + 1 for each in maps]))).astype(np.int64)
    return places, np.array(maps, np.int64), offsets, np.array(ratios)


def _list_targets(estimates: Estimates, level: int, places: Sequence[int], exact: Invariant, areas: slice) -> Floats:
    parts = [estimates.values[level][place][areas].astype(np.float64) for place in places]
    return np.ascontiguousarray(np.concatenate([*parts, exact.values[areas].astype(np.float64)], axis=1))


def _fit_top(design: Design, estimates: Estimates, exact: Invariant) -> Counts:
    places, maps, offsets, ratios = _prepare(design, estimates.variances[0], exact)
    targets = _list_targets(estimates, 0, places, exact, slice(0, 1))
    cells = estimates.values[0][-1][:1].astype(np.float64)
    spread = estimates.variances[0][-1][:1]
    x = fit_children(cells, spread, np.zeros(cells.shape[1]), False, maps, offsets, targets, ratios)
    return round_alone(x[0], maps[-1], exact.values[0])


def _fit_level(
    design: Design, estimates: Estimates, exact: Invariant, level: int, parents: Counts
) -> Iterator[tuple[int, Counts]]:
    """For each area of the level above, the cells of its children."""
    places, maps, offsets, ratios = _prepare(design, estimates.variances[level], exact)
    starts = design.spine.starts[level - 1]
    for area, parent in enumerate(parents):
        inside = slice(int(starts[area]), int(starts[area + 1]))
        if inside.stop - inside.start == 1:
            yield area, parent[None, :]
            continue
        cells = estimates.values[level][-1][inside].astype(np.float64)
        targets = _list_targets(estimates, level, places, exact, inside)
        spread = np.ascontiguousarray(estimates.variances[level][-1][inside])
        x = fit_children(cells, spread, parent.astype(np.float64), True, maps, offsets, targets, ratios)
        yield area, round_children(x, parent, maps[-1], exact.values[inside])


def encode_column(column: pa.Array, encode: Callable[[Any], int]) -> NDArray[np.int64]:
    """The code of each value; -1 where it has none."""
    coded = column.dictionary_encode()
    table = np.array([encode(value) for value in coded.dictionary.to_pylist()] + [-1], np.int64)
    return np.asarray(table[coded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False).astype(np.int64)])


def make_encoder(labels: Sequence[Any], breaks: Sequence[int]) -> Callable[[Any], int]:
    """From a value of a cell's column to its code; -1 where it has none."""
    if breaks:
        return lambda value: -1 if value is None else int(np.searchsorted(breaks, value, "right")) - 1
    known = {label: i for i, label in enumerate(labels)}
    return lambda value: known.get(value, -1)
