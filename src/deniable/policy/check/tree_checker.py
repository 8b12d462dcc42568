"""A tree held against the grammar: what fits becomes values that know their place, what does not becomes a mistake.

The check never stops at the first mistake. It also notes, on its way, every name that the grammar declares (tables,
columns, purposes, keys) and every reference to one; they are compared when all names are known. A Section then reads
the checked entries by key and gives the plain frozen values that a policy keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from deniable.errors import Place, nearest
from deniable.policy.check.patterns import find_explosion
from deniable.policy.grammar import (
    Amount,
    Choice,
    Day,
    Either,
    Field,
    File,
    Flag,
    Kinds,
    ListOf,
    Named,
    Nested,
    Record,
    Reference,
    Regex,
    Scalar,
    Shape,
    Text,
    Whole,
    Written,
    describe,
    find_disorder,
    form_of,
    is_beyond,
)
from deniable.policy.schema import ColumnType, Frozen, Spec
from deniable.policy.yaml_tree import Entries, Items, Leaf, Mistakes, Tree, judge_name, reveal

Value = int | Fraction | str | bool | date | datetime

_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]*(?:_[0-9]{3})*)")
_NUMBER = re.compile(r"[+-]?(?=\.?[0-9])(?:0|[1-9][0-9]*(?:_[0-9]{3})*)?(?:\.[0-9]*)?(?:[eE]([+-]?[0-9]{1,3}))?")
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
    if leaf.quoted or len(text) > _MOST_DIGITS or not _NUMBER.fullmatch(text):
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
        explosion = find_explosion(leaf.text)
    except (re.error, OverflowError, RecursionError):
        raise Misread("a regular expression in Python's syntax", "Quote it with '...'") from None
    if explosion:
        expected = f"a regular expression whose time does not explode; in this one {explosion}"
        raise Misread(expected, "Let each repetition begin or end with a character that its inside cannot read")
    return leaf.text


def _read_shaped_text(shape: Text, leaf: Leaf) -> str:
    if shape.empty and leaf.quoted:
        return leaf.text
    found = read_text(leaf)
    visible = found.strip() and "\x00" not in found
    if not visible or (shape.pattern and not re.fullmatch(shape.pattern, found)):
        raise Misread(shape.what)
    return found


REFUSED = object()
"""Stands for a value that was given but refused, so that nobody calls it missing too."""


@dataclass(frozen=True, slots=True)
class Item:
    """A checked value and where it stands. Records and named entries hold dicts of Items, lists tuples of them."""

    value: object
    place: Place


@dataclass(frozen=True, slots=True)
class Chosen:
    """A kind with its checked options."""

    kind: str
    options: dict[str, Item]


@dataclass(frozen=True, slots=True)
class Mention:
    """A name that refers to something declared elsewhere, and the table inside which it stands."""

    to: str
    name: str
    place: Place
    table: str


@dataclass(slots=True)
class Checker:
    """One pass over one file."""

    mistakes: Mistakes
    declared: dict[str, dict[str, Place]] = field(default_factory=dict)
    columns: dict[str, dict[str, Place]] = field(default_factory=dict)
    mentions: list[Mention] = field(default_factory=list)
    table: str = ""
    folded: dict[tuple[str, str, str], Leaf] = field(default_factory=dict)
    """The first key of each name without regard to case, by what it declares and where."""

    def check(self, shape: Shape, tree: Tree, what: str) -> Item | None:
        """The value of a tree under a shape, or None if it had to be refused as a whole."""
        match shape:
            case Either(shapes):
                return self._either(shapes, tree, what)
            case Kinds():
                return self._kinds(shape, tree, what)
            case Record():
                return self._record(shape, tree, what)
            case Named():
                return self._check_named(shape, tree, what)
            case Nested():
                return Item(flatten_tree(tree, self.mistakes), tree.place)
            case ListOf():
                return self._list(shape, tree, what)
            case _:
                return self._single(shape, tree, what)

    def _refuse(self, tree: Tree, what: str, wanted: str, remedy: str = "") -> None:
        is_what = "is empty" if isinstance(tree, Leaf) and tree.missing else f"is {_quote_tree(tree)}"
        self.mistakes.add(tree.place, f"{what} {is_what}", f"Expected: {wanted[:1].lower()}{wanted[1:]}", remedy)

    def _either(self, shapes: tuple[Shape, ...], tree: Tree, what: str) -> Item | None:
        for shape in shapes:
            unknown = isinstance(shape, Choice) and isinstance(tree, Leaf) and tree.text not in shape.words
            if form_of(shape) is type(tree) and not unknown:
                return self.check(shape, tree, what)
        words = [word for shape in shapes if isinstance(shape, Choice) for word in shape.words]
        remedy = nearest(tree.text, words) if isinstance(tree, Leaf) else ""
        if any(isinstance(shape, ListOf) for shape in shapes):
            remedy = remedy or _suggest_brackets(tree)
        self._refuse(tree, what, " or ".join(describe(shape) for shape in shapes), remedy)
        return None

    def _record(self, shape: Record, tree: Tree, what: str) -> Item | None:
        if not isinstance(tree, Entries):
            keys = ", ".join(f.name for f in shape.fields[:6])
            # A file that is one text from its first column on is no policy: it may be a table, and is not quoted.
            if shape.secret or (isinstance(tree, Leaf) and not tree.missing and tree.place.column == 1):
                self.mistakes.add(tree.place, f"{what} is not a set of entries", f"Expected: entries such as {keys}")
            else:
                self._refuse(tree, what, f"entries such as {keys}")
            return None
        found = self._fields(shape.fields, tree, what)
        self._complete(shape, {key.text for key, _ in tree.entries}, tree.place, what)
        return Item(found, tree.place)

    def _fields(self, fields: tuple[Field, ...], tree: Entries, what: str) -> dict[str, Item]:
        known = {f.name: f for f in fields}
        found = {}
        for key, value in tree.entries:
            if key.text not in known:
                expected = f"Known here: {', '.join(known)}" if known else "No options are known here"
                self.mistakes.add(key.place, f"{what} has no '{key.text}'", expected, nearest(key.text, known))
            else:
                item = self.check(known[key.text].shape, value, f"'{key.text}'")
                found[key.text] = item or Item(REFUSED, value.place)
        return found

    def _complete(self, shape: Record, given: set[str], place: Place, what: str) -> None:
        """Required keys are there, and one alternative exactly is given."""
        for f in shape.fields:
            if f.required and f.name not in given:
                self.mistakes.add(place, f"{what} lacks '{f.name}'", f"It is {f.meaning}")
        if not shape.exactly_one:
            return
        sets = [" with ".join(f"'{name}'" for name in names) for names in shape.exactly_one]
        touched = [names for names in shape.exactly_one if given & set(names)]
        if len(touched) != 1:
            trouble = "lacks one of its alternatives" if not touched else "gives two things of which one is enough"
            self.mistakes.add(place, f"{what} {trouble}", f"Expected: {' or '.join(sets)}")
        elif missing := [name for name in touched[0] if name not in given]:
            self.mistakes.add(place, f"{what} lacks '{missing[0]}'", f"Expected: {' or '.join(sets)}")

    def _check_named(self, shape: Named, tree: Tree, what: str) -> Item | None:
        if not isinstance(tree, Entries):
            self._refuse(tree, what, "entries, each under its name")
            return None
        if len(tree.entries) < shape.least:
            self.mistakes.add(tree.place, f"{what} is empty", f"Expected: at least {shape.least}")
        found = {}
        for key, value in tree.entries:
            if not self._name(shape, key):
                continue
            item = self.check(shape.item, value, f"{shape.declares} '{key.text}'".strip())
            if shape.declares == "table":
                self.table = ""
            if item is not None:
                found[key.text] = item
        return Item(found, tree.place)

    def _name(self, shape: Named, key: Leaf) -> bool:
        """Note what a key declares or refers to."""
        if wrong := judge_name("" if key.missing else key.text, shape.declares):
            self.mistakes.add(key.place, *wrong)
            return False
        if shape.refers:
            self.mentions.append(Mention(shape.refers, key.text, key.place, self.table))
        if shape.declares == "column":
            self._declare(self.columns.setdefault(self.table, {}), "column", key)
        elif shape.declares:
            self._declare(self.declared.setdefault(shape.declares, {}), shape.declares, key)
        if shape.declares == "table":
            self.table = key.text
        return True

    def _declare(self, names: dict[str, Place], what: str, key: Leaf) -> None:
        # Engines take names without regard to case, so two that differ only in case are one.
        where = self.table if what == "column" else ""
        other = self.folded.setdefault((what, where, key.text.casefold()), key)
        if other is not key:
            line, text = other.place.line, other.text
            self.mistakes.add(key.place, f"{what} '{key.text}' differs from '{text}' (line {line}) only in case")
        names[key.text] = key.place

    def _kinds(self, shape: Kinds, tree: Tree, what: str) -> Item | None:
        name, value = self._kind_name(shape, tree, what)
        if name is None:
            return None
        kind = shape.kind(name.text)
        if kind is None:
            known = [k.name for k in shape.kinds]
            expected = f"Known: {', '.join(known)}"
            self.mistakes.add(name.place, f"'{name.text}' is no {shape.name}", expected, nearest(name.text, known))
            return None
        if value is None or (isinstance(value, Leaf) and value.missing):
            if not kind.bare:
                self.mistakes.add(name.place, f"{shape.name} '{kind.name}' needs options", f"Such as {kind.example}")
            return Item(Chosen(kind.name, {}), name.place)
        if kind.short and not isinstance(value, Entries):
            item = self.check(kind.option(kind.short).shape, value, f"'{kind.short}' of {kind.name}")
            self._complete(kind.record, {kind.short}, name.place, f"{shape.name} '{kind.name}'")
            return Item(Chosen(kind.name, {kind.short: item} if item else {}), name.place)
        record = self._record(kind.record, value, f"{shape.name} '{kind.name}'")
        options = record.value if record is not None and isinstance(record.value, dict) else {}
        return Item(Chosen(kind.name, {n: i for n, i in options.items() if i.value is not REFUSED}), name.place)

    def _kind_name(self, shape: Kinds, tree: Tree, what: str) -> tuple[Leaf | None, Tree | None]:
        """The word of a kind and what stands after it: `redact`, or the one entry of `{redact: right}`."""
        if isinstance(tree, Leaf) and not tree.missing:
            return tree, None
        if isinstance(tree, Entries) and len(tree.entries) == 1:
            return tree.entries[0]
        example = next(kind.example for kind in shape.kinds if kind.example)
        self._refuse(tree, what, f"one {shape.name}, such as {example}")
        return None, None

    def _list(self, shape: ListOf, tree: Tree, what: str) -> Item | None:
        if not isinstance(tree, Items):
            self._refuse(tree, what, describe(shape), _suggest_brackets(tree))
            return None
        count = len(tree.items)
        if count < shape.least or (shape.most is not None and count > shape.most):
            trouble = f"has {count} entries" if count else "is an empty list"
            self.mistakes.add(tree.place, f"{what} {trouble}", f"Expected: {describe(shape)}")
            return None
        items = [self.check(shape.item, item, f"an entry of {what}") for item in tree.items]
        found = tuple(item for item in items if item is not None)
        if shape.distinct:
            self._distinct(tree, what)
        if shape.order and (wrong := find_disorder([item.value for item in found], shape.order)) is not None:
            falls = "rise" if shape.order == "up" else "fall"
            self.mistakes.add(
                found[wrong].place, f"the entries of {what} do not {falls}", f"Each must {falls} strictly"
            )
        return Item(found, tree.place)

    def _distinct(self, tree: Items, what: str) -> None:
        seen: set[str] = set()
        for leaf in tree.items:
            if isinstance(leaf, Leaf):
                if leaf.text in seen:
                    self.mistakes.add(leaf.place, f"'{leaf.text}' stands twice in {what}")
                seen.add(leaf.text)

    def _single(self, shape: Shape, tree: Tree, what: str) -> Item | None:
        if not isinstance(tree, Leaf):
            self._refuse(tree, what, describe(shape))
            return None
        try:
            value = read_single(shape, tree)
        except Misread as misread:
            self._refuse(tree, what, misread.wanted, misread.remedy)
            return None
        if isinstance(shape, Reference):
            self.mentions.append(Mention(shape.to, tree.text, tree.place, self.table))
        return Item(value, tree.place)


def _suggest_brackets(tree: Tree) -> str:
    """A hint for one value where a list is wanted."""
    return f"Write [{tree.text}]" if isinstance(tree, Leaf) and not tree.missing and len(tree.text) < 40 else ""


def _quote_tree(tree: Tree) -> str:
    """How a value is written, for a message: the policy's own text may be quoted, cut short."""
    if isinstance(tree, Leaf):
        shown = reveal(tree.text if len(tree.text) <= 40 else tree.text[:37] + "...")
        return repr(shown) if tree.quoted else f"`{shown}`"
    return "a list" if isinstance(tree, Items) else "a set of entries"


