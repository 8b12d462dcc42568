"""Verifying a ledger: everything is recomputed from the stored texts, and nothing is taken on trust.

A chain shows any change, deletion, insertion or reordering before its head. That the end was not cut off is shown by a
receipt: its number must be there with its hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from deniable.ledger.entry import Entry, check_line, genesis, refuse_broken, refuse_cut_off
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
    seen, known = head is None, ledger.known_head
    with ledger.store.begin_read() as book:
        for line in book.after(0):
            entry = check_line(line, before, ledger.dataset)
            if head is not None and number == entry.sequence and entry.hash != head:
                raise refuse_broken(entry.sequence, "is not the one that the receipt was given for")
            seen = seen or (entry.hash == head and number in (None, entry.sequence))
            if known is not None and known.sequence == entry.sequence and known != entry:
                raise refuse_broken(entry.sequence, "was changed")
            before = entry
    if not seen or (known is not None and (before is None or before.sequence < known.sequence)):
        raise refuse_cut_off()
    return Verified(before.sequence if before else 0, before.hash if before else genesis(ledger.dataset), _time(before))


def _time(entry: Entry | None) -> datetime | None:
    return None if entry is None else entry.time.astimezone(UTC)
