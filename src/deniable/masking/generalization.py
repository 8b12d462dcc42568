"""Masks that say less: ages over 89 as one group, ZIP codes to three digits, dates to their year, rounded numbers.

The first three are the ones the HIPAA Safe Harbor rule names (45 CFR 164.514(b)(2)(i)): they turn what must not be
released into what may."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc

from deniable.errors import DataError
from deniable.masking import columns
from deniable.masking.replacement import is_text

OLDEST = 89

# Three-digit ZIP areas with 20,000 people or fewer, which must be written 000. Two lists, and both are applied:
# - Census 2000: HHS Office for Civil Rights, "Guidance Regarding Methods for De-identification of Protected Health
#   Information in Accordance with the HIPAA Privacy Rule" (2012), question on ZIP codes: 17 areas.
# - Census 2010: the same count over the Census Bureau's 2010 ZCTA populations (summary file 1), as published by several
#   research data warehouses (for example Stanford's OMOP de-identification scripts): 18 areas.
RESTRICTED_2000 = frozenset(
    (
        "036",
        "059",
        "063",
        "102",
        "203",
        "556",
        "692",
        "790",
        "821",
        "823",
        "830",
        "831",
        "878",
        "879",
        "884",
        "890",
        "893",
    )
)
RESTRICTED_2010 = frozenset(
    ("036", "059", "102", "202", "203", "204", "205", "369", "556", "692", "753", "772", "821", "823", "878", "879",
     "884", "893")
)  # fmt: skip
RESTRICTED = RESTRICTED_2000 | RESTRICTED_2010
ZIP = r"^[0-9]{5}(-?[0-9]{4})?$"
_SMALL = pa.array(sorted(RESTRICTED), pa.large_string())


@dataclass(frozen=True, slots=True)
class AgeOver89:
    """Every age above 89 becomes 90, which is to be read as "90 or older". Text that is no number becomes null."""

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The grouped ages, in the type of the column."""
        if not is_text(values.type):
            return _cap_values(values, OLDEST + 1)
        encoded = columns.as_text(values).dictionary_encode()
        ages = pa.array([_group_age(age) for age in encoded.dictionary.to_pylist()], pa.large_string())
        return columns.restore_type(ages.take(encoded.indices), values.type)


@dataclass(frozen=True, slots=True)
class Zip3:
    """The first three digits of a ZIP code; 000 for areas of 20,000 people or fewer and for what is not a ZIP code.

    A whole number is read with its leading zeros put back. The answer is always text.
    """

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The three digits of each ZIP code; null stays null."""
        code = pc.utf8_trim_whitespace(columns.as_text(values))
        if pa.types.is_integer(values.type):
            code = pc.utf8_lpad(code, width=5, padding="0")
        area = pc.utf8_slice_codeunits(code, 0, 3)
        fine = pc.and_(pc.match_substring_regex(code, ZIP), pc.invert(pc.is_in(area, value_set=_SMALL)))
        return pc.if_else(fine, area, pa.scalar("000", area.type)).cast(pa.string())


@dataclass(frozen=True, slots=True)
class Year:
    """The year of a date, as a whole number; years that would betray an age above 89 become the last such year.

    `as_of` is the year of the release: a year before as_of - 90 can only belong to somebody older than 89, or to an
    event in the life of somebody who is.
    """

    as_of: int = 0

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The years of a column of dates, timestamps or ISO text."""
        earliest = (self.as_of or date.today().year) - OLDEST - 1
        return pc.max_element_wise(_extract_years(values), pa.scalar(earliest, pa.int64()), skip_nulls=False).cast(
            pa.int32()
        )


@dataclass(frozen=True, slots=True)
class Round:
    """Numbers to the nearest multiple, halves away from zero; the column keeps its type."""

    to: Fraction

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The rounded column; null stays null."""
        kind = values.type
        if pa.types.is_floating(kind):
            return pc.round_to_multiple(values, multiple=float(self.to), round_mode="half_towards_infinity").cast(kind)
        if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
            raise DataError(
                f"a column of type {kind} cannot be rounded", expected="A numeric column", remedy=columns.OTHER_MASK
            )
        encoded = values.dictionary_encode()
        rounded = [_round_nearest(Fraction(value), self.to) for value in encoded.dictionary.to_pylist()]
        return _cast_numbers(rounded, kind).take(encoded.indices)


def _cap_values(values: pa.Array, most: int) -> pa.Array:
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_decimal(values.type)):
        raise DataError(
            f"ages were expected in a column of type {values.type}", expected="Numbers", remedy=columns.OTHER_MASK
        )
    limit = pa.scalar(most, pa.int64()).cast(values.type)
    return pc.min_element_wise(values, limit, skip_nulls=False)


def _group_age(age: str) -> str | None:
    try:
        return age if float(age) <= OLDEST else str(OLDEST + 1)
    except ValueError:
        return None


def _extract_years(values: pa.Array) -> pa.Array:
    if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type):
        return pc.year(values)
    if is_text(values.type):
        start = pc.utf8_slice_codeunits(columns.as_text(values), 0, 10)
        looks = pc.match_substring_regex(start, r"^\d{4}-\d{2}-\d{2}$")
        four = pc.utf8_slice_codeunits(start, 0, 4)
        return pc.if_else(looks, four, pa.scalar(None, four.type)).cast(pa.int64())
    raise DataError(f"years were asked of a column of type {values.type}", expected="Dates", remedy=columns.OTHER_MASK)


def _round_nearest(value: Fraction, to: Fraction) -> Fraction:
    steps = abs(value) / to + Fraction(1, 2)
    whole = steps.numerator // steps.denominator
    return whole * to * (1 if value >= 0 else -1)


def _cast_numbers(numbers: list[Fraction], kind: pa.DataType) -> pa.Array:
    try:
        if pa.types.is_decimal(kind):
            from decimal import Decimal

            return pa.array([Decimal(n.numerator) / Decimal(n.denominator) for n in numbers]).cast(kind)
        return pa.array([int(n) for n in numbers], pa.int64()).cast(kind)
    except (pa.ArrowInvalid, OverflowError):
        raise DataError(f"a rounded value does not fit the type {kind}", remedy="Round to a smaller multiple") from None
