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


def fitted(table: Floats, *margins: Floats, rounds: int = 60) -> Floats:
    """The table nearest in relative entropy with a given margin on each axis (iterative proportional fitting)."""
    result = np.maximum(table, 1e-9)
    for _ in range(rounds):
        missed = 0.0
        for axis, margin in enumerate(margins):
            sums = result.sum(axis=tuple(other for other in range(result.ndim) if other != axis))
            missed = float(np.abs(sums - margin).sum())
            result = result * across(margin / np.maximum(sums, 1e-300), axis, result.ndim)
        if missed <= 1e-6 * max(float(margins[-1].sum()), 1.0):
            break
    return result


def across(values: Floats, axis: int, axes: int) -> Floats:
    """Values of one axis, shaped to meet a table of so many axes."""
    return values.reshape([-1 if other == axis else 1 for other in range(axes)])
