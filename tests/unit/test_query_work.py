"""No row decides how long a question takes: texts, joins and the question itself have public bounds."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest

import clinic
from deniable import Curator
from deniable.errors import DeniableError, ParameterError, PolicyError, QueryRefused
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.document import parse
from deniable.query.algebra.expression import LONGEST_TEXT, Facts, Kind
from deniable.query.algebra.relation import MOST_PAIRS
from deniable.query.atoms import list_views
from deniable.query.compile import compile_query
from deniable.query.sql import clauses
from deniable.query.sql.render import MOST_LISTED, render_clamped, render_relation

BUDGET = ApproxDP(Fraction(1), Fraction(1, 10**6))


def _nest(function: str, times: int, inner: str = "note") -> str:
    for _ in range(times):
        inner = function.format(inner)
    return inner


KEYS = [f"EXTRACT({part} FROM seen)" for part in ("minute", "second", "doy", "week")]
TOO_MUCH = {
    "eight REPLACE behind a name": "SELECT COUNT(*) FROM visits WHERE CASE WHEN city = 'Bob' THEN "
    + _nest("REPLACE({}, 'a', 'aaaaaaaa')", 8)
    + " = 'x' ELSE FALSE END",
    "a text doubled again and again": f"SELECT COUNT(*) FROM visits WHERE {_nest('({0} || {0})', 6)} = 'x'",
    "doubled in sub-queries": "SELECT COUNT(*) FROM "
    + _nest("(SELECT pid, s || s AS s FROM {}) AS q", 30, "(SELECT pid, note AS s FROM visits) AS q")
    + " WHERE s = 'x'",
    "one column searched for another": "SELECT COUNT(*) FROM visits WHERE CONTAINS(note, city)",
    "LIKE with a column as pattern": "SELECT COUNT(*) FROM visits WHERE note LIKE city",
    "REPLACE of a column by a column": "SELECT COUNT(*) FROM visits WHERE REPLACE(note, city, note) = 'x'",
    "clamps within clamps": f"SELECT SUM({_nest('CLAMP({} + 1, 0, 100)', 20, 'age')}) FROM visits",
    "grouping sets with too many groups together": "SELECT COUNT(*) FROM visits GROUP BY GROUPING SETS ("
    + ", ".join(f"(age, {a}, {b})" for a in KEYS for b in KEYS)
    + ")",
    "three hundred sides": "SELECT COUNT(*) FROM (" + " UNION ALL ".join(["SELECT age FROM visits"] * 300) + ") AS u",
    "WITH queries that double": "WITH c0 AS (SELECT pid, age FROM visits)"
    + "".join(f", c{i} AS (SELECT * FROM c{i - 1} UNION ALL SELECT * FROM c{i - 1})" for i in range(1, 40)).replace(
        "SELECT *", "SELECT pid, age"
    )
    + " SELECT COUNT(*) FROM c39",
    "keys that grow in sub-queries": "SELECT k, COUNT(*) FROM "
    + _nest("(SELECT pid, k + k AS k FROM {}) AS q", 40, "(SELECT pid, age AS k FROM visits) AS q")
    + " GROUP BY k",
}


@pytest.mark.parametrize("sql", TOO_MUCH.values(), ids=TOO_MUCH)
def test_what_one_row_could_make_slow_is_refused_before_it_is_charged(sql: str) -> None:
    with pytest.raises(QueryRefused):
        compile_query(sql, clinic.TABLES, BUDGET)


FINE = (
    "SELECT COUNT(*) FROM visits WHERE REPLACE(REPLACE(note, '-', ''), ' ', '') = 'x'",
    "SELECT COUNT(*) FROM visits WHERE note || ' ' || city LIKE '%again%'",
    "SELECT COUNT(*) FROM visits WHERE CONTAINS(LEFT(note, 1000), LEFT(city, 100))",
    "SELECT COUNT(*) FROM visits WHERE UPPER(TRIM(note)) ILIKE '%a_b%' OR ENDS_WITH(note, 'x')",
    "SELECT COUNT(*) FROM (" + " UNION ALL ".join(["SELECT age FROM visits"] * 100) + ") AS u",
)


@pytest.mark.parametrize("sql", FINE)
def test_ordinary_questions_about_texts_are_within_the_bounds(sql: str) -> None:
    assert compile_query(sql, clinic.TABLES, BUDGET).cost == PureDP(Fraction(1))


NOTES = """
version: 1
dataset: notes
tables:
  notes:
    source: notes.csv
    unit: {{column: id, max_groups: 1, max_rows_per_group: 1}}
    columns:
      id: {{type: integer, role: identifier}}
      note: {{type: {kind}, {longest}role: sensitive}}
