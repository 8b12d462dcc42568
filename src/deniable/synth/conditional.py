"""Drawing values from tables: a column by itself, a column given others, a network family by family."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates
from deniable.synth.marginal import Codes, Floats, keys


def from_column(weights: Floats, records: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """So many values of one column, in no order."""
    counts = apportioned(weights, records, generator)
    return generator.permutation(np.repeat(np.arange(counts.size), counts))


def children(parent: NDArray[np.integer], table: Floats, generator: np.random.Generator) -> NDArray[np.int32]:
    """One value for each record, given its parent's value (a row of the table)."""
    order = np.argsort(parent.astype(np.uint16) if table.shape[0] <= 1 << 16 else parent, kind="stable")  # radix sort
    sizes = np.bincount(parent, minlength=table.shape[0])
    drawn = [from_column(row + 1e-12, int(size), generator) for row, size in zip(table, sizes, strict=True) if size]
    values = np.empty(parent.size, dtype=np.int32)
    values[order] = np.concatenate(drawn) if drawn else []
    return values


def along_cliques(
    estimates: Estimates, domain: Domain, records: int, generator: np.random.Generator, order: Sequence[Clique]
) -> Codes:
    """Records drawn clique by clique: the columns that a clique adds, given those of it that are drawn already."""
    codes = np.zeros((len(domain), records), dtype=np.int32)
    done: set[int] = set()
    for clique in order:
        table = estimates.tables[clique]
        known, fresh = divided(clique, done)
        if fresh:
            flat = table.transpose([clique.index(place) for place in known + fresh])
            rows = flat.reshape(domain.cells(known), domain.cells(fresh))
            given = keys(codes, domain, known) if known else np.zeros(records, dtype=np.int64)
            unpack(codes, domain, fresh, children(given, rows, generator))
            done.update(fresh)
    for place in set(range(len(domain))) - done:
        codes[place] = from_column(estimates.columns[place], records, generator)
    return codes


def divided(clique: Clique, done: set[int]) -> tuple[Clique, Clique]:
    """The columns of a clique that are there, and those that are not."""
    return tuple(p for p in clique if p in done), tuple(p for p in clique if p not in done)


def unpack(codes: Codes, domain: Domain, places: Clique, values: NDArray[np.int32]) -> None:
    """One number a record back into the columns that it stands for."""
    for place in reversed(places):
        codes[place] = values % domain.sizes[place]
        values = values // domain.sizes[place]


def apportioned(weights: Floats, total: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers in proportion to weights, adding up to the total: whole parts, and the rest by lot.

    The lot is systematic: one uniform start, equal steps along the fractions, so each entry gets its fraction on
    average and no two draws fall on one entry.
    """
    wanted = weights / weights.sum() * total
    counts: NDArray[np.int64] = np.floor(wanted).astype(np.int64)
    missing = int(total - counts.sum())
    if missing > 0:
        order = generator.permutation(weights.size)
        along = np.cumsum((wanted - counts)[order])
        marks = generator.random() + np.arange(missing)
        places = np.minimum(np.searchsorted(along, marks * along[-1] / missing, side="right"), weights.size - 1)
        np.add.at(counts, order[places], 1)
    return counts
