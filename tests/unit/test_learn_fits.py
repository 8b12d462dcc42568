"""Fits against oracles: finite differences, closed forms, Newton's method; and what happens at the edges."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from deniable.errors import ParameterError
from deniable.learn.features import STEPS, Design, encode_rows, encode_target
from deniable.learn.linear import Curvature, LinearPlan, estimate_shares
from deniable.learn.logistic import RESIDUE, LogisticPlan, bound_residuals, link_logistic, sum_gradients
from deniable.learn.model import load_model, save_model
from deniable.learn.training import Planned, Task, plan_training, train_model
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema
from learning import PERSON, ROW, almost_exact, people, rows_of, table

BUDGET = ApproxDP(1, "1e-6")


def _plan(target: str, *features: str, **rest: object) -> Planned:
    return plan_training(table(), ROW, Task(target, features or None, **rest), BUDGET)  # type: ignore[arg-type]


def _loss(inputs: np.ndarray, wanted: np.ndarray, weights: np.ndarray) -> float:
    logits = inputs @ weights
    return float((np.logaddexp(0, logits) - wanted * logits).sum())


def test_the_gradient_is_that_of_the_logistic_loss_by_finite_differences() -> None:
    rows, what = people(300), _plan("ill", "age", "sex", "town")
    entries, (wanted, _) = encode_rows(what.design, rows), encode_target(what.target, rows)
    weights, inputs = np.random.default_rng(2).normal(0, 1, what.design.width), entries / STEPS
    assert isinstance(what.plan, LogisticPlan)
    found = sum_gradients(
        entries, RESIDUE * wanted, weights, bound_residuals(entries, what.plan.most_squared), link_logistic(RESIDUE)
    ) / (RESIDUE * STEPS)
    nudge = 1e-5 * np.eye(len(weights))
    slope = [(_loss(inputs, wanted, weights + n) - _loss(inputs, wanted, weights - n)) / 2e-5 for n in nudge]
    # Each of 300 residuals is rounded to 1/1024, after a logit that is cut to 1/1024.
    np.testing.assert_allclose(found, slope, atol=300 * (1 / 1024))
    np.testing.assert_allclose(found, slope, atol=1.0, rtol=0.02)


def test_without_noise_the_linear_fit_is_the_closed_form_of_ridge() -> None:
    rows, what = people(500), almost_exact(_plan("charge", "age", "town", "sex", penalty=0.01))
    assert isinstance(what.plan, LinearPlan)
    steps = what.plan.steps
    inputs, wanted = encode_rows(what.design, rows) / STEPS, encode_target(what.target, rows, steps)[0] / steps
    deviations, level = inputs[:, 1:] - inputs[:, 1:].mean(axis=0), wanted.mean()
    normal = deviations.T @ deviations + 0.01 * 500 * np.eye(deviations.shape[1])
    weights = np.linalg.solve(normal, deviations.T @ (wanted - level))
    expected = 500 + 500 * (level + deviations @ weights)
    np.testing.assert_allclose(train_model(what, rows).predict(rows), np.clip(expected, 0, 1000), rtol=1e-6)


def test_without_noise_or_penalty_the_line_through_the_rows_is_found() -> None:
    rows = rows_of([{"age": age, "charge": 100.0 + 7 * age, "town": "Ada"} for age in range(0, 100, 5)])
    model = train_model(almost_exact(_plan("charge", "age", penalty=0)), rows)
    told = {entry["feature"]: entry for entry in model.coefficient_table()}
    assert told["age"]["coefficient"] == pytest.approx(7, rel=2e-3)  # entries are cut to 1/1024 of half the range
    assert told["age"]["error"] == pytest.approx(0, abs=0.02)
    assert told["intercept"]["coefficient"] == pytest.approx(100 + 7 * 50, rel=2e-3)


def test_values_of_a_column_have_effects_about_their_mean() -> None:
    records = [{"age": 50, "town": town, "charge": charge} for town, charge in (("Ada", 100.0), ("Brin", 400.0))]
    model = train_model(almost_exact(_plan("charge", "town", penalty=1e-9)), rows_of(records * 300))
    told = {entry["feature"]: entry["coefficient"] for entry in model.coefficient_table()}
    assert told["intercept"] == pytest.approx(250, abs=1)
    assert told["town = Ada"] == pytest.approx(-150, abs=1)
    assert told["town = Brin"] == pytest.approx(150, abs=1)


def _newton(inputs: np.ndarray, wanted: np.ndarray, penalty: float) -> np.ndarray:
    weights = np.zeros(inputs.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-inputs @ weights))
        slope = inputs.T @ (chance - wanted) / len(inputs) + penalty * weights
        bend = (inputs.T * (chance * (1 - chance))) @ inputs / len(inputs) + penalty * np.eye(len(weights))
        weights = weights - np.linalg.solve(bend, slope)
    return weights


def test_without_noise_the_logistic_fit_is_the_optimum_that_newton_finds() -> None:
    rows, what = people(400), almost_exact(_plan("ill", "age", "town", penalty=0.01, turns=600))
    inputs, wanted = encode_rows(what.design, rows) / STEPS, encode_target(what.target, rows)[0]
    chances = 1 / (1 + np.exp(-inputs @ _newton(inputs, wanted, 0.01)))
    np.testing.assert_allclose(train_model(what, rows).predict(rows), chances, atol=0.005)


def test_the_last_step_leads_from_a_short_descent_to_the_optimum() -> None:
    rows, what = people(4000), almost_exact(_plan("ill", "age", "town", penalty=0.001, turns=8))
    inputs, wanted = encode_rows(what.design, rows) / STEPS, encode_target(what.target, rows)[0]
    best, plan = inputs @ _newton(inputs, wanted, 0.001), what.plan
    assert isinstance(plan, LogisticPlan)
    away = [
        np.abs(inputs @ each.fit(encode_rows(what.design, rows), wanted).coefficients - best).max()
        for each in (plan, replace(plan, last=None))
    ]
    assert away[0] < 0.2 * away[1]


def _visits(count: int, most: int = 10, seed: int = 0) -> pa.Table:
    """People whose number of visits grows with age by a constant factor."""
    draw = np.random.default_rng(seed)
    age = draw.integers(0, 101, count)
    return pa.table({"age": age, "visits": np.minimum(draw.poisson(np.exp(-0.5 + 0.015 * age)), most)})


VISITS = TableSchema(
    "visits",
    "v.csv",
    (
        Column("age", ColumnType.INTEGER, bounds=Bounds(0, 100), nullable=False),
        Column("visits", ColumnType.INTEGER, bounds=Bounds(0, 10), nullable=False),
        Column("cold", ColumnType.INTEGER, bounds=Bounds(-5, 10)),
    ),
)


def _newton_poisson(inputs: np.ndarray, wanted: np.ndarray, penalty: float) -> np.ndarray:
    """Weights pulled toward those of the mean, as the descent starts there."""
    start = np.zeros(inputs.shape[1])
    start[0] = np.log(wanted.mean())
    weights = start
    for _ in range(50):
        rate = np.exp(inputs @ weights)
        slope = inputs.T @ (rate - wanted) / len(inputs) + penalty * (weights - start)
        bend = (inputs.T * rate) @ inputs / len(inputs) + penalty * np.eye(len(weights))
        weights = weights - np.linalg.solve(bend, slope)
    return weights


def test_without_noise_the_poisson_fit_is_the_optimum_that_newton_finds() -> None:
    rows, task = _visits(2000), Task("visits", ("age",), "poisson", penalty=0.001, turns=600, clip=1)
    what = almost_exact(plan_training(VISITS, ROW, task, BUDGET))
    inputs, wanted = encode_rows(what.design, rows) / STEPS, rows["visits"].to_numpy() / 10
    model = train_model(what, rows)
    np.testing.assert_allclose(model.predict(rows), 10 * np.exp(inputs @ _newton_poisson(inputs, wanted, 0.001)), 0.02)
    assert model.predict(rows).mean() == pytest.approx(rows["visits"].to_numpy().mean(), rel=0.01)


def test_rates_are_learned_at_epsilon_one_and_survive_the_file(tmp_path: Path) -> None:
    what = plan_training(VISITS, ROW, Task("visits", ("age",), "poisson"), BUDGET)
    model, age = train_model(what, _visits(20_000)), np.arange(101)
    rate = np.exp(-0.5 + 0.015 * age)
    guess = model.predict(pa.table({"age": age}))
    assert 1 - ((guess - rate) ** 2).mean() / rate.var() > 0.9  # measured 0.98
    save_model(model, tmp_path / "rates.json")
    assert (load_model(tmp_path / "rates.json").predict(pa.table({"age": age})) == guess).all()


def test_a_target_that_is_no_number_of_events_is_refused_by_poisson() -> None:
    with pytest.raises(ParameterError, match="lower bound is not 0"):
        plan_training(VISITS, ROW, Task("cold", ("age",), "poisson"), BUDGET)
    with pytest.raises(ParameterError, match="poisson method cannot predict"):
        _plan("ill", "age", method="poisson")


def test_columns_that_are_copies_of_each_other_do_not_make_the_descent_overshoot() -> None:
    """The worst for the bound on the curvature: all columns together move every row's logit one way."""
    names = tuple(f"copy{place}" for place in range(12))
    copies = TableSchema("t", "t.csv", tuple(Column(name, categories=("n", "y")) for name in (*names, "ill")))
    said = np.random.default_rng(0).random(3000) < 0.5
    wrong = np.random.default_rng(1).random(3000) < 0.1
    values = {name: np.where(said, "y", "n") for name in names} | {"ill": np.where(said ^ wrong, "y", "n")}
    what = plan_training(copies, ROW, Task("ill", names), ApproxDP(10, "1e-6"))
    chances = train_model(what, pa.table(values)).predict(pa.table(values))
    np.testing.assert_allclose(chances, np.where(said, 0.9, 0.1), atol=0.05)


