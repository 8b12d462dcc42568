"""Exactness by enumeration: every possible entropy is fed to a sampler, and the outcomes are counted."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from heapq import heappop, heappush
from math import exp

import numpy as np
import pytest

from deniable.dp.samplers import bernoulli, bernoulli_exp, uniform_below
from deniable.dp.samplers import entropy as scalar
from deniable.dp.samplers.bernoulli import exp_floor
from deniable.dp.samplers.entropy import (
    Reader,
    bernoulli_exp_once,
    discrete_gaussian_once,
    discrete_laplace_once,
    geometric_once,
)
from deniable.dp.samplers.gaussian import FARTHEST, _build_blocks, _keep


class Undecided(Exception):
    """The path ends before the draw does: how likely each next decision is."""


class Path(Reader):
    """A reader that makes prepared decisions, and asks for one more where they end."""

    def __init__(self, decisions: tuple[int, ...]) -> None:
        self.decisions = iter(decisions)
        self.proposed = False

    def _decide(self, chances: Sequence[Fraction | float]) -> int:
        for decision in self.decisions:
            return decision
        raise Undecided(chances)

    def integer(self, bits: int) -> int:
        return self._decide([Fraction(1, 1 << bits)] * (1 << bits))

    def below(self, bound: int) -> int:
        return self._decide([Fraction(1, bound)] * bound)

    def coin(self, numerator: int, denominator: int) -> bool:
        return bool(self._decide([1 - Fraction(numerator, denominator), Fraction(numerator, denominator)]))

    def exponential_coin(self, numerator: int, denominator: int) -> bool:
        heads = exp(-Fraction(numerator, denominator))
        return bool(self._decide([1 - heads, heads]))


def enumerate_draws(draw: Callable[[Reader], int], paths: int = 4_000) -> tuple[dict[int, float], float]:
    """The probability of each outcome over the likeliest paths, and the probability that is still open."""
    settled: dict[int, float] = {}
    open_: list[tuple[float, tuple[int, ...]]] = [(-1.0, ())]
    while open_ and paths and open_[0][0] < -1e-15:
        paths -= 1
        minus_chance, decisions = heappop(open_)
        try:
            outcome = draw(Path(decisions))
        except Undecided as undecided:
            for decision, chance in enumerate(undecided.args[0]):
                if chance:
                    heappush(open_, (minus_chance * float(chance), (*decisions, decision)))
        else:
            settled[outcome] = settled.get(outcome, 0.0) - minus_chance
    return settled, -sum(minus_chance for minus_chance, _ in open_)


def assert_law(draw: Callable[[Reader], int], law: Callable[[int], float], outcomes: range, most_open: float) -> None:
    """Each probability lies between what is settled and what is settled or open, as shares of what was not dropped."""
    settled, left = enumerate_draws(draw)
    whole = sum(settled.values()) + left
    assert left < most_open * whole, "too much is still open to tell"
    for outcome in outcomes:
        low = settled.get(outcome, 0.0)
        assert low - 1e-6 <= law(outcome) * whole <= low + left + 1e-6


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 2), Fraction(2, 3), Fraction(1), Fraction(5, 2)])
def test_the_exponential_coin_has_its_bias(gamma: Fraction) -> None:
    assert_law(
        lambda reader: int(bernoulli_exp_once(gamma.numerator, gamma.denominator, reader)),
        lambda outcome: exp(-gamma) if outcome else 1 - exp(-gamma),
        range(2),
        1e-9,
    )


@pytest.fixture
def proven_coin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the coin of the test above as one decision, so that the trees of the laws built on it stay small."""
    monkeypatch.setattr(scalar, "bernoulli_exp_once", lambda a, b, reader: reader.exponential_coin(a, b))


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(2), Fraction(3, 2)])
@pytest.mark.usefixtures("proven_coin")
def test_single_geometric_draws_follow_their_law(scale: Fraction) -> None:
    q = exp(-1 / scale)
    assert_law(lambda reader: geometric_once(scale, reader), lambda g: (1 - q) * q**g, range(10), 0.01)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(2)])
@pytest.mark.usefixtures("proven_coin")
def test_single_laplace_draws_follow_their_law(scale: Fraction) -> None:
    q = exp(-1 / scale)
    law = lambda x: (1 - q) / (1 + q) * q ** abs(x)  # noqa: E731
    assert_law(lambda reader: discrete_laplace_once(scale, reader), law, range(-5, 6), 0.02)


