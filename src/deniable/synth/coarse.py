"""Coarse looks at cliques: three columns together can be measured only in few cells, so their values are grouped.

Groups are made of public estimates: neighbors of an ordered column in groups of about as many records each, of another
column the most frequent values by themselves and the rest together. What is then measured says nothing about values
within a group; there the pairs, which are measured in full, go on to speak.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.synth.domain import Clique, Domain
from deniable.synth.marginal import Codes, Floats, Maps

FEWEST = 2
"""Groups that a column keeps at least."""


@dataclass(frozen=True, slots=True)
class Look:
    """A clique, and for each of its columns the group of every code."""

    clique: Clique
    maps: Maps

    @property
    def shape(self) -> tuple[int, ...]:
        """How many groups each column has."""
        return tuple(max(groups) + 1 for groups in self.maps)

    @property
    def coarser(self) -> Maps:
        """The groups, where there are fewer than values somewhere; else nothing."""
        return self.maps if any(max(groups) + 1 < len(groups) for groups in self.maps) else ()

    @property
    def cells(self) -> int:
        """How many combinations of groups there are."""
        return math.prod(self.shape)

    def count(self, codes: Codes) -> NDArray[np.int64]:
        """Exact counts by group. They are private."""
        keys: NDArray[np.int64] = np.zeros(codes.shape[1], dtype=np.int64)
        for place, groups, size in zip(self.clique, self.maps, self.shape, strict=True):
            keys = keys * size + np.array(groups, dtype=np.int64)[codes[place]]
        return np.bincount(keys, minlength=self.cells).reshape(self.shape).astype(np.int64)


def look(domain: Domain, columns: Sequence[Floats], clique: Clique, most: float) -> Look:
    """A clique in at most so many cells, as far as two groups a column allow."""
    sizes = resolution(domain.shape(clique), most)
    made = (
        grouped(columns[place], place in domain.ordered, groups) for place, groups in zip(clique, sizes, strict=True)
    )
    return Look(clique, tuple(made))


def resolution(shape: tuple[int, ...], most: float) -> tuple[int, ...]:
    """How many groups each column gets: the largest give way until the table is small enough.

    >>> resolution((2, 5, 32), 60)
    (2, 5, 6)
    """
    sizes = list(shape)
    while math.prod(sizes) > most and max(sizes) > FEWEST:
        largest = sizes.index(max(sizes))
        others = math.prod(sizes) // sizes[largest]
        second = max([size for place, size in enumerate(sizes) if place != largest], default=1)
        sizes[largest] = min(sizes[largest] - 1, max(FEWEST, int(most // others), second))
    return tuple(sizes)


def grouped(column: Floats, ordered: bool, groups: int) -> tuple[int, ...]:
    """The group of every code of a column.

    >>> grouped(np.array([1.0, 1, 1, 1, 4]), True, 2)
    (0, 0, 0, 0, 1)
    >>> grouped(np.array([1.0, 9, 2, 7]), False, 3)
    (2, 0, 2, 1)
    """
    if column.size <= groups:
        return tuple(range(column.size))
    if ordered:
        weights = np.maximum(column, 0.0) + 1e-9
        middle = (np.cumsum(weights) - weights / 2) / weights.sum()
        return _renumbered(np.minimum((middle * groups).astype(np.int64), groups - 1))
    found = np.full(column.size, groups - 1, dtype=np.int64)
    frequent = np.sort(np.argsort(-column, kind="stable")[: groups - 1])
    found[frequent] = np.arange(frequent.size)
    return tuple(int(group) for group in found)


def _renumbered(groups: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(group) for group in np.unique(groups, return_inverse=True)[1])


def summed(table: Floats, maps: Maps) -> Floats:
    """A full table added up by groups, axis by axis."""
    for axis, groups in enumerate(maps):
        if max(groups) + 1 < len(groups):
            moved = np.moveaxis(table, axis, 0)
            sums = np.zeros((max(groups) + 1, *moved.shape[1:]))
            np.add.at(sums, np.array(groups), moved)
            table = np.moveaxis(sums, 0, axis)
    return table


def spread(table: Floats, maps: Maps) -> Floats:
    """A table by groups over the full values: every value has what its group has."""
    full: Floats = table[np.ix_(*(np.array(groups) for groups in maps))]
    return full
