"""A failure after the charge tells one bit of the rows: after three the asker is paused until the steward looks."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from deniable import Curator
from deniable.cli.main import app
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import (
    CHARGED,
    NOTHING_CHARGED,
    AccessRefused,
    DataError,
    DeniableError,
    ExecutionFailed,
    ParameterError,
    Stopped,
)
from deniable.governance.grants import Asker, Role
from deniable.policy.document import parse

POLICY = """
version: 1
dataset: d
tables:
  t:
    source: t.csv
    unit: {column: u, max_groups: 1, max_rows_per_group: 1}
    columns: {u: {type: integer}, x: {type: integer, between: [0, 10]}}
budgets:
  dataset: {epsilon: 100}
  purposes: {study: {epsilon: 90}}
  analysts: {ana: {purposes: [study]}, ben: {purposes: [study]}}
"""
ANA, BEN = (Asker(name, "study", Role.ANALYST) for name in ("ana", "ben"))
ROWS = pa.table({"u": list(range(50)), "x": [n % 10 for n in range(50)]})


def fail(curator: Curator, who: Asker | None, number: int) -> None:
    """One question whose engine fails once it was charged."""

    def run(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of memory")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DuckDBEngine, "run", run)
        with pytest.raises(ExecutionFailed):
            curator.query(f"SELECT COUNT(*) AS n{number} FROM t", epsilon=1, who=who)


@pytest.fixture
def curator(tmp_path: Path) -> Curator:
    return Curator(parse(POLICY), sources={"t": ROWS}, ledger=tmp_path / "ledger.sqlite")


def test_the_third_failure_after_a_charge_pauses_the_asker_and_nobody_else(curator: Curator) -> None:
    for number in range(2):
        fail(curator, ANA, number)
    assert curator.query("SELECT SUM(x) FROM t", epsilon=1, who=ANA).rows.num_rows == 1
    fail(curator, ANA, 2)
    for ask in (
        lambda: curator.query("SELECT COUNT(x) FROM t", epsilon=1, who=ANA),
        lambda: curator.explain("SELECT COUNT(x) FROM t", epsilon=1, who=ANA),
        lambda: curator.top("t", "x", 1, epsilon=1, who=ANA),
    ):
        with pytest.raises(AccessRefused, match="paused: 3 questions failed"):
            ask()
    curator.query("SELECT COUNT(x) FROM t", epsilon=1, who=BEN)
    curator.query("SELECT COUNT(x) FROM t", epsilon=1)


def test_the_reason_of_a_failure_is_in_the_log(curator: Curator, caplog: pytest.LogCaptureFixture) -> None:
    """The asker is sent to the steward, who found nothing in the log; an error's own words may quote a value."""
    fail(curator, ANA, 1)
    assert caplog.messages[-1:] == ["a release failed after it was charged: RuntimeError"]


def test_the_pause_is_in_the_ledger_and_holds_for_every_process(curator: Curator, tmp_path: Path) -> None:
    for number in range(3):
        fail(curator, ANA, number)
    with Curator(parse(POLICY), sources={"t": ROWS}, ledger=tmp_path / "ledger.sqlite") as other:
        with pytest.raises(AccessRefused, match="deniable resume ana"):
            other.query("SELECT COUNT(x) FROM t", epsilon=1, who=ANA)
        acts = [entry.act for entry in other.context.ledger.entries(0, ("charge", "fail"))]
        assert acts == ["charge", "fail"] * 3


def test_the_steward_lets_the_asker_go_on(curator: Curator) -> None:
    for number in range(3):
        fail(curator, ANA, number)
    with pytest.raises(AccessRefused):
        curator.resume("ana", who=ANA)
    with pytest.raises(ParameterError):
        curator.resume("ben")
    assert curator.resume("ana") == 3
    curator.query("SELECT COUNT(x) FROM t", epsilon=1, who=ANA)
    for number in range(3, 6):
        fail(curator, ANA, number)
    with pytest.raises(AccessRefused):
        curator.query("SELECT AVG(x) FROM t", epsilon=1, who=ANA)


def test_refusals_before_the_charge_and_canceled_questions_are_no_failures(curator: Curator) -> None:
    for _ in range(5):
        with pytest.raises(DeniableError):
            curator.query("SELECT u FROM t", epsilon=1, who=ANA)
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(DeniableError):
        curator.query("SELECT COUNT(*) FROM t", epsilon=1, who=ANA, stop=stopped)
    assert curator.context.state.failures("ana") == 0


def test_an_analyst_is_not_told_which_value_of_a_file_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("u,x\n1,5\n2,SECRET\n", encoding="utf-8")
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    with Curator.open(tmp_path / "policy.yaml") as curator:
        with pytest.raises(DataError, match="line 3"):
            curator.query("SELECT COUNT(*) FROM t", epsilon=1)
        with pytest.raises(DataError) as refused:
            curator.query("SELECT COUNT(*) FROM t", epsilon=1, who=ANA)
    told = str(refused.value)
    assert "cannot be read as the policy declares it" in told
    assert not {"x", "3", "line", "t.csv", "SECRET"} & set(told.replace("'", " ").split())


