"""No word of a question is passed over: it is answered as DuckDB reads it, or refused for a reason that is true."""

from __future__ import annotations

import datetime
import inspect
import random
import re
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import expressions as exp

from deniable.curator import Curator
from deniable.errors import QueryRefused
from deniable.query.sql import aggregates
from deniable.query.sql import scope as reading
from deniable.query.sql.clauses import Clauses
from deniable.query.sql.scope import Scope

POLICY = """
version: 1
dataset: shop
tables:
  orders:
    source: orders.parquet
    unit: {column: cust, max_groups: 40, max_rows_per_group: 40}
    columns:
      cust: {type: integer, role: identifier}
      prio: {type: integer, between: [0, 4]}
      total: {type: decimal, between: [0, 10], step: 0.01}
      status: {type: text, categories: [paid, open, sent]}
      placed: {type: date, between: [2019-01-01, 2021-12-31]}
      shipped: {type: datetime}
      far: {type: integer}
  marks:
    source: marks.parquet
    unit: row
    columns: {k: {type: text, categories: [a, b]}}
  products:
    source: products.parquet
    public: true
    columns: {maker: {type: text}, kind: {type: text}}
budgets:
  dataset: {epsilon: 100000000, delta: 0.01}
accepts: [much-loss, large-delta]
"""


def make_tables() -> dict[str, pa.Table]:
    choose = random.Random(5)
    rows = [
        {"cust": i % 30, "prio": choose.randrange(5), "total": choose.randrange(1000) / 100,
         "status": choose.choice(["paid", "open", "sent", None]),
         "placed": datetime.date(2019, 1, 1) + datetime.timedelta(days=choose.randrange(1000)),
         "shipped": datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=choose.randrange(5000)),
         "far": choose.choice([2**53 + 1, -(2**53) - 1, 2**62 + 7, 12])}
        for i in range(90)
    ]  # fmt: skip
    products = [{"maker": maker, "kind": kind} for maker, kind in [("paid", "x"), ("open", "y"), (None, "z")]]
    marks = [{"k": "ab"[i % 2]} for i in range(9)]
    return {name: pa.Table.from_pylist(held) for name, held in
            (("orders", rows), ("products", products), ("marks", marks))}  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("shop")
    connection = duckdb.connect()
    for name, table in make_tables().items():
        pq.write_table(table, folder / f"{name}.parquet")
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM '{folder / name}.parquet'")
    (folder / "policy.yaml").write_text(POLICY)
    with Curator.open(folder / "policy.yaml") as curator:
        yield curator, connection


