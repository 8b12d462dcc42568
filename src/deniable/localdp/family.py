"""A family of hash functions made of SHA-256, for sketches and Bloom filters over strings.

Function j maps a string v to 16-bit word (j mod 16), little-endian, of SHA-256(le32(j div 16) || utf8(v)), reduced to
the low bits of a power-of-two width. One digest so serves sixteen functions, and any client can compute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError

WORDS = 16
WIDEST = 1 << 16


def checked_width(width: int) -> int:
    """A width the family can address: a power of two up to 65,536."""
    if not 2 <= width <= WIDEST or width & (width - 1):
        raise ParameterError(f"width is {width}", expected=f"A power of two from 2 to {WIDEST}")
    return width


def positions(strings: Sequence[str], hashes: int, width: int) -> NDArray[np.uint16]:
    """Where each of the first `hashes` functions sends each string: an array of strings by functions."""
    prefixes = [block.to_bytes(4, "little") for block in range(-(-hashes // WORDS))]
    encoded = [string.encode() for string in strings]
    digests = b"".join([sha256(prefix + text).digest() for text in encoded for prefix in prefixes])
    words = np.frombuffer(digests, dtype="<u2").reshape(len(encoded), -1)[:, :hashes]
    return words & np.uint16(width - 1)


def positions_of(strings: Sequence[str], functions: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """Where the function beside each string sends it."""
    blocks, words = np.divmod(functions, WORDS)
    prefixes = [block.to_bytes(4, "little") for block in range(int(blocks.max(initial=0)) + 1)]
    digests = b"".join(
        [sha256(prefixes[block] + text.encode()).digest() for text, block in zip(strings, blocks.tolist(), strict=True)]
    )
    table = np.frombuffer(digests, dtype="<u2").reshape(len(strings), WORDS)
    return (table[np.arange(len(strings)), words] & np.uint16(width - 1)).astype(np.int64)
