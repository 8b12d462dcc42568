"""Running totals: what a node of the tree has spent, as text in the store's cache.

Totals are a cache of the entries, so that a charge need not add up the past. They are exact: the pure and the zCDP
total is one rational and the delta beside it; the PLD total is how often each event occurred.
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

from deniable.dp.accounting import (
    Accountant,
    ComposedEvent,
    Event,
    NoOpEvent,
    PLDAccountant,
    PureAccountant,
    SelfComposedEvent,
    ZCDPAccountant,
    accountant_for,
    from_dict,
    to_dict,
)
from deniable.dp.accounting.cost import Cost
from deniable.policy.budget import Budget

FINEST = 10**60
"""Sums of very many different fractions grow without end; one with a larger denominator is rounded up to this step.

Sums of decimal epsilons never come near it, so ten charges of 0.1 stay exactly 1.
"""


def account(accounting: str, limit: Budget | None, total: str | None) -> Accountant:
    """The accountant of a node that has spent a total."""
    made = accountant_for(accounting, limit)
    if total is None:
        return made
    if isinstance(made, PLDAccountant):
        return replace(made, event=_counted(total))
    form = json.loads(total)
    return replace(made, cost=Cost(Fraction(form["amount"]), Fraction(form["delta"])))


def total_of(accountant: Accountant) -> str:
    """The total of an accountant, as text."""
    if isinstance(accountant, PLDAccountant):
        counts = _counts(accountant.event)
        return json.dumps([[form, count] for form, count in sorted(counts.items())])
    assert isinstance(accountant, PureAccountant | ZCDPAccountant)
    cost = accountant.cost
    return json.dumps({"amount": str(_bounded(cost.amount)), "delta": str(_bounded(cost.delta))})


def _bounded(amount: Fraction) -> Fraction:
    if amount.denominator <= FINEST:
        return amount
    return Fraction(-(-amount * FINEST // 1), FINEST)


def _counts(event: Event) -> dict[str, int]:
    """How often each event stands in a composition, by its text."""
    parts = event.events if isinstance(event, ComposedEvent) else (event,)
    counts: dict[str, int] = {}
    for part in parts:
        inner, count = (part.event, part.count) if isinstance(part, SelfComposedEvent) else (part, 1)
        if not isinstance(inner, NoOpEvent):
            form = json.dumps(to_dict(inner), sort_keys=True)
            counts[form] = counts.get(form, 0) + count
    return counts


def _counted(total: str) -> Event:
    parts = [(from_dict(json.loads(form)), count) for form, count in json.loads(total)]
    return ComposedEvent(tuple(SelfComposedEvent(event, count) for event, count in parts))
