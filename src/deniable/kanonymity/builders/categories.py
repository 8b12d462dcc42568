"""Hierarchies of categories: trees from files or written inline, and groups of neighbors in an order."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from deniable.errors import DataError, ParameterError
from deniable.kanonymity.builders.leaves import sorted_leaves, text_of
from deniable.kanonymity.hierarchy import TOP, Hierarchy, Label, from_rows, hierarchy, labelled

Rows = tuple[tuple[Label, ...], ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of categories: one row a leaf, the leaf first, then its ancestors upwards.

    The tree says what the domain is: leaves that no row has count in the loss, as in ARX, and a value that is no leaf
    is refused when the column is coded.
    """

    rows: Rows

    def hierarchy(self, column: str, _values: pa.Array) -> Hierarchy:
        """The hierarchy, whatever values there are."""
        return from_rows(column, self.rows)


def read_tree(path: Path, separator: str | None = None) -> Tree:
    """A tree from a CSV file without header, ARX's `;` format among them; the separator is found out when not given."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"There is no hierarchy file {path.name}", remedy="Check the path") from None
    except UnicodeDecodeError:
        raise DataError(f"The hierarchy file {path.name} is not UTF-8", remedy="Save it as UTF-8") from None
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise DataError(f"The hierarchy file {path.name} is empty", expected="One line for each leaf")
    return Tree(tuple(tuple(row) for row in csv.reader(lines, delimiter=separator or _separator(lines[0]))))


def _separator(line: str) -> str:
    return max((";", ",", "|", "\t"), key=line.count)


def nested(tree: Mapping[str, object] | Sequence[object]) -> Tree:
    """A tree from nested entries, as YAML gives them: mappings are groups, lists hold leaves.

    >>> nested({"any": {"north": ["Oslo"], "south": ["Rome"]}}).rows
    (('Oslo', 'north', 'any'), ('Rome', 'south', 'any'))
    """
    paths = list(_paths(tree, ()))
    depth = max((len(path) for path in paths), default=0)
    return Tree(tuple(_filled(path, depth) for path in paths))


def _paths(tree: object, above: tuple[str, ...]) -> list[tuple[str, ...]]:
    if isinstance(tree, Mapping):
        return [path for name, below in tree.items() for path in _paths(below, (str(name), *above))]
    if isinstance(tree, list | tuple):
        return [path for item in tree for path in _paths(item, above)]
    return [above] if tree is None else [(str(tree), *above)]


def _filled(path: tuple[str, ...], depth: int) -> tuple[str, ...]:
    # A leaf that hangs higher than others repeats itself until it reaches their depth.
    return (path[0],) * (depth - len(path)) + path


@dataclass(frozen=True, slots=True)
class Order:
    """Neighbors in an order, `sizes[0]` to a group at the first level, `sizes[1]` at the second, and so on.

    The order is that of the declared categories, else that of the values. Sizes must divide each other.
    """

    sizes: tuple[int, ...]
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for finer, coarser in zip(self.sizes, self.sizes[1:], strict=False):
            if coarser % finer:
                raise ParameterError(
                    f"Groups of {coarser} do not hold whole groups of {finer}", expected="Sizes such as [2, 4, 8]"
                )

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over the declared categories, or over these distinct values."""
        leaves = list(self.categories) or text_of(sorted_leaves(values))
        levels = [labelled([_span(leaves, i // size, size) for i in range(len(leaves))]) for size in self.sizes]
        return hierarchy(column, leaves, [labelled(leaves), *levels], ordered=True)


def _span(leaves: Sequence[str], group: int, size: int) -> str:
    members = leaves[group * size : (group + 1) * size]
    return members[0] if len(members) == 1 else f"{members[0]} to {members[-1]}"


def grouped(groups: Sequence[Sequence[str]]) -> Tree:
    """One level of given groups, each labelled with its members.

    >>> grouped([["a", "b"], ["c"]]).rows
    (('a', '{a, b}'), ('b', '{a, b}'), ('c', 'c'))
    """
    return Tree(tuple((leaf, _set(group)) for group in groups for leaf in group))


def _set(group: Sequence[str]) -> str:
    return group[0] if len(group) == 1 else "{" + ", ".join(group) + "}"


@dataclass(frozen=True, slots=True)
class Withhold:
    """The value or nothing: two levels, for columns without any structure to use."""

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        leaves = text_of(sorted_leaves(values))
        return hierarchy(column, leaves, [labelled(leaves), labelled([TOP] * len(leaves))])
