"""Which marginals to measure, from noisy scores: a spanning tree, or the pairs that bring more than their noise costs.

All choices are made from noisy scores and public sizes, so they cost nothing beyond the scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deniable.synth.domain import Clique, Domain
from deniable.synth.marginal import Floats

DENOISED = 0.8
"""What projection onto the simplex and agreement between marginals leave of the noise, roughly: for weighing only."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What is known, publicly, when cliques are chosen."""

    domain: Domain
    """Of the collapsed columns, in which pairs are measured."""
    pairs: list[Clique]
    scores: Floats
    """How much each pair departs from independence, less what noise alone explains."""
    column_cells: Floats
    """How many values each column has before collapsing: a column is measured again in full."""
    column_errors: Floats
    """The expected L1 error of each column's estimate."""
    column_within: Floats
    """The part of it that lies between values that were joined: measuring a pair does not mend it."""
    amount: float
    """What is left to spend."""
    rows: int
    """The most records of a unit."""
    total: float
    """The estimated number of records."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Cliques to measure, each with its share of what is left to spend; shares add up to at most one."""

    cliques: tuple[Clique, ...]
    shares: tuple[float, ...]
    reason: str = ""
    """Why these, in a sentence made of public numbers."""


def spanning_tree(columns: int, pairs: list[Clique], scores: Floats) -> tuple[Clique, ...]:
    """The spanning forest of the largest total score (Kruskal); pairs without a positive score are left out."""
    parent = list(range(columns))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    tree = []
    for i in np.argsort(-scores, kind="stable"):
        a, b = pairs[i]
        if scores[i] > 0 and root(a) != root(b):
            parent[root(a)] = root(b)
            tree.append(pairs[i])
    return tuple(tree)


def worthwhile(problem: Problem) -> Chosen:
    """The cliques (pairs, and columns once more) that lower the expected error of all pairs most, greedily.

    The expected L1 error of a pair that is not measured is its score plus the errors of its columns; that of a
    measured pair is the noise on its cells, and what errors its columns have between values that were joined (left out,
    a pair of few joined values looks better than it is, and a tiny budget is spent on pairs that columns need more).
    A clique of c cells with variance v has noise about sqrt(2 v / pi) c, and for a fixed total of 1 / v the sum of such
    noises is least when the shares grow like c^(2/3). Adding a clique thins out the others, so the greedy search ends
    by itself where nothing more pays.
    """
    columns = len(problem.domain)
    singles: list[Clique] = [(place,) for place in range(columns)]
    candidates = [*problem.pairs, *singles]
    trials = _Trials(problem)
    chosen: list[int] = []
    best = start = float(trials.errors()[-1])
    while len(chosen) < len(candidates):
        errors = trials.errors()[:-1]
        pick = int(np.argmin(errors))
        if errors[pick] >= best * (1 - 1e-9):
            break
        best = float(errors[pick])
        chosen.append(pick)
        trials.add(pick)
    shares = tuple(float(share) for share in trials.shares(chosen))
    return Chosen(tuple(candidates[i] for i in chosen), shares, _reason(chosen, len(problem.pairs), start, best))


def parts_of(problem: Problem, chosen: Chosen) -> list[float]:
    """The parts z = (w c)^(2/3) from which the shares of a choice were made: w is 1 for a pair, and for a column the
    number of pairs with it that are not measured, and of the others what lies between joined values."""
    found = []
    for clique in chosen.cliques:
        measured = sum(clique[0] in other for other in chosen.cliques if len(other) == 2)
        open_pairs = len(problem.domain) - 1 - measured * (1.0 - float(problem.column_within[clique[0]]))
        single = max(open_pairs, 1.0) * float(problem.column_cells[clique[0]])
        found.append((problem.domain.cells(clique) if len(clique) == 2 else single) ** (2 / 3))
    return found


def _reason(chosen: list[int], pairs: int, start: float, best: float) -> str:
    measured = sum(place < pairs for place in chosen)
    if not measured:
        return f"no pair of {pairs} brings more than its noise costs at this budget: columns stay independent"
    saved = 1.0 - best / max(start, 1e-300)
    return (
        f"{measured} of {pairs} pairs measured, {len(chosen) - measured} columns once more: the expected error of all "
        f"pairs falls by {saved:.0%} against independent columns, and a further pair would cost more than it brings"
    )


