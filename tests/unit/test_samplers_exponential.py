"""Integer enclosures and fixed-point values of exp(-gamma), against decimals of 120 digits."""

from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deniable.dp.samplers import exponential
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


@pytest.mark.parametrize("precision", [16, 80])
@pytest.mark.parametrize("gamma", [Fraction(1, 10**9), Fraction(3, 7), Fraction(1), Fraction(15, 2), Fraction(31, 2)])
def test_the_series_is_taken_below_a_sixteenth_with_16_bits_to_spare(
    gamma: Fraction, precision: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halved as often as the whole part has bits, and four times more; a squaring doubles an error: a bit each."""
    asked: list[tuple[tuple[int, int], int]] = []

    def watched(x: tuple[int, int], bits: int) -> tuple[int, int]:
        asked.append((x, bits))
        return _series(x, bits)

    monkeypatch.setattr(exponential, "_series", watched)
    exp_minus(gamma, precision)
    halvings = int(gamma).bit_length() + 4
    working = precision + halvings + 16
    below = int(gamma * 2 ** (working - halvings))
    assert asked == [((below, below + 1), working)]
    assert gamma / 2**halvings < Fraction(1, 16)


def test_what_cannot_be_seen_at_a_precision_is_enclosed_by_one_unit() -> None:
    assert exp_minus(Fraction(33), 32) == exp_minus(Fraction(32), 32) == exp_minus(Fraction(10**9), 32) == (0, 1)
    assert exp_minus(Fraction(0), 32) == (1 << 32, 1 << 32)


@pytest.mark.parametrize("x", [0, 1, 5, 1 << 7, 1 << 12, 1 << 16])
def test_a_series_is_summed_term_by_term_with_its_roundings_outwards(x: int) -> None:
    one, ends = 1 << 16, ((x, x), (x, x + 1))
    for low_x, high_x in ends:
        low = high = least = most = one
        order = 0
        while most > 1:
            order += 1
            least, most = least * low_x // (order * one), -(-most * high_x // (order * one))
            low, high = (low - most, high - least) if order % 2 else (low + least, high + most)
        assert _series((low_x, high_x), 16) == (max(0, low - 1), high + 1)


class Unread(Reader):
    """A reader that gives told words of 64 bits, and fails where there is none left."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def integer(self, bits: int) -> int:
        assert bits == 64
        return self.values.pop(0)


@pytest.mark.parametrize(
    ("low", "high", "decided"),
    [
        (6 << 32, 7 << 32, True),
        ((6 << 32) - 1, 7 << 32, None),
        (4 << 32, 5 << 32, False),
        (4 << 32, (5 << 32) + 1, None),
        ((5 << 32) + 1, (5 << 32) + 2, None),
    ],
)
def test_a_comparison_is_decided_where_the_whole_interval_is_on_one_side(
    low: int, high: int, decided: bool | None
) -> None:
    """U is between 5/8 and 6/8; what is asked next is 64 bits of U and as many of the threshold."""
    asked: list[int] = []

    def enclose(precision: int) -> tuple[int, int]:
        asked.append(precision)
        return (low, high) if precision == 3 + 32 else (0, 0)

    assert settle_below(5, 3, enclose, Unread(*[7] * (decided is None))) is bool(decided)
    assert asked == ([35] if decided is not None else [35, 99])


def test_bits_of_u_are_put_behind_those_that_are_known() -> None:
    word = (5 << 64) + 7
    edges = [((word << 32, word << 32), False), ((word + 1 << 32, word + 1 << 32), True)]
    for (low, high), expected in edges:
        enclose = lambda precision, ends=(low, high): ends if precision > 35 else (5 << 32, 6 << 32)  # noqa: E731
        assert settle_below(5, 3, enclose, Unread(7)) is expected


def test_powers_are_products_rounded_outwards_and_as_many_as_asked_for() -> None:
    ratio, one = exp_minus(Fraction(1, 3), 20), (1 << 20, 1 << 20)
    assert powers(Fraction(1, 3), 0, 20) == []
    assert powers(Fraction(1, 3), 3, 20) == [one, ratio, multiply(ratio, ratio, 20)]


ROOM = 2**62


@pytest.mark.parametrize(
    ("costs", "unit", "words"),
    [
        ([1], Fraction(ROOM - 1, ROOM - 3), True),
        ([1], Fraction(ROOM + 1, ROOM - 1), False),
        ([0], Fraction(ROOM - 1), True),
        ([0], Fraction(ROOM), False),
        ([3], Fraction(1, ROOM - 1), True),
        ([3], Fraction(1, ROOM), False),
        ([2**31], Fraction(2**31 - 1, 5), True),
        ([2**31], Fraction(2**31, 5), False),
        ([], Fraction(ROOM - 1), True),
    ],
)
def test_exponents_are_split_in_words_where_products_fit(
    costs: list[int], unit: Fraction, words: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[bool] = []
    for name in ("_split_words", "_split_integers"):
        split = getattr(exponential, name)
        monkeypatch.setattr(
            exponential, name, lambda c, u, split=split, name=name: ways.append(name == "_split_words") or split(c, u)
        )
    Exponents.of(costs, unit)
    assert ways == [words]


@pytest.mark.parametrize("denominator", [1, 7, 2**31 - 1, 2**31, 2**31 + 11, 2**45 + 5, 2**61 + 1])
def test_fractions_in_words_lose_the_bits_that_do_not_fit(denominator: int) -> None:
    costs = [0, 1, 5, 12345, 2**31 + 3]
    unit = Fraction(3, denominator) if denominator % 3 else Fraction(2, denominator)
    whole, fraction = exponential._split_words(np.array(costs), unit)
    lost = max(0, unit.denominator.bit_length() - 31)
    for cost, found, part in zip(costs, whole.tolist(), fraction.tolist(), strict=True):
        assert found == cost * unit.numerator // unit.denominator
        rest = cost * unit.numerator % unit.denominator
        assert part == min(((rest >> lost) << 32) // (unit.denominator >> lost), ONE - 1)
    exact_whole, exact = exponential._split_integers(np.array(costs), unit)
    assert exact_whole.tolist() == whole.tolist()
    assert exact.tolist() == [int((cost * unit % 1) * ONE) for cost in costs]


def test_fixed_point_values_are_the_nested_series_in_whole_numbers() -> None:
    factors = [min(ONE - 1, exp_minus(Fraction(n), 32)[0]) for n in range(24)]
    for whole in (0, 1, 5, 22, 23, 24, 25, 10**9):
        # The last two show the order at which the series is cut.
        for part in (0, 1, 12345, ONE // 3, ONE // 2, ONE - 1, 3_937_606_820, 3_981_756_481):
            near = ONE
            for k in range(13, 0, -1):
                near = ONE - (part * near >> 32) // k
            expected = near * factors[whole] >> 32 if whole < 24 else 0
            assert exp_fixed(np.array([whole]), np.array([part], dtype=np.uint64)).tolist() == [expected]
