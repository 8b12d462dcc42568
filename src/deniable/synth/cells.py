"""The cells of any marginal, from the model alone, each with its error bar.

Where every part of a marginal was measured, all that speaks of it is joined without bias, and its error bars are
exact (`residuals`): noise is all that is wrong with it. Negative counts are then moved to the nearest that are none.
Where columns were measured together by groups of values alone, the marginal is told by these groups. Of columns that
were measured in no common table the model has an opinion, drawn from what it knows, and no error bar: what it leaves
out is not known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from deniable.errors import ParameterError, nearest
from deniable.synth.attributes import Made
from deniable.synth.coding import encode
from deniable.synth.domain import Clique
from deniable.synth.generate import generate
from deniable.synth.inspect import NORMAL_95, labels
from deniable.synth.marginal import Floats, Maps, along, count
from deniable.synth.model import SynthModel
from deniable.synth.residuals import Reconstructed, reconstruct, residuals

DRAWN = 200_000
"""Rows drawn to see what the model says of columns that were not measured together."""
MOST_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Cell:
    """A combination of values: its share of the records, and the half width of the 95% interval of the noise."""

    values: tuple[str, ...]
    share: float
    error: float | None
    unbiased: float | None = None
    """The share before negative ones were mended: right on average, and so are sums of such."""


@dataclass(frozen=True, slots=True)
class Cells:
    """A marginal: its columns and cells; `measured` names the table that says most of it, if there is one."""

    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    measured: tuple[str, ...] | None
    groups: Maps = ()
    """Where it is told by groups of joined values: for each column, the group of every value."""


@dataclass(frozen=True, slots=True, eq=False)
class _Told:
    """Shares in the shape of a marginal, with what is known of their errors, and where they come from."""

    shares: Floats
    errors: Floats | None = None
    unbiased: Floats | None = None
    source: Clique | None = None
    groups: Maps = ()


def cells(model: SynthModel, columns: Sequence[str], drawn: Callable[[], pa.Table] | None = None) -> Cells:
    """A marginal of named columns, over the values as the noise joined them.

    `drawn` gives rows of the model where it is part of a larger one, by which its rows are drawn.
    """
    clique, names = places(model, columns), model.description.domain.names
    told = _joined(model, clique) or _fitted(model, clique) or _grouped(model, clique) or _drawn(model, clique, drawn)
    every = itertools.product(*(labels(model, p, told.groups[i] if told.groups else ()) for i, p in enumerate(clique)))
    errors = itertools.repeat(None) if told.errors is None else map(float, told.errors.ravel())
    unbiased = itertools.repeat(None) if told.unbiased is None else map(float, told.unbiased.ravel())
    listed = zip(every, map(float, told.shares.ravel()), errors, unbiased, strict=False)
    found = tuple(Cell(*each) for each in listed)
    by = None if told.source is None else tuple(names[place] for place in told.source)
    return Cells(tuple(names[place] for place in clique), found, by, told.groups)


def places(model: SynthModel, columns: Sequence[str]) -> Clique:
    """Named columns by their places; a marginal too large to list is refused."""
    names = model.description.domain.names
    for name in columns:
        if name not in names:
            raise ParameterError(f"the model has no column '{name}'", remedy=nearest(name, names))
    clique = tuple(sorted({names.index(name) for name in columns}))
    if not clique or model.description.collapsed.domain.cells(clique) > MOST_CELLS:
        raise ParameterError("a marginal has no column or too many cells", expected=f"At most {MOST_CELLS:,} cells")
    return clique


def _joined(model: SynthModel, clique: Clique) -> _Told | None:
    """All that was measured, joined; none where a part of the marginal is missing."""
    held = model.description.residuals
    told = reconstruct(held, clique) if held is not None else None
    if held is None or told is None or told.missing:
        return None
    return _shares(told, max(held.total, 1.0), _source(model, clique))


def _shares(told: Reconstructed, total: float, source: Clique | None) -> _Told:
    """Counts as shares of the records. Moving them where counts can be brings all of them together nearer the truth."""
    errors = np.minimum(NORMAL_95 * np.sqrt(told.variances) / total, 1.0)
    return _Told(told.nonnegative(total) / total, errors, told.counts / total, source)


def _source(model: SynthModel, clique: Clique) -> Clique | None:
    """Of the tables that hold these columns, the one whose noise adds up to least."""
    description = model.description
    if len(clique) == 1 and description.one_way:
        return clique
    holding = [m for m in description.cliques if set(clique) <= set(m.clique) and not m.maps]
    return min(holding, key=lambda m: m.variance * m.counts.size).clique if holding else None


def _fitted(model: SynthModel, clique: Clique) -> _Told | None:
    """Tables that were fitted to one another: as estimated, with the errors of the table that holds these columns."""
    description, source = model.description, _source(model, clique)
    if description.residuals is not None or source is None:
        return None
    if source == clique and len(clique) == 1:
        variances = description.one_way[clique[0]].variance * description.collapsed.sizes(clique[0])
        table = description.estimates.columns[clique[0]]
    else:
        held = next(m for m in description.cliques if m.clique == source)
        table = along(description.estimates.tables[source], tuple(source.index(place) for place in clique))
        variances = np.full(table.shape, held.variance * held.counts.size / table.size)
    errors = np.minimum(NORMAL_95 * np.sqrt(variances) / max(description.estimates.total, 1.0), 1.0)
    return _Told(table / max(float(table.sum()), 1e-300), errors, None, source)


def _grouped(model: SynthModel, clique: Clique) -> _Told | None:
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
    held = residuals(description.collapsed.domain.resized(tuple(sizes)), [replace(best, maps=())])
    told = _shares(reconstruct(held, clique), max(description.estimates.total, 1.0), best.clique)
    return replace(told, groups=maps)


def _drawn(model: SynthModel, clique: Clique, drawn: Callable[[], pa.Table] | None) -> _Told:
    """What the model draws."""
    rows = drawn() if drawn else generate(model, min(DRAWN, max(round(model.description.estimates.total), 1)))
    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Made)]
    codes = np.stack([encode(attribute, rows.column(attribute.name)) for attribute in coded])
    joined = model.description.collapsed.apply(codes)
    found: Floats = count(joined, model.description.collapsed.domain, clique) / max(rows.num_rows, 1)
    return _Told(found)
