"""Ledger: charge before anything runs, refuse what does not fit, answer what is left, prove that nothing was changed.

`charge` is one transaction: it reads the tree, decides, and writes the entry and the new totals, epsilon and delta
together. When it returns, the entry is on the disk; when it refuses or fails, nothing was written. There is no refund.

A ledger is opened by its place: a file is SQLite, a `postgresql://` address is PostgreSQL, nothing is memory. The
answer store beside it is opened by the same place."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deniable.dp.accounting import Accountant, Event, PureAccountant, ZCDPAccountant
from deniable.errors import AccessRefused, DataError, InternalError
from deniable.ledger import budget_tree
from deniable.ledger.answer_store import AnswerStore, MemoryAnswerStore, SqliteAnswerStore
from deniable.ledger.budget_tree import restore_accountant
from deniable.ledger.entry import (
    Act,
    Book,
    Entry,
    Line,
    MemoryStore,
    Posting,
    Store,
    chain_entry,
    decode_entry,
    digest,
    encode_entry,
    line_of,
)
from deniable.ledger.group_commit import GroupCommit
from deniable.policy.access import Budgets
from deniable.policy.budget import ZCDP, Budget, budget
from deniable.policy.document import Policy

MOST_REPEATS = 10**6
"""Beyond so many more questions of a kind, nobody counts."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a charge leaves with the one who asked: its place in the ledger, and the head of the chain there.

    `repeated` tells that the request was charged before, and not again. `remaining` is the least that is left on the
    path from the dataset to the asker (None without a limit).
    """

    number: int
    head: str
    time: datetime
    release: str
    request: str
    remaining: Budget | None
    repeated: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The receipt as plain values."""
        time = self.time.isoformat(timespec="microseconds")
        told = {"number": self.number, "head": self.head, "time": time}
        return told | {"release": self.release, "request": self.request}


@dataclass(frozen=True, slots=True)
class Balance:
    """One node of the tree: what it may spend, what is spent, what is left; `period` where it is renewed."""

    node: str
    limit: Budget | None
    spent: Budget | None
    remaining: Budget | None
    period: str = ""


