"""Generate: rows from a model, as many as wanted, in their original types. Post-processing: it may be seeded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from deniable.errors import ParameterError
from deniable.synth.attributes import Made, decode
from deniable.synth.draw import draw
from deniable.synth.model import SynthModel
from deniable.synth.restore import restore
from deniable.synth.truths import Mender

CHUNK = 500_000


def generate(model: SynthModel, rows: int | None = None, seed: int = 0) -> pa.Table:
    """A synthetic table; as many rows as the table is estimated to have, if not told otherwise."""
    return pa.Table.from_batches(list(batches(model, rows, seed)))


def batches(
    model: SynthModel, rows: int | None = None, seed: int = 0, progress: Callable[[float], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """The same in batches, so that any number of rows fits in memory."""
    wanted = round(model.description.estimates.total) if rows is None else rows
    if wanted < 0:
        raise ParameterError("a table cannot have a negative number of rows")
    made, mender = 0, Mender(model.truths)
    while True:
        size = min(CHUNK, wanted - made)
        yield mender.mend(_batch(model, size, seed, made), np.random.default_rng((seed, made, 3)))
        made += size
        if progress is not None:
            progress(made / wanted if wanted else 1.0)
        if made >= wanted:
            return


def _batch(model: SynthModel, size: int, seed: int, offset: int) -> pa.RecordBatch:
    description = model.description
    start = (seed, offset)
    drawn = draw(description.estimates, description.collapsed.domain, size, start)
    codes = restore(description, drawn, start)
    generator = np.random.default_rng((*start, 2))
    columns, place = [], 0
    for attribute in model.attributes:
        own = None
        if not isinstance(attribute, Made):
            own, place = codes[place], place + 1
        columns.append(decode(attribute, own, size, generator))
    return pa.record_batch(columns, names=[attribute.name for attribute in model.attributes])
