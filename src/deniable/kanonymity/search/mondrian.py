"""Mondrian multidimensional recoding (LeFevre, DeWitt, Ramakrishnan 2006), strict and relaxed, for any models.

Rows are split at the median of the column in which that saves most, as long as both sides keep k rows; categories are
split along their hierarchy. Then the tree of splits is walked from the top: a split is kept when all models hold on
both sides. Classes may thus differ in every column, which costs far less than one level for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.errors import Infeasible, ParameterError
from deniable.kanonymity.encoding import Counts, build_histograms
from deniable.kanonymity.hierarchy import Codes
from deniable.kanonymity.kernels import splitting
from deniable.kanonymity.local_recoding import LocalRelease, find_merge_levels, is_numeric, order_leaves
from deniable.kanonymity.models import DeltaPresence, KAnonymity, KMap, holds
from deniable.kanonymity.models.base import Classes, looks_inside
from deniable.kanonymity.request import Prepared
from deniable.kanonymity.search.problem import Problem


@dataclass(frozen=True, eq=False, repr=False)
class _Tree:
    """Nodes as runs of an order, children after their parents."""

    order: Codes
    begin: Counts
    end: Counts
    left: Counts
    low: Codes
    high: Codes


def mondrian(
    prepared: Prepared, *, relaxed: bool = False, sets: bool = False, weights: Sequence[float] | None = None
) -> LocalRelease:
    """A local recoding in which all models hold; nothing is suppressed.

    Relaxed splitting may put rows with equal values on both sides of a cut, which makes smaller classes with
    overlapping ranges. `sets` chooses splits for categories that will be written as the sets of their values rather
    than as groups of their hierarchies. `weights` make a column count as wider, so that it is split sooner.
    """
    problem = prepared.problem
    _refuse_population(problem)
    orders = tuple(order_leaves(h) for h in problem.hierarchies)
    codes, counts = _rank_codes(prepared, orders, relaxed)
    tree = _split(problem, codes, counts, orders, relaxed, sets, weights)
    leaves = _select_leaves(problem, tree, counts, prepared if relaxed else None)
    class_of = np.empty(len(counts), np.int64)
    for number, node in enumerate(leaves):
        class_of[tree.order[tree.begin[node] : tree.end[node]]] = number
    sizes = np.bincount(class_of, weights=counts, minlength=len(leaves)).astype(np.int64)
    return LocalRelease(class_of, tree.low[leaves], tree.high[leaves], sizes, orders, by_row=relaxed)


def _refuse_population(problem: Problem) -> None:
    if any(isinstance(model, KMap | DeltaPresence) for model in problem.models) or problem.risks:
        raise ParameterError(
            "Mondrian does not know the population or average risks",
            remedy="Use the optimal search for k-map, delta-presence and average risk",
        )


def _rank_codes(prepared: Prepared, orders: tuple[Codes, ...], relaxed: bool) -> tuple[Codes, Counts]:
    """Codes as places in the orders: of every distinct tuple, or of every row where equal rows may be parted."""
    tuples = prepared.problem.tuples
    ranks = []
    for q, order in enumerate(orders):
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        ranks.append(place[tuples.codes[:, q]])
    codes = np.ascontiguousarray(np.column_stack(ranks))
    if not relaxed:
        return codes, tuples.counts
    rows = prepared.collapsed.tuple_of
    return np.ascontiguousarray(codes[rows]), np.ones(len(rows), np.int64)


def _split(
    problem: Problem,
    codes: Codes,
    counts: Counts,
    orders: tuple[Codes, ...],
    relaxed: bool,
    sets: bool,
    weights: Sequence[float] | None,
) -> _Tree:
    hierarchies = problem.hierarchies
    widest = max((h.size for h in hierarchies), default=1)
    cuts = np.zeros((len(hierarchies), widest), np.int8)
    for q, h in enumerate(hierarchies):
        cuts[q, : h.size] = find_merge_levels(h, orders[q])
    k = max((model.k for model in problem.models if isinstance(model, KAnonymity)), default=1)
    given = np.ones(len(hierarchies)) if weights is None else np.asarray(weights, np.float64)
    made = splitting.split(
        codes,
        counts,
        k,
        np.array([h.size for h in hierarchies], np.int64),
        cuts,
        np.array([not is_numeric(h) for h in hierarchies]),
        given,
        relaxed,
        sets,
    )
    return _Tree(*made)


def _select_leaves(problem: Problem, tree: _Tree, counts: Counts, rows: Prepared | None) -> NDArray[np.int64]:
    """The nodes that become classes: those whose split would break a model on one side."""
    fine = _check_nodes(problem, tree, counts, rows)
    if not fine[0]:
        raise Infeasible(
            f"The table as a whole does not meet {' and '.join(map(str, problem.models))}",
            remedy="Ask for weaker models; no split of a table is more diverse than the table",
        )
    leaves, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        child = int(tree.left[node])
        if child >= 0 and fine[child] and fine[child + 1]:
            waiting += [child, child + 1]
        else:
            leaves.append(node)
    return np.array(leaves, np.int64)


def _check_nodes(problem: Problem, tree: _Tree, counts: Counts, rows: Prepared | None) -> NDArray[np.bool_]:
    """For every node of the tree, whether all models hold on it; nodes of one depth are disjoint runs."""
    fine = np.ones(len(tree.begin), np.bool_)
    depth = np.zeros(len(tree.begin), np.int64)
    for node in np.flatnonzero(tree.left >= 0):
        depth[tree.left[node]] = depth[tree.left[node] + 1] = depth[node] + 1
    placed = np.concatenate([[0], np.cumsum(counts[tree.order])])
    sizes = placed[tree.end] - placed[tree.begin]
    for level in range(int(depth.max(initial=0)) + 1):
        nodes = np.flatnonzero(depth == level)
        classes = _build_classes(problem, tree, nodes, sizes[nodes], rows)
        for model in problem.models:
            fine[nodes] &= holds(model, classes)
    return fine


def _build_classes(
    problem: Problem, tree: _Tree, nodes: NDArray[np.int64], sizes: Counts, rows: Prepared | None
) -> Classes:
    if not any(looks_inside(model) for model in problem.models):
        return Classes(sizes)
    owner = np.full(len(tree.order), -1, np.int64)
    for number, node in enumerate(nodes):
        owner[tree.order[tree.begin[node] : tree.end[node]]] = number
    held = {}
    for s, name in enumerate(problem.sensitive):
        if rows is not None:
            there = owner >= 0
            held[name] = rows.held[s].select(there).tally(owner[there], len(nodes))
            continue
        old = problem.tuples.sensitive[s]
        mine = owner[old.owners()]
        there = mine >= 0
        held[name] = build_histograms(mine[there], len(nodes), old.values[there], old.size, old.counts[there])
    return Classes(sizes, held, problem.references)
