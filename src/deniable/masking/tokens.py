"""Keyed tokens: the same value gets the same token, and without the key no token can be recomputed.

A token is the beginning of HMAC-SHA-256(sub-key of the domain, value), written in 32 letters and digits. Equal values
join across all tables whose columns share key and domain, and nowhere else. What a token does not hide is *how often*
a value occurs: an intruder who knows the frequencies can match the top of the list. The attack is in the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.masking import columns, sha256
from deniable.masking.keys import Key

# 32 signs without l, o, 0 and 1, which are misread; every sign carries 5 bits.
ALPHABET = np.frombuffer(b"abcdefghijkmnpqrstuvwxyz23456789", dtype=np.uint8)
PAIRS = np.array([[a, b] for a in ALPHABET for b in ALPHABET], dtype=np.uint8).view(np.uint16).ravel()
BITS = 5
LENGTH = 16
SHORTEST, LONGEST = 4, 51


@dataclass(frozen=True, slots=True)
class Token:
    """Replace values by keyed pseudonyms.

    **Holds:** equal values, equal tokens; hard to invert without the key even for guessed values (the security of
    HMAC-SHA-256 as a pseudorandom function). **Falls to:** whoever has the key; frequency matching; linking by the
    other columns. **Collisions:** `collision_probability(values, length)`.
    """

    secret: bytes = field(repr=False)
    length: int = LENGTH
    prefix: str = ""
    normalize: columns.Normal = "none"

    def __post_init__(self) -> None:
        if not SHORTEST <= self.length <= LONGEST:
            raise ParameterError(
                f"a token of {self.length} characters was asked for", expected=f"{SHORTEST} to {LONGEST} characters"
            )

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The tokens of a column; null stays null."""
        text = columns.normalized(columns.as_text(values), self.normalize)
        signs = spell(digests(self.secret, text), self.length)
        if self.prefix:
            lead = np.frombuffer(self.prefix.encode("ascii"), dtype=np.uint8)
            signs = np.concatenate([np.broadcast_to(lead, (len(signs), len(lead))), signs], axis=1)
        return columns.restored(columns.from_fixed_rows(signs, text), values.type)


def token(key: Key, domain: str, length: int = LENGTH, **options: str) -> Token:
    """The token mask of one domain under a key."""
    return Token(key.derive("token", domain), length, **options)


def digests(secret: bytes, text: pa.Array) -> NDArray[np.uint8]:
    """HMAC-SHA-256 of every row of a large_string column: an array of rows of 32 bytes."""
    return sha256.hmac_column(secret, *columns.rows_of(text))


def numbers(secret: bytes, text: pa.Array) -> NDArray[np.uint64]:
    """The first 64 bits of every row's HMAC, as a number: where masks take their keyed choices from."""
    leading = np.ascontiguousarray(digests(secret, text)[:, :8])
    return leading.view(">u8").ravel().astype(np.uint64)


def spell(digest: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
    """The first 5 x length bits of each digest in the token alphabet, one row of ASCII bytes each."""
    groups = -(-length // 8)
    used = np.zeros((len(digest), groups * 5), dtype=np.uint8)
    taken = min(used.shape[1], digest.shape[1])
    used[:, :taken] = digest[:, :taken]
    pairs = np.empty((len(digest), groups * 4), dtype=PAIRS.dtype)
    # Five bytes are eight signs, looked up two at a time: a 40-bit number in base 1024, most significant first.
    for group in range(groups):
        high = np.ascontiguousarray(used[:, group * 5 : group * 5 + 4]).view(">u4").ravel().astype(np.uint64)
        number = (high << np.uint64(8)) | used[:, group * 5 + 4]
        for place in range(4):
            pairs[:, group * 4 + place] = PAIRS[(number >> np.uint64(30 - 10 * place)) & np.uint64(1023)]
    return pairs.view(np.uint8)[:, :length]


def collision_probability(values: int, length: int) -> float:
    """The probability that any two of so many different values share a token (birthday bound, upper end).

    1 - exp(-n(n-1) / 2^(b+1)) with b = 5 bits a character; written with expm1 to stay exact when tiny.

    >>> f"{collision_probability(1_000_000, 16):.1e}"
    '4.1e-13'
    """
    pairs = values * (values - 1) / 2
    return -math.expm1(-pairs / 2.0 ** (BITS * length))


def length_for(values: int, probability: float = 1e-6) -> int:
    """The shortest token length at which a collision among so many values is at most so probable.

    >>> length_for(1_000_000)
    12
    """
    for length in range(SHORTEST, LONGEST + 1):
        if collision_probability(values, length) <= probability:
            return length
    raise ParameterError("no token is long enough for this many values and this probability")
