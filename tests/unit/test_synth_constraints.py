"""Structural truths hold exactly in every synthetic row, whatever was drawn."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.errors import Infeasible
from deniable.policy.budget import ApproxDP
from deniable.policy.document import parse
from deniable.policy.schema import Spec
from deniable.synth.constraints import ConstraintEnforcer, select_constraints
from deniable.synth.describe import describe_table
from deniable.synth.generate import generate

small = st.one_of(st.none(), st.integers(0, 4))
tables = st.lists(st.tuples(small, small, small), min_size=1, max_size=30)


def _mended(rows: list[tuple[int | None, ...]], *truths: Spec) -> list[dict[str, int | None]]:
    columns = [pa.array([row[i] for row in rows], pa.int64()) for i in range(3)]
    batch = pa.record_batch(columns, names=["a", "b", "c"])
    return ConstraintEnforcer(truths).enforce(batch, np.random.default_rng(0)).to_pylist()


@given(tables)
@settings(max_examples=100, deadline=None)
def test_an_order_holds_and_no_value_is_lost(rows: list[tuple[int | None, ...]]) -> None:
    for before, row in zip(rows, _mended(rows, Spec("order", {"columns": ["a", "b"]})), strict=True):
        assert row["a"] is None or row["b"] is None or row["a"] <= row["b"]
        assert {row["a"], row["b"]} == set(before[:2])


@given(tables)
@settings(max_examples=100, deadline=None)
def test_a_dependency_holds(rows: list[tuple[int | None, ...]]) -> None:
    seen: dict[object, object] = {}
    for row in _mended(rows, Spec("determines", {"from": ["a"], "to": ["b", "c"]})):
        assert seen.setdefault(row["a"], (row["b"], row["c"])) == (row["b"], row["c"])


@given(tables)
@settings(max_examples=100, deadline=None)
def test_a_sum_adds_up(rows: list[tuple[int | None, ...]]) -> None:
    for row in _mended(rows, Spec("sum", {"parts": ["a", "b"], "total": "c"})):
        whole = None if row["a"] is None or row["b"] is None else row["a"] + row["b"]
        assert row["c"] == whole


def test_an_impossible_combination_gives_way_to_a_possible_row() -> None:
    made = _mended([(1, 2, 0), (1, 3, 0), (0, 2, 0)], Spec("impossible", {"when": {"a": 1, "b": [2, 4]}}))
    assert not [row for row in made if row["a"] == 1 and row["b"] in (2, 4)]
    assert len(made) == 3


def test_when_nothing_possible_was_drawn_it_is_said() -> None:
    with pytest.raises(Infeasible, match="impossible"):
        _mended([(1, 2, 0)], Spec("impossible", {"when": {"a": 1}}))


def test_what_one_batch_decided_holds_for_the_next() -> None:
    mender = ConstraintEnforcer([Spec("determines", {"from": ["a"], "to": ["b"]})])
    names = ["a", "b"]
    mender.enforce(pa.record_batch([pa.array([1]), pa.array([7])], names=names), np.random.default_rng(0))
    later = mender.enforce(pa.record_batch([pa.array([1]), pa.array([9])], names=names), np.random.default_rng(0))
    assert later.to_pylist() == [{"a": 1, "b": 7}]


def test_truths_about_columns_that_are_not_released_are_left_out() -> None:
    truths = [Spec("order", {"columns": ["a", "z"]}), Spec("order", {"columns": ["a", "b"]})]
    assert select_constraints(truths, ["a", "b"]) == (truths[1],)


def test_a_policy_with_truths_gives_a_model_whose_rows_keep_them() -> None:
    policy = parse("""
version: 1
dataset: ward
tables:
  stays:
    source: stays.csv
    unit: row
    columns:
      came: {role: sensitive, type: integer, between: [0, 30], nullable: false}
      left: {role: sensitive, type: integer, between: [0, 30], nullable: false}
      sex:  {role: sensitive, categories: [F, M], nullable: false}
      ward: {role: sensitive, categories: [births, bones], nullable: false}
release:
  truths:
    - order: [came, left]
    - impossible: {when: {sex: M, ward: births}}
""")
    count = 600
    rows = pa.table(
        {
            "came": [i % 20 for i in range(count)],
            "left": [i % 20 + i % 9 for i in range(count)],
            "sex": ["F" if i % 2 else "M" for i in range(count)],
            "ward": ["births" if i % 2 and i % 3 else "bones" for i in range(count)],
        }
    )
    model = describe_table(rows, policy.table("stays"), ApproxDP(1, 1e-6), truths=policy.release.truths)
    made = generate(model, 2000, 3).to_pylist()
    assert all(row["came"] <= row["left"] for row in made)
    assert not [row for row in made if row["sex"] == "M" and row["ward"] == "births"]
