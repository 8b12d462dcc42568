"""Interval arithmetic: what follows publicly for the result of a function from what is public of its arguments.

A rule takes the facts of the arguments and gives the facts of the result, or says what does not fit: first for numbers,
conditions and branches, then for texts, dates and casts, with the finitely many months, weeks or years that a bounded
date can fall in. Rules never see a value; where nothing can be promised they promise nothing, and an aggregate over the
result is refused until the analyst clamps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction
from math import gcd

from deniable.query.algebra.expression import DOMAIN_LIMIT, LONGEST_TEXT, Facts, Kind, calendar_range, from_number

Rule = Callable[[tuple[Facts, ...]], Facts]
MOST_DAYS = 32_767


class Mismatch(Exception):
    """Arguments that do not fit a function; the binder turns it into a refusal with its place."""


def common_step(*steps: Fraction | None) -> Fraction | None:
    """The largest step that divides all of them."""
    found: Fraction | None = None
    for step in steps:
        if step is None or step == 0:
            return None
        found = (
            step
            if found is None
            else Fraction(
                gcd(found.numerator * step.denominator, step.numerator * found.denominator),
                found.denominator * step.denominator,
            )
        )
    return found


def require_kinds(kinds: tuple[Kind, ...], *facts: Facts) -> None:
    """Refuse arguments of another kind; NULL fits everywhere."""
    for fact in facts:
        if fact.kind is not Kind.NULL and fact.kind not in kinds:
            wanted = " or ".join(kind.value for kind in kinds)
            raise Mismatch(f"takes {wanted}, not {fact.kind.value}")


MOST_STEPS = 2**53
"""A row's value is at most so many steps from zero where it is added up: DOUBLE tells such whole numbers apart."""


FINEST_STEP = Fraction(1, 10**30)
AMPLE = 10**9
"""A value without bounds is added up on its own step only where so large a value still fits."""


def choose_sum_step(facts: Facts) -> Fraction | None:
    """The public grid on which values are added up exactly: their own step, else decimals as fine as DOUBLE holds.

    None where nothing is known of the size of a value, so that no grid would fit.

    >>> bounded = Facts(Kind.DECIMAL, Fraction(0), Fraction(10))
    >>> choose_sum_step(bounded), choose_sum_step(Facts(Kind.INTEGER)), choose_sum_step(Facts(Kind.DECIMAL))
    (Fraction(1, 100000000000000), Fraction(1, 1), None)
    """
    step = facts.step or (Fraction(1) if facts.kind in (Kind.INTEGER, Kind.NULL) else None)
    if facts.lower is None or facts.upper is None:
        return step if step is not None and step * MOST_STEPS >= AMPLE else None
    most = max(abs(facts.lower), abs(facts.upper))
    if step is not None and most / step <= MOST_STEPS:
        return step
    finest = Fraction(1)
    while most / finest > MOST_STEPS:
        finest *= 10
    while most and most / finest * 10 <= MOST_STEPS and finest > FINEST_STEP:
        finest /= 10
    return finest


NUMERIC = (Kind.INTEGER, Kind.DECIMAL)
TEMPORAL = (Kind.DATE, Kind.DATETIME)


def number(kind: Kind, lower: Fraction | None, upper: Fraction | None, step: Fraction | None, *args: Facts) -> Facts:
    """The facts of a number computed from others: bounded at both ends or at none, public if all of them are."""
    public = all(fact.public for fact in args)
    known = lower is not None and upper is not None and _is_short(lower) and _is_short(upper)
    step = step if step is not None and _is_short(step) else None
    return Facts(kind, lower if known else None, upper if known else None, step, nullable=True, public=public)


MOST_BITS = 4096
"""Digits of a bound that count: no number of the engine is so long, and products of products would be endless."""


def _is_short(fraction: Fraction) -> bool:
    return max(fraction.numerator.bit_length(), fraction.denominator.bit_length()) <= MOST_BITS


def _whole_kind(*facts: Facts) -> Kind:
    return Kind.INTEGER if all(fact.kind in (Kind.INTEGER, Kind.NULL) for fact in facts) else Kind.DECIMAL


