"""`python -m deniable`, and the command `deniable`: what is to be there before any other module is loaded."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from typing import Any

INTERRUPTED = 130
"""The exit code of a command that Control-C ended."""


class OneStop:
    """Control-C and SIGTERM interrupt the work once: what they begin is done to its end, however many more come."""

    def __init__(self) -> None:
        self.heard = False

    def __call__(self, _number: int, _frame: object) -> None:
        """Interrupt, for the first signal."""
        if not self.heard:
            self.heard = True
            raise KeyboardInterrupt

    def notice(self, lost: Any) -> None:
        """Interrupt once more where Python dropped the interruption, as in a finalizer; other failures are shown."""
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(lost)
            return
        self.heard = False
        again = threading.Timer(0.01, _thread.interrupt_main, (signal.SIGTERM,))
        again.daemon = True
        again.start()


def hear_once() -> None:
    """Hear the first signal to stop alone; a process that was started to ignore Control-C goes on ignoring it."""
    if isinstance(signal.getsignal(signal.SIGTERM), OneStop):
        return
    stop = OneStop()
    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, stop)
    sys.unraisablehook = stop.notice


def run() -> None:
    """The program: one command in a process of its own."""
    hear_once()
    try:
        from deniable.cli.main import run as run_command
    except KeyboardInterrupt:
        sys.stderr.write("Cancelled  stopped before anything was done. Nothing was charged.\n")
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # another signal would be heard at the end of Python
    run_command()


if __name__ == "__main__":
    run()
