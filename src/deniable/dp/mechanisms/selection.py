"""Choosing the best of several candidates by integer scores: the exponential mechanism and report-noisy-max."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.calibration import epsilon_of
from deniable.dp.accounting.cost import round_down, sqrt_above
from deniable.dp.accounting.events import SelectionEvent
from deniable.dp.mechanisms.mechanism import Integers, require_positive, split_alpha, take_integers
from deniable.dp.samplers import SYSTEM, Entropy, exponential_choice, permute_and_flip
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, Amount, Budget

LARGEST_UNIT = 1 << 40
BOUNDED_RANGE = 8
"""Where epsilon^2 / 8, the zCDP price of a choice with bounded range, passes epsilon."""


@dataclass(frozen=True, slots=True)
class ExponentialMechanism:
    """Chooses a candidate with probability proportional to exp(unit * score).

    **Guarantee.** epsilon-DP, with privacy losses in a range of width epsilon (so epsilon^2 / 8 in zCDP), for scores
    that one unit moves by at most `sensitivity` each. unit = epsilon / (2 sensitivity): numerator and normalizer each
    change by at most exp(epsilon / 2). If one unit moves all scores in the same direction (`monotonic`, such as
    counts), they change together and unit = epsilon / sensitivity.
    **Utility.** The chosen score is within ln(size / alpha) / unit of the best with probability 1 - alpha.
    **Runtime.** Linear in the candidates.

    >>> ExponentialMechanism(1, sensitivity=1, monotonic=True).accuracy(0.05, size=100)
    7
    """

    epsilon: Fraction
    sensitivity: Fraction = Fraction(1)
    monotonic: bool = False

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def within(cls, budget: Budget, sensitivity: Amount = 1, *, monotonic: bool = False) -> ExponentialMechanism:
        """The sharpest choice that keeps a budget."""
        return cls(epsilon_of_bounded_range(budget), require_positive(sensitivity, "sensitivity"), monotonic)

    @property
    def unit(self) -> Fraction:
        """The factor of a score in the exponent."""
        return _unit(self.epsilon, self.sensitivity, self.monotonic)

    @property
    def event(self) -> SelectionEvent:
        """A choice with bounded range."""
        return SelectionEvent(self.epsilon, bounded_range=True)

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """How far below the best score the choice among `size` candidates falls, but with probability alpha."""
        return _shortfall(self.unit, alpha, size)

    def release(self, values: Integers, entropy: Entropy = SYSTEM) -> int:
        """The position of the chosen candidate, given all scores."""
        return int(exponential_choice(_compute_costs(values, self.unit), self.unit, 1, entropy=entropy)[0])


@dataclass(frozen=True, slots=True)
class NoisyMaxMechanism:
    """Reports which score is largest after exponential noise on each, by permute-and-flip (McKenna, Sheldon 2020).

    **Guarantee.** epsilon-DP for scores that one unit moves by at most `sensitivity` each; `monotonic` as in the
    exponential mechanism. Exponential noise has no memory: given the other noisy scores, the chance that one passes
    them changes by exp(unit * shift), where the shift is at most 2 sensitivity, or sensitivity if all move one way.
    **Utility.** Never worse than the exponential mechanism at the same epsilon, up to twice better.
    **Runtime.** Linear in the candidates.

    >>> NoisyMaxMechanism(1, sensitivity=1).event
    SelectionEvent(epsilon=Fraction(1, 1), bounded_range=False)
    """

    epsilon: Fraction
    sensitivity: Fraction = Fraction(1)
    monotonic: bool = False

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def within(cls, budget: Budget, sensitivity: Amount = 1, *, monotonic: bool = False) -> NoisyMaxMechanism:
        """The sharpest choice that keeps a budget."""
        return cls(epsilon_of(budget), require_positive(sensitivity, "sensitivity"), monotonic)

    @property
    def unit(self) -> Fraction:
        """The factor of a score in the exponent."""
        return _unit(self.epsilon, self.sensitivity, self.monotonic)

    @property
    def event(self) -> SelectionEvent:
        """A choice whose privacy losses have no narrower range than [-epsilon, epsilon]."""
        return SelectionEvent(self.epsilon, bounded_range=False)

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """How far below the best score the choice among `size` candidates falls, but with probability alpha."""
        return _shortfall(self.unit, alpha, size)

    def release(self, values: Integers, entropy: Entropy = SYSTEM) -> int:
        """The position of the reported candidate, given all scores."""
        return int(permute_and_flip(_compute_costs(values, self.unit), self.unit, 1, entropy=entropy)[0])


def _check(mechanism: ExponentialMechanism | NoisyMaxMechanism) -> None:
    object.__setattr__(mechanism, "epsilon", require_positive(mechanism.epsilon, "epsilon"))
    object.__setattr__(mechanism, "sensitivity", require_positive(mechanism.sensitivity, "sensitivity"))
    if mechanism.unit > LARGEST_UNIT:
        raise ParameterError("epsilon is too large for the sensitivity", expected="epsilon / sensitivity up to 2**40")


def _unit(epsilon: Fraction, sensitivity: Fraction, monotonic: bool) -> Fraction:
    return epsilon / sensitivity if monotonic else epsilon / (2 * sensitivity)


def epsilon_of_bounded_range(budget: Budget) -> Fraction:
    """The largest epsilon of the exponential mechanism in a budget: min(epsilon^2 / 8, epsilon) <= rho under zCDP,
    rounded down."""
    if not isinstance(budget, ZCDP) or budget.rho <= 0:
        return epsilon_of(budget)
    if budget.rho >= BOUNDED_RANGE:
        return budget.rho
    root = sqrt_above(8 * budget.rho)
    return root if root * root == 8 * budget.rho else round_down(8 * budget.rho / root)


def _compute_costs(values: Integers, unit: Fraction) -> NDArray[np.int64]:
    """Best score less each score, within what the samplers can take.

    Scores are first clamped to a fixed public range: that moves no two of them apart, so the sensitivity stands, and
    no score of the data can make the choice fail.
    """
    scores = take_integers(values, "scores")
    if not scores.size:
        raise ParameterError("there is no candidate", expected="At least one score")
    reach = min(1 << 60, int((1 << 60) / unit))
    kept: NDArray[np.int64] = np.clip(scores, -reach, reach).astype(np.int64)
    costs: NDArray[np.int64] = kept.max() - kept
    return costs


def _shortfall(unit: Fraction, alpha: float, size: int) -> int:
    """A candidate that is t worse has weight exp(-unit t) against 1 for the best; size of them: size exp(-unit t)."""
    reach = math.log(1 / split_alpha(alpha, size)) / float(unit)
    return math.floor(reach * (1 + 1e-9)) if size > 1 else 0
