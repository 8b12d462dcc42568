"""Whoever can write the ledger's file can change it, and cannot hide it: every field, every cut, every swap."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from deniable.errors import DeniableError, IntegrityError
from deniable.ledger import Act, Entry, Ledger, Posting, Receipt
from deniable.ledger.entry import link_of
from deniable.ledger.ledger import verify
from deniable.ledger.sqlite import SqliteStore
from ledgers import Clock, change_behind, charge, tree

FIELDS = [field.name for field in fields(Entry) if field.name != "seal"]  # these entries have none


@pytest.fixture
def written(tmp_path: Path) -> Iterator[tuple[Ledger, Path, Receipt]]:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger("clinic", tree(), SqliteStore(path), policy="sha256:p", clock=Clock(2026, 11, 15))
    for number in range(5):
        charge(ledger, "1/10", request=f"r{number}")
    ledger.record(Posting(Act.TOKEN, analyst="steward", details={"id": "x", "role": "analyst"}))
    receipt = charge(ledger, "1/10", analyst="ben")
    yield ledger, path, receipt
    ledger.close()


def tamper(path: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
    """Change the file behind the ledger's back, triggers and all."""
    with change_behind(path) as connection:
        for sql, values in statements:
            connection.execute(sql, values)


def text_of(path: Path, number: int) -> dict[str, object]:
    with sqlite3.connect(path) as connection:
        text = connection.execute("SELECT text FROM entries WHERE sequence = ?", (number,)).fetchone()[0]
    connection.close()
    found: dict[str, object] = json.loads(text)
    return found


def canonical(form: dict[str, object]) -> str:
    return json.dumps(form, sort_keys=True, separators=(",", ":"))


def other(value: object) -> object:
    """Something else of the same kind."""
    match value:
        case str() if value.startswith("2026"):
            return value.replace("2026", "2025")
        case str():
            return value + "x"
        case int():
            return value + 1
        case list():
            return [*value, "x"]
        case _:
            return {"kind": "pure", "epsilon": "1/1000"}


def test_an_untouched_ledger_verifies_up_to_every_receipt(written: tuple[Ledger, Path, Receipt]) -> None:
    ledger, _, receipt = written
    assert verify(ledger, receipt.head, receipt.number).entries == 7
    for entry in ledger.entries():
        assert verify(ledger, entry.hash, entry.sequence).head == receipt.head


@pytest.mark.parametrize("number", [1, 4, 7])
@pytest.mark.parametrize("name", FIELDS)
def test_a_change_of_any_field_is_found(written: tuple[Ledger, Path, Receipt], name: str, number: int) -> None:
    ledger, path, _ = written
    form = text_of(path, number)
    form[name] = other(form[name])
    tamper(path, ("UPDATE entries SET text = ? WHERE sequence = ?", (canonical(form), number)))
    with pytest.raises(IntegrityError, match=f"entry {number}"):
        verify(ledger)


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in ("hash", "sequence", "previous", "time")])
def test_a_change_with_a_new_hash_is_found_by_the_next_entry(written: tuple[Ledger, Path, Receipt], name: str) -> None:
    from deniable.ledger.entry import decode_entry, seal_entry
    from deniable.ledger.entry import encode_entry as as_text

    ledger, path, _ = written
    form = text_of(path, 3)
    form[name] = other(form[name])
    forged = seal_entry(decode_entry(canonical(form), 3))
    columns = (as_text(forged), forged.act, forged.analyst, forged.request)
    tamper(path, ("UPDATE entries SET text = ?, act = ?, analyst = ?, request = ? WHERE sequence = 3", columns))
    with pytest.raises(IntegrityError, match=r"entry [34]"):
        verify(ledger)


def chain_again(path: Path, number: int, **changes: object) -> None:
    """Change an entry, and forge every hash from it on, so that the chain itself holds."""
    from dataclasses import replace

    from deniable.ledger.entry import decode_entry, encode_entry, seal_entry

    before, forged = "", []
    for each in range(number, 8):
        entry = decode_entry(canonical(text_of(path, each)), each)
        changed = {"previous": before} if before else changes
        sealed = seal_entry(replace(entry, **changed))  # type: ignore[arg-type]
        before = sealed.hash
        forged.append(("UPDATE entries SET text = ? WHERE sequence = ?", (encode_entry(sealed), each)))
    tamper(path, *forged)


def test_an_entry_of_another_dataset_is_found_even_in_a_forged_chain(written: tuple[Ledger, Path, Receipt]) -> None:
    ledger, path, _ = written
    chain_again(path, 3, dataset="another")
    with pytest.raises(IntegrityError, match="entry 3 of the ledger belongs elsewhere"):
        verify(ledger)


