"""Generating people and their rows: first people, then for each place in a sequence the rows of all who have one.

Tables come parents before children: rows of a row are drawn as those of a person are.

Post-processing of a public model: it costs nothing and may be seeded. Rows name their person by the key that was made
for that person, so every link holds. Time runs on: a row stands as far after the one before as was drawn, inside the
declared bounds.

A condition on people keeps people with all their rows. One on rows keeps the rows that fit, and of people those who
have one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import Infeasible, ParameterError
from deniable.policy.truths import columns_of
from deniable.synth.constraints import ConstraintEngine
from deniable.synth.domain import Attribute, Bins, Labels, Surrogate
from deniable.synth.draw import draw_records
from deniable.synth.encode import convert_steps, decode_column, draw_steps, generate_surrogates
from deniable.synth.generate import Condition, Where, draw_given_columns, parse_values, restore_codes
from deniable.synth.linked import FamilyModel, LinkedModel, constrained_attributes
from deniable.synth.linked.link import (
    AFTER,
    PLACE,
    PREVIOUS,
    REPEATS,
    SINCE,
    Link,
    carry_over_columns,
    name_before,
    name_in_context,
)
from deniable.synth.marginal import Codes
from deniable.synth.model import SynthModel

CHUNK = 100_000
"""People in a batch."""
MOST_DRAWN = 20
"""How many batches are drawn for a condition before it is given up."""

Steps = NDArray[np.int64]
Tables = tuple[pa.RecordBatch, tuple[pa.RecordBatch, ...]]
"""People, and their rows in each table."""
Linked = LinkedModel | FamilyModel


def generate_linked(
    model: LinkedModel, people: int | None = None, seed: int = 0, where: Where | None = None
) -> tuple[pa.Table, pa.Table]:
    """Synthetic people and rows; as many people as there are estimated to be, if not told otherwise."""
    persons, (rows,) = generate_family(model, people, seed, where)
    return persons, rows


def generate_family(
    model: Linked, people: int | None = None, seed: int = 0, where: Where | None = None
) -> tuple[pa.Table, tuple[pa.Table, ...]]:
    """Synthetic people, and their rows in each table."""
    made = list(generate_linked_batches(model, people, seed, where=where))
    rows = zip(*(batches for _, batches in made), strict=True)
    return pa.Table.from_batches([first for first, _ in made]), tuple(pa.Table.from_batches(each) for each in rows)


def generate_linked_batches(
    model: Linked, people: int | None = None, seed: int = 0, progress: Callable[[float], None] | None = None,
    where: Where | None = None,
) -> Iterator[Tables]:  # fmt: skip
    """The same in batches of people; the first comes even if it is empty, for its columns.

    Under a condition people are drawn until so many fit; if their number is not given, as many are drawn as there are
    estimated to be, and those that fit are kept.
    """
    family = _as_family(model)
    only, wanted = build_linked_condition(family.links, where or {}), _count_people(family, people)
    engines = _Engines(family, only)
    until = bool(only) and people is not None
    drawn = kept = numbered = 0
    made = [0] * len(family.children)
    while (kept if until else drawn) < wanted or not drawn:
        if until and _is_hopeless(wanted, kept, drawn):
            happened = f"only {kept:,} of {drawn:,} people drawn met the condition, and {wanted:,} were asked for"
            raise Infeasible(happened, remedy="Ask for fewer people or fewer conditions")
        size = min(CHUNK, _next_batch_size(wanted - kept, kept, drawn) if until else wanted - drawn)
        most = wanted - kept if until else size
        batch = _generate_batch(family, size, (seed, drawn), wanted, _Before(numbered, made), engines, most)
        drawn, kept = drawn + max(size, 1), kept + batch.people.num_rows
        numbered += batch.numbered
        made = [before + rows for before, rows in zip(made, batch.made, strict=True)]
        yield batch.people, batch.rows
        if progress is not None:
            progress((kept if until else drawn) / max(wanted, 1))


def _as_family(model: Linked) -> FamilyModel:
    return FamilyModel((model,)) if isinstance(model, LinkedModel) else model


def _is_hopeless(wanted: int, kept: int, drawn: int) -> bool:
    """Whether as many batches as are drawn at most would not do, at three deviations more than the share so far."""
    most, likely = MOST_DRAWN * CHUNK, kept + 3 * math.sqrt(kept) + 6
    return drawn >= most or (drawn >= CHUNK and likely * most < wanted * drawn)


def _next_batch_size(missing: int, kept: int, drawn: int) -> int:
    """How many people to draw next: by the share that fitted so far, and ten for one at first."""
    return math.ceil(missing * (drawn / max(kept, 1) * 1.1 if drawn else 10.0))


def generate_people_batches(
    model: Linked, people: int | None = None, seed: int = 0, where: Where | None = None
) -> Iterator[pa.RecordBatch]:
    """The same people without their rows: what is drawn of rows never moves what is drawn of people."""
    if where:
        yield from (persons for persons, _ in generate_linked_batches(model, people, seed, where=where))
        return
    family = _as_family(model)
    wanted, anybody = _count_people(family, people), _Engines(family, build_linked_condition(family.links, {}))
    for start in range(0, max(wanted, 1), CHUNK):
        size = min(CHUNK, wanted - start)
        yield _generate_people(family, size, (seed, start), wanted, start, anybody, size)[1]


def _count_people(model: FamilyModel, people: int | None) -> int:
    wanted = round(model.people.description.estimates.total) if people is None else people
    if wanted < 0:
        raise ParameterError("there cannot be a negative number of people")
    return wanted


@dataclass(frozen=True, slots=True, eq=False)
class _Owners:
    """Drawn people, or rows that have rows: codes by column, and by child table how many rows each has, and when."""

    codes: dict[str, Codes]
    counts: dict[str, Steps]
    firsts: dict[str, Steps]
    """At which step of the sequence the first row stands."""

    def take(self, kept: Steps) -> _Owners:
        """Some of them."""
        codes = {name: column[kept] for name, column in self.codes.items()}
        counts, firsts = ({name: e[kept] for name, e in part.items()} for part in (self.counts, self.firsts))
        return _Owners(codes, counts, firsts)


@dataclass(frozen=True, slots=True)
class _Before:
    """How many people were numbered, and how many rows of each table were made, before a batch."""

    numbered: int
    made: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """People and rows of a batch; `numbered` and `made` count people and rows that got a number, kept or not."""

    people: pa.RecordBatch
    rows: tuple[pa.RecordBatch, ...]
    numbered: int
    made: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """What was drawn of a table: its rows, the place of each one's person, and what its own rows need to know."""

    rows: pa.RecordBatch
    person: Steps
    who: Steps
    owners: _Owners


