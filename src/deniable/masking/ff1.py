"""Format-preserving encryption: FF1 of NIST SP 800-38G, over whole columns, and the same rounds over mixed alphabets.

FF1 cuts a numeral string in two halves A and B and goes ten times A, B = B, A + F(B), where F is made of AES and the
sum is taken modulo radix^(length of A). Each round can be undone by subtracting the same F(B), so the whole is a
bijection on strings of one length *whatever F is*; that F looks random is what AES gives. The proof nowhere needs
the moduli of the halves to be powers of one radix: for formats such as a letter and six digits the moduli are products
of the radices of their positions. Where all radices are equal this is FF1 to the bit (NIST's samples are in the
tests); where not, the radix field of its first block is 0, which no FF1 call can have, and the format is the tweak.

SP 800-38G Rev. 1 asks for domains of a million strings or more; `formats.py` permutes smaller ones by a keyed sort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.errors import MissingExtra

ROUNDS = 10
BLOCK = 16
NARROW = 1 << 56  # halves below this are 64-bit arithmetic: a remainder times 256 plus a byte still fits
SMALLEST_DOMAIN = 1_000_000

Numerals = NDArray[np.int64]  # one row a value, one column a position
Half = NDArray[Any]  # uint64 where narrow, Python integers where wide


@dataclass(frozen=True, slots=True)
class Cipher:
    """AES under one key, applied to many blocks at once."""

    key: bytes = field(repr=False)

    def blocks(self, plain: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Each row of 16 bytes encrypted by itself."""
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher as Primitive
            from cryptography.hazmat.primitives.ciphers import algorithms, modes
        except ImportError:
            raise MissingExtra(
                "format-preserving masks and vaults need AES, which is not installed",
                remedy="Install it with: pip install 'deniable[vault]'",
                extra="vault",
            ) from None
        # ECB on purpose: FF1 builds its chaining out of single blocks.
        encryptor = Primitive(algorithms.AES(self.key), modes.ECB()).encryptor()  # noqa: S305
        done = encryptor.update(np.ascontiguousarray(plain).tobytes())
        return np.frombuffer(done, dtype=np.uint8).reshape(-1, BLOCK)


def encrypt(cipher: Cipher, numerals: Numerals, radices: Sequence[int], tweak: bytes = b"") -> Numerals:
    """The image of every row of numerals, position j of which counts from 0 to radices[j] - 1."""
    return _feistel(cipher, numerals, radices, tweak, range(ROUNDS), +1)


def decrypt(cipher: Cipher, numerals: Numerals, radices: Sequence[int], tweak: bytes = b"") -> Numerals:
    """The inverse of `encrypt`."""
    return _feistel(cipher, numerals, radices, tweak, range(ROUNDS - 1, -1, -1), -1)


def _feistel(
    cipher: Cipher, numerals: Numerals, radices: Sequence[int], tweak: bytes, order: range, sign: int
) -> Numerals:
    size = len(radices)
    u = size // 2
    left, right = tuple(radices[:u]), tuple(radices[u:])
    a, b = _number(numerals[:, :u], left), _number(numerals[:, u:], right)
    rounds = _Rounds(cipher, radices, tweak)
    for i in order:
        modulus = math.prod(left) if i % 2 == 0 else math.prod(right)
        # Encrypting: (A, B) -> (B, A + F(B)). Decrypting undoes it: (A, B) -> (B - F(A), A).
        if sign > 0:
            a, b = b, (a + rounds.residues(i, b, modulus)) % modulus
        else:
            a, b = (b + modulus - rounds.residues(i, a, modulus)) % modulus, a
    return np.concatenate([_digits(a, left), _digits(b, right)], axis=1)


class _Rounds:
    """The round function: y = first d bytes of AES-CBC-MAC(P || Q), extended in counter fashion when d > 16."""

    def __init__(self, cipher: Cipher, radices: Sequence[int], tweak: bytes) -> None:
        size = len(radices)
        right = math.prod(radices[size // 2 :])
        self.cipher, self.tweak = cipher, tweak
        self.b = -(-(right - 1).bit_length() // 8)  # bytes that hold the right half: ceil(ceil(log2) / 8)
        self.d = 4 * -(-self.b // 4) + 4
        radix = radices[0] if len(set(radices)) == 1 else 0
        p = bytes([1, 2, 1]) + radix.to_bytes(3, "big") + bytes([10, (size // 2) % 256])
        p += size.to_bytes(4, "big") + len(tweak).to_bytes(4, "big")
        self.start = cipher.blocks(np.frombuffer(p, dtype=np.uint8).reshape(1, BLOCK))

    def residues(self, i: int, half: Half, modulus: int) -> Half:
        """F(half) modulo the modulus, for round i."""
        pad = bytes((-len(self.tweak) - self.b - 1) % BLOCK)
        lead = np.frombuffer(self.tweak + pad + bytes([i]), dtype=np.uint8)
        q = np.concatenate([np.broadcast_to(lead, (len(half), len(lead))), _bytes(half, self.b)], axis=1)
        state = np.broadcast_to(self.start, (len(half), BLOCK))
        for at in range(0, q.shape[1], BLOCK):
            state = self.cipher.blocks(state ^ q[:, at : at + BLOCK])
        return _remainders(self._stretched(state)[:, : self.d], modulus)

    def _stretched(self, r: NDArray[np.uint8]) -> NDArray[np.uint8]:
        parts = [r]
        for j in range(1, -(-self.d // BLOCK)):
            counter = np.frombuffer(j.to_bytes(BLOCK, "big"), dtype=np.uint8)
            parts.append(self.cipher.blocks(r ^ counter))
        return np.concatenate(parts, axis=1)


def _number(numerals: Numerals, radices: Sequence[int]) -> Half:
    narrow = math.prod(radices) <= NARROW
    total: Half = np.zeros(len(numerals), dtype=np.uint64 if narrow else object)
    for j, radix in enumerate(radices):
        total = total * radix + numerals[:, j].astype(total.dtype)
    return total


def _digits(numbers: Half, radices: Sequence[int]) -> Numerals:
    digits = np.empty((len(numbers), len(radices)), dtype=np.int64)
    for j in range(len(radices) - 1, -1, -1):
        digits[:, j] = (numbers % radices[j]).astype(np.int64)
        numbers = numbers // radices[j]
    return digits


def _bytes(numbers: Half, width: int) -> NDArray[np.uint8]:
    """Big-endian bytes of each number, `width` of them."""
    if numbers.dtype == object:
        raw = b"".join(int(number).to_bytes(width, "big") for number in numbers)
        return np.frombuffer(raw, dtype=np.uint8).reshape(len(numbers), width)
    whole = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
    return whole[:, 8 - width :]


def _remainders(data: NDArray[np.uint8], modulus: int) -> Half:
    """Each row, read as one big-endian number, modulo the modulus."""
    if modulus > NARROW:
        return np.array([int.from_bytes(row.tobytes(), "big") % modulus for row in data], dtype=object)
    if data.shape[1] == 8:
        return np.ascontiguousarray(data).view(">u8").ravel().astype(np.uint64) % np.uint64(modulus)
    rest = np.zeros(len(data), dtype=np.uint64)
    for column in range(data.shape[1]):
        rest = (rest * np.uint64(256) + data[:, column]) % np.uint64(modulus)
    return rest
