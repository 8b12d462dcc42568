"""Local recoding: classes that are generalized each in its own way, and how they are priced and written.

Every class spans, in each column, a run of codes in the order of the column's hierarchy. Numbers are written as the
interval from the lowest to the highest value of the class, categories as the smallest group that holds the run."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.kanonymity.builders.exact import write_number
from deniable.kanonymity.encoding import Counts
from deniable.kanonymity.hierarchy import TOP, Codes, Ends, Hierarchy, Label
from deniable.kanonymity.recoding import Form
from deniable.kanonymity.request import Prepared

MISSING = "(missing)"
"""How a missing value is written inside a set of values."""


@dataclass(frozen=True, eq=False, repr=False)
class LocalRelease:
    """Classes of a local recoding: the class of every tuple (-1 where suppressed), and the run of each column.

    `low` and `high` are places in `orders[q]`, which lists the leaves of column q so that groups are runs. `by_row` is
    set where rows, rather than tuples, were assigned to classes.
    """

    class_of: NDArray[np.int64]
    low: Codes
    high: Codes
    sizes: Counts
    orders: tuple[Codes, ...]
    by_row: bool = False

    @property
    def classes(self) -> int:
        """How many classes are released."""
        return len(self.sizes)


def order_leaves(h: Hierarchy) -> Codes:
    """The leaves in an order in which every group of every level is a run; ordered leaves keep their own order."""
    if h.ordered:
        return np.arange(h.size, dtype=np.int32)
    keys = np.stack([np.arange(h.size), *(level.groups for level in h.levels)])
    return np.lexsort(keys).astype(np.int32)


def find_merge_levels(h: Hierarchy, order: Codes) -> NDArray[np.int8]:
    """For every place in the order, the lowest level at which the leaf there and the one before are one group."""
    out = np.zeros(h.size, np.int8)
    for number in range(h.height - 1, -1, -1):
        groups = h.levels[number].groups[order]
        out[1:][groups[1:] == groups[:-1]] = number
    apart = h.levels[-1].groups[order]
    out[1:][apart[1:] != apart[:-1]] = h.height
    return out


def find_covering_levels(h: Hierarchy, order: Codes, low: Codes, high: Codes) -> NDArray[np.int64]:
    """For every run, the lowest level with one group that holds it; the number of levels where there is none."""
    out = np.full(len(low), h.height, np.int64)
    for number in range(h.height - 1, -1, -1):
        groups = h.levels[number].groups[order]
        out[groups[low] == groups[high]] = number
    return out


def measure_local_loss(prepared: Prepared, release: LocalRelease, form: Form = Form.TEXT) -> float:
    """The Loss of a local recoding: the mean share of the domain that a cell leaves open; 1 where suppressed.

    Cells are priced as they are written: numbers by the values in their interval, categories by the leaves of their
    group, or by the members of their set.
    """
    hierarchies, tuples = prepared.problem.hierarchies, prepared.problem.tuples
    rows = prepared.collapsed.tuple_of if release.by_row else np.arange(tuples.size)
    counts = np.ones(len(rows), np.int64) if release.by_row else tuples.counts
    owner, total = release.class_of, 0.0
    for q, h in enumerate(hierarchies):
        if is_numeric(h):
            covered = release.high[:, q] - release.low[:, q] + 1
        elif form is Form.SETS:
            covered = np.diff(_list_members(prepared, release, q)[0])
        else:
            covered = _count_group_leaves(h, release.orders[q], release.low[:, q], release.high[:, q])
        cells = np.append((covered - 1) / max(h.size - 1, 1), 1.0)[owner]  # -1, a suppressed row, finds the last place
        total += float((cells * counts).sum())
    return total / max(tuples.rows * len(hierarchies), 1)


def _count_group_leaves(h: Hierarchy, order: Codes, low: Codes, high: Codes) -> NDArray[np.int64]:
    levels = find_covering_levels(h, order, low, high)
    tables = np.vstack([*(h.leaf_counts(number) for number in range(h.height)), np.full(h.size, h.size)])
    return np.asarray(tables[levels, order[low]], np.int64)


def is_numeric(h: Hierarchy) -> bool:
    """Whether a column is one of numbers, which are written as intervals."""
    return h.ordered and h.levels[0].ends is not None


def _list_members(prepared: Prepared, release: LocalRelease, q: int) -> tuple[NDArray[np.int64], Codes]:
    """The values that each class has in a column: where they begin for each class, and their codes."""
    tuples, size = prepared.problem.tuples, prepared.problem.hierarchies[q].size
    rows = prepared.collapsed.tuple_of if release.by_row else np.arange(tuples.size)
    there = release.class_of >= 0
    keys = np.unique(release.class_of[there] * size + tuples.codes[rows, q][there])
    return np.searchsorted(keys, np.arange(release.classes + 1) * size), (keys % size).astype(np.int32)


def label_classes(h: Hierarchy, order: Codes, low: Codes, high: Codes, form: Form) -> list[Label]:
    """The label of every class in one column: that of a group where the run is one, else an interval."""
    levels = find_covering_levels(h, order, low, high)
    if not is_numeric(h):
        return [_label_group(h, level, int(order[a])) for level, a in zip(levels.tolist(), low.tolist(), strict=True)]
    exact = _find_exact_levels(h, order, low, high)
    first = h.levels[0]
    ends = first.ends[first.groups] if first.ends is not None else np.zeros((h.size, 2))
    return [
        _label_group(h, level, int(order[a]))
        if level >= 0
        else _label_interval(ends, int(order[a]), int(order[b]), form)
        for level, a, b in zip(exact.tolist(), low.tolist(), high.tolist(), strict=True)
    ]


def _find_exact_levels(h: Hierarchy, order: Codes, low: Codes, high: Codes) -> NDArray[np.int64]:
    """For every run, the lowest level at which it is exactly one group; -1 where it is none."""
    out = np.full(len(low), -1, np.int64)
    for number in range(h.height - 1, -1, -1):
        groups = h.levels[number].groups[order]
        begins = np.append(True, groups[1:] != groups[:-1])
        ends = np.append(groups[1:] != groups[:-1], True)
        out[(groups[low] == groups[high]) & begins[low] & ends[high]] = number
    return out


def _label_interval(ends: Ends, a: int, b: int, form: Form) -> Label:
    if not (math.isfinite(ends[a, 0]) and math.isfinite(ends[b, 1])):
        return TOP
    low, high = write_number(ends[a, 0]), write_number(ends[b, 1])
    return f'{{"low": {low}, "high": {high}}}' if form is Form.JSON else f"[{low}, {high}]"


def _label_group(h: Hierarchy, level: int, leaf: int) -> Label:
    return TOP if level == h.height else h.levels[level].labels[h.levels[level].groups[leaf]]


def write_local(table: pa.Table, prepared: Prepared, release: LocalRelease, form: Form = Form.TEXT) -> pa.Table:
    """The table as a local recoding releases it; suppressed rows and identifiers are left out."""
    owner = release.class_of if release.by_row else release.class_of[prepared.collapsed.tuple_of]
    kept = owner >= 0
    arrays: dict[str, pa.Array | pa.ChunkedArray] = {}
    places = {h.column: q for q, h in enumerate(prepared.problem.hierarchies)}
    for name in table.column_names:
        if name in prepared.request.identifiers:
            continue
        column = table[name].filter(pa.array(kept))
        arrays[name] = (
            column if name not in places else _relabel_column(prepared, release, places[name], owner[kept], form)
        )
    return pa.table(arrays)


def _relabel_column(
    prepared: Prepared, release: LocalRelease, q: int, owner: NDArray[np.int64], form: Form
) -> pa.DictionaryArray | pa.Array:
    h = prepared.problem.hierarchies[q]
    if form is Form.SETS and not is_numeric(h):
        labels = _label_sets(prepared, release, q)
    else:
        labels = label_classes(h, release.orders[q], release.low[:, q], release.high[:, q], form)
    return pa.array(labels, pa.string()).dictionary_encode().take(pa.array(owner))


def _label_sets(prepared: Prepared, release: LocalRelease, q: int) -> list[Label]:
    """The label of every class as the set of its values; a single value stays itself."""
    starts, codes = _list_members(prepared, release, q)
    leaves = prepared.problem.hierarchies[q].leaves
    held = [[leaves[c] for c in codes[a:b]] for a, b in itertools.pairwise(starts)]
    return [h[0] if len(h) == 1 else "{" + ", ".join(leaf or MISSING for leaf in h) + "}" for h in held]
