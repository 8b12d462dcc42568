"""A table randomized record by record, and what it still says: counts, means, and means by group.

Every column that leaves is randomized as if each person had done it. Categories go through k-ary randomized response,
bounded numbers through Laplace noise of their whole range, so the released table looks like the original and each row
of it is epsilon-private on its own. Declared nulls are an answer like any other: one more category, or, beside a
number, a randomized "was it given".

Randomizers of different columns are independent, so the expected table of randomized pairs is the true one multiplied
by one known matrix on each side; undoing both gives unbiased joint counts and sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import DataError, ParameterError, nearest
from deniable.localdp import serialization
from deniable.localdp.frequency.randomized_response import Direct
from deniable.localdp.numeric.mechanisms import BoundedLaplace
from deniable.localdp.numeric.scale import CERTAIN, Mean, MeanAmong, Scale, mean_among, mean_of_readings
from deniable.localdp.protocol import Frequencies, score_support, student_quantile
from deniable.policy.schema import Column, ColumnType, TableSchema

LARGEST_WHOLE = 1 << 53
"""Noisy numbers are floats, which hold every whole number up to this."""


@dataclass(frozen=True, slots=True)
class CategoryPlan:
    """A column of categories: its labels (None stands for missing) and the randomizer over them."""

    name: str
    labels: tuple[str | int | bool | None, ...]
    protocol: Direct


@dataclass(frozen=True, slots=True)
class NumberPlan:
    """A column of numbers: its randomizer and, where values may be missing, that of "was it given"."""

    name: str
    protocol: BoundedLaplace
    given: Direct | None = None


ColumnPlan = CategoryPlan | NumberPlan


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """Which columns leave, and how.

    **Guarantee**: epsilon-local DP of each record (replace one row), epsilon the sum over columns.
    **Utility**: counts and means of any column, and joint ones, by inverting the randomizers (see recover).
    **Runtime**: one draw a value.
    """

    columns: tuple[ColumnPlan, ...]
    epsilon: Fraction

    def column(self, name: str) -> ColumnPlan:
        """The plan of one column."""
        for column in self.columns:
            if column.name == name:
                return column
        names = [column.name for column in self.columns]
        raise ParameterError(
            f"column '{name}' was not randomized",
            expected=f"There are: {', '.join(names)}",
            remedy=nearest(name, names),
        )


def is_randomizable(schema: TableSchema, name: str) -> bool:
    """Whether a column of a table has declared categories or numeric bounds."""
    column = schema.column(name)
    return column is not None and _is_randomizable(column)


def plan_records(
    schema: TableSchema,
    epsilon: Fraction,
    names: Sequence[str] | None = None,
    own: Mapping[str, Fraction] | None = None,
) -> RecordPlan:
    """A plan that spends epsilon on each record: the columns' own parts, and even parts of what is left.

    Without names, every column with declared categories or numeric bounds leaves; all others stay behind.
    """
    chosen = (
        [_find_declared(schema, name) for name in names]
        if names is not None
        else [c for c in schema.columns if _is_randomizable(c)]
    )
    if len({column.name for column in chosen}) < len(chosen):
        raise ParameterError("a column is named twice", expected="Each column once, with one epsilon")
    if not chosen:
        raise ParameterError(
            f"no column of '{schema.name}' can be randomized",
            expected="Columns that may leave, with declared categories or numbers with bounds",
            remedy="Declare a role, and categories or between, in the policy",
        )
    given = dict(own or {})
    if epsilon <= 0 or any(part <= 0 for part in given.values()):
        raise ParameterError("an epsilon of a record or of a column is not above 0", expected="An epsilon such as 1")
    open_ = [column.name for column in chosen if column.name not in given]
    left = epsilon - sum(given.values(), Fraction(0))
    if left < 0 or (open_ and left <= 0):
        raise ParameterError("the columns' own epsilons use up the whole", remedy="Raise --epsilon or lower theirs")
    parts = given | {name: left / len(open_) for name in open_}
    return RecordPlan(tuple(_plan_column(column, parts[column.name]) for column in chosen), epsilon)


def _is_randomizable(column: Column) -> bool:
    return column.categories is not None or (column.bounds is not None and column.type.numeric)


def _find_declared(schema: TableSchema, name: str) -> Column:
    column = schema.column(name)
    if column is None:
        expected = f"It has: {', '.join(schema.names)}"
        raise ParameterError(
            f"'{schema.name}' has no column '{name}'", expected=expected, remedy=nearest(name, schema.names)
        )
    if not _is_randomizable(column):
        raise ParameterError(
            f"column '{name}' has neither categories nor numeric bounds", remedy="Declare them in the policy"
        )
    return column


def _plan_column(column: Column, epsilon: Fraction) -> ColumnPlan:
    if column.categories is not None:
        labels = (*column.categories, None) if column.nullable else column.categories
        return CategoryPlan(column.name, labels, Direct.calibrate(len(labels), epsilon))
    assert column.bounds is not None
    lower, upper = column.bounds.lower, column.bounds.upper
    if not isinstance(lower, int | Fraction) or not isinstance(upper, int | Fraction):
        raise ParameterError(f"column '{column.name}' has bounds that are not numbers")
    if column.type is ColumnType.INTEGER and not -LARGEST_WHOLE <= lower <= upper <= LARGEST_WHOLE:
        raise ParameterError(
            f"column '{column.name}' has bounds that are too large to be randomized exactly",
            expected="Bounds of at most 2**53",
            remedy="Declare narrower bounds, or leave the column out with --columns",
        )
    scale = Scale.between(lower, upper, column.bounds.step)
    if not column.nullable:
        return NumberPlan(column.name, BoundedLaplace.calibrate(scale, epsilon))
    return NumberPlan(column.name, BoundedLaplace.calibrate(scale, epsilon / 2), Direct.calibrate(2, epsilon / 2))


def randomize(made: RecordPlan, table: pa.Table, entropy: Entropy = SYSTEM) -> pa.Table:
    """The table with every planned column randomized, rows in their order, and nothing else."""
    arrays: dict[str, pa.Array] = {}
    for column in made.columns:
        if column.name not in table.column_names:
            raise DataError(f"the table has no column '{column.name}'", remedy="Check the policy against the table")
        values = table.column(column.name).combine_chunks()
        arrays |= _randomize_column(column, values, entropy)
    return pa.table(arrays)


def _randomize_column(column: ColumnPlan, values: pa.Array, entropy: Entropy) -> dict[str, pa.Array]:
    if isinstance(column, CategoryPlan):
        (told,) = column.protocol.randomize(_encode_every(column, values, entropy), entropy)
        return {column.name: pa.array(column.labels).take(pa.array(told))}
    # A safe cast would refuse whole numbers that floats cannot hold. Rounded, they stay on their side of the bounds.
    given_values = pc.cast(values, pa.float64(), safe=False)
    present = np.asarray(pc.fill_null(pc.invert(pc.is_nan(given_values)), False))
    middle = find_middle(column)
    numbers = np.where(present, pc.fill_null(given_values, middle).to_numpy(zero_copy_only=False), middle)
    positions = column.protocol.scale.position_of(numbers)
    noisy = column.protocol.positions(column.protocol.randomize(positions, entropy))
    told_values = {column.name: pa.array(column.protocol.scale.value_of(noisy))}
    if column.given is None:
        return told_values
    (given,) = column.given.randomize(present.astype(np.int64), entropy)
    return told_values | {name_given_column(column.name): pa.array(given == 1)}


def find_middle(column: NumberPlan) -> float:
    """The number that stands for a missing one: the step of the scale that is nearest to its middle."""
    scale = column.protocol.scale
    position = scale.position_of(np.array([float(scale.lower + scale.upper) / 2]))
    return float(scale.value_of(float(position[0])))


def name_given_column(name: str) -> str:
    """The column that tells, through randomized response, whether a number was given."""
    return f"{name}_given"


def _encode_every(column: CategoryPlan, values: pa.Array, entropy: Entropy) -> NDArray[np.int64]:
    """Values as indexes of labels, whatever they are: a refusal would tell of a row.

    What is missing or not a declared category counts as missing, or, where the policy knows no missing values, as a
    category drawn at random.
    """
    found = _find_labels(column, values)
    if None in column.labels:
        spare = np.full(len(found), len(column.labels) - 1, dtype=np.int64)
    else:
        spare = uniform_below(len(column.labels), len(found), entropy=entropy)
    return np.where(found >= 0, found, spare)


def _find_labels(column: CategoryPlan, values: pa.Array) -> NDArray[np.int64]:
    """The index of each value among the categories, or -1."""
    known = [_render_label(label) for label in column.labels if label is not None]
    found = pc.index_in(pc.cast(values, pa.string()), value_set=pa.array(known, pa.string()))
    indexes: NDArray[np.int64] = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return indexes


def encode_labels(column: CategoryPlan, values: pa.Array) -> NDArray[np.int64]:
    """Released values as indexes of labels; what is not a declared category counts as missing."""
    found = _find_labels(column, values)
    if None not in column.labels and (found < 0).any():
        raise DataError(
            f"column '{column.name}' has values that are missing or outside its declared categories",
            remedy="Use the table as it was released",
        )
    return np.where(found >= 0, found, len(column.labels) - 1)


def _render_label(label: str | int | bool | None) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)


# a dictionary: a part of the statement, which `parse_plan` reads back
def describe_plan(made: RecordPlan) -> dict[str, Any]:
    """The plan as plain values, for the statement beside a released table."""
    columns = {}
    for column in made.columns:
        entry: dict[str, Any] = {"recipe": serialization.recipe(column.protocol)}
        if isinstance(column, CategoryPlan):
            entry["labels"] = list(column.labels)
        elif column.given is not None:
            entry["given"] = serialization.recipe(column.given)
        columns[column.name] = entry
    return {"columns": columns, "epsilon": str(made.epsilon)}


def parse_plan(document: Mapping[str, Any]) -> RecordPlan:
    """The plan that a statement describes."""
    try:
        columns = tuple(_parse_column(name, entry) for name, entry in document["columns"].items())
        return RecordPlan(columns, Fraction(document["epsilon"]))
    except (KeyError, TypeError, AttributeError):
        raise DataError(
            "the statement does not describe a randomized table", remedy="Name a file that `deniable randomize` wrote"
        ) from None


def _parse_column(name: str, entry: Mapping[str, Any]) -> ColumnPlan:
    protocol = serialization.protocol_of(entry["recipe"])
    if "labels" in entry:
        return CategoryPlan(name, tuple(entry["labels"]), protocol)
    return NumberPlan(name, protocol, serialization.protocol_of(entry["given"]) if "given" in entry else None)


Floats = NDArray[np.float64]
Label = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Recovered:
    """What one column says: counts of its labels, or a mean."""

    column: str
    labels: tuple[Label, ...] = ()
    counts: Frequencies | None = None
    mean: Mean | MeanAmong | None = None


def recover(made: RecordPlan, table: pa.Table) -> tuple[Recovered, ...]:
    """Counts of every category column and means of every numeric one."""
    if table.num_rows == 0:
        raise DataError("the table has no rows", remedy="Nothing can be estimated from nothing")
    return tuple(_recover_column(column, table) for column in made.columns)


def _recover_column(column: CategoryPlan | NumberPlan, table: pa.Table) -> Recovered:
    if isinstance(column, CategoryPlan):
        tally = column.protocol.tally((read_labels(column, table),))
        return Recovered(column.name, column.labels, column.protocol.estimate(tally, table.num_rows))
    return Recovered(column.name, mean=_estimate_mean(column, table))


def read_labels(column: CategoryPlan, table: pa.Table) -> NDArray[np.int64]:
    """The labels that records tell, as indexes."""
    return encode_labels(column, table.column(column.name).combine_chunks())


def read_numbers(column: NumberPlan, table: pa.Table) -> Floats:
    """The noisy numbers that records tell."""
    numbers = pc.cast(table.column(column.name), pa.float64()).to_numpy()
    if np.isnan(numbers).any():
        raise DataError(f"column '{column.name}' has missing values", remedy="Use the table as it was released")
    return np.asarray(numbers, dtype=np.float64)


def _estimate_mean(column: NumberPlan, table: pa.Table) -> Mean | MeanAmong:
    """The mean of given values. Missing ones answered from the middle of the scale, which is taken out again.

    How many are missing is known from a randomized column of its own.
    """
    numbers, scale = read_numbers(column, table), column.protocol.scale
    everybody = mean_of_readings(column.protocol, (numbers - float(scale.lower)) / float(scale.step))
    if column.given is None:
        return everybody
    told = int(table.column(name_given_column(column.name)).to_numpy().astype(np.int64).sum())
    return mean_among(everybody, scale, told, float(column.given.p), find_middle(column))


def undo_response(table: Floats, protocol: Direct, axis: int) -> Floats:
    """Undo k-ary randomized response along one axis: (x - q sum x) / (p - q)."""
    p, q = float(protocol.p), float(protocol.q)
    undone: Floats = (table - q * table.sum(axis=axis, keepdims=True)) / (p - q)
    return undone


def sum_weights(groups: NDArray[np.int64], weights: Floats, size: int) -> Floats:
    """Sums of weights over reported groups."""
    return np.asarray(np.bincount(groups, weights=weights, minlength=size), dtype=np.float64)


def estimate_joint_counts(made: RecordPlan, table: pa.Table, first: str, second: str) -> Floats:
    """Unbiased counts of all pairs of labels of two columns."""
    one, two = (_find_category(made, name) for name in (first, second))
    cells = read_labels(one, table) * two.protocol.domain + read_labels(two, table)
    shape = (one.protocol.domain, two.protocol.domain)
    seen = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    return undo_response(undo_response(seen, one.protocol, 0), two.protocol, 1)


@dataclass(frozen=True, slots=True)
class GroupNoise:
    """What is known of the noise in a group's sums: `told` records say that they belong to the group.

    A record says so with probability p if it does and q if it does not. `noise` is the variance of a number,
    `presence` that of "was it given".
    """

    p: float
    q: float
    told: int
    noise: float
    presence: float

    @property
    def step(self) -> float:
        """The weight of a record that says it belongs to the group."""
        return (1 - self.q) / (self.p - self.q)

    def square(self, says: float) -> float:
        """The mean square of the weight of a record that says with this probability that it belongs to the group."""
        return (says * (1 - self.q) ** 2 + (1 - says) * self.q**2) / (self.p - self.q) ** 2

    def count_members(self, records: int, confidence: float) -> tuple[float, float]:
        """The least and the greatest number of records that belong to the group."""
        ends = score_support(np.array([self.told]), records, self.p, self.q).interval(confidence, population=False)
        low, high = (min(max(float(end[0]), 0.0), float(records)) for end in ends)
        return low, high


@dataclass(frozen=True, slots=True)
class GroupMean:
    """The mean of a number in one group, known only through two noisy sums: of its values, and of its records.

    Values are counted from the middle of the scale. `squares` are the sums of the squares of both, and of their
    products, over the records: value and value, value and record, record and record.
    """

    total: float
    count: float
    squares: tuple[float, float, float]
    records: int
    middle: float
    ends: tuple[float, float]
    spread: GroupNoise

    @property
    def value(self) -> float | None:
        """The ratio of the sums, within the scale; None where no record can be told to belong to the group."""
        if self.count < 1:
            return None
        return min(max(self.middle + self.total / self.count, self.ends[0]), self.ends[1])

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """All means m of the scale from which the sum of value - m is not too far from 0 (Fieller 1954).

        How far is too far follows from m, as in a score interval: few records do not show their own spread, so that it
        is taken to be the greatest that a group of this mean can have. A fifth of the risk is kept for its size.
        """
        risk = (1 - confidence) / 5
        sizes = self.spread.count_members(self.records, 1 - risk)
        reach = student_quantile(1 - 4 * risk, self.records - 1)
        means = np.linspace(*self.ends, 1001)
        fits = np.flatnonzero(self._explains(means, sizes, reach))
        if not len(fits):
            only = self.ends[0] if self.value is None else self.value
            return self._find_end(only, self.ends[0], sizes, reach), self._find_end(only, self.ends[1], sizes, reach)
        low, high = means[fits[0]], means[fits[-1]]
        below, above = means[max(fits[0] - 1, 0)], means[min(fits[-1] + 1, 1000)]
        return self._find_end(low, below, sizes, reach), self._find_end(high, above, sizes, reach)

    def _explains(self, means: Floats, sizes: tuple[float, float], reach: float) -> NDArray[np.bool_]:
        """Whether the sums could be these if the group's mean were each of these."""
        offsets, (low, high), spread = means - self.middle, self.ends, self.spread
        noise = spread.noise + spread.presence * offsets**2
        inside = spread.square(spread.p) * (noise + (means - low) * (high - means))
        outside = spread.square(spread.q) * (noise + np.maximum(means - low, high - means) ** 2)
        most = np.maximum(*(size * inside + (self.records - size) * outside for size in sizes))
        values, mixed, counts = self.squares
        seen = np.clip(values - 2 * offsets * mixed + offsets**2 * counts, 0, most)
        variances = seen + (most - seen) * min(1.0, CERTAIN / max(self.count, 1.0))
        # one record more is a step of this sum, where noise does not smooth it
        half = max(spread.step * (high - low) / 2 - math.sqrt(max(self.count, 0.0) * spread.noise), 0.0)
        return np.asarray(np.abs(self.total - offsets * self.count) <= half + reach * np.sqrt(variances))

    def _find_end(self, inside: float, outside: float, sizes: tuple[float, float], reach: float) -> float:
        """The last mean that explains the sums, on the way to one that may not; by ever finer grids."""
        for _ in range(4):
            means = np.linspace(inside, outside, 101)
            fits = np.flatnonzero(self._explains(means, sizes, reach))
            if not len(fits) or fits[-1] == 100:
                return float(means[100 if len(fits) else 0])
            inside, outside = means[fits[-1]], means[fits[-1] + 1]
        return float(inside)


