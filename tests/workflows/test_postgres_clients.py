"""Real clients of PostgreSQL against the running server: psql, psycopg, SQLAlchemy, pandas, asyncpg."""

from __future__ import annotations

import datetime
import decimal
import os
import shutil
import subprocess
import threading
import zlib
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg")


def psql(served: Any, *commands: str, name: str = "ana") -> subprocess.CompletedProcess[str]:
    """Run psql with some commands."""
    program = shutil.which("psql")
    if program is None:
        pytest.skip("psql is not installed")
    arguments = [program, "-h", "127.0.0.1", "-p", str(served.postgres), "-U", name, "-X", "-d", "clinic"]
    for command in commands:
        arguments += ["-c", command]
    environment = os.environ | {"PGPASSWORD": served.tokens[name], "PGCONNECT_TIMEOUT": "20"}
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_psql_asks_and_gets_noisy_counts(served):
    done = psql(served, "SET deniable.epsilon = 50", "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY sex")
    assert done.returncode == 0, done.stderr
    assert " F   | 200" in done.stdout
    assert " M   | 100" in done.stdout


DESCRIBING = r"""
    \d \dA \dA+ \dAc \dAf \dAo \dAp \da \db \db+ \dc \dc+ \dC \dC+ \dconfig \dconfig+ \dd \dD \dD+ \ddp \dE \des \det
    \deu \dew \df \df+ \dF \dFd \dFp \dFt \dg \dg+ \di \di+ \dl \dL \dL+ \dm \dn \dn+ \do \do+ \dO \dO+ \dp \dP \dP+
    \dPt \drds \dRp \dRs \dRs+ \ds \dS \dt \dt+ \dtS \dT \dT+ \dTS \du \du+ \dv \dx \dX \dy \dy+ \l \l+ \lo_list \z
"""


def test_every_describing_command_of_psql_is_answered(served):
    done = psql(served, *DESCRIBING.split())
    assert "ERROR" not in done.stderr, done.stderr
    assert done.returncode == 0


def test_psql_describes_tables_from_public_metadata(served):
    done = psql(served, r"\dt", r"\d people", r"\d+ people", r"\l", r"\dn", r"\du", r"\df", r"\di", r"\dv")
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    for word in ("people", "towns", "bigint", "date", "between 0 and 100"):
        assert word in done.stdout


def test_explain_gives_the_privacy_plan_and_charges_nothing(served):
    before = served.curator.ledger.head().sequence
    done = psql(served, "SET deniable.epsilon = 1", "EXPLAIN SELECT COUNT(*) FROM people")
    assert "discrete Laplace" in done.stdout
    assert "like this" in done.stdout
    assert served.curator.ledger.head().sequence == before


def test_a_refusal_has_sqlstate_position_detail_and_hint(served):
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 1")
        with pytest.raises(psycopg.errors.UndefinedColumn) as refused:
            connection.execute("SELECT COUNT(*) FROM people WHERE agee > 3")
    told = refused.value.diag
    assert told.statement_position == "35"
    assert "age" in told.message_hint
    assert "Nothing was charged" in told.message_detail


def test_rows_of_people_never_leave(served):
    done = psql(served, "SELECT * FROM people", "SELECT note, COUNT(*) FROM people GROUP BY note", "TABLE people")
    assert "CANARY" not in done.stdout + done.stderr
    assert done.stderr.count("ERROR") == 3


def test_psycopg_binds_parameters_of_every_type(served):
    with psycopg.connect(served.dsn()) as connection:
        connection.execute("SET deniable.epsilon = 50")
        ask = "SELECT COUNT(*) FROM people WHERE age >= %s AND sex = %s AND seen >= %s"
        for value in (50, 50.0, decimal.Decimal("50"), 50):
            found = connection.execute(ask, (value, "F", datetime.date(2025, 1, 1))).fetchone()
            assert abs(found[0] - 101) < 10
        cursor = connection.cursor(binary=True)
        cursor.execute("SELECT COUNT(*) AS n, AVG(age) AS a FROM people WHERE age < %s", (50,))
        count, mean = cursor.fetchone()
        assert abs(count - 150) < 10
        assert abs(mean - 24.5) < 5
        assert [column.type_code for column in cursor.description] == [20, 701]


def test_a_hostile_parameter_stays_one_value(served):
    with psycopg.connect(served.dsn()) as connection:
        connection.execute("SET deniable.epsilon = 50")
        for text in ("'; DROP TABLE people; --", "' OR '1'='1", "\\' OR 1=1 --", "$1", "%s", "'" * 7, "\u2019; --"):
            (found,) = connection.execute("SELECT COUNT(*) FROM people WHERE sex = %s", (text,)).fetchone()
            assert abs(found) < 10


