"""Worked examples of DP SQL by their own names: the table of sensitivities, differencing, averaging."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import clinic
from deniable.policy.budget import PureDP
from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema
from deniable.query.compile import compile_query
from deniable.query.execute import execute
from deniable.query.plan import QueryPlan

PEOPLE = TableSchema(
    "d",
    "-",
    (
        Column("name"),
        Column("sex", categories=("Female", "Male")),
        Column("age", ColumnType.INTEGER, bounds=Bounds(0, 120)),
        Column("salary", ColumnType.INTEGER, bounds=Bounds(1000, 250_000)),
        Column("hiv", ColumnType.BOOLEAN),
    ),
)
ONE = PureDP(Fraction(1))


def plan_of(sql: str, budget: PureDP = ONE) -> QueryPlan:
    return compile_query(sql, (PEOPLE,), budget)


def l1(sql: str) -> Fraction:
    """The L1 sensitivity of all that a question measures, in the unit of each number."""
    placed = [p for node in plan_of(sql).nodes for step in node.steps for p in step.placed]
    return sum((p.sensitivity.l1 * getattr(p.measurement, "step", 1) for p in placed), Fraction(0))


@pytest.mark.parametrize(
    ("sql", "sensitivity"),
    [
        ("SELECT COUNT(*) FROM d", 1),
        ("SELECT COUNT(*) FROM d WHERE sex = 'Male' AND age > 30", 1),
        ("SELECT sex, COUNT(*) FROM d GROUP BY sex", 1),
        ("SELECT 3 FROM d GROUP BY true", 0),
        ("SELECT SUM(salary) FROM d", 250_000),
    ],
)
def test_l1_sensitivity_of_queries(sql: str, sensitivity: int) -> None:
    assert l1(sql) == sensitivity


def test_a_query_of_sensitivity_0_is_free() -> None:
    assert plan_of("SELECT 3 FROM d GROUP BY true").free


def test_m_arbitrary_counting_queries_have_sensitivity_m() -> None:
    apart = "WITH DIFFERENTIAL_PRIVACY OPTIONS (weights = (1, 1, 1, 1, 1, 1, 1)) "  # measured one by one
    many = apart + ", ".join(f"COUNT_IF(age > {i})" for i in range(7))
    assert l1(f"SELECT {many} FROM d") == 7
    scales = [p.mechanism.scale for p in plan_of(f"SELECT {many} FROM d").nodes[0].steps[0].placed]
    assert scales == [7] * 7, "independent noise of scale sensitivity / epsilon on each"


def test_a_fraction_of_a_public_number_has_sensitivity_1_over_n() -> None:
    plan = plan_of("SELECT COUNT_IF(age > 30) / 1000.0 AS share FROM d")
    (placed,) = plan.nodes[0].steps[0].placed
    assert Fraction(placed.sensitivity.l1, 1000) == Fraction(1, 1000)
    assert placed.mechanism.scale == 1


def test_the_maximum_is_chosen_and_not_noised_by_its_range() -> None:
    """max(salary) has L1 sensitivity hi - lo, which additive noise would drown in: its rank is chosen instead."""
    (placed,) = plan_of("SELECT MAX(salary) FROM d").nodes[0].steps[0].placed
    assert placed.sensitivity.l1 == 1
    assert placed.measurement.upper - placed.measurement.lower == 249_000


def people(freddie: bool) -> Any:
    import pyarrow as pa

    names = ["Freddie", *(f"person {i}" for i in range(60))]
    hiv = [freddie, *(i < 20 for i in range(60))]
    rows = len(names)
    return pa.table({"name": names, "sex": ["Male"] * rows, "age": [40] * rows, "salary": [5000] * rows, "hiv": hiv})


def differences(freddie: bool, times: int) -> np.ndarray:
    """X - Y for X = count(HIV positive), Y = count(HIV positive and name <> 'Freddie'), asked at epsilon 1 in all."""
    with clinic.DuckDBEngine(threads=1) as engine:
        engine.attach("d", people(freddie), PEOPLE)
        half = PureDP(Fraction(1, 2))
        x = plan_of("SELECT COUNT(*) AS n FROM d WHERE hiv", half)
        y = plan_of("SELECT COUNT(*) AS n FROM d WHERE hiv AND name <> 'Freddie'", half)
        found = [(execute(x, engine)["n"][0].as_py(), execute(y, engine)["n"][0].as_py()) for _ in range(times)]
    return np.array([a - b for a, b in found])


def test_differencing_tells_freddie_s_status_no_better_than_epsilon_allows() -> None:
    """Exact answers give it away with certainty; noisy ones leave every difference possible for both statuses."""
    guesses = [float(np.mean(differences(status, 150) >= 1)) for status in (True, False)]
    advantage = guesses[0] - guesses[1]
    # For a total epsilon of 1 no test beats the odds e : 1, an advantage of (e - 1) / (e + 1) = 0.46.
    assert advantage < 0.46 + 3 * np.sqrt(2 * 0.25 / 150)
    assert 0 < guesses[1] < guesses[0] < 1


def test_averaging_shrinks_noise_only_with_paid_answers() -> None:
    """t answers at epsilon / t each, averaged, are noisier than one at epsilon; t at epsilon each cost t epsilon."""
    one = plan_of("SELECT COUNT(*) AS n FROM d").nodes[0].steps[0].placed[0].mechanism.scale
    for times in (4, 25):
        share = plan_of("SELECT COUNT(*) AS n FROM d", PureDP(Fraction(1, times))).nodes[0].steps[0].placed[0].mechanism
        averaged = float(share.scale) / times**0.5
        assert averaged > float(one)
        assert averaged == pytest.approx(float(one) * times**0.5)


def test_averaging_t_paid_answers_shrinks_the_noise_by_the_root_of_t() -> None:
    with clinic.DuckDBEngine(threads=1) as engine:
        engine.attach("d", people(True), PEOPLE)
        plan = plan_of("SELECT COUNT(*) AS n FROM d")
        answers = np.array([execute(plan, engine)["n"][0].as_py() for _ in range(400)], dtype=float) - 61
    single = answers.std()
    grouped = answers.reshape(25, 16).mean(axis=1).std()
    assert grouped == pytest.approx(single / 4, rel=0.45)
    assert grouped < single / 2
    assert replace(plan, text="").cost == ONE
