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

The figures are exact (root mean square over all totals, in people); at 30 periods they are checked by simulation.

    python bench/streams.py [--periods 30 365 3650]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.analytic_gaussian import ratio_within
from deniable.policy.budget import ApproxDP
from deniable.streams.factorization import (
    PARTS,
    Factorization,
    choose_factorization,
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


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--periods", type=int, nargs="+", default=[30, 365, 3650])
    sizes = parser.parse_args().periods
    begun = time.process_time()
    for totals in (Totals.RANGES, Totals.PREFIXES):
        print_table(totals, sizes, lambda _: 1)
    print_table(Totals.WINDOWS, [n for n in sizes if n <= LARGE], lambda _: 1)
    print_table(Totals.RANGES, [n for n in sizes if n <= LARGE], lambda n: max(2, n // 10))
    print_table(Totals.RANGES, [n for n in sizes if n <= LARGE], lambda n: n)
    print(f"\nranges of 30 periods, simulated: {simulate(Workload(Totals.RANGES, 30)):.2f}")
    print(f"{time.process_time() - begun:.0f} CPU seconds")


if __name__ == "__main__":
    main()
