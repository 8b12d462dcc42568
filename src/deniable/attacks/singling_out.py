"""Singling out: predicates that hold for exactly one person (the first criterion of WP29, Opinion 05/2014).

A predicate such as "age at least 90 and ZIP code 69503" has one comparison for each of its columns, and all must hold.
Predicates are arrays of columns, comparisons and values, drawn and counted in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import encode_column, order_rows, require_column
from deniable.attacks.nearest_records import convert_to_floats, is_number
from deniable.attacks.outcome import Deadline, Outcome, Progress, Rate, tell

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


def encode_tables(tables: Sequence[pa.Table], chosen: Sequence[str]) -> tuple[list[Values], NDArray[np.bool_]]:
    """All tables as floats, and which columns have an order; other values by their number, NaN fits nothing."""
    parts, ordered = [], []
    for name in chosen:
        columns = [require_column(table, name) for table in tables]
        ordered.append(all(is_number(part.type) for part in columns))
        if ordered[-1]:
            parts.append(np.concatenate([convert_to_floats(part) for part in columns]))
        else:
            codes = encode_column(columns).astype(np.float64)
            parts.append(np.where(codes < 0, np.nan, codes))
    ends = np.cumsum([table.num_rows for table in tables])[:-1]
    return np.split(np.ascontiguousarray(np.column_stack(parts)), ends), np.array(ordered, np.bool_)


def draw_around_rows(
    rows: Values, ordered: NDArray[np.bool_], width: int, generator: np.random.Generator
) -> Iterator[Predicates]:
    """Predicates that random rows fulfil, without end: equality, and for numbers the direction away from the median."""
    medians = np.array([np.nanmedian(part) if len(part) and ordered[c] else 0.0 for c, part in enumerate(rows.T)])
    while len(rows):
        chosen = _draw_column_sets(rows.shape[1], width, generator)
        values = rows[generator.integers(0, len(rows), BATCH)[:, None], chosen]
        away = np.where(values > medians[chosen], LEAST, MOST)
        made = Predicates(chosen, np.where(ordered[chosen], away, EQUAL).astype(np.int8), values)
        yield made.take(np.asarray(~np.isnan(values).any(axis=1)))


def list_single_values(rows: Values, ordered: NDArray[np.bool_]) -> Iterator[Predicates]:
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


def draw_blindly(
    rows: Values, ordered: NDArray[np.bool_], width: int, count: int, generator: np.random.Generator
) -> Predicates:
    """Values that columns can have, put together without looking at any one row."""
    if not len(rows) or not count:
        return Predicates.of((), width)
    chosen = np.concatenate([_draw_column_sets(rows.shape[1], width, generator) for _ in range(-(-count // BATCH))])[
        :count
    ]
    values = rows[generator.integers(0, len(rows), chosen.shape), chosen]
    either = generator.integers(0, 3, chosen.shape)
    return Predicates(chosen, np.where(ordered[chosen], either, EQUAL).astype(np.int8), values)


def _draw_column_sets(columns: int, width: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """A batch of sets of different columns, each in ascending order."""
    drawn = np.argsort(generator.random((BATCH, columns)), axis=1)[:, :width]
    return np.sort(drawn, axis=1).astype(np.int64)


def hold_for_one_row(predicates: Predicates, rows: Values) -> NDArray[np.bool_]:
    """Which predicates hold for exactly one row; for few predicates, since all rows are looked at."""
    ends = np.zeros(len(predicates), np.int64), np.full(len(predicates), len(rows))
    held = _count_holding_rows(
        rows, np.arange(len(rows)), *ends, predicates.columns, predicates.comparisons, predicates.values
    )
    return np.asarray(held == 1)


class SortedRows:
    """Rows with each column in order: those for which a comparison holds stand side by side, and few are looked at."""

    def __init__(self, rows: Values) -> None:
        self._rows = rows
        self._sorted: dict[int, tuple[NDArray[np.int64], Values]] = {}

    def hold_for_one_row(self, predicates: Predicates) -> NDArray[np.bool_]:
        """Which predicates hold for exactly one row; for many predicates."""
        if not len(predicates):
            return np.zeros(0, np.bool_)
        first, last = self._find_ranges(predicates)
        every, held = np.arange(len(predicates)), np.zeros(len(predicates), np.int8)
        narrow = np.argmin(last - first, axis=1)
        by = predicates.columns[every, narrow]
        for place in np.unique(by):
            at = np.flatnonzero(by == place)
            some, ends = predicates.take(at), (first[at, narrow[at]], last[at, narrow[at]])
            held[at] = _count_holding_rows(
                self._rows, self._sort(place)[0], *ends, some.columns, some.comparisons, some.values
            )
        return np.asarray(held == 1)

    def _find_ranges(self, predicates: Predicates) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each comparison where the rows begin and end for which it holds, in the order of its column."""
        first = np.zeros(predicates.columns.shape, np.int64)
        last = np.zeros(predicates.columns.shape, np.int64)
        for place in np.unique(predicates.columns):
            values, at = self._sort(place)[1], predicates.columns == place
            wanted, how = predicates.values[at], predicates.comparisons[at]
            first[at] = np.where(how == MOST, 0, np.searchsorted(values, wanted, "left"))
            until = np.where(how == LEAST, len(values), np.searchsorted(values, wanted, "right"))
            last[at] = np.where(np.isnan(wanted), first[at], until)
        return first, last

    def _sort(self, place: int) -> tuple[NDArray[np.int64], Values]:
        """The places of the rows that have a value of a column, in its order, and these values."""
        if place not in self._sorted:
            column = self._rows[:, place]
            order = np.argsort(column)[: int((~np.isnan(column)).sum())]  # NaN is last, and fits nothing
            self._sorted[place] = order, column[order]
        return self._sorted[place]


