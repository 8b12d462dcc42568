"""Every layout that a ledger or an answer store ever had is brought to the newest: same chain, balances, answers."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from deniable.errors import DeniableError, IntegrityError, StorageError
from deniable.ledger import Ledger
from deniable.ledger.answer_store import COUNTED, SEALED, TOTALED, AnswerStore, SqliteShelf
from deniable.ledger.entry import Line
from deniable.ledger.ledger import verify
from deniable.ledger.sqlite import STEPS, SqliteStore
from ledgers import charge, tree

ENTRIES = """
CREATE TABLE IF NOT EXISTS entries (
  sequence INTEGER PRIMARY KEY, act TEXT NOT NULL, analyst TEXT NOT NULL, request TEXT NOT NULL, text TEXT NOT NULL,
  UNIQUE (analyst, request)) STRICT;
CREATE INDEX IF NOT EXISTS entries_by_act ON entries (act, sequence);
CREATE TRIGGER IF NOT EXISTS entries_are_final BEFORE UPDATE ON entries
  BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
CREATE TRIGGER IF NOT EXISTS entries_stay BEFORE DELETE ON entries
  BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END;
CREATE TRIGGER IF NOT EXISTS entries_are_in_order BEFORE INSERT ON entries
  WHEN NEW.sequence <> (SELECT coalesce(max(sequence), 0) + 1 FROM entries)
  BEGIN SELECT RAISE(ABORT, 'entries are appended at the end'); END;