def _generate_batch(
    model: FamilyModel, size: int, seed: tuple[int, int], wanted: int, before: _Before, engines: _Engines, most: int
) -> _Batch:
    """At most so many people who fit, of as many as are drawn."""
    only = engines.only
    at_first = size if only.of_rows else most
    people, persons = _generate_people(model, size, seed, wanted, before.numbered, engines, at_first)
    everybody = np.arange(persons.num_rows)
    drawn: dict[str | None, _Drawn] = {model.links[0].parent: _Drawn(persons, everybody, everybody, people)}
    for place, child in enumerate(model.children):
        # The seeds of a first table are those of a table by itself.
        own = seed if not place else (*seed, place)
        drawn[child.link.child] = _generate_rows(
            model, place, drawn[child.link.parent], own, before.made[place], engines
        )
    if not only.of_rows:
        rows = tuple(drawn[link.child].rows for link in model.links)
        return _Batch(persons, rows, persons.num_rows, tuple(each.num_rows for each in rows))
    return _keep_fitting(model.links, drawn, only, persons, most)


def _keep_fitting(
    links: tuple[Link, ...], drawn: dict[str | None, _Drawn], only: LinkedCondition, persons: pa.RecordBatch, most: int
) -> _Batch:
    """The people who have a row that fits in every table of which something is asked, with the rows that fit."""
    root = links[0].parent
    fits: dict[str | None, NDArray[np.bool_]] = {root: np.ones(persons.num_rows, dtype=bool)}
    have = np.arange(persons.num_rows)
    for link, condition in zip(links, only.rows, strict=True):
        found = drawn[link.child]
        own = condition.fits(found.rows).to_numpy(zero_copy_only=False) if condition.values else True
        fits[link.child] = fits[link.parent][found.who] & own
        if condition.values:
            have = np.intersect1d(have, found.person[fits[link.child]])
    have = have[:most]
    kept = (drawn[k.child].rows.filter(pa.array(fits[k.child] & np.isin(drawn[k.child].person, have))) for k in links)
    made = tuple(drawn[link.child].rows.num_rows for link in links)
    return _Batch(persons.take(pa.array(have)), tuple(kept), persons.num_rows, made)


