"""A witness outside of all ledgers: which ledger holds the budget of which rows, and how far each ledger was.

A budget belongs to people, not to the name of a file. Whoever copies a policy, a table or both would get a ledger
beside it that knows of nothing; whoever puts back last week's ledger, with last week's answers, would get last week's
budget. So each ledger that is opened to be written is told to a small file of the user's own, `ledgers.sqlite` in the
state folder: where it is, its head, the sources of its tables, and keyed marks of a few rows, by which the same rows
are known in another file. Nothing of a row can be read from it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from deniable.errors import AccessRefused, IntegrityError, StorageError
from deniable.ledger.ledger import POSTGRES, Ledger
from deniable.ledger.sqlite import roll_back_on_error, translate_errors
from deniable.storage import PRIVATE_FILE

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
            seen = connection.execute("SELECT number, head FROM ledgers WHERE place = ?", (place,)).fetchone()
            if seen is not None and seen[0]:
                found = next(ledger.entries(seen[0] - 1), None)
                if found is None or found.hash != seen[1]:
                    raise IntegrityError(
                        f"the ledger had {seen[0]} entries when it was last used, and those are not what it has now",
                        expected="The newest copy of the ledger: an older one would give back what was spent since",
                        remedy="Put the newest copy back. If it is lost: deniable ledger separate --lost",
                    )
            _note_head(connection, place, ledger)

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
