"""The answer store: what is stored only until it must be forgotten, beside a ledger that forgets nothing.

Answers and the list of people who withdrew are stored here as opaque bytes, in collections. A value put under a name
(or an alias) that is taken is not stored: whoever comes later gets what came first. So two processes that finish the
same query give the same answer.

Each value is sealed with its names under a key of the store: one that was changed, or put under another name, is found
when it is read, and not served. How many values each collection has, and all together, is counted beside them: one that
was deleted is missed, and so is a whole collection with its count. The ledger seals the counts in turn.
The store also remembers how far the ledger was, so that a ledger that was deleted or replaced by an older copy is found
when both are opened; and so is a store that was."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Protocol

from deniable.errors import IntegrityError
from deniable.ledger.entry import GroupCommit
from deniable.ledger.sqlite import (
    Turns,
    begin_log,
    close_on_error,
    find_version,
    migrate,
    open_connection,
    refuse_foreign,
    refuse_newer,
    roll_back_on_error,
    set_version,
    touch,
    translate_errors,
)

STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE IF NOT EXISTS kept (drawer TEXT NOT NULL, name TEXT NOT NULL, alias TEXT NOT NULL,"
        " value BLOB NOT NULL, PRIMARY KEY (drawer, name), UNIQUE (drawer, alias)) STRICT",
    ),
)
"""How a layout becomes the next one; the last step, to values that are sealed, is that of `adopt_key`."""
PAGE_ROWS = 1000
PAGE = "SELECT drawer, name, alias, value FROM kept WHERE (drawer, name) > (?, ?) ORDER BY drawer, name LIMIT ?"
SEALED = len(STEPS) + 1
"""The layout in which every value is sealed."""
COUNTED = SEALED + 1
"""The layout in which the values of each collection are counted."""
TOTALED = COUNTED + 1
"""The layout in which all values together are counted too."""


Row = tuple[str, str, str, bytes]
"""What is stored: collection, name, alias, value."""
Change = Callable[[str, str, str, bytes], bytes]
"""What becomes of a value that is stored in a collection under a name and an alias."""


class Shelf(Protocol):
    """Where bytes are kept under names, in collections, as they are given."""

    def keep(self, collection: str, name: str, alias: str, value: bytes, seen: bytes | None = None) -> bytes:
        """Keep a value, and say what is kept: what came first under the name or the alias.

        `seen` is the last entry of the ledger, which is kept with it, unless a later one is.
        """

    def find(self, collection: str, name: str) -> bytes | None:
        """What is kept under a name or an alias."""

    def list_all(self, collection: str) -> dict[str, bytes]:
        """All that a collection holds, by name."""

    def empty(self, collection: str) -> int:
        """Forget all that a collection holds, and say how much that was."""

    def keep_seen(self, seen: bytes) -> None:
        """Keep the last entry of the ledger that was seen, unless a later one is kept."""

    def adopt_key(self, key: bytes, change: Change) -> bytes:
        """The key of the seals; where there is none yet, this one, with everything that is stored already changed."""

    def dump(self) -> Iterator[Row]:
        """All that is stored, as it is, some rows at a time."""

    def close(self) -> None:
        """Let go of it."""


SEEN, SEAL, COUNT = "seen", "seal", "count"
"""The collections of the last entry of the ledger that was seen, of the key of the seals, and of how many values each
other collection has."""
OWN = (SEEN, SEAL, COUNT)
TOTAL = ""
"""The name under which COUNT holds how many values there are in all."""
SEAL_BYTES = 16


class AnswerStore:
    """Values in a shelf, each sealed; refuses one that was changed, or put under another name."""

    def __init__(self, inner: Shelf) -> None:
        self._inner = inner
        self._most: Mapping[str, int] = {}  # how many values of each collection this process saw
        self._forgotten = 0
        self.on_answer: Callable[[int, int, str, int], None] = lambda *_: None
        """Called after an answer was stored, before it leaves: the last entry that the store knows of, the one after
        which answers were forgotten, the collection, and how many values it has."""
        self._key = secrets.token_bytes(32)
        with close_on_error(inner):
            self._key = inner.adopt_key(self._key, self._seal)

    def keep(
        self, collection: str, name: str, alias: str, value: bytes, *, seen: tuple[int, str] | None = None
    ) -> bytes:
        """Keep a value, and say what is kept: what came first under the name or the alias.

        `seen` is the number and hash of an entry that the ledger has by now.
        """
        sealed = self._seal(collection, name, alias, value)
        kept = self._inner.keep(collection, name, alias, sealed, None if seen is None else _write_seen(*seen))
        count = _read_count(self._inner.find(COUNT, collection))
        self._most = {**self._most, collection: max(count, self._most.get(collection, 0))}
        if seen is not None:
            self.on_answer(seen[0], self._forgotten, collection, count)
        return value if kept == sealed else self._open(collection, kept, name, alias)

    @property
    def key(self) -> bytes:
        """The key of the seals, under which the ledger seals its entries too."""
        return self._key

    @property
    def is_lasting(self) -> bool:
        """Whether what is kept outlives this process."""
        return not isinstance(self._inner, MemoryShelf)

    def find(self, collection: str, name: str) -> bytes | None:
        """What is kept under a name or an alias."""
        found = self._inner.find(collection, name)
        return None if found is None else self._open(collection, found, name)

    def list_all(self, collection: str) -> dict[str, bytes]:
        """All that a collection holds, by name."""
        return {name: self._open(collection, each, name) for name, each in self._inner.list_all(collection).items()}

    def empty(self, collection: str) -> int:
        """Forget all that a collection holds, and say how much that was."""
        self._most = {name: most for name, most in self._most.items() if name != collection}
        return self._inner.empty(collection)

    def count_values(self) -> dict[str, int]:
        """How many values each collection has, as far as they are counted."""
        return {name: _read_count(count) for name, count in self._inner.list_all(COUNT).items() if name != TOTAL}

    def recount_by(self, read: Callable[[], tuple[Mapping[str, int], int]]) -> dict[str, int]:
        """The same by what `read` says that was sealed, and forgotten; once more if that has changed meanwhile.

        Another process may forget answers between the two looks.
        """
        said = read()
        try:
            return self.recount(*said)
        except IntegrityError:
            if (later := read()) == said:
                raise
            return self.recount(*later)

    def recount(self, sealed: Mapping[str, int], forgotten: int = 0) -> dict[str, int]:
        """How many values each collection has; refuses fewer than the ledger `sealed`, or than this process saw.

        `forgotten` is the number of the last entry that says that answers were forgotten: what was seen before it does
        not count. The store's own counts may be forged with its values.
        """
        if forgotten != self._forgotten:
            self._forgotten, self._most = forgotten, {}
        most = self._most  # before they are counted: others may store meanwhile
        found = self.count_values()
        for collection in sorted({*sealed, *most}):
            least = max(sealed.get(collection, 0), most.get(collection, 0))
            if found.get(collection, 0) < least:
                raise _refuse_fewer(collection, found.get(collection, 0), least)
        self._most = {name: max(count, self._most.get(name, 0)) for name, count in found.items()}
        return found

    def count_before_entry(self, sealed: Mapping[str, int], forgotten: int) -> dict[str, int]:
        """The same before an entry of the ledger is written: refuses while nothing can be stored."""
        self.refuse_held()
        return self.recount(sealed, forgotten)

    def refuse_held(self, *, look: bool = False) -> None:
        """Refuse where another process holds the file, as far as that is known already; `look` finds out."""
        if isinstance(self._inner, SqliteShelf) and (look or self._inner.turns.held):
            self._inner.take_turn()

    def limit_patience(self, seconds: float) -> None:
        """Wait no longer than this for another process that holds the file."""
        if isinstance(self._inner, SqliteShelf):
            self._inner.turns.patience = seconds

    def see(self, number: int, head: str) -> None:
        """Remember that the ledger had this entry, unless a later one was seen."""
        self._inner.keep_seen(_write_seen(number, head))

    def note_beginning(self) -> None:
        """Remember that the store is there before the ledger charges."""
        self._inner.keep_seen(NOTHING_SEEN)

    def last_seen(self) -> tuple[int, str] | None:
        """The number and hash of the last entry of the ledger that was seen; 0 and nothing before the first charge."""
        found = self._inner.find(SEEN, SEEN)
        if found is None:
            return None
        number, _, head = found.decode("ascii", "replace").partition(" ")
        return (int(number), head) if number.isdigit() else (0, "unreadable")

    def count_seen(self) -> int:
        """The number of the last entry of the ledger that was seen."""
        return (self.last_seen() or (0, ""))[0]

    def dump(self) -> Iterator[Row]:
        """All that is stored, sealed as it is; refuses where something was changed."""
        for collection, name, alias, value in self._inner.dump():
            if collection not in OWN:
                self._open(collection, bytes(value), name, alias)
            yield collection, name, alias, bytes(value)

    def check(self) -> None:
        """Refuse a store in which anything was changed or deleted behind its back.

        This is `dump` without what it gives, written for many thousands of values at every start.
        """
        before, counts, quoted = self._inner.list_all(COUNT), Counter[str](), encode_basestring_ascii
        keyed = hashlib.blake2b(key=self._key, digest_size=SEAL_BYTES)
        for collection, name, alias, value in self._inner.dump():
            if collection not in OWN:
                signed = keyed.copy()
                signed.update(value[SEAL_BYTES:])
                names = f"[{quoted(collection)}, {quoted(name)}, {quoted(alias)}]\n".encode()
                if value[:SEAL_BYTES] != signed.digest() or not value.startswith(names, SEAL_BYTES):
                    raise _refuse_changed()
                counts[collection] += 1
            elif alias != name or (collection != COUNT and name != collection):
                raise _refuse_changed()  # its own rows have one name each
        after = self._inner.list_all(COUNT)  # others may write meanwhile
        if TOTAL not in after or not all(count.isdigit() for count in (*before.values(), *after.values())):
            raise _refuse_changed()
        counts[TOTAL] = counts.total()
        for collection in sorted({*before, *after, *counts}, reverse=True):  # the total is the last
            if not int(before.get(collection, b"0")) <= counts[collection] <= int(after.get(collection, b"0")):
                raise _refuse_missing(collection, counts[collection], int(after.get(collection, b"0")))

    def close(self) -> None:
        """Let go of it."""
        self._inner.close()

    def _seal(self, collection: str, name: str, alias: str, value: bytes) -> bytes:
        names = json.dumps([collection, name, alias]).encode() + b"\n"
        return self._sign(names + value) + names + value

    def _open(self, collection: str, sealed: bytes, *words: str) -> bytes:
        signed, content = sealed[:SEAL_BYTES], sealed[SEAL_BYTES:]
        names, _, value = content.partition(b"\n")
        if not hmac.compare_digest(signed, self._sign(content)) or not self._matches(names, collection, words):
            raise _refuse_changed()
        return value

    def _sign(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, key=self._key, digest_size=SEAL_BYTES).digest()

    def _matches(self, names: bytes, collection: str, words: tuple[str, ...]) -> bool:
        held, *known = json.loads(names)
        return held == collection and any(word in known for word in words)


def _refuse_changed() -> IntegrityError:
    return IntegrityError(
        "something in the answer store was changed behind its back; it is not used",
        remedy="Put the newest copy of the store back; charge nothing until it is explained",
    )


def _refuse_fewer(collection: str, found: int, least: int) -> IntegrityError:
    return IntegrityError(
        f"the answer store has {found} values of '{collection}', and {least} were stored: some were deleted, or the "
        "store was replaced by an older copy",
        remedy="Put the newest copy of the store back; charge nothing until it is explained",
    )


def _read_count(counted: bytes | None) -> int:
    """A count as it is stored; one that cannot be read counts nothing."""
    return int(counted) if counted is not None and counted.isdigit() else 0


def _refuse_missing(collection: str, found: int, counted: int) -> IntegrityError:
    where = f"of '{collection}'" if collection != TOTAL else "in all"
    return IntegrityError(
        f"the answer store has {found} values {where}, and {counted} were stored: some were deleted or added",
        remedy="Put the newest copy of the store back; charge nothing until it is explained",
    )


NOTHING_SEEN = b"0"
"""What a store remembers of the ledger until the first charge: that it was there before it."""


def _write_seen(number: int, head: str) -> bytes:
    """An entry so that later ones are greater as bytes."""
    return f"{number:020} {head}".encode()


class MemoryShelf:
    """A shelf that lives as long as its process."""

    def __init__(self) -> None:
        self._collections: dict[str, dict[str, bytes]] = {}
        self._aliases: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()

    def keep(self, collection: str, name: str, alias: str, value: bytes, seen: bytes | None = None) -> bytes:
        """Keep a value unless its name or alias is taken."""
        self.keep_seen(seen or b"")
        with self._lock:
            taken = next((t for t in (self._find(collection, n) for n in (name, alias)) if t is not None), None)
            if taken is None:
                self._collections.setdefault(collection, {})[name] = value
                self._aliases.setdefault(collection, {})[alias] = name
                if collection not in OWN:
                    self._add_to_counts(collection, 1)
            return value if taken is None else taken

    def hold(self, rows: Iterable[Row]) -> None:
        """Hold rows of another shelf exactly as they are; one from before values were counted is counted."""
        for collection, name, alias, value in rows:
            self._collections.setdefault(collection, {})[name] = bytes(value)
            self._aliases.setdefault(collection, {})[alias] = name
        held_values = {name: len(held) for name, held in self._collections.items() if name not in OWN}
        counts = self._collections.setdefault(COUNT, {name: b"%d" % many for name, many in held_values.items()})
        counts.setdefault(TOTAL, b"%d" % sum(held_values.values()))

    def find(self, collection: str, name: str) -> bytes | None:
        """What is kept under a name or an alias."""
        with self._lock:
            return self._find(collection, name)

    def list_all(self, collection: str) -> dict[str, bytes]:
        """All that a collection holds."""
        with self._lock:
            return dict(self._collections.get(collection, {}))

    def empty(self, collection: str) -> int:
        """Forget all that a collection holds."""
        with self._lock:
            self._aliases.pop(collection, None)
            gone = len(self._collections.pop(collection, {}))
            if collection not in OWN:
                self._add_to_counts(collection, -gone)
            return gone

    def keep_seen(self, seen: bytes) -> None:
        """Keep the last entry of the ledger that was seen, unless a later one is kept."""
        with self._lock:
            held = self._collections.setdefault(SEEN, {})
            if seen > held.get(SEEN, b""):
                held[SEEN] = seen

    def adopt_key(self, key: bytes, change: Change) -> bytes:  # noqa: ARG002  the protocol
        """The key: a new shelf holds nothing yet."""
        self._collections.setdefault(COUNT, {}).setdefault(TOTAL, b"0")
        return self.keep(SEAL, SEAL, SEAL, key)

    def dump(self) -> Iterator[Row]:
        """All that is stored, as it is."""
        with self._lock:
            aliases = {(c, name): alias for c, held in self._aliases.items() for alias, name in held.items()}
            rows = [
                (c, name, aliases.get((c, name), name), value)
                for c, held in self._collections.items()
                for name, value in held.items()
            ]
        return iter(rows)

    def close(self) -> None:
        """Nothing to let go of."""

    def _add_to_counts(self, collection: str, many: int) -> None:
        counts = self._collections.setdefault(COUNT, {})
        for name in (collection, TOTAL):
            counts[name] = b"%d" % (int(counts.get(name, b"0")) + many)

    def _find(self, collection: str, name: str) -> bytes | None:
        held = self._collections.get(collection, {})
        return held[name] if name in held else held.get(self._aliases.get(collection, {}).get(name, ""))


class SqliteShelf:
    """A shelf in a file beside the ledger; what is forgotten is overwritten."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        # Readers have a connection of their own, so that nobody who reads waits for a writer's flush.
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self.turns = Turns()
        with translate_errors(self.path):
            touch(self.path)
            self._connection = open_connection(self.path.absolute().as_uri())
            with close_on_error(self._connection):
                begin_log(self._connection)
                for pragma in ("synchronous = FULL", "secure_delete = ON"):
                    self._connection.execute(f"PRAGMA {pragma}")
                refuse_newer(find_version(self._connection), TOTALED, f"'{self.path.name}'")
                if find_version(self._connection) < SEALED:
                    migrate(self._connection, STEPS, "kept", self.path, TOTALED)
                refuse_foreign(self._connection, STEPS, self.path)
            self._reader = open_connection(f"{self.path.absolute().as_uri()}?mode=ro")
        self._group_commit: GroupCommit[sqlite3.Connection, tuple[str, str, str, bytes, bytes | None], bytes]
        self._group_commit = GroupCommit(self._transaction, _store_first)

    def keep(self, collection: str, name: str, alias: str, value: bytes, seen: bytes | None = None) -> bytes:
        """Keep a value unless its name or alias is taken; it is on the disk when this returns."""
        return self._group_commit.submit((collection, name, alias, value, seen))

    def find(self, collection: str, name: str) -> bytes | None:
        """What is kept under a name or an alias."""
        with self._reading, translate_errors(self.path):
            return _find_value(self._reader, collection, name)

    def list_all(self, collection: str) -> dict[str, bytes]:
        """All that a collection holds."""
        with self._reading, translate_errors(self.path):
            return dict(self._reader.execute("SELECT name, value FROM kept WHERE drawer = ?", (collection,)))

    def empty(self, collection: str) -> int:
        """Forget all that a collection holds; the log, which may hold old pages, is emptied too."""
        with self._transaction() as run:
            count = run.execute("DELETE FROM kept WHERE drawer = ?", (collection,)).rowcount
            _count_more(run, collection, -count)
        with self._lock, translate_errors(self.path):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return count

    def keep_seen(self, seen: bytes) -> None:
        """Keep the last entry of the ledger that was seen, unless a later one is kept."""
        with self._transaction() as run:
            _put_seen(run, seen)

    def adopt_key(self, key: bytes, change: Change) -> bytes:
        """The key of the seals; where there is none yet, this one, with everything that is stored already changed."""
        found = self.find(SEAL, SEAL)
        if found is not None and find_version(self._connection) == TOTALED:
            return found
        with self._transaction() as run:
            known = _find_value(run, SEAL, SEAL)
            if known is None:
                refuse_lost_key(find_version(run) >= SEALED)
                rows = run.execute("SELECT drawer, name, alias, value FROM kept").fetchall()
                for drawer, name, alias, value in rows:
                    sql = "UPDATE kept SET value = ? WHERE drawer = ? AND name = ?"
                    run.execute(sql, (change(drawer, name, alias, bytes(value)), drawer, name))
                run.execute("INSERT INTO kept VALUES (?, ?, ?, ?)", (SEAL, SEAL, SEAL, key))
            if find_version(run) < COUNTED:
                _count_stored(run)
            if find_version(run) < TOTALED:
                _count_all(run)
            set_version(run, TOTALED)
            return key if known is None else known

    def dump(self) -> Iterator[Row]:
        """All that is stored, as it is: collection, name, alias, value."""
        after = ("", "")
        while True:
            with self._reading, translate_errors(self.path):
                rows = self._reader.execute(PAGE, (*after, PAGE_ROWS)).fetchall()
            yield from rows
            if len(rows) < PAGE_ROWS:
                return
            after = rows[-1][:2]

    def take_turn(self) -> None:
        """Take the turn to write for a moment."""
        with self._transaction():
            pass

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, self._reading:
            self._reader.close()
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, translate_errors(self.path), roll_back_on_error(self._connection):
            self.turns.take(self._connection)
            yield self._connection
            self._connection.execute("COMMIT")


