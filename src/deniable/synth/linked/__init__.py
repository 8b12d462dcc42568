"""People with their rows: two descriptions within one budget, the person as privacy unit, and the file of both.

People are described with the number of their rows and the time of the first: one record a person. Rows are described
with their person's columns, so that they can be drawn for a given person, and in a sequence with the row before: at
most `most` records a person. Both are Gaussian, so both together are worth the sum of what they were given.

The file is data, never code, checked when it is read; it holds no row.

A policy declares how rows belong to people: by two tables, a parent with one row a person and a child table with
several, or by one table with several rows a person, in which a truth says what belongs to the person: `determines:
{from: [patient_id], to: [sex, birth_date]}`. Rows of a person may be a sequence, in the order of one column. Columns
that a truth puts after that one (`order`) are counted from it, so that the order holds by construction.

The derived tables have one row a person, and the rows of people with their person and the row before. A person's part
of both depends on that person's own rows alone, and there are at most `most` of them: the pricing of what is measured
rests on that alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, GaussianEvent
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import ParameterError
from deniable.policy.budget import Budget
from deniable.policy.schema import ColumnType, Spec, TableSchema
from deniable.storage import write_whole
from deniable.synth.describe import (
    Workload,
    check_double_entry,
    domain_of,
    encode_table,
    find_method,
    learn_open_columns,
)
from deniable.synth.domain import (
    BINS,
    Attribute,
    Bins,
    Clique,
    Coded,
    Domain,
    Labels,
    Surrogate,
    attributes_of,
    equal_cuts,
)
from deniable.synth.encode import find_steps, to_array
from deniable.synth.marginal import GaussianBudget, convert_budget
from deniable.synth.methods import Method, run_method
from deniable.synth.model import (
    LINKED,
    SynthModel,
    attribute_from_plain,
    attribute_to_plain,
    constraints_from_plain,
    constraints_to_plain,
    from_plain,
    refuse_other_files,
    to_plain,
)

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


def link_of(
    child: TableSchema, parent: TableSchema | None, truths: Sequence[Spec], only: Collection[str] | None = None
) -> Link:
    """The link that a policy declares for a table; of all columns or, beside the key, of some.

    Without the column of the sequence, a person's rows have no order.
    """
    assert child.unit is not None
    key = child.unit.column
    if key is None:
        raise ParameterError(f"rows of '{child.name}' are their own units", expected="A unit with a column")
    owned = parent.names if parent else (key, *_person_columns(truths, key, child))
    people = attributes_of(parent or child, tuple(n for n in owned if only is None or n == key or n in only))
    others = tuple(n for n in child.names if n != key and (parent is not None or n not in owned))
    rows = attributes_of(child, tuple(n for n in others if only is None or n in only))
    if all(isinstance(attribute, Surrogate) for attribute in rows):
        raise ParameterError(
            f"no column of the rows of '{child.name}' is described",
            expected=f"One or more of {', '.join(others)}",
            remedy="Name one with --columns, or leave out --linked",
        )
    link = Link(child.name, parent.name if parent else None, key, child.unit.rows_learned, people, rows)
    clock = child.sequence if any(a.name == child.sequence for a in rows) else None
    after = tuple(name for name in _columns_after(truths, clock) if _is_countable(link, clock, name)) if clock else ()
    return replace(link, sequence=clock, after=after)


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


def person_attributes(link: Link) -> tuple[Attribute, ...]:
    """A person's columns, and what is known of a person's rows."""
    count = Labels(COUNT, ColumnType.INTEGER, tuple(range(link.least, link.most + 1)), False)
    return (*link.people, count, *((_step_bins(FIRST, link.clock.steps, nullable=True),) if link.clock else ()))


def free_attributes(link: Link) -> tuple[Attribute, ...]:
    """What is drawn of a row: time since the one before, columns counted from it, and all others."""
    if link.clock is None:
        return link.rows
    counted = [_offset_bins(link.clock, link.row(name)) for name in link.after]
    plain = [a for a in link.rows if a.name != link.sequence and a.name not in link.after]
    again = [Labels(REPEATS + a.name, ColumnType.BOOLEAN, (False, True), False) for a in plain if is_repeatable(a)]
    return (_step_bins(SINCE, link.clock.steps, nullable=False), *again, *counted, *plain)


def is_repeatable(attribute: Attribute) -> bool:
    """Whether it is worth knowing that a column repeats its value; of two values, the table of both says it all."""
    return isinstance(attribute, Labels) and len(attribute.labels) > 2


def context_attributes(link: Link, people: tuple[Attribute, ...], free: tuple[Attribute, ...]) -> tuple[Coded, ...]:
    """What is given when a row is drawn: the person, and in a sequence the place and the row before."""
    persons = tuple(
        replace(a, name=PERSON + a.name) for a in people if not isinstance(a, Surrogate) and a.name != FIRST
    )
    if link.clock is None:
        return persons
    place = Labels(PLACE, ColumnType.TEXT, ("first", "later"), False)
    before = tuple(replace(a, name=PREVIOUS + a.name, nullable=True) for a in carry_over_columns(free))
    return (*persons, place, *before)


def carry_over_columns(free: tuple[Attribute, ...]) -> tuple[Labels | Bins, ...]:
    """The columns of a row that the next one may depend on."""
    return tuple(a for a in free if isinstance(a, Labels | Bins) and a.name != SINCE and not a.name.startswith(REPEATS))


def _step_bins(name: str, steps: int, *, nullable: bool) -> Bins:
    return Bins(name, ColumnType.INTEGER, Fraction(0), Fraction(1), equal_cuts(steps, min(steps, BINS)), nullable)


def _offset_bins(clock: Bins, found: Attribute) -> Bins:
    assert isinstance(found, Bins)
    steps = int((found.lower - clock.lower) / clock.step) + found.steps
    return _step_bins(AFTER + found.name, max(steps, 1), nullable=found.nullable)


Places = NDArray[np.int64]


def derive_linked_tables(link: Link, people: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Tables of people and of rows, with the columns that a link adds; raw values, still private."""
    people = _keep_first_rows(people if people is not None else rows, link.key)
    who, at = _assign_rows(link, people, rows)
    kept = rows.take(pa.array(at))
    steps = _clock_steps(link, kept)
    count = np.minimum(np.bincount(who, minlength=people.num_rows), link.most)
    persons = {a.name: people.column(a.name) for a in link.people} | {COUNT: pa.array(count)}
    first = np.searchsorted(who, np.arange(people.num_rows))
    if steps is not None:
        persons[FIRST] = pa.array(np.append(steps, 0)[first], mask=count == 0)
    return pa.table(persons), pa.table(_derive_row_columns(link, persons, kept, who, steps))


