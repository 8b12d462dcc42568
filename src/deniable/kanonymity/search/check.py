"""Checking nodes: generalize the distinct tuples, group them, ask the models, price the result.

A check starts from the smallest set of tuples it can: the classes of a node already checked are the distinct tuples of
every node above it, so a few of them are kept (roll-up).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deniable.kanonymity.encoding import (
    Counts,
    Histograms,
    Tuples,
    is_dense,
    number_keys,
    pack_keys,
    regroup_histograms,
)
from deniable.kanonymity.hierarchy import Codes, Hierarchy
from deniable.kanonymity.models import DeltaPresence, DistinctDiversity, KAnonymity, PrivacyModel, holds
from deniable.kanonymity.models.base import Classes, Measured, gather_histograms, looks_inside
from deniable.kanonymity.quality import Divergence, Mean, Partition
from deniable.kanonymity.search.problem import Levels, Problem, Released, Verdict

ANCHORS = 400
"""So many sets of tuples are kept for roll-up, unless they hold too many tuples before."""

ROLL_UP_BELOW = 0.7
"""A node's classes are kept only when they are clearly fewer than the tuples it was checked from."""

FAR, STEPS_BELOW = 8, 2
"""Where a node has so many times fewer classes than tuples, what lies so many levels below it is kept, too."""

MEMORY = 24
"""All kept tuples together are at most so many times the tuples of the table."""

FOREVER = float("inf")
ROUNDING = 1e-6
"""Lost rows are counted in fractions; their sum is compared with a whole number."""


Places = NDArray[np.int64]


class Anchor(NamedTuple):
    """Tuples that nodes are checked from: the table's own, or the classes of a node below, which have no codes.

    `packed` are their codes, several columns in one, and `places` the tuple of the table that stands for each."""

    tuples: Tuples
    packed: Places
    places: Places


@dataclass(frozen=True, eq=False, repr=False)
class Grouped:
    """The classes of one node: the tuples they were made from, and how many rows each has.

    `own` are the table's tuples, and `numbers` the keys at this node of those that it was checked from, with the key of
    each class. Most nodes fail by their sizes, and nobody asks which tuple is in which class."""

    anchor: Anchor
    own: Tuples
    numbers: tuple[Places, Places, int]
    sizes: Counts

    @property
    def source(self) -> Tuples:
        """The tuples that the classes were made from."""
        return self.anchor.tuples

    def take_codes(self, classes: Places | Released | slice) -> Codes:
        """The codes of one tuple of each of these classes."""
        return self.own.take_codes(self.anchor.places[self.sample[classes]])

    @cached_property
    def sample(self) -> Places:
        """One tuple of each class."""
        keys, used, span = self.numbers
        place = np.empty(span, np.int64)
        place[keys] = np.arange(len(keys))
        return place[used]

    @cached_property
    def class_of(self) -> Places:
        """The class of each tuple."""
        keys, used, span = self.numbers
        place = np.empty(span, np.int64)
        place[used] = np.arange(len(used))
        return place[keys]


PACKED = 4096
"""Columns share a code while they have at most so many combinations: fewer columns are looked up for each tuple."""


class Packing:
    """Columns put together so that few codes tell all of them."""

    def __init__(self, hierarchies: Sequence[Hierarchy]) -> None:
        self.hierarchies, self.packs = hierarchies, list[list[int]]()
        span = PACKED + 1
        for q, h in enumerate(hierarchies):
            span *= max(h.size, 1)
            if span > PACKED:
                self.packs.append([])
                span = max(h.size, 1)
            self.packs[-1].append(q)
        self._tables: dict[tuple[int, Levels], tuple[Places, int]] = {}

    def pack(self, codes: Codes) -> Places:
        """One row for each pack, with a code for each tuple."""
        packed = np.zeros((len(self.packs), len(codes)), np.int64)
        for row, columns in zip(packed, self.packs, strict=True):
            for q in columns:
                row *= self.hierarchies[q].size
                row += codes[:, q]
        return packed

    def generalize(self, packed: Places, levels: Levels) -> tuple[list[Places], list[int]]:
        """The groups of every pack at these levels, and how many groups a pack can have."""
        tables = [self._table(p, tuple(levels[q] for q in columns)) for p, columns in enumerate(self.packs)]
        telling = [p for p, (_, size) in enumerate(tables) if size > 1]
        return [tables[p][0].take(packed[p]) for p in telling], [tables[p][1] for p in telling]

    def _table(self, pack: int, levels: Levels) -> tuple[Places, int]:
        """The group of every code of a pack."""
        if (pack, levels) not in self._tables:
            groups, size = np.zeros(1, np.int64), 1
            for q, number in zip(self.packs[pack], levels, strict=True):
                level = self.hierarchies[q].levels[number]
                groups = (groups[:, None] * level.size + level.groups).ravel()
                size *= level.size
            self._tables[pack, levels] = groups, size
        return self._tables[pack, levels]


