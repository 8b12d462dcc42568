"""The engine over Spark: how a source names a table, how it is shown, and how statements run there."""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from deniable.engines import base
from deniable.engines.base import (
    POINTED,
    WHOLE,
    Field,
    Listed,
    Parameters,
    Restriction,
    Sampled,
    Source,
    is_in_spark,
    list_numbers,
    pick_spellings,
    read_listed,
)
from deniable.engines.remote import (
    SINGLE,
    STATEMENT_SECONDS,
    ZONED,
    Conversions,
    Frames,
    Reading,
    RemoteEngine,
    Render,
    Statement,
    count_misfits,
    count_rows_out,
    find_arrow_type,
    name_decimal,
    put_in_front,
    refuse_misfits,
    refuse_rows_out,
    show_declared,
)
from deniable.engines.sources import stamp_source
from deniable.engines.spark.session import begin_work, end_work, is_remote, open_session, stop_work, translate_errors
from deniable.errors import DataError
from deniable.policy.schema import ColumnType, TableSchema, normalize_spelling

SCHEME = "spark:"


def quote(name: str) -> str:
    """A name as Spark takes it.

    >>> quote("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class Located:
    """A table of a catalog, a folder of Parquet files, or a view of the session (`held`)."""

    name: str
    held: bool = False

    @property
    def is_folder(self) -> bool:
        """Whether files are read, and not a table of a catalog."""
        return "/" in self.name

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"'{self.name}'"

    @property
    def relation(self) -> str:
        """What stands after FROM."""
        return f"parquet.{quote(self.name)}" if self.is_folder else ".".join(map(quote, self.name.split(".")))


_TABLE = re.compile(r"[^\s.`/]+(\.[^\s.`/]+){0,3}")


def locate_table(source: str, root: Path | None = None) -> Located:
    """What a source names.

    >>> locate_table("spark:care.visits").relation, locate_table("spark:/data/visits").relation
    ('`care`.`visits`', 'parquet.`/data/visits`')
    """
    name = source.removeprefix(SCHEME)
    if "/" in name:
        scheme = re.match(r"[a-z0-9+.-]+://", name)
        return Located(name if scheme or root is None else str((root / name).resolve()))
    if not _TABLE.fullmatch(name):
        raise DataError(
            "a source in Spark names no single table",
            expected="spark:catalog.schema.table, or spark:/folder of Parquet files",
            remedy="Correct the source in the policy",
        )
    return Located(name)


@dataclass(frozen=True, slots=True)
class View:
    """A table of Spark as it is shown: the columns of the policy, and the rows that may be seen."""

    located: Located
    fields: tuple[Field, ...]
    expressions: tuple[str, ...]
    restrictions: tuple[Restriction, ...] = ()
    columns: Any = None
    """The columns of a folder as Spark names them, so that no statement looks for them in the files anew."""

    @property
    def place(self) -> str:
        """All tables of Spark are in one place."""
        return "spark"


_WHOLE, _DOUBLE = (ColumnType.INTEGER, "BIGINT", "{0}::BIGINT"), (ColumnType.DECIMAL, "DOUBLE")
_NUMBER = "`if`(NOT isnan({0}::DOUBLE), {0}::DOUBLE, NULL)"
_DAY = "`if`({0} BETWEEN DATE'0001-01-01' AND DATE'9999-12-31', {0}, NULL)"
_LAST = "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"
_TIME = f"`if`({{0}}::TIMESTAMP_NTZ BETWEEN TIMESTAMP_NTZ'0001-01-01 00:00:00' AND {_LAST}, {{0}}::TIMESTAMP_NTZ, NULL)"
READ: dict[str, Reading] = {
    "tinyint": _WHOLE,
    "smallint": _WHOLE,
    "int": _WHOLE,
    "bigint": _WHOLE,
    "float": (ColumnType.DECIMAL, SINGLE, _NUMBER),
    "double": (*_DOUBLE, _NUMBER),
    "decimal": (*_DOUBLE, "{0}::DOUBLE"),
    "boolean": (ColumnType.BOOLEAN, "BOOLEAN", "{0}"),
    "date": (ColumnType.DATE, "DATE", _DAY),
    "timestamp": (ColumnType.DATETIME, ZONED, _TIME),
    "timestamp_ntz": (ColumnType.DATETIME, "TIMESTAMP", _TIME),
}
"""What each of Spark's types is shown as: the policy's type, DuckDB's word, and the expression that reads it."""
TEXT = (ColumnType.TEXT, "VARCHAR", "{0}::STRING")
KINDS = {word: kind for kind, word, _ in READ.values()}
CONVERSIONS = Conversions(
    "{0}::STRING",
    {
        (ColumnType.INTEGER, ColumnType.DECIMAL): "{0}::DOUBLE",
        (ColumnType.DECIMAL, ColumnType.INTEGER): (
            "`if`({0} = rint({0}) AND {0} >= -9223372036854775808BD AND {0} < 9223372036854775808BD, {0}::BIGINT, NULL)"
        ),
        (ColumnType.DATE, ColumnType.DATETIME): "{0}::TIMESTAMP_NTZ",
        (ColumnType.DATETIME, ColumnType.DATE): "{0}::DATE",
    },
)


