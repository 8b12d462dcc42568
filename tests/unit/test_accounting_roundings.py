"""Roundings and refusals of the accountants: what is told is never below the truth, and refusals tell this event."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from deniable.dp.accounting import (
    ComposedEvent,
    GaussianEvent,
    NoOpEvent,
    ParallelEvent,
    PLDAccountant,
    PureAccountant,
    PureEvent,
    ThresholdEvent,
    ZCDPAccountant,
    cheap_epsilon,
)
from deniable.dp.accounting.analytic_gaussian import _FAR, _phi
from deniable.dp.accounting.cost import GUARD, precise, round_above, round_down, round_up
from deniable.errors import BudgetExceeded
from deniable.policy.budget import ZCDP, ApproxDP, PureDP


@pytest.mark.parametrize("share", ["-0.999", "-0.5", "0", "0.001", "0.5", "0.999", "1", "1.5", "1e6", "1e30"])
def test_a_computed_number_is_widened_by_the_guard_however_small_it_is(share: str) -> None:
    with localcontext(precise()):
        value = Decimal(share) * Decimal("1e-30")
        told = round_above(value)
    least = max(Fraction(value) * (1 + GUARD) + GUARD, Fraction(0))
    assert told >= least
    assert told <= 2 * max(least, GUARD)


@pytest.mark.parametrize("digits", [1, 3, 12])
@pytest.mark.parametrize("value", [Fraction(0), Fraction(1), Fraction(1, 3), Fraction(10**20, 7), Fraction(5, 10**9)])
def test_roundings_enclose_the_value_within_one_of_their_last_digit(value: Fraction, digits: int) -> None:
    low, high = round_down(value, digits), round_up(value, digits)
    assert low <= value <= high
    assert high - low <= value * Fraction(10, 10**digits)
    assert float(high) == float(f"{float(high):.{digits - 1}e}")


def test_a_refusal_under_rho_tells_what_this_event_asked_and_what_is_left() -> None:
    account = ZCDPAccountant(ZCDP(Fraction(1), Fraction(1, 100))).compose(GaussianEvent(1, 1))
    asked = ComposedEvent((GaussianEvent(1, 2), ThresholdEvent("1/1000")))
    with pytest.raises(BudgetExceeded) as refusal:
        account.compose(asked)
    told = refusal.value.fields
    assert (told["asked"], told["remaining"], told["delta"], told["delta_remaining"]) == (1.0, 0.5, 0.001, 0.01)
    assert account.fits(GaussianEvent(1, 1))
    assert not account.fits(GaussianEvent(1, 1), 2)


def test_a_refusal_under_epsilon_tells_what_this_event_asked_and_what_is_left() -> None:
    account = PureAccountant(ApproxDP(1, Fraction(1, 100))).compose(PureEvent("3/4"))
    with pytest.raises(BudgetExceeded) as refusal:
        account.compose(ComposedEvent((PureEvent("1/2"), ThresholdEvent("1/1000"))))
    told = refusal.value.fields
    assert (told["asked"], told["remaining"], told["delta"], told["delta_remaining"]) == (0.5, 0.25, 0.001, 0.01)
    assert refusal.value.happened == "asked epsilon 0.5 with delta 0.001, remaining 0.25 with delta 0.01"
    assert refusal.value.remedy == "Ask for at most epsilon 0.25"
    for spent, words in (
        ("9/1000", "epsilon 1 with delta 0.001: the delta"),
        ("1/100", "epsilon 1 with delta 0: the delta"),
    ):
        with pytest.raises(BudgetExceeded, match=words):
            PureAccountant(ApproxDP(1, Fraction(1, 100))).compose(ThresholdEvent(spent)).compose(
                ThresholdEvent("1/500")
            )
    with pytest.raises(BudgetExceeded) as plain:
        PureAccountant(PureDP(1)).compose(PureEvent("3/2"))
    assert plain.value.happened == "asked epsilon 1.5, remaining 1"
    assert "at most epsilon 1" in (plain.value.remedy or "")
    with pytest.raises(BudgetExceeded) as over:
        PureAccountant(PureDP(1)).compose(PureEvent(1)).compose(PureEvent("1/2"))
    assert "used up" in (over.value.remedy or "")


def test_what_is_free_in_every_part_of_a_table_is_free() -> None:
    for parts in ((), (NoOpEvent(),), (NoOpEvent(), PureEvent(0))):
        assert cheap_epsilon(ParallelEvent(parts), Fraction(1, 10**6)) == 0


def test_a_refusal_under_privacy_losses_tells_what_this_event_would_add() -> None:
    account = PLDAccountant(ApproxDP(1, Fraction(0))).compose(PureEvent("3/4"))
    with pytest.raises(BudgetExceeded) as refusal:
        account.compose(PureEvent("1/2"))
    assert refusal.value.fields["asked"] == pytest.approx(0.5, abs=0.01)
    assert refusal.value.fields["remaining"] == pytest.approx(0.25, abs=0.01)


def test_the_normal_law_far_out_is_enclosed_on_both_sides() -> None:
    with localcontext(precise()):
        edge = Decimal(_FAR)
        far = edge + 10
        assert 0 == _phi(-far, high=False) < _phi(-far, high=True) < Decimal("1e-20")
        assert 1 == _phi(far, high=True) >= _phi(far, high=False) > 1 - Decimal("1e-20")
        for x in (-far, -edge, Decimal(-1), Decimal(0), Decimal(2), far):
            assert abs(_phi(x, high=True) + _phi(-x, high=False) - 1) < Decimal("1e-20")