"""
TOTALS = "CREATE TABLE IF NOT EXISTS totals (name TEXT PRIMARY KEY, total TEXT NOT NULL) STRICT, WITHOUT ROWID;"
LAYOUTS = {"with totals": ENTRIES + TOTALS, "entries alone": ENTRIES}
KEPT = (
    "CREATE TABLE IF NOT EXISTS kept (drawer TEXT NOT NULL, name TEXT NOT NULL, alias TEXT NOT NULL,"
    " value BLOB NOT NULL, PRIMARY KEY (drawer, name), UNIQUE (drawer, alias)) STRICT"
)
NEWEST = len(STEPS)


def write_chain() -> tuple[list[Line], tuple[object, ...]]:
    """The lines of a chain, and what they add up to."""
    ledger = Ledger("clinic", tree())
    for number in range(5):
        charge(ledger, "1/10", request=f"r{number}")
    return list(ledger.store.lines()), ledger.balance("research", "ana")


def write_old(path: Path, layout: str, lines: list[Line], version: int = 0) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA journal_mode = WAL;" + LAYOUTS[layout])
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", lines)
        if "totals" in layout:
            total = json.dumps({"amount": "0", "delta": "0"})  # falsified: nobody looks at it any more
            connection.executemany("INSERT INTO totals VALUES (?, ?)", [("dataset", total), ("upto", "5")])
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()


def find_layout(path: Path) -> tuple[int, list[str]]:
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        found = connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name")
        return version, [name for (name,) in found]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_ledger_of_every_earlier_layout_keeps_its_chain_and_balances(
    tmp_path: Path, layout: str, version: int
) -> None:
    lines, balance = write_chain()
    write_old(tmp_path / "old.sqlite", layout, lines, version)
    reading = Ledger("clinic", tree(), SqliteStore(tmp_path / "old.sqlite", writable=False))
    assert verify(reading).entries == 5, "it can be read before it is migrated"
    reading.close()
    for _ in range(2):
        ledger = Ledger("clinic", tree(), SqliteStore(tmp_path / "old.sqlite"))
        assert verify(ledger).entries == 5
        assert ledger.balance("research", "ana") == balance
        ledger.close()
    SqliteStore(tmp_path / "new.sqlite").close()
    assert find_layout(tmp_path / "old.sqlite") == find_layout(tmp_path / "new.sqlite")
    assert find_layout(tmp_path / "new.sqlite")[0] == NEWEST


@pytest.mark.parametrize("version", range(1, NEWEST + 1))
def test_a_ledger_of_each_numbered_layout_keeps_its_chain_and_balances(tmp_path: Path, version: int) -> None:
    """As that version laid it out: a step that is added is tried from here on, too."""
    lines, balance = write_chain()
    with closing(sqlite3.connect(tmp_path / "old.sqlite")) as old:
        for statement in STEPS[0]:
            old.execute(statement)
        old.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", lines)
        for statement in (each for step in STEPS[1:version] for each in step):
            old.execute(statement)
        old.execute(f"PRAGMA user_version = {version}")
        old.commit()
    ledger = Ledger("clinic", tree(), SqliteStore(tmp_path / "old.sqlite"))
    assert (verify(ledger).entries, ledger.balance("research", "ana")) == (5, balance)
    charge(ledger, "1/10", request="new")
    assert verify(ledger).entries == 6
    ledger.close()
    assert find_layout(tmp_path / "old.sqlite")[0] == NEWEST


def test_a_migration_that_fails_leaves_the_layout_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, _ = write_chain()
    write_old(tmp_path / "old.sqlite", "with totals", lines)
    before = find_layout(tmp_path / "old.sqlite")
    monkeypatch.setattr("deniable.ledger.sqlite.STEPS", (*STEPS, ("DROP TABLE entries_of_nobody",)))
    with pytest.raises(DeniableError):
        SqliteStore(tmp_path / "old.sqlite")
    assert find_layout(tmp_path / "old.sqlite") == before


@pytest.mark.parametrize("writable", [True, False])
def test_a_ledger_of_a_newer_version_is_refused_plainly(tmp_path: Path, writable: bool) -> None:
    lines, _ = write_chain()
    write_old(tmp_path / "new.sqlite", "entries alone", lines, NEWEST + 1)
    with pytest.raises(StorageError, match=f"its layout is {NEWEST + 1}, and this one knows {NEWEST}"):
        SqliteStore(tmp_path / "new.sqlite", writable=writable)


def test_a_ledger_that_says_its_layout_and_lost_its_table_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version = {NEWEST}")
    with pytest.raises(IntegrityError, match="damaged"):
        SqliteStore(tmp_path / "x.sqlite")


FOREIGN = {
    "a trigger that drops entries": "CREATE TRIGGER mine BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",
    "a trigger that takes the name of ours": "DROP TRIGGER entries_stay; CREATE TRIGGER entries_stay BEFORE DELETE ON"
    " entries BEGIN SELECT 1; END",
    "a trigger of ours is gone": "DROP TRIGGER entries_stay",
    "a view in the place of the entries": "ALTER TABLE entries RENAME TO kept_entries;"
    " CREATE VIEW entries AS SELECT * FROM kept_entries WHERE sequence < 3",
    "a table of somebody else": "CREATE TABLE notes (text)",
    "an index that changes what is unique": "CREATE UNIQUE INDEX one ON entries (act)",
}


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("change", FOREIGN)
def test_a_ledger_laid_out_otherwise_is_refused_before_it_is_read(tmp_path: Path, change: str, writable: bool) -> None:
    lines, _ = write_chain()
    path = tmp_path / "x.sqlite"
    write_old(path, "entries alone", lines if "unique" not in change else lines[:1], NEWEST)
    SqliteStore(path, writable=writable).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FOREIGN[change])
    with pytest.raises(IntegrityError, match="not laid out as a file of deniable"):
        SqliteStore(path, writable=writable)


def test_an_answer_store_laid_out_otherwise_is_refused(tmp_path: Path) -> None:
    AnswerStore(SqliteShelf(tmp_path / "x.sqlite")).close()
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as connection:
        connection.execute("CREATE TRIGGER mine BEFORE INSERT ON kept BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(IntegrityError, match="not laid out as a file of deniable: mine was added"):
        SqliteShelf(tmp_path / "x.sqlite")


FOREIGN_IN_POSTGRES = {
    "a trigger that drops entries": "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql"
    " AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER mine BEFORE INSERT ON deniable_entries"
    " FOR EACH ROW EXECUTE FUNCTION mine()",
    "a rule": "CREATE RULE mine AS ON INSERT TO deniable_entries DO INSTEAD NOTHING",
    "row security": "ALTER TABLE deniable_kept ENABLE ROW LEVEL SECURITY",
    "a trigger of ours is off": "ALTER TABLE deniable_entries DISABLE TRIGGER deniable_final",
    "a view in the place of the entries": "ALTER TABLE deniable_entries RENAME TO mine;"
    " CREATE VIEW deniable_entries AS SELECT * FROM mine",
    "the function of our triggers": "CREATE OR REPLACE FUNCTION deniable_entries_are_final() RETURNS trigger LANGUAGE"
    " plpgsql AS 'BEGIN RETURN NEW; END'",
}


QUICK = ("a trigger that drops entries", "a rule", "the function of our triggers")


@pytest.mark.parametrize(
    "change", [pytest.param(each, marks=[] if each in QUICK else pytest.mark.slow) for each in FOREIGN_IN_POSTGRES]
)
def test_a_postgresql_ledger_laid_out_otherwise_is_refused_before_it_is_read(
    postgres_address: str, change: str
) -> None:
    import psycopg

    from deniable.ledger.postgres import PostgresStore

    name = f"foreign{[*FOREIGN_IN_POSTGRES].index(change)}"
    address = psycopg.conninfo.make_conninfo(postgres_address, dbname=name)
    with psycopg.connect(postgres_address, autocommit=True) as owner:
        owner.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
    PostgresStore(address, "clinic").close()
    with psycopg.connect(address, autocommit=True) as foreign:
        foreign.execute(FOREIGN_IN_POSTGRES[change])  # type: ignore[call-overload]
    with pytest.raises(IntegrityError, match="not laid out as deniable does it"):
        PostgresStore(address, "clinic")


def write_store(path: Path) -> None:
    """An answer store from before values were sealed."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(KEPT)
        connection.execute("INSERT INTO kept VALUES ('answers', 'question', 'release', X'616e737765')")
        connection.commit()


