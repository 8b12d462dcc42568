"""The engine over PostgreSQL databases, and rows between a database and Arrow: of statements, tables and releases."""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from re import Match
from typing import Any, ClassVar

import pyarrow as pa

from deniable.engines import base, sources
from deniable.engines.base import BATCH_ROWS, PARAMETER, Parameters, Source, is_in_database, quote
from deniable.engines.postgresql.connection import connect, describe_server, is_alive, open_cursor, translate_errors
from deniable.engines.postgresql.tables import (
    Located,
    Spellings,
    View,
    cut_name,
    find_version,
    inspect_table,
    list_types,
    locate_table,
    show_view,
)
from deniable.engines.remote import (
    ARROW,
    STATEMENT_SECONDS,
    Frames,
    PooledEngine,
    Render,
    Statement,
    count_rows_out,
    find_arrow_type,
    name_arrow_type,
    name_computed,
    put_in_front,
    refuse_rows_out,
)
from deniable.errors import DataError, ParameterError
from deniable.policy.schema import TableSchema


class PostgreSQLEngine(PooledEngine[View]):
    """Tables of PostgreSQL databases, and an embedded engine for everything else.

    `render` writes our SQL in PostgreSQL's language.
    """

    dialect: ClassVar[str] = "postgresql"

    def __init__(self, *, render: Render, root: str | Path = ".", **limits: Any) -> None:
        sources.require_driver("psycopg")
        super().__init__(render=render, root=root, **limits)

    @staticmethod
    def is_there(source: Source) -> bool:
        """Whether a source is a table of a PostgreSQL database."""
        return is_in_database(source)

    def _inspect(self, source: str, schema: TableSchema | None) -> View:
        located = locate_table(source)
        with self._connection(located.address) as connection:
            return replace(inspect_table(connection, located, schema), server=describe_server(connection))

    def _reach_there(self, view: View) -> None:
        with self._statement(view.place, None) as connection, translate_errors(view.located.title):
            now = list_types(connection, view.located)
            if now and any(now.get(name) != written for name, written in view.types):
                raise base.refuse_changed(view.located.title)
            connection.execute(f"{show_view(replace(view, restrictions=()), [])} LIMIT 0")

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
                    self._refuse_stopped(connection)
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
        with self._connection(address) as connection, self._mark_running(connection):
            with translate_errors():
                limit = max(1, int(1000 * (STATEMENT_SECONDS if seconds is None else seconds)))
                connection.execute(f"SET LOCAL statement_timeout = {limit}")
            yield connection

    def _connect(self, address: str) -> Any:
        return connect(address)

    def _is_alive(self, connection: Any) -> bool:
        return is_alive(connection)

    def _stop(self, handle: Any) -> None:
        handle.cancel()

    def _give_back(self, connection: Any) -> None:
        with translate_errors():
            connection.rollback()


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
        types = [ARROW[name_computed(field)] for field in view.fields]
        names = [field.name for field in view.fields]
        wanted = pa.schema([(field.name, find_arrow_type(field)) for field in view.fields])
        most = count_rows_out(schema)
        with translate_errors(located.title), psycopg.RawServerCursor(connection, "rows") as cursor:
            cursor.execute(show_view(view, []))
            batches = _fetch_batches(cursor, types, names, most, located)
            released = (part for batch in batches for part in pa.Table.from_batches([batch]).cast(wanted).to_batches())
            yield pa.RecordBatchReader.from_batches(wanted, released)
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


def _number_parameters(sql: str, parameters: Parameters | None, values: list[Any]) -> str:
    """The statement with its parameters numbered, their values appended."""
    if parameters is None:
        return sql
    if not isinstance(parameters, Mapping):
        values += parameters
        return sql
    places: dict[str, int] = {}

    def number(found: Match[str]) -> str:
        if found[1] is None:
            return found[0]
        if found[1] not in places:
            values.append(parameters[found[1]])
            places[found[1]] = len(values)
        return f"${places[found[1]]}"

    return PARAMETER.sub(number, sql)


def list_rows(rows: pa.Table, values: list[Any]) -> str:
    """Rows in memory as something to select from: one array for each column."""
    arrays, names = [], []
    for place, (field, column) in enumerate(zip(rows.schema, rows.columns, strict=True)):
        kind = name_arrow_type(field.type)
        values.append(column.to_pylist())
        arrays.append(f"CAST(${len(values)} AS {ARRAYS[kind]}[])")
        collated = ' COLLATE "C"' if kind == "VARCHAR" else ""
        names.append((f'"#{place}"', f'"#{place}"{collated} AS {cut_name(field.name)}'))
    listed = ", ".join(name for name, _ in names)
    return f"SELECT {', '.join(shown for _, shown in names)} FROM unnest({', '.join(arrays)}) AS f({listed})"


