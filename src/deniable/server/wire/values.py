"""Values on the wire: what a client binds, and how an answer's numbers are written, as text or in binary.

Object ids and binary forms are PostgreSQL's. A value that does not fit its type is a refusal with SQLSTATE 22P02 or
22P03, which says the parameter's number and never the value.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

from deniable.errors import NOTHING_CHARGED, ParameterError
from deniable.query.algebra.functions import read_moment
from deniable.query.sql.lexer import MOST_MEMBERS, parse_array

BOOL, INT8, INT2, INT4, TEXT, OID, FLOAT4, FLOAT8 = 16, 20, 21, 23, 25, 26, 700, 701
UNKNOWN, BPCHAR, VARCHAR, NAME, CHAR, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = (
    705, 1042, 1043, 19, 18, 1082, 1114, 1184, 1700,
)  # fmt: skip
JSON, INTERVAL = 114, 1186
SIZES = {BOOL: 1, INT2: 2, INT4: 4, INT8: 8, OID: 4, FLOAT4: 4, FLOAT8: 8, DATE: 4, TIMESTAMP: 8, TIMESTAMPTZ: 8}
OID_OF_KIND = {"integer": INT8, "decimal": FLOAT8, "text": TEXT, "boolean": BOOL, "date": DATE, "datetime": TIMESTAMP}
"""The type of an answer's column, by the word of a policy."""

TYPE_NAMES = {BOOL: "bool", INT8: "int8", INT2: "int2", INT4: "int4", TEXT: "text", OID: "oid", FLOAT4: "float4",
              FLOAT8: "float8", VARCHAR: "varchar", BPCHAR: "bpchar", NAME: "name", CHAR: "char", DATE: "date",
              TIMESTAMP: "timestamp", TIMESTAMPTZ: "timestamptz", NUMERIC: "numeric", UNKNOWN: "unknown"}  # fmt: skip

OID_OF_NAME = {name: oid for oid, name in TYPE_NAMES.items()}
ARRAYS = {
    1000: BOOL, 1005: INT2, 1007: INT4, 1016: INT8, 1009: TEXT, 1015: VARCHAR, 1014: BPCHAR, 1021: FLOAT4, 1022: FLOAT8,
    1182: DATE, 1115: TIMESTAMP, 1185: TIMESTAMPTZ, 1231: NUMERIC, 1003: NAME, 1028: OID, 1002: CHAR,
}  # fmt: skip
"""The types of arrays, with the type of what they hold."""
ARRAY_OF = {inner: outer for outer, inner in ARRAYS.items()}
INTEGERS = (INT2, INT4, INT8, OID)
TEXTS = (0, TEXT, VARCHAR, BPCHAR, NAME, CHAR, UNKNOWN)
_EPOCH = date(2000, 1, 1)
_MOMENT = datetime(2000, 1, 1)
_INTEGER = re.compile(r"[+-]?\d{1,19}")
_TRUTHS = {"t": True, "true": True, "1": True, "on": True, "yes": True, "f": False, "false": False, "0": False,
           "off": False, "no": False}  # fmt: skip

Plain = str | int | float | bool | Decimal | date | datetime | None
Value = Plain | list[Plain]


def decode_value(raw: bytes | None, oid: int, binary: bool, number: int) -> Value:
    """The value of a parameter as the client sent it."""
    if raw is None:
        return None
    try:
        if oid in ARRAYS:
            return _decode_binary_array(raw) if binary else decode_text_array(raw.decode("utf-8"), ARRAYS[oid])
        return _decode_binary(raw, oid) if binary else _decode_text(raw.decode("utf-8"), oid)
    except (ValueError, struct.error, KeyError, InvalidOperation, OverflowError):
        raise _refuse_value(oid, number) from None


def _refuse_value(oid: int, number: int) -> ParameterError:
    """The refusal of a value that is none of its type, or of a type that no column has."""
    inner = ARRAYS.get(oid, oid)
    if inner in TYPE_NAMES:
        kind = f"{'a list of ' if oid in ARRAYS else ''}{TYPE_NAMES[inner]}"
        asked = "Numbers below 10^41, and dates of the years 1 to 9999" if inner not in (*TEXTS, BOOL) else ""
        return ParameterError(f"parameter ${number} is not a value of {kind}", expected=asked, charge=NOTHING_CHARGED)
    kind = _UNTAKEN.get(inner, "a type that is not known here")
    return ParameterError(
        f"parameter ${number} is {kind}, which is not taken as a value", charge=NOTHING_CHARGED,
        expected="A text, a number, a date, a time stamp, a truth value, or a list of such",
        remedy="Send it as a text, or cast it in the client",
    )  # fmt: skip


_UNTAKEN = {17: "a value in bytes (bytea)", 2950: "a UUID", 1083: "a time of the day", 1266: "a time of the day",
            INTERVAL: "an interval", JSON: "a JSON document", 3802: "a JSON document"}  # fmt: skip


def decode_text_array(text: str, inner: int) -> list[Plain]:
    """An array as text, with its members as values of their type."""
    return [None if each is None else _decode_text(each, inner) for each in parse_array(text)]


