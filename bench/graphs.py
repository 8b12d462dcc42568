"""Networks: time and error at a million edges and on a real friendship graph, beside published mechanisms.

Time is CPU seconds of `deniable network` workflows without reading files: building the graph, projecting, counting,
noise. Errors are means over runs, beside these published mechanisms, with the same graph and epsilon:

    degrees, edge    Hay, Li, Miklau and Jensen 2009: the sorted degrees with Laplace noise of scale 2 / epsilon each,
                     then isotonic regression; the error is the L1 distance of the two sorted sequences, which is the
                     area between the two cumulative histograms
    degrees, node    Day, Li and Lyu 2016: projection pi, cumulative histogram, Laplace noise of scale
                     (theta + 1) / epsilon, isotonic regression; L1 distance of cumulative histograms, against the
                     degrees before the projection
    triangles, edge  Zhang, Cormode, Procopiuc, Srivastava and Xiao 2015: the ladder with the exact local sensitivity at
                     distance t, max over pairs of a + floor((t + min(t, b)) / 2); mean absolute error, computed
                     exactly from the law (all of epsilon on the count; ours keeps a tenth for the interval)
    triangles, node  the noise of `unit: node` beside the bias of its projection; no published figure without an LP
    by degree        assortativity by degree: exact, after the projection (the bias), and as released; no published
                     mechanism is known to us

The bars: at a million edges at most 60 CPU seconds for degrees and triangles, and errors within 1.2 of the published.

The made network is compared with the real one by a rumor's spread.

    python bench/graphs.py [--edges 1000000] [--runs 10]
"""

from __future__ import annotations

import argparse
import resource
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from deniable.dp.samplers import salt
from deniable.graphs.network import (
    Network,
    bound_common_neighbors,
    build_network,
    count_triangles,
    list_neighbors,
    project_degrees,
    project_edges,
)
from deniable.graphs.statistics import (
    EDGE,
    MOMENTS,
    NODE,
    NetworkPlan,
    Shape,
    add_moment,
    find_error,
    fit_degrees,
    fit_monotone,
    measure,
    plan_network,
    settle_bound,
)
from deniable.graphs.synthesis import (
    compute_assortativity,
    correlate_degrees,
    enclose_correlation,
    list_degrees,
    make_from_counts,
    spread_rumor,
)

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "graphs" / "facebook_ego.parquet"


