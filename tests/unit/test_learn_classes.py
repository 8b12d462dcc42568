"""Naive Bayes and multinomial regression: what one unit can move, and what is found without noise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.attacks.dp_audit import audit
from deniable.dp.accounting import SelfComposedEvent
from deniable.dp.mechanisms.mechanism import calibrate_part
from deniable.errors import ParameterError
from deniable.learn import boosting, logistic
from deniable.learn.boosting import BayesPlan, count_classes
from deniable.learn.features import STEPS, encode_codes, encode_rows, encode_target
from deniable.learn.linear import WEIGHT, bound_class_step, share_classes, sum_class_step
from deniable.learn.logistic import RESIDUE, MultinomialPlan, sum_class_gradients
from deniable.learn.model import LearnedModel, from_plain, to_plain
from deniable.learn.training import Planned, Task, plan_training, train_model
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Column, ColumnType, PrivacyUnit
from learning import PERSON, ROW, Pooled, almost_exact, people, rows_of, table

BUDGET = ApproxDP(1, "1e-6")
METHODS = ("bayes", "multinomial")
VALUES = st.fixed_dictionaries(
    {
        "age": st.none() | st.integers(-(2**60), 2**60),
        "sex": st.none() | st.sampled_from(["F", "M", "X"]),
        "town": st.none() | st.sampled_from(["Ada", "Brin", "Cole", "Dun"]),
    }
)
UNITS = st.lists(st.lists(VALUES, min_size=1, max_size=2), min_size=1, max_size=4)
Records = list[dict[str, Any]]


def _plan(method: str, unit: PrivacyUnit = ROW, **rest: Any) -> Planned:
    return plan_training(table(unit), unit, Task("town", ("age", "sex"), method, **rest), BUDGET)


def _sums(what: Planned, records: Records, weights: np.ndarray) -> np.ndarray:
    rows = rows_of(records)
    truth, known = encode_target(what.target, rows)
    if isinstance(what.plan, BayesPlan):
        return count_classes(what.design, 3, encode_codes(what.design, rows)[known], truth[known])
    return sum_class_gradients(encode_rows(what.design, rows)[known], truth[known], weights).ravel()


@settings(deadline=None, max_examples=40)
@given(UNITS, st.integers(0, 2**32), st.sampled_from([0.1, 5.0, 1e30]), st.sampled_from(METHODS))
def test_no_unit_moves_a_release_farther_than_the_plan_says(
    units: list[Records], seed: int, size: float, method: str
) -> None:
    what = _plan(method, PERSON)
    weights = size * np.random.default_rng(seed).normal(size=(3, what.design.width))
    whole = _sums(what, [record for unit in units for record in unit], weights)
    for place in range(len(units)):
        others = [record for other, unit in enumerate(units) if other != place for record in unit]
        moved = whole - _sums(what, others, weights)
        assert sum(int(each) ** 2 for each in moved) <= what.plan.mechanism.sensitivity_squared  # type: ignore[attr-defined]


@settings(deadline=None, max_examples=40)
@given(UNITS, st.integers(0, 2**32), st.sampled_from([0.1, 1.0, 5.0, 1e30]))
def test_no_unit_moves_what_the_last_multinomial_step_releases_farther_than_the_plan_says(
    units: list[Records], seed: int, size: float
) -> None:
    what = _plan("multinomial", PERSON)
    assert isinstance(what.plan, MultinomialPlan)
    assert what.plan.last is not None
    weights = size * np.random.default_rng(seed).normal(size=(3, what.design.width))

    def sums(records: Records) -> np.ndarray:
        rows = rows_of(records)
        truth, known = encode_target(what.target, rows)
        return sum_class_step(encode_rows(what.design, rows)[known], truth[known], weights, what.plan.fine)

    whole = sums([record for unit in units for record in unit])
    for place in range(len(units)):
        moved = whole - sums([r for other, unit in enumerate(units) if other != place for r in unit])
        assert sum(int(each) ** 2 for each in moved) <= what.plan.last.sensitivity_squared


def test_the_bound_of_the_last_multinomial_step_is_nearly_reached() -> None:
    """A row whose own value has no chance, and two others half each."""
    what = _plan("multinomial")
    assert isinstance(what.plan, MultinomialPlan)
    weights = np.zeros((3, what.design.width))
    weights[0, 0] = -1000.0
    rows = rows_of([{"age": 100, "sex": "F", "town": "Ada"}])
    moved = sum_class_step(encode_rows(what.design, rows), np.zeros(1, np.int64), weights, what.plan.fine)
    found, bound = sum(int(each) ** 2 for each in moved), bound_class_step(what.design, 1, what.plan.fine)
    assert 0.8 * bound < found <= bound == what.plan.last.sensitivity_squared  # type: ignore[union-attr]


def test_without_noise_the_last_step_is_newtons() -> None:
    """Few turns end far from the optimum; the gradient is far flatter after the step, and errors are the sample's."""
    rows = _sorted_people(4000)
    what = almost_exact(_plan("multinomial", turns=12))
    assert isinstance(what.plan, MultinomialPlan)
    x, truth = encode_rows(what.design, rows) / STEPS, encode_target(what.target, rows)[0]

    def slope(model: LearnedModel) -> float:
        return float(np.abs(x.T @ (model.predict(rows) - np.eye(3)[truth])).max() / len(rows))

    with_step, without = train_model(what, rows), train_model(replace(what, plan=replace(what.plan, last=None)), rows)
    assert without.errors is None
    assert slope(with_step) < 0.5 * slope(without)
    assert np.abs(np.array(with_step.coefficients).reshape(3, -1).sum(axis=0)).max() < 1e-9


