"""Digits, margins, brackets and limits of the Gaussian curve and of zCDP, each by its own oracle.

A curve that is computed with fewer digits, or rounded to the wrong side, is hardly ever seen in a price: what is proven
would still look right. So the parts are looked at one by one, the others being replaced by numbers that are told.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from typing import Any

import pytest

from deniable.dp.accounting import (
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PLDAccountant,
    PureAccountant,
    PureEvent,
    RandomizedEvent,
    SelectionEvent,
    ThresholdEvent,
    UnsupportedEvent,
    ZCDPAccountant,
    zcdp,
    zcdp_cost,
)
from deniable.dp.accounting import analytic_gaussian as curve
from deniable.dp.accounting.cost import Cost, precise, round_down, round_up
from deniable.errors import BudgetExceeded, ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP

SLACK = Fraction(1, 10**14)


# ---- the digits in force


@pytest.mark.parametrize(("epsilon", "digits"), [(0, 50), (1, 50), (2, 51), (7, 53), (100, 100)])
def test_the_digits_of_the_curve_grow_by_half_of_epsilon(
    epsilon: int, digits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """e^epsilon has fewer than epsilon / 2 digits before the point."""
    asked: list[tuple[Decimal, bool, int]] = []

    def phi(x: Decimal, *, high: bool) -> Decimal:
        asked.append((x, high, getcontext().prec))
        return Decimal("0.75") if high else Decimal(0)

    monkeypatch.setattr(curve, "_phi", phi)
    found = curve.delta_of_continuous.__wrapped__(Fraction(4), Fraction(epsilon))
    # sigma is twice the sensitivity: m = 1/2, so m/2 = 1/4 and epsilon / m = 2 epsilon.
    assert asked == [
        (Decimal("0.25") - 2 * epsilon, True, digits),
        (Decimal("-0.25") - 2 * epsilon, False, digits),
    ]
    assert Fraction(3, 4) < found <= Fraction(3, 4) + Fraction(1, 10**11)


@pytest.mark.parametrize(("high", "low", "expected"), [("3", "0", 1), ("1.5", "0.25", 1), ("0.5", "0.25", None)])
def test_the_second_term_is_taken_e_to_the_epsilon_times_and_a_delta_is_at_most_one(
    high: str, low: str, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {True: Decimal(high), False: Decimal(low)}
    monkeypatch.setattr(curve, "_phi", lambda x, *, high: told[high])
    found = curve.delta_of_continuous.__wrapped__(Fraction(1), Fraction(1, 10))
    truth = float(high) - math.exp(0.1) * float(low)
    assert float(found) == (expected if expected is not None else pytest.approx(truth, rel=1e-10))
    if expected is None:
        assert float(found) >= truth


def exact_phi(x: Decimal, digits: int) -> Decimal:
    """The normal law by its series for exp, term by term, in many more digits than are asked for."""
    with localcontext(precise(3 * digits + 800)):
        total = term = x
        n = 0
        while abs(term) > Decimal(10) ** (-2 * digits - 400):
            n += 1
            term = -term * x * x / (2 * n)
            total += term / (2 * n + 1)
        return Decimal("0.5") + total / (2 * exact_pi(3 * digits + 800)).sqrt()


def exact_pi(digits: int) -> Decimal:
    """pi by the sum of arcus tangens of 1/2 and of 1/3 (Euler), which is not the formula of the module."""
    with localcontext(precise(digits + 10)):
        total = Decimal(0)
        for n in (2, 3):
            power, k = Decimal(1) / n, 0
            while power > Decimal(10) ** -(digits + 8):
                total += (-1) ** k * power / (2 * k + 1)
                power, k = power / (n * n), k + 1
        return 4 * total


@pytest.mark.parametrize("x", ["0", "0.001", "-0.5", "1", "-3", "7.25", "-12"])
@pytest.mark.parametrize("digits", [30, 60])
def test_the_normal_law_is_widened_by_exactly_its_margin(x: str, digits: int) -> None:
    truth, margin = exact_phi(Decimal(x), digits), Decimal(10) ** (10 - digits)
    with localcontext(precise(digits)):
        high, low = curve._phi(Decimal(x), high=True), curve._phi(Decimal(x), high=False)
        assert curve.normal_above(Decimal(x)) == high
    with localcontext(precise(3 * digits)):
        assert low < truth < high
        assert abs(high - truth - margin) < margin / 10**6
        assert abs(truth - low - margin) < margin / 10**6


@pytest.mark.parametrize("digits", [20, 50, 137])
def test_the_root_of_two_pi_has_five_digits_more_than_are_in_force(digits: int) -> None:
    found = curve._sqrt_two_pi.__wrapped__(digits)
    assert len(found.as_tuple().digits) == digits + 5
    with localcontext(precise(2 * digits + 20)):
        assert abs(found * found - 2 * exact_pi(digits + 20)) < Decimal(10) ** -(digits + 2)


def test_the_law_is_summed_up_to_forty_deviations_and_bounded_beyond() -> None:
    """Beyond, the tail is exp(-x^2 / 2) / 2 from above and nothing from below; in 500 digits both can be told apart."""
    with localcontext(precise(500)):
        for x in (Decimal("40.5"), Decimal(41)):
            tail = (x * x / -2).exp() / 2
            assert 0 < tail < Decimal("1e-350")
            assert curve._phi(-x, high=True) == tail
            assert curve._phi(-x, high=False) == 0
            assert curve._phi(x, high=True) == 1
            assert curve._phi(x, high=False) == 1 - tail < 1
    with localcontext(precise(60)):
        edge = Decimal(40)
        assert curve._phi(edge, high=True) > 1, "summed, with its margin"
        assert curve._phi(-edge, high=False) < 0


# ---- limits of what the curve is asked for


def tell(monkeypatch: pytest.MonkeyPatch, guess: float, delta: Callable[[Fraction, Fraction], Fraction]) -> list[Any]:
    """The curve with a guess and deltas that are told; gives what `find_root` and `find_least` were asked."""
    asked: list[Any] = []

    def find_root(function: Callable[[float], float], low: float, high: float) -> float:
        asked.append((function, low, high))
        return guess

    def find_least(holds: Callable[[Fraction], bool], start: float) -> Fraction:
        asked.append((holds, start))
        return Fraction(1, 3)

    monkeypatch.setattr(curve, "find_root", find_root)
    monkeypatch.setattr(curve, "find_least", find_least)
    monkeypatch.setattr(curve, "delta_of_continuous", delta)
    return asked


DELTA = Fraction(1, 1000)


def test_the_slack_is_a_factor_of_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve, "delta_of_continuous", lambda ratio, epsilon: ratio * epsilon)
    assert curve._delta_with_slack(Fraction(1, 2), Fraction(1, 5)) == Fraction(1, 10) * (1 + SLACK)


@pytest.mark.parametrize("known", ["epsilon", "ratio"])
def test_the_curve_serves_deltas_from_its_least_one_on(known: str) -> None:
    least = Fraction(1, 10**25)
    find = curve.epsilon_of_gaussian if known == "epsilon" else curve.ratio_within
    assert find.__wrapped__(Fraction(10), least * Fraction(999_999, 10**6)) is None
    found = find.__wrapped__(Fraction(10), least)
    assert found is not None
    pair = (Fraction(10), found) if known == "epsilon" else (found, Fraction(10))
    assert curve.log_delta(*map(float, pair)) == pytest.approx(math.log(1e-25), abs=1e-4)


@pytest.mark.parametrize(("shift", "served"), [(-1, True), (0, True), (1, False)])
def test_an_epsilon_is_looked_for_up_to_the_largest_and_a_millionth(
    shift: int, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = 500 * (1 + 1e-6)
    guess = edge if not shift else math.nextafter(edge, shift * math.inf)
    asked = tell(monkeypatch, guess, lambda ratio, epsilon: Fraction(1))
    found = curve.epsilon_of_gaussian.__wrapped__(Fraction(2), DELTA)
    assert found == (Fraction(1, 3) if served else None)
    function, low, high = asked[0]
    assert (low, high) == (1e-14, 1000.0)
    assert function(1.5) == curve.log_delta(2.0, 1.5) - math.log(DELTA)
    assert len(asked) == (2 if served else 1)


@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 2), Fraction(2)])
@pytest.mark.parametrize("guess", [1e-14, 1.5e-14, 1.999e-14, 2.001e-14, 2.5e-14, 3e-14])
def test_a_vanishing_epsilon_is_two_slacks_where_one_proves_it(
    guess: float, share: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The told delta with its slack is `share` of the one wanted: what is exactly as large is still within it."""
    told: list[tuple[Fraction, Fraction]] = []

    def delta(ratio: Fraction, epsilon: Fraction) -> Fraction:
        told.append((ratio, epsilon))
        return share * DELTA / (1 + SLACK)

    asked = tell(monkeypatch, guess, delta)
    found = curve.epsilon_of_gaussian.__wrapped__(Fraction(2), DELTA)
    proven = guess < 2e-14 and share <= 1
    assert found == (2 * SLACK if proven else Fraction(1, 3))
    if guess < 2e-14:
        assert told == [(2, SLACK)]
    if not proven:
        holds, start = asked[1]
        assert start == guess
        assert holds(Fraction(7)) == (share <= 1)
        assert told[-1] == (2, 7 - SLACK), "the slack is taken off epsilon"
        assert not holds(SLACK)


