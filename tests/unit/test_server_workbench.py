"""Parts of the workbench: intervals in words, charts, budgets in plain units, the same question elsewhere."""

from __future__ import annotations

import json
import re
import shlex
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")

from deniable import Curator
from deniable.curator.governance import requests
from deniable.curator.governance.reports import PlainBalance, state_plainly
from deniable.curator.query.metadata import say_preview
from deniable.dp.accounting import accountant_for, rho_within
from deniable.dp.accounting.events import GaussianEvent
from deniable.errors import BudgetExceeded
from deniable.governance.grants import Asker
from deniable.ledger import Balance
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.document import parse
from deniable.server.refusals import translate_for_page
from deniable.server.service import Question
from deniable.server.workbench.answers import view_answer, write_elsewhere
from deniable.server.workbench.charts import (
    LONGEST_LINE,
    Interval,
    Spending,
    choose_axis,
    draw_intervals,
    draw_spending,
)


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


def test_a_view_knows_how_many_rows_its_charts_draw() -> None:
    rows = {"age": list(range(86)), "n": [1.0] * 86, "n_low": [0.0] * 86, "n_high": [2.0] * 86}
    view = show(("age",), **rows)
    [chart] = view.charts
    assert (view.drawn, view.total) == (chart.count('class="label"'), 86)


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


def test_spending_of_several_is_stacked_and_never_runs_into_the_numbers_of_its_axis() -> None:
    days = [Spending(f"2026-01-{day:02}", (day / 2, day / 4)) for day in range(1, 31)]
    drawn = draw_spending("spent", ["care", "<b>"], days)
    bars = re.findall(
        r'<rect class="spent f(\d)" x="([\d.]+)%" y="([\d.]+)" width="([\d.]+)%" height="([\d.]+)"', drawn
    )
    assert [bar[0] for bar in bars] == ["0", "1"] * 30
    below, above = (tuple(map(float, bar[1:])) for bar in bars[-2:])
    assert above[1] + above[3] == pytest.approx(below[1], abs=0.11), "one stands on the other"
    assert below[3] == pytest.approx(2 * above[3], rel=0.01)
    assert below[0] + below[2] < 90, "the numbers of the axis stand right of all bars"
    assert drawn.count("2026-01-01") == 3, "two parts tell their day, and the axis does"
    assert "<b>" not in drawn


def test_the_limit_is_a_line_above_what_was_spent_or_is_said_where_it_is_far_above() -> None:
    days = [Spending("2026-01-01", (2.0,))]
    drawn = draw_spending("spent", ["care"], days, 10.0)
    [line] = re.findall(r'<line class="limit"[^>]* y1="([\d.]+)"', drawn)
    [bar] = re.findall(r'<rect class="spent f0"[^>]* y="([\d.]+)"', drawn)
    assert float(line) < float(bar)
    assert "limit of the dataset, 10<" in drawn
    far = draw_spending("spent", ["care"], days, 100000.0)
    assert 'class="limit"' not in far
    assert "spent; the limit of the dataset is 100,000" in far


def test_what_is_left_in_rho_is_told_in_percent_and_intervals_have_no_powers_of_ten() -> None:
    told = say_preview(PlainBalance("analyst 'ana'", "", "rho", 1.48, 1.36, stated="epsilon 10"), 0.02, 66)
    assert told == (
        "Budget of analyst 'ana': 91% of epsilon 10 left for questions like this; this takes 1.36%; "
        "about 66 like it fit."
    )
    view = show(n=[100000.0], n_low=[0.0], n_high=[250000.0])
    assert view.rows[0][0].reach == "0 to 250,000"
    assert "e+" not in str(view.charts)
    written = re.findall(r'class="mark" x="([\d.]+)%"[^>]*>([^<]*)<', str(view.charts[0]))
    assert [mark for _, mark in written] == ["0", "100,000", "200,000"], "long numbers of an axis stand apart"


