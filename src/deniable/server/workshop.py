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
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class _Work:
    """A piece of work as its thread knows it, and as the event loop does."""

    future: Future[Any]
    outcome: asyncio.Future[Any]


class Workshop:
    """The threads of one server, and its crew of processes if it has one."""

    def __init__(self, curator: Curator, limits: Limits, crew: Crew | None = None) -> None:
        self._curator = curator
        self._limits = limits
        self._crew = crew
        self._hands = Hands(limits.workers, curator.interrupt)
        self._seats = Hands(crew.seats, crew.interrupt) if crew is not None else self._hands
        self._works: dict[Hashable, _Work] = {}
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
        begun = self._works.get(key) or self._begin(key, owner, hands, work)
        try:
            async with asyncio.timeout(self._limits.seconds + SLACK):
                done: Result = await asyncio.shield(begun.outcome)
                return done
        except TimeoutError:
            raise TakingLong from None
        except asyncio.CancelledError:
            if begun.future.cancelled():
                raise Busy("the question was cancelled before it was begun", remedy="Ask again") from None
            raise

    def leave(self, work: Callable[[], None]) -> None:
        """Begin some work that nobody waits for."""
        self._hands.begin(lambda _stop: work())

    def cancel(self, owner: str, name: Hashable) -> bool:
        """Take a question back; whether it had not been begun, so that nothing was charged."""
        begun = self._works.get((owner, name))
        return begun is not None and self._seats.stop(begun.future)

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

    def _begin(self, key: Hashable, owner: str, hands: Hands, work: Work[Result]) -> _Work:
        if self._owned[owner] >= self._limits.at_once:
            raise Busy(f"{self._limits.at_once} questions of yours are being worked on", remedy="Wait for one of them")
        if self.waiting >= self._limits.waiting:
            raise Busy("too many questions wait", remedy="Try again in some seconds")
        future = hands.begin(work)
        begun = self._works[key] = _Work(future, asyncio.wrap_future(future))
        self._owned[owner] += 1
        begun.outcome.add_done_callback(lambda outcome: self._end(key, owner, outcome))
        return begun

    def _end(self, key: Hashable, owner: str, outcome: asyncio.Future[Any]) -> None:
        if not outcome.cancelled():
            outcome.exception()  # it is seen here even if nobody waits for it any more
        self._works.pop(key, None)
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner]
