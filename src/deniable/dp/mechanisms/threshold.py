"""Private keys: show a group only if its noisy count of units reaches a threshold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.analytic_gaussian import normal_above
from deniable.dp.accounting.cost import GUARD, precise, to_decimal
from deniable.dp.accounting.events import ComposedEvent, ThresholdEvent
from deniable.dp.mechanisms.mechanism import GaussianMechanism, Integers, LaplaceMechanism, require_positive
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import ParameterError
from deniable.policy.budget import Amount, Budget


@dataclass(frozen=True, slots=True)
class KeyThreshold:
    """Adds noise to each key's count of units and shows the keys whose noisy count reaches `threshold`.

    **Guarantee.** The price of the noise, with delta added, for units that are counted once in each of at most
    `max_groups` keys. Let one unit be added. Keys that others hold too are shown by noisy counts, which the noise
    protects; a key that only this unit holds, with count 1, cannot appear without it. Let p be the probability that
    1 + noise reaches the threshold. At most max_groups such keys exist, so one of them is shown with probability at
    most max_groups * p <= delta, and unless that happens the two releases differ by the noise's guarantee alone.
    The counts handed in must be those of the keys present in the data: counts of units, not of rows.
    **Utility.** A key with `threshold` + accuracy(alpha) units is shown with probability 1 - alpha.
    **Runtime.** Linear in the keys.

    >>> from deniable.policy.budget import PureDP
    >>> KeyThreshold.within(PureDP(1), delta=1e-6, max_groups=1).threshold
    15
    """

    noise: LaplaceMechanism | GaussianMechanism
    delta: Fraction
    max_groups: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", require_positive(self.delta, "delta"))
        _check(self)

    @classmethod
    def within(cls, budget: Budget, delta: Amount, max_groups: int = 1, *, gaussian: bool = False) -> KeyThreshold:
        """The least noise on counts that keeps a budget, and the threshold that keeps delta beside it."""
        noise: LaplaceMechanism | GaussianMechanism
        if gaussian:  # max_groups counts change by one each: L2 sensitivity sqrt(max_groups)
            noise = GaussianMechanism.within(budget, sensitivity_squared=max_groups)
        else:  # and L1 sensitivity max_groups
            noise = LaplaceMechanism.within(budget, max_groups)
        return cls(noise, require_positive(delta, "delta"), max_groups)

    @property
    def threshold(self) -> int:
        """A whole number that 1 + noise reaches with probability at most delta / max_groups, as low as proven."""
        each = self.delta / self.max_groups
        if isinstance(self.noise, LaplaceMechanism):
            return 1 + laplace_reach(self.noise.scale, each)
        return 1 + gaussian_reach(self.noise.variance, each)

    @property
    def event(self) -> ComposedEvent:
        """The noise, and the delta of the threshold."""
        return ComposedEvent((self.noise.event, ThresholdEvent(self.delta)))

    @property
    def sensitivity(self) -> Fraction:
        """That of the counts, in the norm of the noise."""
        return self.noise.sensitivity

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """The error of `size` noisy counts together, but with probability alpha."""
        return self.noise.accuracy(alpha, size)

    def release(self, values: Integers, entropy: Entropy = SYSTEM) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The positions of the keys that are shown, and their noisy counts."""
        noisy = self.noise.release(values, entropy)
        shown = np.flatnonzero(noisy >= self.threshold).astype(np.int64)
        return shown, noisy[shown]


@lru_cache(maxsize=1024)
def laplace_reach(scale: Fraction, probability: Fraction) -> int:
    """The least m >= 1 with P[X >= m] <= probability for discrete Laplace X.

    With q = exp(-1 / scale): P[X >= m] = q^m / (1 + q), so m >= scale * ln(1 / (probability (1 + q))).
    """
    with localcontext(precise()):
        q = (-1 / to_decimal(scale)).exp()
        reach = to_decimal(scale) * -(to_decimal(probability) * (1 + q)).ln()
        return max(1, ceil(reach + to_decimal(GUARD) * (1 + abs(reach))))


@lru_cache(maxsize=1024)
def gaussian_reach(variance: Fraction, probability: Fraction) -> int:
    """An m >= 1 with P[X >= m] <= probability for discrete Gaussian X.

    P[X >= m] <= P[N(0, variance) >= m - 1] for whole m (Canonne, Kamath, Steinke 2020, proposition 25). The Laplace
    formula would be wrong here: at the same price a Gaussian has another tail.
    """
    with localcontext(precise()):
        deviation, allowed = to_decimal(variance).sqrt(), to_decimal(probability)
        return 1 + _find_least(lambda m: normal_above(-Decimal(m) / deviation) <= allowed)


def _find_least(holds: Callable[[int], bool]) -> int:
    """The least m >= 0 at which a monotone condition holds, by doubling and bisection."""
    low, high = -1, 1
    while not holds(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _check(mechanism: KeyThreshold) -> None:
    if mechanism.delta >= 1:
        raise ParameterError("delta is 1 or more", expected="delta is a small probability such as 1e-6")
    if isinstance(mechanism.max_groups, bool) or mechanism.max_groups < 1:
        raise ParameterError("max_groups is below 1", expected="a contribution bound of at least 1")
    noise = mechanism.noise
    covered = noise.sensitivity if isinstance(noise, LaplaceMechanism) else noise.sensitivity_squared
    if covered < mechanism.max_groups:
        raise ParameterError(
            "the noise is made for fewer groups than max_groups",
            expected="L1 sensitivity max_groups for Laplace, squared L2 sensitivity max_groups for Gaussian noise",
            remedy="Use KeyThreshold.within(budget, delta, max_groups)",
        )
