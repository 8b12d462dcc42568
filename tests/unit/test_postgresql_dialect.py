"""Our SQL in PostgreSQL's language: each form that differs gives what plain Python gives; what cannot be equal is
refused."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import clinic
from deniable.engines.base import Listed
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.postgresql.engine import PostgreSQLEngine, write_table
from deniable.engines.postgresql.tables import locate_table
from deniable.errors import DataError, InternalError, QueryRefused
from deniable.policy.budget import PureDP
from deniable.policy.schema import Column, ColumnType, TableSchema
from deniable.query.algebra.expression import Kind, literal
from deniable.query.algebra.functions import FUNCTION_FORMS, FUNCTIONS, parse_date
from deniable.query.compile import compile_query
from deniable.query.sql.dialects import (
    READ_FROM_TEXT,
    UNSUPPORTED,
    refuse_unsupported,
    render_for_postgresql,
)
from deniable.query.sql.postgresql import POSTGRESQL
from deniable.server.wire import values
from engines_elsewhere import CUTS, EDGES, FAR, TABLE, TEXTS, UploadingPostgreSQL, read_exactly, write_form


def settle(number: float | None) -> object:
    """A number as it is compared: zero has one sign."""
    if number is None or math.isnan(number):
        return None if number is None else "nan"
    return number + 0.0


def divide(x: float, y: float) -> float | None:
    """IEEE division; none by zero."""
    if y == 0:
        return None
    try:
        return x / y
    except OverflowError:
        return math.copysign(math.inf, x) * math.copysign(1, y)


def round_half_up(x: float) -> float:
    """Rounding half away from zero."""
    if not math.isfinite(x):
        return x
    return math.copysign(math.floor(abs(Fraction(x)) + Fraction(1, 2)), x)


def exponential(x: float) -> float:
    """e to the power of x, infinite where it is too large."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def raise_to_half(x: float) -> float:
    """The power with the exponent 1/2, which is infinite for -infinity, and no number for others below 0."""
    return math.nan if -math.inf < x < 0 else math.pow(x, 0.5)


def square(x: float) -> float:
    """x times x."""
    return x * x


TWO: dict[str, tuple[str, Callable[[float, float], float | None]]] = {
    "add": ("x + y", lambda x, y: x + y),
    "subtract": ("x - y", lambda x, y: x - y),
    "multiply": ("x * y", lambda x, y: x * y),
    "divide": ("x / NULLIF(y, 0)", divide),
}
ONE: dict[str, tuple[str, Callable[[float], float | None]]] = {
    "round": ("round(x)", round_half_up),
    "exp": ("exp(x)", exponential),
    "sqrt": ("sqrt(x)", lambda x: math.nan if x < 0 else math.sqrt(x)),
    "sign": ("sign(x)", lambda x: 0.0 if math.isnan(x) or x == 0 else math.copysign(1, x)),
    "power": ("pow(x, CAST(2 AS DOUBLE))", square),
    "fractional power": ("pow(x, CAST(0.5 AS DOUBLE))", raise_to_half),
    "to_whole": ("TRY_CAST(x AS BIGINT)", lambda x: float(round(x)) if -(2.0**63) <= x < 2.0**63 else None),
    "is_finite": ("CASE WHEN isfinite(x) THEN 1 ELSE 0 END", lambda x: float(math.isfinite(x))),
    "is_infinite": ("CASE WHEN isinf(x) THEN 1 ELSE 0 END", lambda x: float(math.isinf(x))),
}


@pytest.fixture(scope="module")
def connection(postgres_address: str) -> Iterator[Any]:
    """A plain connection."""
    with psycopg.connect(postgres_address, autocommit=True) as opened:
        yield opened


def compute(connection: Any, expression: str, **columns: list[Any]) -> list[Any]:
    """What an expression of ours gives in PostgreSQL for each row of a table of these columns."""
    kinds = {float: ("DOUBLE", "double precision"), str: ("VARCHAR", "text"), int: ("BIGINT", "bigint")}
    types = {name: kinds[next(type(v) for v in values if v is not None)] for name, values in columns.items()}
    statement = render_for_postgresql(
        f"SELECT {expression} AS v FROM t ORDER BY i", {"t": {"i": "BIGINT", **{n: t[0] for n, t in types.items()}}}
    )
    listed = ", ".join(f"%s::{types[name][1]}[]" for name in columns)
    text = statement.sql.replace("%", "%%").replace(
        'FROM "t"', f'FROM unnest({listed}) WITH ORDINALITY AS "t"({", ".join([*columns, "i"])})').replace(
        'AS "t" ORDER', "ORDER")  # fmt: skip
    text = text.replace(') AS "t"', ")", 1) if ') AS "t"(' not in text else text
    return [value for (value,) in connection.execute(text, list(columns.values())).fetchall()]


