"""The answer store: what is stored only until it must be forgotten, beside a ledger that forgets nothing.

Answers and the list of people who withdrew are stored here as opaque bytes, in collections. A value put under a name
(or an alias) that is taken is not stored: whoever comes later gets what came first. So two processes that finish the
same query give the same answer."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from deniable.ledger.group_commit import GroupCommit
from deniable.ledger.sqlite import open_connection, roll_back_on_error, touch, translate_errors

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS kept (drawer TEXT NOT NULL, name TEXT NOT NULL, alias TEXT NOT NULL,"
    " value BLOB NOT NULL, PRIMARY KEY (drawer, name), UNIQUE (drawer, alias)) STRICT"
)


class AnswerStore(Protocol):
    """Where bytes are kept under names, in collections."""

    def keep(self, collection: str, name: str, alias: str, value: bytes) -> bytes:
        """Keep a value, and say what is kept: what came first under the name or the alias."""

    def find(self, collection: str, name: str) -> bytes | None:
        """What is kept under a name or an alias."""

    def list_all(self, collection: str) -> dict[str, bytes]:
        """All that a collection holds, by name."""

    def empty(self, collection: str) -> int:
        """Forget all that a collection holds, and say how much that was."""

    def close(self) -> None:
        """Let go of it."""


class MemoryAnswerStore:
    """An answer store that lives as long as its process."""

    def __init__(self) -> None:
        self._collections: dict[str, dict[str, bytes]] = {}
        self._aliases: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()

    def keep(self, collection: str, name: str, alias: str, value: bytes) -> bytes:
        """Keep a value unless its name or alias is taken."""
        with self._lock:
            taken = next((t for t in (self._find(collection, n) for n in (name, alias)) if t is not None), None)
            if taken is None:
                self._collections.setdefault(collection, {})[name] = value
                self._aliases.setdefault(collection, {})[alias] = name
            return value if taken is None else taken

    def find(self, collection: str, name: str) -> bytes | None:
        """What is kept under a name or an alias."""
        with self._lock:
            return self._find(collection, name)

    def list_all(self, collection: str) -> dict[str, bytes]:
        """All that a collection holds."""
        with self._lock:
            return dict(self._collections.get(collection, {}))

    def empty(self, collection: str) -> int:
        """Forget all that a collection holds."""
        with self._lock:
            self._aliases.pop(collection, None)
            return len(self._collections.pop(collection, {}))

    def close(self) -> None:
        """Nothing to let go of."""

    def _find(self, collection: str, name: str) -> bytes | None:
        held = self._collections.get(collection, {})
        return held[name] if name in held else held.get(self._aliases.get(collection, {}).get(name, ""))


class SqliteAnswerStore:
    """An answer store in a file beside the ledger; what is forgotten is overwritten."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        # Readers have a connection of their own, so that nobody who reads waits for a writer's flush.
        self._lock, self._reading = threading.Lock(), threading.Lock()
        with translate_errors(self.path):
            touch(self.path)
            self._connection = open_connection(self.path.absolute().as_uri())
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            self._connection.execute(SCHEMA)
            self._reader = open_connection(f"{self.path.absolute().as_uri()}?mode=ro")
        self._group_commit: GroupCommit[sqlite3.Connection, tuple[str, str, str, bytes], bytes]
        self._group_commit = GroupCommit(self._transaction, _store_first)

    def keep(self, collection: str, name: str, alias: str, value: bytes) -> bytes:
        """Keep a value unless its name or alias is taken; it is on the disk when this returns."""
        return self._group_commit.submit((collection, name, alias, value))

    def find(self, collection: str, name: str) -> bytes | None:
        """What is kept under a name or an alias."""
        with self._reading, translate_errors(self.path):
            return _find_value(self._reader, collection, name)

    def list_all(self, collection: str) -> dict[str, bytes]:
        """All that a collection holds."""
        with self._reading, translate_errors(self.path):
            return dict(self._reader.execute("SELECT name, value FROM kept WHERE drawer = ?", (collection,)))

    def empty(self, collection: str) -> int:
        """Forget all that a collection holds; the log, which may hold old pages, is emptied too."""
        with self._transaction() as run:
            count = run.execute("DELETE FROM kept WHERE drawer = ?", (collection,)).rowcount
        with self._lock, translate_errors(self.path):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return count

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, self._reading:
            self._reader.close()
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, translate_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            with roll_back_on_error(self._connection):
                yield self._connection
                self._connection.execute("COMMIT")


def _store_first(run: sqlite3.Connection, asked: tuple[str, str, str, bytes]) -> bytes:
    collection, name, alias, value = asked
    taken = _find_value(run, collection, name, alias)
    if taken is None:
        run.execute("INSERT INTO kept VALUES (?, ?, ?, ?)", (collection, name, alias, value))
    return value if taken is None else taken


def _find_value(run: sqlite3.Connection, collection: str, *words: str) -> bytes | None:
    """What is kept under any of these words, as a name or else as an alias; each look is one step in an index."""
    for column in ("name", "alias"):
        for word in words:
            sql = f"SELECT value FROM kept WHERE drawer = ? AND {column} = ?"  # noqa: S608  our own words
            row = run.execute(sql, (collection, word)).fetchone()
            if row is not None:
                return bytes(row[0])
    return None
