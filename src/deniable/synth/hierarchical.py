"""Areas in areas, from coarse to fine, that add up: what the census calls top-down.

Every other column is counted by area at every level (region, county, tract), with noise at each. A county's counts then
join what was measured of it with what its tracts add up to, by least squares (Hay et al. 2010), and going down, the
tracts of a county become the tables nearest to their own that add up to the county exactly and hold no negative count.
So large areas are as exact as if they alone had been measured, and small ones as good as their numbers allow. Pairs of
other columns are measured for the whole table, where they pay.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deniable.dp.accounting import ComposedEvent, Event
from deniable.dp.samplers import Entropy
from deniable.synth.areas import Areas, Groups, no_areas
from deniable.synth.choose import Chosen, worthwhile
from deniable.synth.collapse import Collapsed, collapse
from deniable.synth.description import Description
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates, estimate, noise_of
from deniable.synth.independent import independent
from deniable.synth.levels import Levels, fitted_levels, parents_of, top_down
from deniable.synth.marginal import Codes, Floats, Marginal, measure
from deniable.synth.measuring import measured_cliques, measured_columns, scored_pairs, united
from deniable.synth.terms import Terms

COLUMNS, SCORES, AREAS = 0.15, 0.05, 0.5


def hierarchical(codes: Codes, domain: Domain, terms: Terms, entropy: Entropy) -> Description:
    """Measure every column by area, level by level, and pairs of other columns for all."""
    areas = terms.areas
    if areas is None:
        raise no_areas()
    if len(domain) == 1:
        return replace(independent(codes, domain, terms, entropy), method="hierarchical")
    one_way = measured_columns(codes, domain, terms.spend, COLUMNS, entropy)
    collapsed = _kept_whole(collapse(domain, one_way), domain, areas.place)
    levels, area_events = _levels(codes, collapsed, one_way, areas, terms, entropy)
    again, pairs, events, reason = _others(codes, collapsed, domain, one_way, areas.place, terms, entropy)
    columns = united([*one_way, *again])
    by_area = [_leaves(areas.place, other, held) for other, held in levels.items()]
    estimates = _estimates(collapsed, columns, [*by_area, *pairs], pairs, levels, areas)
    event = ComposedEvent((*(marginal.event for marginal in one_way), *area_events, *events))
    told = f"{len(areas.levels)} levels of '{domain.names[areas.place]}' below the whole, each by every other column"
    cliques = tuple(by_area + pairs)
    return Description(
        "hierarchical", domain, collapsed, tuple(columns), cliques, estimates, event, f"{told}; {reason}"
    )


def _kept_whole(collapsed: Collapsed, domain: Domain, place: int) -> Collapsed:
    """No area is joined with another: small ones are told by the areas that they lie in."""
    maps = list(collapsed.maps)
    maps[place] = np.arange(domain.sizes[place], dtype=np.int32)
    sizes = [*collapsed.domain.sizes]
    sizes[place] = domain.sizes[place]
    return Collapsed(domain.resized(tuple(sizes)), tuple(maps))


def _levels(
    codes: Codes, collapsed: Collapsed, one_way: list[Marginal], areas: Areas, terms: Terms, entropy: Entropy
) -> tuple[dict[int, Levels], list[Event]]:
    """For every other column, its counts by area at every level; the whole is what its own measurement says."""
    joined = collapsed.apply(codes)
    others = [place for place in range(len(collapsed.domain)) if place != areas.place]
    sizes = [int(groups.max()) + 1 for groups in areas.levels]
    # The cube root of the cells: halfway between equal shares and those of the least summed noise (2/3, see
    # `choose.worthwhile`), because large areas are looked at most.
    parts = {(other, k): float(collapsed.domain.sizes[other] * size) ** (1 / 3)
             for other in others for k, size in enumerate(sizes)}  # fmt: skip
    parents = parents_of(areas.levels)
    whole, found, events = sum(parts.values()), {}, []
    for other in others:
        measured = []
        for k, groups in enumerate(areas.levels):
            exact = _by_area(joined, collapsed.domain, groups, sizes[k], areas.place, other)
            variance = terms.spend.variance(AREAS * parts[other, k] / whole)
            measured.append(measure(exact, (areas.place, other), variance, terms.spend.rows, entropy))
        events += [marginal.event for marginal in measured]
        found[other] = _held(collapsed, one_way[other], measured, other, parents)
    return found, list[Event](events)


def _by_area(codes: Codes, domain: Domain, groups: Groups, size: int, place: int, other: int) -> Groups:
    """Exact counts of a column by the areas of one level."""
    values = domain.sizes[other]
    keys = groups[codes[place]] * values + codes[other]
    return np.bincount(keys, minlength=size * values).reshape(size, values).astype(np.int64)


def _held(
    collapsed: Collapsed, top: Marginal, measured: list[Marginal], other: int, parents: tuple[Groups, ...]
) -> Levels:
    root = collapsed.summed(other, top.counts)[np.newaxis, :]
    counts = [root, *(marginal.counts for marginal in measured)]
    spread = [top.variance * collapsed.sizes(other)[np.newaxis, :]]
    spread += [np.full(marginal.counts.shape, marginal.variance) for marginal in measured]
    return Levels(tuple(counts), tuple(spread), measured[-1].event, parents)


def _others(
    codes: Codes, collapsed: Collapsed, domain: Domain, one_way: list[Marginal], place: int, terms: Terms,
    entropy: Entropy,
) -> tuple[list[Marginal], list[Marginal], list[Event], str]:  # fmt: skip
    """Pairs of the other columns where they pay, and columns once more."""
    rest = [other for other in range(len(domain)) if other != place]
    if len(rest) < 2:
        return [], [], [], "there is no pair of other columns"
    left = 1.0 - COLUMNS - SCORES - AREAS
    inner = Collapsed(collapsed.domain.project(tuple(rest)), tuple(collapsed.maps[other] for other in rest))
    alone = [one_way[other] for other in rest]
    problem, scored = scored_pairs(codes[rest], inner, alone, terms.spend, SCORES, left, entropy)
    chosen = worthwhile(problem)
    placed = Chosen(tuple(tuple(rest[p] for p in clique) for clique in chosen.cliques), chosen.shares)
    measured = measured_cliques(codes, collapsed, domain, placed, terms.spend, left, entropy)
    again, pairs = [m for m in measured if len(m.clique) == 1], [m for m in measured if len(m.clique) == 2]
    return again, pairs, [scored, *(marginal.event for marginal in measured)], chosen.reason


def _leaves(place: int, other: int, held: Levels) -> Marginal:
    """The finest level of a column by area, joined with all coarser ones: unbiased, with what variance is left."""
    fit = fitted_levels(held)
    counts, variance = fit[-1].values, float(fit[-1].variances.mean())
    clique: Clique = (place, other) if place < other else (other, place)
    return Marginal(clique, counts if place < other else counts.T, variance, held.event)


def _estimates(
    collapsed: Collapsed, columns: list[Marginal], measured: list[Marginal], pairs: list[Marginal],
    levels: dict[int, Levels], areas: Areas,
) -> Estimates:  # fmt: skip
    """Columns and pairs as ever; tables by area from the top down, so that all levels add up."""
    first = estimate(collapsed, columns, measured)
    tables = top_down(levels, first.total, first.columns)
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
