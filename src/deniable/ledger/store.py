"""What a ledger is stored in: the Store protocol, and the store that lives in memory.

A store knows texts and numbers, and one promise: inside `begin_write()` there is one writer at a time, among all
threads, processes and machines that share it, and either everything of a block is written or nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

from deniable.ledger.entry import Entry


class Line(NamedTuple):
    """An entry as it is stored: its text, and the columns by which it is found."""

    sequence: int
    act: str
    analyst: str
    request: str
    text: str


class Book(Protocol):
    """The ledger inside one transaction."""

    def head(self) -> str | None:
        """The text of the last entry."""

    def of_request(self, analyst: str, request: str) -> str | None:
        """The text of the entry that a request of this asker left behind."""

    def after(self, sequence: int) -> Iterator[Line]:
        """The entries after that number, in their order."""

    def append(self, line: Line) -> None:
        """Write an entry at the end."""

    def totals(self, names: tuple[str, ...]) -> Mapping[str, str]:
        """The cached totals of these names, as far as there are any."""

    def put_totals(self, totals: Mapping[str, str]) -> None:
        """Replace these cached totals."""


class Store(Protocol):
    """Where a ledger is kept."""

    def begin_write(self) -> AbstractContextManager[Book]:
        """The one writer's transaction: kept when the block ends well, undone when it raises."""

    def begin_read(self) -> AbstractContextManager[Book]:
        """A consistent view for reading."""

    def last(self) -> int:
        """The number of the last entry; 0 where there is none."""

    def lines(self, after: int = 0, acts: tuple[str, ...] = ()) -> Iterator[Line]:
        """The entries after that number, of these acts or of all."""

    def close(self) -> None:
        """Let go of it."""


def line_of(entry: Entry, text: str) -> Line:
    """How an entry is stored."""
    return Line(entry.sequence, entry.act, entry.analyst, entry.request, text)


class MemoryStore:
    """A store that lives as long as its process: for notebooks, demos and tests, where nothing needs to survive."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._requests: dict[tuple[str, str], int] = {}
        self._totals: dict[str, str] = {}
        self._lock = threading.RLock()

    @contextmanager
    def begin_write(self) -> Iterator[MemoryStore]:
        """One writer at a time; a block that raises leaves everything as it was."""
        with self._lock:
            length, totals = len(self._lines), dict(self._totals)
            try:
                yield self
            except BaseException:
                for line in self._lines[length:]:
                    self._requests.pop((line.analyst, line.request), None)
                del self._lines[length:]
                self._totals = totals
                raise

    @contextmanager
    def begin_read(self) -> Iterator[MemoryStore]:
        """A consistent view: nobody writes meanwhile."""
        with self._lock:
            yield self

    def head(self) -> str | None:
        """The text of the last entry."""
        return self._lines[-1].text if self._lines else None

    def of_request(self, analyst: str, request: str) -> str | None:
        """The text of the entry that a request left behind."""
        place = self._requests.get((analyst, request))
        return None if place is None else self._lines[place].text

    def after(self, sequence: int) -> Iterator[Line]:
        """The entries after that number."""
        return iter(self._lines[sequence:])

    def append(self, line: Line) -> None:
        """Write an entry at the end."""
        if line.request:
            self._requests[line.analyst, line.request] = len(self._lines)
        self._lines.append(line)

    def totals(self, names: tuple[str, ...]) -> Mapping[str, str]:
        """The cached totals of these names, as far as there are any."""
        return {name: self._totals[name] for name in names if name in self._totals}

    def put_totals(self, totals: Mapping[str, str]) -> None:
        """Replace these cached totals."""
        self._totals.update(totals)

    def last(self) -> int:
        """The number of the last entry."""
        return len(self._lines)

    def lines(self, after: int = 0, acts: tuple[str, ...] = ()) -> Iterator[Line]:
        """The entries after that number, of these acts or of all."""
        with self._lock:
            found = self._lines[after:]
        return (line for line in found if not acts or line.act in acts)

    def close(self) -> None:
        """Nothing to let go of."""
