"""Single values held against the shapes that single values have."""

from __future__ import annotations

import re

from deniable.errors import nearest
from deniable.policy import scalars
from deniable.policy.grammar import (
    Amount,
    Choice,
    Day,
    File,
    Flag,
    Reference,
    Regex,
    Scalar,
    Shape,
    Text,
    Whole,
    Written,
)
from deniable.policy.reading import Leaf
from deniable.policy.scalars import Misread
from deniable.policy.wording import beyond, describe


def value(shape: Shape, leaf: Leaf) -> object:
    """What a leaf means under a shape; Misread if it does not fit."""
    match shape:
        case Written():
            return leaf
        case Whole() | Amount():
            return _number(shape, leaf)
        case Flag():
            return scalars.flag(leaf)
        case Day():
            return scalars.day(leaf)
        case Scalar():
            return scalars.unquoted(leaf)
        case Choice():
            return _choice(shape, leaf)
        case Regex():
            return _regex(leaf)
        case Reference():
            return scalars.text(leaf)
        case File():
            return _text(Text("a path"), leaf)
        case Text():
            return _text(shape, leaf)
    raise AssertionError(f"{type(shape).__name__} is not a shape of single values")


def _number(shape: Whole | Amount, leaf: Leaf) -> object:
    try:
        number = scalars.whole(leaf) if isinstance(shape, Whole) else scalars.amount(leaf)
    except Misread as misread:
        raise Misread(describe(shape), misread.remedy) from None
    if beyond(shape, number):
        raise Misread(describe(shape))
    return number


def _choice(shape: Choice, leaf: Leaf) -> str:
    if leaf.text not in shape.words:
        hyphened = leaf.text.casefold().replace("_", "-").replace(" ", "-")
        raise Misread(describe(shape), nearest(leaf.text, shape.words) or nearest(hyphened, shape.words))
    return leaf.text


def _regex(leaf: Leaf) -> str:
    try:
        re.compile(leaf.text)
    except (re.error, OverflowError, RecursionError):
        raise Misread("a regular expression in Python's syntax", "Quote it with '...'") from None
    return leaf.text


def _text(shape: Text, leaf: Leaf) -> str:
    if shape.empty and leaf.quoted:
        return leaf.text
    found = scalars.text(leaf)
    visible = found.strip() and "\x00" not in found
    if not visible or (shape.pattern and not re.fullmatch(shape.pattern, found)):
        raise Misread(shape.what)
    return found
