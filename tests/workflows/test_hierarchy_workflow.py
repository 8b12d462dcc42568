"""`deniable hierarchy` from the command line: explained, released, written, refused."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.errors import DeniableError

RUN = CliRunner()


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds") / "town"
    assert RUN.invoke(app, ["world", "make", "hospital", "--people", "800", "-o", str(folder)]).exit_code == 0
    return folder


def _json(town: Path, *arguments: str) -> dict[str, object]:
    done = RUN.invoke(app, ["hierarchy", *arguments, "-p", str(town / "policy.yaml"), "--json"])
    assert done.exit_code == 0, done.output
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_explaining_shows_levels_shares_and_cost_and_no_row(town: Path) -> None:
    told = _json(town, "visits", "payer", "sex", "--epsilon", "1", "--explain")
    assert told["cost"] == {"epsilon": "1", "delta": "0"}
    assert [part["name"] for part in told["sets"]] == ["sex", "payer", "total"]  # type: ignore[attr-defined]
    assert "rows" not in told


def test_a_released_file_adds_up(town: Path, tmp_path: Path) -> None:
    _json(town, "visits", "payer", "sex", "--epsilon", "1", "--nonnegative", "-o", str(tmp_path / "tree.csv"))
    rows = list(csv.DictReader((tmp_path / "tree.csv").read_text().splitlines()))
    by_payer: dict[str, int] = defaultdict(int)
    for row in rows:
        if row["level"] == "sex":
            by_payer[row["payer"]] += int(row["value"])
    payers = {row["payer"]: int(row["value"]) for row in rows if row["level"] == "payer"}
    assert by_payer == payers
    assert sum(payers.values()) == next(int(row["value"]) for row in rows if row["level"] == "total")
    assert (tmp_path / "tree.csv.release.json").exists() or (tmp_path / "tree.release.json").exists()


def test_people_read_a_table(town: Path) -> None:
    done = RUN.invoke(app, ["hierarchy", "visits", "payer", "--epsilon", "1", "-p", str(town / "policy.yaml")])
    assert done.exit_code == 0
    assert "Medicare" in done.stdout
    assert "Cost: epsilon 1" in done.stdout


@pytest.mark.parametrize("arguments", [["visits", "zip"], ["visits", "payr"], ["visit", "payer"]])
def test_refusals_name_what_is_wrong(town: Path, arguments: list[str]) -> None:
    done = RUN.invoke(app, ["hierarchy", *arguments, "--epsilon", "1", "-p", str(town / "policy.yaml")])
    assert isinstance(done.exception, DeniableError)
    assert "Nothing was charged" in str(done.exception)
