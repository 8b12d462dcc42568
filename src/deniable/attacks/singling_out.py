"""Singling out: predicates that hold for exactly one person (the first criterion of WP29, Opinion 05/2014)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.base import Deadline, Outcome, Progress, Rate, tell
from deniable.attacks.codes import column, one
from deniable.attacks.nearest import is_number, numbers

EQUAL, LEAST, MOST = 0, 1, 2
Values = NDArray[np.float64]


def singling_out(
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
    """
    chosen = tuple(columns or [name for name in released.column_names if name in original.column_names])
    tables = [released, original, *([control] if control is not None else [])]
    coded, ordered = _coded(tables, chosen)
    generator, deadline = np.random.default_rng(seed), Deadline(seconds)
    medians = np.array([np.nanmedian(part) if len(part) and ordered[c] else 0.0 for c, part in enumerate(coded[0].T)])
    width = min(width, len(chosen))
    guessed = _guesses(coded[0], ordered, medians, width, attacks, generator, deadline, progress)
    naive = list(_random_guesses(coded[0], ordered, width, len(guessed) or attacks, generator))
    rates = [_rate(guessed, table) for table in coded[1:]]
    base = _rate(naive, coded[1])
    warnings = () if len(guessed) >= attacks else (f"only {len(guessed)} predicates single out a released row",)
    return Outcome(
        "singling out", f"Guessing what is true of one person only ({width} columns)", rates[0], base,
        rates[1] if control is not None else None, figures={"width": width}, warnings=warnings,
    )  # fmt: skip


Predicate = tuple[NDArray[np.int64], NDArray[np.int8], Values]
"""Columns, comparisons and values, all of which must hold."""


def _coded(tables: Sequence[pa.Table], chosen: Sequence[str]) -> tuple[list[Values], list[bool]]:
    """All tables as floats: numbers as they are, other values by their number; NaN fits nothing."""
    parts, ordered = [], []
    for name in chosen:
        columns = [column(table, name) for table in tables]
        numeric = all(is_number(part.type) for part in columns)
        ordered.append(numeric)
        if numeric:
            parts.append(np.concatenate([numbers(part) for part in columns]))
        else:
            codes = one(columns).astype(np.float64)
            parts.append(np.where(codes < 0, np.nan, codes))
    ends = np.cumsum([table.num_rows for table in tables])[:-1]
    return np.split(np.ascontiguousarray(np.column_stack(parts)), ends), ordered


def _guesses(
    rows: Values,
    ordered: Sequence[bool],
    medians: Values,
    width: int,
    attacks: int,
    generator: np.random.Generator,
    deadline: Deadline,
    progress: Progress | None,
) -> list[Predicate]:
    """Different predicates that hold for one released row."""
    found: dict[tuple[float, ...], Predicate] = {}
    source = _univariate(rows, ordered) if width == 1 else _multivariate(rows, ordered, medians, width, generator)
    for number, predicate in enumerate(source):
        if len(found) >= attacks or number >= 200 * attacks:
            break
        if number % 256 == 0:
            deadline.check()
            tell(progress, len(found) / attacks)
        if _holds(rows, *predicate) == 1:
            found.setdefault(tuple(np.concatenate(predicate).tolist()), predicate)
    return list(found.values())


def _multivariate(
    rows: Values, ordered: Sequence[bool], medians: Values, width: int, generator: np.random.Generator
) -> Iterator[Predicate]:
    count, columns = rows.shape
    while count:
        chosen = np.sort(generator.choice(columns, width, replace=False))
        values = rows[generator.integers(0, count), chosen]
        if np.isnan(values).any():
            continue
        away = np.where(values > medians[chosen], LEAST, MOST)
        yield chosen, np.where(np.array(ordered)[chosen], away, EQUAL).astype(np.int8), values


def _univariate(rows: Values, ordered: Sequence[bool]) -> Iterator[Predicate]:
    """Values that occur once, and below the least and above the greatest number."""
    for place in range(rows.shape[1]):
        known = rows[~np.isnan(rows[:, place]), place]
        if not len(known):
            continue
        values, times = np.unique(known, return_counts=True)
        at = np.array([place])
        if ordered[place]:
            yield at, np.array([MOST], np.int8), values[:1]
            yield at, np.array([LEAST], np.int8), values[-1:]
        for value in values[times == 1]:
            yield at, np.array([EQUAL], np.int8), np.array([value])


def _random_guesses(
    rows: Values, ordered: Sequence[bool], width: int, count: int, generator: np.random.Generator
) -> Iterator[Predicate]:
    """Values that columns can have, put together blindly."""
    for _ in range(count if len(rows) else 0):
        chosen = generator.choice(rows.shape[1], width, replace=False)
        values = rows[generator.integers(0, len(rows), width), chosen]
        either = generator.integers(0, 3, width)
        yield chosen, np.where(np.array(ordered)[chosen], either, EQUAL).astype(np.int8), values


def _rate(predicates: Sequence[Predicate], table: Values) -> Rate:
    return Rate(sum(_holds(table, *predicate) == 1 for predicate in predicates), len(predicates))


@nb.njit(cache=True, nogil=True)
def _holds(table, columns, comparisons, values):  # type: ignore[no-untyped-def]
    """For how many rows a predicate holds: 0, 1, or 2 for several."""
    held = 0
    for row in range(table.shape[0]):
        fits = True
        for c in range(len(columns)):
            cell = table[row, columns[c]]
            if comparisons[c] == 0:
                fits = cell == values[c]
            elif comparisons[c] == 1:
                fits = cell >= values[c]
            else:
                fits = cell <= values[c]
            if not fits:
                break
        if fits:
            held += 1
            if held == 2:
                return 2
    return held
