"""Checking nodes: generalize the distinct tuples, group them, ask the models, price the result.

A check starts from the smallest set of tuples it can: the classes of a node already checked are the distinct tuples of
every node above it, so a few of them are kept (roll-up).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.kanonymity.encoding import Counts, Histograms, Tuples
from deniable.kanonymity.hierarchy import Codes, Hierarchy
from deniable.kanonymity.kernels import grouping
from deniable.kanonymity.models import DeltaPresence, KAnonymity, PrivacyModel, holds
from deniable.kanonymity.models.base import Classes, Measured, gather_histograms
from deniable.kanonymity.quality import Mean, Partition
from deniable.kanonymity.search.problem import Levels, Problem, Released, Verdict

ANCHORS = 400
"""So many sets of tuples are kept for roll-up, unless they hold too many tuples before."""

ROLL_UP_BELOW = 0.7
"""A node's classes are kept only when they are clearly fewer than the tuples it was checked from."""

MEMORY = 24
"""All kept tuples together are at most so many times the tuples of the table."""

FOREVER = float("inf")
ROUNDING = 1e-6
"""Lost rows are counted in fractions; their sum is compared with a whole number."""


@dataclass(frozen=True, eq=False, repr=False)
class Grouped:
    """The classes of one node: the tuples they were made from, the class of each tuple, one tuple of each class."""

    source: Tuples
    class_of: Codes
    sample: Codes
    sizes: Counts


class Keys:
    """Table entries whose sums are exact keys of generalized tuples, in as few 64-bit words as they need."""

    def __init__(self, hierarchies: tuple[Hierarchy, ...]) -> None:
        self.first = [np.cumsum([0] + [h.size] * (h.height - 1)) for h in hierarchies]
        start = 0
        for offsets, h in zip(self.first, hierarchies, strict=True):
            offsets += start
            start += h.size * h.height
        word, stride, places = 0, 1, []
        for h in hierarchies:
            span = max(level.size for level in h.levels)
            if stride * span >= 2**63:
                word, stride = word + 1, 1
            places.append((word, stride))
            stride *= span
        self.entries = np.zeros((word + 1, max(start, 1)), np.uint64)
        for (word, stride), offsets, h in zip(places, self.first, hierarchies, strict=True):
            for offset, level in zip(offsets, h.levels, strict=True):
                self.entries[word, offset : offset + h.size] = level.groups.astype(np.uint64) * np.uint64(stride)

    def offsets(self, levels: Levels) -> NDArray[np.int64]:
        """Where the entries of each column begin at these levels."""
        return np.array([self.first[q][level] for q, level in enumerate(levels)], np.int64)


