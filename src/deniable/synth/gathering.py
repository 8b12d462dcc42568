"""Gathering: people's rows, one row a person; and the rows of people, each with its person and the row before it.

A person's part of both depends on that person's own rows alone, and there are at most `most` of them: that is all that
the pricing of what is measured here rests on.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.synth.attributes import Bins, Made
from deniable.synth.coding import places, whole
from deniable.synth.links import (
    AFTER,
    COUNT,
    FIRST,
    PERSON,
    PLACE,
    PREVIOUS,
    REPEATS,
    SINCE,
    Link,
    carried,
    free_attributes,
)

Places = NDArray[np.int64]


def gathered(link: Link, people: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Tables of people and of rows, with the columns that `links` adds; raw values, still private."""
    people = _first_of_each(people if people is not None else rows, link.key)
    who, at = _owned(link, people, rows)
    kept = rows.take(pa.array(at))
    steps = _clock(link, kept)
    count = np.minimum(np.bincount(who, minlength=people.num_rows), link.most)
    persons = {a.name: people.column(a.name) for a in link.people} | {COUNT: pa.array(count)}
    first = np.searchsorted(who, np.arange(people.num_rows))
    if steps is not None:
        persons[FIRST] = pa.array(np.append(steps, 0)[first], mask=count == 0)
    return pa.table(persons), pa.table(_row_columns(link, persons, kept, who, steps))


def _first_of_each(rows: pa.Table, key: str) -> pa.Table:
    """One row for each value of the key, none for null."""
    numbered = rows.select([key]).append_column("(row)", pa.array(np.arange(rows.num_rows)))
    firsts = numbered.filter(pc.is_valid(numbered[key])).group_by(key).aggregate([("(row)", "min")])
    return rows.take(firsts["(row)_min"].combine_chunks().sort())


def _owned(link: Link, people: pa.Table, rows: pa.Table) -> tuple[Places, Places]:
    """Whose each kept row is, and where it stands: by person, in the order of the sequence, at most so many each."""
    found = pc.index_in(whole(rows[link.key]), whole(people[link.key]))
    usable = found.is_valid()
    steps = np.zeros(rows.num_rows, dtype=np.int64)
    if link.clock is not None:
        steps, null = places(link.clock, whole(rows[link.clock.name]))
        usable = pc.and_(usable, pa.array(~null))
    at = np.flatnonzero(usable.to_numpy(zero_copy_only=False))
    who = found.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)[at]
    order = np.lexsort((steps[at], who))
    who, at = who[order], at[order]
    within = np.arange(who.size) - np.searchsorted(who, who)
    return who[within < link.most], at[within < link.most]


def _clock(link: Link, rows: pa.Table) -> Places | None:
    return None if link.clock is None else places(link.clock, whole(rows[link.clock.name]))[0]


def _row_columns(
    link: Link, persons: dict[str, pa.Array], rows: pa.Table, who: Places, steps: Places | None
) -> dict[str, pa.Array]:
    owners = pa.array(who)
    coded = [a for a in link.people if not isinstance(a, Made)]
    columns = {PERSON + a.name: whole(persons[a.name]).take(owners) for a in coded}
    columns[PERSON + COUNT] = whole(persons[COUNT]).take(owners)
    if steps is None or link.clock is None:
        return columns | {a.name: rows.column(a.name) for a in link.rows}
    later = np.append(False, who[1:] == who[:-1])[: who.size]
    free: dict[str, pa.Array] = {SINCE: pa.array(steps - np.where(later, np.roll(steps, 1), 0))}
    for name in link.after:
        free[AFTER + name] = _counted(link.clock, link.row(name), rows, steps)
    before = pa.array(np.arange(who.size) - 1, mask=~later)
    plain = {a.name: whole(rows.column(a.name)) for a in link.rows if a.name not in (link.sequence, *link.after)}
    for name, column in plain.items():
        free[REPEATS + name] = pc.fill_null(pc.equal(column, column.take(before)), False)
    free |= plain
    columns[PLACE] = pa.array(["first", "later"]).take(pa.array(later.astype(np.int64)))
    columns |= {PREVIOUS + a.name: free[a.name].take(before) for a in carried(free_attributes(link))}
    return columns | free


def _counted(clock: Bins, found: object, rows: pa.Table, steps: Places) -> pa.Array:
    """How many steps after the sequence's value a column's value comes; what comes before it counts as at once."""
    assert isinstance(found, Bins)
    own, null = places(found, whole(rows[found.name]))
    start = int((found.lower - clock.lower) / clock.step)
    return pa.array(np.maximum(own + start - steps, 0), mask=null)
