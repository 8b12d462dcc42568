"""Races, killed processes, full and read-only disks: nothing is overspent, charged twice, or lost."""

from __future__ import annotations

import json
import os
import random
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import StorageError
from deniable.ledger import Ledger
from deniable.ledger.ledger import open_answer_store, open_ledger, verify
from deniable.ledger.sqlite import SqliteStore
from deniable.ledger.witness import Witness
from deniable.policy.document import read
from deniable.release import verify as verify_file
from ledgers import charge, plain

RACER = """
import sys
from ledgers import charge, plain
from deniable.errors import BudgetExceeded
from deniable.ledger import Ledger
from deniable.ledger.ledger import _open_store

place, dataset, limit, attempts = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
ledger = Ledger(dataset, plain(limit), _open_store(place, dataset, True, True))
print("ready", flush=True)
sys.stdin.readline()
granted = 0
for attempt in range(attempts):
    try:
        charge(ledger, "1/10")
        granted += 1
    except BudgetExceeded:
        pass
print(granted, flush=True)
"""

CUSTOMER = """
import sys
from ledgers import charge, plain
from deniable.ledger import Ledger
from deniable.ledger.sqlite import SqliteStore

ledger = Ledger("d", plain(10**9), SqliteStore(sys.argv[1]))
first = int(sys.argv[2])
print("ready", flush=True)
for number in range(first, first + 100000):
    receipt = charge(ledger, "1/10", request=f"r{number}")
    print(number, receipt.number, receipt.head, flush=True)
"""


def started(program: str, *arguments: object, **rest: object) -> subprocess.Popen[str]:
    """A Python process that can import what tests share."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, **rest  # type: ignore[call-overload]
    )  # fmt: skip


def raced(place: object, dataset: str, processes: int, attempts: int, limit: str) -> int:
    """How many charges so many processes are granted together, begun at once."""
    racers = [started(RACER, place, dataset, limit, attempts) for _ in range(processes)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    granted = 0
    for racer in racers:
        out, _ = racer.communicate(timeout=300)
        assert racer.returncode == 0
        granted += int(out)
    return granted


def test_eight_processes_are_granted_exactly_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    assert raced(path, "d", processes=8, attempts=15, limit="6") == 60
    ledger = Ledger("d", plain(6), SqliteStore(path))
    assert verify(ledger).entries == 60
    ledger.close()


def test_two_processes_over_postgresql_are_granted_exactly_the_budget(postgres_address: str) -> None:
    from deniable.ledger.postgres import PostgresStore

    dataset = uuid.uuid4().hex
    assert raced(postgres_address, dataset, processes=2, attempts=80, limit="10") == 100
    ledger = Ledger(dataset, plain(10), PostgresStore(postgres_address, dataset))
    assert verify(ledger).entries == 100
    ledger.close()


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_a_killed_process_loses_nothing_and_no_request_is_charged_twice(tmp_path: Path, kills: int) -> None:
    path, asked, seed = tmp_path / "ledger.sqlite", 0, random.Random(4)
    receipts: dict[int, tuple[int, str]] = {}
    for _ in range(kills):
        # The next process asks again what the last one asked last, as a client does that got no answer.
        process = started(CUSTOMER, path, asked)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(seed.random() * 0.15)
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=60)
        for line in out.splitlines():
            parts = line.split()
            if line and len(parts) == 3 and len(parts[2]) == 64:
                number, place, head = int(parts[0]), int(parts[1]), parts[2]
                assert receipts.setdefault(number, (place, head)) == (place, head)
                asked = number
    ledger = Ledger("d", plain(10**9), SqliteStore(path))
    found = verify(ledger)
    requests = [entry.request for entry in ledger.entries()]
    assert found.entries == len(requests) == len(set(requests))
    written = {entry.sequence: entry.hash for entry in ledger.entries()}
    assert receipts
    assert all(written[place] == head for place, head in receipts.values())
    ledger.close()


def test_a_full_disk_refuses_the_charge_and_keeps_what_is_written(tmp_path: Path) -> None:
    ledger = Ledger("d", plain(10**6), SqliteStore(tmp_path / "ledger.sqlite"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    granted, refusal = 0, None
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        while refusal is None and granted < 5000:
            try:
                charge(ledger, "1/10")
                granted += 1
            except StorageError as full:
                refusal = full.message
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert granted > 0
    assert refusal is not None
    # A commit that fails may have been written or not, as far as the process can know.
    assert "Nothing was charged" in refusal or "not known" in refusal
    assert verify(ledger).entries == granted
    assert charge(ledger, "1/10").number == granted + 1
    ledger.close()


def test_a_full_disk_refuses_a_new_ledger_in_words(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with pytest.raises(StorageError):
            Ledger("d", plain(1), SqliteStore(tmp_path / "ledger.sqlite"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


READER = """
import os, sys
from ledgers import charge, plain
from deniable.errors import StorageError
from deniable.ledger import Ledger
from deniable.ledger.sqlite import SqliteStore
if os.geteuid() == 0:  # root may write anywhere, whatever a file's mode says
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    charge(Ledger("d", plain(10), SqliteStore(sys.argv[1])), "1/10")
except StorageError as refusal:
    print(refusal.message)
