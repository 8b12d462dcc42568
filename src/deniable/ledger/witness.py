"""A witness outside of all ledgers: which ledger holds the budget of which rows, and how far each ledger was.

A budget belongs to people, not to the name of a file. Whoever copies a policy, a table or both would get a ledger
beside it that knows of nothing; whoever puts back last week's ledger, with last week's answers, would get last week's
budget. So each ledger that is opened to be written is told to a small file of the user's own, `ledgers.sqlite` in the
state folder: where it is, its head, the sources of its tables, and keyed marks of a few rows, by which the same rows
are known in another file, whatever its columns are called and in which order they stand. Without the key,
which only the user can read, they tell nothing of a row.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from deniable.errors import AccessRefused, IntegrityError, StorageError
from deniable.ledger.answer_store import AnswerStore
from deniable.ledger.ledger import POSTGRES, Ledger, open_answer_store, open_ledger, tie_store
from deniable.ledger.loss import Loss
from deniable.ledger.sqlite import begin_log, roll_back_on_error, translate_errors
from deniable.policy.document import Policy
from deniable.storage import PRIVATE_FILE

STATE_VARIABLE = "DENIABLE_STATE"
FILE = "ledgers.sqlite"
SAME = 0.5
"""Two tables with so large a share of marks in common hold the same rows: one may have grown, or lost some."""
PART = 0.2
"""A table with so large a share of marks in common holds a part of the rows, such as a sample of them."""
FEW_ROWS = 8
"""Tables with fewer different rows are not compared: such rows are alike by chance."""
MARKED_ROWS = 32
"""How many rows are marked: those whose hashes are least, so that the same rows of a table are always chosen."""
SURE = 14.0
"""How unlikely it must be that rows with equal keys agree by chance in their other columns: less than exp(-14)."""
PATIENCE = 20.0

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS secret (key BLOB NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS ledgers (place TEXT PRIMARY KEY, number INTEGER NOT NULL, head TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS homes (place TEXT PRIMARY KEY, identity TEXT NOT NULL, first TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS stores (place TEXT PRIMARY KEY, seen INTEGER NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS counted (place TEXT PRIMARY KEY, forgotten INTEGER NOT NULL, counts TEXT NOT NULL)"
    " STRICT",
    "CREATE TABLE IF NOT EXISTS sources (place TEXT NOT NULL, source TEXT NOT NULL, stamp TEXT NOT NULL,"
    " marks TEXT NOT NULL, PRIMARY KEY (place, source)) STRICT",
    "CREATE TABLE IF NOT EXISTS generated (source TEXT PRIMARY KEY, stamp TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS compared (source TEXT PRIMARY KEY, stamp TEXT NOT NULL, upto INTEGER NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS late (address TEXT PRIMARY KEY, until REAL NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS accepted (file TEXT NOT NULL, name TEXT NOT NULL, marks TEXT NOT NULL,"
    " PRIMARY KEY (file, name)) STRICT",
    "CREATE TABLE IF NOT EXISTS losses (place TEXT NOT NULL, first TEXT NOT NULL, hash TEXT PRIMARY KEY,"
    " entries INTEGER NOT NULL, stored TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS apart (place TEXT NOT NULL, other TEXT NOT NULL, PRIMARY KEY (place, other)) STRICT",
)


Mark = TypeVar("Mark", int, str)
Keys = Mapping[Mark, Sequence[Mark | None]]
"""Values of one column, each with the least hash of every other column in its rows (None is no value)."""


@dataclass(frozen=True, slots=True)
class Sketch(Generic[Mark]):
    """Some rows of a table, by hashes or by keyed marks of them.

    `rows` are whole rows, whatever the order of their columns. `keys` are values of the columns with the most values:
    they know the table again where columns were dropped.
    """

    rows: Sequence[Mark] = ()
    keys: Sequence[Keys[Mark]] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A private source of a ledger: its path, when it was last changed, its rows, if compared, and whom it protects."""

    path: str
    stamp: str
    sketch: Sketch[int] | None = None
    table: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Home:
    """What a ledger is known by, however its place is written: the file or database itself, and its first entry."""

    place: str
    identity: str = ""
    first: str = ""


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


def name_source(path: str) -> str:
    """The name under which charges tell of a source, whatever policies call its table."""
    return f"source {hashlib.sha256(path.encode()).hexdigest()[:16]}"


