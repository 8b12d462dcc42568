"""Conditions on a row, in a small part of SQL: read into trees over its columns.

Comparisons of columns, numbers, quoted texts and days, sums of columns, IN, BETWEEN, IS NULL, AND, OR, NOT and
parentheses. As in SQL a condition is true, false or, with a null in it, unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction

from deniable.errors import ParameterError, nearest
from deniable.policy.budget import read_rational
from deniable.policy.schema import ColumnType, number_of

Plain = Fraction | str
"""A value in its own unit: a number (days and seconds since 1970 for times, 0 and 1 for truth values), or a text."""


Terms = tuple[tuple[str, int | Fraction], ...]


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of columns with factors, compared with a constant: at most it (`<=`), or equal to it (`=`)."""

    terms: Terms
    sign: str
    constant: int | Fraction
    strict: bool = False
    """Below it, for `<=`."""


@dataclass(frozen=True, slots=True)
class Member:
    """A column has one of some values."""

    column: str
    values: frozenset[Plain | int]


@dataclass(frozen=True, slots=True)
class Compared:
    """Texts of two columns, or of a column and a constant, by their order."""

    left: str
    sign: str
    right: str
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """A column is null."""

    column: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; of what is unknown, unknown."""

    part: Tree


@dataclass(frozen=True, slots=True)
class Both:
    """All of the parts, or with `any` at least one of them."""

    parts: tuple[Tree, ...]
    any: bool = False


Tree = Linear | Member | Compared | Missing | Not | Both


_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?)|'(?P<text>(?:[^']|'')*)'|"(?P<quoted>[^"]+)"|(?P<word>[^\W\d]\w*)"""
    r"""|(?P<sign><=|>=|<>|!=|[=<>()+*,-]))"""
)
_WORDS = frozenset({"and", "or", "not", "in", "between", "is", "null", "true", "false", "date", "timestamp"})
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "<>": "<>"}
MOST_TOKENS = 400


def read_condition(text: str, types: Mapping[str, ColumnType] | None) -> Tree:
    """The tree of a condition; without the types of columns, texts are not compared with anything.

    >>> read_condition("age >= 18 OR married = false", {"age": ColumnType.INTEGER, "married": ColumnType.BOOLEAN}).any
    True
    """
    reader = _Reader(_split_tokens(text), types)
    tree = reader.read_any()
    reader.refuse_rest()
    return tree


def _split_tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None or len(found) >= MOST_TOKENS:
            raise _refuse_condition(f"'{text[place : place + 12].strip()}' is not understood")
        kind = str(match.lastgroup)
        value = match[kind]
        known = kind == "word" and value.lower() in _WORDS
        found.append(("key", value.lower()) if known else ("name" if kind in ("word", "quoted") else kind, value))
        place = match.end()
    return found


