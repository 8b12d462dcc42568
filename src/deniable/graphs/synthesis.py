"""What follows from noisy counts: assortativity, made networks, and how rumors spread. All of it is post-processing.

A made network has the noisy degrees, the noisy number of edges between groups where there are any, and as many
triangles as were measured, as far as degrees allow. Its nodes are nobody: they have numbers, and no row of a person
was looked at. The same noisy counts give the same network.

Nodes of one group and of about the same degree d stand together in blocks of d + 1, and the nodes of a block are joined
with one probability; all other edges join two nodes by chance, in proportion to the degree that each has left (Chung
and Lu 2002), within each pair of groups. These are the blocks of Seshadhri, Kolda and Pinar (2012) with one
probability for all: that which brings the triangles as near to the measured number as can be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from deniable.dp.mechanisms import LaplaceMechanism
from deniable.graphs.network import Network, Numbers, count_triangles, list_neighbors
from deniable.graphs.statistics import MOMENTS, NODE, NetworkPlan, Shape, find_error, fit_degrees

HALVINGS = 8
"""How often the interval of the probability inside blocks is halved."""


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """What a network is made from: nodes with at least k edges, triangles, and the edges and sizes of groups."""

    tails: Numbers
    triangles: int
    cells: tuple[tuple[int, int], ...] = ((0, 0),)
    counts: Numbers = field(default_factory=lambda: np.ones(1, np.int64))
    sizes: Numbers = field(default_factory=lambda: np.ones(1, np.int64))
    seed: int = 0


def make_from_counts(plan: NetworkPlan, measured: Mapping[str, Any]) -> Network:
    """The network that noisy counts describe; edges between groups have no direction in it."""
    tails, triangles = fit_degrees(plan, measured), max(0, int(measured["triangles"][0]))
    seed = find_seed(measured)
    if "cells" not in measured:
        return make_network(Wanted(tails, triangles, seed=seed))
    cells = {(min(pair), max(pair)): 0 for pair in plan.shape.cells}
    for (g, h), count in zip(plan.shape.cells, measured["cells"].tolist(), strict=True):
        cells[min(g, h), max(g, h)] += max(0, int(count))
    counts, sizes = np.array([*cells.values()], np.int64), np.array(list_sizes(measured), np.int64)
    return make_network(Wanted(tails, triangles, tuple(cells), counts, sizes, seed))


def list_sizes(measured: Mapping[str, Any]) -> list[int]:
    """The sizes of groups, none below 0."""
    return [max(0, int(size)) for size in measured["sizes"]] if "sizes" in measured else []


def find_seed(measured: Mapping[str, Any]) -> int:
    """A number that follows from noisy counts: the same ones give the same network again."""
    texts = [f"{name}:{np.asarray(values).tolist()}" for name, values in sorted(measured.items())]
    return int.from_bytes(hashlib.blake2b("\n".join(texts).encode(), digest_size=8).digest(), "big") >> 1


def make_network(wanted: Wanted) -> Network:
    """A network with about the degrees, the groups and the triangles that are wanted."""
    degrees = list_degrees(wanted.tails)
    random = np.random.default_rng(wanted.seed)
    groups = _assign_groups(degrees.size, wanted.sizes, random)
    low, high, best = 0.0, 1.0, None
    for _ in range(HALVINGS):
        share = (low + high) / 2 if best is not None else 0.0
        made = _draw(degrees, groups, wanted, share)
        found = count_triangles(made)
        if best is None or abs(found - wanted.triangles) < best[0]:
            best = (abs(found - wanted.triangles), made)
        if share == 0.0 and found >= wanted.triangles:
            break
        low, high = (share, high) if found < wanted.triangles else (low, share)
    assert best is not None
    return best[1]


def list_degrees(tails: Numbers) -> Numbers:
    """A degree for each node, from how many have at least 0, 1, 2, ... edges; the largest first.

    >>> list_degrees(np.array([4, 3, 1])).tolist()
    [2, 1, 1, 0]
    """
    nodes = int(tails[0]) if tails.size else 0
    ends = np.minimum(tails[1:], nodes)
    return np.cumsum(np.bincount(ends, minlength=nodes + 1)[::-1])[::-1][1:].astype(np.int64)


def _assign_groups(nodes: int, sizes: Numbers, random: np.random.Generator) -> Numbers:
    shares = np.maximum(sizes.astype(float), 0)
    shares = shares / shares.sum() if shares.sum() > 0 else np.full(shares.size, 1 / shares.size)
    ends = np.rint(np.cumsum(shares) * nodes).astype(np.int64)
    groups = np.repeat(np.arange(shares.size), np.diff(ends, prepend=0))
    return random.permutation(groups)[:nodes].astype(np.int64)


def _draw(degrees: Numbers, groups: Numbers, wanted: Wanted, density: float) -> Network:
    """A network whose blocks have a density."""
    nodes, edges = degrees.size, int(degrees.sum()) // 2
    keys, counts = np.zeros(nodes, np.uint64), np.maximum(wanted.counts.astype(float), 0)
    if not edges or counts.sum() <= 0 or nodes < 2:
        return Network(nodes, np.zeros(0, np.int64), np.zeros(0, np.int64), keys, groups)
    quotas = np.rint(counts / counts.sum() * edges).astype(np.int64)
    order = np.lexsort((degrees, groups)).astype(np.int64)
    starts = np.searchsorted(groups[order], np.arange(wanted.sizes.size + 1)).astype(np.int64)
    pairs = np.array(wanted.cells, np.int64).reshape(-1, 2)
    inside = {g: place for place, (g, h) in enumerate(wanted.cells) if g == h}
    blocks = np.array([inside[g] for g in range(wanted.sizes.size)], np.int64)
    seed = wanted.seed & 0xFFFFFFFF
    first, second = _join(order, starts, degrees, pairs, blocks, quotas, density, seed)
    low, high = np.minimum(first, second), np.maximum(first, second)
    return Network(nodes, low, high, keys, groups)


@nb.njit(cache=True, nogil=True)
def _pick(order, starts, weights, group):  # type: ignore[no-untyped-def]
    """A node of a group, in proportion to its weight; -1 where all weights are 0."""
    begin, end = starts[group], starts[group + 1]
    low = weights[begin - 1] if begin > 0 else 0.0
    if end == begin or weights[end - 1] <= low:
        return -1
    at = np.searchsorted(weights[begin:end], low + np.random.random() * (weights[end - 1] - low), side="right")
    return order[min(begin + at, end - 1)]


@nb.njit(cache=True, nogil=True)
def _join(order, starts, degrees, pairs, blocks, quotas, density, seed):  # type: ignore[no-untyped-def]
    np.random.seed(seed)
    nodes, total = order.size, quotas.sum()
    room = np.zeros(nodes + 1, np.int64)
    for i in range(nodes):
        room[i + 1] = room[i] + 3 * degrees[i] + 16
    lists, filled = np.empty(room[nodes], np.int64), np.zeros(nodes, np.int64)
    first, second = np.empty(total, np.int64), np.empty(total, np.int64)
    left, made = quotas.copy(), 0
    for group in range(starts.size - 1):
        begin = starts[group]
        while begin < starts[group + 1]:
            size = degrees[order[begin]] + 1
            end = min(begin + size, starts[group + 1])
            if size > 2:
                for i in range(begin, end):
                    for j in range(begin, i):
                        if left[blocks[group]] > 0 and np.random.random() < density:
                            u, v = order[i], order[j]
                            lists[room[u] + filled[u]], lists[room[v] + filled[v]] = v, u
                            filled[u] += 1
                            filled[v] += 1
                            first[made], second[made] = u, v
                            made += 1
                            left[blocks[group]] -= 1
            begin = end
    weights = np.empty(nodes, np.float64)
    seen = 0.0
    for i in range(nodes):
        seen += max(degrees[order[i]] - filled[order[i]], 0)
        weights[i] = seen
    for cell in range(pairs.shape[0]):
        tries = 0
        while left[cell] > 0 and tries < 20 * quotas[cell] + 100:
            tries += 1
            u, v = _pick(order, starts, weights, pairs[cell, 0]), _pick(order, starts, weights, pairs[cell, 1])
            if u < 0 or v < 0:
                break
            if u == v or filled[u] >= room[u + 1] - room[u] or filled[v] >= room[v + 1] - room[v]:
                continue
            known = False
            for i in range(room[u], room[u] + filled[u]):
                if lists[i] == v:
                    known = True
                    break
            if known:
                continue
            lists[room[u] + filled[u]], lists[room[v] + filled[v]] = v, u
            filled[u] += 1
            filled[v] += 1
            first[made], second[made] = u, v
            left[cell] -= 1
            made += 1
    return first[:made], second[:made]


def spread_rumor(
    network: Network, passing: float, stopping: float, steps: int, *, runs: int = 40, seed: int = 0
) -> NDArray[np.float64]:
    """The share of nodes that a rumor has reached after 0, 1, ..., `steps` steps: a row for each run.

    It starts at one node with at least one edge, chosen by chance. In each step a node that tells it passes it on to
    each neighbor with probability `passing`, and then stops telling it with probability `stopping` (0: never).
    """
    starts, targets = list_neighbors(network)
    begin = np.flatnonzero(network.degrees > 0)
    if not begin.size:
        return np.zeros((runs, steps + 1))
    chosen = np.random.default_rng(seed).choice(begin, runs)
    return np.asarray(_spread(starts, targets, chosen, passing, stopping, steps, seed & 0xFFFFFFFF)) / network.nodes


@nb.njit(cache=True, nogil=True)
def _spread(starts, targets, chosen, passing, stopping, steps, seed):  # type: ignore[no-untyped-def]
    np.random.seed(seed)
    nodes = starts.size - 1
    reached = np.zeros((chosen.size, steps + 1))
    for run in range(chosen.size):
        state = np.zeros(nodes, np.int8)  # 0 has not heard, 1 tells it, 2 has stopped
        telling = np.empty(nodes, np.int64)
        telling[0], many, heard = chosen[run], 1, 1
        state[chosen[run]] = 1
        reached[run, 0] = 1
        for step in range(1, steps + 1):
            before = many
            for place in range(before):
                u = telling[place]
                for i in range(starts[u], starts[u + 1]):
                    v = targets[i]
                    if state[v] == 0 and np.random.random() < passing:
                        state[v] = 1
                        telling[many] = v
                        many += 1
                        heard += 1
            kept = 0
            for place in range(many):
                u = telling[place]
                if place < before and np.random.random() < stopping:
                    state[u] = 2
                else:
                    telling[kept] = u
                    kept += 1
            many = kept
            reached[run, step] = heard
    return reached


def compute_assortativity(cells: NDArray[Any], shape: Shape) -> tuple[float, float, float]:
    """Newman's coefficient of a mixing matrix; the share of edges inside groups; and that share by chance alone.

    With e the matrix of shares of edge ends and a, b its margins: (sum of e_gg - sum of a_g b_g) / (1 - sum of
    a_g b_g). It is 1 where all edges are inside groups, 0 where groups play no part, and not defined (0 is given)
    where all edges are in one group.
    """
    many = len(shape.groups)
    table = np.zeros((many, many))
    for (g, h), value in zip(shape.cells, np.maximum(cells.astype(float), 0), strict=True):
        table[g, h] += value
        if not shape.directed:
            table[h, g] += value  # an edge has two ends; one inside a group counts twice there
    total = table.sum()
    if total <= 0:
        return 0.0, 0.0, 0.0
    shares = table / total
    inside, chance = float(np.trace(shares)), float(shares.sum(axis=1) @ shares.sum(axis=0))
    return ((inside - chance) / (1 - chance) if chance < 1 else 0.0), inside, chance


DRAWS = 500
Enclosed = tuple[float, float, float]
"""A number, and the ends of its interval."""


def estimate_assortativity(
    plan: NetworkPlan, measured: Mapping[str, Any], confidence: float, seed: int
) -> NDArray[np.float64]:
    """The three numbers of `compute_assortativity`, each with the ends of an estimated interval.

    The interval is from noise that is drawn once more on the noisy numbers, which estimates how far they are off.
    """
    cells = np.asarray(measured["cells"], np.int64)
    noise = plan.mechanism(next(part for part in plan.parts if part.name == "cells"))
    assert isinstance(noise, LaplaceMechanism)
    drawn = cells + np.rint(np.random.default_rng(seed).laplace(0, float(noise.scale), (DRAWS, cells.size)))
    value = np.array(compute_assortativity(cells, plan.shape))
    least, most = np.array([-1.0, 0.0, 0.0]), np.ones(3)
    if (np.maximum([cells, *drawn], 0).sum(axis=1) <= 0).any():  # there may be no edge at all
        return np.array([value, least, most])
    found = np.array([compute_assortativity(each, plan.shape) for each in drawn])
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    low, high = np.minimum(low, value), np.maximum(high, value)
    # How far draws are off tells how far the value is off, in which direction it does not: both are taken.
    ends = np.minimum(low, 2 * value - high), np.maximum(high, 2 * value - low)
    return np.array([value, *np.clip(ends, least, most)])


def _count_pairs(first: int, second: int, *, same: bool, directed: bool) -> int:
    """The pairs of nodes of two groups of these sizes that could have an edge."""
    one, other = max(0, first), max(0, second)
    return one * other if not same else one * (one - 1) // (1 if directed else 2)


def enclose_densities(
    plan: NetworkPlan, measured: Mapping[str, Any], confidence: float
) -> list[tuple[float | None, float | None, float | None]]:
    """For each pair of groups the edges by the pairs of nodes, with an interval that holds all noise in it.

    Where sizes of groups are noisy, a fifth of the rest of probability is theirs. Without a pair there is no density.
    """
    sizes, noisy, rest = [int(size) for size in measured["sizes"]], plan.shape.unit == NODE, 1 - confidence
    error = find_error("cells", plan, measured, 1 - 0.8 * rest if noisy else confidence)
    found: list[tuple[float | None, float | None, float | None]] = []
    for (g, h), edges in zip(plan.shape.cells, measured["cells"].tolist(), strict=True):
        off = find_error("sizes", plan, measured, 1 - 0.2 * rest / (1 if g == h else 2)) if noisy else 0
        least, pairs, most = (
            _count_pairs(sizes[g] + side, sizes[h] + side, same=g == h, directed=plan.shape.directed)
            for side in (-off, 0, off)
        )
        value = min(1.0, max(0.0, edges / pairs)) if pairs else None
        if not most:
            found.append((None, None, None))
            continue
        high = min(1.0, max(0.0, (edges + error) / least)) if least else 1.0
        found.append((value, min(1.0, max(0.0, (edges - error) / most)), high))
    return found


def enclose_clustering(triangles: Enclosed, paths: Enclosed) -> Enclosed:
    """Three times the triangles by the paths of two edges, from the intervals of both: 0 to 1 if there may be no path.

    An interval of triangles below 0 is moved up to 0, which no number of triangles is below.

    >>> enclose_clustering((20, 10, 30), (100, 80, 120)), enclose_clustering((-50, -70, -30), (100, 80, 120))
    ((0.6, 0.25, 1.0), (0.0, 0.0, 1.0))
    """
    closed, low, high = triangles
    low, high = (low, high) if high > 0 else (0.0, high - low)

    def divide(part: float, whole: float, otherwise: float) -> float:
        return min(1.0, max(0.0, 3 * part / whole)) if whole > 0 else otherwise

    return divide(closed, paths[0], 0.0), divide(low, paths[2], 0.0), divide(high, paths[1], 1.0)


def correlate_degrees(ends: float, squares: float, cubes: float, products: float) -> float | None:
    """The correlation of the degrees at the two ends of an edge; None where all of them are alike.

    With m edges it is (products / m - (squares / 2 m)^2) / (cubes / 2 m - (squares / 2 m)^2) (Newman 2002).

    >>> correlate_degrees(ends=8, squares=20, cubes=68, products=16)  # a star of four edges
    -1.0
    """
    spread = ends * cubes - squares**2
    return min(1.0, max(-1.0, (2 * ends * products - squares**2) / spread)) if spread > 0 else None


def enclose_correlation(plan: NetworkPlan, measured: Mapping[str, Any], confidence: float) -> Enclosed:
    """Assortativity by degree (0 where it is not defined) with an interval that holds the noise of all four sums.

    Each sum has an interval that it leaves with a fourth of the rest of probability. The coefficient rises or falls
    with each sum alone, wherever degrees differ, so that its ends are those of some corner of the four intervals.
    """
    level = 1 - (1 - confidence) / len(MOMENTS)
    sums = [max(0, int(measured[name][0])) for name in MOMENTS]
    errors = [find_error(name, plan, measured, level) for name in MOMENTS]
    value = correlate_degrees(*sums) or 0.0
    sides = [(max(0, total - error), total + error) for total, error in zip(sums, errors, strict=True)]
    corners = [correlate_degrees(*corner) for corner in product(*sides)]
    known = [each for each in corners if each is not None]
    if len(known) < len(corners):
        return value, -1.0, 1.0
    return value, min(known), max(known)
