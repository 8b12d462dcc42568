"""Audits of a claimed epsilon: a lower bound by many runs on two neighbors or by one run with canaries, and the game.

A guarantee is an upper bound on what an intruder can learn; an audit plays the intruder and bounds it from below. If
the lower bound passes the claim, the claim is false (but with probability 1 - confidence). If it does not, nothing is
proven: the audit may have looked at the wrong event, or at the wrong pair of neighbors; `power` says what so many runs
could have found. Runs are taken to be independent: a mechanism that remembers must be made anew for each. Runs that
come in batches may depend on the others of their batch; then whole batches teach or test. The one-run
audit puts many canaries into the data, each by a coin (Steinke et al. 2023). The distinguishing game shows how often
the best attacker tells two neighbors apart, beside what epsilon allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.distinguishers import Event, Goal, learn_events, measure_distance
from deniable.attacks.outcome import Progress, Rate, count_as_one, incomplete_beta, lower_bound, tell, upper_bound
from deniable.errors import DeniableError, ParameterError

Runs = Callable[[int], NDArray[Any]]
"""Runs a mechanism so many times on one fixed input: an array of numbers, one row (or number) a run."""

FEWEST, FEWEST_BATCHES = 100, 8
MOST_EPSILON = 40.0
FIRST = 0.8
"""The share of what may go wrong that is left to the event which decides; the others divide the rest."""


@dataclass(frozen=True, slots=True)
class Power:
    """What so many runs could have found, with an even chance, had the audit looked at the right event.

    `epsilon` is the smallest true epsilon that would have refuted the claim, by an event as likely as can be; `leak`
    the smallest probability of an event that never happens under the other neighbor. Of a claim with a mu, `mu` is the
    smallest true mu that would have refuted it, and `leak` is about that claim. Infinite is what no runs of this number
    refute.
    """

    epsilon: float
    leak: float
    mu: float | None = None


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """What the runs prove: `epsilon_bound` is at most the mechanism's true epsilon (at `delta`), with `confidence`.

    `delta_bound` bounds, in the same way, the delta that is needed at the claimed epsilon, and `mu_bound` the mu of
    Gaussian differential privacy. All three hold together. A claim with a `mu` is about that mu alone.
    """

    epsilon: float
    delta: float
    epsilon_bound: float
    delta_bound: float
    mu_bound: float
    confidence: float
    runs: int
    feature: str
    likely: int
    unlikely: int
    tested: int
    power: Power
    mu: float | None = None
    counted_as_one: float = 1.0
    """So many runs count as one, since runs of a batch may depend on each other."""
    alike: int = 0
    """Under so many of the two neighbors every run gave the same output."""

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon_bound > self.epsilon if self.mu is None else self.mu_bound > self.mu

    def __str__(self) -> str:
        verdict = "refuted" if self.violated else "not refuted"
        if self.mu is None:
            told = f"epsilon is at least {self.epsilon_bound:.3f} (claimed {self.epsilon:.3f}, delta {self.delta:g})"
        else:
            told = f"mu is at least {self.mu_bound:.3f} (claimed {self.mu:.3f})"
        counts = f"{self.likely} against {self.unlikely} times in {self.tested} runs each"
        return f"{told}: {verdict}; by the {self.feature} {counts}{_ALIKE[self.alike]}"


_ALIKE = (
    "",
    "; every run of one world gave the same output",
    "; every run of a world gave the same output: nothing in it is drawn anew, or the first answer is remembered",
)


def audit(
    left: Runs,
    right: Runs,
    *,
    epsilon: float,
    delta: float = 0.0,
    mu: float | None = None,
    runs: int = 10_000,
    confidence: float = 0.999,
    names: Sequence[str] = (),
    progress: Progress | None = None,
) -> AuditOutcome:
    """Bound epsilon from below by `runs` runs on each of two neighboring inputs.

    **Scenario.** The intruder holds both neighbors and one output, and must say which of them it came from. Success is
    an event that is more than e^epsilon times (and delta) likelier under one of them than under the other.
    **Method.** Half of the runs teach which events tell the neighbors apart (`attacks.distinguishers`); three of them
    are kept, the best against the claim, for epsilon and for mu. The other half, never looked at before, tests these by
    Clopper-Pearson bounds that hold for all of them together. Picking and testing on the same runs would accuse sound
    mechanisms.
    **Outcome.** The bounds, the claim, the counts behind them, and what so many runs could have found.
    """
    check_claim(epsilon, delta, confidence)
    if runs < FEWEST:
        raise ParameterError(f"fewer than {FEWEST} runs prove nothing", expected="thousands of runs")
    outputs = [_run_mechanism(side, runs) for side in (left, right)]
    tell(progress, 0.5)
    found = audit_outputs(
        outputs[0], outputs[1], epsilon=epsilon, delta=delta, mu=mu, confidence=confidence, names=names
    )
    tell(progress, 1.0)
    return found


HALVES = 20261116
"""The seed by which runs are halved: the same outputs are judged alike each time."""


def audit_outputs(
    left: NDArray[Any],
    right: NDArray[Any],
    *,
    epsilon: float,
    delta: float = 0.0,
    mu: float | None = None,
    confidence: float = 0.999,
    names: Sequence[str] = (),
    inside: int = 0,
    batches: int = 0,
) -> AuditOutcome:
    """Bound epsilon from below by outputs that are at hand: one row a run, as many columns under both neighbors.

    The last `inside` columns count what is inside texts and lists; they are not compared with each other. Where the
    runs of each neighbor came in `batches`, one after the other and of even size, runs of one batch may depend on each
    other: half of the batches teach and the others test, and the more the batches differ, the less each run counts.
    """
    check_claim(epsilon, delta, confidence)
    sides = [_check_outputs(side, len(side)) for side in (left, right)]
    if min(map(len, sides)) < FEWEST or sides[0].shape[1] != sides[1].shape[1]:
        raise ParameterError(
            "The outputs are too few, or not alike", expected=f"{FEWEST} runs or more of each, with as many columns"
        )
    if 0 < batches < FEWEST_BATCHES:
        raise ParameterError(
            "The batches are too few to see whether their runs depend on each other",
            expected=f"{FEWEST_BATCHES} batches or more of each, or runs that are independent",
        )
    taught, tested = _halve(sides, batches)
    goal = Goal(epsilon, delta, min(map(len, tested)))
    events = learn_events(taught[0], taught[1], goal, names, inside)
    claim = Claimed(epsilon, delta, mu, confidence)
    found = _test_events(events, (tested[0], tested[1]), claim, max(map(len, sides)), batches)
    return replace(found, alike=sum(bool((side == side[:1]).all()) for side in sides))


def _halve(sides: Sequence[NDArray[Any]], batches: int = 0) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Half of the runs of each side to learn from, and the others; by chance, since a file of outputs may be sorted."""
    halves = [[side[part] for part in _halve_runs(len(side), batches)] for side in sides]
    return [taught for taught, _ in halves], [tested for _, tested in halves]


