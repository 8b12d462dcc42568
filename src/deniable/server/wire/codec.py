"""Messages of the protocol: reading those of a client with every length checked, and writing those of a server.

Formats are those of chapter "Frontend/Backend Protocol" of the PostgreSQL manual, version 3.0. A client is not
trusted: a length, a count or a text that does not fit ends the session with one error, and never with a traceback.
Errors carry PostgreSQL's own SQLSTATE where its meaning fits, since drivers and tools know them; `charged` stands in
the detail, as everywhere."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deniable.errors import BudgetUnstated, DeniableError, InternalError

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_CELLS, PIECE_BYTES = 2000, 1 << 18
"""Cells, and bytes, of an answer that are written before others have their turn."""
MOST_BYTES = 1 << 20
STARTUP_BYTES = 10_000
PROTOCOL_3 = 196_608
CANCEL = 80_877_102
SSL = 80_877_103
GSS = 80_877_104


class ProtocolViolation(Exception):
    """The client sent something that is no message; the session ends."""


class MessageReader:
    """The content of one message, taken field by field."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, count: int) -> bytes:
        """So many bytes."""
        if count < 0 or self._at + count > len(self._content):
            raise ProtocolViolation("a message is shorter than it says")
        self._at += count
        return self._content[self._at - count : self._at]

    def int16(self) -> int:
        """A count, from 0 up."""
        return int(struct.unpack("!H", self.take(2))[0])

    def int32(self) -> int:
        """A signed number."""
        return int(struct.unpack("!i", self.take(4))[0])

    def text(self) -> str:
        """A text that ends with a zero byte."""
        end = self._content.find(b"\0", self._at)
        if end < 0:
            raise ProtocolViolation("a text has no end")
        raw = self.take(end - self._at)
        self._at += 1
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ProtocolViolation("a text is not UTF-8") from None

    def rest(self) -> bytes:
        """All that follows."""
        return self.take(len(self._content) - self._at)

    def end(self) -> None:
        """Nothing may follow."""
        if self._at != len(self._content):
            raise ProtocolViolation("a message is longer than it says")

    @property
    def more(self) -> bool:
        """Whether something follows."""
        return self._at < len(self._content)


async def read_startup(reader: asyncio.StreamReader) -> MessageReader:
    """The first message of a connection, which has no letter."""
    length = int(struct.unpack("!i", await reader.readexactly(4))[0])
    if not 8 <= length <= STARTUP_BYTES:
        raise ProtocolViolation("the first message has an impossible length")
    return MessageReader(await reader.readexactly(length - 4))


async def read_message(reader: asyncio.StreamReader) -> tuple[str, MessageReader]:
    """The letter and the content of the next message."""
    head = await reader.readexactly(5)
    length = int(struct.unpack("!i", head[1:])[0])
    if not 4 <= length <= MOST_BYTES:
        raise ProtocolViolation(f"a message may have 4 to {MOST_BYTES} bytes")
    return chr(head[0]), MessageReader(await reader.readexactly(length - 4))


def encode_message(letter: str, content: bytes = b"") -> bytes:
    """One message of the server."""
    return letter.encode("ascii") + struct.pack("!i", len(content) + 4) + content


def encode_text(value: str) -> bytes:
    """A text with its zero byte; a zero inside it is left out, since it cannot be sent."""
    return value.replace("\0", "").encode("utf-8") + b"\0"


AUTHENTICATION_OK = encode_message("R", struct.pack("!i", 0))
CLEARTEXT_PASSWORD = encode_message("R", struct.pack("!i", 3))
PARSE_COMPLETE = encode_message("1")
BIND_COMPLETE = encode_message("2")
CLOSE_COMPLETE = encode_message("3")
NO_DATA = encode_message("n")
EMPTY_QUERY = encode_message("I")
PORTAL_SUSPENDED = encode_message("s")


def encode_sasl_mechanisms(names: Iterable[str]) -> bytes:
    """Ask for a proof by one of these mechanisms."""
    return encode_message("R", struct.pack("!i", 10) + b"".join(map(encode_text, names)) + b"\0")


def encode_sasl_challenge(content: bytes) -> bytes:
    """Our first message of a proof."""
    return encode_message("R", struct.pack("!i", 11) + content)


def encode_sasl_outcome(content: bytes) -> bytes:
    """Our last message of a proof."""
    return encode_message("R", struct.pack("!i", 12) + content)


def encode_parameter_status(name: str, value: str) -> bytes:
    """Tell the client a setting."""
    return encode_message("S", encode_text(name) + encode_text(value))


def encode_backend_key(process: int, secret: int) -> bytes:
    """What the client needs to cancel."""
    return encode_message("K", struct.pack("!iI", process, secret))


def encode_ready(status: str) -> bytes:
    """Ready for the next query: `I` outside a transaction, `T` in one, `E` in a failed one."""
    return encode_message("Z", status.encode("ascii"))