"""


def test_a_read_only_disk_is_refused_in_words_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger("d", plain(10), SqliteStore(path))
    charge(ledger, "1/10")
    ledger.close()
    path.chmod(0o444)
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        if folder.owner() == tmp_path.owner() and folder != Path("/tmp"):
            folder.chmod(0o555 if folder == tmp_path else 0o755)
    try:
        process = started(READER, path)
        out, _ = process.communicate(timeout=60)
    finally:
        tmp_path.chmod(0o755)
        path.chmod(0o600)
    assert process.returncode == 0
    assert "could not be used" in out
    assert "Nothing was charged" in out
    again = Ledger("d", plain(10), SqliteStore(path))
    assert verify(again).entries == 1
    again.close()


def test_a_folder_that_is_not_there_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="folder"):
        SqliteStore(tmp_path / "nowhere" / "ledger.sqlite")
    with pytest.raises(StorageError):
        open_answer_store(tmp_path / "nowhere" / "ledger.sqlite", "d")


def test_postgresql_that_is_not_there_is_refused_without_its_address() -> None:
    from deniable.ledger.postgres import PostgresStore

    with pytest.raises(StorageError) as refusal:
        PostgresStore("postgresql://user:hunter2@127.0.0.1:1/nothing", "d")
    assert "hunter2" not in refusal.value.message


def test_connections_that_were_lost_are_opened_again_and_no_charge_is_refused_for_them(postgres_address: str) -> None:
    from deniable.ledger.postgres import PostgresStore

    dataset = uuid.uuid4().hex
    ledger = Ledger(dataset, plain(10), PostgresStore(postgres_address, dataset))
    charge(ledger, "1/10", request="r1")
    assert ledger.store.count_servers() == 1
    with ExitStack() as held:  # so that several are kept
        for _ in range(3):
            held.enter_context(ledger.store.begin_read())
    end_sessions(postgres_address)
    assert charge(ledger, "1/10", request="r2").number == 2
    assert charge(ledger, "1/10", request="r1").repeated
    end_sessions(postgres_address)
    assert ledger.store.count_servers() == 1
    ledger.close()


def end_sessions(address: str) -> None:
    """End all sessions of a database but one's own, as when it is started anew."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as other:
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        other.execute(ended + " AND backend_type = 'client backend'")


@pytest.mark.parametrize("when", ["before the entry", "after the entry"])
def test_a_charge_whose_connection_is_lost_in_its_transaction_is_not_made_twice(
    postgres_address: str, when: str
) -> None:
    from deniable.ledger.postgres import PostgresBook, PostgresStore

    class Cut(PostgresBook):
        def append(self, line: Any) -> None:
            if when == "after the entry":
                super().append(line)
            end_sessions(postgres_address)
            if when == "before the entry":
                super().append(line)

    class CutStore(PostgresStore):
        @contextmanager
        def begin_write(self) -> Iterator[Any]:
            with super().begin_write() as book:
                yield Cut(book._run, book._dataset)

    dataset = uuid.uuid4().hex
    ledger = Ledger(dataset, plain(10), PostgresStore(postgres_address, dataset))
    charge(ledger, "1/10", request="r1")
    cut = Ledger(dataset, plain(10), CutStore(postgres_address, dataset))
    with pytest.raises(StorageError) as refusal:
        charge(cut, "1/10", request="r2")
    assert ("Nothing was charged" in refusal.value.message) == (when == "before the entry")
    assert verify(ledger).entries == 1
    assert charge(ledger, "1/10", request="r2").number == 2
    ledger.close()
    cut.close()


def test_a_forked_process_has_a_connection_of_its_own(tmp_path: Path) -> None:
    ledger = Ledger("d", plain(10), SqliteStore(tmp_path / "ledger.sqlite"))
    charge(ledger, "1/10")
    child = os.fork()
    if child == 0:
        charge(ledger, "1/10")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert charge(ledger, "1/10").number == 3
    assert verify(ledger).entries == 3
    ledger.close()


def open_key(place: Path | str, dataset: str) -> bytes:
    store = open_answer_store(place, dataset)
    store.close()
    return store.key


STORES: dict[str, Callable[[Path], object]] = {
    "ledger": lambda path: SqliteStore(path / "ledger.sqlite").close(),
    "answers": lambda path: open_key(path / "ledger.sqlite", "d"),
    "witness": lambda path: Witness(path / "state").name_frame("rows"),
}


def open_at_once(open_store: Callable[[], object]) -> list[object]:
    """What eight who open a store for the first time at the same moment are given, or refused with."""
    given: list[object] = []
    gate = threading.Barrier(8)

    def work() -> None:
        gate.wait()
        try:
            given.append(open_store())
        except Exception as refusal:  # whatever it is, it is shown by the comparison
            given.append(refusal)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return given


