"""The table as integers: columns as codes against their hierarchies, rows as distinct tuples with counts.

Columns are coded once; no later step looks at a value again. Rows with equal quasi-identifiers always share a class, so
they are collapsed once, too. Each tuple keeps how many rows it stands for, how many people of the population look like
it (where a population is known), and a histogram of each sensitive column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.engines.base import spell_texts
from deniable.errors import DataError, nearest
from deniable.kanonymity.builders.specs import draft_column, make_builder
from deniable.kanonymity.hierarchy import Codes, Hierarchy, Label, text_of
from deniable.policy.schema import Spec

Declared = Hierarchy | Spec | None
"""A hierarchy, the words for one, or nothing (then it is drafted)."""


@dataclass(frozen=True, eq=False, repr=False)
class Coded:
    """A coded column: its hierarchy, the code of every row, and the words that made the hierarchy, if words did."""

    hierarchy: Hierarchy
    codes: Codes
    spec: Spec | None = None
    values: pa.Array | None = None


def column_of(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column by name, or a refusal that names the nearest one."""
    if name not in table.column_names:
        raise DataError(
            f"The table has no column '{name}'",
            expected=f"It has {', '.join(table.column_names)}",
            remedy=nearest(name, table.column_names),
        )
    return table[name]


def factorize(column: pa.ChunkedArray) -> tuple[pa.Array, Codes]:
    """Distinct values without nulls, and the position of every row's value among them; -1 where it is missing."""
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    if not len(column):  # Arrow cannot combine no chunks of dates
        return pa.array([], column.type.value_type), np.zeros(0, np.int32)
    whole = column.unify_dictionaries().combine_chunks()
    codes = pc.fill_null(whole.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    values = whole.dictionary
    return (values, codes) if not pa.types.is_floating(values.type) else _unify_numbers(values, codes)


def _unify_numbers(values: pa.Array, codes: Codes) -> tuple[pa.Array, Codes]:
    """Numbers as they are told apart: 0 and -0 are one, and a number that is no number is a missing one."""
    plain = plain_numbers(values)
    if plain.null_count == 0 and not bool(pc.any(pc.equal(values, 0.0)).as_py()):
        return values, codes
    coded = pc.dictionary_encode(plain)
    place = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return coded.dictionary, np.append(place, np.int32(-1))[codes]


def plain_numbers(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Floating-point numbers without -0, and with nothing where there is no number; other values as they are."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.add(pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values), pa.scalar(0.0, values.type))


def unify_spellings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of people or secrets, in which one text stands for all spellings of it, the first in their order.

    Nothing stands where nothing is to be seen: an empty text tells as little as a missing value.
    """
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    known = pc.unique(column).drop_null()
    known = known.take(pc.sort_indices(known))
    spelled = spell_texts(known)
    coded = spelled.dictionary_encode().indices.to_numpy()
    _, first = np.unique(coded, return_index=True)
    seen = pc.not_equal(spelled, "")
    if len(first) == len(known) and bool(pc.all(seen, min_count=0).as_py()):
        return column
    stands = pc.if_else(seen, known.take(pa.array(first[coded])), pa.scalar(None, column.type))
    return stands.take(pc.index_in(column, value_set=known))


def encode_column(name: str, column: pa.ChunkedArray, declared: Declared) -> Coded:
    """The codes of a column against its hierarchy; a drafted one when none is declared."""
    values, positions = factorize(column)
    if isinstance(declared, Hierarchy):
        spec, built = None, declared
    else:
        spec = declared or draft_column(values, name)
        built = make_builder(spec).hierarchy(name, values)
    missing = bool((positions < 0).any())
    built = built.with_missing() if missing else built
    place = _find_leaves(built, values)
    return Coded(built, place[positions], spec, values)


def _find_leaves(built: Hierarchy, values: pa.Array) -> Codes:
    """The leaf of every distinct value, and in the last place that of a missing one."""
    known: Mapping[Label, int] = built.code_of
    found = np.fromiter((known.get(text, -1) for text in text_of(values)), np.int32, len(values))
    absent = np.flatnonzero(found < 0)
    if absent.size:
        raise DataError(
            f"Values of column '{built.column}' are not among the leaves of its hierarchy",
            expected="Every value is a leaf",
            remedy="Add the leaves to the hierarchy, or set those cells to missing",
            column=built.column,
        )
    return np.append(found, np.int32(known.get(None, -1))).astype(np.int32)


def encode_table(table: pa.Table, columns: tuple[str, ...], declared: Mapping[str, Declared]) -> tuple[Coded, ...]:
    """Several columns, coded in the given order."""
    return tuple(encode_column(name, column_of(table, name), declared.get(name)) for name in columns)


Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Histograms:
    """One histogram a tuple or class: entries `starts[i]` to `starts[i + 1]` of (value, count)."""

    starts: Counts
    values: Codes
    counts: Counts
    size: int

    def owners(self) -> NDArray[np.int64]:
        """The tuple or class that each entry belongs to."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def dense(self) -> Counts:
        """The histograms as a matrix, one row each; for tables small enough to look at."""
        out = np.zeros((len(self.starts) - 1, self.size), np.int64)
        np.add.at(out, (self.owners(), self.values), self.counts)
        return out

    def total(self) -> Counts:
        """The histogram of the whole table."""
        return np.bincount(self.values, weights=self.counts, minlength=self.size).astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Tuples:
    """Distinct tuples of quasi-identifier codes, with everything that is counted about them.

    Each column of the codes lies in one piece of memory, since they are read column by column."""

    codes: Codes
    counts: Counts
    sensitive: tuple[Histograms, ...] = ()
    population: Counts | None = None

    def take_codes(self, places: NDArray[Any]) -> Codes:
        """The codes of some of the tuples."""
        return self.codes.T.take(places, axis=1).T

    @property
    def rows(self) -> int:
        """How many rows the tuples stand for."""
        return int(self.counts.sum())

    @property
    def size(self) -> int:
        """How many distinct tuples there are."""
        return len(self.counts)

    @property
    def width(self) -> int:
        """How many quasi-identifiers there are."""
        return int(self.codes.shape[1])


class Held(NamedTuple):
    """A column to count for each tuple: the code of every row, how many codes there are, and what a row weighs."""

    codes: Codes
    size: int
    weight: Counts | None = None

    def select(self, there: NDArray[np.bool_]) -> Held:
        """Some of the rows."""
        return Held(self.codes[there], self.size, None if self.weight is None else self.weight[there])

    def tally(self, owner: NDArray[np.int64], owners: int, rows: Counts | None = None) -> Histograms:
        """How often each value occurs with each owner, by weight; `rows` says how many rows each row stands for."""
        weight = rows if self.weight is None else self.weight if rows is None else rows * self.weight
        return build_histograms(owner, owners, self.codes, self.size, weight)


@dataclass(frozen=True, eq=False, repr=False)
class Collapsed:
    """The tuples of a table and the tuple of each row."""

    tuples: Tuples
    tuple_of: NDArray[np.int64]


def collapse(
    columns: Sequence[Codes],
    sizes: Sequence[int],
    sensitive: Sequence[tuple[Codes, int] | Held] = (),
    weights: Counts | None = None,
) -> Collapsed:
    """Collapse coded columns to distinct tuples; `weights` says how many rows each row stands for (one by default)."""
    rows = len(columns[0])
    weights = np.ones(rows, np.int64) if weights is None else weights.astype(np.int64)
    _, first, tuple_of = number_rows(columns, sizes)
    codes = stack_codes([column[first] for column in columns])
    counts = np.bincount(tuple_of, weights=weights, minlength=len(first)).astype(np.int64)
    histograms = tuple(Held(*each).tally(tuple_of, len(first), weights) for each in sensitive)
    return Collapsed(Tuples(codes, counts, histograms), tuple_of)


def stack_codes(columns: Sequence[Codes]) -> Codes:
    """Columns side by side, each of them in one piece of memory."""
    return np.array(columns, np.int32).T


def number_rows(columns: Sequence[Codes], sizes: Sequence[int]) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """How many distinct rows there are, one row of each kind, and the kind of each row."""
    key, span = pack_keys(columns, sizes)
    count, number = number_keys(key, span)
    sample = np.empty(count, np.int64)
    sample[number] = np.arange(len(key))
    return count, sample, number


def pack_keys(columns: Sequence[NDArray[Any]], sizes: Sequence[int]) -> tuple[NDArray[np.int64], int]:
    """One key for each row, the same for equal rows, and a number that all keys are below.

    Columns are packed into one 64-bit key while they fit; where they do not, the key so far is renumbered densely,
    which needs no more values than there are rows. A column in which all rows are alike tells nothing.
    """
    key, span = np.zeros(len(columns[0]), np.int64), 1
    for column, size in zip(columns, sizes, strict=True):
        if size < 2:
            continue
        if span * size >= 2**62:
            span, key = number_keys(key, span)
        key *= size
        key += column
        span *= size
    return key, span


NAME_THEM = "Name the columns an intruder may know: --qi zip,birth_date,sex, or role: quasi-identifier in a policy"
"""How to go on where no quasi-identifier is named."""
DENSE = 4
"""A table with a place for each possible key serves where there are at most so many times more keys than rows."""
SPARSE = 32
"""The same for a table of which only the places of keys that occur are looked at."""


def is_dense(key: NDArray[np.int64], span: int) -> bool:
    """Whether a table with a place for each possible key is small enough."""
    return span <= DENSE * len(key)


def number_keys(key: NDArray[np.int64], span: int) -> tuple[int, NDArray[np.int64]]:
    """How many different keys there are, and a number for each row's; keys are below `span`."""
    if span <= SPARSE * len(key):
        there = np.zeros(span, np.bool_)
        there[key] = True
        used, place = np.flatnonzero(there), np.empty(span, np.int32)
        place[used] = np.arange(len(used), dtype=np.int32)
        return len(used), place[key].astype(np.int64)
    coded = pa.array(key).dictionary_encode()
    return len(coded.dictionary), coded.indices.to_numpy().astype(np.int64)


def build_histograms(
    owner: NDArray[np.int64], owners: int, values: Codes, size: int, weights: Counts | None = None
) -> Histograms:
    """How often each value occurs with each owner."""
    key, span = owner * max(size, 1) + values, owners * max(size, 1)
    if span <= DENSE * len(key):
        used = np.flatnonzero(np.bincount(key, minlength=span))
        counts = np.bincount(key, weights=weights, minlength=span)[used].astype(np.int64)
    else:
        used, inverse = np.unique(key, return_inverse=True)
        counts = np.bincount(inverse, weights=weights, minlength=len(used)).astype(np.int64)
    starts = np.searchsorted(used, np.arange(owners + 1) * max(size, 1)).astype(np.int64)
    return Histograms(starts, (used % max(size, 1)).astype(np.int32), counts, size)


def add_population(sample: Tuples, codes: Codes, counts: Counts, sizes: Sequence[int]) -> Tuples:
    """The tuples of a sample and its population together: those only the population has stand for no row."""
    both = [np.concatenate([sample.codes[:, q], codes[:, q]]) for q in range(sample.width)]
    many, first, number = number_rows(both, sizes)
    mine, theirs = number[: sample.size], number[sample.size :]
    joined = stack_codes([column[first] for column in both])
    rows = np.bincount(mine, weights=sample.counts, minlength=many).astype(np.int64)
    people = np.bincount(theirs, weights=counts, minlength=many).astype(np.int64)
    return Tuples(joined, rows, tuple(regroup_histograms(h, mine, many) for h in sample.sensitive), people)


def regroup_histograms(old: Histograms, place: NDArray[np.int64], owners: int) -> Histograms:
    """The same counts for other owners: `place` says to whom each old owner's counts go."""
    return build_histograms(place[old.owners()], owners, old.values, old.size, old.counts)
