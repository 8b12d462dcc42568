"""Backups: one SQLite file with the entries of a ledger and all that its answer store holds, wherever both are kept.

A backup is verified before it gets its name, and again before it is restored. It says of which place it was taken, so
that none is put beside a ledger that is in use.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from deniable.errors import AccessRefused, DataError, IntegrityError
from deniable.ledger.answer_store import (
    COUNT,
    NOTHING_SEEN,
    SEAL,
    SEEN,
    AnswerStore,
    MemoryShelf,
    Row,
    Shelf,
    SqliteShelf,
)
from deniable.ledger.entry import Line, MemoryStore, Store, decode_entry
from deniable.ledger.ledger import POSTGRES, Ledger, Verified, verify
from deniable.ledger.loss import refuse_mismatch
from deniable.ledger.postgres import (
    WAIT_SECONDS,
    find_missing_right,
    import_driver,
    limit_waiting,
    refuse_closed_schemas,
)
from deniable.ledger.sqlite import COLUMNS as LINE
from deniable.ledger.sqlite import (
    STEPS,
    SqliteStore,
    close_on_error,
    find_version,
    migrate,
    place_answers,
    refuse_foreign,
    refuse_newer,
    translate_errors,
)
from deniable.policy.access import Budgets
from deniable.storage import PRIVATE_FILE, give_name, storage_errors

KEPT = "CREATE TABLE kept (drawer TEXT, name TEXT, alias TEXT, value BLOB NOT NULL, PRIMARY KEY (drawer, name)) STRICT"
"""The table of a backup with what the answer store holds."""
HOME = "CREATE TABLE home (place TEXT NOT NULL) STRICT"
"""The table of a backup with the place of the ledger that it was taken of; earlier versions wrote none."""


def back_up(ledger: Ledger, store: AnswerStore, path: Path, place: str = "") -> Verified:
    """Copy a ledger and its answer store into one file, as they are at one moment; refuses to replace a file.

    Nobody writes to the ledger meanwhile. The copy is verified before it gets its name. `place` is where the ledger is:
    whoever restores the copy can look whether it is there still.
    """
    if path.exists():
        raise AccessRefused(f"'{path.name}' already exists", remedy="Choose another name: backups are not replaced")
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        copied = _copy_both(ledger, store, part, path, place)
        with storage_errors(path):
            give_name(part, path)  # unlike a rename it refuses a file that came meanwhile
    finally:
        part.unlink(missing_ok=True)
    return copied


COPIES = 10
"""How often a copy is tried: between a first charge and its stored answer the two do not fit together yet."""


def _copy_both(ledger: Ledger, store: AnswerStore, part: Path, path: Path, place: str, left: int = COPIES) -> Verified:
    part.unlink(missing_ok=True)
    with ledger.store.begin_write() as book, storage_errors(path):
        _write_backup(part, book.after(0), store.dump(), place)
    try:
        return verify_backup(part, ledger.dataset)
    except IntegrityError:
        if left <= 1:
            raise
    time.sleep(0.1)
    return _copy_both(ledger, store, part, path, place, left - 1)


def _write_backup(part: Path, lines: Iterable[Line], rows: Iterable[Row], place: str) -> None:
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE))
    with translate_errors(part), closing(sqlite3.connect(part, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        migrate(connection, STEPS, "entries", part)
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", lines)
        connection.execute(KEPT)
        connection.executemany("INSERT INTO kept VALUES (?, ?, ?, ?)", rows)
        connection.execute(HOME)
        connection.execute("INSERT INTO home VALUES (?)", (place,))
        connection.execute("COMMIT")


def verify_backup(path: Path, dataset: str) -> Verified:
    """Recompute the chain of a backup, and open every seal; refuses one of another dataset, or that was changed."""
    with closing(open_backup(path, dataset)) as ledger, closing(hold_rows(read_backup(path)[1])) as store:
        found = verify(ledger)
        refuse_mismatch(ledger, store, "withdrawn")
        return found


def read_backup(path: Path) -> tuple[list[Line], list[Row]]:
    """The entries of a backup, and what its answer store held."""
    with _open_file(path) as connection:
        lines = [Line(*row) for row in connection.execute(f"SELECT {LINE} FROM entries ORDER BY sequence")]  # noqa: S608
        return lines, connection.execute("SELECT drawer, name, alias, value FROM kept").fetchall()


def find_origin(path: Path) -> str:
    """The place of the ledger that a backup was taken of; empty where it does not say."""
    with _open_file(path) as connection:
        found = connection.execute("SELECT place FROM home").fetchone() if _has_home(connection) else None
        return str(found[0]) if found is not None else ""


@contextmanager
def _open_file(path: Path) -> Iterator[sqlite3.Connection]:
    """A backup, to be read; refuses a file that is laid out otherwise."""
    if not path.is_file():
        raise DataError(f"there is no backup '{path.name}'", remedy="It is written by: deniable ledger backup")
    with (
        translate_errors(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection,
    ):
        refuse_newer(find_version(connection), len(STEPS), f"'{path.name}'")
        refuse_foreign(connection, (*STEPS, (KEPT, HOME) if _has_home(connection) else (KEPT,)), path)
        yield connection


def _has_home(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'home'").fetchone() is not None


def open_backup(path: Path, dataset: str, budgets: Budgets | None = None) -> Ledger:
    """The ledger in a backup, to be read."""
    held, (lines, rows) = MemoryStore(), read_backup(path)
    for line in lines:
        held.append(line)
    ledger = Ledger(dataset, budgets, held)
    ledger.key = next((bytes(value) for collection, _, _, value in rows if collection == SEAL), None)
    return ledger


def hold_rows(rows: Iterable[Row]) -> AnswerStore:
    """The rows of a store in memory; refuses rows without the key of their seals."""
    shelf, listed = MemoryShelf(), [*rows]
    if not any(collection == SEAL for collection, *_ in listed):
        raise IntegrityError("the backup has no key of its seals", remedy="Use another backup")
    shelf.hold(listed)
    return AnswerStore(shelf)


def _put_rows(shelf: Shelf, rows: Iterable[Row]) -> None:
    for collection, name, alias, value in rows:
        if collection == SEEN:
            shelf.keep_seen(bytes(value))
        elif collection != COUNT:  # they are counted as they are kept
            shelf.keep(collection, name, alias, bytes(value))


def restore_backup(path: Path, dataset: str, place: str | Path) -> Verified:
    """Write a verified backup to a place where no ledger is, or one without entries; refuses to replace another."""
    found = verify_backup(path, dataset)
    lines, rows = read_backup(path)
    store, shelf = _make_place(place, dataset)
    try:
        with store.begin_write() as book:
            if book.head() is not None or not _is_blank(shelf):
                raise _refuse_taken(place)
            for collection in sorted({row[0] for row in shelf.dump()}, key=lambda each: each == COUNT):
                shelf.empty(collection)
            _put_rows(shelf, rows)  # first: a store without its ledger is refused, and a ledger without its store not
            for line in lines:
                book.append(line)
    finally:
        store.close()
        shelf.close()
    return found


def _make_place(place: str | Path, dataset: str) -> tuple[Store, Shelf]:
    if str(place).startswith(POSTGRES):
        from deniable.ledger.postgres import PostgresShelf, PostgresStore

        return PostgresStore(str(place), dataset), PostgresShelf(str(place), dataset)
    beside, there = place_answers(place), Path(place).exists()
    try:
        shelf = SqliteShelf(beside)
        with close_on_error(shelf):
            if not there and not _is_blank(shelf):  # before a ledger is made
                raise _refuse_taken(place)
            return SqliteStore(place), shelf
    except IntegrityError:  # what is there was damaged, and somebody may want to look at it
        raise _refuse_taken(place) from None


KEYS = "keys"
"""The collection of keys, which are drawn when they are first needed."""


def _is_blank(shelf: Shelf) -> bool:
    """Whether a store was made, and never used: it holds nothing but keys under which nothing was kept."""
    known = (SEAL, COUNT, KEYS)
    return all(row[0] in known or (row[0] == SEEN and bytes(row[3]) == NOTHING_SEEN) for row in shelf.dump())


def _refuse_taken(place: str | Path) -> AccessRefused:
    name = "the database" if str(place).startswith(POSTGRES) else f"'{Path(place).name}'"
    return AccessRefused(
        f"there is a ledger, or its answer store, at {name} already",
        remedy="Move both away first: a restored ledger never replaces one that is there",
    )


def holds_entries(address: str, dataset: str, *, first: str = "", gone: bool = False) -> bool:
    """Whether a database has entries of a dataset's ledger; with `first` only where that is the hash of the first one.

    A server that lets nobody in is refused, since nobody knows what it has. So is one that does not answer: it may only
    be down. If the steward says that it is `gone`, it has none.
    """
    psycopg = import_driver()
    try:
        with psycopg.connect(address, **limit_waiting()) as connection:
            if connection.execute("SELECT to_regclass('deniable_entries')").fetchone()[0] is None:
                refuse_closed_schemas(connection.execute, make=False)
                return False
            sql = "SELECT text FROM deniable_entries WHERE dataset = %s ORDER BY sequence LIMIT 1"
            found = connection.execute(sql, (dataset,)).fetchone()
            return found is not None and first in ("", decode_entry(found[0], 0).hash)
    except psycopg.Error as failure:
        if (missing := find_missing_right(address, failure)) is not None:
            raise missing from None
        if _does_answer(address):
            with suppress(psycopg.Error):
                psycopg.connect(address, **limit_waiting() | {"dbname": "postgres"}).close()
                return False  # the server lets us in, and the database is gone
            raise AccessRefused(
                "the database of a ledger that holds the budget of the same rows lets nobody in: it may still hold "
                "the ledger",
                remedy="Say who may enter it in PGUSER and PGPASSWORD, so that it can be looked for",
            ) from None
    if gone:
        return False
    raise AccessRefused(
        "the server of a ledger that holds the budget of the same rows does not answer: it may be down, and still hold "
        "the ledger",
        expected="One ledger for one set of people: two would each give the whole budget",
        remedy="Start the server, or wait for it. If it is gone for good, say so: --server-gone",
    )


def _does_answer(address: str) -> bool:
    """Whether a server is there, whoever may enter it."""
    pq = import_driver().pq
    found = pq.PGconn.ping(import_driver().conninfo.make_conninfo(address, connect_timeout=WAIT_SECONDS).encode())
    return found in (pq.Ping.OK, pq.Ping.REJECT)
