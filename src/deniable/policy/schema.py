"""The public shape of tables: the privacy unit, column types and roles, public bounds and categories, the CSV dialect.

Everything here is public by declaration: the steward wrote it, it was not read from the data. Bounds and categories
decide sensitivities, so a value outside them is clamped or counted as null, never trusted. The privacy unit says whose
presence is hidden, with its neighboring relation and contribution bounds; a role says what a column is to an
intruder."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar
from urllib.parse import unquote

from deniable.errors import ParameterError


class Neighboring(StrEnum):
    """Which pairs of tables must look alike."""

    ADD_REMOVE = "add-remove"
    """One unit is there or not (the default)."""
    REPLACE = "replace"
    """One unit has one set of rows or another; worth two add-or-remove steps."""


class Bounding(StrEnum):
    """How a unit's contribution is limited."""

    SAMPLE = "sample"
    """Keep at most max_groups groups and max_rows_per_group rows in each, chosen by a fresh secret salt."""
    ROWS = "rows"
    """Keep at most max_rows rows in all, in whichever groups they are, chosen by a fresh secret salt."""
    SCALE = "scale"
    """Keep all rows, and scale the unit's vector of contributions down to a norm."""


@dataclass(frozen=True, slots=True)
class Link:
    """A step to the table that knows whose rows these are: `column` here holds a value of `key` in `table`."""

    column: str
    table: str
    key: str


@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """A row (column is None) or all rows that share a value of one column, with the bounds of its contribution.

    A row contributes one row to one group by definition; an id column needs bounds on groups and rows per group, or on
    rows in all, or explicit choices in the question, before a query can be answered.

    >>> PrivacyUnit("pid", max_groups=5, max_rows_per_group=2, bounding=Bounding.ROWS).rows_in_all
    10
    """

    column: str | None = None
    max_groups: int | None = None
    max_rows_per_group: int | None = None
    neighboring: Neighboring = Neighboring.ADD_REMOVE
    bounding: Bounding = Bounding.SAMPLE
    max_rows: int | None = None
    via: tuple[Link, ...] = ()
    """The steps from a table whose rows do not name the person to the one that does; `column` is that table's."""
    network: str = ""
    """Of a table of edges: `edge` or `node`, whichever is hidden; only networks (`deniable network`) read its rows."""

    def __post_init__(self) -> None:
        for name in ("max_groups", "max_rows_per_group", "max_rows"):
            bound = getattr(self, name)
            if bound is not None and bound < 1:
                raise ParameterError(f"{name} is {bound}", expected="A contribution bound is at least 1")
        if self.max_rows is not None and self.bounding is not Bounding.ROWS:
            raise ParameterError(f"max_rows goes with bounding: rows, not with {self.bounding}", expected="One form")

    @property
    def rows_in_all(self) -> int | None:
        """The most rows that the bounds let a unit have over all groups; None where they do not say."""
        both = self.max_groups is not None and self.max_rows_per_group is not None
        product = (self.max_groups or 0) * (self.max_rows_per_group or 0) if both else None
        return min((bound for bound in (self.max_rows, product) if bound is not None), default=None)

    @property
    def rows_learned(self) -> int:
        """The most rows of one unit that what learns from whole rows (synthesis, models) may see."""
        return 1 if self.is_row else self.max_rows or self.max_rows_per_group or 1

    @property
    def is_row(self) -> bool:
        """Whether each row is its own unit."""
        return self.column is None

    def __str__(self) -> str:
        if self.network:
            return "one edge" if self.network == "edge" else "one node with all its edges"
        return "one row" if self.column is None else f"all rows of one {self.column}"


def normalize_spelling(value: str) -> str:
    """A value that tells people apart in the one form that decides whether it names the same person.

    It is composed and folded as Unicode's NFKC_Casefold does (so that case, width and ligatures do not count), without
    characters that nobody sees, and with one space for several. Languages do not agree on the dot of an i when its case
    changes (Turkish, Azerbaijani, Lithuanian), so it does not count either. Withdrawals, tokens and rows are compared
    by it; two values that it joins are one person where people are counted, which never makes a group look larger.

    >>> {normalize_spelling(each) for each in (" STRASSE  7", "Stra\u00dfe 7", "\uff33tra\u00dfe\u200b 7")}
    {'strasse 7'}
    >>> {normalize_spelling(each) for each in ("IRMAK", "\u0131rmak", "irmak", "\u0130rmak")}
    {'irmak'}
    >>> {normalize_spelling(each) for each in ("O'Brien-Smith 7", "O\u2019Brien\u2013Smith \u0667")}
    {"o'brien-smith 7"}
    """
    return drop_unseen(_drop_dots(fold_case(value)).translate(SIGNS))


