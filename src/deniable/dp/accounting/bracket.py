"""Finding where a promise begins to hold: guessed in floating point, proven in high precision.

A test that is costly to evaluate with care is monotone in one number. Floating point finds the number to ten digits or
so; two careful tests just above and just below it then prove what bisection would need sixty for. A poor guess costs
time and never soundness: the number that is returned has passed the careful test itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from deniable.dp.accounting.rounding import round_up

WIDTH = Fraction(1, 10**10)
"""The bracket that is left is narrower than this, relative to its upper end."""
_FIRST = Fraction(1, 10**11)


def least(holds: Callable[[Fraction], bool], guess: float) -> Fraction:
    """The least positive number, from above and within WIDTH, for which a monotone test holds.

    >>> float(least(lambda x: x * x >= 2, 1.4142))
    1.4142135624...
    """
    start = round_up(Fraction(guess if math.isfinite(guess) and guess > 0 else 1.0))
    low, high, margin = start, start, _FIRST
    if holds(start):
        while holds(low := round_up(high / (1 + margin))) and low < high:
            high, margin = low, margin * 16
    else:
        while not holds(high := round_up(low * (1 + margin))):
            low, margin = high, margin * 16
    while high - low > high * WIDTH:
        middle = round_up((low + high) / 2)
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def float_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function of a positive number passes 0, by bisection on a logarithmic grid."""
    for _ in range(70):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return high


def log_delta(ratio: float, epsilon: float) -> float:
    """The logarithm of Balle and Wang's delta, to about ten digits; ratio = variance / squared sensitivity.

    With a = m/2 - epsilon/m, b = m/2 + epsilon/m and M the Mills ratio (1 - Phi) / phi: since b^2 - a^2 = 2 epsilon,
    delta = Phi(a) - e^epsilon Phi(-b) = phi(a) (M(-a) - M(b)), which neither overflows nor underflows.
    """
    m = 1 / math.sqrt(ratio)
    a, b = m / 2 - epsilon / m, m / 2 + epsilon / m
    if a > 0:
        return math.log(max(0.5 * math.erfc(-a / math.sqrt(2)) - _density(a) * _mills(b), 5e-324))
    return -a * a / 2 - math.log(math.sqrt(2 * math.pi)) + math.log(max(_mills(-a) - _mills(b), 5e-324))


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _mills(x: float) -> float:
    """(1 - Phi(x)) / phi(x) for x >= 0: directly, or by Laplace's continued fraction far out."""
    if x < 4:
        return 0.5 * math.erfc(x / math.sqrt(2)) / _density(x)
    value = x
    for k in range(80, 0, -1):
        value = x + k / value
    return 1 / value
