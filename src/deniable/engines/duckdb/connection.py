"""Connections that are sealed: only declared sources can be read, within limits of memory, threads and time.

Statements of one shape are prepared once for each connection; what runs too long is interrupted. Each engine has a
private folder, which the next start removes if its process was killed."""

from __future__ import annotations

import heapq
import itertools
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from deniable.engines.base import (
    FIRST_DAY,
    HELD_DATES,
    LAST_DAY,
    LAST_MOMENT,
    POINTED,
    SPELLING,
    WHOLE,
    Field,
    Numbers,
    quote,
    refuse_late,
    spell_plainly,
    spell_texts,
)
from deniable.errors import DataError, InternalError, ParameterError, StorageError
from deniable.policy.schema import ColumnType
from deniable.storage import is_own, lock_descriptor

_SIZE = re.compile(r"^[1-9][0-9]*(\.[0-9]+)? ?[KMGT]i?B$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine may use: memory as DuckDB writes it ('2GB'), threads, and its private folder for spilling."""

    memory: str | None
    threads: int | None
    scratch: Path
    probes: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The connection by which each process looks into files until it is sealed; a fork cannot use its parent's."""

    def __post_init__(self) -> None:
        sized = self.memory is None or _SIZE.match(self.memory)
        if not sized:
            raise ParameterError("memory is not an amount of memory", expected="Such as '512MB' or '2GB'")
        if self.threads is not None and self.threads < 1:
            raise ParameterError("threads is less than 1", expected="A whole number from 1 up")

    def config(self) -> dict[str, str]:
        """The settings with which every connection of this engine is opened."""
        chosen = {"memory_limit": self.memory, "threads": self.threads}
        return {name: str(value) for name, value in chosen.items() if value is not None} | {
            "temp_directory": str(self.scratch / "spill"),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_persistent_secrets": "false",
            "python_enable_replacements": "false",
        }


def connect(limits: Limits) -> Any:
    """A connection of its own."""
    with translate_errors():
        connection = duckdb.connect(":memory:", config=limits.config())
        connection.execute("SET enable_progress_bar = false")  # interactive Python would print it among results
        return connection


@contextmanager
def open_probe(limits: Limits) -> Iterator[Any]:
    """A cursor for finding out what declared files hold; to open and to close a connection costs more than to look."""
    process = os.getpid()
    if process not in limits.probes:
        connection = connect(limits)
        connection.execute("SET enable_external_file_cache = false")  # a file may change and keep its times
        limits.probes[process] = connection
    with limits.probes[process].cursor() as cursor:
        cursor.execute("SET enable_progress_bar = false")
        yield cursor


def find_probe(limits: Limits) -> Any:
    """The connection of this process by which files are looked into; tables that are made by its cursors stay in it."""
    return limits.probes.get(os.getpid())


def open_sealed(limits: Limits, paths: Iterable[Path], databases: Mapping[str, Path]) -> Any:
    """A connection that reaches the given files and databases (by alias, read-only), and nothing else.

    It is the one by which the files were looked into, if there is one: to open another costs more than to read them.
    """
    with translate_errors():
        connection = limits.probes.pop(os.getpid(), None) or connect(limits)
        connection.execute("SET enable_external_file_cache = true")
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        for alias, path in databases.items():
            connection.execute(f"ATTACH {literal(path)} AS {quote(alias)} (READ_ONLY)")
        connection.execute(f"SET allowed_paths = {literals(paths)}")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection


def teach_spelling(connection: Any) -> None:
    """Let a connection spell texts as `normalize_spelling` does, if it does not yet."""
    if not connection.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = ?", [SPELLING]).fetchall():
        connection.create_function(SPELLING, _spell_column, ["VARCHAR"], "VARCHAR", type="arrow")


def _spell_column(texts: Any) -> pa.Array:
    return spell_texts(texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts)


def read_relation(connection: Any, sql: str, parameters: Any = None) -> Any:
    """The relation of one reading statement; anything else, or more than one, is our bug and does not run."""
    return connection.sql(parse_select(connection, sql), params=parameters)


def read_row(cursor: Any, statements: StatementCache, sql: str) -> pa.Table:
    """The one row of integers of a reading statement; a relation would have it parsed and bound a second time."""
    statements.execute(cursor, sql)
    names, found = [column[0] for column in cursor.description], cursor.fetchall()
    if len(found) != 1:
        raise InternalError("a statement that gives one row gave another number of them")
    return pa.table([pa.array([value], pa.int64()) for value in found[0]], names=names)


VECTOR_ROWS, CELL_BYTES = 2048, 16
"""Rows that the engine works on at once, and bytes that any cell counts for at least."""


def read_within(relation: Any, most: int) -> pa.Table:
    """All rows of a relation, unless they are longer than that; no more of them is held than is needed to know."""
    kept, size = [], 0
    with read_batches(relation, VECTOR_ROWS) as reader:  # a result that stays open stops the cursor's next statement
        for batch in reader:
            size += max(batch.nbytes, CELL_BYTES * batch.num_rows * batch.num_columns)
            if size > most:
                raise ParameterError("the rows are longer than is allowed", expected=f"At most {most:,} bytes")
            kept.append(batch)
        return pa.Table.from_batches(kept, reader.schema)


def read_batches(relation: Any, rows: int) -> Any:
    """A streaming reader over a relation (the method's name differs between DuckDB 1.4 and 2.0)."""
    reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    return reader(rows)


@contextmanager
def translate_errors(about: str = "a source") -> Iterator[None]:
    """Turn DuckDB's errors into refusals of ours. Its own text may quote a value, so it is dropped.

    Only the errors that are raised before any row is read keep their cause: they quote SQL, and SQL is our own.
    """
    try:
        yield
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as failure:
        raise InternalError("SQL of our own making was not accepted by the engine") from failure
    except duckdb.PermissionException as failure:
        raise InternalError("SQL of our own making reached beyond the declared sources; it was not run") from failure
    except duckdb.Error as failure:
        raise _translate_error(failure, about) from None
    except OSError as failure:  # Arrow's reader wraps DuckDB's errors while it streams
        raise _translate_error(failure, about) from None
    except RuntimeError as failure:
        if str(failure) == "Query interrupted":  # in place of what a signal's handler raised while the engine worked
            raise KeyboardInterrupt from None
        raise


def _translate_error(failure: Exception, about: str) -> Exception:
    text = str(failure)
    if isinstance(failure, duckdb.InterruptException) or "INTERRUPT" in text:
        return refuse_late()
    if isinstance(failure, duckdb.OutOfMemoryException) or "Out of Memory" in text:
        return StorageError("the memory limit was reached", remedy="Allow the engine more memory, or free disk space")
    if "No space left" in text or "temp_directory_size" in text:
        return StorageError("the disk for temporary files is full", remedy="Free some space")
    return DataError(
        f"{about} could not be read",
        expected="A file that is there, is whole, and whose values fit their types",
        remedy="Put the file back, or repair it",
    )


def literal(value: object) -> str:
    """A text as an SQL literal."""
    return "'" + str(value).replace("'", "''") + "'"


def literals(values: Iterable[object]) -> str:
    """Texts as an SQL list."""
    return "[" + ", ".join(literal(value) for value in values) + "]"


MOST = 64
"""Shapes that one cursor remembers, and numbers that one shape may leave open."""

LARGEST = 2**63 - 1

# Quoted texts and names come first, so that nothing inside them is taken for a number of ours.
_PIECES = re.compile(r"""'[^']*'|"[^"]*"|CAST\((-?[0-9]{1,19}) AS (U?BIGINT)\)""")


def parameterize(sql: str) -> tuple[str, tuple[int, ...]]:
    """A statement with its whole numbers left open, and the numbers.

    >>> parameterize("SELECT 'CAST(1 AS BIGINT)' WHERE CAST(7 AS BIGINT) < x AND x < CAST(9 AS BIGINT)")
    ("SELECT 'CAST(1 AS BIGINT)' WHERE CAST($1 AS BIGINT) < x AND x < CAST($2 AS BIGINT)", (7, 9))
    """
    places: dict[int, int] = {}

    def replace_number(piece: re.Match[str]) -> str:
        if piece[1] is None or abs(int(piece[1])) > LARGEST:
            return piece[0]
        place = places.setdefault(int(piece[1]), len(places) + 1)
        return f"CAST(${place} AS {piece[2]})"

    shape = _PIECES.sub(replace_number, sql)
    return (shape, tuple(places)) if len(places) <= MOST else (sql, ())


class StatementCache:
    """The parsed statements of one cursor; the longest unused is forgotten first.

    Only parsing is saved: DuckDB takes as long for a statement that was prepared (PREPARE, EXECUTE).
    """

    def __init__(self) -> None:
        self._parsed: OrderedDict[str, Any] = OrderedDict()

    def execute(self, cursor: Any, sql: str) -> Any:
        """Run one reading statement; anything else, or more than one, is our bug and does not run."""
        shape, numbers = parameterize(sql)
        if shape not in self._parsed:
            self._parsed[shape] = parse_select(cursor, shape)
            if len(self._parsed) > MOST:
                self._parsed.popitem(last=False)
        self._parsed.move_to_end(shape)
        return cursor.execute(self._parsed[shape], list(numbers) or None)


def parse_select(connection: Any, sql: str) -> Any:
    """A text as one parsed statement that reads."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InternalError("an engine was given something else than one reading statement; it was not run")
    return statements[0]


AGAIN = 0.05
"""Seconds between interrupts: one that comes before the statement has begun is lost, so it is repeated."""

Interrupt = Callable[[], None]


class Watcher:
    """Interrupts at deadlines, again and again until the work has ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int]] = []
        self._watched: dict[int, Interrupt] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def begin(self, seconds: float, interrupt: Interrupt) -> int:
        """Watch a piece of work that may last so many seconds; gives the number by which its end is reported."""
        with self._changed:
            number, deadline = next(self._numbers), time.monotonic() + seconds
            self._watched[number] = interrupt
            self._put(deadline, number)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="deniable-watcher", daemon=True)
                self._thread.start()
            return number

    def end(self, number: int) -> None:
        """The work has ended: when this returns, it is not interrupted any more."""
        with self._changed:
            self._watched.pop(number, None)

    def _put(self, deadline: float, number: int) -> None:
        heapq.heappush(self._due, (deadline, number))
        if self._due[0][1] == number:
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while True:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                else:
                    self._interrupt(heapq.heappop(self._due)[1])

    def _interrupt(self, number: int) -> None:
        interrupt = self._watched.get(number)
        if interrupt is not None:
            with suppress(Exception):  # what cannot be interrupted any more has ended
                interrupt()
            heapq.heappush(self._due, (time.monotonic() + AGAIN, number))


