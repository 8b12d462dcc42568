"""The lattice of generalizations: one level for every column, ordered by 'at least as general in each'."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Levels = tuple[int, ...]

ENUMERABLE = 10_000_000
"""Lattices up to this size are searched with all nodes listed; larger ones best-first."""


@dataclass(frozen=True, slots=True)
class Lattice:
    """All combinations of levels; `heights` says how many levels each column has."""

    heights: tuple[int, ...]

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return math.prod(self.heights)

    @property
    def bottom(self) -> Levels:
        """Nothing generalized."""
        return (0,) * len(self.heights)

    @property
    def top(self) -> Levels:
        """Everything generalized."""
        return tuple(height - 1 for height in self.heights)

    def all(self) -> NDArray[np.int8]:
        """Every node as a row of levels, the last column changing fastest."""
        grid = np.indices(self.heights, dtype=np.int8)
        return np.ascontiguousarray(grid.reshape(len(self.heights), -1).T)

    def above(self, node: Levels) -> list[Levels]:
        """The nodes one step more general."""
        return [_step(node, q, 1) for q in range(len(node)) if node[q] + 1 < self.heights[q]]

    def below(self, node: Levels) -> list[Levels]:
        """The nodes one step less general."""
        return [_step(node, q, -1) for q in range(len(node)) if node[q] > 0]


def _step(node: Levels, column: int, by: int) -> Levels:
    return (*node[:column], node[column] + by, *node[column + 1 :])
