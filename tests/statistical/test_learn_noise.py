"""The noise of learning: of the planned deviation in every release, and inside the errors that a fit tells."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from deniable.learn import linear
from deniable.learn.features import STEPS, encode_rows
from deniable.learn.linear import Curvature
from deniable.learn.logistic import NEWTON, LogisticPlan, MultinomialPlan, PoissonPlan
from deniable.learn.training import Task, plan_training, train_model
from deniable.policy.budget import ApproxDP
from learning import ROW, people, table, witnessed

DRAWS = 4000


def _noise(target: str, method: str, scale: Fraction, name: str = "mechanism") -> np.ndarray:
    """What was released less what was given, in planned deviations, from a plan whose variance is off by `scale`."""
    what = plan_training(table(), ROW, Task(target, method=method), ApproxDP(1, "1e-6"))
    planned_variance = getattr(what.plan, name).variance
    found: list[np.ndarray] = []
    while sum(map(len, found)) < DRAWS:
        with witnessed(what, name, variance=planned_variance * scale) as (twin, witness):
            train_model(twin, people(20))
            found += [seen - given for seen, given in zip(witness.released, witness.given, strict=True)]
    return np.concatenate(found)[:DRAWS] / math.sqrt(planned_variance)


@pytest.mark.parametrize(("target", "method"), [("charge", "linear"), ("ill", "logistic"), ("ill", "boosted")])
@pytest.mark.parametrize(("scale", "right"), [(1, True), ("1.69", False), ("0.49", False)])
def test_every_release_has_noise_of_the_planned_deviation(target: str, method: str, scale: object, right: bool) -> None:
    # The mean square of 4,000 normal draws has deviation sqrt(2 / 4000) = 0.0224: 0.15 is 6.7 of them (below 1e-9 for
    # either tail), and a deviation that is 30% off lies 0.69 or 0.51 away, more than ten of its own.
    found = _noise(target, method, Fraction(str(scale)))
    assert (abs((found**2).mean() - 1) < 0.15) == right


@pytest.mark.parametrize(("target", "method"), [("ill", "logistic"), ("charge", "poisson"), ("ill", "multinomial")])
@pytest.mark.parametrize(("scale", "right"), [(1, True), ("1.69", False), ("0.01", False)])
def test_newton_steps_have_noise_of_the_planned_deviation(target: str, method: str, scale: object, right: bool) -> None:
    """Also where an audit in one run cannot see it: noise for a tenth of a person in these steps is caught here."""
    found = _noise(target, method, Fraction(str(scale)), "last")
    assert (abs((found**2).mean() - 1) < 0.15) == right


def _delta(epsilon: float, mean: float) -> float:
    """Balle and Wang's delta of Gaussian noise, in plain floating point: an oracle of its own."""
    phi = lambda x: math.erfc(-x / math.sqrt(2)) / 2  # noqa: E731  a formula
    return phi(mean / 2 - epsilon / mean) - math.exp(epsilon) * phi(-mean / 2 - epsilon / mean)


@pytest.mark.parametrize(
    ("target", "method", "releases"),
    [
        ("charge", "linear", 1),
        ("ill", "logistic", 21),
        ("ill", "boosted", 50),
        ("charge", "boosted", 50),
        ("ill", "multinomial", 21),
        ("charge", "poisson", 31),
    ],
)
def test_the_planned_noise_is_what_the_budget_buys_and_no_more(target: str, method: str, releases: int) -> None:
    what = plan_training(table(), ROW, Task(target, method=method), ApproxDP(1, "1e-6"))
    mechanism, last = what.plan.mechanism, getattr(what.plan, "last", None)  # type: ignore[attr-defined]
    square = releases * mechanism.sensitivity_squared / mechanism.variance
    times = 1 if method == "boosted" else NEWTON  # the level of a number, once
    mean = math.sqrt(square + (times * last.sensitivity_squared / last.variance if last is not None else 0))
    assert 0.98e-6 < _delta(1, mean) <= 1e-6 * (1 + 1e-6)
    assert _delta(1, 1.3 * mean) > 5e-6


def _squares(fits: int) -> np.ndarray:
    """How many told errors the slope by age is away from the truth, 3, squared; in a new sample for each fit."""
    what = plan_training(table(), ROW, Task("charge", ("age", "sex"), penalty=1e-6), ApproxDP("0.3", "1e-6"))
    found = []
    for seed in range(fits):
        slope = train_model(what, people(2000, seed)).coefficient_table()[1]
        found.append((slope["coefficient"] - 3) / max(slope["error"], 1e-9))
    return np.array(found) ** 2


