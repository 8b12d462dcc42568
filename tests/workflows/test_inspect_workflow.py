"""Inspecting from the command line: the public view needs no data, the steward's has the real rows beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deniable.curator import Curator
from deniable.curator.synthesize import inspect
from deniable.errors import ParameterError
from forked_commands import run_command

BUDGET = ("--epsilon", "3", "--delta", "1e-6")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("town")
    assert run_command("world", "make", "hospital", "--people", "2000", "-o", ".", cwd=folder).returncode == 0
    done = run_command("describe", "visits", *BUDGET, "--method", "correlated", "-o", "v.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_public_view_needs_the_model_alone(town: Path, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes((town / "v.json").read_bytes())
    done = run_command("inspect", "m.json", "--report", "page.html", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    view = json.loads(done.stdout)
    assert "utility" not in view
    assert {histogram["column"] for histogram in view["histograms"]} == set(view["columns"])
    assert all("real" not in bar for histogram in view["histograms"] for bar in histogram["bars"])
    assert "<html" in (tmp_path / "page.html").read_text()


def test_the_stewards_view_compares_with_the_real_rows_and_warns(town: Path) -> None:
    done = run_command("inspect", "v.json", "--against", "visits", "--report", "steward.html", "--json", cwd=town)
    assert done.returncode == 0, done.stderr
    view = json.loads(done.stdout)
    assert [entry["way"] for entry in view["utility"]["variation"]] == [1, 2, 3]
    assert all(0 <= entry["mean"] < 0.5 for entry in view["utility"]["variation"])
    found = view["utility"]["regression"]
    assert found["target"] == "charge"
    assert all(term["real"]["low"] <= term["real"]["value"] <= term["real"]["high"] for term in found["terms"])
    assert sum(bar["real"] for bar in view["histograms"][0]["bars"]) == pytest.approx(1)
    assert "not to be released" in (town / "steward.html").read_text()
    text = run_command("inspect", "v.json", "--against", "visits", cwd=town).stdout
    assert "for the steward, not for release" in text


@pytest.mark.slow
def test_marginals_and_a_regression_of_ones_own_choice(town: Path) -> None:
    own = ("--marginal", "sex,payer", "--regress", "charge ~ sex + birth_date")
    done = run_command("inspect", "v.json", "--against", "visits", *own, "--json", cwd=town)
    assert done.returncode == 0, done.stderr
    view = json.loads(done.stdout)
    assert view["marginals"][0]["columns"] == ["sex", "payer"]
    assert view["utility"]["workload"]["marginals"][0][0] == ["sex", "payer"]
    assert [term["name"] for term in view["utility"]["regression"]["terms"]] == ["sex = M", "birth_date"]
    with pytest.raises(ParameterError, match="Did you mean 'payer'"):
        inspect.public(town / "v.json", inspect.Question((("payr",),)))
    with Curator.open(town / "policy.yaml") as curator, pytest.raises(ParameterError, match="Did you mean 'sex'"):
        inspect.steward(curator.context, town / "v.json", "visits", inspect.Question(regression=("charge", ("sx",))))
    wrong = run_command("inspect", "v.json", "--regress", "charge", cwd=town)
    assert wrong.returncode == 2
    assert "given wrongly" in wrong.stderr


def test_a_wrong_table_or_target_is_refused_in_words(town: Path) -> None:
    wrong = run_command("inspect", "v.json", "--against", "voters", cwd=town)
    assert wrong.returncode == 2
    assert "has no column" in wrong.stderr
    target = run_command("inspect", "v.json", "--against", "visits", "--target", "payr", cwd=town)
    assert target.returncode == 2
    assert "payer" in target.stderr


def test_an_assessment_is_shown_and_never_sealed(town: Path) -> None:
    done = run_command("synthesize", "visits", *BUDGET, "--assess", "-o", "made.parquet", "--json", cwd=town)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["utility"]["variation"][0]["score"] > 600
    assert "utility" not in (town / "made.parquet.release.json").read_text()


@pytest.mark.slow
def test_scores_of_other_projects_are_printed_in_json_and_from_python(town: Path) -> None:
    done = run_command("inspect", "v.json", "--against", "visits", "--scores", "--json", cwd=town)
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)["utility"]["scores"]
    assert [each["name"] for each in scores["quality"]["properties"]] == ["column shapes", "column pair trends"]
    assert 0.5 < scores["quality"]["value"] < 1
    assert 0.9 < scores["diagnostic"]["value"] <= 1
    assert set(scores["k_marginal"]) == {"2", "3"}
    assert 0 < scores["tstr"]["accuracy_on_synthetic"] <= 1
    with Curator.open(town / "policy.yaml") as curator:
        view = curator.inspect(town / "v.json", "visits", scores=True)
    assert view["utility"]["scores"]["diagnostic"]["properties"][1]["value"] == 1
    text = run_command("inspect", "v.json", "--against", "visits", "--scores", cwd=town).stdout
    assert "SDMetrics quality" in text
    assert "SDNist k-marginal" in text
    assert "TSTR, gradient boosting" in text


def test_scores_without_real_rows_are_refused(town: Path) -> None:
    done = run_command("inspect", "v.json", "--scores", cwd=town)
    assert done.returncode == 2
    assert "scores compare with the real rows" in done.stderr


def test_findings_are_drawn_from_the_real_and_the_synthetic_rows(town: Path) -> None:
    false = "-- charges_are_below_nothing: A charge that cannot be.\nSELECT MAX(charge) < 0 FROM visits\n"
    (town / "more.sql").write_text(false + "-- unknown_here: Says nothing of few rows.\nSELECT COUNT(*) FROM visits\n")
    with Curator.open(town / "policy.yaml") as curator:
        view = curator.inspect(town / "v.json", "visits", findings=[town / "findings.py", town / "more.sql"])
        with pytest.raises(ParameterError, match="compare with the real rows"):
            curator.inspect(town / "v.json", findings=town / "more.sql")
        with pytest.raises(ParameterError, match="two findings"):
            curator.inspect(town / "v.json", "visits", findings=[town / "more.sql", town / "more.sql"])
    found = {each["finding"]: each for each in view["utility"]["findings"]}
    assert found["charges_are_below_nothing"]["real"] is False
    assert found["charges_are_below_nothing"]["kept"]
    assert found["unknown_here"]["synthetic"] > 0
    assert len(found) == 9
    assert all(each["kept"] == (each["synthetic"] is not None and each["real"] == each["synthetic"])
               for each in found.values() if isinstance(each["real"], bool))  # fmt: skip
    done = run_command("inspect", "v.json", "--against", "visits", "--findings", "more.sql", cwd=town)
    assert "2 of 2 findings are kept" in done.stdout
