"""How rows belong to people, as a policy declares it, and the tables that are described of both.

A policy declares it by a parent table with one row a person and child tables with several rows a person (which may have
rows of their own in further tables), or by one table with several rows a person, in which a truth says what belongs to
the person: `determines: {from: [patient_id], to: [sex, birth_date]}`. Rows of a person may be a sequence, in the order
of one column. Columns that a truth puts after that one (`order`) are counted from it, so that the order holds by
construction.

The derived tables have one row a person, and the rows of people with their person and the rows before. A person's part
of each depends on that person's own rows alone, and has at most `most` rows in all: the pricing of what is measured
rests on that alone. So a row finds the row that it belongs to among those of its own person."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import ParameterError, nearest
from deniable.policy.schema import ColumnType, Spec, TableSchema
from deniable.synth.domain import (
    BINS,
    Attribute,
    Bins,
    Coded,
    Labels,
    Surrogate,
    attributes_of,
    equal_cuts,
    rising_cuts,
)
from deniable.synth.encode import find_steps, to_array

NUMBER, FIRST_TIME = "(number of ", "(first"
COUNT, FIRST = f"{NUMBER}rows)", f"{FIRST_TIME})"
"""Of a person: how many rows there are, and at which step of the sequence the first one stands. Of a table among
several: (number of visits), (first of visits)."""
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
    memory: int = 1
    """How many rows before a row in a sequence it may depend on."""
    unit: str = ""
    """The column of the person, where the rows belong to rows of a person; else the key is it."""
    alone: bool = True
    """Whether the parent has no other child."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that name the parent's row."""
        return (self.unit, self.key) if self.unit else (self.key,)

    @property
    def count_name(self) -> str:
        """What the number of rows is called in the parent."""
        return COUNT if self.alone else f"{NUMBER}{self.child})"

    @property
    def first_name(self) -> str:
        """What the time of the first row is called in the parent."""
        return FIRST if self.alone else f"{FIRST_TIME} of {self.child})"

    @property
    def owner(self) -> str:
        """What stands before the names of the parent's columns."""
        return f"({self.parent}) " if self.unit else PERSON

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


MOST_MEMORY = 5
"""Each row farther back adds the columns of a row to what is scored, and its noise to all scores."""


def link_of(
    child: TableSchema,
    parent: TableSchema | None,
    truths: Sequence[Spec],
    only: Collection[str] | None = None,
    *,
    memory: int = 1,
    root: bool = True,
    alone: bool = True,
) -> Link:
    """The link that a policy declares for a table; of all columns or, beside the keys, of some.

    Without the column of the sequence, a person's rows have no order. A parent that is not the root has several rows a
    person: which one is named by the identifier that both tables have beside that of the person.
    """
    assert child.unit is not None
    unit = child.unit.column
    if unit is None:
        raise ParameterError(f"rows of '{child.name}' are their own units", expected="A unit with a column")
    if not 1 <= memory <= MOST_MEMORY:
        raise ParameterError(f"a row cannot depend on {memory} rows before it", expected=f"1 to {MOST_MEMORY}")
    key = unit if root or parent is None else find_row_key(child, parent, unit)
    owned = parent.names if parent else (unit, *_person_columns(truths, unit, child))
    people = attributes_of(parent or child, tuple(n for n in owned if only is None or n in (key, unit) or n in only))
    others = tuple(n for n in child.names if n not in (key, unit) and (parent is not None or n not in owned))
    rows = attributes_of(child, tuple(n for n in others if only is None or n in only))
    if all(isinstance(attribute, Surrogate) for attribute in rows):
        raise ParameterError(
            f"no column of the rows of '{child.name}' is described",
            expected=f"One or more of {', '.join(others)}",
            remedy="Name one with --columns, or leave out --linked",
        )
    _refuse_made_names([*people, *rows], parent)
    link = Link(child.name, parent.name if parent else None, key, child.unit.rows_learned, people, rows)
    clock = child.sequence if any(a.name == child.sequence for a in rows) else None
    after = tuple(name for name in _columns_after(truths, clock) if _is_countable(link, clock, name)) if clock else ()
    nested = unit if key != unit else ""
    return replace(link, sequence=clock, after=after, memory=memory, unit=nested, alone=alone)


