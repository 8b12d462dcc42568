"""A sealed connection reaches the declared sources and nothing else, even through statements of our own making."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.duckdb.connection import Limits, open_sealed
from deniable.errors import DeniableError, InternalError, ParameterError

undeclared = pa.table({"x": [1]})  # a Python variable that DuckDB would find by itself, were it allowed to


@pytest.fixture
def engine(tmp_path: Path) -> DuckDBEngine:
    (tmp_path / "declared.csv").write_text("a,b\n1,2\n")
    (tmp_path / "secret.csv").write_text("a,b\n3,4\n")
    engine = DuckDBEngine(root=tmp_path)
    engine.attach("declared", "declared.csv")
    return engine


REACHING = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv('{folder}/secret.csv')",
    "SELECT * FROM '{folder}/secret.csv'",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_parquet('{folder}/secret.csv')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM query('COPY declared TO ''{folder}/out.csv''')",
    "SELECT * FROM read_csv('https://example.org/a.csv')",
    "SELECT * FROM undeclared",
    "SELECT getenv('HOME')",
    "COPY declared TO '{folder}/out.csv'",
    "COPY declared TO '{folder}/declared.csv'",
    "EXPORT DATABASE '{folder}/out'",
    "ATTACH '{folder}/other.duckdb'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA enable_profiling",
    "PRAGMA database_list",
    "SET enable_external_access = true",
    "SET threads = 1",
    "RESET lock_configuration",
    "CALL pragma_version()",
    "CREATE SECRET s (TYPE s3)",
]
HARMLESS = ("PRAGMA database_list", "CALL pragma_version()")  # these tell of DuckDB itself, and reach nothing


@pytest.mark.parametrize("sql", REACHING)
def test_no_statement_reaches_beyond_the_declared_sources(engine: DuckDBEngine, tmp_path: Path, sql: str) -> None:
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with engine, pytest.raises(InternalError):
        engine.run(sql.format(folder=tmp_path))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("sql", [sql for sql in REACHING if sql not in HARMLESS])
def test_the_seal_holds_without_the_check_of_statements(tmp_path: Path, sql: str) -> None:
    """The second wall: DuckDB itself refuses, whatever the statement is."""
    (tmp_path / "secret.csv").write_text("a,b\n3,4\n")
    (tmp_path / "spill").mkdir()
    with open_sealed(Limits(None, None, tmp_path), (), {}) as connection:
        connection.execute("CREATE TABLE declared AS SELECT 1 AS a")
        with pytest.raises(duckdb.Error):
            connection.execute(sql.format(folder=tmp_path)).fetchall()
    assert sorted(os.listdir(tmp_path)) == ["secret.csv", "spill"]


def test_the_declared_file_stays_readable_after_another_is_attached(engine: DuckDBEngine, tmp_path: Path) -> None:
    with engine:
        engine.attach("second", "secret.csv")
        assert engine.run("SELECT d.a + s.a AS n FROM declared d, second s").to_pylist() == [{"n": 4}]


def test_a_source_that_was_replaced_is_no_longer_within_reach(engine: DuckDBEngine, tmp_path: Path) -> None:
    with engine:
        engine.attach("declared", "secret.csv")
        with pytest.raises(InternalError):
            engine.run(f"SELECT * FROM read_csv('{tmp_path}/declared.csv')")


def test_the_declared_folder_opens_no_other_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.csv").write_text("a\n1\n")
    (tmp_path / "parts" / "notes.md").write_text("secret")
    with DuckDBEngine(root=tmp_path) as engine:
        engine.attach("t", "parts")
        with pytest.raises(InternalError):
            engine.run(f"SELECT * FROM read_text('{tmp_path}/parts/notes.md')")


def test_temporary_files_are_private_and_go_with_the_engine(tmp_path: Path) -> None:
    with DuckDBEngine(scratch=str(tmp_path), memory="60MB", threads=1) as engine:
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
        spilled = []
        for batch in engine.stream("SELECT hash(range) AS h, range AS r FROM range(6000000) ORDER BY h", 50_000):
            spilled.append(sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()))
            assert batch.num_rows <= 50_000
        assert max(spilled) > 1_000_000  # 96 MB were sorted within 60 MB: some of it went to the private folder
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_is_forgotten_removes_its_temporary_files(tmp_path: Path) -> None:
    engine = DuckDBEngine(scratch=str(tmp_path))
    del engine
    assert list(tmp_path.iterdir()) == []


def test_a_memory_limit_that_cannot_be_met_is_refused_without_ending_the_engine(tmp_path: Path) -> None:
    with DuckDBEngine(memory="30MB", threads=1) as engine:
        with pytest.raises(DeniableError, match="memory"):
            engine.run("SELECT list(range) AS l FROM range(30000000)")
        assert engine.run("SELECT 1 AS one").num_rows == 1


@pytest.mark.parametrize(("memory", "threads"), [("a lot", 1), ("1GB", 0), ("1GB", -1)])
def test_limits_that_make_no_sense_are_refused(memory: str, threads: int) -> None:
    with pytest.raises(ParameterError, match=r"memory is not an amount|threads is less than 1"):
        DuckDBEngine(memory=memory, threads=threads)


def test_the_time_zone_of_the_machine_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    with DuckDBEngine() as engine:
        assert engine.run("SELECT current_setting('TimeZone') AS zone").to_pylist() == [{"zone": "UTC"}]
        moment = "SELECT CAST(TIMESTAMPTZ '2020-01-01 00:00:00+00' AS VARCHAR) AS text"
        assert engine.run(moment).to_pylist() == [{"text": "2020-01-01 00:00:00+00"}]