budgets: {{dataset: {{epsilon: 5000}}}}
"""


def test_a_declared_length_cuts_texts_and_makes_room_for_what_is_done_with_them() -> None:
    rows = pa.table({"id": [1, 2, 3, 4], "note": ["abcde", "abcdef", "abcd", "x" * 70_000]})
    growing = f"SELECT COUNT(*) AS n FROM notes WHERE {_nest('({0} || {0})', 6)} = '{'abcde' * 64}'"
    plain = parse(NOTES.format(kind="text", longest=""))
    with pytest.raises(QueryRefused):
        compile_query(growing, plain.tables, BUDGET)
    declared = parse(NOTES.format(kind="text", longest="longest: 5, "))
    with Curator(declared, sources={"notes": rows}, ledger=None) as curator:
        for sql in (growing, "SELECT COUNT(*) AS n FROM notes WHERE note = 'abcde'"):
            assert curator.query(sql, epsilon=500, intervals=False).to_pylist() == [{"n": 2}]


@pytest.mark.parametrize(
    ("kind", "longest"), [("integer", "longest: 5"), ("text", "longest: 0"), ("text", "longest: x")]
)
def test_a_length_that_makes_no_sense_is_refused(kind: str, longest: str) -> None:
    with pytest.raises(PolicyError):
        parse(NOTES.format(kind=kind, longest=longest + ", "))


def test_compiling_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clauses, "COMPILE_SECONDS", -1)
    with pytest.raises(QueryRefused, match="seconds of computing"):
        compile_query("SELECT COUNT(*) FROM visits", clinic.TABLES, BUDGET)


TEXTS = """
version: 1
dataset: d
tables: {t: {source: t.csv, unit: {column: u, max_groups: 1, max_rows_per_group: 1}, columns: {u: {}, s: {}}}}
budgets: {dataset: {epsilon: 20000}}
"""


@pytest.mark.parametrize(("letter", "extra"), [("a", 0), ("a", 1), ("é", 1), ("a", 5 * LONGEST_TEXT)])
def test_a_longer_text_is_cut_where_it_is_read(letter: str, extra: int) -> None:
    rows = pa.table({"u": ["1"], "s": [letter * (LONGEST_TEXT + extra)]})
    with Curator(parse(TEXTS), sources={"t": rows}) as curator:
        sql = f"SELECT COUNT(*) AS n FROM t WHERE LENGTH(s) = {LONGEST_TEXT}"
        assert curator.query(sql, epsilon=9999).rows["n"].to_pylist() == [1]


JOINED = """
version: 1
dataset: d
tables:
  a: {source: a.csv, unit: {column: u, max_groups: 1, max_rows_per_group: 1}, columns: {u: {type: integer}}}
  b: {source: b.csv, unit: {column: u, max_groups: 1, max_rows_per_group: 1}, columns: {u: {type: integer}}}