def _curve_densely(design: Design, shares: np.ndarray, bend: float, damping: float) -> tuple[np.ndarray, np.ndarray]:
    """The curvature as a matrix, and the second moments of rows whose columns are independent."""
    same = design.owners[:, None] == design.owners[None, :]
    inside = np.diag(shares) - np.where(same, np.outer(shares, shares), 0.0)
    mean = np.outer(shares, shares)
    return bend * (mean + (design.blocks - 1) * inside + damping * np.eye(len(shares))), mean + inside


def test_the_curvature_is_what_dense_algebra_says() -> None:
    design, draw = _plan("ill", "age", "sex", "town").design, np.random.default_rng(3)
    shares = estimate_shares(design, draw.random(design.width) * 0.4 - 0.05)
    found, (dense, moments) = Curvature(design, shares, 0.25, 0.07), _curve_densely(design, shares, 0.25, 0.07)
    slope, inverse = draw.normal(size=design.width), np.linalg.inv(dense)
    np.testing.assert_allclose(found.divide(slope), inverse @ slope, rtol=1e-9)
    assert found.measure_wander() == pytest.approx(math.sqrt(np.trace(inverse @ moments @ inverse)), rel=1e-9)


def test_no_rows_curve_the_loss_more_than_the_bound_from_their_counts() -> None:
    design = _plan("ill", "age", "sex", "town").design
    for rows in (people(200), rows_of([{"age": 50, "sex": "F", "town": "Ada"}, {"age": 0, "sex": "M"}] * 5)):
        entries = encode_rows(design, rows) / STEPS
        bound, _ = _curve_densely(design, entries.mean(axis=0), 0.25, 0.0)
        assert np.linalg.eigvalsh(bound - entries.T @ entries / (4 * len(entries))).min() > -1e-9


