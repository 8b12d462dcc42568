"""Automatic bounds, largest groups, watches, blocks, questions by method: by hand, by brute force, at extremes."""

from __future__ import annotations

import pickle
import random
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import deniable
from deniable import Curator, col
from deniable.dp.accounting import pure_cost
from deniable.dp.mechanisms import ExponentialMechanism, LaplaceMechanism, QuantileMechanism
from deniable.dp.samplers import SYSTEM
from deniable.errors import AccessRefused, BudgetExceeded, DeniableError, InternalError, ParameterError, QueryRefused
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.document import read
from deniable.policy.schema import Column, ColumnType, Neighboring, PrivacyUnit, TableSchema
from deniable.query.compile import compile_query
from deniable.query.sql import auto_clamp as auto_bounds
from deniable.query.sql.auto_clamp import find_auto_clamps, insert_bounds
from deniable.query.techniques import sample_aggregate, top_k, watch

POLICY = """
version: 1
dataset: shop
tables:
  sales:
    source: sales.parquet
    unit: {column: buyer, max_groups: 2, max_rows_per_group: 2}
    columns:
      buyer:  {role: identifier}
      kind:   {categories: [a, b, c, d]}
      town:   {}
      amount: {type: integer}
      weight: {type: decimal}
  towns: {source: towns.parquet, public: true}
budgets:
  dataset: {epsilon: 5000, delta: 1e-3}
"""
TOWNS = pa.table({"t": ["x", "y"]})


def _sales(buyers: int = 400) -> pa.Table:
    kinds = ["a"] * 2 + ["b"] + ["c"] * 3
    rows = [
        {"buyer": f"p{i}", "kind": kind, "town": "x" if i % 4 else "y", "amount": 3 + i % 60, "weight": -0.3}
        for i in range(buyers)
        for kind in {kinds[i % 6], kinds[(i + 1) % 6]}
    ]
    return pa.Table.from_pylist([*rows, {"buyer": "rich", "kind": "a", "town": "z", "amount": 10**12, "weight": 9e9}])


@pytest.fixture
def curator(tmp_path: Path) -> Curator:
    (tmp_path / "policy.yaml").write_text(POLICY)
    return Curator(read(tmp_path / "policy.yaml"), sources={"sales": _sales(), "towns": TOWNS})


def _left(curator: Curator) -> Fraction:
    left = curator.remaining()
    assert left is not None
    return left.epsilon  # type: ignore[union-attr]


