"""Exact inversion against brute force: cumulative weights computed with 150 digits, and U known to hundreds of bits."""

from bisect import bisect_right
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest

from deniable.dp.samplers import table as table_module
from deniable.dp.samplers.choice import LayerLaw
from deniable.dp.samplers.entropy import Reader
from deniable.dp.samplers.gaussian import TwoSidedLaw
from deniable.dp.samplers.laplace import DigitLaw, TopLaw
from deniable.dp.samplers.table import BITS, WORTH_A_GUIDE, Law, Table, accumulate_weights, settle
from seeded import SeededEntropy

FINE = 240  # bits of U in these tests


def exp(gamma: Fraction) -> Decimal:
    return (Decimal(-gamma.numerator) / Decimal(gamma.denominator)).exp()


def digit(gamma: Fraction, base: int) -> list[Decimal]:
    return [exp(j * gamma) for j in range(base)]


def top(gamma: Fraction, tilt: Fraction | None) -> list[Decimal]:
    minus = Decimal(0) if tilt is None else exp(tilt)
    return [w * s for w in digit(gamma, int(200 / gamma) + 2) for s in (Decimal(1), minus)]


def gaussian(variance: Fraction, minus_zero: bool) -> list[Decimal]:
    listed = [exp(x * x / (2 * variance)) for x in range(int(20 * variance**0.5) + 30) for _ in range(2)]
    return listed if minus_zero else [listed[0], *listed[2:]]


LAWS: list[tuple[Law, list[Decimal]]] = []
with localcontext() as context:
    context.prec = 150
    for gamma, base in ((Fraction(1, 3), 8), (Fraction(1, 10**9), 64), (Fraction(50), 4)):
        LAWS.append((DigitLaw(gamma, base), digit(gamma, base)))
    for gamma, tilt in ((Fraction(1, 12), Fraction(1, 12)), (Fraction(2), Fraction(2)), (Fraction(1, 9), None)):
        LAWS.append((TopLaw(gamma, tilt), top(gamma, tilt)))
    for variance, minus_zero in ((Fraction(1, 4), False), (Fraction(9), False), (Fraction(40), True)):
        LAWS.append((TwoSidedLaw(variance, minus_zero), gaussian(variance, minus_zero)))
    LAWS.append((LayerLaw((0, 1, 5), (3, 1, 10**6)), [Decimal(3), exp(Fraction(1)), 10**6 * exp(Fraction(5))]))
    LAWS.append((LayerLaw((0, 300), (1, 7)), [Decimal(1), 7 * exp(Fraction(300))]))
    LAWS.append((LayerLaw((0,), (5,)), [Decimal(5)]))


def thresholds(weights: list[Decimal]) -> list[int]:
    """floor(2**FINE * P(outcome <= k)) by brute force."""
    with localcontext() as context:
        context.prec = 150
        total = sum(weights)
        sums = [each / total * Decimal(2) ** FINE for each in accumulate(weights)]
        return [int(each.to_integral_value(ROUND_FLOOR)) for each in sums[:-1]] + [1 << FINE]


class Continuation:
    """Entropy that spells out one number of `bits` bits, first bits first, followed by zeros."""

    def __init__(self, value: int, bits: int) -> None:
        self.rest = value << 1024 - bits

    def take(self, count: int) -> bytes:
        piece = self.rest >> 1024 - 8 * count
        self.rest = self.rest << 8 * count & (1 << 1024) - 1
        return piece.to_bytes(count, "little")


def settled(law: Law, u: int) -> int:
    """The outcome for a U of FINE bits, of which the first BITS are the word that a table has seen."""
    word, rest = u >> FINE - BITS, u & (1 << FINE - BITS) - 1
    return settle(law, word, BITS, Reader(Continuation(rest, FINE - BITS)))