def _halve_runs(runs: int, batches: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of the runs that teach, by chance, and of those that test, batch after batch."""
    rng = np.random.default_rng(HALVES)
    if not batches:
        mixed = rng.permutation(runs)
        return mixed[: runs // 2], mixed[runs // 2 :]
    parts, order = np.array_split(np.arange(runs), batches), rng.permutation(batches)
    taught, tested = (np.concatenate([parts[place] for place in sorted(half)]) for half in np.array_split(order, 2))
    return rng.permutation(taught), tested


def list_learning_runs(runs: int, batches: int = 0) -> NDArray[np.int64]:
    """The places of the runs from which scores are learned: no others may choose what is looked at in an output."""
    return np.array_split(_halve_runs(runs, batches)[0], 2)[0]


def find_worst_neighbors(
    sample: Callable[[int, int], tuple[NDArray[Any], NDArray[Any]]],
    pairs: int,
    *,
    epsilon: float,
    delta: float = 0.0,
    runs: int = 1000,
    progress: Progress | None = None,
) -> int:
    """Which of several pairs of neighbors is told apart best against the claim; `sample` runs a pair by its place.

    The worse half is dropped after `runs` runs of each, the rest is run twice as often, until one is left. What this
    finds is only a choice: the audit itself must be of new runs.
    """
    left, first = list(range(pairs)), pairs
    while len(left) > 1:
        goal = Goal(epsilon, delta, runs // 2)
        far = {place: _measure_neighbors(sample(place, runs), goal) for place in left}
        left = sorted(left, key=lambda place: -far[place])[: (len(left) + 1) // 2]
        runs *= 2
        tell(progress, 1 - (len(left) - 1) / first)
    return left[0]


def _measure_neighbors(outputs: tuple[NDArray[Any], NDArray[Any]], goal: Goal) -> float:
    one, other = (_check_outputs(side, len(side)) for side in outputs)
    taught, tested = _halve((one, other))
    return measure_distance(learn_events(taught[0], taught[1], goal)[0], tested[0], tested[1], goal)


@dataclass(frozen=True, slots=True)
class Claimed:
    """What is claimed of a mechanism, and how sure a refutation must be."""

    epsilon: float
    delta: float
    mu: float | None
    confidence: float


@dataclass(frozen=True, slots=True)
class _Tested:
    """An event with its counts under the likelier and the other neighbor, and bounds on its probabilities."""

    event: Event
    likely: int
    unlikely: int
    low: float
    high: float
    counted_as_one: float
    is_seen: bool = True
    """Whether it happened in some runs and not in others, so that its batches can be compared."""

    def bound_epsilon(self, delta: float) -> float:
        """epsilon >= ln((p - delta) / q) follows from p <= e^epsilon q + delta."""
        return max(0.0, math.log((self.low - delta) / self.high)) if self.low > delta else 0.0

    def bound_delta(self, epsilon: float) -> float:
        """delta >= p - e^epsilon q, by the same inequality."""
        return max(0.0, self.low - math.exp(min(epsilon, 700.0)) * self.high)

    def bound_mu(self) -> float:
        """Under mu-GDP hits are at most Phi(Phi^-1(false alarms) + mu)."""
        return _part_of_normals(self.low, self.high)


def _test_events(
    events: Sequence[Event], outputs: tuple[NDArray[Any], NDArray[Any]], claim: Claimed, runs: int, batches: int = 0
) -> AuditOutcome:
    ordered = events if claim.mu is None else events[::-1]
    first, *others = {id(event): event for event in ordered}.values()
    # What may go wrong adds up over all bounds; the event that decides about the claim gets most of it.
    spent = (1 - claim.confidence) * (FIRST if others else 1.0)
    rest = (1 - claim.confidence - spent) / max(1, len(others))
    found = [_test_event(event, outputs, 1 - chance / 2, batches // 2) for event, chance in
             ((first, spent), *((other, rest) for other in others))]  # fmt: skip
    bounds = [one.bound_epsilon(claim.delta) for one in found]
    # The event that was chosen against the claim is shown; where another proves more, that one.
    shown = found[max(range(len(found)), key=lambda place: bounds[place])]
    if claim.mu is not None:
        shown = max(found, key=_Tested.bound_mu)
    tested = min(map(len, outputs))
    many = next((one.counted_as_one for one in found if one.is_seen), found[0].counted_as_one)
    return AuditOutcome(
        epsilon=claim.epsilon,
        delta=claim.delta,
        epsilon_bound=max(bounds),
        delta_bound=max(one.bound_delta(claim.epsilon) for one in found),
        mu_bound=max(one.bound_mu() for one in found),
        confidence=claim.confidence,
        runs=runs,
        feature=shown.event.view.name,
        likely=shown.likely,
        unlikely=shown.unlikely,
        tested=tested,
        power=compute_power(
            int(tested / many), claim.epsilon, claim.delta, 1 - (1 - claim.confidence) * FIRST / 2, claim.mu
        ),
        mu=claim.mu,
        counted_as_one=many,
    )


def _test_event(event: Event, outputs: tuple[NDArray[Any], NDArray[Any]], side: float, batches: int = 0) -> _Tested:
    """Bounds on the probabilities of an event; Clopper and Pearson's where all runs are independent."""
    one, other = (event.happened(outputs[place]) for place in (event.likelier, 1 - event.likelier))
    likely, unlikely = int(one.sum()), int(other.sum())
    if batches and one.all() and not other.any():
        # It may be of whole batches, whose number alone bounds it: under (epsilon, delta) n batches of each are so with
        # p^n (1 - q)^n <= ((1 + p - q) / 2)^2n <= ((e^epsilon + delta) / (1 + e^epsilon))^2n.
        low = (2 * (1 - side)) ** (1 / (2 * batches))
        return _Tested(event, likely, unlikely, low, 1 - low, min(len(one), len(other)) / batches)
    many = count_as_one((one, other), batches, side) if batches else 1.0
    low = lower_bound(likely / many, len(one) / many, side)
    high = upper_bound(unlikely / many, len(other) / many, side)
    return _Tested(event, likely, unlikely, low, high, many, 0 < likely + unlikely < len(one) + len(other))


def compute_power(tested: int, epsilon: float, delta: float, side: float, mu: float | None = None) -> Power:
    """What `tested` runs on each neighbor would refute with an even chance, by counts as expected."""

    def refutes(low: int, high: int) -> bool:
        ends = lower_bound(low, tested, side), upper_bound(high, tested, side)
        return _log_ratio(*ends, delta) > epsilon if mu is None else _part_of_normals(*ends) > mu

    def finds(truth: float) -> bool:
        share = 1 / (1 + math.exp(-truth)) if mu is None else NormalDist().cdf(truth / 2)
        return refutes(round(tested * share), round(tested * (1 - share)))

    found = _find_least(finds, epsilon if mu is None else mu)
    leak = _find_least_count(lambda count: refutes(count, 0), tested) / tested
    return Power(found, leak) if mu is None else Power(compute_power(tested, epsilon, delta, side).epsilon, leak, found)


def _find_least(finds: Callable[[float], bool], least: float) -> float:
    """The least truth, from the claimed one up, that is found; infinite where none is."""
    most = MOST_EPSILON
    if not finds(most):
        return math.inf
    for _ in range(20):
        middle = (least + most) / 2
        least, most = (least, middle) if finds(middle) else (middle, most)
    return most


def _find_least_count(finds: Callable[[int], bool], most: int) -> float:
    if not finds(most):
        return math.inf
    least = 0
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if finds(middle) else (middle, most)
    return most


def _part_of_normals(low: float, high: float) -> float:
    """How far two normal distributions are apart whose shares above a cut are these."""
    if low <= 0 or high >= 1:
        return 0.0
    return max(0.0, NormalDist().inv_cdf(low) - NormalDist().inv_cdf(high))


def _log_ratio(low: float, high: float, delta: float) -> float:
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def _run_mechanism(mechanism: Runs, runs: int) -> NDArray[Any]:
    return _check_outputs(np.asarray(mechanism(runs)), runs)


def _check_outputs(outputs: NDArray[Any], runs: int) -> NDArray[Any]:
    if outputs.shape[:1] != (runs,) or outputs.ndim > 2 or outputs.dtype.kind not in "iufb":
        raise ParameterError("the runs are not an array of numbers", expected="One row of numbers for each run")
    numbers = outputs.reshape(runs, -1)
    return numbers.astype(np.int64) if numbers.dtype.kind == "b" else numbers


def check_claim(epsilon: float, delta: float, confidence: float) -> None:
    """Refuse what is no claim."""
    if not (epsilon >= 0 and 0 <= delta < 1 and 0 < confidence < 1):
        raise ParameterError("the claim is not an epsilon from 0 up with a delta and a confidence below 1")


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
    scores = _score_canaries(run, inside)
    order = np.argsort(scores, kind="stable")
    high, low = order[-(called - called // 2) :], order[: called // 2]
    correct = int(inside[high].sum() + (~inside[low]).sum())
    bound = bound_one_run(canaries, called, correct, delta, 1 - confidence)
    return OneRunOutcome(epsilon, delta, bound, confidence, canaries, called, correct)


def _score_canaries(run: Run, inside: NDArray[np.bool_]) -> NDArray[np.float64]:
    expected = "A function of an array of true and false, one for each canary, that gives a number for each"
    try:
        told = run(inside.copy())  # who was in is not the function's to change
    except (DeniableError, KeyboardInterrupt):
        raise
    except BaseException as failure:  # whatever a stranger's function raises; its words may quote data
        raise ParameterError(f"The run with canaries raised {type(failure).__name__}", expected=expected) from None
    try:
        scores = np.asarray(told, np.float64)
    except (ValueError, TypeError):
        raise ParameterError("The scores of the canaries are not numbers", expected=expected) from None
    if scores.shape != inside.shape:
        raise ParameterError("The run did not score every canary once", expected=expected)
    return scores


def bound_one_run(canaries: int, guesses: int, correct: int, delta: float, chance: float) -> float:
    """The largest epsilon at which so many right guesses would be rarer than `chance`."""
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
    """The attacker's wins when a fair coin picks the neighbor, the most the claim allows, and the whole trade-off.

    A claim with a `mu` is about that mu alone.
    """

    epsilon: float
    delta: float
    wins: Rate
    bound: float
    points: tuple[GamePoint, ...]
    mu: float | None = None

    @property
    def odds(self) -> float:
        """The bound as odds: e^epsilon to 1 when delta is 0."""
        return self.bound / (1 - self.bound) if self.bound < 1 else math.inf

    @property
    def beyond(self) -> bool:
        """Whether the attacker wins more often than the claim allows, beyond chance."""
        return self.wins.interval.low > self.bound


GAME_SIDE = 0.975
"""Each end of the interval of games won holds with this confidence."""


def play_distinguishing_game(
    left: Runs, right: Runs, *, epsilon: float, delta: float = 0.0, runs: int = 10_000, points: int = 40
) -> Game:
    """Play the game many times.

    **Scenario.** The attacker is given both neighboring tables and one output, drawn from either by a fair coin, and
    says which; success is the right one.
    **Method.** Half of the runs teach which outcomes are likelier under which neighbor, the other half are played.
    **Outcome.** The share of games won; under (epsilon, delta) at most (e^epsilon + delta)/(1 + e^epsilon).
    """
    if runs < FEWEST:
        raise ParameterError(f"Fewer than {FEWEST} runs teach nothing", expected="Thousands of runs")
    one, other = (_run_mechanism(side, runs) for side in (left, right))
    return play_with_outputs(one, other, epsilon=epsilon, delta=delta, points=points)


def play_with_outputs(
    left: NDArray[Any],
    right: NDArray[Any],
    *,
    epsilon: float,
    delta: float = 0.0,
    mu: float | None = None,
    points: int = 40,
    inside: int = 0,
    batches: int = 0,
) -> Game:
    """Play the game with outputs that are at hand: one row a run, as many columns under both neighbors.

    `inside` and `batches` are as in `audit_outputs`.
    """
    outputs = [_check_outputs(side, len(side)) for side in (left, right)]
    taught, played = _halve(outputs, batches)
    event = learn_events(taught[0], taught[1], Goal(0.0, 0.0, min(map(len, played))), inside=inside)[0]
    ranks = [event.rank_outputs(side) for side in played]
    likely, other = ranks[event.likelier], ranks[1 - event.likelier]
    won = (likely >= event.least, other < event.least)
    many = count_as_one(won, batches // 2, GAME_SIDE) if batches else 1.0
    wins = Rate(int(won[0].sum() + won[1].sum()), sum(map(len, played)), counted_as_one=many)
    cuts = np.unique(np.concatenate([*ranks, [np.inf]]))[::-1]
    kept = cuts[np.unique(np.linspace(0, len(cuts) - 1, points).astype(int))]
    rates = [(float((other >= cut).mean()), float((likely >= cut).mean())) for cut in kept]
    power = math.exp(min(epsilon, 700.0))
    allowed = (power + delta) / (1 + power) if mu is None else NormalDist().cdf(mu / 2)
    shown = tuple(GamePoint(alarms, hits, _bound_hits(alarms, power, delta, mu)) for alarms, hits in rates)
    return Game(epsilon, delta, wins, allowed, shown, mu)


def _bound_hits(alarms: float, power: float, delta: float, mu: float | None) -> float:
    """hits <= e^epsilon alarms + delta, and 1 - alarms <= e^epsilon (1 - hits) + delta; under mu-GDP by normals."""
    if mu is not None:
        return NormalDist().cdf(NormalDist().inv_cdf(alarms) + mu) if 0 < alarms < 1 else alarms
    return min(1.0, power * alarms + delta, 1 - (1 - alarms - delta) / power)
