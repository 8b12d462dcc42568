"""Limits of mechanisms: what is just taken and just refused, how amounts are read, and which integers are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from deniable.dp.accounting import LaplaceEvent, SelectionEvent, epsilon_of, zcdp_cost
from deniable.dp.accounting.cost import sqrt_above
from deniable.dp.mechanisms import (
    AboveThreshold,
    ExponentialMechanism,
    GaussianMechanism,
    KeyThreshold,
    LaplaceMechanism,
    NoisyMaxMechanism,
    QuantileMechanism,
    quantile,
    selection,
    sparse_vector,
    threshold,
)
from deniable.dp.mechanisms.mechanism import require_drawable, take_integers
from deniable.dp.mechanisms.quantile import (
    FINEST,
    Node,
    Order,
    _average_error,
    _choose_first,
    _grow_tree,
    _propagate_errors,
    plan_order,
)
from deniable.dp.mechanisms.rank_error import GroupCounts, Ranks, count_ties_below
from deniable.dp.samplers import exponential_choice, permute_and_flip
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from seeded import SeededEntropy

HALF = Fraction(1, 2)
MEDIAN = (HALF,)


# ---- amounts


@pytest.mark.parametrize("amount", ["1/2", 0.5, HALF])
def test_amounts_are_exact_however_they_are_written(amount: Any) -> None:
    made = [
        LaplaceMechanism(amount, amount).scale,
        LaplaceMechanism(amount, amount).sensitivity,
        LaplaceMechanism.within(PureDP(1), amount).sensitivity,
        GaussianMechanism(amount, amount).variance,
        GaussianMechanism(amount, amount).sensitivity_squared,
        GaussianMechanism.within(ZCDP(1), sensitivity_squared=amount).sensitivity_squared,
        ExponentialMechanism(amount, amount).epsilon,
        ExponentialMechanism(amount, amount).sensitivity,
        ExponentialMechanism.within(PureDP(1), amount).sensitivity,
        NoisyMaxMechanism(amount, amount).epsilon,
        NoisyMaxMechanism(amount, amount).sensitivity,
        NoisyMaxMechanism.within(PureDP(1), amount).sensitivity,
        AboveThreshold(0, amount, amount).epsilon,
        AboveThreshold(0, amount, amount).sensitivity,
        AboveThreshold.within(PureDP(1), 0, amount).sensitivity,
        KeyThreshold(LaplaceMechanism(1), amount).delta,
        QuantileMechanism((amount,), 0, 9, 1).quantiles[0],
        QuantileMechanism.within(PureDP(1), (amount,), 0, 9).quantiles[0],
    ]
    assert made == [HALF] * len(made)
    assert {type(each) for each in made} == {Fraction}
    assert GaussianMechanism.within(ZCDP(1), amount).sensitivity_squared == Fraction(1, 4)


@pytest.mark.parametrize("wrong", [0, -1, "-1/2"])
@pytest.mark.parametrize(
    "make",
    [
        LaplaceMechanism,
        lambda x: LaplaceMechanism(1, x),
        lambda x: LaplaceMechanism.within(PureDP(1), x),
        GaussianMechanism,
        lambda x: GaussianMechanism(1, x),
        lambda x: GaussianMechanism.within(ZCDP(1), x),
        lambda x: GaussianMechanism.within(ZCDP(1), sensitivity_squared=x),
        ExponentialMechanism,
        lambda x: ExponentialMechanism(1, x),
        lambda x: ExponentialMechanism.within(PureDP(1), x),
        NoisyMaxMechanism,
        lambda x: NoisyMaxMechanism(1, x),
        lambda x: AboveThreshold(0, x),
        lambda x: AboveThreshold(0, 1, x),
        lambda x: KeyThreshold(LaplaceMechanism(1), x),
    ],
)
def test_amounts_are_above_zero(make: Callable[[Any], object], wrong: Any) -> None:
    with pytest.raises(ParameterError, match="not positive"):
        make(wrong)


def test_noise_is_made_up_to_what_the_samplers_can_draw() -> None:
    above = 1 + Fraction(1, 10**9)
    assert LaplaceMechanism(2**52).scale == 2**52
    assert GaussianMechanism(2**104).variance == 2**104
    assert AboveThreshold(0, Fraction(3, 2**52)).scale == 2**52
    assert require_drawable(Fraction(8), "scale", 8) == 8
    for refused, told in (
        (lambda: LaplaceMechanism(above * 2**52), r"scale of the noise is above 2\*\*52"),
        (lambda: GaussianMechanism(above * 2**104), r"variance of the noise is above 2\*\*104"),
        (lambda: AboveThreshold(0, Fraction(3, 2**52) / above), r"scale of the noise is above 2\*\*52"),
        (lambda: require_drawable(above * 8, "scale", 8), r"above 2\*\*3"),
    ):
        with pytest.raises(ParameterError, match=told):
            refused()


def test_integers_are_taken_as_they_come() -> None:
    own = np.array([3, -4])
    assert take_integers(own) is own or np.shares_memory(take_integers(own), own)
    for kind in (np.int8, np.uint32, np.int32):
        assert take_integers(np.array([1, 2], dtype=kind)).dtype == np.int64
    large = take_integers(np.array([2**64 - 1], dtype=np.uint64))
    assert (large.dtype, large.tolist()) == (object, [2**64 - 1])
    assert take_integers([2**70, -1]).tolist() == [2**70, -1]
    for wrong in ([1.0], [True], ["1"], [1, None], np.array([1.0]), np.array([True])):
        with pytest.raises(ParameterError, match="counts are not all integers"):
            take_integers(wrong, "counts")
    with pytest.raises(ParameterError, match="counts are not a one-dimensional array"):
        take_integers(np.array([[1]]), "counts")


# ---- choices by scores


@pytest.mark.parametrize("kind", [ExponentialMechanism, NoisyMaxMechanism])
def test_a_choice_is_made_up_to_a_unit_of_2_to_the_40(kind: Any) -> None:
    assert kind(2**41).unit == kind(2**40, monotonic=True).unit == 2**40
    for epsilon, monotonic in ((2**41 + 1, False), (2**40 + 1, True)):
        with pytest.raises(ParameterError, match="epsilon is too large"):
            kind(epsilon, monotonic=monotonic)
    with pytest.raises(ParameterError, match="there is no candidate"):
        kind(1).release([])


@pytest.mark.parametrize(
    ("unit", "reach"), [(HALF, 2**60), (Fraction(1), 2**60), (Fraction(4), 2**58), (3, 2**60 // 3)]
)
def test_scores_are_held_within_a_public_range(unit: Fraction, reach: int) -> None:
    far = 2**62
    costs = selection._compute_costs([far, -far, 0, reach, reach - 1, -reach, 5], Fraction(unit))
    assert costs.tolist() == [0, 2 * reach, reach, 0, 1, 2 * reach, reach - 5]


@pytest.mark.parametrize("rho", [Fraction(1, 2), Fraction(2), Fraction(9, 8), Fraction(1, 3), Fraction(7), Fraction(9)])
def test_a_choice_with_bounded_range_uses_all_of_a_rho_and_no_more(rho: Fraction) -> None:
    epsilon = selection.epsilon_of_bounded_range(ZCDP(rho))
    cost = zcdp_cost(SelectionEvent(epsilon, bounded_range=True))
    assert cost is not None
    assert rho * (1 - Fraction(1, 10**10)) <= cost.amount <= rho
    exactly = {Fraction(1, 2): 2, Fraction(2): 4, Fraction(9, 8): 3, Fraction(9): 9}
    assert epsilon == exactly.get(rho, epsilon)
    assert (
        selection.epsilon_of_bounded_range(PureDP(rho)) == selection.epsilon_of_bounded_range(ApproxDP(rho, 0)) == rho
    )
    with pytest.raises(ParameterError, match="the budget is 0"):
        selection.epsilon_of_bounded_range(ZCDP(0))


@pytest.mark.parametrize(("off", "told"), [(0, 3), (-5e-10, 3), (-1.5e-9, 2), (-1e-6, 2), (0.3, 3)])
def test_a_shortfall_is_rounded_down_after_a_billionth_more(off: float, told: int) -> None:
    assert selection._shortfall(Fraction(1), 7 * math.exp(-3 * (1 + off)), 7) == told


def test_one_candidate_never_falls_short_and_two_may() -> None:
    assert selection._shortfall(Fraction(1, 100), 0.001, 1) == 0
    assert selection._shortfall(Fraction(1, 100), 0.001, 2) == math.floor(100 * math.log(2000))


# ---- the sparse vector and thresholds


@pytest.mark.parametrize("times", [0, -1, True, False])
def test_at_least_one_find_is_paid_for(times: int) -> None:
    with pytest.raises(ParameterError, match="times is below 1"):
        AboveThreshold(0, 1, times=times)
    if times is not True:
        with pytest.raises(ParameterError, match="times is below 1"):
            AboveThreshold.within(PureDP(1), 0, times=times)


def test_finds_share_a_budget() -> None:
    assert AboveThreshold.within(PureDP(1), 0).epsilon == 1
    assert AboveThreshold.within(PureDP(1), 0, times=4) == AboveThreshold(0, Fraction(1, 4), times=4)
    assert AboveThreshold.within(PureDP(1), 7, 2, monotonic=True).scale == 4


def test_a_search_draws_one_noise_for_the_threshold_and_one_for_each_answer_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    def draw(scale: Fraction, size: int, *, entropy: object) -> np.ndarray:
        sizes.append(size)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(sparse_vector, "discrete_laplace", draw)
    search = AboveThreshold(5, 1, times=3)
    assert search.release([1, 5, 9]).tolist() == [1, 2]
    assert sizes == [1, 3, 1, 1], "after the last answer nothing is drawn any more"
    sizes.clear()
    assert search.release([7, 8, 4, 6, 9]).tolist() == [0, 1, 3]
    assert sizes == [1, 5, 1, 4, 1, 3], "nor after the last find"
    sizes.clear()
    assert search.release([4, 4]).tolist() == []
    assert sizes == [1, 2]


@pytest.mark.parametrize("least", range(41))
def test_the_least_number_that_holds_is_found_with_few_questions(least: int) -> None:
    asked: list[int] = []

    def holds(m: int) -> bool:
        asked.append(m)
        return m >= least

    assert threshold._find_least(holds) == least
    doubled = [2**k for k in range(12) if k == 0 or 2 ** (k - 1) < least]
    assert asked[: len(doubled)] == doubled
    assert len(asked) <= 2 * least.bit_length() + 2
    assert len(set(asked)) == len(asked)


def test_a_key_is_never_shown_at_a_count_of_one_however_large_delta_is() -> None:
    assert threshold.laplace_reach.__wrapped__(Fraction(10), Fraction(9, 10)) == 1
    assert threshold.gaussian_reach.__wrapped__(Fraction(100), Fraction(9, 10)) == 1


def test_a_tail_that_is_exactly_as_likely_as_allowed_is_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told tails: certain below 5 deviations, a thousandth up to 8, then nothing; the bound holds one step later."""
    told = lambda x: Decimal(1) if x > -5 else Decimal("0.001") if x > -8 else Decimal(0)  # noqa: E731
    monkeypatch.setattr(threshold, "normal_above", told)
    assert threshold.gaussian_reach.__wrapped__(Fraction(1), Fraction(1, 1000)) == 1 + 5
    assert threshold.gaussian_reach.__wrapped__(Fraction(9), Fraction(1, 1000)) == 1 + 15


