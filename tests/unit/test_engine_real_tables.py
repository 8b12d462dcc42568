"""The embedded engine on real tables: known counts, formats that agree, bounded memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.schema import Column, TableSchema

CENSUS = "census_kdd/census_income_kdd_1994_1995.parquet"
MILITARY = "military/openintro_military.parquet"
FLIGHTS = "flights/nycflights13_flights.parquet"
ADULT = "adult/adult.csv"
ROWS = {CENSUS: (299_285, 43), MILITARY: (1_414_593, 7), FLIGHTS: (336_776, 19), ADULT: (30_162, 9)}


@pytest.fixture
def engine(shared_data: Path) -> Iterator[DuckDBEngine]:
    with DuckDBEngine(root=shared_data, threads=2, memory="512MB") as opened:
        yield opened


@pytest.mark.parametrize("source", ROWS)
def test_rows_and_columns_are_as_published(engine: DuckDBEngine, source: str) -> None:
    engine.attach("t", source)
    assert (engine.count("t"), len(engine.describe("t"))) == ROWS[source]


def test_adult_is_read_with_its_semicolons(engine: DuckDBEngine) -> None:
    engine.attach("adult", ADULT)
    counts = engine.run("SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY sex").to_pylist()
    assert counts == [{"sex": "Female", "n": 9782}, {"sex": "Male", "n": 20380}]


def test_a_million_rows_stream_completely_and_in_order(engine: DuckDBEngine, shared_data: Path) -> None:
    engine.attach("military", MILITARY)
    streamed = [row for batch in engine.stream("military", 100_000) for row in batch.column(0).to_pylist()]
    assert streamed == pq.read_table(shared_data / MILITARY, columns=["rownames"]).column(0).to_pylist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_flights_survive_being_written(engine: DuckDBEngine, tmp_path: Path, ending: str) -> None:
    engine.attach("flights", FLIGHTS)
    path = tmp_path / f"flights.{ending}"
    assert engine.write(engine.stream("flights"), path) == 336_776
    columns = tuple(Column(field.name, field.type) for field in engine.describe("flights"))
    engine.attach("back", path, TableSchema("flights", "", columns))
    assert engine.run("SELECT * FROM back").equals(engine.run("SELECT * FROM flights"))


def test_a_file_larger_than_the_memory_allowed_passes(tmp_path: Path) -> None:
    """A CSV file of 400 MB is attached, streamed and written by a process that may hold far less.

    The peak is read from VmHWM, since ru_maxrss begins with the peak of the parent that started the process.
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell the peak memory of a process")
    program = """
        import pathlib, re, sys
        from deniable.engines.duckdb import DuckDBEngine

        def peak():
            return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

        folder = pathlib.Path(sys.argv[1])
        with DuckDBEngine(memory="100MB", threads=2, root=folder) as engine:
            start = peak()
            engine.attach("large", "large.csv")
            rows = engine.write(engine.stream("large"), folder / "out.parquet")
            print(rows, peak() - start)
    """
    line = ",".join("0123456789abcdef" * 2 for _ in range(6)) + "\n"
    block = line * 10_000
    with (tmp_path / "large.csv").open("w") as file:
        file.write("a,b,c,d,e,f\n")
        for _ in range(200):
            file.write(block)
    size = (tmp_path / "large.csv").stat().st_size
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)], capture_output=True, text=True, check=True
    )
    rows, grown = map(int, ran.stdout.split())
    assert rows == 2_000_000
    assert size > 390_000_000
    assert grown * 1024 < 300_000_000
