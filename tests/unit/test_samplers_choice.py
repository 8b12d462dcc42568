"""The choice in many groups at once: its certified weights against exact ones, and its law, also where U is close."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from deniable.dp.samplers import choice, exponential_choice_groups
from deniable.dp.samplers.choice import WORD, GroupedLayers
from deniable.dp.samplers.exponential import exp_minus
from deniable.errors import ParameterError
from seeded import SeededEntropy

RUNS = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 7, 40, 191, 192, 10**6]), st.sampled_from([1, 3, 10**9, 2**58])),
    min_size=1,
    max_size=6,
)


def weights(level: list[int], sizes: list[int], precision: int = 600) -> list[tuple[Fraction, Fraction]]:
    """Size * exp(-level), enclosed by exact arithmetic."""
    ends = [exp_minus(Fraction(depth), precision) for depth in level]
    return [
        (Fraction(s * a, 2**precision), Fraction(s * b, 2**precision)) for s, (a, b) in zip(sizes, ends, strict=True)
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(RUNS, min_size=1, max_size=3))
def test_cumulative_weights_enclose_the_true_ones(listed: list[list[tuple[int, int]]]) -> None:
    whole = np.array([depth for runs in listed for depth, _ in [(0, 1), *runs]])
    widths = np.array([width for runs in listed for _, width in [(0, 1), *runs]])
    group = np.repeat(np.arange(len(listed)), [len(runs) + 1 for runs in listed])
    layers = GroupedLayers.of(whole, widths, group)
    for g in range(len(listed)):
        mine = np.flatnonzero(layers.group == g)
        enclosed = weights(layers.level[mine].tolist(), layers.sizes[mine].tolist())
        least, most = (sum(pair[i] for pair in enclosed) for i in (0, 1))
        for place, k in enumerate(mine.tolist()):
            before, until = sum(low for low, _ in enclosed[:place]), sum(high for _, high in enclosed[: place + 1])
            floor = int(layers.floors[k]) - (g << 32)
            assert Fraction(floor, 2**WORD) <= min(until / least, Fraction(1))
            assert Fraction(int(layers.ceilings[k]), 2**WORD) >= before / most


def fits(counts: np.ndarray, expected: np.ndarray) -> bool:
    likely = expected * counts.sum() > 5
    expected = expected[likely] / expected[likely].sum() * counts[likely].sum()
    return bool(chisquare(counts[likely], expected).pvalue > 1e-4)


@pytest.mark.parametrize("top", [choice.TOP, 3])
def test_many_groups_follow_width_and_cost_even_where_few_draws_are_certain(
    top: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With weights of 3 bits nearly every draw must be settled by the exact law. Seeded: no chance of a false alarm."""
    monkeypatch.setattr(choice, "TOP", top)
    costs, widths = np.array([2, 0, 3, 9, 60]), np.array([5, 1, 0, 200, 2**40])
    groups = 4_000
    drawn = exponential_choice_groups(
        np.tile(costs, groups), Fraction(3, 4), np.tile(widths, groups), np.repeat(np.arange(groups), 5), groups,
        entropy=SeededEntropy(4),
    )  # fmt: skip
    assert (drawn // 5 == np.arange(groups)).all()
    counts = np.bincount(drawn % 5, minlength=5)
    assert [fits(counts, widths * np.exp(-0.75 * off * costs)) for off in (1, 0.7, 1.3)] == [True, False, False]


def test_groups_without_a_candidate_and_widths_beyond_64_bits_are_refused() -> None:
    ones = np.ones(2, dtype=np.int64)
    with pytest.raises(ParameterError):
        exponential_choice_groups(ones, 1, ones, np.array([0, 0]), 2)
    with pytest.raises(ParameterError):
        exponential_choice_groups(ones, 1, np.array([1, 0]), np.array([0, 1]), 2)
    with pytest.raises(ParameterError):
        exponential_choice_groups(ones, 1, ones << 61, np.array([0, 1]), 2)


def test_costs_may_be_far_apart_and_below_zero() -> None:
    costs, group = np.array([-(2**60), 2**59, 0, 2**61]), np.array([0, 0, 1, 1])
    drawn = exponential_choice_groups(costs, Fraction(1, 2), np.array([1, 2**60, 1, 2**60]), group, 2)
    assert drawn.tolist() == [0, 2]
