"""Constraints: public rules between columns (the policy's `truths`) that synthetic rows keep exactly, at no cost.

They are enforced after rows are drawn, which is post-processing. In their order:

*determines*  equal values in some columns mean equal values in others: the first row with a combination decides.
*sum*         a total becomes the sum of its parts.
*order*       values that fall where they should not are put in order.
*impossible*  a row with a forbidden combination gives way to a copy of one without.

On rows that belong to people nothing of a person changes: a row with a forbidden combination takes its own columns from
another row of somebody with the same values there."""

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


def constraint_columns(truth: Spec) -> frozenset[str]:
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


def select_constraints(truths: Sequence[Spec], columns: Sequence[str]) -> tuple[Spec, ...]:
    """The truths about columns that are there, in the order in which they are enforced."""
    held = [truth for truth in truths if constraint_columns(truth) <= set(columns)]
    return tuple(sorted(held, key=lambda truth: KINDS.index(truth.kind)))


class ConstraintEnforcer:
    """Enforces constraints on batches of rows; what one batch decided about a dependency holds for the next."""

    def __init__(self, truths: Sequence[Spec]) -> None:
        self._truths = tuple(truths)
        self._decided: list[dict[tuple[Any, ...], tuple[Any, ...]]] = [{} for _ in truths]

    def enforce(self, rows: pa.RecordBatch, generator: np.random.Generator) -> pa.RecordBatch:
        """The rows with every truth kept."""
        for truth, decided in zip(self._truths, self._decided, strict=True):
            match truth.kind:
                case "determines":
                    rows = _apply_determines(rows, _names(truth.options["from"]), _names(truth.options["to"]), decided)
                case "sum":
                    rows = _apply_sum(rows, _names(truth.options["parts"]), str(truth.options["total"]))
                case "order":
                    rows = _apply_order(rows, _names(truth.options["columns"]))
                case _:
                    rows = _apply_impossible(rows, truth.options["when"], generator)
        return rows


def _names(value: Any) -> list[str]:
    return [str(name) for name in value]


def _replace_column(rows: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    place = rows.schema.get_field_index(name)
    arrays = [
        values.cast(rows.schema.field(place).type) if i == place else rows.column(i) for i in range(rows.num_columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def _apply_determines(
    rows: pa.RecordBatch, left: list[str], right: list[str], decided: dict[tuple[Any, ...], tuple[Any, ...]]
) -> pa.RecordBatch:
    keys = list(zip(*(rows.column(name).to_pylist() for name in left), strict=True))
    values = list(zip(*(rows.column(name).to_pylist() for name in right), strict=True))
    meant = [decided.setdefault(key, value) for key, value in zip(keys, values, strict=True)]
    for place, name in enumerate(right):
        rows = _replace_column(rows, name, pa.array([value[place] for value in meant], rows.column(name).type))
    return rows


def _apply_sum(rows: pa.RecordBatch, parts: list[str], total: str) -> pa.RecordBatch:
    added = rows.column(parts[0])
    for name in parts[1:]:
        added = pc.add(added, rows.column(name))
    return _replace_column(rows, total, added)


def _apply_order(rows: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """Neighbors that fall are swapped, as often as it takes; a null keeps its place."""
    for _ in names:
        for first, second in pairwise(names):
            a, b = rows.column(first), rows.column(second)
            falls = pc.fill_null(pc.greater(a, b), False)
            rows = _replace_column(
                _replace_column(rows, first, pc.if_else(falls, b, a)), second, pc.if_else(falls, a, b)
            )
    return rows


def _apply_impossible(rows: pa.RecordBatch, when: Any, generator: np.random.Generator) -> pa.RecordBatch:
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


def enforce_on_linked_rows(
    truths: Sequence[Spec], people: dict[str, pa.Array], rows: pa.RecordBatch, generator: np.random.Generator
) -> pa.RecordBatch:
    """Rows with their people's columns in front, all truths about them kept."""
    among = select_constraints([truth for truth in truths if truth.kind != "impossible"], rows.schema.names)
    rows = ConstraintEnforcer(among).enforce(rows, generator)
    for truth in select_constraints(
        [truth for truth in truths if truth.kind == "impossible"], [*people, *rows.schema.names]
    ):
        if not constraint_columns(truth) <= set(people):
            rows = _replace_own_columns(truth, people, rows, generator)
    return pa.record_batch([*people.values(), *rows.columns], names=[*people, *rows.schema.names])


def _replace_own_columns(
    truth: Spec, people: dict[str, pa.Array], rows: pa.RecordBatch, generator: np.random.Generator
) -> pa.RecordBatch:
    own, theirs = (
        _match_combination(truth, dict(zip(rows.schema.names, rows.columns, strict=True))),
        _match_combination(truth, people),
    )
    bad = np.flatnonzero(own & theirs)
    if not bad.size:
        return rows
    donors = np.flatnonzero(~own & theirs)
    donors = donors if donors.size else np.flatnonzero(~own)
    if not donors.size:
        happened = "every drawn row has a combination that the policy calls impossible"
        raise Infeasible(happened, remedy="Check the truths")
    places = np.arange(rows.num_rows)
    places[bad] = generator.choice(donors, bad.size)
    return rows.take(pa.array(places))


def _match_combination(truth: Spec, columns: dict[str, pa.Array]) -> np.ndarray:
    """Where the part of a forbidden combination that is about these columns holds."""
    when = truth.options["when"]
    size = len(next(iter(columns.values()))) if columns else 0
    held = np.ones(size, dtype=bool)
    for name, values in dict(when).items():  # type: ignore[call-overload]
        if name in columns:
            listed = list(values) if isinstance(values, list | tuple) else [values]
            found = pc.fill_null(pc.is_in(columns[name], pa.array(listed, columns[name].type)), False)
            held &= found.to_numpy(zero_copy_only=False)
    return held
