"""A file as hospitals have them: cp1252, semicolons, NA for what is missing. Said once, every command reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable import Curator
from deniable.cli.main import app
from deniable.errors import PolicyError

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    csv: {encoding: cp1252, delimiter: ";", "null": NA}
    unit: row
    columns:
      city: {type: text, role: quasi-identifier, categories: [Zürich, Genève, "NA "]}
      age: {type: integer, role: quasi-identifier, between: [0, 120]}
budgets: {dataset: {epsilon: 1000}}
"""
CITIES = ("Zürich", "Genève", "Zürich", "NA") * 500


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lines = [f"{city};{20 + place % 50}" for place, city in enumerate(CITIES)]
    (tmp_path / "visits.csv").write_text("city;age\n" + "\n".join(lines) + "\n", encoding="cp1252")
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_question_counts_what_the_policy_says_how_to_read(clinic: Path) -> None:
    """Noise of scale 1/50: off by more than 2 once in e^-100."""
    with Curator.open("policy.yaml") as curator:
        sql = "SELECT city, COUNT(*) AS n, COUNT(city) AS known FROM visits GROUP BY city"
        told = {row["city"]: row["n"] for row in curator.query(sql, epsilon=100).to_pylist()}
    assert told["Zürich"] == pytest.approx(1000, abs=2)
    assert told["Genève"] == pytest.approx(500, abs=2)
    assert told["NA "] == pytest.approx(0, abs=2)


@pytest.mark.parametrize("command", [("scan", "visits.csv"), ("attack", "visits.csv", "--knows", "city,age")])
def test_commands_that_read_a_bare_file_take_its_encoding(clinic: Path, command: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(app, [*command])
    assert refused.exit_code != 0
    assert "Z\udcfc" not in str(refused.exception)
    assert json.loads(run(*command, "--encoding", "cp1252"))


def test_drafts_say_the_encoding_that_they_were_read_with(clinic: Path) -> None:
    run("policy", "init", "visits.csv", "-o", "draft.yaml", "--encoding", "cp1252")
    run("scan", "visits.csv", "--draft", "scanned.yaml", "--encoding", "cp1252")
    for draft in ("draft.yaml", "scanned.yaml"):
        with Curator.open(draft) as curator:
            assert curator.policy.table("visits").csv.encoding == "cp1252"


@pytest.mark.parametrize("word", ["encoding: cp12520", "encoding: rot13", "delimiter: ab", "bad_rows: drop"])
def test_a_policy_with_no_such_encoding_or_delimiter_is_refused(clinic: Path, word: str) -> None:
    text = POLICY.replace("encoding: cp1252", word) if "encoding" in word else POLICY.replace('delimiter: ";"', word)
    (clinic / "policy.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError) as refusal:
        Curator.open("policy.yaml")
    assert str(refusal.value.mistakes[0].place).startswith("policy.yaml:7")
