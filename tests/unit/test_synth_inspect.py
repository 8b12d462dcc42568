"""The public view of a model: error bars that cover, associations by hand, labels that people can read."""

from __future__ import annotations

import itertools
from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.reports import synthesis
from deniable.reports.page import render
from deniable.synth.describe import describe_table
from deniable.synth.domain import Bins, attributes_of
from deniable.synth.inspect import (
    association_strength,
    build_histograms,
    label_codes,
    list_associations,
    list_measurements,
)

COLUMNS = (
    Column("sex", ColumnType.TEXT, categories=("F", "M"), nullable=False),
    Column("age", ColumnType.INTEGER, bounds=Bounds(0, 120)),
    Column("seen", ColumnType.DATE, bounds=Bounds(date(2020, 1, 1), date(2022, 12, 31)), nullable=False),
)
PEOPLE = TableSchema("people", "people.csv", COLUMNS, PrivacyUnit())
COUNT = 3000


def _rows() -> pa.Table:
    return pa.table(
        {
            "sex": ["F" if i % 3 else "M" for i in range(COUNT)],
            "age": [None if i % 10 == 0 else 20 + (i % 3) * 20 + i % 7 for i in range(COUNT)],
            "seen": [date(2020, 1 + i % 12, 1 + i % 28) for i in range(COUNT)],
        }
    )


def test_bars_cover_the_truth_about_as_often_as_they_say() -> None:
    hits = []
    for _ in range(60):
        model = describe_table(_rows(), PEOPLE, ApproxDP(1, 1e-6), "independent", columns=("sex",))
        bar = build_histograms(model)[0].bars[0]
        hits.append(abs(bar.share - 2 / 3) <= bar.error)
    assert sum(hits) >= 50


def test_everything_measured_is_listed_with_its_noise() -> None:
    model = describe_table(_rows(), PEOPLE, ApproxDP(1, 1e-6), "mst")
    told = list_measurements(model)
    assert [entry.columns for entry in told[:3]] == [("sex",), ("age",), ("seen",)]
    assert told[0].cells == 2
    assert told[0].deviation == pytest.approx(model.description.one_way[0].variance ** 0.5)
    assert 0 < told[0].noise < told[2].noise
    assert len(told) == 3 + len(model.description.cliques)


def test_association_is_nothing_for_independence_and_one_where_a_column_decides_the_other() -> None:
    assert association_strength(np.outer([1.0, 3.0], [2.0, 5.0, 1.0])) == pytest.approx(0, abs=1e-12)
    assert association_strength(np.array([[5.0, 0, 0], [0, 3.0, 0], [0, 0, 2.0]])) == pytest.approx(1)
    assert association_strength(np.array([[3.0, 4.0]])) == 0


def test_a_planted_association_is_the_strongest() -> None:
    found = list_associations(describe_table(_rows(), PEOPLE, ApproxDP(5, 1e-6), "correlated", columns=("sex", "age")))
    assert (found[0].first, found[0].second) == ("sex", "age")
    assert found[0].strength > 0.5


def test_labels_name_values_ranges_and_null() -> None:
    model = describe_table(_rows(), PEOPLE, ApproxDP(5, 1e-6))
    assert label_codes(model, 0) == ["F", "M"]
    assert label_codes(model, 1)[0].startswith("0 to ")
    assert label_codes(model, 1)[-1].endswith("null")
    assert label_codes(model, 2)[0].startswith("2020-01-01")


def test_bins_span_every_step_once() -> None:
    seen = attributes_of(PEOPLE)[2]
    assert isinstance(seen, Bins)
    assert seen.bins < seen.steps
    spans = [seen.span(code, code) for code in range(seen.bins)]
    assert spans[0][0] == date(2020, 1, 1)
    assert spans[-1][1] == date(2022, 12, 31)
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert (start - end).days == 1  # type: ignore[operator, union-attr]


def test_the_public_page_names_every_column_and_no_real_row() -> None:
    from dataclasses import asdict

    model = describe_table(_rows(), PEOPLE, ApproxDP(5, 1e-6))
    view = {
        "method": "auto", "reason": "because", "estimated_rows": COUNT, "columns": ["sex", "age", "seen"],
        "noise_in_a_table": 0.01, "made_anew": [], "marginals": [],
        "tables": [asdict(entry) for entry in list_measurements(model)],
        "histograms": [asdict(entry) for entry in build_histograms(model)],
        "associations": [asdict(entry) for entry in list_associations(model)],
    }  # fmt: skip
    page = render(synthesis.build_model_page(view))
    assert all(name in page for name in ("sex", "age", "seen", "because"))
    assert "real rows" not in page
    order = ["In short", "Associations", "sex", "What was measured"]
    places = [page.index(f">{heading}</h2>") for heading in order]
    assert places == sorted(places), "what it is good for and the pictures stand before long tables"
    assert "Not good for groups of fewer than about" in page
    assert page.index("<summary>Every table that was counted") > places[-1]
