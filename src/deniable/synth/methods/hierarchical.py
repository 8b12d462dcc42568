"""Areas in areas, from coarse to fine, that add up: what the census calls top-down.

Every other column is counted by area at every level (region, county, tract), with noise at each. A county's counts then
join what was measured of it with what its tracts add up to, by least squares (Hay et al. 2010), and going down, the
tracts of a county become the tables nearest to their own that add up to the county exactly and hold no negative count.
So large areas are as exact as if they alone had been measured, and small ones as good as their numbers allow. Pairs of
other columns are measured for the whole table, where they pay.

A level is a table: one row an area, one column a value of another column. Fitting levels is post-processing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from deniable.dp.accounting import ComposedEvent, Event, GaussianEvent
from deniable.dp.samplers import Entropy
from deniable.synth.bins import CollapsedDomain, collapse_domain
from deniable.synth.domain import Areas, Clique, Domain, Groups, areas_refusal
from deniable.synth.estimate import Estimates, estimate_marginals, noise_of
from deniable.synth.estimate.residuals import fit_margins, project_to_simplex, shift_to_margins
from deniable.synth.marginal import CodesElsewhere, Floats, Marginal, Records, measure_counts, replace_codes
from deniable.synth.measure import MethodSettings, combine_marginals, measure_cliques, measure_columns, score_pairs
from deniable.synth.methods.published import independent
from deniable.synth.model import Description
from deniable.synth.select import Selection, select_pairs

COLUMNS, SCORES, AREAS = 0.15, 0.05, 0.5


def hierarchical(codes: Records, domain: Domain, settings: MethodSettings, entropy: Entropy) -> Description:
    """Measure every column by area, level by level, and pairs of other columns for all."""
    areas = settings.areas
    if areas is None:
        raise areas_refusal()
    if len(domain) == 1:
        return replace(independent(codes, domain, settings, entropy), method="hierarchical")
    one_way = measure_columns(codes, domain, settings.spend, COLUMNS, entropy)
    collapsed = _keep_areas_apart(collapse_domain(domain, one_way), domain, areas.place)
    levels, area_events = _measure_levels(codes, collapsed, one_way, areas, settings, entropy)
    again, pairs, events, reason = _measure_other_pairs(
        codes, collapsed, domain, one_way, areas.place, settings, entropy
    )
    columns = combine_marginals([*one_way, *again])
    by_area = [_leaf_marginal(areas.place, other, held) for other, held in levels.items()]
    estimates = _build_estimates(collapsed, columns, [*by_area, *pairs], pairs, levels, areas)
    event = ComposedEvent((*(marginal.event for marginal in one_way), *area_events, *events))
    told = f"{len(areas.levels)} levels of '{domain.names[areas.place]}' below the whole, each by every other column"
    cliques = tuple(by_area + pairs)
    return Description(
        "hierarchical", domain, collapsed, tuple(columns), cliques, estimates, event, f"{told}; {reason}"
    )


def _keep_areas_apart(collapsed: CollapsedDomain, domain: Domain, place: int) -> CollapsedDomain:
    """No area is joined with another: small ones are estimated from the areas that they lie in."""
    maps = list(collapsed.maps)
    maps[place] = np.arange(domain.sizes[place], dtype=np.int32)
    sizes = [*collapsed.domain.sizes]
    sizes[place] = domain.sizes[place]
    return CollapsedDomain(domain.resize(tuple(sizes)), tuple(maps))


def _measure_levels(
    codes: Records,
    collapsed: CollapsedDomain,
    one_way: list[Marginal],
    areas: Areas,
    settings: MethodSettings,
    entropy: Entropy,
) -> tuple[dict[int, Levels], list[Event]]:
    """For every other column, its counts by area at every level; the whole is what its own measurement says."""
    joined = collapsed.apply(codes)
    others = [place for place in range(len(collapsed.domain)) if place != areas.place]
    sizes = [int(groups.max()) + 1 for groups in areas.levels]
    # The cube root of the cells: halfway between equal shares and those of the least summed noise (2/3, see
    # `select.select_pairs`), because large areas are looked at most.
    parts = {(other, k): float(collapsed.domain.sizes[other] * size) ** (1 / 3)
             for other in others for k, size in enumerate(sizes)}  # fmt: skip
    parents = parents_of(areas.levels)
    whole, found, events = sum(parts.values()), {}, []
    for other in others:
        measured = []
        for k, groups in enumerate(areas.levels):
            exact = _count_by_area(joined, collapsed.domain, groups, sizes[k], areas.place, other)
            variance = settings.spend.variance(AREAS * parts[other, k] / whole)
            measured.append(measure_counts(exact, (areas.place, other), variance, settings.spend.rows, entropy))
        events += [marginal.event for marginal in measured]
        found[other] = _combine_levels(collapsed, one_way[other], measured, other, parents)
    return found, list[Event](events)


def _count_by_area(codes: Records, domain: Domain, groups: Groups, size: int, place: int, other: int) -> Groups:
    """Exact counts of a column by the areas of one level."""
    if isinstance(codes, CodesElsewhere):
        return codes.count_there([(replace_codes(codes.columns[place], groups.tolist()), codes.columns[other])])[0]
    values = domain.sizes[other]
    keys = groups[codes[place]] * values + codes[other]
    return np.bincount(keys, minlength=size * values).reshape(size, values).astype(np.int64)


def _choose_columns(codes: Records, places: list[int]) -> Records:
    return codes.choose(places) if isinstance(codes, CodesElsewhere) else codes[places]


def _combine_levels(
    collapsed: CollapsedDomain, top: Marginal, measured: list[Marginal], other: int, parents: tuple[Groups, ...]
) -> Levels:
    root = collapsed.sum_counts(other, top)[np.newaxis, :]
    counts = [root, *(marginal.counts for marginal in measured)]
    spread = [top.variance * collapsed.sizes(other)[np.newaxis, :]]
    spread += [np.full(marginal.counts.shape, marginal.variance) for marginal in measured]
    return Levels(tuple(counts), tuple(spread), measured[-1].event, parents)


def _measure_other_pairs(
    codes: Records, collapsed: CollapsedDomain, domain: Domain, one_way: list[Marginal], place: int,
    settings: MethodSettings,
    entropy: Entropy,
) -> tuple[list[Marginal], list[Marginal], list[Event], str]:  # fmt: skip
    """Pairs of the other columns where they pay, and columns once more."""
    rest = [other for other in range(len(domain)) if other != place]
    if len(rest) < 2:
        return [], [], [], "there is no pair of other columns"
    left = 1.0 - COLUMNS - SCORES - AREAS
    inner = CollapsedDomain(collapsed.domain.project(tuple(rest)), tuple(collapsed.maps[other] for other in rest))
    alone = [one_way[other] for other in rest]
    problem, scored = score_pairs(_choose_columns(codes, rest), inner, alone, settings.spend, SCORES, left, entropy)
    chosen = select_pairs(problem)
    placed = Selection(tuple(tuple(rest[p] for p in clique) for clique in chosen.cliques), chosen.shares)
    measured = measure_cliques(codes, collapsed, domain, placed, settings.spend, left, entropy)
    again, pairs = [m for m in measured if len(m.clique) == 1], [m for m in measured if len(m.clique) == 2]
    return again, pairs, [scored, *(marginal.event for marginal in measured)], chosen.reason


def _leaf_marginal(place: int, other: int, held: Levels) -> Marginal:
    """The finest level of a column by area, joined with all coarser ones: unbiased, with what variance is left."""
    fit = fit_levels(held)
    counts, variance = fit[-1].values, float(fit[-1].variances.mean())
    clique: Clique = (place, other) if place < other else (other, place)
    return Marginal(clique, counts if place < other else counts.T, variance, held.event)


def _build_estimates(
    collapsed: CollapsedDomain, columns: list[Marginal], measured: list[Marginal], pairs: list[Marginal],
    levels: dict[int, Levels], areas: Areas,
) -> Estimates:  # fmt: skip
    """Columns and pairs as ever; tables by area from the top down, so that all levels add up."""
    first = estimate_marginals(collapsed, columns, measured)
    tables = estimate_top_down(levels, first.total, first.columns)
    kept: dict[Clique, Floats] = {}
    for other, table in tables.items():
        kept[(areas.place, other) if areas.place < other else (other, areas.place)] = (
            table if areas.place < other else table.T
        )
    for marginal in pairs:
        kept[marginal.clique] = first.tables[marginal.clique]
    told = list(first.columns)
    told[areas.place] = next(iter(tables.values())).sum(axis=1) if tables else told[areas.place]
    return Estimates(first.total, tuple(told), kept, noise_of(measured, first.total))


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
class LevelFit:
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


def fit_levels(held: Levels) -> list[LevelFit]:
    """The linear unbiased estimates of least variance that add up, in two passes (Hay et al. 2010, with variances).

    Upwards an area joins its own counts with the sum of its children's, by inverse variances. Downwards what is known
    of the parent beyond its children is shared among them in proportion to their variances.
    """
    upward = [LevelFit(held.counts[-1], held.variances[-1])]
    for own, spread, parent in zip(held.counts[-2::-1], held.variances[-2::-1], held.parents[::-1], strict=True):
        below = upward[0]
        sums, variance = (
            _sum_by_parent(below.values, parent, len(own)),
            _sum_by_parent(below.variances, parent, len(own)),
        )
        weight = np.where(variance > 0, 1.0 / np.maximum(variance, 1e-300), 0.0)
        precision = 1.0 / spread + weight
        upward.insert(0, LevelFit((own / spread + sums * weight) / precision, 1.0 / precision))
    found = [upward[0]]
    for below, parent in zip(upward[1:], held.parents, strict=True):
        found.append(_adjust_downward(below, parent, found[-1]))
    return found


def _sum_by_parent(values: Floats, parent: Groups, size: int) -> Floats:
    """Rows added up by parent."""
    sums = np.zeros((size, values.shape[1]))
    np.add.at(sums, parent, values)
    return sums


def _adjust_downward(below: LevelFit, parent: Groups, above: LevelFit) -> LevelFit:
    size = len(above.values)
    share = below.variances / _sum_by_parent(below.variances, parent, size)[parent]
    values = below.values + share * (above.values - _sum_by_parent(below.values, parent, size))[parent]
    return LevelFit(values, below.variances * (1.0 - share) + share**2 * above.variances[parent])


def estimate_top_down(levels: Mapping[int, Levels], total: float, columns: Sequence[Floats]) -> dict[int, Floats]:
    """For every column its finest table by area: nowhere negative, adding up at every level, areas alike in all.

    The records of each area are estimated first, from all columns together, as a tree of its own. Then every column
    goes down: the children of an area are moved to have their numbers of records and to add up to their parent.
    """
    if not levels:
        return {}
    records = _estimate_records(levels, total)
    found = {}
    for place, held in levels.items():
        table = columns[place][np.newaxis, :]
        for fit, parent, rows in zip(fit_levels(held)[1:], held.parents, records[1:], strict=True):
            table = _fit_children(table, fit.values, parent, rows)
        found[place] = table
    return found


def _estimate_records(levels: Mapping[int, Levels], total: float) -> list[Floats]:
    """How many records each area has, level by level; what all columns tell of it, by inverse variances."""
    held = list(levels.values())
    counts, variances = [], []
    for k in range(len(held[0].counts)):
        weights = [1.0 / column.variances[k].sum(axis=1, keepdims=True) for column in held]
        sums = [column.counts[k].sum(axis=1, keepdims=True) * w for column, w in zip(held, weights, strict=True)]
        counts.append(np.sum(sums, axis=0) / np.sum(weights, axis=0))
        variances.append(1.0 / np.sum(weights, axis=0))
    parents = held[0].parents
    fit = fit_levels(Levels(tuple(counts), tuple(variances), held[0].event, parents))
    found = [np.array([total])]
    for level, parent in zip(fit[1:], parents, strict=True):
        found.append(_share_records(found[-1], level.values[:, 0], parent))
    return found


def _share_records(above: Floats, values: Floats, parent: Groups) -> Floats:
    """Children of each area, moved to add up to it without negatives."""
    result = np.zeros(values.size)
    for area in range(above.size):
        mine = parent == area
        result[mine] = project_to_simplex(values[mine], float(above[area]))
    return result


def _fit_children(above: Floats, values: Floats, parent: Groups, rows: Floats) -> Floats:
    """Tables of the children of each area: their records by row, their parent's counts by column."""
    result = np.zeros(values.shape)
    for area in range(len(above)):
        mine = np.flatnonzero(parent == area)
        if mine.size and rows[mine].sum() > 0:
            margins: dict[tuple[int, ...], Floats] = {
                (0,): rows[mine],
                (1,): above[area] * (rows[mine].sum() / max(above[area].sum(), 1e-300)),
            }
            near = project_to_simplex(shift_to_margins(values[mine], margins), float(rows[mine].sum()))
            # A trace of independence lets the fit put records where the projection left none.
            trace = np.outer(margins[0,], margins[1,]) / max(float(rows[mine].sum()), 1e-300)
            result[mine] = fit_margins(near + TRACE * trace, margins, rounds=500)
    return result
