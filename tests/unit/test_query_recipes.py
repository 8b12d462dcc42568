"""What is measured for each aggregate and how the answer follows from it: one question with all of them, by hand."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import date
from fractions import Fraction
from typing import Any

import pytest

import clinic
from deniable.errors import BudgetUnstated, InternalError, ParameterError, QueryRefused
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.schema import Bounding, Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query import calibration
from deniable.query.algebra.expression import Call, ColumnRef, Facts, Kind
from deniable.query.algebra.relation import Measure, Union, find_noisy_nodes, scan_table, unit_of
from deniable.query.compile import compile_query, list_variants
from deniable.query.measurements import Distinct, Ordered, Recipe, Rows, Total, Units
from deniable.query.plan import Limits, Sensitivity
from deniable.query.sql import private_sql
from deniable.query.sql.render import render_each
from deniable.query.techniques import grouping_sets, sample_aggregate
from noise_spy import put_twin

ONE, HALF = Fraction(1), Fraction(1, 2)
EVERY = """SELECT COUNT(*), COUNT(age), SUM(age), AVG(age), AVG(charge), VARIANCE(age), STDDEV_POP(age), MIN(age),
    MEDIAN(age), MAX(charge), COUNT(DISTINCT pid), COUNT(DISTINCT sex), SUM(delta), MAX(age) FROM visits"""


def told(measurement: Any) -> tuple[Any, ...]:
    argument = getattr(measurement, "argument", None)
    name = None if argument is None else argument.name.removeprefix("visits.")
    match measurement:
        case Total():
            ends = (measurement.lower, measurement.upper, measurement.step)
            return "total", name, *ends, measurement.center, measurement.squared
        case Ordered():
            return "ordered", name, measurement.lower, measurement.upper, measurement.step, measurement.quantiles
        case _:
            return type(measurement).__name__.lower(), name


def test_aggregates_share_what_is_measured() -> None:
    plan = compile_query(EVERY, clinic.TABLES, PureDP(1))
    assert [told(measurement) for measurement in plan.nodes[0].measurements] == [
        ("rows", None),
        ("rows", "age"),
        ("total", "age", 0, 100, ONE, 0, False),
        ("total", "age", 0, 100, ONE, 50, False),
        ("total", "charge", 0, 500, HALF, 250, False),
        ("rows", "charge"),
        ("total", "age", 0, 100, ONE, 50, True),
        ("ordered", "age", 0, 100, ONE, (Fraction(0), HALF, ONE)),
        ("ordered", "charge", 0, 500, HALF, (ONE,)),
        ("units", None),
        ("distinct", "sex"),
        ("total", "delta", -20, 10, ONE, 0, False),
    ]


def rank(place: int, quantile: Fraction, column: int, upper: int = 100, **rest: Any) -> Recipe:
    ends = {"lower": Fraction(0), "upper": Fraction(upper), "kind": Kind.INTEGER}
    return Recipe(Measure.QUANTILE, (place,), quantile=quantile, column=column, **{**ends, **rest})


def test_each_answer_follows_from_its_places() -> None:
    plan = compile_query(EVERY, clinic.TABLES, PureDP(1))
    ages = {"lower": Fraction(0), "upper": Fraction(100)}
    assert list(plan.nodes[0].recipes) == [
        Recipe(Measure.COUNT, (0,), kind=Kind.INTEGER),
        Recipe(Measure.COUNT, (1,), kind=Kind.INTEGER),
        Recipe(Measure.SUM, (2,), kind=Kind.INTEGER),
        Recipe(Measure.AVG, (3, 1), center=50, **ages),
        Recipe(Measure.AVG, (4, 5), HALF, 250, lower=Fraction(0), upper=Fraction(250)),
        Recipe(Measure.VARIANCE, (3, 6, 1), center=50, **ages),
        Recipe(Measure.STDDEV, (3, 6, 1), center=50, population=True, **ages),
        rank(7, Fraction(0), 7),
        rank(7, HALF, 12),
        rank(8, ONE, 8, upper=250, step=HALF, kind=Kind.DECIMAL),
        Recipe(Measure.COUNT, (9,), kind=Kind.INTEGER),
        Recipe(Measure.COUNT, (10,), kind=Kind.INTEGER),
        Recipe(Measure.SUM, (11,), kind=Kind.INTEGER),
        rank(7, ONE, 13),
    ]


def test_what_one_person_moves_of_each_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    put_twin(monkeypatch, list_variants, lambda drafts: [drafts])  # each by itself
    step = compile_query(EVERY, clinic.TABLES, PureDP(1)).nodes[0].steps[0]
    assert step.limits == Limits(None, 3)
    moved = [3, 3, 300, 150, 750, 3, 7500, 3, 3, 1, 3, 60]
    changes = [placed.sensitivity for placed in step.placed]
    assert [each.per_group // each.parts for each in changes] == moved
    assert [i for i, each in enumerate(changes) if each.parts > 1] == [2, 3, 4, 6, 11]  # the sums
    assert {placed.sensitivity.groups for placed in step.placed} == {1}
    # Three ranks of one column are chosen on two levels, so they have two shares.
    shares = [placed.share for placed in step.placed]
    assert shares == [Fraction(2 if place == 7 else 1, 13) for place in range(12)]


def test_groups_of_a_person_are_bounded_in_every_form() -> None:
    def moved(text: str, **unit: Any) -> tuple[Limits, Sensitivity]:
        step = compile_query(text, clinic.with_unit(**unit), PureDP(1)).nodes[0].steps[0]
        return step.limits, step.placed[0].sensitivity

    text = "SELECT sex, insured, SUM(age) FROM visits GROUP BY sex, insured"
    assert moved(text) == (Limits(2, 3), Sensitivity(300 << 12, 2, 1, False, 1 << 12))
    rows = {"bounding": Bounding.ROWS, "max_rows": 5, "max_groups": None, "max_rows_per_group": None}
    assert moved(text, **rows) == (Limits(None, 5, in_all=True), Sensitivity(500, 1, 1, False))
    limits, sensitivity = moved(text, bounding=Bounding.SCALE)
    assert (limits.norm, limits.rows, sensitivity.parts) == (1, 3, 1 << 12)
    assert sensitivity.per_group == 300 << 12
    signed = "SELECT sex, SUM(delta) FROM visits GROUP BY sex"
    assert moved(signed)[1].signed
    assert not moved(text)[1].signed


@pytest.mark.parametrize(
    ("lower", "upper", "step", "grid"),
    [
        (0, 10**6, None, (0, 10**6, ONE)),
        (0, 10**7, None, (0, 10**6, Fraction(10))),
        (0, 1, None, (0, 10**6, Fraction(1, 10**6))),
        (-3, 4, Fraction(2), (-1, 2, Fraction(2))),
        (5, 5, Fraction(3), (1, 1, Fraction(5))),
        (-5, -5, Fraction(3), (-1, -1, Fraction(5))),
        (0, 0, Fraction(3), (0, 0, Fraction(3))),
    ],
)
def test_sums_are_taken_on_the_grid_of_their_column(lower: int, upper: int, step: Any, grid: tuple[Any, ...]) -> None:
    bounds = Bounds(Fraction(lower), Fraction(upper), step)
    table = TableSchema(
        "t", "t.csv", (Column("u"), Column("x", ColumnType.DECIMAL, bounds=bounds)), PrivacyUnit("u", 1, 1)
    )
    plan = compile_query("SELECT SUM(x) FROM t", (table,), PureDP(1))
    summed = plan.nodes[0].measurements[0]
    assert isinstance(summed, Total)
    assert (summed.lower, summed.upper, summed.step) == grid


def test_an_aggregate_without_bounds_is_refused_with_a_clamp_to_copy() -> None:
    for text, remedy in (
        ("SELECT SUM(score) FROM visits", "SUM(CLAMP(score, 0, 100))"),
        ("SELECT AVG(score + ratio) FROM visits", "AVG(CLAMP(score + ratio, 0, 100))"),
        ("SELECT MEDIAN(ratio) FROM visits", "MEDIAN(CLAMP(ratio, 0, 100))"),
    ):
        with pytest.raises(QueryRefused, match="has no declared bounds") as refused:
            compile_query(text, clinic.TABLES, PureDP(1))
        assert remedy in refused.value.remedy


def test_private_keys_are_found_by_the_count_that_was_asked_for() -> None:
    budget = ApproxDP(1, "1e-6")

    def reused(text: str) -> int | None:
        step = compile_query(text, clinic.TABLES, budget).nodes[0].steps[0]
        assert step.threshold is not None
        if step.counted_by_threshold is not None:
            assert step.placed[step.counted_by_threshold].mechanism == step.threshold.noise
        return step.counted_by_threshold

    assert reused("SELECT city, SUM(age), COUNT(DISTINCT pid) FROM visits GROUP BY city") == 1
    assert reused("SELECT city, COUNT(*) FROM visits GROUP BY city") is None
    assert reused("SELECT city, SUM(age), COUNT(*) FROM answers GROUP BY city") == 1
    assert reused("SELECT city, COUNT(age) FROM answers GROUP BY city") is None
    assert {Distinct, Rows, Units} <= {
        type(m) for m in compile_query(EVERY, clinic.TABLES, budget).nodes[0].measurements
    }


def test_an_aggregate_that_is_read_twice_is_measured_once() -> None:
    first, second = (
        compile_query(f"SELECT COUNT(*) AS n FROM {table}", clinic.TABLES, PureDP(1)).nodes[0].node
        for table in ("visits", "stays")
    )
    assert find_noisy_nodes(Union((first, first), ())) == (first,)
    assert find_noisy_nodes(Union((first, second, first), ())) == (first, second)
    assert find_noisy_nodes(first) == (first,)


# Statements, part by part

AGE = ColumnRef("visits.age", Facts(Kind.INTEGER, Fraction(0), Fraction(100), Fraction(1)))
COUNTED, PEOPLE = Rows(None, None), Units(None)
SUMMED = Total(AGE, None, 0, 100, ONE)
EACH = Total(AGE, None, 0, 100, ONE, per_group=(-5, 9))


def total(reach: int, lower: int = 0) -> Total:
    return Total(AGE, None, lower, reach, ONE)


@pytest.mark.parametrize(("reach", "unit"), [(1, 1), (2**33 - 1, 1), (2**33, 2), (2**35, 8)])
def test_sizes_are_squared_in_units_that_fit(reach: int, unit: int) -> None:
    assert private_sql.square_unit(reach) == unit
    assert private_sql._find_most(Limits(2, 1, norm=2), reach) == unit * 2**50
    assert private_sql._find_most(Limits(2, 1, norm=1), reach) is None


SHRUNK = [
    (COUNTED, Limits(2, 3, norm=1), "(m * w_m) // 512"),
    (SUMMED, Limits(2, 3, norm=1), "(m * w_m) // 65536"),
    (total(100, -100), Limits(2, 3, norm=1), "sign(m * w_m) * (abs(m * w_m) // 65536)"),
    (total(2**34 - 1), Limits(2, 1, norm=1), "(m * w_m) // 268435456"),
    (total(2**34), Limits(2, 1, norm=1), "(CAST(m AS HUGEINT) * w_m) // 268435456"),
    (PEOPLE, Limits(2, 3, norm=1), "(least(m, 1) * w_m) // 256"),
    (EACH, Limits(2, 3, norm=1),
     "sign((CASE WHEN n_m = 0 THEN 0 ELSE greatest(-5, least(9, m)) END) * w_m) * "
     "(abs((CASE WHEN n_m = 0 THEN 0 ELSE greatest(-5, least(9, m)) END) * w_m) // 2048)"),
    (SUMMED, Limits(2, 3, norm=2),
     "(greatest(-1125899906842624, least(1125899906842624, m)) * w_m) // 65536"),
]  # fmt: skip


@pytest.mark.parametrize(("measurement", "limits", "text"), SHRUNK)
def test_an_entry_is_shrunk_in_parts_of_a_step(measurement: Any, limits: Limits, text: str) -> None:
    assert private_sql._render_shrunk_entry("m", measurement, limits) == text


def test_a_threshold_looks_at_whole_units() -> None:
    assert (
        private_sql._render_shrunk_entry("units", PEOPLE, Limits(2, 3, norm=1))
        == "(least(units, 1) * w_units) // 268435456"
    )


PART_OF_MEAN = dataclasses.replace(SUMMED, quotient=True)
WEIGHTS = [(COUNTED, "sum(abs(m))", 6), (SUMMED, "sum(abs(m))", 600), (PART_OF_MEAN, "sum(abs(n_m))", 6)]


@pytest.mark.parametrize(("measurement", "norm", "bound"), WEIGHTS)
def test_the_factor_of_a_unit_brings_its_norm_within_the_bound(measurement: Any, norm: str, bound: int) -> None:
    norm = f"COALESCE({norm}, 0)"
    assert private_sql._render_weight("m", measurement, Limits(2, 3, norm=1)) == (
        f"CASE WHEN {norm} <= {bound} THEN {1 << 28} ELSE CAST({bound << 28} // {norm} AS BIGINT) END"
    )


def test_the_squared_norm_is_compared_in_whole_numbers() -> None:
    entry = "greatest(-2251799813685248, least(2251799813685248, m))"
    size = f"CAST((abs({entry}) + 1) // 2 AS HUGEINT)"
    squares, bound = f"COALESCE(sum({size} * {size}), 0)", 3 * (2**33 // 2) ** 2
    factor = f"least(1.0, {bound**0.5!r} / (sqrt(CAST({squares} AS DOUBLE)) * 1.000000001)) * {1 << 28}"
    assert private_sql._render_weight("m", total(2**33), Limits(3, 1, norm=2)) == (
        f"CASE WHEN {squares} <= {bound} THEN {1 << 28} ELSE CAST(floor({factor}) AS BIGINT) END"
    )


def test_what_units_add_to_a_group_is_bounded_and_fits_64_bits() -> None:
    def clamp(text: str) -> str:
        return f"CAST(greatest(-{2**62}, least({2**62}, COALESCE({text}, 0))) AS BIGINT)"

    limits = Limits(2, 3)
    assert private_sql.clamp_to_int64("sum(x)") == clamp("sum(x)")
    assert private_sql._render_over_units("m", COUNTED, limits) == clamp("sum(least(m, 3))")
    assert private_sql._render_over_units("m", PEOPLE, limits) == clamp("sum(least(m, 1))")
    assert private_sql._render_over_units("m", SUMMED, limits) == clamp(
        "sum(CASE WHEN n_m > 3 THEN sign(m) * ((abs(m) * 24576 + n_m) // (2 * n_m)) ELSE m * 4096 END)"
    )
    assert private_sql._render_over_units("m", EACH, limits) == clamp(
        "sum((CASE WHEN n_m = 0 THEN 0 ELSE greatest(-5, least(9, m)) END))"
    )
    assert private_sql._render_sum_of_rows("m", COUNTED) == "count(m)"
    assert private_sql._render_sum_of_rows("m", SUMMED) == clamp("sum(m)")


EACH_VALUE = [
    ((1, 3, 5), "unnest(range(1, 6, 2))"),
    ((1, 3), None),
    ((1, 3, 6), None),
    ((5, 3, 1), None),
    ((1, 1, 1), None),
    ((date(2020, 1, 1), date(2020, 1, 8), date(2020, 1, 15)),
     "(DATE '2020-01-01' + CAST(unnest(range(0, 15, 7)) AS INTEGER))"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "text"), EACH_VALUE)
def test_values_at_equal_distances_are_a_range(values: tuple[Any, ...], text: str | None) -> None:
    listed = ", ".join(f"CAST({value} AS BIGINT)" for value in values)
    assert render_each(values) == (text or f"unnest([{listed}])")


def test_a_public_relation_protects_nobody() -> None:
    with pytest.raises(InternalError, match="a public relation has no privacy unit"):
        unit_of(scan_table(clinic.REGIONS, "regions"))
    assert unit_of(scan_table(clinic.visits(), "visits")) == clinic.UNIT


def test_a_value_is_clamped_in_steps_unless_it_is_as_it_was_read() -> None:
    node = compile_query("SELECT SUM(age) FROM visits", clinic.TABLES, PureDP(1)).nodes[0].node
    read = node.aggregates[0][1].argument
    assert private_sql.render_whole_steps(Total(read, None, 0, 100, ONE), node.input) == 'CAST("visits.age" AS BIGINT)'
    narrow = private_sql.render_whole_steps(Total(read, None, 1, 100, ONE), node.input)
    number = "NULLIF(CAST(\"visits.age\" AS DOUBLE), CAST('NaN' AS DOUBLE))"
    assert narrow == (
        f"(CASE WHEN {number} IS NOT NULL THEN CAST(greatest(CAST(1 AS DOUBLE), "
        f"least(CAST(100 AS DOUBLE), {number})) AS BIGINT) END)"
    )
    halves = private_sql.render_whole_steps(Total(read, None, 0, 200, HALF), node.input)
    assert f"least(CAST(200 AS DOUBLE), round({number} / 0.5))" in halves
    squared = private_sql.render_row_value(Total(read, None, 0, 100, ONE, 50, True), node.input)
    assert squared == '((CAST("visits.age" AS BIGINT) - 50) * (CAST("visits.age" AS BIGINT) - 50))'


# Refusals before anything is planned


@pytest.mark.parametrize(
    ("text", "budget", "told"),
    [
        ("SELECT COUNT(*) FROM visits", None, "no budget was stated"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, weights = 'a, b') COUNT(*) FROM visits", None,
         "the weights are not numbers"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = -1) COUNT(*) FROM visits", None, "epsilon"),
        ("SELECT COUNT(*) FROM (SELECT age FROM visits UNION ALL SELECT age FROM answers) t", PureDP(1),
         "ids of different types"),
        ("SELECT SUM(CLAMP(score, 0, 1000000000)) FROM visits", PureDP(Fraction(1, 10**15)), "scale"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused_by_its_reason(text: str, budget: Any, told: str) -> None:
    with pytest.raises(QueryRefused, match=told):
        compile_query(text, clinic.TABLES, budget)


@pytest.mark.parametrize("batch", [False, True])
def test_how_a_budget_is_stated_is_told_for_one_way_of_asking_with_what_was_charged_before(batch: bool) -> None:
    refusal = BudgetUnstated(batch=batch)
    assert "psql" in refusal.remedy
    refusal.recall_charge("entry 7")
    for way, told in (("psql", ": SET deniable.epsilon = 0.5"), ("assistant", ": the argument epsilon, such as 0.5")):
        said = pickle.loads(pickle.dumps(refusal)).state_by(way)  # as it comes from a process that works questions out
        assert told in said.remedy
        assert "Python" not in said.message
        assert (said.happened, said.charged, said.fields) == (refusal.happened, refusal.charged, refusal.fields)
    assert "psql" in refusal.remedy


def test_quantiles_have_no_gaussian_form_and_blocks_two_kinds_of_tables() -> None:
    spending = calibration.Spending("gaussian", ApproxDP(1, "1e-6"), Fraction(0))
    ranks = Ordered(AGE, None, 0, 100, ONE, (HALF,))
    with pytest.raises(AssertionError, match="no Gaussian form"):
        calibration.choose_mechanism(ranks, Sensitivity(1, 1), spending, ONE, False)
    for frames in ("arrow", "pandas"):
        sample_aggregate.check_frames(frames)
    with pytest.raises(ParameterError, match="tables of Arrow or pandas"):
        sample_aggregate.check_frames("polars")


def test_margins_are_taken_over_declared_categories_alone() -> None:
    joined = "SELECT region, COUNT(*) FROM visits JOIN regions ON visits.city = regions.city GROUP BY ROLLUP (region)"
    plan = compile_query(joined, clinic.TABLES, PureDP(1))
    with pytest.raises(QueryRefused, match="margins are taken over declared categories"):
        grouping_sets._describe_sets(plan, ["region"], None, False)  # type: ignore[arg-type]


def test_a_column_is_as_it_was_read_only_on_a_way_that_leaves_it_alone() -> None:
    scan = scan_table(clinic.visits(), "visits")
    assert private_sql.is_as_read(AGE, scan)
    assert not private_sql.is_as_read(Call("abs", (AGE,), AGE.facts), scan)
    assert not private_sql.is_as_read(AGE, Union((scan, scan), scan.fields))
    renamed = compile_query("SELECT SUM(x) FROM (SELECT age AS x FROM visits) t", clinic.TABLES, PureDP(1))
    changed = compile_query("SELECT SUM(x) FROM (SELECT ABS(delta) AS x FROM visits) t", clinic.TABLES, PureDP(1))
    for plan, same in ((renamed, True), (changed, False)):
        node = plan.nodes[0].node
        argument = node.aggregates[0][1].argument
        assert argument is not None
        assert private_sql.is_as_read(argument, node.input) is same
