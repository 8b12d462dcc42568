"""Residuals: any marginal from noisy ones in closed form, unbiased, with its exact variance; no model is fitted.

After ResidualPlanner (Xiao et al. 2023) and GReM (Mullins et al. 2024). A column's counts are their mean and what is
left of it; so the counts of a clique S fall into one part for each subset A of S: centered along the columns of A,
constant along the others. These parts are orthogonal, so noise that is equal and independent on every cell of S is
independent between them, and each part can be joined by itself with what other tables say of it.

    Let r(A) be the marginal of A, centered along each of its columns. Sums over S beyond A multiply a variance v by the
    sizes n of the columns summed over, so a table of S says r(A) with covariance v prod(n of S - A) times the centering
    projection of A: the same matrix for every table but for the factor. Inverse variances of the factors are therefore
    the weights of generalized least squares, exactly, and the factors' inverses add up.

    A marginal of T is the sum over A in T of r(A) / prod(n of T - A), spread evenly along T - A. The parts are
    independent, and a centering projection has 1 - 1/n on its diagonal.

Single columns may come with another variance on each value (their own measurement, with rare values joined), which
breaks the symmetry between values, but for columns and the total alone: see `_fit_column`. What no table tells (the
part of A, if no table holds A) is not known: it counts as zero, and is listed as missing.

The projections at the end trade that lack of bias for what is certain: counts are not negative, add up to the number of
records, and have given margins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deniable.synth.bins import CollapsedDomain
from deniable.synth.domain import Clique, Domain
from deniable.synth.marginal import Floats, Marginal, marginalize

Column = tuple[Floats, Floats]
"""A column's noisy counts, and the variance of each."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnEstimate:
    """A column as the best estimate that adds up to the total."""

    counts: Floats
    own: Floats
    """The variance of each value, were the total known."""
    slope: Floats
    """How much of an error of the total falls on each value; all together add up to one."""


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """All that noisy marginals say, by parts that are independent of one another: public."""

    domain: Domain
    total: float
    variance: float
    """Of the total; infinite where nothing was measured."""
    columns: dict[int, ColumnEstimate]
    parts: dict[Clique, tuple[Floats, float]]
    """For two columns or more: the centered marginal, and the factor of its covariance."""


@dataclass(frozen=True, slots=True, eq=False)
class ReconstructedMarginal:
    """A marginal: its counts and their variances, unbiased and exact where no part of it is missing."""

    clique: Clique
    counts: Floats
    variances: Floats
    missing: tuple[Clique, ...]

    def nonnegative(self, total: float) -> Floats:
        """The nearest counts that are not negative and add up to a total: nearer to the truth, no longer unbiased."""
        return project_to_simplex(self.counts, total)


