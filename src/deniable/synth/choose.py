"""Which marginals to measure: a spanning tree, or as many pairs as bring more than their noise costs.

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


def equal_shares(cliques: tuple[Clique, ...]) -> Chosen:
    """Every clique gets the same."""
    shares = tuple(1.0 / len(cliques) for _ in cliques) if cliques else ()
    return Chosen(cliques, shares, f"a spanning forest of {len(cliques)} pairs, the strongest that hold together")


def tree(problem: Problem) -> Chosen:
    """A spanning tree, every pair with the same share."""
    return equal_shares(spanning_tree(len(problem.domain), problem.pairs, problem.scores))


def worthwhile(problem: Problem) -> Chosen:
    """The cliques (pairs, and columns once more) that lower the expected error of all pairs most, greedily.

    The expected L1 error of a pair that is not measured is its score plus the errors of its columns; that
    of a measured pair is the noise on its cells. A clique of c cells with variance v has noise about
    sqrt(2 v / pi) c, and for a fixed total of 1 / v the sum of such noises is least when the shares grow like
    c^(2/3). Adding a clique thins out the others, so the greedy search ends by itself where nothing more pays.
    """
    columns, scores, one_way = len(problem.domain), problem.scores, problem.column_errors
    singles: list[Clique] = [(place,) for place in range(columns)]
    candidates = [*problem.pairs, *singles]
    of_pairs = [float(problem.domain.cells(pair)) for pair in problem.pairs]
    cells = np.array([*of_pairs, *problem.column_cells], dtype=np.float64)
    scale = DENOISED * math.sqrt(2 / math.pi) * problem.rows / math.sqrt(max(problem.amount, 1e-300))
    chosen: list[int] = []
    best = start = _error(_Trial(chosen, candidates, cells, columns), scores, one_way, scale)
    open_places = set(range(len(candidates)))
    while open_places:
        trials = {
            i: _error(_Trial([*chosen, i], candidates, cells, columns), scores, one_way, scale) for i in open_places
        }
        pick = min(trials, key=lambda i: trials[i])
        if trials[pick] >= best * (1 - 1e-9):
            break
        best = trials[pick]
        chosen.append(pick)
        open_places.remove(pick)
    final = _Trial(chosen, candidates, cells, columns)
    shares = tuple(float(share) for share in final.shares)
    return Chosen(tuple(candidates[i] for i in chosen), shares, _reason(chosen, len(scores), start, best))


def _reason(chosen: list[int], pairs: int, start: float, best: float) -> str:
    measured = sum(place < pairs for place in chosen)
    if not measured:
        return f"no pair of {pairs} brings more than its noise costs at this budget: columns stay independent"
    saved = 1.0 - best / max(start, 1e-300)
    return (
        f"{measured} of {pairs} pairs measured, {len(chosen) - measured} columns once more: the expected error of all "
        f"pairs falls by {saved:.0%} against independent columns, and a further pair would cost more than it brings"
    )


class _Trial:
    """A set of candidates with the shares that suit it.

    The noise on a column counts once for every pair with it that is not measured, so with these weights w the sum of
    w c / sqrt(share) is least for shares like (w c)^(2/3).
    """

    def __init__(self, chosen: list[int], candidates: list[Clique], cells: Floats, columns: int) -> None:
        self.chosen = chosen
        self.candidates = candidates
        measured = [candidates[i] for i in chosen if len(candidates[i]) == 2]
        touched = np.bincount(np.array([p for pair in measured for p in pair], dtype=np.int64), minlength=columns)
        weights = [max(columns - 1 - touched[candidates[i][0]], 1) if len(candidates[i]) == 1 else 1 for i in chosen]
        sized = (np.array(weights, dtype=np.float64) * cells[chosen]) ** (2 / 3)
        self.shares: Floats = sized / sized.sum() if sized.size else sized
        self.cells: Floats = cells[chosen]


def _error(trial: _Trial, scores: Floats, one_way: Floats, scale: float) -> float:
    """The expected L1 error over all pairs if these candidates are measured."""
    noise = scale * trial.cells / np.sqrt(trial.shares)
    single = one_way.copy()
    unmeasured = np.ones(len(scores), dtype=bool)
    error = 0.0
    for i, place in enumerate(trial.chosen):
        if place < len(scores):
            unmeasured[place] = False
            error += float(noise[i])
        else:
            column = trial.candidates[place][0]
            # Two measurements of one column, joined by inverse variances.
            single[column] = 1.0 / math.sqrt(1.0 / single[column] ** 2 + 1.0 / max(noise[i], 1e-9) ** 2)
    pairs = np.array(trial.candidates[: len(scores)], dtype=np.int64)
    alone = np.maximum(scores, 0.0) + single[pairs[:, 0]] + single[pairs[:, 1]]
    return error + float(alone[unmeasured].sum())
