"""Optimal full-domain recoding, with proof: every node is checked, or excluded by a reason that holds.

All nodes start as candidates, in the order of a lower bound on their cost. A check removes candidates in three ways: a
node that fails takes every node below it along, where the models allow that conclusion; what suppression adds at a node
it adds at every node below it, which raises their bounds; and a better solution removes all whose bound is not lower.
When no candidate is left, the best solution is the optimum. Nothing here depends on luck: the order of the checks only
decides how many there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.kanonymity.kernels import pruning
from deniable.kanonymity.search.check import Checker
from deniable.kanonymity.search.problem import Lattice, Levels, Problem, Proof, Solution, Verdict

Progress = Callable[[float], None]

TOLERANCE = 1e-12
"""A node must be better by this share of the cost to count as better; sums in another order differ by less."""

PIVOTS, PROBES = 64, 512
WORTH_CLIMBING = 0.02
"""A path upwards is followed only while it covers this much more of the candidates."""
IDLE = 8
"""After so many paths that led to no check, one is looked for at each eighth failing node only."""


@dataclass(eq=False)
class _Candidates:
    """The nodes that may still hold a better solution, in the order of their lower bounds."""

    nodes: NDArray[np.int8]
    marks: pruning.Marks
    static: NDArray[np.float64]
    lower: NDArray[np.float64]
    checked: int = 0
    failing: int = 0
    costly: int = 0

    def keep(self, kept: NDArray[np.bool_]) -> int:
        gone = int(len(kept) - np.count_nonzero(kept))
        if gone:
            self.nodes = np.compress(kept, self.nodes.T, axis=1).T
            self.marks = np.compress(kept, self.marks, axis=1)
            self.static, self.lower = self.static[kept], self.lower[kept]
        return gone


@dataclass(eq=False)
class OptimalSearch:
    """One search: its candidates, the best verdict so far, and the least general nodes known to be acceptable."""

    problem: Problem
    checker: Checker
    best: Verdict | None = None
    idle: int = 0
    """How many failing nodes there were since a path upwards led to another check."""

    def __post_init__(self) -> None:
        self.lattice: Lattice = self.problem.lattice
        self.scale = pruning.Scale(self.lattice.heights)
        self.accepted = np.zeros((self.scale.words, 0), np.uint64)
        nodes = self.lattice.all()
        static = compute_lower_bounds(self.checker, nodes)
        order = np.argsort(static, kind="stable")
        nodes = nodes.T.take(order, axis=1).T
        self.left = _Candidates(nodes, self.scale.mark(nodes), static[order], static[order].copy())

    def run(self, progress: Progress | None = None, seconds: float | None = None) -> Solution | None:
        """Search to the end, or until the time is over; None when no node is acceptable."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self._bisect(find_cheapest_path(self.checker))
        if not self.checker.additive:
            self._descend()
        while len(self.left.nodes) and (deadline is None or time.monotonic() < deadline):
            self._step()
            if progress:
                progress(1.0 - len(self.left.nodes) / self.lattice.nodes)
        return self._solution()

    def _step(self) -> None:
        nodes = self.left.nodes
        probes, pivots = _spread(len(nodes), PROBES), _spread(len(nodes), PIVOTS)
        marks = self.left.marks
        levels = _to_levels(nodes[pruning.choose_pivot(marks, pivots, probes, additive=self.checker.additive)])
        verdict = self.checker.check(levels)
        if verdict.barred and len(nodes) > PIVOTS:
            self._climb(levels, marks[:, probes])
        self._learn(verdict)

    def _climb(self, levels: Levels, seen: pruning.Marks) -> None:
        """Look for a failing node above a failing one, unless that has led nowhere for a while."""
        self.idle += 1
        if self.idle > IDLE and self.idle % IDLE:
            return
        before, ends = len(self.checker.verdicts), (np.array(levels, np.int8), np.array(self.lattice.top, np.int8))
        path, cover = pruning.climb(*ends, self.scale, seen, self.accepted)
        self._bisect_failing(path, cover, seen.shape[1])
        self.idle = self.idle if len(self.checker.verdicts) == before else 0

    def _bisect_failing(self, path: NDArray[np.int8], cover: NDArray[np.int64], probes: int) -> None:
        """Find the highest node of a path that still fails: the higher it is, the more lies below it."""
        low, high = 0, len(path)
        while high - low > 1 and cover[high - 1] - cover[low] > WORTH_CLIMBING * probes:
            middle = (low + high) // 2
            verdict = self.checker.check(_to_levels(path[middle]))
            low, high = (middle, high) if verdict.barred else (low, middle)
            self._note(verdict)
        if low:
            self._learn(self.checker.check(_to_levels(path[low])))

    def _bisect(self, path: list[Levels]) -> None:
        low, high = -1, len(path)
        while high - low > 1:
            middle = (low + high) // 2
            verdict = self.checker.check(path[middle])
            self._learn(verdict)
            low, high = (low, middle) if verdict.acceptable else (middle, high)

    def _descend(self) -> None:
        """Go down from the best solution while a node below is better: a good one early excludes much.

        Measures of classes have weak bounds before anything is checked, so that the order of the bounds leads nowhere.
        """
        before = None
        while self.best is not None and self.best is not before:
            before = self.best
            for node in self.lattice.below(before.levels):
                self._learn(self.checker.check(node))

    def _note(self, verdict: Verdict) -> None:
        """Remember a solution that is better, and a node that is acceptable."""
        if not verdict.acceptable:
            return
        if self.problem.monotone:
            self._accept(self.scale.mark_one(verdict.levels))
        if self.best is None or verdict.cost < self.best.cost - _scale_tolerance(self.best.cost):
            self.best = verdict

    def _accept(self, mark: pruning.Marks) -> None:
        if not pruning.lie_below(self.accepted, mark).any():
            left = self.accepted[:, ~pruning.lie_above(self.accepted, mark)]
            self.accepted = np.column_stack([left, mark])

    def _learn(self, verdict: Verdict) -> None:
        """Remove every candidate that this verdict excludes."""
        self._note(verdict)
        left, mark = self.left, self.scale.mark_one(verdict.levels)
        under, over = pruning.lie_below(left.marks, mark), pruning.lie_above(left.marks, mark)
        left.checked += count_checked(under, over)
        if verdict.barred:
            left.failing += int(np.count_nonzero(under)) - count_checked(under, over)
        else:
            left.lower[under] = np.maximum(left.lower[under], left.static[under] + verdict.excess)
        if not self.checker.additive:
            left.lower[over] = np.maximum(left.lower[over], verdict.floor)
        gone = under if verdict.barred else under & over
        left.keep(~gone)
        if self.best is not None:
            left.costly += left.keep(left.lower < self.best.cost - _scale_tolerance(self.best.cost))

    def _find_least_general(self, best: Verdict) -> Verdict:
        """The least general of the nodes that cost the same: what costs nothing to show is shown."""
        tolerance = _scale_tolerance(best.cost)
        for node in self.lattice.below(best.levels):
            if not self.checker.additive or self.checker.base(node) >= best.cost - tolerance - best.excess:
                verdict = self.checker.check(node)
                if verdict.acceptable and verdict.cost <= best.cost + tolerance:
                    return self._find_least_general(verdict)
        return best

    def _solution(self) -> Solution | None:
        left = self.left
        if self.best is None:
            return None
        best = self._find_least_general(self.best)
        complete = not len(left.nodes)
        bound = best.cost if complete else min(best.cost, float(left.lower.min()))
        proof = Proof(
            self.lattice.nodes,
            len(self.checker.verdicts),
            left.checked,
            left.failing,
            left.costly,
            complete,
            bound,
        )
        return Solution(best.levels, best.cost, best.suppressed, best.classes, proof)


