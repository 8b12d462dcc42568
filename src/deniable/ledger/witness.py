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
import os
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from deniable.dp.accounting import ComposedEvent
from deniable.errors import AccessRefused, IntegrityError, StorageError
from deniable.ledger.answer_store import AnswerStore
from deniable.ledger.budget_tree import describe_spent
from deniable.ledger.ledger import POSTGRES, Ledger, open_answer_store, open_ledger, tie_store
from deniable.ledger.loss import Loss, find_noted_loss, find_waiting, list_noted, sum_losses
from deniable.ledger.same_rows import Sketch, hold_same_rows, mark_sketch, read_marks, write_marks
from deniable.ledger.sqlite import begin_log, roll_back_on_error, touch, translate_errors
from deniable.ledger.watch import (
    Home,
    Watch,
    find_apart,
    list_apart,
    list_heads,
    list_lineage,
    list_same,
    note_seen,
    note_spent,
    read_heads,
    read_home,
    refuse_other_head,
    take_place,
)
from deniable.policy.document import Policy

STATE_VARIABLE = "DENIABLE_STATE"
FILE = "ledgers.sqlite"
EMPTY = "frame without rows"
PATIENCE = 20.0
REACHED_BY = ("host", "hostaddr", "port", "dbname", "service")
"""The parameters of an address that say which database it is, as a socket's folder does; others say who enters, how."""

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
    "CREATE TABLE IF NOT EXISTS lost_after (hash TEXT PRIMARY KEY, number INTEGER NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS spent (place TEXT NOT NULL, first TEXT NOT NULL, accounting TEXT NOT NULL,"
    " event TEXT NOT NULL, PRIMARY KEY (place, first)) STRICT",
    "CREATE TABLE IF NOT EXISTS people (place TEXT NOT NULL, first TEXT NOT NULL, acts INTEGER NOT NULL,"
    " marks TEXT NOT NULL, PRIMARY KEY (place, first)) STRICT",
    "CREATE TABLE IF NOT EXISTS apart (place TEXT NOT NULL, other TEXT NOT NULL, PRIMARY KEY (place, other)) STRICT",
)


