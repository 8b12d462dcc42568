"""Calibration by a guess in floats and a proof in high precision: the safe side, close to the old bisection."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from deniable.dp.accounting.analytic_gaussian import WIDTH, find_least, find_root, log_delta


@settings(max_examples=200, deadline=None)
@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**6), st.floats(min_value=1e-9, max_value=1e9))
def test_any_guess_leads_to_the_least_number_from_above(wanted: Fraction, guess: float) -> None:
    found = find_least(lambda x: x >= wanted, guess)
    assert wanted <= found <= wanted * (1 + 2 * WIDTH)


def test_a_good_guess_needs_two_tests_or_three() -> None:
    asked: list[Fraction] = []

    def holds(x: Fraction) -> bool:
        asked.append(x)
        return x * x >= 2

    find_least(holds, math.sqrt(2))
    assert len(asked) <= 3


@pytest.mark.parametrize("guess", [math.nan, math.inf, -1.0, 0.0])
def test_a_guess_that_is_no_number_still_ends(guess: float) -> None:
    assert 3 <= find_least(lambda x: x >= 3, guess) <= 3 + 3 * WIDTH


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 1e4), st.floats(0.0, 20.0))
def test_the_logarithm_of_delta_is_balle_and_wangs(ratio: float, epsilon: float) -> None:
    m = 1 / math.sqrt(ratio)
    first, second = norm.logcdf(m / 2 - epsilon / m), epsilon + norm.logcdf(-m / 2 - epsilon / m)
    expected = first + math.log(max(-math.expm1(second - first), 1e-300))
    assert log_delta(ratio, epsilon) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_root_is_found_on_a_logarithmic_grid() -> None:
    assert find_root(lambda x: 1e-7 - x, 1e-12, 1e12) == pytest.approx(1e-7, rel=1e-9)
