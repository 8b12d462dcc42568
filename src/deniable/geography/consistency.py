"""Whole non-negative numbers that add up: from noisy counts of every area to a table in which children are parents.

**What is solved.** Totals come first, for the whole tree (`spine.fix_totals`). Then, going down the tree, the cells of
all children of one area are chosen together. They minimize the weighted squared distance to everything that was
measured of them and of whatever lies below them, among the non-negative numbers that add up to the parent's cells and
to the totals. Without bounds this is the weighted least squares estimate of the whole tree (Hay et al. 2010), since
`combine_upwards` first gives each area the best estimate from what lies below it. Then the cells become whole numbers
with the same sums.

**How.** The solution is max(0, z - s (b + u)): z is measured, s its variance, b has one number for each cell of the
parent, u one for each measured margin of each child. Each of them solves an equation in one unknown whose left side is
convex and falling, so Newton's method reaches it from the left. They are solved in turn: ascent of the dual by blocks.

All of it sees noisy numbers alone: it is post-processing, and costs nothing.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

SWEEPS = 60
"""Rounds over all equations, at most."""
NEWTON_STEPS = 2
"""Steps for one equation in each round; the equations of the parent's cells are solved to the end at last."""
TOLERANCE = 1e-2
"""The rounds end when no margin moves by more, in people: the numbers become whole afterwards."""
BUCKETS = 64
"""Fractions are ranked to this precision when they are rounded."""


