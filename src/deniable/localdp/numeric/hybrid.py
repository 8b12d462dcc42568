"""The hybrid mean: sometimes Duchi's bit, sometimes the piecewise window, mixed so that the worst case is least."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.localdp.layout import Layout, Responses, Whole
from deniable.localdp.numeric.duchi import Duchi
from deniable.localdp.numeric.scale import Scale, worst_variance
from deniable.localdp.numeric.window import Window
from deniable.localdp.odds import checked, epsilon_of
from deniable.localdp.protocol import Answers, Outcome
from deniable.policy.budget import Amount

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

    @classmethod
    def calibrated(cls, scale: Scale, epsilon: Amount) -> Hybrid:
        """The mixture of least worst variance at this epsilon."""
        bit, window = Duchi.calibrated(scale, epsilon), Window.piecewise(scale, epsilon)
        # The bit's variance falls by x^2 and the window's grows by x^2 / (a - 1), a = e^(eps/2): a share 1 - 1/a of
        # windows cancels the two. Below epsilon 0.61 the bit alone is better (Wang et al. 2019, equation 8).
        balanced = round(-math.expm1(-float(checked(epsilon)) / 2) * TURNS)
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
        """Which arm (1 is the window), and its response."""
        return (Whole("arm", 2), Whole("value", self.window.cells))

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

    def variance(self, position: int) -> float:
        """Variance of one reading in squared steps: both arms are unbiased, so the mixture averages variances."""
        share = self.window_turns / TURNS
        return share * self.window.variance(position) + (1 - share) * self.bit.variance(position)

    def likelihoods(self, position: int) -> Iterator[tuple[Outcome, Fraction]]:
        """Every response of both arms with its probability."""
        share = Fraction(self.window_turns, TURNS)
        for (value,), likelihood in self.bit.likelihoods(position):
            yield (0, value), (1 - share) * likelihood
        for (value,), likelihood in self.window.likelihoods(position):
            if share:
                yield (1, value), share * likelihood