ARRAYS = {
    "BIGINT": "bigint",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "HUGEINT": "numeric",
}


_BY_OID = {
    16: pa.bool_(),
    20: pa.int64(),
    21: pa.int64(),
    23: pa.int64(),
    700: pa.float64(),
    701: pa.float64(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us"),
}


NUMERIC = 1700


def read_types(description: Sequence[Any] | None, known: Sequence[str]) -> list[pa.DataType | None]:
    """The Arrow type of each column; None for a number of which only its values tell whether it is whole."""
    types: list[pa.DataType | None] = []
    for place, column in enumerate(description or ()):
        if column.type_code == NUMERIC:
            word = known[place] if place < len(known) else ""
            types.append(pa.float64() if word == "DOUBLE" else None)
        else:
            types.append(_BY_OID.get(column.type_code, pa.string()))
    return types


def build_table(rows: Sequence[Sequence[Any]], types: Sequence[pa.DataType | None], names: Sequence[str]) -> pa.Table:
    """Rows as the database gave them, as an Arrow table."""
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in types]
    arrays = [_build_array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=list(names))


def build_batch(
    rows: Sequence[Sequence[Any]], types: Sequence[pa.DataType | None], names: Sequence[str]
) -> pa.RecordBatch:
    """Rows as the database gave them, as one batch."""
    built = build_table(rows, types, names)
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in built.columns], names=built.schema.names)


def _build_array(column: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    if kind is None:
        whole = all(each is None or each == each.to_integral_value() for each in column)
        return pa.array([None if v is None else Decimal(int(v)) if whole else float(v) for v in column],
                        pa.decimal128(38, 0) if whole else pa.float64())  # fmt: skip
    if kind == pa.float64():
        column = [None if each is None else float(each) for each in column]
    if kind == pa.string():
        column = [each if each is None or isinstance(each, str) else str(each) for each in column]
    return pa.array(column, kind)


PG_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_uint64, "numeric"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_floating, "double precision"),
    (pa.types.is_decimal, "numeric"),
    (pa.types.is_date, "date"),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, "timestamptz"),
    (pa.types.is_timestamp, "timestamp"),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), "bytea"),
)
LONGEST_NAME = 63
"""Bytes of a name that the database keeps."""


def write_table(
    batches: Iterable[pa.RecordBatch] | pa.Table, target: str, progress: Callable[[int], None] | None = None
) -> int:
    """Write rows to a new table of its own by COPY, in one transaction: whole or not at all. Says how many."""
    located = locate_table(target)
    given = batches.to_batches() if isinstance(batches, pa.Table) else batches
    waiting = iter(given)
    first = batches.schema if isinstance(batches, pa.Table) else None
    held = next(waiting, None)
    schema = first if first is not None else held.schema if held is not None else None
    if schema is None:
        raise DataError("there is no batch to write, so the columns are not known", remedy="Pass a pyarrow Table")
    _refuse_names(located, schema)
    connection, rows = connect(located.address, read_only=False), 0
    try:
        with translate_errors(located.title, writes=True):
            _create_table(connection, located, schema)
            with connection.cursor().copy(f"COPY {located.relation} FROM STDIN") as copy:
                while held is not None:
                    for row in zip(*(column.to_pylist() for column in held.columns), strict=True):
                        copy.write_row(row)
                    rows += held.num_rows
                    if progress:
                        progress(rows)
                    held = next(waiting, None)
            connection.commit()
    finally:
        connection.close()
    return rows


def _refuse_names(located: Located, schema: pa.Schema) -> None:
    """Refuse names that the database would cut, and columns that have one name."""
    long = [name for name in (located.table, *schema.names) if len(name.encode()) > LONGEST_NAME]
    if long or len({*schema.names}) < len(schema.names):
        happened = f"a name has more than {LONGEST_NAME} bytes" if long else "two columns have one name"
        raise DataError(f"{located.title} cannot be made: {happened}", remedy="Rename it, and write again")


def _create_table(connection: Any, located: Located, schema: pa.Schema) -> None:
    from psycopg import errors

    columns = ", ".join(
        f"{quote(field.name)} {next((name for fits, name in PG_TYPES if fits(field.type)), 'text')}" for field in schema
    )
    try:
        connection.execute(f"CREATE TABLE {located.relation} ({columns})")
    except errors.DuplicateTable:
        raise DataError(
            f"there is a table {located.title} already", expected="A new table", remedy="Choose another name"
        ) from None
