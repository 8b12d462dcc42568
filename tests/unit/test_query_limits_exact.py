"""Contribution bounds, sensitivities, grids and noise of questions, by hand; and what watches and rankings refuse."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import clinic
from deniable.dp.accounting import PureEvent, SelfComposedEvent
from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.errors import InternalError, ParameterError, QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from deniable.policy.schema import Bounding, Bounds, Column, ColumnType, Neighboring, PrivacyUnit, TableSchema
from deniable.query import calibration, double_entry
from deniable.query.algebra.expression import Call, ColumnRef, Facts, Kind
from deniable.query.algebra.relation import (
    Union,
    _bound_expression,
    count_nodes,
    find_noisy_nodes,
    has_one_row,
    multiplicity,
    scan_table,
    unit_of,
)
from deniable.query.compile import compile_query
from deniable.query.execute import execute
from deniable.query.measurements import Distinct, Measurement, Ordered, Rows, Total, Units, _choose_step
from deniable.query.plan import (
    Limits,
    Sensitivity,
    _bound_groups,
    _bound_rows,
    _parse_natural,
    is_signed,
    parts_for,
    reach_of,
    sensitivity_of,
)
from deniable.query.sql.binder import bind_statement
from deniable.query.techniques import sample_aggregate, top_k, watch
from deniable.query.techniques.grouping_sets import _build_rows, _compute_reach
from deniable.query.techniques.least_squares import Fit, Tree, fit_tree, round_top_down

DELTA = Fraction(1, 10**6)
AGE = ColumnRef("visits.age", Facts(Kind.INTEGER, Fraction(0), Fraction(100), Fraction(1)))
NAMES = ("max_groups_contributed", "max_rows_per_group", "max_rows_contributed")

# Contribution bounds

IN_ALL = PrivacyUnit("pid", bounding=Bounding.ROWS, max_rows=12)


@pytest.mark.parametrize(
    ("groups", "rows", "expected"),
    [
        (None, None, (None, None, 12)), (3, None, (3, 4, None)), (5, None, (5, 2, None)), (20, None, (12, 1, None)),
        (None, 5, (2, 5, None)), (None, 1, (12, 1, None)), (None, 50, (1, 12, None)), (3, 2, (3, 2, None)),
        (3, 9, (3, 4, None)), (2, 50, (2, 6, None)),
    ],
)  # fmt: skip
def test_groups_asked_of_rows_in_all_stay_within_their_product(groups: Any, rows: Any, expected: Any) -> None:
    unit = _bound_groups(IN_ALL, groups, rows)
    assert (unit.max_groups, unit.max_rows_per_group, unit.max_rows) == expected
    if unit.max_rows is None:
        assert unit.bounding is Bounding.SAMPLE
        assert unit.max_groups * unit.max_rows_per_group <= 12  # type: ignore[operator]


@pytest.mark.parametrize(
    ("groups", "rows", "expected"), [(None, None, (2, 3)), (1, None, (1, 3)), (9, 9, (2, 3)), (2, 1, (2, 1))]
)
def test_a_question_tightens_bounds_and_never_loosens_them(groups: Any, rows: Any, expected: Any) -> None:
    unit = _bound_groups(clinic.UNIT, groups, rows)
    assert (unit.max_groups, unit.max_rows_per_group) == expected


def test_rows_in_all_are_at_most_what_the_policy_makes_of_groups_and_rows() -> None:
    for asked, most in ((4, 4), (6, 6), (7, 6), (100, 6)):
        unit = _bound_rows(clinic.UNIT, {NAMES[2]: asked})
        assert (unit.max_rows, unit.bounding) == (most, Bounding.ROWS)
    with pytest.raises(QueryRefused, match="cannot stand beside"):
        _bound_rows(clinic.UNIT, {NAMES[2]: 4, NAMES[0]: 2})


def test_bounds_are_whole_numbers_from_one_up() -> None:
    assert [_parse_natural(text, "n") for text in ("1", "2.0", "1e9")] == [1, 2, 10**9]
    for text in ("0", "-1", "1.5", "1000000001", "many", ""):
        with pytest.raises(QueryRefused, match="n is not a whole number"):
            _parse_natural(text, "n")


def _limits(sql: str, **unit: Any) -> tuple[Limits, int]:
    step = compile_query(sql, clinic.with_unit(**unit), ApproxDP(1, DELTA)).nodes[0].steps[0]
    return step.limits, step.placed[0].sensitivity.groups


@pytest.mark.parametrize(
    ("sql", "unit", "expected"),
    [
        ("SELECT COUNT(*) FROM visits", {}, (None, 3, 1)),
        ("SELECT sex, COUNT(*) FROM visits GROUP BY sex", {}, (None, 3, 2)),
        ("SELECT sex, COUNT(*) FROM visits GROUP BY sex", {"max_groups": 1}, (1, 3, 1)),
        ("SELECT sex, COUNT(*) FROM visits GROUP BY sex", {"max_groups": 9}, (None, 3, 2)),
        ("SELECT city, COUNT(*) FROM visits GROUP BY city", {"max_groups": 9}, (9, 3, 9)),
        ("SELECT sex, COUNT(DISTINCT pid) FROM visits GROUP BY sex", {"max_rows_per_group": None}, (None, 1, 2)),
    ],
)
def test_groups_are_chosen_only_where_a_unit_could_be_in_more(sql: str, unit: Any, expected: Any) -> None:
    limits, groups = _limits(sql, **unit)
    assert (limits.groups, limits.rows, groups) == expected
    assert limits.norm is None


def test_scaled_units_stay_in_all_public_groups_and_are_sampled_among_private_ones() -> None:
    sql = "SELECT {0}, COUNT(*) FROM visits GROUP BY {0}"
    assert _limits(sql.format("sex"), bounding=Bounding.SCALE)[0].norm in (1, 2)
    assert _limits(sql.format("city"), bounding=Bounding.SCALE)[0].norm is None
    assert _limits("SELECT COUNT(*) FROM visits", bounding=Bounding.SCALE)[0].norm is None


@pytest.mark.parametrize("missing", ["max_groups", "max_rows_per_group"])
def test_a_bound_that_nobody_states_is_asked_for(missing: str) -> None:
    with pytest.raises(QueryRefused, match=f"may contribute .*{missing}: 3"):
        _limits("SELECT sex, COUNT(*) FROM visits GROUP BY sex", **{missing: None})
    with pytest.raises(QueryRefused, match=r"how many rows one person may contribute .*max_rows: 3, bounding: rows"):
        _limits("SELECT COUNT(*) FROM visits", bounding=Bounding.ROWS, max_groups=None)


def test_the_unit_of_a_question_has_the_tightest_bounds_and_the_stricter_neighbors() -> None:
    tables = (
        clinic.visits(PrivacyUnit("pid", max_groups=5, max_rows_per_group=2)),
        clinic.stays(PrivacyUnit("pid", max_groups=3, neighboring=Neighboring.REPLACE)),
    )
    sql = "SELECT COUNT(*) FROM visits v JOIN stays s ON v.pid = s.pid"
    (node,) = find_noisy_nodes(bind_statement(sql, tables)[0])
    unit = unit_of(node.input)
    assert (unit.max_groups, unit.max_rows_per_group, unit.neighboring) == (3, 2, Neighboring.REPLACE)


def test_rows_are_copied_by_unions_of_their_table() -> None:
    both = "SELECT COUNT(*) FROM (SELECT age FROM answers {} UNION ALL SELECT age FROM answers) AS both"
    for more, copies in (("", 2), ("UNION ALL SELECT age FROM answers", 3)):
        (node,) = find_noisy_nodes(bind_statement(both.format(more), clinic.TABLES)[0])
        assert multiplicity(node.input) == copies
        plan = compile_query(both.format(more), clinic.TABLES, PureDP(1))
        assert plan.nodes[0].steps[0].placed[0].sensitivity.l1 == copies
    (node,) = find_noisy_nodes(bind_statement("SELECT COUNT(*) FROM visits", clinic.TABLES)[0])
    assert multiplicity(node.input) == 1
    assert not has_one_row(node.input)


# Sensitivities

TOTAL = Total(AGE, None, -2, 7, Fraction(1))
MEASURED: list[tuple[Measurement, int, bool]] = [
    (Units(), 1, False), (Rows(None, None), 3, False), (Distinct(AGE, None), 3, False),
    (Ordered(AGE, None, 0, 9, Fraction(1), (Fraction(1, 2),)), 3, False), (TOTAL, 21, True),
    (replace(TOTAL, center=2), 15, True), (replace(TOTAL, center=2, squared=True), 75, False),
    (replace(TOTAL, center=-2), 27, False), (replace(TOTAL, center=7), 27, False),
    (replace(TOTAL, per_group=(-4, 2)), 4, True), (replace(TOTAL, per_group=(0, 2)), 2, False),
    (replace(TOTAL, per_group=(-4, 0)), 4, False), (replace(TOTAL, lower=0), 21, False),
]  # fmt: skip


SUMS = [each for each, _, _ in MEASURED if isinstance(each, Total) and each.per_group is None]


@pytest.mark.parametrize(("measurement", "reach", "signed"), MEASURED)
def test_what_one_unit_moves(measurement: Measurement, reach: int, signed: bool) -> None:
    assert reach_of(measurement, Limits(None, 3)) == reach
    assert is_signed(measurement) is signed
    told = sensitivity_of(measurement, Limits(2, 3), 2, replace=True)
    # Sums are scaled down to so many rows, in parts of a step; the others are counts, choices, or clamped.
    parts = parts_for(reach) if isinstance(measurement, Total) and measurement.per_group is None else 1
    assert (parts > 1) is (measurement in SUMS)
    assert told == Sensitivity(moved := reach * parts, 2, 2, signed, parts)
    assert (told.l1, told.l2_squared) == (4 * moved, (8 if signed else 4) * moved**2)
    alone = sensitivity_of(measurement, Limits(2, 3), 2, replace=False)
    assert (alone.l1, alone.l2_squared) == (2 * moved, 2 * moved**2)
    for limits in (Limits(None, 1, by_row=True), Limits(None, 3, in_all=True)):
        assert sensitivity_of(measurement, limits, 2, replace=True).parts == 1


def test_rows_in_all_are_moved_at_once_and_scaled_ones_in_parts() -> None:
    in_all, scaled = Limits(None, 3, in_all=True), Limits(2, 3, norm=2)
    assert sensitivity_of(Rows(None, None), in_all, 5, replace=False).groups == 1
    assert sensitivity_of(Units(), in_all, 5, replace=False).groups == 5
    assert sensitivity_of(replace(TOTAL, per_group=(0, 2)), in_all, 5, replace=False).groups == 5
    assert sensitivity_of(Rows(None, None), scaled, 2, replace=False) == Sensitivity(3 << 19, 2, 1, False, 1 << 19)
    assert sensitivity_of(Rows(None, None), scaled, 2, replace=False, whole=True).parts == 1
    assert sensitivity_of(Distinct(AGE, None), scaled, 2, replace=False).parts == 1
    assert [parts_for(reach) for reach in (1, 2, 3)] == [1 << 20, 1 << 19, 1 << 19]
    assert [parts_for(reach) for reach in ((1 << 20) - 1, 1 << 20, 2_000_000)] == [2, 1, 1]
    assert Sensitivity(10, 2, parts=4).l1 == 20


# Grids


@pytest.mark.parametrize(
    "width", [Fraction(1), Fraction(7), Fraction(2**20), Fraction(2**20 + 1), Fraction(1, 1000), Fraction(10**15)]
)
def test_values_without_a_step_are_cut_into_about_a_million(width: Fraction) -> None:
    step = _choose_step(width)
    assert 2**20 / 10 <= width / step <= 2**20
    assert math.log10(step) == pytest.approx(round(math.log10(step)))


def test_a_value_that_is_always_the_same_has_any_step() -> None:
    assert _choose_step(Fraction(0)) == 1


def _total(sql: str, low: Any, high: Any, step: Any = None, kind: ColumnType = ColumnType.DECIMAL) -> tuple[Any, ...]:
    table = TableSchema("t", "t.csv", (Column("x", kind, bounds=Bounds(low, high, step)),), PrivacyUnit())
    found = compile_query(sql, (table,), PureDP(100)).nodes[0].measurements
    return tuple((m.lower, m.upper, m.step, m.center) for m in found if isinstance(m, Total))


def test_sums_and_means_are_taken_in_steps_around_a_public_center() -> None:
    half = Fraction(1, 2)
    assert _total("SELECT SUM(x) FROM t", Fraction(-1), Fraction(4), half) == ((-2, 8, half, 0),)
    assert _total("SELECT AVG(x) FROM t", Fraction(-1), Fraction(4), half) == ((-2, 8, half, 3),)
    assert _total("SELECT SUM(x) FROM t", Fraction(-3, 4), Fraction(4, 3), half) == ((-1, 2, half, 0),)
    assert _total("SELECT SUM(x) FROM t", 3, 3, Fraction(1), ColumnType.INTEGER) == ((3, 3, 1, 0),)
    (coarse, *_) = _total("SELECT VARIANCE(x) FROM t", 0, 2**22, Fraction(1), ColumnType.INTEGER)
    assert coarse == (0, 2**20, 4, 2**19)


def test_one_value_that_is_no_multiple_of_its_step_is_the_step_itself() -> None:
    half, tenths = Fraction(1, 2), Fraction(3, 10)
    for sign in (1, -1):
        sql = f"SELECT SUM(CLAMP(x, {sign * 0.3}, {sign * 0.3})) FROM t"
        assert _total(sql, Fraction(-4), Fraction(4), half) == ((sign, sign, tenths, 0),)


def test_bounds_too_wide_for_their_step_are_refused() -> None:
    _total("SELECT SUM(x) FROM t", 0, 2**53 - 1, Fraction(1), ColumnType.INTEGER)
    with pytest.raises(QueryRefused, match="too wide"):
        _total("SELECT SUM(x) FROM t", 0, 2**53, Fraction(1), ColumnType.INTEGER)


def test_ranks_of_the_same_values_are_chosen_together_and_released_in_their_places() -> None:
    sql = "SELECT MAX(age), COUNT(*), MEDIAN(age), MIN(age), QUANTILE(charge, 0.25), MEDIAN(charge) FROM visits"
    node = compile_query(sql, clinic.TABLES, PureDP(1)).nodes[0]
    ranks = [m.quantiles for m in node.measurements if isinstance(m, Ordered)]
    assert ranks == [(0, Fraction(1, 2), 1), (Fraction(1, 4), Fraction(1, 2))]
    assert [recipe.places for recipe in node.recipes] == [(0,), (1,), (0,), (0,), (2,), (2,)]
    assert [recipe.column for recipe in node.recipes] == [4, 0, 3, 0, 2, 5]
    assert [(recipe.lower, recipe.upper) for recipe in node.recipes[2:5]] == [(0, 100), (0, 100), (0, 250)]


# Noise


def test_noise_is_made_for_its_share_of_the_budget() -> None:
    sensitivity = Sensitivity(3, 4)
    half = Fraction(1, 2)
    pure = calibration.Spending("pure", PureDP(2), Fraction(0))
    assert calibration.calibrate_noise(sensitivity, pure, half) == LaplaceMechanism(Fraction(12), Fraction(12))
    rho = calibration.Spending("zcdp", ZCDP(Fraction(1, 10)), Fraction(0))
    expected = GaussianMechanism(Fraction(36) / Fraction(1, 10), Fraction(36))
    assert calibration.calibrate_noise(sensitivity, rho, half) == expected
    assert isinstance(calibration.calibrate_noise(Sensitivity(3, 1), rho, half, gaussian_only=True), GaussianMechanism)
    nothing = calibration.calibrate_noise(Sensitivity(0, 4), pure, Fraction(1))
    assert nothing == LaplaceMechanism(Fraction(1, 2), Fraction(1)), "what no unit moves is measured as if one did"
    nobody = calibration.calibrate_noise(Sensitivity(0, 4), rho, Fraction(1))
    assert getattr(nobody, "sensitivity_squared", None) in (1, None)


def test_thresholds_share_half_of_the_delta_unless_the_noise_needs_none() -> None:
    found = {each.strategy: each for each in calibration.list_spendings(ApproxDP(1, DELTA), 2, ordered=False)}
    assert list(found) == ["pure", "zcdp", "gaussian"]
    assert (found["pure"].budget, found["pure"].threshold_delta) == (PureDP(1), DELTA / 2)
    assert found["zcdp"].threshold_delta == found["gaussian"].threshold_delta == DELTA / 4
    assert found["gaussian"].budget == ApproxDP(1, DELTA / 2)
    assert [each.strategy for each in calibration.list_spendings(ApproxDP(1, DELTA), 0, ordered=True)] == [
        "pure",
        "zcdp",
    ]
    assert [each.threshold_delta for each in calibration.list_spendings(ApproxDP(1, DELTA), 0, ordered=True)] == [0, 0]
    (rho,) = calibration.list_spendings(ZCDP(Fraction(1), DELTA), 4, ordered=False)
    assert (rho.budget, rho.threshold_delta) == (ZCDP(Fraction(1)), DELTA / 4)
    assert [each.strategy for each in calibration.list_spendings(PureDP(1), 0, ordered=False)] == ["pure"]
    with pytest.raises(QueryRefused, match="needs a delta"):
        calibration.list_spendings(PureDP(1), 1, ordered=False)


def test_a_threshold_is_made_for_all_groups_of_a_unit_that_is_replaced() -> None:
    spending = calibration.Spending("pure", PureDP(1), DELTA)
    threshold = calibration.calibrate_threshold(3, 2, spending, Fraction(1, 2))
    assert (threshold.max_groups, threshold.delta) == (6, DELTA)
    assert threshold.noise == LaplaceMechanism(Fraction(12), Fraction(6))


def test_the_cheapest_price_counts_where_several_accountants_can_tell_one() -> None:
    many = SelfComposedEvent(PureEvent("1/100"), 1000)
    priced = double_entry.price(many, ApproxDP(10, DELTA))
    assert priced.epsilon < 2  # type: ignore[union-attr]
    assert double_entry.price(many, PureDP(10)) == PureDP(10)


# Accuracy that is asked for


@pytest.mark.parametrize(
    ("within", "error"),
    [("WITHIN 30", 30), ("WITHIN 30 CONFIDENCE 0.5", 30), ("WITHIN 5% OF 400", 20)],
)
def test_the_least_epsilon_meets_the_accuracy_of_a_count_and_hardly_more(within: str, error: float) -> None:
    plan = compile_query(f"SELECT COUNT(*) FROM visits {within}", clinic.TABLES)
    alpha = 0.5 if "CONFIDENCE" in within else 0.05
    assert plan.nodes[0].steps[0].placed[0].error(alpha) <= error
    less = compile_query("SELECT COUNT(*) FROM visits", clinic.TABLES, PureDP(plan.cost.epsilon * Fraction(99, 100)))  # type: ignore[union-attr]
    assert less.nodes[0].steps[0].placed[0].error(alpha) > error


def test_a_share_of_a_sum_is_one_of_its_largest_and_of_a_mean_one_of_its_width() -> None:
    plan = compile_query("SELECT SUM(charge) FROM visits WITHIN 10% OF 200", clinic.TABLES)
    assert 4900 < plan.nodes[0].steps[0].placed[0].error(0.05) <= 0.1 * 200 * 250
    plan = compile_query("SELECT AVG(charge) FROM visits WITHIN 10% OF 200", clinic.TABLES)
    total, rows = plan.nodes[0].steps[0].placed
    assert 24 < (total.error(0.025) + 125 * rows.error(0.025)) / 200 <= 25
    for sql in ("SELECT MEDIAN(age) FROM visits WITHIN 5", "SELECT AVG(age) FROM visits WITHIN 5"):
        with pytest.raises(QueryRefused, match="cannot promise"):
            compile_query(sql, clinic.TABLES)
    with pytest.raises(QueryRefused, match="needs to know of what"):
        compile_query("SELECT COUNT(*) FROM visits WITHIN 5%", clinic.TABLES)


def test_a_question_may_read_the_noisy_answer_of_another() -> None:
    sql = (
        "WITH m AS (SELECT sex, AVG(age) AS a FROM visits GROUP BY sex) "
        "SELECT COUNT(*) AS n FROM visits v JOIN m ON v.sex = m.sex WHERE v.age > m.a"
    )
    plan = compile_query(sql, clinic.TABLES, PureDP(500))
    assert len(plan.nodes) == 2
    with clinic.engine() as engine:
        (row,) = execute(plan, engine, intervals=False).to_pylist()
    assert 50 < row["n"] < 250


# Watches, rankings, blocks


def _watch(budget: Any = PureDP, **unit: Any) -> watch.WatchPlan:
    base = compile_query("SELECT COUNT(*) FROM visits", clinic.with_unit(**unit), PureDP(1))
    return watch.plan_watch(base, 10, budget(1))


@pytest.mark.parametrize("threshold", [True, 1.5, "10", (1 << 60) + 1, -(1 << 60) - 1])
def test_the_threshold_of_a_watch_is_a_whole_number(threshold: Any) -> None:
    base = compile_query("SELECT COUNT(*) FROM visits", clinic.TABLES, PureDP(1))
    for fine in (0, 1 << 60, -(1 << 60)):
        assert watch.plan_watch(base, fine, PureDP(1)).mechanism.threshold == fine
    with pytest.raises(ParameterError, match="not a whole number"):
        watch.plan_watch(base, threshold, PureDP(1))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sex, COUNT(*) FROM visits GROUP BY sex", "SELECT COUNT(*), COUNT(DISTINCT pid) FROM visits",
        "SELECT SUM(age) FROM visits", "SELECT COUNT(*) FROM regions",
        "SELECT COUNT(*) FROM visits GROUP BY GROUPING SETS ((sex), ())",
    ],
)  # fmt: skip
def test_a_watch_is_over_one_count(sql: str) -> None:
    base = compile_query(sql, clinic.TABLES, PureDP(1))
    with pytest.raises(QueryRefused, match="a watch is over"):
        watch.plan_watch(base, 10, PureDP(1))


def test_a_watch_that_is_not_made_for_its_count_is_refused() -> None:
    plan = _watch()
    assert (plan.mechanism.sensitivity, plan.mechanism.monotonic, plan.cost) == (3, True, PureDP(1))
    replaced = _watch(neighboring=Neighboring.REPLACE)
    assert (replaced.mechanism.sensitivity, replaced.mechanism.monotonic) == (6, False)
    for broken in (
        replace(plan, mechanism=replace(plan.mechanism, sensitivity=Fraction(2))),
        replace(plan, cost=PureDP(Fraction(1, 2))),
        replace(replaced, mechanism=replace(replaced.mechanism, monotonic=True)),
    ):
        for deed in (watch.check, watch.Watch):
            with pytest.raises(InternalError):
                deed(broken)


def test_a_watch_is_over_after_the_first_time() -> None:
    started = watch.Watch(_watch())
    assert not started.compare(-(10**6))
    assert started.compare(10**6)
    with pytest.raises(ParameterError, match="is over"):
        started.compare(10**6)


def _top(budget: Any, tables: Any = clinic.TABLES, table: str = "visits", k: int = 2) -> top_k.TopPlan:
    base = compile_query(f"SELECT sex, COUNT(*) FROM {table} GROUP BY sex", tables, PureDP(1))
    return top_k.plan_top(base, k, budget)


def test_rankings_pay_half_for_choosing_and_half_for_counting() -> None:
    plan = _top(PureDP(1))
    assert (plan.choice.epsilon, plan.choice.sensitivity, plan.choice.monotonic) == (Fraction(1, 4), 1, True)
    assert plan.counting == LaplaceMechanism(Fraction(4), Fraction(2))
    rho = _top(ZCDP(Fraction(1, 10)))
    assert rho.counting == GaussianMechanism(Fraction(20), Fraction(2))
    assert not _top(PureDP(1), clinic.with_unit(neighboring=Neighboring.REPLACE)).choice.monotonic


def test_a_ranking_that_is_not_made_for_its_groups_is_refused() -> None:
    plan, rho = _top(PureDP(1)), _top(ZCDP(Fraction(1, 10)))
    replaced = _top(PureDP(1), clinic.with_unit(neighboring=Neighboring.REPLACE))
    for good in (plan, rho, replaced, _top(PureDP(1), table="answers")):
        top_k.check(good)
    for broken in (
        replace(plan, counting=replace(plan.counting, sensitivity=Fraction(1))),
        replace(rho, counting=replace(rho.counting, sensitivity_squared=Fraction(1))),
        replace(plan, choice=replace(plan.choice, sensitivity=Fraction(1, 2))),
        replace(replaced, choice=replace(replaced.choice, monotonic=True)),
        replace(plan, event=PureEvent(1)),
        replace(plan, cost=PureDP(Fraction(1, 2))),
        replace(plan, count=3),
    ):
        for deed in (top_k.check, lambda each: top_k.run_top(each, None)):  # type: ignore[arg-type]
            with pytest.raises(InternalError):
                deed(broken)
    for count in (0, 1001, True, "2"):
        with pytest.raises(ParameterError, match="k is not"):
            top_k.check_count(count)
    top_k.check_count(1)
    top_k.check_count(1000)


@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_blocks_that_are_not_made_for_what_they_combine_are_not_run(aggregate: str) -> None:
    plan = sample_aggregate.plan_blocks(5, (0, 10), 1, aggregate)
    weaker = {"sensitivity": Fraction(1)} if aggregate == "mean" else {"rows_per_unit": 1}
    seen: list[Any] = []
    for broken in (replace(plan, mechanism=replace(plan.mechanism, **weaker)), replace(plan, cost=PureDP(2))):
        with pytest.raises(InternalError):
            sample_aggregate.release_blocks(broken, lambda block: seen.append(block) or 1.0, pa.table({"a": [1]}), None)
    assert not seen


@pytest.mark.parametrize(
    ("blocks", "bounds", "aggregate"),
    [(1, (0, 1), "mean"), (100_001, (0, 1), "mean"), (True, (0, 1), "mean"), (5, (1, 1), "mean"), (5, (0,), "mean"),
     (5, "01", "mean"), (5, (0, 1), "mode"), (5.0, (0, 1), "mean")],
)  # fmt: skip
def test_blocks_that_make_no_sense_are_refused(blocks: Any, bounds: Any, aggregate: str) -> None:
    with pytest.raises(ParameterError):
        sample_aggregate.plan_blocks(blocks, bounds, 1, aggregate)


def test_results_of_blocks_are_clamped_and_failures_count_as_the_default() -> None:
    plan = sample_aggregate.plan_blocks(2, (0, 8), 10**4, "mean", default=2)
    steps = sample_aggregate.STEPS
    for value, expected in (
        (-5.0, 0),
        (4.0, steps // 2),
        (99.0, steps),
        (math.nan, steps // 4),
        (math.inf, steps // 4),
    ):
        assert sample_aggregate._run_on_block(plan, lambda _, value=value: value, None) == expected

    def fail(_: Any) -> float:
        raise ValueError("no")

    assert sample_aggregate._run_on_block(plan, fail, None) == steps // 4
    assert sample_aggregate.plan_blocks(2, (0, 8), 1, "mean", default=99).default == 8
    assert sample_aggregate.plan_blocks(2, (0, 8), 1, "mean").default == 4
    noise = plan.mechanism.accuracy(0.05)
    assert plan.error(0.05) == pytest.approx(noise * 8 / steps / 2)


# Hierarchies


def test_intervals_of_fitted_cells_are_as_wide_as_the_wider_of_two_laws() -> None:
    fit = Fit(np.zeros(2), np.array([4.0, 9.0]))
    for strategy, factor in (
        ("gaussian", 1.959964),
        ("pure", math.log(20) / math.sqrt(2)),
        ("zcdp", math.log(20) / math.sqrt(2)),
    ):
        plan: Any = SimpleNamespace(query=SimpleNamespace(strategy=strategy))
        assert _compute_reach(plan, fit, 0.95).tolist() == pytest.approx([2 * factor, 3 * factor], rel=1e-5)
    plan = SimpleNamespace(query=SimpleNamespace(strategy="pure"))
    assert _compute_reach(plan, fit, 0.5)[0] == pytest.approx(2 * 0.6744898), "the normal quantile is larger here"


def test_a_total_below_zero_is_rounded_to_nothing_where_counts_are_not_negative() -> None:
    tree = Tree((1, 2), (np.array([0, 0]),))
    fit = [Fit(np.array([-3.4]), np.ones(1)), Fit(np.array([-5.0, 1.6]), np.ones(2))]
    assert [level.tolist() for level in round_top_down(tree, fit, nonnegative=True)] == [[0], [0, 0]]
    assert [level.tolist() for level in round_top_down(tree, fit, nonnegative=False)] == [[-3], [-5, 2]]


@pytest.mark.parametrize("variances", [[1.0, 2.0, 0.5], [9.0, 1.0, 4.0]])
def test_a_fitted_tree_is_the_least_squares_fit_of_all_its_levels(variances: list[float]) -> None:
    tree = Tree((1, 2, 5), (np.array([0, 0]), np.array([0, 0, 1, 1, 1])))
    measured = [np.array([31]), np.array([9, 17]), np.array([4, 8, 1, 9, 3])]
    rows = [np.ones(5), np.array([1.0, 1, 0, 0, 0]), np.array([0.0, 0, 1, 1, 1]), *np.eye(5)]
    weights = np.diag(1 / np.repeat(variances, (1, 2, 5)))
    design, known = np.array(rows), np.concatenate(measured).astype(float)
    covariance = np.linalg.inv(design.T @ weights @ design)
    leaves = covariance @ design.T @ weights @ known
    found = fit_tree(tree, measured, variances)
    assert np.concatenate([level.values for level in found]) == pytest.approx(design @ leaves)
    spread = np.diag(design @ covariance @ design.T)
    assert np.concatenate([level.variances for level in found]) == pytest.approx(spread)


def test_rows_of_a_level_are_told_in_the_units_of_what_is_summed() -> None:
    plan: Any = SimpleNamespace(keys=[[("a",), ("b",)]], margins=((0,),), columns=("k",), tree=True, step=0.5)
    rows = _build_rows(plan, "k", 0, np.array([4, 10]), np.array([2.0, 2.0])).to_pylist()
    assert rows == [
        {"level": "k", "k": "a", "value": 2.0, "value_low": 1.0, "value_high": 3.0},
        {"level": "k", "k": "b", "value": 5.0, "value_low": 4.0, "value_high": 6.0},
    ]
    plan.step = 1.0
    assert _build_rows(plan, "k", 0, np.array([4, 10]), np.array([2.0, 2.0])).column("value").to_pylist() == [4, 10]


def test_a_threshold_under_a_large_rho_has_the_quieter_noise() -> None:
    sql = "SELECT city, SUM(age) FROM visits GROUP BY city"
    tables = clinic.with_unit(max_groups=1)
    for rho, noise in ((Fraction(1, 10), GaussianMechanism), (Fraction(200), LaplaceMechanism)):
        threshold = compile_query(sql, tables, ZCDP(rho, DELTA)).nodes[0].steps[0].threshold
        assert threshold is not None
        assert isinstance(threshold.noise, noise)


def test_steps_of_a_question_are_counted_each_time_they_are_used() -> None:
    scan = scan_table(clinic.REGIONS, "r")
    assert count_nodes(scan) == 1
    assert count_nodes(Union((scan, scan, scan), scan.fields)) == 4
    assert count_nodes(Union((scan,) * 9, scan.fields), most=3) == 4


def test_slow_functions_weigh_more_for_each_character() -> None:
    text = ColumnRef("r.city", Facts(Kind.TEXT, longest=10))
    plain, slow = (
        _bound_expression(Call(name, (text,), Facts(Kind.TEXT, longest=10))) for name in ("reverse", "lower")
    )
    assert slow[0] - plain[0] == 80
    assert plain[0] == 1 + 10 + 10 + 1