def test_a_threshold_needs_a_delta_below_one_and_noise_for_all_its_groups() -> None:
    almost = 1 - Fraction(1, 10**9)
    assert KeyThreshold(LaplaceMechanism(1), almost).delta == almost
    for delta in (1, 2):
        with pytest.raises(ParameterError, match="delta is 1 or more"):
            KeyThreshold(LaplaceMechanism(1), Fraction(delta))
    for noise in (LaplaceMechanism(9, 3), GaussianMechanism(9, 3)):
        assert KeyThreshold(noise, "1e-6", 3).max_groups == 3
        assert KeyThreshold(noise, "1e-6", 2).max_groups == 2
        with pytest.raises(ParameterError, match="made for fewer groups"):
            KeyThreshold(noise, "1e-6", 4)
    keys = KeyThreshold(LaplaceMechanism(9, 3), "1e-6", 3)
    assert (keys.sensitivity, keys.accuracy(0.1, 5)) == (3, keys.noise.accuracy(0.1, 5))
    assert keys.event.events[0] == LaplaceEvent(9, 3)


# ---- quantiles


def test_every_integer_has_its_coin_up_to_4096_of_them() -> None:
    assert QuantileMechanism.within(PureDP(1), MEDIAN, 5, 4100).flips
    assert not QuantileMechanism.within(PureDP(1), MEDIAN, 5, 4101).flips
    assert QuantileMechanism(MEDIAN, 5, 4100, 1, flips=True).flips
    with pytest.raises(ParameterError, match="more than 4096 integers"):
        QuantileMechanism(MEDIAN, 5, 4101, 1, flips=True)


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"quantiles": (Fraction(-1, 10),)}, "from 0 to 1"),
        ({"quantiles": (Fraction(11, 10),)}, "from 0 to 1"),
        ({"quantiles": (HALF, Fraction(11, 10))}, "from 0 to 1"),
        ({"quantiles": (Fraction(1, FINEST + 1),)}, "from 0 to 1"),
        ({"quantiles": ()}, "from 0 to 1"),
        ({"lower": 10}, "the bounds are not"),
        ({"lower": -(2**60) - 1}, "the bounds are not"),
        ({"upper": 2**60 + 1}, "the bounds are not"),
        ({"rows_per_unit": 0}, "rows_per_unit is below 1"),
        ({"epsilon": 2**40 + 1}, "epsilon is above"),
    ],
)
def test_quantiles_outside_their_limits_are_refused(named: dict[str, Any], told: str) -> None:
    asked = {"quantiles": MEDIAN, "lower": 0, "upper": 9, "epsilon": 1} | named
    with pytest.raises(ParameterError, match=told):
        QuantileMechanism(**asked)