@pytest.mark.parametrize("name", TWO)
def test_arithmetic_never_fails_and_is_that_of_doubles(connection: Any, name: str) -> None:
    expression, oracle = TWO[name]
    pairs = [(x, y) for x in EDGES for y in EDGES]
    found = compute(connection, expression, x=[x for x, _ in pairs], y=[y for _, y in pairs])
    assert [settle(v) for v in found] == [settle(oracle(x, y)) for x, y in pairs]
    assert compute(connection, expression, x=[None, 1.0, 1e308], y=[1.0, None, None]) == [None] * 3


def list_pairs_at_the_edge(draw: random.Random) -> Iterator[tuple[float, float]]:
    """Pairs whose sum, difference, product or quotient is about the largest or the smallest number."""
    most = sys.float_info.max
    for _ in range(2_000):
        y = draw.choice((draw.uniform(1, 2), 10 ** draw.uniform(0, 300), 10 ** draw.uniform(-300, 0)))
        z = draw.choice((draw.uniform(0, most), 2.0 ** draw.randrange(960, 975) * draw.uniform(0.5, 1)))
        for x, other in (
            (most / max(y, 1.0), max(y, 1.0)),
            (most * min(y, 1.0), min(y, 1.0)),
            (most - z, z),
            (z - most, -z),
        ):
            for near in (x, math.nextafter(x, math.inf), math.nextafter(x, -math.inf), math.nextafter(x, 0)):
                if math.isfinite(near):
                    yield near, other
                    yield -near, other


@pytest.mark.parametrize("name", TWO)
def test_arithmetic_never_fails_where_it_is_almost_too_large(connection: Any, name: str) -> None:
    expression, oracle = TWO[name]
    pairs = list(list_pairs_at_the_edge(random.Random(9)))
    found = compute(connection, expression, x=[x for x, _ in pairs], y=[y for _, y in pairs])
    assert [settle(v) for v in found] == [settle(oracle(x, y)) for x, y in pairs]
    assert len(pairs) > 50_000


def list_pairs_at_zero(draw: random.Random) -> Iterator[tuple[float, float]]:
    """Pairs whose product or quotient is about half the smallest number, or has fewer digits than others."""
    for _ in range(3_000):
        result = draw.choice((2.0**-1074, 2.0**-1074 * draw.randrange(1, 9), 2.0**-1073 * draw.randrange(1, 2**52)))
        by = draw.choice((0.5, draw.uniform(0.1, 1), 2.0 ** -draw.randrange(1, 1074), 10 ** -draw.uniform(0, 320)))
        over = min(draw.choice((2.0, 1 / by if by > 1e-300 else 3.0, 10 ** draw.uniform(0, 300))), sys.float_info.max)
        for x, y in ((result / by if by > 1e-300 else result, by), (result / 2 * over, over), (result * over, over)):
            for near in (x, math.nextafter(x, 1), math.nextafter(x, 0), x / 2, x * 0.75):
                # A product that is nearer to half the smallest number is zero here.
                if abs(Fraction(near) * Fraction(y) * 2**1075 - 1) * 2**53 > 1:
                    yield near, y
                    yield y, -near


@pytest.mark.parametrize("name", TWO)
def test_arithmetic_never_fails_where_it_is_almost_zero(connection: Any, name: str) -> None:
    expression, oracle = TWO[name]
    pairs = list(list_pairs_at_zero(random.Random(8)))
    found = compute(connection, expression, x=[x for x, _ in pairs], y=[y for _, y in pairs])
    assert [settle(v) for v in found] == [settle(oracle(x, y)) for x, y in pairs]
    tiny = [oracle(x, y) or 0.0 for x, y in pairs]
    if name in ("multiply", "divide"):
        assert sum(each == 0 for each in tiny) > 1_000 < sum(0 < abs(each) < 2.2e-308 for each in tiny)


