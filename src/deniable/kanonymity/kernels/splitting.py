"""Mondrian: tuples split in two, again and again, by the column in which they are widest.

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
def split(codes, counts, k, sizes, cuts, along_tree, weights, relaxed):  # type: ignore[no-untyped-def]
    """A tree of splits, each with at least k rows on both sides.

    Returns the order of the tuples, in which every node of the tree is a run; begin, end and left child of every node
    (-1 for a leaf; the right child follows the left); and the lowest and highest code of every node in each column.
    With `relaxed`, tuples with equal codes may go to both sides.
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
    held = np.zeros(largest, np.int64)
    tried = np.zeros(width, np.bool_)
    spare = np.empty(n, np.int32)
    begin[0], end[0] = 0, n
    nodes, at = 1, 0
    while at < nodes:
        a, b = begin[at], end[at]
        rows = 0
        for q in range(width):
            lows[at, q] = 2**30
            highs[at, q] = -1
            tried[q] = False
        for i in range(a, b):
            t = order[i]
            rows += counts[t]
            for q in range(width):
                c = codes[t, q]
                if c < lows[at, q]:
                    lows[at, q] = c
                if c > highs[at, q]:
                    highs[at, q] = c
        while rows >= 2 * k and left[at] < 0:
            widest, most = -1, 0.0
            for q in range(width):
                if not tried[q] and sizes[q] > 1:
                    span = weights[q] * (highs[at, q] - lows[at, q]) / (sizes[q] - 1)
                    if span > most:
                        widest, most = q, span
            if widest < 0:
                break
            q = widest
            tried[q] = True
            low, high = lows[at, q], highs[at, q]
            for c in range(low, high + 1):
                held[c] = 0
            for i in range(a, b):
                held[codes[order[i], q]] += counts[order[i]]
            level = _highest_cut(cuts, q, low, high) if along_tree[q] else 0
            under, cut, nearest = 0, -1, rows
            for c in range(low, high):
                under += held[c]
                if along_tree[q] and cuts[q, c + 1] < level:
                    continue
                if under >= k and rows - under >= k and abs(2 * under - rows) < nearest:
                    nearest, cut = abs(2 * under - rows), c
            parted = relaxed and not along_tree[q]
            if cut < 0 and not parted:
                continue
            middle, top = a, 0
            if parted:
                # Tuples are single rows here: sort the run by this column and cut it in the middle.
                run = order[a:b].copy()
                keys = np.empty(b - a, np.int32)
                for i in range(b - a):
                    keys[i] = codes[run[i], q]
                place = np.argsort(keys, kind="mergesort")
                for i in range(b - a):
                    order[a + i] = run[place[i]]
                middle = a + (b - a) // 2
            else:
                for i in range(a, b):
                    if codes[order[i], q] <= cut:
                        order[middle] = order[i]
                        middle += 1
                    else:
                        spare[top] = order[i]
                        top += 1
                for i in range(top):
                    order[middle + i] = spare[i]
            left[at] = nodes
            begin[nodes], end[nodes] = a, middle
            begin[nodes + 1], end[nodes + 1] = middle, b
            nodes += 2
        at += 1
    return order, begin[:nodes], end[:nodes], left[:nodes], lows[:nodes], highs[:nodes]