@pytest.mark.parametrize("kind", STORES)
def test_a_new_store_that_several_open_at_once_is_made_once(tmp_path: Path, kind: str) -> None:
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        given = open_at_once(lambda folder=folder: STORES[kind](folder))
        assert given == [given[0]] * 8
        assert not isinstance(given[0], Exception)


def test_a_new_store_in_postgresql_that_several_open_at_once_is_made_once(postgres_address: str) -> None:
    dataset = uuid.uuid4().hex
    given = open_at_once(lambda: open_key(postgres_address, dataset))
    assert given == [given[0]] * 8
    assert isinstance(given[0], bytes)


FORKS = """
import json, os, sys
from pathlib import Path
import deniable.cli.main, deniable.curator.anonymize.run, deniable.curator.mask.run, deniable.curator.query.tabulate
import deniable.curator.survey, deniable.curator.synthesize.run, deniable.engines.duckdb, deniable.query.execute
from typer.testing import CliRunner

wait, start = os.pipe()
children = []
for place, words in enumerate(json.loads(sys.argv[1])):
    child = os.fork()
    if not child:
        os.close(start)
        os.read(wait, 1)  # ends for all at one moment, when the parent closes its end
        done = CliRunner().invoke(deniable.cli.main.app, words)
        told = [done.exit_code, type(done.exception).__name__, str(done.exception or "")]
        Path(f"told{place}.json").write_text(json.dumps(told))
        os._exit(0)
    children.append(child)
os.close(start)
for child in children:
    os.waitpid(child, 0)
"""
RACED_POLICY = """
version: 1
dataset: %s
tables:
  people:
    source: people.csv
    unit: {column: pid, max_groups: 1, max_rows_per_group: 1}
    columns:
      pid: {type: integer, role: identifier, mask: redact}
      sex: {role: quasi-identifier, categories: [F, M]}
      age: {type: integer, role: quasi-identifier, between: [0, 99]}
tabulation:
  census: {table: people, cells: [sex], rho: 1}
budgets: {dataset: {rho: 1000, delta: 1e-3}}
release: {anonymize: {k: 3}}
"""
COMMANDS = {
    "tabulate": "tabulate census -o tabulate.csv",
    "mask": "mask people.csv -o mask.csv",
    "query": "query 'SELECT sex, COUNT(*) AS n FROM people GROUP BY sex' --epsilon 1",
    "anonymize": "anonymize people.csv -o anonymize.csv",
    "synthesize": "synthesize people --epsilon 1 --delta 1e-7 -o synthesize.csv",
    "randomize": "randomize people.csv --epsilon 2 -c sex -o randomize.csv",
}
UNPRICED, SHARED = ("mask", "anonymize"), ("query", "tabulate")
"""Commands whose releases are recorded without a price, and whose equal questions have one charge."""


@pytest.mark.parametrize("kept", ["sqlite", "postgresql"])
@pytest.mark.parametrize(
    "names", [("tabulate", "mask", "query"), pytest.param(tuple(COMMANDS), marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_commands_at_one_moment_over_one_ledger_and_output_lose_nothing_and_charge_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, kept: str, names: tuple[str, ...]
) -> None:
    """Two processes of each command write to one file; all of them share a ledger, which they begin together."""
    place = request.getfixturevalue("postgres_address") if kept == "postgresql" else str(tmp_path / "ledger.sqlite")
    (tmp_path / "policy.yaml").write_text(RACED_POLICY % f"races{uuid.uuid4().hex[:8]}")
    rows = "".join(f"{i},{'FM'[i % 2]},{i % 5 * 10}\n" for i in range(200))
    (tmp_path / "people.csv").write_text("pid,sex,age\n" + rows)
    words = [[*shlex.split(COMMANDS[name]), "-p", "policy.yaml", "--ledger", place] for name in names for _ in range(2)]
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-c", FORKS, json.dumps(words)], check=True, timeout=500)
    told = [json.loads((tmp_path / f"told{number}.json").read_text()) for number in range(len(words))]
    done = {name: [code for code, *_ in told[2 * i : 2 * i + 2]].count(0) for i, name in enumerate(names)}
    assert set(done.values()) <= {1, 2}, told
    for code, kind, refusal in told:
        assert code == 0 or (kind == "Locked" and "Nothing was charged." in refusal), (code, kind, refusal)
    with closing(open_ledger(place, read(tmp_path / "policy.yaml"), writable=False)) as ledger:
        verify(ledger)
        entries = list(ledger.entries())
    acts = Counter(entry.act for entry in entries)
    assert acts["charge"] == sum(1 if name in SHARED else done[name] for name in names if name not in UNPRICED)
    assert acts["release"] == sum(done[name] for name in names if name in UNPRICED)
    published = {entry.details["file"] for entry in entries if entry.act == "publish"}
    for name in (name for name in names if name != "query"):
        assert verify_file(tmp_path / f"{name}.csv").body["file"]["sha256"] in published, name