def test_a_model_of_very_many_coefficients_has_no_last_step_and_no_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logistic, "MOST_SOLVED", 10)
    what = _plan("multinomial")
    assert train_model(what, _sorted_people(500)).errors is None
    assert what.plan.event == SelfComposedEvent(what.plan.mechanism.event, 21)  # type: ignore[attr-defined]


def test_the_bounds_are_reached_by_the_worst_row() -> None:
    worst = [{"age": 100, "sex": "F", "town": "Ada"}]
    bayes, regression = _plan("bayes"), _plan("multinomial")
    assert (_sums(bayes, worst, np.zeros(0)) ** 2).sum() == bayes.plan.mechanism.sensitivity_squared  # type: ignore[attr-defined]
    wrong = np.zeros((3, regression.design.width))
    wrong[1] = 1000.0
    found = sum(int(each) ** 2 for each in _sums(regression, worst, wrong))
    assert isinstance(regression.plan, MultinomialPlan)
    assert found == regression.plan.most_squared == regression.plan.mechanism.sensitivity_squared


@pytest.mark.parametrize("method", METHODS)
def test_sums_are_the_same_in_any_order_and_company(method: str) -> None:
    what, records = _plan(method), people(60).to_pylist()
    weights = np.random.default_rng(1).normal(size=(3, what.design.width))
    alone = sum(_sums(what, [record], weights) for record in records)
    assert (_sums(what, records, weights) == alone).all()
    assert (_sums(what, records[::-1], weights) == alone).all()


def test_shares_are_the_softmax_and_never_add_up_to_more_than_one() -> None:
    logits = np.random.default_rng(2).normal(0, 4, (2000, 5))
    found = share_classes(np.rint(logits * WEIGHT * STEPS), RESIDUE)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert np.abs(found / RESIDUE - powers / powers.sum(axis=1, keepdims=True)).max() < 0.005
    assert (found.sum(axis=1) <= RESIDUE).all()
    assert (found >= 0).all()


def _sorted_people(count: int, seed: int = 0) -> pa.Table:
    """The town follows age and sex."""
    rows = people(count, seed)
    draw = np.random.default_rng(seed)
    level = np.asarray(rows["age"]) / 34 + (np.asarray(rows["sex"]) == "F") * 0.5 + draw.normal(0, 0.3, count)
    towns = np.array(["Ada", "Brin", "Cole"])[np.clip(level, 0, 2.99).astype(int)]
    return rows.set_column(rows.column_names.index("town"), "town", pa.array(towns))


def test_without_noise_naive_bayes_is_its_closed_form() -> None:
    rows = _sorted_people(3000)
    model = train_model(almost_exact(_plan("bayes")), rows)
    truth, codes = encode_target(model.target, rows)[0], encode_codes(model.design, rows)
    chances = np.zeros((3000, 3))
    for value in range(3):
        mine = codes[truth == value]
        chances[:, value] = np.log(len(mine) / 3000)
        for block in (1, 2):
            shares = np.bincount(mine[:, block], minlength=50) / len(mine)
            chances[:, value] += np.log(np.maximum(shares, 1e-4))[codes[:, block]]
    assert (chances.argmax(axis=1) == model.predict(rows).argmax(axis=1)).mean() > 0.99


def test_without_noise_the_regression_ends_where_its_gradient_is_flat() -> None:
    rows = _sorted_people(2000)
    what = almost_exact(_plan("multinomial", turns=400))
    model = train_model(what, rows)
    truth = encode_target(model.target, rows)[0]
    x = encode_rows(model.design, rows) / STEPS
    flat = x.T @ (model.predict(rows) - np.eye(3)[truth]) / len(rows)
    start = x.T @ (np.full((2000, 3), 1 / 3) - np.eye(3)[truth]) / len(rows)
    assert np.abs(flat).max() < 0.05 * np.abs(start).max()


@pytest.mark.parametrize("method", METHODS)
def test_values_are_told_apart_within_a_budget(method: str) -> None:
    model = train_model(_plan(method), _sorted_people(10_000))
    test = _sorted_people(5000, 1)
    likely = np.array(["Ada", "Brin", "Cole"])[model.predict(test).argmax(axis=1)]
    assert (likely == np.asarray(test["town"])).mean() > 0.65  # the commonest is half of them


