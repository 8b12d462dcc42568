"""The domains of the samplers' arguments, and the refusals for what lies outside.

Parameters are integers or Fractions. A float is refused rather than rounded: 0.1 as a float is not one tenth, and the
privacy that was calculated belongs to the number that was meant.
"""

from __future__ import annotations

from fractions import Fraction
from operator import index

from deniable.errors import ParameterError

LARGEST_SCALE = 1 << 52  # Laplace noise of this scale leaves 64 bits with probability exp(-2**63 / 2**52) = exp(-2048)
LARGEST_SIZE = 1 << 40


def require_natural(value: int, name: str, largest: int = LARGEST_SIZE) -> int:
    """An integer between 0 and `largest`; anything else is refused."""
    try:
        number = index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number <= largest:
        raise ParameterError(f"{name} is not usable", expected=f"{name} is a whole number between 0 and {largest}")
    return number


def require_rational(value: Fraction | int, name: str) -> Fraction:
    """An exact rational; floats, text and truth values are refused."""
    if isinstance(value, bool) or not isinstance(value, int | Fraction):
        raise ParameterError(
            f"{name} is of type {type(value).__name__}, which is not exact",
            expected="An integer or a Fraction",
            remedy="Write Fraction('0.1') or Fraction(1, 10)",
        )
    return Fraction(value)


def require_probability(value: Fraction | int, name: str = "p") -> Fraction:
    """A rational in [0, 1]."""
    number = require_rational(value, name)
    if not 0 <= number <= 1:
        raise ParameterError(f"{name} is outside [0, 1]", expected=f"{name} is a probability")
    return number


def require_non_negative(value: Fraction | int, name: str) -> Fraction:
    """A rational that is at least 0."""
    number = require_rational(value, name)
    if number < 0:
        raise ParameterError(f"{name} is negative", expected=f"{name} is at least 0")
    return number


def require_scale(value: Fraction | int, name: str, largest: int = LARGEST_SCALE) -> Fraction:
    """A rational above 0 and at most `largest`."""
    number = require_rational(value, name)
    if not 0 < number <= largest:
        raise ParameterError(
            f"{name} is not in (0, {largest}]",
            expected=f"{name} is positive, and small enough that noise fits in 64 bits",
            remedy="Measure in a larger step, or ask for a larger epsilon",
        )
    return number
