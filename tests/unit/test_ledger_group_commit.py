"""Threads that wait are written together: fewer commits than charges, and each decided as if it were alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deniable.errors import BudgetExceeded, DeniableError, StorageError
from deniable.ledger import Ledger
from deniable.ledger.entry import MemoryStore
from deniable.ledger.ledger import verify
from ledgers import charge, plain


class SlowDisk(MemoryStore):
    """A store whose commit takes a while, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.full = False

    @contextmanager
    def begin_write(self) -> Iterator[MemoryStore]:  # type: ignore[override]
        with super().begin_write() as book:
            yield book
            time.sleep(0.02)
            if self.full:
                raise StorageError("the disk is full")
            self.commits += 1


def at_once(ledger: Ledger, threads: int) -> list[object]:
    """What so many threads get that charge at the same moment."""
    found: list[object] = []
    gate = threading.Barrier(threads)

    def ask() -> None:
        gate.wait()
        try:
            found.append(charge(ledger, "1/10").number)
        except DeniableError as refusal:
            found.append(type(refusal))

    workers = [threading.Thread(target=ask) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def test_many_threads_share_few_commits_and_the_budget_holds() -> None:
    disk = SlowDisk()
    ledger = Ledger("d", plain(2), disk)
    found = at_once(ledger, 30)
    assert sorted(n for n in found if isinstance(n, int)) == list(range(1, 21))
    assert found.count(BudgetExceeded) == 10
    assert disk.commits < 15
    assert verify(ledger).entries == 20


def test_when_the_disk_is_full_all_are_refused_and_nothing_is_written() -> None:
    disk = SlowDisk()
    ledger = Ledger("d", plain(100), disk)
    charge(ledger)
    disk.full = True
    assert set(at_once(ledger, 12)) == {StorageError}
    disk.full = False
    assert verify(ledger).entries == 1
    assert charge(ledger).number == 2


def test_one_who_is_interrupted_does_not_leave_the_others_waiting() -> None:
    disk = SlowDisk()
    ledger = Ledger("d", plain(100), disk)
    failing = ledger._group_commit._write
    ledger._group_commit._write = lambda *_: (_ for _ in ()).throw(ZeroDivisionError)  # type: ignore[assignment]
    try:
        charge(ledger)
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("the failure was swallowed")
    ledger._group_commit._write = failing
    assert charge(ledger).number == 1
