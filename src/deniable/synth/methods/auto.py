"""The default: a tree of pairs, then pairs and cliques of three that show what the tree does not imply.

    columns -> score pairs -> measure a tree -> score other pairs and threes -> measure those that pay, and all again

A tree of pairs says something of every pair, through the columns between: what it implies need not be measured. (Where
most pairs pay by themselves they are measured at once.) That takes half of what is left at first. Measuring it again
later loses nothing (`measure.combine_marginals`), so the second half goes wherever it helps most once the scores
against the tree are known. Where no further score could stand out of the noise, what pays by the first scores is
measured at once; at a tiny budget columns stay independent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from deniable.dp.accounting import ComposedEvent, Event
from deniable.dp.samplers import Entropy
from deniable.synth.bins import CollapsedDomain, GroupedClique, collapse_again, collapse_domain
from deniable.synth.domain import Domain
from deniable.synth.estimate import ImpliedTables, estimate_marginals
from deniable.synth.marginal import GaussianBudget, Marginal, Records, measure_counts
from deniable.synth.measure import (
    MethodSettings,
    can_scores_show,
    combine_marginals,
    forecast_scores,
    l1_distance,
    list_pairs,
    measure_cliques,
    measure_columns,
    project_columns,
    score_distances,
    score_pairs,
)
from deniable.synth.methods.published import independent
from deniable.synth.model import Description
from deniable.synth.select import (
    DENOISED,
    NoiseForecast,
    Selection,
    SelectionProblem,
    discount_noise,
    expect_counts,
    group_candidates,
    group_workload,
    parts_of,
    select_larger_cliques,
    select_tree,
    weigh_workload,
)

COLUMNS, CLIQUE_SCORES = 0.3, 0.03
FEWEST_PAIR_SCORES, MOST_PAIR_SCORES, PAIR_SCORES = 0.05, 0.3, 0.4
"""The least and the largest share for scores of pairs; between them, the factor of `share_pair_scores`."""
WELL_TOLD = 0.05
"""Scores are told well enough where their noise is this part of the largest that an average pair could have."""
FIRST = 0.5
"""The part of their shares with which pairs are measured before cliques of three are scored."""

LEAST = 1e-4
"""A share too small to be worth a measurement."""


def auto(codes: Records, domain: Domain, settings: MethodSettings, entropy: Entropy) -> Description:
    """Measure what lowers the expected error most."""
    if len(domain) == 1:
        return replace(independent(codes, domain, settings, entropy), method="auto")
    spend = settings.spend
    one_way = measure_columns(codes, domain, spend, COLUMNS, entropy)
    collapsed = collapse_domain(domain, one_way)
    scores = plan_pair_scores(collapsed, one_way, spend)
    left = 1.0 - COLUMNS - scores
    problem, scored = score_pairs(codes, collapsed, one_way, spend, scores, left, entropy)
    chosen = select_tree(problem)
    rough, forecast = project_columns(collapsed, one_way, problem.total), _forecast_noise(problem)
    asked = group_workload(collapsed.domain, rough, forecast, settings.workload, chosen.cliques)
    tried = group_candidates(collapsed.domain, rough, forecast, [*chosen.cliques, *(one.clique for one in asked)])
    if tried or asked:
        plan = _Plan(problem, chosen, tuple(asked), tuple(tried))
        spent = left - CLIQUE_SCORES
        measured, events, reason = _measure_in_rounds(codes, collapsed, domain, one_way, plan, spend, spent, entropy)
    else:
        chosen = select_tree(problem, follow=False)
        measured = measure_cliques(codes, collapsed, domain, chosen, spend, left, entropy)
        events, reason = [marginal.event for marginal in measured], chosen.reason
    together = combine_marginals([*one_way, *measured])
    columns, cliques = together[: len(domain)], together[len(domain) :]
    event = ComposedEvent((*(marginal.event for marginal in one_way), scored, *events))
    collapsed = collapse_again(collapsed, domain, columns, {place for one in cliques for place in one.clique})
    estimates = estimate_marginals(collapsed, columns, cliques)
    return Description("auto", domain, collapsed, tuple(columns), tuple(cliques), estimates, event, reason)


def plan_pair_scores(collapsed: CollapsedDomain, one_way: list[Marginal], spend: GaussianBudget) -> float:
    """The share for scores of pairs: no more than tells pairs apart well, and none where no score could show."""
    told = forecast_scores(collapsed, one_way, spend, FEWEST_PAIR_SCORES)
    enough = FEWEST_PAIR_SCORES * (told / WELL_TOLD) ** 2
    share = max(min(share_pair_scores(collapsed.domain), enough), FEWEST_PAIR_SCORES)
    return share if can_scores_show(collapsed, one_way, spend, share) else 0.0


def share_pair_scores(domain: Domain) -> float:
    """The share for scores of pairs: many small tables are scored worse than a tree of them is measured.

    Of P pairs each score has noise like sqrt(P / share); the tree's pairs together, measured with shares that suit
    them, (sum of c^(2/3))^(3/2) / sqrt(share). A sum a / sqrt(x) + b / sqrt(y) is least where x / y = (a / b)^(2/3),
    and an error of a score counts less than one of a table: by the factor, which was found by trial.
    """
    cells = np.array([domain.cells(pair) for pair in list_pairs(domain)], dtype=np.float64)
    if not cells.size:
        return FEWEST_PAIR_SCORES
    measured = DENOISED * math.sqrt(2 / math.pi) * float(np.mean(cells ** (2 / 3))) ** 1.5 * math.sqrt(len(domain) - 1)
    ratio = PAIR_SCORES * (math.sqrt(cells.size) / measured) ** (2 / 3)
    return float(min(max((1 - COLUMNS) * ratio / (1 + ratio), FEWEST_PAIR_SCORES), MOST_PAIR_SCORES))


def _forecast_noise(problem: SelectionProblem) -> NoiseForecast:
    return NoiseForecast(problem.amount, problem.rows, problem.total)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is known before the first half is spent: the pairs chosen, what was asked for, and what will be scored."""

    problem: SelectionProblem
    chosen: Selection
    asked: tuple[GroupedClique, ...]
    tried: tuple[GroupedClique, ...]


