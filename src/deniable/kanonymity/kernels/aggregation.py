"""MDAV: groups of k nearest rows around the two rows that are farthest from the middle and from each other."""

from __future__ import annotations

import numba as nb
import numpy as np


@nb.njit(cache=True, nogil=True)
def _farthest(points, left, count, center):  # type: ignore[no-untyped-def]
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
def _take(points, left, count, k, center, group_of, group, distances):  # type: ignore[no-untyped-def]
    """Give the k rows nearest to a point to a group, and close the gaps they leave; returns how many are left."""
    for i in range(count):
        d = 0.0
        for q in range(points.shape[1]):
            gap = points[left[i], q] - center[q]
            d += gap * gap
        distances[i] = d
    limit = np.partition(distances[:count], k - 1)[k - 1]
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
        far = points[left[_farthest(points, left, count, center)]].copy()
        opposite = points[left[_farthest(points, left, count, far)]].copy()
        count = _take(points, left, count, k, far, group_of, group, distances)
        group += 1
        if count >= 2 * k:
            count = _take(points, left, count, k, opposite, group_of, group, distances)
            group += 1
    for i in range(count):
        group_of[left[i]] = group
    return group_of