def test_quantiles_are_made_up_to_their_limits() -> None:
    ends = (Fraction(0), Fraction(1), Fraction(1, FINEST))
    for q in ends:
        assert QuantileMechanism((q,), 0, 9, 1).quantiles == (q,)
    widest = QuantileMechanism(MEDIAN, -(2**60), 2**60, 2**40)
    assert -(2**60) <= widest.release([3] * 101)[0] <= 2**60
    assert QuantileMechanism(MEDIAN, 4, 4, 1).release([]).tolist() == [4]


def test_the_noise_of_a_division_must_be_drawable_and_that_of_no_division_need_not() -> None:
    """Quartiles: shares of 1/2 at the root, so noise has scale 2 * 1/2 / (epsilon / 5) = 5 / epsilon."""
    quartiles = (Fraction(1, 4), Fraction(3, 4))
    least = Fraction(5, 2**52)
    made = QuantileMechanism(quartiles, 0, 9, least)
    assert made.noise_scale(made.order.roots[0]) == 2**52
    with pytest.raises(ParameterError, match="noise"):
        QuantileMechanism(quartiles, 0, 9, least * Fraction(999, 1000))
    assert QuantileMechanism(MEDIAN, 0, 9, Fraction(1, 2**60)).epsilon == Fraction(1, 2**60)


