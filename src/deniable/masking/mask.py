"""The deed: a plan applied to one batch of rows. Everything else about files and streams is in `parts.py`."""

from __future__ import annotations

import pyarrow as pa

from deniable.masking.plan import TablePlan


def mask(plan: TablePlan, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The released columns of a batch, masked.

    Masks that look at other columns (the person whose dates are shifted) see them as they were, never masked.
    """
    names, columns = [], []
    for column in plan.columns:
        values = rows.column(column.name)
        names.append(column.name)
        columns.append(values if column.mask is None else column.mask.apply(values, rows))
    if plan.projection:
        names += plan.projection.names
        columns += plan.projection.project(rows)
    return pa.RecordBatch.from_arrays(columns, names=names)


def masked_schema(plan: TablePlan, schema: pa.Schema) -> pa.Schema:
    """The columns and types that come out, known before any row is read."""
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    return mask(plan, empty).schema