class SparkEngine(RemoteEngine[View]):
    """Tables of Spark, and an embedded engine for everything else. `render` writes our SQL in Spark's language."""

    dialect: ClassVar[str] = "spark"

    def __init__(self, *, render: Render, root: str | Path = ".", session: Any = None, **limits: Any) -> None:
        super().__init__(render=render, root=root, **limits)
        self._root = Path(root)
        self._session = session if session is not None else open_session()
        self._running: dict[str, int] = {}

    @staticmethod
    def is_there(source: Source) -> bool:
        """Whether a source is a table of Spark."""
        return is_in_spark(source)

    def _inspect(self, source: str, schema: TableSchema | None) -> View:
        return inspect_table(self._session, locate_table(source, self._root), schema)

    def _reach_there(self, view: View) -> None:
        """Refuse a folder without a column that it had when it was attached: it would be read as nulls."""
        if view.columns is not None:
            now = {each.name: each.dataType for each in read_columns(self._session, view.located).fields}
            if any(now.get(each.name) != each.dataType for each in view.columns.fields):
                raise DataError(
                    f"{view.located.title} has other columns than when it was opened",
                    remedy="Start anew, or put the columns back",
                )

    def _list_settings(self) -> tuple[Any, ...]:
        return ()

    def _run_there(
        self, statement: Statement, parameters: Parameters | None, frames: Frames, seconds: float | None
    ) -> pa.Table:
        with self._statement(statement, parameters, frames, seconds) as found:
            return collect_rows(found, statement)

    def _stream_there(
        self, statement: Statement, batch_rows: int, parameters: Parameters | None
    ) -> Iterator[pa.RecordBatch]:
        with self._statement(statement, parameters, {}, None) as found:
            table = collect_rows(found, statement)
        batches = table.to_batches(max_chunksize=batch_rows)
        yield from batches or [pa.RecordBatch.from_pylist([], schema=table.schema)]

    @contextmanager
    def _statement(
        self, statement: Statement, parameters: Parameters | None, frames: Frames, seconds: float | None
    ) -> Iterator[Any]:
        """What a statement gives, computed when it is read, with a time limit."""
        tag, views = f"deniable-{secrets.token_hex(8)}", dict[str, str]()
        timer = threading.Timer(STATEMENT_SECONDS if seconds is None else seconds, self._stop, ([tag],))
        timer.daemon = True
        with self._lock:
            self._running[tag] = threading.get_ident()
        try:
            with translate_errors():
                begin_work(self._session, tag)
                timer.start()
                views = self._show_frames(statement, frames) | self._show_folders(statement, frames)
                yield self._session.sql(self._complete(statement, frames, views), args=_name_parameters(parameters))
            if tag not in self._running:
                raise base.refuse_late()
        finally:
            timer.cancel()
            with self._lock:
                self._running.pop(tag, None)
            with contextlib.suppress(Exception):  # a session that was lost has no views any more
                end_work(self._session, tag)
                for view in views.values():
                    self._session.catalog.dropTempView(view)

    def _show_frames(self, statement: Statement, frames: Frames) -> dict[str, str]:
        views: dict[str, str] = {}
        for name in statement.tables:
            if name in frames:
                views[name] = f"deniable_{secrets.token_hex(8)}"
                self._session.createDataFrame(frames[name]).createOrReplaceTempView(views[name])
        return views

    def _show_folders(self, statement: Statement, frames: Frames) -> dict[str, str]:
        """The files that are in each folder now, read as it was when it was attached: no job looks into them first."""
        views: dict[str, str] = {}
        for name in statement.tables:
            view = self._views.get(name)
            if name not in frames and view is not None and view.columns is not None:
                views[name] = f"deniable_{secrets.token_hex(8)}"
                files = self._session.read.schema(view.columns).parquet(view.located.name)
                files.createOrReplaceTempView(views[name])
        return views

    def _complete(self, statement: Statement, frames: Frames, views: Mapping[str, str]) -> str:
        """The statement with its sources in front; frames and folders are shown by views of the session."""
        shown = []
        for name in statement.tables:
            if name in frames:
                columns = [f"{_restore(field)} AS {quote(field.name)}" for field in frames[name].schema]
                shown.append(f"{quote(name)} AS (SELECT {', '.join(columns)} FROM {quote(views[name])})")
            elif name in self._views and not self._views[name].located.held:
                view = self._views[name]
                located = Located(views[name], held=True) if name in views else view.located
                shown.append(f"{quote(name)} AS ({self._show_view(replace(view, located=located))})")
        return put_in_front(shown, statement.sql) if shown else statement.sql

    def _show_view(self, view: View) -> str:
        rows = show_columns(view)
        columns = ", ".join(quote(field.name) for field in view.fields) or "1"
        for restriction in view.restrictions:
            if isinstance(restriction, Sampled) and restriction.column is None:
                rows = _number_rows(rows, columns)
            rows = f"SELECT {columns} FROM ({rows}) WHERE {self._restrict(view, restriction)}"
        return rows

    def _restrict(self, view: View, restriction: Restriction) -> str:
        if not isinstance(restriction, Listed):
            # One in a million is fine enough for a share; the salted hash spreads units evenly.
            key = "`#row`" if restriction.column is None else f"CAST({quote(restriction.column)} AS STRING)"
            share = int(restriction.share * 1_000_000)
            return f"pmod(xxhash64({_write_text(str(restriction.salt))}, {key}), 1000000) < {share}"
        field = next(each for each in view.fields if each.name == restriction.column)
        if field.type is not ColumnType.TEXT:
            found = _find_in(quote(field.name), field.type, read_listed(field.type, restriction.values))
        elif not restriction.loose:
            found = _find_in(quote(field.name), field.type, restriction.values)
        else:
            found = self._find_spellings(view, field, restriction)
        return found if restriction.keep else f"NOT {found}"

    def _find_spellings(self, view: View, field: Field, restriction: Listed) -> str:
        """Whether a text is a listed value in some spelling: those that are not plain, and numbers, are looked up."""
        wanted = {normalize_spelling(value) for value in restriction.values}
        read = dict(zip([f.name for f in view.fields], view.expressions, strict=True))[field.name]
        number = f"CASE WHEN {read} RLIKE '^({WHOLE}|{POINTED})$' THEN CAST(trim({read}) AS DOUBLE) END"
        numbers = [repr(each) for each in sorted(list_numbers(restriction, field).doubles)]
        alike = f"NOT {read} RLIKE '^[!-~]*$' OR {_find_in(number, ColumnType.DECIMAL, numbers)}"
        with translate_errors(view.located.title):
            odd = self._session.sql(f"SELECT DISTINCT {read} AS v FROM {view.located.relation} WHERE {alike}").toArrow()
        meant = pick_spellings(odd["v"].to_pylist(), restriction, field)
        name = quote(field.name)
        found = [_find_in(name, field.type, meant), _find_in(f"lower({name})", field.type, sorted(wanted))]
        return f"({' OR '.join(found)})"

    def _find_version(self, view: View) -> str:
        return find_version(self._session, view.located)

    @contextmanager
    def hold(self, name: str, write: Callable[[str], str]) -> Iterator[str]:
        """Let Spark keep the rows of a statement about a source while others read them.

        Not at a Connect server, which would keep them after a client that is lost. The source is read as a view of the
        session: Spark does not find kept rows again where a common table expression is inside them.
        """
        if is_remote(self._session):
            yield write(name)
            return
        source, held = (f"deniable_{secrets.token_hex(8)}" for _ in range(2))
        kept: Any = None
        try:
            with translate_errors(self._views[name].located.title):
                self._session.sql(self._show_view(self._views[name])).createOrReplaceTempView(source)
                self._show_held(source, self._views[name].fields)
                statement = self._prepare(write(source), None, {})
                assert statement is not None
                kept = self._session.sql(statement.sql).persist()
                kept.createOrReplaceTempView(held)
            words = zip(statement.names, statement.types, strict=True)
            self._show_held(held, tuple(Field(each, KINDS.get(word, ColumnType.TEXT), word) for each, word in words))
            yield f"SELECT {', '.join(map(base.quote, statement.names))} FROM {held}"
        finally:
            with self._lock:
                self._views = {each: view for each, view in self._views.items() if each not in (source, held)}
            with contextlib.suppress(Exception):  # a session that was lost keeps nothing any more
                for view in (source, held):
                    self._session.catalog.dropTempView(view)
                if kept is not None:
                    kept.unpersist()

    def _show_held(self, name: str, fields: tuple[Field, ...]) -> None:
        """Let statements read a view of the session."""
        with self._lock:
            self._views = {**self._views, name: View(Located(name, held=True), fields, ())}

    def _cancel_there(self, thread: int | None) -> None:
        with self._lock:
            found = [tag for tag, begun_by in self._running.items() if thread is None or thread == begun_by]
        self._stop(found)

    def _stop(self, tags: Iterable[str]) -> None:
        for tag in tags:
            with self._lock:
                self._running.pop(tag, None)
            with contextlib.suppress(Exception):  # what cannot be stopped any more has ended
                stop_work(self._session, tag)

    def _close_there(self) -> None:
        self._session = None


