"""Copies: a small file is held in memory, read and typed once, so that a question need not open and decode it again.

Opening a Parquet file of a thousand rows takes DuckDB longer than counting them, and a CSV file is parsed whole each
time. A copy is as its file was at one moment, which its stamps tell: the engine looks at them before each statement,
and takes new copies when a file has changed. A file that is not small, or that cannot be copied, is read where it is.
"""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted paths; no user text)

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from deniable.engines.base import quote
from deniable.engines.duckdb.scan import Scan, slot, slots
from deniable.engines.sources import Stamp, stamp_file

MOST_BYTES = 1 << 20
"""Bytes of the files of a source that is copied."""
MOST_CELLS, MOST_TEXT = 1_000_000, 16 << 20
"""Values, and bytes of text among them: a file can hold far more than its size tells."""

Stamps = tuple[Stamp | None, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """How a copy is read, and what its files were when it was taken."""

    scan: Scan
    stamps: Stamps

    @property
    def outdated(self) -> bool:
        """Whether a file was changed since."""
        return stamps_of(self.scan) != self.stamps


def take_copies(connection: Any, scans: dict[str, Scan]) -> dict[str, Copy]:
    """Copies of the sources that are small, inside a connection that reaches their files."""
    found = {name: _copy_source(connection, name, scan) for name, scan in scans.items()}
    return {name: copy for name, copy in found.items() if copy is not None}


def stamps_of(scan: Scan) -> Stamps:
    """What changes when a file of a source is written to, replaced or removed."""
    stamps: list[Stamp | None] = []
    for path in scan.paths:
        try:
            stamps.append(stamp_file(path))
        except OSError:
            stamps.append(None)
    return tuple(stamps)


def _copy_source(connection: Any, name: str, scan: Scan) -> Copy | None:
    stamps, table = stamps_of(scan), quote(f"copy of {name}")
    sizes = [stamp[1] for stamp in stamps if stamp is not None]
    if not sizes or len(sizes) < len(stamps) or sum(sizes) > MOST_BYTES:
        return None
    source = f"{scan.relation} AS source({slots(len(scan.fields))})"
    shown = ", ".join(f"{expression} AS {slot(place)}" for place, expression in enumerate(scan.expressions))
    with suppress(duckdb.Error):
        if _is_small(connection, scan, f"SELECT {shown} FROM {source}"):
            connection.execute(f"CREATE TABLE {table} AS SELECT {shown} FROM {source}")
            plain = tuple(slot(place) for place in range(len(scan.fields)))
            return Copy(replace(scan, relation=table, expressions=plain), stamps)
    return None


def _is_small(connection: Any, scan: Scan, rows: str) -> bool:
    texts = [f"coalesce(sum(strlen({slot(p)})), 0)" for p, each in enumerate(scan.fields) if each.native == "VARCHAR"]
    sql = f"SELECT count(*), {' + '.join(texts) or '0'} FROM ({rows}) AS shown"
    count, text = connection.execute(sql).fetchone()
    return bool(count * len(scan.fields) <= MOST_CELLS and text <= MOST_TEXT)
