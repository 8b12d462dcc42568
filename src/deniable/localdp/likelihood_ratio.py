"""The likelihood ratio behind an epsilon: the exact rational at most e^epsilon that a randomizer really uses.

A local randomizer promises that no response is more than e^epsilon times as likely under one answer as under another.
e^epsilon is irrational, so it is rounded *down* to a multiple of 2^-20 and every probability is then an exact
rational. Recipes call this ratio the *odds*. The epsilon achieved is its logarithm: never above the epsilon asked."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

from deniable.errors import ParameterError
from deniable.policy.budget import Amount, exact

GRID = 1 << 20
LARGEST = 16  # beyond e^16 the answer goes out nearly bare, and totals would pass the 2^53 of a browser's integers


def check_epsilon(epsilon: Amount) -> Fraction:
    """The epsilon of a local randomizer as an exact number, refused outside (0, 16]."""
    value = exact(epsilon, "epsilon")
    if not 0 < value <= LARGEST:
        raise ParameterError(
            f"epsilon is {float(value):g}",
            expected=f"A local randomizer takes an epsilon above 0 and at most {LARGEST}",
            remedy="Values between 0.5 and 4 are usual",
        )
    return value


def exponential(exponent: Fraction) -> Decimal:
    """e^exponent to 50 significant digits, correctly rounded."""
    with localcontext() as context:
        context.prec = 60
        power = (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
        context.prec = 50
        return +power


def odds_below(epsilon: Amount, grid: int = GRID) -> Fraction:
    """The largest multiple of 1/grid that is at most e^epsilon.

    >>> odds_below(1, grid=100)
    Fraction(271, 100)
    """
    with localcontext() as context:
        context.prec = 60
        # The 50 digits are correct to half a unit; shaving 1e-45 keeps a rounding up from ever crossing the claim.
        power = exponential(check_epsilon(epsilon)) * (1 - Decimal("1e-45"))
        odds = Fraction(int(power * grid), grid)
    if odds <= 1:
        raise ParameterError(
            "epsilon is too small for exact odds above 1",
            expected=f"At least {math.log1p(1 / grid):.1e}",
            remedy="Use a larger epsilon: below this no answer could be distinguished from noise",
        )
    return odds


def check_odds(odds: Fraction) -> Fraction:
    """Odds as a protocol may have them: above 1, where a response says something, and finite."""
    if odds <= 1:
        raise ParameterError("the odds of a response are not above 1", expected="Odds such as 3 or 271/100")
    return odds


def epsilon_of(odds: Fraction) -> float:
    """The privacy loss of odds: their natural logarithm."""
    return math.log(odds.numerator) - math.log(odds.denominator)


def is_within_epsilon(odds: Fraction, epsilon: Amount) -> bool:
    """Whether exact odds keep to a claimed epsilon, decided in 50-digit arithmetic."""
    with localcontext() as context:
        context.prec = 60
        return Decimal(odds.numerator) <= exponential(exact(epsilon)) * Decimal(odds.denominator)