def test_intervals_are_extra_columns_on_request(served):
    with psycopg.connect(served.dsn()) as connection:
        connection.execute("SET deniable.epsilon = 40")
        connection.execute("SET deniable.intervals = on")
        cursor = connection.execute("SELECT COUNT(*) AS n FROM people")
        assert [column.name for column in cursor.description] == ["n", "n_low", "n_high"]
        n, low, high = cursor.fetchone()
        assert low <= n <= high


def test_settings_are_shown_reset_and_refused(served):
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon TO '0.25'")
        assert connection.execute("SHOW deniable.epsilon").fetchone() == ("0.25",)
        connection.execute("RESET deniable.epsilon")
        assert connection.execute("SHOW deniable.epsilon").fetchone() == ("",)
        with pytest.raises(psycopg.errors.UndefinedObject, match="epsilonn"):
            connection.execute("SET deniable.epsilonn = 1")
        with pytest.raises(psycopg.Error):
            connection.execute("SET deniable.intervals = maybe")


def test_transactions_are_accepted_and_a_rollback_says_that_charges_stay(served):
    notices: list[str] = []
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        for statement in ("BEGIN", "SAVEPOINT a", "ROLLBACK TO SAVEPOINT a", "SET deniable.epsilon = 3"):
            connection.execute(statement)
        connection.execute("SELECT COUNT(*) FROM people WHERE age > 97")
        connection.execute("ROLLBACK")
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert any("stays charged" in notice for notice in notices)


def test_the_statement_may_state_its_own_budget(served):
    with psycopg.connect(served.dsn()) as connection:
        ask = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 30) COUNT(*) FROM people"
        assert abs(connection.execute(ask).fetchone()[0] - 300) < 10


def test_a_request_id_never_charges_twice(served):
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 1.5")
        answers = []
        for _ in range(2):
            connection.execute("SET deniable.request = 'wire-1'")
            answers.append(connection.execute("SELECT COUNT(*) FROM people WHERE age > 13").fetchone())
            assert connection.execute("SHOW deniable.request").fetchone() == ("",)
    charges = [entry for entry in served.curator.ledger.entries(acts=("charge",)) if entry.request == "wire-1"]
    assert len(charges) == 1
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("asked", "state", "told"),
    [
        ("SELECT COUNT(*) FROM peoples", "42P01", "there is no table 'peoples'"),
        ("SELECT COUNT(*) FROM people WHERE agee > 3", "42703", "there is no column 'agee'"),
        ("SELECT COUNT(*) FROM people WHERE (SELECT COUNT(*) FROM people q WHERE q.agee > 3) > 1", "42703", "q.agee"),
        ("VACUUM", "25006", "VACUUM is not taken"),
        ("INSERT INTO people VALUES (1)", "25006", "INSERT is not taken"),
        ("lock table people in access share mode", "25006", "LOCK is not taken"),
    ],
)
@pytest.mark.parametrize("prepare", [False, True])
def test_what_is_not_there_or_would_change_something_is_told_by_its_own_state(served, asked, state, told, prepare):
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 0.01")
        with pytest.raises(psycopg.Error, match=told) as refused:
            connection.execute(asked, prepare=prepare)
        assert refused.value.sqlstate == state


@pytest.mark.parametrize(
    ("change", "asked", "state"),
    [
        ("SET deniable.purpose = 'care'", "SELECT COUNT(*) FROM people WHERE age > 21", "42501"),
        ("SET deniable.nonnegative = off", "SELECT COUNT(*) FROM people WHERE age > 22", "42501"),
        ("SET deniable.nonnegative = off", "SELECT id FROM people", "42601"),
    ],
)
def test_whatever_a_second_try_is_refused_for_it_says_what_the_first_one_charged(served, change, asked, state):
    own = f"paid over the wire {state} {asked}"
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 0.01")
        connection.execute(f"SET deniable.request = '{own}'")
        connection.execute(f"SELECT COUNT(*) FROM people WHERE age * {zlib.crc32(own.encode()) % 900 + 2} > 1000")
        connection.execute(change)
        connection.execute(f"SET deniable.request = '{own}'")
        with pytest.raises(psycopg.Error, match="its request was charged before: entry") as refused:
            connection.execute(asked)
        assert refused.value.sqlstate == state
        assert "This call charged nothing" in str(refused.value.diag.message_detail)