def estimate_means_by(made: RecordPlan, table: pa.Table, number: str, by: str) -> tuple[tuple[Label, GroupMean], ...]:
    """The mean of a number in each group of a category column, both randomized.

    Each record has a weight for every group whose expectation is 1 if it belongs there and 0 if not, and a number with
    the right expectation; weighted sums are therefore unbiased, and a mean is the ratio of two of them. Numbers are
    taken from the middle of the scale, where missing ones were put, so that those add nothing to the sum.
    """
    grouping, column = _find_category(made, by), made.column(number)
    if not isinstance(column, NumberPlan):
        raise ParameterError(f"'{number}' has no mean", expected="A column of numbers")
    middle, scale = find_middle(column), column.protocol.scale
    groups, offsets, present = (
        read_labels(grouping, table),
        read_numbers(column, table) - middle,
        _weigh_presence(column, table),
    )
    p, q, ends = float(grouping.protocol.p), float(grouping.protocol.q), (float(scale.lower), float(scale.upper))
    noise = max(column.protocol.variance(end) for end in (0, scale.steps)) * float(scale.step) ** 2
    presence, found = _vary_presence(column), []
    for index, label in enumerate(grouping.labels):
        weights = ((groups == index) - q) / (p - q)
        parts = weights * offsets, weights * present
        values, mixed, counts = (float(one @ other) for one, other in combinations_with_replacement(parts, 2))
        total, count = (float(each.sum()) for each in parts)
        spread = GroupNoise(p, q, int((groups == index).sum()), noise, presence)
        found.append((label, GroupMean(total, count, (values, mixed, counts), len(offsets), middle, ends, spread)))
    return tuple(found)


def _weigh_presence(column: NumberPlan, table: pa.Table) -> Floats:
    """For each record a number whose expectation is 1 if its value was given and 0 if it was missing."""
    if column.given is None:
        return np.ones(table.num_rows)
    given = table.column(name_given_column(column.name)).to_numpy().astype(np.float64)
    present: Floats = (given - float(column.given.q)) / float(column.given.p - column.given.q)
    return present


def _vary_presence(column: NumberPlan) -> float:
    """The variance of what a record adds to the number of those that have a value."""
    if column.given is None:
        return 0.0
    p, q = float(column.given.p), float(column.given.q)
    return p * (1 - p) / (p - q) ** 2


def _find_category(made: RecordPlan, name: str) -> CategoryPlan:
    column = made.column(name)
    if not isinstance(column, CategoryPlan):
        raise ParameterError(f"column '{name}' has no categories", expected="A column of categories")
    return column
