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
    while (following := _next(found[-1], unit)) <= end:
        found.append(following)
        if len(found) > DOMAIN_LIMIT:
            return None
    return tuple(found)


def _next(start: date, unit: str) -> date:
    match unit:
        case "year":
            return date(start.year + 1, 1, 1)
        case "quarter" | "month":
            months = start.year * 12 + start.month - 1 + (3 if unit == "quarter" else 1)
            return date(months // 12, months % 12 + 1, 1)
        case _:
            return start + timedelta(days=7 if unit == "week" else 1)
