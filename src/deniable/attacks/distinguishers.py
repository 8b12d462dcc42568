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
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.views import (
    FEW_VALUES,
    GRAIN,
    PAIRED,
    Counts,
    Numbers,
    Outputs,
    View,
    correlate,
    count_cells,
    cut_coarsely,
    find_cells,
    learn_scale,
    list_views,
    name_columns,
)

CELLS = 64
"""A view of many values is cut at so many quantiles, besides its tails and its commonest values."""
MOST_TAUGHT = 20_000
"""Trees and nearest outputs learn from so many runs at most."""
DEEP, ROUNDS, RATE = 3, 12, 0.3
NEAREST, REFERENCES = 15, 256
DIRECTIONS = 4
"""Directions in which the variances differ most are looked at one by one."""
SURE = 3.5
"""Standard deviations by which rough bounds are kept apart; they choose, and prove nothing."""


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

    def happened(self, outputs: Outputs) -> NDArray[np.bool_]:
        """In which outputs the event happened."""
        return np.asarray(self.rank_outputs(outputs) >= self.least)


@dataclass(frozen=True, slots=True)
class Goal:
    """What an event is to be good for: a claim (epsilon, delta) and the number of runs that will test it."""

    epsilon: float
    delta: float
    tested: int


def measure_distance(event: Event, first: Outputs, second: Outputs, goal: Goal) -> float:
    """How far an event stands from the claim on runs that it was not learned from, in standard deviations."""
    sides = (first, second)
    shares = [np.array([event.happened(sides[side]).mean()]) for side in (event.likelier, 1 - event.likelier)]
    return float(_promise(shares[0], shares[1], min(len(first), len(second)), goal)[0][0])


@dataclass(frozen=True, slots=True)
class _Lesson:
    """Teaching runs: those that scores and orders are learned from, and those that choose among them; two inputs."""

    learning: tuple[Outputs, Outputs]
    choosing: tuple[Outputs, Outputs]
    goal: Goal


def learn_events(
    first: Outputs, second: Outputs, goal: Goal, names: Sequence[str] = (), inside: int = 0
) -> tuple[Event, Event, Event]:
    """The events that look best against the claim, for a bound on epsilon, and for a bound on mu.

    The last `inside` columns count what is inside others: they are looked at one by one and in scores.
    """
    halves = [np.array_split(side, 2) for side in (first, second)]
    told = tuple(names) or name_columns(first.shape[1])
    lesson = _Lesson((halves[0][0], halves[1][0]), (halves[0][1], halves[1][1]), goal)
    best: list[Event | None] = [None, None, None]
    strengths: list[tuple[float, View]] = []
    views = list(list_views(lesson.learning, told, first.shape[1] - inside))
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


# Cells of a view, and the events that they make.


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


def _find_events(view: View, lesson: _Lesson) -> tuple[list[Event], float]:
    """The best events of a view that was not learned, and how much its cells differ between the inputs."""
    edges = _cut(view, np.concatenate([view.compute(side) for side in lesson.learning]))
    learned, chosen = (count_cells(view, edges, part) for part in (lesson.learning, lesson.choosing))
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
    counted = count_cells(view, edges, lesson.choosing)
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


Scale = Callable[[Outputs], Numbers]


def _learn_views(lesson: _Lesson, strengths: Sequence[tuple[float, View]]) -> Iterator[View]:
    """Scores that join many numbers: linear, by cells, by trees, by the nearest outputs."""
    scale = learn_scale(lesson.learning)
    numbers = [scale(side) for side in lesson.learning]
    columns = numbers[0].shape[1]
    if columns > 1:
        yield View("linear score", _learn_linear(scale, numbers, whole=False))
        yield View("linear score with covariance", _learn_linear(scale, numbers, whole=True))
        yield from _learn_covariances(scale, numbers)
        yield View("score by the nearest outputs", _learn_nearest(scale, numbers))
    chosen = [view for _, view in sorted(strengths, key=lambda pair: -pair[0]) if not view.exact][: 2 * PAIRED]
    if len(strengths) > 2:
        yield View("score by cells", _learn_cells(lesson, [view for _, view in strengths if not view.exact]))
        yield View("score by trees", _learn_trees(lesson, chosen))


