"""Attributes: the columns of a table as they are coded, declared by the policy.

Categories, bounds and steps are public, so the number of codes is. A nullable column has one code more, for null, which
is a value like any other. Identifiers are not coded at all: they are made anew. What the policy leaves open is learned
within the budget (`learning`): where numbers are cut, and which shapes texts have. `coding` goes from values to codes
and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction

import pyarrow as pa

from deniable.errors import ParameterError
from deniable.policy.roles import Role
from deniable.policy.schema import Column, ColumnType, TableSchema

BINS = 256
"""A number or date with more steps than this is cut into so many equal bins first."""
OTHER = "(any other text)"
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
    """A bounded number, date or datetime: `steps` steps from `lower` on, cut into bins."""

    name: str
    type: ColumnType
    lower: Fraction
    """In numbers, days since 1970, or seconds since 1970."""
    step: Fraction
    cuts: tuple[int, ...]
    """The steps at which bins begin, rising from 0, and after the last one the number of steps."""
    nullable: bool

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return self.cuts[-1]

    @property
    def bins(self) -> int:
        """How many bins there are."""
        return len(self.cuts) - 1

    @property
    def size(self) -> int:
        """How many codes it has."""
        return self.bins + self.nullable

    def span(self, first: int, last: int) -> tuple[Value, Value]:
        """The least and the greatest value of the bins from one to another."""
        return self._at(self.cuts[first]), self._at(self.cuts[last + 1] - 1)

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
class Shaped:
    """A column of texts without declared values: of them only shapes are learned (`shapes`), and any other is one."""

    name: str
    type: ColumnType
    shapes: tuple[str, ...]
    nullable: bool

    @property
    def size(self) -> int:
        """How many codes it has."""
        return len(self.labels) + self.nullable

    @property
    def labels(self) -> tuple[str, ...]:
        """What the codes stand for, without null."""
        return (*self.shapes, OTHER)


@dataclass(frozen=True, slots=True)
class Made:
    """A column whose values are made anew and obviously so: identifiers, and texts of which nothing was learned."""

    name: str
    type: ColumnType
    prefix: str


Coded = Labels | Bins | Shaped
Attribute = Coded | Made


def prefix(name: str) -> str:
    """What made values of a column begin with."""
    return f"synthetic-{name}-"


def equal_cuts(steps: int, bins: int) -> tuple[int, ...]:
    """Bins as equal as whole steps allow.

    >>> equal_cuts(10, 4)
    (0, 3, 5, 8, 10)
    """
    return tuple(-(-place * steps // bins) for place in range(bins + 1))


def attributes(table: TableSchema, only: tuple[str, ...] | None = None) -> tuple[Attribute, ...]:
    """The attributes of a table's columns, all or some, in the policy's order."""
    return tuple(_attribute(column, table) for column in table.columns if only is None or column.name in only)


def _attribute(column: Column, table: TableSchema) -> Attribute:
    if column.type is ColumnType.BOOLEAN:
        return Labels(column.name, column.type, (False, True), column.nullable)
    if column.categories is not None:
        return Labels(column.name, column.type, column.categories, column.nullable)
    if column.role is Role.IDENTIFIER:
        kept = column.type if column.type is ColumnType.INTEGER else ColumnType.TEXT
        return Made(column.name, kept, prefix(column.name))
    if column.type is ColumnType.TEXT:
        return Shaped(column.name, column.type, (), column.nullable)
    if column.bounds is None:
        raise ParameterError(
            f"column '{column.name}' of '{table.name}' has no public bounds",
            expected="Synthetic columns have categories or bounds that the policy declares",
            remedy="Declare between and step, or leave the column out with --columns",
        )
    lower, upper = _number(column.bounds.lower), _number(column.bounds.upper)
    steps = int((upper - lower) / column.bounds.step) + 1
    cuts = equal_cuts(steps, min(steps, BINS))
    return Bins(column.name, column.type, lower, column.bounds.step, cuts, column.nullable)


def _number(endpoint: int | Fraction | date | datetime) -> Fraction:
    if isinstance(endpoint, datetime):
        return Fraction(int((endpoint.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()))
    if isinstance(endpoint, date):
        return Fraction((endpoint - EPOCH).days)
    return Fraction(endpoint)


def arrow_type(attribute: Coded) -> pa.DataType:
    """The type of a column's values."""
    times = {ColumnType.DATE: pa.date32(), ColumnType.DATETIME: pa.timestamp("s")}
    if isinstance(attribute, Bins) and attribute.type in times:
        return times[attribute.type]
    numbers = {ColumnType.INTEGER: pa.int64(), ColumnType.BOOLEAN: pa.bool_(), ColumnType.DECIMAL: pa.float64()}
    return numbers.get(attribute.type, pa.float64() if isinstance(attribute, Bins) else pa.string())
