"""Distinct tuples with counts: the whole table as far as k-anonymity and its kin can see it.

Rows with equal quasi-identifiers always share a class, so they are collapsed once. Each tuple keeps how many rows it
stands for, how many people of the population look like it (where a population is known), and a histogram of each
sensitive column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.kanonymity.hierarchy import Codes

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Histograms:
    """One histogram a tuple or class: entries `starts[i]` to `starts[i + 1]` of (value, count)."""

    starts: Counts
    values: Codes
    counts: Counts
    size: int

    def dense(self) -> Counts:
        """The histograms as a matrix, one row each; for tables small enough to look at."""
        out = np.zeros((len(self.starts) - 1, self.size), np.int64)
        owner = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        np.add.at(out, (owner, self.values), self.counts)
        return out

    def total(self) -> Counts:
        """The histogram of the whole table."""
        return np.bincount(self.values, weights=self.counts, minlength=self.size).astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Tuples:
    """Distinct tuples of quasi-identifier codes, with everything that is counted about them."""

    codes: Codes
    counts: Counts
    sensitive: tuple[Histograms, ...] = ()
    population: Counts | None = None

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


@dataclass(frozen=True, eq=False, repr=False)
class Collapsed:
    """The tuples of a table and the tuple of each row."""

    tuples: Tuples
    tuple_of: NDArray[np.int64]


def collapse(
    columns: Sequence[Codes],
    sizes: Sequence[int],
    sensitive: Sequence[tuple[Codes, int]] = (),
    weights: Counts | None = None,
) -> Collapsed:
    """Collapse coded columns to distinct tuples; `weights` says how many rows each row stands for (one by default)."""
    rows = len(columns[0])
    weights = np.ones(rows, np.int64) if weights is None else weights.astype(np.int64)
    _, first, tuple_of = distinct_rows(columns, sizes)
    codes = np.ascontiguousarray(np.column_stack([column[first] for column in columns]).astype(np.int32))
    counts = np.bincount(tuple_of, weights=weights, minlength=len(first)).astype(np.int64)
    histograms = tuple(histogram(tuple_of, len(first), values, size, weights) for values, size in sensitive)
    return Collapsed(Tuples(codes, counts, histograms), tuple_of)


def distinct_rows(columns: Sequence[Codes], sizes: Sequence[int]) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """How many distinct rows there are, the first of each, and the number of each row's.

    Columns are packed into one 64-bit key while they fit; where they do not, the key so far is renumbered densely,
    which needs no more values than there are rows.
    """
    rows = len(columns[0])
    key, span = np.zeros(rows, np.int64), 1
    for column, size in zip(columns, sizes, strict=True):
        if span * max(size, 1) >= 2**62:
            _, key = np.unique(key, return_inverse=True)
            span = int(key.max(initial=0)) + 1
        key = key * max(size, 1) + column
        span *= max(size, 1)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return len(first), first, inverse.astype(np.int64, copy=False)


def histogram(
    owner: NDArray[np.int64], owners: int, values: Codes, size: int, weights: Counts | None = None
) -> Histograms:
    """How often each value occurs with each owner."""
    key = owner * max(size, 1) + values
    used, inverse = np.unique(key, return_inverse=True)
    counts = np.bincount(inverse, weights=weights, minlength=len(used)).astype(np.int64)
    starts = np.searchsorted(used, np.arange(owners + 1) * max(size, 1)).astype(np.int64)
    return Histograms(starts, (used % max(size, 1)).astype(np.int32), counts, size)


def with_population(sample: Tuples, codes: Codes, counts: Counts, sizes: Sequence[int]) -> Tuples:
    """The tuples of a sample and its population together: those only the population has stand for no row."""
    both = [np.concatenate([sample.codes[:, q], codes[:, q]]) for q in range(sample.width)]
    many, first, number = distinct_rows(both, sizes)
    mine, theirs = number[: sample.size], number[sample.size :]
    joined = np.ascontiguousarray(np.column_stack([column[first] for column in both]).astype(np.int32))
    rows = np.bincount(mine, weights=sample.counts, minlength=many).astype(np.int64)
    people = np.bincount(theirs, weights=counts, minlength=many).astype(np.int64)
    return Tuples(joined, rows, tuple(_moved(h, mine, many) for h in sample.sensitive), people)


def _moved(old: Histograms, place: NDArray[np.int64], owners: int) -> Histograms:
    owner = place[np.repeat(np.arange(len(old.starts) - 1), np.diff(old.starts))]
    return histogram(owner, owners, old.values, old.size, old.counts)
