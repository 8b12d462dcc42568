"""Errors in rank: how far an integer is from being the quantile q of n values, with attention to ties.

With `below`, `equal` and `above` values on either side of an integer (n in all),

    cost = max(below - q n, above - (1 - q) n)

Above 0 it is the error in rank as a reader means it: so many values too many on one side. Below 0 it says how far a
true quantile is from becoming a wrong one; there is always an integer with a cost of at most 0. With s = (1 - q) below
- q above it is max(s - q equal, -s - (1 - q) equal), for the median |below - above| / 2 - equal / 2: the ties count for
the integer they are at. That is what sets it apart from |s|, by which an integer between two heaps looks better than
the heap which the quantile is in.

**Sensitivity.** One value more, at x, moves below - q n by 1 - q if x is below the integer and by -q if not, above -
(1 - q) n by q if x is above it and by -(1 - q) if not. So a cost moves by at most max(q, 1 - q), and no cost of this
kind can do with less: a value at the far end moves the integers on one side of the quantile up and those on the other
down, each by max(q, 1 - q). (All costs together move within a range of twice that, which is what a choice loses.)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ranks:
    """For rising integers (the last axis): how many values are below, at and above each."""

    below: Numbers
    equal: Numbers
    above: Numbers

    @classmethod
    def of(cls, equal: Numbers) -> Ranks:
        """From the number of values at each integer (or at each run of integers without values between)."""
        seen = np.cumsum(equal, axis=-1)
        return cls(seen - equal, equal, seen[..., -1:] - seen)


def rank_costs(ranks: Ranks, quantile: Fraction) -> Numbers:
    """Costs in parts of a value, 1 / denominator of the quantile.

    >>> rank_costs(Ranks.of(np.array([2, 0, 3, 1])), Fraction(1, 2)).tolist()
    [2, 2, -2, 4]
    """
    a, b = quantile.numerator, quantile.denominator
    middle = (b - a) * ranks.below - a * ranks.above
    # With q = a / b: b (below - q n) = (b - a) below - a above - a equal, and the same from the other side.
    costs: Numbers = np.maximum(middle - a * ranks.equal, -middle - (b - a) * ranks.equal)
    return costs
