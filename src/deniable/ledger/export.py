"""The ledger taken elsewhere: exported to other programs, with prices as epsilon and delta; and its heads.

CSV is for people and spreadsheets, JSON lines for programs, ECS for systems that watch many logs, Google's DP events
for accountants.

For witnesses elsewhere there are signed heads: notes in the form of transparency logs (C2SP signed-note and
tlog-checkpoint), with the number and hash of the last entry. Whoever keeps one can tell a ledger that lost entries."""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import json
import logging
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deniable.dp.accounting import Event, cheap_epsilon, pure_cost, to_google, zcdp_cost
from deniable.errors import (
    DataError,
    DeniableError,
    IntegrityError,
    MissingExtra,
    ParameterError,
    StorageError,
    nearest,
)
from deniable.ledger.entry import (
    CLAIM,
    SHOWN_DELTA,
    Act,
    Entry,
    decode_entry,
    genesis,
    refuse_broken,
    refuse_cut_off,
)
from deniable.ledger.ledger import Ledger
from deniable.ledger.loss import list_abandoned
from deniable.ledger.witness import Witness
from deniable.policy.budget import read_rational
from deniable.storage import escape_formula, storage_errors

COLUMNS = (
    "sequence", "time", "act", "analyst", "purpose", "tables", "technique", "epsilon", "delta", "rho", "unit",
    "release", "request", "policy", "event", "details", "hash",
)  # fmt: skip


def export(entries: Iterable[Entry], form: str) -> Iterator[str]:
    """The entries as pieces of text in a form: csv, jsonl or google."""
    if form not in FORMATS:
        expected = f"One of {', '.join(FORMATS)}"
        raise ParameterError(f"a ledger has no form '{form}'", expected=expected, remedy=nearest(form, FORMATS))
    return FORMATS[form](entries)


def _write_csv(entries: Iterable[Entry]) -> Iterator[str]:
    yield _write_line(COLUMNS)
    for entry in entries:
        shown = _flatten_entry(entry)
        yield _write_line(tuple(shown[name] for name in COLUMNS))


def _flatten_entry(entry: Entry) -> dict[str, Any]:
    price = price_of(entry)
    plain = entry.as_dict() | {"tables": " ".join(entry.tables)}
    plain |= {name: json.dumps(plain[name], sort_keys=True) for name in ("event", "details")}
    return plain | {name: _format_number(getattr(price, name)) for name in ("epsilon", "delta", "rho")}


def _format_number(amount: Fraction | None) -> str:
    return "" if amount is None else f"{float(amount):.12g}"


def _write_line(cells: Iterable[object]) -> str:
    # A cell that a spreadsheet would take for a formula is made plain text.
    safe = [escape_formula(str(cell)) for cell in cells]
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(safe)
    return line.getvalue()


def _write_jsonl(entries: Iterable[Entry]) -> Iterator[str]:
    return (json.dumps(entry.as_dict(), sort_keys=True) + "\n" for entry in entries)


CATEGORIES = {
    Act.CHARGE: "database", Act.RELEASE: "database", Act.PUBLISH: "file", Act.TOKEN: "iam", Act.REVOKE: "iam",
    Act.PAUSE: "iam", Act.UNPAUSE: "iam",
}  # fmt: skip
"""What kind of event an act is, in the words of the Elastic Common Schema; others are of configuration."""


def _write_ecs(entries: Iterable[Entry]) -> Iterator[str]:
    return (json.dumps(_describe_in_ecs(entry), sort_keys=True) + "\n" for entry in entries)


