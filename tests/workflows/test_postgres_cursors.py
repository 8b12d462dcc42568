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
    for place in range(3):
        asking.execute(f"PREPARE w{place} AS {wide}")
    for place in range(2):
        asking.execute(f"DECLARE w{place} CURSOR WITH HOLD FOR {wide}")
    for more in ("PREPARE w AS", "DECLARE w CURSOR WITH HOLD FOR"):
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="cursors have more than 100000 words"):
            asking.execute(f"{more} {wide}")
    asking.execute("DEALLOCATE ALL")
    asking.execute(f"DECLARE w CURSOR WITH HOLD FOR {wide}")
    asking.execute("CLOSE ALL")
    rows = "SELECT " + ", ".join(f"a AS c{place}" for place in range(300)) + " FROM generate_series(1, 1600) a"
    asking.execute("BEGIN")
    for place in range(5):
        asking.execute(f"DECLARE c{place} CURSOR FOR {rows}")
        asking.execute(f"FETCH 1 FROM c{place}")
    asking.execute("DECLARE d CURSOR FOR SELECT COUNT(*) AS n FROM people WHERE age > 61")
    asking.execute("SAVEPOINT s")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="not all fetched have more than 16000000"):
        asking.execute("FETCH 1 FROM d")
    asking.execute("ROLLBACK TO s")
    assert asking.execute("MOVE ALL IN c0").statusmessage == "MOVE 1599"
    assert asking.execute("FETCH 1 FROM d").fetchone() is not None, "rows that were taken are not held"
    asking.execute("ROLLBACK")


@pytest.mark.parametrize("take", ["MOVE ALL IN", "FETCH ALL FROM", "FETCH 3 FROM"])
def test_rows_that_were_taken_are_let_go(served, take):
    import gc

    from deniable.server.wire.codec import TableRows

    gc.collect()
    before = sum(isinstance(each, TableRows) for each in gc.get_objects())
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("BEGIN")
        for place in range(20):
            connection.execute(f"DECLARE c{place} CURSOR FOR SELECT repeat('x', 1900) FROM generate_series(1, 3) a")
            assert connection.execute(f"{take} c{place}").statusmessage == f"{take.split()[0]} 3"
        gc.collect()
        assert sum(isinstance(each, TableRows) for each in gc.get_objects()) == before
        assert connection.execute("FETCH ALL FROM c0").fetchall() == []


def portal(values=(), formats=(), text="", oids=()):
    from deniable.query.sql.lexer import split_statements
    from deniable.server.wire.prepared_statements import Portal, Prepared

    return Portal(Prepared(split_statements(f"SELECT '{text}'")[0], oids), values, formats)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"values": ("x" * 4_000_000,)}, {"values": ("y" * 4_000_000,)}),
        ({"values": ([None] * 300_000,)}, {"values": ([1] * 100_000,)}),
        ({"formats": (1,) * 120_000}, {"formats": (1,) * 120_000}),
        ({"oids": (25,) * 120_000}, {"oids": (25,) * 120_000}),
        ({"text": "x" * 90_000}, {"values": ("y" * 7_900_000,)}),
    ],
)
def test_whatever_a_portal_holds_counts(first, second):
    from deniable.server.wire.codec import ResultColumn, WireRefusal
    from deniable.server.wire.prepared_statements import PreparedStatements

    session = PreparedStatements()
    for _ in range(3):
        session.open("", portal(**second))  # each takes the place of the last one
        session.open("", portal(**first))
    session.refuse_rows()
    with pytest.raises(WireRefusal, match="more than 8000000 bytes"):
        session.open("more", portal(**second))
    assert set(session.portals) == {""}
    session.portals[""].describe(tuple(ResultColumn(f"c{place}", 25) for place in range(80_000)))
    for more in (session.refuse_columns, session.refuse_rows):
        with pytest.raises(WireRefusal, match="more than 8000000 bytes"):
            more()
    session.portals[""].describe(None)
    session.refuse_rows()


def test_a_statement_that_was_replaced_counts_while_a_portal_is_bound_to_it():
    from deniable.query.sql.lexer import split_statements
    from deniable.server.wire.codec import WireRefusal
    from deniable.server.wire.prepared_statements import Portal, Prepared, PreparedStatements

    session, [wide] = PreparedStatements(), split_statements("SELECT " + "1, " * 9_000 + "1")
    for place in range(5):
        session.prepare("", Prepared(wide, ()))
        for name in ("a", "b"):  # several portals of one statement count once
            session.open(f"{name}{place}", Portal(session.statement(""), (), ()))
    with pytest.raises(WireRefusal, match="more than 100000 words"):
        session.prepare("", Prepared(wide, ()))
    for place in range(5):
        del session.portals[f"a{place}"], session.portals[f"b{place}"]
    session.prepare("", Prepared(wide, ()))


def test_savepoints_and_values_of_settings_are_limited(asking):
    with pytest.raises(psycopg.Error, match="more than 1000 characters"):
        asking.execute(f"SET application_name = '{'x' * 1001}'")
    asking.execute("BEGIN")
    for _ in range(2000):  # as drivers do before each statement
        asking.execute("SAVEPOINT a")
    many = (f"SET application_name = '{place}'; SAVEPOINT b{place}" for place in range(2000))
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="savepoints keep more than 4000000 bytes"):
        list(map(asking.execute, many))
    asking.execute("ROLLBACK")
    assert asking.execute("SHOW application_name").fetchone() == ("",)


def test_a_list_is_an_array_in_catalog_questions_and_refused_where_people_are_asked_about(served, asking):
    for asked, given in (("SELECT %s::int[]", [1, 2]), ("SELECT %s::text[]", ['say "a"', None, "b,c", ""]),
                         ("SELECT %s::int8[]", [2**40]), ("SELECT %s::bool[]", [True, False])):  # fmt: skip
        assert asking.execute(asked, (given,)).fetchone() == (given,), asked
    before = charges(served)
    for asked in ("SELECT COUNT(*) FROM people WHERE age = %s", "SELECT %s, COUNT(*) FROM people GROUP BY 1"):
        with pytest.raises(psycopg.Error) as refused:
            asking.execute(asked, ([1, 2],))
        assert refused.value.sqlstate == "22023", asked
    assert charges(served) == before
    assert asking.execute("SELECT COUNT(*) FROM people WHERE age = ANY (%s)", ([30, 31],)).fetchone() is not None
