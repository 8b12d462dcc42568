"""`deniable publish`: one charge for all periods, each measured once; nothing changes and nothing is drawn twice."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable import Curator
from deniable.cli.main import app
from deniable.curator.governance import withdrawals
from deniable.curator.query.stream import run
from deniable.dp.accounting.serialization import to_dict
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import (
    AccessRefused,
    BudgetExceeded,
    DataError,
    ExecutionFailed,
    IntegrityError,
    InternalError,
    ParameterError,
    PolicyError,
    QueryRefused,
)
from deniable.governance.grants import Asker, Role
from deniable.ledger import Ledger
from deniable.ledger.answer_store import AnswerStore
from deniable.policy.document import read_unaccepted
from deniable.release import verify
from deniable.streams.factorization import Factorization
from deniable.streams.mechanism import StreamMechanism

START = date(2026, 1, 1)
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: %(unit)s
    columns:
      id: {type: integer, role: identifier}
      day: {type: date}
      ward: {categories: [a, b], role: quasi-identifier}
      charge: {type: integer, between: [0, 100], role: insensitive}
budgets:
  dataset: {epsilon: %(budget)s, delta: 1e-5, accounting: zcdp}
stream:
  daily:
    table: visits
    time: day
    every: day
    start: 2026-01-01
    periods: 6
    epsilon: %(epsilon)s
    delta: 1e-6
    %(more)s
    questions:
      visits: {count: rows}
%(questions)s
"""
EVERY = """
      people: {count: people, by: [ward], levels: true}
      spend: {sum: charge, where: "ward = 'a'"}
      mean: {mean: charge}
"""
SPEND = """      spend: {sum: charge, where: "ward = 'a'"}"""
PERSON = "{column: id, max_groups: 1, max_rows_per_group: 1}"
EXACT = "10000"
"""The largest epsilon: its noise is far below one, so published numbers are nearly the exact ones."""
Row = tuple[int, int, str, int]
"""Whose, on which day (from 0), where, how much."""
ROWS: list[Row] = [(i, i % 6, "ab"[i % 2], i % 101) for i in range(60)]