@dataclass(frozen=True, slots=True)
class Source:
    """A private source of a ledger: its path, when it was last changed, its rows, if compared, and whom it protects."""

    path: str
    stamp: str
    sketch: Sketch[int] | None = None
    table: str = ""
    unit: str = ""


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
    told = {name: value for name, value in parse_qsl(parts.query) if name in REACHED_BY}
    if not parts.hostname and "host" not in told and os.environ.get("PGHOST"):
        told["host"] = os.environ["PGHOST"]
    query = f"?{urlencode(sorted(told.items()), safe='/')}" if told else ""
    return f"postgresql://{parts.netloc.rpartition('@')[2].lower()}{parts.path}{query}#{dataset}"


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

    def name_frame(self, content: str, *, empty: bool = False) -> str:
        """A name for rows in memory, from the digest of what they hold; without the key it tells nothing of them."""
        with self._open() as connection:
            key = _find_key(connection)
        return f"{EMPTY if empty else 'frame'} {hashlib.blake2b(content.encode(), key=key, digest_size=8).hexdigest()}"

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
            apart = list_apart(connection, place)
            for source in _drop_generated(connection, sources):
                for other in sorted(_find_others(connection, place, key, source) - apart):
                    raise AccessRefused(
                        f"the rows of '{Path(source.path).name}' have a budget already, in the ledger {other}",
                        expected="One budget for one set of people, whatever its files and policies are called",
                        remedy=f"Use that ledger, under the name of the dataset that it has: --ledger {other}, or "
                        "ledger= in Python. If these are other people, or the budgets shall be added up by hand: "
                        "deniable ledger separate",
                        other=other,
                    )
                _refuse_other_unit(connection, place, key, source, charged)
                if note and (source.sketch or not _is_known(connection, place, source.path)):
                    row = (place, source.path, source.stamp, write_marks(mark_sketch(key, source.sketch)))
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
            rows = [(file, name, write_marks(mark_sketch(key, sketch))) for name, sketch in sketches.items()]
            connection.executemany("INSERT INTO accepted VALUES (?, ?, ?)", rows)

    def has_accepted(self) -> bool:
        """Whether rows of an accepted policy are marked."""
        with self._open() as connection:
            return connection.execute("SELECT 1 FROM accepted LIMIT 1").fetchone() is not None

    def find_accepted(self, sketch: Sketch[int]) -> list[tuple[str, str]]:
        """The accepted policies, each with its table, that hold these rows, or of whose rows these are a part."""
        with self._open() as connection:
            marks = mark_sketch(_find_key(connection), sketch)
            listed = connection.execute("SELECT file, name, marks FROM accepted").fetchall()
        return [(file, name) for file, name, kept in listed if hold_same_rows(marks, read_marks(kept))]

    def separate(self, place: str, sources: Sequence[Source]) -> list[str]:
        """Let a ledger hold a budget of its own beside the others that hold these sources; says which they are."""
        others = self.find_holders(sources, place)
        with self._open() as connection:
            connection.executemany("INSERT OR IGNORE INTO apart VALUES (?, ?)", [(place, other) for other in others])
        return others

    def compare(self, place: str, ledger: Ledger, store: AnswerStore) -> None:
        """Refuse a ledger that lost what it had when it was last seen, or whose answer store did; else remember it.

        It is known by what it is, under whichever address or path it is opened. From now on it is watched.
        """
        with self._open() as connection:
            home = _find_home(place, ledger)
            _refuse_missing_head(list_heads(connection, home), home, ledger)
            same = list_same(connection, home) - list_apart(connection, place)
            _refuse_older_store(connection, same, ledger, store)
            _note_head(connection, home, ledger, store)
        ledger.watch = Watch(self.path.absolute(), home)

    def find_rivals(self, place: str, ledger: Ledger, sources: Sequence[Source]) -> tuple[list[str], dict[str, str]]:
        """The ledgers that must be gone if this one is put at a place: those that hold the budget of these sources,
        and those that followed it elsewhere, each with its first entry. Those that are apart are none."""
        if self.is_blank:
            return [], {}
        holders = self.find_holders(sources, place)
        with self._open() as connection:
            home = _find_home(place, ledger)
            apart, lineage = find_apart(connection, home), list_lineage(connection, home)
            homes = {*connection.execute("SELECT place, first FROM homes").fetchall()}
        later = {other: first for other, first in sorted(lineage & homes) if other != place and first != home.first}
        return [other for other in holders if other not in apart], later

    def refuse_older(self, place: str, ledger: Ledger) -> None:
        """Refuse a copy for a ledger that had more entries, or others, when it was last seen."""
        with self._open() as connection:
            home = _find_home(place, ledger)
            _refuse_missing_head(list_heads(connection, home), home, ledger)

    def refuse_backup(self, place: str, ledger: Ledger, store: AnswerStore, gone: Sequence[str] = ()) -> None:
        """Refuse a backup of a ledger, or of its answers, that had more when it or one that followed was last seen."""
        with self._open() as connection:
            home = _find_home(place, ledger)
            lineage = {each for each, _ in list_lineage(connection, home, gone)}
            _refuse_missing_head(read_heads(connection, lineage), home, ledger)
            _refuse_older_store(connection, lineage, ledger, store)

    def forget_counts(self, place: str, ledger: Ledger) -> None:
        """Forget how much the answer store of a ledger had: the steward put a backup in its place."""
        with self._open() as connection:
            same = [(each,) for each in list_same(connection, _find_home(place, ledger))]
            connection.executemany("DELETE FROM counted WHERE place = ?", same)

    def note_people(self, place: str, ledger: Ledger, list_people: Callable[[], tuple[list[str], list[str]]]) -> None:
        """Note keyed marks of who withdrew; fewer than before only of those who were taken in again.

        `list_people` gives both, each person as often as is told apart.
        """
        acts = sum(1 for _ in ledger.entries(acts=("withdraw", "reinstate")))
        with self._open() as connection:
            sql = "SELECT acts, marks FROM people WHERE place = ? AND first = ?"
            noted = connection.execute(sql, (place, ledger.first)).fetchone()
            if (noted[0] if noted else 0) == acts:
                return
            key = _find_key(connection)
            standing, again = ([_mark_person(key, each) for each in people] for people in list_people())
            known = Counter(json.loads(noted[1]) if noted else {})
            kept = Counter({mark: many for mark, many in known.items() if mark not in again})
            row = (place, ledger.first, acts, json.dumps(Counter(standing) | kept))
            connection.execute("INSERT OR REPLACE INTO people VALUES (?, ?, ?, ?)", row)

    def count_missing(self, place: str, ledger: Ledger, people: Sequence[str], gone: Sequence[str] = ()) -> int:
        """How many who withdrew by this ledger, or by one that is lost, are not among these people."""
        with self._open() as connection:
            key, known = _find_key(connection), Counter[str]()
            lineage = list_lineage(connection, _find_home(place, ledger), gone)
            for (marks,) in list_noted(connection, "people", "marks", lineage):
                known |= Counter(json.loads(marks))
            return (known - Counter(_mark_person(key, each) for each in people)).total()

    def find_loss(self, place: str, ledger: Ledger, counts: Mapping[str, int], gone: Sequence[str] = ()) -> Loss:
        """What a ledger had when it was last seen, and this copy of it, with so many stored values, has not.

        What those had that followed it counts too, and `gone` ones that held the budget of the same rows. Earlier
        losses of which the copy does not tell are added.
        """
        with self._open() as connection:
            return find_noted_loss(
                connection, list_lineage(connection, _find_home(place, ledger), gone), ledger, counts
            )

    def note_loss(self, place: str, ledger: Ledger, hashed: str, loss: Loss) -> None:
        """Note what was lost since the losses before, and the entry that tells of it: an older copy would not."""
        with self._open() as connection:
            lineage = list_lineage(connection, _find_home(place, ledger))
            entries, stored = sum_losses(connection, lineage, ledger, loss.after)
            own = {name: more for name, many in loss.stored.items() if (more := many - stored.get(name, 0)) > 0}
            row = (place, ledger.first, hashed, max(loss.entries - entries, 0), json.dumps(own))
            connection.execute("INSERT OR REPLACE INTO losses VALUES (?, ?, ?, ?, ?)", row)
            connection.execute("INSERT OR REPLACE INTO lost_after VALUES (?, ?)", (hashed, loss.after))

    def knows_store(self, place: str) -> bool:
        """Whether a ledger was used at a place, with an answer store beside it."""
        with self._open() as connection:
            return connection.execute("SELECT 1 FROM stores WHERE place = ?", (place,)).fetchone() is not None

    def count_entries(self, place: str) -> int:
        """How many entries the ledger at a place had when it was last seen; 0 where none was."""
        with self._open() as connection:
            return _count_entries(connection, place)

    def refuse_missing(self, place: str) -> None:
        """Refuse to take a ledger that is not there for one that never was."""
        if seen := self.count_entries(place):
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

    def forget(self, place: str, ledger: Ledger | None = None, gone: Sequence[str] = ()) -> int:
        """Forget how far a ledger was, since it is lost, wherever it was; says how many entries it had.

        `gone` are those that held it, or the budget of the same rows, and do so no more: it takes their place. What
        they spent and who withdrew stays known, unless it is told by its place alone: then it is a demo's.
        """
        with self._open() as connection:
            home = read_home(connection, place) if ledger is None else _find_home(place, ledger)
            same = sorted({*list_same(connection, home), *gone})
            lost = [each for each in same if each == place or each in gone or not _is_copy(home, each)]
            seen = [_count_entries(connection, each) for each in lost]
            if ledger is not None:
                take_place(connection, home, lost)
            known = () if ledger is not None else ("losses", "spent", "people")  # those bind a copy that is restored
            for table in ("ledgers", "sources", "stores", "homes", "counted", *known):
                sql = f"DELETE FROM {table} WHERE place = ?"  # noqa: S608  our own names
                connection.executemany(sql, [(each,) for each in lost])
            return max(seen, default=0)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            touch(self.path)
            writable = os.access(self.path, os.R_OK | os.W_OK)
        except OSError:
            writable = False
        if not writable:
            raise StorageError(
                f"'{self.path.name}' could not be written in '{self.path.parent}', where it is kept which ledger "
                "protects which rows",
                remedy=f"Name a folder that can be written in the environment variable {STATE_VARIABLE}",
            )
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


