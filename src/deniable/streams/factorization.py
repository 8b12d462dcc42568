"""Factorizations: which combinations of periods are measured, so that all totals of a workload follow from them.

A stream x of one number a period is measured as y = B x + noise, with a lower triangular matrix B: its row t needs the
periods up to t alone, so it can be measured when period t ends. Every total w of x is then estimated by w' B^-1 y, and
errs by the noise alone: variance * |w' B^-1|^2. This is the matrix mechanism with the factors W B^-1 and B (Li et al.
2015; Denisov, McMahan, Rush, Smith and Thakurta 2022, who show that it holds as well for streams that react to what was
published). Its error depends on B'B = X alone: trace(Q / X) times the largest entry on the diagonal of X, where Q is
the workload's Gram matrix. Any X has a lower triangular factor, so that measuring in order costs nothing.

*optimal*   X = the square root of Q, scaled to a diagonal of ones: the first step of the iteration that finds the best
            X of all (Denisov et al. 2022), and within 0.01% of the best for ranges, 0.2% for prefixes.
*power*     the power series of (1 - z)^-a, a from 0 to 1/2: a Toeplitz matrix; a = 1/2 is the square root of the
            prefix sums (Fichtenberger, Henzinger and Upadhyay 2023), a = 0 measures each period by itself.
*apart*     each period by itself, with the accuracy that the totals ask of it: for people who may be in all periods.
*tree of b* row t is the sum of the last b^k periods, with b^k the largest power of b that divides t. b = 2 is the
            binary tree (Dwork et al. 2010; Chan, Shi and Song 2011); for pure epsilon the best b is larger (Qardaji,
            Yang and Li 2013), and each size of sums is measured as accurately as the totals ask of it.

**On integers.** B is rounded to whole numbers (parts of 2^-16) before anything else is derived from it: what is
measured is an integer, what one person moves is computed exactly from the rounded B, and totals follow by its inverse.

**Sensitivity.** A person who adds a vector c_s to period s, |c_s| <= 1, in at most m periods moves y by |B c|, with
|B c|^2 <= sum over pairs s, t of her periods of |G[s, t]|, G = B'B. `bound_participation` bounds the worst choice of
periods: exactly for one period, for all of them if G >= 0, and for Toeplitz matrices that fall and are not negative
(where the first m periods are the worst); else by the m largest of the sums of the m largest entries of each row.
In L1 norm, for Laplace noise, she moves y by the sum of |B| over the columns of her periods: `bound_columns`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from deniable.errors import InternalError
from deniable.streams.workload import MOST_EIGENVECTORS, Matrix, Totals, Workload

Integers = NDArray[np.int64]
PARTS = 1 << 16
"""Entries are whole numbers of this part."""
POWERS = tuple(Fraction(i, 16) for i in range(9))
"""The exponents that are tried."""
MOST_COMPARED = 256
"""Periods of the smaller problem on which factorizations are compared where there are more."""
MOST_BRANCHES = 64
"""Up to here every number of branches of a tree is tried."""


@dataclass(frozen=True, slots=True, eq=False)
class Factorization:
    """What is measured: a lower triangular matrix of whole numbers without a zero on its diagonal, and its name."""

    name: str
    rows: Integers

    def __post_init__(self) -> None:
        square = self.rows.ndim == 2 and len(self.rows) == self.rows.shape[-1]
        if not square or np.any(np.triu(self.rows, 1)) or not np.all(np.diag(self.rows)):
            raise InternalError("a factorization is not lower triangular", remedy="Nothing was run")
        if int(np.abs(self.rows).max(initial=0)) > PARTS:
            raise InternalError("an entry of a factorization is above 1", remedy="Nothing was run")

    @property
    def periods(self) -> int:
        """How many periods there are."""
        return len(self.rows)

    def to_bytes(self) -> bytes:
        """The matrix, to be stored: another machine would round it otherwise, and no row may change on the way."""
        below = self.rows[np.tril_indices(self.periods)].astype("<i4")
        return zlib.compress(below.tobytes(), 6)

    @classmethod
    def from_bytes(cls, name: str, periods: int, stored: bytes) -> Factorization:
        """A stored matrix."""
        rows = np.zeros((periods, periods), dtype=np.int64)
        rows[np.tril_indices(periods)] = np.frombuffer(zlib.decompress(stored), dtype="<i4")
        return cls(name, rows)


def make_power(periods: int, exponent: Fraction) -> Factorization:
    """The Toeplitz matrix of (1 - z)^-exponent: c_0 = 1, c_k = c_(k-1) (k - 1 + exponent) / k.

    >>> make_power(3, Fraction(1, 2)).rows.tolist()
    [[65536, 0, 0], [32768, 65536, 0], [24576, 32768, 65536]]
    """
    series, entry = [], Fraction(PARTS)
    for k in range(periods):
        entry = entry * (k - 1 + exponent) / k if k else entry
        # Without this the fractions would grow by some digits with each period.
        entry = Fraction(round(entry * PARTS**2), PARTS**2)
        series.append(round(entry))
    return Factorization(f"power {exponent}", _fill_toeplitz(np.array(series, dtype=np.int64)))


def make_apart(workload: Workload, *, pure: bool = False) -> Factorization:
    """Each period by itself, the more accurately the more totals it is in: the fourth root of how many those are.

    Best for people who are in all periods: of a diagonal X with trace 1, the one that makes trace(Q / X) least. For
    pure epsilon the sum of the roots is what counts, and the third root is best.
    """
    weights = np.diag(workload.build_gram()) ** (1 / 3 if pure else 1 / 4)
    return Factorization("apart", np.diag(np.rint(weights / weights.max() * PARTS).astype(np.int64)))


def make_tree(periods: int, branches: int = 2, weights: Sequence[float] = ()) -> Factorization:
    """A tree: row t is the sum of as many periods as the largest power of `branches` that divides t.

    `weights` says how accurately sums of 1, b, b^2, ... periods are measured; the largest one counts as 1.

    >>> (make_tree(4).rows // PARTS).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]
    """
    rows = np.zeros((periods, periods), dtype=np.int64)
    levels = find_levels(periods, branches)
    parts = [PARTS] * (int(levels.max()) + 1)
    if weights:
        parts = [max(1, round(PARTS * each / max(weights))) for each in weights]
    for t, level in enumerate(levels.tolist(), start=1):
        rows[t - 1, t - branches**level : t] = parts[level]
    return Factorization("tree" if branches == 2 and not weights else f"tree of {branches}", rows)


def find_levels(periods: int, branches: int) -> Integers:
    """For each row of a tree which power of `branches` it sums.

    >>> find_levels(9, 3).tolist()
    [0, 0, 1, 0, 0, 1, 0, 0, 2]
    """
    levels, size = np.zeros(periods, dtype=np.int64), branches
    while size <= periods:
        levels[size - 1 :: size] += 1
        size *= branches
    return levels


def count_uses(workload: Workload, branches: int) -> Integers:
    """In how many totals of a workload each row of a tree is used, by +1 or -1, as many times as it is.

    The row of a node is used in the total since the start up to u from its own end to the end of the node above it. A
    range is the difference of two such totals, and uses the node where just one of them does.
    """
    n, ends = workload.periods, np.arange(1, workload.periods + 1)
    above = branches ** (find_levels(n, branches) + 1)
    last = np.minimum(-(-ends // above) * above - 1, n)
    used = last - ends + 1
    match workload.totals:
        case Totals.PREFIXES:
            return np.asarray(used)
        case Totals.RANGES:
            return np.asarray(used * (n + 1 - used))
        case Totals.WINDOWS:
            shifted = np.maximum(0, np.minimum(last + workload.window, n) - (ends + workload.window) + 1)
            both = np.maximum(0, last - (ends + workload.window) + 1)
            return np.asarray(used + shifted - 2 * both)


def choose_tree(workload: Workload, participation: int) -> Factorization:
    """For pure epsilon: the tree with the least error for a person in at most so many periods, or periods apart.

    A tree of more branches than periods is each period by itself. With uses u_k of the rows of level k, the mean square
    is in proportion to (sum of weights)^2 * sum of u_k / weight_k^2, least for weights like the third root of u_k.
    """
    n = workload.periods
    few = {*range(2, min(n, MOST_BRANCHES) + 1), *(math.ceil(n ** (1 / k)) for k in (2, 3, 4)), n + 1}
    made = [(b, _weigh_levels(workload, b)) for b in sorted(few - {0, 1})]
    error, best, weights = min((_find_tree_error(workload, participation, *tree), *tree) for tree in made)
    alone = np.diag(workload.build_gram())
    if _add_largest(alone ** (1 / 3), participation) ** 2 * float((alone ** (1 / 3)).sum()) < error:
        return make_apart(workload, pure=True)
    return make_tree(n, best, weights) if best <= n else make_power(n, Fraction(0))


def _weigh_levels(workload: Workload, branches: int) -> tuple[float, ...]:
    levels, uses = find_levels(workload.periods, branches), count_uses(workload, branches)
    return tuple(float(each) ** (1 / 3) for each in np.maximum(1, np.bincount(levels, uses)))


def _add_largest(sizes: Matrix, most: int) -> float:
    return float(np.sort(sizes)[-min(max(most, 1), len(sizes)) :].sum())


def _find_tree_error(workload: Workload, participation: int, branches: int, weights: tuple[float, ...]) -> float:
    """What a tree's mean square is in proportion to, without its matrix."""
    n, levels, rows = workload.periods, find_levels(workload.periods, branches), np.array(weights)
    columns = np.zeros(n)
    for level, weight in enumerate(weights):
        ends = -(-np.arange(1, n + 1) // branches**level) * branches**level
        columns += np.where((ends <= n) & (levels[np.minimum(ends, n) - 1] == level), weight, 0.0)
    return _add_largest(columns, participation) ** 2 * float((count_uses(workload, branches) / rows[levels] ** 2).sum())


def make_optimal(workload: Workload) -> Factorization | None:
    """The square root of the workload's Gram matrix, scaled so that each period is measured alike; None if too large.

    The factor with B'B = X is the Cholesky factor of X read backwards.
    """
    root = workload.take_root()
    if root is None:
        return None
    scale = 1 / np.sqrt(np.diag(root))
    backwards = np.linalg.cholesky((root * np.outer(scale, scale))[::-1, ::-1])
    return Factorization("optimal", np.tril(np.rint(backwards[::-1, ::-1].T * PARTS).astype(np.int64)))


def choose_factorization(workload: Workload, participation: int) -> Factorization:
    """The factorization with the least error for a person in at most so many periods.

    With many periods the kinds are compared on a smaller problem of the same shape: which one is taken changes the
    error alone, never the guarantee.
    """
    n = workload.periods
    small = min(n, MOST_COMPARED)
    window = min(small, max(1, workload.window * small // n)) if small < n else workload.window
    trial = Workload(workload.totals, small, window)
    often = max(1, -(-participation * small // n)) if participation > 1 else 1
    kinds: list[Callable[[Workload], Factorization]] = [
        make_apart,
        *(partial(_make_power_for, exponent=a) for a in POWERS),
    ]
    if _can_be_optimal(workload):
        kinds.insert(0, _make_optimal_for)
    return min(kinds, key=lambda make: find_mean_square(make(trial), trial, often))(workload)


def _make_power_for(workload: Workload, exponent: Fraction) -> Factorization:
    return make_power(workload.periods, exponent)


def _make_optimal_for(workload: Workload) -> Factorization:
    found = make_optimal(workload)
    assert found is not None
    return found


def _can_be_optimal(workload: Workload) -> bool:
    """Whether the optimal factorization of a workload can be computed."""
    return workload.totals is not Totals.WINDOWS or workload.periods <= MOST_EIGENVECTORS


def bound_participation(factorization: Factorization, periods: int) -> int:
    """The square of how far one person moves what is measured, who adds at most 1 in at most so many periods.

    Products are computed in floating point and are exact: all entries are whole and all sums are below 2^53.

    >>> bound_participation(make_tree(4), 1) // PARTS**2, bound_participation(make_tree(4), 4) // PARTS**2
    (3, 22)
    """
    rows, n = factorization.rows, factorization.periods
    most = min(max(periods, 1), n)
    if most == 1:
        return int((rows * rows).sum(axis=0).max())
    gram = multiply_exactly(rows.T, rows)
    if is_falling_toeplitz(rows):
        return int(gram[:most, :most].sum())
    return bound_by_rows(np.abs(gram), most)


def bound_columns(factorization: Factorization, periods: int) -> int:
    """How far one person moves what is measured, in L1 norm, who adds at most 1 in at most so many periods.

    >>> bound_columns(make_tree(4), 1) // PARTS, bound_columns(make_tree(4), 2) // PARTS
    (3, 5)
    """
    sizes = np.sort(np.abs(factorization.rows).sum(axis=0))
    return int(sizes[-min(max(periods, 1), factorization.periods) :].sum())


def bound_by_rows(sizes: Integers, most: int) -> int:
    """The largest sum of entries over pairs of at most `most` places, bounded row by row; exact where all are taken."""
    each = np.sort(sizes, axis=1)[:, -most:].sum(axis=1)
    return int(np.sort(each)[-most:].sum())


def is_falling_toeplitz(rows: Integers) -> bool:
    """Whether each diagonal has one entry, none is negative, and they fall away from the main one.

    Then for periods s_1 < s_2 < ... the product of columns s_i and s_j has no more terms, each no larger, than that of
    columns i and j: so the first periods together are the worst.
    """
    first = rows[:, 0]
    return bool(np.all(first >= 0) and np.all(np.diff(first) <= 0) and np.array_equal(rows, _fill_toeplitz(first)))


def multiply_exactly(left: Integers, right: Integers) -> Integers:
    """A product of matrices of whole numbers, by floating point where all sums fit its 53 bits."""
    largest = int(np.abs(left).max(initial=0)) * int(np.abs(right).max(initial=0)) * left.shape[1]
    if largest >= 1 << 53:
        raise InternalError("a product of whole numbers does not fit 53 bits", remedy="Nothing was run")
    return np.asarray(left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64)


def find_mean_square(factorization: Factorization, workload: Workload, participation: int = 1) -> float:
    """The mean over the workload's totals of the squared error, for noise of variance 1 and a person who moves by 1.

    >>> round(find_mean_square(make_power(4, Fraction(0)), Workload(Totals.PREFIXES, 4)), 6)  # (1 + 2 + 3 + 4) / 4
    2.5
    """
    return _find_spread(factorization, workload) * bound_participation(factorization, participation)


def find_absolute_error(factorization: Factorization, workload: Workload, participation: int = 1) -> float:
    """The same for a person whose L1 norm counts; Laplace noise for epsilon 1 has twice this mean square."""
    return _find_spread(factorization, workload) * float(bound_columns(factorization, participation)) ** 2


def _find_spread(factorization: Factorization, workload: Workload) -> float:
    inverse = invert_lower(factorization.rows.astype(np.float64))
    return float(np.sum((workload.build_gram() @ inverse) * inverse)) / workload.count


def invert_lower(rows: Matrix) -> Matrix:
    """The inverse of a lower triangular matrix, by halves."""
    n = len(rows)
    if n <= 64:
        return np.tril(np.linalg.inv(rows))
    k = n // 2
    found = np.zeros_like(rows)
    found[:k, :k], found[k:, k:] = invert_lower(rows[:k, :k]), invert_lower(rows[k:, k:])
    found[k:, :k] = -found[k:, k:] @ rows[k:, :k] @ found[:k, :k]
    return found


def _fill_toeplitz(series: Integers) -> Integers:
    n = len(series)
    rows = np.zeros((n, n), dtype=np.int64)
    for k, entry in enumerate(series):
        rows[np.arange(k, n), np.arange(n - k)] = entry
    return rows
