"""Where questions are worked on: a few threads, a bounded queue, and one piece of work for each request id.

The event loop never blocks on the hall. A question that still waits can be cancelled, and is then not charged. One
that was begun is stopped alone: before its charge it costs nothing, after it the charge stands. Whoever only stops
waiting finds the answer stored. Two requests with one id share one piece of work.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from deniable.server.hands import Hands, Work
from deniable.server.limits import Limits
from deniable.server.messages import Busy, TakingLong

if TYPE_CHECKING:
    from deniable.curator.asking import QueryAnswer
    from deniable.curator.hall import Curator
    from deniable.server.crew import Crew

Result = TypeVar("Result")
SLACK = 2.0
"""Seconds beyond the time limit of a question in which its own refusal may still arrive."""


class Workshop:
    """The threads of one server, and its crew of processes if it has one."""

    def __init__(self, curator: Curator, limits: Limits, crew: Crew | None = None) -> None:
        self._curator = curator
        self._limits = limits
        self._crew = crew
        self._hands = Hands(limits.workers, curator.interrupt)
        self._seats = Hands(crew.seats, crew.interrupt) if crew is not None else self._hands
        self._works: dict[Hashable, Future[Any]] = {}
        self._owned: Counter[str] = Counter()

    async def run(self, owner: str, work: Callable[[], Result], name: Hashable = None) -> Result:
        """Do some work for an owner; under a name that is being worked on, wait for that instead."""
        return await self._done(owner, self._hands, lambda _stop: work(), name)

    async def ask(self, owner: str, question: dict[str, Any], name: Hashable = None) -> QueryAnswer:
        """Have a question answered by the hall, in the crew if there is one."""
        crew, curator = self._crew, self._curator
        if crew is not None:
            return await self._done(owner, self._seats, lambda _stop: crew.ask(question), name)
        return await self._done(owner, self._seats, lambda stop: curator.query(**question, stop=stop), name)

    async def _done(self, owner: str, hands: Hands, work: Work[Result], name: Hashable) -> Result:
        key = (owner, name) if name else object()
        future = self._works.get(key) or self._begin(key, owner, hands, work)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self._limits.seconds + SLACK)
        except TimeoutError:
            raise TakingLong from None
        except asyncio.CancelledError:
            if future.cancelled():
                raise Busy("the question was cancelled before it was begun", remedy="Ask again") from None
            raise

    def leave(self, work: Callable[[], None]) -> None:
        """Begin some work that nobody waits for."""
        self._hands.begin(lambda _stop: work())

    def cancel(self, owner: str, name: Hashable) -> bool:
        """Take a question back; whether it had not been begun, so that nothing was charged."""
        future = self._works.get((owner, name))
        return future is not None and self._seats.stop(future)

    @property
    def waiting(self) -> int:
        """How much is worked on or waits."""
        return sum(self._owned.values())

    def close(self) -> None:
        """Finish what was begun, and drop the rest."""
        self._hands.close()
        self._seats.close()
        if self._crew is not None:
            self._crew.close()

    def _begin(self, key: Hashable, owner: str, hands: Hands, work: Work[Result]) -> Future[Result]:
        if self._owned[owner] >= self._limits.at_once:
            raise Busy(f"{self._limits.at_once} questions of yours are being worked on", remedy="Wait for one of them")
        if self.waiting >= self._limits.waiting:
            raise Busy("too many questions wait", remedy="Try again in some seconds")
        loop = asyncio.get_running_loop()
        future = hands.begin(work)
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
