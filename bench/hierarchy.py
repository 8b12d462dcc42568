"""Hierarchies beside flat measurement: mean absolute error by level at the same budget, and what the fit costs.

Nation, 4 regions, 48 states, 960 counties, 4,800 districts with skewed counts, one row a person, epsilon 1. Peers offer
two flat ways: measure the districts alone and add them up, or ask one question for each level with even shares, after
which children do not add up to their parents. All are drawn with the same exact noise, so only the strategy differs.

    python bench/hierarchy.py
"""

from __future__ import annotations

import sys
import time
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.mechanisms import LaplaceMechanism
from deniable.query.techniques.least_squares import (
    Tree,
    find_best_shares,
    fit_tree,
    predict_tree_variances,
    round_top_down,
)

NAMES = ("nation", "regions", "states", "counties", "districts")
FANS = (4, 12, 20, 5)
RUNS = 200


def world() -> tuple[Tree, list[NDArray[np.int64]]]:
    """A regular tree with skewed counts."""
    levels: list[list[tuple[object, ...]]] = [[()]]
    for fan in FANS:
        levels.append([(*key, i) for key in levels[-1] for i in range(fan)])
    tree = Tree.of(levels)
    counts = [np.random.default_rng(0).pareto(1.2, tree.sizes[-1]).astype(np.int64) * 10]
    for parents, size in zip(reversed(tree.parents), reversed(tree.sizes[:-1]), strict=True):
        counts.insert(0, np.bincount(parents, counts[0], size).astype(np.int64))
    return tree, counts


def measured(counts: list[NDArray[np.int64]], shares: tuple[Fraction, ...]) -> list[NDArray[np.int64]]:
    """Every level with its share of epsilon 1."""
    return [LaplaceMechanism(1 / share).release(level) for level, share in zip(counts, shares, strict=True)]


def summed(tree: Tree, leaves: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """All levels added up from the leaves."""
    levels = [leaves.astype(np.float64)]
    for parents, size in zip(reversed(tree.parents), reversed(tree.sizes[:-1]), strict=True):
        levels.insert(0, np.bincount(parents, levels[0], size))
    return levels


def errors(found: list[NDArray[np.float64]], counts: list[NDArray[np.int64]]) -> list[float]:
    """Mean absolute error of each level."""
    return [float(np.abs(a - b).mean()) for a, b in zip(found, counts, strict=True)]


def main() -> int:
    """Print the errors of the three ways and of ours; fail where ours is not better in the whole tree."""
    tree, counts = world()
    even = (Fraction(1, 5),) * 5
    began = time.process_time()
    best = find_best_shares(lambda v: predict_tree_variances(tree.sizes, v), [1.0] * 5, [1.0] * 5, gaussian=False)
    planning = time.process_time() - began
    rows: dict[str, list[list[float]]] = {"districts alone": [], "even shares, unfitted": [], "ours": []}
    fitting = float("inf")
    for _ in range(RUNS):
        rows["districts alone"].append(errors(summed(tree, LaplaceMechanism(Fraction(1)).release(counts[-1])), counts))
        rows["even shares, unfitted"].append(errors([v.astype(float) for v in measured(counts, even)], counts))
        noisy = measured(counts, best)
        began = time.process_time()
        whole = round_top_down(tree, fit_tree(tree, noisy, [2 / float(s) ** 2 for s in best]), nonnegative=False)
        fitting = min(fitting, time.process_time() - began)
        rows["ours"].append(errors([level.astype(float) for level in whole], counts))
    print(f"shares {', '.join(f'{name} {float(s):.3f}' for name, s in zip(NAMES, best, strict=True))}")
    means = {name: np.mean(found, axis=0) for name, found in rows.items()}
    for name, found in means.items():
        shown = ", ".join(f"{level} {error:,.2f}" for level, error in zip(NAMES, found, strict=True))
        print(f"mean absolute error, {name:22} {shown}; all levels {found.sum():,.2f}")
    ratios = {name: float(found.sum() / means["ours"].sum()) for name, found in means.items() if name != "ours"}
    print(
        f"ours is x{ratios['districts alone']:.1f} better than districts alone and "
        f"x{ratios['even shares, unfitted']:.2f} better than even shares; planning {planning:.3f} CPU s, "
        f"fitting and rounding {fitting:.3f} CPU s"
    )
    return 0 if min(ratios.values()) > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
