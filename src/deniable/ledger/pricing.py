"""Prices of entries, for people and registers: epsilon and delta of an event as a reader wants them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from deniable.dp.accounting import Event, cheap_epsilon, pure_cost, zcdp_cost
from deniable.ledger.entry import Act, Entry

SHOWN_DELTA = Fraction(1, 10**9)
"""The delta at which Gaussian noise is shown as an epsilon, where the event has none of its own."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a release cost: epsilon and delta, with rho where noise is Gaussian; all None without a guarantee."""

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    rho: Fraction | None = None


def price_of(entry: Entry) -> Price:
    """The price of an entry; nothing for an act, and no epsilon for a release without a formal guarantee."""
    if entry.act != Act.CHARGE:
        return Price()
    return price_of_event(entry.priced)


def price_of_event(event: Event) -> Price:
    """Epsilon and delta by basic composition where that is possible, else through zCDP."""
    pure = pure_cost(event)
    if pure is not None:
        return Price(pure.amount, pure.delta) if pure.private else Price()
    concentrated = zcdp_cost(event)
    if concentrated is None or not concentrated.private:
        return Price()
    delta = concentrated.delta + SHOWN_DELTA
    return Price(cheap_epsilon(event, delta), delta, concentrated.amount)
