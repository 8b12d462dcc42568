"""Inspecting a model from the model alone: what was measured and how noisy, histograms and marginals with error bars.

Everything here is public: it comes from noisy counts and their published variances.

Where every part of a marginal was measured, all that speaks of it is joined without bias and its error bars are exact
(`estimate.residuals`): noise is all that is wrong with it. Negative counts are then moved to the nearest that are none.
Where columns were measured together by groups of values alone, the marginal is given by these groups. Of columns that
were measured in no common table the model only samples what it knows, without an error bar: what it leaves out is not
known.

A summary says what a model is: its method, its columns, what it measured, and the noise of that."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import ParameterError, nearest
from deniable.release.record import Record
from deniable.synth.describe import Workload
from deniable.synth.domain import Bins, Clique, Coded, Surrogate
from deniable.synth.encode import encode_column
from deniable.synth.estimate import noise_of
from deniable.synth.estimate.residuals import ReconstructedMarginal, Residuals, compute_residuals, reconstruct
from deniable.synth.generate import generate
from deniable.synth.linked import FamilyModel, LinkedModel
from deniable.synth.marginal import Floats, Maps, Marginal, count, marginalize
from deniable.synth.model import SynthModel

NORMAL_95 = 1.959964


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """A table that was measured: its columns, its cells (joined values count as one), the deviation of a count."""

    columns: tuple[str, ...]
    cells: int
    deviation: float
    error: float
    """The half width of the 95% interval of one cell, as a share of the records."""
    noise: float
    """The total variation that noise alone gives it, before denoising: half of sqrt(2 / pi) deviations on each cell."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A value, or values that the noise joined: its share of the records, and the half width of its 95% interval."""

    value: str
    share: float
    error: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """A column's bars."""

    column: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Association:
    """How much two columns that were measured together say of one another, from 0 (nothing) to 1 (everything)."""

    first: str
    second: str
    strength: float


def list_measurements(model: SynthModel) -> tuple[MeasuredTable, ...]:
    """Everything that was measured, in the order of measuring."""
    description = model.description
    return tuple(_summarize_measurement(marginal, model) for marginal in (*description.one_way, *description.cliques))


def _summarize_measurement(marginal: Marginal, model: SynthModel) -> MeasuredTable:
    names = tuple(model.description.domain.names[place] for place in marginal.clique)
    deviation, total = math.sqrt(marginal.variance), max(model.description.estimates.total, 1.0)
    # A value that stands for several has their noise together; tables of several columns were counted joined.
    single = len(marginal.clique) == 1
    joined = model.description.collapsed.sizes(marginal.clique[0]) if single else np.ones(marginal.counts.size)
    noise = math.sqrt(2 / math.pi) * deviation * float(np.sqrt(joined).sum()) / (2 * total)
    error = NORMAL_95 * deviation / total
    return MeasuredTable(names, joined.size, deviation, min(error, 1.0), min(noise, 1.0))


def build_histograms(model: SynthModel) -> tuple[Histogram, ...]:
    """Every column's estimated shares over the joined values, with the errors of all that was measured of it."""
    held = model.description.residuals
    return tuple(_histogram(model, place, held) for place in range(len(model.description.domain)))


def _histogram(model: SynthModel, place: int, held: Residuals | None) -> Histogram:
    description = model.description
    total, column = description.estimates.total, description.estimates.columns[place]
    errors = NORMAL_95 * np.sqrt(_variances(model, place, held)) / total
    values = label_codes(model, place)
    bars = [Bar(v, float(c / total), min(float(e), 1.0)) for v, c, e in zip(values, column, errors, strict=True)]
    return Histogram(description.domain.names[place], tuple(bars))


def _variances(model: SynthModel, place: int, held: Residuals | None) -> Floats:
    """The variance of each joined value; that of the column's own measurement where errors are not independent."""
    sizes = model.description.collapsed.sizes(place)
    if held is None:
        return model.description.one_way[place].variance * sizes
    told = reconstruct(held, (place,))
    return np.full(sizes.size, math.inf) if told.missing else told.variances


