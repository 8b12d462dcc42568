"""A time limit on work in a database: one watcher for the whole process interrupts what has lasted too long.

A thread for each piece of work would cost more than most questions do."""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from deniable.errors import ParameterError

AGAIN = 0.05
"""Seconds between interrupts: one that comes before the statement has begun is lost, so it is repeated."""

Interrupt = Callable[[], None]


class Watcher:
    """Interrupts at deadlines, again and again until the work has ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int]] = []
        self._watched: dict[int, Interrupt] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def begin(self, seconds: float, interrupt: Interrupt) -> int:
        """Watch a piece of work that may last so many seconds; gives the number by which its end is reported."""
        with self._changed:
            number, deadline = next(self._numbers), time.monotonic() + seconds
            self._watched[number] = interrupt
            self._put(deadline, number)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="deniable-watcher", daemon=True)
                self._thread.start()
            return number

    def end(self, number: int) -> None:
        """The work has ended: when this returns, it is not interrupted any more."""
        with self._changed:
            self._watched.pop(number, None)

    def _put(self, deadline: float, number: int) -> None:
        heapq.heappush(self._due, (deadline, number))
        if self._due[0][1] == number:
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while True:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                else:
                    self._interrupt(heapq.heappop(self._due)[1])

    def _interrupt(self, number: int) -> None:
        interrupt = self._watched.get(number)
        if interrupt is not None:
            with suppress(Exception):  # what cannot be interrupted any more has ended
                interrupt()
            heapq.heappush(self._due, (time.monotonic() + AGAIN, number))


WATCHER = Watcher()
# Neither threads nor locks that they hold cross a fork whole: the child begins with a watcher of its own.
os.register_at_fork(after_in_child=WATCHER.__init__)  # type: ignore[misc]


@contextmanager
def interrupt_after(seconds: float | None, interrupt: Interrupt) -> Iterator[None]:
    """Interrupt the work inside the block when it lasts longer than `seconds`; None means no limit."""
    if seconds is None:
        yield
        return
    if not seconds > 0:
        raise ParameterError(f"the time limit is {seconds} seconds", expected="A time limit is more than 0")
    number = WATCHER.begin(seconds, interrupt)
    try:
        yield
    finally:
        WATCHER.end(number)
