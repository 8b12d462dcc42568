"""Quantiles of bounded integers: a choice among every integer between the bounds by its error in rank.

**Several quantiles** are chosen in an order: the middle one first, then each side of it among its own rows.

After Kaplan, Schnapp and Stemmer (2022). A choice divides the rows at its value: those below go on to the quantiles
below, those above to the quantiles above. Each row is in one part of every level, so m quantiles cost bit_length(m)
choices instead of m, and the answers cannot cross. In a part that stands for the rows between the quantiles `lower` and
`upper` the quantile q is looked for at share (q - lower) / (upper - lower) of the part's rows.

A choice costs the more the farther its share is from 1/2. So where a level has room for it, a part may first be divided
in its middle though nobody asked for that quantile: 0.25 and 0.75 are found as the halves of two halves. And where
quantiles are few and far out (0.9 and 0.99) nothing is gained by an order: then each is chosen among all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.calibration import epsilon_of
from deniable.dp.accounting.events import ComposedEvent, SelectionEvent, SelfComposedEvent
from deniable.dp.mechanisms.mechanism import Integers, require_drawable, require_positive, split_alpha, take_integers
from deniable.dp.mechanisms.rank_error import GroupCounts, Ranks, compute_rank_costs, count_ties_below
from deniable.dp.mechanisms.selection import BOUNDED_RANGE, LARGEST_UNIT, epsilon_of_bounded_range
from deniable.dp.samplers import (
    SYSTEM,
    Entropy,
    discrete_laplace,
    exponential_choice_groups,
    permute_and_flip_rows,
    uniform_below_each,
)
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, Amount, Budget, exact

FINEST = 10**6
"""The largest denominator of a quantile, and of a share (which is rounded to it: a millionth of a row in a million)."""

DIVIDING = Fraction(1, 5)
"""What dividing the ties costs, as a part of a choice: ties need little where there are few of them, and where there
are many an error of a few ranks among them."""


@dataclass(frozen=True, slots=True)
class Node:
    """One choice: the quantile, its share of the rows of its part, and what is chosen on either side afterwards."""

    quantile: Fraction
    share: Fraction
    below: Node | None = None
    above: Node | None = None

    @property
    def divides(self) -> bool:
        """Whether its rows are divided for further choices."""
        return self.below is not None or self.above is not None

    @property
    def nodes(self) -> Iterator[Node]:
        """This choice and all after it."""
        yield self
        for child in (self.below, self.above):
            if child is not None:
                yield from child.nodes


@dataclass(frozen=True, slots=True)
class Order:
    """All choices: each root is chosen among all rows. A row takes part in so many `choices` and `divisions`."""

    roots: tuple[Node, ...]
    choices: int
    divisions: int

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every choice."""
        return tuple(node for root in self.roots for node in root.nodes)

    @property
    def joint(self) -> bool:
        """Whether quantiles are chosen one inside the other."""
        return self.divisions > 0


@lru_cache(maxsize=256)
def plan_order(quantiles: tuple[Fraction, ...]) -> Order:
    """The order with the least error for these quantiles.

    >>> quartiles = plan_order((Fraction(1, 4), Fraction(3, 4)))
    >>> quartiles.choices, quartiles.roots[0].quantile, quartiles.roots[0].below.share
    (2, Fraction(1, 2), Fraction(1, 2))
    >>> plan_order((Fraction(9, 10), Fraction(99, 100))).joint
    False
    """
    listed = sorted(set(quantiles))
    apart = Order(tuple(Node(q, q) for q in listed), len(listed), 0)
    if len(listed) < 2:
        return apart
    depth = len(listed).bit_length()
    root = _grow_tree(listed, Fraction(0), Fraction(1), depth)
    assert root is not None
    nested = Order((root,), depth, depth - 1)
    return min(apart, nested, key=lambda order: _average_error(order, listed))


def _average_error(order: Order, quantiles: list[Fraction]) -> float:
    """The mean error in rank that is to be expected, as a multiple of what all of epsilon would give for a median."""
    each = order.choices + float(DIVIDING) * order.divisions
    found = {q: e for root in order.roots for q, e in _propagate_errors(root, 0.0, 0.0)}
    return each * sum(found[q] for q in quantiles) / len(quantiles)


