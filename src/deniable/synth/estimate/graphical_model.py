"""The graphical model of estimated marginals: of all tables that have them, the most even one.

Every estimated clique has a factor, and iterative proportional fitting sets them: one clique after another is made to
have its estimate, with exact marginals from a junction tree in between. Estimates that agree on columns but form cycles
may have no common table; then the fit goes on until it gets no nearer.

A model over cliques, p(x) proportional to exp(sum of f_C(x_C)), is exact in a tree of larger cliques in which whatever
two of them share stands in all between them. Two passes of messages leave every clique of the tree with its marginal
(Lauritzen and Spiegelhalter 1988), without ever making the whole table. Cost: the cells of the tree's cliques.

The same property (running intersection) orders cliques for drawing: the new columns of a clique, drawn given its old
ones, keep its table exactly if the old ones stand in one clique that was kept exactly.

Given values of some columns, the model of the others has the same factors, cut at these values, and rows that are
rare are drawn from it as fast as others. Columns that hang on the rest and lead to no given one take no part: they are
drawn last. Where the tables of a circle would make the tree too large, the model has only those that say most."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates, dependence_of
from deniable.synth.estimate.residuals import broadcast_axes
from deniable.synth.marginal import Floats, marginalize

SWEEPS = 25
NEAR = 1e-4
"""The share of the records by which a clique may miss its estimate."""

Tables = Mapping[Clique, Floats]
Leaf = tuple[Clique, Floats, int]
"""A clique, its table, and the column that stands in no other one."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphicalModel:
    """A fitted model: a factor for each estimated clique, the tree, and the marginals of the tree's cliques."""

    tree: JunctionTree
    factors: dict[Clique, Floats]
    tables: dict[Clique, Floats]

    def table(self, clique: Clique) -> Floats:
        """The expected counts of any clique, exactly."""
        if any(set(clique) <= set(own) for own in self.tree.cliques):
            return _table_within(self.tables, self.tree, clique)
        return answer_query(self.tree, self.tables, clique)


def fit_graphical_model(
    domain: Domain, estimates: Estimates, begun: Tables | None = None, near: float = NEAR
) -> GraphicalModel:
    """The model of estimates, beginning with factors that are known."""
    targets = _targets(estimates)
    tree = build_junction_tree(domain, list(targets))
    factors = {clique: (begun or {}).get(clique, np.zeros(target.shape)) for clique, target in targets.items()}
    tables, last = compute_marginals(tree, factors, estimates.total), np.inf
    for _ in range(SWEEPS):
        missed = 0.0
        for clique, target in targets.items():
            held = _table_within(tables, tree, clique)
            miss = float(np.abs(held - target).sum())
            missed = max(missed, miss)
            if miss > near * estimates.total:
                factors[clique] = factors[clique] + np.log(np.maximum(target, 1e-9) / np.maximum(held, 1e-300))
                tables = compute_marginals(tree, factors, estimates.total)
        if missed <= near * estimates.total or missed > 0.99 * last:
            break
        last = missed
    return GraphicalModel(tree, factors, tables)


def _targets(estimates: Estimates) -> dict[Clique, Floats]:
    """The estimated cliques, and the columns that none of them holds."""
    held = {place for clique in estimates.tables for place in clique}
    alone: dict[Clique, Floats] = {(p,): column for p, column in enumerate(estimates.columns) if p not in held}
    return {**estimates.tables, **alone}


def _table_within(tables: Tables, tree: JunctionTree, clique: Clique) -> Floats:
    home = tree.home(clique)
    return marginalize(tables[home], tuple(home.index(place) for place in clique))


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

    def separator(self, child: int) -> Clique:
        """What a clique shares with its parent."""
        above = self.cliques[self.parents[child]]
        return tuple(place for place in self.cliques[child] if place in above)

    def home(self, clique: Clique) -> Clique:
        """The smallest clique of the tree that holds another."""
        holders = [own for own in self.cliques if set(clique) <= set(own)]
        return min(holders, key=self.domain.cells)


def build_junction_tree(domain: Domain, cliques: Collection[Clique]) -> JunctionTree:
    """A tree for cliques: columns are eliminated one by one, always the one whose neighbors make the smallest table."""
    return _join_cliques(domain, eliminate_columns(domain, range(len(domain)), cliques))


def eliminate_columns(domain: Domain, columns: Collection[int], cliques: Collection[Clique]) -> list[Clique]:
    """The cliques of a tree for cliques of these columns."""
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
    return maximal_cliques(dict.fromkeys(found))


def _join_cliques(domain: Domain, cliques: list[Clique]) -> JunctionTree:
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


