"""Stored measurements: what is asked in other words is the same question, at no further cost, and only that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

import clinic
from deniable.curator import Curator
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.document import parse
from deniable.query.canonical import arrange, restore
from deniable.query.compile import compile_query
from deniable.query.execute import measure

WORDINGS = Path(__file__).parents[2] / "bench" / "sql_questions" / "wordings.sql"
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
      day: {type: date, between: [2020-01-01, 2020-12-31]}
budgets:
  dataset: {epsilon: 30, delta: 1e-6}
"""


def _wordings() -> list[str]:
    return re.findall(r"^-- .*\n(.*);$", WORDINGS.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def curator() -> Iterator[Curator]:
    with Curator(parse(POLICY), sources={"visits": clinic.people()}) as opened:
        yield opened


def test_thirty_wordings_of_ten_tools_have_one_answer_and_one_charge(curator: Curator) -> None:
    wordings = _wordings()
    assert len(wordings) == 30
    first = curator.query(wordings[0], epsilon=1)
    truth = {row["sex"]: (row["n"], row["mean"]) for row in first.to_pylist()}
    before = curator.remaining()
    numbers = {round(x, 9) for pair in truth.values() for x in pair}
    for text in wordings[1:]:
        answer = curator.query(text, epsilon=1, intervals=False)
        assert answer.repeated, text
        found = {
            round(value, 9) for row in answer.to_pylist() for value in row.values() if isinstance(value, float | int)
        }
        plain = not any(word in text for word in ("ROUND", "SUM(n)", "/ 1000"))
        assert found <= numbers or not plain, text  # HAVING may leave out a group
    assert curator.remaining() == before


BASE = "SELECT sex, COUNT(*) AS n, SUM(age) AS s FROM visits WHERE insured GROUP BY sex"
SAME = [
    "SELECT s / n AS mean FROM (SELECT sex, SUM(age) AS s, COUNT(*) AS n FROM visits WHERE insured GROUP BY sex) q",
    "SELECT sex, SUM(age) FROM visits WHERE insured GROUP BY sex HAVING COUNT(*) > 20 ORDER BY 2 LIMIT 1",
    "SELECT SUM(n), SUM(s) FROM (SELECT sex, COUNT(*) AS n, SUM(age) AS s FROM visits WHERE insured GROUP BY sex) q",
    "SELECT sex, COUNT(*) FILTER (WHERE TRUE), SUM(CASE WHEN TRUE THEN age ELSE 0 END) FROM visits WHERE insured "
    "GROUP BY 1",
]  # fmt: skip
OTHER = [
    "SELECT sex, COUNT(*) AS n, SUM(age) AS s FROM visits WHERE NOT insured GROUP BY sex",
    "SELECT sex, COUNT(*) AS n, SUM(age) AS s FROM visits WHERE insured OR age > 5 GROUP BY sex",
    "SELECT sex, COUNT(*) AS n, SUM(CLAMP(age, 0, 50)) AS s FROM visits WHERE insured GROUP BY sex",
    "SELECT insured, COUNT(*) AS n, SUM(age) AS s FROM visits WHERE insured GROUP BY insured",
    "SELECT sex, COUNT(*) AS n, SUM(age) AS s FROM visits WHERE insured GROUP BY ROLLUP(sex)",
    "SELECT sex, COUNT(*) AS n, AVG(age) AS s FROM visits WHERE insured GROUP BY sex",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_per_group = 1) sex, COUNT(*) AS n, SUM(age) AS s FROM visits "
    "WHERE insured GROUP BY sex",
]
PAIRS = [
    ("age - 1 > 5", "age - 5 > 1"),
    ("age > 5", "age < 5"),
    ("age / 2 > 5", "2 / age > 5"),
    ("city = 'Ada' OR age = 1", "city = '1' OR age = 1"),
    ("city = 'Ada' AND age > 5", "city = 'Ada' OR age > 5"),
    ("NOT (city = 'Ada')", "city = 'Ada'"),
    ("day < DATE '2020-02-01'", "day < DATE '2020-02-02'"),
]


def _key(text: str) -> str:
    return compile_query(text, clinic.TABLES, PureDP(1)).canonical


@pytest.mark.parametrize("text", SAME)
def test_what_follows_from_what_was_measured_is_free(curator: Curator, text: str) -> None:
    curator.query(BASE, epsilon=2)
    before = curator.remaining()
    assert curator.query(text, epsilon=2).repeated
    assert curator.remaining() == before


@pytest.mark.parametrize("text", OTHER)
def test_other_questions_are_other_measurements(text: str) -> None:
    assert _key(text) != _key(BASE)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_conditions_that_differ_are_told_apart(one: str, other: str) -> None:
    assert _key(f"SELECT COUNT(*) FROM visits WHERE {one}") != _key(f"SELECT COUNT(*) FROM visits WHERE {other}")


def test_another_budget_is_another_measurement(curator: Curator) -> None:
    curator.query(BASE, epsilon=2)
    assert not curator.query(BASE, epsilon=3).repeated


@pytest.mark.parametrize(
    "text",
    [
        "SELECT city, sex, COUNT(DISTINCT pid), SUM(age), MEDIAN(age), MAX(age) FROM visits GROUP BY city, sex",
        "SELECT sex, insured, COUNT(*), AVG(age) FROM visits GROUP BY ROLLUP(sex, insured)",
        "SELECT COUNT(*), MIN(age), MAX(age), MEDIAN(delta) FROM visits",
    ],
)
def test_a_layout_is_undone_exactly(text: str) -> None:
    plan = compile_query(text, clinic.TABLES, ApproxDP(Fraction(50), Fraction(1, 100)))
    with clinic.engine() as engine:
        found = measure(plan, engine)
    again = restore(plan, arrange(plan, found))
    assert again.keys() == found.keys()
    for name, parts in found.items():
        for one, other in zip(parts, again[name], strict=True):
            assert one.keys.equals(other.keys)
            assert all((a == b).all() for a, b in zip(one.values, other.values, strict=True))
