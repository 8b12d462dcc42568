"""People with their rows: descriptions of each table within one budget, the person as privacy unit, and their file.

People are described with the number of their rows and the time of the first: one record a person. Rows are described
with their person's columns, so that they can be drawn for a given person, and in a sequence with the rows before: at
most `most` records a person in each table. All are Gaussian, so together they are worth the sum of what they were
given.

The file is data, never code, checked when it is read; it holds no row."""

from __future__ import annotations

import json
import re
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
from deniable.synth.domain import Attribute, Bins, Clique, Domain, ShapedText, Surrogate
from deniable.synth.linked.link import (
    MOST_MEMORY,
    Link,
    context_attributes,
    derive_family_tables,
    free_attributes,
    person_attributes,
    rows_attributes,
)
from deniable.synth.marginal import GaussianBudget, convert_budget
from deniable.synth.methods import Method, run_method
from deniable.synth.model import (
    FAMILY,
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
from deniable.synth.model_check import check_attributes, check_text, check_truths

PEOPLE = Fraction(2, 5)
"""The part of the budget with which people are described, and their rows get the rest; beside several tables of rows,
as much less as each of these gets less."""


@dataclass(frozen=True, slots=True, eq=False)
class LinkedModel:
    """All that is needed to draw people and their rows; holds no row."""

    link: Link
    people: SynthModel
    rows: SynthModel
    truths: tuple[Spec, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class FamilyModel:
    """People with their rows in several tables, parents before children; `people` of a child is its parent's model."""

    children: tuple[LinkedModel, ...]

    @property
    def people(self) -> SynthModel:
        """The model of people."""
        return self.children[0].people

    @property
    def truths(self) -> tuple[Spec, ...]:
        """Public rules that are kept."""
        return self.children[0].truths

    @property
    def links(self) -> tuple[Link, ...]:
        """How the tables belong together."""
        return tuple(child.link for child in self.children)


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
    rest: Any = {"truths": truths, "workload": workload, "neighbors": neighbors, "entropy": entropy}
    return describe_family((rows,), people, (link,), budget, method, **rest).children[0]


def describe_family(
    tables: Sequence[pa.Table],
    people: pa.Table | None,
    links: Sequence[Link],
    budget: Budget,
    method: str = "auto",
    *,
    truths: Sequence[Spec] = (),
    workload: Workload = (),
    neighbors: int = 1,
    entropy: Entropy = SYSTEM,
) -> FamilyModel:
    """The same of people with rows in several tables, each with its link; parents come before children."""
    persons, owned = derive_family_tables(links, people, tables)
    way, root = find_method(method), links[0].parent
    whole = convert_budget(budget, neighbors * max(link.most for link in links))  # one accountant for all parts
    shares = [split_budget(whole, link.most, neighbors, len(links)) for link in links]
    known = person_attributes(*(link for link in links if link.parent == root))
    models = {root: _describe_part(persons, known, (), way, shares[0][0], entropy, workload=workload)}
    children = []
    for link, table, (_, spend) in zip(links, owned, shares, strict=True):
        free = (*free_attributes(link), *rows_attributes(each for each in links if each.parent == link.child))
        learned = learn_open_columns(free, {a.name: table.column(a.name) for a in free}, spend, entropy)
        given = context_attributes(link, models[link.parent].attributes, learned.attributes)
        rest: Any = {"learned": learned.events, "workload": workload}
        model = _describe_part(table, learned.attributes, given, way, learned.spend, entropy, **rest)
        models[link.child] = model
        children.append(LinkedModel(link, models[link.parent], model, tuple(truths)))
    check_double_entry(ComposedEvent(tuple(model.description.event for model in models.values())), budget)
    return FamilyModel(tuple(children))


def find_workload_clique(names: Sequence[str], domain: Domain) -> Clique | None:
    """Columns as places of a domain of people or of rows; none where it lacks one, or where all of them are given.

    >>> find_workload_clique(("sex", "ward"), Domain(("(person) sex", "ward"), (2, 3), given=frozenset({0})))
    (0, 1)
    >>> find_workload_clique(("kind", "ward"), Domain(("(visits) ward", "kind"), (2, 3), given=frozenset({0})))
    (0, 1)
    """
    # A column of the row before, or whether one repeats, is another column.
    owned = re.compile(r"\((?!previous|repeats|place|since)[^()]+\) ")
    calls = {owned.sub("", name, count=1): place for place, name in enumerate(domain.names)}
    calls |= {name: place for place, name in enumerate(domain.names)}
    clique = tuple(sorted({calls[name] for name in names})) if all(name in calls for name in names) else ()
    return clique if len(clique) > 1 and not domain.given.issuperset(clique) else None


def split_budget(
    whole: GaussianBudget, most: int, neighbors: int, tables: int = 1
) -> tuple[GaussianBudget, GaussianBudget]:
    """What may be spent on people, one record each, and on each of so many tables of rows, at most `most` a person."""
    people = PEOPLE / (PEOPLE + (1 - PEOPLE) * tables)
    return (
        replace(whole, amount=whole.amount * people, rows=neighbors),
        replace(whole, amount=whole.amount * (1 - people) / tables, rows=neighbors * most),
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


def is_linked_file(path: str | Path) -> bool:
    """Whether a file says that it is a model of people with their rows."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            begins = file.read(len(FAMILY) + 20)
    except (OSError, UnicodeDecodeError):
        return False
    return LINKED in begins or FAMILY in begins


def save_linked(model: LinkedModel | FamilyModel, path: str | Path) -> None:
    """Write a model file, whole or not at all."""
    plain = dump_linked(model) if isinstance(model, LinkedModel) else dump_family(model)
    write_whole(Path(path), json.dumps(plain, separators=(",", ":")).encode())


def load_linked(path: str | Path) -> LinkedModel | FamilyModel:
    """Read a model file; anything that is not one is refused."""
    path = Path(path)
    with refuse_other_files(path):
        held = json.loads(path.read_text(encoding="utf-8"))
        return parse_family(held) if held["form"] == FAMILY else parse_linked(held)


# a dictionary: the model's file, which `parse_linked` reads back
def dump_linked(model: LinkedModel) -> dict[str, Any]:
    """A model as plain values."""
    return {
        "form": LINKED,
        **_dump_link(model.link),
        "truths": constraints_to_plain(model.truths),
        "people": to_plain(model.people),
        "rows": to_plain(model.rows),
    }


# a dictionary: the model's file, which `parse_family` reads back
def dump_family(model: FamilyModel) -> dict[str, Any]:
    """A model of several tables as plain values."""
    children = [{**_dump_link(each.link), "rows": to_plain(each.rows)} for each in model.children]
    truths, people = constraints_to_plain(model.truths), to_plain(model.people)
    return {"form": FAMILY, "truths": truths, "people": people, "children": children}


def _dump_link(link: Link) -> dict[str, Any]:
    columns = {"people": link.people, "rows": link.rows}
    return {
        "child": link.child,
        "parent": link.parent,
        "key": link.key,
        "most": link.most,
        "sequence": link.sequence,
        "after": list(link.after),
        "memory": link.memory,
        "unit": link.unit,
        "alone": link.alone,
        "columns": {part: [attribute_to_plain(a) for a in listed] for part, listed in columns.items()},
    }


def parse_linked(held: dict[str, Any]) -> LinkedModel:
    """The model that plain values stand for."""
    if held["form"] != LINKED:
        raise ValueError
    return _check_family([_parse_link(held)], [from_plain(held["people"]), from_plain(held["rows"])], held).children[0]


def parse_family(held: dict[str, Any]) -> FamilyModel:
    """The model of several tables that plain values stand for; a child comes after its parent."""
    links = [_parse_link(each) for each in held["children"]]
    models = [from_plain(each) for each in (held["people"], *(child["rows"] for child in held["children"]))]
    return _check_family(links, models, held)


def _parse_link(held: dict[str, Any]) -> Link:
    people, rows = (
        tuple(attribute_from_plain(entry) for entry in held["columns"][part]) for part in ("people", "rows")
    )
    for part, attributes in (("people", people), ("rows", rows)):
        check_attributes(attributes, held["columns"][part])
    most, memory = int(held["most"]), int(held.get("memory", 1))  # earlier files knew the row before alone
    if most < 1 or not 1 <= memory <= MOST_MEMORY:
        raise ValueError
    parent, sequence = (None if held[name] is None else str(held[name]) for name in ("parent", "sequence"))
    after, unit, alone = tuple(map(str, held["after"])), str(held.get("unit", "")), bool(held.get("alone", True))
    child, key, own = str(held["child"]), str(held["key"]), {each.name for each in rows}
    for name in (child, parent or "x"):
        check_text(name)
        if Path(name).name != name:
            raise ValueError
    link = Link(child, parent, key, most, people, rows, sequence, after, memory, unit, alone)
    if not {*after, *([sequence] if sequence else [])} <= own or not {*link.keys} <= {each.name for each in people}:
        raise ValueError
    if sequence in after or len({*after}) < len(after) or (sequence and link.clock is None):
        raise ValueError
    return link


def _check_family(links: Sequence[Link], parts: Sequence[SynthModel], held: dict[str, Any]) -> FamilyModel:
    """The model of these links, people and rows, each of which has the columns that the links give it."""
    models: dict[str | None, SynthModel] = {links[0].parent: parts[0]}
    children = []
    for link, own in zip(links, parts[1:], strict=True):
        if link.child in models or any(
            len(labels) != link.most - link.least + 1
            for a in models[link.parent].attributes
            if a.name == link.count_name and (labels := getattr(a, "labels", ()))
        ):
            raise ValueError
        models[link.child] = own
        children.append(LinkedModel(link, models[link.parent], own))
    _require_columns(parts[0].attributes, person_attributes(*(k for k in links if k.parent == links[0].parent)))
    for link, own in zip(links, parts[1:], strict=True):
        free = (*free_attributes(link), *rows_attributes(each for each in links if each.parent == link.child))
        learned = own.attributes[len(own.attributes) - len(free) :]
        given = context_attributes(link, models[link.parent].attributes, learned)
        _require_columns(learned, free)
        if (*given, *learned) != own.attributes or own.description.domain.given != frozenset(range(len(given))):
            raise ValueError
    truths = constraints_from_plain(held["truths"], *(constrained_attributes(child)[0] for child in children))
    family = FamilyModel(tuple(replace(child, truths=truths) for child in children))
    check_truths(truths, [a for a in parts[0].attributes[: len(links[0].people)] if not isinstance(a, Surrogate)])
    return family


def constrained_attributes(model: LinkedModel) -> tuple[tuple[Attribute, ...], frozenset[str]]:
    """The columns of rows that truths speak of, and those among them that are their person's and never change."""
    link, known = model.link, {a.name: a for a in model.rows.attributes}
    beside = tuple(a for a in link.people if link.parent is None or a.name in link.keys)
    return (*beside, *(known.get(a.name, a) for a in link.rows)), frozenset(a.name for a in beside)


def _require_columns(found: Sequence[Attribute], declared: Sequence[Attribute]) -> None:
    """Refuse columns that are not as declared, but for what is learned: bins and shapes."""
    for own, wanted in zip(found, declared, strict=True):
        match own, wanted:
            case Bins(), Bins() if own.steps == wanted.steps:
                own = replace(own, cuts=wanted.cuts)
            case ShapedText(), ShapedText():
                own = replace(own, shapes=wanted.shapes)
        if own != wanted:
            raise ValueError
