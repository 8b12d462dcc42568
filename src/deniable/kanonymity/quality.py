"""Information loss and utility: what a release costs those who will use it. Lower is better for all measures of loss.

Measures over cells (Loss, precision, NCP, entropy) state what a cell costs at every level, by its leaf, and when it is
suppressed. Costs never fall from one level to the next and are highest when suppressed, so the cost of a node without
suppression is a sum of one number for each (column, level), and a lower bound for the node with suppression.

Measures of the classes (discernibility, average class size, divergence) are monotone: they never fall when classes
merge, and suppression never lowers them. So what a node costs without suppression bounds all nodes above it from below.

Utility for a target is the cross-validated accuracy of a naive Bayes classifier that learns from the released table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError, nearest
from deniable.kanonymity.encoding import Counts, Tuples, column_of, factorize
from deniable.kanonymity.hierarchy import Codes, Hierarchy
from deniable.kanonymity.models.base import Verdicts

Costs = NDArray[np.float64]
"""A matrix for one column: a row for each level and a last one for suppressed, a column for each leaf."""


class CellMeasure(Protocol):
    """A measure that adds up over cells."""

    def costs(self, hierarchies: Sequence[Hierarchy], tuples: Tuples) -> list[Costs]:
        """The tables of all columns, scaled so that the cost of a release is the sum over its cells."""


def normalize_weights(hierarchies: Sequence[Hierarchy], weights: Mapping[str, float]) -> NDArray[np.float64]:
    """The share of each column in a weighted mean; columns that are not named weigh 1."""
    names = [h.column for h in hierarchies]
    for name, weight in weights.items():
        if name not in names:
            raise ParameterError(
                f"A weight is given for '{name}'", expected=nearest(name, names) or "A quasi-identifier"
            )
        if not weight >= 0:
            raise ParameterError(f"The weight of '{name}' is {weight}", expected="Weights are 0 or more")
    raw = np.array([float(weights.get(name, 1.0)) for name in names])
    if raw.sum() <= 0:
        raise ParameterError("All weights are 0", expected="At least one column with a weight above 0")
    shares: NDArray[np.float64] = raw / raw.sum()
    return shares


def _scale_tables(tables: list[Costs], shares: NDArray[np.float64], rows: int) -> list[Costs]:
    return [table * (share / max(rows, 1)) for table, share in zip(tables, shares, strict=True)]


def _stack_levels(levels: Sequence[NDArray[np.float64]], size: int) -> Costs:
    return np.vstack([*levels, np.ones(size)])


class Mean(StrEnum):
    """How the losses of columns become one number."""

    ARITHMETIC = "arithmetic"
    GEOMETRIC = "geometric"
    """exp(mean(log(1 + loss))) - 1, which punishes one very coarse column less; what ARX does when nothing is said."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The mean share of the domain that a released cell leaves open (ARX's Loss).

    A cell whose group covers c of a column's s leaves costs (c/s - 1/s) / (1 - 1/s): 0 for the value itself, 1 for
    everything and for a suppressed row.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    mean: Mean = Mean.ARITHMETIC

    def costs(self, hierarchies: Sequence[Hierarchy], tuples: Tuples) -> list[Costs]:
        """Shares of leaves left open."""
        tables = [
            _stack_levels([(h.leaf_counts(n) - 1) / max(h.size - 1, 1) for n in range(h.height)], h.size)
            for h in hierarchies
        ]
        return _scale_tables(tables, normalize_weights(hierarchies, self.weights), tuples.rows)

    def __str__(self) -> str:
        return "loss" if self.mean is Mean.ARITHMETIC else "geometric-loss"


@dataclass(frozen=True, slots=True)
class Precision:
    """One minus Sweeney's precision: the mean height of a released cell in its hierarchy, as a share of the top."""

    weights: Mapping[str, float] = field(default_factory=dict)

    def costs(self, hierarchies: Sequence[Hierarchy], tuples: Tuples) -> list[Costs]:
        """Levels as shares of the highest."""
        tables = [
            _stack_levels([np.full(h.size, n / max(h.height - 1, 1)) for n in range(h.height)], h.size)
            for h in hierarchies
        ]
        return _scale_tables(tables, normalize_weights(hierarchies, self.weights), tuples.rows)

    def __str__(self) -> str:
        return "precision"


