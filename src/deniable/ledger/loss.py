"""A ledger that lost entries, or the answer store beside it: how that is found, what is known of it, how it goes on.

When the newest copy of a ledger is gone, nobody knows what the lost entries spent, and who withdrew in them. But some
of it is known outside: the user's record of all ledgers says how far this one was, what it had spent, who had
withdrawn and how much was stored beside it, a witness keeps heads, an answer store may have survived, and released
files have statements. That is written into the ledger as one entry (`separate`, with the detail `lost`). From then on
the ledger is closed: nothing is charged, released or repeated until the steward has entered the withdrawals again and
says what the lost entries may have spent (`settle`). What is said is charged; it cannot be less than what is proven.

What a ledger spent is compared as events. The record never notes less for a ledger than before, whichever copy of it is
opened: so what was proven or settled once binds every later copy.

Heads of the lost entries, which others keep, are named in the entry: so a witness finds them there and goes on.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from deniable.dp.accounting import Accountant, Event, NoOpEvent, from_dict, to_dict
from deniable.errors import AccessRefused, IntegrityError
from deniable.ledger.budget_tree import build_event, describe_spent, subtract_spent, take_larger
from deniable.ledger.entry import LOST, SETTLES, Act, Entry, Posting, refuse_broken
from deniable.ledger.watch import Lineage, read_heads
from deniable.policy.budget import read_rational

if TYPE_CHECKING:
    from deniable.ledger.answer_store import AnswerStore

STORED = "stored"
"""The detail of a charge or a release that says how many values the answer store had of each collection."""


def seal_counts(posting: Posting, stored: Mapping[str, int]) -> Posting:
    """The posting of a charge or a release with what the answer store has; other acts may come after its term."""
    if posting.act not in (Act.CHARGE, Act.RELEASE) or not stored:
        return posting
    return replace(posting, details={**posting.details, STORED: dict(stored)})


def find_counts(entries: Iterable[Entry], known: Mapping[str, int]) -> Mapping[str, int]:
    """What the answer store must have after these entries: as the last says, but for what was forgotten since.

    Refuses an entry that says that there was less than before, where none says that it was forgotten.
    """
    for entry in entries:
        if entry.act == Act.EXPIRE:
            gone = {*entry.details, "streams"}  # earlier versions emptied those too, and named the answers alone
            known = {name: count for name, count in known.items() if name not in gone}
        stored = entry.details.get(STORED, known)
        if any(stored.get(name, 0) < count for name, count in known.items()):
            raise refuse_broken(entry.sequence, "says that fewer answers were stored than before it: some were deleted")
        known = stored
    return known


HeadKey = tuple[int, str]
"""The number and the hash of an entry."""


class Chain(Protocol):
    """What is read here of a ledger."""

    def head(self) -> Entry | None:
        """The last entry."""

    def entries(self, after: int = 0, acts: tuple[str, ...] = ()) -> Iterator[Entry]:
        """The entries after a number, of some acts or of all."""

    def find_spent(self) -> tuple[str, Accountant | None]:
        """How totals are composed, and the account of the dataset."""

    def find_lost(self) -> int:
        """The number of the entry of a loss that is not settled."""

    def recount(self, store: AnswerStore) -> None:
        """Refuse a store that has fewer values than the ledger says that it had."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What is known to be lost after an entry.

    `entries` is how many more there were, at least, also in earlier losses that the copy does not tell of; `stored` how
    many more values of each collection the answer store had; `heads` those of lost entries that somebody outside keeps.
    `epsilon` and `delta` are what statements of lost releases prove, `event` what the user's record of ledgers proves.
    `known_by` says where it is known from.
    """

    after: int = 0
    since: str = ""
    entries: int = 0
    stored: Mapping[str, int] = field(default_factory=dict)
    heads: tuple[HeadKey, ...] = ()
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    known_by: tuple[str, ...] = ()
    event: Event = NoOpEvent()  # noqa: RUF009  frozen, without fields

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
            "event": to_dict(self.event),
        }

    def find_proven(self, accounting: str) -> Event:
        """What is proven to be spent: by the record or by statements, which may tell of the same entries."""
        return take_larger(accounting, self.event, build_event("pure", self.epsilon, self.delta))

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
            event=other.event if isinstance(self.event, NoOpEvent) else self.event,
        )


def read_loss(entry: Entry) -> Loss:
    """The loss that an entry tells of."""
    facts = dict(entry.details[LOST])
    facts |= {name: read_rational(facts[name]) for name in ("epsilon", "delta")}
    facts["event"] = from_dict(facts["event"]) if "event" in facts else NoOpEvent()
    return Loss(**facts | {"heads": tuple((n, h) for n, h in facts["heads"]), "known_by": tuple(facts["known_by"])})


def find_waiting(ledger: Chain) -> Loss | None:
    """A loss for which nothing was charged yet; a steward who settles it charges first, and may be held up then."""
    lost = ledger.find_lost()
    if not lost or any(entry.details.get(SETTLES) == lost for entry in ledger.entries(lost, ("charge",))):
        return None
    return next((read_loss(entry) for entry in ledger.entries(lost - 1, ("separate",))), None)


def refuse_second_measurement(ledger: Chain, number: int, anew: str) -> None:
    """Refuse to measure under a charge that is older than a loss: what was measured under it may be lost.

    What was released then has other noise: both together tell more than was charged for. `anew` says how to ask anew.
    """
    losses = (entry for entry in ledger.entries(number, ("separate",)) if LOST in entry.details)
    if (lost := next(losses, None)) is not None:
        raise AccessRefused(
            f"what was measured under the charge of entry {number} may be lost (entry {lost.sequence} tells of the "
            "loss), and would have other noise now",
            expected="One measurement for one charge",
            remedy=anew,
        )


NOTHING = (0, "")
"""The last entry that a store has seen of a ledger without charges."""


def refuse_lost_store(ledger: Chain) -> None:
    """Refuse a ledger that had a store, since it charged or sealed its entries, beside one that never saw it."""
    head = ledger.head()
    if (head is not None and head.seal) or next(ledger.entries(acts=("charge", "release")), None) is not None:
        raise IntegrityError(
            "the answer store beside the ledger is gone, or was emptied; with it the stored answers, the list of who "
            "withdrew, and the keys that sign and choose samples",
            expected="The store that was there when the ledger charged",
            remedy="Put it back; or move the ledger away, and restore a backup of both: deniable ledger restore. "
            "docs/topics/ledger.md says what to do if it is lost",
        )


def refuse_mismatch(ledger: Chain, store: AnswerStore, withdrawals: str) -> None:
    """Refuse a ledger that is older than the answers stored beside it, and a store that was changed or lost people.

    `withdrawals` is the collection of those.

    A ledger that was deleted, emptied or replaced by an older copy would give the budget anew; a store that was, would
    bring back who withdrew.
    """
    store.check()
    seen = store.last_seen()
    if seen is None:
        refuse_lost_store(ledger)
        store.note_beginning()
    elif seen != NOTHING:
        number, head = seen
        found = next(ledger.entries(number - 1), None) if number else None
        if found is None or found.hash != head:
            raise IntegrityError(
                "the ledger is not the one that charged for the answers stored beside it, or an older copy of it",
                remedy="Put the newest copy of the ledger back. docs/topics/ledger.md says what to do if it is lost",
            )
    ledger.recount(store)
    withdrawn = [entry.details.get("commitment") for entry in ledger.entries(acts=("withdraw",))]
    if withdrawn and not set(withdrawn) <= set(store.list_all(withdrawals)):
        raise IntegrityError(
            "people withdrew whom the answer store beside the ledger does not know",
            remedy="Put the newest copy of the answer store back: without it they would be counted again",
        )


def list_abandoned(entries: Iterable[Entry]) -> frozenset[HeadKey]:
    """The heads of lost entries that a ledger names, by its entries `separate`."""
    told = (read_loss(entry) for entry in entries if LOST in entry.details)
    return frozenset(head for loss in told for head in loss.heads)


RECORD = "this user's record of ledgers"


def list_noted(connection: sqlite3.Connection, table: str, columns: str, lineage: Lineage) -> list[tuple[Any, ...]]:
    """What is noted of all ledgers that held one budget."""
    sql = f"SELECT place, first, {columns} FROM {table}"  # noqa: S608  our own names
    return [tuple(more) for place, first, *more in connection.execute(sql).fetchall() if (place, first) in lineage]


def _find_lost_spending(connection: sqlite3.Connection, lineage: Lineage, ledger: Chain) -> Event:
    """What a ledger spent by what is noted of it, beyond what this copy of it tells."""
    accounting, account = ledger.find_spent()
    most: Event = NoOpEvent()
    for (form,) in list_noted(connection, "spent", "event", lineage):
        most = take_larger(accounting, most, from_dict(json.loads(form)))
    return subtract_spent(accounting, most, describe_spent(accounting, account))


def find_noted_loss(connection: sqlite3.Connection, lineage: Lineage, ledger: Chain, counts: Mapping[str, int]) -> Loss:
    """What the record knows of the ledgers that held one budget, and a copy with so many stored values has not."""
    head, found, places = ledger.head(), Loss(), {place for place, _ in lineage}
    here = head.sequence if head is not None else 0
    for number, hashed in read_heads(connection, places).values():
        kept = next(ledger.entries(number - 1), None)
        if kept is None or kept.hash != hashed:
            found = found.add(Loss(entries=max(1, number - here), heads=((number, hashed),), known_by=(RECORD,)))
    for place in places:
        counted = connection.execute("SELECT counts FROM counted WHERE place = ?", (place,)).fetchone()
        fewer = {name: many - counts.get(name, 0) for name, many in json.loads(counted[0] if counted else "{}").items()}
        found = found.add(Loss(stored={name: many for name, many in fewer.items() if many > 0}))
    found = replace(found, event=_find_lost_spending(connection, lineage, ledger))
    if found == Loss() and _tells_last_loss(connection, lineage, ledger):
        return found
    entries, stored = sum_losses(connection, lineage, ledger, here)
    if entries or stored:
        total = Counter(found.stored) + Counter(stored)
        found = replace(found, entries=found.entries + entries, stored=dict(total), known_by=(RECORD,))
    return found


def _tells_last_loss(connection: sqlite3.Connection, lineage: Lineage, ledger: Chain) -> bool:
    """Whether a ledger has the entry of the last loss that was noted: that one tells of those before."""
    noted = max(list_noted(connection, "losses", "rowid, hash", lineage), default=None)
    return noted is not None and noted[1] in {entry.hash for entry in ledger.entries(acts=("separate",))}


def sum_losses(
    connection: sqlite3.Connection, lineage: Lineage, ledger: Chain, here: int
) -> tuple[int, Mapping[str, int]]:
    """How many entries and stored values were lost at least, before a copy with so many entries that tells not of it.

    Those after the entry from which the lost ledger was restored may be in the copy.
    """
    told = {entry.hash for entry in ledger.entries(acts=("separate",))}
    listed = list_noted(
        connection, "losses LEFT JOIN lost_after USING (hash)", "hash, entries, stored, number", lineage
    )
    lost = [each for each in listed if each[0] not in told]
    shared = max((here - (number or 0) for _, _, _, number in lost), default=0)
    total = sum((Counter(json.loads(stored)) for _, _, stored, _ in lost), Counter[str]())
    return max(sum(entries for _, entries, _, _ in lost) - max(shared, 0), 0), total
