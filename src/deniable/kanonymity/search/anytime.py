"""Anytime search for lattices too large to list: a good solution soon, a better one later, a certified gap always.

Two hands work in turn. One descends greedily from a solution to less general nodes and steps aside where it is stuck.
The other enumerates nodes best-first, in the order of a lower bound that adds up over disjoint sets of columns; the
bound of the next node in that order is one for every node not yet seen, so it certifies how far the best solution can
be from the optimum. When it reaches the best cost, the solution is optimal.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deniable.kanonymity.kernels import pruning
from deniable.kanonymity.lattice import Lattice, Levels
from deniable.kanonymity.search.check import Checker
from deniable.kanonymity.search.optimal import cheapest_path
from deniable.kanonymity.search.problem import Problem, Proof, Solution, Verdict
from deniable.kanonymity.search.projections import Part, parts

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
        self._bisect(cheapest_path(self.checker))
        start = self.best or self.checker.check(self.lattice.top)
        self._step_aside(self._descend(start, 1.0, begun + 0.5 * allowed), begun + 0.5 * allowed)
        divided = parts(self.checker) if self.checker.additive and not self.checker.geometric else []
        self.bound = self._first_bound(divided)
        self._descend_until(begun + SHARE_OF_DESCENT * allowed)
        self._certify(divided, begun + allowed)
        return self._solution()

    def _bisect(self, path: list[Levels]) -> None:
        low, high = -1, len(path)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._try(path[middle]).acceptable else (middle, high)

    def _first_bound(self, divided: list[Part]) -> float:
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

    def _hopeless(self, levels: Levels) -> bool:
        """Whether a node needs no check: it lies below a failing one, or costs too much without any suppression."""
        if self.best is not None and self.checker.additive and self.checker.base(levels) >= self.best.cost:
            return True
        return bool(pruning.at_least(self._barred, np.array(levels, np.int8)).any()) if self._failing else False

    def _descend_until(self, deadline: float) -> None:
        # Choices only decide which solutions are met first; a fixed seed makes runs repeatable.
        chance = np.random.default_rng(0)
        start = self._raised(self.best, chance) if self.best else self.checker.check(self.lattice.top)
        while time.monotonic() < deadline and not self._optimal():
            thrift = float(chance.uniform(0.0, 2.0))
            found = self._descend(start, thrift, deadline)
            found = self._step_aside(found, deadline)
            base = self.best if self.best is not None and chance.random() < 0.7 else found
            start = self._raised(base, chance)
            self._tick()

    def _descend(self, verdict: Verdict, thrift: float, deadline: float) -> Verdict:
        """Go down while it pays: the step that saves most for the classes it adds, `thrift` weighing the latter."""
        while time.monotonic() < deadline:
            steps = [v for n in self.lattice.below(verdict.levels) if (v := self._try(n)).acceptable]
            better = [v for v in steps if v.cost < verdict.cost]
            if not better:
                return verdict
            verdict = max(better, key=lambda v: _worth(verdict, v, thrift))
        return verdict

    def _step_aside(self, verdict: Verdict, deadline: float) -> Verdict:
        """From a node where every step down fails, go one up in a column and down in another, while that is better."""
        improved = True
        while improved and time.monotonic() < deadline:
            improved = False
            for above in self.lattice.above(verdict.levels):
                for node in self.lattice.below(above):
                    if node == verdict.levels or node in self.checker.verdicts or self._hopeless(node):
                        continue
                    tried = self._try(node)
                    if tried.acceptable and tried.cost < verdict.cost:
                        verdict, improved = self._descend(tried, 1.0, deadline), True
                        break
                if improved or time.monotonic() >= deadline:
                    break
        return verdict

    def _raised(self, verdict: Verdict, chance: np.random.Generator) -> Verdict:
        """A more general acceptable node a few steps above, to descend from another side."""
        levels = list(verdict.levels)
        for q in chance.permutation(len(levels))[: int(chance.integers(2, max(3, len(levels) // 3 + 1)))]:
            levels[q] = min(levels[q] + int(chance.integers(1, 3)), self.lattice.heights[q] - 1)
        raised = self._try(tuple(levels))
        return raised if raised.acceptable else self.checker.check(self.lattice.top)

    def _certify(self, divided: list[Part], deadline: float) -> None:
        """Visit nodes in the order of their bounds; what has not been visited costs at least the last bound."""
        for bound, levels in in_order(divided, len(self.lattice.heights)):
            self.bound = max(self.bound, bound)
            if self._optimal() or time.monotonic() >= deadline:
                return
            if not self._hopeless(levels):
                self._try(levels)
            self._tick()
        if divided:
            self.bound = float("inf")  # every node that can be acceptable was visited

    def _optimal(self) -> bool:
        return self.best is not None and self.bound >= self.best.cost - 1e-12 * max(1.0, self.best.cost)

    def _tick(self) -> None:
        progress, begun, allowed = self._ticks
        if progress:
            progress(min(1.0, (time.monotonic() - begun) / max(allowed, 1e-9)))

    def _solution(self) -> Solution | None:
        if self.best is None:
            return None
        complete, nodes = self._optimal(), self.lattice.nodes
        bound = min(self.bound, self.best.cost)
        checks = len(self.checker.verdicts)
        proof = Proof(nodes, checks, checks, 0, nodes - checks if complete else 0, complete, bound)
        best = self.best
        return Solution(best.levels, best.cost, best.suppressed, best.classes, proof)


def _worth(now: Verdict, then: Verdict, thrift: float) -> float:
    added = max(then.classes - now.classes, 0) + max(then.suppressed - now.suppressed, 0) + 1
    return float((now.cost - then.cost) / added**thrift)


def in_order(divided: list[Part], width: int) -> Iterator[tuple[float, Levels]]:
    """Combinations of the parts' nodes, cheapest sum first: a heap over positions in the parts' own orders."""
    if not divided or any(not len(part.costs) for part in divided):
        return
    first = (0,) * len(divided)
    heap = [(float(sum(part.costs[0] for part in divided)), first, 0)]
    while heap:
        bound, places, last = heapq.heappop(heap)
        yield bound, _joined(divided, places, width)
        # Advancing only the last advanced part or a later one reaches every combination exactly once.
        for p in range(last, len(divided)):
            if places[p] + 1 < len(divided[p].costs):
                step = float(divided[p].costs[places[p] + 1] - divided[p].costs[places[p]])
                heapq.heappush(heap, (bound + step, (*places[:p], places[p] + 1, *places[p + 1 :]), p))


def _joined(divided: list[Part], places: tuple[int, ...], width: int) -> Levels:
    levels = [0] * width
    for part, place in zip(divided, places, strict=True):
        for q, level in zip(part.columns, part.nodes[place], strict=True):
            levels[q] = int(level)
    return tuple(levels)
