"""A look at the user's record of ledgers with every entry: a copy that goes on beside a ledger is found at once.

A database can be copied with all that it is known by, and a file under the same path in another container. Two such
copies that are open at once would each spend the whole budget. So whoever writes looks first at the heads that the
record has of the same ledger, each of which must be in the chain, and notes its own head after. While more than one
place is known for a ledger, the record is locked from the look until the note.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from deniable.dp.accounting import Accountant, Event, from_dict, to_dict
from deniable.errors import NOTHING_CHARGED, IntegrityError
from deniable.ledger.budget_tree import describe_spent, take_larger
from deniable.ledger.entry import Book, Entry, decode_entry
from deniable.ledger.sqlite import Turns, open_connection, translate_errors


@dataclass(frozen=True, slots=True)
class Home:
    """What a ledger is known by, however its place is written: the file or database itself, and its first entry."""

    place: str
    identity: str = ""
    first: str = ""


Lineage = Set[tuple[str, str]]
"""Places and first entries of ledgers that held one budget."""


def read_home(connection: sqlite3.Connection, place: str) -> Home:
    """A ledger as it was when it was last seen at a place."""
    known = connection.execute("SELECT identity, first FROM homes WHERE place = ?", (place,)).fetchone()
    return Home(place, *known) if known is not None else Home(place)


def list_same(connection: sqlite3.Connection, home: Home) -> set[str]:
    """The places at which the same ledger was seen, or a copy of it: by what it is, or by its first entry."""
    sql = "SELECT place FROM homes WHERE (identity <> '' AND identity = ?) OR (first <> '' AND first = ?)"
    return {home.place, *(place for (place,) in connection.execute(sql, (home.identity, home.first)))}


def list_apart(connection: sqlite3.Connection, place: str) -> set[str]:
    """The ledgers beside which the steward let the one at a place have a budget of its own, or they beside it."""
    sql = "SELECT other FROM apart WHERE place = :place UNION SELECT place FROM apart WHERE other = :place"
    return {other for (other,) in connection.execute(sql, {"place": place})}


def find_apart(connection: sqlite3.Connection, home: Home) -> set[str]:
    """The ledgers that are apart from this one. One that was never seen at its place is apart as it was where it was.

    A copy that is put at the place of another ledger does not have what was decided for that one.
    """
    seen = {place for place, first in _list_known(connection) if first == home.first}
    if not home.first or home.place in seen:
        return list_apart(connection, home.place)
    return {other for place in seen for other in list_apart(connection, place)} - seen - {home.place}


def list_lineage(connection: sqlite3.Connection, home: Home, gone: Iterable[str] = ()) -> Lineage:
    """The places and first entries of all ledgers that held the budget of one ledger, before it and after it.

    One ledger follows another at the same place, or goes on with the same first entry at another one; `gone` are those
    that it takes the place of now. What one of them spent, each that followed was charged for: the most that one of
    them spent is what all of them spent.
    """
    apart = find_apart(connection, home)
    known = {each for each in _list_known(connection) if each[0] not in apart}
    found = {(home.place, home.first), *((place, "") for place in {*list_same(connection, home), *gone} - apart)}
    while True:
        places, firsts = {place for place, _ in found}, {first for _, first in found if first}
        more = {each for each in known if each[0] in places or each[1] in firsts} - found
        if not more:
            return found
        found |= more


def _list_known(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Which ledgers were ever seen where, each by its first entry."""
    tables = ("homes", "spent", "people", "losses")
    sql = " UNION ".join(f"SELECT place, first FROM {table} WHERE first <> ''" for table in tables)  # noqa: S608
    return {*connection.execute(sql).fetchall()}


def take_place(connection: sqlite3.Connection, home: Home, lost: Sequence[str]) -> None:
    """Let a ledger be what the lost ones were: apart from the same others, and bound by what they spent."""
    apart = find_apart(connection, home)
    for place in (each for each in lost if each != home.place):
        for table, values in (("spent", "accounting, event"), ("people", "acts, marks")):
            sql = f"INSERT OR IGNORE INTO {table} SELECT ?, first, {values} FROM {table} WHERE place = ?"  # noqa: S608
            connection.execute(sql, (home.place, place))
        connection.execute("DELETE FROM apart WHERE ? IN (place, other)", (place,))
    rows = [(home.place, other) for other in sorted(apart.difference(lost, (home.place,)))]
    connection.executemany("INSERT OR IGNORE INTO apart VALUES (?, ?)", rows)