def make(folder: Path, rows: list[Row] | None = None, **declared: str) -> Path:
    words = {"unit": PERSON, "budget": "2e9", "epsilon": EXACT, "more": "window: 3", "questions": "", **declared}
    (folder / "policy.yaml").write_text(POLICY % words)
    lines = [f"{i},{START + timedelta(days=d)},{w},{c}" for i, d, w, c in (ROWS if rows is None else rows)]
    (folder / "visits.csv").write_text("\n".join(["id,day,ward,charge", *lines]) + "\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path)


def day(number: int) -> date:
    return START + timedelta(days=number)


def publish(folder: Path, until: int | None = None, **rest: Any) -> run.StreamReport:
    with Curator.open(folder / "policy.yaml") as curator:
        return curator.publish("daily", until=None if until is None else day(until), **rest)


def pick(report: Any, question: str, span: str = "period", **group: str) -> list[float]:
    return [row.value for row in report.rows if (row.question, row.span, dict(row.group)) == (question, span, group)]


def list_charges(folder: Path) -> list[Any]:
    with Curator.open(folder / "policy.yaml") as curator:
        return list(curator.ledger.entries(acts=("charge",)))


def test_published_numbers_are_those_of_their_periods_and_totals_and_windows_add_up(folder: Path) -> None:
    make(folder, questions=EVERY)
    report = publish(folder)
    by_day = [[row for row in ROWS if row[1] == d] for d in range(6)]
    counts = [float(len(rows)) for rows in by_day]
    assert pick(report, "visits") == pytest.approx(counts, abs=0.3)
    assert pick(report, "visits", "total") == pytest.approx([sum(counts[: d + 1]) for d in range(6)], abs=0.3)
    assert pick(report, "visits", "window") == pytest.approx([sum(counts[d - 2 : d + 1]) for d in range(2, 6)], abs=0.3)
    wards = {w: [float(sum(row[2] == w for row in rows)) for rows in by_day] for w in "ab"}
    for ward, wanted in wards.items():
        assert pick(report, "people", ward=ward) == pytest.approx(wanted, abs=0.3)
    assert pick(report, "people") == pytest.approx([sum(each) for each in zip(*wards.values(), strict=True)], abs=0.3)
    spent = [float(sum(row[3] for row in rows if row[2] == "a")) for rows in by_day]
    assert pick(report, "spend") == pytest.approx(spent, abs=30)
    means = [sum(row[3] for row in rows) / len(rows) for rows in by_day]
    assert pick(report, "mean") == pytest.approx(means, abs=4)
    assert all(row.low <= row.value <= row.high for row in report.rows)


def test_all_periods_cost_one_charge_at_the_first_run_and_nothing_later(folder: Path) -> None:
    make(folder, budget="1.5", epsilon="1")
    first = publish(folder, 0)
    again = publish(folder, 2)
    last = publish(folder)
    assert (first.closed, again.closed_now, last.closed_now, last.next_day) == (1, 2, 3, None)
    (charge,) = list_charges(folder)
    assert charge.details["periods"] == 6
    assert Fraction(charge.details["claim"]["epsilon"]) <= 1
    with Curator.open(folder / "policy.yaml") as curator:
        assert curator.total_between("daily", day(1), day(3))
        left = curator.remaining()
        assert publish(folder).rows == last.rows
        assert curator.remaining() == left


def test_nothing_that_was_published_changes_when_rows_come_late_or_are_corrected(folder: Path) -> None:
    make(folder, epsilon="1", budget="2")
    before = publish(folder, 2)
    make(folder, [(i, d, w, 100 - c) for i, d, w, c in ROWS] + [(9, 0, "a", 1)] * 40, epsilon="1", budget="2")
    after = publish(folder)
    assert [row.to_dict() for row in after.rows[: len(before.rows)]] == [row.to_dict() for row in before.rows]


def test_late_rows_are_waited_for(folder: Path) -> None:
    make(folder, more="wait: 2")
    assert publish(folder, 4).closed == 3
    with pytest.raises(ParameterError, match=r"no period of 'daily' has ended.*2026-01-04"):
        publish(make_elsewhere(folder, more="wait: 2"), 1)


def make_elsewhere(folder: Path, rows: list[Row] | None = None, **declared: str) -> Path:
    other = folder / "other"
    other.mkdir()
    return make(other, [(i + 1000, *rest) for i, *rest in ROWS] if rows is None else rows, **declared)  # type: ignore[misc]


def test_a_person_counts_in_the_first_periods_alone_even_if_the_table_changes(folder: Path) -> None:
    """Person 1 is there every day and counts twice; whoever takes the rows away afterwards gains nothing by it."""
    rows = [(1, d, "a", 100) for d in range(6)] + [(2, d, "b", 90) for d in (1, 4)]
    make(folder, rows, more="max_periods: 2", questions=EVERY)
    publish(folder, 1)
    make(folder, [row for row in rows if row[1] > 1], more="max_periods: 2", questions=EVERY)
    report = publish(folder)
    assert pick(report, "visits") == pytest.approx([1, 2, 0, 0, 1, 0], abs=0.3)
    assert pick(report, "spend") == pytest.approx([100, 100, 0, 0, 0, 0], abs=40)
    assert pick(report, "people", "total", ward="a")[-1] == pytest.approx(2, abs=0.3)


def test_in_each_period_a_person_adds_no_more_than_the_unit_allows(folder: Path) -> None:
    make(
        folder,
        [(1, d, w, 100) for d in range(6) for w in "ab" for _ in range(9)],
        more="max_periods: 3",
        questions=SPEND,
        unit="{column: id, max_groups: 2, max_rows_per_group: 2}",
    )
    report = publish(folder)
    assert pick(report, "visits") == pytest.approx([2, 2, 2, 0, 0, 0], abs=0.3)
    assert pick(report, "spend") == pytest.approx([200, 200, 200, 0, 0, 0], abs=80)


def test_the_two_ways_of_reading_a_period_agree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside the engine where all periods count, person by person where that is remembered."""
    rows = [(i % 9, i // 9, "ab"[i % 2], (13 * i) % 101) for i in range(45)]
    inside = publish(make(folder, rows, questions=EVERY))
    monkeypatch.setenv("DENIABLE_STATE", str(folder / "state"))  # the same rows again, as if nobody knew them
    one_by_one = publish(make_elsewhere(folder, rows, more="max_periods: 5\n    window: 3", questions=EVERY))
    for row, twin in zip(one_by_one.rows, inside.rows, strict=True):
        assert (row.question, row.first, row.last, row.group) == (twin.question, twin.first, twin.last, twin.group)
        off = {"spend": 80, "mean": 20}.get(row.question, 1)
        assert row.value == pytest.approx(twin.value, abs=off)


def test_what_is_protected_is_said_in_plain_words(folder: Path) -> None:
    assert publish(folder).protects.startswith("Person-level:")
    rows = publish(make_elsewhere(folder, unit="row"))
    assert rows.protects.startswith("Event-level:")
    assert "several rows is protected less" in rows.protects


class Killed(BaseException):
    """The process ends here."""


def count_writes(monkeypatch: pytest.MonkeyPatch, at: int | None, before: bool) -> list[int]:
    """Count every write to the store and the ledger; end before or after one of them."""
    writes = [0]

    def watch(kind: type, name: str) -> None:
        honest = getattr(kind, name)

        def write(self: Any, *given: Any, **named: Any) -> Any:
            writes[0] += 1
            if before and writes[0] == at:
                raise Killed
            found = honest(self, *given, **named)
            if not before and writes[0] == at:
                raise Killed
            return found

        monkeypatch.setattr(kind, name, write)

    watch(AnswerStore, "keep")
    watch(Ledger, "record")
    return writes


def read_stored(folder: Path) -> dict[str, bytes]:
    with Curator.open(folder / "policy.yaml") as curator:
        return curator.context.store.list_all(run.STREAMS)


TWO = [(i, i % 2, "a", 1) for i in range(6)]


def open_in_memory(folder: Path) -> Curator:
    """A curator of the policy's rows whose store lives as long as itself: another call of it is another run."""
    make(folder, TWO, epsilon="1", budget="2", more="max_periods: 2")
    return Curator(read_unaccepted(folder / "policy.yaml"))


def test_a_process_that_ends_at_any_write_changes_no_value_and_draws_none_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise that was drawn and not stored met no row; what was stored is what is shown, however often it ended."""
    with open_in_memory(folder) as curator, monkeypatch.context() as patched:
        total = count_writes(patched, None, True)
        curator.publish("daily", until=day(1))
    assert total[0] >= 8  # the plan, the charge, noise, a key and numbers of one period, noise and numbers, a note
    for at, before in product(range(1, total[0] + 1), (True, False)):
        with open_in_memory(folder) as curator:
            with monkeypatch.context() as patched:
                count_writes(patched, at, before)
                with pytest.raises(Killed):
                    curator.publish("daily", until=day(1))
            kept = curator.context.store.list_all(run.STREAMS)
            report = curator.publish("daily", until=day(1))
            after = curator.context.store.list_all(run.STREAMS)
            assert {name: after[name] for name in kept} == kept
            assert len(list(curator.ledger.entries(acts=("charge",)))) == 1
            assert len([name for name in after if name.endswith("noise")]) == report.closed == 2
            assert curator.publish("daily", until=day(1)).rows == report.rows
            assert find_noise(after) == json.loads(next(v for k, v in after.items() if k.endswith(" 0 noise")))


def find_noise(stored: dict[str, bytes]) -> list[list[int]]:
    """The noise that the first period was measured with: what is left of its row without its exact numbers."""
    plan = json.loads(next(value for name, value in stored.items() if len(name.split(" ")) == 2))
    period = json.loads(next(value for name, value in stored.items() if name.endswith(" 0")))
    rows = Factorization.from_bytes(plan["name"], plan["periods"], base64.b64decode(plan["rows"])).rows
    pairs = zip(period["noisy"], period["exact"], strict=True)
    return [[y - int(rows[0, 0]) * x for y, x in zip(noisy, exact, strict=True)] for noisy, exact in pairs]


def test_noise_is_stored_before_a_row_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    keep, read = AnswerStore.keep, run._read_period
    monkeypatch.setattr(
        AnswerStore,
        "keep",
        lambda self, where, name, *rest, **more: (
            order.append(name.rsplit(" ", 1)[-1] if where == run.STREAMS else where),
            keep(self, where, name, *rest, **more),
        )[1],
    )
    monkeypatch.setattr(run, "_read_period", lambda *given: (order.append("read"), read(*given))[1])
    publish(folder, 0)
    assert order[order.index("noise") :][:3] == ["noise", "read", "0"]


@pytest.mark.slow
def test_a_killed_process_leaves_nothing_half_done(folder: Path) -> None:
    make(folder, epsilon="1", budget="2")
    program = (
        "import os, sys\nfrom deniable import Curator\nfrom deniable.ledger.answer_store import AnswerStore\n"
        "from datetime import date\nkeep, left = AnswerStore.keep, [int(sys.argv[2])]\n"
        "def end(self, *given, **named):\n    found = keep(self, *given, **named)\n    left[0] -= 1\n"
        "    if left[0] == 0: os._exit(9)\n    return found\nAnswerStore.keep = end\n"
        "with Curator.open(sys.argv[1]) as curator: curator.publish('daily')\n"
    )
    seen: dict[str, bytes] = {}
    for at in (2, 3, 2, 3):
        done = subprocess.run([sys.executable, "-c", program, str(folder / "policy.yaml"), str(at)], check=False)
        assert done.returncode == 9
        now = read_stored(folder)
        assert {name: now[name] for name in seen} == seen
        seen = now
    assert publish(folder).closed == 6
    assert len(list_charges(folder)) == 1


def test_two_processes_at_once_publish_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(folder, epsilon="1", budget="2")
    honest, found = run._read_period, []

    def read(context: Any, opened: Any, closed: Any, period: int) -> Any:
        if not found:
            found.append(None)
            found[0] = publish(folder, 1)
        return honest(context, opened, closed, period)

    monkeypatch.setattr(run, "_read_period", read)
    slow = publish(folder, 1)
    assert slow.rows == found[0].rows
    assert (slow.closed_now, found[0].closed_now) == (0, 2)  # each period was closed by one of them
    assert len(list_charges(folder)) == 1


def test_a_store_that_lost_periods_or_the_whole_stream_is_refused(folder: Path) -> None:
    publish(folder, 1)
    with Curator.open(folder / "policy.yaml") as curator:
        store, name = curator.context.store, next(iter(curator.context.store.list_all(run.STREAMS)))
        held = store.list_all(run.STREAMS)
        store.empty(run.STREAMS)
        with pytest.raises(IntegrityError, match="was charged, and the answer store does not have it"):
            curator.publish("daily")
        for key, value in held.items():
            if not key.endswith((" 1", " 1 noise")):
                store.keep(run.STREAMS, key, key, value)
        assert name in held
        with pytest.raises(IntegrityError, match=r"2 periods of 'daily' were published.*has 1"):
            curator.publish("daily")


def test_a_stream_stays_as_it_was_declared(folder: Path) -> None:
    publish(folder, 1)
    make(folder, more="window: 2")
    with pytest.raises(ParameterError, match="begun under another declaration"):
        publish(folder)
    assert len(list_charges(folder)) == 1


def edit(folder: Path, old: str, new: str) -> None:
    written = (folder / "policy.yaml").read_text()
    assert written.count(old) == 1
    (folder / "policy.yaml").write_text(written.replace(old, new))


def test_an_edit_that_a_stream_does_not_depend_on_leaves_it_as_it_is(folder: Path) -> None:
    before = publish(folder, 1)
    edit(folder, "charge: {type: integer, between: [0, 100], role: insensitive}",
         "charge: {type: integer, between: [0, 90], role: sensitive}")  # fmt: skip
    edit(folder, "role: identifier}", "role: identifier, mask: redact}")
    after = publish(folder, 3)
    assert after.rows[: len(before.rows)] == before.rows
    assert after.closed == 4
    assert len(list_charges(folder)) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [("between: [0, 100]", "between: [0, 90]"), ("categories: [a, b]", "categories: [a, b, c]"),
     ("id: {type: integer,", "id: {")],
)  # fmt: skip
def test_an_edit_of_a_column_that_a_stream_uses_stops_it(folder: Path, old: str, new: str) -> None:
    make(folder, questions=EVERY)
    publish(folder, 1)
    edit(folder, old, new)
    with pytest.raises(ParameterError, match="begun under another declaration"):
        publish(folder, 2)


def test_a_stream_that_was_charged_under_the_whole_table_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deniable.curator.query.stream import plan
    from deniable.policy.document import digest

    with monkeypatch.context() as patched:
        patched.setattr(plan, "_name_declaration", lambda _, s, t: digest({"stream": s, "table": t})[len("sha256:") :])
        before = publish(folder, 1)
    after = publish(folder, 2)
    assert after.rows[: len(before.rows)] == before.rows
    assert len(list_charges(folder)) == 1


def test_a_stream_that_does_not_fit_the_budget_is_refused_and_can_be_declared_smaller(folder: Path) -> None:
    make(folder, epsilon="3", budget="1")
    with pytest.raises(BudgetExceeded):
        publish(folder)
    assert list_charges(folder) == []
    make(folder, epsilon="0.5", budget="1")
    assert publish(folder).closed == 6


def test_what_fails_after_the_charge_is_one_sentence_and_the_next_run_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: Any, **_named: Any) -> Any:
        raise RuntimeError("row 17")

    with monkeypatch.context() as patched:
        patched.setattr(run, "_read_step", fail)
        with pytest.raises(ExecutionFailed) as refusal:
            publish(folder)
    assert "row 17" not in str(refusal.value)
    assert publish(folder).closed == 6
    assert len(list_charges(folder)) == 1


BREAKS: dict[str, Callable[[str], str | None]] = {
    "gone": lambda _: None,
    "another column": lambda text: text.replace("charge", "costs", 1),
    "a text for a number": lambda text: text + f"x,{START},a,1\n",
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_source_that_cannot_be_read_later_is_told_to_the_steward_as_at_the_first_run(folder: Path, how: str) -> None:
    """Before, it was one sentence: that the charge stands, and that the steward is to be told."""
    source, text = folder / "visits.csv", (folder / "visits.csv").read_text()
    broken = BREAKS[how](text)
    changed = source.unlink if broken is None else lambda: source.write_text(broken)
    changed()
    with pytest.raises(DataError) as first:
        publish(folder, 1)
    source.write_text(text)
    before = publish(folder, 1)
    changed()
    with pytest.raises(DataError, match=r"Nothing was charged") as later:
        publish(folder, 3)
    assert str(later.value) == str(first.value)
    assert len(list_charges(folder)) == 1
    source.write_text(text)
    after = publish(folder, 3)
    assert after.closed_now == 2
    assert after.rows[: len(before.rows)] == before.rows


def test_a_stream_that_protects_nobody_is_refused(folder: Path) -> None:
    make(folder, epsilon="10001")
    with Curator.open(folder / "policy.yaml") as curator:
        for ask in (curator.publish, curator.explain_publish):
            with pytest.raises(ParameterError, match="above 10,000"):
                ask("daily")
    assert not list_charges(folder)


def test_whoever_withdrew_is_in_no_period_that_is_closed_later(folder: Path) -> None:
    make(folder, [(i, d, "a", 1) for i in range(4) for d in range(6)])
    publish(folder, 2)
    with Curator.open(folder / "policy.yaml") as curator:
        withdrawals.withdraw(curator.context, "id", "3")
        report = curator.publish("daily")
    assert pick(report, "visits") == pytest.approx([4, 4, 4, 3, 3, 3], abs=0.3)


def test_streams_are_the_stewards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DuckDBEngine, "run", lambda *_: pytest.fail("rows were read"))
    with Curator.open(folder / "policy.yaml") as curator, pytest.raises(AccessRefused, match="steward"):
        curator.publish("daily", who=Asker("ana", "research", Role.ANALYST))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    monkeypatch.delenv("DENIABLE_LEDGER", raising=False)

    def call(folder: Path, *words: str) -> Any:
        monkeypatch.chdir(folder)
        done = CliRunner().invoke(app, ["publish", *words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return json.loads(done.output) if "--json" in words else done.output

    return call


def test_the_command_writes_feeds_with_statements_and_a_page(folder: Path, elsewhere: Callable[..., Any]) -> None:
    make(folder, questions=EVERY)
    plan = elsewhere(folder, "daily", "--explain")
    assert "Person-level" in plan
    assert "Nothing was charged now" in plan
    assert not (folder / "policy.ledger.sqlite").exists()
    told = elsewhere(folder, "daily", "-o", "feed.parquet", "--report", "page.html", "--json")
    for name in ("feed.csv", "feed.json"):
        assert "6 of 6 periods" in elsewhere(folder, "daily", "-o", name)
    rows = pq.read_table(folder / "feed.parquet").to_pylist()
    assert [row["value"] for row in rows] == [row["value"] for row in told["rows"]]
    assert {"question", "span", "first", "last", "ward", "value", "low", "high", "deviation"} == {*rows[0]}
    assert json.loads((folder / "feed.json").read_text())["rows"] == told["rows"]
    assert (folder / "feed.csv").read_text().count("\n") == len(rows) + 1
    for name in ("feed.parquet", "feed.csv", "feed.json"):
        assert verify(folder / name).body["details"]["protects"] == told["protects"]
    page = (folder / "page.html").read_text()
    assert "Person-level" in page
    assert "Since the start" in page
    total = elsewhere(folder, "daily", "--first", "2026-01-02", "--last", "2026-01-04", "--json")
    wanted = sum(1 <= row[1] <= 3 for row in ROWS)
    assert next(row["value"] for row in total if row["question"] == "visits") == pytest.approx(wanted, abs=0.3)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ("max_periods: 7", "max_periods is more than all periods"),
        ("totals: windows", "windows of no length"),
        ("window: 9", "window is more than all periods"),
        ("wait: -1", "wait"),
    ],
)
def test_a_mistake_in_a_declaration_is_told_with_its_line(folder: Path, more: str, match: str) -> None:
    make(folder, more=more)
    with pytest.raises(PolicyError, match=match):
        publish(folder)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("time: day", "time: ward", "'ward' is not a date"),
        ("table: visits", "table: trips", "no private table 'trips'"),
        ("every: day\n    start: 2026-01-01", "every: month\n    start: 2026-01-31", "not every month"),
        ("count: rows}", "count: rows, sum: charge}", "of which one is enough"),
        ("count: rows}", "count: rows, levels: true}", "levels without groups"),
    ],
)
def test_what_makes_no_sense_is_refused(folder: Path, old: str, new: str, match: str) -> None:
    text = (folder / "policy.yaml").read_text()
    assert old in text
    (folder / "policy.yaml").write_text(text.replace(old, new))
    with pytest.raises(PolicyError, match=match):
        publish(folder)


@pytest.mark.parametrize(
    "where", ["true) OR (true", "ward = 'a' GROUP BY ward", "id IN (SELECT id FROM visits GROUP BY id)) --"]
)
def test_a_condition_cannot_leave_its_place(folder: Path, where: str) -> None:
    make(folder, questions=SPEND)
    text = (folder / "policy.yaml").read_text()
    (folder / "policy.yaml").write_text(text.replace("ward = 'a'", where))
    with pytest.raises(QueryRefused):
        publish(folder)
    assert list_charges(folder) == []


def test_groups_are_declared_and_bounding_can_be_remembered(folder: Path) -> None:
    make(folder, questions="      people: {count: people, by: [day]}")
    with pytest.raises(QueryRefused, match="without declared categories"):
        publish(folder)
    other = make_elsewhere(
        folder,
        questions="      people: {count: people, by: [ward]}",
        unit=PERSON.replace("}", ", bounding: scale}"),
        more="max_periods: 2",
    )
    with pytest.raises(QueryRefused, match="another form of bounding"):
        publish(other)


def test_the_noise_that_is_drawn_is_the_noise_that_is_charged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of every period is drawn once, with the variance of its event in the one charge."""
    make(folder, epsilon="1", budget="2", more="max_periods: 2")
    drawn: list[Any] = []
    honest = StreamMechanism.draw_noise
    monkeypatch.setattr(
        StreamMechanism, "draw_noise", lambda self, *given: (drawn.append(self), honest(self, *given))[1]
    )
    publish(folder)
    (charge,) = list_charges(folder)
    assert len(drawn) == 6
    assert [to_dict(each.event) for each in drawn] == [charge.event] * 6


def drop_delta(folder: Path) -> None:
    text = (folder / "policy.yaml").read_text()
    (folder / "policy.yaml").write_text(text.replace("    delta: 1e-6\n", ""))


def test_without_a_delta_a_stream_has_laplace_noise_of_pure_epsilon_and_goes_on_from_its_store(folder: Path) -> None:
    make(folder, questions=EVERY, more="window: 3\n    max_periods: 2")
    drop_delta(folder)
    with Curator.open(folder / "policy.yaml") as curator:
        told = curator.explain_publish("daily")
    assert told.noise == "discrete Laplace"
    assert "delta" not in told.budget
    first = publish(folder, 2)
    report = publish(folder)
    assert report.rows[: len(first.rows)] == first.rows
    assert (report.delta, float(report.epsilon)) == (0, float(EXACT))
    counts = [float(sum(row[1] == d for row in ROWS)) for d in range(6)]  # everybody has one row
    assert pick(report, "visits") == pytest.approx(counts, abs=0.3)
    assert pick(report, "visits", "total")[-1] == pytest.approx(60, abs=0.3)
    assert pick(report, "mean")[0] == pytest.approx(sum(row[3] for row in ROWS if row[1] == 0) / counts[0], abs=0.1)
    (charge,) = list_charges(folder)
    assert {each.get("event", each)["kind"] for each in charge.event["events"]} == {"laplace"}


@pytest.mark.parametrize("pure", [False, True], ids=["gaussian", "laplace"])
def test_noise_for_less_than_one_person_moves_is_found_before_anything_is_charged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, pure: bool
) -> None:
    make(folder, epsilon="1", budget="2")
    if pure:
        drop_delta(folder)
    honest = StreamMechanism.within
    monkeypatch.setattr(StreamMechanism, "within", lambda budget, made, _, parts: honest(budget, made, 1, parts))
    with pytest.raises(InternalError, match="not made for what it measures"):
        publish(folder)
    assert list_charges(folder) == []


