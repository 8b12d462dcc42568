"""Scanning and copying through the engine, beside plain DuckDB and plain pyarrow in the same run, and its memory.

Prints ratios: 1.0 is the speed of the peer on the same file, which is the physical floor for reading and writing it.
Each figure is the best of several runs, CPU seconds beside wall seconds. The last line is the peak memory of a child
process that copies a file larger than its limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from deniable.engines.duckdb import DuckDBEngine

ROWS = int(os.environ.get("BENCH_ROWS", 2_000_000))
REPEATS = 3


def best(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of the fastest of several runs."""
    taken = []
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(taken)


def report(title: str, ours: tuple[float, float], peers: dict[str, tuple[float, float]]) -> None:
    """One line a comparison: our seconds, then the ratio to each peer."""
    line = f"{title:28} ours {ours[0]:6.2f} s wall {ours[1]:6.2f} s CPU"
    for name, (wall, cpu) in peers.items():
        line += f" | {name} {wall:.2f} s: x{ours[0] / wall:.2f} wall, x{ours[1] / cpu:.2f} CPU"
    print(line, flush=True)


def make(folder: Path) -> None:
    """The same rows as Parquet and as CSV: two numbers, two texts, a date."""
    sql = (
        f"SELECT range AS id, '0' || (hash(range) % 9999)::VARCHAR AS zip, hash(range + 1)::VARCHAR AS token, "
        "(hash(range + 2) % 100000) / 100 AS charge, DATE '2000-01-01' + (range % 9000)::INTEGER AS day "
        f"FROM range({ROWS})"
    )
    duckdb.execute(f"COPY ({sql}) TO '{folder}/t.parquet'")
    duckdb.execute(f"COPY ({sql}) TO '{folder}/t.csv'")


def drain(batches: object) -> None:
    """Read a stream to its end."""
    for _ in batches:  # type: ignore[attr-defined]
        pass


def arrow_copy(folder: Path) -> None:
    """Parquet to Parquet with pyarrow alone, batch by batch."""
    source = pq.ParquetFile(folder / "t.parquet")
    with pq.ParquetWriter(folder / "a.parquet", source.schema_arrow, compression="zstd") as writer:
        for batch in source.iter_batches(65_536):
            writer.write_batch(batch)


def plain_stream(source: str) -> None:
    """Read a file with DuckDB alone, as Arrow batches."""
    drain(duckdb.sql(f"SELECT * FROM {source}").to_arrow_reader(65_536))


def copies(engine: DuckDBEngine, folder: Path) -> None:
    """Scan, copy and fingerprint."""
    parquet, csv = f"'{folder}/t.parquet'", f"read_csv('{folder}/t.csv', all_varchar = true)"
    report(
        "stream Parquet",
        best(lambda: drain(engine.stream("t"))),
        {
            "duckdb": best(lambda: plain_stream(parquet)),
            "pyarrow": best(lambda: drain(pq.ParquetFile(folder / "t.parquet").iter_batches(65_536))),
        },
    )
    report(
        "copy Parquet to Parquet",
        best(lambda: engine.write(engine.stream("t"), folder / "o.parquet")),
        {
            "duckdb": best(
                lambda: duckdb.execute(f"COPY (FROM {parquet}) TO '{folder}/d.parquet' (COMPRESSION zstd)").fetchall()
            ),
            "pyarrow": best(lambda: arrow_copy(folder)),
        },
    )
    report(
        "stream CSV (attached)",
        best(lambda: drain(engine.stream("c"))),
        {
            "duckdb": best(lambda: plain_stream(csv)),
            "pyarrow": best(lambda: drain(pacsv.open_csv(folder / "t.csv"))),
        },
    )
    report(
        "attach CSV (checks all of it)",
        best(lambda: engine.attach("c", folder / "t.csv")),
        {
            "duckdb sniffing all": best(
                lambda: duckdb.sql(f"SELECT * FROM sniff_csv('{folder}/t.csv', sample_size = -1)").fetchall()
            )
        },
    )


def fingerprints(folder: Path) -> None:
    """The data version beside one reading of the file."""

    def version() -> None:
        with DuckDBEngine() as fresh:
            fresh.attach("t", folder / "t.parquet")
            fresh.data_version("t")

    report("data version (Parquet)", best(version), {"read": best(lambda: (folder / "t.parquet").read_bytes())})


def memory(folder: Path) -> None:
    """The peak of a process that copies five times the CSV file while DuckDB may hold 100 MB."""
    # VmHWM and not ru_maxrss: the latter begins with the peak of the parent that started the process.
    program = """
        import pathlib, re, sys
        from deniable.engines.duckdb import DuckDBEngine

        def peak():
            return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024

        folder = pathlib.Path(sys.argv[1])
        with DuckDBEngine(memory="100MB", threads=2, root=folder) as engine:
            before = peak()
            engine.attach("c", "parts")
            rows = engine.write(engine.stream("c"), folder / "m.parquet")
            print(rows, before, peak())
    """
    (folder / "parts").mkdir()
    for number in range(5):
        os.link(folder / "t.csv", folder / "parts" / f"{number}.csv")
    command = [sys.executable, "-c", textwrap.dedent(program), str(folder)]
    rows, before, peak = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    size = 5 * (folder / "t.csv").stat().st_size / 1e6
    print(
        f"memory: {rows:,.0f} rows, {size:.0f} MB of CSV copied with a limit of 100 MB; "
        f"the process grew from {before:.0f} to {peak:.0f} MB (x{(peak - before) / size:.2f} of the file)"
    )


def main() -> None:
    """Run all comparisons in a folder that is removed afterwards."""
    print(f"{ROWS:,} rows; duckdb {duckdb.__version__}, pyarrow {pa.__version__}")
    with tempfile.TemporaryDirectory() as name, DuckDBEngine() as engine:
        folder = Path(name)
        make(folder)
        engine.attach("t", folder / "t.parquet")
        engine.attach("c", folder / "t.csv")
        copies(engine, folder)
        fingerprints(folder)
        memory(folder)


if __name__ == "__main__":
    main()
