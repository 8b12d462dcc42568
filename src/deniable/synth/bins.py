"""Bins: which values of a column count as one, so that counts stand out of the noise. Decided from noisy counts alone.

*Cutting* a number or date: bins that hold many records are cut again, until a part is a single step, holds few
records, or cannot be told from noise. A value that many records share gets a bin of its own. Paid from the budget.

*Collapsing* for everything beyond one-way marginals: values whose noisy count is within a few deviations of zero are
joined into one, neighbors of an ordered column into intervals that hold enough records. Drawing gives a joined value
back as one of its members, in proportion to their estimates. Free.

*Grouping* for cliques of three, which can be measured in few cells only: neighbors of an ordered column, or the most
frequent values and the rest. Within a group the pairs, which are measured in full, say the rest. Free."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import Entropy
from deniable.synth.domain import Bins, Clique, Domain
from deniable.synth.marginal import (
    Codes,
    CodesElsewhere,
    Floats,
    GaussianBudget,
    Maps,
    Marginal,
    Records,
    measure_counts,
    replace_codes,
)

PARTS = 16
"""How many parts a bin is cut into."""
MANY = 1 / 64
"""A bin with more than this share of the records is cut again."""
CUT_DEVIATIONS = 4.5
"""And only if its count stands out of the noise by so many deviations."""

Places = NDArray[np.int64]
CountParts = Callable[[Places, Places], Places]
"""Says how many records stand on the steps from each first one up to each last one, which is left out."""


def count_rounds(attribute: Bins) -> int:
    """How many rounds of cutting can be needed; none where every step has a bin already."""
    longest = max(last - first for first, last in pairwise(attribute.cuts))
    return 1 + math.ceil(math.log(longest, PARTS)) if longest > 1 else 0


def cut_bins(
    attribute: Bins, places: Places | CountParts, spend: GaussianBudget, share: float, entropy: Entropy
) -> tuple[Bins, list[Marginal]]:
    """The attribute with learned cuts, and what was measured for them: at most its share, in equal parts a round.

    A record stands in at most one of the parts that a round counts, so a unit's records move a round's counts by at
    most their number, as in any marginal.
    """
    each, cuts, measured = share / max(count_rounds(attribute), 1), set(attribute.cuts), []
    parts = np.array(attribute.cuts, dtype=np.int64)
    first, last = parts[:-1], parts[1:]
    total = 0.0
    for _ in range(count_rounds(attribute)):
        exact = places(first, last) if callable(places) else _count_parts(places, first, last)
        counted = measure_counts(exact, (0,), spend.variance(each), spend.rows, entropy)
        measured.append(counted)
        total = total or max(float(counted.counts.sum()), 1.0)  # of the first round, in which every record counts
        enough = max(MANY * total, CUT_DEVIATIONS * math.sqrt(counted.variance))
        heavy = (counted.counts >= enough) & (last - first > 1)
        if not heavy.any():
            break
        first, last = _split_parts(first[heavy], last[heavy])
        cuts.update(first.tolist())
    return replace(attribute, cuts=tuple(sorted(cuts))), measured


def _count_parts(places: Places, first: Places, last: Places) -> Places:
    """How many records stand in each part; the parts are disjoint and in rising order."""
    at = np.searchsorted(first, places, side="right") - 1
    inside = (at >= 0) & (places < last[at])
    counts: Places = np.bincount(at[inside], minlength=first.size).astype(np.int64)
    return counts


def _split_parts(first: Places, last: Places) -> tuple[Places, Places]:
    """The parts of bins, in rising order, none empty."""
    edges = [np.unique(a + np.arange(PARTS + 1) * (b - a) // PARTS) for a, b in zip(first, last, strict=True)]
    return np.concatenate([edge[:-1] for edge in edges]), np.concatenate([edge[1:] for edge in edges])


RARE_DEVIATIONS = 3.0
FEWEST_INTERVALS, MOST_INTERVALS = 8, 32
"""The number of stretches that an ordered column is cut into, as far as the noise shows them."""


@dataclass(frozen=True, slots=True, eq=False)
class CollapsedDomain:
    """For each column: the new code of each old one; the last new code stands for the rare ones, if there are any."""

    domain: Domain
    maps: tuple[NDArray[np.int32], ...]

    @overload
    def apply(self, codes: Codes) -> Codes: ...

    @overload
    def apply(self, codes: Records) -> Records: ...

    def apply(self, codes: Records) -> Records:
        """The coded table with rare values joined."""
        if isinstance(codes, CodesElsewhere):
            return codes.replace_codes([mapping.tolist() for mapping in self.maps])
        return np.stack([mapping[column] for mapping, column in zip(self.maps, codes, strict=True)]).astype(np.int32)

    def members(self, place: int, code: int) -> NDArray[np.int64]:
        """The old codes behind a new one."""
        return np.flatnonzero(self.maps[place] == code)

    def sum_counts(self, place: int, marginal: Marginal) -> Floats:
        """Old one-way counts added up to new codes, without what noise alone may have put far from most records."""
        counts = np.where(find_empty(self.domain, place, marginal), 0.0, marginal.counts)
        return np.bincount(self.maps[place], counts, self.domain.sizes[place]).astype(np.float64)

    def sizes(self, place: int) -> Floats:
        """How many old codes stand behind each new one."""
        return np.bincount(self.maps[place], minlength=self.domain.sizes[place]).astype(np.float64)


def collapse_domain(domain: Domain, one_way: list[Marginal]) -> CollapsedDomain:
    """Join the values that the noise hides."""
    maps = [
        _join_neighbors(m, place in domain.nulls, find_empty(domain, place, m))
        if place in domain.ordered
        else _join_rare(m)
        for place, m in enumerate(one_way)
    ]
    sizes = tuple(int(mapping.max()) + 1 for mapping in maps)
    return CollapsedDomain(domain.resize(sizes), tuple(maps))


def collapse_again(
    collapsed: CollapsedDomain, domain: Domain, one_way: Sequence[Marginal], fixed: Collection[int]
) -> CollapsedDomain:
    """The same with columns joined anew from better counts, but for those that are fixed: tables speak of their codes.

    Columns are joined first from a part of the budget. Those that no table holds have the rest of theirs by the end,
    and less noise hides fewer values.
    """
    fresh = collapse_domain(domain, list(one_way)).maps
    maps = tuple(old if place in fixed else fresh[place] for place, old in enumerate(collapsed.maps))
    return CollapsedDomain(domain.resize(tuple(int(mapping.max()) + 1 for mapping in maps)), maps)


def _join_rare(marginal: Marginal) -> NDArray[np.int32]:
    """Frequent values keep codes of their own, the rest share the last one; all keep theirs if that joins nothing."""
    seen = marginal.counts >= RARE_DEVIATIONS * np.sqrt(marginal.variance)
    if not seen.any() or (~seen).sum() <= 1:
        seen = np.ones_like(seen)
    mapping = np.full(seen.size, int(seen.sum()), dtype=np.int32)
    mapping[seen] = np.arange(int(seen.sum()), dtype=np.int32)
    return mapping


def _join_neighbors(
    marginal: Marginal, null: bool = False, empty: NDArray[np.bool_] | None = None
) -> NDArray[np.int32]:
    """Stretches of neighbors; null, the last code where there is one, is nobody's neighbor and stays by itself."""
    numbers = slice(0, marginal.counts.size - null)
    seen = np.ones(marginal.counts.size, dtype=bool) if empty is None else ~empty
    mapping = _join_stretches(marginal.counts[numbers], np.sqrt(marginal.variance), seen[numbers])
    return np.append(mapping, mapping.max(initial=-1) + 1).astype(np.int32) if null else mapping


