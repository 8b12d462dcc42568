"""Values that rows could not leave with as they are: numbers that reading rounds, and dates that no output holds.

Questions may compute with numbers in double precision. A released cell holds what the source holds, or is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from deniable.engines.base import Field, quote
from deniable.errors import DataError
from deniable.policy.schema import ColumnType

if TYPE_CHECKING:
    from deniable.engines.duckdb.scan import Scan

MOST_DIGITS = 38
"""Digits of a decimal that the engine reads as it is; wider ones of Parquet come as doubles."""
_EXACT = 15
"""Every number of so many digits is the same after it was a double."""
_FIRST, _LAST = "0001-01-01", "9999-12-31"


def render_rounded(text: str, double: str) -> str:
    """The condition under which a number is another one in double precision than in the text.

    Their digits are compared, without zeros before and behind them: two numbers of the same digits differ by a power
    of ten, and a double is never so far from what it was read from, but for 0 and infinity, which have no such digits.
    """
    doubtful = f"(strlen({text}) > {_EXACT} OR regexp_matches({text}, '[eE]'))"
    differ = f"{_take_digits(text)} <> {_take_digits(f'CAST({double} AS VARCHAR)')}"
    return f"CASE WHEN {doubtful} THEN coalesce({differ}, false) ELSE false END"


def _take_digits(number: str) -> str:
    mantissa = f"regexp_replace(lower({number}), 'e.*$', '')"
    return f"rtrim(ltrim(regexp_replace({mantissa}, '[^0-9]', '', 'g'), '0'), '0')"


def find_wide(schema: pa.Schema) -> tuple[int, ...]:
    """The places of decimals with more digits than the engine reads."""
    return tuple(p for p, f in enumerate(schema) if pa.types.is_decimal(f.type) and f.type.precision > MOST_DIGITS)


def refuse_wide(schema: pa.Schema, title: str) -> None:
    """Refuse rows in memory, and Arrow files, with decimals that the engine cannot read at all."""
    for place in find_wide(schema):
        raise DataError(
            f"column '{schema.names[place]}' of {title} has decimals of more than {MOST_DIGITS} digits",
            remedy=f"Write it as a decimal of at most {MOST_DIGITS} digits, or as text",
            column=schema.names[place],
        )


def list_conditions(scan: Scan, columns: Collection[str]) -> dict[str, str]:
    """For each column that could hold such numbers, the condition for it over the source's own columns."""
    return {name: condition for name, condition in scan.rounded.items() if name in columns}


def refuse_rounded(found: Mapping[str, bool | None], wide: Collection[str]) -> None:
    """Refuse the first column in which a number was found that reading rounds; of `wide` ones, no number is kept."""
    for name in (name for name, rounded in found.items() if rounded):
        raise DataError(
            f"column '{name}' has numbers that are rounded when they are read, in double precision",
            expected=f"Numbers whose digits double precision keeps, as it keeps {_EXACT}, where rows are released",
            remedy=("W" if name in wide else "Declare the column as type: integer or type: text in a policy, or w")
            + f"rite it to Parquet as a decimal of at most {MOST_DIGITS} digits, or as floating-point numbers",
            column=name,
        )


def render_beyond(fields: Collection[Field], columns: Collection[str]) -> dict[str, str]:
    """For each column of dates or times, the condition under which no output can hold one."""
    ends = {
        ColumnType.DATE: f"BETWEEN DATE '{_FIRST}' AND DATE '{_LAST}'",
        ColumnType.DATETIME: f"BETWEEN TIMESTAMP '{_FIRST}' AND TIMESTAMP '{_LAST} 23:59:59.999999'",
    }
    return {
        field.name: f"CAST({quote(field.name)} AS {'DATE' if field.type is ColumnType.DATE else 'TIMESTAMP'}) NOT "
        + ends[field.type]
        for field in fields
        if field.type in ends and field.name in columns
    }


def refuse_beyond(found: Mapping[str, bool | None]) -> None:
    """Refuse the first column in which a date was found that is none of the years 1 to 9999."""
    for name in (name for name, beyond in found.items() if beyond):
        raise DataError(
            f"column '{name}' has dates before the year 1, after the year 9999, or without an end",
            expected="Dates of the years 1 to 9999, where rows are released",
            remedy="Correct them in the source, make them null there, or leave the column out",
            column=name,
        )
