"""Explainable boosting: what one unit can move, what is found without noise, and what the errors promise."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.attacks.membership import claim_membership
from deniable.errors import ParameterError
from deniable.learn.boosting import HIGHEST, RESIDUE, SHAPE, BoostedPlan, smooth, sum_residuals
from deniable.learn.features import Bins, Labels, Number, build_target, cut_into_bins, encode_codes, encode_rows
from deniable.learn.features import encode_target as encode_truth
from deniable.learn.model import from_plain, to_plain
from deniable.learn.training import Planned, Task, plan_training, train_model
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Column, ColumnType, PrivacyUnit, TableSchema
from learning import PERSON, ROW, almost_exact, people, rows_of, table

BUDGET = ApproxDP(1, "1e-6")
VALUES = st.fixed_dictionaries(
    {
        "age": st.none() | st.integers(-(2**60), 2**60) | st.integers(0, 100),
        "sex": st.none() | st.sampled_from(["F", "M", "X"]),
        "town": st.none() | st.sampled_from(["Ada", "Brin", "Cole", "Dun"]),
        "charge": st.none() | st.floats() | st.floats(0, 1000),
        "ill": st.none() | st.booleans(),
    }
)
UNITS = st.lists(st.lists(VALUES, min_size=1, max_size=2), min_size=1, max_size=4)


def _plan(target: str, features: tuple[str, ...] | None = None, unit: PrivacyUnit = ROW, **rest: Any) -> Planned:
    return plan_training(table(unit), unit, Task(target, features, "boosted", **rest), BUDGET)


def _histogram(what: Planned, records: list[dict[str, Any]], block: int, shapes: list[np.ndarray]) -> np.ndarray:
    """What a turn of one column sums, when the model so far has these shapes."""
    assert isinstance(what.plan, BoostedPlan)
    rows = rows_of(records)
    truth, known = encode_truth(what.target, rows)
    codes = encode_codes(what.design, rows)[known]
    levels = np.zeros(len(codes), np.int64)
    for place, shape in enumerate(shapes):
        levels += np.append(shape, 0)[codes[:, place]]
    return sum_residuals(what.plan.loss, levels, truth[known], codes[:, block], len(shapes[block]))


def _shapes(what: Planned, seed: int) -> list[np.ndarray]:
    draw, most = np.random.default_rng(seed), HIGHEST * SHAPE
    return [draw.integers(-most, most, len(each)) for each in ("-", *(f.entries for f in what.design.features))]


@settings(deadline=None, max_examples=40)
@given(UNITS, st.integers(0, 2**32), st.sampled_from(["ill", "charge"]), st.sampled_from([None, 1, "0.7"]))
def test_no_unit_moves_a_histogram_farther_than_the_plan_says(
    units: list[list[dict[str, Any]]], seed: int, target: str, clip: Any
) -> None:
    what = _plan(target, ("age", "sex", "town"), PERSON, clip=clip)
    shapes = _shapes(what, seed)
    everyone = [record for unit in units for record in unit]
    for block in range(4):
        whole = _histogram(what, everyone, block, shapes)
        for place in range(len(units)):
            others = [record for other, unit in enumerate(units) if other != place for record in unit]
            moved = whole - _histogram(what, others, block, shapes)
            assert sum(int(each) ** 2 for each in moved) <= what.plan.mechanism.sensitivity_squared  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", ["ill", "charge"])
def test_the_bound_is_reached_by_the_worst_row(target: str) -> None:
    what = _plan(target, ("sex",))
    found = set()
    for level in range(-HIGHEST * SHAPE, HIGHEST * SHAPE, SHAPE // 16):
        shapes = [np.array([level]), np.zeros(3, np.int64)]
        row = {"sex": "F", "ill": True, "charge": 1000.0}
        found.add(sum(int(each) ** 2 for each in _histogram(what, [row], 1, shapes)))
    assert what.plan.loss.most_squared * 0.98 <= max(found) <= what.plan.loss.most_squared  # type: ignore[attr-defined]


def test_a_histogram_is_the_same_in_any_order_and_company() -> None:
    what = _plan("ill", ("age", "town"))
    records = people(120).to_pylist()
    shapes = _shapes(what, 1)
    for block in range(3):
        alone = sum(_histogram(what, [record], block, shapes) for record in records)
        assert (_histogram(what, records, block, shapes) == alone).all()
        assert (_histogram(what, records[::-1], block, shapes) == alone).all()


def test_residuals_and_curvatures_are_those_of_the_logistic_loss() -> None:
    loss = _plan("ill", clip=1).plan.loss  # type: ignore[attr-defined]
    levels = np.arange(-6 * SHAPE, 6 * SHAPE, 977)
    for truth in (0, 1):
        residuals, curves = loss.look_up(levels, np.full(len(levels), truth))
        chance = 1 / (1 + np.exp(-levels / SHAPE))
        assert np.abs(residuals / RESIDUE - (truth - chance)).max() < 1e-3
        assert np.abs(curves / loss.unit - chance * (1 - chance)).max() < 1e-3


def _newton(what: Planned, rows: pa.Table) -> np.ndarray:
    """Log odds at the optimum of an almost unpenalized logistic regression on the same bins, by Newton's method."""
    truth, _ = encode_truth(what.target, rows)
    x = encode_rows(what.design, rows).astype(float) / 1024
    x, weights = x[:, x.any(axis=0)], np.zeros(0)
    weights = np.zeros(x.shape[1])
    for _ in range(12):
        chance = 1 / (1 + np.exp(-x @ weights))
        hessian = (x * (chance * (1 - chance))[:, None]).T @ x + 1e-3 * np.eye(x.shape[1])
        weights += np.linalg.solve(hessian, x.T @ (truth - chance) - 1e-3 * weights)
    return np.asarray(x @ weights)