def test_an_account_in_rho_is_stated_in_the_rho_of_its_limit() -> None:
    limit = ApproxDP(10, Fraction(1, 10**6))
    account = accountant_for("zcdp", limit)
    whole = account.compute_remaining()
    assert whole.epsilon == 10, "a pure question could have all of it"
    half = account.compose(GaussianEvent(variance=1 / rho_within(limit.epsilon, limit.delta)))  # half of the rho
    [plain] = state_plainly([Balance("the dataset", limit, half.compute_spent(), half.compute_remaining())])
    assert (plain.unit, plain.limit) == ("rho", pytest.approx(float(account.rho_left)))
    assert 0.475 < plain.left / plain.limit < 0.5, "half, less what half of the delta costs"
    [free] = state_plainly([Balance("nobody", None, None, None)])
    assert free.left is None
    [pure] = state_plainly([Balance("ana", PureDP(10), PureDP(Fraction(9, 5)), PureDP(Fraction(41, 5)))])
    assert pure.left == pytest.approx(8.2)


def test_a_price_is_what_is_charged_and_a_free_question_shows_the_balance_that_ends_first() -> None:
    """An epsilon of 0.1 was shown as 0.101 once something was spent, and free questions with the dataset's balance."""
    policy = parse(BUDGETS)
    ana = Asker("ana", "care")
    with Curator(policy, sources={"people": pa.table({"id": [1, 2, 3], "age": [30, 40, 50]})}) as curator:
        asked = "SELECT COUNT(*) AS n FROM people"
        curator.query(asked, epsilon="0.9", who=ana)
        told = curator.preview(asked + " WHERE age < 40", epsilon="0.1", who=ana)
        assert (told.limit, told.left, told.takes) == (5.0, 4.1, 0.1)
        free = curator.preview(asked, epsilon="0.9", who=ana)
        assert (free.limit, free.left, free.takes) == (5.0, 4.1, 0.0)


def test_the_budget_that_decides_is_named_whether_a_question_is_free_fits_or_is_refused() -> None:
    """Where accounts are kept in rho, free and refused questions were told with the purpose's balance, in rho."""
    text = BUDGETS.replace("{epsilon: 20, accounting: pure}", "{epsilon: 10, delta: 1e-6, accounting: zcdp}")
    policy = parse(text.replace("care: {epsilon: 10}", "care: {epsilon: 4}").replace("epsilon: 5}", "epsilon: 1}"))
    ana, asked = Asker("ana", "care"), "SELECT COUNT(*) AS n FROM people"
    with Curator(policy, sources={"people": pa.table({"id": [1, 2, 3], "age": [30, 40, 50]})}) as curator:
        curator.query(asked, epsilon="0.4", who=ana)
        cases = {
            "free": (asked, "0.4"),
            "fits": (asked + " WHERE age < 40", "0.1"),
            "refused": (asked + " WHERE age < 41", "0.86"),
        }
        told = {name: curator.preview(sql, epsilon=epsilon, who=ana) for name, (sql, epsilon) in cases.items()}
        assert {(each.node, each.unit, each.limit, each.left) for each in told.values()} == {
            ("analyst 'ana'", "epsilon", 1.0, 0.6)
        }
        assert [told[name].takes for name in cases] == [0.0, 0.1, None]
        other = curator.preview(asked + " WHERE age < 42", rho="0.01", who=ana)
    assert (other.node, other.unit, other.left, other.takes) == ("analyst 'ana'", "rho", 0.0, None)
    assert other.in_words == (
        "Budget of analyst 'ana': 0% of epsilon 1 left for questions like this; this takes more than that, "
        "and would be refused."
    )


def test_the_error_of_a_mean_is_told_for_numbers_of_rows_and_that_of_a_median_in_places() -> None:
    with Curator(parse(BUDGETS), sources={"people": pa.table({"id": [1, 2, 3], "age": [30, 40, 50]})}) as curator:
        told = curator.preview("SELECT AVG(age) AS m, MEDIAN(age) AS h, VARIANCE(age) AS v FROM people", epsilon="2")
        plan = curator.explain("SELECT AVG(age) AS m, MEDIAN(age) AS h, VARIANCE(age) AS v FROM people", epsilon="2")
    mean, median, variance = (each.words for each in told.errors)
    total, rows = (part["error"] for part in plan["aggregates"][0]["measurements"])
    first, second = (min(100.0, (total + 50 * rows) / (number - rows)) for number in (100, 1000))
    assert mean == (f"at most ± {first:.4g} over 100 rows, ± {second:.4g} over 1,000 rows; "
                    "how many rows there are is not known before the answer")  # fmt: skip
    assert re.fullmatch(r"within \d+ places of the right one, with all values in order", median)
    assert variance.startswith("follows from sum")


