"""What an engine is: the protocol, its fields and restrictions, and how columns are named and quoted.

An engine holds declared sources and nothing else. Names are made safe and unique here, once, for every engine."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from deniable.errors import DataError, nearest
from deniable.policy.schema import ColumnType, CsvDialect, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa


Source = Any
"""A path, folder or glob (as text or Path), a pandas or Polars frame, a pyarrow Table or RecordBatchReader."""

Parameters = Sequence[Any] | Mapping[str, Any]
"""Values for `?` or `$1` (a sequence), or for `$name` (a mapping)."""

BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Field:
    """One column of an attached source: its name, its type in the words of a policy, and the engine's own word."""

    name: str
    type: ColumnType
    native: str


@runtime_checkable
class Engine(Protocol):
    """Reads declared sources, runs SQL of our own making, writes files."""

    dialect: ClassVar[str]
    """The name by which the SQL renderer knows this engine's language."""

    def attach(
        self, name: str, source: Source, schema: TableSchema | None = None, *, csv: CsvDialect | None = None
    ) -> None:
        """Declare a source under a name; with a schema its columns are read as the policy types them."""

    def restrict(self, name: str, *restrictions: Restriction) -> None:
        """Show only some rows of a source from now on; another call replaces the restrictions before."""

    def describe(self, name: str) -> tuple[Field, ...]:
        """The columns of a source, in its order."""

    def notes(self, name: str) -> tuple[str, ...]:
        """What was left out or read as null when the source was attached with bad rows: skip."""

    def count(self, name: str) -> int:
        """How many rows a source has."""

    def run(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        seconds: float | None = None,
        frames: Mapping[str, pa.Table] | None = None,
        one_row: bool = False,
    ) -> pa.Table:
        """Run one reading statement of our own making; refuse with Stopped when it takes longer than `seconds`.

        `frames` are rows in memory (public ones, such as noisy answers) that this statement alone can read by name.
        `one_row` tells that the statement gives one row of 64-bit integers, which can be had at less cost.
        """

    def stream(
        self, sql_or_table: str, batch_rows: int = BATCH_ROWS, parameters: Parameters | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a statement, or of an attached source by its name, in batches of at most `batch_rows`."""

    def write(
        self,
        batches: Iterable[pa.RecordBatch] | pa.Table,
        path: str | Path,
        format: str | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Write rows as 'csv', 'parquet' or 'arrow', whole or not at all, and say how many; `progress` gets counts."""

    def data_version(self, name: str) -> str:
        """A fingerprint of a source's content: equal content read alike has one version, a change has another."""

    def cancel(self, thread: int | None = None) -> None:
        """Stop whatever runs, or what one thread runs, from any thread: it ends with Stopped."""

    def close(self) -> None:
        """Let go of all sources and remove all temporary files."""

    def __enter__(self) -> Self:
        """Enter a block that closes the engine at its end."""

    def __exit__(self, *exc: object) -> None:
        """Close the engine."""


def quote(name: str) -> str:
    """A name as a delimited SQL identifier.

    >>> quote('a "b"')
    '"a ""b\"""'
    """
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Listed:
    """Rows by the values of one column, written as text: kept only if listed, or left out if listed.

    A missing value is not listed. `loose` compares texts in one spelling: composed, lower case, one space for several.
    """

    column: str
    values: tuple[str, ...] = field(repr=False)
    keep: bool
    loose: bool = False


@dataclass(frozen=True, slots=True)
class Sampled:
    """A share of the units (all rows of a value of `column` together), or of the rows where there is no column.

    `salt` makes the choice secret, and the same for every reading.
    """

    share: Fraction
    column: str | None
    salt: int = field(repr=False)


Restriction = Listed | Sampled


def hash_restrictions(restrictions: tuple[Restriction, ...]) -> list[str]:
    """Texts that differ when other rows are shown; for data versions."""
    return [hashlib.sha256(repr(_to_plain(each)).encode()).hexdigest() for each in restrictions]


def _to_plain(restriction: Restriction) -> tuple[object, ...]:
    if isinstance(restriction, Listed):
        return ("listed", restriction.column, sorted(restriction.values), restriction.keep)
    return ("sampled", str(restriction.share), restriction.column, restriction.salt)


def normalize_names(raw: Iterable[object]) -> tuple[str, ...]:
    """The names under which columns are held.

    >>> normalize_names(["id", "ID", "", " id ", None])
    ('id', 'ID_2', 'column_3', 'id_3', 'column_5')
    """
    taken: set[str] = set()
    names = []
    for position, name in enumerate(raw, start=1):
        chosen = _find_free_name(_clean_name(name) or f"column_{position}", taken)
        taken.add(chosen.casefold())
        names.append(chosen)
    return tuple(names)


def require_columns(present: Sequence[str], declared: Iterable[str], source: str) -> None:
    """Refuse when a declared column is not among those present (compared exactly)."""
    for name in declared:
        if name not in present:
            raise DataError(
                f"column '{name}' is declared, but {source} has no such column",
                expected=f"It has {_join_names(present)}",
                remedy=nearest(name, present) or "Correct the policy, or the file",
                column=name,
            )


def _clean_name(name: object) -> str:
    if name is None:
        return ""
    text = unicodedata.normalize("NFC", str(name)).lstrip("\ufeff")
    return "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in text).strip()


def _find_free_name(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate.casefold() in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _join_names(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
