"""Certified integer enclosures of exp(-gamma): how an irrational probability is known without floating point.

An enclosure at precision P is a pair of integers (low, high) with low <= x * 2**P <= high. Every operation rounds the
low end down and the high end up, so an enclosure is true whatever its width; more precision only makes it narrower.
A lazily revealed uniform number U is then compared with x: the first bits of U say U lies in [w, w + 1) / 2**b, and
either that whole interval is on one side of the enclosure, or more bits of U and more precision of x are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from deniable.dp.samplers.entropy import Reader

Enclosure = tuple[int, int]

GUARD = 32  # bits of precision beyond the bits of U that are revealed
STEP = 64  # bits of U revealed at a time when a comparison is still undecided


def multiply(x: Enclosure, y: Enclosure, precision: int) -> Enclosure:
    """The product of two non-negative enclosures of the same precision."""
    return x[0] * y[0] >> precision, -(-x[1] * y[1] >> precision)


def exp_minus(gamma: Fraction, precision: int) -> Enclosure:
    """An enclosure of exp(-gamma) for gamma >= 0, a few units wide.

    Halving gamma until it is below 1/16 makes the series short: exp(-gamma) = exp(-gamma / 2**k) ** (2**k).
    """
    if gamma == 0:
        return 1 << precision, 1 << precision
    if gamma >= precision:  # exp(-gamma) <= 2**-precision, since log 2 < 1
        return 0, 1
    halvings = max(0, (gamma.numerator // gamma.denominator).bit_length() + 4)
    working = precision + halvings + 16
    x = (gamma.numerator << working - halvings) // gamma.denominator
    power = _series((x, x + 1), working)
    for _ in range(halvings):
        power = multiply(power, power, working)
    drop = working - precision
    return power[0] >> drop, -(-power[1] >> drop)


def _series(x: Enclosure, precision: int) -> Enclosure:
    """1 - x + x**2/2! - ... for x in [0, 1]: terms shrink and alternate, so the rest is at most the last term."""
    low = high = 1 << precision
    term, order = (low, high), 0
    while term[1] > 1:
        order += 1
        divisor = order << precision
        term = term[0] * x[0] // divisor, -(-term[1] * x[1] // divisor)
        low, high = (low - term[1], high - term[0]) if order & 1 else (low + term[0], high + term[1])
    return max(0, low - 1), high + 1


def settle_below(word: int, bits: int, enclose: Callable[[int], Enclosure], reader: Reader) -> bool:
    """Whether U < x, given that U lies in [word, word + 1) / 2**bits; reveals more of U until it is certain.

    `enclose(precision)` encloses x. The loop ends with probability 1: each round leaves a chance of about 2**-32.
    """
    while True:
        low, high = enclose(bits + GUARD)
        if word + 1 << GUARD <= low:
            return True
        if word << GUARD >= high:
            return False
        word, bits = word << STEP | reader.integer(STEP), bits + STEP


def powers(gamma: Fraction, count: int, precision: int) -> list[Enclosure]:
    """Enclosures of exp(-j * gamma) for j = 0, ..., count - 1, by repeated multiplication."""
    ratio, power = exp_minus(gamma, precision), (1 << precision, 1 << precision)
    listed = []
    for _ in range(count):
        listed.append(power)
        power = multiply(power, ratio, precision)
    return listed
