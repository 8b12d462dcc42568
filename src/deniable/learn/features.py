"""Features and targets: how declared columns become whole numbers, whose size is known before any row is seen.

Everything here follows from the policy; no mean, deviation or vocabulary is read from the data. A column with declared
categories sets one entry for its value; a bounded number, date or time becomes one entry from -1 (its lower bound) to
1 (its upper bound), or a place between two knots; null has an entry of its own where the policy allows nulls. Entries
are counted in steps of 1/STEPS, so that sums are exact. A target is a declared bounded number, or one declared value
against all others.

**Invariant.** Each column, and the intercept, is a *block* of entries of which at most one is not 0 (with knots: two,
of one sign), and the sizes in a block add up to at most STEPS. A row of p blocks therefore has squared L2 norm of at
most p STEPS^2. All sensitivities of this
package rest on it, whatever the values are: out of bounds, infinite, of no category."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.dp.accounting import Event
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import DataError, ParameterError, nearest
from deniable.policy.schema import Column, ColumnType, Endpoint, Role, TableSchema

Numbers = NDArray[np.float64]
Progress = Callable[[float], None]

CHUNK = 1 << 16
"""Rows that are multiplied at once, as floating-point numbers that hold integers.

Products of entries are below 2**31 and 2**16 of them are added, so every partial sum is an integer below 2**53: exact
in 64-bit floating point, in whatever order a library adds them. Sums of chunks are added as 64-bit integers.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """What was learned, in units of the entries and (for a number) of the target's own values: public."""

    coefficients: Numbers
    errors: Numbers | None
    """Standard errors with the noise in them, where the method has them."""
    rows: float
    """How many rows were learned from, with noise."""
    shares: tuple[float, ...] | None = None
    """Of a structure: the share of the rows in each group, or of the variance along each component, with noise. Of a
    perceptron: the share of the rows that has each entry, with noise."""


class Plan(Protocol):
    """A method with all that it needs to know before a row is seen."""

    @property
    def design(self) -> Design:
        """How a row is encoded for it."""

    @property
    def event(self) -> Event:
        """What fitting will release, for any accountant to price."""

    def fit(
        self, entries: Any, truth: NDArray[np.int64], entropy: Entropy = SYSTEM, progress: Progress | None = None
    ) -> Fit:
        """Learn from rows, as entries or as codes of a binned design: the only deed that sees them.

        All that it returns has passed through noise."""


STEPS = 1 << 10
"""The fixed point of all entries: an entry of STEPS is 1."""
INTERCEPT = "intercept"

Entries = NDArray[np.int16]
"""Rows of a design: one row a record, one column an entry."""
Codes = NDArray[np.int32]
"""Rows of a binned design: one row a record, one column a block; which of the block's entries the row lights."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A column with listed values: one entry each, and one for null (or any other value) where it is nullable."""

    name: str
    type: ColumnType
    labels: tuple[str | int | bool, ...]
    nullable: bool

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of its entries."""
        return (*(f"{self.name} = {label}" for label in self.labels), *_name_null(self))

    @property
    def size(self) -> int:
        """How many entries it has."""
        return len(self.labels) + self.nullable


@dataclass(frozen=True, slots=True)
class Number:
    """A bounded number, date or time: one entry from -1 to 1, and one for null where it is nullable."""

    name: str
    type: ColumnType
    lower: Fraction
    """In numbers, days since 1970, or seconds since 1970."""
    upper: Fraction
    nullable: bool

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of its entries."""
        return (self.name, *_name_null(self))

    @property
    def size(self) -> int:
        """How many entries it has."""
        return 1 + self.nullable

    @property
    def middle(self) -> Fraction:
        """The value whose entry is 0."""
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> Fraction:
        """The distance from the middle to a bound; 1 where there is none, so that it divides."""
        return (self.upper - self.lower) / 2 or Fraction(1)


MOST_BINS = 64