def refuse_lost_key(was_sealed: bool) -> None:
    """Refuse a store that had a key and has none: under a new one, whatever was changed meanwhile would be sealed."""
    if was_sealed:
        raise IntegrityError(
            "the answer store has lost the key of its seals",
            remedy="Put the newest copy of the store back; charge nothing until it is explained",
        )


def _put_seen(run: sqlite3.Connection, seen: bytes) -> None:
    run.execute(
        "INSERT INTO kept VALUES (?, ?, ?, ?) ON CONFLICT (drawer, name) DO UPDATE SET value = excluded.value"
        " WHERE excluded.value > kept.value",
        (SEEN, SEEN, SEEN, seen),
    )


def _store_first(run: sqlite3.Connection, asked: tuple[str, str, str, bytes, bytes | None]) -> bytes:
    collection, name, alias, value, seen = asked
    if seen is not None:
        _put_seen(run, seen)
    taken = _find_value(run, collection, name, alias)
    if taken is None:
        run.execute("INSERT INTO kept VALUES (?, ?, ?, ?)", (collection, name, alias, value))
        _count_more(run, collection, 1)
    return value if taken is None else taken


COUNT_MORE = (
    "INSERT INTO kept VALUES {} ON CONFLICT (drawer, name)"
    " DO UPDATE SET value = CAST(CAST(CAST(CAST(value AS TEXT) AS INTEGER) + :more AS TEXT) AS BLOB)"
)


