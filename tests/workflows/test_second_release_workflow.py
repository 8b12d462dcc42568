"""A policy's word for a second release of the same table, and what a command may not loosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.errors import AccessRefused, DeniableError, Infeasible

ROWS = 600
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: row
    columns:
      zip:       {role: quasi-identifier, hierarchy: {redact: right}}
      age:       {role: quasi-identifier, type: integer, between: [0, 120], hierarchy: {intervals: [5, 10, 20]}}
      sex:       {role: quasi-identifier, categories: [F, M]}
      diagnosis: {role: sensitive, categories: [flu, cold, gout]}
release:
  anonymize: {k: 5, l: {diagnosis: 2}, suppress: 0.05, second_release: WORD}
"""

FIRST = ("anonymize", "-p", "clinic.yaml", "--qi", "zip,age", "-o", "first.parquet")
SECOND = ("anonymize", "-p", "clinic.yaml", "--qi", "age,sex", "--measure", "ncp", "-o", "second.parquet")


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    chance = np.random.default_rng(5)
    table = pa.table(
        {
            "zip": [f"021{n:02}" for n in chance.integers(30, 42, ROWS)],
            "age": chance.integers(18, 90, ROWS),
            "sex": chance.choice(["F", "M"], ROWS).tolist(),
            "diagnosis": chance.choice(["flu", "cold", "gout"], ROWS).tolist(),
        }
    )
    pq.write_table(table, tmp_path / "visits.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_policy(folder: Path, word: str) -> None:
    (folder / "clinic.yaml").write_text(POLICY.replace("WORD", word))


def run(*words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "--json"])
    if isinstance(done.exception, DeniableError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_second_release_that_tells_too_much_is_refused_and_nothing_is_written(clinic: Path) -> None:
    write_policy(clinic, "refuse")
    assert "composition" not in run(*FIRST)
    with pytest.raises(Infeasible, match="With the earlier release"):
        run(*SECOND)
    assert not (clinic / "second.parquet").exists()
    assert not (clinic / "second.parquet.recoding.json").exists()


def test_the_same_release_again_tells_nothing_new(clinic: Path) -> None:
    write_policy(clinic, "refuse")
    run(*FIRST)
    again = run(*FIRST[:-1], "again.parquet")
    assert again["composition"]["exposed"] == 0
    assert again["earlier_releases"] == 1


def test_a_policy_may_only_warn(clinic: Path) -> None:
    write_policy(clinic, "warn")
    run(*FIRST, "--ledger", "ledger.sqlite")
    told = run(*SECOND, "--ledger", "ledger.sqlite")
    assert told["composition"]["exposed"] > 0
    assert (clinic / "second.parquet").exists()
    assert "exposed" not in (clinic / "second.parquet.release.json").read_text()


def test_each_earlier_release_is_looked_at_and_the_worst_is_told(clinic: Path) -> None:
    write_policy(clinic, "warn")
    ledger = ("--ledger", "ledger.sqlite")
    run(*FIRST, *ledger)
    run(*SECOND, *ledger)
    third = run(*FIRST[:-1], "third.parquet", *ledger)
    assert third["earlier_releases"] == 2
    assert third["composition"]["exposed"] > 0


@pytest.mark.parametrize(("before", "after"), [("mondrian", "optimal"), ("optimal", "mondrian")])
def test_releases_without_a_recoding_cannot_be_checked_and_so_are_refused(
    clinic: Path, before: str, after: str
) -> None:
    write_policy(clinic, "refuse")
    run(*FIRST, "--method", before)
    with pytest.raises(Infeasible, match="cannot be checked against each other"):
        run(*SECOND, "--method", after)
    write_policy(clinic, "warn")
    assert any("not checked against earlier" in told for told in run(*SECOND, "--method", after)["warnings"])


@pytest.mark.parametrize("words", [("--k", "3"), ("--l", "diagnosis=1"), ("--suppress", "0.1")])
def test_a_command_asks_for_no_less_than_the_policy(clinic: Path, words: tuple[str, ...]) -> None:
    write_policy(clinic, "warn")
    with pytest.raises(AccessRefused, match="the policy says"):
        run(*FIRST, *words)


def test_what_a_command_does_not_say_stays_with_the_policy(clinic: Path) -> None:
    write_policy(clinic, "warn")
    made = run("anonymize", "-p", "clinic.yaml", "--suppress", "0.04", "--t", "diagnosis=0.4", "-o", "out.parquet")
    assert made["models"] == [
        "5-anonymity",
        "distinct 2-diversity of diagnosis",
        "0.4-closeness of diagnosis (equal distance)",
    ]


def test_a_word_that_is_no_choice_is_refused_with_the_nearest(clinic: Path) -> None:
    write_policy(clinic, "refuze")
    with pytest.raises(DeniableError, match="refuse"):
        run(*FIRST)
