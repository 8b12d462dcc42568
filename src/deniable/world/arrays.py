"""Arrays of the generated world: reproducible draws, and columns of text built by whole arrays.

The same seed gives the same rows, on every machine. Only the raw 64-bit output of a numpy bit generator is used, whose
stream numpy promises not to change (NEP 19), and only integer arithmetic after it: no logarithm or exponential touches
a draw, because those differ in the last bit between processors. Distributions are tables of 65,536 choices.
Nothing here is fit for noise that protects anybody: that comes from `deniable.dp.samplers`, and this module must never
be used for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Indexes = NDArray[np.uint16]

CHOICES = 1 << 16  # entries of a table of choices
ONE = 1 << 10  # what 1.0 is in the fixed-point numbers of this package


class Draws:
    """One stream of draws, named by a seed and a key (which world, which chunk)."""

    def __init__(self, seed: int, *key: int) -> None:
        self._source = np.random.PCG64DXSM(np.random.SeedSequence([seed, *key]))

    def raw(self, size: int) -> NDArray[np.uint64]:
        """Uniform 64-bit words."""
        return np.asarray(self._source.random_raw(size), dtype=np.uint64)

    def indexes(self, size: int) -> Indexes:
        """Uniform indexes of a table of choices, four to a word."""
        return self.raw((size + 3) // 4).astype("<u8", copy=False).view("<u2")[:size]

    def below(self, bound: int | Ints, size: int) -> Ints:
        """Uniform integers in [0, bound) for bounds below 2**31, by multiplying and shifting (bias under 2**-31)."""
        halves = self.raw((size + 1) // 2).astype("<u8", copy=False).view("<u4")[:size].astype(np.int64) >> 1
        return (halves * bound) >> 31

    def chance(self, share: int | Ints, size: int) -> NDArray[np.bool_]:
        """True with probability share / 1000."""
        return self.indexes(size).astype(np.int64) * 1000 < np.asarray(share, dtype=np.int64) * CHOICES

    def pick(self, table: NDArray[np.int16], size: int) -> Ints:
        """A choice from one table for each of `size` draws."""
        return np.asarray(table[self.indexes(size)], dtype=np.int64)

    def pick_by(self, tables: NDArray[np.int16], row: Ints) -> Ints:
        """A choice for each draw from the table of its own row."""
        return np.asarray(tables.reshape(-1)[row * CHOICES + self.indexes(len(row))], dtype=np.int64)

    def bell(self, size: int) -> Ints:
        """A bell of four uniforms, centered at zero: about normal with deviation 37,837, never beyond 131,072."""
        return np.asarray(self.indexes(4 * size).reshape(size, 4).astype(np.int64).sum(axis=1) - 2 * CHOICES)

    def order(self, size: int) -> Ints:
        """A shuffled order of 0 to size - 1."""
        return np.argsort(self.raw(size), kind="stable").astype(np.int64)


def make_choice_table(weights: Sequence[int]) -> NDArray[np.int16]:
    """A table that holds choice i in proportion to weights[i], to 1/65,536."""
    ends = [0]
    for weight in weights:
        ends.append(ends[-1] + weight)
    edges = np.array([end * CHOICES // ends[-1] for end in ends], dtype=np.int64)
    return np.repeat(np.arange(len(weights), dtype=np.int16), np.diff(edges))


def make_choice_tables(rows: Sequence[Sequence[int]]) -> NDArray[np.int16]:
    """One table a row, for choices whose weights depend on something."""
    return np.stack([make_choice_table(row) for row in rows])


def tabulate_lognormal(deviation: float, *, center: int = ONE) -> Ints:
    """A table of 4,096 quantiles of a lognormal factor, in fixed point; rounding hides the last bits of exp."""
    normal = NormalDist()
    return np.array(
        [round(center * math.exp(deviation * normal.inv_cdf((step + 0.5) / 4096))) for step in range(4096)],
        dtype=np.int64,
    )


def draw_quantiles(table: Ints, indexes: Indexes) -> Ints:
    """Draw from a table of 4,096 quantiles."""
    return np.asarray(table[indexes >> 4])


def scramble(numbers: Ints, modulus: int, factor: int, shift: int) -> Ints:
    """Different numbers stay different, but no longer tell their order: an affine map, one-to-one modulo `modulus`.

    `factor` must share no divisor with the modulus. The product must fit 64 bits: numbers and modulus below 10**9.
    """
    assert math.gcd(factor, modulus) == 1
    return (numbers * factor + shift) % modulus


def format_digits(pattern: str, numbers: Ints) -> pa.Array:
    """Each number's decimal digits in the places of '#', right-aligned: ('P###', 42) gives 'P042'."""
    letters = np.frombuffer(pattern.encode("ascii"), dtype=np.uint8)
    page = np.tile(letters, (len(numbers), 1))
    rest = numbers.copy()
    for place in np.flatnonzero(letters == ord("#"))[::-1]:
        rest, digit = np.divmod(rest, 10)
        page[:, place] = digit + ord("0")
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * len(letters)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(ends), pa.py_buffer(page))


def look_up(words: Sequence[str], which: Ints) -> pa.Array:
    """The words at these places."""
    return pa.array(list(words), pa.string()).take(pa.array(which))


def join_parts(*parts: pa.Array | str, between: str = "") -> pa.Array:
    """Parts put together row by row; a plain text is the same in every row."""
    return pc.binary_join_element_wise(*parts, between)


def where(condition: NDArray[np.bool_], this: pa.Array, other: pa.Array | str) -> pa.Array:
    """This where the condition holds, the other elsewhere."""
    return pc.if_else(pa.array(condition), this, other)


def to_dates(ordinals: Ints) -> pa.Array:
    """Days since 1970-01-01 as dates."""
    return pa.array(ordinals.astype(np.int32), pa.int32()).cast(pa.date32())


def to_hundredths(amounts: Ints) -> pa.Array:
    """Whole hundredths as numbers with two decimals (one correctly rounded division, the same everywhere)."""
    return pa.array(amounts / 100.0, pa.float64())
