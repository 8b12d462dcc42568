"""MWEM-PGM: the clique of a workload that the model answers worst is measured next, round by round.

Multiplicative weights with the exponential mechanism (Hardt, Ligett and McSherry 2012), carried by a graphical model
instead of the whole table (McKenna et al. 2019). Here all scores of a round are released with Gaussian noise, so that
everything is priced as one Gaussian; scores are taken less the noise that measuring would bring (as AIM does), and the
rounds end when nothing is answered badly enough. What is left then goes into measuring the same cliques again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from deniable.dp.accounting import ComposedEvent, Event
from deniable.dp.samplers import Entropy
from deniable.synth.bins import CollapsedDomain, collapse_domain
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates, estimate_marginals, noise_of
from deniable.synth.estimate.graphical_model import GraphicalModel, build_junction_tree, fit_graphical_model
from deniable.synth.marginal import Floats, Marginal, Records, count_all
from deniable.synth.measure import (
    MethodSettings,
    combine_marginals,
    l1_distance,
    measure_cliques,
    measure_columns,
    score_distances,
)
from deniable.synth.methods.one_shot import independent
from deniable.synth.model import Description
from deniable.synth.select import Selection

COLUMNS, SCORES = 0.15, 0.15
MOST_ROUNDS = 16
MOST_CELLS = 1 << 18
"""The most cells that the junction tree may have: a clique that would make it larger is not measured."""


def mwem(codes: Records, domain: Domain, settings: MethodSettings, entropy: Entropy) -> Description:
    """Measure columns, then what a workload's answers need most; the workload is all pairs unless one is asked for."""
    if len(domain) == 1:
        return replace(independent(codes, domain, settings, entropy), method="mwem")
    one_way = measure_columns(codes, domain, settings.spend, COLUMNS, entropy)
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
    each, joined = (1.0 - COLUMNS - SCORES) / rounds, collapsed.apply(codes)
    found: list[Marginal] = []
    events: list[Event] = []
    model = fit_graphical_model(collapsed.domain, estimate_marginals(collapsed, one_way, []))
    while len(found) < rounds:
        open_ones = _open_cliques(collapsed.domain, workload, found)
        if not open_ones:
            break
        counted = zip(open_ones, count_all(joined, collapsed.domain, open_ones), strict=True)
        distances = [l1_distance(exact, model.table(clique)) for clique, exact in counted]
        told, _, event = score_distances(distances, spend, SCORES / rounds, entropy)
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