def _describe_in_ecs(entry: Entry) -> dict[str, Any]:
    """An entry in the names of the Elastic Common Schema; what that has no name for stands under `deniable`."""
    price = price_of(entry)
    details = {name: value for name, value in entry.details.items() if name not in ("hash", "scram")}
    own: dict[str, Any] = {
        "act": entry.act,
        "purpose": entry.purpose,
        "technique": entry.technique,
        "tables": list(entry.tables),
    }
    own |= {"unit": entry.unit, "release": entry.release, "request": entry.request, "details": details}
    amounts = {name: getattr(price, name) for name in ("epsilon", "delta", "rho")}
    own |= {name: float(amount) for name, amount in amounts.items() if amount is not None}
    return {
        "@timestamp": entry.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "ecs": {"version": "8.11.0"},
        "event": {
            "action": entry.act, "kind": "event", "category": [CATEGORIES.get(Act(entry.act), "configuration")],
            "type": ["error"] if entry.act == Act.FAIL else ["info"], "sequence": entry.sequence,
            "outcome": "failure" if entry.act == Act.FAIL else "success", "dataset": f"deniable.{entry.dataset}",
            "module": "deniable", "provider": "deniable", "id": entry.hash,
        },
        "user": {"name": entry.analyst},
        "deniable": own,
    }  # fmt: skip


def _write_google(entries: Iterable[Entry]) -> Iterator[str]:
    """One ComposedDpEvent of all releases; one without a guarantee is a NonPrivateDpEvent, which makes it infinite."""
    events = [to_google(entry.priced) for entry in entries if entry.act in (Act.CHARGE, Act.RELEASE)]
    whole = {"module_name": "dp_accounting.dp_event", "class_name": "ComposedDpEvent", "events": events}
    yield json.dumps(whole, indent=1) + "\n"


FORMATS: dict[str, Callable[[Iterable[Entry]], Iterator[str]]] = {
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "ecs": _write_ecs,
    "google": _write_google,
}


LINE_FORMS = ("jsonl", "ecs")
"""Forms with one line for each entry, which can be written as entries come."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a release cost: epsilon and delta, with rho where noise is Gaussian; all None without a guarantee."""

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    rho: Fraction | None = None


def price_of(entry: Entry) -> Price:
    """The price of an entry; nothing for an act, and no epsilon for a release without a formal guarantee.

    Epsilon and delta are those that its release claims; where the entry holds no claim, they follow from its event.
    """
    if entry.act != Act.CHARGE:
        return Price()
    price, claim = price_of_event(entry.priced), entry.details.get(CLAIM)
    return replace(price, **{name: read_rational(claim[name]) for name in ("epsilon", "delta")}) if claim else price


def list_charges(ledger: Ledger, analyst: str, requests: Iterable[str]) -> list[str]:
    """What was charged under these request ids of an asker, in words."""
    with ledger.store.begin_read() as book:
        texts = [book.of_request(analyst, each) for each in requests if each]
    entries = [decode_entry(text, 0) for text in texts if text is not None]
    return [_say_charge(each) for each in entries if each.act == Act.CHARGE]


def _say_charge(entry: Entry) -> str:
    """A charge in words: the number of its entry, its price, and when it was made."""
    price = price_of(entry)
    amounts = {name: getattr(price, name) for name in ("epsilon", "delta", "rho")}
    told = [f"{name} {float(amount):.6g}" for name, amount in amounts.items() if amount]
    return ", ".join([f"entry {entry.sequence}", *told, f"{entry.time:%Y-%m-%d %H:%M:%S} UTC"])


def price_of_event(event: Event) -> Price:
    """Epsilon and delta by basic composition where that is possible, else through zCDP."""
    pure = pure_cost(event)
    if pure is not None:
        return Price(pure.amount, pure.delta) if pure.private else Price()
    concentrated = zcdp_cost(event)
    if concentrated is None or not concentrated.private:
        return Price()
    delta = concentrated.delta + SHOWN_DELTA
    return Price(cheap_epsilon(event, delta), delta, concentrated.amount)


DASH = "\u2014"
"""What a line with a signature begins with."""
ED25519 = b"\x01"
"""The kind of signature in a note."""
HOUR = 3600.0
REPLY_SECONDS = 5.0
"""How long a witness may take to reply."""
CLOSING_SECONDS = 1.0
"""How long the end of a command waits for a witness that is being told."""
LATE_SECONDS = 600.0
"""How long a witness that did not reply is left alone, by every process of this user."""
WEB = ("https://", "http://")


