"""Regressions on both tables: coefficients by hand, intervals that cover, overlap by hand, and what is left out."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pytest

from deniable.assess.utility import Estimate, Term, choose_regression, compare_regressions, measure_workload
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.synth.domain import Domain, attributes_of

TABLE = TableSchema(
    "staff",
    "staff.csv",
    (
        Column("sex", ColumnType.TEXT, categories=("F", "M"), nullable=False),
        Column("job", ColumnType.TEXT, categories=("a", "b", "c")),
        Column("hired", ColumnType.DATE, bounds=Bounds(date(2000, 1, 1), date(2025, 12, 31))),
        Column("pay", ColumnType.DECIMAL, bounds=Bounds(0, 1000)),
    ),
    PrivacyUnit(),
)
ATTRIBUTES = attributes_of(TABLE)


def _staff(count: int, seed: int, effect: float = 50.0) -> pa.Table:
    generator = np.random.default_rng(seed)
    men, years = generator.random(count) < 0.5, generator.integers(0, 25, count)
    pay = 200 + effect * men + 10.0 * years + generator.normal(0, 20, count)
    day = [date(2001, 1, 1) + timedelta(days=round(365.25 * int(y))) for y in years]
    return pa.table({"sex": np.where(men, "M", "F"), "job": ["a", "b"] * (count // 2), "hired": day, "pay": pay})


def test_planted_coefficients_are_found_in_both_tables_with_the_same_sign() -> None:
    found = compare_regressions(_staff(4000, 1), _staff(4000, 2), ATTRIBUTES, "pay", ("sex", "hired"))
    assert found is not None
    sex, hired = found.terms
    assert (sex.name, hired.name) == ("sex = M", "hired")
    for term, truth in ((sex, 50.0), (hired, 10.0)):
        for each in (term.real, term.synthetic):
            # The tables are seeded, so this is the same on any day: within four standard errors.
            assert abs(each.value - truth) < 2 * (each.high - each.value)
        assert term.same_sign
    assert found.overlap > 0.3


def test_a_table_that_turns_an_effect_around_shows_it() -> None:
    found = compare_regressions(_staff(4000, 1), _staff(4000, 2, effect=-50.0), ATTRIBUTES, "pay", ("sex", "hired"))
    assert found is not None
    assert not found.terms[0].same_sign
    assert found.terms[0].overlap == 0
    assert not found.terms[0].covered
    assert found.covered <= 0.5


def test_intervals_agree_with_the_textbook_on_four_rows() -> None:
    # y = 1 + 2x with residuals (1, -1, -1, 1) / 1 on x = 0, 1, 2, 3: the slope is exactly 2.
    columns = (
        Column("x", ColumnType.INTEGER, bounds=Bounds(0, 9)),
        Column("y", ColumnType.DECIMAL, bounds=Bounds(0, 99)),
    )
    rows = pa.table({"x": [0, 1, 2, 3], "y": [2.0, 2.0, 4.0, 8.0]})
    found = compare_regressions(
        rows, rows, attributes_of(TableSchema("t", "t.csv", columns, PrivacyUnit())), "y", ("x",)
    )
    assert found is not None
    slope = found.terms[0].real
    assert slope.value == pytest.approx(2.0)
    # HC1: n/(n-p) * sum((x - mean)^2 e^2) / (sum (x - mean)^2)^2 = 2 * 5 / 25.
    assert slope.high - slope.value == pytest.approx(1.959964 * np.sqrt(2 * 5 / 25))
    assert found.overlap == pytest.approx(1)


@pytest.mark.parametrize(
    ("real", "synthetic", "overlap"), [((0, 2), (1, 3), 0.5), ((0, 1), (2, 3), 0.0), ((0, 4), (1, 2), 0.625)]
)
def test_overlap_by_hand(real: tuple[float, float], synthetic: tuple[float, float], overlap: float) -> None:
    ends = [Estimate((low + high) / 2, low, high) for low, high in (real, synthetic)]
    assert Term("x", *ends).overlap == pytest.approx(overlap)


def test_nulls_values_that_do_not_occur_and_few_rows_do_no_harm() -> None:
    rows = _staff(100, 3)
    holes = rows.set_column(3, "pay", pa.array([None if i % 5 == 0 else 1.0 * i for i in range(100)]))
    found = compare_regressions(rows, holes, ATTRIBUTES, "pay", ("sex", "job"))
    assert found is not None
    assert [term.name for term in found.terms] == ["sex = M", "job = b"], "nobody has job c"
    compared = rows.set_column(rows.column_names.index("job"), "job", pa.array(["b", "c"] * 50))
    found = compare_regressions(compared, compared, ATTRIBUTES, "pay", ("sex", "job"))
    assert found is not None
    assert [term.name for term in found.terms] == ["sex = M"], "nobody has job a, to which the others are compared"
    assert compare_regressions(rows, rows.slice(0, 3), ATTRIBUTES, "pay", ("sex", "job")) is None
    assert compare_regressions(rows.slice(0, 0), rows, ATTRIBUTES, "pay", ("sex",)) is None


def test_the_usual_regression_explains_the_last_number_by_columns_of_few_values() -> None:
    assert choose_regression(ATTRIBUTES) == ("pay", ("sex", "job"))
    assert choose_regression(ATTRIBUTES[:2]) is None


def test_the_error_of_a_workload_is_that_of_its_marginals() -> None:
    domain = Domain(("a", "b"), (2, 2))
    real, made = np.array([[0, 0, 1, 1], [0, 1, 0, 1]], np.int32), np.array([[0, 0, 1, 1], [0, 0, 1, 1]], np.int32)
    found = measure_workload(real, made, domain, [(0,), (0, 1)])
    assert found is not None
    assert found.marginals == ((("a",), 0.0), (("a", "b"), 0.5))
    assert found.mean == 0.25
    assert measure_workload(real, made, domain, []) is None
