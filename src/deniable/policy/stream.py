"""Streams: numbers that are published every day, week or month, within one budget for all of them together.

A stream declares everything that its price depends on before the first number leaves: how many periods, what one
person may add to each and in how many of them, which questions, and the budget of the whole. Periods are days of the
calendar; what they are follows from the declaration alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

from deniable.errors import ParameterError
from deniable.policy.access import Period
from deniable.policy.budget import Budget, budget
from deniable.policy.schema import ColumnType, TableSchema

if TYPE_CHECKING:
    from deniable.policy.check.tree_checker import Section
    from deniable.policy.yaml_tree import Mistakes

LAST_STARTING_DAY = 28
"""Months begin on a day that every month has."""
MONTHS = {Period.MONTH: 1, Period.QUARTER: 3, Period.YEAR: 12}
DAYS = {Period.DAY: 1, Period.WEEK: 7}


@dataclass(frozen=True, slots=True)
class StreamQuestion:
    """One number, or one for each declared category of the columns in `by`; with `levels`, their totals as well.

    `measure` is count, people, sum or mean; `column` is what is summed or averaged; `where` a condition in SQL.
    """

    name: str
    measure: str
    column: str = ""
    by: tuple[str, ...] = ()
    levels: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """A schedule of questions: each is asked of every period, from `start` on, and all of it costs `allowance` once.

    A row belongs to the period of its `time`. A person counts in at most `max_periods` of the periods (None is all). A
    period is read `wait` periods after it ended, and never again. `totals` says which totals over time are made most
    accurate: prefixes, ranges or windows of `window` periods.
    """

    name: str
    table: str
    time: str
    every: Period
    start: date
    periods: int
    allowance: Budget
    questions: tuple[StreamQuestion, ...]
    max_periods: int | None = None
    wait: int = 0
    totals: str = "ranges"
    window: int | None = None

    def first_day(self, period: int) -> date:
        """The first day of a period; the day after the last one ends the stream.

        >>> stream = Stream("s", "t", "day", Period.MONTH, date(2026, 11, 1), 12, budget(1), ())
        >>> str(stream.first_day(0)), str(stream.first_day(3))
        ('2026-11-01', '2027-02-01')
        """
        if self.every in DAYS:
            return self.start + timedelta(days=DAYS[self.every] * period)
        months = self.start.month - 1 + MONTHS[self.every] * period
        return date(self.start.year + months // 12, months % 12 + 1, self.start.day)

    def count_ended(self, today: date) -> int:
        """How many periods have ended before a day, and the waiting time after each."""
        ended = 0
        while ended < self.periods and self.first_day(ended + 1 + self.wait) <= today:
            ended += 1
        return ended

    def find_period(self, day: date) -> int:
        """The period that a day is in."""
        for period in range(self.periods):
            if self.first_day(period) <= day < self.first_day(period + 1):
                return period
        last = self.first_day(self.periods) - timedelta(days=1)
        raise ParameterError(f"{day} is in no period of '{self.name}'", expected=f"{self.start} to {last}")


def build_streams(entry: Section, tables: tuple[TableSchema, ...], mistakes: Mistakes) -> tuple[Stream, ...]:
    """The streams that a policy declares; one with a mistake is left out, and the mistake is told."""
    found = [_build_stream(name, entry.section(name), tables, mistakes) for name in entry]
    return tuple(stream for stream in found if stream is not None)


REQUIRED = ("table", "time", "every", "start", "periods", "questions")


def _build_stream(name: str, entry: Section, tables: tuple[TableSchema, ...], mistakes: Mistakes) -> Stream | None:
    if any(key not in entry for key in REQUIRED) or not ("epsilon" in entry or "rho" in entry):
        return None  # the layout has told what is missing
    try:
        whole = budget(entry.get("epsilon", None), entry.get("delta", 0), entry.get("rho", None))
    except ParameterError as refusal:
        mistakes.add(entry.place_of("rho" if "rho" in entry else "epsilon"), refusal.happened, refusal.expected)
        return None
    questions = tuple(_build_question(each, entry.section("questions").section(each), mistakes)
                      for each in entry.section("questions"))  # fmt: skip
    stream = Stream(
        name,
        entry.get("table", ""),
        entry.get("time", ""),
        Period(entry.get("every", "day")),
        entry.get("start", date.min),
        entry.get("periods", 1),
        whole,
        questions,
        entry.get("max_periods", None),
        entry.get("wait", 0),
        entry.get("totals", "ranges"),
        entry.get("window", None),
    )
    _check_stream(stream, entry, tables, mistakes)
    return stream


def _build_question(name: str, entry: Section, mistakes: Mistakes) -> StreamQuestion:
    measure = next((each for each in ("count", "sum", "mean") if each in entry), "count")
    asked = entry.get(measure, "rows")
    by, levels = entry.get("by", ()), entry.get("levels", False)
    if levels and not by:
        mistakes.add(entry.place_of("levels"), "levels without groups", "Columns under by:")
    if measure == "count":
        return StreamQuestion(name, "people" if asked == "people" else "count", "", by, levels, entry.get("where", ""))
    return StreamQuestion(name, measure, asked, by, levels, entry.get("where", ""))


def _check_stream(stream: Stream, entry: Section, tables: tuple[TableSchema, ...], mistakes: Mistakes) -> None:
    table = next((each for each in tables if each.name == stream.table), None)
    if table is None or table.public:
        mistakes.add(entry.place_of("table"), f"there is no private table '{stream.table}'", "A private table")
        return
    time = table.column(stream.time)
    if time is None or time.type not in (ColumnType.DATE, ColumnType.DATETIME):
        mistakes.add(entry.place_of("time"), f"'{stream.time}' is not a date of '{stream.table}'", "A date or datetime")
    if stream.every in MONTHS and stream.start.day > LAST_STARTING_DAY:
        mistakes.add(entry.place_of("start"), "not every month has this day", "A day up to the 28th")
    if table.unit is not None and table.unit.is_row and stream.max_periods is not None:
        mistakes.add(entry.place_of("max_periods"), "a row is in one period", "No max_periods where the unit is a row")
    for name, most in (("max_periods", stream.max_periods), ("window", stream.window)):
        if most is not None and most > stream.periods:
            mistakes.add(entry.place_of(name), f"{name} is more than all periods", f"At most {stream.periods}")
    if stream.totals == "windows" and stream.window is None:
        mistakes.add(entry.place_of("totals"), "windows of no length", "window: 7, for example")
