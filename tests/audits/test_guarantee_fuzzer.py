"""The fuzzer of the guarantee: it finds nothing in the product, and it finds each way of breaking it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clinic
import guarantee_fuzzer
from deniable.dp.mechanisms import KeyThreshold
from deniable.query.algebra import relation
from deniable.query.double_entry import check
from deniable.query.plan import sensitivity_of
from deniable.query.sql import private_sql
from guarantee_fuzzer import (
    BUDGETS,
    PRIVATE,
    Tally,
    Worlds,
    compile_or_none,
    draw_record,
    fuzz,
    hand_over,
    measure_all,
)
from noise_spy import put_twin

STATE = "GUARANTEE_FUZZER_STATE"
"""A folder where long runs keep how far they came, so that one which was stopped goes on."""


def test_some_questions_show_no_more_than_they_pay_for() -> None:
    tally = fuzz(100, seed=3, neighbors=1, quick=True)
    assert not tally.found, "\n".join(tally.found)
    assert tally.refused < 1.5 * tally.asked, "most questions must be answered, or nothing is tested"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_ten_thousand_questions_show_no_more_than_they_pay_for(part: int) -> None:
    """In four parts, for workers that run at once; one of them with the engine's optimizer."""
    state = Path(os.environ[STATE]) / f"fuzz{part}.json" if STATE in os.environ else None
    tally = fuzz(2_500, seed=100 + part, state=state, quick=part > 0)
    assert not tally.found, "\n".join(tally.found)
    assert tally.compared >= 5_000


def test_statements_planned_once_for_all_tables_hand_over_the_same() -> None:
    draw = random.Random("worlds")
    world = {name: [draw_record(draw, each % 4) for each in range(8)] for name in PRIVATE}
    others = [{**world, "visits": world["visits"][:rows]} for rows in (0, 5)]
    text = "SELECT sex, COUNT(*), SUM(CLAMP(age, 0, 9)), MEDIAN(delta) FROM visits GROUP BY sex"
    plan = compile_or_none(text, clinic.TABLES, BUDGETS[1])
    assert plan is not None

    def hand_in_turn(quick: bool) -> list[Any]:
        worlds = Worlds(quick)
        runs = [measure_all(worlds, each, [(plan, None)])[0] for each in (world, *others, world)]
        return [run if isinstance(run, str) else run.steps for run in runs]

    with hand_over():
        planned, plainly = hand_in_turn(True), hand_in_turn(False)
    assert planned == plainly
    assert planned[0] == planned[3] != planned[1]


