"""Laws of the samplers without a sample: every word is tried, or every word around an exact threshold.

A test by drawing cannot see a bias smaller than its noise, nor one where it does not look. Here small sources are
enumerated whole, and thresholds are tried at every word beside them.
"""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest

from deniable.dp.samplers import (
    bernoulli,
    bernoulli_exp,
    bernoulli_exp_each,
    choice,
    exponential_choice,
    permutation,
    permute_and_flip_rows,
    uniform_below,
    uniform_below_each,
)
from deniable.dp.samplers.bernoulli import PIECE, exp_floor
from deniable.dp.samplers.choice import GroupedLayers, LayerLaw
from deniable.dp.samplers.entropy import BLOCK, Reader
from deniable.dp.samplers.exponential import SLACK
from deniable.dp.samplers.table import Table
from deniable.dp.samplers.uniform import ones_below
from spelled import Spelled, spell

# ---- uniform integers


def residues(bound: int, bits: int) -> list[int]:
    """How often each integer comes when every word of so many bits comes once."""
    words = 1 << bits
    drawn = uniform_below(bound, words, entropy=Spelled(spell(np.arange(words), bits)))
    counts = np.bincount(drawn, minlength=bound)
    counts[0] -= words % bound  # as many were drawn again, from zeros
    return counts.tolist()


