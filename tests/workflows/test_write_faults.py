"""A fault at every write of ledger, answer store and release files: before it, after it, or in the middle of it.

Whatever fails: the chain verifies, no answer leaves uncharged, no file of a release is there in part, and nobody is
told that nothing was charged where something was.
"""

from __future__ import annotations

import errno
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deniable import Curator, storage
from deniable.curator.governance import withdrawals
from deniable.curator.mask.run import Request, mask_tables
from deniable.errors import CHARGED, NOTHING_CHARGED, UNKNOWN, DeniableError
from deniable.ledger import answer_store, sqlite
from deniable.ledger.ledger import verify
from deniable.release import statement_path
from deniable.release import verify as verify_file

RUNS = 500  # in all, with the slow ones
QUICK = 20
PARTS = [range(start, min(RUNS, start + 120)) for start in range(QUICK, RUNS, 120)]
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier, mask: redact}
      age: {type: integer, between: [0, 99], role: quasi-identifier}
      sex: {role: quasi-identifier, categories: [F, M]}
budgets: {dataset: {epsilon: 100}}
"""
WAYS = ("before", "after", "torn")


class Faults:
    """Counts writes, and lets one of them fail; afterwards the disk works again."""

    def __init__(self, at: int, way: str) -> None:
        self.at, self.way, self.count = at, way, 0

    def is_due(self) -> bool:
        self.count += 1
        return self.count == self.at + 1

    def refuse_sql(self) -> sqlite3.OperationalError:
        failure = sqlite3.OperationalError("disk I/O error")
        failure.sqlite_errorname = "SQLITE_IOERR_FSYNC" if self.way == "after" else "SQLITE_FULL"
        return failure


WRITES = ("INSERT", "UPDATE", "DELETE", "COMMIT", "BEGIN IMMEDIATE", "CREATE", "DROP", "PRAGMA user_version =")


def make_connection(faults: Faults, connection: sqlite3.Connection) -> Any:
    """A connection whose writes may fail."""

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

        def execute(self, sql: str, *values: Any) -> Any:
            if not sql.lstrip().startswith(WRITES) or not faults.is_due():
                return connection.execute(sql, *values)
            if faults.way == "after" or (faults.way == "torn" and sql.startswith("INSERT")):
                connection.execute(sql, *values)
            raise faults.refuse_sql()

    return Failing()


class TornFile:
    """A file of which a write may be cut in the middle."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def write(self, content: bytes) -> int:
        if not self._faults.is_due():
            return int(self._file.write(content))
        if self._faults.way != "before":
            self._file.write(content[: len(content) // 2] if self._faults.way == "torn" else content)
        raise OSError(errno.ENOSPC, "no space")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> TornFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class FailingSystem:
    """The calls of the system that files are written with, of which one may fail."""

    def __init__(self, real: Any, faults: Faults) -> None:
        self._real, self._faults = real, faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        return self._wrap(found) if name in ("open", "fsync", "replace") else found

    def _wrap(self, call: Any) -> Any:
        def run(*values: Any, **named: Any) -> Any:
            if not self._faults.is_due():
                return call(*values, **named)
            if self._faults.way == "after" and call.__name__ != "open":
                call(*values, **named)
            raise OSError(errno.EIO, "the disk failed")

        return run


@contextmanager
def inject(faults: Faults) -> Iterator[None]:
    import os

    connect = sqlite.open_connection
    with pytest.MonkeyPatch.context() as patch:
        for module in (sqlite, answer_store):
            patch.setattr(module, "open_connection", lambda uri: make_connection(faults, connect(uri)))
        patch.setattr(storage, "os", FailingSystem(os, faults))
        patch.setattr(storage, "open", lambda *at: TornFile(open(*at), faults), raising=False)  # noqa: SIM115
        patch.setattr(sqlite, "PATIENCE", 1.0)
        yield


QUESTIONS = ("first", "second", "withdraw", "first", "third")
"""A question, another one, a withdrawal, a question that is repeated, and a last one."""
ROWS = ("first", "rows", "second")
"""The same with a release of rows, which takes longer."""


def take_step(curator: Curator, step: str, out: Path) -> str:
    """Do something that writes; says what it left behind: an answer, a file, or a note."""
    if step == "withdraw":
        withdrawals.withdraw(curator.context, "id", "7")
        return ""
    if step == "rows":
        mask_tables(curator.context, Request(out.with_name("policy.yaml"), {"visits": out}))
        return ""
    least = ("first", "second", "third").index(step)  # by their names alone they would be one question
    curator.query(f"SELECT COUNT(*) AS {step} FROM visits WHERE age >= {least}", epsilon=1)
    return step


def count_acts(curator: Curator, *acts: str) -> int:
    return sum(1 for _ in curator.ledger.entries(acts=acts))


def run_under_fault(folder: Path, faults: Faults, steps: tuple[str, ...]) -> int:
    """Take all steps, opening anew after each refusal; checks what was told against what was written."""
    answers: set[str] = set()
    told: list[tuple[str, str]] = []
    with inject(faults), ExitStack() as stack:
        curator: Curator | None = None
        for step in steps:
            before = read_acts(folder)
            try:
                curator = curator or stack.enter_context(Curator.open(folder / "policy.yaml"))
                answers |= {take_step(curator, step, folder / "rows.csv")} - {""}
            except DeniableError as refusal:
                told.append((step, refusal.charged))
                check_told(refusal, before, read_acts(folder))
                curator = None
    check_end(folder, answers, told)
    return faults.count


def read_acts(folder: Path) -> dict[str, int]:
    """How many entries of each act the ledger has, read from its file by nothing of ours."""
    path = folder / "policy.ledger.sqlite"
    if not path.exists():
        return {}
    connection = sqlite3.connect(path)
    try:
        return dict(connection.execute("SELECT act, count(*) FROM entries GROUP BY act"))
    except sqlite3.OperationalError:
        return {}
    finally:
        connection.close()


def check_told(refusal: DeniableError, before: dict[str, int], after: dict[str, int]) -> None:
    """What a refusal says of the charge is so; a release that has no price is recorded, and not charged."""
    charges, releases = (after.get(act, 0) - before.get(act, 0) for act in ("charge", "release"))
    if refusal.charged == NOTHING_CHARGED:
        assert charges == 0, f"told that nothing was charged: {refusal}"
    elif refusal.charged == CHARGED:
        assert charges + releases > 0, f"told that it was charged: {refusal}"
    else:
        assert refusal.charged == UNKNOWN or charges == 0, f"told nothing of the charge: {refusal}"


def check_end(folder: Path, answers: set[str], told: list[tuple[str, str]]) -> None:
    with Curator.open(folder / "policy.yaml") as curator:
        verify(curator.ledger)
        asked = [entry.details["asked"] for entry in curator.ledger.entries(acts=("charge",))]
        assert all(any(f'"{name}"' in text or f" {name} " in text for text in asked) for name in answers), (asked, told)
        assert len(asked) <= len(answers) + len(told), "nothing is charged that was neither answered nor told"
        if (folder / "rows.csv").exists():
            assert count_acts(curator, "release") >= 1
            if statement_path(folder / "rows.csv").exists():
                assert verify_file(folder / "rows.csv").body["file"]["name"] == "rows.csv"
            else:
                assert any(step == "rows" for step, _ in told)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("clinic"))


def write_files(folder: Path) -> Path:
    """A policy with its table, also for bench/ledger.py --faults."""
    folder.mkdir(exist_ok=True)
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "visits.csv").write_text("id,age,sex\n" + "".join(f"{n},{n},{'FM'[n % 2]}\n" for n in range(40)))
    return folder


def start(files: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(files, folder)
    monkeypatch.setenv("DENIABLE_STATE", str(folder / "state"))
    return folder


def test_without_a_fault_all_is_answered(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = start(files, tmp_path / "whole", monkeypatch)
    writes = run_under_fault(folder, Faults(10**9, "before"), (*QUESTIONS, "rows"))
    assert writes > 60, "every write is counted"
    assert read_acts(folder) == {"charge": 3, "withdraw": 1, "release": 1, "publish": 1}


@pytest.mark.parametrize("numbers", [range(QUICK), *(pytest.param(part, marks=pytest.mark.slow) for part in PARTS)])
def test_a_fault_at_any_write_loses_nothing_and_tells_nothing_false(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: range
) -> None:
    writes = {
        steps: run_under_fault(start(files, tmp_path / steps[1], monkeypatch), Faults(10**9, "before"), steps)
        for steps in (QUESTIONS, ROWS)
    }
    for number in numbers:
        steps = ROWS if number % 5 == 0 else QUESTIONS
        folder = start(files, tmp_path / str(number), monkeypatch)
        run_under_fault(folder, Faults(random.Random(number).randrange(writes[steps]), WAYS[number % 3]), steps)
        shutil.rmtree(folder)
