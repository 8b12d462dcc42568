"""Which nodes of a lattice lie below or above another, and which node is worth checking next.

Nodes are compared column by column, so that each column should lie in one piece of memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Nodes = NDArray[np.int8]


def at_most(nodes: Nodes, levels: Nodes) -> NDArray[np.bool_]:
    """Which nodes are at most as general as `levels` in every column."""
    fits = np.ones(len(nodes), np.bool_)
    for q, level in enumerate(levels):
        fits &= nodes[:, q] <= level
    return fits


def at_least(nodes: Nodes, levels: Nodes) -> NDArray[np.bool_]:
    """Which nodes are at least as general as `levels` in every column."""
    fits = np.ones(len(nodes), np.bool_)
    for q, level in enumerate(levels):
        fits &= nodes[:, q] >= level
    return fits


def choose_pivot(nodes: Nodes, pivots: NDArray[np.int64], probes: NDArray[np.int64], *, additive: bool) -> int:
    """The pivot whose check removes most, whatever its outcome.

    Nodes stand in the order of their lower bounds. If a pivot fails, the nodes below it go. If it holds, at best those
    after it in the order go; where costs do not add up over columns, those above it. The smaller of both, estimated on
    probes, is what the check is worth.
    """
    under, over = (np.ones((len(pivots), len(probes)), np.bool_) for _ in range(2))
    for q in range(nodes.shape[1]):
        tried, column = nodes[probes, q], nodes[pivots, q][:, None]
        under &= tried <= column
        if not additive:
            over &= tried >= column
    after = len(probes) - np.searchsorted(probes, pivots) if additive else np.count_nonzero(over, axis=1)
    return int(pivots[np.argmax(np.minimum(np.count_nonzero(under, axis=1), after))])


def climb(
    start: Nodes, tops: Nodes, nodes: Nodes, probes: NDArray[np.int64], accepted: Nodes
) -> tuple[Nodes, NDArray[np.int64]]:
    """A path upwards from a failing node that covers as many probes as it can, short of nodes known to be accepted.

    Returns the nodes of the path and how many probes lie below each; the first is the start itself.
    """
    seen, held, node = nodes.T.take(probes, axis=1), np.ascontiguousarray(accepted.T), start
    path, cover = [start], [int(at_most(seen.T, start).sum())]
    while True:
        steps = (node < tops) & (_count_above_steps(held, node) == 0)
        if not steps.any():
            return np.array(path), np.array(cover)
        covered = np.where(steps, _count_above_steps(seen, node), -1)
        best = int(np.argmax(covered))
        node = node.copy()
        node[best] += 1
        path.append(node)
        cover.append(int(covered[best]))


def _count_above_steps(columns: Nodes, node: Nodes) -> NDArray[np.int64]:
    """For each column, how many nodes are at most as general as `node` raised by one in that column."""
    distance = columns - node[:, None]
    many = (distance > 0).sum(axis=0, dtype=np.int8)
    reached = (distance == 1) & (many == 1)
    counts: NDArray[np.int64] = np.count_nonzero(many == 0) + reached.sum(axis=1)
    return counts