@contextmanager
def open_for_acts(
    place: str | Path, policy: Policy, withdrawals: str, *, lost: bool = False
) -> Iterator[tuple[Ledger, AnswerStore]]:
    """A ledger with its answer store, to write acts of governance; the witness is told of them.

    `withdrawals` is the collection of people who withdrew. One that is `lost` is not compared with what it was.
    """
    witness, named = Witness(), name_place(place, policy.dataset)
    with (
        closing(open_ledger(place, policy)) as ledger,
        closing(open_answer_store(place, policy.dataset, ledger)) as store,
    ):
        tie_store(ledger, store, withdrawals)
        if not lost:
            witness.compare(named, ledger, store)
        yield ledger, store
        witness.see(named, ledger, store)


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

    def name_frame(self, content: str) -> str:
        """A name for rows in memory, from the digest of what they hold; without the key it tells nothing of them."""
        with self._open() as connection:
            key = _find_key(connection)
        return f"frame {hashlib.blake2b(content.encode(), key=key, digest_size=8).hexdigest()}"

    def find_holders(self, sources: Sequence[Source], place: str = "") -> list[str]:
        """The ledgers, but for that at a place, that hold the budget of these sources."""
        with self._open() as connection:
            key = _find_key(connection)
            real = _drop_generated(connection, sources)
            return sorted({other for source in real for other in _find_others(connection, place, key, source)})

    def find_protecting(self, source: Source, sketch_rows: Callable[[], Sketch[int] | None], place: str) -> list[str]:
        """The other ledgers that protect the people of a source, by its path or rows.

        Its rows are hashed only if it changed, or a source was claimed, since it was last found to be nobody's.
        """
        with self._open() as connection:
            (upto,) = connection.execute("SELECT coalesce(max(rowid), 0) FROM sources").fetchone()
            known = connection.execute("SELECT stamp, upto FROM compared WHERE source = ?", (source.path,)).fetchone()
        sketch = None if known == (source.stamp, upto) else sketch_rows()
        found = self.find_holders([Source(source.path, source.stamp, sketch)], place)
        if not found and sketch:
            with self._open() as connection:
                noted = (source.path, source.stamp, upto)
                connection.execute("INSERT OR REPLACE INTO compared VALUES (?, ?, ?)", noted)
        return found

    def claim(
        self,
        place: str,
        sources: Sequence[Source],
        charged: frozenset[tuple[str, str]] = frozenset(),
        *,
        note: bool = True,
    ) -> None:
        """Note that a ledger holds the budget of these sources; refuse what another one holds already.

        `charged` are the sources that it charged for, each with its unit: their rows are refused under another unit.
        Without `note` nothing is claimed yet.
        """
        with self._open() as connection:
            key = _find_key(connection)
            apart = _list_apart(connection, place)
            for source in _drop_generated(connection, sources):
                for other in sorted(_find_others(connection, place, key, source) - apart):
                    raise AccessRefused(
                        f"the rows of '{Path(source.path).name}' have a budget already, in the ledger {other}",
                        expected="One budget for one set of people, whatever its files and policies are called",
                        remedy=f"Use that ledger, under the name of the dataset that it has: --ledger {other}. If "
                        "these are other people, or the budgets shall be added up by hand: deniable ledger separate",
                        other=other,
                    )
                _refuse_other_unit(connection, place, key, source, charged)
                if note and (source.sketch or not _is_known(connection, place, source.path)):
                    row = (place, source.path, source.stamp, _write_marks(_mark_sketch(key, source.sketch)))
                    connection.execute("INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)", row)

    def note_generated(self, sources: Sequence[Source]) -> None:
        """Note that nobody is in these sources, as long as they are not changed: their rows need no budget."""
        with self._open() as connection:
            rows = [(source.path, source.stamp) for source in sources]
            connection.executemany("INSERT OR REPLACE INTO generated VALUES (?, ?)", rows)

    def note_accepted(self, file: str, sketches: Mapping[str, Sketch[int]]) -> None:
        """Note marks of the rows of an accepted policy's tables, in place of those that its file had before."""
        with self._open() as connection:
            key = _find_key(connection)
            connection.execute("DELETE FROM accepted WHERE file = ?", (file,))
            rows = [(file, name, _write_marks(_mark_sketch(key, sketch))) for name, sketch in sketches.items()]
            connection.executemany("INSERT INTO accepted VALUES (?, ?, ?)", rows)

    def has_accepted(self) -> bool:
        """Whether rows of an accepted policy are marked."""
        with self._open() as connection:
            return connection.execute("SELECT 1 FROM accepted LIMIT 1").fetchone() is not None

    def find_accepted(self, sketch: Sketch[int]) -> list[tuple[str, str]]:
        """The accepted policies, each with its table, that hold these rows, or of whose rows these are a part."""
        with self._open() as connection:
            marks = _mark_sketch(_find_key(connection), sketch)
            listed = connection.execute("SELECT file, name, marks FROM accepted").fetchall()
        return [(file, name) for file, name, kept in listed if _hold_same_rows(marks, _read_marks(kept), PART)]

    def separate(self, place: str, sources: Sequence[Source]) -> list[str]:
        """Let a ledger hold a budget of its own beside the others that hold these sources; says which they are."""
        others = self.find_holders(sources, place)
        with self._open() as connection:
            connection.executemany("INSERT OR IGNORE INTO apart VALUES (?, ?)", [(place, other) for other in others])
        return others

    def compare(self, place: str, ledger: Ledger, store: AnswerStore) -> None:
        """Refuse a ledger that lost what it had when it was last seen, or whose answer store did; else remember it.

        It is known by what it is, under whichever address or path it is opened.
        """
        with self._open() as connection:
            home = _find_home(place, ledger)
            _refuse_rollback(connection, home, ledger)
            _refuse_older_store(connection, home, ledger, store)
            _note_head(connection, home, ledger, store)

    def refuse_older(self, place: str, ledger: Ledger) -> None:
        """Refuse a copy for a ledger that had more entries, or others, when it was last seen."""
        with self._open() as connection:
            _refuse_rollback(connection, _find_home(place, ledger), ledger)

    def forget_counts(self, place: str, ledger: Ledger) -> None:
        """Forget how much the answer store of a ledger had: the steward put a backup in its place."""
        with self._open() as connection:
            same = [(each,) for each in _list_same(connection, _find_home(place, ledger))]
            connection.executemany("DELETE FROM counted WHERE place = ?", same)

    def find_loss(self, place: str, ledger: Ledger, counts: Mapping[str, int]) -> Loss:
        """What a ledger had when it was last seen, and this copy of it, with so many stored values, has not.

        Earlier losses of which the copy does not tell are added.
        """
        with self._open() as connection:
            return _find_loss(connection, _find_home(place, ledger), ledger, counts)

    def note_loss(self, place: str, ledger: Ledger, hashed: str, loss: Loss) -> None:
        """Note a loss, and the entry that tells of it: an older copy would not."""
        with self._open() as connection:
            row = (place, ledger.first, hashed, loss.entries, json.dumps(dict(loss.stored)))
            connection.execute("INSERT OR REPLACE INTO losses VALUES (?, ?, ?, ?, ?)", row)

    def is_new(self, place: str) -> bool:
        """Whether no ledger with entries was ever seen there."""
        return self.is_blank or not self._count_seen(place)

    def _count_seen(self, place: str) -> int:
        with self._open() as connection:
            return _count_entries(connection, place)

    def refuse_missing(self, place: str) -> None:
        """Refuse to take a ledger that is not there for one that never was."""
        if seen := self._count_seen(place):
            raise IntegrityError(
                f"the ledger had {seen} entries when it was last used, and it is gone",
                expected="The newest copy of the ledger: without it nobody knows what was spent",
                remedy="Put it back. If it is lost: deniable ledger separate --lost, or ledger restore --lost",
            )

    def see(self, place: str, ledger: Ledger, store: AnswerStore) -> None:
        """Remember how far a ledger is, and the answer store beside it."""
        with self._open() as connection:
            _note_head(connection, _find_home(place, ledger), ledger, store)

    def is_late(self, address: str) -> bool:
        """Whether a witness elsewhere did not reply a while ago, and is left alone."""
        with self._open() as connection:
            sql = "SELECT 1 FROM late WHERE address = ? AND until > ?"
            return connection.execute(sql, (address, time.time())).fetchone() is not None

    def note_late(self, address: str, seconds: float) -> bool:
        """Note that a witness elsewhere did not reply; says whether this is new."""
        late = self.is_late(address)
        with self._open() as connection:
            connection.execute("INSERT OR REPLACE INTO late VALUES (?, ?)", (address, time.time() + seconds))
        return not late

    def forget(self, place: str, ledger: Ledger | None = None) -> int:
        """Forget a ledger, since it is lost, wherever it was; says how many entries it had."""
        with self._open() as connection:
            home = _read_home(connection, place) if ledger is None else _find_home(place, ledger)
            gone = [each for each in sorted(_list_same(connection, home)) if each == place or not _is_copy(home, each)]
            seen = [_count_entries(connection, each) for each in gone]
            for table in ("ledgers", "sources", "stores", "homes", "counted"):
                sql = f"DELETE FROM {table} WHERE place = ?"  # noqa: S608  our own names
                connection.executemany(sql, [(each,) for each in gone])
            return max(seen, default=0)

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
            begin_log(connection, PATIENCE)
            connection.execute("PRAGMA synchronous = NORMAL")
            with roll_back_on_error(connection):
                connection.execute("BEGIN IMMEDIATE")
                for statement in SCHEMA:
                    connection.execute(statement)
                yield connection
                connection.execute("COMMIT")


