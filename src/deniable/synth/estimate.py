"""From noisy marginals to consistent ones, rising: columns, then pairs that agree with them, then larger cliques.

Everything that speaks of a column, or of a pair, is joined by inverse variance: a clique of three with variance v says
of its pairs what a pair with variance v times the third column's size would say.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from deniable.synth.collapse import Collapsed
from deniable.synth.domain import Clique
from deniable.synth.marginal import Floats, Marginal, along
from deniable.synth.simplex import agreeing, project, shifted

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
    columns = [_column(place, collapsed, one_way, measured, total) for place in range(len(one_way))]
    pairs = {pair: _pair(pair, measured, columns, total) for pair in _pairs_within(measured)}
    tables = {
        marginal.clique: pairs[marginal.clique] if len(marginal.clique) == 2 else _larger(marginal, pairs, total)
        for marginal in measured
    }
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


def _larger(marginal: Marginal, pairs: dict[Clique, Floats], total: float) -> Floats:
    """A larger clique's counts moved to agree with its pairs, in the same steps."""
    axes = itertools.combinations(range(len(marginal.clique)), 2)
    margins: dict[Clique, Floats] = {(a, b): pairs[marginal.clique[a], marginal.clique[b]] for a, b in axes}
    return agreeing(project(shifted(marginal.counts, margins, ROUNDS), total), margins)
