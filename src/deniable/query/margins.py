"""Margins that agree with each other: a set of tables over some columns each, fitted together in closed form.

Each table of counts splits into orthogonal interactions: the overall mean, each column's effect, each pair's, and so
on. Every measured margin that contains a set of columns A gives an estimate of A's interaction (average over the other
columns, center over A); they are combined by their information, and each margin is put together again from the
combined interactions. The result is the weighted least squares fit over the whole table, which is never built.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.query.strategy import Margin, information, subsets

Cells = NDArray[np.float64]


def fitted_margins(
    sizes: Sequence[int], margins: Sequence[Margin], measured: Sequence[NDArray[Any]], variances: Sequence[float]
) -> list[Cells]:
    """The margins of the weighted least squares fit; each is an array with one axis for each of its columns.

    >>> both = fitted_margins([2, 2], [(0,), (1,)], [np.array([3, 5]), np.array([4, 6])], [1.0, 1.0])
    >>> [part.tolist() for part in both]
    [[3.5, 5.5], [3.5, 5.5]]
    """
    parts = {part for margin in margins for part in subsets(margin)}
    known = information(sizes, margins, variances, parts)
    effects = {part: _effect(part, margins, measured, variances) / known[part] for part in parts}
    return [_assembled(sizes, margin, effects) for margin in margins]


def _effect(
    part: Margin, margins: Sequence[Margin], measured: Sequence[NDArray[Any]], variances: Sequence[float]
) -> Cells:
    """What all margins say about one interaction, weighted by inverse variances."""
    total: Any = 0.0
    for margin, values, variance in zip(margins, measured, variances, strict=True):
        if set(part) <= set(margin):
            others = tuple(axis for axis, column in enumerate(margin) if column not in part)
            total = total + _centered(np.asarray(values, dtype=np.float64).mean(axis=others)) / variance
    return np.asarray(total, dtype=np.float64)


def _centered(values: Cells) -> Cells:
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values


def _assembled(sizes: Sequence[int], margin: Margin, effects: dict[Margin, Cells]) -> Cells:
    rest = math.prod(size for i, size in enumerate(sizes) if i not in margin)
    total = np.zeros([sizes[i] for i in margin])
    for part in subsets(margin):
        shape = [sizes[i] if i in part else 1 for i in margin]
        total = total + effects[part].reshape(shape) * rest
    return total
