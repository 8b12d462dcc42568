"""Levels of areas that add up: least squares over all levels, then down from the whole, never negative.

A level is a table: one row an area, one column a value of another column. Everything here is post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from deniable.dp.accounting import GaussianEvent
from deniable.synth.areas import Groups
from deniable.synth.marginal import Floats
from deniable.synth.simplex import agreeing, project, shifted

TRACE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Noisy counts of one column by area, from the whole (one row) to the finest level, and their variances."""

    counts: tuple[Floats, ...]
    variances: tuple[Floats, ...]
    event: GaussianEvent
    """Of the finest level."""
    parents: tuple[Groups, ...] = ()
    """For each level but the first: the area one level up."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Estimates of one level and the variance of each; levels add up to the ones above."""

    values: Floats
    variances: Floats


def parents_of(levels: Sequence[Groups]) -> tuple[Groups, ...]:
    """For every level (given as the group of each code, from coarse to fine), the parent of each of its areas.

    >>> [p.tolist() for p in parents_of([np.array([0, 0, 1]), np.array([0, 1, 2])])]
    [[0, 0], [0, 0, 1]]
    """
    found = [np.zeros(int(levels[0].max()) + 1, dtype=np.int64)]
    for coarse, fine in pairwise(levels):
        parent = np.zeros(int(fine.max()) + 1, dtype=np.int64)
        parent[fine] = coarse
        found.append(parent)
    return tuple(found)


def fitted_levels(held: Levels) -> list[Fit]:
    """The linear unbiased estimates of least variance that add up, in two passes (Hay et al. 2010, with variances).

    Upwards an area joins its own counts with the sum of its children's, by inverse variances. Downwards what is known
    of the parent beyond its children is shared among them in proportion to their variances.
    """
    upward = [Fit(held.counts[-1], held.variances[-1])]
    for own, spread, parent in zip(held.counts[-2::-1], held.variances[-2::-1], held.parents[::-1], strict=True):
        below = upward[0]
        sums, variance = _added(below.values, parent, len(own)), _added(below.variances, parent, len(own))
        weight = np.where(variance > 0, 1.0 / np.maximum(variance, 1e-300), 0.0)
        precision = 1.0 / spread + weight
        upward.insert(0, Fit((own / spread + sums * weight) / precision, 1.0 / precision))
    found = [upward[0]]
    for below, parent in zip(upward[1:], held.parents, strict=True):
        found.append(_downward(below, parent, found[-1]))
    return found


def _added(values: Floats, parent: Groups, size: int) -> Floats:
    """Rows added up by parent."""
    sums = np.zeros((size, values.shape[1]))
    np.add.at(sums, parent, values)
    return sums


def _downward(below: Fit, parent: Groups, above: Fit) -> Fit:
    size = len(above.values)
    share = below.variances / _added(below.variances, parent, size)[parent]
    values = below.values + share * (above.values - _added(below.values, parent, size))[parent]
    return Fit(values, below.variances * (1.0 - share) + share**2 * above.variances[parent])


def top_down(levels: Mapping[int, Levels], total: float, columns: Sequence[Floats]) -> dict[int, Floats]:
    """For every column its finest table by area: nowhere negative, adding up at every level, areas alike in all.

    The records of each area are estimated first, from all columns together, as a tree of its own. Then every column
    goes down: the children of an area are moved to have their numbers of records and to add up to their parent.
    """
    if not levels:
        return {}
    records = _records(levels, total)
    found = {}
    for place, held in levels.items():
        table = columns[place][np.newaxis, :]
        for fit, parent, rows in zip(fitted_levels(held)[1:], held.parents, records[1:], strict=True):
            table = _children(table, fit.values, parent, rows)
        found[place] = table
    return found


def _records(levels: Mapping[int, Levels], total: float) -> list[Floats]:
    """How many records each area has, level by level; what all columns tell of it, by inverse variances."""
    held = list(levels.values())
    counts, variances = [], []
    for k in range(len(held[0].counts)):
        weights = [1.0 / column.variances[k].sum(axis=1, keepdims=True) for column in held]
        sums = [column.counts[k].sum(axis=1, keepdims=True) * w for column, w in zip(held, weights, strict=True)]
        counts.append(np.sum(sums, axis=0) / np.sum(weights, axis=0))
        variances.append(1.0 / np.sum(weights, axis=0))
    parents = held[0].parents
    fit = fitted_levels(Levels(tuple(counts), tuple(variances), held[0].event, parents))
    found = [np.array([total])]
    for level, parent in zip(fit[1:], parents, strict=True):
        found.append(_shared(found[-1], level.values[:, 0], parent))
    return found


def _shared(above: Floats, values: Floats, parent: Groups) -> Floats:
    """Children of each area, moved to add up to it without negatives."""
    result = np.zeros(values.size)
    for area in range(above.size):
        mine = parent == area
        result[mine] = project(values[mine], float(above[area]))
    return result


def _children(above: Floats, values: Floats, parent: Groups, rows: Floats) -> Floats:
    """Tables of the children of each area: their records by row, their parent's counts by column."""
    result = np.zeros(values.shape)
    for area in range(len(above)):
        mine = np.flatnonzero(parent == area)
        if mine.size and rows[mine].sum() > 0:
            margins: dict[tuple[int, ...], Floats] = {
                (0,): rows[mine],
                (1,): above[area] * (rows[mine].sum() / max(above[area].sum(), 1e-300)),
            }
            near = project(shifted(values[mine], margins), float(rows[mine].sum()))
            # A trace of independence lets the fit put records where the projection left none.
            trace = np.outer(margins[0,], margins[1,]) / max(float(rows[mine].sum()), 1e-300)
            result[mine] = agreeing(near + TRACE * trace, margins, rounds=500)
    return result
