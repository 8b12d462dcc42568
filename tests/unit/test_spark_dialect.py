"""Our SQL in Spark's language: each form gives what the embedded engine gives; what cannot be equal is refused."""

from __future__ import annotations

import importlib.util
import math
import random
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clinic
from deniable.engines.base import Listed, Sampled
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.spark.session import (
    JAVA_HERE,
    choose_java_options,
    find_java_version,
    open_session,
    require_java,
)
from deniable.errors import DataError, QueryRefused
from deniable.policy.budget import PureDP
from deniable.policy.schema import Column, ColumnType, TableSchema
from deniable.query.algebra.functions import FUNCTION_FORMS
from deniable.query.compile import compile_query
from deniable.query.sql.dialects import (
    UNSUPPORTED_BY_SPARK,
    refuse_unsupported,
    render_for_postgresql,
    render_for_spark,
)
from engines_elsewhere import CUTS, EDGES, FAR, TABLE, TEXTS, UploadingSpark, read_exactly, write_form, write_parquet

NUMBERS = [
    "x + y", "x - y", "x * y", "x / NULLIF(y, 0)", "round(x)", "round(x, 2)", "round(x, -2)", "floor(x)", "ceil(x)",
    "trunc(x)", "sign(x)", "sqrt(x)", "abs(x)", "-x", "greatest(x, y)", "least(x, y)",
    "NULLIF(x, CAST('NaN' AS DOUBLE))",
    "TRY_CAST(x AS BIGINT)", "TRY_CAST(round(x) AS BIGINT)", "TRY_CAST(x AS INTEGER)", "x = y", "x < y", "x IS NULL",
    "CASE WHEN x BETWEEN -10 AND 10 THEN x END", "i // 7", "(i * i) // 7", "-i // 7", "i % 7",
    *(f"CAST((TRY_CAST({x} AS DECIMAL(22, 0)) % NULLIF(TRY_CAST({y} AS DECIMAL(22, 0)), 0)) AS DOUBLE)"
      for x, y in (("i", "7"), ("7", "i - 5"), ("CAST(i AS DOUBLE) * 9007199254740993", "7"),
                   ("round(x)", "round(y)"))),
    "CAST(x > y AS BIGINT)", "CAST(i > 2 OR NOT x = y AS BIGINT)", "-(i + 1) * (2 - i) % 7", "- (- 5)",
    "CASE WHEN (i > 3 OR x < y) AND y IS NOT NULL THEN (x + 1e-3) / 2.5 WHEN i % 2 = 0 THEN -x ELSE 0.1 END",
    "CASE i % 3 WHEN 0 THEN x WHEN 1 THEN y END",
    "sum(i + 4611686018427387904) OVER ()",
]  # fmt: skip
WORDS = [
    "lower(s)", "length(s)", "strlen(s)", "left(s, 2)", "left(s, -2)", "right(s, 2)", "right(s, -2)",
    "substr(s, 2)", "substr(s, -2)", "substr(s, 0, 2)", "substr(s, -3, 2)", "substr(s, 2, -1)", "substr(s, 5, 100)",
    "trim(s)", "ltrim(s)", "rtrim(s)", "trim(s, 'a')", "replace(s, 'a', 'xy')", "replace(s, '', 'x')", "s || 'z'",
    "concat(s, NULL, 'z')", "s LIKE 'a\\b'", "s LIKE 'a_b'", "s LIKE '%\\%'", "s ILIKE 'Ä%'", "starts_with(s, 'a')",
    "ends_with(s, 'b')", "contains(s, 'e')", "s < 'b'", "s = ''", "COALESCE(s, 'none')", "concat_ws('-', s, s)",
    "s IN ('a', 'it''s', 'a\\b')", "trim(concat('\u00a0', s, '\u3000'))",
]  # fmt: skip
TIMES = [
    "d + CAST(3 AS SMALLINT)", "d - CAST(400 AS SMALLINT)", "date_diff('day', d, DATE '2000-01-01')", "epoch(m)",
    "year(d)", "CAST(d AS VARCHAR)", "CAST(m AS VARCHAR)", "CAST((d + to_months(CAST(1 AS INTEGER))) AS DATE)",
    "m + to_months(CAST(-13 AS INTEGER))", "m + to_seconds(CAST(86399 AS BIGINT))", "strftime(d, '%Y-%m')",
    "strftime(m, 'week''s %d.%m.%Y \"H\" %H:%M:%S %f')", "d < DATE '2000-02-29'", "CAST(d AS TIMESTAMP) = m",
    *(f"extract({part} FROM {of})" for part in ("year", "month", "day", "hour", "minute", "second", "quarter", "week",
                                                 "dow", "isodow", "doy") for of in ("m", "CAST(m AS DATE)")),
    "strftime(CAST(m AS DATE), '%Y-%m')", "date_diff('day', CAST(m AS DATE), d)", "year(CAST(m AS DATE))",
    *(f"CAST(date_trunc('{unit}', {of}) AS TIMESTAMP)"
      for unit in ("year", "quarter", "month", "week", "day", "hour", "minute")
      for of in ("m", "d", "CAST(m AS DATE)", "DATE '2020-02-29'")),
]  # fmt: skip


