"""What a randomized table still says: counts, means, and means by group, with the noise accounted for.

Randomizers of different columns are independent, so the expected table of randomized pairs is the true one multiplied
by one known matrix on each side; undoing both gives unbiased joint counts and sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError
from deniable.localdp.direct import Direct
from deniable.localdp.numeric.scale import Mean
from deniable.localdp.protocol import Frequencies
from deniable.localdp.records import CategoryPlan, NumberPlan, RecordPlan, codes, given_name

Floats = NDArray[np.float64]
Label = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Recovered:
    """What one column says: counts of its labels, or a mean."""

    column: str
    labels: tuple[Label, ...] = ()
    counts: Frequencies | None = None
    mean: Mean | None = None


def recover(made: RecordPlan, table: pa.Table) -> tuple[Recovered, ...]:
    """Counts of every category column and means of every numeric one."""
    if table.num_rows == 0:
        raise DataError("the table has no rows", remedy="Nothing can be estimated from nothing")
    return tuple(_recover(column, table) for column in made.columns)


def _recover(column: CategoryPlan | NumberPlan, table: pa.Table) -> Recovered:
    if isinstance(column, CategoryPlan):
        tally = column.protocol.tally((told(column, table),))
        return Recovered(column.name, column.labels, column.protocol.estimate(tally, table.num_rows))
    return Recovered(column.name, mean=_mean(column, table))


def told(column: CategoryPlan, table: pa.Table) -> NDArray[np.int64]:
    """The labels that records tell, as indexes."""
    return codes(column, table.column(column.name).combine_chunks())


def values(column: NumberPlan, table: pa.Table) -> Floats:
    """The noisy numbers that records tell."""
    numbers = pc.cast(table.column(column.name), pa.float64()).to_numpy()
    if np.isnan(numbers).any():
        raise DataError(f"column '{column.name}' has missing values", remedy="Use the table as it was released")
    return np.asarray(numbers, dtype=np.float64)


def _mean(column: NumberPlan, table: pa.Table) -> Mean:
    """The mean of given values. Missing ones answered from the middle of the scale, which is taken out again.

    With m answers from the middle c, n mean_all = (n - m) mean + m c; m is known from its own randomized column. The
    error follows from those of mean_all and m (delta method).
    """
    numbers = values(column, table)
    n = len(numbers)
    whole, error = float(numbers.mean()), float(numbers.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    if column.given is None:
        return Mean(whole, error, n)
    tally = np.bincount(table.column(given_name(column.name)).to_numpy().astype(np.int64), minlength=2)
    present = column.given.estimate(tally, n)
    share = float(np.clip(present.shares[1], 1 / n, 1))
    middle = float(column.protocol.scale.lower + column.protocol.scale.upper) / 2
    mean = middle + (whole - middle) / share
    spread = math.hypot(error / share, (whole - middle) / share**2 * float(present.errors[1]) / n)
    return Mean(mean, spread, n)


def unmixed(table: Floats, protocol: Direct, axis: int) -> Floats:
    """Undo k-ary randomized response along one axis: (x - q sum x) / (p - q)."""
    p, q = float(protocol.p), float(protocol.q)
    undone: Floats = (table - q * table.sum(axis=axis, keepdims=True)) / (p - q)
    return undone


def weighted_counts(groups: NDArray[np.int64], weights: Floats, size: int) -> Floats:
    """Sums of weights over told groups."""
    return np.asarray(np.bincount(groups, weights=weights, minlength=size), dtype=np.float64)


def joint_counts(made: RecordPlan, table: pa.Table, first: str, second: str) -> Floats:
    """Unbiased counts of all pairs of labels of two columns."""
    one, two = (_category(made, name) for name in (first, second))
    cells = told(one, table) * two.protocol.domain + told(two, table)
    shape = (one.protocol.domain, two.protocol.domain)
    seen = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    return unmixed(unmixed(seen, one.protocol, 0), two.protocol, 1)


def means_by(made: RecordPlan, table: pa.Table, number: str, by: str) -> tuple[tuple[Label, Mean], ...]:
    """The mean of a number in each group of a category column, both randomized.

    Each record has a weight for every group whose expectation is 1 if it belongs there and 0 if not, and a number with
    the right expectation; weighted sums are therefore unbiased, and a mean is the ratio of two of them. Numbers are
    taken from the middle of the scale, where missing ones were put, so that those add nothing to the sum. The error is
    that of the ratio to first order, from the residuals of the records.
    """
    grouping, column = _category(made, by), made.column(number)
    if not isinstance(column, NumberPlan):
        raise ParameterError(f"'{number}' has no mean", expected="A column of numbers")
    middle = float(column.protocol.scale.lower + column.protocol.scale.upper) / 2
    groups, offsets, present = told(grouping, table), values(column, table) - middle, _present(column, table)
    p, q = float(grouping.protocol.p), float(grouping.protocol.q)
    found = []
    for index, label in enumerate(grouping.labels):
        weights = ((groups == index) - q) / (p - q)
        count, total = float(weights @ present), float(weights @ offsets)
        mean = total / count if count > 1 else math.nan
        error = float(np.linalg.norm(weights * (offsets - mean * present))) / max(count, 1.0)
        found.append((label, Mean(middle + mean, error, len(offsets))))
    return tuple(found)


def _present(column: NumberPlan, table: pa.Table) -> Floats:
    """For each record a number whose expectation is 1 if its value was given and 0 if it was missing."""
    if column.given is None:
        return np.ones(table.num_rows)
    given = table.column(given_name(column.name)).to_numpy().astype(np.float64)
    present: Floats = (given - float(column.given.q)) / float(column.given.p - column.given.q)
    return present


def _category(made: RecordPlan, name: str) -> CategoryPlan:
    column = made.column(name)
    if not isinstance(column, CategoryPlan):
        raise ParameterError(f"column '{name}' has no categories", expected="A column of categories")
    return column
