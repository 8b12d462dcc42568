"""Weighted estimates of a survey: by command and in Python, with errors that hold the sample and the noise."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from deniable import Curator
from deniable.cli.main import app
from deniable.errors import DeniableError, ParameterError, QueryRefused
from deniable.geography.survey import WeightedTotal, combine_ratio

POLICY = """
version: 1
dataset: survey
tables:
  survey:
    source: survey.csv
    unit: {column: pid, max_groups: 1, max_rows_per_group: 1}
    columns:
      pid: {type: integer, role: identifier}
      sex: {categories: [F, M]}
      hours: {type: integer, between: [0, 10]}
      weight: {type: integer, between: [1, 20]}
budgets: {dataset: {epsilon: 100000000}}
"""
ROWS = [(1, "F", 4, 10), (2, "F", 6, 20), (3, "M", 10, 5), (4, "M", 0, 5)]


@pytest.fixture
def at(tmp_path: Path) -> Path:
    lines = "".join(f"{','.join(map(str, row))}\n" for row in ROWS)
    (tmp_path / "survey.csv").write_text(f"pid,sex,hours,weight\n{lines}")
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


def test_totals_and_means_of_four_people_are_those_by_hand(at: Path) -> None:
    with Curator.open(at / "policy.yaml", ledger=at / "ledger.sqlite") as curator:
        hours = curator.weighted("survey", "hours", weight="weight", by=["sex"], epsilon=10_000).to_pylist()
        people = curator.weighted("survey", weight="weight", epsilon=10_000).to_pylist()[0]
        mean = curator.weighted("survey", "hours", weight="weight", statistic="mean", epsilon=10_000).to_pylist()[0]
    # Bounds of some 20 times the scale of the noise.
    assert [row["sex"] for row in hours] == ["F", "M"]
    assert [row["total"] for row in hours] == pytest.approx([160, 50], abs=2)
    errors = [math.sqrt(90 * 16 + 380 * 36), math.sqrt(20 * 100)]
    assert [row["standard_error"] for row in hours] == pytest.approx(errors, rel=0.1)
    assert hours[0]["total_high"] - hours[0]["total"] == pytest.approx(1.96 * errors[0], rel=0.1)
    assert people["total"] == pytest.approx(40, abs=1)
    assert people["standard_error"] == pytest.approx(math.sqrt(90 + 380 + 40), rel=0.1)
    squares = sum(w * (w - 1) * (y - 5.25) ** 2 for _, _, y, w in ROWS)
    assert mean["mean"] == pytest.approx(5.25, rel=0.1)
    assert mean["standard_error"] == pytest.approx(math.sqrt(squares) / 40, rel=0.2)


def test_whoever_gave_no_value_is_in_no_weighted_mean(at: Path) -> None:
    """As AVG leaves nulls out; before, their weights were in the number of people."""
    with (at / "survey.csv").open("a") as file:
        file.write("5,F,,20\n6,M,,15\n")
    for where in ("", "sex IN ('F', 'M') OR sex IS NULL"):
        with Curator.open(at / "policy.yaml", ledger=at / "ledger.sqlite") as curator:
            asked: Any = {"weight": "weight", "statistic": "mean", "where": where, "epsilon": 10_000}
            (mean,) = curator.weighted("survey", "hours", **asked).to_pylist()
        assert mean["mean"] == pytest.approx(5.25, rel=0.1)


def test_the_command_gives_what_python_gives_explains_for_nothing_and_writes_a_file(at: Path) -> None:
    words = ["weighted", "survey", "hours", "--by", "sex", "-p", str(at / "policy.yaml"), "--epsilon", "5", "--json"]
    run = CliRunner()
    explained = run.invoke(app, [*words, "--explain"])
    assert explained.exit_code == 0, explained.output
    first = run.invoke(app, [*words, "-o", str(at / "hours.csv")])
    assert first.exit_code == 0, first.output
    told = json.loads(first.stdout)
    with Curator.open(at / "policy.yaml") as curator:
        again = curator.weighted("survey", "hours", weight="weight", by=["sex"], epsilon=5)
        charges = [each for each in curator.context.ledger.entries() if each.act == "charge"]
    assert again.repeated
    assert again.to_pylist() == told["rows"]
    assert len(charges) == 1  # neither the explanation nor the repetition
    assert any("sample and of the noise" in note for note in told["notes"])
    assert (at / "hours.csv").read_text().splitlines()[0].replace(
        '"', ""
    ) == "sex,total,total_low,total_high,standard_error"


@pytest.mark.parametrize("words", [["hours", "--by", "sex"], ["hours", "--mean"], []], ids=["groups", "mean", "people"])
def test_a_page_shows_each_estimate_with_its_interval_and_whom_it_protects(at: Path, words: list[str]) -> None:
    asked = ["weighted", "survey", *words, "-p", str(at / "policy.yaml"), "--epsilon", "1000"]
    done = CliRunner().invoke(app, [*asked, "--report", str(at / "page.html"), "--json"])
    assert done.exit_code == 0, done.output
    page, rows = (at / "page.html").read_text(), json.loads(done.stdout)["rows"]
    assert "Intervals include the error of the sample and of the noise" in page
    assert "The noise hides all rows of one pid" in page
    for row in rows:
        shown = row.get("mean", row.get("total"))
        assert f"{shown:.4g}" in page
        assert row.get("sex", "") in page
    refused = CliRunner().invoke(app, [*asked, "--report", str(at / "policy.yaml")])
    assert refused.exit_code != 0
    assert "version: 1" in (at / "policy.yaml").read_text()


def test_a_page_is_written_where_noise_leaves_a_mean_unknown(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = WeightedTotal(math.nan, math.inf, -math.inf, math.inf)
    monkeypatch.setattr("deniable.geography.survey.combine_ratio", lambda *_: unknown)
    words = ["weighted", "survey", "hours", "--mean", "--by", "sex", "-p", str(at / "policy.yaml"), "--epsilon", "1"]
    done = CliRunner().invoke(app, [*words, "--report", str(at / "page.html")])
    assert done.exit_code == 0, done.output
    assert "Weighted mean" in (at / "page.html").read_text().replace("weighted", "Weighted")


@pytest.mark.parametrize("asked", [{"statistic": "median"}, {"statistic": "mean"}])
def test_an_estimate_that_is_none_is_refused_before_anything_is_charged(at: Path, asked: dict[str, str]) -> None:
    with Curator.open(at / "policy.yaml", ledger=at / "ledger.sqlite") as curator:
        with pytest.raises(ParameterError, match="weighted estimate"):
            curator.weighted("survey", weight="weight", epsilon=1, **asked)
        assert not [each for each in curator.context.ledger.entries() if each.act == "charge"]


def test_intervals_of_means_hold_the_population_and_those_of_the_noise_alone_do_not() -> None:
    """1,500 samples of 4,000 people: 95% intervals hold 93% to 97%, and without the sample's error far fewer."""
    draws, deviation = np.random.default_rng(11), 30.0
    values, weights = draws.integers(0, 10, 4000).astype(float), draws.choice([5.0, 20.0], 4000)
    held, alone = 0, 0
    for _ in range(1500):
        taken = draws.random(4000) < 1 / weights
        y, w = values[taken], weights[taken]
        noisy = [float(each + draws.normal(0, deviation)) for each in ((w * y).sum(), w.sum())]
        ends = [(each, each - 1.96 * deviation, each + 1.96 * deviation) for each in noisy]
        spreads = [float((w * (w - 1) * each).sum()) for each in (y**2, y, 1)]
        held += abs((found := combine_ratio(*ends, spreads)).total - values.mean()) <= found.high - found.total
        alone += abs((found := combine_ratio(*ends, [0, 0, 0])).total - values.mean()) <= found.high - found.total
    assert 0.93 < held / 1500 < 0.97
    assert alone / 1500 < 0.5
    assert combine_ratio((1, 0, 2), (3, -1, 7), (1, 1, 1)).error == math.inf


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"where": "hours > 2 LIMIT 0"}, "SQL"),
        ({"where": "hours > 2) GROUP BY (sex"}, "condition|SQL"),
        ({"where": "hours > 2 -- all", "by": ["total"]}, "'total' of its own"),
    ],
)
def test_what_is_no_condition_and_taken_names_are_refused_before_the_charge(
    at: Path, asked: dict[str, object], told: str
) -> None:
    with Curator.open(at / "policy.yaml", ledger=at / "ledger.sqlite") as curator:
        with pytest.raises(DeniableError, match=told):
            curator.weighted("survey", weight="weight", epsilon=1, **asked)  # type: ignore[arg-type]
        assert curator.context.balance()[0].spent.epsilon == 0  # type: ignore[union-attr]