def _decode_binary_array(raw: bytes) -> list[Plain]:
    """An array in binary: dimensions, a flag, the members' type, and each member with its length."""
    dimensions, _flags, inner = struct.unpack("!iiI", raw[:12])
    if dimensions == 0:
        return []
    count, _lower = struct.unpack("!ii", raw[12:20])
    if dimensions != 1 or count < 0:
        raise ValueError
    if count > MOST_MEMBERS:
        raise ParameterError(f"a list has at most {MOST_MEMBERS} members")
    found: list[Plain] = []
    at = 20
    for _ in range(count):
        (length,) = struct.unpack("!i", raw[at : at + 4])
        at += 4 + max(length, 0)
        found.append(None if length < 0 else _decode_binary(raw[at - length : at], inner))
    if at != len(raw):
        raise ValueError
    return found


def _decode_text(text: str, oid: int) -> Plain:
    if "\0" in text:
        raise ValueError
    if oid in TEXTS:
        return text
    if oid in INTEGERS and _INTEGER.fullmatch(text.strip()):
        return int(text)
    if oid in (FLOAT4, FLOAT8, NUMERIC, INT8):  # ODBC sends numbers without their type, beside columns of integers
        return _require_finite(Decimal(text.strip()))
    readers: dict[int, Callable[[str], Plain]] = {
        BOOL: lambda each: _TRUTHS[each.strip().lower()],
        DATE: _parse_day,
        TIMESTAMP: read_moment,
        TIMESTAMPTZ: partial(read_moment, zoned=True),
    }
    return readers[oid](text)


def parse_number(text: str) -> int | Decimal:
    """A number as it is written in a statement."""
    return int(text) if text.lstrip("-").isdigit() else _require_finite(Decimal(text))


def _require_finite(number: Decimal) -> Decimal:
    if not number.is_finite() or abs(number.adjusted()) > 40 or len(number.as_tuple().digits) > 60:
        raise ValueError
    return number


_DAY = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?\s*(?:[+-]\d\d(?::?\d\d)?|Z)?")


def _parse_day(text: str) -> date:
    """A day; a time and a zone after it, as drivers write them, are left out."""
    found = _DAY.fullmatch(text.strip())
    if found is None:
        raise ValueError
    return date.fromisoformat(found.group(1))


def _decode_binary(raw: bytes, oid: int) -> Plain:
    if oid in TEXTS:
        return _decode_text(raw.decode("utf-8"), oid)
    if oid in INTEGERS:
        if len(raw) != SIZES[oid]:
            raise ValueError
        return int.from_bytes(raw, "big", signed=oid != OID)
    if oid in (FLOAT4, FLOAT8):
        return _require_finite(Decimal(repr(struct.unpack("!f" if oid == FLOAT4 else "!d", raw)[0])))
    readers: dict[int, Callable[[bytes], Plain]] = {
        BOOL: lambda each: bool(struct.unpack("!B", each)[0]),
        DATE: lambda each: _EPOCH + timedelta(days=struct.unpack("!i", each)[0]),
        TIMESTAMP: lambda each: _MOMENT + timedelta(microseconds=struct.unpack("!q", each)[0]),
        TIMESTAMPTZ: lambda each: _MOMENT + timedelta(microseconds=struct.unpack("!q", each)[0]),
        NUMERIC: _decode_numeric,
    }
    return readers[oid](raw)


def _decode_numeric(raw: bytes) -> Decimal:
    """PostgreSQL's numeric: groups of four decimal digits, the weight of the first group, and a sign."""
    count, weight, sign, _scale = struct.unpack("!HhHH", raw[:8])
    if sign not in (0, 0x4000) or count > 32 or len(raw) != 8 + 2 * count:
        raise ValueError
    groups = struct.unpack(f"!{count}H", raw[8:])
    whole = sum(Decimal(group).scaleb(4 * (weight - place)) for place, group in enumerate(groups))
    return _require_finite(-Decimal(whole) if sign else Decimal(whole))


_OIDS_OF_ARROW = {
    "bool": BOOL, "double": FLOAT8, "float": FLOAT4, "date32[day]": DATE, "timestamp[us]": TIMESTAMP, "int8": INT2,
    "uint8": INT2, "int16": INT2, "uint16": INT4, "int32": INT4, "uint32": INT8, "int64": INT8, "uint64": NUMERIC,
    "month_day_nano_interval": INTERVAL,
}  # fmt: skip


def choose_oid(kind: str) -> int:
    """The type of a column by its Arrow type; what has none is a text."""
    if kind.startswith("list<"):
        return ARRAY_OF.get(choose_oid(kind.partition(": ")[2][:-1]), ARRAY_OF[TEXT])
    if kind.startswith("decimal"):
        return NUMERIC
    return TIMESTAMPTZ if kind.startswith("timestamp[us, tz") else _OIDS_OF_ARROW.get(kind, TEXT)


