"""The perceptron: what one person can move, whole persons in a sample, the gradient itself, and what is learned."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.dp.accounting import SampledGaussianEvent, SelfComposedEvent, cheap_epsilon, zcdp_cost
from deniable.dp.samplers import SYSTEM
from deniable.errors import IntegrityError, MissingExtra, ParameterError
from deniable.learn import perceptron, torch_module
from deniable.learn.features import STEPS, LabelsTarget, encode_rows, encode_target, encode_units
from deniable.learn.model import load_model, save_model
from deniable.learn.perceptron import (
    FINE,
    Network,
    PerceptronPlan,
    compute_outputs,
    draw_sample,
    split_persons,
    start_weights,
)
from deniable.learn.torch_module import UNIT, clip_persons, split_each
from deniable.learn.training import Planned, Task, plan_selection, plan_training, train_model
from deniable.policy.budget import ZCDP, ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, Neighboring, PrivacyUnit, TableSchema
from learning import PERSON, ROW, UNITS, Records, people, rows_of, table, witnessed

BUDGET = ApproxDP(1, "1e-6")
FEATURES = ("age", "sex", "town")


def _plan(target: str, unit: PrivacyUnit = ROW, budget: Any = BUDGET, **own: Any) -> Planned:
    return plan_training(table(unit), unit, Task(target, FEATURES, "mlp", **{"turns": 4, "hidden": 3} | own), budget)


def _gradient(what: Planned, units: list[Records], weights: np.ndarray) -> np.ndarray:
    """The exact sum that a turn gives to the mechanism, everyone being in the sample."""
    plan = what.plan
    assert isinstance(plan, PerceptronPlan)
    rows = rows_of([record | {"pid": place} for place, unit in enumerate(units) for record in unit])
    wanted, known = encode_target(what.target, rows)
    network = Network.read(weights, what.design.width, plan.outputs)
    persons = encode_units(rows, "pid")[known]
    held = encode_rows(what.design, rows)[known]
    return network.sum_gradients(plan.target, held, wanted[known], persons, plan.settings.most)


@settings(deadline=None, max_examples=60)
@given(UNITS, st.integers(0, 2**32), st.sampled_from([0.1, 3.0, 1e6]), st.sampled_from(["ill", "charge", "town"]),
       st.sampled_from(["1/1000", "1/10", 1, 64]))  # fmt: skip
def test_no_person_moves_a_turn_farther_than_the_clip(
    units: list[Records], seed: int, size: float, target: str, clip: Any
) -> None:
    features = tuple(name for name in FEATURES if name != target)
    task = Task(target, features, "mlp", turns=4, hidden=3, clip=clip, rate=1)
    what = plan_training(table(PERSON), PERSON, task, BUDGET)
    plan = what.plan
    assert isinstance(plan, PerceptronPlan)
    weights = np.random.default_rng(seed).normal(0, size, len(_start(plan)))
    whole = _gradient(what, units, weights)
    for place in range(len(units)):
        without = [unit for other, unit in enumerate(units) if other != place]
        moved = whole - _gradient(what, without, weights)
        assert sum(int(each) ** 2 for each in moved) <= plan.settings.most**2 == plan.mechanism.sensitivity_squared


def _start(plan: PerceptronPlan) -> np.ndarray:
    return start_weights(plan.design, plan.settings.hidden, plan.outputs)


def test_a_row_that_is_clipped_reaches_the_bound_and_two_alike_rows_share_it() -> None:
    what = _plan("ill", PERSON, clip="1/10")
    plan = what.plan
    assert isinstance(plan, PerceptronPlan)
    weights, row = _start(plan), {"age": 100, "sex": "F", "town": "Ada", "ill": True}
    for unit in ([row], [row, row]):
        moved = _gradient(what, [unit], weights)
        length = sum(int(each) ** 2 for each in moved) ** 0.5
        assert 0.99 * plan.settings.most < length <= plan.settings.most
    two = _gradient(what, [[row], [row]], weights)  # two persons count twice
    assert sum(int(each) ** 2 for each in two) ** 0.5 > 1.98 * plan.settings.most


def test_a_proposal_that_is_too_long_counts_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Floating point only proposes: where it proposes too little shortening, integers refuse."""
    what = _plan("ill", clip="1/10")
    plan = what.plan
    assert isinstance(plan, PerceptronPlan)
    monkeypatch.setattr(perceptron, "KEPT", 1.5)
    moved = _gradient(what, [[{"age": 100, "sex": "F", "town": "Ada", "ill": True}]], _start(plan))
    assert not moved.any()