def _find_home(place: str, ledger: Ledger) -> Home:
    return Home(place, ledger.store.identify(), ledger.first)


def _read_home(connection: sqlite3.Connection, place: str) -> Home:
    """A ledger as it was when it was last seen at a place."""
    known = connection.execute("SELECT identity, first FROM homes WHERE place = ?", (place,)).fetchone()
    return Home(place, *known) if known is not None else Home(place)


def _list_same(connection: sqlite3.Connection, home: Home) -> set[str]:
    """The places at which the same ledger was seen, or a copy of it: by what it is, or by its first entry."""
    sql = "SELECT place FROM homes WHERE (identity <> '' AND identity = ?) OR (first <> '' AND first = ?)"
    return {home.place, *(place for (place,) in connection.execute(sql, (home.identity, home.first)))}


def _list_own(connection: sqlite3.Connection, place: str) -> set[str]:
    """The other spellings of a ledger's place, and those that it was moved from."""
    home = _read_home(connection, place)
    kept = connection.execute("SELECT place FROM homes WHERE identity <> '' AND identity = ?", (home.identity,))
    moved = (each for each in _list_same(connection, home) if not _is_copy(home, each))
    return {place, *(each for (each,) in kept), *moved}


def _is_copy(home: Home, other: str) -> bool:
    """Whether the ledger at another place is a file that is there beside this one, or may be another database."""
    return other != home.place and ("://" in other or Path(other).exists())


