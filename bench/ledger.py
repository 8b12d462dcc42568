"""Charges a second, beside the physical floor: a bare SQLite commit with full sync on the same disk in the same run.

A charge reads the tree, decides exactly, chains an entry and commits it to the disk. The floor commits one row of the
same size and does nothing else. Also: charges of eight processes at once, PostgreSQL where it can be started, reads of
what is left, and the CPU time of a charge without any disk.

With `--analysts N`, instead: a budget tree of so many analysts, each granted two of twenty purposes, who charge in turn
at random. The CPU time of a charge is told as a multiple of that of one bare transaction, early and late in the run, so
that growth shows; so is the time in which another process opens the ledger and adds it up.

With `--faults N`, instead: questions, withdrawals and releases of rows with a fault at one write of ledger, answer
store or file, before it, after it or in the middle of it, so often. It prints what the refusals told of a charge, and
fails if one was false, if a chain does not verify, or if an answer left uncharged. With `--edits N`: so many random
edits of ledger and answer store in SQLite files, of rows and of bytes, and as many in PostgreSQL by a superuser's SQL.
Each must be found when they are opened. Bytes that hold nothing (between the cells of a page, or in a free page) are
told apart by reading every table and index again, by other code. Both use the checks of the tests.

    python bench/ledger.py [--charges N] [--analysts N] [--faults 500] [--edits 200]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

from deniable.dp.accounting import LaplaceEvent
from deniable.errors import DeniableError
from deniable.ledger import Act, Ledger, Posting
from deniable.ledger.entry import encode_entry
from deniable.ledger.ledger import verify
from deniable.ledger.sqlite import SqliteStore
from deniable.policy.access import Analyst, Budgets, Purpose
from deniable.policy.budget import PureDP

ROOT = Path(__file__).resolve().parent.parent
BAR = 200
MOST_GROWTH = 2
"""CPU time of a charge among many analysts at most, as a multiple of that of a charge of a single one."""
LIMIT = PureDP(10**9)
BUDGETS = Budgets(LIMIT, purposes=(Purpose("research", LIMIT),), analysts=(Analyst("ana", ("research",), LIMIT),))
CHARGE = Posting(Act.CHARGE, LaplaceEvent(10), "query", ("visits",), "one row", "ana", "research")
WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from ledger import BUDGETS, CHARGE, Ledger, SqliteStore
ledger = Ledger("bench", BUDGETS, SqliteStore(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    ledger.charge(CHARGE)
"""


def timed(operation: Callable[[], object], times: int, repeats: int = 3) -> tuple[float, float]:
    """The best rate a second of several runs, and the CPU milliseconds of one operation in that run."""
    best, cost = 0.0, 0.0
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(times):
            operation()
        rate = times / (time.perf_counter() - wall)
        if rate > best:
            best, cost = rate, 1000 * (time.process_time() - cpu) / times
    return best, cost


