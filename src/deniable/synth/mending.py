"""Mending rows that belong to people: truths hold, and nothing of a person changes.

Rules among the columns of rows are mended as in any table. A forbidden combination may involve the person too: the row
then takes its own columns from another row of somebody with the same values there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.errors import Infeasible
from deniable.policy.schema import Spec
from deniable.synth.truths import Mender, columns_of, concerning


def mended(
    truths: Sequence[Spec], people: dict[str, pa.Array], rows: pa.RecordBatch, generator: np.random.Generator
) -> pa.RecordBatch:
    """Rows with their people's columns in front, all truths about them kept."""
    among = concerning([truth for truth in truths if truth.kind != "impossible"], rows.schema.names)
    rows = Mender(among).mend(rows, generator)
    for truth in concerning([truth for truth in truths if truth.kind == "impossible"], [*people, *rows.schema.names]):
        if not columns_of(truth) <= set(people):
            rows = _possible(truth, people, rows, generator)
    return pa.record_batch([*people.values(), *rows.columns], names=[*people, *rows.schema.names])


def _possible(
    truth: Spec, people: dict[str, pa.Array], rows: pa.RecordBatch, generator: np.random.Generator
) -> pa.RecordBatch:
    own, theirs = _held(truth, dict(zip(rows.schema.names, rows.columns, strict=True))), _held(truth, people)
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


def _held(truth: Spec, columns: dict[str, pa.Array]) -> np.ndarray:
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
