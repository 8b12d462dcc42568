"""`python -m deniable`, and the command `deniable`: what is to be there before any other module is loaded."""

from __future__ import annotations

import os
import sys

from deniable.cli import INTERRUPTED, hear_once


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
