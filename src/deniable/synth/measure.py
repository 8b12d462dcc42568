"""The steps that methods have in common: measure columns, score pairs, measure what was selected.

Each step takes the records as an argument, keeps none of them, and returns noisy numbers with what they cost. What a
method is given beside the records (`MethodSettings`) is public.

The score of a clique is the L1 distance between its counts and an expectation made of public numbers: the product of
noisy columns, or what noisy pairs tell of three columns. One record more moves one count by one, so a unit of at most r
records moves a score by at most r, and the vector of all scores by at most r sqrt(cliques) in L2. Scores are taken in
thousandths and rounded down, which can add one thousandth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import Event, NoOpEvent
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.synth.bins import CollapsedDomain
from deniable.synth.domain import Areas, Clique, Domain
from deniable.synth.estimate import estimate_total
from deniable.synth.estimate.residuals import project_to_simplex
from deniable.synth.marginal import Floats, GaussianBudget, Marginal, Records, count_all, measure_counts
from deniable.synth.select import DENOISED, SCORE_DEVIATIONS, Selection, SelectionProblem, count_seen_values


@dataclass(frozen=True, slots=True)
class MethodSettings:
    """What may be spent, which columns somebody wants to see together, and which column is a place among places."""

    spend: GaussianBudget
    workload: tuple[Clique, ...] = ()
    """Cliques that the user's findings are about; a method may measure others as well."""
    areas: Areas | None = None
    """How the values of one column lie in one another, for methods that keep areas."""


def measure_columns(
    codes: Records, domain: Domain, spend: GaussianBudget, share: float, entropy: Entropy
) -> list[Marginal]:
    """Every column by itself, all with the same variance."""
    each = spend.variance(share / len(domain))
    alone = [(j,) for j in range(len(domain))]
    counted = zip(alone, count_all(codes, domain, alone), strict=True)
    return [measure_counts(exact, clique, each, spend.rows, entropy) for clique, exact in counted]


def measure_cliques(
    codes: Records,
    collapsed: CollapsedDomain,
    domain: Domain,
    chosen: Selection,
    spend: GaussianBudget,
    left: float,
    entropy: Entropy,
) -> list[Marginal]:
    """What was chosen, each with its share of what is left; single columns in full, cliques over joined values."""
    alone, several = ([clique for clique in chosen.cliques if (len(clique) == 1) is one] for one in (True, False))
    exact = dict(zip(alone, count_all(codes, domain, alone), strict=True)) if alone else {}
    if several:
        joined = count_all(collapsed.apply(codes), collapsed.domain, several)
        exact |= dict(zip(several, joined, strict=True))
    return [
        measure_counts(exact[clique], clique, spend.variance(left * share), spend.rows, entropy)
        for clique, share in zip(chosen.cliques, chosen.shares, strict=True)
    ]


def combine_marginals(marginals: Sequence[Marginal]) -> list[Marginal]:
    """One marginal a clique: several measurements are joined by inverse variances.

    Gaussian measurements of one clique, joined so, have the precision that one with the sum of their shares would have:
    nothing is lost by measuring in turns. The event stays that of the first.
    """
    found: dict[Clique, Marginal] = {}
    for marginal in marginals:
        first = found.get(marginal.clique)
        found[marginal.clique] = marginal if first is None else _combine_two(first, marginal)
    return list(found.values())


def _combine_two(first: Marginal, second: Marginal) -> Marginal:
    a, b = 1.0 / first.variance, 1.0 / second.variance
    counts = (a * first.counts + b * second.counts) / (a + b)
    return Marginal(first.clique, counts, 1.0 / (a + b), first.event)


def project_columns(collapsed: CollapsedDomain, one_way: Sequence[Marginal], total: float) -> list[Floats]:
    """Columns over joined values, from their own measurements alone."""
    return [project_to_simplex(collapsed.sum_counts(j, m), total) for j, m in enumerate(one_way)]


def score_pairs(
    codes: Records,
    collapsed: CollapsedDomain,
    one_way: list[Marginal],
    spend: GaussianBudget,
    share: float,
    left: float,
    entropy: Entropy,
) -> tuple[SelectionProblem, Event]:
    """Every pair's distance from independence, and what else is known when cliques are chosen.

    Where all values of a column were joined, or it has but one, no pair with it says anything: none is scored. Nor is
    any where the share is 0.
    """
    domain, total = collapsed.domain, estimate_total(one_way)
    columns = project_columns(collapsed, one_way, total)
    pairs = list_pairs(domain) if share else []

    def expect_independent(pair: Clique) -> Floats:
        return np.outer(columns[pair[0]], columns[pair[1]]) / max(total, 1.0)

    counted = count_all(collapsed.apply(codes), domain, pairs) if pairs else []
    distances = [l1_distance(exact, expect_independent(pair)) for pair, exact in zip(pairs, counted, strict=True)]
    found, deviation, event = score_distances(distances, spend, share, entropy)
    worth, noise = _forecast_column_errors(collapsed, one_way)
    # The noise of the one-way estimates alone moves a score away from zero by about their own error.
    trusted = found - SCORE_DEVIATIONS * deviation - np.array([noise[a] + noise[b] for a, b in pairs])
    seen = np.array([count_seen_values(m.counts.size, j in domain.ordered) for j, m in enumerate(one_way)])
    # Where the noise on each value is as large as that, more values are no more error: all is lost already.
    most = np.array([max(total / math.sqrt(m.variance), 2.0) for m in one_way])
    cells = np.minimum(seen, most)
    sizes = tuple(count_seen_values(size, j in domain.ordered) for j, size in enumerate(domain.sizes))
    amount = float(spend.amount) * left
    within = np.maximum(1.0 - noise / (worth * seen), 0.0)
    known = (domain, pairs, trusted, cells, worth * cells, within, amount, spend.rows, total, sizes)
    chance = _forecast_chance(pairs, columns, total)
    told = _subtract_chance(found, pairs, chance, noise)
    spans = _find_spans(columns, total)
    return SelectionProblem(*known, told=told, spans=spans, deviation=deviation, chance=chance), event


