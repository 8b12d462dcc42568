"""Frames in memory as Arrow: pandas, Polars, pyarrow, recognized without importing what is not installed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from deniable.engines.naming import column_names
from deniable.errors import DataError


def is_frame(source: object) -> bool:
    """Whether a source is rows in memory rather than a path."""
    return _library(source) in ("pandas", "polars", "pyarrow")


def as_arrow(source: Any) -> pa.Table | pa.RecordBatchReader:
    """A frame as an Arrow table; a reader stays a reader, since it may be longer than memory."""
    library, kind = _library(source), type(source).__name__
    if library == "pyarrow" and kind in ("Table", "RecordBatchReader"):
        return source
    if library == "pyarrow" and kind == "RecordBatch":
        return pa.Table.from_batches([source])
    if library == "polars" and kind in ("DataFrame", "LazyFrame"):
        return (source.collect() if kind == "LazyFrame" else source).to_arrow()
    if library == "pandas" and kind == "DataFrame":
        return _from_pandas(source)
    raise DataError(
        f"a {library} {kind} is not a table",
        expected="A source is a path, a pandas or Polars DataFrame, a pyarrow Table or RecordBatchReader",
    )


def _from_pandas(frame: Any) -> pa.Table:
    names = column_names(frame.columns)
    arrays = [_column(frame.iloc[:, position], name) for position, name in enumerate(names)]
    # Without columns an Arrow table cannot know how many rows it has; no question can be asked of one either.
    return pa.table(arrays, names=list(names))


def _column(series: Any, name: str) -> pa.ChunkedArray | pa.Array:
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        # Arrow's own message quotes the value it stumbled over.
        raise DataError(
            f"column '{name}' of the frame mixes types",
            remedy="Give it one type first, for example with astype(str)",
            column=name,
        ) from None


def _library(source: object) -> str:
    return type(source).__module__.partition(".")[0]
