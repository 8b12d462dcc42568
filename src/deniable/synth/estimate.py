"""From noisy marginals to consistent ones, rising: columns, then pairs that agree with them, then larger cliques.

Everything that speaks of a column, or of a pair, is joined by inverse variance: a clique of three with variance v says
of its pairs what a pair with variance v times the third column's size would say.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deniable.synth.coarse import spread, summed
from deniable.synth.collapse import Collapsed
from deniable.synth.domain import Clique
from deniable.synth.marginal import Floats, Maps, Marginal, along
from deniable.synth.simplex import agreeing, project, shifted

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


def total_of(one_way: list[Marginal]) -> float:
    """The number of records: sums of the one-way marginals, joined by inverse variance."""
    weights = np.array([1.0 / (marginal.variance * marginal.counts.size) for marginal in one_way])
    sums = np.array([marginal.counts.sum() for marginal in one_way])
    return max(1.0, float((weights * sums).sum() / weights.sum()))


def estimate(collapsed: Collapsed, one_way: list[Marginal], measured: list[Marginal]) -> Estimates:
    """Estimates from one-way marginals (old codes) and further marginals (new codes)."""
    total = total_of(one_way)
    full = [marginal for marginal in measured if not marginal.maps]
    columns = [_column(place, collapsed, one_way, full, total) for place in range(len(one_way))]
    pairs = {pair: _pair(pair, full, columns, total) for pair in _pairs_within(full)}
    tables = {marginal.clique: _larger(marginal, columns, pairs, total) for marginal in measured}
    return Estimates(total, tuple(columns), tables, noise_of(measured, total))


def noise_of(measured: list[Marginal], total: float) -> float:
    """Half the expected L1 norm of the noise, as a share of the records: sqrt(2 v / pi) on each cell."""
    each = [math.sqrt(2 * m.variance / math.pi) * m.counts.size / (2 * total) for m in measured]
    return sum(each) / len(each) if each else 0.0


def _column(
    place: int, collapsed: Collapsed, one_way: list[Marginal], measured: list[Marginal], total: float
) -> Floats:
    """Everything that speaks of one column, weighted by how little noise it has."""
    weight = 1.0 / (one_way[place].variance * collapsed.sizes(place))
    numerator = collapsed.summed(place, one_way[place].counts) * weight
    for marginal in measured:
        if place in marginal.clique:
            axis = marginal.clique.index(place)
            summed = marginal.counts.size / marginal.counts.shape[axis]
            own = 1.0 / (marginal.variance * summed)
            numerator, weight = numerator + along(marginal.counts, (axis,)) * own, weight + own
    return project(numerator / weight, total)


def _pairs_within(measured: list[Marginal]) -> set[Clique]:
    """Every pair that some clique holds."""
    return {pair for marginal in measured for pair in itertools.combinations(marginal.clique, 2)}


def _pair(pair: Clique, measured: list[Marginal], columns: list[Floats], total: float) -> Floats:
    """What is known of a pair, moved to agree with its columns: in L2, then without negatives, then proportionally."""
    numerator, weight = np.zeros(()), 0.0
    for marginal in measured:
        if set(pair) <= set(marginal.clique):
            axes = tuple(marginal.clique.index(place) for place in pair)
            summed = along(marginal.counts, axes)
            own = summed.size / (marginal.variance * marginal.counts.size)
            numerator, weight = numerator + summed * own, weight + own
    margins: dict[Clique, Floats] = {(axis,): columns[place] for axis, place in enumerate(pair)}
    return agreeing(project(shifted(numerator / weight, margins), total), margins)


def _larger(marginal: Marginal, columns: list[Floats], pairs: dict[Clique, Floats], total: float) -> Floats:
    """A clique's counts moved to agree with what is known of its pairs, and of columns that no such pair holds."""
    clique = marginal.clique
    if clique in pairs:
        return pairs[clique]
    margins = margins_within(clique, columns, pairs)
    if not marginal.maps:
        return agreeing(project(shifted(marginal.counts, margins, ROUNDS), total), margins)
    by_group = {axes: summed(margin, tuple(marginal.maps[axis] for axis in axes)) for axes, margin in margins.items()}
    groups = agreeing(project(shifted(marginal.counts, by_group, ROUNDS), total), by_group)
    return _refined(groups, marginal.maps, even([columns[place] for place in clique], total), margins)


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


def even(columns: Sequence[Floats], total: float) -> Floats:
    """The table of independent columns."""
    table: Floats = columns[0]
    for column in columns[1:]:
        table = np.multiply.outer(table, column) / max(total, 1.0)
    return table


def _refined(groups: Floats, maps: Maps, start: Floats, margins: dict[Clique, Floats]) -> Floats:
    """The most even full table that has the groups' counts and the margins: fitted to both in turns."""
    table = start
    for _ in range(REFINEMENTS):
        table = table * spread(groups / np.maximum(summed(table, maps), 1e-300), maps)
        table = agreeing(table, margins, rounds=2)
    return table