def floor(path: Path, size: int) -> Callable[[], object]:
    """A bare commit with full sync of one row of that size."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
    return lambda: connection.execute("INSERT INTO t (b) VALUES (?)", ("x" * size,))


def together(path: Path, processes: int, each: int) -> float:
    """Charges a second of several processes on one ledger."""
    command = [sys.executable, "-c", WORKER, str(ROOT / "bench"), str(path), str(each)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()
    wall = time.perf_counter()
    for process in running:
        process.communicate("go\n")
    return processes * each / (time.perf_counter() - wall)


def threaded(ledger: Ledger, threads: int, each: int) -> float:
    """Charges a second of many threads of one process, as in a server: those that wait share a commit."""
    workers = [threading.Thread(target=lambda: [ledger.charge(CHARGE) for _ in range(each)]) for _ in range(threads)]
    wall = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return threads * each / (time.perf_counter() - wall)


def on_postgres(times: int) -> tuple[float, float] | str:
    """Charges a second over a private PostgreSQL, or why there is none."""
    sys.path.append(str(ROOT / "tests"))
    from deniable.ledger.postgres import PostgresStore
    from postgres_cluster import cluster

    with ExitStack() as stack:
        try:
            address = stack.enter_context(cluster())
        except (RuntimeError, ImportError) as reason:
            return str(reason)
        ledger = Ledger("bench", BUDGETS, PostgresStore(address, "bench"))
        stack.callback(ledger.close)
        return timed(lambda: ledger.charge(CHARGE), times)


def tree_of(analysts: int, purposes: int = 20) -> Budgets:
    """A tree of many analysts, each granted two purposes."""
    named = tuple(Purpose(f"p{n}", LIMIT) for n in range(purposes))
    granted = tuple(Analyst(f"a{n}", (f"p{n % purposes}", f"p{(n + 7) % purposes}"), LIMIT) for n in range(analysts))
    return Budgets(LIMIT, purposes=named, analysts=granted)


def simulate(analysts: int, charges: int) -> int:
    """Charges of many analysts in turn: CPU time as a multiple of that of a bare transaction, in four parts."""
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        alone = Simulation(tree_of(1), Path(folder) / "one.sqlite")
        many = Simulation(tree_of(analysts), Path(folder) / "many.sqlite")
        each = max(charges // 4, 1)
        _, bare = timed(floor(Path(folder) / "floor.sqlite", alone.charge()), each)
        print(f"bare transaction       {bare:6.3f} ms CPU each")
        _, single = timed(alone.charge, each, repeats=1)
        print(f"charge, one analyst    {single:6.3f} ms CPU each  {single / bare:.1f} x a transaction")
        for part in range(4):
            _, cpu = timed(many.charge, each, repeats=1)
            held = f"{len(many.ledger._standing.accounts):,} accounts"
            print(f"charge, part {part + 1} of 4    {cpu:6.3f} ms CPU each  {cpu / bare:.1f} x a transaction, {held}")
        start = time.process_time()
        again = Ledger("bench", many.budgets, SqliteStore(many.path))
        last = again.head()
        spent, entries = time.process_time() - start, last.sequence if last else 0
        print(f"opened anew            {spent:6.2f} CPU seconds, {entries:,} entries")
        again.close()
        alone.ledger.close()
        many.ledger.close()
    met = cpu <= MOST_GROWTH * single
    told = f"{cpu / single:.2f} x a charge of one analyst with {analysts:,}"
    print(f"{told}, at most {MOST_GROWTH}: {'met' if met else 'NOT MET'}")
    return 0 if met else 1


class Simulation:
    """A ledger on which the analysts of a tree charge in turn, at random."""

    def __init__(self, budgets: Budgets, path: Path) -> None:
        self.budgets, self.path, self._draw = budgets, path, random.Random(1)
        self.ledger = Ledger("bench", budgets, SqliteStore(path))

    def charge(self) -> int:
        """Charge once for somebody; says how long the entry is."""
        who = self._draw.choice(self.budgets.analysts)
        self.ledger.charge(replace(CHARGE, analyst=who.name, purpose=self._draw.choice(who.purposes)))
        last = self.ledger.known_head
        return len(encode_entry(last)) if last is not None else 0


def inject_faults(runs: int) -> int:
    """Let one write fail in each run; what is told falsely, lost or uncharged ends this with an error."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "workflows")]
    import pytest
    import test_write_faults as trials

    told: Counter[str] = Counter()
    check = trials.check_told

    def count(refusal: DeniableError, before: dict[str, int], after: dict[str, int]) -> None:
        check(refusal, before, after)
        told[refusal.charged or "nothing of a charge"] += 1

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "check_told", count)
        files = trials.write_files(Path(name) / "files")
        writes = {
            steps: trials.run_under_fault(
                trials.start(files, Path(name) / steps[1], patch), trials.Faults(10**9, "before"), steps
            )
            for steps in (trials.QUESTIONS, trials.ROWS)
        }
        for number in range(runs):
            steps = trials.ROWS if number % 5 == 0 else trials.QUESTIONS
            at, way = random.Random(number).randrange(writes[steps]), trials.WAYS[number % 3]
            trials.run_under_fault(trials.start(files, Path(name) / str(number), patch), trials.Faults(at, way), steps)
            shutil.rmtree(Path(name) / str(number))
    print(f"{runs} runs, each with a fault at one of {sorted(writes.values())} writes: every chain verifies")
    for words, many in told.most_common():
        print(f"{many:6,} refusals said: {words}   none was false")
    return 0


def edit_files(edits: int) -> int:
    """Edit ledger and answer store at random, by the tests' kinds of edits in turn; each must be found.

    The exception is an edit of bytes that hold nothing: then every row, index and table must be as it was.
    """
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "unit")]
    import test_ledger_defense as trials

    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        os.environ["DENIABLE_STATE"] = f"{name}/state"
        whole = trials.make_files(Path(name) / "whole")
        untouched = trials.read_all(whole)
        for number in range(edits):
            kind = list(trials.KINDS)[number % len(trials.KINDS)]
            files = trials.Files(Path(name) / str(number))
            shutil.copytree(whole.folder, files.folder)
            os.environ["DENIABLE_STATE"] = f"{name}/state {number}"  # what finds it is not that this is a copy
            if number == 0:
                with files.open():  # untouched, it is served
                    pass
            trials.KINDS[kind](files, random.Random(f"{kind} {number}"))
            held = trials.read_all(files) if kind in trials.UNREAD else None
            found[_tell_edit(files.open, f"{kind}, number {number}", held is not None and held == untouched)] += 1
            shutil.rmtree(files.folder)
    _print_edits("SQLite", found)
    return 0