def test_effects_are_about_their_mean_and_predict_the_same() -> None:
    design = _plan("ill", "age", "town").design
    entries = encode_rows(design, people(300)) / STEPS
    bend, weights = Curvature(design, entries.mean(axis=0), 0.25, 0.1), np.arange(design.width, dtype=np.float64)
    centered = bend.center(weights)
    np.testing.assert_allclose(entries @ centered, entries @ weights)
    assert centered[0] == pytest.approx(float((entries @ weights).mean()))


def test_clipping_makes_no_difference_when_it_allows_the_largest_gradient() -> None:
    rows, what = people(100), _plan("ill", "age")
    entries = encode_rows(what.design, rows)
    assert isinstance(what.plan, LogisticPlan)
    assert (bound_residuals(entries, what.plan.most_squared) >= RESIDUE).all()
    assert (bound_residuals(entries, what.plan.most_squared // 16) < RESIDUE).any()


@pytest.mark.parametrize("target", ["charge", "ill"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_an_empty_table_and_one_row_give_a_model_of_finite_numbers(target: str, count: int) -> None:
    model = train_model(_plan(target), people(count))
    assert np.isfinite(model.coefficients).all()
    assert model.rows >= 1
    assert np.isfinite(model.predict(people(5))).all()


def test_a_constant_target_is_learned_as_a_constant() -> None:
    rows = people(400)
    same = rows.set_column(rows.column_names.index("charge"), "charge", pa.array([250.0] * 400))
    guess = train_model(almost_exact(_plan("charge")), same).predict(rows)
    np.testing.assert_allclose(guess, 250, atol=1)
    one_class = rows.set_column(rows.column_names.index("ill"), "ill", pa.array([True] * 400))
    assert (train_model(almost_exact(_plan("ill")), one_class).predict(rows) > 0.9).all()


def test_rows_without_a_target_are_not_learned_from() -> None:
    rows = people(50)
    hole = pa.concat_tables([rows, rows.set_column(rows.column_names.index("charge"), "charge",
                                                   pa.nulls(50, pa.float64()))])  # fmt: skip
    what = almost_exact(_plan("charge"))
    assert train_model(what, hole).coefficients == train_model(what, rows).coefficients


def test_nulls_everywhere_are_a_value_like_any_other() -> None:
    rows = rows_of([{"charge": 900.0}] * 200 + [{"charge": 100.0, "age": 40, "sex": "F"}] * 200)
    guess = train_model(almost_exact(_plan("charge", "age", "sex", penalty=1e-6)), rows).predict(rows)
    assert guess[0] == pytest.approx(900, abs=5)
    assert guess[-1] == pytest.approx(100, abs=5)


def test_a_value_of_no_category_counts_as_the_average_where_null_is_not_declared() -> None:
    records = [{"town": town, "charge": charge} for town, charge in (("Ada", 100.0), ("Brin", 400.0))]
    model = train_model(almost_exact(_plan("charge", "town", penalty=1e-9)), rows_of(records * 300))
    assert model.predict(rows_of([{"town": "Elsewhere"}, {}])) == pytest.approx([250, 250], abs=1)


def test_at_a_tiny_epsilon_predictions_stay_within_their_bounds() -> None:
    rows = people(30)
    for name in ("charge", "ill"):
        what = plan_training(table(), ROW, Task(name, ("age",)), ApproxDP("1e-3", "1e-9"))
        guess = train_model(what, rows).predict(rows)
        low, high = (0, 1000) if name == "charge" else (0, 1)
        assert ((guess >= low) & (guess <= high)).all()


def test_a_thousand_rows_at_epsilon_one_are_learned_usefully() -> None:
    rows, fresh = people(4000, seed=1), people(2000, seed=2)
    charge = np.array(fresh["charge"].to_pylist())
    guess = train_model(_plan("charge", "age", "town"), rows).predict(fresh)
    # Measured over 200 runs: 0.83 to 0.85 of the variance; five spreads below is still above 0.7.
    assert 1 - ((guess - charge) ** 2).mean() / charge.var() > 0.7
    ill = np.array(fresh["ill"].to_pylist())
    right = (train_model(_plan("ill", "age", "town"), rows).predict(fresh) > 0.5) == ill
    assert right.mean() > 0.7  # measured 0.83 to 0.85; half would be guessing


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "forest"}, "no method 'forest'"),
        ({"method": "logistic"}, "cannot predict 'charge'"),
        ({"penalty": -1.0}, "penalty"),
        ({"penalty": float("nan")}, "penalty"),
    ],
)
def test_tasks_that_cannot_be_planned_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        _plan("charge", **changes)


