"""Group commit: threads that wait for the writer's turn are written together, by one commit and one flush.

The disk flushes a few hundred times a second at best. Whoever gets the turn writes for all who wait, each decided
after the one before, in one transaction. A refusal concerns its own posting only; a failure of the disk undoes the
transaction and concerns all of it. Nobody gets a result before the commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from deniable.errors import DeniableError, StorageError

Opened = TypeVar("Opened")
Asked = TypeVar("Asked")
Given = TypeVar("Given")

MOST = 64
"""How many are written by one commit at most: nobody waits long for others."""


class _PendingWrite(Generic[Asked, Given]):
    """One who waits: what is asked, and what came of it."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.given: Given | None = None
        self.refusal: BaseException | None = None
        self.done = False


class GroupCommit(Generic[Opened, Asked, Given]):
    """Lets threads through together; `write` decides and writes one thing, and refuses before it writes.

    `writing` opens the one writer's transaction: kept when its block ends well, undone when it raises.
    """

    def __init__(
        self, writing: Callable[[], AbstractContextManager[Opened]], write: Callable[[Opened, Asked], Given]
    ) -> None:
        self._writing = writing
        self._write = write
        self._waiting: list[_PendingWrite[Asked, Given]] = []
        self._queue = threading.Lock()
        self._turn = threading.Lock()

    def submit(self, asked: Asked) -> Given:
        """What came of a posting, once it is on the disk; or its refusal."""
        ticket: _PendingWrite[Asked, Given] = _PendingWrite(asked)
        with self._queue:
            self._waiting.append(ticket)
        with self._turn:
            while not ticket.done:
                self._write_batch()
        if ticket.refusal is not None:
            raise ticket.refusal
        assert ticket.given is not None
        return ticket.given

    def _write_batch(self) -> None:
        with self._queue:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        try:
            with self._writing() as opened:
                for ticket in batch:
                    self._decide(opened, ticket)
        except DeniableError as failure:
            _undo(batch, failure)
        except BaseException:
            _undo(batch, StorageError("the ledger was interrupted while it wrote", remedy="Ask again"))
            raise
        finally:
            for ticket in batch:
                ticket.done = True

    def _decide(self, opened: Opened, ticket: _PendingWrite[Asked, Given]) -> None:
        try:
            ticket.given = self._write(opened, ticket.asked)
        except DeniableError as refusal:
            ticket.refusal = refusal


def _undo(batch: list[_PendingWrite[Asked, Given]], failure: BaseException) -> None:
    for ticket in batch:
        # What was refused by itself stays refused for its own reason.
        ticket.given, ticket.refusal = None, ticket.refusal or failure
