"""Statements for warehouses, in `tests/golden/warehouses/*.sql`: rendered and parsed back, of most never run there.

Those for PostgreSQL are run: `tests/contracts/test_engines_agree.py` asks such statements by ADBC.

After a change that is meant, write them anew with `python tests/golden/test_warehouse_sql.py` and read the difference.
Read back into the language of the embedded engine, as far as the parser knows both, they give the same exact numbers.
"""

from __future__ import annotations

import re
import sys
from datetime import date, datetime
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

sys.path.append(str(Path(__file__).parents[1]))
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.duckdb.scan import NATIVE
from deniable.engines.remote import ARROW
from deniable.errors import QueryRefused
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Bounding, Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query.compile import compile_query
from deniable.query.execute import measure
from deniable.query.plan import QueryPlan
from deniable.query.sql.dialects import ALLOWED, Statement, refuse_unsupported, render_for_warehouse
from deniable.query.sql.warehouses import WAREHOUSES

FOLDER = Path(__file__).parent / "warehouses"
TITLES = {"snowflake": "Snowflake", "bigquery": "BigQuery", "databricks": "Databricks", "redshift": "Redshift",
          "trino": "Trino", "sqlserver": "SQL Server", "postgres": "PostgreSQL"}  # fmt: skip
COLUMNS = (
    Column("pid", ColumnType.INTEGER),
    Column("sex", categories=("F", "M")),
    Column("age", ColumnType.INTEGER, bounds=Bounds(0, 100)),
    Column("charge", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(250), Fraction(1, 2))),
    Column("seen", ColumnType.DATETIME),
    Column("day", ColumnType.DATE, bounds=Bounds(date(2020, 1, 1), date(2020, 12, 31))),
    Column("insured", ColumnType.BOOLEAN),
    Column("city", longest=20),
)
UNIT = PrivacyUnit("pid", max_groups=100, max_rows_per_group=100)
TABLES = (TableSchema("visits", "", COLUMNS, UNIT), TableSchema("stays", "", COLUMNS[:3], UNIT))
SCALED = tuple(
    TableSchema(t.name, "", t.columns, PrivacyUnit("pid", max_groups=100, max_rows_per_group=100,
                                                   bounding=Bounding.SCALE)) for t in TABLES
)  # fmt: skip
QUESTIONS = {
    "count": "SELECT COUNT(*) FROM visits",
    "people": "SELECT COUNT(DISTINCT pid) FROM visits WHERE insured OR age > 50",
    "sums by public keys": "SELECT sex, SUM(age), AVG(charge) FROM visits GROUP BY sex",
    "scaled sums": "SELECT sex, SUM(charge) FROM visits GROUP BY sex",
    "quantile counts": "SELECT MEDIAN(age) FROM visits",
    "private keys": "SELECT city, COUNT(*) FROM visits GROUP BY city",
    "a join of people's tables": (
        "SELECT v.sex, COUNT(*) FROM visits v JOIN stays s ON v.pid = s.pid WHERE s.age >= 40 GROUP BY v.sex"
    ),
    "an aggregate for each person": (
        "SELECT AVG(CLAMP(n, 0, 10)) FROM (SELECT pid, COUNT(*) AS n FROM visits GROUP BY pid) AS p"
    ),
    "parts of dates": "SELECT EXTRACT(month FROM day) AS m, COUNT(*) FROM visits GROUP BY m",
    "begins of months": (
        "SELECT COUNT(*) FROM visits WHERE DATE_TRUNC('month', day) <> DATE_TRUNC('month', DATE '2020-02-29')"
    ),
    "days as keys": "SELECT day, COUNT(*) FROM visits WHERE day <= '2020-01-04' GROUP BY day",
    "days between dates": "SELECT SUM(CLAMP(DATE_DIFF('day', DATE '2020-01-01', day), 0, 365)) FROM visits",
    "texts": r"SELECT COUNT(*) FROM visits WHERE city LIKE 'A\\_[%' OR LEFT(city, 2) IN ('Ad', 'Ä', 'O''')",
    "numbers near zero": "SELECT SUM(CLAMP(charge * 0.001 / 300, 0, 1)) FROM visits WHERE 0.5 * charge > 0",
    "conditions as keys": "SELECT age > 50 AS old, COUNT(*) FROM visits GROUP BY old",
    "arithmetic": "SELECT SUM(CLAMP((age * 2 - 1) / 4 + charge, 0, 300)) FROM visits WHERE ABS(-age) >= 10",
}  # fmt: skip
ROWS = [
    {"pid": 1, "sex": "F", "age": 30, "charge": 0.25, "day": date(2020, 1, 3), "insured": True, "city": "Ada"},
    {"pid": 1, "sex": "M", "age": 71, "charge": 0.75, "day": date(2020, 2, 29), "insured": False, "city": "A\\_[x"},
    {"pid": 2, "sex": "F", "age": -5, "charge": float("inf"), "day": date(1883, 2, 28), "city": "Ä"},
    {"pid": 2, "sex": "F", "age": 400, "charge": 249.76, "day": date(9999, 12, 31), "insured": True, "city": "O'"},
    {"pid": 3, "sex": "X", "age": None, "charge": -1e308, "seen": datetime(1969, 12, 31, 23, 59), "city": ""},
    {"pid": 4, "sex": "M", "age": 50, "charge": 124.999, "day": date(2020, 1, 4), "insured": False, "city": None},
    {"pid": None, "sex": "F", "age": 50},
]


