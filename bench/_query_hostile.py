"""How much longer a question takes because of one person: hostile questions with and without that person's rows.

The person's text is as long as a column may be and made to be slow to search, or the person has a thousand rows in both
tables; a public table has ten thousand rows for one key. The ratio is that of the best of several runs, in CPU seconds.
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
from deniable.policy.schema import TableSchema
from deniable.query.compile import compile_query
from deniable.query.execute import measure

POLICY = """
version: 1
dataset: hostile
tables:
  t:
    source: t.parquet
    unit: {column: u, max_groups: 2, max_rows_per_group: 3}
    columns: {u: {role: identifier}, name: {}, note: {}, x: {type: decimal}, k: {type: integer, between: [0, 9]}}
  s:
    source: s.parquet
    unit: {column: u, max_groups: 2, max_rows_per_group: 3}
    columns: {u: {}, y: {type: decimal, between: [0, 1], step: 0.01}}
  p: {source: p.parquet, public: true, columns: {k: {type: integer}, w: {type: integer}}}
"""
BUDGET = ApproxDP(Fraction(1), Fraction(1, 10**6))
PEOPLE, PUBLIC = 300_000, 10_000
WORDS = ("again", "better", "checked", "drug", "fever", "none", "pain", "rest")
BOB = "Bob"


HOSTILE = {
    "one long text": [("a" * 65_536, 1e308)],
    "a text beyond the limit": [("a" * 300_000 + "b", float("nan"))],
    "a long text of two bytes a character": [("é" * 65_536, float("inf"))],
    "a thousand rows in both tables": [("a", 1.0)] * 1_000,
}
"""What one person may bring: texts and numbers of her rows in the first table; as many rows are in the second."""


def make_tables(hostile: list[tuple[str, float]]) -> dict[str, pa.Table]:
    """The two tables, with the rows of a hostile person."""
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
    for note, x in hostile:
        for column, value in zip(rows, (BOB, BOB, note, x, 5), strict=True):
            rows[column].append(value)
        other["u"].append(BOB)
        other["y"].append(0.1)
    public = pa.table({"k": [5] * PUBLIC, "w": list(range(PUBLIC))})
    return {"t": pa.table(rows), "s": pa.table(other), "p": public}


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
        "SELECT COUNT(*) FROM t JOIN p ON t.k = p.k WHERE name = 'Bob' AND ({})",
        "SELECT SUM(s.y) FROM t JOIN s ON t.u = s.u JOIN p ON t.k = p.k WHERE name = 'Bob' AND ({})",
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


def attach_tables(hostile: list[tuple[str, float]], tables: tuple[TableSchema, ...]) -> DuckDBEngine:
    """An engine with one thread that holds both tables."""
    engine = DuckDBEngine(threads=1)
    for name, rows in make_tables(hostile).items():
        engine.attach(name, rows, next(table for table in tables if table.name == name))
    return engine


def hostile_questions(count: int = 200, times: int = 3) -> None:
    """Print the worst and the median ratio, and how many questions were refused before they ran."""
    tables = parse(POLICY).tables
    plain = attach_tables([], tables)
    engines = {name: attach_tables(rows, tables) for name, rows in HOSTILE.items()}
    ratios, refused = [], 0
    for sql in list_questions(count):
        try:
            alone = time_question(sql, plain, tables, times)
        except QueryRefused:
            refused += 1
            continue
        ratios += [(time_question(sql, engine, tables, times) / alone, name, sql) for name, engine in engines.items()]
    ratios.sort()
    print(f"{count} hostile questions over {PEOPLE:,} people: {refused} refused before they ran, none failed; "
          f"the median takes {ratios[len(ratios) // 2][0]:.2f} times as long with one hostile person")  # fmt: skip
    print(f"    slowest with {ratios[-1][1]}: {ratios[-1][2]}")
    bar("times the plain run at worst (CPU)", ratios[-1][0], 1.5)


if __name__ == "__main__":
    hostile_questions()
