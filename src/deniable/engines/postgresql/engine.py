"""The engine over PostgreSQL databases, and how the rows of a table are brought here."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from deniable.engines import sources
from deniable.engines.base import BATCH_ROWS, Parameters, Source, is_in_database
from deniable.engines.postgresql.connection import connect, describe_server, is_alive, open_cursor, translate_errors
from deniable.engines.postgresql.rows import (
    build_batch,
    build_table,
    list_rows,
    read_types,
    write_table,
)
from deniable.engines.postgresql.tables import (
    Located,
    Spellings,
    View,
    cut_name,
    find_version,
    inspect_table,
    locate_table,
    show_view,
)
from deniable.engines.remote import (
    ARROW,
    STATEMENT_SECONDS,
    Frames,
    RemoteEngine,
    Render,
    Statement,
    count_rows_out,
    put_in_front,
    refuse_rows_out,
)
from deniable.errors import ParameterError, Stopped
from deniable.policy.schema import TableSchema


class PostgreSQLEngine(RemoteEngine[View]):
    """Tables of PostgreSQL databases, and an embedded engine for everything else.

    `render` writes our SQL in PostgreSQL's language.
    """

    dialect: ClassVar[str] = "postgresql"

    def __init__(self, *, render: Render, root: str | Path = ".", **limits: Any) -> None:
        sources.require_driver("psycopg")
        super().__init__(render=render, root=root, **limits)
        self._pool: dict[str, list[Any]] = {}
        self._running: dict[Any, int] = {}
        self._stopped: set[Any] = set()

    @staticmethod
    def is_there(source: Source) -> bool:
        """Whether a source is a table of a PostgreSQL database."""
        return is_in_database(source)

    def _inspect(self, source: str, schema: TableSchema | None) -> View:
        located = locate_table(source)
        with self._connection(located.address) as connection:
            return replace(inspect_table(connection, located, schema), server=describe_server(connection))

    def _list_settings(self) -> tuple[Any, ...]:
        return next(iter(self._views.values())).server

    def _run_there(
        self, statement: Statement, parameters: Parameters | None, frames: Frames, seconds: float | None
    ) -> pa.Table:
        address, text, values = self._complete(statement, parameters, frames)
        with self._statement(address, seconds) as connection, translate_errors():
            values = _find_spellings(connection, values)
            cursor = open_cursor(connection)
            cursor.execute(text, values)
            return build_table(cursor.fetchall(), read_types(cursor.description, statement.types), statement.names)

    def _stream_there(
        self, statement: Statement, batch_rows: int, parameters: Parameters | None
    ) -> Iterator[pa.RecordBatch]:
        import psycopg

        address, text, values = self._complete(statement, parameters, {})
        with self._statement(address, None) as connection, translate_errors():
            values = _find_spellings(connection, values)
            with psycopg.RawServerCursor(connection, "rows") as cursor:
                cursor.execute(text, values)
                types = read_types(cursor.description, statement.types)
                rows = cursor.fetchmany(batch_rows)
                yield build_batch(rows, types, statement.names)
                while len(rows) == batch_rows:
                    if connection in self._stopped:
                        raise Stopped("the work was stopped before it ended", remedy="Ask for less, or allow more time")
                    rows = cursor.fetchmany(batch_rows)
                    if rows:
                        yield build_batch(rows, types, statement.names)

    def write(
        self,
        batches: Iterable[pa.RecordBatch] | pa.Table,
        path: str | Path,
        format: str | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Write rows to a file, or to a new table of a database, whole or not at all, and say how many."""
        if is_in_database(path):
            return write_table(batches, str(path), progress)
        return super().write(batches, path, format, progress=progress)

    def _find_version(self, view: View) -> str:
        with self._connection(view.located.address) as connection:
            return find_version(connection, view.located)

    def _cancel_there(self, thread: int | None) -> None:
        with self._lock:
            found = [each for each, begun_by in self._running.items() if thread is None or thread == begun_by]
            self._stopped.update(found)  # a stream that waits to be read has nothing that the server could stop
        for connection in found:
            with suppress(Exception):  # what cannot be stopped any more has ended
                connection.cancel()

    def _close_there(self) -> None:
        with self._lock:
            kept, self._pool = [each for pool in self._pool.values() for each in pool], {}
        for connection in kept:
            connection.close()

    def _complete(
        self, statement: Statement, parameters: Parameters | None, frames: Frames
    ) -> tuple[str, str, list[Any]]:
        """The address, the statement with its sources in front, and the values of its parameters."""
        values: list[Any] = []
        text = _number_parameters(statement.sql, parameters, values)
        read = [name for name in statement.tables if name in self._views and name not in frames]
        shown = [f"{cut_name(name)} AS NOT MATERIALIZED ({show_view(self._views[name], values)})" for name in read]
        shown += [
            f"{cut_name(name)} AS MATERIALIZED ({list_rows(frames[name], values)})"
            for name in statement.tables
            if name in frames
        ]
        return self._views[read[0]].place, put_in_front(shown, text), values

    @contextmanager
    def _statement(self, address: str, seconds: float | None) -> Iterator[Any]:
        """A connection inside a read-only transaction over one snapshot, with a time limit."""
        if seconds is not None and not seconds > 0:
            raise ParameterError(f"the time limit is {seconds} seconds", expected="A time limit is more than 0")
        with self._connection(address) as connection:
            with self._lock:
                self._running[connection] = threading.get_ident()
            try:
                with translate_errors():
                    limit = max(1, int(1000 * (STATEMENT_SECONDS if seconds is None else seconds)))
                    connection.execute(f"SET LOCAL statement_timeout = {limit}")
                yield connection
            finally:
                with self._lock:
                    self._running.pop(connection, None)
                    self._stopped.discard(connection)

    @contextmanager
    def _connection(self, address: str) -> Iterator[Any]:
        """A connection from the pool; one that a failure may have left in doubt is closed."""
        self._require_open()
        with self._lock:
            pool = self._pool.setdefault(address, [])
            connection = pool.pop() if pool else None
        if connection is None or not is_alive(connection):
            connection = connect(address)
        try:
            yield connection
            with translate_errors():
                connection.rollback()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if self._closed:
                connection.close()
            else:
                self._pool.setdefault(address, []).append(connection)