OFFSETS = ["2026-01-01T23:30:00+02:00", "2026-01-02T00:30:00+0200", "2026-01-02 12:00:00.5Z", "2026-01-03T00:30-03"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_times_with_an_offset_are_in_the_period_of_their_day_in_utc(tmp_path: Path, kind: str) -> None:
    """A text with an offset and a column with a zone are the same times: an engine that drops offsets would differ."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "visits.csv").write_text("\n".join(["day", *OFFSETS]) + "\n")
    moments = [datetime.fromisoformat(each) for each in OFFSETS]
    pq.write_table(pa.table({"day": pa.array(moments, pa.timestamp("us", "UTC"))}), tmp_path / "visits.parquet")
    policy = POLICY % {"unit": "row", "budget": "5000", "epsilon": "4000", "more": "", "questions": ""}
    columns = policy[policy.index("      id:") : policy.index("budgets:")]
    policy = policy.replace(columns, "      day: {type: datetime}\n").replace("visits.csv", f"visits.{kind}")
    (tmp_path / "policy.yaml").write_text(policy)
    assert [round(each) for each in pick(publish(tmp_path, 3), "visits")] == [2, 1, 1, 0]


def test_analysts_read_over_http_what_was_published_and_nothing_is_measured_by_that(tmp_path: Path, serve: Any) -> None:
    import httpx

    make(tmp_path)
    budgets = "  purposes: {research: {epsilon: 1}, care: {epsilon: 1}}\n  analysts:\n"
    budgets += "    ana: {purposes: [research]}\n    ben: {purposes: [care]}\nstream:\n"
    written = (tmp_path / "policy.yaml").read_text().replace("stream:\n", budgets)
    with serve(policy=written) as up:
        headers = {"authorization": f"Bearer {up.tokens['ana']}"}

        def read(name: str) -> httpx.Response:
            return httpx.get(f"{up.http}/v1/streams/{name}", headers=headers, timeout=60)

        assert read("daily").status_code == 400
        assert "nothing of 'daily' was published yet" in read("daily").text
        report = up.curator.publish("daily", until=day(1))
        told = read("daily").json()
        assert (told["closed"], told["closed_now"]) == (2, 0)
        assert [row["value"] for row in told["rows"]] == [row.value for row in report.rows]
        assert len(list(up.curator.ledger.entries(acts=("charge",)))) == 1
        assert read("weekly").status_code == 400
        steward = {"authorization": f"Bearer {up.tokens['steward']}"}
        closing = httpx.post(f"{up.steward}/v1/streams/daily", headers=steward, timeout=60)
        closed = closing.json()["closed"]
        assert closed > 2
        assert closing.headers["x-deniable-charged"] == "false", "the first run paid for all of them"
        assert closing.json()["charged"] is False
        assert closing.json()["rows"][: len(report.rows)] == told["rows"]
        assert read("daily").json()["closed"] == closed
        again = httpx.post(f"{up.steward}/v1/streams/daily", headers=steward, timeout=60)
        assert (again.json()["closed_now"], again.headers["x-deniable-charged"]) == (0, "false")
        assert len(list(up.curator.ledger.entries(acts=("charge",)))) == 1
