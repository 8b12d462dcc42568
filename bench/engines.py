"""Engines beside each other: the standard question where the rows are, beside the same exact SQL written by hand.

One table of users over 100 known keys; COUNT and SUM by key at epsilon 1, at most 5 groups a user and 2 rows in each.
The same rows are in the embedded engine and in PostgreSQL, which is started for the run. Wall seconds, the fastest of
several runs in turns: PostgreSQL works in a process of its own. Then random questions, whose exact numbers must be
equal in both, and sizes for the cost model of `docs/scale.md`.

With `--spark`, rows are generated and stay in Spark on this machine; CPU seconds of its process and this one are told.
`--techniques` counts quasi-identifiers and searches a k-anonymous recoding, and describes a table for synthesis from
marginals, at the same numbers of rows, or only those that are named; `--memory` is what Java may use. Above 3 million
rows each is run once, and nothing by hand. `--folder` keeps the generated rows for other runs. `--tumult` names a
Python that has Tumult Analytics (`tmlt.analytics`), which answers the same question over the same million rows; both
are measured from the start of their Spark on.

    python bench/engines.py [--rows 1000000] [--questions 200] [--sizes 100000 300000]
    python bench/engines.py --spark [--rows 1000000] [--sizes 100000 10000000] [--techniques [NAME ...]]
                                    [--memory 8g] [--folder rows] [--tumult venv/bin/python]
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from _processes import cpu_seconds, is_below
from _query_tables import FAILED, KEYS, SAMPLED, SQL, bar, schema

from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.postgresql.engine import PostgreSQLEngine
from deniable.policy.budget import PureDP
from deniable.policy.schema import Column, TableSchema
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


def ask_standard_question(address: str, rows: int, judged: bool = False) -> float:
    """The question of the title in PostgreSQL beside SQL by hand; its wall seconds."""
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
    return ours


def write_by_hand_for_spark(relation: str) -> str:
    """The best exact statement with the same bounding that we know for Spark."""
    listed = ", ".join(f"'{key}'" for key in KEYS)
    coded = f"SELECT user AS u, k, greatest(0L, least(100L, v)) AS v FROM {relation} WHERE k IN ({listed})"
    return (
        "SELECT k, sum(least(n, 2)), sum(CASE WHEN n > 2 THEN (s * 2) div n ELSE s END) FROM (SELECT u, k, count(*) AS"
        " n, sum(v) AS s FROM (SELECT *, dense_rank() OVER (PARTITION BY u ORDER BY xxhash64(42L, k, u), k) AS g"
        f" FROM ({coded})) WHERE g <= 5 GROUP BY u, k) GROUP BY k"
    )


TECHNIQUES = ("k-anonymity", "marginals")
GENERATED = (
    "SELECT CAST(hash(i, 1) % {users} AS BIGINT) AS user, printf('k%02d', hash(i, 2) % 100) AS k,"
    " CAST(hash(i, 3) % 101 AS BIGINT) AS v, CASE WHEN hash(i, 4) % 2 = 0 THEN 'F' ELSE 'M' END AS sex"
    " FROM range({rows}) AS r(i)"
)


def write_rows(rows: int, folder: str) -> str:
    """A folder of Parquet files with so many rows: of 100,000 users, and above a million rows ten rows a user.

    The embedded engine's library writes them, so that no row passes through this process; those that are there are
    taken.
    """
    path = Path(folder) / f"rows{rows}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as begun, duckdb.connect() as writer:
            generated = GENERATED.format(rows=rows, users=max(100_000, rows // 10))
            writer.execute("SET enable_progress_bar = false")
            writer.execute(f"COPY ({generated}) TO '{begun}/t' (FORMAT parquet, FILE_SIZE_BYTES '64MB')")
            Path(begun, "t").rename(path)
    return str(path)


@contextmanager
def fill_spark(rows: int, folder: str) -> Iterator[tuple[Any, str]]:
    """An engine over a folder of Parquet files of so many rows, and the view that a statement by hand reads.

    The columns of the view are known, as an analyst's would be: Spark looks for them in the files once.
    """
    from deniable.engines.spark.engine import SparkEngine, locate_table
    from deniable.query.sql.dialects import render_for_spark

    path = f"spark:{write_rows(rows, folder)}"
    with SparkEngine(render=render_for_spark) as there:
        there.attach("t", path, describe_rows())
        there._session.read.parquet(locate_table(path).name).createOrReplaceTempView("by_hand")
        yield there, "by_hand"


def describe_rows() -> TableSchema:
    """The table of the standard question, with one column more."""
    table = schema(SAMPLED)
    return replace(table, columns=(*table.columns, Column("sex", categories=("F", "M"))))


def ask_standard_question_in_spark(rows: int, folder: str, judged: bool, techniques: Sequence[str]) -> float:
    """The question of the title in Spark on this machine beside SQL by hand; its CPU seconds."""
    plan, times = compile_query(SQL, (describe_rows(),), PureDP(1)), 5
    with fill_spark(rows, folder) as (there, relation):
        by_hand = write_by_hand_for_spark(relation)
        works = [lambda: execute(plan, there), lambda: there._session.sql(by_hand).collect()]
        ((first, wall),) = spend_cpu(works[:1], 1)
        if rows > 3_000_000:
            ours, told = (first, wall), f"Spark {first:.1f} CPU seconds, {wall:.1f} wall seconds, once"
        else:
            spend_cpu(works, 1)  # Java compiles what runs often
            ours, theirs = spend_cpu(works, times)
            told = (
                f"Spark {ours[0]:.1f} CPU seconds, {first:.1f} the first time, by hand {theirs[0]:.1f}; {ours[1]:.2f} "
                f"and {theirs[1]:.2f} wall seconds, the least of {times} in turns"
            )
        print(f"{rows:,} rows: {told}; {_peak_memory():.1f} GB at most", flush=True)
        count_in_spark(there, rows, techniques)
    if judged and rows <= 3_000_000:
        bar("times SQL by hand in Spark, CPU", ours[0] / theirs[0], 1.3)
        if rows >= 1_000_000:  # so many took Tumult Analytics 75 CPU seconds on another machine, its start included
            bar("CPU seconds in Spark, the first time, over a fifth of Tumult Analytics'", first, 75 / 5)
    return ours[0]


def count_in_spark(there: Any, rows: int, techniques: Sequence[str]) -> None:
    """k-anonymity and marginals: counted there, and all that follows from the counts."""
    from deniable.engines.base import hold_rows
    from deniable.engines.fetching import count_combinations
    from deniable.kanonymity.anonymize import search
    from deniable.kanonymity.models import KAnonymity
    from deniable.kanonymity.request import Request, prepare
    from deniable.policy.budget import ApproxDP
    from deniable.policy.schema import Spec
    from deniable.synth.describe import describe_table, render_bounded_select
    from deniable.synth.encode import RowsElsewhere

    known, table = ("k", "v", "sex"), describe_rows()

    def anonymize() -> Any:
        counted = count_combinations(there, "t", known, "n", 1_000_000)
        trees = {"v": Spec("intervals", {"widths": [10, 50]})}
        return search(prepare(counted, Request(known, (KAnonymity(5),)), trees, counts="n"))

    def describe() -> Any:
        def bound(name: str) -> str:
            return render_bounded_select(replace(table, name=name), SAMPLED, SAMPLED.rows_learned, known)

        with hold_rows(there, "t", bound) as held:
            asked = RowsElsewhere(held, there.run)
            return describe_table(asked, table, ApproxDP(1, 1e-6), most_rows=SAMPLED.rows_learned, columns=known)

    for name in techniques:
        work = {"k-anonymity": anonymize, "marginals": describe}[name]
        ((cpu, wall),) = spend_cpu([work], 1)
        print(f"{rows:,} rows, {name}: {cpu:.1f} CPU seconds, {wall:.1f} wall seconds; {_peak_memory():.1f} GB at most",
              flush=True)  # fmt: skip


def compare_with_tumult(python: str, rows: int, folder: str) -> None:
    """The same question over the same rows by Tumult Analytics, in a process of its own, and by this one."""
    from deniable.engines.spark.engine import SparkEngine
    from deniable.query.sql.dialects import render_for_spark

    path, plan, begun = write_rows(rows, folder), compile_query(SQL, (describe_rows(),), PureDP(1)), cpu_seconds()
    with SparkEngine(render=render_for_spark) as there:
        started = cpu_seconds() - begun

        def ask() -> None:
            there.attach("t", f"spark:{path}", describe_rows())
            execute(plan, there)

        ((first, _),) = spend_cpu([ask], 1)
        ((again, _),) = spend_cpu([ask], 3)
    by_hand = read_numbers([sys.executable, __file__, "--by-hand", path])
    theirs = read_numbers([python, str(Path(__file__).parent / "_tumult.py"), path])
    print(f"{rows:,} rows, CPU seconds from the start of Spark to the first answer, and of an answer later, the least"
          f" of three: {started + first:.1f} and {again:.1f}; SQL by hand {by_hand[0] + by_hand[1]:.1f} and"
          f" {by_hand[2]:.1f}; Tumult Analytics {theirs[0] + theirs[1]:.1f} and {theirs[2]:.1f}",
          flush=True)  # fmt: skip
    bar(
        "of the CPU of Tumult Analytics, one fifth at most: from the start on", (started + first) / sum(theirs[:2]), 0.2
    )
    bar("of the CPU of Tumult Analytics, one fifth at most: later", again / theirs[2], 0.2)


def read_numbers(command: Sequence[str]) -> list[float]:
    """The last three numbers that a command prints: CPU seconds of a start, of a first answer, and of a later one."""
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(each) for each in told.split()[-3:]]


def ask_by_hand(path: str) -> None:
    """SQL by hand in a Spark of its own, which no question came before: what less than that cannot cost."""
    from deniable.engines.spark.session import open_session

    begun = cpu_seconds()
    session = open_session()
    started, statement = cpu_seconds() - begun, write_by_hand_for_spark("by_hand")

    def ask() -> None:
        session.read.parquet(path).createOrReplaceTempView("by_hand")
        session.sql(statement).collect()

    ((first, _),) = spend_cpu([ask], 1)
    ((again, _),) = spend_cpu([ask], 3)
    print(started, first, again)


def _peak_memory() -> float:
    """GB that this process and those that it started held at most, each by itself added up."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError, StopIteration):
            held = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            if int(status.parent.name) == os.getpid() or is_below(int(held["PPid"])):
                total += int(held.get("VmHWM", "0 kB").split()[0])
    return total / 1e6


