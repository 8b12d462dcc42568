"""Questions in SQL beside their peers: plain DuckDB with the same bounding, SmartNoise SQL, OpenDP's Polars API.

One table of 1,000,000 rows of 100,000 users over 100 known keys; COUNT and SUM by key at epsilon 1, at most 5 groups a
user and 2 rows in each. Then the fixed cost of small questions, growth with rows, a million groups, and accuracy.
Peers are installed into `.venvs` on the first run and left out with a message where that fails. Figures are CPU
seconds (wall seconds in brackets), the best of several runs.

    python bench/query.py [--full] [--no-peers]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from fractions import Fraction
from itertools import count
from pathlib import Path

import duckdb
import numpy as np

from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema
from deniable.policy.unit import PrivacyUnit
from deniable.query.compile import compile_query
from deniable.query.execute import execute

ROOT = Path(__file__).resolve().parent.parent
KEYS = tuple(f"k{i:02d}" for i in range(100))
SQL = "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY k"
Seconds = tuple[float, float]
FAILED: list[str] = []

OPENDP = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import polars as pl
import opendp.prelude as dp
dp.enable_features("contrib")
folder, task = sys.argv[1], sys.argv[2]
keys = pl.LazyFrame({"k": [f"k{i:02d}" for i in range(100)]})
loss = dict(privacy_loss=dp.loss_of(epsilon=1.0), split_evenly_over=1)

def grouped(data):
    unit = dp.unit_of(contributions=1, identifier=pl.col("user"))
    margins = [dp.polars.Margin(by=["k"], max_length=1_000_000, max_groups=100)]
    query = dp.Context.compositor(data=data, privacy_unit=unit, margins=margins, **loss).query()
    # keep="sample" fails in 0.16 (two fields of one name), so the first groups are kept.
    query = query.truncate_per_group(2, by=["k"]).truncate_num_groups(5, by=["k"], keep="first").group_by("k")
    total = pl.col("v").fill_null(0).dp.sum((0, 100)).alias("s")
    return query.agg(dp.len(signed=True).alias("n"), total).with_keys(keys)

def median(data):
    margins = [dp.polars.Margin(by=[], max_length=1_000_000)]
    context = dp.Context.compositor(data=data, privacy_unit=dp.unit_of(contributions=1), margins=margins, **loss)
    return context.query().select(pl.col("v").fill_null(0).dp.median(list(range(1001))))

data = pl.scan_parquet(f"{folder}/{'t' if task != 'median' else 'small'}.parquet")
out = []
for _ in range(int(sys.argv[3])):
    wall, cpu = time.perf_counter(), time.process_time()
    rows = (median if task == "median" else grouped)(data).release().collect()
    out.append({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "rows": rows.to_dicts()})
if task == "table":
    out.append([row["scale"] for row in grouped(data).summarize().to_dicts()])
print(json.dumps(out))
"""

SMARTNOISE = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import pandas as pd
import snsql
table = pd.read_csv(sys.argv[1] + "/t.csv")
value = {"type": "int", "lower": 0, "upper": 100}
columns = {"user": {"type": "int", "private_id": True}, "k": {"type": "string"}, "v": value}
# One bound on rows: 5 groups of 2 rows are 10. Epsilon is meant for each column there, so that two of them get a half.
options = {"row_privacy": False, "max_ids": 10, "sample_max_ids": True, "censor_dims": False, "clamp_counts": False}
meta = {"": {"s": {"t": options | {"rows": len(table)} | columns}}}
out = []
for _ in range(2):
    reader = snsql.from_df(table, privacy=snsql.Privacy(epsilon=0.5, delta=1e-6), metadata=meta)
    wall, cpu = time.perf_counter(), time.process_time()
    rows = reader.execute("SELECT k, COUNT(*) AS n, SUM(v) AS s FROM s.t GROUP BY k")
    took = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    listed = [{"k": row[0], "n": float(row[1]), "s": float(row[2])} for row in rows[1:]]
    out.append(took | {"rows": listed})