def corners(
    op: Callable[[Fraction, Fraction], Fraction], a: Facts, b: Facts
) -> tuple[Fraction, Fraction] | tuple[None, None]:
    """The ends of an operation over two intervals, where it is extreme at their corners; none where one is open."""
    if not (a.bounded and b.bounded):
        return None, None
    ends = [op(x, y) for x in (a.lower, a.upper) for y in (b.lower, b.upper) if x is not None and y is not None]
    return min(ends), max(ends)


def addition(sign: int) -> Rule:
    """Sums and differences, of numbers, and of dates with days."""

    def rule(facts: tuple[Facts, ...]) -> Facts:
        a, b = facts
        if a.kind is Kind.DATE and b.kind is Kind.INTEGER:
            return _move_date(a, b, sign)
        if sign < 0 and a.kind is b.kind is Kind.DATE:
            low, high = corners(lambda x, y: x - y, a, b)
            return number(Kind.INTEGER, low, high, Fraction(1), a, b)
        require_kinds(NUMERIC, a, b)
        low, high = corners(lambda x, y: x + sign * y, a, b)
        return number(_whole_kind(a, b), low, high, common_step(a.step, b.step), a, b)

    return rule


def _move_date(a: Facts, b: Facts, sign: int) -> Facts:
    """A date moved by days: few enough that no chain of moves leaves what the engine can hold."""
    if b.lower is None or b.upper is None or max(abs(b.lower), abs(b.upper)) > MOST_DAYS:
        raise Mismatch(f"moves a date by at most {MOST_DAYS} days, with public bounds; clamp the number of days")
    low, high = corners(lambda x, y: x + sign * y, a, b)
    if low is not None and high is not None:
        first, last = calendar_range(Kind.DATE)
        low, high = min(max(low, first), last), max(min(high, last), first)
    return number(Kind.DATE, low, high, Fraction(1), a, b)


def multiplication(facts: tuple[Facts, ...]) -> Facts:
    """Products: the hull of the products of the ends."""
    a, b = facts
    require_kinds(NUMERIC, a, b)
    low, high = corners(lambda x, y: x * y, a, b)
    step = a.step * b.step if a.step and b.step else None
    return number(_whole_kind(a, b), low, high, step, a, b)


def division(facts: tuple[Facts, ...]) -> Facts:
    """Quotients, bounded where the divisor keeps away from zero."""
    a, b = facts
    require_kinds(NUMERIC, a, b)
    low: Fraction | None = None
    high: Fraction | None = None
    if b.bounded and b.lower is not None and b.upper is not None and (b.lower > 0 or b.upper < 0):
        low, high = corners(lambda x, y: x / y, a, b)
    step = a.step / abs(b.lower) if a.step and b.lower is not None and b.lower == b.upper and b.lower else None
    return number(Kind.DECIMAL, low, high, step, a, b)


def modulo(facts: tuple[Facts, ...]) -> Facts:
    """Remainders, which take the sign of the dividend."""
    a, b = facts
    require_kinds(NUMERIC, a, b)
    low: Fraction | None = None
    high: Fraction | None = None
    kind = _whole_kind(a, b)
    if b.bounded and b.lower is not None and b.upper is not None:
        reach = max(abs(b.lower), abs(b.upper))
        if kind is Kind.INTEGER:
            reach = max(reach - 1, Fraction(0))  # smaller than the divisor; decimals may be rounded up to it
        low = -reach if a.lower is None else -min(reach, max(-a.lower, Fraction(0)))
        high = reach if a.upper is None else min(reach, max(a.upper, Fraction(0)))
    return number(kind, low, high, common_step(a.step, b.step), a, b)


def monotone(op: Callable[[Fraction], Fraction], kind: Kind | None, step: Fraction | None) -> Rule:
    """A function that keeps the order, applied to both ends."""

    def rule(facts: tuple[Facts, ...]) -> Facts:
        a = facts[0]
        require_kinds(NUMERIC, *facts)
        low = None if a.lower is None else op(a.lower)
        high = None if a.upper is None else op(a.upper)
        return number(kind or a.kind, low, high, step or a.step, *facts)

    return rule