def choose_encoder(oid: int, binary: bool) -> Callable[[Any], bytes | None]:
    """A function that writes the values of one column."""
    write: Callable[[Any], bytes]
    if oid in ARRAYS:
        write = partial(_encode_binary_array if binary else _encode_text_array, ARRAYS[oid])
    else:
        write = (_BINARY_ENCODERS if binary else _TEXT_ENCODERS).get(oid, _encode_plain)
    return lambda value: None if value is None else write(value)


def _encode_plain(value: Any) -> bytes:
    return str(value).replace("\0", "").encode("utf-8")


_BARE_MEMBER = re.compile(r'[^\s{}",\\]+')


def _encode_text_array(inner: int, members: Any) -> bytes:
    """An array as text: `{1,NULL,"a b"}`."""
    write = choose_encoder(inner, False)
    found = []
    for each in members:
        raw = write(each)
        text = "NULL" if raw is None else raw.decode("utf-8")
        if raw is not None and (not _BARE_MEMBER.fullmatch(text) or text.upper() == "NULL"):
            text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        found.append(text)
    return ("{" + ",".join(found) + "}").encode("utf-8")


def _encode_binary_array(inner: int, members: Any) -> bytes:
    """An array in binary: of one dimension, counted from 1."""
    write = choose_encoder(inner, True)
    cells = [write(each) for each in members]
    if not cells:
        return struct.pack("!iiI", 0, 0, inner)
    start = struct.pack("!iiIii", 1, int(None in cells), inner, len(cells), 1)
    return start + b"".join(struct.pack("!i", -1 if each is None else len(each)) + (each or b"") for each in cells)


def _encode_moment(value: Any) -> bytes:
    """A moment with its zone, which is UTC."""
    return str(value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ")).encode() + b"+00"


def _encode_numeric(value: Any) -> bytes:
    """A number in groups of four digits, with their place, a sign and the digits after the point."""
    number = Decimal(value)
    sign, digits, exponent = number.as_tuple()
    scale = max(0, -int(exponent))
    whole = int("".join(map(str, digits))) * 10 ** max(0, int(exponent))
    whole *= 10 ** (-scale % 4)
    groups: list[int] = []
    while whole:
        whole, group = divmod(whole, 10_000)
        groups.insert(0, group)
    weight = len(groups) - 1 - (scale + 3) // 4
    while groups and groups[-1] == 0:
        groups.pop()
    return struct.pack(f"!HhHH{len(groups)}H", len(groups), weight, 0x4000 if sign else 0, scale, *groups)


def _encode_float(value: Any) -> bytes:
    number = float(value)
    return repr(number).encode() if number == number and abs(number) != float("inf") else str(number).encode()


def _encode_interval(value: Any) -> bytes:
    """Months, days and nanoseconds as PostgreSQL writes them: `1 year 2 mons -3 days +04:05:06`."""
    years, months = (int(math.copysign(each, value.months)) for each in divmod(abs(value.months), 12))
    parts, below = [], False
    for number, unit in ((years, "year"), (months, "mon"), (value.days, "day")):
        if number:
            parts.append(f"{'+' if below and number > 0 else ''}{number} {unit}{'' if number == 1 else 's'}")
            below = number < 0
    whole, micros = divmod(abs(value.nanoseconds) // 1000, 1_000_000)
    if whole or micros or not parts:
        sign = "-" if value.nanoseconds < 0 else "+" if below else ""
        fraction = f".{micros:06}".rstrip("0") if micros else ""
        parts.append(f"{sign}{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{fraction}")
    return " ".join(parts).encode()


_TEXT_ENCODERS: dict[int, Callable[[Any], bytes]] = {
    BOOL: lambda value: b"t" if value else b"f",
    INT8: lambda value: str(int(value)).encode(),
    FLOAT8: _encode_float,
    DATE: lambda value: value.isoformat().encode() if isinstance(value, date) else _encode_plain(value),
    TIMESTAMP: lambda value: value.isoformat(sep=" ").encode() if isinstance(value, datetime) else _encode_plain(value),
    TIMESTAMPTZ: _encode_moment,
    INTERVAL: _encode_interval,
}
_BINARY_ENCODERS: dict[int, Callable[[Any], bytes]] = {
    BOOL: lambda value: b"\1" if value else b"\0",
    INT2: lambda value: struct.pack("!h", int(value)),
    INT4: lambda value: struct.pack("!i", int(value)),
    INT8: lambda value: struct.pack("!q", int(value)),
    OID: lambda value: struct.pack("!I", int(value)),
    FLOAT4: lambda value: struct.pack("!f", float(value)),
    FLOAT8: lambda value: struct.pack("!d", float(value)),
    CHAR: lambda value: str(value).encode()[:1] or b"\0",
    DATE: lambda value: struct.pack("!i", (value - _EPOCH).days),
    TIMESTAMP: lambda value: struct.pack("!q", (value - _MOMENT) // timedelta(microseconds=1)),
    TIMESTAMPTZ: lambda value: struct.pack("!q", (value.replace(tzinfo=None) - _MOMENT) // timedelta(microseconds=1)),
    NUMERIC: _encode_numeric,
    INTERVAL: lambda value: struct.pack("!qii", value.nanoseconds // 1000, value.days, value.months),
}
