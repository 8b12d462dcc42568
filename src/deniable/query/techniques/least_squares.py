"""Trees and margins that add up: noisy tables fitted together by weighted least squares. All of it is post-processing.

**Trees** are measured level by level, and finished as the top-down algorithm of the 2020 US census did it in spirit:

1. *fit*: of all linear unbiased estimates that add up, the one with the least variance (Hay et al. 2010, with weights);
2. *top down*: the root is rounded; then, parent by parent, the children become whole numbers (none negative, if asked)
   that add up to their parent exactly and stay as near to the fit as they can.

Errors of cells are those of the fit. Rounding moves a cell by less than one; cutting off at zero biases small cells
upwards, which is why it is an option.

**Margins** are tables over some columns each. A table of counts splits into orthogonal interactions: the overall mean,
each column's effect, each pair's, and so on. Every measured margin that contains a set of columns A gives an estimate
of A's interaction (average over the other columns, center over A); they are combined by their information, and each
margin is put together again from them. That is the fit over the whole table, which is never built."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.errors import InternalError
from deniable.query.techniques.workload import Margin, compute_information, list_subsets

Cells = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tree:
    """The public shape: how many cells each level has, and each cell's parent one level up."""

    sizes: tuple[int, ...]
    parents: tuple[Whole, ...]
    """For each level but the first."""

    @classmethod
    def of(cls, levels: Sequence[Sequence[tuple[object, ...]]]) -> Tree:
        """The tree of key tuples, level by level: a cell's parent has all but the last of its keys.

        >>> Tree.of([[()], [("n",), ("s",)], [("n", 1), ("s", 1), ("s", 2)]]).parents[1].tolist()
        [0, 1, 1]
        """
        parents = []
        for above, below in pairwise(levels):
            place = {key: i for i, key in enumerate(above)}
            if any(key[: len(key) - 1] not in place for key in below):
                raise InternalError("a cell of the hierarchy has no parent")
            parents.append(np.array([place[key[:-1]] for key in below], dtype=np.int64))
        return cls(tuple(len(level) for level in levels), tuple(parents))


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted cells of one level and the variance of each; levels add up to the ones above."""

    values: Cells
    variances: Cells


def fit_tree(tree: Tree, measured: Sequence[NDArray[Any]], variances: Sequence[float]) -> list[Fit]:
    """The weighted least squares fit to noisy levels, in two passes.

    Upwards each cell combines its own measurement with the sum of its children, weighted by inverse variances.
    Downwards what is known of the parent is shared among its children in proportion to their variances.
    """
    upward = [Fit(measured[-1].astype(np.float64), np.full(tree.sizes[-1], float(variances[-1])))]
    for level in range(len(tree.sizes) - 2, -1, -1):
        upward.insert(0, _combine_upward(measured[level], variances[level], tree.parents[level], upward[0]))
    found = [upward[0]]
    for level, parents in enumerate(tree.parents):
        found.append(_correct_downward(upward[level + 1], parents, found[-1]))
    return found


def _combine_upward(own: NDArray[Any], variance: float, parents: Whole, below: Fit) -> Fit:
    sums = np.bincount(parents, below.values, own.size)
    spread = np.bincount(parents, below.variances, own.size)
    childless = np.bincount(parents, minlength=own.size) == 0
    weight = np.where(childless, 0.0, 1 / np.where(childless, 1.0, spread))
    precision = 1 / variance + weight
    return Fit((own / variance + sums * weight) / precision, 1 / precision)


def _correct_downward(below: Fit, parents: Whole, above: Fit) -> Fit:
    size = above.values.size
    sums, spread = np.bincount(parents, below.values, size), np.bincount(parents, below.variances, size)
    share = below.variances / spread[parents]
    values = below.values + share * (above.values - sums)[parents]
    return Fit(values, below.variances - share * below.variances + share**2 * above.variances[parents])


def round_top_down(tree: Tree, fit: Sequence[Fit], *, nonnegative: bool) -> list[Whole]:
    """Whole numbers near the fit that add up exactly, level by level from the root."""
    root = np.rint(fit[0].values).astype(np.int64)
    levels = [np.maximum(root, 0) if nonnegative else root]
    for parents, level in zip(tree.parents, fit[1:], strict=True):
        levels.append(_round_children(levels[-1], parents, level.values, nonnegative))
    return levels


def _round_children(totals: Whole, parents: Whole, values: Cells, nonnegative: bool) -> Whole:
    order = np.argsort(parents, kind="stable")
    starts = np.searchsorted(parents[order], np.arange(totals.size + 1))
    found = np.zeros(values.size, dtype=np.int64)
    for parent in range(totals.size):
        mine = order[starts[parent] : starts[parent + 1]]
        if mine.size:
            found[mine] = round_to_total(values[mine], int(totals[parent]), nonnegative)
    return found


def round_to_total(values: Cells, total: int, nonnegative: bool) -> Whole:
    """Whole numbers that add up to a total and are nearest to the values: projected, then rounded by remainders.

    >>> round_to_total(np.array([1.4, 1.3, 0.2]), 3, False).tolist()
    [2, 1, 0]
    >>> round_to_total(np.array([5.0, -3.0, 1.0]), 3, True).tolist()
    [3, 0, 0]
    """
    shifted = project_on_simplex(values, total) if nonnegative else values + (total - values.sum()) / values.size
    floors = np.floor(shifted + 1e-9)
    missing = total - int(floors.sum())
    largest = np.argsort(floors - shifted, kind="stable")[: max(missing, 0)]
    floors[largest] += 1
    return floors.astype(np.int64)


def project_on_simplex(values: Cells, total: float) -> Cells:
    """The nearest point with no negative entry that adds up to a total of at least 0 (Duchi et al. 2008)."""
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, values.size + 1)
    kept = int(np.count_nonzero(ordered - excess > 0)) or 1
    nearest: Cells = np.maximum(values - excess[kept - 1], 0.0)
    return nearest


def fit_margins(
    sizes: Sequence[int], margins: Sequence[Margin], measured: Sequence[NDArray[Any]], variances: Sequence[float]
) -> list[Cells]:
    """The margins of the weighted least squares fit; each is an array with one axis for each of its columns.

    >>> both = fit_margins([2, 2], [(0,), (1,)], [np.array([3, 5]), np.array([4, 6])], [1.0, 1.0])
    >>> [part.tolist() for part in both]
    [[3.5, 5.5], [3.5, 5.5]]
    """
    parts = {part for margin in margins for part in list_subsets(margin)}
    known = compute_information(sizes, margins, variances, parts)
    effects = {part: _estimate_effect(part, margins, measured, variances) / known[part] for part in parts}
    return [_assemble_margin(sizes, margin, effects) for margin in margins]


def _estimate_effect(
    part: Margin, margins: Sequence[Margin], measured: Sequence[NDArray[Any]], variances: Sequence[float]
) -> Cells:
    """What all margins say about one interaction, weighted by inverse variances."""
    total: Any = 0.0
    for margin, values, variance in zip(margins, measured, variances, strict=True):
        if set(part) <= set(margin):
            others = tuple(axis for axis, column in enumerate(margin) if column not in part)
            total = total + _center_effect(np.asarray(values, dtype=np.float64).mean(axis=others)) / variance
    return np.asarray(total, dtype=np.float64)


def _center_effect(values: Cells) -> Cells:
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values


def _assemble_margin(sizes: Sequence[int], margin: Margin, effects: dict[Margin, Cells]) -> Cells:
    rest = math.prod(size for i, size in enumerate(sizes) if i not in margin)
    total = np.zeros([sizes[i] for i in margin])
    for part in list_subsets(margin):
        shape = [sizes[i] if i in part else 1 for i in margin]
        total = total + effects[part].reshape(shape) * rest
    return total
