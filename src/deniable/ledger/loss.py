"""A ledger that lost entries for good: what is known of the loss, and how it goes on.

When the newest copy of a ledger is gone, nobody knows what the lost entries spent, and who withdrew in them. But some
of it is known outside: the user's record of all ledgers says how far this one was and how much was stored beside it, a
witness keeps heads, an answer store may have survived, and released files have statements. That is written into the
ledger as one entry (`separate`, with the detail `lost`). From then on the ledger is closed: nothing is charged,
released or repeated until the steward has entered the withdrawals again and says what the lost entries may have spent
(`settle`). What is said is charged; it cannot be less than what is proven.

Heads of the lost entries, which others keep, are named in the entry: so a witness finds them there and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from deniable.ledger.entry import LOST, Entry

HeadKey = tuple[int, str]
"""The number and the hash of an entry."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What is known to be lost after an entry.

    `entries` is how many more there were, at least, also in earlier losses that the copy does not tell of; `stored` how
    many more values of each collection the answer store had; `heads` those of lost entries that somebody outside keeps.
    `epsilon` and `delta` are what statements of lost releases prove. `known_by` says where it is known from.
    """

    after: int = 0
    since: str = ""
    entries: int = 0
    stored: Mapping[str, int] = field(default_factory=dict)
    heads: tuple[HeadKey, ...] = ()
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    known_by: tuple[str, ...] = ()

    # a dictionary: an entry's details in the ledger
    def facts(self) -> dict[str, Any]:
        """What is written into the ledger."""
        return {
            "after": self.after,
            "since": self.since,
            "entries": self.entries,
            "stored": dict(self.stored),
            "heads": [list(each) for each in self.heads],
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "known_by": list(self.known_by),
        }

    def add(self, other: Loss) -> Loss:
        """This one with what another source knows: of two counts of the same entries the larger one."""
        stored = {
            name: max(self.stored.get(name, 0), other.stored.get(name, 0)) for name in {*self.stored, *other.stored}
        }
        return replace(
            self,
            entries=max(self.entries, other.entries),
            stored=stored,
            heads=tuple(dict.fromkeys((*self.heads, *other.heads))),
            epsilon=self.epsilon + other.epsilon,
            delta=self.delta + other.delta,
            known_by=tuple(dict.fromkeys((*self.known_by, *other.known_by))),
        )


def read_loss(entry: Entry) -> Loss:
    """The loss that an entry tells of."""
    facts = dict(entry.details[LOST])
    facts |= {name: Fraction(facts[name]) for name in ("epsilon", "delta")}
    return Loss(**facts | {"heads": tuple((n, h) for n, h in facts["heads"]), "known_by": tuple(facts["known_by"])})


def list_abandoned(entries: Iterable[Entry]) -> frozenset[HeadKey]:
    """The heads of lost entries that a ledger names, by its entries `separate`."""
    told = (read_loss(entry) for entry in entries if LOST in entry.details)
    return frozenset(head for loss in told for head in loss.heads)
