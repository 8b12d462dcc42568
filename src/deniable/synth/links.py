"""Links: how rows belong to people. A policy declares them; everything here follows from it.

Either two tables, a parent with one row a person and a child table with several, or one table with several rows a
person, in which a truth says what belongs to the person: `determines: {from: [patient_id], to: [sex, birth_date]}`.
Rows of a person may be a sequence, in the order of one column. Columns that a truth puts after that one (`order`) are
counted from it, so that the order holds by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from deniable.errors import ParameterError
from deniable.policy.schema import ColumnType, Spec, TableSchema
from deniable.synth.attributes import BINS, Attribute, Bins, Coded, Labels, Made, attributes, equal_cuts

COUNT, FIRST = "(number of rows)", "(first)"
"""Of a person: how many rows there are, and at which step of the sequence the first one stands."""
PLACE, SINCE = "(place)", "(since)"
"""Of a row: whether it is the first, and how many steps after the one before it (the first: after the lower bound)."""
PERSON, PREVIOUS, AFTER, REPEATS = "(person) ", "(previous) ", "(after) ", "(repeats) "
"""Before the names of a person's columns, of columns of the row before, of columns counted from the sequence, and of
whether a row repeats the value of the one before: a table of two values is cheap to learn where one of all is not."""


@dataclass(frozen=True, slots=True)
class Link:
    """How the rows of a table belong to people: public."""

    child: str
    parent: str | None
    """The parent table, or None where people's columns stand in the child table."""
    key: str
    most: int
    """The most rows of a person."""
    people: tuple[Attribute, ...]
    """The columns of people, the key among them, as the policy declares them."""
    rows: tuple[Attribute, ...]
    """The other columns of rows."""
    sequence: str | None = None
    after: tuple[str, ...] = ()
    """Columns that are counted from the sequence."""

    @property
    def least(self) -> int:
        """The fewest rows of a person: without a parent table, people are known by their rows."""
        return 0 if self.parent else 1

    def row(self, name: str) -> Attribute:
        """A column of rows."""
        return next(attribute for attribute in self.rows if attribute.name == name)

    @property
    def clock(self) -> Bins | None:
        """The sequence's column."""
        found = self.row(self.sequence) if self.sequence else None
        return found if isinstance(found, Bins) else None


def is_linked(table: TableSchema) -> bool:
    """Whether a table's rows are synthesized as belonging to people."""
    return table.parent is not None or table.sequence is not None


def link_of(child: TableSchema, parent: TableSchema | None, truths: Sequence[Spec]) -> Link:
    """The link that a policy declares for a table."""
    assert child.unit is not None
    key = child.unit.column
    if key is None:
        raise ParameterError(f"rows of '{child.name}' are their own units", expected="A unit with a column")
    owned = parent.names if parent else (key, *_owned(truths, key, child))
    people = attributes(parent or child, owned)
    rows = tuple(a for a in attributes(child) if a.name != key and (parent is not None or a.name not in owned))
    link = Link(child.name, parent.name if parent else None, key, child.unit.rows_learned, people, rows)
    clock = child.sequence if any(a.name == child.sequence for a in rows) else None
    after = tuple(name for name in _after(truths, clock) if _countable(link, clock, name)) if clock else ()
    return replace(link, sequence=clock, after=after)


def _owned(truths: Sequence[Spec], key: str, child: TableSchema) -> list[str]:
    """What the key determines, by the policy's truths."""
    found = [t.options for t in truths if t.kind == "determines" and _names(t.options["from"]) == [key]]
    return [name for options in found for name in _names(options["to"]) if name in child.names]


def _after(truths: Sequence[Spec], clock: str | None) -> list[str]:
    """The columns that an order puts after the sequence's."""
    orders = [_names(t.options["columns"]) for t in truths if t.kind == "order"]
    return [name for names in orders if names and names[0] == clock for name in names[1:]]


def _countable(link: Link, clock: str | None, name: str) -> bool:
    """Whether a column has the sequence's type and step, so that it can be counted from it."""
    start = link.row(clock) if clock else None
    found = next((a for a in link.rows if a.name == name), None)
    if not isinstance(start, Bins) or not isinstance(found, Bins):
        return False
    apart = (found.lower - start.lower) / start.step
    return found.type is start.type and found.step == start.step and apart.denominator == 1


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list | tuple) else []


def person_attributes(link: Link) -> tuple[Attribute, ...]:
    """A person's columns, and what is known of a person's rows."""
    count = Labels(COUNT, ColumnType.INTEGER, tuple(range(link.least, link.most + 1)), False)
    return (*link.people, count, *((_steps(FIRST, link.clock.steps, nullable=True),) if link.clock else ()))


def free_attributes(link: Link) -> tuple[Attribute, ...]:
    """What is drawn of a row: time since the one before, columns counted from it, and all others."""
    if link.clock is None:
        return link.rows
    counted = [_counted(link.clock, link.row(name)) for name in link.after]
    plain = [a for a in link.rows if a.name != link.sequence and a.name not in link.after]
    again = [Labels(REPEATS + a.name, ColumnType.BOOLEAN, (False, True), False) for a in plain if repeatable(a)]
    return (_steps(SINCE, link.clock.steps, nullable=False), *again, *counted, *plain)


def repeatable(attribute: Attribute) -> bool:
    """Whether it is worth knowing that a column repeats its value; of two values, the table of both says it all."""
    return isinstance(attribute, Labels) and len(attribute.labels) > 2


def given_attributes(link: Link, people: tuple[Attribute, ...], free: tuple[Attribute, ...]) -> tuple[Coded, ...]:
    """What is given when a row is drawn: the person, and in a sequence the place and the row before."""
    persons = tuple(replace(a, name=PERSON + a.name) for a in people if not isinstance(a, Made) and a.name != FIRST)
    if link.clock is None:
        return persons
    place = Labels(PLACE, ColumnType.TEXT, ("first", "later"), False)
    before = tuple(replace(a, name=PREVIOUS + a.name, nullable=True) for a in carried(free))
    return (*persons, place, *before)


def carried(free: tuple[Attribute, ...]) -> tuple[Labels | Bins, ...]:
    """The columns of a row that the next one may depend on."""
    return tuple(a for a in free if isinstance(a, Labels | Bins) and a.name != SINCE and not a.name.startswith(REPEATS))


def _steps(name: str, steps: int, *, nullable: bool) -> Bins:
    return Bins(name, ColumnType.INTEGER, Fraction(0), Fraction(1), equal_cuts(steps, min(steps, BINS)), nullable)


def _counted(clock: Bins, found: Attribute) -> Bins:
    assert isinstance(found, Bins)
    steps = int((found.lower - clock.lower) / clock.step) + found.steps
    return _steps(AFTER + found.name, max(steps, 1), nullable=found.nullable)
