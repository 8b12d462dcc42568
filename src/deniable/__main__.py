"""`python -m deniable`, and the command `deniable`: what is to be there before any other module is loaded."""

from __future__ import annotations

import os
import signal
import sys

EARLY = "Cancelled  stopped before anything was done. Nothing was charged.\n"


def run() -> None:
    """The program: one command in a process of its own, which Control-C and SIGTERM end with one message."""
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        from deniable.cli import hear_once

        hear_once()
        from deniable.cli.main import run as run_command

        run_command()
    except KeyboardInterrupt:
        _leave_stopped()


def _leave_stopped() -> None:
    """Tell of a signal that came before the command began, or after its end."""
    from deniable.cli import INTERRUPTED, STOP

    STOP.end()
    begun = sys.modules.get("deniable.cli.main")
    if (leave := getattr(begun, "leave_stopped", None)) is not None:  # it was loaded to its end
        leave()
    try:
        sys.stderr.write(EARLY)
        sys.stderr.flush()
    except (OSError, AttributeError):  # it is full, or closed
        os._exit(INTERRUPTED)
    os._exit(INTERRUPTED)  # another signal would be heard at the end of Python


if __name__ == "__main__":
    run()
