"""What engines share whose tables are elsewhere: statements that read such a table run there, others here.

A source elsewhere is shown by a common table expression in front of the statement, so nothing is created there."""

# ruff: noqa: S608  (statements here are made of our own words and of quoted names)

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import pyarrow as pa

from deniable.engines import base, sources
from deniable.engines.base import (
    BATCH_ROWS,
    Field,
    Found,
    Parameters,
    Restriction,
    Source,
    normalize_names,
    quote,
    write_value,
)
from deniable.engines.duckdb.engine import DuckDBEngine
from deniable.engines.duckdb.scan import NATIVE
from deniable.errors import DataError, InternalError, ParameterError, nearest
from deniable.policy.schema import ColumnType, CsvDialect, TableSchema, refuse_secret

Frames = Mapping[str, pa.Table]
"""Rows in memory, by the name under which a statement reads them."""


STATEMENT_SECONDS = 3600
"""How long a statement may take for which no limit was given."""
SINGLE, ZONED = "FLOAT", "TIMESTAMP WITH TIME ZONE"
"""Numbers in single precision, and times in a zone: statements compute with them as doubles and as times in UTC, and
releases have them as they are."""
ARROW = {
    "BIGINT": pa.int64(), "DOUBLE": pa.float64(), SINGLE: pa.float32(), "HUGEINT": pa.decimal128(38, 0),
    "VARCHAR": pa.string(), "BOOLEAN": pa.bool_(), "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"),
    ZONED: pa.timestamp("us", "UTC"),
}  # fmt: skip
"""The Arrow type of each of DuckDB's words that a column elsewhere is shown as, but for decimals."""
EXACT_DIGITS = 15
"""Decimals of so many digits are the same after they were doubles."""


class Statement(Protocol):
    """A statement in the language of an engine."""

    @property
    def sql(self) -> str:
        """Its text."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns, which the engine may cut short."""

    @property
    def types(self) -> tuple[str, ...]:
        """DuckDB's types of its columns."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The sources that it reads."""

    @property
    def order(self) -> tuple[str, ...]:
        """The columns by which the result is sorted here."""


Render = Callable[..., Statement]
"""What writes our SQL in the engine's language: the statement and the types of its tables in, a Statement out."""


class RemoteView(Protocol):
    """A table elsewhere as it is shown: the columns of the policy, and the rows that may be seen."""

    @property
    def place(self) -> str:
        """Where it is; one statement reads tables of one place."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Its columns."""

    @property
    def expressions(self) -> tuple[str, ...]:
        """How each column is read."""

    @property
    def restrictions(self) -> tuple[Restriction, ...]:
        """Which rows may be seen."""


V = TypeVar("V", bound=RemoteView)