def center_table(table: Floats) -> Floats:
    """A table less its mean along every axis."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def compute_residuals(domain: Domain, tables: Sequence[Marginal], columns: Sequence[Column] = ()) -> Residuals:
    """What tables with equal noise on their cells say, and columns (all of them, in order) with any variances."""
    sums: dict[Clique, tuple[Floats, float]] = {}
    for table in tables:
        for part in _subsets(table.clique):
            summed = marginalize(table.counts, tuple(table.clique.index(place) for place in part))
            weight = summed.size / (table.variance * table.counts.size)
            held, before = sums.get(part, (np.zeros(summed.shape), 0.0))
            sums[part] = held + weight * center_table(summed), before + weight
    parts = {part: (held / weight, 1.0 / weight) for part, (held, weight) in sums.items()}
    return _combine_columns(domain, parts, columns)


def compute_collapsed_residuals(
    collapsed: CollapsedDomain, one_way: Sequence[Marginal], measured: Sequence[Marginal]
) -> Residuals:
    """What measurements say over joined values; those by groups of them, which say something else, are left out."""
    columns = [
        (collapsed.sum_counts(place, marginal), marginal.variance * collapsed.sizes(place))
        for place, marginal in enumerate(one_way)
    ]
    return compute_residuals(collapsed.domain, [marginal for marginal in measured if not marginal.maps], columns)


def _subsets(clique: Clique) -> list[Clique]:
    return [part for size in range(len(clique) + 1) for part in itertools.combinations(clique, size)]


def _combine_columns(domain: Domain, parts: dict[Clique, tuple[Floats, float]], columns: Sequence[Column]) -> Residuals:
    """Columns and the total, joined: every column says a total, and the total then moves every column."""
    told, factor = parts.get((), (np.zeros(()), math.inf))
    weight, numerator = 1.0 / factor, float(told) / factor
    lines = {}
    for place, size in enumerate(domain.sizes):
        tabled = parts.get((place,), (np.zeros(size), math.inf))
        own = columns[place] if columns else (np.zeros(size), np.full(size, math.inf))
        if tabled[1] < math.inf or columns:
            lines[place] = line = _fit_column(tabled, own)
            weight, numerator = weight + line.weight, numerator + line.weight * line.total
    total = numerator / weight if weight else 0.0
    found = {
        place: ColumnEstimate(line.start + total * line.slope, line.own, line.slope) for place, line in lines.items()
    }
    larger = {part: held for part, held in parts.items() if len(part) > 1}
    return Residuals(domain, total, 1.0 / weight if weight else math.inf, found, larger)


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """A column as it moves with the total: start + total * slope; and the total that it says by itself."""

    start: Floats
    slope: Floats
    own: Floats
    total: float
    weight: float


def _fit_column(tabled: tuple[Floats, float], own: Column) -> _Line:
    """The best estimate u of a column for every total t, from its centered part in tables and its own measurement.

    Tables say r with precision w on centered vectors, the own measurement says z with precision p on each value:

        minimize  w |u - t/n - r|^2 + sum p (u - z)^2   with  sum u = t    (u - t/n is u centered)

    The curvature is w + p on each value, with inverse h. Without the sum u would be h (w (r + t/n) + p z); a multiple
    of h more fits the sum. So u = start + t slope, its covariance given t is diag(h) - h h' / sum h, and what is left
    of the objective is a parabola in t: its curvature is the precision with which this column tells t, its least place
    the t it tells. (Where only tables speak of it, all totals are as good: their total is counted by itself.)
    """
    (r, factor), (z, variances) = tabled, own
    w, p, n = 1.0 / factor, 1.0 / variances, r.size
    h = 1.0 / (w + p)
    free, pull = h * (w * r + p * z), h * w / n
    start = free - h * free.sum() / h.sum()
    slope = pull + h * (1.0 - pull.sum()) / h.sum()
    weight = float(w * ((slope - 1.0 / n) ** 2).sum() + (p * slope**2).sum())
    falling = float(w * ((slope - 1.0 / n) * (r - start)).sum() + (p * slope * (z - start)).sum())
    if not p.any():
        weight = falling = 0.0
    return _Line(start, slope, h - h**2 / h.sum(), falling / weight if weight else 0.0, weight)


def reconstruct(held: Residuals, clique: Clique) -> ReconstructedMarginal:
    """A marginal of any clique. The error of the total is in every column, so it is added up before it is squared."""
    shape = held.domain.shape(clique)
    whole = math.prod(shape)
    counts, variances = np.full(shape, held.total / whole), np.zeros(shape)
    moved = np.full(shape, 1.0 / whole)
    missing: list[Clique] = [] if held.variance < math.inf else [()]
    for axis, place in enumerate(clique):
        if place not in held.columns:
            missing += [(place,)] if shape[axis] > 1 else []
            continue
        column, even, others = held.columns[place], 1.0 / shape[axis], whole / shape[axis]
        counts = counts + broadcast_axes((column.counts - held.total * even) / others, (axis,), len(shape))
        moved = moved + broadcast_axes((column.slope - even) / others, (axis,), len(shape))
        variances = variances + broadcast_axes(column.own / others**2, (axis,), len(shape))
    for part in (part for part in _subsets(clique) if len(part) > 1):
        if part not in held.parts:
            # Along a column of one value there is nothing but the mean.
            missing += [part] if min(held.domain.shape(part)) > 1 else []
            continue
        table, factor = held.parts[part]
        others = whole / table.size
        counts = counts + broadcast_axes(table / others, tuple(clique.index(place) for place in part), len(shape))
        variances = variances + factor * math.prod(1.0 - 1.0 / size for size in table.shape) / others**2
    if held.variance < math.inf:
        variances = variances + held.variance * moved**2
    return ReconstructedMarginal(clique, counts, variances, tuple(missing))


Axes = tuple[int, ...]


def project_to_simplex(values: Floats, total: float) -> Floats:
    """The nearest vector (in L2) that is nowhere negative and adds up to `total`.

    Sorted from the largest, the answer keeps the first k entries less a common amount (their sum - total) / k, where k
    is the last place at which that leaves something (Held, Wolfe and Crowder 1974).
    """
    flat = values.ravel()
    if total <= 0 or not flat.size:
        return np.zeros_like(values)
    falling = np.sort(flat)[::-1]
    excess = np.cumsum(falling) - total
    k = int(np.flatnonzero(falling * np.arange(1, flat.size + 1) > excess).max(initial=0))  # 0 always leaves something
    kept: Floats = np.maximum(flat - excess[k] / (k + 1), 0.0).reshape(values.shape)
    return kept


def fit_axis_margins(table: Floats, *margins: Floats, rounds: int = 60) -> Floats:
    """The table nearest in relative entropy with a given margin on each axis (iterative proportional fitting)."""
    return fit_margins(table, {(axis,): margin for axis, margin in enumerate(margins)}, rounds)


def fit_margins(table: Floats, margins: Mapping[Axes, Floats], rounds: int = 60) -> Floats:
    """The same with margins over any axes, each in the order of its axes."""
    result = np.maximum(table, 1e-9)
    wanted = max((float(margin.sum()) for margin in margins.values()), default=0.0)
    for _ in range(rounds):
        missed = 0.0
        for axes, margin in margins.items():
            sums = result.sum(axis=_other_axes(axes, result.ndim))
            missed = max(missed, float(np.abs(sums - margin).sum()))
            result = result * broadcast_axes(margin / np.maximum(sums, 1e-300), axes, result.ndim)
        if missed <= 1e-6 * max(wanted, 1.0):
            break
    return result


def shift_to_margins(table: Floats, margins: Mapping[Axes, Floats], rounds: int = 1) -> Floats:
    """The nearest table in L2 with given margins, which may be negative: each margin's miss is shared out equally.

    One round is exact for margins of single axes that agree in their sum; margins that overlap need a few.
    """
    for _ in range(rounds):
        for axes, margin in margins.items():
            others = _other_axes(axes, table.ndim)
            shared = table.size / margin.size
            table = table + broadcast_axes((margin - table.sum(axis=others)) / shared, axes, table.ndim)
    return table


def _other_axes(axes: Axes, ndim: int) -> Axes:
    return tuple(axis for axis in range(ndim) if axis not in axes)


def broadcast_axes(values: Floats, axes: Axes, ndim: int) -> Floats:
    """Values of some axes (in rising order), shaped to meet a table of so many axes."""
    sizes = iter(values.shape)
    return values.reshape([next(sizes) if axis in axes else 1 for axis in range(ndim)])
