"""A last measurement of the level: what clipping took from sums of gradients is put back, as far as a line can.

Clipped residuals lean to one side where few of them are long: those of a rare value, or of a number that is 0 for most.
A model that descends by them predicts too little. So its own predictions are compared with the truth once, at the end,
by one release of a share of the budget, and nothing is clipped in it but what the declared bounds clip.

- For classes: how many rows there are of each value, and how many the model expects. The log odds of all rows move
  alike, by what moves the mean chance from one to the other. How much that is depends on how chances are spread over
  the rows, which is not measured: rows are made from the released shares of each column, as if independent.
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
from deniable.learn.features import STEPS, Design, Knots, Numbers
from deniable.policy.budget import Budget

Wholes = NDArray[np.int64]

CALIBRATED = Fraction(1, 25)
"""The share of the budget that it costs."""
FINE = 1 << 16
"""Steps of a probability: FINE is 1."""
MOST_SQUARED = {False: 2 * FINE**2, True: 4 * STEPS**4}
"""How far a row moves the sums, in squared L2 norm, for classes and (True) for numbers.

Classes: one value of the row, and probabilities that add up to at most FINE. Numbers: four parts of at most STEPS^2."""
SPREAD_ROWS, ROUNDS, NEAR = 1024, 200, 1e-6
"""Rows that are made to find the level of chances, how often it is moved at most, and by how little the last time; a
far one is not reached, on purpose: where hardly any chance can move, noise alone would ask for it."""
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


def shift_classes(
    mechanism: GaussianMechanism, sums: Wholes, odds: Numbers | None = None, entropy: Entropy = SYSTEM
) -> Numbers:
    """By how much the log odds of each value move; counts below the noise's deviation count as much as it.

    `odds` are public: the log odds of rows that are spread as those of the table may be, a column for each value.
    Without them all rows count as alike.
    """
    noisy = np.asarray(mechanism.release(sums, entropy), np.float64) / FINE
    there, expected = np.maximum(noisy, 1 + math.sqrt(float(mechanism.variance)) / FINE).reshape(2, -1)
    alike = np.zeros((1, len(there)))
    first = _find_shift(alike if odds is None else odds, expected)
    return np.asarray(_find_shift(alike if odds is None else odds, there) - first)


def _find_shift(odds: Numbers, wanted: Numbers) -> Numbers:
    """What is added to the log odds so that the mean chances are in the proportions that are wanted."""
    found, shares = np.zeros(odds.shape[1]), wanted / wanted.sum()
    for _ in range(ROUNDS):
        powers = np.exp(odds + found - (odds + found).max(axis=1, keepdims=True))
        means = (powers / powers.sum(axis=1, keepdims=True)).mean(axis=0)
        found += (moved := np.log(shares / np.maximum(means, 1e-12)))
        if np.abs(moved).max() < NEAR:
            break
    return np.asarray(found - found.mean())


def spread_rows(design: Design, shares: Numbers) -> Numbers:
    """Public rows of entries: each column by itself, as its shares tell, and by a generator that is always the same."""
    draw, rows = np.random.default_rng(0), np.zeros((SPREAD_ROWS, design.width))
    rows[:, 0] = 1.0
    for block, each in enumerate(design.features, 1):
        at = np.flatnonzero(design.owners == block)
        held = shares[at] + 1e-9
        ends = np.cumsum(held / held.sum())
        lots = draw.permutation((np.arange(SPREAD_ROWS) + 0.5) / SPREAD_ROWS)
        near = np.minimum(np.searchsorted(ends, lots), len(at) - 1)
        if not isinstance(each, Knots) or each.count < 2:
            rows[np.arange(SPREAD_ROWS), at[near]] = 1.0
            continue
        # A value between two knots shares its weight between them.
        middles = ends[: each.count] - np.diff(ends[: each.count], prepend=0.0) / 2
        place = np.where(near < each.count, np.interp(lots, middles, np.arange(each.count)), near)
        low = np.minimum(np.floor(place), len(at) - 1).astype(np.int64)
        high = np.minimum(low + 1, len(at) - 1)
        np.add.at(rows, (np.arange(SPREAD_ROWS), at[low]), 1 - (place - low))
        np.add.at(rows, (np.arange(SPREAD_ROWS), at[high]), place - low)
    return rows


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
