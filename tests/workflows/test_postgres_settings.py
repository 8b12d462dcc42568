"""Settings of a session follow its transactions as PostgreSQL's do; what would not be kept to is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg")
asyncpg = pytest.importorskip("asyncpg")

BUDGET = " options='-c deniable.epsilon=0.05'"


def show(connection: Any, name: str = "deniable.epsilon") -> str:
    return str(connection.execute(f"SHOW {name}").fetchone()[0])


@pytest.mark.parametrize(
    "back", ["RESET ALL", "DISCARD ALL", "RESET deniable.epsilon", "SET deniable.epsilon TO DEFAULT"]
)
def test_reset_goes_back_to_the_budget_that_the_connection_was_opened_with(served: Any, back: str) -> None:
    with psycopg.connect(served.dsn() + BUDGET, autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 0.07")
        connection.execute(back.encode())
        assert show(connection) == "0.05"


def test_a_pool_of_asyncpg_keeps_the_budget_of_its_connections(served: Any) -> None:
    async def acquire_twice() -> list[str]:
        address = {"host": "127.0.0.1", "port": served.postgres, "user": "ana", "database": "clinic"}
        given = {"deniable.epsilon": "0.05"}
        async with asyncpg.create_pool(
            **address, password=served.tokens["ana"], min_size=1, max_size=1, server_settings=given
        ) as pool:
            found = []
            for _ in range(2):
                async with pool.acquire() as connection:
                    found.append(await connection.fetchval("SHOW deniable.epsilon"))
                    await connection.execute("SET deniable.epsilon = 0.07")
            return found

    assert asyncio.run(acquire_twice()) == ["0.05", "0.05"]


def test_what_was_set_in_a_transaction_that_is_undone_is_undone(served: Any) -> None:
    with psycopg.connect(served.dsn() + BUDGET) as connection:
        connection.execute("SET deniable.epsilon = 0.07")
        connection.execute("SET application_name = 'x'")
        connection.rollback()
        assert show(connection) == "0.05"
        assert connection.info.parameter_status("application_name") == ""
        connection.execute("SET deniable.epsilon = 0.07")
        connection.commit()
        assert show(connection) == "0.07"


def test_what_is_set_for_a_transaction_alone_ends_with_it(served: Any) -> None:
    with psycopg.connect(served.dsn() + BUDGET) as connection:
        connection.execute("SET LOCAL deniable.epsilon = 0.09")
        assert show(connection) == "0.09"
        connection.commit()
        assert show(connection) == "0.05"
        connection.rollback()
        connection.autocommit = True
        connection.execute("SET LOCAL deniable.epsilon = 0.09")
        assert show(connection) == "0.05"
        connection.execute("BEGIN; SELECT set_config('deniable.epsilon', '0.09', true)")
        assert show(connection) == "0.09"
        connection.execute("COMMIT")
        assert show(connection) == "0.05"


def test_what_stands_in_a_transaction_only_is_refused_outside_of_one(served: Any) -> None:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        outside = ("SAVEPOINT a", "RELEASE a", "ROLLBACK TO SAVEPOINT a", "DECLARE c CURSOR FOR SELECT 1")
        for statement in outside:
            with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
                connection.execute(statement)
        assert connection.execute("DECLARE c CURSOR FOR SELECT 1; FETCH 1 FROM c").statusmessage == "DECLARE CURSOR"
        for wrong in ("BEGIN ISOLATION LEVEL", "BEGIN ISOLATION LEVEL best"):
            with pytest.raises(psycopg.errors.SyntaxError):
                connection.execute(wrong)
        connection.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):
            connection.execute("DISCARD ALL")
        connection.execute("ROLLBACK")
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)


def test_values_of_execute_are_of_the_types_that_prepare_names(served: Any) -> None:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("PREPARE p(int, text) AS SELECT $1 + 1, $2")
        assert connection.execute("EXECUTE p('4', '5')").fetchone() == (5, "5")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"\$1 is not a value of int4"):
            connection.execute("EXECUTE p('four', '5')")


def test_savepoints_keep_what_was_set_before_them(served: Any) -> None:
    with psycopg.connect(served.dsn() + BUDGET) as connection:
        connection.execute("SET deniable.epsilon = 0.06")
        connection.execute("SAVEPOINT a")
        connection.execute("SET deniable.epsilon = 0.07")
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT nothing FROM people")
        connection.execute("ROLLBACK TO SAVEPOINT a")
        assert show(connection) == "0.06"
        with pytest.raises(psycopg.Error) as refusal:
            connection.execute("ROLLBACK TO SAVEPOINT nothing")
        assert refusal.value.sqlstate == "3B001"


def test_statements_sent_at_once_are_undone_at_once(served: Any) -> None:
    with psycopg.connect(served.dsn() + BUDGET, autocommit=True) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SET deniable.epsilon = 0.07; SELECT nothing FROM people")
        assert show(connection) == "0.05"


def test_after_an_error_nothing_is_answered_until_the_transaction_ends(served: Any) -> None:
    with psycopg.connect(served.dsn() + BUDGET) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT nothing FROM people")
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
        charges = sum(1 for _ in served.curator.ledger.entries(acts=("charge",)))
        for asked in ("SELECT COUNT(*) FROM people", "SELECT 1", "SHOW deniable.epsilon"):
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                connection.execute(asked.encode())
        assert sum(1 for _ in served.curator.ledger.entries(acts=("charge",))) == charges
        assert connection.execute("COMMIT").statusmessage == "ROLLBACK"
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_request_id_that_was_used_does_not_come_back_with_a_rollback(served: Any) -> None:
    with psycopg.connect(served.dsn()) as connection:
        connection.execute("SET deniable.epsilon = 1")
        connection.execute("SET deniable.request = 'once'")
        connection.commit()
        connection.execute("SELECT COUNT(*) AS n FROM people WHERE age > 33")
        connection.rollback()
        assert show(connection, "deniable.request") == ""


@pytest.mark.parametrize(
    ("statement", "name", "reported"),
    [
        ("SET DateStyle=ISO", "DateStyle", "ISO, MDY"),
        ("SET DateStyle='ISO, DMY'", "DateStyle", "ISO, DMY"),
        ("SET datestyle TO iso, ymd", "DateStyle", "ISO, YMD"),
        ("SET TIME ZONE 'europe/berlin'", "TimeZone", "Europe/Berlin"),
        ("SET client_encoding='utf-8'", "client_encoding", "UTF8"),
        ("SET standard_conforming_strings = true", "standard_conforming_strings", "on"),
        ("SET intervalstyle = iso_8601", "IntervalStyle", "iso_8601"),
    ],
)
def test_settings_are_reported_as_postgresql_reports_them(
    served: Any, statement: str, name: str, reported: str
) -> None:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute(statement.encode())
        assert connection.info.parameter_status(name) == reported
        assert show(connection, name) == reported


@pytest.mark.parametrize(
    "statement",
    ["SET DateStyle='German'", "SET DateStyle='SQL, MDY'", "SET TimeZone='Mars'", "SET standard_conforming_strings=off",
     "SET IntervalStyle='x'", "SET ROLE steward", "SET jit = maybe"],
)  # fmt: skip
def test_values_that_would_not_be_kept_to_are_refused(served: Any, statement: str) -> None:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        with pytest.raises(psycopg.Error) as refusal:
            connection.execute(statement.encode())
        assert refusal.value.sqlstate in ("22023", "42501")


@pytest.mark.parametrize("statement", ["SET ROLE NONE", "SET SESSION AUTHORIZATION DEFAULT", "LISTEN x", "RESET ROLE"])
def test_what_changes_nothing_is_accepted(served: Any, statement: str) -> None:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.mark.parametrize("name", ["epsilon", "delta", "rho", "confidence"])
def test_a_budget_that_is_no_number_is_refused_where_it_is_set(served: Any, name: str) -> None:
    with psycopg.connect(served.dsn() + BUDGET, autocommit=True) as connection:
        before = show(connection, f"deniable.{name}")
        for value in ("abc", "nan", "1_0", "1,5", "1e999999"):
            with pytest.raises(psycopg.Error, match="Write a number") as refused:
                connection.execute(f"SET deniable.{name} = '{value}'")
            assert refused.value.sqlstate == "22023"
            assert show(connection, f"deniable.{name}") == before
        for value in {"delta": ("0", "1/300", "1e-6"), "confidence": ("0.5", "1e-6")}.get(name, ("0.5", "1/3", "1e-6")):
            connection.execute(f"SET deniable.{name} = '{value}'")
            assert show(connection, f"deniable.{name}") == value


BAD = [("epsilon", "-1"), ("epsilon", "0"), ("epsilon", "1e400"), ("epsilon", "10001"), ("epsilon", "abc"),
       ("delta", "-1"), ("delta", "2"), ("rho", "-1"), ("confidence", "2"), ("confidence", "0"), ("confidence", ""),
       ("confidence", "1/3")]  # fmt: skip


def test_a_setting_that_no_question_could_have_is_refused_when_it_is_set(served: Any) -> None:
    with psycopg.connect(served.dsn() + BUDGET, autocommit=True) as connection:
        for name, value in BAD:
            with pytest.raises(psycopg.errors.InvalidParameterValue):
                connection.execute(f"SET deniable.{name} = '{value}'".encode())
        connection.execute(rb"SET deniable.epsilon = E'\x31'")
        assert show(connection) == "1"
    for wrong in ("-c deniable.epsilon=abc", "-c deniable.epsilon=-3", "-c deniable.epsilom=1"):
        with pytest.raises(psycopg.OperationalError, match="deniable"):
            psycopg.connect(served.dsn() + f" options='{wrong}'")


def test_a_text_with_an_escaped_quote_hides_no_question(served: Any) -> None:
    with psycopg.connect(served.dsn() + BUDGET, autocommit=True) as connection:
        charges = sum(1 for _ in served.curator.ledger.entries(acts=("charge",)))
        connection.execute(rb"SET application_name = E'\'; SELECT COUNT(*) FROM people WHERE age > 71; --'")
        assert show(connection, "application_name") == "'; SELECT COUNT(*) FROM people WHERE age > 71; --"
        assert sum(1 for _ in served.curator.ledger.entries(acts=("charge",))) == charges
        asked = rb"SELECT COUNT(*) AS n FROM people WHERE note = E'\'' AND age > 71"
        assert connection.execute(asked).fetchone() is not None
        assert connection.execute(rb"SELECT E'\v\uD83D\uDE00'").fetchone() == ("v😀",)
        for wrong in (rb"SELECT E'\uD83D'", rb"SELECT E'\x80'", rb"SET application_name = E'\000'"):
            with pytest.raises(psycopg.Error, match="not a character"):
                connection.execute(wrong)


def test_a_backslash_keeps_a_blank_inside_of_an_option(served: Any) -> None:
    options = r" options='-c application_name=two\\ words --deniable.epsilon=0.05 -cdeniable.delta=1e-9'"
    with psycopg.connect(served.dsn() + options, autocommit=True) as connection:
        found = [show(connection, name) for name in ("application_name", "deniable.epsilon", "deniable.delta")]
    assert found == ["two words", "0.05", "1e-9"]


def test_a_request_id_that_no_question_could_have_is_refused_where_it_is_set(served: Any) -> None:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        for wrong in ("x" * 201, "a\tb"):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match="printable"):
                connection.execute(f"SET deniable.request = '{wrong}'")
        assert show(connection, "deniable.request") == ""


def test_a_column_may_have_the_name_of_the_clause_that_states_a_budget(served: Any) -> None:
    """The budget of the session is taken, since the statement states none."""
    with psycopg.connect(served.dsn() + BUDGET, autocommit=True) as connection:
        asked = connection.execute("SELECT COUNT(*) AS differential_privacy FROM people")
        assert [each.name for each in asked.description] == ["differential_privacy"]