def test_a_function_on_blocks_does_not_see_the_column_that_tells_people_apart() -> None:
    policy = parse(POLICY.replace("ana: {purposes: [study]}", "ana: {purposes: [study], columns: [x]}"))
    seen: list[list[str]] = []

    def look(rows: pa.Table) -> float:
        seen.append(rows.column_names)
        return 1.0

    with Curator(policy, sources={"t": ROWS}) as curator:
        curator.sample_and_aggregate(look, "t", blocks=4, bounds=(0, 10), epsilon=1, who=ANA)
    assert seen == [["x"]] * 4


def test_a_question_that_is_canceled_while_it_runs_is_no_failure(
    curator: Curator, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()

    def run(*_: Any, **__: Any) -> None:
        stopped.set()
        raise RuntimeError("interrupted")

    monkeypatch.setattr(DuckDBEngine, "run", run)
    with pytest.raises(Stopped, match="cancelled after it was charged") as told:
        curator.query("SELECT COUNT(*) FROM t", epsilon=1, who=ANA, stop=stopped)
    assert told.value.charged == CHARGED
    assert "interrupted" not in str(told.value), "whatever the reason was, the sentence is the same"
    assert curator.context.state.failures("ana") == 0


@pytest.mark.parametrize("confidence", [1e-320, 5e-17, 1 - 1e-17, 0, 1, float("nan")])
def test_a_confidence_that_no_interval_has_is_refused_before_the_charge(curator: Curator, confidence: float) -> None:
    with pytest.raises(ParameterError):
        curator.query("SELECT AVG(x) FROM t", epsilon=1, confidence=confidence, who=ANA)
    assert list(curator.ledger.entries()) == []


def test_forty_questions_at_once_fail_no_more_often_than_forty_in_turn(
    curator: Curator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, **__: Any) -> None:
        time.sleep(0.05)
        raise RuntimeError("out of memory")

    def ask(number: int) -> type[Exception]:
        with pytest.raises(DeniableError) as refusal:
            curator.query(f"SELECT COUNT(*) FROM t WHERE u > {number}", epsilon=1, who=ANA)
        return refusal.type

    monkeypatch.setattr(DuckDBEngine, "run", run)
    with ThreadPoolExecutor(40) as pool:
        ends = Counter(pool.map(ask, range(40)))
    assert ends == {ExecutionFailed: 3, AccessRefused: 37}
    acts = Counter(entry.act for entry in curator.context.ledger.entries(0, ("charge", "fail")))
    assert acts == {"charge": 3, "fail": 3}


def test_a_question_that_waits_for_its_turn_can_be_taken_back_uncharged(curator: Curator) -> None:
    stop = threading.Event()
    with ExitStack() as busy:
        for _ in range(3):
            busy.enter_context(curator.context.state.take_turn("ana"))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(curator.query, "SELECT COUNT(*) FROM t", epsilon=1, who=ANA, stop=stop)
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
            stop.set()
            with pytest.raises(Stopped):
                waiting.result(10)
    assert not list(curator.context.ledger.entries(0, ("charge",)))
    assert curator.query("SELECT COUNT(*) FROM t", epsilon=1, who=ANA).rows.num_rows == 1


def test_a_file_that_is_gone_is_refused_before_a_charge(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("u,x\n" + "".join(f"{n},{n % 10}\n" for n in range(50)))
    with Curator(parse(POLICY, folder=tmp_path), ledger=tmp_path / "ledger.sqlite") as curator:
        curator.query("SELECT COUNT(*) FROM t", epsilon=1)
        (tmp_path / "t.csv").rename(tmp_path / "moved.csv")
        for who, told in ((None, "is gone"), (ANA, "cannot be read as the policy declares it")):
            with pytest.raises(DataError, match=told) as refused:
                curator.query("SELECT SUM(x) FROM t", epsilon=1, who=who)
            assert refused.value.charged == NOTHING_CHARGED
        (tmp_path / "moved.csv").rename(tmp_path / "t.csv")
        curator.query("SELECT SUM(x) FROM t", epsilon=1)
        assert [entry.act for entry in curator.context.ledger.entries(0, ("charge", "fail"))] == ["charge", "charge"]


def test_the_cause_of_a_failure_is_shown_with_its_entry(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "t.csv").write_text("u,x\n1,2\n")
    with Curator.open(tmp_path / "policy.yaml") as curator, pytest.MonkeyPatch.context() as patch:
        curator.query("SELECT COUNT(*) FROM t", epsilon=1)
        patch.setattr(DuckDBEngine, "run", Mock(side_effect=Stopped("the work was stopped before it ended")))
        with pytest.raises(ExecutionFailed):
            curator.query("SELECT SUM(x) FROM t", epsilon=1)
    shown = CliRunner().invoke(app, ["ledger", "show", "-p", str(tmp_path / "policy.yaml")])
    assert "the work was stopped before it ended" in shown.output
