"""Small promises of the ledger, each to the letter: canonical text, private files, what is closed, what is exported."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from deniable.dp.accounting import (
    GaussianEvent,
    LaplaceEvent,
    NoOpEvent,
    PureEvent,
    accountant_for,
)
from deniable.errors import (
    AccessRefused,
    BudgetExceeded,
    DataError,
    DeniableError,
    IntegrityError,
    ParameterError,
    StorageError,
)
from deniable.ledger import Act, Ledger, Posting
from deniable.ledger.answer_store import SqliteShelf
from deniable.ledger.budget_tree import _find_spent, settle_account
from deniable.ledger.entry import Line, MemoryStore, decode_entry, digest, encode_entry, genesis, hash_of
from deniable.ledger.export import export, price_of_event
from deniable.ledger.ledger import open_ledger, verify
from deniable.ledger.sqlite import SqliteStore, translate_errors
from deniable.policy.access import Accounting, Analyst, Budgets, Purpose
from deniable.policy.budget import PureDP
from deniable.policy.document import Policy, read
from ledgers import Clock, charge, plain, tree

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: row
    columns:
      age: {type: integer, between: [0, 100]}
budgets:
  dataset: {epsilon: 1}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    return read(tmp_path / "policy.yaml")


@pytest.fixture
def open_mask() -> Iterator[None]:
    """A process that lets everybody read its new files."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_hashes_are_of_sorted_tight_ascii_text_so_that_other_programs_can_verify_them() -> None:
    text = r'{"a":[1,null],"b":"caf\u00e9"}'
    assert digest({"b": "café", "a": [1, None]}) == hashlib.sha256(text.encode("ascii")).hexdigest()
    with pytest.raises(ValueError, match="JSON"):
        digest(float("nan"))


def test_an_entry_is_stored_as_ascii_and_read_back_the_same() -> None:
    ledger = Ledger("clinic")
    ledger.record(Posting(Act.RELEASE, details={"who": "Zoë"}))
    entry = ledger.head()
    assert entry is not None
    assert encode_entry(entry).isascii()
    assert decode_entry(encode_entry(entry), 1) == entry


def test_exported_details_are_in_one_order() -> None:
    ledger = Ledger("clinic", plain(1))
    ledger.charge(Posting(Act.CHARGE, PureEvent("1/4"), details={"b": 1, "a": {"d": 2, "c": 3}}))
    rows = list(csv.DictReader(export(ledger.entries(), "csv")))
    assert rows[0]["details"] == '{"a": {"c": 3, "d": 2}, "b": 1}'
    assert list(json.loads(rows[0]["event"])) == sorted(json.loads(rows[0]["event"]))
    assert (rows[0]["epsilon"], rows[0]["delta"], rows[0]["rho"]) == ("0.25", "0", "")
    line = next(iter(export(ledger.entries(), "jsonl")))
    assert list(json.loads(line)) == sorted(json.loads(line))
    with pytest.raises(ParameterError, match="no form"):
        export(ledger.entries(), "xml")


def test_cells_that_a_spreadsheet_would_compute_are_exported_as_text() -> None:
    ledger = Ledger("clinic", plain(1))
    for analyst in ("=1+1", "+1+1", "-a", "@x", "\tx", "plain", "-1"):
        charge(ledger, "1/100", analyst=analyst, purpose="")
    names = [row["analyst"] for row in csv.DictReader(export(ledger.entries(), "csv"))]
    assert names == ["'=1+1", "'+1+1", "'-a", "'@x", "'\tx", "plain", "-1"]  # a plain number is nothing to run


def test_gaussian_noise_is_shown_with_its_rho_and_at_a_delta_of_one_in_a_billion() -> None:
    price = price_of_event(GaussianEvent(1, 1))
    assert (price.delta, price.rho) == (Fraction(1, 10**9), Fraction(1, 2))
    assert price.epsilon is not None
    assert 5 < price.epsilon < 7


def test_who_is_not_granted_is_not_admitted() -> None:
    ledger = Ledger("clinic", tree())
    ledger.admit("research", "ana")
    ledger.admit()
    for purpose, analyst in (("operations", "ana"), ("marketing", "ana"), ("", "ana"), ("research", "eve")):
        with pytest.raises(AccessRefused):
            ledger.admit(purpose, analyst)


def test_a_node_without_a_limit_says_its_spending_at_delta_zero_under_privacy_losses() -> None:
    spent = _find_spent(accountant_for(Accounting.PLD, None).compose(PureEvent("1/2")))
    assert spent is not None
    assert spent.delta == 0
    assert Fraction(49, 100) < spent.epsilon <= Fraction(51, 100)  # type: ignore[union-attr]


def test_an_analyst_of_the_stewards_name_is_held_to_that_analysts_limit() -> None:
    everybody = (Analyst("steward", ("research",), PureDP(Fraction(1, 10))),)
    ledger = Ledger("clinic", Budgets(PureDP(1), Accounting.PURE, (Purpose("research", PureDP(1)),), everybody))
    assert ledger.find_remaining("research", "steward") == PureDP(Fraction(1, 10))
    assert Ledger("clinic", tree()).find_remaining("", "steward") == PureDP(4)


