"""`deniable query` from the command line: answers, explanations, files, curves, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forked_commands import run_command

COUNTS = "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("town")
    made = run_command("world", "make", "hospital", "--people", "1500", "-o", ".", cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder


def test_an_answer_shows_numbers_with_their_error_and_what_they_cost(town: Path) -> None:
    done = run_command("query", COUNTS, "--epsilon", "0.5", cwd=town)
    assert done.returncode == 0, done.stderr
    assert "±" in done.stdout
    printed = " ".join(done.stdout.split())
    assert "Cost: epsilon 0.5; 9.5 of epsilon 10 is left, enough for about 19 more like this" in printed


def test_an_answer_says_how_many_more_like_it_fit_and_a_free_one_that_it_cost_nothing(
    town: Path, tmp_path: Path
) -> None:
    """The policy has epsilon 10 with delta 1e-06; 0.5 + 0.5 leaves room for some, 1.2 rho for none like it."""
    (tmp_path / "policy.yaml").write_text((town / "policy.yaml").read_text().replace("source: ", f"source: {town}/"))
    bounded = "SELECT AVG(AUTO_CLAMP(charge)) AS a FROM visits"
    for sql in (COUNTS, bounded):
        before = json.loads(run_command("query", sql, "--epsilon", "0.5", "--explain", "--json", cwd=tmp_path).stdout)
        told = json.loads(run_command("query", sql, "--epsilon", "0.5", "--json", cwd=tmp_path).stdout)
        assert 0 < told["more_like_this"] <= before["more_like_this"] - (sql == COUNTS)
    assert "too little for another" in run_command("query", COUNTS, "--rho", "1", cwd=tmp_path).stdout
    assert "Cost: nothing" in run_command("query", "SELECT 3 AS x GROUP BY true", cwd=tmp_path).stdout


def test_an_answer_and_a_refusal_have_the_fields_that_the_server_gives_them(town: Path) -> None:
    asked = [COUNTS.replace("GROUP", "WHERE diagnosis = 'J45.9' GROUP"), "--epsilon", "0.25", "--json"]
    told, again = (json.loads(run_command("query", *asked, cwd=town).stdout) for _ in range(2))
    assert told["columns"] == list(told["rows"][0]) == ["sex", "n", "n_low", "n_high"]
    assert (told["repeated"], again["repeated"]) == (False, True)
    wrong = ["SELECT nothing FROM visits", "--epsilon", "1", "--json"]
    refused = json.loads(run_command("query", *wrong, cwd=town).stdout)
    assert refused["message"].startswith("query:1:8: there is no column 'nothing' here.")
    assert refused["message"].endswith("Nothing was charged.")


def test_the_budget_is_spent_over_commands_and_explaining_leaves_nothing_behind(town: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text((town / "policy.yaml").read_text().replace("source: ", f"source: {town}/"))
    ledger = tmp_path / "policy.ledger.sqlite"
    assert run_command("query", COUNTS, "--epsilon", "1", "--explain", cwd=tmp_path).returncode == 0
    assert not ledger.exists()
    costs = [
        run_command("query", f"SELECT COUNT(*) FROM visits WHERE charge > {number}", "--epsilon", "3", cwd=tmp_path)
        for number in range(4)
    ]  # three of them are 9 of the policy's epsilon 10
    assert [done.returncode for done in costs[:2]] == [0, 0], costs[0].stderr
    assert costs[3].returncode != 0
    assert "Nothing was charged" in costs[3].stderr
    assert ledger.exists()


@pytest.mark.parametrize(
    "command",
    [("query", COUNTS), ("synthesize", "visits", "--delta", "1e-7"), ("describe", "visits", "--delta", "1e-7")],
)
def test_a_folder_that_does_not_exist_is_found_out_before_the_charge(
    command: tuple[str, ...], town: Path, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text((town / "policy.yaml").read_text().replace("source: ", f"source: {town}/"))
    done = run_command(*command, "--epsilon", "0.5", "-o", "nowhere/out.parquet", cwd=tmp_path)
    assert done.returncode != 0
    assert "the folder does not exist" in done.stderr
    assert "Nothing was charged" in done.stderr
    spent = run_command("ledger", "show", "--json", cwd=tmp_path)
    assert not spent.stdout or not json.loads(spent.stdout).get("entries")


def test_an_answer_as_json_has_rows_intervals_and_cost(town: Path) -> None:
    done = run_command("query", COUNTS, "--epsilon", "0.5", "--json", cwd=town)
    told = json.loads(done.stdout)
    assert [row["sex"] for row in told["rows"]] == ["F", "M"]
    assert all(row["n_low"] < row["n"] < row["n_high"] for row in told["rows"])
    assert told["cost"] == {"epsilon": "0.5", "delta": "0"}


@pytest.mark.parametrize("form", [("--explain", COUNTS), (f"EXPLAIN {COUNTS}",)])
def test_explaining_prints_stability_sensitivity_noise_and_cost(form: tuple[str, ...], town: Path) -> None:
    done = run_command("query", *form, "--epsilon", "0.75", cwd=town)  # more than it was asked with, so not stored
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    for word in (
        "private",
        "one unit: at most 2 groups, 3 rows in each, and 3 in a group",
        "discrete Laplace of scale 8",
        "groups: 2 declared values; all are shown",
        "Will run: SELECT",
    ):
        assert word in words
    assert "Cost: epsilon 0.75" in words
    assert "Left before this question" in words


def test_the_accuracy_decides_the_epsilon(town: Path) -> None:
    done = run_command("query", "SELECT COUNT(*) AS n FROM visits WITHIN 50", "--json", cwd=town)
    told = json.loads(done.stdout)
    assert 0.1 < float(told["cost"]["epsilon"]) < 0.3
    assert told["rows"][0]["n_high"] - told["rows"][0]["n_low"] <= 100


def test_an_answer_is_written_with_a_statement_that_verifies(town: Path) -> None:
    done = run_command("query", COUNTS, "--epsilon", "0.25", "-o", "answer.csv", cwd=town)
    assert done.returncode == 0, done.stderr
    statement = json.loads((town / "answer.csv.release.json").read_text())
    assert "differentially private query" in json.dumps(statement)
    checked = run_command("release", "verify", "answer.csv", cwd=town)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    (town / "answer.csv").write_text((town / "answer.csv").read_text().replace("F", "M"))
    assert run_command("release", "verify", "answer.csv", cwd=town).returncode != 0


def test_a_curve_of_errors_is_a_page_of_its_own(town: Path) -> None:
    done = run_command("query", "SELECT AVG(charge) FROM visits", "--curve", "curve.html", cwd=town)
    assert done.returncode == 0, done.stderr
    page = (town / "curve.html").read_text(encoding="utf-8")
    assert "<html" in page
    assert "epsilon" in page
    rows = json.loads(run_command("query", COUNTS, "--curve", "again.html", "--json", cwd=town).stdout)["curve"]
    assert rows[0]["error"] > rows[-1]["error"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("SELECT * FROM visits", "--epsilon", "1"), 2, "release rows"),
        ((COUNTS,), 2, "no budget was stated"),
        ((COUNTS, "--epsilon", "-1"), 2, "epsilon"),
        ((COUNTS, "--epsilon", "50"), 2, "Nothing was charged"),
        ((COUNTS, "--epsilon", "1", "--confidence", "2"), 2, "confidence"),
        (("SELECT zip, COUNT(*) FROM visits GROUP BY zip", "--epsilon", "1"), 2, "needs a delta"),
        ((COUNTS, "--epsilon", "1", "-p", "nowhere.yaml"), 2, "nowhere.yaml"),
    ],
)
def test_refusals_say_why_on_stderr_and_exit_with_2(
    arguments: tuple[str, ...], code: int, said: str, town: Path
) -> None:
    done = run_command("query", *arguments, cwd=town)
    assert done.returncode == code
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_refusal_as_json_has_its_place(town: Path) -> None:
    done = run_command("query", "SELECT COUNT(*)\nFROM visitz", "--epsilon", "1", "--json", cwd=town)
    told = json.loads(done.stdout or done.stderr)
    assert told["error"] == "query"
    assert (told["line"], told["column"]) == (2, 6)
    assert "visits" in told["remedy"]
    assert told["charged"] is False
