"""The leaves of a column: its distinct values, sorted, and the text by which a hierarchy knows them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def text_of(values: pa.Array) -> list[str]:
    """Values as the text that leaves are known by: 39, 2024-05-17, true.

    >>> text_of(pa.array([1.0, 1.5]))
    ['1', '1.5']
    """
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return values.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_floating(values.type):
        return [str(int(v)) if v.is_integer() and abs(v) < 1e15 else repr(v) for v in values.to_pylist()]
    return pc.cast(values, pa.string()).to_pylist()  # type: ignore[no-any-return]


def sorted_leaves(values: pa.Array) -> pa.Array:
    """Distinct values in their own order: numbers by size, dates by time, text by letters."""
    values = values.drop_null()
    return values.take(pc.sort_indices(values))