def find_cheapest_path(checker: Checker) -> list[Levels]:
    """A path from bottom to top that takes the step with the lowest bound each time."""
    lattice = checker.problem.lattice
    path, node = [lattice.bottom], lattice.bottom
    while node != lattice.top:
        steps = lattice.above(node)
        node = steps[int(np.argmin(compute_lower_bounds(checker, np.array(steps, np.int8))))]
        path.append(node)
    return path


def count_checked(under: NDArray[np.bool_], over: NDArray[np.bool_]) -> int:
    """1 where the node itself is still a candidate (it alone is both under and over itself), else 0."""
    return int(np.count_nonzero(under & over))


def compute_lower_bounds(checker: Checker, nodes: NDArray[np.int8]) -> NDArray[np.float64]:
    """For every node the least it can cost: one sum over columns for all nodes at once."""
    if checker.additive:
        if not checker.geometric:  # the common case, without a table of all columns
            total = np.zeros(len(nodes))
            for q, costs in enumerate(checker.column_costs):
                total += costs[nodes[:, q]]
            return total
        columns = np.stack([costs[nodes[:, q]] for q, costs in enumerate(checker.column_costs)])
        return np.asarray(checker.combine_costs(columns), np.float64)
    groups = np.ones(len(nodes))
    for q, h in enumerate(checker.problem.hierarchies):
        groups *= np.array([level.size for level in h.levels], np.float64)[nodes[:, q]]
    tuples = checker.problem.tuples
    return checker.problem.measure.bound(np.minimum(groups, max(tuples.size, 1)), tuples.rows)  # type: ignore[union-attr]


def _spread(many: int, most: int) -> NDArray[np.int64]:
    """At most so many places, spread evenly from the first to the last."""
    taken = min(many, most)
    return np.arange(taken) * (many - 1) // max(taken - 1, 1)


def _to_levels(node: NDArray[np.int8]) -> Levels:
    return tuple(node.tolist())


def _scale_tolerance(cost: float) -> float:
    return TOLERANCE * max(1.0, abs(cost))
