"""Row expressions: what an analyst may compute from one row, and what is publicly known of the result.

An expression is a tree of columns, literals and calls of allow-listed total functions (`algebra/functions.py`). Each
node carries its `Facts`: type, public interval, step and finite domain, propagated by interval arithmetic. Facts come
from the policy and the text alone; they decide sensitivities and public keys, so they must hold for every row there
could be, which is why a bounded column is clamped where it is read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, inf
from typing import Any, ClassVar

EPOCH = date(1970, 1, 1)
FIRST, LAST = date(1, 1, 1), date(9999, 12, 31)
"""The calendar that questions know; a date outside it is read as null, so that no date can make a question fail."""
LONGEST_TEXT = 1 << 16
"""Characters of a text that declares nothing: a longer one is cut here as it is read."""
DOMAIN_LIMIT = 100_000
"""A finite domain larger than this is not listed: its column has an interval, and its groups are private keys."""


class Kind(StrEnum):
    """The type of a value in a row."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    DATETIME = "datetime"
    NULL = "null"

    @property
    def numeric(self) -> bool:
        """Whether arithmetic applies."""
        return self in (Kind.INTEGER, Kind.DECIMAL, Kind.NULL)

    @property
    def ordered(self) -> bool:
        """Whether a public interval makes sense."""
        return self not in (Kind.TEXT, Kind.BOOLEAN)


