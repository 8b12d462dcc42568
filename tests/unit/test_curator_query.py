"""Questions through the curator: one answer a question, charges, cancelled questions, intervals, files."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import clinic
from deniable.curator import Curator
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import BudgetExceeded, ExecutionFailed, ParameterError, QueryRefused
from deniable.policy.document import read

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: {column: pid, max_groups: 2, max_rows_per_group: 3}
    columns:
      pid: {type: integer}
      sex: {categories: [F, M]}
      insured: {type: boolean}
      age: {type: integer, between: [0, 100]}
      city: {}
budgets:
  dataset: {epsilon: 3, delta: 1e-6}
"""


class Watched(DuckDBEngine):
    """An engine that notes what it is asked to run, and can be told to break."""

    broken = False
    blind = False

    def __init__(self, **rest: Any) -> None:
        self.ran: list[str] = []
        super().__init__(**rest)

    def run(self, sql: str, *rest: Any, **more: Any) -> Any:
        assert not self.blind, "no statement may run here"
        self.ran.append(sql)
        if self.broken:
            raise OverflowError("value 739155 of patient CANARY is too large")
        return super().run(sql, *rest, **more)


@pytest.fixture
def engine() -> Watched:
    return Watched(threads=1)


@pytest.fixture
def curator(tmp_path: Path, engine: Watched) -> Curator:
    (tmp_path / "policy.yaml").write_text(POLICY)
    return Curator(read(tmp_path / "policy.yaml"), sources={"visits": clinic.people()}, engine=engine)


COUNTS = "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex"


def test_explaining_runs_no_statement(curator: Curator, engine: Watched) -> None:
    engine.blind = True
    told = curator.explain("SELECT sex, COUNT(*), AVG(age), MEDIAN(age) FROM visits GROUP BY sex", epsilon=1)
    rows = told["aggregates"]
    assert [row["aggregate"] for row in rows] == ["COUNT(*)", "AVG(age)", "MEDIAN(age)"]
    for part in (part for row in rows for part in row["measurements"]):
        assert {"measures", "stability", "sensitivity", "mechanism", "scale", "error", "confidence", "share"} <= set(
            part
        )
    assert told["cost"] == {"epsilon": "1", "delta": "0"}
    assert told["remaining"]["epsilon"] == "3"
    assert told["statements"][0].startswith("SELECT")
    assert [row["tag"] for row in told["relations"]] == ["private", "differentially private", "differentially private"]
    assert curator.remaining().epsilon == 3


def test_the_curve_falls_as_epsilon_grows_and_runs_no_statement(curator: Curator, engine: Watched) -> None:
    engine.blind = True
    rows = curator.error_curve("SELECT AVG(age), COUNT(*) FROM visits", epsilons=("0.1", "1", "10"))
    for name in {row["measurement"] for row in rows}:
        errors = [row["error"] for row in rows if row["measurement"] == name]
        assert len(errors) == 3
        assert errors == sorted(errors, reverse=True)
        assert errors[0] > errors[-1]
    assert curator.remaining().epsilon == 3
    mean = next(row for row in rows if row["measurement"].startswith("AVG(age)") and row["epsilon"] == 1)
    total, count = curator.explain("SELECT AVG(age), COUNT(*) FROM visits", epsilon=1)["aggregates"][0]["measurements"]
    number = int(mean["measurement"].removeprefix("AVG(age) over ").removesuffix(" rows").replace(",", ""))
    low, high = total["bounds"]
    assert "bounds" not in count
    half = (high - low) / 2
    assert mean["error"] == pytest.approx(
        min(2 * half, (total["error"] + half * count["error"]) / (number - count["error"]))
    )


def test_a_question_is_charged_before_it_runs_and_is_not_refunded(curator: Curator, engine: Watched) -> None:
    """A query server charged after the run, and failed queries were free."""
    engine.broken = True
    with pytest.raises(ExecutionFailed) as failure:
        curator.query(COUNTS, epsilon=1)
    assert failure.value.message == ExecutionFailed().message
    assert "739155" not in str(failure.value)
    assert "CANARY" not in str(failure.value)
    assert failure.value.__cause__ is None
    assert curator.remaining().epsilon == 2


def test_a_question_that_is_too_dear_runs_nothing(curator: Curator, engine: Watched) -> None:
    with pytest.raises(BudgetExceeded):
        curator.query(COUNTS, epsilon=4)
    assert not engine.ran
    assert curator.remaining().epsilon == 3


def test_a_refused_question_costs_nothing(curator: Curator, engine: Watched) -> None:
    with pytest.raises(QueryRefused):
        curator.query("SELECT * FROM visits", epsilon=1)
    with pytest.raises(ParameterError):
        curator.query(COUNTS, epsilon=1, confidence=1.5)
    with pytest.raises(QueryRefused, match="consistent"):
        curator.query(
            "SELECT city, COUNT(*) FROM visits GROUP BY ROLLUP(city)", epsilon=1, delta="1e-7", consistent=True
        )
    assert not engine.ran
    assert curator.remaining().epsilon == 3


