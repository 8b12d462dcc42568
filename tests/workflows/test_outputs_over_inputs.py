"""No command writes over what it reads: a table, a policy, a ledger."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.errors import ParameterError

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier, mask: redact}
      sex: {role: quasi-identifier, categories: [F, M]}
      old: {type: boolean, role: quasi-identifier}
budgets: {dataset: {epsilon: 5}}
"""


SYNTHESIS = ("synthesize", "visits", "--epsilon", "1", "--delta", "1e-6")
TRAINING = ("train", "visits", "--target", "sex", "--features", "old", "--epsilon", "1")


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("words", "target"),
    [
        (("query", "SELECT COUNT(*) AS n FROM visits", "--epsilon", "1"), "visits.csv"),
        (("mask", "visits.csv"), "visits.csv"),
        (("anonymize", "visits.csv", "--k", "2"), "visits.csv"),
        (("synthesize", "visits", "--epsilon", "1", "--delta", "1e-6"), "visits.csv"),
        ((*SYNTHESIS, "--report", "visits.csv"), "made.csv"),
        ((*SYNTHESIS, "--report", "made.csv"), "made.csv"),
        ((*SYNTHESIS, "--report", "made.csv.release.json"), "made.csv"),
        ((*TRAINING, "--report", "visits.csv"), "model.json"),
        ((*TRAINING, "--report", "model.json"), "model.json"),
        (("ledger", "export", "--form", "csv"), "policy.ledger.sqlite"),
        (("ledger", "export", "--form", "csv"), "policy.yaml"),
    ],
)
def test_what_is_read_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text("id,sex,old\n" + "".join(f"{i},{'FM'[i % 2]},true\n" for i in range(40)))
    (tmp_path / "policy.yaml").write_text(POLICY)
    run = CliRunner().invoke
    assert run(app, ["query", "SELECT COUNT(*) AS m FROM visits", "--epsilon", "1", "-p", "policy.yaml"]).exit_code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "visits.csv", tmp_path / "policy.yaml")}
    done = run(app, [*words, "-p", "policy.yaml", "-o", target])
    assert isinstance(done.exception, ParameterError), done.output
    assert "Choose another name" in str(done.exception)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert "1 charged" in run(app, ["ledger", "show", "-p", "policy.yaml"]).output


def test_a_model_is_not_written_over_by_what_is_drawn_or_told_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("model.csv", "rows.csv"):
        (tmp_path / name).write_text("kept")
    for words in (
        ("generate", "model.csv", "-o", "model.csv"),
        ("inspect", "model.csv", "--report", "model.csv"),
        ("predict", "model.csv", "rows.csv", "-o", "rows.csv"),
        ("predict", "model.csv", "rows.csv", "-o", "model.csv"),
    ):
        done = CliRunner().invoke(app, [*words])
        assert "one would be lost" in str(done.exception), words
    assert [(tmp_path / name).read_text() for name in ("model.csv", "rows.csv")] == ["kept", "kept"]


@pytest.mark.parametrize(
    "words",
    [
        ("anonymize", "visits.csv", "--qi", "sex", "--k", "2", "-o", "made.csv", "--report", "visits.csv"),
        ("anonymize", "visits.csv", "--qi", "sex", "--k", "2", "-o", "made.csv", "--report", "made.csv"),
        ("anonymize", "visits.csv", "--qi", "sex", "--k", "2", "-o", "made.csv", "--report", "made.csv.release.json"),
        ("anonymize", "visits.csv", "--qi", "sex", "--k", "2", "-o", "made.csv", "--report", "other.csv"),
        ("attack", "visits.csv", "--knows", "sex", "--report", "visits.csv"),
        ("attack", "visits.csv", "--knows", "sex", "--resume", "visits.csv"),
        ("release", "catalog", "visits.csv", "-o", "visits.csv"),
        ("register", "-p", "policy.yaml", "-o", "visits.csv"),
        ("estate", ".", "-o", "visits.csv"),
        ("query", "SELECT COUNT(*) AS n FROM visits", "-p", "policy.yaml", "--curve", "other.csv"),
        ("publish", "daily", "-p", "policy.yaml", "--report", "other.csv"),
        ("scan", "visits.csv", "--save", "visits.csv"),
        ("scan", "visits.csv", "--draft", "visits.csv", "--force"),
        ("policy", "init", "visits.csv", "--out", "visits.csv", "--force"),
    ],
)
def test_a_page_or_a_document_replaces_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "id,sex,old\n" + "".join(f"{i},{'FM'[i % 2]},true\n" for i in range(40))
    for name in ("visits.csv", "other.csv"):
        (tmp_path / name).write_text(rows)
    (tmp_path / "policy.yaml").write_text(POLICY)
    done = CliRunner().invoke(app, [*words])
    assert isinstance(done.exception, ParameterError), done.output
    assert "Choose another name" in str(done.exception)
    assert [(tmp_path / name).read_text() for name in ("visits.csv", "other.csv")] == [rows, rows]
    assert not (tmp_path / "made.csv").exists()


def test_a_page_replaces_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text("sex\n" + "F\nM\n" * 20)
    words = ["attack", "visits.csv", "--knows", "sex", "--report", "page.html"]
    (tmp_path / "page.html").touch()
    assert [CliRunner().invoke(app, words).exit_code for _ in range(2)] == [0, 0]
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html")