def _keep_first_rows(rows: pa.Table, key: str) -> pa.Table:
    """One row for each value of the key, none for null."""
    numbered = rows.select([key]).append_column("(row)", pa.array(np.arange(rows.num_rows)))
    firsts = numbered.filter(pc.is_valid(numbered[key])).group_by(key).aggregate([("(row)", "min")])
    return rows.take(firsts["(row)_min"].combine_chunks().sort())


def _assign_rows(link: Link, people: pa.Table, rows: pa.Table) -> tuple[Places, Places]:
    """Whose each kept row is, and where it stands: by person, in the order of the sequence, at most so many each."""
    found = pc.index_in(to_array(rows[link.key]), to_array(people[link.key]))
    usable = found.is_valid()
    steps = np.zeros(rows.num_rows, dtype=np.int64)
    if link.clock is not None:
        steps, null = find_steps(link.clock, to_array(rows[link.clock.name]))
        usable = pc.and_(usable, pa.array(~null))
    at = np.flatnonzero(usable.to_numpy(zero_copy_only=False))
    who = found.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)[at]
    order = np.lexsort((steps[at], who))
    who, at = who[order], at[order]
    within = np.arange(who.size) - np.searchsorted(who, who)
    return who[within < link.most], at[within < link.most]


def _clock_steps(link: Link, rows: pa.Table) -> Places | None:
    return None if link.clock is None else find_steps(link.clock, to_array(rows[link.clock.name]))[0]


