"""Ledger: charge before anything runs, refuse what does not fit, answer what is left, prove that nothing was changed.

`charge` is one transaction: it reads the tree, decides, and writes the entry and the new totals, epsilon and delta
together. When it returns, the entry is on the disk; when it refuses or fails, nothing was written. There is no refund.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from deniable.dp.accounting import Accountant, Event, PureAccountant, ZCDPAccountant
from deniable.errors import AccessRefused, InternalError
from deniable.ledger import tree
from deniable.ledger.entry import Act, Entry, Posting, chained, digest, read, written
from deniable.ledger.store import Book, Line, MemoryStore, Store, line_of
from deniable.ledger.totals import account
from deniable.ledger.turnstile import Turnstile
from deniable.policy.access import Budgets
from deniable.policy.budget import ZCDP, Budget, budget

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
class _Seen:
    """The accountants of a path as they were after the entry of that number."""

    number: int
    nodes: tuple[tree.Node, ...]
    accounts: list[tuple[tree.Node, Accountant]]
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
        self._accounting = tree.accounting_of(budgets)
        self._turnstile: Turnstile[Book, Posting, Receipt] = Turnstile(self.store.writing, self._write)
        self._latest = datetime.min.replace(tzinfo=UTC)
        self._seen: dict[tuple[str, str], _Seen] = {}
        # Totals are cached under what decides their meaning, so that a changed policy adds the past up anew.
        shape = [] if budgets is None else [[p.name, str(p.every)] for p in budgets.purposes]
        listed = [] if budgets is None else sorted(a.name for a in budgets.analysts)
        self._cache = digest([self._accounting, sorted(shape), listed])[:16]

    def charge(self, posting: Posting) -> Receipt:
        """Write a charge, or refuse and write nothing; a request that was charged before is not charged again."""
        if posting.act is not Act.CHARGE:
            raise InternalError("something else than a charge was to be charged")
        return self._turnstile.enter(_named(posting))

    def record(self, posting: Posting) -> Receipt:
        """Write what has no price: a release without a formal guarantee, or an act of governance."""
        return self._turnstile.enter(_named(posting))

    def _write(self, book: Book, posting: Posting) -> Receipt:
        """Decide on a posting and write it; whatever is refused is refused before anything is written."""
        known = book.of_request(posting.analyst, posting.request)
        if known is not None:
            return self._again(read(known, 0), posting)
        head = _head(book)
        time = self._time(head)
        if posting.act is not Act.CHARGE:
            return _receipt(self._append(book, posting, head, time), None)
        nodes = tree.path(self.budgets, posting.purpose, posting.analyst, time)
        before = self._totals(book, nodes, head)
        totals, accounts = tree.charged(self._accounting, nodes, before, posting.event)
        entry = self._append(book, posting, head, time)
        self._put(book, before | totals, entry.sequence)
        return _receipt(entry, _least(accounts))

    def admit(self, purpose: str = "", analyst: str = "") -> None:
        """Refuse a purpose or an analyst that the policy does not grant."""
        tree.path(self.budgets, purpose, analyst, self._clock())

    def balance(self, purpose: str = "", analyst: str = "") -> tuple[Balance, ...]:
        """What is spent and left on the path from the dataset to an asker; only the dataset's if none is named."""
        return tuple(
            Balance(node.title, node.limit, _spent(accountant), accountant.remaining(), node.period)
            for node, accountant in self._accounts(purpose, analyst)
        )

    def remaining(self, purpose: str = "", analyst: str = "") -> Budget | None:
        """The least that is left on the path to an asker; None without a limit."""
        self._accounts(purpose, analyst)
        return self._seen[purpose, analyst].least

    def fits(self, event: Event, purpose: str = "", analyst: str = "") -> int | None:
        """How many more charges like this one fit: "about 40 more counts like this"; None without a limit."""
        accounts = [accountant for _, accountant in self._accounts(purpose, analyst)]
        if all(accountant.limit is None for accountant in accounts):
            return None
        return min(_repeats(accountant, event) for accountant in accounts)

    def entries(self, after: int = 0, acts: tuple[str, ...] = ()) -> Iterator[Entry]:
        """The entries after a number, of some acts or of all, in their order."""
        return (read(line.text, line.sequence) for line in self.store.lines(after, acts))

    def head(self) -> Entry | None:
        """The last entry."""
        with self.store.reading() as book:
            return _head(book)

    def cached_totals(self, book: Book, keys: tuple[str, ...]) -> tuple[int, dict[str, str]]:
        """The cached totals of these nodes, and the number of the last entry in them."""
        return int(self._cached(book, ("upto",)).get("upto", 0)), self._cached(book, keys)

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def _append(self, book: Book, posting: Posting, head: Entry | None, time: datetime) -> Entry:
        if head is not None and head.dataset != self.dataset:
            raise AccessRefused(
                f"this ledger belongs to dataset '{head.dataset}', not to '{self.dataset}'",
                remedy="Give each dataset a ledger of its own",
            )
        entry = chained(posting, head, time, self.dataset, self.policy)
        book.append(line_of(entry, written(entry)))
        return entry

    def _time(self, head: Entry | None) -> datetime:
        """Now, but never before the entry before: a clock that was set back does not bring a period back."""
        now = self._clock().astimezone(UTC)
        return now if head is None else max(now, head.time)

    def _again(self, known: Entry, posting: Posting) -> Receipt:
        if known.question != posting.fingerprint:
            raise AccessRefused(
                f"request id '{posting.request}' was used for another question",
                remedy="Take a new request id for a new question",
                request=posting.request,
            )
        return replace(_receipt(known, None), repeated=True)

    def _totals(self, book: Book, nodes: tuple[tree.Node, ...], head: Entry | None) -> dict[str, str]:
        """The totals of these nodes up to the head, and of all others that the cache had not caught up with."""
        known = self._cached(book, ("upto", *(node.key for node in nodes)))
        upto = int(known.pop("upto", 0))
        if head is None or head.sequence <= upto:
            return known
        missed = [_entry(line) for line in book.after(upto)]
        touched = {node.key for entry in missed for node in tree.written_path(self.budgets, entry)}
        return tree.replayed(self.budgets, known | self._cached(book, tuple(touched)), missed)

    def _cached(self, book: Book, keys: tuple[str, ...]) -> dict[str, str]:
        found = book.totals(tuple(f"{self._cache} {key}" for key in keys))
        return {name.removeprefix(f"{self._cache} "): total for name, total in found.items()}

    def _put(self, book: Book, totals: Mapping[str, str], upto: int) -> None:
        named = {f"{self._cache} {key}": total for key, total in totals.items()}
        book.put_totals(named | {f"{self._cache} upto": str(upto)})

    def _accounts(self, purpose: str, analyst: str) -> list[tuple[tree.Node, Accountant]]:
        """The accountants on a path; remembered as long as no entry is added and no period ends."""
        before, number = self._seen.get((purpose, analyst)), self.store.last()
        nodes = self._path(purpose, analyst, max(self._clock().astimezone(UTC), self._latest))
        if before is not None and before.number == number and before.nodes == nodes:
            return before.accounts
        with self.store.reading() as book:
            head = _head(book)
            nodes = self._path(purpose, analyst, self._time(head))
            totals = self._totals(book, nodes, head)
        found = [(node, account(self._accounting, node.limit, totals.get(node.key))) for node in nodes]
        self._latest = max(self._latest, head.time) if head else self._latest
        least = _least({node.key: accountant for node, accountant in found})
        self._seen[purpose, analyst] = _Seen(head.sequence if head else 0, nodes, found, least)
        return found

    def _path(self, purpose: str, analyst: str, time: datetime) -> tuple[tree.Node, ...]:
        if self.budgets is not None and not purpose and not analyst:
            return (tree.Node("dataset", "the dataset", self.budgets.dataset),)
        return tree.path(self.budgets, purpose, analyst, time)


