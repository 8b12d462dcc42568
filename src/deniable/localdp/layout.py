"""The shape of a response: which integers and bit strings travel, and within which limits.

A protocol declares its layout once. The wire format, the checks of hostile input and the browser's twin all follow
from that declaration, so nothing about a response is written down twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer from 0 up to but excluding `bound`."""

    name: str
    bound: int

    @property
    def bytes(self) -> int:
        """Bytes on the wire."""
        return max(1, ((self.bound - 1).bit_length() + 7) // 8)


@dataclass(frozen=True, slots=True)
class Bits:
    """A string of `length` bits; bit i is bit (i mod 8), counted from the least significant, of byte (i div 8)."""

    name: str
    length: int

    @property
    def bytes(self) -> int:
        """Bytes on the wire."""
        return (self.length + 7) // 8


@dataclass(frozen=True, slots=True)
class Chosen:
    """A set of `count` different integers below `bound`, sent in ascending order."""

    name: str
    count: int
    bound: int

    @property
    def bytes(self) -> int:
        """Bytes on the wire."""
        return self.count * Whole(self.name, self.bound).bytes


Field = Whole | Bits | Chosen
Layout = tuple[Field, ...]

Responses = tuple[NDArray[Any], ...]
"""Many responses as columns, one array a field: Whole (n,) int64, Bits (n, bytes) uint8, Chosen (n, count) int64."""


def message_bytes(layout: Layout) -> int:
    """Bytes of one response in the binary form."""
    return sum(field.bytes for field in layout)


def size(responses: Responses) -> int:
    """How many responses the columns hold."""
    return len(responses[0])
