"""Integer enclosures and fixed-point values of exp(-gamma), against decimals of 120 digits."""

from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deniable.dp.samplers.bernoulli import exp_floor
from deniable.dp.samplers.entropy import Reader
from deniable.dp.samplers.exponential import (
    ONE,
    SLACK,
    Exponents,
    _series,
    exp_fixed,
    exp_minus,
    multiply,
    powers,
    require_integers,
    settle_below,
)
from deniable.dp.samplers.gaussian import TwoSidedLaw
from deniable.dp.samplers.laplace import TopLaw
from deniable.errors import ParameterError

GAMMAS = st.fractions(min_value=0, max_value=60, max_denominator=10**12)


def scaled_exp(gamma: Fraction, bits: int) -> Decimal:
    """2**bits * exp(-gamma) with 120 digits."""
    with localcontext() as context:
        context.prec = 120
        return (Decimal(-gamma.numerator) / Decimal(gamma.denominator)).exp() * Decimal(2) ** bits


class Fixed:
    """Entropy whose every byte is the same, so that the continuation of U is known."""

    def __init__(self, byte: int) -> None:
        self.byte = byte

    def take(self, count: int) -> bytes:
        return bytes([self.byte]) * count


@given(GAMMAS, st.sampled_from([1, 16, 48, 80, 200]))
@settings(max_examples=300, deadline=None)
def test_the_enclosure_holds_the_truth_and_is_narrow(gamma: Fraction, precision: int) -> None:
    low, high = exp_minus(gamma, precision)
    assert low <= scaled_exp(gamma, precision) <= high
    assert high - low <= 3


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 10**40), Fraction(10**6), Fraction(79), Fraction(81)])
def test_the_enclosure_holds_at_the_extremes(gamma: Fraction) -> None:
    low, high = exp_minus(gamma, 80)
    assert low <= scaled_exp(gamma, 80) <= high


def test_powers_are_enclosed_even_after_a_thousand_steps() -> None:
    listed = powers(Fraction(1, 10**9), 1024, 80)
    low, high = listed[1023]
    assert low <= scaled_exp(Fraction(1023, 10**9), 80) <= high
    assert high - low < 2**13


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=50, max_denominator=10**9), st.integers(1, 150))
@settings(max_examples=200, deadline=None)
def test_binary_digits_of_exp_are_the_true_ones(gamma: Fraction, bits: int) -> None:
    assert exp_floor(gamma, bits) == int(scaled_exp(gamma, bits).to_integral_value(ROUND_FLOOR))


@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(1), Fraction(7, 2)])
def test_an_undecided_comparison_follows_the_bits_that_come_next(gamma: Fraction) -> None:
    # The word that holds exp(-gamma) is undecided; its continuation 00... lies below the threshold, 11... above.
    word = exp_floor(gamma, 32)
    enclose = lambda precision: exp_minus(gamma, precision)  # noqa: E731
    assert settle_below(word, 32, enclose, Reader(Fixed(0x00))) is True
    assert settle_below(word, 32, enclose, Reader(Fixed(0xFF))) is False
    assert settle_below(word - 1, 32, enclose, Reader(Fixed(0xFF))) is True
    assert settle_below(word + 1, 32, enclose, Reader(Fixed(0x00))) is False


def test_fixed_point_values_keep_their_promised_distance_from_the_truth() -> None:
    generator = np.random.default_rng(1)
    edges = [0, 1, ONE // 2, ONE - 1]
    fraction = np.array([*edges, *generator.integers(0, ONE, 2000)], dtype=np.uint64)
    for whole in (0, 1, 2, 10, 22, 23, 24, 25, 10**9):
        near = exp_fixed(np.full(fraction.size, whole, dtype=np.int64), fraction)
        for value, part in zip(near.tolist(), fraction.tolist(), strict=True):
            truth = scaled_exp(whole + Fraction(part, ONE), 32) if whole < 100 else Decimal(0)
            assert abs(value - truth) <= SLACK - 10 - 1  # ten more units are left for an inexact fraction


@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=5),
    st.fractions(min_value=0, max_value=2**15, max_denominator=2**70),
)
@example([0], Fraction(10980544270546161625, 493435421272703))
@settings(max_examples=300, deadline=None)
def test_exponents_are_split_into_an_exact_whole_and_a_close_fraction(costs: list[int], unit: Fraction) -> None:
    exponents = Exponents.of(costs, unit)
    for i, cost in enumerate(costs):
        gamma = cost * unit
        assert exponents.exact(i) == gamma
        assert int(exponents.whole[i]) == gamma.numerator // gamma.denominator
        assert abs(int(exponents.fraction[i]) - exponents.exact_fraction(i) * ONE) <= 10


