"""Audits of a claimed epsilon: a lower bound by many runs on two neighbors or by one run with canaries, and the game.

A guarantee is an upper bound on what an intruder can learn; an audit plays the intruder and bounds it from below. If
the lower bound passes the claim, the claim is false (but with probability 1 - confidence). If it does not, nothing is
proven: the audit may have looked at the wrong event, or at the wrong pair of neighbors. The one-run audit puts many
canaries into the data, each by a coin (Steinke et al. 2023). The distinguishing game shows how often the best attacker
tells two neighbors apart, beside what epsilon allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.confidence import incomplete_beta, lower_bound, upper_bound
from deniable.attacks.outcome import Rate
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
    samples = [_run_mechanism(left, runs), _run_mechanism(right, runs)]
    _tell(progress, 0.5)
    quarter = runs // 4
    events = [event for feature in FEATURES for event in _find_events(feature, samples, quarter, delta)]
    best = max(events, key=lambda event: event.promise(delta, confidence))
    _tell(progress, 1.0)
    return _test_event(best, runs - 2 * quarter, epsilon, delta, confidence, runs)


@dataclass(frozen=True, slots=True)
class Event:
    """A set of outcomes, by how often each half saw it: picked on some runs, to be tested on others."""

    feature: str
    picked: tuple[int, int]
    picked_of: int
    tested: tuple[int, int]

    def promise(self, delta: float, confidence: float) -> float:
        """The bound that the picking runs alone would give; only used to choose."""
        return _bound_epsilon(*self.picked, self.picked_of, delta, confidence)


def _test_event(best: Event, tested: int, epsilon: float, delta: float, confidence: float, runs: int) -> AuditOutcome:
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


def _bound_epsilon(likely: int, unlikely: int, trials: int, delta: float, confidence: float) -> float:
    side = (1 + confidence) / 2
    return _log_ratio(lower_bound(likely, trials, side), upper_bound(unlikely, trials, side), delta)


def _log_ratio(low: float, high: float, delta: float) -> float:
    """epsilon >= ln((p - delta) / q) follows from p <= e^epsilon q + delta."""
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


Feature = tuple[str, Callable[[list[NDArray[Any]], int], list[NDArray[np.int64]]]]


def _find_events(feature: Feature, samples: list[NDArray[Any]], quarter: int, delta: float) -> list[Event]:
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


def _run_mechanism(mechanism: Runs, runs: int) -> NDArray[Any]:
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


Run = Callable[[NDArray[np.bool_]], NDArray[np.float64]]
"""Runs the mechanism once with the canaries that are in, and scores every canary: higher where it seems to be in."""


@dataclass(frozen=True, slots=True)
class OneRunOutcome:
    """What one run proves: epsilon is at least `epsilon_bound` (at `delta`), with `confidence`."""

    epsilon: float
    delta: float
    epsilon_bound: float
    confidence: float
    canaries: int
    guesses: int
    correct: int

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon_bound > self.epsilon

    def __str__(self) -> str:
        verdict = "refuted" if self.violated else "not refuted"
        claim = f"claimed {self.epsilon:.3f}, delta {self.delta:g}"
        return (
            f"epsilon is at least {self.epsilon_bound:.3f} ({claim}): {verdict}; "
            f"{self.correct} of {self.guesses} guesses right about {self.canaries} canaries, in one run"
        )


def audit_one_run(
    run: Run,
    canaries: int,
    *,
    epsilon: float,
    delta: float = 0.0,
    guesses: int | None = None,
    confidence: float = 0.999,
    seed: int = 0,
) -> OneRunOutcome:
    """Bound epsilon from below by a single run.

    **Scenario.** Some records (canaries) are put into the data by independent coins; the intruder sees one output and
    guesses for some of them whether they were in. Success is more right guesses than epsilon allows.
    **Method.** The canaries with the highest scores are called in, those with the lowest out, `guesses` in all (a
    third of them unless given; fixed beforehand). Under epsilon-DP each guess is right with at most
    e^epsilon/(1 + e^epsilon) given all others, so the number of right ones is at most binomial; delta adds what the
    theorem says.
    **Outcome.** The largest epsilon at which so many right guesses would be rarer than 1 - confidence.
    """
    called = canaries // 3 if guesses is None else guesses
    if not 2 <= called <= canaries or not 0 < confidence < 1 or epsilon < 0 or not 0 <= delta < 1:
        raise ParameterError(
            "This is not a claim that one run can test", expected="2 or more guesses, at most canaries"
        )
    inside = np.random.default_rng(seed).random(canaries) < 0.5
    scores = np.asarray(run(inside), np.float64)
    if scores.shape != (canaries,):
        raise ParameterError("The run did not score every canary once")
    order = np.argsort(scores, kind="stable")
    high, low = order[-(called - called // 2) :], order[: called // 2]
    correct = int(inside[high].sum() + (~inside[low]).sum())
    bound = _bound_one_run(canaries, called, correct, delta, 1 - confidence)
    return OneRunOutcome(epsilon, delta, bound, confidence, canaries, called, correct)


def _bound_one_run(canaries: int, guesses: int, correct: int, delta: float, chance: float) -> float:
    low, high = 0.0, 40.0
    if compute_p_value(canaries, guesses, correct, 0.0, delta) > chance:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if compute_p_value(canaries, guesses, correct, middle, delta) <= chance else (low, middle)
        )
    return low


def compute_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """How likely so many right guesses are, at most, under (epsilon, delta).

    With delta = 0 this is the binomial tail. Otherwise each canary is lost with probability 2 delta at most, and losing
    i of them can turn a result that is i short into this one: alpha is the most that this gains for each.
    """
    q = 1 / (1 + math.exp(-epsilon))
    tail = incomplete_beta(correct, guesses - correct + 1, q) if correct else 1.0
    if delta == 0:
        return tail
    alpha, total = 0.0, 0.0
    for short in range(1, correct + 1):
        total += _pmf(guesses, correct - short, q)
        alpha = max(alpha, total / short)
    return min(1.0, tail + 2 * canaries * delta * alpha)


def _pmf(n: int, k: int, q: float) -> float:
    if q in (0.0, 1.0):
        return float(k == n * q)
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(q) + (n - k) * math.log1p(-q)
    return math.exp(log)


@dataclass(frozen=True, slots=True)
class GamePoint:
    """One strategy of the attacker: false alarms and hits, and the most hits that (epsilon, delta) allows."""

    false_alarms: float
    hits: float
    bound: float


@dataclass(frozen=True, slots=True)
class Game:
    """The attacker's wins when a fair coin picks the neighbor, the most the claim allows, and the whole trade-off."""

    epsilon: float
    delta: float
    wins: Rate
    bound: float
    points: tuple[GamePoint, ...]

    @property
    def odds(self) -> float:
        """The bound as odds: e^epsilon to 1 when delta is 0."""
        return self.bound / (1 - self.bound) if self.bound < 1 else math.inf

    @property
    def beyond(self) -> bool:
        """Whether the attacker wins more often than the claim allows, beyond chance."""
        return self.wins.interval.low > self.bound


