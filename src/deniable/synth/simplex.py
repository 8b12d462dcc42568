"""Denoising by what is certain: counts are not negative, and add up to the number of records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def project(values: Floats, total: float) -> Floats:
    """The nearest vector (in L2) that is nowhere negative and adds up to `total`.

    Sorted from the largest, the answer keeps the first k entries less a common amount (their sum - total) / k, where k
    is the last place at which that leaves something (Held, Wolfe and Crowder 1974).
    """
    flat = values.ravel()
    if total <= 0 or not flat.size:
        return np.zeros_like(values)
    falling = np.sort(flat)[::-1]
    excess = np.cumsum(falling) - total
    k = np.flatnonzero(falling * np.arange(1, flat.size + 1) > excess)[-1]
    kept: Floats = np.maximum(flat - excess[k] / (k + 1), 0.0).reshape(values.shape)
    return kept


def fitted(table: Floats, rows: Floats, columns: Floats, rounds: int = 60) -> Floats:
    """The table nearest in relative entropy with the given margins (iterative proportional fitting)."""
    result = np.maximum(table, 1e-9)
    for _ in range(rounds):
        result = result * (rows / np.maximum(result.sum(axis=1), 1e-300))[:, np.newaxis]
        sums = result.sum(axis=0)
        result = result * (columns / np.maximum(sums, 1e-300))
        if np.abs(sums - columns).sum() <= 1e-6 * max(columns.sum(), 1.0):
            break
    return result
