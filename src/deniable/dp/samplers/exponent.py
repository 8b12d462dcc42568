"""Many exponents at once: gamma_i = cost_i * unit, split into a whole part and a 32-bit fraction, in integers.

What is stored is close, not exact; the exact rational is kept within reach for the rare comparison that needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable.dp.samplers.enclosure import exp_minus
from deniable.errors import ParameterError

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
        taken = integers(costs, "costs")
        if taken.size and int(taken.min()) < 0:
            raise ParameterError("A cost is negative", expected="Costs are at least 0, the best candidate has cost 0")
        largest = int(taken.max(initial=0))
        if largest * unit >= ROOM:
            raise ParameterError("A cost times the unit is 2**62 or more", expected="Smaller exponents")
        fits = largest * unit.numerator < ROOM and unit.denominator < ROOM
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


def integers(values: ArrayLike, name: str) -> NDArray[np.int64]:
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
