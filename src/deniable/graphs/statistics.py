"""What is measured of a network: how far one unit moves it, with which noise it is released, and what follows from it.

The unit is one edge, or one node with all its edges. For one edge, counts are released as they are. For one node they
are of the projected network, in which no node has more than `bound` edges (see `network.py`): what the projection
leaves out is missing, so that these counts are too small where nodes have more edges than that.

Triangles, and stars for one edge, have no useful bound that holds for all networks. They are released by a ladder,
whose rungs say how far one unit moves the count in this network, and in networks a few units away. A share of the
budget says how large those rungs are, for the interval that is shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, Event, PureEvent
from deniable.dp.mechanisms import AboveThreshold, LadderMechanism, LaplaceMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import InternalError, ParameterError
from deniable.graphs.network import (
    Network,
    Numbers,
    bound_common_neighbors,
    count_triangles,
    project_degrees,
    project_edges,
)

EDGE, NODE = "edge", "node"
BOUNDS = tuple(1 << power for power in range(17))
"""The largest degrees among which one is chosen privately."""
BOUND_SHARE, RUNG_SHARE, NODE_RUNG_SHARE, SIZE_SHARE = Fraction(1, 5), Fraction(1, 10), Fraction(1, 5), Fraction(1, 10)
MOMENTS = ("ends", "squares", "cubes", "products")
"""Sums from which assortativity by degree follows: of degrees, of their squares and cubes, and over all edges of the
product of the degrees of both ends."""
DOUBLINGS = 16
"""How often the least rung is doubled, at most, to bound the rungs of a network."""
RUNG_SLACK = 6
"""How many scales of noise the threshold for the width of rungs is above the rung that is needed. The noise of one
answer less that of the threshold passes x scales with probability (2 + x) / 4 e^-x, so that with 6 one of five widths
that are too small is found with probability 0.025 at most; then the interval is too narrow."""
DEGREES_SHOWN = 1024
"""The largest degree that is told apart where the unit is an edge and no other is stated."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is public of a network: its unit, whether edges have a direction, whether nodes are listed, and groups."""

    unit: str
    directed: bool = False
    listed: bool = False
    groups: tuple[Any, ...] = ()

    @property
    def cells(self) -> tuple[tuple[int, int], ...]:
        """The pairs of groups between which edges are counted."""
        many = range(len(self.groups))
        return tuple((g, h) for g in many for h in many if self.directed or g <= h)


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement: what it is, and its epsilon."""

    name: str
    epsilon: Fraction


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """What is measured together: the parts, the largest degree (None: chosen first), and the settings of counts.

    `star` is the number of edges of a star, `direction` which degree is meant: all, out or in.
    """

    shape: Shape
    parts: tuple[Part, ...]
    bound: int | None
    star: int = 2
    direction: str = "all"

    @property
    def event(self) -> Event:
        """What all of it costs; where the bound is chosen first, only the epsilon of what follows is known before."""
        return ComposedEvent(tuple(self._event_of(part) for part in self.parts))

    def _event_of(self, part: Part) -> Event:
        known = part.name in ("bound", "triangles", *MOMENTS) or self.bound is not None
        return self.mechanism(part).event if known else PureEvent(part.epsilon)

    def mechanism(self, part: Part) -> LaplaceMechanism | LadderMechanism | AboveThreshold:
        """The mechanism of a part, under a bound that is known by now."""
        if part.name == "bound":
            return AboveThreshold(-math.ceil(3 / part.epsilon), part.epsilon)
        if part.name in ("triangles", *MOMENTS) or (part.name == "stars" and self.shape.unit == EDGE):
            return LadderMechanism(part.epsilon)
        if part.name in ("triangle rungs", "hub rungs") and self.shape.unit == NODE:
            scale = 2 / part.epsilon
            return AboveThreshold(self.rungs_needed + math.ceil(RUNG_SLACK * scale), part.epsilon, monotonic=True)
        moved = Fraction(find_sensitivity(part.name, self))
        return LaplaceMechanism(moved / part.epsilon, moved)

    @property
    def rungs_needed(self) -> int:
        """The rung that noise passes with probability 0.025 (of four sums, 0.025 / 4), where rungs are equally wide."""
        counts = [part.epsilon for part in self.parts if part.name in ("triangles", *MOMENTS)]
        return math.ceil(2 * math.log(40 * len(counts)) / float(min(counts))) + 1

    @property
    def least_rung(self) -> int:
        """The least that one node can move the triangles of a network of this bound."""
        assert self.bound is not None
        return max(math.comb(self.bound, 2), 1)


PARTS = {
    "bound": "the largest degree, by how many edges twice as large a one would keep",
    "edges": "the number of edges",
    "degrees": "the numbers of nodes with at least, or at most, so many edges",
    "triangles": "the number of triangles",
    "triangle rungs": "how far one unit moves the triangles, for the interval",
    "stars": "the number of stars",
    "star rungs": "how far one unit moves the stars, for the interval",
    "cells": "the numbers of edges between groups",
    "sizes": "the sizes of the groups",
    "ends": "the sum of all degrees",
    "squares": "the sum of their squares",
    "cubes": "the sum of their cubes",
    "products": "the sum over all edges of the degree at one end times that at the other",
    "hub rungs": "how many nodes have about max_degree edges, for the interval",
}
"""What each part is, in words."""


WEIGHTS: dict[str, tuple[tuple[str, int], ...]] = {
    "edges": (("edges", 1),),
    "degrees": (("degrees", 1),),
    "triangles": (("triangles", 1),),
    "stars": (("stars", 1),),
    "clustering": (("triangles", 1), ("stars", 1)),
    "mixing": (("cells", 1),),
    "degree assortativity": (("ends", 2), ("squares", 4), ("cubes", 2), ("products", 8)),
    "graph": (("degrees", 3), ("triangles", 2)),
    "grouped graph": (("degrees", 3), ("cells", 2), ("triangles", 2)),
}
"""What each measurement consists of, with the weights by which the budget is shared."""


def plan_network(
    measured: str, shape: Shape, epsilon: Fraction, bound: int | None, *, star: int = 2, direction: str = "all"
) -> NetworkPlan:
    """The parts of a measurement with their epsilons, which add up to the one asked."""
    parts: list[Part] = []
    chosen = shape.unit == NODE and bound is None
    left = epsilon * (1 - BOUND_SHARE) if chosen else epsilon
    if chosen:
        parts.append(Part("bound", epsilon * BOUND_SHARE))
    weights = WEIGHTS[measured]
    for name, weight in weights:
        parts += _split_part(name, shape, left * Fraction(weight, sum(w for _, w in weights)))
    if shape.unit == EDGE and bound is None:
        bound = DEGREES_SHOWN
    return NetworkPlan(shape, tuple(parts), bound, star, direction)


def _split_part(name: str, shape: Shape, epsilon: Fraction) -> list[Part]:
    share = {
        ("triangles", EDGE): RUNG_SHARE,
        ("triangles", NODE): NODE_RUNG_SHARE,
        ("stars", EDGE): RUNG_SHARE,
        ("cells", NODE): SIZE_SHARE,
        ("products", EDGE): RUNG_SHARE,
        ("products", NODE): NODE_RUNG_SHARE,
    }.get((name, shape.unit))
    if share is None:
        return [Part(name, epsilon)]
    hubs = "star rungs" if shape.unit == EDGE else "hub rungs"
    aside = {"triangles": "triangle rungs", "stars": "star rungs", "cells": "sizes", "products": hubs}[name]
    return [Part(name, epsilon * (1 - share)), Part(aside, epsilon * share)]


def find_sensitivity(name: str, plan: NetworkPlan) -> int:
    """How far one unit moves a count, in L1 norm. The tests compare it with all networks of a few nodes.

    **One edge.** It is in one cell of a mixing matrix, and raises two degrees by one each (an outgoing or incoming
    degree: one of them). A number of nodes with at least k edges then grows by one for k = d + 1 alone. What rungs
    of triangles and stars depend on moves by 2 and 1.

    **One node v.** After the projection the counters of other nodes change by D <= t in all, where t counts the edges
    of v that were added; t <= bound, or 2 bound where edges have a direction, with one bound for each direction.
    - Edges are half of all counters: they change by 0 to t.
    - Nodes with at most k edges, for k = 0, ..., bound: other nodes change D entries by one; v adds one to all
      entries from its own degree d on, bound + 1 - d of them. With D <= t = d that is bound + 1. For outgoing degrees
      D <= d + (incoming edges of v), which gives 2 bound + 1.
    - Where nodes are not listed, those with at least k edges, k = 1, ..., bound: D + d <= 2 bound (3 bound).
    - k-stars: a counter below the bound that grows by one adds comb(bound - 1, k - 1) stars at most: with v's own,
      bound * comb(bound - 1, k - 1) + comb(bound, k) = (k + 1) comb(bound, k).
    - Edges between groups, each pair of groups being projected by itself: v has edges in one pair for each group
      (two, with a direction), and changes each by at most `bound`.
    - Sizes of groups: v is in one.
    """
    shape, bound = plan.shape, plan.bound
    ways = 2 if shape.directed else 1
    if shape.unit == EDGE:
        own = 1 if plan.direction != "all" else 2
        return {"edges": 1, "degrees": own, "cells": 1, "triangle rungs": 2, "star rungs": 1}[name]
    assert bound is not None
    if plan.direction == "all":
        degrees = bound + 1 if shape.listed else 2 * bound
    else:
        degrees = 2 * bound + 1 if shape.listed else 3 * bound
    return {
        "edges": ways * bound,
        "degrees": degrees,
        "stars": (plan.star + 1) * math.comb(bound, plan.star) if plan.star <= bound else 1,
        "cells": ways * bound * len(shape.groups),
        "sizes": 1,
    }[name]


def count_exactly(name: str, plan: NetworkPlan, network: Network) -> Numbers:
    """The whole numbers that noise is added to; after the projection, where the unit is a node."""
    match name:
        case "edges":
            kept = network.size if plan.shape.unit == EDGE else int(project_degrees(network, _bound(plan)).sum())
            return np.array([kept], np.int64)
        case "degrees":
            return count_degrees(plan, network)
        case "stars":
            return np.array([count_stars(_find_degrees(plan, network, "all"), plan.star)], object)
        case "cells":
            return _count_cells(plan, network)
        case "sizes":
            return np.bincount(network.groups[network.groups >= 0], minlength=len(plan.shape.groups)).astype(np.int64)
        case "triangle rungs":
            return np.array([bound_common_neighbors(network.without_direction())], np.int64)
        case "star rungs":
            return np.array([int(network.without_direction().degrees.max(initial=0))], np.int64)
        case _:
            raise InternalError(f"there is no count '{name}' of a network")


def _bound(plan: NetworkPlan) -> int:
    assert plan.bound is not None
    return plan.bound


def _find_degrees(plan: NetworkPlan, network: Network, direction: str) -> Numbers:
    seen = network.without_direction() if direction == "all" else network
    if plan.shape.unit == NODE:
        seen = seen.keep(project_degrees(seen, _bound(plan)))
    if direction == "all":
        return seen.degrees
    return np.bincount(seen.first if direction == "out" else seen.second, minlength=seen.nodes)


def count_degrees(plan: NetworkPlan, network: Network) -> Numbers:
    """How many nodes have at least 1, ..., bound edges; of listed nodes under node privacy: at most 0, ..., bound."""
    bound, degrees = _bound(plan), _find_degrees(plan, network, plan.direction)
    counts = np.bincount(np.minimum(degrees, bound), minlength=bound + 1)
    if plan.shape.unit == NODE and plan.shape.listed:
        return np.cumsum(counts).astype(np.int64)
    return np.cumsum(counts[:0:-1])[::-1].astype(np.int64)


def count_stars(degrees: Numbers, star: int) -> int:
    """How many sets of so many edges meet in one node."""
    values, often = np.unique(degrees, return_counts=True)
    return sum(math.comb(int(d), star) * int(n) for d, n in zip(values, often, strict=True))


def _count_cells(plan: NetworkPlan, network: Network) -> Numbers:
    many, groups = len(plan.shape.groups), network.groups
    known = (groups[network.first] >= 0) & (groups[network.second] >= 0)
    seen = network.keep(known)
    one, other = groups[seen.first], groups[seen.second]
    if plan.shape.unit == NODE:
        second = seen.second * many + one + (seen.nodes * many if seen.directed else 0)
        kept = project_degrees(seen, _bound(plan), (seen.first * many + other, second))
        one, other = one[kept], other[kept]
    if not seen.directed:
        one, other = np.minimum(one, other), np.maximum(one, other)
    table = np.bincount(one * many + other, minlength=many * many)
    return np.array([table[g * many + h] for g, h in plan.shape.cells], np.int64)


def build_rungs(name: str, plan: NetworkPlan, network: Network, count: int) -> list[int]:
    """The first rungs of a ladder: rung t bounds how far one unit moves the count in any network t units away.

    **Triangles, one edge.** An edge between two nodes is in as many triangles as they have common neighbors: at most b
    (see `bound_common_neighbors`), which one edge moves by at most 2. Rungs b + 2 t.
    **Stars, one edge.** An edge between nodes of degrees d and e adds comb(d, k - 1) + comb(e, k - 1) stars; the two
    largest degrees each move by at most one with an edge. Rungs comb(d + t, k - 1) + comb(e + t, k - 1).
    **Triangles, one node**, after `project_edges`. With v there are at most comb(bound, 2) triangles more, those at v;
    and at most bound - 1 less for each edge that v pushes out, one at each node with more than `bound` edges. Those are
    at most M(0), where M(t) counts the nodes with at least bound - t edges, and t more. One node raises each degree
    by at most one, and is one node more: M(t) of one network is at most M(t + 1) of its neighbor. Rungs
    max(comb(bound, 2), (bound - 1) M(t)).
    **Moments, one edge**: see `bound_moves`, with the two largest degrees d and e, and the two largest sums of the
    degrees of a node's neighbors. One edge moves each of these degrees by at most one, and each of these sums by at
    most the largest degree and one, or by 2.
    **Moments, one node**, after `project_edges`: at most `bound` edges come and M(0) go, or none of both. In a network
    without larger degrees one edge moves a moment by at most `bound_moves` of two nodes with bound - 1 edges. Rungs
    that number times max(bound, M(t)).
    """
    whole = network.without_direction()
    if plan.shape.unit == EDGE and name == "triangles":
        least = bound_common_neighbors(whole)
        return [least + 2 * t for t in range(count)]
    if plan.shape.unit == EDGE:
        top = _take_largest(whole.degrees)
        if name in MOMENTS:
            sums = sum(_take_largest(_add_neighbors(whole))) if name == "products" else 0
            return [bound_moves(name, top, sums, t) for t in range(count)]
        return [sum(math.comb(d + t, plan.star - 1) for d in top) for t in range(count)]
    bound, reaching = _bound(plan), _count_hubs(_bound(plan), whole, count)
    if name in MOMENTS:
        each = _bound_edge(name, bound)
        return [each * max(bound, many) for many in reaching]
    return [max(math.comb(bound, 2), (bound - 1) * many) for many in reaching]


def bound_moves(name: str, degrees: tuple[int, int], sums: int, t: int = 0) -> int:
    """How far an edge between nodes of these degrees moves a moment, in a network t edges away.

    With degrees d and e it adds 2 ends; 2 d + 1 and 2 e + 1 to the squares; 3 d^2 + 3 d + 1 and the same of e to the
    cubes. To the products it adds (d + 1) (e + 1), and the degrees of all neighbors of both nodes, whose edges now
    count once more: `sums` in all. Within t edges both degrees grow by t at most, and each of the two sums by at most
    t (d + (t + 1) / 2), where d is taken to be at least 1.
    """
    d, e = (degree + t for degree in degrees)
    if name == "ends":
        return 2
    if name == "squares":
        return 2 * (d + e + 1)
    if name == "cubes":
        return sum(3 * each * (each + 1) + 1 for each in (d, e))
    return (d + 1) * (e + 1) + sums + 2 * t * max(degrees[0], 1) + t * (t + 1)


def _bound_edge(name: str, bound: int) -> int:
    """How far one edge moves a moment where no degree is above the bound, with the edge."""
    return bound_moves(name, (bound - 1, bound - 1), 2 * (bound - 1) * bound)


def _take_largest(values: Numbers) -> tuple[int, int]:
    top = [*np.sort(values)[:-3:-1].tolist(), 0, 0]
    return top[0], top[1]


def _add_neighbors(network: Network) -> Numbers:
    """For each node the sum of the degrees of its neighbors."""
    degrees, sums = network.degrees, np.zeros(network.nodes, np.int64)
    np.add.at(sums, network.first, degrees[network.second])
    np.add.at(sums, network.second, degrees[network.first])
    return sums


def _count_hubs(bound: int, whole: Network, count: int) -> list[int]:
    """M(0), M(1), ...: the nodes with at least bound - t edges, and t more."""
    below = np.searchsorted(np.sort(whole.degrees), np.maximum(bound - np.arange(count), 0), side="left")
    return [int(many) for many in whole.nodes - below + np.arange(count)]


def count_for_ladder(name: str, plan: NetworkPlan, network: Network) -> int:
    """The count that a ladder adds noise to."""
    whole = network.without_direction()
    if name == "stars":
        return count_stars(whole.degrees, plan.star)
    kept = whole.keep(project_edges(whole, _bound(plan))) if plan.shape.unit == NODE else whole
    return add_moment(name, kept) if name in MOMENTS else count_triangles(kept)


def add_moment(name: str, network: Network) -> int:
    """The sum over all nodes of a power of the degree; or over all edges of the product of both degrees."""
    degrees = network.degrees
    if name == "products":
        return int((degrees[network.first] * degrees[network.second]).sum())
    power = 1 + MOMENTS.index(name)
    values, often = np.unique(degrees, return_counts=True)
    return sum(int(d) ** power * int(n) for d, n in zip(values, often, strict=True))


Measured = dict[str, NDArray[np.int64]]


def measure(plan: NetworkPlan, network: Network, entropy: Entropy = SYSTEM) -> Measured:
    """All parts with noise; the last sight of the network. The number of public nodes comes with them."""
    found: Measured = {}
    for part in plan.parts:
        mechanism = plan.mechanism(part)
        if isinstance(mechanism, LadderMechanism):
            rungs = build_rungs(part.name, plan, network, mechanism.rungs)
            value = mechanism.release(count_for_ladder(part.name, plan, network), rungs, entropy)
            found[part.name] = np.array([value], np.int64)
        elif isinstance(mechanism, LaplaceMechanism):
            exact = count_exactly(part.name, plan, network)
            shown = mechanism.release(exact if exact.dtype != object else exact.tolist(), entropy)
            found[part.name] = np.clip(shown, -(1 << 62), 1 << 62).astype(np.int64)
        elif part.name == "bound":
            bounds = list_bounds(plan)
            chosen = mechanism.release(_list_losses(network.without_direction(), bounds), entropy)
            plan = replace(plan, bound=bounds[int(chosen[0])] if chosen.size else bounds[-1])
        else:
            limits = _find_doublings(*_list_widths(part.name, plan, network))
            doubled = mechanism.release(limits, entropy)
            found[part.name] = np.array([doubled[0] if doubled.size else DOUBLINGS], np.int64)
    if plan.bound is not None:
        found["bound"] = np.array([plan.bound], np.int64)
    if plan.shape.unit == EDGE and plan.shape.listed:  # a public table names the nodes
        found["nodes"] = np.array([network.nodes], np.int64)
        found["sizes"] = count_exactly("sizes", plan, network)
    return found


def _list_widths(name: str, plan: NetworkPlan, network: Network) -> tuple[list[int], int]:
    """What widths of rungs are bounded by where the unit is a node, and the least that it can be."""
    count = plan.rungs_needed + math.ceil(165 / min(part.epsilon for part in plan.parts))
    if name == "triangle rungs":
        return build_rungs("triangles", plan, network, count), plan.least_rung
    hubs = _count_hubs(_bound(plan), network.without_direction(), count)
    return [max(_bound(plan), many) for many in hubs], _bound(plan)


def list_bounds(plan: NetworkPlan) -> tuple[int, ...]:
    """The bounds that may be chosen: those under which the noise of every part can be drawn."""
    found = []
    for bound in BOUNDS:
        with suppress(ParameterError):
            for part in plan.parts:
                replace(plan, bound=bound).mechanism(part)
            found.append(bound)
    return tuple(found)


def _list_losses(network: Network, bounds: Sequence[int]) -> Numbers:
    """For each candidate bound, less what twice as large a bound would keep more, in units of that bound.

    One node adds 0 to b edges to a projection with bound b, so that (edges kept by 2 b) - (edges kept by b) moves by
    at most 2 b, and its quotient by 2 b, rounded down, by at most 1.
    """
    kept = {b: int(project_degrees(network, b).sum()) for b in {*bounds, *(2 * bound for bound in bounds)}}
    return np.array([-((kept[2 * b] - kept[b]) // (2 * b)) for b in bounds], np.int64)


def _find_doublings(rungs: list[int], least: int) -> Numbers:
    """For each bound (the least rung, doubled so often) the first rung that passes it; one node moves it by at most 1.

    For rung t of one network is at most rung t + 1 of its neighbor.
    """
    limits = least * (1 << np.arange(DOUBLINGS, dtype=np.int64)).astype(object)
    return np.array(
        [next((t for t, each in enumerate(rungs) if each > limit), len(rungs)) for limit in limits], np.int64
    )


def find_error(name: str, plan: NetworkPlan, measured: Mapping[str, NDArray[np.int64]], confidence: float) -> int:
    """How far a noisy count may be from the exact one (of the projected network), but with the rest of probability."""
    part = next(part for part in plan.parts if part.name == name)
    mechanism = plan.mechanism(part)
    if isinstance(mechanism, LaplaceMechanism):
        return mechanism.accuracy(1 - confidence)
    assert isinstance(mechanism, LadderMechanism)
    if plan.shape.unit == NODE:
        if name in MOMENTS:
            widest = _bound_edge(name, _bound(plan)) * (_bound(plan) << int(measured["hub rungs"][0]))
        else:
            widest = plan.least_rung << int(measured["triangle rungs"][0])
        return mechanism.find_reach([widest] * mechanism.rungs, (1 - confidence) / 2)
    aside = "triangle rungs" if name == "triangles" else "star rungs"
    noise = plan.mechanism(next(part for part in plan.parts if part.name == aside))
    assert isinstance(noise, LaplaceMechanism)
    half = (1 - confidence) / 2
    most = max(0, int(measured[aside][0]) + noise.accuracy(1 - confidence))
    if name == "triangles":
        rungs = [most + 2 * t for t in range(mechanism.rungs)]
    elif name in MOMENTS:
        sums = 2 * min(most**2, _bound_ends(plan, measured, confidence)) if name == "products" else 0
        rungs = [bound_moves(name, (most, most), sums, t) for t in range(mechanism.rungs)]
    else:
        rungs = [2 * math.comb(most + t, plan.star - 1) for t in range(mechanism.rungs)]
    return mechanism.find_reach(rungs, half)


def _bound_ends(plan: NetworkPlan, measured: Mapping[str, NDArray[np.int64]], confidence: float) -> int:
    """A number that all degrees together do not pass: nor do those of a node's neighbors."""
    return max(0, int(measured["ends"][0]) + find_error("ends", plan, measured, confidence))


