"""What every mechanism states about itself, and how it takes the integers it protects."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.events import Event
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.dp.samplers.domain import LARGEST_SCALE
from deniable.errors import ParameterError
from deniable.policy.budget import Amount, exact

Integers = NDArray[np.integer[Any]] | Sequence[int]
"""A numpy array of integers, or Python integers where sums may pass 64 bits."""


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
    limits = np.iinfo(np.int64)
    return np.where(over, np.where(noise > 0, limits.max, limits.min), total)


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
