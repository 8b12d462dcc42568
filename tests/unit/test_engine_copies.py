"""Small files are held in memory: what is read is what the file holds now, and large ones stay where they are."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from deniable.engines.base import Listed
from deniable.engines.duckdb import DuckDBEngine, csv, scan
from deniable.errors import DataError, DeniableError, ParameterError
from deniable.policy.schema import Column, ColumnType, TableSchema

ROWS = pa.table({"id": [1, 2, 3], "zip": ["02138", "2139", None], "size": [1.5, None, 2.0]})
ALL, COUNT = "SELECT * FROM t", "SELECT count(*) AS n FROM t"


def written(path: Path, rows: pa.Table = ROWS) -> Path:
    pq.write_table(rows, path) if path.suffix == ".parquet" else pacsv.write_csv(rows, path)
    return path


def is_copied(engine: DuckDBEngine) -> bool:
    engine.run(COUNT)
    return "t" in (engine._copies or {})


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_copy_gives_the_rows_types_and_version_of_its_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = TableSchema("t", name, (Column("id", ColumnType.INTEGER), Column("zip", ColumnType.TEXT)))
    found = []
    for most in (scan.MOST_BYTES, 0):
        monkeypatch.setattr(scan, "MOST_BYTES", most)
        with DuckDBEngine() as engine:
            engine.attach("t", written(tmp_path / name), declared)
            assert is_copied(engine) is (most > 0)
            found.append((engine.run(ALL), engine.describe("t"), engine.data_version("t"), list(engine.stream("t"))))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_changed_file_is_read_anew_by_statements_and_streams(name: str, tmp_path: Path) -> None:
    with DuckDBEngine() as engine:
        engine.attach("t", written(tmp_path / name))
        assert engine.run(COUNT)["n"].to_pylist() == [3]
        before = engine.data_version("t")
        written(tmp_path / name, ROWS.slice(0, 2))
        assert engine.data_version("t") != before
        assert sum(batch.num_rows for batch in engine.stream("t")) == 2
        assert engine.run(COUNT)["n"].to_pylist() == [2]
        written(tmp_path / name, ROWS.slice(0, 1))
        assert engine.run(COUNT, one_row=True)["n"].to_pylist() == [1]


@pytest.mark.parametrize("numbers", [1, scan.MOST_ALTERED + 1])
def test_a_small_csv_file_is_read_once_when_it_is_attached(
    numbers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"zip": ["02138", None]} | {f"n{i}": [i, None] for i in range(numbers)})
    read, relation = [], csv.Layout.relation
    monkeypatch.setattr(csv.Layout, "relation", lambda self, extra="": read.append(extra) or relation(self, extra))
    with DuckDBEngine() as engine:
        engine.attach("t", written(tmp_path / "t.csv", rows))
        engine.attach("other", written(tmp_path / "other.csv"))
        assert engine.run(ALL) == rows
        assert engine._copies is not None
        assert not any("read_csv" in copy.relation for copy in engine._copies.values())
    assert len([extra for extra in read if "store_rejects" in extra]) == 2  # once a file
    assert not [extra for extra in read if extra == ", ignore_errors = true"]


def test_a_csv_file_that_changes_before_the_first_statement_is_read_anew(tmp_path: Path) -> None:
    with DuckDBEngine() as engine:
        engine.attach("t", written(tmp_path / "t.csv"))
        written(tmp_path / "t.csv", ROWS.slice(0, 2))
        assert engine.run("SELECT id FROM t ORDER BY id")["id"].to_pylist() == [1, 2]


def test_a_csv_file_of_many_columns_is_not_held_as_text(tmp_path: Path) -> None:
    wide = pa.table({f"c{i}": ["x", "y"] for i in range(scan.MOST_HELD + 1)})
    with DuckDBEngine() as engine:
        engine.attach("t", written(tmp_path / "t.csv", wide))
        assert engine._scans["t"].held is None
        assert engine.run(ALL) == wide


def test_who_is_left_out_stays_left_out_when_the_file_changes(tmp_path: Path) -> None:
    with DuckDBEngine() as engine:
        engine.attach("t", written(tmp_path / "t.parquet"))
        engine.restrict("t", Listed("id", ("2",), keep=False))
        assert engine.run("SELECT id FROM t ORDER BY id")["id"].to_pylist() == [1, 3]
        written(tmp_path / "t.parquet", pa.concat_tables([ROWS, ROWS.slice(1, 2)]))
        assert engine.run("SELECT id FROM t ORDER BY id")["id"].to_pylist() == [1, 3, 3]


def test_a_file_that_is_gone_is_missed_although_it_had_been_copied(tmp_path: Path) -> None:
    with DuckDBEngine() as engine:
        engine.attach("t", written(tmp_path / "t.parquet"))
        assert is_copied(engine)
        (tmp_path / "t.parquet").unlink()
        with pytest.raises(DataError):
            engine.data_version("t")
        with pytest.raises(DeniableError):
            engine.run(COUNT)


def test_what_is_large_in_bytes_values_or_text_is_read_where_it_is(tmp_path: Path) -> None:
    many = pa.table({"a": pa.nulls(scan.MOST_CELLS // 2 + 1, pa.int64()), "b": [0] * (scan.MOST_CELLS // 2 + 1)})
    long = pa.table({"a": ["x" * 1000] * (scan.MOST_TEXT // 1000 + 1)})
    for rows in (many, long):
        path = written(tmp_path / "t.parquet", rows)
        assert path.stat().st_size <= scan.MOST_BYTES, "the file itself is small"
        with DuckDBEngine() as engine:
            engine.attach("t", path)
            assert not is_copied(engine)
            assert engine.count("t") == rows.num_rows
    (tmp_path / "t.csv").write_text("a\n" + "1\n" * (scan.MOST_BYTES // 2))
    with DuckDBEngine() as engine:
        engine.attach("t", tmp_path / "t.csv")
        assert not is_copied(engine)


def test_a_compressed_text_that_unpacks_to_much_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a\n" + (b"x" * 1000 + b"\n") * (scan.MOST_TEXT // 1000 + 1)))
    with DuckDBEngine() as engine:
        engine.attach("t", tmp_path / "t.csv.gz")
        assert not is_copied(engine)


def test_a_copy_cannot_be_reached_under_a_name_of_a_source(tmp_path: Path) -> None:
    with DuckDBEngine() as engine, pytest.raises(ParameterError):
        engine.attach("copy of t", written(tmp_path / "t.parquet"))
