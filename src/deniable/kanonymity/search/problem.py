"""What a search is asked: tuples, hierarchies, privacy models, a quality measure, a limit on suppression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deniable.kanonymity.classes import Reference
from deniable.kanonymity.hierarchy import Hierarchy
from deniable.kanonymity.lattice import Lattice, Levels
from deniable.kanonymity.models import AverageRisk, PrivacyModel
from deniable.kanonymity.quality import Measure
from deniable.kanonymity.tuples import Tuples


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
        return tuple(dict.fromkeys(weaker for model in self.models for weaker in model.implied()))

    @property
    def strict(self) -> tuple[PrivacyModel, ...]:
        """Models that are not among the relaxed ones."""
        return tuple(model for model in self.models if not model.under_suppression)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check of one node found.

    `cost` is the quality measure with suppression; `base` without. `barred` says that no node below can be acceptable;
    `excess` is what suppression adds to the cost of every node below, at least.
    """

    levels: Levels
    acceptable: bool
    suppressed: int
    classes: int
    cost: float
    base: float
    barred: bool
    excess: float


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


Trace = list[tuple[Levels, Verdict]]
"""Every verdict in the order of the checks, for the picture of the lattice."""

Released = NDArray[np.bool_]
