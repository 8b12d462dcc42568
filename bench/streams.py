"""Counts of every day: the error of ranges, prefixes and windows for each way to measure them, and the least possible.

One number a period, epsilon 1 and delta 1e-6 for all periods together, at 30, 365 and 3,650 periods. All ways have the
same exact noise and the same price; only what is measured differs:

    asked anew    each total so far is a question of its own, with its share of the budget, as without streams
    by itself     each period is a question of its own, and totals are sums
    tree          the binary tree, read as it is when a period ends
    tree, fitted  all nodes of the tree together, by least squares (Honaker 2015), once the horizon is over
    square root   the Toeplitz square root of the prefix sums (Fichtenberger, Henzinger and Upadhyay 2023)
    ours          what `deniable publish` takes
    least         no factorization has less: the dual bound of the iteration of Denisov et al. 2022
                  (12 rounds up to 1,000 periods, 1 above)

The last tables are of epsilon 1 without a delta, with Laplace noise. There all nodes of a tree with two levels are
fitted as well, once the horizon is over, for the best number of branches (Hay et al. 2010; Qardaji, Yang and Li 2013).

The figures are exact (root mean square over all totals, in people); at 30 periods they are checked by simulation.

With `--peers`, two libraries stand beside ours for up to 1,000 periods, each installed into `.venvs/streams`:
jax-privacy's optimized matrix with the same Gaussian noise, and the tree of OpenDP with Laplace noise, fitted once the
horizon is over (400 simulated runs).

    python bench/streams.py [--periods 30 365 3650] [--peers]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from _query_accuracy import environment, peer
from numpy.typing import NDArray

from deniable.dp.accounting.analytic_gaussian import ratio_within
from deniable.policy.budget import ApproxDP
from deniable.streams.factorization import (
    PARTS,
    Factorization,
    choose_factorization,
    choose_tree,
    find_absolute_error,
    find_mean_square,
    make_power,
    make_tree,
)
from deniable.streams.mechanism import Estimator, Part, StreamMechanism
from deniable.streams.workload import Totals, Workload

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
LARGE = 1000
"""Periods above which only what can be computed in a minute is."""


def make_prefixes(n: int) -> Factorization:
    """Every total since the start."""
    return Factorization("prefixes", np.tril(np.full((n, n), PARTS, dtype=np.int64)))


WAYS: dict[str, Callable[[Workload, int], Factorization]] = {
    "asked anew": lambda w, _: make_prefixes(w.periods),
    "by itself": lambda w, _: make_power(w.periods, Fraction(0)),
    "tree": lambda w, _: make_tree(w.periods),
    "square root": lambda w, _: make_power(w.periods, Fraction(1, 2)),
    "ours": choose_factorization,
}


def fit_tree(workload: Workload) -> float:
    """The mean square of the binary tree with all its nodes, fitted by least squares."""
    n, rows = workload.periods, []
    size = 1
    while size < 2 * n:
        rows += [[float(start <= t < start + size) for t in range(n)] for start in range(0, n, size)]
        size *= 2
    nodes = np.array(rows)
    return float(np.trace(workload.build_gram() @ np.linalg.inv(nodes.T @ nodes))) / workload.count * float(
        np.square(nodes).sum(axis=0).max()
    )  # fmt: skip


def bound_below(workload: Workload, rounds: int) -> float:
    """No factorization has a smaller mean square: trace(root(V^1/2 Q V^1/2))^2 / sum(v) for any v > 0."""
    gram, v = workload.build_gram(), np.ones(workload.periods)
    root = workload.take_root()
    if rounds == 1 and root is not None:
        return float(np.trace(root)) ** 2 / workload.periods / workload.count
    best = 0.0
    for _ in range(rounds):
        scale = np.sqrt(v)
        values, vectors = np.linalg.eigh(gram * np.outer(scale, scale))
        roots = np.sqrt(np.maximum(values, 0))
        best = max(best, float(roots.sum() ** 2 / v.sum()))
        v = np.square(vectors) @ roots
    return best / workload.count


def simulate(workload: Workload, runs: int = 4000) -> float:
    """The root mean square error of our way, drawn from our own samplers."""
    part = [Part(1, Fraction(1))]
    made = StreamMechanism.within(ApproxDP(EPSILON, DELTA), choose_factorization(workload, 1), 1, part)
    n = workload.periods
    noise = np.array(made.draw_noise([n * runs])[0], dtype=np.float64).reshape(runs, n)
    errors = noise @ Estimator.of(made.factorization, n).inverse.T
    return float(np.sqrt(np.sum((errors @ workload.build_gram()) * errors) / runs / workload.count))


def print_table(totals: Totals, sizes: list[int], often: Callable[[int], int]) -> None:
    """The errors of every way for one family of totals."""
    ratio = ratio_within(EPSILON, DELTA)
    assert ratio is not None
    deviation = float(ratio) ** 0.5
    found: dict[str, list[float]] = {name: [] for name in (*WAYS, "tree, fitted", "least")}
    for n in sizes:
        workload, most = Workload(totals, n, min(n, 7)), often(n)
        for name, make in WAYS.items():
            found[name].append(deviation * find_mean_square(make(workload, most), workload, most) ** 0.5)
        found["tree, fitted"].append(deviation * fit_tree(workload) ** 0.5 if n <= LARGE and most == 1 else np.nan)
        found["least"].append(
            deviation * bound_below(workload, 12 if n <= LARGE else 1) ** 0.5 if most == 1 else np.nan
        )
    print(f"\n{totals}, a person in {'one period' if often(9) == 1 else 'all periods' if often(9) == 9 else '10%'}")
    print("".join([f"{'':14}", *(f"{n:>12,}" for n in sizes)]))
    for name, row in found.items():
        print("".join([f"{name:14}", *("           -" if np.isnan(each) else f"{each:12,.2f}" for each in row)]))
    against: NDArray[np.float64] = np.array(found["ours"]) / np.array(found["least"])
    print(
        "".join([f"{'ours / least':14}", *("           -" if np.isnan(each) else f"{each:12.5f}" for each in against)])
    )


def fit_branches(workload: Workload) -> float:
    """The root mean square error for epsilon 1 of all nodes of the best tree with two levels, by least squares."""
    gram, n, found = workload.build_gram(), workload.periods, []
    for branches in range(2, min(n, 40) + 1, 1 if n < 100 else 3):
        block = np.arange(n) // branches
        same = (block[:, None] == block[None, :]).astype(np.float64)
        for weight in (0.6, 0.8, 1.0, 1.25):
            spread = np.trace(np.linalg.solve(np.eye(n) + weight**2 * same, gram)) / workload.count
            found.append(2 * (1 + weight) ** 2 * spread)
    return float(min(found)) ** 0.5


PURE_WAYS: dict[str, Callable[[Workload], float]] = {
    "by itself": lambda w: (2 * find_absolute_error(make_power(w.periods, Fraction(0)), w)) ** 0.5,
    "tree": lambda w: (2 * find_absolute_error(make_tree(w.periods), w)) ** 0.5,
    "square root": lambda w: (2 * find_absolute_error(make_power(w.periods, Fraction(1, 2)), w)) ** 0.5,
    "ours": lambda w: (2 * find_absolute_error(choose_tree(w, 1), w)) ** 0.5,
    "hindsight": lambda w: fit_branches(w) if w.periods <= LARGE else np.nan,
}


def print_pure(totals: Totals, sizes: list[int]) -> None:
    """The errors of every way with Laplace noise of epsilon 1, for a person in one period."""
    print(f"\n{totals}, pure epsilon, a person in one period")
    print("".join([f"{'':14}", *(f"{n:>12,}" for n in sizes)]))
    for name, find in PURE_WAYS.items():
        found = [find(Workload(totals, n)) for n in sizes]
        print("".join([f"{name:14}", *("           -" if np.isnan(each) else f"{each:12,.2f}" for each in found)]))
    print("".join([f"{'':14}", *(f"{choose_tree(Workload(totals, n), 1).name:>12}" for n in sizes)]))


MATRIX = """
import json, sys, time
import jax, numpy as np
from jax_privacy.matrix_factorization import dense
jax.config.update("jax_enable_x64", True)
n, totals = int(sys.argv[1]), sys.argv[2]
t = np.arange(1, n + 1)
gram = np.minimum.outer(t, t) * (n + 1 - np.maximum.outer(t, t))  # how many ranges hold both periods
asked = np.linalg.cholesky(gram.astype(float)).T if totals == "ranges" else np.tril(np.ones((n, n)))
count = n * (n + 1) // 2 if totals == "ranges" else n
begun = time.process_time()
measured = np.array(dense.optimize(n, A=jax.numpy.asarray(asked)))
spent = time.process_time() - begun
square = np.linalg.norm(np.linalg.solve(measured.T, asked.T)) ** 2 * np.square(measured).sum(axis=0).max() / count
print(json.dumps([{"square": float(square), "cpu": spent}]))
"""

TREE = """
import json, sys
import numpy as np, opendp.prelude as dp
dp.enable_features("contrib")
n, runs, squares = int(sys.argv[1]), 400, np.zeros(2)
branches = dp.t.choose_branching_factor(size_guess=n)
counts = dp.vector_domain(dp.atom_domain(T=int), n), dp.l1_distance(T=int)
tree = counts >> dp.t.then_b_ary_tree(leaf_count=n, branching_factor=branches)
measure = dp.binary_search_chain(lambda scale: tree >> dp.m.then_laplace(scale), d_in=1, d_out=1.0)
fit = dp.t.make_consistent_b_ary_tree(branches, TIA=int, TOA=float)
for _ in range(runs):
    until = np.concatenate([[0], np.cumsum(np.array(fit(measure([0] * n)))[:n])])
    ranges = np.triu(until[None, :] - until[:, None], 1)
    squares += np.square(ranges).sum() * 2 / n / (n + 1), np.square(until[1:]).mean()