def make_edges(edges: int, seed: int = 1) -> pa.Table:
    """Edges between nodes with degrees of a power law, a fifth of them closing a path; most of them are distinct."""
    random = np.random.default_rng(seed)
    nodes = edges // 6
    weights = np.minimum(random.pareto(1.6, nodes) + 1, 500)
    ends = random.choice(nodes, (edges * 11 // 10, 2), p=weights / weights.sum())
    closing = ends[: edges // 5]
    middle = random.permutation(edges // 5)
    ends[: edges // 5, 1] = np.where(closing[:, 0] % 2 == 0, (closing[:, 0] + 1 + middle % 4) % nodes, closing[:, 1])
    return pa.table({"a": ends[:, 0], "b": ends[:, 1]})


def list_nodes(table: pa.Table) -> pa.Table:
    """All nodes that have an edge."""
    names = np.unique(np.concatenate([np.asarray(table.column(i)) for i in (0, 1)]))
    return pa.table({"n": pa.array(names, table.schema.field(0).type)})


def take_time(title: str, table: pa.Table) -> Network:
    """CPU seconds of each statistic from the rows of the table on, with the largest memory so far."""
    nodes = list_nodes(table)
    started = time.process_time()
    network = build_network(table, nodes, salt=salt(32))
    built = time.process_time() - started
    print(f"\n{title}: {network.nodes:,} nodes, {network.size:,} edges, largest degree {network.degrees.max():,}")
    print(f"  {'building the graph':34} {built:6.1f} CPU seconds")
    spent: dict[tuple[str, str], float] = {}
    for unit in (EDGE, NODE):
        for name in ("degrees", "triangles", "stars", "clustering", "degree assortativity"):
            plan = plan_network(name, Shape(unit, listed=True), Fraction(1), None if unit == EDGE else 100)
            started = time.process_time()
            measure(plan, network)
            spent[name, unit] = time.process_time() - started
            print(f"  {f'{name}, unit: {unit}':34} {spent[name, unit]:6.1f} CPU seconds", flush=True)
    most = built + max(spent["degrees", unit] + spent["triangles", unit] for unit in (EDGE, NODE))
    print(f"  graph, degrees and triangles together: {most:.1f} CPU seconds at most (the bar at a million edges: 60)")
    print(f"  largest memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB")
    return network


def area(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """The area between two falling counts of nodes with at least k edges."""
    size = max(one.size, other.size)
    return float(np.abs(np.pad(one, (0, size - one.size)) - np.pad(other, (0, size - other.size)))[1:].sum())


def compare_degrees_edge(network: Network, epsilon: Fraction, runs: int) -> None:
    """Ours beside sorted degrees with isotonic regression."""
    random, degrees = np.random.default_rng(2), np.sort(network.degrees)
    tails = np.array([int((degrees >= k).sum()) for k in range(int(degrees.max()) + 1)])
    bound = int(2 ** np.ceil(np.log2(degrees.max() + 1)))
    plan = plan_network("degrees", Shape(EDGE, listed=True), epsilon, bound)
    ours, hay = [], []
    for _ in range(runs):
        ours.append(area(fit_degrees(plan, measure(plan, network)), tails))
        noisy = degrees + random.laplace(0, 2 / float(epsilon), degrees.size)
        hay.append(float(np.abs(fit_monotone(noisy, rising=True) - degrees).sum()))
    say("degrees, unit: edge", epsilon, np.mean(ours), "Hay et al. 2009", np.mean(hay))


def compare_degrees_node(network: Network, epsilon: Fraction, bound: int, runs: int) -> None:
    """Ours beside a cumulative histogram of projected degrees."""
    random = np.random.default_rng(3)
    tails = np.array([int((network.degrees >= k).sum()) for k in range(int(network.degrees.max()) + 1)])
    plan = plan_network("degrees", Shape(NODE, listed=True), epsilon, bound)
    kept = network.keep(project_degrees(network, bound)).degrees
    most = np.cumsum(np.bincount(kept, minlength=bound + 1))
    ours, day = [], []
    for _ in range(runs):
        ours.append(area(fit_degrees(plan, measure(plan, network)), tails))
        fitted = fit_monotone(most + random.laplace(0, (bound + 1) / float(epsilon), most.size), rising=True)
        day.append(area(np.rint(fitted[-1] - np.concatenate([[0], fitted[:-1]])), tails))
    say(f"degrees, unit: node, {bound}", epsilon, np.mean(ours), "Day et al. 2016", np.mean(day))


def say(what: str, epsilon: Fraction, ours: float, who: str, theirs: float) -> None:
    """One line of a comparison."""
    told = (
        f"epsilon {float(epsilon):g}: ours {ours:12,.1f}   {who} {theirs:12,.1f}   ratio {ours / theirs:.3f} (bar 1.2)"
    )
    print(f"  {what:32} {told}", flush=True)


def list_pairs(network: Network) -> NDArray[np.int64]:
    """All different pairs (a, b) of common neighbors and neighbors of one alone, over pairs with a common neighbor."""
    starts, targets = list_neighbors(network)
    degrees, found = network.degrees, set()
    for u in range(network.nodes):
        around = targets[starts[u] : starts[u + 1]]
        if around.size:
            reached = np.concatenate([targets[starts[w] : starts[w + 1]] for w in around])
            common = np.bincount(reached, minlength=network.nodes)
            others = np.flatnonzero(common)
            others = others[others > u]
            apart = degrees[u] + degrees[others] - 2 * common[others]
            found |= {*zip(common[others].tolist(), apart.tolist(), strict=True)}
    return np.array(sorted(found), np.int64)


def compute_error(rungs: NDArray[np.float64], epsilon: float) -> float:
    """The mean absolute error of a ladder with these rungs."""
    t = np.arange(1, rungs.size + 1)
    weights = 2 * rungs * np.exp(-t * epsilon / 2)
    middle = np.cumsum(rungs) - rungs / 2
    return float((weights * middle).sum() / (1 + weights.sum()))


def compare_triangles_edge(network: Network, epsilon: Fraction) -> None:
    """Exact mean errors, by the laws of both ladders."""
    pairs, t = list_pairs(network), np.arange(int(165 / epsilon))
    exact = np.array([(pairs[:, 0] + (s + np.minimum(s, pairs[:, 1])) // 2).max() for s in t], float)
    exact = np.minimum(exact, network.nodes - 2)
    least = bound_common_neighbors(network)
    part = plan_network("triangles", Shape(EDGE), epsilon, None).parts[0]
    ours = compute_error(least + 2.0 * t, float(part.epsilon))
    say("triangles, unit: edge", epsilon, ours, "Zhang et al. 2015", compute_error(exact, float(epsilon)))


def show_triangles_node(network: Network, epsilon: Fraction, bound: int, runs: int) -> None:
    """Noise, interval and bias of triangles."""
    true = count_triangles(network)
    kept = count_triangles(network.keep(project_edges(network, bound)))
    plan = plan_network("triangles", Shape(NODE, listed=True), epsilon, bound)
    found = [measure(plan, network) for _ in range(runs)]
    off = np.mean([abs(int(each["triangles"][0]) - kept) for each in found])
    wide = np.median([find_error("triangles", plan, each, 0.95) for each in found])
    told = f"noise {off:,.0f}, interval {wide:,.0f}, left out by the projection {true - kept:,} of {true:,}"
    print(f"  {f'triangles, unit: node, {bound}':32} epsilon {float(epsilon):g}: {told}", flush=True)


def show_spread(network: Network, plan: NetworkPlan, runs: int) -> None:
    """When a rumor has reached a tenth and a half, on the real network and on made ones; and what they are made of."""
    real = spread_rumor(network, 0.05, 0.0, 40, runs=200, seed=5).mean(axis=0)
    reached = [first_above(real, share) for share in (0.1, 0.5)]
    unit = plan.shape.unit
    print(f"  rumor, real network: a tenth after {reached[0]} steps, half after {reached[1]}")
    for _ in range(min(runs, 3)):
        measured = measure(plan, network)
        made = make_from_counts(settle_bound(plan, measured), measured)
        curve = spread_rumor(made, 0.05, 0.0, 40, runs=200, seed=5).mean(axis=0)
        steps = [first_above(curve, share) for share in (0.1, 0.5)]
        told = f"{made.size:,} edges, {count_triangles(made):,} triangles"
        print(f"  rumor, made network (unit: {unit}): a tenth after {steps[0]} steps, half after {steps[1]}; {told}")
    random = np.random.default_rng(6)
    weights = list_degrees(np.array([int((network.degrees >= k).sum()) for k in range(network.degrees.max() + 1)]))
    ends = random.choice(network.nodes, (network.size, 2), p=weights / weights.sum())
    alone = build_network(pa.table({"a": ends[:, 0], "b": ends[:, 1]}), salt=b"x")
    curve = spread_rumor(alone, 0.05, 0.0, 40, runs=200, seed=5).mean(axis=0)
    steps = [first_above(curve, share) for share in (0.1, 0.5)]
    print(f"  rumor, degrees alone (Chung and Lu, no noise): a tenth after {steps[0]} steps, half after {steps[1]}")


EGOS = (0, 107, 348, 414, 686, 698, 1684, 1912, 3437, 3980)
"""The ten people whose circles the real network is made of; numbers from one of them to the next are that circle."""


def show_assortativity(table: pa.Table, runs: int) -> None:
    """Whether real friendships stay inside circles: the exact coefficient, and what is released of it."""
    listed = list_nodes(table)
    circles = pa.array(np.searchsorted(EGOS, listed.column(0).to_numpy(), "right").astype(str))
    groups = tuple(str(i) for i in range(1, len(EGOS) + 1))
    nodes = pa.table([listed.column(0), circles], names=["c0", "c1"])
    print("\nAssortativity of real friendships by circle: exact, and released with epsilon 1")
    for unit, bound in ((EDGE, None), (NODE, 128)):
        shape, found = Shape(unit, listed=True, groups=groups), []
        plan = plan_network("mixing", shape, Fraction(1), bound)
        for _ in range(runs):
            network = build_network(table, nodes, groups, salt=salt(32))
            found.append(compute_assortativity(measure(plan, network)["cells"], shape)[0])
        exact = plan_network("mixing", Shape(EDGE, listed=True, groups=groups), Fraction(10**6), None)
        true = compute_assortativity(measure(exact, network)["cells"], shape)[0]
        print(f"  unit: {unit:4}  exact {true:.4f}  released {np.mean(found):.4f}, deviation {np.std(found):.4f}")


def show_degree_assortativity(network: Network, bound: int, runs: int) -> None:
    """Whether people with many friends are friends of one another: exact, projected, and released with epsilon 1."""
    true = correlate_degrees(*(add_moment(name, network) for name in MOMENTS))
    print(f"\nAssortativity by degree of {network.size:,} edges: exact {true:.4f}, released with epsilon 1")
    for unit, limit in ((EDGE, None), (NODE, bound)):
        kept = network if limit is None else network.keep(project_edges(network, limit))
        left = correlate_degrees(*(add_moment(name, kept) for name in MOMENTS))
        plan = plan_network("degree assortativity", Shape(unit, listed=True), Fraction(1), limit)
        found = np.array([enclose_correlation(plan, measure(plan, network), 0.95) for _ in range(runs)])
        off, wide = np.sqrt(np.mean((found[:, 0] - left) ** 2)), np.median((found[:, 2] - found[:, 1]) / 2)
        told = f"released {found[:, 0].mean():.4f}, error of the noise {off:.4f}, half of the interval {wide:.4f}"
        held = np.mean((found[:, 1] <= left) & (left <= found[:, 2]))
        print(f"  unit: {unit:4}  after the projection {left:.4f}  {told}, holds {held:.0%}", flush=True)


def first_above(curve: NDArray[np.float64], share: float) -> int | str:
    """The first step at which so large a share was reached."""
    found = np.flatnonzero(curve >= share)
    return int(found[0]) if found.size else "more than 40"


def main() -> None:
    """Times, then errors."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("--edges", type=int, default=1_000_000)
    asked.add_argument("--runs", type=int, default=10)
    given = asked.parse_args()
    take_time("warming up (compiled code is stored once)", make_edges(20_000))
    large = take_time("generated", make_edges(given.edges))
    take_time("a star", pa.table({"a": np.zeros(given.edges, np.int64), "b": np.arange(1, given.edges + 1)}))
    print(f"\nErrors on the generated network, means of {given.runs} runs")
    compare_degrees_edge(large, Fraction(1), min(given.runs, 5))
    compare_degrees_node(large, Fraction(1), 100, given.runs)
    show_degree_assortativity(large, 100, min(given.runs, 5))
    if not REAL.exists():
        return
    real = build_network(pq.read_table(REAL), list_nodes(pq.read_table(REAL)), salt=salt(32))
    print(f"\nErrors on {real.size:,} real friendships of {real.nodes:,} people, means of {given.runs} runs")
    for epsilon in (Fraction(1, 2), Fraction(1), Fraction(2)):
        compare_degrees_edge(real, epsilon, given.runs)
        compare_degrees_node(real, epsilon, 128, given.runs)
        compare_triangles_edge(real, epsilon)
        show_triangles_node(real, epsilon, 200, given.runs)
    for unit, epsilon in ((EDGE, 1), (NODE, 5)):
        bound = None if unit == EDGE else 200
        show_spread(real, plan_network("graph", Shape(unit, listed=True), Fraction(epsilon), bound), given.runs)
    show_assortativity(pq.read_table(REAL), given.runs)
    show_degree_assortativity(real, 128, given.runs)


if __name__ == "__main__":
    main()
