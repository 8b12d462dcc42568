"""The budget tree and the accounts of its nodes: the dataset contains purposes, which contain analysts.

A charge goes to every node on its path and must fit each of them, in epsilon and delta together; colluding analysts
therefore cannot pass the dataset's limit. A purpose that is renewed each period has one node a period, and its
analysts with it. Periods are read off the times of entries, by the clock of who wrote them: a clock that is set back
finds what was spent in the period that it names, and renews nothing a second time. What was left then can be spent
then; the dataset's limit holds whatever the clock says, and incidents name a clock that ran back.

Accounts follow from the entries alone and are stored nowhere, so nobody can falsify them. They are exact: the pure and
the zCDP account is one rational and the delta beside it; the PLD account is how often each event occurred."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from deniable.dp.accounting import (
    Accountant,
    ComposedEvent,
    Event,
    GaussianEvent,
    NoOpEvent,
    ParallelEvent,
    PLDAccountant,
    PureAccountant,
    PureEvent,
    SelfComposedEvent,
    ThresholdEvent,
    ZCDPAccountant,
    accountant_for,
    from_dict,
    to_dict,
)
from deniable.dp.accounting.cost import Cost, count_equal, sqrt_above
from deniable.dp.accounting.zcdp import rho_of_pure
from deniable.errors import AccessRefused, BudgetExceeded, nearest
from deniable.ledger.entry import SETTLES, Act, Entry, list_lost_days
from deniable.policy.access import Accounting, Analyst, Budgets, Period, Purpose
from deniable.policy.budget import ZCDP, Budget, PureDP, budget, find_left, round_amount, say_left, say_part, say_share

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


def find_pricing(accounting: str, *events: Event) -> str:
    """How events are compared: by an accounting that can price them all, or else by zCDP, which prices each."""
    account = accountant_for(accounting)
    return accounting if all(account.supports(each) for each in events) else str(Accounting.ZCDP)


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
    if SETTLES in entry.details:
        return list_nodes(budgets, list_lost_days(entry.details, entry.time))
    purpose, analyst = budgets.find_purpose(entry.purpose), budgets.find_analyst(entry.analyst)
    return _build_nodes(budgets, purpose, analyst, entry.time)


def list_nodes(budgets: Budgets | None, times: Iterable[datetime], *, limited: bool = True) -> tuple[Node, ...]:
    """Every node that could be charged at times: what lost entries spent counts at each, as nobody knows whose it was.

    Those that are not `limited` take what was spent already, also where that is more than they allow.
    """
    days = tuple(times)
    if budgets is None:
        return _build_nodes(None, None, None, days[0])
    analysts = (None, *budgets.analysts)
    periods = {
        purpose: {period_of(purpose.every if purpose else None, day): day for day in days}.values()
        for purpose in (None, *budgets.purposes)
    }
    paths = (
        _build_nodes(budgets, purpose, analyst, day)
        for purpose, ends in periods.items()
        for day in ends
        for analyst in analysts
    )
    nodes = {node.key: node for path in paths for node in path}
    return tuple(node if limited else replace(node, limit=None) for node in nodes.values())


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
    """The accounts after an event, each within the limit of its node; else a refusal that names the node with least."""
    after, counted = dict[str, Accountant](), count_equal(event)
    refused: list[BudgetExceeded] = []
    for node in nodes:
        before = limit_account(accounting, node.limit, accounts.get(node.key))
        try:
            after[node.key] = before.compose(counted)
        except BudgetExceeded as over:
            refused.append(_name_node(over, node))
    if refused:
        raise min(refused, key=lambda each: float(str(each.fields.get("remaining", 0))))
    return after


def replay_entries(
    accounting: str, budgets: Budgets | None, accounts: Mapping[str, Accountant], entries: Iterable[Entry]
) -> dict[str, Accountant]:
    """The accounts after further entries that were written already: they are added up, and refused only where this
    accounting has no price for one.

    Equal events are counted first and added at once, so that a long ledger is added up quickly.
    """
    counts: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry.act == Act.CHARGE:
            form = json.dumps(entry.event, sort_keys=True)
            for node in find_entry_path(budgets, entry):
                counts.setdefault(node.key, Counter())[form] += 1
    known = dict(accounts)
    read = {form: count_equal(from_dict(json.loads(form))) for form in set[str]().union(*counts.values())}
    for key, forms in counts.items():
        account = limit_account(accounting, None, known.get(key))
        for form, count in forms.items():
            account = account.compose(read[form], count)
        known[key] = settle_account(account)
    return known


def _name_node(refusal: BudgetExceeded, node: Node) -> BudgetExceeded:
    where, fields = node.title + (f" in {node.period}" if node.period else ""), refusal.fields | {"node": node.title}
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
    if isinstance(made, ZCDPAccountant) and isinstance(spent, ZCDPAccountant):
        return replace(made, cost=spent.cost, pure=spent.pure)
    return replace(made, cost=spent.cost)


def settle_account(account: Accountant) -> Accountant:
    """The same account in little room: fractions of a bounded size, rounded up, and equal events counted together."""
    if isinstance(account, PLDAccountant):
        return replace(account, event=_count_events(account.event))
    assert isinstance(account, PureAccountant | ZCDPAccountant)
    if isinstance(account, ZCDPAccountant) and account.pure is not None:
        account = replace(account, pure=_bound_fractions(account.pure))
    return replace(account, cost=_bound_fractions(account.cost))


def _bound_fractions(cost: Cost) -> Cost:
    return replace(cost, amount=_bound_denominator(cost.amount), delta=_bound_denominator(cost.delta))


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


def find_least(accounts: Mapping[str, Accountant]) -> Budget | None:
    """What is left at every node: what costs so much fits all of them, and what costs more does not.

    Under zCDP it is told as the node tells it of which the smallest part is left: as the epsilon of a pure event, or as
    the rho of any other. Where nothing but a pure event fits, it is told in epsilon.
    """
    limited = [account for account in accounts.values() if account.limit is not None]
    kept = [account for account in limited if isinstance(account, ZCDPAccountant)]
    if kept:
        epsilon, rho = min(each.epsilon_left for each in kept), min(each.rho_left for each in kept)
        tightest = min(kept, key=lambda each: each.share_left)
        if tightest.is_pure_first or (epsilon and not rho):
            return PureDP(epsilon)
        return ZCDP(rho, min(each.delta_left for each in kept))
    left = [each for each in (account.compute_remaining() for account in limited) if each is not None]
    amounts = [each.epsilon for each in left if not isinstance(each, ZCDP)]
    return budget(min(amounts), min(each.delta for each in left)) if amounts else None


@dataclass(frozen=True, slots=True)
class KindsLeft:
    """What is left where totals are kept in rho: the largest epsilon of a pure question, the largest rho of others.

    `delta` is what is left for questions that spend one of their own, such as those of private groups. The limits are
    what there was of rho, and of such a delta.
    """

    epsilon: Fraction
    rho: Fraction
    delta: Fraction
    rho_limit: Fraction
    delta_limit: Fraction

    @property
    def all_pure(self) -> bool:
        """Whether a pure question has more left by the sum of epsilons than by rho: all that was asked is pure."""
        return self.epsilon > self.rho and self.epsilon**2 > 2 * self.rho  # as `rho_of_pure`: the less of e^2 / 2 and e

    def say_others(self) -> str:
        """What is left for questions that are not pure."""
        own = f" and delta {round_amount(self.delta)}" if self.delta_limit and self.rho else ""
        return f"rho {round_amount(self.rho)}{own}"


@dataclass(frozen=True, slots=True)
class Balance:
    """One node of the tree: what it may spend, what is spent, what is left; `period` where it is renewed."""

    node: str
    limit: Budget | None
    spent: Budget | None
    remaining: Budget | None
    period: str = ""
    kinds: KindsLeft | None = None
    closed: str = ""
    """Why nothing is left although not all was spent."""

    def tell_spent(self) -> Budget | None:
        """What is spent, in the epsilon of the limit while all that was asked is pure."""
        if self.limit is None or isinstance(self.limit, ZCDP) or self.kinds is None or not self.kinds.all_pure:
            return self.spent
        return PureDP(self.limit.epsilon - self.kinds.epsilon)

    def close(self, why: str) -> Balance:
        """The same node where nothing can be spent now."""
        none = Fraction(0)
        left = None if self.limit is None else ZCDP(none) if isinstance(self.limit, ZCDP) else PureDP(none)
        whole = self.kinds
        kinds = None if whole is None else KindsLeft(none, none, none, whole.rho_limit, whole.delta_limit)
        return replace(self, remaining=left, kinds=kinds, closed=why)


def find_kinds(balances: Iterable[Balance]) -> KindsLeft | None:
    """The least of each kind that is left on a path where totals are kept in rho; None where they are not."""
    kept = [each.kinds for each in balances if each.kinds is not None]
    if not kept:
        return None
    epsilon, in_rho = min(each.epsilon for each in kept), min(kept, key=lambda each: each.rho)
    in_delta = min(kept, key=lambda each: (each.delta, -each.delta_limit))
    return KindsLeft(epsilon, in_rho.rho, in_delta.delta, in_rho.rho_limit, in_delta.delta_limit)


def name_least(balances: Iterable[Balance], least: Budget | None) -> dict[str, str] | None:
    """The least that is left on a path in decimal figures, rounded down: what is shown can be asked for.

    Where totals are kept in rho: the `epsilon` of a pure question, the `rho` and `delta` of others. None: no limit.
    """
    if least is None:
        return None
    kinds = find_kinds(balances)
    if kinds is not None:
        amounts = {"epsilon": kinds.epsilon, "rho": kinds.rho, "delta": kinds.delta}
    else:
        assert not isinstance(least, ZCDP)
        amounts = {"epsilon": least.epsilon, "delta": least.delta}
    return {name: round_amount(amount, 6) for name, amount in amounts.items()}


def say_least(balances: Iterable[Balance], least: Budget | None) -> str:
    """The least that is left on a path, as people say it; empty without a limit.

    Where totals are kept in rho, the policy's own epsilon comes first: what is left of it while all that was asked is
    pure, else the share of rho that is left; beside it stands what is left for the other kind of questions.
    """
    limited = [(each.limit, each) for each in balances if each.limit is not None]
    kinds = find_kinds(each for _, each in limited)
    if least is None or not limited or limited[0][1].closed:
        return f"nothing: {limited[0][1].closed}" if least is not None and limited else ""
    if kinds is None:
        told = [(limit, each.spent, each.remaining) for limit, each in limited if each.remaining is not None]
        delta, least_of = min((each.delta, -limit.delta) for limit, _, each in told)
        own = f" with {say_part('delta', delta, -least_of)}" if least_of else ""
        return say_left(*min(told, key=lambda each: find_left(*each)[2])) + own
    stated = any(not isinstance(limit, ZCDP) for limit, _ in limited)
    if isinstance(least, ZCDP) and not (stated and kinds.all_pure):
        more = f" with {say_part('delta', kinds.delta, kinds.delta_limit)}" if kinds.delta_limit else ""
        more += f"; or a pure question of epsilon {round_amount(kinds.epsilon)}" if stated and kinds.epsilon else ""
        limit = next(limit for limit, each in limited if each.kinds is not None and each.kinds.rho == kinds.rho)
        return say_share(limit, kinds.rho, kinds.rho_limit, more)
    held = ((limit, each.kinds) for limit, each in limited if each.kinds and not isinstance(limit, ZCDP))
    limits = [limit.epsilon for limit, left in held if left.epsilon == kinds.epsilon]
    told_of = say_part("epsilon", kinds.epsilon, limits[0]) if limits else f"epsilon {round_amount(kinds.epsilon)}"
    return f"{told_of} (pure questions; {kinds.say_others()} for others)"


def read_balance(node: Node, accountant: Accountant) -> Balance:
    """What a node has spent and has left, by its accountant."""
    spent, remaining = _find_spent(accountant), accountant.compute_remaining()
    kinds = None
    if isinstance(accountant, ZCDPAccountant) and accountant.limit is not None:
        whole, left = accountant.limit, (accountant.epsilon_left, accountant.rho_left, accountant.delta_left)
        kinds = KindsLeft(*left, whole.rho, whole.delta)
    return Balance(node.title, node.limit, spent, remaining, node.period, kinds)


def _find_spent(accountant: Accountant) -> Budget | None:
    """What a node has spent: with its own delta, or, of privacy losses, at the delta of the limit."""
    if isinstance(accountant, PureAccountant | ZCDPAccountant):
        return accountant.compute_spent()
    return accountant.compute_spent(accountant.limit.delta if accountant.limit else 0)


def find_rest(accounting: str, limit: Budget | None, spent: Accountant | None) -> Event:
    """What may have been spent at most of what a limit leaves, by whichever filter; nothing without a limit.

    Under zCDP that is in rho alone: charges that are all pure may have come to more rho than the limit has.
    """
    account = limit_account(accounting, limit, spent)
    left = account.compute_remaining()
    if left is None:
        return NoOpEvent()
    if not isinstance(account, ZCDPAccountant):
        assert not isinstance(left, ZCDP)
        return build_event(accounting, left.epsilon, left.delta)
    rho = account.rho_left
    if account.pure is not None and account.epsilon_limit is not None:
        rho = max(rho, rho_of_pure(max(account.epsilon_limit - account.pure.amount, Fraction(0))))
    delta = account.limit.delta - account.cost.delta if account.limit is not None else Fraction(0)
    return build_event(accounting, rho, max(delta, Fraction(0)))


def build_event(accounting: str, amount: Fraction, delta: Fraction) -> Event:
    """An event that costs so much, and with probability delta all: of rho where totals are concentrated, else pure."""
    first: Event = NoOpEvent()
    if amount:
        first = GaussianEvent(1 / (2 * amount)) if accounting == "zcdp" else PureEvent(amount)
    return ComposedEvent((first, ThresholdEvent(delta))) if delta else first


def _build_pure(epsilon: Fraction, rho: Fraction) -> Event:
    """A pure event that costs so much by pure composition, and so much rho; no less of either.

    So many equal events add up to epsilon that their rhos add up to no more than rho. One event of that rho stands
    beside them, if it is not the same: of two parallel events the larger cost counts.
    """
    if not rho:
        return PureEvent(epsilon) if epsilon else NoOpEvent()
    least = sqrt_above(2 * rho, 30) if rho <= 2 else rho
    if not epsilon:
        return PureEvent(least)
    alone = PureEvent(min(least, epsilon) if rho <= rho_of_pure(epsilon) else least)
    count = max(math.ceil(epsilon * epsilon / (2 * rho)), 1)
    equal = SelfComposedEvent(PureEvent(epsilon / count), count) if count > 1 else PureEvent(epsilon)
    if count * rho_of_pure(epsilon / count) == rho:
        return equal
    return ParallelEvent((equal, alone))


def describe_spent(accounting: str, account: Accountant | None) -> Event:
    """What an account spent in all, in the fewest events: as amount and delta, or for privacy losses as it is.

    Under zCDP what is all pure stays so: it counts by its epsilon and by its rho.
    """
    if account is None:
        return NoOpEvent()
    if isinstance(account, PLDAccountant):
        return account.event
    assert isinstance(account, PureAccountant | ZCDPAccountant)
    if isinstance(account, ZCDPAccountant) and account.pure is not None:
        return _build_pure(account.pure.amount, account.cost.amount)
    return build_event(accounting, account.cost.amount, account.cost.delta)


def subtract_spent(accounting: str, total: Event, part: Event) -> Event:
    """What was spent in a total beyond a part of it, never less than nothing."""
    accounting = find_pricing(accounting, total, part)
    whole, known = (accountant_for(accounting).compose(each) for each in (total, part))
    if isinstance(whole, PLDAccountant):
        return _join_events(_count_forms(total) - _count_forms(part))
    assert not isinstance(known, PLDAccountant)
    amount = max(whole.cost.amount - known.cost.amount, Fraction(0))
    if isinstance(whole, ZCDPAccountant) and isinstance(known, ZCDPAccountant) and whole.pure and known.pure:
        epsilon = max(whole.pure.amount - known.pure.amount, Fraction(0))
        # Pure events cost no more rho than one of all their epsilon: more is only what a total was rounded up by.
        return _build_pure(epsilon, min(amount, rho_of_pure(epsilon)))
    return build_event(accounting, amount, max(whole.cost.delta - known.cost.delta, Fraction(0)))


def take_larger(accounting: str, one: Event, other: Event) -> Event:
    """An event that costs as much as the costlier of two."""
    accounting = find_pricing(accounting, one, other)
    first, second = (accountant_for(accounting).compose(each) for each in (one, other))
    if isinstance(first, PLDAccountant):
        if not _count_forms(one) - _count_forms(other):
            return other
        return one if first.epsilon(READ_AT) >= second.epsilon(READ_AT) else other
    assert not isinstance(second, PLDAccountant)
    costs = first.cost, second.cost
    amount = max(each.amount for each in costs)
    if isinstance(first, ZCDPAccountant) and isinstance(second, ZCDPAccountant) and first.pure and second.pure:
        return _build_pure(max(first.pure.amount, second.pure.amount), amount)
    return build_event(accounting, amount, max(each.delta for each in costs))


def join_rest(accounting: str, rest: Event, proven: Event) -> Event:
    """An event that costs at least as much as all that a limit leaves, and as what is proven."""
    if accounting != Accounting.PLD:
        return take_larger(accounting, rest, proven)
    return rest if is_covered(accounting, proven, rest) else ComposedEvent((rest, proven))


def price_stated(accounting: str, proven: Event, stated: Event) -> Event:
    """What is charged for lost entries that are said to have cost so much in all, and are proven to have cost a part.

    Under zCDP, where both are pure, what is proven keeps its rho, and the rest counts as one event. Otherwise it is
    charged in rho alone: the epsilons of lost entries may add up to more than what is stated.
    """
    if accounting != Accounting.ZCDP or isinstance(proven, NoOpEvent):
        return stated
    known, said = (ZCDPAccountant().compose(each) for each in (proven, stated))
    if known.pure is not None and said.pure is not None:
        more = said.pure.amount - known.pure.amount
        return ComposedEvent((proven, PureEvent(more))) if more > 0 else proven
    return build_event(accounting, said.cost.amount, said.cost.delta)


def is_covered(accounting: str, proven: Event, stated: Event) -> bool:
    """Whether an event that is stated costs at least as much as one that is proven.

    Under zCDP a pure one covers another by its epsilon alone: what is proven keeps its own rho (`price_stated`).
    """
    accounting = find_pricing(accounting, proven, stated)
    known, said = (accountant_for(accounting).compose(each) for each in (proven, stated))
    if isinstance(known, PLDAccountant):
        assert isinstance(said, PLDAccountant)
        delta = sum((each.delta for each in _list_parts(stated) if isinstance(each, ThresholdEvent)), Fraction(0))
        return known.epsilon(delta) <= said.epsilon(delta)
    assert not isinstance(said, PLDAccountant)
    if isinstance(known, ZCDPAccountant) and isinstance(said, ZCDPAccountant) and known.pure and said.pure:
        return known.pure.amount <= said.pure.amount
    return known.cost.amount <= said.cost.amount and known.cost.delta <= said.cost.delta


READ_AT = Fraction(1, 10**9)
"""The delta at which two compositions of privacy losses are compared."""


def _list_parts(event: Event) -> tuple[Event, ...]:
    return event.events if isinstance(event, ComposedEvent) else (event,)


def _count_forms(event: Event) -> Counter[str]:
    """How often each event occurs in a composition, by its form."""
    counts: Counter[str] = Counter()
    for part in _list_parts(event):
        inner, count = (part.event, part.count) if isinstance(part, SelfComposedEvent) else (part, 1)
        if not isinstance(inner, NoOpEvent):
            counts[json.dumps(to_dict(inner), sort_keys=True)] += count
    return counts


def _join_events(counts: Mapping[str, int]) -> Event:
    parts = tuple(SelfComposedEvent(from_dict(json.loads(form)), count) for form, count in sorted(counts.items()))
    return ComposedEvent(parts) if parts else NoOpEvent()


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
