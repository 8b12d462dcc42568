"""A withdrawal is confirmed only for a value that the column can have, in whatever way it is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.curator import Curator
from deniable.curator.governance import reports, withdrawals
from deniable.errors import Infeasible, ParameterError

POLICY = """
version: 1
dataset: clinic
tables:
  people:
    source: people.csv
    unit: {{column: p, max_groups: 1, max_rows_per_group: 1}}
    columns:
      p: {{type: {kind}, role: identifier, mask: redact}}
      born: {{type: date, role: quasi-identifier, between: [1900-01-01, 2020-01-01]}}
      sex: {{role: quasi-identifier, categories: [F, M]}}
  visits:
    source: people.csv
    unit: {{column: sex, max_groups: 1, max_rows_per_group: 1}}
    columns: {{sex: {{role: identifier, mask: redact}}}}
budgets: {{dataset: {{epsilon: 10}}}}
"""
VALUES = {
    "date": ("2002-02-02", "1999-12-31"),
    "integer": ("7", "8"),
    "decimal": ("7.5", "8.25"),
    "text": ("p 7", "p-8"),
    "boolean": ("true", "false"),
    "datetime": ("2002-02-02 10:30:00", "2003-01-01 00:00:00"),
}


def opened(at: Path, kind: str, empty: bool = False) -> Curator:
    (at / "policy.yaml").write_text(POLICY.format(kind=kind))
    rows = "" if empty else "".join(f"{value},2000-01-01,F\n" for value in VALUES[kind])
    (at / "people.csv").write_text("p,born,sex\n" + rows)
    return Curator.open(at / "policy.yaml", ledger=at / "policy.ledger.sqlite")


WRITTEN = [
    ("date", "2002-02-02"),
    ("date", "20020202"),
    ("integer", "7"),
    ("integer", "007"),
    ("integer", " 7"),
    ("decimal", "7.50"),
    ("text", "p 7"),
    ("boolean", "TRUE"),
    ("datetime", "2002-02-02T10:30"),
    ("datetime", "2002-02-02 12:30:00+02:00"),
]


@pytest.mark.parametrize(("kind", "value"), WRITTEN)
def test_a_person_is_left_out_however_the_value_is_written(tmp_path: Path, kind: str, value: str) -> None:
    with opened(tmp_path, kind) as curator:
        withdrawals.withdraw(curator.context, "p", value)
        assert curator.check("people", ["sex"]).rows == 1
        found = reports.subject_report(curator.context, "p", value)
        assert found.withdrawn is not None
        assert found.tables == ["people"]


IMPOSSIBLE = [
    ("date", "02.02.2002"),
    ("date", ""),
    ("integer", "abc"),
    ("integer", "7.5"),
    ("integer", ""),
    ("decimal", "nan"),
    ("decimal", "x"),
    ("text", ""),
    ("boolean", "yes"),
    ("datetime", "noon"),
]


@pytest.mark.parametrize(("kind", "value"), IMPOSSIBLE)
def test_a_value_that_the_column_cannot_have_is_refused(tmp_path: Path, kind: str, value: str) -> None:
    with opened(tmp_path, kind) as curator:
        with pytest.raises(ParameterError, match="none that 'p' can have") as refused:
            withdrawals.withdraw(curator.context, "p", value)
        assert not value or value not in refused.value.message.replace(withdrawals.EXAMPLES[kind], "")
        assert list(curator.ledger.entries()) == []


def test_the_command_says_of_which_tables_a_person_is_left_out(tmp_path: Path) -> None:
    opened(tmp_path, "integer").close()
    words = ["withdraw", "7", "--column", "p", "-p", str(tmp_path / "policy.yaml")]
    done = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert (done["left_out_of"], done["not_left_out_of"]) == (["people"], {"visits": "sex"})
    shown = CliRunner().invoke(app, words).output
    assert "Left out of people" in shown
    assert "Not left out of visits: people are told apart by 'sex' there" in shown


METHODS = ["optimal", "mondrian", "mondrian-relaxed", "local", "cells", "microaggregate"]


@pytest.mark.parametrize("method", METHODS)
def test_a_table_without_rows_is_refused_before_anything_is_recorded(tmp_path: Path, method: str) -> None:
    with opened(tmp_path, "integer", empty=True) as curator:
        with pytest.raises(Infeasible, match="the table has 0 rows"):
            curator.anonymize("people", tmp_path / "out.csv", k=1, method=method)
        assert list(curator.ledger.entries()) == []


def test_a_table_without_rows_can_be_checked(tmp_path: Path) -> None:
    with opened(tmp_path, "integer", empty=True) as curator:
        assert curator.check("people").rows == 0
