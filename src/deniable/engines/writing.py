"""Rows to files: CSV, Parquet, Arrow; batch by batch, whole or not at all.

In CSV a null is nothing between two delimiters and an empty text is two quotes, so that both come back as they were.
Column names are written as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from deniable.errors import DataError, ParameterError, nearest
from deniable.storage import whole_file

ENDINGS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"}
FORMATS = ("csv", "parquet", "arrow")


def write_rows(
    batches: Iterable[pa.RecordBatch] | pa.Table,
    path: Path,
    format: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write all batches under one name, at the end and at once; returns the number of rows."""
    chosen = _format(path, format)
    schema, rest = _schema_first(batches)
    rows = 0
    with whole_file(path) as file, _writer(file, schema, chosen) as writer:
        for batch in rest:
            writer.write_batch(_aligned(batch, schema))
            rows += batch.num_rows
            if progress:
                progress(rows)
    return rows


def _format(path: Path, format: str | None) -> str:
    chosen = format or ENDINGS.get(path.suffix.lower(), "")
    if chosen not in FORMATS:
        raise ParameterError(
            f"'{path.name}' cannot be written" + (f" as '{format}'" if format else ""),
            expected="Files are written as .csv, .parquet or .arrow",
            remedy=nearest(chosen or path.suffix, [*FORMATS, *ENDINGS]),
        )
    return chosen


def _schema_first(batches: Iterable[pa.RecordBatch] | pa.Table) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if isinstance(batches, pa.Table):
        return batches.schema, iter(batches.to_batches())
    if isinstance(batches, pa.RecordBatchReader):
        return batches.schema, iter(batches)
    rest = iter(batches)
    first = next(rest, None)
    if first is None:
        raise DataError("there is no batch to write, so the columns are not known", remedy="Pass a pyarrow Table")
    return first.schema, chain([first], rest)


def _aligned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    try:
        return batch.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError):
        raise DataError("a later batch has other columns or types than the first") from None


def _writer(file: BinaryIO, schema: pa.Schema, format: str) -> Any:
    # The three writers share write_batch and close at the end of their block.
    if format == "parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(file, schema, compression="zstd")
    if format == "arrow":
        return pa.ipc.new_file(file, schema)
    import pyarrow.csv as csv

    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if nested:
        raise DataError(f"column '{nested[0]}' holds lists or records, which CSV cannot", remedy="Write Parquet")
    return csv.CSVWriter(file, schema, write_options=csv.WriteOptions(quoting_style="needed"))