def test_the_told_errors_cover_the_truth_because_they_include_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    # Forty such means of 120 squares measured 1.03 with a deviation of 0.15, and 1.37 at most: 2.5 is nine deviations
    # away. Without the noise some errors are nearly 0 (those of a residual variance that noise made negative).
    assert _squares(120).mean() < 2.5
    monkeypatch.setattr(linear, "_estimate_noise", lambda whole, noisy: np.zeros((len(whole), len(whole))))
    honest = linear._filter_inverse
    monkeypatch.setattr(linear, "_filter_inverse", lambda *given: (honest(*given)[0], 0 * honest(*given)[1]))
    assert _squares(120).mean() > 4


def _cover_linear(features: tuple[str, ...], count: int, epsilon: str, fits: int) -> float:
    """How often intervals of 95% have the population's effects, where columns explain most of the target."""
    what = plan_training(table(), ROW, Task("charge", features, "linear"), ApproxDP(epsilon, "1e-6"))
    plan, draw, covered = what.plan, np.random.default_rng(fits), []
    shares = encode_rows(plan.design, people(100_000, 7)).mean(axis=0) / STEPS
    mapped = linear._map_effects(plan.design, 100_000 * shares)
    for seed in range(fits):
        rows = people(count, 1000 + seed)
        truth = draw.normal(0, 0.2, plan.design.width)
        charge = 500 * (
            1 + np.clip(encode_rows(plan.design, rows) / STEPS @ truth + draw.normal(0, 0.02, count), -1, 1)
        )
        fit = train_model(what, rows.set_column(rows.column_names.index("charge"), "charge", pa.array(charge)))
        told = fit.coefficient_table()
        wanted = 500 * (mapped @ truth) + np.where(np.arange(plan.design.width) == 0, 500, 0)
        away = [abs(row["coefficient"] - each) <= 1.96 * row["error"] for row, each in zip(told, wanted, strict=True)]
        covered.append(np.array(away)[shares > 0])
    return float(np.concatenate(covered).mean())


