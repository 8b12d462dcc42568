"""What an intruder sees of people with their rows: a table of people, and one of rows with their people's columns.

Both hold only columns that say something about people: what is made anew would blunt an attack and tell nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from deniable.synth.attributes import Attribute, Bins, Labels
from deniable.synth.gathering import gathered
from deniable.synth.links import COUNT, Link


def sighted(link: Link, people: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """A table of people, with how many rows each has, and a table of rows, each with its person's columns."""
    persons, _ = gathered(link, people, rows)
    own = _names(link.people)
    if people is None:
        return persons.select([*own, COUNT]), rows.select([*own, *_names(link.rows)])
    joined = rows.join(people.select([link.key, *own]), keys=link.key, join_type="inner")
    return persons.select([*own, COUNT]), joined.select([*own, *_names(link.rows)])


def _names(columns: Iterable[Attribute]) -> list[str]:
    return [a.name for a in columns if isinstance(a, Bins | Labels)]
