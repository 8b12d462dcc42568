"""Connections to DuckDB: one that may look at declared files, and a sealed one that runs everything else.

The *probe* reads files that the steward declared, with SQL that holds nothing but their paths. The *sealed* connection
is opened with the list of declared paths and then closed to the world: no other file, no writing, no attaching, no
extensions, no environment, no Python variables, and no setting can be changed back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from deniable.engines.base import quote
from deniable.engines.duckdb.statement_cache import StatementCache, parse_select
from deniable.errors import DataError, InternalError, ParameterError, Stopped, StorageError

_SIZE = re.compile(r"^[1-9][0-9]*(\.[0-9]+)? ?[KMGT]i?B$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine may use: memory as DuckDB writes it ('2GB'), threads, and its private folder for spilling."""

    memory: str | None
    threads: int | None
    scratch: Path

    def __post_init__(self) -> None:
        sized = self.memory is None or _SIZE.match(self.memory)
        if not sized or (self.threads is not None and self.threads < 1):
            raise ParameterError(
                f"an engine cannot have {self.memory} of memory and {self.threads} threads",
                expected="Limits are written as memory '512MB' or '2GB', and threads from 1",
            )

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


def open_probe(limits: Limits) -> Any:
    """A connection for finding out what declared files hold."""
    with translate_errors():
        connection = duckdb.connect(":memory:", config=limits.config())
        connection.execute("SET enable_progress_bar = false")  # interactive Python would print it among results
        return connection


def open_sealed(limits: Limits, paths: Iterable[Path], databases: Mapping[str, Path]) -> Any:
    """A connection that reaches the given files and databases (by alias, read-only), and nothing else."""
    with translate_errors():
        connection = open_probe(limits)
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        for alias, path in databases.items():
            connection.execute(f"ATTACH {literal(path)} AS {quote(alias)} (READ_ONLY)")
        connection.execute(f"SET allowed_paths = {literals(paths)}")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection


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


def _translate_error(failure: Exception, about: str) -> Exception:
    text = str(failure)
    if isinstance(failure, duckdb.InterruptException) or "INTERRUPT" in text:
        return Stopped("the work was stopped before it ended", remedy="Ask for less, or allow more time")
    if isinstance(failure, duckdb.OutOfMemoryException) or "Out of Memory" in text:
        return StorageError("the memory limit was reached", remedy="Allow the engine more memory, or free disk space")
    if "No space left" in text or "temp_directory_size" in text:
        return StorageError("the disk for temporary files is full", remedy="Free some space")
    return DataError(
        f"{about} could not be read as it was when it was attached",
        expected="The file is there, is whole, and its values fit their types",
        remedy="Attach it again, or repair the file",
    )


def literal(value: object) -> str:
    """A text as an SQL literal."""
    return "'" + str(value).replace("'", "''") + "'"


def literals(values: Iterable[object]) -> str:
    """Texts as an SQL list."""
    return "[" + ", ".join(literal(value) for value in values) + "]"