def test_a_question_is_measured_where_a_table_that_it_names_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere nothing could change, and a comparison would show nothing."""
    worlds, texts = Worlds(quick=True), iter(["SELECT COUNT(*) FROM answers", "SELECT COUNT(*) FROM visits"] * 6)
    seen: list[tuple[set[str], bool, bool]] = []
    honest = guarantee_fuzzer.measure_all

    def watch(worlds: Worlds, world: Any, plans: Any) -> Any:
        seen.append(({plan.text.split()[-1] for plan, _ in plans}, *(key(world) for key in (people, rows))))
        return honest(worlds, world, plans)

    def people(world: Any) -> bool:
        return any(world[name] != first[0][name] for name in ("visits", "stays"))

    def rows(world: Any) -> bool:
        return bool(world["answers"] != first[0]["answers"])

    first: list[Any] = []
    draw_world = guarantee_fuzzer.draw_world
    monkeypatch.setattr(guarantee_fuzzer, "draw_world", lambda draw: first.append(draw_world(draw)) or first[0])
    monkeypatch.setattr(guarantee_fuzzer.Questions, "statement", lambda self: next(texts))
    monkeypatch.setattr(guarantee_fuzzer, "measure_all", watch)
    with hand_over():
        guarantee_fuzzer.ask_some(worlds, 3, Tally(3), neighbors=1)
    assert seen[0] == ({"answers", "visits"}, False, False)
    assert [each for each in seen[1:] if each[0]] == [({"visits"}, True, False), ({"answers"}, False, True)]


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "fuzz.json"
    monkeypatch.setattr(guarantee_fuzzer, "QUESTIONS_A_POLICY", 2)
    fuzz(2, seed=5, neighbors=1, state=state, quick=True)
    stopped = json.loads(state.read_text(encoding="utf-8"))
    whole, resumed = (fuzz(4, seed=5, neighbors=1, state=kept, quick=True) for kept in (None, state))
    assert stopped["next"] < resumed.next
    assert resumed == whole
    assert Tally.load(6, state) == Tally(6), "another seed is another run"


def test_a_resumed_run_drops_what_no_longer_occurs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "fuzz.json"
    monkeypatch.setattr(guarantee_fuzzer, "QUESTIONS_A_POLICY", 2)

    def fail(*_: Any) -> None:
        raise IndexError("broken")

    monkeypatch.setattr(guarantee_fuzzer, "compile_or_none", fail)
    monkeypatch.setattr(guarantee_fuzzer, "measure_all", lambda *_: [])
    first = fuzz(1, seed=5, neighbors=1, state=state, until_found=True, quick=True)
    assert len(first.found) == 2
    assert fuzz(0, seed=5, neighbors=1, state=state, quick=True).found == first.found, "it still occurs"
    monkeypatch.undo()
    monkeypatch.setattr(guarantee_fuzzer, "QUESTIONS_A_POLICY", 2)
    assert fuzz(0, seed=5, neighbors=2, state=state, quick=True).found == first.found, "other questions are drawn"
    assert fuzz(0, seed=5, neighbors=1, state=state, quick=True).found == []
    assert json.loads(state.read_text(encoding="utf-8"))["found"] == []
    told = capsys.readouterr().out
    assert told.count("dropped, since it no longer occurs: question ") == 2
    assert told.count("kept, since it cannot be asked again") == 2


Break = Callable[[pytest.MonkeyPatch], None]


def leave_out_the_clip(patch: pytest.MonkeyPatch) -> None:
    """Values are rounded to steps and not clamped to their bounds."""

    def render(measurement: Any, source: Any) -> str:
        value = private_sql.render_expression(measurement.argument)
        return f"TRY_CAST(round(CAST({value} AS DOUBLE) / {float(measurement.step)!r}) AS BIGINT)"

    put_twin(patch, private_sql.render_whole_steps, render)


def _render_other_limits(patch: pytest.MonkeyPatch, honest: Any, loosen: Callable[[Any], Any]) -> None:
    put_twin(patch, honest, lambda node, places, wanted, limits, keys, salt: honest(
        node, places, wanted, loosen(limits), keys, salt))  # fmt: skip


def double_the_rows(patch: pytest.MonkeyPatch) -> None:
    """A person counts for twice the rows in sums that noise was made for."""
    _render_other_limits(patch, private_sql.render_totals, lambda limits: replace(limits, rows=2 * (limits.rows or 1)))


def double_the_ranked_rows(patch: pytest.MonkeyPatch) -> None:
    """The same where ranks are chosen."""
    _render_other_limits(
        patch, private_sql.render_value_counts, lambda limits: replace(limits, rows=2 * (limits.rows or 1))
    )


def keep_one_group_more(patch: pytest.MonkeyPatch) -> None:
    """A person is kept in one group more than was paid for."""
    _render_other_limits(
        patch, private_sql.render_totals, lambda limits: replace(limits, groups=limits.groups and limits.groups + 1)
    )


def forget_copies_of_a_row(patch: pytest.MonkeyPatch) -> None:
    """A table that is united with itself is priced as if it stood there once."""
    put_twin(patch, relation.multiplicity, lambda tree: 1)


def take_joined_people_for_one_row(patch: pytest.MonkeyPatch) -> None:
    """Rows of a join, and of a summary by more than the person, are priced as one row a person."""

    def has_one_row(tree: Any) -> bool:
        while isinstance(tree, relation.Transform):
            tree = tree.input
        return isinstance(tree, relation.Join | relation.PerUnit)

    put_twin(patch, relation.has_one_row, has_one_row)
    put_twin(patch, private_sql.render_totals, _render_without_limits(private_sql.render_totals))


def _render_without_limits(honest: Any) -> Any:
    """Rows that are taken for one a person are not bounded in the engine."""

    def render(node: Any, places: Any, wanted: Any, limits: Any, keys: Any, salt: Any) -> str:
        one = limits.rows == 1 and limits.groups in (1, None) and not limits.by_row
        return honest(node, places, wanted, replace(limits, rows=10**6, groups=10**6) if one else limits, keys, salt)

    return render


def forget_that_people_are_exchanged(patch: pytest.MonkeyPatch) -> None:
    """Neighbors that exchange a person are priced as if one came or went; double entry looks away."""
    put_twin(patch, sensitivity_of, lambda measurement, limits, groups, replaced, whole=False: sensitivity_of(
        measurement, limits, groups, False, whole))  # fmt: skip
    put_twin(patch, check, lambda plan: None)


def show_keys_of_two(patch: pytest.MonkeyPatch) -> None:
    """Private keys are shown from a noisy count of two people on."""
    patch.setattr(KeyThreshold, "threshold", property(lambda self: 2))


@pytest.mark.parametrize(
    ("break_it", "seed"),
    [
        (leave_out_the_clip, 7),
        (double_the_rows, 3),
        (take_joined_people_for_one_row, 3),
        (show_keys_of_two, 3),
        (double_the_ranked_rows, 3),
        (keep_one_group_more, 6),
        (forget_copies_of_a_row, 3),
        (forget_that_people_are_exchanged, 3),
    ],
)
def test_a_broken_twin_is_found(break_it: Break, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds at which it is found soon; the long run asks a hundred times as many questions."""
    break_it(monkeypatch)
    assert fuzz(100, seed, neighbors=2, until_found=True, quick=True).found
