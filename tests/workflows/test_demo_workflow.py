"""The demo tells its story from end to end on a small town."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deniable.cli.main import app


def _demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from deniable.cli.main import main; main()", "demo", "--out", str(folder)]
    return subprocess.run([*command, "--people", "2000", *options], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """The folder of a town, the story's chapters by title, and the state that knows its ledger."""
    folder = tmp_path_factory.mktemp("demo") / "town"
    done = _demo(folder, "--json")
    assert done.returncode == 0, done.stderr
    return folder, {chapter["title"]: chapter for chapter in json.loads(done.stdout)}, os.environ["DENIABLE_STATE"]


def test_the_demo_finds_the_governor_answers_with_noise_and_writes_its_page(told: Any) -> None:
    folder, chapters, _ = told
    assert "Theodore W. Ashbourne" in " ".join(chapters["An intruder with the voter roll"]["sentences"])
    assert chapters["He is no exception"]["people"][0] > 500
    assert {row["sex"] for row in chapters["The answer"]["table"]} == {"F", "M"}
    assert "what is protected: all rows of one patient_id, at most 5 groups" in " ".join(
        chapters["A town and its hospital"]["sentences"]
    )
    assert "(" not in chapters["A town and its hospital"]["sentences"][-1]
    assert "left of the budget: 9.5 of epsilon 10, enough for" in chapters["The answer"]["sentences"][1]
    assert "the same answer" in chapters["Asking again"]["sentences"][0]
    assert "single out" in chapters["Masked rows"]["sentences"][1]
    assert "the best of" in chapters["k-anonymous rows"]["sentences"][1]
    assert "rows of nobody" in chapters["Synthetic rows"]["sentences"][0]
    named = {row["rows"]: row["named of 1,000"] for row in chapters["The intruder comes back"]["table"]}
    assert named["masked"] > 300 > 100 > named["synthetic"]  # who fits a row of nobody does so by chance
    assert named["k-anonymous"] == 0
    assert {row["epsilon"] for row in chapters["The ledger"]["table"]} == {"no guarantee", "0.5", "1"}
    assert "is refused" in chapters["The ledger"]["sentences"][1]
    weeks = chapters["A number every week"]["table"]
    assert weeks[0]["calls about water, week from"] == "2025-08-13"
    assert weeks[0]["at least"] > weeks[1]["calls"]
    levels = {row["level"]: row for row in chapters["A census"]["table"]}
    assert (levels["block"]["areas"], levels["all"]["standard deviation of a total"]) == (512, "0.0")
    assert "2,000 people of the county" in chapters["A census"]["sentences"][0]
    assert "holds both the error of the sample and the noise" in chapters["A poll"]["sentences"][0]
    assert "are found by how many friends" in chapters["Who knows whom"]["sentences"][0]
    assert "are inside a club" in chapters["Who knows whom"]["sentences"][1]
    assert "of 1,000" in chapters["Where people go"]["sentences"][0]
    assert "they can deny it" in chapters["A question that nobody need answer truly"]["sentences"][0]
    assert "Theodore W. Ashbourne" in (folder / "story.html").read_text(encoding="utf-8")


def test_every_command_that_the_demo_prints_runs_as_it_is_printed(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, chapters, state = told
    monkeypatch.setenv("DENIABLE_STATE", state)
    commands = [command for chapter in chapters.values() for command in chapter["commands"]]
    assert len(commands) >= 20
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "deniable"
        if words[:2] != ["survey", "serve"]:  # it would serve until it is stopped; its file is checked
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, (command, done.output, done.exception)


def test_a_town_that_is_too_small_is_refused_with_exit_code_two(tmp_path: Path) -> None:
    done = _demo(tmp_path / "town", "--people", "3")
    assert done.returncode == 2
    assert not (tmp_path / "town").exists()
