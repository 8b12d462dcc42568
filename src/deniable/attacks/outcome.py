"""What an attack is, and what it reports: rates for the attack, for a control and for guessing, each with an interval.

An attack that succeeds often may only be good at guessing. So an outcome has three rates: how often the intruder
succeeds on people who are in the release; how often the same intruder succeeds on people who are not (the control: what
would be learned about anybody); and how often somebody succeeds who guesses without the release (the baseline). An
intruder may be sure of a few people and say nothing about the others: guesses are then counted about those few. An
outcome holds counts and words, never a row.

Clopper and Pearson's bounds are exact: they hold at every probability and every number of trials, which is what a
verdict about a mechanism needs. They are computed from the regularized incomplete beta function."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError, Stopped, check_seconds, pluralize

Progress = Callable[[float], None]
FEW_TRIALS = 30
_STEPS = 100
_CLOSE = 1e-14
_TERMS = 5_000
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Interval:
    """A share of successes with the bounds that hold together at the confidence asked for."""

    share: float
    low: float
    high: float


def compute_interval(successes: float, trials: float, confidence: float = 0.95) -> Interval:
    """The two-sided Clopper-Pearson interval of a proportion.

    >>> round(compute_interval(0, 10).high, 6)
    0.308497
    """
    side = (1 + confidence) / 2
    share = successes / trials if trials else 0.0
    return Interval(share, lower_bound(successes, trials, side), upper_bound(successes, trials, side))


def lower_bound(successes: float, trials: float, confidence: float) -> float:
    """The probability below which so many successes or more have a chance of only 1 - confidence."""
    _check(successes, trials, confidence)
    if successes == 0:
        return 0.0
    # P[Binomial(n, p) >= k] = I_p(k, n - k + 1), increasing in p.
    return _solve(successes, trials - successes + 1, 1 - confidence)[0]


def upper_bound(successes: float, trials: float, confidence: float) -> float:
    """The probability above which so few successes or fewer have a chance of only 1 - confidence."""
    _check(successes, trials, confidence)
    if successes == trials:
        return 1.0
    # P[Binomial(n, p) <= k] = 1 - I_p(k + 1, n - k), decreasing in p.
    return _solve(successes + 1, trials - successes, confidence)[1]


def _check(successes: float, trials: float, confidence: float) -> None:
    if not 0 <= successes <= trials:
        raise ParameterError("successes are not between 0 and the number of trials")
    if not 0 < confidence < 1:
        raise ParameterError("confidence is not between 0 and 1", expected="a confidence such as 0.95")


def _solve(a: float, b: float, target: float) -> tuple[float, float]:
    """An enclosure of the x with I_x(a, b) = target: Newton's steps on the logarithm of the smaller side.

    That logarithm is concave, so steps come close from one side; a step that leaves the enclosure is a bisection.
    """
    low, high, x, gap = 0.0, 1.0, a / (a + b), _CLOSE
    below = target < 0.5
    wanted = math.log(target if below else 1 - target)
    for _ in range(_STEPS):
        sides = _split(a, b, x)
        low, high = (x, high) if sides[0] < target else (low, x)
        if high - low <= gap * high:
            break
        side, density = sides[0 if below else 1], math.exp(_log_front(a, b, x)) / (x * (1 - x))
        step = (wanted - math.log(side)) * side / density if side > 0 and density > 0 else math.inf
        reached = x + step if below else x - step
        if abs(reached - x) < gap * x / 2:  # close enough: look for the other end of the enclosure
            reached = x * (1 + gap / 2) if low == x else x * (1 - gap / 2)
            gap *= 4
        x = reached if low < reached < high else (low + high) / 2
    return low, high


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function I_x(a, b), by its continued fraction.

    >>> incomplete_beta(1, 1, 0.25)
    0.25
    """
    return _split(a, b, x)[0]


