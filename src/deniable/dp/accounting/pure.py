"""The pure accountant: epsilons and deltas add up exactly (basic composition)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from deniable.dp.accounting.cost import FREE, Cost, float_above, ln_above, price, refuse_over, refuse_unsupported
from deniable.dp.accounting.events import (
    Event,
    LaplaceEvent,
    PureEvent,
    RandomizedEvent,
    SelectionEvent,
    ThresholdEvent,
    check_count,
)
from deniable.policy.budget import Amount, ApproxDP, PureDP, budget, exact


def pure_cost(event: Event) -> Cost | None:
    """The (epsilon, delta) of an event by basic composition, or None for what has no pure price.

    >>> pure_cost(LaplaceEvent(scale=10, sensitivity=1))
    Cost(amount=Fraction(1, 10), delta=Fraction(0, 1), private=True)
    """
    return price(event, _price_leaf)


def _price_leaf(event: Event) -> Cost | None:
    match event:
        case LaplaceEvent() | SelectionEvent() | PureEvent():
            return Cost(event.epsilon)
        case RandomizedEvent(odds):
            return Cost(ln_above(odds))
        case ThresholdEvent(delta):
            return Cost(delta=delta)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class PureAccountant:
    """Basic composition, exact: ten charges of 0.1 are 1.

    As a privacy filter it is sound for events chosen adaptively (Rogers et al. 2016). It cannot price Gaussian noise.

    >>> account = PureAccountant(PureDP(1))
    >>> for _ in range(10):
    ...     account = account.compose(PureEvent(0.1))
    >>> account.compute_remaining()
    PureDP(epsilon=Fraction(0, 1))
    """

    limit: PureDP | ApproxDP | None = None
    cost: Cost = FREE

    def supports(self, event: Event) -> bool:
        """Whether the event has a pure price."""
        return pure_cost(event) is not None

    def fits(self, event: Event, count: int = 1) -> bool:
        """Whether the event could be composed without passing the limit."""
        total = self._after(event, count)
        return self.limit is None or total.within(self.limit.epsilon, self.limit.delta)

    def compose(self, event: Event, count: int = 1) -> PureAccountant:
        """The accountant after the event; refuses, changing nothing, what would pass the limit."""
        after = self._after(event, count)
        if self.limit is not None and not after.within(self.limit.epsilon, self.limit.delta):
            refuse_over("epsilon", after.amount - self.cost.amount, after.delta - self.cost.delta, after.private, self)
        return replace(self, cost=after)

    def compute_spent(self, delta: Amount | None = None) -> PureDP | ApproxDP | None:
        """The guarantee of everything so far, at its own delta or at a larger one; None where there is none."""
        wanted = self.cost.delta if delta is None else exact(delta, "delta")
        if not self.cost.private or self.cost.delta > wanted or wanted >= 1:
            return None
        return budget(epsilon=self.cost.amount, delta=wanted)  # type: ignore[return-value]

    def epsilon(self, delta: Amount = 0) -> float:
        """The odometer's reading at this delta, rounded up; infinite where there is no guarantee."""
        spent = self.compute_spent(delta)
        return math.inf if spent is None else float_above(spent.epsilon)

    def compute_remaining(self) -> PureDP | ApproxDP | None:
        """What the limit still allows; None without a limit."""
        if self.limit is None:
            return None
        if not self.cost.private:
            return PureDP(Fraction(0))
        left = self.limit.epsilon - self.cost.amount
        if isinstance(self.limit, PureDP) and not self.cost.delta:
            return PureDP(left if left.numerator > 0 else Fraction(0))
        delta_left = self.limit.delta - self.cost.delta
        return budget(epsilon=max(left, Fraction(0)), delta=max(delta_left, Fraction(0)))  # type: ignore[return-value]

    def _after(self, event: Event, count: int) -> Cost:
        check_count(count)
        cost = pure_cost(event)
        if cost is None:
            refuse_unsupported(event, "pure", "zcdp")
        return self.cost + cost.times(count)
