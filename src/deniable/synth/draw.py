"""Drawing records from estimates: clique by clique first, then nudged until every clique fits.

Where the cliques form a tree (of pairs, or a junction tree), drawing them one after another is exact and ends there.

This is post-processing of public numbers, so it may be seeded. Counts are rounded with little variance (whole parts
first, the rest by lot), and records within a group are shuffled, so that no order of the making shows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from deniable.synth.conditional import along_cliques
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates
from deniable.synth.marginal import Codes, Floats
from deniable.synth.order import drawing_order, not_drawn

ROUNDS, FEWEST = 60, 12
MOST_VISITS = 2_000_000_000
"""How often records are looked at, all rounds and cliques together, before there are fewer rounds: some 12 seconds."""
STEP, LAST_STEP = 0.5, 0.025
MOST_COPIED = 0.35


def copied(noise: float) -> float:
    """The share of moved records that copy a whole record of their new cell instead of changing two values.

    Copying keeps what other columns have to do with the pair, and repeats the noise that is in it; found by trial on
    pairs with noise between 1% and 5%.
    """
    return float(min(MOST_COPIED, 0.1 * (0.03 / max(noise, 1e-6)) ** 1.6))


def draw(estimates: Estimates, domain: Domain, records: int, seed: int | tuple[int, ...]) -> Codes:
    """So many records over the collapsed domain."""
    generator = np.random.default_rng(seed)
    order = drawing_order(estimates.tables, {clique: strength(estimates, clique) for clique in estimates.tables})
    codes = along_cliques(estimates, domain, records, generator, order)
    unmet = not_drawn(estimates.tables, order)
    if records and unmet:
        _nudge(codes, estimates, domain, generator)
    return codes


def strength(estimates: Estimates, clique: Clique) -> float:
    """How far a clique's estimate is from independent columns, in records."""
    expected: Floats = estimates.columns[clique[0]]
    for place in clique[1:]:
        expected = np.multiply.outer(expected, estimates.columns[place]) / estimates.total
    return float(np.abs(estimates.tables[clique] - expected).sum()) + 1e-9


def _nudge(codes: Codes, estimates: Estimates, domain: Domain, generator: np.random.Generator) -> None:
    """Gradual update (Zhang et al. 2021, PrivSyn): move records from cells with too many to cells with too few."""
    from deniable.synth.kernels import moved

    records = codes.shape[1]
    targets = {clique: table.ravel() * (records / table.sum()) for clique, table in estimates.tables.items()}
    cliques = list(targets)
    places = [np.array(clique, dtype=np.int64) for clique in cliques]
    strides = [strides_of(domain.shape(clique)) for clique in cliques]
    share = copied(estimates.noise)
    state = generator.integers(0, 2**63, 1, dtype=np.uint64)
    for step in steps(len(cliques) * records):
        for i in generator.permutation(len(cliques)):
            moved(codes, places[i], strides[i], targets[cliques[i]], step, share, state)


def steps(visits: int) -> Floats:
    """The steps of all rounds, falling by equal factors: fewer of them where a round takes many visits to records."""
    found: Floats = np.geomspace(STEP, LAST_STEP, min(ROUNDS, max(FEWEST, MOST_VISITS // max(visits, 1))))
    return found


def strides_of(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """How far apart cells are that differ by one in each column."""
    return np.array([math.prod(shape[axis + 1 :]) for axis in range(len(shape))], dtype=np.int64)
