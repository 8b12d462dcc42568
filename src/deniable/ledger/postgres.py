"""The shared store: a PostgreSQL database, for several servers over one ledger (extra `postgres`).

A writer takes an advisory lock of its dataset for the length of its transaction, before anything is read, so that two
servers never decide on the same entries. Triggers refuse to change or delete an entry, against accidents.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, LiteralString, cast

from deniable.errors import UNKNOWN, AccessRefused, IntegrityError, LedgerBusy, MissingExtra, StorageError
from deniable.ledger.answer_store import COUNT, NOTHING_SEEN, OWN, SEAL, SEEN, TOTAL, Change, Row, refuse_lost_key
from deniable.ledger.entry import Line
from deniable.ledger.sqlite import close_on_error, refuse_newer

FINAL: LiteralString = "BEGIN RAISE EXCEPTION 'entries are never changed or deleted' USING ERRCODE = '23514'; END"
"""What the triggers of the entries do."""
FIND_LAYOUT: LiteralString = (
    "SELECT c.relname::text, concat_ws(' ', c.relkind, c.relpersistence, am.amname), ARRAY(SELECT concat_ws(' ',"
    " a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END,"
    " CASE WHEN a.atthasdef THEN 'default' END, CASE WHEN a.attcollation <> t.typcollation THEN 'collation' END)"
    " FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
    " WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),"
    " ARRAY(SELECT concat_ws(' ', t.tgname, t.tgtype, p.prosrc, pg_get_expr(t.tgqual, t.tgrelid))"
    " FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE t.tgrelid = c.oid AND NOT t.tgisinternal"
    " AND t.tgenabled = 'O' ORDER BY t.tgname), ARRAY(SELECT concat_ws(' ', n.contype,"
    " (SELECT string_agg(a.attname, ' ' ORDER BY place) FROM unnest(n.conkey) WITH ORDINALITY k (number, place)"
    " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number)) FROM pg_constraint n"
    " WHERE c.oid IN (n.conrelid, n.confrelid) AND n.contype <> 'n' ORDER BY 1),"
    " (SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid AND NOT EXISTS"
    " (SELECT FROM pg_constraint n WHERE n.conindid = i.indexrelid AND n.conrelid = c.oid)),"
    " (SELECT count(*) FROM pg_inherits h WHERE c.oid IN (h.inhrelid, h.inhparent)),"
    " (SELECT count(*) FROM pg_rewrite r WHERE r.ev_class = c.oid), c.relrowsecurity"
    " FROM pg_class c JOIN pg_am am ON am.oid = c.relam"
    " WHERE c.oid IN (to_regclass('deniable_entries'), to_regclass('deniable_kept'), to_regclass('deniable_layout'))"
)
"""How each table is laid out: what it is (a plain table that outlives a crash), its columns, triggers and constraints;
and how many further indexes, relatives by inheritance, rules and row security it has, which are none."""
FIND_EVENT_TRIGGERS: LiteralString = "SELECT evtname::text FROM pg_event_trigger WHERE evtenabled <> 'D' ORDER BY 1"
SCHEMA: tuple[LiteralString, ...] = (
    "CREATE TABLE IF NOT EXISTS deniable_entries (dataset text, sequence bigint, act text NOT NULL,"
    " analyst text NOT NULL, request text NOT NULL, text text NOT NULL,"
    " PRIMARY KEY (dataset, sequence), UNIQUE (dataset, analyst, request))",
    "CREATE TABLE IF NOT EXISTS deniable_kept (dataset text, drawer text, name text, alias text NOT NULL,"
    " value bytea NOT NULL, PRIMARY KEY (dataset, drawer, name), UNIQUE (dataset, drawer, alias))",
    "CREATE OR REPLACE FUNCTION deniable_entries_are_final() RETURNS trigger LANGUAGE plpgsql AS $$" + FINAL + "$$",
    "CREATE OR REPLACE TRIGGER deniable_final BEFORE UPDATE OR DELETE ON deniable_entries"
    " FOR EACH ROW EXECUTE FUNCTION deniable_entries_are_final()",
    "CREATE OR REPLACE TRIGGER deniable_whole BEFORE TRUNCATE ON deniable_entries"
    " FOR EACH STATEMENT EXECUTE FUNCTION deniable_entries_are_final()",
)
UNDO = "Find out who did that, and undo it; else restore the ledger from a backup"
PRESENCE_LOCK, WORK_LOCK = 0x64656E69, 0x64656E6A
COUNT_HOLDERS: LiteralString = (
    "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %s AND objid = %s"
    " AND objsubid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
IDENTIFY: LiteralString = (
    "SELECT (SELECT system_identifier FROM pg_control_system()), oid FROM pg_database"
    " WHERE datname = current_database()"
)
SPENDING: tuple[tuple[str, str], ...] = (
    *(("deniable_entries", right) for right in ("SELECT", "INSERT")),
    *(("deniable_kept", right) for right in ("SELECT", "INSERT", "UPDATE")),
)
"""What a role must be allowed to charge, and to store the answer that was charged for."""
READING = tuple((table, "SELECT") for table in ("deniable_layout", "deniable_entries", "deniable_kept"))
"""What a role must be allowed to read a ledger and its answer store."""
FIND_SCHEMAS: LiteralString = (
    "SELECT quote_ident(n.nspname), quote_ident(current_user), has_schema_privilege(n.oid, 'USAGE'),"
    " has_schema_privilege(n.oid, 'CREATE'),"
    " EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'deniable_entries')"
    " FROM unnest(string_to_array(current_setting('search_path'), ',')) WITH ORDINALITY s (name, place)"
    " JOIN pg_namespace n ON n.nspname = replace(btrim(s.name, ' \"'), '$user', current_user) ORDER BY s.place"
)
"""The schemas in which the tables are looked for: what the role may do there, and which holds them."""
FIND_REFUSED: LiteralString = (
    "SELECT t.place, format('%%I.%%I', n.nspname, c.relname), t.held, quote_ident(current_user)"
    " FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY t (name, held, place)"
    " JOIN pg_class c ON c.oid = to_regclass(t.name) JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE NOT has_table_privilege(c.oid, t.held) AND NOT (t.held <> 'DELETE' AND (SELECT bool_and("
    "has_column_privilege(a.attrelid, a.attnum, CASE t.held WHEN 'DELETE' THEN 'SELECT' ELSE t.held END))"
    " FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)) ORDER BY t.place"
)
"""Which of these rights the role has not, on the whole table or on each of its columns; and what to grant to whom."""
WAIT_SECONDS = 10
"""How long a connection, a lock or a statement may take: a database that stalls must not hold its servers up."""
MOST_CONNECTIONS = 4
"""Connections that one process opens to a ledger: those who read do not wait for the one who writes."""
STEPS: tuple[tuple[LiteralString, ...], ...] = (
    SCHEMA,
    # Totals beside the entries could be falsified; what was spent follows from the entries alone.
    ("DROP TABLE IF EXISTS deniable_totals",),
    # Values are counted, so that one that was deleted is missed.
    (
        "INSERT INTO deniable_kept SELECT dataset, 'count', drawer, drawer, count(*)::text::bytea FROM deniable_kept"
        " WHERE drawer NOT IN ('seen', 'seal', 'count') GROUP BY dataset, drawer ON CONFLICT DO NOTHING",
    ),
    # All together are counted too, so that a collection that was deleted with its count is missed.
    (
        "INSERT INTO deniable_kept SELECT dataset, 'count', '', '', coalesce(sum(convert_from(value, 'UTF8')::bigint)"
        " FILTER (WHERE drawer = 'count' AND name <> ''), 0)::text::bytea FROM deniable_kept GROUP BY dataset"
        " ON CONFLICT DO NOTHING",
    ),
    # Entries are sealed: earlier versions cannot read them.
    (),
)
"""How a layout becomes the next one. A database from before layouts had numbers is of one of these."""
LAYOUT: tuple[LiteralString, ...] = (
    "CREATE TABLE IF NOT EXISTS deniable_layout (version integer NOT NULL)",
    "GRANT SELECT ON deniable_layout TO PUBLIC",
    "INSERT INTO deniable_layout SELECT 0 WHERE NOT EXISTS (SELECT FROM deniable_layout)",
)
SCHEMA_LOCK = 0x64656E6961626C65  # 'deniable': one process at a time lays the tables out
FIND: LiteralString = (
    "SELECT value FROM deniable_kept WHERE dataset = %s AND drawer = %s AND (name = ANY(%s) OR alias = ANY(%s))"
)
COUNT_MORE: LiteralString = (
    "INSERT INTO deniable_kept VALUES (%(dataset)s, %(drawer)s, %(name)s, %(name)s, %(many)s::bigint::text::bytea)"
    " ON CONFLICT (dataset, drawer, name) DO UPDATE"
    " SET value = (convert_from(deniable_kept.value, 'UTF8')::bigint + %(many)s)::text::bytea"
)


class Database:
    """A few connections to the database of a ledger: a transaction takes one that is free, or opens another."""

    def __init__(self, address: str, dataset: str) -> None:
        self._address = address
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._free: list[Any] = []
        self._owner = os.getpid()
        self._closed = False
        self._presence: Any = None
        self.dataset = dataset
        # A 63-bit name of the dataset: two datasets that share it only wait for each other.
        self.key = int.from_bytes(hashlib.sha256(dataset.encode()).digest()[:8], "big") >> 1
        with close_on_error(self):
            with self.transaction() as run:
                version = _find_version(run)
                if not version:
                    refuse_closed_schemas(run, make=True)
            refuse_newer(version, len(STEPS), "the ledger's database")
            if version < len(STEPS):  # a role that may not make tables can use a ledger that is laid out
                self._migrate()
            with self.transaction() as run:
                _refuse_foreign(run)

    @contextmanager
    def transaction(self, lock: int | None = None) -> Iterator[Any]:
        """A transaction, holding the lock of that number from its first moment."""
        psycopg, done = import_driver(), False
        if not self._room.acquire(timeout=WAIT_SECONDS):
            raise _refuse_database(None)
        try:
            with ExitStack() as stack:
                connection, transaction = self._begin(lock)
                stack.callback(self._put_back, connection)
                stack.push(transaction)
                yield connection.execute
                done = lock is not None  # what fails from here on fails at the commit, whose reply may be lost
        except psycopg.errors.IntegrityError:
            raise IntegrityError("the ledger's database refused a change of what is written") from None
        except psycopg.errors.LockNotAvailable:
            raise LedgerBusy("the ledger is busy: another process holds it", remedy="Try again") from None
        except psycopg.Error as failure:
            self._drop_free()  # those that wait were lost with this one, as when the database was started anew
            missing = find_missing_right(self._address, failure)
            raise missing or _refuse_database(UNKNOWN if done else None) from None
        finally:
            self._room.release()

    def _migrate(self) -> None:
        """Bring the tables to the newest layout, one step after the other in one transaction."""
        with self.transaction(SCHEMA_LOCK) as run:
            for statement in LAYOUT:
                run(statement)
            for number, statements in enumerate(STEPS[_find_version(run) :], start=_find_version(run) + 1):
                for statement in statements:
                    run(statement)
                run("UPDATE deniable_layout SET version = %s", (number,))

    def close(self) -> None:
        """Let go of the database."""
        self._closed = True
        self._drop_free()
        if self._presence is not None:
            self._presence.close()

    def count_servers(self) -> int:
        """How many servers share this dataset's ledger: each holds a shared lock for as long as it is connected."""
        psycopg, lock = import_driver(), (PRESENCE_LOCK, self.key & 0x7FFFFFFF)
        kept = self._presence is not None and not self._presence.closed
        try:
            if not kept:
                self._presence = self._connect()
                self._presence.execute("SELECT pg_advisory_lock_shared(%s, %s)", lock)
            return int(self._presence.execute(COUNT_HOLDERS, lock).fetchone()[0])
        except psycopg.Error as failure:
            if kept and self._presence.closed:  # lost, as when the database was started anew
                return self.count_servers()
            raise find_missing_right(self._address, failure) or _refuse_database(None) from None

    def _begin(self, lock: int | None) -> tuple[Any, Any]:
        """A connection, and a transaction that began on it; one that was lost before that is replaced by another."""
        kept = self._find_free()
        connection = kept or self._connect()
        transaction = connection.transaction()
        try:
            transaction.__enter__()
            if lock is not None:
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        except Exception:
            lost = connection.closed
            connection.close()
            if kept is None or not lost:
                raise
            return self._begin(lock)
        return connection, transaction

    def _connect(self) -> Any:
        return import_driver().connect(self._address, autocommit=True, **limit_waiting())

    def _find_free(self) -> Any | None:
        if os.getpid() != self._owner:  # a connection must not cross a fork
            self._owner, self._free = os.getpid(), []
        while self._free:
            connection = self._free.pop()
            if not connection.closed:
                return connection
        return None

    def _put_back(self, connection: Any) -> None:
        if self._closed:
            connection.close()
        elif not connection.closed:
            self._free.append(connection)

    def _drop_free(self) -> None:
        while self._free:
            self._free.pop().close()