class _Signs(dict[int, str]):
    """Signs by their numbers; digits of other scripts are found when they are met, all others stay as they are."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        self[code] = plain = str(unicodedata.decimal(sign)) if sign.isdecimal() else sign
        return plain


SIGNS = _Signs(
    dict.fromkeys(map(ord, "\u2018\u2019\u201b\u02b9\u02bb\u02bc\u02bd\u2032\u00b4"), "'")
    | dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"), "-")
)
"""Apostrophes, hyphens and digits that look or mean alike, as the plain ones."""


def fold_case(value: str) -> str:
    """A text as Unicode's NFKC_Casefold writes it, but for characters that nobody sees."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", value).casefold())


def _drop_dots(folded: str) -> str:
    """Write an i or j without dot, and one with a dot of its own above it, as the plain letter."""
    plain = folded.replace("\u0131", "i").replace("\u0237", "j")
    if DOT not in plain:
        return plain
    apart = unicodedata.normalize("NFD", plain)
    return unicodedata.normalize("NFKC", ACCENTED.sub(lambda found: found[0].replace(DOT, ""), apart))


DOT = "\u0307"
ACCENTED = re.compile("[ij][\u0300-\u036f]+")


def drop_unseen(folded: str) -> str:
    """A text without characters that nobody sees, and with one space for several."""
    return " ".join("".join(each for each in folded if each.isspace() or not _is_unseen(each)).split())


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character) in ("Cf", "Cc") or bool(IGNORABLE.match(character))


IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Characters that Unicode calls Default_Ignorable beside those of control and format: joiners, fillers, variations."""


class BadRows(StrEnum):
    """What to do with lines of a CSV file that do not fit."""

    REFUSE = "refuse"
    """Refuse the file, naming the lines (the default)."""
    SKIP = "skip"
    """Leave out lines with too many or too few fields, and read a value of the wrong type as null."""


THOUSANDS = (".", ",", " ", "'", "\u2019", "\u00a0", "\u202f")
"""What may stand between the thousands of a number: 1.234, 1,234, 1 234, 1'234."""


class DateOrder(StrEnum):
    """In which order the parts of a date stand: 2024-12-31, 31.12.2024, or 12/31/2024."""

    YEAR_FIRST = "year-first"
    DAY_FIRST = "day-first"
    MONTH_FIRST = "month-first"


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How a CSV file is written; whatever is None is found out from the file.

    `encoding` is any codec that Python knows. Without it a byte-order mark decides, then UTF-8 is expected; no other
    encoding is guessed, since a wrong guess changes names silently. Nor is a spelling of numbers and dates: without a
    word, decimals have a point and dates are in ISO 8601.
    """

    delimiter: str | None = None
    quote: str | None = None
    header: bool | None = None
    encoding: str | None = None
    null: str = ""
    bad_rows: BadRows = BadRows.REFUSE
    decimal: str = "."
    thousands: str | None = None
    dates: DateOrder = DateOrder.YEAR_FIRST

    @property
    def spelling(self) -> dict[str, str]:
        """How numbers and dates are spelled, as a policy says it; empty where they are spelled as everywhere."""
        said = {"decimal": self.decimal, "thousands": self.thousands, "dates": str(self.dates)}
        plain = {"decimal": ".", "thousands": None, "dates": str(DateOrder.YEAR_FIRST)}
        return {word: value for word, value in said.items() if value is not None and value != plain[word]}


def make_dialect(encoding: str | None) -> CsvDialect | None:
    """How a CSV file is written whose encoding alone is declared; None finds out, and expects UTF-8."""
    return None if encoding is None else CsvDialect(encoding=encoding)


def find_codec(name: str) -> str | None:
    """The one name of an encoding of text, or None if there is none of that name.

    >>> find_codec("Latin1"), find_codec("rot13"), find_codec("latin-11")
    ('iso8859-1', None, None)
    """
    try:
        "".encode(name)  # refuses codecs that are known and not of text, such as rot13
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        return None


K = TypeVar("K")
V = TypeVar("V")


class Frozen(Mapping[K, V]):
    """A mapping with value equality and a hash, and without any way to alter it.

    >>> Frozen({"key": "people"})["key"]
    'people'
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._entries = dict(entries or {})

    def __getitem__(self, name: K) -> V:
        return self._entries[name]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.items()))

    def __repr__(self) -> str:
        return f"Frozen({self._entries!r})"


