"""Masks that move values: noise, shuffling, dates shifted by person, and random projection. No formal guarantee.

Noise comes from the exact samplers of differential privacy, but nobody bounded what one person contributes and every
row is released. Dates move by a keyed offset of 1 to `days` days, one for each person in all tables, so intervals stay;
placeholders do not move.

A projection multiplies numeric columns, brought to [-1, 1] by their public bounds, by a secret matrix of normal entries
(Johnson and Lindenstrauss 1984): distances stay nearly as they are. An intruder who knows as many people's true values
as there are columns can solve for the matrix (Liu, Giannella and Kargupta 2006); the Guarantee of a release says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.dp import samplers
from deniable.errors import DataError, ParameterError, nearest
from deniable.masking import columns, pseudonyms
from deniable.masking.keys import Key

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
            return _clamp_whole(
                pc.add(values.cast(pa.int64()), pa.array(self._draw_noise(self.scale, len(values)))), kind
            )
        if not (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise DataError(
                f"noise was asked for on a column of type {kind}",
                expected="A numeric column",
                remedy=columns.OTHER_MASK,
            )
        noise = self._draw_noise(Fraction(FINENESS), len(values)) * float(self.scale / FINENESS)
        return pc.add(values.cast(pa.float64()), pa.array(noise)).cast(kind, safe=False)

    def _draw_noise(self, scale: Fraction, size: int) -> NDArray[np.int64]:
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
            raise DataError(
                f"there is no column '{name}' to shuffle within",
                remedy="Name a column of the table in the mask's 'within'",
                column=name,
            )
        encoded = rows.column(name).dictionary_encode(null_encoding="encode")
        combined = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return codes


def _clamp_whole(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Back to the column's own width, at its limits where noise went past them."""
    limits = np.iinfo(str(kind))
    least, most = max(limits.min, -(2**63)), min(limits.max, 2**63 - 1)
    low = pc.max_element_wise(values, pa.scalar(least, pa.int64()), skip_nulls=False)
    return pc.min_element_wise(low, pa.scalar(most, pa.int64()), skip_nulls=False).cast(kind)


DAYS = 365
NANOSECONDS_OF_A_DAY = 86_400 * 10**9
PLACEHOLDERS = (
    "0001-01-01", "1111-11-11", "1753-01-01", "1800-01-01", "1899-12-30", "1899-12-31", "1900-01-01", "1901-01-01",
    "1970-01-01", "2099-12-31",
)  # fmt: skip
"""Days that programs write for "unknown" or "never"; so is every day from 2200 on."""
NEVER = np.datetime64("2200-01-01").astype(np.int64)
_PLACEHOLDER_DAYS = np.array(PLACEHOLDERS, dtype="datetime64[D]").astype(np.int64)


@dataclass(frozen=True, slots=True)
class ShiftDates:
    """Move dates and times by whole days, one secret offset a person.

    Placeholders such as 1900-01-01 and 9999-12-31 stay where they are: everybody knows what they were, so a shifted one
    would give the person's offset away.

    **Holds:** intervals within a person to the day; time of day, by the column's own clock. **Falls to:** whoever knows
    one true date of a person (which gives all the others); rare sequences of intervals; dates near the ends of a known
    period, since the offset is bounded. A row without a person loses its date, and so does one whose shifted date its
    type cannot hold.
    """

    secret: bytes = field(repr=False)
    by: str
    days: int = DAYS
    normalize: columns.Normal = "exact"

    def __post_init__(self) -> None:
        if self.days < 1:
            raise ParameterError(f"dates cannot be shifted by at most {self.days} days", expected="At least 1 day")

    def apply(self, values: pa.Array, rows: pa.RecordBatch) -> pa.Array:
        """The shifted column: date or timestamp, or text that holds ISO dates."""
        if self.by not in rows.schema.names:
            raise DataError(
                f"dates are shifted by '{self.by}', and there is no such column",
                remedy="Name the column of people in the mask's 'by'",
                column=self.by,
            )
        person = rows.column(self.by)
        known = columns.normalize_text(columns.as_text(person), self.normalize)
        moved = _shift_days(values, derive_offsets(self.secret, known, self.days))
        return pc.if_else(person.is_valid(), moved, pa.scalar(None, moved.type))


def make_date_shift(key: Key, by: str, days: int = DAYS) -> ShiftDates:
    """The date shift of a key; the sub-key does not depend on the column, so all dates of a person move alike."""
    return ShiftDates(key.derive("shift", "dates"), by, days, key.normalize)


def derive_offsets(secret: bytes, person: pa.Array, days: int) -> NDArray[np.int64]:
    """Each person's offset in days: uniform on -days ... -1, 1 ... days (the bias of 64 bits is below 1e-14)."""
    drawn = (pseudonyms.derive_numbers(secret, columns.as_text(person)) % np.uint64(2 * days)).astype(np.int64)
    return np.where(drawn < days, drawn - days, drawn - days + 1)


