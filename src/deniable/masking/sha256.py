"""HMAC-SHA-256 of a whole column at once: the same bits as `hmac`, many rows in step.

SHA-256 (FIPS 180-4) is a chain of 64 rounds in which nothing can be done early; but rows are independent. So sixteen
rows go through the rounds side by side, each step written as a loop over the rows ("lanes") that the compiler turns
into vector instructions. HMAC (RFC 2104) starts both of its hashes with a block that depends on the key alone; the
two states after that block are computed once, which leaves two compressions for a row of up to 55 bytes.

Compiling costs seconds once a machine and importing the compiler some tenths of a second each time, so short columns
go through `hashlib` instead. Both ways give the same digests; a test compares them for every length.
"""

from __future__ import annotations

import hashlib
import math
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = 400_000  # rows in all below which loading the compiled loop costs more than it saves
LONG = 256  # bytes a row, beyond which `hashlib` is as fast: its cost a row is the call, not the bytes
BLOCK = 64
DIGEST = 32


def _primes(count: int) -> list[int]:
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % p for p in found):
            found.append(candidate)
        candidate += 1
    return found


def _root_bits(number: int, degree: int) -> int:
    """The first 32 bits after the point of the square or cube root, in integers throughout."""
    scaled = number << (32 * degree)
    root = math.isqrt(scaled)
    if degree == 3:
        root = round(scaled ** (1 / 3))
        while root**3 > scaled:
            root -= 1
        while (root + 1) ** 3 <= scaled:
            root += 1
    return root & 0xFFFFFFFF


# FIPS 180-4 section 4.2.2 and 5.3.3: fractional parts of roots of the first primes.
ROUND_CONSTANTS = np.array([_root_bits(p, 3) for p in _primes(64)], dtype=np.uint32)
INITIAL = np.array([_root_bits(p, 2) for p in _primes(8)], dtype=np.uint32)


def hmac_column(key: bytes, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The digests of rows stored end to end: row i is data[offsets[i]:offsets[i + 1]]; one row of 32 bytes each."""
    rows = len(offsets) - 1
    if not _should_use_compiled(rows, int(offsets[-1] - offsets[0])):
        return hash_with_hashlib(key, data, offsets)
    words = np.empty((rows, 8), dtype=np.uint32)
    inner, outer = _compute_pads(key)
    load_kernel()(data, offsets, inner, outer, ROUND_CONSTANTS, words)
    return words.byteswap().view(np.uint8).reshape(rows, DIGEST)


_hashed_so_far = 0


def _should_use_compiled(rows: int, size: int) -> bool:
    """Whether the compiled loop is loaded already, or has by now become worth loading; it decides speed alone."""
    global _hashed_so_far
    if not rows or size > rows * LONG:
        return False
    _hashed_so_far += rows
    return load_kernel.cache_info().currsize > 0 or _hashed_so_far >= SMALL


def hash_with_hashlib(key: bytes, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The same digests row by row through `hashlib`: for short columns, and what the lanes are measured against."""
    inner, outer = (hashlib.sha256(pad) for pad in _pad_blocks(key))
    raw = data[offsets[0] : offsets[-1]].tobytes()
    digests = bytearray()
    bounds = (offsets - offsets[0]).tolist()
    for start, end in pairwise(bounds):
        first, second = inner.copy(), outer.copy()
        first.update(raw[start:end])
        second.update(first.digest())
        digests += second.digest()
    return np.frombuffer(bytes(digests), dtype=np.uint8).reshape(len(bounds) - 1, DIGEST)


def _pad_blocks(key: bytes) -> tuple[bytes, bytes]:
    block = (hashlib.sha256(key).digest() if len(key) > BLOCK else key).ljust(BLOCK, b"\0")
    return bytes(b ^ 0x36 for b in block), bytes(b ^ 0x5C for b in block)


def _compute_pads(key: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The two states after the blocks that hold the key: plain SHA-256 rounds in Python, twice a column."""
    first, second = (_compress_once(INITIAL, np.frombuffer(pad, dtype=">u4")) for pad in _pad_blocks(key))
    return first, second


def _compress_once(state: NDArray[np.uint32], block: NDArray[Any]) -> NDArray[np.uint32]:
    mask = 0xFFFFFFFF

    def rotate(x: int, n: int) -> int:
        return ((x >> n) | (x << (32 - n))) & mask

    w = [int(word) for word in block]
    for t in range(16, 64):
        s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ (w[t - 15] >> 3)
        s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ (w[t - 2] >> 10)
        w.append((w[t - 16] + s0 + w[t - 7] + s1) & mask)
    start = [int(word) for word in state]
    a, b, c, d, e, f, g, h = start
    for t in range(64):
        one = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + int(ROUND_CONSTANTS[t]) + w[t]
        two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        a, b, c, d, e, f, g, h = (one + two) & mask, a, b, c, (d + one) & mask, e, f, g
    return np.array([(x + y) & mask for x, y in zip(start, (a, b, c, d, e, f, g, h), strict=True)], dtype=np.uint32)


@cache
def load_kernel() -> Callable[..., None]:
    """The compiled loop over a column; loaded on first use and cached on disk."""
    from deniable.masking import sha256_lanes

    compiled: Callable[..., None] = sha256_lanes.hmac_rows
    return compiled
