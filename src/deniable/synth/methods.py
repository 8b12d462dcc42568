"""The methods that describe a coded table: one pipeline, and a table of ways to choose what is measured.

    measure every column -> score every pair -> choose cliques -> measure them -> estimate

Everything measured is Gaussian and priced as one Gaussian (`spending`). METHODS lists the ways by name; a method is a
pair of shares (for columns, for scores) and a choice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deniable.dp.accounting import ComposedEvent, Event
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.synth.choose import DENOISED, Chosen, Problem, tree, worthwhile
from deniable.synth.collapse import Collapsed, collapse
from deniable.synth.dependence import scores
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates, estimate, total_of
from deniable.synth.marginal import Codes, Marginal, count, measure
from deniable.synth.network import network
from deniable.synth.simplex import project
from deniable.synth.spending import Spending

Choice = Callable[[Problem], Chosen]


@dataclass(frozen=True, slots=True)
class Method:
    """How the spending is divided, and how cliques are chosen from scores; no scores where nothing is chosen."""

    name: str
    summary: str
    columns: float
    scores: float
    choose: Choice | None


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("independent", "every column by itself", 1.0, 0.0, None),
        Method("correlated", "a Bayesian network of degree two (PrivBayes)", 0.2, 0.1, network),
        Method("mst", "a maximum spanning tree of pairs", 1 / 3, 0.05, tree),
        Method("auto", "as many pairs as bring more than their noise costs", 0.15, 0.05, worthwhile),
    )
}


@dataclass(frozen=True, slots=True, eq=False)
class Description:
    """What was learned of a coded table: public. The event is what it cost."""

    method: str
    domain: Domain
    collapsed: Collapsed
    one_way: tuple[Marginal, ...]
    cliques: tuple[Marginal, ...]
    """Of two columns or more, over the collapsed domain."""
    estimates: Estimates
    event: Event
    reason: str = ""
    """Why these cliques."""


def describe(codes: Codes, domain: Domain, method: Method, spend: Spending, entropy: Entropy = SYSTEM) -> Description:
    """Measure a coded table by a method; the only function of this room that sees records."""
    each = spend.variance(method.columns / len(domain))
    one_way = [measure(count(codes, domain, (j,)), (j,), each, spend.rows, entropy) for j in range(len(domain))]
    collapsed = collapse(domain, one_way)
    cliques: list[Marginal] = []
    events: list[Event] = [marginal.event for marginal in one_way]
    reason = method.summary
    if method.choose is not None and len(domain) > 1:
        joined = collapsed.apply(codes)
        chosen, scored = _chosen(joined, collapsed, one_way, method, spend, entropy)
        left = 1.0 - method.columns - method.scores
        again: list[Marginal] = []
        for clique, share in zip(chosen.cliques, chosen.shares, strict=True):
            single = len(clique) == 1
            exact = count(codes, domain, clique) if single else count(joined, collapsed.domain, clique)
            (again if single else cliques).append(
                measure(exact, clique, spend.variance(left * share), spend.rows, entropy)
            )
        events += [scored, *(marginal.event for marginal in (*again, *cliques))]
        reason = chosen.reason
        one_way = [_joined(marginal, again) for marginal in one_way]
    estimates = estimate(collapsed, one_way, cliques)
    event = ComposedEvent(tuple(events))
    return Description(method.name, domain, collapsed, tuple(one_way), tuple(cliques), estimates, event, reason)


def _joined(marginal: Marginal, again: list[Marginal]) -> Marginal:
    """Two measurements of one column as one, by inverse variances; the event stays that of the first."""
    twin = next((other for other in again if other.clique == marginal.clique), None)
    if twin is None:
        return marginal
    a, b = 1.0 / marginal.variance, 1.0 / twin.variance
    counts = (a * marginal.counts + b * twin.counts) / (a + b)
    return Marginal(marginal.clique, counts, 1.0 / (a + b), marginal.event)


def _chosen(
    codes: Codes, collapsed: Collapsed, one_way: list[Marginal], method: Method, spend: Spending, entropy: Entropy
) -> tuple[Chosen, Event]:
    assert method.choose is not None
    domain, total = collapsed.domain, total_of(one_way)
    columns = [project(collapsed.summed(j, m.counts), total) for j, m in enumerate(one_way)]
    pairs: list[Clique] = list(itertools.combinations(range(len(domain)), 2))
    found, deviation, event = scores(codes, domain, pairs, columns, total, spend, method.scores, entropy)
    worth = DENOISED * math.sqrt(2 / math.pi) * np.array([math.sqrt(m.variance) for m in one_way])
    noise = worth * np.array([np.sqrt(collapsed.sizes(j)).sum() for j in range(len(domain))])
    # The noise of the one-way estimates alone moves a score away from zero by about their own error.
    trusted = found - deviation - np.array([noise[a] + noise[b] for a, b in pairs])
    amount = float(spend.amount) * (1.0 - method.columns - method.scores)
    cells = np.array([m.counts.size for m in one_way], dtype=np.float64)
    problem = Problem(domain, pairs, trusted, cells, worth * cells, amount, spend.rows, total)
    return method.choose(problem), event
