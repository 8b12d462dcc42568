"""Rows put into groups of at least k: Mondrian splits tuples in two, MDAV gathers the nearest rows.

Mondrian splits again and again, by the column in which that saves most. Codes stand in the order of each column's
hierarchy, so that every group is a run of codes. `cuts[q, c]` is the lowest level at which codes c - 1 and c of column
q are one group: a column that is cut along its hierarchy may be cut only between groups of the level just below the
one that holds the whole run; an ordered column may be cut anywhere.

MDAV takes groups of k nearest rows around the two rows that are farthest from the middle and from each other."""

from __future__ import annotations

import numba as nb
import numpy as np


@nb.njit(cache=True, nogil=True)
def _find_highest_cut(cuts, q, low, high):  # type: ignore[no-untyped-def]
    top = 0
    for c in range(low + 1, high + 1):
        if cuts[q, c] > top:
            top = cuts[q, c]
    return top


@nb.njit(cache=True, nogil=True)
def _split_run(codes, order, a, b, q, cut, halves, spare):  # type: ignore[no-untyped-def]
    """Put the run in two: codes up to the cut first, or, where equal codes may be parted, two halves by code."""
    if halves:
        run = order[a:b].copy()
        low = high = codes[run[0], q]
        for i in range(b - a):
            low, high = min(low, codes[run[i], q]), max(high, codes[run[i], q])
        starts = np.zeros(high - low + 2, np.int64)
        for i in range(b - a):
            starts[codes[run[i], q] - low + 1] += 1
        for c in range(1, starts.size):
            starts[c] += starts[c - 1]
        for i in range(b - a):
            c = codes[run[i], q] - low
            order[a + starts[c]] = run[i]
            starts[c] += 1
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
def _count_group(cuts, q, low, high, size):  # type: ignore[no-untyped-def]
    """How many leaves the smallest group has that holds a run."""
    if low == high:
        return 1
    level = _find_highest_cut(cuts, q, low, high)
    while low > 0 and cuts[q, low] <= level:
        low -= 1
    while high + 1 < size and cuts[q, high + 1] <= level:
        high += 1
    return high - low + 1


@nb.njit(cache=True, nogil=True)
def _find_median_cut(held, low, high, rows, k, cuts, q, tree, sets, size):  # type: ignore[no-untyped-def]
    """The allowed cut nearest to the median, and the rows that its two sides save by being narrower; -1 for none.

    A side is as wide as the values between its ends; along a tree, as the group that holds it, or with `sets` as the
    values that it has.
    """
    level = _find_highest_cut(cuts, q, low, high) if tree else 0
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
        whole = _count_group(cuts, q, low, high, size)
        one, other = _count_group(cuts, q, low, left_end, size), _count_group(cuts, q, first_above, high, size)
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
                found, saved = _find_median_cut(held[q], low, high, rows, k, cuts, q, along_tree[q], sets, sizes[q])
                if found < 0 and relaxed and not along_tree[q]:
                    found, saved = low, float(rows) * (high - low) / 2.0
                worth = weights[q] * saved / max(sizes[q] - 1, 1)
                if found >= 0 and worth > most:
                    best, cut, most = q, found, worth
                elif found >= 0 and best < 0:
                    best, cut = q, found  # it saves nothing yet, but its parts may
            if best >= 0:
                middle = _split_run(codes, order, a, b, best, cut, relaxed and not along_tree[best], spare)
                left[at] = nodes
                begin[nodes], end[nodes] = a, middle
                begin[nodes + 1], end[nodes + 1] = middle, b
                nodes += 2
        at += 1
    return order, begin[:nodes], end[:nodes], left[:nodes], lows[:nodes], highs[:nodes]


@nb.njit(cache=True, nogil=True)
def _find_farthest(points, left, count, center):  # type: ignore[no-untyped-def]
    best, most = 0, -1.0
    for i in range(count):
        d = 0.0
        for q in range(points.shape[1]):
            gap = points[left[i], q] - center[q]
            d += gap * gap
        if d > most:
            best, most = i, d
    return best


@nb.njit(cache=True, nogil=True)
def _find_in_order(values, place):  # type: ignore[no-untyped-def]
    """The value that would stand in a place if they were in order; np.partition takes ten seconds to compile."""
    low, high = 0, values.size - 1
    while low < high:
        pivot, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return values[place]


@nb.njit(cache=True, nogil=True)
def _take_nearest(points, left, count, k, center, group_of, group, distances):  # type: ignore[no-untyped-def]
    """Give the k rows nearest to a point to a group, and close the gaps they leave; returns how many are left."""
    for i in range(count):
        d = 0.0
        for q in range(points.shape[1]):
            gap = points[left[i], q] - center[q]
            d += gap * gap
        distances[i] = d
    limit = _find_in_order(distances[:count].copy(), k - 1)
    taken = 0
    for i in range(count):  # all that are nearer than the k-th, then as many as fit that are as near as it
        if distances[i] < limit:
            taken += 1
    as_near = k - taken
    kept = 0
    for i in range(count):
        if distances[i] < limit:
            group_of[left[i]] = group
        elif distances[i] == limit and as_near > 0:
            group_of[left[i]] = group
            as_near -= 1
        else:
            left[kept] = left[i]
            kept += 1
    return kept


@nb.njit(cache=True, nogil=True)
def mdav(points, k):  # type: ignore[no-untyped-def]
    """The group of every row; groups have k rows, the last up to 2k - 1."""
    n, width = points.shape
    group_of = np.empty(n, np.int64)
    left = np.arange(n)
    distances = np.empty(n, np.float64)
    count, group = n, 0
    center = np.empty(width, np.float64)
    while count >= 2 * k:
        for q in range(width):
            total = 0.0
            for i in range(count):
                total += points[left[i], q]
            center[q] = total / count
        far = points[left[_find_farthest(points, left, count, center)]].copy()
        opposite = points[left[_find_farthest(points, left, count, far)]].copy()
        count = _take_nearest(points, left, count, k, far, group_of, group, distances)
        group += 1
        if count >= 2 * k:
            count = _take_nearest(points, left, count, k, opposite, group_of, group, distances)
            group += 1
    for i in range(count):
        group_of[left[i]] = group
    return group_of