def test_sqlalchemy_reflects_tables_and_pandas_reads(served):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pandas = pytest.importorskip("pandas")
    address = f"postgresql+psycopg://ana:{served.tokens['ana']}@127.0.0.1:{served.postgres}/clinic"
    engine = sqlalchemy.create_engine(address)
    try:
        inspector = sqlalchemy.inspect(engine)
        assert set(inspector.get_table_names()) == {"people", "towns"}
        assert inspector.has_table("people")
        columns = {column["name"]: str(column["type"]) for column in inspector.get_columns("people")}
        assert columns["age"] == "BIGINT"
        assert columns["seen"] == "DATE"
        assert inspector.get_foreign_keys("people") == []
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("SET deniable.epsilon = 50"))
            people = sqlalchemy.table("people", sqlalchemy.column("sex"), sqlalchemy.column("age"))
            count = sqlalchemy.func.count().label("n")
            asked = sqlalchemy.select(people.c.sex, count).where(people.c.age > 9).group_by(people.c.sex)
            assert {row.sex for row in connection.execute(asked)} == {"F", "M"}
            text = sqlalchemy.text("SELECT sex, COUNT(*) AS n FROM people WHERE age > :a GROUP BY sex")
            frame = pandas.read_sql(text, connection, params={"a": 10})
            assert list(frame.columns) == ["sex", "n"]
            assert frame["n"].dtype.kind == "i"
    finally:
        engine.dispose()


def test_asyncpg_prepares_and_describes(served):
    asyncpg = pytest.importorskip("asyncpg")
    import asyncio

    async def ask() -> Any:
        place = {"host": "127.0.0.1", "port": served.postgres, "user": "ana", "database": "clinic"}
        connection = await asyncpg.connect(**place, password=served.tokens["ana"])
        await connection.execute("SET deniable.epsilon = 50")
        found = await connection.fetch("SELECT sex, COUNT(*) AS n FROM people WHERE sex = $1 GROUP BY sex", "F")
        await connection.close()
        return found

    rows = {row["sex"]: row["n"] for row in asyncio.run(ask())}
    assert abs(rows["F"] - 200) < 10


CATALOG_QUESTIONS = (
    "SELECT version()",
    "SELECT current_schema()",
    "SELECT 1",
    "SELECT nspname FROM pg_catalog.pg_namespace ORDER BY 1",
    "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'",
    "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'people'",
    "SELECT t.oid, t.typname FROM pg_catalog.pg_type t WHERE t.typname = 'int8'",
    "SELECT c.oid, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r')",
    "SELECT db.oid, db.datname FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate",
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a WHERE a.attrelid = 'people'::regclass",
    "SELECT has_schema_privilege('public', 'USAGE')",
    "SELECT obj_description('people'::regclass)",
    "SELECT current_setting('server_version')",
)


def test_asyncpg_gets_numeric_constants_as_they_were_written(served):
    asyncpg = pytest.importorskip("asyncpg")
    import asyncio
    from decimal import Decimal

    async def ask() -> None:
        place = {"host": "127.0.0.1", "port": served.postgres, "user": "ana", "database": "clinic"}
        connection = await asyncpg.connect(**place, password=served.tokens["ana"])
        for given in ("1.5", "1", "-20.25", "0.000001", "0"):
            assert await connection.fetchval("SELECT $1::numeric", Decimal(given)) == Decimal(given)
        assert await connection.fetchval("SELECT '7.10'::numeric") == Decimal("7.10")
        assert isinstance(await connection.fetchval("SELECT 1::numeric"), Decimal)
        await connection.close()

    asyncio.run(ask())


SUMS = (
    "SELECT SUM(age) AS s FROM people WHERE age > 20",
    "SELECT COALESCE(SUM(age), 0) AS s FROM people WHERE age > 21",
    "SELECT SUM(CASE WHEN age > 30 THEN 1 ELSE 0 END) AS s FROM people",
    "SELECT SUM(1) AS s FROM people WHERE age > 22",
    "SELECT COUNT(*) AS s FROM people WHERE age > 23",
    "SELECT AVG(age) AS s FROM people WHERE age > 24",
    "SELECT ROUND(SUM(age)) AS s FROM people WHERE age > 25",
)


