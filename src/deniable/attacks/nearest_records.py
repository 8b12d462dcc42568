"""Nearest records in tables of mixed columns: Gower's distance, compiled, without an index and without a matrix.

A number is apart by its share of the column's range, anything else by 0 or 1; a missing value is apart from all but
another missing one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import deduplicate_columns, encode_column, require_column
from deniable.attacks.outcome import Deadline, Progress, tell

_STEP = 64


@dataclass(frozen=True, eq=False, repr=False)
class MixedRows:
    """Rows as numbers: `scaled` holds numeric columns as shares of their range, `coded` the numbers of other values."""

    scaled: NDArray[np.float64]
    coded: NDArray[np.int32]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.scaled)

    def take(self, rows: NDArray[np.int64] | slice) -> MixedRows:
        """Some of the rows."""
        return MixedRows(self.scaled[rows], self.coded[rows])


def is_number(kind: pa.DataType) -> bool:
    """Whether values of this type have a distance."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_temporal(kind)
    )


def convert_to_floats(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """A numeric or temporal column as floats; missing is NaN."""
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def scale_tables(tables: Sequence[pa.Table], columns: Sequence[str]) -> list[MixedRows]:
    """Several tables on one scale; a column counts as numeric where it is so in all tables."""
    scaled, coded = [], []
    for name in deduplicate_columns(columns):
        parts = [require_column(table, name) for table in tables]
        if all(is_number(part.type) for part in parts):
            scaled.append(_scale_numbers(np.concatenate([convert_to_floats(part) for part in parts])))
        else:
            coded.append(encode_column(parts, missing=True))
    rows = sum(table.num_rows for table in tables)
    left = np.column_stack(scaled) if scaled else np.zeros((rows, 0))
    right = np.column_stack(coded).astype(np.int32) if coded else np.zeros((rows, 0), np.int32)
    ends = np.cumsum([table.num_rows for table in tables])[:-1]
    return [MixedRows(*pair) for pair in zip(np.split(left, ends), np.split(right, ends), strict=True)]


def _scale_numbers(values: NDArray[np.float64]) -> NDArray[np.float64]:
    known = values[~np.isnan(values)]
    reach = known.max() - known.min() if len(known) else 0.0
    return np.asarray((values - (known.min() if len(known) else 0.0)) / (reach or 1.0))


def find_nearest(
    targets: MixedRows,
    among: MixedRows,
    neighbors: int = 1,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each target the places of its nearest rows and their distances, nearest first; ties go to the first row."""
    count = min(neighbors, among.rows)
    place = np.full((targets.rows, count), -1, np.int64)
    distance = np.full((targets.rows, count), np.inf)
    deadline = Deadline(seconds)
    for start in range(0, targets.rows if count else 0, _STEP):
        deadline.check()
        part = slice(start, min(targets.rows, start + _STEP))
        _search(targets.scaled[part], targets.coded[part], among.scaled, among.coded, place[part], distance[part])
        tell(progress, part.stop / targets.rows)
    return place, distance


def list_equally_near(
    targets: MixedRows, among: MixedRows, *, seconds: float | None = None, progress: Progress | None = None
) -> Iterator[NDArray[np.int64]]:
    """For each target the places of all rows than which none is nearer: no order of rows decides which of them."""
    deadline = Deadline(seconds)
    places = np.empty((_TOGETHER, among.rows), np.int64)
    for start in range(0, targets.rows, _TOGETHER):
        deadline.check()
        part = slice(start, min(targets.rows, start + _TOGETHER))
        found = _list_nearest(targets.scaled[part], targets.coded[part], among.scaled, among.coded, places)
        for place, count in zip(places, found, strict=False):
            yield place[:count].copy()
        tell(progress, part.stop / targets.rows)


# Rows are looked at in blocks that stay in the processor's cache, each for several targets.
_TOGETHER = 16
_BLOCK = 2048


@nb.njit(cache=True, nogil=True)
def _measure_block(scaled, coded, all_scaled, all_coded, most, apart):  # type: ignore[no-untyped-def]
    """How far each row of a block is apart; some number beyond `most` where it is further."""
    for row in range(len(all_scaled)):
        differ = np.int32(0)
        for c in range(len(coded)):
            differ += np.int32(coded[c] != all_coded[row, c])
        total = float(differ)
        if total <= most:
            for n in range(len(scaled)):
                difference = abs(scaled[n] - all_scaled[row, n])
                if np.isnan(difference):
                    both = np.isnan(scaled[n]) and np.isnan(all_scaled[row, n])
                    difference = 0.0 if both else 1.0
                total += difference
        apart[row] = total


@nb.njit(cache=True, nogil=True)
def _list_nearest(scaled, coded, all_scaled, all_coded, places):  # type: ignore[no-untyped-def]
    """Write the places of all nearest rows of each target, and say how many they are."""
    found = np.zeros(len(scaled), np.int64)
    least = np.full(len(scaled), np.inf)
    apart = np.empty(_BLOCK)
    for start in range(0, len(all_scaled), _BLOCK):
        block, codes = all_scaled[start : start + _BLOCK], all_coded[start : start + _BLOCK]
        for t in range(len(scaled)):
            _measure_block(scaled[t], coded[t], block, codes, least[t], apart)
            for row in range(len(block)):
                if apart[row] < least[t]:
                    least[t], found[t] = apart[row], 0
                if apart[row] == least[t]:
                    places[t, found[t]] = start + row
                    found[t] += 1
    return found


@nb.njit(cache=True, nogil=True)
def _search(scaled, coded, all_scaled, all_coded, place, distance):  # type: ignore[no-untyped-def]
    """Keep the k nearest by insertion; a row is given up as soon as it is further than the k-th."""
    kept = place.shape[1]
    apart = np.empty(_BLOCK)
    for start in range(0, len(all_scaled), _BLOCK):
        block, codes = all_scaled[start : start + _BLOCK], all_coded[start : start + _BLOCK]
        for t in range(len(scaled)):
            _measure_block(scaled[t], coded[t], block, codes, distance[t, kept - 1], apart)
            for row in range(len(block)):
                if apart[row] >= distance[t, kept - 1]:
                    continue
                at = kept - 1
                while at > 0 and distance[t, at - 1] > apart[row]:
                    distance[t, at], place[t, at] = distance[t, at - 1], place[t, at - 1]
                    at -= 1
                distance[t, at], place[t, at] = apart[row], start + row