def _split(a: float, b: float, x: float) -> tuple[float, float]:
    """I_x(a, b) and what is missing from 1, each as exact as the smaller of the two."""
    if x <= 0 or x >= 1:
        return float(x >= 1), float(x < 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on this side of the mean only
        above = math.exp(_log_front(a, b, x)) / (b * _fraction(b, a, 1 - x))
        return 1 - above, above
    below = math.exp(_log_front(a, b, x)) / (a * _fraction(a, b, x))
    return below, 1 - below


def _log_front(a: float, b: float, x: float) -> float:
    return math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction 1 + d1/(1 + d2/(1 + ...)) of the incomplete beta function, by Lentz's method."""
    lower = 1.0
    value = upper = 1 - (a + b) * x / (a + 1) or _TINY
    for half in range(1, _TERMS):
        place = a + 2 * half
        even = half * (b - half) * x / ((place - 1) * place)
        for term in (even, -(a + half) * (a + b + half) * x / (place * (place + 1))):
            lower = 1 / ((1 + term * lower) or _TINY)
            upper = (1 + term / upper) or _TINY
            value *= lower * upper
        if abs(lower * upper - 1) < 1e-15:
            break
    return value


def count_as_one(sides: Sequence[NDArray[np.bool_]], batches: int, side: float) -> float:
    """How many runs count as one: more the more the batches differ; whole batches where nothing tells how they do."""
    if all(len(np.unique(each)) == 1 for each in sides):
        return max(len(each) for each in sides) / batches
    return max(1.0, max(_measure_dependence(each, batches) for each in sides) * _widen(batches - 1, side))


def _measure_dependence(happened: NDArray[np.bool_], batches: int) -> float:
    """How much more than by chance the batches differ in how often an event happened: 1 if runs are independent.

    This is the variance of a sum over the batches, divided by that of as many independent runs.
    """
    parts = np.array_split(happened, batches)
    share, sizes = happened.mean(), np.array([len(part) for part in parts])
    if share in (0.0, 1.0):
        return 0.0
    beyond = np.array([part.sum() for part in parts]) - share * sizes
    return float((beyond**2 / sizes).sum() / (share * (1 - share)) / (batches - 1))


def _widen(freedom: int, side: float) -> float:
    """By how much a variance that was measured in few batches is enlarged: Student's quantile squared by a normal's."""
    low, high = 0.0, 1e9
    for _ in range(100):
        middle = (low + high) / 2
        tail = incomplete_beta(freedom / 2, 0.5, freedom / (freedom + middle**2)) / 2
        low, high = (middle, high) if tail > 1 - side else (low, middle)
    return float((high / NormalDist().inv_cdf(side)) ** 2)


@dataclass(frozen=True, slots=True)
class Rate:
    """Successes among trials, with an exact (Clopper-Pearson) interval.

    >>> Rate(87, 100).share
    0.87
    """

    successes: int
    trials: int
    confidence: float = 0.95
    counted_as_one: float = 1.0
    """So many trials count as one in the interval, where they depend on each other."""

    def __post_init__(self) -> None:
        if not 0 <= self.successes <= self.trials:
            raise ParameterError("A rate has more successes than trials", expected="0 <= successes <= trials")

    @property
    def share(self) -> float:
        """Successes by trials; 0 where nothing was tried."""
        return self.successes / self.trials if self.trials else 0.0

    @property
    def interval(self) -> Interval:
        """The share with its bounds; from 0 to 1 where nothing was tried."""
        if not self.trials:
            return Interval(0.0, 0.0, 1.0)
        return compute_interval(
            self.successes / self.counted_as_one, self.trials / self.counted_as_one, self.confidence
        )

    def as_dict(self) -> dict[str, Any]:
        """Counts, share and bounds."""
        found = self.interval
        return {"successes": self.successes, "trials": self.trials, "share": self.share, "low": found.low,
                "high": found.high}  # fmt: skip

    def __str__(self) -> str:
        found = self.interval
        return f"{self.share:.1%} ({found.low:.1%} to {found.high:.1%})"


def compute_fisher(first: Rate, second: Rate) -> float:
    """How likely the first has so many of all successes, or more, if both succeed equally often (Fisher's exact test).

    >>> round(compute_fisher(Rate(5, 20), Rate(0, 20)), 6)
    0.023562
    """
    total, drawn = first.successes + second.successes, first.trials
    trials = first.trials + second.trials
    most = min(total, drawn)

    def log_choose(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    every = log_choose(trials, drawn)
    ways = range(max(first.successes, drawn - (trials - total)), most + 1)
    return min(1.0, sum(math.exp(log_choose(total, k) + log_choose(trials - total, drawn - k) - every) for k in ways))


def _count_in_thousand(share: float) -> str:
    """A share of people in words: no one, fewer than 1 of 1,000, so many of 1,000."""
    if not share:
        return "no one"
    count = round(1000 * share)
    return f"{count:,} of 1,000" if count else "fewer than 1 of 1,000"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one attack achieved.

    `attack`, `control` and `baseline` are success rates (see the module); `precision` is how often the intruder was
    right when a claim was made. Where not everybody who was attacked was claimed, `claimed` says how many were, and
    `baseline` is how often one guess is right. `figures` holds further public numbers by name, `warnings` why not to
    trust the rates.
    """

    name: str
    scenario: str
    attack: Rate
    baseline: Rate | float
    control: Rate | None = None
    precision: Rate | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    claimed: int | None = None

    def __post_init__(self) -> None:
        if self.claimed is not None and not self.attack.successes <= self.claimed <= self.attack.trials:
            raise ParameterError("An attack was right about more people than it claimed", expected="right <= claimed")

    @property
    def claimed_share(self) -> float:
        """The share of those attacked of whom something was claimed."""
        if self.claimed is None:
            return 1.0
        return self.claimed / self.attack.trials if self.attack.trials else 0.0

    @property
    def baseline_share(self) -> float:
        """The share of those attacked about whom guessing is right, where it guesses about those who were claimed."""
        return self.claimed_share * (self.baseline.share if isinstance(self.baseline, Rate) else self.baseline)

    @property
    def excess(self) -> float:
        """What the release adds: success above the control (else above the baseline), as a share of what was left.

        An intruder who names 90% of the people in the release and 80% of others has gained half of the last 20%. One
        who claims 10% of the people, all rightly, where guesses are right half of the time, has gained those 10%.
        """
        most = self.claimed_share if self.control is None else 1.0
        floor = self.baseline_share if self.control is None else self.control.share
        return max(0.0, most * (self.attack.share - floor) / (most - floor)) if floor < most else 0.0

    @property
    def beats_control(self) -> bool:
        """Whether the attack succeeds more often than its control, beyond chance (Fisher's exact test at 1%)."""
        if self.control is None:
            return True
        return compute_fisher(self.attack, self.control) <= 0.01

    @property
    def per_thousand(self) -> int:
        """People exposed out of 1,000."""
        return round(1000 * self.attack.share)

    @property
    def sentence(self) -> str:
        """What a director understands."""
        sure = "" if self.precision is None else f", and is right {self.precision.share:.0%} of the times it claims to"
        sure = ", claiming nobody" if self.precision is not None and not self.precision.trials else sure
        if not self.attack.trials:
            return f"{self.scenario} exposes no one: nobody was attacked."
        chance = _count_in_thousand(self.baseline_share)
        return f"{self.scenario} exposes {_count_in_thousand(self.attack.share)}{sure}; by chance it would be {chance}."

    @property
    def trusted(self) -> tuple[str, ...]:
        """All warnings, with those that the counts themselves give."""
        found = list(self.warnings)
        if self.attack.trials < FEW_TRIALS:
            who = pluralize(self.attack.trials, "person was", "people were") if self.attack.trials else "nobody was"
            found.append(f"{'only ' if self.attack.trials else ''}{who} attacked: the interval is wide")
        best = self.attack.interval.high
        if self.control is not None and best < self.control.share:
            found.append("the attack does worse than its control: it is not good enough to conclude anything")
        elif self.attack.trials and best < self.baseline_share:
            found.append("the attack does worse than guessing: it is not good enough to conclude anything")
        return tuple(found)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and reports."""
        base: dict[str, Any] = {"share": self.baseline_share}
        if isinstance(self.baseline, Rate) and self.claimed is None:
            base = self.baseline.as_dict()
        return {
            "attack": self.name,
            "scenario": self.scenario,
            "exposed": self.attack.as_dict(),
            "control": self.control.as_dict() if self.control else None,
            "baseline": base,
            "precision": self.precision.as_dict() if self.precision else None,
            "excess": self.excess,
            "per_thousand": self.per_thousand,
            "sentence": self.sentence,
            "figures": dict(self.figures),
            "warnings": list(self.trusted),
        }


class Deadline:
    """A time limit that long loops ask: none when `seconds` is None."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = check_seconds(seconds)
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return self._end is not None and time.monotonic() > self._end

    @property
    def left(self) -> float | None:
        """Seconds left, at least a hundredth; None without a limit."""
        return None if self._end is None else max(0.01, self._end - time.monotonic())

    def check(self) -> None:
        """Stop when the time is up."""
        if self.passed:
            raise Stopped(
                f"The attack did not finish within {self.seconds:g} seconds",
                remedy="Allow more seconds, or attack a sample",
                charge="",
            )


def tell(progress: Progress | None, share: float) -> None:
    """Tell the share done to whoever listens."""
    if progress is not None:
        progress(share)
