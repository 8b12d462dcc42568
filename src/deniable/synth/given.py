"""Drawing records of which some columns are given: the others follow the estimates' tables, conditionally.

So children are drawn for parents, and an event for the one before it. Free columns are drawn along the strongest tables
that tell something of them, then nudged, inside groups of equal given values, until all tables fit.

The records drawn may be another population than the tables tell of (first visits, of all visits). A table is therefore
moved to the margins that they should have: the given columns' own counts, and for a free column what the table that
says most of it predicts from them. Associations stay as they are (iterative proportional fitting keeps odds ratios).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deniable.synth.conditional import children, divided, from_column, unpack
from deniable.synth.domain import Clique, Domain
from deniable.synth.draw import steps, strength, strides_of
from deniable.synth.estimate import Estimates
from deniable.synth.marginal import Codes, Floats, keys
from deniable.synth.simplex import fitted

FAINT = 1e-6
"""How much of a column's own distribution is mixed into each conditional one: for given values never seen together."""


def draw_given(
    estimates: Estimates, domain: Domain, given: Mapping[int, Codes], seed: int | tuple[int, ...], records: int
) -> Codes:
    """Records over the collapsed domain with the given columns as they are."""
    generator = np.random.default_rng(seed)
    codes = np.zeros((len(domain), records), dtype=np.int32)
    for place, column in given.items():
        codes[place] = column
    cliques = [clique for clique in estimates.tables if not set(clique) <= set(given)]
    if records:
        _draw(codes, estimates, domain, set(given), cliques, generator)
        _nudge(codes, estimates, domain, set(given), cliques, generator)
    return codes


def _draw(
    codes: Codes, estimates: Estimates, domain: Domain, given: set[int], cliques: list[Clique],
    generator: np.random.Generator,
) -> None:  # fmt: skip
    """Free columns along the strongest table that joins them to what is drawn; loose ones by themselves."""
    known, strengths = set(given), {clique: strength(estimates, clique) for clique in cliques}
    while free := [place for place in range(len(domain)) if place not in known]:
        joined = [c for c in cliques if known.intersection(c) and not known.issuperset(c)]
        if not joined:
            codes[free[0]] = from_column(estimates.columns[free[0]], codes.shape[1], generator)
            known.add(free[0])
            continue
        best = max(joined, key=lambda clique: (len(known.intersection(clique)) == len(clique) - 1, strengths[clique]))
        old, new = divided(best, known)
        unpack(codes, domain, new, children(keys(codes, domain, old), _table(estimates, best, old, new), generator))
        known.update(new)


def _table(estimates: Estimates, clique: Clique, old: Clique, new: Clique) -> Floats:
    """A clique's table with the cells of its old columns as rows, none of them empty."""
    table = estimates.tables[clique].transpose([clique.index(place) for place in old + new])
    rows = table.reshape(int(np.prod(table.shape[: len(old)], dtype=np.int64)), -1)
    mixed: Floats = rows + FAINT * rows.sum(axis=0) + 1e-12
    return mixed


def _nudge(
    codes: Codes, estimates: Estimates, domain: Domain, given: set[int], cliques: list[Clique],
    generator: np.random.Generator,
) -> None:  # fmt: skip
    from deniable.synth.kernels import moved_within

    parts = [divided(clique, given) for clique in cliques]
    margins = _margins(codes, estimates, domain, given)
    targets = [_target(codes, estimates, domain, margins, c, *each) for c, each in zip(cliques, parts, strict=True)]
    places = [np.array(old + new, dtype=np.int64) for old, new in parts]
    strides = [strides_of(domain.shape(old + new)) for old, new in parts]
    state = generator.integers(0, 2**63, 1, dtype=np.uint64)
    for step in steps(len(cliques) * codes.shape[1]):
        for i in generator.permutation(len(cliques)):
            inner = domain.cells(parts[i][1])
            moved_within(codes, places[i], strides[i], targets[i], inner, step, state)


def _margins(codes: Codes, estimates: Estimates, domain: Domain, given: set[int]) -> dict[int, Floats]:
    """The counts of each free column that its strongest table with a given one predicts; its own shares without one."""
    pairs = sorted((c for c in estimates.tables if len(c) == 2), key=lambda c: strength(estimates, c))
    found = {place: _shares(estimates.columns[place]) * codes.shape[1] for place in range(len(domain))}
    for pair in pairs:
        old, new = divided(pair, given)
        if len(old) == 1:
            found[new[0]] = _predicted(codes, estimates, domain, pair, old, new).sum(axis=0)
    return found


def _shares(counts: Floats) -> Floats:
    held: Floats = counts + 1e-9
    shares: Floats = held / held.sum()
    return shares


def _predicted(codes: Codes, estimates: Estimates, domain: Domain, clique: Clique, old: Clique, new: Clique) -> Floats:
    """The counts of a clique if each group of given values is divided as estimated."""
    table = _table(estimates, clique, old, new)
    held = np.bincount(keys(codes, domain, old), minlength=domain.cells(old)) if old else np.array([codes.shape[1]])
    predicted: Floats = table / table.sum(axis=1, keepdims=True) * held[:, np.newaxis]
    return predicted


def _target(
    codes: Codes, estimates: Estimates, domain: Domain, margins: dict[int, Floats], clique: Clique, old: Clique,
    new: Clique,
) -> Floats:  # fmt: skip
    """The counts a clique should have: as predicted, moved to the margins of its free columns."""
    table = _predicted(codes, estimates, domain, clique, old, new)
    shaped = table.reshape(table.shape[0], *domain.shape(new))
    return fitted(shaped, table.sum(axis=1), *(margins[place] for place in new)).ravel()
