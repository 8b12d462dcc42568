"""Estimates: from noisy marginals to consistent ones, columns first, then pairs that agree, then larger cliques.

Everything that speaks of a column, a pair or more is joined first, exactly and without bias (`residuals`); then counts
become what counts are: not negative, adding up, and agreeing with one another. All of it is post-processing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

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
