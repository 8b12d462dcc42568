"""From noisy marginals to consistent ones: each column's estimates joined by inverse variance, pairs made to agree."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deniable.synth.collapse import Collapsed
from deniable.synth.domain import Clique
from deniable.synth.marginal import Floats, Marginal, along
from deniable.synth.simplex import fitted, project


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Consistent estimates over the collapsed domain: a total, each column, and each measured pair."""

    total: float
    columns: tuple[Floats, ...]
    pairs: dict[Clique, Floats]
    noise: float = 0.0
    """The expected total variation that noise alone gives a measured pair, on average."""


def total_of(one_way: list[Marginal]) -> float:
    """The number of records: sums of the one-way marginals, joined by inverse variance."""
    weights = np.array([1.0 / (marginal.variance * marginal.counts.size) for marginal in one_way])
    sums = np.array([marginal.counts.sum() for marginal in one_way])
    return max(1.0, float((weights * sums).sum() / weights.sum()))


def estimate(collapsed: Collapsed, one_way: list[Marginal], measured: list[Marginal]) -> Estimates:
    """Estimates from one-way marginals (old codes) and further marginals (new codes)."""
    total = total_of(one_way)
    columns = [_column(place, collapsed, one_way, measured, total) for place in range(len(one_way))]
    pairs: dict[Clique, Floats] = {m.clique: _pair(m, columns, total) for m in measured if len(m.clique) == 2}
    return Estimates(total, tuple(columns), pairs, _noise(measured, total))


def _noise(measured: list[Marginal], total: float) -> float:
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


def _pair(marginal: Marginal, columns: list[Floats], total: float) -> Floats:
    """A pair's counts moved to agree with its columns: first in L2, then without negatives, then proportionally."""
    rows, across = columns[marginal.clique[0]], columns[marginal.clique[1]]
    table = marginal.counts
    table = table + ((rows - table.sum(axis=1)) / table.shape[1])[:, np.newaxis]
    table = table + (across - table.sum(axis=0)) / table.shape[0]
    return fitted(project(table, total), rows, across)
