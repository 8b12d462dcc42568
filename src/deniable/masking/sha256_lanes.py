"""The compiled part of `sha256.py`: sixteen rows in step through the rounds of SHA-256.

Every inner loop runs over the lanes and nothing else, with no branch in it, so that the compiler makes vector
instructions of whatever width the machine has.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

LANES = 16
"""Rows that go through the rounds in step; `sha256.py` fills as many."""

U32 = numba.uint32
Words = NDArray[np.uint32]


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _rotate(x: int, n: int) -> int:  # pragma: no cover - compiled
    return U32((x >> U32(n)) | (x << U32(32 - n)))  # type: ignore[no-any-return]


@numba.njit(inline="always")
def _round(a, b, c, d, e, f, g, h, word):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """One round on scalars; the new values of d and h.

    Sums of 32-bit scalars are 64 bits wide in numba, so each is cut back: the vector unit then stays with 32.
    """
    one = U32(h + (_rotate(e, 6) ^ _rotate(e, 11) ^ _rotate(e, 25)) + (g ^ (e & (f ^ g))) + word)
    return U32(d + one), U32(one + (_rotate(a, 2) ^ _rotate(a, 13) ^ _rotate(a, 22)) + ((a & b) | (c & (a | b))))


@numba.njit(cache=True, boundscheck=False, nogil=True)  # type: ignore[untyped-decorator]
def _compress(w: Words, state: Words, v: Words, k: Words) -> None:  # pragma: no cover - compiled
    """One block of every lane: w is (64, LANES) with 16 rows filled, state and scratch v are (8, LANES)."""
    for t in range(16, 64):
        for lane in range(LANES):
            x = w[t - 15, lane]
            y = w[t - 2, lane]
            s0 = _rotate(x, 7) ^ _rotate(x, 18) ^ (x >> U32(3))
            s1 = _rotate(y, 17) ^ _rotate(y, 19) ^ (y >> U32(10))
            w[t, lane] = w[t - 16, lane] + w[t - 7, lane] + s0 + s1
    for i in range(8):
        for lane in range(LANES):
            v[i, lane] = state[i, lane]
    for t in range(0, 64, 8):
        # Eight rounds turn the eight letters once around, so no value has to move between rows of v.
        k0, k1, k2, k3, k4, k5, k6, k7 = k[t], k[t + 1], k[t + 2], k[t + 3], k[t + 4], k[t + 5], k[t + 6], k[t + 7]
        for lane in range(LANES):
            a, b, c, d = v[0, lane], v[1, lane], v[2, lane], v[3, lane]
            e, f, g, h = v[4, lane], v[5, lane], v[6, lane], v[7, lane]
            d, h = _round(a, b, c, d, e, f, g, h, U32(k0 + w[t, lane]))
            c, g = _round(h, a, b, c, d, e, f, g, U32(k1 + w[t + 1, lane]))
            b, f = _round(g, h, a, b, c, d, e, f, U32(k2 + w[t + 2, lane]))
            a, e = _round(f, g, h, a, b, c, d, e, U32(k3 + w[t + 3, lane]))
            h, d = _round(e, f, g, h, a, b, c, d, U32(k4 + w[t + 4, lane]))
            g, c = _round(d, e, f, g, h, a, b, c, U32(k5 + w[t + 5, lane]))
            f, b = _round(c, d, e, f, g, h, a, b, U32(k6 + w[t + 6, lane]))
            e, a = _round(b, c, d, e, f, g, h, a, U32(k7 + w[t + 7, lane]))
            v[0, lane], v[1, lane], v[2, lane], v[3, lane] = a, b, c, d
            v[4, lane], v[5, lane], v[6, lane], v[7, lane] = e, f, g, h
    for i in range(8):
        for lane in range(LANES):
            state[i, lane] += v[i, lane]


@numba.njit(cache=True, boundscheck=False, nogil=True)  # type: ignore[untyped-decorator]
def _fill(w: Words, lane: int, block: int, data: NDArray[np.uint8], start: int, size: int) -> None:  # pragma: no cover
    """Block number `block` of one row's padded message: its bytes, a one bit, zeros, and the length in bits.

    The length counts the 64 bytes of the key's block, which every message begins with.
    """
    for i in range(16):
        word = U32(0)
        first = block * 64 + i * 4
        if first + 4 <= size:
            at = start + first
            word = (
                (U32(data[at]) << U32(24))
                | (U32(data[at + 1]) << U32(16))
                | (U32(data[at + 2]) << U32(8))
                | U32(data[at + 3])
            )
        elif first <= size:
            for j in range(4):
                byte = U32(0)
                if first + j < size:
                    byte = U32(data[start + first + j])
                elif first + j == size:
                    byte = U32(0x80)
                word |= byte << U32(24 - 8 * j)
        w[i, lane] = word
    if (block + 1) * 64 >= size + 9:
        bits = (64 + size) * 8
        w[14, lane] = U32(bits >> 32)
        w[15, lane] = U32(bits & 0xFFFFFFFF)


@numba.njit(  # type: ignore[untyped-decorator]
    "void(Array(uint8, 1, 'C', readonly=True), Array(int64, 1, 'C'), Array(uint32, 1, 'C'),"
    " Array(uint32, 1, 'C'), Array(uint32, 1, 'C'), Array(uint32, 2, 'C'))",
    cache=True,
    boundscheck=False,
    nogil=True,
)
def hmac_rows(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], inner: Words, outer: Words, k: Words, out: Words
) -> None:  # pragma: no cover - compiled
    """Digests of all rows as words, given the two states that the key leaves behind."""
    rows = offsets.size - 1
    w = np.zeros((64, LANES), np.uint32)
    state = np.empty((8, LANES), np.uint32)
    v = np.empty((8, LANES), np.uint32)
    first = np.zeros((8, LANES), np.uint32)
    blocks = np.zeros(LANES, np.int64)
    for base in range(0, rows, LANES):
        most = 0
        for lane in range(LANES):
            blocks[lane] = 0
            if base + lane < rows:
                blocks[lane] = (offsets[base + lane + 1] - offsets[base + lane] + 9 + 63) // 64
            most = max(most, blocks[lane])
        for i in range(8):
            for lane in range(LANES):
                state[i, lane] = inner[i]
        for block in range(most):
            for lane in range(LANES):
                if block < blocks[lane]:
                    at = offsets[base + lane]
                    _fill(w, lane, block, data, at, offsets[base + lane + 1] - at)
            _compress(w, state, v, k)
            for lane in range(LANES):
                # A lane whose row has ended goes on with rubbish; its digest was taken when it was complete.
                if block == blocks[lane] - 1:
                    for i in range(8):
                        first[i, lane] = state[i, lane]
        for i in range(8):
            for lane in range(LANES):
                w[i, lane] = first[i, lane]
                w[8 + i, lane] = U32(0)
                state[i, lane] = outer[i]
        for lane in range(LANES):
            w[8, lane] = U32(0x80000000)
            w[15, lane] = U32((64 + 32) * 8)
        _compress(w, state, v, k)
        for lane in range(min(LANES, rows - base)):
            for i in range(8):
                out[base + lane, i] = state[i, lane]
