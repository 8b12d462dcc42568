"""Where responses are stored: one SQLite file, or PostgreSQL for a survey served from several machines.

A batch goes in by one durable transaction before anybody is thanked, so a response that was acknowledged survives a
kill and a power cut. Responses are filed under random numbers, tickets by their digest: the store keeps no order of
arrival, no time, no address, and nothing that joins a ticket to a response."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deniable.dp.samplers import permutation, salt
from deniable.errors import IntegrityError, MissingExtra, StorageError

SQLITE_SCHEMA = """
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
            self._connection.executescript(SQLITE_SCHEMA)
        except (OSError, sqlite3.Error) as failure:
            raise _translate_failure(path, failure) from None

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
            shuffled = [(_draw_place(), bodies[i]) for i in permutation(len(bodies)).tolist()]
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
            with suppress(sqlite3.OperationalError):  # another process is writing: the last one to close will do it
                self._connection.execute("vacuum")
        self._connection.close()


def _draw_place() -> int:
    return int.from_bytes(salt(8), "big") >> 1


class _transaction:  # noqa: N801  reads as a statement: with _transaction(...)
    """Take the write lock, commit at the end, roll back on failure; the disk's refusals become ours."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path

    def __enter__(self) -> None:
        try:
            self._connection.execute("begin immediate")
        except sqlite3.Error as failure:
            raise _translate_failure(self._path, failure) from None

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, _trace: object) -> None:
        try:
            self._connection.execute("rollback" if kind else "commit")
        except sqlite3.Error as broken:
            raise _translate_failure(self._path, broken) from None
        if isinstance(failure, sqlite3.Error):
            raise _translate_failure(self._path, failure) from None


def _translate_failure(path: Path, failure: Exception) -> StorageError | IntegrityError:
    if isinstance(failure, sqlite3.DatabaseError) and not isinstance(failure, sqlite3.OperationalError):
        return IntegrityError(f"'{path}' is not a store of survey responses", remedy="Name another file with --store")
    return StorageError(
        f"the store '{path}' cannot be used: {_describe_failure(failure)}",
        remedy="Free the disk or name another --store",
    )


def _describe_failure(failure: Exception) -> str:
    return (failure.strerror or "refused") if isinstance(failure, OSError) else str(failure)


POSTGRES_SCHEMA = (
    "create table if not exists deniable_survey_facts (survey text, name text, value bytea not null,"
    " primary key (survey, name))",
    "create table if not exists deniable_survey_tickets (survey text, stub bytea, primary key (survey, stub))",
    "create table if not exists deniable_survey_responses (survey text, place bigint, body text not null,"
    " primary key (survey, place))",
)


class PostgresStore:
    """Responses in three tables of a PostgreSQL database; the address is a `postgresql://` URL."""

    def __init__(self, address: str, survey: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtra(
                "PostgreSQL needs psycopg", remedy="Install it with: pip install 'deniable[postgres]'"
            ) from None
        self._error = psycopg.Error
        self._survey = survey
        try:
            self._connection = psycopg.connect(address, autocommit=True)
            with self._connection.transaction():
                for statement in POSTGRES_SCHEMA:
                    self._connection.execute(statement)
        except psycopg.Error as failure:
            raise self._translate_failure(failure) from None

    def fact(self, name: str, fresh: bytes) -> bytes:
        """A lasting fact of the survey; the fresh value is kept if there was none."""
        with self._open_transaction() as run:
            run(
                "insert into deniable_survey_facts values (%s, %s, %s) on conflict do nothing",
                (self._survey, name, fresh),
            )
            where = (self._survey, name)
            found = run("select value from deniable_survey_facts where survey = %s and name = %s", where).fetchone()
        return bytes(found[0])

    def add(self, batch: Sequence[Arrival]) -> list[bool]:
        """File a batch in one durable transaction, responses in shuffled order."""
        with self._open_transaction() as run:
            ticket = "insert into deniable_survey_tickets values (%s, %s) on conflict do nothing"
            new = [run(ticket, (self._survey, arrival.stub)).rowcount == 1 for arrival in batch]
            bodies = [arrival.body for arrival, fresh in zip(batch, new, strict=True) if fresh]
            for index in permutation(len(bodies)).tolist():
                place = int.from_bytes(salt(8), "big") >> 1
                run("insert into deniable_survey_responses values (%s, %s, %s)", (self._survey, place, bodies[index]))
        return new

    def count(self) -> int:
        """How many responses there are."""
        with self._open_transaction() as run:
            query = "select count(*) from deniable_survey_responses where survey = %s"
            return int(run(query, (self._survey,)).fetchone()[0])

    def bodies(self) -> Iterator[str]:
        """What the responses say, by their random places."""
        with self._open_transaction() as run:
            query = "select body from deniable_survey_responses where survey = %s order by place"
            rows = run(query, (self._survey,)).fetchall()
        for (body,) in rows:
            yield body

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _open_transaction(self) -> _GuardedTransaction:
        return _GuardedTransaction(self)

    def _translate_failure(self, failure: Any) -> StorageError:
        kind = getattr(failure, "sqlstate", None) or "no connection"
        return StorageError(f"PostgreSQL refused the store ({kind})", remedy="Check address, rights and disk")


class _GuardedTransaction:
    """One transaction; what the database refuses becomes a StorageError without its text."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._transaction = store._connection.transaction()

    def __enter__(self) -> Any:
        try:
            self._transaction.__enter__()
        except self._store._error as failure:
            raise self._store._translate_failure(failure) from None
        return self._store._connection.execute

    def __exit__(self, kind: Any, failure: Any, trace: Any) -> None:
        try:
            self._transaction.__exit__(kind, failure, trace)
        except self._store._error as broken:
            raise self._store._translate_failure(broken) from None
        if isinstance(failure, self._store._error):
            raise self._store._translate_failure(failure) from None
