"""Stored measurements: what is asked in other words is the same question, at no further cost, and only that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import clinic
from deniable.curator import Curator
from deniable.errors import QueryRefused
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


CONDITIONS = st.recursive(
    st.sampled_from(
        ["f", "g", "f = TRUE", "TRUE = f", "f <> FALSE", "f IS TRUE", "f IS NOT FALSE", "a = 1", "a IN (1)", "a <> 1",
         "a NOT IN (1)", "a IN (1, 2)", "a = 1 OR a = 2", "a > 1", "a >= 2", "1 < a", "a BETWEEN 1 AND 2", "a IS NULL",
         "a < b", "b > a", "a = b", "TRUE", "FALSE", "NULL", "COALESCE(f, FALSE)", "COALESCE(f, TRUE)",
         "a IN (1, NULL)",
         "a <= 1.5", "a + 1 > 2", "f = g"]
    ),
    lambda inner: st.one_of(
        st.builds("NOT ({})".format, inner),
        st.builds("({}) AND ({})".format, inner, inner),
        st.builds("({}) OR ({})".format, inner, inner),
        st.builds("({}) IS TRUE".format, inner),
        st.builds("({}) IS NOT TRUE".format, inner),
        st.builds("({}) = FALSE".format, inner),
        st.builds("COALESCE({}, FALSE)".format, inner),
    ),
    max_leaves=3,
)  # fmt: skip
FEW_ROWS = duckdb.connect(config={"threads": 1})
FEW_ROWS.execute(
    """CREATE TABLE t AS SELECT * FROM (VALUES (1), (2), (3), (NULL)) AS x (a), (VALUES (1), (2), (NULL)) AS y (b),
    (VALUES (TRUE), (FALSE), (NULL)) AS z (f), (VALUES (TRUE), (FALSE), (NULL)) AS w (g)"""
)
TYPED = parse(
    "version: 1\ndataset: d\ntables: {t: {source: t.csv, unit: row, columns: {a: {type: integer}, b: {type: integer}, "
    "f: {type: boolean}, g: {type: boolean}}}}\nbudgets: {dataset: {epsilon: 1}}\n"
).tables
SEEN: dict[tuple[str, str], tuple[str, object]] = {}


def _rows_where(condition: str, form: str) -> object:
    sql = {
        "WHERE": "SELECT list(rowid ORDER BY rowid) FROM t WHERE {}",
        "GROUP BY": "SELECT list({} ORDER BY rowid) FROM t",
    }
    return FEW_ROWS.sql(sql[form].format(condition)).fetchall()


@pytest.mark.parametrize("form", ["WHERE", "GROUP BY"])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(condition=CONDITIONS)
def test_conditions_with_one_key_hold_for_the_same_rows(form: str, condition: str) -> None:
    """In all 36 rows of two truth values and two numbers, nulls among them; as keys, true, false and null are three."""
    asked = f"SELECT COUNT(*) FROM t {form} {condition}"
    try:
        key = compile_query(asked, TYPED, ApproxDP(Fraction(1), Fraction(1, 10**6))).canonical
    except QueryRefused:
        return
    rows = _rows_where(condition, form)
    other, known = SEEN.setdefault((form, key), (condition, rows))
    assert rows == known, (condition, other)


EQUAL = [
    ["f", "f = TRUE", "f IS TRUE", "f <> FALSE", "NOT NOT f", "COALESCE(f, FALSE)", "TRUE = f", "f AND TRUE"],
    ["NOT f", "f = FALSE", "f IS FALSE", "f <> TRUE"],
    ["a = 1", "a IN (1)", "1 = a", "NOT a <> 1", "a IN (1, 1)"],
    ["a <> 1", "NOT a = 1", "a NOT IN (1)", "NOT (a IN (1))"],
    ["a > 1", "a >= 2", "1 < a", "NOT a <= 1", "NOT a < 2"],
    ["a NOT BETWEEN 1 AND 2", "a < 1 OR a > 2", "NOT (a >= 1 AND a <= 2)"],
    ["a NOT IN (1, 2)", "a <> 2 AND a <> 1", "NOT (a = 1 OR a = 2)"],
    ["a IS NOT NULL", "NOT a IS NULL"],
]


@pytest.mark.parametrize("wordings", EQUAL, ids=lambda each: each[0])
def test_wordings_of_a_condition_have_one_key(wordings: list[str]) -> None:
    for form in ("SELECT COUNT(*) FROM t WHERE {}", "SELECT COUNT(*) FILTER (WHERE {}) FROM t"):
        plans = [compile_query(form.format(each), TYPED, PureDP(1)) for each in wordings]
        assert len({plan.canonical for plan in plans}) == 1


def test_a_comma_at_the_end_of_a_list_changes_nothing_and_two_are_refused() -> None:
    plain = compile_query("SELECT f, COUNT(*) FROM t GROUP BY f", TYPED, PureDP(1)).canonical
    for asked in ("SELECT f, COUNT(*), FROM t GROUP BY f", "SELECT f, COUNT(*) FROM t GROUP BY f,"):
        FEW_ROWS.sql(asked)
        assert compile_query(asked, TYPED, PureDP(1)).canonical == plain
    with pytest.raises(duckdb.ParserException):
        FEW_ROWS.sql("SELECT f,, COUNT(*) FROM t GROUP BY f")
    with pytest.raises(QueryRefused, match="two commas"):
        compile_query("SELECT f,, COUNT(*) FROM t GROUP BY f", TYPED, PureDP(1))


def test_an_approximate_count_of_values_is_the_count_of_values() -> None:
    for column in ("pid", "city"):
        keys = {
            compile_query(f"SELECT {asked} FROM visits", clinic.TABLES, PureDP(1)).canonical
            for asked in (f"COUNT(DISTINCT {column})", f"APPROX_COUNT_DISTINCT({column})")
        }
        assert len(keys) == 1