@pytest.mark.parametrize(
    ("epsilon", "served"),
    [
        (SLACK, False),
        (SLACK * Fraction(101, 100), True),
        (Fraction(1), True),
        (Fraction(500), True),
        (500 + SLACK, False),
    ],
)
@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 2), Fraction(2)])
def test_a_ratio_is_looked_for_between_the_slack_and_the_largest_epsilon(
    epsilon: Fraction, served: bool, share: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Fraction, Fraction]] = []

    def delta(ratio: Fraction, epsilon: Fraction) -> Fraction:
        told.append((ratio, epsilon))
        return share * DELTA / (1 + SLACK)

    asked = tell(monkeypatch, 12.0, delta)
    found = curve.ratio_within.__wrapped__(epsilon, DELTA)
    assert found == (Fraction(333_333_334, 10**9) if served else None), "a third in nine digits, rounded up"
    if served:
        function, low, high = asked[0]
        assert (low, high) == (1e-9, 1e60)
        assert function(2.5) == curve.log_delta(2.5, float(epsilon)) - math.log(DELTA)
        holds, start = asked[1]
        assert (start, holds(Fraction(7))) == (12.0, share <= 1)
        assert told == [(7, epsilon - SLACK)], "the slack is taken off epsilon"


# ---- the search


def ask(wanted: Fraction, guess: float) -> tuple[Fraction, list[Fraction]]:
    asked: list[Fraction] = []

    def holds(x: Fraction) -> bool:
        asked.append(x)
        return x >= wanted

    return curve.find_least(holds, guess), asked


