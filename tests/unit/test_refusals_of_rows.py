"""Refusals of what handles rows: each says what was expected or how to go on, and none quotes a value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import deniable
from deniable.cli.main import app

SOURCES = Path(deniable.__file__).parent
PACKAGES = ("kanonymity", "masking", "assess")
VALUES = {"value", "values", "leaf", "label", "text", "cell", "own", "written", "token"}
"""Names by which these packages hold a value of the data."""


def list_refusals(package: str) -> Iterator[tuple[str, ast.Call]]:
    for path in sorted((SOURCES / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
                yield f"{path.relative_to(SOURCES)}:{node.lineno}", node.exc


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
