"""Statements of one shape are parsed once, and say what they said when each was parsed by itself."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.duckdb.connection import LARGEST, MOST, StatementCache, parameterize
from deniable.errors import InternalError

NUMBERS = st.integers(-(2**63) + 1, 2**63 - 1)
SQL = (
    "SELECT count(*) AS n, CAST(coalesce(sum(x % CAST({0} AS BIGINT)), 0) AS BIGINT) AS total,"
    " length('it''s CAST({1} AS BIGINT)') AS \"CAST({1} AS BIGINT)\" FROM t WHERE x < CAST({1} AS BIGINT)"
)


@pytest.fixture
def cursor():
    with duckdb.connect(config={"threads": "1"}) as connection:
        connection.execute("CREATE TABLE t AS SELECT range - 50 AS x FROM range(100)")
        yield connection


@given(first=NUMBERS, second=NUMBERS)
def test_a_shape_with_its_numbers_is_the_statement(first: int, second: int) -> None:
    sql = SQL.format(first, second)
    shape, numbers = parameterize(sql)
    for place, number in enumerate(numbers, start=1):
        shape = shape.replace(f"CAST(${place} AS", f"CAST({number} AS")
    assert shape == sql
    assert set(numbers) == {first, second}


def test_a_remembered_shape_gives_what_the_text_gives(cursor) -> None:
    shapes = StatementCache()
    for pair in [(7, 3), (7, 7), (1, 0), (-3, 49), (LARGEST, 12), (5, 0)]:
        sql = SQL.format(*pair)
        assert shapes.execute(cursor, sql).fetchall() == cursor.execute(sql).fetchall()


def test_equal_numbers_in_select_and_group_by_stay_equal(cursor) -> None:
    shapes = StatementCache()
    sql = "SELECT x // CAST({0} AS BIGINT) AS k, count(*) FROM t GROUP BY x // CAST({0} AS BIGINT) ORDER BY k"
    for number in (7, 9):
        assert shapes.execute(cursor, sql.format(number)).fetchall() == cursor.execute(sql.format(number)).fetchall()


def test_texts_and_names_that_look_like_numbers_of_ours_are_left_alone() -> None:
    for sql in ("SELECT 'CAST(1 AS BIGINT)'", "SELECT 'it''s CAST(1 AS BIGINT)'", 'SELECT "a CAST(1 AS BIGINT)"'):
        assert parameterize(sql) == (sql, ())


def test_numbers_beyond_64_bits_and_too_many_of_them_stay_in_the_text() -> None:
    large = f"SELECT CAST({LARGEST + 1} AS UBIGINT)"
    many = f"SELECT {', '.join(f'CAST({i} AS BIGINT)' for i in range(MOST + 1))}"
    assert parameterize(large) == (large, ())
    assert parameterize(many) == (many, ())


def test_only_so_many_shapes_are_remembered(cursor) -> None:
    shapes = StatementCache()
    for place in range(3 * MOST):
        shapes.execute(cursor, f"SELECT {place} AS n")
    assert len(shapes._parsed) == MOST


def test_only_one_reading_statement_runs(cursor) -> None:
    for sql in ("DROP TABLE t", "SELECT 1; SELECT 2", "INSERT INTO t VALUES (CAST(1 AS BIGINT))", ""):
        with pytest.raises(InternalError):
            StatementCache().execute(cursor, sql)
    assert cursor.execute("SELECT count(*) FROM t").fetchall() == [(100,)]


def test_a_source_attached_anew_under_its_name_is_seen_by_a_shape_that_was_parsed_before() -> None:
    sql = "SELECT count(*) AS n, count(*) FILTER (WHERE x > CAST({} AS BIGINT)) AS more FROM t"
    with DuckDBEngine() as engine:
        engine.attach("t", pa.table({"x": [1, 2, 3]}))
        assert engine.run(sql.format(1), one_row=True).to_pylist() == [{"n": 3, "more": 2}]
        engine.attach("t", pa.table({"x": [1, 2, 3, 4]}))
        assert engine.run(sql.format(2), one_row=True).to_pylist() == [{"n": 4, "more": 2}]
