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
    SCALE = "scale"
    """Keep all rows, and scale the unit's vector of contributions down to a norm."""


@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """A row (column is None) or all rows that share a value of one column, with the bounds of its contribution.

    A row contributes one row to one group by definition; an id column needs both bounds, or explicit choices in the
    question, before a query can be answered.
    """

    column: str | None = None
    max_groups: int | None = None
    max_rows_per_group: int | None = None
    neighboring: Neighboring = Neighboring.ADD_REMOVE
    bounding: Bounding = Bounding.SAMPLE

    def __post_init__(self) -> None:
        for name, bound in (("max_groups", self.max_groups), ("max_rows_per_group", self.max_rows_per_group)):
            if bound is not None and bound < 1:
                raise ParameterError(f"{name} is {bound}", expected="A contribution bound is at least 1")

    @property
    def is_row(self) -> bool:
        """Whether each row is its own unit."""
        return self.column is None

    def __str__(self) -> str:
        return "one row" if self.column is None else f"all rows of one {self.column}"
