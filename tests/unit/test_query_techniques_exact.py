"""Rankings, watches, blocks, bounds, hierarchies and their shares: exact plans and what is told of them, by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import clinic
from deniable.dp.accounting import (
    GaussianEvent,
    NonPrivateEvent,
    NoOpEvent,
    cheap_epsilon,
    epsilon_of_zcdp,
    rho_within,
)
from deniable.dp.mechanisms import LaplaceMechanism, QuantileMechanism
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import InternalError, ParameterError, QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from deniable.policy.schema import Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query import compile as compiler
from deniable.query.algebra.expression import Call, ColumnRef, Facts, Kind
from deniable.query.compile import compile_query
from deniable.query.double_entry import price
from deniable.query.execute import Noisy, make_consistent
from deniable.query.keys import FromTable, Listed, PrivateKeys, PublicKeys
from deniable.query.measurements import Ordered, Rows, Total, Units
from deniable.query.sql import auto_clamp as auto_bounds
from deniable.query.sql import private_sql
from deniable.query.sql.auto_clamp import FoundBounds
from deniable.query.techniques import grouping_sets, least_squares, sample_aggregate, top_k, watch
from deniable.query.techniques.least_squares import Tree, project_on_simplex, round_to_total, round_top_down

ONE = PureDP(1)
NUMBER = ColumnRef("x", Facts(Kind.INTEGER))


# Compiling


def test_a_statement_that_nests_too_deeply_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def recurse(*_: Any) -> None:
        raise RecursionError

    monkeypatch.setattr(compiler, "_compile", recurse)
    with pytest.raises(QueryRefused, match="nested too deeply"):
        compile_query("SELECT COUNT(*) FROM visits", clinic.TABLES, ONE)


def test_a_question_is_another_with_other_bounds_budget_or_weights_and_the_same_with_other_spaces() -> None:
    def name(text: str, budget: Any = ONE, **more: Any) -> str:
        return compile_query(text, clinic.TABLES, budget, **more).canonical

    text = "SELECT COUNT(*), SUM(age) FROM visits"
    options = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_contributed = 2) COUNT(*), SUM(age) FROM visits"
    fewer = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_contributed = 1) COUNT(*), SUM(age) FROM visits"
    inside = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*), SUM(age) FROM visits"
    assert name(text) == name(text.lower()) == name(text.replace(" ", "  ")) == name(inside, None)
    weighed = (Fraction(2), Fraction(1))
    assert name(text) == name(text, weights="optimal"), "the same noise on the same numbers"
    others = [name(text), name(text, PureDP(2)), name(text, weights=weighed)]
    others += [name(text.replace("age", "delta")), name(text, bias_share="0.1"), name(text, bias_share="0.2")]
    assert len(set(others)) == len(others)
    assert len({name(each) for each in (text, options, fewer)}) == 3


def test_estimates_of_bias_have_their_share_and_the_question_the_rest() -> None:
    plan = compile_query("SELECT COUNT(*), SUM(age) FROM visits", clinic.TABLES, ONE, bias_share="0.1")
    steps = [step for node in plan.nodes for step in node.steps]
    shares = [placed.share for step in steps for placed in step.placed if placed.mixed is None]
    assert sum(shares) + sum(joint.share for step in steps for joint in step.joints) == 1
    assert [joint.share for joint in steps[0].joints] == [Fraction(9, 10)]
    plain = compile_query("SELECT COUNT(*), SUM(age) FROM visits", clinic.TABLES, ONE)
    assert [joint.share for step in plain.nodes[0].steps for joint in step.joints] == [1]
    apart = compile_query("SELECT COUNT(*), MEDIAN(age) FROM visits", clinic.TABLES, ONE)
    assert [placed.share for step in apart.nodes[0].steps for placed in step.placed] == [Fraction(1, 2), Fraction(1, 2)]


def test_the_strategy_with_the_least_noise_is_taken() -> None:
    def noise(plan: Any) -> float:
        return sum(math.log(placed.deviation) for placed in plan.nodes[0].steps[0].placed)

    budget, found = ApproxDP(1, "1e-6"), set()
    for count in (1, 4, 12):
        text = "SELECT " + ", ".join(f"SUM(CLAMP(age, 0, {50 + n}))" for n in range(count)) + " FROM answers"
        plan, pure = compile_query(text, clinic.TABLES, budget), compile_query(text, clinic.TABLES, ONE)
        rho = compile_query(text, clinic.TABLES, ZCDP(rho_within(Fraction(1), Fraction(1, 10**6))))
        found.add(plan.strategy)
        assert noise(plan) <= min(noise(pure), noise(rho)) + 1e-9
    assert found == {"pure", "gaussian"}


def test_public_groups_are_counted_over_all_grouping_sets_where_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "MOST_CELLS", 10)
    listed = Listed(0, tuple(range(5)))
    table: Any = FromTable((1,), None, ())  # type: ignore[arg-type]
    five, unknown = PublicKeys((listed,)), PublicKeys((listed, table))
    assert (five.cells, unknown.cells, PublicKeys(()).cells) == (5, None, 1)

    def refuse(*keys: Any) -> None:
        compiler._refuse_many_cells([SimpleNamespace(keys=each) for each in keys])  # type: ignore[misc]

    refuse(five, five, unknown, PrivateKeys("why"))
    with pytest.raises(QueryRefused, match="has 11 public groups in all its grouping sets, and 10 is the most"):
        refuse(five, five, PublicKeys(()))


# Rankings and watches


def ranking(budget: Any = ONE, table: str = "visits", key: str = "sex", k: int = 2) -> top_k.TopPlan:
    base = compile_query(f"SELECT {key}, COUNT(*) FROM {table} GROUP BY {key}", clinic.TABLES, ONE)
    return top_k.plan_top(base, k, budget)


@pytest.mark.parametrize(("budget", "noise"), [(ONE, "discrete Laplace"), (ZCDP("0.1"), "discrete Gaussian")])
def test_a_ranking_is_told_as_it_will_be_run(budget: Any, noise: str) -> None:
    plan = ranking(budget)
    told = top_k.describe_top(plan, 0.9)
    node, step = plan.base.nodes[0].node, plan.step
    statement = private_sql.render_totals(node, step.places, {"m0": Units(None)}, plan.limits, step.keys, 0)
    assert (told.k, told.groups, told.count_mechanism) == (2, 2, noise)
    assert told.choice_error == plan.choice.accuracy(1 - 0.9, 2)
    assert told.count_error == plan.counting.accuracy(1 - 0.9)
    assert told.statement == statement


def test_a_ranking_is_another_question_with_another_number_budget_or_group() -> None:
    plans = [ranking(), ranking(k=1), ranking(PureDP(2)), ranking(table="stays")]
    assert len({plan.canonical for plan in plans}) == 4
    assert ranking().canonical == ranking().canonical


def test_a_ranking_counts_units_of_people_and_rows_of_rows() -> None:
    by_person, by_row = ranking(), ranking(table="answers")
    assert (by_person.limits.groups, by_person.limits.rows, by_person.limits.by_row) == (None, 1, False)
    assert (by_row.limits.groups, by_row.limits.rows, by_row.limits.by_row) == (None, 1, True)
    assert by_person.choice.sensitivity == by_row.choice.sensitivity == 1
    both = compile_query(
        "SELECT sex, COUNT(*) FROM (SELECT sex FROM answers UNION ALL SELECT sex FROM answers) t GROUP BY sex",
        clinic.TABLES, ONE,
    )  # fmt: skip
    twice = top_k.plan_top(both, 2, ONE)
    assert (twice.limits.rows, twice.choice.sensitivity) == (2, 2)
    assert twice.counting == LaplaceMechanism(Fraction(8), Fraction(4))


def test_a_ranking_takes_the_sharper_of_epsilon_and_rho() -> None:
    both = top_k._list_budgets(ApproxDP(1, "1e-6"), pure=False)
    assert [type(budget).__name__ for budget in both] == ["PureDP", "ZCDP"]
    assert top_k._list_budgets(ApproxDP(1, "1e-6"), pure=True) == [ONE]
    assert top_k._list_budgets(ONE, pure=False) == [ONE]
    few, many = ranking(ApproxDP(1, "1e-6"), k=1), ranking(ApproxDP(1, "1e-6"), k=500)
    assert few.choice.unit >= ranking(ONE, k=1).choice.unit
    assert many.choice.unit > ranking(ONE, k=500).choice.unit


@pytest.mark.parametrize("text", ["SELECT COUNT(*) FROM visits", "SELECT city, COUNT(*) FROM visits GROUP BY city"])
def test_a_ranking_is_among_public_keys_of_private_tables(text: str) -> None:
    base = compile_query(text, clinic.TABLES, ApproxDP(1, "1e-6"))
    with pytest.raises(QueryRefused, match="chosen among public keys"):
        top_k.plan_top(base, 2, ONE)


def test_the_chosen_groups_leave_in_the_order_of_their_choice() -> None:
    rows = clinic.rows_of([{"pid": n, "sex": "F" if n < 10 else "M"} for n in range(40)])
    engine = DuckDBEngine(threads=1)
    engine.attach("visits", rows, clinic.visits())
    found = top_k.run_top(ranking(PureDP(1000)), engine)
    assert (found.keys.column(0).to_pylist(), found.values[0].tolist()) == (["M", "F"], [30, 10])
    one = top_k.run_top(ranking(PureDP(1000), k=1), engine)
    assert (one.keys.column(0).to_pylist(), one.values[0].tolist()) == (["M"], [30])
    all_of_them = top_k.run_top(ranking(PureDP(1000), k=9), engine)
    assert all_of_them.keys.num_rows == 2
    engine.close()


def test_a_watch_is_told_as_it_will_be_run_and_reads_the_exact_count() -> None:
    base = compile_query("SELECT COUNT(*) FROM visits", clinic.TABLES, ONE)
    plan = watch.plan_watch(base, 100, ONE)
    told, step = watch.describe_watch(plan, 0.9), base.nodes[0].steps[0]
    assert (told.threshold, told.sensitivity, told.confidence) == (100, 3, 0.9)
    assert told.scale == float(plan.mechanism.scale)
    assert told.error == plan.mechanism.accuracy(1 - 0.9)
    wanted = private_sql.select_additive(step.placed, False)
    assert told.statement == private_sql.render_totals(
        base.nodes[0].node, step.places, wanted, step.limits, step.keys, 0
    )
    rows = clinic.rows_of([{"pid": n // 5, "sex": "F"} for n in range(40)])
    engine = DuckDBEngine(threads=1)
    engine.attach("visits", rows, clinic.visits())
    assert watch.read_count(plan, engine) == 8 * 3
    engine.close()
    held = watch.Watch(plan)
    assert repr(held) == "Watch(threshold=100, passed=False)"


# Blocks


def test_blocks_are_told_as_they_will_be_combined() -> None:
    median = sample_aggregate.plan_blocks(20, (0, 10), 1)
    assert isinstance(median.mechanism, QuantileMechanism)
    told = sample_aggregate.describe_blocks(median, 0.9)
    assert (told.blocks, told.aggregate, told.bounds, told.confidence) == (20, "median", [0.0, 10.0], 0.9)
    assert (told.mechanism, told.error_in) == ("exponential", "ranks of blocks")
    assert told.error == median.mechanism.accuracy(1 - 0.9)
    mean = sample_aggregate.plan_blocks(20, (0, 10), 1, "mean")
    told = sample_aggregate.describe_blocks(mean, 0.9)
    assert (told.mechanism, told.error_in) == ("discrete Laplace", "the function's own unit")
    assert told.error == pytest.approx(mean.mechanism.accuracy(1 - 0.9) * 10 / (1 << 20) / 20)
    assert mean.step == Fraction(10, 1 << 20)
    assert mean.mechanism == LaplaceMechanism(Fraction(1 << 20), Fraction(1 << 20))
    assert (median.mechanism.rows_per_unit, median.mechanism.lower, median.mechanism.upper) == (2, 0, 1 << 20)


@pytest.mark.parametrize("blocks", [1, 100_001, True, "5", 2.0])
def test_a_number_of_blocks_is_whole_and_from_two_to_a_hundred_thousand(blocks: Any) -> None:
    with pytest.raises(ParameterError, match="blocks is not a whole number"):
        sample_aggregate.plan_blocks(blocks, (0, 1), 1)
    assert sample_aggregate.plan_blocks(2, (0, 1), 1).blocks == 2
    assert sample_aggregate.plan_blocks(100_000, (0, 1), 1).blocks == 100_000


@pytest.mark.parametrize("bounds", ["01", (0,), (0, 1, 2), 5, (1, 1), (2, 1)])
def test_bounds_of_blocks_are_two_rising_numbers(bounds: Any) -> None:
    with pytest.raises(ParameterError, match="bounds are not"):
        sample_aggregate.plan_blocks(2, bounds, 1)


@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_an_answer_of_blocks_lies_within_its_bounds_and_hidden_columns_are_not_seen(aggregate: str) -> None:
    table = pa.table({"id": list(range(200)), "x": [3.0] * 200})
    seen: set[tuple[str, ...]] = set()

    def look(block: pa.Table) -> float:
        seen.add(tuple(block.column_names))
        return 6.0

    plan = sample_aggregate.plan_blocks(10, (0, 8), 1000, aggregate)
    assert sample_aggregate.release_blocks(plan, look, table, "id", hidden=["id"]) == pytest.approx(6, abs=0.01)
    assert seen == {("x",)}
    for value, found in ((-100.0, 0.0), (100.0, 8.0)):
        assert sample_aggregate.release_blocks(plan, lambda _, value=value: value, table, None) == pytest.approx(
            found, abs=0.01
        )
        assert 0 <= sample_aggregate.release_blocks(plan, lambda _, value=value: value, table, None) <= 8
    with pytest.raises(ParameterError, match="no column 'who'"):
        sample_aggregate.release_blocks(plan, look, table, "who")


def test_a_table_without_units_has_empty_blocks() -> None:
    nobody = pa.table({"id": pa.array([None, None], pa.int64()), "x": [1, 2]})
    plan = sample_aggregate.plan_blocks(3, (0, 8), 1000, "mean")
    assert [b.num_rows for b in sample_aggregate.split_units(nobody, "id", 3, sample_aggregate.SYSTEM)] == [0, 0, 0]
    assert sample_aggregate.release_blocks(plan, lambda block: block.num_rows, nobody, "id") == pytest.approx(
        0, abs=0.1
    )


# Automatic bounds


def bin_of(value: Fraction, whole: bool) -> int:
    """The naive twin: 0 around zero, 1 up to the first edge, then one for each doubling; mirrored below zero."""
    edges = [Fraction(2) ** power for power in range(0 if whole else -10, 53)]
    inner = Fraction(0) if whole else Fraction("0.0004882812")  # half of the first edge, to ten digits
    size = abs(value)
    if size <= inner:
        return 0
    number = 1 + sum(size > edge for edge in edges[:-1])
    return number if value > 0 else -number


@pytest.mark.parametrize("whole", [True, False])
def test_the_question_puts_every_number_into_its_bin(whole: bool) -> None:
    edges = auto_bounds.bin_edges(whole)
    values = sorted({sign * (edge + off) for edge in (*edges, Fraction(0), edges[0] / 2) for sign in (1, -1)
                     for off in (Fraction(0), Fraction(1, 4096) if not whole else Fraction(1))})  # fmt: skip
    kept = [value for value in values if not whole or value.denominator == 1]
    listed = ", ".join(f"(CAST({float(v)!r} AS DOUBLE))" for v in kept)
    case = auto_bounds._render_bins("x", whole)
    engine = DuckDBEngine(threads=1)
    found = engine.run(f"SELECT x, {case} AS bin FROM (VALUES {listed}) AS t(x)").to_pylist()
    engine.close()
    assert [row["bin"] for row in found] == [bin_of(Fraction(row["x"]), whole) for row in found]


@pytest.mark.parametrize("whole", [True, False])
def test_edges_enclose_their_bin_and_no_more(whole: bool) -> None:
    edges = auto_bounds.bin_edges(whole)
    assert (edges[0], edges[-1], len(edges)) == (1 if whole else Fraction(1, 1024), 2**52, 53 if whole else 63)
    upper = [Fraction(0), *edges]
    for number in range(-len(edges), len(edges) + 1):
        size = abs(number)
        near, far = (upper[size - 1] if size > 1 else Fraction(0)), upper[size]
        expected = (near, far) if number > 0 else (-far, -near)
        assert (auto_bounds._lower_edge(number, whole), auto_bounds._upper_edge(number, whole)) == expected


def bounds_plan(error: int, bins: int = 4, deviation: float = 1) -> Any:
    def accuracy(alpha: float, size: int) -> int:
        assert alpha == pytest.approx(0.1)
        assert size == bins
        return error

    step = SimpleNamespace(placed=[SimpleNamespace(accuracy=accuracy, deviation=deviation)])
    return SimpleNamespace(nodes=[SimpleNamespace(node=SimpleNamespace(name="n"), steps=[step])])


@pytest.mark.parametrize(
    ("error", "threshold", "found"),
    [(3, 10, (-2, 8)), (19, 19, (-2, 8)), (20, 20, (0, 8)), (49, 49, (4, 8)), (50, 50, None)],
)
def test_bounds_are_those_of_bins_above_the_threshold(error: int, threshold: int, found: Any) -> None:
    keys = pa.table({"bin": [4, -2, 0, 1]})
    noisy = SimpleNamespace(keys=keys, values=(np.array([50, 20, 11, 21 if error < 21 else 0]),))
    plan = bounds_plan(error, deviation=error / 2)
    told = auto_bounds.read_bounds(plan, {"n": (noisy,)}, True, 0.9)  # type: ignore[dict-item]
    expected = FoundBounds(Fraction(0), Fraction(1), threshold, found=False)
    if found is not None:
        lower = Fraction(found[0])
        expected = FoundBounds(lower, Fraction(found[1]), threshold)
    assert told == expected


@pytest.mark.parametrize(
    ("people", "expected"),
    [
        ({4: 200}, (0, 8)),  # one sign: from 0 on
        ({-4: 200}, (-8, 0)),
        ({4: 200, -1: 200}, (-8, 8)),  # both signs: symmetric
        ({4: 200, -2: 45, -3: 45, -4: 45}, (-8, 8)),  # a sign that is seen by its bins together alone
        ({4: 200, -2: 12, -3: -12, -4: 12}, (0, 8)),  # noise is no sign
        ({4: 80, -4: 80}, (-8, 8)),  # found by both signs together alone
        ({4: 90, 5: 90, -4: 90, -5: 90}, (-16, 16)),  # and by neighbors
        ({4: 200, 5: 31}, (0, 16)),  # next to the outermost: 1.5 deviations
        ({4: 200, 5: 29}, (0, 8)),
        ({4: 200, 6: 99}, (0, 8)),  # not next to it: as much as noise alone reaches
        ({4: 200, 6: 101}, (0, 32)),
        ({0: 500}, None),  # zeros alone say nothing of the others
        ({0: 500, 4: 99}, None),
    ],
)
def test_bounds_to_clamp_by_contain_zero(people: dict[int, int], expected: tuple[int, int] | None) -> None:
    """Noise alone reaches 100 in a bin, and has a deviation of 20."""
    bins = range(-53, 54)
    noisy = SimpleNamespace(keys=pa.table({"bin": bins}), values=(np.array([people.get(each, 0) for each in bins]),))
    plan = bounds_plan(100, len(bins), 20)
    told = auto_bounds.read_clamp(plan, {"n": (noisy,)}, 0.9, True)  # type: ignore[dict-item]
    assert told == FoundBounds(*map(Fraction, expected or (0, 1)), 100, found=expected is not None)


def test_where_values_are_is_told_with_a_sign_that_is_seen_by_its_bins_together() -> None:
    people = {4: 200, -2: 60, -3: 60, -4: 60}
    bins = range(-53, 54)
    noisy = SimpleNamespace(keys=pa.table({"bin": bins}), values=(np.array([people.get(each, 0) for each in bins]),))
    told = auto_bounds.read_bounds(bounds_plan(100, len(bins), 20), {"n": (noisy,)}, True, 0.9)  # type: ignore[dict-item]
    assert told == FoundBounds(Fraction(-8), Fraction(8), 100)


def test_bounds_are_written_as_numbers_of_sql() -> None:
    assert FoundBounds(Fraction(-8), Fraction(1, 1024), 10).written == ("-8", "0.0009765625")
    assert FoundBounds(Fraction(-1, 2), Fraction(2**52), 10).written == ("-0.5", str(2**52))


def test_bounds_of_whole_expressions_are_whole() -> None:
    def plan(first: Any) -> Any:
        return SimpleNamespace(nodes=[SimpleNamespace(node=SimpleNamespace(keys=[("bin", first)]))])

    found = FoundBounds(Fraction(-1, 2), Fraction(1, 4), 10)
    compared = Call("case", (Call(">", (NUMBER,), Facts(Kind.BOOLEAN)),), Facts(Kind.INTEGER))
    assert auto_bounds.round_bounds(found, plan(compared)) == FoundBounds(Fraction(-1), Fraction(1), 10)
    decimal = replace(NUMBER, facts=Facts(Kind.DECIMAL))
    other = Call("case", (Call(">", (decimal,), Facts(Kind.BOOLEAN)),), Facts(Kind.INTEGER))
    assert auto_bounds.round_bounds(found, plan(other)) is found
    for bare in (NUMBER, Call("case", (NUMBER,), Facts(Kind.INTEGER))):
        assert auto_bounds.round_bounds(found, plan(bare)) is found


def test_the_question_for_bounds_counts_each_unit_once() -> None:
    table = TableSchema("t", "t.csv", (Column("u"), Column("x", ColumnType.INTEGER)), PrivacyUnit("u", 3, 3))
    text = auto_bounds.write_bounds_query(table, table.columns[1])
    assert text.startswith("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1) CASE WHEN")
    assert text.endswith('COUNT(DISTINCT "u") AS units FROM "t" WHERE "x" IS NOT NULL GROUP BY 1')
    rows = replace(table, unit=PrivacyUnit())
    assert "COUNT(*) AS units" in auto_bounds.write_bounds_query(rows, rows.columns[1])
    assert "OPTIONS" not in auto_bounds.write_bounds_query(rows, rows.columns[1])
    plain = auto_bounds.write_bounds_query_over("a + b", "FROM t", "")
    assert plain.endswith("COUNT(*) AS units FROM t WHERE (a + b) IS NOT NULL GROUP BY 1")
    assert auto_bounds.write_bounds_query_over("a", "FROM t", "b > 1", "WITH q AS (SELECT 1)").endswith(
        "WHERE (b > 1) AND (a) IS NOT NULL GROUP BY 1"
    )


def test_bounds_are_found_for_numbers_of_private_tables() -> None:
    visits = clinic.visits()
    assert auto_bounds.find_numeric_column(visits, "AGE").name == "age"
    for table, name, told in (
        (visits, "agee", "no column 'agee'"),
        (visits, "sex", "bounds are found for numbers"),
        (clinic.REGIONS, "inhabitants", "is public"),
    ):
        with pytest.raises(QueryRefused, match=told):
            auto_bounds.find_numeric_column(table, name)


# Shares of grouping sets


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("importance", [(1.0, 1.0, 1.0), (9.0, 1.0, 2.0)])
def test_shares_of_sets_that_are_not_fitted_have_their_closed_form(
    gaussian: bool, importance: tuple[float, ...]
) -> None:
    norms, power = (1.0, 2.0, 5.0), 1 if gaussian else 2
    best = [(w * s * s) ** (1 / (power + 1)) for w, s in zip(importance, norms, strict=True)]
    found = least_squares.find_best_shares(lambda measured: measured, norms, importance, gaussian=gaussian)
    assert sum(found) == 1
    assert [float(share) for share in found] == pytest.approx([b / sum(best) for b in best], abs=2e-4)


def test_a_set_that_matters_little_keeps_the_least_share() -> None:
    found = least_squares.find_best_shares(lambda measured: measured, (1.0, 1.0), (1.0, 0.0), gaussian=True)
    assert found == (Fraction(998, 1000), Fraction(2, 1000))
    assert least_squares._normalize([3.0, 1.0, 0.0]) == pytest.approx([3 / 4.008, 1 / 4.008, 0.008 / 4.008])
    assert least_squares._round_shares([0.75, 0.25, 0.0]) == (
        Fraction(7500, 10001), Fraction(2500, 10001), Fraction(1, 10001),
    )  # fmt: skip


def test_a_slope_is_the_change_when_one_share_grows_and_the_others_give_way() -> None:
    def error(shares: Sequence[float]) -> float:
        return 3 * shares[0] + shares[1]

    # A share that grows by a hair h takes h s_i; all are then divided by 1 + h s_i.
    slope = least_squares._estimate_slope(error, [0.4, 0.6], 3 * 0.4 + 0.6)
    assert slope == pytest.approx([0.4 * (3 - 1.8), 0.6 * (1 - 1.8)], rel=1e-3)


def test_subsets_information_and_freedom_by_hand() -> None:
    assert least_squares.list_subsets((0, 2)) == [(), (0,), (2,), (0, 2)]
    found = least_squares.compute_information([2, 3, 5], [(0, 1), (1,)], [2.0, 4.0], {(), (0,), (1,), (0, 1)})
    assert found == {(): 5 / 2 + 10 / 4, (0,): 5 / 2, (1,): 5 / 2 + 10 / 4, (0, 1): 5 / 2}
    assert least_squares._degrees_of_freedom([2, 3, 5], (1, 2)) == 8
    assert least_squares._degrees_of_freedom([2, 3, 5], ()) == 1
    assert least_squares._other_sizes([2, 3, 5], (1,)) == [2, 5]


# Whole numbers that add up


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("nonnegative", [True, False])
def test_whole_numbers_are_the_nearest_that_add_up(seed: int, nonnegative: bool) -> None:
    generator = np.random.default_rng(seed)
    values = generator.normal(2, 3, int(generator.integers(1, 6)))
    total = int(generator.integers(0, 12))
    found = round_to_total(values, total, nonnegative)
    near = project_on_simplex(values, total) if nonnegative else values + (total - values.sum()) / values.size
    assert found.sum() == total
    assert np.all(np.abs(found - near) < 1)
    up = near - np.floor(near)
    rounded = found > np.floor(near + 1e-9)
    assert not rounded.any() or rounded.all() or up[rounded].min() >= up[~rounded].max() - 1e-9


def test_a_value_that_is_whole_but_for_rounding_stays_itself() -> None:
    assert round_to_total(np.array([2.9999999999999996, 1.0]), 4, False).tolist() == [3, 1]
    assert round_to_total(np.array([0.5, 0.5, 0.5]), 2, False).tolist() == [1, 1, 0]


def test_the_nearest_point_of_a_simplex_is_found_by_bisection_too() -> None:
    generator = np.random.default_rng(5)
    for _ in range(30):
        values, total = generator.normal(0, 4, 5), float(generator.uniform(0, 9))
        low, high = -50.0, 50.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(values - middle, 0).sum() > total else (low, middle)
        assert project_on_simplex(values, total) == pytest.approx(np.maximum(values - low, 0), abs=1e-9)
    assert project_on_simplex(np.array([-1.0, -2.0]), 0.0).tolist() == [0.0, 0.0]


def test_children_are_rounded_parent_by_parent_in_any_order() -> None:
    tree = Tree((2, 5), (np.array([1, 0, 1, 0, 1]),))
    fit = [SimpleNamespace(values=np.array([7.2, 3.6])), SimpleNamespace(values=np.array([1.4, 5.0, 2.3, 2.2, 0.1]))]
    levels = round_top_down(tree, fit, nonnegative=False)  # type: ignore[arg-type]
    assert [level.tolist() for level in levels] == [[7, 4], [2, 5, 2, 2, 0]]
    empty = Tree((2, 1), (np.array([1]),))
    alone = [SimpleNamespace(values=np.array([7.2, 3.6])), SimpleNamespace(values=np.array([9.0]))]
    assert round_top_down(empty, alone, nonnegative=True)[1].tolist() == [4]  # type: ignore[arg-type]


# Hierarchies


def sets_plan(*, tree: bool) -> grouping_sets.SetsPlan:
    keys: tuple[Any, ...] = ([("a", 1), ("a", 2), ("b", 1), ("b", 2)], [("a",), ("b",)], [()])
    return grouping_sets.SetsPlan(None, ("x", "y"), ((0, 1), (0,), ()), keys, tree)  # type: ignore[arg-type]


def test_sets_are_named_sized_and_ordered_from_the_top() -> None:
    tree, margins = sets_plan(tree=True), sets_plan(tree=False)
    assert grouping_sets.name_sets(tree) == ["y", "x", "total"]
    assert grouping_sets.name_sets(margins) == ["x, y", "x", "total"]
    assert (tree.sizes, tree.from_the_top()) == ([2, 2], [2, 1, 0])
    measured = [1.0, 2.0, 4.0]
    assert margins.fit_variances(measured) == least_squares.predict_margin_variances([2, 2], margins.margins, measured)
    assert tree.fit_variances(measured) == least_squares.predict_tree_variances([1, 2, 4], [4.0, 2.0, 1.0])[::-1]


def test_the_noise_of_sets_is_told_in_squared_steps() -> None:
    text = "SELECT sex, SUM(charge) AS s FROM visits GROUP BY ROLLUP (sex)"
    even = compile_query(text, clinic.TABLES, ONE)
    engine: Any = SimpleNamespace(run=lambda sql: pa.table({"k0": ["F", "M"]}))
    plan = grouping_sets.compile_sets(text, ["sex"], clinic.TABLES, engine, ONE, None, tree=True)
    assert plan.step == 0.5
    assert plan.variances == [step.placed[0].deviation ** 2 for step in plan.node.steps]
    assert sum(step.placed[0].share for step in plan.node.steps) == 1
    shares = find_shares(plan, even, [1.0, 1.0])
    assert [step.placed[0].share for step in plan.node.steps] == shares
    heavy = grouping_sets.compile_sets(text, ["sex"], clinic.TABLES, engine, ONE, {"total": 50}, tree=True)
    names = grouping_sets.name_sets(heavy)
    assert [step.placed[0].share for step in heavy.node.steps] == find_shares(
        heavy, even, [50.0 if name == "total" else 1.0 for name in names]
    )
    both = compile_query(text, clinic.TABLES, ApproxDP(1, "1e-6"))
    rho = grouping_sets.compile_sets(text, ["sex"], clinic.TABLES, engine, ApproxDP(1, "1e-6"), None, tree=True)
    assert [step.placed[0].share for step in rho.node.steps] == find_shares(rho, both, [1.0, 1.0])


def find_shares(plan: grouping_sets.SetsPlan, even: Any, importance: list[float]) -> list[Fraction]:
    """The best shares, by the norms of the noise that the question has with even ones."""
    gaussian = even.strategy != "pure"
    norms = [step.placed[0].norm(gaussian) for step in even.nodes[0].steps]
    return list(least_squares.find_best_shares(plan.fit_variances, norms, importance, gaussian=gaussian))


def test_weights_of_sets_are_numbers_up_to_a_billion_by_name() -> None:
    names = ["y", "x", "total"]
    assert grouping_sets._weigh_sets(None, names) == [1, 1, 1]
    assert grouping_sets._weigh_sets({"x": 10**9, "total": 0}, names) == [1, 1e9, 0]
    for given, told in (
        ([1, 2, 3], "importance is a weight by the name"),
        ({1: 2}, "importance is a weight by the name"),
        ({"z": 1}, "no grouping set 'z'"),
        ({"x": -1}, "a weight is not a number"),
        ({"x": 10**9 + 1}, "a weight is not a number"),
        ({"x": "1"}, "a weight is not a number"),
        ({"x": 0, "y": 0, "total": 0}, "no grouping set has any weight"),
    ):
        with pytest.raises(ParameterError, match=re.escape(told)):
            grouping_sets._weigh_sets(given, names)  # type: ignore[arg-type]


def test_sets_that_are_one_set_or_no_tree_are_refused() -> None:
    plan = sets_plan(tree=True)
    grouping_sets._refuse_cells(plan)
    twice = replace(plan, margins=((0, 1), (1, 0), ()))
    with pytest.raises(QueryRefused, match="two grouping sets are of the same columns"):
        grouping_sets._refuse_cells(twice)
    with pytest.raises(QueryRefused, match="has no cells"):
        grouping_sets._refuse_cells(replace(plan, keys=([], [("a",)], [()])))
    orphan = replace(plan, keys=([("c", 1)], [("a",), ("b",)], [()]))
    double = replace(plan, keys=([("a", 1), ("a", 1)], [("a",), ("b",)], [()]))
    for wrong in (orphan, double):
        with pytest.raises(QueryRefused, match="the cells are no tree"):
            grouping_sets._refuse_cells(wrong)
        grouping_sets._refuse_cells(replace(wrong, tree=False))


def test_a_hierarchy_has_one_aggregate_that_adds_up_over_public_cells() -> None:
    delta = ApproxDP(1, "1e-6")
    for text, told in (
        ("SELECT sex, COUNT(*), SUM(age) FROM visits GROUP BY ROLLUP (sex)", "one aggregate"),
        ("SELECT sex, AVG(age) FROM visits GROUP BY ROLLUP (sex)", "one aggregate"),
        ("SELECT sex, COUNT(DISTINCT pid) FROM visits GROUP BY ROLLUP (sex)", "one aggregate"),
        ("SELECT sex, MEDIAN(age) FROM visits GROUP BY ROLLUP (sex)", "one aggregate"),
        ("SELECT region, COUNT(*) FROM regions GROUP BY region", "one aggregate"),
        ("SELECT city, COUNT(*) FROM visits GROUP BY ROLLUP (city)", "must be public"),
    ):
        with pytest.raises(QueryRefused, match=told):
            grouping_sets._refuse_unfit(compile_query(text, clinic.TABLES, delta))
    for text in (
        "SELECT sex, COUNT(*) FROM visits GROUP BY ROLLUP (sex)",
        "SELECT sex, SUM(age) FROM visits GROUP BY ROLLUP (sex)",
    ):
        grouping_sets._refuse_unfit(compile_query(text, clinic.TABLES, delta))


# Consistency and prices


def test_only_counts_and_plain_sums_are_made_to_add_up() -> None:
    total = Total(NUMBER, None, 0, 5, Fraction(1))
    measurements = (Rows(None, None), Units(None), replace(total, per_group=(0, 9)), total, Ordered(
        NUMBER, None, 0, 5, Fraction(1), (Fraction(1, 2),)))  # fmt: skip
    placed = [SimpleNamespace(deviation=2.0)] * 5
    steps = [SimpleNamespace(places=(0,), placed=placed), SimpleNamespace(places=(), placed=placed)]
    node: Any = SimpleNamespace(measurements=measurements, steps=steps, node=SimpleNamespace(keys=[("k", None)]))
    parts = (
        Noisy(pa.table({"k": ["a", "b"]}), tuple(np.array([10, 20]) for _ in measurements)),
        Noisy(pa.table({}), tuple(np.array([33]) for _ in measurements)),
    )
    fine, coarse = make_consistent(node, parts)
    # Three equal weights: the total is 3 off, a third of which goes to each of the three.
    assert [values.tolist() for values in fine.values] == [[11, 21], [10, 20], [10, 20], [11, 21], [10, 20]]
    assert [values.tolist() for values in coarse.values] == [[32], [33], [33], [32], [33]]
    one: Any = SimpleNamespace(measurements=measurements, steps=steps[:1], node=node.node)
    assert make_consistent(one, parts[:1]) == parts[:1]


@pytest.mark.parametrize("asked", [ZCDP(1), ZCDP(1, "1e-6"), PureDP(1), ApproxDP(1, "1e-6")])
def test_what_has_no_price_does_not_cost_what_was_asked(asked: Any) -> None:
    for event in (NonPrivateEvent(), NoOpEvent()):
        with pytest.raises(InternalError, match="do not cost what was asked"):
            price(event, asked)


def test_a_plan_that_one_accountant_calibrated_may_cost_less_by_another() -> None:
    asked = ApproxDP(1, "1e-6")
    rho = rho_within(asked.epsilon, asked.delta)
    event = GaussianEvent(Fraction(10**6) / (2 * rho), Fraction(10**6))
    found = price(event, asked)
    assert found == ApproxDP(cheap_epsilon(event, asked.delta), asked.delta)
    assert found.epsilon < Fraction(99, 100)
    assert epsilon_of_zcdp(rho, asked.delta) > Fraction(999_999, 1_000_000)
    with pytest.raises(InternalError, match="do not cost what was asked"):
        price(GaussianEvent(event.variance * 2, Fraction(10**6)), asked)


# Keys as they were read


def test_a_key_is_coded_only_if_it_is_the_declared_text_column_itself() -> None:
    delta = ApproxDP(1, "1e-6")

    def codable(key: str, source: str = "visits") -> list[int]:
        plan = compile_query(f"SELECT {key} AS k, COUNT(*) FROM {source} GROUP BY {key}", clinic.TABLES, delta)
        node, step = plan.nodes[0].node, plan.nodes[0].steps[0]
        return list(private_sql.find_codable(node, step.places, step.keys))

    assert codable("sex") == [0]
    assert codable("insured") == []
    assert codable("age") == []
    assert codable("k", "(SELECT sex AS k FROM visits) t") == [0]
    assert codable("LOWER(sex)") == []
    assert codable("city") == []


def test_a_list_is_as_declared_only_as_a_whole_and_without_copies() -> None:
    plan = compile_query("SELECT sex, COUNT(*) FROM visits GROUP BY sex", clinic.TABLES, ONE)
    node = plan.nodes[0].node
    key = node.keys[0][1]
    assert private_sql._is_as_declared(key, node.input, ("F", "M"))
    for values in (("M", "F"), ("F",), ("F", "F"), ("F", 1), ()):
        assert not private_sql._is_as_declared(key, node.input, values)
    age = replace(key, name="visits.age") if isinstance(key, ColumnRef) else key
    assert not private_sql._is_as_declared(age, node.input, ("F", "M"))
