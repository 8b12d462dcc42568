"""Whose presence is hidden: the privacy unit, the neighboring relation and the contribution bounds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
        return "one row" if self.column is None else f"all rows of one {self.column}"