@pytest.fixture
def proven_laplace(proven_coin: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the Laplace draw of the test above as one decision among -30, ..., 30 (all but exp(-15) of it).

    A second proposal means that the first was thrown back and all begins anew: that path is dropped, which leaves the
    law of a draw given that its first proposal is taken, and that is the law of a draw.
    """

    def draw(scale: Fraction, reader: Path) -> int:
        if reader.proposed:
            raise Undecided([])
        reader.proposed = True
        q = exp(-1 / scale)
        return reader._decide([(1 - q) / (1 + q) * q ** abs(x) for x in range(-30, 31)]) - 30

    monkeypatch.setattr(scalar, "discrete_laplace_once", draw)


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(1), Fraction(5, 3)])
@pytest.mark.usefixtures("proven_laplace")
def test_single_gaussian_draws_follow_their_law(variance: Fraction) -> None:
    total = sum(exp(-x * x / (2 * variance)) for x in range(-50, 51))
    law = lambda x: exp(-x * x / (2 * variance)) / total  # noqa: E731
    assert_law(lambda reader: discrete_gaussian_once(variance, reader), law, range(-3, 4), 1e-6)


@pytest.mark.usefixtures("proven_coin")
def test_the_enumeration_notices_a_scale_that_is_off_by_a_tenth() -> None:
    q = exp(-1 / 1.1)
    with pytest.raises(AssertionError, match="<="):
        assert_law(lambda reader: geometric_once(Fraction(1), reader), lambda g: (1 - q) * q**g, range(10), 0.01)


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 200])
def test_the_reader_draws_below_a_bound_and_flips_coins_without_bias(bound: int) -> None:
    class OneByte(Reader):
        """A reader that knows eight bits and no more."""

        def __init__(self, byte: int) -> None:
            self._entropy, self._pool, self._bits = Script(), byte, 8

    values: list[int] = []
    for byte in range(256):
        with suppress(IndexError):
            values.append(OneByte(byte).below(bound))
    share = [values.count(value) for value in range(bound)]
    assert len(set(share)) == 1
    assert sum(share) == len(values)


class Script:
    """Entropy that hands out prepared pieces in order."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def take(self, count: int) -> bytes:
        piece = self.pieces.pop(0)
        assert len(piece) >= count
        return piece[:count]


EVERY_BYTE = bytes(range(256))
EVERY_PAIR = np.arange(1 << 16, dtype="<u2").tobytes()


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 100, 128, 129, 255, 256])
def test_every_byte_once_gives_every_residue_equally_often(bound: int) -> None:
    complete = 256 // bound * bound
    drawn = uniform_below(bound, 256, entropy=Script(EVERY_BYTE, bytes(256), bytes(256)))
    assert np.bincount(drawn[:complete], minlength=bound).tolist() == [256 // bound] * bound


@pytest.mark.parametrize(
    "p", [Fraction(1, 2), Fraction(1, 3), Fraction(1, 65536), Fraction(65535, 65536), Fraction(2, 7)]
)
def test_every_prefix_once_gives_heads_as_often_as_p_says(p: Fraction) -> None:
    # One prefix ties with the first digit of p; the zero word that follows is heads exactly when more digits come.
    heads = bernoulli(p, 1 << 16, entropy=Script(EVERY_PAIR, b"\x00\x00", b"\x01\x00"))
    assert np.count_nonzero(heads) == -((-p.numerator << 16) // p.denominator)


def test_every_prefix_once_gives_heads_as_often_as_exp_says() -> None:
    heads = bernoulli_exp(Fraction(3, 2), 1 << 16, entropy=Script(EVERY_PAIR, b"\x00\x00"))
    assert np.count_nonzero(heads) == exp_floor(Fraction(3, 2), 16) + 1


@pytest.mark.parametrize("sigma_squared", [Fraction(10**8), Fraction(10**18), 5000 + Fraction(1, 10**30)])
def test_blocks_are_kept_on_the_right_side_of_the_exact_threshold(sigma_squared: Fraction) -> None:
    blocks = _build_blocks(sigma_squared)
    generator = np.random.default_rng(3)
    far = [(FARTHEST - 1, 1 << blocks.bits), (FARTHEST, 1), (FARTHEST + 7, 1 << blocks.bits), (0, 0), (0, 1)]
    near = zip(generator.integers(0, 300, 60), generator.integers(0, (1 << blocks.bits) + 1, 60), strict=True)
    for x, y in [*far, *((int(x), int(y)) for x, y in near)]:
        gamma = Fraction(y * (y + (x << blocks.bits + 1)), 2 * sigma_squared)
        limit = exp_floor(gamma, 32) if gamma else 1 << 32
        for shift in (-(1 << 16), -40, -1, 0, 1, 40, 1 << 16):
            word = min(max(limit + shift, 0), (1 << 32) - 1)
            halves = ((word >> 16).to_bytes(2, "little"), (word & 0xFFFF).to_bytes(2, "little"))
            kept = _keep(blocks, np.array([x]), np.array([y]), Script(*halves, bytes(64)))
            # On the threshold itself the zeros that follow put U below it: exp(-gamma) is irrational.
            assert bool(kept[0]) == (word <= limit)
