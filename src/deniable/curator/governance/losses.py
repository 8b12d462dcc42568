"""A lost ledger: what the outside knows of it, withdrawals that are found elsewhere, and how the steward settles it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.curator.context import Context, make_sender
from deniable.curator.governance import withdrawals
from deniable.errors import AccessRefused, DataError, IntegrityError, ParameterError
from deniable.governance.requests import is_listed
from deniable.governance.withdrawals import COLLECTION, read_withdrawal
from deniable.ledger import Act, Posting
from deniable.ledger.entry import SETTLES
from deniable.ledger.loss import Loss, list_abandoned, read_loss
from deniable.ledger.witness import Witness
from deniable.policy.budget import ZCDP, Amount, Budget, budget
from deniable.release.record import Record

if TYPE_CHECKING:
    from deniable.dp.accounting import Event
    from deniable.ledger import Ledger
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


@dataclass(frozen=True, slots=True, eq=False)
class SettleReport(Record):
    """A loss that is settled: its entry, and what was charged for it."""

    loss: int
    entry: int
    charged: dict[str, str]


def find_loss(policy: Policy, place: str, ledger: Ledger, store: AnswerStore, statements: Iterable[Path] = ()) -> Loss:
    """What the outside knows of a ledger that this copy of it, with its answers, has not."""
    head = ledger.head()
    since = "" if head is None else head.time.isoformat(timespec="seconds")
    known = Loss(0 if head is None else head.sequence, since)
    known = known.add(Witness().find_loss(place, ledger, store.count_values()))
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
    before = context.state.withdrawals()
    for column, value in people:
        withdrawals.withdraw(context, column, value, by)
    return context.state.withdrawals() - before


def report_loss(loss: Loss, recovered: int = 0) -> LossReport:
    """A loss as it is told."""
    return LossReport(
        loss.after, loss.since, loss.entries, dict(loss.stored), str(loss.epsilon), str(loss.delta),
        list(loss.known_by), recovered,
    )  # fmt: skip


def refuse_unlisted(policy: Policy, by: str) -> None:
    """Refuse one who decides over the ledger and is not among the stewards, where the policy lists them."""
    if policy.stewards and not is_listed(by, policy.stewards):
        raise AccessRefused(
            f"'{by}' is not the name of a steward whom the policy knows",
            expected=f"One of {', '.join(policy.stewards)}",
            remedy="Say --by with one of these names",
        )


def settle(
    context: Context, by: str, reason: str, *, spent: tuple[Amount | None, Amount | None, Amount | None] | None,
    entered: bool = False,
) -> SettleReport:  # fmt: skip
    """Charge what lost entries may have spent (epsilon, delta, rho), and open the ledger again.

    Without `spent` all that is left of the dataset's budget is charged. `entered` says that everybody who withdrew in
    the lost entries was entered again.
    """
    refuse_unlisted(context.policy, by)
    if not reason.strip():
        raise ParameterError("a loss is settled with a reason", remedy="Say --reason; it is written into the ledger")
    lost = context.ledger.find_lost()
    entry = next((each for each in context.ledger.entries(lost - 1)), None) if lost else None
    if entry is None:
        raise ParameterError("no loss of this ledger waits to be settled", remedy="Look at it: deniable ledger show")
    loss = read_loss(entry)
    if not entered:
        raise ParameterError(
            "who withdrew in the lost entries must be entered again first",
            expected=f"Every withdrawal after {loss.since or 'the beginning'}: deniable withdraw",
            remedy="Enter them, from the letters that people sent; then say --withdrawals-entered",
        )
    amount = context.ledger.balance()[0].remaining if spent is None else _read_spent(spent, loss)
    charged = {} if amount is None else _describe_amount(amount)
    if amount is not None and charged:
        details = {SETTLES: lost, "reason": reason}
        posting = Posting(Act.CHARGE, _build_event(amount), "lost entries", analyst="steward", details=details,
                          request=f"settle {lost}", question=str(charged))  # fmt: skip
        context.ledger.charge(posting)
    done = context.ledger.record(Posting(Act.SETTLE, analyst=by, details={SETTLES: lost, "reason": reason, **charged}))
    return SettleReport(lost, done.number, charged)


def _read_spent(spent: tuple[Amount | None, Amount | None, Amount | None], loss: Loss) -> Budget:
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
    return amount


def _describe_amount(amount: Budget) -> dict[str, str]:
    stated = {"rho": amount.rho} if isinstance(amount, ZCDP) else {"epsilon": amount.epsilon}
    return {name: str(each) for name, each in (stated | {"delta": amount.delta}).items() if each}


def _build_event(amount: Budget) -> Event:
    """An event that costs so much: pure, and with probability delta all; or concentrated."""
    from deniable.dp.accounting import ComposedEvent, GaussianEvent, NoOpEvent, PureEvent, ThresholdEvent

    first: Event = NoOpEvent()
    if isinstance(amount, ZCDP):
        first = GaussianEvent(1 / (2 * amount.rho)) if amount.rho else first
    elif amount.epsilon:
        first = PureEvent(amount.epsilon)
    return ComposedEvent((first, ThresholdEvent(amount.delta))) if amount.delta else first