@contextmanager
def hold_name(address: str, name: str) -> Iterator[bool]:
    """Hold a name for as long as some work takes, over all hosts; whether no other process holds it."""
    psycopg, key = import_driver(), int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1
    try:
        connection = psycopg.connect(address, autocommit=True, **limit_waiting())
        held = bool(connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (WORK_LOCK, key)).fetchone()[0])
    except psycopg.Error as failure:
        raise find_missing_right(address, failure) or _refuse_database(None) from None
    with connection:
        yield held


class PostgresStore:
    """A ledger in a database that servers may share; for `spending` a role must be able to store what it charges."""

    def __init__(self, address: str, dataset: str, *, spending: bool = False) -> None:
        self._database = Database(address, dataset)
        self._spending = spending
        if spending:
            with close_on_error(self._database), self._database.transaction() as run:
                _refuse_missing_rights(run, SPENDING)

    @contextmanager
    def begin_write(self) -> Iterator[PostgresBook]:
        """The one writer's transaction; the rights are looked at again, since they may have been taken away."""
        with self._database.transaction(self._database.key) as run:
            if self._spending:
                _refuse_missing_rights(run, SPENDING)
            yield PostgresBook(run, self._database.dataset)

    @contextmanager
    def begin_read(self) -> Iterator[PostgresBook]:
        """A consistent view; it does not hold up a writer."""
        with self._database.transaction() as run:
            run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield PostgresBook(run, self._database.dataset)

    def last(self) -> int:
        """The number of the last entry."""
        sql = "SELECT coalesce(max(sequence), 0) FROM deniable_entries WHERE dataset = %s"
        with self._database.transaction() as run:
            return int(run(sql, (self._database.dataset,)).fetchone()[0])

    def lines(self, after: int = 0, acts: tuple[str, ...] = ()) -> Iterator[Line]:
        """The entries after that number, of these acts or of all, a thousand at a time."""
        sql = (
            "SELECT sequence, act, analyst, request, text FROM deniable_entries WHERE dataset = %s AND sequence > %s"
            " AND (%s OR act = ANY(%s)) ORDER BY sequence LIMIT 1000"
        )
        while True:
            with self._database.transaction() as run:
                rows = run(sql, (self._database.dataset, after, not acts, list(acts))).fetchall()
            yield from (Line(*row) for row in rows)
            if not rows:
                return
            after = rows[-1][0]

    def find_key(self) -> bytes | None:
        """The key of the answer store; None where it never saw the ledger, or the role may not read it."""
        with suppress(StorageError, AccessRefused), self._database.transaction() as run:
            mine = self._database.dataset
            seen, found = (run(FIND, (mine, each, [each], [each])).fetchone() for each in (SEEN, SEAL))
            return bytes(found[0]) if seen is not None and found is not None else None
        return None

    def identify(self) -> str:
        """The cluster and the database in it, whatever its host is called, and the dataset there."""
        with self._database.transaction() as run:
            cluster, database = run(IDENTIFY).fetchone()
        return f"postgresql {cluster}/{database}#{self._database.dataset}"

    def count_servers(self) -> int:
        """How many servers share this ledger, this one among them."""
        return self._database.count_servers()

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()


