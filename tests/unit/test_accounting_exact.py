"""Prices to their last digit: never below the truth, which is computed here again with fifty digits or more.

The conversion of zCDP is minimized over its orders, Balle and Wang's curve is summed by another series, and losses of
discrete noise, which take finitely many values, are composed exactly and compared with what the PLD accountant finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from deniable.dp.accounting import (
    GaussianEvent,
    LaplaceEvent,
    PLDAccountant,
    PureEvent,
    ZCDPAccountant,
    analytic_gaussian,
    epsilon_of_zcdp,
)
from deniable.dp.accounting import pld as pld_module
from deniable.dp.accounting.analytic_gaussian import SLACK, delta_of_continuous, epsilon_of_gaussian

DIGITS = 70
LAST = Decimal("1.00000000002")  # twelve digits, rounded up: at most one unit in the last of them, and a guard


def to_decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


# ---- zCDP


def minimize(bound: Callable[[Decimal], Decimal], start: float) -> Decimal:
    """The least of a bound over all orders above 1, by golden section on ln(order - 1), to thirty digits and more."""
    left, right = Decimal(math.log(start)) - 12, Decimal(math.log(start)) + 12
    golden = (Decimal(5).sqrt() - 1) / 2
    at = lambda x: bound(1 + x.exp())  # noqa: E731
    inner, outer = right - golden * (right - left), left + golden * (right - left)
    low, high = at(inner), at(outer)
    for _ in range(110):
        if low <= high:
            right, outer, high = outer, inner, low
            inner = right - golden * (right - left)
            low = at(inner)
        else:
            left, inner, low = inner, outer, high
            outer = left + golden * (right - left)
            high = at(outer)
    return min(low, high)


RHOS = [
    Fraction(1, 10**5),
    Fraction(1, 1000),
    Fraction(1, 50),
    Fraction(1, 10),
    Fraction(7, 13),
    Fraction(3),
    Fraction(40),
]
DELTAS = [Fraction(1, 100), Fraction(1, 10**6), Fraction(1, 10**9), Fraction(1, 10**30)]


@pytest.mark.parametrize("delta", DELTAS, ids=str)
@pytest.mark.parametrize("rho", RHOS, ids=str)
def test_the_epsilon_of_a_rho_is_its_least_bound_rounded_up_in_the_last_digit(rho: Fraction, delta: Fraction) -> None:
    with localcontext() as context:
        context.prec = DIGITS
        r, ln_delta = to_decimal(rho), to_decimal(delta).ln()
        least = minimize(
            lambda a: a * r + (1 - 1 / a).ln() - (ln_delta + a.ln()) / (a - 1), math.sqrt(-math.log(delta) / rho)
        )
        least = max(least, Decimal(0))  # where delta pays for all
        found = to_decimal(epsilon_of_zcdp(rho, delta))
        assert least <= found <= least * LAST
        read = Decimal(ZCDPAccountant().compose(GaussianEvent(1 / (2 * rho))).epsilon(delta))
        assert found <= read <= found * LAST


# ---- Gaussian noise


@cache
def normal(x: Decimal) -> Decimal:
    """The normal distribution function by the alternating series of erf, with digits to spare for what cancels."""
    with localcontext() as context:
        context.prec = 400
        z = x / Decimal(2).sqrt()
        term, total, n = z, z, 0
        while abs(term) > Decimal("1e-350"):
            n += 1
            term *= -z * z / n
            total += term / (2 * n + 1)
        return (1 + 2 / machin().sqrt() * total) / 2


@cache
def machin() -> Decimal:
    """Pi, as the quadruple of arctan 1/2 + arctan 1/3."""
    with localcontext() as context:
        context.prec = 410
        parts = Decimal(0)
        for n in (2, 3):
            power, sign, place = Decimal(1) / n, 1, 1
            while power > Decimal("1e-405"):
                parts += sign * power / place
                power, sign, place = power / (n * n), -sign, place + 2
        return 4 * parts


def balle_wang(ratio: Fraction, epsilon: Fraction) -> Decimal:
    with localcontext() as context:
        context.prec = 200
        root, e = to_decimal(ratio).sqrt(), to_decimal(epsilon)
        return normal(1 / (2 * root) - e * root) - e.exp() * normal(-1 / (2 * root) - e * root)


RATIOS = [Fraction(1, 20), Fraction(1), Fraction(10), Fraction(500)]


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1, 2), Fraction(1), Fraction(4)], ids=str)
@pytest.mark.parametrize("ratio", RATIOS[:3], ids=str)
def test_the_delta_of_gaussian_noise_is_rounded_up_in_the_last_digit(ratio: Fraction, epsilon: Fraction) -> None:
    with localcontext() as context:
        context.prec = DIGITS
        truth = balle_wang(ratio, epsilon)
        assert truth <= to_decimal(delta_of_continuous(ratio, epsilon)) <= truth * LAST + Decimal("3e-30")


@pytest.mark.parametrize("delta", DELTAS[:3], ids=str)
@pytest.mark.parametrize("ratio", RATIOS, ids=str)
def test_the_epsilon_of_gaussian_noise_keeps_delta_and_a_billionth_less_does_not(
    ratio: Fraction, delta: Fraction
) -> None:
    epsilon = epsilon_of_gaussian(ratio, delta)
    assert epsilon is not None
    assert balle_wang(ratio, epsilon - SLACK) * (1 + to_decimal(SLACK)) <= to_decimal(delta)
    less = epsilon * (1 - Fraction(1, 10**9)) - 3 * SLACK
    assert less <= 0 or balle_wang(ratio, less) > to_decimal(delta)


# ---- privacy losses of discrete noise, composed exactly

Losses = dict[int, Decimal]
"""Probabilities of privacy losses, which are whole multiples of a unit."""


def laplace_losses(scale: Fraction, shift: int) -> Losses:
    """Discrete Laplace noise against itself shifted: in units of 1/scale, |x - shift| - |x|."""
    q = (-1 / to_decimal(scale)).exp()
    losses = {shift: 1 / (1 + q), -shift: q**shift / (1 + q)}
    for x in range(1, shift):
        losses[shift - 2 * x] = losses.get(shift - 2 * x, Decimal(0)) + (1 - q) / (1 + q) * q**x
    return losses


def compose(losses: Losses, count: int) -> Losses:
    total: Losses = {0: Decimal(1)}
    for _ in range(count):
        after: Losses = {}
        for before, chance in total.items():
            for loss, added in losses.items():
                after[before + loss] = after.get(before + loss, Decimal(0)) + chance * added
        total = after
    return total


def delta_at(losses: Losses, unit: Fraction, epsilon: Decimal) -> Decimal:
    """The sum of P - e^epsilon Q where that is positive."""
    worth = to_decimal(unit)
    positive = ((loss * worth, chance) for loss, chance in losses.items() if loss * worth > epsilon)
    return sum((chance * (1 - (epsilon - loss).exp()) for loss, chance in positive), Decimal(0))


@pytest.fixture
def fresh() -> Iterator[None]:
    """The PLD accountant without what it has cached, before and after."""
    caches = (pld_module._leaf, pld_module._distribution, pld_module._epsilon)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()


PROMISED = [Fraction(1, 50), Fraction(1, 10**4), Fraction(1, 10**8)]


def judge(found: float, losses: Losses, unit: Fraction, delta: Fraction, count: int) -> bool:
    """Whether an epsilon keeps delta; `count` cells of the accountant's grid less must not, or it is far too high."""
    exactly = Decimal(found)
    less = exactly - Decimal(pld_module.INTERVAL) * (count + 2)
    assert less <= 0 or delta_at(losses, unit, less) > to_decimal(delta), "more was paid than the grid explains"
    return delta_at(losses, unit, exactly) <= to_decimal(delta)


