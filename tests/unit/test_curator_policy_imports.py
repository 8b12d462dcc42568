"""Policies drafted from the files of other tools: what they declare is kept, what they read from rows is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deniable.curator.policy.imports import import_metadata
from deniable.errors import DataError, ParameterError
from deniable.policy.document import read

SMARTNOISE = """\
"":
  PUMS:
    people:
      row_privacy: False
      rows: 1000
      max_ids: 3
      pid: {type: int, private_id: True}
      age: {type: int, lower: 0, upper: 100}
      income: {type: float, lower: 0.0, upper: 500000.0}
      married: {type: boolean}
      sex: {type: string, cardinality: 2}
"""
DESCRIPTION = {
    "meta": {"num_tuples": 5, "candidate_keys": ["ssn"]},
    "attribute_description": {
        "ssn": {"data_type": "SocialSecurityNumber", "is_candidate_key": True},
        "age": {"data_type": "Integer", "min": 17, "max": 90, "distribution_bins": [17, 50]},
        "degree": {"data_type": "String", "is_categorical": True, "distribution_bins": ["HS", "NO"]},
    },
}


def _import(tmp_path: Path, text: str, **asked: str) -> str:
    (tmp_path / "given").write_text(text)
    return import_metadata(tmp_path / "given", **asked)


def test_smartnoise_metadata_becomes_a_valid_policy_with_its_bounds_and_its_person(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(_import(tmp_path, SMARTNOISE, source="people.csv"))
    table = read(tmp_path / "policy.yaml").table("people")
    columns = {column.name: column for column in table.columns}
    assert (table.unit.column, table.unit.max_rows) == ("pid", 3)
    assert {name: str(column.type) for name, column in columns.items()} == {
        "pid": "integer",
        "age": "integer",
        "income": "decimal",
        "married": "boolean",
        "sex": "text",
    }
    assert [int(end) for end in (columns["age"].bounds.lower, columns["age"].bounds.upper)] == [0, 100]
    assert [name for name, column in columns.items() if column.decided] == ["pid"]


def test_row_privacy_makes_each_row_a_person(tmp_path: Path) -> None:
    assert "unit: row\n" in _import(tmp_path, SMARTNOISE.replace("row_privacy: False", "row_privacy: True"))


def test_what_datasynthesizer_read_from_the_rows_stands_in_marked_comments_only(tmp_path: Path) -> None:
    text = _import(tmp_path, json.dumps(DESCRIPTION), table="adult")
    shown = [line for line in text.splitlines() if "17" in line or "HS" in line]
    assert len(shown) == 2
    assert all(line.strip().startswith("#") and "read from the data" in line for line in shown)
    (tmp_path / "policy.yaml").write_text(text)
    assert read(tmp_path / "policy.yaml").table("adult").column("ssn").role == "identifier"


def test_a_table_must_be_named_where_there_are_several(tmp_path: Path) -> None:
    two = SMARTNOISE + "    visits:\n      pid: {type: int, private_id: True}\n"
    with pytest.raises(ParameterError, match="people, visits"):
        _import(tmp_path, two)
    assert "  visits:\n" in _import(tmp_path, two, table="visits")


@pytest.mark.parametrize("text", ["- a\n- b\n", "{", "\x00"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"is not metadata that can be imported\..*deniable policy init TABLE"):
        _import(tmp_path, text)


def test_a_file_that_describes_no_table_is_refused_with_a_way_on(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"describes no table\..*deniable policy init TABLE"):
        _import(tmp_path, '{"recognizers": {"phone": 1}}')
