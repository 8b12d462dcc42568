"""The command line: commands parse arguments, call the curator, print, and show progress. They compute nothing."""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INTERRUPTED = 130
"""The exit code of a command that Control-C ended."""


class OneStop:
    """Control-C and SIGTERM interrupt the work once: what they begin is done to its end, however many more come."""

    def __init__(self) -> None:
        self.heard = False
        self.over = False

    def __call__(self, _number: int, _frame: object) -> None:
        """Interrupt, for the first signal that comes while there is work."""
        if not self.heard and not self.over:
            self.heard = True
            raise KeyboardInterrupt

    def end(self) -> bool:
        """Interrupt no more, since what the command came to is told now; says whether a signal was heard before."""
        self.over = True
        return self.heard

    def notice(self, lost: Any) -> None:
        """Interrupt once more where Python dropped the interruption, as in a finalizer; other failures are shown."""
        import _thread
        import threading

        if not issubclass(lost.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(lost)
            return
        self.heard = False
        again = threading.Timer(0.01, _thread.interrupt_main, (signal.SIGTERM,))
        again.daemon = True
        again.start()


STOP = OneStop()
"""What Control-C and SIGTERM do to the command of this process."""


def hear_once() -> None:
    """Hear the first signal to stop alone; a process that was started to ignore Control-C goes on ignoring it."""
    if signal.getsignal(signal.SIGTERM) is STOP:
        return
    STOP.heard = STOP.over = False
    signal.signal(signal.SIGTERM, STOP)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, STOP)
    sys.unraisablehook = STOP.notice