def _list_own(connection: sqlite3.Connection, place: str) -> set[str]:
    """The other spellings of a ledger's place, and those that it was moved from."""
    home = read_home(connection, place)
    kept = connection.execute("SELECT place FROM homes WHERE identity <> '' AND identity = ?", (home.identity,))
    moved = (each for each in list_same(connection, home) if not _is_copy(home, each))
    return {place, *(each for (each,) in kept), *moved}


def _is_copy(home: Home, other: str) -> bool:
    """Whether the ledger at another place is a file that is there beside this one, or may be another database."""
    return other != home.place and ("://" in other or Path(other).exists())


def _count_entries(connection: sqlite3.Connection, place: str) -> int:
    seen = connection.execute("SELECT number FROM ledgers WHERE place = ?", (place,)).fetchone()
    return int(seen[0]) if seen is not None else 0


def _refuse_missing_head(heads: Mapping[str, tuple[int, str]], home: Home, ledger: Ledger) -> None:
    for place, (number, head) in heads.items():
        found = next(ledger.entries(number - 1), None)
        if found is None or found.hash != head:
            raise refuse_other_head(place, number, home.place)


def _find_key(connection: sqlite3.Connection) -> bytes:
    """The key of the marks, drawn once."""
    found = connection.execute("SELECT key FROM secret").fetchone()
    if found is not None:
        return bytes(found[0])
    key = secrets.token_bytes(32)
    connection.execute("INSERT INTO secret VALUES (?)", (key,))
    return key


