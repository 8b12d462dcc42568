"""Packed biased bits: the table that draws eight at once is exact, and columns add up."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.localdp.frequency import unary
from seeded import SeededEntropy


@pytest.mark.parametrize("ones", [1, 3, 17_626, 32_768, 65_535])
def test_the_borders_of_the_byte_table_are_the_exact_cumulative_probabilities(ones):
    _, high, low = unary._byte_table(ones)
    p = Fraction(ones, unary.GRID)
    reached = Fraction(0)
    for value in range(256):
        assert Fraction(int(high[value]) << 64 | int(low[value]), 1 << 128) == reached
        reached += p ** value.bit_count() * (1 - p) ** (8 - value.bit_count())
    assert reached == 1


@pytest.mark.parametrize("ones", [1, 17_626, 40_000])
def test_a_prefix_decides_a_byte_only_where_every_continuation_agrees(ones):
    table, high, low = unary._byte_table(ones)
    borders = [int(h) << 64 | int(b) for h, b in zip(high, low, strict=True)]
    for prefix in (*range(0, 65_536, 997), 0, 65_535):
        first, last = prefix << 112, (prefix + 1 << 112) - 1
        lowest = max(value for value in range(256) if borders[value] <= first)
        highest = max(value for value in range(256) if borders[value] <= last)
        assert table[prefix] == (lowest if lowest == highest else 256)


def test_an_undecided_prefix_is_settled_by_the_bits_that_follow():
    class Fixed:
        """All ones: the largest number there is."""

        def take(self, count: int) -> bytes:
            return b"\xff" * count

    assert unary.draw_biased_bits(32_768, 1, 8, Fixed())[0, 0] == 255
    assert unary.draw_biased_bits(1, 1, 8, Fixed())[0, 0] == 255  # eight unlikely ones sit at the very end


@pytest.mark.parametrize("ones", [655, 17_626, 32_768, 60_000])
def test_bits_are_as_frequent_as_stated_and_independent_of_their_neighbors(ones):
    strings = unary.draw_biased_bits(ones, 20_000, 24, SeededEntropy(4))
    unpacked = np.unpackbits(strings, axis=1, bitorder="little").astype(float)
    p = ones / unary.GRID
    error = np.sqrt(p * (1 - p) / 20_000)
    assert np.abs(unpacked.mean(axis=0) - p).max() < 4.5 * error
    both = unpacked[:, :-1] * unpacked[:, 1:]
    assert np.abs(both.mean(axis=0) - p * p).max() < 4.5 * np.sqrt(p * p * (1 - p * p) / 20_000)


def test_spare_bits_beyond_the_length_are_zero():
    assert (unary.draw_biased_bits(65_535, 50, 13, SeededEntropy(1))[:, 1] >> 5 == 0).all()


def test_probabilities_zero_and_one_are_certain():
    assert not unary.draw_biased_bits(0, 10, 16, SeededEntropy(1)).any()
    assert (unary.draw_biased_bits(unary.GRID, 10, 16, SeededEntropy(1)) == 255).all()
    with pytest.raises(ParameterError):
        unary.draw_biased_bits(unary.GRID + 1, 1, 8)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 700), st.integers(1, 90), st.integers(1, 5), st.integers(0, 2**32))
def test_group_sums_are_those_of_unpacked_bits(rows, length, groups, seed):
    rng = np.random.default_rng(seed)
    strings = rng.integers(0, 256, (rows, (length + 7) // 8), dtype=np.uint8)
    member = rng.integers(0, groups, rows)
    unpacked = np.unpackbits(strings, axis=1, bitorder="little")[:, :length].astype(np.int64)
    naive = np.stack([unpacked[member == group].sum(axis=0) for group in range(groups)])
    assert (unary.sum_groups(strings, member, groups, length) == naive).all()


def test_no_respondents_make_no_bits():
    assert unary.draw_biased_bits(100, 0, 8).shape == (0, 1)
    assert unary.sum_columns(np.empty((0, 2), dtype=np.uint8), 16).tolist() == [0] * 16
