"""Dependence scores: how far each pair of columns is from independent, measured with noise, all pairs at once.

The score of a pair is the L1 distance between its counts and the product of its (noisy, public) one-way estimates. One
record more moves one count by one, so a unit of at most r records moves a score by at most r, and the vector of all
scores by at most r sqrt(pairs) in L2. Scores are taken in thousandths and rounded down, which can add one thousandth.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from deniable.dp.accounting import GaussianEvent
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.synth.domain import Clique, Domain
from deniable.synth.marginal import Codes, Floats, count
from deniable.synth.spending import Spending

FINENESS = 1000


def scores(
    codes: Codes,
    domain: Domain,
    pairs: list[Clique],
    estimates: list[Floats],
    total: float,
    spend: Spending,
    share: float,
    entropy: Entropy = SYSTEM,
) -> tuple[Floats, float, GaussianEvent]:
    """Noisy scores of pairs, the deviation of their noise, and what was run."""
    exact = np.array([_score(codes, domain, pair, estimates, total) for pair in pairs], dtype=np.int64)
    each = spend.rows * FINENESS + 1
    squared = each * each * len(pairs)
    variance = spend.variance(share, squared)
    mechanism = GaussianMechanism(variance, Fraction(squared))
    noisy = mechanism.release(exact, entropy).astype(np.float64) / FINENESS
    return noisy, float(variance) ** 0.5 / FINENESS, mechanism.event


def _score(codes: Codes, domain: Domain, pair: Clique, estimates: list[Floats], total: float) -> int:
    expected = np.outer(estimates[pair[0]], estimates[pair[1]]) / max(total, 1.0)
    return int(np.floor(np.abs(count(codes, domain, pair) - expected).sum() * FINENESS))