def inspect_table(session: Any, located: Located, schema: TableSchema | None) -> View:
    """How a table or a folder is shown; declared columns must be there and fit."""
    found = read_columns(session, located)
    columns = [(each.name, quote(each.name), _find_reading(each.dataType)) for each in found.fields]
    shown = show_declared(columns, schema, located.title, CONVERSIONS)
    if shown.doubtful:
        with translate_errors(located.title):
            (counts,) = session.sql(count_misfits(shown.doubtful, located.relation)).collect()
        refuse_misfits(shown.doubtful, counts, located.title)
    return View(located, shown.fields, shown.expressions, columns=found if located.is_folder else None)


def read_columns(session: Any, located: Located) -> Any:
    """The columns of a table or a folder; those of a folder are looked for in its files."""
    with translate_errors(located.title):
        return session.sql(f"SELECT * FROM {located.relation} LIMIT 0").schema


def _find_reading(kind: Any) -> Reading:
    word = kind.simpleString().partition("(")[0]
    return name_decimal(READ[word], kind.precision, kind.scale) if word == "decimal" else READ.get(word, TEXT)


def show_columns(view: View) -> str:
    """The statement that shows all rows of a table."""
    shown = ", ".join(f"{e} AS {quote(f.name)}" for e, f in zip(view.expressions, view.fields, strict=True))
    return f"SELECT {shown or '1'} FROM {view.located.relation}"


