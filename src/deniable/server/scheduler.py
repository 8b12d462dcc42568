"""The scheduler: a few threads, a fair and bounded queue, and one job for each request id.

The event loop never blocks on the curator. Askers take turns, and no asker has all threads, so that one who sends
costly questions holds up only their own. A question that still waits can be cancelled, and is then not charged. One
that was begun is stopped alone: before its charge it costs nothing, after it the charge stands. Whoever only stops
waiting finds the answer stored. Equal requests with one id share one job. What runs inside an engine is interrupted by
the identity of its thread, again and again until it has ended: an interrupt between two statements is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from deniable.curator.charge import watch_charges
from deniable.errors import Cancelled, ChargeWatch
from deniable.server.limits import Limits
from deniable.server.refusals import Busy, TimedOut
from deniable.server.worker_pool import WORK

if TYPE_CHECKING:
    from deniable.curator.curator import Curator
    from deniable.server.worker_pool import WorkerPool


Result = TypeVar("Result")
Work = Callable[[threading.Event], Result]
INTERRUPT_SECONDS = 0.05
"""Seconds between interrupts."""
COSTLY_SECONDS, ONCE_SECONDS = 0.05, 0.25
"""Seconds of the processor: an owner is costly of whom two recent pieces of work took more, or one took much more.

One of them may be by chance: it was the first to read what somebody else was charged. Such an owner has one thread at a
time; one of whom nothing is known yet has two."""
FORGETTING = 0.95
"""What is left of a piece's cost with each piece of its owner after it. So the costliest of the recent pieces count:
somebody who mixes costly questions with quick ones is not taken for somebody who asks quick ones."""


class _Task:
    """A piece of work of an owner: whether it was taken back, and which thread does it."""

    __slots__ = ("future", "owner", "stop", "thread", "work")

    def __init__(self, owner: str, work: Work[Any]) -> None:
        self.owner, self.work = owner, work
        self.future: Future[Any] = Future()
        self.stop = threading.Event()
        self.thread: int | None = None


class ThreadPool:
    """Some threads, of which one owner has at most half; `interrupt` stops what an engine does for a thread.

    Owners take turns: who has waited longest for a turn is next, however much the others have in the line. An owner
    of costly work has one thread at a time, since threads of one process share its interpreter.
    """

    def __init__(self, count: int, interrupt: Callable[[int], None]) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="deniable")
        self._count, self._share = count, max(1, count // 2)
        self._costs: dict[str, tuple[float, float]] = {}
        self._elsewhere: dict[int, float] = {}
        self._interrupt = interrupt
        self._tasks: dict[Future[Any], _Task] = {}
        self._lines: OrderedDict[str, deque[_Task]] = OrderedDict()
        self._running: Counter[str] = Counter()
        self._lock = threading.RLock()

    def begin(self, owner: str, work: Work[Result]) -> Future[Result]:
        """Put a piece of work in its owner's line."""
        piece = _Task(owner, work)
        with self._lock:
            self._tasks[piece.future] = piece
            self._lines.setdefault(owner, deque()).append(piece)
        piece.future.add_done_callback(lambda done: self._tasks.pop(done, None))
        self._start_waiting()
        return piece.future

    def is_costly(self, owner: str) -> bool:
        """Whether recent work of an owner was costly."""
        most, second = self._costs.get(owner, (0.0, 0.0))
        return second > COSTLY_SECONDS or most > ONCE_SECONDS

    def add_seconds(self, seconds: float) -> None:
        """Count what another process worked for the piece of the calling thread."""
        self._elsewhere[threading.get_ident()] = seconds

    def _start_waiting(self) -> None:
        """Give free threads to those whose turn it is."""
        with self._lock:
            while self._running.total() < self._count and (piece := self._find_next()) is not None:
                self._running[piece.owner] += 1
                self._pool.submit(self._run_task, piece)

    def _find_next(self) -> _Task | None:
        """The next piece of the owner who had no turn for longest; what was taken back meanwhile is left out."""
        for owner, line in list(self._lines.items()):
            while line and line[0].future.cancelled():
                line.popleft()
            share = min(self._share, 2) if owner not in self._costs else 1 if self.is_costly(owner) else self._share
            if line and self._running[owner] < share:
                self._lines.move_to_end(owner)
                return line.popleft()
            if not line:
                del self._lines[owner]
        return None

    def stop(self, future: Future[Any]) -> bool:
        """Take work back; whether it had not been begun. What was begun is interrupted, and ends soon."""
        if future.cancel():
            return True
        piece = self._tasks.get(future)
        if piece is not None and not piece.stop.is_set():
            piece.stop.set()
            threading.Thread(target=self._interrupt_until_done, args=(future, piece), daemon=True).start()
        return False

    def close(self) -> None:
        """Finish what was begun, and drop the rest."""
        with self._lock:
            dropped = [piece for line in self._lines.values() for piece in line]
            self._lines.clear()
        for piece in dropped:
            piece.future.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run_task(self, piece: _Task) -> None:
        piece.thread, since = threading.get_ident(), time.thread_time()
        try:
            if piece.future.set_running_or_notify_cancel():
                self._settle_task(piece)
        finally:
            with self._lock:
                took = time.thread_time() - since + self._elsewhere.pop(threading.get_ident(), 0.0)
                before = (FORGETTING * each for each in self._costs.get(piece.owner, (0.0, 0.0)))
                second, most = sorted((took, *before))[1:]
                self._costs[piece.owner] = (most, second)
                self._running[piece.owner] -= 1
                if not self._running[piece.owner]:
                    del self._running[piece.owner]
            self._start_waiting()

    def _settle_task(self, piece: _Task) -> None:
        outcome, failure = None, None
        try:
            outcome = piece.work(piece.stop)
        except BaseException as raised:
            failure = raised
        # From here on the thread may take up other work, which must not be interrupted for this one.
        with self._lock:
            piece.thread = None
        if failure is None:
            piece.future.set_result(outcome)
        else:
            piece.future.set_exception(failure)

    def _interrupt_until_done(self, future: Future[Any], piece: _Task) -> None:
        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        while not ended.is_set():
            with self._lock:
                if piece.thread is not None:
                    self._interrupt(piece.thread)
            ended.wait(INTERRUPT_SECONDS)


