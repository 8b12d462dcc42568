"""Verifying a ledger: everything is recomputed from the stored texts, and nothing is taken on trust.

A chain shows any change, deletion, insertion or reordering before its head. That the end was not cut off is shown by a
receipt: its number must be there with its hash. The running totals are added up again and compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from deniable.errors import IntegrityError
from deniable.ledger import budget_tree
from deniable.ledger.entry import Entry, Line, decode_entry, encode_entry, genesis, hash_of, line_of, refuse_broken
from deniable.ledger.ledger import Ledger


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
    with ledger.store.begin_read() as book:
        for line in book.after(0):
            entry = _check_line(line, before, ledger.dataset)
            if head is not None and number == entry.sequence and entry.hash != head:
                raise refuse_broken(entry.sequence, "is not the one that the receipt was given for")
            seen = seen or (entry.hash == head and number in (None, entry.sequence))
            totals = budget_tree.replay_entries(ledger.budgets, totals, (entry,))
            before = entry
        upto, cached = ledger.read_cached_totals(book, tuple(totals))
    if not seen or upto > (before.sequence if before else 0):
        raise _refuse_cut_off()
    if upto == (before.sequence if before else 0):
        _compare_totals(totals, cached)
    return Verified(before.sequence if before else 0, before.hash if before else genesis(ledger.dataset), _time(before))


def _refuse_cut_off() -> IntegrityError:
    return IntegrityError(
        "entries are missing at the end of the ledger: it was cut off, or the receipt is of another ledger",
        remedy="Compare with a backup; charge nothing until it is explained",
    )


def _check_line(line: Line, before: Entry | None, dataset: str) -> Entry:
    number = before.sequence + 1 if before else 1
    if line.sequence != number:
        raise refuse_broken(number, "is missing")
    entry = decode_entry(line.text, number)
    if encode_entry(entry) != line.text or hash_of(entry) != entry.hash or line_of(entry, line.text) != line:
        raise refuse_broken(number, "was changed")
    if entry.sequence != number or entry.dataset != dataset:
        raise refuse_broken(number, "belongs elsewhere")
    if entry.previous != (before.hash if before else genesis(dataset)):
        raise refuse_broken(number, "does not follow the one before")
    if before is not None and entry.time < before.time:
        raise refuse_broken(number, "is earlier than the one before")
    return entry


def _compare_totals(totals: dict[str, str], cached: dict[str, str]) -> None:
    """The cache must be what the entries add up to."""
    wrong = sorted(key for key, total in totals.items() if cached.get(key) != total)
    if wrong:
        raise IntegrityError(
            f"the running total of '{wrong[0]}' is not the sum of the entries",
            remedy="Delete the totals of the store: they are added up again from the entries",
        )


def _time(entry: Entry | None) -> datetime | None:
    return None if entry is None else entry.time.astimezone(UTC)