def _refuse_made_names(columns: Iterable[Attribute], parent: TableSchema | None) -> None:
    """Refuse columns that have the name of something derived: a number of rows, a column of people, the row before."""
    made = (NUMBER, FIRST_TIME, PLACE, SINCE, PERSON, PREVIOUS, AFTER, REPEATS, "(previous ")
    for column in columns:
        if column.name.startswith((*made, f"({parent.name}) ") if parent else made):
            raise ParameterError(
                f"the name of the column '{column.name}' is one that people with their rows get here",
                remedy="Rename it in its source, or leave it out with --columns",
            )


def find_row_key(child: TableSchema, parent: TableSchema, unit: str) -> str:
    """The column that names a row of a parent with several rows a person."""
    listed = [{a.name for a in attributes_of(each) if isinstance(a, Surrogate)} for each in (child, parent)]
    shared = [name for name in child.names if name != unit and name in listed[0] & listed[1]]
    if len(shared) != 1:
        raise ParameterError(
            f"'{child.name}' and its parent '{parent.name}' have {len(shared)} identifiers in common beside '{unit}'",
            expected=f"One, which names a row of '{parent.name}'",
            remedy="Declare it in both tables with role: identifier, and let whoever asks name it in both",
        )
    return shared[0]


def find_row_keys(child: TableSchema, root: TableSchema | None, tables: Iterable[TableSchema]) -> list[str]:
    """The key of a table whose parent is not the table of people; it is always described."""
    parents = [each for each in tables if each.name == child.parent and each != root]
    return [find_row_key(child, each, str(child.unit.column)) for each in parents if child.unit is not None]


def check_workload(links: Sequence[Link], workload: Iterable[Sequence[str]]) -> None:
    """Refuse columns to be seen together that are not described, or are rows of several tables."""
    people = [each.name for each in links[0].people]
    known = [*people, *(each.name for link in links for each in link.rows)]
    for names in workload:
        for name in sorted(set(names)):
            refuse_unlinked(name, known, "are described")
        if not any({*names} <= {*people, *(each.name for each in (*link.people, *link.rows))} for link in links):
            raise ParameterError(
                f"{' x '.join(names)} are columns of several tables of rows",
                expected="Columns of people, and of the rows of one table",
            )


def refuse_unlinked(name: str, known: Sequence[str], among: str) -> None:
    """Refuse a column that is not among some."""
    if name not in known:
        raise ParameterError(f"'{name}' is not among the columns that {among}", remedy=nearest(name, known))


def _person_columns(truths: Sequence[Spec], key: str, child: TableSchema) -> list[str]:
    """What the key determines, by the policy's truths."""
    found = [t.options for t in truths if t.kind == "determines" and _as_names(t.options["from"]) == [key]]
    return [name for options in found for name in _as_names(options["to"]) if name in child.names]


def _columns_after(truths: Sequence[Spec], clock: str | None) -> list[str]:
    """The columns that an order puts after the sequence's."""
    orders = [_as_names(t.options["columns"]) for t in truths if t.kind == "order"]
    return [name for names in orders if names and names[0] == clock for name in names[1:]]


def _is_countable(link: Link, clock: str | None, name: str) -> bool:
    """Whether a column has the sequence's type and step, so that it can be counted from it."""
    start = link.row(clock) if clock else None
    found = next((a for a in link.rows if a.name == name), None)
    if not isinstance(start, Bins) or not isinstance(found, Bins):
        return False
    apart = (found.lower - start.lower) / start.step
    return found.type is start.type and found.step == start.step and apart.denominator == 1


def _as_names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list | tuple) else []


def person_attributes(*links: Link) -> tuple[Attribute, ...]:
    """A person's columns, and what is known of a person's rows in each child table."""
    return (*links[0].people, *rows_attributes(links))


