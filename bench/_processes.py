"""What a process and those that it started have used; without packages, for whichever Python runs it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def cpu_seconds() -> float:
    """CPU seconds of this process and of the processes that it started, so far."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # a process that has just ended
            fields = stat.read_text().rpartition(")")[2].split()
            if int(stat.parent.name) == os.getpid() or is_below(int(fields[1])):
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def is_below(parent: int) -> bool:
    """Whether a process is this one, or was started by one that is."""
    while parent > 1 and parent != os.getpid():
        try:
            parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return parent == os.getpid()
