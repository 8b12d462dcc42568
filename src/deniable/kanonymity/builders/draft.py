"""A first hierarchy for every column of a table, to be read and corrected by whoever knows the data.

A draft looks at the type, the number of distinct values and the shape of text. It uses widths and lengths that people
would choose (1, 2, 5 and their tens), never edges at values of the data, so that the draft itself can be shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from deniable.kanonymity.builders.leaves import text_of
from deniable.policy.schema import Spec

FEW = 12
"""Up to so many distinct values a column is taken as categories."""


def draft(table: pa.Table, columns: tuple[str, ...] | None = None) -> Mapping[str, Spec]:
    """A hierarchy for each of these columns (all of them when none are named).

    >>> draft(pa.table({"zip": ["02139", "02144"], "age": [30, 71]}))["zip"].kind
    'redact'
    """
    names = table.column_names if columns is None else columns
    return {name: draft_column(pc.unique(table[name].combine_chunks()).drop_null()) for name in names}


def draft_column(values: pa.Array) -> Spec:
    """A hierarchy for a column with these distinct values."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return draft_column(pc.unique(values.dictionary_decode()))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _dates(values)
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)) and len(values) > 2:
        return _numbers(values)
    return _text(text_of(values))


def _dates(values: pa.Array) -> Spec:
    span = pc.min_max(pc.cast(values, pa.date32(), safe=False))
    years = (span["max"].as_py() or span["min"].as_py()).year - span["min"].as_py().year if len(values) else 0
    finer = ("day",) if pa.types.is_timestamp(values.type) else ()
    return Spec("dates", {"levels": (*finer, "month", "year", "decade") if years > 1 else (*finer, "month", "quarter")})


def _numbers(values: pa.Array) -> Spec:
    span = pc.min_max(pc.cast(values, pa.float64(), safe=False))
    width = (span["max"].as_py() - span["min"].as_py()) or 1.0
    finest = _nice(width / 20)
    return Spec("intervals", {"widths": (finest, finest * 2, finest * 4, finest * 8)})


def _nice(width: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above a width."""
    power = 10.0 ** math.floor(math.log10(width))
    nice = max(step for step in (1, 2, 5) if step * power <= width * (1 + 1e-9)) * power
    return float(nice) if nice < 1 else float(int(nice))


def _text(values: list[str]) -> Spec:
    lengths = {len(value) for value in values}
    coded = all(any(c.isdigit() for c in value) for value in values)
    if len(values) > 1 and len(lengths) == 1 and min(lengths) > 3 and coded:
        return Spec("redact", {"from": "right"})
    if len(values) > FEW and coded:
        return Spec("prefix", {"lengths": tuple(n for n in (5, 3, 1) if n < max(lengths))})
    return Spec("withhold", {})
