"""Engines whose rows are elsewhere: what is attached is uploaded first, so that the same tests run on all."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from deniable.engines.base import normalize_names
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.postgresql.connection import connect
from deniable.engines.postgresql.engine import PostgreSQLEngine
from deniable.engines.postgresql.rows import write_table
from deniable.query.sql.dialects import render_for_postgresql

NUMBERS = itertools.count()


class UploadingPostgreSQL(PostgreSQLEngine):
    """An engine that puts each source into a table of its own in a database, and drops them in the end."""

    def __init__(self, address: str, root: Path | str = ".", **limits: Any) -> None:
        super().__init__(render=render_for_postgresql, root=root, threads=1, memory="512MB", **limits)
        self.address = address
        self.uploaded: list[str] = []
        self._root = root

    def attach(self, name: str, source: Any, schema: Any = None, *, csv: Any = None) -> None:
        """Upload what a source holds, as the embedded engine reads it, and attach the table."""
        self._require_open()
        if isinstance(source, str) and source.startswith("postgresql:"):
            super().attach(name, source, schema, csv=csv)
            return
        if isinstance(source, pa.Table) and schema is None and not any(map(pa.types.is_nested, source.schema.types)):
            super().attach(name, self.upload(source.rename_columns(list(normalize_names(source.schema.names)))))
            return
        with DuckDBEngine(root=self._root, threads=1) as reader:
            reader.attach("rows", source, schema, csv=csv)
            rows = reader.run("SELECT * FROM rows")
            rows = rows.rename_columns([field.name for field in reader.describe("rows")])
        super().attach(name, self.upload(rows), schema)

    def upload(self, rows: pa.Table) -> str:
        """Put rows into a new table; gives the source that it is."""
        source = f"{self.address}#public.t{os.getpid()}_{next(NUMBERS)}"
        write_table(rows.rename_columns([name[:60] for name in rows.column_names]), source)
        self.uploaded.append(source.rpartition("#")[2])
        return source

    def close(self) -> None:
        """Drop what was uploaded."""
        super().close()
        if self.uploaded:
            with suppress(Exception):
                connection = connect(self.address, read_only=False)
                connection.execute(f"DROP TABLE IF EXISTS {', '.join(self.uploaded)}")
                connection.commit()
                connection.close()
            self.uploaded = []
