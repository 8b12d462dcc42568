"""Values that noise hides are joined: neighbors from the left by a naive twin, rare ones into the last code."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from deniable.dp.accounting import GaussianEvent
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.synth.bins import (
    FEWEST_INTERVALS,
    MOST_INTERVALS,
    RARE_DEVIATIONS,
    _join_neighbors,
    _join_rare,
    find_empty,
    group_codes,
)
from deniable.synth.describe import describe_table
from deniable.synth.domain import Domain
from deniable.synth.generate import generate
from deniable.synth.marginal import Marginal
from seeded import SeededEntropy


def _marginal(counts: list[float], variance: float) -> Marginal:
    return Marginal((0,), np.array(counts, dtype=np.float64), variance, GaussianEvent(1, 1))


def _naive_stretches(counts: list[float], variance: float) -> list[int]:
    """A stretch ends after the first value with which it holds enough."""
    total = sum(max(count, 0) for count in counts)
    part = total / min(max((total / math.sqrt(variance)) ** 0.5, FEWEST_INTERVALS), MOST_INTERVALS)
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


def _ages_and_incomes(count: int) -> tuple[pa.Table, TableSchema]:
    """Children have no income, and everybody else has one."""
    generator = np.random.default_rng(3)
    ages = generator.integers(0, 90, count)
    incomes = np.exp(generator.normal(10, 0.7, count)).astype(int).clip(0, 99_999)
    rows = pa.table({"age": ages, "income": pa.array(incomes, mask=ages < 16)})
    columns = (
        Column("age", ColumnType.INTEGER, bounds=Bounds(0, 89), nullable=False),
        Column("income", ColumnType.INTEGER, bounds=Bounds(0, 99_999)),
    )
    return rows, TableSchema("people", "people.csv", columns, PrivacyUnit())


def test_null_is_no_neighbor_of_the_largest_number() -> None:
    rows, table = _ages_and_incomes(6000)
    made = generate(describe_table(rows, table, ApproxDP(100, 1e-6)), None, 1)
    ages, income = made["age"].to_numpy(), made["income"].is_null().to_numpy()
    # Ages near the limit may be joined with one another.
    assert (~income[ages < 12]).mean() < 0.01
    assert income[ages >= 20].mean() < 0.01


def test_groups_of_an_ordered_column_keep_null_apart() -> None:
    assert group_codes(np.array([5.0, 5, 5, 5, 1]), True, 3, True) == (0, 0, 1, 1, 2)
    assert group_codes(np.array([5.0, 5, 5, 5, 1]), True, 2, True) == (0, 0, 0, 0, 1)


@pytest.mark.parametrize("rows", [60, 400, 30_000])
def test_values_have_their_shares_whatever_the_number_of_rows(rows: int) -> None:
    real, table = _ages_and_incomes(3000)
    model = describe_table(real.select(["age"]), replace(table, columns=table.columns[:1]), ApproxDP(1, 1e-6))
    truth = np.bincount(real["age"].to_numpy(), minlength=90) / 3000

    def distance(each: int, draws: int) -> float:
        held = [np.bincount(generate(model, each, seed)["age"].to_numpy(), minlength=90) for seed in range(draws)]
        return float(np.abs(sum(held) / (each * draws) - truth).sum() / 2)

    assert distance(rows, max(30_000 // rows, 1)) <= 1.1 * distance(3000, 10) + 0.005


WIDE = tuple(range(41)) + tuple(range(1040, 257_000, 1000))
"""Forty single steps, and 256 bins of a thousand steps each."""


def _empty_ones(counts: np.ndarray, deviation: float, seed: int, cuts: tuple[int, ...] = WIDE) -> list[bool]:
    domain = Domain(("x",), (len(cuts) - 1,), frozenset({0}), cuts={0: cuts})
    noisy = counts + np.random.default_rng(seed).normal(0, deviation, counts.size)
    return find_empty(domain, 0, _marginal(noisy.tolist(), deviation**2)).tolist()


def test_bins_far_from_all_records_are_empty() -> None:
    counts = np.zeros(len(WIDE) - 1)
    counts[:40] = 100.0
    found = [_empty_ones(counts, 20.0, seed) for seed in range(40)]
    assert not any(any(empty[:41]) for empty in found)  # the first wide one is near
    assert np.mean([empty[41:] for empty in found]) > 0.9


def test_rare_values_far_away_stay_where_the_noise_is_small() -> None:
    counts = np.zeros(len(WIDE) - 1)
    counts[:40], counts[170], counts[-1] = 30.0, 1.0, 2.0
    empty = np.array(_empty_ones(counts, 0.1, 1))
    assert np.flatnonzero(~empty[41:]).tolist() == [129, 254]


def test_a_thin_spread_far_away_stays_where_its_sum_stands_out() -> None:
    counts = np.full(len(WIDE) - 1, 3.0)
    counts[:40] = 300.0
    assert sum(_empty_ones(counts, 2.0, 2)[41:]) < 128


def test_a_spread_beside_a_spike_stays() -> None:
    """Most records have one value, at the end of the range; the others lie all over it, each bin hidden by noise."""
    counts = np.full(256, 15.0)
    counts[-1] = 6000.0
    kept = [counts[~np.array(_empty_ones(counts, 60.0, seed, tuple(range(257))))].sum() for seed in range(40)]
    assert np.mean(kept) > 0.95 * counts.sum()


@pytest.mark.parametrize("deviation", [0.1, 5.0, 1000.0])
def test_equal_bins_that_are_all_alike_are_not_empty(deviation: float) -> None:
    assert not any(_empty_ones(np.full(256, 12.0), deviation, 4, tuple(range(0, 2570, 10))))


def test_columns_without_records_have_no_empty_bins() -> None:
    assert not any(_empty_ones(np.zeros(len(WIDE) - 1), 0.0, 0))
    assert not any(_empty_ones(np.full(len(WIDE) - 1, -5.0), 1.0, 0))


def test_null_is_never_far_from_the_others() -> None:
    domain = Domain(("x",), (len(WIDE),), frozenset({0}), nulls=frozenset({0}), cuts={0: WIDE})
    counts = [30.0] * 40 + [0.0] * 256 + [0.0]
    found = find_empty(domain, 0, _marginal(counts, 1.0))
    assert found[41:].tolist() == [True] * 255 + [False]


def _wide_table(lots: np.random.Generator, rows: int, nullable: bool) -> tuple[pa.Table, TableSchema]:
    decimal = ColumnType.DECIMAL
    small = np.round(lots.exponential(40.0, rows), 2)
    held = [None if nullable and place % 5 == 0 else value for place, value in enumerate(small.tolist())]
    others = {name: lots.integers(0, 4, rows) for name in ("y", "z")}
    columns = (
        Column("x", decimal, bounds=Bounds(Fraction(0), Fraction(10**6), Fraction(1, 100)), nullable=nullable),
        *(Column(n, ColumnType.INTEGER, bounds=Bounds(Fraction(0), Fraction(3), Fraction(1))) for n in others),
    )
    return pa.table({"x": held, **others}), TableSchema("t", "t.parquet", columns, PrivacyUnit())


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize(("epsilon", "most"), [("3", 1.3), ("30", 1.05)])
@pytest.mark.parametrize("method", ["auto", "mst", "correlated", "mwem", "independent"])
def test_wide_bounds_do_not_move_the_mean_of_small_numbers(
    method: str, epsilon: str, most: float, nullable: bool
) -> None:
    rows, table = _wide_table(np.random.default_rng(3), 3000, nullable)
    budget = ApproxDP(Fraction(epsilon), Fraction(1, 10**6))
    models = (describe_table(rows, table, budget, method, entropy=SeededEntropy(seed)) for seed in range(5))
    means = [pc.mean(generate(model, 3000).column("x")).as_py() for model in models]
    assert 1 / most < np.median(means) / pc.mean(rows.column("x")).as_py() < most


def test_a_condition_can_still_ask_for_a_value_that_noise_hides() -> None:
    rows, table = _wide_table(np.random.default_rng(3), 500, nullable=False)
    model = describe_table(rows, table, ApproxDP(Fraction(30), Fraction(1, 10**6)), entropy=SeededEntropy(5))
    assert generate(model, 20, where={"x": "900000"}).column("x").to_pylist() == [900000.0] * 20
