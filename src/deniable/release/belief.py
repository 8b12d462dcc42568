"""What an intruder can at most come to believe: differential privacy in the words of Bayes.

Let an intruder hold a fact about a person true with probability p before the release. An epsilon-differentially private
release multiplies the odds of the two worlds by at most e^epsilon, so afterwards

    posterior <= e^epsilon p / (1 - p + e^epsilon p),

whatever else the intruder knows or will learn. The two worlds must be neighbors. When neighbors differ by *adding or
removing* a person, the fact is that the person is in the data; a fact about the person's *values* compares two worlds
with the person in both, which are two steps apart and cost 2 epsilon (and (1 + e^epsilon) delta). When neighbors differ
by *replacing* a person's values, one step covers it. With a delta, the bound can fail: releases for which it does not
hold turn up with a small probability of the order of delta, which is stated beside the bound, not hidden in it.
"""

from __future__ import annotations

import math
from fractions import Fraction

from deniable.errors import ParameterError
from deniable.policy.budget import Amount, exact

PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))


def belief(prior: Amount, epsilon: Amount) -> float:
    """The largest posterior belief; rounded up in the last place, so that it is never understated.

    >>> round(belief(0.5, 1), 4)
    0.7311
    >>> belief(0.1, 0) >= 0.1
    True
    """
    p, strength = exact(prior, "prior"), exact(epsilon, "epsilon")
    if not 0 <= p <= 1:
        raise ParameterError("a prior belief is a probability", expected="A number between 0 and 1")
    if strength < 0:
        raise ParameterError("epsilon is negative", expected="epsilon is at least 0")
    if p in (0, 1):
        return float(p)
    # e^eps p / (1 - p + e^eps p) = 1 / (1 + ((1 - p) / p) e^-eps): no overflow for any epsilon.
    bound = 1 / (1 + float((1 - p) / p) * math.exp(-float(min(strength, Fraction(10_000)))))
    return min(1.0, math.nextafter(bound * (1 + 4e-16), 2.0))


def percent(share: float) -> str:
    """A belief as a percentage with one decimal, rounded up; certainty is said only of certainty.

    >>> percent(belief(0.5, 1)), percent(0.99999)
    ('73.2%', 'more than 99.9%')
    """
    if share >= 1:
        return "100%"
    # The tiny slack keeps a belief that is exactly 10% from being shown as 10.1% for the rounding of its last bit.
    tenths = math.ceil(share * 1000 - 1e-9)
    return "more than 99.9%" if tenths >= 1000 else f"{tenths / 10:g}%"
