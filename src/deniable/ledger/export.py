"""The ledger taken elsewhere: exported to other programs, with prices as epsilon and delta; and backed up.

CSV is for people and spreadsheets, JSON lines for programs, ECS for systems that watch many logs, Google's DP events
for accountants. A backup is one SQLite file with the entries and all that the answer store holds, wherever both are
kept; it is verified before it gets its name."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from deniable.dp.accounting import Event, cheap_epsilon, pure_cost, to_google, zcdp_cost
from deniable.errors import AccessRefused, DataError, IntegrityError, ParameterError, nearest
from deniable.ledger.answer_store import SEAL, SEEN, AnswerStore, MemoryShelf, Row, Shelf, SqliteShelf
from deniable.ledger.entry import Act, Entry, Line, MemoryStore, Store
from deniable.ledger.ledger import POSTGRES, Ledger, Verified, refuse_mismatch, verify
from deniable.ledger.sqlite import COLUMNS as LINE
from deniable.ledger.sqlite import STEPS, SqliteStore, find_version, migrate, refuse_newer, translate_errors
from deniable.storage import PRIVATE_FILE, escape_formula, storage_errors

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

SHOWN_DELTA = Fraction(1, 10**9)
"""The delta at which Gaussian noise is shown as an epsilon, where the event has none of its own."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a release cost: epsilon and delta, with rho where noise is Gaussian; all None without a guarantee."""

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    rho: Fraction | None = None


def price_of(entry: Entry) -> Price:
    """The price of an entry; nothing for an act, and no epsilon for a release without a formal guarantee."""
    if entry.act != Act.CHARGE:
        return Price()
    return price_of_event(entry.priced)


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


KEPT = "CREATE TABLE kept (drawer TEXT, name TEXT, alias TEXT, value BLOB NOT NULL, PRIMARY KEY (drawer, name)) STRICT"
"""The table of a backup with what the answer store holds."""


def back_up(ledger: Ledger, store: AnswerStore, path: Path) -> Verified:
    """Copy a ledger and its answer store into one file, as they are at one moment; refuses to replace a file.

    Nobody writes to the ledger meanwhile. The copy is verified before it gets its name.
    """
    if path.exists():
        raise AccessRefused(f"'{path.name}' is there already", remedy="Choose another name: backups are not replaced")
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        with ledger.store.begin_write() as book, storage_errors(path):
            _write_backup(part, book.after(0), store.dump())
        copied = verify_backup(part, ledger.dataset)
        with storage_errors(path):
            os.link(part, path)  # unlike a rename it refuses a file that came meanwhile
    finally:
        part.unlink(missing_ok=True)
    return copied


def _write_backup(part: Path, lines: Iterable[Line], rows: Iterable[Row]) -> None:
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE))
    with translate_errors(part), closing(sqlite3.connect(part, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        migrate(connection, STEPS, "entries", part)
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", lines)
        connection.execute(KEPT)
        connection.executemany("INSERT INTO kept VALUES (?, ?, ?, ?)", rows)
        connection.execute("COMMIT")


def verify_backup(path: Path, dataset: str) -> Verified:
    """Recompute the chain of a backup, and open every seal; refuses one of another dataset, or that was changed."""
    with closing(open_backup(path, dataset)) as ledger, closing(_hold_rows(read_backup(path)[1])) as store:
        found = verify(ledger)
        refuse_mismatch(ledger, store, "withdrawn")
        return found


def read_backup(path: Path) -> tuple[list[Line], list[Row]]:
    """The entries of a backup, and what its answer store held."""
    if not path.is_file():
        raise DataError(f"there is no backup '{path.name}'", remedy="It is written by: deniable ledger backup")
    with (
        translate_errors(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection,
    ):
        refuse_newer(find_version(connection), len(STEPS), f"'{path.name}'")
        lines = [Line(*row) for row in connection.execute(f"SELECT {LINE} FROM entries ORDER BY sequence")]  # noqa: S608
        return lines, connection.execute("SELECT drawer, name, alias, value FROM kept").fetchall()


def open_backup(path: Path, dataset: str) -> Ledger:
    """The ledger in a backup, to be read."""
    held = MemoryStore()
    for line in read_backup(path)[0]:
        held.append(line)
    return Ledger(dataset, None, held)


def _hold_rows(rows: Iterable[Row]) -> AnswerStore:
    """The rows of a store in memory; refuses rows without the key of their seals."""
    shelf, listed = MemoryShelf(), list(rows)
    if not any(collection == SEAL for collection, *_ in listed):
        raise IntegrityError("the backup has no key of its seals", remedy="Use another backup")
    _put_rows(shelf, listed)
    return AnswerStore(shelf)


def _put_rows(shelf: Shelf, rows: Iterable[Row]) -> None:
    for collection, name, alias, value in rows:
        if collection == SEEN:
            shelf.keep_seen(bytes(value))
        else:
            shelf.keep(collection, name, alias, bytes(value))


def restore_backup(path: Path, dataset: str, place: str | Path) -> Verified:
    """Write a verified backup to a place where no ledger is; refuses to replace one."""
    found = verify_backup(path, dataset)
    lines, rows = read_backup(path)
    store, shelf = _make_place(place, dataset)
    try:
        with store.begin_write() as book:
            if book.head() is not None or any(shelf.dump()):
                raise _refuse_taken(place)
            _put_rows(shelf, rows)  # first: a store without its ledger is refused, and a ledger without its store not
            for line in lines:
                book.append(line)
    finally:
        store.close()
        shelf.close()
    return found


def _make_place(place: str | Path, dataset: str) -> tuple[Store, Shelf]:
    if str(place).startswith(POSTGRES):
        from deniable.ledger.postgres import PostgresShelf, PostgresStore

        return PostgresStore(str(place), dataset), PostgresShelf(str(place), dataset)
    beside = Path(place).with_suffix(".kept.sqlite")
    if Path(place).exists() or beside.exists():
        raise _refuse_taken(place)
    return SqliteStore(place), SqliteShelf(beside)


def _refuse_taken(place: str | Path) -> AccessRefused:
    name = "the database" if str(place).startswith(POSTGRES) else f"'{Path(place).name}'"
    return AccessRefused(
        f"there is a ledger, or its answer store, at {name} already",
        remedy="Move both away first: a restored ledger never replaces one that is there",
    )
