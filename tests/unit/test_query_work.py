"""No row decides how long a question takes: texts, joins and the question itself have public bounds."""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa
import pytest

import clinic
from deniable import Curator
from deniable.errors import QueryRefused
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.document import parse
from deniable.query.algebra.expression import LONGEST_TEXT
from deniable.query.compile import compile_query
from deniable.query.sql import clauses
from deniable.query.sql.render import MOST_PAIRS, render_relation

BUDGET = ApproxDP(Fraction(1), Fraction(1, 10**6))


def _nest(function: str, times: int, inner: str = "note") -> str:
    for _ in range(times):
        inner = function.format(inner)
    return inner


KEYS = [f"EXTRACT({part} FROM seen)" for part in ("minute", "second", "doy", "week")]
TOO_MUCH = {
    "eight REPLACE behind a name": "SELECT COUNT(*) FROM visits WHERE CASE WHEN city = 'Bob' THEN "
    + _nest("REPLACE({}, 'a', 'aaaaaaaa')", 8)
    + " = 'x' ELSE FALSE END",
    "a text doubled again and again": f"SELECT COUNT(*) FROM visits WHERE {_nest('({0} || {0})', 6)} = 'x'",
    "doubled in sub-queries": "SELECT COUNT(*) FROM "
    + _nest("(SELECT pid, s || s AS s FROM {}) AS q", 30, "(SELECT pid, note AS s FROM visits) AS q")
    + " WHERE s = 'x'",
    "one column searched for another": "SELECT COUNT(*) FROM visits WHERE CONTAINS(note, city)",
    "LIKE with a column as pattern": "SELECT COUNT(*) FROM visits WHERE note LIKE city",
    "REPLACE of a column by a column": "SELECT COUNT(*) FROM visits WHERE REPLACE(note, city, note) = 'x'",
    "clamps within clamps": f"SELECT SUM({_nest('CLAMP({} + 1, 0, 100)', 20, 'age')}) FROM visits",
    "grouping sets with too many groups together": "SELECT COUNT(*) FROM visits GROUP BY GROUPING SETS ("
    + ", ".join(f"(age, {a}, {b})" for a in KEYS for b in KEYS)
    + ")",
    "three hundred sides": "SELECT COUNT(*) FROM (" + " UNION ALL ".join(["SELECT age FROM visits"] * 300) + ") AS u",
    "WITH queries that double": "WITH c0 AS (SELECT pid, age FROM visits)"
    + "".join(f", c{i} AS (SELECT * FROM c{i - 1} UNION ALL SELECT * FROM c{i - 1})" for i in range(1, 40)).replace(
        "SELECT *", "SELECT pid, age"
    )
    + " SELECT COUNT(*) FROM c39",
    "keys that grow in sub-queries": "SELECT k, COUNT(*) FROM "
    + _nest("(SELECT pid, k + k AS k FROM {}) AS q", 40, "(SELECT pid, age AS k FROM visits) AS q")
    + " GROUP BY k",
}


@pytest.mark.parametrize("sql", TOO_MUCH.values(), ids=TOO_MUCH)
def test_what_one_row_could_make_slow_is_refused_before_it_is_charged(sql: str) -> None:
    with pytest.raises(QueryRefused):
        compile_query(sql, clinic.TABLES, BUDGET)


FINE = (
    "SELECT COUNT(*) FROM visits WHERE REPLACE(REPLACE(note, '-', ''), ' ', '') = 'x'",
    "SELECT COUNT(*) FROM visits WHERE note || ' ' || city LIKE '%again%'",
    "SELECT COUNT(*) FROM visits WHERE CONTAINS(LEFT(note, 1000), LEFT(city, 100))",
    "SELECT COUNT(*) FROM visits WHERE UPPER(TRIM(note)) ILIKE '%a_b%' OR ENDS_WITH(note, 'x')",
    "SELECT COUNT(*) FROM (" + " UNION ALL ".join(["SELECT age FROM visits"] * 100) + ") AS u",
)


@pytest.mark.parametrize("sql", FINE)
def test_ordinary_questions_about_texts_are_answered(sql: str) -> None:
    compile_query(sql, clinic.TABLES, BUDGET)


def test_compiling_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clauses, "COMPILE_SECONDS", -1)
    with pytest.raises(QueryRefused, match="seconds of computing"):
        compile_query("SELECT COUNT(*) FROM visits", clinic.TABLES, BUDGET)


TEXTS = """
version: 1
dataset: d
tables: {t: {source: t.csv, unit: {column: u, max_groups: 1, max_rows_per_group: 1}, columns: {u: {}, s: {}}}}
budgets: {dataset: {epsilon: 20000}}
"""


@pytest.mark.parametrize(("letter", "extra"), [("a", 0), ("a", 1), ("é", 1), ("a", 5 * LONGEST_TEXT)])
def test_a_longer_text_is_cut_where_it_is_read(letter: str, extra: int) -> None:
    rows = pa.table({"u": ["1"], "s": [letter * (LONGEST_TEXT + extra)]})
    with Curator(parse(TEXTS), sources={"t": rows}) as curator:
        sql = f"SELECT COUNT(*) AS n FROM t WHERE LENGTH(s) = {LONGEST_TEXT}"
        assert curator.query(sql, epsilon=9999).rows["n"].to_pylist() == [1]


JOINED = """
version: 1
dataset: d
tables:
  a: {source: a.csv, unit: {column: u, max_groups: 1, max_rows_per_group: 1}, columns: {u: {type: integer}}}
  b: {source: b.csv, unit: {column: u, max_groups: 1, max_rows_per_group: 1}, columns: {u: {type: integer}}}
"""


@pytest.mark.parametrize(("left", "right", "kept"), [(1000, 1000, True), (1001, 1000, False), (MOST_PAIRS, 1, True)])
@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
def test_whoever_makes_too_many_pairs_is_left_out_of_a_join_and_nobody_else(
    left: int, right: int, kept: bool, kind: str
) -> None:
    import duckdb

    tables = parse(JOINED).tables
    plan = compile_query(f"SELECT COUNT(*) FROM a {kind} b ON a.u = b.u", tables, PureDP(Fraction(1)))
    statement = render_relation(plan.nodes[0].node.input)
    with duckdb.connect() as connection:
        for name, many in (("a", left), ("b", right)):
            connection.execute(f"CREATE TABLE {name} AS SELECT 1 AS u FROM range({many}) UNION ALL VALUES (2), (2)")
        found = connection.execute(f'SELECT "_unit", count(*) FROM ({statement}) GROUP BY 1 ORDER BY 1').fetchall()
    assert found == ([(1, left * right), (2, 4)] if kept else [(2, 4)])


@pytest.mark.parametrize(
    "sql", ["SELECT COUNT(*) FROM b JOIN a ON a.u = b.u", "SELECT COUNT(*) FROM a x JOIN a y ON x.u = y.u"]
)
def test_a_join_reads_the_tables_that_it_names(sql: str) -> None:
    rows = pa.table({"u": [1, 1, 2]})
    policy = parse(JOINED + "budgets: {dataset: {epsilon: 20000}}")
    with Curator(policy, sources={"a": rows, "b": rows}) as curator:
        assert curator.query(sql, epsilon=9999).rows["count"].to_pylist() == [2]