class Role(StrEnum):
    """A column's role in disclosure.

    An *identifier* names a person by itself; a *quasi-identifier* does so together with others, through what an
    intruder may know from elsewhere; a *sensitive* column is what the intruder wants to learn; an *insensitive* one
    is neither. There is no role by default: of an *undecided* column nobody has said what it is, and it is withheld
    from every release of rows.
    """

    IDENTIFIER = "identifier"
    QUASI_IDENTIFIER = "quasi-identifier"
    SENSITIVE = "sensitive"
    INSENSITIVE = "insensitive"
    UNDECIDED = "undecided"


Number = int | Fraction
Endpoint = int | Fraction | date | datetime


class ColumnType(StrEnum):
    """The types a policy can declare."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    DATETIME = "datetime"

    @property
    def numeric(self) -> bool:
        """Whether values of this type can be summed."""
        return self in (ColumnType.INTEGER, ColumnType.DECIMAL)


def number_of(value: int | Fraction | float | date | datetime) -> Fraction:
    """A number; a day as days since 1970, a time as seconds since 1970."""
    if isinstance(value, datetime):
        return Fraction(int((value.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()))
    return Fraction((value - date(1970, 1, 1)).days) if isinstance(value, date) else Fraction(value)


@dataclass(frozen=True, slots=True)
class Bounds:
    """A public closed interval and the step to which values inside it are rounded.

    The step is what makes sums exact: a clamped value is a whole multiple of it, so noise is added to integers. For
    dates and datetimes the step counts days and seconds.
    """

    lower: Endpoint
    upper: Endpoint
    step: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class Spec:
    """A named choice with its options, as in `mask: {token: {key: people}}`: kind 'token', options {'key': 'people'}.

    Other packages give meaning to kinds; the policy checks their names and options against its own grammar.
    """

    kind: str
    options: Mapping[str, object] = field(default_factory=Frozen)

    def __hash__(self) -> int:
        return hash((self.kind, repr(sorted(self.options.items()))))


@dataclass(frozen=True, slots=True)
class Anonymize:
    """The privacy models a k-anonymous release must meet, by column where they concern one.

    `second_release` is what happens to a release that with an earlier one shows groups under k: warn or refuse.
    """

    k: int = 5
    l: Mapping[str, Fraction] = field(default_factory=Frozen)  # noqa: E741  the field's own letter
    t: Mapping[str, Fraction] = field(default_factory=Frozen)
    suppress: Fraction = Fraction(0)
    models: tuple[Spec, ...] = ()
    second_release: str = "warn"


REMOVING = ("redact", "nullify", "constant")
KEEPING = ("keep_first", "keep_last")
REPLACING = ("codebook", "token", "format_preserving", "fake")


def is_removed(mask: Spec | None) -> bool:
    """Whether all values of a column are the same after a mask; what keeps some of their characters removes none."""
    return mask is not None and mask.kind in REMOVING and not any(mask.options.get(name) for name in KEEPING)


def is_hidden(mask: Spec | None) -> bool:
    """Whether a mask leaves nothing of a value, or another in its place, which nobody knows from elsewhere."""
    return is_removed(mask) or (mask is not None and mask.kind in REPLACING)


@dataclass(frozen=True, slots=True)
class Column:
    """One column as the steward declares it."""

    name: str
    type: ColumnType = ColumnType.TEXT
    role: Role = Role.UNDECIDED
    nullable: bool = True
    bounds: Bounds | None = None
    categories: tuple[str | int | bool, ...] | None = None
    mask: Spec | None = None
    hierarchy: Spec | None = None
    opaque: bool = field(default=False, repr=False)
    """Whether the asker may use it to tell people apart only, without looking at its values; no policy says so."""

    @property
    def decided(self) -> bool:
        """Whether the steward said how it may leave in a release of rows: by a role, or by a mask that hides it whole.

        Other masks leave something of a value, as much as the steward thought of: those need a role.
        """
        return self.role is not Role.UNDECIDED or is_hidden(self.mask)

    typed: bool = field(default=True, repr=False, compare=False)
    """Whether the policy declares the type; where it does not, it is text."""

    longest: int | None = None
    """Characters of a text that questions see; what is longer is cut."""


@dataclass(frozen=True, slots=True)
class Edges:
    """The rows of a table as edges of a network: the columns of their two ends.

    `nodes` is the table that lists the nodes, with the column of their names; `max_degree` the number of edges of a
    node beyond which statistics leave edges out, or do not tell degrees apart.
    """

    first: str
    second: str
    directed: bool = False
    nodes: tuple[str, str] | None = None
    max_degree: int | None = None


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One table: where it is, whose presence in it is hidden, and what its columns are.

    A public table protects nobody: it has no unit, and its rows may be used as they are.
    """

    name: str
    source: str
    columns: tuple[Column, ...]
    unit: PrivacyUnit | None = None
    public: bool = False
    parent: str | None = None
    """The table with one row for each unit that synthetic rows of this one belong to."""
    sequence: str | None = None
    """The column in whose order a unit's rows follow one another."""
    same_people_as: str | None = None
    """A table whose unit column holds the values of the same people under another name."""
    csv: CsvDialect = field(default_factory=CsvDialect)
    """How the file is written, if it is a CSV file."""
    rows_out: int = 1_000_000
    """Rows that may be brought out of its database for techniques that work on rows."""
    edges: Edges | None = None
    """How its rows are edges of a network, if they are."""

    def column(self, name: str) -> Column | None:
        """The column of that name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in the order of the policy."""
        return tuple(column.name for column in self.columns)

    @property
    def person(self) -> str:
        """The column that tells people apart, here or in the table of nodes; empty where there is none."""
        if self.edges is not None and self.edges.nodes is not None:
            return self.edges.nodes[1] if self.unit is not None and self.unit.network == "node" else ""
        return (self.unit.column if self.unit is not None else None) or ""

    @property
    def columns_of_people(self) -> tuple[str, ...]:
        """The columns of this table that hold those people: of a table of edges both ends."""
        if not self.person or self.edges is None:
            return (self.person,) if self.person else ()
        return self.edges.first, self.edges.second

    @property
    def released_columns(self) -> tuple[str, ...]:
        """The columns that a release of rows may speak of: those that the steward decided on, in their order."""
        return tuple(column.name for column in self.columns if column.decided)

    def with_role(self, *roles: Role) -> tuple[Column, ...]:
        """The columns having one of these roles."""
        return tuple(column for column in self.columns if column.role in roles)


