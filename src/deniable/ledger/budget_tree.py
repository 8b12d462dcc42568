"""The budget tree and the accounts of its nodes: the dataset contains purposes, which contain analysts.

A charge goes to every node on its path and must fit each of them, in epsilon and delta together; colluding analysts
therefore cannot pass the dataset's limit. A purpose that is renewed each period has one node a period, and its
analysts with it. Periods are read off the times of entries, which never run backwards, so a clock that is set back
renews nothing a second time.

Accounts follow from the entries alone and are stored nowhere, so nobody can falsify them. They are exact: the pure and
the zCDP account is one rational and the delta beside it; the PLD account is how often each event occurred."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
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
from deniable.errors import AccessRefused, BudgetExceeded, nearest
from deniable.ledger.entry import Act, Entry
from deniable.policy.access import Accounting, Analyst, Budgets, Period, Purpose
from deniable.policy.budget import Budget

STEWARD = "steward"
"""Who asks when nobody is named. The steward's questions count against the dataset, and a purpose if one is named."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node on the path of a charge: `key` names its account, `title` names it to people."""

    key: str
    title: str
    limit: Budget | None
    period: str = ""


def choose_accounting(budgets: Budgets | None) -> str:
    """How totals are composed; without budgets an odometer runs that can price every mechanism."""
    return str(budgets.accounting) if budgets else str(Accounting.ZCDP)


def find_path(budgets: Budgets | None, purpose: str, analyst: str, time: datetime) -> tuple[Node, ...]:
    """The nodes that a charge must fit; refuses a purpose or an analyst that the policy does not grant."""
    if budgets is None:
        return _build_nodes(None, None, None, time)
    # An analyst whom the policy calls so is held to that analyst's own limit, as when entries are added up again.
    steward = analyst in ("", STEWARD) and budgets.find_analyst(analyst) is None
    known = None if steward and not purpose else purpose_of(budgets, purpose)
    granted = None if steward else analyst_of(budgets, analyst)
    if granted is not None and known is not None and known.name not in granted.purposes:
        raise AccessRefused(
            f"purpose '{purpose}' is not granted to analyst '{analyst}'",
            expected=f"Granted are: {', '.join(granted.purposes) or 'none'}",
            remedy="Ask the steward for a grant",
        )
    return _build_nodes(budgets, known, granted, time)


def find_entry_path(budgets: Budgets | None, entry: Entry) -> tuple[Node, ...]:
    """The nodes that an entry counts against, whether or not the policy would still grant it."""
    if budgets is None:
        return _build_nodes(None, None, None, entry.time)
    purpose, analyst = budgets.find_purpose(entry.purpose), budgets.find_analyst(entry.analyst)
    return _build_nodes(budgets, purpose, analyst, entry.time)


def _build_nodes(
    budgets: Budgets | None, purpose: Purpose | None, analyst: Analyst | None, time: datetime
) -> tuple[Node, ...]:
    nodes = [Node("dataset", "the dataset", budgets.dataset if budgets else None)]
    period = period_of(purpose.every, time) if purpose else ""
    if purpose is not None:
        key = f"purpose {purpose.name} {period}".rstrip()
        nodes.append(Node(key, f"purpose '{purpose.name}'", purpose.allowance, period))
    if analyst is not None:
        key = f"{nodes[-1].key} analyst {analyst.name}"
        title = f"{'group' if analyst.members else 'analyst'} '{analyst.name}'"
        nodes.append(Node(key, title, analyst.allowance, period))
    return tuple(nodes)


def purpose_of(budgets: Budgets, purpose: str) -> Purpose | None:
    """The purpose of that name; None only where the policy declares none and none is named."""
    names = [each.name for each in budgets.purposes]
    if purpose in names:
        return budgets.purposes[names.index(purpose)]
    if not names:
        return None
    happened = f"the policy has no purpose '{purpose}'" if purpose else "no purpose was named"
    raise AccessRefused(happened, expected=f"Purposes are: {', '.join(names)}", remedy=nearest(purpose, names))


def analyst_of(budgets: Budgets, analyst: str) -> Analyst | None:
    """The analyst of that name, or their group; None where the policy lists no analysts."""
    found = budgets.find_analyst(analyst)
    if found is not None and found.members and analyst == found.name:
        raise AccessRefused(f"'{analyst}' is a group", remedy="Ask by the name of a member")
    if found is not None or not budgets.analysts:
        return found
    raise AccessRefused(f"the policy has no analyst '{analyst}'", remedy="Ask the steward for a grant")


def refuse_ended(budgets: Budgets | None, analyst: str, time: datetime) -> None:
    """Refuse an analyst whose grant has ended by the policy."""
    granted = budgets.find_analyst(analyst) if budgets is not None else None
    if granted is not None and granted.until is not None and time.date() > granted.until:
        raise AccessRefused(
            f"the grant of '{analyst}' ended on {granted.until}",
            remedy="The steward may extend it in the policy: budgets: analysts: until",
        )


