"""Epochs at the command line and over HTTP: what the steward is told of changed data, and what an asker is not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import deniable
from deniable.cli.main import app
from deniable.server.limits import REPEAT_SECONDS

COUNT = "SELECT sex, COUNT(*) AS n FROM people WHERE age >= {} GROUP BY sex"
MOMENT = {"date", "content-length", "server"}
"""Headers that have nothing to do with the answer."""


def flip(folder: Path, person: int, sex: str) -> None:
    """Let one person be of a sex, and everything else as it was."""
    table = pq.read_table(folder / "people.parquet")
    sexes = table.column("sex").to_pylist()
    sexes[person] = sex
    pq.write_table(table.set_column(1, "sex", pa.array(sexes)), folder / "people.parquet")


def ask(served: Any, number: int, form: str = "application/json") -> httpx.Response:
    headers = {"authorization": f"Bearer {served.tokens['ana']}", "accept": form}
    body = {"sql": COUNT.format(number), "epsilon": "0.001"}
    return httpx.post(f"{served.http}/v1/query", json=body, headers=headers, timeout=60)


def look(served: Any, number: int) -> str:
    """All that an asker can see over HTTP, but for the time of day."""
    seen = []
    for form in ("application/json", "text/csv"):
        answer = ask(served, number, form)
        seen.append([answer.status_code, answer.text, {k: v for k, v in answer.headers.items() if k not in MOMENT}])
    headers = {"authorization": f"Bearer {served.tokens['ana']}"}
    paths = ("/v1/schema", "/v1/remaining", "/v1/releases")
    return json.dumps([*seen, *(httpx.get(served.http + each, headers=headers, timeout=60).json() for each in paths)])


@pytest.mark.slow
def test_over_http_nobody_is_told_that_a_record_changed(served: Any) -> None:
    sexes = "FM"
    for number in range(8):
        ask(served, number)
        before = look(served, number)
        time.sleep(REPEAT_SECONDS * 1.5)  # what is remembered for a moment would hide what is computed
        flip(served.folder, 7, sexes[number % 2])
        assert look(served, number) == before


def test_a_new_epoch_is_seen_over_http_at_once(served: Any) -> None:
    server = deniable.connect(served.http, served.tokens["ana"])
    first = server.query(COUNT.format(90), epsilon="0.01")
    epoch = server.epoch()
    assert first.epoch == epoch
    served.curator.new_epoch("a correction")
    assert server.epoch() != epoch
    time.sleep(REPEAT_SECONDS * 1.5)
    again = ask(served, 90)
    assert again.headers["x-deniable-epoch"] == again.json()["epoch"] == server.epoch()
    assert again.headers["x-deniable-repeated"] == "false"


POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: row
    columns: {sex: {categories: [F, M]}}
budgets: {dataset: {epsilon: 10}}
"""


def run(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_a_steward_sees_that_the_source_changed_and_declares_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DENIABLE_LEDGER", raising=False)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "visits.csv").write_text("sex\n" + "F\nM\n" * 50)
    asking = ("query", "SELECT COUNT(*) AS n FROM visits", "--epsilon", "0.5", "--json")
    first = json.loads(run(*asking))
    assert first["epoch"] == "1"
    assert "visits: unchanged" in run("epoch", "show")
    (tmp_path / "visits.csv").write_text("sex\n" + "F\nM\n" * 51)
    assert "has changed since epoch 1 began" in run("epoch", "show")
    assert json.loads(run(*asking))["rows"] == first["rows"]
    assert "epoch     2" in run("epoch", "new", "--reason", "two more visits")
    told = json.loads(run("epoch", "show", "--json"))
    assert (told["epoch"], told["reason"], told["warnings"]) == ("2", "two more visits", [])
    assert told["tables"] == [{"table": "visits", "source": "unchanged"}]
    again = json.loads(run(*asking))
    assert (again["epoch"], again["remaining"]) == ("2", {"epsilon": "9", "delta": "0"})
    assert "Epoch: 2" in run(*asking[:-1], "-o", "answer.csv")
    assert "Epoch 2" in run("release", "show", "answer.csv")
    assert "epoch" in run("ledger", "show")
    assert "Example: deniable epoch new" in run("epoch", "new", "--help").replace("\n", " ").replace("  ", " ")
