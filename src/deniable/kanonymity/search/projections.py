"""Lower bounds from a few columns at a time, for lattices too large to list.

Rows that share a class share it also when some columns are left out. So what must be suppressed when only some columns
are looked at must be suppressed in any release with all of them, and the cost of those columns' cells is at least what
the smaller problem costs. Over disjoint sets of columns these costs add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deniable.kanonymity.hierarchy import Hierarchy
from deniable.kanonymity.kernels import pruning
from deniable.kanonymity.lattice import Lattice
from deniable.kanonymity.quality.cells import Costs
from deniable.kanonymity.search.check import Checker
from deniable.kanonymity.search.problem import Problem
from deniable.kanonymity.tuples import Counts, Histograms, Tuples, distinct_rows, histogram

SMALL = 600
"""Sets of columns are chosen so that their lattice has at most so many nodes."""


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """Some columns, the nodes of their lattice that may be part of a solution, and what each costs at least."""

    columns: tuple[int, ...]
    nodes: NDArray[np.int8]
    costs: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Given:
    """The costs of some columns, as the whole problem has them."""

    tables: tuple[Costs, ...]

    def costs(self, _hierarchies: Sequence[Hierarchy], _tuples: Tuples) -> list[Costs]:
        return list(self.tables)


def parts(checker: Checker) -> list[Part]:
    """The columns of a problem in disjoint sets, each with its possible nodes in the order of their least cost."""
    problem = checker.problem
    tables = problem.measure.costs(problem.hierarchies, problem.tuples)  # type: ignore[union-attr]
    return [_part(problem, columns, tables) for columns in _divided(problem)]


def _divided(problem: Problem) -> list[tuple[int, ...]]:
    """Columns with many different values together: they are the ones that conflict."""
    rank = sorted(range(len(problem.hierarchies)), key=lambda q: -len(np.unique(problem.tuples.codes[:, q])))
    divided: list[tuple[int, ...]] = [()]
    for q in rank:
        joined = (*divided[-1], q)
        if math.prod(problem.hierarchies[c].height for c in joined) > SMALL and divided[-1]:
            divided.append((q,))
        else:
            divided[-1] = joined
    return divided


def _part(problem: Problem, columns: tuple[int, ...], tables: list[Costs]) -> Part:
    smaller = replace(
        problem,
        tuples=_projected(problem.tuples, columns, [problem.hierarchies[q].size for q in columns]),
        hierarchies=tuple(problem.hierarchies[q] for q in columns),
        models=problem.relaxed,
        measure=_Given(tuple(tables[q] for q in columns)),
        risks=(),
    )
    checker = Checker(smaller)
    nodes = Lattice(tuple(h.height for h in smaller.hierarchies)).all()
    costs, open_ = np.full(len(nodes), np.inf), np.ones(len(nodes), np.bool_)
    for i in np.argsort(-nodes.sum(axis=1, dtype=np.int64), kind="stable"):
        if open_[i]:
            verdict = checker.check(tuple(int(level) for level in nodes[i]))
            if verdict.barred:
                open_ &= ~pruning.at_most(nodes, nodes[i])
            else:
                costs[i] = verdict.base + verdict.excess
    order = np.argsort(costs, kind="stable")[: int(np.isfinite(costs).sum())]
    return Part(columns, nodes[order], costs[order])


def _projected(tuples: Tuples, columns: tuple[int, ...], sizes: Sequence[int]) -> Tuples:
    kept = [tuples.codes[:, q] for q in columns]
    many, first, number = distinct_rows(kept, sizes)
    codes = np.ascontiguousarray(np.column_stack([column[first] for column in kept]).astype(np.int32))
    people = None if tuples.population is None else _summed(number, tuples.population, many)
    held = tuple(_moved(h, number, many) for h in tuples.sensitive)
    return Tuples(codes, _summed(number, tuples.counts, many), held, people)


def _summed(number: NDArray[np.int64], amounts: Counts, many: int) -> Counts:
    return np.bincount(number, weights=amounts, minlength=many).astype(np.int64)


def _moved(old: Histograms, place: NDArray[np.int64], owners: int) -> Histograms:
    owner = place[np.repeat(np.arange(len(old.starts) - 1), np.diff(old.starts))]
    return histogram(owner, owners, old.values, old.size, old.counts)