def test_only_numbers_with_an_interval_are_said_to_have_one() -> None:
    assert show(n=[10.0], n_low=[0.0], n_high=[20.0]).bare == []
    median = show(m=[10.0])
    assert (median.intervals, list(median.bare)) == (False, ["m"])


BUDGETS = """\
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {role: identifier}
      age: {role: quasi-identifier, type: integer, between: [0, 100]}
budgets:
  dataset: {epsilon: 20, accounting: pure}
  purposes:
    care: {epsilon: 10}
  analysts:
    ana: {purposes: [care], epsilon: 5}
"""


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
    told = say_preview(PlainBalance("the dataset", "", "epsilon", limit, left), takes, fits)
    assert told.removeprefix("Budget of the dataset: ") == words


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


def test_a_long_label_is_broken_into_lines_and_none_is_cut():
    labels = ["the same long beginning of a name that ends in " + end for end in ("north", "south")]
    drawn = str(draw_intervals("Counts", [Interval(label, 3.0, 1.0, 5.0) for label in labels]))
    lines = re.findall(r'<text class="label"[^>]*>([^<]*)<', drawn)
    assert " ".join(lines) == " ".join(labels)
    assert max(map(len, lines)) <= LONGEST_LINE
    heights = [float(y) for y in re.findall(r'<text class="label"[^>]*y="([\d.]+)"', drawn)]
    dots = [float(y) for y in re.findall(r'<circle[^>]*cy="([\d.]+)"', drawn)]
    assert heights == sorted(heights)
    assert heights[1] < dots[0] < heights[2] < heights[3] < dots[1]
    assert dots[1] < float(re.findall(r'height="(\d+)"', drawn)[0])


def test_controls_that_turn_letters_are_written_out_in_a_label():
    drawn = str(draw_intervals("Counts", [Interval("paid\u202etxt", 3.0, 1.0, 5.0)]))
    assert r">paid\u202etxt<" in drawn


POLICY_IN_EPSILON = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: pid, max_groups: 1, max_rows_per_group: 1}
    columns: {pid: {type: integer, role: identifier}, sex: {role: sensitive, categories: [F, M]}}
budgets:
  dataset: {epsilon: 4, delta: 1e-6, accounting: zcdp}
  purposes: {care: {epsilon: 4, delta: 1e-6}}
  analysts: {ana: {purposes: [care], epsilon: 1, delta: 1e-6}}
"""


def test_a_page_tells_no_rho_where_epsilon_was_asked(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY_IN_EPSILON)
    (tmp_path / "visits.csv").write_text("pid,sex\n" + "".join(f"{n},{'FM'[n % 2]}\n" for n in range(40)))
    ana, sql = Asker("ana", "care"), "SELECT COUNT(*) AS n FROM visits"
    with Curator.open(tmp_path / "policy.yaml") as curator:
        curator.query(sql, rho="0.001", who=ana)
        context = curator.context.speak_for(ana)
        for asked, only in (
            (lambda: curator.query(sql + " WHERE sex = 'F'", epsilon=3, who=ana), False),
            (lambda: curator.query(sql + " WHERE sex = 'F'", epsilon=3, delta="1e-8", who=ana), False),
            (lambda: requests.ask(context, "synthesize", ["visits"], {"epsilon": 900, "delta": "1e-6"}), True),
        ):
            with pytest.raises(BudgetExceeded, match="rho") as refused:
                asked()
            told = translate_for_page(refused.value, only_epsilon=only)
            assert "rho" not in told.message
            assert "--" not in told.message
            assert told.message.startswith("this takes more than is left of the budget of analyst 'ana'")
            assert told.message.endswith("Nothing was charged.")
        with pytest.raises(BudgetExceeded) as refused:
            curator.query(sql + " WHERE sex = 'F'", rho=3, who=ana)
        assert "rho 3" in translate_for_page(refused.value).message, "who asks in rho is told in rho"