def label_codes(model: SynthModel, place: int, groups: Sequence[int] = ()) -> list[str]:
    """What each joined code of a coded column stands for, or each group of them."""
    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Surrogate)]
    collapsed = model.description.collapsed
    grouped = np.array(groups or range(collapsed.domain.sizes[place]))[collapsed.maps[place]]
    return [_label_members(coded[place], np.flatnonzero(grouped == code)) for code in range(int(grouped.max()) + 1)]


def _label_members(attribute: Coded, members: NDArray[np.int64]) -> str:
    null = attribute.nullable and int(members[-1]) == attribute.size - 1
    values = members[:-1] if null else members
    if not values.size:
        return "null"
    return _format_values(attribute, values) + (" or null" if null else "")


def _format_values(attribute: Coded, codes: NDArray[np.int64]) -> str:
    if isinstance(attribute, Bins):
        least, greatest = attribute.span(int(codes[0]), int(codes[-1]))
        return str(least) if least == greatest else f"{least} to {greatest}"
    return str(attribute.labels[codes[0]]) if codes.size == 1 else f"({codes.size} rare values)"


def list_associations(model: SynthModel) -> tuple[Association, ...]:
    """Every pair of columns that some measured table holds, once."""
    found: dict[tuple[int, ...], float] = {}
    for clique, table in model.description.estimates.tables.items():
        for axes in itertools.combinations(range(len(clique)), 2):
            found.setdefault(tuple(clique[axis] for axis in axes), association_strength(marginalize(table, axes)))
    names = model.description.domain.names
    return tuple(Association(names[a], names[b], value) for (a, b), value in sorted(found.items()))


def association_strength(table: Floats) -> float:
    """Mutual information over the smaller of both entropies: 0 if independent, 1 if one column decides the other."""
    joint = table / max(float(table.sum()), 1e-300)
    across, down = joint.sum(axis=1), joint.sum(axis=0)
    least = min(_entropy(across), _entropy(down))
    shared = _entropy(across) + _entropy(down) - _entropy(joint.ravel())
    return float(np.clip(shared / least, 0.0, 1.0)) if least > 1e-12 else 0.0


def _entropy(shares: Floats) -> float:
    held = shares[shares > 0]
    return float(-(held * np.log(held)).sum())


SAMPLE_ROWS = 200_000
"""Rows drawn to see what the model says of columns that were not measured together."""
MOST_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Cell:
    """A combination of values: its share of the records, and the half width of the 95% interval of the noise."""

    values: tuple[str, ...]
    share: float
    error: float | None
    unbiased: float | None = None
    """The share before negative ones were corrected: right on average, and so are sums of such."""


@dataclass(frozen=True, slots=True)
class Cells:
    """A marginal: its columns and cells; `measured` names the table that says most of it, if there is one."""

    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    measured: tuple[str, ...] | None
    groups: Maps = ()
    """Where it is reported by groups of joined values: for each column, the group of every value."""


@dataclass(frozen=True, slots=True, eq=False)
class _MarginalEstimate:
    """Shares in the shape of a marginal, with what is known of their errors, and where they come from."""

    shares: Floats
    errors: Floats | None = None
    unbiased: Floats | None = None
    source: Clique | None = None
    groups: Maps = ()


def tabulate_marginal(model: SynthModel, columns: Sequence[str], drawn: Callable[[], pa.Table] | None = None) -> Cells:
    """A marginal of named columns, over the values as the noise joined them.

    `drawn` gives rows of the model where it is part of a larger one, by which its rows are drawn.
    """
    clique, names = locate_columns(model, columns), model.description.domain.names
    told = (
        _combine_measurements(model, clique)
        or _read_fitted_tables(model, clique)
        or _read_grouped_table(model, clique)
        or _sample_cells(model, clique, drawn)
    )
    every = itertools.product(
        *(label_codes(model, p, told.groups[i] if told.groups else ()) for i, p in enumerate(clique))
    )
    errors = itertools.repeat(None) if told.errors is None else map(float, told.errors.ravel())
    unbiased = itertools.repeat(None) if told.unbiased is None else map(float, told.unbiased.ravel())
    listed = zip(every, map(float, told.shares.ravel()), errors, unbiased, strict=False)
    found = tuple(Cell(*each) for each in listed)
    by = None if told.source is None else tuple(names[place] for place in told.source)
    return Cells(tuple(names[place] for place in clique), found, by, told.groups)


