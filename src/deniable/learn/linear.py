"""Linear regression from noisy sufficient statistics: one release, then algebra.

Let v = (x, t) be a row's entries with its target. The sum of the products v_i v_j (i <= j) over all rows is all that a
regression needs. It is released once with Gaussian noise; everything after is post-processing, so any number of
penalties or diagnostics could be read off the same release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import GaussianEvent
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.learn.features import STEPS, Design, Entries
from deniable.learn.fit import CHUNK, Fit, Progress
from deniable.learn.ridge import solve
from deniable.learn.target import NumberTarget
from deniable.policy.budget import Budget


@dataclass(frozen=True, slots=True)
class LinearPlan:
    """Ridge regression from one noisy release of the second moments.

    **Guarantee.** That of the Gaussian mechanism on the vector of products, for units of at most `rows` rows: see
    `sensitivity_squared`.
    **Utility.** With s the noise's deviation (in units of 1) and w entries, directions in which the rows weigh less
    than 2 s sqrt(w) are shrunk; the others err by about s / weight. The errors of the fit say so, entry by entry.
    **Runtime.** One pass over the rows, width^2 operations each; then width^3.
    """

    design: Design
    target: NumberTarget
    mechanism: GaussianMechanism
    penalty: float = 1e-4

    @property
    def event(self) -> GaussianEvent:
        """One Gaussian release."""
        return self.mechanism.event

    def fit(
        self, entries: Entries, truth: NDArray[np.int64], entropy: Entropy = SYSTEM, progress: Progress | None = None
    ) -> Fit:
        """Sum, add noise, solve."""
        noisy = self.mechanism.release(moments(entries, truth, progress), entropy)
        deviation = math.sqrt(float(self.mechanism.variance)) / STEPS**2
        solved = solve(self.design, noisy / float(STEPS**2), deviation, self.penalty)
        half, middle = float(self.target.column.half), float(self.target.column.middle)
        coefficients = solved.coefficients * half
        coefficients[0] += middle
        assert solved.errors is not None
        return Fit(coefficients, solved.errors * half, solved.rows)


def linear(design: Design, target: NumberTarget, budget: Budget, rows: int = 1, penalty: float = 1e-4) -> LinearPlan:
    """The plan that keeps a budget, for units of at most `rows` rows."""
    squared = sensitivity_squared(design, rows)
    return LinearPlan(design, target, GaussianMechanism.within(budget, sensitivity_squared=squared), penalty)


def sensitivity_squared(design: Design, rows: int) -> Fraction:
    """How far a unit of so many rows can move the vector of moments, in squared L2 norm.

    A row with its target has p = blocks + 1 entries that are not 0, each at most STEPS (the invariant of `features`).
    The squares of its products sum to (|v|^4 + sum of v_i^4) / 2 <= (p^2 + p) STEPS^4 / 2; k rows move the sum by at
    most k times the root of that.
    """
    p = design.blocks + 1
    return Fraction(rows**2 * STEPS**4 * p * (p + 1), 2)


def moments(entries: Entries, truth: NDArray[np.int64], progress: Progress | None = None) -> NDArray[np.int64]:
    """The sums of v_i v_j over all rows, i <= j, as exact integers."""
    width = entries.shape[1] + 1
    total = np.zeros((width, width), np.int64)
    for start in range(0, len(entries), CHUNK):
        rows = slice(start, start + CHUNK)
        held = np.column_stack([entries[rows], truth[rows]]).astype(np.float64)
        total += (held.T @ held).astype(np.int64)
        if progress is not None:
            progress(min(1.0, (start + CHUNK) / len(entries)))
    return total[np.triu_indices(width)]
