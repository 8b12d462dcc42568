"""From noisy cells to the distribution behind them: expectation maximization with light smoothing."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import DataError, ParameterError
from deniable.localdp.numeric.scale import Scale
from deniable.localdp.protocol import Responses, normal_quantile

Floats = NDArray[np.float64]

FINE = 256
ROUNDS = 500
REPLICATES = 50
KERNEL = np.array([0.25, 0.5, 0.25])


class WithMatrix(Protocol):
    """A numeric protocol that can say how each part of the scale spreads over responses."""

    @property
    def scale(self) -> Scale:
        """The public scale."""

    def matrix(self, bins: int) -> Floats:
        """Responses by bins; columns add up to 1."""


def estimate_distribution(protocol: WithMatrix, responses: Responses, bins: int = 64) -> Floats:
    """Shares of respondents in `bins` equal parts of the scale (Li et al. 2020: EM with smoothing).

    Maximum likelihood alone chases the noise; a binomial kernel after each round holds neighboring bins together. It
    works on a finer grid than is reported, lest the kernel flatten what is to be seen.
    """
    matrix, seen = _prepare_matrix(protocol, responses, bins)
    return _group_shares(
        _maximize_likelihood(matrix, seen, np.full(matrix.shape[1], 1 / matrix.shape[1]), ROUNDS), bins
    )


def estimate_with_intervals(
    protocol: WithMatrix, responses: Responses, bins: int, confidence: float, entropy: Entropy = SYSTEM
) -> tuple[Floats, Floats, Floats]:
    """The distribution, and the ends of bootstrap intervals of each share.

    Respondents are drawn anew with replacement, and each replicate climbs on from the estimate. Smoothing is a bias
    that resampling cannot see: the intervals cover the noise and the luck of the draw, not what smoothing hides.
    """
    matrix, seen = _prepare_matrix(protocol, responses, bins)
    found = _maximize_likelihood(matrix, seen, np.full(matrix.shape[1], 1 / matrix.shape[1]), ROUNDS)
    people = int(seen.sum())
    edges = np.cumsum(seen)
    replicates = []
    for _ in range(REPLICATES):
        drawn = np.searchsorted(edges, uniform_below(people, people, entropy=entropy), side="right")
        again = np.bincount(drawn, minlength=len(seen)).astype(np.float64)
        replicates.append(_group_shares(_maximize_likelihood(matrix, again, found, ROUNDS // 5), bins))
    shares = _group_shares(found, bins)
    # Resampling sees no luck in a bin that nobody was seen in: that of one more person in it, and one not, is added.
    smoothed = (shares * people + 1) / (people + 2)
    variances = np.var(replicates, axis=0) + smoothed * (1 - smoothed) / people
    reach = normal_quantile(confidence) * np.sqrt(variances)
    return shares, np.maximum(shares - reach, 0), np.minimum(shares + reach, 1)


def _prepare_matrix(protocol: WithMatrix, responses: Responses, bins: int) -> tuple[Floats, Floats]:
    """The matrix on the fine grid, and how often each response was seen; responses never seen are left out."""
    if bins < 2:
        raise ParameterError(f"{bins} bins", expected="At least 2 bins")
    matrix = protocol.matrix(bins * max(1, FINE // bins))
    seen = np.bincount(responses[0], minlength=len(matrix)).astype(np.float64)
    if not seen.any():
        raise DataError("there are no responses", remedy="Collect responses first")
    return matrix[seen > 0], seen[seen > 0]


def _maximize_likelihood(matrix: Floats, seen: Floats, shares: Floats, rounds: int) -> Floats:
    for _ in range(rounds):
        expected = np.maximum(matrix @ shares, 1e-300)
        updated = smooth_shares(shares * (matrix.T @ (seen / expected)) / seen.sum())
        moved, shares = float(np.abs(updated - shares).sum()), updated
        if moved < 1e-6:
            break
    return shares


def _group_shares(shares: Floats, bins: int) -> Floats:
    grouped: Floats = shares.reshape(bins, -1).sum(axis=1)
    return grouped


def smooth_shares(shares: Floats) -> Floats:
    """Shares averaged with their neighbors, summing to 1."""
    padded = np.concatenate((shares[:1], shares, shares[-1:]))
    averaged: Floats = np.convolve(padded, KERNEL, mode="valid")
    total = float(averaged.sum())
    return averaged / total


def mean_of_shares(shares: Floats, scale: Scale) -> float:
    """The mean of a distribution over equal parts of a scale."""
    middles = (np.arange(len(shares)) + 0.5) / len(shares) * scale.steps
    return float(scale.value_of(float(shares @ middles)))
