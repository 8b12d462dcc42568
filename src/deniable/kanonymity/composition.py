"""Two releases of one population: what an intruder learns who holds both.

Each release may be k-anonymous by itself. Together they cut the population into *atoms*: people in the same class of
the first and of the second. Atoms are smaller than classes. What is published of classes (sums, means,
histograms) determines that of an atom exactly when the atom is a bridge: draw a point for every class and a line for
every atom between its two classes; a line that lies on no circle carries a flow that both ends fix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.kanonymity.encoding import Counts

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Atoms:
    """Atoms of two partitions: their classes in both, their sizes, the atom of each row, and which are determined."""

    first: Numbers
    second: Numbers
    sizes: Counts
    atom_of: Numbers
    determined: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Composition:
    """How far two releases together fall below what each of them promises.

    `k` is the size of the smallest atom; `exposed` counts rows in atoms smaller than asked; `determined` counts rows in
    atoms whose published sums follow exactly; `singled_out` those among them that are alone in their atom. `certain`
    counts rows whose sensitive value both releases together leave no doubt about, though neither does alone.
    """

    k: int
    atoms: int
    exposed: int
    determined: int
    singled_out: int
    certain: tuple[tuple[str, int], ...] = ()


def find_atoms(first: Numbers, second: Numbers) -> Atoms:
    """The atoms of two releases, given the class of each person in both; -1 where a person is not in a release."""
    if len(first) != len(second):
        raise ParameterError(
            "The two releases are of different numbers of people", expected="One class for each person"
        )
    there = (first >= 0) & (second >= 0)
    width = int(second.max(initial=0)) + 1
    keys, inverse, sizes = np.unique(first[there] * width + second[there], return_inverse=True, return_counts=True)
    atom_of = np.full(len(first), -1, np.int64)
    atom_of[there] = inverse
    left, right = keys // width, keys % width
    return Atoms(left, right, sizes.astype(np.int64), atom_of, find_bridges(left, right))


def find_bridges(left: Numbers, right: Numbers) -> NDArray[np.bool_]:
    """Which lines of a bipartite graph lie on no circle (Tarjan 1974, without recursion)."""
    points = np.concatenate([np.unique(left, return_inverse=True)[1], np.unique(right, return_inverse=True)[1]])
    a, b = points[: len(left)], points[len(left) :] + (points[: len(left)].max(initial=-1) + 1)
    lines: list[list[tuple[int, int]]] = [[] for _ in range(int(b.max(initial=-1)) + 1)]
    for line, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        lines[x].append((y, line))
        lines[y].append((x, line))
    found = np.zeros(len(left), np.bool_)
    entered, lowest = [-1] * len(lines), [0] * len(lines)
    clock = 0
    for root in range(len(lines)):
        if entered[root] >= 0:
            continue
        entered[root] = lowest[root] = clock
        clock += 1
        stack = [(root, -1, iter(lines[root]))]
        while stack:
            point, came_by, rest = stack[-1]
            for other, line in rest:
                if line == came_by:
                    continue
                if entered[other] < 0:
                    entered[other] = lowest[other] = clock
                    clock += 1
                    stack.append((other, line, iter(lines[other])))
                    break
                lowest[point] = min(lowest[point], entered[other])
            else:
                stack.pop()
                if stack:
                    parent = stack[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[point])
                    found[came_by] = lowest[point] > entered[parent]
    return found


def compose(first: Numbers, second: Numbers, k: int, sensitive: dict[str, Numbers] | None = None) -> Composition:
    """What two releases of the same people tell together; sensitive columns as codes, one for each person."""
    made = find_atoms(first, second)
    there = made.atom_of >= 0
    of_row = made.atom_of[there]
    size = made.sizes[of_row]
    fixed = made.determined[of_row]
    certain = tuple(
        (name, _count_certain(first[there], second[there], values[there], made, of_row))
        for name, values in (sensitive or {}).items()
    )
    return Composition(
        int(made.sizes.min()) if len(made.sizes) else 0,
        len(made.sizes),
        int((size < k).sum()),
        int((fixed & (size < k)).sum()),
        int((fixed & (size == 1)).sum()),
        certain,
    )


def _count_certain(first: Numbers, second: Numbers, values: Numbers, made: Atoms, of_row: Numbers) -> int:
    """Rows whose value is the only one that both their classes have, while each class alone has more."""
    span = int(values.max(initial=0)) + 1
    one, two = _values_of(first, values, span), _values_of(second, values, span)
    both = np.array([len(one[a] & two[b]) for a, b in zip(made.first.tolist(), made.second.tolist(), strict=True)])
    alone = np.array(
        [min(len(one[a]), len(two[b])) for a, b in zip(made.first.tolist(), made.second.tolist(), strict=True)]
    )
    return int(((both == 1) & (alone > 1))[of_row].sum()) if len(both) else 0


def _values_of(classes: Numbers, values: Numbers, span: int) -> dict[int, set[int]]:
    held: dict[int, set[int]] = {}
    for key in np.unique(classes * span + values).tolist():
        held.setdefault(key // span, set()).add(key % span)
    return held


def infer_means(
    first: Numbers, second: Numbers, first_means: NDArray[np.float64], second_means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """For every person the mean that both releases together give for the person's atom, NaN where they give none.

    `first_means[c]` is the published mean of class c. The sum over a class is the sum over its atoms.
    """
    made = find_atoms(first, second)
    left, right = np.unique(made.first), np.unique(made.second)
    rows = len(left) + len(right)
    equations = np.zeros((rows, len(made.sizes)))
    equations[np.searchsorted(left, made.first), np.arange(len(made.sizes))] = 1.0
    equations[len(left) + np.searchsorted(right, made.second), np.arange(len(made.sizes))] = 1.0
    counted = equations @ made.sizes
    sums = np.concatenate([first_means[left], second_means[right]]) * counted
    solved, *_ = np.linalg.lstsq(equations, sums, rcond=None)
    means = np.where(made.determined, solved / made.sizes, np.nan)
    return np.where(made.atom_of >= 0, means[made.atom_of], np.nan)
