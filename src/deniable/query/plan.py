"""The plan of a question: what will be measured, with which mechanism, at which price. No row has been touched.

A plan is public. It can be explained, priced again (double entry), stored and compared; executing it is the only thing
that needs the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from deniable.dp.accounting import Event
from deniable.dp.mechanisms import GaussianMechanism, KeyThreshold, LaplaceMechanism, QuantileMechanism
from deniable.policy.budget import Budget
from deniable.policy.unit import PrivacyUnit
from deniable.query.keys import Keys, PrivateKeys
from deniable.query.measure import Measurement, Recipe
from deniable.query.relation import Measured, Relation
from deniable.query.sensitivity import Sensitivity
from deniable.query.sql.exact import Limits

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
        return float(self.mechanism.accuracy(alpha) * step)


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
