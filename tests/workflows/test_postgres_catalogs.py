"""Catalogs as tools of PostgreSQL ask for them: functions are computed or refused, names and types are PostgreSQL's."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg")
asyncpg = pytest.importorskip("asyncpg")

PGADMIN = (
    "SET DateStyle=ISO; SET client_min_messages=notice; SELECT set_config('bytea_output','hex',false) FROM "
    "pg_show_all_settings() WHERE name = 'bytea_output'; SET client_encoding='utf-8';"
)
GRAFANA = (
    "(SELECT CASE WHEN trim(s[i]) = '\"$user\"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower("
    "string_to_array(current_setting('search_path'),','),1), array_upper(string_to_array(current_setting("
    "'search_path'),','),1)) as i, string_to_array(current_setting('search_path'),',') s)"
)


@pytest.fixture
def asking(served: Any) -> Any:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        yield connection


def test_pgadmin_connects_and_dates_are_read_afterwards(asking: Any) -> None:
    cursor = asking.execute(PGADMIN)
    found = []
    while True:
        found += cursor.fetchall() if cursor.description else []
        if not cursor.nextset():
            break
    assert found == [("hex",)]
    assert asking.info.parameter_status("DateStyle") == "ISO, MDY"
    assert asking.execute("SELECT * FROM people WHERE 1=0").fetchall() == []
    assert asking.execute("SELECT current_timestamp").fetchone()[0].tzinfo is not None
    own = asking.execute("SELECT rolname, rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user").fetchall()
    assert own == [("ana", False)]


def test_grafana_finds_tables_and_columns(asking: Any) -> None:
    tables = (
        f"SELECT quote_ident(table_name) FROM information_schema.tables WHERE quote_ident(table_schema) IN {GRAFANA}"
    )
    assert ("people",) in asking.execute(tables).fetchall()
    columns = """SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
        WHERE CASE WHEN array_length(parse_ident('public.people'),1) = 2
        THEN quote_ident(table_schema) = (parse_ident('public.people'))[1]
        AND quote_ident(table_name) = (parse_ident('public.people'))[2]
        ELSE quote_ident(table_name) = 'public.people' END"""
    assert ("age", "bigint") in asking.execute(columns).fetchall()


def test_metabase_learns_types_and_comments(asking: Any) -> None:
    found = asking.execute("""SELECT c.column_name, CASE WHEN c.udt_schema IN ('public','pg_catalog')
        THEN FORMAT('%s', c.udt_name) ELSE FORMAT('"%s"."%s"', c.udt_schema, c.udt_name) END,
        COL_DESCRIPTION(CAST(CAST(FORMAT('%I.%I', CAST(c.table_schema AS TEXT), CAST(c.table_name AS TEXT)) AS REGCLASS)
        AS OID), c.ordinal_position) FROM information_schema.columns AS c WHERE c.table_name = 'people'""").fetchall()
    assert ("age", "int8") in [row[:2] for row in found]
    assert all(row[1] and row[2] for row in found)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("to_regclass('public.people')::text", "people"),
        ("to_regclass('public.nothing')", None),
        ("'public.people'::regclass", "people"),
        ("'people'::regclass::oid = to_regclass('\"people\"')", True),
        ("'int8'::regtype::text", "bigint"),
        ("array_upper(ARRAY[1,2,3],1)", 3),
        ("array_lower(ARRAY[1,2,3],1)", 1),
        ("array_upper(ARRAY[1,2,3],2)", None),
        ("array_length(string_to_array('',','),1)", None),
        ("string_to_array('a,b',',')", ["a", "b"]),
        ("string_to_array('abc', NULL)", ["a", "b", "c"]),
        ("string_to_array('abc', '')", ["abc"]),
        ("string_to_array('a,n,b', ',', 'n')", ["a", None, "b"]),
        ("array_to_string(ARRAY['a',NULL,'b'], ',', '*')", "a,*,b"),
        ("array_to_string(ARRAY['a',NULL,'b'], ',')", "a,b"),
        ("interval '1 day 02:00'", datetime.timedelta(days=1, hours=2)),
        ("interval '3 days'", datetime.timedelta(days=3)),
        ("interval '-1 day 02:00:00.5'", datetime.timedelta(days=-1, hours=2, milliseconds=500)),
        ("interval '2' day", datetime.timedelta(days=2)),
        ("(date '2025-03-04' + interval '1 month 2 days')::date", datetime.date(2025, 4, 6)),
        ("round(2.5::float8)", 2.0),
        ("'on'::bool", True),
        ("ROW(1, 'a') = ROW(1, 'a')", True),
        ("'a' || " + " || ".join(f"'{letter}'" for letter in "bcdefghijklmnopqrst"), "abcdefghijklmnopqrst"),
        ("'a' || ('b' || NULL) || 'c'", None),
        ("format('%I.%s %L %%','A b',5,'c')", "\"A b\".5 'c' %"),
        ("quote_ident('Big \"Name')", '"Big ""Name"'),
        ("quote_ident('select')", '"select"'),
        ("quote_ident('people')", "people"),
        ("parse_ident('public.\"A.b\"')", ["public", "A.b"]),
        ("json_build_object('a',1,'b',NULL)", {"a": 1, "b": None}),
        ("to_json('x'::text)", "x"),
        ("'[1, 2]'::json", [1, 2]),
        ("'[1, 2]'::json::text", "[1, 2]"),
        ("10/4", 2),
        ("-7/2", -3),
        ("10/4.0", 2.5),
        ("1.5", Decimal("1.5")),
        ("round(2.5)", 3),
        ("1::numeric(10,2)", Decimal("1.00")),
        ("'{1,2}'::int[]", [1, 2]),
        ("ARRAY['a','b \"c',NULL]", ["a", 'b "c', None]),
        ("'abc'::varchar(2)", "ab"),
        ("has_table_privilege('people','SELECT')", True),
        ("has_table_privilege('people','INSERT')", False),
        ("has_table_privilege(current_user, 'people', 'INSERT, SELECT')", True),
        ("has_schema_privilege('public','CREATE')", False),
        ("has_schema_privilege('public','USAGE')", True),
        ("pg_size_pretty(123456::bigint)", "121 kB"),
        ("format_type(1043, 14)", "character varying(10)"),
        ("format_type(20, NULL)", "bigint"),
        ("pg_typeof(1)::text", "integer"),
        ("'pg_catalog' LIKE 'pg\\_%'", True),
        ("'pgx' LIKE 'pg\\_%'", False),
        ("2 = ANY('{1,2}'::int[])", True),
        ("'a' <> ALL ('{b,c}'::text[])", True),
        ("1 IS DISTINCT FROM 2", True),
        ("E'a\\tb'", "a\tb"),
        ("now() > '2020-01-01'::timestamptz", True),
        ("pg_advisory_xact_lock(7) IS NULL", False),
        ("pg_try_advisory_xact_lock_shared(1, 2)", True),
        ("current_setting('search_path')", '"$user", public'),
    ],
)
def test_functions_are_computed_as_postgresql_does(asking: Any, postgres_address: Any, asked: str, answer: Any) -> None:
    statement = f"SELECT {asked}".encode()
    for binary in (False, True):
        assert asking.execute(statement, binary=binary).fetchone()[0] == answer
    if "people" not in asked and "privilege" not in asked:
        with psycopg.connect(postgres_address) as real:
            truth = real.execute(statement).fetchone()[0]
            assert truth == answer or str(truth) == str(answer)


@pytest.mark.parametrize(
    ("asked", "state"),
    [
        ("row(1, 'a')", "0A000"), ("char_length('a', 'b')", "42883"), ("quote_ident('a', 'b')", "42883"),
        ("'x'::int", "22P02"), ("'maybe'::bool", "22P02"), ("99999::int2", "22003"), ("'99999'::int2", "22003"),
        ("'a' = 'a '::bpchar", "0A000"),
    ],
)  # fmt: skip
def test_what_would_have_another_value_than_in_postgresql_is_refused(asking: Any, asked: str, state: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        asking.execute(f"SELECT {asked}".encode())
    assert refused.value.sqlstate == state


def test_a_long_chain_of_texts_is_put_together_at_once(asking: Any) -> None:
    chain = " || ".join(["relname", *["'x'"] * 60])
    asked = f"SELECT {chain} FROM pg_class WHERE relname = 'people'"
    assert asking.execute(asked.encode()).fetchone() == ("people" + "x" * 60,)


def test_series_are_rows_wherever_they_stand(asking: Any) -> None:
    for asked in (
        "SELECT generate_series(1,3)",
        "SELECT * FROM generate_series(1,3)",
        "SELECT i FROM generate_series(1,3) i",
    ):
        assert asking.execute(asked.encode()).fetchall() == [(1,), (2,), (3,)]
    found = asking.execute("SELECT a, n FROM unnest(ARRAY['x','y']) WITH ORDINALITY AS u(a, n)").fetchall()
    assert found == [("x", 1), ("y", 2)]


@pytest.mark.parametrize(
    "asked",
    [
        "SELECT pg_read_file('x')",
        "SELECT age('2020-01-01'::date)",
        "SELECT 'nothing'::regclass",
        "SELECT has_table_privilege('nothing','SELECT')",
        "SELECT current_setting('nothing')",
        "SELECT format(relname) FROM pg_class",
        "SELECT relname FROM pg_class WHERE set_config('jit','off',false) = 'off'",
        "SELECT '{1,2'::int[]",
    ],
)
def test_what_cannot_be_computed_is_refused_and_never_null(asking: Any, asked: str) -> None:
    with pytest.raises(psycopg.Error):
        asking.execute(asked.encode()).fetchall()


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("SELECT count(*) FROM information_schema.columns", ["count"]),
        ("SELECT 1, TRUE, 1+1", ["?column?", "?column?", "?column?"]),
        ("SELECT relname AS TABLE_NAME, relname, relname FROM pg_class", ["table_name", "relname", "relname"]),
        ("SELECT relname::text, upper(relname), 'a'::text FROM pg_class", ["relname", "upper", "text"]),
        (
            "SELECT CASE WHEN true THEN 1 END, coalesce(1,2), ARRAY[1], (SELECT 1 AS x)",
            ["case", "coalesce", "array", "x"],
        ),
        ("SELECT t.oid, t.* FROM (SELECT oid, relname FROM pg_class) t", ["oid", "oid", "relname"]),
        ("SELECT a.relname at FROM pg_class a", ["at"]),
        ("VALUES (1, 2)", ["column1", "column2"]),
        (
            "SELECT * FROM (SELECT sex, count(*), avg(age) FROM people GROUP BY sex) t WHERE 1=0",
            ["sex", "count", "avg"],
        ),
        ("SELECT date_part('year', seen), sum(age) FROM people GROUP BY 1 LIMIT 0", ["date_part", "sum"]),
    ],
)
def test_columns_have_the_names_that_postgresql_gives(asking: Any, asked: str, names: list[str]) -> None:
    assert [column.name for column in asking.execute(asked.encode()).description] == names


def test_types_are_those_of_postgresql(asking: Any) -> None:
    found = asking.execute("SELECT current_timestamp, 1.5, 1, 1::bigint, ARRAY['a'], current_date, true")
    assert [column.type_code for column in found.description] == [1184, 1700, 23, 20, 1009, 1082, 16]
    moment, _, _, _, _, day, _ = found.fetchone()
    assert moment.utcoffset() == datetime.timedelta(0)
    assert day == moment.date()


def test_npgsql_learns_which_types_are_arrays(asking: Any) -> None:
    found = asking.execute("""SELECT typ.typname, elem.typname FROM pg_type typ
        JOIN pg_proc proc ON proc.oid = typ.typreceive
        JOIN pg_type elem ON elem.oid = typ.typelem WHERE proc.proname = 'array_recv'""").fetchall()
    assert ("_int8", "int8") in found
    assert ("_text", "text") in found


def test_parameters_beside_columns_of_the_catalog_have_their_types(served: Any, asking: Any) -> None:
    import asyncio

    asked = "SELECT relname FROM pg_class WHERE relkind = ANY(%s)"
    assert ("people",) in asking.execute(asked, (["r", "p"],)).fetchall()

    async def ask() -> list[Any]:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=served.postgres, user="ana", password=served.tokens["ana"], database="clinic"
        )
        try:
            return list(
                await connection.fetch("SELECT attname FROM pg_attribute WHERE attnum > $1 AND attnum < $2", 0, 3)
            )
        finally:
            await connection.close()

    assert len(asyncio.run(ask())) >= 2


@pytest.mark.parametrize(
    "asked",
    [
        "SELECT lpad('a', 300000000, 'b')",
        "SELECT repeat('a', 2000000000)",
        "SELECT generate_series(1, 1000000000)",
        "SELECT replace(lpad('x',2000,'x'),'x',lpad('x',2000,'y'))",
        "SELECT $99999999",
        "SELECT count(*) FROM people WHERE age = $99999999",
        "SELECT " + "(" * 3000 + "1" + ")" * 3000,
        "SELECT " + "||".join(["'a'"] * 500),
        "SELECT " + "+".join(["1"] * 5000),
        "SELECT " + ", ".join([f"quote_ident(quote_ident(relname || '{n}'))" for n in range(40)]) + " FROM pg_class",
        "SELECT string_agg(lpad(a.typname, 2000, 'y'), '') FROM pg_type a, pg_type b, pg_type c, pg_type d, pg_type e",
    ],
    ids=range(11),
)
def test_a_free_question_cannot_fill_the_memory(asking: Any, asked: str) -> None:
    before = read_resident()
    with pytest.raises(psycopg.Error):
        asking.execute(asked.encode(), prepare=False).fetchall()
    assert read_resident() - before < 400 * 2**20
    assert asking.execute("SELECT 1").fetchone() == (1,)


def read_resident() -> int:
    """Bytes that this process, in which the server runs, holds in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize(
    "asked",
    [
        "SELECT * FROM people, pg_class",
        "WITH x AS (SELECT * FROM people) SELECT * FROM x, pg_class",
        "SELECT (SELECT max(age) FROM people) FROM pg_class",
        "SELECT * FROM pg_class WHERE EXISTS (SELECT 1 FROM people)",
        "SELECT * FROM pg_class, read_text('/etc/passwd')",
        "SELECT * FROM pg_class, '/etc/passwd'",
        "SELECT * FROM pg_class, duckdb_settings()",
        "SELECT getenv('HOME') FROM pg_class",
        "SELECT * FROM pg_class, pg_catalog.people",
        "SELECT * INTO x FROM pg_class",
        "SELECT * FROM pg_class FOR UPDATE",
        "SELECT query('SELECT 1') FROM pg_class",
        "SELECT b.* FROM (WITH duckdb_views AS (SELECT 1) SELECT * FROM duckdb_views) a, duckdb_views b, pg_class c",
        "WITH duckdb_views AS (SELECT * FROM duckdb_views) SELECT * FROM duckdb_views, pg_class",
        "SELECT relname FROM pg_class LIMIT (SELECT 3000000)",
        "SELECT relname FROM pg_class LIMIT 1e3",
        "SELECT COLUMNS('a') FROM pg_class",
        "WITH x AS (DELETE FROM pg_class RETURNING *) SELECT * FROM x",
        "SELECT * FROM memory.main.pg_class",
        "SELECT * FROM information_schema.people",
        "SELECT * FROM registered_names, pg_class",
    ],
)
def test_no_question_about_the_catalog_reaches_rows_files_or_the_engine(asking: Any, asked: str) -> None:
    with pytest.raises(psycopg.Error):
        asking.execute(asked.encode()).fetchall()


def test_calls_within_calls_and_limits_in_any_form_are_answered(asking: Any) -> None:
    nested = "SELECT quote_ident(quote_ident(quote_ident(quote_ident(relname)))) FROM pg_class WHERE relname = 'people'"
    assert asking.execute(nested).fetchall() == [("people",)]
    for written in ("LIMIT 1", "LIMIT '1'::bigint"):
        assert len(asking.execute(f"SELECT relname FROM pg_class {written}").fetchall()) == 1
    common = "WITH a AS (SELECT relname FROM pg_class), b AS (SELECT * FROM a) SELECT count(*) > 0 FROM b"
    assert asking.execute(common).fetchone() == (True,)