def _derive_row_columns(
    link: Link, persons: dict[str, pa.Array], rows: pa.Table, who: Places, steps: Places | None
) -> dict[str, pa.Array]:
    owners = pa.array(who)
    coded = [a for a in link.people if not isinstance(a, Surrogate)]
    columns = {PERSON + a.name: to_array(persons[a.name]).take(owners) for a in coded}
    columns[PERSON + COUNT] = to_array(persons[COUNT]).take(owners)
    if steps is None or link.clock is None:
        return columns | {a.name: rows.column(a.name) for a in link.rows}
    later = np.append(False, who[1:] == who[:-1])[: who.size]
    free: dict[str, pa.Array] = {SINCE: pa.array(steps - np.where(later, np.roll(steps, 1), 0))}
    for name in link.after:
        free[AFTER + name] = _count_steps(link.clock, link.row(name), rows, steps)
    before = pa.array(np.arange(who.size) - 1, mask=~later)
    plain = {a.name: to_array(rows.column(a.name)) for a in link.rows if a.name not in (link.sequence, *link.after)}
    for name, column in plain.items():
        free[REPEATS + name] = pc.fill_null(pc.equal(column, column.take(before)), False)
    free |= plain
    columns[PLACE] = pa.array(["first", "later"]).take(pa.array(later.astype(np.int64)))
    columns |= {PREVIOUS + a.name: free[a.name].take(before) for a in carry_over_columns(free_attributes(link))}
    return columns | free


def _count_steps(clock: Bins, found: object, rows: pa.Table, steps: Places) -> pa.Array:
    """How many steps after the sequence's value a column's value comes; what comes before it counts as at once."""
    assert isinstance(found, Bins)
    own, null = find_steps(found, to_array(rows[found.name]))
    start = int((found.lower - clock.lower) / clock.step)
    return pa.array(np.maximum(own + start - steps, 0), mask=null)


