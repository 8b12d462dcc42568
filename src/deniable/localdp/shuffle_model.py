"""The shuffle model: mix responses before anybody reads them, and the crowd hides each one better.

Feldman, McMillan, Talwar ("Hiding among the clones", 2021): among n responses of an epsilon0-local randomizer, each
other respondent is, with probability e^-epsilon0, as good as a copy of anybody; the number of such clones hides who
said what. Both their closed form and the numeric bound behind it are here; the smaller is what is claimed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, permutation
from deniable.errors import ParameterError
from deniable.localdp.protocol import Responses, count_responses

_GROUPS = 200  # clone counts are taken together in so many groups, each priced at its worst member

BEYOND_CROWDS = 100.0
"""A local epsilon from which on no crowd hides anybody: one in e^100 respondents is a clone."""


@dataclass(frozen=True, slots=True)
class Amplified:
    """What shuffling makes of a local epsilon: the central (epsilon, delta) and the method that gave it."""

    local_epsilon: float
    epsilon: float
    delta: float
    respondents: int
    method: str


def amplify(local_epsilon: float, respondents: int, delta: float) -> Amplified:
    """The smallest central epsilon that is proven for shuffled responses; never above the local one.

    >>> amplify(1.0, 100_000, 1e-8).epsilon < 0.05
    True
    """
    _check(local_epsilon, respondents, delta)
    bounds = [
        (local_epsilon, "none: too few respondents for this epsilon"),
        (bound_in_closed_form(local_epsilon, respondents, delta), "closed form"),
        (bound_numerically(local_epsilon, respondents, delta), "numeric"),
    ]
    epsilon, method = min(bounds)
    return Amplified(local_epsilon, epsilon, delta, respondents, method)


def _check(local_epsilon: float, respondents: int, delta: float) -> None:
    if not (local_epsilon > 0 and respondents >= 1 and 0 < delta < 1):
        raise ParameterError(
            f"local epsilon {local_epsilon:g}, {respondents} respondents, delta {delta:g}",
            expected="A positive epsilon, at least one respondent, a delta between 0 and 1",
        )


def bound_in_closed_form(local_epsilon: float, respondents: int, delta: float) -> float:
    """Theorem 3.1: ln(1 + (e^e0 - 1)/(e^e0 + 1) (8 sqrt(e^e0 ln(4/delta)) / sqrt n + 8 e^e0 / n)).

    It holds for e0 <= ln(n / (16 ln(2/delta))); beyond, there is no amplification by this form (infinity).
    """
    _check(local_epsilon, respondents, delta)
    if math.log(respondents) <= local_epsilon + math.log(16 * math.log(2 / delta)):
        return math.inf
    odds = math.exp(local_epsilon)
    spread = 8 * math.sqrt(odds * math.log(4 / delta) / respondents) + 8 * odds / respondents
    return math.log1p((odds - 1) / (odds + 1) * spread)


def bound_numerically(local_epsilon: float, respondents: int, delta: float, precision: float = 1e-4) -> float:
    """The least epsilon, rounded up to the relative precision, at which the clones' distributions are delta-close."""
    _check(local_epsilon, respondents, delta)
    if local_epsilon > BEYOND_CROWDS:
        return math.inf
    groups = _group_clones(local_epsilon, respondents)
    if bound_delta(local_epsilon, local_epsilon, groups) > delta:
        return math.inf
    low, high = 0.0, local_epsilon
    while high - low > precision * high:
        middle = (low + high) / 2
        low, high = (low, middle) if bound_delta(local_epsilon, middle, groups) <= delta else (middle, high)
    return high