def walk(wanted: Fraction, start: Fraction) -> list[Fraction]:
    """The numbers that are asked: steps that grow sixteenfold until the truth is enclosed, then middles."""
    step, asked = Fraction(1, 10**11), [start]
    down = start >= wanted
    while (asked[-1] >= wanted) == down:
        asked.append(round_up(asked[-1] / (1 + step) if down else asked[-1] * (1 + step)))
        step *= 16
    low, high = sorted(asked[-2:])
    while high - low > high / 10**10:
        middle = round_up((low + high) / 2)
        if not low < middle < high:
            break
        asked.append(middle)
        low, high = (low, middle) if middle >= wanted else (middle, high)
    return asked


@pytest.mark.parametrize("wanted", [Fraction(1, 7), Fraction(3), Fraction(10**6, 3)])
@pytest.mark.parametrize("off", ["1e-3", "-1e-3", "1e-10", "-1e-10", "2e-11", "-2e-11", "5e-9", "-0.4", "0.9"])
def test_a_number_is_enclosed_by_growing_steps_and_then_halved(wanted: Fraction, off: str) -> None:
    start = round_up(Fraction(float(wanted * (1 + Fraction(off)))))
    found, asked = ask(wanted, float(wanted * (1 + Fraction(off))))
    assert asked == walk(wanted, start)
    assert wanted <= found <= wanted * (1 + Fraction(2, 10**10))
    assert found in asked


