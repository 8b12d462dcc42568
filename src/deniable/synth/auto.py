"""The default: pairs that bring more than their noise costs, then cliques of three that show what pairs do not.

    columns -> score pairs -> measure pairs -> score cliques of three -> measure those that pay, and pairs again

Pairs are measured with half of what is left at first. Measuring them again later loses nothing (`measuring.united`), so
the second half goes wherever it helps most once the scores of three columns are known. Where no clique of three could
stand out of the noise, none is scored, and pairs get all: at a small budget that is the choice of pairs alone, and at a
tiny one columns stay independent.
"""

from __future__ import annotations

from dataclasses import replace

from deniable.dp.accounting import ComposedEvent, Event
from deniable.dp.samplers import Entropy
from deniable.synth.choose import Chosen, Problem, parts_of, worthwhile
from deniable.synth.collapse import Collapsed, collapse
from deniable.synth.dependence import scores
from deniable.synth.description import Description
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import estimate
from deniable.synth.independent import independent
from deniable.synth.interactions import Outlook, candidates, chosen_interactions, expectation, trusted
from deniable.synth.marginal import Codes, Marginal
from deniable.synth.measuring import measured_cliques, measured_columns, scored_pairs, united
from deniable.synth.terms import Terms

COLUMNS, PAIR_SCORES, CLIQUE_SCORES = 0.15, 0.05, 0.03
FIRST = 0.5
"""The part of their shares with which pairs are measured before cliques of three are scored."""


def auto(codes: Codes, domain: Domain, terms: Terms, entropy: Entropy) -> Description:
    """Measure what lowers the expected error most."""
    if len(domain) == 1:
        return replace(independent(codes, domain, terms, entropy), method="auto")
    spend, left = terms.spend, 1.0 - COLUMNS - PAIR_SCORES
    one_way = measured_columns(codes, domain, spend, COLUMNS, entropy)
    collapsed = collapse(domain, one_way)
    problem, scored = scored_pairs(codes, collapsed, one_way, spend, PAIR_SCORES, left, entropy)
    chosen = worthwhile(problem)
    tried = candidates(collapsed.domain, _outlook(problem), terms.workload) if len(domain) > 2 else []
    if tried:
        measured, events, reason = _in_turns(codes, collapsed, domain, one_way, problem, chosen, tried, terms, entropy)
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


def _in_turns(
    codes: Codes,
    collapsed: Collapsed,
    domain: Domain,
    one_way: list[Marginal],
    problem: Problem,
    chosen: Chosen,
    tried: list[Clique],
    terms: Terms,
    entropy: Entropy,
) -> tuple[list[Marginal], list[Event], str]:
    """Pairs, scores of larger cliques, and then what these say: the larger cliques that pay, and pairs again."""
    spend, left = terms.spend, 1.0 - COLUMNS - PAIR_SCORES - CLIQUE_SCORES
    first = measured_cliques(codes, collapsed, domain, chosen, spend, left * FIRST, entropy)
    known = united([*one_way, *first])
    so_far = estimate(collapsed, known[: len(domain)], known[len(domain) :])
    joined = collapsed.apply(codes)
    found, deviation, event = scores(
        joined, collapsed.domain, tried, expectation(so_far), spend, CLIQUE_SCORES, entropy
    )
    gains = trusted(tried, found, deviation, known[len(domain) :], terms.workload)
    sized = parts_of(problem, chosen)
    larger = chosen_interactions(collapsed.domain, tried, gains, sum(sized), _outlook(problem), terms.workload)
    rest = _rest(chosen, sized, larger)
    second = measured_cliques(
        codes, collapsed, domain, rest, spend, left * (1 - FIRST if chosen.cliques else 1), entropy
    )
    events: list[Event] = [*(marginal.event for marginal in first), event, *(marginal.event for marginal in second)]
    return [*first, *second], events, f"{chosen.reason}; {larger.reason}"


def _rest(chosen: Chosen, sized: list[float], larger: Chosen) -> Chosen:
    """Shares of the second half: what each clique is meant to have of all, less what it had of the first half."""
    whole = sum(sized) + sum(larger.shares)
    meant = [*(part / whole for part in sized), *(part / whole for part in larger.shares)]
    had = [*(FIRST * share for share in chosen.shares), *(0.0 for _ in larger.shares)]
    wanted = [max(m - h, 0.0) for m, h in zip(meant, had, strict=True)]
    kept = [
        (clique, want) for clique, want in zip((*chosen.cliques, *larger.cliques), wanted, strict=True) if want > 1e-4
    ]
    total = sum(want for _, want in kept)
    return Chosen(tuple(clique for clique, _ in kept), tuple(want / total for _, want in kept))