class PostgresBook:
    """The ledger inside one transaction."""

    def __init__(self, run: Any, dataset: str) -> None:
        self._run = run
        self._dataset = dataset

    def head(self) -> str | None:
        """The text of the last entry."""
        return self._one("SELECT text FROM deniable_entries WHERE dataset = %s ORDER BY sequence DESC LIMIT 1")

    def of_request(self, analyst: str, request: str) -> str | None:
        """The text of the entry that a request left behind."""
        sql: LiteralString = (
            "SELECT text FROM deniable_entries WHERE dataset = %s AND analyst = %s AND request = %s AND sequence > 0"
        )
        return self._one(sql, analyst, request)

    def after(self, sequence: float) -> Iterator[Line]:
        """The entries after that number."""
        sql = (
            "SELECT sequence, act, analyst, request, text FROM deniable_entries"
            " WHERE dataset = %s AND sequence > %s ORDER BY sequence"
        )
        return (Line(*row) for row in self._run(sql, (self._dataset, sequence)))

    def append(self, line: Line) -> None:
        """Write an entry at the end."""
        self._run("INSERT INTO deniable_entries VALUES (%s, %s, %s, %s, %s, %s)", (self._dataset, *line))

    def _one(self, sql: LiteralString, *values: str) -> str | None:
        row = self._run(sql, (self._dataset, *values)).fetchone()
        return None if row is None else cast(str, row[0])


