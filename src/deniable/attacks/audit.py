"""The audit: a lower bound on epsilon, proven by running a mechanism many times on two neighbors.

A guarantee is an upper bound on what an intruder can learn; an audit plays the intruder and bounds it from below. If
the lower bound passes the claim, the claim is false (but with probability 1 - confidence). If it does not, nothing is
proven: the audit may have looked at the wrong event, or at the wrong pair of neighbors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.confidence import lower_bound, upper_bound
from deniable.errors import ParameterError

Runs = Callable[[int], NDArray[Any]]
"""Runs a mechanism so many times on one fixed input: an array of numbers, one row (or number) a run."""

BINS = 64


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """What the runs prove: `epsilon_bound` is at most the mechanism's true epsilon (at `delta`), with `confidence`.

    `delta_bound` bounds, in the same way, the delta that is needed at the claimed epsilon.
    """

    epsilon: float
    delta: float
    epsilon_bound: float
    delta_bound: float
    confidence: float
    runs: int
    feature: str
    likely: int
    unlikely: int
    tested: int

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon_bound > self.epsilon

    def __str__(self) -> str:
        verdict = "refuted" if self.violated else "not refuted"
        claim = f"claimed {self.epsilon:.3f}, delta {self.delta:g}"
        counts = f"{self.likely} against {self.unlikely} times in {self.tested} runs each"
        return f"epsilon is at least {self.epsilon_bound:.3f} ({claim}): {verdict}; by its {self.feature} {counts}"


def audit(
    left: Runs,
    right: Runs,
    *,
    epsilon: float,
    delta: float = 0.0,
    runs: int = 10_000,
    confidence: float = 0.999,
    progress: Callable[[float], None] | None = None,
) -> AuditOutcome:
    """Bound epsilon from below by `runs` runs on each of two neighboring inputs.

    **Scenario.** The intruder holds both neighbors and one output, and must say which of them it came from. Success is
    an event that is more than e^epsilon times (and delta) likelier under one of them than under the other.
    **Method.** A quarter of the runs ranks outcomes by their likelihood ratio, under several features of the output; a
    second quarter picks the one event with the best bound; the other half, never looked at before, tests that event
    alone by Clopper-Pearson bounds. Picking and testing on the same runs would accuse sound mechanisms.
    **Outcome.** The bound, the claim, and the counts behind them.
    """
    _check(epsilon, delta, runs, confidence)
    samples = [_run(left, runs), _run(right, runs)]
    _tell(progress, 0.5)
    quarter = runs // 4
    events = [event for feature in FEATURES for event in _events(feature, samples, quarter, delta)]
    best = max(events, key=lambda event: event.promise(delta, confidence))
    _tell(progress, 1.0)
    return _test(best, runs - 2 * quarter, epsilon, delta, confidence, runs)


@dataclass(frozen=True, slots=True)
class Event:
    """A set of outcomes, by how often each half saw it: picked on some runs, to be tested on others."""

    feature: str
    picked: tuple[int, int]
    picked_of: int
    tested: tuple[int, int]

    def promise(self, delta: float, confidence: float) -> float:
        """The bound that the picking runs alone would give; only used to choose."""
        return _epsilon_bound(*self.picked, self.picked_of, delta, confidence)


def _test(best: Event, tested: int, epsilon: float, delta: float, confidence: float, runs: int) -> AuditOutcome:
    side = (1 + confidence) / 2  # two one-sided bounds hold together by a union bound
    low, high = lower_bound(best.tested[0], tested, side), upper_bound(best.tested[1], tested, side)
    return AuditOutcome(
        epsilon=epsilon,
        delta=delta,
        epsilon_bound=_log_ratio(low, high, delta),
        delta_bound=max(0.0, low - math.exp(min(epsilon, 700.0)) * high),
        confidence=confidence,
        runs=runs,
        feature=best.feature,
        likely=best.tested[0],
        unlikely=best.tested[1],
        tested=tested,
    )


def _epsilon_bound(likely: int, unlikely: int, trials: int, delta: float, confidence: float) -> float:
    side = (1 + confidence) / 2
    return _log_ratio(lower_bound(likely, trials, side), upper_bound(unlikely, trials, side), delta)


def _log_ratio(low: float, high: float, delta: float) -> float:
    """epsilon >= ln((p - delta) / q) follows from p <= e^epsilon q + delta."""
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


Feature = tuple[str, Callable[[list[NDArray[Any]], int], list[NDArray[np.int64]]]]


def _events(feature: Feature, samples: list[NDArray[Any]], quarter: int, delta: float) -> list[Event]:
    """The promising events of one feature: for either direction, the best prefix of outcomes by likelihood ratio."""
    name, labels_of = feature
    labels = labels_of(samples, quarter)
    size = 1 + max(int(label.max(initial=0)) for label in labels)
    parts = [(0, quarter), (quarter, 2 * quarter), (2 * quarter, None)]
    ranked, picked, tested = (
        [np.bincount(label[start:stop], minlength=size) for label in labels] for start, stop in parts
    )
    return [_best_prefix(name, ranked, picked, tested, way, delta) for way in ((0, 1), (1, 0))]


def _best_prefix(
    name: str,
    ranked: Sequence[NDArray[np.int64]],
    picked: Sequence[NDArray[np.int64]],
    tested: Sequence[NDArray[np.int64]],
    way: tuple[int, int],
    delta: float,
) -> Event:
    """Outcomes in the order of their likelihood ratio; the prefix whose rough bound on the picking runs is best."""
    one, other = way
    order = np.argsort(-(ranked[one] + 0.5) / (ranked[other] + 0.5), kind="stable")
    likely, unlikely = np.cumsum(picked[one][order]), np.cumsum(picked[other][order])
    # Three standard deviations of a count: rough, fast, and only for choosing.
    low = likely - 3 * np.sqrt(likely) - delta * picked[one].sum()
    high = unlikely + 3 * np.sqrt(unlikely + 1) + 3
    best = int(np.argmax(low / high))
    chosen = order[: best + 1]
    counts = [int(part[side][chosen].sum()) for part in (picked, tested) for side in way]
    return Event(name, (counts[0], counts[1]), int(picked[0].sum()), (counts[2], counts[3]))


def _whole_output(samples: list[NDArray[Any]], _: int) -> list[NDArray[np.int64]]:
    """Each distinct output is an outcome."""
    labels = np.unique(np.concatenate(samples), axis=0, return_inverse=True)[1]
    return np.split(labels.reshape(-1).astype(np.int64), [len(samples[0])])


def _total(samples: list[NDArray[Any]], quarter: int) -> list[NDArray[np.int64]]:
    """Bins of the sum of the output's entries, cut by the ranking runs."""
    sums = [sample.sum(axis=1, dtype=np.float64) for sample in samples]
    seen = np.concatenate([total[:quarter] for total in sums])
    edges = np.unique(np.quantile(seen, np.linspace(0, 1, BINS + 1)[1:-1]))
    return [np.searchsorted(edges, total, side="right").astype(np.int64) for total in sums]


