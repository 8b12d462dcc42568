"""Shapes in words, and the limits they set: messages and the reference page say them alike."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from deniable.policy.grammar import (
    Amount,
    Choice,
    Day,
    Either,
    File,
    Flag,
    Kinds,
    ListOf,
    Named,
    Nested,
    Record,
    Reference,
    Regex,
    Shape,
    Text,
    Whole,
)
from deniable.policy.reading import Entries, Items, Leaf


def describe(shape: Shape) -> str:
    """A shape in a few words.

    >>> describe(Whole(1, 9))
    'a whole number, at least 1, at most 9'
    """
    match shape:
        case Text(what=what):
            return what
        case Choice(words):
            return words[0] if len(words) == 1 else f"one of {', '.join(words)}"
        case Whole(least, most):
            return _limited("a whole number", Amount(least=_maybe(least), most=_maybe(most)))
        case Amount():
            return _limited("a number", shape)
        case ListOf():
            return _list(shape)
        case Named():
            return f"names, each with {describe(shape.item)}"
        case Reference(to):
            return f"a {to}'s name"
        case Record(name):
            return f"the keys of {name}"
        case Kinds(name):
            return f"a {name}"
        case Either(shapes):
            return " or ".join(describe(each) for each in shapes)
    return _PLAIN.get(type(shape), "a value")


_PLAIN: dict[type, str] = {
    Regex: "a regular expression in Python's syntax",
    File: "a path",
    Flag: "true or false",
    Day: "a day as YYYY-MM-DD",
    Nested: "nested entries that end in lists of leaves",
}


def _maybe(number: int | None) -> Fraction | None:
    return None if number is None else Fraction(number)


def plain_number(number: Fraction) -> str:
    """A number as people write it."""
    return str(number.numerator) if number.denominator == 1 else repr(float(number))


def _limited(what: str, limits: Amount) -> str:
    if limits.least is not None and limits.least == limits.most:
        return plain_number(limits.least)
    named = (("at least", limits.least), ("above", limits.above), ("at most", limits.most), ("below", limits.below))
    return ", ".join([what, *(f"{word} {plain_number(limit)}" for word, limit in named if limit is not None)])


def _list(shape: ListOf) -> str:
    if shape.least == shape.most:
        return f"a list of {shape.least} values"
    order = {"up": ", rising", "down": ", falling", "": ""}[shape.order]
    least = f" of at least {shape.least}" if shape.least > 1 else ""
    return f"a list{least}, each {describe(shape.item)}{order}"


def beyond(shape: Whole | Amount, number: int | Fraction) -> bool:
    """Whether a number lies outside the limits of its shape."""
    above, below = (shape.above, shape.below) if isinstance(shape, Amount) else (None, None)
    return (
        (shape.least is not None and number < shape.least)
        or (shape.most is not None and number > shape.most)
        or (above is not None and number <= above)
        or (below is not None and number >= below)
    )


def disorder(numbers: Sequence[object], order: str) -> int | None:
    """The position of the first number that does not strictly rise ('up') or fall ('down'), or None."""
    sign = 1 if order == "up" else -1
    for i in range(1, len(numbers)):
        before, here = numbers[i - 1], numbers[i]
        if isinstance(before, (int, Fraction)) and isinstance(here, (int, Fraction)) and sign * (here - before) <= 0:
            return i
    return None


def form(shape: Shape) -> type[Leaf] | type[Items] | type[Entries]:
    """How a shape is written: as a single value, a list, or entries."""
    match shape:
        case ListOf():
            return Items
        case Record() | Named() | Nested():
            return Entries
        case _:
            return Leaf
