"""A last measurement of the level: what clipping took from sums of gradients is put back, as far as a line can.

Clipped residuals lean to one side where few of them are long: those of a rare value, or of a number that is 0 for most.
A model that descends by them predicts too little. So its own predictions are compared with the truth once, at the end,
by one release of a share of the budget, and nothing is clipped in it but what the declared bounds clip.

- For classes: how many rows there are of each value, and how many the model expects. The log odds of a value move by
  the logarithm of their ratio.
- For a number: the sums of what is missed, of the prediction, and of their products. The predictions are moved and
  stretched by the line that fits them.

Between a row and the noise there are only integers. What follows from the sums is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.mechanisms.mechanism import calibrate_part
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.learn.features import STEPS, Numbers
from deniable.policy.budget import Budget

Wholes = NDArray[np.int64]

CALIBRATED = Fraction(1, 25)
"""The share of the budget that it costs."""
FINE = 1 << 16
"""Steps of a probability: FINE is 1."""
MOST_SQUARED = {False: 2 * FINE**2, True: 4 * STEPS**4}
"""How far a row moves the sums, in squared L2 norm, for classes and (True) for numbers.

Classes: one value of the row, and probabilities that add up to at most FINE. Numbers: four parts of at most STEPS^2."""
MOST_STRETCH = 8.0
"""Predictions are stretched at most so many times; they are never turned around."""


def plan_calibration(budget: Budget, rows: int, *, numeric: bool) -> GaussianMechanism:
    """The mechanism of the release, for units of at most `rows` rows."""
    return calibrate_part(budget, rows**2 * MOST_SQUARED[numeric], CALIBRATED)


def sum_classes(truth: Wholes, expected: Wholes) -> Wholes:
    """How many rows there are of each value, and how many are expected, in steps of 1/FINE: exact integers.

    `expected` has a column of probabilities for each value, which add up to at most FINE.
    """
    there = np.bincount(truth, minlength=expected.shape[1])
    return np.concatenate([there * FINE, expected.sum(axis=0)]).astype(np.int64)


def shift_classes(mechanism: GaussianMechanism, sums: Wholes, entropy: Entropy = SYSTEM) -> Numbers:
    """By how much the log odds of each value move; counts below the noise's deviation count as much as it."""
    noisy = np.asarray(mechanism.release(sums, entropy), np.float64) / FINE
    there, expected = np.maximum(noisy, 1 + math.sqrt(float(mechanism.variance)) / FINE).reshape(2, -1)
    return np.asarray(np.log(there / expected))


@dataclass(frozen=True, slots=True)
class Line:
    """What predictions become: `level`, and `stretch` times how far they are from `middle`; bounds are at -1 and 1."""

    middle: float
    level: float
    stretch: float

    @property
    def start(self) -> float:
        """What a prediction of 0 becomes."""
        return self.level - self.stretch * self.middle


def sum_missed(truth: Wholes, told: Wholes, middle: int, reach: int) -> Wholes:
    """Sums of half of what is missed, alone and times the prediction, and of the prediction and its square.

    All are whole steps of 1/STEPS^2. `told` is what the model says; in what is missed it is kept within the bounds, and
    elsewhere within `reach` of the middle, which counts as 1: each of the four parts of a row is at most 1 in size.
    """
    missed = truth - np.clip(told, -STEPS, STEPS)
    away = np.clip(told - middle, -reach, reach) * STEPS // reach
    parts = (missed * (STEPS // 2), missed * away // 2, away * STEPS, away * away)
    return np.array([int(each.sum()) for each in parts], np.int64)


def fit_line(
    mechanism: GaussianMechanism, sums: Wholes, rows: float, middle: int, reach: int, entropy: Entropy = SYSTEM
) -> Line:
    """The line that fits the truth by what was released; where noise is large it changes nothing."""
    noisy = np.asarray(mechanism.release(sums, entropy), np.float64) / STEPS**2
    noise = 2 * math.sqrt(float(mechanism.variance)) / STEPS**2
    wide = reach / STEPS
    products = np.array([[rows, noisy[2]], [noisy[2], max(0.0, noisy[3])]])
    held = products @ products + np.diag([(2 * noise) ** 2, (2 * noise / wide) ** 2]) + 1e-9 * np.eye(2)
    level, more = np.linalg.solve(held, products @ (2 * noisy[:2]))
    stretch = float(np.clip(1 + more / wide, 0.0, MOST_STRETCH))
    at = middle / STEPS
    return Line(at, at + float(np.clip(level, -2, 2)), stretch)