ANSWERED = [
    "(SELECT prio, COUNT(*) AS n FROM orders GROUP BY prio) ORDER BY prio DESC LIMIT 2",
    "SELECT SUM(n) AS s FROM ((SELECT prio, COUNT(*) AS n FROM orders GROUP BY prio) ORDER BY prio LIMIT 2 OFFSET 1) t",
    "WITH t AS (SELECT prio, COUNT(*) AS n FROM orders GROUP BY prio) (SELECT * FROM t) ORDER BY prio LIMIT 1",
    "SELECT COUNT(*) AS n FROM orders UNION ALL SELECT COUNT(*) FROM orders WHERE prio = 1 ORDER BY 1 LIMIT 1",
    "SELECT COUNT(*) AS n FROM orders UNION SELECT COUNT(*) FROM orders",
    "SELECT COUNT(*) AS n FROM orders WHERE status IN (SELECT maker FROM products UNION SELECT kind FROM products)",
    "SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY prio DESC) AS q FROM orders",
    "SELECT COUNT(status || 'x') AS n FROM orders",
    "SELECT COUNT(*) AS n FROM orders WHERE (status || '-' || status) IS NULL",
    "SELECT COUNT(*) AS n FROM orders WHERE CONCAT(status, 'x') = 'x'",
    "SELECT COUNT(*) AS n FROM orders WHERE CAST(total AS DECIMAL(5,0)) = 3",
    "SELECT COUNT(*) AS n FROM orders WHERE CAST(prio AS TINYINT) > 2",
    "SELECT SUM(CAST(prio > 2 AS INTEGER)) AS n FROM orders",
    "SELECT COUNT(*) AS n FROM orders WHERE status NOT IN (SELECT maker FROM products WHERE kind = 'none')",
    "SELECT COUNT(*) AS n FROM orders WHERE (status IN (SELECT maker FROM products WHERE kind = 'none')) IS NULL",
    "SELECT COUNT(*) AS n FROM orders WHERE status NOT IN (SELECT maker FROM products)",
    "SELECT COUNT(*) AS n FROM orders WHERE status NOT IN (SELECT maker FROM products WHERE kind <> 'z')",
    "SELECT COUNT(*) AS n FROM orders o WHERE status NOT IN (SELECT maker FROM products p WHERE p.maker = o.status)",
    "SELECT COUNT(*) AS n FROM orders WHERE prio = ANY ([1, 2])",
    "SELECT COUNT(*) AS n FROM orders WHERE prio = ANY (ARRAY[1, 2, 3])",
    "SELECT COUNT(*) AS n FROM orders WHERE status = ANY (SELECT maker FROM products)",
    "SELECT prio, COUNT(*) AS n FROM orders GROUP BY prio ORDER BY prio LIMIT ALL",
    "SELECT COUNT(*) AS n FROM orders WHERE far BETWEEN -9007199254740993 AND 9007199254740993",
    "SELECT COUNT(*) AS n FROM orders WHERE far = -9007199254740993",
    *(f"SELECT COUNT(*) AS n FROM orders WHERE DATE_DIFF('{unit}', placed, DATE '2021-06-15') > {least}"
      for unit, least in (("day", 300), ("month", 14), ("quarter", 5), ("year", 1))),
]  # fmt: skip
OTHERWISE = [
    ("SELECT prio, COUNT(*) AS n FROM orders GROUP BY prio WITH ROLLUP",
     "SELECT prio, COUNT(*) AS n FROM orders GROUP BY ROLLUP (prio)"),
    ("SELECT prio, status, COUNT(*) AS n FROM orders WHERE status IS NOT NULL GROUP BY prio, status WITH CUBE",
     "SELECT prio, status, COUNT(*) AS n FROM orders WHERE status IS NOT NULL GROUP BY CUBE (prio, status)"),
    ("SELECT COUNT(*) AS n FROM orders WHERE status LIKE ANY ('p%', 'o%')",
     "SELECT COUNT(*) AS n FROM orders WHERE status LIKE 'p%' OR status LIKE 'o%'"),
    ("SELECT COUNT(*) AS n FROM orders WHERE status LIKE ANY ('p%', 'o%', 'r%')",
     "SELECT COUNT(*) AS n FROM orders WHERE status LIKE 'p%' OR status LIKE 'o%' OR status LIKE 'r%'"),
    ("SELECT COUNT(*) AS n FROM orders WHERE CAST(-prio AS UINTEGER) IS NULL",
     "SELECT COUNT(*) AS n FROM orders WHERE prio > 0"),
    ("SELECT SUM(CAST(prio * 100 AS TINYINT)) AS n FROM orders",
     "SELECT SUM(CASE WHEN prio < 2 THEN prio * 100 END) AS n FROM orders"),
]  # fmt: skip
"""What DuckDB says in other words."""


