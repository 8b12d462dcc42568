"""What every engine promises, tested on every engine that is installed."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deniable.engines import Engine, quote
from deniable.errors import DataError, DeniableError, InternalError, ParameterError, Stopped
from deniable.policy.schema import Column, ColumnType, TableSchema
from deniable.storage import escape_formula

PEOPLE = pa.table(
    {
        "id": [1, 2, 3],
        "zip": ["02138", "02139", None],
        "height": [1.5, None, 1.75],
        "born": [date(1950, 1, 2), None, date(1999, 12, 31)],
        "seen": [datetime(2020, 1, 1, 12), datetime(2020, 1, 2), None],
        "alive": [True, False, None],
    }
)
NUMBERS = pa.table({"x": range(3000)})
SLOW = "SELECT count(*) AS n FROM numbers a, numbers b, numbers c WHERE (a.x * 7 + b.x + c.x) % 11 = 3"


def write(folder: Path, suffix: str) -> Path:
    path = folder / f"people{suffix}"
    if suffix == ".csv":
        pacsv.write_csv(PEOPLE, path)
    elif suffix == ".parquet":
        pq.write_table(PEOPLE, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, PEOPLE.schema) as writer:
            writer.write_table(PEOPLE)
    return path


def plain(table: pa.Table) -> list[dict[str, object]]:
    return table.to_pylist()


@pytest.fixture
def reads_files(engine: Engine) -> None:
    """Only for an engine that reads files where they are: elsewhere rows are uploaded, and changed, otherwise."""
    if engine.dialect != "duckdb":
        pytest.skip("this engine reads no files; its own tests say what it does instead")


def test_an_engine_meets_the_protocol(engine: Engine) -> None:
    assert isinstance(engine, Engine)
    assert engine.dialect


@pytest.mark.usefixtures("reads_files")
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_files_of_each_format_give_the_same_rows(engine: Engine, tmp_path: Path, suffix: str) -> None:
    engine.attach("people", write(tmp_path, suffix))
    assert plain(engine.run("SELECT * FROM people")) == plain(PEOPLE)
    assert engine.count("people") == 3


@pytest.mark.parametrize(
    "frame",
    [
        PEOPLE,
        PEOPLE.to_batches()[0],
        pl.from_arrow(PEOPLE),
        pl.from_arrow(PEOPLE).lazy(),
        PEOPLE.to_reader,  # each engine reads one of its own
        PEOPLE.to_pandas(types_mapper=pd.ArrowDtype),
    ],
    ids=["arrow table", "arrow batch", "polars", "polars lazy", "arrow reader", "pandas"],
)
def test_frames_of_each_kind_give_the_same_rows(engine: Engine, frame: object) -> None:
    engine.attach("people", frame() if callable(frame) else frame)
    assert plain(engine.run("SELECT * FROM people")) == plain(PEOPLE)
    assert engine.count("people") == 3  # a reader can be asked more than once


def test_columns_are_described_in_the_words_of_a_policy(engine: Engine) -> None:
    engine.attach("people", PEOPLE)
    assert [(field.name, field.type.value) for field in engine.describe("people")] == [
        ("id", "integer"),
        ("zip", "text"),
        ("height", "decimal"),
        ("born", "date"),
        ("seen", "datetime"),
        ("alive", "boolean"),
    ]


def test_a_column_of_another_type_is_shown_as_text(engine: Engine) -> None:
    engine.attach("t", pa.table({"tags": [["a", "b"], None], "empty": pa.nulls(2), "raw": [b"x", b"y"]}))
    assert {field.type for field in engine.describe("t")} == {ColumnType.TEXT}
    assert engine.run("SELECT tags FROM t").column("tags").to_pylist()[1] is None


@pytest.mark.usefixtures("reads_files")
def test_declared_columns_are_read_as_the_policy_types_them(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("zip,code,n,when\n02138,007,1.0,2020-02-01\n02139,010,2,\n")
    columns = (
        Column("zip"),
        Column("code", ColumnType.INTEGER),
        Column("n", ColumnType.INTEGER),
        Column("when", ColumnType.DATETIME),
    )
    engine.attach("t", "t.csv", TableSchema("t", "t.csv", columns))
    assert plain(engine.run("SELECT * FROM t")) == [
        {"zip": "02138", "code": 7, "n": 1, "when": datetime(2020, 2, 1)},
        {"zip": "02139", "code": 10, "n": 2, "when": None},
    ]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_declared_column_that_is_missing_is_refused_with_the_nearest_name(
    engine: Engine, tmp_path: Path, suffix: str
) -> None:
    schema = TableSchema("people", "", (Column("hieght"),))
    with pytest.raises(DataError, match="Did you mean 'height'"):
        engine.attach("people", write(tmp_path, suffix), schema)


def test_values_that_do_not_fit_the_declared_type_are_refused_without_being_shown(engine: Engine) -> None:
    schema = TableSchema("t", "", (Column("age", ColumnType.INTEGER),))
    with pytest.raises(DataError, match="1 value of column 'age'") as refusal:
        engine.attach("t", pa.table({"age": ["31", "secret", None]}), schema)
    assert "secret" not in str(refusal.value)


def test_a_missing_number_is_null_and_never_nan(engine: Engine) -> None:
    engine.attach("t", pl.DataFrame({"x": [1.0, float("nan"), None]}))
    assert engine.run("SELECT count(x) AS n FROM t").column("n").to_pylist() == [1]


def test_names_are_deterministic_whatever_they_are(engine: Engine) -> None:
    engine.attach("t", pa.table([[1], [2], [3], [4], [5]], names=["id", "ID", "", 'a "b" ä', "select"]))
    names = [field.name for field in engine.describe("t")]
    assert names == ["id", "ID_2", "column_3", 'a "b" ä', "select"]
    wanted = ", ".join(quote(name) for name in names)
    assert list(engine.run(f"SELECT {wanted} FROM t").to_pylist()[0].values()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["visits", "Größe", "two words", 'odd "name"', "select"])
def test_a_source_can_have_any_name(engine: Engine, name: str) -> None:
    engine.attach(name, PEOPLE)
    assert engine.count(name) == 3
    assert engine.run(f"SELECT count(*) AS n FROM {quote(name)}").to_pylist() == [{"n": 3}]


def test_attaching_a_name_again_replaces_its_source(engine: Engine) -> None:
    engine.attach("t", PEOPLE)
    engine.attach("t", PEOPLE.slice(0, 1))
    assert engine.count("t") == 1


def test_sources_can_be_joined(engine: Engine, tmp_path: Path) -> None:
    engine.attach("people", write(tmp_path, ".csv"))
    engine.attach("towns", pa.table({"zip": ["02138"], "town": ["Cambridge"]}))
    joined = engine.run("SELECT p.id, t.town FROM people p JOIN towns t ON p.zip = t.zip")
    assert joined.to_pylist() == [{"id": 1, "town": "Cambridge"}]


def test_parameters_are_values_and_never_sql(engine: Engine) -> None:
    engine.attach("people", PEOPLE)
    assert engine.run("SELECT count(*) AS n FROM people WHERE zip = $1", ["02138"]).to_pylist() == [{"n": 1}]
    assert engine.run("SELECT count(*) AS n FROM people WHERE zip = $z", {"z": "' OR 1=1 --"}).to_pylist() == [{"n": 0}]


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_table_of_few_rows_passes_through(engine: Engine, rows: int) -> None:
    engine.attach("t", pa.table({"x": pa.array(range(rows), pa.int64())}))
    assert engine.count("t") == rows
    batches = list(engine.stream("t", 2))
    assert sum(batch.num_rows for batch in batches) == rows
    assert batches[0].schema.names == ["x"]  # at least one batch, so that the columns are known


def test_a_stream_keeps_the_order_and_the_batch_size(engine: Engine) -> None:
    engine.attach("t", pa.table({"x": range(200_000)}))
    batches = list(engine.stream("SELECT x FROM t WHERE x >= $1", 3_000, [100]))
    assert max(batch.num_rows for batch in batches) <= 3_000
    assert pa.Table.from_batches(batches)["x"].to_pylist() == list(range(100, 200_000))


def test_statements_may_run_while_a_stream_is_read(engine: Engine) -> None:
    engine.attach("t", pa.table({"x": range(50_000)}))
    total = 0
    for batch in engine.stream("t", 10_000):
        total += batch.num_rows + engine.count("t") - 50_000
    assert total == 50_000


@pytest.mark.usefixtures("reads_files")
@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow"])
def test_what_is_written_comes_back(engine: Engine, tmp_path: Path, ending: str) -> None:
    text = pa.table({"s": ["", None, 'q"uo,te\nline', " ä ", "x"], "n": [1, None, -3, 4, 5]})
    engine.attach("t", text)
    assert engine.write(engine.stream("t", 2), tmp_path / f"out{ending}") == 5
    engine.attach("back", tmp_path / f"out{ending}")
    assert plain(engine.run("SELECT * FROM back")) == plain(text)


@pytest.mark.usefixtures("reads_files")
def test_what_is_written_only_the_owner_can_read(engine: Engine, tmp_path: Path) -> None:
    engine.write(PEOPLE, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("reads_files")
def test_a_producer_that_fails_leaves_the_old_file_and_nothing_else(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")

    def failing():  # type: ignore[no-untyped-def]
        yield PEOPLE.to_batches()[0]
        raise RuntimeError("the producer stopped")

    with pytest.raises(RuntimeError):
        engine.write(failing(), path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


@pytest.mark.usefixtures("reads_files")
def test_an_unknown_format_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"\.csv, \.parquet or \.arrow"):
        engine.write(PEOPLE, tmp_path / "out.xlsx")


@pytest.mark.usefixtures("reads_files")
def test_the_data_version_changes_with_the_content_and_only_then(engine: Engine, tmp_path: Path) -> None:
    path = write(tmp_path, ".csv")
    engine.attach("people", path)
    before = engine.data_version("people")
    os.utime(path)
    assert engine.data_version("people") == before
    path.write_bytes(path.read_bytes().replace(b"02138", b"02137"))
    assert engine.data_version("people") != before


@pytest.mark.usefixtures("reads_files")
def test_the_data_version_of_a_frame_does_not_depend_on_its_chunks(engine: Engine) -> None:
    whole = pa.table({"x": range(1000), "s": [str(i) for i in range(1000)]})
    engine.attach("whole", whole)
    engine.attach("cut", pa.concat_tables([whole.slice(0, 10), whole.slice(10)]))
    engine.attach("other", whole.slice(1))
    assert engine.data_version("whole") == engine.data_version("cut") != engine.data_version("other")


def test_an_unknown_source_is_refused_with_the_nearest_name(engine: Engine) -> None:
    engine.attach("visits", PEOPLE)
    for ask in (engine.describe, engine.count, engine.data_version):
        with pytest.raises(DataError, match="Did you mean 'visits'"):
            ask("visit")


@pytest.mark.parametrize("source", ["nowhere.csv", "nowhere/*.parquet", "https://example.org/a.csv", 7])
def test_a_source_that_is_not_there_is_refused(engine: Engine, source: object) -> None:
    with pytest.raises(DataError):
        engine.attach("t", source)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "DROP VIEW people",
        "INSERT INTO people SELECT * FROM people",
        "CREATE TABLE x AS SELECT 1",
        "SELECT * FROM no_such_table",
        "SELEC 1",
    ],
)
def test_anything_but_one_reading_statement_is_our_bug_and_does_not_run(engine: Engine, sql: str) -> None:
    engine.attach("people", PEOPLE)
    for attempt in (engine.run, lambda text: list(engine.stream(text))):
        with pytest.raises(InternalError):
            attempt(sql)
    assert engine.count("people") == 3


def test_a_failing_value_is_not_shown(engine: Engine) -> None:
    engine.attach("t", pa.table({"s": ["secret"]}))
    with pytest.raises(DeniableError) as refusal:
        engine.run("SELECT CAST(s AS INTEGER) FROM t")
    assert "secret" not in "".join(traceback.format_exception(refusal.value))


def test_work_that_takes_too_long_is_stopped_and_the_engine_goes_on(engine: Engine) -> None:
    engine.attach("numbers", NUMBERS)
    with pytest.raises(Stopped):
        engine.run(SLOW, seconds=0.2)
    assert engine.run("SELECT 1 AS one", seconds=60).to_pylist() == [{"one": 1}]


def test_work_can_be_cancelled_from_another_thread(engine: Engine) -> None:
    engine.attach("numbers", NUMBERS)
    done = threading.Event()

    def cancel_until_done() -> None:
        while not done.wait(0.05):
            engine.cancel()

    canceller = threading.Thread(target=cancel_until_done)
    canceller.start()
    try:
        with pytest.raises(Stopped):
            engine.run(SLOW)
    finally:
        done.set()
        canceller.join()


def test_cancelling_one_thread_leaves_the_others_alone(engine: Engine) -> None:
    engine.attach("numbers", NUMBERS)
    ended: dict[str, object] = {}
    started = {name: threading.Event() for name in ("one", "other")}
    idents: dict[str, int] = {}

    def work(name: str, sql: str) -> None:
        idents[name] = threading.get_ident()
        started[name].set()
        try:
            ended[name] = engine.run(sql).num_rows
        except Stopped:
            ended[name] = "stopped"

    one = threading.Thread(target=work, args=("one", SLOW))
    one.start()
    started["one"].wait()
    other = threading.Thread(target=work, args=("other", "SELECT sum(a.x * b.x % 7) AS s FROM numbers a, numbers b"))
    other.start()
    while one.is_alive():
        engine.cancel(idents["one"])
        one.join(0.05)
    other.join()
    assert ended == {"one": "stopped", "other": 1}


def test_a_stream_can_be_cancelled_between_batches(engine: Engine) -> None:
    engine.attach("numbers", NUMBERS)
    stream = engine.stream("SELECT a.x AS x FROM numbers a, numbers b, numbers c", 1_000)
    next(stream)
    engine.cancel()
    with pytest.raises(Stopped):
        for _ in stream:
            pass


def test_threads_do_not_disturb_each_other(engine: Engine) -> None:
    engine.attach("t", pa.table({"x": range(10_000)}))

    def ask(bound: int) -> int:
        return int(engine.run("SELECT count(*) AS n FROM t WHERE x < $1", [bound])["n"][0].as_py())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(0, 10_000, 250))) == list(range(0, 10_000, 250))


def test_sources_attached_by_one_thread_are_seen_by_another(engine: Engine, table: Callable[..., str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: engine.run("SELECT 1 AS x").num_rows).result() == 1
        name = table(x=[1, 2])
        assert pool.submit(engine.count, name).result() == 2


def test_closing_twice_is_fine(engine: Engine) -> None:
    engine.attach("t", PEOPLE)
    engine.close()
    engine.close()


def test_work_on_a_closed_engine_is_refused(engine: Engine) -> None:
    engine.close()
    for attempt in (lambda: engine.run("SELECT 1"), lambda: engine.attach("t", PEOPLE), lambda: engine.count("t")):
        with pytest.raises(DeniableError, match="closed"):
            attempt()


@pytest.mark.usefixtures("reads_files")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(
                st.none(), st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)
            ),
            st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        ),
        max_size=20,
    )
)
@example(rows=[("\t", None), ("=1+1", 1), ("", 2), (None, 3)])
def test_any_rows_survive_csv(engine: Engine, tmp_path: Path, rows: list[tuple[str | None, int | None]]) -> None:
    table = pa.table(
        {"s": pa.array([r[0] for r in rows], pa.string()), "n": pa.array([r[1] for r in rows], pa.int64())}
    )
    path = tmp_path / f"{time.monotonic_ns()}.csv"
    engine.write(table, path)
    schema = TableSchema("t", "", (Column("s"), Column("n", ColumnType.INTEGER)))
    engine.attach("t", path, schema)
    written = [{**row, "s": row["s"] and escape_formula(row["s"])} for row in plain(table)]
    assert plain(engine.run("SELECT * FROM t")) == written