def list_heads(connection: sqlite3.Connection, home: Home) -> dict[str, tuple[int, str]]:
    """The number and hash of the last entry that a ledger had at each place, but for those that are apart."""
    sql = (  # one statement: it is asked with every entry
        "SELECT place, number, head FROM ledgers WHERE number <> 0 AND (place = :place OR place IN (SELECT place FROM"
        " homes WHERE (identity <> '' AND identity = :identity) OR (first <> '' AND first = :first)))"
        " AND place NOT IN (SELECT other FROM apart WHERE place = :place)"
        " AND place NOT IN (SELECT place FROM apart WHERE other = :place)"
    )
    known = {"place": home.place, "identity": home.identity, "first": home.first}
    return {place: (int(number), str(head)) for place, number, head in connection.execute(sql, known)}


def read_heads(connection: sqlite3.Connection, places: Iterable[str]) -> dict[str, tuple[int, str]]:
    """The number and hash of the last entry that was seen at each place."""
    sql = "SELECT number, head FROM ledgers WHERE place = ?"
    found = ((place, connection.execute(sql, (place,)).fetchone()) for place in places)
    return {place: (int(seen[0]), str(seen[1])) for place, seen in found if seen is not None and seen[0]}


def refuse_other_head(place: str, number: int, known: str, charge: str | None = None) -> IntegrityError:
    """The refusal of a ledger that lacks an entry which it had, at a place by which it is known or at another."""
    if place == known:
        return IntegrityError(
            f"the ledger had {number} entries when it was last used, and those are not what it has now",
            expected="The newest copy of the ledger: an older one would give back what was spent since",
            remedy="Put the newest copy back. If it is lost: deniable ledger separate --lost, or ledger restore --lost",
            charge=charge,
        )
    return IntegrityError(
        f"the ledger had {number} entries when it was last used, at {place}, and those are not what it has here",
        expected="One ledger, at one place: a copy that goes on beside it would give the budget twice",
        remedy=f"Use {place}, and stop this copy. If that one is lost: deniable ledger separate --lost, or ledger "
        "restore --lost",
        charge=charge,
    )


def note_seen(connection: sqlite3.Connection, place: str, seen: int) -> None:
    """Note that the answer store of a ledger knows of so many entries."""
    sql = "INSERT INTO stores VALUES (?, ?) ON CONFLICT DO UPDATE SET seen = max(seen, excluded.seen)"
    connection.execute(sql, (place, seen))


def note_spent(connection: sqlite3.Connection, known: tuple[str, str, str], spent: Event, last: str = "") -> str:
    """Note what a ledger spent in all, by its place, first entry and accounting; says what is noted then.

    It is never less than before, since another copy may have spent more: but what this one noted `last`, it exceeds.
    """
    sql = "SELECT event FROM spent WHERE place = ? AND first = ? AND accounting = ?"
    noted, form = connection.execute(sql, known).fetchone(), json.dumps(to_dict(spent))
    if noted is not None and noted[0] == form:
        return form
    if noted is not None and noted[0] != last:
        form = json.dumps(to_dict(take_larger(known[2], from_dict(json.loads(noted[0])), spent)))
    connection.execute("INSERT OR REPLACE INTO spent VALUES (?, ?, ?, ?)", (*known, form))
    return form


class Unwatched:
    """What is done around an entry of a ledger that no record knows: nothing."""

    @contextmanager
    def guard_write(self) -> Iterator[None]:
        """Around the writer's transaction."""
        yield

    def look(self, book: Book, head: Entry | None, first: str) -> None:
        """Inside the transaction, before anything is decided; may refuse."""

    def note(self, head: Entry | None, first: str, accounting: str, account: Accountant | None) -> None:
        """After the transaction was kept."""

    def note_answer(self, seen: int, forgotten: int, collection: str, count: int) -> None:
        """After an answer was stored."""

    def refuse_held(self) -> None:
        """Refuse where another process holds the record."""

    def limit_patience(self, seconds: float) -> None:
        """Wait no longer than this for another process that holds the record."""

    def close(self) -> None:
        """Let go of the record."""