def _lowest_bit(samples: list[NDArray[Any]], _: int) -> list[NDArray[np.int64]]:
    """The place of the lowest binary digit of the first entry.

    Floating-point noise on 0 has finer digits than on 1 (Mironov 2012): the digits tell the inputs apart.
    """
    return [_place(sample[:, 0].astype(np.float64)) for sample in samples]


def _place(values: NDArray[np.float64]) -> NDArray[np.int64]:
    mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    trailing = np.log2(np.maximum(whole & -whole, 1)).astype(np.int64)
    return np.where(whole == 0, 0, exponent.astype(np.int64) - 53 + trailing + 1200)


FEATURES: tuple[Feature, ...] = (
    ("exact value", _whole_output),
    ("total", _total),
    ("lowest binary digit", _lowest_bit),
)


def _run(mechanism: Runs, runs: int) -> NDArray[Any]:
    outputs = np.asarray(mechanism(runs))
    if outputs.shape[:1] != (runs,) or outputs.ndim > 2 or outputs.dtype.kind not in "iufb":
        raise ParameterError("the runs are not an array of numbers", expected="One row of numbers for each run")
    return outputs.reshape(runs, -1)


def _check(epsilon: float, delta: float, runs: int, confidence: float) -> None:
    if not (epsilon >= 0 and 0 <= delta < 1 and 0 < confidence < 1):
        raise ParameterError("the claim is not an epsilon from 0 up with a delta and a confidence below 1")
    if runs < 100:
        raise ParameterError("fewer than 100 runs prove nothing", expected="thousands of runs")


def _tell(progress: Callable[[float], None] | None, share: float) -> None:
    if progress is not None:
        progress(share)
