"""Generate: rows from a model, as many as wanted, in their original types. Post-processing: it may be seeded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from deniable.errors import Infeasible, ParameterError
from deniable.synth.attributes import Made, anew, decode
from deniable.synth.condition import Condition, condition
from deniable.synth.draw import draw
from deniable.synth.model import SynthModel
from deniable.synth.restore import restore
from deniable.synth.truths import Mender

CHUNK = 500_000
MOST_DRAWN = 40
"""How many chunks are drawn for a condition before it is given up."""

Where = Mapping[str, str]


def generate(model: SynthModel, rows: int | None = None, seed: int = 0, where: Where | None = None) -> pa.Table:
    """A synthetic table; as many rows as the table is estimated to have, if not told otherwise."""
    return pa.Table.from_batches(list(batches(model, rows, seed, where=where)))


def batches(
    model: SynthModel,
    rows: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    where: Where | None = None,
) -> Iterator[pa.RecordBatch]:
    """The same in batches, so that any number of rows fits in memory; `where` names values that all rows have."""
    only = condition(model, where or {})
    total = model.description.estimates.total
    wanted = round(total * only.share) if rows is None else rows
    if wanted < 0:
        raise ParameterError("a table cannot have a negative number of rows")
    made = 0
    for drawn in _drawn(model, wanted, seed, only):
        yield _numbered(model, drawn, made, wanted)
        made += drawn.num_rows
        if progress is not None:
            progress(made / wanted if wanted else 1.0)


def _drawn(model: SynthModel, wanted: int, seed: int, only: Condition) -> Iterator[pa.RecordBatch]:
    """Batches of kept rows until there are enough; the first comes even if it is empty, for its columns."""
    kept, offset, mender = 0, 0, Mender(model.truths)
    while kept < wanted or not offset:
        if kept < wanted and offset >= MOST_DRAWN * CHUNK and only.values:
            raise Infeasible(
                f"only {kept:,} of {wanted:,} rows met the condition", remedy="Ask for fewer rows or fewer conditions"
            )
        size = min(CHUNK, math.ceil((wanted - kept) / only.share))
        rows = mender.mend(_batch(model, size, seed, offset), np.random.default_rng((seed, offset, 3)))
        rows = only.keep(rows).slice(0, wanted - kept)
        kept, offset = kept + rows.num_rows, offset + max(size, 1)
        yield rows


def _numbered(model: SynthModel, rows: pa.RecordBatch, after: int, total: int) -> pa.RecordBatch:
    """The rows with the columns that are made anew, in the table's order."""
    columns = [
        anew(attribute, after, rows.num_rows, total) if isinstance(attribute, Made) else rows.column(attribute.name)
        for attribute in model.attributes
    ]
    return pa.record_batch(columns, names=[attribute.name for attribute in model.attributes])


def _batch(model: SynthModel, size: int, seed: int, offset: int) -> pa.RecordBatch:
    description = model.description
    start = (seed, offset)
    codes = restore(description, draw(description.estimates, description.collapsed.domain, size, start), start)
    generator = np.random.default_rng((*start, 2))
    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Made)]
    columns = [decode(attribute, own, generator) for attribute, own in zip(coded, codes, strict=True)]
    return pa.record_batch(columns, names=[attribute.name for attribute in coded])
