"""Denoising by what is certain: counts are not negative, and add up to the number of records."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Axes = tuple[int, ...]


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
    return agreeing(table, {(axis,): margin for axis, margin in enumerate(margins)}, rounds)


def agreeing(table: Floats, margins: Mapping[Axes, Floats], rounds: int = 60) -> Floats:
    """The same with margins over any axes, each in the order of its axes."""
    result = np.maximum(table, 1e-9)
    wanted = max((float(margin.sum()) for margin in margins.values()), default=0.0)
    for _ in range(rounds):
        missed = 0.0
        for axes, margin in margins.items():
            sums = result.sum(axis=_others(axes, result.ndim))
            missed = max(missed, float(np.abs(sums - margin).sum()))
            result = result * over(margin / np.maximum(sums, 1e-300), axes, result.ndim)
        if missed <= 1e-6 * max(wanted, 1.0):
            break
    return result


def shifted(table: Floats, margins: Mapping[Axes, Floats], rounds: int = 1) -> Floats:
    """The nearest table in L2 with given margins, which may be negative: each margin's miss is shared out equally.

    One round is exact for margins of single axes that agree in their sum; margins that overlap need a few.
    """
    for _ in range(rounds):
        for axes, margin in margins.items():
            others = _others(axes, table.ndim)
            shared = table.size / margin.size
            table = table + over((margin - table.sum(axis=others)) / shared, axes, table.ndim)
    return table


def _others(axes: Axes, ndim: int) -> Axes:
    return tuple(axis for axis in range(ndim) if axis not in axes)


def over(values: Floats, axes: Axes, ndim: int) -> Floats:
    """Values of some axes (in rising order), shaped to meet a table of so many axes."""
    sizes = iter(values.shape)
    return values.reshape([next(sizes) if axis in axes else 1 for axis in range(ndim)])
