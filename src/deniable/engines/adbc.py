"""Databases that are reached by ADBC: warehouses, and PostgreSQL through the same door.

A source is `DIALECT+adbc://PROFILE#schema.table`. The profile is a file of ADBC itself, which names the driver and
holds what is needed to connect; secrets stand in it or in the environment, and never in a policy. Everything else
(files, frames, noisy answers) is held by an embedded engine beside it.

Statements are rendered whole: sources, rows in memory and the values of parameters are written out in the language of
the embedded engine first, so that one writer for each dialect decides how anything is written. Before the first
statement a place is asked probes over rows that are written out; one with other numbers than here is refused."""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from deniable.engines import base, remote, sources
from deniable.engines.base import Field, Listed, Parameters, Restriction, Sampled, Source, quote, write_listed
from deniable.engines.postgresql.connection import SETTINGS
from deniable.engines.postgresql.tables import READ as POSTGRESQL
from deniable.engines.postgresql.tables import TEXT, WHEREABOUTS
from deniable.engines.remote import (
    ARROW,
    SINGLE,
    STATEMENT_SECONDS,
    ZONED,
    Conversions,
    Frames,
    PooledEngine,
    Reading,
    Render,
    Statement,
    find_arrow_type,
    name_computed,
)
from deniable.errors import DataError, DeniableError, InternalError, ParameterError, StorageError
from deniable.policy.schema import ColumnType, TableSchema


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the columns of a table are named and read in a dialect, with {0} for the quoted name."""

    double: str = "CAST({0} AS DOUBLE)"
    number: str = ""
    """Decimals of a fixed scale, as a double; as `double` unless it is given."""
    text: str = "{0}"
    other: str = "CAST({0} AS VARCHAR)"
    date: str = "{0}"
    time: str = "{0}"
    zoned: str = "CAST({0} AT TIME ZONE 'UTC' AS TIMESTAMP)"
    mark: str = '"'
    session: tuple[str, ...] = ()
    """What every session is told first, so that answers do not depend on its settings."""

    def read(self, kind: str) -> str:
        """How a column of a kind is read."""
        plain = {"whole": "CAST({0} AS BIGINT)", "large": "{0}", "boolean": "{0}", "number": self.number or self.double}
        return str((plain | {"exact": EXACT}).get(kind) or getattr(self, {"single": "double"}.get(kind, kind)))

    def quote(self, name: str) -> str:
        """A name as the dialect takes it."""
        end = "]" if self.mark == "[" else self.mark
        return f"{self.mark}{name.replace(end, end * 2)}{end}"


_FITS = "{0} = FLOOR({0}) AND {0} BETWEEN -9223372036854775808 AND 9223372036854775807"
EXACT = f"(CASE WHEN {_FITS} THEN CAST({{0}} AS BIGINT) END)"
"""Decimals that are declared as whole numbers: by way of doubles, long ones would become one another."""
DIALECTS: dict[str, Dialect] = {
    "postgresql": Dialect(
        double=POSTGRESQL["float8"][2],
        number=POSTGRESQL["numeric"][2],
        text=TEXT[2],
        other=TEXT[2],
        date=POSTGRESQL["date"][2],
        time=POSTGRESQL["timestamp"][2],
        zoned=POSTGRESQL["timestamptz"][2],
        session=(
            "SET default_transaction_read_only = on",
            *(f"SET {name} = '{value}'" for name, value in SETTINGS.items()),
        ),
    ),
    "snowflake": Dialect(
        zoned="CAST(CONVERT_TIMEZONE('UTC', {0}) AS TIMESTAMP_NTZ)", session=("ALTER SESSION SET TIMEZONE = 'UTC'",)
    ),
    "bigquery": Dialect("CAST({0} AS FLOAT64)", other="CAST({0} AS STRING)", zoned="DATETIME({0}, 'UTC')", mark="`"),
    "databricks": Dialect(
        other="CAST({0} AS STRING)",
        zoned="CAST({0} AS TIMESTAMP_NTZ)",
        mark="`",
        session=("SET ANSI_MODE = false", "SET TIME ZONE 'UTC'"),
    ),
    "redshift": Dialect(
        "CAST({0} AS DOUBLE PRECISION)",
        other="CAST({0} AS VARCHAR(65535))",
        zoned="({0} AT TIME ZONE 'UTC')",
        session=("SET timezone TO 'UTC'",),
    ),
    "trino": Dialect(zoned="CAST({0} AT TIME ZONE 'UTC' AS TIMESTAMP(6))", session=("SET TIME ZONE 'UTC'",)),
    "sqlserver": Dialect(
        "CAST({0} AS FLOAT)",
        text="CAST({0} AS NVARCHAR(MAX)) COLLATE Latin1_General_100_BIN2",
        other="CAST({0} AS NVARCHAR(MAX)) COLLATE Latin1_General_100_BIN2",
        zoned="CAST({0} AT TIME ZONE 'UTC' AS DATETIME2(6))",
        mark="[",
    ),
}
"""The dialects of sources; of these only PostgreSQL has been run."""
_NAME = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_SOURCE = re.compile(r"([a-z]+)\+adbc://([A-Za-z0-9_-]+)#(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Located:
    """A table: the dialect of its place, the profile that leads there, and its name in parts."""

    dialect: str
    profile: str
    names: tuple[str, ...]

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"'{'.'.join(self.names)}'"

    @property
    def place(self) -> str:
        """The source without the table."""
        return f"{self.dialect}+adbc://{self.profile}"

    @property
    def relation(self) -> str:
        """The table, to stand after FROM."""
        return ".".join(map(DIALECTS[self.dialect].quote, self.names))


def locate_table(source: str) -> Located:
    """The table that a source names.

    >>> locate_table("trino+adbc://clinic#hive.care.visits").relation
    '"hive"."care"."visits"'
    """
    found = _SOURCE.fullmatch(source)
    names = [(quoted or plain).replace('""', '"') for quoted, plain in _NAME.findall(found[3])] if found else []
    if found is None or found[1] not in DIALECTS or not 1 <= len(names) <= 3:
        raise DataError(
            "a source that is reached by ADBC names no single table",
            expected="DIALECT+adbc://PROFILE#schema.table, where DIALECT is one of " + ", ".join(DIALECTS),
            remedy="Correct the source in the policy",
        )
    if found[1] == "postgresql" and len(names) == 1:
        names = ["public", *names]
    return Located(found[1], found[2], tuple(names))


@dataclass(frozen=True, slots=True)
class View:
    """A table as it is shown: how its own columns are read there, and the columns of the policy made of them."""

    located: Located
    raw: tuple[tuple[str, str], ...]
    """How each column is read there, and what type of the embedded engine it is then."""
    fields: tuple[Field, ...]
    expressions: tuple[str, ...]
    found: pa.Schema
    """Its columns as the driver tells of them."""
    restrictions: tuple[Restriction, ...] = ()

    @property
    def place(self) -> str:
        """Where it is."""
        return self.located.place


@dataclass(frozen=True, slots=True)
class Ready:
    """A statement with all that it reads in front, and the place where it runs."""

    sql: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    tables: tuple[str, ...]
    place: str
    order: tuple[str, ...] = ()


_DAY = "CASE WHEN {0} BETWEEN DATE '0001-01-01' AND DATE '9999-12-31' THEN {0} END"
_FIRST, _LAST = "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'"
READ: dict[str, Reading] = {
    "whole": (ColumnType.INTEGER, "BIGINT", "{0}"),
    "large": (ColumnType.INTEGER, "BIGINT", "TRY_CAST({0} AS BIGINT)"),
    "double": (ColumnType.DECIMAL, "DOUBLE", "NULLIF({0}, CAST('nan' AS DOUBLE))"),
    "number": (ColumnType.DECIMAL, "DOUBLE", "{0}"),
    "single": (ColumnType.DECIMAL, SINGLE, "NULLIF({0}, CAST('nan' AS DOUBLE))"),
    "boolean": (ColumnType.BOOLEAN, "BOOLEAN", "{0}"),
    "date": (ColumnType.DATE, "DATE", _DAY),
    "time": (ColumnType.DATETIME, "TIMESTAMP", f"CASE WHEN {{0}} BETWEEN {_FIRST} AND {_LAST} THEN {{0}} END"),
    "text": (ColumnType.TEXT, "VARCHAR", "{0}"),
}
"""How a column is shown in the language of the embedded engine, by what kind of column it is."""
READ |= {"zoned": (ColumnType.DATETIME, ZONED, READ["time"][2]), "other": READ["text"], "exact": READ["whole"]}
RAW_TYPES = {"large": "HUGEINT", "number": "DOUBLE", "single": "DOUBLE", "zoned": "TIMESTAMP"}
CONVERSIONS = Conversions(
    "CAST({0} AS VARCHAR)",
    {
        (ColumnType.INTEGER, ColumnType.DECIMAL): "CAST({0} AS DOUBLE)",
        (ColumnType.DECIMAL, ColumnType.INTEGER): "CASE WHEN {0} = floor({0}) THEN TRY_CAST({0} AS BIGINT) END",
        (ColumnType.DATE, ColumnType.DATETIME): "CAST({0} AS TIMESTAMP)",
        (ColumnType.DATETIME, ColumnType.DATE): "CAST({0} AS DATE)",
    },
)


def name_kind(kind: pa.DataType) -> str:
    """What kind of column a driver tells of."""
    if pa.types.is_integer(kind):
        return "whole"
    if pa.types.is_floating(kind):
        return "single" if kind == pa.float32() else "double"
    if pa.types.is_decimal(kind):
        return "large" if kind.scale == 0 else "number"
    if pa.types.is_timestamp(kind):
        return "zoned" if kind.tz else "time"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if getattr(kind, "type_name", "") == "numeric":
        return "number"
    return "boolean" if pa.types.is_boolean(kind) else "date" if pa.types.is_date(kind) else "other"


class AdbcEngine(PooledEngine[View]):
    """Tables that are reached by ADBC, and an embedded engine for everything else.

    `render` writes our SQL in the dialect that it is given the name of.
    """

    dialect: ClassVar[str] = "adbc"

    def __init__(self, *, render: Render, root: str | Path = ".", **limits: Any) -> None:
        sources.require_driver("adbc_driver_manager")
        super().__init__(render=render, root=root, **limits)
        self._probed: set[str] = set()

    @staticmethod
    def is_there(source: Source) -> bool:
        """Whether a source is reached by ADBC."""
        return base.is_by_adbc(source)

    def _connect(self, address: str) -> Any:
        dialect, _, profile = address.partition("+adbc://")
        return connect(dialect, profile)

    def _is_alive(self, connection: Any) -> bool:
        with suppress(Exception):
            read_rows(connection, "SELECT 1")
            return True
        with suppress(Exception):
            connection.close()
        return False

    def _stop(self, handle: Any) -> None:
        handle.adbc_cancel()

    def _inspect(self, source: str, schema: TableSchema | None) -> View:
        located = locate_table(source)
        self._probe(located)
        with self._connection(located.place) as connection:
            view, doubtful = inspect_table(connection, located, schema)
        if doubtful:
            (counts,) = self._ask(view, remote.count_misfits(doubtful, '"raw_0"')).to_pylist()
            remote.refuse_misfits(doubtful, [int(count or 0) for count in counts.values()], located.title)
        return view

    def _reach_there(self, view: View) -> None:
        with self._connection(view.place) as connection:
            now = find_columns(connection, view.located)
        if any(each.name not in now.names or now.field(each.name) != each for each in view.found):
            raise base.refuse_changed(view.located.title)

    def _list_settings(self) -> tuple[Any, ...]:
        return (next(iter(self._views.values())).located.dialect,)

    def _prepare(self, sql: str, parameters: Parameters | None, frames: Frames) -> Ready | None:
        text = base.write_parameters(sql, parameters)
        found = super()._prepare(text, None, frames)
        if found is None:
            return None
        read = {name: self._views[name] for name in found.tables if name in self._views and name not in frames}
        given = {name: frames[name] for name in found.tables if name in frames}
        return self._complete(text, read, given, next(iter(read.values())).located)

    def _complete(self, text: str, views: Mapping[str, View], frames: Frames, located: Located) -> Ready:
        """The statement with what it reads in front, in the dialect of the place."""
        raw = {f"raw_{place}": view for place, view in enumerate(views.values())}
        shown = [
            f"{quote(name)} AS ({self._show_view(views[name], own)})" for name, own in zip(views, raw, strict=True)
        ]
        shown += [f"{quote(name)} AS ({remote.list_rows(rows)})" for name, rows in frames.items()]
        return self._render_over(remote.put_in_front(shown, text), raw, located)

    def _render_over(self, text: str, raw: Mapping[str, View], located: Located) -> Ready:
        types = {own: {f"c{i}": kind for i, (_, kind) in enumerate(view.raw)} for own, view in raw.items()}
        found = self._render(text, types, located.dialect)
        mark = DIALECTS[located.dialect].quote
        front = [f"{mark(own)} AS ({read_raw(view)})" for own, view in raw.items()]
        whole = remote.put_in_front(front, found.sql) if front else found.sql
        return Ready(whole, found.names, found.types, found.tables, located.place)

    def _ask(self, view: View, sql: str) -> pa.Table:
        """What a statement over the columns of one table gives."""
        return self._run_there(self._render_over(sql, {"raw_0": view}, view.located), None, {}, None)

    def _probe(self, located: Located) -> None:
        """Refuse a place that computes probes otherwise than the embedded engine; it is asked once."""
        if located.place in self._probed:
            return
        for sql in PROBES:
            expected = self._local.run(sql, frames={"probe": PROBED})
            try:
                found = self._run_there(self._complete(sql, {}, {"probe": PROBED}, located), None, {}, None)
            except (DataError, InternalError):
                found = None
            if found is None or list_numbers(found) != list_numbers(expected):
                raise DataError(
                    f"the place of profile '{located.profile}' does not compute as {located.dialect} is known to",
                    expected="The same numbers as here for rows that are written out",
                    remedy="Compare the dialect in the source with the profile, see that the collation is not one of "
                    "ICU, or bring the table here as a file",
                )
        self._probed.add(located.place)

    def _run_there(self, statement: Statement, _: Parameters | None, __: Frames, seconds: float | None) -> pa.Table:
        assert isinstance(statement, Ready)
        with self._statement(statement, seconds) as cursor:
            return remote.settle_rows(cursor.fetch_arrow_table(), statement)

    def _stream_there(self, statement: Statement, batch_rows: int, _: Parameters | None) -> Iterator[pa.RecordBatch]:
        assert isinstance(statement, Ready)
        with self._statement(statement, None) as cursor:
            reader, any_rows = cursor.fetch_record_batch(), False
            for batch in reader:
                for part in remote.settle_rows(pa.Table.from_batches([batch]), statement).to_batches(batch_rows):
                    any_rows = True
                    yield part
                    self._refuse_stopped(cursor)
            if not any_rows:
                nothing = remote.settle_rows(reader.schema.empty_table(), statement)
                yield pa.RecordBatch.from_pylist([], schema=nothing.schema)

    @contextmanager
    def _statement(self, statement: Ready, seconds: float | None) -> Iterator[Any]:
        """A cursor with the result of a statement, with a time limit."""
        if seconds is not None and not seconds > 0:
            raise ParameterError(f"the time limit is {seconds} seconds", expected="A time limit is more than 0")
        with self._connection(statement.place) as connection, translate_errors():
            cursor = connection.cursor()
            timer = threading.Timer(STATEMENT_SECONDS if seconds is None else seconds, self._stop_all, ([cursor],))
            timer.daemon = True
            try:
                with self._mark_running(cursor):
                    timer.start()
                    cursor.execute(statement.sql)
                    yield cursor
                    self._refuse_stopped(cursor)
            finally:
                timer.cancel()
                cursor.close()

    def _show_view(self, view: View, own: str) -> str:
        """The statement that shows a table, as far as it may be shown."""
        shown = ", ".join(f"{e} AS {quote(f.name)}" for e, f in zip(view.expressions, view.fields, strict=True))
        rows, columns = f"SELECT {shown or '1 AS c'} FROM {own}", ", ".join(quote(f.name) for f in view.fields)
        for restriction in view.restrictions:
            if isinstance(restriction, Sampled) and restriction.column is None:
                numbered = f'row_number() OVER (PARTITION BY {columns} ORDER BY {quote(view.fields[0].name)}) AS "#row"'
                rows = f"SELECT {columns}, {numbered} FROM ({rows}) AS rows"
            rows = f"SELECT {columns} FROM ({rows}) AS rows WHERE {self._restrict(view, restriction)}"
        return rows

    def _restrict(self, view: View, restriction: Restriction) -> str:
        if not isinstance(restriction, Listed):
            # One in a million is fine enough for a share; the salted hash spreads units evenly.
            keys = ["#row", *(f.name for f in view.fields)] if restriction.column is None else [restriction.column]
            hashed = f"hash_number({restriction.salt}, {', '.join(map(quote, keys))})"
            return f"abs({hashed} % 1000000) < {int(restriction.share * 1_000_000)}"
        place = next(i for i, f in enumerate(view.fields) if f.name == restriction.column)
        values: Iterable[str] = restriction.values
        if restriction.loose and view.fields[place].type is ColumnType.TEXT:
            told = self._ask(view, f"SELECT DISTINCT {view.expressions[place]} AS v FROM raw_0")["v"].to_pylist()
            values = base.pick_spellings([text for text in told if text is not None], restriction, view.fields[place])
        listed = ", ".join(write_listed(view.fields[place].type, values)) or "NULL"
        return f"CASE WHEN {quote(restriction.column)} IN ({listed}) THEN 1 ELSE 0 END = {int(restriction.keep)}"

    def _find_version(self, view: View) -> str:
        """A hash over all rows; no place here tells what changes when rows do."""
        columns = ", ".join(f"c{place}" for place in range(len(view.raw)))
        sums = ", ".join(f"sum(hash_number({salt}, {columns})) AS s{salt}" for salt in (1, 2))
        return sources.combine_hashes(
            map(str, list_numbers(self._ask(view, f"SELECT count(*) AS n, {sums} FROM raw_0")))
        )

    def find_place(self, name: str) -> str:
        """Where an attached table is, by one name as far as its place tells it."""
        view, where = self._views[name], self._views[name].place
        if view.located.dialect == "postgresql":
            with self._connection(view.place) as connection, translate_errors():
                ((system, database),) = read_rows(connection, WHEREABOUTS)
            where = f"postgresql://{system}/{database}"
        return f"{where}#{'.'.join(view.located.names)}"


def connect(dialect: str, profile: str) -> Any:
    """A connection by a profile, read-only where the driver can; a refusal says what failed, without its text."""
    import adbc_driver_manager as manager
    from adbc_driver_manager import dbapi

    connection: Any = None
    for driver in list_drivers(dialect):
        with suppress(manager.Error):
            connection = dbapi.connect(driver, profile=profile, autocommit=True)
            break
    if connection is None:
        raise StorageError(
            f"the place of profile '{profile}' cannot be reached",
            expected=f"A file {profile}.toml in a folder that ADBC_PROFILE_PATH names, with a driver that is installed",
            remedy="Look at the profile, at the environment that it names, and at the server's log",
        )
    with suppress(manager.Error):
        connection.adbc_connection.set_options(**{"adbc.connection.readonly": "true"})
    with translate_errors():
        for statement in DIALECTS[dialect].session:
            read_rows(connection, statement)
    return connection


def list_drivers(dialect: str) -> Iterator[str | None]:
    """The driver that is a package of Python, for a profile that names none; then the one that the profile names."""
    module = f"adbc_driver_{dialect}"
    if sources.is_installed(module):
        yield str(import_module(module)._driver_path())
    yield None


def read_rows(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a small statement."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


@contextmanager
def translate_errors(about: str = "a table") -> Iterator[None]:
    """Turn the drivers' errors into refusals of ours. Their own text may quote a value, so it is dropped."""
    import adbc_driver_manager as manager

    try:
        yield
    except manager.Error as failure:
        raise _translate_error(failure, about) from None
    except pa.ArrowException as failure:
        stopped = "ancel" in str(failure)
        raise (base.refuse_late() if stopped else base.refuse_values(about)) from None


