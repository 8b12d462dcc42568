"""Views: one number of each output, by which outputs of two inputs may be told apart.

An entry, a low digit, a difference or a sum of two entries, a summary of the row, two entries at once, or an entry by
its rank and not by its place. Which views are listed is chosen by the runs that teach, and never by those that test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Outputs = NDArray[Any]
Numbers = NDArray[np.float64]
Counts = NDArray[np.int64]
Side = tuple[int, int]

FEW_VALUES = 256
"""A view of so few values has a cell for each."""
MISSING = 1e300
"""What a missing number is taken as: a value of its own, above all others."""
PAIRED = 12
"""Of so many columns all pairs are compared; of more, neighbors and those that move together."""
FEW_COLUMNS = 4
"""Of so few columns the low digits of differences are looked at too."""
JOINED, MOST_JOINED = 8, 1024
"""Cells of a number that is looked at together with another; and the cells of all of them."""
GRAIN = 32
"""Cells of a view that is cut coarsely."""
RANKED, SOUGHT = 16, 12
"""Ranks that are looked at in a row whose order tells nothing; and values that are counted in it, of each kind."""


@dataclass(frozen=True, slots=True)
class View:
    """One number of each output, in words; `exact` compares values instead of ordering them."""

    name: str
    compute: Callable[[Outputs], Numbers]
    exact: bool = False


def find_cells(view: View, edges: Numbers, outputs: Outputs) -> Counts:
    """The cell of each output: between edges, or of one exact value, where 0 stands for all others."""
    values = view.compute(outputs)
    found = np.searchsorted(edges, values, side="right")
    if view.exact:
        found = np.where((found > 0) & (edges[np.maximum(found, 1) - 1] == values), found, 0)
    return np.asarray(found, np.int64)


def count_cells(view: View, edges: Numbers, sides: Sequence[Outputs]) -> Counts:
    """How many runs of each input are in each cell."""
    return np.array([np.bincount(find_cells(view, edges, side), minlength=len(edges) + 1) for side in sides])


def cut_coarsely(view: View, sides: Sequence[Outputs]) -> tuple[Numbers, Counts]:
    """Edges at even quantiles, and how many runs of each input are in each cell."""
    values = np.concatenate([view.compute(side) for side in sides])
    edges = np.unique(np.quantile(values, np.linspace(0, 1, GRAIN + 1)[1:-1], method="lower"))
    return edges, count_cells(view, edges, sides)


def name_columns(columns: int) -> tuple[str, ...]:
    """What columns without names are called."""
    return ("output",) if columns == 1 else tuple(f"output {place + 1}" for place in range(columns))


LOWEST, DISTANCE = "lowest binary digit of", "distance from the middle of"


def list_views(learning: Sequence[Outputs], names: Sequence[str], own: int) -> Iterator[View]:
    """Views that need no score; of `names`, the first `own` are numbers of the output itself."""
    yield View("whole output", _hash_rows, exact=True)
    joined = []
    for place, name in enumerate(names):
        found = list(_list_number_views(name, partial(_take, place), learning))
        joined += [
            view for view in found if not view.exact and place < own and not view.name.startswith((LOWEST, DISTANCE))
        ]
        yield from found
    if own == 1:
        return
    yield from _list_joint_views(joined[: MOST_JOINED // 2], learning)
    if own > 2:
        yield from _list_views_of_any_place(own, learning)
    for word, summarize in SUMMARIES:
        yield View(f"{word} of the outputs", partial(_summarize_own, summarize, own))
    for one, other in _choose_pairs([side[:, :own] for side in learning]):
        pair = f"{names[one]} and {names[other]}"
        difference = View(f"difference of {pair}", partial(_subtract, one, other))
        few = own <= FEW_COLUMNS
        yield from _list_number_views(difference.name, difference.compute, learning) if few else (difference,)
        yield View(f"sum of {pair}", partial(_add, one, other))


def _list_number_views(name: str, compute: Callable[[Outputs], Numbers], learning: Sequence[Outputs]) -> Iterator[View]:
    """A number itself; where it has many values, also how far out it is, which they are, and its low digits."""
    yield View(name, compute)
    sides = [compute(side) for side in learning]
    together = np.concatenate(sides)
    distinct = len(np.unique(together))
    if distinct <= FEW_VALUES:
        return
    # What is rare may lie far out on both sides, on each too seldom to be seen by itself.
    yield View(f"{DISTANCE} {name}", partial(_measure_from, compute, float(np.median(together))))
    if distinct < len(together) * 0.95:
        yield View(f"exact {name}", compute, exact=True)
    yield View(f"{LOWEST} {name}", lambda outputs: _find_lowest_digit(compute(outputs)))
    for steps, grid in _find_moduli(sides):
        yield View(f"low digits of {name}", partial(_find_residues, compute, grid, steps))


def _measure_from(compute: Callable[[Outputs], Numbers], middle: float, outputs: Outputs) -> Numbers:
    return np.asarray(np.abs(compute(outputs) - middle))


def _summarize_own(summarize: Callable[[Outputs], Numbers], own: int, outputs: Outputs) -> Numbers:
    return summarize(outputs[:, :own])


def _take(place: int, outputs: Outputs) -> Numbers:
    return _clean(outputs[:, place])


def _subtract(one: int, other: int, outputs: Outputs) -> Numbers:
    return _clean(outputs[:, one] - outputs[:, other])


def _add(one: int, other: int, outputs: Outputs) -> Numbers:
    return _clean(outputs[:, one] + outputs[:, other])


def _clean(values: NDArray[Any]) -> Numbers:
    numbers = values.astype(np.float64)
    return np.where(np.isnan(numbers), MISSING, numbers)


def _hash_rows(outputs: Outputs) -> Numbers:
    """A number for each distinct row, by its bits: -0 is not 0. That two rows could share one does not matter."""
    kept = outputs if outputs.dtype.kind in "iu" else outputs.astype(np.float64)
    bits = np.ascontiguousarray(kept.astype(kept.dtype.newbyteorder("="))).astype(kept.dtype, copy=False)
    words = bits.astype(np.int64).view(np.uint64) if kept.dtype.itemsize != 8 else bits.view(np.uint64)
    keys = np.random.default_rng(1).integers(1, 2**63, words.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    mixed = (words ^ (words >> np.uint64(29))) * keys
    total = (mixed ^ (mixed >> np.uint64(32))).sum(axis=1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((total >> np.uint64(11)).astype(np.float64))


def _find_lowest_digit(values: Numbers) -> Numbers:
    """The place of the lowest binary digit.

    Floating-point noise on 0 has finer digits than on 1 (Mironov 2012): the digits tell the inputs apart.
    """
    mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    trailing = np.log2(np.maximum(whole & -whole, 1)).astype(np.int64)
    return np.where(whole == 0, -2000.0, exponent - 53.0 + trailing)


def _find_moduli(sides: Sequence[Numbers]) -> list[tuple[int, float]]:
    """Grids on which the values lie, and by how many steps to fold them: shifted grids and odd steps show so."""
    together = np.concatenate(sides)
    grid = _find_grid(together)
    if grid is None:
        return []
    own = _find_grid(sides[0] - sides[0][0])
    apart = round(own / grid) if own else 1
    return [(steps, grid) for steps in {2, 16, 10, apart} if 1 < steps <= 4096]


def _find_grid(values: Numbers) -> float | None:
    """The widest step of which all values are multiples, binary or of up to nine decimals; None without one."""
    kept = values[np.isfinite(values) & (np.abs(values) < MISSING)]
    largest = float(np.abs(kept).max(initial=0.0))
    if not len(kept) or largest == 0:
        return None
    for unit in (2.0**-20, 2.0**-40, *(10.0**-places for places in range(1, 10))):
        steps = kept / unit
        if largest / unit < 2**53 and np.abs(steps - np.round(steps)).max() < 1e-6 * max(1.0, largest):
            return float(np.gcd.reduce(np.round(steps).astype(np.int64))) * unit
    return None


def _find_residues(compute: Callable[[Outputs], Numbers], grid: float, steps: int, outputs: Outputs) -> Numbers:
    values = compute(outputs)
    return np.mod(np.round(np.where(np.isfinite(values), values, 0.0) / grid), steps)


def _count_distinct(outputs: Outputs) -> Numbers:
    return np.asarray(1.0 + (np.diff(np.sort(outputs, axis=1), axis=1) != 0).sum(axis=1))


def _count_descents(outputs: Outputs) -> Numbers:
    return np.asarray((outputs[:, 1:] < outputs[:, :-1]).sum(axis=1), np.float64)


def _summarize(reduce: Callable[..., Any], outputs: Outputs) -> Numbers:
    return _clean(reduce(outputs, axis=1))


SUMMARIES: tuple[tuple[str, Callable[[Outputs], Numbers]], ...] = (
    ("sum", partial(_summarize, np.sum)),
    ("least", partial(_summarize, np.min)),
    ("greatest", partial(_summarize, np.max)),
    ("spread", partial(_summarize, np.ptp)),
    ("length", lambda outputs: np.sqrt((_clean(outputs).clip(-1e100, 1e100) ** 2).sum(axis=1))),
    ("place of the greatest", partial(_summarize, np.argmax)),
    ("place of the least", partial(_summarize, np.argmin)),
    ("number of zeros", lambda outputs: np.asarray((outputs == 0).sum(axis=1), np.float64)),
    ("number of missing", lambda outputs: np.asarray((outputs != outputs).sum(axis=1), np.float64)),
    ("number of different", _count_distinct),
    ("number of descents", _count_descents),
)


def _choose_pairs(learning: Sequence[Outputs]) -> list[Side]:
    """Pairs of columns to compare: all of few columns, else neighbors and those that move together most."""
    columns = learning[0].shape[1]
    if columns <= PAIRED:
        return list(combinations(range(columns), 2))
    together = np.abs(correlate(learn_scale(learning)(learning[0])))
    rows, others = np.triu_indices(columns, 1)
    close = np.argsort(-together[rows, others], kind="stable")[: 2 * PAIRED]
    return list(dict.fromkeys([*pairwise(range(columns)), *((int(rows[i]), int(others[i])) for i in close)]))


def correlate(numbers: Numbers) -> Numbers:
    """The covariances of columns."""
    centered = numbers - numbers.mean(axis=0)
    return np.asarray(centered.T @ centered / len(numbers))


def learn_scale(learning: Sequence[Outputs]) -> Callable[[Outputs], Numbers]:
    """Columns on one scale, that of the middle half of the learning runs; far values are cut, missing ones are 0."""
    both = np.concatenate([side.astype(np.float64) for side in learning])
    known = np.where(np.isfinite(both), both.clip(-1e100, 1e100), np.nan)
    known[:, np.isnan(known).all(axis=0)] = 0.0
    low, middle, high = np.nanquantile(known, [0.25, 0.5, 0.75], axis=0)
    spread = np.where(high > low, high - low, np.maximum(np.nanstd(known, axis=0), 1e-300))

    def standardize(outputs: Outputs) -> Numbers:
        scaled = (outputs.astype(np.float64) - middle) / spread
        return np.asarray(np.nan_to_num(scaled, nan=0.0, posinf=50.0, neginf=-50.0).clip(-50, 50))

    return standardize


# Two entries at once: what neither of them tells alone, and no sum or difference.


def _list_joint_views(named: Sequence[View], learning: Sequence[Outputs]) -> Iterator[View]:
    """Pairs of numbers whose cells together differ most between the inputs, beyond what each of them tells."""
    cells = max(2, min(JOINED, MOST_JOINED // len(named)))
    edges = [_cut_in_few(np.concatenate([view.compute(side) for side in learning]), cells) for view in named]
    starts = np.cumsum([0, *(len(cut) + 1 for cut in edges)])
    moments = []
    for side in learning:
        held = np.zeros((len(side), starts[-1]), np.float32)
        for view, cut, start in zip(named, edges, starts[:-1], strict=True):
            held[np.arange(len(side)), start + find_cells(view, cut, side)] = 1
        means = held.mean(axis=0, dtype=np.float64)
        moments.append((held.T @ held / len(side) - np.outer(means, means), means))
    expected = np.outer(moments[0][1] + moments[1][1], moments[0][1] + moments[1][1]) / 4
    apart = (moments[0][0] - moments[1][0]) ** 2 / (expected + 1 / min(map(len, learning)))
    sums = np.add.reduceat(np.add.reduceat(apart, starts[:-1], axis=0), starts[:-1], axis=1)
    rows, others = np.triu_indices(len(named), 1)
    for place in np.argsort(-sums[rows, others], kind="stable")[: 2 * PAIRED]:
        one, other = int(rows[place]), int(others[place])
        pair = ((named[one], edges[one]), (named[other], edges[other]))
        yield View(f"{named[one].name} together with {named[other].name}", partial(_join_cells, pair))


def _cut_in_few(values: Numbers, cells: int) -> Numbers:
    """Edges of so many cells at most: each value its own where there are few, else quantiles."""
    distinct = np.unique(values[:: max(1, len(values) // 20_000)])
    if len(distinct) <= cells:
        return distinct[1:]
    return np.asarray(np.unique(np.quantile(values, np.linspace(0, 1, cells + 1)[1:-1], method="lower")))


def _join_cells(pair: tuple[tuple[View, Numbers], tuple[View, Numbers]], outputs: Outputs) -> Numbers:
    (one, edges), (other, cut) = pair
    return np.asarray(find_cells(one, edges, outputs) * JOINED + find_cells(other, cut, outputs), np.float64)


# Entries by their rank, and how many are of one size: a value may stand at any place.


def _list_views_of_any_place(own: int, learning: Sequence[Outputs]) -> Iterator[View]:
    for place in np.unique(np.linspace(1, own - 2, RANKED).astype(np.int64)).tolist():
        yield View(f"{place + 1}. least of the outputs", partial(_rank, own, place))
    entries = [np.sort(_clean(side[:, :own]).ravel()) for side in learning]
    together = np.sort(np.concatenate(entries))
    values = together[np.flatnonzero(np.append(True, together[1:] != together[:-1]))]
    few = len(values) <= GRAIN
    bins = [] if few else _choose_ranges(np.unique(np.append(_space(together, GRAIN), together[-1])), entries, learning)
    for low, high in bins:
        yield View(f"number of outputs from {low:g} to {high:g}", partial(_count_range, own, low, high))
    exact = _choose_ranges(np.append(values, np.inf), entries, learning) if len(values) < len(together) else []
    for value, _ in exact:
        yield View(f"number of outputs equal to {value:g}", partial(_count_equal, own, value))


def _space(ordered: Numbers, cells: int) -> Numbers:
    return ordered[np.linspace(0, len(ordered) - 1, cells + 1).astype(np.int64)[:-1]]


def _choose_ranges(
    edges: Numbers, entries: Sequence[Numbers], learning: Sequence[Outputs]
) -> list[tuple[float, float]]:
    """Ranges from one edge to the next that hold most differing numbers of entries, for each run."""
    counts = [np.diff(np.searchsorted(side, edges)) / len(runs) for side, runs in zip(entries, learning, strict=True)]
    noise = np.sqrt((counts[0] + counts[1]) + 1 / min(map(len, learning)))
    apart = np.abs(counts[0] - counts[1]) / noise
    chosen = np.argsort(-apart, kind="stable")[:SOUGHT]
    return [(float(edges[place]), float(edges[place + 1])) for place in sorted(chosen.tolist())]


def _rank(own: int, place: int, outputs: Outputs) -> Numbers:
    return np.asarray(np.partition(_clean(outputs[:, :own]), place, axis=1)[:, place])


def _count_range(own: int, low: float, high: float, outputs: Outputs) -> Numbers:
    held = _clean(outputs[:, :own])
    return np.asarray(((held >= low) & (held < high)).sum(axis=1), np.float64)


def _count_equal(own: int, value: float, outputs: Outputs) -> Numbers:
    return np.asarray((_clean(outputs[:, :own]) == value).sum(axis=1), np.float64)
