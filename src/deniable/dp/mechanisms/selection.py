"""Choosing the best of several candidates by integer scores: the exponential mechanism and report-noisy-max."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.calibration import epsilon_of
from deniable.dp.accounting.cost import round_down, sqrt_above
from deniable.dp.accounting.events import SelectionEvent
from deniable.dp.mechanisms.mechanism import Integers, require_positive, split_alpha, take_integers
from deniable.dp.samplers import SYSTEM, Entropy, exponential_choice, permute_and_flip, uniform_below
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


LADDER_REACH = 1 << 60
"""A ladder gives whole numbers from minus to plus this: the same ones whatever the data."""


@dataclass(frozen=True, slots=True)
class LadderMechanism:
    """Releases one whole number f with noise that follows how far one unit moves it here, and not anywhere.

    The ladder mechanism (Zhang, Cormode, Procopiuc, Srivastava and Xiao 2015). Its rungs I(0), I(1), ... depend on the
    data, and must keep two conditions for all neighbors D and D': |f(D) - f(D')| <= I(0) of D, and I(t) of D is at most
    I(t + 1) of D'. A number at distance in (I(0) + ... + I(t - 2), I(0) + ... + I(t - 1)] from f stands on rung t, and
    f itself on rung 0. A number is chosen with probability proportional to exp(-rung * epsilon / 2).

    **Guarantee.** epsilon-DP, with privacy losses in a range of width epsilon: it is the exponential mechanism over the
    numbers from -2**60 to 2**60 with the score -rung, which one unit moves by at most 1. For if r is at most
    I(0) + ... + I(t - 1) from f(D), it is at most |f(D) - f(D')| more from f(D'), which is at most
    I'(0) + I'(1) + ... + I'(t) in the rungs of D'. All numbers beyond the last rung share one more.
    **Utility.** With probability 1 - alpha the error is at most `find_reach`.
    **Runtime.** Linear in the rungs, 170 / epsilon.

    >>> LadderMechanism(1).rungs
    165
    """

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", require_positive(self.epsilon, "epsilon"))
        if self.epsilon < Fraction(1, 10_000):
            raise ParameterError("epsilon is too small for a ladder", expected="epsilon is at least 0.0001")

    @property
    def rungs(self) -> int:
        """How many rungs there are: all numbers beyond them together have less than exp(-40) of the weight of f."""
        return math.ceil(165 / self.epsilon)

    @property
    def event(self) -> SelectionEvent:
        """A choice with bounded range."""
        return SelectionEvent(self.epsilon, bounded_range=True)

    def find_reach(self, rungs: Integers, alpha: float) -> int:
        """A distance from f that a release over these rungs passes with probability at most alpha."""
        ends = np.cumsum(take_integers(rungs, "rungs").astype(object))
        weights = [math.exp(-(t + 1) * float(self.epsilon) / 2) * 2.0 * float(i) for t, i in enumerate(rungs)]
        total, seen = 1.0 + math.fsum(weights), 1.0
        for end, weight in zip(ends, weights, strict=True):
            if seen >= (1 - alpha) * total:
                break
            seen, last = seen + weight, end
        return int(last) if seen > 1.0 else 0

    def release(self, value: int, rungs: Integers, entropy: Entropy = SYSTEM) -> int:
        """The noisy number, given f and its rungs; f is clamped to the range first, which moves no two apart."""
        if len(rungs) != self.rungs:
            raise ParameterError("a ladder has another number of rungs", expected=f"{self.rungs} of them")
        center = max(-LADDER_REACH, min(LADDER_REACH, int(value)))
        ends = [0, *np.cumsum(take_integers(rungs, "rungs").astype(object)), 2 * LADDER_REACH]
        sides = [[min(int(end), room) for end in ends] for room in (center + LADDER_REACH, LADDER_REACH - center)]
        widths = [1, *(b - a for side in sides for a, b in pairwise(side))]
        costs = [0, *(2 * [*range(1, len(ends))])]
        chosen = int(exponential_choice(costs, self.epsilon / 2, widths=widths, entropy=entropy)[0])
        if chosen == 0:
            return center
        side, rung = divmod(chosen - 1, len(ends) - 1)
        inside = int(uniform_below(widths[chosen], 1, entropy=entropy)[0])
        return center + (-1, 1)[side] * (sides[side][rung] + 1 + inside)


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
