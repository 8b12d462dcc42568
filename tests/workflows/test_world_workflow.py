"""`deniable world` as somebody new to it would use it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from forked_commands import run_command


def test_making_a_world_and_checking_its_policy(tmp_path: Path) -> None:
    made = run_command("world", "make", "hospital", "--people", "500", "-o", "town", cwd=tmp_path)
    assert made.returncode == 0
    assert made.stderr == ""
    assert "hospital world of 500 people" in made.stdout
    assert pq.read_metadata(tmp_path / "town" / "voters.parquet").num_rows == 500
    checked = run_command("policy", "check", "town/policy.yaml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr


def test_the_same_command_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        assert (
            run_command("world", "make", "taxi", "--people", "50", "--seed", "9", "-o", folder, cwd=tmp_path).returncode
            == 0
        )
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_json_says_what_was_written(tmp_path: Path) -> None:
    made = run_command("world", "make", "salaries", "-o", str(tmp_path), "--json")
    told = json.loads(made.stdout)
    assert (told["people"], told["seed"], told["rows"]) == (5469, 2026, {"salaries": 5469})
    listed = json.loads(run_command("world", "list", "--json").stdout)
    assert [kind["world"] for kind in listed] == ["hospital", "salaries", "survey", "ratings", "taxi", "county"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("hosptal",), "Did you mean 'hospital'?"),
        (("hospital", "--people", "-3"), "From 0 to 10,000,000"),
        (("hospital", "--people", "99999999"), "From 0 to 10,000,000"),
        (("hospital", "--seed", "-1"), "The seed -1"),
    ],
)
def test_mistakes_are_refused_with_a_way_on(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    refused = run_command("world", "make", *arguments, "-o", str(tmp_path / "out"))
    assert refused.returncode == 2
    assert told in refused.stderr
    assert not (tmp_path / "out").exists()
