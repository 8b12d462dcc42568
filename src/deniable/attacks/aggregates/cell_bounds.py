"""Cells behind published tables of counts: the least and the greatest that each can be, exact and proven.

A published count says what a sum of cells is; a suppressed one says at most within which limits it lies. Each bound is
found by a linear program and then proven in whole numbers, so nothing rests on the solver's rounding: from outside by
weights on what was published (weak duality holds for any weights), from inside by a table of whole numbers that has the
bound and fits everything published. Where the two do not meet, which needs three or more ways, whole numbers are
searched by branch and bound; such a bound is attained, and `searched` says that the solver alone vouches for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.attacks import solvers
from deniable.attacks.outcome import Deadline, Progress, tell
from deniable.attacks.solvers import find_determined, solve_least_squares
from deniable.errors import MissingExtra, ParameterError

Ints = NDArray[np.int64]
FAR = 1 << 40
"""Stands for no limit: larger than any count, small enough that a million of them can be added."""
MOST_CELLS = 100_000
FINENESS = 5040 << 12
"""Weights of a proof are multiples of one over this."""
ROUNDS = 50
MOST_NODES = 200
"""Branch and bound gives up after so many nodes; the bound then holds, but may not be the best."""
IMPOSSIBLE = "No table has these margins"
FITTING = "Margins of one and the same table, and limits that hold for every suppressed count"


@dataclass(frozen=True, eq=False)
class Margin:
    """Counts published over some axes of a table: each lies from `low` to `high`, which differ where it was hidden."""

    axes: tuple[int, ...]
    low: Ints
    high: Ints

    @staticmethod
    def of(axes: Sequence[int], counts: Any, suppressed: tuple[int, int] = (0, FAR)) -> Margin:
        """A margin whose hidden counts are None, and lie within `suppressed`.

        >>> Margin.of((0,), [12, None], (1, 4)).high.tolist()
        [12, 4]
        """
        shown = np.array(counts, dtype=object)
        hidden = np.array([count is None for count in shown.flat], np.bool_).reshape(shown.shape)
        low, high = (np.where(hidden, limit, shown).astype(np.int64) for limit in suppressed)
        return Margin(tuple(axes), low, high)

    @property
    def hidden(self) -> NDArray[np.bool_]:
        """Which counts were not published."""
        return np.asarray(self.low != self.high)


@dataclass(frozen=True, eq=False)
class CellBounds:
    """The least and the greatest each cell can be; `margins` has the same of every published table, `total` of all.

    Every bound holds. It is the best possible where `exact`; `searched` says where the solver alone vouches for that.
    A greatest of `FAR` is no limit.
    """

    low: Ints
    high: Ints
    exact: NDArray[np.bool_]
    searched: NDArray[np.bool_]
    margins: tuple[tuple[Ints, Ints], ...]
    total: tuple[int, int]

    @property
    def given_away(self) -> NDArray[np.bool_]:
        """Which cells are determined."""
        return np.asarray(self.low == self.high)

    @property
    def share(self) -> float:
        """The share of cells that are determined."""
        return float(self.given_away.mean()) if self.low.size else 0.0


def bound_two_way_cells(rows: Sequence[int], columns: Sequence[int]) -> CellBounds:
    """Bounds of a two-way table from its row and column sums: max(0, r + c - n) to min(r, c), each attained.

    >>> bounds = bound_two_way_cells([12, 18], [14, 16])
    >>> bounds.low.tolist(), bounds.high.tolist()
    ([[0, 0], [2, 4]], [[12, 12], [14, 16]])
    """
    first, second = np.asarray(rows, np.int64), np.asarray(columns, np.int64)
    if first.sum() != second.sum():
        raise ParameterError("The margins do not add up to the same total")
    down, across, total = first[:, None], second[None, :], int(first.sum())
    low, high = np.maximum(0, down + across - total), np.minimum(down, across)
    every, none = np.ones(low.shape, np.bool_), np.zeros(low.shape, np.bool_)
    return CellBounds(low, high, every, none, ((first, first), (second, second)), (total, total))


def bound_margins(shape: Sequence[int], margins: Sequence[Margin], *, seconds: float | None = None) -> CellBounds:
    """Bounds of every cell by the cheapest means that has them.

    Row and column sums of a two-way table have a closed form. Everything else is a linear program; without the solver
    (the extra `solvers`) bounds are those that follow by adding and subtracting alone.
    """
    sums = {margin.axes: margin for margin in margins}
    shown = not any(margin.hidden.any() for margin in margins)
    if shown and len(shape) == 2 and len(margins) == 2 and set(sums) == {(0,), (1,)}:
        _check(shape, margins)
        return bound_two_way_cells(sums[0,].low.tolist(), sums[1,].low.tolist())
    try:
        return bound_cells(shape, margins, seconds=seconds)
    except MissingExtra:
        return _bound_by_elimination(shape, margins)


def bound_cells(
    shape: Sequence[int],
    margins: Sequence[Margin],
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> CellBounds:
    """Bounds of every cell of a table of any dimension, and of every hidden count, from any set of published tables.

    **Scenario.** Tables of counts are published without noise, some cells suppressed; the intruder wants a cell.
    **Method.** Linear programs over whole tables that fit, proven in whole numbers; branch and bound where these leave
    a gap.
    **Outcome.** The least and greatest of every cell; a cell where both are one number is given away. When the seconds
    are over, the bounds that are left hold, but are not exact.
    """
    search = _Search(_System.of(shape, margins), Deadline(seconds))
    many = len(search.targets.low)
    for place in range(many):
        if search.deadline.passed:  # what is proven so far holds
            break
        search.settle(place)
        tell(progress, (place + 1) / many)
    return _collect(shape, margins, search.targets)


@dataclass(frozen=True, eq=False)
class _System:
    """What was published, as limits on sums of cells: entry (rows[i], cells[i]) says which cell is in which sum."""

    rows: Ints
    cells: Ints
    starts: Ints
    low: Ints
    high: Ints
    least: Ints
    most: Ints

    @staticmethod
    def of(shape: Sequence[int], margins: Sequence[Margin]) -> _System:
        size = _check(shape, margins)
        sums = [cells for margin in margins for cells in _list_members(shape, margin)]
        lengths = [len(cells) for cells in sums]
        low, high = (np.concatenate([getattr(each, end).ravel() for each in margins]) for end in ("low", "high"))
        rows, starts = np.repeat(np.arange(len(sums)), lengths), np.cumsum([0, *lengths])
        least, most = np.zeros(size, np.int64), np.full(size, FAR, np.int64)
        return _System(rows, np.concatenate(sums), starts, low, high, least, most)._propagate()

    def _propagate(self) -> _System:
        """Tighten by adding and subtracting: a cell is what its sum leaves when all others are as large as can be."""
        low, high, least, most = self.low.copy(), self.high.copy(), self.least.copy(), self.most.copy()
        for _ in range(ROUNDS):
            before = low.sum(), high.sum(), least.sum(), most.sum()
            small, large = self._add(least), self._add(most)
            low, high = np.maximum(low, small), np.minimum(high, large)
            np.minimum.at(most, self.cells, (high - small)[self.rows] + least[self.cells])
            np.maximum.at(least, self.cells, (low - large)[self.rows] + most[self.cells])
            most, high = (np.where(ends > FAR // 2, FAR, ends) for ends in (most, high))
            if (least > most).any() or (low > high).any():
                raise ParameterError(IMPOSSIBLE, expected=FITTING)
            if before == (low.sum(), high.sum(), least.sum(), most.sum()):
                break
        return replace(self, low=low, high=high, least=least, most=most)

    def _add(self, values: Ints) -> Ints:
        """The sums of values of cells."""
        sums = np.zeros(len(self.low), np.int64)
        np.add.at(sums, self.rows, values[self.cells])
        return sums

    def fits(self, table: Ints) -> bool:
        """Whether whole numbers for all cells agree with everything that was published."""
        sums = self._add(table)
        inside = (self.least <= table).all() and (table <= self.most).all()
        return bool(inside and (self.low <= sums).all() and (sums <= self.high).all())

    def prove(self, cost: Ints, weights: NDArray[np.float64]) -> int | None:
        """A lower bound of the cost, in whole numbers, that holds whatever the weights; None where they bound nothing.

        sum(cost x) = sum(w (A x)) + sum((cost - A'w) x), and each term is at least its least over the limits.
        """
        scaled = np.round(weights * FINENESS).astype(np.int64)
        scaled[(scaled < 0) & (self.high >= FAR)] = 0
        left = cost * FINENESS
        np.subtract.at(left, self.cells, scaled[self.rows])
        if ((left < 0) & (self.most >= FAR)).any():
            return None
        ends = np.where(scaled > 0, self.low, self.high), np.where(left > 0, self.least, self.most)
        parts = zip((scaled, left), ends, strict=True)
        total = sum(int(a) * int(b) for some, limits in parts for a, b in zip(some, limits, strict=True) if a)
        return -(-total // FINENESS)


def _check(shape: Sequence[int], margins: Sequence[Margin]) -> int:
    """How many cells the table has, if it can be bounded."""
    if not margins:
        raise ParameterError("No margin was given", expected="One or more published margins")
    for margin in margins:
        if margin.low.shape != tuple(shape[axis] for axis in margin.axes):
            raise ParameterError(f"A margin over axes {margin.axes} has another shape than the table")
        if (margin.low < 0).any() or (margin.low > margin.high).any() or (margin.low >= FAR // 2).any():
            raise ParameterError("A published count is negative or too large, or its limits are the wrong way round")
    size = math.prod(shape)
    if not 1 <= size <= MOST_CELLS:
        raise ParameterError(
            f"The tables together have {size:,} cells", expected=f"1 to {MOST_CELLS:,}",
            remedy="Bound fewer tables together, or tables with fewer columns",
        )  # fmt: skip
    return size


def _list_members(shape: Sequence[int], margin: Margin) -> Ints:
    """The cells in each count of a margin, in the order of the counts."""
    rest = [axis for axis in range(len(shape)) if axis not in margin.axes]
    cells = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64).reshape(tuple(shape))
    return cells.transpose([*margin.axes, *rest]).reshape(margin.low.size, -1)


class _Targets:
    """Sums of cells that are bounded: what is proven of each (`low`, `high`), and what tables that fit have of it.

    First stands every cell, then every count of every margin in its order, last the total.
    """

    def __init__(self, system: _System) -> None:
        cells = len(system.least)
        self.starts = np.concatenate([np.arange(cells), cells + system.starts[:-1], [cells + len(system.cells)]])
        self.cells = np.concatenate([np.arange(cells), system.cells, np.arange(cells)])
        self.low = np.concatenate([system.least, system.low, [system.least.sum()]])
        self.high = np.concatenate([system.most, system.high, [min(FAR, system.most.sum())]])
        self.least, self.greatest = np.full(len(self.low), FAR), np.full(len(self.low), -1)
        self.searched = np.zeros(len(self.low), np.bool_)

    def list_cells(self, place: int) -> Ints:
        """The cells of a target."""
        ends = [*self.starts, len(self.cells)]
        return self.cells[ends[place] : ends[place + 1]]

    def keep(self, table: Ints) -> None:
        """Remember what a table has of every target."""
        values = np.add.reduceat(table[self.cells], self.starts)
        self.least, self.greatest = np.minimum(self.least, values), np.maximum(self.greatest, values)

    def is_met(self, place: int, sign: int) -> bool:
        """Whether the proven bound from below (or above) is attained."""
        return bool(self.least[place] == self.low[place] if sign > 0 else self.greatest[place] == self.high[place])

    def take(self, place: int, sign: int, proven: int | None) -> None:
        """Take a proven lower bound of the target, or of its negative."""
        if proven is not None and sign > 0:
            self.low[place] = max(self.low[place], proven)
        elif proven is not None:
            self.high[place] = min(self.high[place], -proven)


class _Search:
    """Bounds of all targets in turn; a table found for one of them serves all others."""

    def __init__(self, system: _System, deadline: Deadline) -> None:
        self.optimize, sparse = solvers.load_optimize(), solvers.load_sparse()
        self.system, self.deadline, self.targets = system, deadline, _Targets(system)
        shape = len(system.low), len(system.least)
        self.matrix = sparse.csr_matrix((np.ones(len(system.rows)), (system.rows, system.cells)), shape=shape)
        self.limits = np.column_stack([system.least, _lift(system.most)]).astype(np.float64)
        self.even = system.low == system.high
        self.above, self.below = ~self.even & (system.high < FAR), ~self.even & (system.low > 0)
        self.uneven = sparse.vstack([self.matrix[self.above], -self.matrix[self.below]], format="csr")

    def settle(self, place: int) -> None:
        """Bound one target from both sides."""
        for sign in (1, -1):
            if not self.targets.is_met(place, sign):
                self._solve(place, sign)
            if not self.targets.is_met(place, sign) and (sign > 0 or self.targets.high[place] < FAR):
                self._search(place, sign)

    def _cost(self, place: int, sign: int) -> Ints:
        cost = np.zeros(len(self.system.least), np.int64)
        cost[self.targets.list_cells(place)] = sign
        return cost

    def _solve(self, place: int, sign: int) -> None:
        """The linear program: its weights prove a bound, its table, rounded, may attain it."""
        system, cost = self.system, self._cost(place, sign)
        found = self.optimize.linprog(
            cost, A_ub=self.uneven, b_ub=np.concatenate([system.high[self.above], -system.low[self.below]]),
            A_eq=self.matrix[self.even], b_eq=system.low[self.even], bounds=self.limits, method="highs",
        )  # fmt: skip
        if found.status == 2:
            raise ParameterError(IMPOSSIBLE, expected=FITTING)
        if found.status != 0:  # no limit, or the solver gave up: what is proven so far stands
            return
        weights, upper = np.zeros(len(system.low)), int(self.above.sum())
        weights[self.even] = found.eqlin.marginals
        weights[self.above] = found.ineqlin.marginals[:upper]
        weights[self.below] -= found.ineqlin.marginals[upper:]
        self.targets.take(place, sign, system.prove(cost, weights))
        self._keep(found.x)

    def _search(self, place: int, sign: int) -> None:
        """Whole numbers by branch and bound, where the linear program left a gap."""
        left = self.deadline.left
        found = self.optimize.milp(
            self._cost(place, sign), integrality=np.ones(len(self.limits)),
            bounds=self.optimize.Bounds(self.limits[:, 0], self.limits[:, 1]),
            constraints=self.optimize.LinearConstraint(self.matrix, self.system.low, _lift(self.system.high)),
            options={"mip_rel_gap": 0.0, "node_limit": MOST_NODES, "time_limit": np.inf if left is None else left},
        )  # fmt: skip
        if found.status == 2:
            raise ParameterError(f"{IMPOSSIBLE} in whole numbers", expected=FITTING)
        if found.x is None or not self._keep(found.x) or found.status != 0 or self.targets.is_met(place, sign):
            return
        self.targets.take(place, sign, int(np.round(found.fun)))
        self.targets.searched[place] = True

    def _keep(self, solution: NDArray[np.float64]) -> bool:
        """Keep a table, if it is one of whole numbers that fits."""
        table = np.round(solution).astype(np.int64)
        fits = self.system.fits(table)
        if fits:
            self.targets.keep(table)
        return fits


def _lift(limits: Ints) -> NDArray[np.float64]:
    return np.where(limits < FAR, limits, np.inf)


def _collect(shape: Sequence[int], margins: Sequence[Margin], targets: _Targets) -> CellBounds:
    """The targets, which stand in the order of cells, margins and total, as arrays."""
    size, tables = int(np.prod(shape, dtype=np.int64)), []
    at = size
    for margin in margins:
        ends = targets.low[at : at + margin.low.size], targets.high[at : at + margin.low.size]
        tables.append((ends[0].reshape(margin.low.shape), ends[1].reshape(margin.low.shape)))
        at += margin.low.size
    exact = (targets.least == targets.low) & (targets.greatest == targets.high)
    low, high = (ends[:size].reshape(tuple(shape)) for ends in (targets.low, targets.high))
    best, searched = (marks[:size].reshape(tuple(shape)) for marks in (exact, targets.searched))
    return CellBounds(low, high, best, searched, tuple(tables), (int(targets.low[-1]), int(targets.high[-1])))


def _bound_by_elimination(shape: Sequence[int], margins: Sequence[Margin]) -> CellBounds:
    """Without a solver: what follows by adding and subtracting, and cells that elimination determines."""
    system = _System.of(shape, margins)
    targets, size = _Targets(system), len(system.least)
    matrix = np.zeros((len(system.low), size), np.int64)
    matrix[system.rows, system.cells] = 1
    even = system.low == system.high
    if even.any():
        fixed = find_determined(matrix[even])
        values = np.round(solve_least_squares(matrix[even], system.low[even].astype(np.float64))).astype(np.int64)
        for ends in (targets.low, targets.high):
            ends[:size][fixed] = values[fixed]
    return _collect(shape, margins, targets)
