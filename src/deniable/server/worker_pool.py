"""The worker pool: processes that answer questions, so that every core of the machine is used.

Each process has a curator of its own over the same policy and the same ledger, which decides among them as it does
among servers. The server's own process keeps the connections: tokens, rates, request ids and repeats are known in one
place. A process that dies takes its questions with it: whoever asked is told to ask again under the same request id,
and another process is started. When the server dies, however suddenly, its workers see the pipe cut and end."""

from __future__ import annotations

import multiprocessing
import queue
import signal
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import DeniableError, InternalError
from deniable.server.refusals import TimedOut, translate_failure

if TYPE_CHECKING:
    from deniable.curator.curator import Curator
    from deniable.curator.query.sql import QueryAnswer

SLOTS = 8
"""Questions that one process works on at a time: while one waits for the disk, another has the processor."""


@dataclass(eq=False, slots=True)
class Slot:
    """A place in a process where one question at a time is worked on."""

    worker: WorkerProcess
    number: int
    asked: int = 0

    @property
    def line(self) -> Connection:
        """The line to the process that holds this slot now."""
        return self.worker.lines[self.number]


@dataclass(eq=False, slots=True)
class WorkerProcess:
    """A process of the pool: `control` is the line on which it is told to stop a question."""

    process: Any
    control: Connection
    lines: list[Connection]
    lock: threading.Lock = field(default_factory=threading.Lock)


class WorkerPool:
    """Processes over one policy and one ledger."""

    def __init__(self, policy: Path, ledger: str, processes: int) -> None:
        self._where = (policy, ledger, max(1, _count_cores() // processes))
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        self._busy: dict[int, Slot] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._workers = [self._start_process() for _ in range(processes)]
        self.slots = processes * SLOTS
        for number in range(SLOTS):
            for worker in self._workers:
                self._free.put(Slot(worker, number))

    def ask(self, question: dict[str, Any]) -> QueryAnswer:
        """Have a question answered; called in a thread of the server, which waits."""
        slot = self._free.get()
        me, line = threading.get_ident(), slot.line
        slot.asked += 1
        try:
            self._busy[me] = slot
            line.send((slot.asked, question))
            outcome = line.recv()
        except (OSError, EOFError):
            self._replace_process(slot, line)
            raise TimedOut(charged=True) from None
        finally:
            self._busy.pop(me, None)
            self._free.put(slot)
        if isinstance(outcome, Exception):
            raise outcome
        answer: QueryAnswer = outcome
        return answer

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

    def _start_process(self) -> WorkerProcess:
        context = multiprocessing.get_context("spawn")
        pairs = [context.Pipe() for _ in range(SLOTS + 1)]
        theirs = [their for _, their in pairs]
        process = context.Process(target=_run_worker, args=(*self._where, theirs), daemon=True)
        process.start()
        for line in theirs:
            line.close()
        control, *lines = [ours for ours, _ in pairs]
        if control.recv() != "ready":
            raise InternalError("a process that works questions out could not be started")
        return WorkerProcess(process, control, lines)

    def _replace_process(self, slot: Slot, line: Connection) -> None:
        """Put a living process in the place of a dead one; the first that finds it dead does so for all its slots."""
        with self._lock:
            worker = slot.worker
            if not self._closed and line is slot.line:
                worker.process.kill()
                fresh = self._start_process()
                worker.process, worker.control, worker.lines = fresh.process, fresh.control, fresh.lines


def _count_cores() -> int:
    return multiprocessing.cpu_count()


class _Worker:
    """One process of the pool: its curator, and which question is worked on at each slot by which thread."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self._lock = threading.Lock()
        self._jobs: dict[int, tuple[int, int, threading.Event]] = {}

    def serve(self, number: int, line: Connection) -> None:
        """Answer the questions of one slot until the line is cut."""
        while True:
            try:
                asked, question = line.recv()
            except (OSError, EOFError):
                return
            outcome = self._answer_question(number, asked, question)
            try:
                line.send(outcome)
            except OSError:
                return

    def _answer_question(self, number: int, asked: int, question: dict[str, Any]) -> object:
        stop = threading.Event()
        with self._lock:
            self._jobs[number] = (asked, threading.get_ident(), stop)
        try:
            return self._curator.query(**question, stop=stop)
        except DeniableError as refusal:
            return refusal
        except Exception as failure:
            return translate_failure(failure)
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


def _run_worker(policy: Path, ledger: str, threads: int, lines: list[Connection]) -> None:
    """What a process of the pool does, from its start to its end."""
    from deniable.curator.curator import Curator
    from deniable.curator.query.metadata import preload_queries

    for number in (signal.SIGINT, signal.SIGTERM):  # the server says when to end, by cutting the lines
        signal.signal(number, signal.SIG_IGN)
    control, *slots = lines
    with Curator.open(policy, ledger=ledger, threads=threads) as curator, preload_queries():
        worker = _Worker(curator)
        workers = [threading.Thread(target=worker.serve, args=each, daemon=True) for each in enumerate(slots)]
        for thread in workers:
            thread.start()
        control.send("ready")
        try:
            while True:
                worker.stop(*control.recv())
        except (OSError, EOFError):
            for thread in workers:
                thread.join(5)
