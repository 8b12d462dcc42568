"""The plan of a question: nodes, steps, measurements with their noise, and the sensitivity that each is priced by."""

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
from deniable.query.measurements import Distinct, Measurement, Ordered, Recipe, Rows, Total, Units

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


FINE = 1 << 12
"""Numbers scaled to a norm are measured so finely that the most one unit adds in a group has at least so many parts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Contribution bounds; `groups` is None where no choice of groups is needed."""

    groups: int | None
    rows: int | None
    by_row: bool = False
    """Each row is a unit: nothing is bounded."""
    norm: int | None = None
    """1 or 2: the unit's vector over groups is scaled to this norm instead of choosing groups."""
    in_all: bool = False
    """`rows` bounds a unit's rows over all groups together."""

    @property
    def scaled(self) -> bool:
        """Whether vectors are scaled to a norm."""
        return self.norm is not None


def parts_for(reach: int) -> int:
    """Into how many parts a step is cut (a power of two) where one unit adds at most `reach` steps to a group.

    A count scaled by 0.9 is no whole number; cut off to one it would be lost. In parts, less than reach / FINE is lost.
    What no unit can move needs no parts.

    >>> parts_for(1), parts_for(10_000), parts_for(0)
    (4096, 1, 1)
    """
    parts = 1
    while 0 < parts * reach < FINE:
        parts *= 2
    return parts


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What one unit changes: in one group, and over how many groups; `factor` is 2 when units are replaced."""

    per_group: int
    groups: int
    factor: int = 1
    signed: bool = True
    """Whether one unit can move a measurement up and another can move it down."""
    parts: int = 1
    """Numbers are measured, and `per_group` is counted, in so many parts of a step."""

    @property
    def l1(self) -> int:
        """The L1 norm of the change of the whole vector."""
        return self.factor * self.groups * self.per_group

    @property
    def l2_squared(self) -> int:
        """The squared L2 norm of the change of the whole vector."""
        return (self.factor**2 if self.signed else self.factor) * self.groups * self.per_group**2


def reach_of(measurement: Measurement, rows: int | None) -> int:
    """The most that one unit with at most `rows` rows in a group moves a measurement of that group."""
    r = rows if rows is not None else 1
    match measurement:
        case Units():
            return 1
        case Rows() | Distinct() | Ordered():
            return r
        case Total(per_group=(int(low), int(high))):
            return max(abs(low), abs(high))
        case Total():
            return r * measurement.reach


def sensitivity_of(
    measurement: Measurement, limits: Limits, groups: int, replace: bool, whole: bool = False
) -> Sensitivity:
    """The sensitivity of a measurement over all groups of one grouping set; `whole` ones are not cut into parts."""
    reach = reach_of(measurement, limits.rows)
    # Distinct values are bounded by sampling in every form.
    parts = parts_for(reach) if limits.scaled and not whole and not isinstance(measurement, Distinct) else 1
    if limits.in_all and not is_bounded_in_each_group(measurement):
        groups = 1
    return Sensitivity(reach * parts, groups, 2 if replace else 1, is_signed(measurement), parts)


def is_bounded_in_each_group(measurement: Measurement) -> bool:
    """Whether what a unit adds to a group is bounded there, however many rows it has."""
    return isinstance(measurement, Units) or (isinstance(measurement, Total) and measurement.per_group is not None)


def is_signed(measurement: Measurement) -> bool:
    """Whether a unit can add less than nothing."""
    match measurement:
        case Total(squared=True):
            return False
        case Total(per_group=(int(low), int(high))):
            return low < 0 < high
        case Total(lower=lower, upper=upper, center=center):
            return lower < center < upper
        case _:
            return False