def _find_spellings(connection: Any, values: list[Any]) -> list[Any]:
    """The values of parameters, with the spellings in this snapshot of those that are listed in any spelling."""
    return [each.find(connection) if isinstance(each, Spellings) else each for each in values]


@contextmanager
def fetch_table(source: str, schema: TableSchema | None) -> Iterator[pa.RecordBatchReader]:
    """The rows of a table in a database, as a stream over one snapshot."""
    sources.require_driver("psycopg")
    import psycopg

    located = locate_table(source)
    connection = connect(located.address)
    try:
        view = inspect_table(connection, located, schema)
        types = [ARROW[field.native] for field in view.fields]
        names = [field.name for field in view.fields]
        most = count_rows_out(schema)
        with translate_errors(located.title), psycopg.RawServerCursor(connection, "rows") as cursor:
            cursor.execute(show_view(view, []))
            batches = _fetch_batches(cursor, types, names, most, located)
            yield pa.RecordBatchReader.from_batches(pa.schema(list(zip(names, types, strict=True))), batches)
    finally:
        connection.close()


def _fetch_batches(
    cursor: Any, types: Sequence[pa.DataType], names: Sequence[str], most: int, located: Located
) -> Iterator[pa.RecordBatch]:
    count = 0
    while rows := cursor.fetchmany(BATCH_ROWS):
        count += len(rows)
        if count > most:
            raise refuse_rows_out(located.title, most)
        yield build_batch(rows, types, names)


_PARAMETER = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$([A-Za-z_][A-Za-z0-9_]*|[0-9]+)""")


def _number_parameters(sql: str, parameters: Parameters | None, values: list[Any]) -> str:
    """The statement with its parameters numbered, their values appended."""
    if parameters is None:
        return sql
    if not isinstance(parameters, Mapping):
        values += parameters
        return sql
    places: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        if found[1] not in places:
            values.append(parameters[found[1]])
            places[found[1]] = len(values)
        return f"${places[found[1]]}"

    return _PARAMETER.sub(number, sql)
