"""Which way a draw takes, how much entropy it asks for, and every limit of what can be drawn; laws told by formula.

All ways follow the same law, so a sample cannot tell them apart; the bytes that are asked for can.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from deniable.dp.samplers import (
    bernoulli,
    bernoulli_exp,
    bernoulli_exp_each,
    choice,
    discrete_gaussian,
    discrete_laplace,
    exponential_choice,
    exponential_choice_groups,
    gaussian,
    geometric,
    laplace,
    permute_and_flip,
    permute_and_flip_rows,
    uniform_below,
    uniform_below_each,
)
from deniable.dp.samplers import table as table_module
from deniable.dp.samplers.bernoulli import exp_floor
from deniable.dp.samplers.choice import DEEPEST, TOP, WORD, GroupedLayers, LayerLaw
from deniable.dp.samplers.entropy import BLOCK, CHUNK
from deniable.dp.samplers.exponential import exp_minus
from deniable.dp.samplers.gaussian import FARTHEST, TwoSidedLaw
from deniable.dp.samplers.laplace import TopLaw
from deniable.dp.samplers.table import Table
from deniable.errors import ParameterError
from seeded import SeededEntropy

bernoulli_module = sys.modules["deniable.dp.samplers.bernoulli"]  # the package has a function of this name
Draw = Callable[..., NDArray[np.int64]]


class Watched:
    """Entropy that writes down how many bytes each look takes; prepared pieces come first, then a seed's bytes."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces, self.seeded, self.taken = list(pieces), SeededEntropy(11), list[int]()

    def take(self, count: int) -> bytes:
        self.taken.append(count)
        if self.pieces:
            piece = self.pieces.pop(0)
            assert len(piece) == count
            return piece
        return self.seeded.take(count)


def watch(draw: Draw, *arguments: object, pieces: tuple[bytes, ...] = (), **named: object) -> list[int]:
    source = Watched(*pieces)
    draw(*arguments, entropy=source, **named)
    return source.taken


def words(values: list[int], bits: int) -> bytes:
    return np.array(values, dtype=f"<u{bits // 8}").tobytes()


# ---- one by one, from a table, or in blocks


@pytest.mark.parametrize("draw", [discrete_laplace, geometric, discrete_gaussian])
def test_fewer_than_256_draws_are_made_one_by_one_and_more_from_a_table(draw: Draw) -> None:
    assert set(watch(draw, Fraction(10), 255)) == {BLOCK}
    assert watch(draw, Fraction(10), 256)[:2] == [2 * 256, 4 * 256]


@pytest.mark.parametrize(
    ("draw", "largest", "name"),
    [(discrete_laplace, 2**52, "scale"), (geometric, 2**52, "scale"), (discrete_gaussian, 2**104, "sigma_squared")],
)
def test_noise_is_drawn_up_to_its_largest_scale(draw: Draw, largest: int, name: str) -> None:
    assert draw(largest, 1).size == draw(Fraction(1, 10**9), 1).size == 1
    assert draw(1, 0).tolist() == []
    for wrong in (largest + Fraction(1, 10**9), largest + 1, 0, -1, Fraction(-1, 10**9)):
        with pytest.raises(ParameterError, match=rf"{name} is not in \(0, {largest}\]"):
            draw(wrong, 1)
    for size in (-1, 2**40 + 1, True, 1.0):
        with pytest.raises(ParameterError, match="size is not usable"):
            draw(1, size)
    for inexact in (1.0, "1", True):
        with pytest.raises(ParameterError, match="which is not exact"):
            draw(inexact, 1)


def test_gaussian_noise_is_drawn_from_a_table_in_blocks_or_one_by_one_by_its_sigma() -> None:
    """Blocks of two integers take a byte for the place inside; the widest blocks take four."""
    tiny = Fraction(1, 10**6)
    assert watch(discrete_gaussian, 64**2 - tiny, 300)[:3] == [600, 1200]
    assert watch(discrete_gaussian, 64**2, 300)[:3] == [600, 1200, 300]
    widest = (64 << 26) ** 2
    assert watch(discrete_gaussian, widest - tiny, 300)[:3] == [600, 1200, 1200]
    assert set(watch(discrete_gaussian, widest, 300)) == {BLOCK}


