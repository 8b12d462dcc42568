"""Estimates: from noisy marginals to consistent ones, columns first, then pairs that agree, then larger cliques.

Everything that speaks of a column, a pair or more is joined first, exactly and without bias (`residuals`); then counts
become what counts are: not negative, adding up, and agreeing with one another. All of it is post-processing. So are the
trees that are found here: of tables (`ImpliedTables`), and of scores (`fit_score_tree`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.synth.bins import CollapsedDomain, spread_groups, sum_by_group
from deniable.synth.domain import Clique
from deniable.synth.estimate.residuals import (
    ReconstructedMarginal,
    Residuals,
    compute_collapsed_residuals,
    fit_margins,
    project_to_simplex,
    reconstruct,
    shift_to_margins,
)
from deniable.synth.marginal import Floats, Maps, Marginal

REFINEMENTS = 15
ROUNDS = 5
"""Of sharing out what a larger clique's pairs miss: their margins overlap, and five leave little."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Consistent estimates over the collapsed domain: a total, each column, and each measured clique in its order."""

    total: float
    columns: tuple[Floats, ...]
    tables: dict[Clique, Floats]
    noise: float = 0.0
    """The expected total variation that noise alone gives a measured clique, on average."""


def estimate_total(one_way: list[Marginal]) -> float:
    """The number of records: sums of the one-way marginals, joined by inverse variance."""
    weights = np.array([1.0 / (marginal.variance * marginal.counts.size) for marginal in one_way])
    sums = np.array([marginal.counts.sum() for marginal in one_way])
    return max(1.0, float((weights * sums).sum() / weights.sum()))


def estimate_marginals(collapsed: CollapsedDomain, one_way: list[Marginal], measured: list[Marginal]) -> Estimates:
    """Estimates from one-way marginals (old codes) and further marginals (new codes)."""
    held = compute_collapsed_residuals(collapsed, one_way, measured)
    total = max(1.0, held.total)
    columns = [project_to_simplex(reconstruct(held, (place,)).counts, total) for place in range(len(one_way))]
    full = [marginal for marginal in measured if not marginal.maps]
    pairs = {pair: _estimate_pair(reconstruct(held, pair), columns, total) for pair in _pairs_within(full)}
    implied = ImpliedTables(Estimates(total, tuple(columns), pairs))
    tables = {marginal.clique: _estimate_clique(marginal, held, columns, pairs, implied) for marginal in measured}
    return Estimates(total, tuple(columns), tables, noise_of(measured, total))


def noise_of(measured: list[Marginal], total: float) -> float:
    """Half the expected L1 norm of the noise, as a share of the records: sqrt(2 v / pi) on each cell."""
    each = [math.sqrt(2 * m.variance / math.pi) * m.counts.size / (2 * total) for m in measured]
    return sum(each) / len(each) if each else 0.0


def _pairs_within(measured: list[Marginal]) -> set[Clique]:
    """Every pair that some clique holds."""
    return {pair for marginal in measured for pair in itertools.combinations(marginal.clique, 2)}


def _estimate_pair(told: ReconstructedMarginal, columns: list[Floats], total: float) -> Floats:
    """What is known of a pair, moved to agree with its columns: in L2, then without negatives, then proportionally."""
    margins: dict[Clique, Floats] = {(axis,): columns[place] for axis, place in enumerate(told.clique)}
    return fit_margins(project_to_simplex(shift_to_margins(told.counts, margins), total), margins)


def _estimate_clique(
    marginal: Marginal, held: Residuals, columns: list[Floats], pairs: dict[Clique, Floats], implied: ImpliedTables
) -> Floats:
    """A clique's counts moved to agree with what is known of its pairs, and of columns that no such pair holds.

    Within groups it is divided as the tree of pairs implies.
    """
    clique, total = marginal.clique, max(1.0, held.total)
    if clique in pairs:
        return pairs[clique]
    margins = margins_within(clique, columns, pairs)
    if not marginal.maps:
        return fit_margins(
            project_to_simplex(shift_to_margins(reconstruct(held, clique).counts, margins, ROUNDS), total), margins
        )
    by_group = {
        axes: sum_by_group(margin, tuple(marginal.maps[axis] for axis in axes)) for axes, margin in margins.items()
    }
    groups = fit_margins(project_to_simplex(shift_to_margins(marginal.counts, by_group, ROUNDS), total), by_group)
    return _refine_groups(groups, marginal.maps, implied.table(clique), margins)


