"""A command whose output cannot be printed says what it charged and wrote, in one message and by its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier}
      sex: {role: quasi-identifier, categories: [F, M]}
budgets: {dataset: {epsilon: 50, delta: 1e-3, accounting: zcdp}}
"""
QUERY = ("query", "SELECT COUNT(*) AS n FROM visits", "--epsilon", "1", "-p", "policy.yaml")
WRITE = (*QUERY, "-o", "x.csv")
WAYS = {"full": ">/dev/full", "closed": ">&-", "nobody": "| true"}
WORDS = {"full": "the disk is full", "closed": "it is closed", "nobody": "nobody reads the pipe any more"}


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    (tmp_path / "visits.csv").write_text("id,sex\n" + "".join(f"{i},{'FM'[i % 2]}\n" for i in range(40)))
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


def run(folder: Path, *words: str, way: str) -> tuple[int, str]:
    """The exit code and standard error of a command whose streams are as the shell makes them."""
    before, pipe, after = way.partition("|")
    script = f'"$@" {before}; echo $? >code'
    if pipe:  # the reader is gone before the command begins
        script = f"(sleep 0.2; {script}) {pipe} {after}"
    done = subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "deniable", *words],
        cwd=folder,
        env=os.environ | {"DENIABLE_STATE": str(folder / "state")},
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int((folder / "code").read_text()), done.stderr


@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize("way", WAYS)
def test_a_charged_result_that_is_not_printed_is_told_with_its_charge_and_file(
    clinic: Path, way: str, more: tuple[str, ...]
) -> None:
    code, told = run(clinic, *WRITE, *more, way=WAYS[way])
    assert code == 2
    assert len(told.strip().splitlines()) == 1, told
    assert f"could not be printed on standard output: {WORDS[way]}; x.csv was written whole" in told
    assert "The charge stands" in told
    assert (clinic / "x.csv.release.json").exists()


@pytest.mark.parametrize("way", WAYS)
def test_a_result_without_a_file_is_told_with_the_way_to_its_charge(clinic: Path, way: str) -> None:
    code, told = run(clinic, *QUERY, way=WAYS[way])
    assert code == 2
    assert "`deniable ledger show`" in told
    assert "The charge stands" in told


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("policy", "check", "policy.yaml", "--json")])
def test_a_pipe_that_nobody_reads_ends_quietly_where_nothing_was_charged(clinic: Path, words: tuple[str, ...]) -> None:
    assert run(clinic, *words, way="| true") == (2, "")
    code, told = run(clinic, *words, way=">/dev/full")
    assert code == 2
    assert told.count("\n") == 1
    assert "the disk is full" in told


@pytest.mark.parametrize("way", ["2>/dev/full", "2>&-", ">&- 2>&- <&-", "2>/dev/full >/dev/full"])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_refusal_that_cannot_be_told_keeps_its_exit_code(clinic: Path, way: str, more: tuple[str, ...]) -> None:
    code, told = run(clinic, "query", "SELECT COUNT(*) FROM nowhere", "--epsilon", "1", *more, way=way)
    assert (code, told) == (2, "")


def test_a_refusal_as_json_that_cannot_be_printed_is_told_on_standard_error(clinic: Path) -> None:
    words = ("query", "SELECT COUNT(*) FROM nowhere", "--epsilon", "1", "--json")
    code, told = run(clinic, *words, way=">/dev/full")
    assert code == 2
    assert "Nothing was charged" in told
    assert run(clinic, *words, way="| true") == (2, "")


def test_what_cannot_be_told_on_standard_error_stops_no_work(clinic: Path) -> None:
    assert run(clinic, *WRITE, way="2>/dev/full >/dev/null")[0] == 0
    assert (clinic / "x.csv").exists()
