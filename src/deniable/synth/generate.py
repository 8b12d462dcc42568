"""Generate: rows from a model, as many as wanted, in their original types. Post-processing: it may be seeded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from deniable.errors import Infeasible, ParameterError
from deniable.synth.attributes import Made
from deniable.synth.coding import anew, decode
from deniable.synth.condition import Condition, condition
from deniable.synth.draw import draw
from deniable.synth.marginal import Codes
from deniable.synth.model import SynthModel
from deniable.synth.originals import restored
from deniable.synth.restore import restore
from deniable.synth.truths import Mender

CHUNK = 500_000
"""Rows in a batch. Records are fitted once for so many: further batches are the same records in another order, with
numbers and dates drawn anew inside their bins. Under a condition every batch is fitted by itself, so that rare rows
are not the same few again."""
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
    kept, offset, mender, fitted = 0, 0, Mender(model.truths), _Fitted(model, seed, fresh=bool(only.values))
    while kept < wanted or not offset:
        if kept < wanted and offset >= MOST_DRAWN * CHUNK and only.values:
            raise Infeasible(
                f"only {kept:,} of {wanted:,} rows met the condition", remedy="Ask for fewer rows or fewer conditions"
            )
        size = min(CHUNK, math.ceil((wanted - kept) / only.share))
        rows = _batch(model, fitted.take(size, offset), (seed, offset))
        rows = mender.mend(rows, np.random.default_rng((seed, offset, 3)))
        rows = only.keep(rows).slice(0, wanted - kept)
        kept, offset = kept + rows.num_rows, offset + max(size, 1)
        yield rows


def _numbered(model: SynthModel, rows: pa.RecordBatch, after: int, total: int) -> pa.RecordBatch:
    """The rows with the columns that are made anew, in the table's order."""
    columns = [
        anew(attribute, after, rows.num_rows, total) if isinstance(attribute, Made) else rows.column(attribute.name)
        for attribute in model.attributes
    ]
    if model.types:
        columns = [restored(column, kind) for column, kind in zip(columns, model.types, strict=True)]
    return pa.record_batch(columns, names=[attribute.name for attribute in model.attributes])


class _Fitted:
    """Records that fit the estimates: fitted for the first batch, and for each further one if they must be fresh."""

    def __init__(self, model: SynthModel, seed: int, *, fresh: bool) -> None:
        self._description, self._seed, self._fresh = model.description, seed, fresh
        self._held: Codes | None = None

    def take(self, size: int, offset: int) -> Codes:
        """The records of a batch that begins at an offset."""
        if self._held is None or self._fresh or size > self._held.shape[1]:
            d = self._description
            self._held = draw(d.estimates, d.collapsed.domain, size, (self._seed, offset))
            return self._held
        order = np.random.default_rng((self._seed, offset, 4)).permutation(self._held.shape[1])
        return self._held[:, order[:size]]


def _batch(model: SynthModel, drawn: Codes, start: tuple[int, int]) -> pa.RecordBatch:
    codes = restore(model.description, drawn, start)
    generator = np.random.default_rng((*start, 2))
    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Made)]
    columns = [decode(attribute, own, generator) for attribute, own in zip(coded, codes, strict=True)]
    return pa.record_batch(columns, names=[attribute.name for attribute in coded])
