"""The embedded store: one SQLite file, write-ahead log, full sync, one writer at a time.

`BEGIN IMMEDIATE` takes the one write lock before anything is read, so that two processes never decide on the same
entries. `synchronous = FULL` flushes the log before a commit returns: what was charged survives a power cut. Triggers
refuse to change or delete an entry, against accidents; against malice there is the chain.

A file tells its layout by a number (`user_version`). One of an earlier layout is brought to this one, step by step, in
one transaction; one of a later layout is refused. So is one in which anything else is laid out than that: a trigger or
a view of somebody else could drop or invent entries while the chain looks whole.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NoReturn, Protocol

from deniable.errors import UNKNOWN, DeniableError, IntegrityError, LedgerBusy, StorageError
from deniable.ledger.entry import Line
from deniable.storage import PRIVATE_FILE, storage_errors

PATIENCE = 60.0
"""Seconds that a writer waits for its turn."""
HELD_SECONDS = 10.0
"""How long after all patience was in vain the next writers wait a tenth of it: others wait behind them."""
TURN_SECONDS = 0.01
"""How often a process looks for its turn where SQLite does not wait."""
FIRST_STEPS, STEP, LATER_STEP = 0.1, 2, 25
"""For so many seconds a writer looks every two milliseconds whether its turn has come, then every 25. SQLite's own
steps grow to 25 at once, and to 100: who asks seldom then waits longest."""

STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE IF NOT EXISTS entries (sequence INTEGER PRIMARY KEY, act TEXT NOT NULL, analyst TEXT NOT NULL,"
        " request TEXT NOT NULL, text TEXT NOT NULL, UNIQUE (analyst, request)) STRICT",
        "CREATE INDEX IF NOT EXISTS entries_by_act ON entries (act, sequence)",
        "CREATE TRIGGER IF NOT EXISTS entries_are_final BEFORE UPDATE ON entries"
        " BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
        "CREATE TRIGGER IF NOT EXISTS entries_stay BEFORE DELETE ON entries"
        " BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END",
        "CREATE TRIGGER IF NOT EXISTS entries_are_in_order BEFORE INSERT ON entries"
        " WHEN NEW.sequence <> (SELECT coalesce(max(sequence), 0) + 1 FROM entries)"
        " BEGIN SELECT RAISE(ABORT, 'entries are appended at the end'); END",
    ),
    # Totals beside the entries could be falsified; what was spent follows from the entries alone.
    ("DROP TABLE IF EXISTS totals",),
    # Entries are sealed: earlier versions cannot read them.
    (),
)
"""How a layout becomes the next one. Files from before layouts had numbers say 0, and are of one of these."""

TOTALS = "CREATE TABLE totals (name TEXT PRIMARY KEY, total TEXT NOT NULL) STRICT, WITHOUT ROWID"
"""What earlier versions laid out beside the entries."""
COLUMNS = "sequence, act, analyst, request, text"


class Turns:
    """The turns of those who write to a file. While another process holds it for long, nobody waits as long again."""

    def __init__(self) -> None:
        self.patience = PATIENCE
        """Seconds that a writer waits for its turn."""
        self._held = -HELD_SECONDS

    @property
    def held(self) -> bool:
        """Whether another process held the file for longer than all patience, a short time ago."""
        return time.monotonic() - self._held < HELD_SECONDS

    def take(self, connection: sqlite3.Connection) -> None:
        """Take the write lock."""
        waits, began = self.patience / 10 if self.held else self.patience, time.monotonic()
        try:
            while not _begin_write(connection, STEP if time.monotonic() - began < FIRST_STEPS else LATER_STEP):
                if time.monotonic() - began >= waits:
                    self._held = time.monotonic()
                    _begin_write(connection, 0, last=True)
                    break
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * waits)}")
        self._held = -HELD_SECONDS


def _begin_write(connection: sqlite3.Connection, milliseconds: int, last: bool = False) -> bool:
    """Whether the write lock was to be had within so many milliseconds; the last time its lack is an error."""
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as failure:
        if last or not failure.sqlite_errorname.startswith("SQLITE_BUSY"):
            raise
        return False
    return True


class SqliteStore:
    """A ledger in a file; any number of threads and processes may share it."""

    def __init__(self, path: str | Path, *, writable: bool = True) -> None:
        self.path = Path(path)
        self._writable = writable
        # Readers have a connection of their own, so that nobody who reads waits for a writer's flush.
        self._lock, self._reading = threading.RLock(), threading.RLock()
        self._owner = os.getpid()
        self._file: tuple[int, int] | None = None
        self.turns = Turns()
        self._connection = self._open()
        self._reader = self._open_reader()

    @contextmanager
    def begin_write(self) -> Iterator[SqliteBook]:
        """The one writer's transaction."""
        with self._lock, translate_errors(self.path):
            connection = self._ours()
            with roll_back_on_error(connection):
                self.turns.take(connection)
                self._refuse_replaced()
                yield SqliteBook(connection)
                self._commit(connection)

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Keep what was written. A disk that fails in the act may have kept it all the same: the next start tells."""
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as failure:
            undone = getattr(failure, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_BUSY"))
            _refuse(failure, self.path, None if undone else UNKNOWN)

    def _refuse_replaced(self) -> None:
        """Refuse to write to a file that has lost its name, which nobody would find again."""
        if _find_file(self.path) != self._file:
            raise StorageError(
                f"the ledger '{self.path.name}' was removed, or replaced by another, while it was open",
                remedy="Run the command again, or start the server anew, once the right one is in its place",
            )

    def discard(self, *beside: Path) -> None:
        """Let go of the file, and remove it with those beside it if it has no entry and nobody else has it open."""
        with self._lock, self._reading:
            self._reader.close()
            try:
                self._connection.execute("PRAGMA busy_timeout = 0")
                # Leaving the write-ahead log needs the file for oneself: that fails where another has it open.
                (mode,) = self._connection.execute("PRAGMA journal_mode = DELETE").fetchone()
                self._connection.execute("BEGIN EXCLUSIVE")
                unused = self._connection.execute("SELECT 1 FROM entries").fetchone() is None
                if mode == "delete" and unused and _find_file(self.path) == self._file:
                    for path in (*(log for each in beside for log in _list_logs(each)), *beside, self.path):
                        path.unlink(missing_ok=True)
            except (sqlite3.Error, OSError):
                pass  # somebody else uses it: it stays
            finally:
                _rollback(self._connection)
                self._connection.close()

    @contextmanager
    def begin_read(self) -> Iterator[SqliteBook]:
        """A consistent view; it does not hold up a writer."""
        with self._reading, translate_errors(self.path):
            connection = self._our_reader()
            connection.execute("BEGIN")
            try:
                yield SqliteBook(connection)
            finally:
                _rollback(connection)

    def last(self) -> int:
        """The number of the last entry."""
        with self._reading, translate_errors(self.path):
            return int(self._our_reader().execute("SELECT coalesce(max(sequence), 0) FROM entries").fetchone()[0])

    def lines(self, after: int = 0, acts: tuple[str, ...] = ()) -> Iterator[Line]:
        """The entries after that number, of these acts or of all, a thousand at a time."""
        only = f" AND act IN ({', '.join('?' * len(acts))})" if acts else ""
        sql = f"SELECT {COLUMNS} FROM entries WHERE sequence > ?{only} ORDER BY sequence LIMIT 1000"  # noqa: S608
        while True:
            with self._reading, translate_errors(self.path):
                found = [Line(*row) for row in self._our_reader().execute(sql, (after, *acts))]
            yield from found
            if not found:
                return
            after = found[-1].sequence

    def find_key(self) -> bytes | None:
        """The key of the answer store beside it, if that saw the ledger.

        A store that was lost and made anew has another key: that it is lost is told then, and not that seals differ.
        """
        beside = place_answers(self.path)
        if not beside.exists():
            return None
        quietly = suppress(sqlite3.Error, UnicodeDecodeError)
        with quietly, closing(open_connection(f"{beside.as_uri()}?mode=ro")) as connection:
            sql = "SELECT value FROM kept WHERE drawer = 'seal' AND EXISTS (SELECT 1 FROM kept WHERE drawer = 'seen')"
            found = connection.execute(sql).fetchone()
            return bytes(found[0]) if found is not None else None
        return None

    def identify(self) -> str:
        """The whole path, without links."""
        return os.path.realpath(self.path)

    def count_servers(self) -> int:
        """One: a file does not say who else has it open."""
        return 1

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, self._reading:
            self._reader.close()
            self._connection.close()

    def _ours(self) -> sqlite3.Connection:
        self._reopen_after_fork()
        return self._connection

    def _our_reader(self) -> sqlite3.Connection:
        self._reopen_after_fork()
        return self._reader

    def _reopen_after_fork(self) -> None:
        # A connection must not cross a fork: the child opens its own.
        if os.getpid() != self._owner:
            self._owner = os.getpid()
            self._connection, self._reader = self._open(), self._open_reader()

    def _open_reader(self) -> sqlite3.Connection:
        with translate_errors(self.path):
            connection = open_connection(f"{self.path.absolute().as_uri()}?mode=ro")
            with close_on_error(connection):
                refuse_newer(find_version(connection), len(STEPS), f"'{self.path.name}'")
                if not self._writable:
                    refuse_foreign(connection, STEPS, self.path)
            return connection

    def _open(self) -> sqlite3.Connection:
        with translate_errors(self.path):
            if not self._writable:
                return self._open_reader()
            touch(self.path)
            connection = open_connection(self.path.absolute().as_uri())
            with close_on_error(connection):
                begin_log(connection)
                connection.execute("PRAGMA synchronous = FULL")
                migrate(connection, STEPS, "entries", self.path)
            self._file = _find_file(self.path)
            return connection


def place_answers(place: str | Path) -> Path:
    """Where the answer store beside a ledger in a file is: beside the file itself, if a link leads to it."""
    return Path(os.path.realpath(place)).with_suffix(".kept.sqlite")


def _find_file(path: Path) -> tuple[int, int] | None:
    """What a path leads to now; None where nothing is there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _list_logs(path: Path) -> tuple[Path, ...]:
    """The write-ahead log of a file, and its index."""
    return tuple(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))


