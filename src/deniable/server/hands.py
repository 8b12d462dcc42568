"""Hands: threads in which a piece of work can be taken back before it is begun, and stopped alone after that.

Work gets an event that says whether it was taken back. What runs inside an engine is interrupted as well, by the
identity of its thread, again and again until it has ended: an interrupt that comes between two statements is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")
Work = Callable[[threading.Event], Result]
AGAIN = 0.05
"""Seconds between interrupts."""


class _Piece:
    """A piece of work: whether it was taken back, and which thread does it."""

    __slots__ = ("stop", "thread")

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.thread: int | None = None


class Hands:
    """Some threads; `interrupt` stops what an engine does for the thread of an identity."""

    def __init__(self, count: int, interrupt: Callable[[int], None]) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="deniable")
        self._interrupt = interrupt
        self._pieces: dict[Future[Any], _Piece] = {}
        self._lock = threading.Lock()

    def begin(self, work: Work[Result]) -> Future[Result]:
        """Put a piece of work in the line."""
        piece = _Piece()
        future = self._pool.submit(self._do, work, piece)
        self._pieces[future] = piece
        future.add_done_callback(lambda done: self._pieces.pop(done, None))
        return future

    def stop(self, future: Future[Any]) -> bool:
        """Take work back; whether it had not been begun. What was begun is interrupted, and ends soon."""
        if future.cancel():
            return True
        piece = self._pieces.get(future)
        if piece is not None and not piece.stop.is_set():
            piece.stop.set()
            threading.Thread(target=self._insist, args=(future, piece), daemon=True).start()
        return False

    def close(self) -> None:
        """Finish what was begun, and drop the rest."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _do(self, work: Work[Result], piece: _Piece) -> Result:
        piece.thread = threading.get_ident()
        try:
            return work(piece.stop)
        finally:
            # From here on the thread may take up other work, which must not be interrupted for this one.
            with self._lock:
                piece.thread = None

    def _insist(self, future: Future[Any], piece: _Piece) -> None:
        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        while not ended.is_set():
            with self._lock:
                if piece.thread is not None:
                    self._interrupt(piece.thread)
            ended.wait(AGAIN)
