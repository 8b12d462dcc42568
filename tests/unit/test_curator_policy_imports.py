"""Policies drafted from the files of other tools: what they declare is kept, what they read from rows is not."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest

from deniable.curator import Curator
from deniable.curator.policy.imports import import_metadata, write_imported
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
    return import_metadata(tmp_path / "given", **asked).text


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


DEFINITION = """<definition>
  <assigment><name>name</name><type>IDENTIFYING_ATTRIBUTE</type><datatype>String</datatype></assigment>
  <assigment><name>town</name><type>QUASI_IDENTIFYING_ATTRIBUTE</type><datatype>String</datatype>
    <ref>hierarchies/town.csv</ref><min>All</min><max>All</max></assigment>
  <assigment><name>seen</name><type>QUASI_IDENTIFYING_ATTRIBUTE</type><datatype>Date/Time</datatype>
    <format>dd.MM.yyyy</format></assigment>
  <assigment><name>illness</name><type>SENSITIVE_ATTRIBUTE</type><datatype>String</datatype></assigment>
  <assigment><name>ward</name><type>INSENSITIVE_ATTRIBUTE</type><datatype>Integer</datatype></assigment>
</definition>"""
CONFIG = """<config><relativeMaxOutliers>0.02</relativeMaxOutliers><criteria>
  <criterion>5-anonymity</criterion><criterion>distinct-2-diversity for attribute 'illness'</criterion>
  <criterion>(0.1)-average-reidentification-risk</criterion></criteria></config>"""
SECRET = "Anna Schmidt"


def _write_project(path: Path, **changed: str) -> Path:
    """A project in the form in which ARX saves one: names of entries and elements as its WorkerSave writes them."""
    parts = {
        "metadata.xml": "<metadata><version>3.9.1</version><vocabulary>2.0</vocabulary></metadata>",
        "project.xml": "<project><name>study</name><separator>;</separator></project>",
        "data/input.csv": f"name;town;seen;illness;ward\n{SECRET};Oslo;31.12.2024;flu;1\n",
        "input/config.xml": CONFIG,
        "input/definition.xml": DEFINITION,
        "input/hierarchies/town.csv": "Oslo;north;*\nRome;south;*\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (parts | changed).items():
            archive.writestr(name, text)
    return path


def test_a_project_of_arx_becomes_a_policy_with_its_roles_hierarchies_and_models(tmp_path: Path) -> None:
    given, out = _write_project(tmp_path / "study.deid"), tmp_path / "policy.yaml"
    imported = import_metadata(given, source=str(tmp_path / "rows.csv"), folder=tmp_path)
    write_imported(imported, out)
    assert SECRET not in imported.text + "".join(each.decode() for each in imported.files.values())
    assert "# not taken over: (0.1)-average-reidentification-risk" in imported.text
    policy = read(out)
    assert {column.name: str(column.role) for column in policy.table("study").columns} == {
        "name": "identifier",
        "town": "quasi-identifier",
        "seen": "quasi-identifier",
        "illness": "sensitive",
        "ward": "insensitive",
    }
    lines = [
        f"p{n};{('Oslo', 'Rome')[n % 2]};{n % 3 + 1:02}.05.2024;{('flu', 'cold')[n // 2 % 2]};1" for n in range(120)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["name;town;seen;illness;ward", *lines]))
    with Curator.open(out) as curator:
        curator.anonymize("study", tmp_path / "released.csv", seconds=30)
    assert (tmp_path / "released.csv").exists()
    with pytest.raises(ParameterError, match="already exists"):
        write_imported(imported, out)
    write_imported(imported, out, replace_it=True)


@pytest.mark.parametrize(
    "changed",
    [
        {"input/definition.xml": ""},
        {"input/definition.xml": "<definition>"},
        {"input/definition.xml": "<!DOCTYPE d [<!ENTITY a 'x'>]><definition/>"},
        {"input/definition.xml": "<definition/>"},
    ],
    ids=["nothing", "broken", "entities", "no columns"],
)
def test_an_archive_that_is_no_project_of_arx_is_refused(tmp_path: Path, changed: dict[str, str]) -> None:
    with pytest.raises(DataError, match="is not a project of ARX"):
        import_metadata(_write_project(tmp_path / "study.deid", **changed))


INJECTED = '"0, 5]\\nbudgets: {dataset: {epsilon: 1000}}\\n#"'


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("lower: 0, upper", f"lower: {INJECTED}, upper"), "a bound of 'age' in the file is not a number"),
        (("lower: 0, upper", "lower: .inf, upper"), "a bound of 'age' in the file is not a number"),
        (("lower: 0, upper: 100", "lower: 0.5, upper: 100"), "a bound of 'age' in the file is not whole"),
        (("max_ids: 3", "max_ids: many"), "max_ids in the file is not a whole number"),
        (("max_ids: 3", "max_ids: null"), "max_ids in the file is not a whole number"),
        (("max_ids: 3", "max_ids: 2.7"), "max_ids in the file is not a whole number"),
        (("rows: 1000", "rows: lots"), "rows in the file is not a whole number"),
        (("row_privacy: False", "row_privacy: perhaps"), "row_privacy in the file is neither true nor false"),
    ],
)
def test_nothing_but_numbers_and_flags_is_taken_from_smartnoise(
    tmp_path: Path, changed: tuple[str, str], said: str
) -> None:
    """A text for a bound could write lines of the policy, such as a budget."""
    with pytest.raises(ParameterError, match=said):
        _import(tmp_path, SMARTNOISE.replace(*changed))


@pytest.mark.parametrize(
    "about",
    [
        {"data_type": "Integer", "min": "1]\nbudgets: {dataset: {epsilon: 1000}}\n#", "max": 2},
        {
            "data_type": "Integer",
            "is_categorical": True,
            "distribution_bins": ["1]\nbudgets: {dataset: {epsilon: 9}}\n#"],
        },
        {"data_type": "Integer", "min": 1, "max": 2, "distribution_bins": 7},
        "Integer",
    ],
)
def test_nothing_of_a_description_becomes_a_line_of_the_policy(tmp_path: Path, about: object) -> None:
    try:
        text = _import(tmp_path, json.dumps({"meta": None, "attribute_description": {"age": about}}))
    except ParameterError:
        return
    assert "\nbudgets: {dataset" not in text


def test_words_of_yaml_are_flags_and_equal_names_of_two_schemas_are_two_tables(tmp_path: Path) -> None:
    plain = SMARTNOISE.replace("row_privacy: False", "row_privacy: no").replace("private_id: True", "private_id: yes")
    assert "unit: {column: pid, max_rows: 3}" in _import(tmp_path, plain)
    both = SMARTNOISE + SMARTNOISE.removeprefix('"":\n').replace("PUMS", "OTHER").replace("upper: 100", "upper: 5")
    with pytest.raises(ParameterError, match=r"OTHER\.people, PUMS\.people"):
        _import(tmp_path, both)
    assert "between: [0, 5]" in _import(tmp_path, both, table="OTHER.people")
    nobody = SMARTNOISE.replace(", private_id: True", "")
    assert "unit: row  # confirm: the file has no private_id" in _import(tmp_path, nobody)


def test_bounds_are_written_as_the_policy_reads_them(tmp_path: Path) -> None:
    small = SMARTNOISE.replace("lower: 0, upper: 100", "lower: 0.0, upper: 99.0").replace("500000.0", "0.004")
    (tmp_path / "policy.yaml").write_text(_import(tmp_path, small, source="people.csv"))
    assert [int(column.bounds.upper) for column in read(tmp_path / "policy.yaml").table("people").columns[1:2]] == [99]


def test_what_a_project_says_and_a_policy_does_not_stands_in_its_comments(tmp_path: Path) -> None:
    """The least level of a column was dropped without a word: finer values than those of ARX would have left."""
    lines = [
        "<assigment><name>zip</name><type>QUASI_IDENTIFYING_ATTRIBUTE</type><datatype>String</datatype>"
        "<min>2</min><max>3</max></assigment>",
        "<assigment><name>dob</name><type>QUASI_IDENTIFYING_ATTRIBUTE</type><datatype>Date/Time</datatype>"
        "<format>dd.MM.yyyy</format></assigment>",
        "<assigment><name>seen</name><type>INSENSITIVE_ATTRIBUTE</type><datatype>Date/Time</datatype>"
        "<format>MM/dd/yyyy HH:mm</format></assigment>",
        "<assigment><name>pay</name><type>INSENSITIVE_ATTRIBUTE</type><datatype>Decimal</datatype></assigment>",
    ]
    models = ["5-anonymity", "10-anonymity"]
    with zipfile.ZipFile(tmp_path / "study.deid", "w") as archive:
        archive.writestr("input/definition.xml", f"<definition>{''.join(lines)}</definition>")
        criteria = "".join(f"<criterion>{each}</criterion>" for each in models)
        archive.writestr("input/config.xml", f"<config><criteria>{criteria}</criteria>"
                         "<relativeMaxOutliers>1.0E-4</relativeMaxOutliers></config>")  # fmt: skip
        archive.writestr("project.xml", "<project><separator>;</separator><locale>DE</locale></project>")
    text = import_metadata(tmp_path / "study.deid").text
    assert "not taken over: at least level 2, at most level 3" in text
    assert "csv:" not in text.split("columns:")[0]
    assert "dates are written dd.MM.yyyy" in text
    assert re.search(r"seen:\s.*datetime", text)
    assert "numbers are written as in DE" in text
    assert "k: 10, suppress: 0.0001" in text