def _propagate_errors(node: Node, low: float, high: float) -> Iterator[tuple[Fraction, float]]:
    """A choice errs by 2 max(share, 1 - share) of its own, and by the weighted errors of the ends of its part."""
    share = float(node.share)
    mine = math.hypot(2 * max(share, 1 - share), (1 - share) * low, share * high)
    yield node.quantile, mine
    if node.below is not None:
        yield from _propagate_errors(node.below, low, mine)
    if node.above is not None:
        yield from _propagate_errors(node.above, mine, high)


def _grow_tree(quantiles: list[Fraction], lower: Fraction, upper: Fraction, depth: int) -> Node | None:
    if not quantiles:
        return None
    chosen = _choose_first(quantiles, (lower + upper) / 2, depth)
    below, above = ([q for q in quantiles if q < chosen], [q for q in quantiles if q > chosen])
    share = ((chosen - lower) / (upper - lower)).limit_denominator(FINEST)
    return Node(chosen, share, _grow_tree(below, lower, chosen, depth - 1), _grow_tree(above, chosen, upper, depth - 1))


def _choose_first(quantiles: list[Fraction], middle: Fraction, depth: int) -> Fraction:
    """The quantile nearest to the middle that leaves no more on either side than the levels below can take."""
    room = (1 << depth - 1) - 1
    below = sum(q < middle for q in quantiles)
    helped = middle not in quantiles and below <= room and len(quantiles) - below <= room
    fitting = [q for i, q in enumerate(quantiles) if i <= room and len(quantiles) - 1 - i <= room]
    return middle if helped else min(fitting, key=lambda q: (abs(q - middle), q))


