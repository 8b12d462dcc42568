"""Dummy rows: what a table looks like, made from what the policy says of it, so that code can be tried for free.

Nothing is drawn and nothing is read: the i-th value of a column is a point of a sequence that fills the declared
interval or list evenly. Two columns use different sequences, so that all combinations appear. Where the policy
declares nothing, a text says so.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
_DAYS = Bounds(date(2020, 1, 1), date(2029, 12, 31))
_MOMENTS = Bounds(datetime(2020, 1, 1), datetime(2029, 12, 31))


def invented(table: TableSchema, rows: int) -> pa.Table:
    """So many invented rows of a table."""
    import pyarrow as pa

    kinds = {
        ColumnType.INTEGER: pa.int64(),
        ColumnType.DECIMAL: pa.float64(),
        ColumnType.BOOLEAN: pa.bool_(),
        ColumnType.DATE: pa.date32(),
        ColumnType.DATETIME: pa.timestamp("us"),
    }
    unit = table.unit.column if table.unit else None
    arrays = {}
    for place, column in enumerate(table.columns):
        values = [_value(column, place, i, column.name == unit) for i in range(rows)]
        kind = pa.string() if column.type is ColumnType.TEXT else kinds[column.type]
        arrays[column.name] = pa.array(values, kind)
    return pa.table(arrays)


def _value(column: Column, place: int, i: int, is_unit: bool) -> Any:
    share = even(i, _PRIMES[place % len(_PRIMES)])
    if column.categories:
        chosen = column.categories[int(share * len(column.categories))]
        return str(chosen) if column.type is ColumnType.TEXT else chosen
    if is_unit:
        return i // 2 if column.type is ColumnType.INTEGER else f"{column.name}-{i // 2}"
    match column.type:
        case ColumnType.BOOLEAN:
            return share >= Fraction(1, 2)
        case ColumnType.DATE | ColumnType.DATETIME:
            bounds = column.bounds or (_DAYS if column.type is ColumnType.DATE else _MOMENTS)
            return _moment(bounds, share)
        case ColumnType.INTEGER | ColumnType.DECIMAL:
            return _number(column.bounds or Bounds(0, 100), share, column.type)
        case _:
            return f"{column.name}-{i}"


def even(i: int, base: int) -> Fraction:
    """The i-th point of the van der Corput sequence: the digits of i in a base, mirrored at the point.

    >>> [str(even(i, 2)) for i in range(4)]
    ['0', '1/2', '1/4', '3/4']
    """
    share, scale = Fraction(0), Fraction(1, base)
    while i:
        i, digit = divmod(i, base)
        share += digit * scale
        scale /= base
    return share


def _number(bounds: Bounds, share: Fraction, kind: ColumnType) -> Any:
    assert not isinstance(bounds.lower, date)
    assert not isinstance(bounds.upper, date)
    low, high = Fraction(bounds.lower), Fraction(bounds.upper)
    steps = int((high - low) / bounds.step)
    value = low + int(share * (steps + 1)) * bounds.step
    return int(value) if kind is ColumnType.INTEGER else float(min(value, high))


def _moment(bounds: Bounds, share: Fraction) -> Any:
    lower, upper = bounds.lower, bounds.upper
    assert isinstance(lower, date)
    assert isinstance(upper, date)
    if isinstance(lower, datetime) and isinstance(upper, datetime):
        return lower + timedelta(seconds=int(share * int((upper - lower).total_seconds())))
    return lower + timedelta(days=int(share * ((upper - lower).days + 1)))
