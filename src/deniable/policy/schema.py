"""The public shape of tables: column types, roles, public bounds and categories.

Everything here is public by declaration: the steward wrote it, it was not read from the data. Bounds and categories
decide sensitivities, so a value outside them is clamped or counted as null, never trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from fractions import Fraction

from deniable.policy.dialect import CsvDialect
from deniable.policy.frozen import Frozen
from deniable.policy.roles import Role
from deniable.policy.unit import PrivacyUnit

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

    Wings give meaning to kinds; the policy checks their names and options against its own grammar.
    """

    kind: str
    options: Mapping[str, object] = field(default_factory=Frozen)

    def __hash__(self) -> int:
        return hash((self.kind, repr(sorted(self.options.items()))))


@dataclass(frozen=True, slots=True)
class Column:
    """One column as the steward declares it."""

    name: str
    type: ColumnType = ColumnType.TEXT
    role: Role = Role.INSENSITIVE
    nullable: bool = True
    bounds: Bounds | None = None
    categories: tuple[str | int | bool, ...] | None = None
    mask: Spec | None = None
    hierarchy: Spec | None = None


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
    csv: CsvDialect = field(default_factory=CsvDialect)
    """How the file is written, if it is a CSV file."""

    def column(self, name: str) -> Column | None:
        """The column of that name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in the order of the policy."""
        return tuple(column.name for column in self.columns)

    def with_role(self, *roles: Role) -> tuple[Column, ...]:
        """The columns having one of these roles."""
        return tuple(column for column in self.columns if column.role in roles)