@pytest.mark.parametrize("bound", range(1, 257))
def test_every_byte_gives_every_integer_below_a_bound_equally_often(bound: int) -> None:
    assert residues(bound, 8) == [256 // bound] * bound


@pytest.mark.parametrize("bound", [257, 258, 300, 511, 512, 1000, 21_845, 32_768, 32_769, 40_000, 65_535, 65_536])
def test_every_pair_of_bytes_gives_every_integer_below_a_bound_equally_often(bound: int) -> None:
    assert residues(bound, 16) == [65_536 // bound] * bound


@pytest.mark.parametrize("bound", [65_537, 3 * 2**30 // 2, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**61, 2**63 - 1, 2**63])
def test_words_from_the_uneven_rest_on_are_drawn_again_and_no_others(bound: int) -> None:
    bits = 32 if bound <= 2**32 else 64
    fair = 2**bits // bound * bound
    near = [fair + shift for shift in range(-40, 40)] + [bound + shift for shift in range(-3, 4)] + [0, 1, 2**bits - 1]
    words = [word for word in near if 0 <= word < 2**bits]
    expected = [word % bound for word in words if word < fair]
    drawn = uniform_below(bound, len(words), entropy=Spelled(spell(words, bits)))
    assert drawn.tolist() == expected + [0] * (len(words) - len(expected))


@pytest.mark.parametrize("other", ["zeros", "ones"])
def test_each_bound_takes_as_many_bits_as_can_hold_it_and_draws_again_beyond(other: str) -> None:
    """Bit 0 and the bits above those few make no difference, whether all are 0 or all are 1."""
    for bound in [*range(1, 301), 1023, 1024, 1025]:
        whole = 1 << (bound - 1).bit_length()
        unread = (1 << 64) - 2 * whole + 1 if other == "ones" else 0
        words = [value << 1 | unread for value in range(whole)]
        drawn = uniform_below_each(np.full(whole, bound), entropy=Spelled(spell(words, 64)))
        assert drawn.tolist() == [value if value < bound else 0 for value in range(whole)]


def test_ones_below_reach_to_the_highest_bit() -> None:
    values = [*range(2000), 2**61, 2**62 - 1, 2**62, 2**63 - 1]
    assert ones_below(np.array(values)).tolist() == [(1 << value.bit_length()) - 1 for value in values]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_every_order_of_keys_gives_an_order_of_its_own(n: int) -> None:
    keys = [7 << 50, 3, 1 << 63, 2, 9][:n]
    orders = {
        tuple(permutation(n, entropy=Spelled(spell(listed, 64))).tolist()) for listed in permutations(sorted(keys))
    }
    assert orders == set(permutations(range(n)))


# ---- the reader of single integers


def test_a_reader_gives_every_bit_once_and_in_order() -> None:
    block = bytes(range(7, 7 + BLOCK)), bytes(range(150, 150 + BLOCK))
    bits = "".join(f"{int.from_bytes(piece, 'little'):0{8 * BLOCK}b}" for piece in block)
    widths = [1, 3, 8, 64, 0, 200, 5, 231, 100, 1, 411]
    assert sum(widths) == len(bits) == 2 * 8 * BLOCK
    reader, read = Reader(Spelled(*block)), ""
    for width in widths:
        value = reader.integer(width)
        assert 0 <= value < 1 << width
        read += f"{value:0{width}b}" if width else ""
    assert read == bits


class Told(Reader):
    """A reader whose words are told in advance."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)
        self.asked: list[int] = []

    def integer(self, bits: int) -> int:
        self.asked.append(bits)
        return self.values.pop(0)


@pytest.mark.parametrize("bound", [*range(1, 34), 127, 128, 129, 200, 255, 256, 257])
def test_a_reader_takes_every_word_below_a_bound_and_the_next_one_for_the_others(bound: int) -> None:
    bits = (bound - 1).bit_length()
    for word in range(1 << bits):
        reader = Told(word, 0)
        assert reader.below(bound) == (word if word < bound else 0)
        assert reader.asked == [bits] * (1 if word < bound else 2)


@pytest.mark.parametrize("denominator", [1, 2, 3, 5, 8])
def test_a_coin_shows_heads_for_as_many_words_as_its_numerator(denominator: int) -> None:
    for numerator in range(denominator + 1):
        heads = sum(Told(word).coin(numerator, denominator) for word in range(denominator))
        assert heads == numerator


# ---- coins


HEADS = {
    "a third": (bernoulli, Fraction(1, 3), lambda bits: (1 << bits) // 3),
    "five sevenths": (bernoulli, Fraction(5, 7), lambda bits: (5 << bits) // 7),
    "exp(-1)": (bernoulli_exp, Fraction(1), lambda bits: exp_floor(Fraction(1), bits)),
    "exp(-22/7)": (bernoulli_exp, Fraction(22, 7), lambda bits: exp_floor(Fraction(22, 7), bits)),
}


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("name", HEADS)
def test_every_word_at_every_level_gives_heads_as_often_as_the_digits_say(name: str, level: int) -> None:
    """So many words tie with the digits of the bias; the next one takes all its values, and those after it are 0."""
    coin, parameter, floor = HEADS[name]
    digits = [floor(16 * (k + 1)) & 0xFFFF for k in range(level + 1)]
    tied = [spell(np.full(1 << 16, digit), 16) for digit in digits[:level]]
    heads = coin(parameter, 1 << 16, entropy=Spelled(*tied, spell(np.arange(1 << 16), 16)))
    # A word below the digit is heads; one equal to it ties once more, and the zeros that follow lie below the rest.
    assert np.flatnonzero(heads).tolist() == list(range(digits[level] + 1))


@pytest.mark.parametrize("unit", [Fraction(1, 7), Fraction(1), Fraction(10**9 + 7, 3 * 10**9), Fraction(1, 10**40)])
def test_coins_of_one_exponent_each_turn_at_the_exact_word(unit: Fraction) -> None:
    """All words within three slacks of the threshold, where the near value alone would be wrong, and both ends."""
    for cost in (1, 2, 7, 13, 100, 161):
        gamma = cost * unit
        limit = exp_floor(gamma, 32)
        near = [word for word in range(limit - 3 * SLACK, limit + 3 * SLACK) if 0 <= word < 1 << 32]
        words = [0, *near, (1 << 32) - 1]
        heads = bernoulli_exp_each([cost] * len(words), unit, entropy=Spelled(spell(words, 32)))
        # U is the word itself, zeros following: at the threshold's own word it lies below, as exp is irrational.
        assert heads.tolist() == [word <= limit for word in words]


def test_coins_beyond_the_first_piece_are_settled_with_their_own_exponent() -> None:
    """Coins are flipped in pieces; a piece of exponent 1 stands before the words that are tried with exponent 2."""
    limit = exp_floor(Fraction(2), 32)
    words = list(range(limit - SLACK, limit + SLACK))
    first = [(1 << 32) - 1] * PIECE
    source = Spelled(spell(first, 32), spell(words, 32))
    heads = bernoulli_exp_each([1] * PIECE + [2] * len(words), 1, entropy=source)
    assert heads[PIECE:].tolist() == [word <= limit for word in words]
    assert not heads[:PIECE].any()


# ---- choices


CHOICES = [
    ([3, 0, 1, 12, 5, 1], [10, 1, 4, 7, 0, 3], Fraction(3, 4)),
    ([0, 0, 0], [1, 2, 3], Fraction(1)),
    ([5, 2, 2, 9], [1, 1, 1, 1], Fraction(1, 100)),
    ([0, 4, 8, 4], [2, 1, 9, 1], Fraction(5, 2)),
]


@pytest.mark.parametrize(("costs", "widths", "unit"), CHOICES)
def test_within_a_layer_every_place_belongs_to_one_candidate(
    costs: list[int], widths: list[int], unit: Fraction
) -> None:
    """A layer's law is proven with the tables; its places are tried one by one, and then the coin that keeps them."""
    least = min(costs)
    whole = [int((cost - least) * unit) for cost in costs]
    levels = sorted({level for level, width in zip(whole, widths, strict=True) if width})
    law = LayerLaw(
        tuple(level - levels[0] for level in levels),
        tuple(sum(w for level, w in zip(whole, widths, strict=True) if level == at) for at in levels),
    )
    table = Table(law)
    for k, level in enumerate(levels):
        inside = [i for i, at in enumerate(whole) if at == level]
        size = sum(widths[i] for i in inside)
        word = (int(table._ceilings[k]) + int(table._floors[k])) // 2  # amid the words that mean this layer
        prefix, rest = [spell([part] * size, bits) for part, bits in ((word >> 32, 16), (word & 0xFFFFFFFF, 32))]
        places = spell([2 * place for place in range(size)], 64)
        drawn = exponential_choice(costs, unit, size, widths=widths, entropy=Spelled(prefix, rest, places))
        assert Counter(drawn.tolist()) == Counter({i: widths[i] for i in inside if widths[i]})
        for i in (i for i in inside if widths[i]):
            limit = exp_floor((costs[i] - least) * unit - level, 32) if (costs[i] - least) * unit > level else 1 << 32
            place = spell([2 * drawn.tolist().index(i)], 64)
            for coin in (limit - 40, limit - 1, limit + 1, limit + 40):
                if 0 <= coin < 1 << 32:
                    source = Spelled(prefix[:2], rest[:4], place, spell([coin], 32), spell([1 << 31], 32))
                    kept = _propose_one(costs, widths, unit, source)
                    assert (kept == [i]) == (coin <= limit)


def _propose_one(costs: list[int], widths: list[int], unit: Fraction, source: Spelled) -> list[int]:
    exponents = choice._shift_exponents(costs, unit)
    layers = choice._build_layers(exponents, np.array(widths))
    return choice._propose(layers, exponents, source, 1).tolist()


def test_the_heads_of_a_row_are_chosen_equally_often() -> None:
    for heads in product((False, True), repeat=4):
        shown = [i for i, head in enumerate(heads) if head]
        for place, i in enumerate(shown):
            source = Spelled(spell([2 * place], 64))
            assert choice._choose_one(np.array([heads]), source).tolist() == [i]


def test_rows_flip_their_own_coins_and_choose_among_the_allowed_alone() -> None:
    """Word 0 is heads for everybody; the highest word is heads for the cheapest alone, whose exponent is 0."""
    costs = np.array([[4, 2, 9], [1, 1, 8], [7, 0, 3]])
    allowed = np.array([[True, True, True], [True, False, True], [True, False, True]])
    expected = {0: [[0, 1, 2], [0, 2], [0, 2]], (1 << 32) - 1: [[1], [0], [2]]}
    for word, candidates in expected.items():
        for places in product(*(range(len(each)) for each in candidates)):
            source = Spelled(spell([word] * 9, 32), spell([2 * place for place in places], 64))
            drawn = permute_and_flip_rows(costs, Fraction(1), allowed=allowed, entropy=source)
            assert drawn.tolist() == [each[place] for each, place in zip(candidates, places, strict=True)]


def exact_ceilings(levels: list[int], sizes: list[int], bits: int) -> list[int]:
    """The least word of so many bits from which on a layer and all before it are passed."""
    with localcontext() as context:
        context.prec = 120
        weights = [size * (-Decimal(level)).exp() for level, size in zip(levels, sizes, strict=True)]
        shares = [sum(weights[: k + 1]) / sum(weights) * 2**bits for k in range(len(weights))]
        return [int(share.to_integral_value(ROUND_CEILING)) for share in shares[:-1]] + [1 << bits]


@pytest.mark.parametrize("top", [25, 3])
def test_many_groups_invert_their_laws_at_the_exact_words(top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "TOP", top)
    groups = [([0, 1, 5], [3, 1, 10**6]), ([0], [9]), ([0, 2, 3, 40], [1, 1, 2, 2**40]), ([0, 300], [1, 7])]
    whole = np.array([level for levels, _ in groups for level in levels])
    widths = np.array([size for _, sizes in groups for size in sizes])
    layers = GroupedLayers.of(whole, widths, np.repeat(np.arange(4), [len(levels) for levels, _ in groups]))
    first = np.searchsorted(layers.group, np.arange(4))
    for g, (levels, sizes) in enumerate(groups):
        ceilings = exact_ceilings(levels, sizes, choice.WORD)
        near = {limit + shift for limit in [0, *ceilings] for shift in (-(1 << 20), -300, -2, -1, 0, 1, 2, 300)}
        words = sorted(word for word in near if 0 <= word < 1 << choice.WORD)
        drawn = [_draw_layer(layers, g, word) for word in words]
        # U is the word itself, zeros following.
        assert drawn == [int(first[g]) + sum(limit <= word for limit in ceilings) for word in words]


def _draw_layer(layers: GroupedLayers, group: int, word: int) -> int:
    return int(layers.draw(np.array([group]), Spelled(spell([word << 32 - choice.WORD], 32)))[0])
