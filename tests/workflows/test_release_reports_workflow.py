"""What is written about a release: tables checked before they leave, the catalog, the expert's determination."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable import world
from deniable.cli.main import app

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: row
    columns:
      zip:        {role: quasi-identifier, hierarchy: {redact: right}}
      birth_date: {role: quasi-identifier, type: date, hierarchy: {dates: [month, year, decade]}}
      sex:        {role: quasi-identifier, categories: [F, M]}
      diagnosis:  {role: sensitive}
release:
  anonymize: {k: 5, suppress: 0.02}
"""


def run(*words, code=0):
    done = CliRunner().invoke(app, [*map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clinic")
    visits = world.make("hospital", 1500, seed=3)["visits"].select(["zip", "birth_date", "sex", "diagnosis"])
    pq.write_table(visits, folder / "visits.parquet")
    (folder / "policy.yaml").write_text(POLICY)
    run("anonymize", folder / "visits.parquet", "-p", folder / "policy.yaml", "-o", folder / "out.parquet")
    return folder


def test_tables_with_a_suppressed_cell_that_follows_must_not_be_published(tmp_path):
    wards = tmp_path / "wards.csv"
    wards.write_text("ward,ill,people\nA,yes,*\nA,no,12\nB,yes,7\nB,no,19\n")
    assert "Nothing small is certain." in run("release", "tables", wards, "--counts", "people", "--suppressed", "1-4")
    totals = tmp_path / "totals.csv"
    totals.write_text("ward,people\nA,15\nB,26\n")
    shown = run("release", "tables", wards, totals, "--counts", "people", "--suppressed", "1-4", code=2)
    assert "worked out: ward A, ill yes: 3" in shown
    found = json.loads(run("release", "tables", wards, totals, "--counts", "people", "--json", code=2))
    assert (found["recovered"], found["suppressed"], found["people"], found["exact"]) == (1, 1, 41, 4)
    attacked = json.loads(run("attack", wards, "--with", totals, "--counts", "people", "--most", "tables=0", "--json",
                              code=2))  # fmt: skip
    assert attacked["attacks"][0]["outcomes"][0]["exposed"]["successes"] == 3


def test_hair_and_eyes_are_bounded_from_the_shell(tmp_path):
    (tmp_path / "hair.csv").write_text("hair,people\nblond,12\nbrown,18\n")
    (tmp_path / "eyes.csv").write_text("eyes,people\nbrown,14\nblue,16\n")
    both = tmp_path / "both.csv"
    both.write_text("hair,eyes,people\nblond,brown,\nblond,blue,\nbrown,brown,\nbrown,blue,\n")
    found = json.loads(run("release", "tables", tmp_path / "hair.csv", tmp_path / "eyes.csv", both, "--counts",
                           "people", "--json"))  # fmt: skip
    assert [(one["low"], one["high"]) for one in found["hidden"]] == [(0, 12), (0, 12), (2, 14), (4, 16)]


def test_the_catalog_is_what_grouping_the_release_gives_and_has_no_rare_value(released):
    found = json.loads(run("release", "catalog", released / "out.parquet", "--json"))
    rows = pq.read_table(released / "out.parquet").to_pylist()
    groups = Counter((row["zip"], row["birth_date"], row["sex"]) for row in rows)
    listed = {tuple(one["values"].values()): one["rows"] for one in found["groups"]}
    assert listed == groups
    assert min(listed.values()) >= found["k"] == 5
    for column in found["columns"]:
        counts = Counter(row[column["column"]] for row in rows)
        assert {each["value"]: each["rows"] for each in column["values"]} == {v: n for v, n in counts.items() if n >= 5}
        assert column["rarer"] == sum(n < 5 for n in counts.values())


def test_the_catalog_page_holds_nothing_that_is_not_listed_and_works_without_a_network(released, tmp_path):
    run("release", "catalog", released / "out.parquet", "-o", tmp_path / "catalog.html")
    page = (tmp_path / "catalog.html").read_text()
    found = json.loads(run("release", "catalog", released / "out.parquet", "--json"))
    rows = pq.read_table(released / "out.parquet").to_pylist()
    rare = {v for v, n in Counter(row["diagnosis"] for row in rows).items() if n < 5}
    assert not any(f">{value}<" in page for value in rare)
    assert page.count("<tr>") == len(found["groups"]) + sum(1 + len(c["values"]) for c in found["columns"]) + 2 + len(
        found["columns"]
    )
    assert "http" not in re.sub(r"http-equiv", "", page)


def test_the_search_box_filters_groups_and_adds_them_up(released, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no browser is installed")
    run("release", "catalog", released / "out.parquet", "-o", tmp_path / "catalog.html")
    groups = json.loads(run("release", "catalog", released / "out.parquet", "--json"))["groups"]
    first = groups[0]["values"]
    typed = [first["zip"][1:], first["sex"]]  # a part of a value, and a single letter, which must be a whole one
    page = (tmp_path / "catalog.html").read_text()
    box = "<input type='search'"
    (tmp_path / "typed.html").write_text(page.replace(box, f"{box} value='{' '.join(typed).upper()}'"))
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    drawn = subprocess.run([*words, f"file://{tmp_path}/typed.html"], capture_output=True, text=True, check=True).stdout
    fitting = [one["rows"] for one in groups if typed[0] in one["values"]["zip"] and typed[1] in one["values"].values()]
    assert 0 < len(fitting) < len(groups)
    assert f"{len(fitting)} of {len(groups)} lines, {sum(fitting):,} in all" in drawn


def test_a_release_that_is_not_k_anonymous_has_no_catalog(released, tmp_path):
    from deniable.release import Guarantee, Provenance, Technique, seal

    (tmp_path / "plain.csv").write_text("name\nAnn\n")
    seal(tmp_path / "plain.csv", Guarantee.none(Technique.MASKING, "masked", "one row"), Provenance("p", {}, {}))
    done = CliRunner().invoke(app, ["release", "catalog", str(tmp_path / "plain.csv")])
    assert "not stated to be k-anonymous" in str(done.exception)
    changed = tmp_path / "out.parquet"
    shutil.copy(released / "out.parquet.release.json", tmp_path / "out.parquet.release.json")
    changed.write_bytes((released / "out.parquet").read_bytes() + b" ")
    assert "changed after it was written" in str(
        CliRunner().invoke(app, ["release", "catalog", str(changed)]).exception
    )


SECTIONS = (
    "Summary", "The release", "Data flow", "Recipients", "What an intruder may know", "Motivated-intruder test",
    "Measured risk", "Residual risk", "Method", "Limits", "Determination",
)  # fmt: skip


def test_the_expert_report_has_every_part_that_is_asked_for_and_no_row(released, tmp_path):
    page = tmp_path / "expert.html"
    words = ("release", "expert", released / "out.parquet", "-p", released / "policy.yaml", "--original",
             released / "visits.parquet", "--recipient", "Registry & Sons", "--attacks", 50)  # fmt: skip
    shown = run(*words, "-o", page)
    assert "No threshold was stated" in shown
    text = page.read_text()
    assert all(f">{section}</h2>" in text for section in SECTIONS)
    assert "Registry &amp; Sons" in text
    assert "Signature" in text
    found = json.loads(run(*words, "--json"))
    digest = json.loads((released / "out.parquet.release.json").read_text())["statement"]["file"]["sha256"]
    assert found["release"]["sha256"] == digest
    assert digest in text
    assert "weakest" not in found["test"]
    values = {row["birth_date"].isoformat() for row in pq.read_table(released / "visits.parquet").to_pylist()}
    assert not any(value in text for value in values)
    intruders = ("prosecutor", "journalist", "marketer", "Bayesian")
    assert all(f">{name}</td>" in text for name in intruders)
    assert found["risks"]["bayesian"]["score"] == pytest.approx(found["risks"]["classes"] / found["release"]["rows"])


def test_the_residual_risk_is_that_of_the_attack_that_gains_most(released):
    found = json.loads(run("release", "expert", released / "out.parquet", "-p", released / "policy.yaml", "--original",
                           released / "visits.parquet", "--attacks", 50, "--json"))  # fmt: skip
    every = [one for made in found["test"]["attacks"] for one in made["outcomes"]]
    assert found["residual"]["excess"] == max(one["excess"] for one in every)
    skipped = [made["attack"] for made in found["test"]["attacks"] if made["skipped"]]
    assert all(name in found["limits"][-1] for name in skipped)


def test_an_expert_report_beyond_a_threshold_ends_with_exit_code_2_and_is_written(released, tmp_path):
    words = ("release", "expert", released / "visits.parquet", "--knows", "zip,birth_date,sex", "--attacks", 50)
    shown = run(*words, "--most", "uniqueness=0.1", "-o", tmp_path / "raw.html", code=2)
    assert "A stated threshold is passed." in shown
    text = (tmp_path / "raw.html").read_text()
    assert "has no statement beside it" in text
    assert "No recipient was named" in text


def test_a_check_prints_the_score_of_one_guess_beside_the_other_intruders(released):
    words = ("check", released / "out.parquet", "--qi", "zip,birth_date,sex")
    found = json.loads(run(*words, "--json"))
    assert found["risks"]["bayesian"]["prior"] == "everybody in the table alike"
    assert f"one guess of a Bayesian intruder: {found['classes'] / found['rows']:.1%} right" in run(*words)
