"""A network as whole numbers: simple graphs, projections to a bounded degree, triangles, common neighbors.

A table of edges becomes one simple graph. A row without one of its two ends, and a row from a node to itself, is no
edge. Rows that name the same two nodes are one edge (of a directed network: in the same direction). Nodes are those of
a table of nodes, where there is one, and an edge to any other node is left out; else nodes are the ends of edges.

Everything counted here is a function of the set of edges and of one secret salt, never of the order of rows. Work is
bounded by the number of edges m: sorting, m * sqrt(m) for triangles, 2 * m * MIDDLE for common neighbors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Numbers = NDArray[np.int64]
MIDDLE = 512
"""Common neighbors of more edges than this are not counted pair by pair: each is taken to be common to all pairs."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A simple graph: edge e joins the nodes first[e] and second[e], numbered from 0 in the order of their names.

    Of an undirected network first < second. `keys` hold a secret number of each node, by which edges are put in an
    order; `groups` the place of each node's category, or -1.
    """

    nodes: int
    first: Numbers = field(repr=False)
    second: Numbers = field(repr=False)
    keys: NDArray[np.uint64] = field(repr=False)
    groups: Numbers = field(repr=False)
    directed: bool = False

    @property
    def size(self) -> int:
        """The number of edges."""
        return int(self.first.size)

    @property
    def degrees(self) -> Numbers:
        """The number of edges of each node, whatever their direction."""
        return np.bincount(self.first, minlength=self.nodes) + np.bincount(self.second, minlength=self.nodes)

    def without_direction(self) -> Network:
        """The same network where an edge has no direction."""
        if not self.directed:
            return self
        first, second = _unite(np.minimum(self.first, self.second), np.maximum(self.first, self.second), self.nodes)
        return replace(self, first=first, second=second, directed=False)

    def order(self) -> Numbers:
        """The places of all edges in a secret random order, in which two edges stand alike in every network.

        The key of an edge depends on the names of its ends and on the salt alone, and equal keys are put in the order
        of the names: where a node or an edge is missing, the others keep their order.
        """
        keys = _mix(self.keys[self.first] + _mix(self.keys[self.second]))
        return np.lexsort((self.second, self.first, keys)).astype(np.int64)

    def keep(self, kept: NDArray[np.bool_]) -> Network:
        """The network with some of its edges."""
        return replace(self, first=self.first[kept], second=self.second[kept])


def build_network(
    edges: pa.Table,
    nodes: pa.Table | None = None,
    categories: Sequence[Any] | None = None,
    *,
    directed: bool = False,
    salt: bytes = b"",
) -> Network:
    """The network of a table of edges (its first two columns), with nodes (and their attribute) of another table.

    A node with several rows has the first of its categories in their declared order; one without any has none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kept = edges.filter(pc.and_(pc.is_valid(edges.column(0)), pc.is_valid(edges.column(1))))
    ends = [kept.column(i).combine_chunks() for i in (0, 1)]
    listed = pa.chunked_array(ends) if nodes is None else nodes.column(0)
    names = pc.unique(listed).drop_null()
    names = names.take(pc.sort_indices(names))
    places = [pc.index_in(end, value_set=names) for end in ends]
    known = pc.and_(pc.is_valid(places[0]), pc.is_valid(places[1])) if len(names) else None
    first, second = (
        (np.asarray(place.filter(known), dtype=np.int64) for place in places)
        if known is not None
        else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    )
    if not directed:
        first, second = np.minimum(first, second), np.maximum(first, second)
    first, second = _unite(first, second, len(names))
    groups = np.full(len(names), -1, np.int64)
    if nodes is not None and categories is not None and len(names):
        groups = _read_groups(nodes, names, categories)
    return Network(len(names), first, second, _hash_names(names, salt), groups, directed)


