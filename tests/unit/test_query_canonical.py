"""Stored measurements: what is asked in other words is the same question, at no further cost, and only that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pyarrow as pa
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
from deniable.query.sql.private_sql import render_step
from deniable.query.sql.render import render_relation

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
         "a <= 1.5", "a + 1 > 2", "f = g", "a > 1::DOUBLE", "a >= '2'::INTEGER", "a = '1'::NUMERIC",
         "CAST(a AS DOUBLE) > 1", "a <= 1.5::DOUBLE", "a::TEXT = '1'", "f::BOOLEAN", "a > '1.5'::NUMERIC(4, 0)"]
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


DATED = duckdb.connect(config={"threads": 1})
DATED.execute(
    """CREATE TABLE t AS SELECT * FROM (VALUES (DATE '2025-03-03'), ('2025-03-04'), ('2025-03-05'), (NULL)) AS x (d),
    (VALUES (TIMESTAMP '2025-03-04 00:00:00'), ('2025-03-04 00:00:01'), ('2025-03-03 23:59:59'), (NULL)) AS y (m),
    (VALUES ('x'), ('y'), (NULL)) AS z (s), (VALUES (4567.0::DOUBLE), (4567.01), (4566.99), (NULL)) AS w (c)"""
)
OF_TOOLS = [
    ["c > 4567", "c > 4567::DOUBLE PRECISION", "c > '4567'::NUMERIC", "c > 4567.0", "c > ('4567'::DOUBLE PRECISION)"],
    ["s = 'x'", "s = 'x'::TEXT", "s = 'x'::VARCHAR", "s::TEXT = 'x'", "s = E'x'", "s IN ('x'::TEXT)"],
    ["d >= '2025-03-04'", "d >= DATE '2025-03-04'", "d >= CAST('2025-03-04' AS DATE)", "d > '2025-03-03'::DATE",
     "d >= TIMESTAMP '2025-03-04 00:00:00'", "CAST(d AS TIMESTAMP) >= '2025-03-04'", "d::DATE >= '2025-03-04'"],
    ["d < '2025-03-04'", "d < TIMESTAMP '2025-03-04 00:00:00'", "NOT d >= TIMESTAMP '2025-03-04 00:00:00'"],
    ["d <= '2025-03-04'", "d <= TIMESTAMP '2025-03-04 00:00:00'"],
    ["d = '2025-03-04'", "d = TIMESTAMP '2025-03-04 00:00:00'", "d IN (TIMESTAMP '2025-03-04 00:00:00')"],
    ["m >= '2025-03-04'", "m >= DATE '2025-03-04'", "m >= TIMESTAMP '2025-03-04 00:00:00'"],
]  # fmt: skip
OF_POSTGRESQL = [
    ["c > 5", "c > '5'::int2", "c > 5::pg_catalog.int8", "c > '5'::pg_catalog.float8", "c > ('5'::double precision)"],
    ["c > -5", "c > '-5'::numeric", "c > -5::int", "c > -('5'::int)", "c > -(5)"],
    ["c > 5", "c > -(-5)"],
    ["c IN (1, 2)", "c = ANY('{1,2}')", "c = any('{1,2}'::bigint[])", "c = ANY(ARRAY[1, 2])",
     "c = ANY ('{1,2}'::int2[])"],
    ["c NOT IN (1, 2)", "c <> ALL ('{1,2}')", "c != ALL(ARRAY[1, 2])", "c <> ALL('{1,2}'::pg_catalog.int4[])"],
    ["s IN ('x', 'a,b')", "s = ANY ('{x,\"a,b\"}'::text[])", "s = ANY('{x,\"a,b\"}')"],
    ["s IN ('x', NULL)", "s = ANY ('{x,NULL}'::name[])"],
    ["s NOT IN ('x')", "s <> ALL('{x}')"],
    ["s = 'x'", "s = 'x'::name", "s = 'x'::unknown", "s = 'x'::bpchar", "s = 'x'::pg_catalog.text", "s = E'x'"],
    ["s = 'a''b'", "s = 'a''b'::character varying"],
    ["FALSE", "s = ANY('{}')", "c = ANY('{}'::int4[])"],
    ["TRUE", "s <> ALL('{}')"],
    ["c > 5", "c > '5'", "c > '5.0'"],
    ["c IN (1, 2)", "c IN ('1', '2')"],
    ["b = TRUE", "b = 't'::bool", "b = 'true'::boolean", "b = ' yes '::bool", "b = 'on'", "b = true"],
    ["c > 0.5", "c > .5", "c > '.5'", "c > '5e-1'::float8", "c > 0.5::numeric", "c > 0.54::numeric(2, 1)"],
    ["c > 0.00001", "c > 0.00001::numeric", "c > '0.00001'::decimal"],
    ["c IN (1, 2)", "c = ANY('{1,2}'::_int4)", "c = ANY(ARRAY['1', '2']::int[])", "c = any(array[1, 2]::numeric[])"],
    ["s IN ('x', 'y')", "s = ANY(ARRAY['x','y']::text[])", "s = ANY('{ x , y }')", "s IN ($$x$$, N'y')"],
    ["c > 1 OR c > 2", "c > ANY('{1,2}')", "c > any(ARRAY[1, 2]::int[])"],
    ["c > 1 AND c > 2", "c > ALL('{1,2}'::int[])", "c > all(ARRAY[1, 2])"],
    ["s NOT LIKE 'a%' AND s NOT LIKE 'b%'", "s NOT LIKE ALL('{a%,b%}'::text[])"],
    ["m > '2025-05-01 10:00:00'", "m > '2025-05-01 10:00:00'::timestamp(6)", "m > '2025-05-01 10:00+00'::timestamptz",
     "m > '2025-05-01 12:00+02'::timestamptz", "m > timestamp with time zone '2025-05-01 10:00:00Z'",
     "m > '2025-05-01 09:59:59.7'::timestamp(0)", "m > DATE '2025-05-01'::timestamptz + INTERVAL '10 hours'",
     "m > '2025-05-01 12:00+02'::timestamptz(3)"],
    ["TRUE LIMIT 2", "TRUE LIMIT 2::bigint"],
    ["d > '2025-05-01'", "d > ('2025-05-01 +00'::date)", "d > '2025-05-01Z'", "d > '2025-05-01 +00:00'"],
    ["d IN ('2025-05-01')", "d = ANY('{2025-05-01}'::date[])", "d = ANY('{2025-05-01}')"],
]  # fmt: skip
"""Constants as drivers of PostgreSQL write them."""


@pytest.mark.parametrize("wordings", OF_POSTGRESQL, ids=lambda each: each[0])
def test_constants_of_drivers_are_read_as_people_write_them(wordings: list[str]) -> None:
    found = [compile_query(f"SELECT COUNT(*) FROM t WHERE {each}", TYPED_DATES, PureDP(1)) for each in wordings]
    assert len({each.canonical for each in found}) == 1


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("s = 'ab'::character varying(1)", "fixed length"), ("s = 'abc'::character(2)", "fixed length"),
        ("s = ANY('{abcd}'::varchar(3)[])", "fixed length"), ("s::char = 'a'", "fixed length"),
        ("s = 'abc'::\"char\"", "fixed length"), ("CAST(s AS bpchar) = 'ab'", "fixed length"),
        ("s = 'ab '::bpchar", "fixed length"), ("b = 'maybe'::bool", "cannot be read as BOOLEAN"),
        ("c > 'five'::int", "cannot be read as INT"), ("c > '2.5'::int", "cannot be read as INT"),
        ("c > ''::int", "cannot be read as INT"), ("c > 40000::int2", "does not fit into SMALLINT"),
        ("c > 3000000000::int", "does not fit into INT"), ("c > -3000000000::int", "does not fit into INT"),
        ("c > '40000'::int2", "cannot be read as SMALLINT"), ("c > 12::numeric(1)", "does not fit into DECIMAL"),
        ("c = ANY('{40000}'::int2[])", "cannot be read as SMALLINT"), ("b = ANY('{maybe}')", "cannot be read as BOOL"),
        ("c < 'NaN'::float8", "cannot be read as DOUBLE"), ("c < 'Infinity'", "mixes"), ("c > 'five'", "mixes"),
        ("b = 'maybe'", "mixes"), ("s = 'a' 'b'", "side by side"), ("s = 'ab'::varchar(1)", "fixed length"),
        ("CAST(s AS varchar(3)) = 'abc'", "fixed length"), ("m::timestamp(0) > '2025-05-01'", "6 places"),
        ("m::timestamptz > '2025-05-01'", "no time zone"), ("m > '0001-01-01 00:00+05'::timestamptz", "not one"),
        ("c > ALL(SELECT 1)", "sub-query cannot stand here"),
    ],
)  # fmt: skip
def test_casts_that_would_mean_something_else_are_refused(written: str, told: str) -> None:
    with pytest.raises(QueryRefused, match=told):
        compile_query(f"SELECT COUNT(*) FROM t WHERE {written}", TYPED_DATES, PureDP(1))


def test_a_cast_to_numbers_without_places_rounds() -> None:
    rows = pa.table({"pid": list(range(40)), "x": [n % 4 for n in range(40)]})
    with Curator.from_frame(rows, "pid", 9000, bounds={"x": (0, 4)}) as curator:
        assert curator.query("SELECT COUNT(*) FROM data WHERE x = '2.5'::numeric(3)", epsilon=9000).scalar() == 10


def test_a_cast_of_a_column_to_numbers_without_digits_keeps_all_places() -> None:
    rows = pa.table({"pid": list(range(40)), "x": [0.12345 if n % 4 else 0.5 for n in range(40)]})
    with Curator.from_frame(rows, "pid", 90000, bounds={"x": (0, 1)}) as curator:
        for cast in ("::numeric", "::decimal"):
            asked = f"SELECT COUNT(*) FROM data WHERE x{cast} = 0.12345"
            assert curator.query(asked, epsilon=9000).scalar() == 30
        asked = "SELECT AVG(AUTO_CLAMP(x::numeric)) FROM data WHERE x::numeric = 0.12345"
        assert "DECIMAL(" not in str(curator.explain(asked, epsilon=9000))


ESCAPED = [("E'a\\\\b'", "a\\b"), ("E'it\\'s'", "it's"), ("e'it''s'", "it's"), ("E'\\u0041\\U00000042'", "AB"),
           ("E'\\101\\x42\\x4'", "AB\x04"), ("E'\\n\\t\\q\\8\\xg'", "\n\tq8xg"), ("E'\\uD83D\\uDE00'", "😀"),
           ("E'\\xc3\\xa9é😀'", "éé😀"), ("E''", ""), ("E'a\n'", "a\n")]  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), ESCAPED, ids=[each[0] for each in ESCAPED])
def test_texts_with_escapes_are_read_as_postgresql_reads_them(written: str, meant: str) -> None:
    found, plain = (
        compile_query(f"SELECT COUNT(*) FROM t WHERE s = {each}", TYPED_DATES, PureDP(1))
        for each in (written, "'" + meant.replace("'", "''") + "'")
    )
    assert found.canonical == plain.canonical


@pytest.mark.parametrize("written", [
    "E'\\u004'", "E'\\U0011FFFF'", "E'\\uD83D'", "E'\\uDE00\\uD83D'", "E'\\xff'", "E'\\0'", "E'\\u0000'", "E'a' 'b'",
    "E'a'\n'b'", "'a'\nE'b'",
])  # fmt: skip
def test_escapes_that_are_no_characters_are_refused(written: str) -> None:
    with pytest.raises(QueryRefused, match=r"not a character|side by side"):
        compile_query(f"SELECT COUNT(*) FROM t WHERE s = {written}", TYPED_DATES, PureDP(1))


@pytest.mark.parametrize("written", ["s = ANY('F,M')", "s = ANY('{F')", "s = ANY('{F,{M}}')", "c = ANY('{F,M}')",
                                     "c <> ALL('{1,F}'::int4[])", "s = ANY('{a,}')", "s = ANY('{a, ,b}')"])  # fmt: skip
def test_texts_that_are_no_arrays_are_refused(written: str) -> None:
    with pytest.raises(QueryRefused, match=r"list of (values|numbers)"):
        compile_query(f"SELECT COUNT(*) FROM t WHERE {written}", TYPED_DATES, PureDP(1))


TYPED_DATES = parse(
    "version: 1\ndataset: d\ntables: {t: {source: t.csv, unit: row, columns: {d: {type: date}, m: {type: datetime}, "
    "s: {type: text}, c: {type: decimal}, b: {type: boolean}}}}\nbudgets: {dataset: {epsilon: 1}}\n"
).tables
APART = [("d >= TIMESTAMP '2025-03-04 12:00:00'", "d >= '2025-03-04'"), ("m > '2025-03-04'", "m::DATE > '2025-03-04'"),
         ("c > 4567.01", "c > 4567.01::NUMERIC(6, 1)"), ("s = 'x'", "s = 'y'::TEXT")]  # fmt: skip


@pytest.mark.parametrize("wordings", OF_TOOLS, ids=lambda each: each[0])
def test_casts_that_tools_write_change_no_question(wordings: list[str]) -> None:
    """postgres_fdw, JDBC, Metabase and Npgsql write the types of values: each was another answer, and charged."""
    assert len({compile_query(f"SELECT COUNT(*) FROM t WHERE {each}", TYPED_DATES, PureDP(1)).canonical
                for each in wordings}) == 1  # fmt: skip
    assert len({str(DATED.sql(f"SELECT count(*) FROM t WHERE {each}").fetchall()) for each in wordings}) == 1


@pytest.mark.parametrize(("one", "other"), APART)
def test_casts_that_change_a_value_are_other_questions(one: str, other: str) -> None:
    found = [compile_query(f"SELECT COUNT(*) FROM t WHERE {each}", TYPED_DATES, PureDP(1)) for each in (one, other)]
    assert found[0].canonical != found[1].canonical


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


DECLARED = parse("""
version: 1
dataset: d
tables:
  r:
    source: r.csv
    unit: row
    columns: {id: {type: integer}, k: {categories: [x, y, z]}, c: {type: integer, categories: [4, 1, 2]},
              n: {type: integer, between: [0, 5]}, a: {type: integer}, q: {type: decimal, between: [0, 5], step: 0.5},
              d: {type: date, between: [2024-05-30, 2024-06-03]}, s: {type: datetime}}
  e:
    source: e.csv
    unit: {column: pid, max_groups: 1, max_rows_per_group: 2}
    columns: {pid: {type: integer}, k: {categories: [x, y]}, n: {type: integer, between: [0, 5]}}
  p:
    source: p.csv
    unit: {column: pid, max_groups: 1, max_rows_per_group: 2}
    columns: {pid: {type: integer}, age: {type: integer, between: [0, 100]}}
  o:
    source: o.csv
    unit: {column: pid, max_groups: 1, max_rows_per_group: 2}
    columns: {id: {type: integer}, pid: {type: integer}}
  l:
    source: l.csv
    unit: {via: [oid = o.id], max_groups: 1, max_rows_per_group: 2}
    columns: {oid: {type: integer}, n: {type: integer, between: [0, 5]}}
