"""DuckDBEngine: files and frames in, Arrow out, on one machine and within a memory limit.

Each thread has its own cursor on one sealed connection. Attaching a source opens a fresh sealed connection that knows
the new path as well, so that at no time a connection exists that runs statements and could open an undeclared file.
"""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted paths; no user text)

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import pyarrow as pa

from deniable.engines import base, sources
from deniable.engines.base import (
    BATCH_ROWS,
    SPELLING,
    Field,
    Found,
    Parameters,
    Restriction,
    Source,
    normalize_names,
    quote,
)
from deniable.engines.duckdb.connection import (
    Limits,
    StatementCache,
    interrupt_after,
    make_scratch,
    open_sealed,
    read_batches,
    read_relation,
    read_row,
    read_within,
    refuse_beyond,
    refuse_rounded,
    remove_scratch,
    render_beyond,
    teach_spelling,
    translate_errors,
)
from deniable.engines.duckdb.csv import scan_csv
from deniable.engines.duckdb.scan import (
    Scan,
    Stamps,
    scan_arrow_files,
    scan_database,
    scan_parquet,
    scan_rows,
    slots,
    spool,
    stamp_paths,
    take_copies,
)
from deniable.engines.sources import (
    Files,
    Format,
    Stamp,
    as_arrow,
    is_frame,
    resolve_source,
    stamp_file,
    write_rows,
)
from deniable.errors import DataError, InternalError, ParameterError, nearest
from deniable.policy.schema import CsvDialect, TableSchema


@dataclass(frozen=True, slots=True, eq=False)
class Attached:
    """A source as it was declared, and what its files were when they were last looked into."""

    source: Source = field(repr=False)
    schema: TableSchema | None
    csv: CsvDialect
    held: Files | pa.Table = field(repr=False)
    stamps: Stamps = ()

    @property
    def changed(self) -> bool:
        """Whether a file was written to, replaced or removed since, or links lead to another file."""
        return isinstance(self.held, Files) and (stamp_files(self.held) != self.stamps or self.held.has_moved)


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """What statements read: sources as they were looked into, each as it is or its copy, by one connection."""

    connection: Any
    sources: Mapping[str, Attached]
    scans: Mapping[str, Scan]
    copies: Mapping[str, Scan]
    read: tuple[tuple[str, Scan], ...]


class Changed(DataError):
    """A file was changed while it was read: nothing of what was read is used, and it may be read again."""


AGAIN = 2
"""How often more is read again whose files are changed while it is read, before that is refused."""
OPEN: weakref.WeakSet[DuckDBEngine] = weakref.WeakSet()
"""The engines of this process."""


