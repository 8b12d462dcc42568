"""The domain: the columns of a table as they are coded, and how many values each has, declared by the policy.

`Domain` is what methods see: names, sizes, and `project`. Attributes say what the codes of a column stand for.
Categories, bounds and steps are public, so the number of codes is; a nullable column has one code more, for null, which
is a value like any other. Identifiers are not coded at all: they get surrogates. What the policy leaves open (where
numbers are cut, which shapes texts have) is learned within the budget by `describe`.

`Areas` are the levels of a column whose values lie in one another, such as ZIP codes in regions. They come from the
column's declared hierarchy, so they are public. The level of everybody, in which all hierarchies end, is left out: it
is the table itself. Nothing here sees a row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.policy.schema import Column, ColumnType, Role, Spec, TableSchema

Clique = tuple[int, ...]
"""Columns that are measured together, by their places, in rising order."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Columns with the number of values each can take; codes run from 0 to size - 1.

    >>> Domain(("sex", "age"), (2, 90)).cells((0, 1))
    180
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    ordered: frozenset[int] = frozenset()
    """The places of columns whose neighboring codes are neighboring values."""
    given: frozenset[int] = frozenset()
    """The places of columns that are never drawn, only drawn from: what they have to do with one another is no use."""
    nulls: frozenset[int] = frozenset()
    """The places of ordered columns whose last code is null, which is no neighbor of the largest value."""
    cuts: Mapping[int, tuple[int, ...]] = field(default_factory=dict, compare=False)
    """By the places of numbers and dates in bins, where their bins begin and where the last one ends; also where codes
    stand for several bins each."""

    def __post_init__(self) -> None:
        if len(self.names) != len(self.sizes) or len(set(self.names)) != len(self.names):
            raise ParameterError("a domain has one size for each of its differently named columns")
        if any(size < 1 for size in self.sizes):
            raise ParameterError("a column of a domain has no value", expected="Sizes of at least 1")

    def __len__(self) -> int:
        return len(self.names)

    def project(self, clique: Clique) -> Domain:
        """The domain of some of the columns."""
        return Domain(tuple(self.names[place] for place in clique), tuple(self.sizes[place] for place in clique))

    def resize(self, sizes: tuple[int, ...]) -> Domain:
        """The same columns with other numbers of values."""
        return replace(self, sizes=sizes)

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """The sizes of a clique's columns."""
        return tuple(self.sizes[place] for place in clique)

    def useful(self, size: int) -> list[Clique]:
        """All cliques of so many columns that are not wholly given.

        >>> Domain(("a", "b", "c"), (2, 2, 2), given=frozenset({0, 1})).useful(2)
        [(0, 2), (1, 2)]
        """
        cliques = itertools.combinations(range(len(self)), size)
        return [clique for clique in cliques if not self.given.issuperset(clique)]

    def cells(self, clique: Clique) -> int:
        """How many combinations a clique has."""
        return math.prod(self.shape(clique))


BINS = 256
"""A number or date with more steps than this is cut into so many equal bins first."""
LARGEST = 1 << 62
"""Whole numbers up to this, and their differences, are computed exactly in 64 bits."""
OTHER = "(any other text)"
EPOCH = date(1970, 1, 1)
DAY = timedelta(days=1)
Value = int | float | date | datetime


@dataclass(frozen=True, slots=True)
class Labels:
    """A column with listed values."""

    name: str
    type: ColumnType
    labels: tuple[str | int | bool, ...]
    nullable: bool

    @property
    def size(self) -> int:
        """How many codes it has."""
        return len(self.labels) + self.nullable


