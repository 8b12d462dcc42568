"""A lost ledger: what the outside knows of it, withdrawals that are found elsewhere, and how the steward settles it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.curator.context import Context, make_sender
from deniable.curator.governance import withdrawals
from deniable.dp.accounting import Event, PLDAccountant, ZCDPAccountant, accountant_for
from deniable.errors import AccessRefused, DataError, IntegrityError, ParameterError
from deniable.governance.grants import Role, refuse_name
from deniable.governance.requests import is_listed
from deniable.governance.withdrawals import ACTS, COLLECTION, fold_reinstated, list_people, read_withdrawal
from deniable.ledger import Act, Posting
from deniable.ledger.budget_tree import (
    READ_AT,
    build_event,
    choose_accounting,
    find_pricing,
    find_rest,
    is_covered,
    join_rest,
    price_stated,
    take_larger,
)
from deniable.ledger.entry import LOST, LOST_BETWEEN, SETTLES
from deniable.ledger.loss import Loss, list_abandoned, read_loss
from deniable.ledger.witness import Witness
from deniable.policy.budget import ZCDP, Amount, Budget, budget
from deniable.release.record import Record, SparseRecord

if TYPE_CHECKING:
    from deniable.ledger import Entry, Ledger
    from deniable.ledger.answer_store import AnswerStore
    from deniable.policy.document import Policy

WITNESS, SURVIVOR, STATEMENTS = "the witness file", "the answer store that is left", "statements of releases"


@dataclass(frozen=True, slots=True, eq=False)
class LossReport(Record):
    """What is known to be lost after an entry, where that is known from, and what of it was found again."""

    after: int
    since: str
    entries: int
    stored: dict[str, int]
    epsilon: str
    delta: str
    known_by: list[str]
    withdrawals_recovered: int = 0
    proven: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SettleReport(SparseRecord):
    """A loss that is settled: its entry, and what was charged for it."""

    loss: int
    entry: int
    charged: dict[str, str]
    since: str
    until: str
    """Between these times the lost entries were written: it is charged in every period of purposes there."""
    also_since: str | None = None
    also_until: str | None = None
    """Where a clock was wrong, between these times too."""


def find_loss(
    policy: Policy, place: str, ledger: Ledger, store: AnswerStore, statements: Iterable[Path] = (),
    gone: Sequence[str] = (),
) -> Loss:  # fmt: skip
    """What the outside knows of a ledger that this copy of it, with its answers, has not.

    `gone` are ledgers that held the budget of the same rows.
    """
    head = ledger.head()
    since = "" if head is None else head.time.isoformat(timespec="seconds")
    known = Loss(0 if head is None else head.sequence, since)
    if ledger.find_lost():  # one that was not settled yet is not known less
        earlier = read_loss(next(ledger.entries(ledger.find_lost() - 1)))
        known = replace(known, epsilon=earlier.epsilon, delta=earlier.delta, event=earlier.event)
    record = Witness().find_loss(place, ledger, store.count_values(), gone)
    known = replace(known, event=take_larger(ledger.find_spent()[0], known.event, record.event)).add(record)
    missing = Witness().count_missing(place, ledger, list_people(ledger, store)[0], gone)
    if COLLECTION in known.stored or missing:  # the same people may have been lost more than once
        known = replace(known, stored={**known.stored, COLLECTION: missing})
    if policy.witness is not None:
        known = known.add(_compare_heads(policy, ledger, known.after))
    return known.add(_add_statements(ledger, statements))


def _compare_heads(policy: Policy, ledger: Ledger, here: int) -> Loss:
    """The heads in the policy's witness file that a copy has not."""
    told, lost = list_abandoned(ledger.entries(acts=("separate",))), []
    for head in make_sender(policy).read_heads():
        found = next(ledger.entries(head.number - 1), None) if head.number else None
        if head.number and (found is None or found.hash != head.hash) and (head.number, head.hash) not in told:
            lost.append((head.number, head.hash))
    most = max((number for number, _ in lost), default=0)
    return Loss(entries=max(1, most - here), heads=tuple(lost), known_by=(WITNESS,)) if lost else Loss()