@dataclass(frozen=True, slots=True)
class NormalizedCertaintyPenalty:
    """NCP (Xu et al. 2006): the width of an interval over the range of its column; for categories, leaves over leaves.

    A group of one category costs nothing; one of c categories costs c over the number of all.
    """

    weights: Mapping[str, float] = field(default_factory=dict)

    def costs(self, hierarchies: Sequence[Hierarchy], tuples: Tuples) -> list[Costs]:
        """Widths and shares."""
        tables = [_stack_levels([_measure_penalty(h, n) for n in range(h.height)], h.size) for h in hierarchies]
        return _scale_tables(tables, normalize_weights(hierarchies, self.weights), tuples.rows)

    def __str__(self) -> str:
        return "ncp"


def _measure_penalty(h: Hierarchy, number: int) -> NDArray[np.float64]:
    level, own = h.levels[number], h.levels[0].ends
    if level.size == 1:
        return np.ones(h.size)
    if level.ends is None or own is None:
        covered = h.leaf_counts(number)
        return np.where(covered > 1, covered / h.size, 0.0)
    finite = own[np.isfinite(own.astype(np.float64))]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    with np.errstate(invalid="ignore"):  # a missing value has no ends
        spans = np.clip(level.ends, low, high)
    widths = np.nan_to_num((spans[:, 1] - spans[:, 0]).astype(np.float64) / (float(high - low) or 1.0))
    widths = np.where(np.bincount(level.groups, minlength=level.size) > 1, widths, 0.0)
    if number:  # no cost may fall from level to level, and all leaves of a group cost the same
        np.maximum.at(widths, level.groups, _measure_penalty(h, number - 1))
    return widths[level.groups]


@dataclass(frozen=True, slots=True)
class NonUniformEntropy:
    """The share of the information in the cells that generalization removes (Gionis, Tassa 2009).

    A cell whose value has n rows, in a group of m rows, loses log2(m / n) bits: what it takes to say which of the
    group's values it was. Suppression loses all bits of the value. The sum is divided by that of suppressing all.
    """

    weights: Mapping[str, float] = field(default_factory=dict)

    def costs(self, hierarchies: Sequence[Hierarchy], tuples: Tuples) -> list[Costs]:
        """Bits lost, over all bits there are."""
        shares = normalize_weights(hierarchies, self.weights)
        bits, whole = [], 0.0
        for q, h in enumerate(hierarchies):
            counts = np.bincount(tuples.codes[:, q], weights=tuples.counts, minlength=h.size).astype(np.float64)
            bits.append(_measure_bits(h, counts) * shares[q])
            whole += float((bits[-1][-1] * counts).sum())
        return [table / (whole or 1.0) for table in bits]

    def __str__(self) -> str:
        return "entropy"


def _measure_bits(h: Hierarchy, counts: NDArray[np.float64]) -> Costs:
    safe = np.maximum(counts, 1.0)
    rows = [np.bincount(level.groups, weights=counts, minlength=level.size)[level.groups] for level in h.levels]
    rows.append(np.full(h.size, counts.sum()))
    return np.vstack([np.where(counts > 0, np.log2(np.maximum(row, 1.0) / safe), 0.0) for row in rows])


Volumes = NDArray[np.float64]
"""For every class, the logarithm (base 2) of how many combinations of leaves its generalized tuple covers."""


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """The classes of a node: sizes, volumes, which are released, and the table's own numbers.

    Volumes are there for the divergence alone. `whole` is the volume of the domain; `detail` is minus the entropy of
    the original tuples, in bits.
    """

    sizes: Counts
    volumes: Volumes
    released: Verdicts
    rows: int
    whole: float
    detail: float