def test_only_a_ledger_that_is_there_can_be_opened_to_be_read(tmp_path: Path, policy: Policy) -> None:
    place = tmp_path / "ledger.sqlite"
    with pytest.raises(DataError, match="there is no ledger"):
        open_ledger(place, policy, writable=False)
    assert not place.exists()
    made = open_ledger(place, policy)
    charge(made, "1/4", analyst="", purpose="")
    made.close()
    opened = open_ledger(place, policy, writable=False)
    assert [entry.sequence for entry in opened.entries()] == [1]
    with pytest.raises(DeniableError):
        charge(opened, "1/4", analyst="", purpose="")
    opened.close()


@pytest.mark.usefixtures("open_mask")
def test_files_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    for store in (SqliteStore(tmp_path / "ledger.sqlite"), SqliteShelf(tmp_path / "ledger.kept.sqlite")):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob(store.path.name + "*")}
        assert set(modes.values()) == {0o600}, modes
        store.close()


def test_a_closed_store_neither_reads_nor_writes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.sqlite")
    ledger = Ledger("clinic", plain(1), store)
    charge(ledger, "1/4", analyst="", purpose="")
    ledger.close()
    with pytest.raises(StorageError):
        store.last()
    with pytest.raises(StorageError):
        charge(ledger, "1/4", analyst="", purpose="")
    kept = SqliteShelf(tmp_path / "ledger.kept.sqlite")
    kept.close()
    with pytest.raises(StorageError):
        kept.find("a", "b")
    with pytest.raises(StorageError):
        kept.keep("a", "b", "", b"c")


def test_stores_flush_before_they_answer_and_overwrite_what_they_forget(tmp_path: Path) -> None:
    ledger, answers = SqliteStore(tmp_path / "l.sqlite"), SqliteShelf(tmp_path / "l.kept.sqlite")
    for store in (ledger, answers):
        asked = store._connection.execute
        assert asked("PRAGMA journal_mode").fetchone() == ("wal",)
        assert asked("PRAGMA synchronous").fetchone() == (2,), "2 is FULL"
    assert answers._connection.execute("PRAGMA secure_delete").fetchone() == (1,)
    answers.keep("a", "name", "", b"forgotten-answer")
    assert answers.empty("a") == 1
    assert not any(b"forgotten-answer" in path.read_bytes() for path in tmp_path.iterdir())
    ledger.close()
    answers.close()


@pytest.mark.parametrize(
    ("name", "refusal", "told"),
    [
        ("SQLITE_CANTOPEN", StorageError, "it cannot be opened"),
        ("SQLITE_FULL", StorageError, "the disk is full"),
        ("SQLITE_READONLY_DBMOVED", StorageError, "it is read-only"),
        ("SQLITE_BUSY_SNAPSHOT", StorageError, "another process holds it"),
        ("SQLITE_IOERR_WRITE", StorageError, "the disk refused to write"),
        ("SQLITE_MISUSE", StorageError, "the database refused"),
        ("SQLITE_NOTADB", IntegrityError, "is not a ledger, or was damaged"),
        ("SQLITE_CORRUPT_INDEX", IntegrityError, "is not a ledger, or was damaged"),
    ],
)
def test_what_sqlite_refuses_is_told_in_words(name: str, refusal: type[DeniableError], told: str) -> None:
    failure = sqlite3.OperationalError("words of SQLite")
    failure.sqlite_errorname = name  # type: ignore[misc]
    with pytest.raises(refusal, match=told), translate_errors(Path("somewhere/ledger.sqlite")):
        raise failure


def test_a_place_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        SqliteStore(tmp_path / "no folder" / "ledger.sqlite")


def test_more_entries_than_one_reading_takes_come_in_order_and_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.sqlite")
    with store.begin_write() as book:
        for sequence in range(1, 2102):
            act = "charge" if sequence % 3 else "grant"
            book.append(_line(sequence, act))
    assert [line.sequence for line in store.lines()] == list(range(1, 2102))
    assert [line.sequence for line in store.lines(1999)] == list(range(2000, 2102))
    assert [line.sequence for line in store.lines(0, ("grant",))] == list(range(3, 2102, 3))
    assert store.last() == 2101
    store.close()


def _line(sequence: int, act: str) -> Line:
    return Line(sequence, act, "ana", f"r{sequence}", "{}")


def test_a_memory_that_fails_within_a_transaction_forgets_all_of_it() -> None:
    store = MemoryStore()
    with store.begin_write() as book:
        book.append(_line(1, "charge"))

    def fail() -> None:
        with store.begin_write() as book:
            book.append(_line(2, "charge"))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert store.last() == 1
    assert store.of_request("ana", "r1") == "{}"
    assert store.of_request("ana", "r2") is None
    assert [line.sequence for line in store.after(0)] == [1]