def _named(posting: Posting) -> Posting:
    """The posting with a request id and a release id of its own where it has none."""
    request = posting.request or secrets.token_hex(12)
    return replace(posting, request=request, release=posting.release or secrets.token_hex(12))


def _entry(line: Line) -> Entry:
    return read(line.text, line.sequence)


def _head(book: Book) -> Entry | None:
    text = book.head()
    return None if text is None else read(text, 0)


def _receipt(entry: Entry, remaining: Budget | None) -> Receipt:
    return Receipt(entry.sequence, entry.hash, entry.time, entry.release, entry.request, remaining)


def _least(accounts: Mapping[str, Accountant]) -> Budget | None:
    """What is left at every node: the smallest amount with the smallest delta."""
    left = [each for each in (account.remaining() for account in accounts.values()) if each is not None]
    if not left:
        return None
    delta = min(each.delta for each in left)
    rhos = [each.rho for each in left if isinstance(each, ZCDP)]
    if rhos:
        return ZCDP(min(rhos), delta)
    return budget(min(each.epsilon for each in left if not isinstance(each, ZCDP)), delta)


def _spent(accountant: Accountant) -> Budget | None:
    """What a node has spent: with its own delta, or, of privacy losses, at the delta of the limit."""
    if isinstance(accountant, PureAccountant | ZCDPAccountant):
        return accountant.spent()
    return accountant.spent(accountant.limit.delta if accountant.limit else 0)


def _repeats(accountant: Accountant, event: Event) -> int:
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