def _translate_error(failure: Any, about: str) -> DeniableError:
    from adbc_driver_manager import AdbcStatusCode as Code

    code, state = failure.status_code, failure.sqlstate or ""
    if code in (Code.CANCELLED, Code.TIMEOUT) or state == "57014":
        return base.refuse_late()
    if code in (Code.UNAUTHENTICATED, Code.UNAUTHORIZED) or state == "42501":
        return DataError(f"the role may not read {about}", remedy="Grant it the right to read the table")
    if code is Code.NOT_FOUND:
        return DataError(f"{about} is not there, or this role may not see it", remedy="Correct the source")
    if code in (Code.INVALID_ARGUMENT, Code.NOT_IMPLEMENTED):
        return InternalError("SQL of our own making was not accepted by the place")
    if code in (Code.INVALID_DATA, Code.INTEGRITY):
        return base.refuse_values(about)
    return StorageError("the connection to the place was lost", remedy="Look at the server's log, and ask again")


def find_columns(connection: Any, located: Located) -> pa.Schema:
    """The columns of a table, as the driver tells of them."""
    with translate_errors(located.title), connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {located.relation} WHERE 1 = 0")
        return cursor.fetch_arrow_table().schema


def inspect_table(connection: Any, located: Located, schema: TableSchema | None) -> tuple[View, Mapping[str, str]]:
    """How a table is shown; declared columns must be there, and some may hold values that do not fit."""
    found = find_columns(connection, located)
    whole = {column.name for column in schema.columns if column.type is ColumnType.INTEGER} if schema else set()
    kinds = [name_kind(field.type) for field in found]
    kinds = ["exact" if k == "number" and f.name in whole else k for f, k in zip(found, kinds, strict=True)]
    columns = [(name, f"c{i}", READ[kind]) for i, (name, kind) in enumerate(zip(found.names, kinds, strict=True))]
    shown = remote.show_declared(columns, schema, located.title, CONVERSIONS)
    dialect = DIALECTS[located.dialect]
    named = [(name, dialect.quote(name), kind) for name, kind in zip(found.names, kinds, strict=True)]
    raw = tuple((dialect.read(kind).format(quoted), RAW_TYPES.get(kind, READ[kind][1])) for _, quoted, kind in named)
    exact = {name: quoted for name, quoted, kind in named if kind == "exact"}
    number = dialect.read("number")
    misfits = {name: f"{number} IS NOT NULL AND {EXACT} IS NULL".format(quoted) for name, quoted in exact.items()}
    if misfits:
        with translate_errors(located.title):
            remote.refuse_misfits(
                misfits, read_rows(connection, remote.count_misfits(misfits, located.relation))[0], located.title
            )
    return View(located, raw, shown.fields, shown.expressions, found), shown.doubtful