@pytest.mark.parametrize("column", ["act", "analyst", "request"])
def test_a_change_of_what_entries_are_found_by_is_found(written: tuple[Ledger, Path, Receipt], column: str) -> None:
    ledger, path, _ = written
    tamper(path, (f"UPDATE entries SET {column} = 'x' WHERE sequence = 2", ()))
    with pytest.raises(IntegrityError, match="entry 2"):
        verify(ledger)


def test_a_deleted_entry_is_found(written: tuple[Ledger, Path, Receipt]) -> None:
    ledger, path, _ = written
    tamper(path, ("DELETE FROM entries WHERE sequence = 4", ()))
    with pytest.raises(IntegrityError, match="entry 4 of the ledger is missing"):
        verify(ledger)


def test_a_deleted_entry_is_found_when_the_rest_is_renumbered(written: tuple[Ledger, Path, Receipt]) -> None:
    ledger, path, _ = written
    renumber = [(f"UPDATE entries SET sequence = {n - 1} WHERE sequence = {n}", ()) for n in (5, 6, 7)]
    tamper(path, ("DELETE FROM entries WHERE sequence = 4", ()), *renumber)
    with pytest.raises(IntegrityError, match="entry 4"):
        verify(ledger)


def test_swapped_entries_are_found(written: tuple[Ledger, Path, Receipt]) -> None:
    ledger, path, _ = written
    swap = [(f"UPDATE entries SET sequence = {to} WHERE sequence = {at}", ()) for at, to in ((2, 99), (3, 2), (99, 3))]
    tamper(path, *swap)
    with pytest.raises(IntegrityError, match="entry 2"):
        verify(ledger)


def test_a_cut_end_is_found_by_a_receipt(written: tuple[Ledger, Path, Receipt]) -> None:
    _, path, receipt = written
    tamper(path, ("DELETE FROM entries WHERE sequence > 5", ()))
    ledger = Ledger("clinic", tree(), SqliteStore(path))
    assert verify(ledger).entries == 5
    with pytest.raises(IntegrityError, match="cut off"):
        verify(ledger, receipt.head, receipt.number)
    with pytest.raises(IntegrityError, match="cut off"):
        verify(ledger, receipt.head)
    ledger.close()


def test_a_cut_end_is_found_by_a_process_that_saw_it(written: tuple[Ledger, Path, Receipt]) -> None:
    ledger, path, _ = written
    tamper(path, ("DELETE FROM entries WHERE sequence > 5", ()))
    with pytest.raises(IntegrityError, match="cut off"):
        verify(ledger)
    for use in (lambda: charge(ledger, "1/10"), lambda: ledger.balance("research", "ana"), ledger.head):
        with pytest.raises(IntegrityError, match="cut off"):
            use()


def test_what_was_spent_is_stored_nowhere_but_in_the_entries(written: tuple[Ledger, Path, Receipt]) -> None:
    """A table of totals could be falsified: three more charges passed a spent limit that way."""
    ledger, path, _ = written
    with sqlite3.connect(path) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    connection.close()
    assert tables == ["entries"]
    fresh = Ledger("clinic", tree(), SqliteStore(path))
    assert fresh.balance("research", "ana") == ledger.balance("research", "ana")
    fresh.close()


def test_nothing_is_decided_on_a_chain_that_is_broken(written: tuple[Ledger, Path, Receipt]) -> None:
    """Both a process that opens the ledger and one that has it open refuse, before anything is written."""
    _, path, _ = written
    form = text_of(path, 2)
    form["event"] = {"kind": "pure", "epsilon": "1/1000"}
    tamper(path, ("UPDATE entries SET text = ? WHERE sequence = 2", (canonical(form),)))
    fresh = Ledger("clinic", tree(), SqliteStore(path))
    for use in (lambda: charge(fresh, "1/10"), lambda: fresh.balance("research", "ana"), fresh.head):
        with pytest.raises(IntegrityError, match="entry 2"):
            use()
    fresh.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (7,)
    connection.close()


def test_the_database_itself_refuses_to_change_or_delete_an_entry(written: tuple[Ledger, Path, Receipt]) -> None:
    _, path, _ = written
    for sql in (
        "UPDATE entries SET text = 'x' WHERE sequence = 1",
        "DELETE FROM entries",
        "INSERT INTO entries VALUES (99, 'charge', 'eve', 'r', 'x')",
        "REPLACE INTO entries VALUES (1, 'charge', 'eve', 'r', 'x')",
    ):
        with sqlite3.connect(path) as connection, pytest.raises(sqlite3.IntegrityError):
            connection.execute(sql)
        connection.close()


def test_a_file_that_is_no_ledger_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(IntegrityError, match="not a ledger"):
        SqliteStore(tmp_path / "x.sqlite")