Value = str | int | bool | Fraction | date | datetime | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is public about an expression's value.

    `lower` and `upper` enclose every non-null value (days since 1970 for dates, seconds for datetimes); `step` divides
    every one of them; `domain` lists them all when they are few.
    """

    kind: Kind
    lower: Fraction | None = None
    upper: Fraction | None = None
    step: Fraction | None = None
    domain: tuple[Value, ...] | None = None
    nullable: bool = True
    public: bool = False
    """Whether the value comes from a public table or a literal, so that its distinct values may be listed."""
    opaque: bool = field(default=False, repr=False)
    """Whether it may tell people apart only: no function, comparison or group key may look at the value."""
    longest: int | None = field(default=None, repr=False)
    """For a text: the most characters that it can have."""

    @property
    def bounded(self) -> bool:
        """Whether both ends of the interval are known."""
        return self.lower is not None and self.upper is not None

    def drop_bounds(self) -> Facts:
        """The same type with everything else forgotten."""
        return Facts(self.kind, nullable=self.nullable, public=self.public)

    def values(self) -> tuple[Value, ...] | None:
        """Every possible value, listed, or None when there are too many or they are not known."""
        if self.domain is not None:
            return self.domain
        if self.kind is Kind.BOOLEAN:
            return (False, True)
        # Moments between two seconds are no multiples of a step, so datetimes are never listed.
        if not self.bounded or self.step is None or not self.kind.ordered or self.kind is Kind.DATETIME:
            return None
        assert self.lower is not None
        assert self.upper is not None
        first, last = -(-self.lower // self.step), self.upper // self.step
        if last - first + 1 > DOMAIN_LIMIT:
            return None
        return tuple(from_number(self.kind, n * self.step) for n in range(int(first), int(last) + 1))


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A field of the relation the expression is evaluated on."""

    name: str
    facts: Facts = field(compare=False)
    size: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Literal:
    """A value written in the question."""

    value: Value
    facts: Facts
    """Compared too, since in Python 1 == True."""
    size: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Call:
    """An allow-listed function applied to expressions; `name` is a key of `functions.FUNCTIONS`."""

    name: str
    arguments: tuple[Expression, ...]
    facts: Facts = field(compare=False)
    size: int = field(init=False, repr=False, compare=False)
    """Columns, literals and calls, each as often as it is used: what is used twice doubles with each level."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(argument.size for argument in self.arguments))


Expression = ColumnRef | Literal | Call


def to_number(value: Value) -> Fraction:
    """A value on the number line: itself, days since 1970, or seconds since 1970."""
    if isinstance(value, datetime):
        return Fraction((value.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1), 1_000_000)
    if isinstance(value, date):
        return Fraction((value - EPOCH).days)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        raise TypeError("not an ordered value")
    return Fraction(value)


def calendar_range(kind: Kind) -> tuple[Fraction, Fraction]:
    """The first and the last place of the calendar on the number line of dates or datetimes."""
    if kind is Kind.DATE:
        return to_number(FIRST), to_number(LAST)
    return to_number(datetime(1, 1, 1)), to_number(datetime(9999, 12, 31, 23, 59, 59, 999_999))


def from_number(kind: Kind, number: Fraction) -> Value:
    """The value of that kind at a place on the number line, inside the calendar; the inverse of `to_number`."""
    if kind in (Kind.DATE, Kind.DATETIME):
        first, last = calendar_range(kind)
        number = min(max(number, first), last)
    match kind:
        case Kind.DATE:
            return EPOCH + timedelta(days=int(number))
        case Kind.DATETIME:
            return datetime(1970, 1, 1) + timedelta(microseconds=int(number * 1_000_000))
        case Kind.INTEGER:
            return int(number)
        case _:
            return number


def literal(value: Value) -> Literal:
    """A literal with the facts that follow from it."""
    match value:
        case None:
            return Literal(None, Facts(Kind.NULL, public=True))
        case bool():
            return Literal(value, Facts(Kind.BOOLEAN, domain=(value,), nullable=False, public=True))
        case str():
            return Literal(value, Facts(Kind.TEXT, domain=(value,), nullable=False, public=True, longest=len(value)))
        case datetime():
            kind = Kind.DATETIME
        case date():
            kind = Kind.DATE
        case _:
            kind = Kind.INTEGER if Fraction(value).denominator == 1 else Kind.DECIMAL
    number = to_number(value)
    step = abs(number) if number and kind in (Kind.INTEGER, Kind.DECIMAL) else Fraction(1)
    return Literal(value, Facts(kind, number, number, step, (value,), nullable=False, public=True))


def columns_of(expression: Expression) -> frozenset[str]:
    """The names of the fields an expression reads."""
    match expression:
        case ColumnRef(name):
            return frozenset({name})
        case Literal():
            return frozenset()
        case Call(_, arguments):
            return frozenset().union(*(columns_of(argument) for argument in arguments))


def substitute(expression: Expression, fields: dict[str, Expression]) -> Expression:
    """The expression with each field replaced by what stands for it."""
    match expression:
        case ColumnRef(name):
            return fields.get(name, expression)
        case Literal():
            return expression
        case Call(_, arguments):
            return replace(expression, arguments=tuple(substitute(argument, fields) for argument in arguments))


def count_after(expression: Expression, fields: dict[str, Expression]) -> int:
    """How many terms an expression has once each field is replaced by what stands for it."""
    match expression:
        case ColumnRef(name):
            return fields[name].size if name in fields else 1
        case Literal():
            return 1
        case Call(_, arguments):
            return 1 + sum(count_after(argument, fields) for argument in arguments)


def split_conjuncts(predicate: Expression | None) -> tuple[Expression, ...]:
    """The parts of a predicate that must all hold."""
    if predicate is None:
        return ()
    if isinstance(predicate, Call) and predicate.name == "and":
        return tuple(part for argument in predicate.arguments for part in split_conjuncts(argument))
    return (predicate,)


def fold_text(tree: Expression) -> str | None:
    """A text that the question writes, in one piece or joined; else None."""
    if isinstance(tree, Call) and tree.name == "concat":
        parts = [fold_text(each) for each in tree.arguments]
        return None if None in parts else "".join(each for each in parts if each is not None)
    return tree.value if isinstance(tree, Literal) and isinstance(tree.value, str) else None


# Sets of values: what a condition on one declared column can be true for, as ranges of whole numbers.

Ranges = tuple[tuple[float, float], ...]
"""The first and the last whole number of each range, in order; ranges do not touch. Infinite where there is no end."""
EXACT = 1 << 53
"""Whole numbers below are exact as DOUBLE, in which a column is compared with a number that is not whole."""
HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
"""Whether a comparison holds between two values that are written out."""


def meet_ranges(left: Ranges, right: Ranges) -> Ranges:
    """The whole numbers in both.

    >>> meet_ranges(((1, 4), (6, 9)), ((3, 7),))
    ((3, 4), (6, 7))
    """
    found, i, j = list[tuple[float, float]](), 0, 0
    while i < len(left) and j < len(right):
        low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if low <= high:
            found.append((low, high))
        i, j = (i + 1, j) if left[i][1] < right[j][1] else (i, j + 1)
    return tuple(found)


def remove_ranges(ranges: Ranges, removed: Ranges) -> Ranges:
    """The whole numbers in the first and not in the second.

    >>> remove_ranges(((1, 9),), ((3, 3), (8, 12)))
    ((1, 2), (4, 7))
    """
    lows, highs = [-inf, *(high + 1 for _, high in removed)], [*(low - 1 for low, _ in removed), inf]
    gaps = zip(lows, highs, strict=True)
    return meet_ranges(ranges, tuple((low, high) for low, high in gaps if low < inf and high > -inf))


def _cover(points: Iterable[int]) -> Ranges:
    """Single numbers as ranges."""
    ordered = sorted(set(points))
    gaps = [(a, b) for a, b in pairwise(ordered) if b - a > 1]
    return tuple(zip([*ordered[:1], *(b for _, b in gaps)], [*(a for a, _ in gaps), *ordered[-1:]], strict=True))


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The values that a column can have besides null, as whole numbers: its own, days, or places in a list."""

    kind: Kind
    every: Ranges
    places: dict[Value, int] | None = None
    """Where each listed value stands."""

    def choose(self, name: str, values: Sequence[Value]) -> Ranges | None:
        """The values for which a comparison with literals is true; None where that is not told exactly."""
        if name in ("eq", "ne", "in"):
            points = self._find_points(values)
            chosen = None if points is None else meet_ranges(self.every, _cover(points))
            return remove_ranges(self.every, chosen) if name == "ne" and chosen is not None else chosen
        numbers = _read_numbers(self.kind, values)
        if numbers is None:
            return None
        (bound,) = numbers
        if self.places is not None:
            return _cover(place for value, place in self.places.items() if HOLDS[name](value, bound))
        low = {"gt": floor(bound) + 1, "ge": ceil(bound)}.get(name, -inf)
        high = {"lt": ceil(bound) - 1, "le": floor(bound)}.get(name, inf)
        return meet_ranges(self.every, ((low, high),))

    def _find_points(self, values: Sequence[Value]) -> list[int] | None:
        """Where the values of a list stand; one that the column cannot have stands nowhere."""
        if self.kind is Kind.TEXT and self.places is not None:
            found = [self.places.get(each) for each in values if isinstance(each, str)]
            return [each for each in found if each is not None] if len(found) == len(values) else None
        numbers = _read_numbers(self.kind, values)
        if numbers is None or self.places is None:
            return None if numbers is None else [int(each) for each in numbers if each.denominator == 1]
        return [self.places[int(each)] for each in numbers if each in self.places]


