"""What is published of a tree of areas: cells, totals with intervals, errors by level and size; and how it is stored.

All of it follows from noisy numbers and invariants. The intervals are of unbiased estimates, which the bound at zero
does not touch. What that bound does to the published numbers no formula tells: `imitate` repeats the release on its own
result, with noise of the same variance, and compares. It sees published numbers alone, so it costs nothing.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.geography.consistency import Counts, Floats
from deniable.geography.grids import bound_errors
from deniable.geography.spine import (
    Design,
    Estimates,
    Invariant,
    Spine,
    Table,
    combine_totals,
    compute_spreads,
    estimate,
    find_variance,
    infer,
    is_laplace,
    measure,
    sum_level,
)
from deniable.geography.survey import smooth_shares, split_deviations, widen_deviations
from deniable.policy.budget import ZCDP, Budget, PureDP, format_number
from deniable.release.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.policy.tabulation import Tabulation

CONFIDENCE = 0.95
BATCH = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class TotalEstimates:
    """Unbiased estimates of the total of each area of a level, and their standard deviations; 0 where it is exact."""

    values: tuple[Floats, ...]
    deviations: tuple[Floats, ...]


def estimate_totals(design: Design, estimates: Estimates, invariants: Sequence[Invariant | None]) -> TotalEstimates:
    """The best linear estimate of each area's total, from the sums of all margins that were measured."""
    spine = design.spine
    means: list[Floats] = []
    variances: list[Floats] = []
    for at in range(spine.depth):
        found, scale = combine_totals(estimates, at)
        if at:
            starts, owner = spine.starts[at - 1], spine.find_parents(at)
            sums, spreads = np.add.reduceat(found, starts[:-1]), np.add.reduceat(scale, starts[:-1])
            part = scale / spreads[owner]
            found = found + part * (means[-1] - sums)[owner]
            scale = scale * (1 - part) + part**2 * variances[-1][owner]
        fixed = invariants[at]
        if fixed is not None:
            found, scale = fixed.values.sum(axis=1).astype(np.float64), np.zeros(spine.sizes[at])
        means.append(found)
        variances.append(scale)
    return TotalEstimates(tuple(means), tuple(np.sqrt(np.maximum(each, 0)) for each in variances))


@dataclass(frozen=True, slots=True, eq=False)
class LevelError(Record):
    """What is expected of one level before the bound at zero: standard deviations of the published numbers.

    Those of a total and of a cell are of the noise; a secret sample adds its own, by the root of the sum of squares.
    """

    level: str
    areas: int
    total_deviation: float
    cell_deviation: float
    sample_deviation: float
    """What the sample adds to a number of 1,000 rows, at most; to four times as many it adds twice that. 0: none."""
    exact: str
    """The columns whose numbers are exact on this level; empty where there are none."""


def expect_errors(
    design: Design, fixed: Sequence[tuple[str, ...] | None], weight: int = 1, reach: int = 1
) -> Iterator[LevelError]:
    """What is expected of each level, from public facts alone; `fixed` has the exact margin of each level.

    Of a sample of one in `weight`, by units of at most `reach` rows, the numbers are weighted, and so is their noise.
    """
    sampling = math.sqrt(1000 * reach * (weight - 1))
    cells = compute_spreads(design, len(design.margins) - 1)
    precisions = [
        [1 / (each * (int(mapped.max()) + 1)) for each in compute_spreads(design, margin)]
        for margin, mapped in enumerate(design.maps)
    ]
    totals = [1 / sum(each) for each in zip(*precisions, strict=True)]
    for level, by in enumerate(fixed):
        total = 0.0 if by is not None else weight * math.sqrt(totals[level])
        exactly = "" if by is None else ", ".join(by) or "total"
        areas = design.spine.sizes[level]
        cell = weight * math.sqrt(cells[level])
        yield LevelError(design.spine.levels[level], areas, total, cell, sampling, exactly)


@dataclass(frozen=True, slots=True)
class Imitated:
    """Noise of the same variance, for trying on published numbers what the noise did to exact ones."""

    deviation: float
    laplace: bool

    def release(self, values: NDArray[np.int64]) -> NDArray[Any]:
        """The values with noise from a generator that protects nobody; the values are published ones."""
        generator = np.random.default_rng()
        draw = generator.laplace(0, self.deviation / math.sqrt(2), values.size) if self.laplace else (
            generator.normal(0, self.deviation, values.size)
        )  # fmt: skip
        return np.asarray(values + np.rint(draw).astype(np.int64))


