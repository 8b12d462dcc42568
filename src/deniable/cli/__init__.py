"""The command line: commands parse arguments, call the curator, print, and show progress. They compute nothing."""

from __future__ import annotations

import _thread
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