@pytest.mark.parametrize("count", [1, 3, 10])
@pytest.mark.parametrize("shift", [1, 4])
@pytest.mark.parametrize("scale", [Fraction(7, 10), Fraction(3), Fraction(20)], ids=str)
def test_composed_laplace_noise_is_priced_above_the_truth_by_no_more_than_its_grid(
    scale: Fraction, shift: int, count: int
) -> None:
    pytest.importorskip("dp_accounting.pld")
    account = PLDAccountant().compose(LaplaceEvent(scale, shift), count)
    with localcontext() as context:
        context.prec = DIGITS
        losses = compose(laplace_losses(scale, shift), count)
        assert abs(sum(losses.values()) - 1) < Decimal("1e-60")
        for delta in PROMISED:
            assert judge(account.epsilon(delta), losses, 1 / scale, delta, count)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("shift", [1, 2, 5])
@pytest.mark.parametrize("scale", [Fraction(7, 10), Fraction(3), Fraction(8)], ids=str)
@pytest.mark.usefixtures("fresh")
def test_the_continuous_stand_in_for_wide_shifts_is_priced_above_the_truth_too(
    scale: Fraction, shift: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for narrow shifts, where the overhang matters: without it the price would be below the truth."""
    pytest.importorskip("dp_accounting.pld")
    monkeypatch.setattr(pld_module, "WIDEST_SHIFT", 0)
    account = PLDAccountant().compose(LaplaceEvent(scale, shift), count)
    with localcontext() as context:
        context.prec = DIGITS
        losses = compose(laplace_losses(scale, shift), count)
        for delta in (Fraction(1, 5), *PROMISED):
            found = Decimal(account.epsilon(delta))
            assert delta_at(losses, 1 / scale, found) <= to_decimal(delta)


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(4, 3)], ids=str)
def test_composed_pure_events_are_priced_above_the_worst_of_their_kind(epsilon: Fraction, count: int) -> None:
    """Randomized response: a loss of epsilon either way, with odds of e^epsilon."""
    pytest.importorskip("dp_accounting.pld")
    account = PLDAccountant().compose(PureEvent(epsilon), count)
    with localcontext() as context:
        context.prec = DIGITS
        odds = to_decimal(epsilon).exp()
        losses = compose({1: odds / (1 + odds), -1: 1 / (1 + odds)}, count)
        for delta in PROMISED:
            assert judge(account.epsilon(delta), losses, epsilon, delta, count)


def lattice_delta(variance: float, shifts: tuple[int, ...], epsilon: float) -> float:
    """The true delta of discrete Gaussian noise, summed over the lattice."""
    reach = int(14 * math.sqrt(variance))
    line = np.arange(-reach, reach + 1)
    left = right = np.ones(1)
    for shift in shifts:
        p, q = (np.exp(-((line - at) ** 2) / (2 * variance)) for at in (0, shift))
        left, right = np.multiply.outer(left, p / p.sum()).ravel(), np.multiply.outer(right, q / q.sum()).ravel()
    return float(np.maximum(left - math.exp(epsilon) * right, 0).sum())


@pytest.mark.parametrize(
    ("variance", "shifts"), [(6, (1,)), (6, (2,)), (9, (1, 1)), (30, (5,)), (30, (3, 2)), (200, (10,))]
)
def test_composed_gaussian_noise_is_priced_above_the_lattice(variance: int, shifts: tuple[int, ...]) -> None:
    pytest.importorskip("dp_accounting.pld")
    account = PLDAccountant()
    for shift in shifts:
        account = account.compose(GaussianEvent(variance, shift * shift))
    for delta in (Fraction(1, 5), Fraction(1, 100), Fraction(1, 10**4), Fraction(1, 10**7)):
        assert lattice_delta(variance, shifts, account.epsilon(delta)) <= delta * (1 + Fraction(1, 10**6))


@pytest.mark.parametrize("power", [8, 12, 20])
@pytest.mark.parametrize("times", [Fraction(11, 10), Fraction(3, 2), Fraction(19, 10)])
def test_an_epsilon_next_to_the_slack_is_proven_too(power: int, times: Fraction) -> None:
    ratio = Fraction(10**power)
    delta = analytic_gaussian._delta_with_slack(ratio, times * SLACK)
    found = epsilon_of_gaussian(ratio, delta)
    assert found is not None
    assert analytic_gaussian._delta_with_slack(ratio, found - SLACK) <= delta
    assert (times + 1) * Fraction(98, 100) <= found / SLACK <= (times + 1) * Fraction(101, 100)


def test_far_out_the_normal_law_is_bounded_on_the_side_that_is_asked_for() -> None:
    for x in (Decimal(-50), Decimal("-40.1")):
        with localcontext() as context:
            context.prec = 60
            tail = (-x * x / 2).exp() / 2
            assert analytic_gaussian._phi(x, high=True) == tail
            assert analytic_gaussian._phi(x, high=False) == 0
            assert analytic_gaussian._phi(-x, high=True) == 1
            assert analytic_gaussian._phi(-x, high=False) == 1 - tail
            # Near the border both ways enclose the same number.
            near = Decimal("-39.9")
            low, high = (analytic_gaussian._phi(near, high=each) for each in (False, True))
            assert low < high
            assert low <= (-near * near / 2).exp() / 2