class RemoteEngine(ABC, Generic[V]):
    """Tables elsewhere, and an embedded engine for everything else."""

    dialect: ClassVar[str]

    def __init__(self, *, render: Render, root: str | Path = ".", **limits: Any) -> None:
        self._render = render
        self._local = DuckDBEngine(root=root, **limits)
        self._views: dict[str, V] = {}
        self._lock = threading.RLock()
        self._closed = False

    @staticmethod
    @abstractmethod
    def is_there(source: Source) -> bool:
        """Whether a source is read by this engine, and not by the embedded one."""

    @abstractmethod
    def _inspect(self, source: str, schema: TableSchema | None) -> V:
        """How a table is shown; declared columns must be there and fit."""

    @abstractmethod
    def _list_settings(self) -> tuple[Any, ...]:
        """What `render` has to know of the place."""

    @abstractmethod
    def _run_there(
        self, statement: Statement, parameters: Parameters | None, frames: Frames, seconds: float | None
    ) -> pa.Table:
        """Run a statement where its tables are."""

    @abstractmethod
    def _stream_there(
        self, statement: Statement, batch_rows: int, parameters: Parameters | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a statement in batches, at least one."""

    @abstractmethod
    def _find_version(self, view: V) -> str:
        """What changes when rows do."""

    @abstractmethod
    def _cancel_there(self, thread: int | None) -> None:
        """Stop what runs there."""

    @abstractmethod
    def _close_there(self) -> None:
        """Let go of what is held there."""

    def attach(
        self, name: str, source: Source, schema: TableSchema | None = None, *, csv: CsvDialect | None = None
    ) -> None:
        """Declare a source under a name: a table elsewhere, or what the embedded engine can read."""
        self._require_open()
        if not self.is_there(source):
            self._local.attach(name, source, schema, csv=csv)
            self._drop_view(name)
            return
        refuse_secret(source)
        view = self._inspect(str(source), schema)
        with self._lock:
            self._drop_view(name)
            self._views[name] = view

    def reach(self, *names: str) -> None:
        """Refuse sources that are gone, or that cannot be reached."""
        self._require_open()
        for name in names:
            if name in self._views:
                self._reach_there(self._views[name])
            else:
                self._local.reach(name)

    def _reach_there(self, view: V) -> None:
        """Refuse a place that cannot be reached."""

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
        restrictions = tuple(base.round_listed(each, view.fields) for each in restrictions)
        self._views[name] = replace(view, restrictions=restrictions)  # type: ignore[type-var]  # views are dataclasses

    def describe(self, name: str) -> tuple[Field, ...]:
        """The columns of a source, in its order."""
        view = self._find_view(name)
        return self._local.describe(name) if view is None else view.fields

    def notes(self, name: str) -> tuple[str, ...]:
        """What was left out of a file; of a table elsewhere nothing is."""
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
        frames: Frames | None = None,
        one_row: bool = False,
    ) -> pa.Table:
        """Run one reading statement of our own making: elsewhere, if it reads a table there."""
        self._require_open()
        statement = self._prepare(sql, parameters, frames or {})
        if statement is None:
            return self._local.run(sql, parameters, seconds=seconds, frames=frames, one_row=one_row)
        return self._run_there(statement, parameters, frames or {}, seconds)

    def read_whole(self, names: Collection[str], read: Callable[[], Found]) -> Found:
        """What several statements read, of the files among these sources as they are at one time."""
        files = [name for name in names if name in self._list_local()]
        return self._local.read_whole(files, read) if files else read()

    def translate(self, sql: str, frames: Frames) -> None:
        """Write a statement in the engine's language, and run nothing: what cannot be written fails here."""
        self._prepare(sql, None, frames)

    def stream(
        self, sql_or_table: str, batch_rows: int = BATCH_ROWS, parameters: Parameters | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of a statement or of a source; at least one batch."""
        if batch_rows < 1:
            raise ParameterError(f"batch_rows is {batch_rows}", expected="A batch has at least 1 row")
        self._require_open()
        known = sql_or_table in self._views
        sql = f"SELECT * FROM {quote(sql_or_table)}" if known else sql_or_table
        statement = None if not known and sql_or_table in self._list_local() else self._prepare(sql, parameters, {})
        if statement is None:
            return self._local.stream(sql_or_table, batch_rows, parameters)
        return self._stream_there(statement, batch_rows, parameters)

    def write(
        self,
        batches: Iterable[pa.RecordBatch] | pa.Table,
        path: str | Path,
        format: str | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Write rows to a file, whole or not at all, and say how many."""
        return self._local.write(batches, path, format, progress=progress)

    def data_version(self, name: str) -> str:
        """A fingerprint of a source's content and of how it is read."""
        view = self._find_view(name)
        if view is None:
            return self._local.data_version(name)
        columns = [f"{f.name}:{f.native}:{e}" for f, e in zip(view.fields, view.expressions, strict=True)]
        content = self._find_version(view)
        return sources.combine_hashes([content, *columns, *base.hash_restrictions(view.restrictions)])

    def cancel(self, thread: int | None = None) -> None:
        """Stop whatever runs, in every thread or in the one of that identity."""
        self._local.cancel(thread)
        self._cancel_there(thread)

    def close(self) -> None:
        """Let go of all sources and connections; closing twice is fine."""
        self.cancel()
        self._closed = True
        with self._lock:
            self._views = {}
        self._close_there()
        self._local.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def away(self) -> Mapping[str, V]:
        """The sources that are elsewhere."""
        return self._views

    def _require_open(self) -> None:
        if self._closed:
            raise ParameterError("this engine was closed", remedy="Open another one")

    def _list_local(self) -> tuple[str, ...]:
        return tuple(self._local._scans)

    def _find_view(self, name: str) -> V | None:
        """The view of a table elsewhere; None for a source of the embedded engine, else a refusal."""
        self._require_open()
        if name in self._views or name in self._list_local():
            return self._views.get(name)
        known = (*self._views, *self._list_local())
        raise DataError(
            f"no source '{name}' is attached",
            expected="Attached are " + (", ".join(f"'{each}'" for each in known) or "none"),
            remedy=nearest(name, known),
        )

    def _prepare(self, sql: str, parameters: Parameters | None, frames: Frames) -> Statement | None:  # noqa: ARG002
        """The statement in the engine's language; None where it reads no table elsewhere.

        Values of parameters are given beside it, unless an engine writes them out.
        """
        if not self._views:
            return None
        types = {name: {f.name: name_computed(f) for f in view.fields} for name, view in self._views.items()}
        local = {name: {f.name: f.native for f in self._local.describe(name)} for name in self._list_local()}
        given = {name: {f.name: name_arrow_type(f.type) for f in rows.schema} for name, rows in frames.items()}
        statement = self._render(sql, local | types | given, *self._list_settings())
        read = [name for name in statement.tables if name in self._views and name not in given]
        if not read:
            return None
        places = {self._views[name].place for name in read}
        if len(places) > 1 or any(name in local and name not in self._views for name in statement.tables):
            raise InternalError("a statement was to join tables of different places; it was not run")
        return statement


class PooledEngine(RemoteEngine[V]):
    """An engine that keeps connections, by the address of a place, and can stop what runs there."""

    def __init__(self, *, render: Render, root: str | Path = ".", **limits: Any) -> None:
        super().__init__(render=render, root=root, **limits)
        self._pool: dict[str, list[Any]] = {}
        self._running: dict[Any, int] = {}
        self._stopped: set[Any] = set()

    @abstractmethod
    def _connect(self, address: str) -> Any:
        """A connection to a place."""

    @abstractmethod
    def _is_alive(self, connection: Any) -> bool:
        """Whether a connection that was kept can be used; one that cannot is closed."""

    @abstractmethod
    def _stop(self, handle: Any) -> None:
        """Stop what runs under a handle."""

    def _reach_there(self, view: V) -> None:
        with self._connection(view.place):
            """A connection that was kept is tried, or another one opened."""

    def _give_back(self, connection: Any) -> None:
        """Make a connection ready for others."""

    @contextmanager
    def _connection(self, address: str) -> Iterator[Any]:
        """A connection from the pool; one that a failure may have left in doubt is closed."""
        self._require_open()
        with self._lock:
            pool = self._pool.setdefault(address, [])
            connection = pool.pop() if pool else None
        if connection is None or not self._is_alive(connection):
            connection = self._connect(address)
        try:
            yield connection
            self._give_back(connection)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if self._closed:
                connection.close()
            else:
                self._pool.setdefault(address, []).append(connection)

    @contextmanager
    def _mark_running(self, handle: Any) -> Iterator[None]:
        """Let what this thread runs under a handle be stopped from others."""
        with self._lock:
            self._running[handle] = threading.get_ident()
        try:
            yield
        finally:
            with self._lock:
                self._running.pop(handle, None)
                self._stopped.discard(handle)

    def _refuse_stopped(self, handle: Any) -> None:
        if handle in self._stopped:
            raise base.refuse_late()

    def _cancel_there(self, thread: int | None) -> None:
        with self._lock:
            found = [each for each, begun_by in self._running.items() if thread is None or thread == begun_by]
        self._stop_all(found)

    def _stop_all(self, handles: Iterable[Any]) -> None:
        handles = list(handles)
        with self._lock:
            self._stopped.update(handles)  # a stream that waits to be read has nothing that could be stopped there
        for handle in handles:
            with suppress(Exception):  # what cannot be stopped any more has ended
                self._stop(handle)

    def _close_there(self) -> None:
        with self._lock:
            kept, self._pool = [each for pool in self._pool.values() for each in pool], {}
        for connection in kept:
            connection.close()


def put_in_front(shown: Sequence[str], text: str) -> str:
    """A statement with common table expressions in front of its own."""
    body = ", " + text.removeprefix("WITH ") if text.startswith("WITH ") else " " + text
    return f"WITH {', '.join(shown)}{body}"


Reading = tuple[ColumnType, str, str]
"""How a column is shown: the policy's type, DuckDB's word, and the expression that reads it, with {0} for its name."""


@dataclass(frozen=True, slots=True)
class Conversions:
    """How an engine turns a column into the type that a policy declares, with {0} for what reads it."""

    as_text: str
    pairs: Mapping[tuple[ColumnType, ColumnType], str]
    """From the type that a column is shown as to the declared one; what is not here does not fit."""

    def convert(self, name: str, title: str, kind: ColumnType, wanted: ColumnType, read: str) -> str:
        """The expression that reads a column as the declared type; a type that does not fit is refused."""
        template = self.as_text if wanted is ColumnType.TEXT else self.pairs.get((kind, wanted))
        if template is None:
            raise DataError(
                f"column '{name}' of {title} holds values of type '{kind}', and is declared as '{wanted}'",
                expected=f"The type '{kind}' in the policy",
                remedy="Correct the policy, or make a view of the table that casts the column",
                column=name,
            )
        return template.format(read)


@dataclass(frozen=True, slots=True)
class Shown:
    """The columns of a table as a policy declares them, and how each is read."""

    fields: tuple[Field, ...]
    expressions: tuple[str, ...]
    doubtful: Mapping[str, str]
    """By the name of a column whose values may not be of its declared type, the condition under which one is not."""


def show_declared(
    columns: Sequence[tuple[str, str, Reading]], schema: TableSchema | None, title: str, conversions: Conversions
) -> Shown:
    """How a table is shown: of each column its name, its quoted name and how it is read come in.

    Declared columns must be there and fit.
    """
    names = normalize_names(name for name, _, _ in columns)
    declared = {} if schema is None else {column.name: column.type for column in schema.columns}
    base.require_columns(names, declared, title)
    fields, expressions, doubtful = [], [], {}
    for name, (_, quoted, (kind, native, template)) in zip(names, columns, strict=True):
        read, wanted = template.format(quoted), declared.get(name, kind)
        if wanted is not kind:
            plain, read = read, conversions.convert(name, title, kind, wanted, read)
            native = NATIVE[wanted]
            if (kind, wanted) == (ColumnType.DECIMAL, ColumnType.INTEGER):
                doubtful[name] = f"{plain} IS NOT NULL AND {read} IS NULL"
        fields.append(Field(name, wanted, native, number=kind in base.NUMBERS))
        expressions.append(read)
    return Shown(tuple(fields), tuple(expressions), doubtful)


def count_misfits(doubtful: Mapping[str, str], relation: str) -> str:
    """The statement that counts, for each doubtful column, the values that are not of its declared type."""
    counts = ", ".join(
        f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END) AS n{place}" for place, condition in enumerate(doubtful.values())
    )
    return f"SELECT {counts} FROM {relation}"


def refuse_misfits(doubtful: Mapping[str, str], counts: Sequence[int], title: str) -> None:
    """Refuse when a declared column holds values that are not of its type; says how many, never which."""
    for name, count in zip(doubtful, counts, strict=True):
        if count:  # null where there are no rows
            raise DataError(
                base.tell_misfits(count, name, title, "integer"),
                remedy="Correct the table, or the type in the policy",
                column=name,
                count=count,
            )


def count_rows_out(schema: TableSchema | None) -> int:
    """How many rows of a table may be brought here."""
    return (schema or TableSchema("", "", ())).rows_out


def refuse_rows_out(title: str, most: int) -> DataError:
    """The refusal of a table with more rows than may be brought here."""
    return DataError(
        f"{title} has more than {most} rows, which is as many as may be brought out of the place where they are",
        expected="A technique that computes there, such as a question with noise",
        remedy="The steward may set rows_out of the table in the policy higher",
    )


def name_computed(field: Field) -> str:
    """DuckDB's word for what statements compute with in place of a column."""
    if field.native == SINGLE or field.native.startswith("DECIMAL"):
        return "DOUBLE"
    return "TIMESTAMP" if field.native == ZONED else field.native


def name_decimal(reading: Reading, digits: int, scale: int) -> Reading:
    """How decimals of so many digits are read: as doubles, and released as they are where that loses none."""
    kind, native, template = reading
    return kind, f"DECIMAL({digits},{scale})" if 0 <= scale <= digits <= EXACT_DIGITS else native, template


def find_arrow_type(field: Field) -> pa.DataType:
    """The type of a column in what is released."""
    if found := re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", field.native):
        return pa.decimal128(int(found[1]), int(found[2]))
    return ARROW[field.native]


def name_arrow_type(kind: pa.DataType) -> str:
    """DuckDB's word for the type of a column in memory."""
    if pa.types.is_integer(kind):
        return "BIGINT"
    if pa.types.is_floating(kind):
        return "DOUBLE"
    if pa.types.is_decimal(kind):
        return "HUGEINT" if kind.scale == 0 else "DOUBLE"
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    if pa.types.is_date(kind):
        return "DATE"
    return "TIMESTAMP" if pa.types.is_timestamp(kind) else "VARCHAR"


def list_rows(rows: pa.Table) -> str:
    """Rows in memory as a statement in the language of the embedded engine: one list for each column."""
    lists = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        values = [write_value(value, name_arrow_type(field.type)) for value in column.to_pylist() or [None]]
        lists.append(f"unnest([{', '.join(values)}]) AS {quote(field.name)}")
    listed = f"SELECT {', '.join(lists)}"
    names = ", ".join(map(quote, rows.column_names))
    return listed if rows.num_rows else f"SELECT {names} FROM ({listed}) AS rows WHERE 1 = 0"


def settle_rows(found: pa.Table, statement: Statement) -> pa.Table:
    """Rows as a driver gave them, in the types that the other engines give."""
    words = statement.types or ("",) * found.num_columns
    columns = [_settle_column(column, word) for column, word in zip(found.columns, words, strict=True)]
    return pa.table(columns, names=list(statement.names))


def _settle_column(column: pa.ChunkedArray, word: str) -> pa.ChunkedArray:
    kind = column.type
    if getattr(kind, "type_name", "") == "numeric" or pa.types.is_decimal(kind):
        return _settle_numbers(column.to_pylist(), word)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.chunked_array([pa.array([None if each is None else str(each) for each in column.to_pylist()])])
    wanted = ARROW.get(name_arrow_type(kind), pa.string())
    if pa.types.is_integer(kind) and word == "BOOLEAN":
        wanted = pa.bool_()
    if pa.types.is_integer(kind) and word == "DOUBLE":
        wanted = pa.float64()
    if pa.types.is_timestamp(kind) and kind.tz:
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    return column.cast(wanted)


def _settle_numbers(values: list[Any], word: str) -> pa.Array:
    """Numbers that a driver gives as decimals or texts: whole where all are, unless they are known to be doubles."""
    numbers = [None if each is None else Decimal(each) for each in values]
    if word == "DOUBLE" or any(each is not None and each != each.to_integral_value() for each in numbers):
        return pa.array([None if each is None else float(each) for each in numbers], pa.float64())
    whole = [None if each is None else int(each) for each in numbers]
    fits = word == "BIGINT" and all(each is None or -(1 << 63) <= each < 1 << 63 for each in whole)
    return pa.array(whole, pa.int64()) if fits else pa.array(numbers, pa.decimal128(38, 0))
