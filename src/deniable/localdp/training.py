"""Learning from a randomized table: naive Bayes whose every count and moment has the noise taken out.

A classifier trained on randomized records as if they were true ones learns the randomizer. Here the joint counts of
label and feature are unmixed on both sides, and moments of numbers lose the noise's variance, so that with more
records the classifier tends to the one trained on the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.localdp import recover
from deniable.localdp.records import CategoryPlan, NumberPlan, RecordPlan

Floats = NDArray[np.float64]
SMOOTHING = 1.0


@dataclass(frozen=True, slots=True)
class NaiveBayes:
    """Log-probabilities of labels, of each category given the label, and moments of each number given the label."""

    label: CategoryPlan
    prior: Floats
    categories: tuple[tuple[CategoryPlan, Floats], ...]
    numbers: tuple[tuple[NumberPlan, Floats, Floats], ...]

    def predict(self, table: pa.Table) -> NDArray[np.int64]:
        """The likeliest label of each (clean) record, as an index."""
        scores = np.tile(self.prior, (table.num_rows, 1))
        for column, given in self.categories:
            scores += given[:, recover.told(column, table)].T
        for number, mean, variance in self.numbers:
            values = recover.values(number, table)[:, None]
            scores -= (values - mean) ** 2 / (2 * variance) + np.log(variance) / 2
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def train(made: RecordPlan, table: pa.Table, label: str) -> NaiveBayes:
    """A classifier of one column by all others, from randomized records."""
    target = made.column(label)
    if not isinstance(target, CategoryPlan):
        raise ParameterError(f"'{label}' cannot be the label", expected="A column of categories")
    told = recover.told(target, table)
    counts = np.bincount(told, minlength=target.protocol.domain).astype(np.float64)
    totals = _held(recover.unmixed(counts, target.protocol, 0), table.num_rows)
    features = [column for column in made.columns if column.name != label]
    categories = tuple(
        (column, _conditional(recover.joint_counts(made, table, label, column.name), table.num_rows))
        for column in features
        if isinstance(column, CategoryPlan)
    )
    numbers = tuple(
        (column, *_moments(target, column, table, told)) for column in features if isinstance(column, NumberPlan)
    )
    return NaiveBayes(target, np.log(totals / totals.sum()), categories, numbers)


def _held(counts: Floats, total: int) -> Floats:
    """Counts made positive: estimates may be negative where the truth is small."""
    held: Floats = np.clip(counts, SMOOTHING, max(total, 1))
    return held


def _conditional(joint: Floats, total: int) -> Floats:
    held = _held(joint, total)
    logarithms: Floats = np.log(held / held.sum(axis=1, keepdims=True))
    return logarithms


def _moments(
    target: CategoryPlan, column: NumberPlan, table: pa.Table, told: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Mean and variance of a number given the label: unmixed sums of y and y^2, less the noise's own variance."""
    size, scale = target.protocol.domain, column.protocol.scale
    values = recover.values(column, table)
    counts, sums, squares = (
        recover.unmixed(recover.weighted_counts(told, weights, size), target.protocol, 0)
        for weights in (np.ones_like(values), values, values**2)
    )
    counts = _held(counts, len(values))
    mean = np.clip(sums / counts, float(scale.lower), float(scale.upper))
    noise = column.protocol.variance(0) * float(scale.step) ** 2
    width = float(scale.upper - scale.lower)
    return mean, np.clip(squares / counts - mean**2 - noise, (width / 50) ** 2, (width / 2) ** 2)