@pytest.mark.parametrize("exponent", [2, 3, 5, 1.5, 0.5])
def test_powers_never_fail_where_they_are_almost_zero(connection: Any, exponent: float) -> None:
    edge = 2 ** (-1075 / exponent) if exponent > 1 else 5e-324
    bases = [edge * (1 + step * 2.0**-50) for step in range(-40, 40)] + [edge * f for f in (0.5, 1.01, 2, 50, 1e3, 1e9)]
    found = compute(connection, f"pow(x, CAST({exponent} AS DOUBLE))", x=bases)
    for base, value in zip(bases, found, strict=True):
        assert value == pytest.approx(math.pow(base, exponent), rel=1e-15, abs=5e-324)  # an odd tie aside


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number_never_fail_and_are_those_of_doubles(connection: Any, name: str) -> None:
    expression, oracle = ONE[name]
    assert [settle(None if v is None else float(v)) for v in compute(connection, expression, x=EDGES)] == [
        settle(oracle(x)) for x in EDGES
    ]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=30))
def test_any_doubles_give_what_python_gives(connection: Any, pairs: list[tuple[float, float]]) -> None:
    for expression, oracle in TWO.values():
        found = compute(connection, expression, x=[x for x, _ in pairs], y=[y for _, y in pairs])
        assert [settle(v) for v in found] == [settle(oracle(x, y)) for x, y in pairs]


def cut(text: str, start: int, length: int) -> str:
    """A part of a text, by positions from 1, or from its end where the start is below 0."""
    begin = start if start >= 0 else len(text) + start + 1
    low, high = sorted((begin, begin + length))
    return text[max(low, 1) - 1 : max(high, 1) - 1]


def test_parts_of_texts_are_cut_alike(connection: Any) -> None:
    cases = [(text, n, m) for text in TEXTS for n in (-9, -2, -1, 0, 1, 2, 9) for m in (-9, -1, 0, 1, 2, 9)]
    found = compute(
        connection,
        "substr(s, TRY_CAST(n AS INTEGER), TRY_CAST(m AS INTEGER))",
        s=[s for s, _, _ in cases],
        n=[n for _, n, _ in cases],
        m=[m for _, _, m in cases],
    )
    assert found == [cut(*case) for case in cases]
    assert compute(connection, "substr(s, TRY_CAST(n AS INTEGER), 1)", s=["abc", "b"], n=[None, 1]) == [None, "b"]


@pytest.mark.parametrize("name", CUTS)
def test_no_number_makes_a_cut_fail_and_all_are_those_of_duckdb(connection: Any, name: str) -> None:
    cases = [(s, n, m) for s in ("abcdefgh", "", "Ä🙂") for n in FAR for m in (FAR if name == "a part" else (0,))]
    s, n, m = (list(each) for each in zip(*cases, strict=True))
    rows = pa.table({"i": range(len(cases)), "s": s, "n": n, "m": m})
    expected = duckdb.from_arrow(rows).query("t", f"SELECT {CUTS[name]} FROM t ORDER BY i").fetchall()
    assert compute(connection, CUTS[name], s=s, n=n, m=m) == [value for (value,) in expected]


def test_texts_are_compared_sign_by_sign(connection: Any) -> None:
    pairs = [(a, b) for a in TEXTS for b in TEXTS]
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    for expression, oracle in (
        ("contains(s, z)", lambda a, b: b in a),
        ("starts_with(s, z)", lambda a, b: a.startswith(b)),
        ("ends_with(s, z)", lambda a, b: a.endswith(b)),
        ("s LIKE 'a\\b'", lambda a, b: a == "a\\b"),
        ("s LIKE 'a_b'", lambda a, b: a in ("a_b", "a\\b")),
    ):
        assert compute(connection, expression, s=left, z=right) == [oracle(a, b) for a, b in pairs], expression


def test_letters_of_all_of_unicode_change_their_case_as_in_the_embedded_engine(connection: Any, engine: Any) -> None:
    letters = [chr(i) for i in range(1, 0x2FFF)]
    engine.attach("t", pa.table({"s": letters, "i": range(len(letters))}))
    for expression in ("lower(s)", "upper(s)"):
        here = engine.run(f"SELECT {expression} AS v FROM t ORDER BY i")["v"].to_pylist()
        assert compute(connection, expression, s=letters) == here


