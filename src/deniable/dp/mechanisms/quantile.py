"""Quantiles of bounded integers: a choice among every integer between the bounds by its error in rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.events import SelectionEvent, SelfComposedEvent
from deniable.dp.mechanisms.mechanism import Integers, positive, share, taken
from deniable.dp.mechanisms.ranks import Ranks, rank_costs, slack
from deniable.dp.mechanisms.selection import LARGEST_UNIT, bounded_range_epsilon
from deniable.dp.samplers import SYSTEM, Entropy, exponential_choice, permute_and_flip_rows, uniform_below
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, Amount, Budget, exact, split

LARGEST_BOUND = 1 << 60
FINEST = 10**6
"""The largest denominator of a quantile."""
NARROW = 1 << 12
"""Up to so many integers between the bounds every one of them can have its own coin."""
CELLS = 1 << 21
"""How many coins are flipped at a time when there are many groups."""


@dataclass(frozen=True, slots=True)
class QuantileMechanism:
    """Releases one or several quantiles of integers that are clamped to public bounds.

    The cost of an integer is its error in rank (see `ranks`). It is chosen by permute-and-flip where `flips`, which
    needs a coin for every integer, and else by the exponential mechanism, with probability proportional to
    exp(-unit * cost).

    **Guarantee.** epsilon-DP for neighbors that differ by at most `rows_per_unit` values: each value more moves a cost
    by q or 1 - q at most, so `sensitivity` = rows_per_unit * max(q, 1 - q), and unit = epsilon_each / (2 sensitivity).
    Each of m quantiles gets epsilon / m; the losses of the exponential mechanism have a range of that width.
    **Utility.** The rank errs by more than (ln(integers between the bounds / alpha) + 2) / unit with probability below
    alpha.
    Permute-and-flip is never worse than the exponential mechanism at the same epsilon; but the latter composes better
    (epsilon^2 / 8 against epsilon^2 / 2 in zCDP), so it is taken there.
    **Runtime.** One sort, then linear in the values for each quantile, or in the integers between the bounds.

    >>> median = QuantileMechanism((Fraction(1, 2),), lower=0, upper=120, epsilon=1)
    >>> median.accuracy(0.05)
    10
    """

    quantiles: tuple[Fraction, ...]
    lower: int
    upper: int
    epsilon: Fraction
    rows_per_unit: int = 1
    flips: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", tuple(exact(q, "quantile") for q in self.quantiles))
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))
        _check(self)

    @classmethod
    def within(
        cls, budget: Budget, quantiles: Sequence[Amount], lower: int, upper: int, *, rows_per_unit: int = 1
    ) -> QuantileMechanism:
        """The sharpest quantiles that keep a budget together, each with an equal share."""
        count = max(len(quantiles), 1)
        each = bounded_range_epsilon(split(budget, (Fraction(1),) * count)[0])
        flips = not isinstance(budget, ZCDP) and upper - lower < NARROW
        wanted = tuple(exact(q, "quantile") for q in quantiles)
        return cls(wanted, lower, upper, each * count, rows_per_unit, flips)

    @property
    def event(self) -> SelfComposedEvent:
        """One choice for each quantile."""
        each = self.epsilon / len(self.quantiles)
        return SelfComposedEvent(SelectionEvent(each, bounded_range=not self.flips), len(self.quantiles))

    @property
    def sensitivity(self) -> Fraction:
        """The largest change of a rank error by one unit."""
        return max(self._sensitivity(q) for q in self.quantiles)

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """A rank error (in values) that no quantile passes, but with probability alpha, however many there are."""
        candidates = (self.upper - self.lower + 1) * len(self.quantiles)
        unit = min(self._unit(q) for q in self.quantiles)
        # An error in rank is at most the cost, and the best integer may itself cost the slack of `rank_costs`.
        reach = math.log(candidates / share(alpha, size)) / float(unit) * (1 + 1e-9)
        return math.ceil(reach) + slack(unit)

    def release(self, values: Integers, entropy: Entropy = SYSTEM) -> NDArray[np.int64]:
        """One integer for each quantile, in their order, made monotone (which is post-processing)."""
        entries = np.clip(taken(values), self.lower, self.upper).astype(np.int64)
        distinct, counts = np.unique(entries, return_counts=True)
        nobody = np.zeros(distinct.size, dtype=np.int64)
        drawn: NDArray[np.int64] = self.release_groups(distinct, counts.astype(np.int64), nobody, 1, entropy)[0]
        monotone = np.empty_like(drawn)
        monotone[np.argsort(np.array(self.quantiles, dtype=object), kind="stable")] = np.sort(drawn)
        return monotone

    def release_groups(
        self,
        values: NDArray[np.int64],
        counts: NDArray[np.int64],
        group: NDArray[np.int64],
        groups: int,
        entropy: Entropy = SYSTEM,
    ) -> NDArray[np.int64]:
        """The quantiles of every group, a row for each, from distinct values (in any order) and how often each is in
        its group; groups without values are drawn from too, as if they were any others."""
        inside = np.clip(values, self.lower, self.upper)
        order = np.lexsort((inside, group))
        inside, counts, group = inside[order], counts[order], group[order]
        drawn = np.empty((groups, len(self.quantiles)), dtype=np.int64)
        step = max(1, CELLS // (self.upper - self.lower + 1)) if self.flips else 1
        ends = np.searchsorted(group, np.arange(groups + 1))
        for start in range(0, groups, step):
            last = min(start + step, groups)
            part = slice(int(ends[start]), int(ends[last]))
            for i, q in enumerate(self.quantiles):
                if self.flips:
                    rows = (inside[part] - self.lower, counts[part], group[part] - start, last - start)
                    drawn[start:last, i] = self._flipped(q, *rows, entropy)
                else:
                    drawn[start, i] = self._drawn(q, inside[part], counts[part], entropy)
        return drawn

    def _sensitivity(self, quantile: Fraction) -> Fraction:
        return self.rows_per_unit * max(quantile, 1 - quantile)

    def _unit(self, quantile: Fraction) -> Fraction:
        return self.epsilon / len(self.quantiles) / (2 * self._sensitivity(quantile))

    def _costs(self, quantile: Fraction, ranks: Ranks) -> tuple[NDArray[np.int64], Fraction]:
        """Costs in whole parts of a value, 1 / denominator, and what a part is worth in the exponent.

        They are cut off at a fixed public height, which moves no two costs apart.
        """
        unit = self._unit(quantile)
        part = unit / quantile.denominator
        return np.minimum(rank_costs(ranks, quantile, unit), min(1 << 61, int((1 << 61) / part))), part

    def _flipped(
        self,
        quantile: Fraction,
        places: NDArray[np.int64],
        counts: NDArray[np.int64],
        group: NDArray[np.int64],
        groups: int,
        entropy: Entropy,
    ) -> NDArray[np.int64]:
        """Permute-and-flip among all integers, for several groups at once."""
        equal = np.zeros((groups, self.upper - self.lower + 1), dtype=np.int64)
        np.add.at(equal, (group, places), counts)
        costs, part = self._costs(quantile, Ranks.of(equal))
        return self.lower + permute_and_flip_rows(costs, part, entropy=entropy)

    def _drawn(self, quantile: Fraction, values: NDArray[np.int64], counts: NDArray[np.int64], entropy: Entropy) -> int:
        """The exponential mechanism: runs of integers that have the same cost are weighed by their width."""
        starts, widths, equal = _runs(values, counts, self.lower, self.upper)
        costs, part = self._costs(quantile, Ranks.of(equal))
        chosen = int(exponential_choice(costs, part, 1, widths=widths, entropy=entropy)[0])
        return int(starts[chosen]) + int(uniform_below(int(widths[chosen]), 1, entropy=entropy)[0])


def _runs(
    values: NDArray[np.int64], counts: NDArray[np.int64], lower: int, upper: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Gap, value, gap, value, ..., gap: where each starts, how wide it is (maybe 0), how many values are at it."""
    distinct, first = np.unique(values, return_index=True)
    starts = np.empty(2 * distinct.size + 1, dtype=np.int64)
    starts[0], starts[1::2], starts[2::2] = lower, distinct, distinct + 1
    equal = np.zeros(starts.size, dtype=np.int64)
    if distinct.size:
        equal[1::2] = np.add.reduceat(counts, first)
    return starts, np.diff(np.append(starts, upper + 1)), equal


def _check(mechanism: QuantileMechanism) -> None:
    if not mechanism.quantiles or not all(0 <= q <= 1 and q.denominator <= FINEST for q in mechanism.quantiles):
        raise ParameterError(
            "the quantiles are not numbers from 0 to 1", expected="one or more, such as 0.5, with at most six digits"
        )
    if not -LARGEST_BOUND <= mechanism.lower <= mechanism.upper <= LARGEST_BOUND:
        raise ParameterError("the bounds are not lower <= upper within 2**60", expected="public bounds, in steps")
    if mechanism.flips and mechanism.upper - mechanism.lower >= NARROW:
        raise ParameterError(f"there are more than {NARROW} integers to flip a coin for", expected="flips=False")
    if mechanism.rows_per_unit < 1:
        raise ParameterError("rows_per_unit is below 1", expected="a contribution bound of at least 1")
    if mechanism.epsilon > LARGEST_UNIT:
        raise ParameterError("epsilon is above 2**40", expected="a smaller epsilon")