def _measure_in_rounds(
    codes: Records,
    collapsed: CollapsedDomain,
    domain: Domain,
    one_way: list[Marginal],
    plan: _Plan,
    spend: GaussianBudget,
    left: float,
    entropy: Entropy,
) -> tuple[list[Marginal], list[Event], str]:
    """Pairs, scores of larger cliques, and then what these say: the larger cliques that pay, and pairs again."""
    chosen = plan.chosen
    first = measure_cliques(codes, collapsed, domain, chosen, spend, left * FIRST, entropy)
    known = combine_marginals([*one_way, *first])
    joined, sized = collapsed.apply(codes), parts_of(plan.problem, chosen)
    larger, parts = list(plan.asked), weigh_workload(plan.asked, sum(sized))
    events: list[Event] = [marginal.event for marginal in first]
    if plan.tried:
        so_far = estimate_marginals(collapsed, known[: len(domain)], known[len(domain) :])
        implied = ImpliedTables(so_far)
        distances = [l1_distance(one.count(joined), expect_counts(one, so_far, implied)) for one in plan.tried]
        found, deviation, event = score_distances(distances, spend, CLIQUE_SCORES, entropy)
        events.append(event)
        gains = discount_noise(plan.tried, found, deviation, known[len(domain) :])
        more, their = select_larger_cliques(plan.tried, gains, sum(sized) + sum(parts), _forecast_noise(plan.problem))
        larger, parts = larger + more, parts + their
    rest = left * (1 - FIRST if chosen.cliques else 1.0)
    again, shares = _split_remaining(chosen, sized, parts)
    second = measure_cliques(codes, collapsed, domain, again, spend, rest, entropy)
    for one, share in zip(larger, shares, strict=True):
        variance = spend.variance(rest * share)
        second.append(measure_counts(one.count(joined), one.clique, variance, spend.rows, entropy, one.coarser))
    events += [marginal.event for marginal in second]
    return [*first, *second], events, f"{chosen.reason}; {_explain_choice(plan, larger)}"


def _explain_choice(plan: _Plan, larger: list[GroupedClique]) -> str:
    asked, found = len(plan.asked), len(larger) - len(plan.asked)
    told = f"{asked} cliques for what was asked; " if asked else ""
    if not found:
        return f"{told}none of {len(plan.tried)} further cliques shows enough beyond its noise"
    threes = sum(len(one.clique) > 2 for one in larger[asked:])
    return f"{told}{found} of {len(plan.tried)} further cliques show more, {threes} of them of three columns"


def _split_remaining(chosen: Selection, sized: list[float], parts: list[float]) -> tuple[Selection, list[float]]:
    """Shares of the second half, for what was chosen first and for larger cliques.

    Each clique gets what it is meant to have of all, less what it had of the first half.
    """
    whole = sum(sized) + sum(parts)
    wanted = [max(z / whole - FIRST * share, 0.0) for z, share in zip(sized, chosen.shares, strict=True)]
    total = max(sum(wanted) + sum(parts) / max(whole, 1e-300), 1e-300)
    kept = [(clique, want / total) for clique, want in zip(chosen.cliques, wanted, strict=True) if want > LEAST * total]
    again = Selection(tuple(clique for clique, _ in kept), tuple(share for _, share in kept))
    return again, [part / whole / total for part in parts]
