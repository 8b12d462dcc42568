"""Workloads: which totals over time are to be accurate, as one matrix that says how often two periods count together.

A total is a row of zeros and ones over the periods. All that a factorization needs of a workload W is its Gram matrix
Q = W'W: the entry of two periods is the number of totals that contain both. The square root of Q has a closed form for
totals since the start and for all ranges, since their inverses are second differences, whose eigenvectors are sines.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError

Matrix = NDArray[np.float64]
MOST_EIGENVECTORS = 1024
"""Periods up to which a square root without a closed form is computed."""


class Totals(StrEnum):
    """The families of totals over time."""

    PREFIXES = "prefixes"
    """From the first period to each."""
    RANGES = "ranges"
    """From each period to each later one."""
    WINDOWS = "windows"
    """The last so many periods, at each."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A family of totals over a number of periods; `window` is the length of sliding windows.

    >>> Workload(Totals.RANGES, 3).build_gram().astype(int).tolist()
    [[3, 2, 1], [2, 4, 2], [1, 2, 3]]
    """

    totals: Totals
    periods: int
    window: int = 1

    def __post_init__(self) -> None:
        if self.periods < 1 or not 1 <= self.window <= self.periods:
            raise ParameterError(
                f"a window of {self.window} in {self.periods} periods", expected="At least 1, and the window within it"
            )

    @property
    def count(self) -> int:
        """How many totals there are."""
        return self.periods * (self.periods + 1) // 2 if self.totals is Totals.RANGES else self.periods

    def build_gram(self) -> Matrix:
        """How many totals contain both of two periods."""
        places = np.arange(self.periods)
        first, last = np.minimum.outer(places, places), np.maximum.outer(places, places)
        match self.totals:
            case Totals.PREFIXES:
                counts = self.periods - last
            case Totals.RANGES:
                counts = (first + 1) * (self.periods - last)
            case Totals.WINDOWS:
                ends = np.minimum(self.periods - 1, first + self.window - 1)
                counts = np.maximum(0, ends - last + 1)
        return np.asarray(counts, dtype=np.float64)

    def take_root(self) -> Matrix | None:
        """The symmetric square root of the Gram matrix; None where it would take too long."""
        match self.totals:
            case Totals.PREFIXES:
                return _root_of_prefixes(self.periods)
            case Totals.RANGES:
                return _root_of_ranges(self.periods)
            case Totals.WINDOWS:
                return _root_by_eigenvectors(self.build_gram()) if self.periods <= MOST_EIGENVECTORS else None


def _root_of_ranges(n: int) -> Matrix:
    """Q = (n + 1) / K with second differences K: eigenvalues 4 sin(a/2)^2, eigenvectors sin(i a), a = k pi / (n + 1).

    A product of sines is a difference of cosines, so the root is a Toeplitz matrix less a Hankel matrix.
    """
    angles = np.arange(1, n + 1) * np.pi / (n + 1)
    places = np.arange(1, n + 1)
    return _combine_sines(angles, 1 / np.sqrt(n + 1), places)


def _root_of_prefixes(n: int) -> Matrix:
    """Read from the last period, Q is the smaller of two places; its inverse has eigenvalues 4 sin(a/2)^2 as well."""
    angles = (2 * np.arange(1, n + 1) - 1) * np.pi / (2 * n + 1)
    places = np.arange(n, 0, -1)
    return _combine_sines(angles, 2 / (2 * n + 1), places)


def _combine_sines(angles: Matrix, scale: float, places: NDArray[np.int64]) -> Matrix:
    """scale * sum over a of 2 sin(i a) sin(j a) / (2 sin(a / 2)), for all pairs of places i and j."""
    weights = scale / (2 * np.sin(angles / 2))
    waves = np.array([np.cos(d * angles) @ weights for d in range(2 * len(places) + 1)])
    root: Matrix = waves[np.abs(np.subtract.outer(places, places))] - waves[np.add.outer(places, places)]
    return root


def _root_by_eigenvectors(gram: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(gram)
    root: Matrix = (vectors * np.sqrt(np.maximum(values, values[-1] * 1e-12))) @ vectors.T
    return root