@dataclass(frozen=True, slots=True)
class Head:
    """How far a ledger is: the number and hash of its last entry, when that was written, and whose key signed this."""

    dataset: str
    number: int
    hash: str
    time: datetime | None = None
    key: str = ""

    @property
    def origin(self) -> str:
        """The name of the log in a note, and of the key that signs it."""
        return f"deniable/{self.dataset}"

    @property
    def body(self) -> str:
        """The text that is signed: the log, how many entries, the hash of the last one, and when it was written."""
        lines = [self.origin, str(self.number), base64.b64encode(bytes.fromhex(self.hash)).decode()]
        lines += [f"time {self.time.astimezone(UTC).isoformat(timespec='microseconds')}"] if self.time else []
        return "".join(f"{line}\n" for line in lines)


def read_head(ledger: Ledger) -> Head:
    """How far a ledger is; refuses one whose chain is broken."""
    last = ledger.head()
    if last is None:
        return Head(ledger.dataset, 0, genesis(ledger.dataset))
    return Head(ledger.dataset, last.sequence, last.hash, last.time)


def write_note(head: Head, key: bytes | None = None) -> str:
    """A head as a note; signed with a private key, if there is one."""
    if key is None:
        return head.body + "\n"
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.from_private_bytes(key)
    signed = _name_key(head.origin, private.public_key().public_bytes_raw()) + private.sign(head.body.encode())
    return f"{head.body}\n{DASH} {head.origin} {base64.b64encode(signed).decode()}\n"


