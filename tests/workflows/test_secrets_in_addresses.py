"""Passwords in addresses: refused wherever an address is taken, before anything connects, and never repeated."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from deniable import Curator
from deniable.cli.main import app
from deniable.curator.governance import fulfill
from deniable.curator.policy.draft import draft
from deniable.curator.policy.scan import scan
from deniable.engines.postgresql.engine import write_table
from deniable.errors import ParameterError, PolicyError
from deniable.policy.document import parse
from deniable.policy.schema import holds_secret

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: "{source}"
    unit: {{column: pid, max_groups: 1, max_rows_per_group: 1}}
    columns:
      pid: {{type: integer, role: identifier, mask: redact}}
budgets: {{dataset: {{epsilon: 1}}}}
"""
SECRETS = [
    "postgresql://u:Zebra@127.0.0.1:1/x#t",
    "postgresql://u:@127.0.0.1:1/Zebra#t",
    "postgresql://u:Ze@bra@127.0.0.1:1/Zebra#t",
    "postgresql://u:Zebra/1@127.0.0.1:1/x#t",
    "postgresql://u:Zebra#1@127.0.0.1:1/x#t",
    "postgresql://u:Zebra#/1@127.0.0.1:1/x#t",
    "postgresql://u:Zebra?1@127.0.0.1:1/x#t",
    "postgresql://u%3AZebra@127.0.0.1:1/x#t",
    "postgresql:u:Zebra@127.0.0.1:1/x#t",
    "POSTGRESQL://u:Zebra@127.0.0.1:1/x#t",
    "postgres://u:Zebra@127.0.0.1:1/x#t",
    " postgresql://u:Zebra@127.0.0.1:1/x#t",
    "\u200bpostgresql://u:Zebra@127.0.0.1:1/x#t",
    "postgresql://127.0.0.1:1/x?user=u&password=Zebra#t",
    "postgresql://127.0.0.1:1/x?PassWord=Zebra#t",
    "postgresql://127.0.0.1:1/x?pass%77ord=Zebra#t",
    "postgresql://127.0.0.1:1/x?pass%2577ord=Zebra#t",
    "postgresql://127.0.0.1:1/x?sslpassword=Zebra#t",
    "postgresql://127.0.0.1:1/x?scram_client_key=Zebra#t",
    "postgresql://127.0.0.1:1/x?oauth_client_secret=Zebra#t",
    "host=127.0.0.1 password=Zebra dbname=x#t",
    "host=127.0.0.1 password = 'Zebra' dbname=x#t",
    "postgresql+adbc://u:Zebra@127.0.0.1#t",
    "spark:s3a://KEY:Zebra@bucket/x",
    "spark:jdbc:postgresql://u:Zebra@h/x",
]
PLAIN = [
    "postgresql://db:5432/x?user=curator@corp#t",
    "postgresql://db:5432/x?user=curator%40corp#t",
    "postgresql://curator%40corp@db:5432/x#t",
    "postgresql://curator@[::1]:5432/x#t",
    "postgresql://curator@h1:1,h2:2/x#t",
    "postgresql://db:5432/x?passfile=/run/pgpass&sslkey=/run/key#t",
    "postgresql://db:5432/x#care.visits@home",
    "postgresql+adbc://clinic#care.visits",
    "data/password=1/visits.parquet",
    "duckdb:clinic.duckdb#visits",
]


@pytest.mark.parametrize("address", SECRETS)
def test_an_address_with_a_password_is_refused_by_policies_and_in_python(address: str, tmp_path: Path) -> None:
    taken = (
        lambda: parse(POLICY.format(source=address.replace("\\", "\\\\")), folder=tmp_path),
        lambda: Curator(parse(POLICY.format(source="visits.csv"), folder=tmp_path), sources={"visits": address}),
        lambda: draft(address),
        lambda: scan(address),
        lambda: write_table(pa.table({"a": [1]}), address),
    )
    for take in taken:
        with pytest.raises((ParameterError, PolicyError), match="holds a password") as refused:
            take()
        assert "Zebra" not in str(refused.value)


@pytest.mark.parametrize("address", [SECRETS[0], " postgresql://u:Zebra@127.0.0.1:1/x#t", *SECRETS[15:22:5]])
def test_no_command_takes_or_repeats_a_password_in_an_address(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ok.csv").write_text("pid,age\n1,2\n2,3\n")
    Path("meta.yaml").write_text("'':\n  s:\n    t:\n      rows: 2\n      pid: {type: int, private_id: true}\n")
    Path("policy.yaml").write_text(POLICY.format(source="ok.csv"))
    for words in (
        ["policy", "init", address, "-o", "drafted.yaml"],
        ["policy", "import", "meta.yaml", "--source", address, "-o", "imported.yaml"],
        ["scan", address],
        ["scan", address, "--save", "scan.json"],
        ["start", address, "--out", "begun", "--yes"],
        ["check", address],
        ["attack", address],
        ["attack", "ok.csv", "--original", address],
        ["mask", address, "-p", "policy.yaml", "-o", "masked.csv"],
        ["anonymize", address, "--qi", "age", "--k", "2", "-o", "anonymous.csv"],
    ):
        done = CliRunner().invoke(app, words)
        said = f"{done.output} {done.exception}"
        assert done.exit_code, words
        assert "holds a password" in said, (words, said)
        assert "Zebra" not in said, words
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"Zebra" in path.read_bytes()]


@pytest.mark.parametrize("address", PLAIN)
def test_an_address_without_a_password_is_taken(address: str) -> None:
    assert not holds_secret(address)
    assert parse(POLICY.format(source=address)).tables[0].source == address


def test_a_source_does_not_begin_with_a_space() -> None:
    with pytest.raises(PolicyError, match="begins with a space"):
        parse(POLICY.format(source=" postgresql://db/x#t"))


def test_a_printed_command_leaves_out_whatever_stands_for_a_password() -> None:
    address = "postgresql://me:s3c@ret@db/x?sslmode=require&pass%77ord=s3cret&scram_client_key=s3cret"
    told = fulfill.say_command(Path("policy.yaml"), address, "5f0c1a")
    assert told.endswith("--ledger 'postgresql://me@db/x?sslmode=require'")


def test_a_drafted_policy_keeps_the_address_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("meta.yaml").write_text("'':\n  s:\n    t:\n      rows: 2\n      pid: {type: int, private_id: true}\n")
    Path("inside").mkdir()
    source = "postgresql://curator@db/x#care.t"
    done = CliRunner().invoke(app, ["policy", "import", "meta.yaml", "--source", source, "-o", "inside/p.yaml"])
    assert done.exit_code == 0, done.output
    assert f"{source}\n" in Path("inside/p.yaml").read_text().replace('"', "")
