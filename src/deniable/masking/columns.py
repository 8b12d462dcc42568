"""Arrow columns as the masks need them: text laid end to end, and text built from fixed rows of bytes.

A mask sees values as text in one canonical form (what Arrow's cast to text gives), so that the identifier 42 gets the
same token whether one table stores it as a number and another as text. Nulls stay null everywhere.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError

Normal = str
OTHER_MASK = "Use another mask for this column, or declare its type in the policy"
"""How to go on where a mask does not suit a type."""


def as_text(values: pa.Array) -> pa.Array:
    """The column as large_string; whole floats are refused, because 1.0 and 1 would become different people."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return as_text(values.dictionary_decode())
    if pa.types.is_floating(kind):
        raise DataError(
            "an identifier is stored as a floating-point number, whose text form is not unique",
            remedy="Declare the column as integer or text in the policy",
        )
    return values if pa.types.is_large_string(kind) else values.cast(pa.large_string())


def normalize_text(text: pa.Array, how: Normal) -> pa.Array:
    """Text in the form that decides whether two values are the same person's.

    `text` composes Unicode (NFKC), lower-cases, makes one space of several and trims, so that `ANN  Smith ` and
    `ann smith` are one person; `digits` keeps the digits alone, so that (202) 224-3121 and 2022243121 are one number;
    `exact` changes nothing.
    """
    if how == "text" and not _is_plain(text):
        plain = pc.utf8_lower(pc.utf8_normalize(text, form="NFKC"))
        return pc.utf8_trim_whitespace(pc.replace_substring_regex(plain, pattern=r"\s+", replacement=" "))
    return pc.replace_substring_regex(text, pattern=r"\D", replacement="") if how == "digits" else text


def _is_plain(text: pa.Array) -> bool:
    """Whether normalizing would change nothing: no capitals, no white space, nothing beyond ASCII. Quick to see."""
    held, starts = rows_of(text)
    used = held[starts[0] : starts[-1]]
    return not used.size or bool(used.max() < 128 and ((used > 90) | ((used > 32) & (used < 65))).all())


def rows_of(text: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of a large_string column laid end to end, and where each row begins; a null is an empty row."""
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64, count=text.offset + len(text) + 1)[text.offset :]
    held = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(1, dtype=np.uint8)
    held.flags.writeable = False
    return held, np.ascontiguousarray(starts)


def from_fixed_rows(rows: NDArray[np.uint8], like: pa.Array) -> pa.Array:
    """A text column from rows of equally many ASCII bytes, null where another column is null."""
    count, width = rows.shape
    offsets = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int64) if width else b"\0" * 8)
    plain = pa.Array.from_buffers(pa.large_string(), count, [None, offsets, pa.py_buffer(np.ascontiguousarray(rows))])
    return with_nulls_of(plain, like)


def with_nulls_of(values: pa.Array, like: pa.Array) -> pa.Array:
    """The values, null where `like` is."""
    return values if like.null_count == 0 else pc.if_else(like.is_valid(), values, pa.scalar(None, values.type))


def restore_type(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """A masked text column in the narrower text type the column had, so that files keep their types."""
    wanted = kind.value_type if pa.types.is_dictionary(kind) else kind
    return (
        text.cast(wanted) if pa.types.is_string(wanted) or pa.types.is_large_string(wanted) else text.cast(pa.string())
    )