def rows(table: TableSchema) -> pa.Table:
    """The rows of a table, in the types of its columns."""
    kinds = [ARROW[NATIVE[column.type]] for column in table.columns]
    columns = [[row.get(column.name) for row in ROWS] for column in table.columns]
    names = [column.name for column in table.columns]
    return pa.table([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names=names)


class Spy:
    """An engine that keeps the statements of a question, with what they give."""

    def __init__(self, engine: DuckDBEngine) -> None:
        self.engine = engine
        self.found: list[tuple[str, pa.Table]] = []

    def run(self, sql: str, parameters: Any = None, **options: Any) -> pa.Table:
        given = self.engine.run(sql, parameters, **options)
        self.found.append((sql, given))
        return given


def compiled(name: str) -> QueryPlan:
    tables = SCALED if name.startswith("scaled") else TABLES
    return compile_query(QUESTIONS[name], tables, ApproxDP(Fraction(1), Fraction(1, 10**6)))


@cache
def asked() -> dict[str, list[tuple[str, pa.Table]]]:
    """By the name of a question, its statements in the embedded engine's language, and what they give."""
    found = {}
    with DuckDBEngine(root=FOLDER.parent, threads=1) as engine:
        for table in TABLES:
            engine.attach(table.name, rows(table), table)
        for name in QUESTIONS:
            spy = Spy(engine)
            measure(compiled(name), spy)
            found[name] = [(re.sub(r"CAST\([0-9]{9,} AS UBIGINT\)", "CAST(7 AS UBIGINT)", sql), given)
                           for sql, given in spy.found]  # fmt: skip
        types.update({t.name: {f.name: f.native for f in engine.describe(t.name)} for t in TABLES})
    return found


types: dict[str, dict[str, str]] = {}


@cache
def rendered(dialect: str) -> list[tuple[str, Statement, pa.Table]]:
    """The statements of every question, and the numbers that the embedded engine gives."""
    return [
        (name, render_for_warehouse(sql, types, dialect), given)
        for name, statements in asked().items()
        for sql, given in statements
    ]


def written(dialect: str) -> str:
    """What the file of a dialect holds."""
    told = "Such statements are run by tests." if dialect == "postgres" else "These statements were never run there."
    lines = [f"-- Rendered for {TITLES[dialect]} and parsed back. {told}", ""]
    for name, statement, _ in rendered(dialect):
        lines += [f"-- {name}: {QUESTIONS[name]}", f"{statement.sql};", ""]
    return "\n".join(lines)


def read(statement: Statement, dialect: str) -> Any:
    """The tree of a statement, as the parser reads the dialect."""
    (found,) = sqlglot.parse(statement.sql, read={"sqlserver": "tsql"}.get(dialect, dialect))
    return found


@pytest.mark.parametrize("dialect", WAREHOUSES)
def test_statements_are_those_of_the_file(dialect: str) -> None:
    assert written(dialect) == (FOLDER / f"{dialect}.sql").read_text(encoding="utf-8")


KNOWN = {
    "databricks": {"OCTET_LENGTH", "XXHASH64"},
    "redshift": {"OCTET_LENGTH"},
    "trino": {"INFINITY"},
    "sqlserver": {"DATALENGTH"},
    "postgres": {"CONVERT_TO", "OCTET_LENGTH"},
}
"""Functions of a dialect that the parser knows by no word of its own."""


@pytest.mark.parametrize("dialect", WAREHOUSES)
def test_statements_are_read_back_as_they_were_meant(dialect: str) -> None:
    unknown: set[str] = set()
    for name, statement, _ in rendered(dialect):
        tree = read(statement, dialect)
        assert isinstance(tree, exp.Query), name
        assert [len(tree.selects), set(statement.tables) <= {t.name for t in tree.find_all(exp.Table)}] == [
            len(statement.names), True]  # fmt: skip
        unknown |= {str(each.this).upper() for each in tree.find_all(exp.Anonymous)}
    assert unknown == KNOWN.get(dialect, set())


MACROS = (
    "greatest_ignore_nulls(a, b) AS greatest(a, b)", "least_ignore_nulls(a, b) AS least(a, b)",
    "is_nan(a) AS isnan(a)", "convert_to(a, b) AS a", "infinity() AS CAST('Infinity' AS DOUBLE)",
    "hashbytes(k, a) AS sha256(a)",
    "datalength(a) AS strlen(a)", "count_big(a) AS count(a)", "round_off(a) AS trunc(a)",
)  # fmt: skip
"""Functions of warehouses as the embedded engine computes them."""
IN_DUCKDB = {
    r"OCTET_LENGTH\(": "STRLEN(",
    r"LENGTH\(ENCODE\(([^()]*)\)\)": r"STRLEN(\1)",
    r" AS REAL\)": " AS DOUBLE)",
    r"TEXT\(MAX\)": "TEXT",
}
"""What the parser does not carry over from one dialect to another."""


@pytest.mark.parametrize("dialect", [each for each in WAREHOUSES if each != "databricks"])  # which takes Spark's
def test_statements_read_back_into_the_embedded_engine_give_the_same_numbers(dialect: str) -> None:
    connection = duckdb.connect(config={"threads": 1})
    for macro in MACROS:
        connection.execute(f"CREATE MACRO {macro}")
    for table in TABLES:
        connection.register(f"{table.name}_rows", rows(table))
        connection.execute(f"CREATE TABLE {table.name} AS SELECT * FROM {table.name}_rows")
    if dialect == "sqlserver":  # which holds no infinite numbers
        connection.execute("UPDATE visits SET charge = 1e308 WHERE charge = CAST('Infinity' AS DOUBLE)")
    compared = 0
    for name, statement, expected in rendered(dialect):
        text = in_duckdb(read(statement, dialect), dialect)
        given = connection.execute(text).fetchall()
        assert sorted(map(plain, given)) == sorted(plain(row.values()) for row in expected.to_pylist()), (name, text)
        compared += len(given)
    assert compared > 30


def in_duckdb(tree: Any, dialect: str) -> str:
    """A statement in the embedded engine's language, with what the parser reads and does not carry over."""
    for node in reversed(list(tree.find_all(exp.Round))):
        if node.args.get("truncate") is not None:
            node.replace(exp.Anonymous(this="round_off", expressions=[node.this]))
    for node in list(tree.find_all(exp.Unnest)):
        if isinstance(node.expressions[0], exp.Array):  # a list of structs, with names
            node.replace(list_structs(node))
    for node in tree.find_all(exp.Like):
        escaped = {
            "bigquery": ("\\\\", "\\"),
            "redshift": ("\\\\", "\\"),
            "postgres": ("\\\\", "\\"),
            "sqlserver": ("[[]", "["),
        }.get(dialect)
        if escaped:
            node.set("expression", exp.Literal.string(node.expression.name.replace(*escaped)))
    text = tree.sql(dialect="duckdb")
    for found, meant in IN_DUCKDB.items():
        text = re.sub(found, meant, text)
    return text


def list_structs(node: Any) -> Any:
    """Rows that BigQuery lists as structs."""
    structs, alias = node.expressions[0].expressions, node.args["alias"]
    listed = [exp.Tuple(expressions=[each.expression for each in struct.expressions]) for struct in structs]
    names = [exp.to_identifier(each.this.name, quoted=True) for each in structs[0].expressions]
    return exp.Values(
        expressions=listed, alias=exp.TableAlias(this=alias.args.get("this") or alias.columns[0], columns=names)
    )


def plain(row: Any) -> tuple[str, ...]:
    """A row of numbers, equal whichever type they have."""
    return tuple(str(float(each)) if isinstance(each, int | float) or hasattr(each, "as_tuple") else repr(each)
                 for each in row)  # fmt: skip


FORMS = {
    "regexp_replace": "SELECT COUNT(*) FROM visits WHERE REGEXP_REPLACE(city, 'a', 'b') = 'b'",
    "upper": "SELECT COUNT(*) FROM visits WHERE UPPER(city) = 'A'",
    "exp": "SELECT SUM(CLAMP(EXP(age), 0, 1)) FROM visits",
    "cast_integer": "SELECT SUM(CLAMP(CAST(city AS INTEGER), 0, 1)) FROM visits",
    "divide": "SELECT SUM(CLAMP(age / charge, 0, 1)) FROM visits",
    "multiply": "SELECT SUM(CLAMP(pid * 2, 0, 1)) FROM visits",
}


@pytest.mark.parametrize("dialect", WAREHOUSES)
@pytest.mark.parametrize("name", FORMS)
def test_what_is_not_known_to_be_equal_is_refused_before_a_charge(name: str, dialect: str) -> None:
    plan = compile_query(FORMS[name], TABLES, ApproxDP(Fraction(1), Fraction(1, 10**6)))
    with pytest.raises(QueryRefused, match=f"'{name}' of these arguments cannot be computed in {TITLES[dialect]}"):
        refuse_unsupported(plan, lambda _: dialect)


NEAR_ZERO = {
    "charge * 0.001": True,
    "0.001 * charge": True,
    "charge / 300": True,
    "charge * age": True,
    "age / CLAMP(age, 1, 9)": True,
    "CLAMP(charge, 1, 9) * CLAMP(charge, 0.5, 1)": True,
    "charge * charge": False,
    "charge / age": False,
    "charge / CLAMP(charge, 1, 9)": False,
}
"""Products and quotients, and whether none of their values can be too close to zero for Redshift."""


@pytest.mark.parametrize("form", NEAR_ZERO)
def test_no_value_near_zero_makes_a_question_fail_in_redshift(form: str) -> None:
    """A result too close to zero is taken to be an error there, as in PostgreSQL: it is written as zero, or refused."""
    text = f"SELECT SUM(CLAMP({form}, 0, 1)) FROM visits"
    plan = compile_query(text, TABLES, ApproxDP(Fraction(1), Fraction(1, 10**6)))
    assert refuse_unsupported(plan, lambda _: "snowflake")
    if not NEAR_ZERO[form]:
        with pytest.raises(QueryRefused, match="of these arguments cannot be computed in Redshift"):
            refuse_unsupported(plan, lambda _: "redshift")
        return
    assert refuse_unsupported(plan, lambda _: "redshift")


def test_what_is_too_close_to_zero_is_written_as_zero_for_redshift() -> None:
    types = {"t": {"x": "DOUBLE", "s": "VARCHAR"}}
    connection = duckdb.connect(config={"threads": 1})
    numbers = [5e-324, -5e-324, 2.3e-308, 1e-300, -1e-305, 0.0, 1.0, 250.0]
    connection.execute("CREATE TABLE t AS SELECT unnest(?) AS x, 'a' AS s", [numbers])
    for form, exact in (("x * 0.001", lambda x: x * 0.001), ("0.001 * x", lambda x: x * 0.001),
                        ("x / NULLIF(300, 0)", lambda x: x / 300), ("x / 0.5", lambda x: x / 0.5)):  # fmt: skip
        statement = render_for_warehouse(f"SELECT {form} AS y FROM t", types, "redshift")
        found = [row[0] for row in connection.execute(in_duckdb(read(statement, "redshift"), "redshift")).fetchall()]
        least = 0 if form == "x / 0.5" else sys.float_info.min
        assert found == [y if abs(y := exact(x)) >= least else 0 for x in numbers]
    hashed = render_for_warehouse("SELECT hash(CAST(1 AS UBIGINT), s) AS h FROM t", types, "redshift").sql
    assert "'v' || SHA2(CAST" in hashed  # two long texts side by side would not fit


@pytest.mark.parametrize("dialect", WAREHOUSES)
def test_the_questions_of_the_files_are_not_refused(dialect: str) -> None:
    for name in QUESTIONS:
        assert refuse_unsupported(compiled(name), lambda _: dialect)


def test_many_public_groups_are_refused_before_a_charge() -> None:
    text = "SELECT age, day, COUNT(*) FROM visits GROUP BY age, day"
    plan = compile_query(text, TABLES, ApproxDP(Fraction(1), Fraction(1, 10**6)))
    with pytest.raises(QueryRefused, match="36966 public groups"):
        refuse_unsupported(plan, lambda _: "trino")


def test_texts_are_not_measured_in_sql_server() -> None:
    plan = compile_query(
        "SELECT COUNT(*) FROM visits WHERE LENGTH(city) > 2", TABLES, ApproxDP(Fraction(1), Fraction(1, 10**6))
    )
    assert refuse_unsupported(plan, lambda _: "trino")
    with pytest.raises(QueryRefused, match="'length'"):
        refuse_unsupported(plan, lambda _: "sqlserver")
    assert "length" in ALLOWED


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in WAREHOUSES:
        (FOLDER / f"{each}.sql").write_text(written(each), encoding="utf-8")
