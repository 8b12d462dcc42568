"""Distinguishers: events by which outputs of two inputs are told apart, learned from some runs to be tested on others.

An output is a row of numbers. A *view* is one number of it: an entry, a difference of two, a low digit, a summary of
the row, or a score that was learned. A view is cut into cells, and an event is a set of cells: a tail, or those that
are likelier under one input. Whatever is learned here is learned from the teaching runs alone, so that the runs that
test an event afterwards are new to it and its bounds are exact, however many events were tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Outputs = NDArray[Any]
Numbers = NDArray[np.float64]
Counts = NDArray[np.int64]
Side = tuple[int, int]

CELLS = 64
"""A view of many values is cut at so many quantiles, besides its tails and its commonest values."""
FEW_VALUES = 256
"""A view of so few values has a cell for each."""
MISSING = 1e300
"""What a missing number is taken as: a value of its own, above all others."""
PAIRED = 12
"""Of so many columns all pairs are compared; of more, neighbors and those that move together."""
FEW_COLUMNS = 4
"""Of so few columns the low digits of differences are looked at too."""
MOST_TAUGHT = 20_000
"""Trees and nearest outputs learn from so many runs at most."""
DEEP, ROUNDS, RATE, GRAIN = 3, 12, 0.3, 32
NEAREST, REFERENCES = 15, 256
SURE = 3.5
"""Standard deviations by which rough bounds are kept apart; they choose, and prove nothing."""


@dataclass(frozen=True, slots=True)
class View:
    """One number of each output, in words; `exact` compares values instead of ordering them."""

    name: str
    compute: Callable[[Outputs], Numbers]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """Outputs whose cell has a rank of `least` or more; likelier under input `likelier` (0 or 1) where it was learned.

    `promise` is how good it looked there for each goal: against the claim, for epsilon, for mu.
    """

    view: View
    edges: Numbers
    ranks: Numbers
    least: float
    likelier: int
    promise: tuple[float, float, float]

    def rank_outputs(self, outputs: Outputs) -> Numbers:
        """How strongly each output speaks for the input under which the event is likelier."""
        return np.asarray(self.ranks[find_cells(self.view, self.edges, outputs)])

    def count(self, outputs: Outputs) -> int:
        """In how many outputs the event happened."""
        return int((self.rank_outputs(outputs) >= self.least).sum())


@dataclass(frozen=True, slots=True)
class Goal:
    """What an event is to be good for: a claim (epsilon, delta) and the number of runs that will test it."""

    epsilon: float
    delta: float
    tested: int


def measure_distance(event: Event, first: Outputs, second: Outputs, goal: Goal) -> float:
    """How far an event stands from the claim on runs that it was not learned from, in standard deviations."""
    sides = (first, second)
    shares = [np.array([event.count(sides[side]) / len(sides[side])]) for side in (event.likelier, 1 - event.likelier)]
    return float(_promise(shares[0], shares[1], min(len(first), len(second)), goal)[0][0])


@dataclass(frozen=True, slots=True)
class _Lesson:
    """Teaching runs: those that scores and orders are learned from, and those that choose among them; two inputs."""

    learning: tuple[Outputs, Outputs]
    choosing: tuple[Outputs, Outputs]
    goal: Goal
    names: tuple[str, ...]


def learn_events(
    first: Outputs, second: Outputs, goal: Goal, names: Sequence[str] = (), inside: int = 0
) -> tuple[Event, Event, Event]:
    """The events that look best against the claim, for a bound on epsilon, and for a bound on mu.

    The last `inside` columns count what is inside others: they are looked at one by one and in scores.
    """
    halves = [np.array_split(side, 2) for side in (first, second)]
    told = tuple(names) or _name_columns(first.shape[1])
    lesson = _Lesson((halves[0][0], halves[1][0]), (halves[0][1], halves[1][1]), goal, told)
    best: list[Event | None] = [None, None, None]
    strengths: list[tuple[float, View]] = []
    views = list(_list_views(lesson, first.shape[1] - inside))
    for view in views:
        found, strength = _find_events(view, lesson)
        strengths.append((strength, view))
        _keep_best(best, found)
    for view in _learn_views(lesson, strengths):
        _keep_best(best, _find_learned_events(view, lesson))
    assert best[0] is not None
    assert best[1] is not None
    assert best[2] is not None
    return best[0], best[1], best[2]


def _keep_best(best: list[Event | None], found: Sequence[Event]) -> None:
    for event in found:
        for place, kept in enumerate(best):
            if kept is None or event.promise[place] > kept.promise[place]:
                best[place] = event


def _name_columns(columns: int) -> tuple[str, ...]:
    return ("output",) if columns == 1 else tuple(f"output {place + 1}" for place in range(columns))


# Views of an output, which nothing was learned for but where grids lie.


def _list_views(lesson: _Lesson, own: int) -> Iterator[View]:
    learning, names = lesson.learning, lesson.names
    yield View("whole output", _hash_rows, exact=True)
    for place, name in enumerate(names):
        yield from _list_number_views(name, partial(_take, place), learning)
    if own == 1:
        return
    for word, summarize in SUMMARIES:
        yield View(f"{word} of the outputs", partial(_summarize_own, summarize, own))
    for one, other in _choose_pairs([side[:, :own] for side in learning]):
        pair = f"{names[one]} and {names[other]}"
        difference = View(f"difference of {pair}", partial(_subtract, one, other))
        few = own <= FEW_COLUMNS
        yield from _list_number_views(difference.name, difference.compute, learning) if few else (difference,)
        yield View(f"sum of {pair}", partial(_add, one, other))


def _list_number_views(name: str, compute: Callable[[Outputs], Numbers], learning: Sequence[Outputs]) -> Iterator[View]:
    """A number itself; where it has many values, also which they are, and its low digits."""
    yield View(name, compute)
    sides = [compute(side) for side in learning]
    together = np.concatenate(sides)
    distinct = len(np.unique(together))
    if distinct <= FEW_VALUES:
        return
    if distinct < len(together) * 0.95:
        yield View(f"exact {name}", compute, exact=True)
    yield View(f"lowest binary digit of {name}", lambda outputs: _find_lowest_digit(compute(outputs)))
    for steps, grid in _find_moduli(sides):
        yield View(f"low digits of {name}", partial(_find_residues, compute, grid, steps))


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
    together = np.abs(_correlate(_standardize(learning[0], learning)))
    rows, others = np.triu_indices(columns, 1)
    close = np.argsort(-together[rows, others], kind="stable")[: 2 * PAIRED]
    return list(dict.fromkeys([*pairwise(range(columns)), *((int(rows[i]), int(others[i])) for i in close)]))


def _correlate(numbers: Numbers) -> Numbers:
    centered = numbers - numbers.mean(axis=0)
    return np.asarray(centered.T @ centered / len(numbers))


def _standardize(outputs: Outputs, learning: Sequence[Outputs]) -> Numbers:
    """Columns on one scale, that of the middle half of the learning runs; far values are cut, missing ones are 0."""
    both = np.concatenate([side.astype(np.float64) for side in learning])
    known = np.where(np.isfinite(both), both, np.nan)
    known[:, np.isnan(known).all(axis=0)] = 0.0
    low, middle, high = np.nanquantile(known, [0.25, 0.5, 0.75], axis=0)
    spread = np.where(high > low, high - low, np.maximum(np.nanstd(known, axis=0), 1e-300))
    scaled = (outputs.astype(np.float64) - middle) / spread
    return np.asarray(np.nan_to_num(scaled, nan=0.0, posinf=50.0, neginf=-50.0).clip(-50, 50))


# Cells of a view, and the events that they make.


def find_cells(view: View, edges: Numbers, outputs: Outputs) -> Counts:
    """The cell of each output: between edges, or of one exact value, where 0 stands for all others."""
    values = view.compute(outputs)
    found = np.searchsorted(edges, values, side="right")
    if view.exact:
        found = np.where((found > 0) & (edges[np.maximum(found, 1) - 1] == values), found, 0)
    return np.asarray(found, np.int64)


def _cut(view: View, values: Numbers) -> Numbers:
    distinct, counts = np.unique(values, return_counts=True)
    if view.exact:
        return distinct[counts > 1] if (counts > 1).any() else distinct[:1]
    if len(distinct) <= FEW_VALUES:
        return distinct
    common = distinct[np.argsort(-counts, kind="stable")[:CELLS]]
    common = common[np.isin(common, distinct[counts >= 4])]
    return np.unique(np.concatenate([_find_quantiles(values), common, np.nextafter(common, np.inf)]))


def _find_quantiles(values: Numbers) -> Numbers:
    """Values at even ranks, and at ranks that double from either end: rare events are in the tails."""
    ordered, size = np.sort(values), len(values)
    even = np.linspace(0, size - 1, CELLS + 1)[1:-1].astype(np.int64)
    doubled = 2 ** np.arange(0, int(math.log2(max(2, size // 8))) + 1)
    places = np.concatenate([even, doubled - 1, size - doubled])
    return np.asarray(np.unique(ordered[places.clip(0, size - 1)]))


def _count_cells(view: View, edges: Numbers, sides: Sequence[Outputs]) -> Counts:
    return np.array([np.bincount(find_cells(view, edges, side), minlength=len(edges) + 1) for side in sides])


def _find_events(view: View, lesson: _Lesson) -> tuple[list[Event], float]:
    """The best events of a view that was not learned, and how much its cells differ between the inputs."""
    edges = _cut(view, np.concatenate([view.compute(side) for side in lesson.learning]))
    learned, chosen = (_count_cells(view, edges, part) for part in (lesson.learning, lesson.choosing))
    found = []
    if not view.exact:
        order = np.arange(len(edges) + 1, dtype=np.float64)
        both = learned + chosen  # a tail has nothing that was learned but the edges, so all teaching runs choose it
        found += [event for ranks in (order, -order) for event in _best_events(view, edges, ranks, both, lesson.goal)]
    for way in (0, 1):
        for ranks in _rank_cells(learned[way], learned[1 - way]):
            found += _best_events(view, edges, ranks, chosen, lesson.goal, (way,))
    shares = learned / learned.sum(axis=1, keepdims=True)
    expected = np.maximum(shares.sum(axis=0), 1e-300)
    return found, float(((shares[0] - shares[1]) ** 2 / expected).sum())


def _rank_cells(likely: Counts, unlikely: Counts) -> list[Numbers]:
    """Cells by how much likelier they are: as it was counted, and as it surely is (few counts prove little).

    Cells of equal ratio stand in the order of how often they were seen, so that no two ranks are the same.
    """
    ratio = np.log((likely + 0.5) / (unlikely + 0.5) * unlikely.sum() / likely.sum())
    noise = np.sqrt(1 / (likely + 0.5) + 1 / (unlikely + 0.5))
    return [np.argsort(np.lexsort((likely, key))).astype(np.float64) for key in (ratio, ratio - 1.5 * noise)]


def _find_learned_events(view: View, lesson: _Lesson) -> list[Event]:
    """Tails of a learned score, cut and chosen on the runs that it was not learned from."""
    edges = _find_quantiles(np.concatenate([view.compute(side) for side in lesson.choosing]))
    counted = _count_cells(view, edges, lesson.choosing)
    order = np.arange(len(edges) + 1, dtype=np.float64)
    ways = ((order, (1,)), (-order, (0,)))
    return [event for ranks, way in ways for event in _best_events(view, edges, ranks, counted, lesson.goal, way)]


def _best_events(
    view: View, edges: Numbers, ranks: Numbers, counted: Counts, goal: Goal, ways: Sequence[int] = (0, 1)
) -> list[Event]:
    """The best upper tail of the ranks for each goal, taken as evidence for either input."""
    order = np.argsort(-ranks, kind="stable")
    totals = counted.sum(axis=1)
    tails = counted[:, order].cumsum(axis=1)[:, :-1]
    if not tails.size:
        return [Event(view, edges, ranks, math.inf, 1, (0.0, 0.0, 0.0))]
    found = []
    for way in ways:
        promised = _promise(tails[way] / totals[way], tails[1 - way] / totals[1 - way], totals.min(), goal)
        for place in {int(np.argmax(part)) for part in promised}:
            told = tuple(float(part[place]) for part in promised)
            found.append(Event(view, edges, ranks, float(ranks[order[place]]), way, told))  # type: ignore[arg-type]
    return found


GRID = np.linspace(-8.5, 8.5, 3401)
NORMAL = np.array([NormalDist().cdf(x) for x in GRID])


def _promise(likely: Numbers, unlikely: Numbers, runs: int, goal: Goal) -> tuple[Numbers, Numbers, Numbers]:
    """How far events stand from the claim, in deviations; and rough lower bounds on epsilon and on mu."""
    power = math.exp(min(goal.epsilon, 300.0))
    wide, narrow = (np.sqrt((share * (1 - share) + 1 / runs) / runs) for share in (unlikely, likely))
    against = (likely - goal.delta - power * unlikely) / (narrow + power * wide)
    wide, narrow = (np.sqrt((share * (1 - share) + 1 / runs) / goal.tested) for share in (unlikely, likely))
    low = (likely - SURE * narrow).clip(0.0, 1.0)
    high = (unlikely + SURE * wide + SURE**2 / goal.tested).clip(1e-300, 1.0)
    ratio = np.log(np.maximum(low - goal.delta, 1e-300) / high)
    return against, ratio, np.interp(low, NORMAL, GRID) - np.interp(high, NORMAL, GRID)


# Views that are learned: scores over all columns.


def _learn_views(lesson: _Lesson, strengths: Sequence[tuple[float, View]]) -> Iterator[View]:
    """Scores that join many numbers: linear, by cells, by trees, by the nearest outputs."""
    numbers = [_standardize(side, lesson.learning) for side in lesson.learning]
    columns = numbers[0].shape[1]
    if columns > 1:
        yield View("linear score", _learn_linear(lesson, numbers, whole=False))
        yield View("linear score with covariance", _learn_linear(lesson, numbers, whole=True))
        yield View("score by the nearest outputs", _learn_nearest(lesson, numbers))
    chosen = [view for _, view in sorted(strengths, key=lambda pair: -pair[0]) if not view.exact][: 2 * PAIRED]
    if len(strengths) > 2:
        yield View("score by cells", _learn_cells(lesson, [view for _, view in strengths if not view.exact]))
        yield View("score by trees", _learn_trees(lesson, chosen))


def _learn_linear(lesson: _Lesson, numbers: Sequence[Numbers], *, whole: bool) -> Callable[[Outputs], Numbers]:
    """Fisher's discriminant, with the variances alone or with all covariances (which finds noise that is shared)."""
    apart = numbers[1].mean(axis=0) - numbers[0].mean(axis=0)
    covariance = (_correlate(numbers[0]) + _correlate(numbers[1])) / 2
    scale = np.diag(covariance) + 1e-12
    weights = np.linalg.solve(covariance + np.diag(1e-9 * scale), apart) if whole else apart / scale
    learning = lesson.learning
    return lambda outputs: np.asarray(_standardize(outputs, learning) @ weights)