# Automatic bounds


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5] * 500, (4, 8)),
        ([8] * 500 + [9] * 500, (4, 16)),
        ([0] * 500, (0, 0)),
        ([1] * 500, (0, 1)),
        ([-1] * 500, (-1, 0)),
        ([-5] * 500 + [100] * 500, (-8, 128)),
        ([2**60] * 500, (2**51, 2**52)),
        ([7] * 500 + [10**9], (4, 8)),
    ],
)
def test_bounds_are_the_powers_of_two_around_the_bulk(
    values: list[int], expected: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    table = pa.table({"buyer": [f"p{i}" for i in range(len(values))], "kind": ["a"] * len(values),
                      "town": ["x"] * len(values), "amount": values, "weight": [0.0] * len(values)})  # fmt: skip
    with Curator(read(tmp_path / "policy.yaml"), sources={"sales": table, "towns": TOWNS}) as curator:
        row = curator.find_bounds("sales", "amount", 10).to_pylist()[0]
    assert (row["lower"], row["upper"], row["found"]) == (*expected, True)


def test_decimal_bounds_reach_below_one(curator: Curator) -> None:
    row = curator.find_bounds("sales", "weight", 50).to_pylist()[0]
    assert (row["lower"], row["upper"]) == (-0.5, -0.25)


def test_no_bounds_are_found_among_no_rows_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    with Curator(read(tmp_path / "policy.yaml"), sources={"sales": _sales().slice(0, 0), "towns": TOWNS}) as curator:
        assert curator.find_bounds("sales", "amount", 1, confidence=0.999999).to_pylist()[0]["found"] is False


@pytest.mark.parametrize("column", ["amount", "weight"])
def test_every_number_falls_in_the_bin_whose_edges_enclose_it(column: str) -> None:
    kind = ColumnType.INTEGER if column == "amount" else ColumnType.DECIMAL
    table = TableSchema("t", "", (Column(column, kind),), PrivacyUnit())
    plan = compile_query(auto_bounds.write_bounds_query(table, table.columns[0]), (table,), PureDP(1))
    bins = sorted(int(v) for v in plan.nodes[0].steps[0].keys.parts[0].values)  # type: ignore[union-attr]
    whole = column == "amount"
    ends = [(auto_bounds._lower_edge(b, whole), auto_bounds._upper_edge(b, whole)) for b in bins]
    assert all(low <= high for low, high in ends)
    assert ends[0][0] == -(2**52)
    assert ends[-1][1] == 2**52
    assert all(before[1] == after[0] or before == (0, 0) or after == (0, 0) for before, after in pairwise(ends))


def test_a_unit_is_in_one_bin_only(curator: Curator) -> None:
    from deniable.curator.query.auto_bounds import _find_column, _plan

    table, column = _find_column(curator.context.scope.schemas(), "amount", "sales")
    step = _plan(curator.context, table, column, PureDP(1)).nodes[0].steps[0]
    assert step.limits.groups == 1
    assert step.placed[0].sensitivity.l1 == 1


def test_auto_clamp_spends_a_tenth_on_bounds_and_the_budget_in_all(curator: Curator) -> None:
    answer = curator.query("SELECT SUM(AUTO_CLAMP(amount)) AS s FROM sales", epsilon=100)
    assert _left(curator) == 4900
    truth = sum(row["amount"] for row in _sales().to_pylist() if row["buyer"] != "rich") + 64
    assert answer.to_pylist()[0]["s"] == pytest.approx(truth, rel=0.02)
    assert "CLAMP(amount, 0, 64)" in answer.release.provenance.parameters["sql"]
    assert answer.release.guarantee.epsilon == 100, "the bounds and the sum together"
    assert answer.release.details["cost"]["epsilon"] == "100"
    (bounds,) = answer.release.details["bounds"]
    assert (bounds["lower"], bounds["upper"], bounds["found"]) == (0, 64, True)


def test_auto_clamp_says_when_nothing_rose_above_the_noise(curator: Curator) -> None:
    answer = curator.query("SELECT SUM(AUTO_CLAMP(amount)) AS s FROM sales WHERE amount > 60", epsilon=1)
    assert not answer.release.details["bounds"][0]["found"]
    assert "nothing rose above the noise" in answer.release.details["notes"][0]


def test_auto_clamp_finds_bounds_of_the_rows_that_a_filter_keeps(curator: Curator) -> None:
    answer = curator.query("SELECT SUM(AUTO_CLAMP(amount)) FILTER (WHERE amount < 8) AS s FROM sales", epsilon=100)
    assert "CLAMP(amount, 0, 8)" in answer.release.provenance.parameters["sql"]


def test_auto_clamp_is_explained_without_data(curator: Curator) -> None:
    told = curator.explain("SELECT SUM(AUTO_CLAMP(amount)) AS s FROM sales", epsilon=1)
    assert told["cost"]["epsilon"] == "1"
    assert told["bounds"][0]["cost"]["epsilon"] == "0.1"
    assert _left(curator) == 5000


@pytest.mark.parametrize("value", ["amount", "AUTO_CLAMP(amount)"])
def test_a_repeat_is_free_and_foreseen_as_free_when_the_budget_is_out(curator: Curator, value: str) -> None:
    sql = f"SELECT SUM({value}) AS s FROM sales" if "(" in value else "SELECT COUNT(*) AS s FROM sales"
    before = curator.preview(sql, epsilon=5000)
    assert before.takes == 5000
    first = curator.query(sql, epsilon=5000)
    assert _left(curator) == 0
    assert curator.preview(sql, epsilon=5000).takes == 0
    assert curator.query(sql, epsilon=5000).to_pylist() == first.to_pylist()
    assert curator.preview(sql, epsilon=4999).takes == (None if "(" in value else 0), "with less, it follows"


def test_auto_clamp_that_cannot_be_paid_is_refused_before_its_first_stage(curator: Curator) -> None:
    with pytest.raises(BudgetExceeded):
        curator.query("SELECT SUM(AUTO_CLAMP(amount)) AS s FROM sales", epsilon=5001)
    assert _left(curator) == 5000


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(AUTO_CLAMP()) FROM sales",
        "SELECT SUM(AUTO_CLAMP(amount, 3)) FROM sales",
        "SELECT SUM(AUTO_CLAMP(AUTO_CLAMP(amount))) FROM sales",
        "SELECT AUTO_CLAMP(SUM(amount)) FROM sales",
        "SELECT COUNT(*) FROM sales WHERE AUTO_CLAMP(amount) > 3",
        "SELECT COUNT(*) FROM sales GROUP BY AUTO_CLAMP(amount)",
        "SELECT SUM(AUTO_CLAMP(s)) FROM (SELECT buyer, SUM(AUTO_CLAMP(amount)) AS s FROM sales GROUP BY buyer) AS p",
        "SELECT SUM(AUTO_CLAMP(1))",
        "SELECT SUM(AUTO_CLAMP(kind)) FROM sales",
        "SELECT SUM(AUTO_CLAMP(amounts)) FROM sales",
        "SELECT SUM(AUTO_CLAMP(towns.t)) FROM sales",
        "SELECT SUM(AUTO_CLAMP(amount)) FROM",
        "SELECT SUM(AUTO_CLAMP(amount",
    ],
)
def test_auto_clamp_of_something_else_is_refused(curator: Curator, sql: str) -> None:
    with pytest.raises(QueryRefused):
        curator.query(sql, epsilon=1)
    assert _left(curator) == 5000


