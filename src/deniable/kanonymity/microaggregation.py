"""Microaggregation: groups of at least k similar rows, in which every number is replaced by the group's mean.

MDAV (Domingo-Ferrer, Mateo-Sanz 2002; Domingo-Ferrer, Torra 2005) on standardized columns. Means are kept exactly,
totals too; spread within groups is lost. The result is k-anonymous on the columns that were aggregated.

A map aggregates by place: coordinates are cut to a grid, and cells with fewer than k rows are dropped. What is left
shows where people go without showing where one person goes. Two maps of the same rides at different resolutions do
not compose: see `composition`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError, Infeasible, ParameterError, pluralize
from deniable.kanonymity.builders.numbers import truncate_coordinates
from deniable.kanonymity.encoding import column_of, factorize, unify_spellings

BLOCK = 20_000
"""MDAV compares each group with all rows that are left, so larger tables are first cut into blocks of neighbors."""


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
        remedy = "Ask for a smaller k, or add rows"
        raise Infeasible(
            f"k is {k}, and the table has {pluralize(rows, 'row')}", expected=f"k is at most {rows}", remedy=remedy
        )


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


def release_grid(
    table: pa.Table, latitude: str, longitude: str, *, digits: int, k: int, person: str | None = None
) -> Map:
    """Cells of 10^-digits degrees with at least k rows, or people; each is named by its south-western corner."""
    _refuse_k(k)
    y, x = (truncate_coordinates(_read_degrees(table, name), digits) for name in (latitude, longitude))
    known = np.isfinite(y) & np.isfinite(x)
    placed = np.column_stack([y[known], x[known]])
    cells, places, counts = np.unique(placed, axis=0, return_inverse=True, return_counts=True)
    kept, scale = counts >= k, 10.0**digits
    if person is not None:
        kept = _count_people(column_of(table, person), known, places.ravel(), len(cells)) >= k
    corners = np.round(cells[kept] / scale, digits)
    names = {latitude: corners[:, 0], longitude: corners[:, 1], "count": counts[kept]}
    return Map(pa.table(names), int(len(y) - counts[kept].sum()))


def _count_people(
    people: pa.ChunkedArray, known: NDArray[np.bool_], places: NDArray[np.int64], cells: int
) -> NDArray[np.int64]:
    """How many different people are in each cell; rows of nobody count for none."""
    coded = factorize(unify_spellings(people))[1][known].astype(np.int64)
    pairs = np.unique(np.column_stack([places, coded])[coded >= 0], axis=0)
    return np.bincount(pairs[:, 0], minlength=cells)


def _refuse_k(k: int) -> None:
    if k < 1:
        raise ParameterError(f"k is {k}", expected="k is at least 1")


def _read_degrees(table: pa.Table, name: str) -> NDArray[np.float64]:
    try:
        column = pc.cast(column_of(table, name), pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        remedy = "Name the columns of latitude and longitude"
        raise DataError(
            f"Column '{name}' is not one of coordinates", expected="Degrees as numbers", remedy=remedy
        ) from None
    return np.asarray(pc.fill_null(column, np.nan).to_numpy(), np.float64)