Row = tuple[str, ...]


def flatten_tree(tree: Tree, mistakes: Mistakes) -> tuple[Row, ...]:
    """One row a leaf: the leaf, its parent, and so on upwards."""
    found = tuple(_list_branches(tree, (), mistakes))
    seen: set[str] = set()
    for leaf in (row[0] for row in found):
        if leaf in seen:
            mistakes.add(tree.place, f"leaf '{leaf}' stands twice in the tree", "Each leaf once")
        seen.add(leaf)
    if len({len(row) for row in found}) > 1:
        mistakes.add(tree.place, "the leaves of the tree lie at different depths", "All at the same depth")
    return found


def _list_branches(tree: Tree, above: Row, mistakes: Mistakes) -> Iterator[Row]:
    if isinstance(tree, Entries):
        for key, value in tree.entries:
            if not key.text.strip():
                mistakes.add(key.place, "a group of the tree has no label", "Text: an empty cell would look missing")
            yield from _list_branches(value, (key.text, *above), mistakes)
    elif isinstance(tree, Items) and above:
        for item in tree.items:
            if isinstance(item, Leaf) and not item.missing:
                yield (item.text, *above)
            else:
                mistakes.add(item.place, "a leaf of the tree is not a single value", "Text")
    else:
        mistakes.add(tree.place, "the tree does not end in a list here", "Nested entries that end in lists of leaves")