def compute_marginals(tree: JunctionTree, factors: Tables, total: float) -> dict[Clique, Floats]:
    """Every tree clique's table under exp(sum of factors), adding up to `total`; a factor may stand on any part."""
    beliefs, upward = _pass_upward(tree, factors)
    for child in range(1, len(tree.cliques)):
        parent, shared = tree.parents[child], tree.separator(child)
        downward = _log_sum_exp(beliefs[parent], tree.cliques[parent], shared) - upward[child]
        beliefs[child] += _expand_factor(downward, shared, tree.cliques[child])
    return {clique: _normalize(belief, total) for clique, belief in zip(tree.cliques, beliefs, strict=True)}


def _pass_upward(tree: JunctionTree, factors: Tables) -> tuple[list[Floats], dict[int, Floats]]:
    """Logs of the tables once every clique has told its parent, and what was told."""
    beliefs: list[Floats] = [np.zeros(tree.domain.shape(clique)) for clique in tree.cliques]
    for part, factor in factors.items():
        home = tree.home(part)
        beliefs[tree.cliques.index(home)] += _expand_factor(factor, part, home)
    upward: dict[int, Floats] = {}
    for child in range(len(tree.cliques) - 1, 0, -1):
        parent, shared = tree.parents[child], tree.separator(child)
        upward[child] = _log_sum_exp(beliefs[child], tree.cliques[child], shared)
        beliefs[parent] += _expand_factor(upward[child], shared, tree.cliques[parent])
    return beliefs, upward


def _sum_logs(tree: JunctionTree, factors: Tables) -> float:
    """The log of the sum of exp(sum of factors) over the whole table."""
    return float(_log_sum_exp(_pass_upward(tree, factors)[0][0], tree.cliques[0], ()))


def answer_query(tree: JunctionTree, tables: Mapping[Clique, Floats], query: Clique) -> Floats:
    """The table of any columns, also of such as no clique of the tree holds together.

    From the leaves up, every clique hands its parent what it says of the query's columns given what they share; one
    that says nothing hands on nothing, for its shares add up to one.
    """
    wanted = set(query)
    messages: dict[int, list[tuple[Floats, list[int]]]] = {place: [] for place in range(len(tree.cliques))}
    for child in range(len(tree.cliques) - 1, 0, -1):
        clique, shared = tree.cliques[child], tree.separator(child)
        reached = set(clique).union(*(columns for _, columns in messages[child]))
        if wanted & reached - set(shared):
            keep = [*shared, *sorted(wanted & reached - set(shared))]
            axes = tuple(clique.index(place) for place in shared)
            given = tables[clique] / np.maximum(
                broadcast_axes(marginalize(tables[clique], axes), axes, len(clique)), 1e-300
            )
            messages[tree.parents[child]].append((_multiply_messages(given, clique, messages[child], keep), keep))
    return _multiply_messages(tables[tree.cliques[0]], tree.cliques[0], messages[0], list(query))


def _multiply_messages(
    table: Floats, clique: Clique, messages: list[tuple[Floats, list[int]]], keep: list[int]
) -> Floats:
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


def _expand_factor(values: Floats, part: Clique, clique: Clique) -> Floats:
    """Values over a part of a clique, shaped to meet the clique's table."""
    return broadcast_axes(values, tuple(clique.index(place) for place in part), len(clique))


def _log_sum_exp(logs: Floats, clique: Clique, part: Clique) -> Floats:
    """Log of the sum of exponentials over all columns but a part's."""
    axes = tuple(axis for axis, place in enumerate(clique) if place not in part)
    if not axes:
        return logs
    most = logs.max(axis=axes, keepdims=True)
    result: Floats = np.log(np.exp(logs - most).sum(axis=axes)) + most.squeeze(axis=axes)
    return result


def _normalize(logs: Floats, total: float) -> Floats:
    shares = np.exp(logs - logs.max())
    result: Floats = shares * (total / shares.sum())
    return result


def order_cliques(cliques: Collection[Clique], strengths: Mapping[Clique, float]) -> list[Clique]:
    """The cliques that add columns, as Prim would take them: first those that can be drawn exactly, by strength.

    For pairs this is a spanning tree of the largest total strength.

    >>> order_cliques([(0, 1), (0, 2), (1, 2)], {(0, 1): 1.0, (0, 2): 3.0, (1, 2): 2.0})
    [(0, 2), (1, 2)]
    """
    order: list[Clique] = []
    done: set[int] = set()
    whole = maximal_cliques(cliques)
    while adding := [clique for clique in whole if not done.issuperset(clique)]:
        best = max(adding, key=lambda clique: (_rank_clique(clique, done, order), len(clique), strengths[clique]))
        order.append(best)
        done.update(best)
    return order