def settle_bound(plan: NetworkPlan, measured: Mapping[str, NDArray[np.int64]]) -> NetworkPlan:
    """The plan with the bound that was chosen."""
    return replace(plan, bound=int(measured["bound"][0])) if "bound" in measured else plan


def fit_monotone(values: NDArray[Any], *, rising: bool) -> NDArray[np.float64]:
    """The nearest values (by squares) that rise, or fall, all along: pools of neighbors that violate it are averaged.

    >>> fit_monotone(np.array([1, 3, 2, 4]), rising=True).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    sums: list[float] = []
    sizes: list[int] = []
    for value in values if rising else values[::-1]:
        total, size = float(value), 1
        while sums and sums[-1] * size >= total * sizes[-1]:
            total += sums.pop()
            size += sizes.pop()
        sums.append(total)
        sizes.append(size)
    means = np.repeat(np.array(sums) / np.array(sizes), sizes) if sums else np.zeros(0)
    return means if rising else means[::-1]


def fit_degrees(plan: NetworkPlan, measured: Mapping[str, NDArray[np.int64]]) -> Numbers:
    """How many nodes have at least 0, 1, ..., bound edges: whole numbers that fall, fitted to the noisy ones.

    Where nodes are not listed, those without an edge are not known, and the first number repeats the second.
    """
    noisy = measured["degrees"]
    if plan.shape.unit == NODE and plan.shape.listed:
        most = np.maximum(np.rint(fit_monotone(noisy, rising=True)), 0)
        falling: Numbers = (most[-1] - np.concatenate([[0], most[:-1]])).astype(np.int64)
        return falling
    tails = np.maximum(np.rint(fit_monotone(noisy, rising=False)), 0)
    if "nodes" in measured:
        tails = np.minimum(tails, measured["nodes"][0])
    first = measured["nodes"][0] if "nodes" in measured else tails[0] if tails.size else 0
    return np.concatenate([[first], tails]).astype(np.int64)
