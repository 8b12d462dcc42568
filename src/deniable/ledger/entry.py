"""Entries of the ledger, chained by hash, the store that keeps them, and how many are written by one commit.

The disk flushes a few hundred times a second at best. So threads that wait for the writer's turn are written together:
whoever gets the turn writes for all who wait, each decided after the one before, in one transaction. A refusal concerns
its own posting only; a failure of the disk undoes the transaction and concerns all of it. Nobody gets a result before
the commit."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from deniable.dp.accounting import Event, NoOpEvent, from_dict, to_dict
from deniable.dp.accounting.cost import count_equal
from deniable.errors import UNKNOWN, AccessRefused, DeniableError, IntegrityError, StorageError
from deniable.policy.budget import Budget

NOTHING: Mapping[str, object] = to_dict(NoOpEvent())


class Act(StrEnum):
    """What an entry records."""

    CHARGE = "charge"
    """A release under differential privacy: charged before it ran."""
    RELEASE = "release"
    """A release without a formal guarantee: no budget bounds it, and it is shown as what it is."""
    TOKEN = "token"  # noqa: S105  an act's name
    REVOKE = "revoke"
    REQUEST = "request"
    APPROVE = "approve"
    DECLINE = "decline"
    FULFILL = "fulfill"
    PAUSE = "pause"
    """The steward holds a token up, until it is resumed."""
    UNPAUSE = "unpause"
    ACKNOWLEDGE = "acknowledge"
    """An analyst acknowledged the terms of a purpose."""
    WITHDRAW = "withdraw"
    REINSTATE = "reinstate"
    """The steward took a person in again who had withdrawn."""
    EXPIRE = "expire"
    EPOCH = "epoch"
    """A new epoch of the data: from here on equal questions are asked anew."""
    PUBLISH = "publish"
    """A file of a release left: its digest, that of its statement, and the key that signed it."""
    FAIL = "fail"
    """Something failed after it was charged. That tells a little of the rows, so it is counted."""
    RESUME = "resume"
    """The steward looked at an asker's failures; they count from none again."""
    SEPARATE = "separate"
    """The steward lets this ledger hold a budget of its own for rows that another one protects too, or did."""
    SETTLE = "settle"
    """The steward said what lost entries spent, and entered their withdrawals again: the ledger is open again."""
    ACCEPT = "accept"
    """A steward accepted a policy: its digest. One that protects less is refused until it is accepted in turn."""
    REVEAL = "reveal"
    """Tokens of a vault were turned back into values: who did it, where, and how many."""


ASK_ANEW = "Ask under a new request id; it is charged anew"


