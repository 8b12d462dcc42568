"""Masks that move values: noise on numbers, and shuffling a column among rows.

Noise is drawn by the same exact samplers that differential privacy uses, but here it buys no formal guarantee: nobody
bounded what one person contributes, and every row is released. The Guarantee of such a release says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.dp import samplers
from deniable.errors import DataError, ParameterError, nearest

SHAPES = ("uniform", "laplace", "gaussian")
FINENESS = 1024  # steps in one scale, for columns that are not whole numbers


@dataclass(frozen=True, slots=True)
class Noise:
    """Add independent random noise to numbers; a column of whole numbers stays whole.

    `scale` is the standard deviation of gaussian noise, the scale b of laplace noise, and the largest size of uniform
    noise. **Falls to:** averaging several noisy copies of one value; outliers larger than the noise.
    """

    scale: Fraction
    shape: str = "gaussian"

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ParameterError(
                f"there is no noise of the shape '{self.shape}'",
                expected=f"One of {', '.join(SHAPES)}",
                remedy=nearest(self.shape, SHAPES),
            )
        if self.scale <= 0:
            raise ParameterError("the scale of noise is not positive", expected="A scale above 0")

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The noisy column; null stays null."""
        kind = values.type
        if pa.types.is_integer(kind):
            return _whole(pc.add(values.cast(pa.int64()), pa.array(self._drawn(self.scale, len(values)))), kind)
        if not (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise DataError(f"noise was asked for on a column of type {kind}", expected="A numeric column")
        noise = self._drawn(Fraction(FINENESS), len(values)) * float(self.scale / FINENESS)
        return pc.add(values.cast(pa.float64()), pa.array(noise)).cast(kind, safe=False)

    def _drawn(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        if self.shape == "laplace":
            return samplers.discrete_laplace(scale, size)
        if self.shape == "gaussian":
            return samplers.discrete_gaussian(scale * scale, size)
        most = max(1, int(scale))
        return samplers.uniform_below(2 * most + 1, size) - most


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Permute the values of a column among the rows of a part, or only among rows equal in the columns of `within`.

    **Holds:** the column's distribution; its tie to any single row is cut, uniformly at random. **Falls to:** small
    classes of `within` (a class of one row keeps its value); values that are unique to a known person.
    """

    within: tuple[str, ...] = ()

    def apply(self, values: pa.Array, rows: pa.RecordBatch | None = None) -> pa.Array:
        """The shuffled column."""
        order = samplers.permutation(len(values))
        if not self.within or rows is None:
            return values.take(pa.array(order))
        # Rows sorted by class, once in their own order and once in a random one: place i of the first list takes the
        # value at place i of the second, which is a uniform permutation inside every class.
        classes = class_codes(rows, self.within)
        own = np.argsort(classes, kind="stable")
        drawn = order[np.argsort(classes[order], kind="stable")]
        source = np.empty(len(values), dtype=np.int64)
        source[own] = drawn
        return values.take(pa.array(source))


def class_codes(rows: pa.RecordBatch, names: tuple[str, ...]) -> NDArray[np.int64]:
    """A number for each row that is equal exactly for rows equal in the named columns (null counts as a value)."""
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in names:
        if name not in rows.schema.names:
            raise DataError(f"there is no column '{name}' to shuffle within", column=name)
        encoded = rows.column(name).dictionary_encode(null_encoding="encode")
        combined = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return codes


def _whole(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Back to the column's own width, at its limits where noise went past them."""
    limits = np.iinfo(kind.to_pandas_dtype())
    least, most = max(limits.min, -(2**63)), min(limits.max, 2**63 - 1)
    low = pc.max_element_wise(values, pa.scalar(least, pa.int64()), skip_nulls=False)
    return pc.min_element_wise(low, pa.scalar(most, pa.int64()), skip_nulls=False).cast(kind)