def _learn_linear(scale: Scale, numbers: Sequence[Numbers], *, whole: bool) -> Callable[[Outputs], Numbers]:
    """Fisher's discriminant, with the variances alone or with all covariances (which finds noise that is shared)."""
    apart = numbers[1].mean(axis=0) - numbers[0].mean(axis=0)
    covariance = (correlate(numbers[0]) + correlate(numbers[1])) / 2
    spread = np.diag(covariance) + 1e-12
    weights = np.linalg.solve(covariance + np.diag(1e-9 * spread), apart) if whole else apart / spread
    return lambda outputs: np.asarray(scale(outputs) @ weights)


def _learn_covariances(scale: Scale, numbers: Sequence[Numbers]) -> Iterator[View]:
    """Directions in which one input varies more than the other, and what all of them tell as if numbers were normal.

    On the scale on which the mean of both covariances is 1, they are 1 - half and 1 + half in each direction.
    """
    first, second = (correlate(side) for side in numbers)
    mean = (first + second) / 2
    values, basis = np.linalg.eigh(mean + np.diag(1e-9 * np.diag(mean) + 1e-12))
    whiten = basis / np.sqrt(np.maximum(values, 1e-12))
    halves, turned = np.linalg.eigh(whiten.T @ (second - first) @ whiten / 2)
    halves, weights = halves.clip(-0.999, 0.999), whiten @ turned
    middle = np.concatenate(numbers).mean(axis=0)

    def project(chosen: Counts, factors: Numbers, outputs: Outputs) -> Numbers:
        along = (scale(outputs) - middle) @ weights[:, chosen]
        return np.asarray((along**2) @ factors)

    order = np.argsort(-np.abs(halves), kind="stable")
    for place in order[:DIRECTIONS]:
        yield View("distance in a learned direction", partial(project, np.array([place]), np.ones(1)))
    for chosen in (order, order[: DIRECTIONS * 2]) if len(order) > DIRECTIONS * 2 else (order,):
        factors = 1 / (1 - halves[chosen]) - 1 / (1 + halves[chosen])
        yield View("quadratic score", partial(project, chosen, factors))


def _learn_nearest(scale: Scale, numbers: Sequence[Numbers]) -> Callable[[Outputs], Numbers]:
    """The share of the nearest reference outputs that came from the second input."""
    points = np.concatenate([side[:REFERENCES] for side in numbers])
    second = np.arange(len(points)) >= min(REFERENCES, len(numbers[0]))
    near = min(NEAREST, len(points) // 4)

    def score(outputs: Outputs) -> Numbers:
        found = []
        for start in range(0, len(outputs), 4096):
            part = scale(outputs[start : start + 4096])
            apart = (points**2).sum(axis=1) - 2 * part @ points.T
            found.append(second[np.argpartition(apart, near, axis=1)[:, :near]].mean(axis=1))
        return np.concatenate(found)

    return score


def _learn_cells(lesson: _Lesson, views: Sequence[View]) -> Callable[[Outputs], Numbers]:
    """The sum over views of what each cell tells, as if they were independent (naive Bayes)."""
    taught = []
    for view in views:
        edges, counted = cut_coarsely(view, lesson.learning)
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


Tree = tuple[NDArray[np.int64], NDArray[np.int64], Numbers]
"""The view and the cell at which each knot of a full binary tree divides, and the value of each leaf."""


def _learn_trees(lesson: _Lesson, views: Sequence[View]) -> Callable[[Outputs], Numbers]:
    """Boosted trees over the cells of views: each divides where the last ones erred most."""
    sides = [side[: MOST_TAUGHT // 2] for side in lesson.learning]
    edges = [cut_coarsely(view, sides)[0] for view in views]

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
