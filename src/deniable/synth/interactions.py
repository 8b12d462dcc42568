"""What pairs do not show: cliques of three, scored against what their pairs tell, chosen where they pay.

A clique's expectation is the most even table that has the pairs as they are estimated (independent where a pair was not
measured): the model without an interaction of three. Its distance from the real counts is what only measuring the
clique can tell. It is chosen, as in AIM (McKenna et al. 2022), by expected improvement against the noise that measuring
it brings, also to everything else, which gets less of the budget.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deniable.synth.choose import DENOISED
from deniable.synth.coarse import Look, look, summed
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates, even, margins_within
from deniable.synth.marginal import Floats, Marginal
from deniable.synth.simplex import agreeing

MOST_TRIED = 2000
"""The most cliques that are scored: each one adds to the noise of all scores, and takes time."""
USUAL, ASKED = 0.1, 1 / 3
"""Shares of the amount: what a clique that is found may count on, and what all that is asked for gets together."""
STIRRED, STIRRED_IF_ASKED, HOPELESS = 0.02, 0.05, 0.2
"""Values are grouped until noise stirs a fiftieth of the records at most, a twentieth where a clique was asked for;
above a fifth it is left alone. Scores of finer groups hold more noise, and measuring them costs more than most bring:
planted findings are seen more often with a fiftieth than with a twentieth, and tables at large are no worse for it."""
DEVIATIONS = 2.5
"""How far a score must stand out of its noise: many are tried."""
PAYS = 2.0
"""How much more a clique must bring than it costs: the noise of a pair is also in every three columns that hold it."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is public when cliques are weighed: what is left to spend, and how many records there are about."""

    amount: float
    rows: int
    total: float

    def noise(self, cells: float, share: float = 1.0) -> float:
        """The expected L1 error of a table of so many cells that gets a share of the amount."""
        return self.scale * cells / math.sqrt(max(share, 1e-12))

    def most_cells(self, share: float, stirred: float) -> float:
        """The cells in which noise would stir no more than a part of the records, with a share of the amount."""
        return stirred * self.total / self.noise(1.0, share)

    @property
    def scale(self) -> float:
        """The expected error of one cell that gets all."""
        return DENOISED * math.sqrt(2 / math.pi) * self.rows / math.sqrt(max(self.amount, 1e-300))


def asked_looks(
    domain: Domain, columns: Sequence[Floats], outlook: Outlook, workload: Sequence[Clique], done: Sequence[Clique]
) -> list[Look]:
    """What was asked for, each in as many cells as its share keeps out of the noise; none where that is hopeless.

    A pair that is measured anyway is measured in full once more, so that both measurements can be joined.
    """
    asked = [clique for clique in dict.fromkeys(workload) if domain.cells(clique) > 1]
    share = ASKED / max(len(asked), 1)
    most = outlook.most_cells(share, STIRRED_IF_ASKED)
    found = [look(domain, columns, clique, math.inf if clique in done else most) for clique in asked]
    return [one for one in found if one.clique in done or outlook.noise(one.cells, share) <= HOPELESS * outlook.total]


def candidates(domain: Domain, columns: Sequence[Floats], outlook: Outlook, done: Sequence[Clique]) -> list[Look]:
    """What to score, each in as many cells as the noise allows: all of three columns, and pairs not measured yet."""
    cliques = [clique for clique in (*domain.useful(2), *domain.useful(3)) if min(domain.shape(clique)) > 1]
    some = [clique for clique in cliques if clique not in done]
    fewest = sorted(some, key=lambda clique: (domain.cells(clique), clique))[:MOST_TRIED]
    tried = [look(domain, columns, clique, outlook.most_cells(USUAL, STIRRED)) for clique in fewest]
    return [one for one in tried if outlook.noise(one.cells, USUAL) <= HOPELESS * outlook.total]


def expected(one: Look, estimates: Estimates) -> Floats:
    """What the pairs tell of a clique by groups: the most even table that agrees with them."""
    margins = margins_within(one.clique, estimates.columns, estimates.tables)
    by_group = {axes: summed(margin, tuple(one.maps[axis] for axis in axes)) for axes, margin in margins.items()}
    columns = [summed(estimates.columns[place], (groups,)) for place, groups in zip(one.clique, one.maps, strict=True)]
    return agreeing(even(columns, estimates.total), by_group, rounds=20)


def trusted(looks: Sequence[Look], scores: Floats, deviation: float, pairs: Sequence[Marginal]) -> Floats:
    """Scores less what noise explains: its own deviations, and the errors of the pairs in the expectation."""
    variances = {marginal.clique: marginal.variance for marginal in pairs if not marginal.maps}
    found = []
    for one, score in zip(looks, scores, strict=True):
        within = [_error(one, axes, variances) for axes in itertools.combinations(range(len(one.clique)), 2)]
        found.append(score - DEVIATIONS * deviation - math.hypot(*within))
    return np.maximum(np.array(found, dtype=np.float64), 0.0)


def _error(one: Look, axes: tuple[int, ...], variances: Mapping[Clique, float]) -> float:
    """The expected L1 error of a pair by groups: in each group the variances of its cells add up."""
    variance = variances.get(tuple(one.clique[axis] for axis in axes), 0.0)
    roots = [np.sqrt(np.bincount(np.array(one.maps[axis]))).sum() for axis in axes]
    return DENOISED * math.sqrt(2 * variance / math.pi) * math.prod(float(root) for root in roots)


def worthwhile_looks(
    looks: Sequence[Look], gains: Floats, sized: float, outlook: Outlook
) -> tuple[list[Look], list[float]]:
    """The looks that lower the expected error, and their parts beside `sized` for all that was chosen before.

    With parts z = c^(2/3) of a sum Z, noise adds up to scale Z^(3/2) (see `choose.worthwhile`), so a look costs what
    Z^(3/2) grows by. Looks are taken by gain a part; one that holds a chosen one gains only what is beyond it,
    and one within a chosen one nothing.
    """
    parts = np.array([float(one.cells) for one in looks]) ** (2 / 3)
    whole, taken = sized, list[int]()
    for i in np.argsort(-gains / np.maximum(parts, 1.0), kind="stable"):
        own = set(looks[i].clique)
        if any(own < set(looks[j].clique) for j in taken):
            continue
        beyond = gains[i] - max((gains[j] for j in taken if set(looks[j].clique) < own), default=0.0)
        if beyond > PAYS * outlook.scale * ((whole + parts[i]) ** 1.5 - whole**1.5):
            taken.append(int(i))
            whole += parts[i]
    return [looks[i] for i in taken], [float(parts[i]) for i in taken]


def asked_parts(asked: Sequence[Look], sized: float) -> list[float]:
    """Parts of what was asked for: together the share `ASKED` of all, among themselves as noise is least."""
    parts = [one.cells ** (2 / 3) for one in asked]
    scale = sized * ASKED / (1 - ASKED) / sum(parts) if parts and sized > 0 else 1.0
    return [part * scale for part in parts]