def test_an_entry_has_the_time_of_the_clock_also_where_it_was_set_back() -> None:
    now = [datetime(2026, 11, 15, tzinfo=UTC)]
    ledger = Ledger("clinic", plain(1), clock=lambda: now[0])
    for days in (0, -40, 80):
        now[0] += timedelta(days=days)
        assert charge(ledger, "1/4", analyst="", purpose="").time == now[0]
    assert verify(ledger).entries == 3


def test_a_broken_hash_is_not_the_hash_of_its_entry() -> None:
    ledger = Ledger("clinic", plain(1))
    charge(ledger, "1/4", analyst="", purpose="")
    entry = ledger.head()
    assert entry is not None
    assert hash_of(entry) == entry.hash
    for change in ({"analyst": "eve"}, {"sequence": 2}, {"previous": "0"}, {"details": {"a": 1}}):
        assert hash_of(replace(entry, **change)) != entry.hash  # type: ignore[arg-type]


def test_a_balance_is_renewed_with_its_period_though_nobody_charges() -> None:
    clock = Clock(2026, 11, 30, 12)
    ledger = Ledger("clinic", tree(), clock=clock)
    charge(ledger, "1/2", analyst="cyd", purpose="operations")
    assert ledger.find_remaining("operations", "cyd") == PureDP(Fraction(1, 2))
    assert ledger.find_remaining("operations", "cyd") == PureDP(Fraction(1, 2))
    clock.set(2026, 12, 1, 0)
    assert ledger.find_remaining("operations", "cyd") == PureDP(1)
    assert [node.period for node in ledger.balance("operations", "cyd")] == ["", "2026-12", "2026-12"]


def test_connections_are_kept_within_a_process_and_opened_anew_in_another(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.sqlite")
    before = store._connection, store._reader
    assert store.last() == 0
    with store.begin_write():
        assert (store._connection, store._reader) == before
    store._owner = 0  # as a process finds it that was forked
    assert store.last() == 0
    assert store._connection is not before[0]
    assert store._reader is not before[1]
    for connection in before:
        connection.close()
    store.close()


def test_a_refusal_names_the_node_and_its_period() -> None:
    ledger = Ledger("clinic", tree(), clock=Clock(2026, 11, 30, 12))
    with pytest.raises(BudgetExceeded, match=r"\(purpose 'operations' in 2026-11\)"):
        charge(ledger, "3/2", analyst="cyd", purpose="operations")
    with pytest.raises(BudgetExceeded, match=r"\(the dataset\)"):
        charge(ledger, 5, analyst="", purpose="")


def test_as_many_more_charges_fit_as_at_the_tightest_node() -> None:
    ledger = Ledger("clinic", tree(ana=PureDP(Fraction(1, 2))))
    assert ledger.fits(PureEvent("1/10"), "research", "ana") == 5
    assert ledger.fits(PureEvent("1/10")) == 40
    assert ledger.fits(PureEvent("3/5"), "research", "ana") == 0
    assert Ledger("clinic").fits(PureEvent("1/10")) is None


def test_ids_that_nobody_gave_are_long_and_never_the_same() -> None:
    ledger = Ledger("clinic", plain(1))
    receipts = [charge(ledger, "1/10", analyst="", purpose="") for _ in range(3)]
    ids = [each for receipt in receipts for each in (receipt.request, receipt.release)]
    assert len(set(ids)) == 6
    assert {len(each) for each in ids} == {24}, "96 bits"
    given = ledger.record(Posting(Act.RELEASE, request="r", release="s"))
    assert (given.request, given.release) == ("r", "s")


def test_a_receipt_is_verified_by_its_number_and_its_hash() -> None:
    ledger = Ledger("clinic", plain(1))
    empty = verify(ledger)
    assert (empty.entries, empty.head, empty.time) == (0, genesis("clinic"), None)
    first, second = (charge(ledger, "1/10", analyst="", purpose="") for _ in range(2))
    for head, number in ((first.head, 1), (second.head, 2), (first.head, None), (None, None), (None, 1)):
        assert verify(ledger, head, number).head == second.head
    with pytest.raises(IntegrityError, match="entry 1 of the ledger is not the one"):
        verify(ledger, second.head, 1)
    for head, number in ((first.head, 3), ("0" * 64, None)):
        with pytest.raises(IntegrityError, match="cut off"):
            verify(ledger, head, number)


def test_privacy_losses_count_equal_events_together() -> None:
    half, noise = PureEvent("1/2"), LaplaceEvent(4, 1)
    account = accountant_for(Accounting.PLD, None)
    for event, count in ((half, 1), (noise, 3), (half, 1), (NoOpEvent(), 1)):
        account = account.compose(event, count)
    settled = settle_account(account)
    assert {each.event: each.count for each in settled.event.events} == {half: 2, noise: 3}  # type: ignore[attr-defined]
    assert settle_account(settled) == settled
    again = settle_account(settled.compose(half))
    assert sorted(each.count for each in again.event.events) == [3, 3]  # type: ignore[attr-defined]