@pytest.fixture
def engines(spark_session: Any, tmp_path: Path) -> Iterator[tuple[DuckDBEngine, UploadingSpark]]:
    """The embedded engine, and Spark."""
    with DuckDBEngine(threads=1, root=tmp_path) as here, UploadingSpark(spark_session, tmp_path) as there:
        yield here, there


def compare(engines: tuple[Any, Any], rows: pa.Table, expressions: list[str]) -> int:
    """Compute all expressions over all rows in both engines; says how many values were equal."""
    listed = ", ".join(f"{each} AS e{place}" for place, each in enumerate(expressions))
    found = []
    for engine in engines:
        engine.attach("t", rows)
        found.append(engine.run(f"SELECT {listed} FROM t ORDER BY i"))
    here, there = found
    for place, expression in enumerate(expressions):
        left, right = ([settle(value) for value in table.column(place).to_pylist()] for table in (here, there))
        assert left == right, expression
    return int(here.num_rows) * len(expressions)


def settle(value: Any) -> object:
    """A value, equal for what is one number in whichever type; zero has one sign."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return int(value) if hasattr(value, "as_tuple") else value


def test_numbers_are_computed_alike(engines: Any) -> None:
    drawn = random.Random(1)
    pairs = [(x, y) for x in EDGES for y in EDGES]
    pairs += [(drawn.uniform(-1, 1) * 10.0 ** drawn.randint(-20, 20), drawn.gauss(0, 100)) for _ in range(500)]
    pairs += [(drawn.randint(-4000, 4000) / 8, 0.5) for _ in range(300)]
    rows = pa.table({"i": range(len(pairs)), "x": [x for x, _ in pairs], "y": [y for _, y in pairs]})
    assert compare(engines, rows, NUMBERS) > 30_000


def test_texts_are_computed_alike(engines: Any) -> None:
    drawn = random.Random(2)
    texts = [*TEXTS, None, "it's", "a\\b", " a b ", "\ta\n", "%", "_", "Σίσυφος ΣΑΣ", "ẞ"]
    texts += ["".join(drawn.choice("abAB é🙂\\%_'\u0301Ω") for _ in range(drawn.randint(0, 9))) for _ in range(200)]
    rows = pa.table({"i": range(len(texts)), "s": texts})
    assert compare(engines, rows, WORDS) > 6_000


def test_no_number_makes_a_cut_fail_and_all_are_alike(engines: Any) -> None:
    cases = [(s, n, m) for s in ("abcdefgh", "", "Ä🙂", None) for n in (*FAR, None) for m in (*FAR, None)]
    s, n, m = zip(*cases, strict=True)
    assert compare(engines, pa.table({"i": range(len(cases)), "s": s, "n": n, "m": m}), list(CUTS.values())) > 4_000


def test_letters_of_all_of_unicode_change_their_case_alike(engines: Any) -> None:
    # Letters that were added to Unicode lately are known to one engine, and not yet to the other.
    added = "\u019b\u0264\u1c89\u1c8a"
    letters = [chr(i) for i in range(1, 0x2FFF) if unicodedata.category(chr(i)) != "Cn" and chr(i) not in added]
    rows = pa.table({"i": range(len(letters)), "s": letters})
    assert compare(engines, rows, ["lower(s)", "upper(s)"]) > 20_000


def test_dates_are_computed_alike(engines: Any) -> None:
    drawn = random.Random(3)
    moments = [datetime(3, 2, 3, 4, 5, 6), datetime(9998, 12, 31, 23, 59, 59, 999_999), datetime(1582, 10, 10), None]
    moments += [datetime(1900, 1, 1) + timedelta(seconds=drawn.randint(0, 5 * 10**9), microseconds=drawn.choice(
        (0, 500_000, 1))) for _ in range(300)]  # fmt: skip
    days: list[date | None] = [None if each is None else each.date() for each in moments]
    rows = pa.table({"i": range(len(days)), "d": days, "m": pa.array(moments, pa.timestamp("us"))})
    assert compare(engines, rows, TIMES) > 9_000


def test_lists_stand_side_by_side(engines: Any) -> None:
    rows = pa.table({"i": [1]})
    for engine in engines:
        engine.attach("t", rows)
    for sql in (
        "SELECT k, n, i FROM (SELECT unnest(['a', 'b', 'c']) AS k, unnest(range(0, 3)) AS n) AS l, t ORDER BY k",
        "SELECT d, i FROM (SELECT (DATE '2020-02-28' + CAST(unnest(range(0, 5, 2)) AS INTEGER)) AS d) AS l, t",
        "SELECT n, i FROM (SELECT unnest(range(3, 3)) AS n) AS l, t",
    ):
        assert engines[1].run(sql).to_pylist() == engines[0].run(sql).to_pylist(), sql


def ask_there(conditions: list[str]) -> Any:
    """The plan of a question that counts by each condition, if it can be computed in Spark."""
    listed = ", ".join(f"COUNT_IF({each}) AS n{place}" for place, each in enumerate(conditions))
    return refuse_unsupported(compile_query(f"SELECT {listed} FROM visits", (TABLE,), PureDP(1)), lambda _: "spark")


def test_every_function_is_rendered_and_accepted_or_refused(engines: Any) -> None:

    taken, refused = [], set()
    for name, form in FUNCTION_FORMS.items():
        condition = f"({write_form(form)}) IS NOT NULL AND pid > 3"
        try:
            ask_there([condition])
            taken.append(condition)
        except QueryRefused:
            refused.add(name)
    texts = {"cast_boolean", "cast_date", "cast_datetime"}
    assert refused == {*UNSUPPORTED_BY_SPARK} | texts
    for engine in engines:
        engine.attach("visits", clinic.people(), TABLE)
    plan = ask_there(taken)
    assert read_exactly(plan, engines[1]) == read_exactly(plan, engines[0])


def test_rows_are_kept_left_out_and_sampled_by_people(engines: Any) -> None:
    here, there = engines
    names = [
        "ana",
        "ANA ",
        "Ána",
        "007",
        "7",
        "8",
        None,
        "7.0",
        "9007199254740992.0",
        "9007199254740993",
        "1e+16",
        "7e",
    ]
    rows = pa.table({"who": names, "n": range(1, 13)})
    for engine in engines:
        engine.attach("t", rows)
    for restriction in (
        Listed("who", ("Ana",), keep=False, loose=True),
        Listed("who", ("7",), keep=False, loose=True),
        Listed("who", ("7",), keep=False, loose=True, by_number=True),
        Listed("who", ("9007199254740993", "10000000000000000"), keep=False, loose=True, by_number=True),
        Listed("who", ("9007199254740992.0",), keep=False, loose=True, by_number=True),
        Listed("who", ("ana", "8"), keep=True),
        Listed("n", ("2", "3.0", "x"), keep=True),
    ):
        for engine in engines:
            engine.restrict("t", restriction)
        assert there.run("SELECT n FROM t ORDER BY n") == here.run("SELECT n FROM t ORDER BY n"), restriction

    many = pa.table({"who": [i // 5 for i in range(5_000)], "n": range(5_000)})
    there.attach("many", many)
    there.restrict("many", Sampled(Fraction(1, 4), "who", 12))
    kept = there.run("SELECT who, count(*) AS n FROM many GROUP BY who")
    assert set(kept["n"].to_pylist()) == {5}  # all rows of a person or none
    assert 180 < kept.num_rows < 320
    there.restrict("many", Sampled(Fraction(1, 4), None, 12))
    assert 1_000 < there.count("many") < 1_500


def test_a_column_that_does_not_fit_is_refused_and_types_are_those_of_a_policy(engines: Any) -> None:
    rows = pa.table({"i": [1], "f": pa.array([math.nan], pa.float32()), "d": [date(2020, 1, 1)], "l": [[1, 2]]})

    source = write_parquet(rows, engines[1].folder)
    engines[1].attach("t", source)
    assert [field.type.value for field in engines[1].describe("t")] == ["integer", "decimal", "date", "text"]
    assert engines[1].run("SELECT f FROM t")["f"].to_pylist() == [None]
    with pytest.raises(DataError, match="holds values of type 'date', and is declared as 'integer'"):
        engines[1].attach("t", source, TableSchema("t", "", (Column("d", ColumnType.INTEGER),)))
    with pytest.raises(DataError, match="Spark has no table or folder"):
        engines[1].attach("t", "spark:no.such_table")
    with pytest.raises(DataError, match="Spark has no table or folder"):
        engines[1].attach("t", f"spark:{engines[1].folder}/nothing")


def test_the_version_of_a_folder_and_of_a_table_changes_with_its_rows(engines: Any, tmp_path: Path) -> None:

    there = engines[1]
    source = write_parquet(pa.table({"x": [1, 2]}), tmp_path)
    there.attach("t", source)
    there._session.sql(f"CREATE OR REPLACE TEMP VIEW kept AS SELECT * FROM parquet.`{source[6:]}`")
    there.attach("kept", "spark:kept")
    before = there.data_version("t"), there.data_version("kept")
    assert (there.data_version("t"), there.data_version("kept")) == before
    pq.write_table(pa.table({"x": [3]}), Path(source[6:]) / "2.parquet")
    there._session.catalog.refreshByPath(source[6:])
    assert there.data_version("t") != before[0]
    assert there.data_version("kept") != before[1]


def test_files_that_come_later_are_read_and_other_columns_are_refused(engines: Any, tmp_path: Path) -> None:
    """A folder's columns are looked for when it is attached, and again before a charge; its files at each statement."""
    there, asked = engines[1], "SELECT count(x) AS n, sum(x) AS s FROM t"
    source = write_parquet(pa.table({"x": [1, 2]}), tmp_path)
    there.attach("t", source)
    assert there.run(asked).to_pylist() == [{"n": 2, "s": 3}]
    pq.write_table(pa.table({"x": [3], "y": ["later"]}), Path(source[6:]) / "2.parquet")
    there.reach("t")
    assert there.run(asked).to_pylist() == [{"n": 3, "s": 6}]
    assert there._session.sql("SHOW TABLES LIKE 'deniable*'").collect() == []
    for file in Path(source[6:]).glob("*"):
        file.unlink()
    pq.write_table(pa.table({"y": ["other"]}), Path(source[6:]) / "3.parquet")
    with pytest.raises(DataError, match="has other columns than when it was opened"):
        there.reach("t")


