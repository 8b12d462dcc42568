"""The cells of any marginal, from the model alone, each with its error bar.

A marginal inside a table that was measured has errors that follow from the noise. Of columns that were measured in no
common table the model has an opinion, drawn from what it knows, and no error bar: what it leaves out is not known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deniable.errors import ParameterError, nearest
from deniable.synth.attributes import Made
from deniable.synth.coding import encode
from deniable.synth.domain import Clique
from deniable.synth.generate import generate
from deniable.synth.inspect import NORMAL_95, labels
from deniable.synth.marginal import Floats, along, count
from deniable.synth.model import SynthModel

DRAWN = 200_000
"""Rows drawn to see what the model says of columns that were not measured together."""
MOST_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Cell:
    """A combination of values: its share of the records, and the half width of the 95% interval of the noise."""

    values: tuple[str, ...]
    share: float
    error: float | None


@dataclass(frozen=True, slots=True)
class Cells:
    """A marginal: its columns and cells; `measured` names the table it was read from, if there is one."""

    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    measured: tuple[str, ...] | None


def cells(model: SynthModel, columns: Sequence[str]) -> Cells:
    """A marginal of named columns, over the values as the noise joined them."""
    clique = places(model, columns)
    names = tuple(model.description.domain.names[place] for place in clique)
    source = _source(model, clique)
    if source is None:
        shares, error = _drawn(model, clique), None
    else:
        shares, error = _measured(model, clique, source)
    every = itertools.product(*(labels(model, place) for place in clique))
    told = tuple(Cell(values, float(share), error) for values, share in zip(every, shares.ravel(), strict=True))
    by = None if source is None else tuple(model.description.domain.names[place] for place in source)
    return Cells(names, told, by)


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


def _source(model: SynthModel, clique: Clique) -> Clique | None:
    """Of the tables that hold these columns, the one whose noise adds up to least."""
    description = model.description
    if len(clique) == 1 and description.one_way:
        return clique
    holding = [m for m in description.cliques if set(clique) <= set(m.clique)]
    return min(holding, key=lambda m: m.variance * m.counts.size).clique if holding else None


def _measured(model: SynthModel, clique: Clique, source: Clique) -> tuple[Floats, float | None]:
    description = model.description
    total = max(description.estimates.total, 1.0)
    if source == clique and len(clique) == 1:
        place = clique[0]
        widest = float(description.collapsed.sizes(place).max())
        variance, table = description.one_way[place].variance * widest, description.estimates.columns[place]
    else:
        held = next(m for m in description.cliques if m.clique == source)
        table = along(description.estimates.tables[source], tuple(source.index(place) for place in clique))
        variance = held.variance * held.counts.size / table.size
    error = NORMAL_95 * math.sqrt(variance) / total
    return table / max(float(table.sum()), 1e-300), min(error, 1.0)


def _drawn(model: SynthModel, clique: Clique) -> Floats:
    rows = generate(model, min(DRAWN, max(round(model.description.estimates.total), 1)))
    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Made)]
    codes = np.stack([encode(attribute, rows.column(attribute.name)) for attribute in coded])
    joined = model.description.collapsed.apply(codes)
    found: Floats = count(joined, model.description.collapsed.domain, clique) / max(rows.num_rows, 1)
    return found
