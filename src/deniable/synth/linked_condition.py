"""Conditions on people with their rows: on columns of people, on columns of their rows, or on both.

A condition on people keeps people with all their rows. One on rows keeps the rows that fit, and of people those who
have one. Post-processing of a public model: it costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deniable.synth.attributes import Attribute, Bins, Labels
from deniable.synth.condition import Condition, values_of
from deniable.synth.links import Link


@dataclass(frozen=True, slots=True)
class LinkedCondition:
    """What is asked of people, and what of their rows."""

    people: Condition
    rows: Condition

    @property
    def of_rows(self) -> bool:
        """Whether anything is asked of rows."""
        return bool(self.rows.values)

    def __bool__(self) -> bool:
        return bool(self.people.values or self.rows.values)


def linked_condition(link: Link, where: Mapping[str, str]) -> LinkedCondition:
    """The condition that people and rows can meet; what none can meet is refused."""
    people, rows = _spoken_of(link.people), _spoken_of(link.rows)
    values = values_of({**rows, **people}, where)
    of_people = tuple((name, value) for name, value in values if name in people)
    of_rows = tuple((name, value) for name, value in values if name not in people)
    return LinkedCondition(Condition(of_people, 1.0), Condition(of_rows, 1.0))


def _spoken_of(columns: Iterable[Attribute]) -> dict[str, Labels | Bins]:
    return {a.name: a for a in columns if isinstance(a, Labels | Bins)}