def make_complete(nodes: int) -> Network:
    """The network in which all of so many nodes are joined; one with fewer nodes is part of it."""
    first, second = np.triu_indices(nodes, 1)
    keys = np.arange(nodes, dtype=np.uint64)
    return Network(nodes, first.astype(np.int64), second.astype(np.int64), keys, np.zeros(nodes, np.int64))


def _read_groups(nodes: pa.Table, names: pa.Array, categories: Sequence[Any]) -> Numbers:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(categories, nodes.column(1).type)
    rows = pa.table({"node": pc.index_in(nodes.column(0), value_set=names),
                     "group": pc.index_in(nodes.column(1), value_set=wanted)}).drop_null()  # fmt: skip
    found = np.full(len(names), len(categories), np.int64)
    np.minimum.at(found, np.asarray(rows.column("node"), np.int64), np.asarray(rows.column("group"), np.int64))
    return np.where(found == len(categories), -1, found)


def _hash_names(names: pa.Array, salt: bytes) -> NDArray[np.uint64]:
    """A number of each node that only its name and the salt decide."""
    digests = (hashlib.blake2b(str(name).encode(), key=salt[:64], digest_size=8).digest() for name in names.to_pylist())
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _unite(first: Numbers, second: Numbers, nodes: int) -> tuple[Numbers, Numbers]:
    """Edges in the order of their ends, each once, without those from a node to itself."""
    apart = first != second
    pairs = np.unique(first[apart] * max(nodes, 1) + second[apart])
    return pairs // max(nodes, 1), pairs % max(nodes, 1)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64: each bit of the answer depends on all bits of a word."""
    z = words + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def project_degrees(network: Network, bound: int, slots: tuple[Numbers, Numbers] | None = None) -> NDArray[np.bool_]:
    """Which edges stay when each is added in order, unless one of its ends has `bound` edges already.

    This is pi of Day, Li and Lyu (2016). `slots` are the counters that an edge needs room in; by default those of its
    two ends, and of a directed network the outgoing ones of the first and the incoming ones of the second.

    **Stability.** Let G' be G and one more node v. Compare the counters of all other nodes while edges are added in the
    common order, and let D be the sum of their absolute differences.
    - An edge of v that is added raises one such counter by one: D grows by at most 1.
    - An edge of both graphs that is added in both, or in neither, leaves D as it is.
    - An edge that is added in one graph alone found a full counter in the other one, where it has room in this one:
      that difference falls by 1, and the difference at the other end grows by at most 1. D does not grow.
    So D is at most the number of edges of v that were added, which is at most `bound` for each counter of v. With one
    more edge instead of one more node, D is at most 2 by the same steps. The edges that stay may be very different in
    the two graphs: only counts of them by node are stable.
    """
    ends = slots if slots is not None else (network.first, network.second + (network.nodes if network.directed else 0))
    most = max((int(each.max(initial=-1)) for each in ends), default=-1) + 1
    kept: NDArray[np.bool_] = _fill(ends[0], ends[1], network.order(), np.zeros(max(most, 1), np.int64), bound)
    return kept


def project_edges(network: Network, bound: int) -> NDArray[np.bool_]:
    """Which edges stay when each node keeps its first `bound` edges, and an edge stays where both its ends keep it.

    This is mu of Blocki, Blum, Datta and Sheffet (2013). **Stability.** One more node v adds at most `bound` edges of
    its own; and at each neighbor u of v it can push out one edge, only if u has more than `bound` edges with v. So
    the edges of G and of G + v that stay differ by at most `bound` edges of v, and one edge for each such u.
    """
    counts = np.zeros(max(network.nodes, 1), np.int64)
    kept: NDArray[np.bool_] = _rank(network.first, network.second, network.order(), counts, bound)
    return kept


def count_triangles(network: Network) -> int:
    """How many triples of nodes are joined by three edges; edges have no direction here."""
    starts, targets = _orient(network)
    return int(_close_paths(starts, targets, np.full(max(network.nodes, 1), -1, np.int64)))


