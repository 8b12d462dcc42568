"""Anytime search for lattices too large to list: a good solution soon, a better one later, a certified gap always.

Two methods take turns. One descends greedily from a solution to less general nodes and steps aside where it is stuck.
The other enumerates nodes best-first, in the order of a lower bound that adds up over disjoint sets of columns; the
bound of the next node in that order is one for every node not yet seen, so it certifies how far the best solution can
be from the optimum. When it reaches the best cost, the solution is optimal.

Bounds come from a few columns at a time. Rows that share a class share it also when some columns are left out, so what
must be suppressed when only some columns are looked at must be suppressed in any release with all of them, and the cost
of those columns' cells is at least what the smaller problem costs. Over disjoint sets of columns these costs add up."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from deniable.kanonymity.encoding import Counts, Tuples, number_rows, regroup_histograms, stack_codes
from deniable.kanonymity.hierarchy import Hierarchy
from deniable.kanonymity.kernels import pruning
from deniable.kanonymity.quality import Costs
from deniable.kanonymity.search.check import Checker
from deniable.kanonymity.search.optimal import find_cheapest_path
from deniable.kanonymity.search.problem import Lattice, Levels, Problem, Proof, Solution, Verdict

Progress = Callable[[float], None]

DEFAULT_SECONDS = 10.0
SHARE_OF_DESCENT = 0.8
"""Of the time, so much goes to finding solutions and the rest to raising the bound."""

BARRED_KEPT = 400
"""So many failing nodes are remembered, the most general first, to skip nodes below them."""


@dataclass(eq=False)
class AnytimeSearch:
    """One search: the best verdict so far and the certified bound."""

    problem: Problem
    checker: Checker
    best: Verdict | None = None
    bound: float = 0.0
    _failing: list[Levels] = field(default_factory=list)
    _barred: NDArray[np.int8] = field(default_factory=lambda: np.empty((0, 0), np.int8))

    def run(self, progress: Progress | None = None, seconds: float | None = None) -> Solution | None:
        """Search until the time is over or the solution is proved optimal; None when no node was acceptable."""
        begun = time.monotonic()
        allowed = DEFAULT_SECONDS if seconds is None else seconds
        self.lattice: Lattice = self.problem.lattice
        self._ticks = (progress, begun, allowed)
        if not self._try(self.lattice.top).acceptable and self.problem.monotone:
            return None
        # A solution first, however short the time: the cheapest path up, then down again from where it begins to hold.
        self._bisect(find_cheapest_path(self.checker))
        start = self.best or self.checker.check(self.lattice.top)
        self._step_aside(self._descend(start, 1.0, begun + 0.5 * allowed), begun + 0.5 * allowed)
        divided = divide_problem(self.checker) if self.checker.additive and not self.checker.geometric else []
        self.bound = self._find_first_bound(divided)
        self._descend_until(begun + SHARE_OF_DESCENT * allowed)
        self._certify(divided, begun + allowed)
        return self._solution()

    def _bisect(self, path: list[Levels]) -> None:
        low, high = -1, len(path)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._try(path[middle]).acceptable else (middle, high)

    def _find_first_bound(self, divided: list[Part]) -> float:
        if divided:
            return float(sum(part.costs[0] for part in divided if len(part.costs)))
        return self.checker.check(self.lattice.bottom).base

    def _try(self, levels: Levels) -> Verdict:
        verdict = self.checker.check(levels)
        if verdict.barred and len(self._failing) < BARRED_KEPT:
            self._failing.append(levels)
            self._barred = np.array(self._failing, np.int8)
        if verdict.acceptable and (self.best is None or verdict.cost < self.best.cost):
            self.best = verdict
        return verdict

    def _is_hopeless(self, levels: Levels) -> bool:
        """Whether a node needs no check: it lies below a failing one, or costs too much without any suppression."""
        if self.best is not None and self.checker.additive and self.checker.base(levels) >= self.best.cost:
            return True
        return bool(pruning.at_least(self._barred, np.array(levels, np.int8)).any()) if self._failing else False

    def _descend_until(self, deadline: float) -> None:
        # Choices only decide which solutions are met first; a fixed seed makes runs repeatable.
        chance = np.random.default_rng(0)
        start = self._raise_levels(self.best, chance) if self.best else self.checker.check(self.lattice.top)
        while time.monotonic() < deadline and not self._is_optimal():
            thrift = float(chance.uniform(0.0, 2.0))
            found = self._descend(start, thrift, deadline)
            found = self._step_aside(found, deadline)
            base = self.best if self.best is not None and chance.random() < 0.7 else found
            start = self._raise_levels(base, chance)
            self._tick()

    def _descend(self, verdict: Verdict, thrift: float, deadline: float) -> Verdict:
        """Go down while it pays: the step that saves most for the classes it adds, `thrift` weighing the latter."""
        while time.monotonic() < deadline:
            steps = [v for n in self.lattice.below(verdict.levels) if (v := self._try(n)).acceptable]
            better = [v for v in steps if v.cost < verdict.cost]
            if not better:
                return verdict
            verdict = max(better, key=lambda v: _measure_worth(verdict, v, thrift))
        return verdict

    def _step_aside(self, verdict: Verdict, deadline: float) -> Verdict:
        """From a node where every step down fails, go one up in a column and down in another, while that is better."""
        improved = True
        while improved and time.monotonic() < deadline:
            improved = False
            for above in self.lattice.above(verdict.levels):
                for node in self.lattice.below(above):
                    if node == verdict.levels or node in self.checker.verdicts or self._is_hopeless(node):
                        continue
                    tried = self._try(node)
                    if tried.acceptable and tried.cost < verdict.cost:
                        verdict, improved = self._descend(tried, 1.0, deadline), True
                        break
                if improved or time.monotonic() >= deadline:
                    break
        return verdict

    def _raise_levels(self, verdict: Verdict, chance: np.random.Generator) -> Verdict:
        """A more general acceptable node a few steps above, to descend from another side."""
        levels = list(verdict.levels)
        for q in chance.permutation(len(levels))[: int(chance.integers(2, max(3, len(levels) // 3 + 1)))]:
            levels[q] = min(levels[q] + int(chance.integers(1, 3)), self.lattice.heights[q] - 1)
        raised = self._try(tuple(levels))
        return raised if raised.acceptable else self.checker.check(self.lattice.top)

    def _certify(self, divided: list[Part], deadline: float) -> None:
        """Visit nodes in the order of their bounds; what has not been visited costs at least the last bound."""
        for bound, levels in enumerate_nodes(divided, len(self.lattice.heights)):
            self.bound = max(self.bound, bound)
            if self._is_optimal() or time.monotonic() >= deadline:
                return
            if not self._is_hopeless(levels):
                self._try(levels)
            self._tick()
        if divided:
            self.bound = float("inf")  # every node that can be acceptable was visited

    def _is_optimal(self) -> bool:
        return self.best is not None and self.bound >= self.best.cost - 1e-12 * max(1.0, self.best.cost)

    def _tick(self) -> None:
        progress, begun, allowed = self._ticks
        if progress:
            progress(min(1.0, (time.monotonic() - begun) / max(allowed, 1e-9)))

    def _solution(self) -> Solution | None:
        if self.best is None:
            return None
        complete, nodes = self._is_optimal(), self.lattice.nodes
        bound = min(self.bound, self.best.cost)
        checks = len(self.checker.verdicts)
        proof = Proof(nodes, checks, checks, 0, nodes - checks if complete else 0, complete, bound)
        best = self.best
        return Solution(best.levels, best.cost, best.suppressed, best.classes, proof)


def _measure_worth(now: Verdict, then: Verdict, thrift: float) -> float:
    added = max(then.classes - now.classes, 0) + max(then.suppressed - now.suppressed, 0) + 1
    return float((now.cost - then.cost) / added**thrift)


def enumerate_nodes(divided: list[Part], width: int) -> Iterator[tuple[float, Levels]]:
    """Combinations of the parts' nodes, cheapest sum first: a heap over positions in the parts' own orders."""
    if not divided or any(not len(part.costs) for part in divided):
        return
    first = (0,) * len(divided)
    heap = [(float(sum(part.costs[0] for part in divided)), first, 0)]
    while heap:
        bound, places, last = heapq.heappop(heap)
        yield bound, _combine_parts(divided, places, width)
        # Advancing only the last advanced part or a later one reaches every combination exactly once.
        for p in range(last, len(divided)):
            if places[p] + 1 < len(divided[p].costs):
                step = float(divided[p].costs[places[p] + 1] - divided[p].costs[places[p]])
                heapq.heappush(heap, (bound + step, (*places[:p], places[p] + 1, *places[p + 1 :]), p))


def _combine_parts(divided: list[Part], places: tuple[int, ...], width: int) -> Levels:
    levels = [0] * width
    for part, place in zip(divided, places, strict=True):
        for q, level in zip(part.columns, part.nodes[place], strict=True):
            levels[q] = int(level)
    return tuple(levels)


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


def divide_problem(checker: Checker) -> list[Part]:
    """The columns of a problem in disjoint sets, each with its possible nodes in the order of their least cost."""
    problem = checker.problem
    tables = problem.measure.costs(problem.hierarchies, problem.tuples)  # type: ignore[union-attr]
    return [_solve_part(problem, columns, tables) for columns in _divide_columns(problem)]


def _divide_columns(problem: Problem) -> list[tuple[int, ...]]:
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


def _solve_part(problem: Problem, columns: tuple[int, ...], tables: list[Costs]) -> Part:
    smaller = replace(
        problem,
        tuples=_project_tuples(problem.tuples, columns, [problem.hierarchies[q].size for q in columns]),
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


def _project_tuples(tuples: Tuples, columns: tuple[int, ...], sizes: Sequence[int]) -> Tuples:
    kept = [tuples.codes[:, q] for q in columns]
    many, first, number = number_rows(kept, sizes)
    codes = stack_codes([column[first] for column in kept])
    people = None if tuples.population is None else _sum_counts(number, tuples.population, many)
    held = tuple(regroup_histograms(h, number, many) for h in tuples.sensitive)
    return Tuples(codes, _sum_counts(number, tuples.counts, many), held, people)


def _sum_counts(number: NDArray[np.int64], amounts: Counts, many: int) -> Counts:
    return np.bincount(number, weights=amounts, minlength=many).astype(np.int64)