@dataclass(frozen=True, slots=True)
class _Divided:
    """A bounded number, date or time that has several entries."""

    number: Number
    count: int

    @property
    def name(self) -> str:
        """The column's name."""
        return self.number.name

    @property
    def type(self) -> ColumnType:
        """The column's type."""
        return self.number.type

    @property
    def nullable(self) -> bool:
        """Whether null has an entry of its own."""
        return self.number.nullable

    @property
    def size(self) -> int:
        """How many entries it has."""
        return self.count + self.nullable


@dataclass(frozen=True, slots=True)
class Bins(_Divided):
    """A bounded number, date or time in bins of one width: one entry a bin, and one for null where it is nullable."""

    width: Fraction

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of its entries."""
        return (*(f"{self.name} {self._name_bin(place)}" for place in range(self.count)), *_name_null(self))

    def _name_bin(self, place: int) -> str:
        start, end = (self.number.lower + self.width * at for at in (place, place + 1))
        if self.type in _WHOLE and self.width == 1:
            return f"= {_render_bound(self.type, start)}"
        return f"from {_render_bound(self.type, start)} to {_render_bound(self.type, end)}"


_WHOLE = (ColumnType.INTEGER, ColumnType.DATE)
MOST_KNOTS = 10


@dataclass(frozen=True, slots=True)
class Knots(_Divided):
    """A bounded number, date or time as its place on a broken line: the two knots beside a value share STEPS."""

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of its entries."""
        reach = self.number.upper - self.number.lower
        places = (self.number.lower + reach * at / max(1, self.count - 1) for at in range(self.count))
        return (*(f"{self.name} = {_render_bound(self.type, place)}" for place in places), *_name_null(self))


def tie_knots(number: Number, most: int = MOST_KNOTS) -> Knots:
    """The knots of a number, at even distances from its lower to its upper bound; no more than it has values."""
    if number.type in _WHOLE:
        most = min(most, max(1, math.floor(number.upper) - math.ceil(number.lower) + 1))
    return Knots(number, most if number.upper > number.lower else 1)


