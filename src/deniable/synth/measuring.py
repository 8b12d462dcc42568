"""The steps that methods have in common: measure columns, score pairs, measure what was chosen.

Each step takes the records as an argument, keeps none of them, and returns noisy numbers with what they cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deniable.dp.accounting import Event
from deniable.dp.samplers import Entropy
from deniable.synth.choose import DENOISED, Chosen, Problem
from deniable.synth.collapse import Collapsed
from deniable.synth.dependence import distance, scores
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import total_of
from deniable.synth.marginal import Codes, Floats, Marginal, count, measure
from deniable.synth.simplex import project
from deniable.synth.spending import Spending

DEVIATIONS = 2.0
"""How far a pair's score must stand out of its noise to count: many are scored, and chance makes some large."""


def measured_columns(codes: Codes, domain: Domain, spend: Spending, share: float, entropy: Entropy) -> list[Marginal]:
    """Every column by itself, all with the same variance."""
    each = spend.variance(share / len(domain))
    return [measure(count(codes, domain, (j,)), (j,), each, spend.rows, entropy) for j in range(len(domain))]


def measured_cliques(
    codes: Codes, collapsed: Collapsed, domain: Domain, chosen: Chosen, spend: Spending, left: float, entropy: Entropy
) -> list[Marginal]:
    """What was chosen, each with its share of what is left; single columns in full, cliques over joined values."""
    joined = collapsed.apply(codes)
    found = []
    for clique, share in zip(chosen.cliques, chosen.shares, strict=True):
        exact = count(codes, domain, clique) if len(clique) == 1 else count(joined, collapsed.domain, clique)
        found.append(measure(exact, clique, spend.variance(left * share), spend.rows, entropy))
    return found


def united(marginals: Sequence[Marginal]) -> list[Marginal]:
    """One marginal a clique: several measurements are joined by inverse variances.

    Gaussian measurements of one clique, joined so, have the precision that one with the sum of their shares would have:
    nothing is lost by measuring in turns. The event stays that of the first.
    """
    found: dict[Clique, Marginal] = {}
    for marginal in marginals:
        first = found.get(marginal.clique)
        found[marginal.clique] = marginal if first is None else _united(first, marginal)
    return list(found.values())


def _united(first: Marginal, second: Marginal) -> Marginal:
    a, b = 1.0 / first.variance, 1.0 / second.variance
    counts = (a * first.counts + b * second.counts) / (a + b)
    return Marginal(first.clique, counts, 1.0 / (a + b), first.event)


def rough_columns(collapsed: Collapsed, one_way: Sequence[Marginal], total: float) -> list[Floats]:
    """Columns over joined values, from their own measurements alone."""
    return [project(collapsed.summed(j, m.counts), total) for j, m in enumerate(one_way)]


def scored_pairs(
    codes: Codes,
    collapsed: Collapsed,
    one_way: list[Marginal],
    spend: Spending,
    share: float,
    left: float,
    entropy: Entropy,
) -> tuple[Problem, Event]:
    """Every pair's distance from independence, and what else is known when cliques are chosen.

    Where all values of a column were joined, or it has but one, no pair with it says anything: none is scored.
    """
    domain, total = collapsed.domain, total_of(one_way)
    columns = rough_columns(collapsed, one_way, total)
    pairs: list[Clique] = [pair for pair in domain.useful(2) if min(domain.shape(pair)) > 1]

    def independent(pair: Clique) -> Floats:
        return np.outer(columns[pair[0]], columns[pair[1]]) / max(total, 1.0)

    joined = collapsed.apply(codes)
    distances = [distance(count(joined, domain, pair), independent(pair)) for pair in pairs]
    found, deviation, event = scores(distances, spend, share, entropy)
    worth = DENOISED * math.sqrt(2 / math.pi) * np.array([math.sqrt(m.variance) for m in one_way])
    noise = worth * np.array([np.sqrt(collapsed.sizes(j)).sum() for j in range(len(domain))])
    # The noise of the one-way estimates alone moves a score away from zero by about their own error.
    trusted = found - DEVIATIONS * deviation - np.array([noise[a] + noise[b] for a, b in pairs])
    cells = np.array([m.counts.size for m in one_way], dtype=np.float64)
    amount = float(spend.amount) * left
    within = 1.0 - noise / (worth * cells)
    return Problem(domain, pairs, trusted, cells, worth * cells, within, amount, spend.rows, total), event