def find_public_key(key: bytes) -> str:
    """The public key of a private one, in hexadecimal digits."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw().hex()


def _name_key(origin: str, public: bytes) -> bytes:
    """The four bytes by which a note names its key."""
    return hashlib.sha256(origin.encode() + b"\n" + ED25519 + public).digest()[:4]


def read_notes(text: str, key: str = "") -> list[Head]:
    """The heads in a text of notes, one after the other; with a public key each must be signed with it."""
    blocks = [block.strip("\n") for block in text.replace("\r\n", "\n").split("\n\n") if block.strip()]
    heads: list[Head] = []
    for place, block in enumerate(blocks):
        if not block.startswith(DASH):
            follows = blocks[place + 1] if place + 1 < len(blocks) else ""
            heads.append(_read_note(block, follows if follows.startswith(DASH) else "", key))
    if not heads:
        raise DataError(
            "there is no head of a ledger in the text", expected="A note, as deniable ledger head prints it"
        )
    return heads


def _read_note(body: str, signatures: str, key: str) -> Head:
    try:
        origin, number, hashed, *more = body.split("\n")
        kind, _, dataset = origin.partition("/")
        times = [line.removeprefix("time ") for line in more if line.startswith("time ")]
        known = base64.b64decode(hashed, validate=True)
        if kind != "deniable" or not dataset or str(int(number)) != number or len(known) != 32:
            raise ValueError
        head = Head(dataset, int(number), known.hex(), datetime.fromisoformat(times[0]) if times else None)
    except (ValueError, binascii.Error):
        raise DataError("a note cannot be read as the head of a ledger") from None
    if key and not any(_is_signed(head.origin, body, line, key) for line in signatures.split("\n")):
        raise IntegrityError(
            f"the note of entry {head.number} is not signed with the key given", remedy="Do not rely on it"
        )
    return Head(head.dataset, head.number, head.hash, head.time, key)


def _is_signed(origin: str, body: str, line: str, key: str) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise MissingExtra(
            "a signature cannot be checked without cryptography", remedy="Install it: pip install cryptography"
        ) from None
    try:
        public = bytes.fromhex(key.strip())
        signed = base64.b64decode(line.removeprefix(f"{DASH} {origin} "), validate=True)
        if signed[:4] != _name_key(origin, public):
            return False
        Ed25519PublicKey.from_public_bytes(public).verify(signed[4:], f"{body}\n".encode())
    except (ValueError, binascii.Error, InvalidSignature):
        return False
    return True


def refuse_other_head(ledger: Ledger, head: Head) -> None:
    """Refuse a ledger that does not hold the entry of a head that somebody kept, and does not name it as lost."""
    if head.dataset != ledger.dataset:
        raise ParameterError(f"the head is one of dataset '{head.dataset}', not of '{ledger.dataset}'")
    if (head.number, head.hash) in list_abandoned(ledger.entries(acts=("separate",))):
        return
    found = next(ledger.entries(head.number - 1), None) if head.number else None
    if head.number and found is None:
        raise refuse_cut_off()
    if head.hash != (found.hash if found is not None else genesis(ledger.dataset)):
        raise refuse_broken(head.number, "is not the one that the head was given for")


def send_note(place: str, note: str) -> None:
    """Give a note to a witness: at the end of a file, or to a web address by POST."""
    if place.startswith(WEB):
        _post_note(place, note)
        return
    path = Path(place)
    with storage_errors(path), open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), "ab") as file:
        file.write(f"{note}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def _post_note(address: str, note: str) -> None:
    request = urllib.request.Request(address, note.encode(), {"Content-Type": "text/plain; charset=utf-8"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=REPLY_SECONDS) as reply:  # noqa: S310  http, as checked above
            reply.read(1 << 16)
    except (OSError, ValueError):
        raise StorageError(
            "the witness could not be told the head of the ledger", remedy="Check its address and that it runs"
        ) from None


class HeadSender:
    """Tells a witness elsewhere the signed head of a ledger: with the first entry that is written, then once an hour.

    What cannot be told is told with a later entry: a witness that is down holds nothing up. One at a web address that
    does not reply is left alone for ten minutes; that is said once.
    """

    def __init__(self, place: str, find_key: Callable[[], bytes | None], every: float = HOUR) -> None:
        self.place = place
        self._sending: threading.Thread | None = None
        self._find_key = find_key
        self._every = every
        self._lock = threading.Lock()
        self._last: float | None = None

    def note_entry(self, ledger: Ledger) -> None:
        """Called after entries were written; sends where it is time, without holding up who wrote them."""
        now = time.monotonic()
        with self._lock:
            if self._last is not None and now - self._last < self._every:
                return
            self._last = now
        last = ledger.known_head
        if last is None or (self.place.startswith(WEB) and Witness().is_late(self.place)):
            return
        try:
            note = write_note(Head(ledger.dataset, last.sequence, last.hash, last.time), self._find_key())
        except (DeniableError, ImportError):
            self._try_again()
            return
        if self.place.startswith(WEB):
            self._sending = threading.Thread(target=self._send, args=(note,), daemon=True)
            self._sending.start()
        else:
            self._send(note)

    def finish(self) -> None:
        """Wait a moment for a witness that is being told; called before the process may end."""
        if self._sending is not None:
            self._sending.join(CLOSING_SECONDS)
            if self._sending.is_alive():
                self._leave_alone()

    def _send(self, note: str) -> None:
        try:
            send_note(self.place, note)
        except DeniableError:
            self._try_again()
            if self.place.startswith(WEB):
                self._leave_alone()

    def _leave_alone(self) -> None:
        if Witness().note_late(self.place, LATE_SECONDS):
            logging.getLogger("deniable").warning(
                "The witness at %s did not take the head of the ledger, and is told again after ten minutes. "
                "Nothing else is held up.",
                urlsplit(self.place).hostname,
            )

    def _try_again(self) -> None:
        with self._lock:
            self._last = None

    def refuse_rollback(self, ledger: Ledger) -> None:
        """Refuse a ledger that lacks the last head that a witness file has, but for those that it names as lost."""
        lost = list_abandoned(ledger.entries(acts=("separate",)))
        held = [head for head in self.read_heads() if (head.number, head.hash) not in lost]
        if held:
            refuse_other_head(ledger, max(held, key=lambda head: head.number))

    def read_heads(self) -> list[Head]:
        """The heads in a witness file; others than files are not asked."""
        path = Path(self.place)
        with storage_errors(path):
            asked = not self.place.startswith(WEB) and path.is_file()
            text = path.read_text("utf-8", "replace") if asked else ""
        return read_notes(text) if text.strip() else []
