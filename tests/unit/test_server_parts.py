"""Parts of the server by themselves: the scanner, values, forms, bodies, limits, dummies, filled parameters."""

from __future__ import annotations

import asyncio
import pickle
import struct
import threading
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from deniable.curator.query.metadata import invent_rows
from deniable.curator.query.metadata import spread_evenly as spread
from deniable.errors import DataError, DeniableError, ParameterError, QueryRefused, Stopped
from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema
from deniable.query.sql.clauses import count_parameters, fill_parameters, render_literal
from deniable.query.sql.lexer import split_statements, tokenize
from deniable.server import formats
from deniable.server import scheduler as scheduler_module
from deniable.server.http import bodies
from deniable.server.limits import Limits, RateLimiter
from deniable.server.monitoring import Metrics
from deniable.server.refusals import (
    Busy,
    NotAcceptable,
    TimedOut,
    TooManyRequests,
    UnsupportedMedia,
    translate_failure,
)
from deniable.server.scheduler import Scheduler
from deniable.server.wire import values
from deniable.server.wire.catalog_queries import CatalogContext, is_catalog_question, rewrite_statement
from deniable.server.wire.codec import MessageReader, ProtocolViolation, WireRefusal, describe_error
from deniable.server.wire.prepared_statements import infer_types
from deniable.server.wire.settings import Settings, parse_assignment

SAFE_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("SELECT a IN ($1,$2)", "SELECT a IN (1 ,2 )"),
        ("SELECT $1,$2, '$1,$2', \"$1,$2\" -- $1,$2", "SELECT 1 ,2 , '$1,$2', \"$1,$2\" -- $1,$2"),
        ("SELECT $1,$2,$$a$1,$$,$t$b$1,$t$", "SELECT 1 ,2 ,$$a$1,$$,$t$b$1,$t$"),
    ],
)
def test_parameters_without_a_space_between_them_are_filled_in(text, filled):
    assert fill_parameters(text, [1, 2]) == filled
    assert count_parameters(text) == 2


@settings(max_examples=300, deadline=None)
@given(SAFE_TEXT)
def test_any_text_fills_in_as_exactly_one_literal(text):
    import sqlglot

    parsed = sqlglot.parse_one(fill_parameters("SELECT COUNT(*) FROM t WHERE a = $1 AND b", [text]), read="duckdb")
    assert parsed.find(sqlglot.exp.EQ).expression.this == text


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.integers(-(2**63), 2**63),
        st.floats(-1e15, 1e15).filter(lambda x: x == 0 or abs(x) > 1e-15),
        st.booleans(),
        st.dates(),
        st.none(),
    )
)
def test_any_value_fills_in_as_an_operand(value):
    import sqlglot

    parsed = sqlglot.parse_one(fill_parameters("SELECT 1-$1+2", [value]), read="duckdb")
    assert isinstance(parsed.expressions[0], sqlglot.exp.Add)


def test_parameters_inside_quotes_and_comments_stay():
    assert fill_parameters("SELECT '$1', \"$1\" -- $1\n, $1", [5]) == "SELECT '$1', \"$1\" -- $1\n, 5"
    assert count_parameters("SELECT $2 + $1") == 2
    assert render_literal(Decimal("-0.5")) == "(-0.5)"
    with pytest.raises(QueryRefused, match=r"\$2"):
        fill_parameters("SELECT $2", [1])
    for bad in (float("inf"), float("nan"), Decimal("1e99"), "a\0b"):
        with pytest.raises(ParameterError):
            fill_parameters("SELECT $1", [bad])


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_the_scanner_never_fails_unforeseen_and_loses_nothing(text):
    try:
        found = tokenize(text)
    except QueryRefused:
        return
    assert all(text[token.start : token.end] == token.text for token in found)


def test_statements_are_cut_where_postgresql_cuts_them():
    found = split_statements("SET a = ';'; SELECT $$;$$, \";\" /* ; /* ; */ */ -- ;\n; ; SELECT 2")
    assert [each.words[0] for each in found] == ["set", "select", "select"]
    assert found[2].start == len("SET a = ';'; SELECT $$;$$, \";\" /* ; /* ; */ */ -- ;\n; ; ")


