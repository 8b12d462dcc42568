"""The worker pool: processes that answer and explain questions, so that every core of the machine is used.

Each process has a curator of its own over the same policy and the same ledger, which decides among them as it does
among servers. The server's own process keeps the connections: tokens, rates, request ids and repeats are known in one
place. Costly work goes to the last process, and while it runs there, quick work goes to the others. A process that
dies takes its questions with it: whoever asked is told to ask again under the same request id, and another process is
started. When the server dies, however suddenly, its workers see the pipe cut and end."""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import watch_charges
from deniable.errors import WATCH, ChargeWatch, DeniableError, InternalError
from deniable.ledger.sqlite import SqliteStore
from deniable.policy.document import Policy, read
from deniable.server.monitoring import log_to_stderr
from deniable.server.refusals import TimedOut, translate_failure

if TYPE_CHECKING:
    from deniable.curator.curator import Curator
    from deniable.curator.query.metadata import AnswerColumn
    from deniable.governance.grants import Asker
    from deniable.policy.budget import Budget

SLOTS = 8
"""Questions that one process works on at a time: while one waits for the disk, another has the processor."""
COSTLY_SLOTS = 2
"""Places of the last process for costly work."""
SWITCH_SECONDS = 0.0005
"""How long a thread that computes may keep the interpreter while others wait; a short question passes it many times."""
ENDING_SECONDS = 3.0
"""How long a process finishes what it works on when the server has ended; what takes longer is stopped."""
LEDGER_SECONDS = 3.0
"""How long a charge waits for a ledger in a file that another process holds."""
LOWER_PRIORITY = 10
"""How much nicer to others the threads of costly work are, where the system has such a thing."""


def _find_columns(
    curator: Curator, who: Asker, sql: str, budget: Budget | None, intervals: bool
) -> tuple[AnswerColumn, ...]:
    from deniable.curator.query import metadata

    return metadata.columns(curator.context.speak_for(who), sql, budget, intervals=intervals)


def _encode_explanation(curator: Curator, **given: Any) -> bytes:
    """An explanation as the JSON that is sent: of many aggregates it takes long to write."""
    from deniable.server.formats import encode_json

    return encode_json(curator.explain(**given).to_dict())


def ask_as(by: str, ask: Callable[[], Any]) -> Any:
    """Ask something whose entry says who asked in the name of an analyst."""
    watch = WATCH.get()
    if by and watch is not None:
        watch.by = by
    return ask()


WORK: Mapping[str, Callable[..., Any]] = {
    "query": lambda curator, stop, by="", **given: ask_as(by, lambda: curator.query(**given, stop=stop)),
    "explain": lambda curator, _stop, **given: curator.explain(**given),
    "explain as text": lambda curator, _stop, **given: _encode_explanation(curator, **given),
    "preview": lambda curator, _stop, **given: curator.preview(**given),
    "curve": lambda curator, _stop, **given: curator.error_curve(**given),
    "columns": lambda curator, _stop, **given: _find_columns(curator, **given),
}
"""What a curator can be asked to do, here or in another process: each takes the curator and an event that stops it."""


@dataclass(eq=False, slots=True)
class Slot:
    """A place in a process where one question at a time is worked on."""

    worker: WorkerProcess
    number: int
    costly: bool
    asked: int = 0

    @property
    def line(self) -> Connection:
        """The line to the process that holds this slot now."""
        return self.worker.lines[self.number]


@dataclass(eq=False, slots=True)
class WorkerProcess:
    """A process of the pool: `control` is the line on which it is told to stop a question."""

    costly: bool
    process: Any
    control: Connection
    lines: list[Connection]
    lock: threading.Lock = field(default_factory=threading.Lock)


