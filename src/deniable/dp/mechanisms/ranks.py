"""Errors in rank: how far an integer is from being the quantile q of n values, with attention to ties.

With `below`, `equal` and `above` values on either side of an integer (n in all) there are two natural errors:

    beyond  = max(below - q n, above - (1 - q) n, 0)       values too many on one side: 0 for every true quantile
    middle  = |(1 - q) below - q above|                    the same with the values equal to it split q to 1 - q

`beyond` is what a reader means by an error in rank. `middle` counts a part of the ties too: where few values are equal
it tells a neighbor of the true quantile from it more sharply, where many are (rounded or heaped data) it may prefer a
wrong value whose ties happen to be better balanced. The cost taken is the smaller of `middle` and `beyond` + slack: of
the first kind for few ties, of the second for many. The slack is two of the mechanism's own units of rank.

**Sensitivity.** One value more, at x: below - q n moves by 1 - q if x is below the integer and by -q if not; above -
(1 - q) n by q if x is above and by -(1 - q) if not; (1 - q) below - q above by 1 - q, 0 or -q. So each of them moves
by at most max(q, 1 - q), and so do a maximum, an absolute value, a sum with a constant and a minimum of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

SLACK = 2
"""In units of rank, each of which costs a factor of e in probability."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """For rising integers (the last axis): how many values are below, at and above each."""

    below: NDArray[np.int64]
    equal: NDArray[np.int64]
    above: NDArray[np.int64]

    @classmethod
    def of(cls, equal: NDArray[np.int64]) -> Ranks:
        """From the number of values at each integer (or at each run of integers without values between)."""
        seen = np.cumsum(equal, axis=-1)
        return cls(seen - equal, equal, seen[..., -1:] - seen)


def rank_costs(ranks: Ranks, quantile: Fraction, unit: Fraction) -> NDArray[np.int64]:
    """Costs in parts of a value, 1 / denominator of the quantile, where a value is worth `unit` in the exponent."""
    a, b = quantile.numerator, quantile.denominator
    middle = (b - a) * ranks.below - a * ranks.above
    # With q = a / b: b (below - q n) = (b - a) below - a above - a equal, and the same from the other side.
    beyond = np.maximum(np.maximum(middle - a * ranks.equal, -middle - (b - a) * ranks.equal), 0)
    costs: NDArray[np.int64] = np.minimum(np.abs(middle), beyond + min(int(b * SLACK / unit), 1 << 61))
    return costs


def slack(unit: Fraction) -> int:
    """How many values the best integer may cost, at most, rounded up."""
    return -(-SLACK // unit)
