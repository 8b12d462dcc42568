"""Cells of marginals from the model alone: error bars that cover, sums that agree, and refusals in words."""

from __future__ import annotations

import pyarrow as pa
import pytest

from deniable.errors import ParameterError
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema
from deniable.policy.unit import PrivacyUnit
from deniable.synth.cells import cells
from deniable.synth.describing import model_of

COLUMNS = (
    Column("sex", ColumnType.TEXT, categories=("F", "M"), nullable=False),
    Column("ill", ColumnType.BOOLEAN, nullable=False),
    Column("age", ColumnType.INTEGER, bounds=Bounds(0, 3), nullable=False),
)
PEOPLE = TableSchema("people", "people.csv", COLUMNS, PrivacyUnit())
COUNT = 2000


def _rows() -> pa.Table:
    return pa.table(
        {
            "sex": ["F" if i % 4 else "M" for i in range(COUNT)],
            "ill": [(i % 4 == 0) == (i % 10 < 8) for i in range(COUNT)],
            "age": [i // 4 % 4 for i in range(COUNT)],
        }
    )


def test_the_error_bars_of_a_measured_pair_cover_the_truth_as_often_as_they_say() -> None:
    truth = sum(i % 4 == 0 and i % 10 < 8 for i in range(COUNT)) / COUNT
    hits, tried = 0, 60
    for _ in range(tried):
        told = cells(model_of(_rows(), PEOPLE, ApproxDP(1, 1e-6), "mst", columns=("sex", "ill")), ("sex", "ill"))
        assert told.measured == ("sex", "ill")
        cell = next(cell for cell in told.cells if cell.values == ("M", "True"))
        assert cell.error is not None
        hits += abs(cell.share - truth) <= cell.error
    # Denoised counts are nearer than their noise, so bars cover in 95% or more: of 60 at most 41 has probability 1e-9.
    assert hits >= 42


def test_cells_add_up_and_columns_come_in_the_tables_order() -> None:
    model = model_of(_rows(), PEOPLE, ApproxDP(5, 1e-6), "mst")
    for columns in (("sex",), ("ill", "sex"), ("sex", "ill", "age")):
        told = cells(model, columns)
        assert told.columns == tuple(name for name in ("sex", "ill", "age") if name in columns)
        assert sum(cell.share for cell in told.cells) == pytest.approx(1)


def test_what_was_not_measured_together_has_no_error_bar() -> None:
    told = cells(model_of(_rows(), PEOPLE, ApproxDP(5, 1e-6), "independent"), ("sex", "ill"))
    assert told.measured is None
    assert all(cell.error is None for cell in told.cells)
    assert len(told.cells) == 4


def test_a_column_that_is_not_there_is_refused_with_the_nearest() -> None:
    model = model_of(_rows(), PEOPLE, ApproxDP(5, 1e-6), "independent")
    with pytest.raises(ParameterError, match="Did you mean 'sex'"):
        cells(model, ("sx",))
    with pytest.raises(ParameterError, match="no column or too many"):
        cells(model, ())
