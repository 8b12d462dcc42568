"""The shapes a policy is made of, as data, and each of them in words.

A grammar here is a value: the modules of `layout/` are built from these shapes, and everything that must know what a
policy may say is derived from them: the checks (`check/`), the messages, the JSON Schema for editors (`json_schema.py`)
and the reference page (`docs/generate.py`). There is no second copy to forget.

A shape never depends on YAML's guess at a type: where text is wanted `02138` and `NO` are text, where a number is
wanted they are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from deniable.policy.budget import format_number
from deniable.policy.yaml_tree import Entries, Items, Leaf


@dataclass(frozen=True, slots=True)
class Text:
    """Text of at least one character; `what` names it in messages, `pattern` restricts it."""

    what: str = "text"
    pattern: str = ""
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression in Python's syntax."""


@dataclass(frozen=True, slots=True)
class File:
    """A path, relative to the folder of the policy file."""

    must_exist: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within limits that may be left open."""

    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Amount:
    """An exact number within limits; `above` and `below` exclude the limit itself."""

    least: Fraction | None = None
    above: Fraction | None = None
    most: Fraction | None = None
    below: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""


@dataclass(frozen=True, slots=True)
class Day:
    """A calendar day, YYYY-MM-DD."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, a day, true, false or text; what could be read two ways, such as 02138, must be quoted."""


@dataclass(frozen=True, slots=True)
class Written:
    """A single value kept as it is written, to be read by the type that its column declares."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of something declared elsewhere in the file: a column, purpose or key."""

    to: str


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; `order` is 'up' or 'down' where the numbers must strictly rise or fall."""

    item: Shape
    least: int = 1
    most: int | None = None
    order: str = ""
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """Entries under names that the steward chooses; `declares` says what each name becomes."""

    item: Shape
    declares: str = ""
    refers: str = ""
    least: int = 0


@dataclass(frozen=True, slots=True)
class Nested:
    """A tree written as nested entries whose innermost ones are lists of leaves."""


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a record: its shape, its meaning in plain words, and the default in words where it is optional."""

    name: str
    shape: Shape
    meaning: str
    required: bool = False
    default: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """Entries with fixed keys. Of the alternatives in `exactly_one`, one set of keys is given, and no other.

    What stands wrongly in the place of a `secret` record may be a secret, and is not quoted in messages.
    """

    name: str
    fields: tuple[Field, ...]
    exactly_one: tuple[tuple[str, ...], ...] = ()
    meaning: str = ""
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Either:
    """Shapes told apart by how they are written: a single value, a list, or entries."""

    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """One choice of a `Kinds`: its word, options, and the option meant when only a value is given (`short`)."""

    name: str
    meaning: str
    fields: tuple[Field, ...] = ()
    short: str = ""
    exactly_one: tuple[tuple[str, ...], ...] = ()
    example: str = ""
    types: tuple[str, ...] = ()
    """The column types it is for; any if empty."""

    @property
    def record(self) -> Record:
        """The options as a record."""
        return Record(self.name, self.fields, self.exactly_one, self.meaning)

    @property
    def bare(self) -> bool:
        """Whether the word alone is enough."""
        return not self.exactly_one and not any(field.required for field in self.fields)

    def option(self, name: str) -> Field:
        """The option of that name."""
        return next(field for field in self.fields if field.name == name)


@dataclass(frozen=True, slots=True)
class Kinds:
    """A choice with options: `redact`, `{redact: right}` or `{token: {key: people}}`; it becomes a `Spec`."""

    name: str
    kinds: tuple[Kind, ...]

    def kind(self, name: str) -> Kind | None:
        """The kind of that name, or None."""
        return next((kind for kind in self.kinds if kind.name == name), None)


Shape = (
    Text
    | Regex
    | File
    | Choice
    | Whole
    | Amount
    | Flag
    | Day
    | Scalar
    | Written
    | Reference
    | ListOf
    | Named
    | Nested
    | Record
    | Either
    | Kinds
)

SHARE = Amount(least=Fraction(0), most=Fraction(1))
POSITIVE = Amount(above=Fraction(0))
COLUMN = Reference("column")
KEY = Reference("key")
NUMERIC = ("integer", "decimal")


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
            return _describe_limits("a whole number", Amount(least=_maybe(least), most=_maybe(most)))
        case Amount():
            return _describe_limits("a number", shape)
        case ListOf():
            return _describe_list(shape)
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


def _describe_limits(what: str, limits: Amount) -> str:
    if limits.least is not None and limits.least == limits.most:
        return format_number(limits.least)
    named = (("at least", limits.least), ("above", limits.above), ("at most", limits.most), ("below", limits.below))
    return ", ".join([what, *(f"{word} {format_number(limit)}" for word, limit in named if limit is not None)])


def _describe_list(shape: ListOf) -> str:
    if shape.least == shape.most:
        return f"a list of {shape.least} values"
    order = {"up": ", rising", "down": ", falling", "": ""}[shape.order]
    least = f" of at least {shape.least}" if shape.least > 1 else ""
    return f"a list{least}, each {describe(shape.item)}{order}"


def is_beyond(shape: Whole | Amount, number: int | Fraction) -> bool:
    """Whether a number lies outside the limits of its shape."""
    above, below = (shape.above, shape.below) if isinstance(shape, Amount) else (None, None)
    return (
        (shape.least is not None and number < shape.least)
        or (shape.most is not None and number > shape.most)
        or (above is not None and number <= above)
        or (below is not None and number >= below)
    )


def find_disorder(numbers: Sequence[object], order: str) -> int | None:
    """The position of the first number that does not strictly rise ('up') or fall ('down'), or None."""
    sign = 1 if order == "up" else -1
    for i in range(1, len(numbers)):
        before, here = numbers[i - 1], numbers[i]
        if isinstance(before, (int, Fraction)) and isinstance(here, (int, Fraction)) and sign * (here - before) <= 0:
            return i
    return None


def form_of(shape: Shape) -> type[Leaf] | type[Items] | type[Entries]:
    """How a shape is written: as a single value, a list, or entries."""
    match shape:
        case ListOf():
            return Items
        case Record() | Named() | Nested():
            return Entries
        case _:
            return Leaf