print(json.dumps([{"ranges": (squares[0] / runs) ** 0.5, "prefixes": (squares[1] / runs) ** 0.5}]))
"""


def print_peers(sizes: list[int]) -> None:
    """Our errors beside those of two libraries."""
    python = environment("streams", ["jax-privacy", "opendp", "numpy"], "jax_privacy, opendp")
    ratio = ratio_within(EPSILON, DELTA)
    if python is None or ratio is None:
        return
    for n in sizes:
        trees = peer(python, TREE, str(n))[0]
        for totals in (Totals.RANGES, Totals.PREFIXES):
            begun, workload = time.process_time(), Workload(totals, n)
            ours = (float(ratio) * find_mean_square(choose_factorization(workload, 1), workload, 1)) ** 0.5
            spent = time.process_time() - begun
            found = peer(python, MATRIX, str(n), str(totals))[0]
            theirs = (float(ratio) * float(str(found["square"]))) ** 0.5
            print(f"\n{totals} of {n} periods")
            print(
                f"  jax-privacy    ours {ours:8.2f}  theirs {theirs:8.2f}  ratio {ours / theirs:.4f}"
                f"  CPU seconds {spent:.2f} and {float(str(found['cpu'])):.2f}"
            )
            pure, tree = PURE_WAYS["ours"](workload), float(str(trees[str(totals)]))
            print(f"  OpenDP, at the end  ours {pure:8.2f}  theirs {tree:8.2f}  ratio {pure / tree:.4f}")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--periods", type=int, nargs="+", default=[30, 365, 3650])
    parser.add_argument("--peers", action="store_true")
    given = parser.parse_args()
    sizes = given.periods
    if given.peers:
        print_peers([n for n in sizes if n <= LARGE])
        return
    begun = time.process_time()
    for totals in (Totals.RANGES, Totals.PREFIXES):
        print_table(totals, sizes, lambda _: 1)
    print_table(Totals.WINDOWS, [n for n in sizes if n <= LARGE], lambda _: 1)
    print_table(Totals.RANGES, [n for n in sizes if n <= LARGE], lambda n: max(2, n // 10))
    print_table(Totals.RANGES, [n for n in sizes if n <= LARGE], lambda n: n)
    for totals in (Totals.RANGES, Totals.PREFIXES):
        print_pure(totals, sizes)
    print(f"\nranges of 30 periods, simulated: {simulate(Workload(Totals.RANGES, 30)):.2f}")
    print(f"{time.process_time() - begun:.0f} CPU seconds")


if __name__ == "__main__":
    main()