def build_intruder_tables(link: Link, people: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """A table of people, with how many rows each has, and a table of rows, each with its person's columns."""
    persons, _ = derive_linked_tables(link, people, rows)
    own = _column_names(link.people)
    if people is None:
        return persons.select([*own, COUNT]), rows.select([*own, *_column_names(link.rows)])
    joined = rows.join(people.select([link.key, *own]), keys=link.key, join_type="inner")
    return persons.select([*own, COUNT]), joined.select([*own, *_column_names(link.rows)])


def _column_names(columns: Iterable[Attribute]) -> list[str]:
    return [a.name for a in columns if isinstance(a, Bins | Labels)]


PEOPLE = Fraction(2, 5)
"""The part of the budget with which people are described; their rows get the rest."""


@dataclass(frozen=True, slots=True, eq=False)
class LinkedModel:
    """All that is needed to draw people and their rows; holds no row."""

    link: Link
    people: SynthModel
    rows: SynthModel
    truths: tuple[Spec, ...] = ()


def describe_linked(
    rows: pa.Table,
    people: pa.Table | None,
    link: Link,
    budget: Budget,
    method: str = "auto",
    *,
    truths: Sequence[Spec] = (),
    workload: Workload = (),
    neighbors: int = 1,
    entropy: Entropy = SYSTEM,
) -> LinkedModel:
    """The model of rows and of the people they belong to (None where their columns stand in the rows).

    `workload` lists columns, of people or of rows, that should be right together.
    `neighbors` is 2 where neighboring tables replace a person, and 1 where they add or remove one.
    """
    persons, owned = derive_linked_tables(link, people, rows)
    first, second = split_budget(convert_budget(budget, link.most), link.most, neighbors)
    way = find_method(method)
    of_people = _describe_part(persons, person_attributes(link), (), way, first, entropy, workload=workload)
    free = free_attributes(link)
    learned = learn_open_columns(free, {a.name: owned.column(a.name) for a in free}, second, entropy)
    given = context_attributes(link, of_people.attributes, learned.attributes)
    of_rows = _describe_part(
        owned, learned.attributes, given, way, learned.spend, entropy, learned=learned.events, workload=workload
    )
    check_double_entry(ComposedEvent((of_people.description.event, of_rows.description.event)), budget)
    return LinkedModel(link, of_people, of_rows, tuple(truths))


def find_workload_clique(names: Sequence[str], domain: Domain) -> Clique | None:
    """Columns as places of a domain of people or of rows; none where it lacks one, or where all of them are given.

    >>> find_workload_clique(("sex", "ward"), Domain(("(person) sex", "ward"), (2, 3), given=frozenset({0})))
    (0, 1)
    """
    calls = {name.removeprefix(PERSON).removeprefix(AFTER): place for place, name in enumerate(domain.names)}
    calls |= {name: place for place, name in enumerate(domain.names)}
    clique = tuple(sorted({calls[name] for name in names})) if all(name in calls for name in names) else ()
    return clique if len(clique) > 1 and not domain.given.issuperset(clique) else None


def split_budget(whole: GaussianBudget, most: int, neighbors: int) -> tuple[GaussianBudget, GaussianBudget]:
    """What may be spent on people, one record each, and on their rows, at most so many each."""
    return (
        replace(whole, amount=whole.amount * PEOPLE, rows=neighbors),
        replace(whole, amount=whole.amount * (1 - PEOPLE), rows=neighbors * most),
    )


def _describe_part(
    table: pa.Table, own: tuple[Attribute, ...], given: tuple[Attribute, ...], method: Method, spend: GaussianBudget,
    entropy: Entropy, *, learned: tuple[GaussianEvent, ...] | None = None, workload: Workload = (),
) -> SynthModel:  # fmt: skip
    """A model of one of both tables; what its columns leave open is learned first, or was `learned` by these events."""
    if learned is None:
        found = learn_open_columns(own, {a.name: table.column(a.name) for a in own}, spend, entropy)
        own, spend, learned = found.attributes, found.spend, found.events
    every = (*given, *own)
    coded = [a for a in every if not isinstance(a, Surrogate)]
    domain = replace(domain_of(every), given=frozenset(range(len(given))))
    asked = tuple(clique for names in workload if (clique := find_workload_clique(names, domain)) is not None)
    description = run_method(encode_table(table, coded), domain, method, spend, entropy, workload=asked)
    description = replace(description, event=ComposedEvent((*learned, description.event)))
    return from_plain(to_plain(SynthModel("", every, description)))


def is_linked_file(path: Path) -> bool:
    """Whether a file says that it is a linked model."""
    try:
        with path.open(encoding="utf-8") as file:
            return LINKED in file.read(len(LINKED) + 20)
    except (OSError, UnicodeDecodeError):
        return False


def save_linked(model: LinkedModel, path: Path) -> None:
    """Write a model file, whole or not at all."""
    write_whole(path, json.dumps(dump_linked(model), separators=(",", ":")).encode())


def load_linked(path: Path) -> LinkedModel:
    """Read a model file; anything that is not one is refused."""
    with refuse_other_files(path):
        return parse_linked(json.loads(path.read_text(encoding="utf-8")))


# a dictionary: the model's file, which `parse_linked` reads back
def dump_linked(model: LinkedModel) -> dict[str, Any]:
    """A model as plain values."""
    link = model.link
    return {
        "form": LINKED,
        "child": link.child,
        "parent": link.parent,
        "key": link.key,
        "most": link.most,
        "sequence": link.sequence,
        "after": list(link.after),
        "columns": {
            "people": [attribute_to_plain(a) for a in link.people],
            "rows": [attribute_to_plain(a) for a in link.rows],
        },
        "truths": constraints_to_plain(model.truths),
        "people": to_plain(model.people),
        "rows": to_plain(model.rows),
    }


def parse_linked(held: dict[str, Any]) -> LinkedModel:
    """The model that plain values stand for."""
    if held["form"] != LINKED or int(held["most"]) < 1:
        raise ValueError
    people, rows = (
        tuple(attribute_from_plain(entry) for entry in held["columns"][part]) for part in ("people", "rows")
    )
    parent = None if held["parent"] is None else str(held["parent"])
    sequence = None if held["sequence"] is None else str(held["sequence"])
    after = tuple(map(str, held["after"]))
    link = Link(str(held["child"]), parent, str(held["key"]), int(held["most"]), people, rows, sequence, after)
    return LinkedModel(
        link, from_plain(held["people"]), from_plain(held["rows"]), constraints_from_plain(held["truths"])
    )
