"""People with their rows: two descriptions within one budget, the person as privacy unit, and the file of both.

People are described with the number of their rows and the time of the first: one record a person. Rows are described
with their person's columns, so that they can be drawn for a given person, and in a sequence with the row before: at
most `most` records a person. Both are Gaussian, so both together are worth the sum of what they were given.

The file is data, never code, checked when it is read; it holds no row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from deniable.dp.accounting import ComposedEvent, GaussianEvent
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.policy.budget import Budget
from deniable.policy.schema import Spec
from deniable.storage import write_whole
from deniable.synth.describe import (
    Workload,
    check_double_entry,
    domain_of,
    encode_table,
    find_method,
    learn_open_columns,
)
from deniable.synth.domain import Attribute, Clique, Domain, Surrogate
from deniable.synth.encode import name_type
from deniable.synth.linked.link import (
    AFTER,
    PERSON,
    Link,
    context_attributes,
    derive_linked_tables,
    free_attributes,
    person_attributes,
)
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

PEOPLE = Fraction(2, 5)
"""The part of the budget with which people are described; their rows get the rest."""


@dataclass(frozen=True, slots=True, eq=False)
class LinkedModel:
    """All that is needed to draw people and their rows; holds no row."""

    link: Link
    people: SynthModel
    rows: SynthModel
    truths: tuple[Spec, ...] = ()
    people_types: tuple[str, ...] = ()
    row_types: tuple[str, ...] = ()
    """The original types of the link's columns, in their order."""


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
    source = people if people is not None else rows
    return LinkedModel(
        link, of_people, of_rows, tuple(truths), _type_names(source, link.people), _type_names(rows, link.rows)
    )


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


def _type_names(table: pa.Table, columns: tuple[Attribute, ...]) -> tuple[str, ...]:
    return tuple(name_type(table.schema.field(a.name).type) for a in columns)


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
        "types": {"people": list(model.people_types), "rows": list(model.row_types)},
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
    types = (tuple(map(str, held["types"][part])) for part in ("people", "rows"))
    return LinkedModel(
        link, from_plain(held["people"]), from_plain(held["rows"]), constraints_from_plain(held["truths"]), *types
    )