def negation(facts: tuple[Facts, ...]) -> Facts:
    """The interval mirrored."""
    (a,) = facts
    require_kinds(NUMERIC, a)
    return number(a.kind, None if a.upper is None else -a.upper, None if a.lower is None else -a.lower, a.step, a)


def absolute(facts: tuple[Facts, ...]) -> Facts:
    """The interval folded at zero."""
    (a,) = facts
    require_kinds(NUMERIC, a)
    if a.lower is None or a.upper is None:
        return number(a.kind, None, None, a.step, a)
    inside = a.lower <= 0 <= a.upper
    low = Fraction(0) if inside else min(abs(a.lower), abs(a.upper))
    return number(a.kind, low, max(abs(a.lower), abs(a.upper)), a.step, a)


def smooth(low_at: Callable[[float], float], least: float | None = None) -> Rule:
    """A monotone real function: its interval is widened by a hair, and clamped again when it is measured."""

    def rule(facts: tuple[Facts, ...]) -> Facts:
        (a,) = facts
        require_kinds(NUMERIC, a)
        if a.lower is None or a.upper is None or (least is not None and a.lower < least):
            return number(Kind.DECIMAL, None, None, None, a)
        try:
            low, high = Fraction(low_at(float(a.lower))), Fraction(low_at(float(a.upper)))
        except (OverflowError, ValueError):
            return number(Kind.DECIMAL, None, None, None, a)
        return number(Kind.DECIMAL, low, high, None, a)

    return rule


def sign(facts: tuple[Facts, ...]) -> Facts:
    """-1, 0 or 1."""
    require_kinds(NUMERIC, *facts)
    return number(Kind.INTEGER, Fraction(-1), Fraction(1), Fraction(1), *facts)


MOST_POWER = 64


def power(facts: tuple[Facts, ...]) -> Facts:
    """A power with a literal exponent of a bounded number; a whole exponent keeps whole numbers whole."""
    a, n = facts
    require_kinds(NUMERIC, a, n)
    if a.lower is None or a.upper is None or n.lower is None or n.lower != n.upper or not 0 <= n.lower <= MOST_POWER:
        return number(Kind.DECIMAL, None, None, None, a, n)
    if n.lower.denominator != 1:
        return smooth(lambda x: x ** float(n.lower or 0), 0.0)((replace(a, public=a.public and n.public),))
    ends = [a.lower ** int(n.lower), a.upper ** int(n.lower)]
    ends += [Fraction(0)] if a.lower < 0 < a.upper and n.lower else []
    step = a.step ** int(n.lower) if a.step else None
    return number(a.kind, min(ends), max(ends), step, a, n)


def has_real_power(a: Facts, n: Facts) -> bool:
    """Whether every power of these is a number: the base is not below 0, or the exponent is a literal whole number."""
    whole = n.lower is not None and n.lower == n.upper and n.lower.denominator == 1
    return whole or (a.lower is not None and a.lower >= 0)


def extreme(least: bool) -> Rule:
    """The least or the greatest of several; nulls are passed over.

    One end is that of whoever reaches farthest. The other is held only by arguments that are certainly there: the
    least of x in [0, 10] and y in [5, 6] is at most 6, but 10 where y may be null.
    """
    pick, other = (min, max) if least else (max, min)

    def rule(facts: tuple[Facts, ...]) -> Facts:
        kind = _one_kind(facts)
        step = common_step(*(fact.step for fact in facts))
        if not all(fact.bounded for fact in facts):
            return number(kind, None, None, step, *facts)
        near = pick(_end(fact, low=least) for fact in facts)
        certain = [_end(fact, low=not least) for fact in facts if not fact.nullable]
        far = pick(certain) if certain else other(_end(fact, low=not least) for fact in facts)
        return number(kind, min(near, far), max(near, far), step, *facts)

    return rule


def _end(fact: Facts, low: bool) -> Fraction:
    end = fact.lower if low else fact.upper
    assert end is not None
    return end


