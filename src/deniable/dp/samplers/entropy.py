"""Entropy: random bits from the operating system, integers from them, and checks of samplers' parameters.

At the end are single draws in Python integers of any size: the algorithms of Canonne, Kamath and Steinke (2020), as
printed ("The Discrete Gaussian for Differential Privacy", arXiv 2004.00010, Algorithms 1 to 3). They serve small
requests, where preparing a table would cost more than the draws, and parameters too large for words of 64 bits. They
share nothing with the vectorized samplers but the reader of entropy, so each is the other's oracle.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from operator import index
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

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


BLOCK = 64  # bytes that a Reader asks for at once: one system call serves several small draws


class Entropy(Protocol):
    """A source of independent, uniformly distributed bytes."""

    def take(self, count: int) -> bytes:
        """The next `count` bytes, never given out before."""
        ...


class SystemEntropy:
    """The kernel's cryptographic generator, which is what every release uses."""

    __slots__ = ()

    def take(self, count: int) -> bytes:
        """Read `count` bytes of the operating system's entropy."""
        return os.urandom(count)


SYSTEM = SystemEntropy()


def salt(n: int) -> bytes:
    """`n` fresh secret bytes, for example to salt the hash that samples a unit's groups in one query.

    >>> len(salt(16))
    16
    """
    return SYSTEM.take(require_natural(n, "n"))


def draw_words(entropy: Entropy, bits: int, count: int) -> NDArray[Any]:
    """`count` independent uniform words of 8, 16, 32 or 64 bits."""
    return np.frombuffer(entropy.take(count * bits // 8), dtype=np.dtype(f"<u{bits // 8}"))


class Reader:
    """Reads single integers of any width out of small blocks of entropy; lives for one call only."""

    __slots__ = ("_bits", "_entropy", "_pool")

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._pool = 0
        self._bits = 0

    def integer(self, bits: int) -> int:
        """A uniform integer in [0, 2**bits)."""
        while self._bits < bits:
            self._pool = self._pool << 8 * BLOCK | int.from_bytes(self._entropy.take(BLOCK), "little")
            self._bits += 8 * BLOCK
        self._bits -= bits
        value = self._pool >> self._bits
        self._pool &= (1 << self._bits) - 1
        return value

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound), by rejecting words that are too large; `bound` may have any size."""
        bits = (bound - 1).bit_length()
        value = self.integer(bits)
        while value >= bound:
            value = self.integer(bits)
        return value

    def coin(self, numerator: int, denominator: int) -> bool:
        """True with probability numerator / denominator."""
        return self.below(denominator) < numerator


CHUNK = 1 << 15  # draws at a time: some 256 KiB for each array of 64-bit integers


def draw_in_chunks(size: int, draw: Callable[[int], NDArray[np.int64]]) -> NDArray[np.int64]:
    """`size` draws from `draw(count)`, which may return fewer than it was asked for (but not always none).

    Pieces are joined in the order drawn and cut at `size`: the draws are independent, so neither changes their law.
    """
    answer = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        piece = draw(min(CHUNK, size - done))
        answer[done : done + piece.size] = piece
        done += piece.size
    return answer


FEW = 256  # draws below which single draws (10 to 20 microseconds each) are cheaper than preparing tables


def bernoulli_exp_once(numerator: int, denominator: int, reader: Reader) -> bool:
    """True with probability exp(-numerator / denominator) (Algorithm 1)."""
    whole, rest = divmod(numerator, denominator)
    for _ in range(whole):
        if not _exp_of_fraction(1, 1, reader):
            return False
    return _exp_of_fraction(rest, denominator, reader)


def _exp_of_fraction(numerator: int, denominator: int, reader: Reader) -> bool:
    """For gamma in [0, 1]: count how long Bernoulli(gamma / k) keeps succeeding; the first failure comes at an odd k
    with probability 1 - gamma + gamma**2/2! - ... = exp(-gamma)."""
    k = 1
    while reader.coin(numerator, denominator * k):
        k += 1
    return k & 1 == 1


def geometric_once(scale: Fraction, reader: Reader) -> int:
    """A number of failures: g has probability proportional to exp(-g / scale)."""
    period, step = scale.numerator, scale.denominator
    offset = reader.below(period)
    while not bernoulli_exp_once(offset, period, reader):
        offset = reader.below(period)
    periods = 0
    while bernoulli_exp_once(1, 1, reader):
        periods += 1
    return (offset + period * periods) // step


def discrete_laplace_once(scale: Fraction, reader: Reader) -> int:
    """x with probability proportional to exp(-|x| / scale) (Algorithm 2); minus zero is thrown back."""
    while True:
        magnitude, negative = geometric_once(scale, reader), reader.integer(1)
        if not negative:
            return magnitude
        if magnitude:
            return -magnitude


def discrete_gaussian_once(sigma_squared: Fraction, reader: Reader) -> int:
    """x with probability proportional to exp(-x**2 / (2 sigma_squared)) (Algorithm 3), from Laplace proposals."""
    n, d = sigma_squared.numerator, sigma_squared.denominator
    t = isqrt(n // d) + 1
    while True:
        proposal = discrete_laplace_once(Fraction(t), reader)
        # (|y| - sigma**2 / t)**2 / (2 sigma**2) over one denominator
        if bernoulli_exp_once((abs(proposal) * d * t - n) ** 2, 2 * n * d * t * t, reader):
            return proposal