def ask_there(conditions: list[str]) -> Any:
    """The plan of a question that counts by each condition, if it can be computed in PostgreSQL."""
    listed = ", ".join(f"COUNT_IF({each}) AS n{place}" for place, each in enumerate(conditions))
    plan = compile_query(f"SELECT {listed} FROM visits", (TABLE,), PureDP(Fraction(1)))
    return refuse_unsupported(plan, lambda table: "there")


def test_every_function_is_rendered_and_accepted_or_refused(postgres_address: str) -> None:
    """No function of the allow-list is left to chance: each runs in PostgreSQL, or is refused before a charge."""
    taken, refused = [], set()
    for name, form in FUNCTION_FORMS.items():
        condition = f"({write_form(form)}) IS NOT NULL AND pid > 3"
        try:
            ask_there([condition])
            taken.append(condition)
        except QueryRefused:
            refused.add(name)
    assert refused == {"regexp_replace", "log2", "modulo", "cast_boolean", "cast_date", "cast_datetime", "cast_text"}
    assert refused <= {*UNSUPPORTED, *READ_FROM_TEXT} <= FUNCTIONS.keys()
    with UploadingPostgreSQL(postgres_address) as there, DuckDBEngine(threads=1) as here:
        for engine in (there, here):
            engine.attach("visits", clinic.people(), TABLE)
        for start in range(0, len(taken), 20):
            plan = ask_there(taken[start : start + 20])
            assert read_exactly(plan, there) == read_exactly(plan, here), taken[start : start + 20]


def test_what_is_kept_of_a_unit_does_not_depend_on_anybody_else(postgres_address: str) -> None:
    rows = {"unit": [u for u in range(40) for _ in range(6)], "k": [k for _ in range(40) for k in range(6)]}
    chosen = (
        "SELECT unit, k FROM (SELECT unit, k, dense_rank() OVER (PARTITION BY unit ORDER BY "
        "hash(CAST({salt} AS UBIGINT), k, unit), k) AS g FROM t) AS r WHERE g <= 2"
    )

    def keep(engine: Any, salt: int) -> set[tuple[int, int]]:
        return {(r["unit"], r["k"]) for r in engine.run(chosen.format(salt=salt)).to_pylist()}

    with UploadingPostgreSQL(postgres_address) as engine:
        engine.attach("t", pa.table(rows))
        whole, other = keep(engine, 77), keep(engine, 78)
        assert len(whole) == 80
        assert whole != other  # another salt keeps others
        assert len({k for _, k in whole}) == 6  # no group is preferred
        engine.restrict("t", Listed("unit", ("3", "17"), keep=False))
        assert keep(engine, 77) == {(u, k) for u, k in whole if u not in (3, 17)}


def test_values_without_a_counterpart_are_null_and_types_are_those_of_a_policy(postgres_address: str) -> None:
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS odd")
        connection.execute(
            "CREATE TABLE odd (i smallint, n numeric, f real, d date, t timestamptz, c char(4), u uuid, j jsonb)"
        )
        connection.execute(
            "INSERT INTO odd VALUES (1, 'NaN', 'NaN', 'infinity', '2020-01-01 02:00+02', 'ab', NULL, '{}'),"
            " (2, 1e400, 1.5, '0044-03-15 BC', 'infinity', '', NULL, NULL), (3, 0.1, 'Infinity', '1883-02-28',"
            " '1969-12-31 23:59:59.5+00', 'é', '00000000-0000-0000-0000-000000000001', NULL)"
        )
    with PostgreSQLEngine(render=render_for_postgresql) as engine:
        engine.attach("odd", f"{postgres_address}#odd")
        kinds = [field.type.value for field in engine.describe("odd")]
        assert kinds == ["integer", "decimal", "decimal", "date", "datetime", "text", "text", "text"]
        rows = engine.run("SELECT * FROM odd ORDER BY i").to_pylist()
        assert [row["n"] for row in rows] == [None, None, 0.1]
        assert [row["f"] for row in rows] == [None, 1.5, math.inf]
        assert [row["d"] for row in rows] == [None, None, date(1883, 2, 28)]
        assert rows[0]["t"] == datetime(2020, 1, 1)
        assert rows[1]["t"] is None
        assert rows[2]["t"].microsecond == 500_000
        with pytest.raises(DataError, match="holds values of type 'date', and is declared as 'integer'"):
            engine.attach("odd", f"{postgres_address}#odd", TableSchema("odd", "", (Column("d", ColumnType.INTEGER),)))
        with pytest.raises(DataError, match=r"Did you mean 'public\.odd'"):
            engine.attach("odd", f"{postgres_address}#public.od")