BELOW_ONE = POLICY.replace(
    "weight: {type: integer, between: [1, 20]}", "weight: {type: decimal, between: [%s, 5], step: 0.5}"
)


def test_weights_below_one_have_a_mean_whose_error_does_not_depend_on_their_scale(at: Path) -> None:
    """With w (w - 1) the spread of such weights is negative, was cut to 0, and intervals held 12% instead of 95%."""
    rows = [(pid, sex, hours, weight / 10) for pid, sex, hours, weight in ROWS]
    (at / "policy.yaml").write_text(BELOW_ONE % 0)
    (at / "survey.csv").write_text("pid,sex,hours,weight\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    with Curator.open(at / "policy.yaml", ledger=at / "ledger.sqlite") as curator:
        answer = curator.weighted("SURVEY", "hours", weight="WEIGHT", statistic="mean", epsilon=10_000)
        (mean,) = answer.to_pylist()
    squares = sum(w * w * (y - 5.25) ** 2 for _, _, y, w in rows)
    assert mean["mean"] == pytest.approx(5.25, rel=0.1)
    assert mean["standard_error"] == pytest.approx(math.sqrt(squares) / 4, rel=0.2)
    assert any("up to a common factor" in note for note in answer.release.details["notes"])


@pytest.mark.parametrize(
    ("least", "asked", "words"),
    [
        ("0.5", {"of": "hours"}, "may be below 1"),
        ("0.5", {}, "may be below 1"),
        ("-5", {"of": "hours"}, "may be negative"),
        ("-5", {"of": "hours", "statistic": "mean"}, "may be negative"),
        (None, {"of": "hours", "statistic": "mean"}, "has no declared bounds"),
    ],
)
@pytest.mark.parametrize("name", ["weight", "WEIGHT", '"weight"', "survey.weight"])
def test_weights_that_may_be_no_weights_are_refused_by_their_declaration_alone(
    at: Path, least: str | None, asked: dict[str, str], words: str, name: str
) -> None:
    declared = BELOW_ONE % least if least else POLICY.replace("integer, between: [1, 20]", "integer")
    (at / "policy.yaml").write_text(declared)
    (at / "survey.csv").unlink()  # no row is needed to tell
    with Curator.open(at / "policy.yaml", ledger=at / "ledger.sqlite") as curator:
        with pytest.raises(ParameterError, match=words):
            curator.weighted("survey", weight=name, epsilon=1, **asked)
        assert not [each for each in curator.context.ledger.entries() if each.act == "charge"]
    words_of_it = ["weighted", "survey", *filter(None, [asked.get("of")]), "--weight", name, "--epsilon", "1"]
    more = ["--mean"] if asked.get("statistic") == "mean" else []
    done = CliRunner().invoke(app, [*words_of_it, *more, "--explain", "-p", str(at / "policy.yaml")])
    assert words in str(done.exception)


def test_intervals_of_means_hold_under_weights_of_mean_one_and_those_without_scale_do_not() -> None:
    """400 surveys of 1,000 people with weights 0.5 and 1.5 of each other's chance: 95% intervals hold 93% to 97.5%."""
    draws = np.random.default_rng(5)
    held = {True: 0, False: 0}
    for _ in range(400):
        w = draws.choice([0.5, 1.5], 1000, p=[0.75, 0.25])  # the population has both kinds as often
        y = np.where(w > 1, draws.integers(2, 11, 1000), draws.integers(0, 9, 1000)).astype(float)  # means 6 and 4
        ends = [(each, each - 1e-6, each + 1e-6) for each in (float((w * y).sum()), float(w.sum()))]
        for scaled in held:
            each = w * w if scaled else w * (w - 1)
            found = combine_ratio(*ends, [float((each * power).sum()) for power in (y**2, y, 1)])
            held[scaled] += found.low <= 5 <= found.high
    assert 0.93 < held[True] / 400 < 0.975
    assert held[False] / 400 < 0.8


def test_a_table_may_have_a_point_in_its_name(at: Path) -> None:
    policy = POLICY.replace("  survey:\n", "  care.survey:\n")
    (at / "policy.yaml").write_text(policy)
    with Curator.open(at / "policy.yaml", ledger=at / "ledger.sqlite") as curator:
        found = curator.weighted("care.survey", weight="weight", where="hours < 11", epsilon=10_000).to_pylist()
        assert found[0]["total"] == pytest.approx(40, abs=1)
        with pytest.raises(QueryRefused, match=r"no table 'nofile\.csv'"):
            curator.weighted("nofile.csv", weight="weight", epsilon=1)
