"""Which grouping sets to measure how well: shares of one budget that make the error of a whole workload least.

A tree (nation, state, county) or a set of margins (age by sex, sex by ward) is asked as grouping sets, each measured
with noise of its own, and then fitted so that all of them agree. The error after fitting has a closed form in the
variances of the sets, so the best shares are found before any data is read: the matrix mechanism (Li et al. 2010)
restricted to weighted grouping sets, as HDMM (McKenna et al. 2018) and the residual planner (Xiao et al. 2023) do.

**Tree.** For a regular tree with fan-out f and measurement variances v, best estimates are combined from the leaves up
(inverse variances add) and corrected from the top down; `predict_tree_variances` follows Hay et al. 2010 with weights.

**Margins.** The space of tables splits into orthogonal parts, one for each set A of columns (the interactions of A). A
margin over S with variance v carries information (product of the sizes not in S) / v about every A inside S; the
variance of a margin T after fitting adds up over the A inside T.

**Fitting.** Noisy tables are fitted together by weighted least squares, so that trees and margins add up. All of it is
post-processing.

**Trees** are measured level by level, and finished as the top-down algorithm of the 2020 US census did it in spirit:

1. *fit*: of all linear unbiased estimates that add up, the one with the least variance (Hay et al. 2010, with weights);
2. *top down*: the root is rounded; then, parent by parent, the children become whole numbers (none negative, if asked)
   that add up to their parent exactly and stay as near to the fit as they can.

Errors of cells are those of the fit. Rounding moves a cell by less than one; cutting off at zero biases small cells
upwards, which is why it is an option.

**Margins** are tables over some columns each. A table of counts splits into orthogonal interactions: the overall mean,
each column's effect, each pair's, and so on. Every measured margin that contains a set of columns A gives an estimate
of A's interaction (average over the other columns, center over A); they are combined by their information, and each
margin is put together again from them. That is the fit over the whole table, which is never built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.errors import InternalError

Margin = tuple[int, ...]
"""The places of the columns of a margin."""
ROUNDS = 200
FINENESS = 10_000
LEAST_SHARE = 0.002
"""Every grouping set is measured with at least this part of the budget, so that none is lost to a poor model."""


def predict_tree_variances(sizes: Sequence[int], measured: Sequence[float]) -> list[float]:
    """The variance of one cell of each level after fitting a regular tree, from the measured variances."""
    fans = [sizes[i + 1] / sizes[i] for i in range(len(sizes) - 1)]
    upward = [float(measured[-1])]
    for level in range(len(sizes) - 2, -1, -1):
        upward.insert(0, 1 / (1 / measured[level] + 1 / (fans[level] * upward[0])))
    fitted = [upward[0]]
    for level, fan in enumerate(fans):
        alone = upward[level + 1]
        fitted.append(alone - alone / fan + fitted[-1] / fan**2)
    return fitted


def predict_margin_variances(sizes: Sequence[int], margins: Sequence[Margin], measured: Sequence[float]) -> list[float]:
    """The variance of one cell of each margin after fitting all of them together."""
    parts = {part for margin in margins for part in list_subsets(margin)}
    known = compute_information(sizes, margins, measured, parts)
    found = []
    for margin in margins:
        rest, cells = math.prod(_other_sizes(sizes, margin)), math.prod(sizes[i] for i in margin)
        total = sum(_degrees_of_freedom(sizes, part) * rest / known[part] for part in list_subsets(margin))
        found.append(total / cells)
    return found


def compute_information(
    sizes: Sequence[int], margins: Sequence[Margin], measured: Sequence[float], parts: set[Margin]
) -> dict[Margin, float]:
    """How much all measured margins together say about each interaction."""
    return {
        part: sum(
            math.prod(_other_sizes(sizes, margin)) / variance
            for margin, variance in zip(margins, measured, strict=True)
            if set(part) <= set(margin)
        )
        for part in parts
    }


def list_subsets(margin: Margin) -> list[Margin]:
    """All sets of columns inside a margin, with the empty one and itself."""
    return [part for count in range(len(margin) + 1) for part in combinations(margin, count)]


def _other_sizes(sizes: Sequence[int], margin: Margin) -> list[int]:
    return [size for i, size in enumerate(sizes) if i not in margin]


def _degrees_of_freedom(sizes: Sequence[int], part: Margin) -> int:
    return math.prod(sizes[i] - 1 for i in part)


def find_best_shares(
    fitted: Callable[[Sequence[float]], Sequence[float]],
    sensitivities: Sequence[float],
    importance: Sequence[float],
    *,
    gaussian: bool,
) -> tuple[Fraction, ...]:
    """Shares of the budget, one for each grouping set, that make the weighted mean variance after fitting least.

    `fitted` maps measured variances to fitted ones; `sensitivities` are L1 norms, or L2 norms for Gaussian noise, whose
    variance falls with the share where Laplace noise's falls with its square. Found by exponentiated gradient descent
    with step halving; a poor optimum costs accuracy, never privacy.
    """
    power = 1 if gaussian else 2
    count = len(sensitivities)

    def error(shares: Sequence[float]) -> float:
        measured = [s * s / share**power for s, share in zip(sensitivities, shares, strict=True)]
        return math.log(sum(w * v for w, v in zip(importance, fitted(measured), strict=True)))

    shares, step = [1 / count] * count, 1.0
    now = error(shares)
    for _ in range(ROUNDS):
        slope = _estimate_slope(error, shares, now)
        trial = _normalize([share * math.exp(-step * g) for share, g in zip(shares, slope, strict=True)])
        then = error(trial)
        if then < now:
            shares, now, step = trial, then, step * 1.5
        elif (step := step / 2) < 1e-9:
            break
    return _round_shares(shares)


def _estimate_slope(error: Callable[[Sequence[float]], float], shares: Sequence[float], now: float) -> list[float]:
    """The derivative along the logarithm of each share, the others giving way in proportion."""
    hair = 1e-5
    return [
        (error(_normalize([s * (1 + hair) if i == j else s for j, s in enumerate(shares)])) - now) / hair
        for i in range(len(shares))
    ]


def _normalize(shares: Sequence[float]) -> list[float]:
    kept = [max(share, LEAST_SHARE * sum(shares)) for share in shares]
    return [share / sum(kept) for share in kept]


def _round_shares(shares: Sequence[float]) -> tuple[Fraction, ...]:
    whole = [max(1, round(share * FINENESS)) for share in shares]
    return tuple(Fraction(part, sum(whole)) for part in whole)


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


# -- strategies over cells --------------------------------------------------------------------------------------------

WEIGHTS = 16
"""The weights of levels are whole numbers up to this."""
MOST_FITTED = 128
"""Cells up to which trees are tried."""
FAN_OUTS = (2, 3, 4, 8, 16, 20)
TURNS = 12
TOLERANCE = 1e-9
"""What keeps a matrix from being singular where cells are asked for in sums alone."""
Levels = list[Cells]
Matrix = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Strategy:
    """What is measured of the cells of each part: whole numbers, one row for each number that gets noise."""

    matrix: Matrix
    words: str

    @property
    def weight(self) -> int:
        """The largest L1 norm of a column: how far one row of weight 1 moves what is measured."""
        columns: list[tuple[int, ...]] = list(zip(*self.matrix, strict=True))
        return max(sum(abs(each) for each in column) for column in columns)

    @property
    def weight_squared(self) -> int:
        """The same for the square of the L2 norm."""
        columns: list[tuple[int, ...]] = list(zip(*self.matrix, strict=True))
        return max(sum(each * each for each in column) for column in columns)


@lru_cache(maxsize=256)
def choose_strategy(workload: Matrix, norm: int, groups: tuple[int, ...] = ()) -> Strategy:
    """The strategy with the least expected error of a workload, for noise that is made for the L1 or the L2 norm.

    `groups` numbers rows of the workload that may be measured by strategies of their own, over coarser cells.
    """
    asked = np.array(list(dict.fromkeys(workload)), dtype=np.float64)
    cells = asked.shape[1]
    alone = Strategy(_to_whole(np.eye(cells)), "each cell by itself")
    if asked.sum(axis=0).max() <= 1:
        return alone
    candidates = [(alone, np.eye(cells)), (Strategy(_to_whole(asked), "the aggregates themselves"), asked)]
    levels = [("the aggregates and each cell", [np.eye(cells), asked])]
    if cells <= MOST_FITTED:
        levels += [(f"a tree of cells, {fan} to one", _build_levels(cells, fan)) for fan in FAN_OUTS if 1 < fan < cells]
    if len(set(groups)) > 1:
        levels.append(("conditions on other columns by themselves", _split_by_group(workload, norm, groups)))
    for words, each in levels:
        matrix = _weigh_levels(each, asked, norm)
        candidates.append((Strategy(_to_whole(matrix), words), matrix))
    return min(candidates, key=lambda one: _expect_error(one[1], asked, norm))[0]


def _split_by_group(workload: Matrix, norm: int, groups: tuple[int, ...]) -> Levels:
    """For each group of rows, the best strategy over the cells that they tell apart, written over all cells."""
    levels = []
    for group in sorted(set(groups)):
        rows = [row for row, mine in zip(workload, groups, strict=True) if mine == group]
        told = list(zip(*rows, strict=True))
        coarse = [each for each in dict.fromkeys(told) if any(each)]
        if not coarse:  # conditions that no row meets, as NULL LIKE 'a%', have nothing to measure
            continue
        own = choose_strategy(tuple(zip(*coarse, strict=True)), norm)
        inside = np.array([[float(each == cell) for each in told] for cell in coarse])
        levels.append(np.array(own.matrix, dtype=np.float64) @ inside)
    return levels


def _to_whole(matrix: NDArray[np.float64]) -> Matrix:
    return tuple(map(tuple, np.rint(matrix).astype(int).tolist()))


def _build_levels(cells: int, fan: int) -> Levels:
    """The cells, then sums of so many of them one after another, then sums of these, without the root."""
    levels, size = [np.eye(cells)], fan
    while size < cells:
        level = np.zeros((-(-cells // size), cells))
        level[np.arange(cells) // size, np.arange(cells)] = 1
        levels.append(level)
        size *= fan
    return levels


def _weigh_levels(levels: Levels, asked: NDArray[np.float64], norm: int) -> NDArray[np.float64]:
    """Levels with the whole weights that make the expected error small.

    The error is the trace of V / G times the squared norm of a column, where V is the workload's Gram matrix and G the
    weighted sum of the levels'. At the optimum, weight times slope (for L2, slope alone) is the same for all levels, so
    weights are moved toward that. A poor optimum costs accuracy, never privacy.
    """
    sizes = [float(np.max(np.sum(level**norm, axis=0)) ** (1 / norm)) for level in levels]
    wanted = asked.T @ asked
    grams = [level.T @ level / size**2 for level, size in zip(levels, sizes, strict=True)]
    weights, ridge = np.ones(len(levels)), TOLERANCE * np.eye(len(wanted))
    for _ in range(TURNS):
        inner = np.linalg.inv(ridge + sum(w * w * gram for w, gram in zip(weights, grams, strict=True)))
        between = inner @ wanted @ inner
        slopes = np.array([np.sum(between * gram) for gram in grams])
        weights = weights * ((weights * slopes) ** (1 / 3) if norm == 1 else slopes**0.25)
        weights = np.maximum(weights / weights.max(), 1 / WEIGHTS)
    whole = np.maximum(np.rint(weights * WEIGHTS * max(sizes) / np.array(sizes)), 1)
    return np.vstack([weight * level for weight, level in zip(whole, levels, strict=True)])


def _expect_error(matrix: NDArray[np.float64], asked: NDArray[np.float64], norm: int) -> float:
    """The sum of the variances of the workload's answers, for noise of variance 1 at a norm of 1."""
    columns = np.abs(matrix).sum(axis=0) if norm == 1 else np.sqrt((matrix**2).sum(axis=0))
    return float(columns.max() ** 2 * np.sum((asked @ np.linalg.pinv(matrix)) ** 2))
