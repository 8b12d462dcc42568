"""The compiled step of drawing: changing records until all cliques have their target counts. Compiled once, cached.

Kept apart because it needs numba, which `generate` imports only when records are changed. Its generator is splitmix64
(Steele, Lea and Flood 2014), seeded by the caller: drawing from public estimates needs no secret, and the same seed
gives the same records on every machine."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _uniform(state: Any) -> float:
    """The next number in [0, 1)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@numba.njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def exchange_values(
    records: Any, donors: Any, free: Any, places: Any, strides: Any, width: Any, offset: Any, excess: Any,
    first: Any, held: Any, tries: int, single: float, state: Any,
) -> int:  # fmt: skip
    """Change records in place until the cliques come near their targets; says how many changes were made.

    `records` has a row for each record, and so has `donors`, which may be the same. Clique k has `width[k]`
    columns at `places[k]`, and its cells begin at `offset[k]` of `excess`, which holds counts less targets. The cliques
    with column j are `held[first[j]:first[j+1]]`.

    In each try a record takes some values of a donor, both chosen by lot: of one free column, or of the free
    columns of one clique. The change is kept where the squared excess, summed over all cells of all
    cliques, falls. A record that leaves cell a for cell b changes that sum by 2 (excess[b] - excess[a] + 1), so a try
    costs only the cliques that hold a changed column.
    """
    old, new = np.empty(width.size, np.int64), np.empty(width.size, np.int64)
    seen = np.full(width.size, -1, np.int64)
    chosen, changed = np.empty(records.shape[1], np.int64), np.zeros(records.shape[1], np.bool_)
    is_free = np.zeros(records.shape[1], np.bool_)
    is_free[free] = True
    made = 0
    for turn in range(tries):
        own, other = int(_uniform(state) * records.shape[0]), int(_uniform(state) * donors.shape[0])
        size = _choose_columns(chosen, free, is_free, places, width, single, state)
        differing = 0
        for j in range(size):
            place = chosen[j]
            if records[own, place] != donors[other, place]:
                chosen[differing] = place
                changed[place] = True
                differing += 1
        moved, gain = 0, 0.0
        for j in range(differing):
            for at in range(first[chosen[j]], first[chosen[j] + 1]):
                k = held[at]
                if seen[k] == turn:
                    continue
                seen[k] = turn
                a = b = offset[k]
                for axis in range(width[k]):
                    place = places[k, axis]
                    here = records[own, place] * strides[k, axis]
                    a += here
                    b += donors[other, place] * strides[k, axis] if changed[place] else here
                old[moved], new[moved] = a, b
                moved += 1
                gain += excess[a] - excess[b] - 1.0
        if gain > 0.0:
            made += 1
            for m in range(moved):
                excess[old[m]] -= 1.0
                excess[new[m]] += 1.0
            for j in range(differing):
                records[own, chosen[j]] = donors[other, chosen[j]]
        for j in range(differing):
            changed[chosen[j]] = False
    return made


@numba.njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def swap_halves(cells: Any, sign: Any, excess: Any, tries: int, state: Any) -> None:
    """Swap records between two halves until each cell has nearly as many records in one as in the other.

    `cells` has a row for each record, with the cells that it is in, and `sign` says in which half it is, by 1 and -1;
    `excess` holds the sums of signs by cell. A swap is kept where the squared sums together fall. A record that leaves
    the half with sign s takes 2 s from its cells, and the other record adds it to its own: the squares change by
    4 (s excess[other] - s excess[own] + 2).
    """
    for _ in range(tries):
        own, other = int(_uniform(state) * sign.size), int(_uniform(state) * sign.size)
        s, gain = sign[own], 0
        if sign[other] == s:
            continue
        for k in range(cells.shape[1]):
            a, b = cells[own, k], cells[other, k]
            if a != b:
                gain += s * (excess[a] - excess[b]) - 2
        if gain > 0:
            for k in range(cells.shape[1]):
                excess[cells[own, k]] -= 2 * s
                excess[cells[other, k]] += 2 * s
            sign[own], sign[other] = -s, s


@numba.njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _choose_columns(chosen: Any, free: Any, is_free: Any, places: Any, width: Any, single: float, state: Any) -> int:
    """Write the columns of one try to `chosen`; says how many they are."""
    if _uniform(state) < single:
        chosen[0] = free[int(_uniform(state) * free.size)]
        return 1
    k, size = int(_uniform(state) * width.size), 0
    for axis in range(width[k]):
        if is_free[places[k, axis]]:
            chosen[size] = places[k, axis]
            size += 1
    return size
