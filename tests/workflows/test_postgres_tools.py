"""What tools ask of a PostgreSQL server: their start-up and catalog questions, typed parameters, arrays, pools."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

import wire_recorder
from deniable.errors import ParameterError
from deniable.query.sql.clauses import fill_parameters
from deniable.query.sql.lexer import split_statements
from deniable.server.wire import values as v
from deniable.server.wire.catalog_queries import asks_for_columns, is_catalog_question
from deniable.server.wire.prepared_statements import expand_arrays, infer_types

psycopg = pytest.importorskip("psycopg")
FILE = Path(__file__).parents[1] / "golden" / "wire" / "tool_questions.txt"
TYPES = {"age": v.INT8, "sex": v.TEXT, "seen": v.DATE, "height": v.FLOAT8}


def read_questions() -> list[tuple[str, str]]:
    """Every question with its tool."""
    parts = (part.partition("\n") for part in FILE.read_text().split("\n== ")[1:])
    return [(tool, question.strip()) for tool, _, rest in parts for question in rest.split("\n;;\n")]


def count_charges(served: Any) -> int:
    return sum(1 for _ in served.curator.ledger.entries(acts=("charge",)))


def test_nearly_all_questions_of_fifteen_tools_are_answered_free_of_charge(served: Any) -> None:
    questions, refused, before = read_questions(), [], count_charges(served)
    assert len({tool for tool, _ in questions}) >= 15
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        for tool, question in questions:
            try:
                found = connection.execute(question.encode())
                if found.description is not None:
                    assert "CANARY" not in str(found.fetchall())
            except psycopg.Error:
                refused.append((tool, question[:80]))
    assert len(refused) <= 0.05 * len(questions), refused
    assert count_charges(served) == before


def test_tools_see_the_declared_columns_of_an_answer_without_rows(served: Any) -> None:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        for question in ("SELECT * FROM people WHERE 1=0", 'SELECT * FROM "public"."people" LIMIT 0'):
            found = connection.execute(question.encode())
            shown = {column.name: column.type_code for column in found.description}
            assert found.fetchall() == []
            assert shown["age"] == v.INT8
            assert shown["seen"] == v.DATE
            assert "note" not in shown or shown["note"] == v.TEXT


@pytest.mark.parametrize(
    "shown",
    ["SUM(age)", "COUNT(*) / 2", "COUNT(*)::int", "AVG(age)", "MIN(seen)", "COUNT(*) + 0.5", "COUNT(*) > 5", "'a'",
     "CAST(COUNT(*) AS DECIMAL(10, 2))", "COUNT(*)::text", "COALESCE(SUM(age), 0)",
     "CASE WHEN COUNT(*) > 5 THEN 1 END"],
)  # fmt: skip
def test_an_answer_without_rows_has_the_types_of_the_question(served: Any, shown: str) -> None:
    asked = f"SELECT {shown} AS v, COUNT(*) AS n FROM people"
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 1")
        found = connection.cursor(binary=True).execute(asked, prepare=True)
        types, before = [each.type_code for each in found.description], count_charges(served)
        for none in (" WHERE 1 = 0", " WHERE (FALSE) LIMIT 5", " LIMIT 0"):
            for cursor in (psycopg.ClientCursor(connection), connection.cursor(), connection.cursor(binary=True)):
                cursor.execute(asked + none)
                assert [each.type_code for each in cursor.description] == types, none
                cursor.fetchall()
    assert count_charges(served) == before


@pytest.mark.parametrize(
    ("value", "told"),
    [(float("inf"), r"\$1 is not a value of float8"), (b"x", r"\$1 is a value in bytes"),
     (datetime.time(3), r"\$1 is a time of the")],
)  # fmt: skip
def test_a_value_that_is_not_taken_is_refused_in_words_before_a_charge(served: Any, value: object, told: str) -> None:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 1")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=told) as refused:
            connection.execute("SELECT COUNT(*) FROM people WHERE age > %s", (value,))
        assert "Nothing was charged." in refused.value.diag.message_detail


@pytest.mark.parametrize("never", ["1=0", "0 = 1", "false", "1 <> 1", "1 = 2", "null"])
def test_words_of_questions_about_people_stand_in_an_answer_without_rows(served: Any, never: str) -> None:
    before = count_charges(served)
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        asked = f"SELECT MEDIAN(age) AS m, COUNT_IF(age > 3) AS n FROM people WHERE {never}"
        assert connection.execute(asked.encode()).fetchall() == [(None, 0)]
    assert count_charges(served) == before


@pytest.mark.parametrize(
    ("sql", "empty"),
    [
        ("SELECT * FROM people WHERE 1=0", True),
        ("SELECT * FROM people WHERE (0 = 1)", True),
        ("SELECT sex FROM people WHERE false LIMIT 1", True),
        ("SELECT sex FROM people LIMIT 0", True),
        ("SELECT COUNT(*) FROM people WHERE 1=0 OR age > 3", False),
        ("SELECT COUNT(*) FROM people WHERE age > 3 AND 1=0", False),
        ("SELECT COUNT(*) FROM people WHERE 1=0 UNION ALL SELECT COUNT(*) FROM people", False),
        ("SELECT COUNT(*) FROM (SELECT * FROM people WHERE 1=0) s", False),
        ("SELECT COUNT(*) FROM people LIMIT 10", False),
        ("SELECT COUNT(*) FROM people WHERE sex = 'WHERE 1=0'", False),
    ],
)
def test_only_what_can_have_no_rows_is_answered_without_people(sql: str, empty: bool) -> None:
    [statement] = split_statements(sql)
    assert asks_for_columns(statement) is empty
    assert is_catalog_question(statement) is empty


@pytest.mark.parametrize(
    ("sql", "oids", "found"),
    [
        ("SELECT COUNT(*) FROM p WHERE age > $1", (), (v.INT8,)),
        ("SELECT COUNT(*) FROM p WHERE age + $1 > 30 AND $2 * height < p.age - $3", (), (v.INT8, v.FLOAT8, v.INT8)),
        (
            "SELECT COUNT(*) FROM p WHERE LENGTH(sex) > $1 AND $2 < ABS(age) AND 3 < $3",
            (),
            (v.INT8, v.FLOAT8, v.FLOAT8),
        ),
        ("SELECT COUNT(*) FROM p WHERE LOWER(sex) = $1", (), (v.TEXT,)),
        ("SELECT COUNT(*) FROM p WHERE $1 <= p.age AND p.seen = $2", (), (v.INT8, v.DATE)),
        ("SELECT COUNT(*) FROM p WHERE age BETWEEN $1 AND $2", (), (v.INT8, v.INT8)),
        ("SELECT COUNT(*) FROM p WHERE age NOT IN ($1, $2, 7, $3)", (), (v.INT8,) * 3),
        ("SELECT COUNT(*) FROM p WHERE height < $2 AND sex = $1", (), (v.TEXT, v.FLOAT8)),
        ("SELECT COUNT(*) FROM p WHERE age = ANY($1) AND sex <> ALL($2)", (), (1016, 1009)),
        ("SELECT COUNT(*) FROM p WHERE x = $1::date AND y = CAST($2 AS bigint)", (), (v.DATE, v.INT8)),
        ("SELECT COUNT(*) FROM p WHERE x = ANY($1::int[])", (), (1007,)),
        ("SELECT COUNT(*) FROM p WHERE age > $1 AND sex = $2", (v.INT4, 0), (v.INT4, v.TEXT)),
        ("SELECT COUNT(*) FROM p WHERE unknown = $1 LIMIT $2", (), (v.TEXT, v.INT8)),
        ("SELECT $3", (), (v.TEXT,) * 3),
    ],
)
def test_types_of_parameters_follow_from_the_words_around_them(
    sql: str, oids: tuple[int, ...], found: tuple[int, ...]
) -> None:
    [statement] = split_statements(sql)
    assert infer_types(statement, oids, TYPES) == found


def test_lists_become_in_and_no_member_becomes_anything_but_a_value() -> None:
    [statement] = split_statements("SELECT 1 FROM p WHERE sex = ANY ($2) AND age <> ALL($1::int8[]) AND x = $3")
    text, filled = expand_arrays(statement, [[1, None], ["F'; DROP"], 5])
    assert text == "SELECT 1 FROM p WHERE sex IN ($2) AND age NOT IN ($1, $4) AND x = $3"
    assert filled == (1, "F'; DROP", 5, None)
    [twice] = split_statements("SELECT 1 FROM p WHERE sex = ANY ($1) OR race = ANY ($1)")
    text, filled = expand_arrays(twice, [["F", "M"]])
    assert (text, filled) == ("SELECT 1 FROM p WHERE sex IN ($1, $2) OR race IN ($1, $3)", ("F", "M", "M"))
    [longest] = split_statements("SELECT 1 FROM p WHERE sex = ANY ($1)")
    assert fill_parameters(*expand_arrays(longest, [["F"] * 1000])).count("'F'") == 1000, "a list of 1,000 is allowed"
    assert expand_arrays(statement, [[], [], 5]) == (statement.text, ("{}", "{}", 5))


@pytest.mark.parametrize(
    ("text", "oid", "found"),
    [
        ("{1,2,NULL}", 1016, [1, 2, None]),
        ('{"a b",c,"q\\"x","NULL"}', 1009, ["a b", "c", 'q"x', "NULL"]),
        ("{}", 1009, []),
        ("{2025-01-02}", 1182, [datetime.date(2025, 1, 2)]),
    ],
)
def test_arrays_are_read_as_text(text: str, oid: int, found: list[Any]) -> None:
    assert v.decode_value(text.encode(), oid, False, 1) == found


@pytest.mark.parametrize("text", ["1,2", "{1", "{{1},{2}}", "{a}", '{"1}', "{1 2}"])
def test_what_is_no_array_of_numbers_is_refused_without_its_value(text: str) -> None:
    with pytest.raises(ParameterError, match=r"parameter \$4 is not a value"):
        v.decode_value(text.encode(), 1016, False, 4)


def test_a_list_that_is_too_long_is_refused_for_its_length() -> None:
    with pytest.raises(ParameterError, match="at most 1000 members"):
        v.decode_value(("{" + "1," * 2000 + "1}").encode(), 1016, False, 4)


def test_asyncpg_binds_numbers_days_and_lists_and_its_pool_resets_connections(served: Any) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def run() -> None:
        place = {"host": "127.0.0.1", "port": served.postgres, "user": "ana", "database": "clinic", "ssl": False}
        async with asyncpg.create_pool(**place, password=served.tokens["ana"], min_size=1, max_size=2) as pool:
            for _ in range(3):  # each time the connection is reset before it goes back
                async with pool.acquire() as connection:
                    await connection.execute("SET deniable.epsilon = 40")
                    young = await connection.fetchval("SELECT COUNT(*) FROM people WHERE age < $1", 50)
                    assert abs(young - 150) < 20
                    day = datetime.date(2025, 7, 1)
                    early = await connection.fetchval("SELECT COUNT(*) FROM people WHERE seen < $1", day)
                    assert 100 < early < 250
                    some = await connection.fetchval("SELECT COUNT(*) FROM people WHERE sex = ANY($1)", ["F"])
                    assert abs(some - 200) < 20
                    none = await connection.fetchval("SELECT COUNT(*) FROM people WHERE age = ANY($1::int[])", [1, 2])
                    assert abs(none - 6) < 20

    asyncio.run(run())


def test_psycopg_binds_lists(served: Any) -> None:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 40")
        asked = "SELECT COUNT(*) AS n FROM people WHERE sex = ANY(%s) AND age = ANY(%s)"
        for binary in (False, True):
            found = connection.execute(asked, (["F", "M"], list(range(50))), binary=binary).fetchone()
            assert abs(found[0] - 150) < 20


RECORDINGS = sorted(FILE.parent.glob("*_[0-9].txt"))


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_a_recorded_session_of_a_tool_is_answered_as_it_was(served: Any, file: Path) -> None:
    recording = wire_recorder.Recording.from_text(file.read_text(encoding="utf-8"))
    found = wire_recorder.replay(served.postgres, served.tokens["ana"], recording)
    assert [now for now, _ in found] == [then for _, then in found]
    errors = [now for now, _ in found if "E:" in now]
    assert len(errors) <= 2, "a session asks for rows of people once; ODBC also undoes it"


def test_sessions_of_six_tools_were_recorded() -> None:
    tools = {file.stem.rpartition("_")[0] for file in RECORDINGS}
    assert tools == set(wire_recorder.TOOLS)


def find_jdbc_driver() -> Path | None:
    """The driver's file: where DENIABLE_JDBC says, or where distributions and Maven put it."""
    named = os.environ.get("DENIABLE_JDBC")
    places = [Path("/usr/share/java"), Path.home() / ".m2" / "repository" / "org" / "postgresql"]
    found = [Path(named)] if named else [file for place in places for file in sorted(place.rglob("postgresql*.jar"))]
    return found[-1] if found else None


