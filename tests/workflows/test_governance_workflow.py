"""A steward's week at the command line: tokens, questions, a request approved and fulfilled, a withdrawal, expiry."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.errors import AccessRefused, BudgetExceeded, DeniableError, IntegrityError

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 2, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier, mask: redact}
      sex: {role: quasi-identifier, categories: [F, M]}
      town: {role: quasi-identifier, hierarchy: {redact: right}}
      charge: {type: integer, role: sensitive, between: [0, 1000]}
budgets:
  dataset: {epsilon: 5}
  purposes: {research: {epsilon: 3}}
  analysts: {ana: {purposes: [research], epsilon: 1}}
release:
  anonymize: {k: 3}
  minimize: {sample: 0.5, columns: [sex, town]}
"""


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DENIABLE_LEDGER", raising=False)
    rows = "".join(f"{i},{'FM'[i % 2]},{'abcde'[i % 5]}{i % 3},{i % 1000}\n" for i in range(600))
    (tmp_path / "visits.csv").write_text("id,sex,town,charge\n" + rows)
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


def run(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def told(*words: str) -> object:
    return json.loads(run(*words, "--json"))


def test_a_stewards_week(at: Path) -> None:
    token = told("token", "new", "ana", "--purpose", "research")
    assert re.fullmatch(r"deniable_[\w-]{43}", token["token"])
    assert "token" not in told("token", "list")[0]

    ask = ("query", "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex", "--analyst", "ana", "--purpose", "research")
    first = told(*ask, "--epsilon", "0.6")
    assert told(*ask, "--epsilon", "0.6")["rows"] == first["rows"]
    assert first["receipt"]["number"] == 2
    with pytest.raises(BudgetExceeded, match="analyst 'ana'"):
        run(*ask, "--epsilon", "0.7")

    asked = told("request", "mask", "visits", "--analyst", "ana", "--purpose", "research")
    assert "risk" not in asked
    assert told("requests", "--pending")[0]["risk"]["visits"]["rows"] == 600
    with pytest.raises(AccessRefused, match="pending"):
        run("fulfill", asked["id"], "-o", "released")
    run("approve", asked["id"], "--reason", "a sample of two columns")
    assert told("fulfill", asked["id"], "-o", "released")["status"] == "released"
    with pytest.raises(AccessRefused, match="fulfilled already"):
        run("fulfill", asked["id"], "-o", "again")

    assert "entry" in run("withdraw", "7", "--column", "id")
    subject = told("subject", "7", "--column", "id")
    assert [each["technique"] for each in subject["releases"]] == ["differentially private query", "masking"]

    run("token", "revoke", token["id"])
    assert told("token", "list")[0]["revoked"]
    verified = told("ledger", "verify", "--head", first["receipt"]["head"], "--number", "2")
    shown = told("ledger", "show")
    assert verified["entries"] == shown["entries"][-1]["sequence"]
    assert (shown["standing"]["charged"], shown["standing"]["without_guarantee"]) == (1, 1)
    with pytest.raises(IntegrityError):
        run("ledger", "verify", "--head", "0" * 64)

    run("register", "-o", "register.html")
    page = (at / "register.html").read_text()
    assert "masking" in page
    assert ">ana<" not in page
    run("ledger", "export", "-o", "ledger.csv")
    assert (at / "ledger.csv").read_text().count("\n") == verified["entries"] + 1

    (at / "policy.yaml").write_text(POLICY + "expires: 2020-01-01\n")
    for late in (
        (*ask, "--epsilon", "0.1"),
        ("request", "mask", "visits", "--analyst", "ana", "--purpose", "research"),
    ):
        with pytest.raises(AccessRefused, match="expired"):
            run(*late)
    assert told("purge")["forgotten"] == 0  # the first question that was refused did it
    assert told("ledger", "verify")["entries"] == verified["entries"] + 1


def rows_of(path: Path) -> list[dict[str, object]]:
    import pyarrow.parquet as pq

    found: list[dict[str, object]] = pq.read_table(path).to_pylist()
    return found


def test_a_record_level_release_is_minimized_and_leaves_out_who_withdrew(at: Path) -> None:
    run("token", "list")  # makes the ledger
    run("mask", "visits.csv", "-p", "policy.yaml", "-o", "one.parquet")
    run("mask", "visits.csv", "-p", "policy.yaml", "-o", "two.parquet", "--fresh")
    one, two = rows_of(at / "one.parquet"), rows_of(at / "two.parquet")
    assert set(one[0]) == {"sex", "town"}
    assert 200 < len(one) < 400
    assert sorted(map(str, one)) == sorted(map(str, two)), "the same sample, in a random order"
    with pytest.raises(AccessRefused, match="charge"):
        run("mask", "visits.csv", "-p", "policy.yaml", "-o", "three.parquet", "--columns", "sex,charge")
    run("anonymize", "visits.csv", "-p", "policy.yaml", "-o", "four.parquet")
    four = rows_of(at / "four.parquet")
    assert set(four[0]) == {"sex", "town"}
    assert len(four) == len(one)
    for value in range(0, 600, 20):
        run("withdraw", str(value), "--column", "id")
    run("mask", "visits.csv", "-p", "policy.yaml", "-o", "five.parquet")
    assert len(rows_of(at / "five.parquet")) < len(one)
    techniques = [each["technique"] for each in told("register")["releases"]]
    assert techniques == ["masking", "masking", "k-anonymity", "masking"]


def test_a_synthetic_release_is_charged_when_it_is_fulfilled(at: Path) -> None:
    policy = POLICY.replace("epsilon: 5", "epsilon: 5, delta: 1e-6, accounting: zcdp")
    (at / "policy.yaml").write_text(policy)
    words = ("request", "synthesize", "visits", "--analyst", "ana", "--purpose", "research", "--epsilon", "0.5")
    words += ("--delta", "1e-7")
    asked = told(*words)
    assert asked["cost"]["epsilon"] == "0.5"
    run("approve", asked["id"], "--reason", "synthetic rows will do")
    run("fulfill", asked["id"], "-o", "released")
    assert told("register")["standing"]["charged"] == 1
    assert told("ledger", "show")["entries"][-2]["analyst"] == "ana"
    assert len(rows_of(at / "released" / "visits.parquet")) > 0


@pytest.mark.parametrize(
    "words",
    [
        ("ledger", "verify"),
        ("register",),
        ("token", "new", "ana"),
        ("token", "new", "ana", "--purpose", "reserch"),
        ("token", "new", "ana", "--role", "stewart"),
        ("token", "revoke", "nothing"),
        ("approve", "nothing", "--reason", "x"),
        ("withdraw", "1", "--column", "sx"),
        ("request", "publish", "visits", "--analyst", "ana", "--purpose", "research"),
        ("request", "mask", "visit", "--analyst", "ana", "--purpose", "research"),
        ("ledger", "export", "--form", "xml"),
        ("query", "SELECT COUNT(*) FROM visits", "--epsilon", "1", "--analyst", "eve", "--purpose", "research"),
        ("query", "SELECT COUNT(*) FROM visits", "--epsilon", "1", "--analyst", "ana"),
    ],
)  # fmt: skip
def test_what_a_newcomer_gets_wrong_is_refused_in_words(at: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(DeniableError) as refusal:
        run(*words)
    assert len(refusal.value.message) > 20
    assert refusal.value.exit_code == 2