class _Trials:
    """What is chosen so far, and the expected error with each further candidate, all candidates at once.

    The noise on a column counts once for every pair with it that is not measured, and for the others as far as it lies
    between joined values, so with these weights w the sum of
    w c / sqrt(share) is least for shares like z = (w c)^(2/3), out of their sum Z. A pair has w = 1 and so the noise
    scale c sqrt(Z / z) = scale sqrt(Z) z: all measured pairs together err by scale sqrt(Z) times the sum of their z.
    The last row of every array is the choice as it is, without a further candidate.
    """

    def __init__(self, problem: Problem) -> None:
        columns, pairs = len(problem.domain), np.array(problem.pairs, dtype=np.int64).reshape(-1, 2)
        rows = len(pairs) + columns + 1
        self._problem = problem
        self._scale = DENOISED * math.sqrt(2 / math.pi) * problem.rows / math.sqrt(max(problem.amount, 1e-300))
        self._touches = np.zeros((rows, columns))
        self._touches[np.arange(len(pairs))[:, np.newaxis], pairs] = 1
        self._single = np.zeros((rows, columns), dtype=bool)
        self._single[len(pairs) + np.arange(columns), np.arange(columns)] = True
        self._sized, self._worth = np.zeros(rows), np.zeros(rows)
        self._sized[: len(pairs)] = [problem.domain.cells(pair) ** (2 / 3) for pair in problem.pairs]
        self._worth[: len(pairs)] = np.maximum(problem.scores, 0.0)
        self._open = np.ones(rows, dtype=bool)
        # A column of one value says nothing but how many records there are, which every other column says as well.
        self._open[len(pairs) : len(pairs) + columns] = problem.column_cells > 1

    def add(self, place: int) -> None:
        """Choose a candidate: every further trial has it."""
        self._open[place] = False
        self._single[self._open] |= self._single[place]
        for held in (self._touches, self._sized, self._worth):
            # A candidate's row has all that was chosen before it, as the last row has: their difference is its own.
            held[self._open] += held[place] - held[-1]

    def errors(self) -> Floats:
        """The expected L1 error over all pairs with each candidate; without end for those chosen already."""
        cells, one_way = self._problem.column_cells, self._problem.column_errors
        unmeasured, sized = self._column_sizes()
        whole = self._sized + sized.sum(axis=1)
        noise = self._scale * cells * np.sqrt(whole[:, np.newaxis] / np.where(self._single, sized, 1.0))
        # Two measurements of one column, joined by inverse variances.
        joined = 1.0 / np.sqrt(1.0 / np.maximum(one_way, 1e-9) ** 2 + 1.0 / np.maximum(noise, 1e-9) ** 2)
        alone = np.where(self._single, joined, one_way)
        left = float(np.maximum(self._problem.scores, 0.0).sum()) - self._worth
        errors: Floats = self._scale * np.sqrt(whole) * self._sized + left + (unmeasured * alone).sum(axis=1)
        return np.where(self._open, errors, np.inf)

    def shares(self, chosen: list[int]) -> Floats:
        """The shares that suit the choice as it is."""
        pairs = len(self._problem.pairs)
        columns = self._column_sizes()[1][-1]
        cliques = self._problem.pairs
        sized = [self._problem.domain.cells(cliques[i]) ** (2 / 3) if i < pairs else columns[i - pairs] for i in chosen]
        found: Floats = np.array(sized, dtype=np.float64)
        return found / found.sum() if chosen else found

    def _column_sizes(self) -> tuple[Floats, Floats]:
        """How many pairs each column's error is in, and z of the columns that are measured once more.

        A pair that is measured has the part of it that lies between joined values.
        """
        unmeasured = len(self._problem.domain) - 1 - self._touches * (1.0 - self._problem.column_within)
        sized = (np.maximum(unmeasured, 1.0) * self._problem.column_cells) ** (2 / 3)
        return unmeasured, np.where(self._single, sized, 0.0)