def locate_columns(model: SynthModel, columns: Sequence[str]) -> Clique:
    """Named columns by their places; a marginal too large to list is refused."""
    names = model.description.domain.names
    for name in columns:
        if name not in names:
            raise ParameterError(f"the model has no column '{name}'", remedy=nearest(name, names))
    clique = tuple(sorted({names.index(name) for name in columns}))
    if not clique or model.description.collapsed.domain.cells(clique) > MOST_CELLS:
        raise ParameterError("a marginal has no column or too many cells", expected=f"At most {MOST_CELLS:,} cells")
    return clique


def _combine_measurements(model: SynthModel, clique: Clique) -> _MarginalEstimate | None:
    """All that was measured, joined; none where a part of the marginal is missing."""
    held = model.description.residuals
    told = reconstruct(held, clique) if held is not None else None
    if held is None or told is None or told.missing:
        return None
    return _shares_of(told, max(held.total, 1.0), _best_table(model, clique))


def _shares_of(told: ReconstructedMarginal, total: float, source: Clique | None) -> _MarginalEstimate:
    """Counts as shares of the records. Moving them where counts can be brings all of them together nearer the truth."""
    errors = np.minimum(NORMAL_95 * np.sqrt(told.variances) / total, 1.0)
    return _MarginalEstimate(told.nonnegative(total) / total, errors, told.counts / total, source)


def _best_table(model: SynthModel, clique: Clique) -> Clique | None:
    """Of the tables that hold these columns, the one whose noise adds up to least."""
    description = model.description
    if len(clique) == 1 and description.one_way:
        return clique
    holding = [m for m in description.cliques if set(clique) <= set(m.clique) and not m.maps]
    return min(holding, key=lambda m: m.variance * m.counts.size).clique if holding else None


def _read_fitted_tables(model: SynthModel, clique: Clique) -> _MarginalEstimate | None:
    """Tables that were fitted to one another: as estimated, with the errors of the table that holds these columns."""
    description, source = model.description, _best_table(model, clique)
    if description.residuals is not None or source is None:
        return None
    if source == clique and len(clique) == 1:
        variances = description.one_way[clique[0]].variance * description.collapsed.sizes(clique[0])
        table = description.estimates.columns[clique[0]]
    else:
        held = next(m for m in description.cliques if m.clique == source)
        table = marginalize(description.estimates.tables[source], tuple(source.index(place) for place in clique))
        variances = np.full(table.shape, held.variance * held.counts.size / table.size)
    errors = np.minimum(NORMAL_95 * np.sqrt(variances) / max(description.estimates.total, 1.0), 1.0)
    return _MarginalEstimate(table / max(float(table.sum()), 1e-300), errors, None, source)


def _read_grouped_table(model: SynthModel, clique: Clique) -> _MarginalEstimate | None:
    """By groups of values: the table that says most of these columns, by itself."""
    description = model.description
    holding = [m for m in description.cliques if set(clique) <= set(m.clique) and m.maps]
    if not holding:
        return None
    best = min(holding, key=lambda m: m.variance * m.counts.size)
    maps = tuple(best.maps[best.clique.index(place)] for place in clique)
    sizes = [description.collapsed.domain.sizes[place] for place in range(len(description.domain))]
    for place, size in zip(best.clique, best.counts.shape, strict=True):
        sizes[place] = size
    held = compute_residuals(description.collapsed.domain.resize(tuple(sizes)), [replace(best, maps=())])
    told = _shares_of(reconstruct(held, clique), max(description.estimates.total, 1.0), best.clique)
    return replace(told, groups=maps)


