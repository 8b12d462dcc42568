"""Verifying a ledger: everything is recomputed from the stored texts, and nothing is taken on trust.

A chain shows any change, deletion, insertion or reordering before its head. That the end was not cut off is shown by a
receipt: its number must be there with its hash. The running totals are added up again and compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from deniable.errors import IntegrityError
from deniable.ledger import tree
from deniable.ledger.entry import Entry, broken, genesis, hash_of, read, written
from deniable.ledger.ledger import Ledger
from deniable.ledger.store import Line, line_of


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
    totals: dict[str, str] = {}
    seen = head is None
    with ledger.store.reading() as book:
        for line in book.after(0):
            entry = _checked(line, before, ledger.dataset)
            if head is not None and number == entry.sequence and entry.hash != head:
                raise broken(entry.sequence, "is not the one that the receipt was given for")
            seen = seen or (entry.hash == head and number in (None, entry.sequence))
            totals = tree.replayed(ledger.budgets, totals, (entry,))
            before = entry
        upto, cached = ledger.cached_totals(book, tuple(totals))
    if not seen or upto > (before.sequence if before else 0):
        raise _cut_off()
    if upto == (before.sequence if before else 0):
        _compare(totals, cached)
    return Verified(before.sequence if before else 0, before.hash if before else genesis(ledger.dataset), _time(before))


def _cut_off() -> IntegrityError:
    return IntegrityError(
        "entries are missing at the end of the ledger: it was cut off, or the receipt is of another ledger",
        remedy="Compare with a backup; charge nothing until it is explained",
    )


def _checked(line: Line, before: Entry | None, dataset: str) -> Entry:
    number = before.sequence + 1 if before else 1
    if line.sequence != number:
        raise broken(number, "is missing")
    entry = read(line.text, number)
    if written(entry) != line.text or hash_of(entry) != entry.hash or line_of(entry, line.text) != line:
        raise broken(number, "was changed")
    if entry.sequence != number or entry.dataset != dataset:
        raise broken(number, "belongs elsewhere")
    if entry.previous != (before.hash if before else genesis(dataset)):
        raise broken(number, "does not follow the one before")
    if before is not None and entry.time < before.time:
        raise broken(number, "is earlier than the one before")
    return entry


def _compare(totals: dict[str, str], cached: dict[str, str]) -> None:
    """The cache must be what the entries add up to."""
    wrong = sorted(key for key, total in totals.items() if cached.get(key) != total)
    if wrong:
        raise IntegrityError(
            f"the running total of '{wrong[0]}' is not the sum of the entries",
            remedy="Delete the totals of the store: they are added up again from the entries",
        )


def _time(entry: Entry | None) -> datetime | None:
    return None if entry is None else entry.time.astimezone(UTC)
