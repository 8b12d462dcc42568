"""zCDP: an accountant whose rhos add up exactly, and the conversion to (epsilon, delta) and back.

A rho-zCDP mechanism has Renyi divergence at most rho * a at every order a > 1. For one order, Canonne, Kamath and
Steinke 2020 (proposition 12; the same bound is optimal for one order, Asoodeh et al. 2020) give

    delta = exp((a - 1)(a rho - epsilon)) / (a - 1) * (1 - 1/a)^a

and solving for epsilon

    epsilon = a rho + ln(1 - 1/a) + (ln(1/delta) - ln a) / (a - 1).

Every order gives a true bound, so the best order is searched in floating point and only the value at that order is
computed with care, rounded to the safe side: a clumsy search costs tightness, never soundness."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import localcontext
from fractions import Fraction
from functools import lru_cache

from deniable.dp.accounting.cost import (
    FREE,
    Cost,
    float_above,
    ln_above,
    precise,
    price,
    refuse_over,
    refuse_unsupported,
    round_above,
    round_down,
    sqrt_below,
    to_decimal,
)
from deniable.dp.accounting.events import (
    Event,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    RandomizedEvent,
    SampledGaussianEvent,
    SelectionEvent,
    ThresholdEvent,
    check_count,
)
from deniable.dp.accounting.pure import pure_cost
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, Amount, ApproxDP, PureDP, budget, exact


def zcdp_cost(event: Event) -> Cost | None:
    """The rho, with the delta of thresholds, of an event; None for what has no zCDP price.

    >>> zcdp_cost(GaussianEvent(variance=50, sensitivity_squared=1))
    Cost(amount=Fraction(1, 100), delta=Fraction(0, 1), private=True)
    """
    return price(event, _price_leaf)


def rho_of_pure(epsilon: Fraction) -> Fraction:
    """The zCDP price of an epsilon-DP mechanism.

    epsilon^2 / 2 (Bun and Steinke 2016, proposition 3.3). No privacy loss exceeds epsilon, so no Renyi divergence
    does, and rho = epsilon holds too (order a: epsilon <= epsilon a); it is the smaller one above epsilon = 2.
    """
    return min(epsilon * epsilon / 2, epsilon)


def rho_of_bounded_range(epsilon: Fraction) -> Fraction:
    """The zCDP price of the exponential mechanism: epsilon^2 / 8 (Cesar and Rogers 2021), or epsilon as above."""
    return min(epsilon * epsilon / 8, epsilon)


def _price_leaf(event: Event) -> Cost | None:
    match event:
        case GaussianEvent():
            return Cost(event.rho)
        case SampledGaussianEvent():
            return Cost(event.rho, event.delta)
        case SelectionEvent(epsilon, True):
            return Cost(rho_of_bounded_range(epsilon))
        case LaplaceEvent() | SelectionEvent() | PureEvent():
            return Cost(rho_of_pure(event.epsilon))
        case RandomizedEvent(odds):
            return Cost(rho_of_pure(ln_above(odds)))
        case ThresholdEvent(delta):
            return Cost(delta=delta)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class ZCDPAccountant:
    """Composition of zCDP, exact: rhos add, and the deltas of thresholds add beside them.

    As a privacy filter it is sound for events chosen adaptively, against a limit fixed in advance (Feldman and Zrnic
    2021; Whitehouse et al. 2023). Give an (epsilon, delta) limit through `within`.

    **Two filters under one limit.** Under an (epsilon, delta) limit, events also fit as long as all of them are pure
    and their epsilons add up to no more than epsilon: ten Laplace questions of 0.1 cost 1, and not what their rhos come
    to. Let A be the transcripts that end with such a sum, and B the others, which end within the rho. Both are sets of
    transcripts, since each event is chosen from the answers before it. On A the probabilities P and Q of a transcript
    under neighbors differ by a factor of exp(epsilon) at most, so P(S in A) <= exp(epsilon) Q(S in A). A transcript in
    B is as likely as under the zCDP filter alone, so P(S in B) <= exp(epsilon) Q(S in B) + delta. Together that is the
    limit. Events with a delta of their own are never counted in A, so that no delta is spent twice.

    >>> account = ZCDPAccountant.within(ApproxDP(1, 1e-6)).compose(GaussianEvent(variance=200))
    >>> round(account.epsilon(1e-6), 4)
    0.2975
    """

    limit: ZCDP | None = None
    cost: Cost = FREE
    pure: Cost | None = FREE
    """The same events by pure composition; None once one of them has no pure price, or a delta."""
    epsilon_limit: Fraction | None = None
    """What pure events may add up to, where the limit is one in epsilon."""

    @classmethod
    def within(cls, limit: ApproxDP, threshold_share: Amount = Fraction(1, 2)) -> ZCDPAccountant:
        """An accountant that keeps an (epsilon, delta) limit; a share of delta is set aside for thresholds."""
        return cls(zcdp_within(limit, threshold_share), epsilon_limit=limit.epsilon)

    def supports(self, event: Event) -> bool:
        """Whether the event has a zCDP price."""
        return zcdp_cost(event) is not None

    def fits(self, event: Event, count: int = 1) -> bool:
        """Whether the event could be composed without passing the limit."""
        return self._after(event, count)._is_within()

    def compose(self, event: Event, count: int = 1) -> ZCDPAccountant:
        """The accountant after the event; refuses, changing nothing, what would pass the limit."""
        after = self._after(event, count)
        if not after._is_within():
            if self.is_pure_first and self.pure is not None and after.pure is not None:
                refuse_over("epsilon", after.pure.amount - self.pure.amount, Fraction(0), True, self)
            rho, delta = after.cost.amount - self.cost.amount, after.cost.delta - self.cost.delta
            only_pure = self.epsilon_left if not self.rho_left else Fraction(0)
            refuse_over("rho", rho, delta, after.cost.private, self.concentrated, only_pure)
        return after

    def _is_within(self) -> bool:
        """Whether one of the two filters holds."""
        if self.limit is None or self.cost.within(self.limit.rho, self.limit.delta):
            return True
        return self.epsilon_limit is not None and self.pure is not None and self.pure.amount <= self.epsilon_limit

    @property
    def is_pure_first(self) -> bool:
        """Whether pure composition leaves the larger part of the limit, so that the balance is told in epsilon."""
        if self.epsilon_limit is None or self.limit is None or self.pure is None:
            return False
        return self.pure.amount * self.limit.rho <= self.cost.amount * self.epsilon_limit

    @property
    def share_left(self) -> Fraction:
        """The part of the limit that is left, by the filter that leaves more of it."""
        if self.limit is None:
            return Fraction(1)
        if self.is_pure_first and self.pure is not None and self.epsilon_limit:
            return 1 - self.pure.amount / self.epsilon_limit
        return 1 - self.cost.amount / self.limit.rho if self.limit.rho else Fraction(0)

    @property
    def rho_left(self) -> Fraction:
        """The largest rho of an event that fits without being pure; 0 where none does, or there is no limit."""
        if self.limit is None or not self.cost.within(self.limit.rho, self.limit.delta):
            return Fraction(0)
        return self.limit.rho - self.cost.amount

    @property
    def delta_left(self) -> Fraction:
        """The largest delta that an event may have of its own; 0 where no event with one fits."""
        if self.limit is None or not self.cost.within(self.limit.rho, self.limit.delta):
            return Fraction(0)
        return self.limit.delta - self.cost.delta

    @property
    def epsilon_left(self) -> Fraction:
        """The largest epsilon of a pure event that fits, by whichever filter; 0 where none does."""
        # rho_of_pure(epsilon) = min(epsilon^2 / 2, epsilon) is at most rho up to the larger of sqrt(2 rho) and rho
        found = max(sqrt_below(2 * self.rho_left), self.rho_left)
        if self.epsilon_limit is not None and self.pure is not None and self.cost.private:
            found = max(found, self.epsilon_limit - self.pure.amount)
        return found

    @property
    def concentrated(self) -> ZCDPAccountant:
        """The account in rho alone."""
        return replace(self, epsilon_limit=None)

    def compute_spent(self, delta: Amount | None = None) -> ZCDP | PureDP | ApproxDP | None:
        """The guarantee so far: rho with its delta, or, at a given total delta, (epsilon, delta); None if none.

        Where pure composition leaves more of the limit, it is told in epsilon.
        """
        if not self.cost.private:
            return None
        if delta is None:
            if self.is_pure_first and self.pure is not None:
                return PureDP(self.pure.amount)
            return ZCDP(self.cost.amount, self.cost.delta)
        wanted = exact(delta, "delta")
        if self.pure is not None and wanted < 1:
            found = [self.pure.amount]
            if wanted > 0 and self.cost.amount > 0:
                found.append(epsilon_of_zcdp(self.cost.amount, wanted))
            return budget(epsilon=min(found), delta=wanted)
        for_conversion = wanted - self.cost.delta
        if wanted >= 1 or for_conversion < 0 or (for_conversion == 0 and self.cost.amount > 0):
            return None
        # A delta'-approximate rho-zCDP mechanism is (epsilon, delta' + (1 - delta') delta)-DP (Bun and Steinke 2016,
        # lemma 8.8), so the two deltas may be added.
        return budget(epsilon=epsilon_of_zcdp(self.cost.amount, for_conversion), delta=wanted)

    def epsilon(self, delta: Amount = 0) -> float:
        """The odometer's reading at this delta, rounded up; infinite where there is no guarantee."""
        spent = self.compute_spent(delta)
        return float_above(spent.epsilon) if isinstance(spent, PureDP | ApproxDP) else math.inf

    def compute_remaining(self) -> ZCDP | PureDP | None:
        """What the limit still allows; None without a limit.

        Where pure composition leaves more of it, that is the largest epsilon of a pure event; else the largest rho and
        delta of any other. An event that costs so much fits, and one that costs more does not.
        """
        if self.limit is None:
            return None
        if not self.cost.private:
            return ZCDP(Fraction(0))
        if self.is_pure_first:
            return PureDP(self.epsilon_left)
        return ZCDP(self.rho_left, self.delta_left)

    def _after(self, event: Event, count: int) -> ZCDPAccountant:
        check_count(count)
        cost, pure = zcdp_cost(event), pure_cost(event)
        if cost is None:
            refuse_unsupported(event, "zcdp", "pld")
        known = self.pure is not None and pure is not None and pure.private and not pure.delta
        both = self.pure + pure.times(count) if known and self.pure is not None and pure is not None else None
        return replace(self, cost=self.cost + cost.times(count), pure=both)


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
    order = _search_order(lambda a: _epsilon_at(a, float(rho), _log(delta)), math.sqrt(-_log(delta) / float(rho)))
    with localcontext(precise()):
        a, ln_delta = to_decimal(order), to_decimal(delta).ln()
        return round_above(a * to_decimal(rho) + (1 - 1 / a).ln() - (ln_delta + a.ln()) / (a - 1))