def test_a_repeated_question_has_one_answer_and_is_free(curator: Curator) -> None:
    """Averaging over repeats gains nothing: spacing, case and presentation make no new question."""
    first = curator.query(COUNTS, epsilon=1, intervals=False)
    for sql in (COUNTS, "select SEX , count( * ) as n\nfrom VISITS group by 1", COUNTS + ";"):
        again = curator.query(sql, epsilon=1, intervals=False)
        assert again.repeated
        assert [[*row.values()] for row in again.to_pylist()] == [[*row.values()] for row in first.to_pylist()]
    narrower = curator.query(COUNTS, epsilon=1, confidence=0.5)
    assert [row["n"] for row in narrower.to_pylist()] == [row["n"] for row in first.to_pylist()]
    assert narrower.to_pylist()[0]["n_high"] > narrower.to_pylist()[0]["n"]
    assert curator.remaining().epsilon == 2


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ('SELECT Sex, COUNT(*) AS "toString" FROM visits GROUP BY SEX', ["Sex", "toString"]),
        ("SELECT Sex AS Gender, COUNT(*) FROM visits GROUP BY gender ORDER BY GENDER", ["Gender", "count"]),
        ("WITH t AS (SELECT sex AS S FROM visits) SELECT S, COUNT(*) AS N FROM t GROUP BY s HAVING n > 0", ["S", "N"]),
        ("SELECT P, COUNT(*) AS n FROM (SELECT sex FROM visits) AS q (P) GROUP BY p", ["P", "n"]),
        ("SELECT sex, sex AS SEX, COUNT(*) AS N FROM visits GROUP BY sex", ["sex", "SEX_2", "N"]),
    ],
)
def test_columns_of_an_answer_are_named_as_the_question_writes_them(
    curator: Curator, sql: str, names: list[str]
) -> None:
    assert curator.query(sql, epsilon=1, intervals=False).rows.column_names == names
    with pytest.raises(QueryRefused, match="would be taken for an end of the interval of 'N'"):
        curator.explain("SELECT COUNT(*) AS N, SUM(CLAMP(age, 0, 9)) AS n_LOW FROM visits")


def test_a_larger_budget_is_another_question_and_a_smaller_one_is_not(curator: Curator) -> None:
    first = curator.query(COUNTS, epsilon=1)
    assert curator.query(COUNTS, epsilon="0.5").to_pylist() == first.to_pylist()
    assert curator.remaining().epsilon == 2
    assert not curator.query(COUNTS, epsilon="1.5").repeated
    assert curator.remaining().epsilon == Fraction(1, 2)


def test_questions_that_measure_nothing_are_free_and_read_no_private_row(curator: Curator, engine: Watched) -> None:
    assert curator.query("SELECT sex FROM visits GROUP BY sex").to_pylist() == [{"sex": "F"}, {"sex": "M"}]
    assert curator.query("SELECT 3 AS three FROM visits GROUP BY true").to_pylist() == [{"three": 3}]
    assert not any('"visits"' in sql for sql in engine.ran)
    assert curator.remaining().epsilon == 3


def test_levels_of_a_rollup_add_up_when_asked_for_at_no_cost(curator: Curator) -> None:
    sql = "SELECT sex, insured, COUNT(*) AS n, SUM(age) AS s FROM visits GROUP BY CUBE(sex, insured)"
    plain = curator.query(sql, epsilon=1, intervals=False).to_pylist()
    rows = curator.query(sql, epsilon=1, intervals=False, consistent=True).to_pylist()
    assert curator.remaining().epsilon == 2
    for column in ("n", "s"):
        cells = {(row["sex"], row["insured"]): row[column] for row in rows}
        assert all(isinstance(value, int) for value in cells.values())
        for sex in ("F", "M"):
            assert cells[sex, None] == cells[sex, True] + cells[sex, False]
        assert cells[None, None] == cells["F", None] + cells["M", None] == cells[None, True] + cells[None, False]
    assert plain != rows


def test_counts_are_integers_and_can_be_cut_off_at_zero(curator: Curator) -> None:
    rows = curator.query(
        "SELECT age, COUNT(*) AS n FROM visits GROUP BY age", epsilon="0.1", nonnegative=True
    ).to_pylist()
    assert all(isinstance(row["n"], int) and row["n"] >= 0 for row in rows)
    free = curator.query("SELECT age, COUNT(*) AS n FROM visits GROUP BY age", epsilon="0.1")
    assert free.repeated
    assert min(row["n"] for row in free.to_pylist()) < 0


def test_an_answer_carries_its_claim_its_cost_and_its_notes(curator: Curator) -> None:
    answer = curator.query("SELECT city, SUM(age) AS s FROM visits GROUP BY city", epsilon=1, delta="1e-7")
    details = answer.release.details
    assert details["cost"] == {"epsilon": "1", "delta": "1e-07"}
    assert "private" in details["aggregates"][0]["keys"]
    assert any("clamped" in note for note in details["notes"])
    assert any("Groups with few units" in note for note in details["notes"])
    assert "pid" in str(answer.release.guarantee)
    assert answer.to_pandas().shape[1] == answer.to_polars().shape[1] == answer.rows.num_columns
    assert "&plusmn;" in answer._repr_html_() or answer.rows.num_rows == 0


def test_no_field_of_an_answer_is_a_row_of_the_table(curator: Curator) -> None:
    answer = curator.query(COUNTS, epsilon=1)
    assert "Dorn" not in repr(replace(answer, repeated=True))


def test_an_answer_tells_how_many_were_cut_if_that_is_paid_for(curator: Curator) -> None:
    told = curator.query("SELECT SUM(age) AS s FROM visits", epsilon=1, bias_share="0.1").release.details["bias"]
    assert [row["counts"].split()[0] for row in told] == ["units", "units"]
    assert curator.remaining().epsilon == 2
    assert curator.query("SELECT SUM(age) AS s FROM visits", epsilon=1).release.details["bias"] == []


@pytest.mark.parametrize("auto", ["", " CONTRIBUTION AUTO"])
def test_a_statement_that_asks_for_its_plan_is_not_answered(curator: Curator, auto: str) -> None:
    before = str(curator.remaining())
    with pytest.raises(QueryRefused, match="EXPLAIN asks for the plan alone"):
        curator.query(f" explain SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex{auto}", epsilon="0.1")
    assert str(curator.remaining()) == before
