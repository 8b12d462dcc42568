"""From noisy marginals to consistent ones: columns joined by inverse variance, cliques made to agree with them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deniable.synth.collapse import Collapsed
from deniable.synth.domain import Clique
from deniable.synth.marginal import Floats, Marginal, along
from deniable.synth.simplex import across, fitted, project


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
    tables = {marginal.clique: _table(marginal, columns, total) for marginal in measured}
    return Estimates(total, tuple(columns), tables, _noise(measured, total))


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


def _table(marginal: Marginal, columns: list[Floats], total: float) -> Floats:
    """A clique's counts moved to agree with its columns: first in L2, then without negatives, then proportionally."""
    margins = [columns[place] for place in marginal.clique]
    table = marginal.counts
    for axis, margin in enumerate(margins):
        others = table.size / table.shape[axis]
        table = table + across((margin - along(table, (axis,))) / others, axis, table.ndim)
    return fitted(project(table, total), *margins)