WATCHER = Watcher()
# Neither threads nor locks that they hold cross a fork whole: the child begins with a watcher of its own.
if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=WATCHER.__init__)  # type: ignore[misc]


@contextmanager
def interrupt_after(seconds: float | None, interrupt: Interrupt) -> Iterator[None]:
    """Interrupt the work inside the block when it lasts longer than `seconds`; None means no limit."""
    if seconds is None:
        yield
        return
    if not seconds > 0:
        raise ParameterError(f"the time limit is {seconds} seconds", expected="A time limit is more than 0")
    number = WATCHER.begin(seconds, interrupt)
    try:
        yield
    finally:
        WATCHER.end(number)


SCRATCH = "deniable-"
"""How the names of private folders begin."""
SETTLING_SECONDS = 60
"""A folder that is younger may still be without its lock."""
_locks: dict[Path, int] = {}
_swept: set[Path] = set()


def make_scratch(parent: str | None = None) -> Path:
    """A folder for copies and for what does not fit into memory, which only its owner can enter.

    It is locked for as long as the process lives. What killed processes left behind is removed.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=parent))
        _lock_scratch(folder)
    except OSError as failure:
        raise StorageError(
            f"no private folder can be made for copies: {failure.strerror}",
            remedy="Free some space, or name another folder in the environment variable TMPDIR",
        ) from None
    return folder


def _lock_scratch(folder: Path) -> None:
    if folder.parent not in _swept:
        _swept.add(folder.parent)
        sweep_scratch(folder.parent)
    _locks[folder] = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    lock_descriptor(_locks[folder])


def remove_scratch(folder: Path) -> None:
    """Remove a private folder and let go of its lock."""
    descriptor = _locks.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)  # first: Windows removes no open file
    shutil.rmtree(folder, ignore_errors=True)


def sweep_scratch(parent: Path) -> None:
    """Remove the private folders of ours whose processes ended without doing so: nobody holds their locks."""
    for folder in parent.glob(f"{SCRATCH}*"):
        with suppress(OSError):
            kept = folder.stat(follow_symlinks=False)
            old = time.time() - kept.st_mtime > SETTLING_SECONDS
            if stat.S_ISDIR(kept.st_mode) and is_own(kept) and old:
                _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    descriptor = os.open(folder / ".lock", os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        lock_descriptor(descriptor)
    finally:
        os.close(descriptor)  # nobody locks it any more: its process is gone
    shutil.rmtree(folder, ignore_errors=True)


# Values that rows could not leave with as they are: numbers that reading rounds, and dates that no output holds.
#
# Questions may compute with numbers in double precision. A released cell holds what the source holds, or is refused.

MOST_DIGITS = 38
"""Digits of a decimal that the engine reads as it is; wider ones of Parquet come as doubles."""
_EXACT = 15
"""Every number of so many digits is the same after it was a double."""


def render_rounded(text: str, double: str) -> str:
    """The condition under which a number is another one in double precision than in the text.

    Their digits are compared, without zeros before and behind them: two numbers of the same digits differ by a power
    of ten, and a double is never so far from what it was read from, but for 0 and infinity, which have no such digits.
    """
    doubtful = f"(strlen({text}) > {_EXACT} OR regexp_matches({text}, '[eE]'))"
    differ = f"{_take_digits(text)} <> {_take_digits(f'CAST({double} AS VARCHAR)')}"
    return f"CASE WHEN {doubtful} THEN coalesce({differ}, false) ELSE false END"


def _take_digits(number: str) -> str:
    mantissa = f"regexp_replace(lower({number}), 'e.*$', '')"
    return f"rtrim(ltrim(regexp_replace({mantissa}, '[^0-9]', '', 'g'), '0'), '0')"


def find_wide(schema: pa.Schema) -> tuple[int, ...]:
    """The places of decimals with more digits than the engine reads."""
    return tuple(p for p, f in enumerate(schema) if pa.types.is_decimal(f.type) and f.type.precision > MOST_DIGITS)


def refuse_wide(schema: pa.Schema, title: str) -> None:
    """Refuse rows in memory, and Arrow files, with decimals that the engine cannot read at all."""
    for place in find_wide(schema):
        raise DataError(
            f"column '{schema.names[place]}' of {title} has decimals of more than {MOST_DIGITS} digits",
            remedy=f"Write it as a decimal of at most {MOST_DIGITS} digits, or as text",
            column=schema.names[place],
        )


def refuse_rounded(found: Mapping[str, bool | None], wide: Collection[str]) -> None:
    """Refuse the first column in which a number was found that reading rounds; of `wide` ones, no number is kept."""
    for name in (name for name, rounded in found.items() if rounded):
        raise DataError(
            f"column '{name}' has numbers that are rounded when they are read, in double precision",
            expected=f"Numbers whose digits double precision keeps, as it keeps {_EXACT}, where rows are released",
            remedy=("W" if name in wide else "Declare the column as type: integer or type: text in a policy, or w")
            + f"rite it to Parquet as a decimal of at most {MOST_DIGITS} digits, or as floating-point numbers",
            column=name,
        )


def match_numbers(text: str, listed: str, numbers: Numbers) -> Iterator[str]:
    """The conditions under which a text is one of the numbers that are listed, as `Numbers` tells it."""

    def read(own: str, kind: str, *forms: str) -> str:
        like = " OR ".join(f"regexp_full_match({own}, '{form}')" for form in forms)
        return f"CASE WHEN {like} THEN TRY_CAST({own} AS {kind}) END"

    def among(kind: str, own: str, *forms: str) -> str:
        values = f"SELECT {read(spell_plainly('value'), kind, *forms)} AS value FROM {listed}"  # noqa: S608  our own words
        return f"{read(text, kind, own)} IN (SELECT value FROM ({values}) AS v WHERE value IS NOT NULL)"  # noqa: S608

    if numbers.whole:
        yield among("HUGEINT", WHOLE, WHOLE)
    if numbers.pointed:
        yield among("DOUBLE", WHOLE, POINTED)
    if numbers.doubles:
        yield among("DOUBLE", POINTED, WHOLE, POINTED)


def render_beyond(fields: Collection[Field], columns: Collection[str]) -> dict[str, str]:
    """For each column of dates or times, the condition under which no output can hold one."""
    return {
        field.name: f"CAST({quote(field.name)} AS {'DATE' if field.type is ColumnType.DATE else 'TIMESTAMP'}) NOT "
        + HELD_DATES[field.type]
        for field in fields
        if field.type in HELD_DATES and field.name in columns
    }


def render_outside(column: str, native: str) -> str:
    """The condition under which a date or a time of a native type is of no year from 1 to 9999.

    It is written so that the engine finds most often in the statistics of a file that none is.
    """
    first, last = FIRST_DAY, LAST_DAY if native == "DATE" else LAST_MOMENT
    if native == "TIMESTAMP WITH TIME ZONE":
        first, last = f"{first} 00:00:00+00", f"{last}+00"
    kind = "DATE" if native == "DATE" else "TIMESTAMPTZ" if native.endswith("ZONE") else "TIMESTAMP"
    return f"{column} < {kind} '{first}' OR {column} > {kind} '{last}'"


def refuse_beyond(found: Mapping[str, bool | None]) -> None:
    """Refuse the first column in which a date was found that is none of the years 1 to 9999."""
    for name in (name for name, beyond in found.items() if beyond):
        raise DataError(
            f"column '{name}' has dates before the year 1, after the year 9999, or without an end",
            expected="Dates of the years 1 to 9999",
            remedy="Correct them in the source, make them null there, or leave the column out",
            column=name,
        )
