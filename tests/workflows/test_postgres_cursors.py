"""Prepared statements, cursors and COPY as clients use them: psql, psycopg's server-side cursors, copy to stdout."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess

import pytest

psycopg = pytest.importorskip("psycopg")
BY_SEX = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY sex"


@pytest.fixture
def asking(served):
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 5")
        yield connection


def charges(served) -> int:
    return len(list(served.curator.ledger.entries(acts=("charge",))))


def test_prepare_execute_and_deallocate(served, asking):
    asking.execute("PREPARE older (int) AS SELECT COUNT(*) AS n FROM people WHERE age > $1")
    before = charges(served)
    first = asking.execute("EXECUTE older(17)").fetchone()
    assert asking.execute("EXECUTE older(17)").fetchone() == first, "the same question has one answer"
    assert charges(served) == before + 1
    asking.execute("""PREPARE "By Sex" AS SELECT COUNT(*) AS n FROM people WHERE sex = $1 AND age > $2""")
    assert asking.execute("""EXECUTE "By Sex" ('F', -1)""").fetchone()[0] > 0
    for wrong, state in (("EXECUTE older", "42601"), ("EXECUTE older(1, 2)", "42601"), ("EXECUTE nothing", "26000"),
                         ("EXECUTE older(1 + 1)", "42601"), ("EXECUTE older((SELECT 1))", "42601"),
                         ("PREPARE older AS SELECT COUNT(*) FROM people", "42P05"), ("PREPARE x AS", "42601"),
                         ("PREPARE x AS EXECUTE x", "0A000"), ("PREPARE x AS DROP TABLE people", "0A000"),
                         ("DEALLOCATE nothing", "26000")):  # fmt: skip
        with pytest.raises(psycopg.Error) as refused:
            asking.execute(wrong)
        assert refused.value.sqlstate == state, wrong
    asking.execute("DISCARD PLANS")
    assert asking.execute("EXECUTE older(17)").fetchone() == first, "only DISCARD ALL forgets statements"
    asking.execute("DEALLOCATE PREPARE older")
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        asking.execute("EXECUTE older(17)")
    asking.execute("DEALLOCATE ALL")


def test_psycopg_deallocates_one_statement_and_keeps_the_others(asking):
    asking.prepare_threshold, asking.prepared_max = 0, 2
    for age in (30, 31, 32, 33, 30):
        for sql in ("SELECT COUNT(*) FROM people WHERE age > %s", "SELECT COUNT(*) FROM people WHERE age < %s",
                    "SELECT COUNT(*) FROM people WHERE age <> %s"):  # fmt: skip
            assert asking.execute(sql, (age,)).fetchone() is not None


def test_server_side_cursors_ask_once_and_hand_out_rows_in_pieces(served):
    with psycopg.connect(served.dsn()) as connection:
        connection.execute("SET deniable.epsilon = 5")
        whole = connection.execute(BY_SEX).fetchall()
        before = charges(served)
        with connection.cursor("pieces") as cursor:
            cursor.itersize = 1
            assert list(cursor.execute(BY_SEX)) == whole
            assert [column.name for column in cursor.description] == ["sex", "n"]
        with connection.cursor("bound") as cursor:
            cursor.execute("SELECT COUNT(*) AS n FROM people WHERE age > %s", (40,))
            assert cursor.fetchone()[0] is not None
            assert cursor.fetchone() is None
        assert charges(served) == before + 1, "the first was a repeat, the second is new"
        connection.commit()
        with connection.cursor("held", withhold=True) as cursor:
            cursor.execute(BY_SEX)
            connection.commit()
            assert cursor.fetchall() == whole


def test_a_cursor_that_nobody_reads_is_not_charged(served, asking):
    before = charges(served)
    asking.execute("DECLARE unread CURSOR WITH HOLD FOR SELECT COUNT(*) FROM people WHERE age > 71")
    asking.execute("CLOSE unread")
    assert charges(served) == before
    for wrong, state in (("FETCH 1 FROM unread", "34000"), ("CLOSE unread", "34000"), ("FETCH", "42601"),
                         ("DECLARE c CURSOR WITH HOLD FOR FETCH 1 FROM c", "0A000"),
                         ("DECLARE c CURSOR WITH HOLD", "42601"), ("DECLARE c CURSOR FOR SELECT 1", "25P01"),
                         ("DECLARE c BINARY CURSOR WITH HOLD FOR SELECT COUNT(*) FROM people", "0A000")):  # fmt: skip
        with pytest.raises(psycopg.Error) as refused:
            asking.execute(wrong)
        assert refused.value.sqlstate == state, wrong


def test_cursors_go_forwards(asking):
    asking.execute(f"DECLARE c NO SCROLL CURSOR WITH HOLD FOR {BY_SEX}")
    assert asking.execute("MOVE 1 IN c").statusmessage == "MOVE 1"
    assert [row[0] for row in asking.execute("FETCH FORWARD ALL FROM c").fetchall()] == ["M"]
    assert asking.execute("FETCH NEXT FROM c").fetchall() == []
    for backwards in ("FETCH PRIOR FROM c", "FETCH BACKWARD 1 FROM c", "FETCH ABSOLUTE 1 FROM c", "MOVE FIRST IN c"):
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            asking.execute(backwards)


def test_an_answer_is_copied_out_as_text_and_as_csv(served, asking):
    whole = asking.execute(BY_SEX).fetchall()
    with asking.cursor() as cursor, cursor.copy(f"COPY ({BY_SEX}) TO STDOUT") as copy:
        assert [tuple(row) for row in copy.rows()] == [(sex, str(n)) for sex, n in whole]
    with asking.cursor() as cursor, cursor.copy(f"COPY ({BY_SEX}) TO STDOUT WITH (FORMAT csv, HEADER)") as copy:
        text = b"".join(bytes(part) for part in copy).decode()
    assert list(csv.reader(io.StringIO(text))) == [["sex", "n"], *([sex, str(n)] for sex, n in whole)]
    for wrong in ("COPY people TO STDOUT", "COPY people FROM STDIN", f"COPY ({BY_SEX}) TO '/etc/passwd'",
                  f"COPY ({BY_SEX}) TO PROGRAM 'sh'", f"COPY ({BY_SEX}) TO STDOUT (FORMAT parquet)",
                  "COPY (COPY (SELECT 1) TO STDOUT) TO STDOUT", "COPY (SELECT * FROM people) TO STDOUT"):  # fmt: skip
        with pytest.raises(psycopg.Error):
            asking.execute(wrong)
    assert asking.execute(BY_SEX).fetchall() == whole, "the session goes on"


def test_psql_copies_and_fetches(served):
    if not shutil.which("psql"):
        pytest.skip("psql is not installed")
    script = f"SET deniable.epsilon = 5;\n\\copy ({BY_SEX}) to stdout csv\n\\set FETCH_COUNT 1\n{BY_SEX};\n"
    done = subprocess.run(["psql", served.dsn(), "-AtqX", "-F,"], input=script, capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip
    lines = done.stdout.split()
    assert len(lines) == 4, done.stderr
    assert lines[:2] == lines[2:], "copied and fetched alike"


def test_a_session_holds_a_limited_number_of_words_and_rows(asking):
    with pytest.raises(psycopg.Error, match="20000 words and signs"):
        asking.execute("SELECT " + "1, " * 10_000 + "1")
    wide = "SELECT " + ", ".join(["1"] * 9_000)
    for place in range(5):
        asking.execute(f"PREPARE w{place} AS {wide}")
    with pytest.raises(psycopg.Error, match="prepared statements have more than 100000 words"):
        asking.execute(f"PREPARE w AS {wide}")
    asking.execute("DEALLOCATE ALL")
    asking.execute(f"PREPARE w AS {wide}")
    rows = "SELECT " + ", ".join(f"a AS c{place}" for place in range(300)) + " FROM generate_series(1, 1600) a"
    asking.execute("BEGIN")
    for place in range(3):
        asking.execute(f"DECLARE c{place} CURSOR FOR {rows}")
        asking.execute(f"FETCH 1 FROM c{place}")
    asking.execute("DECLARE d CURSOR FOR SELECT COUNT(*) AS n FROM people WHERE age > 61")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="cursors hold too many rows"):
        asking.execute("FETCH 1 FROM d")
    asking.execute("ROLLBACK")
    assert asking.execute("SELECT COUNT(*) AS n FROM people WHERE age > 61").fetchone() is not None


def test_values_of_portals_are_limited_together():
    from deniable.server.wire.codec import WireRefusal
    from deniable.server.wire.prepared_statements import MOST_BYTES, Portal, Prepared, PreparedStatements

    session, large = PreparedStatements(), MOST_BYTES - 10
    for _ in range(3):
        session.open("", Portal(Prepared(None, ()), (), (), large))  # each takes the place of the last one
    session.open("small", Portal(Prepared(None, ()), (), (), 10))
    with pytest.raises(WireRefusal, match="bytes of values"):
        session.open("more", Portal(Prepared(None, ()), (), (), 1))
    assert set(session.portals) == {"", "small"}
