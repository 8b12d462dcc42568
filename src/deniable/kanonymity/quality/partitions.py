"""Quality measures of the classes themselves: discernibility, average class size, Kullback-Leibler divergence.

Each is monotone: without suppression it never falls when classes merge, and suppression never lowers it. So what a node
costs without suppression bounds all nodes above it from below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.kanonymity.models.base import Verdicts
from deniable.kanonymity.tuples import Counts

Volumes = NDArray[np.float64]
"""For every class, the logarithm (base 2) of how many combinations of leaves its generalized tuple covers."""


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """The classes of a node: sizes, volumes, which are released, and the table's own numbers.

    `whole` is the volume of the domain; `detail` is minus the entropy of the original tuples, in bits.
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

    def excess(self, _partition: Partition, /) -> float:
        """Not monotone by itself."""
        return 0.0

    def bound(self, groups: NDArray[np.float64], _rows: int, /) -> NDArray[np.float64]:
        """Nothing beyond zero."""
        return np.zeros(len(groups))

    def __str__(self) -> str:
        return "divergence"