class WorkerPool:
    """Processes over one policy and one ledger: that of the server, also where its file is edited meanwhile."""

    def __init__(self, policy: Policy | Path, ledger: str, processes: int) -> None:
        opened = read(policy) if isinstance(policy, Path) else policy
        self._where = (opened, ledger, max(1, _count_cores() // processes))
        self._busy: dict[int, Slot] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._workers: list[WorkerProcess] = []
        try:
            for number in range(processes):
                self._workers.append(self._start_process(costly=number == processes - 1))
        except BaseException:  # also a signal: nobody else knows them yet
            for worker in self._workers:
                worker.process.kill()
            raise
        self.slots = processes * SLOTS
        self._free = [
            Slot(worker, number, worker.costly and number < COSTLY_SLOTS)
            for number in range(SLOTS)
            for worker in self._workers
        ]
        self._changed = threading.Condition()

    def work(self, kind: str, given: Mapping[str, Any], spend: Callable[[float], None], *, costly: bool) -> Any:
        """Have something done, in a thread of the server, which waits; `spend` is told the seconds of the processor."""
        slot, me = self._take_slot(costly), threading.get_ident()
        try:
            line = self._find_line(slot)
            slot.asked += 1
            self._busy[me] = slot
            outcome, seconds = self._exchange(slot, line, (slot.asked, kind, given))
        finally:
            self._busy.pop(me, None)
            self._return_slot(slot)
        spend(seconds)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _find_line(self, slot: Slot) -> Connection:
        """The line to a process that lives: one that died since is replaced before anything is sent to it."""
        if not slot.worker.process.is_alive():
            try:
                self._replace_process(slot.worker)
            except InternalError:
                log_to_stderr("a process that works questions out ended while it started")
                raise TimedOut("the process that was to work on it could not be started", charged=False) from None
        return slot.line

    def _exchange(self, slot: Slot, line: Connection, sent: tuple[int, str, Mapping[str, Any]]) -> tuple[Any, float]:
        try:
            line.send(sent)
            outcome, seconds = line.recv()
        except (OSError, EOFError):
            with self._lock:
                if line is slot.line:  # else another has found it dead, and it was replaced
                    slot.worker.process.kill()
                    slot.worker.process.join()
            log_to_stderr("a process that works questions out has ended; another is started for the next question")
            happened = "the process that worked on it has ended"
            raise TimedOut(happened, charged=None if sent[1] == "query" else False) from None
        return outcome, seconds

    def _take_slot(self, costly: bool) -> Slot:
        with self._changed:
            while (slot := self._find_free(costly)) is None:
                self._changed.wait()
            self._free.remove(slot)
            return slot

    def _find_free(self, costly: bool) -> Slot | None:
        """A place in the process with the most free ones; quick work is not put beside costly work."""
        last = self._workers[-1] if len(self._workers) > 1 else None
        loaded = sum(slot.costly for slot in self._free) < COSTLY_SLOTS
        free = [slot for slot in self._free if slot.costly == costly]
        if loaded and not costly:
            free = [slot for slot in free if slot.worker is not last]
        count = Counter(id(slot.worker) for slot in free)
        return max(free, key=lambda slot: count[id(slot.worker)], default=None)

    def _return_slot(self, slot: Slot) -> None:
        with self._changed:
            self._free.append(slot)
            self._changed.notify_all()

    def interrupt(self, thread: int) -> None:
        """Stop the question that a thread of the server waits for."""
        slot = self._busy.get(thread)
        if slot is not None:
            with slot.worker.lock:
                try:
                    slot.worker.control.send((slot.number, slot.asked))
                except OSError:
                    return  # the process is gone, and its questions with it

    def close(self) -> None:
        """Stop the pool."""
        self._closed = True
        for worker in self._workers:
            for line in (worker.control, *worker.lines):
                line.close()
            worker.process.join(10)
            if worker.process.is_alive():
                worker.process.kill()

    def _start_process(self, costly: bool) -> WorkerProcess:
        context = multiprocessing.get_context("spawn")
        pairs = [context.Pipe() for _ in range(SLOTS + 1)]
        theirs = [their for _, their in pairs]
        process = context.Process(target=_run_worker, args=(*self._where, theirs, COSTLY_SLOTS * costly),
                                  name=WORKER, daemon=True)  # fmt: skip
        process.start()
        for line in theirs:
            line.close()
        control, *lines = [ours for ours, _ in pairs]
        try:
            control.recv()
        except (OSError, EOFError):
            raise InternalError("a process that works questions out could not be started") from None
        except BaseException:
            process.kill()
            raise
        return WorkerProcess(costly, process, control, lines)

    def _replace_process(self, worker: WorkerProcess) -> None:
        """Put a living process in the place of a dead one; the first that finds it dead does so for all its slots."""
        with self._lock:
            if not self._closed and not worker.process.is_alive():
                fresh = self._start_process(worker.costly)
                worker.process, worker.control, worker.lines = fresh.process, fresh.control, fresh.lines


WORKER = "deniable-worker"
"""The name of each process of a pool."""


def _kill_workers() -> None:
    """End the processes of pools that were not closed, at any place where a signal may have interrupted.

    They leave signals to the server, and Python waits for each of them at its end.
    """
    for process in multiprocessing.active_children():
        if process.name == WORKER:
            process.kill()


atexit.register(_kill_workers)


def _count_cores() -> int:
    return multiprocessing.cpu_count()


class _Worker:
    """One process of the pool: its curator, and which question is worked on at each slot by which thread."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self._lock = threading.Lock()
        self._jobs: dict[int, tuple[int, int, threading.Event]] = {}

    def serve(self, number: int, line: Connection, costly: bool) -> None:
        """Answer the questions of one slot until the line is cut."""
        if costly:
            _lower_priority()
        while True:
            try:
                asked, kind, given = line.recv()
            except (OSError, EOFError):
                return
            since = time.thread_time()
            outcome = self._do_work(number, asked, kind, given)
            try:
                line.send((outcome, time.thread_time() - since))
            except OSError:
                return

    def _do_work(self, number: int, asked: int, kind: str, given: Mapping[str, Any]) -> object:
        stop = threading.Event()
        with self._lock:
            self._jobs[number] = (asked, threading.get_ident(), stop)
        try:
            with watch_charges(ChargeWatch()):
                return WORK[kind](self._curator, stop, **given)
        except DeniableError as refusal:
            return translate_failure(refusal) if isinstance(refusal, InternalError) else refusal
        finally:
            with self._lock:
                self._jobs.pop(number)

    def stop(self, number: int, asked: int) -> None:
        """Stop a question, if it is still the one that this slot works on."""
        with self._lock:
            current, thread, stop = self._jobs.get(number, (0, 0, None))
            if stop is not None and current == asked:
                stop.set()
                self._curator.interrupt(thread)

    def stop_all(self) -> None:
        """Stop all that is worked on: the server is gone, and no asker is to be paused for it."""
        with self._lock:
            running = [(number, asked) for number, (asked, _, _) in self._jobs.items()]
        for number, asked in running:
            self.stop(number, asked)


def silence_parser() -> None:
    """Keep the parser from writing statements into the log, which may hold somebody's password."""
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


def limit_patience(curator: Curator) -> None:
    """Let nobody wait long for a file that another process holds: whoever asks is told that it is busy."""
    if isinstance(curator.ledger.store, SqliteStore):
        curator.ledger.store.turns.patience = LEDGER_SECONDS
    curator.ledger.watch.limit_patience(LEDGER_SECONDS)
    curator.context.store.limit_patience(LEDGER_SECONDS)


def _lower_priority() -> None:
    """Let others go before the calling thread; where threads have no priority of their own, nothing changes."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWER_PRIORITY)


def _run_worker(policy: Policy, ledger: str, threads: int, lines: list[Connection], costly: int) -> None:
    """What a process of the pool does, from its start to its end."""
    from deniable.curator.curator import Curator
    from deniable.curator.query.metadata import preload_queries

    sys.setswitchinterval(SWITCH_SECONDS)
    silence_parser()
    for number in (signal.SIGINT, signal.SIGTERM):  # the server says when to end, by cutting the lines
        signal.signal(number, signal.SIG_IGN)
    control, *slots = lines
    with Curator(policy, ledger=ledger, threads=threads) as curator, preload_queries():
        limit_patience(curator)
        worker = _Worker(curator)
        workers = [
            threading.Thread(target=worker.serve, args=(number, line, number < costly), daemon=True)
            for number, line in enumerate(slots)
        ]
        for thread in workers:
            thread.start()
        control.send("ready")
        try:
            while True:
                worker.stop(*control.recv())
        except (OSError, EOFError):
            until = time.monotonic() + ENDING_SECONDS
            for thread in workers:
                thread.join(max(0.0, until - time.monotonic()))
            worker.stop_all()
            for thread in workers:
                thread.join(5)
