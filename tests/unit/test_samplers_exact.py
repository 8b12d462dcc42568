"""Laws of the samplers without a sample: every word is tried, or every weight is compared as an exact exponent.

A test by drawing cannot see a bias smaller than its noise, nor one where it does not look. Here small sources are
enumerated whole, thresholds are tried at every word around the exact one, and a composed draw is taken apart: each
integer must be reached in one way, and the exponents of its parts must add up to that of its law, as fractions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from itertools import permutations, product
from math import isqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from deniable.dp.samplers import (
    bernoulli,
    bernoulli_exp,
    bernoulli_exp_each,
    choice,
    exponential_choice,
    gaussian,
    laplace,
    permutation,
    permute_and_flip_rows,
    uniform_below,
    uniform_below_each,
)
from deniable.dp.samplers import entropy as scalar
from deniable.dp.samplers.bernoulli import PIECE, exp_floor
from deniable.dp.samplers.choice import GroupedLayers, LayerLaw
from deniable.dp.samplers.entropy import BLOCK, Reader
from deniable.dp.samplers.exponential import SLACK
from deniable.dp.samplers.gaussian import TwoSidedLaw
from deniable.dp.samplers.laplace import TopLaw
from deniable.dp.samplers.table import BITS, Table
from deniable.dp.samplers.uniform import ones_below


class Spelled:
    """Entropy that spells out some bytes and is 0 from there on."""

    def __init__(self, *pieces: bytes) -> None:
        self.rest = b"".join(pieces)

    def take(self, count: int) -> bytes:
        piece, self.rest = self.rest[:count], self.rest[count:]
        return piece.ljust(count, b"\x00")


def spell(values: object, bits: int) -> bytes:
    return np.asarray(values, dtype=np.dtype(f"<u{bits // 8}")).tobytes()


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


@pytest.mark.parametrize("other", [0, 1, 1 << 40, (1 << 64) - (1 << 20) + 1])
def test_each_bound_takes_as_many_bits_as_can_hold_it_and_draws_again_beyond(other: int) -> None:
    """Bit 0 and the bits above the mask make no difference: `other` holds some of them."""
    for bound in [*range(1, 301), 1023, 1024, 1025]:
        whole = 1 << (bound - 1).bit_length()
        words = [value << 1 | other for value in range(whole)]
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


# ---- noise put together from tables: each integer in one way, its exponents adding up to its own


class Outcomes(Table):
    """A table that gives told outcomes instead of drawn ones."""

    def __init__(self, listed: list[int]) -> None:
        self.listed = listed

    def draw(self, size: int, entropy: object) -> NDArray[np.int64]:
        assert size == len(self.listed)
        return np.array(self.listed, dtype=np.int64)


def edges(base: int) -> list[int]:
    return sorted({0, 1, base // 2, base - 1} & set(range(base)))


SCALES = [Fraction(1, 2), Fraction(10, 3), Fraction(15), Fraction(16), Fraction(17), Fraction(1000), Fraction(2**20, 3)]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("scale", [*SCALES, Fraction(10**9), Fraction(1 << 52)], ids=str)
def test_laplace_and_geometric_digits_have_the_exponent_of_their_integer(scale: Fraction, signed: bool) -> None:
    digits = laplace._build_digits(scale, signed=signed)
    top = digits.top._law
    assert isinstance(top, laplace.TopLaw)
    assert (top.tilt is not None) == signed
    lower = [(start, table._law) for start, table in digits.lower]
    tried = list(product(range(3), range(2) if signed else [0], *(edges(law.base) for _, law in lower)))
    drawn = laplace._draw(
        laplace.Digits(
            Outcomes([2 * h + s for h, s, *_ in tried]),
            digits.shift,
            tuple((start, Outcomes([t[2 + i] for t in tried])) for i, (start, _) in enumerate(lower)),
        ),
        Spelled(),
        len(tried),
    ).tolist()
    assert len(set(drawn)) == len(tried)
    for (h, s, *rest), x in zip(tried, drawn, strict=True):
        exponent = h * top.gamma + (s * top.tilt if s else 0)
        exponent += sum((j * law.gamma for j, (_, law) in zip(rest, lower, strict=True)), Fraction(0))
        assert exponent == abs(x) / scale
        assert x >= 0 or s


@pytest.mark.parametrize("scale", [*SCALES, Fraction(10**9), Fraction(1 << 52)], ids=str)
def test_the_digits_of_a_magnitude_leave_no_gap_and_no_overlap(scale: Fraction) -> None:
    digits = laplace._build_digits(scale, signed=True)
    reached = 0
    for start, table in digits.lower:
        assert start == reached
        assert table._law.base & table._law.base - 1 == 0
        reached += table._law.base.bit_length() - 1
    assert reached == digits.shift


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(1), Fraction(40), Fraction(4095)], ids=str)
def test_small_gaussian_outcomes_have_the_weight_of_their_integer(variance: Fraction) -> None:
    law = TwoSidedLaw(variance, minus_zero=False)
    count = 2 * isqrt(int(variance)) + 9
    drawn = gaussian._draw_small(Outcomes(list(range(count))), Spelled(), count).tolist()
    assert sorted(drawn) == list(range(-(count // 2), count // 2 + 1))
    weights = law.weights(200)
    with localcontext() as context:
        context.prec = 120
        for x, (low, high) in zip(drawn, weights, strict=False):
            truth = (-Decimal(x * x * variance.denominator) / Decimal(2 * variance.numerator)).exp() * Decimal(2) ** 200
            assert low <= truth <= high
            assert high - low < 1 << 100


@pytest.mark.parametrize(
    "variance", [Fraction(64**2), Fraction(300**2, 2), Fraction(2000**2), Fraction(9000**2)], ids=str
)
def test_large_gaussian_blocks_reach_each_integer_once_with_its_exponent(variance: Fraction) -> None:
    blocks = gaussian._build_blocks(variance)
    assert 32**2 <= blocks.table._law.variance < 64**2
    size, width = 1 << blocks.bits, 8 if blocks.bits <= 8 else 16
    tried = [(x, s, y) for x in range(3) for s in range(2) for y in range(size)]
    told = gaussian.Blocks(
        variance, blocks.bits, Outcomes([2 * x + s for x, s, _ in tried]), blocks.lost, blocks.rate, blocks.places
    )
    # Offsets as words with bits above the mask set, which make no difference; then coins of 0, which keep everything.
    high = (1 << width) - size
    drawn = gaussian._draw_large(told, Spelled(spell([y | high for *_, y in tried], width)), len(tried)).tolist()
    assert sorted(drawn) == list(range(-3 * size, 3 * size))
    weights = blocks.table._law.weights(80)
    for (x, s, _), z in zip(tried, drawn, strict=True):
        y = abs(z) - x * size
        assert weights[2 * x + s] == weights[2 * x]  # the block of minus zero is there, as heavy as that of zero
        assert (z < 0) == bool(s)
        kept = Fraction(y * (y + 2 * size * x)) / (2 * variance)  # the exponent that `_keep` is tested to have
        assert x * x / (2 * blocks.table._law.variance) + kept == z * z / (2 * variance)


# ---- single draws: the algorithms as printed, with coins and proposals as symbols


class Symbols(Reader):
    """A reader that takes told decisions, and writes down what was asked."""

    def __init__(self, *decisions: object) -> None:
        self.decisions = list(decisions)
        self.asked: list[tuple[object, ...]] = []

    def _next(self, *asked: object) -> object:
        self.asked.append(asked)
        if not self.decisions:
            raise LookupError(asked)
        return self.decisions.pop(0)

    def below(self, bound: int) -> int:
        return int(self._next("below", bound))  # type: ignore[call-overload]

    def integer(self, bits: int) -> int:
        return int(self._next("bits", bits))  # type: ignore[call-overload]


@pytest.fixture
def symbolic_coin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalar, "bernoulli_exp_once", lambda a, b, reader: reader._next("coin", Fraction(a, b)))


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(7, 3), Fraction(3, 5)], ids=str)
@pytest.mark.usefixtures("symbolic_coin")
def test_a_single_geometric_draw_pays_the_exponent_of_its_period_and_its_rest(scale: Fraction) -> None:
    """offset + period * k is drawn with exponent (offset + period k) / period, and step of them share an integer."""
    period, step = scale.numerator, scale.denominator
    exponents: dict[int, list[Fraction]] = {}
    for offset in range(period):
        for periods in range(4):
            reader = Symbols(offset, True, *[True] * periods, False)
            drawn = scalar.geometric_once(scale, reader)
            paid = sum((asked[1] for asked in reader.asked[1:-1]), Fraction(0))
            assert reader.asked[0] == ("below", period)
            assert reader.asked[-1] == ("coin", Fraction(1))
            exponents.setdefault(drawn, []).append(paid)
    for g in range(4 * period // step):
        assert sorted(exponents[g]) == [Fraction(g * step + i, period) for i in range(step)]
    thrown = Symbols(period - 1, False, 0, True, False)  # an offset whose coin fails is drawn again
    assert scalar.geometric_once(scale, thrown) == 0


def test_a_single_laplace_draw_has_either_sign_and_throws_minus_zero_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalar, "geometric_once", lambda scale, reader: reader._next("geometric", scale))
    for magnitude in range(4):
        plus, minus = Symbols(magnitude, 0), Symbols(magnitude, 1, 77, 0)
        assert scalar.discrete_laplace_once(Fraction(5, 3), plus) == magnitude
        assert scalar.discrete_laplace_once(Fraction(5, 3), minus) == (-magnitude or 77)
        assert plus.asked == [("geometric", Fraction(5, 3)), ("bits", 1)]


VARIANCES = [Fraction(1, 4), Fraction(1), Fraction(5, 3), Fraction(4), Fraction(1000), Fraction(10**30, 7)]


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
@pytest.mark.usefixtures("symbolic_coin")
def test_a_single_gaussian_draw_pays_the_square_but_for_one_constant(
    variance: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales = []

    def propose(scale: Fraction, reader: Symbols) -> object:
        scales.append(scale)
        return reader._next("laplace", scale)

    monkeypatch.setattr(scalar, "discrete_laplace_once", propose)
    extra = set()
    for proposal in [*range(-40, 41), 10**20]:
        reader = Symbols(proposal, True)
        assert scalar.discrete_gaussian_once(variance, reader) == proposal
        paid = reader.asked[1][1]
        assert isinstance(paid, Fraction)
        assert paid >= 0
        extra.add(abs(proposal) / scales[-1] + paid - proposal**2 / (2 * variance))
    assert len(extra) == 1
    assert scalar.discrete_gaussian_once(variance, Symbols(5, False, -3, True)) == -3


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(5)], ids=str)
def test_a_single_exponential_coin_is_a_coin_for_each_unit_and_one_for_the_rest(
    gamma: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scalar, "_exp_of_fraction", lambda a, b, reader: reader._next("coin", Fraction(a, b)))
    coins = int(gamma) + 1
    reader = Symbols(*[True] * coins)
    assert scalar.bernoulli_exp_once(gamma.numerator, gamma.denominator, reader) is True
    assert sum((asked[1] for asked in reader.asked), Fraction(0)) == gamma
    assert len(reader.asked) == coins
    for failed in range(coins):
        reader = Symbols(*[True] * failed, False)
        assert not scalar.bernoulli_exp_once(gamma.numerator, gamma.denominator, reader)


def turns(gamma: Fraction, most: int) -> Iterator[tuple[bool, Fraction]]:
    """Each way the coin of a fraction can end, with its probability."""
    chance = Fraction(1)
    for k in range(1, most + 1):
        asked: list[Fraction] = []
        coin = Coin(k - 1, asked)
        heads = scalar._exp_of_fraction(gamma.numerator, gamma.denominator, coin)
        assert len(asked) == k
        yield heads, chance * (1 - asked[-1])
        chance *= asked[-1]


class Coin(Reader):
    """A reader whose coins show heads so many times, then tails."""

    def __init__(self, heads: int, asked: list[Fraction]) -> None:
        self.heads, self.asked = heads, asked

    def coin(self, numerator: int, denominator: int) -> bool:
        self.asked.append(Fraction(numerator, denominator))
        return len(self.asked) <= self.heads


@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(2, 3), Fraction(1)], ids=str)
def test_the_coin_of_a_fraction_has_the_series_of_exp_term_by_term(gamma: Fraction) -> None:
    series = Fraction(0)
    term = Fraction(1)
    for k, (heads, chance) in enumerate(turns(gamma, 30), start=1):
        after = term * gamma / k
        assert chance == term - after
        assert heads == (k % 2 == 1)
        series += chance if heads else 0
        term = after
    with localcontext() as context:
        context.prec = 60
        truth = (-Decimal(gamma.numerator) / Decimal(gamma.denominator)).exp()
        assert abs(Decimal(series.numerator) / Decimal(series.denominator) - truth) < Decimal("1e-30")


# ---- the whole table law on all its words at once


@pytest.mark.parametrize(
    "law", [LayerLaw((0, 1, 5), (3, 1, 10**6)), TwoSidedLaw(Fraction(9), minus_zero=False)], ids=repr
)
def test_a_table_gives_the_outcome_whose_interval_holds_the_word(law: object) -> None:
    """Words at both ends of each certain interval, through `draw` itself."""
    table = Table(law)  # type: ignore[arg-type]
    pick: Callable[[int], int] = lambda word: int(  # noqa: E731
        table.draw(1, Spelled(spell([word >> 32], 16), spell([word & 0xFFFFFFFF], 32)))[0]
    )
    for k in range(min(12, table._floors.size)):
        low, high = int(table._ceilings[k]), int(table._floors[k]) - 1
        assert {pick(low), pick((low + high) // 2), pick(high)} == {k}
    assert int(table._ceilings[0]) == 0
    assert int(table._floors[-1]) <= 1 << BITS


@pytest.mark.parametrize("tilt", [None, Fraction(1, 3), Fraction(1, 16), Fraction(7, 5)])
@pytest.mark.parametrize("gamma", [Fraction(1, 16), Fraction(1, 9), Fraction(2, 3), Fraction(3)])
def test_the_total_of_the_top_digit_encloses_the_series_at_every_precision(
    gamma: Fraction, tilt: Fraction | None
) -> None:
    """(1 + e^-tilt) / (1 - e^-gamma), in 60 digits; an enclosure from the wrong side misses it at some precision."""
    with localcontext() as context:
        context.prec = 60
        minus = Decimal(0) if tilt is None else (-Decimal(tilt.numerator) / tilt.denominator).exp()
        series = (1 + minus) / (1 - (-Decimal(gamma.numerator) / gamma.denominator).exp())
        for precision in range(8, 80):
            low, high = TopLaw(gamma, tilt).total(precision)
            exact = series * (1 << precision)
            assert low <= exact <= high
            assert high - low <= 2 + 4 * float(series) ** 2


def test_a_law_with_one_side_gives_no_weight_at_all_to_a_minus_sign() -> None:
    assert set(TopLaw(Fraction(1, 9), None).weights(40)[1::2]) == {(0, 0)}