def test_garbage_in_place_of_an_entry_is_refused_in_words(written: tuple[Ledger, Path, Receipt]) -> None:
    ledger, path, _ = written
    tamper(path, ("UPDATE entries SET text = '{\"time\": 1}' WHERE sequence = 7", ()))
    for look in (lambda: verify(ledger), lambda: charge(ledger), lambda: list(ledger.entries())):
        with pytest.raises(DeniableError):
            look()


KEY, OTHER = bytes(range(32)), bytes(32)


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[tuple[Ledger, Path]]:
    """Two entries of a version that did not seal, and three with a seal."""
    path = tmp_path / "sealed.sqlite"
    ledger = Ledger("clinic", tree(), SqliteStore(path), policy="sha256:p", clock=Clock(2026, 11, 15))
    for number in range(5):
        ledger.key = KEY if number > 1 else None
        charge(ledger, "1/10", request=f"r{number}")
    yield ledger, path
    ledger.close()


def forge(path: Path, key: bytes | None, *, strip: bool = False) -> None:
    """Append an approval by hand with the right hash, under a key or none; or take all seals off before."""
    from dataclasses import replace

    from deniable.ledger.entry import chain_entry, decode_entry, encode_entry, line_of, seal_entry

    with change_behind(path) as connection:
        texts = [text for (text,) in connection.execute("SELECT text FROM entries ORDER BY sequence")]
        entries = [decode_entry(text, number) for number, text in enumerate(texts, 1)]
        if strip:
            entries = [replace(entry, seal="") for entry in entries]
        last = replace(entries[-1], seal="") if key is None else entries[-1]
        made = chain_entry(Posting(Act.APPROVE, analyst="eve", request="x"), last, entries[-1].time, "clinic", "", key)
        if not strip and key is None:  # it follows the last one as it stands
            made = seal_entry(replace(made, previous=link_of(entries[-1], "clinic")))
        for entry in entries:
            connection.execute("UPDATE entries SET text = ? WHERE sequence = ?", (encode_entry(entry), entry.sequence))
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", line_of(made, encode_entry(made)))


@pytest.mark.parametrize(("key", "strip"), [(None, False), (OTHER, False), (None, True)])
def test_an_entry_appended_by_hand_with_the_right_hash_is_found(
    sealed: tuple[Ledger, Path], key: bytes | None, strip: bool
) -> None:
    _, path = sealed
    forge(path, key, strip=strip)
    again = Ledger("clinic", tree(), SqliteStore(path))
    again.key = KEY
    with pytest.raises(IntegrityError, match=r"was not written by deniable|does not follow the one before"):
        verify(again)
    with pytest.raises(IntegrityError, match=r"was not written by deniable|does not follow the one before"):
        charge(again, "1/10")
    again.close()


def test_who_has_the_key_of_the_answer_store_can_append_an_entry(sealed: tuple[Ledger, Path]) -> None:
    """That is what the documentation says that nothing here finds; a witness elsewhere and receipts do not either."""
    _, path = sealed
    forge(path, KEY)
    again = Ledger("clinic", tree(), SqliteStore(path))
    again.key = KEY
    assert verify(again).entries == 6
    again.close()


def test_sealed_entries_are_verified_by_whoever_has_no_key_and_written_by_nobody_without_it(
    sealed: tuple[Ledger, Path],
) -> None:
    _, path = sealed
    again = Ledger("clinic", tree(), SqliteStore(path))
    assert verify(again).entries == 5
    with pytest.raises(IntegrityError, match="the key is not at hand"):
        charge(again, "1/10")
    forge(path, None)
    with pytest.raises(IntegrityError, match="entry 6 of the ledger was not written by deniable"):
        verify(again)
    again.close()


def test_the_ledger_of_a_policy_is_sealed_with_the_key_of_its_answer_store(tmp_path: Path) -> None:
    from deniable import Curator
    from deniable.ledger.entry import sign_hash

    (tmp_path / "visits.csv").write_text("id\n" + "".join(f"{n}\n" for n in range(20)))
    (tmp_path / "policy.yaml").write_text(
        "version: 1\ndataset: clinic\ntables:\n  visits: {source: visits.csv, unit: {column: id, max_groups: 1,"
        " max_rows_per_group: 1}, columns: {id: {type: integer}}}\nbudgets: {dataset: {epsilon: 1}}\n"
    )
    with Curator.open(tmp_path / "policy.yaml") as curator:
        curator.query("SELECT COUNT(*) FROM visits", epsilon="1/2")
        curator.new_epoch("more")
    with Curator.open(tmp_path / "policy.yaml") as curator:
        assert [e.seal for e in curator.ledger.entries()] == [
            sign_hash(e.hash, curator.context.store.key) for e in curator.ledger.entries()
        ]
    forge(tmp_path / "policy.ledger.sqlite", OTHER)
    with pytest.raises(IntegrityError, match="entry 3 of the ledger was not written by deniable"):
        Curator.open(tmp_path / "policy.yaml")
