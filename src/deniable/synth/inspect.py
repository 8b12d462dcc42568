"""Inspecting a model from the model alone: what was measured and how noisy, histograms with error bars, associations.

Everything here is public: it comes from noisy counts and their published variances.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.synth.attributes import Bins, Coded, Made
from deniable.synth.marginal import Floats, Marginal, along
from deniable.synth.model import SynthModel
from deniable.synth.residuals import Residuals, reconstruct

NORMAL_95 = 1.959964


@dataclass(frozen=True, slots=True)
class Measured:
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


def measured(model: SynthModel) -> tuple[Measured, ...]:
    """Everything that was measured, in the order of measuring."""
    description = model.description
    return tuple(_measured(marginal, model) for marginal in (*description.one_way, *description.cliques))


def _measured(marginal: Marginal, model: SynthModel) -> Measured:
    names = tuple(model.description.domain.names[place] for place in marginal.clique)
    deviation, total = math.sqrt(marginal.variance), max(model.description.estimates.total, 1.0)
    # A value that stands for several has their noise together; tables of several columns were counted joined.
    single = len(marginal.clique) == 1
    joined = model.description.collapsed.sizes(marginal.clique[0]) if single else np.ones(marginal.counts.size)
    noise = math.sqrt(2 / math.pi) * deviation * float(np.sqrt(joined).sum()) / (2 * total)
    error = NORMAL_95 * deviation / total
    return Measured(names, joined.size, deviation, min(error, 1.0), min(noise, 1.0))


def histograms(model: SynthModel) -> tuple[Histogram, ...]:
    """Every column's estimated shares over the joined values, with the errors of all that was measured of it."""
    held = model.description.residuals
    return tuple(_histogram(model, place, held) for place in range(len(model.description.domain)))


def _histogram(model: SynthModel, place: int, held: Residuals | None) -> Histogram:
    description = model.description
    total, column = description.estimates.total, description.estimates.columns[place]
    errors = NORMAL_95 * np.sqrt(_variances(model, place, held)) / total
    values = labels(model, place)
    bars = [Bar(v, float(c / total), min(float(e), 1.0)) for v, c, e in zip(values, column, errors, strict=True)]
    return Histogram(description.domain.names[place], tuple(bars))


def _variances(model: SynthModel, place: int, held: Residuals | None) -> Floats:
    """The variance of each joined value; that of the column's own measurement where errors are not independent."""
    sizes = model.description.collapsed.sizes(place)
    if held is None:
        return model.description.one_way[place].variance * sizes
    told = reconstruct(held, (place,))
    return np.full(sizes.size, math.inf) if told.missing else told.variances


def labels(model: SynthModel, place: int, groups: Sequence[int] = ()) -> list[str]:
    """What each joined code of a coded column stands for, or each group of them."""
    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Made)]
    collapsed = model.description.collapsed
    grouped = np.array(groups or range(collapsed.domain.sizes[place]))[collapsed.maps[place]]
    return [_label(coded[place], np.flatnonzero(grouped == code)) for code in range(int(grouped.max()) + 1)]


def _label(attribute: Coded, members: NDArray[np.int64]) -> str:
    null = attribute.nullable and int(members[-1]) == attribute.size - 1
    values = members[:-1] if null else members
    if not values.size:
        return "null"
    return _values(attribute, values) + (" or null" if null else "")


def _values(attribute: Coded, codes: NDArray[np.int64]) -> str:
    if isinstance(attribute, Bins):
        least, greatest = attribute.span(int(codes[0]), int(codes[-1]))
        return str(least) if least == greatest else f"{least} to {greatest}"
    return str(attribute.labels[codes[0]]) if codes.size == 1 else f"({codes.size} rare values)"


def associations(model: SynthModel) -> tuple[Association, ...]:
    """Every pair of columns that some measured table holds, once."""
    found: dict[tuple[int, ...], float] = {}
    for clique, table in model.description.estimates.tables.items():
        for axes in itertools.combinations(range(len(clique)), 2):
            found.setdefault(tuple(clique[axis] for axis in axes), strength(along(table, axes)))
    names = model.description.domain.names
    return tuple(Association(names[a], names[b], value) for (a, b), value in sorted(found.items()))


def strength(table: Floats) -> float:
    """Mutual information over the smaller of both entropies: 0 if independent, 1 if one column decides the other."""
    joint = table / max(float(table.sum()), 1e-300)
    across, down = joint.sum(axis=1), joint.sum(axis=0)
    least = min(_entropy(across), _entropy(down))
    shared = _entropy(across) + _entropy(down) - _entropy(joint.ravel())
    return float(np.clip(shared / least, 0.0, 1.0)) if least > 1e-12 else 0.0


def _entropy(shares: Floats) -> float:
    held = shares[shares > 0]
    return float(-(held * np.log(held)).sum())
