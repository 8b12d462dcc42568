"""From noisy cells to the distribution behind them: expectation maximization with light smoothing."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError
from deniable.localdp.layout import Responses
from deniable.localdp.numeric.scale import Scale

FINE = 256
KERNEL = np.array([0.25, 0.5, 0.25])


class WithMatrix(Protocol):
    """A numeric protocol that can say how each part of the scale spreads over responses."""

    @property
    def scale(self) -> Scale:
        """The public scale."""

    def matrix(self, bins: int) -> NDArray[np.float64]:
        """Responses by bins; columns add up to 1."""


def distribution(protocol: WithMatrix, responses: Responses, bins: int = 64, rounds: int = 500) -> NDArray[np.float64]:
    """Shares of respondents in `bins` equal parts of the scale (Li et al. 2020: EM with smoothing).

    Maximum likelihood alone chases the noise; a binomial kernel after each round holds neighboring bins together. It
    works on a finer grid than is reported, lest the kernel flatten what is to be seen.
    """
    if bins < 2:
        raise ParameterError(f"{bins} bins", expected="At least 2 bins")
    finer = max(1, FINE // bins)
    matrix = protocol.matrix(bins * finer)
    seen = np.bincount(responses[0], minlength=len(matrix)).astype(np.float64)
    if not seen.any():
        raise DataError("there are no responses", remedy="Collect responses first")
    occupied = seen > 0
    matrix, seen = matrix[occupied], seen[occupied]
    shares = np.full(bins * finer, 1 / (bins * finer))
    for _ in range(rounds):
        expected = np.maximum(matrix @ shares, 1e-300)
        updated = smoothed(shares * (matrix.T @ (seen / expected)) / seen.sum())
        moved, shares = float(np.abs(updated - shares).sum()), updated
        if moved < 1e-6:
            break
    grouped: NDArray[np.float64] = shares.reshape(bins, finer).sum(axis=1)
    return grouped


def smoothed(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares averaged with their neighbors, summing to 1."""
    padded = np.concatenate((shares[:1], shares, shares[-1:]))
    averaged: NDArray[np.float64] = np.convolve(padded, KERNEL, mode="valid")
    total = float(averaged.sum())
    return averaged / total


def mean_of_shares(shares: NDArray[np.float64], scale: Scale) -> float:
    """The mean of a distribution over equal parts of a scale."""
    middles = (np.arange(len(shares)) + 0.5) / len(shares) * scale.steps
    return float(scale.value_of(float(shares @ middles)))