class PostgresShelf:
    """Values of an answer store in the ledger's database."""

    def __init__(self, address: str, dataset: str) -> None:
        self._database = Database(address, dataset)
        with close_on_error(self._database), self._database.transaction() as run:
            _refuse_missing_rights(run, (("deniable_kept", "SELECT"),))

    def keep(self, collection: str, name: str, alias: str, value: bytes, seen: bytes | None = None) -> bytes:
        """Keep a value unless its name or alias is taken; what is there needs no right to write."""
        if seen is None and (kept := self._find_value(collection, [name, alias])) is not None:
            return kept
        sql = "INSERT INTO deniable_kept VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
        with self._database.transaction() as run:
            if seen is not None:
                self._put_seen(run, seen)
            stored = run(sql, (self._database.dataset, collection, name, alias, value)).rowcount
            self._count_more(run, collection, stored)
        kept = self._find_value(collection, [name, alias])
        return value if kept is None else kept

    def find(self, collection: str, name: str) -> bytes | None:
        """What is kept under a name or an alias."""
        return self._find_value(collection, [name])

    def list_all(self, collection: str) -> dict[str, bytes]:
        """All that a collection holds."""
        sql = "SELECT name, value FROM deniable_kept WHERE dataset = %s AND drawer = %s"
        with self._database.transaction() as run:
            return {name: bytes(value) for name, value in run(sql, (self._database.dataset, collection))}

    def empty(self, collection: str) -> int:
        """Forget all that a collection holds."""
        sql = "DELETE FROM deniable_kept WHERE dataset = %s AND drawer = %s"
        with self._database.transaction() as run:
            _refuse_missing_rights(run, (("deniable_kept", "DELETE"),))
            count = int(run(sql, (self._database.dataset, collection)).rowcount)
            self._count_more(run, collection, -count)
        return count

    def keep_seen(self, seen: bytes) -> None:
        """Keep the last entry of the ledger that was seen, unless a later one is kept."""
        with self._database.transaction() as run:
            self._put_seen(run, seen)

    def _count_more(self, run: Any, collection: str, many: int) -> None:
        """Add to the counts; what is the store's own is not counted, and its key begins the total.

        The total comes last everywhere, so that two who write do not wait for each other for good.
        """
        counted = (collection, TOTAL) if collection not in OWN else (TOTAL,) if collection == SEAL else ()
        more = {"dataset": self._database.dataset, "drawer": COUNT, "many": many if collection not in OWN else 0}
        for name in counted if many or collection == SEAL else ():
            run(COUNT_MORE, {**more, "name": name})

    def _put_seen(self, run: Any, seen: bytes) -> None:
        sql = (
            "INSERT INTO deniable_kept VALUES (%s, %s, %s, %s, %s) ON CONFLICT (dataset, drawer, name)"
            " DO UPDATE SET value = excluded.value WHERE excluded.value > deniable_kept.value"
        )
        run(sql, (self._database.dataset, SEEN, SEEN, SEEN, seen))

    def adopt_key(self, key: bytes, change: Change) -> bytes:
        """The key of the seals; where there is none yet, this one, with everything that is stored already changed."""
        mine = self._database.dataset
        with self._database.transaction(self._database.key) as run:
            found = run(FIND, (mine, SEAL, [SEAL], [SEAL])).fetchone()
            if found is None:
                refuse_lost_key(run(FIND, (mine, SEEN, [SEEN], [SEEN])).fetchone() is not None)
                rows = run(
                    "SELECT drawer, name, alias, value FROM deniable_kept WHERE dataset = %s", (mine,)
                ).fetchall()
                sql = "UPDATE deniable_kept SET value = %s WHERE dataset = %s AND drawer = %s AND name = %s"
                for drawer, name, alias, value in (row for row in rows if row[0] not in OWN):
                    run(sql, (change(drawer, name, alias, bytes(value)), mine, drawer, name))
                if rows:  # it was there before the ledger charged
                    self._put_seen(run, NOTHING_SEEN)
                run("INSERT INTO deniable_kept VALUES (%s, %s, %s, %s, %s)", (mine, SEAL, SEAL, SEAL, key))
                self._count_more(run, SEAL, 1)
            return key if found is None else bytes(found[0])

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def dump(self) -> Iterator[Row]:
        """All that is stored, as it is: collection, name, alias, value."""
        sql = (
            "SELECT drawer, name, alias, value FROM deniable_kept WHERE dataset = %s AND (drawer, name) > (%s, %s)"
            " ORDER BY drawer, name LIMIT 1000"
        )
        rows: list[Any] = [("", "")]
        while rows:
            with self._database.transaction() as run:
                rows = run(sql, (self._database.dataset, *rows[-1][:2])).fetchall()
            yield from ((drawer, name, alias, bytes(value)) for drawer, name, alias, value in rows)

    def _find_value(self, collection: str, names: list[str]) -> bytes | None:
        with self._database.transaction() as run:
            row = run(FIND, (self._database.dataset, collection, names, names)).fetchone()
        return None if row is None else bytes(row[0])


