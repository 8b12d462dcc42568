"""Marginals: counts of a clique's combinations, exact ones that never leave, noisy ones that may, and their price.

All measurements are Gaussian, so they are priced together as one Gaussian (`GaussianBudget`): with squared
sensitivities s_i and variances v_i they are worth sum s_i / v_i, whatever their shapes, and (epsilon, delta) buys a
fixed amount of it (by the analytic curve; by zCDP where that is tighter). Shares of the amount are handed out; nothing
is spent twice, and what is left at the end was not used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import GaussianEvent, rho_within
from deniable.dp.accounting.analytic_gaussian import SMOOTHING, ratio_within
from deniable.dp.accounting.cost import round_up
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, Budget
from deniable.synth.domain import Clique, Coded, Domain

Codes = NDArray[np.int32]
"""A coded table: one row a column, one column a record."""
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Maps = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Marginal:
    """Noisy counts of a clique: public. `variance` is that of the noise on each cell."""

    clique: Clique
    counts: Floats
    variance: float
    event: GaussianEvent
    maps: Maps = ()
    """Where it was measured by groups: for each axis, the group of every code."""


Axis = tuple[Coded, tuple[int, ...]]
"""A column of a table of counts: the attribute, and for each of its codes the one that it counts as."""


@dataclass(frozen=True, slots=True, eq=False)
class CodesElsewhere:
    """A coded table whose rows stay where they are: `count_there` says how many have each combination of some columns.

    It takes several tables at once, since each time all rows are read.
    """

    columns: tuple[Axis, ...]
    count_there: Callable[[Sequence[tuple[Axis, ...]]], list[Counts]]

    def choose(self, places: Sequence[int]) -> CodesElsewhere:
        """Some of the columns."""
        return CodesElsewhere(tuple(self.columns[place] for place in places), self.count_there)

    def replace_codes(self, maps: Sequence[Sequence[int]]) -> CodesElsewhere:
        """The same with the code of each column replaced by what its map says."""
        columns = (replace_codes(axis, mapping) for axis, mapping in zip(self.columns, maps, strict=True))
        return CodesElsewhere(tuple(columns), self.count_there)


Records = Codes | CodesElsewhere
"""Coded rows, here or elsewhere."""


def replace_codes(axis: Axis, mapping: Sequence[int]) -> Axis:
    """A column with each code replaced by what a map says of it."""
    return axis[0], tuple(int(mapping[code]) for code in axis[1])


def index_cells(codes: Codes, domain: Domain, clique: Clique) -> NDArray[np.int64]:
    """Each record's combination of a clique's values as one number."""
    found: NDArray[np.int64] = codes[clique[0]].astype(np.int64)
    for place in clique[1:]:
        found = found * domain.sizes[place] + codes[place]
    return found


def count(codes: Records, domain: Domain, clique: Clique) -> Counts:
    """Exact counts, in the shape of the clique. They are private: only `measure_counts` may let them out."""
    return count_all(codes, domain, [clique])[0]


def count_all(codes: Records, domain: Domain, cliques: Sequence[Clique]) -> list[Counts]:
    """The counts of several cliques; of rows that are elsewhere, all together."""
    if isinstance(codes, CodesElsewhere):
        found = codes.count_there([tuple(codes.columns[place] for place in clique) for clique in cliques])
        return [_widen(counts, domain.shape(clique)) for counts, clique in zip(found, cliques, strict=True)]
    return [_count_here(codes, domain, clique) for clique in cliques]


def _count_here(codes: Codes, domain: Domain, clique: Clique) -> Counts:
    counts: Counts = np.zeros(domain.shape(clique), dtype=np.int64)
    counts.ravel()[:] = np.bincount(index_cells(codes, domain, clique), minlength=domain.cells(clique))
    return counts


def _widen(counts: Counts, shape: tuple[int, ...]) -> Counts:
    """Counts with room for codes that no value has."""
    if counts.shape == shape:
        return counts
    whole: Counts = np.zeros(shape, dtype=np.int64)
    whole[tuple(slice(size) for size in counts.shape)] = counts
    return whole


def measure_counts(
    exact: NDArray[np.int64],
    clique: Clique,
    variance: Fraction,
    rows: int,
    entropy: Entropy = SYSTEM,
    maps: Maps = (),
) -> Marginal:
    """Noisy counts: a unit of at most `rows` records moves them by at most `rows` in L2 norm (all in one cell)."""
    mechanism = GaussianMechanism(variance, Fraction(rows * rows))
    noisy = mechanism.release(exact.ravel(), entropy).astype(np.float64).reshape(exact.shape)
    return Marginal(clique, noisy, float(variance), mechanism.event, maps)


def marginalize(counts: Floats, keep: tuple[int, ...]) -> Floats:
    """Counts summed over all axes but those kept."""
    drop = tuple(axis for axis in range(counts.ndim) if axis not in keep)
    summed: Floats = counts.sum(axis=drop) if drop else counts
    return summed


@dataclass(frozen=True, slots=True)
class GaussianBudget:
    """A total worth of Gaussian measurements, for units of at most `rows` records."""

    amount: Fraction
    rows: int
    smoothed: bool
    """Whether each variance carries the smoothing that the analytic curve asks of discrete noise."""

    @property
    def event(self) -> GaussianEvent:
        """All that may be measured, as one Gaussian: what is charged before any of it is.

        It carries no smoothing: many measurements, each with its own, are worth up to the whole amount in zCDP, and
        one Gaussian with smoothing would be worth less than they are.
        """
        return GaussianEvent(self.rows**2 / self.amount, Fraction(self.rows**2))

    def variance(self, share: float, squared: int | None = None) -> Fraction:
        """The variance that a share of the amount buys for a squared sensitivity (that of one marginal, if not given).

        Shares are cut to whole billionths, downwards, so that shares that add up to one never cost more.
        """
        part = Fraction(int(share * 10**9), 10**9) * self.amount
        if part <= 0:
            raise ParameterError(
                "a share of the budget is too small", remedy="Ask for fewer columns or a larger epsilon"
            )
        wanted = self.rows**2 if squared is None else squared
        return round_up(wanted / part + (SMOOTHING if self.smoothed else 0), 9)


NO_BUDGET = GaussianBudget(Fraction(0), 1, False)
"""For methods that measure nothing."""


TYPICAL_SHARE = 1 / 32
"""The share by which ways to spend a budget are compared: smoothing adds the same to every variance, however small."""


def convert_budget(budget: Budget, rows: int) -> GaussianBudget:
    """The spending that a budget allows, by the accountant that leaves a typical table the least noise."""
    match budget:
        case ZCDP(rho) if rho > 0:
            return GaussianBudget(2 * rho, rows, False)
        case ApproxDP(epsilon, delta) if epsilon > 0 and delta > 0:
            ratio, rho = ratio_within(epsilon, delta), rho_within(epsilon, delta)
            choices = [GaussianBudget(1 / ratio, rows, True)] if ratio is not None else []
            choices += [GaussianBudget(2 * rho, rows, False)] if rho else []
            if choices:
                return min(choices, key=lambda choice: choice.variance(TYPICAL_SHARE))
    raise ParameterError(
        "synthetic data is measured with Gaussian noise, which needs a delta",
        expected="epsilon and delta above 0, or rho",
        remedy="State a delta such as 1e-6",
    )
