"""The Gaussian curve: the oracle's for continuous noise, and above the truth on the lattice for discrete noise."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from deniable.dp.accounting.analytic_gaussian import SMOOTHING, delta_of_continuous, epsilon_of_gaussian, ratio_within


def balle_wang(ratio: float, epsilon: float) -> float:
    s = math.sqrt(ratio)
    return norm.cdf(1 / (2 * s) - epsilon * s) - math.exp(epsilon + norm.logcdf(-1 / (2 * s) - epsilon * s))


@settings(max_examples=60, deadline=None)
@given(st.fractions(min_value=Fraction(1, 20), max_value=200), st.fractions(min_value=0, max_value=20))
def test_the_curve_is_balle_and_wangs(ratio, epsilon):
    ours, theirs = float(delta_of_continuous(ratio, epsilon)), balle_wang(float(ratio), float(epsilon))
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-14)


def test_far_tails_are_bounded_not_dropped():
    assert 0 < delta_of_continuous(Fraction(10**6), Fraction(1)) < Fraction(1, 10**20)
    assert delta_of_continuous(Fraction(1, 10**6), Fraction(1)) > Fraction(999, 1000)


@settings(max_examples=15, deadline=None)
@given(st.fractions(min_value=Fraction(1, 100), max_value=50), st.integers(2, 15).map(lambda d: Fraction(1, 10**d)))
def test_the_ratio_found_is_enough_and_a_little_less_is_not(epsilon, delta):
    ratio = ratio_within(epsilon, delta)
    assert ratio is not None
    assert delta_of_continuous(ratio, epsilon) <= delta
    assert delta_of_continuous(ratio * Fraction(999999, 1000000), epsilon) > delta * Fraction(999999, 1000000)


def test_large_epsilons_keep_their_digits():
    ratio = ratio_within(Fraction(100), Fraction(1, 10**6))
    assert balle_wang(float(ratio), 100.0) == pytest.approx(1e-6, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (3.0, 1e-5), (8.0, 1e-12)])
def test_the_oracle_finds_the_same_noise(epsilon, delta):
    oracle = pytest.importorskip("dp_accounting.gaussian_mechanism")
    sigma = oracle.get_sigma_gaussian(epsilon, delta)
    ours = math.sqrt(ratio_within(Fraction(repr(epsilon)), Fraction(repr(delta))))
    assert ours == pytest.approx(sigma, rel=1e-6)
    back = epsilon_of_gaussian(Fraction(ours) ** 2, Fraction(repr(delta)))
    assert float(back) == pytest.approx(epsilon, rel=1e-6)


def lattice_delta(variance: float, shift: tuple[int, ...], epsilon: float) -> float:
    """The true delta of discrete Gaussian noise on a small lattice, by summing over all outputs of weight."""
    reach = int(12 * math.sqrt(variance)) + max(shift)
    line = np.arange(-reach, reach + 1)
    p = np.exp(-(line**2) / (2 * variance))
    p /= p.sum()
    left = right = np.ones(1)
    for step in shift:
        q = np.exp(-((line - step) ** 2) / (2 * variance))
        q /= q.sum()
        left, right = np.multiply.outer(left, p).ravel(), np.multiply.outer(right, q).ravel()
    return float(np.maximum(left - math.exp(epsilon) * right, 0).sum())


SHIFTS = [(1,), (2,), (5,), (1, 1), (2, 1), (3, 4)]


@pytest.mark.parametrize("variance", [Fraction(5), Fraction(9), Fraction(25)])
@pytest.mark.parametrize("shift", SHIFTS)
def test_discrete_noise_keeps_the_curve_claimed_for_it(variance, shift):
    squared = Fraction(sum(step * step for step in shift))
    for delta in (Fraction(1, 2**power) for power in range(2, 30, 3)):
        claimed = epsilon_of_gaussian((variance - SMOOTHING) / squared, delta)
        assert claimed is not None
        assert lattice_delta(float(variance), shift, float(claimed)) <= float(delta) + 1e-12


def test_without_the_smoothing_term_the_claim_would_be_false():
    """So the term is needed: at some epsilons the lattice is worse than the continuous curve of the same variance."""
    worse = [
        lattice_delta(float(variance), shift, epsilon)
        > balle_wang(float(variance / sum(s * s for s in shift)), epsilon)
        for variance, shift in itertools.product([5.0, 9.0], SHIFTS)
        for epsilon in np.linspace(0.05, 4, 14)
    ]
    assert any(worse)


def test_small_noise_is_left_to_zcdp():
    assert epsilon_of_gaussian(Fraction(1), Fraction(0)) is None
    assert ratio_within(Fraction(0), Fraction(1, 10)) is None
    assert ratio_within(Fraction(1), Fraction(1, 10**40)) is None
