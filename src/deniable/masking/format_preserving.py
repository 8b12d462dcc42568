"""Format-preserving tokens: digits stay digits, letters letters, separators stay; and FF1 of NIST SP 800-38G.

Values of one format (`M000112` has A999999) are permuted among themselves, by FF1 where the format has a million values
or more and by a keyed sort where it has fewer. Both are bijections: no two values share a token, and whoever has the
key can turn every token back.

FF1 goes ten times A, B = B, A + F(B) modulo radix^(length of A), with F made of AES. Each round can be undone whatever
F is, and nowhere must the moduli be powers of one radix: for mixed alphabets they are products of the radices of their
positions. Where all radices are equal this is FF1 to the bit (NIST's samples are in the tests); where not, the radix
field of its first block is 0, which no FF1 call can have, and the format is the tweak."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError, MissingExtra
from deniable.masking import columns, sha256
from deniable.masking.keys import Key

REDACTED = "***"

# The class of every byte: 9 a digit, A and a letters, 1 the leading digit of a whole number (1 to 9), ? what cannot be
# enciphered and must not stay (letters outside ASCII), and everything else itself.
CLASSES = np.arange(256, dtype=np.uint8)
CLASSES[ord("0") : ord("9") + 1] = ord("9")
CLASSES[ord("A") : ord("Z") + 1] = ord("A")
CLASSES[ord("a") : ord("z") + 1] = ord("a")
CLASSES[128:] = ord("?")
ALPHABETS = {"9": (ord("0"), 10), "A": (ord("A"), 26), "a": (ord("a"), 26), "1": (ord("1"), 9)}


@dataclass(frozen=True, slots=True)
class FormatPreserving:
    """Replace values by others of the same format.

    **Holds:** a bijection on the values of each format; separators, length and case pattern stay. **Falls to:** whoever
    has the key; frequency matching; formats with few values, where a guess is often right by chance. Values with
    letters outside ASCII have no such format and are redacted.
    """

    secret: bytes = field(repr=False)
    luhn: bool = False

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The tokens of a column of text or whole numbers; null stays null."""
        return self._map_values(values, backward=False)

    def reveal(self, values: pa.Array) -> pa.Array:
        """The values behind the tokens."""
        return self._map_values(values, backward=True)

    def _map_values(self, values: pa.Array, backward: bool) -> pa.Array:
        whole = pa.types.is_integer(values.type)
        encoded = columns.as_text(values).dictionary_encode()
        distinct = encoded.dictionary
        formats = _find_formats(distinct, whole).dictionary_encode()
        codes = formats.indices.to_numpy()
        results: list[pa.Array] = []
        places: list[NDArray[np.intp]] = []
        for code, shape in enumerate(formats.dictionary.to_pylist()):
            rows = np.flatnonzero(codes == code)
            places.append(rows)
            results.append(self._of_format(distinct.take(pa.array(rows)), shape, backward))
        if not results:
            return values
        order = np.argsort(np.concatenate(places))
        mapped = pa.concat_arrays(results).take(pa.array(order)).take(encoded.indices)
        return _restore_whole(mapped, values.type) if whole else columns.restore_type(mapped, values.type)

    def _of_format(self, text: pa.Array, shape: str, backward: bool) -> pa.Array:
        if "?" in shape:
            return pa.array([REDACTED] * len(text), pa.large_string())
        where = [i for i, sign in enumerate(shape) if sign in ALPHABETS]
        if not where:
            return text
        data, offsets = columns.rows_of(text)
        signs = data[offsets[0] : offsets[-1]].reshape(len(text), len(shape)).copy()
        pattern = "".join(shape[i] for i in where)
        bases = np.array([ALPHABETS[sign][0] for sign in pattern])
        numerals = signs[:, where].astype(np.int64) - bases
        signs[:, where] = (self._permute(numerals, pattern, backward) + bases).astype(np.uint8)
        return columns.from_fixed_rows(signs, text)

    def _permute(self, numerals: Numerals, pattern: str, backward: bool) -> Numerals:
        if self.luhn and set(pattern) == {"9"} and len(pattern) > 1:
            return self._with_luhn(numerals, pattern, backward)
        radices = tuple(ALPHABETS[sign][1] for sign in pattern)
        if math.prod(radices) < SMALLEST_DOMAIN:
            return _permute_by_sort(self.secret, numerals, pattern, radices, backward)
        step = decrypt if backward else encrypt
        tweak = b"" if len(set(pattern)) == 1 else pattern.encode()
        return step(Cipher(self.secret), numerals, radices, tweak)

    def _with_luhn(self, numerals: Numerals, pattern: str, backward: bool) -> Numerals:
        """All digits but the last are enciphered; the last keeps its distance from the check digit that fits.

        A valid number stays valid and an invalid one invalid, and the map stays a bijection.
        """
        body = numerals[:, :-1]
        distance = (numerals[:, -1] - luhn_digit(body)) % 10
        plain = FormatPreserving(self.secret)
        mapped = plain._permute(body, pattern[:-1], backward)
        return np.column_stack([mapped, (luhn_digit(mapped) + distance) % 10])


def make_format_mask(key: Key, domain: str, luhn: bool = False) -> FormatPreserving:
    """The format-preserving mask of one domain under a key."""
    return FormatPreserving(key.derive("format", domain), luhn)