def play_distinguishing_game(
    left: Runs, right: Runs, *, epsilon: float, delta: float = 0.0, runs: int = 10_000, points: int = 40
) -> Game:
    """Play the game many times.

    **Scenario.** The attacker is given both neighboring tables and one output, drawn from either by a fair coin, and
    says which; success is the right one.
    **Method.** Half of the runs teach which outcomes are likelier under which neighbor, the other half are played.
    **Outcome.** The share of games won; under (epsilon, delta) at most (e^epsilon + delta)/(1 + e^epsilon).
    """
    if runs < 100:
        raise ParameterError("Fewer than 100 runs teach nothing", expected="Thousands of runs")
    samples = [np.asarray(side(runs), np.float64).reshape(runs, -1)[:, 0] for side in (left, right)]
    half = runs // 2
    edges = np.unique(np.quantile(np.concatenate([s[:half] for s in samples]), np.linspace(0, 1, 257)[1:-1]))
    bins = [np.searchsorted(edges, sample, side="right") for sample in samples]
    taught = [np.bincount(b[:half], minlength=len(edges) + 1) + 0.5 for b in bins]
    order = np.argsort(-taught[1] / taught[0], kind="stable")  # likeliest under the right neighbor first
    played = [np.bincount(b[half:], minlength=len(edges) + 1)[order] for b in bins]
    alarms, hits = (np.concatenate([[0.0], np.cumsum(part)]) / (runs - half) for part in played)
    says_right = (taught[1] > taught[0])[order]
    won = int(played[1][says_right].sum() + played[0][~says_right].sum())
    power = math.exp(min(epsilon, 700.0))
    kept = np.unique(np.linspace(0, len(alarms) - 1, points).astype(int))
    shown = tuple(GamePoint(float(alarms[i]), float(hits[i]), _most_hits(float(alarms[i]), power, delta)) for i in kept)
    return Game(epsilon, delta, Rate(won, 2 * (runs - half)), (power + delta) / (1 + power), shown)


def _most_hits(alarms: float, power: float, delta: float) -> float:
    """hits <= e^epsilon alarms + delta, and 1 - alarms <= e^epsilon (1 - hits) + delta."""
    return min(1.0, power * alarms + delta, 1 - (1 - alarms - delta) / power)
