"""Do mechanisms follow their laws? In each test the right parameters pass and ones thirty per cent off fail."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from deniable.dp.mechanisms import (
    AboveThreshold,
    ExponentialMechanism,
    GaussianMechanism,
    KeyThreshold,
    LaplaceMechanism,
    NoisyMaxMechanism,
    QuantileMechanism,
)
from deniable.dp.mechanisms.threshold import gaussian_reach, laplace_reach
from deniable.policy.budget import PureDP
from seeded import SeededEntropy

SCORES = np.array([0, 1, 2, 4])
OFF = (1, 0.7, 1.3)


def fits(counts, weights) -> bool:
    """Whether counts could come from probabilities proportional to these weights."""
    expected = np.asarray(weights, dtype=float) / np.sum(weights) * np.sum(counts)
    return bool(chisquare(counts, expected).pvalue > 1e-4)


def test_laplace_noise_has_its_scale():
    noise = LaplaceMechanism(4).release(np.zeros(20_000, dtype=np.int64), SeededEntropy(1))
    line = np.arange(-8, 9)
    counts = [int((noise == x).sum()) for x in line]
    assert [fits(counts, np.exp(-np.abs(line) / (4 * off))) for off in OFF] == [True, False, False]


def test_gaussian_noise_has_its_variance():
    noise = GaussianMechanism(16).release(np.zeros(20_000, dtype=np.int64), SeededEntropy(2))
    line = np.arange(-10, 11)
    counts = [int((noise == x).sum()) for x in line]
    assert [fits(counts, np.exp(-(line**2) / (2 * 16 * off**2))) for off in OFF] == [True, False, False]


def test_the_exponential_mechanism_has_its_unit():
    mechanism, entropy = ExponentialMechanism(1), SeededEntropy(3)
    counts = np.bincount([mechanism.release(SCORES, entropy) for _ in range(3000)], minlength=4)
    assert [fits(counts, np.exp(0.5 * off * SCORES)) for off in OFF] == [True, False, False]


def permute_and_flip_law(unit: float) -> list[float]:
    """Exact probabilities over all orders of the four candidates."""
    from itertools import permutations

    coins = np.exp(unit * (SCORES - SCORES.max()))
    law = np.zeros(4)
    for order in permutations(range(4)):
        missed = 1.0
        for candidate in order:
            law[candidate] += missed * coins[candidate] / 24
            missed *= 1 - coins[candidate]
    return law.tolist()


def test_noisy_max_has_its_law():
    mechanism, entropy = NoisyMaxMechanism(1), SeededEntropy(4)
    counts = np.bincount([mechanism.release(SCORES, entropy) for _ in range(3000)], minlength=4)
    assert [fits(counts, permute_and_flip_law(0.5 * off)) for off in OFF] == [True, False, False]


def rank_costs_by_definition(values: list[int], q: Fraction, lower: int, upper: int) -> list[float]:
    """The naive twin: the cost of every integer from its definition."""
    n, costs = len(values), []
    for o in range(lower, upper + 1):
        below, above = sum(v < o for v in values), sum(v > o for v in values)
        costs.append(float(max(below - q * n, above - (1 - q) * n)))
    return costs


def exponential_law(costs: list[float], unit: float) -> list[float]:
    return [math.exp(-unit * cost) for cost in costs]


def flipped_law(costs: list[float], unit: float) -> list[float]:
    """A heads with probability p_i, and then it is first in a random order of all heads: one over their number.

    1 / (1 + k) is the integral of t^k, so the law is p_i times the integral of prod (1 - p_j + p_j t) over the others.
    """
    heads = np.exp(-unit * (np.array(costs) - min(costs)))
    points, weights = np.polynomial.legendre.leggauss(50)
    factors = 1 - heads + heads * ((points + 1) / 2)[:, np.newaxis]
    others = [np.prod(np.delete(factors, i, axis=1), axis=1) for i in range(len(costs))]
    return [float(heads[i] * (weights / 2) @ other) for i, other in enumerate(others)]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("flips", [False, True])
@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(1, 4), Fraction(9, 10)])
def test_a_quantile_has_the_law_of_its_naive_twin(q, flips):
    values, entropy = [3, 3, 3, 7, 8, 8, 12, 20, -4, 6, 6, 1], SeededEntropy(5)
    mechanism = QuantileMechanism((q,), 0, 14, 2, flips=flips)
    counts = np.bincount([int(mechanism.release(values, entropy)[0]) for _ in range(4000)], minlength=15)
    clamped = [min(max(v, 0), 14) for v in values]
    unit = 2 / (2 * max(q, 1 - q))
    costs, law = rank_costs_by_definition(clamped, q, 0, 14), flipped_law if flips else exponential_law
    assert [fits(counts, law(costs, float(unit) * off)) for off in OFF] == [True, False, False]


@pytest.mark.parametrize("flips", [False, True])
def test_quantiles_of_many_groups_have_the_law_of_one(flips):
    values = [3, 3, 3, 7, 8, 8, 12]
    mechanism = QuantileMechanism((Fraction(1, 2),), 0, 14, 2, flips=flips)
    distinct, counts = np.unique(values, return_counts=True)
    group = np.repeat(np.arange(3000), distinct.size)
    drawn = mechanism.release_groups(np.tile(distinct, 3000), np.tile(counts, 3000), group, 3001, SeededEntropy(8))
    costs, law = (
        rank_costs_by_definition(values, Fraction(1, 2), 0, 14),
        flipped_law if flips else exponential_law,
    )
    found = np.bincount(drawn[:3000, 0], minlength=15)
    assert [fits(found, law(costs, 2 * off)) for off in OFF] == [True, False, False]


@pytest.mark.parametrize(("gaussian", "seed"), [(False, 6), (True, 7)])
def test_a_key_of_one_unit_is_shown_with_probability_delta_at_most_and_not_much_less(gaussian, seed):
    from deniable.policy.budget import ZCDP, PureDP

    mechanism = KeyThreshold.within(ZCDP("1/5000") if gaussian else PureDP("1/5"), "0.02", 1, gaussian=gaussian)
    runs = 200_000
    shown = len(mechanism.release(np.ones(runs, dtype=np.int64), SeededEntropy(seed))[0])
    spread = 5 * math.sqrt(0.02 * runs)
    assert 0.6 * 0.02 * runs < shown <= 0.02 * runs + spread
    lower = int(mechanism.threshold * 0.7)  # thirty per cent less would show twice as many and more
    assert int((mechanism.noise.release(np.ones(runs, dtype=np.int64), SeededEntropy(8)) >= lower).sum()) > shown * 2


@pytest.mark.parametrize("scale", [Fraction(1, 10), Fraction(1), Fraction(37, 3)])
@pytest.mark.parametrize("p", [Fraction(1, 4), Fraction(1, 1000), Fraction(1, 10**12)])
def test_the_laplace_reach_is_the_least_whole_number(scale, p):
    q, m = math.exp(-1 / float(scale)), laplace_reach(scale, p)

    def tail(k: int) -> float:
        return q**k / (1 + q)

    assert tail(m) <= float(p) * (1 + 1e-9)
    assert m == 1 or tail(m - 1) > float(p)


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(1), Fraction(100)])
@pytest.mark.parametrize("p", [Fraction(1, 4), Fraction(1, 1000), Fraction(1, 10**10)])
def test_the_gaussian_reach_is_safe_and_at_most_two_too_far(variance, p):
    line = np.arange(-400, 401)
    law = np.exp(-(line**2) / (2 * float(variance)))
    law /= law.sum()
    m = gaussian_reach(variance, p)

    def tail(k: int) -> float:
        return float(law[line >= k].sum())

    assert tail(m) <= p
    assert m <= 2 or tail(m - 2) > p


def svt_law(mechanism: AboveThreshold, answers: list[int], scale: float) -> list[float]:
    """P[first find is i], and P[none], by summing over the threshold's noise."""
    line = np.arange(-150, 151)
    noise = np.exp(-np.abs(line) / scale)
    noise /= noise.sum()
    below = np.cumsum(noise)
    law = np.zeros(len(answers) + 1)
    for shift, weight in zip(line, noise, strict=True):
        missed = weight
        for i, answer in enumerate(answers):
            least = mechanism.threshold + shift - answer  # found if the answer's noise is at least this
            miss = float(below[np.clip(least - 1 + 150, 0, 300)]) if least - 1 >= -150 else 0.0
            law[i] += missed * (1 - miss)
            missed *= miss
        law[-1] += missed
    return law.tolist()


