"""Engines beside each other: the standard question where the rows are, beside the same exact SQL written by hand.

One table of users over 100 known keys; COUNT and SUM by key at epsilon 1, at most 5 groups a user and 2 rows in each.
The same rows are in the embedded engine and in PostgreSQL, which is started for the run. Wall seconds, the fastest of
several runs in turns: PostgreSQL works in a process of its own. Then random questions, whose exact numbers must be
equal in both, and sizes for the cost model of `docs/scale.md`.

    python bench/engines.py [--spark] [--rows 1000000] [--questions 200] [--sizes]
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from _query_tables import FAILED, KEYS, SAMPLED, SQL, bar, schema

from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.postgresql.engine import PostgreSQLEngine
from deniable.policy.budget import PureDP
from deniable.query.compile import compile_query
from deniable.query.execute import execute
from deniable.query.sql.dialects import render_for_postgresql

TESTS = Path(__file__).parent.parent / "tests"
sys.path += [str(TESTS), str(TESTS / "contracts")]
"""Where a private PostgreSQL is started, and engines are compared."""
ROWS = (
    "SELECT abs(hashint8extended(i, 1) % 100000) AS \"user\", 'k' || lpad(abs(hashint8extended(i, 2) % 100)::text, 2,"
    " '0') AS k, abs(hashint8extended(i, 3) % 101) AS v FROM generate_series(1, {rows}) AS i"
)


def write_by_hand() -> str:
    """The best exact statement with the same bounding that we know for PostgreSQL."""
    listed = ", ".join(f"('{key}', {place})" for place, key in enumerate(KEYS))
    coded = (
        'SELECT "user" AS u, id AS k, greatest(0, least(100, v)) AS v FROM t '
        f"JOIN (VALUES {listed}) AS w(word, id) ON t.k = w.word"
    )
    return (
        "SELECT k, sum(least(n, 2)), sum(CASE WHEN n > 2 THEN div(s * 2, n) ELSE s END) FROM (SELECT u, k, count(*) AS"
        " n, sum(v) AS s FROM (SELECT *, dense_rank() OVER (PARTITION BY u ORDER BY hash_record_extended(ROW(k, u),"
        f" 42), k) AS g FROM ({coded}) AS c) AS r WHERE g <= 5 GROUP BY u, k) AS p GROUP BY k"
    )


def time_best(*works: Callable[[], Any], times: int = 5) -> list[float]:
    """Wall seconds of the fastest run of each, in turns, so that a busy machine slows all."""
    taken = [float("inf")] * len(works)
    for _ in range(times):
        for place, work in enumerate(works):
            begun = time.perf_counter()
            work()
            taken[place] = min(taken[place], time.perf_counter() - begun)
    return taken


def fill(address: str, rows: int) -> None:
    """A table of so many rows."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS t")
        connection.execute("CREATE TABLE t AS " + ROWS.format(rows=rows))
        connection.execute("VACUUM ANALYZE t")


def ask_standard_question(address: str, rows: int, judged: bool = False) -> None:
    """The question of the title in PostgreSQL beside SQL by hand."""
    fill(address, rows)
    plan = compile_query(SQL, (schema(SAMPLED),), PureDP(1))
    with (
        PostgreSQLEngine(render=render_for_postgresql) as there,
        psycopg.connect(address) as plain,
        DuckDBEngine() as here,
    ):
        there.attach("t", f"{address}#public.t", schema(SAMPLED))
        here.attach("t", there.run("SELECT * FROM t"), schema(SAMPLED))
        plain.execute("SET jit = off")
        by_hand = write_by_hand()
        ours, theirs, embedded = time_best(
            lambda: execute(plan, there), lambda: plain.execute(by_hand).fetchall(), lambda: execute(plan, here)
        )
    print(f"{rows:,} rows: PostgreSQL {ours:.3f}, by hand {theirs:.3f}, embedded engine {embedded:.3f} seconds")
    if judged:
        bar("times SQL by hand in PostgreSQL", ours / theirs, 1.3)


