"""Where responses rest: one SQLite file, written in batches that are on the disk before anybody is thanked.

A batch goes in by one transaction with full synchronization, so a response that was acknowledged survives a kill and
a power cut. Responses are filed under random numbers, tickets by their digest: the file keeps no order of arrival, no
time, no address, and nothing that joins a ticket to a response.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deniable.dp.samplers import permutation, salt
from deniable.errors import IntegrityError, StorageError

SCHEMA = """
create table if not exists facts (name text primary key, value blob not null) without rowid;
create table if not exists tickets (stub blob primary key) without rowid;
create table if not exists responses (place integer primary key, body text not null);
"""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A checked response: the stub of its ticket, and what it says."""

    stub: bytes
    body: str


class Store(Protocol):
    """Keeps responses; batches are atomic and durable."""

    def fact(self, name: str, fresh: bytes) -> bytes:
        """A lasting fact of the survey, such as its ticket key; the fresh value is kept if there was none."""

    def add(self, batch: Sequence[Arrival]) -> list[bool]:
        """File a batch; for each response whether it was new (True) or its ticket was used before (False)."""

    def count(self) -> int:
        """How many responses there are."""

    def bodies(self) -> Iterator[str]:
        """What the responses say, in no order of arrival."""

    def close(self) -> None:
        """Let go of the store."""


class SqliteStore:
    """The embedded store."""

    def __init__(self, path: Path, writable: bool = True) -> None:
        self._path = path
        self._added = False
        if not writable and not path.exists():
            raise StorageError(f"there is no store at '{path}'", remedy="Serve the survey first, or name its store")
        try:
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = full")
            self._connection.execute("pragma secure_delete = on")
            self._connection.executescript(SCHEMA)
        except (OSError, sqlite3.Error) as failure:
            raise _refused(path, failure) from None

    def fact(self, name: str, fresh: bytes) -> bytes:
        """A lasting fact of the survey; the fresh value is kept if there was none."""
        with _transaction(self._connection, self._path):
            self._connection.execute("insert or ignore into facts values (?, ?)", (name, fresh))
            found = self._connection.execute("select value from facts where name = ?", (name,)).fetchone()
        return bytes(found[0])

    def add(self, batch: Sequence[Arrival]) -> list[bool]:
        """File a batch in one durable transaction, responses in shuffled order."""
        with _transaction(self._connection, self._path):
            new = [
                self._connection.execute("insert or ignore into tickets values (?)", (arrival.stub,)).rowcount == 1
                for arrival in batch
            ]
            bodies = [arrival.body for arrival, fresh in zip(batch, new, strict=True) if fresh]
            shuffled = [(_place(), bodies[i]) for i in permutation(len(bodies)).tolist()]
            self._connection.executemany("insert into responses values (?, ?)", shuffled)
        self._added = True
        return new

    def count(self) -> int:
        """How many responses there are."""
        return int(self._connection.execute("select count(*) from responses").fetchone()[0])

    def bodies(self) -> Iterator[str]:
        """What the responses say, by their random places."""
        for (body,) in self._connection.execute("select body from responses order by place"):
            yield body

    def close(self) -> None:
        """Rewrite the file in the order of its random places, so that its pages keep no order of arrival either."""
        if self._added:
            with suppress(sqlite3.OperationalError):  # another desk is writing: the last one to close will do it
                self._connection.execute("vacuum")
        self._connection.close()


def _place() -> int:
    return int.from_bytes(salt(8), "big") >> 1


class _transaction:  # noqa: N801  reads as a statement: with _transaction(...)
    """Take the write lock, commit at the end, roll back on failure; the disk's refusals become ours."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path

    def __enter__(self) -> None:
        try:
            self._connection.execute("begin immediate")
        except sqlite3.Error as failure:
            raise _refused(self._path, failure) from None

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, _trace: object) -> None:
        try:
            self._connection.execute("rollback" if kind else "commit")
        except sqlite3.Error as broken:
            raise _refused(self._path, broken) from None
        if isinstance(failure, sqlite3.Error):
            raise _refused(self._path, failure) from None


def _refused(path: Path, failure: Exception) -> StorageError | IntegrityError:
    if isinstance(failure, sqlite3.DatabaseError) and not isinstance(failure, sqlite3.OperationalError):
        return IntegrityError(f"'{path}' is not a store of survey responses", remedy="Name another file with --store")
    return StorageError(
        f"the store '{path}' cannot be used: {_words(failure)}",
        remedy="Free the disk or name another --store",
    )


def _words(failure: Exception) -> str:
    return (failure.strerror or "refused") if isinstance(failure, OSError) else str(failure)
