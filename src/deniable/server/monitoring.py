"""The server's log and its metrics in Prometheus' text form: what the server does, never what was asked or answered.

An unforeseen failure is logged as its type and the places in our own code that it came through. Its message is left
out, because messages of other libraries may quote values. Labels of metrics are the operation and the status, which are
words of ours; nothing that an asker wrote and nothing that was read becomes a label or a value. Durations are those
that askers see, after padding."""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import PurePath

Log = Callable[[str], None]
_LOCK = threading.Lock()


def log_to_stderr(line: str) -> None:
    """Write one line with its time."""
    with _LOCK:
        sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}\n")
        sys.stderr.flush()


def locate_failure(failure: BaseException) -> str:
    """The type of a failure and where it came through, without its message."""
    frames = traceback.extract_tb(failure.__traceback__)
    ours = [f"{PurePath(frame.filename).stem}:{frame.lineno}" for frame in frames if "deniable" in frame.filename]
    return f"{type(failure).__name__} at {' > '.join(ours) or 'a place outside deniable'}"


BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters of one server."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]] | None = None) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._seconds = 0.0
        self._gauges = dict(gauges or {})

    def count_request(self, operation: str, status: int, seconds: float) -> None:
        """Count one request."""
        with self._lock:
            self._requests[operation, status] += 1
            self._seconds += seconds
            self._buckets[next((edge for edge in BUCKETS if seconds <= edge), float("inf"))] += 1

    def add_gauge(self, name: str, told: str, read: Callable[[], float]) -> None:
        """Show a number that is read when metrics are asked for."""
        self._gauges[name] = (told, read)

    def text(self) -> str:
        """All metrics in the text form."""
        with self._lock:
            return "".join([*self._render_counters(), *self._render_durations(), *self._render_gauges()])

    def _render_counters(self) -> list[str]:
        lines = ["# HELP deniable_requests_total Requests by operation and status.\n"]
        lines.append("# TYPE deniable_requests_total counter\n")
        for (operation, status), count in sorted(self._requests.items()):
            lines.append(f'deniable_requests_total{{operation="{operation}",status="{status}"}} {count}\n')
        return lines

    def _render_durations(self) -> list[str]:
        name = "deniable_request_seconds"
        lines = [f"# HELP {name} Duration of requests as askers see it.\n", f"# TYPE {name} histogram\n"]
        total = 0
        for edge in BUCKETS:
            total += self._buckets[edge]
            lines.append(f'{name}_bucket{{le="{edge:g}"}} {total}\n')
        total += self._buckets[float("inf")]
        lines.append(f'{name}_bucket{{le="+Inf"}} {total}\n')
        return [*lines, f"{name}_sum {self._seconds:.6f}\n", f"{name}_count {total}\n"]

    def _render_gauges(self) -> list[str]:
        lines = []
        for name, (told, read) in sorted(self._gauges.items()):
            lines.append(f"# HELP {name} {told}\n# TYPE {name} gauge\n{name} {read():g}\n")
        return lines
