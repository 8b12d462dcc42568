"""One draw at a time in Python integers of any size: the algorithms of Canonne, Kamath and Steinke (2020), as printed.

They serve small requests, where preparing a table would cost more than the draws, and parameters too large for words
of 64 bits. They share nothing with the vectorized samplers but the reader of entropy, so each is the other's oracle.
Source: "The Discrete Gaussian for Differential Privacy", arXiv 2004.00010, Algorithms 1 to 3.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from deniable.dp.samplers.entropy import Reader

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
