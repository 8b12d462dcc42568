"""Drawing where tables share columns: no table is given up for another, and values come apart nowhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from deniable.policy.budget import ApproxDP
from deniable.synth.bins import collapse_again, collapse_domain
from deniable.synth.domain import Domain
from deniable.synth.draw import draw_records, halve_records
from deniable.synth.estimate import Estimates
from deniable.synth.generate import draw_given_columns
from deniable.synth.marginal import Codes, Marginal, convert_budget, count
from deniable.synth.methods import METHODS, run_method

RECORDS, VALUES = 6000, 20


def _related_columns() -> Codes:
    """Two columns that nearly determine one another, and three that each depend on the first."""
    lots = np.random.default_rng(5)
    first = lots.integers(0, VALUES, RECORDS)
    twin = np.clip(first + (lots.random(RECORDS) < 0.05), 0, VALUES - 1)
    others = [np.clip(first // step + lots.integers(0, 4, RECORDS), 0, VALUES - 1) for step in (1, 2, 3)]
    return np.stack([first, twin, *others]).astype(np.int32)


def _distance(codes: Codes, tables: dict[tuple[int, ...], np.ndarray], domain: Domain, pair: tuple[int, int]) -> float:
    drawn, wanted = count(codes, domain, pair) / codes.shape[1], tables[pair] / tables[pair].sum()
    return float(np.abs(drawn - wanted).sum() / 2)


def _noisy_estimates(codes: Codes, domain: Domain) -> Estimates:
    """All pairs, each with noise of its own, so that no table has all of them exactly."""
    lots, tables = np.random.default_rng(6), {}
    for pair in itertools.combinations(range(len(domain)), 2):
        noisy = count(codes, domain, pair) + lots.normal(0, 4, domain.shape(pair))
        tables[pair] = np.maximum(noisy, 0) * (RECORDS / np.maximum(noisy, 0).sum())
    columns = tuple(
        np.bincount(column, minlength=size).astype(float) for column, size in zip(codes, domain.sizes, strict=True)
    )
    return Estimates(float(RECORDS), columns, tables, 0.08)


def test_tables_that_share_columns_are_all_met_as_nearly_as_their_noise_allows() -> None:
    codes = _related_columns()
    domain = Domain(tuple("abcde"), (VALUES,) * 5)
    estimates = _noisy_estimates(codes, domain)
    drawn = draw_records(estimates, domain, RECORDS, 1)
    missed = {pair: _distance(drawn, estimates.tables, domain, pair) for pair in estimates.tables}
    real = {pair: _distance(codes, estimates.tables, domain, pair) for pair in estimates.tables}
    assert missed[0, 1] < real[0, 1] + 0.02
    assert np.mean(list(missed.values())) < np.mean(list(real.values()))


def test_given_columns_stay_as_they_are_and_the_others_follow_their_tables() -> None:
    codes = _related_columns()
    domain = Domain(tuple("abcde"), (VALUES,) * 5)
    estimates = _noisy_estimates(codes, domain)
    drawn = draw_given_columns(estimates, domain, {0: codes[0], 2: codes[2]}, 1, RECORDS)
    assert (drawn[0] == codes[0]).all()
    assert (drawn[2] == codes[2]).all()
    assert _distance(drawn, estimates.tables, domain, (0, 1)) < 0.15


def test_drawing_repeats_with_its_seed() -> None:
    codes = _related_columns()
    domain = Domain(tuple("abcde"), (VALUES,) * 5)
    estimates = _noisy_estimates(codes, domain)
    assert (draw_records(estimates, domain, 500, 3) == draw_records(estimates, domain, 500, 3)).all()
    assert (draw_records(estimates, domain, 500, 3) != draw_records(estimates, domain, 500, 4)).any()


def test_columns_outside_every_table_are_joined_anew_from_their_better_counts() -> None:
    domain = Domain(("a", "b"), (64, 64), ordered=frozenset({0, 1}))
    event = run_method(np.zeros((2, 5), dtype=np.int32), domain, METHODS["independent"],
                       convert_budget(ApproxDP(1, 1e-6), 1)).one_way[0].event  # fmt: skip
    counts = np.full(64, 100.0)
    rough = [Marginal((place,), counts, 400.0**2, event) for place in range(2)]
    better = [Marginal((place,), counts, 20.0**2, event) for place in range(2)]
    first = collapse_domain(domain, rough)
    again = collapse_again(first, domain, better, {0})
    assert (again.maps[0] == first.maps[0]).all()
    assert again.domain.sizes[0] == first.domain.sizes[0]
    assert again.domain.sizes[1] > 2 * first.domain.sizes[1]
    assert again.domain.sizes[1] == collapse_domain(domain, better).domain.sizes[1]


@pytest.mark.parametrize("records", [0, 1, 2])
def test_a_few_records_can_be_drawn(records: int) -> None:
    codes = _related_columns()
    domain = Domain(tuple("abcde"), (VALUES,) * 5)
    assert draw_records(_noisy_estimates(codes, domain), domain, records, 1).shape == (5, records)


def test_a_draw_of_few_records_has_the_shares_of_a_large_one() -> None:
    # Parts of a record once moved most records to the most frequent values: seven of ten instead of 0.55.
    lots = np.random.default_rng(8)
    first = (lots.random(RECORDS) < 0.45).astype(np.int32)
    codes = np.stack([np.where(lots.random(RECORDS) < 0.05, 1 - first, first) for _ in range(4)]).astype(np.int32)
    domain = Domain(tuple("abcd"), (2,) * 4)
    estimates = _noisy_estimates(codes, domain)
    drawn = np.concatenate([draw_records(estimates, domain, 3, seed) for seed in range(300)], axis=1)
    shares = np.array([table / table.sum() for table in estimates.columns])
    assert np.abs((drawn == 0).mean(axis=1) - shares[:, 0]).max() < 0.07


def test_columns_that_hang_on_a_circle_are_drawn_exactly() -> None:
    """Changing records until three noisy pairs fit moved them, too."""
    lots, size = np.random.default_rng(9), 5000
    first = lots.integers(0, 30, size)
    codes = np.stack([first, first, lots.integers(0, 4, size), lots.integers(0, 4, size)]).astype(np.int32)
    domain = Domain(tuple("abcd"), (30, 30, 4, 4))
    tables = {pair: count(codes, domain, pair).astype(float) for pair in ((0, 1), (0, 2), (0, 3), (2, 3))}
    for pair in ((0, 2), (0, 3), (2, 3)):
        noisy = np.maximum(tables[pair] + lots.normal(0, 6, domain.shape(pair)), 0)
        tables[pair] = noisy * (size / noisy.sum())
    columns = tuple(count(codes, domain, (place,)).astype(float) for place in range(4))
    drawn = draw_records(Estimates(float(size), columns, tables), domain, size, 1)
    assert (drawn[0] == drawn[1]).all(), "equal columns stay equal"
    assert _distance(drawn, tables, domain, (2, 3)) < 0.002


@pytest.mark.parametrize("cliques", [[(0, 1), (1, 2), (0, 2)], [(0, 1), (1, 2)], [(0, 1, 2)]])
def test_few_records_have_the_whole_counts_of_exact_tables(cliques: list[tuple[int, ...]]) -> None:
    lots, size = np.random.default_rng(10), 60
    first = lots.integers(0, 3, size)
    codes = np.stack([first, (first + (lots.random(size) < 0.2)) % 3, lots.integers(0, 15, size)]).astype(np.int32)
    domain = Domain(tuple("abc"), (3, 3, 15))
    tables = {clique: count(codes, domain, clique).astype(float) for clique in cliques}
    columns = tuple(count(codes, domain, (place,)).astype(float) for place in range(3))
    drawn = draw_records(Estimates(float(size), columns, tables), domain, size, 1)
    for place, wanted in enumerate(columns):
        assert (count(drawn, domain, (place,)) == wanted).all()
    missed = sum(np.abs(count(drawn, domain, clique) - table).sum() for clique, table in tables.items())
    assert missed <= (8 if len(cliques) == 3 else 0)  # two records may stay exchanged where tables form a circle


def test_few_records_of_noisy_tables_miss_columns_by_little_more_than_rounding() -> None:
    """They were a lot from a thousand: of 100 records, some 8 stood elsewhere than the column said."""
    codes, records = _related_columns(), 100
    domain = Domain(tuple("abcde"), (VALUES,) * 5)
    estimates = _noisy_estimates(codes, domain)
    drawn = draw_records(estimates, domain, records, 1)
    for place, column in enumerate(estimates.columns):
        missed = np.abs(count(drawn, domain, (place,)) - column * (records / column.sum()))
        assert missed.max() < 3
        assert missed.sum() / 2 < VALUES / 3


def _circle(records: int) -> tuple[Estimates, Domain]:
    """All pairs of six columns, of which each but the first is the first or one more, counted exactly."""
    lots = np.random.default_rng(11)
    first = lots.integers(0, 6, records)
    codes = np.stack([first, *((first + lots.integers(0, 2, records)) % 6 for _ in range(5))]).astype(np.int32)
    domain = Domain(tuple("abcdef"), (6,) * 6)
    tables = {pair: count(codes, domain, pair).astype(float) for pair in itertools.combinations(range(6), 2)}
    columns = tuple(count(codes, domain, (place,)).astype(float) for place in range(6))
    return Estimates(float(records), columns, tables), domain


@pytest.mark.parametrize("records", [5, 20, 50, 1000])
def test_few_records_of_tables_in_circles_have_no_pairs_that_no_record_has(records: int) -> None:
    """Rounding circles to few records invented them: of 20 records, one pair in 25."""
    estimates, domain = _circle(2000)
    drawn = np.concatenate([draw_records(estimates, domain, records, seed) for seed in range(1000 // records)], axis=1)
    assert np.mean((drawn[1:] - drawn[0]) % 6 > 1) < 0.012
    shares = np.array([np.bincount(column, minlength=6) for column in drawn]) / drawn.shape[1]
    assert np.abs(shares - np.array(estimates.columns) / 2000).max() < 0.04


def test_half_of_the_records_are_as_like_the_others_as_whole_records_allow_and_each_stays_half_of_the_times() -> None:
    lots = np.random.default_rng(12)
    codes = np.stack([lots.integers(0, 4, 60), lots.integers(0, 15, 60), np.arange(60)]).astype(np.int32)
    domain = Domain(tuple("abc"), (4, 15, 60))
    stayed, size = np.zeros(60), 400
    for seed in range(size):
        half = halve_records(codes, domain, [(0,), (1,), (0, 1)], np.random.default_rng(seed))
        assert half.shape == (3, 30)
        for place in (0, 1):
            assert np.abs(2 * count(half, domain, (place,)) - count(codes, domain, (place,))).max() <= 2
        stayed += np.bincount(half[2], minlength=60)
    assert np.abs(stayed / size - 0.5).max() < 4.5 * 0.5 / np.sqrt(size)
