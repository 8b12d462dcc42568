"""The compiled step of drawing: moving records between the cells of one clique. Compiled once, cached on disk.

Kept apart because it needs numba, which `generate` imports only when records are moved. Its generator is splitmix64
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
def move_records(codes: Any, places: Any, strides: Any, target: Any, step: float, copied: float, state: Any) -> int:
    """Move records of a clique's cells toward the target counts, in place; says how many were moved.

    A cell's number is the sum of the codes at the clique's places, each times its stride (the last stride is 1).

    Cells with too many records give up a step's share of their surplus; cells with too few ask for a step's share of
    what they lack (both rounded by lot). A record that is moved copies a whole record of its new cell now and then,
    which keeps what other columns have to do with this clique.
    """
    cell_of = _cells_of(codes, places, strides)
    count = np.zeros(target.size, np.int64)
    for i in range(cell_of.size):
        count[cell_of[i]] += 1
    give, ask, copies = _plan_moves(count, target, step, copied, state)
    freed, sources, first = _choose_records(cell_of, count, give, copies, state)
    asked = _list_requests(ask)
    number: int = min(freed.size, asked.size)
    for j in range(number):
        _swap(asked, j, asked.size, state)
        _swap(freed, j, freed.size, state)
        i, cell = freed[j], asked[j]
        if copies[cell] > 0:
            copies[cell] -= 1
            source = sources[first[cell] + copies[cell]]
            for column in range(codes.shape[0]):
                codes[column, i] = codes[column, source]
        for k in range(places.size):
            codes[places[k], i] = cell // strides[k]
            cell = cell % strides[k]
    return number


@numba.njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _cells_of(codes: Any, places: Any, strides: Any) -> Any:
    """The cell of each record."""
    cell_of = np.zeros(codes.shape[1], np.int32)
    for k in range(places.size):
        place, stride = places[k], np.int32(strides[k])
        for i in range(codes.shape[1]):
            cell_of[i] += codes[place, i] * stride
    return cell_of


@numba.njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _plan_moves(count: Any, target: Any, step: float, copied: float, state: Any) -> Any:
    """How many records each cell gives up, how many it asks for, and how many of these are to be copies."""
    cells = target.size
    give, ask, copies = np.zeros(cells, np.int64), np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    for cell in range(cells):
        gap = target[cell] - count[cell]
        if gap < 0:
            give[cell] = min(int(-gap * step + _uniform(state)), count[cell])
        else:
            ask[cell] = int(gap * step + _uniform(state))
            if ask[cell] > 0 and count[cell] > 0:
                copies[cell] = min(int(ask[cell] * copied + _uniform(state)), ask[cell])
    return give, ask, copies


@numba.njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _choose_records(cell_of: Any, count: Any, give: Any, copies: Any, state: Any) -> Any:
    """The records that cells give up, those that are copied, and where each cell's begin among the latter.

    A cell's records are chosen at equal distances from a random start: a sum grows by the wanted share with each of
    them, and chooses one whenever it passes a whole number. That costs an addition a record, where lots would cost a
    random number. No cell both gives and asks, so one sum serves both.
    """
    cells = count.size
    sums, share = np.zeros(cells), np.zeros(cells)
    first, after = np.zeros(cells + 1, np.int64), np.zeros(cells, np.int64)
    for cell in range(cells):
        wanted = give[cell] + copies[cell]
        first[cell + 1], after[cell] = first[cell] + wanted, first[cell]
        if wanted > 0:
            share[cell], sums[cell] = wanted / count[cell], _uniform(state)
    held = np.empty(first[cells], np.int64)
    for i in range(cell_of.size):
        cell = cell_of[i]
        sums[cell] += share[cell]
        while sums[cell] >= 1.0:
            sums[cell] -= 1.0
            if after[cell] < first[cell + 1]:
                held[after[cell]] = i
                after[cell] += 1
    freed, free = np.empty(give.sum(), np.int64), 0
    for cell in range(cells):
        # Sums are rounded and may miss the last one: nothing more is given up then, and a copy repeats the first.
        if give[cell] > 0:
            for j in range(first[cell], after[cell]):
                freed[free] = held[j]
                free += 1
        else:
            for j in range(after[cell], first[cell + 1]):
                held[j] = held[first[cell]] if after[cell] > first[cell] else -1
            if after[cell] == first[cell]:
                copies[cell] = 0
    return freed[:free], held, first


@numba.njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _list_requests(ask: Any) -> Any:
    """Each cell as often as it asks."""
    asked, place = np.empty(ask.sum(), np.int64), 0
    for cell in range(ask.size):
        for _ in range(ask[cell]):
            asked[place] = cell
            place += 1
    return asked


@numba.njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _swap(values: Any, place: int, end: int, state: Any) -> None:
    """One step of a shuffle: any of the values from a place to an end comes to stand there."""
    other = place + int(_uniform(state) * (end - place))
    values[place], values[other] = values[other], values[place]


@numba.njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def move_records_within(codes: Any, places: Any, strides: Any, target: Any, inner: int, step: float, state: Any) -> int:
    """The same where some columns of the clique are given: records move between cells of one group alone.

    The given columns come first, so a group is a stretch of `inner` cells. Nothing is copied: a whole record of
    another would bring what belongs to other given values.
    """
    cell_of = _cells_of(codes, places, strides)
    count = np.zeros(target.size, np.int64)
    for i in range(cell_of.size):
        count[cell_of[i]] += 1
    give, ask, copies = _plan_moves(count, target, step, 0.0, state)
    freed, _, _ = _choose_records(cell_of, count, give, copies, state)
    asked = _list_requests(ask)
    number, f, a = 0, 0, 0
    for group in range(target.size // inner):
        last_f, last_a = f, a
        while last_f < freed.size and cell_of[freed[last_f]] // inner == group:
            last_f += 1
        while last_a < asked.size and asked[last_a] // inner == group:
            last_a += 1
        for j in range(min(last_f - f, last_a - a)):
            _swap(freed, f + j, last_f, state)
            _swap(asked, a + j, last_a, state)
            i, cell = freed[f + j], asked[a + j]
            for k in range(places.size):
                codes[places[k], i] = cell // strides[k]
                cell = cell % strides[k]
            number += 1
        f, a = last_f, last_a
    return number
