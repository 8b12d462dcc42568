"""Areas that add up: least squares against the normal equations, tables from the top down, levels from the policy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.dp.accounting import GaussianEvent
from deniable.errors import ParameterError
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Column, Spec, TableSchema
from deniable.synth.bins import CollapsedDomain
from deniable.synth.domain import Areas, Domain, attributes_of, find_areas
from deniable.synth.estimate.residuals import fit_margins, project_to_simplex, shift_to_margins
from deniable.synth.marginal import Marginal, convert_budget
from deniable.synth.methods import METHODS, run_method
from deniable.synth.methods.hierarchical import (
    Levels,
    _combine_levels,
    _estimate_records,
    _fit_children,
    _leaf_marginal,
    estimate_top_down,
    fit_levels,
    parents_of,
)

EVENT = GaussianEvent(Fraction(1), Fraction(1))
LEVELS = [np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 2, 3, 3]), np.arange(6)]
"""Six tracts in four counties in two regions."""


def _levels(seed: int, values: int = 2) -> Levels:
    generator = np.random.default_rng(seed)
    sizes = [1, *(int(groups.max()) + 1 for groups in LEVELS)]
    counts = tuple(generator.normal(50, 60, (size, values)) for size in sizes)
    variances = tuple(np.full((size, values), generator.uniform(1, 20)) for size in sizes)
    return Levels(counts, variances, EVENT, parents_of(LEVELS))


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_fitted_levels_are_the_weighted_least_squares(seed: int) -> None:
    held = _levels(seed)
    # Every level is a sum of leaves: measured = design @ leaves + noise.
    design = np.vstack([np.ones((1, 6)), *(np.eye(int(g.max()) + 1)[:, g] for g in LEVELS)])
    for value in range(2):
        y = np.concatenate([level[:, value] for level in held.counts])
        precision = np.diag(1 / np.concatenate([level[:, value] for level in held.variances]))
        information = design.T @ precision @ design
        leaves = np.linalg.solve(information, design.T @ precision @ y)
        fit = fit_levels(held)
        assert fit[-1].values[:, value] == pytest.approx(leaves)
        assert fit[-1].variances[:, value] == pytest.approx(np.diag(np.linalg.inv(information)))
        for level, own in zip(fit[1:-1], LEVELS[:-1], strict=True):
            assert level.values[:, value] == pytest.approx(np.bincount(own, leaves))


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_from_the_top_down_nothing_is_negative_areas_agree_and_columns_are_kept(seed: int) -> None:
    held = {1: _levels(seed, 2), 2: _levels(seed + 1, 3)}
    columns = [np.array([]), np.array([70.0, 30.0]), np.array([20.0, 50.0, 30.0])]
    tables = estimate_top_down(held, 100.0, columns)
    for place, table in tables.items():
        assert table.min() >= 0
        assert table.sum(axis=0) == pytest.approx(columns[place], abs=0.05)
    assert tables[1].sum(axis=1) == pytest.approx(tables[2].sum(axis=1), abs=0.05)


def test_large_areas_are_told_better_than_their_parts_alone_would() -> None:
    # 512 areas in 8 regions. With s the deviation of an area's count if areas alone are measured, a region's two counts
    # get a fifth: deviation 2.2 s each, 3.2 s together; without, 128 counts add up to 11.3 s. Means of 80 absolute
    # errors are within 8% each, so the ratio of about 3.7 is within 12%, and 1.5 is seven deviations away.
    generator = np.random.default_rng(3)
    domain = Domain(("area", "kind"), (512, 2))
    codes = np.stack([generator.integers(0, 512, 8000), generator.integers(0, 2, 8000)]).astype(np.int32)
    region = np.arange(512) // 64
    truth = np.bincount(region[codes[0]], minlength=8)

    def error(levels: tuple[np.ndarray, ...]) -> float:
        spend, method = convert_budget(ApproxDP(1, 1e-6), 1), METHODS["hierarchical"]
        found = [run_method(codes, domain, method, spend, areas=Areas(0, levels)).cliques[0] for _ in range(10)]
        return float(np.mean([np.abs(np.bincount(region, m.counts.sum(axis=1)) - truth).mean() for m in found]))

    assert error((region, np.arange(512))) < error((np.arange(512),)) / 1.5


def _table(hierarchy: Spec, categories: tuple[str, ...]) -> TableSchema:
    place = Column("place", categories=categories, nullable=False, hierarchy=hierarchy)
    return TableSchema("t", "t.csv", (Column("kind", categories=("a", "b")), place))


def _levels_of(hierarchy: Spec, categories: tuple[str, ...]) -> list[list[int]]:
    table = _table(hierarchy, categories)
    found = find_areas(table, attributes_of(table))
    assert found is not None
    assert found.place == 1
    return [groups.tolist() for groups in found.levels]


def test_levels_come_from_the_declared_hierarchy() -> None:
    zips = ("69501", "69502", "69611", "70000")
    rows = (("a", "n", "all"), ("b", "n", "all"), ("c", "s", "all"))
    assert _levels_of(Spec("redact", {"from": "right"}), zips) == [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3]]
    assert _levels_of(Spec("prefix", {"lengths": (3, 1)}), zips) == [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3]]
    assert _levels_of(Spec("tree", {"rows": rows}), ("a", "b", "c")) == [[0, 0, 1], [0, 1, 2]]
    assert _levels_of(Spec("order", {"sizes": (2,)}), ("a", "b", "c")) == [[0, 0, 1], [0, 1, 2]]
    assert _levels_of(Spec("order", {"groups": (("a", "c"), ("b",))}), ("a", "b", "c")) == [[0, 1, 0], [0, 1, 2]]


def test_a_column_without_areas_is_refused_by_name_and_another_is_offered() -> None:
    table = _table(Spec("redact", {}), ("69501", "69502"))
    with pytest.raises(ParameterError, match=r"'kind' do not lie in one another.*take 'place'"):
        find_areas(table, attributes_of(table), "kind")


def test_records_of_areas_are_what_all_columns_tell_by_inverse_variances() -> None:
    held = {1: _levels(4, 2), 2: _levels(5, 3)}
    counts, variances = [], []
    for level in range(4):
        told = [(each.counts[level].sum(axis=1), each.variances[level].sum(axis=1)) for each in held.values()]
        precision = sum(1 / spread for _, spread in told)
        counts.append((sum(own / spread for own, spread in told) / precision)[:, np.newaxis])
        variances.append((1 / precision)[:, np.newaxis])
    fit = fit_levels(Levels(tuple(counts), tuple(variances), EVENT, parents_of(LEVELS)))
    found = _estimate_records(held, 250.0)
    assert found[0].tolist() == [250.0]
    for above, level, own, parent in zip(found[:-1], found[1:], fit[1:], parents_of(LEVELS), strict=True):
        for area, records in enumerate(above):
            mine = parent == area
            assert level[mine] == pytest.approx(project_to_simplex(own.values[mine, 0], float(records)))


def test_children_of_an_area_have_their_records_and_their_parents_shares() -> None:
    above = np.array([[30.0, 70.0], [5.0, 0.0]])
    values = np.array([[10.0, 50.0], [25.0, 15.0], [4.0, 4.0]])
    parent, rows = np.array([0, 0, 1]), np.array([55.0, 25.0, 0.0])
    found = _fit_children(above, values, parent, rows)
    assert found.sum(axis=1) == pytest.approx(rows, abs=1e-6)
    assert found[:2].sum(axis=0) == pytest.approx([0.3 * 80, 0.7 * 80], abs=1e-6)
    assert found[2].tolist() == [0.0, 0.0]
    margins = {(0,): rows[:2], (1,): np.array([24.0, 56.0])}
    near = project_to_simplex(shift_to_margins(values[:2], margins), 80.0)
    trace = np.outer(rows[:2], [24.0, 56.0]) / 80
    assert found[:2] == pytest.approx(fit_margins(near + 1e-3 * trace, margins, rounds=500))


def test_the_finest_level_is_told_as_a_clique_of_both_columns() -> None:
    held = _levels(6, 3)
    finest = fit_levels(held)[-1]
    after, before = _leaf_marginal(0, 2, held), _leaf_marginal(2, 0, held)
    assert (after.clique, before.clique) == ((0, 2), (0, 2))
    assert after.counts == pytest.approx(finest.values)
    assert before.counts == pytest.approx(finest.values.T)
    assert after.variance == before.variance == pytest.approx(finest.variances.mean())
    assert after.event == EVENT


def test_the_whole_is_what_the_columns_own_measurement_says() -> None:
    maps = (np.arange(2, dtype=np.int32), np.array([0, 1, 1], dtype=np.int32))
    collapsed = CollapsedDomain(Domain(("area", "x"), (2, 2)), maps)
    top = Marginal((1,), np.array([10.0, 4.0, 3.0]), 5.0, EVENT)
    level = Marginal((0, 1), np.array([[6.0, 1.0], [5.0, 6.0]]), 7.0, EVENT)
    held = _combine_levels(collapsed, top, [level], 1, parents_of([np.arange(2)]))
    assert [counts.tolist() for counts in held.counts] == [[[10, 7]], [[6, 1], [5, 6]]]
    assert [spread.tolist() for spread in held.variances] == [[[5, 10]], [[7, 7], [7, 7]]]


def test_levels_without_a_parent_above_are_fitted_alone() -> None:
    assert estimate_top_down({}, 100.0, []) == {}
    held = Levels((np.array([[9.0]]), np.array([[2.0], [4.0]])), (np.array([[1.0]]), np.ones((2, 1))), EVENT,
                  (np.zeros(2, dtype=np.int64),))  # fmt: skip
    whole, parts = fit_levels(held)
    assert whole.values.tolist() == [[pytest.approx(8.0)]]
    assert parts.values.ravel() == pytest.approx([3.0, 5.0])
    assert whole.variances.ravel() == pytest.approx([2 / 3])
    assert parts.variances.ravel() == pytest.approx([2 / 3, 2 / 3])