def _generate_people(
    model: FamilyModel, size: int, seed: tuple[int, int], wanted: int, numbered: int, engines: _Engines, most: int
) -> tuple[_Owners, pa.RecordBatch]:
    generator = np.random.default_rng((*seed, 2))
    d, link = model.people.description, model.links[0]
    found = restore_codes(d, draw_records(d.estimates, d.collapsed.domain, size, seed), seed)
    people = _count_their_rows(model, link.parent, dict(zip(d.domain.names, found, strict=True)), size, generator)
    coded = [a for a in model.people.attributes[: len(link.people)] if not isinstance(a, Surrogate)]
    values = {a.name: decode_column(a, people.codes[a.name], generator) for a in coded}
    if values:
        kept_truths = engines.people.enforce(pa.record_batch(values), generator)
        values = dict(zip(values, kept_truths.columns, strict=True))
    if engines.only.people.values:
        fits = engines.only.people.fits(pa.record_batch(values)).to_numpy(zero_copy_only=False)
        kept = np.flatnonzero(fits)[:most]
        people, values = people.take(kept), {name: column.take(pa.array(kept)) for name, column in values.items()}
        size = kept.size
    return people, _build_person_table(model, size, values, numbered, wanted)


def _count_their_rows(
    model: FamilyModel, table: str | None, codes: dict[str, Codes], size: int, generator: np.random.Generator
) -> _Owners:
    """Drawn people or rows, with how many rows each has in every child table, and the time of the first."""
    counts, firsts = {}, {}
    for child in (each for each in model.children if each.link.parent == table):
        link = child.link
        counts[link.child] = codes[link.count_name].astype(np.int64) + link.least
        firsts[link.child] = np.zeros(size, dtype=np.int64)
        if link.clock is not None:
            clock = _find_bins(child.people, link.first_name)
            first, missing = draw_steps(clock, codes[link.first_name], generator)
            # People with rows have a first one: what noise left without is drawn from those that have it.
            held = first[~missing] if not missing.all() else np.arange(clock.steps)
            firsts[link.child] = np.where(missing, generator.choice(held, size) if size else first, first)
    return _Owners(codes, counts, firsts)


def _generate_rows(
    model: FamilyModel, place: int, owners: _Drawn, seed: tuple[int, ...], made: int, engines: _Engines
) -> _Drawn:
    """The rows of a table, for all that they belong to: in the order of these and then of time."""
    child = model.children[place]
    generator, name = np.random.default_rng((*seed, 3)), child.link.child
    counts = owners.owners.counts | {name: _cap(owners.owners.counts[name], owners.person, child.link.most)}
    chain = _RowSampler(child, replace(owners.owners, counts=counts), seed, generator)
    who, codes, times = chain.at_once() if child.link.clock is None else chain.one_by_one()
    rows = _build_row_table(child, owners.rows, who, codes, times, made, generator, engines.rows[place])
    theirs = _count_their_rows(model, child.link.child, codes, who.size, generator)
    return _Drawn(rows, owners.person[who], who, theirs)


def _cap(count: Steps, person: Steps, most: int) -> Steps:
    """How many rows each row of a person has, at most so many of a person in all: the later ones have fewer.

    >>> _cap(np.array([2, 3, 1, 4]), np.array([0, 0, 0, 1]), 4)
    array([2, 2, 0, 4])
    """
    before = np.cumsum(count) - count
    own = before - before[np.searchsorted(person, person)]
    capped: Steps = np.minimum(count, np.maximum(most - own, 0))
    return capped