def find_version(session: Any, located: Located) -> str:
    """What changes when rows do: the names, sizes and times of the files, or else a hash over all rows."""
    with translate_errors(located.title):
        files = sorted(session.sql(f"SELECT * FROM {located.relation}").inputFiles())
        if files:
            listed = session.read.format("binaryFile").load(files).select("path", "modificationTime", "length")
            found: list[tuple[Any, ...]] = sorted(
                (r["path"], str(r["modificationTime"]), r["length"]) for r in listed.toArrow().to_pylist()
            )
        else:
            rows = session.sql(f"SELECT count(*) AS n, bit_xor(h) AS x, sum(CAST(h AS DECIMAL(38, 0))) AS s"
                               f" FROM (SELECT xxhash64(*) AS h FROM {located.relation})")  # fmt: skip
            found = [tuple(str(each) for each in row.values()) for row in rows.toArrow().to_pylist()]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


@contextmanager
def fetch_table(source: str, schema: TableSchema | None) -> Iterator[pa.RecordBatchReader]:
    """The rows of a table of Spark."""
    most = count_rows_out(schema)
    session = open_session()
    view = inspect_table(session, locate_table(source, Path.cwd()), schema)
    with translate_errors(view.located.title):
        rows = session.sql(f"{show_columns(view)} LIMIT {most + 1}").toArrow()
    if rows.num_rows > most:
        raise refuse_rows_out(view.located.title, most)
    yield rows.cast(pa.schema([(f.name, find_arrow_type(f)) for f in view.fields])).to_reader()


