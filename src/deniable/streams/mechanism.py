"""The mechanism of a stream: whole numbers in, one noisy row for each period out, and totals with their errors from it.

**Guarantee.** Each period gives a vector of whole numbers (cells), of which one unit moves at most
`sensitivity_squared` in squared L2 norm, in at most so many periods. What is measured of all cells and periods then
moves by at most sensitivity_squared * participation, and each entry gets discrete Gaussian noise of its own: one
Gaussian release of the whole horizon, priced once. It holds although rows of later periods may react to what was
published of earlier ones: the noise of each row is its own, and the squares of what one unit moves add up to the same
bound whatever was seen (Denisov et al. 2022, for continuous noise).
For pure epsilon the norms are L1 norms, and the noise is discrete Laplace: the same holds, since the ratios of what is
likely multiply, row by row, and the sizes of what one unit moves add up.
**Utility.** A total w errs by the variance of the noise times |w' B^-1|^2, exactly.
**Never.** No row of it is drawn twice: whoever runs it stores the noise of a period before the period is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, Event
from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.dp.mechanisms.mechanism import calibrate_part
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import InternalError, ParameterError
from deniable.policy.budget import Budget, PureDP
from deniable.streams.factorization import Factorization, bound_columns, bound_participation, invert_lower
from deniable.streams.workload import Matrix

Noise = GaussianMechanism | LaplaceMechanism
MOST_CELLS = 4_000
"""Cells of several levels that are made to add up together."""


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement of a period: what one unit moves in all its cells, and its share of the budget.

    In L2 norm, squared, for Gaussian noise; in L1 norm for Laplace noise.
    """

    sensitivity_squared: int
    share: Fraction
    sensitivity: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StreamMechanism:
    """The noise of a stream: what is measured of all periods, and for each part of a period its noise.

    `participation` is what a unit moves who adds 1 in each of its periods: squared in L2 norm, or in L1 norm.
    """

    factorization: Factorization
    participation: int
    noises: tuple[Noise, ...]

    @classmethod
    def within(
        cls, budget: Budget, factorization: Factorization, periods: int, parts: Sequence[Part]
    ) -> StreamMechanism:
        """The least noise that keeps a budget for units in at most so many periods; shares add up to at most 1."""
        if sum(part.share for part in parts) > 1:
            raise InternalError("the parts of a stream have more than its budget", remedy="Nothing was run")
        if isinstance(budget, PureDP):
            moved = bound_columns(factorization, periods)
            return cls(factorization, moved, tuple(_calibrate_laplace(budget, part, moved) for part in parts))
        moved = bound_participation(factorization, periods)
        noises = tuple(calibrate_part(budget, part.sensitivity_squared * moved, part.share) for part in parts)
        return cls(factorization, moved, noises)

    @property
    def is_pure(self) -> bool:
        """Whether the noise is Laplace noise, which needs no delta."""
        return any(isinstance(noise, LaplaceMechanism) for noise in self.noises)

    @property
    def variances(self) -> list[float]:
        """Of the noise in each part."""
        return [find_variance(noise) for noise in self.noises]

    @property
    def event(self) -> Event:
        """The whole horizon, all parts of it, as one event."""
        return ComposedEvent(tuple(noise.event for noise in self.noises))

    def draw_noise(self, cells: Sequence[int], entropy: Entropy = SYSTEM) -> list[list[int]]:
        """The noise of one period: for each part, of so many cells; to be stored before the period is read."""
        return [
            [int(each) for each in noise.release([0] * many, entropy)]
            for noise, many in zip(self.noises, cells, strict=True)
        ]

    def measure(self, exact: Sequence[Sequence[Sequence[int]]], noise: Sequence[Sequence[int]]) -> list[list[int]]:
        """The row of the last of the periods given, with its noise: whole numbers of any size."""
        weights = [int(each) for each in self.factorization.rows[len(exact) - 1, : len(exact)]]
        return [
            [
                sum(w * period[part][cell] for w, period in zip(weights, exact, strict=True)) + drawn
                for cell, drawn in enumerate(row)
            ]
            for part, row in enumerate(noise)
        ]


def _calibrate_laplace(budget: PureDP, part: Part, moved: int) -> LaplaceMechanism:
    if part.sensitivity is None or budget.epsilon <= 0:
        raise InternalError("a part of a stream has no price in epsilon alone", remedy="Nothing was run")
    reach = part.sensitivity * moved
    return LaplaceMechanism(Fraction(reach) / (budget.epsilon * part.share), Fraction(reach))


def find_variance(noise: Noise) -> float:
    """The variance of noise; of discrete Laplace noise 2 q / (1 - q)^2, with q = exp(-1 / scale)."""
    if isinstance(noise, GaussianMechanism):
        return float(noise.variance)
    rate = 1 / float(noise.scale)
    return 2 * math.exp(-rate) / math.expm1(-rate) ** 2


@dataclass(frozen=True, slots=True, eq=False)
class Estimator:
    """Totals over the first so many periods, from their noisy rows."""

    inverse: Matrix

    @classmethod
    def of(cls, factorization: Factorization, periods: int) -> Estimator:
        """For the first so many periods: later ones change none of them."""
        return cls(invert_lower(factorization.rows[:periods, :periods].astype(np.float64)))

    def weigh(self, first: int, last: int) -> Matrix:
        """What each noisy row counts for in the total from one period to another, both included."""
        weights: Matrix = self.inverse[first : last + 1].sum(axis=0)
        return weights

    def spread(self, first: int, last: int) -> float:
        """The variance of that total for noise of variance 1."""
        return float(np.square(self.weigh(first, last)).sum())

    def estimate(self, noisy: NDArray[Any], first: int, last: int) -> Matrix:
        """The total of each cell; `noisy` has a row for each period."""
        found: Matrix = self.weigh(first, last)[: len(noisy)] @ noisy.astype(np.float64)
        return found


def make_levels_agree(parents: Sequence[NDArray[np.int64]], variances: Sequence[float]) -> tuple[Matrix, Matrix]:
    """How cells of several levels follow from their noisy numbers so that they add up, and the variance of each.

    `parents` says for each level which of its cells each of the finest cells belongs to. The answer is the least
    squares estimate from all levels (of all linear ones that add up, that of least variance): a matrix from all noisy
    cells to all cells, level by level, and the variances of the results.
    """
    sums = np.concatenate([_sum_cells(each) for each in parents])
    if len(sums) > MOST_CELLS:
        raise ParameterError(
            f"the levels of a question have {len(sums):,} cells, and {MOST_CELLS:,} is the most",
            remedy="Group by fewer columns, or drop levels: true",
        )
    noise = np.concatenate(
        [np.full(int(each.max()) + 1, variance) for each, variance in zip(parents, variances, strict=True)]
    )
    weighted = sums.T / noise
    solve = sums @ np.linalg.solve(weighted @ sums, weighted)
    return solve, np.square(solve) @ noise


def _sum_cells(parent: NDArray[np.int64]) -> Matrix:
    sums = np.zeros((int(parent.max()) + 1, len(parent)))
    sums[parent, np.arange(len(parent))] = 1.0
    return sums
