"""Single values, read by the type or shape that is wanted of them and never by YAML's guess.

`1e-6` is a number, `NO` is text, `2027-12-31` is a day, and `02138` is text where text is wanted and refused where a
number is: a leading zero is almost always a code, and a code that lost its zero is a wrong value in every row."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

from deniable.errors import nearest
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
    describe,
    is_beyond,
)
from deniable.policy.schema import ColumnType
from deniable.policy.yaml_tree import Leaf

Value = int | Fraction | str | bool | date | datetime

_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]*(?:_[0-9]{3})*)")
_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]*(?:_[0-9]{3})*)?(?:\.[0-9]*)?(?:[eE]([+-]?[0-9]{1,3}))?")
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+")
_FLAGS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_OLD_FLAGS = {"yes": "true", "no": "false", "on": "true", "off": "false", "y": "true", "n": "false"}
_MOST_DIGITS = 60


class Misread(Exception):
    """A value that cannot be read as wanted: what was wanted, and how to go on."""

    def __init__(self, wanted: str, remedy: str = "") -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.remedy = remedy


def read_whole(leaf: Leaf) -> int:
    """A whole number."""
    if leaf.quoted or len(leaf.text) > _MOST_DIGITS or not _WHOLE.fullmatch(leaf.text):
        raise Misread("A whole number such as 5", _suggest_remedy(leaf))
    return int(leaf.text)


def read_amount(leaf: Leaf) -> Fraction:
    """An exact number: 0.1 is one tenth."""
    text = leaf.text
    match = _NUMBER.fullmatch(text)
    if leaf.quoted or len(text) > _MOST_DIGITS or match is None or not re.search(r"[0-9]", text.split("e")[0]):
        raise Misread("A number such as 0.5", _suggest_remedy(leaf))
    return Fraction(Decimal(text))


def _suggest_remedy(leaf: Leaf) -> str:
    text = leaf.text.strip()
    if leaf.quoted:
        return "Take the quotes away" if _NUMBER.fullmatch(text) and text else ""
    if _LEADING_ZERO.fullmatch(text):
        return "A leading zero makes it a code, not a number: if it is one, say type: text"
    if text.endswith("%"):
        return "Write a share between 0 and 1, such as 0.05 for 5%"
    if re.fullmatch(r"[+-]?[0-9]{1,3}(,[0-9]{3})+", text):
        return "Write it without commas"
    if re.fullmatch(r"[+-]?[0-9]+,[0-9]+", text):
        return "Write a decimal point instead of the comma"
    if re.fullmatch(r"0[xob][0-9a-fA-F]+", text):
        return "Write it in decimal digits"
    return ""


def read_flag(leaf: Leaf) -> bool:
    """true or false."""
    if leaf.quoted or leaf.text not in _FLAGS:
        old = _OLD_FLAGS.get(leaf.text.lower())
        raise Misread("true or false", f"Write {old}" if old and not leaf.quoted else "")
    return _FLAGS[leaf.text]


def read_day(leaf: Leaf) -> date:
    """A calendar day; quotes around it do no harm."""
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", leaf.text):
            return date.fromisoformat(leaf.text)
    except ValueError:
        raise Misread("A day that exists, as YYYY-MM-DD") from None
    raise Misread("A day as YYYY-MM-DD")


def read_moment(leaf: Leaf) -> datetime:
    """A day with a time of day, without a time zone."""
    try:
        found = datetime.fromisoformat(leaf.text) if re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", leaf.text) else None
    except ValueError:
        found = None
    if found is None:
        raise Misread("A time as YYYY-MM-DD HH:MM:SS")
    if found.tzinfo is not None:
        raise Misread("A time without a time zone", "State times in the zone that the table uses")
    return found


def read_text(leaf: Leaf) -> str:
    """Text, quoted or not; YAML's words for nothing must be quoted if they are meant as text."""
    if leaf.missing:
        raise Misread("Text", "Quote it if the word itself is meant" if leaf.text else "")
    return leaf.text


def read_untyped(leaf: Leaf) -> Value:
    """A value whose type only its own form tells: a number, a day, true, false, or else text."""
    if leaf.quoted:
        return leaf.text
    if _LEADING_ZERO.fullmatch(leaf.text):
        raise Misread("A value that can be read one way only", "Quote it if it is a code, else drop the leading zero")
    readers: tuple[Callable[[Leaf], Value], ...] = (read_whole, read_amount, read_flag, read_day)
    for read in readers:
        with suppress(Misread):
            return read(leaf)
    return read_text(leaf)


_READERS: dict[ColumnType, Callable[[Leaf], Value]] = {
    ColumnType.INTEGER: read_whole,
    ColumnType.DECIMAL: read_amount,
    ColumnType.TEXT: read_text,
    ColumnType.BOOLEAN: read_flag,
    ColumnType.DATE: read_day,
    ColumnType.DATETIME: read_moment,
}


def read_typed(leaf: Leaf, kind: ColumnType) -> Value:
    """A value of a column's type."""
    return _READERS[kind](leaf)


def read_single(shape: Shape, leaf: Leaf) -> object:
    """What a leaf means under a shape; Misread if it does not fit."""
    match shape:
        case Written():
            return leaf
        case Whole() | Amount():
            return _read_number(shape, leaf)
        case Flag():
            return read_flag(leaf)
        case Day():
            return read_day(leaf)
        case Scalar():
            return read_untyped(leaf)
        case Choice():
            return _read_choice(shape, leaf)
        case Regex():
            return _read_regex(leaf)
        case Reference():
            return read_text(leaf)
        case File():
            return _read_shaped_text(Text("a path"), leaf)
        case Text():
            return _read_shaped_text(shape, leaf)
    raise AssertionError(f"{type(shape).__name__} is not a shape of single values")


def _read_number(shape: Whole | Amount, leaf: Leaf) -> object:
    try:
        number = read_whole(leaf) if isinstance(shape, Whole) else read_amount(leaf)
    except Misread as misread:
        raise Misread(describe(shape), misread.remedy) from None
    if is_beyond(shape, number):
        raise Misread(describe(shape))
    return number


def _read_choice(shape: Choice, leaf: Leaf) -> str:
    if leaf.text not in shape.words:
        hyphened = leaf.text.casefold().replace("_", "-").replace(" ", "-")
        raise Misread(describe(shape), nearest(leaf.text, shape.words) or nearest(hyphened, shape.words))
    return leaf.text


def _read_regex(leaf: Leaf) -> str:
    try:
        re.compile(leaf.text)
    except (re.error, OverflowError, RecursionError):
        raise Misread("a regular expression in Python's syntax", "Quote it with '...'") from None
    return leaf.text


def _read_shaped_text(shape: Text, leaf: Leaf) -> str:
    if shape.empty and leaf.quoted:
        return leaf.text
    found = read_text(leaf)
    visible = found.strip() and "\x00" not in found
    if not visible or (shape.pattern and not re.fullmatch(shape.pattern, found)):
        raise Misread(shape.what)
    return found
