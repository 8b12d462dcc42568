"""Where questions are worked on: a few threads, a bounded queue, and one piece of work for each request id.

The event loop never blocks on the hall. A question that still waits can be cancelled, and is then not charged. One
that was begun runs to its end or to its time limit, because it is charged: whoever stops waiting for it finds its
answer stored. Two requests with one id share one piece of work.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from deniable.server.limits import Limits
from deniable.server.messages import Busy, TakingLong

Result = TypeVar("Result")
SLACK = 2.0
"""Seconds beyond the time limit of a question in which its own refusal may still arrive."""


class Workshop:
    """The threads of one server."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="deniable")
        self._works: dict[Hashable, Future[Any]] = {}
        self._owned: Counter[str] = Counter()

    async def run(self, owner: str, work: Callable[[], Result], name: Hashable = None) -> Result:
        """Do some work for an owner; under a name that is being worked on, wait for that instead."""
        key = (owner, name) if name else object()
        future = self._works.get(key) or self._begin(key, owner, work)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self._limits.seconds + SLACK)
        except TimeoutError:
            raise TakingLong from None
        except asyncio.CancelledError:
            if future.cancelled():
                raise Busy("the question was cancelled before it was begun", remedy="Ask again") from None
            raise

    def cancel(self, owner: str, name: Hashable) -> bool:
        """Take a question back; whether it had not been begun, so that nothing was charged."""
        future = self._works.get((owner, name))
        return future is not None and future.cancel()

    @property
    def waiting(self) -> int:
        """How much is worked on or waits."""
        return sum(self._owned.values())

    def close(self) -> None:
        """Finish what was begun, and drop the rest."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self, key: Hashable, owner: str, work: Callable[[], Result]) -> Future[Result]:
        if self._owned[owner] >= self._limits.at_once:
            raise Busy(f"{self._limits.at_once} questions of yours are being worked on", remedy="Wait for one of them")
        if self.waiting >= self._limits.waiting:
            raise Busy("too many questions wait", remedy="Try again in some seconds")
        loop = asyncio.get_running_loop()
        future = self._pool.submit(work)
        self._works[key] = future
        self._owned[owner] += 1
        future.add_done_callback(lambda _: _soon(loop, self._end, key, owner))
        return future

    def _end(self, key: Hashable, owner: str) -> None:
        self._works.pop(key, None)
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner]


def _soon(loop: asyncio.AbstractEventLoop, deed: Callable[..., None], *arguments: Any) -> None:
    """Do something on the loop, if it still runs."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(deed, *arguments)
