"""Numbers without loss: read from a column, divided into steps, and written with all the digits they have.

A number is what it is written as: 0.1 is a tenth. Where floats hold the numbers of a column, they are floats; else
whole numbers and fractions, in an array of objects, in which only infinite numbers are floats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError
from deniable.kanonymity.hierarchy import Ends, sort_leaves

Numbers = NDArray[Any]
Number = int | float | str | Decimal | Fraction
Edge = int | float | Fraction
"""An edge of a range: infinite, or so long that it was rounded outwards, where it is a float."""

EXACT = 2**53
"""From here on a float stands for several whole numbers."""
WHOLE = 10**21
"""Whole numbers below this are written with all their digits, also those of floats."""
TOLD = 15
"""Floats tell all numbers apart that have at most so many digits."""
LONGEST = 10**80
"""Numerators and denominators beyond this are rounded, outwards."""


def make_exact(number: Number) -> Fraction:
    """The number that is written so.

    >>> make_exact(0.1), make_exact("-0.5"), make_exact(2**60)
    (Fraction(1, 10), Fraction(-1, 2), Fraction(1152921504606846976, 1))
    """
    return Fraction(repr(float(number))) if isinstance(number, float) else Fraction(number)


def shorten(number: Fraction) -> int | Fraction:
    """A whole number as such."""
    return number.numerator if number.denominator == 1 else number


def read_numbers(column: str, values: pa.Array) -> tuple[pa.Array, Numbers]:
    """Distinct values by size, and as numbers; text that is not a number is refused without being shown."""
    values = sort_leaves(values)
    try:
        floats = np.array(pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _refuse_texts(column) from None
    found = _read_exactly(column, values, floats)
    if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
        return values, found
    order = np.argsort(found, kind="stable")  # texts were sorted by letters
    return values.take(pa.array(order)), found[order]


def _refuse_texts(column: str) -> DataError:
    return DataError(
        f"Column '{column}' holds values that are not numbers, and its hierarchy is one of numbers",
        remedy="Declare another hierarchy, or the column's type",
    )


def _read_exactly(column: str, values: pa.Array, floats: NDArray[np.float64]) -> Numbers:
    """The floats that Arrow made of the values, where they are the values; else whole numbers and fractions."""
    kind, largest = values.type, np.abs(floats[np.isfinite(floats)]).max(initial=0.0)
    if pa.types.is_decimal(kind) and largest * 10.0**kind.scale < 10.0**TOLD:
        power = 10.0 ** max(kind.scale, 0)
        return np.rint(floats * power) / power if power < WHOLE else _list_exactly(column, values, floats)
    if pa.types.is_integer(kind) and largest < EXACT:
        return floats
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        long = pc.or_(pc.greater(pc.utf8_length(values), TOLD), pc.match_substring_regex(values, "[eE]"))
        return _list_exactly(column, values, floats) if pc.any(long).as_py() else floats
    plain = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    return _list_exactly(column, values, floats) if plain else floats


def _list_exactly(column: str, values: pa.Array, floats: NDArray[np.float64]) -> Numbers:
    if np.isnan(floats).any():
        raise _refuse_texts(column)
    near = floats.tolist()
    return fill_objects(
        value if isinstance(value, int) else close if not close or math.isinf(close) else shorten(Fraction(str(value)))
        for value, close in zip(values.to_pylist(), near, strict=True)
    )


def fill_objects(numbers: Iterable[Any]) -> Numbers:
    """An array of these objects, an infinite float or none among them."""
    listed = [0 if number == 0 else number for number in numbers]
    made = np.empty(len(listed), np.object_)
    made[:] = listed
    return made


def find_finite(numbers: Numbers) -> NDArray[np.bool_]:
    """Which numbers are finite."""
    if numbers.dtype == np.object_:
        return np.array([not isinstance(number, float) for number in numbers], np.bool_)
    return np.asarray(np.isfinite(numbers))


def clip_numbers(numbers: Numbers, low: Fraction | None, high: Fraction | None) -> Numbers:
    """Numbers no lower and no higher than two thresholds."""
    ends = [end for end in (low, high) if end is not None]
    if numbers.dtype != np.object_ and all(is_held(end) for end in ends) and ends and len(numbers):
        return np.clip(numbers, None if low is None else float(low), None if high is None else float(high))
    exactly = (n if numbers.dtype == np.object_ or not math.isfinite(n) else make_exact(n) for n in numbers.tolist())
    raised = (number if low is None or number >= low else low for number in exactly)
    cut = (number if high is None or number <= high else high for number in raised)
    return fill_objects(shorten(number) if isinstance(number, Fraction) else number for number in cut)


CLEAR, SMALL = 1e-6, 2.0**30
"""A quotient of at most that size is told apart from whole numbers farther away than that."""


def find_slots(numbers: Numbers, start: Number, width: Number) -> NDArray[Any]:
    """The number of the step that holds each value, rounded down as if nothing else were; 0 of infinite ones.

    Where a float could be rounded over an edge, the number is divided as it is written.
    """
    begin, step = shorten(make_exact(start)), shorten(make_exact(width))
    if numbers.dtype == np.object_:
        return _pack_slots([0 if isinstance(n, float) else int((n - begin) // step) for n in numbers])
    first, wide = float(begin), float(step)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        quotient = (numbers - first) / wide
        shift = abs(first / wide) if wide else math.inf
    whole = isinstance(begin, int) and isinstance(step, int) and bool((numbers == np.floor(numbers)).all())
    if whole and max(np.abs(numbers).max(initial=0.0), abs(begin), step) < EXACT // 2:
        return np.floor(quotient).astype(np.int64)
    with np.errstate(invalid="ignore"):
        clear = (np.abs(quotient) + shift < SMALL) & (np.abs(quotient - np.rint(quotient)) > CLEAR)
    found = np.floor(np.where(clear, quotient, 0.0)).astype(np.int64)
    doubtful = np.flatnonzero(~clear & np.isfinite(numbers))
    exactly = _pack_slots([int((make_exact(number) - begin) // step) for number in numbers[doubtful].tolist()])
    found = found.astype(exactly.dtype)
    found[doubtful] = exactly
    return found


def _pack_slots(slots: Sequence[int]) -> NDArray[Any]:
    try:
        return np.array(slots, np.int64)
    except OverflowError:
        return fill_objects(slots)


def merge_slots(slots: NDArray[Any], many: int) -> NDArray[Any]:
    """The number of the wider step that holds so many steps."""
    merged: NDArray[Any] = (slots if many < 2**62 else slots.astype(np.object_)) // many
    return merged


def settle_edge(edge: int | Fraction, away: int) -> Edge:
    """An edge as it is, or, where it would be written with very many digits, a float that is not inside the range."""
    if abs(edge.numerator) < LONGEST and edge.denominator < LONGEST:
        return edge
    return round_edge(Fraction(edge), away)


def round_edge(edge: Fraction, away: int) -> float:
    """The float nearest to an edge that is not on its other side: below it, or above it where `away` is above 0."""
    try:
        near = float(edge)
    except OverflowError:
        return math.copysign(math.inf, edge)
    exactly = make_exact(near)
    return near if exactly == edge or (exactly > edge) == (away > 0) else math.nextafter(near, away * math.inf)


def is_held(edge: Edge) -> bool:
    """Whether a float is written as this number."""
    if isinstance(edge, float) or (isinstance(edge, int) and abs(edge) < EXACT):
        return True
    try:
        return make_exact(float(edge)) == edge
    except OverflowError:
        return False


def stack_ends(pairs: Sequence[tuple[Edge, Edge]]) -> Ends:
    """The ends of groups: floats, where floats hold them."""
    if all(is_held(edge) for pair in pairs for edge in pair):
        return np.array([(float(low), float(high)) for low, high in pairs], np.float64).reshape(-1, 2)
    return fill_objects(edge for pair in pairs for edge in pair).reshape(-1, 2)


def write_number(number: Edge) -> str:
    """A number as people write it, with all its digits: whole numbers without a point.

    >>> write_number(20.0), write_number(0.5), write_number(2**60 + 1), write_number(Fraction(2**60 + 1, 10))
    ('20', '0.5', '1152921504606846977', '115292150460684697.7')
    """
    if isinstance(number, float) and (not number.is_integer() or abs(number) < EXACT or abs(number) >= WHOLE):
        return str(int(number)) if number.is_integer() and abs(number) < EXACT else repr(float(number))
    exactly = make_exact(number)
    if exactly.denominator == 1 and abs(exactly) < WHOLE:
        return str(exactly.numerator)
    return repr(float(exactly)) if is_held(exactly) else _write_digits(exactly)


def _write_digits(number: Fraction) -> str:
    """A fraction of powers of ten, digit by digit."""
    places = next(n for n in range(number.denominator.bit_length() + 1) if 10**n % number.denominator == 0)
    return write_decimals(number.numerator * (10**places // number.denominator), places)


def write_decimals(number: int, places: int) -> str:
    """A whole number of parts of a power of ten.

    >>> write_decimals(-30, 2), write_decimals(5, 0)
    ('-0.30', '5')
    """
    digits = str(abs(number)).rjust(places + 1, "0")
    point = len(digits) - places
    return ("-" if number < 0 else "") + digits[:point] + ("." + digits[point:] if places else "")


def label_interval(low: Edge, high: Edge) -> str:
    """The label of a half-open interval.

    >>> label_interval(20, 30), label_interval(70, math.inf)
    ('[20, 30)', '[70, inf)')
    """
    first = "(-inf" if low == -math.inf else f"[{write_number(low)}"
    return f"{first}, {'inf' if high == math.inf else write_number(high)})"