def _find_version(run: Any) -> int:
    """The number of the layout; 0 in a new database, and in one from before layouts had numbers."""
    if run("SELECT to_regclass('deniable_layout')").fetchone()[0] is None:
        return 0
    versions = [int(version) for (version,) in run("SELECT version FROM deniable_layout").fetchall()]
    if len(versions) != 1:
        happened, expected = f"deniable_layout has {len(versions)} rows", "One row, with the number of the layout"
        raise IntegrityError(happened, expected=expected, remedy=UNDO)
    return versions[0]


PLAIN, NOTHING_ELSE = "r p heap", (0, 0, 0, False)
TEXTS = [f"{name} text not null" for name in ("act", "analyst", "request", "text")]
NAMES = [f"{name} text not null" for name in ("dataset", "drawer", "name", "alias")]
FINAL_TRIGGERS = [f"deniable_final 27 {FINAL}", f"deniable_whole 34 {FINAL}"]
"""Before an update or a deletion; before all is deleted."""
EXPECTED: dict[str, tuple[Any, ...]] = {
    "deniable_entries": (PLAIN, ["dataset text not null", "sequence bigint not null", *TEXTS], FINAL_TRIGGERS,
                         ["p dataset sequence", "u dataset analyst request"], *NOTHING_ELSE),
    "deniable_kept": (PLAIN, [*NAMES, "value bytea not null"], [],
                      ["p dataset drawer name", "u dataset drawer alias"], *NOTHING_ELSE),
    "deniable_layout": (PLAIN, ["version integer not null"], [], [], *NOTHING_ELSE),
}  # fmt: skip
"""How the tables are laid out, as FIND_LAYOUT tells it."""