FEW = "SELECT * FROM sales WHERE amount <= 8"
PER_BUYER = "SELECT buyer, SUM(AUTO_CLAMP(amount - 1)) AS n FROM sales WHERE amount < 8 GROUP BY buyer"
AUTO_CLAMPED = [
    ("SELECT SUM(AUTO_CLAMP(amount * 1024)) AS s FROM sales", "CLAMP(amount * 1024, 0, 65536)"),
    ("SELECT SUM(AUTO_CLAMP(amount)) AS s FROM sales WHERE amount < 8 OR amount < 3", "CLAMP(amount, 0, 8)"),
    (f"WITH few AS ({FEW}) SELECT SUM(AUTO_CLAMP(amount)) FROM few", "CLAMP(amount, 0, 8)"),
    (f"SELECT SUM(AUTO_CLAMP(s.amount)) FROM ({FEW}) AS s", "CLAMP(s.amount, 0, 8)"),
    (f"SELECT AVG(CLAMP(n, 0, 100)) FROM ({PER_BUYER}) AS p", "CLAMP(amount - 1, 0, 8)"),
]


@pytest.mark.parametrize(("sql", "written"), AUTO_CLAMPED)
def test_auto_clamp_finds_bounds_of_an_expression_over_the_rows_of_the_question(
    curator: Curator, sql: str, written: str
) -> None:
    """The bounds have epsilon 40, so a bin that is off by one unit has a chance of e^-40, and bins have 13 or more."""
    answer = curator.query(sql, epsilon=400)
    assert written in answer.release.provenance.parameters["sql"]
    assert _left(curator) == 4600


def test_the_same_expression_is_bounded_once_and_others_share_the_tenth(curator: Curator) -> None:
    sql = (
        "SELECT kind, SUM(AUTO_CLAMP(amount)) AS s, AVG(AUTO_CLAMP( amount )) AS m, MAX(AUTO_CLAMP(weight)) FROM sales "
    )
    told = curator.explain(sql + "GROUP BY kind", epsilon=1)
    assert [(stage["finds"], stage["cost"]["epsilon"]) for stage in told["bounds"]] == [
        ("bounds of amount", "0.05"), ("bounds of weight", "0.05")]  # fmt: skip


def test_finding_bounds_over_a_questions_rows_counts_each_unit_once(curator: Curator) -> None:
    (call,) = find_auto_clamps("SELECT SUM(AUTO_CLAMP(amount + 1)) FROM sales WHERE amount > 2")
    plan = compile_query(auto_bounds.write_bounds_query_over(*call.meant), curator.context.scope.schemas(), PureDP(1))
    assert plan.nodes[0].steps[0].placed[0].sensitivity.l1 == 1


