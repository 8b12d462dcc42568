"""Networks: who is found again in a published graph by the number of their edges, or of their neighbors' edges.

Names that were replaced by numbers hide little: the graph itself tells nodes apart (Backstrom, Dwork and Kleinberg
2007; Hay, Miklau, Jensen, Towsley and Weis 2008). And whoever is found gives away whom they are connected to."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.attacks.codes import require_column
from deniable.attacks.outcome import Outcome, Rate
from deniable.errors import ParameterError

KNOWN = {
    "degree": "how many edges a node has",
    "neighborhood": "how many edges a node has, and how many each of its neighbors",
}


@dataclass(frozen=True, slots=True, eq=False)
class PublishedGraph:
    """A graph without directions: the neighbors of node u are targets[starts[u] : starts[u + 1]]."""

    names: pa.Array = field(repr=False)
    starts: NDArray[np.int64] = field(repr=False)
    targets: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, table: pa.Table, columns: Sequence[str]) -> PublishedGraph:
        """The graph of a table of edges; a row without an end, to itself, or for the second time is no edge."""
        if len(columns) != 2 or columns[0] == columns[1]:
            raise ParameterError("edges are named by two columns", expected="--edges FROM,TO")
        for name in columns:
            require_column(table, name)
        ends = table.select(list(columns)).drop_null()
        texts = [ends.column(i).cast(pa.string()).combine_chunks() for i in (0, 1)]
        names = pc.unique(pa.chunked_array(texts)) if len(ends) else pa.array([], pa.string())
        one, other = (np.asarray(pc.index_in(each, value_set=names), np.int64) for each in texts)
        apart, many = one != other, max(len(names), 1)
        both = np.concatenate([one[apart] * many + other[apart], other[apart] * many + one[apart]])
        pairs = np.unique(both)
        starts = np.searchsorted(pairs, np.arange(len(names) + 1) * many).astype(np.int64)
        return cls(names, starts, pairs % many)

    @property
    def nodes(self) -> int:
        """How many nodes have an edge, or had one to themselves."""
        return len(self.names)

    @property
    def degrees(self) -> NDArray[np.int64]:
        """The number of edges of each node."""
        return np.diff(self.starts)

    def describe(self, known: str) -> list[bytes | int]:
        """What an intruder knows of each node, as one value each."""
        degrees = self.degrees
        if known == "degree":
            return [int(each) for each in degrees]
        found: list[bytes | int] = []
        for node in range(self.nodes):
            around = np.sort(degrees[self.targets[self.starts[node] : self.starts[node + 1]]])
            found.append(hashlib.blake2b(around.tobytes(), digest_size=16).digest())
        return found

    def are_joined(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether there is an edge between each pair of nodes."""
        keys = np.repeat(np.arange(self.nodes), self.degrees) * max(self.nodes, 1) + self.targets
        place = np.minimum(np.searchsorted(keys, one * self.nodes + other), max(keys.size - 1, 0))
        return keys[place] == one * self.nodes + other if keys.size else np.zeros(one.size, bool)


def attack_graph(
    release: pa.Table, edges: Sequence[str], original: pa.Table | None = None, *, targets: int = 500, seed: int = 0
) -> tuple[Outcome, ...]:
    """Who is found by degree and by neighborhood, and which edges that gives away.

    **Scenario.** The intruder holds the published edges, whose nodes have numbers instead of names, and knows of a
    person how many friends they have, or also how many friends each of these has. A person is found if exactly one
    node fits. **Success.** Found; with `original` (the true edges), an edge is given away if both its ends are found
    and the release joins them; it counts as learned if it is true.
    """
    shown = PublishedGraph.of(release, edges)
    true = shown if original is None else PublishedGraph.of(original, edges)
    if not true.nodes:
        raise ParameterError("there is no edge to attack", expected="Rows with two different ends")
    chosen = np.random.default_rng(seed).permutation(true.nodes)[:targets]
    found = [_find_nodes(shown, true, known, chosen) for known in KNOWN]
    return (*(outcome for outcome, _ in found), _learn_edges(shown, true, found[-1][1], seed, targets))


def _find_nodes(
    shown: PublishedGraph, true: PublishedGraph, known: str, chosen: NDArray[np.int64]
) -> tuple[Outcome, NDArray[np.int64]]:
    """The outcome of finding nodes, and the published node that each true one is taken for, or -1."""
    published, held = shown.describe(known), true.describe(known)
    often, place = Counter(published), {value: node for node, value in enumerate(published)}
    taken = np.array([place[value] if often[value] == 1 else -1 for value in held], np.int64)
    few = sum(1 for node in chosen if 0 < often[held[node]] <= 10)
    rate = Rate(int((taken[chosen] >= 0).sum()), chosen.size)
    figures = {"nodes": shown.nodes, "values": len(often), "among_ten_or_fewer": few / chosen.size}
    words = f"An intruder who knows {KNOWN[known]}"
    found = Outcome("network", words, rate, 1 / max(shown.nodes, 1), figures=figures, claimed=rate.successes)
    return found, taken


def _learn_edges(
    shown: PublishedGraph, true: PublishedGraph, taken: NDArray[np.int64], seed: int, targets: int
) -> Outcome:
    """How many true edges are learned from nodes that were found, and how often a claimed edge is true."""
    first = np.repeat(np.arange(true.nodes), true.degrees)
    once = np.flatnonzero(first < true.targets)
    picked = np.random.default_rng(seed).permutation(once)[:targets]
    one, other = taken[first[picked]], taken[true.targets[picked]]
    both = (one >= 0) & (other >= 0)
    learned = both & shown.are_joined(np.where(both, one, 0), np.where(both, other, 0))
    back = np.full(shown.nodes, -1, np.int64)
    back[taken[taken >= 0]] = np.flatnonzero(taken >= 0)
    start = np.repeat(np.arange(shown.nodes), shown.degrees)
    u, v = back[start], back[shown.targets]
    claimed = (u >= 0) & (v >= 0) & (start < shown.targets)
    right = true.are_joined(np.where(claimed, u, 0), np.where(claimed, v, 0)) & claimed
    pairs = true.nodes * (true.nodes - 1) / 2
    density = once.size / pairs if pairs else 0.0
    return Outcome(
        "network edges",
        "An intruder who finds people by their neighborhood, and reads off their edges,",
        Rate(int(learned.sum()), picked.size),
        density,
        precision=Rate(int(right.sum()), int(claimed.sum())),
        figures={"found": int((taken >= 0).sum()), "claimed": int(claimed.sum())},
        claimed=int(both.sum()),
    )


def infer_edge(
    publish: Callable[[int], int], edges: int, moved: int = 1, *, runs: int = 2000, seed: int = 0
) -> Outcome:
    """Whether one edge is there, told from a published count by somebody who knows all other edges.

    **Scenario.** The intruder knows the whole network but one edge, and the count that was published: with the edge it
    would be `moved` larger. **Success.** Says rightly whether the edge is there, which a coin decided.
    """
    there = np.random.default_rng(seed).integers(0, 2, runs)
    right = sum(
        int((publish(edges + moved * int(is_there)) - edges > moved / 2) == bool(is_there)) for is_there in there
    )
    words = "An intruder who knows all edges but one, and a published count,"
    return Outcome("edge inference", words, Rate(right, runs), 0.5)