@pytest.mark.parametrize(
    ("raw", "oid", "binary", "value"),
    [
        (b"42", values.INT4, False, 42),
        (struct.pack("!h", -3), values.INT2, True, -3),
        (struct.pack("!q", 2**40), values.INT8, True, 2**40),
        (b"1.5", values.NUMERIC, False, Decimal("1.5")),
        (struct.pack("!HhHH2H", 2, 0, 0x4000, 2, 12, 5000), values.NUMERIC, True, Decimal("-12.5")),
        (struct.pack("!d", 2.25), values.FLOAT8, True, Decimal("2.25")),
        (b"t", values.BOOL, False, True),
        (b"2025-02-03", values.DATE, False, date(2025, 2, 3)),
        (struct.pack("!i", 366), values.DATE, True, date(2001, 1, 1)),
        (struct.pack("!q", 10**6), values.TIMESTAMP, True, datetime(2000, 1, 1, 0, 0, 1)),
        (None, values.INT4, True, None),
        ("é".encode(), values.TEXT, True, "é"),
    ],
)
def test_values_are_read_as_postgresql_writes_them(raw, oid, binary, value):
    assert values.decode_value(raw, oid, binary, 1) == value


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40), st.sampled_from([*values.TYPE_NAMES, 0, 9999]), st.booleans())
def test_any_bytes_are_a_value_or_a_refusal(raw, oid, binary):
    try:
        value = values.decode_value(raw, oid, binary, 1)
    except ParameterError as refusal:
        value = refusal.happened
    assert not isinstance(value, bytes)
    assert not isinstance(value, Decimal) or value.is_finite()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_fields_of_a_message_are_taken_whole_or_refused(content):
    taken = MessageReader(content)
    text, end, rest = content.partition(b"\0")
    try:
        found = taken.text(), taken.int16(), taken.int32(), taken.take(3)
    except ProtocolViolation:
        assert not end or len(rest) < 9 or text.decode("utf-8", "ignore").encode() != text
    else:
        assert found == (text.decode(), *struct.unpack("!hi", rest[:6]), rest[6:9])


def test_values_are_written_as_text_and_in_binary():
    assert values.choose_encoder(values.BOOL, False)(True) == b"t"
    assert values.choose_encoder(values.INT8, True)(-1) == b"\xff" * 8
    assert values.choose_encoder(values.DATE, True)(date(2000, 1, 2)) == struct.pack("!i", 1)
    assert values.choose_encoder(values.FLOAT8, False)(0.1) == b"0.1"
    assert values.choose_encoder(values.TEXT, True)(None) is None


def test_settings_are_assigned_as_postgresql_allows():
    cases = {"SET deniable.epsilon = 0.5": ("deniable.epsilon", "0.5"), "SET x TO 'a b'": ("x", "a b"),
             "SET SESSION a = on": ("a", "on"), "SET TIME ZONE 'UTC'": ("TimeZone", "UTC"),
             "SET DateStyle = ISO, MDY": ("datestyle", "iso, mdy")}  # fmt: skip
    for text, wanted in cases.items():
        assert parse_assignment(split_statements(text)[0]) == wanted
    with pytest.raises(WireRefusal, match="UTF8"):
        Settings("ana", "").put("client_encoding", "LATIN1")


AROUND = CatalogContext("clinic", "ana", 1, {}, ("people",))


@pytest.mark.parametrize(
    "text",
    ["SELECT * FROM pg_class, read_csv('x')", "SELECT getenv('x')", "SELECT * FROM pg_class JOIN people ON true",
     "WITH RECURSIVE x AS (SELECT 1) SELECT * FROM x, pg_class", "SELECT * FROM pg_class, duckdb_settings"],
)  # fmt: skip
def test_the_gate_of_the_catalog_lets_nothing_else_through(text):
    with pytest.raises(WireRefusal):
        rewrite_statement(split_statements(text)[0], AROUND)


def test_catalog_questions_are_told_from_others():
    assert is_catalog_question(split_statements("SELECT * FROM pg_catalog.pg_class")[0])
    assert is_catalog_question(split_statements("SELECT 1")[0])
    assert not is_catalog_question(split_statements("SELECT COUNT(*) FROM people")[0])
    assert not is_catalog_question(split_statements("DROP TABLE pg_class")[0])
    for table in ('"select"', "rank", "tables", 'public."left"', '("people")', "(SELECT age FROM people) AS p"):
        assert not is_catalog_question(split_statements(f"SELECT COUNT(*) FROM {table}")[0])
    for rows in ("(SELECT 1) AS x", "((SELECT 1)) AS x", "generate_series(1, 2)", "unnest(ARRAY[1])", "(VALUES (1)) x"):
        assert is_catalog_question(split_statements(f"SELECT * FROM {rows}")[0])


def test_whatever_the_server_refuses_has_an_sqlstate_of_its_own():
    from deniable.server.refusals import HTTP_STATUS
    from deniable.server.wire.codec import SQLSTATES

    only_http = {"method", "form", "media"}
    assert set(HTTP_STATUS) - only_http == set(SQLSTATES)
    unforeseen = {code for code, state in SQLSTATES.items() if state.startswith("XX")}
    assert unforeseen == {"execution", "integrity", "internal"}