@pytest.mark.parametrize(("epsilon", "dividing"), [(1, "1/5"), (8, "8/5"), (9, "8/5"), (100, "8/5")])
def test_a_division_has_a_fifth_of_epsilon_and_eight_fifths_at_most(epsilon: int, dividing: str) -> None:
    made = QuantileMechanism((Fraction(1, 4), Fraction(3, 4)), 0, 9, epsilon)
    assert made.dividing == Fraction(dividing)


@pytest.mark.parametrize(("off", "told"), [(-5e-10, 6), (-1.5e-9, 5), (-0.1, 5), (1e-6, 6)])
def test_an_accuracy_is_rounded_up_after_a_billionth_more(off: float, told: int) -> None:
    """One median of the ten integers 0 to 9 at epsilon 1: the unit is 1, so the reach is ln(10 / alpha)."""
    made = QuantileMechanism(MEDIAN, 0, 9, 1)
    assert made._unit(HALF) == 1
    assert made.accuracy(10 * math.exp(-5 * (1 + off))) == told
    for lower in (-20, 7):
        moved = QuantileMechanism(MEDIAN, lower, lower + 9, 1)
        assert moved.accuracy(0.03, 4) == made.accuracy(0.03, 4)


@pytest.mark.parametrize("flips", [True, False])
def test_one_release_is_that_of_one_group_and_draws_no_more_than_it(flips: bool) -> None:
    made = QuantileMechanism((Fraction(1, 4), Fraction(3, 4)), 10, 60, Fraction(1, 3), flips=flips)
    values = np.array([15, 20, 20, 31, 47, 90])
    for seed in range(6):
        groups = made.release_groups(
            values, np.ones(6, dtype=np.int64), np.zeros(6, dtype=np.int64), 1, SeededEntropy(seed)
        )
        assert made.release(values, SeededEntropy(seed)).tolist() == groups[0].tolist()


