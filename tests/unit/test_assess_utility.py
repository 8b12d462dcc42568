"""Utility: total variation and scores by hand, and a classifier that learns what is there and nothing else."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from deniable.assess.scores import score_tables
from deniable.assess.utility import (
    build_comparison_domain,
    choose_target,
    code_inputs,
    compare_classifiers,
    measure_distance,
    measure_variation,
)
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.synth.domain import Bins, Domain, Labels, attributes_of

DOMAIN = Domain(("a", "b"), (2, 2))


def _codes(*rows: tuple[int, ...]) -> np.ndarray:
    return np.array(rows, dtype=np.int32).T


def test_total_variation_of_four_rows_by_hand() -> None:
    real, made = _codes((0, 0), (0, 1), (1, 0), (1, 1)), _codes((0, 0), (0, 0), (1, 1), (1, 1))
    assert measure_distance(real, made, DOMAIN, (0,)) == 0
    assert measure_distance(real, made, DOMAIN, (0, 1)) == pytest.approx(0.5)
    one, two = measure_variation(real, made, DOMAIN, 1), measure_variation(real, made, DOMAIN, 2)
    assert one is not None
    assert two is not None
    assert one.score == 1000
    assert two.score == pytest.approx(500)
    assert two.worst == ((("a", "b"), 0.5),)
    assert measure_variation(real, made, DOMAIN, 3) is None


def test_a_table_without_rows_is_as_far_as_can_be_from_one_with_some() -> None:
    nobody = np.zeros((2, 0), dtype=np.int32)
    assert measure_distance(nobody, _codes((0, 0)), DOMAIN, (0,)) == 1
    assert measure_distance(nobody, nobody, DOMAIN, (0,)) == 0
    assert compare_classifiers(nobody, nobody, DOMAIN, "b") is None


def test_the_worst_marginal_comes_first() -> None:
    domain = Domain(("a", "b", "c"), (2, 2, 2))
    real = np.zeros((3, 10), dtype=np.int32)
    made = real.copy()
    made[1, :7] = 1
    found = measure_variation(real, made, domain, 1)
    assert found is not None
    assert found.worst[0] == (("b",), 0.7)
    assert found.mean == pytest.approx(0.7 / 3)


def _people(records: int, seed: int, dependent: bool) -> np.ndarray:
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, 3, records), generator.integers(0, 2, records)
    told = (first == 2) | ((first == 1) & (second == 1)) if dependent else generator.random(records) < 0.5
    return np.stack([first, second, told]).astype(np.int32)


def test_a_classifier_learns_from_synthetic_rows_exactly_what_they_keep() -> None:
    domain = Domain(("a", "b", "told"), (3, 2, 2))
    real = _people(4000, 1, True)
    good = compare_classifiers(real, _people(4000, 2, True), domain, "told")
    useless = compare_classifiers(real, _people(4000, 3, False), domain, "told")
    assert good is not None
    assert useless is not None
    assert good.on_real == pytest.approx(1.0)
    assert good.on_synthetic == pytest.approx(1.0)
    assert useless.on_synthetic < 0.9
    assert 0.45 < good.majority < 0.55


def test_the_default_target_is_the_last_column_with_few_values() -> None:
    assert choose_target(Domain(("a", "b", "c"), (2, 5, 80))) == "b"
    assert choose_target(Domain(("a",), (80,))) is None


def test_the_yardstick_follows_from_the_policy_and_keeps_null_apart() -> None:
    columns = (
        Column("sex", ColumnType.TEXT, categories=("F", "M"), nullable=False),
        Column("age", ColumnType.INTEGER, bounds=Bounds(0, 999)),
        Column("stars", ColumnType.INTEGER, bounds=Bounds(1, 5), nullable=False),
    )
    chosen = attributes_of(TableSchema("t", "t.csv", columns, PrivacyUnit()))
    measure = build_comparison_domain([a for a in chosen if isinstance(a, Labels | Bins)])
    assert measure.domain.sizes == (2, 17, 5)
    ages = measure.maps[1]
    assert (np.diff(ages) >= 0).all()
    assert (ages[-1], ages[-2], ages[0]) == (16, 15, 0)


def test_what_a_zero_says_among_large_numbers_is_seen_by_classifiers() -> None:
    """In equal parts of the declared range zero and all else were one value."""
    lots, size = np.random.default_rng(4), 3000
    amount = np.where(lots.random(size) < 0.6, 0.0, np.round(lots.exponential(2000, size), 2))
    flag = lots.random(size) < np.where(amount > 0, 0.9, 0.1)
    real, lost = (pa.table({"amount": amount, "flag": own}) for own in (flag, lots.permutation(flag)))
    columns = (
        Column("amount", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(10**5), Fraction(1, 100))),
        Column("flag", ColumnType.BOOLEAN, nullable=False),
    )
    chosen = attributes_of(TableSchema("t", "t.parquet", columns, PrivacyUnit()))
    inputs = code_inputs([a for a in chosen if isinstance(a, Labels | Bins)], real, lost)
    told = compare_classifiers(inputs.real, inputs.made, inputs.domain, "flag")
    assert told is not None
    assert told.on_real > 0.85 > 0.7 > told.on_synthetic
    found = score_tables(real, lost, chosen, "flag").tstr
    assert found is not None
    assert found.accuracy_on_real > 0.85 > 0.7 > found.accuracy_on_synthetic
