"""Ledger: charge before anything runs, refuse what does not fit, answer what is left, prove that nothing was changed.

`charge` is one transaction: it reads what is new in the chain, decides, and writes the entry. When it returns, the
entry is on the disk; when it refuses or fails, nothing was written. There is no refund.

What was spent is stored nowhere but in the entries. Each process checks the whole chain when it opens the ledger, adds
it up, and from then on checks and adds what comes: nothing is decided on an entry that is not what was written.

A ledger and its answer store are opened by their place: a file is SQLite, a `postgresql://` address PostgreSQL."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path

from deniable.dp.accounting import Accountant, Event, accountant_for
from deniable.errors import AccessRefused, DataError, DeniableError, IntegrityError, InternalError, ParameterError
from deniable.ledger import budget_tree
from deniable.ledger.answer_store import AnswerStore, MemoryShelf, SqliteShelf
from deniable.ledger.budget_tree import Balance
from deniable.ledger.entry import (
    ANSWER,
    SETTLES,
    Act,
    Book,
    Entry,
    GroupCommit,
    MemoryStore,
    Posting,
    Receipt,
    Store,
    chain_entry,
    check_line,
    decode_entry,
    encode_entry,
    find_renewed,
    fold_lost,
    genesis,
    line_of,
    list_lost_days,
    list_units,
    refuse_broken,
    refuse_cut_off,
    refuse_other_question,
    refuse_other_unit,
    refuse_unsettled,
)
from deniable.ledger.loss import find_counts, refuse_lost_store, refuse_mismatch, seal_counts
from deniable.ledger.sqlite import SqliteStore, place_answers
from deniable.ledger.watch import Unwatched
from deniable.policy.access import Accounting, Budgets
from deniable.policy.budget import Budget, PureDP
from deniable.policy.document import Policy


@dataclass(frozen=True, slots=True)
class _Standing:
    """What a chain adds up to: its last entry, and the account of each node."""

    head: Entry | None
    accounts: Mapping[str, Accountant]
    units: frozenset[tuple[str, str]] = frozenset()
    """Each table that was charged for by itself, and its source, with whom the charge protects."""
    forgotten: int = 0
    """The number of the last entry that says that stored answers were forgotten."""
    stored: Mapping[str, int] = field(default_factory=dict)
    """How many values the answer store had of each collection, by the last entry that says so."""
    first: str = ""
    """The hash of the first entry, by which a ledger is known wherever it is kept."""
    lost: int = 0
    """The number of the entry of a loss that is not settled."""
    renewed: int = 0
    """The number of the last entry after which stored answers of before may be gone."""
    unpriced: int = 0
    """The number of the first charge that the policy's accounting cannot price; then accounts are those of zCDP."""


@dataclass(slots=True)
class _Work:
    """A writer's transaction: the book, and the standing with what was written in this transaction."""

    book: Book
    standing: _Standing
    stored: Mapping[str, int]
    robbed: IntegrityError | None
    """Why the answer store is not to be trusted: it has fewer values than it had."""
    answers: dict[str, Entry] = field(default_factory=dict)
    """The charges and failures of this transaction, by the names of their answers."""


@dataclass(frozen=True)
class _PathBalance:
    """The accountants of a path as they were after the entry of that number."""

    number: int
    nodes: tuple[budget_tree.Node, ...]
    accounts: list[tuple[budget_tree.Node, Accountant]]
    least: Budget | None
    closed: str

    @cached_property
    def balances(self) -> tuple[Balance, ...]:
        """What is spent and left at each node; computed once, since roots of fractions take a millisecond."""
        found = tuple(budget_tree.read_balance(*account) for account in self.accounts)
        return tuple(each.close(self.closed) for each in found) if self.closed else found


