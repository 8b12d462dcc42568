"""Several quantiles together: the exact law of the whole release on small tables, its privacy loss, and its order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

from deniable.dp.accounting import pure_cost, zcdp_cost
from deniable.dp.mechanisms import QuantileMechanism
from deniable.dp.mechanisms.quantile import Node, plan_order
from deniable.dp.mechanisms.rank_error import GroupCounts, Ranks, compute_rank_costs
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, PureDP
from seeded import SeededEntropy

QUARTILES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
HIGHEST = 3
FARTHEST = 40
"""Ties are divided at a noisy count; here it is followed so far in both directions."""

Table = tuple[int, ...]
Law = dict[tuple[int, ...], float]


def joint(epsilon: Fraction = Fraction(1), flips: bool = True) -> QuantileMechanism:
    return QuantileMechanism(QUARTILES, 0, HIGHEST, epsilon, flips=flips)


@cache
def choice(equal: Table, share: Fraction, low: int, high: int, unit: float, flips: bool) -> dict[int, float]:
    """The law of one choice from its definition, by quadrature (see `flipped` in the tests of ranks)."""
    costs = compute_rank_costs(Ranks.of(np.array(equal)), share)[low : high + 1] / share.denominator
    heads = np.exp(-unit * (costs - costs.min()))
    if not flips:
        return dict(zip(range(low, high + 1), (heads / heads.sum()).tolist(), strict=True))
    points, weights = np.polynomial.legendre.leggauss(30)
    factors = 1 - heads + heads * ((points + 1) / 2)[:, np.newaxis]
    law = [heads[i] * (weights / 2) @ np.prod(np.delete(factors, i, axis=1), axis=1) for i in range(heads.size)]
    return dict(zip(range(low, high + 1), map(float, law), strict=True))


def division(equal: Table, at: int, share: Fraction, scale: float) -> dict[int, float]:
    """The law of how many ties go below: floor of (missing + noise) in parts, for noise of discrete Laplace."""
    parts = share.denominator
    missing = share.numerator * sum(equal) - parts * sum(equal[:at])
    line = range(-FARTHEST * parts, FARTHEST * parts)
    weights = {x: math.exp(-abs(x - missing) / scale) for x in line}
    total = (1 + math.exp(-1 / scale)) / (1 - math.exp(-1 / scale))
    law: dict[int, float] = {}
    for x, weight in weights.items():
        law[x // parts] = law.get(x // parts, 0.0) + weight / total
    return law


def divided(equal: Table, at: int, ties: int) -> tuple[Table, Table]:
    down = min(max(ties, 0), equal[at])
    below = tuple(count if i < at else down if i == at else 0 for i, count in enumerate(equal))
    above = tuple(count if i > at else equal[at] - down if i == at else 0 for i, count in enumerate(equal))
    return below, above


def law_of(mechanism: QuantileMechanism, equal: Table, split: Callable[..., tuple[Table, Table]] = divided) -> Law:
    """P[median, ties, lower quartile, upper quartile]: more than what is released, since the division stays inside."""
    (root,) = mechanism.order.roots
    assert root.below is not None
    assert root.above is not None
    unit, scale, found = float(mechanism.epsilon), float(mechanism.noise_scale(root)), {}
    for middle, p in choice(equal, root.share, 0, HIGHEST, unit, mechanism.flips).items():
        for ties, d in division(equal, middle, root.share, scale).items():
            below, above = split(equal, middle, ties)
            lower = choice(below, root.below.share, 0, middle, unit, mechanism.flips)
            upper = choice(above, root.above.share, middle, HIGHEST, unit, mechanism.flips)
            for (a, x), (b, y) in product(lower.items(), upper.items()):
                found[middle, ties, a, b] = p * d * x * y
    return found


def loss(one: Law, other: Law) -> float:
    return max(abs(math.log(one[outcome] / other[outcome])) for outcome in one)


def neighbors() -> Iterator[tuple[Table, Table]]:
    for equal in ((0, 0, 0, 0), (3, 0, 0, 1), (1, 2, 0, 2), (0, 5, 0, 0), (1, 1, 1, 1), (4, 0, 3, 0)):
        for at in range(HIGHEST + 1):
            yield equal, tuple(count + (i == at) for i, count in enumerate(equal))


@pytest.mark.parametrize("flips", [True, False])
def test_no_outcome_of_all_quartiles_together_loses_more_than_epsilon(flips: bool) -> None:
    mechanism = joint(flips=flips)
    claimed = pure_cost(mechanism.event)
    assert claimed is not None
    assert claimed.amount == Fraction(11, 5)
    worst = max(loss(law_of(mechanism, one), law_of(mechanism, other)) for one, other in neighbors())
    assert 0.5 * float(claimed.amount) < worst <= float(claimed.amount) + 1e-9


def test_ties_that_count_on_both_sides_are_caught() -> None:
    """The broken twin: a row at the chosen integer takes part in three choices, and two are paid for."""
    mechanism = joint()
    claimed = pure_cost(mechanism.event)
    assert claimed is not None

    def twice(equal: Table, at: int, _: int) -> tuple[Table, Table]:
        return divided(equal, at, sum(equal))[0], divided(equal, at, 0)[1]

    pairs = [((a, b, c, 0), (a, b + 1, c, 0)) for a in (0, 2, 6) for b in (0, 2) for c in (0, 2, 6)]
    sound, broken = (
        [loss(*(law_of(mechanism, e, split) for e in pair)) for pair in pairs] for split in (divided, twice)
    )
    assert max(sound) <= float(claimed.amount) + 1e-9
    assert max(broken) > float(claimed.amount) + 0.3


def test_dividing_ties_without_noise_is_caught() -> None:
    """The broken twin: an exact count of what is missing tells neighbors apart with certainty."""
    assert divided((3, 0, 0, 1), 0, 2) == ((2, 0, 0, 0), (1, 0, 0, 1))
    share = Fraction(1, 2)
    one, other = (max(division(equal, 0, share, 0.05).items(), key=lambda x: x[1])[0] for equal in ((4, 1), (4, 3)))
    assert (one, other) == (2, 3)


@pytest.mark.parametrize("flips", [True, False])
def test_quartiles_have_the_law_of_their_naive_twin(flips: bool) -> None:
    """Chi-square on 20,000 seeded releases: a false alarm cannot happen by chance, and 30% off does not pass."""
    mechanism, equal, runs = joint(flips=flips), (1, 4, 0, 2), 20_000
    values, counts = np.tile(np.arange(4), runs), np.tile(np.array(equal), runs)
    drawn = mechanism.release_groups(values, counts, np.repeat(np.arange(runs), 4), runs, SeededEntropy(11))
    assert [fits(drawn, joint(epsilon, flips), equal) for epsilon in (1, Fraction(7, 10), Fraction(13, 10))] == [
        True, False, False]  # fmt: skip


def fits(drawn: NDArray[np.int64], mechanism: QuantileMechanism, equal: Table) -> bool:
    released: dict[tuple[int, ...], float] = {}
    for (middle, _, a, b), p in law_of(mechanism, equal).items():
        released[a, middle, b] = released.get((a, middle, b), 0.0) + p
    listed = [outcome for outcome in released if released[outcome] * len(drawn) > 5]
    counts = [int((drawn == outcome).all(axis=1).sum()) for outcome in listed]
    expected = np.array([released[outcome] for outcome in listed]) * len(drawn)
    rest = [len(drawn) - sum(counts)], [len(drawn) - expected.sum()]
    return bool(chisquare(np.append(counts, rest[0]), np.append(expected, rest[1])).pvalue > 1e-4)


TABLES = st.lists(st.integers(0, 5), min_size=2, max_size=6)
SEVERAL = st.lists(st.sampled_from([Fraction(i, 20) for i in range(21)]), min_size=2, max_size=8, unique=True)


@settings(max_examples=60, deadline=None)
@given(TABLES, SEVERAL, st.booleans(), st.integers(0, 2**32))
def test_answers_rise_with_their_quantiles(equal: list[int], quantiles: list[Fraction], flips: bool, seed: int) -> None:
    mechanism = QuantileMechanism(tuple(quantiles), 0, len(equal) - 1, Fraction(1, 2), flips=flips)
    drawn = mechanism.release(np.repeat(np.arange(len(equal)), equal), SeededEntropy(seed))
    assert (np.diff(drawn[np.argsort(quantiles)]) >= 0).all()
    assert drawn.min() >= 0
    assert drawn.max() < len(equal)


@settings(max_examples=60, deadline=None)
@given(TABLES, st.integers(0, 5), st.integers(-3, 8), st.data())
def test_one_row_more_is_one_row_more_in_one_part(equal: list[int], at: int, ties: int, data: st.DataObject) -> None:
    """The stability of a division, by brute force, on the product's own division."""
    x = data.draw(st.integers(0, len(equal) - 1))
    more = [count + (i == x) for i, count in enumerate(equal)]
    cut, public = np.array([min(at, len(equal) - 1)]), np.array([ties])

    def parts(rows: list[int]) -> list[NDArray[np.int64]]:
        line = np.arange(len(rows))
        counted = GroupCounts.of(line, np.array(rows), np.zeros(len(rows), dtype=np.int64), 1)
        return [part.matrix(0, len(rows) - 1) for part in counted.divide_at(cut, public)]

    moved = [int(np.abs(a - b).sum()) for a, b in zip(parts(equal), parts(more), strict=True)]
    assert sorted(moved) == [0, 1]


