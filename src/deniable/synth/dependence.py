"""Dependence scores: how far each clique's counts are from what is expected, measured with noise, all at once.

The score of a clique is the L1 distance between its counts and an expectation made of public numbers: the product of
noisy columns, or what noisy pairs tell of three columns. One record more moves one count by one, so a unit of at most r
records moves a score by at most r, and the vector of all scores by at most r sqrt(cliques) in L2. Scores are taken in
thousandths and rounded down, which can add one thousandth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import Event, NoOpEvent
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.synth.marginal import Floats
from deniable.synth.spending import Spending

FINENESS = 1000


def scores(
    distances: Sequence[float], spend: Spending, share: float, entropy: Entropy = SYSTEM
) -> tuple[Floats, float, Event]:
    """Noisy scores from exact distances, the deviation of their noise, and what was run; nothing, of no distances."""
    if not distances:
        return np.zeros(0), 0.0, NoOpEvent()
    exact = np.array([math.floor(distance * FINENESS) for distance in distances], dtype=np.int64)
    each = spend.rows * FINENESS + 1
    squared = each * each * len(distances)
    variance = spend.variance(share, squared)
    mechanism = GaussianMechanism(variance, Fraction(squared))
    noisy = mechanism.release(exact, entropy).astype(np.float64) / FINENESS
    return noisy, float(variance) ** 0.5 / FINENESS, mechanism.event


def distance(counts: NDArray[np.int64], expected: Floats) -> float:
    """The L1 distance between exact counts and what is expected. It is private: only `scores` may let it out."""
    return float(np.abs(counts - expected).sum())