def test_an_answer_store_of_every_earlier_layout_keeps_its_answers(tmp_path: Path) -> None:
    write_store(tmp_path / "unsealed.sqlite")
    store = AnswerStore(SqliteShelf(tmp_path / "unsealed.sqlite"))
    assert store.find("answers", "release") == b"answe"
    store.close()
    assert find_layout(tmp_path / "unsealed.sqlite")[0] == TOTALED
    with closing(sqlite3.connect(tmp_path / "unsealed.sqlite")) as connection:  # sealed, before layouts had numbers
        connection.execute("PRAGMA user_version = 0")
    again = AnswerStore(SqliteShelf(tmp_path / "unsealed.sqlite"))
    assert again.find("answers", "question") == b"answe"
    again.close()
    assert find_layout(tmp_path / "unsealed.sqlite")[0] == TOTALED


@pytest.mark.parametrize("version", [SEALED, COUNTED])
def test_an_answer_store_from_before_all_was_counted_is_counted_and_then_misses_a_collection(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "store.sqlite"
    store = AnswerStore(SqliteShelf(path))
    for collection, name in (("answers", "a"), ("answers", "b"), ("recodings", "c")):
        store.keep(collection, name, name, b"value")
    store.close()
    counts = "drawer = 'count'" + (" AND name = ''" if version == COUNTED else "")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"DELETE FROM kept WHERE {counts}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()
    store = AnswerStore(SqliteShelf(path))
    store.check()
    assert store.count_values() == {"answers": 2, "recodings": 1}
    store.close()
    assert find_layout(path)[0] == TOTALED
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM kept WHERE drawer = 'recodings' OR (drawer = 'count' AND name = 'recodings')")
        connection.commit()
    store = AnswerStore(SqliteShelf(path))
    with pytest.raises(IntegrityError, match="2 values in all, and 3 were stored"):
        store.check()
    store.close()


def test_an_answer_store_of_a_newer_version_or_without_its_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    AnswerStore(SqliteShelf(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM kept WHERE drawer = 'seal'")
        connection.commit()
    with pytest.raises(IntegrityError, match="lost the key"):
        AnswerStore(SqliteShelf(path))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {TOTALED + 1}")
    with pytest.raises(StorageError, match=f"its layout is {TOTALED + 1}, and this one knows {TOTALED}"):
        SqliteShelf(path)


POSTGRES = (
    "CREATE TABLE deniable_entries (dataset text, sequence bigint, act text NOT NULL,"
    " analyst text NOT NULL, request text NOT NULL, text text NOT NULL,"
    " PRIMARY KEY (dataset, sequence), UNIQUE (dataset, analyst, request))",
    "CREATE TABLE deniable_kept (dataset text, drawer text, name text, alias text NOT NULL,"
    " value bytea NOT NULL, PRIMARY KEY (dataset, drawer, name), UNIQUE (dataset, drawer, alias))",
)
POSTGRES_TOTALS = (
    "CREATE TABLE deniable_totals (dataset text, name text, total text NOT NULL, PRIMARY KEY (dataset, name))"
)


@pytest.mark.parametrize("totals", [True, False])
def test_a_postgresql_ledger_of_every_earlier_layout_keeps_its_chain_and_balances(
    postgres_address: str, totals: bool
) -> None:
    import psycopg

    from deniable.ledger import postgres
    from deniable.ledger.postgres import PostgresShelf, PostgresStore

    lines, balance = write_chain()
    address = psycopg.conninfo.make_conninfo(postgres_address, dbname=f"old{totals:d}")
    with psycopg.connect(postgres_address, autocommit=True) as owner:
        owner.execute(f"CREATE DATABASE old{totals:d}")
    with psycopg.connect(address, autocommit=True) as old:
        for statement in (*POSTGRES, *((POSTGRES_TOTALS,) if totals else ())):
            old.execute(statement)
        for line in lines:
            old.execute("INSERT INTO deniable_entries VALUES (%s, %s, %s, %s, %s, %s)", ("clinic", *line))
        old.execute("INSERT INTO deniable_kept VALUES ('clinic', 'answers', 'question', 'release', 'answe')")
    ledger, store = Ledger("clinic", tree(), PostgresStore(address, "clinic")), PostgresShelf(address, "clinic")
    assert verify(ledger).entries == 5
    assert ledger.balance("research", "ana") == balance
    sealed = AnswerStore(store)
    assert sealed.find("answers", "release") == b"answe"
    sealed.check()
    with psycopg.connect(address, autocommit=True) as old:  # as it was before all was counted together
        old.execute("DELETE FROM deniable_kept WHERE drawer = 'count' AND name = ''")
        old.execute("UPDATE deniable_layout SET version = 3")
    again = AnswerStore(PostgresShelf(address, "clinic"))
    again.check()
    assert again.count_values() == {"answers": 1}
    again.close()
    sealed.see(5, lines[-1].text)
    with psycopg.connect(address, autocommit=True) as old:
        assert old.execute("SELECT to_regclass('deniable_totals')").fetchone() == (None,)
        assert old.execute("SELECT version FROM deniable_layout").fetchall() == [(len(postgres.STEPS),)]
        old.execute("DELETE FROM deniable_kept WHERE drawer = 'seal'")
        with pytest.raises(IntegrityError, match="lost the key"):
            AnswerStore(PostgresShelf(address, "clinic"))
        old.execute("UPDATE deniable_layout SET version = 99")
    with pytest.raises(StorageError, match="its layout is 99"):
        PostgresStore(address, "clinic")
    for each in (ledger, sealed):
        each.close()


def test_a_postgresql_ledger_of_each_numbered_layout_keeps_its_chain_answers_and_balances(
    postgres_address: str,
) -> None:
    import psycopg

    from deniable.ledger.postgres import LAYOUT, PostgresShelf, PostgresStore
    from deniable.ledger.postgres import STEPS as LAID_OUT

    lines, balance = write_chain()
    for version in range(1, len(LAID_OUT) + 1):
        name = f"numbered{version}"
        address = psycopg.conninfo.make_conninfo(postgres_address, dbname=name)
        with psycopg.connect(postgres_address, autocommit=True) as owner:
            owner.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
        with psycopg.connect(address, autocommit=True) as old:
            for statement in (*LAYOUT, *LAID_OUT[0]):
                old.execute(statement)
            for line in lines:
                old.execute("INSERT INTO deniable_entries VALUES (%s, %s, %s, %s, %s, %s)", ("clinic", *line))
            old.execute("INSERT INTO deniable_kept VALUES ('clinic', 'answers', 'question', 'release', 'answe')")
            for statement in (each for step in LAID_OUT[1:version] for each in step):
                old.execute(statement)
            old.execute("UPDATE deniable_layout SET version = %s", (version,))
        ledger = Ledger("clinic", tree(), PostgresStore(address, "clinic"))
        store = AnswerStore(PostgresShelf(address, "clinic"))
        assert (verify(ledger).entries, ledger.balance("research", "ana")) == (5, balance), version
        store.check()
        assert store.find("answers", "release") == b"answe"
        charge(ledger, "1/10", request="new")
        assert verify(ledger).entries == 6
        ledger.close()
        store.close()