def _count_more(run: sqlite3.Connection, collection: str, many: int) -> None:
    """Add to the counts; what is the store's own is not counted, and its key begins the total."""
    counted = (collection, TOTAL) if collection not in OWN else (TOTAL,) if collection == SEAL else ()
    if counted:
        names = {f"n{place}": name for place, name in enumerate(counted)}
        rows = (f"('{COUNT}', :{place}, :{place}, CAST(CAST(:more AS TEXT) AS BLOB))" for place in names)
        run.execute(COUNT_MORE.format(", ".join(rows)), names | {"more": many if collection not in OWN else 0})


def _count_stored(run: sqlite3.Connection) -> None:
    """Count what a store of an earlier version holds; one that holds something was there before its ledger charged."""
    run.execute("DELETE FROM kept WHERE drawer = ?", (COUNT,))  # as a backup had it, where one is restored
    held = run.execute("SELECT drawer, count(*) FROM kept GROUP BY drawer").fetchall()
    for drawer, count in ((drawer, count) for drawer, count in held if drawer not in OWN):
        run.execute("INSERT INTO kept VALUES (?, ?, ?, ?)", (COUNT, drawer, drawer, b"%d" % count))
    if any(drawer != SEAL for drawer, _ in held):
        _put_seen(run, NOTHING_SEEN)


def _count_all(run: sqlite3.Connection) -> None:
    """Count all values together, by the counts of their collections: what was deleted before is missed then too."""
    sql = "SELECT coalesce(sum(CAST(CAST(value AS TEXT) AS INTEGER)), 0) FROM kept WHERE drawer = ? AND name <> ?"
    (total,) = run.execute(sql, (COUNT, TOTAL)).fetchone()
    run.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)", (COUNT, TOTAL, TOTAL, b"%d" % total))


def _find_value(run: sqlite3.Connection, collection: str, *words: str) -> bytes | None:
    """What is kept under any of these words, as a name or else as an alias: one statement, each arm a step in an index.

    SQLite takes the arms in their order, and the first row ends it.
    """
    given = {"drawer": collection} | {f"w{place}": word for place, word in enumerate(words)}
    row = run.execute(_write_search(len(words)), given).fetchone()
    return None if row is None else bytes(row[0])


@cache
def _write_search(words: int) -> str:
    arms = [
        f"SELECT value FROM kept WHERE drawer = :drawer AND {column} = :w{place}"  # noqa: S608  our own words
        for column in ("name", "alias")
        for place in range(words)
    ]
    return " UNION ALL ".join(arms) + " LIMIT 1"