def test_every_call_of_jdbc_is_answered(served: Any) -> None:
    java, driver = shutil.which("java"), find_jdbc_driver()
    if java is None or driver is None:
        pytest.skip("Java or its driver for PostgreSQL is not installed")
    program = Path(__file__).parent / "JdbcCalls.java"
    words = [java, "-cp", str(driver), str(program), str(served.postgres), "ana", served.tokens["ana"]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "48 of 48", done.stdout + done.stderr


ODBC = "Driver={{PostgreSQL Unicode}};Server={0};Port={1};Database=clinic;Uid=ana;Pwd={2};{3}"


@pytest.mark.parametrize("options", ["", "UseDeclareFetch=1;UseServerSidePrepare=1"])
def test_every_call_of_odbc_is_answered(served: Any, options: str) -> None:
    pyodbc = pytest.importorskip("pyodbc")
    if "PostgreSQL Unicode" not in pyodbc.drivers():
        pytest.skip("the ODBC driver of PostgreSQL is not installed")
    place = ODBC.format("127.0.0.1", served.postgres, served.tokens["ana"], options)
    with contextlib.closing(pyodbc.connect(place)) as connection, contextlib.closing(connection.cursor()) as cursor:
        cursor.execute("SET deniable.epsilon = 1")
        decimals = () if options else (Decimal("50.25"),)  # else written as a text, which PostgreSQL refuses, too
        for value in (50, 50.5, *decimals):
            assert cursor.execute("SELECT COUNT(*) AS n FROM people WHERE age > ?", value).fetchone() is not None
        for word, value in (("sex = ?", "F"), ("seen > ?", datetime.date(2025, 3, 1))):
            assert cursor.execute(f"SELECT COUNT(*) AS n FROM people WHERE {word}", value).fetchone() is not None
        found = cursor.execute("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY sex").fetchall()
        assert [row.sex for row in found] == ["F", "M"]
        assert {row.table_name for row in cursor.tables()} == {"people", "towns"}
        assert "age" in {row.column_name for row in cursor.columns(table="people")}
        for calls in (cursor.primaryKeys, cursor.foreignKeys, cursor.statistics, cursor.rowIdColumns):
            assert calls("people").fetchall() is not None
        assert len(cursor.getTypeInfo().fetchall()) > 10
        with pytest.raises(pyodbc.Error, match="would release rows"):
            cursor.execute("SELECT id FROM people").fetchall()
        connection.rollback()
        assert cursor.execute("SELECT COUNT(*) AS n FROM people").fetchone() is not None


def test_a_cursor_of_a_transaction_that_was_undone_is_gone_even_if_held(served: Any) -> None:
    with psycopg.connect(served.dsn()) as connection:
        connection.execute("SET deniable.epsilon = 1")
        for end, left in (("commit", True), ("rollback", False)):
            connection.execute(f"DECLARE {end} CURSOR WITH HOLD FOR SELECT COUNT(*) AS n FROM people")
            getattr(connection, end)()
            if left:
                assert connection.execute(f"FETCH ALL FROM {end}").fetchone() is not None
                continue
            with pytest.raises(psycopg.errors.InvalidCursorName):
                connection.execute(f"FETCH ALL FROM {end}")
            connection.rollback()
        assert connection.execute("FETCH ALL FROM commit").fetchone() is None  # held, and read to its end


def test_a_binary_copy_has_the_same_rows_as_the_answer(served: Any) -> None:
    question = "SELECT sex, COUNT(*) AS n, AVG(age) AS mean, NULL AS nothing FROM people GROUP BY sex ORDER BY sex"
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 1")
        plain = connection.execute(question, binary=True)
        rows, types = plain.fetchall(), [column.type_code for column in plain.description]
        with connection.cursor() as cursor, cursor.copy(f"COPY ({question}) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(types)
            assert list(copy.rows()) == rows
        with connection.cursor() as cursor, cursor.copy(f"COPY ({question}) TO STDOUT (FORMAT 'csv')") as copy:
            assert len(list(copy)) == len(rows)
        with pytest.raises(psycopg.Error, match="neither a header"):
            connection.execute(f"COPY ({question}) TO STDOUT (FORMAT binary, HEADER)")


def test_adbc_learns_each_type_by_the_function_that_receives_it(served: Any) -> None:
    question = next(question for tool, question in read_questions() if tool == "ADBC")
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        found = {row[1]: row for row in connection.execute(question.encode()).fetchall()}
    assert found["int8"] == (v.INT8, "int8", "int8recv", 0, 0, v.ARRAY_OF[v.INT8])
    assert found["date"][2] == "date_recv"


BY_SEX = "SELECT sex, COUNT(*) AS n FROM people WHERE age > 33 GROUP BY sex"


def test_equal_questions_of_different_tools_have_one_answer_and_one_charge(served: Any) -> None:
    import deniable

    before = count_charges(served)
    asked = deniable.connect(served.http, served.tokens["ana"]).query(BY_SEX, epsilon="0.25")
    answers = [[(row["sex"], row["n"]) for row in asked.rows]]
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 0.25")
        answers.append(connection.execute(BY_SEX).fetchall())
        answers.append(connection.execute(BY_SEX.replace("33", "%s"), (33,)).fetchall())
    if (psql := shutil.which("psql")) is not None:
        options = {**os.environ, "PGOPTIONS": "-c deniable.epsilon=0.25", "PSQLRC": "/dev/null"}
        text = BY_SEX.replace("people", "public.people AS p").replace("age", "p.age").lower()
        done = subprocess.run(
            [psql, served.dsn(), "-AtF,", "-c", text],
            capture_output=True,
            text=True,
            env=options,
            timeout=60,
            check=True,
        )
        answers.append([(sex, int(n)) for sex, n in (line.split(",") for line in done.stdout.split())])
    assert len(answers) >= 3
    assert all(each == answers[0] for each in answers)
    assert count_charges(served) == before + 1


def test_postgres_fdw_gets_noisy_numbers_and_no_rows(served: Any, postgres_address: str) -> None:
    place = f"host '127.0.0.1', port '{served.postgres}', dbname 'clinic', options '-c deniable.epsilon=0.25'"
    before = count_charges(served)
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        try:
            connection.execute("CREATE EXTENSION postgres_fdw")
        except psycopg.Error as missing:
            pytest.skip(str(missing))
        connection.execute(f"CREATE SERVER clinic FOREIGN DATA WRAPPER postgres_fdw OPTIONS ({place})")
        mapping = f"OPTIONS (user 'ana', password '{served.tokens['ana']}')"
        connection.execute(f"CREATE USER MAPPING FOR CURRENT_USER SERVER clinic {mapping}")
        connection.execute("CREATE SCHEMA far")
        try:
            connection.execute("IMPORT FOREIGN SCHEMA public FROM SERVER clinic INTO far")
            found = connection.execute(BY_SEX.replace("people", "far.people").replace("33", "34")).fetchall()
            towns = connection.execute("SELECT town FROM far.towns ORDER BY town").fetchall()
            with pytest.raises(psycopg.Error, match="Nothing was charged"):
                connection.execute("SELECT note FROM far.people")
        finally:
            connection.execute("DROP EXTENSION postgres_fdw CASCADE")
            connection.execute("DROP SCHEMA far CASCADE")
    assert sorted(sex for sex, _ in found) == ["F", "M"]
    assert towns == [("Cambridge",), ("Somerville",)]
    assert count_charges(served) == before + 1


def test_a_request_id_stands_for_a_question_and_not_for_its_letters(served: Any) -> None:
    before, asked = count_charges(served), "SELECT COUNT(*) AS n FROM people WHERE age > 47 AND sex = 'F'"
    header = {"authorization": f"Bearer {served.tokens['ana']}", "x-request-id": "one question"}

    def ask(sql: str, epsilon: str = "0.5") -> httpx.Response:
        return httpx.post(f"{served.http}/v1/query", json={"sql": sql, "epsilon": epsilon}, headers=header, timeout=60)

    first = ask(asked)
    assert (first.status_code, first.headers["x-deniable-charged"]) == (200, "true")
    again = ask("select count(*) n from people where 'F'::text = sex and age > 47::bigint")
    assert (again.status_code, again.headers["x-deniable-charged"]) == (200, "false")
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 0.5")
        connection.execute("SET deniable.request = 'one question'")
        found = connection.execute("SELECT count ( * ) AS n FROM public.people p WHERE p.sex = 'F' AND p.age >= 48")
        assert found.fetchone()[0] == first.json()["rows"][0]["n"] == again.json()["rows"][0]["n"]
        connection.execute("SET deniable.request = 'one question'")
        with pytest.raises(psycopg.Error, match="another question"):
            connection.execute("SELECT COUNT(*) AS n FROM people WHERE age > 48 AND sex = 'F'")
    for other in (ask(asked.replace("47", "46")), ask(asked, "0.25"), ask(asked.replace("COUNT(*)", "AVG(age)"))):
        assert other.status_code == 403
        assert "another question" in other.json()["message"]
    assert count_charges(served) == before + 1


def test_tools_that_write_types_pay_for_an_equal_question_once(served: Any) -> None:
    equal = (
        "age > 41 AND sex IN ('F', 'M')",
        "age > 41::bigint AND sex = ANY ('{F,M}'::text[])",
        "age > '41'::pg_catalog.int8 AND sex = ANY('{F,M}')",
    )
    with psycopg.connect(served.dsn(), autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("SET deniable.epsilon = 0.5")
        before = count_charges(served)
        found = {connection.execute(f"SELECT COUNT(*) AS n FROM people WHERE {each}").fetchone() for each in equal}
        asked = "SELECT COUNT(*) AS n FROM people WHERE age > %s AND sex = ANY(%s)"
        found.add(connection.execute(asked, (41, ["F", "M"])).fetchone())
        named = asked.replace("people", f"{served.curator.policy.dataset}.public.people")
        found.add(connection.execute(named, (41, ["F", "M"])).fetchone())
        assert len(found) == 1
        assert count_charges(served) == before + 1
        with pytest.raises(psycopg.Error, match="at most 1000 members"):
            connection.execute(asked, (41, [str(i) for i in range(1001)]))