def resolve_mentions(checker: Checker, mistakes: Mistakes) -> None:
    """Compare all mentions with what the file declares."""
    anywhere = {column for columns in checker.columns.values() for column in columns}
    anywhere |= {f"{table}.{column}" for table, columns in checker.columns.items() for column in columns}
    for mention in checker.mentions:
        if mention.to == "column":
            if mention.name not in (checker.columns.get(mention.table, ()) if mention.table else anywhere):
                _refuse_column(mention, checker, mistakes)
        else:
            _resolve_other(mention, checker, mistakes)


def _refuse_column(mention: Mention, checker: Checker, mistakes: Mistakes) -> None:
    """Inside a table a column of that table is meant; elsewhere one of any table, or TABLE.COLUMN."""
    if mention.table:
        known, where = list(checker.columns.get(mention.table, ())), f"table '{mention.table}'"
    else:
        known, where = [c for columns in checker.columns.values() for c in columns], "any table"
        known += [f"{t}.{c}" for t, columns in checker.columns.items() for c in columns if "." in mention.name]
    expected = f"Known: {', '.join(known[:12])}{', ...' if len(known) > 12 else ''}" if known else ""
    remedy = nearest(mention.name, known) or f"Declare it among the columns of {where.replace('any', 'a')}"
    mistakes.add(mention.place, f"'{reveal(mention.name)}' is not a column of {where}", expected, remedy)


