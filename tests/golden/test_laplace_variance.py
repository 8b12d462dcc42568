"""Golden figures of the discrete laws: closed forms on one side, draws on the other."""

from fractions import Fraction
from itertools import pairwise
from math import exp

import numpy as np
import pytest

from deniable.dp.samplers import discrete_gaussian, discrete_laplace, geometric
from seeded import SeededEntropy

DRAWS = 400_000


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(2), Fraction(10), Fraction(1000)], ids=str)
def test_the_variance_of_the_discrete_laplace_is_two_q_over_one_minus_q_squared(scale: Fraction) -> None:
    q = exp(-1 / scale)
    variance = 2 * q / (1 - q) ** 2
    drawn = discrete_laplace(scale, DRAWS, entropy=SeededEntropy(21))
    # The fourth moment of a two-sided geometric law bounds the error of the estimate by a few times variance / sqrt(n).
    assert drawn.var() == pytest.approx(variance, rel=6 * (5 + 1 / variance) ** 0.5 / DRAWS**0.5)
    assert drawn.var() != pytest.approx(variance * 1.1, rel=0.03)


def test_a_count_with_epsilon_one_has_variance_1_84_and_is_exact_with_probability_46_percent() -> None:
    # q = 1/e: 2 q / (1 - q)**2 = 1.8413, and zero has probability (1 - q) / (1 + q) = 0.4621.
    drawn = discrete_laplace(Fraction(1), DRAWS, entropy=SeededEntropy(22))
    assert drawn.var() == pytest.approx(1.8413, abs=0.03)
    assert np.mean(drawn == 0) == pytest.approx(0.4621, abs=0.004)


def test_neighboring_outcomes_of_the_laplace_differ_by_the_factor_that_epsilon_allows() -> None:
    # P(x) / P(x + 1) = e**epsilon for x >= 0: the guarantee itself, seen in the draws.
    drawn = discrete_laplace(Fraction(2), DRAWS, entropy=SeededEntropy(23))
    counts = [int(np.count_nonzero(drawn == x)) for x in range(4)]
    for here, beyond in pairwise(counts):
        assert here / beyond == pytest.approx(exp(0.5), rel=0.03)


def test_the_mean_of_the_geometric_is_q_over_one_minus_q() -> None:
    q = exp(-1 / 5)
    assert geometric(Fraction(5), DRAWS, entropy=SeededEntropy(24)).mean() == pytest.approx(q / (1 - q), rel=0.01)


def test_the_variance_of_the_discrete_gaussian_is_below_sigma_squared_and_close_to_it() -> None:
    # Canonne, Kamath and Steinke (2020) bound it by sigma squared; at sigma = 1 the two agree to 10**-6.
    assert discrete_gaussian(1, DRAWS, entropy=SeededEntropy(25)).var() == pytest.approx(1, abs=0.012)
    assert discrete_gaussian(Fraction(1, 4), DRAWS, entropy=SeededEntropy(26)).var() < Fraction(1, 4)
