"""Noise that is put together from parts, taken apart: no draw, but every part's weight as an exact exponent.

Each integer must be reached in one way, and the exponents of its parts must add up to that of its law, as fractions.
Weights that are irrational are enclosed by integers: the truth must lie inside, at precisions so coarse that an end on
the wrong side shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import isqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from deniable.dp.samplers import (
    discrete_laplace,
    gaussian,
    geometric,
    laplace,
    scalar,
)
from deniable.dp.samplers.choice import LayerLaw
from deniable.dp.samplers.entropy import Reader
from deniable.dp.samplers.gaussian import TwoSidedLaw
from deniable.dp.samplers.seeded import SeededEntropy
from deniable.dp.samplers.table import BITS, Table
from spelled import Spelled, spell

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


# ---- enclosures of weights


def true_weights(law: object) -> list[Decimal]:
    """The weights of a law's first outcomes, with sixty digits."""
    match law:
        case laplace.DigitLaw(gamma, base):
            return [negative_exp(j * gamma) for j in range(base)]
        case laplace.TopLaw(gamma, tilt):
            minus = Decimal(0) if tilt is None else negative_exp(tilt)
            heights = [negative_exp(h * gamma) for h in range(int(40 / gamma))]
            return [weight * sign for weight in heights for sign in (Decimal(1), minus)]
        case TwoSidedLaw(variance, minus_zero):
            half = [negative_exp(x * x / (2 * variance)) for x in range(60)]
            return [half[0]] * (1 + minus_zero) + [weight for weight in half[1:] for _ in range(2)]
        case LayerLaw(levels, sizes):
            return [size * negative_exp(Fraction(level)) for level, size in zip(levels, sizes, strict=True)]
    raise LookupError(law)


def true_total(law: object, weights: list[Decimal]) -> Decimal:
    """Their sum: that of the geometric series, or all that is listed, beyond which nothing shows at these precisions."""
    if not isinstance(law, laplace.TopLaw):
        return sum(weights, Decimal(0))
    return (weights[0] + weights[1]) / (1 - negative_exp(law.gamma))


def negative_exp(gamma: Fraction) -> Decimal:
    return (-Decimal(gamma.numerator) / Decimal(gamma.denominator)).exp()


ENCLOSED = [
    *(laplace.DigitLaw(Fraction(1, k), 8) for k in (1, 3, 7, 100)),
    *(laplace.TopLaw(Fraction(1, k), Fraction(1, k)) for k in (1, 2, 5, 9, 15)),
    *(laplace.TopLaw(Fraction(k, 7), None) for k in (1, 2, 9)),
    *(laplace.TopLaw(Fraction(16, k), Fraction(1, k)) for k in (17, 30, 100)),
    *(TwoSidedLaw(Fraction(k, 3), minus_zero) for k in (1, 2, 10, 50) for minus_zero in (False, True)),
    *(LayerLaw((0, 1, k, 3 * k), (3, 1, 10, 5)) for k in (2, 5, 9)),
]


@pytest.mark.parametrize("law", ENCLOSED, ids=repr)
def test_weights_and_their_sum_are_enclosed_at_every_precision(law: LayerLaw) -> None:
    with localcontext() as context:
        context.prec = 60
        truths = true_weights(law)
        total = true_total(law, truths)
        for precision in range(10, 36):
            unit, listed = 1 << precision, law.weights(precision)
            for truth, (low, high) in zip(truths, listed, strict=False):
                assert low <= truth * unit <= high
                assert truth or high == 0  # what cannot be drawn has no weight at any precision
            low, high = law.total(precision)
            assert low <= total * unit <= high
            assert high - low <= total * total * 20 + len(listed) * 8


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(12), Fraction(1000)], ids=str)
def test_many_geometric_draws_have_one_side_and_laplace_draws_have_two(scale: Fraction) -> None:
    size = 2 * scalar.FEW
    assert (geometric(scale, size, entropy=SeededEntropy(1)) >= 0).all()
    drawn = discrete_laplace(scale, size, entropy=SeededEntropy(1))
    assert (drawn < 0).any()
    assert (drawn > 0).any()