def test_missing_and_old_java_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="Spark needs Java, which was not found"):
        require_java()
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    assert find_java_version() == 8
    with pytest.raises(DataError, match="needs Java 17 or newer, and Java 8 was found"):
        require_java()


def test_java_takes_its_options_which_stand_back_behind_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    assert choose_java_options("spark://host:7077") == ""
    assert choose_java_options("local[*]") == JAVA_HERE
    if find_java_version() is not None:
        subprocess.run(["java", *JAVA_HERE.split(), "-version"], check=True, capture_output=True)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")  # Java would not start with two collectors
    assert choose_java_options("local[*]") == ""


@pytest.mark.skipif(importlib.util.find_spec("grpc") is not None, reason="the packages of Spark Connect are here")
@pytest.mark.filterwarnings("ignore::FutureWarning")  # what Spark says of pandas
def test_missing_packages_of_spark_connect_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    # A main module without a file, as that of a test's worker, is taken by Spark for its own tests, which it ends.
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    with pytest.raises(DataError, match="Spark Connect needs packages that are missing") as refused:
        open_session()
    assert "pyspark[connect]" in str(refused.value.remedy)


def test_the_bound_of_a_column_is_that_of_the_nearest_source_of_its_name() -> None:
    """A union in between has columns of its own, though a sub-query further out has the same name."""
    import sqlglot
    from sqlglot import exp

    from deniable.query.sql.spark import find_bound

    inner = "SELECT c.x * 2 AS y FROM ({}) AS c"
    for source, bound in (
        ("SELECT CAST(7 AS BIGINT) AS x", 14),
        ("SELECT x FROM a UNION ALL SELECT x FROM b", None),
        ("SELECT x FROM a", None),
    ):
        text = f"SELECT c.x FROM (SELECT 3 AS x FROM ({inner.format(source)}) AS d) AS c"
        tree = sqlglot.parse_one(text, read="duckdb")
        assert find_bound(tree.find(exp.Mul)) == bound


