"""The server's log and its metrics in Prometheus' text form: what the server does, never what was asked or answered.

An unforeseen failure is logged as its type and the places in our own code that it came through. Its message is left
out, because messages of other libraries may quote values. Labels of metrics are the operation and the status, which are
words of ours; nothing that an asker wrote and nothing that was read becomes a label or a value. Durations are those
that askers see, after padding."""

from __future__ import annotations

import math
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric

Log = Callable[[str], None]
_LOCK = threading.Lock()


def log_to_stderr(line: str) -> None:
    """Write one line with its time."""
    with _LOCK:
        sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}\n")
        sys.stderr.flush()


def locate_failure(failure: BaseException) -> str:
    """The type of a failure and where it came through, without its message; of one that was wrapped, its cause's."""
    if failure.__cause__ is not None and failure.__cause__.__traceback__ is not None:  # lost between processes
        failure = failure.__cause__
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
            self._buckets[next((edge for edge in BUCKETS if seconds <= edge), math.inf)] += 1

    def add_gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Show a number that is read when metrics are asked for."""
        self._gauges[name] = (help_text, read)

    def text(self) -> str:
        """All metrics in the text form, version 0.0.4."""
        # Loaded when metrics are first asked for, which many servers never are: it takes as long as 20 ms.
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry).decode()

    def collect(self) -> Iterator[Metric]:
        """The metrics as `prometheus_client` takes them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        with self._lock:
            requests, buckets, seconds = dict(self._requests), Counter(self._buckets), self._seconds
        counted = CounterMetricFamily(
            "deniable_requests", "Requests by operation and status.", labels=("operation", "status")
        )
        for (operation, status), count in sorted(requests.items()):
            counted.add_metric((operation, str(status)), count)
        yield counted
        edges = [*(f"{edge:g}" for edge in BUCKETS), "+Inf"]
        totals = accumulate(buckets[edge] for edge in (*BUCKETS, math.inf))
        durations = HistogramMetricFamily("deniable_request_seconds", "Duration of requests as askers see it.")
        durations.add_metric((), list(zip(edges, totals, strict=True)), seconds)
        yield durations
        for name, (help_text, read) in sorted(self._gauges.items()):
            yield GaugeMetricFamily(name, help_text, value=read())
