"""Original types: a column that was a 32-bit integer, a decimal of two places or a time in a zone is one again.

A type belongs to the schema, not to the rows, and a model names it in Arrow's words. Types that a policy's values
cannot take, such as lists, are not kept.
"""

from __future__ import annotations

import re

import pyarrow as pa

PLAIN = {
    str(kind): kind
    for kind in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.date32(), pa.date64(),
    )
}  # fmt: skip
DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=([\w/+:-]+))?\]")


def kept(kind: pa.DataType) -> str:
    """The name under which a type is kept; nothing for types that are not."""
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return str(inner) if _named(str(inner)) is not None else ""


def restored(values: pa.Array, name: str) -> pa.Array:
    """Values in the type of that name; as they are, where it cannot hold what the policy declares."""
    kind = _named(name)
    if kind is None or values.type == kind:
        return values
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return values


def _named(name: str) -> pa.DataType | None:
    if decimal := DECIMAL.fullmatch(name):
        digits, places = int(decimal[1]), int(decimal[2])
        return pa.decimal128(digits, places) if 1 <= digits <= 38 and places <= digits else None
    if time := TIMESTAMP.fullmatch(name):
        return pa.timestamp(time[1], tz=time[2])
    return PLAIN.get(name)