def _refuse_foreign(run: Any) -> None:
    """Refuse tables that are not exactly what this version lays out, and a database with event triggers.

    What somebody added could drop or invent entries while the chain looks whole; a table that is not logged is empty
    after a crash.
    """
    found = {name: tuple(rest) for name, *rest in run(FIND_LAYOUT).fetchall()}
    changed = sorted(name for name in EXPECTED if found.get(name) != EXPECTED[name])
    if changed:
        raise IntegrityError(
            f"{', '.join(changed)} in the ledger's database is not laid out as deniable does it: a column, constraint, "
            "index, trigger, rule, child table or row security was added, changed or removed, or it is not logged",
            expected="The tables and triggers of this version, and nothing else on them",
            remedy=UNDO,
        )
    events = [name for (name,) in run(FIND_EVENT_TRIGGERS).fetchall()]
    if events:
        expected = "None: they run whatever somebody wrote when tables are laid out, or at every connection"
        remedy = "Find out whose they are, and remove them; or give the ledger a database of its own"
        happened = f"the ledger's database has event triggers: {', '.join(events)}"
        raise IntegrityError(happened, expected=expected, remedy=remedy)


def _refuse_missing_rights(run: Any, needed: tuple[tuple[str, str], ...]) -> None:
    """Refuse a role that lacks rights, with what its owner grants."""
    found = run(FIND_REFUSED, ([name for name, _ in needed], [right for _, right in needed])).fetchall()
    if not found:
        return
    tables = list(dict.fromkeys(table for _, table, _, _ in found))
    lacks = {table: ", ".join(right for _, name, right, _ in found if name == table) for table in tables}
    role = found[0][3]
    raise AccessRefused(
        f"the database role {role} may not use the ledger: it lacks "
        + " and ".join(f"{rights} on {table}" for table, rights in lacks.items()),
        expected="To read, SELECT on both tables; to charge and store answers, INSERT on both and UPDATE on "
        "deniable_kept; to forget answers, DELETE there",
        remedy="Have the owner of the tables run: "
        + " ".join(f"GRANT {rights} ON {table} TO {role};" for table, rights in lacks.items()),
    )