@dataclass(frozen=True, slots=True)
class Bins:
    """A bounded number, date or datetime: `steps` steps from `lower` on, cut into bins."""

    name: str
    type: ColumnType
    lower: Fraction
    """In numbers, days since 1970, or seconds since 1970."""
    step: Fraction
    cuts: tuple[int, ...]
    """The steps at which bins begin, rising from 0, and after the last one the number of steps."""
    nullable: bool

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return self.cuts[-1]

    @property
    def bins(self) -> int:
        """How many bins there are."""
        return len(self.cuts) - 1

    @property
    def size(self) -> int:
        """How many codes it has."""
        return self.bins + self.nullable

    def span(self, first: int, last: int) -> tuple[Value, Value]:
        """The least and the greatest value of the bins from one to another."""
        return self._at(self.cuts[first]), self._at(self.cuts[last + 1] - 1)

    def holds(self, value: Value) -> bool:
        """Whether a value is that of a step."""
        if isinstance(value, datetime):
            number = Fraction((value - datetime(1970, 1, 1)) // timedelta(seconds=1))
        elif isinstance(value, date):
            number = Fraction((value - EPOCH).days)
        elif math.isfinite(value):
            number = Fraction(value)
        else:
            return False
        step = round((number - self.lower) / self.step)
        return 0 <= step < self.steps and bool(self._at(step) == value)

    def _at(self, step: int) -> Value:
        number = self.lower + step * self.step
        match self.type:
            case ColumnType.DATE:
                return EPOCH + int(number) * DAY
            case ColumnType.DATETIME:
                return datetime(1970, 1, 1) + timedelta(seconds=int(number))
            case ColumnType.INTEGER:
                return int(number)
            case _:
                return float(number)


@dataclass(frozen=True, slots=True)
class ShapedText:
    """A column of texts without declared values: only shapes are learned (`text_shapes`), and any other is one."""

    name: str
    type: ColumnType
    shapes: tuple[str, ...]
    nullable: bool

    @property
    def size(self) -> int:
        """How many codes it has."""
        return len(self.labels) + self.nullable

    @property
    def labels(self) -> tuple[str, ...]:
        """What the codes stand for, without null."""
        return (*self.shapes, OTHER)


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A column whose values are made anew and obviously so: identifiers, and texts of which nothing was learned."""

    name: str
    type: ColumnType
    prefix: str


Coded = Labels | Bins | ShapedText
Attribute = Coded | Surrogate


def build_domain(
    coded: Sequence[Coded], ordered: frozenset[int] | None = None, given: frozenset[int] = frozenset()
) -> Domain:
    """The domain of coded attributes; numbers and dates are ordered, unless told otherwise."""
    rising = frozenset(i for i, a in enumerate(coded) if isinstance(a, Bins)) if ordered is None else ordered
    nulls = frozenset(i for i in rising if coded[i].nullable)
    cuts = {i: a.cuts for i, a in enumerate(coded) if i in rising and isinstance(a, Bins)}
    return Domain(tuple(a.name for a in coded), tuple(a.size for a in coded), rising, given, nulls, cuts)


def surrogate_prefix(name: str) -> str:
    """What made values of a column begin with."""
    return f"synthetic-{name}-"


def equal_cuts(steps: int, bins: int) -> tuple[int, ...]:
    """Bins as equal as whole steps allow.

    >>> equal_cuts(10, 4)
    (0, 3, 5, 8, 10)
    """
    return tuple(-(-place * steps // bins) for place in range(bins + 1))


def rising_cuts(steps: int) -> tuple[int, ...]:
    """Bins of a distance from 0: single steps first, then each bin about half as long as all before it.

    Distances are mostly short beside the longest one that bounds allow. Few bins far away add up to little noise.

    >>> rising_cuts(20)
    (0, 1, 2, 3, 4, 6, 9, 13, 19, 20)
    """
    cuts = [0]
    while cuts[-1] < steps:
        cuts.append(min(steps, cuts[-1] + max(1, cuts[-1] // 2)))
    return tuple(cuts)


def attributes_of(table: TableSchema, only: tuple[str, ...] | None = None) -> tuple[Attribute, ...]:
    """The attributes of a table's columns, all or some, in the policy's order."""
    return tuple(_attribute_of(column, table) for column in table.columns if only is None or column.name in only)


def _attribute_of(column: Column, table: TableSchema) -> Attribute:
    if column.type is ColumnType.BOOLEAN:
        return Labels(column.name, column.type, (False, True), column.nullable)
    if column.categories is not None:
        return Labels(column.name, column.type, column.categories, column.nullable)
    if column.role is Role.IDENTIFIER:
        kept = column.type if column.type is ColumnType.INTEGER else ColumnType.TEXT
        return Surrogate(column.name, kept, surrogate_prefix(column.name))
    if column.type is ColumnType.TEXT:
        return ShapedText(column.name, column.type, (), column.nullable)
    if column.bounds is None:
        raise ParameterError(
            f"column '{column.name}' of '{table.name}' has no public bounds",
            expected="Synthetic columns have categories or bounds that the policy declares",
            remedy="Declare between and step, or leave the column out with --columns",
        )
    lower, upper = _endpoint_number(column.bounds.lower), _endpoint_number(column.bounds.upper)
    if max(abs(lower), abs(upper), (upper - lower) * column.bounds.step.denominator) > LARGEST:
        raise ParameterError(
            f"the bounds of column '{column.name}' of '{table.name}' are too large for synthetic values",
            expected="Bounds, and the range between them in its smallest unit, of at most 2**62",
            remedy="Declare narrower bounds, or leave the column out with --columns",
        )
    steps = int((upper - lower) / column.bounds.step) + 1
    cuts = equal_cuts(steps, min(steps, BINS))
    return Bins(column.name, column.type, lower, column.bounds.step, cuts, column.nullable)


def _endpoint_number(endpoint: int | Fraction | date | datetime) -> Fraction:
    if isinstance(endpoint, datetime):
        return Fraction(int((endpoint.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()))
    if isinstance(endpoint, date):
        return Fraction((endpoint - EPOCH).days)
    return Fraction(endpoint)


def arrow_type(attribute: Coded) -> pa.DataType:
    """The type of a column's values."""
    times = {ColumnType.DATE: pa.date32(), ColumnType.DATETIME: pa.timestamp("s")}
    if isinstance(attribute, Bins) and attribute.type in times:
        return times[attribute.type]
    numbers = {ColumnType.INTEGER: pa.int64(), ColumnType.BOOLEAN: pa.bool_(), ColumnType.DECIMAL: pa.float64()}
    return numbers.get(attribute.type, pa.float64() if isinstance(attribute, Bins) else pa.string())


AREA_HIERARCHIES = ("tree", "redact", "prefix", "geohash", "order")
"""The hierarchies that group listed values; the earlier are taken for areas sooner."""

Groups = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Areas:
    """The column at `place`: for every level, from coarse to fine, the group of each of its codes; codes come last."""

    place: int
    levels: tuple[Groups, ...]

    def __post_init__(self) -> None:
        if any(np.unique(fine).size != np.unique(np.stack([fine, coarse]), axis=1).shape[1]
               for coarse, fine in pairwise(self.levels)):  # fmt: skip
            raise ParameterError("an area lies in two others", expected="A hierarchy whose levels refine one another")


def find_areas(table: TableSchema, chosen: tuple[Attribute, ...], name: str | None = None) -> Areas | None:
    """The areas of a table: in the column asked for, or in the first that has a hierarchy of listed values."""
    coded = [attribute for attribute in chosen if not isinstance(attribute, Surrogate)]
    found = []
    for place, attribute in enumerate(coded):
        column = table.column(attribute.name)
        told = column.hierarchy if column is not None else None
        if isinstance(attribute, Labels) and told is not None and told.kind in AREA_HIERARCHIES:
            found.append((AREA_HIERARCHIES.index(told.kind), place, attribute, told))
    asked = [entry for entry in found if name is None or entry[2].name == name]
    if name is not None and not asked:
        raise ParameterError(
            f"the values of '{name}' do not lie in one another",
            expected="A column with categories and a hierarchy: tree, redact, prefix or order",
            remedy="Declare them in the policy" + (f", or take '{found[0][2].name}'" if found else ""),
        )
    if not asked:
        return None
    _, place, attribute, told = min(asked, key=lambda entry: entry[:2])
    return Areas(place, _build_levels(attribute, told))


def areas_refusal() -> ParameterError:
    """The refusal of a table without areas."""
    return ParameterError(
        "no column's values lie in one another",
        expected="A column with categories and a hierarchy: tree, redact, prefix or order",
        remedy="Declare the hierarchy in the policy, or take another method",
    )


def _build_levels(attribute: Labels, told: Spec) -> tuple[Groups, ...]:
    """Levels from coarse to fine, each finer than the one before; null is an area of its own."""
    levels = [
        _number_groups(keys, attribute.nullable)
        for keys in _level_keys([str(label) for label in attribute.labels], told)
    ]
    kept: list[Groups] = [np.arange(attribute.size, dtype=np.int64)]
    for groups in levels:
        if 1 < np.unique(groups).size < np.unique(kept[0]).size:
            kept.insert(0, groups)
    return tuple(kept)


def _number_groups(keys: Sequence[Hashable], nullable: bool) -> Groups:
    seen: dict[Hashable, int] = {}
    groups = [seen.setdefault(key, len(seen)) for key in keys]
    return np.array([*groups, *([len(seen)] if nullable else [])], dtype=np.int64)


def _level_keys(labels: list[str], told: Spec) -> list[list[Hashable]]:
    """What values have in common at every level, from fine to coarse."""
    options = told.options
    match told.kind:
        case "tree":
            rows = {str(row[0]): row for row in _as_rows(options["rows"])}
            height = max((len(row) for row in rows.values()), default=1)
            return [[rows[v][level] if v in rows else v for v in labels] for level in range(1, height)]
        case "redact":
            longest = max(map(len, labels), default=0)
            right = options.get("from", "right") == "right"
            return [[v[: max(len(v) - n, 0)] if right else v[n:] for v in labels] for n in range(1, longest)]
        case "order":
            return _neighbor_groups(labels, options.get("sizes"), options.get("groups"))
        case _:
            return [[v[: int(str(length))] for v in labels] for length in _as_rows(options["lengths"])]


def _neighbor_groups(labels: list[str], sizes: object, groups: object) -> list[list[Hashable]]:
    if groups is not None:
        home = {str(v): number for number, group in enumerate(_as_rows(groups)) for v in group}
        return [[home.get(v, v) for v in labels]]
    return [[place // int(str(size)) for place in range(len(labels))] for size in _as_rows(sizes)]


def _as_rows(value: object) -> list[tuple[str, ...]]:
    assert isinstance(value, list | tuple)
    return list(value)
