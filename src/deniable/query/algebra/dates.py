"""What is public of dates that are moved, counted in seconds or written as texts, and how patterns of dates are read.

A date moves by a literal number of months or seconds, so that its bounds move with it. A pattern is made of the years,
months, days, hours, minutes and seconds that PostgreSQL (`YYYY-MM`) and DuckDB (`%Y-%m`) can write; a bounded date that
is written so has finitely many texts, which are listed."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime, timedelta
from fractions import Fraction

from deniable.query.algebra.expression import (
    FIRST,
    LAST,
    Facts,
    Kind,
    Value,
    calendar_range,
    from_number,
    to_number,
)
from deniable.query.algebra.intervals import MOST_DAYS, TEMPORAL, Mismatch, number, require_kinds

MOST_MONTHS = 12_000
"""Months that a date may be moved by; each move ends in the calendar, so no chain of them leaves what engines hold."""
DAY = 86_400
LONGEST_PATTERN = 60
WRITTEN = {"YYYY": "%Y", "HH24": "%H", "MM": "%m", "DD": "%d", "MI": "%M", "SS": "%S", "US": "%f"}
"""Parts of a pattern as PostgreSQL writes them, and as the engine does."""
LENGTHS = {"%Y": 4, "%m": 2, "%d": 2, "%H": 2, "%M": 2, "%S": 2}
_PART = re.compile("|".join(WRITTEN))
_PLACE = re.compile("%.?")


def add_months(moment: date, months: int) -> date:
    """The same day so many months on, or the last day of that month if it is shorter; within the calendar.

    >>> add_months(date(2020, 1, 31), 1), add_months(date(2020, 3, 31), -13)
    (datetime.date(2020, 2, 29), datetime.date(2019, 2, 28))
    """
    count = moment.year * 12 + moment.month - 1 + months
    year, month = count // 12, count % 12 + 1
    if not FIRST.year <= year <= LAST.year:
        end = FIRST if year < FIRST.year else LAST
        return moment.replace(year=end.year, month=end.month, day=end.day)
    return moment.replace(year=year, month=month, day=min(moment.day, monthrange(year, month)[1]))


def _move(facts: tuple[Facts, ...], kind: Kind, shift: Callable[[date, int], date], most: int) -> Facts:
    """A date moved by a literal: both ends move, and stay in the calendar."""
    a, by = facts
    require_kinds((kind,), a)
    if by.lower is None or by.lower != by.upper or by.lower.denominator != 1 or abs(by.lower) > most:
        raise Mismatch("moves a date by an interval that is written out, and not too long")
    ends = [_shift_end(a.kind, end, int(by.lower), shift) for end in (a.lower, a.upper)]
    return number(a.kind, ends[0], ends[1], Fraction(1) if a.kind is Kind.DATE else None, a, by)


def _shift_end(kind: Kind, end: Fraction | None, by: int, shift: Callable[[date, int], date]) -> Fraction | None:
    value = None if end is None else from_number(kind, end)
    return to_number(shift(value, by)) if isinstance(value, date) else None


def add_seconds(moment: date, seconds: int) -> date:
    """A moment so many seconds on, within the calendar."""
    first, last = calendar_range(Kind.DATETIME)
    moved = from_number(Kind.DATETIME, min(max(to_number(moment) + seconds, first), last))
    assert isinstance(moved, date)
    return moved


def move_by(moment: date, months: int, seconds: int) -> date:
    """A date or a moment that is written out, so much later; a date stays one where whole days are added."""
    moved = add_months(moment, months)
    if not seconds:
        return moved
    at = moved if isinstance(moved, datetime) else datetime(moved.year, moved.month, moved.day)
    later = add_seconds(at, seconds)
    whole = not isinstance(moment, datetime) and seconds % DAY == 0
    return date(later.year, later.month, later.day) if whole else later


def move_date_by_months(facts: tuple[Facts, ...]) -> Facts:
    """A date some months on."""
    return _move(facts, Kind.DATE, add_months, MOST_MONTHS)


def move_by_months(facts: tuple[Facts, ...]) -> Facts:
    """A moment some months on."""
    return _move(facts, Kind.DATETIME, add_months, MOST_MONTHS)


def move_by_seconds(facts: tuple[Facts, ...]) -> Facts:
    """A moment some seconds on."""
    return _move(facts, Kind.DATETIME, add_seconds, MOST_DAYS * DAY)


def epoch(facts: tuple[Facts, ...]) -> Facts:
    """Seconds since 1970."""
    (a,) = facts
    require_kinds(TEMPORAL, a)
    each = DAY if a.kind is Kind.DATE else 1
    ends = [None if end is None else end * each for end in (a.lower, a.upper)]
    return number(Kind.DECIMAL, ends[0], ends[1], Fraction(DAY) if a.kind is Kind.DATE else None, a)


def write_date(facts: tuple[Facts, ...]) -> Facts:
    """A date as a text of a literal pattern; the texts of a bounded date are listed."""
    a, pattern = facts
    require_kinds(TEMPORAL, a)
    require_kinds((Kind.TEXT,), pattern)
    if pattern.domain is None or len(pattern.domain) != 1:
        raise Mismatch("takes a pattern that is written out, such as 'YYYY-MM'")
    longest = _measure_pattern(str(pattern.domain[0]))
    domain = _list_texts(a, str(pattern.domain[0])) if a.kind is Kind.DATE else None
    return Facts(Kind.TEXT, domain=domain, public=a.public, longest=longest)


def _measure_pattern(pattern: str) -> int:
    places = _PLACE.findall(pattern)
    unknown = next((each for each in places if each not in LENGTHS), None)
    if unknown is not None or len(pattern) > LONGEST_PATTERN:
        raise Mismatch(f"takes a pattern of years, months, days, hours, minutes and seconds, such as {WRITTEN_SO}")
    return len(pattern) + sum(LENGTHS[each] - 2 for each in places)


WRITTEN_SO = "'YYYY-MM-DD HH24:MI:SS' or '%Y-%m'"


def _list_texts(facts: Facts, pattern: str) -> tuple[Value, ...] | None:
    days = facts.values()
    return None if days is None else tuple(dict.fromkeys(format_date(day, pattern) for day in days))


def format_date(moment: Value, pattern: str) -> str:
    """A date or a moment in a pattern of the engine, as the engine writes it.

    >>> format_date(date(5, 2, 1), "%Y/%m")
    '0005/02'
    """
    assert isinstance(moment, date)
    known = {"%Y": f"{moment.year:04}", "%m": f"{moment.month:02}", "%d": f"{moment.day:02}"}
    at = moment if isinstance(moment, datetime) else datetime(moment.year, moment.month, moment.day)
    known |= {"%H": f"{at.hour:02}", "%M": f"{at.minute:02}", "%S": f"{at.second:02}"}
    return _PLACE.sub(lambda found: known[found[0]], pattern)


def translate_pattern(pattern: str) -> str:
    """A pattern as PostgreSQL writes it, as the engine does; other letters than those of its parts are refused.

    >>> translate_pattern("YYYY-MM")
    '%Y-%m'
    """
    plain = _PART.sub("", pattern)
    if any(each.isalnum() or each in '%"' for each in plain.replace("T", "").replace(".", "")):
        raise Mismatch(f"takes a pattern of years, months, days, hours, minutes and seconds, such as {WRITTEN_SO}")
    return _PART.sub(lambda found: WRITTEN[found[0]], pattern)


HINT = (
    "reads a text that is written out, such as TO_DATE('31.12.2024', 'DD.MM.YYYY'), and not a column. The policy reads "
    "such a column, with csv: {dates: day-first} and type: date. CAST(x AS DATE) reads 2024-12-31, and all else as NULL"
)
"""What to do about a column of dates in another spelling."""


def read_date(text: str, pattern: str) -> datetime:
    """A literal text read by a pattern as PostgreSQL writes it."""
    try:
        return datetime.strptime(text, translate_pattern(pattern))
    except ValueError:
        raise Mismatch("has a text that does not fit its pattern") from None


def read_seconds(seconds: Value) -> datetime:
    """The moment so many seconds after 1970, within the calendar."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | Fraction):
        raise Mismatch("takes a number of seconds that is written out, or a text with its pattern")
    first, last = calendar_range(Kind.DATETIME)
    return datetime(1970, 1, 1) + timedelta(microseconds=int(min(max(Fraction(seconds), first), last) * 1_000_000))