def test_clients_that_describe_a_statement_alone_read_the_numbers_that_others_read(served):
    """asyncpg and others take binary values by the types that they were told when the statement was described."""
    asyncpg = pytest.importorskip("asyncpg")
    import asyncio

    async def ask() -> list[Any]:
        place = {"host": "127.0.0.1", "port": served.postgres, "user": "ana", "database": "clinic"}
        connection = await asyncpg.connect(**place, password=served.tokens["ana"])
        await connection.execute("SET deniable.epsilon = 3")
        found = [await connection.fetchval(question) for question in SUMS]
        async with connection.transaction():
            cursor = await connection.cursor(SUMS[0])
            found.append((await cursor.fetch(1))[0]["s"])
        await connection.close()
        return found

    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 3")
        expected = [connection.execute(question).fetchone()[0] for question in SUMS]
    found = asyncio.run(ask())
    assert [float(each) for each in found] == [float(each) for each in (*expected, expected[0])]


def test_a_setting_that_changes_the_columns_of_a_prepared_statement_is_told_before_a_charge(served):
    asyncpg = pytest.importorskip("asyncpg")
    import asyncio

    question = "SELECT COUNT(*) AS n FROM people WHERE age > $1"

    async def ask() -> None:
        place = {"host": "127.0.0.1", "port": served.postgres, "user": "ana", "database": "clinic"}
        connection = await asyncpg.connect(**place, password=served.tokens["ana"])
        await connection.execute("SET deniable.epsilon = 1")
        statement = await connection.prepare(question)
        await statement.fetch(26)
        await connection.execute("SET deniable.intervals = on")
        before = len(list(served.curator.ledger.entries(acts=("charge",))))
        with pytest.raises(asyncpg.FeatureNotSupportedError, match="must not change result type"):
            await statement.fetch(27)
        assert len(list(served.curator.ledger.entries(acts=("charge",)))) == before
        assert len(await connection.fetchrow(question, 27)) == 3  # prepared anew
        await connection.close()

    asyncio.run(ask())


@pytest.mark.parametrize("question", CATALOG_QUESTIONS)
def test_tools_learn_the_schema_from_the_catalog(served, question):
    with psycopg.connect(served.dsn()) as connection:
        rows = connection.execute(question).fetchall()
    assert rows


def test_a_question_can_be_cancelled(served):
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        told: list[str] = []
        connection.execute("SET deniable.epsilon = 1")
        canceller = threading.Timer(0.05, connection.cancel_safe, kwargs={"timeout": 60})
        canceller.start()
        for _ in range(3):  # whether it was in time or not, the session goes on
            try:
                connection.execute("SELECT COUNT(*), AVG(age), STDDEV(age) FROM people WHERE age > 44")
            except psycopg.errors.QueryCanceled as stopped:
                told.append(str(stopped))
        canceller.join()
        assert connection.execute("SELECT 1").fetchone() == (1,)
        charges = len(list(served.curator.ledger.entries(acts=("charge",))))
        assert all("harged" in each or "charge stands" in each for each in told)
        assert charges or not any("The charge stands" in each for each in told)


def test_a_cancelled_question_that_was_not_begun_says_that_nothing_was_charged(served, monkeypatch):
    from deniable.server.scheduler import ThreadPool

    before = len(list(served.curator.ledger.entries(acts=("charge",))))
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 1")
        monkeypatch.setattr(ThreadPool, "_find_next", lambda _self: None)  # every place is taken: it waits
        threading.Timer(0.3, connection.cancel_safe, kwargs={"timeout": 20}).start()
        with pytest.raises(psycopg.errors.QueryCanceled, match="cancelled before it was begun") as stopped:
            connection.execute("SELECT COUNT(*) FROM people WHERE age > 41")
        assert "Nothing was charged" in stopped.value.diag.message_detail
    assert len(list(served.curator.ledger.entries(acts=("charge",)))) == before


def test_another_database_and_a_wrong_token_are_refused(served):
    with pytest.raises(psycopg.OperationalError, match="It is called clinic"):
        psycopg.connect(served.dsn(dbname="postgres"))
    with pytest.raises(psycopg.OperationalError, match="token is not valid"):
        psycopg.connect(served.dsn().replace(served.tokens["ana"], "deniable_guess"))


def test_a_purpose_outside_the_grant_is_refused(served):
    with psycopg.connect(served.dsn("ben"), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 1")
        connection.execute("SET deniable.purpose = 'research'")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="outside the grant"):
            connection.execute("SELECT COUNT(*) FROM people")


def test_tls_protects_the_token(serve, certificate):
    files = {"certificate": certificate[0], "key": certificate[1]}
    with serve(**files) as secured, psycopg.connect(secured.dsn(sslmode="require")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert connection.pgconn.ssl_in_use