def luhn_digit(body: Numerals) -> NDArray[np.int64]:
    """The digit that makes each row of digits valid under ISO/IEC 7812 (doubling from the right)."""
    doubled = body.copy()
    doubled[:, ::-1][:, ::2] *= 2
    digits: NDArray[np.int64] = -(doubled // 10 + doubled % 10).sum(axis=1) % 10
    return digits


def _find_formats(text: pa.Array, whole: bool) -> pa.Array:
    """The format of every value, as text of the same length."""
    data, offsets = columns.rows_of(text)
    signs = CLASSES[data]
    if whole:
        negative = data[offsets[:-1]] == ord("-")
        first = offsets[:-1] + negative
        # A leading zero would not survive as a number, and neither would -0; only the number 0 itself may be 0.
        signs[first[(np.diff(offsets) > 1)]] = ord("1")
    return pa.Array.from_buffers(
        pa.large_string(), len(text), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(signs))]
    )


def _restore_whole(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Text back to numbers of the column's own type; near the limit of the type there may be no room for a token."""
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        raise DataError(
            "a whole number near the limit of its type has no format-preserving token of that type",
            remedy="Declare the column as text, or mask it with a token",
        ) from None


def _permute_by_sort(
    secret: bytes, numerals: Numerals, pattern: str, radices: tuple[int, ...], backward: bool
) -> Numerals:
    table = _build_permutation(secret, pattern, math.prod(radices))
    if backward:
        table = np.argsort(table)
    number = np.zeros(len(numerals), dtype=np.int64)
    for j, radix in enumerate(radices):
        number = number * radix + numerals[:, j]
    number = table[number]
    mapped = np.empty_like(numerals)
    for j in range(len(radices) - 1, -1, -1):
        mapped[:, j] = number % radices[j]
        number = number // radices[j]
    return mapped


@lru_cache(maxsize=8)
def _build_permutation(secret: bytes, pattern: str, size: int) -> NDArray[np.int64]:
    """The numbers below `size` in the order of their HMACs; ties of 64 bits are broken by the number itself."""
    messages = pc.binary_join_element_wise(pa.scalar(pattern), pa.array(np.arange(size)).cast(pa.string()), " ")
    digests = sha256.hmac_column(secret, *columns.rows_of(messages.cast(pa.large_string())))
    ranks = np.ascontiguousarray(digests[:, :8]).view(">u8").ravel()
    return np.argsort(ranks, kind="stable")


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
    a, b = _join_digits(numerals[:, :u], left), _join_digits(numerals[:, u:], right)
    rounds = _Rounds(cipher, radices, tweak)
    for i in order:
        modulus = math.prod(left) if i % 2 == 0 else math.prod(right)
        # Encrypting: (A, B) -> (B, A + F(B)). Decrypting undoes it: (A, B) -> (B - F(A), A).
        if sign > 0:
            a, b = b, (a + rounds.residues(i, b, modulus)) % modulus
        else:
            a, b = (b + modulus - rounds.residues(i, a, modulus)) % modulus, a
    return np.concatenate([_split_digits(a, left), _split_digits(b, right)], axis=1)


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
        q = np.concatenate([np.broadcast_to(lead, (len(half), len(lead))), _encode_bytes(half, self.b)], axis=1)
        state = np.broadcast_to(self.start, (len(half), BLOCK))
        for at in range(0, q.shape[1], BLOCK):
            state = self.cipher.blocks(state ^ q[:, at : at + BLOCK])
        return _reduce_modulo(self._stretch(state)[:, : self.d], modulus)

    def _stretch(self, r: NDArray[np.uint8]) -> NDArray[np.uint8]:
        parts = [r]
        for j in range(1, -(-self.d // BLOCK)):
            counter = np.frombuffer(j.to_bytes(BLOCK, "big"), dtype=np.uint8)
            parts.append(self.cipher.blocks(r ^ counter))
        return np.concatenate(parts, axis=1)


def _join_digits(numerals: Numerals, radices: Sequence[int]) -> Half:
    narrow = math.prod(radices) <= NARROW
    total: Half = np.zeros(len(numerals), dtype=np.uint64 if narrow else object)
    for j, radix in enumerate(radices):
        total = total * radix + numerals[:, j].astype(total.dtype)
    return total


def _split_digits(numbers: Half, radices: Sequence[int]) -> Numerals:
    digits = np.empty((len(numbers), len(radices)), dtype=np.int64)
    for j in range(len(radices) - 1, -1, -1):
        digits[:, j] = (numbers % radices[j]).astype(np.int64)
        numbers = numbers // radices[j]
    return digits


def _encode_bytes(numbers: Half, width: int) -> NDArray[np.uint8]:
    """Big-endian bytes of each number, `width` of them."""
    if numbers.dtype == object:
        raw = b"".join(int(number).to_bytes(width, "big") for number in numbers)
        return np.frombuffer(raw, dtype=np.uint8).reshape(len(numbers), width)
    whole = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
    return whole[:, 8 - width :]


def _reduce_modulo(data: NDArray[np.uint8], modulus: int) -> Half:
    """Each row, read as one big-endian number, modulo the modulus."""
    if modulus > NARROW:
        return np.array([int.from_bytes(row.tobytes(), "big") % modulus for row in data], dtype=object)
    if data.shape[1] == 8:
        return np.ascontiguousarray(data).view(">u8").ravel().astype(np.uint64) % np.uint64(modulus)
    rest = np.zeros(len(data), dtype=np.uint64)
    for column in range(data.shape[1]):
        rest = (rest * np.uint64(256) + data[:, column]) % np.uint64(modulus)
    return rest