def test_the_version_of_a_table_and_of_what_reads_it_changes_with_its_rows(postgres_address: str) -> None:
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS parted CASCADE")
        connection.execute("CREATE TABLE parted (x int) PARTITION BY RANGE (x)")
        connection.execute("CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)")
        connection.execute("CREATE VIEW parted_view AS SELECT x + 1 AS x FROM parted")
    with PostgreSQLEngine(render=render_for_postgresql) as engine:
        for name in ("parted", "parted_view"):
            engine.attach(name, f"{postgres_address}#{name}")
        before = {name: engine.data_version(name) for name in ("parted", "parted_view")}
        assert {name: engine.data_version(name) for name in before} == before
        with psycopg.connect(postgres_address, autocommit=True) as connection:
            connection.execute("INSERT INTO parted VALUES (3)")
        assert all(engine.data_version(name) != version for name, version in before.items())
        assert engine.count("parted_view") == 1


def test_a_session_cannot_write_and_names_are_not_found_by_a_path(postgres_address: str) -> None:
    with PostgreSQLEngine(render=render_for_postgresql) as engine:
        engine.attach("odd", engine_source := f"{postgres_address}#pg_catalog.pg_am")
        with engine._statement(locate_table(engine_source).address, 5) as connection:
            assert connection.execute("SHOW transaction_read_only").fetchone() == ("on",)
            assert connection.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)
            assert connection.execute("SHOW search_path").fetchone() == ("pg_catalog",)
            assert connection.execute("SHOW statement_timeout").fetchone() == ("5s",)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                connection.execute("CREATE TABLE public.x (y int)")


def test_a_release_is_copied_to_a_table_of_its_own_whole_or_not_at_all(postgres_address: str) -> None:
    rows = pa.table({"s": ["", None, 'q"\t\\N\n', "ä"], "n": [1, None, -3, 4], "d": [date(1, 1, 1), None, None, None]})
    target = f"{postgres_address}#public.release"
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS release")
    assert write_table(rows, target) == 4
    with PostgreSQLEngine(render=render_for_postgresql) as engine:
        engine.attach("r", target)
        assert engine.run("SELECT * FROM r").to_pylist() == rows.to_pylist()
        with pytest.raises(DataError, match=r"there is a table 'public\.release' already"):
            engine.write(rows, target)

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows.to_batches()[0]
        raise RuntimeError("the producer stopped")

    with pytest.raises(RuntimeError):
        write_table(failing(), f"{postgres_address}#public.half")
    with psycopg.connect(postgres_address) as connection:
        assert connection.execute("SELECT to_regclass('public.half')").fetchone() == (None,)


def test_a_written_table_has_values_as_they_are_or_says_why_it_cannot_be_made(postgres_address: str) -> None:
    moment = datetime(2023, 7, 1, 14, 30, tzinfo=timezone(timedelta(hours=2)))
    rows = pa.table({"at": pa.array([moment, None], pa.timestamp("us", "UTC")), "raw": [b"\0\xff", None],
                     "big": pa.array([2**64 - 1, None], pa.uint64())})  # fmt: skip
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS public.kinds")
        assert write_table(rows, f"{postgres_address}#public.kinds") == 2
        assert connection.execute("SELECT * FROM public.kinds").fetchall() == [
            (moment, b"\0\xff", 2**64 - 1), (None, None, None),
        ]  # fmt: skip
        twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
        for table, place, told in (
            (rows, "nowhere.kinds", "there is no such schema"),
            (pa.table({"s": ["a\0b"]}), "public.never_made", "does not fit the type"),
            (twice, "public.never_made", "two columns have one name"),
            (pa.table({"ä" * 32: [1]}), "public.never_made", "more than 63 bytes"),
            (rows, f"public.{'x' * 64}", "more than 63 bytes"),
        ):
            with pytest.raises(DataError, match=told):
                write_table(table, f"{postgres_address}#{place}")
            assert connection.execute("SELECT to_regclass('public.never_made')").fetchone() == (None,)
        connection.execute(
            "DROP ROLE IF EXISTS no_maker; CREATE ROLE no_maker LOGIN; CREATE SCHEMA IF NOT EXISTS closed"
        )
        with pytest.raises(DataError, match="may not make a table there"):
            write_table(rows, f"{postgres_address.replace('deniable@', 'no_maker@')}#closed.kinds")