def period_of(every: Period | None, time: datetime) -> str:
    """The calendar period (in UTC) that a time falls in; empty where nothing is renewed.

    >>> period_of(Period.QUARTER, datetime(2026, 11, 15))
    '2026-Q4'
    """
    match every:
        case None:
            return ""
        case Period.DAY:
            return f"{time:%Y-%m-%d}"
        case Period.WEEK:
            year, week, _ = time.isocalendar()
            return f"{year}-W{week:02}"
        case Period.MONTH:
            return f"{time:%Y-%m}"
        case Period.QUARTER:
            return f"{time.year:04}-Q{(time.month + 2) // 3}"
        case Period.YEAR:
            return f"{time:%Y}"


def charge_nodes(
    accounting: str, nodes: Iterable[Node], accounts: Mapping[str, Accountant], event: Event
) -> dict[str, Accountant]:
    """The accounts after an event, each within the limit of its node; else a refusal that names the node."""
    after: dict[str, Accountant] = {}
    for node in nodes:
        before = limit_account(accounting, node.limit, accounts.get(node.key))
        try:
            after[node.key] = before.compose(event)
        except BudgetExceeded as over:
            raise _name_node(over, node) from None
    return after


def replay_entries(
    budgets: Budgets | None, accounts: Mapping[str, Accountant], entries: Iterable[Entry]
) -> dict[str, Accountant]:
    """The accounts after further entries that were written already: they are added up and never refused.

    Equal events are counted first and added at once, so that a long ledger is added up quickly.
    """
    counts: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry.act == Act.CHARGE:
            form = json.dumps(entry.event, sort_keys=True)
            for node in find_entry_path(budgets, entry):
                counts.setdefault(node.key, Counter())[form] += 1
    known, accounting = dict(accounts), choose_accounting(budgets)
    read = {form: from_dict(json.loads(form)) for each in counts.values() for form in each}
    for key, forms in counts.items():
        account = limit_account(accounting, None, known.get(key))
        for form, count in forms.items():
            account = account.compose(read[form], count)
        known[key] = settle_account(account)
    return known


def _name_node(refusal: BudgetExceeded, node: Node) -> BudgetExceeded:
    where = node.title + (f" in {node.period}" if node.period else "")
    fields = refusal.fields | {"node": node.title}
    return BudgetExceeded(f"{refusal.happened} ({where})", remedy=refusal.remedy, **fields)  # type: ignore[arg-type]


FINEST = 10**60
"""Sums of very many different fractions grow without end; one with a larger denominator is rounded up to this step.

Sums of decimal epsilons never come near it, so ten charges of 0.1 stay exactly 1.
"""


def limit_account(accounting: str, limit: Budget | None, spent: Accountant | None) -> Accountant:
    """The accountant of a node with a limit that has spent what another one has."""
    made = accountant_for(accounting, limit)
    if spent is None:
        return made
    if isinstance(made, PLDAccountant):
        assert isinstance(spent, PLDAccountant)
        return replace(made, event=spent.event)
    assert isinstance(spent, PureAccountant | ZCDPAccountant)
    return replace(made, cost=spent.cost)


def settle_account(account: Accountant) -> Accountant:
    """The same account in little room: fractions of a bounded size, rounded up, and equal events counted together."""
    if isinstance(account, PLDAccountant):
        return replace(account, event=_count_events(account.event))
    assert isinstance(account, PureAccountant | ZCDPAccountant)
    cost = account.cost
    amount, delta = _bound_denominator(cost.amount), _bound_denominator(cost.delta)
    return replace(account, cost=replace(cost, amount=amount, delta=delta))


def _bound_denominator(amount: Fraction) -> Fraction:
    if amount.denominator <= FINEST:
        return amount
    return Fraction(-(-amount * FINEST // 1), FINEST)


def _count_events(event: Event) -> Event:
    """A composition in which each event stands once, with how often it occurred."""
    parts = event.events if isinstance(event, ComposedEvent) else (event,)
    counts: dict[str, int] = {}
    for part in parts:
        inner, count = (part.event, part.count) if isinstance(part, SelfComposedEvent) else (part, 1)
        if not isinstance(inner, NoOpEvent):
            form = json.dumps(to_dict(inner), sort_keys=True)
            counts[form] = counts.get(form, 0) + count
    forms = sorted(counts.items())
    return ComposedEvent(tuple(SelfComposedEvent(from_dict(json.loads(form)), count) for form, count in forms))


MOST_REPEATS = 10**6
"""Beyond so many more questions of a kind, nobody counts."""


def count_repeats(accountant: Accountant, event: Event) -> int:
    """The largest count that fits, by doubling and halving."""
    if accountant.limit is None:
        return MOST_REPEATS
    low, high = 0, 1
    while high <= MOST_REPEATS and accountant.fits(event, high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if accountant.fits(event, middle) else (low, middle)
    return low
