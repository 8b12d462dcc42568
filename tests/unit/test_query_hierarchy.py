"""Trees and margins: the closed forms are the least squares that brute force finds, and whole numbers add up."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable import Curator
from deniable.dp.accounting import pure_cost
from deniable.errors import BudgetExceeded, InternalError, ParameterError, QueryRefused
from deniable.policy.document import read
from deniable.query.techniques.least_squares import (
    Tree,
    find_best_shares,
    fit_margins,
    fit_tree,
    predict_margin_variances,
    predict_tree_variances,
    project_on_simplex,
    round_to_total,
    round_top_down,
)

POLICY = """
version: 1
dataset: town
tables:
  people:
    source: people.parquet
    unit: row
    columns:
      ward: {categories: [N, S]}
      sex:  {categories: [F, M]}
      age:  {type: integer, between: [0, 9]}
      note: {}
  areas: {source: areas.parquet, public: true}
budgets:
  dataset: {epsilon: 1000}
"""
ROWS = {"ward": ["N", "N", "S", "S", "S"], "sex": ["F", "M", "F", "F", "X"], "age": [1, 2, 3, 4, 5], "note": ["a"] * 5}


@pytest.fixture
def curator(tmp_path: Path) -> Curator:
    (tmp_path / "policy.yaml").write_text(POLICY)
    areas = pa.table({"code": ["N", "S"], "half": ["north", "south"]})
    return Curator(read(tmp_path / "policy.yaml"), sources={"people": pa.table(ROWS), "areas": areas})


def _tree() -> tuple[Tree, list[np.ndarray]]:
    tree = Tree.of([[()], [(0,), (1,), (2,)], [(i, j) for i in range(3) for j in range(i + 1)]])
    leaves = tree.sizes[2]
    middle = np.array([[float(tree.parents[1][c] == r) for c in range(leaves)] for r in range(3)])
    return tree, [np.ones((1, leaves)), middle, np.eye(leaves)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.1, 50), min_size=3, max_size=3), st.integers(0, 10**6))
def test_the_two_passes_are_weighted_least_squares(variances: list[float], seed: int) -> None:
    tree, matrices = _tree()
    measured = [np.random.default_rng(seed).normal(0, 9, len(matrix)) for matrix in matrices]
    stacked = np.vstack([m / v**0.5 for m, v in zip(matrices, variances, strict=True)])
    wanted = np.concatenate([y / v**0.5 for y, v in zip(measured, variances, strict=True)])
    exactly = np.linalg.lstsq(stacked, wanted, rcond=None)[0]
    covariance = np.linalg.inv(stacked.T @ stacked)
    for matrix, fit in zip(matrices, fit_tree(tree, measured, variances), strict=True):
        assert fit.values == pytest.approx(matrix @ exactly)
        assert fit.variances == pytest.approx(np.diag(matrix @ covariance @ matrix.T))


def test_the_variances_of_a_regular_tree_are_those_of_its_fit() -> None:
    tree = Tree.of([[()], [(i,) for i in range(3)], [(i, j) for i in range(3) for j in range(4)]])
    fit = fit_tree(tree, [np.zeros(n) for n in tree.sizes], [2.0, 5.0, 1.0])
    assert predict_tree_variances(tree.sizes, [2.0, 5.0, 1.0]) == pytest.approx([level.variances[0] for level in fit])


def test_a_cell_without_its_parent_is_our_bug() -> None:
    with pytest.raises(InternalError):
        Tree.of([[()], [("a",)], [("b", 1)]])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=12), st.integers(0, 100), st.booleans())
def test_whole_parts_add_up_and_stay_near(values: list[float], total: int, nonnegative: bool) -> None:
    cells = np.array(values)
    parts = round_to_total(cells, total, nonnegative)
    assert parts.sum() == total
    near = project_on_simplex(cells, total) if nonnegative else cells + (total - cells.sum()) / cells.size
    assert np.abs(parts - near).max() <= 1 + 1e-6
    assert not nonnegative or parts.min() >= 0


def test_the_simplex_point_is_the_nearest_of_a_grid() -> None:
    point = project_on_simplex(np.array([2.0, -1.0, 0.5]), 2)
    grid = [np.array([a, b, 2 - a - b]) for a in np.arange(0, 2.01, 0.05) for b in np.arange(0, 2.01 - a, 0.05)]
    near = min(grid, key=lambda each: ((each - [2.0, -1.0, 0.5]) ** 2).sum())
    assert np.abs(point - near).max() < 0.06


def test_levels_add_up_from_the_top_down() -> None:
    tree, _ = _tree()
    rng = np.random.default_rng(4)
    fit = fit_tree(tree, [rng.normal(10, 30, n) for n in tree.sizes], [1.0, 2.0, 3.0])
    for nonnegative in (False, True):
        levels = round_top_down(tree, fit, nonnegative=nonnegative)
        for parents, above, below in zip(tree.parents, levels, levels[1:], strict=False):
            assert np.bincount(parents, below, above.size).tolist() == above.tolist()


def _margin(sizes: list[int], margin: tuple[int, ...]) -> np.ndarray:
    cells = list(itertools.product(*map(range, sizes)))
    keys = itertools.product(*(range(sizes[i]) for i in margin))
    return np.array([[float(tuple(cell[i] for i in margin) == key) for cell in cells] for key in keys])


@pytest.mark.parametrize("margins", [[(0, 1), (1, 2), (0,)], [(), (0,), (0, 1, 2)], [(0,), (1,), (2,)]])
def test_fitted_margins_are_least_squares_over_the_whole_table(margins: list[tuple[int, ...]]) -> None:
    sizes, variances = [2, 3, 2], [1.0, 2.0, 0.5]
    matrices = [_margin(sizes, margin) for margin in margins]
    measured = [np.random.default_rng(1).normal(5, 3, len(matrix)) for matrix in matrices]
    stacked = np.vstack([m / v**0.5 for m, v in zip(matrices, variances, strict=True)])
    wanted = np.concatenate([y / v**0.5 for y, v in zip(measured, variances, strict=True)])
    exactly, covariance = np.linalg.lstsq(stacked, wanted, rcond=None)[0], np.linalg.pinv(stacked.T @ stacked)
    shaped = [y.reshape([sizes[i] for i in m]) for y, m in zip(measured, margins, strict=True)]
    found = fit_margins(sizes, margins, shaped, variances)
    spread = predict_margin_variances(sizes, margins, variances)
    for matrix, values, variance in zip(matrices, found, spread, strict=True):
        assert values.ravel() == pytest.approx(matrix @ exactly)
        assert variance == pytest.approx(np.diag(matrix @ covariance @ matrix.T).mean())


@pytest.mark.parametrize("gaussian", [False, True])
def test_the_best_shares_beat_even_ones_and_a_grid(gaussian: bool) -> None:
    sizes, power = [1, 10, 1000], 1 if gaussian else 2

    def error(shares: list[float]) -> float:
        return sum(predict_tree_variances(sizes, [1 / share**power for share in shares]))

    def model(measured: list[float]) -> list[float]:
        return predict_tree_variances(sizes, measured)

    found = [float(share) for share in find_best_shares(model, [1, 1, 1], [1, 1, 1], gaussian=gaussian)]
    assert sum(found) == pytest.approx(1)
    grid = [(a, b, 1 - a - b) for a in np.arange(0.05, 0.95, 0.05) for b in np.arange(0.05, 0.95 - a, 0.05)]
    assert error(found) <= min(error(list(shares)) for shares in grid) * 1.001
    assert error(found) < error([1 / 3] * 3)


def test_a_hierarchy_at_a_huge_epsilon_is_the_exact_table(curator: Curator) -> None:
    rows = curator.hierarchy("people", ["ward", "sex"], epsilon=500).to_pylist()
    found = {(row["level"], row["ward"], row["sex"]): row["value"] for row in rows}
    # Levels are fitted to each other; the one row with an undeclared sex is in its ward's count, not in a sex.
    assert found["sex", "N", "F"] == 1
    assert found["sex", "N", "M"] == 1
    assert found["total", None, None] in (4, 5)
    assert found["ward", "N", None] + found["ward", "S", None] == found["total", None, None]


def test_children_add_up_with_noise_and_everything_is_charged_once(curator: Curator) -> None:
    answer = curator.hierarchy("people", ["ward", "sex"], epsilon=1, nonnegative=True)
    rows = answer.to_pylist()
    for ward in ("N", "S"):
        parent = next(row["value"] for row in rows if row["level"] == "ward" and row["ward"] == ward)
        assert parent == sum(row["value"] for row in rows if row["level"] == "sex" and row["ward"] == ward)
    assert min(row["value"] for row in rows) >= 0
    assert curator.hierarchy("people", ["ward", "sex"], epsilon=1, nonnegative=True).repeated
    assert curator.remaining().epsilon == 999  # type: ignore[union-attr]


def test_a_public_table_gives_the_cells_of_a_tree(curator: Curator) -> None:
    source = "people JOIN areas ON people.ward = areas.code"
    rows = curator.hierarchy(source, ["areas.half", "areas.code"], epsilon=500).to_pylist()
    assert [(row["half"], row["code"], row["value"]) for row in rows if row["level"] == "code"] == [
        ("north", "N", 2),
        ("south", "S", 3),
    ]


def test_sums_are_hierarchies_too(curator: Curator) -> None:
    rows = curator.hierarchy("people", ["ward"], epsilon=500, aggregate="SUM(age)").to_pylist()
    assert {row["ward"]: row["value"] for row in rows} == {None: 15, "N": 3, "S": 12}


def test_margins_agree_on_the_columns_they_share(curator: Curator) -> None:
    rows = curator.margins("people", [["ward", "sex"], ["ward", "age"]], epsilon=1).to_pylist()
    for ward in ("N", "S"):
        by = [
            sum(r["value"] for r in rows if r["margin"] == name and r["ward"] == ward)
            for name in ("ward, sex", "ward, age")
        ]
        assert by[0] == pytest.approx(by[1])


def test_a_hierarchy_is_explained_without_data_and_costs_what_was_asked(curator: Curator) -> None:
    told = curator.explain_hierarchy("people", ["ward", "sex"], epsilon="0.5")
    assert told["cost"] == {"epsilon": "0.5", "delta": "0"}
    assert sum(float(part["share"]) for part in told["sets"]) == pytest.approx(1, abs=1e-3)
    assert all(part["error_fitted"] <= part["error_measured"] for part in told["sets"])
    assert curator.remaining().epsilon == 1000  # type: ignore[union-attr]


def test_the_levels_of_a_plan_together_cost_the_budget(curator: Curator) -> None:
    from deniable.curator.query.hierarchy import plan, tree_statement
    from deniable.policy.budget import PureDP

    statement = tree_statement("people", ["ward", "sex"], "COUNT(*)")
    sets = plan(curator.context, statement, ["ward", "sex"], PureDP(2), {"total": 50}, tree=True)
    cost = pure_cost(sets.query.event)
    assert cost is not None
    assert cost.amount == Fraction(2)


@pytest.mark.parametrize(
    ("deed", "kind"),
    [
        (lambda c: c.hierarchy("people", ["note"], epsilon=1), QueryRefused),
        (lambda c: c.hierarchy("people", [], epsilon=1), ParameterError),
        (lambda c: c.hierarchy("people", ["ward"]), QueryRefused),
        (lambda c: c.hierarchy("people", ["wart"], epsilon=1), QueryRefused),
        (lambda c: c.hierarchy("people", ["ward"], epsilon=1, aggregate="MEDIAN(age)"), QueryRefused),
        (lambda c: c.hierarchy("people", ["ward"], epsilon=1, aggregate="AVG(age)"), QueryRefused),
        (lambda c: c.hierarchy("people", ["ward"], epsilon=1001), BudgetExceeded),
        (lambda c: c.margins("people", [], epsilon=1), ParameterError),
        (lambda c: c.margins("people", ["ward"], epsilon=1), ParameterError),
        (lambda c: c.margins("people", [["ward", "note"]], epsilon=1), QueryRefused),
    ],
)
def test_what_cannot_be_released_is_refused_and_nothing_is_charged(curator: Curator, deed: object, kind: type) -> None:
    assert callable(deed)
    with pytest.raises(kind):
        deed(curator)
    assert curator.remaining().epsilon == 1000  # type: ignore[union-attr]


def test_margins_are_explained_without_a_charge(curator: Curator) -> None:
    before = curator.remaining()
    told = curator.explain_margins("people", [["ward", "sex"], ["ward", "age"]], epsilon=1)
    assert [each["name"] for each in told["sets"]] == ["ward, sex", "ward, age"]
    assert told["cost"]["epsilon"] == "1"
    assert curator.remaining() == before