def test_mangled_statements_with_auto_clamp_are_read_or_refused() -> None:
    """Words are dropped, doubled and moved: no call may end in anything but calls or a refusal."""
    chance, seen = random.Random(1), 0
    for sql, _ in AUTO_CLAMPED * 60:
        words = sql.replace("(", " ( ").replace(")", " ) ").split()
        for _ in range(chance.randint(0, 2)):
            at = chance.randrange(len(words))
            words[at : at + 1] = chance.choice([[], [words[at]] * 2, ["amount"], ["AUTO_CLAMP"], ["("], [words[0]]])
        with suppress(QueryRefused):
            seen += len(find_auto_clamps(" ".join(words)))
    assert seen > 20


def test_answers_of_several_quantiles_are_stored_and_shown_again(curator: Curator) -> None:
    sql = "SELECT kind, QUANTILE(CLAMP(amount, 0, 100), [0.75, 0.25, 0.5]) AS q, COUNT(*) AS n FROM sales GROUP BY kind"
    first, again = curator.query(sql, epsilon=1), curator.query(sql, epsilon=1)
    assert again.repeated
    assert first.to_pylist() == again.to_pylist()
    assert all(row["q_0_25"] <= row["q_0_5"] <= row["q_0_75"] for row in first.to_pylist())
    told = curator.explain(sql, epsilon=1)
    assert any("chosen together" in note for note in told["notes"])
    assert told["aggregates"][0]["measurements"][0]["share"] == "0.666667"


def test_auto_clamps_are_found_by_tokens_not_by_text() -> None:
    assert find_auto_clamps("SELECT COUNT(*) FROM t WHERE k = 'AUTO_CLAMP(x)'") == ()
    (call,) = find_auto_clamps("SELECT SUM( auto_clamp ( t.x ) ) FROM t")
    assert (
        insert_bounds("SELECT SUM( auto_clamp ( t.x ) ) FROM t", {call: ("0", "8")})
        == "SELECT SUM( CLAMP(t.x, 0, 8) ) FROM t"
    )


@pytest.mark.parametrize(
    ("table", "column"), [("sales", "amont"), ("sale", "amount"), ("sales", "kind"), ("towns", "t")]
)
def test_bounds_of_what_has_none_are_refused(curator: Curator, table: str, column: str) -> None:
    with pytest.raises(QueryRefused):
        curator.find_bounds(table, column, 1)


# The largest groups


def test_the_largest_groups_are_found_in_their_order(curator: Curator) -> None:
    rows = curator.top("sales", "kind", 2, epsilon=200).to_pylist()
    assert [row["kind"] for row in rows] == ["c", "a"]
    everyone = {(row["buyer"], row["kind"]) for row in _sales().to_pylist()}
    for row in rows:
        assert abs(row["units"] - sum(kind == row["kind"] for _, kind in everyone)) <= 1


def test_more_groups_than_there_are_gives_all_of_them(curator: Curator) -> None:
    assert sorted(row["kind"] for row in curator.top("sales", "kind", 10, epsilon=200).to_pylist()) == [
        "a",
        "b",
        "c",
        "d",
    ]


def test_private_keys_are_ranked_by_their_noisy_counts(curator: Curator) -> None:
    rows = curator.top("sales", "town", 5, epsilon=50, delta=1e-6).to_pylist()
    assert [row["town"] for row in rows] == ["x", "y"]


def test_private_keys_without_delta_are_refused(curator: Curator) -> None:
    with pytest.raises(QueryRefused, match="delta"):
        curator.top("sales", "town", 5, epsilon=1)


@pytest.mark.parametrize("k", [0, -1, 1001, True])
def test_a_k_that_makes_no_sense_is_refused(curator: Curator, k: int) -> None:
    with pytest.raises(ParameterError):
        curator.top("sales", "kind", k, epsilon=1)
    assert _left(curator) == 5000