def _group_clones(local_epsilon: float, respondents: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Numbers of clones, Bin(n - 1, e^-e0), in groups: the least member and the probability of each group.

    Fewer clones hide less, so pricing a group at its least member overstates delta. Everything below the listed
    range counts as no clone at all.
    """
    others, chance = respondents - 1, math.exp(-local_epsilon)
    reach = 40 + 12 * math.sqrt(others * chance * (1 - chance))
    low, high = max(0, math.floor(others * chance - reach)), min(others, math.ceil(others * chance + reach))
    counts = np.arange(low, high + 1)
    weights = binomial(counts, others, chance)
    edges = np.unique(np.linspace(0, len(counts), _GROUPS + 1).astype(np.int64))[:-1]
    grouped = np.add.reduceat(weights, edges)
    return np.append(counts[edges], 0), np.append(grouped, max(0.0, 1 - grouped.sum()))


def binomial(counts: NDArray[np.int64], trials: int, chance: float) -> NDArray[np.float64]:
    """Probabilities of counts under Bin(trials, chance), through logarithms of factorials."""
    if trials == 0 or chance >= 1:
        return np.where(counts == (trials if chance >= 1 else 0), 1.0, 0.0)
    log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])
    choose = math.lgamma(trials + 1) - log_gamma(counts + 1.0) - log_gamma(trials - counts + 1.0)
    logarithms = choose + counts * math.log(chance) + (trials - counts) * math.log1p(-chance)
    probabilities: NDArray[np.float64] = np.exp(logarithms)
    return probabilities


def bound_delta(local_epsilon: float, epsilon: float, groups: tuple[NDArray[np.int64], NDArray[np.float64]]) -> float:
    """The delta at a central epsilon (Theorem 3.2), averaged over the number of clones.

    With c clones, A ~ Bin(c, 1/2) of them look like one answer. The true respondent adds to that side with
    probability t = e^e0 / (e^e0 + 1) under one answer and 1 - t under the other. Counts a of that side then have
    P(a) = t B(a-1) + (1-t) B(a) against Q(a) = (1-t) B(a-1) + t B(a); with B(a-1)/B(a) = a / (c+1-a), P exceeds
    e^eps Q exactly for large a, so delta is a difference of two tails.
    """
    # P > e^eps Q  <=>  (t - e^eps (1-t)) a > (e^eps t - (1-t)) (c + 1 - a). With 1-t = t e^-e0 neither side is a
    # difference of two numbers near 1, of which nothing is left in 53 bits from an epsilon of 36 on.
    truth = 1 / (1 + math.exp(-local_epsilon))
    gain = -truth * math.expm1(epsilon - local_epsilon)
    loss = truth * (math.exp(epsilon) - math.exp(-local_epsilon))
    delta = 0.0
    for clones, weight in zip(*groups, strict=True):
        if weight > 0:
            delta += float(weight) * _bound_delta_with(int(clones), gain, loss)
    return delta


def _bound_delta_with(clones: int, gain: float, loss: float) -> float:
    if gain <= 0:
        return 0.0
    first = clones + 2 - math.ceil(gain * (clones + 1) / (gain + loss))
    reach = math.ceil(clones / 2 + 8 * math.sqrt(clones + 1)) + 2  # 16 standard deviations: e^-128 lies beyond
    last = min(clones + 1, max(first, reach))
    tail = _half_binomial(np.arange(first - 1, last + 1), clones)
    upper, lower = float(tail[:-1].sum()), float(tail[1:].sum())  # sums of B(a-1) and of B(a) over a >= first
    return max(0.0, gain * upper - loss * lower)


def _half_binomial(counts: NDArray[np.int64], trials: int) -> NDArray[np.float64]:
    """Probabilities under Bin(trials, 1/2), built from the largest one by ratios; zero outside."""
    inside = (counts >= 0) & (counts <= trials)
    held = np.clip(counts, 0, trials)
    first = int(held[0])
    start = math.lgamma(trials + 1) - math.lgamma(first + 1) - math.lgamma(trials - first + 1) - trials * math.log(2)
    steps = np.diff(held)
    ratios = np.where(steps == 1, np.log(np.maximum(trials - held[:-1], 1e-300)) - np.log(held[:-1] + 1.0), 0.0)
    probabilities: NDArray[np.float64] = np.exp(start + np.concatenate(([0.0], np.cumsum(ratios))))
    return np.where(inside, probabilities, 0.0)


def shuffle(responses: Responses, entropy: Entropy = SYSTEM) -> Responses:
    """One batch in a uniformly random order; what is not in the layout never enters, so nothing else leaves."""
    order = permutation(count_responses(responses), entropy=entropy)
    return tuple(np.ascontiguousarray(column[order]) for column in responses)
