"""Residuals against dense weighted least squares on small domains, and what must hold on any."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.dp.accounting import GaussianEvent
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate.residuals import Column, center_table, compute_residuals, reconstruct
from deniable.synth.marginal import Marginal, marginalize

EVENT = GaussianEvent(Fraction(1), Fraction(1))


def _domain(sizes: tuple[int, ...]) -> Domain:
    return Domain(tuple(f"c{place}" for place in range(len(sizes))), sizes)


def _summing(domain: Domain, clique: Clique) -> np.ndarray:
    """The matrix that adds up a full table to a clique's marginal."""
    keep = [np.eye(n) if place in clique else np.ones((1, n)) for place, n in enumerate(domain.sizes)]
    matrix = np.ones((1, 1))
    for each in keep:
        matrix = np.kron(matrix, each)
    return matrix


def _dense(
    domain: Domain, tables: list[Marginal], columns: list[Column], clique: Clique
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Weighted least squares over the full table: estimate, variances, and whether the marginal is determined."""
    rows = [(_summing(domain, t.clique), t.counts.ravel(), np.full(t.counts.size, t.variance)) for t in tables]
    rows += [(_summing(domain, (place,)), counts, spread) for place, (counts, spread) in enumerate(columns)]
    design = np.concatenate([a / np.sqrt(v)[:, np.newaxis] for a, _, v in rows])
    told = np.concatenate([y / np.sqrt(v) for _, y, v in rows])
    inverse = np.linalg.pinv(design.T @ design, rcond=1e-11)
    wanted = _summing(domain, clique)
    determined = bool(np.allclose(wanted @ inverse @ design.T @ design, wanted, atol=1e-7))
    shape = domain.shape(clique)
    estimate, spread = wanted @ inverse @ design.T @ told, np.diag(wanted @ inverse @ wanted.T)
    return estimate.reshape(shape), spread.reshape(shape), determined


def _measured(domain: Domain, cliques: list[Clique], seed: int) -> list[Marginal]:
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 30, domain.sizes).astype(np.float64)
    found = []
    for clique in cliques:
        variance = float(generator.uniform(0.5, 20))
        exact = marginalize(truth, clique)
        found.append(Marginal(clique, exact + generator.normal(0, math.sqrt(variance), exact.shape), variance, EVENT))
    return found


def _columns(domain: Domain, seed: int) -> list[Column]:
    """Every column measured with a variance of its own on each value, as joined rare values have."""
    generator = np.random.default_rng((seed, 1))
    spread = [generator.uniform(0.5, 9, size) for size in domain.sizes]
    return [(generator.normal(20, 5, each.size), each) for each in spread]


CASES = (
    ((2, 3), [(0, 1)]),
    ((2, 3, 4), [(0, 1), (1, 2)]),
    ((2, 3, 4), [(0, 1), (1, 2), (0, 2), (1,)]),
    ((3, 2, 2), [(0, 1, 2), (0, 1), (2,), (2,)]),
    ((2, 2, 3, 2), [(0, 1, 2), (1, 2, 3), (0, 3)]),
    ((1, 3, 2), [(0, 1), (1, 2)]),
)


@pytest.mark.parametrize(("sizes", "cliques"), CASES)
@pytest.mark.parametrize("with_columns", [False, True])
def test_every_marginal_that_is_determined_equals_dense_weighted_least_squares(
    sizes: tuple[int, ...], cliques: list[Clique], with_columns: bool
) -> None:
    domain = _domain(sizes)
    tables, columns = _measured(domain, cliques, 3), _columns(domain, 3) if with_columns else []
    held = compute_residuals(domain, tables, columns)
    tried = 0
    for size in range(1, len(sizes) + 1):
        for clique in itertools.combinations(range(len(sizes)), size):
            found = reconstruct(held, clique)
            estimate, spread, determined = _dense(domain, tables, columns, clique)
            assert determined == (not found.missing)
            if found.missing:
                continue
            np.testing.assert_allclose(found.counts, estimate, rtol=0, atol=1e-9)
            np.testing.assert_allclose(found.variances, spread, rtol=0, atol=1e-9)
            tried += 1
    assert tried >= len(set(cliques))


shapes = st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple)


@st.composite
def measurements(draw: st.DrawFn) -> tuple[Domain, list[Marginal], list[Column]]:
    domain = _domain(draw(shapes))
    places = range(len(domain))
    cliques = [c for size in (1, 2, 3) for c in itertools.combinations(places, size)]
    chosen = draw(st.lists(st.sampled_from(cliques), min_size=1, max_size=4))
    seed = draw(st.integers(0, 10**6))
    return domain, _measured(domain, chosen, seed), _columns(domain, seed) if draw(st.booleans()) else []


@settings(max_examples=60, deadline=None)
@given(measurements())
def test_marginals_agree_with_one_another_wherever_they_overlap(
    case: tuple[Domain, list[Marginal], list[Column]],
) -> None:
    domain, tables, columns = case
    held = compute_residuals(domain, tables, columns)
    for table in tables:
        whole = reconstruct(held, table.clique)
        assert not whole.missing
        for size in range(1, len(table.clique)):
            for axes in itertools.combinations(range(len(table.clique)), size):
                part = reconstruct(held, tuple(table.clique[axis] for axis in axes))
                np.testing.assert_allclose(marginalize(whole.counts, axes), part.counts, atol=1e-7)
        assert float(whole.counts.sum()) == pytest.approx(held.total, abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(measurements())
def test_no_error_bar_is_wider_than_that_of_a_table_by_itself(
    case: tuple[Domain, list[Marginal], list[Column]],
) -> None:
    domain, tables, columns = case
    held = compute_residuals(domain, tables, columns)
    for table in tables:
        assert float(reconstruct(held, table.clique).variances.max()) <= table.variance * (1 + 1e-9)
    for place, (_, spread) in enumerate(columns):
        assert (reconstruct(held, (place,)).variances <= spread * (1 + 1e-9)).all()


@settings(max_examples=60, deadline=None)
@given(measurements())
def test_tables_without_noise_are_given_back_as_they_are(case: tuple[Domain, list[Marginal], list[Column]]) -> None:
    domain, tables, _ = case
    truth = np.random.default_rng(0).integers(0, 9, domain.sizes).astype(np.float64)
    exact = [Marginal(t.clique, marginalize(truth, t.clique), t.variance, EVENT) for t in tables]
    held = compute_residuals(domain, exact)
    for table in exact:
        np.testing.assert_allclose(reconstruct(held, table.clique).counts, table.counts, atol=1e-8)


def test_the_parts_of_a_table_are_orthogonal_and_add_up_to_it() -> None:
    table = np.random.default_rng(2).normal(size=(3, 4))
    row, column = center_table(table.sum(axis=1)), center_table(table.sum(axis=0))
    parts = [
        np.full(table.shape, table.mean()),
        row[:, np.newaxis] / 4 + 0 * table,
        column / 3 + 0 * table,
        center_table(table),
    ]
    np.testing.assert_allclose(sum(parts), table)
    for one, other in itertools.combinations(parts, 2):
        assert float((one * other).sum()) == pytest.approx(0, abs=1e-9)


def test_what_no_table_holds_is_named_as_missing_and_counts_as_no_interaction() -> None:
    domain = _domain((2, 2))
    alone = [Marginal((0,), np.array([30.0, 10]), 1.0, EVENT), Marginal((1,), np.array([20.0, 20]), 1.0, EVENT)]
    found = reconstruct(compute_residuals(domain, alone), (0, 1))
    assert found.missing == ((0, 1),)
    np.testing.assert_allclose(found.counts, [[15, 15], [5, 5]])


def test_nothing_measured_leaves_everything_missing() -> None:
    found = reconstruct(compute_residuals(_domain((2, 3)), []), (0, 1))
    assert found.missing == ((), (0,), (1,), (0, 1))
    assert not found.counts.any()


def test_two_measurements_of_one_column_by_hand() -> None:
    # Values 10, 20 with variance 1 and 14, 20 with variance 3: weights 3/4 and 1/4 on each value, variance 3/4.
    tables = [Marginal((0,), np.array([10.0, 20]), 1.0, EVENT), Marginal((0,), np.array([14.0, 20]), 3.0, EVENT)]
    found = reconstruct(compute_residuals(_domain((2,)), tables), (0,))
    np.testing.assert_allclose(found.counts, [11, 20])
    np.testing.assert_allclose(found.variances, [0.75, 0.75])


def test_counts_without_negatives_add_up_to_the_total() -> None:
    table = Marginal((0, 1), np.array([[50.0, -4], [3, 51]]), 9.0, EVENT)
    held = compute_residuals(_domain((2, 2)), [table])
    mended = reconstruct(held, (0, 1)).nonnegative(held.total)
    assert mended.min() >= 0
    assert float(mended.sum()) == pytest.approx(held.total)


def test_error_bars_cover_the_truth_as_often_as_they_say() -> None:
    # Of 4,000 draws about 95% lie within 1.96 deviations; outside of 93% to 97% a right scale falls with a chance
    # below 1e-8 (5.8 standard errors), and a scale 30% off (82.8% or 98.9%) never falls within.
    domain, generator = _domain((3, 4, 2)), np.random.default_rng(11)
    truth = generator.integers(5, 60, domain.sizes).astype(np.float64)
    cliques, variances, hits = [(0, 1), (1, 2), (0,), (0, 1, 2)], [4.0, 9.0, 2.0, 25.0], 0
    for _ in range(4000):
        exact = [marginalize(truth, clique) for clique in cliques]
        tables = [
            Marginal(clique, table + generator.normal(0, math.sqrt(v), table.shape), v, EVENT)
            for clique, table, v in zip(cliques, exact, variances, strict=True)
        ]
        found = reconstruct(compute_residuals(domain, tables), (0, 1))
        hits += bool(abs(found.counts[1, 2] - exact[0][1, 2]) <= 1.959964 * math.sqrt(found.variances[1, 2]))
    assert 0.93 < hits / 4000 < 0.97
