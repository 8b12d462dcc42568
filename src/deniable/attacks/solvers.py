"""Solvers: exact linear algebra on 0/1 questions, and the optional HiGHS (scipy) and CP-SAT (OR-tools).

Elimination tells which people the answers to sums determine. It is done modulo a prime, so nothing is lost to rounding.
A person is determined over the rationals exactly when that holds modulo all but finitely many primes; a false verdict
would need a minor divisible by this one. HiGHS solves linear programs, CP-SAT whole numbers; where one is
not installed, the attack that needs it is refused by the name of the extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.errors import MissingExtra

PRIME = 8_388_593
"""The largest prime below 2^23: 64 products of remainders add up to less than 2^53, which floats hold exactly."""
BLOCK = 64
VECTORS = 3
"""Random vectors of the null space: that all of them vanish by chance where the space does not has odds of PRIME^3."""
LARGE = 400
"""Beyond so many rows and columns least squares are solved by iteration, which is many times faster."""
Matrix = NDArray[np.int64]
Numbers = NDArray[np.float64]


def find_determined(rows: NDArray[np.bool_] | Matrix) -> NDArray[np.bool_]:
    """Which unit vectors lie in the row space: the people whose value the sums over these rows determine.

    A unit vector lies in the row space where everything that the rows send to zero is zero there. People who are in the
    same groups are never told apart.

    >>> find_determined(np.array([[1, 1, 1], [1, 1, 0]])).tolist()
    [False, False, True]
    """
    found = np.zeros(rows.shape[1], np.bool_)
    if not rows.size:
        return found
    first, times = _find_different(np.asarray(rows).T)
    kept = np.asarray(rows)[:, first]
    vectors = _draw_null_vectors(kept[_find_different(kept)[0]])
    found[first[(times == 1) & ~vectors.any(axis=0)]] = True
    return found


def find_refused(rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which questions, one after another, a curator must refuse so that nobody is ever determined by the answers.

    It does not depend on the answers. A basis of what the answered questions leave open is kept; a further answer
    takes one vector out of it.

    >>> find_refused(np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1]], bool)).tolist()
    [False, True, True]
    """
    rows = np.asarray(rows)
    open_left = np.random.default_rng(3).integers(0, PRIME, (rows.shape[1],) * 2).astype(np.float64)
    refused = np.zeros(len(rows), np.bool_)
    for place, row in enumerate(rows):
        told = _reduce(open_left @ row)
        if not told.any():
            continue  # the answer follows from earlier ones
        first = int(np.flatnonzero(told)[0])
        factors = _reduce(np.delete(told, first) * pow(int(told[first]), -1, PRIME))
        left = _reduce(np.delete(open_left, first, axis=0) - factors[:, None] * open_left[first])
        refused[place] = not left.any(axis=0).all()
        open_left = open_left if refused[place] else left
    return refused


def _find_different(rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The place of the first of all equal rows, and how many there are; rows are compared by two random sums."""
    draw = np.random.default_rng(1).integers(0, 2**63, (2, rows.shape[1]), dtype=np.uint64)
    keys = np.array([(rows.astype(np.uint64) * each).sum(axis=1, dtype=np.uint64) for each in draw]).T
    _, first, times = np.unique(keys, axis=0, return_index=True, return_counts=True)
    return first, times


def _draw_null_vectors(rows: NDArray[Any]) -> Numbers:
    """Random vectors modulo the prime that every row sends to zero.

    Rows are eliminated block by block: each block is cleared of the pivots before it by products of matrices, then
    reduced by itself. Columns without a pivot are free, and the pivots follow from them, last block first.
    """
    done: list[tuple[Numbers, list[int]]] = []
    free = np.ones(rows.shape[1], np.bool_)
    for start in range(0, len(rows), BLOCK):
        block = np.mod(rows[start : start + BLOCK].astype(np.float64), PRIME)
        for known, pivots in done:
            block = _reduce(block - block[:, pivots] @ known)
        form, pivots = _reduce_block(block)
        if pivots:
            done.append((form, pivots))
            free[pivots] = False
        if not free.any():
            break
    vectors = np.random.default_rng(2).integers(1, PRIME, (VECTORS, rows.shape[1])).astype(np.float64) * free
    for known, pivots in reversed(done):
        vectors[:, pivots] = 0
        vectors[:, pivots] = _reduce(-_multiply(vectors, known.T))
    return vectors


def _reduce(numbers: Numbers) -> Numbers:
    """The remainders; exact, since all numbers are whole and below 2^53."""
    return np.asarray(numbers - PRIME * np.floor(numbers / PRIME))


def _multiply(left: Numbers, right: Numbers) -> Numbers:
    """A product modulo the prime over a long inner side, in parts that floats hold exactly."""
    total = np.zeros((left.shape[0], right.shape[1]))
    for start in range(0, left.shape[1], BLOCK):
        total = _reduce(total + left[:, start : start + BLOCK] @ right[start : start + BLOCK])
    return total


def _reduce_block(block: Numbers) -> tuple[Numbers, list[int]]:
    """The reduced row echelon form of a few rows modulo the prime, without zero rows, and the pivot columns."""
    pivots: list[int] = []
    for place in range(len(block)):
        left = np.flatnonzero(block[place:].any(axis=1))
        if not len(left):
            break
        chosen = place + int(left[0])
        block[[place, chosen]] = block[[chosen, place]]
        column = int(np.flatnonzero(block[place])[0])
        block[place] = _reduce(block[place] * pow(int(block[place, column]), -1, PRIME))
        others = np.arange(len(block)) != place
        block[others] = _reduce(block[others] - block[others, column][:, None] * block[place])
        pivots.append(column)
    return block[: len(pivots)], pivots


def solve_least_squares(rows: NDArray[np.bool_] | Matrix | Numbers, answers: Numbers) -> Numbers:
    """The least-squares solution of least norm: exact where a person is determined, the group's mean where not."""
    matrix = np.asarray(rows, np.float64)
    if min(matrix.shape) <= LARGE:
        return np.asarray(np.linalg.lstsq(matrix, answers, rcond=None)[0])
    return _iterate_least_squares(matrix, np.asarray(answers, np.float64))


def _iterate_least_squares(matrix: Numbers, answers: Numbers) -> Numbers:
    """Iterated ridge regression on the smaller side: each round solves what the last ones left.

    A round shrinks what is left along a singular value s by ridge/(s^2 + ridge), and never leaves the row space.
    """
    wide = matrix.shape[0] < matrix.shape[1]
    gram = matrix @ matrix.T if wide else matrix.T @ matrix
    ridge = 1e-12 * float(np.trace(gram))
    inverse = np.linalg.inv(gram + ridge * np.eye(len(gram)))
    found = np.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        left = answers - matrix @ found
        step = matrix.T @ (inverse @ left) if wide else inverse @ (matrix.T @ left)
        found += step
        if np.abs(step).max() <= 1e-11 * max(1.0, float(np.abs(found).max())):
            break
    return found


ROUNDS = 200


def load_optimize() -> Any:
    """scipy.optimize, or a refusal that names the extra."""
    return _load_module("scipy.optimize", "scipy")


def load_sparse() -> Any:
    """scipy.sparse, or a refusal that names the extra."""
    return _load_module("scipy.sparse", "scipy")


def load_cp_sat() -> Any:
    """The CP-SAT module of OR-tools, or a refusal that names the extra."""
    return _load_module("ortools.sat.python.cp_model", "ortools")


def _load_module(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtra(
            f"This attack needs '{package}', which is not installed",
            remedy="Install it with: pip install 'deniable[solvers]'",
            charge="",
            extra="solvers",
        ) from None
