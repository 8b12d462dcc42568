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
    coded: NDArray[np.int64]

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
    right = np.column_stack(coded) if coded else np.zeros((rows, 0), np.int64)
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
    apart = np.empty(among.rows)
    deadline = Deadline(seconds)
    for t in range(targets.rows):
        deadline.check()
        _measure_distances(targets.scaled[t], targets.coded[t], among.scaled, among.coded, apart)
        yield np.flatnonzero(apart == apart.min(initial=np.inf))
        tell(progress, (t + 1) / targets.rows)


@nb.njit(cache=True, nogil=True)
def _measure_distances(scaled, coded, all_scaled, all_coded, apart):  # type: ignore[no-untyped-def]
    for row in range(all_scaled.shape[0]):
        total = 0.0
        for c in range(len(coded)):
            if coded[c] != all_coded[row, c]:
                total += 1.0
        for n in range(len(scaled)):
            difference = abs(scaled[n] - all_scaled[row, n])
            if np.isnan(difference):
                both = np.isnan(scaled[n]) and np.isnan(all_scaled[row, n])
                difference = 0.0 if both else 1.0
            total += difference
        apart[row] = total


@nb.njit(cache=True, nogil=True)
def _search(scaled, coded, all_scaled, all_coded, place, distance):  # type: ignore[no-untyped-def]
    """Keep the k nearest by insertion; a row is given up as soon as it is further than the k-th."""
    kept = place.shape[1]
    for t in range(scaled.shape[0]):
        for row in range(all_scaled.shape[0]):
            worst = distance[t, kept - 1]
            apart = 0.0
            for c in range(coded.shape[1]):
                if coded[t, c] != all_coded[row, c]:
                    apart += 1.0
            if apart >= worst:
                continue
            for n in range(scaled.shape[1]):
                difference = abs(scaled[t, n] - all_scaled[row, n])
                if np.isnan(difference):
                    both = np.isnan(scaled[t, n]) and np.isnan(all_scaled[row, n])
                    difference = 0.0 if both else 1.0
                apart += difference
            if apart >= worst:
                continue
            at = kept - 1
            while at > 0 and distance[t, at - 1] > apart:
                distance[t, at], place[t, at] = distance[t, at - 1], place[t, at - 1]
                at -= 1
            distance[t, at], place[t, at] = apart, row
