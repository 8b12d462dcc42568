"""The server's log: lines about what the server does, never about what anybody asked or was answered.

An unforeseen failure is logged as its type and the places in our own code that it came through. Its message is left
out, because messages of other libraries may quote values.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import PurePath

Log = Callable[[str], None]
_LOCK = threading.Lock()


def to_stderr(line: str) -> None:
    """Write one line with its time."""
    with _LOCK:
        sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}\n")
        sys.stderr.flush()


def places(failure: BaseException) -> str:
    """The type of a failure and where it came through, without its message."""
    frames = traceback.extract_tb(failure.__traceback__)
    ours = [f"{PurePath(frame.filename).stem}:{frame.lineno}" for frame in frames if "deniable" in frame.filename]
    return f"{type(failure).__name__} at {' > '.join(ours) or 'a place outside deniable'}"
