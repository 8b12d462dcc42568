"""Intervals for proportions: what a number of successes in a number of trials proves about a probability.

Clopper and Pearson's bounds are exact: they hold at every probability and every number of trials, which is what a
verdict about a mechanism needs. They are computed from the regularized incomplete beta function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deniable.errors import ParameterError

_BISECTIONS = 60
_TERMS = 10_000
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Interval:
    """A share of successes with the bounds that hold together at the confidence asked for."""

    share: float
    low: float
    high: float


def compute_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """The two-sided Clopper-Pearson interval of a proportion.

    >>> round(compute_interval(0, 10).high, 6)
    0.308497
    """
    side = (1 + confidence) / 2
    share = successes / trials if trials else 0.0
    return Interval(share, lower_bound(successes, trials, side), upper_bound(successes, trials, side))


def lower_bound(successes: int, trials: int, confidence: float) -> float:
    """The probability below which so many successes or more have a chance of only 1 - confidence."""
    _check(successes, trials, confidence)
    if successes == 0:
        return 0.0
    # P[Binomial(n, p) >= k] = I_p(k, n - k + 1), increasing in p.
    return _solve(successes, trials - successes + 1, 1 - confidence)[0]


def upper_bound(successes: int, trials: int, confidence: float) -> float:
    """The probability above which so few successes or fewer have a chance of only 1 - confidence."""
    _check(successes, trials, confidence)
    if successes == trials:
        return 1.0
    # P[Binomial(n, p) <= k] = 1 - I_p(k + 1, n - k), decreasing in p.
    return _solve(successes + 1, trials - successes, confidence)[1]


def _check(successes: int, trials: int, confidence: float) -> None:
    if not 0 <= successes <= trials:
        raise ParameterError("successes are not between 0 and the number of trials")
    if not 0 < confidence < 1:
        raise ParameterError("confidence is not between 0 and 1", expected="a confidence such as 0.95")


def _solve(a: int, b: int, target: float) -> tuple[float, float]:
    """An enclosure of the x with I_x(a, b) = target."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if incomplete_beta(a, b, middle) < target else (low, middle)
    return low, high


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function I_x(a, b), by its continued fraction.

    >>> incomplete_beta(1, 1, 0.25)
    0.25
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on this side of the mean only
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction 1 + d1/(1 + d2/(1 + ...)) of the incomplete beta function, by Lentz's method."""
    value = upper = 1.0
    lower = 0.0
    for m in range(1, _TERMS):
        half, odd = divmod(m, 2)
        if odd:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        lower = 1 / _nonzero(1 + term * lower)
        upper = _nonzero(1 + term / upper)
        value *= lower * upper
        if abs(lower * upper - 1) < 1e-15:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
