"""Solvers: exact linear algebra on 0/1 questions, and the optional HiGHS (scipy) and CP-SAT (OR-tools).

Elimination tells which people the answers to sums determine. It is done modulo the prime 2^31 - 1, so nothing is lost
to rounding. A person is determined over the rationals exactly when that holds modulo all but finitely many primes; a
false verdict would need a minor divisible by this one. HiGHS solves linear programs, CP-SAT whole numbers; where one is
not installed, the attack that needs it is refused by the name of the extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.errors import MissingExtra

PRIME = 2_147_483_647
Matrix = NDArray[np.int64]


def reduce_rows(rows: NDArray[np.bool_] | Matrix) -> tuple[Matrix, tuple[int, ...]]:
    """The reduced row echelon form modulo the prime, without zero rows, and the pivot columns."""
    matrix = np.asarray(rows, dtype=np.int64) % PRIME
    pivots: list[int] = []
    rank = 0
    for place in range(matrix.shape[1]):
        below = np.flatnonzero(matrix[rank:, place])
        if not len(below):
            continue
        chosen = rank + int(below[0])
        matrix[[rank, chosen]] = matrix[[chosen, rank]]
        matrix[rank] = matrix[rank] * pow(int(matrix[rank, place]), -1, PRIME) % PRIME
        others = np.flatnonzero(matrix[:, place])
        others = others[others != rank]
        # Products stay below 2^62, so they fit before the remainder is taken.
        matrix[others] = (matrix[others] - matrix[others, place][:, None] * matrix[rank]) % PRIME
        pivots.append(place)
        rank += 1
        if rank == matrix.shape[0]:
            break
    return matrix[:rank], tuple(pivots)


def find_determined(rows: NDArray[np.bool_] | Matrix) -> NDArray[np.bool_]:
    """Which unit vectors lie in the row space: the people whose value the sums over these rows determine.

    >>> find_determined(np.array([[1, 1, 1], [1, 1, 0]])).tolist()
    [False, False, True]
    """
    people = rows.shape[1]
    found = np.zeros(people, np.bool_)
    if not rows.size:
        return found
    form, pivots = reduce_rows(rows)
    # In reduced form a unit vector of the row space must be one of the rows.
    alone = (form != 0).sum(axis=1) == 1
    found[[pivot for pivot, single in zip(pivots, alone, strict=True) if single]] = True
    return found


def solve_least_squares(rows: NDArray[np.bool_] | Matrix, answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least-squares solution of least norm: exact where a person is determined, the group's mean where not."""
    return np.asarray(np.linalg.lstsq(np.asarray(rows, np.float64), answers, rcond=None)[0])


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
