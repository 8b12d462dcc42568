"""Draw: records over the collapsed domain from estimates, in as nearly the estimated shares as whole records can have.

Along a tree of cliques each clique's counts are whole numbers in proportion to its table: whole parts first, the rest
by lot. Where cliques form circles, records drawn so are changed value by value until every clique has its counts. A
small table is made of such records, chosen and changed until it has whole counts of all columns and cliques that were
themselves rounded by lot. Fewer records than the table has are half of twice as many, and so on: halves that are as
alike as whole records allow, one of them taken by lot. So each cell has its share of the larger draw on average, and
columns miss it by little more than rounding. Rounding circles to few records instead would invent pairs of values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates, dependence_of
from deniable.synth.estimate.graphical_model import (
    Leaf,
    find_unmet_cliques,
    order_by_strength,
    order_cliques,
    split_leaves,
)
from deniable.synth.estimate.residuals import fit_margins
from deniable.synth.marginal import Codes, Floats, index_cells

TRIES_A_RECORD, FEWEST_TRIES = 60, 6
MOST_VISITS = 1_000_000_000
"""How many cells are looked at, all tries together, before there are fewer tries: some 10 seconds."""
FEWEST_FITTED = 1000
"""Records that are fitted to parts of records at least: fewer would all be moved to the most frequent cells. A
table that has fewer is taken from these and fitted to whole numbers."""
MOST_HALVED = 4000
"""Fewer records of a table that has more are part of at least so many: the more, the nearer tables in circles come."""
NEARLY = 0.9
"""The part of a table's records that counts as all of them: how many there are is known with noise."""
TRIES_A_HALVED_RECORD = 60
MOST_STARTS = 8
"""Of fitting a few records to whole numbers, where one start leaves some unmet."""
MARGIN_ROUNDS = 10
"""Of bringing a table to whole counts of its columns before it is rounded itself."""
ONE_COLUMN = 0.5
"""The share of tries that change one column; the others change the columns of one clique."""


def draw_records(estimates: Estimates, domain: Domain, records: int, seed: int | tuple[int, ...]) -> Codes:
    """So many records over the collapsed domain.

    Columns in tables that form circles are drawn first and then changed until the tables fit; what hangs on them is
    drawn last, exactly. Few records of a larger table are part of more; those of a small table are changed until they
    have whole counts.
    """
    generator = np.random.default_rng(seed)
    order = order_cliques(estimates.tables, {clique: dependence_of(estimates, clique) for clique in estimates.tables})
    along = None if find_unmet_cliques(estimates.tables, order) else order
    drawn = count_drawn(estimates, records, MOST_HALVED if along is None else FEWEST_FITTED)
    few = bool(estimates.tables) and 0 < drawn < FEWEST_FITTED
    held = _draw_many(estimates, domain, FEWEST_FITTED if few else drawn, generator, along)
    if few:
        held = _choose_few(held, estimates, domain, drawn, generator)
    free = _list_columns(estimates.tables)
    while held.shape[1] > records:
        held = halve_records(held, domain, [*((place,) for place in free), *estimates.tables], generator)
    if few or drawn > records:
        for place in set(range(len(domain))) - set(free):
            held[place] = draw_column(estimates.columns[place], records, generator)
    return held


def count_drawn(estimates: Estimates, records: int, most: int = FEWEST_FITTED) -> int:
    """How many records are drawn for so many: doubled until they are nearly as many as the table has, or enough.

    >>> small = Estimates(150, (), {(0,): np.ones(1)})
    >>> count_drawn(small, 20), count_drawn(small, 148)
    (160, 148)
    """
    drawn = records
    while 0 < drawn < min(NEARLY * estimates.total, most) and estimates.tables:
        drawn *= 2
    return drawn


