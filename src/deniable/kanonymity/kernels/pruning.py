"""Which nodes of a lattice lie below or above another, and which node is worth checking next."""

from __future__ import annotations

import numba as nb
import numpy as np


@nb.njit(cache=True, nogil=True)
def at_most(nodes, levels):  # type: ignore[no-untyped-def]
    """Which nodes are at most as general as `levels` in every column."""
    count, width = nodes.shape
    out = np.empty(count, np.bool_)
    for i in range(count):
        fits = True
        for q in range(width):
            if nodes[i, q] > levels[q]:
                fits = False
                break
        out[i] = fits
    return out


@nb.njit(cache=True, nogil=True)
def at_least(nodes, levels):  # type: ignore[no-untyped-def]
    """Which nodes are at least as general as `levels` in every column."""
    count, width = nodes.shape
    out = np.empty(count, np.bool_)
    for i in range(count):
        fits = True
        for q in range(width):
            if nodes[i, q] < levels[q]:
                fits = False
                break
        out[i] = fits
    return out


@nb.njit(cache=True, nogil=True)
def choose_pivot(nodes, pivots, probes):  # type: ignore[no-untyped-def]
    """The pivot whose check removes most, whatever its outcome.

    Nodes stand in the order of their lower bounds. If a pivot fails, the nodes below it go; if it holds, at best those
    after it in the order go. The smaller of both, estimated on probes, is what the check is worth.
    """
    width = nodes.shape[1]
    winner, most = pivots[0], -1
    for j in range(pivots.shape[0]):
        p = pivots[j]
        under, after = 0, 0
        for i in range(probes.shape[0]):
            r = probes[i]
            if r >= p:
                after += 1
            fits = True
            for q in range(width):
                if nodes[r, q] > nodes[p, q]:
                    fits = False
                    break
            if fits:
                under += 1
        worth = min(under, after)
        if worth > most:
            most = worth
            winner = p
    return winner


@nb.njit(cache=True, nogil=True)
def climb(start, tops, nodes, probes, accepted):  # type: ignore[no-untyped-def]
    """A path upwards from a failing node that covers as many probes as it can, short of nodes known to be accepted.

    Returns the nodes of the path and how many probes lie below each; the first is the start itself.
    """
    width = start.shape[0]
    longest = 1
    for q in range(width):
        longest += tops[q] - start[q]
    path = np.empty((longest, width), np.int8)
    cover = np.zeros(longest, np.int64)
    path[0] = start
    for i in range(probes.shape[0]):
        fits = True
        for q in range(width):
            if nodes[probes[i], q] > start[q]:
                fits = False
                break
        if fits:
            cover[0] += 1
    length = 1
    node = start.copy()
    while True:
        best, most = -1, -1
        for q in range(width):
            if node[q] >= tops[q]:
                continue
            node[q] += 1
            known = False
            for a in range(accepted.shape[0]):
                over = True
                for z in range(width):
                    if accepted[a, z] > node[z]:
                        over = False
                        break
                if over:
                    known = True
                    break
            if not known:
                covered = 0
                for i in range(probes.shape[0]):
                    fits = True
                    for z in range(width):
                        if nodes[probes[i], z] > node[z]:
                            fits = False
                            break
                    if fits:
                        covered += 1
                if covered > most:
                    most = covered
                    best = q
            node[q] -= 1
        if best < 0:
            return path[:length], cover[:length]
        node[best] += 1
        path[length] = node
        cover[length] = most
        length += 1
