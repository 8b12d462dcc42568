"""Groups and components: bounds by brute force, exact sums, plain fits where there is no noise, files, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deniable.errors import IntegrityError, ParameterError
from deniable.learn.features import STEPS, encode_rows
from deniable.learn.model import load_model, save_model
from deniable.learn.structure import (
    GroupsPlan,
    bound_groups,
    count_values,
    find_nearest,
    round_centers,
    sum_groups,
)
from deniable.learn.training import Planned, Task, plan_training, train_model
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, Neighboring, PrivacyUnit, TableSchema
from learning import ROW, almost_exact, people, rows_of, table

BUDGET = ApproxDP(Fraction(1), Fraction("1e-6"))
HOSTILE: list[dict[str, Any]] = [
    {"age": 10**12, "sex": "F", "town": "Ada", "charge": float("inf")},
    {"age": -(10**12), "sex": "nobody", "town": "Nowhere", "charge": float("nan")},
    {"age": 100, "sex": "M", "town": "Cole", "charge": -1e300},
    {},
]
NAMES = ("x", "y", "z")
SQUARE = TableSchema(
    "square",
    "square.csv",
    tuple(
        Column(name, ColumnType.DECIMAL, bounds=Bounds(Fraction(-1), Fraction(1), Fraction(1, 1000)), nullable=False)
        for name in NAMES
    ),
    ROW,
)


def _plan(method: str, features: tuple[str, ...] = ("age", "sex", "town", "charge"), **rest: Any) -> Planned:
    rest = {"count": 3 if method == "kmeans" else 2, **rest}
    return plan_training(table(), ROW, Task(None, features, method, **rest), BUDGET)


def _length(vector: np.ndarray) -> int:
    return sum(int(each) ** 2 for each in vector.ravel())


def _blobs(rows: int, seed: int = 0) -> tuple[np.ndarray, pa.Table, np.ndarray]:
    draw = np.random.default_rng(seed)
    centers = np.array([[-0.6, -0.5, 0.0], [0.5, -0.4, 0.3], [0.1, 0.7, -0.5]])
    places = np.clip(centers[draw.integers(0, 3, rows)] + draw.normal(0, 0.08, (rows, 3)), -1, 1)
    return centers, pa.table(dict(zip(NAMES, places.T, strict=True))), places


def test_no_row_moves_a_release_of_groups_by_more_than_its_bound_and_the_worst_reaches_it() -> None:
    made = _plan("kmeans").design
    draw = np.random.default_rng(0)
    entries = encode_rows(made, pa.concat_tables([rows_of(HOSTILE), people(60)]))
    for _ in range(20):
        centers = draw.integers(-STEPS, STEPS + 1, (3, made.width))
        whole, counted = sum_groups(made, entries, centers), count_values(made, entries)
        for place in range(len(entries)):
            rest = np.delete(entries, place, axis=0)
            assert _length(whole - sum_groups(made, rest, centers)) <= bound_groups(made)
            assert _length(counted - count_values(made, rest)) <= bound_groups(made)
    worst = encode_rows(made, rows_of([{"age": 100, "sex": "F", "town": "Ada", "charge": 1000.0}]))
    assert _length(sum_groups(made, worst, np.zeros((3, made.width), np.int64))) == bound_groups(made)


def test_units_of_several_rows_and_replaced_ones_have_more_noise() -> None:
    for method in ("kmeans", "pca"):
        one = _plan(method).plan.mechanism.sensitivity_squared  # type: ignore[attr-defined]
        for unit, times in (
            (PrivacyUnit("pid", max_groups=1, max_rows_per_group=3), 9),
            (PrivacyUnit(neighboring=Neighboring.REPLACE), 4),
        ):
            task = Task(None, ("age", "sex", "town", "charge"), method, count=2)
            found = plan_training(table(unit), unit, task, BUDGET).plan.mechanism  # type: ignore[attr-defined]
            assert found.sensitivity_squared == times * one


def test_sums_of_groups_are_the_same_in_any_order_and_company() -> None:
    made = _plan("kmeans").design
    entries = encode_rows(made, people(300))
    centers = np.random.default_rng(1).integers(-STEPS, STEPS + 1, (5, made.width))
    alone = sum(sum_groups(made, entries[place : place + 1], centers) for place in range(len(entries)))
    assert (sum_groups(made, entries, centers) == alone).all()
    assert (sum_groups(made, entries[::-1], centers) == alone).all()


def test_the_nearest_center_is_that_of_plain_arithmetic_and_of_twins_the_first() -> None:
    draw = np.random.default_rng(2)
    entries = draw.integers(-STEPS, STEPS + 1, (200, 6)).astype(np.int16)
    centers = draw.integers(-STEPS, STEPS + 1, (4, 6))
    away = ((entries[:, None, :].astype(int) - centers[None]) ** 2).sum(axis=2)
    assert (find_nearest(entries, centers) == away.argmin(axis=1)).all()
    assert (find_nearest(entries, centers[[2, 2, 2]]) == 0).all()


def test_groups_that_stand_apart_are_found_with_their_sizes_and_errors() -> None:
    centers, rows, places = _blobs(6000)
    what = plan_training(SQUARE, ROW, Task(method="kmeans", count=3), BUDGET)
    model = train_model(what, rows)
    found = np.array(model.coefficients).reshape(3, 4)[:, 1:]
    order = [int(((found - each) ** 2).sum(axis=1).argmin()) for each in centers]
    assert sorted(order) == [0, 1, 2]
    errors = np.array(model.errors).reshape(3, 4)[order, 1:]
    # Nine differences: each within five of its stated deviations, which are small against the distances of 1.
    assert (np.abs(found[order] - centers) < 5 * errors).all()
    assert errors.max() < 0.03
    assert model.shares is not None
    assert sum(model.shares) == pytest.approx(1)
    assert min(model.shares) > 0.3
    told = model.predict(rows)
    truth = ((places[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert np.mean(np.array(order)[truth] == told) > 0.99


def test_without_noise_the_last_turn_is_lloyds() -> None:
    _, rows, _ = _blobs(500, 3)
    what = almost_exact(plan_training(SQUARE, ROW, Task(method="kmeans", count=3, turns=8), BUDGET))
    model = train_model(what, rows)
    entries = encode_rows(model.design, rows)
    centers = np.array(model.coefficients).reshape(3, 4)
    nearest = find_nearest(entries, round_centers(centers))
    plain = np.array([entries[nearest == place].mean(axis=0) / STEPS for place in range(3)])
    assert np.abs(plain - centers).max() < 2 / STEPS


def test_more_groups_than_rows_and_no_rows_at_all_leave_a_model_that_says_so() -> None:
    for count in (0, 2):
        rows = people(50).slice(0, count)
        for method in ("kmeans", "pca"):
            what = _plan(method, count=5) if method == "kmeans" else _plan(method)
            model = train_model(what, rows)
            assert np.isfinite(model.coefficients).all()
            assert np.isfinite(np.array(model.errors)).all()
            assert model.errors is not None
            assert max(model.errors) > 0.5
            assert len(model.predict(rows)) == count


def test_components_without_noise_are_the_eigenvectors_of_the_covariance() -> None:
    draw = np.random.default_rng(4)
    places = np.clip(draw.normal(0, 0.2, (4000, 3)) @ np.array([[1, 0.5, 0], [0, 0.6, 0.2], [0, 0, 0.3]]), -1, 1)
    rows = pa.table(dict(zip(NAMES, places.T, strict=True)))
    what = almost_exact(plan_training(SQUARE, ROW, Task(method="pca", count=3), BUDGET))
    model = train_model(what, rows)
    values, axes = np.linalg.eigh(np.cov(places.T))
    found = np.array(model.coefficients).reshape(3, 4)[:, 1:]
    assert np.allclose(np.abs(np.sum(found * axes.T[::-1], axis=1)), 1, atol=1e-3)
    assert np.allclose(model.shares, values[::-1] / values.sum(), atol=1e-3)
    told = model.predict(rows)
    assert np.abs(told.mean(axis=0)).max() < 1e-3
    assert np.allclose(told.var(axis=0), values[::-1], rtol=0.02)


def test_the_errors_of_loadings_cover_the_truth_where_noise_and_sample_are_large() -> None:
    """Three normal columns with known axes, fitted anew each time: within two errors in about 95 of 100."""
    draw, covered, total = np.random.default_rng(5), 0, 0
    turn = np.linalg.qr(draw.normal(size=(3, 3)))[0]
    scales = np.array([0.3, 0.2, 0.1])
    what = plan_training(SQUARE, ROW, Task(method="pca", count=2), ApproxDP(Fraction(1, 2), Fraction("1e-6")))
    for _ in range(150):
        places = np.clip(draw.normal(size=(2500, 3)) * scales @ turn.T, -1, 1)
        model = train_model(what, pa.table(dict(zip(NAMES, places.T, strict=True))))
        found, errors = (np.array(each).reshape(2, 4)[:, 1:] for each in (model.coefficients, model.errors))
        truth = turn.T[:2] * np.sign((found * turn.T[:2]).sum(axis=1))[:, None]
        covered += int((np.abs(found - truth) <= 2 * errors).sum())
        total += found.size
    assert 0.90 < covered / total < 0.995


@pytest.mark.parametrize("method", ["kmeans", "pca"])
def test_a_model_file_is_read_back_and_a_changed_one_refused(method: str, tmp_path: Path) -> None:
    model, path = train_model(_plan(method), people(200)), tmp_path / "model.json"
    save_model(model, path)
    assert load_model(path) == model
    held = json.loads(path.read_text())
    for change in (
        {"target": {"kind": "group" if method == "pca" else "component", "count": len(model.parts)}},
        {"target": {"kind": held["target"]["kind"], "count": 10**9}},
        {"shares": None},
        {"shares": held["shares"][:-1]},
        {"method": "linear"},
    ):
        path.write_text(json.dumps(held | change))
        with pytest.raises(IntegrityError):
            load_model(path)


def test_the_center_of_a_group_is_told_in_the_units_of_its_columns() -> None:
    what = almost_exact(_plan("kmeans", ("age", "town"), count=2))
    rows = people(2000)
    model = train_model(what, rows)
    told = {each.feature: each for each in model.coefficient_table()}
    group = model.predict(rows) == 0
    ages, towns = np.asarray(rows["age"])[group], np.asarray(rows["town"])[group]
    # The groups are those of the last centers, which the mean moved once more: near, not equal.
    assert told["group 1: age"].coefficient == pytest.approx(ages.mean(), abs=3)
    assert told["group 1: town = Brin"].coefficient == pytest.approx(np.mean(towns == "Brin"), abs=0.05)
    assert [each.of for each in model.list_effects()][:1] == ["group 1"]


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ({"method": "kmeans"}, "how many groups"),
        ({"method": "kmeans", "count": 1}, "2 to 64"),
        ({"method": "kmeans", "count": 65}, "2 to 64"),
        ({"method": "kmeans", "count": 2, "turns": 0}, "turns"),
        ({"method": "kmeans", "count": 2, "target": "ill"}, "has no target"),
        ({"method": "kmeans", "count": 2, "penalty": 1.0}, "has no penalty"),
        ({"method": "pca", "turns": 3}, "has no turns"),
        ({"method": "pca", "count": 99}, "count cannot be used"),
        ({"method": "auto"}, "no target is stated"),
        ({"method": "linear", "target": "charge", "count": 2}, "for kmeans and pca"),
        ({"method": "kmean"}, "Did you mean 'kmeans'"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_row_is_seen(rest: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        plan_training(table(), ROW, Task(**rest), BUDGET)


def test_a_wide_group_of_two_is_split_where_two_others_are_one() -> None:
    """Two starts in one heap and one for two heaps: Lloyd's iteration alone would stay there."""
    centers, rows, _ = _blobs(3000, 6)
    what = plan_training(SQUARE, ROW, Task(method="kmeans", count=3), BUDGET)
    assert isinstance(what.plan, GroupsPlan)
    with pytest.MonkeyPatch.context() as patch:
        start = np.column_stack([np.ones(3), [centers[0], centers[0] + 0.05, (centers[1] + centers[2]) / 2]])
        patch.setattr("deniable.learn.structure.place_centers", lambda *_: start)
        model = train_model(replace(what), rows)
    found = np.array(model.coefficients).reshape(3, 4)[:, 1:]
    assert max(((found - each) ** 2).sum(axis=1).min() for each in centers) < 0.01
