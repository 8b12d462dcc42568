"""Synthesis inside: projections, fits, choices and draws against naive twins and hand-computed tables."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.dp.accounting import cheap_epsilon
from deniable.errors import ParameterError
from deniable.policy.budget import ApproxDP, PureDP
from deniable.synth.bins import sum_by_group
from deniable.synth.domain import Domain
from deniable.synth.estimate import Estimates, ImpliedTables, find_spanning_tree
from deniable.synth.estimate.residuals import fit_axis_margins, project_to_simplex
from deniable.synth.generate import apportion_counts, draw_records, restore_codes
from deniable.synth.marginal import convert_budget, count
from deniable.synth.methods import METHODS, run_method
from seeded import SeededEntropy

numbers = st.lists(st.floats(-50, 50), min_size=1, max_size=6)


@given(numbers, st.floats(0.5, 100))
@settings(max_examples=150, deadline=None)
def test_projection_onto_the_simplex_is_the_nearest_point_of_all_that_bisection_finds(
    values: list[float], total: float
) -> None:
    vector = np.array(values)
    found = project_to_simplex(vector, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total, rel=1e-9)
    low, high = vector.min() - total, vector.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(vector - middle, 0).sum() > total else (low, middle)
    assert found == pytest.approx(np.maximum(vector - high, 0), abs=1e-6 * max(1, total))


def test_projection_onto_a_total_of_nothing_is_nothing() -> None:
    assert project_to_simplex(np.array([3.0, -1.0]), 0.0).tolist() == [0.0, 0.0]


def test_fitting_meets_both_margins() -> None:
    table = fit_axis_margins(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([6.0, 4.0]), np.array([5.0, 5.0]))
    assert table.sum(axis=1) == pytest.approx([6, 4], abs=1e-4)
    assert table.sum(axis=0) == pytest.approx([5, 5], abs=1e-4)


@given(
    st.integers(2, 5).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.integers(1, 30), min_size=n * (n - 1) // 2, max_size=n * (n - 1) // 2, unique=True)
        )
    )
)
@settings(max_examples=60, deadline=None)
def test_the_spanning_tree_is_the_heaviest_of_all(case: tuple[int, list[int]]) -> None:
    columns, weights = case
    pairs = list(itertools.combinations(range(columns), 2))
    chosen = find_spanning_tree(columns, pairs, np.array(weights, dtype=float))

    def is_tree(edges: tuple[tuple[int, ...], ...]) -> bool:
        reached = {0}
        for _ in range(columns):
            reached |= {v for edge in edges for v in edge if set(edge) & reached}
        return len(reached) == columns

    weight = dict(zip(pairs, weights, strict=True))
    best = max(sum(weight[e] for e in edges) for edges in itertools.combinations(pairs, columns - 1) if is_tree(edges))
    assert sum(weight[e] for e in chosen) == best


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_what_a_forest_of_pairs_implies_is_the_margin_of_its_whole_table_also_by_groups(seed: int) -> None:
    generator = np.random.default_rng(seed)
    columns = int(generator.integers(2, 7))
    sizes = [int(size) for size in generator.integers(1, 4, columns)]
    # Every column hangs on an earlier one, or on none. A column is the first of a tree in one case of five.
    above = [int(generator.integers(0, place)) if generator.random() > 0.2 else -1 for place in range(1, columns)]
    shuffled = generator.permutation(columns)
    edges = [tuple(sorted((int(shuffled[a]), int(shuffled[b])))) for b, a in enumerate(above, 1) if a >= 0]
    whole = np.ones(sizes)
    for a, b in edges:
        whole = whole * (generator.random((sizes[a], sizes[b])) + 0.1).reshape(
            [size if place in (a, b) else 1 for place, size in enumerate(sizes)]
        )
    whole *= 1000 / whole.sum()

    def margin(clique: tuple[int, ...]) -> np.ndarray:
        return whole.sum(axis=tuple(place for place in range(columns) if place not in clique))

    estimates = Estimates(1000.0, tuple(margin((p,)) for p in range(columns)), {edge: margin(edge) for edge in edges})
    implied = ImpliedTables(estimates)
    for way in range(1, columns + 1):
        for clique in itertools.combinations(range(columns), way):
            assert implied.table(clique) == pytest.approx(margin(clique))
            maps = tuple(tuple(code // 2 for code in range(sizes[place])) for place in clique)
            assert implied.table(clique, maps) == pytest.approx(sum_by_group(margin(clique), maps))


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=8), st.integers(0, 40), st.integers(0, 2**31))
@settings(max_examples=200, deadline=None)
def test_apportioned_counts_add_up_and_stay_next_to_their_shares(weights: list[float], total: int, seed: int) -> None:
    counts = apportion_counts(np.array(weights), total, np.random.default_rng(seed))
    wanted = np.array(weights) / sum(weights) * total
    assert counts.sum() == total
    assert np.abs(counts - wanted).max() < 1 + 1e-6


def _table(records: int = 4000) -> tuple[np.ndarray, Domain]:
    generator = np.random.default_rng(5)
    first = generator.integers(0, 4, records)
    second = np.where(generator.random(records) < 0.9, first, generator.integers(0, 4, records))
    third = generator.integers(0, 3, records)
    return np.stack([first, second, third]).astype(np.int32), Domain(("a", "b", "c"), (4, 4, 3))


def test_a_budget_that_counted_columns_twice_would_be_noticed() -> None:
    codes, domain = _table()
    twin = run_method(codes, domain, METHODS["mst"], convert_budget(ApproxDP(2, 1e-6), 1))
    spent = cheap_epsilon(twin.event, Fraction(1, 10**6))
    assert spent is not None
    assert spent > 1


@pytest.mark.parametrize("method", ["mst", "auto"])
def test_a_planted_dependence_is_kept_and_independence_is_not_broken(method: str) -> None:
    codes, domain = _table()
    description = run_method(codes, domain, METHODS[method], convert_budget(ApproxDP(5, 1e-6), 1), SeededEntropy(3))
    drawn = restore_codes(description, draw_records(description.estimates, description.collapsed.domain, 4000, 0), 0)
    for pair, most in (((0, 1), 0.05), ((0, 2), 0.06)):
        real, made = count(codes, domain, pair) / 4000, count(drawn, domain, pair) / 4000
        assert np.abs(real - made).sum() / 2 < most


def test_independent_columns_lose_the_dependence_that_pairs_keep() -> None:
    codes, domain = _table()
    description = run_method(codes, domain, METHODS["independent"], convert_budget(ApproxDP(5, 1e-6), 1))
    drawn = restore_codes(description, draw_records(description.estimates, description.collapsed.domain, 4000, 0), 0)
    distance = np.abs(count(codes, domain, (0, 1)) - count(drawn, domain, (0, 1))).sum() / 8000
    assert distance > 0.4


def test_a_pure_budget_is_refused_with_the_way_out() -> None:
    with pytest.raises(ParameterError, match="needs a delta"):
        convert_budget(PureDP(1), 1)


def test_a_domain_without_values_is_refused() -> None:
    with pytest.raises(ParameterError):
        Domain(("a",), (0,))
