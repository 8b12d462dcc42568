"""Errors in rank: how far an integer is from being the quantile q of n values, with attention to ties.

With `below`, `equal` and `above` values on either side of an integer (n in all),

    cost = max(below - q n, above - (1 - q) n)

Above 0 it is the error in rank as a reader means it: so many values too many on one side. Below 0 it says how far a
true quantile is from becoming a wrong one; there is always an integer with a cost of at most 0. With s = (1 - q) below
- q above it is max(s - q equal, -s - (1 - q) equal), for the median |below - above| / 2 - equal / 2: the ties count for
the integer they are at. That is what sets it apart from |s|, by which an integer between two heaps looks better than
the heap which the quantile is in.

**Sensitivity.** One value more, at x, moves below - q n by 1 - q if x is below the integer and by -q if not, above -
(1 - q) n by q if x is above it and by -(1 - q) if not. So a cost moves by at most max(q, 1 - q), and no cost of this
kind can do with less: a value at the far end moves the integers on one side of the quantile up and those on the other
down, each by max(q, 1 - q). (All costs together move within a range of twice that, which is what a choice loses.)

`GroupCounts` holds the values of many groups by how often each occurs, and gives what such a choice needs of them: a
matrix of counts, runs of integers of one cost, and a division at a chosen value."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ranks:
    """For rising integers (the last axis): how many values are below, at and above each."""

    below: Numbers
    equal: Numbers
    above: Numbers

    @classmethod
    def of(cls, equal: Numbers) -> Ranks:
        """From the number of values at each integer (or at each run of integers without values between)."""
        seen = np.cumsum(equal, axis=-1)
        return cls(seen - equal, equal, seen[..., -1:] - seen)


def compute_rank_costs(ranks: Ranks, quantile: Fraction) -> Numbers:
    """Costs in parts of a value, 1 / denominator of the quantile.

    >>> compute_rank_costs(Ranks.of(np.array([2, 0, 3, 1])), Fraction(1, 2)).tolist()
    [2, 2, -2, 4]
    """
    a, b = quantile.numerator, quantile.denominator
    middle = (b - a) * ranks.below - a * ranks.above
    # With q = a / b: b (below - q n) = (b - a) below - a above - a equal, and the same from the other side.
    costs: Numbers = np.maximum(middle - a * ranks.equal, -middle - (b - a) * ranks.equal)
    return costs


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """How often each value is in each group: one entry for a group and a value, in rising order. It holds rows, so it
    lives inside one release only."""

    values: Numbers
    counts: Numbers
    group: Numbers
    groups: int

    @classmethod
    def of(cls, values: Numbers, counts: Numbers, group: Numbers, groups: int) -> GroupCounts:
        """From entries in any order, in which a value may come several times."""
        order = np.lexsort((values, group))
        values, counts, group = values[order], counts[order], group[order]
        first = np.flatnonzero((np.diff(values, prepend=0) != 0) | (np.diff(group, prepend=-1) != 0))
        summed = np.add.reduceat(counts, first) if first.size else counts
        return cls(values[first], summed, group[first], groups)

    def part(self, first: int, last: int) -> GroupCounts:
        """Some of the groups, counted from 0."""
        start, end = np.searchsorted(self.group, (first, last))
        mine = slice(int(start), int(end))
        return GroupCounts(self.values[mine], self.counts[mine], self.group[mine] - first, last - first)

    def matrix(self, lower: int, upper: int) -> Numbers:
        """A row for each group, a column for each integer between the bounds."""
        equal = np.zeros((self.groups, upper - lower + 1), dtype=np.int64)
        equal[self.group, self.values - lower] = self.counts
        return equal

    def runs(self, low: Numbers, high: Numbers) -> Runs:
        """For each group: gap, value, gap, value, ..., gap, between ends that hold all its values."""
        rows = np.arange(self.values.size)
        at = 2 * rows + self.group  # the gap before each value; each group before it has one gap more than values
        last = 2 * np.searchsorted(self.group, np.arange(self.groups), side="right") + np.arange(self.groups)
        start, width, equal, group = np.zeros((4, 2 * rows.size + self.groups), dtype=np.int64)
        first = np.diff(self.group, prepend=-1) != 0
        previous = np.concatenate(([0], self.values[:-1])) + 1
        start[at] = np.where(first, low[self.group], previous)
        start[at + 1], equal[at + 1], width[at + 1] = self.values, self.counts, 1
        width[at] = self.values - start[at]
        group[at] = group[at + 1] = self.group
        group[last] = np.arange(self.groups)
        ended = np.bincount(self.group, minlength=self.groups) > 0
        start[last] = np.where(ended, start[last - 1] + 1, low)
        width[last] = high + 1 - start[last]
        return Runs(start, width, group, _rank_runs(equal, group, self.groups))

    def divide_at(self, at: Numbers, ties: Numbers) -> tuple[GroupCounts, GroupCounts]:
        """Those below a value of each group and those above it; of those equal to it `ties` go below (if there are)."""
        cut = at[self.group]
        equal = self.values == cut
        down = np.where(equal, np.clip(ties[self.group], 0, self.counts), self.counts)
        up = np.where(equal, self.counts - down, self.counts)
        return self._where(self.values <= cut, down), self._where(self.values >= cut, up)

    def beside(self, at: Numbers) -> tuple[Numbers, Numbers]:
        """For a value of each group: how many are below it, and how many there are in all."""
        smaller, total = np.zeros((2, self.groups), dtype=np.int64)
        less = self.values < at[self.group]
        np.add.at(smaller, self.group[less], self.counts[less])
        np.add.at(total, self.group, self.counts)
        return smaller, total

    def _where(self, kept: NDArray[np.bool_], counts: Numbers) -> GroupCounts:
        return GroupCounts(self.values[kept], counts[kept], self.group[kept], self.groups)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of integers of one cost: where each starts, how wide it is (maybe 0), its group, and its ranks in it."""

    start: Numbers
    width: Numbers
    group: Numbers
    ranks: Ranks


def _rank_runs(equal: Numbers, group: Numbers, groups: int) -> Ranks:
    """Ranks of runs among those of their own group."""
    seen = np.cumsum(equal)
    ends = np.searchsorted(group, np.arange(groups), side="right") - 1
    total = seen[ends]
    before = np.concatenate(([0], total[:-1]))
    return Ranks(seen - equal - before[group], equal, total[group] - seen)


def count_ties_below(counted: GroupCounts, at: Numbers, share: Fraction) -> Numbers:
    """How many of those equal to a value of each group belong below it, so that it divides the group at a share:
    share * n - below, in parts of 1 / denominator of the share; it may be negative, and more than there are."""
    smaller, total = counted.beside(at)
    return share.numerator * total - share.denominator * smaller