@pytest.mark.parametrize("target", ["ill", "charge", "town"])
def test_a_gradient_is_that_of_the_loss(target: str) -> None:
    task = Task(target, ("age", "sex"), "mlp", hidden=3, clip=64)
    what = plan_training(table(), ROW, task, BUDGET)
    plan = what.plan
    assert isinstance(plan, PerceptronPlan)
    rows = people(40, seed=3)
    weights = 0.7 * _start(plan)
    held, (wanted, _) = encode_rows(what.design, rows), encode_target(what.target, rows)
    network = Network.read(weights, what.design.width, plan.outputs)
    found = network.sum_gradients(plan.target, held, wanted, np.arange(40), plan.settings.most) / (FINE * STEPS)

    def loss(at: np.ndarray) -> float:
        out = compute_outputs(at, held / STEPS, plan.outputs)
        if isinstance(what.target, LabelsTarget):
            return float(-(out[np.arange(40), wanted] - np.log(np.exp(out).sum(axis=1))).sum())
        if target == "charge":
            return float(((out[:, 0] - wanted / STEPS) ** 2).sum() / 2)
        return float(np.log1p(np.exp(out[:, 0])).sum() - (out[:, 0] * wanted).sum())

    step = 1e-4
    expected = [
        (loss(weights + step * side) - loss(weights - step * side)) / (2 * step) for side in np.eye(len(weights))
    ]
    # 40 rows; errors are rounded to 1/1024 and tables have cells of that width.
    assert np.abs(found - expected).max() < 40 * 3e-3
    assert np.abs(found).max() > 1


def test_a_gradient_is_the_same_in_any_order_and_company() -> None:
    what = _plan("ill", clip="1/10")
    plan = what.plan
    assert isinstance(plan, PerceptronPlan)
    weights, units = _start(plan), [[record] for record in people(60, seed=2).to_pylist()]
    whole = _gradient(what, units, weights)
    assert (whole == sum(_gradient(what, [unit], weights) for unit in units)).all()
    assert (whole == _gradient(what, units[::-1], weights)).all()


def test_rows_are_cut_between_persons() -> None:
    persons = np.array([3, 0, 1, 3, 2, 0, 3, 1, 4, 4, 2])
    parts = split_persons(persons, 5)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(persons)))
    assert len(parts) > 1
    for place, part in enumerate(parts):
        assert 0 < len(part) <= 5
        assert not any(set(persons[part]) & set(persons[other]) for other in parts[place + 1 :])


def test_a_sample_has_whole_persons_each_by_their_own_coin() -> None:
    persons = np.repeat(np.arange(4000), 3)
    drawn = draw_sample(persons, Fraction(1, 4), SYSTEM)
    counts = np.bincount(persons[drawn], minlength=4000)
    assert set(counts.tolist()) == {0, 3}
    taken = int((counts == 3).sum())
    assert abs(taken - 1000) < 7 * (4000 * 3 / 16) ** 0.5  # seven deviations of a binomial count
    assert set(drawn.tolist()) != set(draw_sample(persons, Fraction(1, 4), SYSTEM).tolist())
    assert len(draw_sample(persons, Fraction(1), SYSTEM)) == len(persons)
    assert len(draw_sample(persons[:0], Fraction(1, 4), SYSTEM)) == 0


