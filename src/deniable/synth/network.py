"""A Bayesian network of degree two, chosen as PrivBayes does: every column hangs on at most two earlier ones.

PrivBayes (Zhang et al. 2017) grows the network column by column, picks the parents with noise, and gives a column
fewer parents where its table would drown in noise. Here the noise is in the scores of pairs, which are measured once
for all: a column's gain from two parents is the sum of its scores with them. That sees what pairs show, not what only
three columns together show. All of this is from public numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from deniable.synth.choose import Chosen, Problem
from deniable.synth.domain import Clique, Domain
from deniable.synth.marginal import Floats
from deniable.synth.once import ChoosesOnce

USEFUL = 4.0
"""A table is measured only if its cells hold so many deviations of the noise on average (PrivBayes' theta)."""
NEAREST = 8
"""How many of the best earlier columns are tried as parents of a column."""


def network(problem: Problem) -> Chosen:
    """The families of a network, in the order in which they are drawn: each has one column that no earlier one has.

    The first column and its first child are the pair of the largest score. Shares grow like the 2/3rd power of the
    cells, which makes the summed noise least (see `choose.worthwhile`).
    """
    columns = len(problem.domain)
    table = _square(columns, problem.pairs, problem.scores)
    most = _most_cells(problem)
    start = int(np.argmax(table.max(axis=1)))
    done, families = [start], []
    while len(done) < columns:
        child, parents = _next(table, done, problem.domain, most)
        done.append(child)
        if parents:
            families.append(tuple(sorted((child, *parents))))
    sized = np.array([float(problem.domain.cells(family)) for family in families]) ** (2 / 3)
    shares = sized / sized.sum() if families else sized
    return Chosen(tuple(families), tuple(float(share) for share in shares), _reason(families, columns, most))


def _square(columns: int, pairs: list[Clique], scores: Floats) -> NDArray[np.float64]:
    table = np.zeros((columns, columns))
    for (a, b), score in zip(pairs, scores, strict=True):
        table[a, b] = table[b, a] = max(float(score), 0.0)
    return table


def _most_cells(problem: Problem) -> float:
    """The cells over which the records still stand out of the noise, if every family gets the same share."""
    families = max(len(problem.domain) - 1, 1)
    deviation = problem.rows * math.sqrt(families / max(problem.amount, 1e-300))
    return problem.total / (USEFUL * deviation)


def _next(table: NDArray[np.float64], done: list[int], domain: Domain, most: float) -> tuple[int, Clique]:
    """The column that gains most from parents, with them; without parents where nothing useful has a gain."""
    waiting = [place for place in range(len(domain)) if place not in done]
    best, choice = 0.0, (waiting[0], Clique())
    for child in waiting:
        for parents in _candidates(table[child], done):
            gain = float(table[child, list(parents)].sum())
            if gain > best and domain.cells((child, *parents)) <= most:
                best, choice = gain, (child, parents)
    return choice


def _candidates(scores: NDArray[np.float64], done: list[int]) -> Iterator[Clique]:
    """Parents worth trying: those with a score, the best of them in pairs."""
    known = [place for place in sorted(done, key=lambda place: -scores[place]) if scores[place] > 0]
    yield from ((place,) for place in known)
    yield from itertools.combinations(known[:NEAREST], 2)


def _reason(families: list[Clique], columns: int, most: float) -> str:
    threes = sum(len(family) == 3 for family in families)
    alone = columns - 1 - len(families)
    return (
        f"{threes} columns have two parents, {len(families) - threes} have one, {alone} beside the first have none: "
        f"tables of more than {most:,.0f} cells would drown in noise"
    )


correlated = ChoosesOnce("correlated", columns=0.2, scores=0.1, choose=network)