"""


@pytest.mark.parametrize(("left", "right", "kept"), [(1000, 1000, True), (1001, 1000, False), (MOST_PAIRS, 1, True)])
@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
def test_whoever_makes_too_many_pairs_is_left_out_of_a_join_and_nobody_else(
    left: int, right: int, kept: bool, kind: str
) -> None:
    import duckdb

    tables = parse(JOINED).tables
    plan = compile_query(f"SELECT COUNT(*) FROM a {kind} b ON a.u = b.u", tables, PureDP(Fraction(1)))
    statement = render_relation(plan.nodes[0].node.input)
    with duckdb.connect() as connection:
        for name, many in (("a", left), ("b", right)):
            connection.execute(f"CREATE TABLE {name} AS SELECT 1 AS u FROM range({many}) UNION ALL VALUES (2), (2)")
        found = connection.execute(f'SELECT "_unit", count(*) FROM ({statement}) GROUP BY 1 ORDER BY 1').fetchall()
    assert found == ([(1, left * right), (2, 4)] if kept else [(2, 4)])


@pytest.mark.parametrize(
    "sql", ["SELECT COUNT(*) FROM b JOIN a ON a.u = b.u", "SELECT COUNT(*) FROM a x JOIN a y ON x.u = y.u"]
)
def test_a_join_reads_the_tables_that_it_names(sql: str) -> None:
    rows = pa.table({"u": [1, 1, 2]})
    policy = parse(JOINED + "budgets: {dataset: {epsilon: 20000}}")
    with Curator(policy, sources={"a": rows, "b": rows}) as curator:
        assert curator.query(sql, epsilon=9999).rows["count"].to_pylist() == [2]


QUICKLY_REFUSED = {
    "a number of ten million digits": "SELECT COUNT(*) FROM visits WHERE age > 1e10000000",
    "a number of a thousand million digits": "SELECT COUNT(*) FROM visits WHERE age > -1e-999999999",
    "a long number": "SELECT COUNT(*) FROM visits WHERE age > -" + "9" * 5000,
    "a negative number beyond DOUBLE": "SELECT COUNT(*) FROM visits WHERE age > -1e400",
    "a long ordinal": "SELECT COUNT(*) FROM visits GROUP BY " + "9" * 5000,
    "a long ordinal in ORDER BY": "SELECT COUNT(*) FROM visits ORDER BY " + "9" * 5000,
    "CUBE of thirty keys": "SELECT COUNT(*) FROM visits GROUP BY CUBE("
    + ", ".join(f"age % {i + 2}" for i in range(30))
    + ")",
    "thirty times CUBE": "SELECT COUNT(*) FROM visits GROUP BY " + ", ".join(["CUBE(sex, insured)"] * 30),
    "nine thousand keys": "SELECT COUNT(*) FROM visits GROUP BY " + ", ".join(["age + 0"] * 9000),
    "stars over stars": "SELECT COUNT(*) FROM (SELECT "
    + ", ".join(["*"] * 400)
    + " FROM (SELECT "
    + ", ".join(["*"] * 20)
    + " FROM visits) AS a) AS b",
    "ten thousand columns": "SELECT COUNT(*) FROM (SELECT " + ", ".join(["age"] * 10_000) + " FROM visits) AS a",
    "three thousand sums": "SELECT " + ", ".join(f"SUM(age + {i})" for i in range(3000)) + " FROM visits",
    "many shares": "SELECT QUANTILE(age, [" + ", ".join(f"0.{i:04}" for i in range(1, 1500)) + "]) FROM visits",
    "a placeholder": "SELECT sex, ? FROM visits GROUP BY sex",
    "a named placeholder": "SELECT sex, :a FROM visits GROUP BY sex",
    "half a character": "SELECT COUNT(*) FROM visits WHERE city = '\ud800'",
    "an error beyond DOUBLE": "SELECT COUNT(*) FROM visits WITHIN 1e400",
}


@pytest.mark.parametrize("sql", QUICKLY_REFUSED.values(), ids=QUICKLY_REFUSED)
def test_what_would_take_long_to_compile_is_refused_by_its_size(sql: str) -> None:
    """Without these sizes the test would not end."""
    with pytest.raises(QueryRefused):
        compile_query(sql, clinic.TABLES, BUDGET)


def test_one_row_meets_one_public_row_whatever_the_types_of_the_keys() -> None:
    """Whole numbers that are one as DOUBLE were one key to the join, and many to what bounds its matches."""
    keys = [2**53, 2**53 + 1, *range(2**60, 2**60 + 60)]
    for name, kind, value in (("x", "decimal", 2.0**60), ("i", "integer", 2**60)):
        text = f"""
version: 1
dataset: d
tables:
  t: {{source: t.csv, unit: row, columns: {{{name}: {{type: {kind}}}}}}}
  p: {{source: p.csv, public: true, columns: {{k: {{type: integer}}}}}}
budgets: {{dataset: {{epsilon: 20000}}}}
"""
        rows = {"t": pa.table({name: [value]}), "p": pa.table({"k": keys})}
        for on in (f"t.{name} = p.k", f"t.{name} + 0 = p.k"):
            with Curator(parse(text), sources=rows) as curator:
                found = curator.query(f"SELECT COUNT(*) AS n FROM t JOIN p ON {on}", epsilon=9999)
                assert found.rows["n"].to_pylist() == [1]


@pytest.mark.parametrize(("joins", "most"), [(1, 100), (2, 10), (6, 2), (7, 1)])
def test_public_rows_that_one_person_meets_are_bounded_over_all_joins(joins: int, most: int) -> None:
    from deniable.query.algebra.relation import MOST_FAN_OUT, Join, Relation, inputs_of

    sql = "SELECT COUNT(*) FROM visits v " + " ".join(f"JOIN regions r{i} ON v.city = r{i}.city" for i in range(joins))
    found: list[int] = []

    def collect(relation: Relation) -> None:
        found.extend([relation.fan_out] if isinstance(relation, Join) else [])
        for below in inputs_of(relation):
            collect(below)

    collect(compile_query(sql, clinic.TABLES, BUDGET).nodes[0].node.input)
    assert found == [most] * joins
    assert most**joins <= MOST_FAN_OUT


def test_a_date_outside_the_calendar_is_null_wherever_it_is_computed() -> None:
    text = """
