"""zCDP to (epsilon, delta): as tight as a dense search over orders, never below it, and true to the oracle."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.dp.accounting import epsilon_of_zcdp, rho_within, zcdp_within
from deniable.dp.accounting.cost import ln_above, round_down, round_up, sqrt_above
from deniable.errors import ParameterError
from deniable.policy.budget import ApproxDP

rhos = st.fractions(min_value=Fraction(1, 10**8), max_value=100)
deltas = st.integers(2, 40).map(lambda digits: Fraction(1, 10**digits))


def densest(rho: float, delta: float) -> float:
    """The formula at two hundred thousand orders."""
    a = 1 + np.exp(np.linspace(-12, 22, 200_001))
    return max(0.0, float(np.min(a * rho + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1))))


@settings(max_examples=40, deadline=None)
@given(rhos, deltas)
def test_epsilon_is_the_best_over_all_orders_and_not_below_it(rho, delta):
    found, best = float(epsilon_of_zcdp(rho, delta)), densest(float(rho), float(delta))
    assert found == pytest.approx(best, rel=1e-6, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.fractions(min_value=Fraction(1, 1000), max_value=100), deltas)
def test_the_largest_rho_stays_within_and_a_little_more_does_not(epsilon, delta):
    rho = rho_within(epsilon, delta)
    assert rho > 0
    assert epsilon_of_zcdp(rho, delta) <= epsilon < epsilon_of_zcdp(rho * Fraction(1000001, 1000000), delta)


@pytest.mark.parametrize(("rho", "delta"), [(0.001, 1e-9), (0.01, 1e-6), (0.1, 1e-6), (1.0, 1e-5), (10.0, 1e-10)])
def test_the_oracle_agrees_over_its_own_orders(rho, delta):
    dp_accounting = pytest.importorskip("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp")
    orders = list(1 + np.exp(np.linspace(-5, 12, 3000)))
    oracle = rdp.RdpAccountant(orders).compose(dp_accounting.ZCDpEvent(rho)).get_epsilon(delta)
    ours = float(epsilon_of_zcdp(Fraction(repr(rho)), Fraction(repr(delta))))
    assert ours == pytest.approx(oracle, rel=1e-4)
    assert ours <= oracle * (1 + 1e-9)


def test_it_is_tighter_than_the_simple_conversion():
    rho, delta = Fraction(1, 100), Fraction(1, 10**6)
    simple = 0.01 + 2 * math.sqrt(0.01 * math.log(1e6))
    assert float(epsilon_of_zcdp(rho, delta)) < 0.9 * simple


def test_nothing_spent_is_nothing_and_delta_zero_is_refused():
    assert epsilon_of_zcdp(Fraction(0), Fraction(0)) == 0
    with pytest.raises(ParameterError):
        epsilon_of_zcdp(Fraction(1), Fraction(0))


def test_a_budget_without_delta_has_no_rho():
    assert rho_within(Fraction(1), Fraction(0)) == 0
    assert rho_within(Fraction(0), Fraction(1, 10)) == 0


@settings(max_examples=20, deadline=None)
@given(
    st.fractions(min_value=Fraction(1, 100), max_value=20),
    deltas,
    st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)]),
)
def test_a_limit_for_thresholds_and_noise_keeps_the_promise(epsilon, delta, share):
    limit = zcdp_within(ApproxDP(epsilon, delta), share)
    assert limit.delta == delta * share
    assert epsilon_of_zcdp(limit.rho, delta - limit.delta) <= epsilon


@given(st.fractions(min_value=Fraction(1, 10**20), max_value=10**20), st.integers(1, 20))
def test_rounding_goes_to_its_side_and_not_far(value, digits):
    up, down = round_up(value, digits), round_down(value, digits)
    assert down <= value <= up
    assert up - down <= value * Fraction(10) ** (1 - digits)


@given(st.fractions(min_value=1, max_value=10**6))
def test_logarithms_and_roots_are_rounded_up(value):
    assert math.exp(float(ln_above(value))) >= float(value) * (1 - 1e-9)
    assert sqrt_above(value) ** 2 >= value
    assert float(sqrt_above(value)) == pytest.approx(math.sqrt(value))


def test_a_rational_root_is_exact():
    assert sqrt_above(Fraction(9, 4)) == Fraction(3, 2)
    assert ln_above(Fraction(1)) == 0