class Ledger:
    """The chain of entries of one dataset, under a policy's budgets.

    >>> from deniable.dp.accounting import PureEvent
    >>> from deniable.policy.budget import PureDP
    >>> ledger = Ledger("clinic", Budgets(PureDP(1)))
    >>> for _ in range(10):
    ...     receipt = ledger.charge(Posting(Act.CHARGE, PureEvent(0.1)))
    >>> receipt.remaining
    PureDP(epsilon=Fraction(0, 1))
    """

    def __init__(
        self,
        dataset: str,
        budgets: Budgets | None = None,
        store: Store | None = None,
        *,
        policy: str = "",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.dataset = dataset
        self.budgets = budgets
        self.policy = policy
        self.store = store if store is not None else MemoryStore()
        self.key: bytes | None = None
        """What entries are sealed with: the key of the answer store beside the ledger, where there is one."""
        self._clock = clock
        self._accounting = budget_tree.choose_accounting(budgets)
        self._group_commit: GroupCommit[_Work, Posting, Receipt] = GroupCommit(self._begin, self._write)
        self._standing = _Standing(None, {})
        self.watch = Unwatched()
        self.on_written: Callable[[Ledger], None] = lambda _: None
        """What is called after entries were written, such as to tell a witness."""
        self.on_first: Callable[[], Iterable[Posting]] = tuple
        """What is called before the first entry is written; what it gives is written before that. It may refuse."""
        self.on_act: Callable[[int, str], None] = lambda *_: None
        """What is called with the number and hash of each act of governance, which no answer is stored with."""
        self.on_close: Callable[[], None] = lambda: None
        self.count_stored: Callable[[Mapping[str, int], int], Mapping[str, int]] = lambda *_: {}
        """How many values the answer store has of each collection: sealed with what is charged. Refuses fewer than were
        sealed before, but for those that the entry of the number given forgot."""
        self._seen: dict[tuple[str, str], _PathBalance] = {}
        self._answers: dict[str, tuple[int, str, str]] = {}
        """The charge of each answer that is or will be stored: its number, asker and request."""

    def charge(self, posting: Posting) -> Receipt:
        """Write a charge, or refuse and write nothing; a request that was charged before is not charged again."""
        if posting.act is not Act.CHARGE:
            raise InternalError("something else than a charge was to be charged")
        return self._group_commit.submit(_assign_ids(posting))

    def record(self, posting: Posting) -> Receipt:
        """Write what has no price: a release without a formal guarantee, or an act of governance."""
        receipt = self._group_commit.submit(_assign_ids(posting))
        if posting.act not in (Act.CHARGE, Act.RELEASE):
            self.on_act(receipt.number, receipt.head)
        return receipt

    def refuse_reused(self, posting: Posting) -> None:
        """Refuse a request id that another question has used; nothing is written."""
        with self.store.begin_read() as book:
            known = book.of_request(posting.analyst, posting.request)
        if known is not None:
            refuse_other_question(decode_entry(known, 0), posting)

    @contextmanager
    def _begin(self) -> Iterator[_Work]:
        """The one writer's transaction, after all that was written before; what it wrote counts once it is kept."""
        known = self._standing
        with self.watch.guard_write():
            with self.store.begin_write() as book:
                standing = self._follow(book, known)
                self.watch.look(book, standing.head, standing.first)
                try:
                    work = _Work(book, standing, self.count_stored(standing.stored, standing.forgotten), None)
                except IntegrityError as refusal:
                    work = _Work(book, standing, {}, refusal)
                yield work
            self._standing = work.standing
            self._note_answers(work.answers.values())
            accounting = self._find_accounting(self._standing.unpriced)
            spent = self._standing.accounts.get("dataset")
            self.watch.note(self._standing.head, self._standing.first, accounting, spent)
        self.on_written(self)

    def _write(self, work: _Work, posting: Posting) -> Receipt:
        """Decide on a posting and write it; whatever is refused is refused before anything is written."""
        standing = work.standing
        if work.robbed is not None and posting.act is not Act.EXPIRE:  # what is being forgotten may be gone already
            raise work.robbed
        known = work.book.of_request(posting.analyst, posting.request)
        if known is not None:
            return self._repeat_receipt(decode_entry(known, 0), posting, standing.forgotten)
        refuse_unsettled(standing.lost, posting)
        if (charged_before := self._find_charge(work, posting)) is not None:
            return replace(_make_receipt(charged_before, None), repeated=True, shared=True)
        time, charged, posting = self._now(), {}, seal_counts(posting, work.stored)
        if posting.act is Act.CHARGE:
            self._refuse_unpriced(standing)
            refuse_other_unit(posting, standing.units)
            budget_tree.refuse_ended(self.budgets, posting.analyst, time)
            if SETTLES in posting.details:  # nobody knows who spent it, and what was spent is no request
                days = list_lost_days(posting.details, time)
                nodes = budget_tree.list_nodes(self.budgets, days, limited=False)
            else:
                nodes = budget_tree.find_path(self.budgets, posting.purpose, posting.analyst, time)
            charged = budget_tree.charge_nodes(self._accounting, nodes, standing.accounts, posting.event)
        for first in self.on_first() if standing.head is None else ():
            self._append(work, _assign_ids(first), time, {})
        entry = self._append(work, posting, time, charged)
        return _make_receipt(entry, budget_tree.find_least(charged))

    def _find_charge(self, work: _Work, posting: Posting) -> Entry | None:
        """The charge of another request for the same answer: whoever measures first stores it for all.

        So one question of several processes at one moment is charged once, and so is one whose process died. One that
        failed is charged anew: its failure told a little.
        """
        name = posting.details.get(ANSWER) if posting.act is Act.CHARGE else None
        if name is None:
            return None
        found = work.answers.get(name)
        if found is None:
            number, *request = self._answers.get(name, (0, "", ""))
            text = work.book.of_request(*request) if number > work.standing.renewed else None
            found = None if text is None else decode_entry(text, 0)
        return found if found is not None and posting.has_event(found.event) else None

    def _note_answers(self, entries: Iterable[Entry]) -> None:
        for each in (each for each in entries if ANSWER in each.details):
            number = each.sequence if each.act == Act.CHARGE else 0
            self._answers[each.details[ANSWER]] = (number, each.analyst, each.request)

    def _append(self, work: _Work, posting: Posting, time: datetime, charged: Mapping[str, Accountant]) -> Entry:
        """Write an entry at the end of the chain, and add it up."""
        before = work.standing
        entry = chain_entry(posting, before.head, time, self.dataset, self.policy, self.key)
        text = encode_entry(entry)
        work.book.append(line_of(entry, text))
        settled = {key: budget_tree.settle_account(account) for key, account in charged.items()}
        work.standing = _Standing(
            decode_entry(text, entry.sequence),
            {**before.accounts, **settled},
            before.units | list_units(posting),
            entry.sequence if posting.act is Act.EXPIRE else before.forgotten,
            find_counts([entry], before.stored),
            before.first or entry.hash,
            fold_lost([entry], before.lost),
            find_renewed([entry], before.renewed),
            before.unpriced,
        )
        if ANSWER in posting.details:
            work.answers[posting.details[ANSWER]] = entry
        return entry

    def _read_standing(self) -> _Standing:
        """What the chain adds up to now; refuses one that is not what was written."""
        known = self._standing  # before the view is opened, so that the view is never older
        with self.store.begin_read() as book:
            return self._follow(book, known)

    def _follow(self, book: Book, known: _Standing) -> _Standing:
        """The standing at the end of the chain: every entry that was not seen yet is checked, and added up."""
        text = book.head()
        last, before = (None if text is None else decode_entry(text, 0)), known.head
        if last is not None and last.dataset != self.dataset:
            raise AccessRefused(  # its requests would count as charged for this one
                f"this ledger belongs to dataset '{last.dataset}', not to '{self.dataset}'",
                remedy=f"If it was renamed, put its name back: dataset: {last.dataset}. Another dataset has a ledger "
                "of its own: --ledger",
            )
        if before is not None and (last is None or last.sequence < before.sequence):
            raise refuse_cut_off()
        if before is not None and last is not None and last.sequence == before.sequence:
            if last != before:
                raise refuse_broken(before.sequence, "was changed")
            return known
        new = []
        for line in book.after(before.sequence if before else BEFORE_ALL):
            before = check_line(line, before, self.dataset, self.key)
            new.append(before)
        units = known.units.union(*(list_units(entry) for entry in new))
        accounts, unpriced = self._add_up(book, known, new)
        forgotten = max((each.sequence for each in new if each.act == Act.EXPIRE), default=known.forgotten)
        stored, first = find_counts(new, known.stored), known.first or next((entry.hash for entry in new), "")
        lost, renewed = fold_lost(new, known.lost), find_renewed(new, known.renewed)
        self._note_answers(new)
        self._standing = _Standing(before, accounts, units, forgotten, stored, first, lost, renewed, unpriced)
        return self._standing

    def _add_up(self, book: Book, known: _Standing, new: list[Entry]) -> tuple[Mapping[str, Accountant], int]:
        """The accounts after new entries, and the first charge that the policy's accounting cannot price.

        Such a ledger was charged under another accounting. It is added up by zCDP, to be read; nothing is charged.
        """
        try:
            accounting = self._find_accounting(known.unpriced)
            return budget_tree.replay_entries(accounting, self.budgets, known.accounts, new), known.unpriced
        except ParameterError:
            account = accountant_for(self._accounting)
            entries = [decode_entry(line.text, line.sequence) for line in book.after(BEFORE_ALL)]
            charges = (each for each in entries if each.act == Act.CHARGE)
            unpriced = next((each.sequence for each in charges if not account.supports(each.priced)), 0)
            if known.unpriced or not unpriced:
                raise
            return budget_tree.replay_entries(self._find_accounting(unpriced), self.budgets, {}, entries), unpriced

    def _find_accounting(self, unpriced: int) -> str:
        return str(Accounting.ZCDP) if unpriced else self._accounting

    def refuse_unpriced(self) -> None:
        """Refuse to spend from a ledger with charges that the policy's accounting cannot price."""
        self._refuse_unpriced(self._read_standing())

    def _refuse_unpriced(self, standing: _Standing) -> None:
        if standing.unpriced:
            raise AccessRefused(
                f"{self._describe_unpriced(standing.unpriced)}, so nothing is charged",
                expected="The accounting that the policy had then, or another that can price all that was charged",
                remedy="Put it back into the policy: budgets: dataset: accounting: zcdp, with a delta. "
                "The ledger can be read and verified as it is",
            )

    def _describe_unpriced(self, number: int) -> str:
        return f"{self._accounting} accounting cannot price entry {number}, which was charged under another accounting"

    def _describe_closed(self, standing: _Standing) -> str:
        """Why nothing can be spent now; empty where it can."""
        if standing.lost:
            return (
                f"the ledger is closed, since entries are lost (entry {standing.lost} says which) and the steward has "
                "not settled that yet: deniable ledger settle"
            )
        if standing.unpriced:
            return f"the ledger is closed, since {self._describe_unpriced(standing.unpriced)}"
        return ""

    def admit(self, purpose: str = "", analyst: str = "") -> None:
        """Refuse a purpose or an analyst that the policy does not grant, or no longer."""
        budget_tree.find_path(self.budgets, purpose, analyst, self._now())
        budget_tree.refuse_ended(self.budgets, analyst, self._now())

    def balance(self, purpose: str = "", analyst: str = "") -> tuple[Balance, ...]:
        """What is spent and left on the path from the dataset to an asker; only the dataset's if none is named."""
        return self.read_path(purpose, analyst)[0]

    def read_path(self, purpose: str = "", analyst: str = "") -> tuple[tuple[Balance, ...], Budget | None]:
        """What is spent and left at each node of a path, and the least that is left: both of one look."""
        self._accounts(purpose, analyst)
        seen = self._seen[purpose, analyst]
        return seen.balances, seen.least

    def foresee_balance(self, event: Event, purpose: str = "", analyst: str = "") -> tuple[Balance, ...]:
        """The balance as it would be after a charge; BudgetExceeded where that does not fit."""
        self.refuse_unpriced()
        accounts = self._accounts(purpose, analyst)
        return tuple(budget_tree.read_balance(node, accountant.compose(event)) for node, accountant in accounts)

    def refuse_impossible(self, event: Event, purpose: str = "", analyst: str = "") -> None:
        """Refuse what could not be charged even if nothing were spent: it has no price here, or passes a limit."""
        budget_tree.charge_nodes(self._accounting, self._path(purpose, analyst, self._now()), {}, event)

    def find_remaining(self, purpose: str = "", analyst: str = "") -> Budget | None:
        """The least that is left on the path to an asker, nothing while the ledger is closed; None without a limit."""
        return self.read_path(purpose, analyst)[1]

    def fits(self, event: Event, purpose: str = "", analyst: str = "") -> int | None:
        """How many more charges like this one fit: "about 40 more counts like this"; None without a limit."""
        accounts = [accountant for _, accountant in self._accounts(purpose, analyst)]
        if self._seen[purpose, analyst].closed:
            return 0
        if all(accountant.limit is None for accountant in accounts):
            return None
        return min(budget_tree.count_repeats(accountant, event) for accountant in accounts)

    def entries(self, after: int = 0, acts: tuple[str, ...] = ()) -> Iterator[Entry]:
        """The entries after a number, of some acts or of all, in their order."""
        return (decode_entry(line.text, line.sequence) for line in self.store.lines(after, acts))

    def head(self) -> Entry | None:
        """The last entry of a chain that is what was written; refuses one that is not."""
        return self._read_standing().head

    def list_charged(self) -> frozenset[tuple[str, str]]:
        """Each table that was charged for by itself, with whom the charges protect."""
        return self._read_standing().units

    @property
    def first(self) -> str:
        """The hash of the first entry, by which a ledger is known wherever it is kept; empty while it has none."""
        return self._read_standing().first

    @property
    def forgotten(self) -> int:
        """The number of the last entry that says that stored answers were forgotten; 0 where none does."""
        return self._read_standing().forgotten

    def find_spent(self) -> tuple[str, Accountant | None]:
        """How totals are composed, and the account of the dataset; None while nothing is charged."""
        standing = self._read_standing()
        return self._find_accounting(standing.unpriced), standing.accounts.get("dataset")

    def find_lost(self) -> int:
        """The number of the entry of a loss that is not settled; 0 where there is none."""
        return self._read_standing().lost if self._standing.lost else 0

    def refuse_lost(self) -> None:
        """Refuse to serve while a loss is not settled."""
        refuse_unsettled(self.find_lost())

    def recount(self, store: AnswerStore) -> None:
        """Refuse an answer store that has fewer values than the ledger says that it had."""
        store.recount_by(lambda: ((now := self._read_standing()).stored, now.forgotten))

    @property
    def known_head(self) -> Entry | None:
        """The last entry that this process saw, without a look at the store."""
        return self._standing.head

    def close(self) -> None:
        """Let go of the store."""
        self.on_close()
        self.watch.close()
        self.store.close()

    def _now(self) -> datetime:
        """The time by the clock, also where the entry before has a later one: a wrong clock shuts no later period."""
        return self._clock().astimezone(UTC)

    def _repeat_receipt(self, known: Entry, posting: Posting, forgotten: int) -> Receipt:
        refuse_other_question(known, posting)
        if known.act == Act.CHARGE and known.sequence < forgotten:  # a second answer would not be paid for
            raise AccessRefused(
                f"the answer to request '{posting.request}' was forgotten when the policy's term was over",
                remedy=posting.anew,
                request=posting.request,
            )
        return replace(_make_receipt(known, None), repeated=True)

    def _accounts(self, purpose: str, analyst: str) -> list[tuple[budget_tree.Node, Accountant]]:
        """The accountants on a path; remembered as long as no entry is added and no period ends."""
        before, number = self._seen.get((purpose, analyst)), self.store.last()
        nodes = self._path(purpose, analyst, self._now())
        if before is not None and before.number == number and before.nodes == nodes:
            return before.accounts
        standing = self._read_standing()
        head, spent = standing.head, standing.accounts
        accounting, closed = self._find_accounting(standing.unpriced), self._describe_closed(standing)
        limits = {node.key: None if standing.unpriced else node.limit for node in nodes}
        found = [(node, budget_tree.limit_account(accounting, limits[node.key], spent.get(node.key))) for node in nodes]
        least = budget_tree.find_least({node.key: accountant for node, accountant in found})
        if closed and any(node.limit is not None for node in nodes):
            least = PureDP(Fraction(0))
        self._seen[purpose, analyst] = _PathBalance(head.sequence if head else 0, nodes, found, least, closed)
        return found

    def _path(self, purpose: str, analyst: str, time: datetime) -> tuple[budget_tree.Node, ...]:
        if self.budgets is not None and not purpose and not analyst:
            return (budget_tree.Node("dataset", "the dataset", self.budgets.dataset),)
        return budget_tree.find_path(self.budgets, purpose, analyst, time)


def _assign_ids(posting: Posting) -> Posting:
    """The posting with a request id and a release id of its own where it has none."""
    if not isinstance(posting.request, str) or any("\ud800" <= each <= "\udfff" for each in posting.request):
        raise ParameterError("the request id is not text", expected="Any characters, such as those of a UUID")
    request = posting.request or secrets.token_hex(12)
    return replace(posting, request=request, release=posting.release or secrets.token_hex(12))


def _make_receipt(entry: Entry, remaining: Budget | None) -> Receipt:
    return Receipt(entry.sequence, entry.hash, entry.time, entry.release, entry.request, remaining)


@dataclass(frozen=True, slots=True)
class Verified:
    """A ledger that is what was written: so many entries, up to this head."""

    entries: int
    head: str
    time: datetime | None


def verify(ledger: Ledger, head: str | None = None, number: int | None = None) -> Verified:
    """Recompute the chain; refuse at the first entry that is not what was written.

    `head` is the hash of a receipt (with its `number`, if known): the entry it was given for must still be there.
    """
    before: Entry | None = None
    seen, known = head is None, ledger.known_head
    with ledger.store.begin_read() as book:
        for line in book.after(BEFORE_ALL):
            entry = check_line(line, before, ledger.dataset, ledger.key)
            if head is not None and number == entry.sequence and entry.hash != head:
                raise refuse_broken(entry.sequence, "is not the one that the receipt was given for")
            seen = seen or (entry.hash == head and number in (None, entry.sequence))
            if known is not None and known.sequence == entry.sequence and known != entry:
                raise refuse_broken(entry.sequence, "was changed")
            before = entry
    if not seen or (known is not None and (before is None or before.sequence < known.sequence)):
        raise refuse_cut_off()
    if before is None:
        return Verified(0, genesis(ledger.dataset), None)
    return Verified(before.sequence, before.hash, before.time.astimezone(UTC))


BEFORE_ALL = -math.inf
"""Below every number that a store can have: an entry with a number below 1 is none of ours, and must be seen."""
POSTGRES = ("postgresql://", "postgres://")


def open_ledger(place: str | Path | None, policy: Policy, *, writable: bool = True, spending: bool = True) -> Ledger:
    """The ledger of a policy's dataset at a place; a writable one is made if it is not there.

    One of another dataset, or whose chain is broken, is refused, unless it is opened to be read and verified. A role of
    a database that could not charge is refused where it is opened for `spending`.
    """
    store = _open_store(place, policy.dataset, writable, spending and writable)
    opened = Ledger(policy.dataset, policy.budgets, store, policy=policy.hash)
    opened.key = opened.store.find_key()
    if writable:
        try:
            opened.head()
        except DeniableError:
            opened.close()
            raise
    return opened


def open_answer_store(place: str | Path | None, dataset: str, ledger: Ledger | None = None) -> AnswerStore:
    """The answer store beside a ledger: NAME.kept.sqlite, a table of the same database, or memory.

    A file is made where there is none, unless the `ledger` had one: what is refused leaves no empty store behind.
    """
    if place is None:
        return AnswerStore(MemoryShelf())
    if str(place).startswith(POSTGRES):
        from deniable.ledger.postgres import PostgresShelf

        return AnswerStore(PostgresShelf(str(place), dataset))
    beside = place_answers(place)
    if ledger is not None and not beside.exists():
        refuse_lost_store(ledger)
    return AnswerStore(SqliteShelf(beside))


def tie_store(ledger: Ledger, store: AnswerStore, withdrawals: str) -> None:
    """Refuse a ledger and an answer store that do not fit; from now on each seals how far the other is."""
    refuse_mismatch(ledger, store, withdrawals)
    if store.is_lasting:
        ledger.key = store.key
        ledger.count_stored, ledger.on_act = store.count_before_entry, partial(_see_act, store)
        store.on_answer = lambda *stored: ledger.watch.note_answer(*stored)


def _see_act(store: AnswerStore, number: int, head: str) -> None:
    """Remember an act, so that it is missed when it is deleted; one that the disk refuses, with the next."""
    with suppress(DeniableError):
        store.see(number, head)


def refuse_changed_store(place: str | Path, ledger: Ledger, withdrawals: str, *, copied: bool) -> None:
    """Refuse to read a ledger whose answer store was changed or deleted.

    One that is `copied`, to a place where it was never written, may be without its store.
    """
    beside = str(place).startswith(POSTGRES) or place_answers(place).exists()
    if not beside and not copied:
        refuse_lost_store(ledger)
    if beside and next(ledger.entries(acts=("charge", "release")), None) is not None:
        with closing(open_answer_store(place, ledger.dataset)) as store:
            refuse_mismatch(ledger, store, withdrawals)


def _open_store(place: str | Path | None, dataset: str, writable: bool, spending: bool) -> Store | None:
    if place is None:
        return None
    if str(place).startswith(POSTGRES):
        from deniable.ledger.postgres import PostgresStore

        return PostgresStore(str(place), dataset, spending=spending)
    if not writable and not Path(place).exists():
        raise DataError(f"there is no ledger '{place}'", remedy="It begins with its first entry, such as a charge")
    return SqliteStore(place, writable=writable)
