"""Which files a source means, how columns are named, and what frames and databases give."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

from deniable.engines import sources
from deniable.engines.base import normalize_names, spell_texts, tell_apart
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.sources import EXTRAS, Format, as_arrow, require_driver, resolve_source
from deniable.errors import DataError, MissingExtra
from deniable.policy.schema import Column, ColumnType, TableSchema, normalize_spelling


def test_a_relative_path_starts_at_the_root(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    assert resolve_source("a.csv", tmp_path).paths == (tmp_path / "a.csv",)


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.TSV", b"", Format.CSV),
        ("a.pq", b"", Format.PARQUET),
        ("a", b"PAR1", Format.PARQUET),
        ("a.bin", b"ARROW1\0\0", Format.ARROW),
        ("a.bin", b"\0" * 8 + b"DUCK", Format.DUCKDB),
    ],
)
def test_the_format_is_known_by_name_or_first_bytes(tmp_path: Path, name: str, content: bytes, format: Format) -> None:
    (tmp_path / name).write_bytes(content)
    assert resolve_source(name, tmp_path).format is format


@pytest.mark.parametrize("source", ["a.xyz", ".", "nowhere.csv", "*.parquet"])
def test_what_cannot_be_a_source_is_refused(tmp_path: Path, source: str) -> None:
    (tmp_path / "a.xyz").write_bytes(b"?")
    with pytest.raises(DataError):
        resolve_source(source, tmp_path)


def test_a_folder_of_several_formats_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    (tmp_path / "b.parquet").write_bytes(b"")
    with pytest.raises(DataError, match="formats csv, parquet"):
        resolve_source(tmp_path, tmp_path)
    assert resolve_source("*.csv", tmp_path).format is Format.CSV


@pytest.mark.parametrize("source", ["s3://bucket/a.parquet", "http://example.org/a.csv", "mysql:host/db"])
def test_a_remote_source_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(DataError, match="no network"):
        resolve_source(source, tmp_path)


def test_a_missing_driver_is_refused_with_the_name_of_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deniable.engines.sources.find_spec", lambda _name: None)
    for module, extra in EXTRAS.items():
        with pytest.raises(MissingExtra, match=rf"deniable\[{extra}\]"):
            require_driver(module)


def test_a_source_of_another_engine_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deniable.engines.sources.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match="postgres"):
        resolve_source("postgresql:dbname=town", tmp_path)
    with pytest.raises(MissingExtra, match="adbc"):
        resolve_source("trino+adbc://town#visits", tmp_path)


@given(st.lists(st.one_of(st.none(), st.text(max_size=4), st.sampled_from(["a", "A", "a_2", "ss", "ß"]))))
def test_names_are_always_there_different_and_stable(raw: list[str | None]) -> None:
    names = normalize_names(raw)
    assert len(names) == len(raw)
    assert all(names)
    assert len({name.casefold() for name in names}) == len(names)
    assert normalize_names(names) == names


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "town.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE visits AS SELECT 1 AS id, '02138' AS zip")
        connection.execute("CREATE VIEW outside AS SELECT * FROM read_text('/etc/passwd')")
    return path


def test_the_single_table_of_a_database_needs_no_name(database: Path, tmp_path: Path) -> None:
    with DuckDBEngine(root=tmp_path) as engine:
        for source in ("town.duckdb", "town.duckdb#visits", "duckdb:town.duckdb#visits"):
            engine.attach("visits", source)
            assert engine.run("SELECT * FROM visits").to_pylist() == [{"id": 1, "zip": "02138"}]


def test_a_table_that_is_not_in_the_database_is_refused(database: Path, tmp_path: Path) -> None:
    with DuckDBEngine(root=tmp_path) as engine:
        with pytest.raises(DataError, match="Did you mean 'visits'"):
            engine.attach("v", "town.duckdb#visit")
        with pytest.raises(DataError, match="the view of"):  # a view could read any file
            engine.attach("v", "town.duckdb#outside")


def test_a_database_of_several_tables_asks_which(database: Path, tmp_path: Path) -> None:
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE staff AS SELECT 1 AS id")
    with DuckDBEngine(root=tmp_path) as engine:
        with pytest.raises(DataError, match="'staff', 'visits'"):
            engine.attach("v", "town.duckdb")
        engine.attach("a", "town.duckdb#staff")
        engine.attach("b", "town.duckdb#visits")
        assert engine.run("SELECT count(*) AS n FROM a JOIN b USING (id)").to_pylist() == [{"n": 1}]


@pytest.mark.parametrize("name", ["broken.parquet", "broken.arrow", "broken.duckdb"])
def test_a_damaged_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"secret" * 1000)
    with DuckDBEngine(root=tmp_path) as engine, pytest.raises(DataError) as refusal:
        engine.attach("t", name)
    assert "secret" not in str(refusal.value)


def test_parquet_files_of_different_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "parts" / "1.parquet")
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "parts" / "2.parquet")
    with DuckDBEngine(root=tmp_path) as engine, pytest.raises(DataError, match=r"'2.parquet' .* column 'b'"):
        engine.attach("t", "parts")


def test_arrow_streams_and_double_names_are_read(tmp_path: Path) -> None:
    table = pa.table([[1, 2], ["x", "y"]], names=["a", "A"])
    with pa.OSFile(str(tmp_path / "t.arrows"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with DuckDBEngine(root=tmp_path) as engine:
        for source in ("t.arrows", "t.arrow"):
            engine.attach("t", source)
            assert engine.run("SELECT * FROM t").to_pylist() == [{"a": 1, "A_2": "x"}, {"a": 2, "A_2": "y"}]


def test_pandas_frames_may_have_odd_columns() -> None:
    frame = pd.DataFrame(np.array([[1, 2], [3, 4]]), columns=["x", "x"])
    assert as_arrow(frame).to_pydict() == {"x": [1, 3], "x_2": [2, 4]}
    assert as_arrow(pd.DataFrame({7: pd.Categorical(["a", None])})).to_pydict() == {"7": ["a", None]}
    assert as_arrow(pd.DataFrame({"f": [1.5, np.nan]})).to_pydict() == {"f": [1.5, None]}


def test_a_pandas_column_of_mixed_types_is_refused_without_its_values() -> None:
    with pytest.raises(DataError, match="column 'x' of the frame mixes types") as refusal:
        as_arrow(pd.DataFrame({"x": [1, "secret"]}))
    assert "secret" not in str(refusal.value)


def test_a_series_is_not_a_table() -> None:
    with pytest.raises(DataError, match="pandas Series is not a table"):
        as_arrow(pd.Series([1]))


def test_a_fingerprint_sees_every_byte_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "large"
    content = bytearray(sources.HASHED_BYTES * 11 + 5)
    path.write_bytes(content)
    before = sources.hash_file(path)
    assert sources.hash_file(path) == before
    for position in (0, sources.HASHED_BYTES, sources.HASHED_BYTES * 11 + 4):
        content[position] ^= 1
        path.write_bytes(content)
        assert sources.hash_file(path) != before
        content[position] ^= 1


def test_blocks_in_another_order_are_another_fingerprint(tmp_path: Path) -> None:
    one, two = b"a" * sources.HASHED_BYTES, b"b" * sources.HASHED_BYTES
    (tmp_path / "x").write_bytes(one + two)
    (tmp_path / "y").write_bytes(two + one)
    assert sources.hash_file(tmp_path / "x") != sources.hash_file(tmp_path / "y")


def test_texts_are_spelled_alike_by_arrow_by_the_engine_and_by_the_definition() -> None:
    dice, odd = random.Random(1), "aB9-~! \t\u00a0\u200b\uff21\u00e9e\u0301\u00df\u0130\ufb01\u1e9e\u0416"
    texts = [None, "", *("".join(dice.choices(odd, k=dice.randint(1, 5))) for _ in range(3_000))]
    expected = [None if text is None else normalize_spelling(text) for text in texts]
    assert spell_texts(pa.array(texts, pa.string())).to_pylist() == expected
    for few in (texts, [text for text in texts if text is None or (text.isalnum() and text.isascii())]):
        with DuckDBEngine() as engine:
            engine.attach("t", pa.table({"p": pa.array(few, pa.string())}))
            found = engine.run(f"SELECT {tell_apart(engine, 't', 'p')} AS p FROM t")["p"].to_pylist()
        assert found == [normalize_spelling(text) or None if text else None for text in few]


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_the_same_moments_in_every_unit_zone_and_file(tmp_path: Path, unit: str, zone: str | None) -> None:
    moments = [datetime(2024, 3, 31, 1, 30, tzinfo=UTC) + timedelta(minutes=20 * i) for i in range(9)]
    rows = pa.table({"seen": pa.array([*moments, None], pa.timestamp(unit, zone))})
    sources: list[Any] = [rows]
    for version in ("1.0", "2.4", "2.6"):
        sources.append(tmp_path / f"{version}.parquet")
        pq.write_table(rows, sources[-1], version=version)
    sources.append(tmp_path / "rows.arrow")
    feather.write_feather(rows, sources[-1])
    plain = [moment.replace(tzinfo=None) for moment in moments]
    expected = {
        ColumnType.DATETIME: plain,
        ColumnType.DATE: [moment.date() for moment in plain],
    }
    with DuckDBEngine() as engine:
        for source in sources:
            for kind, values in expected.items():
                engine.attach("t", source, TableSchema("t", "", (Column("seen", kind),)))
                word = "DATE" if kind is ColumnType.DATE else "TIMESTAMP"
                assert engine.run(f"SELECT CAST(seen AS {word}) AS s FROM t")["s"].to_pylist() == [*values, None]
            engine.attach("t", source)
            assert engine.describe("t")[0].type is ColumnType.DATETIME
            assert engine.run("SELECT CAST(max(seen) AS TIMESTAMP) AS s FROM t")["s"].to_pylist() == plain[-1:]