def _one_kind(facts: tuple[Facts, ...]) -> Kind:
    kinds = {fact.kind for fact in facts if fact.kind is not Kind.NULL}
    if not kinds:
        return Kind.NULL
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds <= set(NUMERIC):
        return Kind.DECIMAL
    advice = "compare values of one type"
    if kinds & {Kind.DATE, Kind.DATETIME} and Kind.TEXT in kinds:
        advice = "write CAST(x AS DATE) for a text such as 2024-12-31; it takes all other texts for NULL"
    elif kinds & set(NUMERIC) and Kind.TEXT in kinds:
        advice = "write CAST(x AS DECIMAL) for a text such as 12.5; it takes all other texts for NULL"
    elif Kind.BOOLEAN in kinds:
        advice = "compare a column of texts with one of them, such as x = 'yes'"
    raise Mismatch("mixes " + " and ".join(sorted(kind.value for kind in kinds)) + "; " + advice)


def union(facts: tuple[Facts, ...], nullable: bool = True) -> Facts:
    """What is known of a value that is one of several: the hull of intervals, the union of domains."""
    kind = _one_kind(facts)
    real = [fact for fact in facts if fact.kind is not Kind.NULL]
    domains = [fact.values() if fact.domain is not None or fact.kind is Kind.BOOLEAN else None for fact in real]
    domain = None
    if real and all(found is not None for found in domains):
        domain = tuple(dict.fromkeys(value for found in domains if found is not None for value in found))
    bounded = bool(real) and all(fact.bounded for fact in real)
    low = min(fact.lower for fact in real if fact.lower is not None) if bounded else None
    high = max(fact.upper for fact in real if fact.upper is not None) if bounded else None
    step = common_step(*(fact.step for fact in real)) if real else None
    public, opaque = all(fact.public for fact in facts), any(fact.opaque for fact in facts)
    longest = max((length_of(fact) for fact in real), default=0) if kind is Kind.TEXT else None
    return Facts(kind, low, high, step, domain, nullable, public, opaque, longest)


def coalesce(facts: tuple[Facts, ...]) -> Facts:
    """The first that is not null: null only if all may be."""
    return union(facts, nullable=all(fact.nullable for fact in facts))


def branches(facts: tuple[Facts, ...]) -> Facts:
    """Arguments are condition, value, condition, value, ..., otherwise."""
    require_kinds((Kind.BOOLEAN,), *facts[:-1:2])
    results = (*facts[1::2], facts[-1])
    # Which branch is taken tells of the conditions, so the result is public only if they are too.
    return replace(union(results), public=all(fact.public for fact in facts))


def comparison(facts: tuple[Facts, ...]) -> Facts:
    """A comparison of values of one kind."""
    _one_kind(facts)
    return truth(facts)


def truth(facts: tuple[Facts, ...]) -> Facts:
    """A condition; null only where an argument may be."""
    return Facts(Kind.BOOLEAN, public=all(fact.public for fact in facts), nullable=any(fact.nullable for fact in facts))


def logic(facts: tuple[Facts, ...]) -> Facts:
    """A combination of conditions."""
    require_kinds((Kind.BOOLEAN,), *facts)
    return truth(facts)


def nullif(facts: tuple[Facts, ...]) -> Facts:
    """The first argument, or null."""
    _one_kind(facts)
    return replace(facts[0], nullable=True)


def clamp(facts: tuple[Facts, ...]) -> Facts:
    """A value forced between two literals."""
    x, low, high = facts
    kind = _one_kind(facts) if x.kind is not Kind.TEXT else x.kind
    if kind in (Kind.TEXT, Kind.BOOLEAN):
        raise Mismatch("takes a number or a date")
    if low.lower is None or low.lower != low.upper or high.lower is None or high.lower != high.upper:
        raise Mismatch("takes two literals as bounds")
    if low.lower > high.lower:
        raise Mismatch("has its bounds reversed; write CLAMP(x, low, high)")
    inside = (low.lower, high.lower)
    if x.lower is not None and x.upper is not None:
        inside = (min(max(inside[0], x.lower), inside[1]), max(min(inside[1], x.upper), inside[0]))
    step = Fraction(1) if kind is Kind.DATE or (kind is Kind.INTEGER and x.kind is Kind.INTEGER) else None
    return Facts(x.kind, inside[0], inside[1], x.step or step, None, x.nullable, x.public)


