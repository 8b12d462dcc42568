"""Rows as Arrow: from frames in memory, and to files.

Frames of pandas, Polars and pyarrow are recognized without importing what is not installed. Rows are written as CSV,
Parquet or Arrow, batch by batch, whole or not at all. In CSV a null is nothing between two delimiters and an empty
text is two quotes, so that both come back as they were. Column names are written as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from deniable.engines.base import normalize_names
from deniable.errors import DataError, ParameterError, nearest
from deniable.storage import whole_file


def is_frame(source: object) -> bool:
    """Whether a source is rows in memory rather than a path."""
    return _library_of(source) in ("pandas", "polars", "pyarrow")


def as_arrow(source: Any) -> pa.Table | pa.RecordBatchReader:
    """A frame as an Arrow table; a reader stays a reader, since it may be longer than memory."""
    library, kind = _library_of(source), type(source).__name__
    if library == "pyarrow" and kind in ("Table", "RecordBatchReader"):
        return source
    if library == "pyarrow" and kind == "RecordBatch":
        return pa.Table.from_batches([source])
    if library == "polars" and kind in ("DataFrame", "LazyFrame"):
        return (source.collect() if kind == "LazyFrame" else source).to_arrow()
    if library == "pandas" and kind == "DataFrame":
        return _convert_pandas(source)
    raise DataError(
        f"a {library} {kind} is not a table",
        expected="A source is a path, a pandas or Polars DataFrame, a pyarrow Table or RecordBatchReader",
    )


def _convert_pandas(frame: Any) -> pa.Table:
    names = normalize_names(frame.columns)
    arrays = [_convert_column(frame.iloc[:, position], name) for position, name in enumerate(names)]
    # Without columns an Arrow table cannot know how many rows it has; no question can be asked of one either.
    return pa.table(arrays, names=list(names))


def _convert_column(series: Any, name: str) -> pa.ChunkedArray | pa.Array:
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        # Arrow's own message quotes the value it stumbled over.
        raise DataError(
            f"column '{name}' of the frame mixes types",
            remedy="Give it one type first, for example with astype(str)",
            column=name,
        ) from None


def _library_of(source: object) -> str:
    return type(source).__module__.partition(".")[0]


ENDINGS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"}
FORMATS = ("csv", "parquet", "arrow")


def write_rows(
    batches: Iterable[pa.RecordBatch] | pa.Table,
    path: Path,
    format: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write all batches under one name, at the end and at once; returns the number of rows."""
    chosen = _choose_format(path, format)
    schema, rest = _split_schema(batches)
    rows = 0
    with whole_file(path) as file, _open_writer(file, schema, chosen) as writer:
        for batch in rest:
            writer.write_batch(_align_batch(batch, schema))
            rows += batch.num_rows
            if progress:
                progress(rows)
    return rows


def _choose_format(path: Path, format: str | None) -> str:
    chosen = format or ENDINGS.get(path.suffix.lower(), "")
    if chosen not in FORMATS:
        raise ParameterError(
            f"'{path.name}' cannot be written" + (f" as '{format}'" if format else ""),
            expected="Files are written as .csv, .parquet or .arrow",
            remedy=nearest(chosen or path.suffix, [*FORMATS, *ENDINGS]),
        )
    return chosen


def _split_schema(batches: Iterable[pa.RecordBatch] | pa.Table) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if isinstance(batches, pa.Table):
        return batches.schema, iter(batches.to_batches())
    if isinstance(batches, pa.RecordBatchReader):
        return batches.schema, iter(batches)
    rest = iter(batches)
    first = next(rest, None)
    if first is None:
        raise DataError("there is no batch to write, so the columns are not known", remedy="Pass a pyarrow Table")
    return first.schema, chain([first], rest)


def _align_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    try:
        return batch.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError):
        raise DataError("a later batch has other columns or types than the first") from None


def _open_writer(file: BinaryIO, schema: pa.Schema, format: str) -> Any:
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
