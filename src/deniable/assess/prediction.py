"""Predictions beside the truth: how good a model is on rows it has not seen, and how good guessing would have been.

These are comparisons with real rows: for the steward, not for release.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.membership import measure_separation

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Classification:
    """Accuracy at one half, the area under the ROC curve (none where one class is absent), and the majority's share."""

    rows: int
    accuracy: float
    area: float | None
    majority: float
    """The accuracy of always saying what is most frequent among the rows learned from."""


@dataclass(frozen=True, slots=True)
class Regression:
    """The root mean squared error, the same of always saying the mean of the rows learned from, and R^2."""

    rows: int
    error: float
    mean_error: float
    r_squared: float | None
    """The share of the variance that is explained; none where there is no variance."""


def score_classification(truth: Flags, probability: Numbers, learned_from: Flags) -> Classification | None:
    """How well probabilities tell the truth; none where no row is left to test."""
    if not len(truth):
        return None
    usual = bool(learned_from.mean() > 0.5) if len(learned_from) else False
    both = truth.any() and not truth.all()
    area = measure_separation(probability[truth], probability[~truth]).area if both else None
    right = float(((probability > 0.5) == truth).mean())
    return Classification(len(truth), right, area, float((truth == usual).mean()))


def score_regression(truth: Numbers, predicted: Numbers, learned_from: Numbers) -> Regression | None:
    """How near predictions are to the truth; none where no row is left to test."""
    if not len(truth):
        return None
    usual = float(learned_from.mean()) if len(learned_from) else 0.0
    error, variance = float(((predicted - truth) ** 2).mean()), float(truth.var())
    explained = 1 - error / variance if variance > 0 else None
    return Regression(len(truth), error**0.5, float(((truth - usual) ** 2).mean()) ** 0.5, explained)