@dataclass(frozen=True, slots=True)
class Posting:
    """What is to be written: an entry before it has a place in the chain.

    `request` is the asker's own name for the attempt: within one asker, the same request is written once. `question`
    is a digest of what was asked, so that a request id cannot be used for another question.
    """

    act: Act
    event: Event = field(default_factory=NoOpEvent)
    technique: str = ""
    tables: tuple[str, ...] = ()
    unit: str = ""
    analyst: str = ""
    purpose: str = ""
    release: str = ""
    request: str = ""
    question: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    anew: str = ASK_ANEW
    """How the same is asked anew where its answer is gone. It is told, and not written."""

    @property
    def fingerprint(self) -> str:
        """A digest of all that makes this posting what it is, but for the release's own id."""
        same = [self.act, to_dict(self.event), self.technique, sorted(self.tables), self.purpose, self.question]
        return digest(same)

    def has_event(self, written: Mapping[str, object]) -> bool:
        """Whether an entry has its event; earlier versions wrote equal parts one by one."""
        return written in (to_dict(count_equal(self.event)), to_dict(self.event))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a ledger. `time` is in UTC, by the clock of who wrote it; the order is that of `sequence`.

    `seal` is its hash under the key of the answer store beside the ledger: who cannot read that key appends nothing.
    """

    sequence: int
    time: datetime
    dataset: str
    act: str
    analyst: str
    purpose: str
    tables: tuple[str, ...]
    technique: str
    event: Mapping[str, Any]
    unit: str
    release: str
    request: str
    question: str
    policy: str
    details: Mapping[str, Any]
    previous: str
    hash: str = ""
    seal: str = ""

    @property
    def priced(self) -> Event:
        """The event as accountants price it."""
        return from_dict(self.event)

    @property
    def private(self) -> bool:
        """Whether the release, if it is one, has a formal guarantee."""
        return self.act != Act.RELEASE and self.event.get("kind") != "non-private"

    def as_dict(self) -> dict[str, Any]:
        """The entry as plain JSON values."""
        shown = {name: getattr(self, name) for name in self.__slots__ if name != "seal" or self.seal}
        return shown | {"time": self.time.isoformat(timespec="microseconds"), "tables": list(self.tables)}


def refuse_other_question(known: Entry, posting: Posting) -> None:
    """Refuse a posting under the request id of an entry that is about something else."""
    if known.question != posting.fingerprint:
        raise AccessRefused(
            f"request id '{posting.request}' was used for another question, or before the data or the policy changed",
            remedy="Take a new request id",
            request=posting.request,
        )


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a charge leaves with the one who asked: its place in the ledger, and the head of the chain there.

    `repeated` tells that the request was charged before, and not again; `shared`, that it was charged under another
    request, whose answer is the same. `remaining` is the least that is left on the path from the dataset to the asker
    (None without a limit).
    """

    number: int
    head: str
    time: datetime
    release: str
    request: str
    remaining: Budget | None
    repeated: bool = False
    shared: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The receipt as plain values."""
        time = self.time.isoformat(timespec="microseconds")
        told = {"number": self.number, "head": self.head, "time": time}
        return told | {"release": self.release, "request": self.request}


def genesis(dataset: str) -> str:
    """What the first entry has for the hash before it: it ties a chain to its dataset."""
    return digest({"ledger": dataset})


def chain_entry(
    posting: Posting, before: Entry | None, time: datetime, dataset: str, policy: str, key: bytes | None = None
) -> Entry:
    """The entry of a posting after another one, sealed with a key if there is one."""
    if before is not None and before.seal and key is None:
        raise IntegrityError(
            "the entries of this ledger are sealed, and the key is not at hand",
            expected="The answer store beside the ledger, which holds the key",
            remedy="Put the newest copy of it back, or use a role that may read it",
        )
    entry = Entry(
        sequence=before.sequence + 1 if before else 1,
        time=time,
        dataset=dataset,
        act=str(posting.act),
        analyst=posting.analyst,
        purpose=posting.purpose,
        tables=tuple(posting.tables),
        technique=posting.technique,
        event=to_dict(count_equal(posting.event)),
        unit=posting.unit,
        release=posting.release,
        request=posting.request,
        question=posting.fingerprint,
        policy=policy,
        details=dict(posting.details),
        previous=link_of(before, dataset),
    )
    return seal_entry(entry, key)


def link_of(before: Entry | None, dataset: str) -> str:
    """What an entry has for the hash before it: also the seal there, so that no seal can be taken off."""
    if before is None:
        return genesis(dataset)
    return digest([before.hash, before.seal]) if before.seal else before.hash


def seal_entry(entry: Entry, key: bytes | None = None) -> Entry:
    """The entry with the hash of its content, and the seal of that under a key."""
    hashed = hash_of(entry)
    return replace(entry, hash=hashed, seal="" if key is None else sign_hash(hashed, key))


def hash_of(entry: Entry) -> str:
    """The hash that an entry's content gives."""
    return digest({name: value for name, value in entry.as_dict().items() if name not in ("hash", "seal")})


def sign_hash(hashed: str, key: bytes) -> str:
    """The seal of an entry with that hash."""
    return hashlib.blake2b(hashed.encode(), key=key, digest_size=16, person=b"ledger entry").hexdigest()


def encode_entry(entry: Entry) -> str:
    """The canonical text of an entry, as it is stored."""
    return _encode_canonically(entry.as_dict())