def test_a_position_counts_characters_from_the_start_of_what_was_sent():
    from deniable.errors import Place

    refusal = QueryRefused("x", place=Place("query", 2, 3))
    assert describe_error(refusal, "SELECT\n  y", offset=10)["P"] == "20"


def test_forms_are_chosen_by_quality():
    assert formats.choose_format("") == formats.JSON
    assert formats.choose_format("text/*;q=0.9, */*;q=0.1") == formats.CSV
    with pytest.raises(NotAcceptable):
        formats.choose_format("text/csv;q=0")
    rows = pa.table({"name": ["=1+1", None], "n": [1.5, float("nan")]})
    assert formats.encode_rows(rows, {}, formats.CSV).decode().splitlines()[1] == "'=1+1,1.5"
    assert b"NaN" not in formats.encode_rows(rows, {}, formats.JSON)


def test_bodies_refuse_what_their_schema_refuses():
    good = bodies.read_body(bodies.QuestionBody, b'{"sql": "SELECT 1", "epsilon": 0.5}')
    assert good.epsilon == 0.5
    for raw in (b"[]", b'{"sql": 1}', b'{"sql": ""}', b'{"sql": "x", "confidence": 1}', b'{"sql": "x", "y": 1}',
                b'{"sql": "x", "intervals": 1}', b'{"sql": "x", "epsilon": true}'):  # fmt: skip
        with pytest.raises(ParameterError):
            bodies.read_body(bodies.QuestionBody, raw)
    for raw in (b"", b"{", b"\xff", b'{"sql": NaN}'):
        with pytest.raises(UnsupportedMedia):
            bodies.read_body(bodies.QuestionBody, raw)


def test_a_bucket_refills_with_time():
    now = [0.0]
    rate = RateLimiter(2, 3, lambda: now[0])
    for _ in range(3):
        rate.take("ana")
    with pytest.raises(TooManyRequests):
        rate.take("ana")
    rate.take("ben")
    now[0] = 0.5
    rate.take("ana")


def test_servers_that_share_an_asker_allow_the_whole_together() -> None:
    now = [0.0]
    shared = [RateLimiter(10, 20, lambda: now[0]) for _ in range(4)]
    for limiter in shared:
        limiter.divide(4)
        for _ in range(5):
            limiter.take("ana")
        with pytest.raises(TooManyRequests):
            limiter.take("ana")
    now[0] = 1.0
    assert sum(limiter.read_level("ana") for limiter in shared) == 10
    shared[0].divide(1)
    now[0] = 100.0
    assert shared[0].read_level("ana") == 20


def test_work_of_one_name_is_done_once_and_waiting_work_can_be_cancelled():
    async def run() -> None:
        scheduler = Scheduler(SimpleNamespace(interrupt=lambda _thread: None), Limits(workers=1, at_once=2))
        gate, done = threading.Event(), []

        def work() -> int:
            gate.wait(20)
            done.append(1)
            return 7

        first = asyncio.create_task(scheduler.run("ana", work, "same"))
        second = asyncio.create_task(scheduler.run("ana", work, "same"))
        later = asyncio.create_task(scheduler.run("ana", work, "later"))
        await asyncio.sleep(0.05)
        with pytest.raises(Busy):
            await scheduler.run("ana", work, "one too many")
        assert scheduler.cancel("ana", "later") == (True, False)
        assert scheduler.cancel("ana", "same") == (False, None)
        assert scheduler.cancel("ben", "same") is None
        gate.set()
        assert await first == await second == 7
        with pytest.raises((Stopped, asyncio.CancelledError)):
            await later
        assert len(done) == 1
        scheduler.close()

    asyncio.run(run())


def test_what_is_unforeseen_is_told_in_one_fixed_sentence(capsys):
    shown = translate_failure(ValueError("a secret value"))
    assert isinstance(shown, DeniableError)
    assert "secret" not in shown.message
    assert "secret" not in capsys.readouterr().err


def test_the_log_names_the_table_and_the_reason_also_where_another_process_read_it(capsys):
    try:
        raise DataError("a table of this question cannot be read", remedy="Ask the steward") from DataError(
            "the database has no table 'care.visits'"
        )
    except DataError as failure:
        sent = pickle.loads(pickle.dumps(failure))
    shown = translate_failure(sent)
    assert "care.visits" not in shown.message
    logged = capsys.readouterr().err
    assert "the database has no table 'care.visits'" in logged
    assert "DataError at" in logged


