"""`deniable policy` from end to end: draft, check, correct, print the schema."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from forked_commands import run_command

CLINIC = """\
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: patient, max_groups: 5, max_rows_per_group: 2}
    columns:
      patient: {role: identifier, mask: {token: {key: people}}}
      charge: {type: decimal, between: [0, 100], step: 0.01, role: sensitive}
budgets:
  dataset: {epsilon: 10, delta: 1e-6, accounting: zcdp}
  purposes: {research: {epsilon: 4, every: month}}
  analysts: {ana: {purposes: [research], epsilon: 1}}
expires: 2027-12-31
"""


def deniable(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, cwd=cwd, environment={"NO_COLOR": "1", "COLUMNS": "200"})


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    (tmp_path / "clinic.yaml").write_text(CLINIC)
    return tmp_path


def test_check_says_who_is_protected_and_how_much(clinic: Path) -> None:
    done = deniable("policy", "check", "clinic.yaml", cwd=clinic)
    assert done.returncode == 0
    assert "visits: all rows of one patient, at most 5 groups and 2 rows in each;" in done.stdout
    assert "in total epsilon 10, delta 1e-06, zcdp accounting" in done.stdout
    assert "for research: epsilon 4, delta 1e-06 every month" in done.stdout
    assert "by ana: epsilon 1, delta 1e-06 for research" in done.stdout
    assert "visits: its source is not there yet (visits.csv)." in done.stdout
    assert "sha256:" in done.stdout
    exchanged = CLINIC.replace("max_rows_per_group: 2}", "max_rows_per_group: 2, neighboring: replace}")
    (clinic / "clinic.yaml").write_text(exchanged)
    told = deniable("policy", "check", "clinic.yaml", cwd=clinic).stdout
    assert "2 rows in each, where one is exchanged for another;" in told


def test_check_prints_one_json_document(clinic: Path) -> None:
    done = deniable("policy", "check", "clinic.yaml", "--json", cwd=clinic)
    found = json.loads(done.stdout)
    assert found["dataset"] == "clinic"
    assert found["tables"][0]["roles"] == {"identifier": 1, "sensitive": 1}
    assert found["hash"].startswith("sha256:")


def test_check_lists_every_mistake_and_exits_with_2(clinic: Path) -> None:
    (clinic / "clinic.yaml").write_text(CLINIC.replace("patient:", "patent:").replace("role: sens", "rol: sens"))
    done = deniable("policy", "check", "clinic.yaml", cwd=clinic)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "PolicyError  clinic.yaml has 2 mistakes:" in done.stderr
    assert "clinic.yaml:6:20: 'patient' is not a column of table 'visits'." in done.stderr
    assert "Did you mean 'role'?" in done.stderr
    as_json = json.loads(deniable("policy", "check", "clinic.yaml", "--json", cwd=clinic).stdout)
    assert [mistake["line"] for mistake in as_json["mistakes"]] == [6, 9]


def test_init_drafts_a_policy_that_check_accepts(tmp_path: Path) -> None:
    rows = "".join(f"p{i},{20 + i},{'FM'[i % 2]}\n" for i in range(30))
    (tmp_path / "people.csv").write_text("id,age,sex\n" + rows)
    drafted = deniable("policy", "init", "people.csv", "-o", "people.yaml", cwd=tmp_path)
    assert drafted.returncode == 0
    assert drafted.stdout == ""
    assert "deniable policy check people.yaml" in drafted.stderr
    assert "read from the data" not in (tmp_path / "people.yaml").read_text()
    assert deniable("policy", "check", "people.yaml", cwd=tmp_path).returncode == 0
    shown = deniable("policy", "init", "people.csv", "--show-values", cwd=tmp_path).stdout
    assert "# between: [20, 49]  # read from the data: not public" in shown
    again = deniable("policy", "init", "people.csv", "-o", "people.yaml", cwd=tmp_path)
    assert again.returncode == 2
    assert "--force" in again.stderr


def test_init_prints_to_the_screen_without_an_output(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("id,age\na,1\n")
    done = deniable("policy", "init", "people.csv", cwd=tmp_path)
    assert done.returncode == 0
    assert "version: 1\n" in done.stdout
    assert "# between" not in done.stdout


def test_schema_prints_a_valid_json_schema(tmp_path: Path) -> None:
    done = deniable("policy", "schema", cwd=tmp_path)
    jsonschema.Draft202012Validator.check_schema(json.loads(done.stdout))


def test_what_protects_less_than_the_accepted_policy_stops_a_pipeline(clinic: Path) -> None:
    accepted = deniable("policy", "accept", "clinic.yaml", "--by", "A. Steward", cwd=clinic)
    assert (accepted.returncode, accepted.stdout.strip()) == (0, "Accepted clinic.yaml.")
    assert deniable("policy", "check", "clinic.yaml", cwd=clinic).returncode == 0
    (clinic / "clinic.yaml").write_text(CLINIC.replace("role: sensitive", "role: insensitive"))
    done = deniable("policy", "check", "clinic.yaml", cwd=clinic)
    assert done.returncode == 2
    remedy = "deniable policy accept clinic.yaml --by NAME"
    assert remedy in done.stdout
    assert "sensitive became insensitive" in done.stdout
    asked = deniable("query", "SELECT COUNT(*) FROM visits", "-p", "clinic.yaml", "--epsilon", "0.1", cwd=clinic)
    assert asked.returncode == 2
    assert remedy in asked.stderr
    assert "sensitive became insensitive" in asked.stderr
    assert deniable(*remedy.split()[1:], cwd=clinic).returncode == 0  # the remedy works when pasted
    assert deniable("policy", "check", "clinic.yaml", cwd=clinic).returncode == 0
