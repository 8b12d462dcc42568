"""One Parquet file out of several, byte for byte: row groups are copied as they are, and only the footer is new.

Parts of a long job are Parquet files of their own, so that a killed job can go on where it was. Decoding and encoding
them again to make one file would double the work. But a Parquet file is its row groups, one after another, and a
footer that says where each begins; so the row groups are copied and the footers merged, with every offset moved by
where its bytes now lie. Footers are Thrift structures in the compact protocol; they are read into plain trees that
keep all fields, known or not, and are written back the same way."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from deniable.errors import InternalError
from deniable.storage import whole_file

MAGIC = b"PAR1"
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

# Field numbers of parquet.thrift (apache/parquet-format).
ROWS, ROW_GROUPS = 3, 4  # FileMetaData
COLUMNS, GROUP_OFFSET, ORDINAL = 1, 5, 7  # RowGroup
CHUNK_OFFSET, META, OFFSET_INDEX, COLUMN_INDEX = 2, 3, 4, 6  # ColumnChunk
PAGE_OFFSETS = (9, 10, 11, 14)  # ColumnMetaData: data, index and dictionary pages, bloom filter

Struct = dict[int, tuple[int, Any]]  # field number -> (type, value)


def merge_parquet(parts: Sequence[Path], target: Path) -> int:
    """Write the row groups of all parts, in order, as one file; says how many rows it has."""
    footers = [read_footer(part) for part in parts]
    merged = footers[0][0]
    groups: list[Struct] = []
    with whole_file(target) as out:
        out.write(MAGIC)
        for part, (footer, end) in zip(parts, footers, strict=True):
            shift = out.tell() - len(MAGIC)
            _copy(part, len(MAGIC), end, out)
            groups += [_shift_offsets(group, shift) for group in footer[ROW_GROUPS][1][1]]
        _number_groups(groups)
        merged[ROW_GROUPS] = (LIST, (STRUCT, groups))
        merged[ROWS] = (I64, sum(footer[ROWS][1] for footer, _ in footers))
        _write_footer(out, merged)
    return int(merged[ROWS][1])


def read_footer(path: Path) -> tuple[Struct, int]:
    """The footer of a file as a tree, and where its row groups end."""
    with path.open("rb") as file:
        size = file.seek(-8, 2) + 8
        length = int.from_bytes(file.read(4), "little")
        if file.read(4) != MAGIC or length + 12 > size:
            raise InternalError("a part of this job is not a Parquet file")
        file.seek(size - 8 - length)
        return ThriftReader(file.read(length)).struct(), size - 8 - length


def _copy(part: Path, start: int, end: int, out: BinaryIO) -> None:
    with part.open("rb") as file:
        file.seek(start)
        left = end - start
        while left:
            chunk = file.read(min(left, 1 << 22))
            out.write(chunk)
            left -= len(chunk)


def _shift_offsets(group: Struct, shift: int) -> Struct:
    """A row group with all its offsets moved. Page indexes hold offsets of their own, and our writer makes none."""
    _shift_field(group, GROUP_OFFSET, shift)
    for chunk in group[COLUMNS][1][1]:
        if OFFSET_INDEX in chunk or COLUMN_INDEX in chunk:
            raise InternalError("a part of this job has a page index, which is not moved")
        _shift_field(chunk, CHUNK_OFFSET, shift)
        for field in PAGE_OFFSETS:
            _shift_field(chunk[META][1], field, shift)
    return group


def _shift_field(struct: Struct, field: int, shift: int) -> None:
    kind, value = struct.get(field, (I64, 0))
    if value:  # 0 and absence both mean that there is no such page
        struct[field] = (kind, value + shift)


def _number_groups(groups: list[Struct]) -> None:
    """Ordinals are 16 bits wide and optional: they count the groups, or go where there are too many."""
    for ordinal, group in enumerate(groups):
        group.pop(ORDINAL, None)
        if len(groups) < 2**15:
            group[ORDINAL] = (I16, ordinal)


def _write_footer(out: BinaryIO, footer: Struct) -> None:
    raw = ThriftWriter().struct(footer)
    out.write(raw + len(raw).to_bytes(4, "little") + MAGIC)


def concatenate_csv(parts: Sequence[Path], header: int, target: Path) -> None:
    """One CSV file out of several that each begin with the same header of so many bytes."""
    with whole_file(target) as out:
        for number, part in enumerate(parts):
            with part.open("rb") as file:
                file.seek(header if number else 0)
                shutil.copyfileobj(file, out, 1 << 22)


class ThriftReader:
    """Thrift's compact protocol, reading: integers are zigzag varints, structs end with a zero byte."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def struct(self) -> Struct:
        """One struct: each field's number is written as a difference to the one before."""
        fields: Struct = {}
        number = 0
        while head := self._byte():
            kind, delta = head & 0x0F, head >> 4
            number = number + delta if delta else self._zigzag()
            fields[number] = (kind, kind == TRUE if kind in (TRUE, FALSE) else self.value(kind))
        return fields

    def value(self, kind: int) -> Any:
        """One value of a type; truth values stand here only inside lists."""
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._zigzag()
            case 7:
                return self._take(8)
            case 8:
                return self._take(self._varint())
            case 9 | 10:
                return self._list()
            case 11:
                return self._map()
            case 12:
                return self.struct()
        raise InternalError("a footer holds a type that Thrift does not have")

    def _list(self) -> tuple[int, list[Any]]:
        head = self._byte()
        size = head >> 4 if head >> 4 != 15 else self._varint()
        return head & 0x0F, [self.value(head & 0x0F) for _ in range(size)]

    def _map(self) -> tuple[int, int, list[tuple[Any, Any]]]:
        size = self._varint()
        types = self._byte() if size else 0
        return types >> 4, types & 0x0F, [(self.value(types >> 4), self.value(types & 0x0F)) for _ in range(size)]

    def _take(self, count: int) -> bytes:
        self.at += count
        return self.raw[self.at - count : self.at]

    def _byte(self) -> int:
        return self._take(1)[0]

    def _varint(self) -> int:
        number, shift = 0, 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)


