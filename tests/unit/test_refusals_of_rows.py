"""Refusals of what handles rows: each says what was expected or how to go on, and none quotes a value."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import deniable
from deniable import errors
from deniable.cli.main import app
from deniable.errors import DataError, Infeasible, ParameterError
from deniable.masking import keys

SOURCES = Path(deniable.__file__).parent
PACKAGES = ("kanonymity", "masking", "assess")
VALUES = {"value", "values", "leaf", "label", "text", "cell", "own", "written", "token"}
"""Names by which these packages hold a value of the data."""
REFUSALS = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}


def list_refusals(package: str) -> Iterator[tuple[str, ast.Call]]:
    """Refusals where they are raised, and where a function makes one for several places that raise it."""
    for path in sorted((SOURCES / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            made = node.exc if isinstance(node, ast.Raise) else node.value if isinstance(node, ast.Return) else None
            if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id in REFUSALS:
                yield f"{path.relative_to(SOURCES)}:{node.lineno}", made


@pytest.mark.parametrize("package", PACKAGES)
def test_every_refusal_says_what_was_expected_or_how_to_go_on(package: str) -> None:
    kinds = ("ParameterError", "DataError", "Infeasible", "StorageError", "AccessRefused", "IntegrityError")
    made = [(place, call) for place, call in list_refusals(package) if ast.unparse(call.func) in kinds]
    assert made
    assert not [place for place, call in made if not {"expected", "remedy"} & {word.arg for word in call.keywords}]


def test_every_refusal_of_an_assessment_says_how_to_go_on() -> None:
    """What is assessed was often made elsewhere: what is wrong with it does not tell whoever has it what to do."""
    made = [(place, call) for place, call in list_refusals("assess") if ast.unparse(call.func) != "InternalError"]
    assert made
    assert not [place for place, call in made if "remedy" not in {word.arg for word in call.keywords}]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_refusal_quotes_a_value_of_the_data(package: str) -> None:
    """A parameter of the steward's own may be shown, by its own name: k is 0."""
    allowed = {"kanonymity/models/base.py", "kanonymity/request.py"}
    for place, call in list_refusals(package):
        shown = [ast.unparse(part.value) for part in ast.walk(call) if isinstance(part, ast.FormattedValue)]
        assert place.split(":")[0] in allowed or not VALUES & set(shown), place


def test_a_person_column_that_is_not_there_does_not_open_a_gate(tmp_path: Path) -> None:
    """With a misspelled --unit everybody would count as hidden, and a limit as met."""
    rows = tmp_path / "v.csv"
    rows.write_text("pid,zip,age\n" + "".join(f"{i // 2},{i % 7},{i % 50}\n" for i in range(100)))
    options = ["attack", str(rows), "--knows", "zip,age", "--fail-above", "0.05", "--unit"]
    done = CliRunner().invoke(app, [*options, "nope"])
    assert done.exit_code != 0
    assert "have no column 'nope'" in done.output + str(done.exception)
    assert "FAILED" in CliRunner().invoke(app, [*options, "pid"]).output


@pytest.mark.parametrize("method", ["optimal", "mondrian", "cells"])
def test_infinite_numbers_are_generalized_like_others(method: str, tmp_path: Path) -> None:
    numbers = [float("inf") if i % 37 == 0 else float("-inf") if i % 41 == 0 else i * 0.7 for i in range(200)]
    pq.write_table(pa.table({"f": numbers, "dx": list("abcd") * 50}), tmp_path / "t.parquet")
    options = ["--qi", "f", "--sensitive", "dx", "--k", "2", "--method", method, "-o", str(tmp_path / "o.csv")]
    done = CliRunner().invoke(app, ["anonymize", str(tmp_path / "t.parquet"), *options])
    assert done.exit_code == 0, done.output + str(done.exception)


