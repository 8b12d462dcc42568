"""Hierarchies of categories and text: trees, groups of neighbors in an order, redaction, prefixes.

Trees come from files or are written inline. Redaction hides one more character at each level; prefixes keep fewer
(ZIP codes, diagnoses, phones)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from deniable.errors import DataError, ParameterError
from deniable.kanonymity.hierarchy import (
    TOP,
    Hierarchy,
    Label,
    build_hierarchy,
    from_rows,
    group_by_label,
    sort_leaves,
    text_of,
)

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


def read_tree(path: str | Path, separator: str | None = None) -> Tree:
    """A tree from a CSV file without header, ARX's `;` format among them; the separator is found out when not given."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"There is no hierarchy file {path.name}", remedy="Check the path") from None
    except UnicodeDecodeError:
        raise DataError(f"The hierarchy file {path.name} is not UTF-8", remedy="Save it as UTF-8") from None
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise DataError(
            f"The hierarchy file {path.name} is empty",
            expected="One line for each leaf: the value, then what it becomes level by level",
            remedy="Write the lines, or leave the hierarchy out to have one drafted",
        )
    return Tree(tuple(tuple(row) for row in csv.reader(lines, delimiter=separator or _guess_separator(lines[0]))))


def _guess_separator(line: str) -> str:
    return max((";", ",", "|", "\t"), key=line.count)


def parse_tree(tree: Mapping[str, object] | Sequence[object]) -> Tree:
    """A tree from nested entries, as YAML gives them: mappings are groups, lists hold leaves.

    >>> parse_tree({"any": {"north": ["Oslo"], "south": ["Rome"]}}).rows
    (('Oslo', 'north', 'any'), ('Rome', 'south', 'any'))
    """
    paths = list(_list_paths(tree, ()))
    depth = max((len(path) for path in paths), default=0)
    return Tree(tuple(_pad_path(path, depth) for path in paths))


def _list_paths(tree: object, above: tuple[str, ...]) -> list[tuple[str, ...]]:
    if isinstance(tree, Mapping):
        return [path for name, below in tree.items() for path in _list_paths(below, (str(name), *above))]
    if isinstance(tree, list | tuple):
        return [path for item in tree for path in _list_paths(item, above)]
    return [above] if tree is None else [(str(tree), *above)]


def _pad_path(path: tuple[str, ...], depth: int) -> tuple[str, ...]:
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
        leaves = list(self.categories) or text_of(sort_leaves(values))
        levels = [
            group_by_label([_label_span(leaves, i // size, size) for i in range(len(leaves))]) for size in self.sizes
        ]
        return build_hierarchy(column, leaves, [group_by_label(leaves), *levels], ordered=True)


def _label_span(leaves: Sequence[str], group: int, size: int) -> str:
    members = leaves[group * size : (group + 1) * size]
    return members[0] if len(members) == 1 else f"{members[0]} to {members[-1]}"


def build_groups(groups: Sequence[Sequence[str]]) -> Tree:
    """One level of given groups, each labelled with its members.

    >>> build_groups([["a", "b"], ["c"]]).rows
    (('a', '{a, b}'), ('b', '{a, b}'), ('c', 'c'))
    """
    return Tree(tuple((leaf, _label_set(group)) for group in groups for leaf in group))


def _label_set(group: Sequence[str]) -> str:
    return group[0] if len(group) == 1 else "{" + ", ".join(group) + "}"


@dataclass(frozen=True, slots=True)
class Withhold:
    """The value or nothing: two levels, for columns without any structure to use."""

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        leaves = text_of(sort_leaves(values))
        return build_hierarchy(column, leaves, [group_by_label(leaves)])


@dataclass(frozen=True, slots=True)
class Redact:
    """One more character replaced at each level, from the right or the left, down to `keep` characters.

    Shorter texts are padded first, so that all have the same number of levels; `width` is the length to reach, when it
    was found on other rows.

    >>> redact = Redact()
    >>> list(redact.hierarchy("zip", pa.array(["02139", "02144"])).rows())[0]
    ('02139', '0213*', '021**', '02***', '0****', '*')
    """

    side: str = "right"
    put: str = "*"
    keep: int = 0
    width: int = 0

    def __post_init__(self) -> None:
        if self.side not in ("right", "left") or len(self.put) != 1 or self.keep < 0:
            raise ParameterError(
                "Redaction is described wrongly", expected="side 'right' or 'left', one character to put, keep >= 0"
            )

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        leaves = text_of(sort_leaves(values))
        width = max(self.width, max(map(len, leaves), default=0))
        hidden = range(1, max(width - max(self.keep, 0), 0) + (1 if self.keep else 0))
        levels = [group_by_label([self._hide(leaf, count, width) for leaf in leaves]) for count in hidden]
        return build_hierarchy(column, leaves, [group_by_label(leaves), *levels])

    def _hide(self, text: str, count: int, width: int) -> str:
        if self.side == "right":
            shown = text.ljust(width)[: width - count]
            return (shown + self.put * count).rstrip() if width else TOP
        return (self.put * count + text.rjust(width)[count:]).lstrip()


@dataclass(frozen=True, slots=True)
class Prefix:
    """Only the first characters, fewer at each level.

    >>> list(Prefix((3, 1)).hierarchy("code", pa.array(["E11.9", "E66.0"])).rows())[0]
    ('E11.9', 'E11', 'E', '*')
    """

    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.lengths or any(a <= b for a, b in zip(self.lengths, self.lengths[1:], strict=False)):
            raise ParameterError("Prefix lengths do not fall", expected="Falling lengths such as [5, 3, 1]")

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        leaves = text_of(sort_leaves(values))
        kept = [length for length in self.lengths if length > 0]
        return build_hierarchy(
            column, leaves, [group_by_label(leaves), *(group_by_label([x[:n] for x in leaves]) for n in kept)]
        )