def fit_line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """The cost at no rows, and of each row; errors count by their share, so that large sizes do not decide alone."""
    weighed = [(1 / cost**2, n, cost) for n, cost in points]
    w, wn, wnn = (sum(weight * n**power for weight, n, _ in weighed) for power in (0, 1, 2))
    wc, wnc = (sum(weight * n**power * cost for weight, n, cost in weighed) for power in (0, 1))
    each = (w * wnc - wn * wc) / (w * wnn - wn**2)
    return (wc - each * wn) / w, each


NODES, CORES, NETWORK, SHUFFLED = 100, 16, 1.25e9, 56
"""Nodes, cores of each, bytes a second between them, and bytes of a row that is shuffled: six fields and their marks.

A row is shuffled once, to where all rows of its person are, and before that only as many groups of a person as may be
kept are left of each file; sums by group are small beside it.
"""


def print_model(points: Sequence[tuple[int, float]], rows: int = 10**10) -> None:
    """A line through the measured sizes, how far they are from it, and what it says of many rows on many nodes."""
    start, each = fit_line(points)
    off = max(abs(start + each * n - cost) / cost for n, cost in points)
    sizes = " ".join(f"{n:,}" for n, _ in points)
    print(f"model of {sizes} rows: {start:.2f} + {1e6 * each:.2f} CPU seconds for each million, at most {off:.0%} off")
    computed, moved = (start + each * rows) / (NODES * CORES), rows * SHUFFLED / (NODES * NETWORK)
    print(f"model for {rows:,} rows on {NODES} nodes of {CORES} cores: {computed:,.0f} seconds to compute and"
          f" {moved:,.0f} to shuffle {rows * SHUFFLED / 1e12:.2f} TB, if both scale with nodes")  # fmt: skip


