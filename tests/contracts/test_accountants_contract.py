"""One suite for every accountant: what a filter and an odometer owe, whatever they count in."""

import math
from fractions import Fraction

import pytest

from deniable.dp.accounting import (
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    NoOpEvent,
    ParallelEvent,
    PLDAccountant,
    PureAccountant,
    PureEvent,
    RandomizedEvent,
    SelectionEvent,
    SelfComposedEvent,
    ThresholdEvent,
    UnsupportedEvent,
    ZCDPAccountant,
    accountant_for,
)
from deniable.errors import BudgetExceeded, ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP

DELTA = Fraction(1, 10**6)
LIMIT = ApproxDP(1, DELTA)
EVENTS = [
    PureEvent("1/10"),
    LaplaceEvent(10, 1),
    SelectionEvent("1/10", True),
    SelectionEvent("1/10", False),
    RandomizedEvent("11/10"),
    GaussianEvent(400, 1),
    ComposedEvent((LaplaceEvent(20, 1), ThresholdEvent("1e-8"))),
    ParallelEvent((LaplaceEvent(10, 1), LaplaceEvent(20, 1))),
    SelfComposedEvent(PureEvent("1/100"), 10),
]


@pytest.fixture(params=["pure", "zcdp", "pld"])
def account(request):
    if request.param == "pld":
        pytest.importorskip("dp_accounting")
    return accountant_for(request.param, LIMIT)


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_a_filter_refuses_before_the_limit_is_passed_and_stays_as_it_was(account, event):
    if not account.supports(event):
        with pytest.raises(ParameterError, match="Nothing was charged"):
            account.compose(event)
        return
    for _ in range(400):
        if not account.fits(event):
            break
        account = account.compose(event)
    before = account
    with pytest.raises(BudgetExceeded, match="Nothing was charged"):
        account.compose(event)
    assert account == before
    assert account.epsilon(DELTA) <= 1


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_composing_is_counting(account, event):
    if account.supports(event):
        account = type(account)()
        thrice = account.compose(event).compose(event).compose(event)
        assert thrice.epsilon(DELTA) == account.compose(event, 3).epsilon(DELTA)
        assert thrice.epsilon(DELTA) == account.compose(SelfComposedEvent(event, 3)).epsilon(DELTA)
        assert thrice.epsilon(DELTA) == account.compose(ComposedEvent((event,) * 3)).epsilon(DELTA)
        assert account.compose(event).epsilon(DELTA) <= thrice.epsilon(DELTA)


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_disjoint_parts_cost_as_much_as_the_worst_of_them(account, event):
    if account.supports(event):
        account = type(account)()
        parts = ParallelEvent((event, NoOpEvent(), event))
        assert account.supports(parts)
        assert account.compose(parts).epsilon(DELTA) == account.compose(event).epsilon(DELTA)


def test_nothing_costs_nothing(account):
    for event in (NoOpEvent(), ComposedEvent(()), ParallelEvent(()), SelfComposedEvent(PureEvent(9), 0)):
        assert account.compose(event, 5).epsilon(DELTA) == 0
        assert account.compose(PureEvent(5), 0).epsilon(DELTA) == 0


def test_a_release_without_guarantee_is_infinite_and_never_fits_a_budget(account):
    odometer = type(account)().compose(PureEvent("1/10")).compose(NonPrivateEvent())
    assert odometer.epsilon(DELTA) == math.inf
    assert odometer.compute_spent(DELTA) is None
    assert not account.fits(NonPrivateEvent())
    with pytest.raises(BudgetExceeded, match="without a formal guarantee"):
        account.compose(NonPrivateEvent())


def test_what_cannot_be_described_cannot_be_priced(account):
    for event in (UnsupportedEvent("a black box"), ComposedEvent((NoOpEvent(), UnsupportedEvent()))):
        assert not account.supports(event)
        with pytest.raises(ParameterError, match="cannot price"):
            account.compose(event)


@pytest.mark.parametrize("count", [-1, 1.5, True])
def test_a_count_is_a_whole_number(account, count):
    with pytest.raises(ParameterError):
        account.compose(PureEvent("1/10"), count)


def test_what_remains_shrinks_to_nothing_and_an_odometer_has_no_limit(account):
    assert type(account)().compute_remaining() is None
    left = account.compute_remaining()
    used = account.compose(PureEvent("1/10"), 2).compute_remaining()
    amount = (lambda b: b.rho) if isinstance(left, ZCDP) else (lambda b: b.epsilon)
    assert 0 <= amount(used) < amount(left)


def test_a_threshold_spends_delta_until_it_is_gone(account):
    spender = account.compose(ThresholdEvent(DELTA / 4)).compose(ThresholdEvent(DELTA / 4))
    assert spender.epsilon(DELTA) == 0
    assert spender.epsilon(DELTA / 4) == math.inf
    with pytest.raises(BudgetExceeded):
        spender.compose(ThresholdEvent(DELTA))


def test_ten_charges_of_a_tenth_are_exactly_one():
    account = PureAccountant(PureDP(1))
    for _ in range(10):
        account = account.compose(PureEvent(0.1))
    assert account.compute_spent() == PureDP(1)
    assert account.compute_remaining() == PureDP(0)
    with pytest.raises(BudgetExceeded):
        account.compose(PureEvent(Fraction(1, 10**30)))


def test_ten_charges_of_a_tenth_of_rho_are_exactly_one():
    account = ZCDPAccountant(ZCDP(1)).compose(GaussianEvent(5), 10)
    assert account.compute_spent() == ZCDP(1)
    with pytest.raises(BudgetExceeded, match="used up"):
        account.compose(GaussianEvent(10**30))


def test_an_accountant_is_found_by_the_word_of_a_policy():
    assert isinstance(accountant_for("pld"), PLDAccountant)
    with pytest.raises(ParameterError, match="Did you mean 'zcdp'"):
        accountant_for("zdcp")
    with pytest.raises(ParameterError, match="needs a delta"):
        accountant_for("zcdp", PureDP(1))
    with pytest.raises(ParameterError, match="keeps no rho"):
        accountant_for("pure", ZCDP(1))