def _list_apart(connection: sqlite3.Connection, place: str) -> set[str]:
    """The ledgers beside which the steward let the one at a place have a budget of its own."""
    return {other for (other,) in connection.execute("SELECT other FROM apart WHERE place = ?", (place,))}


def _count_entries(connection: sqlite3.Connection, place: str) -> int:
    seen = connection.execute("SELECT number FROM ledgers WHERE place = ?", (place,)).fetchone()
    return int(seen[0]) if seen is not None else 0


def _refuse_rollback(connection: sqlite3.Connection, home: Home, ledger: Ledger) -> None:
    for place in _list_same(connection, home) - _list_apart(connection, home.place):
        seen = connection.execute("SELECT number, head FROM ledgers WHERE place = ?", (place,)).fetchone()
        if seen is None or not seen[0]:
            continue
        found = next(ledger.entries(seen[0] - 1), None)
        if found is None or found.hash != seen[1]:
            raise IntegrityError(
                f"the ledger had {seen[0]} entries when it was last used, and those are not what it has now",
                expected="The newest copy of the ledger: an older one would give back what was spent since",
                remedy="Put the newest copy back. If it is lost: deniable ledger separate --lost, or ledger restore "
                "--lost",
            )


def _find_key(connection: sqlite3.Connection) -> bytes:
    """The key of the marks, drawn once."""
    found = connection.execute("SELECT key FROM secret").fetchone()
    if found is not None:
        return bytes(found[0])
    key = secrets.token_bytes(32)
    connection.execute("INSERT INTO secret VALUES (?)", (key,))
    return key


def _mark_sketch(key: bytes, sketch: Sketch[int] | None) -> Sketch[str]:
    """A sketch with a keyed mark for each hash."""
    if not sketch:
        return Sketch()

    def mark(hashed: int, size: int = 8) -> str:
        return hashlib.blake2b(str(hashed).encode(), key=key, digest_size=size).hexdigest()

    keys = [
        {mark(value): [None if cell is None else mark(cell, 4) for cell in cells] for value, cells in each.items()}
        for each in sketch.keys
    ]
    return Sketch([mark(row) for row in sketch.rows], keys)


