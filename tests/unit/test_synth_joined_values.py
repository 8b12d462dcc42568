"""Values that noise hides are joined: neighbors from the left by a naive twin, rare ones into the last code."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from deniable.dp.accounting import GaussianEvent
from deniable.synth.bins import MOST_INTERVALS, RARE_DEVIATIONS, _join_neighbors, _join_rare
from deniable.synth.marginal import Marginal


def _marginal(counts: list[float], variance: float) -> Marginal:
    return Marginal((0,), np.array(counts, dtype=np.float64), variance, GaussianEvent(1, 1))


def _naive_stretches(counts: list[float], variance: float) -> list[int]:
    """A stretch ends after the first value with which it holds enough."""
    part = sum(max(count, 0) for count in counts) / MOST_INTERVALS
    codes, stretch, code = [], [], 0
    for count in counts:
        codes.append(code)
        stretch.append(count)
        if sum(stretch) >= max(part, RARE_DEVIATIONS * math.sqrt(variance * len(stretch))):
            stretch, code = [], code + 1
    return codes


@pytest.mark.parametrize("seed", range(8))
def test_neighbors_are_joined_until_a_stretch_holds_enough(seed: int) -> None:
    draw = random.Random(seed)
    counts = [float(draw.choice([-4, 0, 1, 3, 6, 20, 300])) for _ in range(60)]
    variance = draw.choice([0.25, 1.0, 4.0])
    assert _join_neighbors(_marginal(counts, variance)).tolist() == _naive_stretches(counts, variance)


def test_neighbors_by_hand() -> None:
    assert _join_neighbors(_marginal([100.0] * 4, 1.0)).tolist() == [0, 1, 2, 3]
    assert _join_neighbors(_marginal([2.0, 2.0, 2.0, 2.0, 9.0], 1.0)).tolist() == [0, 0, 0, 1, 1]
    assert _join_neighbors(_marginal([3.0, 3.0, 1.0], 1.0)).tolist() == [0, 1, 2]
    assert _join_neighbors(_marginal([0.0, 0.0], 1.0)).tolist() == [0, 0]


def test_rare_values_share_the_last_code_unless_that_joins_nothing() -> None:
    assert _join_rare(_marginal([9.0, 1.0, 3.0, 2.0], 1.0)).tolist() == [0, 2, 1, 2]
    assert _join_rare(_marginal([9.0, 1.0, 3.0], 1.0)).tolist() == [0, 1, 2]
    assert _join_rare(_marginal([1.0, 1.0, 2.0], 1.0)).tolist() == [0, 1, 2]
