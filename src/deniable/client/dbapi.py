"""The DB-API 2.0 (PEP 249) over a server, for tools that want a database connection and nothing else.

    from deniable.client import dbapi
    with dbapi.connect("http://127.0.0.1:8400", token, epsilon=0.1) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM visits WHERE sex = ?", ["F"])

Each execute is a question of its own and is charged; commit and rollback mean nothing, since answers cannot be unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from deniable.client.answer import Answer
from deniable.client.connection import Connection as Server
from deniable.client.connection import connect as connected
from deniable.errors import DeniableError
from deniable.query.sql.lexer import Kind, tokenize

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"


class Warning(Exception):
    """An important warning."""


class Error(Exception):
    """The base of all errors; the refusal behind it is its cause."""


class InterfaceError(Error):
    """The interface was used wrongly, such as a closed cursor."""


class DatabaseError(Error):
    """The server refused."""


class DataError(DatabaseError):
    """A value does not fit."""


class OperationalError(DatabaseError):
    """Budget, access, or the server itself."""


class IntegrityError(DatabaseError):
    """Never raised: nothing is written."""


class InternalError(DatabaseError):
    """Our bug."""


class ProgrammingError(DatabaseError):
    """The question cannot be answered."""


class NotSupportedError(DatabaseError):
    """Never raised by a question."""


_KINDS: Mapping[str, type[DatabaseError]] = {
    "query": ProgrammingError,
    "parameter": DataError,
    "internal": InternalError,
    "execution": InternalError,
}
Column = tuple[str, Any, None, None, None, None, None]


def connect(url: str, token: str | None = None, **options: Any) -> Connection:
    """A DB-API connection; epsilon, delta, rho and purpose hold for its questions."""
    budget: dict[str, Any] = {
        name: options.pop(name) for name in ("epsilon", "delta", "rho", "intervals") if name in options
    }
    return Connection(connected(url, token, **options), budget)


class Connection:
    """A connection with a budget for each question; `budget` may be changed between questions."""

    def __init__(self, server: Server, budget: Mapping[str, Any]) -> None:
        self.budget = {"intervals": False} | dict(budget)
        self._server: Server | None = server

    @property
    def server(self) -> Server:
        """The server behind it."""
        if self._server is None:
            raise InterfaceError("the connection is closed")
        return self._server

    def cursor(self) -> Cursor:
        """A new cursor."""
        return Cursor(self)

    def commit(self) -> None:
        """Nothing to do."""

    def rollback(self) -> None:
        """Nothing can be undone: answers cannot be unseen."""

    def close(self) -> None:
        """End it."""
        self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Cursor:
    """The rows of the last question."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.description: tuple[Column, ...] | None = None
        self.rowcount = -1
        self.answer: Answer | None = None
        self._at = 0

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Self:
        """Ask a question with values for its question marks."""
        server = self.connection.server
        try:
            self.answer = server.query(number_parameters(operation), parameters, **self.connection.budget)
        except DeniableError as refusal:
            raise _KINDS.get(refusal.code, OperationalError)(refusal.message) from refusal
        self.description = tuple((name, None, None, None, None, None, None) for name in self.answer.columns)
        self.rowcount, self._at = len(self.answer), 0
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Sequence[Any]]) -> None:
        """One question for each set of values; the last answer is kept."""
        for parameters in seq_of_parameters:
            self.execute(operation, parameters)

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows."""
        answer = self._require_answer()
        end = self._at + (self.arraysize if size is None else size)
        rows = [tuple(row[name] for name in answer.columns) for row in answer.rows[self._at : end]]
        self._at += len(rows)
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return self.fetchmany(len(self._require_answer()))

    def close(self) -> None:
        """Forget the rows."""
        self.answer = None

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Nothing to do."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing to do."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def _require_answer(self) -> Answer:
        if self.answer is None:
            raise InterfaceError("nothing was executed")
        return self.answer


def number_parameters(sql: str) -> str:
    """The question with $1, $2 ... for its question marks; those inside quotes and comments stay.

    >>> number_parameters("SELECT COUNT(*) FROM t WHERE a = ? AND b = '?'")
    "SELECT COUNT(*) FROM t WHERE a = $1 AND b = '?'"
    """
    marks = [token.start for token in tokenize(sql) if token.kind is Kind.SIGN and token.text == "?"]
    pieces = [sql[after + 1 : mark] for after, mark in pairwise([-1, *marks, len(sql)])]
    return pieces[0] + "".join(f"${number}{piece}" for number, piece in enumerate(pieces[1:], start=1))
