"""The plan of a question: nodes, steps, measurements with their noise, and the sensitivity that each is priced by.

**Contributions.** How much one unit may contribute to a question: the policy's bounds, as the question tightens them. A
question never loosens what the policy states. It may take another form of bounding, as long as no unit has more rows
over all groups than the policy's own form would let it have: the guarantee is that of the noise, which is made for the
form in force, and the form only decides which rows are given up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import Event
from deniable.dp.mechanisms import GaussianMechanism, KeyThreshold, LaplaceMechanism, QuantileMechanism
from deniable.errors import ParameterError, QueryRefused
from deniable.policy.budget import Budget, exact
from deniable.policy.schema import Bounding, PrivacyUnit
from deniable.query.algebra.relation import Measured, Relation, has_one_unit, unit_of
from deniable.query.joint import Block
from deniable.query.keys import Keys, PrivateKeys, PublicKeys
from deniable.query.measurements import Distinct, Measurement, Ordered, Part, Recipe, Rows, Total, Units
from deniable.query.sql.clauses import Clauses
from deniable.query.techniques.least_squares import Strategy

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
    mixed: Mixture | None = None
    """How it follows from the noisy numbers of a joint release; None where it has noise of its own."""

    def error(self, alpha: float) -> float:
        """The noise that is passed with probability alpha, in the measurement's own unit (ranks for quantiles)."""
        return float(self.accuracy(alpha) * self.unit)

    @property
    def unit(self) -> Fraction:
        """What one whole number of the measurement is worth: a step, its square, or one rank."""
        if isinstance(self.mechanism, QuantileMechanism):
            return Fraction(1)
        step: Fraction = getattr(self.measurement, "step", Fraction(1))
        return step**2 if isinstance(self.measurement, Total) and self.measurement.squared else step

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """The same in whole steps, for `size` numbers together."""
        if self.mixed is not None:
            return self.mixed.accuracy(self, alpha / size)
        found, parts = self.mechanism.accuracy(alpha, size), self.sensitivity.parts
        # Rounding parts to the nearest step adds half a step at most, and whole numbers differ by whole numbers.
        return found if parts == 1 else (found + parts // 2) // parts

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in steps (for a quantile, its rank error)."""
        spread = 1.0 if self.mixed is None else math.sqrt(self.mixed.squares)
        return spread * deviation(self.mechanism) / self.sensitivity.parts

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
class Mixture:
    """A number that is computed from several noisy ones: the sum of the squares of what it takes of each."""

    squares: float
    only: float | None = None
    """What it takes of the only one that it takes anything of."""

    def accuracy(self, placed: Placed, alpha: float) -> int:
        """The error in whole steps that is passed with probability alpha, rounding to a step included.

        A sum of Laplace noises has lighter tails than one Laplace noise of the same variance, whose quantile is
        ln(1 / alpha) / sqrt(2) deviations; near the middle those of a Gaussian are larger.
        """
        if self.only is not None:
            found = abs(self.only) * placed.mechanism.accuracy(alpha) / placed.sensitivity.parts
        else:
            factor = -NormalDist().inv_cdf(alpha / 2)
            if isinstance(placed.mechanism, LaplaceMechanism):
                factor = max(factor, math.log(1 / alpha) / math.sqrt(2))
            found = factor * placed.deviation
        return math.floor(found + 0.5)


@dataclass(frozen=True, slots=True)
class Joint:
    """Measurements that are released together: their block, what is measured of it, and the one noise for all."""

    block: Block
    strategy: Strategy
    sensitivity: Sensitivity
    mechanism: LaplaceMechanism | GaussianMechanism
    share: Fraction


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
    joints: tuple[Joint, ...] = ()
    """Releases that several measurements follow from."""

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
    """Equal for questions that measure the same: the key under which measurements are stored."""

    @property
    def free(self) -> bool:
        """Whether nothing about anybody is released."""
        return not any(step.placed or step.threshold for node in self.nodes for step in node.steps)


FINE = 1 << 20
"""Numbers that are scaled down are so fine that the most one unit adds in a group has at least so many parts."""


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

    A count scaled by 0.9 is no whole number; cut off to one it would be lost. In parts, less than reach / FINE is lost:
    a million people together lose less than one of them adds. What no unit can move needs no parts.

    >>> parts_for(1), parts_for(10_000_000), parts_for(0)
    (1048576, 1, 1)
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
    weight: int = 1
    """What is measured of several cells together: the L1 norm of what one row in one cell moves."""
    weight_squared: int = 1
    """The same for the square of the L2 norm."""

    @property
    def l1(self) -> int:
        """The L1 norm of the change of the whole vector."""
        return self.factor * self.groups * self.per_group * self.weight

    @property
    def l2_squared(self) -> int:
        """The squared L2 norm of the change of the whole vector."""
        each = self.per_group**2 * self.weight_squared
        return (self.factor**2 if self.signed else self.factor) * self.groups * each


def reach_of(measurement: Measurement, limits: Limits) -> int:
    """The most that one unit within the limits moves a measurement of one group.

    Where each row is a unit, its copies cannot be told from other units, and each of them is counted.
    """
    r = limits.rows if limits.rows is not None else 1
    match measurement:
        case Units():
            return r if limits.by_row else 1
        case Rows() | Ordered():
            return r
        case Distinct():
            return r * measurement.reach
        case Total(per_group=(int(low), int(high))):
            return max(abs(low), abs(high))
        case Total() | Part():
            return r * measurement.reach


def sensitivity_of(
    measurement: Measurement, limits: Limits, groups: int, replace: bool, whole: bool = False
) -> Sensitivity:
    """The sensitivity of a measurement over all groups of one grouping set; `whole` ones are not cut into parts."""
    reach = reach_of(measurement, limits)
    parts = 1 if whole else parts_of(measurement, limits)
    if limits.in_all and not is_bounded_in_each_group(measurement):
        groups = 1
    return Sensitivity(reach * parts, groups, 2 if replace else 1, is_signed(measurement), parts)


def parts_of(measurement: Measurement, limits: Limits) -> int:
    """Into how many parts a step is cut where a unit's numbers may be shrunk: all to a norm, or sums to so many rows.

    Distinct values and ranks are bounded by sampling in every form, and all numbers where rows are bounded over all
    groups; a sum with bounds of its own in each group is clamped.
    """
    shrunk = limits.scaled and not isinstance(measurement, Distinct | Ordered)
    summed = isinstance(measurement, Total | Part) and not is_bounded_in_each_group(measurement)
    sampled = summed and not (limits.by_row or limits.in_all)
    return parts_for(reach_of(measurement, limits)) if shrunk or sampled else 1


def is_bounded_in_each_group(measurement: Measurement) -> bool:
    """Whether what a unit adds to a group is bounded there, however many rows it has."""
    return isinstance(measurement, Units) or (isinstance(measurement, Total) and measurement.per_group is not None)


def is_shrunk_by_itself(measurement: Measurement) -> bool:
    """Whether it is a sum that stands for itself, and is bounded as a sum where numbers are scaled."""
    return isinstance(measurement, Total) and not (measurement.quotient or is_bounded_in_each_group(measurement))


def is_signed(measurement: Measurement) -> bool:
    """Whether a unit can add less than nothing."""
    match measurement:
        case Total(squared=True):
            return False
        case Distinct(lower=lower, upper=upper):
            return lower < 0 < upper
        case Total(per_group=(int(low), int(high))):
            return low < 0 < high
        case Total(lower=lower, upper=upper, center=center):
            return lower < center < upper
        case _:
            return False


GROUPS, IN_EACH, IN_ALL = "max_groups_contributed", "max_rows_per_group", "max_rows_contributed"


def bound_unit(node: Measured, clauses: Clauses) -> PrivacyUnit:
    """The unit with its contribution bounds; a question may tighten what the policy states, and never loosen it."""
    if not has_one_unit(node.input):
        raise QueryRefused("the tables of this question protect different units: rows in one, ids in another")
    unit = unit_of(node.input)
    named = clauses.options.get("privacy_unit_column")
    if named is not None and named.lower() != (unit.column or "").lower():
        raise QueryRefused("the privacy unit is the policy's to choose", expected=f"The unit is {unit}")
    if unit.is_row:
        return unit
    asked = {
        name: _parse_natural(clauses.options[name], name)
        for name in (GROUPS, IN_EACH, IN_ALL)
        if name in clauses.options
    }
    if IN_ALL in asked:
        return _bound_rows(unit, asked)
    return _bound_groups(unit, asked.get(GROUPS), asked.get(IN_EACH))


def _bound_rows(unit: PrivacyUnit, asked: dict[str, int]) -> PrivacyUnit:
    """So many rows over all groups, and no more than the policy's bounds make of groups times rows."""
    if len(asked) > 1:
        raise QueryRefused(
            f"{IN_ALL} bounds rows over all groups, and cannot stand beside bounds of groups",
            expected=f"{IN_ALL}, or {GROUPS} and {IN_EACH}",
        )
    return replace(unit, bounding=Bounding.ROWS, max_rows=_least(asked[IN_ALL], unit.rows_in_all))


def _bound_groups(unit: PrivacyUnit, groups: int | None, rows: int | None) -> PrivacyUnit:
    if unit.bounding is not Bounding.ROWS:
        groups, rows = _least(groups, unit.max_groups), _least(rows, unit.max_rows_per_group)
        return replace(unit, max_groups=groups, max_rows_per_group=rows)
    if groups is None and rows is None:
        return unit
    # From rows in all to groups and rows in each: their product stays within what the policy allows.
    most = unit.rows_in_all
    if most is not None:
        rows = None if rows is None else min(rows, most)
        groups = min(groups, most) if groups is not None else most // (rows or 1)
        rows = min(rows or most, most // groups)
    return replace(unit, bounding=Bounding.SAMPLE, max_rows=None, max_groups=groups, max_rows_per_group=rows)


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def _parse_natural(text: str, name: str) -> int:
    try:
        number = exact(text, name)
    except ParameterError:
        number = Fraction(0)
    if number.denominator != 1 or not 1 <= number <= 10**9:
        raise QueryRefused(f"{name} is not a whole number from 1 up")
    return int(number)


def bound_to_one_row(unit: PrivacyUnit) -> PrivacyUnit:
    """A unit that has one row by construction."""
    return replace(unit, bounding=Bounding.SAMPLE, max_rows=None, max_groups=1, max_rows_per_group=1)


def limits_of(
    places: tuple[int, ...], keys: Keys, unit: PrivacyUnit, found: tuple[Measurement, ...]
) -> tuple[Limits, int]:
    """The limits in force for a grouping set of an id unit, and in how many of its groups one unit can be."""
    cells = keys.cells if isinstance(keys, PublicKeys) else None
    if unit.bounding is Bounding.ROWS:
        most = unit.rows_in_all
        if most is None:
            raise _refuse_missing_bound("max_rows", IN_ALL, unit)
        return Limits(None, most, in_all=True), 1 if not places else min(most, cells or most)
    groups = 1 if not places else unit.max_groups
    if groups is None:
        raise _refuse_missing_bound("max_groups", GROUPS, unit)
    groups = min(groups, cells) if cells else groups
    rows = unit.max_rows_per_group
    if rows is None:
        if not all(is_bounded_in_each_group(measurement) for measurement in found):
            raise _refuse_missing_bound("max_rows_per_group", IN_EACH, unit)
        rows = 1
    # Scaling leaves a unit in all its keys; private keys are shown because somebody is in them, so they are sampled.
    # In one group all but sums are bounded by rows in every form, and both norms are one.
    scaled = unit.bounding is Bounding.SCALE and isinstance(keys, PublicKeys)
    scaled = scaled and (bool(places) or any(is_shrunk_by_itself(measurement) for measurement in found))
    chooses = bool(places) and (cells is None or groups < cells)
    norm = (2 if places else 1) if scaled else None
    return Limits(groups if chooses or scaled else None, rows, norm=norm), groups


MISSING_BOUNDS = {"max_rows": "rows", "max_groups": "groups", "max_rows_per_group": "rows of each group"}


def _refuse_missing_bound(name: str, option: str, unit: PrivacyUnit) -> QueryRefused:
    """Refuse a question for which nobody said how much of one person counts."""
    stated = f"{name}: 3, bounding: rows" if name == "max_rows" else f"{name}: 3"
    return QueryRefused(
        f"nobody said how many {MISSING_BOUNDS[name]} one person may contribute ({unit})",
        remedy=f"Say it in the policy, unit: {{column: {unit.column}, {stated}}}; in Python, {name}=3; or in the "
        f"question, OPTIONS ({option} = 3); or leave it to be found with noise: write CONTRIBUTION AUTO at the end",
    )