def test_exponents_refuse_floats_negatives_and_giants() -> None:
    for costs, unit in (([0.5], Fraction(1)), ([-1], Fraction(1)), ([2**61], Fraction(2)), ([[1]], Fraction(1))):
        with pytest.raises(ParameterError):
            Exponents.of(costs, unit)


def test_arrays_are_taken_as_64_bit_integers_or_refused() -> None:
    largest = np.array([0, 2**63 - 1], dtype=np.uint64)
    assert require_integers(largest, "costs").tolist() == [0, 2**63 - 1]
    assert require_integers(largest, "costs").dtype == np.int64
    assert require_integers(np.array([-(2**63)]), "costs").tolist() == [-(2**63)]
    assert require_integers([], "costs").tolist() == []
    with pytest.raises(ParameterError, match=r"costs has an entry of 2\*\*63 or more"):
        require_integers(np.array([2**63], dtype=np.uint64), "costs")
    for wrong in (np.array([[1]]), np.array(1), np.array([1.0]), np.array([True])):
        with pytest.raises(ParameterError, match="costs is not a one-dimensional array of integers"):
            require_integers(wrong, "costs")


def test_exponents_are_refused_by_their_reason_and_taken_up_to_the_last_one() -> None:
    for costs, unit, told in (
        ([3, -1], Fraction(1), "A cost is negative"),
        ([2**61], Fraction(2), "2\\*\\*62 or more"),
        ([1], Fraction(2**62), "2\\*\\*62 or more"),
    ):
        with pytest.raises(ParameterError, match=told):
            Exponents.of(costs, unit)
    for costs, unit in (
        ([2**62 - 1], Fraction(1)),
        ([0], Fraction(2**62)),
        ([], Fraction(1)),
        ([5], Fraction(1, 2**70)),
    ):
        made = Exponents.of(costs, unit)
        assert [made.exact(i) for i in range(len(costs))] == [cost * unit for cost in costs]
    some = Exponents.of([3, 5, 7], Fraction(1, 2)).at(np.array([2, 0]))
    assert (some.costs.tolist(), some.whole.tolist(), some.exact_fraction(0)) == ([7, 3], [3, 1], Fraction(1, 2))


@given(GAMMAS, st.sampled_from([16, 64, 200]))
@settings(max_examples=100, deadline=None)
def test_an_enclosure_is_at_most_two_units_wide(gamma: Fraction, precision: int) -> None:
    low, high = exp_minus(gamma, precision)
    assert 0 <= high - low <= 2


def test_products_are_rounded_outwards_and_a_series_ends_within_a_unit() -> None:
    assert multiply((3, 5), (7, 7), 2) == (5, 9)
    assert multiply((4, 4), (8, 8), 2) == (8, 8)
    for x in (1, 5 << 10, 1 << 15, 1 << 16):
        low, high = _series((x, x), 16)
        truth = scaled_exp(Fraction(x, 1 << 16), 16)
        assert low <= truth <= high
        assert high - low <= 14


@pytest.mark.parametrize("precision", [20, 80])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(8), Fraction(15)])
def test_laws_list_outcomes_until_their_weight_is_below_the_precision(precision: int, scale: Fraction) -> None:
    """What is left out is of the order of the precision, so hardly any draw must be settled with more of it."""
    top = TopLaw(1 / scale, Fraction(1, 7))
    listed = top.weights(precision)
    assert scaled_exp(Fraction(len(listed) // 2) / scale, precision) < 1
    half = TwoSidedLaw(scale**2, minus_zero=True)._half(precision)
    last = len(half) - 1
    assert scaled_exp(last * last / (2 * scale**2), precision) < 1
    for x, (low, high) in enumerate(half):
        assert low <= scaled_exp(x * x / (2 * scale**2), precision) <= high
    with localcontext() as context:
        context.prec = 80
        both = 2 * sum((scaled_exp(x * x / (2 * scale**2), precision) for x in range(1, 3 * last)), Decimal(0))
        for minus_zero, zeros in ((True, 2), (False, 1)):
            low, high = TwoSidedLaw(scale**2, minus_zero=minus_zero).total(precision)
            assert low <= both + zeros * Decimal(2) ** precision <= high