class DuckDBEngine:
    """The embedded engine.

    `memory` limits what DuckDB holds ('512MB', '2GB'; beyond it, it spills to a private folder), `threads` its cores,
    `root` is where relative paths start (the folder of the policy).

    >>> with DuckDBEngine() as engine:
    ...     engine.attach("towns", pa.table({"zip": ["02138", "02139"]}))
    ...     engine.run("SELECT count(*) AS n FROM towns").to_pylist()
    [{'n': 2}]
    """

    dialect: ClassVar[str] = "duckdb"
    reads_once: ClassVar[bool] = False
    """Whether all that is ever read of a file is of one version: a changed one is refused, and not looked into."""

    def __init__(
        self,
        *,
        memory: str | None = None,
        threads: int | None = None,
        root: str | Path = ".",
        scratch: str | None = None,
    ) -> None:
        folder = make_scratch(scratch)
        self._finalizer = weakref.finalize(self, remove_scratch, folder)
        self._limits = Limits(memory, threads, folder)
        self._root = Path(root)
        self._scans: dict[str, Scan] = {}
        self._copies: dict[str, Scan] | None = None
        self._sources: dict[str, Attached] = {}
        self._hashes: dict[Stamp, str] = {}
        self._lock = threading.RLock()
        self._local = threading.local()
        self._running: dict[Any, int] = {}
        OPEN.add(self)
        self._connection: Any = None  # opened when a statement runs after a source was attached

    def attach(
        self, name: str, source: Source, schema: TableSchema | None = None, *, csv: CsvDialect | None = None
    ) -> None:
        """Declare a source under a name; a name that was used before now means the new source."""
        if not name or name.startswith(("rows of ", "values ", "copy of ")):
            raise ParameterError(f"'{name}' cannot be the name of a source")
        with self._lock:
            self._require_open()
            dialect = csv or (schema.csv if schema is not None else CsvDialect())
            attached, scan = self._inspect(name, source, schema, dialect)
            scans = {key: value for key, value in self._scans.items() if key.casefold() != name.casefold()}
            self._show(scans | {name: scan})
            self._sources[name] = attached

    def reach(self, *names: str) -> None:
        """Refuse sources whose files are gone, or were changed and no longer are as declared."""
        for name in names:
            known = self._sources.get(name)
            held = None if known is None else known.held
            if isinstance(held, Files) and not all(path.exists() for path in held.paths):
                raise DataError(f"a file of {held.title} is gone", remedy="Put it back, or correct the source")
            self._look_again(name)

    def _look_again(self, name: str) -> None:
        """Look into files that were changed since, as when they were attached: columns may stand elsewhere now."""
        with self._lock:
            known = self._sources.get(name)
            if known is not None and self._find_pinned() is None and known.changed:
                if self.reads_once:
                    raise refuse_changed()
                attached, scan = self._inspect(name, known.source, known.schema, known.csv)
                self._show(self._scans | {name: replace(scan, restrictions=self._scans[name].restrictions)})
                self._sources[name] = attached

    @contextmanager
    def _read_steadily(self, sql: str, *, alone: bool = False, direct: bool = False) -> Iterator[Any]:
        """Around a statement: a cursor on which what it reads is as it was looked into, from its begin to its end.

        It is this thread's, or one of its own. The statement is searched for the names of sources. Where one that does
        not fit any more is only named, as a column may be, nothing is refused. `direct` reads no copies.
        """
        with self._lock:
            self._require_open()
            pinned = self._find_pinned()
            named = self._find_named(sql, self._scans if pinned is None else pinned.scans)
            tried = {name: self._try_again(name) for name in named} if pinned is None else {}
            refusals = {name: refusal for name, refusal in tried.items() if refusal is not None}
            cursor = self._new_cursor() if alone else self._cursor()
            sources, copies = (self._sources, self._copies) if pinned is None else (pinned.sources, pinned.copies)
            known = refusals if direct else {**refusals, **(copies or {})}
            read = [sources[name] for name in named if name not in known]
        try:
            yield cursor
        except InternalError:
            if refusals:
                raise next(iter(refusals.values())) from None
            if not any(each.changed for each in read):
                raise
        if any(each.changed for each in read):  # what was read may be of both
            raise refuse_changed()

    def read_whole(self, names: Collection[str], read: Callable[[], Found]) -> Found:
        """What several statements of this thread read, of these sources as they are at one time.

        A small file is read from the copy that was taken then. Where another is changed meanwhile, nothing of what was
        read is used, and all of it is read again.
        """
        if self._find_pinned() is not None:
            return read()

        def read_pinned() -> Found:
            with self._lock:
                for name in names:
                    self._look_again(name)
                self._cursor()
                self._local.pinned = self._show_now()
            try:
                return read()
            finally:
                self._local.pinned = None

        return self._read_again(read_pinned)

    def _read_again(self, read: Callable[[], Found]) -> Found:
        """What is read; again where a file was changed meanwhile, unless it is a part of what is read as a whole."""
        for _ in range(AGAIN if self._find_pinned() is None else 0):
            with suppress(Changed):
                return read()
        return read()

    def _find_pinned(self) -> Shown | None:
        pinned: Shown | None = getattr(self._local, "pinned", None)
        return pinned

    @staticmethod
    def _find_named(sql: str, known: Iterable[str]) -> list[str]:
        folded = sql.casefold()
        return [each for each in known if any(f.casefold() in folded for f in (quote(each), f"FROM {each}"))]

    def _try_again(self, name: str) -> DataError | None:
        """Why a source that was changed does not fit any more; nobody reads it as it was."""
        try:
            self._look_again(name)
        except DataError as refusal:
            self._show(self._scans)
            return refusal
        return None

    def refuse_inexact(self, name: str, columns: Collection[str]) -> None:
        """Refuse a source with values in these columns that no row could be released with as they are."""
        self._read_again(lambda: self._refuse_inexact(name, columns))

    def _refuse_inexact(self, name: str, columns: Collection[str]) -> None:
        with self._read_steadily(quote(name), direct=True) as cursor, self._track_statement(cursor, None):
            self._look_again(name)
            scan = self._find_scan(name)
            rounded = {name: condition for name, condition in scan.rounded.items() if name in columns}
            inexact = _find_any(cursor, rounded, f"{scan.relation} AS source({slots(len(scan.fields))})")
            beyond = _find_any(cursor, render_beyond(scan.fields, columns), quote(name))
        refuse_rounded(inexact, scan.wide)
        refuse_beyond(beyond)

    def restrict(self, name: str, *restrictions: Restriction) -> None:
        """Show only some rows of a source from now on, instead of whatever restricted it before."""
        with self._lock:
            scan = self._find_scan(name)
            known = [shown.name for shown in scan.fields]
            for column in (each.column for each in restrictions if each.column is not None):
                if column not in known:
                    raise DataError(f"source '{name}' has no column '{column}'", remedy=nearest(column, known))
            self._show(self._scans | {name: replace(scan, restrictions=restrictions)})

    def describe(self, name: str) -> tuple[Field, ...]:
        """The columns of a source, in its order."""
        return self._find_scan(name).fields

    def notes(self, name: str) -> tuple[str, ...]:
        """What was left out or read as null when the source was attached with bad rows: skip."""
        return self._find_scan(name).notes

    def count(self, name: str) -> int:
        """How many rows a source has."""
        self._find_scan(name)
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
        """Run one reading statement of our own making, on this thread's cursor; frames are seen by it alone."""

        def read() -> pa.Table:
            with self._read_steadily(sql) as cursor:
                self._teach_spelling(sql)
                with self._track_statement(cursor, seconds), translate_errors(), _register_frames(cursor, frames or {}):
                    if one_row and parameters is None:
                        return read_row(cursor, self._local.statements, sql)
                    return read_relation(cursor, sql, parameters).to_arrow_table()

        return self._read_again(read)

    def run_within(self, sql: str, most: int, *, seconds: float, frames: Mapping[str, pa.Table]) -> pa.Table:
        """The same for a statement whose rows may have no more bytes than that."""
        with (
            self._read_steadily(sql) as cursor,
            self._track_statement(cursor, seconds),
            translate_errors(),
            _register_frames(cursor, frames),
        ):
            return read_within(read_relation(cursor, sql), most)

    def stream(
        self, sql_or_table: str, batch_rows: int = BATCH_ROWS, parameters: Parameters | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of a statement or of a source; at least one batch, so that the columns are always known.

        The stream has a cursor of its own: other statements may run while it is being read.
        """
        if batch_rows < 1:
            raise ParameterError(f"batch_rows is {batch_rows}", expected="A batch has at least 1 row")
        known = sql_or_table in self._scans
        sql = f"SELECT * FROM {quote(sql_or_table)}" if known else sql_or_table
        steady = ExitStack()
        with steady:
            cursor = steady.enter_context(self._read_steadily(sql, alone=True))
            self._teach_spelling(sql)
            with self._track_statement(cursor, None), translate_errors():
                reader = read_batches(read_relation(cursor, sql, parameters), batch_rows)
            return self._batches(cursor, reader, batch_rows, steady.pop_all())

    def write(
        self,
        batches: Iterable[pa.RecordBatch] | pa.Table,
        path: str | Path,
        format: str | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Write rows under a name, whole or not at all, and say how many."""
        return write_rows(batches, Path(path), format, progress)

    def data_version(self, name: str) -> str:
        """A fingerprint of the content of a source and of how it is read."""
        self._look_again(name)
        scan, held = self._find_scan(name), self._sources[name].held
        content = [self._hash(path) for path in held.paths] if isinstance(held, Files) else [sources.hash_table(held)]
        columns = [f"{f.name}:{f.native}:{e}" for f, e in zip(scan.fields, scan.expressions, strict=True)]
        return sources.combine_hashes([*content, *columns, *base.hash_restrictions(scan.restrictions)])

    def cancel(self, thread: int | None = None) -> None:
        """Interrupt whatever runs, in every thread or in the one of that identity."""
        with self._lock:
            for cursor, begun_by in self._running.items():
                if thread is None or thread == begun_by:
                    cursor.interrupt()

    def close(self) -> None:
        """Let go of all sources and remove all temporary files; closing twice is fine."""
        self.cancel()
        self._scans, self._copies, self._sources, self._local = {}, None, {}, threading.local()
        for connection in (self._connection, self._limits.probes.pop(os.getpid(), None)):
            if connection is not None:
                connection.close()
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _inspect(
        self, name: str, source: Source, schema: TableSchema | None, dialect: CsvDialect
    ) -> tuple[Attached, Scan]:
        registered = f"rows of {name}"
        if is_frame(source):
            rows = as_arrow(source)
            if isinstance(rows, pa.Table):
                rows = rows.rename_columns(list(normalize_names(rows.schema.names)))
                return Attached(rows, schema, dialect, rows), scan_rows(rows, schema, self._limits, registered)
            source = spool(rows.schema, iter(rows), self._limits.scratch)
        if not isinstance(source, str | Path):
            raise DataError(
                f"a value of type {type(source).__name__} is not a source",
                expected="A path or a frame",
            )
        files = resolve_source(source, self._root)
        # Stamps come first: what is changed while it is looked into is looked into again.
        attached = Attached(source, schema, dialect, files, stamp_files(files))
        match files.format:
            case Format.CSV:
                return attached, scan_csv(files, schema, dialect, self._limits)
            case Format.PARQUET:
                return attached, scan_parquet(files, schema, self._limits)
            case Format.ARROW:
                return attached, scan_arrow_files(files, schema, self._limits, registered)
            case Format.DUCKDB:
                return attached, scan_database(files, schema, self._limits, registered)

    def _show(self, scans: dict[str, Scan]) -> None:
        """Let every thread's next cursor know these sources, and no others."""
        self._connection, self._scans, self._copies = None, scans, None

    def _reseal(self) -> None:
        """Open a connection that knows the sources of now; every thread's next cursor is on it."""
        scans = self._scans
        paths = [path for each in scans.values() for path in each.paths]
        databases = dict(each.database for each in scans.values() if each.database)
        connection = open_sealed(self._limits, paths, databases)
        if any(listed.loose for scan in scans.values() for _, listed in scan.find_value_lists()):
            teach_spelling(connection)
        self._connection, self._copies = connection, None

    def _teach_spelling(self, sql: str) -> None:
        """Let the connection spell texts where a statement needs it: few do."""
        with self._lock:
            pinned = self._find_pinned()
            connection = self._connection if pinned is None else pinned.connection
            if SPELLING in sql and connection is not None:
                teach_spelling(connection)

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise ParameterError("this engine was closed", remedy="Open another one")

    def _find_scan(self, name: str) -> Scan:
        self._require_open()
        pinned = self._find_pinned()
        scans = self._scans if pinned is None else pinned.scans
        if name not in scans:
            raise DataError(
                f"no source '{name}' is attached",
                expected="Attached are " + (", ".join(f"'{known}'" for known in scans) or "none"),
                remedy=nearest(name, scans),
            )
        return scans[name]

    def _cursor(self) -> Any:
        """This thread's cursor; a new one when sources were attached, or looked into again, since."""
        with self._lock:
            if self._find_pinned() is not None:
                return self._local.cursor
            self._refresh()
            if getattr(self._local, "connection", None) is not self._connection:
                self._local.connection, self._local.cursor = self._connection, self._new_cursor()
                self._local.statements = StatementCache()
            return self._local.cursor

    def _new_cursor(self) -> Any:
        with self._lock, translate_errors():
            shown = self._find_pinned() or self._show_now()
            cursor = shown.connection.cursor()
            for name, scan in shown.read:
                if scan.rows is not None:
                    cursor.register(f"rows of {name}", scan.rows)
                for place, listed in scan.find_value_lists():
                    values = pa.table({"value": pa.array(scan.read_values(listed), pa.string())})
                    cursor.register(f"values {place} of {name}", values)
                cursor.execute(scan.view(name))
            return cursor

    def _show_now(self) -> Shown:
        """What a new cursor reads; small files are copied first. What was changed is read by nobody as it was."""
        self._refresh()
        if self._copies is None:  # of what is as it was looked into, before it is copied and after
            unchanged = {name: scan for name, scan in self._scans.items() if not self._is_changed(name)}
            copies = take_copies(self._connection, unchanged)
            self._copies = {name: scan for name, scan in copies.items() if not self._is_changed(name)}
        copies = self._copies
        shown = [name for name in self._scans if name in copies or not self._is_changed(name)]
        read = tuple((name, copies.get(name, self._scans[name])) for name in shown)
        return Shown(self._connection, dict(self._sources), dict(self._scans), copies, read)

    def _is_changed(self, name: str) -> bool:
        return name in self._sources and self._sources[name].changed

    def _refresh(self) -> None:
        """Let there be a connection that knows the sources of now; statements that run go on with the old one."""
        with self._lock:
            self._require_open()
            if self._connection is None:
                self._reseal()

    def _batches(self, cursor: Any, reader: Any, batch_rows: int, steady: ExitStack) -> Iterator[pa.RecordBatch]:
        empty = True
        with steady, self._track_statement(cursor, None):
            while batch := _read_next(reader):
                empty = False
                for start in range(0, batch.num_rows, batch_rows):
                    yield batch.slice(start, batch_rows)
        if empty:
            yield pa.RecordBatch.from_pylist([], schema=reader.schema)

    @contextmanager
    def _track_statement(self, cursor: Any, seconds: float | None) -> Iterator[None]:
        with self._lock:
            self._running[cursor] = threading.get_ident()
        try:
            with interrupt_after(seconds, cursor.interrupt):
                yield
        finally:
            with self._lock:
                self._running.pop(cursor, None)

    def _hash(self, path: Path) -> str:
        try:
            key = stamp_file(path)
        except FileNotFoundError:
            raise DataError(
                f"'{path.name}' is no longer there", remedy="Put the file back, or correct the source"
            ) from None
        if key not in self._hashes:
            self._hashes[key] = sources.hash_file(path)
        return self._hashes[key]


def stamp_files(files: Files) -> Stamps:
    """What changes when one of these files does; what was last written to a database is in a file beside it."""
    beside = (Path(f"{path}.wal") for path in files.paths if files.format is Format.DUCKDB)
    return stamp_paths((*files.paths, *beside))


def refuse_changed() -> Changed:
    """The refusal of what was read of a file that was changed meanwhile."""
    return Changed(
        "a file was changed while it was read",
        expected="A file that is replaced whole, by a rename",
        remedy="Ask again once it is written",
    )


def _find_any(cursor: Any, conditions: Mapping[str, str], relation: str) -> dict[str, bool | None]:
    """Of conditions by name, which hold for a row."""
    if not conditions:
        return {}
    asked = ", ".join(f"bool_or({each})" for each in conditions.values())
    with translate_errors():
        (row,) = cursor.execute(f"SELECT {asked} FROM {relation}").fetchall()
    return dict(zip(conditions, row, strict=True))


@contextmanager
def _register_frames(cursor: Any, frames: Mapping[str, pa.Table]) -> Iterator[None]:
    for name, rows in frames.items():
        cursor.register(name, rows)
    try:
        yield
    finally:
        for name in frames:
            cursor.unregister(name)


def _read_next(reader: Any) -> pa.RecordBatch | None:
    with translate_errors():
        try:
            return reader.read_next_batch()
        except StopIteration:
            return None
