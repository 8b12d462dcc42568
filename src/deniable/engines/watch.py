"""A time limit on work in a database: a watcher that interrupts until the work has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deniable.errors import ParameterError

AGAIN = 0.05
"""Seconds between interrupts: one that comes before the statement has begun is lost, so it is repeated."""


@contextmanager
def stopped_after(seconds: float | None, interrupt: Callable[[], None]) -> Iterator[None]:
    """Interrupt the work inside the block when it lasts longer than `seconds`; None means no limit."""
    if seconds is None:
        yield
        return
    if not seconds > 0:
        raise ParameterError(f"the time limit is {seconds} seconds", expected="A time limit is more than 0")
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(seconds, interrupt, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _watch(seconds: float, interrupt: Callable[[], None], ended: threading.Event) -> None:
    waiting = seconds
    while not ended.wait(waiting):
        interrupt()
        waiting = AGAIN
