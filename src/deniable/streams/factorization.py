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
*tree*      the binary tree (Dwork et al. 2010; Chan, Shi and Song 2011): row t is the sum of the last 2^k periods, with
            2^k the largest power of two that divides t.

**On integers.** B is rounded to whole numbers (parts of 2^-16) before anything else is derived from it: what is
measured is an integer, what one person moves is computed exactly from the rounded B, and totals follow by its inverse.

**Sensitivity.** A person who adds a vector c_s to period s, |c_s| <= 1, in at most m periods moves y by |B c|, with
|B c|^2 <= sum over pairs s, t of her periods of |G[s, t]|, G = B'B. `bound_participation` bounds the worst choice of
periods: exactly for one period, for all of them if G >= 0, and for Toeplitz matrices that fall and are not negative
(where the first m periods are the worst); else by the m largest of the sums of the m largest entries of each row.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
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


def make_apart(workload: Workload) -> Factorization:
    """Each period by itself, the more accurately the more totals it is in: the fourth root of how many those are.

    Best for people who are in all periods: of a diagonal X with trace 1, the one that makes trace(Q / X) least.
    """
    weights = np.diag(workload.build_gram()) ** 0.25
    return Factorization("apart", np.diag(np.rint(weights / weights.max() * PARTS).astype(np.int64)))


def make_tree(periods: int) -> Factorization:
    """The binary tree: row t is the sum of as many periods as the largest power of two that divides t.

    >>> (make_tree(4).rows // PARTS).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]
    """
    rows = np.zeros((periods, periods), dtype=np.int64)
    for t in range(1, periods + 1):
        rows[t - 1, t - (t & -t) : t] = PARTS
    return Factorization("tree", rows)


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
    inverse = invert_lower(factorization.rows.astype(np.float64))
    spread = float(np.sum((workload.build_gram() @ inverse) * inverse)) / workload.count
    return spread * bound_participation(factorization, participation)


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
