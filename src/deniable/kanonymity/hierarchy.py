"""Generalization hierarchies as integer maps: what every leaf becomes, level by level.

A hierarchy belongs to one column. Level 0 is (usually) the value itself; each higher level merges whole groups of the
one below, so that the groups form a tree. Searching, measuring and recoding see only the integer maps; labels come back
when rows are written. A missing value is a leaf of its own, written None: it stays missing until a level that says
nothing at all merges it with the rest. Leaves are known by the text of the column's distinct values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import ParameterError

Codes = NDArray[np.int32]
Ends = NDArray[Any]
"""Lowest and highest numbers of groups: floats, or, where these do not hold them, whole numbers and fractions."""
Label = str | None

TOP = "*"
"""The label of a level that says nothing, and of a suppressed cell."""


@dataclass(frozen=True, eq=False, repr=False)
class Level:
    """One level: the group of every leaf, the label of every group, and the interval it spans where it spans one."""

    groups: Codes
    labels: tuple[Label, ...]
    ends: Ends | None = None

    @property
    def size(self) -> int:
        """How many groups there are."""
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The levels of one column over its leaves; construct with `build_hierarchy`, which checks that it is a tree.

    `ordered` says that the leaves stand in an order with a meaning (numbers, dates), so that ranges of them make sense.
    """

    column: str
    leaves: tuple[Label, ...]
    levels: tuple[Level, ...]
    ordered: bool = False

    def __repr__(self) -> str:
        groups = ", ".join(str(level.size) for level in self.levels)
        return f"Hierarchy({self.column!r}, {len(self.leaves)} leaves, groups by level: {groups})"

    @property
    def size(self) -> int:
        """The number of leaves, also of those that no row has."""
        return len(self.leaves)

    @property
    def height(self) -> int:
        """The number of levels."""
        return len(self.levels)

    @cached_property
    def code_of(self) -> dict[Label, int]:
        """The code of every leaf."""
        return {leaf: code for code, leaf in enumerate(self.leaves)}

    def leaf_counts(self, level: int) -> NDArray[np.int64]:
        """For every leaf, how many leaves its group at this level covers."""
        groups = self.levels[level].groups
        return np.bincount(groups, minlength=1)[groups]

    def rows(self) -> Iterator[tuple[Label, ...]]:
        """One tuple a leaf: the leaf, then its ancestors upwards, as a tree file is written."""
        for code in range(self.size):
            yield tuple(level.labels[level.groups[code]] for level in self.levels)

    def between(self, lowest: int, highest: int) -> Hierarchy:
        """Only the levels from lowest to highest, for a column that may not stay finer, or not become coarser."""
        if not 0 <= lowest <= highest < self.height:
            raise ParameterError(
                f"Levels {lowest} to {highest} of the hierarchy of '{self.column}' were asked",
                expected=f"It has the levels 0 to {self.height - 1}",
            )
        return Hierarchy(self.column, self.leaves, self.levels[lowest : highest + 1], self.ordered)

    def with_missing(self) -> Hierarchy:
        """The same hierarchy with a leaf for missing values, merged with others only by a last level of one group."""
        if None in self.code_of:
            return self
        last = self.levels[-1]
        levels = tuple(_add_missing(level, merged=level is last and level.size == 1) for level in self.levels)
        return Hierarchy(self.column, (*self.leaves, None), levels, self.ordered)


def _add_missing(level: Level, *, merged: bool) -> Level:
    code = np.int32(0 if merged else level.size)
    labels = level.labels if merged else (*level.labels, None)
    ends = level.ends
    if ends is not None and not merged:
        ends = np.vstack([ends, [[np.nan, np.nan]]])
    return Level(np.append(level.groups, code).astype(np.int32), labels, ends)


def build_hierarchy(
    column: str, leaves: Sequence[Label], levels: Sequence[Level], *, ordered: bool = False
) -> Hierarchy:
    """A checked hierarchy of these levels and a last one that says nothing.

    That one is added whatever the others are: the number of levels must not depend on the rows.
    """
    return _check_tree(column, leaves, [*levels, build_top_level(len(leaves))], ordered)