def decode_entry(text: str, sequence: int) -> Entry:
    """The entry in a stored text; refuses one that is none."""
    try:
        form = json.loads(text)
        form["time"] = datetime.fromisoformat(form["time"]).astimezone(UTC)
        form["tables"] = tuple(form["tables"])
        return Entry(**form)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, DeniableError):
        raise refuse_broken(sequence, "cannot be read as an entry") from None


def refuse_broken(sequence: int, what: str) -> IntegrityError:
    """The refusal of a ledger whose entry of that number is not what was written."""
    return IntegrityError(
        f"entry {sequence} of the ledger {what}",
        remedy="Compare with a backup or with the receipts that analysts hold; charge nothing until it is explained",
        sequence=sequence,
    )


def check_line(line: Line, before: Entry | None, dataset: str, key: bytes | None = None) -> Entry:
    """The entry of a stored line; refuses one that is not what was written after the entry before.

    Without the key seals are not compared; but after an entry with one, all have one.
    """
    number = before.sequence + 1 if before else 1
    if line.sequence != number:
        raise refuse_broken(number, "is missing")
    entry = decode_entry(line.text, number)
    if _hash_text(line.text, entry.hash, entry.seal) != entry.hash or line_of(entry, line.text) != line:
        raise refuse_broken(number, "was changed")
    if entry.sequence != number or entry.dataset != dataset:
        raise refuse_broken(number, "belongs elsewhere")
    if entry.previous != link_of(before, dataset):
        raise refuse_broken(number, "does not follow the one before")
    sealed = bool(before is not None and before.seal)
    if sealed > bool(entry.seal) or (key is not None and entry.seal not in ("", sign_hash(entry.hash, key))):
        raise refuse_broken(number, "was not written by deniable: it lacks the seal that only its key gives")
    return entry


def _hash_text(text: str, *written: str) -> str:
    """The hash of a stored text without its own, and without its seal: of what was hashed, if the text is canonical.

    The last `hash` and the last `seal` are those of the entry: what follows in the order of names are texts, where
    quotes are escaped.
    """
    for name, value in zip(("hash", "seal"), written, strict=True):
        before, _, after = text.rpartition(f',"{name}":"{value}"')
        text = before + after
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_cut_off() -> IntegrityError:
    """The refusal of a ledger whose last entries are missing."""
    return IntegrityError(
        "entries are missing at the end of the ledger: it was cut off, or replaced by an older copy",
        remedy="Put the newest copy back. If it is lost: deniable ledger restore --lost, or ledger separate --lost",
    )


ANSWER = "answer"
"""The detail of a charge that names the one answer which is stored for it, whoever asks."""
CLAIM = "claim"
"""The detail of a charge that holds the epsilon and delta which its release claims."""
SHOWN_DELTA = Fraction(1, 10**9)
"""The delta at which Gaussian noise is shown as an epsilon, where none was stated."""
LOST = "lost"
"""The detail of an entry `separate` that says what was lost."""
SETTLES = "settles"
"""The detail of an entry that says which loss it settles, by the number of that entry."""

LOST_BETWEEN = "lost_between"
"""The detail of a charge for lost entries that says between which times they were written: two for each span."""


def list_lost_days(details: Mapping[str, Any], time: datetime) -> tuple[datetime, ...]:
    """A time on each day on which lost entries may have been written; earlier versions took the time of the charge."""
    told = details.get(LOST_BETWEEN)
    times = [time, time] if told is None else [datetime.fromisoformat(each) for each in told]
    spans = zip(times[::2], times[1::2], strict=True)
    return tuple(day for first, last in spans for day in _list_days(first, last))


def _list_days(first: datetime, last: datetime) -> Iterator[datetime]:
    yield from (first + timedelta(days=day) for day in range((last - first).days + 1))
    yield last


def fold_lost(entries: Iterable[Entry], known: int = 0) -> int:
    """The number of the entry of a loss that is not settled, after further entries; 0 where there is none."""
    for entry in entries:
        if entry.act == Act.SEPARATE and LOST in entry.details:
            known = entry.sequence
        elif entry.act == Act.SETTLE and entry.details.get(SETTLES) == known:
            known = 0
    return known