def spend_cpu(works: Sequence[Callable[[], Any]], times: int) -> list[tuple[float, float]]:
    """Of each the least CPU seconds of Spark's process and this one, and wall seconds, in turns.

    Wall seconds say little where other work shares the cores.
    """
    least = [(float("inf"), float("inf"))] * len(works)
    for _ in range(times):
        for place, work in enumerate(works):
            begun, cpu = time.perf_counter(), cpu_seconds()
            work()
            spent = (cpu_seconds() - cpu, time.perf_counter() - begun)
            least[place] = (min(least[place][0], spent[0]), min(least[place][1], spent[1]))
    return least


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


def run_in_spark(asked: argparse.Namespace, folder: str) -> None:
    """All sizes in one Spark on this machine."""
    if asked.memory:
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {asked.memory} pyspark-shell"
    if asked.tumult:
        compare_with_tumult(asked.tumult, asked.rows, folder)
    points: list[tuple[int, float]] = []
    techniques = () if asked.techniques is None else TECHNIQUES
    for rows in (asked.rows, *asked.sizes):
        if asked.techniques:  # they alone
            with fill_spark(rows, folder) as (there, _):
                count_in_spark(there, rows, asked.techniques)
            continue
        points.append((rows, ask_standard_question_in_spark(rows, folder, rows == asked.rows, techniques)))
        if len(points) > 2:
            print_model(sorted(points))


def main() -> int:
    """Run all parts; the exit code tells whether a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", default=[], help="other numbers of rows, for the cost model")
    parser.add_argument("--spark", action="store_true", help="Spark on this machine instead of PostgreSQL")
    parser.add_argument("--techniques", nargs="*", choices=TECHNIQUES, metavar="NAME",
                        help="k-anonymity and marginals in Spark too; with names, those alone")  # fmt: skip
    parser.add_argument("--memory", default="", help="what Java may use, such as 8g")
    parser.add_argument("--tumult", default="", help="a Python that has tmlt.analytics, to compare with")
    parser.add_argument("--folder", default="", help="where generated rows are kept, and taken from")
    parser.add_argument("--by-hand", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.by_hand:
        ask_by_hand(asked.by_hand)
        return 0
    from postgres_cluster import cluster

    if asked.spark:
        with tempfile.TemporaryDirectory() as folder:
            run_in_spark(asked, asked.folder or folder)
        return 1 if FAILED else 0
    with cluster() as address:
        ask_standard_question(address, asked.rows, judged=True)
        for rows in asked.sizes:
            ask_standard_question(address, rows)
        compare_random_questions(address, asked.questions)
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