def _top(neighboring: Neighboring = Neighboring.ADD_REMOVE, budget: Any = None, k: int = 3) -> top_k.TopPlan:
    unit = PrivacyUnit("buyer", 1, 1, neighboring)
    table = TableSchema("sales", "", (Column("buyer"), Column("kind", categories=("a", "b", "c", "d"))), unit)
    asked = budget or PureDP(1)
    base = compile_query("SELECT kind, COUNT(DISTINCT buyer) AS n FROM sales GROUP BY kind", (table,), asked)
    return top_k.plan_top(base, k, asked)


def test_a_ranking_costs_exactly_its_budget() -> None:
    cost = pure_cost(_top().event)
    assert cost is not None
    assert cost.amount == 1


def test_replaced_units_may_move_scores_both_ways() -> None:
    assert _top().choice.monotonic
    assert not _top(Neighboring.REPLACE).choice.monotonic


def test_a_delta_makes_many_choices_sharper() -> None:
    assert _top(budget=ApproxDP(1, "1e-6"), k=200).choice.unit > _top(k=200).choice.unit


@pytest.mark.parametrize(
    "broken",
    [
        lambda p: replace(p, counting=LaplaceMechanism(p.counting.scale / 3, p.counting.sensitivity / 3)),
        lambda p: replace(p, choice=ExponentialMechanism(p.choice.epsilon, Fraction(1, 2), True)),
        lambda p: replace(p, count=p.count + 1),
    ],
)
def test_double_entry_catches_a_broken_ranking(broken: Any) -> None:
    with pytest.raises(InternalError):
        top_k.check(broken(_top()))


def test_no_unit_moves_a_score_by_more_than_one(engine: Any) -> None:
    plan = _top()
    rows = _sales(40).select(["buyer", "kind"])

    def scores(table: pa.Table) -> np.ndarray:
        engine.attach("sales", table)
        from deniable.query.measurements import Units
        from deniable.query.sql import private_sql

        step = plan.step
        text = private_sql.render_totals(
            plan.base.nodes[0].node, step.places, {"m0": Units(None)}, plan.limits, step.keys, 0
        )
        return engine.run(text).column("m0").to_numpy()

    whole = scores(rows)
    for buyer in ("p0", "p7", "rich"):
        moved = whole - scores(rows.filter(pa.compute.not_equal(rows["buyer"], buyer)))
        assert moved.min() >= 0
        assert moved.max() == 1


# Watches


def test_a_watch_is_charged_once_and_says_not_yet_for_free(curator: Curator) -> None:
    far = curator.watch("SELECT COUNT(*) FROM sales", 10**9, 1)
    assert [far.check() for _ in range(20)] == [False] * 20
    assert _left(curator) == 4999


def test_a_watch_is_over_when_the_count_has_passed(curator: Curator) -> None:
    near = curator.watch("SELECT COUNT(*) FROM sales WHERE kind = 'a'", 2, 100)
    assert near.check()
    with pytest.raises(ParameterError, match="over"):
        near.check()


def test_a_watch_shows_and_stores_nothing_of_its_noise() -> None:
    table = TableSchema("t", "", (Column("x"),), PrivacyUnit())
    base = compile_query("SELECT COUNT(*) FROM t", (table,), PureDP(1))
    made = watch.Watch(watch.plan_watch(base, 10, PureDP(1)))
    assert repr(made) == "Watch(threshold=10, passed=False)"
    with pytest.raises(DeniableError):
        pickle.dumps(made)


@pytest.mark.parametrize(
    "sql", ["SELECT SUM(CLAMP(amount, 0, 9)) FROM sales", "SELECT kind, COUNT(*) FROM sales GROUP BY kind",
            "SELECT COUNT(*), COUNT(amount) FROM sales", "SELECT 1", "SELECT AVG(CLAMP(amount, 0, 9)) FROM sales"],
)  # fmt: skip
def test_a_watch_over_something_else_is_refused(curator: Curator, sql: str) -> None:
    with pytest.raises(QueryRefused):
        curator.watch(sql, 10, 1)
    assert _left(curator) == 5000


def test_double_entry_catches_a_broken_watch() -> None:
    table = TableSchema("t", "", (Column("x"), Column("id")), PrivacyUnit("id", 1, 4))
    base = compile_query("SELECT COUNT(*) FROM t", (table,), PureDP(1))
    plan = watch.plan_watch(base, 10, PureDP(1))
    assert plan.mechanism.sensitivity == 4
    with pytest.raises(InternalError):
        watch.check(replace(plan, mechanism=replace(plan.mechanism, sensitivity=Fraction(1))))