_SECRET = re.compile(
    r"(?:^|[\s?&;])[\w.-]*(?:password|passwd|pwd|secret|token|scram_\w+_key|access_?key)[\w.-]*\s*=", re.IGNORECASE
)
_LOGIN = re.compile(r":/+[^/@]*:[^/@]*@|^\W*postgres[^:]*:[^?@]*:[^?@]*@[^?]*[/#]", re.IGNORECASE)


def holds_secret(address: str) -> bool:
    """Whether an address holds a password or what stands for one, in whatever spelling, and whether it leads anywhere.

    >>> holds_secret("postgresql://ana:pw@db/clinic#visits"), holds_secret("host=db pass%77ord=pw")
    (True, True)
    >>> holds_secret("postgresql://db:5432/clinic?user=ana@corp#visits"), holds_secret("visits.csv")
    (False, False)
    """
    plain = address
    while (decoded := unquote(plain)) != plain:
        plain = decoded
    login = re.sub("%3a", ":", address, flags=re.IGNORECASE)  # in a name, a colon is a password that was misspelled
    return _SECRET.search(plain) is not None or _LOGIN.search(login) is not None


def refuse_secret(source: object) -> None:
    """Refuse an address with a password before anything is done with it; the message does not repeat it."""
    if holds_secret(str(source)):
        raise ParameterError(
            "the address holds a password, or a key in place of one",
            expected="An address without it: sources are written into policies and reports",
            remedy="Leave it to PGPASSFILE or PGPASSWORD; change it if others see this machine's processes or history",
        )
