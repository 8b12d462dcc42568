"""Conditional generation: every row meets the condition, the rest follows the model, and the impossible is refused."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from deniable.errors import ParameterError
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, Role, TableSchema
from deniable.synth import generate as generating
from deniable.synth.describe import describe_table
from deniable.synth.domain import Bins
from deniable.synth.generate import generate, generate_batches, parse_condition

COLUMNS = (
    Column("id", ColumnType.TEXT, Role.IDENTIFIER),
    Column("sex", ColumnType.TEXT, categories=("F", "M"), nullable=False),
    Column("smoker", ColumnType.BOOLEAN),
    Column("age", ColumnType.INTEGER, bounds=Bounds(0, 120), nullable=False),
    Column("seen", ColumnType.DATE, bounds=Bounds(date(2020, 1, 1), date(2020, 1, 31)), nullable=False),
)
COUNT = 3000


@pytest.fixture(scope="module")
def model():  # type: ignore[no-untyped-def]
    rows = pa.table(
        {
            "id": [str(i) for i in range(COUNT)],
            "sex": ["F" if i % 3 else "M" for i in range(COUNT)],
            "smoker": [None if i % 10 == 0 else i % 3 == 0 for i in range(COUNT)],
            "age": [20 + i % 60 for i in range(COUNT)],
            "seen": [date(2020, 1, 1 + i % 28) for i in range(COUNT)],
        }
    )
    return describe_table(rows, TableSchema("people", "people.csv", COLUMNS, PrivacyUnit()), ApproxDP(5, 1e-6))


def test_every_row_meets_the_condition_and_the_rest_follows_the_model(model) -> None:  # type: ignore[no-untyped-def]
    men = generate(model, 500, 1, {"sex": "M"})
    assert men.num_rows == 500
    assert set(men["sex"].to_pylist()) == {"M"}
    known = [smoker for smoker in men["smoker"].to_pylist() if smoker is not None]
    assert sum(known) / len(known) > 0.9
    assert len(set(men["id"].to_pylist())) == 500


def test_without_a_number_of_rows_a_value_has_its_part_of_a_bin_of_many_steps() -> None:
    """The rows of the whole bin came: over all values many times the table."""
    size, lots = 20_000, np.random.default_rng(3)
    pay = np.where(lots.random(size) < 0.5, None, lots.integers(0, 1024, size))
    days = [date(2000, 1, 1) + timedelta(int(day)) for day in lots.integers(0, 5120, size)]
    spans = (Bounds(0, 1023), Bounds(date(2000, 1, 1), date(2000, 1, 1) + timedelta(5119)))
    columns = (Column("pay", ColumnType.INTEGER, bounds=spans[0]),
               Column("seen", ColumnType.DATE, bounds=spans[1], nullable=False))  # fmt: skip
    table = pa.table({"pay": pa.array(pay.tolist(), pa.int64()), "seen": pa.array(days, pa.date32())})
    told = describe_table(table, TableSchema("pays", "pays.csv", columns, PrivacyUnit()), ApproxDP(20, 1e-6))
    among = sum(generate(told, None, 1, {"pay": str(value)}).num_rows for value in range(500, 532))
    assert among == pytest.approx(size / 2 * 32 / 1024, rel=0.4)
    assert generate(told, None, 1, {"pay": "null"}).num_rows == pytest.approx(size / 2, rel=0.02)
    assert 1 <= generate(told, None, 1, {"seen": "2005-05-05"}).num_rows < 10


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [("smoker", "true", True), ("smoker", "null", None), ("age", "34", 34), ("seen", "2020-01-05", date(2020, 1, 5))],
)
def test_conditions_are_read_in_the_columns_own_type(model, column: str, text: str, value: object) -> None:  # type: ignore[no-untyped-def]
    assert set(generate(model, 40, 2, {column: text})[column].to_pylist()) == {value}


def test_without_a_number_of_rows_the_share_of_the_table_is_drawn(model) -> None:  # type: ignore[no-untyped-def]
    assert generate(model, where={"sex": "M"}).num_rows == pytest.approx(COUNT / 3, rel=0.1)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"sez": "M"}, "Did you mean 'sex'"),
        ({"sex": "X"}, "not a value"),
        ({"age": "121"}, "not a value"),
        ({"age": "old"}, "not a value"),
        ({"sex": "null"}, "not a value"),
        ({"id": "7"}, "no column"),
    ],
)
def test_what_no_row_can_meet_is_refused(model, where: dict[str, str], message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ParameterError, match=message):
        generate(model, 5, where=where)


def test_conditions_are_parsed_and_what_is_none_is_refused() -> None:
    assert parse_condition("sex=F, zip=02138") == {"sex": "F", "zip": "02138"}
    with pytest.raises(ParameterError, match="cannot be read"):
        parse_condition("sex")


def test_identifiers_are_numbered_on_from_batch_to_batch(model, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(generating, "CHUNK", 30)
    made = pa.Table.from_batches(list(generate_batches(model, 70)))
    assert made["id"].to_pylist() == [f"synthetic-id-{i:02d}" for i in range(1, 71)]


def test_a_condition_that_hardly_a_record_meets_is_drawn_given_it(model, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    asked: list[int] = []
    drawing = generating.draw_records
    monkeypatch.setattr(generating, "draw_records", lambda e, d, n, s: (asked.append(n), drawing(e, d, n, s))[1])
    nobody = {"sex": "F", "age": "0", "seen": "2020-01-31", "smoker": "true"}
    made = generate(model, 1000, where=nobody)
    assert made.num_rows == 1000
    assert set(made["age"].to_pylist()) == {0}
    assert sum(asked) <= generating.TRIES * generating.MOST_TRIED


def test_drawing_under_a_condition_looks_at_a_bounded_number_of_records(model, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    asked: list[int] = []
    drawing = generating.draw_records
    monkeypatch.setattr(generating, "draw_records", lambda e, d, n, s: (asked.append(n), drawing(e, d, n, s))[1])
    for seed in range(6):
        for where in ({"age": "34"}, {"seen": "2020-01-05"}, {"age": "100"}):
            asked.clear()
            assert generate(model, 40, seed, where).num_rows == 40
            assert sum(asked) <= generating.TRIES * generating.MOST_TRIED


def test_what_the_condition_says_of_other_columns_is_kept_when_it_is_drawn_given_it(model) -> None:  # type: ignore[no-untyped-def]
    d = model.description
    sex, smoker = d.domain.names.index("sex"), d.domain.names.index("smoker")
    man = int(d.collapsed.maps[sex][1])
    codes = generating.draw_given_columns(d.estimates, d.collapsed.domain, {sex: np.full(4000, man)}, 3, 4000, False)
    known = codes[smoker][codes[smoker] < 2]
    assert (known == 1).mean() > 0.9


@pytest.mark.parametrize("text", ["sex=F\nx", "sex=F\rsmoker=true", "sex=" + "F" * 200_000])
def test_a_condition_that_is_no_line_of_text_is_refused_as_one_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ParameterError, match="cannot be read"):
        parse_condition(text)


@pytest.mark.parametrize("where", [{"sex": "\ud800"}, {"seen": "\ud800"}, {"\ud800": "F"}, {"age": "9" * 5000}])
def test_texts_that_cannot_be_written_are_refused_in_a_message_that_can_be(model, where: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ParameterError) as refused:
        generate(model, 3, 1, where)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_a_value_between_two_steps_is_not_one_of_the_column() -> None:
    fees = Bins("fee", ColumnType.DECIMAL, Fraction(1, 2), Fraction(1, 100), (0, 51), False)
    assert [fees.holds(value) for value in (0.5, 0.77, 1.0, 1.01, 0.49, 0.775, math.nan, math.inf)] == [
        True, True, True, False, False, False, False, False,
    ]  # fmt: skip
    weeks = Bins("week", ColumnType.DATE, Fraction(3), Fraction(7), (0, 2), False)
    assert [day for day in range(1, 15) if weeks.holds(date(1970, 1, day))] == [4, 11]
    hours = Bins("hour", ColumnType.DATETIME, Fraction(-3600), Fraction(3600), (0, 3), False)
    assert hours.holds(datetime(1969, 12, 31, 23))
    assert hours.holds(datetime(1970, 1, 1, 1))
    assert not hours.holds(datetime(1970, 1, 1, 0, 30))
    assert not hours.holds(datetime(1970, 1, 1, 0, 0, 0, 5))
