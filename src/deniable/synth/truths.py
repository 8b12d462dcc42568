"""Structural truths: public rules between columns that synthetic rows keep exactly, at no cost.

The rows are mended after they are drawn, which is post-processing. In their order:

*determines*  equal values in some columns mean equal values in others: the first row with a combination decides.
*sum*         a total becomes the sum of its parts.
*order*       values that fall where they should not are put in order.
*impossible*  a row with a forbidden combination gives way to a copy of one without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.errors import Infeasible
from deniable.policy.schema import Spec

KINDS = ("determines", "sum", "order", "impossible")


def columns_of(truth: Spec) -> frozenset[str]:
    """The columns a truth speaks of."""
    options = truth.options
    match truth.kind:
        case "determines":
            return frozenset(_names(options["from"])) | frozenset(_names(options["to"]))
        case "sum":
            return frozenset(_names(options["parts"])) | {str(options["total"])}
        case "order":
            return frozenset(_names(options["columns"]))
        case _:
            when = options["when"]
            return frozenset(str(name) for name in when) if isinstance(when, Mapping) else frozenset()


def concerning(truths: Sequence[Spec], columns: Sequence[str]) -> tuple[Spec, ...]:
    """The truths about columns that are there, in the order in which they are mended."""
    held = [truth for truth in truths if columns_of(truth) <= set(columns)]
    return tuple(sorted(held, key=lambda truth: KINDS.index(truth.kind)))


class Mender:
    """Mends batches of rows; what one batch decided about a dependency holds for the next."""

    def __init__(self, truths: Sequence[Spec]) -> None:
        self._truths = tuple(truths)
        self._decided: list[dict[tuple[Any, ...], tuple[Any, ...]]] = [{} for _ in truths]

    def mend(self, rows: pa.RecordBatch, generator: np.random.Generator) -> pa.RecordBatch:
        """The rows with every truth kept."""
        for truth, decided in zip(self._truths, self._decided, strict=True):
            match truth.kind:
                case "determines":
                    rows = _determined(rows, _names(truth.options["from"]), _names(truth.options["to"]), decided)
                case "sum":
                    rows = _summed(rows, _names(truth.options["parts"]), str(truth.options["total"]))
                case "order":
                    rows = _ordered(rows, _names(truth.options["columns"]))
                case _:
                    rows = _possible(rows, truth.options["when"], generator)
        return rows


def _names(value: Any) -> list[str]:
    return [str(name) for name in value]


def _put(rows: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    place = rows.schema.get_field_index(name)
    arrays = [
        values.cast(rows.schema.field(place).type) if i == place else rows.column(i) for i in range(rows.num_columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def _determined(
    rows: pa.RecordBatch, left: list[str], right: list[str], decided: dict[tuple[Any, ...], tuple[Any, ...]]
) -> pa.RecordBatch:
    keys = list(zip(*(rows.column(name).to_pylist() for name in left), strict=True))
    values = list(zip(*(rows.column(name).to_pylist() for name in right), strict=True))
    meant = [decided.setdefault(key, value) for key, value in zip(keys, values, strict=True)]
    for place, name in enumerate(right):
        rows = _put(rows, name, pa.array([value[place] for value in meant], rows.column(name).type))
    return rows


def _summed(rows: pa.RecordBatch, parts: list[str], total: str) -> pa.RecordBatch:
    added = rows.column(parts[0])
    for name in parts[1:]:
        added = pc.add(added, rows.column(name))
    return _put(rows, total, added)


def _ordered(rows: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """Neighbors that fall are swapped, as often as it takes; a null keeps its place."""
    for _ in names:
        for first, second in pairwise(names):
            a, b = rows.column(first), rows.column(second)
            falls = pc.fill_null(pc.greater(a, b), False)
            rows = _put(_put(rows, first, pc.if_else(falls, b, a)), second, pc.if_else(falls, a, b))
    return rows


def _possible(rows: pa.RecordBatch, when: Any, generator: np.random.Generator) -> pa.RecordBatch:
    forbidden = None
    for name, values in dict(when).items():
        listed = list(values) if isinstance(values, list | tuple) else [values]
        held = pc.fill_null(pc.is_in(rows.column(name), pa.array(listed, rows.column(name).type)), False)
        forbidden = held if forbidden is None else pc.and_(forbidden, held)
    bad = (
        np.flatnonzero(forbidden.to_numpy(zero_copy_only=False))
        if forbidden is not None
        else np.array([], dtype=np.int64)
    )
    if not bad.size:
        return rows
    good = np.setdiff1d(np.arange(rows.num_rows), bad)
    if not good.size:
        raise Infeasible(
            "every drawn row has a combination that the policy calls impossible", remedy="Check the truths"
        )
    places = np.arange(rows.num_rows)
    places[bad] = generator.choice(good, bad.size)
    return rows.take(pa.array(places))
