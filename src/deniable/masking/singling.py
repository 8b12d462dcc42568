"""Quasi-identifiers by measurement: how many people a column, or a few columns together, single out.

The search goes by size: all single columns, all pairs, and so on, and stops at the first size where some set singles
out the share asked for; those sets are *smallest*. A set that contains a sufficient one is never looked at. Counting
is exact on the rows given (a sample understates nothing: people unique in a sample may still have twins in the whole
table, so shares found in a sample are upper estimates, and the report says how many rows were looked at).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

MOST_COLUMNS = 14
LARGEST_SET = 4
MOST = 0.5
SHOWN = 5

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Singling:
    """A set of columns and the share of people it singles out."""

    columns: tuple[str, ...]
    share: float

    def as_dict(self) -> dict[str, object]:
        """The shape that is printed and saved."""
        return {"columns": list(self.columns), "singled_out": round(self.share, 4)}


def share_singled_out(sample: pa.Table, names: tuple[str, ...], unit: str | None = None) -> float:
    """The share of people whose combination of values in these columns nobody else has.

    With a unit column a person may have several rows: a combination singles somebody out when all its rows are that
    person's, and a person is singled out when one of theirs does so.
    """
    if sample.num_rows == 0 or not names:
        return 0.0
    person = _codes(sample, unit) if unit else np.arange(sample.num_rows, dtype=np.int64)
    return _share(_together([_codes(sample, name) for name in names]), person)


def smallest_sets(
    sample: pa.Table, candidates: tuple[str, ...], unit: str | None = None, most: float = MOST
) -> tuple[Singling, ...]:
    """The smallest column sets that single out at least `most` of the people, strongest first.

    Columns with a single value cannot help; of the rest the ones with most values are searched, up to 14.
    """
    coded = {name: _codes(sample, name) for name in candidates}
    useful = sorted((n for n in coded if coded[n].size and coded[n].max() > 0), key=lambda n: -int(coded[n].max()))
    person = _codes(sample, unit) if unit else np.arange(sample.num_rows, dtype=np.int64)
    for size in range(1, LARGEST_SET + 1):
        tried = (
            Singling(names, _share(_together([coded[name] for name in names]), person))
            for names in combinations(useful[:MOST_COLUMNS], size)
        )
        found = sorted((one for one in tried if one.share >= most), key=lambda one: -one.share)
        if found:
            return tuple(found[:SHOWN])
    return ()


def _codes(sample: pa.Table, name: str) -> Codes:
    column = sample.column(name).combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    encoded = column.dictionary_encode(null_encoding="encode")
    indices = encoded.indices if not isinstance(encoded, pa.ChunkedArray) else encoded.combine_chunks().indices
    codes: Codes = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _together(parts: list[Codes]) -> Codes:
    """One number for each combination; re-coded only where the product would overflow."""
    codes, size = parts[0], int(parts[0].max(initial=0)) + 1
    for part in parts[1:]:
        width = int(part.max(initial=0)) + 1
        if size * width >= 2**62:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
            size = int(codes.max()) + 1
        codes, size = codes * width + part, size * width
    return codes


def _share(codes: Codes, person: Codes) -> float:
    """People who alone have some combination, among all people: rows sorted by combination, runs with one person."""
    if not codes.size:
        return 0.0
    if person[-1] == len(person) - 1 and person[0] == 0 and person.max() == len(person) - 1:
        # One row a person, so runs of length one are people, and sorting needs no order kept.
        ordered = np.sort(codes)
        edge = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])
        return float(np.count_nonzero(edge[1:] & edge[:-1])) / len(codes)
    order = np.argsort(codes)
    ordered, people = codes[order], person[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lowest, highest = np.minimum.reduceat(people, starts), np.maximum.reduceat(people, starts)
    alone = np.unique(lowest[lowest == highest])
    return len(alone) / (int(person.max()) + 1)
