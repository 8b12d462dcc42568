"""Released rows hold the values of their source, or are refused before anything is written or charged."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable import Curator
from deniable.curator.anonymize.request import Asked, Order
from deniable.curator.anonymize.run import anonymize
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import DataError
from deniable.policy.document import parse

POLICY = """
version: 1
dataset: t
tables:
  t:
    source: %s
    unit: row
    columns:
      x: {role: %s, type: %s}
      s: {role: sensitive, type: text}
"""
LONG = 2**60 + 9
WHOLE = pa.array([LONG] * 6)
TEXTS = pa.array([str(LONG)] * 6)
FINE = pa.array(["1152921504.606846985"] * 6)
WIDE = pa.array([Decimal("9" * 70)] * 6, pa.decimal256(76, 0))
WRITERS = {"csv": csv.write_csv, "parquet": pq.write_table, "arrow": feather.write_feather}


def write(folder: Path, ending: str, values: pa.Array) -> Path:
    path = folder / f"t.{ending}"
    WRITERS[ending](pa.table({"x": values, "s": ["a", "b"] * 3}), str(path))
    return path


def refuse_both(folder: Path, source: Path, kind: str, match: str) -> None:
    """Both kinds of releases of rows are refused, and nothing is written or charged."""
    for role in ("quasi-identifier", "insensitive"):
        with Curator(parse(POLICY % (source.name, role, kind), folder=folder)) as curator:
            with pytest.raises(DataError, match=match) as refused:
                curator.mask("t") if role == "insensitive" else curator.anonymize("t", folder / "out.csv", k=3)
            assert not list(curator.ledger.entries())
        assert "'x'" in str(refused.value)
        assert not (folder / "out.csv").exists()


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize("values", [WHOLE, TEXTS, FINE], ids=["whole", "texts", "fine"])
def test_numbers_that_a_double_rounds_are_refused(tmp_path: Path, ending: str, values: pa.Array) -> None:
    refuse_both(tmp_path, write(tmp_path, ending, values), "decimal", "rounded")


@pytest.mark.parametrize("kind", ["decimal", "integer", "text"])
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_decimals_of_more_digits_than_the_engine_reads_are_refused(tmp_path: Path, ending: str, kind: str) -> None:
    match = "rounded.*Parquet as a decimal" if ending == "parquet" else "more than 38 digits"
    source = write(tmp_path, ending, WIDE)
    with pytest.raises(DataError, match=match):
        anonymize(Order(source, tmp_path / "out.csv", quasi_identifiers=("x",), asked=Asked(k=3)))
    with (
        Curator(parse(POLICY % (source.name, "quasi-identifier", kind), folder=tmp_path)) as curator,
        pytest.raises(DataError),
    ):
        curator.anonymize("t", tmp_path / "out.csv", k=3)
    assert not (tmp_path / "out.csv").exists()


def test_without_a_policy_such_numbers_are_refused_where_they_leave(tmp_path: Path) -> None:
    source = write(tmp_path, "csv", pa.array(["0.12345678901234567891"] * 6))
    with pytest.raises(DataError, match="rounded"):
        anonymize(Order(source, tmp_path / "out.csv", quasi_identifiers=("x",), asked=Asked(k=3)))
    anonymize(Order(source, tmp_path / "out.csv", quasi_identifiers=("s",), asked=Asked(k=3)))


@pytest.mark.parametrize(
    ("kind", "values", "left"),
    [
        ("integer", WHOLE, LONG),
        ("text", TEXTS, str(LONG)),
        ("decimal", pa.array([Decimal("1152921504.606846985")] * 6), Decimal("1152921504.606846985")),
        ("decimal", pa.array(["0.30000000000000004"] * 6), 0.1 + 0.2),
        ("decimal", pa.array(["00012.50"] * 6), 12.5),
        ("decimal", pa.array([" -1e5 "] * 6), -1e5),
        ("decimal", pa.array(["inf", "-inf", "nan", "", "0.000", "0e7"]), None),
    ],
)
def test_numbers_that_reading_keeps_leave_as_they_are(tmp_path: Path, kind: str, values: pa.Array, left: Any) -> None:
    source = write(tmp_path, "parquet", values)
    with Curator(parse(POLICY % (source.name, "insensitive", kind), folder=tmp_path)) as curator:
        rows = curator.mask("t").rows
        assert left is None or rows["x"].to_pylist() == [left] * 6


NUMBERS = st.from_regex(r"\A-?[0-9]{0,3}[1-9][0-9]{0,19}(\.[0-9]{0,19})?([eE][-+]?[0-9]{1,3})?\Z")


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS | st.floats(allow_nan=False, allow_infinity=False).map(repr), min_size=1, max_size=4))
def test_exactly_the_texts_of_other_numbers_are_refused(texts: list[str]) -> None:
    """What double precision is written as, is the number that was read, or the column is refused."""
    schema = parse(POLICY % ("t.parquet", "insensitive", "decimal")).table("t")
    rounded = any(Decimal(text) != Decimal(repr(float(text))) for text in texts)
    with DuckDBEngine() as engine:
        engine.attach("t", pa.table({"x": texts, "s": texts}), schema)
        try:
            engine.refuse_inexact("t", ["x"])
        except DataError:
            assert rounded
        else:
            assert not rounded


BEYOND = {
    "days": pa.array([3_000_000] * 6, pa.date32()),
    "early": pa.array([-800_000] * 6, pa.date32()),
    "microseconds": pa.array([2**62] * 6, pa.timestamp("us")),
    "zoned": pa.array([2**62] * 6, pa.timestamp("us", "UTC")),
    "infinite": pa.array([2**63 - 1] * 6, pa.timestamp("us")),
}


@pytest.mark.parametrize("name", BEYOND)
def test_dates_that_no_output_holds_are_refused(tmp_path: Path, name: str) -> None:
    source = write(tmp_path, "parquet", BEYOND[name])
    refuse_both(tmp_path, source, "date" if name in ("days", "early") else "datetime", "year 9999")
    with pytest.raises(DataError, match="year 9999"):
        anonymize(Order(source, tmp_path / "out.csv", quasi_identifiers=("x",), asked=Asked(k=3)))


def test_the_last_day_leaves(tmp_path: Path) -> None:
    source = write(tmp_path, "csv", pa.array(["0001-01-01", "9999-12-31"] * 3))
    anonymize(Order(source, tmp_path / "out.csv", quasi_identifiers=("x",), asked=Asked(k=3)))
    assert "9999-12-31" in (tmp_path / "out.csv").read_text()