def version_source(source: str, folder: Path) -> str:
    """The fingerprint of a table of Spark, by a session of its own."""
    return find_version(open_session(), locate_table(source, folder))


def find_place(source: str, folder: Path) -> str:
    """Where a table is, by one name."""
    return f"{SCHEME}{locate_table(source, folder).name}"


def stamp_table(source: str, folder: Path) -> tuple[str, str]:
    """Where a table is, by one name, and what changes when its rows do; a folder here is known as the folder it is."""
    located = locate_table(source, folder)
    if located.is_folder and Path(located.name).exists():
        return stamp_source(located.name, folder)
    return find_place(source, folder), find_version(open_session(), located)


def _name_parameters(parameters: Parameters | None) -> dict[str, Any]:
    """The values of parameters by the names that the statement gives them."""
    if parameters is None:
        return {}
    named = parameters.items() if isinstance(parameters, Mapping) else enumerate(parameters, start=1)
    return {f"p{name}": value for name, value in named}


SPARK_NAMES = {
    ColumnType.INTEGER: "BIGINT",
    ColumnType.DECIMAL: "DOUBLE",
    ColumnType.BOOLEAN: "BOOLEAN",
    ColumnType.DATE: "DATE",
    ColumnType.DATETIME: "TIMESTAMP_NTZ",
}


def _find_in(column: str, kind: ColumnType, values: Iterable[str]) -> str:
    """Whether a value is among those listed; a missing value is not. A text that is none of the type is nothing."""
    name = SPARK_NAMES.get(kind, "STRING")
    listed = ", ".join(f"CAST({_write_text(value)} AS {name})" for value in values)
    return f"coalesce(array_contains(array({listed}), {column}), false)" if listed else "false"


def _number_rows(rows: str, columns: str) -> str:
    """Each row with a text of its own: what it holds, and its number among those that hold the same."""
    held = f"SELECT *, to_json(struct({columns})) AS `#held` FROM ({rows})"
    numbered = "concat_ws('#', `#held`, row_number() OVER (PARTITION BY `#held` ORDER BY `#held`)) AS `#row`"
    return f"SELECT {columns}, {numbered} FROM ({held})"


def _write_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _restore(field: pa.Field) -> str:
    """A column of rows in memory, in the type that statements know it by."""
    if pa.types.is_timestamp(field.type):
        return f"CAST({quote(field.name)} AS TIMESTAMP_NTZ)"
    if pa.types.is_integer(field.type):
        return f"CAST({quote(field.name)} AS BIGINT)"
    return quote(field.name)


COLLECTED = {
    "bigint": pa.int64(),
    "int": pa.int64(),
    "smallint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
"""Spark's types as the other engines give them."""


def collect_rows(found: Any, statement: Statement) -> pa.Table:
    """The rows of a result, collected in a way that can be stopped: Arrow's own way runs where no tag reaches it."""
    types = [COLLECTED.get(each.dataType.simpleString(), pa.decimal128(38, 0)) for each in found.schema.fields]
    rows = found.collect()
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in types]
    arrays = [pa.array(each, kind) for each, kind in zip(columns, types, strict=True)]
    table = pa.table(arrays, names=list(statement.names))
    return table.sort_by([(name, "ascending") for name in statement.order]) if statement.order else table
