"""What one charged question makes the ledger, the answer store and the user's record do, and in which order."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable import Curator
from deniable.curator.query import derived
from deniable.engines.duckdb.connection import StatementCache
from deniable.governance.grants import Asker
from deniable.ledger import answer_store, sqlite, watch, witness
from deniable.ledger.answer_store import SqliteShelf
from deniable.ledger.watch import Home, list_apart, list_heads, list_same, read_heads

POLICY = """
version: 1
dataset: bench
tables:
  people:
    source: people.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns: {id: {role: identifier}, age: {type: integer, between: [0, 100]}}
budgets: {dataset: {epsilon: 1000}, purposes: {research: {epsilon: 1000}},
          analysts: {ana: {purposes: [research], epsilon: 1000}}}
"""
ANA = Asker("ana", "research")
ASKED_BEFORE = 4
"""Questions before the one that is looked at: what the first ones are followed by is stored with them."""
Log = list[tuple[str, str]]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """All that SQLite runs, by file, and each statement of the engine, in their order."""
    found, opened, run = list[tuple[str, str]](), sqlite.open_connection, StatementCache.execute

    def open_traced(place: str) -> sqlite3.Connection:
        connection = opened(place)
        name = place.split("?")[0].rsplit("/", 1)[-1]
        connection.set_trace_callback(lambda sql: found.append((name, sql)))
        return connection

    def run_noted(cache: StatementCache, cursor: Any, sql: str) -> Any:
        found.append(("engine", sql))
        return run(cache, cursor, sql)

    for module in (sqlite, answer_store, watch, witness):
        if hasattr(module, "open_connection"):
            monkeypatch.setattr(module, "open_connection", open_traced)
    monkeypatch.setattr(StatementCache, "execute", run_noted)
    monkeypatch.setattr(derived, "MOST_SOURCES", 2)
    return found


@pytest.fixture
def ask(tmp_path: Path, log: Log) -> Iterator[Callable[[int], Log]]:
    """Ask a question that nobody asked before; gives what ran for it."""
    pq.write_table(pa.table({"id": ["a", "b", "c"], "age": [1, 2, 3]}), tmp_path / "people.parquet")
    (tmp_path / "policy.yaml").write_text(POLICY)
    curator = Curator.open(tmp_path / "policy.yaml", ledger=tmp_path / "l.sqlite")

    def run(number: int) -> Log:
        log.clear()
        curator.query(f"SELECT COUNT(*) AS n FROM people WHERE age + {number} > 2", epsilon="0.01", who=ANA)
        return list(log)

    with curator:
        for number in range(ASKED_BEFORE):
            run(number)
        yield run


def test_a_charged_question_runs_few_statements_in_four_transactions(ask: Callable[[int], Log]) -> None:
    ran = [each for each in ask(10) if each[0] != "engine"]
    begun = [name for name, sql in ran if sql.startswith("BEGIN IMMEDIATE")]
    # The charge, the record's note of it, the answer with the head that it saw, and the record's note of that.
    assert begun == ["l.sqlite", "ledgers.sqlite", "l.kept.sqlite", "ledgers.sqlite"]
    assert len([sql for _, sql in ran if not sql.startswith("PRAGMA busy_timeout")]) <= 38


def test_the_charge_is_kept_before_the_engine_runs_and_the_answer_after(ask: Callable[[int], Log]) -> None:
    ran = ask(11)
    engine = [place for place, (name, _) in enumerate(ran) if name == "engine"]
    kept = {name: place for place, (name, sql) in enumerate(ran) if sql == "COMMIT"}
    assert len(engine) == 1
    assert kept["l.sqlite"] < engine[0] < kept["l.kept.sqlite"]


def test_what_decides_is_read_anew_for_each_question(ask: Callable[[int], Log]) -> None:
    looks = [sql for name, sql in ask(12) if name == "l.sqlite" and "max(sequence)" in sql]
    # Before compiling, before the answer is named (twice), before rows are attached, before the charge, after it.
    assert len(looks) == 6


def test_a_value_is_found_under_its_name_before_an_alias_by_one_statement(tmp_path: Path, log: Log) -> None:
    shelf = SqliteShelf(tmp_path / "kept.sqlite")
    assert shelf.keep("answers", "first", "shared", b"1") == b"1"
    with sqlite3.connect(tmp_path / "kept.sqlite") as beside:  # `keep` would give what stands under the alias
        beside.execute("INSERT INTO kept VALUES ('answers', 'shared', 'other', x'32')")
    beside.close()
    log.clear()
    assert shelf.find("answers", "shared") == b"2"
    assert shelf.find("answers", "other") == b"2"
    assert shelf.find("answers", "first") == b"1"
    assert shelf.find("streams", "first") is None
    assert len(log) == 4
    assert shelf.keep("answers", "new", "first", b"3") == b"1", "its alias is the name of another"
    assert shelf.keep("answers", "other", "new", b"4") == b"2", "its name is the alias of another"
    shelf.close()


def test_both_counts_move_by_one_statement(tmp_path: Path, log: Log) -> None:
    shelf = SqliteShelf(tmp_path / "kept.sqlite")
    for number in range(3):
        log.clear()
        shelf.keep("answers", f"a{number}", f"b{number}", b"x")
        assert sum("'count'" in sql for _, sql in log) == 1
    shelf.keep("streams", "s", "s", b"y")
    assert shelf.list_all("count") == {"answers": b"3", "streams": b"1", "": b"4"}
    assert shelf.empty("answers") == 3
    assert shelf.list_all("count") == {"answers": b"0", "streams": b"1", "": b"1"}
    shelf.close()


@pytest.mark.parametrize("seed", range(40))
def test_the_heads_of_a_ledger_are_those_at_its_places_but_for_those_apart(seed: int) -> None:
    draw, connection = random.Random(seed), sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE homes (place TEXT PRIMARY KEY, identity TEXT, first TEXT)")
    connection.execute("CREATE TABLE apart (place TEXT, other TEXT)")
    connection.execute("CREATE TABLE ledgers (place TEXT PRIMARY KEY, number INTEGER, head TEXT)")
    places, words = [f"p{i}" for i in range(6)], ["", "x", "y"]
    for place in places:
        if draw.random() < 0.8:
            row = (place, draw.choice(words), draw.choice(words))
            connection.execute("INSERT INTO homes VALUES (?, ?, ?)", row)
        if draw.random() < 0.8:
            connection.execute("INSERT INTO ledgers VALUES (?, ?, ?)", (place, draw.randrange(3), f"head of {place}"))
    for _ in range(draw.randrange(4)):
        connection.execute("INSERT INTO apart VALUES (?, ?)", draw.sample(places, 2))
    for place in places:
        home = Home(place, draw.choice(words), draw.choice(words))
        naive = read_heads(connection, list_same(connection, home) - list_apart(connection, place))
        assert list_heads(connection, home) == naive
    connection.close()


def test_what_is_left_is_told_by_one_look(tmp_path: Path, log: Log, ask: Callable[[int], Log]) -> None:
    with Curator.open(tmp_path / "policy.yaml", ledger=tmp_path / "l.sqlite") as curator:
        context = curator.context.speak_for(ANA)
        apart = (context.balance(), context.name_left(), context.state_left())
        log.clear()
        assert context.read_left() == apart
        assert len(log) == 1
        assert apart[1] == {"epsilon": "999.96", "delta": "0"}
