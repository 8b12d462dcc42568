"""The epsilon ladder: train at decreasing epsilon, keep the smallest whose accuracy is acceptable."""

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
from deniable.localdp import records, recover
from deniable.localdp.direct import Direct
from deniable.localdp.numeric.laplace import BoundedLaplace
from deniable.localdp.records import CategoryPlan, NumberPlan, RecordPlan
from deniable.localdp.training import train
from deniable.policy.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Rung:
    """Accuracy at one epsilon, over repeated randomizations, with a 95% interval of the mean accuracy."""

    epsilon: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs from large epsilon to small, the accuracy without noise and by guessing, and the rung to keep."""

    label: str
    acceptable: float
    baseline: float
    majority: float
    rungs: tuple[Rung, ...]
    chosen: float | None


def ladder(
    schema: TableSchema,
    table: pa.Table,
    label: str,
    features: Sequence[str],
    epsilons: Sequence[Fraction],
    acceptable: float,
    repeats: int = 5,
    entropy: Entropy = SYSTEM,
    progress: Callable[[float], None] | None = None,
) -> Ladder:
    """Train at decreasing epsilon and keep the smallest that is still accurate enough on records held out.

    Every third record is held out, clean, to measure accuracy; it never trains. A rung below one that is not
    acceptable does not count: it could only have passed by luck.
    """
    if table.num_rows < 30 or repeats < 1:
        raise DataError("the table is too small to train on", expected="At least 30 rows")
    held = np.arange(table.num_rows) % 3 == 0
    training, test = table.filter(pa.array(~held)), table.filter(pa.array(held))
    truth = records.plan(schema, Fraction(16), (label, *features))
    target = truth.column(label)
    if not isinstance(target, CategoryPlan):
        raise ParameterError(f"'{label}' cannot be the label", expected="A column of categories")
    test = _filled(truth, test)
    labels = recover.told(target, test)
    rungs: list[Rung] = []
    for place, epsilon in enumerate(sorted(epsilons, reverse=True)):
        made = records.plan(schema, epsilon, (label, *features))
        rungs.append(_rung(made, training, test, labels, label, float(epsilon), repeats, entropy))
        if progress:
            progress((place + 1) / len(epsilons))
    kept = [rung.epsilon for rung in takewhile(lambda rung: rung.accuracy >= acceptable, rungs)]
    guess = float(np.bincount(labels).max() / len(labels))
    clean = _clean(truth, training, test, labels, label)
    return Ladder(label, acceptable, clean, guess, tuple(rungs), min(kept, default=None))


def _rung(
    made: RecordPlan,
    training: pa.Table,
    test: pa.Table,
    labels: NDArray[np.int64],
    label: str,
    epsilon: float,
    repeats: int,
    entropy: Entropy,
) -> Rung:
    scores = [
        float((train(made, records.randomize(made, training, entropy), label).predict(test) == labels).mean())
        for _ in range(repeats)
    ]
    mean = float(np.mean(scores))
    # Both the luck of the noise (between repeats) and of the held-out records widen the interval.
    error = sqrt((float(np.var(scores, ddof=1)) / repeats if repeats > 1 else 0) + mean * (1 - mean) / len(labels))
    return Rung(epsilon, mean, max(0.0, mean - 1.96 * error), min(1.0, mean + 1.96 * error))


def _clean(truth: RecordPlan, training: pa.Table, test: pa.Table, labels: NDArray[np.int64], label: str) -> float:
    """Accuracy of the same classifier trained on the truth: the top of the ladder."""
    bare = RecordPlan(tuple(_without_noise(column) for column in truth.columns), truth.epsilon)
    return float((train(bare, _filled(truth, training), label).predict(test) == labels).mean())


def _filled(made: RecordPlan, table: pa.Table) -> pa.Table:
    """Clean records with missing numbers put in the middle of their scale, as randomized records have them."""
    for column in made.columns:
        if isinstance(column, NumberPlan):
            middle = float(column.protocol.scale.lower + column.protocol.scale.upper) / 2
            place = table.column_names.index(column.name)
            numbers = pc.fill_null(pc.cast(table.column(column.name), pa.float64()), middle)
            table = table.set_column(place, column.name, numbers)
    return table


def _without_noise(column: records.ColumnPlan) -> records.ColumnPlan:
    """The same column with odds so large that nothing is mixed: for the baseline only, it is never released."""
    if isinstance(column, CategoryPlan):
        return CategoryPlan(column.name, column.labels, Direct(column.protocol.domain, Fraction(10**12)))
    return NumberPlan(column.name, BoundedLaplace(column.protocol.scale, Fraction(10**9)))
