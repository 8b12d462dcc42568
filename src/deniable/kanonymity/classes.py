"""Equivalence classes: rows that look alike after generalization, as every privacy model sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError, nearest
from deniable.kanonymity.hierarchy import Codes, Hierarchy
from deniable.kanonymity.tuples import Counts, Histograms

Shares = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Reference:
    """A sensitive column in the whole table: its distribution, and the groups of its values level by level.

    `groups[0]` is every value by itself; further levels come from the column's hierarchy, for distances along it.
    """

    distribution: Shares
    groups: tuple[Codes, ...]
    hierarchical: bool = False

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.distribution)


def reference(counts: Counts, hierarchy: Hierarchy | None = None) -> Reference:
    """The reference of a column from its histogram over all rows, suppressed ones included."""
    total = max(int(counts.sum()), 1)
    own = (np.arange(len(counts), dtype=np.int32),)
    if hierarchy is None:
        return Reference(counts / total, own)
    return Reference(counts / total, tuple(level.groups for level in hierarchy.levels), hierarchical=True)


@dataclass(frozen=True, eq=False, repr=False)
class Classes:
    """Classes by number: their sizes, their histograms of sensitive columns, their people in the population."""

    sizes: Counts
    sensitive: Mapping[str, Histograms] = field(default_factory=dict)
    references: Mapping[str, Reference] = field(default_factory=dict)
    population: Counts | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def histograms(self, column: str) -> Histograms:
        """The histograms of a sensitive column, or a refusal that names those there are."""
        if column not in self.sensitive:
            raise ParameterError(
                f"Column '{column}' was not declared sensitive",
                expected=f"Sensitive columns: {', '.join(self.sensitive) or 'none'}",
                remedy=nearest(column, self.sensitive) or "Name the column among the sensitive ones",
            )
        return self.sensitive[column]

    def owners(self, column: str) -> NDArray[np.int64]:
        """The class that each entry of a column's histograms belongs to."""
        starts = self.histograms(column).starts
        return np.repeat(np.arange(len(starts) - 1), np.diff(starts))

    def people(self) -> Counts:
        """How many people of the population are in each class."""
        if self.population is None:
            raise ParameterError(
                "This privacy model needs the population the rows were drawn from",
                remedy="Give the population table with the same quasi-identifiers",
            )
        return self.population


def gather(histograms: Sequence[Histograms], names: Sequence[str]) -> Mapping[str, Histograms]:
    """Histograms by the names of their columns."""
    return dict(zip(names, histograms, strict=True))
