"""Serialization: what a protocol is called, and how its responses travel, as JSON and as bytes. Format 2, stable.

A *recipe* is a protocol as JSON: its name and its exact parameters, rationals as [numerator, denominator]. A client
needs nothing else: no exponential, no rounding. A *response* is a JSON list with one entry for each field of the
protocol's layout, or the same fields as fixed-width big-endian bytes. Whatever does not fit the layout is refused
here, before anything is stored or counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError, nearest
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.hashing import LocalHashing
from deniable.localdp.frequency.randomized_response import CoinDesign, Direct
from deniable.localdp.frequency.sketch import CountMeanSketch, HadamardSketch, Rappor
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.frequency.unary import Unary
from deniable.localdp.heavy_hitters import PrefixTree
from deniable.localdp.numeric.mechanisms import BoundedLaplace, Duchi, Hybrid, Window
from deniable.localdp.numeric.scale import Scale
from deniable.localdp.protocol import Bits, Chosen, Field, Layout, Responses, Selected, Whole, message_bytes

FORMAT = 2
PROTOCOLS: tuple[type[Any], ...] = (
    CoinDesign,
    Direct,
    Unary,
    LocalHashing,
    Hadamard,
    Subset,
    Rappor,
    CountMeanSketch,
    HadamardSketch,
    PrefixTree,
    BoundedLaplace,
    Duchi,
    Window,
    Hybrid,
)
BY_NAME = {protocol.name: protocol for protocol in PROTOCOLS}


class Serializable(Protocol):
    """Whatever has a name on the wire and a layout."""

    name: ClassVar[str]

    @property
    def layout(self) -> Layout:
        """The fields of one response."""


# a dictionary: JSON that clients read, with other fields for each protocol; `protocol_of` reads it back
def recipe(protocol: Serializable) -> dict[str, Any]:
    """A protocol as JSON.

    >>> recipe(Direct(4, Fraction(3)))
    {'protocol': 'k-ary', 'domain': 4, 'odds': [3, 1]}
    """
    shown = {field.name: _encode_value(getattr(protocol, field.name)) for field in fields(cast(Any, protocol))}
    return {"protocol": protocol.name} | shown


def _encode_value(value: object) -> Any:
    match value:
        case bool() | int() | str():
            return value
        case Fraction():
            return [value.numerator, value.denominator]
        case tuple():
            return [_encode_value(each) for each in value]
        case Scale():
            return {"lower": _encode_value(value.lower), "upper": _encode_value(value.upper), "steps": value.steps}
        case _:
            return recipe(cast(Serializable, value))


def protocol_of(document: Mapping[str, Any]) -> Any:
    """The protocol a recipe names; wrong documents are refused, with the nearest name known."""
    name = document.get("protocol")
    if name not in BY_NAME:
        expected = f"One of {', '.join(BY_NAME)}"
        raise ParameterError(
            "the recipe names no known protocol", expected=expected, remedy=nearest(str(name), BY_NAME)
        )
    made = BY_NAME[name]
    try:
        return made(**{field.name: _decode_value(document[field.name]) for field in fields(made)})
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        wanted = ", ".join(field.name for field in fields(made))
        raise ParameterError(f"the recipe of '{name}' is incomplete", expected=f"It has: {wanted}") from None


def _decode_value(written: Any) -> Any:
    match written:
        case [int(numerator), int(denominator)]:
            return Fraction(numerator, denominator)
        case list():
            return tuple(written)
        case {"protocol": _}:
            return protocol_of(written)
        case {"lower": lower, "upper": upper, "steps": steps}:
            return Scale(Fraction(*lower), Fraction(*upper), steps)
        case _:
            return written


def _build_refusal() -> DataError:
    """The one refusal of a response; it repeats nothing of what was sent."""
    return DataError("a response does not fit its protocol", remedy="Send it as the client files do")


def to_json(layout: Layout, responses: Responses) -> list[list[Any]]:
    """Responses as JSON lists: Whole an integer, Bits lower-case hexadecimal, Chosen a list in ascending order."""
    columns = [_json_column(field, column) for field, column in zip(layout, responses, strict=True)]
    return [list(entry) for entry in zip(*columns, strict=True)]


def _json_column(field: Field, column: NDArray[Any]) -> list[Any]:
    return [row.tobytes().hex() for row in column] if isinstance(field, Bits) else column.tolist()


def check(layout: Layout, response: object) -> None:
    """Refuse a JSON response that is not exactly of the layout: hostile input ends here."""
    if not isinstance(response, list) or len(response) != len(layout):
        raise _build_refusal()
    for field, entry, before in zip(layout, response, [None, *response], strict=False):
        if not _fits(field, entry, before):
            raise _build_refusal()


def _fits(field: Field, entry: object, before: Any) -> bool:
    match field:
        case Whole(_, bound):
            return type(entry) is int and 0 <= entry < bound
        case Selected(_, bounds):
            return type(entry) is int and 0 <= entry < bounds[before]
        case Bits(_, length):
            return _is_bits(entry, length, field.bytes)
        case Chosen(_, count, bound):
            whole = isinstance(entry, list) and len(entry) == count and all(type(each) is int for each in entry)
            return whole and _is_rising(cast(list[int], entry), bound)


def _is_bits(entry: object, length: int, width: int) -> bool:
    if not isinstance(entry, str) or len(entry) != 2 * width or set(entry) - set("0123456789abcdef"):
        return False
    spare = length % 8
    return not spare or int(entry[-2:], 16) >> spare == 0


def _is_rising(entries: Sequence[int], bound: int) -> bool:
    ordered = all(low < high for low, high in pairwise(entries))
    return ordered and entries[0] >= 0 and entries[-1] < bound


def from_json(layout: Layout, responses: Iterable[object]) -> Responses:
    """Columns of responses that came as JSON; each is checked."""
    rows = list(responses)
    for row in rows:
        check(layout, row)
    entries = cast(list[list[Any]], rows)
    return tuple(_parse_column(field, [row[place] for row in entries]) for place, field in enumerate(layout))


def _parse_column(field: Field, entries: list[Any]) -> NDArray[Any]:
    if isinstance(field, Bits):
        return np.frombuffer(bytes.fromhex("".join(entries)), dtype=np.uint8).reshape(len(entries), field.bytes).copy()
    shape = (len(entries), field.count) if isinstance(field, Chosen) else (len(entries),)
    return np.array(entries, dtype=np.int64).reshape(shape)


def to_bytes(layout: Layout, responses: Responses) -> bytes:
    """Responses back to back, each message_bytes(layout) long."""
    parts = [_bytes_column(field, column) for field, column in zip(layout, responses, strict=True)]
    return np.concatenate(parts, axis=1).tobytes()


def _bytes_column(field: Field, column: NDArray[Any]) -> NDArray[np.uint8]:
    if isinstance(field, Bits):
        return column
    width = field.bytes // (field.count if isinstance(field, Chosen) else 1)
    wide = column.astype(">u8").reshape(*column.shape, 1).view(np.uint8)[..., 8 - width :]
    return wide.reshape(len(column), field.bytes)


def from_bytes(layout: Layout, message: bytes) -> Responses:
    """Columns of responses that came as bytes; lengths and limits are checked."""
    length = message_bytes(layout)
    if len(message) % length:
        raise _build_refusal()
    table = np.frombuffer(message, dtype=np.uint8).reshape(-1, length)
    columns: list[NDArray[Any]] = []
    start = 0
    for field in layout:
        columns.append(_read_field(field, table[:, start : start + field.bytes], columns))
        start += field.bytes
    return tuple(columns)


def _read_field(field: Field, part: NDArray[np.uint8], before: Sequence[NDArray[Any]]) -> NDArray[Any]:
    if isinstance(field, Bits):
        spare = field.length % 8
        if spare and len(part) and int(part[:, -1].max()) >> spare:
            raise _build_refusal()
        return part.copy()
    count = field.count if isinstance(field, Chosen) else 1
    bound = np.array(field.bounds)[before[-1]][:, None] if isinstance(field, Selected) else field.bound
    width = field.bytes // count
    wide = np.zeros((len(part), count, 8), dtype=np.uint8)
    wide[..., 8 - width :] = part.reshape(len(part), count, width)
    numbers = wide.view(">u8")[..., 0].astype(np.int64)
    if not ((numbers >= 0) & (numbers < bound)).all():
        raise _build_refusal()
    if not isinstance(field, Chosen):
        return numbers[:, 0]
    if (np.diff(numbers, axis=1) <= 0).any():
        raise _build_refusal()
    return numbers
