"""Distances between the distribution of a class and that of the table, and the tail of a class's counts."""

from __future__ import annotations

import numba as nb
import numpy as np


@nb.njit(cache=True, nogil=True)
def along_tree(starts, values, counts, sizes, groups, shares, steps):  # type: ignore[no-untyped-def]
    """Earth mover's distance of every class when moving between two values costs the height of their lowest ancestor.

    On a tree with `steps` equal steps from leaf to root, mass leaves each group of each level through one edge of
    weight 1/(2 steps), so the distance is the mean over levels of the positive part of the differences.
    """
    levels, size = groups.shape
    held = np.zeros(size, np.float64)
    out = np.zeros(starts.shape[0] - 1, np.float64)
    for c in range(out.shape[0]):
        total = 0.0
        for level in range(levels):
            for e in range(starts[c], starts[c + 1]):
                held[groups[level, values[e]]] += counts[e] / sizes[c]
            for e in range(starts[c], starts[c + 1]):
                g = groups[level, values[e]]
                if held[g] > shares[level, g]:
                    total += held[g] - shares[level, g]
                held[g] = 0.0
        out[c] = total / steps
    return out


@nb.njit(cache=True, nogil=True)
def along_order(starts, values, counts, sizes, shares):  # type: ignore[no-untyped-def]
    """Earth mover's distance of every class when values are equally spaced in their order.

    Between two neighbors flows the difference of the cumulative shares.
    """
    size = shares.shape[0]
    held = np.zeros(size, np.float64)
    out = np.zeros(starts.shape[0] - 1, np.float64)
    for c in range(out.shape[0]):
        for e in range(starts[c], starts[c + 1]):
            held[values[e]] += counts[e] / sizes[c]
        flow, total = 0.0, 0.0
        for v in range(size):
            flow += held[v] - shares[v]
            total += abs(flow)
        for e in range(starts[c], starts[c + 1]):
            held[values[e]] = 0.0
        out[c] = total / (size - 1) if size > 1 else 0.0
    return out


@nb.njit(cache=True, nogil=True)
def tails(starts, counts, rank):  # type: ignore[no-untyped-def]
    """For every class the most frequent value's count over the sum of all from the `rank`-th most frequent on."""
    out = np.empty(starts.shape[0] - 1, np.float64)
    for c in range(out.shape[0]):
        descending = -np.sort(-counts[starts[c] : starts[c + 1]])
        tail = 0
        for i in range(rank - 1, descending.shape[0]):
            tail += descending[i]
        out[c] = descending[0] / tail if tail > 0 else np.inf
    return out
