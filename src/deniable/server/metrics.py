"""Metrics in Prometheus' text form: how many requests ended how, and how long they took. Nothing about data.

Labels are the operation and the status, which are words of ours; nothing that an asker wrote and nothing that was
read becomes a label or a value. Durations are those that askers see, after padding.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters of one server."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]] | None = None) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._seconds = 0.0
        self._gauges = dict(gauges or {})

    def note(self, operation: str, status: int, seconds: float) -> None:
        """Count one request."""
        with self._lock:
            self._requests[operation, status] += 1
            self._seconds += seconds
            self._buckets[next((edge for edge in BUCKETS if seconds <= edge), float("inf"))] += 1

    def gauge(self, name: str, told: str, read: Callable[[], float]) -> None:
        """Show a number that is read when metrics are asked for."""
        self._gauges[name] = (told, read)

    def text(self) -> str:
        """All metrics in the text form."""
        with self._lock:
            return "".join([*self._counted(), *self._timed(), *self._gauged()])

    def _counted(self) -> list[str]:
        lines = ["# HELP deniable_requests_total Requests by operation and status.\n"]
        lines.append("# TYPE deniable_requests_total counter\n")
        for (operation, status), count in sorted(self._requests.items()):
            lines.append(f'deniable_requests_total{{operation="{operation}",status="{status}"}} {count}\n')
        return lines

    def _timed(self) -> list[str]:
        name = "deniable_request_seconds"
        lines = [f"# HELP {name} Duration of requests as askers see it.\n", f"# TYPE {name} histogram\n"]
        total = 0
        for edge in BUCKETS:
            total += self._buckets[edge]
            lines.append(f'{name}_bucket{{le="{edge:g}"}} {total}\n')
        total += self._buckets[float("inf")]
        lines.append(f'{name}_bucket{{le="+Inf"}} {total}\n')
        return [*lines, f"{name}_sum {self._seconds:.6f}\n", f"{name}_count {total}\n"]

    def _gauged(self) -> list[str]:
        lines = []
        for name, (told, read) in sorted(self._gauges.items()):
            lines.append(f"# HELP {name} {told}\n# TYPE {name} gauge\n{name} {read():g}\n")
        return lines