def round_to_places(facts: tuple[Facts, ...]) -> Facts:
    """A number rounded to places."""
    require_kinds(NUMERIC, *facts)
    a = facts[0]
    places = 0
    if len(facts) == 2:
        if facts[1].lower is None or facts[1].lower != facts[1].upper or not -9 <= facts[1].lower <= 9:
            raise Mismatch("takes a literal number of places between -9 and 9")
        places = int(facts[1].lower)
    step = Fraction(1, 10**places) if places >= 0 else Fraction(10**-places)
    if a.lower is None or a.upper is None:
        return number(a.kind if places <= 0 else Kind.DECIMAL, None, None, step, a)
    low, high = (a.lower // step) * step, -(-a.upper // step) * step
    return number(Kind.INTEGER if places <= 0 else a.kind, low, high, step, a)


PARTS: dict[str, tuple[int, int]] = {
    "quarter": (1, 4), "month": (1, 12), "week": (1, 53), "day": (1, 31), "dow": (0, 6), "isodow": (1, 7),
    "doy": (1, 366), "hour": (0, 23), "minute": (0, 59), "second": (0, 59),
}  # fmt: skip
TRUNCATIONS = ("year", "quarter", "month", "week", "day", "hour", "minute")


LONGEST_NUMBER = 40
"""Characters of a number, a date or a truth value that is written as a text."""


def text_test(facts: tuple[Facts, ...]) -> Facts:
    """A condition on texts."""
    require_kinds((Kind.TEXT,), *facts)
    return truth(facts)


def text(count: int, longest: Callable[[tuple[Facts, ...]], int]) -> Rule:
    """The first `count` arguments are texts, the rest whole numbers; the result is a text of bounded length."""

    def rule(facts: tuple[Facts, ...]) -> Facts:
        require_kinds((Kind.TEXT,), *facts[:count])
        require_kinds(NUMERIC, *facts[count:])
        most = longest(facts)
        if most > LONGEST_RESULT:
            raise Mismatch(
                f"could make a text of {most:,} characters, and {LONGEST_RESULT:,} is the most; "
                "shorten what goes in, as with LEFT(x, 100)"
            )
        return Facts(Kind.TEXT, public=all(fact.public for fact in facts), longest=most)

    return rule


LONGEST_RESULT = 1 << 20
"""Characters that a text function may make."""


def length_of(facts: Facts) -> int:
    """The public bound on a text's characters; 0 for what is no text.

    >>> length_of(Facts(Kind.TEXT)), length_of(Facts(Kind.TEXT, longest=5)), length_of(Facts(Kind.DATE))
    (65536, 5, 0)
    """
    if facts.kind is not Kind.TEXT:
        return 0
    return LONGEST_TEXT if facts.longest is None else facts.longest


def keep_length(facts: tuple[Facts, ...]) -> int:
    """As long as the first text."""
    return length_of(facts[0])


def first_length(facts: tuple[Facts, ...]) -> int:
    """As long as the text, or as the last number where that is bounded; one below 0 is that many characters fewer."""
    low, high = facts[-1].lower, facts[-1].upper
    known = low is not None and high is not None and low >= 0
    return min(length_of(facts[0]), int(high)) if known and high is not None else length_of(facts[0])


def cut_length(facts: tuple[Facts, ...]) -> int:
    """As long as the text; with a length, as long as that."""
    return first_length(facts) if len(facts) == 3 else keep_length(facts)


def add_lengths(facts: tuple[Facts, ...]) -> int:
    """All texts one after the other."""
    return sum(length_of(fact) for fact in facts)


def join_lengths(facts: tuple[Facts, ...]) -> int:
    """All texts but the first, which stands between each two of them."""
    return add_lengths(facts[1:]) + length_of(facts[0]) * (len(facts) - 2)


def replace_length(facts: tuple[Facts, ...]) -> int:
    """Every place where the second text can stand holds the third."""
    source, old, new = facts
    least = min((len(str(value)) for value in old.domain), default=1) if old.domain else 1
    return length_of(source) if not least else max(
        length_of(source), length_of(source) // least * length_of(new) + length_of(source) % least
    )  # fmt: skip


def length(facts: tuple[Facts, ...]) -> Facts:
    """A length: a whole number, bounded where the text's length is declared or follows from its function."""
    require_kinds((Kind.TEXT,), *facts)
    most = length_of(facts[0])
    low, high = (Fraction(0), Fraction(most)) if most < LONGEST_TEXT else (None, None)
    return Facts(Kind.INTEGER, low, high, Fraction(1), public=all(fact.public for fact in facts))


def part(name: str) -> Rule:
    """A part of a date, such as its month: a whole number from a known range."""

    def rule(facts: tuple[Facts, ...]) -> Facts:
        require_kinds(TEMPORAL, *facts)
        low, high = PARTS[name]
        return Facts(Kind.INTEGER, Fraction(low), Fraction(high), Fraction(1), public=facts[0].public)

    return rule


def year(facts: tuple[Facts, ...]) -> Facts:
    """The year of a date, bounded where the date is."""
    require_kinds(TEMPORAL, *facts)
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
        require_kinds(TEMPORAL, *facts)
        (a,) = facts
        kind = Kind.DATE if unit not in ("hour", "minute") else Kind.DATETIME
        domain = truncate_domain(a, unit) if kind is Kind.DATE else None
        return Facts(kind, domain=domain, public=a.public)

    return rule


TIMES = (Kind.DATE, Kind.DATETIME)
TRUTHS = (Kind.INTEGER, Kind.DECIMAL, Kind.BOOLEAN)


def cast(kind: Kind) -> Rule:
    """A value read as another kind; what cannot be read so is null."""

    def rule(facts: tuple[Facts, ...]) -> Facts:
        (a,) = facts
        for these, others in ((TIMES, TRUTHS), (TRUTHS, TIMES)):
            if kind in these and a.kind in others:
                require_kinds((*these, Kind.TEXT), a)  # no value of the one can be read as the other
        keeps = a.kind in NUMERIC and kind in NUMERIC
        low, high = (a.lower, a.upper) if keeps and a.bounded else (None, None)
        step = Fraction(1) if kind is Kind.INTEGER else (a.step if keeps else None)
        if kind is Kind.INTEGER and low is not None and high is not None:
            low, high = Fraction(low.__floor__()), Fraction(high.__ceil__())
        domain = a.domain if a.kind is kind else None
        longest = (length_of(a) if a.kind is Kind.TEXT else LONGEST_NUMBER) if kind is Kind.TEXT else None
        return Facts(kind, low, high, step, domain, True, a.public, longest=longest)

    return rule


def day_difference(facts: tuple[Facts, ...]) -> Facts:
    """Days between two dates."""
    a, b = facts
    require_kinds((Kind.DATE,), a, b)
    low, high = corners(lambda x, y: y - x, a, b)
    return number(Kind.INTEGER, low, high, Fraction(1), a, b)


def truncate_date(day: date, unit: str) -> date:
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


def truncate_domain(facts: Facts, unit: str) -> tuple[date, ...] | None:
    """Every value that truncating a bounded date can give, in order; None when it is not bounded or there are many."""
    if facts.lower is None or facts.upper is None:
        return None
    first, last = from_number(facts.kind, facts.lower), from_number(facts.kind, facts.upper)
    assert isinstance(first, date)
    assert isinstance(last, date)
    day, end = date(first.year, first.month, first.day), date(last.year, last.month, last.day)
    found = [truncate_date(day, unit)]
    while (following := _next_start(found[-1], unit)) is not None and following <= end:
        found.append(following)
        if len(found) > DOMAIN_LIMIT:
            return None
    return tuple(found)


def _next_start(start: date, unit: str) -> date | None:
    """The first day of the following unit; None at the end of the calendar."""
    days = {"year": 366, "quarter": 92, "month": 31, "week": 7}.get(unit, 1)
    if (date.max - start).days < days:
        return None
    # A step that is never too short lands in the following unit, whose first day is wanted.
    return truncate_date(start + timedelta(days=days), unit)
