"""The default: pairs that bring more than their noise costs, then cliques of three that show what pairs do not.

    columns -> score pairs -> measure pairs -> score cliques of three -> measure those that pay, and pairs again

Pairs are measured with half of what is left at first. Measuring them again later loses nothing (`measuring.united`), so
the second half goes wherever it helps most once the scores of three columns are known. Where no clique of three could
stand out of the noise, none is scored, and pairs get all: at a small budget that is the choice of pairs alone, and at a
tiny one columns stay independent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from deniable.dp.accounting import ComposedEvent, Event
from deniable.dp.samplers import Entropy
from deniable.synth.choose import Chosen, Problem, parts_of, worthwhile
from deniable.synth.coarse import Look
from deniable.synth.collapse import Collapsed, collapse
from deniable.synth.dependence import distance, scores
from deniable.synth.description import Description
from deniable.synth.domain import Domain
from deniable.synth.estimate import estimate
from deniable.synth.independent import independent
from deniable.synth.interactions import (
    Outlook,
    asked_looks,
    asked_parts,
    candidates,
    expected,
    trusted,
    worthwhile_looks,
)
from deniable.synth.marginal import Codes, Marginal, measure
from deniable.synth.measuring import measured_cliques, measured_columns, rough_columns, scored_pairs, united
from deniable.synth.spending import Spending
from deniable.synth.terms import Terms

COLUMNS, PAIR_SCORES, CLIQUE_SCORES = 0.15, 0.05, 0.03
FIRST = 0.5
"""The part of their shares with which pairs are measured before cliques of three are scored."""

LEAST = 1e-4
"""A share too small to be worth a measurement."""


def auto(codes: Codes, domain: Domain, terms: Terms, entropy: Entropy) -> Description:
    """Measure what lowers the expected error most."""
    if len(domain) == 1:
        return replace(independent(codes, domain, terms, entropy), method="auto")
    spend, left = terms.spend, 1.0 - COLUMNS - PAIR_SCORES
    one_way = measured_columns(codes, domain, spend, COLUMNS, entropy)
    collapsed = collapse(domain, one_way)
    problem, scored = scored_pairs(codes, collapsed, one_way, spend, PAIR_SCORES, left, entropy)
    chosen = worthwhile(problem)
    rough, outlook = rough_columns(collapsed, one_way, problem.total), _outlook(problem)
    asked = asked_looks(collapsed.domain, rough, outlook, terms.workload, chosen.cliques)
    tried = candidates(collapsed.domain, rough, outlook, [*chosen.cliques, *(one.clique for one in asked)])
    if tried or asked:
        plan = _Plan(problem, chosen, tuple(asked), tuple(tried))
        measured, events, reason = _in_turns(codes, collapsed, domain, one_way, plan, terms.spend, entropy)
    else:
        measured = measured_cliques(codes, collapsed, domain, chosen, spend, left, entropy)
        events, reason = [marginal.event for marginal in measured], chosen.reason
    together = united([*one_way, *measured])
    columns, cliques = together[: len(domain)], together[len(domain) :]
    event = ComposedEvent((*(marginal.event for marginal in one_way), scored, *events))
    estimates = estimate(collapsed, columns, cliques)
    return Description("auto", domain, collapsed, tuple(columns), tuple(cliques), estimates, event, reason)


def _outlook(problem: Problem) -> Outlook:
    return Outlook(problem.amount, problem.rows, problem.total)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is known before the first half is spent: the pairs chosen, what was asked for, and what will be scored."""

    problem: Problem
    chosen: Chosen
    asked: tuple[Look, ...]
    tried: tuple[Look, ...]


def _in_turns(
    codes: Codes,
    collapsed: Collapsed,
    domain: Domain,
    one_way: list[Marginal],
    plan: _Plan,
    spend: Spending,
    entropy: Entropy,
) -> tuple[list[Marginal], list[Event], str]:
    """Pairs, scores of larger cliques, and then what these say: the larger cliques that pay, and pairs again."""
    left, chosen = 1.0 - COLUMNS - PAIR_SCORES - CLIQUE_SCORES, plan.chosen
    first = measured_cliques(codes, collapsed, domain, chosen, spend, left * FIRST, entropy)
    known = united([*one_way, *first])
    joined, sized = collapsed.apply(codes), parts_of(plan.problem, chosen)
    larger, parts = list(plan.asked), asked_parts(plan.asked, sum(sized))
    events: list[Event] = [marginal.event for marginal in first]
    if plan.tried:
        so_far = estimate(collapsed, known[: len(domain)], known[len(domain) :])
        distances = [distance(one.count(joined), expected(one, so_far)) for one in plan.tried]
        found, deviation, event = scores(distances, spend, CLIQUE_SCORES, entropy)
        events.append(event)
        gains = trusted(plan.tried, found, deviation, known[len(domain) :])
        more, their = worthwhile_looks(plan.tried, gains, sum(sized) + sum(parts), _outlook(plan.problem))
        larger, parts = larger + more, parts + their
    rest = left * (1 - FIRST if chosen.cliques else 1.0)
    again, shares = _rest(chosen, sized, parts)
    second = measured_cliques(codes, collapsed, domain, again, spend, rest, entropy)
    for one, share in zip(larger, shares, strict=True):
        variance = spend.variance(rest * share)
        second.append(measure(one.count(joined), one.clique, variance, spend.rows, entropy, one.coarser))
    events += [marginal.event for marginal in second]
    return [*first, *second], events, f"{chosen.reason}; {_reason(plan, larger)}"


def _reason(plan: _Plan, larger: list[Look]) -> str:
    asked, found = len(plan.asked), len(larger) - len(plan.asked)
    told = f"{asked} cliques were asked for; " if asked else ""
    if not found:
        return f"{told}none of {len(plan.tried)} further cliques shows enough beyond its noise"
    threes = sum(len(one.clique) > 2 for one in larger[asked:])
    return f"{told}{found} of {len(plan.tried)} further cliques show more, {threes} of them of three columns"


def _rest(chosen: Chosen, sized: list[float], parts: list[float]) -> tuple[Chosen, list[float]]:
    """Shares of the second half, for what was chosen first and for larger cliques.

    Each clique gets what it is meant to have of all, less what it had of the first half.
    """
    whole = sum(sized) + sum(parts)
    wanted = [max(z / whole - FIRST * share, 0.0) for z, share in zip(sized, chosen.shares, strict=True)]
    total = max(sum(wanted) + sum(parts) / max(whole, 1e-300), 1e-300)
    kept = [(clique, want / total) for clique, want in zip(chosen.cliques, wanted, strict=True) if want > LEAST * total]
    again = Chosen(tuple(clique for clique, _ in kept), tuple(share for _, share in kept))
    return again, [part / whole / total for part in parts]
