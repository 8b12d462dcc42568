"""Aggregates that are measured together: right numbers, the price of one, and errors as they are told."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import clinic
from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP
from deniable.policy.schema import Bounding, Neighboring
from deniable.query.compile import compile_query
from deniable.query.double_entry import check
from deniable.query.execute import execute
from deniable.query.explain import explain
from deniable.query.joint import apply_strategy, reconstruct, solve_block
from deniable.query.measurements import Part
from deniable.query.plan import QueryPlan, Step, parts_of
from deniable.query.sql import private_sql
from deniable.query.techniques.least_squares import Strategy, choose_strategy
from guarantee_fuzzer import Worlds, hand_over, judge, measure_all
from noise_spy import put_twin

ONE = PureDP(Fraction(1))
PREFIXES = ", ".join(f"COUNT(*) FILTER (WHERE age <= {i})" for i in range(64))
PIVOTS = "COUNT(*) FILTER (WHERE city = 'Ada'), COUNT(*) FILTER (WHERE city = 'Brin'), COUNT_IF(city = 'Cole')"


def _plan(items: str, table: str = "answers", budget: Budget = ONE, tables: Any = clinic.TABLES) -> QueryPlan:
    return compile_query(f"SELECT {items} FROM {table}", tables, budget)


def _step(*args: Any, **rest: Any) -> Step:
    return _plan(*args, **rest).nodes[0].steps[0]


def _errors(step: Step) -> list[float]:
    return [placed.deviation for placed in step.placed]


def _root_mean_square(errors: list[float]) -> float:
    return math.sqrt(sum(error**2 for error in errors) / len(errors))


@pytest.fixture(scope="module")
def world() -> Iterator[DuckDBEngine]:
    with clinic.engine() as engine:
        yield engine


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (LaplaceMechanism, GaussianMechanism):
        monkeypatch.setattr(kind, "release", lambda self, values, entropy: values)


# -- prices -----------------------------------------------------------------------------------------------------------


def test_three_pivots_cost_one_histogram() -> None:
    (joint,) = _step(PIVOTS).joints
    assert joint.mechanism == LaplaceMechanism(Fraction(1), Fraction(1)), "one row is in one of them"
    cases = ", ".join(f"SUM(CASE WHEN sex = '{sex}' THEN age ELSE 0 END)" for sex in "FMX")
    (joint,) = _step(cases).joints
    assert joint.mechanism == LaplaceMechanism(Fraction(100), Fraction(100))


def test_a_person_with_several_rows_is_paid_for_in_all_pivots_together() -> None:
    (joint,) = _step(PIVOTS, "visits").joints
    assert joint.mechanism.sensitivity == 3 * joint.sensitivity.parts, "three rows in one group"
    (joint,) = _step(PIVOTS, "visits", tables=clinic.with_unit(neighboring=Neighboring.REPLACE)).joints
    assert joint.mechanism.sensitivity == 6 * joint.sensitivity.parts
    (joint,) = _step(PIVOTS, "visits", ZCDP(Fraction(1, 2))).joints
    assert isinstance(joint.mechanism, GaussianMechanism)
    assert joint.mechanism.sensitivity_squared == (3 * joint.sensitivity.parts) ** 2, "all three may be in one cell"


def test_sixty_four_prefixes_have_a_fifteenth_of_the_error() -> None:
    together = _root_mean_square(_errors(_step(PREFIXES)))
    weights = tuple([Fraction(1)] * 64)
    alone = compile_query(f"SELECT {PREFIXES} FROM answers", clinic.TABLES, ONE, weights=weights).nodes[0].steps[0]
    assert _root_mean_square(_errors(alone)) == pytest.approx(90.5, abs=0.1)
    assert together < 6, "the cells one by one have 8.06, an optimized strategy about 5.3"


@pytest.mark.parametrize("squared", [False, True])
def test_average_and_variance_have_a_joint_sensitivity(squared: bool) -> None:
    step = _step("VARIANCE(age)" if squared else "AVG(age)")
    alone = 1 / Fraction(len(step.placed))
    reach = {"Rows": 1, "Total": 50}
    for placed in step.placed:
        most = 2500 if getattr(placed.measurement, "squared", False) else reach[type(placed.measurement).__name__]
        before = math.sqrt(2) * most / float(alone)
        assert before / placed.deviation >= (1.7 if squared else 1.41)


def test_count_sum_and_average_of_a_column_share_what_is_measured() -> None:
    (joint,) = _step("COUNT(age), SUM(age), AVG(age), COUNT(*), VAR_POP(age)").joints
    assert joint.share == 1
    assert len(joint.block.places) == len(_step("COUNT(age), SUM(age), AVG(age), COUNT(*), VAR_POP(age)").placed)


def test_measuring_together_is_chosen_only_where_it_errs_less() -> None:
    gaussian = ZCDP(Fraction(1, 2))
    assert not _step("AVG(age)", budget=gaussian).joints, "the same error either way"
    assert not _step("SUM(age)").joints
    scaled = clinic.with_unit(bounding=Bounding.SCALE)
    plan = compile_query("SELECT sex, AVG(age) FROM visits GROUP BY sex", scaled, ONE)
    assert not plan.nodes[0].steps[0].joints, "each has a norm of its own"


def test_an_explanation_says_what_is_measured_together() -> None:
    notes = explain(_plan(PIVOTS, "visits")).notes
    assert "for the price of one" in notes[0]
    assert "3 disjoint cells" in notes[0]
    assert "each cell by itself" in notes[0]
    assert "for all of them together" in notes[0]


# -- strategies -------------------------------------------------------------------------------------------------------


def _variance(strategy: Strategy, workload: Any, norm: int) -> float:
    """By brute force: what one unit of each cell moves, and the least squares estimate."""
    matrix, asked = np.array(strategy.matrix, dtype=float), np.array(workload, dtype=float)
    moved = max(
        np.abs(matrix[:, i]).sum() if norm == 1 else np.linalg.norm(matrix[:, i]) for i in range(len(matrix[0]))
    )
    return float(moved**2 * np.sum((asked @ np.linalg.pinv(matrix)) ** 2))


@pytest.mark.parametrize("norm", [1, 2])
def test_a_strategy_errs_no_more_than_cells_or_aggregates_by_themselves(norm: int) -> None:
    draw = random.Random(norm)
    for _ in range(10):
        cells, rows = draw.randint(2, 12), draw.randint(2, 12)
        workload = tuple(tuple(draw.randint(0, 1) for _ in range(cells)) for _ in range(rows))
        found = choose_strategy(workload, norm)
        assert found.weight == max(sum(column) for column in zip(*found.matrix, strict=True))
        distinct = tuple(dict.fromkeys(workload))
        eye = tuple(tuple(int(i == j) for j in range(cells)) for i in range(cells))
        least = min(_variance(Strategy(each, ""), distinct, norm) for each in (eye, distinct))
        assert _variance(found, distinct, norm) <= least * (1 + 1e-9)


def test_prefixes_come_near_the_best_factorization_that_is_known() -> None:
    workload = tuple(tuple(int(j <= i) for j in range(64)) for i in range(64))
    # The square root of the matrix of prefixes (Fichtenberger, Henzinger, Upadhyay 2022), for Gaussian noise.
    root = [math.comb(2 * k, k) / 4**k for k in range(64)]
    best = sum(r * r for r in root) * sum(sum(r * r for r in root[: i + 1]) for i in range(64)) / 64
    found = _variance(choose_strategy(workload, 2), workload, 2) / 64
    assert math.sqrt(found / best) < 1.2


# -- numbers ----------------------------------------------------------------------------------------------------------

TESTS = [
    ("age <= 20", lambda r: None if r["age"] is None else r["age"] <= 20),
    ("age BETWEEN 10 AND 60", lambda r: None if r["age"] is None else 10 <= r["age"] <= 60),
    ("30 > age", lambda r: None if r["age"] is None else r["age"] < 30),
    ("age <> 30", lambda r: None if r["age"] is None else r["age"] != 30),
    ("city = 'Ada'", lambda r: None if r["city"] is None else r["city"] == "Ada"),
    ("city IN ('Ada', 'Brin')", lambda r: None if r["city"] is None else r["city"] in ("Ada", "Brin")),
    ("city IS NULL", lambda r: r["city"] is None),
    ("NOT (city = 'Ada')", lambda r: None if r["city"] is None else r["city"] != "Ada"),
    ("insured", lambda r: r["insured"]),
    ("city IS NULL OR NOT insured", lambda r: r["city"] is None or r["insured"] is False),
    ("(insured) IS TRUE AND age > 40", lambda r: r["insured"] is True and (r["age"] or 0) > 40),
]  # fmt: skip


def _clamped(value: Any) -> int | None:
    return None if value is None else max(0, min(100, value))


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("budget", [ONE, ApproxDP(Fraction(1), Fraction(1, 10**6))], ids=["pure", "delta"])
@pytest.mark.parametrize("seed", range(6))
def test_without_noise_the_answers_are_those_of_a_loop(world: DuckDBEngine, seed: int, budget: Budget) -> None:
    rows = [dict(row, age=_clamped(row["age"])) for row in world.run("SELECT * FROM answers").to_pylist()]
    draw = random.Random(seed)
    chosen = draw.sample(TESTS, 5)
    forms = ["COUNT(*) FILTER (WHERE {c})", "SUM(CASE WHEN {c} THEN 1 ELSE 0 END)", "COUNT(CASE WHEN {c} THEN age END)",
             "SUM(age) FILTER (WHERE {c})", "SUM(CASE WHEN {c} THEN age ELSE 0 END)"]  # fmt: skip
    asked = [draw.randrange(len(forms)) for _ in chosen]
    items = [
        f"{forms[form].format(c=text)} AS a{i}" for i, ((text, _), form) in enumerate(zip(chosen, asked, strict=True))
    ]
    plan = _plan(", ".join([*items, "COUNT(*) AS n", "AVG(age) AS m", "VAR_POP(age) AS v"]), budget=budget)
    assert plan.nodes[0].steps[0].joints
    (found,) = execute(plan, world, intervals=False).to_pylist()
    for i, ((_, holds), form) in enumerate(zip(chosen, asked, strict=True)):
        kept = [row["age"] for row in rows if holds(row) is True]
        known = [age for age in kept if age is not None]
        assert found[f"a{i}"] == (len(kept) if form < 2 else len(known) if form == 2 else sum(known))
    ages = [row["age"] for row in rows if row["age"] is not None]
    assert found["n"] == len(rows)
    assert found["m"] == pytest.approx(np.mean(ages), rel=1e-3)
    assert found["v"] == pytest.approx(np.var(ages), rel=1e-2)


@pytest.mark.usefixtures("no_noise")
def test_a_condition_that_no_row_meets_counts_nothing_beside_the_others(world: DuckDBEngine) -> None:
    never, small, prime = "NULL LIKE '%a_'", "age < score", "city LIKE 'C%'"
    items = ", ".join(
        f"COUNT(CASE WHEN {c} THEN charge END) AS {n}" for c, n in ((never, "a"), (prime, "b"), (small, "c"))
    )
    plan = _plan(f"{items}, COUNT(*) AS n")
    assert plan.nodes[0].steps[0].joints
    exact = world.run(f"SELECT {items}, COUNT(*) AS n FROM answers").to_pylist()
    assert execute(plan, world, intervals=False).to_pylist() == exact
    assert exact[0]["a"] == 0


NEVER = (
    "insured AND age BETWEEN 59 AND 27",
    "age IS NULL AND age > 3 AND sex = 'F'",
    "insured AND NOT insured",
    "NULL",
)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("never", NEVER)
def test_aggregates_of_which_none_ever_has_a_row_are_answered(world: DuckDBEngine, never: str) -> None:
    both = f"COUNT(*) FILTER (WHERE {never}), COUNT(*) FILTER (WHERE {never} AND sex = 'M')"
    for items in (both, f"SUM(age) FILTER (WHERE {never}), COUNT(age) FILTER (WHERE {never} AND age < 9)"):
        plan = compile_query(f"SELECT {items} FROM answers", clinic.TABLES, ONE)
        assert plan.free or not plan.nodes[0].steps[0].joints
        assert [*execute(plan, world, intervals=False).to_pylist()[0].values()] == [0, 0]


@pytest.mark.usefixtures("no_noise")
def test_what_a_person_has_beyond_the_bound_is_shared_among_the_cells() -> None:
    """Six rows where three count: half of each, without the chance of a sample."""
    rows = clinic.rows_of([{"pid": 1, "sex": s} for s in "FFFFMM"] + [{"pid": 2, "sex": "F"}])
    plan = _plan("COUNT(*) FILTER (WHERE sex = 'F') AS f, COUNT(*) FILTER (WHERE sex = 'M') AS m", "visits")
    with DuckDBEngine() as engine:
        engine.attach("visits", rows, clinic.TABLES[0])
        assert execute(plan, engine, intervals=False).to_pylist() == [{"f": 3, "m": 1}]


@pytest.mark.parametrize("budget", [ONE, ZCDP(Fraction(1, 8))], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("table", ["answers", "visits"])
def test_errors_are_passed_as_seldom_as_they_say_and_smaller_ones_more_often(budget: Budget, table: str) -> None:
    """4,000 releases of 16 prefixes, an average and a count; false alarms are below 1e-6."""
    prefixes = [f"COUNT(*) FILTER (WHERE age < {6 * i + 6})" for i in range(16)]
    for items in (prefixes, [*prefixes, "SUM(age) FILTER (WHERE age < 50)", "COUNT(*)"]):
        step = _step(", ".join(items), table, budget)
        (joint,) = step.joints
        exact = np.tile(np.arange(len(joint.block.parts), dtype=np.int64) * 7, (4000, 1))
        measured = apply_strategy(exact, joint.strategy.matrix)
        taken, parts = solve_block(joint.block, joint.strategy), joint.sensitivity.parts
        truth = np.rint(measured[0] @ taken.T / parts)
        noisy = joint.mechanism.release(measured.ravel()).reshape(measured.shape)
        for place, found, true in zip(joint.block.places, reconstruct(noisy, taken, parts), truth, strict=True):
            reach = step.placed[place].accuracy(0.05)
            assert np.mean(np.abs(found - true) > reach) < 0.07
            assert np.mean(np.abs(found - true) > 0.6 * reach) > 0.08
            assert np.std(found - true) == pytest.approx(step.placed[place].deviation, rel=0.15, abs=0.5)


# -- neighbors --------------------------------------------------------------------------------------------------------


def _judge(items: str, budget: Budget = ONE) -> list[str]:
    """What a person with many rows in every cell shows that the plan did not pay for."""
    plan = _plan(items, "visits", budget)
    few = [{"pid": 1, "city": "Ada", "age": 30}]
    many = [{"pid": 2, "city": city, "age": age} for city in ("Ada", "Brin", "Cole") for age in range(0, 64, 4)]
    worlds = Worlds()
    with hand_over():
        first, second = (
            measure_all(worlds, {"visits": rows, "stays": [], "answers": []}, [(plan, None)])[0]
            for rows in (few, few + many)
        )
    return judge(plan, first, second)


def _count_each_cell_alone(patch: pytest.MonkeyPatch) -> None:
    """A person's bound on rows is applied to each cell by itself."""
    honest = private_sql._render_over_units

    def render(name: str, measurement: Any, limits: Any) -> str:
        if not isinstance(measurement, Part):
            return honest(name, measurement, limits)
        parts = parts_of(measurement, limits)
        return f"CAST(sum(least({name} * {parts}, {parts * limits.rows * measurement.reach})) AS BIGINT)"

    put_twin(patch, honest, render)