def read_rows(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    rows = [tuple(None if cell is None else float(cell) if not isinstance(cell, str) else cell for cell in row)
            for row in found]  # fmt: skip
    return sorted(rows, key=repr)


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize(("sql", "plain"), [*((sql, sql) for sql in ANSWERED), *OTHERWISE])
def test_what_is_answered_is_what_plain_sql_gives(shop: Any, sql: str, plain: str) -> None:
    curator, connection = shop
    answer = curator.query(sql, epsilon=1000, delta=1e-3, intervals=False)
    wanted = read_rows(connection.execute(plain).fetchall())
    found = read_rows([tuple(row.values()) for row in answer.to_pylist()])
    assert len(found) == len(wanted)
    for row, other in zip(found, wanted, strict=True):
        assert [cell if not isinstance(cell, float) else pytest.approx(cell, abs=0.51) for cell in row] == list(other)


REFUSED = [
    ("SELECT COUNT(*) FROM ((SELECT * FROM orders) o JOIN products p ON p.maker = o.status) x", "with 'JOINS'"),
    ("SELECT COUNT(*) FROM ((SELECT * FROM orders) LIMIT 3) t", "LIMIT of private rows"),
    ("SELECT COUNT(*) FROM orders WHERE cust IN ((SELECT cust FROM orders) LIMIT 2)", "LIMIT of private rows"),
    ("SELECT COUNT(*) FROM (SELECT * FROM orders) t TABLESAMPLE (10 PERCENT)", "SAMPLE"),
    ("SELECT COUNT(*) FROM (SELECT prio, status FROM orders) t PIVOT (COUNT(*) FOR status IN ('paid'))", "PIVOT"),
    ("SELECT COUNT(*) FROM (SELECT prio FROM orders UNION ALL SELECT prio FROM orders OFFSET 5) t", "OFFSET of"),
    ("SELECT 1 AS a, COUNT(*) AS n FROM orders UNION ALL BY NAME SELECT COUNT(*) AS n, 2 AS a FROM orders", "BY NAME"),
    ("SELECT COUNT(*) FROM orders WHERE placed + INTERVAL '1 month ago' < DATE '2020-01-01'", "interval cannot"),
    ("SELECT COUNT(*) FROM orders WHERE shipped + INTERVAL '1 day 02:30:00' < TIMESTAMP '2020-01-02'", "interval"),
    ("SELECT COUNT(*) FROM orders WHERE placed + INTERVAL 'P1M' < DATE '2020-01-01'", "interval cannot be read"),
    ("SELECT prio, COUNT(*) FROM orders GROUP BY prio LIMIT 40%", "PERCENT"),
    ("SELECT prio, COUNT(*) FROM orders GROUP BY prio LIMIT 2 WITH TIES", "WITH TIES"),
    ("SELECT prio, COUNT(*) FROM orders GROUP BY prio LIMIT 2 BY prio", "arguments or BY"),
    ("SELECT prio, COUNT(*) FROM orders GROUP BY prio FETCH FIRST 1 ROWS WITH TIES", "WITH TIES"),
    ("SELECT prio, COUNT(*) FROM orders GROUP BY prio WITH TOTALS", "WITH TOTALS"),
    ("SELECT prio, COUNT(*) FROM orders GROUP BY prio ORDER BY ALL", "ORDER BY ALL"),
    ("SELECT prio, COUNT(*) FROM orders GROUP BY 2", "GROUP BY 2 names an aggregate"),
    ("SELECT MAX(prio, 2) FROM orders", "second argument"),
    ("SELECT CORR(prio, total, prio) FROM orders", "third argument"),
    ("SELECT QUANTILE(prio, 0.5, 3) FROM orders", "'3' is not understood"),
    ("SELECT QUANTILE(prio, 0.5, total) FROM orders", "'total' is not understood"),
    ("SELECT COUNT(*) FROM orders WHERE DATE_TRUNC('day', shipped, 'America/New_York') > DATE '2020-01-02'",
     "'America/New_York' is not understood"),
    ("SELECT prio, RANK(prio) OVER (ORDER BY prio) FROM (SELECT prio, COUNT(*) FROM orders GROUP BY prio) t",
     "RANK is not understood with arguments"),
    ("SELECT LAG(n) IGNORE NULLS OVER (ORDER BY prio) FROM (SELECT prio, COUNT(*) AS n FROM orders GROUP BY prio) t",
     "LAG before OVER is not understood with all of these words"),
    ("SELECT COUNT(*) FROM shop.orders", "no schema 'shop'"),
    ("SELECT COUNT(*) FROM orders WHERE DATE_DIFF('hour', placed, DATE '2020-01-01') > 2", "units of 'hour'"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "words"), REFUSED)
def test_what_is_not_understood_is_refused_by_its_name(shop: Any, sql: str, words: str) -> None:
    with pytest.raises(QueryRefused, match=re.escape(words)):
        shop[0].explain(sql, epsilon=1)


def test_whatever_else_a_parser_sets_is_refused() -> None:
    """Each part that a class of the parser may have, and that is not read, one by one."""
    scope, tried = Scope(Clauses(""), ()), 0
    for kind, read in reading.READ_PARTS.items():
        for part in kind.arg_types.keys() - read:
            with pytest.raises(QueryRefused, match="is not understood with"):
                reading.refuse_unread_part(kind(**{part: exp.Literal.number(1)}), scope)
            tried += 1
    assert tried > 80


def test_every_aggregate_and_window_says_what_is_read_of_it() -> None:
    named = {getattr(exp, name) for name in re.findall(r"exp\.(\w+)", inspect.getsource(aggregates))}
    counted = {kind for kind in named if isinstance(kind, type) and issubclass(kind, exp.AggFunc)} - {exp.AggFunc}
    assert len(counted) > 30
    assert counted <= reading.READ_PARTS.keys()


def test_notes_say_what_a_join_of_rows_and_a_list_of_declared_values_leave_out(shop: Any) -> None:
    listed = shop[0].explain("SELECT DISTINCT prio FROM orders WHERE total > 9", epsilon=1)
    assert any("No aggregate is asked" in note for note in listed.notes)
    joined = shop[0].explain("SELECT COUNT(*) FROM marks JOIN products ON marks.k = products.kind", epsilon=1)
    assert any("counts with the first of them" in note for note in joined.notes)
    plain = shop[0].explain("SELECT COUNT(*) FROM marks", epsilon=1)
    assert not any("first of them" in note for note in plain.notes)
