"""Standard scores by hand: small tables whose scores can be counted, and boosting that learns what lines cannot."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from deniable.assess.scores import Property, score_tables, train_boosting
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, Role, TableSchema
from deniable.synth.domain import attributes_of

COLUMNS = (
    Column("id", ColumnType.TEXT, role=Role.IDENTIFIER),
    Column("sex", ColumnType.TEXT, categories=("F", "M", "X")),
    Column("age", ColumnType.INTEGER, bounds=Bounds(0, 9)),
    Column("pay", ColumnType.INTEGER, bounds=Bounds(0, 9)),
)
ATTRIBUTES = attributes_of(TableSchema("t", "t.csv", COLUMNS, PrivacyUnit()))
REAL = pa.table(
    {"id": list("abcd"), "sex": ["F", "F", "M", None], "age": [1, 2, 3, 4], "pay": [2, 4, 6, 8]},
)
MADE = pa.table(
    {"id": list("wxyy"), "sex": ["F", "M", "M", "X"], "age": [3, 4, 5, None], "pay": [8, 6, 4, 2]},
)


def _by_column(found: Property) -> dict[tuple[str, ...], float | None]:
    return {score.columns: score.value for score in found.scores}


def test_quality_of_four_rows_is_what_the_definitions_say() -> None:
    found = score_tables(REAL, MADE, ATTRIBUTES, None)
    shapes, trends = found.quality.properties
    # sex without null: 2/3, 1/3, 0 against 1/4, 2/4, 1/4; age: at 2 the distribution functions are 1/2 and 0.
    assert _by_column(shapes) == {("sex",): pytest.approx(1 - 5 / 12), ("age",): pytest.approx(0.5), ("pay",): 1.0}
    assert shapes.scores[0].columns == ("age",)
    pairs = _by_column(trends)
    assert pairs["age", "pay"] == pytest.approx(0.0)  # correlations of 1 and of -1
    # Of the cells (sex, pay in tenths of the real range) only (M, 6) is in both tables, a quarter of the rows in each.
    assert pairs["sex", "pay"] == pytest.approx(0.25)
    assert found.quality.value == pytest.approx((shapes.value + trends.value) / 2)  # type: ignore[operator]


def test_diagnostic_counts_values_that_the_real_rows_do_not_have() -> None:
    validity, structure = score_tables(REAL, MADE, ATTRIBUTES, None).diagnostic.properties
    assert _by_column(validity) == {("sex",): 0.75, ("age",): pytest.approx(2 / 3), ("pay",): 1.0, ("id",): 0.75}
    assert structure.value == 1.0
    fewer = score_tables(REAL, MADE.drop_columns(["id"]), ATTRIBUTES, None).diagnostic.properties[1]
    assert fewer.value == 0.75


def test_a_table_beside_itself_has_every_score() -> None:
    found = score_tables(REAL, REAL, ATTRIBUTES, None)
    assert found.quality.value == found.diagnostic.value == pytest.approx(1.0)
    assert found.k_marginal == {"2": 1000.0, "3": 1000.0}


def test_scores_that_are_not_defined_are_none_and_count_for_nothing() -> None:
    found = score_tables(REAL.slice(0, 0), MADE, ATTRIBUTES, None)
    assert found.quality.value is None
    same = REAL.set_column(2, "age", pa.array([3, 3, 3, 3]))
    pairs = _by_column(score_tables(same, MADE, ATTRIBUTES, None).quality.properties[1])
    assert pairs["age", "pay"] is None
    assert pairs["sex", "pay"] is not None


def _exclusive_or(size: int, seed: int) -> pa.Table:
    lots = np.random.default_rng(seed)
    age, pay = lots.integers(0, 10, size), lots.integers(0, 10, size)
    sex = np.where((age >= 5) != (pay >= 5), "F", "M")
    return pa.table({"id": [str(i) for i in range(size)], "sex": sex, "age": age, "pay": pay})


def test_boosting_learns_an_exclusive_or_and_tells_rows_that_lost_it() -> None:
    real, made = _exclusive_or(1500, 1), _exclusive_or(1500, 2)
    shuffled = made.set_column(1, "sex", made["sex"].take(np.random.default_rng(3).permutation(1500)))
    kept, lost = (score_tables(real, each, ATTRIBUTES, "sex").tstr for each in (made, shuffled))
    assert kept is not None
    assert lost is not None
    assert kept.accuracy_on_synthetic > 0.9
    assert kept.accuracy_on_real > 0.9
    assert lost.accuracy_on_synthetic < 0.65
    assert kept.majority < 0.6


def test_boosting_of_two_classes_is_the_same_whichever_is_first() -> None:
    lots = np.random.default_rng(4)
    codes = lots.integers(0, 4, (2, 600)).astype(np.int32)
    truth = (codes[0] == 2).astype(np.int32)
    one, other = (train_boosting(codes, [4, 4], [False, True], each, 2).score(codes) for each in (truth, 1 - truth))
    assert (one.argmax(axis=0) == truth).all()
    assert (other.argmax(axis=0) == 1 - truth).all()