METRICS = """\
# HELP deniable_requests_total Requests by operation and status.
# TYPE deniable_requests_total counter
deniable_requests_total{operation="budgets",status="403"} 1.0
deniable_requests_total{operation="query",status="200"} 2.0
# HELP deniable_request_seconds Duration of requests as askers see it.
# TYPE deniable_request_seconds histogram
deniable_request_seconds_bucket{le="0.005"} 0.0
deniable_request_seconds_bucket{le="0.01"} 0.0
deniable_request_seconds_bucket{le="0.025"} 1.0
deniable_request_seconds_bucket{le="0.05"} 1.0
deniable_request_seconds_bucket{le="0.1"} 1.0
deniable_request_seconds_bucket{le="0.25"} 1.0
deniable_request_seconds_bucket{le="0.5"} 2.0
deniable_request_seconds_bucket{le="1"} 2.0
deniable_request_seconds_bucket{le="2.5"} 2.0
deniable_request_seconds_bucket{le="5"} 2.0
deniable_request_seconds_bucket{le="10"} 2.0
deniable_request_seconds_bucket{le="30"} 2.0
deniable_request_seconds_bucket{le="+Inf"} 3.0
deniable_request_seconds_count 3.0
deniable_request_seconds_sum 64.515625
# HELP deniable_postgres_connections PostgreSQL clients connected.
# TYPE deniable_postgres_connections gauge
deniable_postgres_connections 4.0
# HELP deniable_waiting Questions that are worked on or wait.
# TYPE deniable_waiting gauge
deniable_waiting 0.0
"""


def test_metrics_have_the_text_form_of_prometheus():
    metrics = Metrics({"deniable_waiting": ("Questions that are worked on or wait.", lambda: 0)})
    metrics.add_gauge("deniable_postgres_connections", "PostgreSQL clients connected.", lambda: 4)
    for operation, status, seconds in (("query", 200, 0.015625), ("query", 200, 64), ("budgets", 403, 0.5)):
        metrics.count_request(operation, status, seconds)
    assert metrics.text() == METRICS


def test_metrics_of_an_idle_server_are_read_by_prometheus():
    families = {family.name: family for family in text_string_to_metric_families(Metrics().text())}
    assert {name: family.type for name, family in families.items()} == {
        "deniable_requests": "counter",
        "deniable_request_seconds": "histogram",
    }
    assert {sample.value for family in families.values() for sample in family.samples} == {0.0}


def test_dummies_fill_declared_bounds_and_categories_and_read_nothing():
    table = TableSchema("t", "nowhere.parquet", (
        Column("age", ColumnType.INTEGER, bounds=Bounds(0, 9)),
        Column("pay", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(1), Fraction(1, 10))),
        Column("sex", categories=("F", "M")),
        Column("day", ColumnType.DATE, bounds=Bounds(date(2025, 1, 1), date(2025, 1, 3))),
        Column("free"), Column("flag", ColumnType.BOOLEAN)))  # fmt: skip
    rows = invent_rows(table, 200).to_pydict()
    assert set(rows["age"]) == set(range(10))
    assert set(rows["sex"]) == {"F", "M"}
    assert {day.day for day in rows["day"]} == {1, 2, 3}
    assert all(0 <= pay <= 1 for pay in rows["pay"])
    assert invent_rows(table, 0).num_rows == 0
    assert len({spread(i, 3) for i in range(100)}) == 100


def test_only_questions_say_that_they_may_be_charged_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An explanation that took too long said so too, though it never costs anything; so did a question that waits."""
    monkeypatch.setattr(scheduler_module, "SLACK_SECONDS", 0.05)
    ended = threading.Event()

    class SlowCurator:
        def interrupt(self, thread: int) -> None: ...

        def query(self, **_: Any) -> None:
            ended.wait(20)

    async def ask() -> list[object]:
        scheduler = Scheduler(SlowCurator(), Limits(seconds=0.05))  # type: ignore[arg-type]
        told = []
        for work in (scheduler.run("ana", lambda: ended.wait(20)), scheduler.work("ana", "query", {"sql": "SELECT 1"})):
            with pytest.raises(TimedOut) as refusal:
                await work
            told.append(refusal.value.as_dict()["charged"])
        ended.set()
        return told

    assert asyncio.run(ask()) == [False, None]


class Refusing(dict[str, int]):
    """Columns at which nobody may look."""

    def get(self, *_: Any) -> int:  # type: ignore[override]
        raise AssertionError("a type was looked up")


def test_parameters_are_counted_before_their_types_are_looked_up() -> None:
    listed = ", ".join(f"${number}" for number in range(1, 1002))
    [asked] = split_statements(f"SELECT COUNT(*) FROM people WHERE age IN ({listed})")
    with pytest.raises(WireRefusal, match=r"from \$1 to \$1000"):
        infer_types(asked, (), Refusing())
    [fits] = split_statements(f"SELECT COUNT(*) FROM people WHERE age NOT IN ({listed.removesuffix(', $1001')})")
    assert infer_types(fits, (), {"age": 20}) == (20,) * 1000