def _learn_nearest(lesson: _Lesson, numbers: Sequence[Numbers]) -> Callable[[Outputs], Numbers]:
    """The share of the nearest reference outputs that came from the second input."""
    points = np.concatenate([side[:REFERENCES] for side in numbers])
    second = np.arange(len(points)) >= min(REFERENCES, len(numbers[0]))
    learning, near = lesson.learning, min(NEAREST, len(points) // 4)

    def score(outputs: Outputs) -> Numbers:
        found = []
        for start in range(0, len(outputs), 4096):
            part = _standardize(outputs[start : start + 4096], learning)
            apart = (points**2).sum(axis=1) - 2 * part @ points.T
            found.append(second[np.argpartition(apart, near, axis=1)[:, :near]].mean(axis=1))
        return np.concatenate(found)

    return score


def _learn_cells(lesson: _Lesson, views: Sequence[View]) -> Callable[[Outputs], Numbers]:
    """The sum over views of what each cell tells, as if they were independent (naive Bayes)."""
    taught = []
    for view in views:
        edges, counted = _cut_coarsely(view, lesson.learning)
        weights = np.log((counted[1] + 2) / (counted[1].sum() + 2)) - np.log((counted[0] + 2) / (counted[0].sum() + 2))
        noise = np.sqrt(1 / (counted[0] + 2) + 1 / (counted[1] + 2))
        taught.append((view, edges, np.sign(weights) * np.maximum(np.abs(weights) - noise, 0.0)))

    def score(outputs: Outputs) -> Numbers:
        total = np.zeros(len(outputs))
        for view, edges, weights in taught:
            if weights.any():
                total += weights[find_cells(view, edges, outputs)]
        return total

    return score


def _cut_coarsely(view: View, sides: Sequence[Outputs]) -> tuple[Numbers, Counts]:
    values = np.concatenate([view.compute(side) for side in sides])
    edges = np.unique(np.quantile(values, np.linspace(0, 1, GRAIN + 1)[1:-1], method="lower"))
    return edges, _count_cells(view, edges, sides)


Tree = tuple[NDArray[np.int64], NDArray[np.int64], Numbers]
"""The view and the cell at which each knot of a full binary tree divides, and the value of each leaf."""


def _learn_trees(lesson: _Lesson, views: Sequence[View]) -> Callable[[Outputs], Numbers]:
    """Boosted trees over the cells of views: each divides where the last ones erred most."""
    sides = [side[: MOST_TAUGHT // 2] for side in lesson.learning]
    edges = [_cut_coarsely(view, sides)[0] for view in views]

    def encode(outputs: Outputs) -> Counts:
        return np.array([find_cells(view, cut, outputs) for view, cut in zip(views, edges, strict=True)])

    codes = np.concatenate([encode(side) for side in sides], axis=1)
    truth = np.repeat([0.0, 1.0], [len(side) for side in sides])
    total, trees = np.zeros(len(truth)), []
    for _ in range(ROUNDS):
        trees.append(_grow_tree(codes, truth - 1 / (1 + np.exp(-total))))
        total += RATE * _apply_tree(trees[-1], codes)

    def score(outputs: Outputs) -> Numbers:
        given = encode(outputs)
        return np.asarray(sum(_apply_tree(tree, given) for tree in trees), np.float64)

    return score


def _grow_tree(codes: Counts, errors: Numbers) -> Tree:
    chosen, cuts = np.zeros(2**DEEP - 1, np.int64), np.zeros(2**DEEP - 1, np.int64)
    knot = np.zeros(len(errors), np.int64)
    for level in range(DEEP):
        knots, first = 2**level, 2**level - 1
        chosen[first : first + knots], cuts[first : first + knots] = _divide(codes, errors, knot, knots)
        knot = 2 * knot + (codes[chosen[first + knot], np.arange(len(knot))] > cuts[first + knot])
    weight = np.bincount(knot, minlength=2**DEEP)
    return chosen, cuts, np.bincount(knot, errors, minlength=2**DEEP) / (weight + 5) * 4


def _divide(codes: Counts, errors: Numbers, knot: Counts, knots: int) -> tuple[Counts, Counts]:
    """For each knot the view and the cell that part its errors best."""
    width = GRAIN + 1
    gains = []
    for row in codes:
        at = knot * width + row
        sums, counts = (
            np.bincount(at, weights, minlength=knots * width).reshape(knots, width).cumsum(axis=1)
            for weights in (errors, None)
        )
        rest, left = sums[:, -1:] - sums, counts[:, -1:] - counts
        gains.append(sums**2 / (counts + 5) + rest**2 / (left + 5))
    flat = np.array(gains).transpose(1, 0, 2).reshape(knots, -1).argmax(axis=1)
    return flat // width, flat % width


def _apply_tree(tree: Tree, codes: Counts) -> Numbers:
    chosen, cuts, leaves = tree
    knot = np.zeros(codes.shape[1], np.int64)
    for level in range(DEEP):
        at = 2**level - 1 + knot
        knot = 2 * knot + (codes[chosen[at], np.arange(len(knot))] > cuts[at])
    return np.asarray(leaves[knot])
