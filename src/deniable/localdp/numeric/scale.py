"""The public scale of a numeric question, the Protocol its randomizers meet, and the mean they give.

Values are clamped to the declared bounds and rounded to whole steps before anything else, so every probability that
depends on the value is a rational number and the privacy proof has no floating point in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import DataError, ParameterError
from deniable.localdp.protocol import Answers, Layout, Responses, Whole, score_support, student_quantile
from deniable.policy.budget import Amount, exact

MOST_STEPS = 1 << 30


@dataclass(frozen=True, slots=True)
class Scale:
    """The closed interval from `lower` to `upper`, cut into `steps` equal steps: positions 0 .. steps.

    >>> Scale.between(0, 10, step="0.5").position_of(np.array([-3.0, 2.6, 99.0])).tolist()
    [0, 5, 20]
    """

    lower: Fraction
    upper: Fraction
    steps: int

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            raise ParameterError("the lower bound is not below the upper bound", expected="lower < upper")
        if not 1 <= self.steps <= MOST_STEPS:
            raise ParameterError(f"{self.steps} steps between the bounds", expected=f"1 to {MOST_STEPS} steps")

    @classmethod
    def between(cls, lower: Amount, upper: Amount, step: Amount = 1) -> Scale:
        """The scale of these bounds; the step must divide the range."""
        low, high, unit = exact(lower, "lower bound"), exact(upper, "upper bound"), exact(step, "step")
        if unit <= 0 or (high - low) % unit:
            raise ParameterError(
                "the step does not divide the range between the bounds",
                expected="upper - lower is a whole number of steps",
                remedy="Move a bound outward to the next multiple of the step",
            )
        return cls(low, high, int((high - low) / unit))

    @property
    def step(self) -> Fraction:
        """The size of one step."""
        return (self.upper - self.lower) / self.steps

    def position_of(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Values clamped to the bounds and rounded to the nearest step; a missing value is refused, not guessed."""
        array = np.asarray(values, dtype=np.float64)
        if np.isnan(array).any():
            raise DataError("some values are missing", remedy="Leave missing values out, or declare a value for them")
        held = np.clip(array, float(self.lower), float(self.upper))
        positions = np.rint((held - float(self.lower)) / float(self.step)).astype(np.int64)
        return np.clip(positions, 0, self.steps)

    def value_of(self, positions: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """The values at positions, which need not be whole or inside."""
        at, step = np.asarray(positions, dtype=np.float64), self.step
        parts = math.lcm(self.lower.denominator, step.denominator)
        first, each = self.lower * parts, step * parts
        if max(abs(first), abs(self.upper * parts)) >= 2**53:  # beyond whole numbers that are floating-point numbers
            return float(self.lower) + at * float(step)
        return (float(first) + at * float(each)) / parts  # rounded once: 0.3, as it is written


CERTAIN = 400  # below so many readings their own spread is not relied on


@dataclass(frozen=True, slots=True)
class Spread:
    """How far readings spread around a candidate for the mean: at most as if everybody stood at an end of the scale.

    `noise` is their variance for somebody at the lower and at the upper end; `part` the part of the most that these
    readings show; `half` half a step of their mean, where there are steps.
    """

    lower: float
    upper: float
    noise: tuple[float, float]
    part: float
    half: float

    def variance(self, mean: float) -> float:
        """The variance of one reading where the true mean is this."""
        share = min(max((mean - self.lower) / (self.upper - self.lower), 0.0), 1.0)
        most = (
            (1 - share) * self.noise[0] + share * self.noise[1] + share * (1 - share) * (self.upper - self.lower) ** 2
        )
        return self.part * most

    def find_end(self, value: float, reach: float, side: int) -> float:
        """The farthest mean on one side whose readings could be these: the deviation allowed is its own."""
        low, high = 0.0, self.half + reach * math.sqrt(self.variance((self.lower + self.upper) / 2) / self.part)
        for _ in range(60):
            middle = (low + high) / 2
            allowed = self.half + reach * math.sqrt(self.variance(value + side * middle))
            low, high = (middle, high) if middle <= allowed else (low, middle)
        return value + side * low


@dataclass(frozen=True, slots=True)
class Mean:
    """An estimated mean with its standard error, in the units of the scale.

    The error holds both sources: who happened to respond, and the noise they added.
    """

    value: float
    error: float
    responses: int

    influence: float = math.nan
    """How far one respondent, who sends what serves best, moves the mean; NaN if unknown."""
    spread: Spread | None = None

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The confidence interval: all means whose spread explains the one found; else by Student's quantile."""
        if self.spread is None:
            reach = student_quantile(confidence, self.responses - 1) * self.error
            return self.value - reach, self.value + reach
        reach = student_quantile(confidence, self.responses - 1) / math.sqrt(self.responses)
        return self.spread.find_end(self.value, reach, -1), self.spread.find_end(self.value, reach, 1)


@dataclass(frozen=True, slots=True)
class MeanAmong:
    """The mean of those who have a number, where everybody sends one: who has none sends the middle of the scale.

    With a share s of people who have one, the mean of all is middle + s (mean - middle). Each of the two has its own
    interval, at half the risk; this interval holds every mean that any two values in them give, within the scale.
    """

    value: float
    error: float
    responses: int
    influence: float
    everybody: Mean
    middle: float
    ends: tuple[float, float]
    answered: tuple[int, float]
    """How many said that they have one, and the probability that this is true of one who says so."""

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The confidence interval: as wide as the scale where nobody may have a number."""
        each = (1 + confidence) / 2
        low, high = self.everybody.interval(each)
        told, p = self.answered
        score = score_support(np.array([told]), self.responses, p, 1 - p)
        shares = [float(end[0]) / self.responses for end in score.interval(each, population=True)]
        least, most = max(shares[0], 0.0), min(max(shares[1], 0.0), 1.0)
        if least == 0:
            return self.ends
        found = [self.middle + (mean - self.middle) / share for mean in (low, high) for share in (least, most)]
        return max(min(found), self.ends[0]), min(max(found), self.ends[1])


def mean_among(everybody: Mean, scale: Scale, told: int, p: float, middle: float | None = None) -> MeanAmong:
    """The mean of those who have a number, of `told` who say so with probability p of saying the truth.

    `middle` is what the others sent, by default the middle step of the scale.
    """
    n, gap = everybody.responses, 2 * p - 1
    share = min(max((told / n - (1 - p)) / gap, 1 / n), 1.0)
    middle = float(scale.value_of(scale.steps // 2)) if middle is None else middle
    ends = float(scale.lower), float(scale.upper)
    value = min(max(middle + (everybody.value - middle) / share, ends[0]), ends[1])
    spread = math.sqrt(p * (1 - p) / n + share * (1 - share) * gap**2 / n) / gap
    error = math.hypot(everybody.error, (value - middle) * spread) / share
    influence = (everybody.influence + max(middle - ends[0], ends[1] - middle) / gap / n) / share
    return MeanAmong(value, error, n, influence, everybody, middle, ends, (told, p))


class NumericProtocol(Protocol):
    """A randomizer of positions 0 .. steps and the unbiased reading of its responses."""

    name: ClassVar[str]

    @property
    def scale(self) -> Scale:
        """The public scale."""

    @property
    def epsilon(self) -> float:
        """The privacy loss of one response."""

    @property
    def layout(self) -> Layout:
        """The fields of one response."""

    def randomize(self, positions: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One response for each position."""

    def positions(self, responses: Responses) -> NDArray[np.float64]:
        """For each response a number whose expectation is the true position."""

    def range_of(self, count: int) -> tuple[float, float]:
        """The least and the greatest reading that counts in a mean of so many."""

    def variance(self, position: int) -> float:
        """Variance of that number, in squared steps, for a respondent at this position."""


def mean_of(protocol: NumericProtocol, responses: Responses) -> Mean:
    """The mean of the respondents' values: unbiased, up to the holding of readings that no honest one has."""
    count = len(responses[0])
    if count == 0:
        raise DataError("there are no responses", remedy="Collect responses first")
    low, high = protocol.range_of(count)
    readings = np.clip(protocol.positions(responses), low, high)
    return mean_of_readings(protocol, readings, (high - low) / count * float(protocol.scale.step))


def mean_of_readings(protocol: NumericProtocol, readings: NDArray[np.float64], influence: float = math.nan) -> Mean:
    """The mean of unbiased readings, which are in steps of the scale."""
    count, center = len(readings), float(protocol.scale.value_of(float(readings.mean())))
    spread = _build_spread(protocol, influence)
    if count == 1:  # one reading shows no spread of its own: it may be all that is possible
        return Mean(center, math.sqrt(spread.variance(center)), 1, influence, spread)
    variance = float(readings.var(ddof=1)) * float(protocol.scale.step) ** 2
    spread = _narrow_spread(spread, variance, center, count)
    return Mean(center, math.sqrt(max(variance, 0.0) / count), count, influence, spread)


def _build_spread(protocol: NumericProtocol, influence: float) -> Spread:
    """All the spread that is possible."""
    unit = float(protocol.scale.step) ** 2
    noise = (protocol.variance(0) * unit, protocol.variance(protocol.scale.steps) * unit)
    half = influence / 2 if protocol.layout == (Whole("end", 2),) else 0.0
    return Spread(float(protocol.scale.lower), float(protocol.scale.upper), noise, 1.0, half)


def _narrow_spread(whole: Spread, variance: float, center: float, count: int) -> Spread:
    """The spread that readings show: of a few of them all that is possible, of many what they have."""
    seen = min(variance / whole.variance(center), 1.0) if whole.variance(center) else 1.0
    return replace(whole, part=seen + (1 - seen) * min(1.0, CERTAIN / count))


def worst_variance(protocol: NumericProtocol) -> float:
    """The largest variance over positions, in squared ranges: variances here are symmetric and convex or concave."""
    steps = protocol.scale.steps
    return max(protocol.variance(position) for position in (0, steps // 2, steps)) / steps**2


def check_positions(positions: Answers, scale: Scale) -> Answers:
    """Positions as integers on the scale; the refusal names none of them."""
    array = np.asarray(positions)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError("the positions are not one column of whole numbers", expected=f"Steps 0 to {scale.steps}")
    if array.size and not (int(array.min()) >= 0 and int(array.max()) <= scale.steps):
        raise DataError("some positions lie off the scale", expected=f"Steps 0 to {scale.steps}")
    return array.astype(np.int64, copy=False)
