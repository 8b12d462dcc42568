"""The settled way in which CSV files are written, and the table function that reads them so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deniable.engines.duckdb.connection import literal, literals
from deniable.engines.duckdb.scan import slot

BUFFER_BYTES = 8 << 20
"""What DuckDB reads at a time, for each thread and file: its own 32 MB do not fit a memory limit of 100 MB."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The settled way in which the files of one source are written."""

    paths: tuple[Path, ...]
    delimiter: str
    quote: str
    escape: str
    header: bool
    names: tuple[str, ...]
    null: str

    def relation(self, extra: str = "") -> str:
        """The table function that reads every field as text."""
        columns = ", ".join(f"{literal(slot(p))}: 'VARCHAR'" for p in range(len(self.names)))
        return (
            f"read_csv({literals(self.paths)}, auto_detect = false, columns = {{{columns}}}, header = {self.header}, "
            f"delim = {literal(self.delimiter)}, quote = {literal(self.quote)}, escape = {literal(self.escape)}, "
            f"nullstr = {literal(self.null)}, allow_quoted_nulls = false, hive_partitioning = false, "
            f"buffer_size = {BUFFER_BYTES}{extra})"
        )
