"""Models of all values of a column at once: naive Bayes from noisy counts, and multinomial logistic regression.

Both end as one coefficient for each value of the target and each entry of the design; the values' probabilities are
in proportion to the exponentials of their sums. Naive Bayes takes the columns as independent given the target: one
release of counts. The regression descends like the logistic one, by noisy gradients of all values together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import GaussianEvent, SelfComposedEvent, calibrate_gaussian
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import ParameterError
from deniable.learn.features import CHUNK, STEPS, Codes, Design, Entries, Fit, LabelsTarget, Numbers, Progress
from deniable.learn.logistic import (
    MOST_TURNS,
    MOST_WEIGHT,
    RESIDUE,
    TURNS,
    WEIGHT,
    count_entries,
    damp_curvature,
    descend,
)
from deniable.policy.budget import Budget

COARSE = 16
"""Bins of a number for naive Bayes: each is counted by itself, without smoothing."""
DEEP = 1 << 20
"""The exponential of 0 in the table of exponentials."""
FINE = 1 << 8
"""Cells of that table for each unit; it ends where less than half a step of DEEP is left."""

Wholes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BayesPlan:
    """Naive Bayes from one release of counts: of each entry of each column, by value of the target.

    **Guarantee.** One release of the Gaussian mechanism; a row adds 1 to one count of each block, so it moves the
    vector by the root of the number of blocks. **Utility.** A count errs by the noise's deviation; an entry that is
    rarer than that counts nearly nothing. **Runtime.** One pass over the rows.
    """

    design: Design
    target: LabelsTarget
    mechanism: GaussianMechanism

    @property
    def event(self) -> GaussianEvent:
        """One Gaussian release."""
        return self.mechanism.event

    def fit(self, codes: Codes, truth: Wholes, entropy: Entropy = SYSTEM, progress: Progress | None = None) -> Fit:
        """Count, add noise, take logarithms."""
        found = count_classes(self.design, len(self.target.column.labels), codes, truth)
        noisy = self.mechanism.release(found, entropy)
        if progress is not None:
            progress(1.0)
        counts = np.asarray(noisy, np.float64).reshape(-1, self.design.width)
        noise = math.sqrt(float(self.mechanism.variance))
        return Fit(weigh_counts(self.design, counts, noise).ravel(), None, max(1.0, float(counts[:, 0].sum())))


def plan_bayes(design: Design, target: LabelsTarget, budget: Budget, rows: int = 1) -> BayesPlan:
    """The plan that keeps a budget, for units of at most `rows` rows."""
    made = design.cut(COARSE)
    mechanism = GaussianMechanism.within(budget, sensitivity_squared=Fraction(rows**2 * made.blocks))
    return BayesPlan(made, target, mechanism)


def count_classes(design: Design, classes: int, codes: Codes, truth: Wholes) -> Wholes:
    """How many rows of each value of the target light each entry; the intercept's entry counts them all."""
    widths = [1, *(each.size for each in design.features)]
    found = [
        np.bincount(truth * (width + 1) + codes[:, block], minlength=classes * (width + 1)).reshape(classes, width + 1)
        for block, width in enumerate(widths)
    ]
    return np.hstack([counts[:, :-1] for counts in found]).astype(np.int64).ravel()


def weigh_counts(design: Design, counts: Numbers, noise: float) -> Numbers:
    """The logarithms of what a value of the target makes an entry more frequent; and of the values' own shares.

    As many rows as the noise may have made are added to each value's in the proportions of all rows, so that a value
    which noise hides is told by nothing, whatever its counts are.
    """
    held, weights = np.maximum(counts, 0.0), np.zeros_like(counts)
    weights[:, 0] = np.log((held[:, 0] + 1) / (held[:, 0] + 1).sum())
    for block in range(1, design.blocks):
        places = np.flatnonzero(design.owners == block)
        part, added = held[:, places], 1 + noise * len(places)
        # The noise of a sum over the values; an entry that is rarer than it is taken to be as frequent as it.
        common = np.maximum(counts[:, places].sum(axis=0), 1 + noise * math.sqrt(len(counts)))
        common /= common.sum()
        shares = (part + added * common) / (part.sum(axis=1, keepdims=True) + added)
        weights[:, places] = np.log(shares / common)
    return weights


