"""The window mechanisms: piecewise for means, square wave for distributions.

Both answer with a cell on a longer scale: cells in a window that moves with the value are `odds` times as likely as
any other. They differ only in the width of the window. Because the expected cell is a straight line in the window's
place, one inversion makes the mean unbiased; because the window is narrow, the shape of the distribution survives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import ParameterError
from deniable.localdp.layout import Layout, Responses, Whole
from deniable.localdp.numeric.scale import Scale, checked_positions
from deniable.localdp.odds import checked, checked_odds, epsilon_of, odds_below
from deniable.localdp.protocol import Answers, Outcome
from deniable.policy.budget import Amount

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
        checked_odds(self.odds)
        if self.places < 1 or self.width < 1:
            raise ParameterError("the window has no room", expected="At least one place and one cell")

    @classmethod
    def piecewise(cls, scale: Scale, epsilon: Amount, places: int = PLACES) -> Window:
        """The width of least worst variance for a mean: places / e^(eps/2)."""
        width = max(1, round(places / math.exp(float(checked(epsilon)) / 2)))
        return cls(scale, places, width, odds_below(epsilon))

    @classmethod
    def square_wave(cls, scale: Scale, epsilon: Amount, places: int = PLACES) -> Window:
        """The width that lets the response say most about the value (Li et al. 2020, section 5.3)."""
        loss = float(checked(epsilon))
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
        checked_ = checked_positions(positions, self.scale)
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

    def variance(self, position: int) -> float:
        """Variance of one reading in squared steps, summed over all cells."""
        every = np.arange(self.cells, dtype=np.int64)
        readings = self.positions((every,))
        start, rest = divmod(position * self.places, self.scale.steps)
        upper = rest / self.scale.steps
        likely = (1 - upper) * self._row(start) + (upper * self._row(start + 1) if rest else 0)
        return float((likely * (readings - position) ** 2).sum())

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
