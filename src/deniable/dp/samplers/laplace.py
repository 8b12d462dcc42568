"""Geometric and discrete Laplace noise, exactly, by the digits of the magnitude.

Let q = exp(-1/scale). A geometric g has probability proportional to q**g, so for g = j + B * h with 0 <= j < B the
weight q**j * (q**B)**h factors: the digits are independent, j with weights q**j and h geometric with ratio q**B.
A large scale thus becomes a few small tables. The sign needs no rejection either: x = g with probability 1/(1 + q) and
x = -1 - g with probability q/(1 + q) gives x probability (1 - q)/(1 + q) * q**|x|, which is the discrete Laplace law.
The sign is drawn together with the highest digit, so a draw costs one lookup up to scale 16, four at scale 10**9.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers.entropy import (
    FEW,
    SYSTEM,
    Entropy,
    Reader,
    discrete_laplace_once,
    draw_in_chunks,
    geometric_once,
    require_natural,
    require_scale,
)
from deniable.dp.samplers.exponential import Enclosure, exp_minus, multiply, powers
from deniable.dp.samplers.table import Table

TOP_BITS = 4  # the highest digit is geometric with a scale below 2**TOP_BITS
DIGIT_BITS = 10  # lower digits have at most this many bits


def geometric(scale: Fraction | int, size: int, *, entropy: Entropy = SYSTEM) -> NDArray[np.int64]:
    """Draws g = 0, 1, 2, ... with probability (1 - q) * q**g for q = exp(-1/scale).

    >>> geometric(Fraction(1, 1000), 3).tolist()
    [0, 0, 0]
    """
    scale, size = require_scale(scale, "scale"), require_natural(size, "size")
    if size < FEW:
        reader = Reader(entropy)
        return np.array([geometric_once(scale, reader) for _ in range(size)], dtype=np.int64)
    return draw_in_chunks(size, partial(_draw, _build_digits(scale, signed=False), entropy))


def discrete_laplace(scale: Fraction | int, size: int, *, entropy: Entropy = SYSTEM) -> NDArray[np.int64]:
    """Draws integers x with probability (1 - q)/(1 + q) * q**|x| for q = exp(-1/scale).

    The variance is 2 q / (1 - q)**2, a little below the 2 * scale**2 of the continuous Laplace law.

    >>> discrete_laplace(Fraction(1, 1000), 3).tolist()
    [0, 0, 0]
    """
    scale, size = require_scale(scale, "scale"), require_natural(size, "size")
    if size < FEW:
        reader = Reader(entropy)
        return np.array([discrete_laplace_once(scale, reader) for _ in range(size)], dtype=np.int64)
    return draw_in_chunks(size, partial(_draw, _build_digits(scale, signed=True), entropy))


@dataclass(frozen=True, slots=True)
class DigitLaw:
    """A digit j in [0, base) with weight exp(-j * gamma)."""

    gamma: Fraction
    base: int

    @property
    def finite(self) -> bool:
        """All digits are listed."""
        return True

    def weights(self, precision: int) -> list[Enclosure]:
        """The powers of exp(-gamma)."""
        return powers(self.gamma, self.base, precision)

    def total(self, precision: int) -> Enclosure:
        """Their sum."""
        listed = self.weights(precision)
        return sum(low for low, _ in listed), sum(high for _, high in listed)


@dataclass(frozen=True, slots=True)
class TopLaw:
    """Outcome 2 h + s: the highest digit h has weight exp(-h * gamma), a minus sign s = 1 has weight exp(-tilt).

    A tilt of None stands for infinity: the law is then one-sided, and s is always 0.
    """

    gamma: Fraction
    tilt: Fraction | None

    @property
    def finite(self) -> bool:
        """The highest digit has no bound."""
        return False

    def weights(self, precision: int) -> list[Enclosure]:
        """Plus and minus in turn, until the weights vanish: exp(-h * gamma) < 2**-precision once h > 0.7 P / gamma."""
        count = 7 * precision * self.gamma.denominator // (10 * self.gamma.numerator) + 2
        minus = self._minus(precision)
        listed = powers(self.gamma, count, precision)
        return [weight for plus in listed for weight in (plus, multiply(plus, minus, precision))]

    def total(self, precision: int) -> Enclosure:
        """(1 + exp(-tilt)) / (1 - exp(-gamma)), the sum of the geometric series."""
        one = 1 << precision
        minus, ratio = self._minus(precision), exp_minus(self.gamma, precision)
        low = (one + minus[0] << precision) // (one - ratio[0])
        return low, -(-(one + minus[1] << precision) // (one - ratio[1]))

    def _minus(self, precision: int) -> Enclosure:
        return (0, 0) if self.tilt is None else exp_minus(self.tilt, precision)


@dataclass(frozen=True, slots=True)
class Digits:
    """The tables of one scale: the signed top, placed at bit `shift`, and lower digits with the bit each starts at."""

    top: Table
    shift: int
    lower: tuple[tuple[int, Table], ...]


@lru_cache(maxsize=32)
def _build_digits(scale: Fraction, *, signed: bool) -> Digits:
    """Cut the magnitude so that the top has a scale in [8, 16) and each lower digit has at most DIGIT_BITS bits."""
    shift = max(0, (scale.numerator // scale.denominator).bit_length() - TOP_BITS)
    lower = []
    for start in range(0, shift, DIGIT_BITS):
        base = 1 << min(DIGIT_BITS, shift - start)
        lower.append((start, Table(DigitLaw(Fraction(1 << start, scale), base))))
    top = TopLaw(Fraction(1 << shift, scale), Fraction(1, scale) if signed else None)
    return Digits(Table(top), shift, tuple(lower))


def _draw(digits: Digits, entropy: Entropy, count: int) -> NDArray[np.int64]:
    outcome = digits.top.draw(count, entropy)
    magnitude = outcome >> 1 << digits.shift
    for start, table in digits.lower:
        magnitude |= table.draw(count, entropy) << start
    return magnitude ^ -(outcome & 1)  # all bits flipped where s = 1: in two's complement that is -1 - g