def _sample_cells(model: SynthModel, clique: Clique, drawn: Callable[[], pa.Table] | None) -> _MarginalEstimate:
    """What the model draws."""
    rows = drawn() if drawn else generate(model, min(SAMPLE_ROWS, max(round(model.description.estimates.total), 1)))
    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Surrogate)]
    codes = np.stack([encode_column(attribute, rows.column(attribute.name)) for attribute in coded])
    joined = model.description.collapsed.apply(codes)
    found: Floats = count(joined, model.description.collapsed.domain, clique) / max(rows.num_rows, 1)
    return _MarginalEstimate(found)


@dataclass(frozen=True, slots=True, eq=False)
class ModelSummary(Record):
    """What a model says of itself: its method and why, its columns, the tables it measured, and their noise."""

    method: str
    estimated_rows: int
    columns: list[str]
    made_anew: list[str]
    reason: str
    measured: list[str]
    noise_in_a_table: float | None
    """The part of the rows that noise alone moves in a measured table of several columns; None where none was."""
    noise_in_a_column: float | None
    """The part of the rows that noise alone moves in a typical column; None where none was measured."""


@dataclass(frozen=True, slots=True, eq=False)
class AskedModelSummary(ModelSummary):
    """A model with the tables that were asked for, and how each was measured."""

    asked: list[dict[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class LinkedModelSummary(ModelSummary):
    """A model of people with their rows: the columns and tables of both."""

    estimated_people: int


def describe_model(model: SynthModel) -> ModelSummary:
    """What a model says of itself: public."""
    description = model.description
    names = description.domain.names
    measured = [" x ".join(names[place] for place in marginal.clique) for marginal in description.cliques]
    made = [a.name for a in model.attributes if a.name not in names]
    return ModelSummary(
        method=description.method,
        estimated_rows=round(description.estimates.total),
        columns=list(names),
        made_anew=made,
        reason=description.reason,
        measured=measured,
        noise_in_a_table=round(description.estimates.noise, 4) if measured else None,
        noise_in_a_column=_measure_column_noise(model),
    )


def _measure_column_noise(model: SynthModel) -> float | None:
    total = max(model.description.estimates.total, 1.0)
    noises = sorted(noise_of([each], total) for each in model.description.one_way)
    return round(min(1.0, noises[len(noises) // 2]), 4) if noises else None


def describe_workload(model: SynthModel, workload: Workload) -> list[dict[str, str]]:
    """Each table that was asked for, and how it was measured: public."""
    names, held = model.description.domain.names, model.description.cliques
    found = []
    for wanted in workload:
        holding = [m for m in held if {names[place] for place in m.clique}.issuperset(wanted)]
        whole = any(not marginal.maps for marginal in holding)
        how = "measured" if whole else "measured by groups of values" if holding else "not measured"
        found.append({"table": " x ".join(wanted), "how": how})
    return found


def summarize_linked(model: LinkedModel | FamilyModel) -> LinkedModelSummary:
    """What a model says of itself: public."""
    parts = {part: describe_model(each) for part, each in name_parts(model).items()}
    people, *rows = parts.values()
    noises = [part.noise_in_a_table for part in parts.values() if part.noise_in_a_table is not None]
    columns = [part.noise_in_a_column for part in rows if part.noise_in_a_column is not None]
    return LinkedModelSummary(
        method=rows[0].method,
        estimated_rows=sum(part.estimated_rows for part in rows),
        columns=[name for part in parts.values() for name in part.columns],
        made_anew=[name for part in parts.values() for name in part.made_anew],
        reason="; ".join(f"{name}: {part.reason}" for name, part in parts.items()),
        measured=[name for part in parts.values() for name in part.measured],
        noise_in_a_table=max(noises) if noises else None,
        noise_in_a_column=max(columns) if columns else None,
        estimated_people=people.estimated_rows,
    )


PEOPLE, ROWS = "people", "rows"
"""The parts of a view; of several tables of rows, each is called by its own name."""


def name_parts(model: LinkedModel | FamilyModel) -> dict[str, SynthModel]:
    """The models of people and of each table of rows."""
    if isinstance(model, LinkedModel):
        return {PEOPLE: model.people, ROWS: model.rows}
    return {PEOPLE: model.people} | {child.link.child: child.rows for child in model.children}