def _add_statements(ledger: Ledger, statements: Iterable[Path]) -> Loss:
    """What releases cost of which the ledger does not know, by their statements."""
    from deniable.release import verify

    known = {entry.details.get("file") for entry in ledger.entries(acts=("publish",))}
    proven = {(body := verify(each).body)["file"]["sha256"]: body["guarantee"] for each in statements}
    lost = [claim for digest, claim in proven.items() if digest not in known]
    amounts = [[Fraction(claim[name] or 0) for claim in lost] for name in ("epsilon", "delta")]
    return Loss(entries=len(lost), epsilon=sum(amounts[0], Fraction(0)), delta=sum(amounts[1], Fraction(0)),
                known_by=(STATEMENTS,)) if lost else Loss()  # fmt: skip


def read_survivor(file: Path, key: bytes) -> tuple[Loss, list[tuple[str, str]]]:
    """How far an answer store that is left saw its ledger, and who withdrew by it; refuses one of another ledger."""
    from deniable.ledger.answer_store import AnswerStore, SqliteShelf

    if not file.is_file():
        raise DataError(f"there is no answer store '{file.name}'", expected="NAME.kept.sqlite of the lost ledger")
    with closing(AnswerStore(SqliteShelf(file))) as store:
        if store.key != key:
            raise IntegrityError(f"'{file.name}' is the answer store of another ledger", remedy="Name the right one")
        store.check()
        seen = store.last_seen() or (0, "")
        people = [read_withdrawal(each) for each in store.list_all(COLLECTION).values()]
        known = Loss(stored=store.count_values(), heads=(seen,) if seen[0] else (), known_by=(SURVIVOR,))
        return known, [(each.column, each.value) for each in people]


def subtract_kept(survivor: Loss, ledger: Ledger, store: AnswerStore) -> Loss:
    """What an answer store that is left knows beyond a copy."""
    counts, ((number, hashed),) = store.count_values(), survivor.heads or ((0, ""),)
    found = next(ledger.entries(number - 1), None) if number else None
    fewer = {name: many - counts.get(name, 0) for name, many in survivor.stored.items()}
    stored = {name: many for name, many in fewer.items() if many > 0}
    if not number or (found is not None and found.hash == hashed):
        return replace(survivor, stored=stored, heads=(), known_by=(SURVIVOR,) if stored else ())
    head = ledger.head()
    return replace(survivor, stored=stored, entries=max(1, number - (head.sequence if head else 0)))


def recover_withdrawals(context: Context, people: Iterable[tuple[str, str]], by: str) -> int:
    """Enter who withdrew again; says how many were not in the ledger."""
    before = context.state.withdrawals()[0]
    for column, value in people:
        withdrawals.withdraw(context, column, value, by)
    return context.state.withdrawals()[0] - before


def report_loss(policy: Policy, loss: Loss, recovered: int = 0) -> LossReport:
    """A loss as it is told."""
    return LossReport(
        loss.after, loss.since, loss.entries, dict(loss.stored), str(loss.epsilon), str(loss.delta),
        list(loss.known_by), recovered, describe_proven(choose_accounting(policy.budgets), loss),
    )  # fmt: skip


def refuse_unlisted(policy: Policy, by: str) -> None:
    """Refuse one who decides over the ledger and is not among the stewards, where the policy lists them."""
    refuse_name(by, Role.STEWARD)
    if policy.stewards and not is_listed(by, policy.stewards):
        raise AccessRefused(
            f"'{by}' is not the name of a steward whom the policy knows",
            expected=f"One of {', '.join(policy.stewards)}",
            remedy="Say --by with one of these names",
        )


