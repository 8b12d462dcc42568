"""Areas: a column whose values lie in one another, such as ZIP codes in regions, and how the policy says so.

The levels come from the column's declared hierarchy (a tree, cut or redacted texts, neighbors in order), so they are
public. The level of everybody, which all hierarchies end in, is not kept here: it is the table itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.policy.schema import Spec, TableSchema
from deniable.synth.attributes import Attribute, Labels, Made

KINDS = ("tree", "redact", "prefix", "geohash", "order")
"""The hierarchies that group listed values; the earlier are taken for areas sooner."""

Groups = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Areas:
    """The column at `place`: for every level, from coarse to fine, the group of each of its codes; codes come last."""

    place: int
    levels: tuple[Groups, ...]

    def __post_init__(self) -> None:
        if any(np.unique(fine).size != np.unique(np.stack([fine, coarse]), axis=1).shape[1]
               for coarse, fine in pairwise(self.levels)):  # fmt: skip
            raise ParameterError("an area lies in two others", expected="A hierarchy whose levels refine one another")


def areas_of(table: TableSchema, chosen: tuple[Attribute, ...], name: str | None = None) -> Areas | None:
    """The areas of a table: in the column asked for, or in the first that has a hierarchy of listed values."""
    coded = [attribute for attribute in chosen if not isinstance(attribute, Made)]
    found = []
    for place, attribute in enumerate(coded):
        column = table.column(attribute.name)
        told = column.hierarchy if column is not None else None
        if isinstance(attribute, Labels) and told is not None and told.kind in KINDS:
            found.append((KINDS.index(told.kind), place, attribute, told))
    asked = [entry for entry in found if name is None or entry[2].name == name]
    if name is not None and not asked:
        raise ParameterError(
            f"the values of '{name}' do not lie in one another",
            expected="A column with categories and a hierarchy: tree, redact, prefix or order",
            remedy="Declare them in the policy" + (f", or take '{found[0][2].name}'" if found else ""),
        )
    if not asked:
        return None
    _, place, attribute, told = min(asked, key=lambda entry: entry[:2])
    return Areas(place, _levels(attribute, told))


def no_areas() -> ParameterError:
    """The refusal of a table without areas."""
    return ParameterError(
        "no column's values lie in one another",
        expected="A column with categories and a hierarchy: tree, redact, prefix or order",
        remedy="Declare the hierarchy in the policy, or take another method",
    )


def _levels(attribute: Labels, told: Spec) -> tuple[Groups, ...]:
    """Levels from coarse to fine, each finer than the one before; null is an area of its own."""
    levels = [_numbered(keys, attribute.nullable) for keys in _keys([str(label) for label in attribute.labels], told)]
    kept: list[Groups] = [np.arange(attribute.size, dtype=np.int64)]
    for groups in levels:
        if 1 < np.unique(groups).size < np.unique(kept[0]).size:
            kept.insert(0, groups)
    return tuple(kept)


def _numbered(keys: Sequence[Hashable], nullable: bool) -> Groups:
    seen: dict[Hashable, int] = {}
    groups = [seen.setdefault(key, len(seen)) for key in keys]
    return np.array([*groups, *([len(seen)] if nullable else [])], dtype=np.int64)


def _keys(labels: list[str], told: Spec) -> list[list[Hashable]]:
    """What values have in common at every level, from fine to coarse."""
    options = told.options
    match told.kind:
        case "tree":
            rows = {str(row[0]): row for row in _rows(options["rows"])}
            height = max((len(row) for row in rows.values()), default=1)
            return [[rows[v][level] if v in rows else v for v in labels] for level in range(1, height)]
        case "redact":
            longest = max(map(len, labels), default=0)
            right = options.get("from", "right") == "right"
            return [[v[: max(len(v) - n, 0)] if right else v[n:] for v in labels] for n in range(1, longest)]
        case "order":
            return _neighbors(labels, options.get("sizes"), options.get("groups"))
        case _:
            return [[v[: int(str(length))] for v in labels] for length in _rows(options["lengths"])]


def _neighbors(labels: list[str], sizes: object, groups: object) -> list[list[Hashable]]:
    if groups is not None:
        home = {str(v): number for number, group in enumerate(_rows(groups)) for v in group}
        return [[home.get(v, v) for v in labels]]
    return [[place // int(str(size)) for place in range(len(labels))] for size in _rows(sizes)]


def _rows(value: object) -> list[tuple[str, ...]]:
    assert isinstance(value, list | tuple)
    return list(value)
