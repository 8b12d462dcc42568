"""Columns as integer codes against their hierarchies: done once, after which no step looks at a value again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.errors import DataError, nearest
from deniable.kanonymity.builders.draft import draft_column
from deniable.kanonymity.builders.leaves import text_of
from deniable.kanonymity.builders.specs import builder
from deniable.kanonymity.hierarchy import Codes, Hierarchy, Label
from deniable.policy.schema import Spec

Declared = Hierarchy | Spec | None
"""A hierarchy, the words for one, or nothing (then it is drafted)."""


@dataclass(frozen=True, eq=False, repr=False)
class Coded:
    """A coded column: its hierarchy, the code of every row, and the words that made the hierarchy, if words did."""

    hierarchy: Hierarchy
    codes: Codes
    spec: Spec | None = None
    values: pa.Array | None = None


def column_of(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column by name, or a refusal that names the nearest one."""
    if name not in table.column_names:
        raise DataError(
            f"The table has no column '{name}'",
            expected=f"It has {', '.join(table.column_names)}",
            remedy=nearest(name, table.column_names),
        )
    return table[name]


def distinct(column: pa.ChunkedArray) -> tuple[pa.Array, Codes]:
    """Distinct values without nulls, and the position of every row's value among them; -1 where it is missing."""
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # an empty column stays in chunks
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
    codes = pc.fill_null(whole.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    values = whole.dictionary
    if pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py()):
        return _without_nan(values, codes)
    return values, codes


def _without_nan(values: pa.Array, codes: Codes) -> tuple[pa.Array, Codes]:
    # A number that is no number is a missing one.
    real = ~np.isnan(values.to_numpy(zero_copy_only=False))
    place = np.where(real, np.cumsum(real) - 1, -1).astype(np.int32)
    return values.filter(pa.array(real)), np.append(place, np.int32(-1))[codes]


def encode(name: str, column: pa.ChunkedArray, declared: Declared) -> Coded:
    """The codes of a column against its hierarchy; a drafted one when none is declared."""
    values, positions = distinct(column)
    if isinstance(declared, Hierarchy):
        spec, built = None, declared
    else:
        spec = declared or draft_column(values)
        built = builder(spec).hierarchy(name, values)
    missing = bool((positions < 0).any())
    built = built.with_missing() if missing else built
    place = _places(built, values, positions)
    return Coded(built, place[positions], spec, values)


def _places(built: Hierarchy, values: pa.Array, positions: Codes) -> Codes:
    """The leaf of every distinct value, and in the last place that of a missing one."""
    known: Mapping[Label, int] = built.code_of
    found = np.fromiter((known.get(text, -1) for text in text_of(values)), np.int32, len(values))
    absent = np.flatnonzero(found < 0)
    if absent.size:
        rows = np.flatnonzero(np.isin(positions, absent))
        shown = ", ".join(str(int(row) + 1) for row in rows[:5])
        raise DataError(
            f"{absent.size} values of column '{built.column}' are not among the {built.size} leaves of its hierarchy",
            expected=f"Every value is a leaf; the first rows with others are {shown}",
            remedy="Add the leaves to the hierarchy, or set those cells to missing",
            column=built.column,
        )
    return np.append(found, np.int32(known.get(None, -1))).astype(np.int32)


def encode_table(table: pa.Table, columns: tuple[str, ...], declared: Mapping[str, Declared]) -> tuple[Coded, ...]:
    """Several columns, coded in the given order."""
    return tuple(encode(name, column_of(table, name), declared.get(name)) for name in columns)