budgets: {dataset: {epsilon: 1}}
""").tables
SETS = [
    ["k IN ('x', 'y')", "k IN ('y', 'x', 'else')", "k <> 'z'", "k NOT IN ('z')", "NOT (k = 'z')",
     "k NOT IN ('z', 'else')", "k <> 'z' AND k <> 'else'", "k = 'x' OR (k <> 'x' AND k <> 'z')"],
    ["k IS NOT NULL", "k <> 'else'", "k IN ('x', 'y', 'z')", "k = 'x' OR k <> 'x'"],
    ["k = 'x'", "k NOT IN ('y', 'z')", "k IN ('x', 'y') AND k <> 'y'"],
    ["k = 'else'", "k = 'x' AND k = 'y'", "k = 'x' AND k <> 'x'"],
    ["c <> 1", "c IN (2, 4, 7)", "c > 1", "c >= 1.5", "NOT (c = 1)"],
    ["n > 2", "n >= 3", "NOT (n <= 2)", "n > 2.5", "n BETWEEN 3 AND 5", "n IN (3, 4, 5)", "n > 2 AND n IS NOT NULL",
     "n BETWEEN 3 AND 90", "n > CAST(2 AS INTEGER)", "n > 1 AND n <> 2"],
    ["a > 17", "a >= 18", "NOT (a < 18)", "18 <= a", "a > 17 AND (a <> 17)"],
    ["d > DATE '2024-05-31'", "d >= DATE '2024-06-01'", "d >= DATE '2024-05-31' + 1", "NOT (d < DATE '2024-06-01')",
     "d > DATE '2024-06-01' - 1", "d BETWEEN DATE '2024-06-01' AND DATE '2024-06-03'"],
]  # fmt: skip
UNLIKE = [
    ("q > 2", "q >= 3"),
    ("q IN (1, 2)", "q BETWEEN 1 AND 2"),
    ("s > TIMESTAMP '2024-05-31 00:00:00'", "s >= TIMESTAMP '2024-06-01 00:00:00'"),
    ("k <> 'z'", "k IS DISTINCT FROM 'z'"),
    ("k IN ('x', 'y')", "(k = 'z') IS NOT TRUE"),
    ("k <> 'else'", "TRUE"),
    ("n >= 0", "TRUE"),
    ("n > 2", "n > 3"),
    ("a > 5", "a BETWEEN 6 AND 9223372036854775806"),
    ("n - 1 > 2", "n - 1 > 3"),
]


def _ask(text: str) -> str:
    return compile_query(text, DECLARED, ApproxDP(Fraction(1), Fraction(1, 10**6))).canonical


@pytest.mark.parametrize("wordings", SETS, ids=lambda each: each[0])
def test_conditions_that_choose_the_same_declared_values_have_one_key(wordings: list[str]) -> None:
    for form in ("SELECT COUNT(*) FROM r WHERE {}", "SELECT COUNT(*) FILTER (WHERE {}) FROM r"):
        keys = {each: _ask(form.format(each)) for each in wordings}
        assert len(set(keys.values())) == 1, keys


@pytest.mark.parametrize(("one", "other"), UNLIKE)
def test_conditions_that_look_alike_are_told_apart(one: str, other: str) -> None:
    assert _ask(f"SELECT COUNT(*) FROM r WHERE {one}") != _ask(f"SELECT COUNT(*) FROM r WHERE {other}")


VALUES = {
    "k": ["'x'", "'y'", "'z'", "'else'"], "c": ["1", "2", "4", "3", "1.5"], "n": ["0", "2", "3", "5", "9", "2.5"],
    "a": ["17", "18", "-1", "17.5"], "q": ["2", "3", "2.5"],
    "d": ["DATE '2024-05-31'", "DATE '2024-06-01'", "DATE '2024-05-31' + 1", "DATE '2025-01-01'"],
}  # fmt: skip
COMPARED = st.sampled_from(sorted(VALUES)).flatmap(
    lambda column: st.one_of(
        st.builds(
            "{} {} {}".format,
            st.just(column),
            st.sampled_from(["=", "<>", "<", "<=", ">", ">="] if column != "k" else ["=", "<>"]),
            st.sampled_from(VALUES[column]),
        ),
        st.builds(
            "{} {} ({}, {})".format,
            st.just(column),
            st.sampled_from(["IN", "NOT IN"]),
            *[st.sampled_from([*VALUES[column], "NULL"])] * 2,
        ),
        st.builds("{} IS {}".format, st.just(column), st.sampled_from(["NULL", "NOT NULL"])),
        st.builds("{} IS DISTINCT FROM {}".format, st.just(column), st.sampled_from(VALUES[column])),
    )
)
DECLARED_CONDITIONS = st.recursive(
    COMPARED,
    lambda inner: st.one_of(
        st.builds("NOT ({})".format, inner),
        st.builds("({}) AND ({})".format, inner, inner),
        st.builds("({}) OR ({})".format, inner, inner),
        st.builds("({}) IS NOT TRUE".format, inner),
        st.builds("COALESCE({}, TRUE)".format, inner),
    ),
    max_leaves=3,
)
RAW = duckdb.connect(config={"threads": 1})
RAW.execute(
    """CREATE TABLE r AS SELECT row_number() OVER () AS id, *, NULL::TIMESTAMP AS s FROM
    (VALUES ('x'), ('y'), ('z'), ('else'), (NULL)) AS k (k), (VALUES (1), (4), (3), (NULL)) AS c (c),
    (VALUES (-7, 17, 2), (2, 18, 2.5), (3, NULL, 3), (99, -1, 'NaN'::DOUBLE), (NULL, 17, NULL)) AS n (n, a, q),
    (VALUES (DATE '2024-05-31'), (DATE '2024-06-01'), (DATE '1999-01-01'), (DATE '2030-01-01'), (NULL)) AS d (d)"""
)
CHOSEN: dict[str, tuple[str, object]] = {}


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(condition=DECLARED_CONDITIONS)
def test_conditions_with_one_key_choose_the_same_rows_of_raw_values(condition: str) -> None:
    """By the statement that runs, over rows with nulls, NaN, values that are not declared and others out of bounds."""
    asked = f"SELECT id, COUNT(*) FROM r WHERE {condition} GROUP BY id"
    try:
        plan = compile_query(asked, DECLARED, ApproxDP(Fraction(1), Fraction(1, 10**6)))
    except QueryRefused:
        return
    read = render_relation(plan.nodes[0].node.input)
    (column,) = [field.name for field in plan.nodes[0].node.input.fields if field.name.endswith("id")]
    rows = RAW.sql(f'SELECT list("{column}" ORDER BY "{column}") FROM ({read}) AS x').fetchall()
    other, known = CHOSEN.setdefault(plan.canonical, (condition, rows))
    assert rows == known, (condition, other)


JOINS = [
    ("SELECT COUNT(*), SUM(age) FROM e JOIN p ON e.pid = p.pid", "SELECT COUNT(*), SUM(age) FROM p JOIN e USING (pid)"),
    ("SELECT k, SUM(age + n) FROM e JOIN p ON e.pid = p.pid WHERE age > n GROUP BY k",
     "SELECT y.k, SUM(y.n + x.age) FROM p x, e y WHERE y.pid = x.pid AND x.age > y.n GROUP BY y.k"),
    ("SELECT SUM(n) FROM l JOIN o ON l.oid = o.id", "SELECT SUM(l.n) FROM o, l WHERE o.id = l.oid"),
    ("SELECT COUNT(*) FROM (SELECT pid, COUNT(*) AS c FROM e GROUP BY pid) x JOIN p ON p.pid = x.pid WHERE c > 1",
     "SELECT COUNT(*) FROM p JOIN (SELECT pid, COUNT(*) AS c FROM e GROUP BY pid) x ON p.pid = x.pid WHERE 2 <= c"),
]  # fmt: skip
NO_TURN = [
    ("SELECT COUNT(*) FROM e LEFT JOIN p ON e.pid = p.pid", "SELECT COUNT(*) FROM p LEFT JOIN e ON e.pid = p.pid"),
    ("SELECT COUNT(*) FROM e JOIN p ON e.pid = p.pid", "SELECT COUNT(*) FROM e LEFT JOIN p ON e.pid = p.pid"),
    ("SELECT SUM(x.n) FROM e x JOIN e y ON x.pid = y.pid WHERE x.k = 'x'",
     "SELECT SUM(y.n) FROM e x JOIN e y ON x.pid = y.pid WHERE x.k = 'x'"),
    ("SELECT SUM(n) FROM l", "SELECT SUM(n) FROM l JOIN o ON l.oid = o.id"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), NO_TURN)
def test_joins_that_look_alike_are_told_apart(one: str, other: str) -> None:
    assert _ask(one) != _ask(other)


PEOPLE = st.one_of(st.none(), st.integers(1, 3))
NUMBERS = st.one_of(st.none(), st.integers(-3, 9))


def _count_exactly(text: str) -> object:
    plan = compile_query(text, DECLARED, PureDP(1))
    found = [render_step(plan.nodes[0].node, step, 7) for step in plan.nodes[0].steps]
    return [RAW.sql(each).fetchall() for each in found if each is not None]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("one", "other"), JOINS, ids=range(len(JOINS)))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    events=st.lists(st.tuples(PEOPLE, st.sampled_from(["x", "y", "else", None]), NUMBERS), min_size=1, max_size=8),
    people=st.lists(st.tuples(PEOPLE, NUMBERS), min_size=1, max_size=8),
    orders=st.lists(st.tuples(NUMBERS, PEOPLE), min_size=1, max_size=8),
    lines=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8),
)
def test_an_inner_join_with_its_sides_exchanged_is_the_same_measurement(
    one: str, other: str, events: list[object], people: list[object], orders: list[object], lines: list[object]
) -> None:
    """By the statements that run, where people have more rows than are counted."""
    assert _ask(one) == _ask(other)
    made = {"e (pid INT, k TEXT, n INT)": events, "p (pid INT, age INT)": people, "o (id INT, pid INT)": orders,
            "l (oid INT, n INT)": lines}  # fmt: skip
    for table, rows in made.items():
        RAW.execute(f"CREATE OR REPLACE TABLE {table}")
        RAW.executemany(f"INSERT INTO {table[0]} VALUES ({', '.join('?' * table.count('INT'))}"
                        f"{', ?' if 'TEXT' in table else ''})", rows)  # fmt: skip
    assert _count_exactly(one) == _count_exactly(other)


def test_whoever_makes_too_many_pairs_is_left_out_whichever_side_stands_first() -> None:
    RAW.execute(
        "CREATE OR REPLACE TABLE e AS SELECT 1 + i % 1100 // 1099 AS pid, 'x' AS k, 1 AS n FROM range(1101) t(i)"
    )
    RAW.execute("CREATE OR REPLACE TABLE p AS SELECT 1 + i % 1000 // 999 AS pid, 50 AS age FROM range(1000) t(i)")
    counts = [_count_exactly(each) for each in ("SELECT COUNT(*) FROM e JOIN p ON e.pid = p.pid",
                                                "SELECT COUNT(*) FROM p JOIN e ON e.pid = p.pid")]  # fmt: skip
    assert counts[0] == counts[1] == [[(1,)]]


def test_exchanged_sides_and_sets_of_values_are_charged_once() -> None:
    table = clinic.people()
    asked = [
        "SELECT COUNT(*) FROM visits v JOIN (SELECT pid, COUNT(*) AS c FROM visits GROUP BY pid) x ON x.pid = v.pid "
        "WHERE v.sex <> 'M' AND v.age > 17 AND v.day > DATE '2020-05-31'",
        "SELECT COUNT(*) FROM (SELECT pid, COUNT(*) AS c FROM visits GROUP BY pid) x JOIN visits v ON x.pid = v.pid "
        "WHERE v.sex IN ('F', 'X') AND NOT (v.age < 18) AND v.day >= DATE '2020-05-31' + 1",
    ]
    with Curator(parse(POLICY), sources={"visits": table}) as opened:
        first = opened.query(asked[0], epsilon=1)
        left = opened.remaining()
        again = opened.query(asked[1], epsilon=1)
        assert (again.repeated, opened.remaining()) == (True, left)
        assert again.to_pylist() == first.to_pylist()
