"""Mechanisms for bounded numbers: Laplace noise, Duchi's bit, the windows, and the hybrid of the last two.

Laplace adds noise of the whole range over epsilon. Duchi rounds the value to an end of its range at random and flips
that bit. The windows (piecewise for means, square wave for distributions) answer with a cell on a longer scale: cells
in a window that moves with the value are `odds` times as likely as any other, and one inversion makes the mean
unbiased. The hybrid mixes bit and piecewise window so that the worst case is least."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, discrete_laplace, uniform_below
from deniable.errors import ParameterError
from deniable.localdp.likelihood_ratio import check_epsilon, check_odds, epsilon_of, odds_below
from deniable.localdp.numeric.scale import Scale, check_positions, worst_variance
from deniable.localdp.protocol import Answers, Layout, Outcome, Responses, Selected, Whole
from deniable.policy.budget import Amount

FAR = 44  # noise beyond 44 scales has probability e^-44, below 10^-19; the response is cut there to fit the wire
FARTHEST = 1 << 52  # positions stay exact in a browser


@dataclass(frozen=True, slots=True)
class BoundedLaplace:
    """x in [m, M] answers x + Lap((M - m) / epsilon), in whole steps; clamped to [m, M] if wished.

    **Guarantee**: epsilon-local DP (replace one value): two positions are at most `steps` apart and the noise has
    scale steps / epsilon. Clamping is post-processing.
    **Utility**: variance 2 ((M - m) / epsilon)^2 a respondent: 8 on [-1, 1] at epsilon 1. Clamped answers look
    natural but their mean is drawn to the middle: recover it through `distribution`.
    **Runtime**: one exact discrete Laplace draw a respondent.
    """

    name: ClassVar[str] = "laplace"
    scale: Scale
    claimed: Fraction
    clamped: bool = False

    def __post_init__(self) -> None:
        if self.claimed <= 0 or self.reach > FARTHEST:
            raise ParameterError("the noise would pass what a message holds", remedy="Raise epsilon, or the step")

    @classmethod
    def calibrate(cls, scale: Scale, epsilon: Amount, clamped: bool = False) -> BoundedLaplace:
        """The mechanism at exactly this epsilon: no rounding is needed."""
        return cls(scale, check_epsilon(epsilon), clamped)

    @property
    def epsilon(self) -> float:
        """The privacy loss of one response: exactly the epsilon asked."""
        return float(self.claimed)

    @property
    def noise_scale(self) -> Fraction:
        """Scale of the noise in steps."""
        return self.scale.steps / self.claimed

    @property
    def reach(self) -> int:
        """How far beyond the scale a response may lie."""
        return 0 if self.clamped else math.ceil(FAR * self.noise_scale)

    @property
    def layout(self) -> Layout:
        """The noisy position, counted from the farthest below."""
        return (Whole("position", self.scale.steps + 2 * self.reach + 1),)

    def randomize(self, positions: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One noisy position for each position."""
        checked = check_positions(positions, self.scale)
        noisy = checked + discrete_laplace(self.noise_scale, len(checked), entropy=entropy)
        return (np.clip(noisy, -self.reach, self.scale.steps + self.reach) + self.reach,)

    def positions(self, responses: Responses) -> NDArray[np.float64]:
        """The noisy positions themselves: unbiased unless clamped."""
        return (responses[0] - self.reach).astype(np.float64)

    def range_of(self, count: int) -> tuple[float, float]:
        """Readings are held within ln(count) + 4 scales of the ends, so that no one of many counts for more.

        An honest respondent is beyond with probability 0.01 / count, and holding them moves the mean by less than
        0.01 scales / count: far below its error.
        """
        held = 0.0 if self.clamped else min(float(self.reach), float(self.noise_scale) * (math.log(max(count, 1)) + 4))
        return -held, self.scale.steps + held

    def variance(self, position: int) -> float:
        """Variance of the discrete Laplace noise: 1 / (2 sinh^2(1 / (2 scale)))."""
        del position  # the noise is the same for everybody
        half = float(1 / self.noise_scale) / 2
        return 1 / (2 * math.sinh(half) ** 2) if half < 300 else 0.0

    def matrix(self, bins: int) -> NDArray[np.float64]:
        """Probability of each response (rows) for a respondent in the middle of each of `bins` parts of the scale."""
        middles = (np.arange(bins) + 0.5) * self.scale.steps / bins
        ends = np.arange(-self.reach, self.scale.steps + self.reach) + 0.5
        signed = (ends[:, None] - middles[None, :]) / float(self.noise_scale)
        below = np.where(signed < 0, 0.5 * np.exp(-np.abs(signed)), 1 - 0.5 * np.exp(-np.abs(signed)))
        return np.diff(below, axis=0, prepend=0.0, append=1.0)


