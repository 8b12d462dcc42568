"""The graphical model of estimated marginals: of all tables that have them, the most even one.

Every estimated clique has a factor, and iterative proportional fitting sets them: one clique after another is made to
have its estimate, with exact marginals from a junction tree in between. Estimates that agree on columns but hang
together in circles may have no common table; then the fit goes on until it gets no nearer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates
from deniable.synth.junction import JunctionTree, answer, junction_tree, marginals
from deniable.synth.marginal import Floats, along

SWEEPS = 25
NEAR = 1e-4
"""The share of the records by which a clique may miss its estimate."""

Tables = Mapping[Clique, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Graphical:
    """A fitted model: a factor for each estimated clique, the tree, and the marginals of the tree's cliques."""

    tree: JunctionTree
    factors: dict[Clique, Floats]
    tables: dict[Clique, Floats]

    def table(self, clique: Clique) -> Floats:
        """The expected counts of any clique, exactly."""
        if any(set(clique) <= set(own) for own in self.tree.cliques):
            return _within(self.tables, self.tree, clique)
        return answer(self.tree, self.tables, clique)


def fit(domain: Domain, estimates: Estimates, begun: Tables | None = None) -> Graphical:
    """The model of estimates, beginning with factors that are known."""
    targets = _targets(estimates)
    tree = junction_tree(domain, list(targets))
    factors = {clique: (begun or {}).get(clique, np.zeros(target.shape)) for clique, target in targets.items()}
    tables, last = marginals(tree, factors, estimates.total), np.inf
    for _ in range(SWEEPS):
        missed = 0.0
        for clique, target in targets.items():
            held = _within(tables, tree, clique)
            miss = float(np.abs(held - target).sum())
            missed = max(missed, miss)
            if miss > NEAR * estimates.total:
                factors[clique] = factors[clique] + np.log(np.maximum(target, 1e-9) / np.maximum(held, 1e-300))
                tables = marginals(tree, factors, estimates.total)
        if missed <= NEAR * estimates.total or missed > 0.99 * last:
            break
        last = missed
    return Graphical(tree, factors, tables)


def _targets(estimates: Estimates) -> dict[Clique, Floats]:
    """The estimated cliques, and the columns that none of them holds."""
    held = {place for clique in estimates.tables for place in clique}
    alone: dict[Clique, Floats] = {(p,): column for p, column in enumerate(estimates.columns) if p not in held}
    return {**estimates.tables, **alone}


def _within(tables: Tables, tree: JunctionTree, clique: Clique) -> Floats:
    home = tree.home(clique)
    return along(tables[home], tuple(home.index(place) for place in clique))
