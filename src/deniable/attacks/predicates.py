"""Predicates about rows, many at once: columns, comparisons and values as arrays, drawn and counted in batches.

A predicate such as "age at least 90 and ZIP code 69503" has one comparison for each of its columns, and all must hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import column, one
from deniable.attacks.nearest import is_number, numbers

EQUAL, LEAST, MOST = 0, 1, 2
BATCH = 4096
Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Predicates:
    """One row a predicate, one place a comparison: which columns, how they are compared, with which values."""

    columns: NDArray[np.int64]
    comparisons: NDArray[np.int8]
    values: Values

    def __len__(self) -> int:
        return len(self.columns)

    def take(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> Predicates:
        """Some of the predicates."""
        return Predicates(self.columns[which], self.comparisons[which], self.values[which])

    def keys(self) -> list[bytes]:
        """One key for each predicate: equal predicates have equal keys."""
        whole = np.column_stack([self.columns, self.comparisons, self.values])
        return [row.tobytes() for row in whole]

    @classmethod
    def of(cls, parts: Sequence[Predicates], width: int) -> Predicates:
        """Several lists of predicates as one."""
        if not parts:
            return cls(np.zeros((0, width), np.int64), np.zeros((0, width), np.int8), np.zeros((0, width)))
        fields = ([getattr(part, name) for part in parts] for name in ("columns", "comparisons", "values"))
        return cls(*(np.concatenate(field) for field in fields))


def as_numbers(tables: Sequence[pa.Table], chosen: Sequence[str]) -> tuple[list[Values], NDArray[np.bool_]]:
    """All tables as floats, and which columns have an order; other values by their number, NaN fits nothing."""
    parts, ordered = [], []
    for name in chosen:
        columns = [column(table, name) for table in tables]
        ordered.append(all(is_number(part.type) for part in columns))
        if ordered[-1]:
            parts.append(np.concatenate([numbers(part) for part in columns]))
        else:
            codes = one(columns).astype(np.float64)
            parts.append(np.where(codes < 0, np.nan, codes))
    ends = np.cumsum([table.num_rows for table in tables])[:-1]
    return np.split(np.ascontiguousarray(np.column_stack(parts)), ends), np.array(ordered, np.bool_)


def around_rows(
    rows: Values, ordered: NDArray[np.bool_], width: int, generator: np.random.Generator
) -> Iterator[Predicates]:
    """Predicates that random rows fulfil, without end: equality, and for numbers the direction away from the median."""
    medians = np.array([np.nanmedian(part) if len(part) and ordered[c] else 0.0 for c, part in enumerate(rows.T)])
    while len(rows):
        chosen = _column_sets(rows.shape[1], width, generator)
        values = rows[generator.integers(0, len(rows), BATCH)[:, None], chosen]
        away = np.where(values > medians[chosen], LEAST, MOST)
        made = Predicates(chosen, np.where(ordered[chosen], away, EQUAL).astype(np.int8), values)
        yield made.take(np.asarray(~np.isnan(values).any(axis=1)))


def of_single_values(rows: Values, ordered: NDArray[np.bool_]) -> Iterator[Predicates]:
    """Of one column each: values that occur once, up to the least and from the greatest number."""
    for place in range(rows.shape[1]):
        known = rows[~np.isnan(rows[:, place]), place]
        if not len(known):
            continue
        values, times = np.unique(known, return_counts=True)
        rare = values[times == 1]
        ends = values[[0, -1]] if ordered[place] else values[:0]
        how = np.array([*([MOST, LEAST] if ordered[place] else []), *[EQUAL] * len(rare)], np.int8)
        yield Predicates(np.full((len(how), 1), place), how[:, None], np.concatenate([ends, rare])[:, None])


def blind(
    rows: Values, ordered: NDArray[np.bool_], width: int, count: int, generator: np.random.Generator
) -> Predicates:
    """Values that columns can have, put together without looking at any one row."""
    if not len(rows) or not count:
        return Predicates.of((), width)
    chosen = np.concatenate([_column_sets(rows.shape[1], width, generator) for _ in range(-(-count // BATCH))])[:count]
    values = rows[generator.integers(0, len(rows), chosen.shape), chosen]
    either = generator.integers(0, 3, chosen.shape)
    return Predicates(chosen, np.where(ordered[chosen], either, EQUAL).astype(np.int8), values)


def _column_sets(columns: int, width: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """A batch of sets of different columns, each in ascending order."""
    drawn = np.argsort(generator.random((BATCH, columns)), axis=1)[:, :width]
    return np.sort(drawn, axis=1).astype(np.int64)


def single_out(predicates: Predicates, rows: Values) -> NDArray[np.bool_]:
    """Which predicates hold for exactly one row."""
    held = _held(rows, predicates.columns, predicates.comparisons, predicates.values)
    return np.asarray(held == 1)


@nb.njit(cache=True, nogil=True)
def _held(rows, columns, comparisons, values):  # type: ignore[no-untyped-def]
    """For how many rows each predicate holds: 0, 1, or 2 for several."""
    found = np.zeros(len(columns), np.int8)
    for p in range(len(columns)):
        for row in range(rows.shape[0]):
            fits = True
            for c in range(columns.shape[1]):
                cell = rows[row, columns[p, c]]
                if comparisons[p, c] == 0:
                    fits = cell == values[p, c]
                elif comparisons[p, c] == 1:
                    fits = cell >= values[p, c]
                else:
                    fits = cell <= values[p, c]
                if not fits:
                    break
            if fits:
                found[p] += 1
                if found[p] == 2:
                    break
    return found
