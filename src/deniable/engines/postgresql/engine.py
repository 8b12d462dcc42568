"""The engines over databases: one that computes there, and one that brings rows here for what works on rows."""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa

from deniable.engines import base, sources
from deniable.engines.base import BATCH_ROWS, Field, Parameters, Restriction, Source, is_in_database, quote
from deniable.engines.duckdb.engine import DuckDBEngine
from deniable.engines.postgresql.connection import connect, describe_server, is_alive, open_cursor, translate_errors
from deniable.engines.postgresql.rows import (
    ARROW,
    build_batch,
    build_table,
    list_rows,
    name_arrow_type,
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
from deniable.errors import DataError, InternalError, ParameterError, Stopped, nearest
from deniable.policy.schema import CsvDialect, TableSchema

STATEMENT_SECONDS = 3600
"""How long a statement may take for which no limit was given."""


DEFAULT_ROWS_OUT = TableSchema("", "", ()).rows_out


class Statement(Protocol):
    """A statement in PostgreSQL's language."""

    @property
    def sql(self) -> str:
        """Its text."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns, which the database may cut short."""

    @property
    def types(self) -> tuple[str, ...]:
        """DuckDB's types of its columns."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The sources that it reads."""


Render = Callable[..., Statement]
"""What writes our SQL in PostgreSQL's language: the statement and the types of its tables in, a Statement out."""


class PostgreSQLEngine:
    """Tables of PostgreSQL databases, and an embedded engine for everything else.

    `render` writes our SQL in PostgreSQL's language.
    """

    dialect: ClassVar[str] = "postgresql"

    def __init__(self, *, render: Render, root: str | Path = ".", **limits: Any) -> None:
        sources.require_driver("psycopg")
        self._render = render
        self._local = DuckDBEngine(root=root, **limits)
        self._views: dict[str, View] = {}
        self._pool: dict[str, list[Any]] = {}
        self._running: dict[Any, int] = {}
        self._stopped: set[Any] = set()
        self._lock = threading.RLock()
        self._closed = False

    def attach(
        self, name: str, source: Source, schema: TableSchema | None = None, *, csv: CsvDialect | None = None
    ) -> None:
        """Declare a source under a name: a table of a database, or what the embedded engine can read."""
        self._require_open()
        if not is_in_database(source):
            self._local.attach(name, source, schema, csv=csv)
            self._drop_view(name)
            return
        located = locate_table(source)
        with self._connection(located.address) as connection:
            view = replace(inspect_table(connection, located, schema), server=describe_server(connection))
        with self._lock:
            self._drop_view(name)
            self._views[name] = view

    def _drop_view(self, name: str) -> None:
        for known in [each for each in self._views if each.casefold() == name.casefold()]:
            del self._views[known]

    def restrict(self, name: str, *restrictions: Restriction) -> None:
        """Show only some rows of a source from now on, instead of whatever restricted it before."""
        if name not in self._views:
            self._local.restrict(name, *restrictions)
            return
        view = self._views[name]
        known = [shown.name for shown in view.fields]
        for column in (each.column for each in restrictions if each.column is not None):
            if column not in known:
                raise DataError(f"source '{name}' has no column '{column}'", remedy=nearest(column, known))
        self._views[name] = replace(view, restrictions=restrictions)

    def describe(self, name: str) -> tuple[Field, ...]:
        """The columns of a source, in its order."""
        view = self._find_view(name)
        return self._local.describe(name) if view is None else view.fields

    def notes(self, name: str) -> tuple[str, ...]:
        """What was left out of a file; of a database nothing is."""
        return self._local.notes(name) if self._find_view(name) is None else ()

    def count(self, name: str) -> int:
        """How many rows a source has."""
        if self._find_view(name) is None:
            return self._local.count(name)
        return int(self.run(f"SELECT count(*) AS rows FROM {quote(name)}")["rows"][0].as_py())

    def run(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        seconds: float | None = None,
        frames: Mapping[str, pa.Table] | None = None,
        one_row: bool = False,
    ) -> pa.Table:
        """Run one reading statement of our own making: in the database, if it reads one of its tables."""
        self._require_open()
        statement = self._prepare(sql, frames or {})
        if statement is None:
            return self._local.run(sql, parameters, seconds=seconds, frames=frames, one_row=one_row)
        address, text, values = self._complete(statement, parameters, frames or {})
        with self._statement(address, seconds) as connection, translate_errors():
            values = _find_spellings(connection, values)
            cursor = open_cursor(connection)
            cursor.execute(text, values)
            return build_table(cursor.fetchall(), read_types(cursor.description, statement.types), statement.names)

    def stream(
        self, sql_or_table: str, batch_rows: int = BATCH_ROWS, parameters: Parameters | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of a statement or of a source, by a cursor at the server; at least one batch."""
        if batch_rows < 1:
            raise ParameterError(f"batch_rows is {batch_rows}", expected="A batch has at least 1 row")
        self._require_open()
        known = sql_or_table in self._views
        sql = f"SELECT * FROM {quote(sql_or_table)}" if known else sql_or_table
        statement = None if not known and sql_or_table in self._list_local() else self._prepare(sql, {})
        if statement is None:
            return self._local.stream(sql_or_table, batch_rows, parameters)
        return self._stream_rows(statement, batch_rows, parameters)

    def _stream_rows(
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
        return self._local.write(batches, path, format, progress=progress)

    def data_version(self, name: str) -> str:
        """A fingerprint of a source's content and of how it is read; of a table, by what the database counts of it."""
        view = self._find_view(name)
        if view is None:
            return self._local.data_version(name)
        columns = [f"{f.name}:{f.native}:{e}" for f, e in zip(view.fields, view.expressions, strict=True)]
        with self._connection(view.located.address) as connection:
            content = find_version(connection, view.located)
        return sources.combine_hashes([content, *columns, *base.hash_restrictions(view.restrictions)])

    def cancel(self, thread: int | None = None) -> None:
        """Stop whatever runs, in every thread or in the one of that identity."""
        self._local.cancel(thread)
        with self._lock:
            found = [each for each, begun_by in self._running.items() if thread is None or thread == begun_by]
            self._stopped.update(found)  # a stream that waits to be read has nothing that the server could stop
        for connection in found:
            with suppress(Exception):  # what cannot be stopped any more has ended
                connection.cancel()

    def close(self) -> None:
        """Let go of all sources and connections; closing twice is fine."""
        self.cancel()
        self._closed = True
        with self._lock:
            kept, self._pool, self._views = [each for pool in self._pool.values() for each in pool], {}, {}
        for connection in kept:
            connection.close()
        self._local.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise ParameterError("this engine was closed", remedy="Open another one")

    def _list_local(self) -> tuple[str, ...]:
        return tuple(self._local._scans)

    def _find_view(self, name: str) -> View | None:
        """The view of a table of a database; None for a source of the embedded engine, else a refusal."""
        self._require_open()
        if name in self._views or name in self._list_local():
            return self._views.get(name)
        known = (*self._views, *self._list_local())
        raise DataError(
            f"no source '{name}' is attached",
            expected="Attached are " + (", ".join(f"'{each}'" for each in known) or "none"),
            remedy=nearest(name, known),
        )

    def _prepare(self, sql: str, frames: Mapping[str, pa.Table]) -> Statement | None:
        """The statement in PostgreSQL's language; None where it reads no table of a database."""
        if not self._views:
            return None
        types = {name: {f.name: f.native for f in view.fields} for name, view in self._views.items()}
        local = {name: {f.name: f.native for f in self._local.describe(name)} for name in self._list_local()}
        given = {name: {f.name: name_arrow_type(f.type) for f in rows.schema} for name, rows in frames.items()}
        server = next(iter(self._views.values())).server
        statement = self._render(sql, local | types | given, *server)
        read = [name for name in statement.tables if name in self._views and name not in given]
        if not read:
            return None
        addresses = {self._views[name].located.address for name in read}
        if len(addresses) > 1 or any(name in local and name not in self._views for name in statement.tables):
            raise InternalError("a statement was to join tables of different places; it was not run")
        return statement

    def _complete(
        self, statement: Statement, parameters: Parameters | None, frames: Mapping[str, pa.Table]
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
        body = ", " + text.removeprefix("WITH ") if text.startswith("WITH ") else " " + text
        return self._views[read[0]].located.address, f"WITH {', '.join(shown)}{body}", values

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


class FetchingEngine(DuckDBEngine):
    """The embedded engine, for what works on rows: those of a table in a database are brought here first.

    They are held in the engine's private folder, which is gone with it. More rows than the policy's `rows_out` of the
    table are refused.
    """

    def attach(
        self, name: str, source: Source, schema: TableSchema | None = None, *, csv: CsvDialect | None = None
    ) -> None:
        """Declare a source under a name; a table of a database is copied."""
        if not is_in_database(source):
            super().attach(name, source, schema, csv=csv)
            return
        sources.require_driver("psycopg")
        with _fetch_table(source, schema) as rows:
            super().attach(name, rows, schema)


@contextmanager
def _fetch_table(source: str, schema: TableSchema | None) -> Iterator[pa.RecordBatchReader]:
    """The rows of a table in a database, as a stream over one snapshot."""
    import psycopg

    located = locate_table(source)
    connection = connect(located.address)
    try:
        view = inspect_table(connection, located, schema)
        types = [ARROW[field.native] for field in view.fields]
        names = [field.name for field in view.fields]
        most = schema.rows_out if schema is not None else DEFAULT_ROWS_OUT
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
            raise DataError(
                f"{located.title} has more than {most} rows, which is as many as may be brought out of the database",
                expected="A technique that computes in the database, such as a question with noise",
                remedy="The steward may set rows_out of the table in the policy higher",
            )
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
