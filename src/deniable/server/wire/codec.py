"""Messages of the protocol: reading those of a client with every length checked, and writing those of a server.

Formats are those of chapter "Frontend/Backend Protocol" of the PostgreSQL manual, version 3.0. A client is not
trusted: a length, a count or a text that does not fit ends the session with one error, and never with a traceback.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MOST_BYTES = 1 << 20
STARTUP_BYTES = 10_000
PROTOCOL_3 = 196_608
CANCEL = 80_877_102
SSL = 80_877_103
GSS = 80_877_104


class ProtocolViolation(Exception):
    """The client sent something that is no message; the session ends."""


class Fields:
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


async def read_startup(reader: asyncio.StreamReader) -> Fields:
    """The first message of a connection, which has no letter."""
    length = int(struct.unpack("!i", await reader.readexactly(4))[0])
    if not 8 <= length <= STARTUP_BYTES:
        raise ProtocolViolation("the first message has an impossible length")
    return Fields(await reader.readexactly(length - 4))


async def read_message(reader: asyncio.StreamReader) -> tuple[str, Fields]:
    """The letter and the content of the next message."""
    head = await reader.readexactly(5)
    length = int(struct.unpack("!i", head[1:])[0])
    if not 4 <= length <= MOST_BYTES:
        raise ProtocolViolation(f"a message may have 4 to {MOST_BYTES} bytes")
    return chr(head[0]), Fields(await reader.readexactly(length - 4))


def message(letter: str, content: bytes = b"") -> bytes:
    """One message of the server."""
    return letter.encode("ascii") + struct.pack("!i", len(content) + 4) + content


def text(value: str) -> bytes:
    """A text with its zero byte; a zero inside it is left out, since it cannot be sent."""
    return value.replace("\0", "").encode("utf-8") + b"\0"


AUTHENTICATION_OK = message("R", struct.pack("!i", 0))
CLEARTEXT_PASSWORD = message("R", struct.pack("!i", 3))
PARSE_COMPLETE = message("1")
BIND_COMPLETE = message("2")
CLOSE_COMPLETE = message("3")
NO_DATA = message("n")
EMPTY_QUERY = message("I")
PORTAL_SUSPENDED = message("s")


def sasl_mechanisms(name: str) -> bytes:
    """Ask for a proof by this mechanism."""
    return message("R", struct.pack("!i", 10) + text(name) + b"\0")


def sasl_challenge(content: bytes) -> bytes:
    """Our first message of a proof."""
    return message("R", struct.pack("!i", 11) + content)


def sasl_outcome(content: bytes) -> bytes:
    """Our last message of a proof."""
    return message("R", struct.pack("!i", 12) + content)


def parameter_status(name: str, value: str) -> bytes:
    """Tell the client a setting."""
    return message("S", text(name) + text(value))


def backend_key(process: int, secret: int) -> bytes:
    """What the client needs to cancel."""
    return message("K", struct.pack("!iI", process, secret))


def ready(status: str) -> bytes:
    """Ready for the next query: `I` outside a transaction, `T` in one, `E` in a failed one."""
    return message("Z", status.encode("ascii"))


def negotiate_version(unknown: list[str]) -> bytes:
    """Version 3.0 is spoken, and these options are not known."""
    return message("v", struct.pack("!ii", 0, len(unknown)) + b"".join(text(name) for name in unknown))


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result as the protocol describes it."""

    name: str
    oid: int
    size: int = -1


def row_description(columns: Iterable[ResultColumn], formats: Iterable[int]) -> bytes:
    """Names, types and formats (0 text, 1 binary) of the columns that follow."""
    parts = [
        text(column.name) + struct.pack("!IhIhih", 0, 0, column.oid, column.size, -1, form)
        for column, form in zip(columns, formats, strict=True)
    ]
    return message("T", struct.pack("!H", len(parts)) + b"".join(parts))


def data_row(values: Iterable[bytes | None]) -> bytes:
    """One row; None is null."""
    parts = [b"\xff\xff\xff\xff" if value is None else struct.pack("!i", len(value)) + value for value in values]
    return message("D", struct.pack("!H", len(parts)) + b"".join(parts))


def command_complete(tag: str) -> bytes:
    """A statement was carried out."""
    return message("C", text(tag))


def copy_out(columns: int) -> bytes:
    """Text is copied out from here on, of so many columns."""
    return message("H", struct.pack("!bH", 0, columns) + struct.pack(f"!{columns}H", *[0] * columns))


def copy_line(line: bytes) -> bytes:
    """A line that is copied out."""
    return message("d", line)


COPY_DONE = message("c")


def parameter_description(oids: Iterable[int]) -> bytes:
    """The types of a statement's parameters."""
    listed = list(oids)
    return message("t", struct.pack(f"!H{len(listed)}I", len(listed), *listed))


def report(fields: Mapping[str, str], letter: str = "E") -> bytes:
    """An error, or with the letter N a notice: fields by their letters."""
    body = b"".join(name.encode("ascii") + text(value) for name, value in fields.items() if value)
    return message(letter, body + b"\0")