@pytest.mark.parametrize("flips", [True, False])
def test_groups_without_values_are_drawn_from_every_integer_between_the_bounds(flips: bool) -> None:
    made = QuantileMechanism(MEDIAN, 10, 13, 1, flips=flips)
    none = np.zeros(0, dtype=np.int64)
    drawn = made.release_groups(none, none, none, 400, SeededEntropy(5))
    assert np.unique(drawn).tolist() == [10, 11, 12, 13]


@pytest.mark.parametrize("flips", [True, False])
@pytest.mark.parametrize("cells", [1, 8, 12, 20, 100])
def test_groups_are_released_in_pieces_as_they_would_be_alone(
    flips: bool, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four integers to choose from: with cells for two groups, or three, the last piece is shorter."""
    monkeypatch.setattr(quantile, "CELLS", cells)
    sizes: list[int] = []
    part = GroupCounts.part
    monkeypatch.setattr(GroupCounts, "part", lambda rows, a, b: sizes.append(b - a) or part(rows, a, b))
    sharp = QuantileMechanism(MEDIAN, 10, 13, 10_000, flips=flips)
    values, group = np.array([13, 10, 12, 11, 13, 10, 12]), np.arange(7)
    drawn = sharp.release_groups(values, np.full(7, 3), group, 7, SeededEntropy(1))
    assert drawn[:, 0].tolist() == values.tolist()
    step = max(1, cells // 4) if flips else 7
    assert sizes == [min(step, 7 - start) for start in range(0, 7, step)]
    assert sharp.release_groups(values[:0], values[:0], group[:0], 0).shape == (0, 1)


def test_as_many_groups_are_weighed_at_once_as_their_widths_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths of 2**60: two groups at a time have 2**61 integers, and four would have more than can be weighed."""
    sizes: list[int] = []
    part = GroupCounts.part
    monkeypatch.setattr(GroupCounts, "part", lambda rows, a, b: sizes.append(b - a) or part(rows, a, b))
    wide = QuantileMechanism(MEDIAN, 0, 2**60 - 1, 10_000)
    values = np.array([5, 7, 9, 11])
    assert wide.release_groups(values, np.full(4, 9), np.arange(4), 4)[:, 0].tolist() == values.tolist()
    assert sizes == [2, 2]


@pytest.mark.parametrize("flips", [True, False])
def test_values_beyond_the_bounds_count_at_them(flips: bool) -> None:
    sharp = QuantileMechanism((Fraction(1, 4), Fraction(3, 4)), 10, 13, 10_000, flips=flips)
    assert sharp.release([-5] * 8 + [99] * 8).tolist() == [10, 13]
    assert sharp.release([2**70] * 9).tolist() == [13, 13]
    assert sharp.release(np.array([12] * 9)).tolist() == [12, 12]


def test_costs_are_held_within_a_public_range() -> None:
    for epsilon, reach in ((1, 2**60), (2**40, 2**21)):
        made = QuantileMechanism(MEDIAN, 0, 1, epsilon)
        many = np.array([2**61])
        ranks = Ranks(many * 0, many * 0, many)
        costs, part = made._costs(HALF, ranks)
        assert part == Fraction(epsilon, 2)
        assert costs.tolist() == [min(reach, 2**61)]
        costs, _ = made._costs(HALF, Ranks(many * 0, many, many * 0))
        assert costs.tolist() == [-min(reach, 2**61)]


# ---- the order of quantiles


def first_of(quantiles: list[Fraction], middle: Fraction, depth: int) -> Fraction:
    """By trying: the middle itself if it is not asked for and both sides fit below, else the nearest that fits."""
    room = 2 ** (depth - 1) - 1

    def fits(at: Fraction) -> bool:
        return all(len([q for q in quantiles if side * (q - at) > 0]) <= room for side in (-1, 1))

    if middle not in quantiles and fits(middle):
        return middle
    return min((q for q in quantiles if fits(q)), key=lambda q: (abs(q - middle), q))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_first_choice_is_nearest_to_the_middle_among_those_that_leave_room(depth: int) -> None:
    tenths = [Fraction(i, 10) for i in (1, 2, 3, 5, 7, 8, 9)]
    for chosen in product([False, True], repeat=len(tenths)):
        listed = [q for q, taken in zip(tenths, chosen, strict=True) if taken]
        if 0 < len(listed) < 2**depth:
            for middle in (HALF, Fraction(1, 4), Fraction(4, 5)):
                assert _choose_first(listed, middle, depth) == first_of(listed, middle, depth)


def test_a_tree_has_shares_of_its_parts_and_they_are_rounded_to_a_millionth() -> None:
    deciles = [Fraction(i, 10) for i in range(1, 10)]
    root = _grow_tree(deciles, Fraction(0), Fraction(1), 4)
    assert root is not None

    def check(node: Node | None, lower: Fraction, upper: Fraction) -> int:
        if node is None:
            return 0
        assert node.share == (node.quantile - lower) / (upper - lower)
        return 1 + max(check(node.below, lower, node.quantile), check(node.above, node.quantile, upper))

    assert check(root, Fraction(0), Fraction(1)) == 4
    assert set(deciles) <= {node.quantile for node in root.nodes}
    third = _grow_tree([Fraction(1, 3), Fraction(1, 2), Fraction(500_001, 10**6)], Fraction(0), Fraction(1), 2)
    assert third is not None
    assert all(node.share.denominator <= FINEST for node in third.nodes)
    assert _grow_tree([], Fraction(0), Fraction(1), 3) is None


def test_errors_of_a_tree_are_its_own_and_those_of_the_ends_of_a_part() -> None:
    leaf = Node(Fraction(1, 4), Fraction(1, 3))
    root = Node(HALF, Fraction(3, 5), leaf, Node(Fraction(3, 4), HALF))
    own = math.hypot(1.2, 0.4 * 2, 0.6 * 3)
    low = math.hypot(4 / 3, 2 / 3 * 2, 1 / 3 * own)
    high = math.hypot(1, 0.5 * own, 0.5 * 3)
    found = dict(_propagate_errors(root, 2.0, 3.0))
    assert found == pytest.approx({HALF: own, Fraction(1, 4): low, Fraction(3, 4): high}, rel=1e-12)
    alone = Order((root,), 2, 1)
    zero = dict(_propagate_errors(root, 0.0, 0.0))
    assert _average_error(alone, [HALF, Fraction(1, 4)]) == pytest.approx(
        2.2 * (zero[HALF] + zero[Fraction(1, 4)]) / 2, rel=1e-12
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_an_order_of_so_many_quantiles_has_as_many_levels_as_their_number_has_digits(count: int) -> None:
    quantiles = tuple(Fraction(i + 1, count + 1) for i in range(count))
    order = plan_order.__wrapped__(quantiles * 2)
    if order.joint:
        assert (order.choices, order.divisions) == (count.bit_length(), count.bit_length() - 1)
        assert len(order.roots) == 1
    else:
        assert (order.choices, order.divisions, len(order.roots)) == (count, 0, count)
        assert {(node.quantile, node.share) for node in order.nodes} == {(q, q) for q in quantiles}
    nested = _grow_tree(sorted(quantiles), Fraction(0), Fraction(1), count.bit_length())
    assert nested is not None
    apart = Order(tuple(Node(q, q) for q in quantiles), count, 0)
    joint = Order((nested,), count.bit_length(), count.bit_length() - 1)
    better = _average_error(joint, list(quantiles)) < _average_error(apart, list(quantiles))
    assert order.joint == (better and count > 1)


# ---- rows of many groups


def tables(rows: list[tuple[int, int, int]], groups: int) -> list[dict[int, int]]:
    """Counts of each group by value, one entry at a time."""
    found: list[dict[int, int]] = [{} for _ in range(groups)]
    for value, count, group in rows:
        found[group][value] = found[group].get(value, 0) + count
    return found


ROWS = [(5, 2, 1), (-3, 1, 0), (5, 1, 1), (0, 4, 1), (7, 1, 3), (-3, 2, 0), (0, 1, 3), (9, 3, 3)]


def counted() -> GroupCounts:
    values, counts, group = (np.array(column) for column in zip(*ROWS, strict=True))
    return GroupCounts.of(values, counts, group, 4)


def test_rows_are_counted_by_group_and_value() -> None:
    made, expected = counted(), tables(ROWS, 4)
    entries = zip(made.group.tolist(), made.values.tolist(), made.counts.tolist(), strict=True)
    assert list(entries) == [(g, v, n) for g, table in enumerate(expected) for v, n in sorted(table.items())]
    assert made.matrix(-3, 9).tolist() == [[table.get(v, 0) for v in range(-3, 10)] for table in expected]
    middle = made.part(1, 3)
    assert (middle.groups, middle.group.tolist(), middle.values.tolist()) == (2, [0, 0], [0, 5])
    assert made.part(2, 4).matrix(-3, 9).tolist() == [
        [table.get(v, 0) for v in range(-3, 10)] for table in expected[2:]
    ]
    zero = GroupCounts.of(np.array([0, 0]), np.array([3, 4]), np.array([0, 1]), 2)
    assert (zero.values.tolist(), zero.counts.tolist(), zero.group.tolist()) == ([0, 0], [3, 4], [0, 1])
    nothing = GroupCounts.of(*(np.zeros(0, dtype=np.int64),) * 3, 2)
    assert nothing.matrix(0, 1).tolist() == [[0, 0], [0, 0]]


def test_runs_hold_every_integer_between_the_ends_with_its_ranks() -> None:
    made, expected = counted(), tables(ROWS, 4)
    low, high = np.array([-5, 0, 2, -1]), np.array([-3, 8, 4, 9])
    runs = made.runs(low, high)
    assert sorted(runs.group.tolist()) == runs.group.tolist()
    for g, table in enumerate(expected):
        mine = np.flatnonzero(runs.group == g)
        assert mine.size == 2 * len(table) + 1
        seen = []
        for i in mine.tolist():
            start, width = int(runs.start[i]), int(runs.width[i])
            for x in range(start, start + width):
                seen.append(x)
                below, above = (sum(n for v, n in table.items() if side * (v - x) > 0) for side in (-1, 1))
                ranks = (int(runs.ranks.below[i]), int(runs.ranks.equal[i]), int(runs.ranks.above[i]))
                assert ranks == (below, table.get(x, 0), above)
        assert seen == list(range(int(low[g]), int(high[g]) + 1))


@pytest.mark.parametrize("ties", [-2, 0, 1, 2, 9])
@pytest.mark.parametrize("at", [-3, 0, 5, 6])
def test_rows_are_divided_at_a_value_and_ties_as_told(at: int, ties: int) -> None:
    made, expected = counted(), tables(ROWS, 4)
    below, above = made.divide_at(np.full(4, at), np.full(4, ties))
    for g, table in enumerate(expected):
        down = min(max(ties, 0), table.get(at, 0))
        left = {v: n for v, n in table.items() if v < at} | ({at: down} if at in table else {})
        right = {v: n for v, n in table.items() if v > at} | ({at: table[at] - down} if at in table else {})
        for part, wanted in ((below, left), (above, right)):
            mine = part.group == g
            assert dict(zip(part.values[mine].tolist(), part.counts[mine].tolist(), strict=True)) == wanted
    smaller, total = made.beside(np.full(4, at))
    assert smaller.tolist() == [sum(n for v, n in table.items() if v < at) for table in expected]
    assert total.tolist() == [sum(table.values()) for table in expected]
    share = Fraction(2, 7)
    assert count_ties_below(made, np.full(4, at), share).tolist() == [
        2 * n - 7 * s for n, s in zip(total.tolist(), smaller.tolist(), strict=True)
    ]


# ---- what a mechanism says of itself


def test_choices_say_what_they_are_and_draw_once() -> None:
    scores = [3, 9, 4, 9, 1]
    costs = [9 - score for score in scores]
    sharp, flipped = ExponentialMechanism("1/2", 2, monotonic=True), NoisyMaxMechanism("1/2", 2)
    assert (sharp.event, flipped.event) == (SelectionEvent("1/2", bounded_range=True), SelectionEvent("1/2"))
    assert (sharp.unit, flipped.unit) == (Fraction(1, 4), Fraction(1, 8))
    for seed in range(20):
        one, other = (
            draw(costs, made.unit, 1, entropy=SeededEntropy(seed))
            for draw, made in ((exponential_choice, sharp), (permute_and_flip, flipped))
        )
        assert sharp.release(scores, SeededEntropy(seed)) == one[0]
        assert flipped.release(scores, SeededEntropy(seed)) == other[0]
    assert sharp.accuracy(0.05, 10) == math.floor(4 * math.log(200))
    assert flipped.accuracy(0.05, 10) == math.floor(8 * math.log(200))


def test_a_root_of_many_digits_is_used_whole() -> None:
    """Rounded to twelve digits it would be a little less."""
    root = Fraction(123_456_789_012_345, 10**14)
    assert selection.epsilon_of_bounded_range(ZCDP(root**2 / 8)) == root
    assert epsilon_of(ZCDP(root**2 / 2)) == root


def test_the_sensitivity_of_gaussian_noise_is_a_root_rounded_up() -> None:
    assert GaussianMechanism(9, 4).sensitivity == 2
    assert GaussianMechanism(9, 2).sensitivity == sqrt_above(Fraction(2)) > Fraction(1_414_213_562, 10**9)


def test_rows_are_divided_for_choices_on_either_side() -> None:
    leaf = Node(HALF, HALF)
    assert not leaf.divides
    assert Node(HALF, HALF, below=leaf).divides
    assert Node(HALF, HALF, above=leaf).divides


def test_the_ranks_of_a_group_without_values_are_none_wherever_it_stands() -> None:
    made = GroupCounts.of(np.array([4, 6]), np.array([2, 3]), np.array([1, 1]), 3)
    runs = made.runs(np.zeros(3, dtype=np.int64), np.full(3, 9))
    assert runs.group.tolist() == [0, 1, 1, 1, 1, 1, 2]
    assert (runs.ranks.below.tolist(), runs.ranks.equal.tolist(), runs.ranks.above.tolist()) == (
        [0, 0, 0, 2, 2, 5, 0],
        [0, 0, 2, 0, 3, 0, 0],
        [0, 5, 3, 3, 0, 0, 0],
    )
