"""What follows publicly for texts, dates and casts: the counterpart of the intervals of numbers."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

from deniable.query.calendar import truncated_domain
from deniable.query.expression import Facts, Kind, from_number
from deniable.query.intervals import NUMERIC, TEMPORAL, Rule, corners, need, number, truth

PARTS: dict[str, tuple[int, int]] = {
    "quarter": (1, 4), "month": (1, 12), "week": (1, 53), "day": (1, 31), "dow": (0, 6), "isodow": (1, 7),
    "doy": (1, 366), "hour": (0, 23), "minute": (0, 59), "second": (0, 59),
}  # fmt: skip
TRUNCATIONS = ("year", "quarter", "month", "week", "day", "hour", "minute")


def text_test(facts: tuple[Facts, ...]) -> Facts:
    """A condition on texts."""
    need((Kind.TEXT,), *facts)
    return truth(facts)


def text(count: int) -> Rule:
    """The first `count` arguments are texts, the rest whole numbers; the result is a text."""

    def rule(facts: tuple[Facts, ...]) -> Facts:
        need((Kind.TEXT,), *facts[:count])
        need(NUMERIC, *facts[count:])
        return Facts(Kind.TEXT, public=all(fact.public for fact in facts))

    return rule


def length(facts: tuple[Facts, ...]) -> Facts:
    """A length: a whole number without upper bound."""
    need((Kind.TEXT,), *facts)
    return Facts(Kind.INTEGER, step=Fraction(1), public=all(fact.public for fact in facts))


def part(name: str) -> Rule:
    """A part of a date, such as its month: a whole number from a known range."""

    def rule(facts: tuple[Facts, ...]) -> Facts:
        need(TEMPORAL, *facts)
        low, high = PARTS[name]
        return Facts(Kind.INTEGER, Fraction(low), Fraction(high), Fraction(1), public=facts[0].public)

    return rule


def year(facts: tuple[Facts, ...]) -> Facts:
    """The year of a date, bounded where the date is."""
    need(TEMPORAL, *facts)
    (a,) = facts
    if a.lower is None or a.upper is None:
        return Facts(Kind.INTEGER, step=Fraction(1), public=a.public)
    first, last = from_number(a.kind, a.lower), from_number(a.kind, a.upper)
    assert isinstance(first, date)
    assert isinstance(last, date)
    return Facts(Kind.INTEGER, Fraction(first.year), Fraction(last.year), Fraction(1), public=a.public)


def truncation(unit: str) -> Rule:
    """A date cut to its month, week or the like: finitely many where the date is bounded."""

    def rule(facts: tuple[Facts, ...]) -> Facts:
        need(TEMPORAL, *facts)
        (a,) = facts
        kind = Kind.DATE if unit not in ("hour", "minute") else Kind.DATETIME
        domain = truncated_domain(a, unit) if kind is Kind.DATE else None
        return Facts(kind, domain=domain, public=a.public)

    return rule


def cast(kind: Kind) -> Rule:
    """A value read as another kind; what cannot be read so is null."""

    def rule(facts: tuple[Facts, ...]) -> Facts:
        (a,) = facts
        keeps = a.kind in NUMERIC and kind in NUMERIC
        low, high = (a.lower, a.upper) if keeps and a.bounded else (None, None)
        step = Fraction(1) if kind is Kind.INTEGER else (a.step if keeps else None)
        if kind is Kind.INTEGER and low is not None and high is not None:
            low, high = Fraction(low.__floor__()), Fraction(high.__ceil__())
        domain = a.domain if a.kind is kind else None
        return Facts(kind, low, high, step, domain, True, a.public)

    return rule


def day_difference(facts: tuple[Facts, ...]) -> Facts:
    """Days between two dates."""
    a, b = facts
    need((Kind.DATE,), a, b)
    low, high = corners(lambda x, y: y - x, a, b)
    return number(Kind.INTEGER, low, high, Fraction(1), a, b)