@pytest.mark.parametrize(("count", "epsilon"), [(20_000, "10"), (20_000, "1"), (2_000, "1")])
def test_intervals_of_linear_effects_have_the_truth_where_columns_explain_much(
    count: int, epsilon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _cover_linear(("sex", "town"), count, epsilon, 25) >= 0.9
    if epsilon == "10":
        monkeypatch.setattr(linear, "_vary_means", lambda *_given: 0.0)
        assert _cover_linear(("sex", "town"), count, epsilon, 25) < 0.75


@pytest.mark.parametrize(("count", "epsilon"), [(400, "0.1"), (400, 1), (2000, "0.1")])
def test_errors_of_few_people_leave_room_for_what_noise_has_hidden(count: int, epsilon: str | int) -> None:
    # Measured in 30 fits each: the truth is at most 1.1 errors away; before, up to 11 and in one fit of 40 within 2.
    what = plan_training(table(), ROW, Task("charge", ("age", "sex", "town")), ApproxDP(epsilon, "1e-6"))
    for seed in range(10):
        slope = train_model(what, people(count, seed)).coefficient_table()[1]
        assert abs(slope["coefficient"] - 3) < 5 * slope["error"]


def _cover(features: tuple[str, ...], count: int, epsilon: str, fits: int) -> float:
    """The share of effects, the intercept among them, whose interval of 95% has the truth: a new sample each time."""
    what = plan_training(table(), ROW, Task("ill", features), ApproxDP(epsilon, "1e-6"))
    plan, draw = what.plan, np.random.default_rng(fits)
    assert isinstance(plan, LogisticPlan)
    shares = encode_rows(plan.design, people(100_000, 7)).mean(axis=0) / STEPS
    center, covered = Curvature(plan.design, shares, 1.0, 1.0).center, []
    for seed in range(fits):
        entries = encode_rows(plan.design, people(count, 1000 + seed))
        truth = draw.normal(0, 0.8, plan.design.width)
        ill = draw.random(count) < 1 / (1 + np.exp(-entries / STEPS @ truth))
        fit = plan.fit(entries, ill.astype(np.int64))
        seen = shares > 0  # no test row has the others
        covered.append((np.abs(fit.coefficients - center(truth)) <= 1.96 * fit.errors)[seen])
    return float(np.concatenate(covered).mean())


def _cover_poisson(features: tuple[str, ...], count: int, epsilon: str, fits: int) -> float:
    """The same for numbers of events, whose mean is about a twentieth of their upper bound."""
    what = plan_training(table(), ROW, Task("charge", features, "poisson"), ApproxDP(epsilon, "1e-6"))
    plan, draw = what.plan, np.random.default_rng(fits)
    assert isinstance(plan, PoissonPlan)
    plan = replace(plan, upper=MOST_EVENTS)
    shares = encode_rows(plan.design, people(100_000, 7)).mean(axis=0) / STEPS
    center, covered = Curvature(plan.design, shares, 1.0, 1.0).center, []
    for seed in range(fits):
        entries = encode_rows(plan.design, people(count, 1000 + seed))
        truth = draw.normal(0, 0.3, plan.design.width)
        truth[0] = math.log(MOST_EVENTS / 20)
        events = np.minimum(draw.poisson(np.exp(entries / STEPS @ truth)), MOST_EVENTS)
        fit = plan.fit(entries, np.rint((2 * events / MOST_EVENTS - 1) * plan.steps).astype(np.int64))
        seen = shares > 0
        covered.append((np.abs(fit.coefficients - center(truth)) <= 1.96 * fit.errors)[seen])
    return float(np.concatenate(covered).mean())


def _cover_multinomial(features: tuple[str, ...], count: int, epsilon: str, fits: int) -> float:
    """The same for the three values of a column, of which each has effects about the mean of all three."""
    what = plan_training(table(), ROW, Task("town", features, "multinomial"), ApproxDP(epsilon, "1e-6"))
    plan, draw = what.plan, np.random.default_rng(fits)
    assert isinstance(plan, MultinomialPlan)
    shares = encode_rows(plan.design, people(100_000, 7)).mean(axis=0) / STEPS
    center, covered = Curvature(plan.design, shares, 1.0, 1.0).center, []
    for seed in range(fits):
        entries = encode_rows(plan.design, people(count, 1000 + seed))
        truth = draw.normal(0, 0.8, (3, plan.design.width))
        truth -= truth.mean(axis=0)
        chances = np.exp(entries / STEPS @ truth.T).cumsum(axis=1)
        value = (chances < chances[:, -1:] * draw.random((count, 1))).sum(axis=1)
        fit = plan.fit(entries, value)
        assert fit.errors is not None
        right = np.abs(fit.coefficients - np.concatenate([center(each) for each in truth])) <= 1.96 * fit.errors
        covered.append(right.reshape(3, -1)[:, shares > 0].ravel())
    return float(np.concatenate(covered).mean())


MOST_EVENTS = 64
SETTINGS = [
    (("sex", "town"), 20_000, "4"),
    (("sex", "town"), 2_000, "1"),
    (("age", "sex"), 20_000, "4"),
    (("age", "sex", "town", "insured"), 5_000, "0.5"),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_intervals_of_logistic_coefficients_have_the_truth(setting: tuple[tuple[str, ...], int, str]) -> None:
    # 0.9 is about four deviations of 60 fits below 0.95, the effects of one fit being nearly independent.
    assert _cover(*setting, 60) >= 0.9


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_intervals_of_poisson_coefficients_have_the_truth(setting: tuple[tuple[str, ...], int, str]) -> None:
    assert _cover_poisson(*setting, 60) >= 0.9


CLASS_SETTINGS = [
    (("sex", "insured"), 20_000, "4"),
    (("sex", "insured"), 2_000, "1"),
    (("age", "sex"), 20_000, "4"),
    (("age", "sex", "insured"), 5_000, "0.5"),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("setting", CLASS_SETTINGS, ids=str)
def test_intervals_of_multinomial_coefficients_have_the_truth(setting: tuple[tuple[str, ...], int, str]) -> None:
    # 30 fits have 180 effects and more: 0.9 is three deviations below 0.95.
    assert _cover_multinomial(*setting, 30) >= 0.9


@pytest.mark.parametrize("left_out", ["noise", "sample"])
def test_multinomial_intervals_without_the_noise_or_the_sample_would_miss_the_truth(
    monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    setting = (("sex", "insured"), *((2_000, "1") if left_out == "noise" else (20_000, "400")))
    assert _cover_multinomial(*setting, 30) >= 0.9
    honest = linear._filter_matrix
    if left_out == "noise":
        monkeypatch.setattr(linear, "_estimate_noise", lambda whole, noisy: np.zeros((len(whole), len(whole))))
        monkeypatch.setattr(linear, "_filter_matrix", lambda *given: (honest(*given)[0], 0 * honest(*given)[1]))
        monkeypatch.setattr(linear, "spread_classes", lambda inverse, sums, noise: inverse @ sums @ inverse)
    else:
        monkeypatch.setattr(linear, "spread_classes", lambda inverse, sums, noise: inverse @ noise @ inverse)
    assert _cover_multinomial(*setting, 30) < 0.8


@pytest.mark.parametrize("left_out", ["noise", "sample"])
def test_poisson_intervals_without_the_noise_or_the_sample_would_miss_the_truth(
    monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    honest = linear._estimate_covariance
    setting = (("sex", "town"), 2_000, "1") if left_out == "noise" else (("sex", "town"), 20_000, "400")
    assert _cover_poisson(*setting, 30) >= 0.9
    shares = (0, 1) if left_out == "noise" else (1, 0)
    monkeypatch.setattr(
        linear,
        "_estimate_covariance",
        lambda f, w, i, p, d, r: honest(f, w, i, shares[0] * p, shares[0] * d, shares[1] * r),
    )
    assert _cover_poisson(*setting, 30) < 0.8


def test_intervals_without_the_noise_would_miss_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = linear._estimate_covariance
    assert _cover(("sex", "town"), 2_000, "1", 30) >= 0.93
    monkeypatch.setattr(linear, "_estimate_covariance", lambda f, w, i, p, d, r: honest(f, w, i, 0 * p, 0.0, r))
    assert _cover(("sex", "town"), 2_000, "1", 30) < 0.8


def _cover_rare(method: str, count: int, fits: int) -> float:
    """How often intervals have the truth where one value in two hundred is the rare one."""
    target = "insured" if method == "logistic" else "town"
    what = plan_training(table(), ROW, Task(target, ("sex",), method), ApproxDP(4, "1e-6"))
    plan, draw = what.plan, np.random.default_rng(fits)
    assert isinstance(plan, LogisticPlan | MultinomialPlan)
    shares = encode_rows(plan.design, people(100_000, 7)).mean(axis=0) / STEPS
    center, covered = Curvature(plan.design, shares, 1.0, 1.0).center, []
    for seed in range(fits):
        entries = encode_rows(plan.design, people(count, 1000 + seed))
        effects = draw.normal(0, 0.5, (1 if method == "logistic" else 3, plan.design.width))
        effects[0, 0] -= 5.5
        logits = entries / STEPS @ effects.T
        if method == "logistic":
            truth = (draw.random(count) < 1 / (1 + np.exp(-logits[:, 0]))).astype(np.int64)
            wanted = center(effects[0])
        else:
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            truth = (draw.random((count, 1)) > np.cumsum(powers / powers.sum(axis=1, keepdims=True), axis=1)).sum(
                axis=1
            )
            truth = np.minimum(truth, 2).astype(np.int64)
            wanted = np.array([center(each) for each in effects - effects.mean(axis=0)]).ravel()
        fit = plan.fit(entries, truth)
        seen = np.tile(shares > 0, len(effects))
        covered.append((np.abs(fit.coefficients - wanted) <= 1.96 * fit.errors)[seen])
    return float(np.concatenate(covered).mean())


@pytest.mark.parametrize("method", ["logistic", "multinomial"])
def test_intervals_of_a_rare_value_have_the_truth(method: str) -> None:
    # One Newton step from steps of 1/1024 covered 0.35 of the intercepts and 0.6 of all.
    assert _cover_rare(method, 100_000, 12) >= 0.9


def test_a_target_that_is_small_within_its_bounds_is_not_rounded_away() -> None:
    count, draw = 100_000, np.random.default_rng(5)
    what = plan_training(table(), ROW, Task("charge", ("sex",), "linear"), ApproxDP(10, "1e-6"))
    half = np.where(draw.random(count) < 0.5, 0.24, 0.0)  # of a range of 1,000, whose 2,048th part is 0.49
    rows = people(count, 3)
    rows = rows.set_column(rows.column_names.index("charge"), "charge", pa.array(half))
    told = train_model(what, rows).coefficient_table()[0]
    assert abs(told["coefficient"] - half.mean()) < 3 * told["error"] + 0.002


def test_errors_know_of_a_slope_that_the_penalty_took_where_values_fill_little_of_their_bounds() -> None:
    count, draw = 50_000, np.random.default_rng(9)
    what = plan_training(table(), ROW, Task("charge", ("age",), "linear", penalty=1e-3), ApproxDP(20, "1e-6"))
    age = draw.integers(0, 3, count)  # of 0 to 100 years
    rows = people(count, 3)
    rows = rows.set_column(rows.column_names.index("age"), "age", pa.array(age, rows.schema.field("age").type))
    rows = rows.set_column(rows.column_names.index("charge"), "charge", pa.array(200.0 + 40 * age))
    told = train_model(what, rows).coefficient_table()[1]
    assert told["coefficient"] < 35, "the penalty shrinks it"
    assert abs(told["coefficient"] - 40) < 2 * told["error"]
