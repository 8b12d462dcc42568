"""Dates moved by one secret offset for each person: what happened keeps its intervals, and loses its place in time.

The offset of a person is a keyed choice, HMAC(sub-key, person), of 1 to `days` days backward or forward; never zero,
so that no date stays as it was. The same person has the same offset in every table masked with the same key, column
by column, so intervals across tables are kept too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError
from deniable.masking import columns, tokens
from deniable.masking.keys import Key

DAYS = 365
NANOSECONDS_OF_A_DAY = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class ShiftDates:
    """Move dates and times by whole days, one secret offset a person.

    **Holds:** intervals within a person to the day; time of day. **Falls to:** whoever knows one true date of a person
    (which gives all the others); rare sequences of intervals; dates near the ends of a known period, since the offset
    is bounded. A row without a person loses its date.
    """

    secret: bytes = field(repr=False)
    by: str
    days: int = DAYS

    def __post_init__(self) -> None:
        if self.days < 1:
            raise ParameterError(f"dates cannot be shifted by at most {self.days} days", expected="At least 1 day")

    def apply(self, values: pa.Array, rows: pa.RecordBatch) -> pa.Array:
        """The shifted column: date or timestamp, or text that holds ISO dates."""
        if self.by not in rows.schema.names:
            raise DataError(f"dates are shifted by '{self.by}', and there is no such column", column=self.by)
        person = rows.column(self.by)
        moved = _moved(values, offsets(self.secret, person, self.days))
        return pc.if_else(person.is_valid(), moved, pa.scalar(None, moved.type))


def shift_dates(key: Key, by: str, days: int = DAYS) -> ShiftDates:
    """The date shift of a key; the sub-key does not depend on the column, so all dates of a person move alike."""
    return ShiftDates(key.derive("shift", "dates"), by, days)


def offsets(secret: bytes, person: pa.Array, days: int) -> NDArray[np.int64]:
    """Each person's offset in days: uniform on -days ... -1, 1 ... days (the bias of 64 bits is below 1e-14)."""
    drawn = (tokens.numbers(secret, columns.as_text(person)) % np.uint64(2 * days)).astype(np.int64)
    return np.where(drawn < days, drawn - days, drawn - days + 1)


def _moved(values: pa.Array, days: NDArray[np.int64]) -> pa.Array:
    kind = values.type
    if pa.types.is_date(kind):
        whole = values.cast(pa.date32()).cast(pa.int32())
        return pc.add(whole, pa.array(days.astype(np.int32))).cast(pa.date32()).cast(kind)
    if pa.types.is_timestamp(kind):
        unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
        steps = pa.array(days * (NANOSECONDS_OF_A_DAY // unit))
        return pc.add(values.cast(pa.int64()), steps).cast(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _moved(_parsed(values), days).cast(kind)
    raise DataError(f"dates were to be shifted in a column of type {kind}", expected="A date or a timestamp")


def _parsed(text: pa.Array) -> pa.Array:
    try:
        return text.cast(pa.date32())
    except pa.ArrowInvalid:
        raise DataError(
            "dates were to be shifted in a text column that holds something else than ISO dates (YYYY-MM-DD)",
            remedy="Declare the column as date in the policy",
        ) from None