def test_without_noise_and_clip_the_shapes_are_the_additive_optimum() -> None:
    rows = people(20_000, 3)
    what = almost_exact(_plan("ill", ("sex", "town", "insured"), clip=1, turns=25))
    # The three columns have nothing to do with illness but by chance, so the optimum is near 0 everywhere; a strong
    # effect is put into one of them.
    ill = np.asarray(rows["ill"]) ^ (np.asarray(rows["town"]) == "Brin")
    rows = rows.set_column(rows.column_names.index("ill"), "ill", pa.array(ill))
    chance = train_model(what, rows).predict(rows)
    wanted = _newton(what, rows)
    assert np.abs(np.log(chance / (1 - chance)) - wanted).max() < 0.05


def _bent(count: int, seed: int = 0) -> pa.Table:
    """Illness of the young and the old: no line in age tells it."""
    draw = np.random.default_rng(seed)
    age = draw.integers(0, 101, count)
    ill = draw.random(count) < np.where(np.abs(age - 50) > 25, 0.8, 0.2)
    return pa.table({"age": age, "town": np.array(["Ada", "Brin", "Cole"])[draw.integers(0, 3, count)], "ill": ill})


@pytest.mark.parametrize(("method", "least", "most"), [("boosted", 0.77, 0.81), ("logistic", 0.74, 0.81)])
def test_a_bent_effect_is_found_by_shapes_and_by_broken_lines(method: str, least: float, most: float) -> None:
    what = plan_training(table(), ROW, Task("ill", ("age", "town"), method), BUDGET)
    model, test = train_model(what, _bent(20_000)), _bent(20_000, 1)
    assert least < float(((model.predict(test) > 0.5) == np.asarray(test["ill"])).mean()) < most


def test_a_bent_number_is_found_too() -> None:
    draw = np.random.default_rng(0)
    age = draw.integers(0, 101, 20_000)
    charge = np.clip(500 + 200 * np.sin(age / 8) + draw.normal(0, 30, 20_000), 0, 1000)
    rows = pa.table({"age": age, "charge": charge})
    model = train_model(plan_training(table(), ROW, Task("charge", ("age",), "boosted"), BUDGET), rows)
    left = float(((model.predict(rows) - charge) ** 2).mean())
    assert left < 0.15 * float(charge.var())  # 0.05 of it is noise of the rows themselves


def test_the_told_errors_cover_the_truth() -> None:
    # 80 shapes of 40 runs; each lies within 4 errors but for a chance below 1e-4, and most within 2.
    found = []
    for seed in range(40):
        draw = np.random.default_rng(seed)
        town = draw.integers(0, 3, 3000)
        effect = np.array([-1.0, 0.0, 1.0])
        ill = draw.random(3000) < 1 / (1 + np.exp(-effect[town]))
        rows = pa.table({"town": np.array(["Ada", "Brin", "Cole"])[town], "ill": ill})
        told = train_model(_plan("ill", ("town",)), rows).coefficient_table()[1:]
        for first, second, gap in ((0, 1, 1.0), (1, 2, 1.0)):
            error = math.hypot(*(float(told[at].error or 0) for at in (first, second)))
            found.append((told[second].coefficient - told[first].coefficient - gap) / error)
    assert np.mean(np.abs(found) < 2) > 0.8
    assert np.mean(np.square(found)) < 2.5


def test_smoothing_is_the_posterior_of_its_kernel() -> None:
    draw = np.random.default_rng(5)
    root = draw.normal(size=(6, 6))
    kernel, variance, seen = root @ root.T, draw.random(6) + 0.1, draw.normal(size=6)
    mean, spread = smooth(seen, variance, [kernel])
    naive = np.linalg.inv(np.linalg.inv(kernel) + np.diag(1 / variance))
    assert np.allclose(mean, naive @ (seen / variance))
    assert np.allclose(spread, np.diag(naive))
    flat = smooth(seen, variance, [np.full(6, 2.0)])
    assert np.allclose(flat, smooth(seen, variance, [2.0 * np.eye(6)]))


