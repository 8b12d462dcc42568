"""Calibration: the price of the noise found is the budget, and never more."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.dp.accounting import (
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    calibrate_gaussian,
    calibrate_laplace,
    cheap_epsilon,
    epsilon_of,
    pure_cost,
    zcdp_cost,
)
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP

amounts = st.fractions(min_value=Fraction(1, 10**4), max_value=10**3)
sensitivities = st.fractions(min_value=Fraction(1, 100), max_value=10**9)
deltas = st.integers(2, 12).map(lambda digits: Fraction(1, 10**digits))


@given(amounts, sensitivities)
def test_laplace_noise_costs_exactly_its_epsilon(epsilon, sensitivity):
    event = LaplaceEvent(calibrate_laplace(PureDP(epsilon), sensitivity), sensitivity)
    assert pure_cost(event).amount == epsilon


@given(amounts, sensitivities)
def test_gaussian_noise_costs_exactly_its_rho(rho, sensitivity):
    event = GaussianEvent(calibrate_gaussian(ZCDP(rho), sensitivity), sensitivity**2)
    assert zcdp_cost(event).amount == rho


@given(amounts)
def test_a_pure_mechanism_uses_nearly_all_of_a_rho_and_never_more(rho):
    cost = zcdp_cost(PureEvent(epsilon_of(ZCDP(rho)))).amount
    assert rho * Fraction(999999, 1000000) <= cost <= rho


@settings(max_examples=20, deadline=None)
@given(st.fractions(min_value=Fraction(1, 20), max_value=30), deltas, st.integers(1, 10**6))
def test_analytic_noise_keeps_its_budget_and_a_little_less_noise_does_not(epsilon, delta, squared):
    variance = calibrate_gaussian(ApproxDP(epsilon, delta), sensitivity_squared=squared)
    assert cheap_epsilon(GaussianEvent(variance, squared), delta) <= epsilon
    less = GaussianEvent(variance * Fraction(99999, 100000), squared)
    assert cheap_epsilon(less, delta) > epsilon


def test_the_analytic_noise_beats_zcdp_on_fine_steps_and_zcdp_serves_coarse_ones():
    fine, coarse = (calibrate_gaussian(ApproxDP(1, "1e-6"), sensitivity=s) / s**2 for s in (1000, 1))
    assert float(fine) == pytest.approx(4.2247**2, rel=1e-3)
    assert fine < coarse < fine * Fraction(6, 5)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: calibrate_laplace(PureDP(0), 1),
        lambda: calibrate_laplace(PureDP(1), 0),
        lambda: calibrate_laplace(PureDP(1), -1),
        lambda: calibrate_laplace(ZCDP(0), 1),
        lambda: calibrate_gaussian(PureDP(1), 1),
        lambda: calibrate_gaussian(ApproxDP(1, 0), 1),
        lambda: calibrate_gaussian(ApproxDP(0, "1e-6"), 1),
        lambda: calibrate_gaussian(ZCDP(0), 1),
        lambda: calibrate_gaussian(ZCDP(1), 0),
        lambda: calibrate_gaussian(ZCDP(1)),
        lambda: calibrate_gaussian(ZCDP(1), 1, sensitivity_squared=1),
    ],
)
def test_what_cannot_be_calibrated_is_refused(ask):
    with pytest.raises(ParameterError):
        ask()


def test_gaussian_noise_without_delta_is_answered_with_a_remedy():
    with pytest.raises(ParameterError, match="use Laplace noise"):
        calibrate_gaussian(PureDP(1), 1)


@pytest.mark.parametrize(("epsilon", "delta"), [("1e-6", "1e-6"), ("400", "1e-9"), ("1000", "1e-9"), ("1", "1e-40")])
def test_extreme_budgets_get_noise_too(epsilon, delta):
    variance = calibrate_gaussian(ApproxDP(epsilon, delta), sensitivity=1000)
    assert cheap_epsilon(GaussianEvent(variance, 10**6), delta) <= Fraction(epsilon)
