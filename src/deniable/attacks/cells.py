"""Cells of a table from its published margins: how far each is bounded, and which are given away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.attacks import solvers
from deniable.attacks.base import Deadline, Progress, tell
from deniable.attacks.linear import determined
from deniable.errors import ParameterError, Stopped

Margin = tuple[tuple[int, ...], NDArray[np.int64]]
"""Which axes of the table a margin keeps, and its published counts."""


@dataclass(frozen=True, eq=False)
class CellBounds:
    """The least and the greatest each cell can be; `share` of the cells is given away exactly."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @property
    def given_away(self) -> NDArray[np.bool_]:
        """Which cells the margins determine."""
        return np.asarray(self.low == self.high)

    @property
    def share(self) -> float:
        """The share of cells that the margins determine."""
        return float(self.given_away.mean()) if self.low.size else 0.0


def two_way_bounds(rows: Sequence[int], columns: Sequence[int]) -> CellBounds:
    """Bounds of a two-way table from its row and column sums: max(0, r + c - n) to min(r, c), each attained.

    >>> bounds = two_way_bounds([12, 18], [14, 16])
    >>> bounds.low.tolist(), bounds.high.tolist()
    ([[0, 0], [2, 4]], [[12, 12], [14, 16]])
    """
    down, across = np.asarray(rows, np.int64)[:, None], np.asarray(columns, np.int64)[None, :]
    if down.sum() != across.sum():
        raise ParameterError("The margins do not add up to the same total")
    return CellBounds(np.maximum(0, down + across - down.sum()), np.minimum(down, across))


def cell_bounds(
    shape: Sequence[int],
    margins: Sequence[Margin],
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> CellBounds:
    """Bounds of every cell of a table of any dimension from any set of margins, by linear programming.

    The linear bounds, rounded inwards, always hold; where whole numbers allow less, the true bounds may be tighter.
    """
    matrix, totals = _constraints(shape, margins)
    cells = matrix.shape[1]
    optimize = solvers.scipy_optimize()
    low, high = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    deadline = Deadline(seconds)
    for cell in range(cells):
        deadline.check()
        ends = []
        for sign in (1.0, -1.0):
            cost = np.zeros(cells)
            cost[cell] = sign
            found = optimize.linprog(cost, A_eq=matrix, b_eq=totals, bounds=(0, None), method="highs")
            if found.status == 2:
                raise ParameterError("No table has these margins", expected="Margins of one and the same table")
            if found.status != 0:
                raise Stopped("The linear program was not solved", charge="")
            ends.append(sign * found.fun)
        low[cell], high[cell] = np.ceil(ends[0] - 1e-7), np.floor(ends[1] + 1e-7)
        tell(progress, (cell + 1) / cells)
    return CellBounds(low.reshape(tuple(shape)), high.reshape(tuple(shape)))


def linearly_determined(shape: Sequence[int], margins: Sequence[Margin]) -> NDArray[np.bool_]:
    """Which cells follow from the margins by adding and subtracting alone: no solver, any table of any counts."""
    return determined(_constraints(shape, margins)[0].astype(np.int64)).reshape(tuple(shape))


def _constraints(shape: Sequence[int], margins: Sequence[Margin]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    places = np.indices(tuple(shape)).reshape(len(shape), -1)
    rows, totals = [], []
    for axes, counts in margins:
        if counts.shape != tuple(shape[axis] for axis in axes):
            raise ParameterError(f"A margin over axes {axes} has another shape than the table")
        for position in np.ndindex(counts.shape):
            inside = np.all([places[axis] == at for axis, at in zip(axes, position, strict=True)], axis=0)
            rows.append(np.broadcast_to(inside, (places.shape[1],)).astype(np.float64))
            totals.append(float(counts[position]))
    if not rows:
        raise ParameterError("No margin was given", expected="One or more published margins")
    return np.array(rows), np.array(totals)