def read_raw(view: View) -> str:
    """The statement that reads a table's own columns, under names that every dialect takes."""
    mark = DIALECTS[view.located.dialect].quote
    columns = ", ".join(f"{read} AS {mark(f'c{place}')}" for place, (read, _) in enumerate(view.raw))
    return f"SELECT {columns or '1 AS c'} FROM {view.located.relation}"


@contextmanager
def fetch_table(source: str, schema: TableSchema | None) -> Iterator[pa.RecordBatchReader]:
    """The rows of a table as they are read there; the embedded engine reads them as the policy declares them."""
    sources.require_driver("adbc_driver_manager")
    located, most = locate_table(source), remote.count_rows_out(schema)
    connection = connect(located.dialect, located.profile)
    try:
        view, _ = inspect_table(connection, located, schema)
        wanted = pa.schema([
            (f.name, find_arrow_type(f) if name_computed(f) == kind else ARROW[kind])
            for f, (_, kind) in zip(view.fields, view.raw, strict=True)
        ])  # fmt: skip
        with translate_errors(located.title), connection.cursor() as cursor:
            cursor.execute(read_raw(view))
            ready = Ready("", tuple(wanted.names), tuple(kind for _, kind in view.raw), (), "")
            batches = _fetch_batches(cursor.fetch_record_batch(), ready, wanted, most, located)
            yield pa.RecordBatchReader.from_batches(wanted, batches)
    finally:
        connection.close()


