"""What a search is asked and what it answers: the lattice of generalizations, the problem, verdicts, proof, solution.

The lattice has one level for every column, ordered by 'at least as general in each'. A problem adds tuples,
hierarchies, privacy models, a quality measure and a limit on suppression."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deniable.kanonymity.encoding import Tuples
from deniable.kanonymity.hierarchy import Hierarchy
from deniable.kanonymity.models import AverageRisk, PrivacyModel
from deniable.kanonymity.models.base import Reference
from deniable.kanonymity.quality import Measure

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
        """Every node as a row of levels, the last column changing fastest; each column lies in one piece."""
        return np.indices(self.heights, dtype=np.int8).reshape(len(self.heights), -1).T

    def above(self, node: Levels) -> list[Levels]:
        """The nodes one step more general."""
        return [_step(node, q, 1) for q in range(len(node)) if node[q] + 1 < self.heights[q]]

    def below(self, node: Levels) -> list[Levels]:
        """The nodes one step less general."""
        return [_step(node, q, -1) for q in range(len(node)) if node[q] > 0]


def _step(node: Levels, column: int, by: int) -> Levels:
    return (*node[:column], node[column] + by, *node[column + 1 :])


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """One question to a search. `limit` is the number of rows that may be suppressed."""

    tuples: Tuples
    hierarchies: tuple[Hierarchy, ...]
    models: tuple[PrivacyModel, ...]
    measure: Measure
    limit: int = 0
    sensitive: tuple[str, ...] = ()
    references: Mapping[str, Reference] = field(default_factory=dict)
    risks: tuple[AverageRisk, ...] = ()

    @property
    def lattice(self) -> Lattice:
        """All combinations of levels."""
        return Lattice(tuple(h.height for h in self.hierarchies))

    @property
    def monotone(self) -> bool:
        """Whether a node that fails lets no node below it hold."""
        if self.limit == 0:
            return all(model.under_generalization for model in self.models)
        return not self.risks and all(model.under_suppression for model in self.models)

    @property
    def relaxed(self) -> tuple[PrivacyModel, ...]:
        """Models that follow from those asked and are monotone under suppression."""
        return tuple(dict.fromkeys(weaker for model in self.models for weaker in model.list_implied()))

    @property
    def strict(self) -> tuple[PrivacyModel, ...]:
        """Models that are not among the relaxed ones."""
        return tuple(model for model in self.models if not model.under_suppression)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check of one node found.

    `cost` is the quality measure with suppression; `base` without. `barred` says that no node below can be acceptable;
    `excess` is what suppression adds to the cost of every node below, at least; `floor` is what every node above costs
    at least.
    """

    levels: Levels
    acceptable: bool
    suppressed: int
    classes: int
    cost: float
    base: float
    barred: bool
    excess: float
    floor: float = 0.0


@dataclass(frozen=True, slots=True)
class Proof:
    """How a search came to its end: every node was checked, or lies below a node that fails, or costs too much.

    `complete` says that the three add up to all nodes, so that the solution is optimal; else `bound` is the least that
    any node could cost, and the solution is at most cost - bound away from the optimum.
    """

    nodes: int
    checks: int
    checked: int
    failing: int
    costly: int
    complete: bool
    bound: float


@dataclass(frozen=True, slots=True)
class Solution:
    """The best node found, what it costs and suppresses, and the proof."""

    levels: Levels
    cost: float
    suppressed: int
    classes: int
    proof: Proof

    @property
    def gap(self) -> float:
        """How far the optimum could be below the cost; 0 when the search is complete."""
        return max(0.0, self.cost - self.proof.bound)


Released = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LatticePoint:
    """One node: its levels, how general it is, what it costs, the mean risk of its release, and what became of it."""

    levels: Levels
    height: int
    cost: float | None
    base: float
    risk: float
    suppressed: int
    acceptable: bool
    chosen: bool


def list_lattice_points(verdicts: Iterable[Verdict], solution: Solution, rows: int) -> tuple[LatticePoint, ...]:
    """The nodes that a search checked, the least general first.

    Nodes that were excluded without a check are not there: their number stands in the proof. The risk is the
    marketer's, classes over released rows; a node without any released row has risk 0.
    """
    points = [
        LatticePoint(
            verdict.levels,
            sum(verdict.levels),
            verdict.cost if verdict.acceptable else None,
            verdict.base,
            verdict.classes / (rows - verdict.suppressed) if rows > verdict.suppressed else 0.0,
            verdict.suppressed,
            verdict.acceptable,
            verdict.levels == solution.levels,
        )
        for verdict in verdicts
    ]
    return tuple(sorted(points, key=lambda point: (point.height, point.levels)))