@pytest.mark.parametrize(
    ("law", "weights"), LAWS, ids=lambda each: repr(each)[:40] if not isinstance(each, list) else ""
)
def test_settling_agrees_with_brute_force_on_random_numbers_and_beside_every_threshold(
    law: Law, weights: list[Decimal]
) -> None:
    limits = thresholds(weights)
    generator = np.random.default_rng(7)
    chosen = [int.from_bytes(generator.bytes(FINE // 8), "little") for _ in range(20)]
    chosen += [limit + shift for limit in limits[:12] for shift in (-(1 << 40), 1 << 40)]
    for u in chosen:
        if 0 <= u < 1 << FINE:
            assert settled(law, u) == bisect_right(limits, u)


@pytest.mark.parametrize(
    ("law", "weights"), LAWS, ids=lambda each: repr(each)[:40] if not isinstance(each, list) else ""
)
def test_the_share_of_words_that_is_certain_for_each_outcome_is_its_probability(
    law: Law, weights: list[Decimal]
) -> None:
    # All 2**48 words counted at once: what is certain for k lies inside the exact interval, and misses almost nothing.
    table, limits = Table(law), [0, *thresholds(weights)]
    floors, ceilings = table._floors.tolist(), table._ceilings.tolist()
    for k, floor in enumerate(floors):
        low, high = limits[k] >> FINE - BITS, limits[k + 1] >> FINE - BITS
        assert low <= ceilings[k] <= low + 2
        assert high - 1 <= floor <= high


@pytest.mark.parametrize("law", [TopLaw(Fraction(1, 12), Fraction(1, 12)), TwoSidedLaw(Fraction(1000), True)])
def test_the_guide_and_the_search_give_the_same_outcome_for_every_prefix(law: Law) -> None:
    table = Table(law)
    prefix = np.arange(1 << 16, dtype=np.int64)
    guided = table._guide[prefix]
    for rest in (1 << 10, (1 << 32) - (1 << 10)):  # near both ends of the cell
        word = prefix << 32 | rest
        searched = np.searchsorted(table._floors, word, side="right")
        assert np.array_equal(guided[guided >= 0], searched[guided >= 0])
    assert np.count_nonzero(guided < 0) < 1 << 12


class Tied:
    """Entropy whose first 48 bits are a given word for each of three draws; all later bytes are the same."""

    def __init__(self, word: int, later: int) -> None:
        self.prepared = [(word >> 32).to_bytes(2, "little") * 3, (word & 0xFFFFFFFF).to_bytes(4, "little") * 3]
        self.later = later

    def take(self, count: int) -> bytes:
        return self.prepared.pop(0) if self.prepared else bytes([self.later]) * count


@pytest.mark.parametrize(("later", "outcome"), [(0x00, 0), (0xFF, 1)])
def test_a_word_on_a_threshold_is_settled_by_the_bits_that_follow(later: int, outcome: int) -> None:
    table = Table(TopLaw(Fraction(1), Fraction(1)))
    on_threshold = int(table._floors[0])
    assert table.draw(3, Tied(on_threshold, later)).tolist() == [outcome] * 3


def test_the_last_word_of_all_is_settled_far_out_in_the_tail() -> None:
    table = Table(TopLaw(Fraction(1), Fraction(1)))
    # U = 1 - 2**-48 + 2**-49 leaves exp(-h) about 2**-49, so h is about 49 log 2 = 34.
    outcomes = table.draw(3, Tied((1 << 48) - 1, 0x80))
    assert all(30 <= outcome >> 1 <= 38 for outcome in outcomes.tolist())


def test_few_and_many_draws_of_one_table_follow_one_law() -> None:
    table = Table(DigitLaw(Fraction(1, 4), 8))
    many = np.bincount(table.draw(40 * WORTH_A_GUIDE, SeededEntropy(1)), minlength=8)
    few = sum(np.bincount(table.draw(WORTH_A_GUIDE - 1, SeededEntropy(i)), minlength=8) for i in range(40))
    assert np.all(np.abs(many - few) < 6 * np.sqrt(many + few))


@pytest.mark.parametrize("bits", [8, 48])
@pytest.mark.parametrize(
    ("law", "weights"), LAWS, ids=lambda each: repr(each)[:40] if not isinstance(each, list) else ""
)
def test_cumulative_weights_are_rounded_outwards_with_32_bits_to_spare(
    law: Law, weights: list[Decimal], bits: int
) -> None:
    floors, ceilings = accumulate_weights(law, bits)
    listed, (least, most) = law.weights(bits + 32), law.total(bits + 32)
    expected_floors = [2**bits * sum(low for low, _ in listed[: k + 1]) // most for k in range(len(listed))]
    sums = [sum(high for _, high in listed[: k + 1]) for k in range(len(listed))]
    expected_ceilings = [min(-(-(2**bits) * each // least), 2**bits) for each in sums]
    if law.finite:
        expected_floors[-1] = expected_ceilings[-1] = 2**bits
    assert (floors, ceilings) == (expected_floors, expected_ceilings)
    assert Table(law)._ceilings[0] == 0


@pytest.mark.parametrize(
    ("word", "outcome"), [(0, 0), (1, 0), (2, None), (3, 1), (4, 1), (5, None), (6, None), (7, None)]
)
def test_an_outcome_is_settled_where_all_that_is_before_it_is_below_the_word(
    word: int, outcome: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Floors 2, 5 and ceilings 3, 6 of 8: words 2 and 5 may be either, 6 and 7 are beyond all that is listed."""
    asked: list[int] = []

    def accumulate_told(law: object, bits: int) -> tuple[list[int], list[int]]:
        asked.append(bits)
        return ([2, 5], [3, 6]) if bits == 3 else ([1 << bits], [1 << bits])

    monkeypatch.setattr(table_module, "accumulate_weights", accumulate_told)
    found = settle(LayerLaw((0,), (1,)), word, 3, Reader(Continuation(0, 8)))
    assert found == (outcome if outcome is not None else 0)
    assert asked == ([3] if outcome is not None else [3, 67])
