"""The column that tells people apart, for an analyst who may not name it: counted and joined by, never looked at."""

from __future__ import annotations

import pyarrow as pa
import pytest

from deniable import Curator
from deniable.errors import QueryRefused
from deniable.governance.grants import Asker, Role
from deniable.policy.document import parse

POLICY = """
version: 1
dataset: d
tables:
  t:
    source: t.csv
    unit: {column: p, max_groups: 2, max_rows_per_group: 2}
    columns: {p: {type: integer, between: [0, 999]}, town: {categories: [a, b]}, age: {type: integer, between: [0, 99]}}
  s:
    source: s.csv
    unit: {column: p, max_groups: 2, max_rows_per_group: 2}
    columns: {p: {type: integer, between: [0, 999]}, x: {type: integer, between: [0, 999]}}
  ids: {source: ids.csv, public: true, columns: {n: {type: integer}}}
budgets:
  dataset: {epsilon: 1000, delta: 1e-4}
  purposes: {study: {epsilon: 900, delta: 1e-5}}
  analysts:
    ana: {purposes: [study], columns: [town, age, x]}
    bea: {purposes: [study], columns: [town, age, x, s.p]}
"""
SOURCES = {
    "t": pa.table({"p": list(range(50)), "town": ["a", "b"] * 25, "age": list(range(50))}),
    "s": pa.table({"p": list(range(50)), "x": list(range(50))}),
    "ids": pa.table({"n": list(range(20))}),
}
REFUSED = [
    "SELECT COUNT(*) FROM t WHERE p = 3",
    "SELECT COUNT(*) FROM t WHERE p IN (3, 4)",
    "SELECT COUNT(*) FROM t WHERE p BETWEEN 1 AND 5",
    "SELECT COUNT(*) FROM t WHERE p IS NULL",
    "SELECT COUNT(*) FROM t WHERE CAST(p AS TEXT) LIKE '3%'",
    "SELECT COUNT(*) FROM t WHERE COALESCE(p, 1) = 1",
    "SELECT COUNT(*) FROM t WHERE CASE WHEN p = 1 THEN TRUE ELSE FALSE END",
    "SELECT p, COUNT(*) FROM t GROUP BY p",
    "SELECT p % 2 AS k, COUNT(*) FROM t GROUP BY k",
    "SELECT MIN(p), MAX(p) FROM t",
    "SELECT SUM(p) FROM t",
    "SELECT MEDIAN(p) FROM t",
    "SELECT HISTOGRAM(p, 10) FROM t",
    "SELECT COUNT(DISTINCT p + 1) FROM t",
    "SELECT COUNT(DISTINCT x) FROM (SELECT p, p AS x FROM t UNION ALL SELECT p, age AS x FROM t) u",
    "SELECT COUNT(DISTINCT x) FROM (SELECT p, age AS x FROM t UNION ALL SELECT p, p AS x FROM t) u",
    "SELECT COUNT(DISTINCT x) FROM (SELECT p, p AS x FROM t UNION ALL SELECT p, 3 AS x FROM t) u",
    "SELECT COUNT(DISTINCT x) FROM (SELECT p, p AS x FROM t UNION ALL SELECT p, age * 2 AS x FROM t) u",
    "SELECT town, COUNT(DISTINCT x) FROM (SELECT p, town, p AS x FROM t UNION ALL SELECT p, town, age FROM t) u "
    "GROUP BY town",
    "SELECT COUNT(*) FROM t JOIN ids ON t.p = ids.n",
    "SELECT COUNT(*) FROM (SELECT p, MAX(p) AS m FROM t GROUP BY p) q WHERE m > 3",
    "SELECT COUNT(*) FROM (SELECT p AS q FROM t) z WHERE q = 3",
]
ALLOWED = [
    "SELECT COUNT(DISTINCT p) FROM t",
    "SELECT COUNT(*) FROM t JOIN s ON t.p = s.p",
    "SELECT AVG(CLAMP(n, 0, 5)) FROM (SELECT p, COUNT(*) AS n FROM t GROUP BY p) q",
    "SELECT COUNT(DISTINCT p) FROM (SELECT p FROM t UNION ALL SELECT p FROM s) u",
]


def _ask(sql: str, name: str) -> int:
    """How many rows the answer has."""
    with Curator(parse(POLICY), sources=SOURCES) as curator:
        answer = curator.query(sql, epsilon=1, delta="1e-6", who=Asker(name, "study", Role.ANALYST))
        return len(answer.to_pylist())


@pytest.mark.parametrize("sql", REFUSED)
def test_no_question_looks_at_the_opaque_column(sql: str) -> None:
    with pytest.raises(QueryRefused):
        _ask(sql, "ana")


@pytest.mark.parametrize("sql", ALLOWED)
def test_people_are_counted_and_joined_by_the_opaque_column(sql: str) -> None:
    assert _ask(sql, "ana") >= 1


def test_ids_that_may_be_named_in_one_table_tell_nothing_of_those_in_another() -> None:
    with pytest.raises(QueryRefused):
        _ask(
            "SELECT COUNT(DISTINCT p) FROM (SELECT p FROM t WHERE town = 'a' UNION ALL "
            "SELECT p FROM s WHERE p BETWEEN 0 AND 20) u",
            "bea",
        )
