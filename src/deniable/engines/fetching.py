"""Rows that are brought here: the embedded engine, for what works on rows, over tables that are elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from deniable.engines.base import Source, is_by_adbc, is_elsewhere, is_in_spark
from deniable.engines.duckdb.engine import DuckDBEngine
from deniable.policy.schema import CsvDialect, TableSchema


class FetchingEngine(DuckDBEngine):
    """The embedded engine; the rows of a table elsewhere are copied first.

    They are held in the engine's private folder, which is gone with it. More rows than the policy's `rows_out` of the
    table are refused.
    """

    def attach(
        self, name: str, source: Source, schema: TableSchema | None = None, *, csv: CsvDialect | None = None
    ) -> None:
        """Declare a source under a name; a table elsewhere is copied."""
        if not is_elsewhere(source):
            super().attach(name, source, schema, csv=csv)
            return
        with _fetch(source, schema) as rows:
            super().attach(name, rows, schema)


@contextmanager
def _fetch(source: Any, schema: TableSchema | None) -> Iterator[pa.RecordBatchReader]:
    if is_in_spark(source):
        from deniable.engines.spark.engine import fetch_table as fetch_from_spark

        with fetch_from_spark(source, schema) as rows:
            yield rows
    elif is_by_adbc(source):
        from deniable.engines.adbc import fetch_table as fetch_by_adbc

        with fetch_by_adbc(source, schema) as rows:
            yield rows
    else:
        from deniable.engines.postgresql.engine import fetch_table

        with fetch_table(source, schema) as rows:
            yield rows
