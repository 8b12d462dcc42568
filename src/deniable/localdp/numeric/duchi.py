"""Duchi's one-bit mean: round the value to an end of its range at random, then flip that bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.localdp.layout import Layout, Responses, Whole
from deniable.localdp.numeric.scale import Scale, checked_positions
from deniable.localdp.odds import checked_odds, epsilon_of, odds_below
from deniable.localdp.protocol import Answers, Outcome
from deniable.policy.budget import Amount


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
        checked_odds(self.odds)

    @classmethod
    def calibrated(cls, scale: Scale, epsilon: Amount) -> Duchi:
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
        checked = checked_positions(positions, self.scale)
        draws = (uniform_below(bound, len(checked), entropy=entropy) for bound in self.draws)
        return self.respond(checked, *draws)

    def positions(self, responses: Responses) -> NDArray[np.float64]:
        """Each bit read as a position, far outside the scale on purpose: their mean is right."""
        lie = float(1 / (self.odds + 1))
        return (responses[0] - lie) / self._gap * self.scale.steps

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
