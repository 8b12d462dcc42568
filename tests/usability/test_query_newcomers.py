"""What somebody who knows SQL tries first, and the sentence that helps."""

from __future__ import annotations

from fractions import Fraction

import pytest

import clinic
from deniable.errors import QueryRefused
from deniable.policy.budget import ApproxDP
from deniable.query.compile import compile_query

BUDGET = ApproxDP(Fraction(1), Fraction(1, 10**6))
WORKS = [
    "select count(*) from visits;",
    "SELECT Sex, Count(*) FROM Visits GROUP BY SEX",
    "SELECT v.sex, COUNT(*) FROM visits AS v GROUP BY v.sex",
    'SELECT "sex", COUNT(*) FROM "visits" GROUP BY "sex"',
    "SELECT COUNT(1) FROM visits",
    "SELECT COUNT(*) AS total FROM visits WHERE age >= 18 AND age < 65 -- adults",
    "SELECT /* how many */ COUNT(*) FROM visits",
    "SELECT sex, COUNT(*) FROM visits GROUP BY 1 ORDER BY 2 DESC",
    "SELECT AVG(age)::INTEGER FROM visits",
    "SELECT COUNT(*) FROM main.visits",
    "SELECT COUNT(*) * 100.0 / NULLIF(COUNT(*), 0) FROM visits",
    "SELECT year(day) AS y, month(day) AS m, COUNT(*) FROM visits GROUP BY y, m",
    "SELECT CASE WHEN age < 40 THEN 'young' ELSE 'old' END AS g, AVG(charge) FROM visits GROUP BY g",
    "SELECT city FROM visits GROUP BY city HAVING COUNT(*) > 10",
    "SELECT IF(age > 50, 'old', 'young') AS g, COUNT(*) FROM visits GROUP BY g",
    "SELECT * FROM (SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex) AS t WHERE n > 5",
]
HELPED = [
    ("SELECT * FROM visits", "COUNT, SUM or AVG"),
    ("SELECT * FROM visits LIMIT 5", "noisy numbers"),
    ("SELECT city FROM visits WHERE pid = 17", "release rows of people"),
    ("SELECT AVG(score) FROM visits", "CLAMP(score, 0, 100)"),
    ("SELECT COUNT(*) FROM patients", "The tables are"),
    ("SELECT COUNT(*) FROM visits WHERE sexx = 'F'", "Did you mean 'sex'?"),
    ("SELECT sex, COUNT(*) FROM visits", "neither in GROUP BY"),
    ("SELECT COUNT(*) FROM visits WHERE COUNT(*) > 3", "Use HAVING"),
    ("SELECT TOP 3 city FROM visits", ""),
    ("INSERT INTO visits VALUES (1)", "A SELECT statement"),
    ("UPDATE visits SET age = 1", "A SELECT statement"),
    ("PRAGMA table_info('visits')", "A SELECT statement"),
    ("SHOW TABLES", "A SELECT statement"),
    ("DESCRIBE visits", "A SELECT statement"),
    ("COPY visits TO 'out.csv'", "A SELECT statement"),
    ("SELECT COUNT(*) FROM visits WITHIN 5%", "WITHIN 5% OF 20000"),
    ("hello", ""),
]


@pytest.mark.parametrize("sql", WORKS)
def test_what_a_newcomer_writes_is_understood(sql: str) -> None:
    assert compile_query(sql, clinic.TABLES, BUDGET)


@pytest.mark.parametrize(("sql", "help"), HELPED)
def test_what_cannot_be_answered_is_refused_with_a_way_on(sql: str, help: str) -> None:
    with pytest.raises(QueryRefused) as refusal:
        compile_query(sql, clinic.TABLES, BUDGET)
    assert help in refusal.value.message
    assert "Nothing was charged" in refusal.value.message
    assert refusal.value.expected or refusal.value.remedy or refusal.value.place