def test_code_that_was_compiled_for_a_question_serves_for_another_salt(
    spark_session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark writes numbers into the code of a statement: it would be compiled and made fast anew for each question."""
    spark_session.range(10).createOrReplaceTempView("salted")
    changed = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark_session.conf.get(name) for name in changed}
    codes = []
    try:
        for name, value in changed.items():
            spark_session.conf.set(name, value)
        for salt in (7077070707, 8088080808):
            asked = f"SELECT hash(id, CAST({salt} AS UBIGINT)) AS h FROM salted"
            capsys.readouterr()
            spark_session.sql(render_for_spark(asked, {"salted": {"id": "BIGINT"}}).sql).explain(mode="codegen")
            codes.append(capsys.readouterr().out.partition("Generated code:")[2])
    finally:
        for name, value in before.items():
            spark_session.conf.set(name, value)
    assert "XXH64" in codes[0]
    assert codes[0] == codes[1]


SHARES = (
    "SELECT k, sum(CASE WHEN n > {most} THEN (s * 16384) // {under} ELSE s * 8192 END) AS x FROM (SELECT k, k AS other,"
    " COALESCE(sum({summed}), 0) AS s, count({counted}) AS n FROM (SELECT k, b, v,"
    " CASE WHEN b THEN 100 - CAST(v AS BIGINT) END AS a, CASE WHEN b THEN CAST(v AS BIGINT) - 0 END AS c,"
    " CASE WHEN NOT b THEN v END AS d FROM (SELECT k, b, CASE WHEN v > 0 THEN least(100, greatest(0, v)) END AS v"
    " FROM t) AS t) AS p GROUP BY k) AS u GROUP BY k"
)
TYPES = {"t": {"k": "BIGINT", "b": "BOOLEAN", "v": "BIGINT"}}


@pytest.mark.parametrize(
    ("summed", "counted", "most", "under", "fits"),
    [
        ("a", "a", "2", "n", True),
        ("c", "COALESCE(a, d, NULL)", "2", "n", True),
        ("a", "c", "2", "n", True),
        ("a", "d", "2", "n", False),
        ("a", "v", "2", "n", False),
        ("v", "a", "2", "n", False),
        ("a", "k", "2", "n", False),
        ("a", "DISTINCT a", "2", "n", False),
        ("a", "a", "other", "n", False),
        ("a", "a", "2", "other", False),
    ],
)
def test_shares_of_people_are_summed_in_64_bits_only_where_they_are_known_to_be_small(
    summed: str, counted: str, most: str, under: str, fits: bool
) -> None:
    found = render_for_spark(SHARES.format(summed=summed, counted=counted, most=most, under=under), TYPES).sql
    assert ("shiftright" not in found and "sum(`if`" in found) is fits


def test_a_whole_result_is_sorted_here_and_lists_with_numbers_are_not_made_distinct() -> None:
    keys = "SELECT DISTINCT * FROM (SELECT unnest(['a', 'b']) AS w, unnest(range(2)) AS c) AS p"
    statement = f"SELECT k.w, t.v AS n FROM ({keys}) AS k LEFT JOIN t ON t.k = k.c ORDER BY k.w"
    found = render_for_spark(statement, TYPES)
    assert found.order == ("w",)
    assert "ORDER BY" not in found.sql
    assert "DISTINCT" not in found.sql
    assert render_for_spark(statement + " LIMIT 1", TYPES).order == ()
    for kept in (" DESC", " NULLS FIRST", ", t.b"):
        other = render_for_spark(statement + kept, TYPES)
        assert not other.order
        assert "ORDER BY" in other.sql
    for several in ("SELECT DISTINCT k FROM t", keys.replace("*", "w"), keys.replace(", unnest(range(2)) AS c", "")):
        assert "DISTINCT" in render_for_spark(several, TYPES).sql
    assert render_for_postgresql(statement, TYPES).order == ()


def test_nested_arithmetic_choices_and_casts_are_written_as_calls_without_brackets() -> None:
    """Spark's parser reads on to the end at each bracket, CASE and CAST: seconds for a statement that nests them."""
    inner = "CAST(v AS DOUBLE)"
    for _ in range(5):
        inner = f"(CASE WHEN b THEN ((CAST({inner} AS DOUBLE) + 1.5) / (2 * v)) END)"
    found = render_for_spark(f"SELECT {inner} AS x FROM t", TYPES).sql
    assert found.count("`if`(`t`.`b`, `/`(`+`(") == 5
    assert not [word for word in (" (", "((", "CASE", "CAST(") if word in found]


def test_rows_are_shuffled_once_for_two_windows_over_the_rows_of_people(spark_session: Any) -> None:
    copied = "SELECT *, row_number() OVER (PARTITION BY k, v ORDER BY k) AS _copy FROM t WHERE k IS NOT NULL"
    ranked = f"SELECT *, row_number() OVER (PARTITION BY k ORDER BY hash(k, v, _copy)) AS _rank FROM ({copied}) AS n"
    found = render_for_spark(f"SELECT v FROM ({ranked}) AS r WHERE _rank <= 2", TYPES).sql
    rows = "t AS (SELECT id % 7 AS k, id > 3 AS b, id % 5 AS v FROM range(100))"
    ((plan,),) = spark_session.sql(f"EXPLAIN WITH {rows} {found}").collect()
    assert plan.count("Window") >= 2
    assert plan.count("Exchange") == 1, plan
