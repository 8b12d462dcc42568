"""Explanations as records: their names in JSON, what is there only sometimes, and names that a record cannot have."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import clinic
from deniable.curator import Curator
from deniable.policy.document import read

SRC = Path(__file__).resolve().parents[2] / "src" / "deniable"
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: {column: pid, max_groups: 2, max_rows_per_group: 3}
    columns:
      pid: {type: integer}
      sex: {categories: [F, M]}
      insured: {type: boolean}
      age: {type: integer}
      city: {}
budgets:
  dataset: {epsilon: 3, delta: 1e-6}
"""
PLAN = ["cost", "strategy", "unit", "neighbors", "relations", "aggregates", "statements", "notes"]
ASKED = [*PLAN, "remaining", "more_like_this"]
COUNTS = "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex"
CLAMPED = "SELECT SUM(AUTO_CLAMP(age)) AS s FROM visits"


@pytest.fixture
def curator(tmp_path: Path) -> Curator:
    (tmp_path / "policy.yaml").write_text(POLICY)
    return Curator(read(tmp_path / "policy.yaml"), sources={"visits": clinic.people()})


def _classes() -> Iterator[ast.ClassDef]:
    for path in sorted(SRC.rglob("*.py")):
        yield from (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))


def _records() -> list[ast.ClassDef]:
    """Every class that is a record, by the names of its bases."""
    classes, known = list(_classes()), {"Record"}
    while more := {each.name for each in classes if {ast.unparse(base) for base in each.bases} & known} - known:
        known |= more
    return [each for each in classes if each.name in known]


def test_no_field_of_a_record_has_the_name_of_a_method_of_mappings() -> None:
    """It would hide the method, and the method would be taken for the field's default."""
    methods = {name for name in vars(Mapping) if not name.startswith("_")} | {"to_dict"}
    assert methods >= {"keys", "items", "values", "get"}
    records = _records()
    found = [
        f"{record.name}.{line.target.id}"
        for record in records
        for line in record.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id in methods
    ]
    assert len(records) > 20
    assert found == []


def test_an_explanation_has_its_names_in_json_in_their_order(curator: Curator) -> None:
    told = json.loads(json.dumps(curator.explain(COUNTS, epsilon=1).to_dict()))
    assert list(told) == ASKED
    assert list(told["aggregates"][0]) == ["aggregate", "keys", "groups", "measurements"]
    assert told["aggregates"][0]["keys"] == "2 declared values; all are shown"
    assert told["aggregates"][0]["groups"] == 2


def test_what_one_unit_moves_is_told_in_the_unit_of_the_number(curator: Curator) -> None:
    """Numbers that are measured together have noise in small parts of a unit: nobody reads a count in these."""
    asked = "SELECT sex, COUNT(*) AS n, AVG(CLAMP(age, 0, 50)) AS a FROM visits GROUP BY sex"
    rows = curator.explain(asked, epsilon=1)["aggregates"]
    parts = [part for row in rows for part in row["measurements"] if part["measures"] == "number of rows"]
    alone = curator.explain(COUNTS, epsilon=1)["aggregates"][0]["measurements"][0]
    assert alone["moves"] == alone["sensitivity"]
    assert [part["moves"] for part in parts] == [alone["moves"]] * 2
    assert all(part["sensitivity"] > alone["sensitivity"] for part in parts)


def test_a_notebook_shows_an_explanation_as_lines(curator: Curator) -> None:
    shown: list[str] = []

    class Printer:
        text = staticmethod(shown.append)

    curator.explain(COUNTS, epsilon=1)._repr_pretty_(Printer, False)
    lines = shown[0].splitlines()
    assert lines[:2] == ["cost:", "  epsilon: 1"]
    assert "unit: all rows of one pid" in lines
    assert "QuestionExplanation" not in shown[0]


def test_notes_name_the_bound_and_the_keys(curator: Curator) -> None:
    notes = curator.explain(COUNTS, epsilon=1)["notes"]
    rows = curator.policy.table("visits").unit.max_rows_per_group
    assert f"At most {rows} rows of each unit count in a group: totals may be low if it has more." in notes
    assert "Rows with a missing or undeclared value of 'sex' are not counted." in notes


def test_stages_that_find_bounds_are_told_of_only_where_there_are_any(curator: Curator) -> None:
    assert "bounds" not in curator.explain(COUNTS, epsilon=1)
    told = curator.explain(CLAMPED, epsilon=1).to_dict()
    assert list(told) == [*ASKED, "bounds"]
    assert list(told["bounds"][0]) == [*PLAN, "finds"]
    assert told["cost"] == {"epsilon": "1", "delta": "0"}
    assert told["bounds"][0]["finds"] == "bounds of age"


def test_the_largest_groups_say_whether_their_keys_are_public(curator: Curator) -> None:
    public = curator.explain_top("visits", "sex", 1, epsilon=1)
    private = curator.explain_top("visits", "city", 1, epsilon=1, delta="1e-7")
    assert (public["keys"], private["keys"]) == ("public", "private")
    assert (public["k"], public["groups"]) == (1, 2)
    assert list(private) == [*PLAN, "keys"]
    assert {**private}["keys"] == "private"
    assert set(private.keys()) == set(private.to_dict())
