"""Sensitivity by brute force: take each unit away, and no exact bounded number moves by more than was derived.

Tables and questions are generated. The statements that run are those of a plan, with a fixed salt, so what is compared
is exactly what noise would be added to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import clinic
from deniable.dp.mechanisms import LaplaceMechanism
from deniable.errors import QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP
from deniable.policy.schema import Bounding, Neighboring, TableSchema
from deniable.query.compile import compile_query, plan_relation
from deniable.query.measurements import Distinct, Ordered
from deniable.query.plan import NodePlan, QueryPlan, Step
from deniable.query.sql import private_sql
from deniable.query.sql.binder import bind_statement
from deniable.query.sql.clauses import Clauses
from deniable.query.techniques.contribution import plan_searches

BUDGET = ApproxDP(Fraction(1), Fraction(1, 10**6))
SALT = 20_260_511
Vector = dict[tuple[Any, ...], int]

AGGREGATES = [
    "COUNT(*)",
    "COUNT(age)",
    "COUNT(DISTINCT age)",
    "COUNT(DISTINCT city)",
    "SUM(age)",
    "SUM(delta)",
    "SUM(DISTINCT age)",
    "SUM(DISTINCT delta), MAX(DISTINCT age)",
    "AVG(age)",
    "AVG(charge)",
    "VARIANCE(age)",
    "STDDEV(delta)",
    "MEDIAN(age)",
    "QUANTILE(charge, 0.9)",
    "QUANTILE(age, 0.25), QUANTILE(age, 0.5), QUANTILE(age, 0.75)",
    "MIN(delta)",
    "MAX(day)",
    "SUM(age * delta)",
    "SUM(LEAST(age, delta))",
    "SUM(GREATEST(delta, -3))",
    "SUM(age, contribution_bounds_per_group => (0, 7))",
    "SUM(delta, contribution_bounds_per_group => (-4, 2))",
    "SUM(delta, contribution_bounds_per_group => (0, 7))",
    "AVG(age, contribution_bounds_per_group => (10, 20))",
    "COUNT(*) FILTER (WHERE insured)",
    "COUNT_IF(age > 50)",
    "SUM(CASE WHEN insured THEN age ELSE delta END)",
    "SUM(COALESCE(age, 50))",
    "SUM(CLAMP(score, -5, 9))",
    "SUM(CLAMP(score, -4, 0)), AVG(CLAMP(score, -8, 8))",
    "SUM(CLAMP(ratio, -1, 1))",
    "SUM(FLOOR(EXP(score)) % 5)",
    "SUM(age / NULLIF(delta, 0) * 0)",
    "SUM(CLAMP(score * score / delta, 0, 8))",
    "SUM(ROUND(charge))",
    "SUM(ABS(delta))",
    "SUM(insured)",
    "SUM(MONTH(day))",
    "SUM(DATE_DIFF('day', DATE '2020-01-01', day))",
    "SUM(age % 7)",
    "AVG(-delta)",
    "SUM(CAST(charge AS INTEGER))",
    "SUM(SQRT(age))",
    "SUM(age - age)",
    "SUM(POWER(delta, 2))",
    "SUM(CLAMP(POWER(score, ratio), 0, 9))",
    "SUM(CLAMP(LOG10(charge), -1, 3))",
    "SUM(SIGN(score) + TRUNC(charge))",
    "CORR(age, delta), REGR_SLOPE(charge, age)",
    "COUNT(DISTINCT day + INTERVAL '1 month')",
    "COUNT(DISTINCT TO_CHAR(seen + INTERVAL '25 hours', 'YYYY-MM'))",
    "SUM(CLAMP(EXTRACT(epoch FROM seen), 0, 9))",
]
KEYS = [
    "",
    "sex",
    "city",
    "insured",
    "city, sex",
    "age % 3",
    "DATE_TRUNC('quarter', day)",
    "CASE WHEN age > 50 THEN 1 ELSE 0 END",
    "charge",
    "ROLLUP(sex, city)",
    "CUBE(sex, insured)",
    "COALESCE(city, 'none')",
    "true",
    "ratio",
    "seen",
    "delta + 1",
    "TO_CHAR(day, 'YYYY-MM')",
    "day - INTERVAL '2 months'",
    "CONCAT_WS('/', city, sex)",
]
WHERES = ["", "WHERE age > 20", "WHERE sex = 'F' OR city LIKE 'A%'", "WHERE delta IS NOT NULL", "WHERE note IS NULL"]
ID_SOURCES = [
    "visits",
    "visits JOIN regions r ON visits.city = r.city",
    "visits LEFT JOIN (SELECT city AS c, region FROM regions) AS r ON visits.city = r.c",
    "(SELECT * FROM visits UNION ALL SELECT * FROM stays) AS u",
    "(SELECT pid, age, delta, charge, day, seen, insured, city, sex, score, ratio, note FROM visits WHERE age > 3) s",
    "(SELECT v.* FROM visits v JOIN stays s ON v.pid = s.pid) AS j",
    "(SELECT v.* FROM visits v, stays s WHERE v.pid = s.pid AND v.sex = s.sex) AS j",
    "(SELECT v.* FROM visits v FULL JOIN stays s ON v.pid = s.pid) AS j",
    "(SELECT * FROM visits WHERE pid IN (SELECT pid FROM stays WHERE age > 3)) AS j",
    "(SELECT v.* FROM visits v WHERE NOT EXISTS (SELECT 1 FROM stays s WHERE s.pid = v.pid AND s.age <> v.age)) AS j",
    "(SELECT * FROM visits WHERE city IN (SELECT city FROM regions WHERE inhabitants > 15)) AS j",
    "(SELECT DISTINCT pid, sex, city, age, delta, charge, day, seen, insured, score, ratio, note FROM visits) AS j",
    "(SELECT pid, sex, city, COUNT(*) > 1 AS insured, MIN(age) AS age, MAX(delta) AS delta, "
    "AVG(charge) AS charge, MAX(day) AS day, MAX(seen) AS seen, MAX(score) AS score, MIN(ratio) AS ratio, "
    "MIN(LENGTH(note)) AS note FROM visits GROUP BY pid, sex, city) AS p",
]
ROW_SOURCES = [
    "answers",
    "answers JOIN regions r ON answers.city = r.city",
    "(SELECT * FROM answers UNION ALL SELECT * FROM answers) AS u",
    "(SELECT * FROM answers UNION ALL SELECT pid, sex, delta, age, charge, day, seen, insured, city, score, ratio, "
    "note FROM answers) AS u",
]

records = st.fixed_dictionaries(
    {"pid": st.one_of(st.none(), st.integers(0, 2))},
    optional={
        "sex": st.sampled_from(["F", "M", "X"]),
        "age": st.sampled_from([-7, 0, 1, 33, 60, 100, 2**62, -(2**63)]),
        "delta": st.sampled_from([-99, -20, -1, 0, 10, 11]),
        "charge": st.sampled_from([-1.0, 0.0, 0.25, 249.9, 1e300, float("inf"), float("-inf"), float("nan")]),
        "day": st.sampled_from([date(2020, 2, 29), date(2020, 12, 31), date(1, 1, 1), date(9999, 12, 31)]),
        "seen": st.sampled_from([datetime(2020, 1, 1, 23, 59), datetime(1999, 1, 1)]),
        "insured": st.booleans(),
        "city": st.sampled_from(["Ada", "Brin", "Cole", ""]),
        "score": st.sampled_from([0, 1, 800, -(2**63), 2**63 - 1]),
        "ratio": st.sampled_from([0.5, -1e308, float("inf"), float("nan")]),
        "note": st.sampled_from(["ok", ""]),
    },
)
tables_of = st.lists(records, max_size=10)


@st.composite
def questions(draw: st.DrawFn, sources: list[str]) -> str:
    chosen = draw(st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=3, unique=True))
    key, where, source = draw(st.sampled_from(KEYS)), draw(st.sampled_from(WHERES)), draw(st.sampled_from(sources))
    grouping = f" GROUP BY {key}" if key else ""
    return f"SELECT {', '.join(chosen)} FROM {source} {where}{grouping}"


def compiled(question: str, tables: tuple[TableSchema, ...], budget: Budget = BUDGET) -> QueryPlan | None:
    """The plan, or None where the question is refused (a joined column may be ambiguous, a type may not fit)."""
    try:
        return compile_query(question, tables, budget)
    except QueryRefused:
        return None


CONNECTION = duckdb.connect(config={"threads": 1})
CONNECTION.register("regions", clinic.REGION_ROWS)
Rows = dict[str, list[dict[str, Any]]]


def vectors(plan: QueryPlan, rows: Rows) -> Iterator[tuple[NodePlan, Step, str, Any]]:
    """For each step of a plan and each of its measurements, the exact numbers by group."""
    for name in ("visits", "stays", "answers"):
        CONNECTION.register(name, clinic.rows_of(rows.get(name, [])))
    for node in plan.nodes:
        for step in node.steps:
            wanted = private_sql.select_additive(step.placed, threshold=step.threshold is not None)
            if wanted:
                sql = private_sql.render_totals(node.node, step.places, wanted, step.limits, step.keys, SALT)
                found = CONNECTION.sql(sql).to_arrow_table()
                for column in wanted:
                    yield node, step, column, by_key(found, step, column)
            for placed in step.placed:
                if isinstance(placed.measurement, Ordered | Distinct):
                    sql = private_sql.render_value_counts(
                        node.node, step.places, placed.measurement, step.limits, step.keys, SALT
                    )
                    found = CONNECTION.sql(sql).to_arrow_table()
                    values = "rows" if isinstance(placed.measurement, Ordered) else "v"
                    extra = ("v",) if isinstance(placed.measurement, Ordered) else ()
                    yield node, step, placed.column, by_key(found, step, values, extra)


def by_key(table: pa.Table, step: Step, column: str, extra: tuple[str, ...] = ()) -> Vector:
    names = [*private_sql.key_names(step.places), *extra]
    keys = zip(*(table.column(name).to_pylist() for name in names), strict=True) if names else [()] * table.num_rows
    found: Vector = {}
    for key, value in zip(keys, table.column(column).to_pylist(), strict=True):
        assert key not in found, "a group must appear once"
        found[key] = int(value)
    return found


def differences(one: Vector, other: Vector) -> dict[tuple[Any, ...], int]:
    return {k: d for k in one.keys() | other.keys() if (d := abs(one.get(k, 0) - other.get(k, 0)))}


def check(plan: QueryPlan, one: Rows, *others: Rows) -> None:
    """The exact numbers of neighbors are as close as the plan's sensitivities say."""
    left = list(vectors(plan, one))
    for other in others:
        _compare(left, list(vectors(plan, other)))


