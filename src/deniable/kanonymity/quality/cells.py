"""Quality measures that add up over cells: Loss, precision, NCP, non-uniform entropy.

Each gives a table: what a cell costs at every level, by its leaf, and what it costs when suppressed. Costs never fall
from one level to the next and are highest when suppressed, so the cost of a node without suppression is a sum of one
number for each (column, level), and a lower bound for the node with suppression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError, nearest
from deniable.kanonymity.hierarchy import Hierarchy
from deniable.kanonymity.tuples import Tuples

Costs = NDArray[np.float64]
"""A matrix for one column: a row for each level and a last one for suppressed, a column for each leaf."""


class CellMeasure(Protocol):
    """A measure that adds up over cells."""

    def costs(self, hierarchies: Sequence[Hierarchy], tuples: Tuples) -> list[Costs]:
        """The tables of all columns, scaled so that the cost of a release is the sum over its cells."""


def weighed(hierarchies: Sequence[Hierarchy], weights: Mapping[str, float]) -> NDArray[np.float64]:
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


def _scaled(tables: list[Costs], shares: NDArray[np.float64], rows: int) -> list[Costs]:
    return [table * (share / max(rows, 1)) for table, share in zip(tables, shares, strict=True)]


def _stacked(levels: Sequence[NDArray[np.float64]], size: int) -> Costs:
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
            _stacked([(h.leaf_counts(n) - 1) / max(h.size - 1, 1) for n in range(h.height)], h.size)
            for h in hierarchies
        ]
        return _scaled(tables, weighed(hierarchies, self.weights), tuples.rows)

    def __str__(self) -> str:
        return "loss" if self.mean is Mean.ARITHMETIC else "geometric-loss"


@dataclass(frozen=True, slots=True)
class Precision:
    """One minus Sweeney's precision: the mean height of a released cell in its hierarchy, as a share of the top."""

    weights: Mapping[str, float] = field(default_factory=dict)

    def costs(self, hierarchies: Sequence[Hierarchy], tuples: Tuples) -> list[Costs]:
        """Levels as shares of the highest."""
        tables = [
            _stacked([np.full(h.size, n / max(h.height - 1, 1)) for n in range(h.height)], h.size) for h in hierarchies
        ]
        return _scaled(tables, weighed(hierarchies, self.weights), tuples.rows)

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
        tables = [_stacked([_penalty(h, n) for n in range(h.height)], h.size) for h in hierarchies]
        return _scaled(tables, weighed(hierarchies, self.weights), tuples.rows)

    def __str__(self) -> str:
        return "ncp"


def _penalty(h: Hierarchy, number: int) -> NDArray[np.float64]:
    level, own = h.levels[number], h.levels[0].ends
    if level.size == 1:
        return np.ones(h.size)
    if level.ends is None or own is None:
        covered = h.leaf_counts(number)
        return np.where(covered > 1, covered / h.size, 0.0)
    finite = own[np.isfinite(own)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    spans = np.clip(level.ends, low, high)
    widths = np.nan_to_num((spans[:, 1] - spans[:, 0]) / ((high - low) or 1.0))
    widths = np.where(np.bincount(level.groups, minlength=level.size) > 1, widths, 0.0)
    if number:  # no cost may fall from level to level, and all leaves of a group cost the same
        np.maximum.at(widths, level.groups, _penalty(h, number - 1))
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
        shares = weighed(hierarchies, self.weights)
        bits, whole = [], 0.0
        for q, h in enumerate(hierarchies):
            counts = np.bincount(tuples.codes[:, q], weights=tuples.counts, minlength=h.size).astype(np.float64)
            bits.append(_bits(h, counts) * shares[q])
            whole += float((bits[-1][-1] * counts).sum())
        return [table / (whole or 1.0) for table in bits]

    def __str__(self) -> str:
        return "entropy"


def _bits(h: Hierarchy, counts: NDArray[np.float64]) -> Costs:
    safe = np.maximum(counts, 1.0)
    rows = [np.bincount(level.groups, weights=counts, minlength=level.size)[level.groups] for level in h.levels]
    rows.append(np.full(h.size, counts.sum()))
    return np.vstack([np.where(counts > 0, np.log2(np.maximum(row, 1.0) / safe), 0.0) for row in rows])
