"""Errors in rank: their sensitivity by brute force, and the guarantee of a choice by its exact law."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from deniable.dp.mechanisms import QuantileMechanism
from deniable.dp.mechanisms.rank_error import Ranks, compute_rank_costs
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, PureDP

QUANTILES = st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(9, 10)])
COUNTS = st.lists(st.integers(0, 4), min_size=1, max_size=7)


def costs_of(equal: list[int], q: Fraction) -> NDArray[np.int64]:
    return compute_rank_costs(Ranks.of(np.array(equal, dtype=np.int64)), q)


@settings(max_examples=200, deadline=None)
@given(COUNTS, QUANTILES, st.data())
def test_one_value_more_moves_no_cost_by_more_than_the_sensitivity(equal, q, data) -> None:
    at = data.draw(st.integers(0, len(equal) - 1))
    more = [count + (i == at) for i, count in enumerate(equal)]
    moved = np.abs(costs_of(equal, q) - costs_of(more, q)).max()
    assert moved <= max(q, 1 - q) * q.denominator


def test_no_smaller_sensitivity_would_do() -> None:
    """A value at the far end: what is on one side of the quantile moves up, the other down, each by max(q, 1 - q)."""
    for q in (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)):
        equal, far = [5] * 9, 0 if q < Fraction(1, 2) else 8
        moved = costs_of([count + (i == far) for i, count in enumerate(equal)], q) - costs_of(equal, q)
        assert {moved.max(), -moved.min()} == {max(q, 1 - q) * q.denominator}


@settings(max_examples=200, deadline=None)
@given(COUNTS, QUANTILES)
def test_a_cost_above_zero_is_the_error_in_rank_and_a_true_quantile_costs_nothing(equal, q) -> None:
    n, costs = sum(equal), [Fraction(int(cost), q.denominator) for cost in costs_of(equal, q)]
    errors = [max(sum(equal[:i]) - q * n, sum(equal[i + 1 :]) - (1 - q) * n) for i in range(len(equal))]
    assert costs == errors
    assert min(costs) <= 0


def test_a_heap_that_holds_the_median_is_preferred_to_the_gap_beside_it() -> None:
    """In halves of a value. By |below - above| alone the gap would win, with 2 against 18."""
    assert costs_of([19, 0, 20, 1], Fraction(1, 2)).tolist() == [2, 2, -2, 38]


def flipped(costs: NDArray[np.int64], part: float) -> NDArray[np.float64]:
    """The law of permute-and-flip: p_i times the integral of prod (1 - p_j + p_j t) over the others."""
    heads = np.exp(-part * (costs - costs.min()))
    points, weights = np.polynomial.legendre.leggauss(60)
    factors = 1 - heads + heads * ((points + 1) / 2)[:, np.newaxis]
    law = [heads[i] * (weights / 2) @ np.prod(np.delete(factors, i, axis=1), axis=1) for i in range(costs.size)]
    return np.array(law)


def exponential(costs: NDArray[np.int64], part: float) -> NDArray[np.float64]:
    weights = np.exp(-part * (costs - costs.min()))
    return weights / weights.sum()


def loss(law, equal: list[int], more: list[int], q: Fraction, unit: Fraction) -> float:
    """The largest privacy loss of one outcome between two neighbors."""
    part = float(unit) / q.denominator
    one, other = law(costs_of(equal, q), part), law(costs_of(more, q), part)
    return float(np.abs(np.log(one) - np.log(other)).max())


@pytest.mark.parametrize("law", [flipped, exponential])
@settings(max_examples=100, deadline=None)
@given(COUNTS, QUANTILES, st.data())
def test_no_outcome_loses_more_than_epsilon(law, equal, q, data) -> None:
    at = data.draw(st.integers(0, len(equal) - 1))
    more = [count + (i == at) for i, count in enumerate(equal)]
    epsilon = Fraction(3, 2)
    assert loss(law, equal, more, q, epsilon / (2 * max(q, 1 - q))) <= float(epsilon) + 1e-9


@pytest.mark.parametrize("law", [flipped, exponential])
def test_a_choice_that_is_half_as_careful_is_caught(law) -> None:
    """The broken twin: a unit made for half the sensitivity loses more than epsilon on some pair of neighbors."""
    q, epsilon = Fraction(1, 2), Fraction(1)
    pairs = [([k, 0, 4 - k, 1], [k, 0, 4 - k, 2]) for k in range(5)]
    assert max(loss(law, *pair, q, epsilon / (2 * q)) for pair in pairs) <= 1 + 1e-9
    assert max(loss(law, *pair, q, epsilon / q) for pair in pairs) > 1.2


def test_permute_and_flip_is_taken_where_every_integer_can_have_its_coin() -> None:
    median = ("1/2",)
    assert QuantileMechanism.within(PureDP(Fraction(1)), median, 0, 1000).flips
    assert not QuantileMechanism.within(PureDP(Fraction(1)), median, 0, 10**6).flips
    assert not QuantileMechanism.within(ZCDP(Fraction(1)), median, 0, 1000).flips
    assert QuantileMechanism.within(PureDP(Fraction(1)), median, 0, 9).event.event.bounded_range is False
    with pytest.raises(ParameterError, match="flip a coin"):
        QuantileMechanism((Fraction(1, 2),), 0, 10**6, Fraction(1), flips=True)


def test_groups_are_released_in_their_order_even_without_values() -> None:
    sharp = QuantileMechanism((Fraction(1, 2), Fraction(9, 10)), 0, 100, Fraction(10_000), flips=True)
    values, counts = np.array([70, 3, 5, 4]), np.array([1, 1, 1, 5])
    drawn = sharp.release_groups(values, counts, np.array([2, 0, 0, 0]), 3)
    assert drawn[[0, 2]].tolist() == [[4, 5], [70, 70]]
    assert ((drawn >= 0) & (drawn <= 100)).all()


def exchanges(equal: list[int]) -> list[list[int]]:
    """Every table in which one value stands elsewhere."""
    pairs = [(i, j) for i in range(len(equal)) for j in range(len(equal)) if equal[i] and i != j]
    return [[count - (k == i) + (k == j) for k, count in enumerate(equal)] for i, j in pairs]


@settings(max_examples=100, deadline=None)
@given(COUNTS, QUANTILES)
def test_a_value_that_is_exchanged_moves_no_cost_by_more_than_one(equal, q) -> None:
    for other in exchanges(equal):
        assert np.abs(costs_of(equal, q) - costs_of(other, q)).max() <= q.denominator


@pytest.mark.parametrize("law", [flipped, exponential])
def test_exchanged_values_lose_epsilon_at_most_and_nearly_so(law) -> None:
    """A unit of epsilon / 2; the broken twin has that of one value more, epsilon / (2 max(q, 1 - q))."""
    tables = [[k, 0, 9 - k, 1] for k in range(10)] + [[0, k, 8 - k, 0] for k in range(9)]
    for q in (Fraction(1, 2), Fraction(3, 5)):
        pairs = [(equal, other) for equal in tables for other in exchanges(equal)]
        assert 0.6 < max(loss(law, *pair, q, Fraction(1, 2)) for pair in pairs) <= 1 + 1e-9
        assert max(loss(law, *pair, q, 1 / (2 * max(q, 1 - q))) for pair in pairs) > 1.2


def test_a_mechanism_for_exchanged_values_is_made_for_one_group_and_no_division() -> None:
    far = QuantileMechanism.within(PureDP(Fraction(1)), ("9/10",), 0, 100, rows_per_unit=3, exchanged=True)
    assert far.sensitivity == 3
    with pytest.raises(ParameterError, match="exchanged"):
        QuantileMechanism((Fraction(1, 4), Fraction(3, 4)), 0, 100, Fraction(1), exchanged=True)