@pytest.mark.parametrize("changes", [{"clip": 0}, {"clip": 2}, {"turns": 0}, {"turns": 10**6}])
def test_settings_of_the_descent_outside_their_domain_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match="clip or turns"):
        _plan("ill", **changes)


@pytest.mark.parametrize(
    ("budget", "said"),
    [(PureDP(1), "needs a delta"), (ApproxDP(0, "1e-6"), "is 0"), (PureDP(0), "is 0"), (ZCDP(0), "is 0")],
)
def test_a_budget_that_buys_no_gaussian_noise_is_refused(budget: PureDP | ApproxDP | ZCDP, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        plan_training(table(), ROW, Task("charge"), budget)


def test_a_plan_that_costs_more_than_its_budget_is_our_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    from deniable.errors import InternalError
    from deniable.learn import training

    honest = training.plan_logistic

    def cheap(*arguments: object) -> LogisticPlan:
        plan = honest(*arguments)  # type: ignore[arg-type]
        return replace(plan, mechanism=replace(plan.mechanism, variance=plan.mechanism.variance * Fraction(99, 100)))

    monkeypatch.setattr(training, "plan_logistic", cheap)
    with pytest.raises(InternalError, match="costs more"):
        _plan("ill")


def test_the_guarantee_names_unit_and_budget() -> None:
    found = plan_training(table(PERSON), PERSON, Task("ill"), BUDGET).guarantee
    assert (found.unit, found.epsilon, found.delta) == ("all rows of one pid", 1, Fraction("1e-6"))
    rho = plan_training(table(), ROW, Task("ill"), ZCDP("1/10")).guarantee
    assert rho.rho == Fraction(1, 10)
    assert rho.epsilon is not None
    assert rho.epsilon > Fraction(1, 10)


@pytest.mark.parametrize(("rows", "epsilon"), [(0, "1"), (400, "1/1000")])
def test_a_level_that_noise_hides_is_drawn_to_the_middle_of_the_bounds(rows: int, epsilon: str) -> None:
    # It was a bound, 400 away on average; a mean of 30 is now 30 to 45 away, with a deviation of 12.
    what = plan_training(table(), ROW, Task("charge", ("age", "town"), "linear"), ApproxDP(epsilon, "1e-6"))
    found = [train_model(what, people(rows)).predict(people(50, 9)).mean() for _ in range(30)]
    assert np.abs(np.array(found) - 500).mean() < 200
