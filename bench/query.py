"""Questions in SQL beside their peers: plain DuckDB with the same bounding, SmartNoise SQL, OpenDP's Polars API.

First, questions of many aggregates beside the best published mechanisms. Then one table of 1,000,000 rows of 100,000
users over 100 known keys; COUNT and SUM by key at epsilon 1, at most 5 groups a user and 2 rows in each. Then the other
forms of bounding with as much noise (10 rows in all; everything, scaled to the norm), exact sums for each person, the
fixed cost of small questions, growth with rows, a million groups, and accuracy of counts, sums, quantiles. Peers are
installed into `.venvs` on the first run and left out with a message where that fails. Figures are CPU seconds (wall
seconds in brackets), the best of several runs.

    python bench/query.py [--full] [--no-peers] [--workloads]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from fractions import Fraction
from itertools import count
from pathlib import Path

import duckdb
import numpy as np
from _query_accuracy import OPENDP, SMARTNOISE, compare, environment, our_errors, peer
from _query_exact import exact_sums
from _query_hostile import hostile_questions
from _query_quantiles import many_medians, quantiles
from _query_tables import FAILED, IN_ALL, KEYS, SAMPLED, SCALED, SQL, Seconds, bar, best, generated, schema, shown
from _query_workloads import workloads

from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.schema import Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query.compile import compile_query
from deniable.query.execute import execute


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
    plan = compile_query(SQL, (schema(SAMPLED),), PureDP(1))
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


def other_forms(plain: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """The same noise with other forms of bounding: 10 rows in all, and everything scaled to the L1 norm of 10 rows."""
    file = f"'{folder}/t.parquet'"
    listed = ", ".join(f"'{key}'" for key in KEYS)
    rows = (
        f'SELECT "user" AS u, id AS k, greatest(0, least(100, v)) AS v FROM {file} '
        f"JOIN (SELECT unnest([{listed}]) AS word, unnest(range(100)) AS id) ON k = word"
    )
    kept = f"SELECT *, row_number() OVER (PARTITION BY u ORDER BY hash(42, k, v, u), k, v) AS r FROM ({rows})"
    norms = f"SELECT u, count(*) AS n, sum(v) AS s FROM ({rows}) GROUP BY u"
    forms = {
        "10 rows in all": (IN_ALL, f"SELECT k, count(*), sum(v) FROM ({kept}) WHERE r <= 10 GROUP BY k"),
        "scaled to the norm": (
            SCALED,
            "SELECT k, sum(CASE WHEN n <= 10 THEN 65536 ELSE 655360 // n END), sum(v * CASE WHEN s <= 1000 THEN 65536 "
            f"ELSE 65536000 // s END) FROM ({rows}) JOIN ({norms}) USING (u) GROUP BY k",
        ),
    }
    for name, (unit, sql) in forms.items():
        plan, ours, theirs = compile_query(SQL, (schema(unit),), PureDP(1)), (float("inf"), 0.0), (float("inf"), 0.0)
        with DuckDBEngine() as engine:
            engine.attach("t", folder / "t.parquet", schema(unit))
            for _ in range(5):
                ours = min(ours, best(lambda: execute(plan, engine), 2))  # noqa: B023  called at once
                theirs = min(theirs, best(lambda: plain.sql(sql).fetchall(), 2))  # noqa: B023  called at once
        print(f"    {name}: ours {shown(ours)}, hand-written {shown(theirs)}")
        bar(f"times hand-written SQL, {name} (CPU)", ours[0] / theirs[0], 1.3)


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


def main() -> int:
    """Run everything in a folder that is removed afterwards; the exit code says whether a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="grow to 100 million rows")
    parser.add_argument("--no-peers", action="store_true", help="leave out SmartNoise SQL and OpenDP")
    parser.add_argument("--workloads", action="store_true", help="only questions of many aggregates, and wordings")
    chosen = parser.parse_args()
    workloads()
    if chosen.workloads:
        return 1 if FAILED else 0
    with tempfile.TemporaryDirectory() as name, DuckDBEngine() as engine, duckdb.connect() as plain:
        folder = Path(name)
        plain.execute("SET enable_progress_bar = false")
        plain.execute(f"COPY ({generated(1_000_000)}) TO '{folder}/t.parquet'")
        plain.execute(f"COPY ({generated(1_000_000)}) TO '{folder}/t.csv'")
        truth = {
            k: (n, s)
            for k, n, s in plain.sql(f"SELECT k, count(*), sum(v) FROM '{folder}/t.parquet' GROUP BY k").fetchall()
        }
        engine.attach("t", folder / "t.parquet", schema(SAMPLED))
        ours = table_question(engine, plain, folder)
        other_forms(plain, folder)
        exact_sums(plain, folder)
        hostile_questions()
        memory(folder)
        small_questions(engine, plain)
        many_groups(engine, plain)
        many_medians(plain)
        opendp = None if chosen.no_peers else environment("opendp-polars", ["opendp[polars]"], "opendp, polars")
        quantiles(plain, folder, opendp)
        mine = our_errors(folder, truth)
        if not chosen.no_peers and (python := environment("smartnoise-sql", ["smartnoise-sql"], "snsql")):
            # It bounds a user by rows in all (10), and its budget has a delta of 1e-6.
            same = {form: found for form, found in mine.items() if form != "5 groups of 2 rows"}
            compare("SmartNoise SQL", peer(python, SMARTNOISE, str(folder)), ours, 3, same, truth)
        if opendp is not None:
            # It bounds groups and rows in each, and its budget is epsilon alone.
            same = {form: found for form, found in mine.items() if "delta" not in form}
            compare("OpenDP Polars", peer(opendp, OPENDP, str(folder), "table", "2"), ours, 8, same, truth)
        growth(plain, folder, chosen.full)
    print(f"{len(FAILED)} bars missed" + (": " + "; ".join(FAILED) if FAILED else ""))
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
