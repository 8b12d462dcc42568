"""What pairs do not show: cliques of three, scored against what their pairs tell, chosen where they pay.

A clique's expectation is the most even table that has the pairs as they are estimated (independent where a pair was not
measured): the model without an interaction of three. Its distance from the real counts is what only measuring the
clique can tell. It is chosen, as in AIM (McKenna et al. 2022), by expected improvement against the noise that measuring
it brings, also to everything else, which gets less of the budget.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deniable.synth.choose import DENOISED, Chosen
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates
from deniable.synth.marginal import Floats, Marginal
from deniable.synth.simplex import agreeing

ASKED = 10.0
"""How much more the error of a clique counts if somebody asked for it."""
MOST_TRIED = 2000
"""The most cliques that are scored: each one adds to the noise of all scores, and takes time."""
MOST_CELLS = 1 << 20
HOPELESS = 0.2
"""A clique is not tried if noise would move more than this share of the records, were it measured alone."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is public when cliques are weighed: what is left to spend, and how many records there are about."""

    amount: float
    rows: int
    total: float

    def noise(self, cells: float, share: float = 1.0) -> float:
        """The expected L1 error of a table of so many cells that gets a share of the amount."""
        return self.scale * cells / math.sqrt(max(share, 1e-12))

    @property
    def scale(self) -> float:
        """The expected error of one cell that gets all."""
        return DENOISED * math.sqrt(2 / math.pi) * self.rows / math.sqrt(max(self.amount, 1e-300))


def candidates(domain: Domain, outlook: Outlook, workload: Sequence[Clique]) -> list[Clique]:
    """The cliques to score: those asked for, and all of three columns whose noise would leave something to see."""
    asked = [clique for clique in dict.fromkeys(workload) if len(clique) >= 2 and domain.cells(clique) <= MOST_CELLS]
    threes = [
        clique
        for clique in itertools.combinations(range(len(domain)), 3)
        if min(domain.shape(clique)) > 1 and outlook.noise(domain.cells(clique)) <= HOPELESS * outlook.total
    ]
    fewest = sorted(threes, key=lambda clique: (domain.cells(clique), clique))[:MOST_TRIED]
    return list(dict.fromkeys([*asked, *fewest]))


def expectation(estimates: Estimates) -> Callable[[Clique], Floats]:
    """What the pairs tell of a clique: the most even table that agrees with them."""

    def expected(clique: Clique) -> Floats:
        table: Floats = estimates.columns[clique[0]]
        for place in clique[1:]:
            table = np.multiply.outer(table, estimates.columns[place]) / max(estimates.total, 1.0)
        held: dict[Clique, Floats] = {
            (a, b): estimates.tables[clique[a], clique[b]]
            for a, b in itertools.combinations(range(len(clique)), 2)
            if (clique[a], clique[b]) in estimates.tables
        }
        return agreeing(table, held, rounds=20) if held else table

    return expected


def trusted(
    cliques: Sequence[Clique], scores: Floats, deviation: float, pairs: Sequence[Marginal], workload: Sequence[Clique]
) -> Floats:
    """Scores less what noise explains: its own deviation, and the errors of the pairs in the expectation.

    What was asked for keeps its score: it is worth measuring for its own sake.
    """
    errors = {m.clique: DENOISED * math.sqrt(2 * m.variance / math.pi) * m.counts.size for m in pairs}
    asked = set(workload)
    found = []
    for clique, score in zip(cliques, scores, strict=True):
        within = [errors.get(pair, 0.0) for pair in itertools.combinations(clique, 2)]
        found.append(score if clique in asked else score - deviation - math.hypot(*within))
    return np.maximum(np.array(found, dtype=np.float64), 0.0)


def chosen_interactions(
    domain: Domain,
    cliques: Sequence[Clique],
    gains: Floats,
    sized: float,
    outlook: Outlook,
    workload: Sequence[Clique],
) -> Chosen:
    """The cliques that lower the expected error, and their parts beside `sized` for all that was chosen before.

    With parts z = (w c)^(2/3) of a sum Z, noise adds up to scale Z^(3/2) (see `choose.worthwhile`), so a clique costs
    what Z^(3/2) grows by. Cliques are taken by gain a part; one that holds a chosen one gains only what is beyond it.
    """
    asked = set(workload)
    weights = np.array([ASKED if clique in asked else 1.0 for clique in cliques])
    cells = np.array([float(domain.cells(clique)) for clique in cliques])
    parts, worth = (weights * cells) ** (2 / 3), weights * gains
    whole, taken = sized, list[int]()
    for i in np.argsort(-worth / np.maximum(parts, 1e-300), kind="stable"):
        beyond = worth[i] - max((worth[j] for j in taken if set(cliques[j]) < set(cliques[i])), default=0.0)
        if beyond > outlook.scale * ((whole + parts[i]) ** 1.5 - whole**1.5):
            taken.append(int(i))
            whole += parts[i]
    return Chosen(tuple(cliques[i] for i in taken), tuple(float(parts[i]) for i in taken), _reason(taken, len(cliques)))


def _reason(taken: list[int], tried: int) -> str:
    if not taken:
        return f"none of {tried} larger cliques shows more than pairs do beyond its noise"
    return f"{len(taken)} of {tried} larger cliques show more than pairs do, and are measured together"
