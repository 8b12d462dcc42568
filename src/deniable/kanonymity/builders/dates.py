"""Hierarchies of dates and times: hour and part of day, day, weekday, week, month, season, quarter, year, decade."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc

from deniable.errors import DataError, ParameterError, nearest
from deniable.kanonymity.hierarchy import Hierarchy, build_hierarchy, group_by_label, sort_leaves, text_of

Moment = date | datetime


def _hour(moment: Moment) -> int:
    return moment.hour if isinstance(moment, datetime) else 0


def _part_of_day(moment: Moment) -> str:
    return ("night", "morning", "afternoon", "evening")[_hour(moment) // 6]


def _season(moment: Moment) -> str:
    return ("winter", "spring", "summer", "autumn")[moment.month % 12 // 3]


def _week(moment: Moment) -> str:
    year, week, _ = moment.isocalendar()
    return f"{year}-W{week:02}"


PARTS: dict[str, Callable[[Moment], str]] = {
    "hour": lambda m: f"{m:%Y-%m-%d} {_hour(m):02}h",
    "part_of_day": lambda m: f"{m:%Y-%m-%d} {_part_of_day(m)}",
    "day": lambda m: f"{m:%Y-%m-%d}",
    "week": _week,
    "month": lambda m: f"{m:%Y-%m}",
    "quarter": lambda m: f"{m.year:04}-Q{(m.month + 2) // 3}",
    "year": lambda m: f"{m.year:04}",
    "decade": lambda m: f"{m.year // 10 * 10:04}s",
}
"""Parts that keep the calendar: each value of one lies inside one value of any coarser part (weeks excepted)."""

CYCLES: dict[str, Callable[[Moment], str]] = {
    "hour": lambda m: f"{_hour(m):02}h",
    "part_of_day": _part_of_day,
    "weekday": lambda m: f"{m:%A}",
    "month": lambda m: f"{m:%B}",
    "season": _season,
}
"""Parts that forget the calendar and keep the rhythm: what time of day, which weekday, which season."""

CYCLIC = frozenset({"weekday", "season"})
"""Words that only a cycle has; one of them makes all levels of the hierarchy cyclic."""


@dataclass(frozen=True, slots=True)
class Dates:
    """Coarser and coarser parts of a date or time.

    With `weekday` or `season` among the levels the calendar is forgotten from the first level on: an hour is then an
    hour of any day, a month a month of any year. Levels must nest. A week may lie in two months: with a coarser level
    above it, it is cut at the month's (or quarter's, or year's) end, and says in which part it lies.

    >>> from datetime import date
    >>> list(Dates(("month", "year", "decade")).hierarchy("born", pa.array([date(1987, 5, 17)])).rows())
    [('1987-05-17', '1987-05', '1987', '1980s', '*')]
    """

    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        known = {**PARTS, **CYCLES}
        for level in self.levels:
            if level not in known:
                raise ParameterError(
                    f"'{level}' is not a part of a date",
                    expected=f"One of {', '.join(known)}",
                    remedy=nearest(level, known),
                )
        if CYCLIC & set(self.levels) and not set(self.levels) <= set(CYCLES):
            wrong = next(level for level in self.levels if level not in CYCLES)
            raise ParameterError(
                f"'{wrong}' belongs to the calendar and cannot stand beside {' or '.join(sorted(CYCLIC))}",
                expected=f"Together only {', '.join(CYCLES)}",
            )

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        values = sort_leaves(values)
        moments = _parse_moments(column, values)
        parts = CYCLES if CYCLIC & set(self.levels) else PARTS
        levels = [group_by_label([self._part(n, moment, parts) for moment in moments]) for n in range(len(self.levels))]
        leaves = text_of(values)
        return build_hierarchy(column, leaves, [group_by_label(leaves), *levels], ordered=parts is PARTS)

    def _part(self, number: int, moment: Moment, parts: dict[str, Callable[[Moment], str]]) -> str:
        part = parts[self.levels[number]](moment)
        if self.levels[number] == "week" and number + 1 < len(self.levels):
            return f"{part} in {parts[self.levels[number + 1]](moment)}"
        return part


def _parse_moments(column: str, values: pa.Array) -> list[Moment]:
    if pa.types.is_date(values.type):
        return values.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(values.type):
        whole = pc.cast(values, pa.timestamp("us", values.type.tz), safe=False)
        return whole.to_pylist()  # type: ignore[no-any-return]
    try:
        return [_parse_moment(text) for text in text_of(values)]
    except ValueError:
        raise DataError(
            f"Column '{column}' holds values that are not dates, and its hierarchy is one of dates",
            expected="Dates as 2024-05-17, or times as 2024-05-17 08:30",
        ) from None


def _parse_moment(text: str) -> Moment:
    return date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