@pytest.mark.parametrize("start", ["=", "@", "+", "-", "\t"])
def test_people_are_counted_where_texts_would_run_in_a_spreadsheet(start: str, tmp_path: Path) -> None:
    """Such a text stands in a CSV file with a quote before it, and its people are counted all the same."""
    places = [f"{start}north" if i % 2 else "south" for i in range(40)]
    rows = pa.table({"per": [i // 4 for i in range(40)], "place": places, "dx": list("abcd") * 10})
    pq.write_table(rows, tmp_path / "t.parquet")
    options = ["--qi", "place", "--sensitive", "dx", "--k", "2", "--person", "per", "-o", str(tmp_path / "o.csv")]
    done = CliRunner().invoke(app, ["anonymize", str(tmp_path / "t.parquet"), *options])
    assert done.exit_code == 0, done.output + str(done.exception)


ROWS = "pid,name,age,dx,ward\n" + "".join(
    f"{i // 2},person {i // 2},{20 + i % 5},{'abc'[i % 3]},{i % 2}\n" for i in range(60)
)
WRONG = [
    "anonymize --k 2 -o out.csv --qi age --sensitive age",
    "anonymize --k 2 -o out.csv --qi age --keep age",
    "anonymize --k 2 -o out.csv --qi age --sensitive dx --keep dx",
    "anonymize --k 2 -o out.csv --qi age --identifier age",
    "anonymize --k 2 -o out.csv --qi age --identifier nope",
    "anonymize --k 2 -o out.csv --qi age --keep nope",
    "anonymize --k 2 -o out.csv --qi age --l nope=2",
    "anonymize --k 2 -o out.csv --qi age --hierarchy dx=redact:right",
    "anonymize --k 2 -o out.csv --qi age --top ward=1",
    "anonymize --k 2 -o out.csv --qi age --table visits",
    "anonymize --k 2 -o out.csv --qi age --person pid --count-rows",
    "anonymize --k 2 -o out.csv --grid age,ward --qi dx",
    "check --qi age --sensitive age",
    "check --qi age --keep age",
    "check --qi age --sensitive dx --keep dx",
    "check --qi age --hierarchy nope=redact:right",
    "check --qi age --hierarchy ward=redact:right",
    "check --qi age --person nope",
    "attack --knows age --sensitive age",
    "attack --knows age --sensitive nope",
    "attack --knows age --table visits",
    "scan --unit nope",
    "policy init --unit nope",
]


@pytest.mark.parametrize("words", WRONG)
def test_a_column_that_is_named_wrongly_is_refused_before_anything_is_written(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.csv").write_text(ROWS)
    name, _, rest = words.partition(" --")
    done = CliRunner().invoke(app, [*name.split(), "v.csv", *f"--{rest}".split()])
    assert isinstance(done.exception, ParameterError | DataError), done.output
    assert [path.name for path in tmp_path.iterdir()] == ["v.csv"]


POLICY = """
version: 1
dataset: d
tables:
  v:
    source: v.csv
    unit: {column: pid}
    columns:
      pid: {role: identifier, mask: {token: {key: people}}}
      name: {role: identifier}
      age: {type: integer, role: quasi-identifier}
      dx: {role: sensitive}
      ward: {role: insensitive, type: integer}
keys: {people: {file: people.key}}
release: {anonymize: {k: 2}, joint: {most: 1}}
"""


@pytest.mark.parametrize("name", ["age", "dx", "ward"])
def test_what_the_policy_lets_leave_is_not_named_as_an_identifier(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.csv").write_text(ROWS)
    (tmp_path / "p.yaml").write_text(POLICY)
    done = CliRunner().invoke(app, ["anonymize", "-p", "p.yaml", "--identifier", name, "-o", "out.csv"])
    assert isinstance(done.exception, ParameterError), done.output
    assert "the policy declares it as" in str(done.exception)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("limit", ["joint: {most: 0}", "attack: {most: {uniqueness: 0}}"])
def test_a_mask_that_is_refused_remembers_no_key(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.csv").write_text(
        ROWS.splitlines()[0] + "".join(f"\n{i},p {i},{20 + i},a,{i % 2}" for i in range(60))
    )
    keys.store_key(keys.generate_key("people"), tmp_path / "people.key")
    policy = POLICY.replace("name: {role: identifier}", "name: {role: identifier, mask: redact}")
    mask = ["mask", "-p", "p.yaml", "--table", "v", "-o", "out.csv"]
    (tmp_path / "p.yaml").write_text(policy.replace("joint: {most: 1}", limit))
    refused = CliRunner().invoke(app, mask)
    assert isinstance(refused.exception, Infeasible), refused.output + str(refused.exception)
    assert not (tmp_path / "p.keys.json").exists()
    (tmp_path / "p.yaml").write_text(policy)
    assert CliRunner().invoke(app, mask).exit_code == 0
    known = (tmp_path / "p.keys.json").read_bytes()
    (tmp_path / "p.yaml").write_text(policy.replace("joint: {most: 1}", limit))
    assert CliRunner().invoke(app, [*mask[:-1], "other.csv"]).exit_code != 0
    assert (tmp_path / "p.keys.json").read_bytes() == known


@pytest.mark.parametrize("options", [["--knows", "age"], ["--knows", "age", "--fail-above", "0.05"], []])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_attack_that_measures_nothing_fails(options: list[str], form: list[str], tmp_path: Path) -> None:
    """Of a column without values, and where nothing is known, there is nothing to measure."""
    (tmp_path / "v.csv").write_text("age,dx\n" + ",a\n,b\n" * 20)
    done = CliRunner().invoke(app, ["attack", str(tmp_path / "v.csv"), *options, *form])
    assert done.exit_code == 2
    if form:
        told = json.loads(done.stdout)
        assert (told["measured"], told["failed"]) == (False, True)
    else:
        assert "nothing could be measured" in done.stdout


def test_a_release_of_which_nothing_is_shown_says_so(tmp_path: Path) -> None:
    """All rows are starred: a distance between classes does not exist, and the statement says why."""
    (tmp_path / "v.csv").write_text("zip,dx\n" + "".join(f"{i},{'abcde'[i % 5]}\n" for i in range(40)))
    options = [
        "--qi",
        "zip",
        "--sensitive",
        "dx",
        "--k",
        "30",
        "--t",
        "dx=0",
        "--suppress",
        "1",
        "--suppressed",
        "star",
    ]
    out = tmp_path / "o.csv"
    options += ["--hierarchy", "zip=rounding:2", "-o", str(out)]
    done = CliRunner().invoke(app, ["anonymize", str(tmp_path / "v.csv"), *options])
    assert done.exit_code == 0, done.output + str(done.exception)
    stated = json.loads(out.with_name("o.csv.release.json").read_text())
    found = {one["name"]: one for one in stated.get("statement", stated)["details"]["measured"]["properties"]}
    assert found["closeness"]["measured"] is None
    assert found["closeness"]["note"].startswith("every row was suppressed")
