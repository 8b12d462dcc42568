"""Long work of a page: how far it is, whether it shall stop, and how it ended. The page asks while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.responses import Response

from deniable.curator.charge import ChargeWatch, watch_charges
from deniable.errors import BudgetExceeded, DeniableError, Stopped
from deniable.server.http.endpoints import respond_json
from deniable.server.monitoring import locate_failure, log_to_stderr
from deniable.server.refusals import translate_for_page

if TYPE_CHECKING:
    from deniable.governance.grants import Grant
    from deniable.server.service import Service


@dataclass
class Job:
    """A long step: how far it is, whether it shall stop, what it has to say meanwhile, and how it ended."""

    title: str
    done: float = 0.0
    ended: bool = False
    refusal: str = ""
    said: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def tell(self, share: float) -> None:
        """Note how far it is; stops the step where that was asked."""
        if self.stop.is_set():
            raise Stopped("it was stopped on the page", remedy="Begin it again when you like")
        self.done = max(self.done, min(1.0, share))

    def respond(self) -> Response:
        """How far it is, for the script of the page."""
        return respond_json({"done": self.done, "ended": self.ended, "said": self.said[-12:]})


def begin_job(service: Service, grant: Grant, title: str, work: Callable[[Job], None]) -> Job:
    """Begin some work in the background; what it charges names the steward who began it."""
    job = Job(title)

    def do() -> None:
        try:
            with watch_charges(ChargeWatch(by=grant.name)):
                job.tell(0.0)  # it may have been stopped while it waited
                work(job)
        except DeniableError as refusal:
            if refusal.__cause__ is not None:
                log_to_stderr(f"failed: {locate_failure(refusal)}")
            # Refusals about files are the steward's own, and are told as they are.
            over = isinstance(refusal, BudgetExceeded)
            job.refusal = (translate_for_page(refusal, only_epsilon=True) if over else refusal).message
        finally:
            job.ended = True

    service.scheduler.leave(do)
    return job
