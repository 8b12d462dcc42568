"""Columns of text, built by whole arrays: digits stamped into patterns, lists looked up, parts joined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.world.draws import Ints


def stamped(pattern: str, numbers: Ints) -> pa.Array:
    """Each number's decimal digits in the places of '#', right-aligned: ('P###', 42) gives 'P042'."""
    letters = np.frombuffer(pattern.encode("ascii"), dtype=np.uint8)
    page = np.tile(letters, (len(numbers), 1))
    rest = numbers.copy()
    for place in np.flatnonzero(letters == ord("#"))[::-1]:
        rest, digit = np.divmod(rest, 10)
        page[:, place] = digit + ord("0")
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * len(letters)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(ends), pa.py_buffer(page))


def looked_up(words: Sequence[str], which: Ints) -> pa.Array:
    """The words at these places."""
    return pa.array(list(words), pa.string()).take(pa.array(which))


def joined(*parts: pa.Array | str, between: str = "") -> pa.Array:
    """Parts put together row by row; a plain text is the same in every row."""
    return pc.binary_join_element_wise(*parts, between)


def where(condition: NDArray[np.bool_], this: pa.Array, other: pa.Array | str) -> pa.Array:
    """This where the condition holds, the other elsewhere."""
    return pc.if_else(pa.array(condition), this, other)


def days(ordinals: Ints) -> pa.Array:
    """Days since 1970-01-01 as dates."""
    return pa.array(ordinals.astype(np.int32), pa.int32()).cast(pa.date32())


def hundredths(amounts: Ints) -> pa.Array:
    """Whole hundredths as numbers with two decimals (one correctly rounded division, the same everywhere)."""
    return pa.array(amounts / 100.0, pa.float64())