def order_by_strength(estimates: Estimates) -> list[Clique]:
    """The cliques that add columns, first those that say most of the columns that they add.

    For cliques that no order keeps all of. What is left to changes of single records is then what is weak: a strong
    pair is drawn, even if larger cliques of its neighbors could be drawn exactly without it.
    """
    order: list[Clique] = []
    done: set[int] = set()
    found: dict[tuple[Clique, Clique], float] = {}

    def rank(clique: Clique) -> tuple[int, float]:
        known = tuple(place for place in clique if place in done)
        if (clique, known) not in found:
            found[clique, known] = _tell_fresh(estimates, clique, known)
        hangs = len(known) == 1 or any(set(known).issubset(drawn) for drawn in order)
        return (2 if hangs else 0) if known else 1, found[clique, known]

    while adding := [clique for clique in estimates.tables if not done.issuperset(clique)]:
        order.append(max(adding, key=rank))
        done.update(order[-1])
    return order


def _tell_fresh(estimates: Estimates, clique: Clique, known: Clique) -> float:
    """How far a clique is from one whose other columns hang on nothing, in records for each of them."""
    table, axes = estimates.tables[clique], tuple(clique.index(place) for place in known)
    alone: Floats = broadcast_axes(marginalize(table, axes), axes, len(clique))
    fresh = [place for place in clique if place not in known]
    for place in fresh:
        alone = alone * _expand_factor(estimates.columns[place], (place,), clique) / estimates.total
    return float(np.abs(table - alone).sum()) / max(len(fresh) - (not known), 1)


def maximal_cliques(cliques: Collection[Clique]) -> list[Clique]:
    """The cliques that no other one contains.

    >>> maximal_cliques([(0, 1), (0, 1, 2), (2, 3)])
    [(0, 1, 2), (2, 3)]
    """
    sets = [frozenset(clique) for clique in cliques]
    return [clique for clique, own in zip(cliques, sets, strict=True) if not any(own < other for other in sets)]


def _rank_clique(clique: Clique, done: set[int], order: list[Clique]) -> tuple[int, int]:
    """Best where it hangs on a drawn clique, by the most columns; then if it is loose; last if it hangs on several.

    Taking the largest intersections first walks along a junction tree wherever the cliques have one.
    """
    known = done.intersection(clique)
    if not known:
        return 1, 0
    return (2, len(known)) if any(known.issubset(drawn) for drawn in order) else (0, 0)


def find_unmet_cliques(cliques: Collection[Clique], order: list[Clique]) -> list[Clique]:
    """The cliques whose tables are not kept by drawing in this order."""
    done: set[int] = set()
    kept: list[Clique] = []
    for clique in order:
        known = done.intersection(clique)
        if len(known) <= 1 or any(known.issubset(drawn) for drawn in kept):
            kept.append(clique)
        done.update(clique)
    return [clique for clique in cliques if not any(set(clique).issubset(drawn) for drawn in kept)]


def split_leaves(tables: Tables) -> tuple[dict[Clique, Floats], list[Leaf]]:
    """Tables that hold one another in circles, and the columns that hang on them, outermost first.

    A column that stands in one maximal clique alone can be drawn last, given the others of it, and its tables are kept
    so. Without it the clique is smaller, and the next column may hang on that (the reduction of Graham, Yu, Ozsoyoglu).
    """
    core, leaves = dict(tables), list[Leaf]()
    holding: dict[int, set[Clique]] = {}
    for clique in core:
        for place in clique:
            holding.setdefault(place, set()).add(clique)
    waiting = sorted(holding)
    while waiting:
        place = waiting.pop()
        held = holding.get(place, set())
        whole = max(held, key=len, default=())
        if not whole or not all(set(clique) <= set(whole) for clique in held):
            continue
        leaves.append((whole, core[whole], place))
        rest = tuple(each for each in whole if each != place)
        table = marginalize(core[whole], tuple(whole.index(each) for each in rest))
        for clique in list(held):
            del core[clique]
            for each in clique:
                holding[each].discard(clique)
        if len(rest) > 1 and rest not in core and not any(set(rest) <= set(clique) for clique in holding[rest[0]]):
            core[rest] = table
            for each in rest:
                holding[each].add(rest)
        waiting += rest
    return core, leaves


MOST_CELLS, MOST_TABLES = 1 << 16, 200
"""The most cells of the tree under a condition, and how many tables are tried for it: a fit takes some seconds."""
NEARER = 4.0
"""By how much more a table counts that has a given column: it speaks of the condition itself. Found by trial."""
MIXED = 1e-6
"""How much of independent columns is mixed into each table: for given values that were never seen together."""
RARE = 1e-7
"""Under a condition tables are fitted so near: rare values must have their shares too."""