def _let_cells_overlap(patch: pytest.MonkeyPatch) -> None:
    """Every row is in every cell."""
    honest = private_sql.render_row_value

    def render(measurement: Any, source: Any) -> str:
        return honest(replace(measurement, condition=None) if isinstance(measurement, Part) else measurement, source)

    put_twin(patch, honest, render)
    _count_each_cell_alone(patch)


def _forget_the_strategy(patch: pytest.MonkeyPatch) -> None:
    """Sums of a tree are measured at the price of its leaves; double entry looks away."""
    for name in ("weight", "weight_squared"):
        patch.setattr(Strategy, name, property(lambda self: 1))
    put_twin(patch, check, lambda plan: None)


@pytest.mark.parametrize("budget", [ONE, ZCDP(Fraction(1, 2))], ids=["pure", "rho"])
def test_a_person_in_every_cell_shows_no_more_than_is_paid_for(budget: Budget) -> None:
    for items in (PIVOTS, PREFIXES, "AVG(age), VARIANCE(age)", f"{PIVOTS}, SUM(age), COUNT(*)"):
        assert _judge(items, budget) == []


@pytest.mark.parametrize(
    ("break_it", "items"),
    [(_count_each_cell_alone, PIVOTS), (_let_cells_overlap, PIVOTS), (_forget_the_strategy, PREFIXES)],
)
def test_each_way_of_breaking_it_is_found(break_it: Any, items: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)
    assert _judge(items)
