"""Calendar arithmetic for public keys: the finitely many months, weeks or years that a bounded date can fall in."""

from __future__ import annotations

from datetime import date, timedelta

from deniable.query.expression import DOMAIN_LIMIT, Facts, from_number


def truncate(day: date, unit: str) -> date:
    """The first day of the year, quarter, month or (Monday's) week that a day lies in."""
    match unit:
        case "year":
            return date(day.year, 1, 1)
        case "quarter":
            return date(day.year, 3 * ((day.month - 1) // 3) + 1, 1)
        case "month":
            return date(day.year, day.month, 1)
        case "week":
            return day - timedelta(days=day.weekday())
        case _:
            return day


def truncated_domain(facts: Facts, unit: str) -> tuple[date, ...] | None:
    """Every value that truncating a bounded date can give, in order; None when it is not bounded or there are many."""
    if facts.lower is None or facts.upper is None:
        return None
    first, last = from_number(facts.kind, facts.lower), from_number(facts.kind, facts.upper)
    assert isinstance(first, date)
    assert isinstance(last, date)
    day, end = date(first.year, first.month, first.day), date(last.year, last.month, last.day)
    found = [truncate(day, unit)]
    while (following := _next(found[-1], unit)) is not None and following <= end:
        found.append(following)
        if len(found) > DOMAIN_LIMIT:
            return None
    return tuple(found)


def _next(start: date, unit: str) -> date | None:
    """The first day of the following unit; None at the end of the calendar."""
    days = {"year": 366, "quarter": 92, "month": 31, "week": 7}.get(unit, 1)
    if (date.max - start).days < days:
        return None
    # A step that is never too short lands in the following unit, whose first day is wanted.
    return truncate(start + timedelta(days=days), unit)