def _read_numbers(kind: Kind, values: Sequence[Value]) -> list[Fraction] | None:
    """Literals as a column of whole numbers or dates is compared with them; None where that may not be exact."""
    if kind is Kind.DATE:
        return [to_number(each) for each in values] if all(type(each) is date for each in values) else None
    if kind is not Kind.INTEGER or not all(type(each) in (int, Fraction) for each in values):
        return None
    numbers = [to_number(each) for each in values]
    exact = all(abs(each) < EXACT and Fraction(float(each)) == each for each in numbers)
    return numbers if exact or all(type(each) is int for each in values) else None


def find_values(facts: Facts) -> ColumnValues | None:
    """The values of a column as it is read (`sql/render`): listed, clamped, or in the calendar; None of other kinds."""
    if facts.domain is not None and facts.kind in (Kind.TEXT, Kind.INTEGER):
        places = {value: place for place, value in enumerate(dict.fromkeys(facts.domain))}
        return ColumnValues(facts.kind, ((0, len(places) - 1),), places)
    if facts.domain is not None or facts.kind not in (Kind.INTEGER, Kind.DATE):
        return None
    low, high = facts.lower, facts.upper
    if low is None or high is None:
        if facts.kind is Kind.INTEGER:
            return ColumnValues(facts.kind, ((-inf, inf),))
        low, high = calendar_range(facts.kind)
    first, last = (int(to_number(from_number(facts.kind, end))) for end in (low, high))
    return ColumnValues(facts.kind, ((first, last),))
