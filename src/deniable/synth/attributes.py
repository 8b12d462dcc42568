"""Attributes: how a declared column becomes codes, and codes become values of the same type again.

Everything here follows from the policy: categories, bounds and steps are public, so the number of codes is. A nullable
column has one code more, for null, which is a value like any other. Values outside the declaration count as null, or
at the nearest bound. Identifiers are not coded at all: they are made anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.policy.roles import Role
from deniable.policy.schema import Column, ColumnType, TableSchema

BINS = 256
"""A number or date with more steps than this is cut into so many equal bins first."""
EPOCH = date(1970, 1, 1)
DAY = timedelta(days=1)
Value = int | float | date | datetime


@dataclass(frozen=True, slots=True)
class Labels:
    """A column with listed values."""

    name: str
    type: ColumnType
    labels: tuple[str | int | bool, ...]
    nullable: bool

    @property
    def size(self) -> int:
        """How many codes it has."""
        return len(self.labels) + self.nullable


@dataclass(frozen=True, slots=True)
class Bins:
    """A bounded number, date or datetime: `steps` steps from `lower` on, cut into `bins` bins."""

    name: str
    type: ColumnType
    lower: Fraction
    """In numbers, days since 1970, or seconds since 1970."""
    step: Fraction
    steps: int
    bins: int
    nullable: bool

    @property
    def size(self) -> int:
        """How many codes it has."""
        return self.bins + self.nullable

    def span(self, first: int, last: int) -> tuple[Value, Value]:
        """The least and the greatest value of the bins from one to another."""
        return self._at(-(-first * self.steps // self.bins)), self._at(-(-(last + 1) * self.steps // self.bins) - 1)

    def _at(self, step: int) -> Value:
        number = self.lower + step * self.step
        match self.type:
            case ColumnType.DATE:
                return EPOCH + int(number) * DAY
            case ColumnType.DATETIME:
                return datetime(1970, 1, 1) + timedelta(seconds=int(number))
            case ColumnType.INTEGER:
                return int(number)
            case _:
                return float(number)


@dataclass(frozen=True, slots=True)
class Made:
    """A column whose values are made anew and obviously so: identifiers, and texts without declared values."""

    name: str
    type: ColumnType
    prefix: str


Attribute = Labels | Bins | Made


def attributes(table: TableSchema, only: tuple[str, ...] | None = None) -> tuple[Attribute, ...]:
    """The attributes of a table's columns, all or some, in the policy's order."""
    return tuple(_attribute(column, table) for column in table.columns if only is None or column.name in only)


def _attribute(column: Column, table: TableSchema) -> Attribute:
    if column.type is ColumnType.BOOLEAN:
        return Labels(column.name, column.type, (False, True), column.nullable)
    if column.categories is not None:
        return Labels(column.name, column.type, column.categories, column.nullable)
    if column.role is Role.IDENTIFIER or column.type is ColumnType.TEXT:
        return Made(column.name, ColumnType.TEXT, f"synthetic-{column.name}-")
    if column.bounds is None:
        raise ParameterError(
            f"column '{column.name}' of '{table.name}' has no public bounds",
            expected="Synthetic columns have categories or bounds that the policy declares",
            remedy="Declare between and step, or leave the column out with --columns",
        )
    lower, upper = _number(column.bounds.lower), _number(column.bounds.upper)
    steps = int((upper - lower) / column.bounds.step) + 1
    return Bins(column.name, column.type, lower, column.bounds.step, steps, min(steps, BINS), column.nullable)


def _number(endpoint: int | Fraction | date | datetime) -> Fraction:
    if isinstance(endpoint, datetime):
        return Fraction(int((endpoint.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()))
    if isinstance(endpoint, date):
        return Fraction((endpoint - EPOCH).days)
    return Fraction(endpoint)


def encode(attribute: Labels | Bins, values: pa.ChunkedArray | pa.Array) -> NDArray[np.int32]:
    """Codes of a column; null is the last code, and where null is not declared it becomes code 0."""
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    missing = attribute.size - 1 if attribute.nullable else 0
    if isinstance(attribute, Labels):
        index = {label: code for code, label in enumerate(attribute.labels)}
        encoded = column.dictionary_encode()
        table = np.array([index.get(v, missing) for v in encoded.dictionary.to_pylist()] + [missing], dtype=np.int32)
        places = encoded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(table[places.astype(np.int64)], dtype=np.int32)
    numbers = _numbers(attribute, column)
    position = np.rint((numbers - float(attribute.lower)) / float(attribute.step))
    inside = np.clip(np.nan_to_num(position, nan=0.0), 0, attribute.steps - 1).astype(np.int64)
    codes = (inside * attribute.bins // attribute.steps).astype(np.int32)
    return np.where(np.isnan(numbers), missing, codes).astype(np.int32)


def _numbers(attribute: Bins, column: pa.Array) -> NDArray[np.float64]:
    if attribute.type is ColumnType.DATE:
        column = column.cast(pa.date32()).cast(pa.int32())
    elif attribute.type is ColumnType.DATETIME:
        column = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    filled = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(filled, dtype=np.float64)


def decode(attribute: Labels | Bins, codes: NDArray[np.int32], generator: np.random.Generator) -> pa.Array:
    """Values of codes, in the column's own type; inside a bin every step is as likely."""
    if isinstance(attribute, Bins):
        return _unbinned(attribute, codes, generator)
    listed = pa.array([*attribute.labels, *([None] if attribute.nullable else [])], arrow_type(attribute))
    return listed.take(pa.array(codes))


