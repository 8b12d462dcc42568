"""Costs that add up: what the pure and the zCDP accountant share.

Both keep one amount (epsilon, or rho) and the delta of thresholds beside it, both exact. Sequential composition adds
both, parts on disjoint units count by their worst, and one release without a guarantee spoils the sum for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from deniable.dp.accounting.events import (
    ComposedEvent,
    Event,
    NonPrivateEvent,
    NoOpEvent,
    ParallelEvent,
    SelfComposedEvent,
)


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount (epsilon or rho) with a delta beside it; `private` is false once something had no guarantee."""

    amount: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    private: bool = True

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.amount + other.amount, self.delta + other.delta, self.private and other.private)

    def times(self, count: int) -> Cost:
        """The cost of so many repetitions; none at all costs nothing."""
        return Cost(self.amount * count, self.delta * count, self.private) if count else FREE

    def within(self, amount: Fraction, delta: Fraction) -> bool:
        """Whether the cost fits in both limits."""
        return self.private and self.amount <= amount and self.delta <= delta


FREE = Cost()
EXPOSED = Cost(private=False)


def fold(event: Event, leaf: Callable[[Event], Cost | None]) -> Cost | None:
    """The cost of an event from the costs of its leaves; None where a leaf cannot be priced."""
    match event:
        case NoOpEvent():
            return FREE
        case NonPrivateEvent():
            return EXPOSED
        case ComposedEvent(events):
            return _sum(fold(part, leaf) for part in events)
        case SelfComposedEvent(inner, count):
            once = fold(inner, leaf)
            return None if once is None else once.times(count)
        case ParallelEvent(events):
            return _worst([fold(part, leaf) for part in events])
        case _:
            return leaf(event)


def _sum(costs: Iterable[Cost | None]) -> Cost | None:
    total = FREE
    for cost in costs:
        if cost is None:
            return None
        total = total + cost
    return total


def _worst(costs: list[Cost | None]) -> Cost | None:
    """The largest amount with the largest delta: each part's guarantee is implied by the pair."""
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    amounts, deltas = [cost.amount for cost in known], [cost.delta for cost in known]
    return Cost(max(amounts, default=Fraction(0)), max(deltas, default=Fraction(0)), all(c.private for c in known))
