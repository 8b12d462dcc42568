"""Asking the catalog: one sealed engine for all sessions, and rows of metadata that are given with each statement."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from deniable.curator import serving
from deniable.errors import DeniableError
from deniable.server.logging import to_stderr
from deniable.server.wire.catalog import PublicColumn, PublicTable, frames
from deniable.server.wire.catalog_sql import Surroundings, rewritten
from deniable.server.wire.refusals import WireRefusal

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.hall import Curator
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.server.wire.lexing import Statement

SECONDS = 5.0
ROWS = 100_000


class Catalogs:
    """The catalogs that askers see: the same for all who may name the same columns."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._seen: dict[tuple[PublicTable, ...], dict[str, pa.Table]] = {}

    def ask(self, statement: Statement, analyst: str, process: int, who: Asker, rows: bool = True) -> pa.Table:
        """The answer to a question about the catalog; without rows it only has its columns."""
        tables = tuple(_public(table) for table in serving.schema(self._curator, who))
        names = tuple(table.name for table in tables)
        sql = rewritten(statement, Surroundings(self._curator.policy.dataset, analyst, _version(), process, names))
        held = self._frames(tables)
        needed = {name: held[name] for name in held if name in sql}
        limited = f"SELECT * FROM ({sql}) AS asked LIMIT {ROWS if rows else 0}"  # noqa: S608  gated, and sealed
        try:
            return self._opened().run(limited, seconds=SECONDS, frames=needed)
        except DeniableError as refusal:
            raise _unknown(refusal) from None

    def close(self) -> None:
        """Let go of the engine."""
        if self._engine is not None:
            self._engine.close()

    def _opened(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = serving.bare_engine()
            return self._engine

    def _frames(self, tables: tuple[PublicTable, ...]) -> dict[str, pa.Table]:
        with self._lock:
            if tables not in self._seen:
                self._seen[tables] = frames(self._curator.policy.dataset, tables)
            return self._seen[tables]


def _version() -> str:
    from deniable import __version__

    return f"PostgreSQL 15.0 (deniable {__version__}: answers have noise)"


def _unknown(refusal: DeniableError) -> WireRefusal:
    if refusal.code == "stopped":
        return WireRefusal("57014", "the question about the catalog took too long")
    to_stderr("a question about the catalog was not understood")
    return WireRefusal("0A000", "this question about the catalog is not supported", "Tables and columns: \\d")


def _public(table: dict[str, Any]) -> PublicTable:
    columns = [PublicColumn(each["column"], each["type"], each["nullable"], _told(each)) for each in table["columns"]]
    told = "public: rows may be read as they are" if table["public"] else f"protects {table['unit']}"
    return PublicTable(table["table"], tuple(columns), told)


def _told(column: dict[str, Any]) -> str:
    parts = [column["role"]]
    if column["between"]:
        parts.append(f"between {column['between'][0]} and {column['between'][1]}")
    if column["categories"]:
        parts.append(f"{len(column['categories'])} categories")
    return ", ".join(parts)