class SqliteBook:
    """The ledger inside one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute

    def head(self) -> str | None:
        """The text of the last entry."""
        row = self._run("SELECT text FROM entries ORDER BY sequence DESC LIMIT 1").fetchone()
        return None if row is None else row[0]

    def of_request(self, analyst: str, request: str) -> str | None:
        """The text of the entry that a request left behind."""
        sql = "SELECT text FROM entries WHERE analyst = ? AND request = ? AND sequence > 0"
        row = self._run(sql, (analyst, request)).fetchone()
        return None if row is None else row[0]

    def after(self, sequence: float) -> Iterator[Line]:
        """The entries after that number."""
        sql = f"SELECT {COLUMNS} FROM entries WHERE sequence > ? ORDER BY sequence"  # noqa: S608  our own words
        return (Line(*row) for row in self._run(sql, (sequence,)))

    def append(self, line: Line) -> None:
        """Write an entry at the end."""
        self._run(f"INSERT INTO entries ({COLUMNS}) VALUES (?, ?, ?, ?, ?)", line)  # noqa: S608  our own words


def begin_log(connection: sqlite3.Connection, patience: float = PATIENCE) -> None:
    """Have a file write ahead to a log. SQLite does not wait where several processes do so at once; this does."""
    until = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as failure:
            if not failure.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > until:
                raise
        time.sleep(TURN_SECONDS)


def migrate(
    connection: sqlite3.Connection, steps: Sequence[Sequence[str]], table: str, path: Path, newest: int = 0
) -> None:
    """Bring a file to the newest layout, one step after the other in one transaction; refuse a later layout.

    `table` must be there in the end: a file that says its layout and has lost it was damaged. `newest` is the newest
    layout where steps come after these: another process may have taken them by the time that this one has its turn.
    """
    with roll_back_on_error(connection):
        connection.execute("BEGIN IMMEDIATE")
        version = find_version(connection)
        refuse_newer(version, max(newest, len(steps)), f"'{path.name}'")
        for number, statements in enumerate(steps[version:], start=version + 1):
            for statement in statements:
                connection.execute(statement)
            set_version(connection, number)
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is None:
            raise IntegrityError(f"'{path.name}' was damaged: '{table}' is gone", remedy="Restore it from a backup")
        refuse_foreign(connection, steps, path)
        connection.execute("COMMIT")


Layout = frozenset[tuple[str, str, str]]
"""What a file is laid out as: kind, name and statement of each thing in it."""


def refuse_foreign(connection: sqlite3.Connection, steps: Sequence[Sequence[str]], path: Path) -> None:
    """Refuse a file in which other tables, views, triggers or indexes are laid out than its version has, or damaged."""
    version = find_version(connection)
    allowed = [lay_out(tuple(tuple(step) for step in steps[:last])) for last in {len(steps), version or len(steps)}]
    if version < 2:
        allowed += [each | {_describe("table", "totals", TOTALS)} for each in allowed]
    found = _read_layout(connection)
    if found in allowed:
        _refuse_damaged(connection, path)
        return
    names = sorted({name for _, name, _ in min((found ^ each for each in allowed), key=len)})
    raise IntegrityError(
        f"'{path.name}' is not laid out as a file of deniable: {', '.join(names)} was added, changed or removed",
        expected="The tables and triggers of this version, and nothing else",
        remedy="Find out who did that; restore the file from a backup",
    )


def _refuse_damaged(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file whose pages or indexes are not whole: an index that lost a request would have it charged again."""
    if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        raise IntegrityError(
            f"'{path.name}' was damaged: its pages or indexes do not fit together",
            remedy="Restore it from a backup: deniable ledger restore",
        )