class PartitionMeasure(Protocol):
    """A measure of the classes."""

    def value(self, partition: Partition) -> float:
        """The cost of the classes, with suppression as it is."""

    def floor(self, partition: Partition, least: int, /) -> float:
        """What the node and every node above it costs at least, where a released class has `least` rows or more."""

    def excess(self, partition: Partition, /) -> float:
        """What suppression adds, if that can only grow at nodes below; else 0."""

    def bound(self, groups: NDArray[np.float64], rows: int, /) -> NDArray[np.float64]:
        """A lower bound of the cost for nodes with at most so many classes."""


@dataclass(frozen=True, slots=True)
class Discernibility:
    """The number of pairs of rows that cannot be told apart (Bayardo, Agrawal 2005).

    A row in a class of n rows costs n, a suppressed row costs as many as there are rows in the table.
    """

    def value(self, partition: Partition) -> float:
        """Sum of squared class sizes, plus rows suppressed times rows."""
        kept = partition.sizes[partition.released].astype(np.float64)
        return float((kept**2).sum() + (partition.rows - kept.sum()) * partition.rows)

    def floor(self, partition: Partition, least: int) -> float:
        """A row stays with its class, in which there are the least rows that any has, or it is suppressed."""
        sizes = partition.sizes.astype(np.float64)
        return float((sizes * np.maximum(sizes, min(least, partition.rows))).sum())

    def excess(self, partition: Partition) -> float:
        """A suppressed row costs all rows instead of those in its class, which is only smaller further down."""
        gone = partition.sizes[~partition.released].astype(np.float64)
        return float((gone * (partition.rows - gone)).sum())

    def bound(self, groups: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
        """Squares add up to least when classes are of one size."""
        return rows * (rows / groups)

    def __str__(self) -> str:
        return "discernibility"


@dataclass(frozen=True, slots=True)
class AverageClassSize:
    """Rows per class, all suppressed rows together being one class."""

    def value(self, partition: Partition) -> float:
        """Rows over classes."""
        kept = int(partition.released.sum())
        return partition.rows / max(kept + (kept < len(partition.sizes)), 1)

    def floor(self, partition: Partition, least: int) -> float:
        """A class holds one that is large enough here, or only small ones, which make one of the least size together.

        One more is that of all suppressed rows.
        """
        small = partition.sizes < least
        joined = min(int(small.sum()), int(partition.sizes[small].sum()) // least)
        most = min(len(small), len(small) - int(small.sum()) + joined + 1)
        return partition.rows / max(most, 1)

    def excess(self, _partition: Partition, /) -> float:
        """The number of classes lost below is not known from here."""
        return 0.0

    def bound(self, groups: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
        """No node has more classes than combinations of its groups."""
        return rows / groups

    def __str__(self) -> str:
        return "average-class-size"


@dataclass(frozen=True, slots=True)
class Divergence:
    """Kullback-Leibler divergence, in bits, from the table to what a reader would rebuild from the release.

    The reader spreads the rows of each class evenly over the combinations of leaves that its generalized tuple covers,
    and suppressed rows over the whole domain (Kifer, Gehrke 2006). By the log-sum inequality it never falls when
    classes merge, nor when some are suppressed.
    """

    def value(self, partition: Partition) -> float:
        """detail - sum of p log2(p / v), p the share of a class and v its volume."""
        kept, rows = partition.released, max(partition.rows, 1)
        shares = partition.sizes[kept] / rows
        gone = 1.0 - shares.sum()
        rebuilt = float((shares * (np.log2(shares) - partition.volumes[kept])).sum())
        if gone > 0.5 / rows:
            rebuilt += gone * (np.log2(gone) - partition.whole)
        return partition.detail - rebuilt

    def floor(self, partition: Partition, _least: int, /) -> float:
        """What it costs without suppression."""
        return self.value(replace(partition, released=np.ones(len(partition.sizes), np.bool_)))

    def excess(self, _partition: Partition, /) -> float:
        """Not monotone by itself."""
        return 0.0

    def bound(self, groups: NDArray[np.float64], _rows: int, /) -> NDArray[np.float64]:
        """Nothing beyond zero."""
        return np.zeros(len(groups))

    def __str__(self) -> str:
        return "divergence"


Measure = CellMeasure | PartitionMeasure

MEASURES = (
    Loss(),
    Loss(mean=Mean.GEOMETRIC),
    Precision(),
    NormalizedCertaintyPenalty(),
    NonUniformEntropy(),
    Discernibility(),
    AverageClassSize(),
    Divergence(),
)
"""Every measure, by the name that `str` gives it."""


def find_measure(name: str, weights: dict[str, float] | None = None) -> Measure:
    """The measure of that name, with weights for columns where it adds up over cells."""
    for known in MEASURES:
        if str(known) == name:
            if not weights:
                return known
            if hasattr(known, "weights"):
                return replace(known, weights=weights)  # type: ignore[arg-type]
            raise ParameterError(f"The measure '{name}' knows no columns", remedy="Leave out the weights")
    names = [str(known) for known in MEASURES]
    raise ParameterError(
        f"There is no quality measure '{name}'", expected=f"One of {', '.join(names)}", remedy=nearest(name, names)
    )


FOLDS = 5


@dataclass(frozen=True, slots=True)
class TargetUtility:
    """Accuracy of predicting the target from the original, from the release, and without looking."""

    original: float
    released: float
    commonest: float

    @property
    def kept(self) -> float:
        """The share of what the original adds to guessing that the release still adds; 1 when nothing was to gain."""
        gain = self.original - self.commonest
        return (self.released - self.commonest) / gain if gain > 1e-12 else 1.0


def measure_utility(original: pa.Table, released: pa.Table, target: str, columns: tuple[str, ...]) -> TargetUtility:
    """Compare a release with its original, for predicting a target from these columns."""
    columns = tuple(name for name in columns if name != target)
    if not columns:
        raise ParameterError("Nothing is left to predict the target from", expected="A column besides the target")
    there = tuple(name for name in columns if name in released.column_names)
    truth = _encode_cells(original, target)[0]
    commonest = float(np.bincount(truth).max(initial=0) / max(len(truth), 1))
    return TargetUtility(
        estimate_accuracy(original, target, columns), estimate_accuracy(released, target, there), commonest
    )


def estimate_accuracy(table: pa.Table, target: str, columns: tuple[str, ...]) -> float:
    """The share of rows whose target a naive Bayes classifier predicts, over five folds."""
    if table.num_rows < FOLDS:
        raise DataError(
            "The table has too few rows to tell how well its target is predicted",
            expected=f"At least {FOLDS} rows to learn and to test",
            remedy="Leave --target out",
        )
    truth, answers = _encode_cells(table, target)
    features = [_encode_cells(table, name) for name in columns]
    fold = np.random.default_rng(0).permutation(table.num_rows) % FOLDS  # which rows test which: no privacy in it
    right = 0
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        right += int((_predict_target(features, truth, answers, train, test) == truth[test]).sum())
    return right / int(table.num_rows)


def _predict_target(
    features: list[tuple[Codes, int]], truth: Codes, answers: int, train: NDArray[np.bool_], test: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The most probable answer, with one added to each count."""
    prior = np.bincount(truth[train], minlength=answers) + 1.0
    score = np.log(prior)[None, :] + np.zeros((int(test.sum()), 1))
    for codes, size in features:
        joint = np.bincount(truth[train] * size + codes[train], minlength=answers * size).reshape(answers, size) + 1.0
        score += np.log(joint / joint.sum(axis=1, keepdims=True)).T[codes[test]]
    best: NDArray[np.int64] = np.argmax(score, axis=1)
    return best


def _encode_cells(table: pa.Table, name: str) -> tuple[Codes, int]:
    values, positions = factorize(column_of(table, name))
    return np.where(positions < 0, len(values), positions).astype(np.int64), len(values) + 1
