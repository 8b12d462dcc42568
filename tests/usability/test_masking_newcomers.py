"""What a newcomer to masking tries, and the message that helps."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pytest
from rich.console import Console

from deniable.cli.main import main
from deniable.cli.policy import _print_findings
from deniable.curator.policy.scan import scan
from deniable.masking import keys

POLICY = """
version: 1
dataset: d
tables:
  people:
    source: people.csv
    unit: row
    columns:
      name: {role: identifier, mask: {token: {key: people}}}
      city: {role: quasi-identifier}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DENIABLE_KEYS", str(tmp_path / "keys"))
    csv.write_csv(pa.table({"name": ["Ann", "Bob"], "city": ["X", "Y"]}), tmp_path / "people.csv")
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


def _refused(*words: object) -> dict[str, object]:
    """Run the program, expect a refusal, and give it as its JSON document."""
    said, before = io.StringIO(), sys.argv
    sys.argv = ["deniable", *map(str, words), "--json"]
    try:
        with redirect_stdout(said), redirect_stderr(io.StringIO()), pytest.raises(SystemExit) as end:
            main()
    finally:
        sys.argv = before
    assert end.value.code == 2
    return json.loads(said.getvalue())


def test_masking_before_making_a_key_says_how_to_make_one(folder: Path) -> None:
    said = _refused("mask", folder / "people.csv", "-p", folder / "policy.yaml", "-o", folder / "o.csv")
    assert said["error"] == "key"
    assert "deniable key new" in str(said["remedy"])


def test_an_output_without_a_known_ending_names_the_endings(folder: Path) -> None:
    keys.store_key(keys.generate_key("people"), folder / "keys" / "people.key")
    said = _refused("mask", folder / "people.csv", "-p", folder / "policy.yaml", "-o", folder / "o.xlsx")
    assert ".parquet" in str(said["expected"])


def test_an_output_in_a_folder_that_is_not_there_is_a_matter_of_storage(folder: Path) -> None:
    keys.store_key(keys.generate_key("people"), folder / "keys" / "people.key")
    (folder / "file").write_text("")
    said = _refused("mask", folder / "people.csv", "-p", folder / "policy.yaml", "-o", folder / "file" / "o.csv")
    assert said["error"] == "storage"


def test_a_misspelled_mode_or_table_is_answered_with_the_nearest(folder: Path) -> None:
    words = ["mask", folder / "people.csv", "-p", folder / "policy.yaml", "-o", folder / "o.csv"]
    assert "safe-harbor" in str(_refused(*words, "--mode", "safeharbor")["remedy"])
    assert "people" in str(_refused(*words, "--table", "peple")["remedy"])


def test_a_key_given_as_a_word_is_refused_without_repeating_it(folder: Path) -> None:
    words = ["mask", folder / "people.csv", "-p", folder / "policy.yaml", "-o", folder / "o.csv"]
    said = _refused(*words, "--key", "people=hunter2hunter2")
    assert "never the key itself" in str(said["expected"])
    assert "hunter2" not in json.dumps(said)


@pytest.mark.parametrize("text", ["a,b\n,\n,\n", 'a,b\n" ",\n"",\n'])
def test_scanning_a_table_without_any_value_is_refused_since_nothing_was_measured(folder: Path, text: str) -> None:
    (folder / "nothing.csv").write_text(text)
    said = _refused("scan", folder / "nothing.csv")
    assert "has no value in any column, and nothing was measured" in str(said["happened"])


def test_scanning_names_the_columns_without_a_value(folder: Path) -> None:
    (folder / "some.csv").write_text("name,phone\nAnn,\nBob,\n")
    found = scan(str(folder / "some.csv"))
    assert found.without_values == ["phone"]
    console = Console(file=io.StringIO(), width=200)
    _print_findings(console, found.to_dict())
    assert "Nothing is known of phone: no row that was looked at has a value there." in console.file.getvalue()  # type: ignore[attr-defined]


def test_scanning_a_file_that_is_not_there_says_so(folder: Path) -> None:
    assert _refused("scan", folder / "peple.csv")["error"] == "data"


def test_a_policy_that_asks_for_a_hash_is_refused(folder: Path) -> None:
    (folder / "policy.yaml").write_text(POLICY.replace("{token: {key: people}}", "hash"))
    said = _refused("mask", folder / "people.csv", "-p", folder / "policy.yaml", "-o", folder / "o.csv")
    assert said["error"] == "policy"


def test_a_key_with_a_name_that_no_file_could_have_is_refused(folder: Path) -> None:
    assert "Lower-case letters" in str(_refused("key", "new", "../people")["expected"])