@cache
def lay_out(steps: tuple[tuple[str, ...], ...]) -> Layout:
    """What a new file is laid out as after these steps."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in (statement for step in steps for statement in step):
            connection.execute(statement)
        return _read_layout(connection)


def _read_layout(connection: sqlite3.Connection) -> Layout:
    listed = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    return frozenset(_describe(*each) for each in listed.fetchall())


def _describe(kind: str, name: str, sql: str | None) -> tuple[str, str, str]:
    return kind, name, "".join((sql or "").split())  # an earlier version wrote other white space


def find_version(connection: sqlite3.Connection) -> int:
    """The number of a file's layout; 0 in a new file, and in one from before layouts had numbers."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def set_version(connection: sqlite3.Connection, version: int) -> None:
    """Write the number of a file's layout, in the transaction that is under way."""
    connection.execute(f"PRAGMA user_version = {version:d}")


def refuse_newer(version: int, known: int, what: str) -> None:
    """Refuse a layout that this version of the program does not know."""
    if version > known:
        raise StorageError(
            f"{what} was written by a newer version of deniable: its layout is {version}, and this one knows {known}",
            remedy="Use the newer version, or one that is newer still",
        )


class _Translation:
    """A block around one statement: twenty of them stand around a question, so it costs nothing where nothing fails."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        if failure is not None:
            with _translate_failure(self._path):
                raise failure


def translate_errors(path: Path) -> AbstractContextManager[None]:
    """Turn what SQLite and the disk refuse into refusals of ours, saying that nothing was charged."""
    return _Translation(path)


@contextmanager
def _translate_failure(path: Path) -> Iterator[None]:
    try:
        with storage_errors(path):
            yield
    except DeniableError:
        raise
    except sqlite3.IntegrityError as failure:
        raise IntegrityError(f"'{path.name}' refused a change of what is written: {failure}") from None
    except sqlite3.Error as failure:
        _refuse(failure, path)
    except UnicodeDecodeError:  # SQLite quotes what it cannot read in its messages
        raise IntegrityError(DAMAGED.format(path.name), remedy="Restore it from a backup") from None


DAMAGED = "'{}' is not a ledger, or was damaged"


BESIDE = {".kept.sqlite": "the answer store", "ledgers.sqlite": "the user's record of ledgers"}
"""Files beside a ledger, by the ends of their names."""


def _refuse(failure: sqlite3.Error, path: Path, charge: str | None = None) -> NoReturn:
    name = getattr(failure, "sqlite_errorname", "")
    if name == "SQLITE_ERROR" or name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):  # our own SQL is right
        raise IntegrityError(DAMAGED.format(path.name), remedy="Restore it from a backup") from None
    if name.startswith("SQLITE_BUSY"):
        named = next((name for ending, name in BESIDE.items() if path.name.endswith(ending)), "the ledger")
        raise LedgerBusy(f"{named} is busy: another process holds it", remedy="Try again", charge=charge) from None
    reasons = {
        "SQLITE_FULL": ("the disk is full", "Free some space"),
        "SQLITE_READONLY": ("it is read-only", "Give write permission to the file and its folder"),
        "SQLITE_CANTOPEN": ("it cannot be opened", "Check that the folder exists and its permissions"),
        "SQLITE_IOERR": ("the disk refused to write", "Check the disk and its limits"),
    }
    known = [told for start, told in reasons.items() if name.startswith(start)]
    reason, remedy = known[0] if known else ("the database refused", "Check the file")
    raise StorageError(f"the ledger '{path.name}' could not be used: {reason}", remedy=remedy, charge=charge) from None


def open_connection(uri: str) -> sqlite3.Connection:
    """A connection that begins and ends its transactions only on command."""
    return sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)


def touch(path: Path) -> None:
    """Make the file so that only its owner can read it; its log and index inherit that.

    One that is there is not opened: closing it would drop the locks of every connection that this process has to it.
    """
    if not path.exists():
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE))


@contextmanager
def close_on_error(opened: Closable) -> Iterator[None]:
    """Let go of something that was opened when the block raises."""
    try:
        yield
    except BaseException:
        opened.close()
        raise


class Closable(Protocol):
    """Something that can be let go of."""

    def close(self) -> None:
        """Let go of it."""


@contextmanager
def roll_back_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    """Roll a transaction back when the block raises."""
    try:
        yield
    except BaseException:
        _rollback(connection)
        raise


def _rollback(connection: sqlite3.Connection) -> None:
    # After some failures of the disk SQLite has rolled back by itself.
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
