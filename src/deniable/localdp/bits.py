"""Long strings of independent biased bits: drawn exactly from system entropy, and counted column by column.

Unary encodings and sketches send a bit for every position, so a million respondents with a thousand positions take a
billion draws. Two ideas keep that to about a second: eight bits are drawn together from one table, and columns are
added in bit-sliced counters, 64 positions an instruction.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import ParameterError

GRID_BITS = 16
GRID = 1 << GRID_BITS
_UNDECIDED = 256
_CHUNK_BYTES = 1 << 22


def biased_bits(ones: int, rows: int, length: int, entropy: Entropy = SYSTEM) -> NDArray[np.uint8]:
    """`rows` strings of `length` independent bits, each 1 with probability ones / 65536 exactly; packed, low bit first.

    A byte of eight such bits has one of 256 values whose probabilities are multiples of 2^-128. Sixteen random bits
    decide which, unless they fall across a border between two values (255 of 65,536 do); then 112 more bits decide.
    Entropy used: about 2 bits for each bit drawn, against 16 by comparing each with a threshold.
    """
    if not 0 <= ones <= GRID:
        raise ParameterError(f"{ones} of {GRID} is not a probability", expected=f"0 to {GRID}")
    width = (length + 7) // 8
    packed = np.empty(rows * width, dtype=np.uint8)
    table, high, low = _byte_table(ones)
    for start in range(0, packed.size, _CHUNK_BYTES):
        _draw_bytes(packed[start : start + _CHUNK_BYTES], table, high, low, entropy)
    strings = packed.reshape(rows, width)
    if length % 8 and rows:
        strings[:, -1] &= (1 << length % 8) - 1
    return strings


def _draw_bytes(
    packed: NDArray[np.uint8],
    table: NDArray[np.uint16],
    high: NDArray[np.uint64],
    low: NDArray[np.uint64],
    entropy: Entropy,
) -> None:
    chunks = np.frombuffer(entropy.take(2 * packed.size), dtype=np.uint16)
    undecided = np.empty(packed.size, dtype=np.int64)
    count = _look_up(chunks, table, packed, undecided)
    positions = undecided[:count]
    tails = np.frombuffer(entropy.take(16 * count), dtype=np.uint64).reshape(count, 2)
    # The sixteen bits already drawn stay in front; 48 + 64 new ones follow.
    heads = (chunks[positions].astype(np.uint64) << np.uint64(48)) | (tails[:, 0] >> np.uint64(16))
    _settle(heads, tails[:, 1], high, low, packed, positions)


@lru_cache(maxsize=64)
def _byte_table(ones: int) -> tuple[NDArray[np.uint16], NDArray[np.uint64], NDArray[np.uint64]]:
    """The byte that each 16-bit prefix decides (or 256), and the 256 lower borders as halves of 128-bit integers."""
    weights = [ones ** value.bit_count() * (GRID - ones) ** (8 - value.bit_count()) for value in range(256)]
    borders = [0]
    for weight in weights:
        borders.append(borders[-1] + weight)  # multiples of 2^-128: the last is 2^128
    table = np.full(1 << 16, _UNDECIDED, dtype=np.uint16)
    cell = 1 << 112
    for value in range(256):
        table[-(-borders[value] // cell) : borders[value + 1] // cell] = value
    high = np.array([border >> 64 for border in borders[:256]], dtype=object)
    low = np.array([border & ((1 << 64) - 1) for border in borders[:256]], dtype=object)
    clipped = np.array([min(int(h), (1 << 64) - 1) for h in high], dtype=np.uint64)
    return table, clipped, low.astype(np.uint64)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _look_up(chunks: Any, table: Any, packed: Any, undecided: Any) -> int:
    count = 0
    for i in range(chunks.size):
        value = table[chunks[i]]
        packed[i] = value
        undecided[count] = i
        count += value == 256
    return count


@njit(cache=True)  # type: ignore[untyped-decorator]
def _settle(heads: Any, tails: Any, high: Any, low: Any, packed: Any, positions: Any) -> None:
    """Find, by bisection, the last border that is not above each 128-bit number."""
    for i in range(heads.size):
        below, above = 0, 256
        while above - below > 1:
            middle = (below + above) // 2
            reached = heads[i] > high[middle] or (heads[i] == high[middle] and tails[i] >= low[middle])
            below, above = (middle, above) if reached else (below, middle)
        packed[positions[i]] = below


def set_bits(strings: NDArray[np.uint8], positions: NDArray[np.int64], values: NDArray[np.bool_]) -> None:
    """Overwrite one bit of each string."""
    rows = np.arange(len(strings))
    byte = positions >> 3
    mask = (1 << (positions & 7)).astype(np.uint8)
    strings[rows, byte] = np.where(values, strings[rows, byte] | mask, strings[rows, byte] & ~mask)


def flip_bits(strings: NDArray[np.uint8], positions: NDArray[np.int64]) -> None:
    """Turn one bit of each string over."""
    strings[np.arange(len(strings)), positions >> 3] ^= (1 << (positions & 7)).astype(np.uint8)


def column_sums(strings: NDArray[np.uint8], length: int) -> NDArray[np.int64]:
    """How many strings have a 1 at each of the first `length` positions."""
    sums: NDArray[np.int64] = group_sums(strings, np.zeros(len(strings), dtype=np.int64), 1, length)[0]
    return sums


def group_sums(
    strings: NDArray[np.uint8], groups: NDArray[np.int64], group_count: int, length: int
) -> NDArray[np.int64]:
    """Column sums within each group of strings: an array of groups by positions."""
    rows, width = strings.shape
    words = -(-width // 8)
    if width % 8 or not strings.flags.c_contiguous:
        padded = np.zeros((rows, words * 8), dtype=np.uint8)
        padded[:, :width] = strings
        strings = padded
    sums = np.zeros((group_count, words * 64), dtype=np.int64)
    order = np.argsort(groups, kind="stable") if group_count > 1 else np.arange(rows)
    _add_columns(strings.view("<u8"), order, groups, sums)
    return sums[:, :length]


@njit(cache=True)  # type: ignore[untyped-decorator]
def _add_columns(words: Any, order: Any, groups: Any, sums: Any) -> None:
    """Add rows, taken in an order that keeps groups together, to the sums of their group.

    Eight bit planes hold 64 counters of up to 255 in each column of words; adding a row ripples its bits as carries
    through the planes, and the planes are emptied into the sums before they overflow or the group changes.
    """
    width = words.shape[1]
    planes = np.zeros((8, width), dtype=np.uint64)
    carry = np.zeros(width, dtype=np.uint64)
    held = 0
    for position in range(order.size):
        row = order[position]
        for w in range(width):
            carry[w] = words[row, w]
        for level in range(8):
            for w in range(width):
                both = planes[level, w] & carry[w]
                planes[level, w] ^= carry[w]
                carry[w] = both
        held += 1
        last = position + 1 == order.size or groups[order[position + 1]] != groups[row]
        if held == 255 or last:
            _empty(planes, sums[groups[row]])
            held = 0


@njit(cache=True)  # type: ignore[untyped-decorator]
def _empty(planes: Any, sums: Any) -> None:
    for level in range(8):
        for w in range(planes.shape[1]):
            word = planes[level, w]
            for bit in range(64):
                sums[w * 64 + bit] += np.int64((word >> np.uint64(bit)) & np.uint64(1)) << level
            planes[level, w] = 0
