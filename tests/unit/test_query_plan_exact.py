"""Plans of questions by hand and by naive twins: double entry refuses every tampered part, steps, keys, budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import clinic
from deniable.dp.accounting import PureEvent, SelfComposedEvent
from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism, QuantileMechanism
from deniable.dp.samplers import SYSTEM
from deniable.errors import InternalError, ParameterError, QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP
from deniable.policy.schema import Bounding, Bounds, Column, ColumnType, Neighboring, PrivacyUnit, TableSchema
from deniable.query import calibration, double_entry
from deniable.query.algebra.expression import ColumnRef, Facts, Kind, literal
from deniable.query.algebra.functions import call
from deniable.query.algebra.intervals import FINEST_STEP, MOST_STEPS, choose_sum_step
from deniable.query.algebra.relation import facts_of, scan_table
from deniable.query.compile import compile_query, read_budget
from deniable.query.execute import _solve_least_squares, execute
from deniable.query.joint import NUMBER
from deniable.query.keys import FromTable, PublicKeys
from deniable.query.measurements import Rows, Total
from deniable.query.plan import NodePlan, Placed, Sensitivity, Step, deviation
from deniable.query.sql.clauses import Clauses
from deniable.query.sql.private_sql import render_whole_steps
from deniable.query.techniques import sample_aggregate
from deniable.query.techniques.least_squares import Strategy, predict_tree_variances

DELTA = Fraction(1, 10**6)
ONE = PureDP(1)
REPLACED = clinic.with_unit(neighboring=Neighboring.REPLACE)
SCALED = clinic.with_unit(bounding=Bounding.SCALE)
IN_ALL = clinic.with_unit(bounding=Bounding.ROWS, max_rows=4, max_groups=None, max_rows_per_group=None)
ALONE = "WITH DIFFERENTIAL_PRIVACY OPTIONS (weights = (1, 1)) "
"""What is weighted one by one is measured one by one."""
BY_SEX = f"SELECT {ALONE}sex, COUNT(*), SUM(age) FROM visits GROUP BY sex"
TOGETHER = "SELECT sex, COUNT(*) FILTER (WHERE age < 9), COUNT(*), SUM(age) FROM visits GROUP BY sex"
BY_CITY = "SELECT city, COUNT(*), SUM(age) FROM visits GROUP BY city"
MEDIANS = "SELECT sex, MEDIAN(age) FROM visits GROUP BY sex"
UNITS = "SELECT sex, COUNT(*), COUNT(DISTINCT pid) FROM visits GROUP BY sex"


def _step(sql: str, tables: Any = clinic.TABLES, budget: Budget = ONE) -> tuple[NodePlan, Step]:
    node = compile_query(sql, tables, budget).nodes[0]
    return node, node.steps[0]


def _change(step: Step, place: int, **fields: Any) -> Step:
    placed = list(step.placed)
    placed[place] = replace(placed[place], **fields)
    return replace(step, placed=tuple(placed))


def _sense(place: int, **fields: int) -> Callable[[Step], Step]:
    """The sensitivity of one measurement is told lower by so much; its mechanism stays."""

    def change(step: Step) -> Step:
        told = step.placed[place].sensitivity
        less = {name: getattr(told, name) - by for name, by in fields.items()}
        return _change(step, place, sensitivity=replace(told, **less))

    return change


def _noise(place: int, **fields: Any) -> Callable[[Step], Step]:
    return lambda step: _change(step, place, mechanism=replace(step.placed[place].mechanism, **fields))


def _limit(**fields: Any) -> Callable[[Step], Step]:
    return lambda step: replace(step, limits=replace(step.limits, **fields))


def _drop_last(step: Step) -> Step:
    return replace(step, placed=step.placed[:-1])


def _join(**fields: Any) -> Callable[[Step], Step]:
    """A joint release with something else in it."""
    return lambda step: replace(step, joints=(replace(step.joints[0], **fields),))


def _part(**fields: Any) -> Callable[[Step], Step]:
    """The first part of a joint release is another one."""

    def change(step: Step) -> Step:
        block = step.joints[0].block
        parts = (replace(block.parts[0], **fields), *block.parts[1:])
        return _join(block=replace(block, parts=parts))(step)

    return change


def _make_noise(**fields: Any) -> Callable[[Step], Step]:
    return lambda step: _join(mechanism=replace(step.joints[0].mechanism, **fields))(step)


GAUSS = ZCDP(Fraction(1, 10))
THRESHOLD = ApproxDP(1, DELTA)
TAMPERED: list[tuple[str, Any, Budget, Callable[[Step], Step]]] = [
    (BY_SEX, clinic.TABLES, PureDP(1), _sense(0, groups=1)),
    ("SELECT COUNT(*) FROM visits", clinic.TABLES, PureDP(1), _sense(0, groups=1)),
    (BY_SEX, clinic.TABLES, PureDP(1), _sense(1, per_group=1)),
    (BY_SEX, clinic.TABLES, PureDP(1), _sense(1, parts=-1)),
    (BY_SEX, clinic.TABLES, PureDP(1), _noise(0, sensitivity=Fraction(5))),
    (BY_SEX, clinic.TABLES, PureDP(1), _noise(1, sensitivity=Fraction(599))),
    (BY_SEX, clinic.TABLES, PureDP(1), _drop_last),
    (BY_SEX, clinic.TABLES, PureDP(1), _limit(rows=4)),
    (BY_SEX, clinic.TABLES, PureDP(1), _limit(groups=3)),
    (BY_SEX, clinic.TABLES, PureDP(1), _limit(norm=2)),
    (BY_SEX, clinic.TABLES, GAUSS, _noise(1, sensitivity_squared=Fraction(179_999))),
    (BY_SEX, clinic.TABLES, GAUSS, _limit(norm=1)),
    (BY_SEX, REPLACED, PureDP(1), _sense(0, factor=1)),
    (BY_SEX, SCALED, GAUSS, _sense(0, parts=1)),
    (BY_SEX, SCALED, GAUSS, _sense(0, parts=-2048)),
    (BY_SEX, SCALED, GAUSS, _limit(norm=None)),
    (BY_SEX, SCALED, PureDP(1), _limit(norm=2)),
    (BY_SEX, IN_ALL, PureDP(1), _sense(0, per_group=1)),
    (BY_SEX, IN_ALL, PureDP(1), _sense(0, groups=1)),
    (BY_SEX, IN_ALL, PureDP(1), _limit(rows=5)),
    (UNITS, IN_ALL, PureDP(1), _sense(1, groups=1)),
    (TOGETHER, clinic.TABLES, PureDP(1), _make_noise(sensitivity=Fraction(16 * 600 - 1))),
    (TOGETHER, REPLACED, PureDP(1), _make_noise(sensitivity=Fraction(16 * 1200 - 1))),
    (TOGETHER, clinic.TABLES, PureDP(1), _join(strategy=Strategy(((1, 1), (0, 1)), "more than was priced"))),
    (TOGETHER, clinic.TABLES, PureDP(1), _join(strategy=Strategy(((1, 0), (0, -1)), "less than nothing"))),
    (TOGETHER, clinic.TABLES, PureDP(1), _part(condition=None)),
    (TOGETHER, clinic.TABLES, PureDP(1), _part(condition=call("eq", ColumnRef("#cell0", NUMBER), literal(1)))),
    (TOGETHER, clinic.TABLES, PureDP(1), _part(among=("j0_0",))),
    (TOGETHER, clinic.TABLES, PureDP(1), _part(upper=101)),
    (TOGETHER, clinic.TABLES, PureDP(1), _part(order=1)),
    (TOGETHER, clinic.TABLES, PureDP(1), _limit(rows=4)),
    (TOGETHER, clinic.TABLES, PureDP(1), _limit(groups=3)),
    (TOGETHER, clinic.TABLES, PureDP(1), lambda step: replace(step, joints=())),
    (TOGETHER, IN_ALL, PureDP(1), _limit(rows=5)),
    (BY_CITY, clinic.TABLES, THRESHOLD, lambda step: replace(step, threshold=None)),
    (BY_CITY, clinic.TABLES, THRESHOLD, lambda step: replace(step, threshold=replace(step.threshold, max_groups=1))),
    (BY_CITY, REPLACED, THRESHOLD, lambda step: replace(step, threshold=replace(step.threshold, max_groups=3))),
    (BY_CITY, clinic.TABLES, THRESHOLD, _limit(groups=3)),
    (BY_CITY, clinic.TABLES, THRESHOLD, _limit(groups=None)),
    (BY_CITY, clinic.TABLES, THRESHOLD, _limit(norm=1)),
    (MEDIANS, clinic.TABLES, PureDP(1), _noise(0, rows_per_unit=2)),
    (MEDIANS, clinic.TABLES, PureDP(1), _noise(0, upper=101)),
    (MEDIANS, clinic.TABLES, PureDP(1), _noise(0, lower=-1)),
    (MEDIANS, clinic.TABLES, PureDP(1), _noise(0, quantiles=(Fraction(1, 3),))),
    (MEDIANS, clinic.TABLES, PureDP(1), _noise(0, exchanged=True)),
    (MEDIANS, SCALED, PureDP(1), _limit(groups=3)),
    ("SELECT SUM(age) FROM visits", SCALED, PureDP(1), _limit(groups=2)),
    ("SELECT SUM(age) FROM visits", SCALED, PureDP(1), _limit(rows=4)),
    ("SELECT SUM(age) FROM visits", SCALED, GAUSS, _limit(groups=2)),
    (MEDIANS, clinic.TABLES, PureDP(1), lambda step: _change(step, 0, measurement=Rows(None, None))),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(TAMPERED)))
def test_double_entry_notices_each_part_that_is_tampered_with(place: int) -> None:
    sql, tables, budget, tamper = TAMPERED[place]
    plan = compile_query(sql, tables, budget)
    node, step = plan.nodes[0], plan.nodes[0].steps[0]
    factor = 2 if tables is REPLACED else 1
    assert double_entry._is_covered(node, step, factor)
    assert not double_entry._is_covered(node, tamper(step), factor)
    double_entry.check(plan)
    with pytest.raises(InternalError, match="not made for what it measures"):
        double_entry.check(replace(plan, nodes=(replace(node, steps=(tamper(step),)),)))


def test_double_entry_covers_units_that_are_replaced_only_where_they_are() -> None:
    node, step = _step(BY_SEX)
    assert double_entry._is_covered(node, step, 1)
    assert not double_entry._is_covered(node, step, 2)
    node, step = _step(BY_SEX, REPLACED)
    assert double_entry._is_covered(node, step, 2)


@pytest.mark.parametrize("change", [{"event": PureEvent(1)}, {"cost": PureDP(Fraction(1, 2))}])
def test_a_plan_that_tells_another_event_or_price_is_refused(change: Any) -> None:
    plan = compile_query(BY_SEX, clinic.TABLES, PureDP(1))
    double_entry.check(plan)
    with pytest.raises(InternalError, match="is not that of its mechanisms"):
        double_entry.check(replace(plan, **change))


@pytest.mark.parametrize(
    ("asked", "near"),
    [(PureDP(1), PureDP(Fraction(10**6 - 1, 10**6))), (GAUSS, ZCDP(Fraction(10**6 - 1, 10**7)))],
    ids=str,
)
def test_a_plan_may_cost_hardly_less_than_asked_and_nothing_more(asked: Any, near: Any) -> None:
    event = compile_query(BY_SEX, clinic.TABLES, near).event
    assert double_entry.price(event, near) == near
    assert double_entry.price(event, asked) == near, "one part in a million less"
    for off in (Fraction(10**6 - 2, 10**6), Fraction(11, 10)):
        other = type(asked)(next(iter(_amounts(asked))) * off)
        over = compile_query(BY_SEX, clinic.TABLES, other).event
        with pytest.raises(InternalError, match="do not cost what was asked"):
            double_entry.price(over, asked)


def _amounts(budget: Any) -> list[Fraction]:
    return [budget.rho if isinstance(budget, ZCDP) else budget.epsilon]


def test_a_threshold_is_not_paid_by_a_budget_without_its_delta() -> None:
    event = compile_query(BY_CITY, clinic.TABLES, THRESHOLD).event
    assert double_entry.price(event, THRESHOLD) == THRESHOLD
    for asked in (PureDP(1), ApproxDP(1, DELTA / 2)):
        with pytest.raises(InternalError):
            double_entry.price(event, asked)
    concentrated = compile_query(BY_CITY, clinic.TABLES, ZCDP(Fraction(1, 10), DELTA)).event
    assert double_entry.price(concentrated, ZCDP(Fraction(1, 10), DELTA)) == ZCDP(Fraction(1, 10), DELTA)
    with pytest.raises(InternalError):
        double_entry.price(concentrated, ZCDP(Fraction(1, 10), DELTA / 2))


def test_a_choice_is_priced_once_for_each_group_of_a_unit() -> None:
    _, step = _step(MEDIANS)
    assert double_entry.event_of(step.placed[0]) == SelfComposedEvent(step.placed[0].mechanism.event, 2)
    _, step = _step(MEDIANS, REPLACED)
    assert double_entry.event_of(step.placed[0]) == SelfComposedEvent(step.placed[0].mechanism.event, 4)


# Steps and errors


@pytest.mark.parametrize("parts", [1, 2, 3, 8, 4096])
@pytest.mark.parametrize("scale", [1, 50, 3000])
def test_the_error_in_whole_steps_is_the_farthest_that_noise_is_rounded_to(parts: int, scale: int) -> None:
    noise = LaplaceMechanism(Fraction(scale))
    placed = Placed("m0", Rows(None, None), Sensitivity(parts, 1, parts=parts), noise, Fraction(1))
    reach = noise.accuracy(0.05)
    rounded = placed.round_to_steps(np.arange(-reach, reach + 1))
    assert placed.accuracy(0.05) == np.abs(rounded).max()
    naive = [(2 * each + parts) // (2 * parts) for each in range(-reach, reach + 1)]
    assert rounded.tolist() == naive, "to the nearest, halves upwards"
    assert placed.deviation == pytest.approx(np.sqrt(2) * scale / parts)
    assert placed.norm(gaussian=False) == 1
    assert placed.norm(gaussian=True) == 1


def test_the_deviation_of_a_choice_is_its_rank_error_that_a_third_passes() -> None:
    _, step = _step(MEDIANS)
    choice = step.placed[0].mechanism
    assert isinstance(choice, QuantileMechanism)
    assert choice.accuracy(0.32) not in (choice.accuracy(0.64), 0)
    assert deviation(choice) == choice.accuracy(0.32)
    assert deviation(GaussianMechanism(Fraction(9), Fraction(1))) == 3.0


def test_errors_are_told_in_the_units_of_what_is_asked() -> None:
    _, step = _step(f"SELECT {ALONE}SUM(charge), COUNT(*) FROM visits")
    total, rows = step.placed
    parts = total.sensitivity.parts
    whole = (total.mechanism.accuracy(0.05) + parts // 2) // parts
    assert total.error(0.05) == whole / 2, "charges have steps of 1/2"
    assert rows.error(0.05) == rows.mechanism.accuracy(0.05)
    _, step = _step("SELECT MEDIAN(charge) FROM visits")
    assert step.placed[0].error(0.05) == step.placed[0].mechanism.accuracy(0.05), "ranks have no unit"


# Values in whole steps

FIVES = TableSchema(
    "fives",
    "fives.parquet",
    (Column("n", ColumnType.INTEGER, bounds=Bounds(-10, 20, Fraction(5))),
     Column("w", ColumnType.INTEGER, bounds=Bounds(-10, 20)),
     Column("d", ColumnType.DECIMAL, bounds=Bounds(Fraction(-10), Fraction(20), Fraction(1)))),
    PrivacyUnit(),
)  # fmt: skip


def _steps_of(name: str, lower: int, upper: int, step: int, values: list[Any]) -> tuple[str, list[Any]]:
    source = scan_table(FIVES, "fives")
    field = next(each for each in source.fields if each.name == f"fives.{name}")
    total = Total(ColumnRef(field.name, field.facts), None, lower, upper, Fraction(step))
    text = render_whole_steps(total, source)
    with duckdb.connect(config={"threads": 1}) as engine:
        engine.register("t", pa.table({field.name: values}))
        return text, [row[0] for row in engine.execute(f"SELECT {text} FROM t").fetchall()]


def test_a_value_is_measured_in_steps_inside_its_bounds() -> None:
    assert _steps_of("n", -2, 4, 5, [-10, 0, 5, 20, None])[1] == [-2, 0, 1, 4, None]
    assert _steps_of("w", -3, 3, 1, [-10, -3, 3, 20, None])[1] == [-3, -3, 3, 3, None]
    assert _steps_of("d", -3, 3, 1, [-10.0, 2.0, float("nan"), None])[1] == [-3, 2, None, None]


def test_a_whole_column_that_was_clamped_where_it_is_read_is_not_clamped_again() -> None:
    assert _steps_of("w", -10, 20, 1, [-10, 20, None])[0].startswith("CAST(")
    for wider in ((-9, 20), (-10, 19)):
        assert "greatest" in _steps_of("w", *wider, 1, [0])[0]


# Keys


def test_two_keys_of_one_public_table_appear_as_it_pairs_them() -> None:
    sql = (
        "SELECT r.city, r.region, v.sex, COUNT(*) AS n FROM visits v JOIN regions r ON v.city = r.city "
        "GROUP BY r.city, v.sex, r.region"
    )
    plan = compile_query(sql, clinic.TABLES, PureDP(1))
    keys = plan.nodes[0].steps[0].keys
    assert isinstance(keys, PublicKeys)
    tables = [part for part in keys.parts if isinstance(part, FromTable)]
    assert [part.places for part in tables] == [(0, 2)]
    assert len(keys.parts) == 2


def test_keys_of_two_public_tables_are_not_paired() -> None:
    other = replace(clinic.REGIONS, name="towns", source="towns.csv")
    sql = (
        "SELECT r.city, t.region, COUNT(*) AS n FROM visits v JOIN regions r ON v.city = r.city "
        "JOIN towns t ON v.city = t.city GROUP BY r.city, t.region"
    )
    keys = compile_query(sql, (*clinic.TABLES, other), PureDP(1)).nodes[0].steps[0].keys
    assert isinstance(keys, PublicKeys)
    assert [part.places for part in keys.parts if isinstance(part, FromTable)] == [(0,), (1,)]


# Budgets


@pytest.mark.parametrize("inside", [{"epsilon": "1"}, {"rho": "1"}, {"epsilon": "1", "delta": "1e-6"}])
def test_a_budget_is_stated_once(inside: dict[str, str]) -> None:
    assert read_budget(Clauses("", options=inside), None) is not None
    assert read_budget(Clauses(""), PureDP(1)) == PureDP(1)
    assert read_budget(Clauses(""), None) is None
    with pytest.raises(QueryRefused, match="stated twice"):
        read_budget(Clauses("", options=inside), PureDP(1))


def test_an_accuracy_is_bought_with_epsilon_and_not_with_rho() -> None:
    sql = "SELECT COUNT(*) FROM visits WITHIN 10"
    with pytest.raises(QueryRefused, match="stated in rho"):
        compile_query(sql, clinic.TABLES, ZCDP(Fraction(1)))
    plan = compile_query(sql, clinic.TABLES, PureDP(5))
    assert plan.nodes[0].steps[0].placed[0].error(0.05) == 10
    with pytest.raises(QueryRefused, match="no epsilon up to"):
        compile_query(sql, clinic.TABLES, PureDP(Fraction(1, 100)))


@pytest.mark.parametrize(
    ("budget", "told"),
    [(PureDP(0), "is 0"), (PureDP(10_001), "above 10,000"), (ApproxDP(1, Fraction(2, 100)), "delta is above")],
)
def test_budgets_that_protect_nobody_are_refused(budget: Budget, told: str) -> None:
    with pytest.raises(QueryRefused, match=told):
        compile_query("SELECT COUNT(*) FROM visits", clinic.TABLES, budget)


def test_the_largest_budget_and_the_largest_delta_are_taken() -> None:
    for budget in (PureDP(10_000), ApproxDP(1, Fraction(1, 100))):
        assert compile_query("SELECT COUNT(*) FROM visits", clinic.TABLES, budget).cost.epsilon == budget.epsilon  # type: ignore[union-attr]


@dataclass(frozen=True)
class _Set:
    """A grouping set as shares are split over it."""

    parts: int
    loads: tuple[int, ...] = (1,)
    groups: int = 1
    recipes: tuple[Any, ...] = ()


def test_weights_of_grouping_sets_are_shared_evenly_within_each() -> None:
    weights = calibration.BySet((Fraction(3), Fraction(1), Fraction(2)))
    found = calibration.split_shares([_Set(1), _Set(2), _Set(0)], weights, "pure")
    assert found == [[Fraction(3, 4)], [Fraction(1, 8)] * 2, []]
    for wrong in ((Fraction(1), Fraction(1)), (Fraction(1), Fraction(0), Fraction(1))):
        with pytest.raises(QueryRefused, match="grouping sets"):
            calibration.split_shares([_Set(1), _Set(2), _Set(1)], calibration.BySet(wrong), "pure")


def test_shares_without_weights_follow_the_loads_and_the_best_ones_the_groups() -> None:
    sets = [_Set(2, (1, 3), 8), _Set(1, (1,), 1)]
    assert calibration.split_shares(sets, None, "pure") == [[Fraction(1, 5), Fraction(3, 5)], [Fraction(1, 5)]]
    assert calibration.split_shares(sets, "optimal", "pure") == [[Fraction(4, 17), Fraction(12, 17)], [Fraction(1, 17)]]
    root = Fraction(round(8**0.5 * 1000), 1000)
    assert calibration.split_shares(sets, "optimal", "zcdp")[1] == [1 / (4 * root + 1)]


# Facts of columns


def test_listed_numbers_lie_between_the_least_and_the_largest() -> None:
    facts = facts_of(Column("n", ColumnType.INTEGER, categories=(3, -1, 2), nullable=False))
    assert (facts.lower, facts.upper, facts.step) == (-1, 3, 1)
    assert facts.nullable, "what is not listed is read as null"
    assert facts_of(Column("x", categories=("ab", "c"))).longest == 2
    text = facts_of(Column("x", nullable=False))
    assert (text.lower, text.longest, text.nullable) == (None, 1 << 16, False)


def test_what_a_policy_bounds_is_never_null_unless_it_says_so() -> None:
    bounded = facts_of(Column("n", ColumnType.INTEGER, bounds=Bounds(0, 9), nullable=False))
    assert (bounded.lower, bounded.upper, bounded.step, bounded.nullable) == (0, 9, 1, False)
    days = clinic.COLUMNS[5]
    assert facts_of(replace(days, nullable=False)).step == 1
    assert not facts_of(replace(days, nullable=False)).nullable
    assert facts_of(Column("d", ColumnType.DATE, nullable=False)).nullable, "days outside the calendar are null"
    assert facts_of(Column("d", ColumnType.DECIMAL)).step is None


def test_sums_without_a_step_are_taken_on_the_finest_decimals_that_fit() -> None:
    """A naive search from the finest power of ten upwards."""
    grids = [Fraction(10) ** power for power in range(-30, 40)]
    small = [Fraction(1, 3), Fraction(1, 10**20), Fraction(2**53, 10**6)]
    for most in (*map(Fraction, (0, 1, 7, 100, 2**53, 10**17, 10**30)), *small):
        facts = Facts(Kind.DECIMAL, -most, most / 2)
        naive = next(grid for grid in grids if most / grid <= MOST_STEPS) if most else Fraction(1)
        assert choose_sum_step(facts) == max(naive, FINEST_STEP)
        stepped = replace(facts, step=Fraction(1, 8))
        assert choose_sum_step(stepped) == (Fraction(1, 8) if most * 8 <= MOST_STEPS else naive)


def test_sums_of_values_without_bounds_are_taken_on_their_own_step_where_it_is_ample() -> None:
    assert choose_sum_step(Facts(Kind.DECIMAL, step=Fraction(1, 10**6))) == Fraction(1, 10**6)
    assert choose_sum_step(Facts(Kind.DECIMAL, step=Fraction(1, 10**7))) is None
    assert choose_sum_step(Facts(Kind.NULL)) == 1
    assert choose_sum_step(Facts(Kind.INTEGER, lower=Fraction(0))) == 1
    assert choose_sum_step(Facts(Kind.DECIMAL, upper=Fraction(0))) is None


# Blocks


def _blocks(values: list[Any], unit: str | None, blocks: int = 4) -> list[list[Any]]:
    table = pa.table({"who": values, "row": list(range(len(values)))})
    return [block.column("row").to_pylist() for block in sample_aggregate.split_units(table, unit, blocks, SYSTEM)]


def test_rows_without_a_unit_are_each_in_one_block() -> None:
    found = _blocks([None] * 200, None)
    assert sorted(row for block in found for row in block) == list(range(200))
    assert all(len(block) > 10 for block in found)


def test_rows_of_one_unit_are_in_one_block_and_rows_of_nobody_in_none() -> None:
    values = [None if i % 7 == 0 else f"p{i % 20}" for i in range(200)]
    found = _blocks(values, "who")
    homes: dict[str, set[int]] = {}
    for place, block in enumerate(found):
        for row in block:
            homes.setdefault(values[row], set()).add(place)
    assert all(len(places) == 1 for places in homes.values())
    assert sorted(row for block in found for row in block) == [i for i in range(200) if values[i] is not None]
    assert sum(map(bool, found)) > 1
    assert _blocks([None, None], "who") == [[]] * 4
    with pytest.raises(ParameterError, match="no column"):
        _blocks(["a"], "nobody")


def test_blocks_are_of_units_that_equal_each_other() -> None:
    assert [block for block in _blocks([0.0, -0.0], "who") if block] == [[0, 1]]


# Fitted trees


@pytest.mark.parametrize("sizes", [[1, 2], [1, 3, 6], [2, 4, 4, 12]])
def test_variances_of_a_fitted_tree_are_those_of_least_squares(sizes: list[int]) -> None:
    measured = [1.0, 2.5, 0.7, 4.0][: len(sizes)]
    leaves = sizes[-1]
    rows, weights = [], []
    for size, variance in zip(sizes, measured, strict=True):
        for cell in range(size):
            rows.append([1.0 if leaf * size // leaves == cell else 0.0 for leaf in range(leaves)])
            weights.append(1 / variance)
    design = np.array(rows)
    covariance = np.linalg.inv(design.T @ np.diag(weights) @ design)
    fitted = np.diag(design @ covariance @ design.T)
    firsts = np.cumsum([0, *sizes[:-1]])
    assert predict_tree_variances(sizes, measured) == pytest.approx(fitted[firsts].tolist())


# Grouping sets that add up


def test_grouping_sets_are_fitted_by_weighted_least_squares() -> None:
    parents = [np.arange(6), np.array([0, 0, 1, 1, 2, 2]), np.zeros(6, dtype=np.int64)]
    measured = [np.array([3, 9, 4, 0, 7, 2]), np.array([10, 6, 8]), np.array([30])]
    weights = [1.0, 0.5, 4.0]
    rows, target, weight = [], [], []
    for values, parent, w in zip(measured, parents, weights, strict=True):
        for cell, value in enumerate(values):
            rows.append((parent == cell).astype(float))
            target.append(float(value))
            weight.append(w)
    design, known, scaled = np.array(rows), np.array(target), np.diag(weight)
    expected = np.linalg.solve(design.T @ scaled @ design, design.T @ scaled @ known)
    assert _solve_least_squares(measured, parents, weights, 0) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_consistent_counts_and_sums_add_up_at_every_level(seed: int) -> None:
    sql = "SELECT sex, insured, COUNT(*) AS n, SUM(age) AS total FROM visits GROUP BY ROLLUP (sex, insured)"
    plan = compile_query(sql, clinic.TABLES, PureDP(5000 + seed))
    with clinic.engine() as engine:
        plain = execute(plan, engine, intervals=False).to_pylist()
        rows = execute(plan, engine, intervals=False, consistent=True).to_pylist()
    for name in ("n", "total"):
        leaves = [row[name] for row in rows if row["insured"] is not None]
        halves = [row[name] for row in rows if row["insured"] is None and row["sex"] is not None]
        whole = [row[name] for row in rows if row["sex"] is None]
        assert sum(leaves) == sum(halves) == whole[-1]
        truth = sum(row[name] for row in plain if row["insured"] is not None)
        assert abs(whole[-1] - truth) < truth / 2, "nothing is lost"
