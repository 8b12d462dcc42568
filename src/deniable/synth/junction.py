"""Junction trees: exact marginals of a model that is a product of factors, without ever making the whole table.

A model over cliques, p(x) proportional to exp(sum of f_C(x_C)), is exact in a tree of larger cliques in which whatever
two of them share stands in all between them. Two passes of messages then leave every clique of the tree with its
marginal (Lauritzen and Spiegelhalter 1988). Cost: the cells of the tree's cliques.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from deniable.synth.domain import Clique, Domain
from deniable.synth.marginal import Floats, along
from deniable.synth.order import maximal
from deniable.synth.simplex import over


@dataclass(frozen=True, slots=True)
class JunctionTree:
    """Maximal cliques in an order in which each hangs on an earlier one (its parent, by place; -1 for the first)."""

    domain: Domain
    cliques: tuple[Clique, ...]
    parents: tuple[int, ...]

    @property
    def cells(self) -> int:
        """What one pass costs."""
        return sum(self.domain.cells(clique) for clique in self.cliques)

    def shared(self, child: int) -> Clique:
        """What a clique shares with its parent."""
        above = self.cliques[self.parents[child]]
        return tuple(place for place in self.cliques[child] if place in above)

    def home(self, clique: Clique) -> Clique:
        """The smallest clique of the tree that holds another."""
        holders = [own for own in self.cliques if set(clique) <= set(own)]
        return min(holders, key=self.domain.cells)


def junction_tree(domain: Domain, cliques: Collection[Clique]) -> JunctionTree:
    """A tree for cliques: columns are eliminated one by one, always the one whose neighbors make the smallest table."""
    columns = range(len(domain))
    neighbors: dict[int, set[int]] = {place: {place} for place in columns}
    for clique in cliques:
        for place in clique:
            neighbors[place].update(clique)
    found: list[Clique] = []
    left = set(columns)
    while left:
        place = min(left, key=lambda p: (domain.cells(tuple(neighbors[p] & left)), p))
        around = neighbors[place] & left
        found.append(tuple(sorted(around)))
        for other in around:
            neighbors[other] |= around
        left.remove(place)
    return _tree(domain, maximal(dict.fromkeys(found)))


def _tree(domain: Domain, cliques: list[Clique]) -> JunctionTree:
    """The cliques joined along their largest intersections, which is what makes a tree of them a junction tree."""
    order, parents, left = [cliques[0]], [-1], cliques[1:]
    while left:
        _, place, at = max(
            (len(set(clique) & set(held)), place, at)
            for place, clique in enumerate(left)
            for at, held in enumerate(order)
        )
        order.append(left.pop(place))
        parents.append(at)
    return JunctionTree(domain, tuple(order), tuple(parents))


def marginals(tree: JunctionTree, factors: Mapping[Clique, Floats], total: float) -> dict[Clique, Floats]:
    """Every tree clique's table under exp(sum of factors), adding up to `total`; a factor may stand on any part."""
    beliefs = [np.zeros(tree.domain.shape(clique)) for clique in tree.cliques]
    for part, factor in factors.items():
        home = tree.home(part)
        beliefs[tree.cliques.index(home)] += _placed(factor, part, home)
    upward: dict[int, Floats] = {}
    for child in range(len(tree.cliques) - 1, 0, -1):
        parent, shared = tree.parents[child], tree.shared(child)
        upward[child] = _summed(beliefs[child], tree.cliques[child], shared)
        beliefs[parent] += _placed(upward[child], shared, tree.cliques[parent])
    for child in range(1, len(tree.cliques)):
        parent, shared = tree.parents[child], tree.shared(child)
        downward = _summed(beliefs[parent], tree.cliques[parent], shared) - upward[child]
        beliefs[child] += _placed(downward, shared, tree.cliques[child])
    return {clique: _normal(belief, total) for clique, belief in zip(tree.cliques, beliefs, strict=True)}


def answer(tree: JunctionTree, tables: Mapping[Clique, Floats], query: Clique) -> Floats:
    """The table of any columns, also of such as no clique of the tree holds together.

    From the leaves up, every clique hands its parent what it says of the query's columns given what they share; one
    that says nothing hands on nothing, for its shares add up to one.
    """
    wanted = set(query)
    messages: dict[int, list[tuple[Floats, list[int]]]] = {place: [] for place in range(len(tree.cliques))}
    for child in range(len(tree.cliques) - 1, 0, -1):
        clique, shared = tree.cliques[child], tree.shared(child)
        reached = set(clique).union(*(columns for _, columns in messages[child]))
        if wanted & reached - set(shared):
            keep = [*shared, *sorted(wanted & reached - set(shared))]
            axes = tuple(clique.index(place) for place in shared)
            given = tables[clique] / np.maximum(over(along(tables[clique], axes), axes, len(clique)), 1e-300)
            messages[tree.parents[child]].append((_product(given, clique, messages[child], keep), keep))
    return _product(tables[tree.cliques[0]], tree.cliques[0], messages[0], list(query))


def _product(table: Floats, clique: Clique, messages: list[tuple[Floats, list[int]]], keep: list[int]) -> Floats:
    """A table times messages, summed over all columns but those kept."""
    operands: list[object] = [table, list(clique)]
    for message, columns in messages:
        operands += [message, columns]
    # einsum takes numbers below 52 for axes: number the columns that are here from 0 on.
    here = {place: number for number, place in enumerate(dict.fromkeys(
        [*clique, *(column for _, columns in messages for column in columns)]))}  # fmt: skip
    named = [[here[place] for place in part] if i % 2 else part for i, part in enumerate(operands)]  # type: ignore[attr-defined]
    result: Floats = np.einsum(*named, [here[place] for place in keep], optimize=True)  # type: ignore[call-overload]
    return result


def _placed(values: Floats, part: Clique, clique: Clique) -> Floats:
    """Values over a part of a clique, shaped to meet the clique's table."""
    return over(values, tuple(clique.index(place) for place in part), len(clique))


def _summed(logs: Floats, clique: Clique, part: Clique) -> Floats:
    """Log of the sum of exponentials over all columns but a part's."""
    axes = tuple(axis for axis, place in enumerate(clique) if place not in part)
    if not axes:
        return logs
    most = logs.max(axis=axes, keepdims=True)
    result: Floats = np.log(np.exp(logs - most).sum(axis=axes)) + most.squeeze(axis=axes)
    return result


def _normal(logs: Floats, total: float) -> Floats:
    shares = np.exp(logs - logs.max())
    result: Floats = shares * (total / shares.sum())
    return result
