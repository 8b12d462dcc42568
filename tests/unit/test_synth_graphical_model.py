"""Junction trees and the models on them, against brute force over the whole table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.synth.domain import Domain
from deniable.synth.estimate import Estimates
from deniable.synth.estimate.graphical_model import (
    JunctionTree,
    answer_query,
    build_junction_tree,
    compute_marginals,
    find_unmet_cliques,
    fit_graphical_model,
    order_cliques,
    split_leaves,
)
from deniable.synth.generate import draw_records
from deniable.synth.marginal import count

cases = st.integers(0, 10**6)


def _case(seed: int) -> tuple[np.random.Generator, Domain, list[tuple[int, ...]]]:
    generator = np.random.default_rng(seed)
    columns = int(generator.integers(1, 6))
    sizes = tuple(int(size) for size in generator.integers(1, 4, columns))
    domain = Domain(tuple(f"c{i}" for i in range(columns)), sizes)
    every = [c for way in (1, 2, 3) for c in itertools.combinations(range(columns), way)]
    chosen = generator.permutation(len(every))[: int(generator.integers(0, 6))]
    return generator, domain, [every[i] for i in chosen]


def _whole(domain: Domain, factors: dict[tuple[int, ...], np.ndarray], total: float) -> np.ndarray:
    """The whole table of a product of factors."""
    logs = np.zeros(domain.sizes)
    for clique, factor in factors.items():
        logs = logs + factor.reshape([domain.sizes[p] if p in clique else 1 for p in range(len(domain))])
    table = np.exp(logs)
    return table * (total / table.sum())


def _margin(table: np.ndarray, clique: tuple[int, ...]) -> np.ndarray:
    return table.sum(axis=tuple(axis for axis in range(table.ndim) if axis not in clique))


@given(cases)
@settings(max_examples=80, deadline=None)
def test_a_tree_holds_every_clique_and_what_two_of_its_cliques_share_stands_in_all_between(seed: int) -> None:
    _, domain, cliques = _case(seed)
    tree = build_junction_tree(domain, cliques)
    assert {place for clique in tree.cliques for place in clique} == set(range(len(domain)))
    for clique in cliques:
        assert set(clique) <= set(tree.home(clique))
    for child in range(1, len(tree.cliques)):
        before = set().union(*tree.cliques[:child])
        assert before & set(tree.cliques[child]) == set(tree.separator(child))


@given(cases)
@settings(max_examples=80, deadline=None)
def test_marginals_and_answers_are_those_of_the_whole_table(seed: int) -> None:
    generator, domain, cliques = _case(seed)
    factors = {clique: generator.normal(0, 2, domain.shape(clique)) for clique in cliques}
    tree, whole = build_junction_tree(domain, cliques), _whole(domain, factors, 500.0)
    tables = compute_marginals(tree, factors, 500.0)
    for clique, table in tables.items():
        assert table == pytest.approx(_margin(whole, clique))
    for way in range(1, len(domain) + 1):
        for query in itertools.combinations(range(len(domain)), way):
            assert answer_query(tree, tables, query) == pytest.approx(_margin(whole, query))


def _estimates(whole: np.ndarray, cliques: list[tuple[int, ...]]) -> Estimates:
    columns = tuple(_margin(whole, (place,)) for place in range(whole.ndim))
    return Estimates(float(whole.sum()), columns, {c: _margin(whole, c) for c in cliques if len(c) > 1})


def _fitted_whole(whole: np.ndarray, cliques: list[tuple[int, ...]]) -> np.ndarray:
    """Iterative proportional fitting of the whole table, from a uniform one."""
    table = np.full(whole.shape, whole.sum() / whole.size)
    for _ in range(400):
        for clique in [*cliques, *((place,) for place in range(whole.ndim))]:
            shape = [whole.shape[p] if p in clique else 1 for p in range(whole.ndim)]
            table = table * (_margin(whole, clique) / _margin(table, clique)).reshape(shape)
    return table


@given(cases)
@settings(max_examples=25, deadline=None)
def test_the_fitted_model_is_the_most_even_table_with_those_marginals(seed: int) -> None:
    generator, domain, cliques = _case(seed)
    whole = generator.random(domain.sizes) * 100 + 5
    model = fit_graphical_model(domain, _estimates(whole, cliques))
    naive = _fitted_whole(whole, cliques)
    # The fit ends when every clique is within 1e-4 of the records; the rest may be a few times that off.
    for way in range(1, len(domain) + 1):
        for query in itertools.combinations(range(len(domain)), way):
            assert np.abs(model.table(query) - _margin(naive, query)).sum() < 5e-3 * whole.sum()


@given(cases)
@settings(max_examples=30, deadline=None)
def test_rows_drawn_along_a_junction_tree_have_its_tables_without_nudging(seed: int) -> None:
    generator, domain, cliques = _case(seed)
    tree = build_junction_tree(domain, cliques)
    whole = _whole(domain, {c: generator.normal(0, 1, domain.shape(c)) for c in tree.cliques}, 20_000.0)
    estimates = _estimates(whole, list(tree.cliques))
    tables = estimates.tables
    order = order_cliques(tables, dict.fromkeys(tables, 1.0))
    assert find_unmet_cliques(tables, order) == []
    codes = draw_records(estimates, domain, 20_000, seed)
    for clique, table in tables.items():
        # Rounding moves a cell by less than one for each combination of values that were drawn before.
        assert np.abs(count(codes, domain, clique) - table).max() <= whole.size


def test_cliques_in_a_circle_are_not_all_drawn() -> None:
    circle = [(0, 1), (1, 2), (0, 2)]
    assert len(find_unmet_cliques(circle, order_cliques(circle, dict.fromkeys(circle, 1.0)))) == 1


def test_a_circle_of_four_needs_a_larger_clique_in_its_tree() -> None:
    tree = build_junction_tree(Domain(("a", "b", "c", "d"), (2, 3, 2, 3)), [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert isinstance(tree, JunctionTree)
    assert sorted(len(clique) for clique in tree.cliques) == [3, 3]
    assert tree.cells == 24


def test_leaves_are_what_hangs_on_circles_and_a_tree_is_nothing_but_leaves() -> None:
    tree = {clique: np.ones((2,) * len(clique)) for clique in ((0, 1), (1, 2, 3), (2, 3), (3, 4))}
    core, leaves = split_leaves(tree)
    assert not core
    assert {place for _, _, place in leaves} == {1, 2, 3, 4}, "the first is drawn by itself"
    circle = {pair: np.ones((2, 2)) for pair in ((0, 1), (1, 2), (0, 2), (2, 3), (3, 4))}
    core, leaves = split_leaves(circle)
    assert set(core) == {(0, 1), (1, 2), (0, 2)}
    assert [(clique, place) for clique, _, place in leaves] == [((3, 4), 4), ((2, 3), 3)]
    larger = {pair: np.ones((2, 2)) for pair in ((0, 1), (1, 2), (2, 3))} | {(0, 3, 4): np.ones((2, 2, 2))}
    core, leaves = split_leaves(larger)
    assert set(core) == {(0, 1), (1, 2), (2, 3), (0, 3)}, "what a leaf's clique says of the others stays"
    assert core[0, 3].tolist() == [[2.0, 2.0], [2.0, 2.0]]
