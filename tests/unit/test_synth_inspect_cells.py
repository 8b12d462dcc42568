"""Cells of marginals from the model alone: error bars that cover, sums that agree, and refusals in words."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from deniable.dp.accounting import GaussianEvent, NoOpEvent
from deniable.errors import ParameterError
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.synth.bins import CollapsedDomain
from deniable.synth.describe import describe_table
from deniable.synth.domain import Bins, Domain
from deniable.synth.estimate import estimate_marginals
from deniable.synth.inspect import tabulate_marginal
from deniable.synth.marginal import Marginal
from deniable.synth.model import Description, SynthModel

COLUMNS = (
    Column("sex", ColumnType.TEXT, categories=("F", "M"), nullable=False),
    Column("ill", ColumnType.BOOLEAN, nullable=False),
    Column("age", ColumnType.INTEGER, bounds=Bounds(0, 3), nullable=False),
)
PEOPLE = TableSchema("people", "people.csv", COLUMNS, PrivacyUnit())
COUNT = 2000
EVENT = GaussianEvent(Fraction(1), Fraction(1))


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
        told = tabulate_marginal(
            describe_table(_rows(), PEOPLE, ApproxDP(1, 1e-6), "mst", columns=("sex", "ill")), ("sex", "ill")
        )
        assert told.measured == ("sex", "ill")
        cell = next(cell for cell in told.cells if cell.values == ("M", "True"))
        assert cell.error is not None
        hits += abs(cell.share - truth) <= cell.error
    # Denoised counts are nearer than their noise, so bars cover in 95% or more: of 60 at most 41 has probability 1e-9.
    assert hits >= 42


def test_cells_add_up_and_columns_come_in_the_tables_order() -> None:
    model = describe_table(_rows(), PEOPLE, ApproxDP(5, 1e-6), "mst")
    for columns in (("sex",), ("ill", "sex"), ("sex", "ill", "age")):
        told = tabulate_marginal(model, columns)
        assert told.columns == tuple(name for name in ("sex", "ill", "age") if name in columns)
        assert sum(cell.share for cell in told.cells) == pytest.approx(1)


def test_what_was_not_measured_together_has_no_error_bar() -> None:
    told = tabulate_marginal(describe_table(_rows(), PEOPLE, ApproxDP(5, 1e-6), "independent"), ("sex", "ill"))
    assert told.measured is None
    assert all(cell.error is None for cell in told.cells)
    assert len(told.cells) == 4


def test_a_column_that_is_not_there_is_refused_with_the_nearest() -> None:
    model = describe_table(_rows(), PEOPLE, ApproxDP(5, 1e-6), "independent")
    with pytest.raises(ParameterError, match="Did you mean 'sex'"):
        tabulate_marginal(model, ("sx",))
    with pytest.raises(ParameterError, match="no column or too many"):
        tabulate_marginal(model, ())


def test_unbiased_shares_lie_within_their_bars_as_often_as_they_say_in_every_cell() -> None:
    # The bars of the unbiased shares are exact: of 60 x 4 cells about 95% cover. Cells of one run hang together, but
    # runs do not: at most 41 of 60 good runs for one cell has probability 1e-9, and there are four.
    truth = {
        (sex, ill): sum(("F" if i % 4 else "M", str((i % 4 == 0) == (i % 10 < 8))) == (sex, ill) for i in range(COUNT))
        / COUNT
        for sex in "FM"
        for ill in ("False", "True")
    }
    hits = dict.fromkeys(truth, 0)
    for _ in range(60):
        told = tabulate_marginal(
            describe_table(_rows(), PEOPLE, ApproxDP(1, 1e-6), "mst", columns=("sex", "ill")), ("sex", "ill")
        )
        for cell in told.cells:
            assert cell.error is not None
            assert cell.unbiased is not None
            hits[cell.values] += abs(cell.unbiased - truth[cell.values]) <= cell.error
    assert min(hits.values()) >= 42


def _described(cliques: list[Marginal], sizes: tuple[int, ...]) -> SynthModel:
    """A model of measurements that are given, over columns that count 0, 1, 2 and so on."""
    names = ("a", "b", "c")[: len(sizes)]
    attributes = tuple(
        Bins(name, ColumnType.INTEGER, Fraction(0), Fraction(1), tuple(range(size + 1)), False)
        for name, size in zip(names, sizes, strict=True)
    )
    domain = Domain(names, sizes, frozenset(range(len(sizes))))
    collapsed = CollapsedDomain(domain, tuple(np.arange(size, dtype=np.int32) for size in sizes))
    one_way = [Marginal((p,), np.full(size, 120.0 / size), 4.0, EVENT) for p, size in enumerate(sizes)]
    estimates = estimate_marginals(collapsed, one_way, cliques)
    description = Description("auto", domain, collapsed, tuple(one_way), tuple(cliques), estimates, NoOpEvent())
    return SynthModel("t", attributes, description)


def test_bars_are_those_of_everything_that_was_measured_together() -> None:
    pair = Marginal((0, 1), np.full((2, 3), 20.0), 9.0, EVENT)
    model = _described([pair], (2, 3))
    told = tabulate_marginal(model, ("a", "b"))
    # By hand: the interaction has factor 9; column a, told with 4 and 27, factor 1 / (1/4 + 1/27); column b, told with
    # 4 and 18, 1 / (1/4 + 1/18); the total is told by sums with 8, 12 and 54. Each part has its diagonal.
    a, b, whole = 1 / (1 / 4 + 1 / 27), 1 / (1 / 4 + 1 / 18), 1 / (1 / 8 + 1 / 12 + 1 / 54)
    variance = 9 * (1 / 2) * (2 / 3) + a / 9 * (1 / 2) + b / 4 * (2 / 3) + whole / 36
    assert [cell.error for cell in told.cells] == pytest.approx([1.959964 * variance**0.5 / 120] * 6)
    assert variance < 9
    single = tabulate_marginal(model, ("a",))
    assert single.cells[0].error == pytest.approx(1.959964 * (a / 2 + whole / 4) ** 0.5 / 120)


def test_columns_counted_together_by_groups_are_told_by_groups() -> None:
    coarse = Marginal((0, 1, 2), np.arange(8.0).reshape(2, 2, 2) * 4, 9.0, EVENT, ((0, 0, 1), (0, 1), (0, 0, 1, 1)))
    model = _described([coarse], (3, 2, 4))
    told = tabulate_marginal(model, ("a", "c"))
    assert told.measured == ("a", "b", "c")
    assert told.groups == ((0, 0, 1), (0, 0, 1, 1))
    assert [cell.values for cell in told.cells] == [
        ("0 to 1", "0 to 1"), ("0 to 1", "2 to 3"), ("2", "0 to 1"), ("2", "2 to 3"),
    ]  # fmt: skip
    assert [cell.unbiased for cell in told.cells] == pytest.approx([8 / 120, 16 / 120, 40 / 120, 48 / 120])
    assert {round(cell.error or 0, 12) for cell in told.cells} == {round(1.959964 * 18**0.5 / 120, 12)}


def test_shares_are_never_negative_and_unbiased_ones_may_be() -> None:
    told = tabulate_marginal(
        _described([Marginal((0, 1), np.array([[70.0, -10], [0, 60]]), 9.0, EVENT)], (2, 2)), ("a", "b")
    )
    assert min(cell.share for cell in told.cells) == 0
    assert min(cell.unbiased or 0 for cell in told.cells) < 0


def test_tables_that_were_fitted_to_one_another_keep_the_bars_of_their_own_measurement() -> None:
    pair = Marginal((0, 1), np.full((2, 3), 20.0), 9.0, EVENT)
    model = _described([pair], (2, 3))
    fitted = replace(model, description=replace(model.description, method="hierarchical"))
    told = tabulate_marginal(fitted, ("a", "b"))
    assert told.cells[0].error == pytest.approx(1.959964 * 3 / 120, rel=1e-6)
    assert told.cells[0].unbiased is None