def settle(
    context: Context, by: str, reason: str, *, spent: tuple[Amount | None, Amount | None, Amount | None] | None,
    entered: bool = False, missing: int = 0,
) -> SettleReport:  # fmt: skip
    """Charge what lost entries may have spent (epsilon, delta, rho), and open the ledger again.

    Without `spent` all that is left of the dataset's budget is charged, and no less than what is proven. What is
    charged may pass the limit: it tells what was spent, and closes the budget. `entered` says that everybody who
    withdrew in the lost entries was entered again, but for so many who are `missing`. What is charged counts for every
    purpose and analyst too: nobody knows who spent it.
    """
    refuse_unlisted(context.policy, by)
    if not reason.strip():
        raise ParameterError("a loss is settled with a reason", remedy="Say --reason; it is written into the ledger")
    context.ledger.refuse_unpriced()
    lost = context.ledger.find_lost()
    entry = next((each for each in context.ledger.entries(lost - 1)), None) if lost else None
    if entry is None:
        raise ParameterError("no loss of this ledger waits to be settled", remedy="Look at it: deniable ledger show")
    loss = read_loss(entry)
    _refuse_missing(context, loss, entered, missing)
    _refuse_unpriced(context, loss)
    event = _find_worst(context, loss) if spent is None else _read_spent(context.ledger, spent, loss)
    charged, span = _describe_event(context.ledger.find_spent()[0], event), _find_spans(context.ledger, entry)
    if charged:
        posting = Posting(
            Act.CHARGE, event, "lost entries", analyst="steward",
            details={SETTLES: lost, "reason": reason, LOST_BETWEEN: span},
            request=f"settle {lost}", question=str(charged),
        )  # fmt: skip
        context.ledger.charge(posting)
    details = {SETTLES: lost, "reason": reason, **charged} | ({"people_missing": missing} if missing else {})
    done = context.ledger.record(Posting(Act.SETTLE, analyst=by, details=details))
    return SettleReport(lost, done.number, charged, *span)


def _find_spans(ledger: Ledger, entry: Entry) -> list[str]:
    """Between which times the entries of a loss were written: after those of the copy, and before the loss was told.

    Losses before it that were not settled are settled with it. Nobody knows when the entries of a ledger that was
    begun anew began: they count when the loss was told. If the last entry of the copy has a later time than the loss,
    one of both clocks was wrong, and nobody knows which: there are two spans then, one by each clock.
    """
    settled = max((each.sequence for each in ledger.entries(acts=("settle",))), default=0)
    told = [each for each in ledger.entries(settled, ("separate",)) if LOST in each.details]
    spans = [_find_clocks(ledger, each) for each in told]
    ahead = [(since, until) for _, since, until in spans if until > since]
    main = [min([first for first, _, _ in spans] + [entry.time]), entry.time]
    also = [min(since for since, _ in ahead), max(until for _, until in ahead)] if ahead else []
    return [each.isoformat() for each in (*main, *also)]


def _find_clocks(ledger: Ledger, entry: Entry) -> tuple[datetime, datetime, datetime]:
    """When the entries of a loss began, by the clock of the loss; and between which times they are by a clock ahead.

    Those are equal where no clock was. The first entries under a clock that is ahead were written after the last one
    that is not, and the last ones before the loss was told, or, if that clock was behind, before it is settled.
    """
    loss, told = read_loss(entry), entry.time
    since = datetime.fromisoformat(loss.since) if loss.since else told
    if since <= told:
        return since, told, told
    before = (each.time for each in ledger.entries() if each.sequence <= loss.after)
    first = max((each for each in before if each <= told), default=told)
    return first, since, max(since + (told - first), since + timedelta(days=1), datetime.now(UTC))


def _refuse_unpriced(context: Context, loss: Loss) -> None:
    """Refuse to settle a loss under an accounting that has no price for what is proven."""
    accounting = context.ledger.find_spent()[0]
    if find_pricing(accounting, loss.event) != accounting:
        raise AccessRefused(
            f"{accounting} accounting cannot price what the lost entries are proven to have spent",
            expected="The accounting under which they were charged",
            remedy="Put it back into the policy: budgets: dataset: accounting: zcdp, with a delta; then settle",
        )


def _find_worst(context: Context, loss: Loss) -> Event:
    """All that is left of the dataset's budget, or what is proven, if that is more."""
    budgets = context.policy.budgets
    accounting, account = context.ledger.find_spent()
    rest = find_rest(accounting, budgets.dataset if budgets is not None else None, account)
    return join_rest(accounting, rest, loss.find_proven(accounting))


