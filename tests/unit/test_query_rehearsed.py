"""A question that is wrong by its text alone is refused before anything is charged."""

from __future__ import annotations

import pytest

import clinic
from deniable.curator import Curator
from deniable.errors import QueryRefused
from deniable.policy.budget import PureDP
from deniable.policy.document import parse
from deniable.query.compile import compile_query

POLICY = parse(
    "version: 1\ndataset: c\ntables:\n  visits:\n    source: visits.parquet\n"
    "    unit: {column: pid, max_groups: 2, max_rows_per_group: 3}\n    columns:\n      pid: {type: integer}\n"
    "      sex: {categories: [F, M]}\n      age: {type: integer, between: [0, 100]}\n      city: {type: text}\n"
    "budgets: {dataset: {epsilon: 100, delta: 1e-5}}\n"
)
GROUPED = "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex"
WRONG = [
    f"{GROUPED} ORDER BY 'x'",
    f"{GROUPED} ORDER BY NULL",
    f"{GROUPED} ORDER BY TRUE",
    f"{GROUPED} ORDER BY 5",
    f"{GROUPED} ORDER BY 0",
    f"{GROUPED} ORDER BY -1",
    f"{GROUPED} ORDER BY 2.5",
    f"{GROUPED} HAVING 'x'",
    f"{GROUPED} HAVING 1",
    "SELECT sex, SUM(sex) OVER () AS s, COUNT(*) AS n FROM visits GROUP BY sex",
    "SELECT sex, LAG(COUNT(*), 'x') OVER (ORDER BY sex) AS s FROM visits GROUP BY sex",
    "SELECT sex, LAG(COUNT(*), 1, 'x') OVER (ORDER BY sex) AS s FROM visits GROUP BY sex",
    *(f"SELECT sex, NTILE({n}) OVER (ORDER BY sex) AS s, COUNT(*) AS n FROM visits GROUP BY sex"
      for n in ("0", "-3", "2.5", "'x'")),
    "SELECT sex, SUM(COUNT(*)) OVER (ORDER BY sex ROWS BETWEEN 2 FOLLOWING AND 1 PRECEDING) AS s "
    "FROM visits GROUP BY sex",
    "SELECT sex, SUM(COUNT(*)) OVER (ORDER BY sex ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW) AS s "
    "FROM visits GROUP BY sex",
    "SELECT COUNT(*, age) AS n FROM visits",
    "SELECT COUNT(*) AS n_low, COUNT(age) AS n FROM visits",
    "SELECT COUNT(*) AS n FROM visits WHERE EXISTS (SELECT nosuch FROM visits v WHERE v.pid = visits.pid)",
    "SELECT COUNT(*) AS n FROM visits WHERE EXISTS (SELECT nosuchfunc(v.age) FROM visits v WHERE v.pid = visits.pid)",
    "SELECT COUNT(*) AS n FROM visits WHERE EXISTS (SELECT (SELECT 1 FROM nosuch) FROM visits v "
    "WHERE v.pid = visits.pid)",
    "SELECT sex, city, COUNT(*) AS n FROM visits GROUP BY GROUPING SETS ((sex), (sex), (city))",
    "SELECT sex, COUNT(*) AS n FROM visits GROUP BY ROLLUP(sex), ROLLUP(sex)",
]  # fmt: skip
RIGHT = [
    f"{GROUPED} ORDER BY 2 DESC, 1",
    f"{GROUPED} HAVING COUNT(*) > 3 ORDER BY n",
    "SELECT sex, NTILE(2) OVER (ORDER BY sex) AS s, COUNT(*) AS n FROM visits GROUP BY sex",
    "SELECT city, LAG(COUNT(*), 1, 0) OVER (ORDER BY city) AS s FROM visits GROUP BY city",
    "SELECT COUNT(*) AS n FROM visits WHERE EXISTS (SELECT v.age, 1 FROM visits v WHERE v.pid = visits.pid)",
    "SELECT COUNT(*) AS n FROM visits WHERE EXISTS (SELECT * FROM visits v WHERE v.pid = visits.pid)",
]


@pytest.mark.parametrize("asked", WRONG)
def test_what_is_wrong_by_its_text_is_not_charged(asked: str) -> None:
    with Curator(POLICY, sources={"visits": clinic.people(60).select(["pid", "sex", "age", "city"])}) as curator:
        before = curator.remaining()
        for ask in (curator.explain, curator.query):
            with pytest.raises(QueryRefused):
                ask(asked, epsilon=1, delta="1e-7")
        assert curator.remaining() == before


def test_what_is_right_is_answered() -> None:
    with Curator(POLICY, sources={"visits": clinic.people(60).select(["pid", "sex", "age", "city"])}) as curator:
        for asked in RIGHT:
            assert curator.query(asked, epsilon=1, delta="1e-7").rows.num_columns


NUMBERS = ("age", "charge", "insured", "NULL + 30")
CASTS = [f"CAST({text} AS {kind})" for text in NUMBERS for kind in ("DATE", "TIMESTAMP")]
CASTS += [f"CAST({text} AS {kind})" for text in ("day", "seen") for kind in ("INTEGER", "DOUBLE", "BOOLEAN")]


@pytest.mark.parametrize("text", CASTS)
def test_a_cast_that_no_value_survives_is_refused_before_a_charge(text: str) -> None:
    """Dates and numbers cannot be read as each other: the answer would be about nothing."""
    with pytest.raises(QueryRefused, match=r"takes .*text, not"):
        compile_query(f"SELECT COUNT(DISTINCT {text}) FROM visits", clinic.TABLES, PureDP(1))
