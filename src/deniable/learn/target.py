"""Targets: what a model predicts, a declared bounded number or one declared value against all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import ParameterError, nearest
from deniable.learn.features import Labels, Number, column_of, feature, named, places, steps_of
from deniable.policy.schema import TableSchema

Known = NDArray[np.bool_]
"""Which rows have a target; the others are not learned from."""


@dataclass(frozen=True, slots=True)
class ClassTarget:
    """Whether a column has its positive value."""

    column: Labels
    positive: str | int | bool

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name


@dataclass(frozen=True, slots=True)
class NumberTarget:
    """The value of a bounded column."""

    column: Number

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name


Target = ClassTarget | NumberTarget


def target(table: TableSchema, name: str, positive: str | None = None) -> Target:
    """The target that a declared column is; `positive` names the value to tell from all others.

    Where two values are declared, the last one is positive unless told otherwise.
    """
    column = feature(named(table, name), table)
    if isinstance(column, Number):
        if positive is not None:
            raise ParameterError(f"'{name}' is a number, and has no positive value", remedy="Leave positive out")
        return NumberTarget(column)
    if positive is None and len(column.labels) == 2:
        return ClassTarget(column, column.labels[1])
    known = [str(label) for label in column.labels]
    if positive is None:
        raise ParameterError(
            f"'{name}' has {len(known)} values, and a model tells one from the others",
            remedy="Say which: --positive VALUE",
        )
    if positive not in known:
        listed = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
        raise ParameterError(
            f"'{name}' has no declared value of that name", expected=f"One of {listed}", remedy=nearest(positive, known)
        )
    return ClassTarget(column, column.labels[known.index(positive)])


def truth(wanted: Target, rows: pa.Table | pa.RecordBatch) -> tuple[NDArray[np.int64], Known]:
    """The target of each row (0 or 1; or steps from -STEPS to STEPS), and which rows have one."""
    values = column_of(rows, wanted.name)
    if isinstance(wanted, NumberTarget):
        steps, missing = steps_of(wanted.column, values)
        return steps.astype(np.int64), ~missing
    codes = places(wanted.column, values)
    return (codes == wanted.column.labels.index(wanted.positive)).astype(np.int64), codes >= 0
