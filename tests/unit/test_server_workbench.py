"""Parts of the workbench: intervals in words, charts, budgets in plain units, the same question elsewhere."""

from __future__ import annotations

import json
import re
import shlex
from fractions import Fraction
from types import SimpleNamespace

import pyarrow as pa
import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")

from deniable.curator.governance.reports import state_plainly
from deniable.curator.query.metadata import QuestionPreview
from deniable.dp.accounting.accountant import accountant_for
from deniable.dp.accounting.events import GaussianEvent
from deniable.ledger import Balance
from deniable.policy.budget import ApproxDP, PureDP
from deniable.server.service import Question
from deniable.server.workbench.analyst import say_preview
from deniable.server.workbench.answers import view_answer, write_elsewhere
from deniable.server.workbench.charts import Interval, Spending, choose_axis, draw_intervals, draw_spending


def show(keys: tuple[str, ...] = (), **columns: list[object]) -> object:
    details = {"release": "r", "cost": {"epsilon": "1"}, "confidence": 0.95, "notes": [], "grouped_by": keys}
    release = SimpleNamespace(details=details)
    return view_answer(SimpleNamespace(rows=pa.table(columns), release=release, repeated=False))  # type: ignore[arg-type]


def test_intervals_are_said_by_their_halves_their_ends_or_the_one_end_they_have() -> None:
    view = show(k=["a", "b", "c", "d"], n=[10.0, 10.0, 10.0, 10.0], n_low=[8.0, 9.0, None, 4.0],
                n_high=[12.0, 14.0, 11.0, float("inf")])  # fmt: skip
    assert [row[1].reach for row in view.rows] == ["± 2", "9 to 14", "at most 11", "at least 4"]
    assert view.one_sided
    assert view.names == ["k", "n"]


def test_a_column_that_only_ends_like_an_interval_is_shown() -> None:
    assert show(n=[1], price_low=[2]).names == ["n", "price_low"]


def test_a_chart_is_labeled_by_keys_and_never_by_a_noisy_number_without_an_interval() -> None:
    columns = {"age": [30, 40], "median": [17, 23], "n": [10.0, 11.0], "n_low": [8.0, 9.0], "n_high": [12.0, 13.0]}
    [chart] = show(("age",), **columns).charts
    assert re.findall(r'class="label"[^>]*>([^<]*)<', chart) == ["30", "40"]
    [chart] = show((), **columns).charts
    assert re.findall(r'class="label"[^>]*>([^<]*)<', chart) == ["n", "n"]


def test_every_mark_of_a_chart_lies_inside_it_and_open_ends_have_arrows() -> None:
    drawn = draw_intervals("n", [Interval("<b>", -3.0, -9.0, 4.0), Interval("x", 250.0, 240.0, None)])
    places = [float(each) for each in re.findall(r'(?:x|x1|x2|cx)="(-?[\d.]+)%"', drawn)]
    assert min(places) >= 0
    assert max(places) <= 100
    assert drawn.count("▶") == 1
    assert "<b>" not in drawn
    assert draw_intervals("n", []) == ""


def test_an_axis_has_round_marks_around_its_numbers() -> None:
    for values in ([0.0], [3.0, 7.5], [-0.02, 0.9], [98233.0], [1e-7]):
        axis = choose_axis(values)
        assert axis.low <= min(0.0, *values)
        assert axis.high >= max(0.0, *values)
        assert 2 <= len(axis.marks) <= 9


def test_spending_is_drawn_within_the_height_of_its_limit() -> None:
    drawn = draw_spending("spent", [Spending("2026-01-01", 2.0), Spending("2026-01-02", 4.0)], 10.0)
    heights = [float(each) for each in re.findall(r'<rect [^>]*height="([\d.]+)">', drawn)]
    assert heights[0] == pytest.approx(heights[1] / 2)
    assert 'class="limit"' in drawn


def test_an_account_in_rho_is_stated_in_the_epsilon_of_its_limit() -> None:
    limit = ApproxDP(10, Fraction(1, 10**6))
    account = accountant_for("zcdp", limit)
    whole = account.compute_remaining()
    half = account.compose(GaussianEvent(variance=1 / whole.rho))  # its rho is half of what there is
    [plain] = state_plainly([Balance("the dataset", limit, half.compute_spent(), half.compute_remaining())])
    assert (plain.unit, plain.limit) == ("epsilon", 10.0)
    assert plain.left == pytest.approx(5.0)
    [free] = state_plainly([Balance("nobody", None, None, None)])
    assert free.left is None
    [pure] = state_plainly([Balance("ana", PureDP(10), PureDP(Fraction(9, 5)), PureDP(Fraction(41, 5)))])
    assert pure.left == pytest.approx(8.2)


@pytest.mark.parametrize(
    ("limit", "left", "takes", "fits", "words"),
    [
        (10.0, 8.2, 0.5, 16, "8.2 of 10 left; this takes 0.5; about 16 like it fit."),
        (10.0, 0.5, 0.5, 1, "0.5 of 10 left; this takes 0.5; it is the last one that fits."),
        (10.0, 0.2, None, 0, "0.2 of 10 left; this takes more than that, and would be refused."),
        (10.0, 8.2, 0.0, None, "8.2 of 10 left; this is free."),
        (None, None, None, None, "There is no limit."),
    ],
)
def test_a_price_is_said_in_one_sentence(limit, left, takes, fits, words) -> None:
    assert say_preview(QuestionPreview("epsilon", limit, left, takes, fits, [], [], "a person")) == words


def test_the_same_question_elsewhere_is_quoted_for_each_language() -> None:
    sql = "SELECT COUNT(*) FROM people WHERE sex = 'F' AND note <> \"$(rm -rf /)\" -- `x` \\ ü"
    told = write_elsewhere(Question(sql, "0.5", purpose="it's"), "http://127.0.0.1:8400", "clinic", 5544)
    called = re.search(r"analyst.query\((.*)\)$", told["Python"], re.DOTALL)
    assert eval(f"dict(sql={called.group(1)})") == {"sql": sql, "epsilon": "0.5", "purpose": "it's"}
    words = shlex.split(told["curl"])
    assert json.loads(words[words.index("-d") + 1]) == {"sql": sql, "epsilon": "0.5", "purpose": "it's"}
    commands = shlex.split(told["psql"])
    assert [commands[i + 1] for i, word in enumerate(commands) if word == "-c"] == [
        "SET deniable.epsilon = '0.5'", "SET deniable.purpose = 'it''s'", sql,
    ]  # fmt: skip
    body = re.search(r"req_body_raw\((\".*\"), type", told["R"]).group(1)
    assert json.loads(json.loads(body))["sql"] == sql
    assert commands[commands.index("-p") + 1] == "5544"
    assert "psql" not in write_elsewhere(Question(sql), "http://127.0.0.1:8400", "clinic", None)