def _compare(one: list[Any], other: list[Any]) -> None:
    for (_, step, column, left), (_, _, _, right) in zip(one, other, strict=True):
        moved = differences(left, right)
        if column == "units":
            assert step.threshold is not None
            assert all(change <= 1 for change in moved.values())
            assert len(moved) <= step.threshold.max_groups
            continue
        placed = next(p for p in step.placed if p.column == column)
        sensitivity = placed.sensitivity
        if isinstance(placed.measurement, Ordered):
            groups: Counter[Any] = Counter()
            for key, change in moved.items():
                groups[key[:-1]] += change
            assert len(groups) <= sensitivity.groups * sensitivity.factor * (
                step.limits.rows if step.limits.by_row or step.limits.in_all else 1
            )
            assert sum(groups.values()) <= sensitivity.l1
            assert all(change <= sensitivity.factor * sensitivity.per_group for change in groups.values())
            continue
        laplace = isinstance(placed.mechanism, LaplaceMechanism)
        if laplace or not step.limits.scaled:
            assert sum(moved.values()) <= sensitivity.l1, (column, moved, sensitivity)
        if not laplace or not step.limits.scaled:
            assert sum(change**2 for change in moved.values()) <= sensitivity.l2_squared, (column, moved, sensitivity)


def without(records: list[dict[str, Any]], pid: int) -> list[dict[str, Any]]:
    return [record for record in records if record["pid"] != pid]