class _RowSampler:
    """Draws the rows of people, or of rows, each given what it belongs to and the rows before."""

    def __init__(
        self, model: LinkedModel, owners: _Owners, seed: tuple[int, ...], generator: np.random.Generator
    ) -> None:
        self._model, self._owners, self._seed, self._generator = model, owners, seed, generator
        self._count, self._first = owners.counts[model.link.child], owners.firsts[model.link.child]
        self._description = model.rows.description
        self._names = self._description.domain.names

    def at_once(self) -> tuple[Steps, dict[str, Codes], Steps]:
        """Rows without an order."""
        who = np.repeat(np.arange(self._count.size), self._count)
        return who, self._draw_codes(who, {}, 0), np.zeros(who.size, dtype=np.int64)

    def one_by_one(self) -> tuple[Steps, dict[str, Codes], Steps]:
        """First rows, second rows, and so on; then sorted by person."""
        parts: list[tuple[Steps, dict[str, Codes], Steps]] = []
        for place in range(self._model.link.most):
            who = np.flatnonzero(self._count > place)
            before = self._before(parts, who, place)
            codes = self._draw_codes(who, before, place)
            if place:
                codes = self._draw_codes(who, before | self._fix_repeats(codes), place)
            parts.append((who, codes, self._times(parts, who, codes, place)))
        who = np.concatenate([part[0] for part in parts])
        order = np.argsort(who, kind="stable")
        codes = {name: np.concatenate([part[1][name] for part in parts])[order] for name in self._names}
        return who[order], codes, np.concatenate([part[2] for part in parts])[order]

    def _before(self, parts: list[tuple[Steps, dict[str, Codes], Steps]], who: Steps, place: int) -> dict[str, Codes]:
        """Codes of the rows before each: null where there is none."""
        found = {PLACE: np.full(who.size, min(place, 1), dtype=np.int32)}
        sizes = dict(zip(self._names, self._description.domain.sizes, strict=True))
        for lag in range(1, self._model.link.memory + 1):
            at = np.searchsorted(parts[-lag][0], who) if place >= lag else who
            for attribute in carry_over_columns(self._model.rows.attributes):
                name = name_before(attribute.name, lag)
                if name in sizes:
                    nobody = np.full(who.size, sizes[name] - 1, dtype=np.int32)
                    found[name] = parts[-lag][1][attribute.name][at] if place >= lag else nobody
        if not place:
            cuts = np.array(_find_bins(self._model.rows, SINCE).cuts)
            found[SINCE] = (np.searchsorted(cuts, self._first[who], side="right") - 1).astype(np.int32)
        return found

    def _fix_repeats(self, codes: dict[str, Codes]) -> dict[str, Codes]:
        """What rows repeat of those before, and when: given, when the rest of each row is drawn to suit it."""
        found = {SINCE: codes[SINCE]}
        for flag in (name for name in self._names if name.startswith(REPEATS)):
            name = flag.removeprefix(REPEATS)
            same = (codes[flag] == 1) & (codes[PREVIOUS + name] < self._size(name))
            found |= {flag: codes[flag], name: np.where(same, codes[PREVIOUS + name], codes[name])}
        return found

    def _size(self, name: str) -> int:
        return self._description.domain.sizes[self._names.index(name)]

    def _draw_codes(self, who: Steps, before: dict[str, Codes], place: int) -> dict[str, Codes]:
        """Full codes of rows, by name."""
        d, seed = self._description, (*self._seed, place)
        link, owners = self._model.link, self._owners.codes
        given = {name_in_context(link, name): codes[who] for name, codes in owners.items()} | before
        held = {name: codes for name, codes in given.items() if name in self._names}
        places = {name: self._names.index(name) for name in held}
        collapsed = {places[name]: d.collapsed.maps[places[name]][codes] for name, codes in held.items()}
        found = restore_codes(d, draw_given_columns(d.estimates, d.collapsed.domain, collapsed, seed, who.size), seed)
        return {**dict(zip(self._names, found, strict=True)), **held}

    def _times(
        self, parts: list[tuple[Steps, dict[str, Codes], Steps]], who: Steps, codes: dict[str, Codes], place: int
    ) -> Steps:
        """The step at which each row stands; one that would fall beyond the bounds falls anywhere before them."""
        if not place:
            return self._first[who]
        since = _find_bins(self._model.rows, SINCE)
        last = parts[-1][2][np.searchsorted(parts[-1][0], who)]
        times = last + draw_steps(since, codes[SINCE], self._generator)[0]
        anywhere = last + (self._generator.random(who.size) * (since.steps - last)).astype(np.int64)
        return np.where(times < since.steps, times, anywhere)


def _find_bins(model: SynthModel, name: str) -> Bins:
    found = next(a for a in model.attributes if a.name == name)
    assert isinstance(found, Bins)
    return found


def _build_person_table(
    model: FamilyModel, size: int, values: dict[str, pa.Array], after: int, wanted: int
) -> pa.RecordBatch:
    link = model.links[0]
    columns = [
        generate_surrogates(attribute, after, size, wanted)
        if isinstance(attribute, Surrogate)
        else values[attribute.name]
        for attribute in model.people.attributes[: len(link.people)]
    ]
    return pa.record_batch(columns, names=[a.name for a in link.people])