def _fetch_batches(
    reader: Any, ready: Ready, wanted: pa.Schema, most: int, located: Located
) -> Iterator[pa.RecordBatch]:
    count = 0
    for batch in reader:
        count += batch.num_rows
        if count > most:
            raise remote.refuse_rows_out(located.title, most)
        yield from remote.settle_rows(pa.Table.from_batches([batch]), ready).cast(wanted).to_batches()


def list_numbers(rows: pa.Table) -> list[tuple[int | None, ...]]:
    """Rows of whole numbers, in an order of their own."""
    found = [tuple(None if value is None else int(value) for value in row.values()) for row in rows.to_pylist()]
    return sorted(found, key=repr)


PROBED = pa.table(
    {
        "u": pa.array([1, 1, 1, 2, 2, 3, None, 4], pa.int64()),
        "k": ["a", "A", "b", "a", None, "\u00e4", "a", "O'\\_%"],
        "v": pa.array([5, -7, 400, None, 100, 0, 1, 9223372036854775807], pa.int64()),
        "x": pa.array([0.5, -0.5, 2.5, None, 0.49999999999999994, 1e300, -1.5, 249.75]),
        "d": pa.array([date(2020, 2, 29), date(1883, 2, 28), None, *[date(2024, 12, 31)] * 5]),
        "b": pa.array([True, False, None, True, True, False, False, True]),
    }
)
"""Rows that are written out, on which places differ."""
_BOUNDED = "CASE WHEN {0} IS NOT NULL THEN GREATEST({1}, LEAST({2}, {0})) END"
_ROUNDED = _BOUNDED.format("round(x * CAST(2 AS DOUBLE))", "CAST(-10 AS DOUBLE)", "CAST(500 AS DOUBLE)")
PROBES = (
    "SELECT count(*) AS n, count(v) AS v, count(DISTINCT k) AS k, count(DISTINCT u) AS u FROM probe",
    f"SELECT u, sum({_BOUNDED.format('v', 'CAST(0 AS BIGINT)', 'CAST(100 AS BIGINT)')}) AS s FROM probe GROUP BY u",
    f"SELECT sum(TRY_CAST({_ROUNDED} AS BIGINT)) AS s FROM probe",
    "SELECT sum(v) AS s FROM probe",
    "SELECT sum(CASE WHEN k = 'a' THEN 1 ELSE 0 END) AS a, sum(CASE WHEN k < 'a' THEN 1 ELSE 0 END) AS below,"
    " sum(CASE WHEN k > 'z' THEN 1 ELSE 0 END) AS above, sum(CASE WHEN k IN ('A', 'b') THEN 1 ELSE 0 END) AS m,"
    " sum(CASE WHEN k LIKE 'O%' THEN 1 ELSE 0 END) AS o, sum(CASE WHEN strlen(k) > 1 THEN 1 ELSE 0 END) AS long"
    " FROM probe",
    "SELECT sum(CASE WHEN b THEN 1 WHEN NOT b THEN 10 ELSE 100 END) AS s FROM probe",
    "SELECT sum(CAST(EXTRACT(month FROM d) AS BIGINT)) AS m, sum(date_diff('day', DATE '2020-01-01', d)) AS n"
    " FROM probe",
    "SELECT count(*) AS n FROM (SELECT DISTINCT u, k FROM (SELECT u, k, dense_rank() OVER (PARTITION BY u ORDER BY"
    " hash(k, u, CAST(7 AS UBIGINT)), k) AS g FROM probe) AS r WHERE g <= 2) AS kept",
    "SELECT p.u AS u, count(*) AS n FROM probe AS p LEFT JOIN probe AS q ON p.u = q.u AND p.k = q.k GROUP BY p.u",
)
"""Statements over those rows: what bounding and counting are made of."""