def rows_attributes(links: Iterable[Link]) -> tuple[Attribute, ...]:
    """What is known of the rows that belong to a row: how many there are, and when the first is."""
    found: list[Attribute] = []
    for link in links:
        found.append(Labels(link.count_name, ColumnType.INTEGER, tuple(range(link.least, link.most + 1)), False))
        if link.clock:
            steps = link.clock.steps
            found.append(_step_bins(link.first_name, equal_cuts(steps, min(steps, BINS)), nullable=True))
    return tuple(found)


def free_attributes(link: Link) -> tuple[Attribute, ...]:
    """What is drawn of a row: time since the one before, columns counted from it, and all others."""
    if link.clock is None:
        return link.rows
    counted = [_offset_bins(link.clock, link.row(name)) for name in link.after]
    plain = [a for a in link.rows if a.name != link.sequence and a.name not in link.after]
    again = [Labels(REPEATS + a.name, ColumnType.BOOLEAN, (False, True), False) for a in plain if is_repeatable(a)]
    return (_step_bins(SINCE, rising_cuts(link.clock.steps), nullable=False), *again, *counted, *plain)


def is_repeatable(attribute: Attribute) -> bool:
    """Whether it is worth knowing that a column repeats its value; of two values, the table of both says it all."""
    return isinstance(attribute, Labels) and len(attribute.labels) > 2


def context_attributes(link: Link, people: tuple[Attribute, ...], free: tuple[Attribute, ...]) -> tuple[Coded, ...]:
    """What is given when a row is drawn: the row that it belongs to, and in a sequence the place and the rows before.

    Of a parent that is itself a row of a person, both are given, and not what came before it.
    """
    persons = tuple(replace(a, name=name_in_context(link, a.name)) for a in people if _is_context(a, link))
    if link.clock is None:
        return persons
    place = Labels(PLACE, ColumnType.TEXT, ("first", "later"), False)
    lags = range(1, link.memory + 1)
    before = (
        replace(a, name=name_before(a.name, lag), nullable=True) for lag in lags for a in carry_over_columns(free)
    )
    return (*persons, place, *before)


def _is_context(attribute: Attribute, link: Link) -> TypeGuard[Coded]:
    left_out = (FIRST_TIME, *((PREVIOUS, REPEATS, SINCE, PLACE, "(previous ") if link.unit else ()))
    return not isinstance(attribute, Surrogate) and not attribute.name.startswith(left_out)


def name_in_context(link: Link, name: str) -> str:
    """What a column of the parent is called among its rows; a person's is called the same at every level."""
    return name if link.unit and name.startswith(PERSON) else link.owner + name


def name_before(name: str, lag: int) -> str:
    """What a column of the row before is called, or of one farther back.

    >>> name_before("ward", 1), name_before("ward", 2)
    ('(previous) ward', '(previous 2) ward')
    """
    return PREVIOUS + name if lag == 1 else f"(previous {lag}) {name}"


def carry_over_columns(free: tuple[Attribute, ...]) -> tuple[Labels | Bins, ...]:
    """The columns of a row that the next one may depend on: not what is known of its own rows."""
    left_out = (SINCE, REPEATS, NUMBER, FIRST_TIME)
    return tuple(a for a in free if isinstance(a, Labels | Bins) and not a.name.startswith(left_out))


def _step_bins(name: str, cuts: tuple[int, ...], *, nullable: bool) -> Bins:
    return Bins(name, ColumnType.INTEGER, Fraction(0), Fraction(1), cuts, nullable)


def _offset_bins(clock: Bins, found: Attribute) -> Bins:
    assert isinstance(found, Bins)
    steps = int((found.lower - clock.lower) / clock.step) + found.steps
    return _step_bins(AFTER + found.name, rising_cuts(max(steps, 1)), nullable=found.nullable)


Places = NDArray[np.int64]