def refuse_closed_schemas(run: Any, *, make: bool) -> None:
    """Refuse a role that may not see the tables of a ledger, or `make` those of a new one."""
    schemas = run(FIND_SCHEMAS).fetchall()
    closed = [(schema, role, "USAGE") for schema, role, usage, _, holds in schemas if holds and not usage]
    if make and schemas and not any(holds for *_, holds in schemas):
        schema, role, usage, create, _ = next((each for each in schemas if each[2]), schemas[-1])
        lacks = ", ".join(right for right, held in (("USAGE", usage), ("CREATE", create)) if not held)
        closed = [(schema, role, lacks)] if lacks else []
    for schema, role, lacks in closed[:1]:
        raise AccessRefused(
            f"the database role {role} may not use the ledger: it lacks {lacks} on schema {schema}",
            remedy=f"Have the owner of the schema run: GRANT {lacks} ON SCHEMA {schema} TO {role};",
        )


def find_missing_right(address: str, failure: Exception) -> AccessRefused | None:
    """The refusal of a role that lacks a right, with what to grant to it; None where a failure has another cause."""
    psycopg = import_driver()
    if isinstance(failure, psycopg.OperationalError) and "CONNECT" in str(failure):
        told = psycopg.conninfo.conninfo_to_dict(address)
        database, role = (psycopg.sql.Identifier(str(told.get(each))).as_string(None) for each in ("dbname", "user"))
        return AccessRefused(
            "the database role may not connect to the ledger's database",
            remedy=f"Have its owner run: GRANT CONNECT ON DATABASE {database} TO {role};",
        )
    hidden, denied = psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege
    if not isinstance(failure, hidden | denied | psycopg.errors.InvalidSchemaName):
        return None
    try:
        with suppress(psycopg.Error), psycopg.connect(address, **limit_waiting()) as connection:
            refuse_closed_schemas(connection.execute, make=not isinstance(failure, hidden))
            for needed in (READING, SPENDING):
                _refuse_missing_rights(connection.execute, needed)
    except AccessRefused as refusal:
        return refusal
    return None if not isinstance(failure, denied) else AccessRefused(
        f"the database role may not do this: {failure.diag.message_primary}",
        remedy="Have the owner of what is named grant it, or, after an update of deniable, open the ledger once: "
        "deniable ledger verify",
    )  # fmt: skip


def _refuse_database(charge: str | None) -> StorageError:
    """The refusal of a database that fails; the driver's own text may quote the address with its password."""
    remedy = "Check that it runs, its address, its disk and its permissions"
    return StorageError("the ledger's PostgreSQL database could not be used", remedy=remedy, charge=charge)


def limit_waiting() -> dict[str, str | int]:
    """What a connection is opened with: it gives up on a server that does not answer, and on locks that others hold."""
    milliseconds = WAIT_SECONDS * 1000
    limits = dict.fromkeys(("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"), milliseconds)
    options = " ".join(f"-c {name}={value}" for name, value in limits.items())
    alive = {"keepalives_idle": WAIT_SECONDS, "keepalives_interval": 2, "keepalives_count": 3}
    waits: dict[str, str | int] = {"connect_timeout": WAIT_SECONDS, "tcp_user_timeout": milliseconds}
    return waits | alive | {"options": f"{options} -c synchronous_commit=on"}


def import_driver() -> Any:
    """The module psycopg; refuses where it is not installed."""
    try:
        import psycopg
    except ImportError:
        install = "Install it: pip install 'deniable[postgres]'"
        raise MissingExtra("a ledger in PostgreSQL needs psycopg", remedy=install) from None
    return psycopg