@dataclass(frozen=True, slots=True)
class _PathBalance:
    """The accountants of a path as they were after the entry of that number."""

    number: int
    nodes: tuple[budget_tree.Node, ...]
    accounts: list[tuple[budget_tree.Node, Accountant]]
    least: Budget | None


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
        self._clock = clock
        self._accounting = budget_tree.choose_accounting(budgets)
        self._group_commit: GroupCommit[Book, Posting, Receipt] = GroupCommit(self.store.begin_write, self._write)
        self._latest = datetime.min.replace(tzinfo=UTC)
        self._seen: dict[tuple[str, str], _PathBalance] = {}
        # Totals are cached under what decides their meaning, so that a changed policy adds the past up anew.
        shape = [] if budgets is None else [[p.name, str(p.every)] for p in budgets.purposes]
        listed = [] if budgets is None else sorted(a.name for a in budgets.analysts)
        self._cache = digest([self._accounting, sorted(shape), listed])[:16]

    def charge(self, posting: Posting) -> Receipt:
        """Write a charge, or refuse and write nothing; a request that was charged before is not charged again."""
        if posting.act is not Act.CHARGE:
            raise InternalError("something else than a charge was to be charged")
        return self._group_commit.submit(_assign_ids(posting))

    def record(self, posting: Posting) -> Receipt:
        """Write what has no price: a release without a formal guarantee, or an act of governance."""
        return self._group_commit.submit(_assign_ids(posting))

    def _write(self, book: Book, posting: Posting) -> Receipt:
        """Decide on a posting and write it; whatever is refused is refused before anything is written."""
        head = self._read_head(book)
        known = book.of_request(posting.analyst, posting.request)
        if known is not None:
            return self._repeat_receipt(decode_entry(known, 0), posting)
        time = self._time(head)
        if posting.act is not Act.CHARGE:
            return _make_receipt(self._append(book, posting, head, time), None)
        nodes = budget_tree.find_path(self.budgets, posting.purpose, posting.analyst, time)
        before = self._totals(book, nodes, head)
        totals, accounts = budget_tree.charge_nodes(self._accounting, nodes, before, posting.event)
        entry = self._append(book, posting, head, time)
        self._put(book, before | totals, entry.sequence)
        return _make_receipt(entry, _find_least(accounts))

    def admit(self, purpose: str = "", analyst: str = "") -> None:
        """Refuse a purpose or an analyst that the policy does not grant."""
        budget_tree.find_path(self.budgets, purpose, analyst, self._clock())

    def balance(self, purpose: str = "", analyst: str = "") -> tuple[Balance, ...]:
        """What is spent and left on the path from the dataset to an asker; only the dataset's if none is named."""
        return tuple(
            Balance(node.title, node.limit, _find_spent(accountant), accountant.compute_remaining(), node.period)
            for node, accountant in self._accounts(purpose, analyst)
        )

    def find_remaining(self, purpose: str = "", analyst: str = "") -> Budget | None:
        """The least that is left on the path to an asker; None without a limit."""
        self._accounts(purpose, analyst)
        return self._seen[purpose, analyst].least

    def fits(self, event: Event, purpose: str = "", analyst: str = "") -> int | None:
        """How many more charges like this one fit: "about 40 more counts like this"; None without a limit."""
        accounts = [accountant for _, accountant in self._accounts(purpose, analyst)]
        if all(accountant.limit is None for accountant in accounts):
            return None
        return min(_count_repeats(accountant, event) for accountant in accounts)

    def entries(self, after: int = 0, acts: tuple[str, ...] = ()) -> Iterator[Entry]:
        """The entries after a number, of some acts or of all, in their order."""
        return (decode_entry(line.text, line.sequence) for line in self.store.lines(after, acts))

    def head(self) -> Entry | None:
        """The last entry."""
        with self.store.begin_read() as book:
            return self._read_head(book)

    def read_cached_totals(self, book: Book, keys: tuple[str, ...]) -> tuple[int, dict[str, str]]:
        """The cached totals of these nodes, and the number of the last entry in them."""
        return int(self._read_cached(book, ("upto",)).get("upto", 0)), self._read_cached(book, keys)

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def _read_head(self, book: Book) -> Entry | None:
        """The last entry; refuses a ledger of another dataset, whose requests would count as charged for this one."""
        text = book.head()
        head = None if text is None else decode_entry(text, 0)
        if head is not None and head.dataset != self.dataset:
            raise AccessRefused(
                f"this ledger belongs to dataset '{head.dataset}', not to '{self.dataset}'",
                remedy="Give each dataset a ledger of its own",
            )
        return head

    def _append(self, book: Book, posting: Posting, head: Entry | None, time: datetime) -> Entry:
        entry = chain_entry(posting, head, time, self.dataset, self.policy)
        book.append(line_of(entry, encode_entry(entry)))
        return entry

    def _time(self, head: Entry | None) -> datetime:
        """Now, but never before the entry before: a clock that was set back does not bring a period back."""
        now = self._clock().astimezone(UTC)
        return now if head is None else max(now, head.time)

    def _repeat_receipt(self, known: Entry, posting: Posting) -> Receipt:
        if known.question != posting.fingerprint:
            raise AccessRefused(
                f"request id '{posting.request}' was used for another question",
                remedy="Take a new request id for a new question",
                request=posting.request,
            )
        return replace(_make_receipt(known, None), repeated=True)

    def _totals(self, book: Book, nodes: tuple[budget_tree.Node, ...], head: Entry | None) -> dict[str, str]:
        """The totals of these nodes up to the head, and of all others that the cache had not caught up with."""
        known = self._read_cached(book, ("upto", *(node.key for node in nodes)))
        upto = int(known.pop("upto", 0))
        if head is None or head.sequence <= upto:
            return known
        missed = [_decode_line(line) for line in book.after(upto)]
        touched = {node.key for entry in missed for node in budget_tree.find_entry_path(self.budgets, entry)}
        return budget_tree.replay_entries(self.budgets, known | self._read_cached(book, tuple(touched)), missed)

    def _read_cached(self, book: Book, keys: tuple[str, ...]) -> dict[str, str]:
        found = book.totals(tuple(f"{self._cache} {key}" for key in keys))
        return {name.removeprefix(f"{self._cache} "): total for name, total in found.items()}

    def _put(self, book: Book, totals: Mapping[str, str], upto: int) -> None:
        named = {f"{self._cache} {key}": total for key, total in totals.items()}
        book.put_totals(named | {f"{self._cache} upto": str(upto)})

    def _accounts(self, purpose: str, analyst: str) -> list[tuple[budget_tree.Node, Accountant]]:
        """The accountants on a path; remembered as long as no entry is added and no period ends."""
        before, number = self._seen.get((purpose, analyst)), self.store.last()
        nodes = self._path(purpose, analyst, max(self._clock().astimezone(UTC), self._latest))
        if before is not None and before.number == number and before.nodes == nodes:
            return before.accounts
        with self.store.begin_read() as book:
            head = self._read_head(book)
            nodes = self._path(purpose, analyst, self._time(head))
            totals = self._totals(book, nodes, head)
        found = [(node, restore_accountant(self._accounting, node.limit, totals.get(node.key))) for node in nodes]
        self._latest = max(self._latest, head.time) if head else self._latest
        least = _find_least({node.key: accountant for node, accountant in found})
        self._seen[purpose, analyst] = _PathBalance(head.sequence if head else 0, nodes, found, least)
        return found

    def _path(self, purpose: str, analyst: str, time: datetime) -> tuple[budget_tree.Node, ...]:
        if self.budgets is not None and not purpose and not analyst:
            return (budget_tree.Node("dataset", "the dataset", self.budgets.dataset),)
        return budget_tree.find_path(self.budgets, purpose, analyst, time)


