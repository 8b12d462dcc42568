"""Mechanisms that add noise to whole numbers: discrete Laplace and discrete Gaussian, and what all mechanisms share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.analytic_gaussian import SMOOTHING, ratio_within
from deniable.dp.accounting.calibration import calibrate_gaussian, calibrate_laplace
from deniable.dp.accounting.cost import round_up, sqrt_above
from deniable.dp.accounting.events import Event, GaussianEvent, LaplaceEvent
from deniable.dp.accounting.zcdp import rho_within
from deniable.dp.samplers import SYSTEM, Entropy, discrete_gaussian, discrete_laplace
from deniable.dp.samplers.entropy import LARGEST_SCALE
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, Amount, ApproxDP, Budget, exact

Integers = NDArray[np.integer[Any]] | Sequence[int]
"""A numpy array of integers, or Python integers where sums may pass 64 bits."""


LARGEST, SMALLEST = 2**63 - 1, -(2**63)
"""The limits of 64 bits."""


class Mechanism(Protocol):
    """A random map with a stated price: fields are public parameters, `release` is where the data passes through."""

    @property
    def event(self) -> Event:
        """What a release is, for any accountant to price."""

    @property
    def sensitivity(self) -> Fraction:
        """How far one privacy unit can move the values, in the norm and the steps the mechanism names."""

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """An error that a release from `size` values passes with probability at most alpha."""

    def release(self, values: Integers, entropy: Entropy = SYSTEM) -> Any:
        """The noisy outcome: the only deed, and the only place where a value of the data is an argument."""


def take_integers(values: Integers, name: str = "values") -> NDArray[Any]:
    """The values as an array: int64 from a numpy array of integers, Python integers (dtype object) from a sequence.

    The type of the answer depends on the type of the argument alone, never on how large the values are.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.dtype != np.uint64:
        array: NDArray[Any] = values.astype(np.int64, copy=False)
    else:
        array = _take_python_integers(values, name)
    if array.ndim != 1:
        raise ParameterError(f"{name} are not a one-dimensional array", expected="One list of integers")
    return array


def _take_python_integers(values: Integers, name: str) -> NDArray[Any]:
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in listed):
        raise ParameterError(
            f"{name} are not all integers",
            expected="Integers: multiples of a declared step",
            remedy="Round to the step before the release; fractional values understate sensitivity",
        )
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def add_noise(values: NDArray[Any], noise: NDArray[np.int64]) -> NDArray[Any]:
    """Values plus noise: exact for Python integers; for int64 the exact sum clamped to int64.

    Clamping looks at the noisy sum alone, so it is post-processing; wrapping around would be noise of another law.
    """
    if values.dtype == object:
        exactly: NDArray[Any] = values + noise.astype(object)
        return exactly
    total = values + noise
    over = ((values ^ total) & (noise ^ total)) < 0
    return np.where(over, np.where(noise > 0, LARGEST, SMALLEST), total)


def require_positive(amount: Amount, name: str) -> Fraction:
    """An exact number above 0; anything else is refused."""
    value = exact(amount, name)
    if value <= 0:
        raise ParameterError(f"{name} is not positive", expected=f"{name} is greater than 0")
    return value


def require_drawable(scale: Fraction, name: str, largest: int = LARGEST_SCALE) -> Fraction:
    """A scale that the samplers can draw; refused here, when the mechanism is made, not when data is at hand."""
    if scale > largest:
        raise ParameterError(
            f"the {name} of the noise is above 2**{largest.bit_length() - 1}",
            expected="noise that fits in 64 bits",
            remedy="Measure in a larger step, or ask for a larger epsilon",
        )
    return scale


def split_alpha(alpha: float, size: int) -> float:
    """The error probability for each of `size` values (union bound)."""
    if not 0 < alpha < 1:
        raise ParameterError("alpha is not between 0 and 1", expected="alpha is an error probability such as 0.05")
    if size < 1:
        raise ParameterError("size is below 1", expected="size counts the values released together")
    return alpha / size


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


def calibrate_part(budget: Budget, sensitivity_squared: int, share: Fraction) -> GaussianMechanism:
    """Gaussian noise for a share of the budget: for (epsilon, delta) all parts together are one Gaussian release."""
    squared = Fraction(sensitivity_squared)
    match budget:
        case ZCDP(rho, _) if rho > 0:
            return GaussianMechanism(squared / (2 * rho * share), squared)
        case ApproxDP(epsilon, delta) if epsilon > 0 and delta > 0:
            if (ratio := ratio_within(epsilon, delta)) is not None:
                return GaussianMechanism(round_up(ratio * squared / share + SMOOTHING, 12), squared)
            if rho := rho_within(epsilon, delta):
                return GaussianMechanism(round_up(squared / (2 * rho * share), 12), squared)
    raise ParameterError(
        "Gaussian noise has no price without a delta",
        expected="epsilon and delta above 0, or rho",
        remedy="State a delta such as 1e-6 beside the epsilon",
    )