def write_by_hand_for_spark(relation: str) -> str:
    """The best exact statement with the same bounding that we know for Spark."""
    listed = ", ".join(f"'{key}'" for key in KEYS)
    coded = f"SELECT user AS u, k, greatest(0L, least(100L, v)) AS v FROM {relation} WHERE k IN ({listed})"
    return (
        "SELECT k, sum(least(n, 2)), sum(CASE WHEN n > 2 THEN (s * 2) div n ELSE s END) FROM (SELECT u, k, count(*) AS"
        " n, sum(v) AS s FROM (SELECT *, dense_rank() OVER (PARTITION BY u ORDER BY xxhash64(42L, k, u), k) AS g"
        f" FROM ({coded})) WHERE g <= 5 GROUP BY u, k) GROUP BY k"
    )


def ask_standard_question_in_spark(rows: int, judged: bool = False) -> None:
    """The question of the title in Spark on this machine beside SQL by hand."""
    from deniable.engines.spark.engine import SparkEngine, locate_table
    from deniable.query.sql.dialects import render_for_spark

    plan = compile_query(SQL, (schema(SAMPLED),), PureDP(1))
    with tempfile.TemporaryDirectory() as folder, DuckDBEngine() as here, SparkEngine(render=render_for_spark) as there:
        path = Path(folder) / "t.parquet"
        here.write(
            here.run(
                "SELECT CAST(hash(i, 1) % 100000 AS BIGINT) AS \"user\", 'k' || lpad(CAST(hash(i, 2) % 100 AS VARCHAR),"
                f" 2, '0') AS k, CAST(hash(i, 3) % 101 AS BIGINT) AS v FROM range(0, {rows}) AS r(i)"
            ),
            path,
        )
        there.attach("t", f"spark:{path}", schema(SAMPLED))
        here.attach("t", path, schema(SAMPLED))
        by_hand = write_by_hand_for_spark(locate_table(f"spark:{path}").relation)
        begun = _java_seconds()
        ours, theirs, embedded = time_best(
            lambda: execute(plan, there), lambda: there._session.sql(by_hand).collect(), lambda: execute(plan, here)
        )
        spent = (_java_seconds() - begun) / 10
    print(f"{rows:,} rows: Spark {ours:.3f}, by hand {theirs:.3f}, embedded engine {embedded:.3f} seconds;"
          f" {spent:.1f} CPU seconds of Java for each, cold and warm together")  # fmt: skip
    if judged:
        bar("times SQL by hand in Spark", ours / theirs, 1.3)


def _java_seconds() -> float:
    """CPU seconds of the Java processes of this machine so far."""
    told = subprocess.run(["ps", "-C", "java", "-o", "cputimes="], capture_output=True, text=True).stdout
    return float(sum(map(int, told.split())))


def compare_random_questions(address: str, questions: int) -> None:
    """Random questions with equal exact numbers in both engines."""
    from test_engines_agree import Both, ask_random, odd_rows

    import clinic
    from engines_elsewhere import UploadingPostgreSQL

    rows = odd_rows()
    tables = {"stays": rows.slice(20, 60), "regions": clinic.REGION_ROWS}
    with clinic.engine(visits=rows, stays=tables["stays"], answers=rows) as here, UploadingPostgreSQL(address) as there:
        for table in clinic.TABLES:
            there.attach(table.name, tables.get(table.name, rows), None if table.public else table)
        compared = ask_random(Both(here, there), questions, random.SystemRandom().randrange(1 << 30))
    print(f"{questions:,} random questions, {compared:,} statements with equal exact numbers")


def main() -> int:
    """Run all parts; the exit code tells whether a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--sizes", action="store_true", help="also 10^5, 3*10^5 and 3*10^6 rows, for the cost model")
    parser.add_argument("--spark", action="store_true", help="Spark on this machine instead of PostgreSQL")
    asked = parser.parse_args()
    from postgres_cluster import cluster

    if asked.spark:
        for rows in (asked.rows, *((100_000, 10_000_000) if asked.sizes else ())):
            ask_standard_question_in_spark(rows, judged=rows == asked.rows)
        return 1 if FAILED else 0
    with cluster() as address:
        ask_standard_question(address, asked.rows, judged=True)
        for rows in (100_000, 300_000, 3_000_000) if asked.sizes else ():
            ask_standard_question(address, rows)
        compare_random_questions(address, asked.questions)
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