@dataclass(frozen=True, slots=True)
class MultinomialPlan:
    """Multinomial logistic regression by `turns` noisy gradients, after one turn that counts the rows and entries.

    **Guarantee.** turns + 1 releases of the Gaussian mechanism, each on a vector that one row moves by at most the
    square root of `most_squared`: see `sum_class_gradients`. **Utility.** As of `LogisticPlan`: steps are damped
    where noise would move a row's logits by more than about 1/2. **Runtime.** turns passes over the rows, 2 width
    operations each for every value of the target.
    """

    design: Design
    target: LabelsTarget
    mechanism: GaussianMechanism
    turns: int = TURNS
    penalty: float = 1e-5

    @property
    def most_squared(self) -> int:
        """How far a row moves a gradient, squared: residuals of at most 2 RESIDUE^2, entries of blocks STEPS^2."""
        return 2 * self.design.blocks * (RESIDUE * STEPS) ** 2

    @property
    def event(self) -> SelfComposedEvent:
        """The same Gaussian in every turn, and once for the count."""
        return SelfComposedEvent(self.mechanism.event, self.turns + 1)

    def fit(self, entries: Entries, truth: Wholes, entropy: Entropy = SYSTEM, progress: Progress | None = None) -> Fit:
        """Count, then descend with momentum (Nesterov 1983)."""
        rows, counts = count_entries(self.mechanism, self.most_squared, entries, self.design, entropy)
        noise = math.sqrt(float(self.mechanism.variance)) / (RESIDUE * STEPS * rows)
        least = 2 * self.penalty + (self.design.blocks - 1) * noise
        bend = damp_curvature(self.design, counts, 1 / 2, least, noise, self.turns)

        def slope_at(weights: Numbers) -> Numbers:
            noisy = self.mechanism.release(sum_class_gradients(entries, truth, weights).ravel(), entropy)
            return np.reshape(noisy, weights.shape) / (RESIDUE * STEPS * rows) + self.penalty * weights

        def divide(slope: Numbers) -> Numbers:
            return np.array([bend.divide(each) for each in slope])

        start = np.zeros((len(self.target.column.labels), self.design.width))
        weights = descend(slope_at, divide, start, self.turns, progress)
        return Fit(np.array([bend.center(each) for each in weights]).ravel(), None, rows)


def plan_multinomial(
    design: Design, target: LabelsTarget, budget: Budget, rows: int = 1, turns: int | None = None, penalty: float = 1e-5
) -> MultinomialPlan:
    """The plan that keeps a budget, for units of at most `rows` rows."""
    turns = TURNS if turns is None else turns
    if not 1 <= turns <= MOST_TURNS:
        raise ParameterError("turns cannot be used", expected=f"1 to {MOST_TURNS}")
    made = design.bend()
    squared = Fraction(rows**2 * 2 * made.blocks * (RESIDUE * STEPS) ** 2)
    variance = calibrate_gaussian(budget, sensitivity_squared=(turns + 1) * squared)
    return MultinomialPlan(made, target, GaussianMechanism(variance, squared), turns, penalty)


def sum_class_gradients(entries: Entries, truth: Wholes, weights: Numbers) -> Wholes:
    """The sum over rows of residuals times entries, by value of the target, in steps of 1 / (RESIDUE STEPS).

    A row's probabilities are rounded down, so they add up to at most RESIDUE: with p that of its own value, its
    residuals are RESIDUE - p there and at most as much in sum elsewhere. Their squares add up to 2 RESIDUE^2 at most.
    """
    whole = np.rint(np.clip(weights, -MOST_WEIGHT, MOST_WEIGHT) * WEIGHT)
    total = np.zeros(weights.shape, np.int64)
    for start in range(0, len(entries), CHUNK):
        held = entries[start : start + CHUNK].astype(np.float64)
        residuals = share_classes(held @ whole.T)
        own = truth[start : start + CHUNK]
        residuals[np.arange(len(own)), own] -= RESIDUE
        total += (residuals.astype(np.float64).T @ held).astype(np.int64)
    return total


def share_classes(logits: Numbers) -> Wholes:
    """Each value's probability in steps of 1/RESIDUE, rounded down, by integers alone from whole logits."""
    cells = ((logits.max(axis=1, keepdims=True) - logits) // (WEIGHT * STEPS // FINE)).astype(np.int64)
    powers = _POWERS[np.minimum(cells, len(_POWERS) - 1)]
    return np.asarray(powers * RESIDUE // powers.sum(axis=1, keepdims=True), np.int64)


_POWERS = np.rint(DEEP * np.exp(-np.arange(16 * FINE) / FINE)).astype(np.int64)