print(json.dumps(out))
"""


def best(work: Callable[[], object], times: int = 5) -> Seconds:
    """CPU and wall seconds of the fastest of several runs."""
    taken = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        taken.append((time.process_time() - cpu, time.perf_counter() - wall))
    return min(taken)


def shown(seconds: Seconds) -> str:
    """CPU (wall) seconds."""
    return f"{seconds[0]:.3f} ({seconds[1]:.3f})"


def bar(name: str, value: float, limit: float, at_least: bool = False) -> None:
    """Hold one figure to its bar, and remember a miss."""
    met = value >= limit if at_least else value <= limit
    print(
        f"    {name}: {value:.3g}, bar {'at least' if at_least else 'at most'} {limit:g}: {'met' if met else 'MISSED'}"
    )
    if not met:
        FAILED.append(name)


def environment(name: str, packages: list[str], module: str) -> Path | None:
    """The interpreter of a peer's own environment, made when it is missing; None when it cannot be had."""
    python = ROOT / ".venvs" / name / "bin" / "python"
    test = [str(python), "-c", f"import {module}"]
    if python.exists() and subprocess.run(test, capture_output=True, check=False).returncode == 0:
        return python
    venv.create(python.parent.parent, with_pip=True)
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], capture_output=True, check=False)
    if done.returncode:
        print(f"{name} could not be installed: its comparison is left out.")
        return None
    return python


