"""`deniable release` from the shell: verify and show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deniable.policy.budget import budget
from deniable.release import Guarantee, Provenance, Technique, seal
from forked_commands import run_command


@pytest.fixture
def released(tmp_path: Path) -> Path:
    path = tmp_path / "answer [1].csv"
    path.write_text("n\n42\n")
    guarantee = Guarantee.differential(Technique.DP_QUERY, "one row", budget(1))
    seal(path, guarantee, Provenance("abc", {"visits": "v1"}, {"mechanism": "laplace"}), {"rows": 1})
    return path


def test_verify_says_that_nothing_was_changed(released: Path) -> None:
    done = run_command("release", "verify", released)
    assert (done.returncode, done.stderr) == (0, "")
    assert "'answer [1].csv' and its statement agree with each other; who made them is not proven." in done.stdout
    empty = run_command("release", "verify", released, "--key", "")
    assert (empty.returncode, "the key is empty" in empty.stderr) == (2, True)


def test_verify_refuses_a_changed_file_with_exit_code_2(released: Path) -> None:
    released.write_text("n\n41\n")
    done = run_command("release", "verify", released)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the file of the release 'answer [1].csv' changed after it was written" in done.stderr
    refused = json.loads(run_command("release", "verify", released, "--json").stdout)
    assert (refused["error"], refused["changed"]) == ("integrity", "file")


def test_show_tells_the_promise_in_plain_words(released: Path) -> None:
    shown = run_command("release", "show", released).stdout
    assert "differentially private query" in shown
    assert "50% can rise to at most 73.2%" in shown
    assert "Data visits v1" in shown
    assert "mechanism: laplace" in shown


def test_show_gives_one_json_document(released: Path) -> None:
    shown = json.loads(run_command("release", "show", released, "--json").stdout)
    assert shown["guarantee"]["epsilon"] == "1"
    assert shown["provenance"]["policy_hash"] == "abc"


def test_a_file_without_statement_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text("n\n1\n")
    done = run_command("release", "show", tmp_path / "plain.csv")
    assert done.returncode == 2
    assert "ask for both files" in done.stderr
