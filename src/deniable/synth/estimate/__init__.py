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
    tables = {marginal.clique: _estimate_clique(marginal, held, columns, pairs) for marginal in measured}
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


def _estimate_clique(marginal: Marginal, held: Residuals, columns: list[Floats], pairs: dict[Clique, Floats]) -> Floats:
    """A clique's counts moved to agree with what is known of its pairs, and of columns that no such pair holds."""
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
    return _refine_groups(groups, marginal.maps, multiply_columns([columns[place] for place in clique], total), margins)


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


def multiply_columns(columns: Sequence[Floats], total: float) -> Floats:
    """The table of independent columns."""
    table: Floats = columns[0]
    for column in columns[1:]:
        table = np.multiply.outer(table, column) / max(total, 1.0)
    return table


def _refine_groups(groups: Floats, maps: Maps, start: Floats, margins: dict[Clique, Floats]) -> Floats:
    """The most even full table that has the groups' counts and the margins: fitted to both in turns."""
    table = start
    for _ in range(REFINEMENTS):
        table = table * spread_groups(groups / np.maximum(sum_by_group(table, maps), 1e-300), maps)
        table = fit_margins(table, margins, rounds=2)
    return table