def list_pairs(domain: Domain) -> list[Clique]:
    """The pairs that can say anything: of columns with several values."""
    return [pair for pair in domain.useful(2) if min(domain.shape(pair)) > 1]


def can_scores_show(collapsed: CollapsedDomain, one_way: list[Marginal], spend: GaussianBudget, share: float) -> bool:
    """Whether the largest score that any pair could have would stand out of the noise, with that share."""
    pairs, total = list_pairs(collapsed.domain), estimate_total(one_way)
    spans = _find_spans(project_columns(collapsed, one_way, total), total)
    noise = _forecast_column_errors(collapsed, one_way)[1]
    deviation = _forecast_deviation(len(pairs), spend, share)
    return any(spans[a] * spans[b] > SCORE_DEVIATIONS * deviation + noise[a] + noise[b] for a, b in pairs)


def forecast_scores(collapsed: CollapsedDomain, one_way: list[Marginal], spend: GaussianBudget, share: float) -> float:
    """The deviation of the noise on a score, as a part of the largest that a pair could have, on average."""
    pairs, total = list_pairs(collapsed.domain), estimate_total(one_way)
    spans = _find_spans(project_columns(collapsed, one_way, total), total)
    largest = sum(float(spans[a] * spans[b]) for a, b in pairs) / max(len(pairs), 1)
    return _forecast_deviation(len(pairs), spend, share) / max(largest, 1.0)


def _forecast_deviation(pairs: int, spend: GaussianBudget, share: float) -> float:
    return math.sqrt(float(spend.variance(share, spend.rows**2 * max(pairs, 1))))


def _find_spans(columns: list[Floats], total: float) -> Floats:
    """For each column the root of the score that it would have with itself."""
    return np.array([math.sqrt(max(2 * total * (1 - float(((c / total) ** 2).sum())), 1.0)) for c in columns])


def _forecast_column_errors(collapsed: CollapsedDomain, one_way: list[Marginal]) -> tuple[Floats, Floats]:
    """The expected error of a value of each column, and of all values of it together, where rare ones were joined."""
    worth = DENOISED * math.sqrt(2 / math.pi) * np.array([math.sqrt(m.variance) for m in one_way])
    return worth, worth * np.array([np.sqrt(collapsed.sizes(j)).sum() for j in range(len(one_way))])


def _forecast_chance(pairs: list[Clique], columns: list[Floats], total: float) -> Floats:
    """What the counts of independent columns differ from their expectation on average, by chance alone.

    A cell that expects n records differs from that by sqrt(2 n / pi), less for the margins, which are known.
    """
    spread = [float(np.sqrt(column).sum()) * math.sqrt(1 - 1 / column.size) for column in columns]
    chance: Floats = np.array([math.sqrt(2 / (math.pi * total)) * spread[a] * spread[b] for a, b in pairs])
    return chance


def _subtract_chance(scores: Floats, pairs: list[Clique], chance: Floats, noise: Floats) -> Floats:
    """Scores less what independent columns have on average, by chance and by the noise on them: squares add up."""
    floor = np.hypot(chance, np.array([noise[a] + noise[b] for a, b in pairs]))
    beyond: Floats = np.where(scores > floor, np.sqrt(np.maximum(scores**2 - floor**2, 0.0)), scores - floor)
    return beyond


FINENESS = 1000


def score_distances(
    distances: Sequence[float], spend: GaussianBudget, share: float, entropy: Entropy = SYSTEM
) -> tuple[Floats, float, Event]:
    """Noisy scores from exact distances, the deviation of their noise, and what was run; nothing, of no distances."""
    if not distances:
        return np.zeros(0), 0.0, NoOpEvent()
    exact = np.array([math.floor(distance * FINENESS) for distance in distances], dtype=np.int64)
    each = spend.rows * FINENESS + 1
    squared = each * each * len(distances)
    variance = spend.variance(share, squared)
    mechanism = GaussianMechanism(variance, Fraction(squared))
    noisy = mechanism.release(exact, entropy).astype(np.float64) / FINENESS
    return noisy, float(variance) ** 0.5 / FINENESS, mechanism.event


def l1_distance(counts: NDArray[np.int64], expected: Floats) -> float:
    """The L1 distance between exact and expected counts. It is private: only `score_distances` may let it out."""
    return float(np.abs(counts - expected).sum())
