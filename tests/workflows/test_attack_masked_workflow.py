"""The motivated-intruder test on masked releases: dictionary, counts, and what stands beside a token."""

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable import world
from deniable.cli.main import app

POLICY = """
version: 1
dataset: hospital
tables:
  visits:
    source: in.parquet
    unit: row
    columns:
      sex: {role: quasi-identifier}
      birth_year: {role: quasi-identifier, type: integer}
      payer: {role: insensitive}
      ethnicity: {role: quasi-identifier, mask: {token: {key: people}}}
      diagnosis: {role: sensitive, mask: {token: {key: people}}}
"""


def run(*words, **environment):
    done = CliRunner().invoke(app, [*map(str, words)], env=environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def outcomes(text, attack="tokens"):
    made = next(made for made in json.loads(text)["attacks"] if made["attack"] == attack)
    return {outcome["attack"]: outcome for outcome in made["outcomes"]}


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """Visits masked by our own command, and as many of other people in clear text."""
    folder = tmp_path_factory.mktemp("masked")
    visits = world.make("hospital", 4000, seed=5)["visits"]
    years = pa.array([day.year // 20 for day in visits["birth_date"].to_pylist()])
    visits = visits.select(["sex", "payer", "ethnicity", "diagnosis"]).append_column("birth_year", years)
    half = visits.num_rows // 2
    pq.write_table(visits.slice(0, half), folder / "in.parquet")
    pq.write_table(visits.slice(half), folder / "out.parquet")
    (folder / "policy.yaml").write_text(POLICY)
    keys = {"DENIABLE_KEYS": str(folder / "keys")}
    run("key", "new", "people", **keys)
    run("mask", folder / "in.parquet", "-p", folder / "policy.yaml", "-o", folder / "masked.parquet", **keys)
    return folder


def attacked(folder, release):
    return outcomes(
        run("attack", folder / release, "--original", folder / "in.parquet", "--control", folder / "out.parquet",
            "--knows", "sex,birth_year,payer", "--all", "--attacks", 50, "--json")
    )  # fmt: skip


def test_keyed_tokens_of_our_own_mask_fall_to_counting_and_to_what_stands_beside_them(masked):
    found = attacked(masked, "masked.parquet")
    assert "dictionary of diagnosis" not in found  # keyed tokens are no digests to look up
    counted, beside = found["counting diagnosis"], found["counting diagnosis beside others"]
    assert found["counting ethnicity"]["exposed"]["share"] > 0.5
    assert counted["exposed"]["share"] > 2 * counted["baseline"]["share"]
    assert beside["exposed"]["share"] > counted["exposed"]["share"]


def test_unsalted_digests_fall_to_the_dictionary_and_fresh_tokens_to_nothing(masked):
    table = pq.read_table(masked / "in.parquet")
    place = table.column_names.index("diagnosis")
    digests = [hashlib.sha256(code.encode()).hexdigest() for code in table["diagnosis"].to_pylist()]
    fresh = [hashlib.sha256(f"{code}{row}salt".encode()).hexdigest()
             for row, code in enumerate(table["diagnosis"].to_pylist())]  # fmt: skip
    for name, tokens in (("digests", digests), ("fresh", fresh)):
        pq.write_table(table.set_column(place, "diagnosis", pa.array(tokens)), masked / f"{name}.parquet")
    found = attacked(masked, "digests.parquet")
    assert found["dictionary of diagnosis"]["exposed"]["share"] == 1
    found = attacked(masked, "fresh.parquet")
    assert found["dictionary of diagnosis"]["exposed"]["share"] == 0
    counted = found["counting diagnosis"]
    assert counted["exposed"]["share"] <= counted["baseline"]["share"] + 0.01


def test_a_release_in_clear_text_has_no_tokens_to_attack(masked):
    text = run(
        "attack", masked / "in.parquet", "--original", masked / "in.parquet", "--knows", "sex", "--all", "--json"
    )
    skipped = {made["attack"]: made["skipped"] for made in json.loads(text)["attacks"]}
    assert "column of tokens" in skipped["tokens"]


def test_a_projection_of_our_own_mask_falls_to_a_few_known_people(tmp_path):
    body = "{role: insensitive, type: integer, between: [0, 250]%s}"
    first = body % ", mask: {projection: {key: people, columns: [weight, age]}}"
    columns = {"sex": "{role: quasi-identifier}", "height": first, "weight": body % "", "age": body % ""}
    listed = "\n".join(f"      {name}: {words}" for name, words in columns.items())
    policy = (
        f"version: 1\ndataset: d\ntables:\n  people:\n    source: in.parquet\n    unit: row\n    columns:\n{listed}\n"
    )
    (tmp_path / "policy.yaml").write_text(policy)
    rows = [(150 + 7 * i % 50, 50 + 13 * i % 60, 20 + 11 * i % 70, "FM"[i % 2]) for i in range(300)]
    height, weight, age, sex = map(list, zip(*rows, strict=True))
    pq.write_table(pa.table({"sex": sex, "height": height, "weight": weight, "age": age}), tmp_path / "in.parquet")
    keys = {"DENIABLE_KEYS": str(tmp_path / "keys")}
    run("key", "new", "people", **keys)
    masking = ("mask", tmp_path / "in.parquet", "-p", tmp_path / "policy.yaml", "-o", tmp_path / "masked.parquet")
    run(*masking, **keys)
    words = ("attack", tmp_path / "masked.parquet", "--original", tmp_path / "in.parquet", "--knows", "sex", "--json")
    skipped = {made["attack"]: made["skipped"] for made in json.loads(run(*words))["attacks"]}
    assert "in the order of the release" in skipped["projection"]
    run(*masking, "--keep-order", **keys)
    (found,) = outcomes(run(*words), "projection").values()
    assert found["exposed"]["share"] == 1
    assert (found["figures"]["needed"], found["figures"]["columns"]) == (4, 3)
    assert found["baseline"]["share"] < 0.1