def _refuse_missing(context: Context, loss: Loss, entered: bool, missing: int) -> None:
    """Refuse to settle while people are known to have withdrawn who are not entered again, unless that is told."""
    since = f"Every withdrawal after {loss.since or 'the beginning'}: deniable withdraw"
    if not entered:
        raise ParameterError(
            "who withdrew in the lost entries must be entered again first", expected=since,
            remedy="Enter them, from the letters that people sent; then say --withdrawals-entered",
        )  # fmt: skip
    people, _ = list_people(context.ledger, context.store)
    known = Witness().count_missing(context.place, context.ledger, people) if context.place else 0
    # What the ledger itself says counts too: another user's record, or one on another machine, may know of nobody.
    acts = context.ledger.entries(context.ledger.find_lost(), ("withdraw",))
    again = {entry.details.get("commitment") for entry in acts} - fold_reinstated(context.ledger.entries(acts=ACTS))
    known = max(known, loss.stored.get(COLLECTION, 0) - len(again))
    if known != missing:
        raise ParameterError(
            f"{known} who withdrew by the entry of the loss, or by the user's record of ledgers, are not entered again"
            + (f", and {missing} were said to be missing" if missing else ""),
            expected=since,
            remedy="Enter them. If they cannot be found out, their rows count again; then that must be said, and is "
            f"written into the ledger: --people-missing {known}",
        )


def _read_spent(ledger: Ledger, spent: tuple[Amount | None, Amount | None, Amount | None], loss: Loss) -> Event:
    epsilon, delta, rho = spent
    if epsilon is None and rho is None:
        raise ParameterError(
            "it is not said what the lost entries may have spent",
            remedy="Say --epsilon, and --delta if some had one; or --everything, which closes the budget",
        )
    amount = budget(epsilon, 0 if delta is None else delta, rho)
    known = Fraction(0) if isinstance(amount, ZCDP) else amount.epsilon
    if known < loss.epsilon or amount.delta < loss.delta:
        raise ParameterError(
            "statements of releases prove that the lost entries spent more",
            expected=f"At least epsilon {float(loss.epsilon):g} and delta {float(loss.delta):g}",
            remedy="State that, or more",
        )
    accounting, stated = ledger.find_spent()[0], _build_event(amount)
    if not is_covered(accounting, loss.event, stated):
        raise ParameterError(
            "the user's record of ledgers proves that the lost entries spent more",
            expected=f"At least {describe_proven(accounting, loss)}",
            remedy="State that, or more; or --everything, which closes the budget",
        )
    return price_stated(accounting, loss.event, stated)


def describe_proven(accounting: str, loss: Loss) -> str:
    """What a loss is known to have cost at least by the record, as the options that state it; empty if nothing."""
    return " ".join(f"--{name} {value}" for name, value in _describe_event(accounting, loss.event).items())


def _describe_event(accounting: str, event: Event) -> dict[str, str]:
    """What an event costs: in rho under zCDP, but in epsilon where all of it is pure; else in epsilon and delta."""
    account = accountant_for(find_pricing(accounting, event)).compose(event)
    if isinstance(account, PLDAccountant):
        least = next((each for each in (account.compute_spent(0), account.compute_spent(READ_AT)) if each), None)
        parts = {"epsilon": least.epsilon, "delta": least.delta} if least else {}
    elif isinstance(account, ZCDPAccountant) and account.pure is None:
        parts = {"rho": account.cost.amount, "delta": account.cost.delta}
    else:
        cost = account.pure if isinstance(account, ZCDPAccountant) and account.pure is not None else account.cost
        parts = {"epsilon": cost.amount, "delta": cost.delta}
    return {name: str(value) for name, value in parts.items() if value}


def _build_event(amount: Budget) -> Event:
    """An event that costs so much: pure, and with probability delta all; or concentrated."""
    if isinstance(amount, ZCDP):
        return build_event("zcdp", amount.rho, amount.delta)
    return build_event("pure", amount.epsilon, amount.delta)
