"""Marginals: counts of a clique's combinations, exact ones that never leave, and noisy ones that may."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import GaussianEvent
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.synth.domain import Clique, Domain

Codes = NDArray[np.int32]
"""A coded table: one row a column, one column a record."""
Floats = NDArray[np.float64]
Maps = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Marginal:
    """Noisy counts of a clique: public. `variance` is that of the noise on each cell."""

    clique: Clique
    counts: Floats
    variance: float
    event: GaussianEvent
    maps: Maps = ()
    """Where it was measured by groups: for each axis, the group of every code."""


def keys(codes: Codes, domain: Domain, clique: Clique) -> NDArray[np.int64]:
    """Each record's combination of a clique's values as one number."""
    found: NDArray[np.int64] = codes[clique[0]].astype(np.int64)
    for place in clique[1:]:
        found = found * domain.sizes[place] + codes[place]
    return found


def count(codes: Codes, domain: Domain, clique: Clique) -> NDArray[np.int64]:
    """Exact counts, in the shape of the clique. They are private: only `measure` may let them out."""
    counts: NDArray[np.int64] = np.zeros(domain.shape(clique), dtype=np.int64)
    counts.ravel()[:] = np.bincount(keys(codes, domain, clique), minlength=domain.cells(clique))
    return counts


def measure(
    exact: NDArray[np.int64],
    clique: Clique,
    variance: Fraction,
    rows: int,
    entropy: Entropy = SYSTEM,
    maps: Maps = (),
) -> Marginal:
    """Noisy counts: a unit of at most `rows` records moves them by at most `rows` in L2 norm (all in one cell)."""
    mechanism = GaussianMechanism(variance, Fraction(rows * rows))
    noisy = mechanism.release(exact.ravel(), entropy).astype(np.float64).reshape(exact.shape)
    return Marginal(clique, noisy, float(variance), mechanism.event, maps)


def along(counts: Floats, keep: tuple[int, ...]) -> Floats:
    """Counts summed over all axes but those kept."""
    drop = tuple(axis for axis in range(counts.ndim) if axis not in keep)
    summed: Floats = counts.sum(axis=drop) if drop else counts
    return summed