@dataclass(frozen=True, slots=True)
class SizeError:
    """How far totals and cells of areas of one size were off when the release was repeated on its own result."""

    level: str
    least: int
    most: int | None
    areas: int
    total_error: float
    total_bias: float
    cell_error: float

    def round(self) -> SizeError:
        """The errors to as many digits as a report tells."""
        told = {name: round(getattr(self, name), 3) for name in ("total_error", "total_bias")}
        return replace(self, **told, cell_error=round(self.cell_error, 4))


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """What leaves: the table, totals with their estimates, and errors; all of it is post-processed or invariant."""

    table: Table
    totals: tuple[Counts, ...]
    estimates: TotalEstimates
    errors: tuple[SizeError, ...]
    exact: tuple[Counts | None, ...] = ()
    """For each level the numbers that are exact there, by area and cell of their margin."""


CLASSES = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
"""The least sizes of the classes by which errors are told."""
MOST_IMITATED = 4_000_000
"""Cells of smallest areas on which the release is repeated."""
MOST_RUNS = 20
"""How often it is repeated, where the table is small."""


def weigh(published: Published, weight: int, reach: int) -> Published:
    """Numbers of a sample of one in `weight`, weighted so that they stand for everybody; with the sample's error."""
    table, estimates = published.table, published.estimates
    return Published(
        Table(table.area, table.cell, table.count * np.int32(weight)),
        tuple(each * weight for each in published.totals),
        TotalEstimates(
            tuple(each * weight for each in estimates.values),
            tuple(
                widen_deviations(deviations, values, weight, reach)
                for deviations, values in zip(estimates.deviations, estimates.values, strict=True)
            ),
        ),
        published.errors,
        published.exact,
    )


