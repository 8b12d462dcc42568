"""Local recoding in stages: what one full-domain recoding leaves out is recoded again, by itself, until nothing helps.

- *Optimal then local* solves the problem, then solves it again for the rows that were suppressed, and so on. Each round
  is optimal for its rows, and rows that conform early keep their finer levels (ARX offers the same as local recoding).
- *Cell suppression* keeps values as they are and blanks whole columns for the rows that need it: first one column, then
  two, the cheapest sets first. A class is made only of rows with the same cells blanked.

The rows of one round form classes of their own, and the distribution that closeness is measured against stays that of
the whole table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from deniable.errors import Infeasible, ParameterError
from deniable.kanonymity.encoding import Histograms, Tuples, build_histograms
from deniable.kanonymity.local_recoding import LocalRelease, order_leaves
from deniable.kanonymity.models import DeltaPresence, KMap
from deniable.kanonymity.request import Prepared
from deniable.kanonymity.search.check import Checker
from deniable.kanonymity.search.optimal import OptimalSearch
from deniable.kanonymity.search.problem import ENUMERABLE, Levels, Problem

Places = NDArray[np.int64]

ROUNDS = 50
DISSOLVED = 100
"""So many classes at most are dissolved to take in the rows that are left."""

MOST_SETS = 4096
"""So many sets of columns are tried when cells are suppressed."""


def optimal_then_local(prepared: Prepared) -> LocalRelease:
    """Solve with any number of rows suppressed, then recode again whatever was, and so on.

    The limit on suppression holds for what is left at the end.
    """
    problem = _require_plain(prepared.problem)
    made = _Assembly(prepared)
    left: Places = np.arange(problem.tuples.size)
    for _ in range(ROUNDS):
        levels = _find_next_levels(problem, left)
        if levels is None:
            break
        left = made.release(_restrict_problem(problem, left), left, levels)
    made.absorb(problem, left)
    return made.assemble()


def _find_next_levels(problem: Problem, left: Places) -> Levels | None:
    """The best node for the rows left: at least some of them must conform, any number may be suppressed again."""
    rest = _restrict_problem(problem, left)
    if not len(left) or rest.lattice.nodes > ENUMERABLE:
        return None
    solution = OptimalSearch(rest, Checker(rest)).run()
    return solution.levels if solution is not None and solution.suppressed < rest.tuples.rows else None


def suppress_cells(prepared: Prepared) -> LocalRelease:
    """Blank cells instead of generalizing: only the first and the last level of every column are used."""
    problem = _require_plain(prepared.problem)
    tops = problem.lattice.top
    if any(h.levels[-1].size > 1 for h in problem.hierarchies):
        raise ParameterError(
            "Cells can be suppressed only where every hierarchy ends in one group",
            remedy="Let each hierarchy end in one group, or use --method optimal",
        )
    made = _Assembly(prepared)
    left: Places = np.arange(problem.tuples.size)
    for blanked in _list_column_sets(Checker(problem), tops):
        if not len(left):
            break
        left = made.release(_restrict_problem(problem, left), left, blanked)
    made.absorb(problem, left)
    return made.assemble()


def _list_column_sets(checker: Checker, tops: Levels) -> Iterator[Levels]:
    """Sets of columns to blank, the cheapest first, as levels."""
    width = len(tops)
    every = (c for n in range(width + 1) for c in itertools.combinations(range(width), n))
    nodes = [
        tuple(tops[q] if q in chosen else 0 for q in range(width)) for chosen in itertools.islice(every, MOST_SETS)
    ]
    yield from sorted(nodes, key=checker.base) if checker.additive else nodes
    yield tops


def _require_plain(problem: Problem) -> Problem:
    if any(isinstance(model, KMap | DeltaPresence) for model in problem.models) or problem.risks:
        raise ParameterError(
            "Local recoding does not know the population or average risks",
            remedy="Use the optimal search for k-map, delta-presence and average risk",
        )
    return problem


def _restrict_problem(problem: Problem, left: Places) -> Problem:
    """The same problem for some of the tuples, any of whose rows may be suppressed."""
    old = problem.tuples
    tuples = Tuples(
        old.take_codes(left),
        old.counts[left],
        tuple(_select_histograms(h, left) for h in old.sensitive),
    )
    return replace(problem, tuples=tuples, limit=max(tuples.rows - 1, 0))


def _select_histograms(old: Histograms, left: Places) -> Histograms:
    place = np.full(len(old.starts) - 1, -1, np.int64)
    place[left] = np.arange(len(left))
    owner = place[np.repeat(np.arange(len(old.starts) - 1), np.diff(old.starts))]
    there = owner >= 0
    return build_histograms(owner[there], len(left), old.values[there], old.size, old.counts[there])


class _Assembly:
    """Collects the classes of all rounds."""

    def __init__(self, prepared: Prepared) -> None:
        problem = prepared.problem
        self.orders = tuple(order_leaves(h) for h in problem.hierarchies)
        self.ranks = [np.argsort(order).astype(np.int32) for order in self.orders]
        self.hierarchies = problem.hierarchies
        self.class_of = np.full(problem.tuples.size, -1, np.int64)
        none = np.zeros((0, problem.tuples.width), np.int32)  # where no class can hold, all rows may be suppressed
        self.low: list[NDArray[np.int32]] = [none]
        self.high: list[NDArray[np.int32]] = [none]
        self.sizes: list[int] = []

    def release(self, rest: Problem, left: Places, levels: Levels) -> Places:
        """Release the classes of a node that meet the models; returns the tuples that are left."""
        grouped, released = Checker(rest).release_classes(levels)
        number = np.full(len(released), -1, np.int64)
        number[released] = len(self.sizes) + np.arange(int(released.sum()))
        self.class_of[left] = number[grouped.class_of]
        codes = grouped.take_codes(released)
        runs = [self._runs(q, levels[q], codes[:, q]) for q in range(len(levels))]
        self.low.append(np.column_stack([low for low, _ in runs]))
        self.high.append(np.column_stack([high for _, high in runs]))
        self.sizes += grouped.sizes[released].tolist()
        return left[self.class_of[left] < 0]

    def absorb(self, problem: Problem, left: Places) -> None:
        """Where more rows are left than may be suppressed, dissolve small classes into one of everything with them."""
        if int(problem.tuples.counts[left].sum()) <= problem.limit:
            return None
        if all(h.levels[-1].size == 1 for h in problem.hierarchies):
            for number in np.argsort(self.sizes, kind="stable")[:DISSOLVED].tolist():
                left = np.concatenate([left, np.flatnonzero(self.class_of == number)])
                self.sizes[number] = 0
                if not len(rest := self.release(_restrict_problem(problem, left), left, problem.lattice.top)):
                    return self._without_empty()
                left = rest
        raise Infeasible(
            "More rows fit into no class than may be suppressed",
            remedy="Allow more suppression, ask for weaker models, or use the optimal search",
        )

    def _without_empty(self) -> None:
        kept = np.flatnonzero(self.sizes)
        number = np.full(len(self.sizes) + 1, -1, np.int64)
        number[kept] = np.arange(len(kept))
        self.class_of = number[self.class_of]
        self.low, self.high = [np.vstack(self.low)[kept]], [np.vstack(self.high)[kept]]
        self.sizes = [self.sizes[i] for i in kept]

    def _runs(self, q: int, level: int, codes: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The first and the last place of the group of each code."""
        groups = self.hierarchies[q].levels[level].groups
        first = np.full(self.hierarchies[q].levels[level].size, 2**30, np.int32)
        last = np.full(len(first), -1, np.int32)
        np.minimum.at(first, groups, self.ranks[q])
        np.maximum.at(last, groups, self.ranks[q])
        return first[groups[codes]], last[groups[codes]]

    def assemble(self) -> LocalRelease:
        sizes = np.array(self.sizes, np.int64)
        return LocalRelease(self.class_of, np.vstack(self.low), np.vstack(self.high), sizes, self.orders)