def edit_tables(edits: int) -> int:
    """Edit the tables of a PostgreSQL ledger at random, as a superuser; each edit must be found."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "unit")]
    import test_ledger_defense_postgres as trials

    from postgres_cluster import cluster

    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        try:
            address = stack.enter_context(cluster())
        except (RuntimeError, ImportError) as reason:
            print(f"PostgreSQL: skipped: {reason}")
            return 0
        os.environ["DENIABLE_STATE"] = f"{name}/state"
        whole = trials.make_tables(Path(name) / "whole", address)
        os.environ["DENIABLE_STATE"] = f"{name}/state of a copy"
        with whole.copy("untouched").open():  # untouched, it is served
            pass
        for number in range(edits):
            kind = list(trials.KINDS)[number % len(trials.KINDS)]
            os.environ["DENIABLE_STATE"] = f"{name}/state {number}"
            edited = whole.copy("copied")
            trials.KINDS[kind](edited, random.Random(f"{kind} {number}"))
            found[_tell_edit(edited.open, f"{kind}, number {number}", False)] += 1
    _print_edits("PostgreSQL", found)
    return 0


def _tell_edit(open_again: Callable[[], AbstractContextManager[object]], edit: str, held_nothing: bool) -> str:
    """Whether an edit was found; one that changed something and was not ends this with an error."""
    try:
        with open_again():
            if not held_nothing:
                raise SystemExit(f"NOT FOUND: {edit}")
    except DeniableError:
        return "found when it was opened, and nothing served"
    return "fell into bytes that hold nothing: every row, index and table is as it was, and was served so"


def _print_edits(where: str, found: Counter[str]) -> None:
    print(f"{where}: {found.total():,} random edits, none of which changed something and was served")
    for words, many in found.most_common():
        print(f"{many:6,} edits {words}")


def main() -> int:
    """Measure, print ratios, and say whether the bar is met."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--charges", type=int)
    options.add_argument("--analysts", type=int, default=0)
    options.add_argument("--faults", type=int, default=0, metavar="RUNS")
    options.add_argument("--edits", type=int, default=0)
    chosen = options.parse_args()
    if chosen.faults or chosen.edits:
        return (inject_faults(chosen.faults) if chosen.faults else 0) or (
            edit_files(chosen.edits) or edit_tables(chosen.edits) if chosen.edits else 0
        )
    if chosen.analysts:
        return simulate(chosen.analysts, chosen.charges or 4 * chosen.analysts)
    times = chosen.charges or 400
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        ledger = Ledger("bench", BUDGETS, SqliteStore(Path(folder) / "ledger.sqlite"))
        ledger.charge(CHARGE)
        with ledger.store.begin_read() as book:
            size = len(book.head() or "")
        bare, bare_cpu = timed(floor(Path(folder) / "floor.sqlite", size), times)
        rate, cpu = timed(lambda: ledger.charge(CHARGE), times)
        print(f"bare commit, full sync   {bare:8,.0f} a second  {bare_cpu:6.2f} ms CPU each   the floor")
        print(f"charge on SQLite         {rate:8,.0f} a second  {cpu:6.2f} ms CPU each   {bare / rate:.2f} x the floor")
        eight = together(Path(folder) / "eight.sqlite", 8, max(times // 8, 1))
        print(f"charge, eight processes  {eight:8,.0f} a second  {'':16}      {bare / eight:.2f} x the floor")
        many = threaded(ledger, 64, max(times // 16, 1))
        print(f"charge, 64 threads       {many:8,.0f} a second  {'':16}      {bare / many:.2f} x the floor")
        left, left_cpu = timed(lambda: ledger.find_remaining("research", "ana"), 10 * times)
        print(f"what is left             {left:8,.0f} a second  {left_cpu:6.2f} ms CPU each")
        memory = Ledger("bench", BUDGETS)
        bare_charge, memory_cpu = timed(lambda: memory.charge(CHARGE), times)
        print(f"charge in memory         {bare_charge:8,.0f} a second  {memory_cpu:6.2f} ms CPU each")
        wall = time.perf_counter()
        entries = verify(ledger).entries
        print(f"verify                   {entries / (time.perf_counter() - wall):8,.0f} entries a second")
        ledger.close()
    shared = on_postgres(times)
    if isinstance(shared, str):
        print(f"charge on PostgreSQL     skipped: {shared}")
    else:
        print(f"charge on PostgreSQL     {shared[0]:8,.0f} a second  {shared[1]:6.2f} ms CPU each")
    met = max(rate, many) >= BAR
    print(f"at least {BAR} charges a second: {'met' if met else 'NOT MET'} ({os.cpu_count()} cores)")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