def test_the_plan_pays_for_samples_and_persons_are_sampled_by_their_column() -> None:
    plan = _plan("ill", PERSON).plan
    assert isinstance(plan, PerceptronPlan)
    assert plan.unit == "pid"
    assert isinstance(plan.sampled, SampledGaussianEvent)
    assert (plan.sampled.count, plan.sampled.rate) == (4, Fraction(1, 10))
    assert (plan.sampled.variance, plan.sampled.sensitivity_squared) == (
        plan.mechanism.variance,
        plan.settings.most**2,
    )
    spent = cheap_epsilon(plan.event, BUDGET.delta)
    assert spent is not None
    assert Fraction(95, 100) < spent <= 1
    single = _plan("ill").plan
    assert isinstance(single, PerceptronPlan)
    assert single.unit is None


@pytest.mark.parametrize("budget", [ZCDP("1/50"), ApproxDP(1, "1e-9")])
def test_without_a_delta_that_pays_for_samples_everyone_takes_part(budget: Any) -> None:
    plan = _plan("ill", budget=budget).plan
    assert isinstance(plan, PerceptronPlan)
    assert plan.settings.rate == 1
    assert plan.event.events[1] == SelfComposedEvent(plan.mechanism.event, 4)
    cost = zcdp_cost(plan.event)
    assert cost is not None
    assert cost.delta == 0
    with pytest.raises(ParameterError, match="no price within this budget"):
        _plan("ill", budget=budget, rate="1/2")


@pytest.mark.parametrize(("epsilon", "turns"), [("0.0001", 20), (500, 5), (9999, 5)])
def test_where_samples_have_no_price_within_a_budget_everyone_takes_part(epsilon: Any, turns: int) -> None:
    budget = ApproxDP(epsilon, "1e-6")
    plan = _plan("ill", budget=budget, turns=turns).plan
    assert isinstance(plan, PerceptronPlan)
    assert plan.settings.rate == 1
    assert plan.sampled is None
    with pytest.raises(ParameterError, match="rate"):
        _plan("ill", budget=budget, turns=turns, rate="1/10")


def test_a_replaced_person_has_no_samples_and_counts_for_two() -> None:
    unit = replace(PERSON, neighboring=Neighboring.REPLACE)
    plans = [_plan("ill", each, rate=1).plan for each in (PERSON, unit)]
    assert plans[1].mechanism.sensitivity_squared == 4 * plans[0].mechanism.sensitivity_squared  # type: ignore[attr-defined]
    assert _plan("ill", unit).plan.settings.rate == 1  # type: ignore[attr-defined]
    with pytest.raises(ParameterError, match="replaced"):
        _plan("ill", unit, rate="1/2")


@pytest.mark.parametrize(
    "wrong",
    [{"hidden": 0}, {"hidden": 257}, {"turns": 0}, {"rate": 2}, {"rate": 0}, {"clip": 0}, {"clip": 65},
     {"learning_rate": 0.0}, {"learning_rate": float("nan")}],
)  # fmt: skip
def test_settings_that_cannot_be_used_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=r"cannot be used|is not a number"):
        _plan("ill", **wrong)


@pytest.mark.parametrize("wrong", [{"hidden": 3}, {"rate": "1/2"}, {"learning_rate": 0.1}])
def test_settings_of_the_perceptron_are_refused_elsewhere(wrong: dict[str, Any]) -> None:
    for task in (Task("ill", method="logistic", **wrong), Task(method="kmeans", count=2, **wrong)):
        with pytest.raises(ParameterError, match="has no"):
            plan_training(table(), ROW, task, BUDGET)


def _cross(count: int, seed: int) -> tuple[pa.Table, TableSchema]:
    """Whoever has one of two traits is ill, whoever has both or none is not: no sum of effects tells that."""
    draw = np.random.default_rng(seed)
    a, b = draw.integers(0, 2, (2, count))
    columns = (
        *(Column(name, categories=("no", "yes"), nullable=False) for name in "ab"),
        Column("ill", ColumnType.BOOLEAN),
    )
    names = np.array(["no", "yes"])
    return pa.table({"a": names[a], "b": names[b], "ill": a != b}), TableSchema("cross", "cross.csv", columns, ROW)


