"""The privacy curve of Gaussian noise: exact for the continuous noise, proven for the discrete noise we draw.

**Continuous.** With m = sensitivity / sigma, Balle and Wang 2018 (theorem 8) show that the smallest delta is

    delta(epsilon) = Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m),

and independent Gaussian releases compose to one with m^2 = sum of m_i^2 (Dong, Roth and Su 2019, corollary 3.3).

**Discrete.** That theorem is about continuous noise; we draw from the integers. The bridge is a randomized rounding.
Let t^2 = 4 and add continuous noise of variance s^2 = sigma^2 - t^2 to an integer vector q, then round each entry z to
the integer y with probability proportional to exp(-(y - z)^2 / (2 t^2)). Rounding is post-processing. By Poisson
summation the normalizer, the sum over y of exp(-(y - z)^2 / (2 t^2)), is t sqrt(2 pi) (1 +- h) for every z, where
h = 2 exp(-2 pi^2 t^2) + ... < 1.1e-34. So the probability of y is the density of N(q, s^2 + t^2) at y up to a factor
1 +- h, and that is the discrete Gaussian of variance sigma^2 up to another such factor. For d entries the two
mechanisms agree pointwise within e^(3 h d). Hence: if the continuous noise of variance sigma^2 - 4 is
(epsilon, delta)-DP, the discrete noise of variance sigma^2 is (epsilon + 6 h d, e^(3 h d) delta)-DP, for every d and
every shape of the sensitivity. For d < 2^63 entries both corrections stay below SLACK = 1e-14, which is charged here.
(The smoothing of a lattice by a Gaussian is Micciancio and Regev 2007; the convolution is Peikert 2010.)

For noise of variance up to 4 steps this says nothing, and zCDP, which is exact for the discrete Gaussian
(Canonne, Kamath and Steinke 2020, theorem 14), is used alone.

**Search.** A test that is costly to evaluate with care is monotone in one number. Floating point finds the number to
ten digits or so; two careful tests just above and just below it then prove what bisection would need sixty for. A poor
guess costs time and never soundness: the number that is returned has passed the careful test itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from functools import lru_cache

from deniable.dp.accounting.cost import precise, round_above, round_up, to_decimal

SMOOTHING = Fraction(4)
"""t^2: the part of the variance that pays for the noise being discrete."""
SLACK = Fraction(1, 10**14)
"""Added to epsilon, and to delta as a factor, for the same reason."""
_FAR = 40
"""Beyond so many standard deviations Phi is below 1e-349 and bounded instead of summed."""
LARGEST_EPSILON = 500
"""Above this a curve is no promise any more, and e^epsilon no number to compute with."""
BORDER = 1 + 1e-6
"""Epsilons are found so far beyond the largest one: what is calibrated to the largest has a price, too."""
SMALLEST_DELTA = Fraction(1, 10**25)
"""Below this the guard of the rounding would swallow delta; zCDP, computed in logarithms, is used instead."""


@lru_cache(maxsize=4096)
def delta_of_continuous(ratio: Fraction, epsilon: Fraction) -> Fraction:
    """An upper bound within 1e-12 (relative) on Balle and Wang's delta, for ratio = variance / squared sensitivity.

    >>> float(delta_of_continuous(Fraction(1), Fraction(1)))
    0.126936737507
    """
    with localcontext(precise(50 + int(epsilon / 2))):
        root, grown = to_decimal(ratio).sqrt(), to_decimal(epsilon)
        half, shift = 1 / (2 * root), grown * root
        delta = _phi(half - shift, high=True) - grown.exp() * _phi(-half - shift, high=False)
        return min(round_above(delta), Fraction(1))


@lru_cache(maxsize=4096)
def epsilon_of_gaussian(ratio: Fraction, delta: Fraction) -> Fraction | None:
    """A proven epsilon at this delta for noise dominated by a continuous Gaussian of this ratio; None beyond reach."""
    if delta < SMALLEST_DELTA:
        return None
    wanted, known = math.log(delta), float(ratio)
    guess = find_root(lambda epsilon: log_delta(known, epsilon) - wanted, float(SLACK), 2.0 * LARGEST_EPSILON)
    if guess > LARGEST_EPSILON * BORDER:
        return None
    if guess < 2 * SLACK and _delta_with_slack(ratio, SLACK) <= delta:
        return 2 * SLACK
    # With its slack: what `ratio_within` gives for an epsilon of few digits is not priced a slack above it.
    return find_least(lambda epsilon: epsilon > SLACK and _delta_with_slack(ratio, epsilon - SLACK) <= delta, guess)


@lru_cache(maxsize=4096)
def ratio_within(epsilon: Fraction, delta: Fraction) -> Fraction | None:
    """The smallest ratio (nine digits, rounded up) of continuous noise for discrete noise to keep (epsilon, delta)."""
    if not SLACK < epsilon <= LARGEST_EPSILON or delta < SMALLEST_DELTA:
        return None
    wanted, known = math.log(delta), float(epsilon)
    guess = find_root(lambda ratio: log_delta(ratio, known) - wanted, 1e-9, 1e60)
    return round_up(find_least(lambda ratio: _delta_with_slack(ratio, epsilon - SLACK) <= delta, guess), 9)


def keeps_epsilon(ratio: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Whether discrete noise dominated by a continuous Gaussian of this ratio is proven to keep (epsilon, delta)."""
    if not SLACK < epsilon <= LARGEST_EPSILON or delta < SMALLEST_DELTA:
        return False
    return _delta_with_slack(ratio, epsilon - SLACK) <= delta