def cut_into_bins(number: Number, most: int = MOST_BINS) -> Bins:
    """The bins of a number, from its bounds alone: whole numbers and days are not cut apart."""
    if number.type in _WHOLE:
        values = max(1, math.floor(number.upper) - math.ceil(number.lower) + 1)
        width = Fraction(-(-values // most))
        return Bins(number, math.ceil(values / width), width)
    return Bins(number, most, max(number.upper - number.lower, Fraction(1, STEPS)) / most)


def _render_bound(kind: ColumnType, value: Fraction) -> str:
    if kind is ColumnType.DATE:
        return str(date(1970, 1, 1) + timedelta(days=math.floor(value)))
    if kind is ColumnType.DATETIME:
        return str(datetime(1970, 1, 1) + timedelta(seconds=math.floor(value)))
    return f"{float(value):.6g}"


Feature = Labels | Number | Bins | Knots


def _name_null(feature: Feature) -> tuple[str, ...]:
    return (f"{feature.name} is null",) if feature.nullable else ()


@dataclass(frozen=True, slots=True)
class Design:
    """The features of a model, in order, after an intercept that is 1 in every row.

    >>> Design((Number("age", ColumnType.INTEGER, Fraction(0), Fraction(100), False),)).entries
    ('intercept', 'age')
    """

    features: tuple[Feature, ...]

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of all entries."""
        return (INTERCEPT, *(entry for feature in self.features for entry in feature.entries))

    @property
    def width(self) -> int:
        """How many entries a row has."""
        return 1 + sum(feature.size for feature in self.features)

    @property
    def blocks(self) -> int:
        """How many of them can differ from 0 at once."""
        return 1 + len(self.features)

    def cut(self, most: int = MOST_BINS) -> Design:
        """The same columns, each number in bins."""
        return Design(tuple(cut_into_bins(each, most) if isinstance(each, Number) else each for each in self.features))

    def bend(self) -> Design:
        """The same columns, each number as a broken line."""
        return Design(tuple(tie_knots(each) if isinstance(each, Number) else each for each in self.features))

    @property
    def owners(self) -> NDArray[np.int64]:
        """The block of each entry."""
        sizes = [1, *(feature.size for feature in self.features)]
        return np.repeat(np.arange(len(sizes)), sizes)


def build_design(table: TableSchema, names: tuple[str, ...] | None, target: str | None) -> Design:
    """The design of named columns, or of all that can be features."""
    if names is None:
        names = tuple(column.name for column in table.columns if column.name != target and _is_usable(column, table))
    if not names:
        raise ParameterError("no column can be a feature", expected="Columns with declared categories or bounds")
    if target in names or len(set(names)) != len(names):
        raise ParameterError("a feature is the target, or is named twice", remedy="Name each feature once")
    return Design(tuple(build_feature(find_column(table, name), table) for name in names))


def find_column(table: TableSchema, name: str) -> Column:
    """The column of a table, or a refusal that names the nearest one."""
    column = table.column(name)
    if column is None:
        raise ParameterError(f"the table '{table.name}' has no column '{name}'", remedy=nearest(name, table.names))
    return column


def build_feature(column: Column, table: TableSchema) -> Labels | Number:
    """The feature that a declared column is."""
    if not _is_usable(column, table):
        identifies = column.role is Role.IDENTIFIER or (table.unit is not None and column.name == table.unit.column)
        happened = "names people" if identifies else "has no public categories or bounds"
        raise ParameterError(
            f"column '{column.name}' of '{table.name}' {happened}, and cannot be learned from",
            expected="Columns with declared categories, or with bounds",
            remedy="Leave it out" if identifies else "Declare categories or between in the policy, or leave it out",
        )
    if column.type is ColumnType.BOOLEAN and column.categories is None:
        return Labels(column.name, column.type, (False, True), column.nullable)
    if column.categories is not None:
        return Labels(column.name, column.type, column.categories, column.nullable)
    assert column.bounds is not None
    return Number(
        column.name, column.type, _to_number(column.bounds.lower), _to_number(column.bounds.upper), column.nullable
    )


def _is_usable(column: Column, table: TableSchema) -> bool:
    if column.role is Role.IDENTIFIER or (table.unit is not None and column.name == table.unit.column):
        return False
    return column.type is ColumnType.BOOLEAN or column.categories is not None or column.bounds is not None


def _to_number(endpoint: Endpoint) -> Fraction:
    """A bound as a number: days or seconds since 1970 for dates and times."""
    if isinstance(endpoint, datetime):
        return Fraction((endpoint.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(seconds=1))
    if isinstance(endpoint, date):
        return Fraction((endpoint - date(1970, 1, 1)).days)
    return Fraction(endpoint)


def encode_rows(made: Design, rows: pa.Table | pa.RecordBatch) -> Entries:
    """The entries of rows, each from its own row alone: exact whatever rows stand beside it."""
    encoded = np.zeros((rows.num_rows, made.width), np.int16)
    encoded[:, 0] = STEPS
    start = 1
    for each in made.features:
        width = each.size
        block = encoded[:, start : start + width]
        _write_block(each, column_of(rows, each.name), block)
        start += width
    return encoded


def _write_block(each: Feature, values: pa.Array, block: Entries) -> None:
    if isinstance(each, Number):
        write_numbers(each, values, block)
    elif isinstance(each, Knots):
        write_knots(each, values, block)
    else:
        write_codes(each, values, block)


def encode_units(rows: pa.Table, name: str) -> NDArray[np.int64]:
    """The unit of each row, numbered from 0."""
    return np.asarray(column_of(rows, name).dictionary_encode().indices.to_numpy(zero_copy_only=False), np.int64)


def column_of(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """One column of rows, in one piece; a missing one is refused by its name."""
    if name not in rows.schema.names:
        raise DataError(f"the rows have no column '{name}'", remedy=nearest(name, rows.schema.names))
    column = rows.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def write_codes(each: Labels | Bins, values: pa.Array, block: Entries) -> None:
    """Light the entry of each value."""
    codes = find_codes(each, values)
    known = np.flatnonzero(codes < block.shape[1])
    block[known, codes[known]] = STEPS


def encode_codes(made: Design, rows: pa.Table | pa.RecordBatch) -> Codes:
    """The one entry that each row lights in each block of a binned design; the intercept's is 0."""
    codes = np.zeros((rows.num_rows, made.blocks), np.int32)
    for block, each in enumerate(made.features, start=1):
        assert isinstance(each, Labels | Bins)
        codes[:, block] = find_codes(each, column_of(rows, each.name))
    return codes


def find_codes(each: Labels | Bins, values: pa.Array) -> NDArray[np.int64]:
    """The entry that each value lights; the number of entries where it lights none."""
    if isinstance(each, Bins):
        return _find_bins(each, values)
    codes = find_labels(each, values)
    return np.where(codes < 0, len(each.labels), codes)


def _find_bins(bins: Bins, values: pa.Array) -> NDArray[np.int64]:
    """The bin of each value, by one subtraction, one division and a floor; nulls are decided before clamping."""
    inside, missing = _read_inside(bins.number, values)
    low = float(bins.number.lower)
    found = np.clip(np.floor((inside - low) / float(bins.width)), 0, bins.count - 1).astype(np.int64)
    return np.where(missing, bins.count, found)


def _read_inside(number: Number, values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Values within their bounds, the lower one where null; and which are null, decided before clamping."""
    plain, low = _read_numbers(number, values), float(number.lower)
    missing = np.isnan(plain)
    return np.clip(np.where(missing, low, plain), low, float(number.upper)), missing


def write_knots(knots: Knots, values: pa.Array, block: Entries) -> None:
    """Write how near each value is to the two knots beside it, in whole steps that add up to STEPS."""
    inside, missing = _read_inside(knots.number, values)
    low, last = float(knots.number.lower), knots.count - 1
    reach = float(knots.number.upper) - low or 1.0
    place = np.clip(np.rint((inside - low) / reach * (last * STEPS)), 0, last * STEPS).astype(np.int64)
    left = np.clip(place // STEPS, 0, max(0, last - 1))
    known = np.flatnonzero(~missing)
    if last:
        block[known, left[known] + 1] = (place - left * STEPS)[known]
    block[known, left[known]] = (STEPS - (place - left * STEPS))[known]
    if knots.nullable:
        block[missing, knots.count] = STEPS


def find_labels(labels: Labels, values: pa.Array) -> NDArray[np.int64]:
    """The place of each value in the list of labels; -1 for null and for any other."""
    kind = {ColumnType.BOOLEAN: pa.bool_(), ColumnType.INTEGER: pa.int64(), ColumnType.DECIMAL: pa.float64()}
    listed = pa.array(labels.labels, kind.get(labels.type, pa.string()))
    found = pc.index_in(_cast(labels.name, values, listed.type), value_set=listed)
    return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def write_numbers(number: Number, values: pa.Array, block: Entries) -> None:
    """Write the clamped entry of each value."""
    steps, missing = steps_of(number, values)
    block[:, 0] = steps
    if number.nullable:
        block[missing, 1] = STEPS


def steps_of(number: Number, values: pa.Array, steps: int = STEPS) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Values in steps from -steps to steps, 0 where null; and which are null.

    Nulls are decided before clamping. Only single subtractions, divisions and roundings follow: each is rounded
    correctly by the standard, so that a value has one entry on every machine and in every company.
    """
    plain = _read_numbers(number, values)
    missing = np.isnan(plain)
    inside = np.clip(np.where(missing, float(number.middle), plain), float(number.lower), float(number.upper))
    entry = np.rint((inside - float(number.middle)) / float(number.half) * steps)
    return np.clip(entry, -steps, steps).astype(np.int64), missing


def _read_numbers(number: Number, values: pa.Array) -> NDArray[np.float64]:
    if number.type is ColumnType.DATE:
        values = _cast(number.name, _cast(number.name, values, pa.date32()), pa.int32())
    elif number.type is ColumnType.DATETIME:
        values = _cast(number.name, _cast(number.name, values, pa.timestamp("s")), pa.int64())
    return np.asarray(_cast(number.name, values, pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def _cast(name: str, values: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return values.cast(kind, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"column '{name}' cannot be read as {kind}", remedy="Read the rows with the types that the policy declares"
        ) from None


Known = NDArray[np.bool_]
"""Which rows have a target; the others are not learned from."""


@dataclass(frozen=True, slots=True)
class ClassTarget:
    """Whether a column has its positive value."""

    column: Labels
    positive: str | int | bool

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name


@dataclass(frozen=True, slots=True)
class NumberTarget:
    """The value of a bounded column."""

    column: Number

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name


@dataclass(frozen=True, slots=True)
class LabelsTarget:
    """Which of its listed values a column has."""

    column: Labels

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name


@dataclass(frozen=True, slots=True)
class Structure:
    """What is looked for where no column is predicted: so many groups of rows, or components of their entries."""

    name: str
    """`GROUP` or `COMPONENT`."""
    count: int

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the groups or components, from 1."""
        return tuple(f"{self.name} {number}" for number in range(1, self.count + 1))


GROUP, COMPONENT = "group", "component"
MOST_PARTS = 64
Target = ClassTarget | NumberTarget | LabelsTarget | Structure


def build_labels_target(table: TableSchema, name: str, others: str = "linear, boosted or auto") -> LabelsTarget:
    """The target of a method that tells all values apart; `others` are methods for numbers."""
    column = build_feature(find_column(table, name), table)
    if not isinstance(column, Labels):
        raise ParameterError(f"'{name}' is a number, and has no listed values to tell apart", remedy=f"Use {others}")
    _refuse_single(column)
    return LabelsTarget(column)


def _refuse_single(column: Labels) -> None:
    if len(column.labels) < 2:
        raise ParameterError(
            f"'{column.name}' has one declared value, so there is nothing to tell apart",
            expected="At least two declared values",
            remedy="Name another target, or declare its other values in the policy",
        )


def build_target(table: TableSchema, name: str, positive: str | None = None) -> ClassTarget | NumberTarget:
    """The target that a declared column is; `positive` names the value to tell from all others.

    Where two values are declared, the last one is positive unless told otherwise.
    """
    column = build_feature(find_column(table, name), table)
    if isinstance(column, Number):
        if positive is not None:
            raise ParameterError(f"'{name}' is a number, and has no positive value", remedy="Leave positive out")
        return NumberTarget(column)
    if positive is None and len(column.labels) == 2:
        return ClassTarget(column, column.labels[1])
    known = [str(label) for label in column.labels]
    if positive is None:
        _refuse_single(column)
        raise ParameterError(
            f"'{name}' has {len(known)} values, and a model tells one from the others",
            remedy="Say which (--positive VALUE), or tell all apart with --method multinomial or bayes",
        )
    if positive not in known:
        listed = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
        raise ParameterError(
            f"'{name}' has no declared value of that name", expected=f"One of {listed}", remedy=nearest(positive, known)
        )
    return ClassTarget(column, column.labels[known.index(positive)])


def encode_target(
    wanted: Target, rows: pa.Table | pa.RecordBatch, steps: int = STEPS
) -> tuple[NDArray[np.int64], Known]:
    """The target of each row (0 or 1; the place of its value; steps from -steps to steps), and which rows have one.

    A structure has no target: every row counts.
    """
    if isinstance(wanted, Structure):
        return np.zeros(rows.num_rows, np.int64), np.ones(rows.num_rows, np.bool_)
    values = column_of(rows, wanted.name)
    if isinstance(wanted, NumberTarget):
        entries, missing = steps_of(wanted.column, values, steps)
        return entries, ~missing
    codes = find_labels(wanted.column, values)
    if isinstance(wanted, LabelsTarget):
        return codes, codes >= 0
    return (codes == wanted.column.labels.index(wanted.positive)).astype(np.int64), codes >= 0
