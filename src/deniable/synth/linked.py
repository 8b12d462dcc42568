"""Describing people with their rows: two descriptions within one budget, the person as privacy unit.

People are described with the number of their rows and the time of the first: one record a person. Rows are described
with their person's columns, so that they can be drawn for a given person, and in a sequence with the row before: at
most `most` records a person. Both are Gaussian, so both together are worth the sum of what they were given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import pyarrow as pa

from deniable.dp.accounting import ComposedEvent, GaussianEvent
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.policy.budget import Budget
from deniable.policy.schema import Spec
from deniable.synth import originals
from deniable.synth.attributes import Attribute, Made
from deniable.synth.describing import Workload, domain_of, double_entry, encoded, method_named
from deniable.synth.domain import Clique, Domain
from deniable.synth.gathering import gathered
from deniable.synth.learning import learn
from deniable.synth.links import AFTER, PERSON, Link, free_attributes, given_attributes, person_attributes
from deniable.synth.methods import Method, describe
from deniable.synth.model import SynthModel, from_plain, to_plain
from deniable.synth.spending import Spending, spending

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


def linked_model_of(
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
    persons, owned = gathered(link, people, rows)
    first, second = divided(spending(budget, link.most), link.most, neighbors)
    way = method_named(method)
    of_people = _described(persons, person_attributes(link), (), way, first, entropy, workload=workload)
    free = free_attributes(link)
    learned = learn(free, {a.name: owned.column(a.name) for a in free}, second, entropy)
    given = given_attributes(link, of_people.attributes, learned.attributes)
    of_rows = _described(owned, learned.attributes, given, way, learned.spend, entropy, open=False, workload=workload)
    events = (of_people.description.event, *learned.events, of_rows.description.event)
    double_entry(ComposedEvent(events), budget)
    source = people if people is not None else rows
    return LinkedModel(link, of_people, of_rows, tuple(truths), _types(source, link.people), _types(rows, link.rows))


def asked_of(names: Sequence[str], domain: Domain) -> Clique | None:
    """Columns as places of a domain of people or of rows; none where it lacks one, or where all of them are given.

    >>> asked_of(("sex", "ward"), Domain(("(person) sex", "ward"), (2, 3), given=frozenset({0})))
    (0, 1)
    """
    calls = {name.removeprefix(PERSON).removeprefix(AFTER): place for place, name in enumerate(domain.names)}
    calls |= {name: place for place, name in enumerate(domain.names)}
    clique = tuple(sorted({calls[name] for name in names})) if all(name in calls for name in names) else ()
    return clique if len(clique) > 1 and not domain.given.issuperset(clique) else None


def divided(whole: Spending, most: int, neighbors: int) -> tuple[Spending, Spending]:
    """What may be spent on people, one record each, and on their rows, at most so many each."""
    return (
        replace(whole, amount=whole.amount * PEOPLE, rows=neighbors),
        replace(whole, amount=whole.amount * (1 - PEOPLE), rows=neighbors * most),
    )


def _described(
    table: pa.Table, own: tuple[Attribute, ...], given: tuple[Attribute, ...], method: Method, spend: Spending,
    entropy: Entropy, *, open: bool = True, workload: Workload = (),
) -> SynthModel:  # fmt: skip
    """A model of one of both tables; what its columns leave open is learned first, unless that was done."""
    events: tuple[GaussianEvent, ...] = ()
    if open:
        learned = learn(own, {a.name: table.column(a.name) for a in own}, spend, entropy)
        own, spend, events = learned.attributes, learned.spend, learned.events
    every = (*given, *own)
    coded = [a for a in every if not isinstance(a, Made)]
    domain = replace(domain_of(every), given=frozenset(range(len(given))))
    asked = tuple(clique for names in workload if (clique := asked_of(names, domain)) is not None)
    description = describe(encoded(table, coded), domain, method, spend, entropy, workload=asked)
    description = replace(description, event=ComposedEvent((*events, description.event)))
    return from_plain(to_plain(SynthModel("", every, description)))


def _types(table: pa.Table, columns: tuple[Attribute, ...]) -> tuple[str, ...]:
    return tuple(originals.kept(table.schema.field(a.name).type) for a in columns)
