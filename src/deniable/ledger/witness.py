"""A witness outside of all ledgers: which ledger holds the budget of which rows, and how far each ledger was.

A budget belongs to people, not to the name of a file. Whoever copies a policy, a table or both would get a ledger
beside it that knows of nothing; whoever puts back last week's ledger, with last week's answers, would get last week's
budget. So each ledger that is opened to be written is told to a small file of the user's own, `ledgers.sqlite` in the
state folder: where it is, its head, the sources of its tables, and keyed marks of a few rows, by which the same rows
are known in another file. Nothing of a row can be read from it.

For witnesses elsewhere there are signed heads: notes in the form of transparency logs (C2SP signed-note and
tlog-checkpoint), with the number and hash of the last entry. Whoever keeps one can tell a ledger that lost entries.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import sqlite3
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from deniable.errors import (
    AccessRefused,
    DataError,
    DeniableError,
    IntegrityError,
    MissingExtra,
    ParameterError,
    StorageError,
)
from deniable.ledger.entry import genesis, refuse_broken, refuse_cut_off
from deniable.ledger.ledger import POSTGRES, Ledger
from deniable.ledger.sqlite import roll_back_on_error, translate_errors
from deniable.storage import PRIVATE_FILE, storage_errors

STATE_VARIABLE = "DENIABLE_STATE"
FILE = "ledgers.sqlite"
SAME = 0.5
"""Two tables with so large a share of marks in common hold the same rows: one may have grown, or lost some."""
FEW_ROWS = 8
"""Tables with fewer different rows are not compared: such rows are alike by chance."""
MARKED_ROWS = 32
"""How many rows are marked: those whose hashes are least, so that the same rows of a table are always chosen."""
PATIENCE = 20.0

SCHEMA = """
CREATE TABLE IF NOT EXISTS secret (key BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS ledgers (place TEXT PRIMARY KEY, number INTEGER NOT NULL, head TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS sources (
  place TEXT NOT NULL, source TEXT NOT NULL, stamp TEXT NOT NULL, marks TEXT NOT NULL,
  PRIMARY KEY (place, source)) STRICT;
CREATE TABLE IF NOT EXISTS generated (source TEXT PRIMARY KEY, stamp TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS compared (source TEXT PRIMARY KEY, stamp TEXT NOT NULL, upto INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS apart (place TEXT NOT NULL, other TEXT NOT NULL, PRIMARY KEY (place, other)) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Source:
    """A private source of a ledger: its path, when it was last changed, and hashes of its marked rows, if compared."""

    path: str
    stamp: str
    rows: Sequence[int] = ()


def state_folder() -> Path:
    """Where the user's own state is kept: $DENIABLE_STATE, or ~/.deniable."""
    told = os.environ.get(STATE_VARIABLE)
    return Path(told) if told else Path.home() / ".deniable"


def name_place(place: str | Path, dataset: str) -> str:
    """A ledger's place by which it is known: a whole path, or a database without who enters it, and the dataset there.

    >>> name_place("postgresql://ana:secret@db.example/clinic", "visits")
    'postgresql://db.example/clinic#visits'
    """
    if not str(place).startswith(POSTGRES):
        return os.path.realpath(place)
    parts = urlsplit(str(place))
    port = f":{parts.port}" if parts.port else ""
    return f"postgresql://{parts.hostname or ''}{port}{parts.path}#{dataset}"


class Witness:
    """What is known of all ledgers of this user, in one file."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or state_folder()) / FILE

    def find_stamps(self, place: str) -> dict[str, str]:
        """When each source of a ledger was last changed, as far as it was compared."""
        with self._open() as connection:
            found = connection.execute("SELECT source, stamp FROM sources WHERE place = ?", (place,))
            return {str(source): str(stamp) for source, stamp in found}

    @property
    def is_blank(self) -> bool:
        """Whether no ledger was ever told to it."""
        return not self.path.exists()

    def find_holders(self, sources: Sequence[Source], place: str = "") -> list[str]:
        """The ledgers, but for that at a place, that hold the budget of these sources."""
        with self._open() as connection:
            key = _find_key(connection)
            real = _drop_generated(connection, sources)
            return sorted({other for source in real for other in _find_others(connection, place, key, source)})

    def find_protecting(self, source: Source, hash_rows: Callable[[], Sequence[int]], place: str) -> list[str]:
        """The other ledgers that protect the people of a source, by its path or rows.

        Its rows are hashed only if it changed, or a source was claimed, since it was last found to be nobody's.
        """
        with self._open() as connection:
            (upto,) = connection.execute("SELECT coalesce(max(rowid), 0) FROM sources").fetchone()
            known = connection.execute("SELECT stamp, upto FROM compared WHERE source = ?", (source.path,)).fetchone()
        rows = () if known == (source.stamp, upto) else hash_rows()
        found = self.find_holders([Source(source.path, source.stamp, rows)], place)
        if not found and rows:
            with self._open() as connection:
                noted = (source.path, source.stamp, upto)
                connection.execute("INSERT OR REPLACE INTO compared VALUES (?, ?, ?)", noted)
        return found

    def claim(self, place: str, sources: Sequence[Source]) -> None:
        """Note that a ledger holds the budget of these sources; refuse what another one holds already."""
        with self._open() as connection:
            key = _find_key(connection)
            apart = {other for (other,) in connection.execute("SELECT other FROM apart WHERE place = ?", (place,))}
            for source in _drop_generated(connection, sources):
                for other in sorted(_find_others(connection, place, key, source) - apart):
                    raise AccessRefused(
                        f"the rows of '{Path(source.path).name}' have a budget already, in the ledger {other}",
                        expected="One budget for one set of people, whatever its files and policies are called",
                        remedy=f"Use that ledger: --ledger {other}. If these are other people, or the budgets shall be "
                        "added up by hand: deniable ledger separate",
                        other=other,
                    )
                if source.rows or not _is_known(connection, place, source.path):
                    row = (place, source.path, source.stamp, " ".join(_mark_rows(key, source)))
                    connection.execute("INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)", row)

    def note_generated(self, sources: Sequence[Source]) -> None:
        """Note that nobody is in these sources, as long as they are not changed: their rows need no budget."""
        with self._open() as connection:
            rows = [(source.path, source.stamp) for source in sources]
            connection.executemany("INSERT OR REPLACE INTO generated VALUES (?, ?)", rows)

    def separate(self, place: str, sources: Sequence[Source]) -> list[str]:
        """Let a ledger hold a budget of its own beside the others that hold these sources; says which they are."""
        others = self.find_holders(sources, place)
        with self._open() as connection:
            connection.executemany("INSERT OR IGNORE INTO apart VALUES (?, ?)", [(place, other) for other in others])
        return others

    def compare(self, place: str, ledger: Ledger) -> None:
        """Refuse a ledger that lost entries which it had when it was last seen; else remember how far it is."""
        with self._open() as connection:
            _refuse_rollback(connection, place, ledger)
            _note_head(connection, place, ledger)

    def refuse_older(self, place: str, ledger: Ledger) -> None:
        """Refuse a copy for a ledger that had more entries, or others, when it was last seen."""
        with self._open() as connection:
            _refuse_rollback(connection, place, ledger)

    def see(self, place: str, ledger: Ledger) -> None:
        """Remember how far a ledger is."""
        with self._open() as connection:
            _note_head(connection, place, ledger)

    def forget(self, place: str) -> int:
        """Forget a ledger, since it is lost; says how many entries it had."""
        with self._open() as connection:
            seen = connection.execute("SELECT number FROM ledgers WHERE place = ?", (place,)).fetchone()
            for table in ("ledgers", "sources"):
                connection.execute(f"DELETE FROM {table} WHERE place = ?", (place,))  # noqa: S608  our own names
            return int(seen[0]) if seen is not None else 0

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, PRIVATE_FILE))
        except OSError:
            raise StorageError(
                f"'{self.path.name}' could not be written in '{self.path.parent}', where it is kept which ledger "
                "protects which rows",
                remedy=f"Name a folder that can be written in the environment variable {STATE_VARIABLE}",
            ) from None
        with (
            translate_errors(self.path),
            closing(sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)) as connection,
        ):
            # What is lost in a power cut is only how far a ledger was: that is found again when it is next opened.
            connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;" + SCHEMA)
            connection.execute("BEGIN IMMEDIATE")
            with roll_back_on_error(connection):
                yield connection
                connection.execute("COMMIT")


def _refuse_rollback(connection: sqlite3.Connection, place: str, ledger: Ledger) -> None:
    seen = connection.execute("SELECT number, head FROM ledgers WHERE place = ?", (place,)).fetchone()
    if seen is None or not seen[0]:
        return
    found = next(ledger.entries(seen[0] - 1), None)
    if found is None or found.hash != seen[1]:
        raise IntegrityError(
            f"the ledger had {seen[0]} entries when it was last used, and those are not what it has now",
            expected="The newest copy of the ledger: an older one would give back what was spent since",
            remedy="Put the newest copy back. If it is lost: deniable ledger separate --lost, or ledger restore --lost",
        )


def _find_key(connection: sqlite3.Connection) -> bytes:
    """The key of the marks, drawn once."""
    found = connection.execute("SELECT key FROM secret").fetchone()
    if found is not None:
        return bytes(found[0])
    key = secrets.token_bytes(32)
    connection.execute("INSERT INTO secret VALUES (?)", (key,))
    return key


def _mark_rows(key: bytes, source: Source) -> list[str]:
    return [hashlib.blake2b(str(row).encode(), key=key, digest_size=16).hexdigest() for row in source.rows]


def _drop_generated(connection: sqlite3.Connection, sources: Sequence[Source]) -> list[Source]:
    """The sources that somebody may be in."""
    listed = {*connection.execute("SELECT source, stamp FROM generated").fetchall()}
    return [source for source in sources if (source.path, source.stamp) not in listed]


def _is_known(connection: sqlite3.Connection, place: str, source: str) -> bool:
    found = connection.execute("SELECT 1 FROM sources WHERE place = ? AND source = ?", (place, source))
    return found.fetchone() is not None


def _find_others(connection: sqlite3.Connection, place: str, key: bytes, source: Source) -> set[str]:
    """The other ledgers that hold a source, by its path or by its rows."""
    marks = _mark_rows(key, source)
    listed = connection.execute("SELECT place, source, marks FROM sources WHERE place <> ?", (place,)).fetchall()
    return {other for other, path, known in listed if path == source.path or _is_same(marks, known.split())}


def _is_same(marks: Sequence[str], known: Sequence[str]) -> bool:
    """Whether two tables hold the same rows, by their marks: each has the least of all its hashes."""
    least = min(len(marks), len(known))
    return least >= FEW_ROWS and len({*marks} & {*known}) >= SAME * least


def _note_head(connection: sqlite3.Connection, place: str, ledger: Ledger) -> None:
    head = ledger.head()
    number, hashed = (head.sequence, head.hash) if head is not None else (0, "")
    known = connection.execute("SELECT number FROM ledgers WHERE place = ?", (place,)).fetchone()
    if known is None or known[0] < number:
        connection.execute("INSERT OR REPLACE INTO ledgers VALUES (?, ?, ?)", (place, number, hashed))


DASH = "\u2014"
"""What a line with a signature begins with."""
ED25519 = b"\x01"
"""The kind of signature in a note."""
HOUR = 3600.0
REPLY_SECONDS = 10.0
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
    """Refuse a ledger that does not hold the entry of a head that somebody kept."""
    if head.dataset != ledger.dataset:
        raise ParameterError(f"the head is one of dataset '{head.dataset}', not of '{ledger.dataset}'")
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

    What cannot be told is told with a later entry: a witness that is down holds nothing up.
    """

    def __init__(self, place: str, find_key: Callable[[], bytes | None], every: float = HOUR) -> None:
        self.place = place
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
        if last is None:
            return
        try:
            note = write_note(Head(ledger.dataset, last.sequence, last.hash, last.time), self._find_key())
        except (DeniableError, ImportError):
            self._try_again()
            return
        if self.place.startswith(WEB):
            threading.Thread(target=self._send, args=(note,)).start()
        else:
            self._send(note)

    def _send(self, note: str) -> None:
        try:
            send_note(self.place, note)
        except DeniableError:
            self._try_again()

    def _try_again(self) -> None:
        with self._lock:
            self._last = None

    def refuse_rollback(self, ledger: Ledger) -> None:
        """Refuse a ledger that does not hold the last head that a witness file has; others than files are not asked."""
        path = Path(self.place)
        if self.place.startswith(WEB) or not path.is_file():
            return
        with storage_errors(path):
            notes = read_notes(path.read_text("utf-8", "replace"))
        refuse_other_head(ledger, max(notes, key=lambda head: head.number))
