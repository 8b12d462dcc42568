"""Microaggregation: groups of at least k similar rows, in which every number is replaced by the group's mean.

MDAV (Domingo-Ferrer, Mateo-Sanz 2002; Domingo-Ferrer, Torra 2005) on standardized columns. Means and totals are kept,
as closely as floating point has them; spread within groups is lost. The result is k-anonymous on the columns that were
aggregated.

A map aggregates by place: coordinates (and a time) are cut to a grid, and cells with fewer than k rows are dropped.
What is left shows where people go without showing where one person goes. Two maps of the same rides at different
resolutions do not compose: the difference betrays who was dropped (`compose_grids`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError
from deniable.kanonymity.builders.exact import EXACT
from deniable.kanonymity.builders.numbers import truncate_coordinates
from deniable.kanonymity.composition import Composition, compose
from deniable.kanonymity.encoding import column_of, factorize, unify_spellings
from deniable.kanonymity.request import refuse_large_k

BLOCK = 20_000
"""MDAV compares each group with all rows that are left, so larger tables are first cut into blocks of neighbors."""

LARGEST = 1e100
"""Squares of larger numbers, added up over the rows of a table, may not be finite."""


@dataclass(frozen=True, eq=False, repr=False)
class Aggregated:
    """The aggregated table, the group of every row, and the share of the columns' variance that was lost."""

    table: pa.Table
    group_of: NDArray[np.int64]
    lost_variance: float


def microaggregate(table: pa.Table, columns: tuple[str, ...], k: int) -> Aggregated:
    """Replace numbers by the means of groups of at least k similar rows."""
    _refuse(table.num_rows, columns, k)
    raw = np.column_stack([_read_numbers(table, name) for name in columns])
    spread = raw.std(axis=0)
    points = (raw - raw.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    group_of = _group_points(points, k)
    means = _average_groups(raw, group_of)
    gone = ((raw - means) ** 2).mean(axis=0)[spread > 0] / spread[spread > 0] ** 2
    lost = float(gone.mean()) if len(gone) else 0.0
    for q, name in enumerate(columns):
        table = table.set_column(table.column_names.index(name), name, pa.array(means[:, q]))
    return Aggregated(table, group_of, lost)


def _refuse(rows: int, columns: tuple[str, ...], k: int) -> None:
    if k < 1 or not columns:
        happened = f"Microaggregation of {len(columns)} columns with k = {k}"
        raise ParameterError(happened, expected="k of at least 1, and at least one column")
    if rows < k:
        raise refuse_large_k(k, rows)


def _read_numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    column = column_of(table, name)
    if column.null_count:
        raise DataError(f"Column '{name}' has missing values, which have no mean", remedy="Leave out those rows first")
    try:
        numbers = np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"Column '{name}' is not one of numbers", remedy="Microaggregate numbers only") from None
    if not np.isfinite(numbers).all():
        raise DataError(
            f"Column '{name}' has infinite numbers, which have no mean", remedy="Leave out those rows first"
        )
    if not pa.types.is_floating(column.type) and np.abs(numbers).max(initial=0) >= EXACT:
        raise DataError(
            f"Column '{name}' has whole numbers or decimals beyond 2^53, which floating point does not tell apart",
            expected="Numbers between -2^53 and 2^53",
            remedy="Subtract a number from the column first, or generalize it in intervals",
        )
    if np.abs(numbers).max(initial=0) > LARGEST:
        raise DataError(
            f"Column '{name}' has numbers too large for a mean of groups",
            expected=f"Numbers between -{LARGEST:g} and {LARGEST:g}",
            remedy="Leave out those rows first, or state the column in a larger unit",
        )
    return numbers


