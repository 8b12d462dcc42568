"""Sensitivity by brute force: take away each unit, and see how far the exact sums move."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.learn import logistic
from deniable.learn.features import STEPS, Design, build_target, encode_rows, encode_target
from deniable.learn.linear import FEWER, MOST_WEIGHT, LinearPlan, sensitivity_squared, sum_moments
from deniable.learn.logistic import (
    FINEST,
    REACH,
    RESIDUE,
    SHARPNESS,
    Link,
    LogisticPlan,
    PoissonPlan,
    bound_residuals,
    link_logistic,
    link_poisson,
    plan_logistic,
    sum_gradients,
    sum_last,
)
from deniable.learn.training import Planned, Task, plan_training
from deniable.policy.budget import ZCDP, ApproxDP
from deniable.policy.schema import Neighboring, PrivacyUnit
from learning import UNITS, Records, rows_of, table

BUDGET = ApproxDP(1, "1e-6")


def _without(units: list[Records], left_out: int) -> Records:
    return [record for place, unit in enumerate(units) if place != left_out for record in unit]


def _moments(records: Records, made: Design, steps: int) -> np.ndarray:
    rows = rows_of(records)
    wanted, known = encode_target(build_target(table(), "charge"), rows, steps)
    return sum_moments(encode_rows(made, rows)[known], wanted[known], steps=steps)


@settings(deadline=None, max_examples=60)
@given(UNITS)
def test_no_unit_moves_the_moments_farther_than_the_plan_says(units: list[Records]) -> None:
    unit = PrivacyUnit("pid", max_groups=1, max_rows_per_group=2)
    plan = plan_training(table(unit), unit, Task("charge", ("age", "sex", "town")), BUDGET)
    assert isinstance(plan.plan, LinearPlan)
    assert plan.plan.steps > STEPS
    whole = _moments(_without(units, -1), plan.design, plan.plan.steps)
    for place in range(len(units)):
        moved = whole - _moments(_without(units, place), plan.design, plan.plan.steps)
        assert sum(int(each) ** 2 for each in moved) <= plan.plan.mechanism.sensitivity_squared


def _gradient(records: Records, plan: LogisticPlan, weights: np.ndarray) -> np.ndarray:
    rows = rows_of(records)
    wanted, known = encode_target(build_target(table(), "ill"), rows)
    entries = encode_rows(plan.design, rows)[known]
    return sum_gradients(
        entries, RESIDUE * wanted[known], weights, bound_residuals(entries, plan.most_squared), link_logistic(RESIDUE)
    )


WEIGHTS = st.floats(-30, 30) | st.floats(-1e30, 1e30)


@settings(deadline=None, max_examples=60)
@given(UNITS, st.lists(WEIGHTS, min_size=18, max_size=18), st.sampled_from([1, "1/2", "0.013", "1e-3"]))
def test_no_unit_moves_a_gradient_farther_than_the_plan_says(
    units: list[Records], weights: list[float], clip: str | int
) -> None:
    unit = PrivacyUnit("pid", max_groups=1, max_rows_per_group=2)
    what = plan_training(table(unit), unit, Task("ill", ("age", "sex", "town"), clip=clip), BUDGET)
    assert isinstance(what.plan, LogisticPlan)
    whole = _gradient(_without(units, -1), what.plan, np.array(weights))
    for place in range(len(units)):
        moved = whole - _gradient(_without(units, place), what.plan, np.array(weights))
        assert sum(int(each) ** 2 for each in moved) <= what.plan.mechanism.sensitivity_squared
        moved = _count(_without(units, -1), what.plan) - _count(_without(units, place), what.plan)
        assert sum(int(each) ** 2 for each in moved) <= what.plan.mechanism.sensitivity_squared
        tables = (_without(units, -1), _without(units, place))
        moved = np.subtract(*(_last(records, what.plan, np.array(weights)) for records in tables))
        assert what.plan.last is not None
        assert sum(int(each) ** 2 for each in moved) <= what.plan.last.sensitivity_squared


def _last(records: Records, plan: LogisticPlan, weights: np.ndarray) -> np.ndarray:
    rows = rows_of(records)
    wanted, known = encode_target(build_target(table(), "ill"), rows)
    return sum_last(encode_rows(plan.design, rows)[known], plan.fine * wanted[known], weights, link_logistic(plan.fine))


def test_a_row_that_nobody_expected_moves_the_last_step_as_far_as_the_plan_says() -> None:
    plan = plan_logistic(plan_training(table(), PrivacyUnit(), Task("ill", ("sex", "town")), BUDGET).design, BUDGET)
    weights = np.zeros(plan.design.width)
    weights[0] = -1e6
    moved = _last([{"sex": "F", "town": "Ada", "ill": True}], plan, weights)
    assert plan.last is not None
    assert sum(int(each) ** 2 for each in moved) == plan.last.sensitivity_squared


@settings(deadline=None, max_examples=60)
@given(UNITS, st.lists(WEIGHTS, min_size=18, max_size=18), st.sampled_from([1, "1/2", "1e-3"]))
def test_no_unit_moves_what_a_poisson_fit_releases_farther_than_the_plan_says(
    units: list[Records], weights: list[float], clip: str | int
) -> None:
    unit = PrivacyUnit("pid", max_groups=1, max_rows_per_group=2)
    what = plan_training(table(unit), unit, Task("charge", ("age", "sex", "town"), "poisson", clip=clip), BUDGET)
    tables = [_without(units, place) for place in range(-1, len(units))]
    given = [_fit_silently(what, records, np.array(weights)) for records in tables]
    for place in range(1, len(given)):
        for whole, less in zip(given[0], given[place], strict=True):
            moved = sum((int(a) - int(b)) ** 2 for a, b in zip(whole, less, strict=True))
            assert moved <= what.plan.mechanism.sensitivity_squared  # type: ignore[attr-defined]


@given(UNITS, st.lists(WEIGHTS, min_size=18, max_size=18), st.floats(1e-4, 1.0))
def test_no_unit_moves_what_the_last_poisson_step_releases_farther_than_the_plan_says(
    units: list[Records], weights: list[float], mean: float
) -> None:
    unit = PrivacyUnit("pid", max_groups=1, max_rows_per_group=2)
    what = plan_training(table(unit), unit, Task("charge", ("age", "sex", "town"), "poisson"), BUDGET)
    plan = what.plan
    assert isinstance(plan, PoissonPlan)
    assert plan.last is not None
    link = link_poisson(mean, 7.0, plan.fine)

    def released(records: Records) -> np.ndarray:
        rows = rows_of(records)
        wanted, known = encode_target(what.target, rows, plan.steps)
        shares = plan.share(wanted[known], plan.fine)
        return sum_last(encode_rows(what.design, rows)[known], shares, np.array(weights), link)

    whole = released(_without(units, -1))
    for place in range(len(units)):
        moved = sum((int(a) - int(b)) ** 2 for a, b in zip(whole, released(_without(units, place)), strict=True))
        assert moved <= plan.last.sensitivity_squared


def test_the_bound_of_the_last_poisson_step_is_reached() -> None:
    plan = plan_training(table(), PrivacyUnit(), Task("charge", ("age", "sex"), "poisson"), BUDGET).plan
    assert isinstance(plan, PoissonPlan)
    assert plan.last is not None
    entries = encode_rows(plan.design, rows_of([{"age": 100, "sex": "F", "charge": 0.0}]))
    # All is expected of a row that has nothing: its residual and its curvature are as large as they can be.
    worst = sum_last(entries, np.zeros(1, np.int64), np.full(plan.design.width, 1e9), link_poisson(1.0, 7.0, plan.fine))
    assert sum(int(each) ** 2 for each in worst) == plan.last.sensitivity_squared


def _fit_silently(what: Planned, records: Records, weights: np.ndarray) -> list[np.ndarray]:
    """What a Poisson fit gives to the mechanism in its first turn, and in one at such weights."""
    rows, plan = rows_of(records), what.plan
    assert isinstance(plan, PoissonPlan)
    wanted, known = encode_target(what.target, rows, plan.steps)
    entries = encode_rows(what.design, rows)[known]
    silent = _Silent()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logistic, "descend", lambda slope_at, divide, start, turns, progress: start)
        replace(plan, mechanism=silent, last=None).fit(entries, wanted[known])  # type: ignore[arg-type]
    table = np.arange(2 * REACH * SHARPNESS) * RESIDUE // (2 * REACH * SHARPNESS)
    link = Link(RESIDUE, table, 1.0, 0.0, table // 4)
    most = bound_residuals(entries, plan.most_squared)
    return [silent.given, sum_gradients(entries, plan.share(wanted[known], RESIDUE), weights, most, link)]


class _Silent:
    """A mechanism that shows the exact values it was given."""

    variance = Fraction(1)

    def release(self, values: np.ndarray, entropy: object) -> np.ndarray:
        self.given = values
        return values.astype(np.float64)


def _count(records: Records, plan: LogisticPlan) -> np.ndarray:
    """What the turn of the counts gives to the mechanism, for rows that have a target."""
    rows, silent = rows_of(records), _Silent()
    truth, known = encode_target(build_target(table(), "ill"), rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logistic, "descend", lambda slope_at, divide, start, turns, progress: start)
        entries = encode_rows(plan.design, rows)[known]
        replace(plan, mechanism=silent, last=None).fit(entries, truth[known])  # type: ignore[arg-type]
    return silent.given


def test_the_bounds_are_reached_by_the_worst_row() -> None:
    made = plan_training(table(), PrivacyUnit(), Task("charge", ("age", "sex")), BUDGET).design
    worst = _moments([{"age": 100, "sex": "F", "charge": 1000.0}], made, STEPS)
    assert sum(int(each) ** 2 for each in worst) == sensitivity_squared(made, 1)
    plan = plan_training(table(), PrivacyUnit(), Task("ill", ("age", "sex")), BUDGET).plan
    assert isinstance(plan, LogisticPlan)
    wrong = _gradient([{"age": 100, "sex": "F", "ill": False}], plan, np.full(plan.design.width, 1e9))
    assert sum(int(each) ** 2 for each in wrong) == plan.most_squared
    counted = _count([{"age": 100, "sex": "F", "ill": True}], plan)
    assert 0.999 * plan.most_squared < sum(int(each) ** 2 for each in counted) <= plan.most_squared


def test_a_gradient_that_counts_twice_is_clipped_to_half_and_keeps_the_bound() -> None:
    loud, quiet = (
        plan_training(table(), PrivacyUnit(), Task("ill", ("age", "sex")), ApproxDP(epsilon, "1e-6")).plan
        for epsilon in ("0.01", 10)
    )
    assert isinstance(loud, LogisticPlan)
    assert isinstance(quiet, LogisticPlan)
    shares = np.full(loud.design.width, 0.1)
    assert (
        loud.sharpen(1000, shares, link_logistic(RESIDUE))[0],
        quiet.sharpen(100_000, shares, link_logistic(RESIDUE))[0],
    ) == (2, 1)
    said = plan_training(table(), PrivacyUnit(), Task("ill", ("age", "sex"), clip=1), ApproxDP("0.01", "1e-6")).plan
    assert said.sharpen(1000, shares, link_logistic(RESIDUE))[0] == 1  # type: ignore[attr-defined]
    rows = rows_of([{"age": age, "sex": sex, "ill": False} for age in (0, 49, 100) for sex in ("F", None)])
    entries = encode_rows(loud.design, rows)
    most = bound_residuals(entries, loud.most_squared // 2**2)
    for place in range(len(entries)):
        row = slice(place, place + 1)
        moved = 2 * sum_gradients(
            entries[row], np.zeros(1, np.int64), np.full(loud.design.width, 1e9), most[row], link_logistic(RESIDUE)
        )
        assert 0 < sum(int(each) ** 2 for each in moved) <= loud.most_squared


def test_a_replaced_unit_counts_for_two() -> None:
    units = [PrivacyUnit(neighboring=relation) for relation in Neighboring]
    for name in ("charge", "ill"):
        noises = [plan_training(table(u), u, Task(name), BUDGET).plan.mechanism.sensitivity_squared for u in units]  # type: ignore[attr-defined]
        assert noises[1] == 4 * noises[0]


def test_a_gradient_is_the_same_in_any_order_and_company() -> None:
    draw = np.random.default_rng(1)
    records = [{"age": int(a), "town": "Ada", "ill": bool(a % 2)} for a in draw.integers(0, 100, 200)]
    plan = plan_logistic(plan_training(table(), PrivacyUnit(), Task("ill", ("age", "town")), BUDGET).design, BUDGET)
    weights = draw.normal(0, 3, plan.design.width)
    alone = sum(_gradient([record], plan, weights) for record in records)
    assert (_gradient(records, plan, weights) == alone).all()
    assert (_gradient(records[::-1], plan, weights) == alone).all()


def test_sums_stay_exact_at_the_largest_weights_and_widths() -> None:
    # The largest logit of 8,191 columns, and the largest sum of one chunk, as floating point holds them.
    assert MOST_WEIGHT * (1 << 16) * STEPS * 8192 <= 2**53
    assert (1 << 16) * RESIDUE * STEPS < 2**53
    assert FEWER * FINEST * STEPS**2 < 2**53


@pytest.mark.parametrize("budget", [ZCDP("1/50"), ApproxDP("1e-4", "1e-9"), ApproxDP(300, "1e-3")])
@pytest.mark.parametrize("name", ["charge", "ill"])
def test_budgets_tiny_and_huge_are_planned_and_priced(budget: ApproxDP | ZCDP, name: str) -> None:
    assert plan_training(table(), PrivacyUnit(), Task(name), budget).plan.event is not None