def _write_marks(marked: Sketch[str]) -> str:
    return json.dumps({"rows": marked.rows, "keys": marked.keys})


def _read_marks(kept: str) -> Sketch[str]:
    """The marks of a source; none where an earlier version wrote them, which marked rows otherwise."""
    return Sketch(**json.loads(kept)) if kept.startswith("{") else Sketch()


def _refuse_other_unit(
    connection: sqlite3.Connection, place: str, key: bytes, source: Source, charged: frozenset[tuple[str, str]]
) -> None:
    """Refuse rows that this ledger charged for under another unit, by whichever name: one total would mix both."""
    marks = _mark_sketch(key, source.sketch)
    for path, kept in connection.execute("SELECT source, marks FROM sources WHERE place = ?", (place,)):
        others = sorted(unit for name, unit in charged if name == name_source(path) and unit != source.unit)
        if others and (path == source.path or _hold_same_rows(marks, _read_marks(kept))):
            raise AccessRefused(
                f"the rows of '{source.table}' were charged for {others[0]} before, and would now be for "
                f"{source.unit}: these do not add up",
                expected="One unit for one set of rows in one ledger, whatever its tables and files are called",
                remedy="Put the unit back, or begin a new ledger with the budgets lowered by what was spent on a unit",
            )


def _drop_generated(connection: sqlite3.Connection, sources: Sequence[Source]) -> list[Source]:
    """The sources that somebody may be in."""
    listed = {*connection.execute("SELECT source, stamp FROM generated").fetchall()}
    return [source for source in sources if (source.path, source.stamp) not in listed]


def _is_known(connection: sqlite3.Connection, place: str, source: str) -> bool:
    found = connection.execute("SELECT 1 FROM sources WHERE place = ? AND source = ?", (place, source))
    return found.fetchone() is not None


def _find_others(connection: sqlite3.Connection, place: str, key: bytes, source: Source) -> set[str]:
    """The other ledgers that hold a source, by its path or by its rows."""
    marks, own = _mark_sketch(key, source.sketch), _list_own(connection, place)
    listed = connection.execute("SELECT place, source, marks FROM sources").fetchall()
    return {
        other
        for other, path, known in (each for each in listed if each[0] not in own)
        if _is_within(path, source.path) or (source.sketch and _hold_same_rows(marks, _read_marks(known)))
    }


def _is_within(one: str, other: str) -> bool:
    """Whether two sources are one file or folder, or one is a part of the other."""
    return one == other or Path(one).is_relative_to(other) or Path(other).is_relative_to(one)


def _hold_same_rows(marks: Sketch[str], known: Sketch[str], share: float = SAME) -> bool:
    """Whether two tables hold the same rows: as whole rows, or by the columns that both have."""
    return _share_most(marks.rows, known.rows, share) or any(
        _share_most([*one], [*other], share) and _agree_beyond_chance(one, other)
        for one in marks.keys
        for other in known.keys
    )


def _share_most(marks: Sequence[str], known: Sequence[str], share: float = SAME) -> bool:
    """Whether the least hashes of two tables are the same for so large a share."""
    least = min(len(marks), len(known))
    return least >= FEW_ROWS and len({*marks} & {*known}) >= share * least


def _agree_beyond_chance(one: Keys[str], other: Keys[str]) -> bool:
    """Whether rows with equal keys have equal values in other columns too, more often than by chance.

    Ids that count from one are the same in every table. So each column is laid beside the column of the other table
    with which it agrees best; by chance, two values are equal as often as rows with different keys are.
    """
    shared = sorted(one.keys() & other.keys())
    narrow, wide = sorted(([*zip(*(each[key] for key in shared), strict=True)] for each in (one, other)), key=len)
    gained = possible = evidence = 0.0
    for column in narrow:
        chance, agreed = max((_compare_columns(column, each) for each in wide), key=lambda both: both[1] - both[0])
        gained, possible = gained + max(0.0, agreed - chance), possible + 1 - chance
        evidence += max(0.0, len(shared) * _measure_surprise(agreed, chance) - math.log(len(wide)))
    return possible > 0 and gained >= SAME * possible and evidence >= SURE