def halve_records(codes: Codes, domain: Domain, cliques: Sequence[Clique], generator: np.random.Generator) -> Codes:
    """Half of an even number of records, as like the other half as swaps of records make them.

    Which half it is, is a lot: so each record stays with one chance in two, whatever is swapped.
    """
    from deniable.synth.kernels import swap_halves

    records = codes.shape[1]
    found = [np.unique(index_cells(codes, domain, clique), return_inverse=True)[1] for clique in cliques]
    offset = np.cumsum([0, *(cells.max() + 1 for cells in found)])
    cells = np.stack([own.ravel() + start for own, start in zip(found, offset, strict=False)], axis=1)
    sign = np.repeat(np.array([1, -1], dtype=np.int64), records // 2)[generator.permutation(records)]
    excess = np.zeros(offset[-1], dtype=np.int64)
    np.add.at(excess, cells, sign[:, np.newaxis])
    state = generator.integers(0, 2**63, 1, dtype=np.uint64)
    swap_halves(cells, sign, excess, TRIES_A_HALVED_RECORD * records, state)
    return np.ascontiguousarray(codes[:, sign > 0])


def _draw_many(
    estimates: Estimates, domain: Domain, records: int, generator: np.random.Generator, order: Sequence[Clique] | None
) -> Codes:
    """Records along cliques in an order that meets all of them; where there is none, changed until they fit."""
    if order is not None or not records:
        return draw_along_cliques(estimates, domain, records, generator, order or ())
    core, leaves = split_leaves(estimates.tables)
    inner = replace(estimates, tables=core)
    codes = draw_along_cliques(inner, domain, records, generator, order_by_strength(inner))
    targets = {clique: table * (records / table.sum()) for clique, table in core.items()}
    fit_records(codes, targets, domain, _list_columns(core), generator)
    draw_leaves(codes, domain, leaves, generator)
    return codes


def _list_columns(cliques: Iterable[Clique]) -> list[int]:
    return sorted({place for clique in cliques for place in clique})


def _choose_few(
    held: Codes, estimates: Estimates, domain: Domain, records: int, generator: np.random.Generator
) -> Codes:
    """A few records, changed by values of those held until they have whole counts: the best of some starts.

    The first start is drawn along the cliques, which is near already; the others are some of those held.
    """
    free = _list_columns(estimates.tables)
    targets, least, best = _round_targets(estimates, free, records, generator), math.inf, held[:, :records]
    for start in range(MOST_STARTS):
        some = held[:, generator.permutation(held.shape[1])[:records]]
        along = order_by_strength(estimates)
        codes = some if start else draw_along_cliques(estimates, domain, records, generator, along)
        missed = fit_records(codes, targets, domain, free, generator, held)
        if missed < least:
            least, best = missed, codes
        if not least:
            break
    return best


def _round_targets(
    estimates: Estimates, free: Sequence[int], records: int, generator: np.random.Generator
) -> dict[Clique, Floats]:
    """Whole counts for a few records: of each column first, then of each clique, brought to its columns before."""
    found: dict[Clique, Floats] = {
        (place,): apportion_counts(estimates.columns[place] + 1e-12, records, generator).astype(np.float64)
        for place in free
    }
    for clique, table in estimates.tables.items():
        margins: dict[Clique, Floats] = {(axis,): found[place,] for axis, place in enumerate(clique)}
        moved = fit_margins(table * (records / table.sum()), margins, MARGIN_ROUNDS)
        rounded = apportion_counts(moved.ravel(), records, generator, mixed=False)
        found[clique] = rounded.reshape(table.shape).astype(np.float64)
    return found


def draw_leaves(codes: Codes, domain: Domain, leaves: Sequence[Leaf], generator: np.random.Generator) -> None:
    """Columns that hang on others, given these, the innermost first."""
    for clique, table, place in reversed(leaves):
        known = tuple(each for each in clique if each != place)
        rows = table.transpose([clique.index(each) for each in (*known, place)]).reshape(domain.cells(known), -1)
        codes[place] = draw_children(index_cells(codes, domain, known), rows, generator)


def fit_records(
    codes: Codes, targets: Mapping[Clique, Floats], domain: Domain, free: Sequence[int],
    generator: np.random.Generator, donors: Codes | None = None,
) -> float:  # fmt: skip
    """Change values in free columns, record by record, until the cliques have their target counts as nearly as can be.

    Each change takes values of another record (of the donors, if there are some), and is kept where the squared
    differences of all cliques together fall; what they are at the end is returned.
    Moving records clique by clique (the gradual update of PrivSyn, Zhang et al. 2021) has no such test: there, cliques
    that share columns undo one another, and columns that nearly determine one another come apart.
    """
    from deniable.synth.kernels import exchange_values

    cliques = list(targets)
    width = np.array([len(clique) for clique in cliques], dtype=np.int64)
    places, strides = np.zeros((2, len(cliques), int(width.max())), dtype=np.int64)
    excess = []
    for k, clique in enumerate(cliques):
        places[k, : width[k]], strides[k, : width[k]] = clique, strides_of(domain.shape(clique))
        counts = np.bincount(index_cells(codes, domain, clique), minlength=domain.cells(clique))
        excess.append(counts - targets[clique].ravel())
    offset = np.cumsum([0, *(part.size for part in excess[:-1])])
    holding = [[k for k, clique in enumerate(cliques) if place in clique] for place in range(len(domain))]
    first = np.cumsum([0, *(len(own) for own in holding)])
    held = np.array([k for own in holding for k in own], dtype=np.int64)
    records = np.ascontiguousarray(codes.T)
    others = records if donors is None else np.ascontiguousarray(donors.T)
    # A try of one column visits the cliques that hold it; one of a clique about twice as many.
    visits = (2 - ONE_COLUMN) * held.size / len(domain) * others.shape[0]
    each = min(TRIES_A_RECORD, max(FEWEST_TRIES, MOST_VISITS / visits))
    state = generator.integers(0, 2**63, 1, dtype=np.uint64)
    missed = np.concatenate(excess)
    exchange_values(
        records, others, np.array(free, dtype=np.int64), places, strides, width, offset, missed, first, held,
        int(each * others.shape[0]), ONE_COLUMN, state,
    )  # fmt: skip
    codes[:] = records.T
    return float((missed**2).sum())


def strides_of(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """How far apart cells are that differ by one in each column."""
    return np.array([math.prod(shape[axis + 1 :]) for axis in range(len(shape))], dtype=np.int64)


def draw_column(weights: Floats, records: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """So many values of one column, in no order."""
    counts = apportion_counts(weights, records, generator)
    return generator.permutation(np.repeat(np.arange(counts.size), counts))


def draw_children(parent: NDArray[np.integer], table: Floats, generator: np.random.Generator) -> NDArray[np.int32]:
    """One value for each record, given its parent's value (a row of the table)."""
    order = np.argsort(parent.astype(np.uint16) if table.shape[0] <= 1 << 16 else parent, kind="stable")  # radix sort
    sizes = np.bincount(parent, minlength=table.shape[0])
    drawn = [draw_column(row + 1e-12, int(size), generator) for row, size in zip(table, sizes, strict=True) if size]
    values = np.empty(parent.size, dtype=np.int32)
    values[order] = np.concatenate(drawn) if drawn else []
    return values


def draw_along_cliques(
    estimates: Estimates, domain: Domain, records: int, generator: np.random.Generator, order: Sequence[Clique]
) -> Codes:
    """Records drawn clique by clique: the columns that a clique adds, given those of it that are drawn already."""
    codes = np.zeros((len(domain), records), dtype=np.int32)
    done: set[int] = set()
    for clique in order:
        table = estimates.tables[clique]
        known, fresh = split_clique(clique, done)
        if fresh:
            flat = table.transpose([clique.index(place) for place in known + fresh])
            rows = flat.reshape(domain.cells(known), domain.cells(fresh))
            given = index_cells(codes, domain, known) if known else np.zeros(records, dtype=np.int64)
            unpack_codes(codes, domain, fresh, draw_children(given, rows, generator))
            done.update(fresh)
    for place in set(range(len(domain))) - done:
        codes[place] = draw_column(estimates.columns[place], records, generator)
    return codes


def split_clique(clique: Clique, done: set[int]) -> tuple[Clique, Clique]:
    """The columns of a clique that are there, and those that are not."""
    return tuple(p for p in clique if p in done), tuple(p for p in clique if p not in done)


def unpack_codes(codes: Codes, domain: Domain, places: Clique, values: NDArray[np.int32]) -> None:
    """One number a record back into the columns that it stands for."""
    for place in reversed(places):
        codes[place] = values % domain.sizes[place]
        values = values // domain.sizes[place]


def apportion_counts(
    weights: Floats, total: int, generator: np.random.Generator, *, mixed: bool = True
) -> NDArray[np.int64]:
    """Whole numbers in proportion to weights, adding up to the total: whole parts, and the rest by lot.

    The lot is systematic: one uniform start, equal steps along the fractions, so each entry gets its fraction on
    average and no two draws fall on one entry. The entries are in the order of another lot; if they are not `mixed`,
    every stretch of them has its sum within one as well, such as a row of a table.
    """
    wanted = weights / weights.sum() * total
    counts: NDArray[np.int64] = np.floor(wanted).astype(np.int64)
    missing = int(total - counts.sum())
    if missing > 0:
        order = generator.permutation(weights.size) if mixed else np.arange(weights.size)
        along = np.cumsum((wanted - counts)[order])
        marks = generator.random() + np.arange(missing)
        places = np.minimum(np.searchsorted(along, marks * along[-1] / missing, side="right"), weights.size - 1)
        np.add.at(counts, order[places], 1)
    return counts