def _refuse_condition(happened: str) -> ParameterError:
    return ParameterError(
        f"a condition cannot be read: {happened}",
        expected="Comparisons of columns and values with AND, OR, NOT, IN, BETWEEN and IS NULL, such as "
        "age >= 18 OR married = false",
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a comparison: a sum of columns and a constant, or a text."""

    terms: Mapping[str, Fraction] = field(default_factory=dict)
    constant: Fraction = Fraction(0)
    text: str | None = None

    @property
    def column(self) -> str | None:
        """The column that stands there alone."""
        one = next(iter(self.terms.items()), None)
        return one[0] if one is not None and len(self.terms) == 1 and one[1] == 1 and not self.constant else None


class _Reader:
    """Reads a condition from left to right, by recursive descent."""

    def __init__(self, tokens: Sequence[tuple[str, str]], types: Mapping[str, ColumnType] | None) -> None:
        self._tokens, self._types, self._at, self._depth = tokens, types, 0, 0

    def refuse_rest(self) -> None:
        """Refuse what follows a whole condition."""
        if self._at < len(self._tokens):
            raise _refuse_condition(f"'{self._tokens[self._at][1]}' is not expected there")

    def read_any(self) -> Tree:
        """Parts with OR between them."""
        return self._read_list("or", lambda: self._read_list("and", self._read_not))

    def _read_list(self, word: str, read: Callable[[], Tree]) -> Tree:
        parts = [read()]
        while self._take("key", word):
            parts.append(read())
        return parts[0] if len(parts) == 1 else Both(tuple(parts), word == "or")

    def _read_not(self) -> Tree:
        self._depth += 1
        if self._depth > 40:
            raise _refuse_condition("it is nested too deeply")
        try:
            return Not(self._read_not()) if self._take("key", "not") else self._read_one()
        finally:
            self._depth -= 1

    def _read_one(self) -> Tree:
        if self._take("sign", "("):
            tree = self.read_any()
            self._require("sign", ")")
            return tree
        left = self._read_side()
        if self._take("key", "is"):
            opposite = self._take("key", "not")
            self._require("key", "null")
            return _negate(Missing(self._one_column(left)), opposite)
        opposite = self._take("key", "not")
        if self._take("key", "in"):
            return _negate(self._read_members(left), opposite)
        if self._take("key", "between"):
            low = self._read_side()
            self._require("key", "and")
            high = self._read_side()
            return _negate(Both((self._compare(left, ">=", low), self._compare(left, "<=", high))), opposite)
        if opposite:
            raise _refuse_condition("after NOT there is neither IN nor BETWEEN")
        for sign in ("<=", ">=", "<>", "!=", "=", "<", ">"):
            if self._take("sign", sign):
                return self._compare(left, "<>" if sign == "!=" else sign, self._read_side())
        if self._kind(self._one_column(left)) not in ("any", str(ColumnType.BOOLEAN)):
            raise _refuse_condition(f"'{left.column}' by itself is neither true nor false")
        return self._compare(left, "=", _Side(constant=Fraction(1)))

    def _read_members(self, left: _Side) -> Tree:
        self._require("sign", "(")
        listed = [self._read_side()]
        while self._take("sign", ","):
            listed.append(self._read_side())
        self._require("sign", ")")
        return Both(tuple(self._compare(left, "=", each) for each in listed), any=True)

    def _read_side(self) -> _Side:
        side, sign = _Side(), -1 if self._take("sign", "-") else 1
        while True:
            part = self._read_part()
            if part.text is not None:
                return part
            terms = dict(side.terms)
            for name, factor in part.terms.items():
                terms[name] = terms.get(name, Fraction(0)) + sign * factor
            side = _Side(terms, side.constant + sign * part.constant)
            if not (self._peek("sign", "+") or self._peek("sign", "-")):
                return side
            sign = 1 if self._take("sign", "+") else -1
            self._at += sign < 0

    def _read_part(self) -> _Side:
        kind, value = self._next()
        match kind:
            case "number":
                factor = _read_number(value)
                if not self._take("sign", "*"):
                    return _Side(constant=factor)
                kind, value = self._next()
                if kind != "name":
                    raise _refuse_condition("a number is multiplied with something other than a column")
                return _Side({self._known(value): factor})
            case "text":
                return _Side(text=value.replace("''", "'"))
            case "name":
                return _Side({self._known(value): Fraction(1)})
            case "key" if value in ("true", "false"):
                return _Side(constant=Fraction(int(value == "true")))
            case "key" if value in ("date", "timestamp"):
                return _Side(text=self._next()[1])
        raise _refuse_condition(f"'{value}' is not expected there")

    def _known(self, name: str) -> str:
        if self._types is not None and name not in self._types:
            happened = f"there is no column '{name}'"
            raise ParameterError(f"a condition cannot be read: {happened}", remedy=nearest(name, self._types))
        return name

    def _one_column(self, side: _Side) -> str:
        if side.column is None:
            raise _refuse_condition("what is compared so is not a column")
        return side.column

    def _compare(self, left: _Side, sign: str, right: _Side) -> Tree:
        if left.text is not None:
            left, sign, right = right, _TURNED[sign], left
        if left.text is not None:
            raise _refuse_condition("two constants are compared")
        kinds = {self._kind(name) for name in (*left.terms, *right.terms)}
        if right.text is not None or kinds == {"text"}:
            return self._compare_texts(left, sign, right)
        if len(kinds - {"any"}) > 1:
            raise _refuse_condition("columns of different types are compared")
        terms = dict(left.terms)
        for name, factor in right.terms.items():
            terms[name] = terms.get(name, Fraction(0)) - factor
        if not terms:
            raise _refuse_condition("two constants are compared")
        # A column that cancels out stays: where it is null, nothing is known.
        return compare_sum(tuple(terms.items()), sign, right.constant - left.constant)

    def _compare_texts(self, left: _Side, sign: str, right: _Side) -> Tree:
        column = self._one_column(left)
        if right.text is None:
            return _ordered(column, sign, self._one_column(right), False)
        kind = self._types.get(column) if self._types is not None else None
        if kind in (ColumnType.DATE, ColumnType.DATETIME):
            return compare_sum(((column, Fraction(1)),), sign, read_time(right.text, kind))
        if kind is not None and kind is not ColumnType.TEXT:
            raise _refuse_condition(f"'{column}' is compared with a text")
        return _ordered(column, sign, right.text, True)

    def _kind(self, name: str) -> str:
        kind = self._types.get(name) if self._types is not None else None
        numbers = (ColumnType.INTEGER, ColumnType.DECIMAL)
        return "any" if kind is None else "number" if kind in numbers else str(kind)

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise _refuse_condition("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self, kind: str, value: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at] == (kind, value)

    def _take(self, kind: str, value: str) -> bool:
        found = self._peek(kind, value)
        self._at += found
        return found

    def _require(self, kind: str, value: str) -> None:
        if not self._take(kind, value):
            raise _refuse_condition(f"there should be '{value}'")


def _negate(tree: Tree, opposite: bool) -> Tree:
    return Not(tree) if opposite else tree


def compare_sum(terms: Terms, sign: str, constant: int | Fraction) -> Tree:
    """A sum of columns compared with a constant by a sign of SQL."""
    turned = tuple((name, -factor) for name, factor in terms)
    match sign:
        case "=" | "<>":
            return _negate(Linear(terms, "=", constant), sign == "<>")
        case "<" | "<=":
            return Linear(terms, "<=", constant, sign == "<")
        case _:
            return Linear(turned, "<=", -constant, sign == ">")


def _ordered(left: str, sign: str, right: str, constant: bool) -> Tree:
    if sign in ("=", "<>"):
        same: Tree = Member(left, frozenset({right})) if constant else Compared(left, "=", right)
        return _negate(same, sign == "<>")
    return Compared(left, sign, right, constant)


def _read_number(text: str) -> Fraction:
    try:
        return read_rational(text)
    except ParameterError:
        raise _refuse_condition("a number in it is too long") from None


def read_time(text: str, kind: ColumnType) -> Fraction:
    """A written day or time as a number."""
    try:
        return number_of(date.fromisoformat(text) if kind is ColumnType.DATE else datetime.fromisoformat(text))
    except ValueError:
        raise _refuse_condition(f"'{text[:30]}' is no {kind}") from None


def list_columns(tree: Tree) -> Iterator[str]:
    """The columns of a tree, with repetitions."""
    match tree:
        case Linear(terms):
            yield from (name for name, _ in terms)
        case Member(column) | Missing(column):
            yield column
        case Compared(left, _, right, constant):
            yield from (left,) if constant else (left, right)
        case Not(part):
            yield from list_columns(part)
        case Both(parts):
            yield from (name for part in parts for name in list_columns(part))


def pair_ordered(names: Sequence[str], nullable: Set[str]) -> Iterator[tuple[str, str]]:
    """The columns of an order that are compared: each with the next, and over those that may be null with later ones.

    >>> list(pair_ordered(["admitted", "operated", "discharged"], {"operated"}))
    [('admitted', 'operated'), ('admitted', 'discharged'), ('operated', 'discharged')]
    """
    for place, left in enumerate(names, start=1):
        for right in names[place:]:
            yield left, right
            if right not in nullable:
                break