@pytest.mark.parametrize(("bits", "width"), [(1, 1), (8, 1), (9, 2), (16, 2), (17, 4), (26, 4)])
def test_the_place_in_a_block_takes_the_fewest_whole_bytes(bits: int, width: int) -> None:
    sigma = 64 << bits - 1
    assert gaussian._build_blocks(Fraction(sigma**2)).bits == bits
    assert watch(discrete_gaussian, sigma**2, 256)[:3] == [512, 1024, 256 * width]


@pytest.mark.parametrize(("size", "guided"), [(4095, False), (4096, True)])
def test_a_guide_spares_the_rest_of_a_word_from_4096_draws_on(size: int, guided: bool) -> None:
    source = Watched()
    Table(LayerLaw((0, 1), (1, 1))).draw(size, source)
    assert source.taken[0] == 2 * size
    assert (len(source.taken) == 1 or source.taken[1] < size) == guided
    if not guided:
        assert source.taken[1] == 4 * size


LAWS = [
    LayerLaw((0, 1), (1, 1)),
    LayerLaw((0,), (5,)),
    TwoSidedLaw(Fraction(9), minus_zero=False),
    TopLaw(Fraction(1, 3), Fraction(1, 3)),
]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_guide_tells_an_outcome_where_all_words_of_a_prefix_mean_it_and_nowhere_else(law: object) -> None:
    table = Table(law)  # type: ignore[arg-type]
    floors, ceilings = table._floors.tolist(), table._ceilings.tolist()
    expected = np.full(1 << 16, -1)
    for k, (least, most) in enumerate(zip(ceilings, floors, strict=False)):
        first, last = -(-least >> 32), most >> 32
        expected[first : max(first, last)] = k
    assert table._guide.tolist() == expected.tolist()


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_a_word_is_settled_by_the_law_only_where_it_is_not_certain(
    law: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[int] = []
    monkeypatch.setattr(table_module, "settle", lambda law, word, bits, reader: settled.append(word) or 77)
    table = Table(law)  # type: ignore[arg-type]
    floors, ceilings = table._floors.tolist(), table._ceilings.tolist()
    edges = {edge + off for edge in (*floors[:9], *ceilings[:9], floors[-1]) for off in (-1, 0, 1)}
    for word in sorted(each for each in edges if 0 <= each < 1 << 48):
        drawn = table.draw(1, Watched(words([word >> 32], 16), words([word & 0xFFFFFFFF], 32))).tolist()
        certain = [k for k, floor in enumerate(floors) if ceilings[k] <= word < floor]
        assert (drawn, settled) == (certain or [77], [] if certain else [word])
        settled.clear()


# ---- how far laws are listed, and what is left out of them


@pytest.mark.parametrize("precision", [2, 4, 8, 80, 176])
@pytest.mark.parametrize("variance", [Fraction(1, 7), Fraction(1), Fraction(5), Fraction(50), Fraction(4095)])
def test_a_gaussian_law_lists_what_its_precision_shows_and_bounds_the_rest(variance: Fraction, precision: int) -> None:
    law = TwoSidedLaw(variance, minus_zero=True)
    half = law._half(precision)
    last = len(half) - 1
    assert (last - 2) ** 2 <= Fraction(7, 5) * precision * variance < (last - 1) ** 2
    assert len(law.weights(precision)) == 2 * last
    low, high = law.total(precision)
    listed = law.weights(precision)
    assert low == sum(each for each, _ in listed)
    assert high - sum(each for _, each in listed) == 2 * half[-1][1] * (2 + int(variance))


@pytest.mark.parametrize("precision", [16, 80, 176])
@pytest.mark.parametrize("gamma", [Fraction(1, 16), Fraction(3, 7), Fraction(1), Fraction(9)])
def test_a_top_digit_is_listed_until_seven_tenths_of_the_precision(gamma: Fraction, precision: int) -> None:
    count = len(TopLaw(gamma, None).weights(precision)) // 2
    assert count - 2 <= Fraction(7, 10) * precision / gamma < count - 1


@pytest.mark.parametrize(
    ("levels", "sizes", "finite"),
    [((0, 2), (1, 1), True), ((0, 3), (1, 1), False), ((0, 3), (1, 3), True), ((0, 2, 9), (1, 1, 300), True)],
)
def test_layers_are_finite_up_to_the_level_that_no_precision_leaves_out(
    levels: tuple[int, ...], sizes: tuple[int, ...], finite: bool
) -> None:
    law = LayerLaw(levels, sizes)
    assert law.finite == finite
    assert (len(law.weights(0)) == len(levels)) == finite


@pytest.mark.parametrize("level", [9, 10, 11])
def test_a_layer_is_listed_while_it_can_be_seen_and_weighs_a_unit_beyond(level: int) -> None:
    law, precision = LayerLaw((0, level), (1, 2)), 8  # the whole size 3 has 2 bits: level 10 is the last one seen
    (one, _), (low, high) = exp_minus(Fraction(0), precision), exp_minus(Fraction(level), precision)
    seen = level <= 10
    assert law.weights(precision) == [(one, one), (2 * low, 2 * high)][: 2 if seen else 1]
    assert law.total(precision) == ((one + 2 * low, one + 2 * high) if seen else (one, one + 1))


@pytest.mark.parametrize("sigma", [64, 65, 127, 128, 1000, 65_535, 65_536, 2**20 - 1, 2**25, (64 << 26) - 1])
def test_blocks_keep_31_bits_of_a_weight_and_32_of_the_rate(sigma: int) -> None:
    for variance in (Fraction(sigma**2), sigma**2 + Fraction(1, 3)):
        blocks = gaussian._build_blocks.__wrapped__(variance)
        assert 2 ** (blocks.bits - 1) <= Fraction(isqrt(int(variance)), 64) < 2**blocks.bits
        assert blocks.lost == max(0, 2 * blocks.bits - 20)
        assert blocks.places + blocks.lost == 2 * blocks.bits + 11
        exactly = Fraction(2) ** (32 + blocks.lost + blocks.places) / (2 * variance)
        assert blocks.rate <= exactly < blocks.rate + 1
        assert 2**30 <= blocks.rate <= 2**32
        law = blocks.table._law
        assert (law.variance, law.minus_zero) == (variance / 4**blocks.bits, True)


def test_a_pair_is_kept_on_16_bits_alone_only_where_they_leave_four_units_for_roundings() -> None:
    blocks = gaussian._build_blocks(Fraction(10**12))
    block, offset = (each.ravel() for each in np.meshgrid(np.arange(40), np.arange(1 << blocks.bits)))
    weight = offset * (offset + (block << blocks.bits + 1))
    exponent = (weight >> blocks.lost) * blocks.rate >> blocks.places
    for rest, alone in ((-5, True), (-4, True), (-3, False), (-2, False)):
        at = int(np.flatnonzero((exponent - rest) % (1 << 16) == 0)[-1])
        first = ((1 << 32) + rest - int(exponent[at]) >> 16) - 1  # (first + 1) << 16 is the room up to 1, but for rest
        for word, enough in ((first, alone), (first - 1, True), (first + 1, False)):
            source = Watched(words([word], 16))
            gaussian._keep(blocks, block[at : at + 1], offset[at : at + 1], source)
            assert (sum(source.taken) == 2) == enough
            assert source.taken[1] == (0 if enough else 2)


@pytest.mark.parametrize(("block", "asked"), [(FARTHEST - 1, False), (FARTHEST, True), (FARTHEST + 1, True)])
def test_blocks_far_out_are_settled_in_whole_numbers(block: int, asked: bool) -> None:
    """At place 0 of a block gamma is 0 and any word keeps the pair; far out that is decided with 32 bits of it."""
    blocks = gaussian._build_blocks(Fraction(10**8))
    source = Watched(words([7], 16))
    assert gaussian._keep(blocks, np.array([block]), np.array([0]), source).tolist() == [True]
    assert source.taken == [2, 2 if asked else 0]


# ---- choices: pieces, limits, and the coin of each candidate


def test_rows_are_flipped_in_pieces_of_a_chunk() -> None:
    def taken(rows: int, candidates: int) -> list[int]:
        return watch(permute_and_flip_rows, np.zeros((rows, candidates), dtype=np.int64), Fraction(1))

    # Coins of cost 0 are heads without a look beyond their 32 bits; then one of them is drawn for each row.
    step = CHUNK >> 13
    assert [taken(step + 1, 1 << 13)[i] for i in (0, 1)] == [4 * CHUNK, 8 * step]
    assert 4 << 13 in taken(step + 1, 1 << 13)[2:]
    assert taken(2, CHUNK + 1)[0] == 4 * (CHUNK + 1)
    assert taken(CHUNK, 1)[0] == 4 * CHUNK
    assert permute_and_flip_rows(np.zeros((0, 0), dtype=np.int64), 1).tolist() == []


def test_each_row_is_compared_with_its_own_cheapest() -> None:
    costs = np.array([[0, 5], [3, 9], [8, 2], [7, 7 + 10**6]])
    assert permute_and_flip_rows(costs, Fraction(1000)).tolist() == [0, 0, 1, 0]
    allowed = np.array([[False, True], [True, True], [True, False], [True, True]])
    assert permute_and_flip_rows(costs, Fraction(1000), allowed=allowed).tolist() == [1, 0, 0, 0]


def test_flips_of_one_row_of_costs_are_made_for_many_draws_at_once() -> None:
    assert watch(permute_and_flip, [0, 0, 0], 1, 5)[:2] == [4 * 15, 8 * 5]
    many = [0] * (CHUNK // 2)
    assert watch(permute_and_flip, many, 1, 5)[:2] == [4 * CHUNK, 8 * 2]
    assert watch(permute_and_flip, [0] * (CHUNK + 1), 1, 2)[0] == 4 * (CHUNK + 1)


@pytest.mark.parametrize("shift", [-2, -1, 0, 1, 2])
def test_a_flip_in_a_later_draw_is_settled_with_the_cost_of_its_own_candidate(shift: int) -> None:
    """Two draws among three: the third candidate of the second draw has the only coin that is near its threshold."""
    limit, tails = exp_floor(Fraction(2), 32), (1 << 32) - 1
    coins = words([tails] * 5 + [limit + shift], 32)
    # The cheapest is always heads; among two heads of the second draw the second one is taken, if there are two.
    drawn = permute_and_flip([0, 1, 2], 1, 2, entropy=Ordered(coins, words([0, 2], 64)))
    assert drawn.tolist() == [0, 2 if shift <= 0 else 0]


class Ordered:
    """Entropy that gives each look the next piece of its own length, and zeros where there is none."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def take(self, count: int) -> bytes:
        fitting = [piece for piece in self.pieces if len(piece) == count]
        if not fitting:
            return bytes(count)
        self.pieces.remove(fitting[0])
        return fitting[0]


@pytest.mark.parametrize("draw", [exponential_choice, permute_and_flip])
def test_costs_may_differ_by_less_than_2_to_the_62(draw: Draw) -> None:
    half = Fraction(1, 2)
    assert draw([-(2**61), 2**61 - 1], half).tolist() == [0]
    assert draw([2**62 - 1, 0], half).tolist() == [1]
    for costs in ([-(2**61), 2**61], [2**62, 0], [-(2**62), 0]):
        with pytest.raises(ParameterError, match="differ by 2\\*\\*62 or more"):
            draw(costs, half)
    with pytest.raises(ParameterError, match="no candidate"):
        draw([], half)


@pytest.mark.parametrize(
    "widths", [[-1, 5], [0, 0], [2**61, 2**61], [2**62, 0], [2**62 - 1, 1], [2**61] * 2 + [0], [2**62 - 1, 2**62 - 1]]
)
def test_widths_that_cannot_be_taken_are_refused(widths: list[int]) -> None:
    with pytest.raises(ParameterError, match="The widths cannot be taken"):
        exponential_choice([0] * len(widths), 1, widths=widths)


def test_widths_are_taken_up_to_the_last_one() -> None:
    for widths in ([2**62 - 1, 0], [2**61, 2**61 - 1], [1, 0], [0, 1]):
        assert choice._require_widths(widths, 2).tolist() == widths
    assert choice._require_widths(None, 3).tolist() == [1, 1, 1]
    with pytest.raises(ParameterError, match="There are 3 costs and 2 widths"):
        choice._require_widths([1, 1], 3)


@pytest.mark.parametrize(
    "values", [[2**62 - 1] * 9, [2**31, 2**31 - 1, 2**30, 1], [2**33 + 2**31 + 5, 7, 2**32], [0, 2**61 + 2**30 + 3]]
)
def test_a_sum_is_exact_in_two_parts(values: list[int]) -> None:
    high, low = choice._sum_in_parts(np.array(values))
    assert (high, low) == (sum(v >> 31 << 31 for v in values), sum(v % 2**31 for v in values))


def test_groups_take_widths_below_2_to_the_62_in_all() -> None:
    two = np.array([0, 1])
    drawn = exponential_choice_groups(np.zeros(2, dtype=np.int64), 1, np.array([2**61, 2**61 - 1]), two, 2)
    assert drawn.tolist() == [0, 1]
    assert exponential_choice_groups(np.zeros(2, dtype=np.int64), 1, np.ones(2, dtype=np.int64), two, 2).tolist() == [
        0,
        1,
    ]
    with pytest.raises(ParameterError, match="The widths cannot be taken"):
        exponential_choice_groups(np.zeros(2, dtype=np.int64), 1, np.array([2**61, 2**61]), two, 2)


# ---- weights of layers in many groups, by whole numbers of any size

GROUPS = [
    ([0, 1, 5], [3, 1, 10**6]),
    ([0], [9]),
    ([0, 2, 3, 40], [1, 1, 2, 2**40]),
    ([0, DEEPEST - 1, DEEPEST, DEEPEST + 1, 900], [1, 2**50, 2**61 - 1, 5, 7]),
    ([0, DEEPEST], [1, 1]),
    ([0, DEEPEST - 1], [2**31, 2**31 - 1]),
    ([0, 3], [2**30, 2**32 + 12345]),
]


def weigh(levels: list[int], sizes: list[int], top_bits: int = TOP) -> list[tuple[int, int]]:
    """Low and high of each layer of a group: 31 bits of exp(-level) and of the size, shifted so that TOP bits stay."""
    products, exponents = [], []
    for level, size in zip(levels, sizes, strict=True):
        known = exp_minus(Fraction(min(level, DEEPEST)), 400)[0]
        cut, lost = known.bit_length() - 31, max(size.bit_length() - 31, 0)
        products.append((size >> lost) * (known >> cut))
        exponents.append(lost + cut - 400)
    top = max(p.bit_length() + e for p, e in zip(products, exponents, strict=True))
    low = [p >> min(top - top_bits - e, 62) for p, e in zip(products, exponents, strict=True)]
    return [(each, each + 2) if level < DEEPEST else (0, 1) for level, each in zip(levels, low, strict=True)]


def arrays() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    level = np.array([each for levels, _ in GROUPS for each in levels])
    sizes = np.array([each for _, listed in GROUPS for each in listed])
    return level, sizes, np.repeat(np.arange(len(GROUPS)), [len(levels) for levels, _ in GROUPS])


def test_layers_are_weighed_by_their_highest_bits() -> None:
    low, high = choice._weigh_layers(*arrays())
    expected = [pair for levels, sizes in GROUPS for pair in weigh(levels, sizes)]
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == expected


def test_layers_are_weighed_in_groups_of_any_number_and_from_any_level() -> None:
    level, sizes = np.array([0, 0, 1, DEEPEST, DEEPEST + 1]), np.array([3, 1, 2, 5, 5])
    low, high = choice._weigh_layers(level, sizes, np.array([2, 5, 5, 6, 6]))
    expected = weigh([0], [3]) + weigh([0, 1], [1, 2]) + weigh([DEEPEST, DEEPEST + 1], [5, 5])
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == expected


def test_sizes_keep_their_31_highest_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 50 bits of a weight the bits that a size loses can be seen."""
    monkeypatch.setattr(choice, "TOP", 50)
    levels, sizes = [0, 1, 2, 3], [2**31 - 1, 2**31 + 12345, 2**45 + 987654321, 2**61 - 1]
    low, high = choice._weigh_layers(np.array(levels), np.array(sizes), np.zeros(4, dtype=np.int64))
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == weigh(levels, sizes, 50)


def test_powers_are_tabulated_by_their_31_highest_bits() -> None:
    mantissas, exponents = (each.tolist() for each in choice._tabulate_powers.__wrapped__())
    assert len(mantissas) == len(exponents) == DEEPEST + 1
    for level, (mantissa, exponent) in enumerate(zip(mantissas, exponents, strict=True)):
        low, high = (Fraction(end, 1 << 600) for end in exp_minus(Fraction(level), 600))
        assert 2**30 <= mantissa < 2**31
        assert mantissa * Fraction(2) ** exponent <= high
        assert low < (mantissa + 1) * Fraction(2) ** exponent


def test_weights_are_summed_in_each_group_and_rounded_outwards() -> None:
    floors, ceilings = choice._accumulate_weights(*arrays())
    expected = []
    for g, (levels, sizes) in enumerate(GROUPS):
        pairs = weigh(levels, sizes)
        least, most = (sum(pair[i] for pair in pairs) for i in (0, 1))
        for k in range(len(pairs)):
            last = k == len(pairs) - 1 and levels[-1] < DEEPEST
            floor = (sum(low for low, _ in pairs[: k + 1]) << WORD) // most
            before = -(-(sum(high for _, high in pairs[:k]) << WORD) // least)
            expected.append(((g << 32) + (1 << WORD if last else floor), min(before, 1 << WORD)))
    assert list(zip(floors.tolist(), ceilings.tolist(), strict=True)) == expected


def test_runs_of_one_layer_are_joined_and_layers_of_two_groups_are_not() -> None:
    whole, widths, group = np.array([0, 2, 0, 2, 2, 2, 0]), np.array([1, 2, 3, 4, 5, 6, 7]), np.array([0] * 4 + [1] * 3)
    layers = GroupedLayers.of(whole, widths, group)
    assert layers.order.tolist() == [0, 2, 1, 3, 6, 4, 5]
    assert layers.ends.tolist() == [1, 4, 6, 10, 17, 22, 28]
    assert (layers.group.tolist(), layers.level.tolist()) == ([0, 0, 1, 1], [0, 2, 0, 2])
    assert (layers.starts.tolist(), layers.sizes.tolist()) == ([0, 4, 10, 17], [4, 6, 7, 11])


def test_a_layer_is_settled_by_the_law_only_where_its_words_are_not_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[int] = []
    settle = choice.settle

    def watched(law: LayerLaw, word: int, bits: int, reader: object) -> int:
        settled.append(word)
        return settle(law, word, bits, reader)  # type: ignore[arg-type]

    monkeypatch.setattr(choice, "settle", watched)
    layers = GroupedLayers.of(*arrays())
    for g in range(len(GROUPS)):
        mine = np.flatnonzero(layers.group == g).tolist()
        ends = [(int(layers.ceilings[k]), int(layers.floors[k]) - (g << 32)) for k in mine]
        tried = {edge + off for pair in ends for edge in pair for off in (-1, 0, 1)} | {1 << 30, 1 << 10}
        for word in sorted(each for each in tried if 0 <= each < 1 << WORD):
            drawn = layers.draw(np.array([g]), Watched(words([word << 32 - WORD], 32)))
            certain = [k for k, (least, most) in zip(mine, ends, strict=True) if least <= word < most]
            assert settled == ([] if certain else [word])
            assert not certain or drawn.tolist() == certain
            settled.clear()


def test_levels_and_sizes_of_layers_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        LayerLaw((0, 1), (1,)).weights(8)


# ---- uniform integers


@pytest.mark.parametrize(
    ("bound", "width"), [(1, 1), (256, 1), (257, 2), (2**16, 2), (2**16 + 1, 4), (2**32, 4), (2**32 + 1, 8), (2**63, 8)]
)
def test_a_uniform_integer_takes_the_fewest_whole_bytes(bound: int, width: int) -> None:
    assert watch(uniform_below, bound, 10)[0] == 10 * width
    for wrong in (0, -1, 2**63 + 1):
        with pytest.raises(ParameterError, match="bound"):
            uniform_below(wrong, 3)


def test_each_bound_is_drawn_again_alone() -> None:
    """Three bounds of 5 take three bits each; the word 7 is too large, 4 is not."""
    source = Watched(words([4 << 1, 7 << 1, 5 << 1], 64), words([5 << 1, 3 << 1], 64), words([1 << 1], 64))
    assert uniform_below_each(np.array([5, 5, 5]), entropy=source).tolist() == [4, 1, 3]
    assert source.taken == [24, 16, 8]


def test_draws_are_made_a_chunk_at_a_time() -> None:
    assert watch(uniform_below, 256, CHUNK + 5) == [CHUNK, 5]
    assert watch(uniform_below, 256, CHUNK) == [CHUNK]
    assert watch(uniform_below, 256, 0) == []


# ---- digits and coins


@pytest.mark.parametrize(
    "scale", [Fraction(1, 3), Fraction(7), Fraction(15), Fraction(16), Fraction(31, 2), 2**14, 2**15, 10**9, 2**52]
)
def test_a_top_digit_has_a_scale_below_sixteen_and_lower_ones_have_ten_bits(scale: Fraction) -> None:
    digits = laplace._build_digits.__wrapped__(Fraction(scale), signed=True)
    assert digits.shift == max(0, int(scale).bit_length() - 4)
    assert Fraction(scale) / 2**digits.shift < 16
    starts = list(range(0, digits.shift, 10))
    assert [start for start, _ in digits.lower] == starts
    assert [table._law.base for _, table in digits.lower] == [2 ** min(10, digits.shift - start) for start in starts]
    assert [table._law.gamma for _, table in digits.lower] == [Fraction(2**start) / scale for start in starts]
    top = digits.top._law
    assert (top.gamma, top.tilt) == (Fraction(2**digits.shift) / scale, 1 / Fraction(scale))
    assert laplace._build_digits.__wrapped__(Fraction(scale), signed=False).top._law.tilt is None
    assert (top.finite, laplace.DigitLaw(Fraction(1), 4).finite) == (False, True)


def test_the_total_of_a_digit_is_the_sum_of_its_weights() -> None:
    law = laplace.DigitLaw(Fraction(1, 3), 5)
    listed = law.weights(40)
    assert len(listed) == 5
    assert law.total(40) == (sum(low for low, _ in listed), sum(high for _, high in listed))


@pytest.mark.parametrize("coin", [bernoulli, bernoulli_exp])
def test_coins_are_flipped_in_pieces_and_only_ties_are_looked_at_further(coin: Draw) -> None:
    """Of exp(-1) and of 1/3 no word of the seed is a tie but for those that are told."""
    parameter = Fraction(1, 3) if coin is bernoulli else Fraction(1)
    first = 0x5555 if coin is bernoulli else exp_floor(Fraction(1), 16)
    source = Watched(words([first, 0, first, 9], 16), words([0, 0xFFFF], 16))
    assert coin(parameter, 4, entropy=source).tolist() == [True, True, False, True]
    assert source.taken == [8, 4]
    taken = watch(coin, parameter, (1 << 16) + 3, pieces=(bytes(2 << 16), bytes(6)))
    assert taken == [2 << 16, 6]
    assert watch(coin, Fraction(1) if coin is bernoulli else Fraction(0), 9) == []
    assert watch(coin, parameter, 0) == []


def test_binary_digits_are_asked_for_with_more_precision_until_they_are_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def enclose(gamma: Fraction, precision: int) -> tuple[int, int]:
        asked.append(precision)
        unit = 1 << precision - 8
        return (77 * unit - 1, 77 * unit) if precision < 100 else (77 * unit, 77 * unit + 1)

    monkeypatch.setattr(bernoulli_module, "exp_minus", enclose)
    assert exp_floor(Fraction(1), 8) == 77
    assert asked == [8 + 32, 8 + 96, 8 + 160][: len(asked)]
    assert len(asked) == 2


def test_exponents_of_coins_are_flipped_in_pieces() -> None:
    costs = np.zeros((1 << 16) + 3, dtype=np.int64)
    assert watch(bernoulli_exp_each, costs, 1, pieces=(bytes(4 << 16), bytes(12))) == [4 << 16, 12]