def margins_within(clique: Clique, columns: Sequence[Floats], pairs: Mapping[Clique, Floats]) -> dict[Clique, Floats]:
    """What a clique's table must agree with, by axes: its known pairs, and the columns that none of them holds."""
    axes = range(len(clique))
    found: dict[Clique, Floats] = {
        (a, b): pairs[clique[a], clique[b]]
        for a, b in itertools.combinations(axes, 2)
        if (clique[a], clique[b]) in pairs
    }
    held = {axis for pair in found for axis in pair}
    return found | {(axis,): columns[clique[axis]] for axis in axes if axis not in held}


def dependence_of(estimates: Estimates, clique: Clique) -> float:
    """How far a clique's estimate is from independent columns, in records."""
    expected: Floats = estimates.columns[clique[0]]
    for place in clique[1:]:
        expected = np.multiply.outer(expected, estimates.columns[place]) / estimates.total
    return float(np.abs(estimates.tables[clique] - expected).sum()) + 1e-9


def find_spanning_tree(columns: int, pairs: Sequence[Clique], scores: Floats) -> tuple[Clique, ...]:
    """The spanning forest of the largest total score (Kruskal); pairs without a positive score are left out."""
    parent = list(range(columns))

    def find_root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    tree = []
    for i in np.argsort(-scores, kind="stable"):
        a, b = pairs[i]
        if scores[i] > 0 and find_root(a) != find_root(b):
            parent[find_root(a)] = find_root(b)
            tree.append(pairs[i])
    return tuple(tree)


class ImpliedTables:
    """What measured pairs imply of any columns: along the strongest tree of them, with nothing else between columns.

    In a tree a column depends on all others through those beside it alone. Columns of different trees are independent.
    """

    def __init__(self, estimates: Estimates) -> None:
        self._total, self._columns = estimates.total, estimates.columns
        held = [clique for clique in estimates.tables if len(clique) == 2]
        strengths = np.array([dependence_of(estimates, pair) for pair in held])
        beside: dict[int, list[int]] = {place: [] for place in range(len(self._columns))}
        for a, b in find_spanning_tree(len(self._columns), held, strengths):
            beside[a].append(b)
            beside[b].append(a)
        self._order: dict[int, int] = {}
        """Each column's place in an order in which the one above it comes first."""
        self._root: dict[int, int] = {}
        self._above: dict[int, tuple[int, Floats]] = {}
        """The column above, and for each of its values the shares of the column's own."""
        for root in beside:
            waiting = [root] if root not in self._root else []
            while waiting:
                here = waiting.pop()
                self._order[here], self._root[here] = len(self._order), root
                for below in (place for place in beside[here] if place not in self._root):
                    table = estimates.tables[here, below] if here < below else estimates.tables[below, here].T
                    self._above[below] = here, table / np.maximum(table.sum(axis=1, keepdims=True), 1e-300)
                    waiting.append(below)

    def table(self, clique: Clique, maps: Maps = ()) -> Floats:
        """The expected counts of a clique, by groups where maps are given."""
        groups = dict(zip(clique, maps, strict=True)) if maps else {}
        joint, axes = np.array(self._total), list[int]()
        for root in dict.fromkeys(self._root[place] for place in clique):
            own = [place for place in clique if self._root[place] == root]
            table, named = self._multiply_along(own, groups)
            joint, axes = np.multiply.outer(joint, table) / self._total, axes + named
        return joint.transpose([axes.index(place) for place in clique])

    def _multiply_along(self, members: list[int], groups: Mapping[int, tuple[int, ...]]) -> tuple[Floats, list[int]]:
        """The table of columns of one tree, and the order of its axes.

        From the lowest up, each column hands on what it and those below say given each value of the one above.
        """
        told = {place: (np.ones(self._columns[place].size), list[int]()) for place in members}
        while True:
            here = max(told, key=self._order.__getitem__)
            below, named = told.pop(here)
            above, given = self._above[here] if told else (-1, self._columns[here][np.newaxis, :])
            if here in members:
                below = given.reshape(*given.shape, *(1 for _ in named)) * below
                if here in groups:
                    below = sum_by_group(below, (tuple(range(given.shape[0])), groups[here]))
                named = [here, *named]
            else:
                below = np.tensordot(given, below, 1)
            if not told:
                return below[0], named
            beside, others = told.get(above, (np.ones(given.shape[0]), []))
            beside = beside.reshape(*beside.shape, *(1 for _ in named))
            told[above] = beside * below.reshape(below.shape[0], *(1 for _ in others), *below.shape[1:]), others + named


