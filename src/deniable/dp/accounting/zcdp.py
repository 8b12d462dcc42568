"""The zCDP accountant: rhos add up exactly, and convert to (epsilon, delta) when a promise is read off."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from deniable.dp.accounting.conversion import epsilon_of_zcdp, zcdp_within
from deniable.dp.accounting.cost import FREE, Cost, fold
from deniable.dp.accounting.events import (
    Event,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    RandomizedEvent,
    SelectionEvent,
    ThresholdEvent,
    check_count,
)
from deniable.dp.accounting.pure import float_above
from deniable.dp.accounting.refusals import refuse_over, refuse_unsupported
from deniable.dp.accounting.rounding import ln_above
from deniable.policy.budget import ZCDP, Amount, ApproxDP, PureDP, budget, exact


def zcdp_cost(event: Event) -> Cost | None:
    """The rho, with the delta of thresholds, of an event; None for what has no zCDP price.

    >>> zcdp_cost(GaussianEvent(variance=50, sensitivity_squared=1))
    Cost(amount=Fraction(1, 100), delta=Fraction(0, 1), private=True)
    """
    return fold(event, _leaf)


def rho_of_pure(epsilon: Fraction) -> Fraction:
    """The zCDP price of an epsilon-DP mechanism.

    epsilon^2 / 2 (Bun and Steinke 2016, proposition 3.3). No privacy loss exceeds epsilon, so no Renyi divergence
    does, and rho = epsilon holds too (order a: epsilon <= epsilon a); it is the smaller one above epsilon = 2.
    """
    return min(epsilon * epsilon / 2, epsilon)


def rho_of_bounded_range(epsilon: Fraction) -> Fraction:
    """The zCDP price of the exponential mechanism: epsilon^2 / 8 (Cesar and Rogers 2021), or epsilon as above."""
    return min(epsilon * epsilon / 8, epsilon)


def _leaf(event: Event) -> Cost | None:
    match event:
        case GaussianEvent():
            return Cost(event.rho)
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

    >>> account = ZCDPAccountant.within(ApproxDP(1, 1e-6)).compose(GaussianEvent(variance=200))
    >>> round(account.epsilon(1e-6), 4)
    0.2975
    """

    limit: ZCDP | None = None
    cost: Cost = FREE

    @classmethod
    def within(cls, limit: ApproxDP, threshold_share: Amount = Fraction(1, 2)) -> ZCDPAccountant:
        """An accountant that keeps an (epsilon, delta) limit; a share of delta is set aside for thresholds."""
        return cls(zcdp_within(limit, threshold_share))

    def supports(self, event: Event) -> bool:
        """Whether the event has a zCDP price."""
        return zcdp_cost(event) is not None

    def fits(self, event: Event, count: int = 1) -> bool:
        """Whether the event could be composed without passing the limit."""
        total = self._after(event, count)
        return self.limit is None or total.within(self.limit.rho, self.limit.delta)

    def compose(self, event: Event, count: int = 1) -> ZCDPAccountant:
        """The accountant after the event; refuses, changing nothing, what would pass the limit."""
        after = self._after(event, count)
        if self.limit is not None and not after.within(self.limit.rho, self.limit.delta):
            refuse_over("rho", after.amount - self.cost.amount, after.delta - self.cost.delta, after.private, self)
        return replace(self, cost=after)

    def spent(self, delta: Amount | None = None) -> ZCDP | PureDP | ApproxDP | None:
        """The guarantee so far: rho with its delta, or, at a given total delta, (epsilon, delta); None if none."""
        if not self.cost.private:
            return None
        if delta is None:
            return ZCDP(self.cost.amount, self.cost.delta)
        wanted = exact(delta, "delta")
        for_conversion = wanted - self.cost.delta
        if wanted >= 1 or for_conversion < 0 or (for_conversion == 0 and self.cost.amount > 0):
            return None
        # A delta'-approximate rho-zCDP mechanism is (epsilon, delta' + (1 - delta') delta)-DP (Bun and Steinke 2016,
        # lemma 8.8), so the two deltas may be added.
        return budget(epsilon=epsilon_of_zcdp(self.cost.amount, for_conversion), delta=wanted)

    def epsilon(self, delta: Amount = 0) -> float:
        """The odometer's reading at this delta, rounded up; infinite where there is no guarantee."""
        spent = self.spent(delta)
        return float_above(spent.epsilon) if isinstance(spent, PureDP | ApproxDP) else math.inf

    def remaining(self) -> ZCDP | None:
        """What the limit still allows; None without a limit."""
        if self.limit is None:
            return None
        if not self.cost.private:
            return ZCDP(Fraction(0))
        left, delta_left = self.limit.rho - self.cost.amount, self.limit.delta - self.cost.delta
        return ZCDP(max(left, Fraction(0)), max(delta_left, Fraction(0)))

    def _after(self, event: Event, count: int) -> Cost:
        check_count(count)
        cost = zcdp_cost(event)
        if cost is None:
            refuse_unsupported(event, "zcdp", "pld")
        return self.cost + cost.times(count)