# Few by themselves: tests/audits/test_guarantee_fuzzer.py draws policies and whole statements as well.
SETTINGS = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))


def remove_each_unit(
    question: str, tables: tuple[TableSchema, ...], visits: list[Any], stays: list[Any], budget: Budget = BUDGET
) -> None:
    plan = compiled(question, tables, budget)
    if plan is None or plan.free:
        return
    pids = {record["pid"] for record in visits + stays if record["pid"] is not None}
    neighbors = [{"visits": without(visits, pid), "stays": without(stays, pid)} for pid in pids]
    check(plan, {"visits": visits, "stays": stays}, *neighbors)


bounds = st.fixed_dictionaries({"max_groups": st.integers(1, 3), "max_rows_per_group": st.integers(1, 3)})


@SETTINGS
@given(questions(ID_SOURCES), bounds, tables_of, tables_of)
def test_taking_a_unit_away_moves_no_number_further_than_its_sensitivity(
    question: str, limits: dict[str, int], visits: list[Any], stays: list[Any]
) -> None:
    remove_each_unit(question, clinic.with_unit(**limits), visits, stays)


BUDGETS = (PureDP(Fraction(1)), BUDGET, ZCDP(Fraction(1, 10), Fraction(1, 10**6)))
"""Contributions are scaled to the L1 norm under the first, to the L2 norm under the last."""