def count_intervals(total: float, deviation: float) -> float:
    """How many stretches a column is cut into: as many as leave cells of a pair of such columns above the noise.

    >>> count_intervals(10_000.0, 40.0)
    15.811388300841896
    """
    return min(max(math.sqrt(total / max(deviation, 1e-9)), FEWEST_INTERVALS), MOST_INTERVALS)


def _join_stretches(counts: Floats, deviation: float, seen: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Neighbors joined from the left until a stretch holds its part of the records, and more than its noise.

    What is not seen counts for nothing, and belongs to what is before it; at the beginning, to what comes after.
    """
    total = float(np.maximum(counts[seen], 0).sum())
    enough = total / count_intervals(total, deviation)
    mapping = np.zeros(counts.size, dtype=np.int32)
    code, held, length = 0, 0.0, 0
    for place, count in enumerate(counts):
        if seen[place]:
            if length and held >= max(enough, RARE_DEVIATIONS * deviation * np.sqrt(length)):
                code, held, length = code + 1, 0.0, 0
            held, length = held + count, length + 1
        mapping[place] = code
    return mapping


CERTAIN_DEVIATIONS = 2.0
"""How far a sum of neighbors must stand out beyond the largest of as many sums of noise as there are of its length."""
FEW_RECORDS, BEYOND = 0.05, 4.0
"""What lies away from all records but so many at each end, by more than so many times the range of these, is far."""


def find_empty(domain: Domain, place: int, marginal: Marginal) -> NDArray[np.bool_]:
    """The values of a column in bins that are far from most records, and that noise alone may fill.

    Half of the noise on empty values is above zero. Near the records that hardly matters; where bounds are much wider
    than values, a few records far away decide a mean. Where all such values together stand out of the noise, records
    lie thinly somewhere among them: the nearest are kept until the others look like noise.

    >>> from deniable.dp.accounting import NoOpEvent
    >>> wide = Domain(("x",), (6,), frozenset({0}), cuts={0: (0, 1, 2, 3, 99, 200, 300)})
    >>> find_empty(wide, 0, Marginal((0,), np.array([50.0, 60, 40, 1, 2, -1]), 1.0, NoOpEvent())).tolist()
    [False, False, False, False, True, True]
    """
    empty = np.zeros(marginal.counts.size, dtype=bool)
    if place not in domain.cuts:
        return empty
    cuts = np.array(domain.cuts[place], dtype=np.float64)
    counts, deviation = marginal.counts[: cuts.size - 1], math.sqrt(marginal.variance)
    before = np.append(0.0, np.cumsum(counts))
    aside = max(FEW_RECORDS * before[-1], CERTAIN_DEVIATIONS * deviation * math.sqrt(counts.size))
    if before[-1] > 4 * aside:  # else the noise hides even where half of the records are
        lowest = cuts[np.flatnonzero(before > aside)[0] - 1]
        highest = cuts[np.flatnonzero(before < before[-1] - aside)[-1] + 1]
        away = np.maximum(lowest - cuts[1:], cuts[:-1] - highest)
        hidden = _find_hidden(counts, deviation) & (away >= BEYOND * (highest - lowest))
        farthest = np.flatnonzero(hidden)[np.argsort(-away[hidden], kind="stable")]
        alike = np.cumsum(counts[farthest]) <= CERTAIN_DEVIATIONS * deviation * np.sqrt(np.arange(farthest.size) + 1)
        empty[farthest[: np.max(np.flatnonzero(alike), initial=-1) + 1]] = True
    return empty


def _find_hidden(counts: Floats, deviation: float) -> NDArray[np.bool_]:
    """Neighbors none of which stands out of the noise, alone or together with others, beside some that do.

    From the whole to the single value, a half of a stretch is hidden if neither its sum nor that of a part of it stands
    out, while the other half, or a part of that, does.
    """
    levels = 1 + max(counts.size - 1, 0).bit_length()
    padded = np.zeros((2, 1 << (levels - 1)))
    padded[0, : counts.size], padded[1, : counts.size] = counts, 1.0
    shown, below = list[NDArray[np.bool_]](), np.zeros(1 << (levels - 1), dtype=bool)
    for _ in range(levels):
        sums, lengths = padded
        least = np.sqrt(2 * np.log(counts.size / np.maximum(lengths, 1.0))) + CERTAIN_DEVIATIONS
        shown.append(below | ((sums > least * deviation * np.sqrt(lengths)) & (lengths > 0)))
        if sums.size > 1:
            padded, below = padded.reshape(2, -1, 2).sum(axis=2), shown[-1][::2] | shown[-1][1::2]
    hidden = np.zeros(1, dtype=bool)
    for one in shown[-2::-1]:
        other = one.reshape(-1, 2)[:, ::-1].ravel()
        hidden = np.repeat(hidden, 2) | (~one & other)
    return hidden[: counts.size]


FEWEST_GROUPS = 2
"""Groups that a column keeps at least."""


@dataclass(frozen=True, slots=True)
class GroupedClique:
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

    def count(self, codes: Records) -> NDArray[np.int64]:
        """Exact counts by group. They are private."""
        if isinstance(codes, CodesElsewhere):
            named = zip(self.clique, self.maps, strict=True)
            return codes.count_there([tuple(replace_codes(codes.columns[p], groups) for p, groups in named)])[0]
        keys: NDArray[np.int64] = np.zeros(codes.shape[1], dtype=np.int64)
        for place, groups, size in zip(self.clique, self.maps, self.shape, strict=True):
            keys = keys * size + np.array(groups, dtype=np.int64)[codes[place]]
        return np.bincount(keys, minlength=self.cells).reshape(self.shape).astype(np.int64)


def group_clique(domain: Domain, columns: Sequence[Floats], clique: Clique, most: float) -> GroupedClique:
    """A clique in at most so many cells, as far as two groups a column allow."""
    sizes = choose_resolution(domain.shape(clique), most)
    made = (
        group_codes(columns[place], place in domain.ordered, groups, place in domain.nulls)
        for place, groups in zip(clique, sizes, strict=True)
    )
    return GroupedClique(clique, tuple(made))


def choose_resolution(shape: tuple[int, ...], most: float) -> tuple[int, ...]:
    """How many groups each column gets: the largest give way until the table is small enough.

    >>> choose_resolution((2, 5, 32), 60)
    (2, 5, 6)
    """
    sizes = list(shape)
    while math.prod(sizes) > most and max(sizes) > FEWEST_GROUPS:
        largest = sizes.index(max(sizes))
        others = math.prod(sizes) // sizes[largest]
        second = max([size for place, size in enumerate(sizes) if place != largest], default=1)
        sizes[largest] = min(sizes[largest] - 1, max(FEWEST_GROUPS, int(most // others), second))
    return tuple(sizes)


def group_codes(column: Floats, ordered: bool, groups: int, null: bool = False) -> tuple[int, ...]:
    """The group of every code of a column; of an ordered one, null as the last code is a group of its own.

    >>> group_codes(np.array([1.0, 1, 1, 1, 4]), True, 2)
    (0, 0, 0, 0, 1)
    >>> group_codes(np.array([1.0, 9, 2, 7]), False, 3)
    (2, 0, 2, 1)
    """
    if column.size <= groups:
        return tuple(range(column.size))
    if ordered and null:
        numbers = group_codes(column[:-1], True, groups - 1)
        return (*numbers, max(numbers) + 1)
    if ordered:
        weights = np.maximum(column, 0.0) + 1e-9
        middle = (np.cumsum(weights) - weights / 2) / weights.sum()
        return _renumber_groups(np.minimum((middle * groups).astype(np.int64), groups - 1))
    found = np.full(column.size, groups - 1, dtype=np.int64)
    frequent = np.sort(np.argsort(-column, kind="stable")[: groups - 1])
    found[frequent] = np.arange(frequent.size)
    return tuple(int(group) for group in found)


def _renumber_groups(groups: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(group) for group in np.unique(groups, return_inverse=True)[1])


def sum_by_group(table: Floats, maps: Maps) -> Floats:
    """A full table added up by groups, axis by axis."""
    for axis, groups in enumerate(maps):
        if max(groups) + 1 < len(groups):
            moved = np.moveaxis(table, axis, 0)
            sums = np.zeros((max(groups) + 1, *moved.shape[1:]))
            np.add.at(sums, np.array(groups), moved)
            table = np.moveaxis(sums, 0, axis)
    return table


def spread_groups(table: Floats, maps: Maps) -> Floats:
    """A table by groups over the full values: every value has what its group has."""
    full: Floats = table[np.ix_(*(np.array(groups) for groups in maps))]
    return full
