"""People held out of a description: a control group for attacks on what is drawn from it.

What an intruder achieves against people whom a description never saw was learned about people in general. The split is
drawn by people, not by rows, with fresh secret entropy: nobody outside can tell on which side somebody stands.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.dp.samplers import salt


def parted(rows: pa.Table, unit: str | None, share: float) -> tuple[pa.Table, pa.Table]:
    """The rows to describe, and those of about a share of the units (of the rows, where a row is a unit) held out."""
    people = np.arange(rows.num_rows) if unit is None else _people(rows.column(unit))
    lots = np.random.default_rng(int.from_bytes(salt(16), "little")).random(int(people.max(initial=-1)) + 1)
    held = lots[people] < share
    return rows.filter(pa.array(~held)), rows.filter(pa.array(held))


def parted_people(
    people: pa.Table | None, rows: pa.Table, key: str, share: float
) -> tuple[tuple[pa.Table | None, pa.Table], tuple[pa.Table | None, pa.Table]]:
    """The same of people with their rows: whoever is held out is so in both tables."""
    if people is None:
        seen, held = parted(rows, key, share)
        return (None, seen), (None, held)
    chosen, others = parted(people, key, share)
    return (chosen, _of(rows, chosen, key)), (others, _of(rows, others, key))


def _of(rows: pa.Table, people: pa.Table, key: str) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(key), value_set=people.column(key).combine_chunks().cast(rows[key].type)))


def _people(names: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A number for each unit; a row that names nobody counts as one person among others."""
    encoded = names.combine_chunks().dictionary_encode()
    places = encoded.indices.fill_null(len(encoded.dictionary))
    return np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64)