def test_a_perceptron_learns_what_no_sum_of_effects_can() -> None:
    rows, declared = _cross(2000, 1)
    found = {}
    for method, own in (("mlp", {"hidden": 8, "turns": 150, "learning_rate": 0.1}), ("logistic", {})):
        what = plan_training(declared, ROW, Task("ill", None, method, **own), ApproxDP(4, "1e-6"))
        truth = encode_target(what.target, rows)[0] == 1
        found[method] = float(((train_model(what, rows).predict(rows) > 0.5) == truth).mean())
    assert found["logistic"] < 0.8
    assert found["mlp"] > 0.95


@pytest.mark.parametrize("target", ["ill", "charge", "town"])
def test_a_model_is_read_back_as_it_was_and_tells_effects(target: str, tmp_path: Path) -> None:
    features = tuple(name for name in FEATURES if name != target)
    what = plan_training(table(), ROW, Task(target, features, "mlp", hidden=4, turns=60), ApproxDP(4, "1e-6"))
    rows = people(2000)
    model = train_model(what, rows)
    save_model(model, tmp_path / "m.json")
    again = load_model(tmp_path / "m.json")
    assert (again.predict(rows) == model.predict(rows)).all()
    guess = model.predict(rows)
    if target == "town":
        assert guess.shape == (2000, 3)
        assert np.allclose(guess.sum(axis=1), 1)
    elif target == "charge":
        assert 0 <= guess.min() <= guess.max() <= 1000
        assert np.abs(guess - rows["charge"].to_numpy()).mean() < 90  # without a model 107, with a perfect one 32
    told = {each.value: each.effect for each in model.list_effects() if each.column == "age"}
    if target != "town":
        assert told["100"] > told["0"]  # both rise with age
    assert len(model.coefficient_table()) == model.design.width * len(model.parts)
    assert abs(model.rows - 2000) < 500


def test_a_file_with_other_weights_than_a_network_has_is_refused(tmp_path: Path) -> None:
    model = train_model(_plan("ill"), people(50))
    save_model(model, tmp_path / "m.json")
    held = json.loads((tmp_path / "m.json").read_text())
    changed: list[dict[str, Any]] = [
        {"coefficients": held["coefficients"][:-1]},
        {"coefficients": []},
        {"shares": held["shares"][1:]},
        {"errors": held["coefficients"][:-1]},
    ]
    for change in changed:
        (tmp_path / "wrong.json").write_text(json.dumps(held | change))
        with pytest.raises(IntegrityError):
            load_model(tmp_path / "wrong.json")


def test_every_turn_draws_a_sample_of_its_own_and_the_noise_that_was_planned() -> None:
    what = plan_training(table(), ROW, Task("ill", ("sex",), "mlp", hidden=2, turns=40, clip="1/10"), BUDGET)
    with witnessed(what) as (watched, witness):
        train_model(watched, people(300))
    assert len(witness.given) == 40
    assert len({given.tobytes() for given in witness.given}) == 40
    noise = np.concatenate([out - given for out, given in zip(witness.released, witness.given, strict=True)])
    planned = float(what.plan.mechanism.variance)  # type: ignore[attr-defined]
    assert abs(noise.var() / planned - 1) < 7 * (2 / len(noise)) ** 0.5


def test_methods_with_a_perceptron_among_them_can_be_chosen_from() -> None:
    task = Task("ill", ("sex",), turns=20)
    found = plan_selection(table(), ROW, task, BUDGET, {"method": ["mlp", "logistic"]})
    rows = people(90)
    model, chosen = found.run([rows.slice(at, 30) for at in (0, 30, 60)], rows)
    assert model.method == chosen["method"]


