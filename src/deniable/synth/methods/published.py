"""Methods as they were published: all but the last select what is measured at most once.

*random* measures nothing: every value is as likely as any other. It costs nothing and says nothing; good for trying a
pipeline. *independent* puts the whole budget into one-way counts. The others measure every column, score every pair,
select cliques from the scores, measure them, estimate:

*mst* takes a maximum spanning tree of pairs (McKenna, Miklau and Sheldon 2021). *correlated* takes a Bayesian network
of degree two as PrivBayes (Zhang et al. 2017) does, which grows it column by column and gives a column fewer parents
where its table would be lost in noise. Here the noise is in the scores of pairs, measured once for all: a column's gain
from two parents is the sum of its scores with them. That sees what pairs show, not what only three columns together
show.

*mwem* is MWEM-PGM: the clique of a workload that the model answers worst is measured next, round by round.

Multiplicative weights with the exponential mechanism (Hardt, Ligett and McSherry 2012), carried by a graphical model
instead of the whole table (McKenna et al. 2019). Here all scores of a round are released with Gaussian noise, so that
everything is priced as one Gaussian; scores are taken less the noise that measuring would bring (as AIM does), and the
rounds end when nothing is answered badly enough. What is left then goes into measuring the same cliques again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, Event, NoOpEvent
from deniable.dp.samplers import Entropy
from deniable.synth.bins import CollapsedDomain, collapse_domain
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates, estimate_marginals, find_spanning_tree, noise_of
from deniable.synth.estimate.graphical_model import GraphicalModel, build_junction_tree, fit_graphical_model
from deniable.synth.marginal import Floats, Marginal, Records, count_all
from deniable.synth.measure import (
    MethodSettings,
    combine_marginals,
    l1_distance,
    measure_cliques,
    measure_columns,
    score_distances,
    score_pairs,
)
from deniable.synth.model import Description
from deniable.synth.select import Selection, SelectionProblem


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


MWEM_COLUMNS, MWEM_SCORES = 0.15, 0.15
MOST_ROUNDS = 16
MOST_CELLS = 1 << 18
"""The most cells that the junction tree may have: a clique that would make it larger is not measured."""


def mwem(codes: Records, domain: Domain, settings: MethodSettings, entropy: Entropy) -> Description:
    """Measure columns, then what a workload's answers need most; the workload is all pairs unless one is asked for."""
    if len(domain) == 1:
        return replace(independent(codes, domain, settings, entropy), method="mwem")
    one_way = measure_columns(codes, domain, settings.spend, MWEM_COLUMNS, entropy)
    collapsed = collapse_domain(domain, one_way)
    workload = _choose_workload(collapsed.domain, settings.workload)
    cliques, events = _measure_in_rounds(codes, collapsed, domain, one_way, workload, settings, entropy)
    measured = combine_marginals(cliques)
    first = estimate_marginals(collapsed, one_way, measured)
    model = fit_graphical_model(collapsed.domain, first)
    event = ComposedEvent((*(marginal.event for marginal in one_way), *events))
    estimates = _build_estimates(model, measured, first.total)
    reason = f"{len(measured)} of {len(workload)} cliques of the workload, those that were answered worst"
    return Description("mwem", domain, collapsed, tuple(one_way), tuple(measured), estimates, event, reason)


def _choose_workload(domain: Domain, asked: tuple[Clique, ...]) -> list[Clique]:
    """What is asked for, or all pairs; never a table of one cell, or one that says no more than a column does."""
    wanted = [clique for clique in dict.fromkeys(asked) if len(clique) > 1 and domain.cells(clique) > 1]
    return wanted or [pair for pair in domain.useful(2) if min(domain.shape(pair)) > 1]


def _measure_in_rounds(
    codes: Records,
    collapsed: CollapsedDomain,
    domain: Domain,
    one_way: list[Marginal],
    workload: list[Clique],
    settings: MethodSettings,
    entropy: Entropy,
) -> tuple[list[Marginal], list[Event]]:
    """Score, choose, measure, fit, as often as it pays; then all of it again with what is left."""
    spend = settings.spend
    rounds = max(min(len(workload), MOST_ROUNDS), 1)
    each, joined = (1.0 - MWEM_COLUMNS - MWEM_SCORES) / rounds, collapsed.apply(codes)
    found: list[Marginal] = []
    events: list[Event] = []
    model = fit_graphical_model(collapsed.domain, estimate_marginals(collapsed, one_way, []))
    while len(found) < rounds:
        open_ones = _open_cliques(collapsed.domain, workload, found)
        if not open_ones:
            break
        counted = zip(open_ones, count_all(joined, collapsed.domain, open_ones), strict=True)
        distances = [l1_distance(exact, model.table(clique)) for clique, exact in counted]
        told, _, event = score_distances(distances, spend, MWEM_SCORES / rounds, entropy)
        events.append(event)
        worst = _find_worst(collapsed.domain, open_ones, told, math.sqrt(float(spend.variance(each))))
        if worst is None:
            break
        one = Selection((worst,), (1.0,))
        found += measure_cliques(codes, collapsed, domain, one, spend, each, entropy)
        model = fit_graphical_model(collapsed.domain, estimate_marginals(collapsed, one_way, found), model.factors)
    events += [marginal.event for marginal in found]
    if found and len(found) < rounds:
        again = Selection(tuple(m.clique for m in found), tuple(1.0 / len(found) for _ in found))
        found += measure_cliques(codes, collapsed, domain, again, spend, each * (rounds - len(found)), entropy)
        events += [marginal.event for marginal in found[len(again.cliques) :]]
    return found, events


def _open_cliques(domain: Domain, workload: list[Clique], found: list[Marginal]) -> list[Clique]:
    """The cliques that are not measured yet and would leave the junction tree small enough."""
    done = [marginal.clique for marginal in found]
    return [c for c in workload if c not in done and build_junction_tree(domain, [*done, c]).cells <= MOST_CELLS]


def _find_worst(domain: Domain, cliques: list[Clique], told: Floats, deviation: float) -> Clique | None:
    """The clique that measuring would better most; none where noise would be worse than what the model says."""
    noise = (
        math.sqrt(2 / math.pi) * deviation * np.array([domain.cells(clique) for clique in cliques], dtype=np.float64)
    )
    best = int(np.argmax(told - noise))
    return cliques[best] if told[best] > noise[best] else None


def _build_estimates(model: GraphicalModel, measured: list[Marginal], total: float) -> Estimates:
    """The model's own tables: those of its tree, in which rows can be drawn exactly, and those that were measured."""
    columns = tuple(model.table((place,)) for place in range(len(model.tree.domain)))
    tables = {clique: table for clique, table in model.tables.items() if len(clique) > 1}
    tables |= {marginal.clique: model.table(marginal.clique) for marginal in measured}
    return Estimates(total, columns, tables, noise_of(measured, total))