@pytest.mark.parametrize("guess", [0.0, -0.5, -2.0, math.nan, math.inf, -math.inf])
def test_the_search_begins_at_one_where_there_is_no_guess(guess: float) -> None:
    assert ask(Fraction(5), guess)[1][0] == 1


@pytest.mark.parametrize("guess", [0.3, 1e-20, 0.9999])
def test_the_search_begins_at_a_guess_below_one_too_and_a_little_above_it(guess: float) -> None:
    first = ask(Fraction(5), guess)[1][0]
    assert Fraction(guess) <= first <= Fraction(guess) * (1 + Fraction(1, 10**11))
    assert ask(Fraction(5), 1 / 3)[1][0] == Fraction(333_333_333_334, 10**12)


def test_a_root_is_where_the_function_is_no_longer_above_zero() -> None:
    asked: list[float] = []

    def falls(x: float) -> float:
        asked.append(x)
        return 0.0 if x >= 3 else 1.0

    assert curve.find_root(falls, 1.0, 16.0) == pytest.approx(3.0, rel=1e-15)
    assert asked[:3] == [4.0, 2.0, pytest.approx(math.sqrt(8))]
    assert curve.find_root(lambda x: 0.0, 1.0, 4.0) == pytest.approx(1.0, rel=1e-14)
    assert curve.find_root(lambda x: 1e-9, 1.0, 4.0) == 4.0


def test_a_delta_that_is_lost_in_rounding_is_the_least_float() -> None:
    least = math.log(5e-324)
    assert curve.log_delta(1e40, 0.0) == least
    # m = 1e-20 and epsilon = m^2: a = -m / 2 and b = 3 m / 2, whose Mills ratios are one float.
    assert curve.log_delta(1e40, 1e-40) == pytest.approx(least - math.log(math.sqrt(2 * math.pi)), rel=1e-15)


@pytest.mark.parametrize("x", [0.0, 0.5, 1.0, 3.0, 3.999, 4.0, 5.0, 8.0, 20.0])
def test_the_ratio_of_mills_is_that_of_tail_and_density(x: float) -> None:
    with localcontext(precise(120)):
        density = (Decimal(x) * Decimal(x) / -2).exp() / (2 * exact_pi(120)).sqrt()
        truth = float((1 - exact_phi(Decimal(x), 100)) / density)
        assert curve._density(x) == pytest.approx(float(density), rel=1e-13)
    assert curve._mills(x) == pytest.approx(truth, rel=1e-12)


# ---- zCDP: the order that is searched, and what is computed at it


def test_an_order_is_searched_eight_e_folds_to_either_side_of_its_start() -> None:
    asked: list[float] = []

    def bound(a: float) -> float:
        asked.append(a)
        return 0.0

    golden = (math.sqrt(5) - 1) / 2
    least = zcdp._search_order(bound, 5.0)
    inner, outer = (math.log(5) + x for x in (8 - 16 * golden, -8 + 16 * golden))
    assert asked[:2] == pytest.approx([1 + math.exp(inner), 1 + math.exp(outer)], rel=1e-13)
    # Of two that are equal the lower order is kept: the bracket closes at its left end.
    assert float(least - 1) == pytest.approx(5 * math.exp(-8), rel=1e-9)
    assert float(zcdp._search_order(lambda a: a, 5.0) - 1) == pytest.approx(5 * math.exp(-8), rel=1e-9)
    assert float(zcdp._search_order(lambda a: -a, 5.0) - 1) == pytest.approx(5 * math.exp(8), rel=1e-9)
    assert float(zcdp._search_order(lambda a: (a - 3) ** 2, 5.0)) == pytest.approx(3, rel=1e-6)


