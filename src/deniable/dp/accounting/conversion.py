"""From zCDP to (epsilon, delta) and back, as tightly as the Renyi orders allow, rounded to the safe side.

A rho-zCDP mechanism has Renyi divergence at most rho * a at every order a > 1. For one order, Canonne, Kamath and
Steinke 2020 (proposition 12; the same bound is optimal for one order, Asoodeh et al. 2020) give

    delta = exp((a - 1)(a rho - epsilon)) / (a - 1) * (1 - 1/a)^a

and solving for epsilon

    epsilon = a rho + ln(1 - 1/a) + (ln(1/delta) - ln a) / (a - 1).

Every order gives a true bound, so the best order is searched in floating point and only the value at that order is
computed with care: a clumsy search costs tightness, never soundness.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import localcontext
from fractions import Fraction
from functools import lru_cache

from deniable.dp.accounting.rounding import above, decimal, precise, round_down
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, Amount, ApproxDP, exact

_GOLDEN = (math.sqrt(5) - 1) / 2


@lru_cache(maxsize=4096)
def epsilon_of_zcdp(rho: Fraction, delta: Fraction) -> Fraction:
    """The smallest epsilon we can prove for a rho-zCDP mechanism at this delta, rounded up.

    >>> float(epsilon_of_zcdp(Fraction(1, 10), Fraction(1, 10**6)))
    2.14193892839
    """
    if rho == 0:
        return Fraction(0)
    if delta <= 0:
        raise ParameterError("zCDP gives no epsilon at delta 0", expected="delta is a small probability such as 1e-6")
    if delta >= 1:
        return Fraction(0)
    order = _best_order(lambda a: _epsilon_at(a, float(rho), _log(delta)), math.sqrt(-_log(delta) / float(rho)))
    with localcontext(precise()):
        a, ln_delta = decimal(order), decimal(delta).ln()
        return above(a * decimal(rho) + (1 - 1 / a).ln() - (ln_delta + a.ln()) / (a - 1))


@lru_cache(maxsize=4096)
def delta_of_zcdp(rho: Fraction, epsilon: Fraction) -> Fraction:
    """The smallest delta we can prove for a rho-zCDP mechanism at this epsilon, rounded up."""
    if rho == 0:
        return Fraction(0)
    order = _best_order(lambda a: _log_delta_at(a, float(rho), float(epsilon)), max(float(epsilon / rho) / 2, 1e-3))
    with localcontext(precise()):
        a = decimal(order)
        log_delta = (a - 1) * (a * decimal(rho) - decimal(epsilon)) + a * (1 - 1 / a).ln() - (a - 1).ln()
        return min(above(log_delta.exp()), Fraction(1))


@lru_cache(maxsize=4096)
def rho_within(epsilon: Fraction, delta: Fraction) -> Fraction:
    """A rho whose conversion stays within (epsilon, delta), to eleven digits the largest; rounded down.

    For each order a the bound on epsilon is linear in rho, so the largest rho that the order allows is known outright;
    the best order is searched, and the rho it allows is lowered by hairs until its own conversion agrees.
    """
    if epsilon <= 0 or delta <= 0:
        return Fraction(0)
    wanted, ln_delta = float(epsilon), _log(delta)
    order = _best_order(lambda a: -_rho_at(a, wanted, ln_delta), max(-2 * ln_delta / wanted, 1e-3))
    with localcontext(precise()):
        a = decimal(order)
        exactly = (decimal(epsilon) - (1 - 1 / a).ln() + (decimal(delta).ln() + a.ln()) / (a - 1)) / a
    rho, lowered = round_down(max(Fraction(exactly), Fraction(0))), Fraction(1, 10**12)
    while rho and epsilon_of_zcdp(rho, delta) > epsilon:
        rho, lowered = round_down(rho * (1 - lowered)), lowered * 4
        rho = rho if lowered < 1 else Fraction(0)
    return rho


def zcdp_within(limit: ApproxDP, threshold_share: Amount = Fraction(1, 2)) -> ZCDP:
    """A zCDP limit that keeps an (epsilon, delta) promise, with a share of delta set aside for thresholds.

    Filters are proven for limits fixed in advance (Feldman and Zrnic 2021; Whitehouse et al. 2023), so the split of
    delta between the conversion and the thresholds is fixed here, once, and not moved as charges come in.
    """
    share = exact(threshold_share, "threshold_share")
    if not 0 <= share < 1:
        raise ParameterError("threshold_share is outside [0, 1)", expected="a share such as 0.5")
    for_thresholds = limit.delta * share
    return ZCDP(rho_within(limit.epsilon, limit.delta - for_thresholds), for_thresholds)


def _epsilon_at(a: float, rho: float, ln_delta: float) -> float:
    return a * rho + math.log1p(-1 / a) - (ln_delta + math.log(a)) / (a - 1)


def _rho_at(a: float, epsilon: float, ln_delta: float) -> float:
    return (epsilon - math.log1p(-1 / a) + (ln_delta + math.log(a)) / (a - 1)) / a


def _log_delta_at(a: float, rho: float, epsilon: float) -> float:
    return (a - 1) * (a * rho - epsilon) + a * math.log1p(-1 / a) - math.log(a - 1)


def _log(value: Fraction) -> float:
    """The natural logarithm of a fraction that may be too small for a float."""
    return math.log(value.numerator) - math.log(value.denominator)


def _best_order(bound: Callable[[float], float], start: float) -> Fraction:
    """An order a > 1 near the least of the bound: golden section on ln(a - 1), eight e-folds either side of a start."""
    left, right = math.log(start) - 8, math.log(start) + 8

    def at(x: float) -> float:
        return bound(1 + max(math.exp(x), 1e-9))

    for _ in range(80):
        inner, outer = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
        left, right = (left, outer) if at(inner) <= at(outer) else (inner, right)
    return 1 + Fraction(max(math.exp((left + right) / 2), 1e-9))
