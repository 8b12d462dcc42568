"""Tables that belong together: a parent with one row for each unit, and rows that follow one another in time."""

from __future__ import annotations

from deniable.errors import nearest
from deniable.policy.mistakes import Mistakes
from deniable.policy.plain import Section
from deniable.policy.schema import TableSchema


def linked(table: TableSchema, tables: tuple[TableSchema, ...], entry: Section, mistakes: Mistakes) -> None:
    """Check what a table says of its parent and of its sequence."""
    if table.parent is not None:
        _parent(table, tables, entry, mistakes)
    if table.sequence is not None:
        _sequence(table, entry, mistakes)


def _parent(table: TableSchema, tables: tuple[TableSchema, ...], entry: Section, mistakes: Mistakes) -> None:
    place, known = entry.place_of("parent"), {each.name: each for each in tables if each.name != table.name}
    found = known.get(str(table.parent))
    if found is None:
        happened = f"the parent '{table.parent}' of '{table.name}' is not another table"
        mistakes.add(place, happened, f"Known: {', '.join(known)}", nearest(str(table.parent), known))
    elif _who(table) is None or _who(found) != _who(table):
        happened = f"'{table.name}' and its parent '{found.name}' do not have the same unit column"
        mistakes.add(place, happened, "Both private, with unit: {column: NAME} of one name")


def _sequence(table: TableSchema, entry: Section, mistakes: Mistakes) -> None:
    column = table.column(str(table.sequence))
    if _who(table) is None:
        happened = f"table '{table.name}' has a sequence, and each row is its own unit"
        mistakes.add(entry.place_of("sequence"), happened, "A unit with a column, whose rows follow one another")
    elif column is not None and column.bounds is None:
        happened = f"the sequence '{column.name}' has no bounds"
        mistakes.add(entry.place_of("sequence"), happened, "A number, date or datetime with between")


def _who(table: TableSchema) -> str | None:
    return table.unit.column if table.unit else None
