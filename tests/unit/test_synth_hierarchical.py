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
from deniable.synth.domain import Areas, Domain, attributes_of, find_areas
from deniable.synth.marginal import convert_budget
from deniable.synth.methods import METHODS, run_method
from deniable.synth.methods.hierarchical import Levels, estimate_top_down, fit_levels, parents_of

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