def _refuse_other_unit(
    connection: sqlite3.Connection, place: str, key: bytes, source: Source, charged: frozenset[tuple[str, str]]
) -> None:
    """Refuse rows that this ledger charged for under another unit, by whichever name: one total would mix both."""
    marks = mark_sketch(key, source.sketch)
    for path, kept in connection.execute("SELECT source, marks FROM sources WHERE place = ?", (place,)):
        others = sorted(unit for name, unit in charged if name == name_source(path) and unit != source.unit)
        if others and (path == source.path or hold_same_rows(marks, read_marks(kept))):
            raise AccessRefused(
                f"the rows of '{source.table}' were protected as {others[0]} before, and would now be as {source.unit}",
                expected="One unit for one set of rows in one ledger, whatever its tables and files are called",
                remedy="Use the unit of before; or lower the budgets, and run: deniable ledger separate --ledger NEW",
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
    marks, own = mark_sketch(key, source.sketch), _list_own(connection, place)
    listed = connection.execute("SELECT place, source, marks FROM sources").fetchall()
    return {
        other
        for other, path, known in (each for each in listed if each[0] not in own)
        if _is_within(path, source.path) or (source.sketch and hold_same_rows(marks, read_marks(known)))
    }


def _is_within(one: str, other: str) -> bool:
    """Whether two sources are one file or folder, or one is a part of the other; nobody is in a frame without rows."""
    if one.startswith(f"{EMPTY} "):
        return False
    return one == other or Path(one).is_relative_to(other) or Path(other).is_relative_to(one)


def _refuse_older_store(connection: sqlite3.Connection, same: set[str], ledger: Ledger, store: AnswerStore) -> None:
    """Refuse an answer store that saw less of the ledger than it had seen, or has fewer values than it had."""
    stored = store.count_seen()
    for place in same:
        seen = connection.execute("SELECT seen FROM stores WHERE place = ?", (place,)).fetchone()
        if seen is not None and seen[0] > stored:
            raise IntegrityError(
                f"the answer store knew of entry {seen[0]} when it was last used, and now of entry {stored}",
                expected="The newest copy of the store: an older one lacks answers that were charged, and who withdrew",
                remedy="Put the newest copy back. If it is lost, restore a backup: deniable ledger restore --lost",
            )
        counted = connection.execute("SELECT forgotten, counts FROM counted WHERE place = ?", (place,)).fetchone()
        if counted is not None:
            store.recount_by(partial(_read_counted, ledger, *counted))


def _read_counted(ledger: Ledger, forgot: int, counts: str) -> tuple[dict[str, int], int]:
    """What was noted of a store's counts, unless answers were forgotten since."""
    last = ledger.forgotten
    return json.loads(counts) if last == forgot else {}, last


def _note_head(connection: sqlite3.Connection, home: Home, ledger: Ledger, store: AnswerStore) -> None:
    """Note how far a ledger is; of one without entries there is nothing to note."""
    head, place = ledger.head(), home.place
    if head is None:
        return
    connection.execute("INSERT OR REPLACE INTO homes VALUES (?, ?, ?)", (place, home.identity, ledger.first))
    note_seen(connection, place, store.count_seen())
    counts = json.dumps(store.recount_by(lambda: ({}, ledger.forgotten)))  # refuses what fell since it was seen
    connection.execute("INSERT OR REPLACE INTO counted VALUES (?, ?, ?)", (place, ledger.forgotten, counts))
    _note_spent(connection, home, ledger)
    if _count_entries(connection, place) < head.sequence:
        row = (place, head.sequence, head.hash)
        connection.execute("INSERT OR REPLACE INTO ledgers VALUES (?, ?, ?)", row)


def _mark_person(key: bytes, person: str) -> str:
    return hashlib.blake2b(person.encode(), key=key, digest_size=8, person=b"withdrawn").hexdigest()


def _note_spent(connection: sqlite3.Connection, home: Home, ledger: Ledger) -> None:
    """Note what a ledger spent, with what is proven of a loss that is not settled; never less than before."""
    accounting, account = ledger.find_spent()
    spent = describe_spent(accounting, account)
    if (proven := find_waiting(ledger)) is not None:
        spent = ComposedEvent((spent, proven.find_proven(accounting)))
    note_spent(connection, (home.place, ledger.first, accounting), spent)