class ThriftWriter:
    """Thrift's compact protocol, writing: the exact inverse of `ThriftReader`."""

    def struct(self, fields: Struct) -> bytes:
        """One struct, its fields by number."""
        out, before = bytearray(), 0
        for number, (kind, value) in sorted(fields.items()):
            if kind in (TRUE, FALSE):
                kind = TRUE if value else FALSE
            delta = number - before
            out += bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + self._zigzag(number)
            if kind not in (TRUE, FALSE):
                out += self.value(kind, value)
            before = number
        return bytes(out) + b"\0"

    def value(self, kind: int, value: Any) -> bytes:
        """One value of a type."""
        match kind:
            case 1 | 2 | 3:
                return bytes([value])
            case 4 | 5 | 6:
                return self._zigzag(value)
            case 7:
                return bytes(value)
            case 8:
                return self._varint(len(value)) + bytes(value)
            case 9 | 10:
                inner, items = value
                head = (
                    bytes([len(items) << 4 | inner])
                    if len(items) < 15
                    else bytes([0xF0 | inner]) + self._varint(len(items))
                )
                return head + b"".join(self.value(inner, item) for item in items)
            case 11:
                left, right, pairs = value
                head = self._varint(len(pairs)) + (bytes([left << 4 | right]) if pairs else b"")
                return head + b"".join(self.value(left, a) + self.value(right, b) for a, b in pairs)
        return self.struct(value)

    def _varint(self, number: int) -> bytes:
        out = bytearray()
        while number >= 0x80:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
        return bytes(out)

    def _zigzag(self, number: int) -> bytes:
        return self._varint(number << 1 if number >= 0 else (-number << 1) - 1)