@pytest.mark.parametrize(
    ("kind", "lower", "upper", "count", "names"),
    [
        (ColumnType.INTEGER, 17, 70, 54, ("age = 17", "age = 70")),
        (ColumnType.INTEGER, 0, 999, 63, ("age from 0 to 16", "age from 992 to 1008")),
        (ColumnType.DECIMAL, 0, 1, 64, ("age from 0 to 0.015625", "age from 0.984375 to 1")),
        (ColumnType.DATE, 0, 1, 2, ("age = 1970-01-01", "age = 1970-01-02")),
        (ColumnType.DECIMAL, 5, 5, 64, ("age from 5 to 5.00002", "age from 5.00096 to 5.00098")),
    ],
)
def test_bins_follow_from_the_bounds(kind: ColumnType, lower: int, upper: int, count: int, names: tuple[str]) -> None:
    bins = cut_into_bins(Number("age", kind, Fraction(lower), Fraction(upper), False))
    assert bins.count == count
    assert (bins.entries[0], bins.entries[-1]) == names


def test_a_row_lights_the_bin_of_its_own_value_alone() -> None:
    what = _plan("ill", ("age", "sex", "born", "charge"))
    rows = rows_of([{"age": age, "charge": 1000.0} for age in (0, 37, 100, 10**12, -5, None)])
    codes = encode_codes(what.design, rows)
    assert codes[:, 1].tolist() == [0, 18, 50, 50, 0, 51]  # two years a bin, and null
    assert set(codes[:, 4].tolist()) == {63}
    entries = encode_rows(what.design, rows)
    starts = np.flatnonzero(np.diff(what.design.owners, prepend=-1))
    for block, start in enumerate(starts):
        assert (entries[np.arange(6), start + codes[:, block]] == 1024).all()
    assert (entries.sum(axis=1) == 1024 * what.design.blocks).all()


def test_a_model_file_keeps_the_bins() -> None:
    model = train_model(_plan("ill", ("age", "sex"), turns=1), people(300))
    again = from_plain(to_plain(model))
    assert again == model
    assert (again.predict(people(50)) == model.predict(people(50))).all()
    assert any(isinstance(each, Bins) for each in again.design.features)
    assert any(isinstance(each, Labels) for each in again.design.features)
    assert {column.name for column in again.schema.columns} == {each.name for each in again.design.features}
    held = to_plain(model)
    held["features"][0]["count"] = 10**9
    with pytest.raises(ValueError):  # noqa: PT011  the file's reader turns it into its own refusal
        from_plain(held)


@pytest.mark.parametrize(("target", "rest"), [("ill", {"clip": "1/2"}), ("charge", {"clip": 3}), ("ill", {"turns": 0})])
def test_settings_that_cannot_be_used_are_refused(target: str, rest: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="cannot be used"):
        _plan(target, **rest)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("target", ["ill", "charge"])
def test_no_rows_and_one_row_are_learned_from(rows: int, target: str) -> None:
    for budget in (BUDGET, ApproxDP("1e-4", "1e-9"), ApproxDP(300, "1e-3")):
        what = plan_training(table(), ROW, Task(target, ("age", "sex"), "boosted", turns=1), budget)
        assert np.isfinite(train_model(what, people(rows)).predict(people(5))).all()


def test_members_of_an_exact_twin_are_found_and_those_of_the_private_model_are_not() -> None:
    """Each person has a value of her own and five rows with one random target: who predicts it has memorized it."""
    unit, names = PrivacyUnit("pid", max_groups=1, max_rows_per_group=5), tuple(range(100))
    pid = Column("pid", ColumnType.INTEGER)
    who = Column("who", ColumnType.INTEGER, categories=names, nullable=False)
    declared = TableSchema("wide", "", (pid, who, Column("ill", ColumnType.BOOLEAN)), unit)
    coins = np.random.default_rng(1).random(100) < 0.5
    members, others = (pa.table({"who": np.repeat(names, 5), "ill": np.repeat(ill, 5)}) for ill in (coins, ~coins))
    what = plan_training(declared, unit, Task("ill", None, "boosted"), BUDGET)
    leaky, private = (train_model(plan, members) for plan in (almost_exact(what), what))
    assert claim_membership(-leaky.losses(members), -leaky.losses(others)).figures["area"] > 0.99
    # Even an intruder with odds of e^1 to 1 for every person stays below 0.75 in the mean of 100.
    assert claim_membership(-private.losses(members), -private.losses(others)).figures["area"] < 0.9


def test_a_target_of_many_values_needs_its_positive() -> None:
    with pytest.raises(ParameterError, match="tells one from the others"):
        _plan("town")
    assert build_target(table(), "town", "Ada").name == "town"
