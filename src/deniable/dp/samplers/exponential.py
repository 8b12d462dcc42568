"""The exponential function in integers: how an irrational probability exp(-gamma) is known without floating point.

**One at a time.** An enclosure at precision P is a pair of integers (low, high) with low <= x * 2**P <= high. Every
operation rounds the low end down and the high end up, so an enclosure is true whatever its width; more precision only
makes it narrower. A lazily revealed uniform number U is then compared with x: the first bits of U say U lies in
[w, w + 1) / 2**b, and either that whole interval is on one side of the enclosure, or more bits of U and more precision
of x are asked for.

**Many at once.** Exponents gamma_i = cost_i * unit are split into a whole part and a 32-bit fraction. What is stored is
close, not exact; the exact rational is kept within reach for the rare comparison that needs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable.dp.samplers.entropy import Reader
from deniable.errors import ParameterError

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


ONE = 1 << 32
ROOM = 1 << 62  # products and exponents stay below this
SLACK = 32  # exp_fixed is within this many units of 2**-32 of the truth; the derivation is in its docstring
_WHOLE = np.array([min(ONE - 1, exp_minus(Fraction(n), 32)[0]) for n in range(24)], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Exponents:
    """cost_i * unit for integer costs >= 0: `whole` is exact, `fraction` is in units of 2**-32, at most 10 off."""

    costs: NDArray[np.int64]
    unit: Fraction
    whole: NDArray[np.int64]
    fraction: NDArray[np.uint64]

    @classmethod
    def of(cls, costs: ArrayLike, unit: Fraction) -> Exponents:
        """Split every cost * unit; numbers beyond 64 bits take a slower way through Python's integers."""
        taken = require_integers(costs, "costs")
        if taken.size and int(taken.min()) < 0:
            raise ParameterError("A cost is negative", expected="Costs are at least 0, the best candidate has cost 0")
        largest = int(taken.max(initial=0))
        if largest * unit >= ROOM:
            raise ParameterError("A cost times the unit is 2**62 or more", expected="Smaller exponents")
        fits = max(largest, 1) * unit.numerator < ROOM and unit.denominator < ROOM
        return cls(taken, unit, *(_split_words if fits else _split_integers)(taken, unit))

    def exact(self, i: int) -> Fraction:
        """The i-th exponent as a rational."""
        return int(self.costs[i]) * self.unit

    def exact_fraction(self, i: int) -> Fraction:
        """What the i-th exponent has beyond its whole part."""
        return self.exact(i) - int(self.whole[i])

    def at(self, positions: NDArray[np.int64]) -> Exponents:
        """The exponents at some positions."""
        return Exponents(self.costs[positions], self.unit, self.whole[positions], self.fraction[positions])


def require_integers(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """A one-dimensional array of 64-bit integers; floats are refused, not rounded."""
    taken = np.asarray(values)
    if taken.ndim != 1 or (taken.size and taken.dtype.kind not in "iu"):
        raise ParameterError(f"{name} is not a one-dimensional array of integers", expected="An array of int64")
    if taken.size and taken.dtype.kind == "u" and int(taken.max()) >= 1 << 63:
        raise ParameterError(f"{name} has an entry of 2**63 or more", expected="An array of int64")
    return taken.astype(np.int64)


def _split_words(costs: NDArray[np.int64], unit: Fraction) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Both sides of the division lose the same low bits, so that remainder * 2**32 fits: the quotient is off by a
    relative 2**-30, which is 4 units on either side."""
    whole, rest = np.divmod(costs * unit.numerator, unit.denominator)
    lost = max(0, unit.denominator.bit_length() - 31)
    fraction = ((rest >> lost) << 32) // (unit.denominator >> lost)
    return whole, np.minimum(fraction, ONE - 1).astype(np.uint64)


def _split_integers(costs: NDArray[np.int64], unit: Fraction) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    parts = [divmod(cost * unit.numerator, unit.denominator) for cost in costs.tolist()]
    fraction = [(rest << 32) // unit.denominator for _, rest in parts]
    return np.array([whole for whole, _ in parts], dtype=np.int64), np.array(fraction, dtype=np.uint64)


def exp_fixed(whole: NDArray[np.int64], fraction: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """2**32 * exp(-(whole + fraction / 2**32)), within SLACK of the truth even if the fraction is 10 units off.

    The series of exp(-x), nested as 1 - x/1 (1 - x/2 (1 - x/3 ...)) and cut after order 13, is off by less than
    1/14! < 2**-32: one unit. Step k truncates twice (2 units at most) and passes on 1/k of the error below it, at
    order 1 fewer than 6 units together. Ten more come from the fraction, two from the factor exp(-whole). From
    whole = 24 on, exp(-24) < 2**-32 * 1 is itself below one unit, and 0 is close enough.
    """
    near = np.full(fraction.shape, ONE, dtype=np.uint64)
    for k in range(13, 0, -1):
        near = np.uint64(ONE) - (fraction * near >> np.uint64(32)) // np.uint64(k)
    scaled = near * _WHOLE[np.minimum(whole, 23)] >> np.uint64(32)
    return np.where(whole < 24, scaled, np.uint64(0))
