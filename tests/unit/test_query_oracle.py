"""With a huge budget and no bound in force, answers are those of plain SQL: DuckDB is the oracle."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import clinic
from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.budget import ApproxDP
from deniable.query.compile import compile_query
from deniable.query.execute import execute

HUGE = ApproxDP(Fraction(9_999), Fraction(1, 100))
TABLES = clinic.with_unit(max_groups=200, max_rows_per_group=500)
PAIRS = [
    ("SELECT COUNT(*) AS n, COUNT(age) AS m, SUM(age) AS s FROM visits", ""),
    ("SELECT AVG(age) AS a, VARIANCE(age) AS v, VAR_POP(age) AS p, STDDEV(delta) AS d FROM visits", ""),
    ("SELECT COUNT(DISTINCT pid) AS u, COUNT(DISTINCT city) AS c FROM visits", ""),
    ("SELECT sex, COUNT(*) AS n, SUM(delta) AS s FROM visits GROUP BY sex", "WHERE sex IN ('F', 'M')"),
    (
        "SELECT sex, insured, AVG(charge) AS a FROM visits GROUP BY sex, insured",
        "WHERE sex IN ('F', 'M') AND insured IS NOT NULL",
    ),
    ("SELECT city, COUNT(*) AS n FROM visits GROUP BY city", ""),
    ("SELECT FLOOR(age / 10) AS decade, COUNT(*) AS n FROM visits GROUP BY decade", "WHERE age IS NOT NULL"),
    ("SELECT DATE_TRUNC('month', day) AS m, COUNT(*) AS n FROM visits GROUP BY m", "WHERE day IS NOT NULL"),
    ("SELECT COUNT(*) AS n FROM visits WHERE age BETWEEN 20 AND 50 AND city LIKE 'A%'", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE note ILIKE '%AGAIN%' OR NOT insured OR score IN (1, 2, 3)", None),
    ("SELECT SUM(CASE WHEN age > 50 THEN 2 WHEN insured THEN 1 ELSE 0 END) AS s FROM visits", None),
    ("SELECT SUM(COALESCE(age, 7)) AS s, SUM(ABS(delta)) AS d, SUM(age % 7) AS r FROM visits", None),
    ("SELECT COUNT(*) FILTER (WHERE insured) AS n, SUM(age) FILTER (WHERE sex = 'F') AS s FROM visits", None),
    ("SELECT SUM(MONTH(day)) AS s, SUM(DATE_DIFF('day', DATE '2020-01-01', day)) AS d FROM visits", None),
    ("SELECT SUM(EXTRACT(hour FROM seen)) AS h, SUM(EXTRACT(dow FROM day)) AS w FROM visits", None),
    ("SELECT UPPER(LEFT(city, 2)) AS c, COUNT(*) AS n FROM visits GROUP BY c", None),
    ("SELECT LENGTH(note) AS l, COUNT(*) AS n FROM visits GROUP BY l", None),
    ("SELECT CAST(age AS TEXT) AS a, COUNT(*) AS n FROM visits GROUP BY a", None),
    ("SELECT age + 1 AS a, COUNT(*) AS n FROM visits GROUP BY a", "WHERE age IS NOT NULL"),
    ("SELECT charge, COUNT(*) AS n FROM visits GROUP BY charge", "WHERE charge IS NOT NULL"),
    ("SELECT sex, COUNT(*) AS n FROM visits WHERE sex IN ('F', 'M') GROUP BY ROLLUP(sex)", None),
    (
        "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex HAVING COUNT(*) > 90 ORDER BY n DESC LIMIT 1",
        "WHERE sex IN ('F', 'M')",
    ),
    ("SELECT SUM(charge) / COUNT(charge) AS mean FROM visits", None),
    ("SELECT COUNT(*) AS n, SUM(s.age) AS s FROM visits v JOIN stays s ON v.pid = s.pid AND v.day = s.day", None),
    ("SELECT COUNT(*) AS n FROM visits v LEFT JOIN stays s ON v.pid = s.pid WHERE s.pid IS NULL", None),
    ("SELECT COUNT(*) AS n FROM (SELECT age FROM visits UNION ALL SELECT age FROM stays) AS u", None),
    ("SELECT r.region AS k, COUNT(*) AS n FROM visits v JOIN regions r ON v.city = r.city GROUP BY k", None),
    (
        "SELECT AVG(n) AS a, COUNT(*) AS c FROM (SELECT pid, CLAMP(COUNT(*), 0, 50) AS n FROM visits GROUP BY pid) t",
        None,
    ),
    ("SELECT n, COUNT(*) AS c FROM (SELECT pid, COUNT(*) AS n FROM visits GROUP BY pid) AS t GROUP BY n", None),
    (
        "SELECT COUNT(*) AS c FROM (SELECT pid FROM visits GROUP BY pid HAVING COUNT(*) > 4 AND MAX(age) > 60) AS t",
        None,
    ),
    ("WITH t AS (SELECT city, COUNT(*) AS n FROM visits GROUP BY city) SELECT SUM(n) AS s, MAX(n) AS m FROM t", None),
    ("SELECT region, SUM(inhabitants) AS s FROM regions GROUP BY region ORDER BY region", None),
    ("SELECT SUM(age) AS s, COUNT(*) AS n FROM answers WHERE city = 'Ada'", None),
    ("SELECT city, SUM(delta) AS s FROM answers GROUP BY city", None),
    ("SELECT SUM(CLAMP(score, -100, 100)) AS s FROM answers", None),
    # What the parser says beside the operands of a function is read, or refused.
    ("SELECT COUNT(*) AS n FROM visits WHERE city NOT LIKE 'A%' OR note NOT ILIKE 'SEE%'", None),
    ("SELECT LTRIM(note, 'o') AS a, RTRIM(note) AS b, TRIM(BOTH 'k' FROM note) AS c, COUNT(*) AS n FROM visits "
     "GROUP BY a, b, c", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE city IS DISTINCT FROM 'Ada' AND age IS NOT DISTINCT FROM age", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE charge / 100 BETWEEN 0.06 - 0.01 AND 0.06 + 0.01", None),
    # Functions
    ("SELECT SUM(POWER(delta, 2)) AS p, SUM(TRUNC(charge)) AS t, SUM(SIGN(delta)) AS s FROM visits", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE LOG(age + 1) > 1 AND LOG2(age + 1) < 6 OR LOG(10, age + 1) < 0.5", None),
    ("SELECT CONCAT_WS('/', city, note) AS k, COUNT(*) AS n FROM visits GROUP BY k", None),
    ("SELECT SUBSTRING(city FROM 2 FOR 2) AS k, COUNT(*) AS n FROM visits GROUP BY k", None),
    ("SELECT REGEXP_REPLACE(note, '^([a-z]+).*$', '<\\1>') AS k, COUNT(*) AS n FROM visits GROUP BY k", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE day >= DATE '2020-03-31' - INTERVAL '1 month' AND "
     "day < DATE '2020-03-31' + INTERVAL 2 WEEK", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE day + INTERVAL '1 month' > DATE '2020-02-29' "
     "AND seen - INTERVAL '36 hours' < TIMESTAMP '2020-06-01 00:00:00'", None),
    ("SELECT day + INTERVAL '1 month' AS k, COUNT(*) AS n FROM visits GROUP BY k", "WHERE day IS NOT NULL"),
    ("SELECT STRFTIME(day, '%Y-%m') AS k, COUNT(*) AS n FROM visits GROUP BY k", "WHERE day IS NOT NULL"),
    ("SELECT DATE_PART('month', day) AS k, COUNT(*) AS n FROM visits GROUP BY 1", "WHERE day IS NOT NULL"),
    ("SELECT COUNT(*) AS n FROM visits WHERE EXTRACT(epoch FROM seen) > 1588000000", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE seen >= TO_TIMESTAMP(1583020800)::TIMESTAMP", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE day >= MAKE_DATE(2020, 3, 1)", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE score < 9007199254740993 AND score <> 9223372036854775807", None),
    ("SELECT CORR(age, delta) AS c, COVAR_SAMP(charge, age) AS s, COVAR_POP(age, charge) AS p FROM visits", None),
    ("SELECT REGR_SLOPE(charge, age) AS s, REGR_INTERCEPT(charge, age) AS i, REGR_R2(charge, age) AS r, "
     "REGR_COUNT(charge, age) AS n, REGR_AVGX(charge, age) AS x, REGR_AVGY(charge, age) AS y, REGR_SXX(charge, age) "
     "AS sx, REGR_SYY(charge, age) AS sy, REGR_SXY(charge, age) AS xy FROM visits", None),
    ("SELECT CORR(age, delta) FILTER (WHERE insured) AS c FROM visits", None),
    # Joins
    ("SELECT COUNT(*) AS n FROM visits v, stays s WHERE v.pid = s.pid AND v.city = s.city AND v.age < s.age", None),
    ("SELECT COUNT(*) AS n, COUNT(s.age) AS a FROM visits v JOIN stays s USING (pid) WHERE v.city = s.city", None),
    ("SELECT COUNT(*) AS n FROM stays s RIGHT JOIN visits v ON v.pid = s.pid AND s.age > 90", None),
    ("SELECT COUNT(*) AS n, COUNT(v.age) AS a FROM visits v FULL JOIN stays s ON v.pid = s.pid AND v.day = s.day",
     None),
    ("SELECT t.a, COUNT(*) AS n FROM (SELECT city, age FROM visits) AS t (a, b) GROUP BY t.a", None),
    ("WITH c (k, n) AS (SELECT city, COUNT(*) FROM visits GROUP BY city) SELECT k, n + 1 AS m FROM c", None),
    # Sub-queries
    ("SELECT COUNT(*) AS n FROM visits WHERE pid IN (SELECT pid FROM stays WHERE age > 60)", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE pid NOT IN (SELECT pid FROM stays WHERE age > 60)", None),
    ("SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM stays s WHERE s.pid = v.pid AND s.age < v.age)",
     None),
    ("SELECT COUNT(*) AS n FROM visits v WHERE NOT EXISTS (SELECT * FROM stays s WHERE s.pid = v.pid AND "
     "s.insured = v.insured AND s.city <> v.city) OR age > 90", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE pid IN (SELECT pid FROM stays GROUP BY pid HAVING COUNT(*) > 6)", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE city IN (SELECT city FROM regions WHERE inhabitants > 15)", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE city NOT IN (SELECT city FROM regions WHERE inhabitants > 25)", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE city NOT IN (SELECT city FROM regions WHERE inhabitants < 25)", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE age > (SELECT AVG(age) FROM visits WHERE sex = 'F')", None),
    ("SELECT COUNT(*) AS n FROM visits v WHERE age > (SELECT AVG(age) FROM stays s WHERE s.city = v.city)", None),
    ("SELECT SUM(CLAMP(age - (SELECT MAX(inhabitants) FROM regions), -100, 100)) AS s FROM "
     "(SELECT age, pid FROM visits) AS v WHERE EXISTS (SELECT 1 FROM regions WHERE inhabitants = 10)", None),
    ("SELECT city, COUNT(*) AS n FROM visits GROUP BY city HAVING COUNT(*) > (SELECT COUNT(*) / 5 FROM visits)", None),
    ("SELECT city, (SELECT MAX(inhabitants) FROM regions r WHERE r.city = visits.city) AS m, COUNT(*) AS n FROM visits "
     "GROUP BY city", None),
    ("SELECT city FROM regions r WHERE inhabitants = (SELECT MIN(inhabitants) FROM regions q WHERE q.city = r.city)",
     None),
    ("SELECT region, COUNT(*) AS n FROM regions WHERE city IN (SELECT city FROM visits GROUP BY city) GROUP BY region",
     None),
    ("SELECT COUNT(*) AS n FROM visits v WHERE age > (SELECT AVG(age) FROM stays s WHERE s.pid = v.pid)", None),
    ("SELECT COUNT(*) AS n FROM visits v WHERE (SELECT COUNT(*) FROM stays s WHERE s.pid = v.pid AND s.city = v.city) "
     "> 1", None),
    # Windows over noisy numbers
    ("SELECT city, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC, city) AS r FROM visits GROUP BY city", None),
    ("SELECT city, SUM(COUNT(*)) OVER (ORDER BY city ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS r FROM visits "
     "GROUP BY city", None),
    ("SELECT city, n, LAG(n) OVER (ORDER BY city) AS l, n * 1.0 / SUM(n) OVER () AS share, MAX(n) OVER (PARTITION BY "
     "n > 40) AS m FROM (SELECT city, COUNT(*) AS n FROM visits GROUP BY city) AS t", None),
    ("SELECT city, sex, COUNT(*) AS n FROM visits WHERE sex IN ('F', 'M') GROUP BY city, sex "
     "QUALIFY ROW_NUMBER() OVER (PARTITION BY city ORDER BY COUNT(*) DESC, sex) = 1", None),
    ("SELECT DISTINCT city FROM visits ORDER BY city NULLS FIRST LIMIT 3", None),
    ("SELECT COUNT(*) AS n FROM (SELECT DISTINCT pid, city FROM visits) AS t", None),
    ("SELECT * FROM visits WHERE FALSE", None),
    ("SELECT city, age FROM visits WHERE 1 = 0", None),
    ("SELECT COUNT(*) AS n FROM visits WHERE FALSE", None),
    ("SELECT MEDIAN(age) AS m, STDDEV(delta) AS s, CORR(age, delta) AS c, COUNT(insured) AS n, "
     "COALESCE(SUM(DISTINCT age), 7) AS d FROM visits WHERE 2 < 1", None),
    ("SELECT city, VARIANCE(age) AS v FROM visits WHERE NULL GROUP BY city", None),
    ("SELECT MEDIAN(age) AS m, COUNT(*) AS n FROM visits LIMIT 0", None),
    ("SELECT MEDIAN(age) AS m FROM visits WHERE FALSE HAVING COUNT(*) > 3", None),
]  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> dict[str, pa.Table]:
    return {name: inside(clinic.people(40, 300, seed)) for name, seed in (("visits", 3), ("stays", 4), ("answers", 5))}


def inside(table: pa.Table) -> pa.Table:
    """The same rows with values that their declared bounds leave as they are."""
    import pyarrow.compute as pc

    for name, low, high in (("age", 0, 100), ("delta", -20, 10), ("charge", 0.0, 250.0)):
        clamped = pc.max_element_wise(pc.min_element_wise(table[name], high, skip_nulls=False), low, skip_nulls=False)
        table = table.set_column(table.schema.get_field_index(name), name, clamped)
    return table


@pytest.fixture(scope="module")
def engine(rows: dict[str, pa.Table]) -> DuckDBEngine:
    return clinic.engine(TABLES, **rows)


@pytest.fixture(scope="module")
def oracle(rows: dict[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE MACRO CLAMP(x, lo, hi) AS CASE WHEN x IS NOT NULL THEN greatest(lo, least(hi, x)) END")
    for name, table in rows.items():
        connection.register(name, table)
    connection.register("regions", clinic.REGION_ROWS)
    return connection


def plain(sql: str, where: str | None) -> str:
    """The question as plain SQL: public keys leave out rows without a declared key."""
    return sql.replace("FROM visits", f"FROM visits {where}", 1) if where else sql


def comparable(row: dict[str, Any]) -> tuple[str, ...]:
    """One spelling for equal values: numbers rounded, midnights as days."""

    def spelled(value: Any) -> str:
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            return str(round(float(value), 6))
        return str(value).removesuffix(" 00:00:00")

    return tuple(spelled(value) for value in row.values())


@pytest.mark.parametrize(("sql", "where"), PAIRS)
@pytest.mark.usefixtures("silence")
def test_answers_without_noise_are_those_of_plain_sql(
    sql: str, where: str | None, engine: DuckDBEngine, oracle: duckdb.DuckDBPyConnection
) -> None:
    answered = execute(compile_query(sql, TABLES, HUGE), engine, intervals=False).to_pylist()
    exactly = oracle.sql(plain(sql, where)).to_arrow_table().to_pylist()
    missing = Counter(map(comparable, exactly)) - Counter(map(comparable, answered))
    assert not missing
    # Public keys that nobody has appear too.
    extra = Counter(map(comparable, answered)) - Counter(map(comparable, exactly))
    assert all({"0.0", "0"} & set(row) for row in extra)


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_quantiles_with_little_noise_are_at_their_rank(
    q: float, engine: DuckDBEngine, rows: dict[str, pa.Table]
) -> None:
    ages = sorted(age for age in rows["visits"]["age"].to_pylist() if age is not None)
    sql, tables = f"SELECT QUANTILE(age, {q}) AS q FROM visits", clinic.with_unit(max_rows_per_group=40)
    (row,) = execute(compile_query(sql, tables, HUGE), engine).to_pylist()
    below, above = sum(age < row["q"] for age in ages), sum(age > row["q"] for age in ages)
    assert below <= q * len(ages) + 3
    assert above <= (1 - q) * len(ages) + 3


LISTED = "QUANTILE(age, [0.1, 0.5, 0.75]) AS q, COUNT(*) AS n"
ONE_BY_ONE = "QUANTILE(age, 0.75) AS q_0_75, COUNT(*) AS n, QUANTILE(age, 0.1) AS q_0_1, MEDIAN(age) AS q_0_5"


@pytest.mark.parametrize("asked", [LISTED, ONE_BY_ONE])
@pytest.mark.parametrize("key", ["", "sex", "city"])
@pytest.mark.parametrize("condition", ["", "WHERE delta > 0"])
def test_quantiles_asked_together_are_each_at_their_rank_in_each_group(
    asked: str, key: str, condition: str, engine: DuckDBEngine, rows: dict[str, pa.Table]
) -> None:
    tables = clinic.with_unit(max_groups=9, max_rows_per_group=40)
    sql = f"SELECT {key + ', ' if key else ''}{asked} FROM visits {condition}{' GROUP BY ' + key if key else ''}"
    shown = execute(compile_query(sql, tables, HUGE), engine).to_pylist()
    assert len(shown) == {"": 1, "sex": 2}.get(key, len(shown))
    for row in shown:
        ages = [
            each["age"]
            for each in rows["visits"].to_pylist()
            if each["age"] is not None
            and each["pid"] is not None
            and (not key or each[key] == row[key])
            and (not condition or (each["delta"] is not None and each["delta"] > 0))
        ]
        for q in (0.1, 0.5, 0.75):
            answer = row[f"q_{q}".replace(".", "_")]
            assert sum(age < answer for age in ages) <= q * len(ages) + 4
            assert sum(age > answer for age in ages) <= (1 - q) * len(ages) + 4
        assert row["q_0_1"] <= row["q_0_5"] <= row["q_0_75"]


@pytest.mark.usefixtures("silence")
def test_a_histogram_counts_each_row_once(engine: DuckDBEngine, rows: dict[str, pa.Table]) -> None:
    shown = execute(compile_query("SELECT HISTOGRAM(age, 4) AS h FROM visits", TABLES, HUGE), engine, intervals=False)
    assert [(r["h_from"], r["h_to"]) for r in shown.to_pylist()] == [(0, 25), (25, 50), (50, 75), (75, 100)]
    assert sum(shown["h"].to_pylist()) == sum(age is not None for age in rows["visits"]["age"].to_pylist())
