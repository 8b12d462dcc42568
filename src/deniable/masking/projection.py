"""Random projection of numeric columns: distances between people stay nearly as they are, the columns disappear.

The columns, brought to [-1, 1] by their public bounds, are multiplied by a secret matrix of normal entries with
variance 1/dimensions (Johnson and Lindenstrauss 1984), derived from the key. For fewer dimensions than columns the map
has no inverse: even with the matrix, all that a least-squares guess regains is the share dimensions/columns of the
variance. For as many dimensions as columns the secrecy of the matrix is all there is. In both cases an intruder who
knows as many people's true values as there are columns can solve for the matrix (Liu, Giannella and Kargupta 2006,
"known sample" attack); the tests run it, and the Guarantee of a release names it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.masking import tokens
from deniable.masking.keys import Key

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Projection:
    """Replace several numeric columns by fewer or equally many random combinations of them.

    **Holds:** squared distances within a factor of about 1 +- sqrt(8 ln n / dimensions). **Falls to:** known samples.
    A missing value becomes the middle of its bounds, so that no row stands out by being null.
    """

    secret: bytes = field(repr=False)
    columns: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    dimensions: int
    noise: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.dimensions <= len(self.columns):
            raise ParameterError(
                f"{len(self.columns)} columns cannot be projected to {self.dimensions} dimensions",
                expected=f"1 to {len(self.columns)} dimensions",
            )
        if any(not low < high for low, high in self.bounds):
            raise ParameterError("a projected column has empty bounds", expected="A lower bound below the upper one")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that come out."""
        return tuple(f"projection_{i + 1}" for i in range(self.dimensions))

    def project(self, rows: pa.RecordBatch) -> tuple[pa.Array, ...]:
        """The projected columns of a batch."""
        projected = self._scaled(rows) @ matrix(self.secret, len(self.columns), self.dimensions)
        if self.noise:
            projected = projected + _gaussian(projected.shape, self.noise)
        return tuple(pa.array(np.ascontiguousarray(projected[:, i])) for i in range(self.dimensions))

    def _scaled(self, rows: pa.RecordBatch) -> Matrix:
        scaled = np.empty((rows.num_rows, len(self.columns)))
        for i, (name, (low, high)) in enumerate(zip(self.columns, self.bounds, strict=True)):
            values = rows.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
            unit = (np.clip(values, low, high) - low) / (high - low) * 2 - 1
            scaled[:, i] = np.nan_to_num(unit, nan=0.0)
        return scaled


def projection(
    key: Key, columns: tuple[str, ...], bounds: tuple[tuple[float, float], ...], dimensions: int, noise: float = 0.0
) -> Projection:
    """The projection of these columns under a key."""
    return Projection(key.derive("projection", "\x1f".join(columns)), columns, bounds, dimensions, noise)


def matrix(secret: bytes, rows: int, dimensions: int) -> Matrix:
    """The secret matrix: independent normal entries of variance 1/dimensions, from keyed bits by Box and Muller."""
    cells = pa.array([f"{i} {j}" for i in range(rows) for j in range(dimensions)], pa.large_string())
    halves = tokens.digests(secret, cells).view(">u8")[:, :2].astype(np.float64) / 2.0**64
    radius = np.sqrt(-2.0 * np.log(np.maximum(halves[:, 0], 2.0**-64)))
    normal = radius * np.cos(2 * np.pi * halves[:, 1])
    entries: Matrix = normal.reshape(rows, dimensions) / np.sqrt(dimensions)
    return entries


def _gaussian(shape: tuple[int, ...], scale: float) -> Matrix:
    from fractions import Fraction

    from deniable.dp import samplers

    steps = samplers.discrete_gaussian(Fraction(1024 * 1024), int(np.prod(shape)))
    noise: Matrix = (steps * (scale / 1024)).reshape(shape).astype(np.float64)
    return noise
