"""What is calibrated to a limit keeps it, also exactly at the limit, and its price can be told."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from deniable.dp.accounting import (
    ComposedEvent,
    GaussianEvent,
    PureEvent,
    SelfComposedEvent,
    ThresholdEvent,
    calibrate_gaussian,
    cheap_epsilon,
    keeps_limit,
)
from deniable.dp.accounting.analytic_gaussian import LARGEST_EPSILON, keeps_epsilon, ratio_within
from deniable.learn.training import METHODS, UNTARGETED, Task, plan_training
from deniable.policy.budget import ApproxDP
from deniable.synth.marginal import convert_budget
from learning import ROW, table

EPSILONS = [
    *("1/3", "0.001", "0.1", "0.3", "0.7", "1", "2.5", "10", "21.87", "100", "499", "499.9995", "499.9999999"),
    *("500", "500.0000001", "501", "505", "1000", "10000"),
]
DELTAS = ["1e-3", "1/3000", "1e-6", "1e-9", "1e-12"]
SQUARED = [Fraction(1), Fraction(7, 3), Fraction(6 * 10**8)]


def draw_limits(count: int) -> list[tuple[Fraction, Fraction]]:
    """Limits over all sizes, some of few digits and some of many."""
    draw = random.Random(7)
    return [
        (Fraction(repr(round(10 ** draw.uniform(-3, 4), draw.choice([1, 3, 9])))) or Fraction(1),
         Fraction(draw.choice(DELTAS)))
        for _ in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("squared", SQUARED)
def test_noise_for_a_limit_keeps_it(squared: Fraction) -> None:
    limits = [(Fraction(epsilon), Fraction(delta)) for epsilon in EPSILONS for delta in DELTAS] + draw_limits(50)
    for epsilon, delta in limits:
        variance = calibrate_gaussian(ApproxDP(epsilon, delta), sensitivity_squared=squared)
        assert keeps_limit(GaussianEvent(variance, squared), epsilon, delta), (epsilon, delta)
        if epsilon <= LARGEST_EPSILON:  # beyond it noise is calibrated by zCDP, which asks for more
            assert not keeps_limit(GaussianEvent(variance * Fraction(999, 1000), squared), epsilon, delta)


def test_a_price_ends_a_hair_above_the_limit_that_the_noise_keeps() -> None:
    """With an epsilon far below delta; what keeps the limit is not refused for the hair."""
    epsilon, delta = Fraction(1, 1000), Fraction(1, 3000)
    event = GaussianEvent(calibrate_gaussian(ApproxDP(epsilon, delta), 1))
    price = cheap_epsilon(event, delta)
    assert price is not None
    assert epsilon < price < epsilon * (1 + Fraction(1, 10**10))
    assert keeps_limit(event, epsilon, delta)


def test_the_largest_epsilon_of_the_curve_has_a_price() -> None:
    largest, delta = Fraction(LARGEST_EPSILON), Fraction(1, 10**6)
    event = GaussianEvent(calibrate_gaussian(ApproxDP(largest, delta), sensitivity_squared=10**9), Fraction(10**9))
    price = cheap_epsilon(event, delta)
    assert price is not None
    assert largest * Fraction(999_999, 10**6) < price <= largest


@pytest.mark.parametrize(("epsilon", "delta"), [("1e-14", "1e-6"), ("500.1", "1e-6"), ("1", "1e-26")])
def test_the_curve_proves_nothing_beyond_its_reach(epsilon: str, delta: str) -> None:
    assert not keeps_epsilon(Fraction(10**6), Fraction(epsilon), Fraction(delta))


def test_the_slack_counts_in_the_proof() -> None:
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    ratio = ratio_within(epsilon, delta)
    assert ratio is not None
    assert keeps_epsilon(ratio, epsilon, delta)
    assert not keeps_epsilon(ratio * Fraction(99_999_999, 10**8), epsilon, delta)


def test_what_else_is_in_a_composition_is_paid_from_the_same_limit() -> None:
    epsilon, delta = Fraction(2), Fraction(1, 10**6)
    noise = GaussianEvent(calibrate_gaussian(ApproxDP(epsilon, delta), 1))
    assert not keeps_limit(ComposedEvent((noise, ThresholdEvent(delta))), epsilon, delta)
    assert not keeps_limit(ComposedEvent((noise, ThresholdEvent(delta / 10))), epsilon, delta)
    assert not keeps_limit(SelfComposedEvent(noise, 2), epsilon, delta)
    assert not keeps_limit(ComposedEvent((noise, PureEvent(Fraction(1, 10)))), epsilon, delta)
    assert keeps_limit(SelfComposedEvent(PureEvent(Fraction(1, 10)), 20), epsilon, Fraction(0))


LEARNED = [each for each in METHODS if each not in ("auto", "torch", "mlp")]
TARGETS = {"linear": "charge", "poisson": "age", "logistic": "ill", "boosted": "ill"}


@pytest.mark.parametrize("method", LEARNED)
def test_every_method_can_be_planned_at_the_border(method: str) -> None:
    count = 2 if method in UNTARGETED else None
    target = None if method in UNTARGETED else TARGETS.get(method, "town")
    for epsilon in ("1/3", "499.9999999", "500", "10000"):
        for delta in ("1e-3", "1e-9"):
            limit = ApproxDP(Fraction(epsilon), Fraction(delta))
            assert (
                plan_training(
                    table(),
                    ROW,
                    Task(target, ("sex", "town") if target != "town" else ("sex",), method, count=count),
                    limit,
                ).method
                == method
            )


def test_synthetic_data_at_the_border_has_a_price() -> None:
    for epsilon in ("499.9999999", "500"):
        whole = convert_budget(ApproxDP(Fraction(epsilon), Fraction(1, 10**6)), 1)
        assert keeps_limit(GaussianEvent(whole.variance(1)), Fraction(epsilon), Fraction(1, 10**6))