def _build_row_table(
    model: LinkedModel, persons: pa.RecordBatch, who: Steps, codes: dict[str, Codes], times: Steps, made: int,
    generator: np.random.Generator, engine: ConstraintEngine,
) -> pa.RecordBatch:  # fmt: skip
    """Rows in their own types, corrected; with the person's columns where these stand in the same table."""
    known, link = {a.name: a for a in model.rows.attributes}, model.link
    columns: dict[str, pa.Array] = {}
    for declared in link.rows:
        name = declared.name
        if name == link.sequence:
            assert isinstance(declared, Bins)
            columns[name] = convert_steps(declared, times, np.zeros(times.size, dtype=bool))
        elif name in link.after:
            columns[name] = _convert_offsets(model, declared, times, codes[AFTER + name], generator)
        else:
            own = known[name]
            columns[name] = (
                generate_surrogates(own, made, who.size, made + who.size)
                if isinstance(own, Surrogate)
                else decode_column(own, codes[name], generator)
            )
    owners = persons.take(pa.array(who))
    people = {name: owners.column(name) for name in owners.schema.names if link.parent is None or name in link.keys}
    own_rows = pa.record_batch(list(columns.values()), names=list(columns))
    together = pa.record_batch([*people.values(), *own_rows.columns], names=[*people, *own_rows.schema.names])
    return engine.enforce(together, generator)


class _Engines:
    """What is asked of people and rows, and the truths that each of them keeps; a row never changes its person."""

    def __init__(self, model: FamilyModel, only: LinkedCondition) -> None:
        self.only = only
        people = [a for a in model.people.attributes[: len(model.links[0].people)] if not isinstance(a, Surrogate)]
        self.people = ConstraintEngine(model.truths, people)
        self.rows = tuple(_build_engine(child) for child in model.children)


def _build_engine(model: LinkedModel) -> ConstraintEngine:
    columns, fixed = constrained_attributes(model)
    own = [truth for truth in model.truths if not columns_of(truth) <= fixed]
    return ConstraintEngine(own, columns, fixed)


def _convert_offsets(
    model: LinkedModel, declared: object, times: Steps, codes: Codes, generator: np.random.Generator
) -> pa.Array:
    """A column counted from the sequence: as many steps later as drawn, and no later than its own bound."""
    clock = model.link.clock
    assert isinstance(declared, Bins)
    assert clock is not None
    later, missing = draw_steps(_find_bins(model.rows, AFTER + declared.name), codes, generator)
    start = int((declared.lower - clock.lower) / clock.step)
    return convert_steps(declared, np.clip(times + later - start, 0, declared.steps - 1), missing)


@dataclass(frozen=True, slots=True)
class LinkedCondition:
    """What is asked of people, and what of their rows in each table."""

    people: Condition
    rows: tuple[Condition, ...]

    @property
    def of_rows(self) -> bool:
        """Whether anything is asked of rows."""
        return any(condition.values for condition in self.rows)

    def __bool__(self) -> bool:
        return bool(self.people.values) or self.of_rows


def build_linked_condition(links: Sequence[Link], where: Mapping[str, str]) -> LinkedCondition:
    """The condition that people and rows can meet; what none can meet is refused.

    A column that several tables have is named with its table: `visits.day`.
    """
    people = _columns_with_values(links[0].people)
    rows = [_columns_with_values(link.rows) for link in links]
    owned = [
        {name: a for name, a in own.items() if name not in people and sum(name in each for each in rows) == 1}
        | {f"{link.child}.{name}": a for name, a in own.items() if len(links) > 1}
        for link, own in zip(links, rows, strict=True)
    ]
    every = {name: attribute for own in (*owned, people) for name, attribute in own.items()}
    values = parse_values(every, where)
    of_rows = (
        Condition(tuple((name.removeprefix(f"{link.child}."), value) for name, value in values if name in own))
        for link, own in zip(links, owned, strict=True)
    )
    return LinkedCondition(Condition(tuple((name, value) for name, value in values if name in people)), tuple(of_rows))


def _columns_with_values(columns: Iterable[Attribute]) -> dict[str, Labels | Bins]:
    return {a.name: a for a in columns if isinstance(a, Labels | Bins)}