SMALLEST = Fraction(1, 10**100)
"""An epsilon that is not above it allows no rho that could be computed with."""


@lru_cache(maxsize=4096)
def rho_within(epsilon: Fraction, delta: Fraction) -> Fraction:
    """A rho whose conversion stays within (epsilon, delta), to eleven digits the largest; rounded down.

    For each order a the bound on epsilon is linear in rho, so the largest rho that the order allows is known outright;
    the best order is searched, and the rho it allows is lowered by hairs until its own conversion agrees.
    """
    if epsilon <= SMALLEST or delta <= 0:
        return Fraction(0)
    wanted, ln_delta = float(epsilon), _log(delta)
    order = _search_order(lambda a: -_rho_at(a, wanted, ln_delta), max(-2 * ln_delta / wanted, 1e-3))
    with localcontext(precise()):
        a = to_decimal(order)
        exactly = (to_decimal(epsilon) - (1 - 1 / a).ln() + (to_decimal(delta).ln() + a.ln()) / (a - 1)) / a
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


def _log(value: Fraction) -> float:
    """The natural logarithm of a fraction that may be too small for a float."""
    return math.log(value.numerator) - math.log(value.denominator)


def _search_order(bound: Callable[[float], float], start: float) -> Fraction:
    """An order a > 1 near the least of the bound: golden section on ln(a - 1), eight e-folds either side of a start."""
    left, right = math.log(start) - 8, math.log(start) + 8

    def at(x: float) -> float:
        return bound(1 + max(math.exp(x), 1e-9))

    for _ in range(80):
        inner, outer = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
        left, right = (left, outer) if at(inner) <= at(outer) else (inner, right)
    return 1 + Fraction(max(math.exp((left + right) / 2), 1e-9))