def find_renewed(entries: Iterable[Entry], known: int = 0) -> int:
    """The number of the last entry after which no stored answer of before is there: forgotten, or perhaps lost."""
    gone = (each.sequence for each in entries if each.act == Act.EXPIRE or LOST in each.details)
    return max(gone, default=known)


def refuse_unsettled(lost: int, posting: Posting | None = None) -> None:
    """Refuse what is charged or released, or would be served, while a loss is not settled."""
    if not lost or (posting is not None and posting.details.get(SETTLES) == lost):
        return
    if posting is None or posting.act in (Act.CHARGE, Act.RELEASE, Act.PUBLISH):
        raise AccessRefused(
            f"entries of this ledger are lost (entry {lost} says which), and nobody has said yet what they spent",
            expected="Nothing is served before who withdrew in them is entered again",
            remedy="Ask the steward, who enters the withdrawals and runs: deniable ledger settle",
        )


SOURCES = "sources"
"""The detail of a charge that names the source of each table, whatever policies call the table."""


def list_units(charged: Posting | Entry) -> frozenset[tuple[str, str]]:
    """The table of a charge, and its source, with whom it protects; several together may each have a name for that."""
    alone = charged.act == Act.CHARGE and charged.unit and len(charged.tables) == 1
    if not alone:
        return frozenset()
    sources = charged.details.get(SOURCES) or {}
    return frozenset((name, charged.unit) for name in (charged.tables[0], *sources.values()))


def refuse_other_unit(posting: Posting, known: frozenset[tuple[str, str]]) -> None:
    """Refuse a charge that protects others than charges before it: what was spent on rows does not add up to people."""
    for held, unit in list_units(posting):
        other = next((each for name, each in sorted(known) if name == held and each != unit), None)
        if other is not None:
            raise AccessRefused(
                f"'{posting.tables[0]}' was protected as {other} before, and would now be as {unit}",
                expected="One unit of a table, and of the file that it reads, for all that is charged in one ledger",
                remedy="Use the unit of before; or lower the budgets, and run: deniable ledger separate --ledger NEW",
            )


def digest(value: object) -> str:
    """The SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(_encode_canonically(value).encode()).hexdigest()


def _encode_canonically(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


class Line(NamedTuple):
    """An entry as it is stored: its text, and the columns by which it is found."""

    sequence: int
    act: str
    analyst: str
    request: str
    text: str


class Book(Protocol):
    """The ledger inside one transaction."""

    def head(self) -> str | None:
        """The text of the last entry."""

    def of_request(self, analyst: str, request: str) -> str | None:
        """The text of the entry that a request of this asker left behind."""

    def after(self, sequence: float) -> Iterator[Line]:
        """The entries after that number, in their order."""

    def append(self, line: Line) -> None:
        """Write an entry at the end."""


class Store(Protocol):
    """Where a ledger is kept."""

    def begin_write(self) -> AbstractContextManager[Book]:
        """The one writer's transaction: kept when the block ends well, undone when it raises."""

    def begin_read(self) -> AbstractContextManager[Book]:
        """A consistent view for reading."""

    def last(self) -> int:
        """The number of the last entry; 0 where there is none."""

    def lines(self, after: int = 0, acts: tuple[str, ...] = ()) -> Iterator[Line]:
        """The entries after that number, of these acts or of all."""

    def find_key(self) -> bytes | None:
        """The key of the answer store beside it, where that can be read."""

    def identify(self) -> str:
        """What it is known by, however its place is written; empty where nothing keeps it."""

    def count_servers(self) -> int:
        """How many servers share it, this one among them, as far as it can know."""

    def close(self) -> None:
        """Let go of it."""


def line_of(entry: Entry, text: str) -> Line:
    """How an entry is stored."""
    return Line(entry.sequence, entry.act, entry.analyst, entry.request, text)