@SETTINGS
@given(questions(ID_SOURCES), bounds, st.sampled_from(BUDGETS), tables_of, tables_of)
def test_scaled_contributions_keep_their_norm(
    question: str, limits: dict[str, int], budget: Budget, visits: list[Any], stays: list[Any]
) -> None:
    remove_each_unit(question, clinic.with_unit(bounding=Bounding.SCALE, **limits), visits, stays, budget)


@SETTINGS
@given(questions(ID_SOURCES), st.integers(1, 5), tables_of, tables_of)
def test_rows_bounded_in_all_move_no_number_further_than_its_sensitivity(
    question: str, rows: int, visits: list[Any], stays: list[Any]
) -> None:
    limits = {"max_groups": None, "max_rows_per_group": None, "max_rows": rows}
    remove_each_unit(question, clinic.with_unit(bounding=Bounding.ROWS, **limits), visits, stays)


@SETTINGS
@given(questions(ID_SOURCES), bounds, st.sampled_from(list(Bounding)), st.sampled_from(BUDGETS), tables_of, tables_of)
def test_replacing_a_unit_moves_no_number_further_than_its_sensitivity(
    question: str, limits: dict[str, int], bounding: Bounding, budget: Budget, visits: list[Any], others: list[Any]
) -> None:
    tables = clinic.with_unit(neighboring=Neighboring.REPLACE, bounding=bounding, **limits)
    plan = compiled(question, tables, budget)
    if plan is None or plan.free:
        return
    pids = {record["pid"] for record in visits if record["pid"] is not None}
    neighbors = [{"visits": without(visits, pid) + [other | {"pid": pid} for other in others]} for pid in pids]
    check(plan, {"visits": visits}, *neighbors)


@SETTINGS
@given(questions(ROW_SOURCES), tables_of)
def test_taking_a_row_away_moves_no_number_further_than_its_sensitivity(question: str, answers: list[Any]) -> None:
    plan = compiled(question, clinic.TABLES)
    if plan is None or plan.free:
        return
    check(
        plan, {"answers": answers}, *({"answers": answers[:i] + answers[i + 1 :]} for i in range(min(len(answers), 5)))
    )


@SETTINGS
@given(questions(ROW_SOURCES), tables_of, records)
def test_replacing_a_row_moves_no_number_further_than_its_sensitivity(
    question: str, answers: list[Any], other: dict[str, Any]
) -> None:
    plan = compiled(question, clinic.with_unit(neighboring=Neighboring.REPLACE))
    if plan is None or plan.free or not answers:
        return
    check(plan, {"answers": answers}, {"answers": [other, *answers[1:]]})


@pytest.mark.slow
@MANY
@given(questions(ID_SOURCES), bounds, st.sampled_from(list(Bounding)), st.sampled_from(BUDGETS), tables_of, tables_of)
def test_thousands_of_questions_keep_their_sensitivity(
    question: str, limits: dict[str, int], bounding: Bounding, budget: Budget, visits: list[Any], stays: list[Any]
) -> None:
    remove_each_unit(question, clinic.with_unit(bounding=bounding, **limits), visits, stays, budget)


