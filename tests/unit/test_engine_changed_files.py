"""Files that are changed while they are attached are looked into again, before anything of them is read."""

from __future__ import annotations

import itertools
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from deniable import Curator
from deniable.curator.governance import withdrawals
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.fetching import FetchingEngine
from deniable.errors import DataError, DeniableError

PEOPLE, ROWS = 60, 600
POLICY = """\
version: 1
dataset: visits
tables:
  t:
    source: t.{ending}
    unit: {{column: person, max_groups: 1, max_rows_per_group: 1}}
    columns: {{person: {{}}, visit: {{}}, age: {{type: integer, between: [0, 100]}}}}
  other: {{source: other.csv, unit: {{column: person, max_rows_per_group: 1}}, columns: {{person: {{}}}}}}
budgets: {{dataset: {{epsilon: 100000}}}}
accepts: [much-loss]
"""
WRITE = {
    "csv": pyarrow.csv.write_csv,
    "parquet": pq.write_table,
    "arrow": lambda rows, path: pyarrow.feather.write_feather(rows, path, compression="uncompressed"),
}
ORDERS = (["visit", "person", "age"], ["age", "visit", "person"], ["person", "visit", "age"])
QUESTION = "SELECT COUNT(*) AS n, COUNT(DISTINCT person) AS people, AVG(age) AS age FROM t WHERE visit <> 'x{}'"


def made(long: bool) -> pa.Table:
    """Ten visits of each person; with long names, of more bytes than are copied."""
    return pa.table(
        {
            "person": [f"p{i % PEOPLE}" for i in range(ROWS)],
            "visit": [f"v{i}{os.urandom(9_000 * long).hex()}" for i in range(ROWS)],
            "age": [20 + i % 50 for i in range(ROWS)],
        }
    )


def replace_file(path: Path, rows: pa.Table) -> None:
    """Put a new file in the place of one, as programs do that write whole files."""
    fresh = path.with_name("fresh")
    WRITE[path.suffix[1:]](rows, fresh)
    fresh.replace(path)


def opened(folder: Path, ending: str, rows: pa.Table) -> Curator:
    """A curator over a file with these rows, and over another one."""
    replace_file(folder / f"t.{ending}", rows)
    (folder / "other.csv").write_text("person\n" + "".join(f"q{i}\n" for i in range(50)))
    (folder / "policy.yaml").write_text(POLICY.format(ending=ending))
    return Curator.open(folder / "policy.yaml")


def ask(curator: Curator, number: int) -> dict[str, Any]:
    """A question that was not asked before, nearly exactly."""
    (row,) = curator.query(QUESTION.format(number), epsilon=300, intervals=False).to_pylist()
    return dict(row)


def spent(curator: Curator) -> int:
    """How many charges there are."""
    return sum(each.act == "charge" for each in curator.ledger.entries())