def normal_above(x: Decimal) -> Decimal:
    """The normal distribution function Phi(x), rounded up in the digits in force."""
    return _phi(x, high=True)


def _delta_with_slack(ratio: Fraction, epsilon: Fraction) -> Fraction:
    return delta_of_continuous(ratio, epsilon) * (1 + SLACK)


def _phi(x: Decimal, *, high: bool) -> Decimal:
    """The normal distribution function, erring upwards (high) or downwards by a few of the last digits in force.

    Phi(x) = 1/2 + exp(-x^2/2) / sqrt(2 pi) * (x + x^3/3 + x^5/(3*5) + ...): all terms have one sign, so nothing
    cancels inside the series; the digits in force cover the cancellation with 1/2 and the factor e^epsilon.
    """
    if abs(x) > _FAR:
        tail = (-x * x / 2).exp() / 2 if high == (x < 0) else Decimal(0)
        return tail if x < 0 else 1 - tail
    digits = getcontext().prec
    term = total = x
    place = 1
    while abs(term) > abs(total).scaleb(-digits):
        place += 2
        term = term * x * x / place
        total += term
    margin = Decimal(1).scaleb(10 - digits)  # thousands of roundings, each in the last digit of a number below 1
    return Decimal("0.5") + (-x * x / 2).exp() / _sqrt_two_pi(digits) * total + (margin if high else -margin)


@lru_cache(maxsize=64)
def _sqrt_two_pi(digits: int) -> Decimal:
    """The square root of 2 pi to that many digits; pi by Machin's formula."""
    with localcontext(precise(digits + 5)):
        return (8 * (4 * _arctan_of_inverse(5) - _arctan_of_inverse(239))).sqrt()


def _arctan_of_inverse(n: int) -> Decimal:
    """1/n - 1/(3 n^3) + 1/(5 n^5) - ..."""
    power = total = Decimal(1) / n
    sign, place = 1, 1
    while power > total.scaleb(-getcontext().prec):
        power, sign, place = power / (n * n), -sign, place + 2
        total += sign * power / place
    return total


WIDTH = Fraction(1, 10**10)
"""The bracket that is left is narrower than this, relative to its upper end."""
_FIRST = Fraction(1, 10**11)


def find_least(holds: Callable[[Fraction], bool], guess: float) -> Fraction:
    """The least positive number, from above and within WIDTH, for which a monotone test holds.

    >>> float(find_least(lambda x: x * x >= 2, 1.4142))
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


def find_root(function: Callable[[float], float], low: float, high: float) -> float:
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
