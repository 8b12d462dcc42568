"""What people see when they name the wrong file, column or token: a word that helps, and nothing of the data."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.curator.governance import requests
from deniable.errors import ParameterError, PolicyError
from deniable.governance.grants import Role
from deniable.ledger import Act, Posting
from deniable.ledger.entry import LOST
from deniable.ledger.loss import Loss
from deniable.policy.budget import PureDP

POLICY = """
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {role: identifier}
      sex: {role: quasi-identifier, categories: [F, M]}
      age: {role: quasi-identifier, type: integer, between: [0, 100]}
      note: {role: sensitive}
budgets:
  dataset: {epsilon: 100, delta: 0.001, accounting: zcdp}
  purposes: {research: {epsilon: 50}, care: {epsilon: 10}}
  analysts:
    ana: {purposes: [research], epsilon: 20, columns: [sex, age]}
    ben: {purposes: [care], epsilon: 10}
expires: 2099-12-31
"""


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "deniable", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("deniable ")


@pytest.mark.parametrize("command", ["policy", "survey"])
def test_a_table_that_is_taken_for_a_policy_is_not_quoted(tmp_path: Path, command: str) -> None:
    (tmp_path / "t.csv").write_text("id,town\n1,Secretville\n2,Hiddenham\n")
    refused = CliRunner().invoke(app, [command, "check", str(tmp_path / "t.csv")]).exception
    assert isinstance(refused, PolicyError)
    told = " ".join([refused.message, *(mistake.message for mistake in refused.mistakes)])
    assert "is not a set of entries" in told
    assert "town" not in told
    assert "Secret" not in told


@pytest.mark.parametrize("words", [("--columns", "nope"), ("--columns", "sex,nope"), ("--workload", "sex,nope")])
@pytest.mark.parametrize("command", ["synthesize", "describe"])
def test_an_unknown_column_of_a_synthetic_table_is_named(tmp_path: Path, command: str, words: tuple[str, ...]) -> None:

    (tmp_path / "policy.yaml").write_text(POLICY)
    policy = tmp_path / "policy.yaml"
    budget = ("--epsilon", "1", "--delta", "1e-6", "-p", str(policy), "-o", str(tmp_path / "out.csv"))
    refused = CliRunner().invoke(app, [command, "people", *budget, *words]).exception
    assert isinstance(refused, ParameterError)
    assert "'nope' is not a column of 'people'" in refused.message


@pytest.fixture
def own(serve: Any) -> Iterator[Any]:
    with serve(POLICY) as served:
        served.tokens["eve"], _ = requests.issue(served.curator.context, "eve", Role.ANALYST, ["research"])
        yield served


def get(served: Any, path: str, name: str, **headers: str) -> httpx.Response:
    return httpx.get(served.http + path, headers={"authorization": f"Bearer {served.tokens[name]}", **headers})


@pytest.mark.parametrize("path", ["/v1/schema", "/v1/schema/people/dummies?rows=2", "/v1/remaining"])
def test_a_name_that_the_policy_does_not_list_sees_nothing(own: Any, path: str) -> None:
    assert get(own, path, "ana").status_code == 200
    refused = get(own, path, "eve")
    assert refused.status_code == 403
    assert "the policy has no analyst 'eve'" in refused.text


@pytest.mark.parametrize("name", ["steward", "auditor"])
def test_stewards_and_auditors_read_what_is_left_of_the_dataset(own: Any, name: str) -> None:
    found = get(own, "/v1/remaining", name)
    assert found.status_code == 200, found.text
    assert [each["node"] for each in found.json()["balance"]] == ["the dataset"]


def test_what_is_left_is_named_over_http_as_it_is_enforced_and_as_nothing_while_a_loss_is_not_settled(own: Any) -> None:
    own.curator.query("SELECT COUNT(*) FROM people", epsilon="1/4")
    (found,) = get(own, "/v1/remaining", "steward").json()["balance"]
    (balance,) = own.curator.balance()
    kinds = balance.kinds
    assert kinds is not None, "the policy adds up by rho"
    wanted = {"epsilon": kinds.epsilon, "rho": kinds.rho, "delta": kinds.delta}
    assert set(found["remaining"]) == set(wanted)
    for name, amount in wanted.items():
        told = Fraction(found["remaining"][name])
        assert 0 < told <= amount, f"what is told of {name} can be asked for"
        assert told > amount * Fraction(99999, 100000), name
    assert found["left"] == own.curator.context.state_left()
    number = own.curator.ledger.record(Posting(Act.SEPARATE, details={LOST: Loss().facts()})).number
    for name in ("steward", "ana"):
        for each in get(own, "/v1/remaining", name).json()["balance"]:
            assert each["remaining"] == {"epsilon": "0", "rho": "0", "delta": "0"}
            assert each["left"].startswith(f"nothing: the ledger is closed, since entries are lost (entry {number}")
    assert own.curator.remaining() == PureDP(0)
    assert "left is nothing: the ledger is closed" in repr(own.curator)


def test_a_steward_of_any_name_reads_what_is_left_and_the_schema(own: Any) -> None:
    own.tokens["sam"], _ = requests.issue(own.curator.context, "sam", Role.STEWARD)
    assert get(own, "/v1/remaining", "sam").status_code == 200
    tables = {each["table"]: each for each in get(own, "/v1/schema", "sam").json()["tables"]}
    assert len(tables["people"]["columns"]) == 4


def test_invented_rows_have_the_columns_of_the_schema(own: Any) -> None:
    tables = {each["table"]: each for each in get(own, "/v1/schema", "ana").json()["tables"]}
    made = get(own, "/v1/schema/people/dummies?rows=2", "ana", accept="application/vnd.apache.arrow.stream")
    rows = pa.ipc.open_stream(made.content).read_all()
    assert rows.column_names == [each["column"] for each in tables["people"]["columns"]] == ["sex", "age"]


def test_a_person_withdraws_after_the_policy_has_expired(serve: Any) -> None:
    with serve(POLICY.replace("2099-12-31", "2020-01-01")) as served:
        headers = {"authorization": f"Bearer {served.tokens['steward']}"}
        done = httpx.post(served.steward + "/v1/withdrawals", json={"column": "id", "value": "p7"}, headers=headers)
        assert done.status_code == 201, done.text
        assert done.json()["left_out_of"] == ["people"]
        refused = httpx.post(served.steward + "/v1/withdrawals", json={"column": "id", "value": ""}, headers=headers)
        assert refused.status_code == 400