def imitate(design: Design, table: Table, fixed: Sequence[tuple[str, ...] | None], weight: int = 1) -> list[SizeError]:
    """Repeat the release on what it published, with new noise, and compare: errors by level and size of area.

    It touches no exact number, so it costs nothing. It tells what the bound at zero does, which no formula tells. Of a
    large table it takes some areas of the last level but one, chosen by lot, with all that lies in them.
    """
    spine, cells = design.spine, design.cells.count
    if spine.depth > 2 and spine.sizes[-1] * cells > MOST_IMITATED:
        share = MOST_IMITATED / (spine.sizes[-1] * cells)
        many = max(2, round(spine.sizes[-2] * share))
        chosen = np.random.default_rng().choice(spine.sizes[-2], min(many, spine.sizes[-2]), replace=False)
        small, areas = spine.keep(np.sort(chosen))
        place = np.full(spine.sizes[-1], -1, np.int64)
        place[areas] = np.arange(len(areas))
        kept = place[table.area] >= 0
        table = Table(place[table.area[kept]].astype(np.int32), table.cell[kept], table.count[kept])
        spine = small
        design = Design(spine, design.cells, design.margins, design.noises, design.shares)
    laplace = is_laplace(design)
    noises = [None if level is None else [Imitated(math.sqrt(find_variance(each)), laplace) for each in level]
              for level in design.noises]  # fmt: skip
    exact = [
        None if by is None else Invariant(by, sum_level(design, table, level, by)) for level, by in enumerate(fixed)
    ]
    runs = []
    for _ in range(max(1, min(MOST_RUNS, MOST_IMITATED // (spine.sizes[-1] * cells)))):
        taken = table
        if weight > 1:
            thinned = np.random.default_rng().binomial(table.count, 1 / weight)
            taken = Table(table.area, table.cell, thinned.astype(np.int32))
        again, _ = infer(design, estimate(design, measure(design, taken, noises)), exact)
        again = Table(again.area, again.cell, again.count * np.int32(weight))
        runs.append([each for level in range(spine.depth) for each in _compare(design, table, again, level)])
    return [_pool(each) for each in zip(*runs, strict=True)]


def _pool(runs: Sequence[SizeError]) -> SizeError:
    """The same areas in several runs: root mean squares, and the mean of the bias."""
    return replace(
        runs[0],
        total_error=math.sqrt(sum(run.total_error**2 for run in runs) / len(runs)),
        total_bias=sum(run.total_bias for run in runs) / len(runs),
        cell_error=math.sqrt(sum(run.cell_error**2 for run in runs) / len(runs)),
    )


def _compare(design: Design, table: Table, again: Table, level: int) -> Iterator[SizeError]:
    spine, cells = design.spine, design.cells.count
    areas, ancestors = spine.sizes[level], spine.find_ancestors(level)
    before = np.bincount(ancestors[table.area], weights=table.count, minlength=areas)
    after = np.bincount(ancestors[again.area], weights=again.count, minlength=areas)
    keys = np.concatenate([ancestors[each.area].astype(np.int64) * cells + each.cell for each in (table, again)])
    listed, place = np.unique(keys, return_inverse=True)
    off = np.bincount(place, weights=np.concatenate([table.count, -again.count.astype(np.int64)]))
    squares = np.bincount(listed // cells, weights=off**2, minlength=areas)
    kind = np.searchsorted(CLASSES, before, side="right") - 1
    for each in np.unique(kind):
        inside = kind == each
        wrong = (after - before)[inside]
        yield SizeError(
            spine.levels[level],
            CLASSES[each],
            CLASSES[each + 1] - 1 if each + 1 < len(CLASSES) else None,
            int(inside.sum()),
            float(np.sqrt(np.mean(wrong**2))),
            float(np.mean(wrong)),
            float(np.sqrt(squares[inside].sum() / inside.sum() / cells)),
        )


def list_paths(spine: Spine, level: int) -> list[tuple[str, ...]]:
    """For each area of a level the names of those it lies in, from large to small, and its own; none for everybody."""
    columns: list[list[str]] = []
    at = np.arange(spine.sizes[level])
    for above in range(level, 0, -1):
        columns.insert(0, [str(spine.names[above][i]) for i in at])
        at = spine.find_parents(above)[at]
    return list(zip(*columns, strict=True)) if columns else [()] * spine.sizes[level]


@dataclass(frozen=True, slots=True, eq=False)
class AreaTotal(Record):
    """The published total of one area, and an interval that holds the exact one with the stated confidence.

    The two standard deviations are what the interval is made of: of the noise, and of a secret sample, if there is one.
    """

    level: str
    area: str
    total: int
    low: float
    high: float
    noise_deviation: float
    sample_deviation: float


def list_totals(
    design: Design, published: Published, level: int, weight: int = 1, reach: int = 1
) -> Iterator[AreaTotal]:
    """The areas of one level with their totals and intervals.

    A sample of one in `weight` makes steps of that size, and adds its own error, for units of at most `reach` rows.
    """
    values, deviations = published.estimates.values[level], published.estimates.deviations[level]
    off = weight * bound_errors(deviations / weight, CONFIDENCE)
    low, high = values - off, values + off
    noise, sample = split_deviations(deviations, values, weight, reach)
    for i, path in enumerate(list_paths(design.spine, level)):
        yield AreaTotal(
            design.spine.levels[level], " / ".join(path) or design.spine.levels[0], int(published.totals[level][i]),
            math.floor(10 * max(0.0, float(low[i]))) / 10, math.ceil(10 * max(0.0, float(high[i]))) / 10,
            round(float(noise[i]), 3), round(float(sample[i]), 3),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class AreaShare(Record):
    """The share of an area's people in some cells: as published, smoothed within the area above, and its error."""

    level: str
    area: str
    share: float
    smoothed: float
    error: float


def choose_cells(design: Design, of: Mapping[str, str]) -> NDArray[np.bool_]:
    """Which cells have these values; refuses values that none has."""
    cells = design.cells
    chosen = np.ones(cells.sizes, bool)
    for axis, (column, labels) in enumerate(zip(cells.columns, cells.labels, strict=True)):
        if column in of:
            shape = [-1 if i == axis else 1 for i in range(len(cells.sizes))]
            chosen &= np.array([spell_label(label) == of[column] for label in labels]).reshape(shape)
    if not of or not set(of) <= set(cells.columns) or not chosen.any():
        raise ParameterError("no cell has these values", expected=f"COLUMN=VALUE of {', '.join(cells.columns)}")
    return chosen.reshape(-1)


def list_exact(
    design: Design, published: Published, fixed: Sequence[tuple[str, ...] | None]
) -> dict[str, tuple[tuple[str, ...], dict[tuple[str, ...], int]]]:
    """The exact numbers: by level, their columns, and the number for the names of each area and values of those."""
    found, cells = {}, design.cells
    for level, (by, numbers) in enumerate(zip(fixed, published.exact, strict=True)):
        if by is not None and numbers is not None:
            columns = tuple(column for column in cells.columns if column in by)
            named = [labels for column, labels in zip(cells.columns, cells.labels, strict=True) if column in by]
            keys = [tuple(spell_label(label) for label in each) for each in product(*named)]
            listed = {
                (*path, *key): int(number)
                for path, row in zip(list_paths(design.spine, level), numbers, strict=True)
                for key, number in zip(keys, row, strict=True)
            }
            found[design.spine.levels[level]] = (columns, listed)
    return found


def spell_label(label: object) -> str:
    """A value of a cell as it stands in a file."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def list_shares(
    design: Design, published: Published, of: Mapping[str, str], weight: int = 1, reach: int = 1,
    fixed: Sequence[tuple[str, ...] | None] = (),
) -> Iterator[AreaShare]:  # fmt: skip
    """Of every area the share of people with these values of the cells' columns, smoothed where it is noisy.

    `fixed` has for each level the margin that is exact there: shares that follow from it have no error.
    """
    spine, cells = design.spine, design.cells
    chosen = choose_cells(design, of)
    kept = chosen[published.table.cell]
    spreads = [compute_spreads(design, margin) for margin in range(len(design.margins))]
    for level in range(1, spine.depth):
        up = spine.find_ancestors(level)
        counts = published.table.count[kept].astype(np.float64)
        part = np.bincount(up[published.table.area[kept]], counts, minlength=spine.sizes[level]).astype(np.float64)
        precision = 1 / (spreads[-1][level] * chosen.sum())
        if tuple(column for column in cells.columns if column in of) in design.margins[:-1]:
            precision += 1 / spreads[design.margins.index(tuple(c for c in cells.columns if c in of))][level]
        by = fixed[level] if fixed else None
        variance = 0.0 if by is not None and set(of) <= set(by) else weight**2 / precision
        estimates = published.estimates
        noise, _ = split_deviations(estimates.deviations[level], estimates.values[level], weight, reach)
        found = smooth_shares(
            part, published.totals[level].astype(np.float64), variance, float(np.mean(noise**2)),
            spine.find_parents(level).tolist(), sampling=reach * (weight - 1),
        )  # fmt: skip
        for path, *values in zip(list_paths(spine, level), found.published, found.smoothed, found.errors, strict=True):
            yield AreaShare(spine.levels[level], " / ".join(path), *(round(float(each), 5) for each in values))


def list_batches(design: Design, table: Table, count: str) -> Iterator[pa.RecordBatch]:
    """Every cell that is not empty, with the names of its areas, some rows at a time."""
    import pyarrow as pa

    spine, cells = design.spine, design.cells
    areas = [
        (spine.levels[level], spine.find_ancestors(level), pa.array([str(name) for name in spine.names[level]]))
        for level in range(1, spine.depth)
    ]
    for first in range(0, max(len(table.count), 1), BATCH):
        part = slice(first, first + BATCH)
        columns = {name: names.take(pa.array(ancestors[table.area[part]])) for name, ancestors, names in areas}
        codes = np.unravel_index(table.cell[part], cells.sizes)
        for name, labels, code in zip(cells.columns, cells.labels, codes, strict=True):
            columns[name] = pa.array(list(labels)).take(pa.array(code))
        columns[count] = pa.array(table.count[part].astype(np.int64))
        yield pa.RecordBatch.from_pydict(columns)


@dataclass(frozen=True, slots=True, eq=False)
class OperatorPrice(Record):
    """One operator of a plan with its price; all but measuring are free."""

    operator: str
    what: str
    share: float
    price: str
    deviation: float | None
    """The standard deviation of the noise in each number."""


def say_share(allowance: Budget, share: Fraction) -> str:
    """The price of a share of the budget."""
    match allowance:
        case ZCDP(rho, _):
            return f"rho {float(rho * share):.4g}"
        case PureDP(epsilon):
            return f"epsilon {float(epsilon * share):.4g}"
        case _:
            return f"{float(share):.2%} of epsilon {format_number(allowance.epsilon)}"


def price_operators(
    tabulation: Tabulation, design: Design, weight: int, exact: Sequence[str]
) -> Iterator[OperatorPrice]:
    """The operators of a plan, each with its price; `exact` names its invariants."""
    levels = design.spine.levels
    sampled = f"a secret sample of one in {weight}" if weight > 1 else ""
    if tabulation.where or sampled:
        yield OperatorPrice("select", "; ".join(filter(None, [tabulation.where, sampled])), 0.0, "free", None)
    sizes = ", ".join(f"{size:,} {name}" for name, size in zip(levels, design.spine.sizes, strict=True))
    what = f"{design.cells.count:,} cells of {', '.join(design.cells.columns)} in each area ({sizes})"
    yield OperatorPrice("partition", what, 0.0, "free", None)
    for level, noises in enumerate(design.noises):
        for margin, by in enumerate(design.margins):
            if noises is not None:
                share = design.shares[level][margin]
                name = "all cells" if margin == len(design.margins) - 1 else ", ".join(by) or "the total"
                yield OperatorPrice(
                    "measure", f"{name}, each {levels[level]}", float(share),
                    say_share(tabulation.allowance, share), weight * design.variance(level, margin) ** 0.5,
                )  # fmt: skip
    yield OperatorPrice("infer", "whole non-negative numbers that add up", 0.0, "free", None)
    for each in exact:
        yield OperatorPrice("infer", f"{each}: exact", 0.0, "not private, at any price", None)


@dataclass(frozen=True, slots=True, eq=False)
class TabulationPlanReport(Record):
    """What a tabulation would cost and how accurate it would be; no row is read and nothing is charged."""

    tabulation: str
    protects: str
    budget: str
    cells: int
    numbers: int
    operators: tuple[OperatorPrice, ...]
    levels: tuple[LevelError, ...]


SAMPLED = (
    "A secret sample was counted, and the numbers stand for everybody. Intervals and errors include its error. "
    "sample_deviation is that part of it: of a level, for a number of 1,000 (twice that for four times as many); of an "
    "area, for its own total. Noise and sample are joined by the root of the sum of squares."
)
NOTES = (
    "Numbers are whole, never negative, and add up: those of the areas inside an area to its own.",
    "Because no number is below zero, small areas are told a little too large on average, and large ones too small; "
    "total_bias says by how much, by size.",
    "The intervals are of unbiased estimates from the same noise, before the bound at zero, each by itself.",
    "Errors by size come from repeating the release on its own result with new noise. They cost nothing.",
)


@dataclass(frozen=True, slots=True, eq=False)
class TabulationReport(Record):
    """What was published: sums, errors by level and size, and whom it protects."""

    tabulation: str
    protects: str
    epsilon: Fraction
    delta: Fraction
    release: str
    charged: bool
    total: int
    areas: int
    cells: int
    rows: int
    """Cells that are not empty: so many rows the file has."""
    confidence: float
    levels: tuple[LevelError, ...]
    errors: tuple[Mapping[str, Any], ...]
    """By level and size of area: how far the release was off when it was repeated on its own result."""
    totals: tuple[AreaTotal, ...]
    """Of all areas of the larger levels; a file of totals has those of every level."""
    notes: tuple[str, ...]
    certified: Mapping[str, Any] | None = None


def write_published(published: Published) -> bytes:
    """The table as compressed columns, then everything else: each with its length in front."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, sink = published.table, io.BytesIO()
    columns = {"area": table.area, "cell": table.cell, "count": table.count}
    pq.write_table(pa.table(columns), sink, compression="zstd")
    rest = io.BytesIO()
    arrays: dict[str, Any] = {f"{kind}{i}": each for kind, listed in (
        ("t", published.totals), ("e", published.estimates.values), ("d", published.estimates.deviations)
    ) for i, each in enumerate(listed)}  # fmt: skip
    arrays |= {f"x{i}": each for i, each in enumerate(published.exact) if each is not None}
    np.savez_compressed(rest, **arrays)
    errors = [[e.level, e.least, e.most, e.areas, e.total_error, e.total_bias, e.cell_error] for e in published.errors]
    parts = [sink.getvalue(), rest.getvalue(), json.dumps(errors).encode()]
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def read_published(stored: bytes) -> Published:
    """What `write_published` wrote."""
    import pyarrow.parquet as pq

    parts, at = [], 0
    while at < len(stored):
        size = int.from_bytes(stored[at : at + 8], "big")
        parts.append(stored[at + 8 : at + 8 + size])
        at += 8 + size
    cells = pq.read_table(io.BytesIO(parts[0]))
    table = Table(*(cells.column(name).to_numpy() for name in ("area", "cell", "count")))
    with np.load(io.BytesIO(parts[1])) as held:
        depth = sum(name.startswith("t") for name in held.files)
        totals, values, deviations = (tuple(held[f"{kind}{i}"] for i in range(depth)) for kind in "ted")
        exact = tuple(held[f"x{i}"] if f"x{i}" in held.files else None for i in range(depth))
    errors = tuple(SizeError(*each) for each in json.loads(parts[2]))
    return Published(table, totals, TotalEstimates(values, deviations), errors, exact)
