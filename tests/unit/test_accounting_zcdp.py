"""zCDP to (epsilon, delta): as tight as a dense search over orders, never below it, and true to the oracle."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.dp.accounting import (
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    ThresholdEvent,
    ZCDPAccountant,
    epsilon_of_zcdp,
    rho_within,
    zcdp_within,
)
from deniable.dp.accounting.cost import ln_above, round_down, round_up, sqrt_above
from deniable.errors import BudgetExceeded, ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP

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


# -- two filters under one limit ---------------------------------------------------------------------------------------

STEPS = 9
SOME = tuple(Fraction(n, 20) for n in (2, 5, 9, 14))


Choose = Callable[[tuple[int, ...]], Fraction]


def divergence(epsilon: float, choose: Choose, fits: Callable[[Any, Any], bool]) -> float:
    """How far the transcripts of randomized response under two neighbors are from epsilon: the exact delta.

    Each question is chosen by the answers before it, and left out where the filter refuses it.
    """
    open_ended: list[tuple[tuple[int, ...], float, float, ZCDPAccountant]]
    open_ended = [((), 1.0, 1.0, ZCDPAccountant.within(LOOSE))]
    total = 0.0
    while open_ended:
        said, p, q, account = open_ended.pop()
        event = PureEvent(choose(said))
        if len(said) == STEPS or not fits(account, event):
            total += max(0.0, p - math.exp(epsilon) * q)
            continue
        after, odds = replace(account, limit=None).compose(event), math.exp(float(event.epsilon))
        kept = replace(after, limit=account.limit)
        open_ended.append(((*said, 1), p * odds / (1 + odds), q / (1 + odds), kept))
        open_ended.append(((*said, 0), p / (1 + odds), q * odds / (1 + odds), kept))
    return total


LOOSE = ApproxDP(Fraction(1), Fraction(1, 10))


def test_either_filter_keeps_the_limit_whatever_the_answers_make_the_asker_choose() -> None:
    chance, reached = random.Random(11), 0.0
    for _ in range(12):
        table = {said: chance.choice(SOME) for n in range(STEPS + 1) for said in product((0, 1), repeat=n)}
        found = divergence(1, table.__getitem__, lambda account, event: account.fits(event))
        assert found <= 0.1
        reached = max(reached, found)
    assert reached > 0, "some transcripts end by the zCDP filter, beyond epsilon"


def test_a_filter_that_lets_more_through_is_caught() -> None:
    """The broken twin: pure charges up to three times the limit, beside those that the zCDP filter allows."""

    def broken(account: ZCDPAccountant, event: PureEvent) -> bool:
        assert account.pure is not None
        return account.pure.amount + event.epsilon <= 3 or account.fits(event)

    assert divergence(1, lambda said: Fraction(14, 20), broken) > 0.1


def test_pure_charges_cost_their_epsilon_and_others_their_rho() -> None:
    account = ZCDPAccountant.within(ApproxDP(Fraction(1), Fraction(1, 10**6)))
    assert account.compute_remaining() == PureDP(Fraction(1))
    three = account.compose(LaplaceEvent(scale=10, sensitivity=1), 3)
    assert three.compute_spent(Fraction(1, 10**6)) == ApproxDP(Fraction(3, 10), Fraction(1, 10**6))
    assert three.compute_remaining() == PureDP(Fraction(7, 10)), "a question with a delta is not pure"
    assert three.fits(PureEvent(Fraction(7, 10)))
    assert not three.fits(PureEvent(Fraction(71, 100)))
    assert not three.fits(GaussianEvent(variance=50)), "the rho of the pure ones counts beside it"
    mixed = ZCDPAccountant.within(ApproxDP(Fraction(1), Fraction(1, 10**6))).compose(PureEvent(Fraction(1, 10)))
    mixed = mixed.compose(GaussianEvent(variance=50))
    assert mixed.pure is None
    assert isinstance(mixed.compute_remaining(), ZCDP)
    keyed = account.compose(ThresholdEvent(Fraction(1, 10**7)))
    assert keyed.pure is None, "an event with a delta is not counted among the pure ones"
    with pytest.raises(BudgetExceeded, match=r"asked epsilon 0\.8, remaining 0\.7"):
        three.compose(PureEvent(Fraction(8, 10)))


def test_what_uses_up_the_rest_leaves_nothing_by_either_filter() -> None:
    from deniable.ledger.budget_tree import find_rest

    limit = ApproxDP(Fraction(1), Fraction(1, 10**6))
    for spent in (0, 1, 9, 10):
        account = ZCDPAccountant.within(limit).compose(LaplaceEvent(scale=10, sensitivity=1), spent)
        spent_all = replace(account, limit=None, epsilon_limit=None).compose(find_rest("zcdp", limit, account))
        full = replace(account, cost=spent_all.cost, pure=spent_all.pure)
        assert not full.fits(PureEvent(Fraction(1, 1000)))
        assert not full.fits(GaussianEvent(variance=10**6))


def test_where_only_a_pure_question_fits_the_refusal_of_another_says_so() -> None:
    account = ZCDPAccountant.within(ApproxDP(Fraction(1), Fraction(1, 10**6))).compose(PureEvent(Fraction(3, 10)))
    assert (account.rho_left, account.epsilon_left) == (0, Fraction(7, 10))
    with pytest.raises(BudgetExceeded, match=r"Only a pure question fits.*at most epsilon 0\.7"):
        account.compose(GaussianEvent(variance=1000))


def test_of_balances_in_rho_and_in_epsilon_that_is_told_which_fits_every_node() -> None:
    from deniable.ledger.budget_tree import find_least

    pure = ZCDPAccountant.within(ApproxDP(Fraction(2), Fraction(1, 10**6))).compose(PureEvent(Fraction(1)))
    mixed = ZCDPAccountant.within(ApproxDP(Fraction(10), Fraction(1, 10**6))).compose(GaussianEvent(variance=50))
    assert (pure.share_left, isinstance(mixed.compute_remaining(), ZCDP)) == (Fraction(1, 2), True)
    assert find_least({"all": mixed, "ana": pure}) == PureDP(Fraction(1))
    spent = mixed.compose(GaussianEvent(variance=Fraction(2, 5)))
    assert pure.rho_left == 0, "epsilon 1 of 2 is more than the rho of the limit"
    assert find_least({"all": spent, "ana": pure}) == PureDP(spent.epsilon_left), "only a pure question fits ana's node"
    assert spent.epsilon_left < 1
    little = ZCDPAccountant.within(ApproxDP(Fraction(2), Fraction(1, 10**6))).compose(PureEvent(Fraction(1, 10)))
    told = find_least({"all": spent, "ana": little})
    assert told == ZCDP(min(spent.rho_left, little.rho_left), Fraction(1, 2 * 10**6))