def is_placeholder(values: pa.Array) -> NDArray[np.bool_]:
    """Which dates stand for "unknown" or "never", by the column's own clock or by universal time."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = _parse_dates(values)
    views = [values]
    if pa.types.is_timestamp(values.type) and values.type.tz:
        views = [pc.local_timestamp(values), values.cast(pa.timestamp(values.type.unit))]
    days = [_read_days(view) for view in views]
    found = [np.isin(one, _PLACEHOLDER_DAYS) | (one >= NEVER) for one in days]
    either: NDArray[np.bool_] = np.logical_or.reduce(found)
    return either


def _read_days(values: pa.Array) -> NDArray[np.int64]:
    """Days since 1970 of dates, or of timestamps without a zone; 1 for null."""
    if pa.types.is_date(values.type):
        return _fill_whole(values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 1)
    steps = NANOSECONDS_OF_A_DAY // _NANOSECONDS[values.type.unit]
    return _fill_whole(values.cast(pa.int64()), steps) // steps


def _fill_whole(values: pa.Array, missing: int) -> NDArray[np.int64]:
    whole: NDArray[np.int64] = values.fill_null(missing).to_numpy(zero_copy_only=False)
    return whole


_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def _shift_days(values: pa.Array, days: NDArray[np.int64]) -> pa.Array:
    kind = values.type
    if pa.types.is_date(kind):
        moved = _add_steps(values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), days, np.iinfo(np.int32))
        shifted = moved.cast(pa.int32()).cast(pa.date32()).cast(kind)
    elif pa.types.is_timestamp(kind):
        shifted = _shift_clock(values, days)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _shift_days(_parse_dates(values), days).cast(kind)
    else:
        raise DataError(
            f"dates were to be shifted in a column of type {kind}",
            expected="A date or a timestamp",
            remedy=columns.OTHER_MASK,
        )
    return pc.if_else(pa.array(is_placeholder(values)), values, shifted)


def _shift_clock(values: pa.Array, days: NDArray[np.int64]) -> pa.Array:
    """Timestamps moved by whole days of the column's own clock, so that summer time does not change the hour."""
    kind = values.type
    if kind.tz:
        moved = _shift_clock(pc.local_timestamp(values), days)
        return pc.assume_timezone(moved, kind.tz, ambiguous="earliest", nonexistent="latest")
    steps = days * (NANOSECONDS_OF_A_DAY // _NANOSECONDS[kind.unit])
    return _add_steps(values.cast(pa.int64()), steps, np.iinfo(np.int64)).cast(kind)


def _add_steps(values: pa.Array, steps: NDArray[np.int64], limits: np.iinfo) -> pa.Array:
    """The sums; null where one would leave the limits of its type."""
    whole = _fill_whole(values, 0)
    least, most = limits.min - np.minimum(steps, 0), limits.max - np.maximum(steps, 0)
    fits = (whole >= least) & (whole <= most)
    return columns.with_nulls_of(pa.array(np.where(fits, whole, 0) + np.where(fits, steps, 0), mask=~fits), values)


def _parse_dates(text: pa.Array) -> pa.Array:
    try:
        return text.cast(pa.date32())
    except pa.ArrowInvalid:
        raise DataError(
            "dates were to be shifted in a text column that holds something else than ISO dates (YYYY-MM-DD)",
            remedy="Declare the column as date in the policy",
        ) from None


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
        projected = self._scale_rows(rows) @ derive_matrix(self.secret, len(self.columns), self.dimensions)
        if self.noise:
            projected = projected + _draw_gaussian(projected.shape, self.noise)
        return tuple(pa.array(np.ascontiguousarray(projected[:, i])) for i in range(self.dimensions))

    def _scale_rows(self, rows: pa.RecordBatch) -> Matrix:
        scaled = np.empty((rows.num_rows, len(self.columns)))
        for i, (name, (low, high)) in enumerate(zip(self.columns, self.bounds, strict=True)):
            values = rows.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
            unit = (np.clip(values, low, high) - low) / (high - low) * 2 - 1
            scaled[:, i] = np.nan_to_num(unit, nan=0.0)
        return scaled


def make_projection(
    key: Key, columns: tuple[str, ...], bounds: tuple[tuple[float, float], ...], dimensions: int, noise: float = 0.0
) -> Projection:
    """The projection of these columns under a key."""
    return Projection(key.derive("projection", "\x1f".join(columns)), columns, bounds, dimensions, noise)


def derive_matrix(secret: bytes, rows: int, dimensions: int) -> Matrix:
    """The secret matrix: independent normal entries of variance 1/dimensions, from keyed bits by Box and Muller."""
    cells = pa.array([f"{i} {j}" for i in range(rows) for j in range(dimensions)], pa.large_string())
    halves = pseudonyms.digest_rows(secret, cells).view(">u8")[:, :2].astype(np.float64) / 2.0**64
    radius = np.sqrt(-2.0 * np.log(np.maximum(halves[:, 0], 2.0**-64)))
    normal = radius * np.cos(2 * np.pi * halves[:, 1])
    entries: Matrix = normal.reshape(rows, dimensions) / np.sqrt(dimensions)
    return entries


def _draw_gaussian(shape: tuple[int, ...], scale: float) -> Matrix:
    steps = samplers.discrete_gaussian(Fraction(1024 * 1024), int(np.prod(shape)))
    noise: Matrix = (steps * (scale / 1024)).reshape(shape).astype(np.float64)
    return noise
