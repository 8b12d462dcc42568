"""Weights of layers and enclosures of exp by exact arithmetic: what is told encloses the truth, also far down."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from deniable.dp.mechanisms import ExponentialMechanism, NoisyMaxMechanism
from deniable.dp.mechanisms.selection import _shortfall
from deniable.dp.samplers.choice import DEEPEST, TOP, _weigh_layers
from deniable.dp.samplers.exponential import exp_minus


def _enclose(level: int) -> tuple[Fraction, Fraction]:
    low, high = exp_minus(Fraction(level), 2000)
    return Fraction(low, 1 << 2000), Fraction(high, 1 << 2000)


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1, 1], [1, 7, 2**40, 3, 2**61], [2**61, 1, 1, 1, 1]])
def test_weights_of_layers_enclose_the_truth_in_one_unit_for_each_group(sizes: list[int]) -> None:
    levels = [0, 3, DEEPEST - 1, DEEPEST, DEEPEST + 500]
    low, high = _weigh_layers(np.array(levels * 2), np.array(sizes * 2, dtype=np.int64), np.array([0] * 5 + [4] * 5))
    assert low.tolist()[:5] == low.tolist()[5:]
    assert max(low.tolist()[:5]).bit_length() == TOP
    heaviest = max(size * _enclose(level)[0] for size, level in zip(sizes, levels, strict=True))
    place = low.tolist().index(max(low.tolist()))
    ratio = heaviest / int(low[place])
    unit = Fraction(2) ** round(_log2(ratio))
    for size, level, least, most in zip(sizes, levels, low.tolist(), high.tolist(), strict=False):
        below, above = _enclose(level)
        assert least * unit <= size * above
        if size == 1:
            assert size * below <= most * unit


def _log2(ratio: Fraction) -> float:
    return math.log2(ratio.numerator) - math.log2(ratio.denominator)


@pytest.mark.parametrize(
    "gamma", [Fraction(1, 10**9), Fraction(1, 3), Fraction(31), Fraction(32), Fraction(33), Fraction(70)]
)
def test_an_enclosure_of_exp_is_narrow_and_holds_one_that_is_finer(gamma: Fraction) -> None:
    low, high = exp_minus(gamma, 32)
    fine_low, fine_high = exp_minus(gamma, 400)
    assert low << 368 <= fine_low
    assert fine_high <= high << 368
    assert high - low <= 8


def test_a_choice_falls_short_by_as_much_as_the_weights_of_all_others_allow() -> None:
    for mechanism in (ExponentialMechanism(1), NoisyMaxMechanism(1)):
        assert mechanism.unit == Fraction(1, 2)
        assert mechanism.accuracy(0.05, 100) == 15, "ln(100 / 0.05) / (1/2) = 15.2"
        assert mechanism.accuracy(0.05, 1) == 0, "there is no other"
    assert NoisyMaxMechanism(1, monotonic=True).accuracy(0.05, 100) == 7
    assert _shortfall(Fraction(1), 0.5, 2) == 1