def _resolve_other(mention: Mention, checker: Checker, mistakes: Mistakes) -> None:
    known = checker.declared.get(mention.to, {})
    if mention.name in known or (mention.to == "key" and not known):
        return  # without a keys section, keys are found by name in the key store
    section = {"purpose": "budgets: purposes:", "key": "keys:"}[mention.to]
    expected = f"Known: {', '.join(known)}" if known else f"None is declared under {section}"
    remedy = nearest(mention.name, known) or f"Declare it under {section}"
    mistakes.add(mention.place, f"{mention.to} '{mention.name}' is not declared", expected, remedy)


class Section:
    """Entries of a checked record, read by key; what was refused by the check is absent."""

    def __init__(self, item: Item | None) -> None:
        self._item = item
        self._given: dict[str, Item] = item.value if item is not None and isinstance(item.value, dict) else {}
        self._entries = {name: each for name, each in self._given.items() if each.value is not REFUSED}

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __getitem__(self, name: str) -> Item:
        return self._entries[name]

    def was_given(self, name: str) -> bool:
        """Whether a key is there, be its value taken or refused."""
        return name in self._given

    @property
    def place(self) -> Place:
        """Where the entries begin."""
        assert self._item is not None
        return self._item.place

    def get(self, name: str, default: Any) -> Any:
        """The plain value of a key, or the default."""
        return strip_places(self._entries[name]) if name in self._entries else default

    def place_of(self, name: str) -> Place:
        """Where the value of a key stands."""
        return self._entries[name].place

    def section(self, name: str) -> Section:
        """The entries under a key; empty if they are absent or not entries."""
        return Section(self._entries.get(name))


def strip_places(value: object) -> Any:
    """A value without its places: entries become Frozen, lists tuples, kinds Specs."""
    match value:
        case Item():
            return strip_places(value.value)
        case Chosen():
            return build_spec(value)
        case dict():
            return Frozen({name: strip_places(each) for name, each in value.items()})
        case tuple():
            return tuple(strip_places(each) for each in value)
        case Leaf():
            return value.text
        case _:
            return value


def build_spec(chosen: Chosen) -> Spec:
    """A kind with its options."""
    return Spec(chosen.kind, Frozen({name: strip_places(item) for name, item in chosen.options.items()}))
