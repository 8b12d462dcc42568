"""Quantiles of bounded integers, by the exponential mechanism over every integer between the bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.events import SelectionEvent, SelfComposedEvent
from deniable.dp.mechanisms.mechanism import Integers, positive, share, taken
from deniable.dp.mechanisms.selection import LARGEST_UNIT, bounded_range_epsilon
from deniable.dp.samplers import SYSTEM, Entropy, exponential_choice, uniform_below
from deniable.errors import ParameterError
from deniable.policy.budget import Amount, Budget, exact, split

LARGEST_BOUND = 1 << 60
FINEST = 10**6
"""The largest denominator of a quantile."""


@dataclass(frozen=True, slots=True)
class QuantileMechanism:
    """Releases one or several quantiles of integers that are clamped to public bounds.

    The cost of an integer o for the quantile q of n values is its error in rank: how many values too many lie below it
    (#below - q n) or above it (#above - (1 - q) n), and 0 where neither is too many. o is drawn with probability
    proportional to exp(-unit * cost).

    **Guarantee.** epsilon-DP for neighbors that differ by at most `rows_per_unit` values: each value more moves either
    excess by q or 1 - q, so `sensitivity` = rows_per_unit * max(q, 1 - q), and unit = epsilon_each / (2 sensitivity).
    Each of m quantiles gets epsilon / m; the losses of each have a range of that width.
    **Utility.** The rank errs by more than ln(integers between the bounds / alpha) / unit with probability below alpha.
    **Runtime.** One sort, then linear in the values for each quantile.

    >>> median = QuantileMechanism((Fraction(1, 2),), lower=0, upper=120, epsilon=1)
    >>> median.accuracy(0.05)
    8
    """

    quantiles: tuple[Fraction, ...]
    lower: int
    upper: int
    epsilon: Fraction
    rows_per_unit: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", tuple(exact(q, "quantile") for q in self.quantiles))
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))
        _check(self)

    @classmethod
    def within(
        cls, budget: Budget, quantiles: Sequence[Amount], lower: int, upper: int, *, rows_per_unit: int = 1
    ) -> QuantileMechanism:
        """The sharpest quantiles that keep a budget together, each with an equal share."""
        count = max(len(quantiles), 1)
        each = bounded_range_epsilon(split(budget, (Fraction(1),) * count)[0])
        return cls(tuple(exact(q, "quantile") for q in quantiles), lower, upper, each * count, rows_per_unit)

    @property
    def event(self) -> SelfComposedEvent:
        """One choice with bounded range for each quantile."""
        each = self.epsilon / len(self.quantiles)
        return SelfComposedEvent(SelectionEvent(each, bounded_range=True), len(self.quantiles))

    @property
    def sensitivity(self) -> Fraction:
        """The largest change of a rank error by one unit."""
        return max(self._sensitivity(q) for q in self.quantiles)

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """A rank error (in values) that no quantile passes, but with probability alpha, however many there are."""
        candidates = (self.upper - self.lower + 1) * len(self.quantiles)
        unit = min(self._unit(q) for q in self.quantiles)
        return math.ceil(math.log(candidates / share(alpha, size)) / float(unit) * (1 + 1e-9))

    def release(self, values: Integers, entropy: Entropy = SYSTEM) -> NDArray[np.int64]:
        """One integer for each quantile, in their order, made monotone (which is post-processing)."""
        entries = np.clip(taken(values), self.lower, self.upper).astype(np.int64)
        steps = _Steps.of(np.sort(entries), self.lower, self.upper)
        drawn = np.array([self._draw(q, steps, entropy) for q in self.quantiles], dtype=np.int64)
        monotone = np.empty_like(drawn)
        monotone[np.argsort(np.array(self.quantiles, dtype=object), kind="stable")] = np.sort(drawn)
        return monotone

    def _sensitivity(self, quantile: Fraction) -> Fraction:
        return self.rows_per_unit * max(quantile, 1 - quantile)

    def _unit(self, quantile: Fraction) -> Fraction:
        return self.epsilon / len(self.quantiles) / (2 * self._sensitivity(quantile))

    def _draw(self, quantile: Fraction, steps: _Steps, entropy: Entropy) -> int:
        """Costs are counted in parts of a value, 1 / denominator, so that they are integers.

        They are cut off at a fixed public height, which moves no two costs apart.
        """
        unit = self._unit(quantile) / quantile.denominator
        costs = np.minimum(steps.costs(quantile), min(1 << 61, int((1 << 61) / unit)))
        chosen = int(exponential_choice(costs, unit, 1, widths=steps.widths, entropy=entropy)[0])
        return int(steps.starts[chosen]) + int(uniform_below(int(steps.widths[chosen]), 1, entropy=entropy)[0])


@dataclass(frozen=True, slots=True)
class _Steps:
    """Runs of integers that have the same values below and above: each distinct value, and the gaps around it."""

    starts: NDArray[np.int64]
    widths: NDArray[np.int64]
    below: NDArray[np.int64]
    above: NDArray[np.int64]

    @classmethod
    def of(cls, ordered: NDArray[np.int64], lower: int, upper: int) -> _Steps:
        """Gap, value, gap, value, ..., gap: widths may be 0, and add up to upper - lower + 1."""
        distinct, counts = np.unique(ordered, return_counts=True)
        starts = np.empty(2 * distinct.size + 1, dtype=np.int64)
        starts[0], starts[1::2], starts[2::2] = lower, distinct, distinct + 1
        seen = np.concatenate(([0], np.cumsum(counts)))
        below, above = np.repeat(seen, 2)[:-1], ordered.size - np.repeat(seen, 2)[1:]
        return cls(starts, np.diff(np.append(starts, upper + 1)), below, above)

    def costs(self, quantile: Fraction) -> NDArray[np.int64]:
        """The error in rank times the quantile's denominator: with q = a / b and n values, b * below - a n or
        b * above - (b - a) n, whichever is larger, or 0."""
        a, b = quantile.numerator, quantile.denominator
        total = int(self.below[-1])
        return np.maximum(np.maximum(b * self.below - a * total, b * self.above - (b - a) * total), 0)


def _check(mechanism: QuantileMechanism) -> None:
    if not mechanism.quantiles or not all(0 <= q <= 1 and q.denominator <= FINEST for q in mechanism.quantiles):
        raise ParameterError(
            "the quantiles are not numbers from 0 to 1", expected="one or more, such as 0.5, with at most six digits"
        )
    if not -LARGEST_BOUND <= mechanism.lower <= mechanism.upper <= LARGEST_BOUND:
        raise ParameterError("the bounds are not lower <= upper within 2**60", expected="public bounds, in steps")
    if mechanism.rows_per_unit < 1:
        raise ParameterError("rows_per_unit is below 1", expected="a contribution bound of at least 1")
    if mechanism.epsilon > LARGEST_UNIT:
        raise ParameterError("epsilon is above 2**40", expected="a smaller epsilon")