def test_an_order_is_a_billionth_above_one_at_least() -> None:
    asked: list[float] = []

    def bound(a: float) -> float:
        asked.append(a)
        return a

    assert zcdp._search_order(bound, 1e-9) == 1 + Fraction(1e-9)
    assert min(asked) == 1 + 1e-9


PAIRS = [("1/100", "1e-6"), ("3", "1e-9"), ("40", "1/3"), ("1e-7", "1e-40")]


@pytest.mark.parametrize(("rho", "delta"), PAIRS)
@pytest.mark.parametrize("order", [Fraction(3, 2), Fraction(7), Fraction(1000)])
def test_epsilon_is_the_bound_at_the_order_found_rounded_up(
    rho: str, delta: str, order: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def search(bound: Callable[[float], float], start: float) -> Fraction:
        asked.append((bound, start))
        return order

    monkeypatch.setattr(zcdp, "_search_order", search)
    amount, small = Fraction(rho), Fraction(delta)
    found = zcdp.epsilon_of_zcdp.__wrapped__(amount, small)
    with localcontext(precise(100)):
        a, ln_delta = dec(order), dec(small).ln()
        truth = Fraction(a * dec(amount) + (1 - 1 / a).ln() + (-ln_delta - a.ln()) / (a - 1))
    assert found == round_up(max(truth, Fraction(0))) or abs(truth) < Fraction(1, 10**20)
    bound, start = asked[0]
    log = float(ln_delta)
    assert start == pytest.approx(math.sqrt(-log / float(amount)), rel=1e-12)
    for at in (1.5, 20.0):
        expected = at * float(amount) + math.log(1 - 1 / at) + (-log - math.log(at)) / (at - 1)
        assert bound(at) == pytest.approx(expected, rel=1e-12)


def dec(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


@pytest.mark.parametrize(("epsilon", "delta"), PAIRS)
@pytest.mark.parametrize("order", [Fraction(3, 2), Fraction(7), Fraction(10**5)])
def test_rho_is_what_the_order_found_allows_rounded_down(
    epsilon: str, delta: str, order: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def search(bound: Callable[[float], float], start: float) -> Fraction:
        asked.append((bound, start))
        return order

    monkeypatch.setattr(zcdp, "_search_order", search)
    monkeypatch.setattr(zcdp, "epsilon_of_zcdp", lambda rho, delta: wanted)
    wanted, small = Fraction(epsilon), Fraction(delta)
    found = zcdp.rho_within.__wrapped__(wanted, small)
    with localcontext(precise(100)):
        a, ln_delta = dec(order), dec(small).ln()
        truth = Fraction((dec(wanted) - (1 - 1 / a).ln() - (-ln_delta - a.ln()) / (a - 1)) / a)
    assert found == round_down(max(truth, Fraction(0)))
    bound, start = asked[0]
    log = float(ln_delta)
    assert start == pytest.approx(max(2 * -log / float(wanted), 1e-3), rel=1e-12)
    for at in (1.5, 20.0):
        expected = (float(wanted) - math.log(1 - 1 / at) - (-log - math.log(at)) / (at - 1)) / at
        assert -bound(at) == pytest.approx(expected, rel=1e-12)


def test_the_search_for_rho_begins_at_a_thousandth_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[float] = []

    def search(bound: Callable[[float], float], start: float) -> Fraction:
        started.append(start)
        return Fraction(2)

    monkeypatch.setattr(zcdp, "_search_order", search)
    zcdp.rho_within.__wrapped__(Fraction(500), Fraction(999, 1000))
    assert started[0] == 1e-3


@pytest.mark.parametrize("refused", [0, 1, 2, 7, 19, 20, 30])
def test_rho_is_lowered_by_growing_hairs_until_its_own_conversion_agrees(
    refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Fraction] = []
    wanted = Fraction(1)

    def convert(rho: Fraction, delta: Fraction) -> Fraction:
        tried.append(rho)
        return wanted + 1 if len(tried) <= refused else wanted

    monkeypatch.setattr(zcdp, "_search_order", lambda bound, start: Fraction(10))
    monkeypatch.setattr(zcdp, "epsilon_of_zcdp", convert)
    found = zcdp.rho_within.__wrapped__(wanted, Fraction(1, 100))
    hair, expected = Fraction(1, 10**12), tried[:1]
    while len(expected) <= refused and hair * 4 < 1:
        expected.append(round_down(expected[-1] * (1 - hair)))
        hair *= 4
    assert tried == expected
    assert found == (expected[-1] if len(expected) > refused else 0)


def test_a_promise_too_small_to_compute_with_has_no_rho_and_the_next_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Fraction(1, 10**6)
    with monkeypatch.context() as patched:
        patched.setattr(zcdp, "_search_order", lambda bound, start: pytest.fail("nothing is to be searched"))
        assert zcdp.rho_within.__wrapped__(zcdp.SMALLEST, small) == 0
        assert zcdp.rho_within.__wrapped__(Fraction(1), Fraction(0)) == 0
        assert zcdp.rho_within.__wrapped__(Fraction(1), Fraction(-1)) == 0
    assert zcdp.rho_within.__wrapped__(Fraction(1, 10**20), small) > 0
    assert zcdp.rho_within.__wrapped__(Fraction(1), Fraction(1, 10**300)) > 0


def test_the_conversion_of_nothing_and_of_every_delta() -> None:
    convert = zcdp.epsilon_of_zcdp.__wrapped__
    assert convert(Fraction(0), Fraction(0)) == convert(Fraction(0), Fraction(1, 2)) == 0
    assert convert(Fraction(5), Fraction(1)) == convert(Fraction(5), Fraction(2)) == 0
    assert convert(Fraction(5), Fraction(1, 2)) > 0
    assert convert(Fraction(1), Fraction(1, 10**400)) > 50, "too small for a float"
    for delta in (Fraction(0), Fraction(-1)):
        with pytest.raises(ParameterError, match="no epsilon at delta 0"):
            convert(Fraction(1), delta)
    assert zcdp._log(Fraction(1, 10**400)) == pytest.approx(-400 * math.log(10), rel=1e-14)
    assert zcdp._log(Fraction(7, 2)) == pytest.approx(math.log(3.5), rel=1e-14)


@pytest.mark.parametrize(
    ("event", "rho"),
    [
        (PureEvent(Fraction(1, 3)), Fraction(1, 18)),
        (PureEvent(2), Fraction(2)),
        (PureEvent(3), Fraction(3)),
        (LaplaceEvent(4, 2), Fraction(1, 8)),
        (SelectionEvent(Fraction(1, 3)), Fraction(1, 18)),
        (SelectionEvent(4, bounded_range=True), Fraction(2)),
        (SelectionEvent(8, bounded_range=True), Fraction(8)),
        (SelectionEvent(9, bounded_range=True), Fraction(9)),
        (RandomizedEvent(1), Fraction(0)),
    ],
)
def test_a_pure_price_is_half_a_square_or_itself_and_of_a_bounded_range_an_eighth(event: Any, rho: Fraction) -> None:
    assert zcdp_cost(event) == Cost(rho)


def test_what_is_spent_at_a_delta_leaves_the_thresholds_theirs() -> None:
    third = Fraction(1, 3)
    noise, shown = PureEvent(1), ThresholdEvent(third)
    free = ZCDPAccountant().compose(shown)
    assert free.compute_spent() == ZCDP(0, third)
    assert free.compute_spent(third) == ApproxDP(0, third), "nothing is left to convert, and nothing needs it"
    assert free.compute_spent(Fraction(1, 4)) is None
    both = free.compose(noise)
    assert both.compute_spent(third) is None, "no delta is left for the conversion"
    assert both.compute_spent(1) is None
    assert both.compute_spent(Fraction(1, 2)) == ApproxDP(
        zcdp.epsilon_of_zcdp(Fraction(1, 2), Fraction(1, 6)), Fraction(1, 2)
    )
    assert both.epsilon(Fraction(1, 2)) >= both.compute_spent(Fraction(1, 2)).epsilon
    assert both.epsilon(third) == math.inf
    assert ZCDPAccountant().compute_spent(0) == PureDP(0)
    assert ZCDPAccountant().compute_remaining() is None


def test_what_remains_of_a_limit_is_never_below_nothing() -> None:
    account = ZCDPAccountant(ZCDP(1, Fraction(1, 10)), Cost(Fraction(3, 4), Fraction(1, 5)))
    assert account.compute_remaining() == ZCDP(0), "no charge fits where the delta is passed"
    assert not account.fits(PureEvent(Fraction(1, 1000)))
    account = ZCDPAccountant(ZCDP(1, Fraction(1, 10)), Cost(Fraction(5, 4), Fraction(1, 20)))
    assert account.compute_remaining() == ZCDP(0), "none fits where the rho is"
    assert not account.fits(ComposedEvent(()))
    assert ZCDPAccountant(ZCDP(1)).compose(PureEvent(1), 2).cost == Cost(Fraction(1))


@pytest.mark.parametrize("accountant", [PureAccountant, ZCDPAccountant, PLDAccountant])
def test_an_accountant_takes_whole_counts_of_what_it_can_price(accountant: Any) -> None:
    account = accountant()
    assert account.supports(PureEvent(1)) is True
    assert account.supports(UnsupportedEvent()) is False
    assert account.supports(GaussianEvent(100)) is (accountant is not PureAccountant)
    for count in (-1, True, 1.0):
        with pytest.raises(ParameterError, match="count is not a whole number"):
            account.compose(PureEvent(1), count)
    for event in (UnsupportedEvent("why"), ComposedEvent((PureEvent(1), UnsupportedEvent("why")))):
        with pytest.raises(ParameterError, match="cannot price an event that has no description"):
            account.compose(event)
    assert account.compose(PureEvent(1), 0).epsilon() == 0
    assert account.compose(PureEvent(1), 3).epsilon() == 3, "all charges are pure: their epsilons add up"
    assert account.fits(PureEvent(10**6))


def test_a_refusal_tells_the_delta_of_this_event_alone() -> None:
    hundredth = Fraction(1, 100)
    for account, event in (
        (ZCDPAccountant(ZCDP(1, Fraction(1, 10))), GaussianEvent(1, 3)),
        (PureAccountant(ApproxDP(1, Fraction(1, 10))), PureEvent(2)),
    ):
        before = account.compose(ThresholdEvent(hundredth))
        with pytest.raises(BudgetExceeded) as refusal:
            before.compose(ComposedEvent((event, ThresholdEvent(2 * hundredth))))
        told = refusal.value.fields
        assert (told["delta"], told["delta_remaining"], told["remaining"]) == (0.02, 0.09, 1.0)


@pytest.mark.parametrize("accountant", [PureAccountant, PLDAccountant])
def test_a_limit_may_be_used_up_to_its_last_digit(accountant: Any) -> None:
    account = accountant(PureDP(1))
    assert account.fits(PureEvent(1))
    used = account.compose(PureEvent(1))
    assert used.compute_remaining() == PureDP(0)
    assert not used.fits(PureEvent(Fraction(1, 10**6)))
    with pytest.raises(BudgetExceeded) as refusal:
        used.compose(PureEvent(Fraction(1, 2)))
    told = refusal.value.fields
    assert (told["asked"], told["delta"], told["remaining"], told["delta_remaining"]) == (0.5, 0.0, 0.0, 0.0)
    with pytest.raises(BudgetExceeded, match="without a formal guarantee"):
        account.compose(NonPrivateEvent())


@pytest.mark.parametrize("accountant", [PureAccountant, PLDAccountant])
def test_nothing_is_promised_at_a_delta_of_one_or_below_that_of_the_thresholds(accountant: Any) -> None:
    tenth = Fraction(1, 10)
    account = accountant().compose(ComposedEvent((PureEvent(2), ThresholdEvent(tenth))))
    assert account.compute_spent(1) is None
    assert account.compute_spent(Fraction(9, 100)) is None
    assert account.compute_spent(tenth) == ApproxDP(2, tenth)
    assert account.epsilon(1) == account.epsilon() == math.inf
    assert account.compose(NonPrivateEvent()).compute_spent(tenth) is None
    assert account.compute_remaining() is None
