"""Discrete Gaussian noise, exactly: a table for small sigma, blocks of a power of two for large sigma.

For sigma below 64 one table holds the whole law. Above, let B = 2**b with sigma / B in [32, 64), |z| = B x + y. Then
exp(-z**2 / (2 sigma**2)) = exp(-x**2 / (2 (sigma/B)**2)) * exp(-y (y + 2 B x) / (2 sigma**2)): draw the block x from a
table with the first factor, y uniformly, and keep the pair with the second factor as its probability, some 98%.
Each integer must be reachable in one way only, or zero would come twice: y runs from 0 to B - 1 for positive z and
from 1 to B for negative z.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers.entropy import (
    FEW,
    LARGEST_SCALE,
    SYSTEM,
    Entropy,
    Reader,
    discrete_gaussian_once,
    draw_in_chunks,
    draw_words,
    require_natural,
    require_scale,
)
from deniable.dp.samplers.exponential import ONE, SLACK, Enclosure, exp_fixed, exp_minus, multiply, settle_below
from deniable.dp.samplers.table import Table

SMALL = 64  # sigma below which one table holds the law
WIDEST = 26  # bits of the widest block: y (y + 2 B x) stays below 2**63
FARTHEST = 1 << 10  # blocks from here on (beyond 16 sigma) are accepted or not in Python integers


def discrete_gaussian(sigma_squared: Fraction | int, size: int, *, entropy: Entropy = SYSTEM) -> NDArray[np.int64]:
    """Draws integers x with probability proportional to exp(-x**2 / (2 sigma_squared)).

    The variance is at most sigma_squared, and all but equal to it from sigma = 1 on.

    >>> discrete_gaussian(Fraction(1, 1000), 3).tolist()
    [0, 0, 0]
    """
    variance, size = require_scale(sigma_squared, "sigma_squared", LARGEST_SCALE**2), require_natural(size, "size")
    if size < FEW or variance >= (SMALL << WIDEST) ** 2:
        reader = Reader(entropy)
        return np.array([discrete_gaussian_once(variance, reader) for _ in range(size)], dtype=np.int64)
    if variance < SMALL**2:
        return draw_in_chunks(size, partial(_draw_small, _build_table(variance), entropy))
    return draw_in_chunks(size, partial(_draw_large, _build_blocks(variance), entropy))


@dataclass(frozen=True, slots=True)
class TwoSidedLaw:
    """Outcome 2 x + s: x has weight exp(-x**2 / (2 variance)) under either sign s.

    Without `minus_zero` the outcome 1 (x = 0 with a minus sign) is left out, and later ones move down by one.
    """

    variance: Fraction
    minus_zero: bool

    @property
    def finite(self) -> bool:
        """The law reaches every integer."""
        return False

    def weights(self, precision: int) -> list[Enclosure]:
        """Both signs of each x in turn."""
        listed = [weight for weight in self._half(precision)[:-1] for _ in range(2)]
        return listed if self.minus_zero else [listed[0], *listed[2:]]

    def total(self, precision: int) -> Enclosure:
        """The listed weights, and a bound on the rest.

        With c = 1 / (2 variance), the weights from m on fall at least as fast as exp(-m**2 c) * exp(-2 m c (x - m)), so
        they sum to at most exp(-m**2 c) / (1 - exp(-2 m c)) <= exp(-m**2 c) * (1 + variance / m).
        """
        listed = self.weights(precision)
        _, first_left_out = self._half(precision)[-1]
        rest = 2 * first_left_out * (2 + self.variance.numerator // self.variance.denominator)
        return sum(low for low, _ in listed), sum(high for _, high in listed) + rest

    def _half(self, precision: int) -> list[Enclosure]:
        """exp(-x**2 c) for x = 0, 1, ... until it is below 2**-precision, each from the last one by a falling ratio."""
        last = isqrt(7 * precision * self.variance.numerator // (5 * self.variance.denominator)) + 2
        ratio, fall = (
            exp_minus(Fraction(1, 2 * self.variance), precision),
            exp_minus(Fraction(1, self.variance), precision),
        )
        weight = (1 << precision, 1 << precision)
        listed = []
        for _ in range(last + 1):
            listed.append(weight)
            weight, ratio = multiply(weight, ratio, precision), multiply(ratio, fall, precision)
        return listed


@lru_cache(maxsize=32)
def _build_table(variance: Fraction) -> Table:
    return Table(TwoSidedLaw(variance, minus_zero=False))


def _draw_small(table: Table, entropy: Entropy, count: int) -> NDArray[np.int64]:
    outcome = table.draw(count, entropy)
    outcome += outcome > 0
    return _apply_signs(outcome >> 1, outcome & 1)


def _apply_signs(magnitude: NDArray[np.int64], negative: NDArray[np.int64]) -> NDArray[np.int64]:
    return (magnitude ^ -negative) + negative


@dataclass(frozen=True, slots=True)
class Blocks:
    """What the draws of one large sigma share.

    `rate` / 2**`places` is 2**32 * 2**`lost` / (2 variance), rounded down: the fixed-point factor that turns
    (y (y + 2 B x) >> lost) into an exponent in units of 2**-32.
    """

    variance: Fraction
    bits: int
    table: Table
    lost: int
    rate: int
    places: int


@lru_cache(maxsize=32)
def _build_blocks(variance: Fraction) -> Blocks:
    """With w = y (y + 2 B x) < 2**(2 bits + 11): drop bits of w beyond 31, keep 32 bits of the rate.

    2 variance lies between 2**(2 bits + 11) and 2**(2 bits + 13), so `rate` lies between 2**30 and 2**32.
    """
    bits = (isqrt(variance.numerator // variance.denominator) // SMALL).bit_length()
    lost = max(0, 2 * bits - 20)
    places = 2 * bits + 11 - lost
    rate = (variance.denominator << 32 + lost + places) // (2 * variance.numerator)
    table = Table(TwoSidedLaw(Fraction(variance, 1 << 2 * bits), minus_zero=True))
    return Blocks(variance, bits, table, lost, rate, places)


def _draw_large(blocks: Blocks, entropy: Entropy, count: int) -> NDArray[np.int64]:
    """Propose `count` pairs (x, y) and return those that are kept."""
    outcome = blocks.table.draw(count, entropy)
    block, negative = outcome >> 1, outcome & 1
    width = next(width for width in (8, 16, 32) if blocks.bits <= width)
    offset = draw_words(entropy, width, count).astype(np.int64) & (1 << blocks.bits) - 1
    offset += negative
    kept = _keep(blocks, block, offset, entropy)
    return _apply_signs((block << blocks.bits) + offset, negative)[kept]


def _keep(blocks: Blocks, block: NDArray[np.int64], offset: NDArray[np.int64], entropy: Entropy) -> NDArray[np.bool_]:
    """True with probability exp(-gamma), gamma = y (y + 2 B x) / (2 variance), for each pair.

    `exponent` is at most 4 units of 2**-32 below gamma: 2 from the bits lost, 1 from the rate, 1 from the last shift.
    As exp(-gamma) >= 1 - gamma, the first 16 bits of U nearly always suffice to keep a pair.
    """
    near = np.minimum(block, FARTHEST - 1)
    weight = offset * (offset + (near << blocks.bits + 1))
    exponent = (weight >> blocks.lost) * blocks.rate >> blocks.places
    first = draw_words(entropy, 16, block.size).astype(np.int64)
    kept = ((first + 1) << 16) + exponent + 4 <= ONE
    open_ = np.flatnonzero(~kept | (block >= FARTHEST))
    word = first[open_] << 16 | draw_words(entropy, 16, open_.size)
    limit = exp_fixed(np.zeros_like(open_), exponent[open_].astype(np.uint64)).astype(np.int64)
    kept[open_] = word < limit
    for i in np.flatnonzero((np.abs(word - limit) <= SLACK) | (block[open_] >= FARTHEST)):
        kept[open_[i]] = _settle(blocks, int(block[open_[i]]), int(offset[open_[i]]), int(word[i]), entropy)
    return kept


def _settle(blocks: Blocks, block: int, offset: int, word: int, entropy: Entropy) -> bool:
    """The same decision in Python integers, given the 32 bits of U that are known."""
    gamma = Fraction(offset * (offset + (block << blocks.bits + 1)), 2 * blocks.variance)
    return settle_below(word, 32, partial(exp_minus, gamma), Reader(entropy))