def _assign_ids(posting: Posting) -> Posting:
    """The posting with a request id and a release id of its own where it has none."""
    request = posting.request or secrets.token_hex(12)
    return replace(posting, request=request, release=posting.release or secrets.token_hex(12))


def _decode_line(line: Line) -> Entry:
    return decode_entry(line.text, line.sequence)


def _make_receipt(entry: Entry, remaining: Budget | None) -> Receipt:
    return Receipt(entry.sequence, entry.hash, entry.time, entry.release, entry.request, remaining)


def _find_least(accounts: Mapping[str, Accountant]) -> Budget | None:
    """What is left at every node: the smallest amount with the smallest delta."""
    left = [each for each in (account.compute_remaining() for account in accounts.values()) if each is not None]
    if not left:
        return None
    delta = min(each.delta for each in left)
    rhos = [each.rho for each in left if isinstance(each, ZCDP)]
    if rhos:
        return ZCDP(min(rhos), delta)
    return budget(min(each.epsilon for each in left if not isinstance(each, ZCDP)), delta)


def _find_spent(accountant: Accountant) -> Budget | None:
    """What a node has spent: with its own delta, or, of privacy losses, at the delta of the limit."""
    if isinstance(accountant, PureAccountant | ZCDPAccountant):
        return accountant.compute_spent()
    return accountant.compute_spent(accountant.limit.delta if accountant.limit else 0)


def _count_repeats(accountant: Accountant, event: Event) -> int:
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


POSTGRES = ("postgresql://", "postgres://")


def open_ledger(place: str | Path | None, policy: Policy, *, writable: bool = True) -> Ledger:
    """The ledger of a policy's dataset at a place; a writable one is made if it is not there.

    One of another dataset is refused, unless it is opened to be read and verified.
    """
    opened = Ledger(policy.dataset, policy.budgets, _open_store(place, policy.dataset, writable), policy=policy.hash)
    if writable:
        try:
            opened.head()
        except AccessRefused:
            opened.close()
            raise
    return opened


def open_answer_store(place: str | Path | None, dataset: str) -> AnswerStore:
    """The answer store beside a ledger: NAME.kept.sqlite, a table of the same database, or memory."""
    if place is None:
        return MemoryAnswerStore()
    if str(place).startswith(POSTGRES):
        from deniable.ledger.postgres import PostgresAnswerStore

        return PostgresAnswerStore(str(place), dataset)
    return SqliteAnswerStore(Path(place).with_suffix(".kept.sqlite"))


def _open_store(place: str | Path | None, dataset: str, writable: bool) -> Store | None:
    if place is None:
        return None
    if str(place).startswith(POSTGRES):
        from deniable.ledger.postgres import PostgresStore

        return PostgresStore(str(place), dataset)
    from deniable.ledger.sqlite import SqliteStore

    if not writable and not Path(place).exists():
        raise DataError(f"there is no ledger '{place}'", remedy="It is made by the first charge, or by deniable serve")
    return SqliteStore(place, writable=writable)