def _refine_groups(groups: Floats, maps: Maps, start: Floats, margins: dict[Clique, Floats]) -> Floats:
    """The most even full table that has the groups' counts and the margins: fitted to both in turns."""
    table = start
    for _ in range(REFINEMENTS):
        table = table * spread_groups(groups / np.maximum(sum_by_group(table, maps), 1e-300), maps)
        table = fit_margins(table, margins, rounds=2)
    return table


# The tree of pairs that says most of all scores, not of its own alone.
#
# Where many columns are scored with noise, the strongest pairs (Kruskal) are those that noise favors: a chain is cut
# into pieces that hang together by pairs two and three columns apart, and what a tree implies of every other pair is
# weak. But in a tree each score is a product along a way, so all scores tell where a column stands. Hence, of the
# pairs that noise cannot tell from the strongest between two parts, the one is taken with which the tree explains the
# scores best.
#
# The strength of a pair is its score over the root of the scores that its two columns would have with themselves. Two
# columns of two values have the size of their correlation as strength, and strengths multiply along a tree exactly;
# else about. Let m be those roots, I what the tree implies within each of two parts, and S the scores between them. A
# pair (a, b) of strength w implies w u v' of them, with u = m I(a) and v = m I(b): the squared differences are least
# for w = u'Sv / (|u|^2 |v|^2), and fall by (u'Sv)^2 / (|u|^2 |v|^2), for all pairs at once by two products of
# matrices. Pairs without a score count for nothing and are never taken.
#
# All of it is made of noisy scores and public numbers.

ALIKE = 2.0
"""Scores whose difference is so many of its deviations at most are not told apart."""
STRONGEST = 0.999
MOST_SWEEPS, MOST_WORK = 10, 1e10
"""How often all pairs are tried again, and about how many multiplications that may take: some seconds."""


@dataclass(frozen=True, slots=True)
class ScoreTree:
    """A spanning tree, and what is known of the scores of its pairs from all scores together."""

    pairs: tuple[Clique, ...]
    scores: tuple[float, ...]
    deviations: tuple[float, ...]


def fit_score_tree(pairs: Sequence[Clique], scores: Floats, spans: Floats, deviation: float) -> ScoreTree:
    """The tree for scores with equal noise; `spans` are the roots m of the columns."""
    size = spans.size
    table = np.full((size, size), np.nan)
    for (a, b), score in zip(pairs, scores, strict=True):
        table[a, b] = table[b, a] = score
    start = find_spanning_tree(size, pairs, scores)
    fit = _Fit(table, spans, deviation, list(start))
    work = 2.0 * len(start) * float(size) ** 3
    for _ in range(min(MOST_SWEEPS, int(MOST_WORK / max(work, 1.0)))):
        if not sum(fit.exchange(place) for place in range(len(start))):
            break
    return fit.tell()