HOSTILE = [
    {"pid": 0, "sex": sex, "city": city, "age": age, "delta": 10 if age else -20, "charge": 250.0, "insured": age > 33,
     "day": date(2020, 1 + age // 20, 1), "seen": datetime(2020, 1 + age // 20, 1), "score": 10**6, "ratio": 7.5}
    for sex in ("F", "M") for city in ("Ada", "Brin", "Cole") for age in (0, 100, 100, 100, 100, 60, 60, 33)
]  # fmt: skip
OTHERS = [{**each, "pid": 1 + i} for i, each in enumerate(HOSTILE[::5])]
FORMS: dict[str, dict[str, Any]] = {
    "sampled": {"max_groups": 2, "max_rows_per_group": 3},
    "in all": {"bounding": Bounding.ROWS, "max_groups": None, "max_rows_per_group": None, "max_rows": 3},
    "scaled": {"bounding": Bounding.SCALE, "max_groups": 2, "max_rows_per_group": 2},
}


FEW = [each for place, each in enumerate(AGGREGATES) if place % 4 == 0 or each.startswith(("MEDIAN", "COUNT(DISTINCT"))]


def remove_hostile(form: str, aggregates: list[str], *keys: str) -> None:
    """Each aggregate alone, with and without one person who has far more rows than are allowed, in every group."""
    tables, checked = clinic.with_unit(**FORMS[form]), 0
    for aggregate in aggregates:
        for key in keys:
            plan = compiled(f"SELECT {aggregate} FROM visits{f' GROUP BY {key}' if key else ''}", tables)
            if plan is not None:
                check(plan, {"visits": HOSTILE + OTHERS}, {"visits": OTHERS})
                checked += 1
    assert checked > 0.8 * len(keys) * len(aggregates)


@pytest.mark.parametrize("form", FORMS)
def test_one_person_with_many_rows_in_every_group_moves_no_more_than_is_priced(form: str) -> None:
    remove_hostile(form, FEW, "sex", "")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_one_person_with_many_rows_moves_no_aggregate_further_than_is_priced(form: str) -> None:
    remove_hostile(form, AGGREGATES, "", "sex", "city")


def test_most_of_the_generated_questions_are_answered() -> None:
    """The check above would be empty if questions were refused."""
    asked = [
        f"SELECT {a} FROM {s} {w}{f' GROUP BY {k}' if k else ''}"
        for a in AGGREGATES
        for s in ("visits", "answers")
        for k in KEYS[:4]
        for w in WHERES[:1]
    ]
    answered = sum(compiled(question, clinic.TABLES) is not None for question in asked)
    assert answered > 0.9 * len(asked)


def test_the_check_catches_a_bound_that_is_not_enforced() -> None:
    """The broken twin: a plan that promises one row a group and keeps three."""
    from dataclasses import replace

    plan = compile_query("SELECT COUNT(*) FROM visits", clinic.with_unit(max_rows_per_group=1), BUDGET)
    step = plan.nodes[0].steps[0]
    loose = replace(step, limits=replace(step.limits, rows=3))
    broken = replace(plan, nodes=(replace(plan.nodes[0], steps=(loose,)),))
    visits = [{"pid": 1, "age": 60}] * 3
    check(plan, {"visits": visits}, {})
    with pytest.raises(AssertionError):
        check(broken, {"visits": visits}, {})


def test_an_estimate_of_bias_is_priced_for_all_copies_of_a_row() -> None:
    """Rows are counted there, not people: a table united with itself has each of them twice."""
    sql = "SUM(age) FROM (SELECT * FROM answers UNION ALL SELECT * FROM answers) AS u"
    plan = compile_query(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (bias_share = 0.5) {sql}", clinic.TABLES, BUDGET)
    check(plan, {"answers": [{"age": 100}]}, {})


SPREAD = [{"pid": 1, "sex": sex, "age": 60} for sex in ("F", "M") for _ in range(3)]


def _with_limits(plan: QueryPlan, **changes: Any) -> QueryPlan:
    """The plan with other limits than its mechanisms were made for."""
    from dataclasses import replace

    step = plan.nodes[0].steps[0]
    loose = replace(step, limits=replace(step.limits, **changes))
    return replace(plan, nodes=(replace(plan.nodes[0], steps=(loose,)),))


def test_the_check_catches_rows_that_are_bounded_in_each_group_and_not_in_all() -> None:
    """The broken twin of rows in all: the same number of rows, but kept in every group."""
    tables = clinic.with_unit(bounding=Bounding.ROWS, max_groups=None, max_rows_per_group=None, max_rows=2)
    plan = compile_query("SELECT sex, SUM(age) FROM visits GROUP BY sex", tables, PureDP(Fraction(1)))
    check(plan, {"visits": SPREAD}, {})
    with pytest.raises(AssertionError):
        check(_with_limits(plan, in_all=False), {"visits": SPREAD}, {})


def test_the_check_catches_a_vector_that_is_scaled_to_the_wrong_norm() -> None:
    """The broken twin of scaling: an L2 norm of groups * rows lets the L1 norm grow with the square root of groups."""
    tables = clinic.with_unit(bounding=Bounding.SCALE, max_groups=2, max_rows_per_group=1)
    sql = "SELECT EXTRACT(MONTH FROM day) AS month, SUM(age) FROM visits GROUP BY EXTRACT(MONTH FROM day)"
    plan = compile_query(sql, tables, BUDGET)
    assert plan.nodes[0].steps[0].limits.norm == 1
    visits = [{"pid": 1, "day": date(2020, month, 1), "age": 60} for month in range(1, 9)]
    check(plan, {"visits": visits}, {})
    with pytest.raises(AssertionError):
        check(_with_limits(plan, norm=2), {"visits": visits}, {})


@pytest.mark.parametrize("sign", [1, -1])
def test_the_check_catches_a_sum_that_is_not_scaled(sign: int) -> None:
    """The broken twin of sums without groups: the person's whole sum, of either sign, is added as it is."""
    tables = clinic.with_unit(bounding=Bounding.SCALE, max_groups=2, max_rows_per_group=1)
    plan = compile_query("SELECT SUM(delta) FROM visits", tables, PureDP(Fraction(1)))
    assert plan.nodes[0].steps[0].limits.norm == 1
    visits = [{"pid": 1, "delta": 10 * sign} for _ in range(9)]
    check(plan, {"visits": visits}, {})
    with pytest.raises(AssertionError):
        check(_with_limits(plan, groups=9), {"visits": visits}, {})


def test_double_entry_refuses_limits_that_the_noise_was_not_made_for() -> None:
    from deniable.errors import InternalError
    from deniable.query.double_entry import check as double_entry

    in_all = clinic.with_unit(bounding=Bounding.ROWS, max_groups=None, max_rows_per_group=None, max_rows=2)
    scaled = clinic.with_unit(bounding=Bounding.SCALE)
    question = "SELECT sex, {} FROM visits GROUP BY sex"
    for what, tables, changes in (
        ("SUM(age)", in_all, {"in_all": False}),
        ("SUM(age)", scaled, {"norm": 2}),
        ("COUNT(*)", scaled, {"norm": None}),
    ):
        plan = compile_query(question.format(what), tables, PureDP(Fraction(1)))
        double_entry(plan)
        with pytest.raises(InternalError):
            double_entry(_with_limits(plan, **changes))


@pytest.mark.parametrize("bounding", list(Bounding))
@pytest.mark.parametrize("key", ["", " GROUP BY sex", " GROUP BY ROLLUP(sex, city)"])
def test_one_person_is_in_one_bin_of_each_histogram(bounding: Bounding, key: str) -> None:
    """Taken away with all rows in all groups, she moves one bin by 1; a histogram of rows would move by many."""
    tables = clinic.with_unit(bounding=bounding, max_groups=None, max_rows_per_group=None)
    relation, clauses = bind_statement(f"SELECT COUNT(*) FROM visits{key} CONTRIBUTION AUTO", tables)
    searches = plan_searches(relation, clauses)
    assert searches
    for search in searches:
        plan = plan_relation("people", search.node, Clauses("people"), PureDP(1))
        assert plan.nodes[0].steps[0].placed[0].sensitivity.l1 == 1
        check(plan, {"visits": HOSTILE + OTHERS}, {"visits": OTHERS})