def _group_points(points: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    from deniable.kanonymity.kernels.splitting import mdav

    group_of = np.empty(len(points), np.int64)
    groups = 0
    for block in _cut_blocks(points, np.arange(len(points)), max(BLOCK, 2 * k)):
        found = mdav(np.ascontiguousarray(points[block]), k)
        group_of[block] = found + groups
        groups += int(found.max(initial=-1)) + 1
    return group_of


def _cut_blocks(points: NDArray[np.float64], rows: NDArray[np.int64], most: int) -> list[NDArray[np.int64]]:
    """Rows cut at the median of their widest column until no part has more than `most`."""
    if len(rows) <= most:
        return [rows]
    widest = int(np.argmax(np.ptp(points[rows], axis=0)))
    order = rows[np.argsort(points[rows, widest], kind="stable")]
    half = len(order) // 2
    return _cut_blocks(points, order[:half], most) + _cut_blocks(points, order[half:], most)


def _average_groups(raw: NDArray[np.float64], group_of: NDArray[np.int64]) -> NDArray[np.float64]:
    sizes = np.bincount(group_of)
    columns = [(np.bincount(group_of, weights=raw[:, q]) / sizes)[group_of] for q in range(raw.shape[1])]
    return np.column_stack(columns)


@dataclass(frozen=True, eq=False, repr=False)
class Map:
    """A released map: one row a cell, with its count, and how many rows were dropped with their cells."""

    cells: pa.Table
    dropped: int


UNITS = {"minute": "m", "hour": "h", "day": "D", "week": "W", "month": "M"}
"""To what a time can be cut, with numpy's word for it."""


@dataclass(frozen=True, slots=True)
class Grid:
    """How a map is made: a place, or the two ends of a trip, cut to decimals of a degree, and perhaps a time.

    It tells no more of the rows than the map does.
    """

    places: tuple[str, ...]
    digits: int
    k: int
    person: str | None = None
    time: str | None = None
    every: str | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ParameterError(f"k is {self.k}", expected="k is at least 1")
        if len(set(self.columns)) != len(self.columns) or len(self.places) not in (2, 4):
            raise ParameterError(
                f"{len(set(self.places))} columns are named for a grid",
                expected="Latitude and longitude, once each; of a trip those of both ends",
            )
        if (self.time is None) != (self.every is None) or (self.every is not None and self.every not in UNITS):
            raise ParameterError("a time is cut to a unit", expected=f"A column, and one of {', '.join(UNITS)}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the map shows, coarser."""
        return self.places if self.time is None else (*self.places, self.time)


def release_grid(table: pa.Table, *places: str, digits: int, k: int, **further: str | None) -> Map:
    """Cells of 10^-digits degrees (and of a unit of time) with at least k rows, or people.

    A place is named by its south-western corner, a time by its beginning. `further` are person, time and every.
    """
    return cut_to_grid(table, Grid(places, digits, k, **further))


def cut_to_grid(table: pa.Table, grid: Grid) -> Map:
    """The map of a table."""
    classes, cells, kept = find_cells(table, grid)
    counts = np.bincount(classes[classes >= 0], minlength=len(cells))
    scale, shown = 10.0**grid.digits, cells[kept]
    named: dict[str, Any] = {
        name: np.round(shown[:, place] / scale, grid.digits) for place, name in enumerate(grid.places)
    }
    if grid.time is not None and grid.every is not None:
        began = shown[:, -1].astype(np.int64).astype(f"datetime64[{UNITS[grid.every]}]")
        named[grid.time] = pa.array(began.astype("datetime64[s]"), pa.timestamp("s"))
    return Map(pa.table(named | {"count": counts[kept]}), int(table.num_rows - counts[kept].sum()))


def find_cells(table: pa.Table, grid: Grid) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    """The cell of each row (-1 without a place or time), all cells, and which of them the map shows."""
    parts = [truncate_coordinates(_read_degrees(table, name), grid.digits) for name in grid.places]
    if grid.time is not None and grid.every is not None:
        parts.append(_cut_times(table, grid.time, grid.every))
    placed = np.column_stack(parts)
    known: NDArray[np.bool_] = np.asarray(np.isfinite(placed).all(axis=1), np.bool_)
    cells, found = np.unique(placed[known], axis=0, return_inverse=True)
    places = found.ravel()
    counts = np.bincount(places, minlength=len(cells))
    if grid.person is not None:
        counts = _count_people(column_of(table, grid.person), known, places, len(cells))
    classes = np.full(table.num_rows, -1, np.int64)
    classes[known] = places
    return classes, cells, counts >= grid.k


def _cut_times(table: pa.Table, name: str, every: str) -> NDArray[np.float64]:
    """The number of the unit of time that each row is in, since 1970; a week begins on a Thursday, as 1970 did."""
    try:
        times = pc.cast(column_of(table, name), pa.timestamp("s"), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        remedy = "Name a column of dates or times"
        raise DataError(f"Column '{name}' is not one of times", expected="Dates or times", remedy=remedy) from None
    seconds = pc.fill_null(pc.cast(times, pa.int64()), 0).to_numpy().astype("datetime64[s]")
    units = seconds.astype(f"datetime64[{UNITS[every]}]").astype(np.int64).astype(np.float64)
    return np.where(pc.is_null(times).to_numpy(zero_copy_only=False), np.nan, units)


def compose_grids(table: pa.Table, first: Grid, second: Grid) -> Composition:
    """What two maps of one table tell together: rows that a map drops are one group, which the other one divides.

    A row counts where one of the maps at least shows it. Of a coarse cell and the fine cells inside it, what the fine
    map dropped there is the difference; it may be one person.
    """
    found = [find_cells(table, grid) for grid in (first, second)]
    classes = [np.where((own >= 0) & kept[own], own, len(cells)) for own, cells, kept in found]
    shown = np.logical_or(*(own < len(cells) for own, (_, cells, _) in zip(classes, found, strict=True)))
    people = np.arange(table.num_rows) if first.person is None else factorize(
        unify_spellings(column_of(table, first.person))
    )[1]  # fmt: skip
    pairs = np.column_stack([classes[0], classes[1], people])[shown]
    counted = np.unique(pairs, axis=0)
    return compose(counted[:, 0], counted[:, 1], min(first.k, second.k))


def _count_people(
    people: pa.ChunkedArray, known: NDArray[np.bool_], places: NDArray[np.int64], cells: int
) -> NDArray[np.int64]:
    """How many different people are in each cell; rows of nobody count for none."""
    coded = factorize(unify_spellings(people))[1][known].astype(np.int64)
    pairs = np.unique(np.column_stack([places, coded])[coded >= 0], axis=0)
    return np.bincount(pairs[:, 0], minlength=cells)


def _read_degrees(table: pa.Table, name: str) -> NDArray[np.float64]:
    try:
        column = pc.cast(column_of(table, name), pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        remedy = "Name the columns of latitude and longitude"
        raise DataError(
            f"Column '{name}' is not one of coordinates", expected="Degrees as numbers", remedy=remedy
        ) from None
    return np.asarray(pc.fill_null(column, np.nan).to_numpy(), np.float64)