class Checker:
    """Checks the nodes of one problem, remembering verdicts and roll-up sets; not for several threads at once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.verdicts: dict[Levels, Verdict] = {}
        self._needs_values = any(looks_inside(model) for model in problem.models)
        self._packing = Packing(problem.hierarchies)
        own = problem.tuples
        self._anchors = [Anchor(own, self._packing.pack(own.codes), np.arange(own.size))]
        self._anchor_levels = np.zeros((1, problem.tuples.width), np.int64)
        self._anchor_sizes = [problem.tuples.size]
        self._held = problem.tuples.size
        self._lower: set[Levels] = set()
        self._price()

    def _price(self) -> None:
        """Tables of what cells cost, or the constants of a measure of classes."""
        problem, tuples = self.problem, self.problem.tuples
        self._sizes = np.array([h.size for h in problem.hierarchies], np.int64)
        spans = self._sizes * np.array([h.height for h in problem.hierarchies], np.int64)
        self._first: Places = np.cumsum(spans) - spans
        self.additive = hasattr(problem.measure, "costs")
        self.geometric = False
        if self.additive:
            tables = problem.measure.costs(problem.hierarchies, tuples)  # type: ignore[union-attr]
            marginals = [
                np.bincount(tuples.codes[:, q], weights=tuples.counts, minlength=h.size)
                for q, h in enumerate(problem.hierarchies)
            ]
            self.geometric = getattr(problem.measure, "mean", Mean.ARITHMETIC) is Mean.GEOMETRIC
            self._shares = np.array([table[-1] @ counts for table, counts in zip(tables, marginals, strict=True)])
            self.column_costs = [table[:-1] @ counts for table, counts in zip(tables, marginals, strict=True)]
            self._slack = np.concatenate([(table[-1] - row) for table in tables for row in table[:-1]] or [np.zeros(0)])
            return
        needed = (getattr(model, "k", getattr(model, "l", 1)) for model in problem.relaxed if _counts_rows(model))
        self._least = max(needed, default=1)
        volumes = [np.log2(h.leaf_counts(n)) for h in problem.hierarchies for n in range(h.height)]
        self._volumes = np.concatenate(volumes or [np.zeros(0)])
        self._whole = float(sum(np.log2(max(h.size, 1)) for h in problem.hierarchies))
        shares = tuples.counts[tuples.counts > 0] / max(tuples.rows, 1)
        self._detail = float((shares * np.log2(shares)).sum())

    def base(self, levels: Levels) -> float:
        """What a node costs without suppression, for measures that add up over cells."""
        return self.combine_costs(
            np.array([costs[level] for costs, level in zip(self.column_costs, levels, strict=True)])
        )

    def combine_costs(self, columns: Measured) -> float:
        """One number from the costs of all columns; `columns` may have a further axis for nodes."""
        if not self.geometric:
            return columns.sum(axis=0)  # type: ignore[no-any-return]
        # A column's cost is its loss times its share; the geometric mean weighs logarithms by shares.
        shares = self._shares.reshape(-1, *(1,) * (columns.ndim - 1))
        losses = np.divide(columns, shares, out=np.zeros_like(columns), where=shares > 0)
        return np.expm1((shares * np.log1p(losses)).sum(axis=0))  # type: ignore[no-any-return]

    def check(self, levels: Levels) -> Verdict:
        """The verdict on one node."""
        known = self.verdicts.get(levels)
        if known is None:
            known = self.verdicts[levels] = self._judge(levels)
        return known

    def _judge(self, levels: Levels) -> Verdict:
        problem, grouped = self.problem, self.group(levels)
        rolled = self._keep(levels, grouped)
        self._keep_below(levels, grouped)
        relaxed = self._large_enough(grouped)
        base, floor = self._bounds(levels, grouped)
        if (gone := int(grouped.sizes[~relaxed].sum())) > problem.limit:
            large = int((relaxed & (grouped.sizes > 0)).sum())
            return Verdict(levels, False, gone, large, FOREVER, base, True, 0.0, floor)
        classes = self._classes(grouped, rolled)
        relaxed = relaxed & self._apply_models(classes, problem.relaxed)
        released, lost = self._accept_classes(classes, relaxed)
        suppressed = int(grouped.sizes[~released].sum())
        acceptable = suppressed <= problem.limit and self._covers_population(classes, released)
        barred = lost.sum() > problem.limit + ROUNDING or (not acceptable and problem.monotone)
        slack = self._slack_of(levels, grouped, lost) if self.additive and not barred else None
        # Without strict models and risks, what is suppressed here is what is suppressed at every node below.
        same = slack if not (problem.strict or problem.risks) else None
        cost = self._cost(levels, grouped, released, base, same) if acceptable else FOREVER
        excess = 0.0 if barred else self._excess(levels, grouped, relaxed, slack)
        shown = int((released & (grouped.sizes > 0)).sum())
        return Verdict(levels, acceptable, suppressed, shown, cost, base, bool(barred), excess, floor)

    def _large_enough(self, grouped: Grouped) -> Released:
        """Which classes meet the models that need only sizes: they are cheap, and most failing nodes fail by them."""
        plain = (m for m in self.problem.relaxed if isinstance(m, KAnonymity) and not looks_inside(m))
        classes = Classes(grouped.sizes)
        released = np.ones(len(classes), np.bool_)
        for model in plain:
            released &= holds(model, classes)
        return released if grouped.source.population is None else released | (grouped.sizes == 0)

    def _covers_population(self, classes: Classes, released: Released) -> bool:
        """People of the population without a row in the table cannot be suppressed: their classes must hold, too."""
        return classes.population is None or bool(released[classes.sizes == 0].all())

    def _accept_classes(self, classes: Classes, relaxed: Released) -> tuple[Released, Measured]:
        """Which classes are released, and how many rows of each are lost here and at every node below."""
        released, lost = relaxed, np.where(relaxed, 0.0, classes.sizes)
        # A class of the population alone is not in the release; only presence says something of it.
        absent = classes.sizes == 0
        for model in self.problem.strict:
            measured = model.measure(classes)
            fine = model.meets(measured)
            released = released & (fine if isinstance(model, DeltaPresence) else fine | absent)
            lost = np.maximum(lost, model.bound_losses(measured, classes))
        for risk in self.problem.risks:
            released = risk.release(classes.sizes, released & ~absent) | (released & absent)
        return released, lost

    def _apply_models(
        self, classes: Classes, models: tuple[PrivacyModel, ...], among: Released | None = None
    ) -> Released:
        released = np.ones(len(classes), np.bool_) if among is None else among
        for model in models:
            released = released & holds(model, classes)
        if classes.population is not None and among is None:
            released = released | (classes.sizes == 0)
        return released

    def release_classes(self, levels: Levels) -> tuple[Grouped, Released]:
        """The classes of a node made from the table's own tuples, and which of them are released."""
        grouped = self.group(levels, roll_up=False)
        classes = self.classes(grouped)
        return grouped, self._accept_classes(classes, self._apply_models(classes, self.problem.relaxed))[0]

    def count_suppressed(self, levels: Levels) -> int:
        """How many rows a node suppresses, however many it may; all where people of the population would be shown."""
        grouped, released = self.release_classes(levels)
        covered = self._covers_population(self.classes(grouped), released)
        return int(grouped.sizes[~released].sum()) if covered else self.problem.tuples.rows

    def group(self, levels: Levels, *, roll_up: bool = True) -> Grouped:
        """The classes of a node."""
        anchor = self._find_anchor(levels) if roll_up else self._anchors[0]
        source = anchor.tuples
        groups, sizes = self._packing.generalize(anchor.packed, levels)
        keys, span = pack_keys(groups or [np.zeros(source.size, np.int64)], sizes or [1])
        if not is_dense(keys, span):
            span, keys = number_keys(keys, span)
        rows = np.bincount(keys, weights=source.counts, minlength=span)
        # Only a population has tuples without rows, whose classes are there all the same.
        there = rows if source.population is None else np.bincount(keys, minlength=span)
        used = np.flatnonzero(there > 0)
        return Grouped(anchor, self.problem.tuples, (keys, used, span), rows[used].astype(np.int64))

    def group_all(self) -> Grouped:
        """All rows in one class, whether the hierarchies reach so far or not."""
        own = self.problem.tuples
        rows = np.array([own.counts.sum()], np.int64)
        return Grouped(self._anchors[0], own, (np.zeros(own.size, np.int64), np.zeros(1, np.int64), 1), rows)

    def _offsets(self, levels: Levels) -> Places:
        """Where the costs or volumes of each column begin at these levels, in tables over columns, levels, leaves."""
        return self._first + self._sizes * np.array(levels, np.int64)

    def _find_anchor(self, levels: Levels) -> Anchor:
        fits = np.flatnonzero((self._anchor_levels <= np.array(levels)).all(axis=1))
        return self._anchors[min(fits.tolist(), key=self._anchor_sizes.__getitem__)]

    def _keep(self, levels: Levels, grouped: Grouped) -> Tuples | None:
        """Keep the classes of this node as tuples for nodes above it, where that pays."""
        source, count = grouped.source, len(grouped.sizes)
        if count >= ROLL_UP_BELOW * source.size or len(self._anchors) >= ANCHORS:
            return None
        if self._held + count > MEMORY * self.problem.tuples.size:
            return None
        people = source.population
        rolled = Tuples(
            source.codes[:0],
            grouped.sizes,
            self._histograms(grouped),
            None if people is None else _sum_groups(grouped.class_of, people, count),
        )
        _, packed, places = grouped.anchor
        self._anchors.append(Anchor(rolled, packed.take(grouped.sample, axis=1), places[grouped.sample]))
        self._anchor_levels = np.vstack([self._anchor_levels, levels])
        self._anchor_sizes.append(count)
        self._held += count
        return rolled

    def _keep_below(self, levels: Levels, grouped: Grouped) -> None:
        """Keep tuples from which nodes near this one are checked, where it was checked from far more."""
        lower = tuple(max(level - STEPS_BELOW, 0) for level in levels)
        if grouped.source.size > FAR * len(grouped.sizes) and lower not in self._lower:
            self._lower.add(lower)
            self._keep(lower, self.group(lower))

    def _histograms(self, grouped: Grouped) -> tuple[Histograms, ...]:
        return self.merge_histograms(grouped) if self._needs_values else ()

    def merge_histograms(self, grouped: Grouped) -> tuple[Histograms, ...]:
        """The histograms of sensitive columns of every class."""
        many = len(grouped.sizes)
        return tuple(regroup_histograms(old, grouped.class_of, many) for old in grouped.source.sensitive)

    def _classes(self, grouped: Grouped, rolled: Tuples | None) -> Classes:
        if rolled is not None:
            return _as_classes(rolled, self.problem)
        return self.classes(grouped)

    def classes(self, grouped: Grouped) -> Classes:
        """The classes of a node as privacy models see them."""
        people = grouped.source.population
        merged = Tuples(
            grouped.source.codes[:0],
            grouped.sizes,
            self._histograms(grouped),
            None if people is None else _sum_groups(grouped.class_of, people, len(grouped.sizes)),
        )
        return _as_classes(merged, self.problem)

    def _bounds(self, levels: Levels, grouped: Grouped) -> tuple[float, float]:
        """What a node costs if no row is suppressed, and what every node above costs at least.

        Of measures that add up over cells, the static bounds tell as much as the latter.
        """
        if self.additive:
            return float(self.base(levels)), 0.0
        measure, split = self.problem.measure, self._partition(levels, grouped, np.ones(len(grouped.sizes), np.bool_))
        return measure.value(split), measure.floor(split, self._least)  # type: ignore[union-attr]

    def _cost(self, levels: Levels, grouped: Grouped, released: Released, base: float, slack: Measured | None) -> float:
        """What a node costs with these classes alone; `slack` is what suppressing the rest adds, where it is known."""
        if released.all():
            return base
        if self.additive:
            held = np.array([costs[level] for costs, level in zip(self.column_costs, levels, strict=True)])
            if slack is None:
                slack = self._slack_of(levels, grouped, np.where(released, 0, grouped.sizes))
            return float(self.combine_costs(held + slack))
        return self.problem.measure.value(self._partition(levels, grouped, released))  # type: ignore[union-attr]

    def _excess(self, levels: Levels, grouped: Grouped, relaxed: Released, slack: Measured | None) -> float:
        if slack is not None:
            # The slope of a geometric mean in each column is at least half its share, since losses are at most 1.
            return float(slack.sum()) * (0.5 if self.geometric else 1.0)
        return self.problem.measure.excess(self._partition(levels, grouped, relaxed))  # type: ignore[union-attr]

    def _slack_of(self, levels: Levels, grouped: Grouped, gone: Measured) -> Measured:
        """What suppressing so many rows of each class costs beyond their generalization, for each column."""
        some = np.flatnonzero(gone)
        if not some.size:
            return np.zeros(len(self._sizes))
        codes = grouped.take_codes(some)
        return np.asarray(gone[some] @ self._slack[codes + self._offsets(levels)], np.float64)

    def _partition(self, levels: Levels, grouped: Grouped, released: Released) -> Partition:
        there = grouped.sizes > 0
        volumes = np.zeros(0)
        if isinstance(self.problem.measure, Divergence):
            codes = grouped.take_codes(there)
            volumes = self._volumes[codes + self._offsets(levels)].sum(axis=1)
        rows = self.problem.tuples.rows
        return Partition(grouped.sizes[there], volumes, released[there], rows, self._whole, self._detail)


def _counts_rows(model: PrivacyModel) -> bool:
    """Whether a released class has as many rows at least as the number that a model asks for."""
    return isinstance(model, KAnonymity | DistinctDiversity)


def _sum_groups(class_of: Places, amounts: Counts, many: int) -> Counts:
    return np.bincount(class_of, weights=amounts, minlength=many).astype(np.int64)


def _as_classes(tuples: Tuples, problem: Problem) -> Classes:
    held = gather_histograms(tuples.sensitive, problem.sensitive) if tuples.sensitive else {}
    return Classes(tuples.counts, held, problem.references, tuples.population)