def combine_upwards(own: Floats | None, variance: float, below: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """The best estimate for each area from what was measured of it and the sum of its children; and its variance.

    `own` is None where the level was not measured; `spread` is the variance of the sums, one for each area.
    """
    if own is None:
        return below, spread
    weight = spread / (spread + variance)
    return own * weight[:, None] + below * (1 - weight)[:, None], variance * weight


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def _fill(x: Any, z: Any, scale: Any, b: Any, u: Any, maps: Any, offsets: Any) -> None:
    """x = max(0, z - scale (b + u)) for the duals as they are."""
    children, cells = z.shape
    for c in range(children):
        s = scale[c]
        for k in range(cells):
            dual = b[k]
            for q in range(maps.shape[0]):
                dual += u[c, offsets[q] + maps[q, k]]
            value = z[c, k] - s * dual
            x[c, k] = value if value > 0.0 else 0.0


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def _solve_margin(
    z: Any, scale: Any, b: Any, u: Any, maps: Any, offsets: Any, q: int, targets: Any, ratio: float, used: Any
) -> float:
    """One measured margin of every child; says the largest change of its sums, in people."""
    children = z.shape[0]
    size = offsets[q + 1] - offsets[q]
    total, active, highest = np.empty(size), np.empty(size), np.empty(size)
    rest = np.empty(used.size)
    largest = 0.0
    for c in range(children):
        s = scale[c]
        for i in range(used.size):
            k = used[i]
            dual = b[k]
            for other in range(maps.shape[0]):
                if other != q:
                    dual += u[c, offsets[other] + maps[other, k]]
            rest[i] = z[c, k] - s * dual
        for _ in range(NEWTON_STEPS):
            total[:] = 0.0
            active[:] = 0.0
            highest[:] = -1e300
            for i in range(used.size):
                m = maps[q, used[i]]
                value = rest[i] - s * u[c, offsets[q] + m]
                if value > 0.0:
                    total[m] += value
                    active[m] += 1.0
                if rest[i] > highest[m]:
                    highest[m] = rest[i]
            moved = 0.0
            for m in range(size):
                at = offsets[q] + m
                old, wanted = u[c, at], targets[c, at]
                slope = s * (active[m] + ratio)
                if slope > 0.0:
                    new = old + (total[m] - wanted - ratio * s * old) / slope
                elif highest[m] > -1e300:  # nothing is above zero yet: the highest alone would be the whole margin
                    new = (highest[m] - wanted) / s
                else:
                    new = old
                u[c, at] = new
                moved = max(moved, abs(new - old) * s)
            largest = max(largest, moved)
            if moved < TOLERANCE * 0.1:
                break
    return largest


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def _solve_cells(
    z: Any, scale: Any, b: Any, u: Any, maps: Any, offsets: Any, parent: Any, used: Any, rest: Any, steps: int,
    close: float,
) -> float:  # fmt: skip
    """The sum over children of every cell; says the largest change. `rest` is room for z less the other duals."""
    children = z.shape[0]
    total, active, highest = np.empty(used.size), np.empty(used.size), np.empty(used.size)
    for c in range(children):
        for i in range(used.size):
            dual = 0.0
            for q in range(maps.shape[0]):
                dual += u[c, offsets[q] + maps[q, used[i]]]
            rest[c, i] = z[c, used[i]] - scale[c] * dual
    largest = 0.0
    for _ in range(steps):
        total[:] = 0.0
        active[:] = 0.0
        highest[:] = -1e300
        for c in range(children):
            s = scale[c]
            for i in range(used.size):
                value = rest[c, i] - s * b[used[i]]
                if value > 0.0:
                    total[i] += value
                    active[i] += s
                lone = (rest[c, i] - parent[used[i]]) / s
                if lone > highest[i]:
                    highest[i] = lone
        moved = 0.0
        for i in range(used.size):
            old = b[used[i]]
            new = old + (total[i] - parent[used[i]]) / active[i] if active[i] > 0.0 else highest[i]
            b[used[i]] = new
            moved = max(moved, abs(total[i] - parent[used[i]]))
        largest = max(largest, moved)
        if moved < close:
            break
    return largest


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def _shift_margins(scale: Any, b: Any, u: Any, maps: Any, offsets: Any, parent: Any, targets: Any, ratios: Any) -> None:
    """Move what the duals of cells and of a margin have in common to where the margin's sums are the parent's.

    Such a move changes no x, so solving in turn would need many rounds for it; along it the best place is known.
    """
    children, cells = u.shape[0], b.size
    spread = scale.sum()
    for q in range(maps.shape[0]):
        if ratios[q] == 0.0:
            continue
        shift = np.zeros(offsets[q + 1] - offsets[q])
        for k in range(cells):
            shift[maps[q, k]] -= parent[k]
        for m in range(shift.size):
            at = offsets[q] + m
            for c in range(children):
                shift[m] += targets[c, at] + ratios[q] * scale[c] * u[c, at]
            shift[m] /= ratios[q] * spread
            for c in range(children):
                u[c, at] -= shift[m]
        for k in range(cells):
            b[k] += shift[maps[q, k]]


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def fit_children(
    z: Any, scale: Any, parent: Any, bound: bool, maps: Any, offsets: Any, targets: Any, ratios: Any
) -> Any:
    """The cells of the children of one area, as real numbers.

    `z` has a row for each child and a column for each cell, `scale` its variance. `maps[q, k]` is the cell of margin q
    that cell k belongs to; `targets[c, offsets[q]:offsets[q + 1]]` is what was measured of it, with a variance of
    `ratios[q]` times that of a cell, and 0 where it must be met exactly. With `bound`, children add up to `parent`.
    """
    children, cells = z.shape
    b, u = np.zeros(cells), np.zeros((children, offsets[-1]))
    x = np.zeros((children, cells))
    listed = np.empty(cells, np.int64)
    many = 0
    for k in range(cells):
        if not bound or parent[k] > 0:
            listed[many] = k
            many += 1
    used = listed[:many]
    if many == 0:
        return x
    rest = np.empty((children, many)) if bound else np.empty((1, 1))
    for _ in range(SWEEPS):
        moved = 0.0
        if bound:
            _shift_margins(scale, b, u, maps, offsets, parent, targets, ratios)
            moved = _solve_cells(z, scale, b, u, maps, offsets, parent, used, rest, NEWTON_STEPS, TOLERANCE * 0.1)
        change = 0.0
        for q in range(maps.shape[0]):
            change = max(change, _solve_margin(z, scale, b, u, maps, offsets, q, targets, ratios[q], used))
        if max(change, moved) < TOLERANCE and (bound or maps.shape[0] < 2 or change < TOLERANCE):
            break
        if maps.shape[0] == 0:
            break
    if bound:
        _solve_cells(z, scale, b, u, maps, offsets, parent, used, rest, 60, 1e-7)
    _fill(x, z, scale, b, u, maps, offsets)
    if bound:
        for k in range(cells):
            if parent[k] <= 0:
                x[:, k] = 0.0
    return x


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def round_children(x: Any, parent: Any, groups: Any, wanted: Any) -> Any:
    """Whole non-negative numbers near x: column k adds up to parent[k], and row c to wanted[c, j] within group j.

    Fractions are rounded up from the largest down where both sums have room. What is left is given to the rows that
    lack most, and last of all single people are moved within a column from rows with too many to rows with too few.
    """
    children, cells = x.shape
    out = np.empty((children, cells), np.int64)
    lack = wanted.copy()
    room = parent.copy()
    counts = np.zeros(BUCKETS + 1, np.int64)
    for c in range(children):
        for k in range(cells):
            whole = np.int64(np.floor(x[c, k] + 1e-6))
            out[c, k] = whole
            room[k] -= whole
            lack[c, groups[k]] -= whole
            fraction = x[c, k] - whole
            if fraction > 1e-4:
                counts[np.int64((1.0 - min(fraction, 1.0)) * BUCKETS)] += 1
    starts = np.zeros(BUCKETS + 2, np.int64)
    for i in range(BUCKETS + 1):
        starts[i + 1] = starts[i] + counts[i]
    order = np.empty(starts[BUCKETS + 1], np.int64)
    place = starts[: BUCKETS + 1].copy()
    for c in range(children):
        for k in range(cells):
            fraction = x[c, k] - out[c, k]
            if fraction > 1e-4:
                rank = np.int64((1.0 - min(fraction, 1.0)) * BUCKETS)
                order[place[rank]] = c * cells + k
                place[rank] += 1
    for at in order:
        c, k = at // cells, at % cells
        if room[k] > 0 and lack[c, groups[k]] > 0:
            out[c, k] += 1
            room[k] -= 1
            lack[c, groups[k]] -= 1
    _settle_columns(x, out, room, lack, groups)
    _settle_rows(x, out, lack, groups)
    return out


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def _settle_columns(x: Any, out: Any, room: Any, lack: Any, groups: Any) -> None:
    """Give what columns still have to rows that lack it, and take what they have too much."""
    children, cells = out.shape
    for k in range(cells):
        j = groups[k]
        while room[k] > 0:
            best, chosen = -1e300, 0
            for c in range(children):
                value = x[c, k] - out[c, k] + (1e6 if lack[c, j] > 0 else 0.0)
                if value > best:
                    best, chosen = value, c
            out[chosen, k] += 1
            room[k] -= 1
            lack[chosen, j] -= 1
        while room[k] < 0:
            best, chosen = -1e300, 0
            for c in range(children):
                value = out[c, k] - x[c, k] + (1e6 if lack[c, j] < 0 else 0.0)
                if out[c, k] > 0 and value > best:
                    best, chosen = value, c
            out[chosen, k] -= 1
            room[k] += 1
            lack[chosen, j] += 1


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def _settle_rows(x: Any, out: Any, lack: Any, groups: Any) -> None:
    """Move people within columns from rows that have too many to rows that have too few."""
    children, cells = out.shape
    for j in range(lack.shape[1]):
        poor = 0
        for c in range(children):
            while lack[c, j] < 0:
                while lack[poor, j] <= 0:
                    poor += 1
                best, chosen = -1e300, -1
                for k in range(cells):
                    if groups[k] == j and out[c, k] > 0:
                        value = out[c, k] - x[c, k] + x[poor, k] - out[poor, k]
                        if value > best:
                            best, chosen = value, k
                out[c, chosen] -= 1
                out[poor, chosen] += 1
                lack[c, j] += 1
                lack[poor, j] -= 1


def round_totals(x: Floats, parent: NDArray[Any]) -> Counts:
    """Whole totals of the children near those of x, in each group; each column adds up to the parent's total.

    >>> round_totals(np.array([[1.4], [2.6], [3.0]]), np.array([7])).tolist()
    [[1], [3], [3]]
    """
    whole = np.floor(x + 1e-6).astype(np.int64)
    for j in range(x.shape[1]):
        missing = int(parent[j] - whole[:, j].sum())
        order = np.argsort(whole[:, j] - x[:, j], kind="stable")
        if missing > 0:
            for turn in range(missing):
                whole[order[turn % len(order)], j] += 1
        while missing < 0:
            for row in order[::-1]:
                if missing < 0 and whole[row, j] > 0:
                    whole[row, j] -= 1
                    missing += 1
    return whole


def round_alone(x: Floats, groups: Counts, wanted: Counts) -> Counts:
    """Whole non-negative numbers near x that add up to wanted[j] in each group of cells."""
    whole = np.floor(x + 1e-6).astype(np.int64)
    for j, total in enumerate(wanted):
        inside = np.flatnonzero(groups == j)
        missing = int(total - whole[inside].sum())
        order = inside[np.argsort(whole[inside] - x[inside], kind="stable")]
        for turn in range(max(missing, 0)):
            whole[order[turn % len(order)]] += 1
        while missing < 0:
            for cell in order[::-1]:
                if missing < 0 and whole[cell] > 0:
                    whole[cell] -= 1
                    missing += 1
    return whole