# Sample and aggregate


def test_blocks_are_disjoint_and_keep_units_together() -> None:
    table = pa.table({"id": [i % 50 for i in range(500)] + [None] * 5, "x": list(range(505))})
    parts = sample_aggregate.split_units(table, "id", 7, SYSTEM)
    homes = [set(part["id"].to_pylist()) for part in parts]
    assert sum(len(home) for home in homes) == 50
    assert set().union(*homes) == set(range(50))
    assert sum(part.num_rows for part in parts) == 500


def test_one_unit_moves_one_block_only() -> None:
    ids = [i % 50 for i in range(500)]
    salt = bytes(range(16))
    whole = sample_aggregate._assign_blocks(pa.table({"id": ids}), "id", 7, salt)
    for gone in range(0, 50, 7):
        kept = [i for i in ids if i != gone]
        assert sample_aggregate._assign_blocks(pa.table({"id": kept}), "id", 7, salt).tolist() == [
            place for place, i in zip(whole, ids, strict=True) if i != gone
        ]


@pytest.mark.parametrize("aggregate", ["median", "mean"])
def test_any_function_is_released_near_its_value(aggregate: str) -> None:
    table = pa.table({"x": np.random.default_rng(0).normal(40, 1, 5000)})
    value = deniable.sample_and_aggregate(
        lambda block: block["x"].to_numpy().mean(), table, None, 50, (0, 100), 20, aggregate=aggregate
    )
    assert value == pytest.approx(40, abs=1.5)


def test_failures_count_as_the_default_and_are_not_seen() -> None:
    def fails(block: pa.Table) -> float:
        raise ValueError(str(block["x"][0]))

    table = pa.table({"x": [1.0] * 100})
    for function in (fails, lambda block: float("nan"), lambda block: None, lambda block: "no number"):
        value = deniable.sample_and_aggregate(function, table, None, 20, (0, 10), 50, default=7)
        assert value == pytest.approx(7, abs=0.5)


def test_frames_may_be_pandas_and_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"x": [3.0] * 200})
    value = deniable.sample_and_aggregate(
        lambda block: block["x"].mean(), frame, None, 10, (0, 10), 50, frames="pandas"
    )
    assert value == pytest.approx(3, abs=0.5)
    assert deniable.sample_and_aggregate(lambda block: 3, frame.to_pandas(), None, 10, (0, 10), 50) == pytest.approx(
        3, abs=0.5
    )


def test_the_curator_charges_before_the_function_runs(curator: Curator) -> None:
    seen: list[Fraction] = []

    def count(block: pa.Table) -> int:
        seen.append(_left(curator))
        return block.num_rows

    curator.sample_and_aggregate(count, "sales", blocks=4, bounds=(0, 1000), epsilon=2)
    assert set(seen) == {4998}


@pytest.mark.parametrize(
    "wrong",
    [{"blocks": 1}, {"blocks": 2.5}, {"bounds": (3, 3)}, {"epsilon": 0}, {"aggregate": "mode"}, {"default": "x"}],
)
def test_blocks_that_make_no_sense_are_refused_before_the_charge(curator: Curator, wrong: dict[str, Any]) -> None:
    with pytest.raises(DeniableError):
        curator.sample_and_aggregate(
            lambda block: 0, "sales", **({"blocks": 4, "bounds": (0, 9), "epsilon": 1} | wrong)
        )
    assert _left(curator) == 5000


def test_double_entry_catches_blocks_with_too_little_noise() -> None:
    median = sample_aggregate.plan_blocks(10, (0, 1), 1)
    assert isinstance(median.mechanism, QuantileMechanism)
    mean = sample_aggregate.plan_blocks(10, (0, 1), 1, "mean")
    for plan, noise in (
        (median, replace(median.mechanism, rows_per_unit=1)),
        (mean, LaplaceMechanism(Fraction(sample_aggregate.STEPS, 10), Fraction(sample_aggregate.STEPS, 10))),
    ):
        with pytest.raises(InternalError):
            sample_aggregate.check(replace(plan, mechanism=noise))


