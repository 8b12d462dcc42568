"""Cabinets: what is kept only until it must be forgotten, beside a ledger that forgets nothing.

Stored answers and the list of people who withdrew are kept here as opaque bytes, in drawers. Something put under a
name (or an alias) that is taken is not kept: whoever comes later gets what came first. So two processes that finish
the same question give the same answer.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from deniable.ledger.sqlite import connected, refusals, touch, undone
from deniable.ledger.turnstile import Turnstile

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS kept (drawer TEXT NOT NULL, name TEXT NOT NULL, alias TEXT NOT NULL,"
    " value BLOB NOT NULL, PRIMARY KEY (drawer, name), UNIQUE (drawer, alias)) STRICT"
)


class Cabinet(Protocol):
    """Where bytes are kept under names, in drawers."""

    def keep(self, drawer: str, name: str, alias: str, value: bytes) -> bytes:
        """Keep a value, and say what is kept: what came first under the name or the alias."""

    def find(self, drawer: str, name: str) -> bytes | None:
        """What is kept under a name or an alias."""

    def everything(self, drawer: str) -> dict[str, bytes]:
        """All that a drawer holds, by name."""

    def empty(self, drawer: str) -> int:
        """Forget all that a drawer holds, and say how much that was."""

    def close(self) -> None:
        """Let go of it."""


class MemoryCabinet:
    """A cabinet that lives as long as its process."""

    def __init__(self) -> None:
        self._drawers: dict[str, dict[str, bytes]] = {}
        self._aliases: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()

    def keep(self, drawer: str, name: str, alias: str, value: bytes) -> bytes:
        """Keep a value unless its name or alias is taken."""
        with self._lock:
            taken = next((t for t in (self._find(drawer, n) for n in (name, alias)) if t is not None), None)
            if taken is None:
                self._drawers.setdefault(drawer, {})[name] = value
                self._aliases.setdefault(drawer, {})[alias] = name
            return value if taken is None else taken

    def find(self, drawer: str, name: str) -> bytes | None:
        """What is kept under a name or an alias."""
        with self._lock:
            return self._find(drawer, name)

    def everything(self, drawer: str) -> dict[str, bytes]:
        """All that a drawer holds."""
        with self._lock:
            return dict(self._drawers.get(drawer, {}))

    def empty(self, drawer: str) -> int:
        """Forget all that a drawer holds."""
        with self._lock:
            self._aliases.pop(drawer, None)
            return len(self._drawers.pop(drawer, {}))

    def close(self) -> None:
        """Nothing to let go of."""

    def _find(self, drawer: str, name: str) -> bytes | None:
        held = self._drawers.get(drawer, {})
        return held[name] if name in held else held.get(self._aliases.get(drawer, {}).get(name, ""))


class SqliteCabinet:
    """A cabinet in a file beside the ledger; what is forgotten is overwritten."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        # Readers have a connection of their own, so that nobody who reads waits for a writer's flush.
        self._lock, self._reading = threading.Lock(), threading.Lock()
        with refusals(self.path):
            touch(self.path)
            self._connection = connected(self.path.absolute().as_uri())
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            self._connection.execute(SCHEMA)
            self._reader = connected(f"{self.path.absolute().as_uri()}?mode=ro")
        self._turnstile: Turnstile[sqlite3.Connection, tuple[str, str, str, bytes], bytes]
        self._turnstile = Turnstile(self._transaction, _keep)

    def keep(self, drawer: str, name: str, alias: str, value: bytes) -> bytes:
        """Keep a value unless its name or alias is taken; it is on the disk when this returns."""
        return self._turnstile.enter((drawer, name, alias, value))

    def find(self, drawer: str, name: str) -> bytes | None:
        """What is kept under a name or an alias."""
        with self._reading, refusals(self.path):
            return _found(self._reader, drawer, name)

    def everything(self, drawer: str) -> dict[str, bytes]:
        """All that a drawer holds."""
        with self._reading, refusals(self.path):
            return dict(self._reader.execute("SELECT name, value FROM kept WHERE drawer = ?", (drawer,)))

    def empty(self, drawer: str) -> int:
        """Forget all that a drawer holds; the log, which may hold old pages, is emptied too."""
        with self._transaction() as run:
            count = run.execute("DELETE FROM kept WHERE drawer = ?", (drawer,)).rowcount
        with self._lock, refusals(self.path):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return count

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, self._reading:
            self._reader.close()
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, refusals(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            with undone(self._connection):
                yield self._connection
                self._connection.execute("COMMIT")


def _keep(run: sqlite3.Connection, asked: tuple[str, str, str, bytes]) -> bytes:
    drawer, name, alias, value = asked
    taken = _found(run, drawer, name, alias)
    if taken is None:
        run.execute("INSERT INTO kept VALUES (?, ?, ?, ?)", (drawer, name, alias, value))
    return value if taken is None else taken


def _found(run: sqlite3.Connection, drawer: str, *words: str) -> bytes | None:
    """What is kept under any of these words, as a name or else as an alias; each look is one step in an index."""
    for column in ("name", "alias"):
        for word in words:
            sql = f"SELECT value FROM kept WHERE drawer = ? AND {column} = ?"  # noqa: S608  our own words
            row = run.execute(sql, (drawer, word)).fetchone()
            if row is not None:
                return bytes(row[0])
    return None