def test_who_is_listed_in_another_spelling_is_left_out_by_the_database_too(postgres_address: str) -> None:
    names = ["Ana Berg", "ANA  BERG", "ana berg", "Ben", "BEN ", "José", "Jose\u0301", "Cem"]
    with UploadingPostgreSQL(postgres_address) as engine:
        engine.attach("t", pa.table({"who": names}))
        with DuckDBEngine() as here:
            here.attach("t", pa.table({"who": names}))
            for each in (engine, here):
                each.restrict("t", Listed("who", ("ana berg", "José", "ben"), keep=False, loose=True))
            left = [sorted(e.run("SELECT who FROM t")["who"].to_pylist()) for e in (engine, here)]
            assert left[0] == left[1]
            assert "Cem" in left[0]
            assert "ana berg" not in left[0]


def test_who_is_a_number_is_left_out_however_the_database_holds_it(postgres_address: str) -> None:
    large = ["1e+16", "9007199254740992.0", "9007199254740993", "9007199254740994", "1e999", "1e-999"]
    texts, numbers = ["7", "007", "7.0", *large, "7e", None], pa.array([7.0, 1e16, 2.0**53, 8.5, None])
    schema, listed = TableSchema("t", "", (Column("who", ColumnType.TEXT),)), ("7", "10000000000000000", large[2])
    for names, by_number, expected in ((texts, True, 5), (numbers, False, 2), (texts, False, 9)):
        rows, place = pa.table({"who": names}), f"{postgres_address}#public.numbered_{expected}"
        write_table(rows, place)
        with PostgreSQLEngine(render=render_for_postgresql) as engine, DuckDBEngine() as here:
            for each, source in ((engine, place), (here, rows)):
                each.attach("t", source, schema)
                each.restrict("t", Listed("who", listed, keep=False, loose=True, by_number=by_number))
            assert [e.run("SELECT count(*) AS n FROM t")["n"][0].as_py() for e in (engine, here)] == [expected] * 2, (
                engine.run("SELECT who FROM t")
            )


def test_long_names_and_several_databases(postgres_address: str) -> None:
    long = "a" * 70
    statement = render_for_postgresql(f'SELECT x AS "{long}b", x AS "{long}c" FROM t', {"t": {"x": "BIGINT"}})
    assert statement.names == (f"{long}b", f"{long}c")
    assert len({part for part in statement.sql.split('"') if part.startswith("#")}) == 2
    for source, table in (("postgresql:///d#t", ("public", "t")), ('postgresql:///d#"a.b"."c""d"', ("a.b", 'c"d'))):
        assert (locate_table(source).schema, locate_table(source).table) == table
    with pytest.raises(DataError, match="names no single table"):
        locate_table("postgresql:///d")
    with pytest.raises(InternalError):
        render_for_postgresql("DELETE FROM t", {"t": {"x": "BIGINT"}})


def test_sums_beyond_64_bits_and_decimals_are_exact(postgres_address: str) -> None:
    with UploadingPostgreSQL(postgres_address) as engine:
        engine.attach("t", pa.table({"x": [2**62] * 5, "g": ["a"] * 5}))
        total = engine.run("SELECT sum(x) AS s, sum(CAST(x AS HUGEINT) * 3) AS t FROM t").to_pylist()[0]
        assert total == {"s": Decimal(5 * 2**62), "t": Decimal(15 * 2**62)}
        assert {*POSTGRESQL} >= {*TWO}


