"""Numeric randomized response: the value plus Laplace noise of the whole range over epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, discrete_laplace
from deniable.localdp.layout import Layout, Responses, Whole
from deniable.localdp.numeric.scale import Scale, checked_positions
from deniable.localdp.odds import checked
from deniable.localdp.protocol import Answers
from deniable.policy.budget import Amount

FAR = 44  # noise beyond 44 scales has probability e^-44, below 10^-19; the response is cut there to fit the wire


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

    @classmethod
    def calibrated(cls, scale: Scale, epsilon: Amount, clamped: bool = False) -> BoundedLaplace:
        """The mechanism at exactly this epsilon: no rounding is needed."""
        return cls(scale, checked(epsilon), clamped)

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
        checked = checked_positions(positions, self.scale)
        noisy = checked + discrete_laplace(self.noise_scale, len(checked), entropy=entropy)
        return (np.clip(noisy, -self.reach, self.scale.steps + self.reach) + self.reach,)

    def positions(self, responses: Responses) -> NDArray[np.float64]:
        """The noisy positions themselves: unbiased unless clamped."""
        return (responses[0] - self.reach).astype(np.float64)

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
