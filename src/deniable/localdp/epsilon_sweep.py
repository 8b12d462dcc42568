"""The epsilon sweep: train on randomized records at decreasing epsilon, keep the smallest of acceptable accuracy.

The classifier is naive Bayes with the noise taken out of every count and moment. Trained on randomized records as if
they were true, a classifier learns the randomizer; here the joint counts of label and feature are inverted on both
sides and moments lose the noise's variance, so that with more records it tends to the one trained on the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile
from math import sqrt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import DataError, ParameterError
from deniable.localdp import records
from deniable.localdp.frequency.randomized_response import Direct
from deniable.localdp.numeric.mechanisms import BoundedLaplace
from deniable.localdp.records import CategoryPlan, NumberPlan, RecordPlan, find_middle
from deniable.policy.schema import TableSchema


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """Accuracy at one epsilon, over repeated randomizations, with a 95% interval of the mean accuracy."""

    epsilon: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EpsilonSweep:
    """The rungs from large epsilon to small, the accuracy without noise and by guessing, and the rung to keep."""

    label: str
    acceptable: float
    baseline: float
    majority: float
    rungs: tuple[SweepPoint, ...]
    chosen: float | None


def sweep_epsilons(
    schema: TableSchema,
    table: pa.Table,
    label: str,
    features: Sequence[str],
    epsilons: Sequence[Fraction],
    acceptable: float,
    repeats: int = 5,
    entropy: Entropy = SYSTEM,
    progress: Callable[[float], None] | None = None,
) -> EpsilonSweep:
    """Train at decreasing epsilon and keep the smallest that is still accurate enough on records held out.

    Every third record is held out, clean, to measure accuracy; it never trains. A rung below one that is not
    acceptable does not count: it could only have passed by luck.
    """
    if table.num_rows < 30 or repeats < 1:
        raise DataError("the table is too small to train on", expected="At least 30 rows")
    held = np.arange(table.num_rows) % 3 == 0
    training, test = table.filter(pa.array(~held)), table.filter(pa.array(held))
    truth = records.plan_records(schema, Fraction(16), (label, *features))
    target = truth.column(label)
    if not isinstance(target, CategoryPlan):
        raise ParameterError(f"'{label}' cannot be the label", expected="A column of categories")
    test = _fill_missing(truth, test)
    labels = records.read_labels(target, test)
    rungs: list[SweepPoint] = []
    for place, epsilon in enumerate(sorted(epsilons, reverse=True)):
        made = records.plan_records(schema, epsilon, (label, *features))
        rungs.append(_measure_point(made, training, test, labels, label, float(epsilon), repeats, entropy))
        if progress:
            progress((place + 1) / len(epsilons))
    kept = [rung.epsilon for rung in takewhile(lambda rung: rung.accuracy >= acceptable, rungs)]
    guess = float(np.bincount(labels).max() / len(labels))
    clean = _measure_baseline(truth, training, test, labels, label)
    return EpsilonSweep(label, acceptable, clean, guess, tuple(rungs), min(kept, default=None))


def _measure_point(
    made: RecordPlan,
    training: pa.Table,
    test: pa.Table,
    labels: NDArray[np.int64],
    label: str,
    epsilon: float,
    repeats: int,
    entropy: Entropy,
) -> SweepPoint:
    scores = [
        float((train(made, records.randomize(made, training, entropy), label).predict(test) == labels).mean())
        for _ in range(repeats)
    ]
    mean = float(np.mean(scores))
    # Both the luck of the noise (between repeats) and of the held-out records widen the interval.
    error = sqrt((float(np.var(scores, ddof=1)) / repeats if repeats > 1 else 0) + mean * (1 - mean) / len(labels))
    return SweepPoint(epsilon, mean, max(0.0, mean - 1.96 * error), min(1.0, mean + 1.96 * error))


def _measure_baseline(
    truth: RecordPlan, training: pa.Table, test: pa.Table, labels: NDArray[np.int64], label: str
) -> float:
    """Accuracy of the same classifier trained on the truth: the upper end of the sweep."""
    bare = RecordPlan(tuple(_remove_noise(column) for column in truth.columns), truth.epsilon)
    return float((train(bare, _fill_missing(truth, training), label).predict(test) == labels).mean())


def _fill_missing(made: RecordPlan, table: pa.Table) -> pa.Table:
    """Clean records with missing numbers put in the middle of their scale, as randomized records have them."""
    for column in made.columns:
        if isinstance(column, NumberPlan):
            middle = find_middle(column)
            place = table.column_names.index(column.name)
            numbers = pc.fill_null(pc.cast(table.column(column.name), pa.float64()), middle)
            table = table.set_column(place, column.name, numbers)
    return table


def _remove_noise(column: records.ColumnPlan) -> records.ColumnPlan:
    """The same column with odds so large that nothing is mixed: for the baseline only, it is never released."""
    if isinstance(column, CategoryPlan):
        return CategoryPlan(column.name, column.labels, Direct(column.protocol.domain, Fraction(10**12)))
    return NumberPlan(column.name, BoundedLaplace(column.protocol.scale, Fraction(10**9)))


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
            scores += given[:, records.read_labels(column, table)].T
        for number, mean, variance in self.numbers:
            values = records.read_numbers(number, table)[:, None]
            scores -= (values - mean) ** 2 / (2 * variance) + np.log(variance) / 2
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def train(made: RecordPlan, table: pa.Table, label: str) -> NaiveBayes:
    """A classifier of one column by all others, from randomized records."""
    target = made.column(label)
    if not isinstance(target, CategoryPlan):
        raise ParameterError(f"'{label}' cannot be the label", expected="A column of categories")
    told = records.read_labels(target, table)
    counts = np.bincount(told, minlength=target.protocol.domain).astype(np.float64)
    totals = _clip_counts(records.undo_response(counts, target.protocol, 0), table.num_rows)
    features = [column for column in made.columns if column.name != label]
    categories = tuple(
        (column, _condition_on_label(records.estimate_joint_counts(made, table, label, column.name), table.num_rows))
        for column in features
        if isinstance(column, CategoryPlan)
    )
    numbers = tuple(
        (column, *_estimate_moments(target, column, table, told))
        for column in features
        if isinstance(column, NumberPlan)
    )
    return NaiveBayes(target, np.log(totals / totals.sum()), categories, numbers)


def _clip_counts(counts: Floats, total: int) -> Floats:
    """Counts made positive: estimates may be negative where the truth is small."""
    held: Floats = np.clip(counts, SMOOTHING, max(total, 1))
    return held


def _condition_on_label(joint: Floats, total: int) -> Floats:
    held = _clip_counts(joint, total)
    logarithms: Floats = np.log(held / held.sum(axis=1, keepdims=True))
    return logarithms


def _estimate_moments(
    target: CategoryPlan, column: NumberPlan, table: pa.Table, told: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Mean and variance of a number given the label: unmixed sums of y and y^2, less the noise's own variance."""
    size, scale = target.protocol.domain, column.protocol.scale
    values = records.read_numbers(column, table)
    counts, sums, squares = (
        records.undo_response(records.sum_weights(told, weights, size), target.protocol, 0)
        for weights in (np.ones_like(values), values, values**2)
    )
    counts = _clip_counts(counts, len(values))
    mean = np.clip(sums / counts, float(scale.lower), float(scale.upper))
    noise = column.protocol.variance(0) * float(scale.step) ** 2
    width = float(scale.upper - scale.lower)
    return mean, np.clip(squares / counts - mean**2 - noise, (width / 50) ** 2, (width / 2) ** 2)