class _Fit:
    """A tree with its strengths, and what it implies of all pairs."""

    def __init__(self, table: Floats, spans: Floats, deviation: float, pairs: list[Clique]) -> None:
        self._known, self._table = ~np.isnan(table), np.nan_to_num(table)
        self._spans, self._deviation, self._pairs = spans, deviation, pairs
        self._implied = np.eye(spans.size)
        joined: list[Clique] = []
        for a, b in pairs:
            one, other = (reach_columns(spans.size, joined, place) for place in (a, b))
            self._join(one, other, (a, b), min(max(table[a, b] / (spans[a] * spans[b]), 0.0), STRONGEST))
            joined.append((a, b))

    def exchange(self, place: int) -> bool:
        """Take one pair out and the best one in; whether it is another one."""
        old = self._pairs[place]
        one, other = self._part(place)
        fits, sizes = self._weigh(one, other)
        strengths = np.clip(fits / np.maximum(sizes, 1e-300), 0.0, STRONGEST)
        between = np.where(self._known, self._table, -np.inf)[np.ix_(one, other)]
        alike = between >= between.max() - ALIKE * math.sqrt(2) * self._deviation
        gains = np.where(alike, strengths * (2 * fits - strengths * sizes), -np.inf)
        i, j = np.unravel_index(int(np.argmax(gains)), gains.shape)
        a, b = int(one[i]), int(other[j])
        held, there = np.searchsorted(one, old[0]), np.searchsorted(other, old[1])
        if gains[i, j] <= gains[held, there] * (1 + 1e-9):
            i, j = held, there
        a, b = int(one[i]), int(other[j])
        self._pairs[place] = (min(a, b), max(a, b))
        self._join(one, other, (a, b), float(strengths[i, j]))
        return self._pairs[place] != old

    def tell(self) -> ScoreTree:
        """The tree, each pair's score from all that it joins, and the deviation of that."""
        scores, deviations = [], []
        for place, (a, b) in enumerate(self._pairs):
            one, other = self._part(place)
            scored, known = (held[np.ix_(one, other)] for held in (self._table, self._known.astype(np.float64)))
            u, v = self._implied[a, one] * self._spans[one], self._implied[b, other] * self._spans[other]
            fit, size = float(u @ scored @ v), float(u**2 @ known @ v**2)
            span = float(self._spans[a] * self._spans[b])
            scores.append(span * fit / size)
            deviations.append(span * self._deviation / math.sqrt(size))
        return ScoreTree(tuple(self._pairs), tuple(scores), tuple(deviations))

    def _part(self, place: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The columns on both sides of a pair, in order: those of its first column come first."""
        a, b = self._pairs[place]
        others = [pair for at, pair in enumerate(self._pairs) if at != place]
        return reach_columns(self._spans.size, others, a), reach_columns(self._spans.size, others, b)

    def _weigh(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """By pair between two parts: u'Sv, and |u|^2 |v|^2 as far as there are scores."""
        scores, known = (held[np.ix_(one, other)] for held in (self._table, self._known.astype(np.float64)))
        us, vs = (self._implied[np.ix_(part, part)] * self._spans[part] for part in (one, other))
        return us @ scores @ vs.T, us**2 @ known @ (vs**2).T

    def _join(self, one: NDArray[np.int64], other: NDArray[np.int64], pair: Clique, strength: float) -> None:
        implied = strength * np.outer(self._implied[one, pair[0]], self._implied[other, pair[1]])
        self._implied[np.ix_(one, other)] = implied
        self._implied[np.ix_(other, one)] = implied.T


def reach_columns(size: int, pairs: Sequence[Clique], start: int) -> NDArray[np.int64]:
    """The columns that hang together with one, in order."""
    beside: list[list[int]] = [[] for _ in range(size)]
    for a, b in pairs:
        beside[a].append(b)
        beside[b].append(a)
    found, waiting = {start}, [start]
    while waiting:
        fresh = [place for place in beside[waiting.pop()] if place not in found]
        found.update(fresh)
        waiting += fresh
    return np.array(sorted(found), dtype=np.int64)