LARGEST_BOUND = 1 << 60
NARROW = 1 << 12
"""Up to so many integers between the bounds every one of them can have its own coin."""
CELLS = 1 << 21
"""How many coins are flipped at a time when there are many groups."""
MOST = BOUNDED_RANGE * DIVIDING
"""The largest epsilon of a division: it then errs by what one unit adds or so, and more would be wasted."""

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class QuantileMechanism:
    """Releases one or several quantiles of integers that are clamped to public bounds.

    The cost of an integer is its error in rank (`rank_error`). It is chosen by permute-and-flip where `flips`, which
    needs a coin for every integer, and else by the exponential mechanism, with probability proportional to
    exp(-unit * cost). Several quantiles are chosen one inside the other (see above); the rows equal to the
    chosen integer are divided so that their parts have the shares they stand for, by a noisy count.

    **Guarantee.** For neighbors that differ by at most r = `rows_per_unit` values: each value more moves a cost by q or
    1 - q at most, q the share in its part, so unit = epsilon / (2 r max(q, 1 - q)) makes a choice epsilon-DP; the
    losses of the exponential mechanism have a range of that width. Each value is in one part of every level and moves
    the count of one division there by max(q, 1 - q), noise on which has scale r max(q, 1 - q) / `dividing`. If k of
    the r values are in a part they lose k / r of its epsilon, so all parts of a level lose one epsilon together (and
    their squares no more), and L levels are L choices and L - 1 divisions: L epsilon + (L - 1) dividing.
    Neighbors that have up to r values `exchanged` for others keep n, so an exchange moves a cost by 1 at most (a value
    crosses from one side to the other), and unit = epsilon / (2 r). Taken for one unit less and another more it would
    be two choices with max(q, 1 - q), which is no better; but where rows are divided it may be in two parts.
    **Utility.** One quantile: the rank errs by more than ln(integers between the bounds / alpha) / unit with
    probability below alpha. Several: a part's own error, and on average of the errors of its two ends.
    Permute-and-flip is never worse than the exponential mechanism at the same epsilon; but the latter composes better
    (epsilon^2 / 8 against epsilon^2 / 2 in zCDP), so it is taken there.
    **Runtime.** One sort, then linear in the values for each quantile, or in the integers between the bounds.

    >>> median = QuantileMechanism((Fraction(1, 2),), lower=0, upper=120, epsilon=1)
    >>> median.accuracy(0.05)
    8
    """

    quantiles: tuple[Fraction, ...]
    lower: int
    upper: int
    epsilon: Fraction
    """Of each choice."""
    rows_per_unit: int = 1
    flips: bool = False
    exchanged: bool = False
    """Whether neighbors have the values of one unit exchanged for others, all in this group."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", tuple(exact(q, "quantile") for q in self.quantiles))
        object.__setattr__(self, "epsilon", require_positive(self.epsilon, "epsilon"))
        _check(self)

    @classmethod
    def within(
        cls,
        budget: Budget,
        quantiles: Sequence[Amount],
        lower: int,
        upper: int,
        *,
        rows_per_unit: int = 1,
        exchanged: bool = False,
    ) -> QuantileMechanism:
        """The sharpest quantiles that keep a budget together."""
        wanted = tuple(exact(q, "quantile") for q in quantiles)
        flips = not isinstance(budget, ZCDP) and upper - lower < NARROW
        order = plan_order(wanted)
        each = _split_budget(budget, order.choices, order.divisions) if wanted else Fraction(1)
        return cls(wanted, lower, upper, each, rows_per_unit, flips, exchanged)

    @property
    def order(self) -> Order:
        """In which order, and among which rows, the quantiles are chosen."""
        return plan_order(self.quantiles)

    @property
    def dividing(self) -> Fraction:
        """The epsilon of the noise by which the rows equal to a chosen integer are divided."""
        return min(self.epsilon * DIVIDING, MOST)

    @property
    def event(self) -> SelfComposedEvent | ComposedEvent:
        """The choices and divisions that one value takes part in."""
        order = self.order
        chosen = SelfComposedEvent(SelectionEvent(self.epsilon, bounded_range=not self.flips), order.choices)
        if not order.divisions:
            return chosen
        return ComposedEvent((chosen, SelfComposedEvent(SelectionEvent(self.dividing), order.divisions)))

    @property
    def sensitivity(self) -> Fraction:
        """The largest change of a rank error by one unit."""
        return max(self._sensitivity(node.share) for node in self.order.nodes)

    def noise_scale(self, node: Node) -> Fraction:
        """The scale of the noise on a division, in parts of a value: 1 / denominator of its share."""
        return node.share.denominator * self._sensitivity(node.share) / self.dividing

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """A rank error (in values) that no quantile passes, but with probability alpha, however many there are."""
        order = self.order
        each = split_alpha(alpha, size) / (len(order.nodes) + sum(node.divides for node in order.nodes))
        return math.ceil(max(self._reach(root, 0.0, 0.0, each) for root in order.roots) * (1 + 1e-9))

    def release(self, values: Integers, entropy: Entropy = SYSTEM) -> Numbers:
        """One integer for each quantile, in their order; they rise with the quantiles."""
        entries = np.clip(take_integers(values), self.lower, self.upper).astype(np.int64)
        ones, nobody = np.ones(entries.size, dtype=np.int64), np.zeros(entries.size, dtype=np.int64)
        drawn: Numbers = self.release_groups(entries, ones, nobody, 1, entropy)[0]
        return drawn

    def release_groups(
        self, values: Numbers, counts: Numbers, group: Numbers, groups: int, entropy: Entropy = SYSTEM
    ) -> Numbers:
        """The quantiles of every group, a row for each, from values (in any order) and how often each is in its group;
        groups without values are drawn from too, as if they were any others."""
        drawn = np.empty((groups, len(self.quantiles)), dtype=np.int64)
        rows = GroupCounts.of(np.clip(values, self.lower, self.upper), counts, group, groups)
        ends = np.full(groups, self.lower, dtype=np.int64), np.full(groups, self.upper, dtype=np.int64)
        for root in self.order.roots if groups else ():
            self._descend(root, rows, *ends, drawn, entropy)
        # Chosen apart, quantiles may cross: sorting them is post-processing.
        rising = np.argsort(np.array(self.quantiles, dtype=object), kind="stable")
        drawn[:, rising] = np.sort(drawn, axis=1)
        return drawn

    def _descend(
        self, node: Node, rows: GroupCounts, low: Numbers, high: Numbers, drawn: Numbers, entropy: Entropy
    ) -> None:
        """Choose between the ends of a part in each group, then in the parts below and above what was chosen."""
        chosen = self._choose_integers(node.share, rows, low, high, entropy)
        drawn[:, [i for i, q in enumerate(self.quantiles) if q == node.quantile]] = chosen[:, np.newaxis]
        if not node.divides:
            return
        noise = discrete_laplace(self.noise_scale(node), rows.groups, entropy=entropy)
        ties = (count_ties_below(rows, chosen, node.share) + noise) // node.share.denominator
        below, above = rows.divide_at(chosen, ties)
        if node.below is not None:
            self._descend(node.below, below, low, chosen, drawn, entropy)
        if node.above is not None:
            self._descend(node.above, above, chosen, high, drawn, entropy)

    def _choose_integers(
        self, q: Fraction, rows: GroupCounts, low: Numbers, high: Numbers, entropy: Entropy
    ) -> Numbers:
        """One integer between the ends for each group, some groups at a time."""
        width = self.upper - self.lower + 1
        step = max(1, (CELLS if self.flips else 1 << 61) // width)
        chosen = np.empty(rows.groups, dtype=np.int64)
        for start in range(0, rows.groups, step):
            last = min(start + step, rows.groups)
            some = rows.part(start, last)
            choose = self._choose_by_flips if self.flips else self._choose_by_weight
            chosen[start:last] = choose(q, some, low[start:last], high[start:last], entropy)
        return chosen

    def _choose_by_flips(
        self, q: Fraction, rows: GroupCounts, low: Numbers, high: Numbers, entropy: Entropy
    ) -> Numbers:
        """Permute-and-flip among all integers between the ends."""
        costs, part = self._costs(q, Ranks.of(rows.matrix(self.lower, self.upper)))
        line = np.arange(self.lower, self.upper + 1)
        inside = (line >= low[:, np.newaxis]) & (line <= high[:, np.newaxis])
        return self.lower + permute_and_flip_rows(costs, part, allowed=inside, entropy=entropy)

    def _choose_by_weight(
        self, q: Fraction, rows: GroupCounts, low: Numbers, high: Numbers, entropy: Entropy
    ) -> Numbers:
        """The exponential mechanism: runs of integers that have the same cost are weighed by their width."""
        runs = rows.runs(low, high)
        costs, part = self._costs(q, runs.ranks)
        run = exponential_choice_groups(costs, part, runs.width, runs.group, rows.groups, entropy=entropy)
        return runs.start[run] + uniform_below_each(runs.width[run], entropy=entropy)

    def _costs(self, q: Fraction, ranks: Ranks) -> tuple[Numbers, Fraction]:
        """Costs in whole parts of a value, 1 / denominator, and what a part is worth in the exponent.

        They are cut off at fixed public heights, which moves no two costs apart.
        """
        part = self._unit(q) / q.denominator
        reach = min(1 << 60, int((1 << 60) / part))
        return np.clip(compute_rank_costs(ranks, q), -reach, reach), part

    def _sensitivity(self, q: Fraction) -> Fraction:
        return self.rows_per_unit * (Fraction(1) if self.exchanged else max(q, 1 - q))

    def _unit(self, q: Fraction) -> Fraction:
        return self.epsilon / (2 * self._sensitivity(q))

    def _reach(self, node: Node, low: float, high: float, alpha: float) -> float:
        """The largest error in rank of this choice and those after it, if no draw does what has probability alpha.

        Let a part have its ends at ranks that are wrong by `low` and `high`. Its quantile is then looked for at a rank
        that is wrong by their mean with weights 1 - share and share, and found with the error t of the choice itself.
        The division errs by no more than the larger of t and its noise z: inside the ties by z, outside by t.
        """
        meant = float(1 - node.share) * low + float(node.share) * high
        t = math.log((self.upper - self.lower + 1) / alpha) / float(self._unit(node.share))
        z = float(self._sensitivity(node.share) / self.dividing) * math.log(2 / alpha) + 1
        cut, found = meant + max(t, z), meant + t
        if node.below is not None:
            found = max(found, self._reach(node.below, low, cut, alpha))
        if node.above is not None:
            found = max(found, self._reach(node.above, cut, high, alpha))
        return found


def _split_budget(budget: Budget, choices: int, divisions: int) -> Fraction:
    """The epsilon of a choice, where all choices and divisions keep a budget.

    In zCDP a choice costs min(epsilon^2 / 8, epsilon), and a division with epsilon d < 2 costs d^2 / 2. Both change
    their form at the same epsilon, where a division has reached what it may have at most.
    """
    pure = not isinstance(budget, ZCDP)
    amount = budget.rho if isinstance(budget, ZCDP) else epsilon_of(budget)
    rising, most = (DIVIDING, MOST) if pure else (4 * DIVIDING**2, MOST**2 / 2)
    each = amount / (choices + divisions * rising)
    if each > BOUNDED_RANGE:
        each = (amount - divisions * most) / choices
    return each if pure else epsilon_of_bounded_range(ZCDP(each))


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
    if mechanism.exchanged and mechanism.order.joint:
        raise ParameterError("rows that are exchanged may be in two parts", expected="exchanged=False")
    if mechanism.epsilon > LARGEST_UNIT:
        raise ParameterError("epsilon is above 2**40", expected="a smaller epsilon")
    for node in mechanism.order.nodes:
        require_drawable(mechanism.noise_scale(node) if node.divides else Fraction(1), "scale")