def test_the_sparse_vector_has_its_law():
    mechanism, entropy, answers = AboveThreshold(10, 2), SeededEntropy(9), [7, 9, 8, 12]
    finds = [mechanism.release(answers, entropy) for _ in range(3000)]
    counts = np.bincount([int(f[0]) if f.size else 4 for f in finds], minlength=5)
    assert [fits(counts, svt_law(mechanism, answers, 1.5 * off)) for off in OFF] == [True, False, False]


@pytest.mark.parametrize("shape", ["spread", "heaped"])
def test_quartiles_together_err_much_less_than_with_a_split_budget(shape):
    """Seeded, so without a chance of a false alarm; over 300 releases of both on one table."""
    values = np.sort(np.random.default_rng(1).integers(0, 21 if shape == "heaped" else 1001, 500))
    values = values * (50 if shape == "heaped" else 1)
    asked, runs = [Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)], 300

    def errors(quantiles: list[Fraction], epsilon: Fraction, seed: int) -> float:
        mechanism = QuantileMechanism.within(PureDP(epsilon), quantiles, 0, 1000)
        group, ones = np.repeat(np.arange(runs), values.size), np.ones(runs * values.size, dtype=np.int64)
        drawn = mechanism.release_groups(np.tile(values, runs), ones, group, runs, SeededEntropy(seed))
        targets = np.array([float(q) for q in quantiles]) * values.size
        below, above = np.searchsorted(values, drawn), values.size - np.searchsorted(values, drawn, side="right")
        return float(np.maximum(np.maximum(below - targets, above - values.size + targets), 0).mean())

    together = errors(asked, Fraction(1), 21)
    apart = np.mean([errors([q], Fraction(1, 3), 22 + i) for i, q in enumerate(asked)])
    assert together < 0.75 * apart
