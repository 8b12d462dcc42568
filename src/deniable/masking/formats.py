"""Format-preserving tokens for text and whole numbers: digits stay digits, letters letters, separators stay.

Which characters of a value are enciphered, and over which alphabets, is its *format*: `M000112` has the format A999999.
Values of one format are permuted among themselves, by FF1 (`ff1.py`) where the format has a million values or more
and by a keyed sort where it has fewer: the values of the format are put in the order of their HMACs, and value number
i becomes the one at place i. A sort is a permutation, so both ways are bijections: no two values share a token, and
whoever has the key can turn every token back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError
from deniable.masking import columns, ff1, sha256
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
        return self._mapped(values, backward=False)

    def reveal(self, values: pa.Array) -> pa.Array:
        """The values behind the tokens."""
        return self._mapped(values, backward=True)

    def _mapped(self, values: pa.Array, backward: bool) -> pa.Array:
        whole = pa.types.is_integer(values.type)
        encoded = columns.as_text(values).dictionary_encode()
        distinct = encoded.dictionary
        formats = _formats(distinct, whole).dictionary_encode()
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
        return _whole(mapped, values.type) if whole else columns.restored(mapped, values.type)

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
        signs[:, where] = (self._permuted(numerals, pattern, backward) + bases).astype(np.uint8)
        return columns.from_fixed_rows(signs, text)

    def _permuted(self, numerals: ff1.Numerals, pattern: str, backward: bool) -> ff1.Numerals:
        if self.luhn and set(pattern) == {"9"} and len(pattern) > 1:
            return self._with_luhn(numerals, pattern, backward)
        radices = tuple(ALPHABETS[sign][1] for sign in pattern)
        if math.prod(radices) < ff1.SMALLEST_DOMAIN:
            return _sorted_permutation(self.secret, numerals, pattern, radices, backward)
        step = ff1.decrypt if backward else ff1.encrypt
        tweak = b"" if len(set(pattern)) == 1 else pattern.encode()
        return step(ff1.Cipher(self.secret), numerals, radices, tweak)

    def _with_luhn(self, numerals: ff1.Numerals, pattern: str, backward: bool) -> ff1.Numerals:
        """All digits but the last are enciphered; the last keeps its distance from the check digit that fits.

        A valid number stays valid and an invalid one invalid, and the map stays a bijection.
        """
        body = numerals[:, :-1]
        distance = (numerals[:, -1] - luhn_digit(body)) % 10
        plain = FormatPreserving(self.secret)
        mapped = plain._permuted(body, pattern[:-1], backward)
        return np.column_stack([mapped, (luhn_digit(mapped) + distance) % 10])


def format_preserving(key: Key, domain: str, luhn: bool = False) -> FormatPreserving:
    """The format-preserving mask of one domain under a key."""
    return FormatPreserving(key.derive("format", domain), luhn)


def luhn_digit(body: ff1.Numerals) -> NDArray[np.int64]:
    """The digit that makes each row of digits valid under ISO/IEC 7812 (doubling from the right)."""
    doubled = body.copy()
    doubled[:, ::-1][:, ::2] *= 2
    digits: NDArray[np.int64] = -(doubled // 10 + doubled % 10).sum(axis=1) % 10
    return digits


def _formats(text: pa.Array, whole: bool) -> pa.Array:
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


def _whole(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Text back to numbers of the column's own type; near the limit of the type there may be no room for a token."""
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        raise DataError(
            "a whole number near the limit of its type has no format-preserving token of that type",
            remedy="Declare the column as text, or mask it with a token",
        ) from None


def _sorted_permutation(
    secret: bytes, numerals: ff1.Numerals, pattern: str, radices: tuple[int, ...], backward: bool
) -> ff1.Numerals:
    table = _table(secret, pattern, math.prod(radices))
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
def _table(secret: bytes, pattern: str, size: int) -> NDArray[np.int64]:
    """The numbers below `size` in the order of their HMACs; ties of 64 bits are broken by the number itself."""
    messages = pc.binary_join_element_wise(pa.scalar(pattern), pa.array(np.arange(size)).cast(pa.string()), " ")
    digests = sha256.hmac_column(secret, *columns.rows_of(messages.cast(pa.large_string())))
    ranks = np.ascontiguousarray(digests[:, :8]).view(">u8").ravel()
    return np.argsort(ranks, kind="stable")