SLACK_SECONDS = 2.0
"""Seconds beyond the time limit of a question in which its own refusal may still arrive."""


@dataclass(slots=True)
class _Job:
    """A piece of work as its thread knows it, and as the event loop does."""

    future: Future[Any]
    outcome: asyncio.Future[Any]
    threads: ThreadPool
    watch: ChargeWatch
    id: tuple[str, Hashable]
    """Whose it is, and by which name that one can take it back."""
    told: bool = False
    """Whether somebody was given its outcome."""


class Scheduler:
    """The threads of one server, and its pool of processes if it has one."""

    def __init__(self, curator: Curator, limits: Limits, pool: WorkerPool | None = None) -> None:
        self._curator = curator
        self._limits = limits
        self._worker_pool = pool
        self._threads = ThreadPool(limits.workers, curator.interrupt)
        self._slot_threads = ThreadPool(pool.slots, pool.interrupt) if pool is not None else self._threads
        self._jobs: dict[Hashable, _Job] = {}
        self._counts: Counter[str] = Counter()
        self.servers = 1
        """How many servers share the limits of an asker."""

    async def run(self, owner: str, work: Callable[[], Result], name: Hashable = None) -> Result:
        """Do some work for an owner; under a name that is being worked on, wait for that instead."""
        return await self._begin_and_wait(owner, self._threads, lambda _stop: work(), name, charges=False)

    async def charge(
        self, owner: str, work: Work[Result], name: Hashable = None, request: str = "",
        repeat: Callable[[Result], Result] | None = None,
    ) -> Result:  # fmt: skip
        """Do some work that may charge: it goes on when nobody waits any more. It is taken back by its request id.

        Of several that wait for it, the first is told of the charge; `repeat` makes of the outcome what others get.
        """
        named = (request, name) if request else name
        return await self._begin_and_wait(owner, self._threads, work, named, request, charges=True, repeat=repeat)

    async def work(
        self, owner: str, kind: str, given: Mapping[str, Any], name: Hashable = None, request: str = "",
        check: Callable[[], None] | None = None, repeat: Callable[[Any], Any] | None = None,
    ) -> Any:  # fmt: skip
        """Have the curator do some kind of work, in the worker pool if there is one; as `charge` does.

        What `check` refuses when the work begins is not done.
        """
        pool, threads = self._worker_pool, self._slot_threads

        def do(stop: threading.Event) -> Any:
            if check is not None:
                check()
            if pool is None:
                return WORK[kind](self._curator, stop, **given)
            return pool.work(kind, given, threads.add_seconds, costly=threads.is_costly(owner))

        named = (request, name) if request else name
        charges = kind == "query"
        return await self._begin_and_wait(owner, threads, do, named, request, charges=charges, repeat=repeat)

    async def _begin_and_wait(
        self, owner: str, threads: ThreadPool, work: Work[Result], name: Hashable, request: str = "", *, charges: bool,
        repeat: Callable[[Result], Result] | None = None,
    ) -> Result:  # fmt: skip
        key = (owner, name) if name else object()
        watch = ChargeWatch()

        def watched(stop: threading.Event) -> Result:
            with watch_charges(watch):
                return work(stop)

        named = (owner, request or name)
        begun = self._jobs.get(key) or self._begin(key, named, threads, watched if charges else work, watch)
        try:
            async with asyncio.timeout(self._limits.seconds + SLACK_SECONDS):
                done: Result = await asyncio.shield(begun.outcome)
                first, begun.told = not begun.told, True
                return done if first or repeat is None else repeat(done)
        except TimeoutError:
            if not charges:  # nobody finds it stored: it is given up, so that its thread is free again
                threads.stop(begun.future)
            # What goes on may be charged a moment later; what a worker process charged is not known here.
            raise TimedOut(charged=begun.watch.charged or (None if charges else False)) from None
        except asyncio.CancelledError:
            if begun.future.cancelled():
                raise Cancelled("the question was cancelled before it was begun", remedy="Ask again") from None
            raise

    def leave(self, work: Callable[[], None]) -> None:
        """Begin some work that nobody waits for."""
        self._threads.begin("releases", lambda _stop: work())

    def cancel(self, owner: str, name: Hashable) -> tuple[bool, bool | None] | None:
        """Take back all questions of a name; whether none had been begun, and whether one was charged: None is unknown.

        None where there is no such question.
        """
        begun = [each for each in self._jobs.values() if name and each.id == (owner, name)]
        running = [each for each in begun if not each.future.cancel()]  # what waits first: it may not begin meanwhile
        for each in running:
            each.threads.stop(each.future)
        if not begun:
            return None
        return not running, (any(each.watch.charged for each in running) or None) if running else False

    @property
    def waiting(self) -> int:
        """How much is worked on or waits."""
        return sum(self._counts.values())

    def close(self) -> None:
        """Finish what was begun, and drop the rest."""
        self._threads.close()
        self._slot_threads.close()
        if self._worker_pool is not None:
            self._worker_pool.close()

    def _begin(
        self, key: Hashable, named: tuple[str, Hashable], threads: ThreadPool, work: Work[Result], watch: ChargeWatch
    ) -> _Job:
        owner = named[0]
        most = max(1, self._limits.at_once // self.servers)
        if self._counts[owner] >= most:
            raise Busy(f"{most} questions of yours are being worked on", remedy="Wait for one of them")
        if self.waiting >= self._limits.waiting:
            raise Busy("too many questions wait", remedy="Try again in some seconds")
        future = threads.begin(owner, work)
        begun = self._jobs[key] = _Job(future, asyncio.wrap_future(future), threads, watch, named)
        self._counts[owner] += 1
        begun.outcome.add_done_callback(lambda outcome: self._end(key, owner, outcome))
        return begun

    def _end(self, key: Hashable, owner: str, outcome: asyncio.Future[Any]) -> None:
        if not outcome.cancelled():
            outcome.exception()  # it is seen here even if nobody waits for it any more
        self._jobs.pop(key, None)
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