def anew(attribute: Made, after: int, records: int, total: int) -> pa.Array:
    """The values that follow the first `after` of a total: numbered on, so that none comes twice."""
    width = len(str(max(total, 1)))
    numbers = pa.array(np.arange(after + 1, after + records + 1)).cast(pa.string())
    return pc.binary_join_element_wise(attribute.prefix, pc.utf8_lpad(numbers, width, "0"), "")


def _unbinned(attribute: Bins, codes: NDArray[np.int32], generator: np.random.Generator) -> pa.Array:
    missing = codes >= attribute.bins
    bins = np.where(missing, 0, codes).astype(np.int64)
    first = -(-bins * attribute.steps // attribute.bins)
    after = -(-(bins + 1) * attribute.steps // attribute.bins)
    place = first + (generator.random(codes.size) * (after - first)).astype(np.int64)
    return _typed(attribute, place, missing)


def _typed(attribute: Bins, place: NDArray[np.int64], missing: NDArray[np.bool_]) -> pa.Array:
    match attribute.type:
        case ColumnType.DATE:
            days = (int(attribute.lower) + place * int(attribute.step)).astype(np.int32)
            return pa.array(days, pa.int32(), mask=missing).cast(pa.date32())
        case ColumnType.DATETIME:
            seconds = int(attribute.lower) + place * int(attribute.step)
            return pa.array(seconds, pa.int64(), mask=missing).cast(pa.timestamp("s"))
        case ColumnType.INTEGER:
            return pa.array(int(attribute.lower) + place * int(attribute.step), pa.int64(), mask=missing)
        case _:
            # Divide once at the end, so that 0.01 steps come out as the nearest decimals.
            numerator = place * attribute.step.numerator
            values = float(attribute.lower) + numerator / attribute.step.denominator
            return pa.array(values, pa.float64(), mask=missing)


def arrow_type(attribute: Labels | Bins) -> pa.DataType:
    """The type of a column's values."""
    times = {ColumnType.DATE: pa.date32(), ColumnType.DATETIME: pa.timestamp("s")}
    if isinstance(attribute, Bins) and attribute.type in times:
        return times[attribute.type]
    numbers = {ColumnType.INTEGER: pa.int64(), ColumnType.BOOLEAN: pa.bool_(), ColumnType.DECIMAL: pa.float64()}
    return numbers.get(attribute.type, pa.float64() if isinstance(attribute, Bins) else pa.string())
