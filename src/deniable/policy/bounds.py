"""Public bounds and their step, read by the column's type.

Values will be clamped to the bounds and counted in steps, as integers: so a lower bound is a whole multiple of the
step, and whole steps lead from it to the upper one.
"""

from __future__ import annotations

from datetime import date, datetime
from fractions import Fraction

from deniable.policy import scalars
from deniable.policy.mistakes import Mistakes
from deniable.policy.plain import Section
from deniable.policy.reading import Leaf
from deniable.policy.schema import Bounds, ColumnType, Endpoint

MOST_STEPS = 1 << 62
"""So that a clamped value, counted in steps, fits a signed 64-bit integer."""


def bounds(entry: Section, mistakes: Mistakes) -> Bounds | None:
    """The bounds of a column entry, or None if it has none or they are refused."""
    if "between" not in entry:
        if "step" in entry:
            mistakes.add(entry.place_of("step"), "a step without bounds", "Expected: between: [lowest, highest]")
        return None
    kind = _type(entry, mistakes)
    if kind is None:
        return None
    ends = [_end(item.value, kind, mistakes) for item in entry["between"].value]  # type: ignore[attr-defined]
    if len(ends) < 2 or ends[0] is None or ends[1] is None:
        return None
    return _checked(entry, kind, ends[0], ends[1], mistakes)


def _type(entry: Section, mistakes: Mistakes) -> ColumnType | None:
    kind = ColumnType(entry.get("type", "text"))
    if kind in (ColumnType.TEXT, ColumnType.BOOLEAN):
        happened = f"bounds for type {kind}" if "type" in entry else "bounds without a type"
        mistakes.add(entry.place_of("between"), happened, "Expected: type: integer, decimal, date or datetime")
        return None
    return kind


def _end(leaf: object, kind: ColumnType, mistakes: Mistakes) -> Endpoint | None:
    assert isinstance(leaf, Leaf)
    try:
        value = scalars.typed(leaf, kind)
    except scalars.Misread as misread:
        wanted = f"Expected: {misread.wanted[:1].lower()}{misread.wanted[1:]}"
        mistakes.add(leaf.place, f"bound `{leaf.text[:40]}` cannot be read as {kind}", wanted, misread.remedy)
        return None
    assert not isinstance(value, (str, bool))
    return value


def _checked(entry: Section, kind: ColumnType, lower: Endpoint, upper: Endpoint, mistakes: Mistakes) -> Bounds | None:
    place = entry.place_of("between")
    span = _span(lower, upper)
    if span < 0:
        mistakes.add(place, "the bounds are reversed", "Expected: [lowest, highest]", "Swap them")
        return None
    if kind is ColumnType.DECIMAL and "step" not in entry:
        mistakes.add(
            place, "bounds of a decimal column without a step", "Such as step: 0.01", "Values are rounded to it"
        )
        return None
    step: Fraction = entry.get("step", Fraction(1))
    if kind is not ColumnType.DECIMAL and step.denominator != 1:
        mistakes.add(entry.place_of("step"), f"the step of a column of type {kind} is a fraction", "A whole number")
    elif (span / step).denominator != 1 or (kind.numeric and (_number(lower) / step).denominator != 1):
        at = entry.place_of("step") if "step" in entry else place
        mistakes.add(at, "the step does not divide the bounds", "Both bounds are whole multiples of the step")
    elif max(span, *map(abs, (_number(lower), _number(upper)))) / step > MOST_STEPS:
        mistakes.add(place, "the bounds are too many steps apart", "At most 2**62 steps", "Use a larger step")
    else:
        return Bounds(lower, upper, step)
    return None


def _number(end: Endpoint) -> Fraction:
    return Fraction(0) if isinstance(end, date) else Fraction(end)


def _span(lower: Endpoint, upper: Endpoint) -> Fraction:
    """The distance between two bounds, in units, days or seconds."""
    if isinstance(lower, datetime) and isinstance(upper, datetime):
        apart = upper - lower
        return Fraction(apart.days * 86_400 + apart.seconds) + Fraction(apart.microseconds, 1_000_000)
    if isinstance(lower, date) and isinstance(upper, date):
        return Fraction((upper - lower).days)
    return _number(upper) - _number(lower)
