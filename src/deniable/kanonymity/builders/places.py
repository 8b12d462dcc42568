"""Hierarchies of places: coordinates cut to fewer decimals, and geohashes cut to fewer characters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deniable.errors import ParameterError
from deniable.kanonymity.builders.leaves import sorted_leaves, text_of
from deniable.kanonymity.builders.numbers import Numbers, as_they_are, numbers_of
from deniable.kanonymity.builders.strings import Prefix
from deniable.kanonymity.hierarchy import Hierarchy, Label, Level, hierarchy

ALPHABET = "0123456789bcdefghjkmnpqrstuvwxyz"
"""The 32 letters of a geohash (public domain, G. Niemeyer 2008)."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A coordinate cut to fewer decimals at each level; 0.001 degrees of latitude are about 111 meters.

    Cutting goes downwards (floor), also below zero, so that cells have one size and nest.
    """

    digits: tuple[int, ...]

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        values = sorted_leaves(values)
        numbers = numbers_of(column, values)
        levels = [_cut(numbers, count) for count in self.digits]
        return hierarchy(column, text_of(values), [as_they_are(values, numbers), *levels], ordered=True)


def _cut(numbers: Numbers, digits: int) -> Level:
    slot = truncated(numbers, digits)
    used, groups = np.unique(slot, return_inverse=True)
    scale = 10.0**digits
    labels: tuple[Label, ...] = tuple(f"{n / scale:.{digits}f}" for n in used)
    return Level(groups.astype(np.int32), labels, np.column_stack([used / scale, (used + 1) / scale]))


def truncated(numbers: Numbers, digits: int) -> Numbers:
    """The number of the cell that holds each coordinate.

    The product is rounded at its ninth decimal first: 0.29 * 100 is 28.999999999999996 in binary.
    """
    return np.floor(np.round(numbers * 10.0**digits, 9))


@dataclass(frozen=True, slots=True)
class Geohash:
    """Geohashes cut to fewer characters at each level: 5 characters are about 4.9 km, 7 about 150 m."""

    lengths: tuple[int, ...]

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct geohashes."""
        return Prefix(self.lengths).hierarchy(column, values)


def geohash(latitude: Numbers, longitude: Numbers, length: int) -> list[str]:
    """The geohash of every point: bits of longitude and latitude in turns, five to a letter.

    >>> geohash(np.array([57.64911]), np.array([10.40744]), 11)
    ['u4pruydqqvj']
    """
    if not 1 <= length <= 12:
        raise ParameterError(f"A geohash of {length} characters was asked", expected="1 to 12 characters")
    bits = 5 * length
    east, north = (bits + 1) // 2, bits // 2
    x = np.clip((longitude + 180.0) / 360.0 * 2**east, 0, 2**east - 1).astype(np.uint64)
    y = np.clip((latitude + 90.0) / 180.0 * 2**north, 0, 2**north - 1).astype(np.uint64)
    woven = np.zeros(len(x), np.uint64)
    for bit in range(bits):  # the first, highest bit is of the longitude
        source, place = (x, east - 1 - bit // 2) if bit % 2 == 0 else (y, north - 1 - bit // 2)
        woven = (woven << np.uint64(1)) | ((source >> np.uint64(place)) & np.uint64(1))
    letters = [[ALPHABET[(w >> 5 * (length - 1 - i)) & 31] for i in range(length)] for w in woven.tolist()]
    return ["".join(word) for word in letters]
