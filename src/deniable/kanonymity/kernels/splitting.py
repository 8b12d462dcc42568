"""Mondrian: tuples split in two, again and again, by the column in which that saves most.

Codes stand in the order of each column's hierarchy, so that every group is a run of codes. `cuts[q, c]` is the lowest
level at which codes c - 1 and c of column q are one group: a column that is cut along its hierarchy may be cut only
between groups of the level just below the one that holds the whole run; an ordered column may be cut anywhere.
"""

from __future__ import annotations

import numba as nb
import numpy as np


@nb.njit(cache=True, nogil=True)
def _highest_cut(cuts, q, low, high):  # type: ignore[no-untyped-def]
    top = 0
    for c in range(low + 1, high + 1):
        if cuts[q, c] > top:
            top = cuts[q, c]
    return top


@nb.njit(cache=True, nogil=True)
def _parted(codes, order, a, b, q, cut, halves, spare):  # type: ignore[no-untyped-def]
    """Put the run in two: codes up to the cut first, or, where equal codes may be parted, two halves by code."""
    if halves:
        run = order[a:b].copy()
        keys = np.empty(b - a, np.int32)
        for i in range(b - a):
            keys[i] = codes[run[i], q]
        place = np.argsort(keys, kind="mergesort")
        for i in range(b - a):
            order[a + i] = run[place[i]]
        return a + (b - a) // 2
    middle, top = a, 0
    for i in range(a, b):
        if codes[order[i], q] <= cut:
            order[middle] = order[i]
            middle += 1
        else:
            spare[top] = order[i]
            top += 1
    for i in range(top):
        order[middle + i] = spare[i]
    return middle


@nb.njit(cache=True, nogil=True)
def _group_size(cuts, q, low, high, size):  # type: ignore[no-untyped-def]
    """How many leaves the smallest group has that holds a run."""
    if low == high:
        return 1
    level = _highest_cut(cuts, q, low, high)
    while low > 0 and cuts[q, low] <= level:
        low -= 1
    while high + 1 < size and cuts[q, high + 1] <= level:
        high += 1
    return high - low + 1


@nb.njit(cache=True, nogil=True)
def _median_cut(held, low, high, rows, k, cuts, q, tree, sets, size):  # type: ignore[no-untyped-def]
    """The allowed cut nearest to the median, and the rows that its two sides save by being narrower; -1 for none.

    A side is as wide as the values between its ends; along a tree, as the group that holds it, or with `sets` as the
    values that it has.
    """
    level = _highest_cut(cuts, q, low, high) if tree else 0
    under, cut, nearest, seen, seen_at, below = 0, -1, rows + 1, 0, 0, 0
    last = low  # the highest value at or below c that some row has
    left_end, present = low, 0
    for c in range(low, high + 1):
        if held[c] > 0:
            present += 1
    first_above = high
    for c in range(low, high):
        under += held[c]
        if held[c] > 0:
            seen += 1
            last = c
        if tree and cuts[q, c + 1] < level:
            continue
        if under >= k and rows - under >= k and abs(2 * under - rows) < nearest:
            nearest, cut, seen_at, below, left_end = abs(2 * under - rows), c, seen, under, last
    if cut < 0:
        return -1, 0.0
    for c in range(cut + 1, high + 1):
        if held[c] > 0:
            first_above = c
            break
    if tree and sets:
        saved = below * (present - seen_at) + (rows - below) * seen_at
    elif tree:
        whole = _group_size(cuts, q, low, high, size)
        one, other = _group_size(cuts, q, low, left_end, size), _group_size(cuts, q, first_above, high, size)
        saved = below * (whole - one) + (rows - below) * (whole - other)
    else:
        saved = below * (high - left_end) + (rows - below) * (first_above - low)
    return cut, float(saved)


@nb.njit(cache=True, nogil=True)
def split(codes, counts, k, sizes, cuts, along_tree, weights, relaxed, sets):  # type: ignore[no-untyped-def]
    """A tree of splits, each with at least k rows on both sides, at the median of the column that saves most.

    Returns the order of the tuples, in which every node of the tree is a run; begin, end and left child of every node
    (-1 for a leaf; the right child follows the left); and the lowest and highest code of every node in each column.
    With `relaxed`, tuples with equal codes may go to both sides; `sets` says that categories are written as sets.
    """
    n, width = codes.shape
    order = np.arange(n).astype(np.int32)
    room = 2 * max(n, 1) + 1
    begin, end = np.empty(room, np.int64), np.empty(room, np.int64)
    left = np.full(room, -1, np.int64)
    lows, highs = np.empty((room, width), np.int32), np.empty((room, width), np.int32)
    largest = 1
    for q in range(width):
        largest = max(largest, sizes[q])
    held = np.zeros((width, largest), np.int64)
    spare = np.empty(n, np.int32)
    begin[0], end[0] = 0, n
    nodes, at = 1, 0
    while at < nodes:
        a, b = begin[at], end[at]
        rows = 0
        for q in range(width):
            lows[at, q] = 2**30
            highs[at, q] = -1
        for i in range(a, b):
            t = order[i]
            rows += counts[t]
            for q in range(width):
                c = codes[t, q]
                if c < lows[at, q]:
                    lows[at, q] = c
                if c > highs[at, q]:
                    highs[at, q] = c
        if rows >= 2 * k:
            for q in range(width):
                for c in range(lows[at, q], highs[at, q] + 1):
                    held[q, c] = 0
            for i in range(a, b):
                t = order[i]
                for q in range(width):
                    held[q, codes[t, q]] += counts[t]
            best, cut, most = -1, -1, 0.0
            for q in range(width):
                low, high = lows[at, q], highs[at, q]
                if high <= low:
                    continue
                found, saved = _median_cut(held[q], low, high, rows, k, cuts, q, along_tree[q], sets, sizes[q])
                if found < 0 and relaxed and not along_tree[q]:
                    found, saved = low, float(rows) * (high - low) / 2.0
                worth = weights[q] * saved / max(sizes[q] - 1, 1)
                if found >= 0 and worth > most:
                    best, cut, most = q, found, worth
                elif found >= 0 and best < 0:
                    best, cut = q, found  # it saves nothing yet, but its parts may
            if best >= 0:
                middle = _parted(codes, order, a, b, best, cut, relaxed and not along_tree[best], spare)
                left[at] = nodes
                begin[nodes], end[nodes] = a, middle
                begin[nodes + 1], end[nodes + 1] = middle, b
                nodes += 2
        at += 1
    return order, begin[:nodes], end[:nodes], left[:nodes], lows[:nodes], highs[:nodes]