def _check_tree(
    column: str, leaves: Sequence[Label], levels: Sequence[Level], ordered: bool, named: bool = False
) -> Hierarchy:
    """The levels as a hierarchy, if they are a tree; a refusal names groups only where somebody named them."""
    _refuse_repeated(column, leaves)
    for number in range(1, len(levels)):
        _refuse_split(column, levels[number - 1], levels[number], number, named)
    return Hierarchy(column, tuple(leaves), tuple(levels), ordered)


def from_rows(column: str, rows: Sequence[Sequence[Label]]) -> Hierarchy:
    """A hierarchy from one row a leaf: the leaf, then its ancestors upwards.

    >>> from_rows("drug", [("Advil", "ibuprofen"), ("Nurofen", "ibuprofen"), ("Tylenol", "paracetamol")])
    Hierarchy('drug', 3 leaves, groups by level: 3, 2, 1)
    """
    if not rows:
        raise ParameterError(f"The hierarchy of '{column}' has no leaves", expected="One row for each leaf")
    width = len(rows[0])
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            raise ParameterError(
                f"Row {number} of the hierarchy of '{column}' has {len(row)} fields, the first has {width}",
                expected="The same number of levels for each leaf",
                remedy="Repeat a label where a branch is shorter",
            )
        if any(isinstance(label, str) and not label.strip() for label in row[1:]):
            raise ParameterError(
                f"Row {number} of the hierarchy of '{column}' has an empty label above the leaf",
                expected="A label for each level: an empty cell would look like a missing value",
                remedy="Repeat the label of the level below where a branch is shorter",
            )
    levels = [group_by_label([row[n] for row in rows]) for n in range(width)]
    if width == 1 or levels[-1].size > 1:  # else the tree has its own word for everything
        levels.append(build_top_level(len(rows)))
    return _check_tree(column, [row[0] for row in rows], levels, ordered=False, named=True)


def group_by_label(labels: Sequence[Label], ends: dict[Label, tuple[float, float]] | None = None) -> Level:
    """The level at which leaves with the same label are one group, numbered in order of appearance."""
    seen: dict[Label, int] = {}
    groups = np.fromiter((seen.setdefault(label, len(seen)) for label in labels), np.int32, len(labels))
    spans = np.array([ends[label] for label in seen], np.float64).reshape(-1, 2) if ends is not None else None
    return Level(groups, tuple(seen), spans)


def build_top_level(size: int) -> Level:
    """The level at which all leaves are one group."""
    return Level(np.zeros(size, np.int32), (TOP,))


def _refuse_repeated(column: str, leaves: Sequence[Label]) -> None:
    if len(set(leaves)) == len(leaves):
        return
    first: dict[Label, int] = {}
    for row, leaf in enumerate(leaves, start=1):
        if leaf in first:
            raise ParameterError(
                f"The hierarchy of '{column}' is not a tree: one leaf stands in rows {first[leaf]} and {row}",
                remedy="Keep one row for each leaf",
            )
        first[leaf] = row


def _refuse_split(column: str, below: Level, above: Level, number: int, named: bool) -> None:
    parent = np.full(below.size, -1, np.int32)
    parent[below.groups] = above.groups
    wrong = np.flatnonzero(parent[below.groups] != above.groups)
    if wrong.size:
        group = f"the group '{below.labels[below.groups[wrong[0]]]}'" if named else "a group"
        split = f"level {number} splits {group} of level {number - 1}"
        raise ParameterError(
            f"The hierarchy of '{column}' is not a tree: {split}",
            expected="Every group lies inside one group of the next level",
            remedy="Choose levels that nest, such as widths that divide each other, or day, month, year",
        )


def text_of(values: pa.Array) -> list[str]:
    """Values as the text that leaves are known by: 39, 2024-05-17, true.

    >>> text_of(pa.array([1.0, 1.5]))
    ['1', '1.5']
    """
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return values.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_floating(values.type):
        return [str(int(v)) if v.is_integer() and abs(v) < 1e15 else repr(v) for v in values.to_pylist()]
    return pc.cast(values, pa.string()).to_pylist()  # type: ignore[no-any-return]


def sort_leaves(values: pa.Array) -> pa.Array:
    """Distinct values in their own order: numbers by size, dates by time, text by letters."""
    values = values.drop_null()
    return values.take(pc.sort_indices(values))