def test_bounds_of_a_column_do_not_move_the_sums(tmp_path: Path) -> None:
    """Weights of any size act as at most HIGHEST, so that sums stay exact."""
    columns = (
        Column("x", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(1))),
        Column("ill", ColumnType.BOOLEAN),
    )
    declared = TableSchema("t", "t.csv", columns, ROW)
    what = plan_training(declared, ROW, Task("ill", None, "mlp", hidden=256, clip=64), BUDGET)
    plan = what.plan
    assert isinstance(plan, PerceptronPlan)
    rows = pa.table({"x": [0.0, 1.0, None, float("inf")], "ill": [True, False, True, False]})
    held, (wanted, _) = encode_rows(what.design, rows), encode_target(what.target, rows)
    far = np.full(len(_start(plan)), 1e30)
    network = Network.read(far, what.design.width, 1)
    alone = [
        network.sum_gradients(plan.target, held[[at]], wanted[[at]], np.zeros(1, int), plan.settings.most)
        for at in range(4)
    ]
    assert max(sum(int(each) ** 2 for each in one) for one in alone) <= plan.settings.most**2


ANY = st.floats(width=32) | st.floats(-4, 4, width=32) | st.sampled_from([0.0, 1e-9, 3e38, float("nan"), float("inf")])
GRADIENTS = st.lists(st.lists(ANY, min_size=3, max_size=3), min_size=1, max_size=8)


@settings(deadline=None, max_examples=200)
@given(GRADIENTS, st.integers(1, 3), st.sampled_from([1, 40, 1 << 24, 1 << 30]))
def test_gradients_of_a_module_are_clipped_by_person_whatever_they_are(
    gradients: list[list[float]], rows: int, most: int
) -> None:
    held = np.array(gradients, np.float32)
    persons = np.arange(len(held)) // rows
    found = clip_persons(held, persons, most)
    assert len(found) == persons[-1] + 1
    assert all(sum(int(each) ** 2 for each in person) <= most**2 for person in found)
    for person, whole in enumerate(found):  # nobody's part depends on who is beside them
        assert (clip_persons(held[persons == person], persons[persons == person], most) == whole).all()


def test_a_short_gradient_of_a_module_is_kept_and_a_long_one_reaches_the_bound() -> None:
    held = np.array([[0.25, 0.5], [0.25, -0.25], [300.0, 400.0]], np.float32)
    kept, cut = clip_persons(held, np.array([0, 0, 1]), UNIT)
    assert kept.tolist() == [UNIT // 2, UNIT // 4]
    assert cut.tolist() == pytest.approx([0.6 * UNIT, 0.8 * UNIT], abs=2)


def test_who_is_too_long_by_the_integer_measure_counts_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "KEPT", 1.5)  # a proposal that shortens too little
    held = np.array([[300.0, 400.0], [0.25, 0.5], [1e30, -1e30]], np.float32)
    assert clip_persons(held, np.arange(3), UNIT).tolist() == [[0, 0], [UNIT // 4, UNIT // 2], [0, 0]]


def test_each_person_has_rows_of_their_own() -> None:
    assert [rows.tolist() for rows in split_each(np.array([2, 0, 2, 1]))] == [[1], [3], [0, 2]]
    assert split_each(np.array([], np.int64)) == []


def test_a_module_without_its_libraries_is_refused_with_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(MissingExtra, match=r"deniable\[ml\]"):
        plan_training(table(), ROW, Task("ill", FEATURES, module=lambda *_: None), BUDGET)


def test_torch_is_refused_without_a_module_and_another_method_with_one() -> None:
    with pytest.raises(ParameterError, match="there is none"):
        plan_training(table(), ROW, Task("ill", FEATURES, "torch"), BUDGET)
    for method in ("mlp", "logistic", "kmeans"):
        task = Task(None if method == "kmeans" else "ill", FEATURES, method, module=object())
        with pytest.raises(ParameterError, match=f"{method} has no module"):
            plan_training(table(), ROW, task, BUDGET)
