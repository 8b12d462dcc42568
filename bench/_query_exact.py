"""What exact sums of single people cost: whole numbers on a public grid beside plain DOUBLE sums.

The question counts people whose sum of products passes a bound, over 1,000,000 rows of 100,000 people. The peer is the
same statement with plain DOUBLE sums, written by hand, whose result depends on the order in which rows are added.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import duckdb
from _query_tables import Seconds, bar, best, shown

from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.budget import PureDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query.algebra.relation import ExactAggregate
from deniable.query.compile import compile_query
from deniable.query.execute import execute
from deniable.query.plan import QueryPlan
from deniable.query.sql import render

ROWS = 1_000_000
SQL = "SELECT COUNT(*) FROM (SELECT u, SUM(x * y) AS s FROM t GROUP BY u HAVING SUM(x * y) > 10) q"


def declare_table() -> TableSchema:
    """Two decimal columns with declared bounds and steps."""
    cents = Bounds(Fraction(0), Fraction(10), Fraction(1, 100))
    numbers = tuple(Column(name, ColumnType.DECIMAL, bounds=cents) for name in "xy")
    return TableSchema("t", "", (Column("u", ColumnType.INTEGER), *numbers), PrivacyUnit("u", 1, 1))


def write_rows(plain: duckdb.DuckDBPyConnection, file: Path) -> None:
    """Rows from a hash: cents between 0 and 5, which floats hold only nearly."""
    plain.execute(
        "COPY (SELECT (hash(range) % 100000)::BIGINT AS u, (hash(range + 1000000000) % 500) / 100.0::DOUBLE AS x, "
        f"(hash(range + 2000000000) % 500) / 100.0::DOUBLE AS y FROM range({ROWS})) TO '{file}'"
    )


def write_by_hand(file: Path) -> str:
    """The same bounds, tests of nulls and groups, and a plain sum of DOUBLE."""
    x, y = (f"CASE WHEN {name} <= CAST('Infinity' AS DOUBLE) THEN greatest(0, least(10, {name})) END" for name in "xy")
    sums = f"SELECT u, sum({x} * {y}) AS s FROM '{file}' WHERE u IS NOT NULL GROUP BY u"
    return f"SELECT count(*) FROM ({sums}) AS q WHERE s > 10"


def render_plainly(aggregate: ExactAggregate, condition: str) -> str:
    """What stood in place of whole numbers before: a sum of DOUBLE, whose result depends on the order of rows."""
    assert aggregate.argument is not None
    return f"{aggregate.summary}(CAST({render.render_expression(aggregate.argument)} AS DOUBLE)){condition}"


def time_question(engine: DuckDBEngine, plan: QueryPlan, plainly: bool) -> Seconds:
    """The best of two runs, with exact sums or with plain ones."""
    exactly = render._render_sum_of_steps
    render._render_sum_of_steps = render_plainly if plainly else exactly
    try:
        return best(lambda: execute(plan, engine), 2)
    finally:
        render._render_sum_of_steps = exactly


def exact_sums(plain: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """The question with exact sums beside plain ones: in the same statement, and in one written by hand."""
    file, table = folder / "exact.parquet", declare_table()
    write_rows(plain, file)
    plan, statement = compile_query(SQL, (table,), PureDP(1)), write_by_hand(file)
    ours, twin, theirs = ((float("inf"), 0.0) for _ in range(3))
    with DuckDBEngine() as engine:
        engine.attach("t", file, table)
        # In turns, so that a busy machine slows all: the fastest of each counts.
        for _ in range(6):
            ours = min(ours, time_question(engine, plan, plainly=False))
            twin = min(twin, time_question(engine, plan, plainly=True))
            theirs = min(theirs, best(lambda: plain.sql(statement).fetchall(), 2))
    print(f"{ROWS:,} rows, sums of products for each person: ours {shown(ours)}, "
          f"plain DOUBLE sums {shown(twin)}, written by hand {shown(theirs)}")  # fmt: skip
    bar("times plain DOUBLE sums in the same question (CPU)", ours[0] / twin[0], 1.2)
    bar("times plain DOUBLE sums by hand (CPU)", ours[0] / theirs[0], 2)
