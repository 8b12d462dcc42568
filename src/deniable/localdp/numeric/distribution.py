"""From noisy cells to the distribution behind them: expectation maximization with light smoothing, and intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError
from deniable.localdp.numeric.mechanisms import Window
from deniable.localdp.numeric.scale import CERTAIN, Scale
from deniable.localdp.protocol import Responses, student_quantile

Floats = NDArray[np.float64]

FINE = 256
ROUNDS = 500
CARE = np.logspace(0, 5, 16)
"""How much more a bias counts than noise: what promises the shortest interval is taken."""
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
    protocol: Window, responses: Responses, bins: int, confidence: float
) -> tuple[Floats, Floats, Floats]:
    """The distribution, and the ends of an interval of each share, which covers whatever the distribution is.

    Smoothing and likelihood have a bias that depends on what is not known, so the intervals do not rest on them. For
    each bin a weight is given to every response; its mean over the responses estimates the share, and how far it can
    be off is known for a respondent anywhere on the scale. The weights make bias and noise small together, chosen
    before any response is seen. An interval holds all shares that explain the mean found, and the estimate.
    """
    shares, seen = estimate_distribution(protocol, responses, bins), np.asarray(responses[0])
    weights, worst = _choose_weights(protocol, bins, len(seen), confidence)
    readings = weights[seen * len(weights) // protocol.cells]
    part = min(1.0, CERTAIN / len(seen))
    variances = (1 - part) * readings.var(axis=0) + part * worst.variances
    reach = student_quantile(confidence, len(seen) - 1) * np.sqrt(variances / len(seen))
    low, high = worst.find_ends(readings.mean(axis=0), reach)
    return shares, np.minimum(low, shares), np.maximum(high, shares)


@dataclass(frozen=True, slots=True)
class WorstCase:
    """What the mean weight of somebody inside a bin, and outside, can be; and the most that its weights can vary."""

    inside: tuple[Floats, Floats]
    outside: tuple[Floats, Floats]
    variances: Floats

    def find_ends(self, means: Floats, reach: Floats) -> tuple[Floats, Floats]:
        """The least and the greatest share that explain a mean weight.

        With a share s inside, the mean weight is at most s times the greatest inside and 1 - s times that outside.
        """
        ends = []
        for place, found in ((1, means - reach), (0, means + reach)):
            gain = self.inside[place] - self.outside[place]
            share = (found - self.outside[place]) / np.where(gain > 0, gain, 1)
            ends.append(np.where(gain > 0, np.clip(share, 0, 1), 1 - place))
        return ends[0], ends[1]


@lru_cache(maxsize=16)
def _choose_weights(protocol: Window, bins: int, people: int, confidence: float) -> tuple[Floats, WorstCase]:
    """For each bin the weights, on equal parts of all responses, that promise the shortest interval."""
    chances, holds = _list_chances(protocol, bins)
    scale = 1 / np.sqrt(chances.mean(axis=0))
    squares, turned = np.linalg.eigh((chances * scale).T @ (chances * scale) / len(chances))
    wanted = turned.T @ ((chances * scale).T @ holds) / len(chances)
    reach = student_quantile(confidence, people - 1) / math.sqrt(people)
    best = np.full(bins, np.inf)
    chosen = np.zeros((chances.shape[1], bins))
    for care in CARE:
        weights = scale[:, None] * (turned @ (wanted / (squares[:, None] + reach**2 / care)))
        worst = _find_worst(chances, holds, weights)
        low, high = worst.find_ends(np.full(bins, 1 / bins), reach * np.sqrt(worst.variances))
        better = high - low < best
        best, chosen[:, better] = np.minimum(best, high - low), weights[:, better]
    return chosen, _find_worst(chances, holds, chosen)


def _find_worst(chances: Floats, holds: NDArray[np.bool_], weights: Floats) -> WorstCase:
    means = chances @ weights
    inside = (np.where(holds, means, np.inf).min(axis=0), np.where(holds, means, -np.inf).max(axis=0))
    outside = (np.where(holds, np.inf, means).min(axis=0), np.where(holds, -np.inf, means).max(axis=0))
    middle = weights.mean(axis=0)
    return WorstCase(inside, outside, (chances @ (weights - middle) ** 2).max(axis=0))


def _list_chances(protocol: Window, bins: int) -> tuple[Floats, NDArray[np.bool_]]:
    """For each position that somebody can have, the chance of each part of all responses, and the bin it is in.

    On a scale of more steps than the window has places, chances are linear between places: those and the edges of bins
    stand for all, and an edge is in both of its bins.
    """
    steps, edges = protocol.scale.steps, np.arange(bins + 1) / bins
    if steps <= protocol.places:
        where = np.arange(steps + 1) / steps
        holds = np.minimum(np.arange(steps + 1) * bins // steps, bins - 1)[:, None] == np.arange(bins)
    else:
        where = np.union1d(np.arange(protocol.places + 1) / protocol.places, edges)
        holds = (edges[:-1] <= where[:, None]) & (where[:, None] <= edges[1:])
    parts = np.arange(protocol.cells) * min(FINE, protocol.cells) // protocol.cells
    grouped: Floats = np.stack([np.bincount(parts, weights=row) for row in protocol.chances(where)])
    return grouped, holds


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