class Checker:
    """Checks the nodes of one problem, remembering verdicts and roll-up sets; not for several threads at once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.keys = Keys(problem.hierarchies)
        self.verdicts: dict[Levels, Verdict] = {}
        self._needs_values = any(getattr(model, "column", None) for model in problem.models)
        self._group = grouping.group_one if len(self.keys.entries) == 1 else grouping.group_many
        self._table(problem.tuples.size)
        self._anchors: list[Tuples] = [problem.tuples]
        self._anchor_levels = np.zeros((1, problem.tuples.width), np.int64)
        self._held = problem.tuples.size
        self._price()

    def _table(self, tuples: int) -> None:
        size = 64
        while size < 2 * tuples:
            size *= 2
        self._slots = np.zeros(size, np.int32)
        self._epochs = np.zeros(size, np.int32)
        self._hashed = np.zeros((size, len(self.keys.entries)), np.uint64)
        self._epoch = 0

    def _price(self) -> None:
        """Tables of what cells cost, or the constants of a measure of classes."""
        problem, tuples = self.problem, self.problem.tuples
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
        relaxed = self._large_enough(grouped)
        if self.additive and int(grouped.sizes[~relaxed].sum()) > problem.limit:
            gone = int(grouped.sizes[~relaxed].sum())
            return Verdict(levels, False, gone, len(relaxed), FOREVER, float(self.base(levels)), True, 0.0)
        classes = self._classes(grouped, rolled)
        relaxed = relaxed & self._apply_models(classes, problem.relaxed)
        released, lost = self._accept_classes(classes, relaxed)
        suppressed = int(grouped.sizes[~released].sum())
        acceptable = suppressed <= problem.limit and self._covers_population(classes, released)
        barred = lost.sum() > problem.limit + ROUNDING or (not acceptable and problem.monotone)
        base, cost = self._costs(levels, grouped, released)
        excess = 0.0 if barred else self._excess(levels, grouped, relaxed, lost)
        price = cost if acceptable else FOREVER
        shown = int((released & (grouped.sizes > 0)).sum())
        return Verdict(levels, acceptable, suppressed, shown, price, base, bool(barred), excess)

    def _large_enough(self, grouped: Grouped) -> Released:
        """Which classes meet the models that need only sizes: they are cheap, and most failing nodes fail by them."""
        plain = tuple(model for model in self.problem.relaxed if isinstance(model, KAnonymity))
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

    def group(self, levels: Levels, *, roll_up: bool = True) -> Grouped:
        """The classes of a node."""
        source = self._source(levels) if roll_up else self.problem.tuples
        class_of, sample = np.empty(source.size, np.int32), np.empty(source.size, np.int32)
        self._epoch += 1
        found = self._group(
            source.codes,
            self.keys.offsets(levels),
            self.keys.entries,
            self._hashed,
            self._slots,
            self._epochs,
            self._epoch,
            class_of,
            sample,
        )
        return Grouped(source, class_of, sample[:found], grouping.sum_groups(class_of, source.counts, found))

    def _source(self, levels: Levels) -> Tuples:
        fits = np.flatnonzero((self._anchor_levels <= np.array(levels)).all(axis=1))
        return min((self._anchors[i] for i in fits), key=lambda tuples: tuples.size)

    def _keep(self, levels: Levels, grouped: Grouped) -> Tuples | None:
        """Keep the classes of this node as tuples for nodes above it, where that pays."""
        source, count = grouped.source, len(grouped.sizes)
        if count >= ROLL_UP_BELOW * source.size or len(self._anchors) >= ANCHORS:
            return None
        if self._held + count > MEMORY * self.problem.tuples.size:
            return None
        people = source.population
        rolled = Tuples(
            np.ascontiguousarray(source.codes[grouped.sample]),
            grouped.sizes,
            self._histograms(grouped),
            None if people is None else grouping.sum_groups(grouped.class_of, people, count),
        )
        self._anchors.append(rolled)
        self._anchor_levels = np.vstack([self._anchor_levels, levels])
        self._held += count
        return rolled

    def _histograms(self, grouped: Grouped) -> tuple[Histograms, ...]:
        return self.merge_histograms(grouped) if self._needs_values else ()

    def merge_histograms(self, grouped: Grouped) -> tuple[Histograms, ...]:
        """The histograms of sensitive columns of every class."""
        made = []
        for old in grouped.source.sensitive:
            starts, values, counts = grouping.merge_histograms(
                grouped.class_of, len(grouped.sizes), old.starts, old.values, old.counts, old.size
            )
            made.append(Histograms(starts, values, counts, old.size))
        return tuple(made)

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
            None if people is None else grouping.sum_groups(grouped.class_of, people, len(grouped.sizes)),
        )
        return _as_classes(merged, self.problem)

    def _costs(self, levels: Levels, grouped: Grouped, released: Released) -> tuple[float, float]:
        if self.additive:
            held = np.array([costs[level] for costs, level in zip(self.column_costs, levels, strict=True)])
            gone = self._slack_of(levels, grouped, np.where(released, 0, grouped.sizes))
            return float(self.combine_costs(held)), float(self.combine_costs(held + gone))
        every = np.ones(len(released), np.bool_)
        measure = self.problem.measure
        base = measure.value(self._partition(levels, grouped, every))  # type: ignore[union-attr]
        return base, measure.value(self._partition(levels, grouped, released))  # type: ignore[union-attr]

    def _excess(self, levels: Levels, grouped: Grouped, relaxed: Released, lost: Measured) -> float:
        if self.additive:
            # The slope of a geometric mean in each column is at least half its share, since losses are at most 1.
            return float(self._slack_of(levels, grouped, lost).sum()) * (0.5 if self.geometric else 1.0)
        return self.problem.measure.excess(self._partition(levels, grouped, relaxed))  # type: ignore[union-attr]

    def _slack_of(self, levels: Levels, grouped: Grouped, gone: Measured) -> Measured:
        """What suppressing so many rows of each class costs beyond their generalization, for each column."""
        some = np.flatnonzero(gone)
        codes = grouped.source.codes[grouped.sample[some]]
        return np.asarray(gone[some] @ self._slack[codes + self.keys.offsets(levels)], np.float64)

    def _partition(self, levels: Levels, grouped: Grouped, released: Released) -> Partition:
        there = grouped.sizes > 0
        codes = grouped.source.codes[grouped.sample[there]]
        volumes = self._volumes[codes + self.keys.offsets(levels)].sum(axis=1)
        rows = self.problem.tuples.rows
        return Partition(grouped.sizes[there], volumes, released[there], rows, self._whole, self._detail)


def _as_classes(tuples: Tuples, problem: Problem) -> Classes:
    held = gather_histograms(tuples.sensitive, problem.sensitive) if tuples.sensitive else {}
    return Classes(tuples.counts, held, problem.references, tuples.population)