@settings(max_examples=100, deadline=None)
@given(SEVERAL)
def test_every_quantile_is_chosen_once_within_the_levels_paid_for(quantiles: list[Fraction]) -> None:
    order = plan_order(tuple(quantiles))
    assert set(quantiles) <= {node.quantile for node in order.nodes}
    assert sum(depth(root) for root in order.roots) == order.choices <= len(quantiles)
    assert all(0 <= node.share <= 1 for node in order.nodes)
    if order.joint:
        assert order.choices == len(quantiles).bit_length()


def depth(node: Node | None) -> int:
    return 0 if node is None else 1 + max(depth(node.below), depth(node.above))


def test_nine_deciles_take_four_levels_and_two_far_quantiles_are_chosen_apart() -> None:
    assert plan_order(tuple(Fraction(i, 10) for i in range(1, 10))).choices == 4
    assert not plan_order((Fraction(9, 10), Fraction(99, 100))).joint
    assert plan_order((Fraction(1, 4), Fraction(3, 4))).roots[0].quantile == Fraction(1, 2)


AMOUNTS = (Fraction(1, 10**5), 1, 9, 18, 500)


@pytest.mark.parametrize("budget", [*(PureDP(e) for e in AMOUNTS), *(ZCDP(r) for r in AMOUNTS)], ids=str)
@pytest.mark.parametrize("quantiles", [QUARTILES, QUARTILES[:1], (Fraction(9, 10), Fraction(99, 100))], ids=len)
def test_quantiles_cost_what_was_asked(quantiles: tuple[Fraction, ...], budget: PureDP | ZCDP) -> None:
    event = QuantileMechanism.within(budget, quantiles, 0, 100).event
    cost = zcdp_cost(event) if isinstance(budget, ZCDP) else pure_cost(event)
    assert cost is not None
    asked = budget.rho if isinstance(budget, ZCDP) else budget.epsilon
    assert asked * (1 - Fraction(1, 10**6)) <= cost.amount <= asked


def test_noise_that_cannot_be_drawn_is_refused_when_the_mechanism_is_made() -> None:
    with pytest.raises(ParameterError, match="noise"):
        QuantileMechanism(QUARTILES, 0, 100, Fraction(1, 10**12), rows_per_unit=10**6)


def test_heavy_ties_do_not_shift_the_other_quantiles_with_the_size_of_the_table() -> None:
    """45% below 50, half at 50, 5% above: the lower quartile is in the first part, at rank 0.25.

    Without a division of the ties the part below the median would have 45 or 95% of the rows instead of half of them,
    and the lower quartile would be looked for thousands of ranks away. At epsilon 1 a false alarm takes noise of 100
    times its scale: a chance below 1e-20.
    """
    n = 200_000
    values = np.concatenate([np.arange(0.45 * n) // (0.009 * n), np.full(n // 2, 50), np.full(n // 20, 80)])
    mechanism = QuantileMechanism.within(PureDP(1), QUARTILES, 0, 100)
    low, middle, high = mechanism.release(values.astype(np.int64)).tolist()
    assert (middle, high) == (50, 50)
    assert 27 <= low <= 28
