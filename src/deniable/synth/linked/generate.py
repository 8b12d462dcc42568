"""Generating people and their rows: first people, then for each place in a sequence the rows of all who have one.

Post-processing of a public model: it costs nothing and may be seeded. Rows name their person by the key that was made
for that person, so every link holds. Time runs on: a row stands as far after the one before as was drawn, inside the
declared bounds.

A condition on people keeps people with all their rows. One on rows keeps the rows that fit, and of people those who
have one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import Infeasible, ParameterError
from deniable.policy.truths import columns_of
from deniable.synth.constraints import Condition, ConstraintEngine, parse_values
from deniable.synth.domain import Attribute, Bins, Labels, Surrogate
from deniable.synth.encode import convert_steps, decode_column, draw_steps, generate_surrogates
from deniable.synth.generate import Where, draw_given_columns, draw_records, restore_codes
from deniable.synth.linked import (
    AFTER,
    COUNT,
    FIRST,
    PERSON,
    PLACE,
    PREVIOUS,
    REPEATS,
    SINCE,
    Link,
    LinkedModel,
    carry_over_columns,
)
from deniable.synth.marginal import Codes
from deniable.synth.model import SynthModel

CHUNK = 100_000
"""People in a batch."""
MOST_DRAWN = 20
"""How many batches are drawn for a condition before it is given up."""

Steps = NDArray[np.int64]
Pair = tuple[pa.RecordBatch, pa.RecordBatch]


def generate_linked(
    model: LinkedModel, people: int | None = None, seed: int = 0, where: Where | None = None
) -> tuple[pa.Table, pa.Table]:
    """Synthetic people and rows; as many people as there are estimated to be, if not told otherwise."""
    pairs = list(generate_linked_batches(model, people, seed, where=where))
    return pa.Table.from_batches([first for first, _ in pairs]), pa.Table.from_batches([second for _, second in pairs])


def generate_linked_batches(
    model: LinkedModel, people: int | None = None, seed: int = 0, progress: Callable[[float], None] | None = None,
    where: Where | None = None,
) -> Iterator[Pair]:  # fmt: skip
    """The same in batches of people; the first comes even if it is empty, for its columns.

    Under a condition people are drawn until so many fit; if their number is not given, as many are drawn as there are
    estimated to be, and those that fit are kept.
    """
    only, wanted = build_linked_condition(model.link, where or {}), _count_people(model, people)
    engines = _Engines(model, only)
    until = bool(only) and people is not None
    drawn = kept = numbered = made = 0
    while (kept if until else drawn) < wanted or not drawn:
        if until and _is_hopeless(wanted, kept, drawn):
            happened = f"only {kept:,} of {drawn:,} people drawn met the condition, and {wanted:,} were asked for"
            raise Infeasible(happened, remedy="Ask for fewer people or fewer conditions")
        size = min(CHUNK, _next_batch_size(wanted - kept, kept, drawn) if until else wanted - drawn)
        most = wanted - kept if until else size
        batch = _generate_batch(model, size, (seed, drawn), wanted, _Before(numbered, made), engines, most)
        drawn, kept = drawn + max(size, 1), kept + batch.people.num_rows
        numbered, made = numbered + batch.numbered, made + batch.rows.num_rows
        yield batch.people, batch.rows
        if progress is not None:
            progress((kept if until else drawn) / max(wanted, 1))


def _is_hopeless(wanted: int, kept: int, drawn: int) -> bool:
    """Whether as many batches as are drawn at most would not do, at three deviations more than the share so far."""
    most, likely = MOST_DRAWN * CHUNK, kept + 3 * math.sqrt(kept) + 6
    return drawn >= most or (drawn >= CHUNK and likely * most < wanted * drawn)


def _next_batch_size(missing: int, kept: int, drawn: int) -> int:
    """How many people to draw next: by the share that fitted so far, and ten for one at first."""
    return math.ceil(missing * (drawn / max(kept, 1) * 1.1 if drawn else 10.0))


def generate_people_batches(
    model: LinkedModel, people: int | None = None, seed: int = 0, where: Where | None = None
) -> Iterator[pa.RecordBatch]:
    """The same people without their rows: what is drawn of rows never moves what is drawn of people."""
    if where:
        yield from (persons for persons, _ in generate_linked_batches(model, people, seed, where=where))
        return
    wanted, anybody = _count_people(model, people), _Engines(model, build_linked_condition(model.link, {}))
    for start in range(0, max(wanted, 1), CHUNK):
        size = min(CHUNK, wanted - start)
        yield _generate_people(model, size, (seed, start), wanted, start, anybody, size)[1]


def _count_people(model: LinkedModel, people: int | None) -> int:
    wanted = round(model.people.description.estimates.total) if people is None else people
    if wanted < 0:
        raise ParameterError("there cannot be a negative number of people")
    return wanted


@dataclass(frozen=True, slots=True, eq=False)
class _People:
    """Drawn people: codes by column, how many rows each has, and at which step the first stands."""

    codes: dict[str, Codes]
    count: Steps
    first: Steps

    def take(self, kept: Steps) -> _People:
        """Some of them."""
        codes = {name: column[kept] for name, column in self.codes.items()}
        return _People(codes, self.count[kept], self.first[kept])


@dataclass(frozen=True, slots=True)
class _Before:
    """How many people were numbered, and how many rows were made, before a batch."""

    numbered: int
    made: int


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """People and rows of a batch; `numbered` counts the people who got a number, kept or not."""

    people: pa.RecordBatch
    rows: pa.RecordBatch
    numbered: int


def _generate_batch(
    model: LinkedModel, size: int, seed: tuple[int, int], wanted: int, before: _Before, engines: _Engines, most: int
) -> _Batch:
    """At most so many people who fit, of as many as are drawn."""
    only = engines.only
    at_first = size if only.of_rows else most
    people, persons = _generate_people(model, size, seed, wanted, before.numbered, engines, at_first)
    generator = np.random.default_rng((*seed, 3))
    who, codes, times = _draw_rows(model, people, seed, generator)
    rows = _build_row_table(model, persons, who, codes, times, before.made, generator, engines)
    if not only.of_rows:
        return _Batch(persons, rows, persons.num_rows)
    fits = only.rows.fits(rows).to_numpy(zero_copy_only=False)
    have = np.unique(who[fits])[:most]
    kept = rows.filter(pa.array(fits & np.isin(who, have)))
    return _Batch(persons.take(pa.array(have)), kept, persons.num_rows)


def _generate_people(
    model: LinkedModel, size: int, seed: tuple[int, int], wanted: int, numbered: int, engines: _Engines, most: int
) -> tuple[_People, pa.RecordBatch]:
    generator = np.random.default_rng((*seed, 2))
    people = _draw_people(model, size, seed, generator)
    coded = [a for a in model.people.attributes[: len(model.link.people)] if not isinstance(a, Surrogate)]
    values = {a.name: decode_column(a, people.codes[a.name], generator) for a in coded}
    if values:
        kept_truths = engines.people.enforce(pa.record_batch(values), generator)
        values = dict(zip(values, kept_truths.columns, strict=True))
    if engines.only.people.values:
        fits = engines.only.people.fits(pa.record_batch(values)).to_numpy(zero_copy_only=False)
        kept = np.flatnonzero(fits)[:most]
        people, values = people.take(kept), {name: column.take(pa.array(kept)) for name, column in values.items()}
    return people, _build_person_table(model, people, values, numbered, wanted)


def _draw_people(model: LinkedModel, size: int, seed: tuple[int, int], generator: np.random.Generator) -> _People:
    d = model.people.description
    found = restore_codes(d, draw_records(d.estimates, d.collapsed.domain, size, seed), seed)
    codes = dict(zip(d.domain.names, found, strict=True))
    first = np.zeros(size, dtype=np.int64)
    if model.link.clock is not None:
        clock = _find_bins(model.people, FIRST)
        first, missing = draw_steps(clock, codes[FIRST], generator)
        # People with rows have a first one: what noise left without is drawn from those that have it.
        held = first[~missing] if not missing.all() else np.arange(clock.steps)
        first = np.where(missing, generator.choice(held, size) if size else first, first)
    return _People(codes, codes[COUNT].astype(np.int64) + model.link.least, first)


def _draw_rows(
    model: LinkedModel, people: _People, seed: tuple[int, int], generator: np.random.Generator
) -> tuple[Steps, dict[str, Codes], Steps]:
    """Whose each row is, its codes and its time, in the order of people and then of time."""
    chain = _RowSampler(model, people, seed, generator)
    if model.link.clock is None:
        return chain.at_once()
    return chain.one_by_one()


class _RowSampler:
    """Draws the rows of people, each given the person and the row before."""

    def __init__(
        self, model: LinkedModel, people: _People, seed: tuple[int, int], generator: np.random.Generator
    ) -> None:
        self._model, self._people, self._seed, self._generator = model, people, seed, generator
        self._description = model.rows.description
        self._names = self._description.domain.names

    def at_once(self) -> tuple[Steps, dict[str, Codes], Steps]:
        """Rows without an order."""
        who = np.repeat(np.arange(self._people.count.size), self._people.count)
        return who, self._draw_codes(who, {}, 0), np.zeros(who.size, dtype=np.int64)

    def one_by_one(self) -> tuple[Steps, dict[str, Codes], Steps]:
        """First rows, second rows, and so on; then sorted by person."""
        parts: list[tuple[Steps, dict[str, Codes], Steps]] = []
        for place in range(self._model.link.most):
            who = np.flatnonzero(self._people.count > place)
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
        """Codes of the row before each: null where there is none."""
        kept = [a for a in self._model.rows.attributes if not isinstance(a, Surrogate)]
        found = {PLACE: np.full(who.size, min(place, 1), dtype=np.int32)}
        earlier = {a.name for a in carry_over_columns(self._model.rows.attributes) if PREVIOUS + a.name in self._names}
        for attribute in kept:
            name = attribute.name.removeprefix(PREVIOUS)
            if attribute.name == name or name not in earlier:
                continue
            if place:
                at = np.searchsorted(parts[-1][0], who)
                found[attribute.name] = parts[-1][1][name][at]
            else:
                found[attribute.name] = np.full(who.size, attribute.size - 1, dtype=np.int32)
        if not place:
            cuts = np.array(_find_bins(self._model.rows, SINCE).cuts)
            found[SINCE] = (np.searchsorted(cuts, self._people.first[who], side="right") - 1).astype(np.int32)
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
        given = {PERSON + name: codes[who] for name, codes in self._people.codes.items()} | before
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
            return self._people.first[who]
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
    model: LinkedModel, people: _People, values: dict[str, pa.Array], after: int, wanted: int
) -> pa.RecordBatch:
    columns = [
        generate_surrogates(attribute, after, people.count.size, wanted)
        if isinstance(attribute, Surrogate)
        else values[attribute.name]
        for attribute in model.people.attributes[: len(model.link.people)]
    ]
    return pa.record_batch(columns, names=[a.name for a in model.link.people])


def _build_row_table(
    model: LinkedModel, persons: pa.RecordBatch, who: Steps, codes: dict[str, Codes], times: Steps, made: int,
    generator: np.random.Generator, engines: _Engines,
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
    people = {name: owners.column(name) for name in owners.schema.names if link.parent is None or name == link.key}
    own_rows = pa.record_batch(list(columns.values()), names=list(columns))
    together = pa.record_batch([*people.values(), *own_rows.columns], names=[*people, *own_rows.schema.names])
    return engines.rows.enforce(together, generator)


class _Engines:
    """What is asked of people and rows, and the truths that each of them keeps; a row never changes its person."""

    def __init__(self, model: LinkedModel, only: LinkedCondition) -> None:
        self.only, link = only, model.link
        people = [a for a in model.people.attributes[: len(link.people)] if not isinstance(a, Surrogate)]
        self.people = ConstraintEngine(model.truths, people)
        beside = tuple(a for a in link.people if link.parent is None or a.name == link.key)
        fixed = frozenset(a.name for a in beside)
        known = {a.name: a for a in model.rows.attributes}
        rows = [known.get(a.name, a) for a in link.rows]
        own = [truth for truth in model.truths if not columns_of(truth) <= fixed]
        self.rows = ConstraintEngine(own, (*beside, *rows), fixed)


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
    """What is asked of people, and what of their rows."""

    people: Condition
    rows: Condition

    @property
    def of_rows(self) -> bool:
        """Whether anything is asked of rows."""
        return bool(self.rows.values)

    def __bool__(self) -> bool:
        return bool(self.people.values or self.rows.values)


def build_linked_condition(link: Link, where: Mapping[str, str]) -> LinkedCondition:
    """The condition that people and rows can meet; what none can meet is refused."""
    people, rows = _columns_with_values(link.people), _columns_with_values(link.rows)
    values = parse_values({**rows, **people}, where)
    of_people = tuple((name, value) for name, value in values if name in people)
    of_rows = tuple((name, value) for name, value in values if name not in people)
    return LinkedCondition(Condition(of_people), Condition(of_rows))


def _columns_with_values(columns: Iterable[Attribute]) -> dict[str, Labels | Bins]:
    return {a.name: a for a in columns if isinstance(a, Labels | Bins)}
