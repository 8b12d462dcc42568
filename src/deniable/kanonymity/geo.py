"""The geographic scheme: cut coordinates to a grid, then drop the cells with fewer than k rows.

What is left shows where people go without showing where one person goes. Two releases of the same rides at different
resolutions do not compose: see `composition`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError
from deniable.kanonymity.builders.numbers import truncate_coordinates
from deniable.kanonymity.encoding import column_of


@dataclass(frozen=True, eq=False, repr=False)
class Map:
    """A released map: one row a cell, with its count, and how many rows were dropped with their cells."""

    cells: pa.Table
    dropped: int


def release_grid(table: pa.Table, latitude: str, longitude: str, *, digits: int, k: int) -> Map:
    """Cells of 10^-digits degrees with at least k rows; each is named by its south-western corner."""
    _refuse_k(k)
    y, x = (truncate_coordinates(_read_degrees(table, name), digits) for name in (latitude, longitude))
    known = np.isfinite(y) & np.isfinite(x)
    cells, counts = np.unique(np.column_stack([y[known], x[known]]), axis=0, return_counts=True)
    kept, scale = counts >= k, 10.0**digits
    corners = np.round(cells[kept] / scale, digits)
    names = {latitude: corners[:, 0], longitude: corners[:, 1], "count": counts[kept]}
    return Map(pa.table(names), int(len(y) - counts[kept].sum()))


def _refuse_k(k: int) -> None:
    if k < 1:
        raise ParameterError(f"k is {k}", expected="k is at least 1")


def _read_degrees(table: pa.Table, name: str) -> NDArray[np.float64]:
    try:
        column = pc.cast(column_of(table, name), pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"Column '{name}' is not one of coordinates", expected="Degrees as numbers") from None
    return np.asarray(pc.fill_null(column, np.nan).to_numpy(), np.float64)
