"""Integer enclosures and fixed-point values of exp(-gamma), against decimals of 120 digits."""

from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deniable.dp.samplers.bernoulli import exp_floor
from deniable.dp.samplers.entropy import Reader
from deniable.dp.samplers.exponential import ONE, SLACK, Exponents, exp_fixed, exp_minus, powers, settle_below
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
