"""The embedded engine on public and on large tables: known counts, formats that agree, bounded memory.

An extract of a public table and generated ones are always there; real tables are read where they stand beside the
project.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from deniable import world
from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.schema import Column, TableSchema

EXTRACT = Path(__file__).parents[1] / "data" / "adult" / "adult.csv"
SHARED = Path(__file__).parents[2].parent / "shared" / "data"
CENSUS = SHARED / "census_kdd" / "census_income_kdd_1994_1995.parquet"
MILITARY = SHARED / "military" / "openintro_military.parquet"
FLIGHTS = SHARED / "flights" / "nycflights13_flights.parquet"
ADULT = SHARED / "adult" / "adult.csv"
PUBLISHED = {
    EXTRACT: (1_509, 9),
    CENSUS: (299_285, 43),
    MILITARY: (1_414_593, 7),
    FLIGHTS: (336_776, 19),
    ADULT: (30_162, 9),
}
PRESENT = [source for source in PUBLISHED if source.exists()]
"""The extract is always there, the others only beside the project."""
SEXES = {EXTRACT: {"Female": 480, "Male": 1_029}, ADULT: {"Female": 9_782, "Male": 20_380}}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DuckDBEngine]:
    with DuckDBEngine(root=tmp_path, threads=2, memory="512MB") as opened:
        yield opened


@pytest.mark.parametrize("source", PRESENT, ids=lambda source: f"{source.parts[-4]}-{source.stem}")
def test_rows_and_columns_are_as_published(engine: DuckDBEngine, source: Path) -> None:
    engine.attach("t", str(source))
    assert (engine.count("t"), len(engine.describe("t"))) == PUBLISHED[source]


@pytest.mark.parametrize("source", [s for s in PRESENT if s in SEXES], ids=lambda source: source.parts[-4])
def test_adult_is_read_with_its_semicolons(engine: DuckDBEngine, source: Path) -> None:
    engine.attach("adult", str(source))
    counts = engine.run("SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY sex").to_pylist()
    assert {row["sex"]: row["n"] for row in counts} == SEXES[source]


def make_soldiers(folder: Path) -> Path:
    """A table of 1.4 million rows, in row groups of odd sizes."""
    rng = np.random.default_rng(3)
    rows = 1_400_003
    words = np.array(["army", "navy", "air force", "marine corps"])[rng.integers(0, 4, rows)]
    table = pa.table({"rownames": np.arange(1, rows + 1), "branch": words, "rank": rng.integers(1, 10, rows)})
    pq.write_table(table, folder / "soldiers.parquet", row_group_size=99_991)
    return folder / "soldiers.parquet"


@pytest.mark.parametrize("source", ["generated", *(s for s in PRESENT if s == MILITARY)], ids=lambda s: Path(s).stem)
def test_a_million_rows_stream_completely_and_in_order(
    engine: DuckDBEngine, tmp_path: Path, source: str | Path
) -> None:
    path = make_soldiers(tmp_path) if source == "generated" else source
    engine.attach("military", str(path))
    streamed = [row for batch in engine.stream("military", 100_000) for row in batch.column(0).to_pylist()]
    assert streamed == pq.read_table(path, columns=["rownames"]).column(0).to_pylist()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("source", ["generated", *(s for s in PRESENT if s == FLIGHTS)], ids=lambda s: Path(s).stem)
def test_what_is_written_is_read_back_as_it_was(
    engine: DuckDBEngine, tmp_path: Path, source: str | Path, ending: str
) -> None:
    if source == "generated":
        pq.write_table(with_gaps(world.make("taxi", 20_000)["rides"]), tmp_path / "rides.parquet")
        source = tmp_path / "rides.parquet"
    engine.attach("t", str(source))
    path = tmp_path / f"written.{ending}"
    assert engine.write(engine.stream("t"), path) == pq.ParquetFile(source).metadata.num_rows
    columns = tuple(Column(field.name, field.type) for field in engine.describe("t"))
    engine.attach("back", path, TableSchema("t", "", columns))
    assert engine.run("SELECT * FROM back").equals(engine.run("SELECT * FROM t"))


def with_gaps(table: pa.Table) -> pa.Table:
    """A table in which every seventh cell of each column is missing, each column shifted by one row."""
    rows = np.arange(table.num_rows)
    return pa.table(
        {
            name: pc.if_else(pa.array((rows + place) % 7 == 0), None, table[name])
            for place, name in enumerate(table.column_names)
        }
    )


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