@nb.njit(cache=True, nogil=True)
def _count_holding_rows(rows, order, first, last, columns, comparisons, values):  # type: ignore[no-untyped-def]
    """For how many rows each predicate holds: 0, 1, or 2 for several. Rows are those from `first` to `last` in order"""
    found = np.zeros(len(columns), np.int8)
    for p in range(len(columns)):
        for place in range(first[p], last[p]):
            row = order[place]
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


TRIES = 200
"""So many predicates are tried for each that is wanted before the search is given up."""
ALIKE = 0.1
"""A control that is smaller than the original by more than this share draws a warning."""


def single_out_people(
    original: pa.Table,
    released: pa.Table,
    *,
    control: pa.Table | None = None,
    columns: Sequence[str] | None = None,
    attacks: int = 500,
    width: int = 3,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Guess predicates that single out one person of the original table.

    **Scenario.** The intruder has a released or synthetic table and guesses predicates such as "age at least 90 and
    ZIP code 69503"; success is a predicate that holds for exactly one person of the original table.
    **Method.** Predicates of `width` columns that hold for exactly one released row, made around random released rows:
    equality for categories, and for numbers the direction away from the median; the same predicates are put to a
    control table of other people. With `width` 1, values that occur once, least and greatest values.
    **Outcome.** Predicates that single out; the baseline makes them from random values of each column.

    A predicate of weight w singles out in a table of n people with chance n w (1 - w)^(n - 1) (Cohen and Nissim 2020):
    tables of different size are not comparable. So a larger control is cut to the size of the original by a random
    sample, and a smaller one draws a warning: no sample can make it larger.
    """
    chosen = tuple(columns or [name for name in released.column_names if name in original.column_names])
    # Predicates are made around rows that are drawn: from sorted ones, so that the order of a table changes nothing.
    drawn = [table.take(pa.array(order_rows(table, chosen))) for table in (released, control) if table is not None]
    rows, ordered = encode_tables([drawn[0], original, *drawn[1:]], chosen)
    generator, width = np.random.default_rng(seed), min(width, len(chosen))
    source = (
        list_single_values(rows[0], ordered) if width == 1 else draw_around_rows(rows[0], ordered, width, generator)
    )
    guessed = _find_different(source, rows[0], width, attacks, Deadline(seconds), progress)
    naive = draw_blindly(rows[0], ordered, width, len(guessed) or attacks, generator)
    others = _cut(rows[2], len(rows[1]), generator) if control is not None else None
    warnings = () if len(guessed) >= attacks else (f"only {len(guessed)} predicates single out a released row",)
    return Outcome(
        "singling out", f"Guessing what is true of one person only ({width} columns)", _rate(guessed, rows[1]),
        _rate(naive, rows[1]), None if others is None else _rate(guessed, others), figures={"width": width},
        warnings=(*warnings, *_warn_if_smaller(others, rows[1])),
    )  # fmt: skip


def _find_different(
    source: Iterable[Predicates],
    rows: Values,
    width: int,
    attacks: int,
    deadline: Deadline,
    progress: Progress | None,
) -> Predicates:
    """Different predicates that hold for one released row, as many as wanted if the search finds them."""
    found: list[Predicates] = []
    seen: set[bytes] = set()
    tried, searched = 0, SortedRows(rows)
    for batch in source:
        deadline.check()
        fresh = []
        alone = batch.take(searched.hold_for_one_row(batch))
        for place, key in enumerate(alone.keys()):
            if key not in seen and len(seen) < attacks:
                seen.add(key)
                fresh.append(place)
        found.append(alone.take(np.array(fresh, np.int64)))
        tell(progress, len(seen) / attacks)
        tried += len(batch) or BATCH  # where a column is empty, none is left of those drawn
        if len(seen) >= attacks or tried >= TRIES * attacks:
            break
    return Predicates.of(found, width)


def _cut(control: Values, size: int, generator: np.random.Generator) -> Values:
    if len(control) <= size:
        return control
    return control[np.sort(generator.choice(len(control), size, replace=False))]


def _warn_if_smaller(control: Values | None, original: Values) -> tuple[str, ...]:
    if control is None or len(control) >= (1 - ALIKE) * len(original):
        return ()
    told = f"the control has {len(control):,} rows and the original {len(original):,}"
    return (f"{told}: what is rare singles out less often in a smaller table; bring a control as large",)


def _rate(guessed: Predicates, rows: Values) -> Rate:
    return Rate(int(hold_for_one_row(guessed, rows).sum()), len(guessed))
