"""Single values, read by the type that is wanted of them and never by YAML's guess.

`1e-6` is a number, `NO` is text, `2027-12-31` is a day, and `02138` is text where text is wanted and refused where a
number is: a leading zero is almost always a code, and a code that lost its zero is a wrong value in every row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

from deniable.policy.reading import Leaf
from deniable.policy.schema import ColumnType

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


def whole(leaf: Leaf) -> int:
    """A whole number."""
    if leaf.quoted or len(leaf.text) > _MOST_DIGITS or not _WHOLE.fullmatch(leaf.text):
        raise Misread("A whole number such as 5", _number_remedy(leaf))
    return int(leaf.text)


def amount(leaf: Leaf) -> Fraction:
    """An exact number: 0.1 is one tenth."""
    text = leaf.text
    match = _NUMBER.fullmatch(text)
    if leaf.quoted or len(text) > _MOST_DIGITS or match is None or not re.search(r"[0-9]", text.split("e")[0]):
        raise Misread("A number such as 0.5", _number_remedy(leaf))
    return Fraction(Decimal(text))


def _number_remedy(leaf: Leaf) -> str:
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


def flag(leaf: Leaf) -> bool:
    """true or false."""
    if leaf.quoted or leaf.text not in _FLAGS:
        old = _OLD_FLAGS.get(leaf.text.lower())
        raise Misread("true or false", f"Write {old}" if old and not leaf.quoted else "")
    return _FLAGS[leaf.text]


def day(leaf: Leaf) -> date:
    """A calendar day; quotes around it do no harm."""
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", leaf.text):
            return date.fromisoformat(leaf.text)
    except ValueError:
        raise Misread("A day that exists, as YYYY-MM-DD") from None
    raise Misread("A day as YYYY-MM-DD")


def moment(leaf: Leaf) -> datetime:
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


def text(leaf: Leaf) -> str:
    """Text, quoted or not; YAML's words for nothing must be quoted if they are meant as text."""
    if leaf.missing:
        raise Misread("Text", "Quote it if the word itself is meant" if leaf.text else "")
    return leaf.text


def unquoted(leaf: Leaf) -> Value:
    """A value whose type only its own form tells: a number, a day, true, false, or else text."""
    if leaf.quoted:
        return leaf.text
    if _LEADING_ZERO.fullmatch(leaf.text):
        raise Misread("A value that can be read one way only", "Quote it if it is a code, else drop the leading zero")
    readers: tuple[Callable[[Leaf], Value], ...] = (whole, amount, flag, day)
    for read in readers:
        with suppress(Misread):
            return read(leaf)
    return text(leaf)


_READERS: dict[ColumnType, Callable[[Leaf], Value]] = {
    ColumnType.INTEGER: whole,
    ColumnType.DECIMAL: amount,
    ColumnType.TEXT: text,
    ColumnType.BOOLEAN: flag,
    ColumnType.DATE: day,
    ColumnType.DATETIME: moment,
}


def typed(leaf: Leaf, kind: ColumnType) -> Value:
    """A value of a column's type."""
    return _READERS[kind](leaf)