def peer(python: Path, program: str, *arguments: str) -> list[dict[str, object]]:
    """What a peer's program printed."""
    command = [str(python), "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    answered: list[dict[str, object]] = json.loads(done.stdout.strip().splitlines()[-1])
    return answered


def schema(unit: PrivacyUnit, name: str = "t", highest: int = 100) -> TableSchema:
    """The policy's view of the table."""
    value = Column("v", ColumnType.INTEGER, bounds=Bounds(0, highest))
    return TableSchema(name, "", (Column("user", ColumnType.INTEGER), Column("k", categories=KEYS), value), unit)


def generated(rows: int) -> str:
    """Rows from a hash, so that every run and every peer sees the same ones."""
    return (
        f'SELECT (hash(range) % 100000)::BIGINT AS "user", '
        "'k' || lpad((hash(range + 1000000000) % 100)::VARCHAR, 2, '0') AS k, "
        f"(hash(range + 2000000000) % 101)::BIGINT AS v FROM range({rows})"
    )


def handwritten(table: str) -> tuple[str, ...]:
    """The best exact statements with the same bounding that we know: on the text of the key, and on its number."""
    clean = f'SELECT "user" AS u, k, greatest(0, least(100, v)) AS v FROM {table} WHERE "user" IS NOT NULL'
    listed = ", ".join(f"'{key}'" for key in KEYS)
    coded = (
        f'SELECT "user" AS u, id AS k, greatest(0, least(100, v)) AS v FROM {table} '
        f"JOIN (SELECT unnest([{listed}]) AS word, unnest(range(100)) AS id) ON k = word"
    )
    return tuple(
        "SELECT k, sum(least(n, 2)), sum(CASE WHEN n > 2 THEN s * 2 // n ELSE s END) FROM ("
        "SELECT u, k, count(*) AS n, sum(v) AS s FROM (SELECT *, dense_rank() OVER (PARTITION BY u "
        f"ORDER BY hash(42, k, u), k) AS g FROM ({source})) WHERE g <= 5 GROUP BY u, k) GROUP BY k"
        for source in (clean, coded)
    )


def table_question(engine: DuckDBEngine, plain: duckdb.DuckDBPyConnection, folder: Path) -> Seconds:
    """The question of the title beside hand-written SQL."""
    plan = compile_query(SQL, (schema(PrivacyUnit("user", 5, 2)),), PureDP(1))
    file = f"'{folder}/t.parquet'"
    # In turns, so that a busy machine slows both: the fastest of each counts.
    ours = theirs = (float("inf"), 0.0)
    for _ in range(5):
        ours = min(ours, best(lambda: execute(plan, engine), 2))
        for sql in handwritten(file):
            theirs = min(theirs, best(lambda sql=sql: plain.sql(sql).fetchall(), 1))  # type: ignore[misc]
    floor = best(lambda: plain.sql(f"SELECT k, count(*), sum(v) FROM {file} GROUP BY k").fetchall())
    print(f"1,000,000 rows, COUNT and SUM by 100 keys: ours {shown(ours)}, hand-written {shown(theirs)}, "
          f"unbounded {shown(floor)}")  # fmt: skip
    bar("times hand-written SQL (CPU)", ours[0] / theirs[0], 1.3)
    return ours


def memory(folder: Path) -> None:
    """The peak of a process that asks the question once."""
    # VmHWM and not ru_maxrss: the latter begins with the peak of the parent that started the process.
    program = (
        "import sys, pathlib, re; sys.path.insert(0, sys.argv[2]); import query\n"
        "with query.DuckDBEngine() as engine:\n"
        "    table = query.schema(query.PrivacyUnit('user', 5, 2))\n"
        "    engine.attach('t', sys.argv[1] + '/t.parquet', table)\n"
        "    query.execute(query.compile_query(query.SQL, (table,), query.PureDP(1)), engine)\n"
        "print(pathlib.Path('/proc/self/status').read_text())"
    )
    command = [sys.executable, "-c", program, str(folder), str(Path(__file__).parent)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"VmHWM:\s+(\d+)", told)
    assert found is not None
    bar("peak memory of the process, MB", int(found[1]) / 1024, 600)


def small_questions(engine: DuckDBEngine, plain: duckdb.DuckDBPyConnection) -> None:
    """The fixed cost: a table of ten rows, and compiling alone, each time with a budget never seen before."""
    rows = plain.sql(generated(10)).to_arrow_table()
    table = schema(PrivacyUnit("user", 5, 2), "tiny")
    engine.attach("tiny", rows, table)
    sql, fresh = SQL.replace("FROM t", "FROM tiny"), count(1)

    def pure() -> PureDP:
        return PureDP(1 + Fraction(next(fresh), 10_000))

    def approximate() -> ApproxDP:
        return ApproxDP(1 + Fraction(next(fresh), 10_000), Fraction(1, 10**6))

    for name, budget in (("epsilon", pure), ("epsilon and delta", approximate)):
        whole = best(lambda budget=budget: execute(compile_query(sql, (table,), budget()), engine), 20)  # type: ignore[misc]
        compiling = best(lambda budget=budget: compile_query(sql, (table,), budget()), 20)  # type: ignore[misc]
        print(f"Ten rows, budget of {name}: question {shown(whole)}, compile alone {shown(compiling)}")
        bar(f"fixed cost of a question with {name}, CPU ms", whole[0] * 1000, 50)
        bar(f"compile with {name}, CPU ms", compiling[0] * 1000, 10)


def by_row(plain: duckdb.DuckDBPyConnection, folder: Path, rows: int) -> Seconds:
    """Unit = row: nothing is bounded, so the question should cost what the plain one costs."""
    file, table = folder / f"r{rows}.parquet", schema(PrivacyUnit())
    plain.execute(f"COPY ({generated(rows)}) TO '{file}'")
    plan = compile_query(SQL, (table,), PureDP(1))
    ours = theirs = (float("inf"), 0.0)
    with DuckDBEngine() as engine:
        engine.attach("t", file, table)
        for _ in range(4):
            ours = min(ours, best(lambda: execute(plan, engine), 2))
            theirs = min(
                theirs, best(lambda: plain.sql(f"SELECT k, count(*), sum(v) FROM '{file}' GROUP BY k").fetchall(), 2)
            )
    print(f"{rows:,} rows, unit = row: ours {shown(ours)}, plain query {shown(theirs)}, x{ours[0] / theirs[0]:.2f}")
    if rows == 10_000_000:
        bar("times the plain query (CPU), 10 million rows", ours[0] / theirs[0], 1.5)
    file.unlink()
    return ours


def growth(plain: duckdb.DuckDBPyConnection, folder: Path, full: bool) -> None:
    """CPU seconds for each million rows, from one million up; what is fixed is paid once."""
    sizes = (1_000_000, 10_000_000, 100_000_000) if full else (1_000_000, 10_000_000)
    each = {rows: by_row(plain, folder, rows)[0] / rows for rows in sizes}
    bar("CPU for a row at the largest size beside the smallest", each[sizes[-1]] / each[sizes[0]], 1.3)


def many_groups(engine: DuckDBEngine, plain: duckdb.DuckDBPyConnection) -> None:
    """A million cells with noise: the mechanisms alone, and a whole question over a public table of keys."""
    zeros = np.zeros(1_000_000, dtype=np.int64)
    for mechanism in (LaplaceMechanism(10), GaussianMechanism(100)):
        taken = best(lambda mechanism=mechanism: mechanism.release(zeros), 3)  # type: ignore[misc]
        print(f"1,000,000 cells, {type(mechanism).__name__}: {shown(taken)}")
        bar("noise on 1,000,000 groups, CPU s", taken[0], 2)
    keys = plain.sql("SELECT range AS id FROM range(1000000)").to_arrow_table()
    facts = plain.sql("SELECT (hash(range) % 1000000)::BIGINT AS id FROM range(1000000)").to_arrow_table()
    listed = TableSchema("keys", "", (Column("id", ColumnType.INTEGER),), public=True)
    private = TableSchema("facts", "", (Column("id", ColumnType.INTEGER),), PrivacyUnit())
    engine.attach("keys", keys, listed)
    engine.attach("facts", facts, private)
    sql = "SELECT keys.id, COUNT(*) AS n FROM facts JOIN keys ON facts.id = keys.id GROUP BY keys.id"
    plan = compile_query(sql, (listed, private), PureDP(1))
    print(
        f"    the whole question over a public table of 1,000,000 keys: {shown(best(lambda: execute(plan, engine), 3))}"
    )


def errors(rows: list[dict[str, float]], truth: dict[str, tuple[int, int]]) -> tuple[float, float]:
    """Mean absolute error of COUNT and SUM against the exact unbounded answer, noise and bounding together."""
    found = {str(row["k"]): row for row in rows}
    return (
        float(np.mean([abs(found[k]["n"] - n) for k, (n, _) in truth.items()])),
        float(np.mean([abs(found[k]["s"] - s) for k, (_, s) in truth.items()])),
    )


def accuracy(
    engine: DuckDBEngine, truth: dict[str, tuple[int, int]], groups: int = 5, rows: int = 2
) -> tuple[float, float]:
    """Our errors under these contribution bounds, the mean of several answers."""
    plan = compile_query(SQL, (schema(PrivacyUnit("user", groups, rows)),), PureDP(1))
    runs = [errors(execute(plan, engine).to_pylist(), truth) for _ in range(3)]
    return float(np.mean([n for n, _ in runs])), float(np.mean([s for _, s in runs]))


def compare(name: str, answered: list[dict[str, object]], ours: Seconds, limit: float, mine: tuple[float, float],
            truth: dict[str, tuple[int, int]]) -> None:  # fmt: skip
    """One peer's speed and accuracy beside ours."""
    runs = [run for run in answered if isinstance(run, dict)]
    theirs = min((float(run["cpu"]), float(run["wall"])) for run in runs)  # type: ignore[arg-type]
    error = [errors(run["rows"], truth) for run in runs]  # type: ignore[arg-type]
    counts, sums = np.mean([n for n, _ in error]), np.mean([s for _, s in error])
    print(f"{name}: {shown(theirs)}; mean absolute error of COUNT {counts:,.0f} (ours {mine[0]:,.0f}), "
          f"of SUM {sums:,.0f} (ours {mine[1]:,.0f})")  # fmt: skip
    bar(f"CPU of {name} over ours", theirs[0] / ours[0], limit, at_least=True)
    bar(f"our error of COUNT over that of {name}", mine[0] / counts, 1.05)
    bar(f"our error of SUM over that of {name}", mine[1] / sums, 1.05)


def quantiles(engine: DuckDBEngine, plain: duckdb.DuckDBPyConnection, folder: Path, opendp: Path | None) -> None:
    """The median of 500 skewed values at epsilon 1, unit = row: mean error in rank over many answers."""
    value = "least(1000, floor(exp(hash(range) % 690 / 100.0)))::BIGINT"
    sql = f"SELECT 0 AS \"user\", 'k00' AS k, {value} AS v FROM range(500)"
    plain.execute(f"COPY ({sql}) TO '{folder}/small.parquet'")
    values = np.sort(plain.sql(f"SELECT v FROM '{folder}/small.parquet'").fetchnumpy()["v"])
    table = schema(PrivacyUnit(), "small", 1000)
    engine.attach("small", folder / "small.parquet", table)
    plan = compile_query("SELECT MEDIAN(v) AS v FROM small", (table,), PureDP(1))

    def rank_error(answer: float) -> float:
        below, above = np.searchsorted(values, answer, "left"), values.size - np.searchsorted(values, answer, "right")
        return float(max(below - values.size / 2, above - values.size / 2, 0))

    runs = 100
    ours = float(np.mean([rank_error(execute(plan, engine).to_pylist()[0]["v"]) for _ in range(runs)]))
    print(f"MEDIAN of 500 rows: mean rank error ours {ours:.2f}")
    if opendp is not None:
        answered = peer(opendp, OPENDP, str(folder), "median", "20")
        theirs = float(np.mean([rank_error(run["rows"][0]["v"]) for run in answered]))  # type: ignore[index]
        print(f"    OpenDP {theirs:.2f}")
        bar("our rank error of MEDIAN over OpenDP's", ours / theirs, 1.0)


def main() -> int:
    """Run everything in a folder that is removed afterwards; the exit code says whether a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="grow to 100 million rows")
    parser.add_argument("--no-peers", action="store_true", help="leave out SmartNoise SQL and OpenDP")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, DuckDBEngine() as engine, duckdb.connect() as plain:
        folder = Path(name)
        plain.execute("SET enable_progress_bar = false")
        plain.execute(f"COPY ({generated(1_000_000)}) TO '{folder}/t.parquet'")
        plain.execute(f"COPY ({generated(1_000_000)}) TO '{folder}/t.csv'")
        truth = {
            k: (n, s)
            for k, n, s in plain.sql(f"SELECT k, count(*), sum(v) FROM '{folder}/t.parquet' GROUP BY k").fetchall()
        }
        engine.attach("t", folder / "t.parquet", schema(PrivacyUnit("user", 5, 2)))
        ours = table_question(engine, plain, folder)
        memory(folder)
        small_questions(engine, plain)
        growth(plain, folder, chosen.full)
        many_groups(engine, plain)
        opendp = None if chosen.no_peers else environment("opendp-polars", ["opendp[polars]"], "opendp, polars")
        quantiles(engine, plain, folder, opendp)
        mine = accuracy(engine, truth)
        if not chosen.no_peers and (python := environment("smartnoise-sql", ["smartnoise-sql"], "snsql")):
            # It bounds a user by rows in all (10), not by groups: so here 10 groups of 2 rows, with more noise.
            ten = accuracy(engine, truth, 10, 2)
            compare("SmartNoise SQL", peer(python, SMARTNOISE, str(folder)), ours, 3, ten, truth)
        if opendp is not None:
            compare("OpenDP Polars", peer(opendp, OPENDP, str(folder), "table", "2"), ours, 8, mine, truth)
    print(f"{len(FAILED)} bars missed" + (": " + "; ".join(FAILED) if FAILED else ""))
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