version: 1
dataset: d
tables: {t: {source: t.csv, unit: {column: u, max_groups: 1, max_rows_per_group: 1}, columns: {u: {}, d: {type: date}}}}
budgets: {dataset: {epsilon: 20000, delta: 0.1}}
"""
    rows = pa.table({"u": [str(n) for n in range(200)], "d": [date(1, 1, 1)] * 200})
    with Curator(parse(text), sources={"t": rows}) as curator:
        sql = "SELECT COUNT(k) AS n FROM (SELECT d - 32767 AS k FROM t) AS p"
        assert curator.query(sql, epsilon=9999).rows["n"].to_pylist() == [0]
        later = "SELECT DATE '9999-12-31' + CLAMP(COUNT(*), 0, 32767) AS z FROM t"
        assert curator.query(later, epsilon=1).to_pylist()[0]["z"] is None


PAIRED = """
version: 1
dataset: paired
tables:
  a:
    source: a.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns: {id: {type: integer, role: identifier}, k: {type: integer, between: [0, 9], role: sensitive},
      t: {role: sensitive}}
  b:
    source: b.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns: {id: {type: KIND, role: identifier}}
  p: {source: p.parquet, public: true, columns: {k: {type: integer}, w: {type: integer}}}
budgets: {dataset: {epsilon: 5000}}
"""


def open_paired(rows: int, text: str = "x", kind: str = "integer") -> Curator:
    """A person with so many rows in a and b, among others, and a public table with 1,000 rows of one key."""
    others = 50
    a = pa.table(
        {
            "id": [7] * rows + list(range(100, 100 + others)),
            "k": [1] * rows + [2] * others,
            "t": [text] * (rows + others),
        }
    )
    b = pa.table({"id": pa.array([7] * rows, pa.int64() if kind == "integer" else pa.float64())})
    public = pa.table({"k": [1] * 1_000, "w": list(range(1_000))})
    return Curator(parse(PAIRED.replace("KIND", kind)), sources={"a": a, "b": b, "p": public}, ledger=None)


def count_rows(curator: Curator, sql: str) -> int:
    """The rows below the noise."""
    plan = compile_query(sql, curator.policy.tables, BUDGET)
    (node,) = plan.nodes
    engine = curator.context.scope.attach(*(table.name for table in curator.policy.tables))
    return engine.run(f"SELECT count(*) AS n FROM ({render_relation(node.node.input)}) AS r")["n"][0].as_py()


def test_a_row_meets_a_hundred_public_rows_at_most() -> None:
    with open_paired(3) as curator:
        assert count_rows(curator, "SELECT COUNT(*) FROM a JOIN p ON a.k = p.k") == 300


LOWER = "SELECT COUNT(*) FROM a AS x JOIN a AS y ON x.id = y.id WHERE LOWER(x.t) = LOWER(y.t)"
PLAIN = "SELECT COUNT(*) FROM a AS x JOIN b AS y ON x.id = y.id"
PUBLIC = "SELECT COUNT(*) FROM a AS x JOIN b AS y ON x.id = y.id JOIN p ON x.k = p.k"


@pytest.mark.parametrize(
    ("sql", "rows", "met"),
    [
        (PLAIN, 1_000, 1_000_000),
        (PLAIN, 1_001, 0),
        (LOWER, 20, 450),
        (LOWER, 21, 50),
        (PUBLIC, 20, 40_000),
        (PUBLIC, 300, 0),
    ],
)
def test_a_person_makes_fewer_pairs_where_more_is_done_for_each(sql: str, rows: int, met: int) -> None:
    """What is done for a row, what it meets and how often one person pairs it multiply."""
    with open_paired(rows) as curator:
        assert count_rows(curator, sql) == met


def test_ids_of_different_types_are_not_joined() -> None:
    """As one type for both, 500 ids above 2 ** 53 were one: a person moved a count by 500."""
    policy = parse(PAIRED.replace("KIND", "decimal"))
    with pytest.raises(QueryRefused, match="ids of different types"):
        compile_query("SELECT COUNT(*) FROM a JOIN b ON a.id = b.id", policy.tables, BUDGET)


DATES = ("294247-01-11", "5881580-07-10", "290309-12-22 (BC)", "5877642-06-25 (BC)", "10000-01-01", "2020-02-30")
ON_DATES = (
    *(f"DATE_TRUNC('{part}', CAST(t AS DATE))" for part in ("day", "week", "month", "quarter", "year")),
    *(f"DATE_TRUNC('{part}', CAST(t AS TIMESTAMP))" for part in ("day", "month", "year")),
    "CAST(t AS DATE) + 400",
    "CAST(t AS DATE) - 400",
    "EXTRACT(week FROM CAST(t AS DATE))",
    "EXTRACT(year FROM CAST(t AS TIMESTAMP))",
    "CAST(CAST(t AS TIMESTAMP) AS DATE)",
)


@pytest.mark.parametrize("asked", ON_DATES)
def test_no_text_that_is_read_as_a_date_makes_a_question_fail(asked: str) -> None:
    rows = pa.table({"id": list(range(56)), "note": ["2020-01-01"] * 50 + list(DATES)})
    with Curator(parse(NOTES.format(kind="text", longest="")), sources={"notes": rows}, ledger=None) as curator:
        sql = f"SELECT COUNT_IF({asked.replace('(t ', '(note ')} IS NULL) AS n FROM notes"
        assert curator.query(sql, epsilon=500, intervals=False).to_pylist() == [{"n": 6}]


@pytest.mark.parametrize("epsilon", ["1e-200", "1e-99", "1e-40"])
def test_a_tiny_epsilon_with_a_delta_is_refused_or_answered(epsilon: str) -> None:
    rows = pa.table({"id": [1], "note": ["a"]})
    with Curator(parse(NOTES.format(kind="text", longest="")), sources={"notes": rows}, ledger=None) as curator:
        with suppress(DeniableError):
            curator.query("SELECT note, COUNT(*) FROM notes GROUP BY note", epsilon=epsilon, delta="1e-6")
        with pytest.raises(ParameterError):
            curator.query("SELECT COUNT(*) FROM notes", epsilon=1, request="\ud800")
        for no_text in (None, 7, b"SELECT 1"):
            with pytest.raises(DeniableError):
                curator.query(no_text, epsilon=1)  # type: ignore[arg-type]


def test_under_pure_accounting_noise_is_chosen_that_it_can_price() -> None:
    """With six private groups for a person Gaussian noise is less, and was chosen and then refused."""
    policy = parse(NOTES.format(kind="text", longest="").replace("max_groups: 1", "max_groups: 8").replace(
        "{epsilon: 5000}", "{epsilon: 5000, delta: 1e-3}"))  # fmt: skip
    rows = pa.table({"id": list(range(500)), "note": [f"n{i % 3}" for i in range(500)]})
    with Curator(policy, sources={"notes": rows}, ledger=None) as curator:
        answer = curator.query("SELECT note, COUNT(*) AS n FROM notes GROUP BY note", epsilon=50, delta="1e-6")
        assert {row["note"] for row in answer.to_pylist()} == {"n0", "n1", "n2"}


def test_work_beside_public_joins_counts_for_each_public_row() -> None:
    tables = parse(PAIRED.replace("KIND", "integer")).tables
    joined = "SELECT COUNT(*) FROM a JOIN p ON a.k = p.k WHERE "
    with pytest.raises(QueryRefused, match="33,554,432 is the most"):
        compile_query(joined + "LOWER(a.t) ILIKE '%A_A%B'", tables, BUDGET)
    for fine in ("a.t LIKE '%x%'", "LOWER(LEFT(a.t, 200) || LEFT(a.t, 200)) ILIKE '%A_A%B'"):
        assert compile_query(joined + fine, tables, BUDGET).cost == PureDP(Fraction(1))
    assert compile_query("SELECT COUNT(*) FROM a WHERE LOWER(a.t) ILIKE '%A_A%B'", tables, BUDGET).nodes


def _where(part: str, inner: str = "insured", behind: str = "") -> Callable[[int], str]:
    return lambda depth: f"SELECT COUNT(*) FROM visits WHERE {_nest(part, depth, inner)}{behind}"


def _doubled(depth: int) -> str:
    return _nest("(SELECT pid, x + x AS x FROM {}) AS q", depth, "(SELECT pid, age AS x FROM visits) AS q")


HAVING = "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex HAVING {} COUNT(*) < 5"
DEEP: dict[str, Callable[[int], str]] = {
    "minus before minus": _where("- {}", "age", " > 1"),
    "minus before casts": _where("- CAST({} AS INT)", "age", " > 1"),
    "minus in a sum": lambda depth: f"SELECT SUM(CLAMP({'- ' * depth} age, 0, 10)) FROM visits",
    "minus in HAVING": lambda depth: HAVING.format("- " * depth),
    "ANY in ANY": _where("({} = ANY (ARRAY[TRUE, FALSE]))"),
    "ALL in ALL": _where("({} > ALL (ARRAY[TRUE, FALSE]))"),
    "IS DISTINCT FROM in itself": _where("({} IS DISTINCT FROM (age > 2))"),
    "BETWEEN SYMMETRIC in itself": _where("({} BETWEEN SYMMETRIC FALSE AND TRUE)"),
    "CASE in CASE": _where("CASE {} WHEN 1 THEN 2 WHEN 2 THEN 3 ELSE 4 END", "age", " > 1"),
    "texts joined to texts": _where("('a' || {} || 'b')", "LEFT(note, 1)", " = 'x'"),
    "conditions on sums in sub-queries": lambda depth: f"SELECT COUNT(*) FROM {_doubled(depth)} WHERE x > 1",
    "sums in sub-queries": lambda depth: f"SELECT SUM(CLAMP(x, 0, 5)) FROM {_doubled(depth)}",
}
MOST_CALLS = 3_000_000
"""Calls of Python; a question that doubles its work with each level passes it at less than twenty."""


@pytest.mark.quick_cases(24)
@pytest.mark.parametrize("depth", [14, 20, 40, 80])
@pytest.mark.parametrize("write", DEEP.values(), ids=DEEP)
def test_work_does_not_double_with_each_level_of_a_question(write: Callable[[int], str], depth: int) -> None:
    calls = itertools.count()

    def count(_frame: object, event: str, _argument: object) -> None:
        assert event != "call" or next(calls) < MOST_CALLS

    sys.setprofile(count)
    try:
        with suppress(QueryRefused):
            list_views(compile_query(write(depth), clinic.TABLES, BUDGET))
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("depth", [100, 1000])
@pytest.mark.parametrize("part", ["({})", "NOT ({})", "CASE WHEN {} THEN TRUE ELSE FALSE END", "({} IN (TRUE, FALSE))"])
def test_a_statement_that_nests_too_deeply_is_told_so(part: str, depth: int) -> None:
    sql = f"SELECT COUNT(*) FROM visits WHERE {_nest(part, depth, 'insured')}"
    with pytest.raises(QueryRefused, match=r"nested too deeply.*Ask in several questions"):
        compile_query(sql, clinic.TABLES, BUDGET)


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ("ANY in ANY", "more than 30,000 steps to read"),
        ("IS DISTINCT FROM in itself", "196,597 terms once it is written out, and 100,000 is the most"),
        ("BETWEEN SYMMETRIC in itself", "terms once it is written out, and 100,000 is the most"),
    ],
)
def test_what_is_read_or_written_again_and_again_is_refused(shape: str, told: str) -> None:
    with pytest.raises(QueryRefused, match=told):
        compile_query(DEEP[shape](20), clinic.TABLES, BUDGET)


@pytest.mark.parametrize("count", [1, 4, 5, 12, 32, 33, 200])
def test_a_column_of_few_categories_is_read_without_a_join(count: int) -> None:
    facts = Facts(Kind.TEXT, domain=tuple(f"c{i}" for i in range(count)))
    rows = pa.table({"c": ["c0", f"c{count - 1}", f"c{count}", "", None] * 9})
    with duckdb.connect() as connection:
        connection.register("t", rows)
        shown = f"SELECT {render_clamped('c', facts)} AS c FROM t"
        plan = connection.execute(f"EXPLAIN SELECT count(c) FROM ({shown}) AS q").fetchall()[0][1]
        assert ("join" in plan.lower()) == (count > MOST_LISTED)
        found = [value for (value,) in connection.execute(shown).fetchall()]
    assert found == ["c0", f"c{count - 1}", None, None, None] * 9
