"""Which nodes of a lattice lie below or above another, and which node is worth checking next.

Nodes are compared column by column, so that each column should lie in one piece of memory; or, where many are compared
again and again, by marks: one bit for every level of every column that a node has reached. A node lies below another
when it has no bit that the other lacks, which is one operation for 64 levels."""

from __future__ import annotations

from collections.abc import Sequence

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


Marks = NDArray[np.uint64]
"""One column for each node, one row for every 64 levels."""


class Scale:
    """How levels become marks: of all levels of all columns, each has a bit of its own."""

    def __init__(self, heights: Sequence[int]) -> None:
        first = [sum(height - 1 for height in heights[:q]) for q in range(len(heights) + 1)]
        self.words = max(1, -(-first[-1] // 64))
        self._columns, self._last = np.arange(len(heights)), np.array(heights, np.int64) - 1
        self._table: Marks = np.zeros((len(heights), max(heights, default=1), self.words), np.uint64)
        for q, height in enumerate(heights):
            for n in range(height):
                self._table[q, n] = self._split(((1 << n) - 1) << first[q])

    def _split(self, mask: int) -> list[int]:
        return [mask >> 64 * word & ((1 << 64) - 1) for word in range(self.words)]

    def mark(self, nodes: Nodes) -> Marks:
        """The marks of nodes."""
        marks = np.zeros((self.words, len(nodes)), np.uint64)
        for q, masks in enumerate(self._table):
            marks |= masks.T[:, nodes[:, q]]
        return marks

    def mark_one(self, levels: Sequence[int] | Nodes) -> Marks:
        """The marks of one node."""
        marks: Marks = np.bitwise_or.reduce(self._table[self._columns, np.asarray(levels, np.int64)], axis=0)
        return marks

    def mark_steps(self, levels: Sequence[int] | Nodes) -> Marks:
        """The marks of a node raised by one level in each column; in its last level it stays."""
        higher = np.minimum(np.asarray(levels, np.int64) + 1, self._last)
        return (self._table[self._columns, higher] | self.mark_one(levels)).T


def lie_below(marks: Marks, other: Marks) -> NDArray[np.bool_]:
    """Which nodes are at most as general as another in every column; for several others, a row for each."""
    fits: NDArray[np.bool_] = (marks[0] & ~other[0][..., None]) == 0
    for own, bound in zip(marks[1:], other[1:], strict=True):
        fits &= (own & ~bound[..., None]) == 0
    return fits


def lie_above(marks: Marks, other: Marks) -> NDArray[np.bool_]:
    """Which nodes are at least as general as another in every column; for several others, a row for each."""
    fits: NDArray[np.bool_] = (other[0][..., None] & ~marks[0]) == 0
    for own, bound in zip(marks[1:], other[1:], strict=True):
        fits &= (bound[..., None] & ~own) == 0
    return fits


def choose_pivot(marks: Marks, pivots: NDArray[np.int64], probes: NDArray[np.int64], *, additive: bool) -> int:
    """The pivot whose check removes most, whatever its outcome.

    Nodes stand in the order of their lower bounds. If a pivot fails, the nodes below it go. If it holds, at best those
    after it in the order go; where costs do not add up over columns, those above it. The smaller of both, estimated on
    probes, is what the check is worth.
    """
    seen, tried = marks[:, probes], marks[:, pivots]
    under = np.count_nonzero(lie_below(seen, tried), axis=1)
    if additive:
        after = len(probes) - np.searchsorted(probes, pivots)
    else:
        after = np.count_nonzero(lie_above(seen, tried), axis=1)
    return int(pivots[np.argmax(np.minimum(under, after))])


def climb(start: Nodes, tops: Nodes, scale: Scale, seen: Marks, accepted: Marks) -> tuple[Nodes, NDArray[np.int64]]:
    """A path upwards from a failing node that covers as many probes as it can, short of nodes known to be accepted.

    Returns the nodes of the path and how many probes, whose marks are `seen`, lie below each; the first is the start.
    """
    node, path = start, [start]
    cover = [int(np.count_nonzero(lie_below(seen, scale.mark_one(start))))]
    while True:
        raised = scale.mark_steps(node)
        steps = (node < tops) & ~lie_below(accepted, raised).any(axis=1)
        if not steps.any():
            return np.array(path), np.array(cover)
        covered = np.where(steps, np.count_nonzero(lie_below(seen, raised), axis=1), -1)
        best = int(np.argmax(covered))
        node = node.copy()
        node[best] += 1
        path.append(node)
        cover.append(int(covered[best]))