@pytest.mark.parametrize("long", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("ending", WRITE)
def test_columns_in_another_order_are_read_by_their_names(tmp_path: Path, ending: str, long: bool) -> None:
    rows = made(long)
    with opened(tmp_path, ending, rows) as curator:
        before = ask(curator, 1)
        replace_file(tmp_path / f"t.{ending}", rows.select(["visit", "person", "age"]))
        after = ask(curator, 2)
    assert abs(before["n"] - PEOPLE) < 2
    assert abs(after["n"] - PEOPLE) < 2, "each person counts once"
    assert abs(after["people"] - PEOPLE) < 2
    assert abs(after["age"] - before["age"]) < 3


@pytest.mark.parametrize("ending", WRITE)
def test_who_withdrew_stays_out_when_columns_change_places(tmp_path: Path, ending: str) -> None:
    rows = made(False)
    with opened(tmp_path, ending, rows) as curator:
        for i in range(12):
            withdrawals.withdraw(curator.context, "person", f"p{i}")
        assert abs(ask(curator, 1)["people"] - 48) < 2
        replace_file(tmp_path / f"t.{ending}", rows.select(["age", "visit", "person"]))
        assert abs(ask(curator, 2)["people"] - 48) < 2


def rename(rows: pa.Table, name: str, other: str) -> pa.Table:
    return rows.rename_columns([other if each == name else each for each in rows.column_names])


def with_words(rows: pa.Table) -> pa.Table:
    return rows.set_column(2, "age", pa.array(["young"] * 100 + ["30"] * (ROWS - 100)))


@pytest.mark.parametrize("long", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("ending", WRITE)
@pytest.mark.parametrize(
    "change",
    [lambda rows: rename(rows, "person", "who"), with_words, lambda rows: rows.drop_columns(["age"])],
    ids=["renamed", "words", "dropped"],
)
def test_files_that_are_no_longer_as_declared_are_refused_before_a_charge(
    tmp_path: Path, ending: str, change: Any, long: bool
) -> None:
    rows = made(long)
    with opened(tmp_path, ending, rows) as curator:
        ask(curator, 1)
        before = spent(curator)
        replace_file(tmp_path / f"t.{ending}", change(rows))
        for number in (2, 3):
            with pytest.raises(DeniableError) as refusal:
                ask(curator, number)
            assert "young" not in str(refusal.value)
        assert spent(curator) == before
        curator.query("SELECT COUNT(*) AS n FROM other", epsilon=1)  # another table is as it was
        replace_file(tmp_path / f"t.{ending}", rows)
        assert abs(ask(curator, 4)["n"] - PEOPLE) < 2


@pytest.mark.parametrize("content", ["", "p1,v1,30\np2,v2,40\n"], ids=["empty", "no-header"])
def test_a_csv_file_that_lost_its_header_is_refused_before_a_charge(tmp_path: Path, content: str) -> None:
    with opened(tmp_path, "csv", made(False)) as curator:
        ask(curator, 1)
        before = spent(curator)
        (tmp_path / "fresh").write_text(content)
        (tmp_path / "fresh").replace(tmp_path / "t.csv")
        with pytest.raises(DeniableError):
            ask(curator, 2)
        assert spent(curator) == before


def test_a_csv_file_with_another_delimiter_and_one_column_more_is_read_anew(tmp_path: Path) -> None:
    rows = made(False)
    with opened(tmp_path, "csv", rows) as curator:
        ask(curator, 1)
        lines = ["note;age;person;visit", *(f"n;{r['age']};{r['person']};{r['visit']}" for r in rows.to_pylist())]
        (tmp_path / "fresh").write_text("\n".join(lines) + "\n")
        (tmp_path / "fresh").replace(tmp_path / "t.csv")
        assert abs(ask(curator, 2)["people"] - PEOPLE) < 2


def test_a_large_file_that_is_changed_while_it_is_read_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, path = made(True), tmp_path / "t.parquet"
    replace_file(path, rows)
    with DuckDBEngine() as engine:
        engine.attach("t", path)
        assert engine.count("t") == ROWS
        from deniable.engines.duckdb import engine as module

        read = module.read_relation

        def change_first(*given: Any) -> Any:
            found = read(*given)
            replace_file(path, rows.select(["visit", "person", "age"]))
            return found

        monkeypatch.setattr(module, "read_relation", change_first)
        with pytest.raises(DataError, match="changed while it was read"):
            engine.run('SELECT count(DISTINCT "person") AS n FROM "t"')
        with pytest.raises(DataError, match="changed while it was read"):
            for _ in engine.stream("t"):
                pass
        monkeypatch.undo()
        found = engine.run('SELECT count(DISTINCT "person") AS n FROM "t"').to_pylist()
        assert found == [{"n": PEOPLE}]


def test_one_person_counts_once_while_a_file_is_replaced_again_and_again(tmp_path: Path) -> None:
    """Questions of several threads beside one who replaces the file: each answer is of one file, or there is none."""
    rows, orders, found, over = made(True), itertools.cycle(ORDERS), list[float](), threading.Event()
    path = tmp_path / "t.parquet"
    replace_file(path, rows)
    with DuckDBEngine() as engine:
        engine.attach("t", path)

        def replace_often() -> None:
            while not over.wait(0.05):
                replace_file(path, rows.select(next(orders)))

        def count() -> None:
            for _ in range(5):
                with suppress(DataError):
                    found.append(engine.run('SELECT count(DISTINCT "person") AS n FROM "t"')["n"][0].as_py())

        threads = [threading.Thread(target=each) for each in (replace_often, count, count, count)]
        for thread in threads:
            thread.start()
        for thread in threads[1:]:
            thread.join()
        over.set()
        threads[0].join()
    assert {*found} <= {PEOPLE}


PLAIN = "SELECT COUNT(*) AS n FROM t WHERE visit <> 'x{}'"


def count(curator: Curator, number: int) -> float:
    (row,) = curator.query(PLAIN.format(number), epsilon=300, intervals=False).to_pylist()
    return float(row["n"])


def people(number: int, age: int, long: bool = False) -> pa.Table:
    """So many people of one age, one row each."""
    visits = [f"v{i}{os.urandom(60_000 * long).hex()}" for i in range(number)]
    return pa.table({"person": [f"p{i}" for i in range(number)], "visit": visits, "age": [age] * number})


def put_link(link: Path, target: str) -> None:
    fresh = link.with_name("fresh")
    fresh.symlink_to(target)
    fresh.replace(link)


@pytest.mark.parametrize("linked", ["file", "folder", "both"])
def test_another_file_behind_a_link_is_looked_into_again_before_a_charge(tmp_path: Path, linked: str) -> None:
    for name, number in (("jan", 40), ("feb", 90)):
        (tmp_path / name).mkdir()
        replace_file(tmp_path / name / "t.csv", people(number, 30))
    (tmp_path / "mar").mkdir()
    (tmp_path / "mar" / "t.csv").write_text("who,visit,age\nx,v,1\n")
    inside, link = {
        "file": ("t.csv", tmp_path / "t.csv"),
        "folder": ("now/t.csv", tmp_path / "now"),
        "both": ("now/*.csv", tmp_path / "now"),
    }[linked]
    target = "{}/t.csv" if linked == "file" else "{}"
    put_link(link, target.format("jan"))
    (tmp_path / "other.csv").write_text("person\nq1\n")
    (tmp_path / "policy.yaml").write_text(POLICY.format(ending="csv").replace("source: t.csv", f"source: '{inside}'"))
    with Curator.open(tmp_path / "policy.yaml") as curator:
        assert abs(count(curator, 1) - 40) < 2
        put_link(link, target.format("feb"))
        assert abs(count(curator, 2) - 90) < 2
        before = spent(curator)
        put_link(link, target.format("mar"))
        with pytest.raises(DataError, match="Nothing was charged"):
            count(curator, 3)
        link.unlink()
        with pytest.raises(DataError, match="Nothing was charged"):
            count(curator, 4)
        assert spent(curator) == before
        put_link(link, target.format("jan"))
        assert abs(count(curator, 5) - 40) < 2


def replace_after_statements(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """After each statement that an engine ran, change a file."""
    run = DuckDBEngine.run

    def run_and_change(engine: DuckDBEngine, sql: str, *given: Any, **options: Any) -> pa.Table:
        found = run(engine, sql, *given, **options)
        if '"t"' in sql:
            change()
        return found

    monkeypatch.setattr(DuckDBEngine, "run", run_and_change)


SEVERAL = (
    "SELECT COUNT(*) AS n, MEDIAN(age) AS age FROM t WHERE visit <> 'x{}'",
    "SELECT COUNT(DISTINCT person) AS n, MEDIAN(age) AS age FROM t WHERE visit <> 'x{}'",
    "SELECT COUNT(*) AS n, AVG(age) AS age FROM t WHERE age < (SELECT AVG(age) + 5 FROM t) AND visit <> 'x{}'",
)


@pytest.mark.parametrize("long", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("question", SEVERAL, ids=["median", "distinct", "inner"])
@pytest.mark.parametrize("ending", WRITE)
def test_all_statements_of_a_question_read_one_version_of_a_file(
    tmp_path: Path, ending: str, question: str, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, versions = tmp_path / f"t.{ending}", iter([people(40, 90, long)])
    with opened(tmp_path, ending, people(60, 10, long)) as curator:
        count(curator, 1)
        before = spent(curator)
        replace_after_statements(monkeypatch, lambda: [replace_file(path, rows) for rows in versions])
        (row,) = curator.query(question.format(1), epsilon=900, intervals=False).to_pylist()
        assert (round(row["n"]), round(row["age"])) in ((60, 10), (40, 90))
        assert spent(curator) == before + 1, "it is charged once, however often it is read"


def test_all_questions_of_a_batch_read_one_version_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, versions = tmp_path / "t.parquet", iter([people(40, 90, True)])
    with opened(tmp_path, "parquet", people(60, 10, True)) as curator:
        replace_after_statements(monkeypatch, lambda: [replace_file(path, rows) for rows in versions])
        asked = ["SELECT COUNT(*) AS n FROM t WHERE visit <> 'x1'", "SELECT MEDIAN(age) AS age FROM t"]
        n, age = (table.to_pylist()[0] for table in curator.query_batch(asked, epsilon=900))
        assert (round(n["n"]), round(age["age"])) in ((60, 10), (40, 90))
        assert spent(curator) == 1


def test_a_question_whose_large_file_changes_all_the_time_gives_nothing_and_its_charge_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, versions = tmp_path / "t.parquet", itertools.cycle([people(40, 90, True), people(60, 10, True)])
    with opened(tmp_path, "parquet", people(60, 10, True)) as curator:
        count(curator, 1)
        before = spent(curator)
        replace_after_statements(monkeypatch, lambda: replace_file(path, next(versions)))
        with pytest.raises(DeniableError, match="The charge stands"):
            curator.query(SEVERAL[0].format(1), epsilon=900)
        assert spent(curator) == before + 1
        monkeypatch.undo()
        assert round(count(curator, 2)) in (40, 60)


@pytest.mark.parametrize("long", [False, True], ids=["small", "large"])
def test_what_is_read_for_rows_that_leave_is_of_one_version(tmp_path: Path, long: bool) -> None:
    path = tmp_path / "t.parquet"
    replace_file(path, people(60, 10, long))
    with FetchingEngine() as engine:
        engine.attach("t", path)
        assert engine.count("t") == 60
        replace_file(path, people(40, 90, long))
        for read in (lambda: engine.count("t"), lambda: engine.refuse_inexact("t", ["age"])):
            with pytest.raises(DataError, match="changed while it was read"):
                read()


def test_what_is_read_as_a_whole_is_seen_by_its_thread_alone(tmp_path: Path) -> None:
    path, found = tmp_path / "t.csv", list[int]()
    replace_file(path, people(60, 10))
    with DuckDBEngine() as engine:
        engine.attach("t", path)

        def read() -> list[int]:
            first = engine.count("t")
            replace_file(path, people(40, 90))
            other = threading.Thread(target=lambda: found.append(engine.count("t")))
            other.start()
            other.join()
            (length,) = {sum(batch.num_rows for batch in engine.stream("t"))}
            return [first, engine.count("t"), length, engine.read_whole(["t"], lambda: engine.count("t"))]

        assert engine.read_whole(["t"], read) == [60, 60, 60, 60]
        assert found == [40]
        assert engine.count("t") == 40


def write_database(path: Path, columns: str, number: int) -> None:
    fresh = path.with_name("fresh")
    with duckdb.connect(fresh) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {columns} FROM range({number}) r(i)")
    fresh.replace(path)


def test_a_database_that_is_replaced_is_looked_into_again_before_a_charge(tmp_path: Path) -> None:
    path, columns = tmp_path / "t.duckdb", ["'p' || i AS person", "'v' AS visit", "30 AS age"]
    write_database(path, ", ".join(columns), 40)
    (tmp_path / "other.csv").write_text("person\nq1\n")
    (tmp_path / "policy.yaml").write_text(POLICY.format(ending="duckdb"))
    with Curator.open(tmp_path / "policy.yaml") as curator:
        assert abs(count(curator, 1) - 40) < 2
        write_database(path, ", ".join(reversed(columns)), 90)
        assert abs(count(curator, 2) - 90) < 2
        before = spent(curator)
        write_database(path, ", ".join(columns[1:]), 90)
        with pytest.raises(DataError, match="Nothing was charged"):
            count(curator, 3)
        path.unlink()
        with pytest.raises(DataError, match="Nothing was charged"):
            count(curator, 4)
        assert spent(curator) == before


AREAS = "person,cat\n" + "".join(f"p{i},{'ab'[i % 2]}\n" for i in range(PEOPLE))
WITH_PUBLIC = """\
version: 1
dataset: visits
tables:
  t: {source: t.csv, unit: {column: person, max_groups: 1, max_rows_per_group: 1},
      columns: {person: {}, cat: {categories: [a, b]}}}
  pub: {source: pub.csv, public: true}
budgets: {dataset: {epsilon: 100000}}
accepts: [much-loss]
"""
JOINED = "SELECT pub.label, COUNT(*) AS n FROM t JOIN pub ON t.cat = pub.cat GROUP BY pub.label"


@pytest.fixture
def with_public(tmp_path: Path) -> Any:
    (tmp_path / "t.csv").write_text(AREAS)
    (tmp_path / "pub.csv").write_text("cat,label,big\na,LA,1\nb,LB,2\n")
    (tmp_path / "policy.yaml").write_text(WITH_PUBLIC)
    with Curator.open(tmp_path / "policy.yaml") as curator:
        yield curator


def put_public(folder: Path, content: str) -> None:
    (folder / "fresh").write_text(content)
    (folder / "fresh").replace(folder / "pub.csv")


def test_a_public_table_whose_file_changed_is_described_again_before_a_charge(with_public: Any, tmp_path: Path) -> None:
    free, total = "SELECT cat, big FROM pub", "SELECT SUM(big) AS s FROM pub"
    assert with_public.query(free, epsilon=1).to_pylist()[0] == {"cat": "a", "big": 1}
    assert with_public.query(total, epsilon=1).to_pylist() == [{"s": 3}]
    assert len(with_public.query(JOINED, epsilon=100).to_pylist()) == 2
    before = spent(with_public)
    put_public(tmp_path, "cat,name\na,LA\nb,LB\n")
    for question in (free, total, JOINED):
        with pytest.raises(DeniableError, match=r"there is no column.*Nothing was charged"):
            with_public.query(question, epsilon=100)
    put_public(tmp_path, "cat,label,big\na,LA,one\nb,LB,two\n")
    with pytest.raises(DeniableError, match=r"SUM takes a number, not text.*Nothing was charged"):
        with_public.query(total, epsilon=1)
    assert spent(with_public) == before
    assert not [entry for entry in with_public.ledger.entries() if entry.act == "fail"]
    put_public(tmp_path, "big,label,cat\n7,LC,a\n8,LD,b\n")
    assert with_public.query(free, epsilon=1).to_pylist()[0] == {"cat": "a", "big": 7}
    assert {row["label"] for row in with_public.query(JOINED, epsilon=100).to_pylist()} == {"LC", "LD"}


def test_a_public_table_that_is_gone_stops_no_question_of_others(with_public: Any, tmp_path: Path) -> None:
    with_public.query("SELECT cat FROM pub", epsilon=1)
    (tmp_path / "pub.csv").unlink()
    assert len(with_public.query("SELECT COUNT(*) AS n FROM t", epsilon=100).to_pylist()) == 1
    with pytest.raises(DataError, match=r"is gone.*Nothing was charged"):
        with_public.query(JOINED, epsilon=1)


def test_a_free_question_that_fails_says_that_nothing_was_charged(
    with_public: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError

    with_public.query("SELECT cat FROM pub", epsilon=1)
    monkeypatch.setattr("deniable.query.execute.present", fail)
    with pytest.raises(DeniableError, match="Nothing was charged"):
        with_public.query("SELECT cat FROM pub", epsilon=1)
    with pytest.raises(DeniableError, match="The charge stands"):
        with_public.query("SELECT COUNT(*) AS n FROM t", epsilon=1)


def test_a_stored_answer_is_shown_with_the_public_table_of_now(with_public: Any, tmp_path: Path) -> None:
    counted = "SELECT cat, COUNT(*) AS n FROM t GROUP BY cat"
    question = f"SELECT pub.label FROM ({counted}) AS c JOIN pub ON c.cat = pub.cat ORDER BY pub.label"
    for _ in range(3):
        assert with_public.query(question, epsilon=100).to_pylist() == [{"label": "LA"}, {"label": "LB"}]
    put_public(tmp_path, "cat,label\na,LC\nb,LD\n")
    assert with_public.query(question, epsilon=100).to_pylist() == [{"label": "LC"}, {"label": "LD"}]
