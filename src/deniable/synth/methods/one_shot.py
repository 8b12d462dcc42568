"""One-shot methods: what is measured is selected at most once.

*random* measures nothing: every value is as likely as any other. It costs nothing and says nothing; good for trying a
pipeline. *independent* puts the whole budget into one-way counts. The others measure every column, score every pair,
select cliques from the scores, measure them, estimate:

*mst* takes a maximum spanning tree of pairs (McKenna, Miklau and Sheldon 2021). *correlated* takes a Bayesian network
of degree two as PrivBayes (Zhang et al. 2017) does, which grows it column by column and gives a column fewer parents
where its table would be lost in noise. Here the noise is in the scores of pairs, measured once for all: a column's gain
from two parents is the sum of its scores with them. That sees what pairs show, not what only three columns together
show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, NoOpEvent
from deniable.dp.samplers import Entropy
from deniable.synth.bins import CollapsedDomain, collapse_domain
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates, estimate_marginals
from deniable.synth.marginal import Floats, Records
from deniable.synth.measure import MethodSettings, measure_cliques, measure_columns, score_pairs
from deniable.synth.model import Description
from deniable.synth.select import Selection, SelectionProblem, find_spanning_tree


@dataclass(frozen=True, slots=True)
class OneShotMethod:
    """A method with its shares for columns and for scores; what is left goes to the chosen cliques."""

    name: str
    columns: float
    scores: float
    choose: Callable[[SelectionProblem], Selection]

    def __call__(self, codes: Records, domain: Domain, settings: MethodSettings, entropy: Entropy) -> Description:
        """Describe a table."""
        if len(domain) == 1:
            return replace(independent(codes, domain, settings, entropy), method=self.name)
        spend, left = settings.spend, 1.0 - self.columns - self.scores
        one_way = measure_columns(codes, domain, spend, self.columns, entropy)
        collapsed = collapse_domain(domain, one_way)
        problem, scored = score_pairs(codes, collapsed, one_way, spend, self.scores, left, entropy)
        chosen = self.choose(problem)
        cliques = measure_cliques(codes, collapsed, domain, chosen, spend, left, entropy)
        event = ComposedEvent((*(m.event for m in one_way), scored, *(m.event for m in cliques)))
        estimates = estimate_marginals(collapsed, one_way, cliques)
        return Description(
            self.name, domain, collapsed, tuple(one_way), tuple(cliques), estimates, event, chosen.reason
        )


def select_spanning_tree(problem: SelectionProblem) -> Selection:
    """A spanning tree, every pair with the same share."""
    cliques = find_spanning_tree(len(problem.domain), problem.pairs, problem.scores)
    shares = tuple(1.0 / len(cliques) for _ in cliques)
    return Selection(cliques, shares, f"a spanning forest of {len(cliques)} pairs, the strongest that hold together")


mst = OneShotMethod("mst", columns=1 / 3, scores=0.05, choose=select_spanning_tree)


USEFUL = 4.0
"""A table is measured only if its cells hold so many deviations of the noise on average (PrivBayes' theta)."""
NEAREST = 8
"""How many of the best earlier columns are tried as parents of a column."""


def select_network(problem: SelectionProblem) -> Selection:
    """The families of a network, in the order in which they are drawn: each has one column that no earlier one has.

    The first column and its first child are the pair of the largest score. Shares grow like the 2/3rd power of the
    cells, which makes the summed noise least (see `select.select_pairs`).
    """
    columns = len(problem.domain)
    table = _score_matrix(columns, problem.pairs, problem.scores)
    most = _most_cells(problem)
    start = int(np.argmax(table.max(axis=1)))
    done, families = [start], []
    while len(done) < columns:
        child, parents = _choose_next(table, done, problem.domain, most)
        done.append(child)
        if parents:
            families.append(tuple(sorted((child, *parents))))
    sized = np.array([float(problem.domain.cells(family)) for family in families]) ** (2 / 3)
    shares = sized / sized.sum() if families else sized
    return Selection(
        tuple(families), tuple(float(share) for share in shares), _explain_network(families, columns, most)
    )


def _score_matrix(columns: int, pairs: list[Clique], scores: Floats) -> NDArray[np.float64]:
    table = np.zeros((columns, columns))
    for (a, b), score in zip(pairs, scores, strict=True):
        table[a, b] = table[b, a] = max(float(score), 0.0)
    return table


def _most_cells(problem: SelectionProblem) -> float:
    """The cells over which the records still stand out of the noise, if every family gets the same share."""
    families = max(len(problem.domain) - 1, 1)
    deviation = problem.rows * math.sqrt(families / max(problem.amount, 1e-300))
    return problem.total / (USEFUL * deviation)


def _choose_next(table: NDArray[np.float64], done: list[int], domain: Domain, most: float) -> tuple[int, Clique]:
    """The column that gains most from parents, with them; without parents where nothing useful has a gain."""
    waiting = [place for place in range(len(domain)) if place not in done]
    best, choice = 0.0, (waiting[0], Clique())
    for child in waiting:
        for parents in _candidate_parents(table[child], done):
            gain = float(table[child, list(parents)].sum())
            if gain > best and domain.cells((child, *parents)) <= most:
                best, choice = gain, (child, parents)
    return choice


def _candidate_parents(scores: NDArray[np.float64], done: list[int]) -> Iterator[Clique]:
    """Parents worth trying: those with a score, the best of them in pairs."""
    known = [place for place in sorted(done, key=lambda place: -scores[place]) if scores[place] > 0]
    yield from ((place,) for place in known)
    yield from itertools.combinations(known[:NEAREST], 2)


def _explain_network(families: list[Clique], columns: int, most: float) -> str:
    threes = sum(len(family) == 3 for family in families)
    alone = columns - 1 - len(families)
    return (
        f"{threes} columns have two parents, {len(families) - threes} have one, {alone} beside the first have none: "
        f"tables of more than {most:,.0f} cells would drown in noise"
    )


correlated = OneShotMethod("correlated", columns=0.2, scores=0.1, choose=select_network)


def independent(codes: Records, domain: Domain, settings: MethodSettings, entropy: Entropy) -> Description:
    """Measure every column and nothing else."""
    one_way = measure_columns(codes, domain, settings.spend, 1.0, entropy)
    collapsed = collapse_domain(domain, one_way)
    event = ComposedEvent(tuple(marginal.event for marginal in one_way))
    estimates = estimate_marginals(collapsed, one_way, [])
    return Description("independent", domain, collapsed, tuple(one_way), (), estimates, event, "every column by itself")


RECORDS = 1000.0


def uniform(codes: Records, domain: Domain, settings: MethodSettings, entropy: Entropy) -> Description:
    """Describe a table without looking at it."""
    del codes, settings, entropy
    columns = tuple(np.full(size, RECORDS / size) for size in domain.sizes)
    collapsed = CollapsedDomain(domain, tuple(np.arange(size, dtype=np.int32) for size in domain.sizes))
    reason = "types only: nothing was measured, every value is as likely as any other"
    return Description("random", domain, collapsed, (), (), Estimates(RECORDS, columns, {}), NoOpEvent(), reason)
