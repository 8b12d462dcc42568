"""The network of degree two: its families, when a column gets fewer parents, and draws against brute force."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Column, ColumnType, PrivacyUnit, Role, TableSchema
from deniable.synth.describe import describe_table
from deniable.synth.domain import Domain
from deniable.synth.estimate import Estimates
from deniable.synth.estimate.residuals import fit_axis_margins
from deniable.synth.generate import draw_records, generate, restore_codes
from deniable.synth.marginal import convert_budget, count
from deniable.synth.methods import METHODS, run_method
from deniable.synth.methods.published import select_network
from deniable.synth.model import FIRST, load, to_plain
from deniable.synth.select import SelectionProblem
from seeded import SeededEntropy


def _problem(scores: list[float], columns: int, amount: float = 1.0, total: float = 1e5) -> SelectionProblem:
    domain = Domain(tuple(f"c{i}" for i in range(columns)), (3,) * columns)
    pairs = list(itertools.combinations(range(columns), 2))
    ones = np.ones(columns)
    return SelectionProblem(domain, pairs, np.array(scores), 3 * ones, ones, 0 * ones, amount, 1, total)


@given(
    st.integers(2, 7).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.floats(-5, 100), min_size=n * (n - 1) // 2, max_size=n * (n - 1) // 2)
        )
    )
)
@settings(max_examples=100, deadline=None)
def test_every_family_adds_a_column_has_at_most_three_and_the_shares_add_up(case: tuple[int, list[float]]) -> None:
    columns, scores = case
    chosen = select_network(_problem(scores, columns))
    done: set[int] = set()
    for family in chosen.cliques:
        assert 2 <= len(family) <= 3
        assert set(family) - done  # its child; and a parent that has none of its own stands in no earlier family
        assert list(family) == sorted(family)
        done |= set(family)
    assert len(chosen.cliques) < columns
    assert sum(chosen.shares) <= 1 + 1e-9
    assert not chosen.cliques or sum(chosen.shares) == pytest.approx(1)


def test_a_column_hangs_on_the_two_that_it_has_most_to_do_with() -> None:
    # Pairs in order: 01 02 03 12 13 23.
    chosen = select_network(_problem([50, 0, 9, 0, 8, 1], 4))
    assert chosen.cliques[0] == (0, 1)
    assert (0, 1, 3) in chosen.cliques


def test_tables_that_would_drown_in_noise_lose_parents() -> None:
    scores = [50.0, 40, 30]
    assert max(len(family) for family in select_network(_problem(scores, 3, total=1e5)).cliques) == 3
    # 27 cells with 2 families: needs total >= 4 sqrt(2) 27 = 153; 9 cells need 51.
    assert {len(family) for family in select_network(_problem(scores, 3, total=100)).cliques} == {2}
    assert select_network(_problem(scores, 3, total=40)).cliques == ()


def test_drawing_family_by_family_follows_a_table_of_three_that_no_pair_shows() -> None:
    parity = np.zeros((2, 2, 2))
    for a, b in itertools.product(range(2), range(2)):
        parity[a, b, a ^ b] = 1000
    half = np.array([2000.0, 2000.0])
    chain = np.array([[1500.0, 500.0], [0.0, 2000.0]])
    estimates = Estimates(4000, (half, half, half, np.array([1500.0, 2500])), {(0, 1, 2): parity, (1, 3): chain})
    domain = Domain(("a", "b", "c", "d"), (2, 2, 2, 2))
    codes = draw_records(estimates, domain, 4000, 1)
    assert count(codes, domain, (0, 1, 2)).tolist() == parity.tolist()
    assert count(codes, domain, (1, 3)).tolist() == chain.tolist()


def test_a_column_in_the_middle_of_a_clique_can_be_the_new_one() -> None:
    domain = Domain(("a", "b", "c"), (2, 3, 4))
    table = np.random.default_rng(0).integers(1, 50, (2, 3, 4)).astype(float)
    columns = tuple(table.sum(axis=axes) for axes in ((1, 2), (0, 2), (0, 1)))
    estimates = Estimates(table.sum(), columns, {(0, 2): table.sum(axis=1), (0, 1, 2): table})
    codes = draw_records(estimates, domain, int(table.sum()), 3)
    assert np.abs(count(codes, domain, (0, 1, 2)) - table).max() <= 1


def test_fitting_meets_three_margins() -> None:
    margins = (np.array([6.0, 4.0]), np.array([5.0, 5.0]), np.array([1.0, 2.0, 7.0]))
    table = fit_axis_margins(np.random.default_rng(1).random((2, 2, 3)), *margins)
    for axis, margin in enumerate(margins):
        assert table.sum(axis=tuple(other for other in range(3) if other != axis)) == pytest.approx(margin, abs=1e-4)


def test_a_value_that_depends_on_two_others_is_kept_where_a_tree_loses_it() -> None:
    generator = np.random.default_rng(5)
    a, b = generator.integers(0, 3, 20_000), generator.integers(0, 3, 20_000)
    codes = np.stack([a, b, np.maximum(a, b)]).astype(np.int32)
    domain = Domain(("a", "b", "c"), (3, 3, 3))

    def distance(method: str) -> float:
        told = run_method(codes, domain, METHODS[method], convert_budget(ApproxDP(3, 1e-6), 1), SeededEntropy(3))
        made = restore_codes(told, draw_records(told.estimates, told.collapsed.domain, 20_000, 0), 0)
        return float(np.abs(count(codes, domain, (0, 1, 2)) - count(made, domain, (0, 1, 2))).sum() / 40_000)

    assert distance("correlated") < 0.03
    assert distance("mst") > 0.1


def _model(method: str):  # type: ignore[no-untyped-def]
    columns = (
        Column("a", ColumnType.BOOLEAN, Role.QUASI_IDENTIFIER, nullable=False),
        Column("b", ColumnType.BOOLEAN, nullable=False),
        Column("c", ColumnType.BOOLEAN, nullable=False),
    )
    values = [bool(i % 3) for i in range(3000)]
    rows = pa.table({"a": values, "b": values, "c": values})
    return describe_table(rows, TableSchema("t", "t.csv", columns, PrivacyUnit()), ApproxDP(3, 1e-6), method)


def test_a_model_with_cliques_of_three_is_read_back_and_draws_the_same_rows(tmp_path: Path) -> None:
    model = _model("correlated")
    assert any(len(marginal.clique) == 3 for marginal in model.description.cliques)
    (tmp_path / "m.json").write_text(json.dumps(to_plain(model)))
    again = load(tmp_path / "m.json")
    assert again.description.reason == model.description.reason
    assert generate(again, 100, 2).equals(generate(model, 100, 2))


def test_a_model_of_the_first_version_is_still_read(tmp_path: Path) -> None:
    model = _model("mst")
    plain = to_plain(model)
    plain["form"], plain["pairs"] = FIRST, plain.pop("cliques")
    plain["estimates"]["pairs"] = plain["estimates"].pop("cliques")
    del plain["reason"]
    (tmp_path / "old.json").write_text(json.dumps(plain))
    assert generate(load(tmp_path / "old.json"), 100, 2).equals(generate(model, 100, 2))