def bound_common_neighbors(network: Network, middle: int = MIDDLE) -> int:
    """A number that no two nodes have more common neighbors than, and that one edge changes by at most 2.

    It is the least of two. The second largest degree: both nodes have so many neighbors, and one edge moves it by at
    most 1. And h = max over pairs of the common neighbors that have at most `middle` edges, plus the number H of all
    nodes with more. With an edge (u, w) added: a pair (u, j) may gain w, one of (w, j) may gain u, and no pair gains
    both, as neither is a common neighbor of itself. If u or w passes `middle`, pairs lose it and H grows by one for
    it. So a pair gains at most 1 without a passing, H grows by the number of passings (each of them takes away what
    its node could add to a pair), and h grows by 0 to 2.
    """
    degrees = network.degrees
    if network.nodes < 2:
        return 0
    second = int(np.partition(degrees, -2)[-2])
    starts, targets = list_neighbors(network)
    pairs = int(_meet(starts, targets, degrees, middle, np.zeros(max(network.nodes, 1), np.int64)))
    return min(second, pairs + int((degrees > middle).sum()))


def list_neighbors(network: Network) -> tuple[Numbers, Numbers]:
    """The neighbors of each node, in order: those of node u are targets[starts[u] : starts[u + 1]]."""
    first = np.concatenate([network.first, network.second])
    second = np.concatenate([network.second, network.first])
    starts = np.concatenate([[0], np.cumsum(np.bincount(first, minlength=network.nodes))]).astype(np.int64)
    return starts, second[np.lexsort((second, first))]


def _orient(network: Network) -> tuple[Numbers, Numbers]:
    """Each edge from the end with fewer edges: no node then has more than sqrt(2 m) edges that leave it."""
    degrees = network.degrees
    rank = np.empty(network.nodes, np.int64)
    rank[np.argsort(degrees, kind="stable")] = np.arange(network.nodes)
    one, other = rank[network.first], rank[network.second]
    low, high = np.minimum(one, other), np.maximum(one, other)
    starts = np.concatenate([[0], np.cumsum(np.bincount(low, minlength=network.nodes))]).astype(np.int64)
    return starts, high[np.argsort(low, kind="stable")]


@nb.njit(cache=True, nogil=True)
def _fill(first, second, order, counts, bound):  # type: ignore[no-untyped-def]
    kept = np.zeros(first.size, np.bool_)
    for place in order:
        u, v = first[place], second[place]
        if counts[u] < bound and counts[v] < bound:
            counts[u] += 1
            counts[v] += 1
            kept[place] = True
    return kept


@nb.njit(cache=True, nogil=True)
def _rank(first, second, order, counts, bound):  # type: ignore[no-untyped-def]
    kept = np.zeros(first.size, np.bool_)
    for place in order:
        u, v = first[place], second[place]
        kept[place] = counts[u] < bound and counts[v] < bound
        counts[u] += 1
        counts[v] += 1
    return kept


@nb.njit(cache=True, nogil=True)
def _close_paths(starts, targets, marks):  # type: ignore[no-untyped-def]
    found = 0
    for u in range(starts.size - 1):
        for i in range(starts[u], starts[u + 1]):
            marks[targets[i]] = u
        for i in range(starts[u], starts[u + 1]):
            v = targets[i]
            for j in range(starts[v], starts[v + 1]):
                if marks[targets[j]] == u:
                    found += 1
    return found


@nb.njit(cache=True, nogil=True)
def _meet(starts, targets, degrees, middle, common):  # type: ignore[no-untyped-def]
    most = 0
    for u in range(starts.size - 1):
        for i in range(starts[u], starts[u + 1]):
            w = targets[i]
            if degrees[w] <= middle:
                for j in range(starts[w], starts[w + 1]):
                    v = targets[j]
                    if v > u:
                        common[v] += 1
                        most = max(most, common[v])
        for i in range(starts[u], starts[u + 1]):
            w = targets[i]
            if degrees[w] <= middle:
                for j in range(starts[w], starts[w + 1]):
                    common[targets[j]] = 0
    return most
