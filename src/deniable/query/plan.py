"""The plan of a question: what will be measured, with which mechanism, at which price. No row has been touched.

A plan is public. It can be explained, priced again (double entry), stored and compared; executing it is the only thing
that needs the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import Event
from deniable.dp.mechanisms import GaussianMechanism, KeyThreshold, LaplaceMechanism, QuantileMechanism
from deniable.policy.budget import Budget
from deniable.policy.schema import PrivacyUnit
from deniable.query.algebra.relation import Measured, Relation
from deniable.query.keys import Keys, PrivateKeys
from deniable.query.measurements import Measurement, Recipe
from deniable.query.sensitivity import Limits, Sensitivity

NoiseMechanism = LaplaceMechanism | GaussianMechanism | QuantileMechanism


@dataclass(frozen=True, slots=True)
class Placed:
    """A measurement with the mechanism that releases it; `column` is its name in the engine's answer."""

    column: str
    measurement: Measurement
    sensitivity: Sensitivity
    mechanism: NoiseMechanism
    share: Fraction
    """The part of the question's budget it gets."""

    def error(self, alpha: float) -> float:
        """The noise that is passed with probability alpha, in the measurement's own unit (ranks for quantiles)."""
        step = 1 if isinstance(self.mechanism, QuantileMechanism) else getattr(self.measurement, "step", Fraction(1))
        return float(self.accuracy(alpha) * step)

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """The same in whole steps, for `size` numbers together."""
        found, parts = self.mechanism.accuracy(alpha, size), self.sensitivity.parts
        # Rounding parts to the nearest step adds half a step at most, and whole numbers differ by whole numbers.
        return found if parts == 1 else (found + parts // 2) // parts

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in steps (for a quantile, its rank error)."""
        return deviation(self.mechanism) / self.sensitivity.parts

    def norm(self, gaussian: bool) -> float:
        """The norm of the sensitivity that its noise is made for, in steps."""
        exact = math.sqrt(self.sensitivity.l2_squared) if gaussian else self.sensitivity.l1
        return exact / self.sensitivity.parts

    def round_to_steps(self, noisy: NDArray[np.int64]) -> NDArray[np.int64]:
        """Noisy numbers in whole steps: post-processing."""
        parts = self.sensitivity.parts
        whole: NDArray[np.int64] = noisy if parts == 1 else noisy // parts + (2 * (noisy % parts) >= parts)
        return whole


def deviation(mechanism: NoiseMechanism) -> float:
    """The standard deviation of the noise (for a quantile, its rank error), by which strategies are compared."""
    match mechanism:
        case LaplaceMechanism(scale):
            return math.sqrt(2) * float(scale)
        case GaussianMechanism(variance):
            return math.sqrt(float(variance))
        case QuantileMechanism():
            return float(mechanism.accuracy(0.32))


@dataclass(frozen=True, slots=True)
class Step:
    """One grouping set: its keys, the contribution bounds in force, and its measurements."""

    places: tuple[int, ...]
    keys: Keys
    limits: Limits
    placed: tuple[Placed, ...]
    threshold: KeyThreshold | None = None
    threshold_share: Fraction = Fraction(0)
    counted_by_threshold: int | None = None
    """The place of a measurement that the threshold's own noisy count of units answers, at no further cost."""

    @property
    def private_keys(self) -> bool:
        """Whether keys must pass the threshold."""
        return isinstance(self.keys, PrivateKeys)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A noisy aggregation: one step for each grouping set, and how aggregates follow from measurements."""

    node: Measured
    measurements: tuple[Measurement, ...]
    recipes: tuple[Recipe, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """All a question needs: the relation that is public in the end, its noisy parts, and the price."""

    text: str
    relation: Relation
    nodes: tuple[NodePlan, ...]
    unit: PrivacyUnit | None
    asked: Budget | None
    event: Event
    cost: Budget
    strategy: str
    canonical: str
    """Equal for equal questions: the key under which an answer is stored."""

    @property
    def free(self) -> bool:
        """Whether nothing about anybody is released."""
        return not any(step.placed or step.threshold for node in self.nodes for step in node.steps)
