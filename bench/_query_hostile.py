"""How much longer a question takes because of one person: hostile questions with and without that person's rows.

The person's texts are as long as a column may be and made to be slow to search; in a second table the person has a
thousand rows beside a thousand in the first. The ratio is that of the best of several runs, in CPU seconds.
"""

from __future__ import annotations

import itertools
import random
import time
from fractions import Fraction
from typing import Any

import pyarrow as pa
from _query_tables import bar

from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import QueryRefused
from deniable.policy.budget import ApproxDP
from deniable.policy.document import parse
from deniable.query.compile import compile_query
from deniable.query.execute import measure

POLICY = """
version: 1
dataset: hostile
tables:
  t:
    source: t.parquet
    unit: {column: u, max_groups: 2, max_rows_per_group: 3}
    columns: {u: {}, name: {}, note: {}, x: {type: decimal}, k: {type: integer, between: [0, 9]}}
  s:
    source: s.parquet
    unit: {column: u, max_groups: 2, max_rows_per_group: 3}
    columns: {u: {}, y: {type: decimal, between: [0, 1], step: 0.01}}
"""
BUDGET = ApproxDP(Fraction(1), Fraction(1, 10**6))
PEOPLE = 300_000
WORDS = ("again", "better", "checked", "drug", "fever", "none", "pain", "rest")
BOB = "Bob"


def make_tables(with_bob: bool) -> dict[str, pa.Table]:
    """The two tables, with the hostile person's rows or without."""
    draw = random.Random(1)
    people = [f"p{i}" for i in range(PEOPLE)]
    rows: dict[str, list[Any]] = {
        "u": people,
        "name": [draw.choice(WORDS).title() for _ in people],
        "note": [" ".join(draw.choices(WORDS, k=6)) for _ in people],
        "x": [draw.uniform(-1e3, 1e3) for _ in people],
        "k": [draw.randrange(10) for _ in people],
    }
    other: dict[str, list[Any]] = {"u": list(people), "y": [draw.random() for _ in people]}
    if with_bob:
        hostile = [("a" * 65_536, 1e308), ("a" * 300_000 + "b", float("nan")), ("é" * 65_536, float("inf"))]
        for note, x in hostile:
            for column, value in zip(rows, (BOB, BOB, note, x, 5), strict=True):
                rows[column].append(value)
        for _ in range(1_000):
            for column, value in zip(rows, (BOB, BOB, "a", 1.0, 5), strict=True):
                rows[column].append(value)
            other["u"].append(BOB)
            other["y"].append(0.1)
    return {"t": pa.table(rows), "s": pa.table(other)}


def list_questions(count: int) -> list[str]:
    """Questions that do as much as the rules allow with a long text, only for a person of that name."""
    texts = [
        "REPLACE(note, 'a', 'aa')",
        "REPLACE(REPLACE(note, 'a', 'aa'), 'aa', 'a')",
        "note || note || note || note",
        "UPPER(LOWER(UPPER(note)))",
        "REPLACE(note, 'aaaaaaaab', '')",
        "SUBSTRING(note || note, 5, 60000)",
        "TRIM(note || ' ')",
        "RIGHT(note || name, 65000)",
    ]
    tests = [
        "{} LIKE '%a%a%a%a%b'",
        "{} ILIKE '%A_A_A%B'",
        "CONTAINS({}, 'aaaaaaaaaaaaaaaaaaab')",
        "LENGTH({}) > 70000",
        "{} = 'x'",
        "STARTS_WITH({}, 'aaaab') OR ENDS_WITH({}, 'aab')",
        "EXP(EXP(x)) * LENGTH({}) > 5",
        "SQRT(x) - EXP(x) > LENGTH({})",
    ]
    forms = [
        "SELECT COUNT(*) FROM t WHERE CASE WHEN name = 'Bob' THEN {} ELSE FALSE END",
        "SELECT k, COUNT(*) FROM t WHERE {} GROUP BY k",
        "SELECT COUNT(*) FROM (SELECT u, COUNT(*) AS n FROM t WHERE {} GROUP BY u HAVING COUNT(*) > 1) AS q",
        "SELECT SUM(s.y) FROM t JOIN s ON t.u = s.u WHERE name = 'Bob' AND ({})",
    ]
    every = [
        form.format(test.format(*[text] * test.count("{}")))
        for form, test, text in itertools.product(forms, tests, texts)
    ]
    random.Random(2).shuffle(every)
    return every[:count]


def time_question(sql: str, engine: DuckDBEngine, tables: tuple[Any, ...], times: int) -> float:
    """CPU seconds of the best run."""
    plan, best = compile_query(sql, tables, BUDGET), float("inf")
    for _ in range(times):
        start = time.process_time()
        measure(plan, engine)
        best = min(best, time.process_time() - start)
    return best


def hostile_questions(count: int = 200, times: int = 3) -> None:
    """Print the worst and the median ratio, and how many questions were refused before they ran."""
    tables = parse(POLICY).tables
    engines = []
    for with_bob in (False, True):
        engine = DuckDBEngine(threads=1)
        for name, rows in make_tables(with_bob).items():
            engine.attach(name, rows, next(table for table in tables if table.name == name))
        engines.append(engine)
    ratios, refused = [], 0
    for sql in list_questions(count):
        try:
            plain, hostile = (time_question(sql, engine, tables, times) for engine in engines)
        except QueryRefused:
            refused += 1
            continue
        ratios.append((hostile / plain, sql))
    ratios.sort()
    print(f"{count} hostile questions over {PEOPLE:,} people: {refused} refused before they ran, none failed; "
          f"the median takes {ratios[len(ratios) // 2][0]:.2f} times as long with one hostile person")  # fmt: skip
    print(f"    slowest: {ratios[-1][1]}")
    bar("times the plain run at worst (CPU)", ratios[-1][0], 1.5)


if __name__ == "__main__":
    hostile_questions()
