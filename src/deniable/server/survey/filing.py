"""Filing in batches: responses that arrive while one batch is being written make up the next.

One durable write for many responses is what lets a single core take thousands a second and still thank nobody before
their response is on the disk.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable.localdp.survey.store import Arrival, Store

MOST_AT_ONCE = 2000
MOST_WAITING = 20_000


class Full(Exception):
    """Too many responses wait for the disk; the client should try again."""


class Filing:
    """A queue in front of a store, emptied by one task."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Arrival, asyncio.Future[bool]]] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to file."""
        self._task = asyncio.create_task(self._run())

    async def file(self, arrival: Arrival) -> bool:
        """Wait until a response is on the disk; say whether it was new."""
        if len(self._waiting) >= MOST_WAITING:
            raise Full
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((arrival, done))
        self._wake.set()
        return await done

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                await self._write(batch)

    async def _write(self, batch: list[tuple[Arrival, asyncio.Future[bool]]]) -> None:
        """Write one batch in a thread, so that the next one can gather; a failure fails everybody in the batch."""
        try:
            fresh = await asyncio.to_thread(self._store.add, [arrival for arrival, _ in batch])
        except Exception as failure:
            for _, done in batch:
                if not done.done():
                    done.set_exception(failure)
            return
        for (_, done), new in zip(batch, fresh, strict=True):
            if not done.done():
                done.set_result(new)

    async def stop(self) -> None:
        """File what waits, and end."""
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            await self._write(batch)
        if self._task is not None:
            self._task.cancel()
