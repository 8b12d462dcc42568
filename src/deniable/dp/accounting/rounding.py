"""Rounding to the safe side: rationals with few digits that are never better than the truth.

Logarithms and exponentials are taken in decimal arithmetic, whose `ln`, `exp` and `sqrt` are correctly rounded, with
digits to spare. The last step widens the result by far more than the arithmetic can err, then cuts it to a readable
number of digits in the direction that promises less privacy or adds more noise.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction

GUARD = Fraction(1, 10**30)
"""More than fifty-digit arithmetic can err over a few hundred operations."""


def precise(digits: int = 60) -> Context:
    """Arithmetic of that many digits, without overflow, to be used as `with localcontext(precise()):`."""
    return Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)


def to_decimal(value: Fraction) -> Decimal:
    """The value to the digits of the arithmetic in force."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def round_up(value: Fraction, digits: int = 12) -> Fraction:
    """The smallest number of that many significant digits that is not below a value of at least 0.

    >>> round_up(Fraction(1, 3), 3)
    Fraction(167, 500)
    """
    step = _find_step(value, digits)
    return -((-value) // step) * step


def round_down(value: Fraction, digits: int = 12) -> Fraction:
    """The largest number of that many significant digits that is not above a value of at least 0."""
    step = _find_step(value, digits)
    return value // step * step


def round_above(value: Decimal, digits: int = 12) -> Fraction:
    """A computed number, widened by the guard, as a rational not below the true one; never below 0.

    Numbers nearer to 0 than the guard are replaced by it: the tail of a Gaussian may have millions of leading zeros,
    which a fraction would write out.
    """
    if abs(value) < to_decimal(GUARD):
        return 2 * GUARD
    return round_up(max(Fraction(value) * (1 + GUARD) + GUARD, Fraction(0)), digits)


def ln_above(value: Fraction, digits: int = 15) -> Fraction:
    """The natural logarithm of a value of at least 1, rounded up; exactly 0 at 1."""
    if value == 1:
        return Fraction(0)
    with localcontext(precise()):
        return round_above(to_decimal(value).ln(), digits)


def sqrt_above(value: Fraction, digits: int = 12) -> Fraction:
    """The square root of a value of at least 0, rounded up; exact where it is rational with few digits."""
    with localcontext(precise()):
        root = Fraction(to_decimal(value).sqrt())
    if root * root == value:
        return root
    return round_up(root * (1 + GUARD) + GUARD, digits)


def float_above(value: Fraction) -> float:
    """The smallest float that is not below the value."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def _find_step(value: Fraction, digits: int) -> Fraction:
    """The place of the last of that many significant digits of a value."""
    if value <= 0:
        return Fraction(1)
    magnitude = len(str(value.numerator // value.denominator)) if value >= 1 else 1 - _count_leading_zeros(value)
    return Fraction(10) ** (magnitude - digits)


def _count_leading_zeros(value: Fraction) -> int:
    """Places after the point, up to and with the first nonzero digit, of a value below 1."""
    return len(str(value.denominator // value.numerator))