@pytest.fixture(scope="module", params=METHODS)
def model(request: pytest.FixtureRequest) -> LearnedModel:
    return train_model(_plan(request.param), people(300))


def test_a_model_of_all_values_reads_back_and_tells_losses(model: LearnedModel) -> None:
    again = from_plain(to_plain(model))
    assert again == model
    assert (again.predict(people(9)) == model.predict(people(9))).all()
    assert len(model.coefficient_table()) == 3 * model.design.width
    assert model.coefficient_table()[0].feature == "Ada: intercept"
    losses = model.losses(rows_of([{"town": "Ada"}, {"town": None}]))
    assert losses[0] == pytest.approx(-np.log(model.predict(rows_of([{}]))[0, 0]))
    assert np.isnan(losses[1])
    for spoiled in ({"method": "linear"}, {"coefficients": to_plain(model)["coefficients"][1:]}):
        with pytest.raises(ValueError):  # noqa: PT011  the file's reader turns it into its own refusal
            from_plain(to_plain(model) | spoiled)


@pytest.mark.parametrize("method", METHODS)
def test_a_number_and_a_positive_value_are_refused(method: str) -> None:
    with pytest.raises(ParameterError, match="no listed values"):
        plan_training(table(), ROW, Task("charge", None, method), BUDGET)
    with pytest.raises(ParameterError, match="tells all values apart"):
        plan_training(table(), ROW, Task("town", None, method, positive="Ada"), BUDGET)
    one = Column("one", ColumnType.TEXT, categories=("only",), nullable=False)
    with pytest.raises(ParameterError, match="has one declared value"):
        plan_training(replace(table(), columns=(*table().columns, one)), ROW, Task("one", None, method), BUDGET)


@pytest.mark.parametrize("method", ["auto", "logistic", "boosted", "mlp", *METHODS])
def test_a_target_of_one_value_is_not_sent_to_methods_that_refuse_it(method: str) -> None:
    one = Column("one", ColumnType.TEXT, categories=("only",), nullable=False)
    with pytest.raises(ParameterError, match="has one declared value") as refusal:
        plan_training(replace(table(), columns=(*table().columns, one)), ROW, Task("one", None, method), BUDGET)
    assert "multinomial" not in str(refusal.value)


@pytest.mark.parametrize(("counted", "violated"), [(1, False), (3, True)])
def test_counts_stay_under_their_claim_and_a_twin_that_counts_thrice_is_caught(
    counted: int, violated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intruder sees the noisy counts. Three times the counts at the same noise is three times the distance."""
    what = plan_training(table(), ROW, Task("town", ("sex",), "bayes"), ApproxDP(1, "0.05"))
    assert isinstance(what.plan, BayesPlan)
    pooled, honest = Pooled(what.plan.mechanism), count_classes
    monkeypatch.setattr(boosting, "count_classes", lambda *given: counted * honest(*given))
    person = {"sex": "F", "town": "Ada"}

    def told(records: Records) -> Any:
        rows = rows_of(records)
        sums = boosting.count_classes(
            what.design, 3, encode_codes(what.design, rows), encode_target(what.target, rows)[0]
        )
        return lambda count: np.array([pooled.release(sums)[:2].sum() for _ in range(count)])

    found = audit(told([]), told([person]), epsilon=1, delta=0.05, runs=2000, confidence=1 - 1e-6)
    assert found.violated == violated


@pytest.mark.parametrize(("counted", "violated"), [(1, False), (3, True)])
def test_a_newton_step_stays_under_its_claim_and_a_twin_that_counts_thrice_is_caught(
    counted: int, violated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intruder sees the noisy sums of the last step, by the direction in which the person moves them."""
    what = plan_training(table(), ROW, Task("town", ("sex",), "multinomial"), ApproxDP(1, "0.05"))
    assert isinstance(what.plan, MultinomialPlan)
    assert what.plan.last is not None
    # Noise for the whole budget: a tenth of it, as the plan has it, would hide a twin from two thousand runs.
    whole = calibrate_part(ApproxDP(1, "0.05"), bound_class_step(what.design, 1, RESIDUE), Fraction(1))
    pooled, honest = Pooled(whole), sum_class_step
    monkeypatch.setattr(logistic, "sum_class_step", lambda *given: counted * honest(*given))
    weights = np.zeros((3, what.design.width))
    weights[0, 0] = -1000.0  # the person's own value has no chance, and two others half each: this moves most

    def sums(records: Records) -> np.ndarray:
        rows = rows_of(records)
        own = np.zeros(len(records), np.int64)
        return logistic.sum_class_step(encode_rows(what.design, rows), own, weights, RESIDUE).astype(np.int64)

    direction = sums([{"sex": "F", "town": "Ada"}]).astype(np.float64)

    def told(records: Records) -> Any:
        exact = sums(records)
        return lambda count: np.array([pooled.release(exact) @ direction for _ in range(count)])

    found = audit(told([]), told([{"sex": "F", "town": "Ada"}]), epsilon=1, delta=0.05, runs=2000, confidence=1 - 1e-6)
    assert found.violated == violated
