"""Values as integers, shared by several tables: equal combinations of columns get equal numbers, missing ones -1.

Rows are drawn here too, from sorted rows: whoever is drawn does not depend on the order of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError, nearest

Codes = NDArray[np.int64]
_FULL = 1 << 62


def require_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column by name, or a refusal that names the nearest one."""
    place = table.schema.get_field_index(name)  # a list of all names for each column would be quadratic
    if place < 0:
        raise DataError(
            f"The table has no column '{name}'",
            expected=f"It has {', '.join(table.column_names)}",
            remedy=nearest(name, table.column_names),
            charge="",
        )
    return table.column(place)


def deduplicate_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns an intruder knows, each once; none is a mistake."""
    if not columns:
        raise ParameterError("No column was named", expected="One or more columns that an intruder may know")
    return tuple(dict.fromkeys(columns))


def encode_combinations(tables: Sequence[pa.Table], columns: Sequence[str], *, missing: bool = False) -> list[Codes]:
    """For each table the number of every row's combination; the same combination has one number in all tables.

    A combination with a missing value is -1, since it can be joined to nothing; with `missing`, missing is a value.
    """
    parts = [
        encode_column([require_column(table, name) for table in tables], missing=missing)
        for name in deduplicate_columns(columns)
    ]
    combined = parts[0]
    for part in parts[1:]:
        combined = _combine_codes(combined, part)
    ends = np.cumsum([table.num_rows for table in tables])[:-1]
    return np.split(combined, ends)


def encode_column(columns: Sequence[pa.ChunkedArray], *, missing: bool = False) -> Codes:
    """The numbers of one column over several tables, end to end."""
    columns = [_decode_dictionary(values) for values in columns]
    if len({values.type for values in columns}) > 1:  # a ZIP code read as a number here and as text there
        columns = [values.cast(pa.string()) for values in columns]
    chunks = [chunk for values in columns for chunk in values.chunks]
    whole = pa.chunked_array(chunks, type=columns[0].type)
    if len(whole) == 0:
        return np.zeros(0, np.int64)
    encoded = whole.combine_chunks().dictionary_encode()
    codes: Codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes + 1 if missing else codes


def _decode_dictionary(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _combine_codes(left: Codes, right: Codes) -> Codes:
    """Pairs of numbers as one number; packed densely again before the product outgrows 62 bits."""
    width = int(right.max(initial=0)) + 1
    if (int(left.max(initial=0)) + 1) * width >= _FULL:
        left, right = pack_codes(left), pack_codes(right)
        width = int(right.max(initial=0)) + 1
    return np.where((left < 0) | (right < 0), -1, left * width + right)


def pack_codes(codes: Codes) -> Codes:
    """The same numbers renamed 0, 1, 2 ... as they first appear; -1 stays. Hashing, which is faster than sorting."""
    if not len(codes):
        return codes
    encoded = pa.array(codes, mask=codes < 0).dictionary_encode()
    renamed: Codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return renamed


def count_equal_codes(codes: Codes) -> NDArray[np.int64]:
    """For every row how many rows share its number, itself included; 0 where it is -1."""
    packed = pack_codes(codes)
    if not len(packed):
        return packed
    counts = np.bincount(packed + 1)
    counts[0] = 0 if packed.min() < 0 else counts[0]
    return np.asarray(counts[packed + 1], dtype=np.int64)


def draw_places(
    table: pa.Table, columns: Sequence[str], most: int, generator: np.random.Generator, *, shuffled: bool = False
) -> NDArray[np.int64]:
    """So many rows at random, in their order unless `shuffled`: the same people whatever the order of the table."""
    drawn = generator.choice(table.num_rows, min(most, table.num_rows), replace=False)
    if table.num_rows > most or shuffled:
        drawn = order_rows(table, columns)[drawn]
    return np.asarray(drawn if shuffled else np.sort(drawn), np.int64)


def order_rows(table: pa.Table, columns: Sequence[str]) -> NDArray[np.int64]:
    """The places of the rows, sorted by what these columns say."""
    texts = [_spell(require_column(table, name)) for name in dict.fromkeys(columns)]
    keys = {f"{place}": each for place, each in enumerate(texts)}
    if not keys:
        return np.arange(table.num_rows)
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    return np.asarray(order.to_numpy(), np.int64)


def _spell(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values that can be sorted: of some types only their text can."""
    plain = _decode_dictionary(values)
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_temporal)
    return plain if any(holds(plain.type) for holds in kinds) else plain.cast(pa.string())
