"""Logistic regression by noisy gradient descent: every row in every turn, clipped, summed exactly, noised.

A row's gradient is its residual (predicted less true) times its entries. Both are integers here, so a gradient is an
integer vector, its norm is bounded by integer arithmetic, and the sum over rows does not depend on their order or
company. Floating point chooses *which* integer a residual is, from the row itself and the public weights alone; it is
never what bounds it. All rows take part in each turn: for Gaussian noise that is the most accurate way to spend a
budget, and composition is then exactly that of one Gaussian (Dong, Roth, Su 2019), where sampled batches would need a
numerical accountant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import SelfComposedEvent, calibrate_gaussian
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import ParameterError
from deniable.learn.features import CHUNK, STEPS, Design, Entries, Fit, Numbers, Progress
from deniable.policy.budget import Amount, Budget, exact

RESIDUE = 1 << 10
"""Steps of a residual: RESIDUE is 1."""
WEIGHT = 1 << 16
"""Steps of a weight in the product with entries: WEIGHT is 1."""
MOST_WEIGHT = 1 << 14
"""Weights beyond this (in size) act as this: the logit of a row stays exact."""
SHARPNESS = 1 << 10
"""Cells of a logit: the sigmoid is read from a table with so many cells for each unit."""
REACH = 16
"""Logits beyond this act as this."""
SPREAD = math.sqrt(52.5)
TURNS, MOST_TURNS = 50, 10_000
WHOLE = 1 << 24
"""Entries up to this many (128 MB) are kept as floating point; of more, a chunk at a time is converted in each turn."""

Table = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogisticPlan:
    """Logistic regression by `turns` noisy gradients, after one turn that counts the rows.

    **Guarantee.** turns + 1 releases of the Gaussian mechanism, each on a vector that one row moves by at most the
    square root of `most_squared` (see `bound_residuals`), and a unit by so much for each of its rows. The weights
    between turns are post-processing; composition is adaptive. **Utility.** The noise alone moves the logit of a row
    by about 1/2 at most: where it would move it farther, the steps are made shorter (see `rate`), which stops the
    descent earlier. **Runtime.** turns passes over the rows, 2 width operations each."""

    design: Design
    mechanism: GaussianMechanism
    most_squared: int
    turns: int = 50
    penalty: float = 1e-5
    adapts: bool = False
    """Whether residuals are clipped to half where the noise would otherwise shorten the steps."""

    @property
    def event(self) -> SelfComposedEvent:
        """The same Gaussian in every turn, and once for the count."""
        return SelfComposedEvent(self.mechanism.event, self.turns + 1)

    def fit(
        self, entries: Entries, truth: NDArray[np.int64], entropy: Entropy = SYSTEM, progress: Progress | None = None
    ) -> Fit:
        """Count, then descend with momentum (Nesterov 1983)."""
        rows = self.count_rows(len(entries), entropy)
        sharper = self.sharpen(rows)
        step, most = self.rate(rows, sharper), bound_residuals(entries, self.most_squared // sharper**2)
        weights = ahead = np.zeros(self.design.width)
        held = entries.astype(np.float64) if entries.size <= WHOLE else entries
        for turn in range(self.turns):
            noisy = self.mechanism.release(sharper * sum_gradients(held, truth, ahead, most), entropy)
            slope = noisy / (sharper * RESIDUE * STEPS * rows) + self.penalty * ahead
            moved = ahead - step * slope
            ahead = moved + turn / (turn + 3) * (moved - weights)
            weights = moved
            if progress is not None:
                progress((turn + 1) / self.turns)
        return Fit(weights, None, rows)

    def count_rows(self, rows: int, entropy: Entropy) -> float:
        """The number of rows with noise, at least 1: each row counts as much as the largest gradient."""
        weight = math.isqrt(self.most_squared)
        return max(1.0, float(self.mechanism.release([weight * rows], entropy)[0]) / weight)

    def sharpen(self, rows: float) -> int:
        """How many times a gradient counts that is clipped to as small a part: its bound stays, and noise weighs less.

        Twice where noise would shorten the steps, which the noisy number of rows tells; else clipping only costs.
        """
        return 2 if self.adapts and self.rate(rows) < self._longest_step else 1

    @property
    def _longest_step(self) -> float:
        return 1 / (self.design.blocks / 4 + self.penalty)

    def rate(self, rows: float, sharper: int = 1) -> float:
        """The length of a step, from public numbers.

        The mean loss curves by at most |x|^2 / 4 <= blocks / 4, whose inverse is the longest safe step. Noise of turn t
        is carried on by the momentum: the product of s/(s + 3) from t to s is about (t/s)^3, so it moves the end by
        t/2 (1 - (t/T)^2) steps. Over T turns the squares add up to T^3 (1/3 - 2/5 + 1/7) / 4 = T^3 / 52.5. A logit sees
        that deviation at most sqrt(blocks) times, and it shall be at most 1/2.
        """
        noise = math.sqrt(float(self.mechanism.variance)) / (sharper * RESIDUE * STEPS * rows)
        quiet = SPREAD / (2 * noise * math.sqrt(self.design.blocks * self.turns**3))
        return min(self._longest_step, quiet)


def plan_logistic(
    design: Design,
    budget: Budget,
    rows: int = 1,
    turns: int | None = None,
    clip: Amount | None = None,
    penalty: float = 1e-5,
) -> LogisticPlan:
    """The plan that keeps a budget, for units of at most `rows` rows.

    `clip` is the share of the largest possible gradient to which each row's is clipped; where it is not said, the noisy
    number of rows decides (see `LogisticPlan.sharpen`). The turns and the count
    together are one Gaussian whose squared sensitivity is that of one turn times their number.
    """
    turns, share = TURNS if turns is None else turns, exact(1 if clip is None else clip, "clip")
    if not 0 < share <= 1 or not 1 <= turns <= MOST_TURNS:
        raise ParameterError(
            "clip or turns cannot be used", expected=f"clip is above 0 and at most 1, turns is 1 to {MOST_TURNS}"
        )
    most = int(share**2 * design.blocks * (RESIDUE * STEPS) ** 2)
    squared = Fraction(rows**2 * most)
    variance = calibrate_gaussian(budget, sensitivity_squared=(turns + 1) * squared)
    return LogisticPlan(design, GaussianMechanism(variance, squared), most, turns, penalty, adapts=clip is None)


def bound_residuals(entries: Entries, most_squared: int) -> NDArray[np.int64]:
    """The largest whole residual of each row whose gradient keeps the bound: cap^2 |x|^2 <= most_squared, in integers.

    The intercept makes |x|^2 at least STEPS^2, and most_squared is below 2**53, so the float root is off by one at
    most, which is mended.
    """
    norms = np.einsum("ij,ij->i", entries, entries, dtype=np.int64)
    allowed = most_squared // norms
    root = np.sqrt(allowed.astype(np.float64)).astype(np.int64)
    return np.asarray(root - (root * root > allowed), np.int64)


def clip_residuals(residuals: NDArray[np.int64], most: NDArray[np.int64]) -> NDArray[np.int64]:
    """Residuals within their caps."""
    return np.clip(residuals, -most, most)


def sum_gradients(
    entries: Entries | Numbers, truth: NDArray[np.int64], weights: Numbers, most: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The sum over rows of clipped residual times entries, as exact integers in steps of 1 / (RESIDUE STEPS)."""
    whole = np.rint(np.clip(weights, -MOST_WEIGHT, MOST_WEIGHT) * WEIGHT)
    total = np.zeros(entries.shape[1], np.int64)
    for start in range(0, len(entries), CHUNK):
        rows = slice(start, start + CHUNK)
        held = entries[rows].astype(np.float64, copy=False)
        residuals = sigmoid(held @ whole) - RESIDUE * truth[rows]
        total += (clip_residuals(residuals, most[rows]).astype(np.float64) @ held).astype(np.int64)
    return total


def sigmoid(logits: Numbers) -> NDArray[np.int64]:
    """RESIDUE / (1 + e^-logit) as a whole number, for logits in steps of 1 / (WEIGHT STEPS), read from a table.

    At most `blocks` entries of a row are nonzero, so a logit is an integer below 2**30 * 2**10 * blocks: exact below
    8,192 columns. The table makes a residual a function of that integer, where a library's exponential may round
    differently for the last rows of an array than for the first.
    """
    cell = np.floor(np.clip(logits / (WEIGHT * STEPS / SHARPNESS), -REACH * SHARPNESS, REACH * SHARPNESS - 1))
    return SIGMOID[cell.astype(np.int64) + REACH * SHARPNESS]


def _tabulate_sigmoid() -> Table:
    middle = (np.arange(-REACH * SHARPNESS, REACH * SHARPNESS) + 0.5) / SHARPNESS
    return np.rint(RESIDUE / (1 + np.exp(-middle))).astype(np.int64)


SIGMOID = _tabulate_sigmoid()