# Questions by method


def test_methods_write_the_statement_and_ask_it(curator: Curator) -> None:
    question = (
        curator.table("sales").where("amount > 0").where("kind <> 'd'").group_by("kind").count().count_distinct("buyer")
        .sum(col("amount").clamp(0, 100), "total").average(col("amount").clamp(0, 100))
        .median(col("amount").clamp(0, 100)).quantile(col("amount").clamp(0, 100), 0.9).having("count > 10")
        .order_by("count", descending=True).limit(2)
    )  # fmt: skip
    assert question.sql == (
        "SELECT kind, COUNT(*) AS count, COUNT(DISTINCT buyer) AS distinct_buyer, SUM(CLAMP(amount, 0, 100)) AS total, "
        "AVG(CLAMP(amount, 0, 100)) AS average_clamp_amount_0_100, MEDIAN(CLAMP(amount, 0, 100)) AS "
        "median_clamp_amount_0_100, QUANTILE(CLAMP(amount, 0, 100), 0.9) AS quantile_clamp_amount_0_100 FROM sales "
        "WHERE (amount > 0) AND (kind <> 'd') GROUP BY kind HAVING (count > 10) ORDER BY count DESC LIMIT 2"
    )
    assert question.explain(epsilon=1)["cost"]["epsilon"] == "1"
    assert [row["kind"] for row in question.ask(epsilon=2000).to_pylist()] == ["c", "a"]


def test_joins_and_rollups_have_methods(curator: Curator) -> None:
    question = curator.table("sales").join("towns", "sales.town = towns.t").group_by("kind", rollup=True).count()
    assert question.sql.endswith("FROM sales JOIN towns ON sales.town = towns.t GROUP BY ROLLUP (kind)")
    assert len(question.ask(epsilon=1).to_pylist()) == 5


def test_a_question_without_aggregate_or_curator_says_so(curator: Curator) -> None:
    from deniable.query.builder import Question

    with pytest.raises(ParameterError, match="no aggregate"):
        _ = curator.table("sales").sql
    with pytest.raises(ParameterError, match="no curator"):
        Question("sales").count().ask(epsilon=1)
    with pytest.raises(QueryRefused):
        curator.table("sales; DROP TABLE x").count().ask(epsilon=1)


# Explaining without data


def test_a_watch_is_explained_without_a_charge(curator: Curator) -> None:
    before = _left(curator)
    told = curator.explain_watch("SELECT COUNT(*) FROM sales", 100, 1)
    assert told["cost"] == {"epsilon": "1", "delta": "0"}
    assert told["threshold"] == 100
    assert told["error"] > 0
    assert "count(" in told["statement"]
    assert _left(curator) == before


def test_sample_and_aggregate_is_explained_without_a_charge(curator: Curator) -> None:
    before = _left(curator)
    mean = curator.explain_sample_and_aggregate("sales", blocks=20, bounds=(0, 10), epsilon=1, aggregate="mean")
    median = curator.explain_sample_and_aggregate("sales", blocks=20, bounds=(0, 10), epsilon=1)
    assert (mean["mechanism"], median["error_in"]) == ("discrete Laplace", "ranks of blocks")
    # A mean of 20 results within 10 of each other moves by 10 / 20: Laplace noise of that scale, ln(20) of it at 95%.
    assert mean["error"] == pytest.approx(0.5 * 2.9957, rel=1e-3)
    assert _left(curator) == before
    with pytest.raises(QueryRefused, match="no private table"):
        curator.explain_sample_and_aggregate("sails", blocks=20, bounds=(0, 10), epsilon=1)


def test_a_used_request_id_is_refused_before_bounds_are_found_and_charged(curator: Curator) -> None:
    curator.query("SELECT COUNT(*) AS n FROM sales", epsilon=1, request="once")
    before = str(curator.remaining())
    with pytest.raises(AccessRefused, match="request id 'once' was used for another question"):
        curator.query("SELECT SUM(AUTO_CLAMP(amount)) AS s FROM sales", epsilon=1, request="once")
    assert str(curator.remaining()) == before
