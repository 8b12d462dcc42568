"""Additive noise on vectors of integers: Laplace for the L1 norm, Gaussian for the L2 norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from numpy.typing import NDArray

from deniable.dp.accounting.calibration import calibrate_gaussian, calibrate_laplace
from deniable.dp.accounting.events import GaussianEvent, LaplaceEvent
from deniable.dp.accounting.rounding import sqrt_above
from deniable.dp.mechanisms.mechanism import (
    Integers,
    add_noise,
    require_drawable,
    require_positive,
    split_alpha,
    take_integers,
)
from deniable.dp.samplers import SYSTEM, Entropy, discrete_gaussian, discrete_laplace
from deniable.dp.samplers.domain import LARGEST_SCALE
from deniable.policy.budget import Amount, Budget

_ROUNDING = 1 + 1e-9
"""More than the floating-point logarithms of an accuracy can be off; accuracies are about utility, not privacy."""


@dataclass(frozen=True, slots=True)
class LaplaceMechanism:
    """Adds independent discrete Laplace noise to each integer of a vector.

    **Guarantee.** (sensitivity / scale)-DP for neighbors whose vectors differ by at most `sensitivity` in L1 norm: the
    probability of x is proportional to exp(-|x| / scale), so moving the center by d changes it by a factor of at most
    exp(|d| / scale), and the factors of the entries multiply to exp(L1 / scale).
    **Utility.** One entry errs by more than t with probability below 2 exp(-(t + 1) / scale).
    **Runtime.** Linear, a fraction of a microsecond an entry.

    >>> from deniable.policy.budget import PureDP
    >>> noisy_count = LaplaceMechanism.within(PureDP(0.5), sensitivity=1)
    >>> noisy_count.scale, noisy_count.accuracy(0.05)
    (Fraction(2, 1), 6)
    """

    scale: Fraction
    sensitivity: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", require_drawable(require_positive(self.scale, "scale"), "scale"))
        object.__setattr__(self, "sensitivity", require_positive(self.sensitivity, "sensitivity"))

    @classmethod
    def within(cls, budget: Budget, sensitivity: Amount = 1) -> LaplaceMechanism:
        """The least noise that keeps a budget."""
        return cls(calibrate_laplace(budget, sensitivity), require_positive(sensitivity, "sensitivity"))

    @property
    def event(self) -> LaplaceEvent:
        """Discrete Laplace noise of this scale and sensitivity."""
        return LaplaceEvent(self.scale, self.sensitivity)

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """The least t (in steps) so that all of `size` entries are within t with probability 1 - alpha.

        P[|X| > t] = 2 q^(t+1) / (1 + q) with q = exp(-1 / scale).
        """
        scale = float(self.scale)
        reach = scale * math.log(2 / (split_alpha(alpha, size) * (1 + math.exp(-1 / scale))))
        return max(0, math.ceil(reach * _ROUNDING) - 1)

    def release(self, values: Integers, entropy: Entropy = SYSTEM) -> NDArray[Any]:
        """The values with noise: int64 (clamped at its ends) for a numpy array, exact Python integers otherwise."""
        entries = take_integers(values)
        return add_noise(entries, discrete_laplace(self.scale, entries.size, entropy=entropy))


@dataclass(frozen=True, slots=True)
class GaussianMechanism:
    """Adds independent discrete Gaussian noise to each integer of a vector.

    **Guarantee.** (sensitivity_squared / (2 variance))-zCDP for neighbors whose vectors differ by at most the square
    root of `sensitivity_squared` in L2 norm (Canonne, Kamath, Steinke 2020, theorem 14). For (epsilon, delta) see
    `deniable.dp.accounting.analytic_gaussian`.
    **Utility.** One entry errs by more than t with probability below 2 exp(-t^2 / (2 variance)).
    **Runtime.** Linear, a fraction of a microsecond an entry.

    >>> from deniable.policy.budget import ZCDP
    >>> noisy_counts = GaussianMechanism.within(ZCDP("1/50"), sensitivity_squared=4)
    >>> noisy_counts.variance, noisy_counts.accuracy(0.05)
    (Fraction(100, 1), 20)
    """

    variance: Fraction
    sensitivity_squared: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "variance",
            require_drawable(require_positive(self.variance, "variance"), "variance", LARGEST_SCALE**2),
        )
        object.__setattr__(
            self, "sensitivity_squared", require_positive(self.sensitivity_squared, "sensitivity_squared")
        )

    @classmethod
    def within(
        cls, budget: Budget, sensitivity: Amount | None = None, *, sensitivity_squared: Amount | None = None
    ) -> GaussianMechanism:
        """The least noise that keeps a budget, for an L2 sensitivity given itself or as its square."""
        variance = calibrate_gaussian(budget, sensitivity, sensitivity_squared=sensitivity_squared)
        if sensitivity is not None:
            return cls(variance, require_positive(sensitivity, "sensitivity") ** 2)
        assert sensitivity_squared is not None
        return cls(variance, require_positive(sensitivity_squared, "sensitivity_squared"))

    @property
    def event(self) -> GaussianEvent:
        """Discrete Gaussian noise of this variance and sensitivity."""
        return GaussianEvent(self.variance, self.sensitivity_squared)

    @property
    def sensitivity(self) -> Fraction:
        """The L2 sensitivity, rounded up where it is irrational."""
        return sqrt_above(self.sensitivity_squared)

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """A t (in steps) so that all of `size` entries are within t with probability 1 - alpha.

        P[|X| > t] = 2 P[X >= t + 1] <= 2 P[N(0, variance) >= t], t whole (Canonne et al. 2020, proposition 25).
        """
        quantile = -NormalDist().inv_cdf(split_alpha(alpha, size) / 2)
        return math.ceil(math.sqrt(float(self.variance)) * quantile * _ROUNDING)

    def release(self, values: Integers, entropy: Entropy = SYSTEM) -> NDArray[Any]:
        """The values with noise: int64 (clamped at its ends) for a numpy array, exact Python integers otherwise."""
        entries = take_integers(values)
        return add_noise(entries, discrete_gaussian(self.variance, entries.size, entropy=entropy))