def derive_linked_tables(link: Link, people: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Tables of people and of rows, with the columns that a link adds; raw values, still private."""
    persons, (owned,) = derive_family_tables((link,), people, (rows,))
    return persons, owned


def derive_family_tables(
    links: Sequence[Link], people: pa.Table | None, tables: Sequence[pa.Table]
) -> tuple[pa.Table, list[pa.Table]]:
    """The same of several child tables, parents before children: people, and the rows of each table."""
    root = links[0]
    people = _keep_first_rows(people if people is not None else tables[0], root.key)
    kept: dict[str | None, _Kept] = {root.parent: _Kept(people, np.arange(people.num_rows))}
    for link, rows in zip(links, tables, strict=True):
        kept[link.child] = _keep_rows(link, kept[link.parent], rows)
    persons = {a.name: people.column(a.name) for a in root.people} | _count_rows(links, kept, root.parent)
    columns: dict[str | None, dict[str, pa.Array]] = {root.parent: persons}
    for link in links:
        own = _derive_row_columns(link, columns[link.parent], kept[link.child])
        columns[link.child] = own | _count_rows(links, kept, link.child)
    return pa.table(persons), [pa.table(columns[link.child]) for link in links]


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """The rows of a table that are described: by parent's row, in the order of the sequence."""

    rows: pa.Table
    person: Places
    who: Places = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Of each row, the place of the row that it belongs to."""
    steps: Places | None = None


def _keep_rows(link: Link, owners: _Kept, rows: pa.Table) -> _Kept:
    who, at = _assign_rows(link, owners, rows)
    kept = rows.take(pa.array(at))
    return _Kept(kept, owners.person[who], who, _clock_steps(link, kept))


def _count_rows(links: Sequence[Link], kept: Mapping[str | None, _Kept], name: str | None) -> dict[str, pa.Array]:
    """Of each row of a table: how many rows belong to it, and the time of the first."""
    found: dict[str, pa.Array] = {}
    for link in (each for each in links if each.parent == name):
        held, size = kept[link.child], kept[name].rows.num_rows
        count = np.minimum(np.bincount(held.who, minlength=size), link.most)
        found[link.count_name] = pa.array(count)
        if held.steps is not None:
            first = np.searchsorted(held.who, np.arange(size))
            found[link.first_name] = pa.array(np.append(held.steps, 0)[first], mask=count == 0)
    return found


def _keep_first_rows(rows: pa.Table, key: str) -> pa.Table:
    """One row for each value of the key, none for null."""
    numbered = rows.select([key]).append_column("(row)", pa.array(np.arange(rows.num_rows)))
    firsts = numbered.filter(pc.is_valid(numbered[key])).group_by(key).aggregate([("(row)", "min")])
    return rows.take(firsts["(row)_min"].combine_chunks().sort())


def _assign_rows(link: Link, owners: _Kept, rows: pa.Table) -> tuple[Places, Places]:
    """Whose each kept row is, and where it stands: by owner, in the order of the sequence, at most so many each."""
    found = _find_owners(link, owners, rows)
    usable = found >= 0
    steps = np.zeros(rows.num_rows, dtype=np.int64)
    if link.clock is not None:
        steps, null = find_steps(link.clock, to_array(rows[link.clock.name]))
        usable &= ~null
    at = np.flatnonzero(usable)
    who = found[at]
    order = np.lexsort((steps[at], who))
    who, at = who[order], at[order]
    within = np.arange(who.size) - np.searchsorted(who, who)
    return who[within < link.most], at[within < link.most]


def _find_owners(link: Link, owners: _Kept, rows: pa.Table) -> Places:
    """The place of the row that each row belongs to, -1 where there is none: all its keys agree, and none is null."""
    mine, theirs = np.zeros(rows.num_rows, dtype=np.int64), np.zeros(owners.rows.num_rows, dtype=np.int64)
    for key in link.keys:
        known = to_array(owners.rows[key])
        values = known.unique().drop_null()
        ours = pc.index_in(to_array(rows[key]), values.cast(rows[key].type)).fill_null(-1)
        own = ours.to_numpy(zero_copy_only=False).astype(np.int64)
        other = pc.index_in(known, values).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        mine = np.where((mine < 0) | (own < 0), -1, mine * len(values) + own)
        theirs = np.where((theirs < 0) | (other < 0), -2, theirs * len(values) + other)
    # Where several rows have the same keys, what names them belongs to the first.
    values_, first = np.unique(theirs, return_index=True)
    at = np.minimum(np.searchsorted(values_, mine), max(values_.size - 1, 0))
    hit = (values_[at] == mine) & (mine >= 0) if values_.size else np.zeros(rows.num_rows, dtype=bool)
    return np.where(hit, first[at] if values_.size else -1, -1)


def _clock_steps(link: Link, rows: pa.Table) -> Places | None:
    return None if link.clock is None else find_steps(link.clock, to_array(rows[link.clock.name]))[0]


def _derive_row_columns(link: Link, owners: Mapping[str, pa.Array], kept: _Kept) -> dict[str, pa.Array]:
    rows, who, steps = kept.rows, kept.who, kept.steps
    at = pa.array(who)
    given = ((name, column) for name, column in owners.items() if name not in link.keys)
    columns = {name_in_context(link, name): to_array(column).take(at) for name, column in given}
    plain = {a.name: to_array(rows.column(a.name)) for a in link.rows if a.name not in (link.sequence, *link.after)}
    if steps is None or link.clock is None:
        return columns | {a.name: rows.column(a.name) for a in link.rows}
    later = np.append(False, who[1:] == who[:-1])[: who.size]
    free: dict[str, pa.Array] = {SINCE: pa.array(steps - np.where(later, np.roll(steps, 1), 0))}
    for name in link.after:
        free[AFTER + name] = _count_steps(link.clock, link.row(name), rows, steps)
    before = pa.array(np.arange(who.size) - 1, mask=~later)
    for name, column in plain.items():
        free[REPEATS + name] = pc.fill_null(pc.equal(column, column.take(before)), False)
    free |= plain
    columns[PLACE] = pa.array(["first", "later"]).take(pa.array(later.astype(np.int64)))
    for lag in range(1, link.memory + 1):
        same = np.arange(who.size) >= lag
        same[lag:] = who[lag:] == who[:-lag]
        back = pa.array(np.arange(who.size) - lag, mask=~same)
        carried = carry_over_columns(free_attributes(link))
        columns |= {name_before(a.name, lag): free[a.name].take(back) for a in carried}
    return columns | free


def _count_steps(clock: Bins, found: object, rows: pa.Table, steps: Places) -> pa.Array:
    """How many steps after the sequence's value a column's value comes; what comes before it counts as at once."""
    assert isinstance(found, Bins)
    own, null = find_steps(found, to_array(rows[found.name]))
    start = int((found.lower - clock.lower) / clock.step)
    return pa.array(np.maximum(own + start - steps, 0), mask=null)


def build_intruder_tables(link: Link, people: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """A table of parents, with how many rows each has, and a table of rows, each with its parent's columns."""
    own, listed = _column_names(link.people), _column_names(link.rows)
    owners = _keep_first_rows(people if people is not None else rows, link.key)
    count = _count_rows((link,), {link.parent: (kept := _Kept(owners, np.arange(owners.num_rows))),
                                  link.child: _keep_rows(link, kept, rows)}, link.parent)[link.count_name]  # fmt: skip
    persons = owners.select(own).append_column(COUNT, count)
    if people is None:
        return persons, rows.select([*own, *listed])
    found = _find_owners(link, kept, rows)
    theirs = owners.select(own).take(pa.array(found[found >= 0]))
    mine = rows.select(listed).filter(pa.array(found >= 0))
    return persons, pa.table([*theirs.columns, *mine.columns], names=[*own, *listed])


def _column_names(columns: Iterable[Attribute]) -> list[str]:
    return [a.name for a in columns if isinstance(a, Bins | Labels)]