class Watch(Unwatched):
    """The record, as the writer of one ledger uses it."""

    def __init__(self, path: Path, home: Home) -> None:
        self._path = path
        self._home = home
        self._connection: sqlite3.Connection | None = None
        self._owner = 0
        self._version = -1
        self._others = False
        self._found: dict[str, tuple[int, str]] = {}
        """The head of each place that was found in the chain: it stays there."""
        self._lock, self._turns = threading.Lock(), Turns()
        self._for_answers: sqlite3.Connection | None = None
        self._answers_owner = 0
        self._account: Accountant | None = None
        self._spent = ""
        """What was noted last: the account of all that was spent, and its event."""

    @contextmanager
    def guard_write(self) -> Iterator[None]:
        """Around the writer's transaction: a lock on the record is let go of, whatever happens."""
        try:
            yield
        finally:
            if self._connection is not None and self._connection.in_transaction:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")

    def look(self, book: Book, head: Entry | None, first: str) -> None:
        """Refuse to write where the record has a head of this ledger that is not in its chain."""
        self._home = replace(self._home, first=first)
        with translate_errors(self._path):
            connection = self._open()
            if self._others or self._turns.held:
                self._turns.take(connection)
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version == self._version:  # nobody else wrote to the record
                return
            heads = list_heads(connection, self._home)
            self._others = bool(heads.keys() - {self._home.place})
            if self._others and not connection.in_transaction:
                self._turns.take(connection)
                heads = list_heads(connection, self._home)
        for place, seen in heads.items():
            if self._found.get(place) != seen:
                self._refuse_missing(book, head, place, *seen)
                self._found[place] = seen
        self._version = version

    def _refuse_missing(self, book: Book, head: Entry | None, place: str, number: int, hashed: str) -> None:
        line = next(book.after(number - 1), None) if head is not None and head.sequence >= number else None
        if line is None or line.sequence != number or decode_entry(line.text, number).hash != hashed:
            raise refuse_other_head(place, number, self._home.place, NOTHING_CHARGED)

    def note(self, head: Entry | None, first: str, accounting: str, account: Accountant | None) -> None:
        """Note how far the ledger is, and what it spent. What the disk refuses now is noted later, or at the end."""
        if head is None or self._connection is None:
            return
        begun, place = self._home.first != "", self._home.place
        self._found[place] = (head.sequence, head.hash)
        with suppress(sqlite3.Error):
            if not self._connection.in_transaction:
                self._turns.take(self._connection)
            if not begun:
                home = (place, self._home.identity, first)
                self._connection.execute("INSERT OR REPLACE INTO homes VALUES (?, ?, ?)", home)
            sql = (
                "INSERT INTO ledgers VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET number = excluded.number,"
                " head = excluded.head WHERE excluded.number > number"
            )
            self._connection.execute(sql, (place, head.sequence, head.hash))
            if account is not self._account:
                spent = describe_spent(accounting, account)
                self._spent = note_spent(self._connection, (place, first, accounting), spent, self._spent)
            self._connection.execute("COMMIT")
            self._account = account

    def note_answer(self, seen: int, forgotten: int, collection: str, count: int) -> None:
        """Note that the answer store has so many answers, and knows of so many entries: an older copy lacks them.

        It has a connection of its own, since answers are stored while others write entries.
        """
        with self._lock, suppress(sqlite3.Error):
            if self._for_answers is None or self._answers_owner != os.getpid():
                self._for_answers, self._answers_owner = self._connect(), os.getpid()
            connection, place = self._for_answers, self._home.place
            if connection.in_transaction:  # a note that the disk refused
                connection.execute("ROLLBACK")
            self._turns.take(connection)
            note_seen(connection, place, seen)
            noted = connection.execute("SELECT forgotten, counts FROM counted WHERE place = ?", (place,)).fetchone()
            counts = json.loads(noted[1]) if noted is not None and noted[0] == forgotten else {}
            if noted is None or noted[0] <= forgotten:
                counts[collection] = max(count, counts.get(collection, 0))
                row = (place, forgotten, json.dumps(counts))
                connection.execute("INSERT OR REPLACE INTO counted VALUES (?, ?, ?)", row)
            connection.execute("COMMIT")

    def refuse_held(self) -> None:
        """Refuse where another process holds the record."""
        with translate_errors(self._path), closing(self._connect()) as connection:
            self._turns.take(connection)

    def limit_patience(self, seconds: float) -> None:
        """Wait no longer than this for another process that holds the record."""
        self._turns.patience = seconds

    def close(self) -> None:
        """Let go of the record."""
        for connection, owner in ((self._connection, self._owner), (self._for_answers, self._answers_owner)):
            if connection is not None and owner == os.getpid():
                connection.close()
        self._connection = self._for_answers = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None or self._owner != os.getpid():  # a connection must not cross a fork
            self._connection = self._connect()
            self._owner, self._version = os.getpid(), -1
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = open_connection(f"{self._path.as_uri()}?mode=rw")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection
