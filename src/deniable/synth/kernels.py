"""The compiled step of drawing: moving records between the cells of one clique. Compiled once, cached on disk.

Its generator is splitmix64 (Steele, Lea and Flood 2014), seeded by the caller: drawing from public estimates needs no
secret, and the same seed gives the same records on every machine.
"""

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
def moved(codes: Any, places: Any, strides: Any, target: Any, step: float, copied: float, state: Any) -> int:
    """Move records of a clique's cells toward the target counts, in place; says how many were moved.

    A cell's number is the sum of the codes at the clique's places, each times its stride (the last stride is 1).

    Cells with too many records give up a step's share of their surplus, chosen at random; cells with too few ask for a
    step's share of what they lack (both rounded by lot). A record that is moved copies a whole record of its new cell
    now and then, which keeps what other columns have to do with this clique.
    """
    cells, records = target.size, codes.shape[1]
    count = np.zeros(cells, np.int64)
    cell_of = np.zeros(records, np.int64)
    for k in range(places.size):
        place, stride = places[k], strides[k]
        for i in range(records):
            cell_of[i] += codes[place, i] * stride
    for i in range(records):
        count[cell_of[i]] += 1
    start = np.zeros(cells + 1, np.int64)
    for cell in range(cells):
        start[cell + 1] = start[cell] + count[cell]
    after = start[:cells].copy()
    ranked = np.empty(records, np.int64)
    for i in range(records):
        ranked[after[cell_of[i]]] = i
        after[cell_of[i]] += 1
    freed = np.empty(records, np.int64)
    wanted = np.zeros(cells, np.int64)
    free, ask = 0, 0
    for cell in range(cells):
        gap = target[cell] - count[cell]
        if gap < 0:
            give = min(int(-gap * step + _uniform(state)), count[cell])
            for j in range(start[cell], start[cell] + give):
                k = j + int(_uniform(state) * (start[cell + 1] - j))
                ranked[j], ranked[k] = ranked[k], ranked[j]
                freed[free] = ranked[j]
                free += 1
        else:
            wanted[cell] = int(gap * step + _uniform(state))
            ask += wanted[cell]
    asked = np.empty(ask, np.int64)
    ask = 0
    for cell in range(cells):
        for _ in range(wanted[cell]):
            asked[ask] = cell
            ask += 1
    number = min(free, ask)
    for j in range(number):
        k = j + int(_uniform(state) * (ask - j))
        asked[j], asked[k] = asked[k], asked[j]
        k = j + int(_uniform(state) * (free - j))
        freed[j], freed[k] = freed[k], freed[j]
        i, cell = freed[j], asked[j]
        if count[cell] > 0 and _uniform(state) < copied:
            source = ranked[start[cell] + int(_uniform(state) * count[cell])]
            for column in range(codes.shape[0]):
                codes[column, i] = codes[column, source]
        for k in range(places.size):
            codes[places[k], i] = cell // strides[k]
            cell = cell % strides[k]
    return number