@dataclass(frozen=True, slots=True, eq=False)
class ConditionPlan:
    """What a condition needs of the estimates: tables in circles, columns between these and given ones, and the rest.

    Given values stand by the places of their columns, as everywhere here.
    """

    given: Mapping[int, int]
    core: dict[Clique, Floats]
    between: list[Leaf]
    leaves: list[Leaf]
    """Columns that are drawn last, outermost first."""
    whole: bool
    """Whether no table in a circle was left out."""


@dataclass(frozen=True, slots=True, eq=False)
class ConditionalModel:
    """The tables of the rows that meet a condition, in an order of drawing; given columns have one value in them."""

    share: float
    """Of all rows, that of those that meet it."""
    tables: dict[Clique, Floats]


def plan_condition(domain: Domain, estimates: Estimates, given: Mapping[int, int]) -> ConditionPlan:
    """The tables that take part."""
    core, hanging = split_leaves({clique: _mix_columns(estimates, clique) for clique in estimates.tables})
    needed, between, leaves = set(given), list[Leaf](), list[Leaf]()
    for leaf in hanging:
        if leaf[2] in needed:
            needed.update(leaf[0])
        (between if leaf[2] in needed else leaves).append(leaf)
    kept = _choose_core(domain, replace(estimates, tables=core), needed)
    return ConditionPlan(given, {clique: core[clique] for clique in kept}, between, leaves, len(kept) == len(core))


def _mix_columns(estimates: Estimates, clique: Clique) -> Floats:
    alone = np.array(estimates.total)
    for place in clique:
        column = estimates.columns[place] + 1e-9
        alone = np.multiply.outer(alone, column / column.sum())
    mixed: Floats = (1 - MIXED) * estimates.tables[clique] + MIXED * alone
    return mixed


def _choose_core(domain: Domain, estimates: Estimates, needed: set[int]) -> Collection[Clique]:
    """All tables if a tree can hold them, else as many of those that say most as it can."""

    def fits(cliques: Collection[Clique]) -> bool:
        columns = {place for clique in cliques for place in clique}
        return sum(map(domain.cells, eliminate_columns(domain, columns, cliques))) <= MOST_CELLS

    def weigh(clique: Clique) -> float:
        return dependence_of(estimates, clique) * (1.0 if needed.isdisjoint(clique) else NEARER)

    if fits(estimates.tables):
        return estimates.tables
    kept: list[Clique] = []
    for clique in sorted(estimates.tables, key=weigh, reverse=True)[:MOST_TABLES]:
        kept += [clique] if fits([*kept, clique]) else []
    return kept


def fit_condition(domain: Domain, estimates: Estimates, plan: ConditionPlan) -> ConditionalModel:
    """The model of the columns that take part, cut at the given values.

    Columns in circles are fitted. A column between them and a given one has a factor that is its table given the
    others of its clique: what it adds sums to one, so it changes nothing but by what is given.
    """
    cliques = [*plan.core, *(clique for clique, _, _ in plan.between)]
    places = sorted({*plan.given, *(place for clique in cliques for place in clique)})
    number = {place: at for at, place in enumerate(places)}
    own = Domain(tuple(domain.names[p] for p in places), domain.shape(tuple(places)))
    core = {tuple(number[p] for p in clique): table for clique, table in plan.core.items()}
    columns = tuple(estimates.columns[place] for place in places)
    factors = dict(fit_graphical_model(own, Estimates(estimates.total, columns, core), near=RARE).factors)
    for clique, table, place in plan.between:
        factors.pop((number[place],), None)
        logs = np.log(np.maximum(table, 1e-12))
        others = tuple(each for each in clique if each != place)
        given_others = logs - _expand_factor(_log_sum_exp(logs, clique, others), others, clique)
        at = tuple(number[p] for p in clique)
        factors[at] = factors.get(at, 0.0) + given_others
    tree, kept = build_junction_tree(own, list(factors)), {number[place]: code for place, code in plan.given.items()}
    sizes = tuple(1 if place in kept else size for place, size in enumerate(own.sizes))
    cut = JunctionTree(Domain(own.names, sizes), tree.cliques, tree.parents)
    parts = {
        clique: factor[tuple(slice(kept[p], kept[p] + 1) if p in kept else slice(None) for p in clique)]
        for clique, factor in factors.items()
    }
    share = math.exp(_sum_logs(cut, parts) - _sum_logs(tree, factors))
    found = compute_marginals(cut, parts, 1.0)
    return ConditionalModel(share, {tuple(places[p] for p in clique): table for clique, table in found.items()})