def _compare_columns(one: Sequence[str | None], other: Sequence[str | None]) -> tuple[float, float]:
    """How often two columns agree by chance, and how often they do in the same rows."""
    many, counts = len(one), Counter(other)
    together = sum(mine == theirs for mine, theirs in zip(one, other, strict=True))
    across = sum(counts[mine] for mine in one) - together
    return across / (many * (many - 1)), together / many


def _measure_surprise(agreed: float, chance: float) -> float:
    """How unlikely it is, for each row, that so many agree where the chance is this (Chernoff's bound); 0 if fewer."""
    if agreed <= chance:
        return 0.0
    chance = max(chance, 1e-3)  # a chance that was never seen among a thousand pairs is not nothing
    terms = ((agreed, chance), (1 - agreed, 1 - chance))
    return sum(share * math.log(share / by_chance) for share, by_chance in terms if share > 0)


def _refuse_older_store(connection: sqlite3.Connection, home: Home, ledger: Ledger, store: AnswerStore) -> None:
    """Refuse an answer store that saw less of the ledger than it had seen, or has fewer values than it had."""
    stored = store.count_seen()
    for place in _list_same(connection, home) - _list_apart(connection, home.place):
        seen = connection.execute("SELECT seen FROM stores WHERE place = ?", (place,)).fetchone()
        if seen is not None and seen[0] > stored:
            raise IntegrityError(
                f"the answer store knew of entry {seen[0]} when it was last used, and now of entry {stored}",
                expected="The newest copy of the store: an older one lacks answers that were charged, and who withdrew",
                remedy="Put the newest copy back, or restore a backup of both: deniable ledger restore",
            )
        counted = connection.execute("SELECT forgotten, counts FROM counted WHERE place = ?", (place,)).fetchone()
        if counted is not None and counted[0] == ledger.forgotten:
            store.recount(json.loads(counted[1]), ledger.forgotten)


def _note_head(connection: sqlite3.Connection, home: Home, ledger: Ledger, store: AnswerStore) -> None:
    """Note how far a ledger is; of one without entries there is nothing to note."""
    head, place = ledger.head(), home.place
    if head is None:
        return
    connection.execute("INSERT OR REPLACE INTO homes VALUES (?, ?, ?)", (place, home.identity, ledger.first))
    noted = "INSERT INTO stores VALUES (?, ?) ON CONFLICT DO UPDATE SET seen = max(seen, excluded.seen)"
    connection.execute(noted, (place, store.count_seen()))
    counts = json.dumps(store.recount({}, ledger.forgotten))  # refuses what fell since this process saw it
    connection.execute("INSERT OR REPLACE INTO counted VALUES (?, ?, ?)", (place, ledger.forgotten, counts))
    if _count_entries(connection, place) < head.sequence:
        row = (place, head.sequence, head.hash)
        connection.execute("INSERT OR REPLACE INTO ledgers VALUES (?, ?, ?)", row)


RECORD = "this user's record of ledgers"


def _find_loss(connection: sqlite3.Connection, home: Home, ledger: Ledger, counts: Mapping[str, int]) -> Loss:
    head, found = ledger.head(), Loss()
    here = head.sequence if head is not None else 0
    same = _list_same(connection, home) - _list_apart(connection, home.place)
    for place in same:
        seen = connection.execute("SELECT number, head FROM ledgers WHERE place = ?", (place,)).fetchone()
        kept = next(ledger.entries(seen[0] - 1), None) if seen is not None and seen[0] else None
        if seen is not None and seen[0] and (kept is None or kept.hash != seen[1]):
            found = found.add(Loss(entries=max(1, seen[0] - here), heads=((seen[0], seen[1]),), known_by=(RECORD,)))
        counted = connection.execute("SELECT counts FROM counted WHERE place = ?", (place,)).fetchone()
        fewer = {name: many - counts.get(name, 0) for name, many in json.loads(counted[0] if counted else "{}").items()}
        found = found.add(Loss(stored={name: many for name, many in fewer.items() if many > 0}))
    told = {entry.hash for entry in ledger.entries(acts=("separate",))}
    for place, first, hashed, entries, stored in connection.execute("SELECT * FROM losses").fetchall():
        if (place in same or (first and first == home.first)) and hashed not in told:
            names = {*found.stored, *json.loads(stored)}
            total = {name: found.stored.get(name, 0) + json.loads(stored).get(name, 0) for name in names}
            found = replace(found, entries=found.entries + entries, stored=total, known_by=(RECORD,))
    return found