@pytest.mark.parametrize(
    "condition",
    [
        "TRIM(note) = 'nb'",
        "LTRIM(note) = 'nb\u00a0'",
        "CLAMP(score % 7, 0, 7) = 0",
        "STARTS_WITH(CASE WHEN insured THEN 'u' END, '')",
    ],
)
def test_values_on_which_the_engines_differed_are_equal(postgres_address: str, condition: str) -> None:
    rows = [{"pid": i, "note": "\u00a0nb\u00a0", "score": 2**63 - 1, "insured": (True, None)[i % 2]} for i in range(4)]
    expected = 2 if "insured" in condition else 4
    assert [count_in(engine, condition, rows) for engine in open_both(postgres_address)] == [expected] * 2


def open_both(address: str) -> Iterator[Any]:
    """The embedded engine, then PostgreSQL."""
    with DuckDBEngine(threads=1) as here:
        yield here
    with UploadingPostgreSQL(address) as there:
        yield there


def count_in(engine: Any, condition: str, rows: list[dict[str, Any]]) -> Any:
    """How many rows an engine counts under a condition, exactly."""
    engine.attach("visits", clinic.rows_of(rows), TABLE)
    plan = compile_query(f"SELECT COUNT(*) AS n FROM visits WHERE {condition}", (TABLE,), PureDP(Fraction(1)))
    return next(iter(read_exactly(plan, engine)[0][0].values()))


def test_a_sum_of_a_constant_for_each_person_counts_that_persons_rows(postgres_address: str) -> None:
    rows = [{"pid": i % 3} for i in range(12)]
    for constant, expected in (("10", 120), ("0.5", 6), ("3", 36)):
        asked = f"SELECT SUM(CLAMP(s, 0, 500)) AS n FROM (SELECT pid, SUM({constant}) AS s FROM visits GROUP BY pid) p"
        plan = compile_query(asked, (TABLE,), PureDP(Fraction(1)))
        for engine in open_both(postgres_address):
            engine.attach("visits", clinic.rows_of(rows), TABLE)
            (found,) = read_exactly(plan, engine)[0]
            placed = plan.nodes[0].steps[0].placed[0]
            assert max(found.values()) * placed.measurement.step == expected * placed.sensitivity.parts, constant


def test_changes_that_the_database_does_not_count_are_noticed(postgres_address: str) -> None:
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS uncounted")
        connection.execute("CREATE TABLE uncounted AS SELECT 1 AS x")
        (database,) = connection.execute("SELECT current_database()").fetchone() or ("",)
        connection.execute(f'ALTER DATABASE "{database}" SET track_counts = off')
    try:
        with PostgreSQLEngine(render=render_for_postgresql) as engine:
            engine.attach("t", f"{postgres_address}#uncounted")
            before = engine.data_version("t")
            assert engine.data_version("t") == before
            with psycopg.connect(postgres_address, autocommit=True) as connection:
                connection.execute("UPDATE uncounted SET x = 2")
            assert engine.data_version("t") != before
    finally:
        with psycopg.connect(postgres_address, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{database}" RESET track_counts')


def test_a_statement_ends_with_the_process_that_asked(postgres_address: str) -> None:
    with PostgreSQLEngine(render=render_for_postgresql) as engine:
        engine.attach("t", f"{postgres_address}#pg_catalog.pg_am")
        with engine._statement(locate_table(f"{postgres_address}#t").address, 5) as connection:
            assert connection.execute("SHOW client_connection_check_interval").fetchone() == ("1s",)


MOMENTS = [
    f"2023-07-01{clock}{zone}"
    for clock in ("", " 12:30", "T12:30:00", " 23:59:59.123456")
    for zone in ("", "Z", "+02", "-04", " -04", "+05:30", "+0530", " +14")
    if clock or zone != "-04"  # PostgreSQL reads that as a day with a fourth part
]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_moments_with_and_without_a_zone_are_those_of_postgresql(kind: str, postgres_address: str) -> None:
    oid = {"timestamp": values.TIMESTAMP, "timestamptz": values.TIMESTAMPTZ}[kind]
    with psycopg.connect(postgres_address) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        for text in MOMENTS:
            told = connection.execute(f"SELECT %s::text::{kind}::text", [text]).fetchone()[0]
            wanted = datetime.fromisoformat(told).replace(tzinfo=None)
            assert values.decode_value(text.encode(), oid, False, 1) == wanted, text
            assert parse_date(literal(text), Kind.DATETIME, kind == "timestamptz").value == wanted, text