@dataclass(frozen=True, slots=True)
class Duchi:
    """One bit for a mean (Duchi, Jordan, Wainwright 2018).

    **Guarantee**: epsilon-local DP (replace one value), epsilon = ln(odds).
    **Utility**: on [-1, 1] variance ((e^eps + 1) / (e^eps - 1))^2 - x^2 a respondent: best for small epsilon.
    **Runtime**: two draws a respondent; message of one bit.
    """

    name: ClassVar[str] = "duchi"
    scale: Scale
    odds: Fraction

    def __post_init__(self) -> None:
        check_odds(self.odds)

    @classmethod
    def calibrate(cls, scale: Scale, epsilon: Amount) -> Duchi:
        """The mechanism with the largest exact odds within epsilon."""
        return cls(scale, odds_below(epsilon))

    @property
    def epsilon(self) -> float:
        """The privacy loss of one response."""
        return epsilon_of(self.odds)

    @property
    def draws(self) -> tuple[int, ...]:
        """Bounds of the uniform integers that one response takes: rounding, flipping."""
        return (self.scale.steps, self.odds.numerator + self.odds.denominator)

    @property
    def layout(self) -> Layout:
        """One bit."""
        return (Whole("end", 2),)

    @property
    def _gap(self) -> float:
        return float((self.odds - 1) / (self.odds + 1))

    def respond(self, positions: Answers, rounding: NDArray[np.int64], flipping: NDArray[np.int64]) -> Responses:
        """Upper end (1) with probability position / steps, then turned over with 1 / (odds + 1)."""
        upper = rounding < positions
        return ((upper ^ (flipping >= self.odds.numerator)).astype(np.int64),)

    def randomize(self, positions: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One bit for each position."""
        checked = check_positions(positions, self.scale)
        draws = (uniform_below(bound, len(checked), entropy=entropy) for bound in self.draws)
        return self.respond(checked, *draws)

    def positions(self, responses: Responses) -> NDArray[np.float64]:
        """Each bit read as a position, far outside the scale on purpose: their mean is right."""
        lie = float(1 / (self.odds + 1))
        return (responses[0] - lie) / self._gap * self.scale.steps

    def range_of(self, count: int) -> tuple[float, float]:
        """Both ends as they are read, however many respondents there are."""
        del count
        low, high = self.positions((np.arange(2),)).tolist()
        return low, high

    def variance(self, position: int) -> float:
        """Variance of one reading in squared steps."""
        share = position / self.scale.steps
        upper = float(1 / (self.odds + 1)) + self._gap * share
        return upper * (1 - upper) * (self.scale.steps / self._gap) ** 2

    def likelihoods(self, position: int) -> Iterator[tuple[Outcome, Fraction]]:
        """Both ends with their probabilities."""
        share = Fraction(position, self.scale.steps)
        upper = (share * self.odds + 1 - share) / (self.odds + 1)
        yield (0,), 1 - upper
        yield (1,), upper


PLACES = 1024  # places the window can take, less one: the error of rounding to them is far below the noise


@dataclass(frozen=True, slots=True)
class Window:
    """A cell of `places + width`, likelier inside the window of `width` cells that starts at the value's place.

    **Guarantee**: epsilon-local DP (replace one value), epsilon = ln(odds).
    **Utility**: piecewise (Wang et al. 2019): on [-1, 1], x^2 / (a - 1) + (a + 3) / (3 (a - 1)^2) a respondent with
    a = e^(eps/2). Square wave (Li et al. 2020): a distribution by expectation maximization.
    **Runtime**: two draws a respondent; message of two bytes.
    """

    name: ClassVar[str] = "window"
    scale: Scale
    places: int
    width: int
    odds: Fraction

    def __post_init__(self) -> None:
        check_odds(self.odds)
        if self.places < 1 or self.width < 1:
            raise ParameterError("the window has no room", expected="At least one place and one cell")

    @classmethod
    def piecewise(cls, scale: Scale, epsilon: Amount, places: int = PLACES) -> Window:
        """The width of least worst variance for a mean: places / e^(eps/2)."""
        width = max(1, round(places / math.exp(float(check_epsilon(epsilon)) / 2)))
        return cls(scale, places, width, odds_below(epsilon))

    @classmethod
    def square_wave(cls, scale: Scale, epsilon: Amount, places: int = PLACES) -> Window:
        """The width that lets the response say most about the value (Li et al. 2020, section 5.3)."""
        loss = float(check_epsilon(epsilon))
        power = math.exp(loss)
        # 2 b with b = (eps e^eps - e^eps + 1) / (2 e^eps (e^eps - 1 - eps)); both differences vanish like eps^2 / 2
        # for small epsilon, where the quotient tends to 1.
        ratio = (loss * power - math.expm1(loss)) / (power * (math.expm1(loss) - loss)) if loss > 1e-4 else 1.0
        return cls(scale, places, max(1, round(places * ratio)), odds_below(epsilon))

    @property
    def epsilon(self) -> float:
        """The privacy loss of one response."""
        return epsilon_of(self.odds)

    @property
    def cells(self) -> int:
        """How many different responses there are."""
        return self.places + self.width

    @property
    def draws(self) -> tuple[int, ...]:
        """Bounds of the uniform integers that one response takes: rounding, then the cell."""
        return (self.scale.steps, self.width * self.odds.numerator + self.places * self.odds.denominator)

    @property
    def layout(self) -> Layout:
        """One cell."""
        return (Whole("cell", self.cells),)

    def respond(self, positions: Answers, rounding: NDArray[np.int64], draw: NDArray[np.int64]) -> Responses:
        """The window starts at position * places / steps, rounded up or down at random so that its mean is exact."""
        start, rest = np.divmod(positions * self.places, self.scale.steps)
        start = start + (rounding < rest)
        outside = (draw - self.width * self.odds.numerator) // self.odds.denominator
        inside = start + draw // self.odds.numerator
        return (np.where(outside < 0, inside, outside + self.width * (outside >= start)),)

    def randomize(self, positions: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One cell for each position."""
        checked_ = check_positions(positions, self.scale)
        draws = (uniform_below(bound, len(checked_), entropy=entropy) for bound in self.draws)
        return self.respond(checked_, *draws)

    def positions(self, responses: Responses) -> NDArray[np.float64]:
        """Each cell read as a position.

        E[cell] = (N(N-1)/2 + (r-1)(w s + w(w-1)/2)) / T for start s, N cells, width w, odds r, T = w r + N - w;
        solved for s, and stretched from places to steps.
        """
        cells, width, gain = self.cells, self.width, float(self.odds - 1)
        total = width * float(self.odds) + self.places
        start = ((responses[0] * total - cells * (cells - 1) / 2) / gain - width * (width - 1) / 2) / width
        return start * (self.scale.steps / self.places)

    def range_of(self, count: int) -> tuple[float, float]:
        """The first and the last cell as they are read, however many respondents there are."""
        del count
        low, high = self.positions((np.array([0, self.cells - 1]),)).tolist()
        return low, high

    def variance(self, position: int) -> float:
        """Variance of one reading in squared steps, summed over all cells."""
        every = np.arange(self.cells, dtype=np.int64)
        readings = self.positions((every,))
        (likely,) = self.chances(np.array([position / self.scale.steps]))
        return float((likely * (readings - position) ** 2).sum())

    def chances(self, where: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of all cells (columns) for somebody at each of these parts of the scale, from 0 to 1 (rows)."""
        starts = np.minimum(np.floor(where * self.places).astype(np.int64), self.places)
        upper = where * self.places - starts
        rows = zip(starts.tolist(), upper.tolist(), strict=True)
        return np.stack([(1 - up) * self._row(at) + (up * self._row(at + 1) if up > 0 else 0) for at, up in rows])

    def _row(self, start: int) -> NDArray[np.float64]:
        """Probabilities of all cells for a window at `start`."""
        total = self.width * float(self.odds) + self.places
        row = np.full(self.cells, 1 / total)
        row[start : start + self.width] = float(self.odds) / total
        return row

    def matrix(self, bins: int) -> NDArray[np.float64]:
        """Probability of each cell (rows) for a respondent anywhere in each of `bins` parts of the scale (columns)."""
        columns = []
        for part in range(bins):
            first, last = (edge * self.places // bins for edge in (part, part + 1))
            columns.append(np.mean([self._row(start) for start in range(first, max(last, first + 1))], axis=0))
        return np.stack(columns, axis=1)

    def likelihoods(self, position: int) -> Iterator[tuple[Outcome, Fraction]]:
        """Each cell with its probability."""
        start, rest = divmod(position * self.places, self.scale.steps)
        upper = Fraction(rest, self.scale.steps)
        total = self.width * self.odds + self.places
        for cell in range(self.cells):
            down = self.odds if start <= cell < start + self.width else Fraction(1)
            up = self.odds if start + 1 <= cell < start + 1 + self.width else Fraction(1)
            yield (cell,), ((1 - upper) * down + upper * up) / total


TURNS = 1 << 16


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Hybrid mechanism (Wang et al. 2019): the window in `window_turns` of 65,536 cases, else the bit.

    **Guarantee**: epsilon-local DP (replace one value): which arm is used does not depend on the value, and each arm
    keeps to epsilon.
    **Utility**: with share 1 - e^(-eps/2) of windows the variance no longer depends on the value: 4.29 on [-1, 1] at
    epsilon 1, the least of all means here from epsilon 0.61 on. Below that the bit alone is used.
    **Runtime**: five draws a respondent; message of three bytes.
    """

    name: ClassVar[str] = "hybrid"
    bit: Duchi
    window: Window
    window_turns: int

    def __post_init__(self) -> None:
        if not 0 <= self.window_turns <= TURNS or self.bit.scale != self.window.scale:
            raise ParameterError("the arms of the hybrid do not fit", expected=f"One scale, and 0 to {TURNS} turns")

    @classmethod
    def calibrate(cls, scale: Scale, epsilon: Amount) -> Hybrid:
        """The mixture of least worst variance at this epsilon."""
        bit, window = Duchi.calibrate(scale, epsilon), Window.piecewise(scale, epsilon)
        # The bit's variance falls by x^2 and the window's grows by x^2 / (a - 1), a = e^(eps/2): a share 1 - 1/a of
        # windows cancels the two. Below epsilon 0.61 the bit alone is better (Wang et al. 2019, equation 8).
        balanced = round(-math.expm1(-float(check_epsilon(epsilon)) / 2) * TURNS)
        return min((cls(bit, window, turns) for turns in (0, balanced)), key=worst_variance)

    @property
    def scale(self) -> Scale:
        """The public scale."""
        return self.bit.scale

    @property
    def odds(self) -> Fraction:
        """The odds of the leakier arm."""
        return max(self.bit.odds, self.window.odds)

    @property
    def epsilon(self) -> float:
        """The privacy loss of one response."""
        return epsilon_of(self.odds)

    @property
    def layout(self) -> Layout:
        """Which arm (1 is the window), and a response of that arm; an arm that is never used has none."""
        bit = 2 if self.window_turns < TURNS else 0
        return (Whole("arm", 2), Selected("value", (bit, self.window.cells if self.window_turns else 0)))

    def randomize(self, positions: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One response for each position."""
        arm = uniform_below(TURNS, len(positions), entropy=entropy) < self.window_turns
        (bits,) = self.bit.randomize(positions, entropy)
        (cells,) = self.window.randomize(positions, entropy)
        return arm.astype(np.int64), np.where(arm, cells, bits)

    def positions(self, responses: Responses) -> NDArray[np.float64]:
        """Each response read as a position by the rule of its arm."""
        arm, value = responses
        return np.where(arm == 1, self.window.positions((value,)), self.bit.positions((value,)))

    def range_of(self, count: int) -> tuple[float, float]:
        """The farthest readings of the arms that are used."""
        arms = [self.bit] * (self.window_turns < TURNS) + [self.window] * (self.window_turns > 0)
        ends = [arm.range_of(count) for arm in arms]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def variance(self, position: int) -> float:
        """Variance of one reading in squared steps: both arms are unbiased, so the mixture averages variances."""
        share = self.window_turns / TURNS
        return share * self.window.variance(position) + (1 - share) * self.bit.variance(position)

    def likelihoods(self, position: int) -> Iterator[tuple[Outcome, Fraction]]:
        """Every response of both arms with its probability."""
        share = Fraction(self.window_turns, TURNS)
        for (value,), likelihood in self.bit.likelihoods(position):
            if share < 1:
                yield (0, value), (1 - share) * likelihood
        for (value,), likelihood in self.window.likelihoods(position):
            if share:
                yield (1, value), share * likelihood