class MemoryStore:
    """A store that lives as long as its process: for notebooks, demos and tests, where nothing needs to survive."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._requests: dict[tuple[str, str], int] = {}
        self._lock = threading.RLock()

    @contextmanager
    def begin_write(self) -> Iterator[MemoryStore]:
        """One writer at a time; a block that raises leaves everything as it was."""
        with self._lock:
            length = len(self._lines)
            try:
                yield self
            except BaseException:
                for line in self._lines[length:]:
                    self._requests.pop((line.analyst, line.request), None)
                del self._lines[length:]
                raise

    @contextmanager
    def begin_read(self) -> Iterator[MemoryStore]:
        """A consistent view: nobody writes meanwhile."""
        with self._lock:
            yield self

    def head(self) -> str | None:
        """The text of the last entry."""
        return self._lines[-1].text if self._lines else None

    def of_request(self, analyst: str, request: str) -> str | None:
        """The text of the entry that a request left behind."""
        place = self._requests.get((analyst, request))
        return None if place is None else self._lines[place].text

    def after(self, sequence: float) -> Iterator[Line]:
        """The entries after that number."""
        return iter(self._lines[int(max(sequence, 0)) :])

    def append(self, line: Line) -> None:
        """Write an entry at the end."""
        if line.request:
            self._requests[line.analyst, line.request] = len(self._lines)
        self._lines.append(line)

    def last(self) -> int:
        """The number of the last entry."""
        return len(self._lines)

    def lines(self, after: int = 0, acts: tuple[str, ...] = ()) -> Iterator[Line]:
        """The entries after that number, of these acts or of all."""
        with self._lock:
            found = self._lines[after:]
        return (line for line in found if not acts or line.act in acts)

    def find_key(self) -> bytes | None:
        """None: nothing is kept beside it."""
        return None

    def identify(self) -> str:
        """Nothing: it is gone with its process."""
        return ""

    def count_servers(self) -> int:
        """One: nobody else sees it."""
        return 1

    def close(self) -> None:
        """Nothing to let go of."""


Opened = TypeVar("Opened")
Asked = TypeVar("Asked")
Given = TypeVar("Given")

MOST = 64
"""How many are written by one commit at most: nobody waits long for others."""


class _PendingWrite(Generic[Asked, Given]):
    """One who waits: what is asked, and what came of it."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.given: Given | None = None
        self.refusal: BaseException | None = None
        self.done = False


class GroupCommit(Generic[Opened, Asked, Given]):
    """Lets threads through together; `write` decides and writes one thing, and refuses before it writes.

    `writing` opens the one writer's transaction: kept when its block ends well, undone when it raises.
    """

    def __init__(
        self, writing: Callable[[], AbstractContextManager[Opened]], write: Callable[[Opened, Asked], Given]
    ) -> None:
        self._writing = writing
        self._write = write
        self._waiting: list[_PendingWrite[Asked, Given]] = []
        self._queue = threading.Lock()
        self._turn = threading.Lock()

    def submit(self, asked: Asked) -> Given:
        """What came of a posting, once it is on the disk; or its refusal."""
        ticket: _PendingWrite[Asked, Given] = _PendingWrite(asked)
        with self._queue:
            self._waiting.append(ticket)
        with self._turn:
            while not ticket.done:
                self._write_batch()
        if ticket.refusal is not None:
            raise ticket.refusal
        assert ticket.given is not None
        return ticket.given

    def _write_batch(self) -> None:
        with self._queue:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        try:
            with self._writing() as opened:
                for ticket in batch:
                    self._decide(opened, ticket)
        except DeniableError as failure:
            _undo(batch, failure)
        except BaseException:
            _undo(batch, StorageError("the ledger was interrupted while it wrote", charge=UNKNOWN))
            raise
        finally:
            for ticket in batch:
                ticket.done = True

    def _decide(self, opened: Opened, ticket: _PendingWrite[Asked, Given]) -> None:
        try:
            ticket.given = self._write(opened, ticket.asked)
        except DeniableError as refusal:
            ticket.refusal = refusal


def _undo(batch: list[_PendingWrite[Asked, Given]], failure: BaseException) -> None:
    for ticket in batch:
        # What was refused by itself stays refused for its own reason.
        ticket.given, ticket.refusal = None, ticket.refusal or failure