def encode_negotiate_version(unknown: list[str]) -> bytes:
    """Version 3.0 is spoken, and these options are not known."""
    return encode_message("v", struct.pack("!ii", 0, len(unknown)) + b"".join(encode_text(name) for name in unknown))


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result as the protocol describes it."""

    name: str
    oid: int
    size: int = -1


def encode_row_description(columns: Iterable[ResultColumn], formats: Iterable[int]) -> bytes:
    """Names, types and formats (0 text, 1 binary) of the columns that follow."""
    parts = [
        encode_text(column.name) + struct.pack("!IhIhih", 0, 0, column.oid, column.size, -1, form)
        for column, form in zip(columns, formats, strict=True)
    ]
    return encode_message("T", struct.pack("!H", len(parts)) + b"".join(parts))


def encode_data_row(values: Iterable[bytes | None]) -> bytes:
    """One row; None is null."""
    parts = [b"\xff\xff\xff\xff" if value is None else struct.pack("!i", len(value)) + value for value in values]
    return encode_message("D", struct.pack("!H", len(parts)) + b"".join(parts))


def encode_command_complete(tag: str) -> bytes:
    """A statement was carried out."""
    return encode_message("C", encode_text(tag))


def encode_copy_out(columns: int, binary: bool) -> bytes:
    """Text or binary rows are copied out from here on, of so many columns."""
    return encode_message("H", struct.pack(f"!bH{columns}H", binary, columns, *[int(binary)] * columns))


def encode_copy_line(line: bytes) -> bytes:
    """A line that is copied out."""
    return encode_message("d", line)


COPY_DONE = encode_message("c")


def encode_parameter_description(oids: Iterable[int]) -> bytes:
    """The types of a statement's parameters."""
    listed = list(oids)
    return encode_message("t", struct.pack(f"!H{len(listed)}I", len(listed), *listed))


def encode_report(fields: Mapping[str, str], letter: str = "E") -> bytes:
    """An error, or with the letter N a notice: fields by their letters."""
    body = b"".join(name.encode("ascii") + encode_text(value) for name, value in fields.items() if value)
    return encode_message(letter, body + b"\0")


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a table, which become values of Python in pieces, while they are sent: that needs little memory."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows) if self.table.num_columns else 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        step = max(1, PIECE_CELLS // max(1, self.table.num_columns))
        for start in range(0, len(self), step):
            columns = self.table.slice(start, step).columns
            yield from zip(*(column.to_pylist() for column in columns), strict=True)

    def __getitem__(self, part: slice) -> TableRows:
        start, stop, _ = part.indices(len(self))
        return TableRows(self.table.slice(start, max(stop - start, 0)))


Rows = TableRows | list[tuple[Any, ...]] | tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class StatementResult:
    """What a statement gave: rows with their columns, or only a tag."""

    tag: str
    columns: tuple[ResultColumn, ...] | None = None
    rows: Rows = ()
    charged: bool = field(default=False)
    copied: Iterator[bytes] | None = None
    """Lines that are copied out instead of rows, the heading among them; they are written while they are sent."""
    binary: bool = False
    """Whether they are binary."""


SQLSTATES = {
    "query": "42601",
    "budget": "53400",
    "access": "42501",
    "data": "58030",
    "parameter": "22023",
    "infeasible": "22023",
    "storage": "53100",
    "locked": "55P03",
    "stopped": "57014",
    "cancelled": "57014",
    "execution": "XX000",
    "integrity": "XX001",
    "internal": "XX000",
    "extra": "0A000",
    "busy": "53300",
    "rate": "53400",
    "token": "28000",
    "missing": "42704",
    "size": "54000",
}
UNKNOWN_NAMES = {"table": "42P01", "column": "42703"}
"""For refusals of questions that name what is not there: tools tell a missing table from a wrong statement by these."""
UNFORESEEN = InternalError("something unforeseen happened in deniable itself", remedy="Tell the steward", charge="")


class WireRefusal(Exception):
    """A refusal with an SQLSTATE of its own, for what only the protocol knows (a cursor, a database, a setting)."""

    def __init__(self, sqlstate: str, happened: str, hint: str = "") -> None:
        self.sqlstate = sqlstate
        self.happened = happened
        self.hint = hint
        super().__init__(happened)


def describe_error(refusal: Exception, statement: str = "", severity: str = "ERROR", offset: int = 0) -> dict[str, str]:
    """The fields of the error message; anything that is no refusal of ours becomes one fixed sentence.

    `offset` is where the statement starts in the text that the client sent, since positions count from there.
    """
    if isinstance(refusal, WireRefusal):
        return _build_error_fields(severity, refusal.sqlstate, refusal.happened, refusal.hint)
    known = refusal if isinstance(refusal, DeniableError) else UNFORESEEN
    known = known.state_by("psql") if isinstance(known, BudgetUnstated) else known
    state = UNKNOWN_NAMES.get(str(known.fields.get("unknown"))) or SQLSTATES.get(known.code, "XX000")
    told = _build_error_fields(severity, state, known.happened, known.remedy)
    detail = " ".join(part if part.endswith(".") else f"{part}." for part in (known.expected, known.charged) if part)
    return told | {"D": detail, "P": _find_position(known, statement, offset), "R": known.code}


def _build_error_fields(severity: str, sqlstate: str, happened: str, hint: str) -> dict[str, str]:
    return {"S": severity, "V": severity, "C": sqlstate, "M": happened, "H": hint}


def _find_position(refusal: DeniableError, statement: str, offset: int) -> str:
    """The place of a refusal as a count of characters from 1 in the client's text."""
    if refusal.place is None or refusal.place.line < 1:
        return ""
    lines = statement.split("\n")
    before = sum(len(line) + 1 for line in lines[: refusal.place.line - 1])
    at = before + max(refusal.place.column, 1)
    return str(offset + at) if at <= len(statement) + 1 else ""
