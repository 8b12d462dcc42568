"""`deniable anonymize` and `deniable check`, end to end, from files to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable.cli.main import app, narrow_app
from deniable.errors import NOTHING_CHARGED, AccessRefused, DataError, DeniableError, InternalError, ParameterError
from deniable.release import verify

ROWS = 1200


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    chance = np.random.default_rng(11)
    table = pa.table(
        {
            "name": [f"person {n}" for n in range(ROWS)],
            "zip": [f"021{n:02}" for n in chance.integers(30, 45, ROWS)],
            "age": chance.integers(18, 90, ROWS),
            "sex": chance.choice(["F", "M"], ROWS).tolist(),
            "diagnosis": chance.choice(["flu", "cold", "gout", "rash"], ROWS).tolist(),
            "charge": np.round(chance.gamma(2, 100, ROWS), 2),
        }
    )
    pq.write_table(table, tmp_path / "visits.parquet")
    csv.write_csv(table, tmp_path / "visits.csv")
    (tmp_path / "clinic.yaml").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: row
    columns:
      name:      {role: identifier}
      zip:       {role: quasi-identifier, hierarchy: {redact: right}}
      age:       {role: quasi-identifier, type: integer, between: [0, 120], hierarchy: {brackets: ages}}
      sex:       {role: quasi-identifier, categories: [F, M]}
      diagnosis: {role: sensitive, categories: [flu, cold, gout, rash]}
release:
  anonymize: {k: 5, l: {diagnosis: 2}, suppress: 0.02}
"""

QI = "zip,age,sex"
UNDER = ("-p", "clinic.yaml")


def run(*words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*words, "--json"])
    if isinstance(result.exception, DeniableError):
        raise result.exception
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_a_policy_decides_roles_hierarchies_and_models(clinic: Path) -> None:
    made = run("anonymize", "visits.parquet", "-p", "clinic.yaml", "-o", "out.parquet")
    out = pq.read_table("out.parquet")
    assert out.column_names == ["zip", "age", "sex", "diagnosis"]  # no identifier, nothing undeclared
    found = run("check", "out.parquet", "--qi", QI, "--sensitive", "diagnosis", "--k", "5", "--l", "diagnosis=2")
    assert found["k"] >= 5
    assert found["unmet"] == []
    assert made["proof"]["optimal"]
    proof = made["proof"]
    assert proof["checked"] + proof["excluded_as_failing"] + proof["excluded_as_costlier"] == proof["nodes"]
    assert made["released"] == out.num_rows == ROWS - made["suppressed"]


def test_the_release_has_a_statement_that_verifies_and_claims_its_properties(clinic: Path) -> None:
    run("anonymize", "-p", "clinic.yaml", "-o", "out.csv")
    statement = verify("out.csv")
    assert "k-anonymity" in json.dumps(statement.body["guarantee"])
    assert any("k-anonymity" in sentence for sentence in statement.words)
    assert "person 1" not in json.dumps(dict(statement.body))


def test_columns_can_be_named_without_a_policy(clinic: Path) -> None:
    made = run(
        "anonymize",
        "visits.csv",
        "--qi",
        QI,
        "--identifier",
        "name",
        "--k",
        "4",
        "--suppress",
        "0.05",
        "-o",
        "o.parquet",
    )
    assert made["models"] == ["4-anonymity"]
    assert run("check", "o.parquet", "--qi", QI)["k"] >= 4


@pytest.mark.parametrize("method", ["mondrian", "mondrian-relaxed", "local", "cells"])
def test_every_local_method_writes_a_release_that_holds(clinic: Path, method: str) -> None:
    words = ("--qi", QI, "--l", "diagnosis=2", "--k", "4", "--suppress", "0.01", "--method", method, "-o", "o.parquet")
    made = run("anonymize", "visits.parquet", *words)
    found = run("check", "o.parquet", "--qi", QI, "--sensitive", "diagnosis")
    assert found["k"] >= 4
    assert found["sensitive"][0]["distinct_l"] >= 2
    assert made["suppressed"] <= 12


def test_closeness_of_numbers_is_measured_along_their_order(clinic: Path) -> None:
    words = ("--qi", "zip,sex", "--k", "5", "--t", "charge=0.15", "--suppress", "0.05", "-o", "o.parquet")
    made = run("anonymize", "visits.parquet", *words)
    assert made["models"][1] == "0.15-closeness of charge (ordered distance)"
    run("check", "o.parquet", "--qi", "zip,sex", "--t", "charge=0.2")


def test_further_models_and_measures_by_name(clinic: Path) -> None:
    words = ("--qi", QI, "--sensitive", "diagnosis", "--model", "entropy_diversity:column=diagnosis,l=2.5")
    more = ("--model", "average_risk:most=0.1", "--measure", "discernibility", "--suppress", "0.1", "-o", "o.parquet")
    made = run("anonymize", "visits.parquet", *words, *more)
    assert made["models"] == ["5-anonymity", "entropy 2.5-diversity of diagnosis", "average risk at most 0.1"]
    found = run("check", "o.parquet", "--qi", QI, "--sensitive", "diagnosis")
    assert found["sensitive"][0]["entropy_l"] >= 2.5 - 1e-9
    assert found["risks"]["marketer"] <= 0.1


def test_rows_to_come_are_added_and_the_rest_waits(clinic: Path) -> None:
    run("anonymize", "visits.parquet", "-p", "clinic.yaml", "-o", "out.parquet")
    pq.write_table(pq.read_table("visits.parquet").slice(0, 300), "new.parquet")
    found = run("anonymize", "--update", "out.parquet", "new.parquet", *UNDER, "-o", "more.parquet")
    assert found["rows"] == 300
    assert found["shown"] + found["waiting"] == 300
    assert pq.read_table("more.parquet").num_rows == found["shown"] > 0
    assert run("check", "more.parquet", "--qi", QI)["k"] >= 5
    again = run("anonymize", "--update", "more.parquet.recoding.json", "new.parquet", *UNDER)
    assert again["rows"] == 300


def test_added_rows_show_the_columns_of_the_release_and_no_others(clinic: Path) -> None:
    run("anonymize", "visits.parquet", "-p", "clinic.yaml", "-o", "out.parquet")
    # The table has name and charge, too.
    run("anonymize", "--update", "out.parquet", "visits.parquet", *UNDER, "-o", "more.parquet")
    assert pq.read_table("more.parquet").column_names == pq.read_table("out.parquet").column_names
    assert verify(clinic / "more.parquet").body["guarantee"] == verify(clinic / "out.parquet").body["guarantee"]


def test_an_update_under_a_policy_is_written_to_the_ledger(clinic: Path) -> None:
    ledger = ("-p", "clinic.yaml", "--ledger", "l.sqlite")
    run("anonymize", *ledger, "-o", "out.parquet")
    run("anonymize", "--update", "out.parquet", "visits.parquet", *ledger)  # only judged: nothing leaves
    run("anonymize", "--update", "out.parquet", "visits.parquet", *ledger, "-o", "more.parquet")
    told = run("register", "-p", "clinic.yaml", "--ledger", "l.sqlite")
    assert len(told["releases"]) == 2


def test_a_hierarchy_that_is_neither_file_nor_kind_is_refused_with_the_kinds(clinic: Path) -> None:
    with pytest.raises(DeniableError, match="prefix") as refused:
        run("anonymize", "visits.csv", "--qi", "zip", "--hierarchy", "zip=prefixes:3,2", "-o", "out.csv")
    assert "There is no hierarchy 'prefixes'" in str(refused.value)


def test_the_encoding_of_a_file_can_be_told(clinic: Path) -> None:
    lines = ["city,age", *("Köln,30" if n % 2 else "Münster,30" for n in range(40))]
    (clinic / "old.csv").write_bytes("\n".join(lines).encode("latin-1"))
    words = ("old.csv", "--qi", "city,age", "--k", "5")
    with pytest.raises(DeniableError, match="not valid UTF-8"):
        run("anonymize", *words, "-o", "out.csv")
    run("anonymize", *words, "--encoding", "latin-1", "-o", "out.csv")
    assert set(csv.read_csv("out.csv")["city"].to_pylist()) == {"Köln", "Münster"}
    assert run("check", *words, "--encoding", "latin-1")["k"] == 20


def test_two_releases_are_checked_together_and_refused_on_demand(clinic: Path) -> None:
    run("anonymize", "visits.parquet", "--qi", "zip,age", "--k", "5", "--suppress", "0.05", "-o", "a.parquet")
    b = ("anonymize", "visits.parquet", "--qi", "age,sex", "--k", "5", "--measure", "ncp", "--suppress", "0.05")
    warned = run(*b, "-o", "b.parquet", "--earlier", "a.parquet.recoding.json")
    assert warned["composition"]["exposed"] > 0
    found = run("check", "visits.parquet", "--releases", "a.parquet.recoding.json,b.parquet.recoding.json")
    assert found == warned["composition"]
    with pytest.raises(DeniableError, match="With the earlier release"):
        run(*b, "-o", "c.parquet", "--earlier", "a.parquet.recoding.json", "--refuse-composition")
    assert not Path("c.parquet").exists()


def test_a_page_shows_the_lattice(clinic: Path) -> None:
    made = run("anonymize", "-p", "clinic.yaml", "-o", "out.parquet", "--report", "page.html")
    page = Path("page.html").read_text()
    assert "vega" in page
    chosen = [point for point in made["lattice"] if point["chosen"]]
    assert len(chosen) == 1
    assert chosen[0]["levels"] == made["levels"]
    assert chosen[0]["cost"] == min(p["cost"] for p in made["lattice"] if p["acceptable"])


def test_the_page_of_a_release_shows_rows_before_and_after_as_they_left(clinic: Path) -> None:
    from deniable.curator.anonymize.explore import show_released
    from deniable.curator.anonymize.request import Order

    run("anonymize", "-p", "clinic.yaml", "-o", "out.parquet", "--report", "page.html")
    page = Path("page.html").read_text()
    assert "Rows before and after" in page
    assert "It shows values of real rows" in page
    names, rows = show_released(Order(None, Path("out.parquet"), Path("clinic.yaml")), Path("out.parquet"))
    columns = [pq.read_table("out.parquet")[name].to_pylist() for name in names]
    released = [tuple(map(str, row)) for row in zip(*columns, strict=True)]
    assert len(rows) == 8
    for row in rows:
        assert (row.after in released) == row.released
        assert row.alike == released.count(row.after), "so many rows of the release are like it"
    assert any(row.before != row.after for row in rows)
    names = [row["name"] for row in pq.read_table("visits.parquet").to_pylist()]
    assert not any(name in page for name in names), "columns that are no quasi-identifiers are not shown"
    run("anonymize", "visits.parquet", "--qi", QI, "--k", "5", "--method", "mondrian", "-o", "m.parquet",
        "--report", "local.html")  # fmt: skip
    assert "No row is shown" in Path("local.html").read_text(), "classes that are each written in their own way"


def test_drafts_can_be_pasted_into_a_policy(clinic: Path) -> None:
    drafted = run("anonymize", "visits.parquet", "--draft", "--qi", QI)["hierarchies"]
    assert list(drafted) == ["zip", "age", "sex"]
    assert drafted["zip"] == {"standard": {"name": "us_zip"}}
    assert drafted["age"] == {"standard": {"name": "ages"}}
    assert drafted["sex"] is None


def test_check_fails_with_exit_code_2_when_a_threshold_is_not_met(clinic: Path) -> None:
    asked = ("check", "visits.csv", "--qi", QI, "--k", "5", "--l", "diagnosis=2", "--t", "charge=0.1")
    assert len(run(*asked, "--keep", "name", code=2)["unmet"]) == 3
    found = run(*asked, code=2)
    assert found["unnamed"] == ["name"]
    assert found["unmet"][0].startswith("columns that were not measured: name")
    assert found["joint"]["together"] == 1


def test_a_population_makes_k_map_possible(clinic: Path) -> None:
    pq.write_table(pq.read_table("visits.parquet").slice(0, 200), "sample.parquet")
    words = ("--qi", QI, "--k", "1", "--model", "k_map:k=5", "--suppress", "0.1", "-o", "o.parquet")
    made = run("anonymize", "sample.parquet", *words, "--population", "visits.parquet")
    assert made["models"] == ["1-anonymity", "5-map"]
    with pytest.raises(DeniableError, match="--population"):
        run("anonymize", "sample.parquet", *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("visits.csv", "--qi", "zip,agee", "-o", "o.csv"), "Did you mean 'age'"),
        (("visits.csv", "--qi", "zip", "--k", "5000", "-o", "o.csv"), "k is at most 1200"),
        (("visits.csv", "--qi", "zip", "--method", "mondrain", "-o", "o.csv"), "Did you mean 'mondrian'"),
        (("visits.csv", "--qi", "zip", "--measure", "los", "-o", "o.csv"), "Did you mean 'loss'"),
        (("visits.csv", "--qi", "zip"), "--out"),
        (("visits.csv", "-o", "o.csv"), "No quasi-identifier"),
        (("--qi", "zip", "-o", "o.csv"), "No table is named"),
        (("visits.csv", "--qi", "zip", "--l", "diagnosis", "-o", "o.csv"), "COLUMN=NUMBER"),
        (("visits.csv", "--qi", "zip", "--l", "diagnosis=40", "-o", "o.csv"), "generalizing everything reaches 4"),
        (("absent.csv", "--qi", "zip", "-o", "o.csv"), "absent.csv"),
        (("visits.csv", "--qi", "zip", "--hierarchy", "zip=none.csv", "-o", "o.csv"), "none.csv"),
        (("visits.csv", "--qi", "zip", "--suppress", "7", "-o", "o.csv"), "from 0 to 1"),
        (("visits.csv", "--update", "none.parquet"), "no recoding"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_would_work(
    clinic: Path, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(DeniableError, match=message) as refusal:
        run("anonymize", *words)
    assert "person" not in str(refusal.value)
    assert not Path("o.csv").exists()


def test_a_hierarchy_missing_a_value_is_refused_by_row(clinic: Path) -> None:
    Path("sex.csv").write_text("F;*\n")
    with pytest.raises(DeniableError, match="Values of column 'sex' are not among the leaves"):
        run("anonymize", "visits.csv", "--qi", "sex", "--hierarchy", "sex=sex.csv", "-o", "o.csv")


def test_people_read_a_short_account(clinic: Path) -> None:
    shown = CliRunner().invoke(app, ["anonymize", "-p", "clinic.yaml", "-o", "out.parquet"])
    assert "optimal:" in shown.stdout
    shown = CliRunner().invoke(
        app, ["check", "out.parquet", "--qi", QI, "--sensitive", "diagnosis", "--fraction", "0.1"]
    )
    assert shown.stdout.startswith("k = ")
    assert "prosecutor" in shown.stdout


def test_hierarchies_can_be_said_on_the_command_line(clinic: Path) -> None:
    words = ("--qi", "zip,age", "--hierarchy", "age=intervals:10,20,40", "--hierarchy", "zip=prefix:4,3")
    run("anonymize", "visits.parquet", *words, "--suppress", "0.02", "-o", "o.csv")
    out = csv.read_csv("o.csv")
    assert all(str(age).startswith("[") or str(age) == "*" for age in out["age"].to_pylist())


def test_tails_are_coded_before_anything_else(clinic: Path) -> None:
    words = ("--qi", "age", "--k", "3", "--hierarchy", "age=intervals:5,10", "--top", "age=85", "--bottom", "age=20")
    made = run("anonymize", "visits.parquet", *words, "-o", "o.parquet")
    shown = set(pq.read_table("o.parquet")["age"].to_pylist())
    assert made["levels"] == {"age": 0}
    assert {">= 85", "<= 20"} <= shown
    assert not shown & {"86", "19"}


def test_numbers_can_be_replaced_by_the_means_of_groups(clinic: Path) -> None:
    words = ("--qi", "age,charge", "--identifier", "name", "--k", "6", "--method", "microaggregate")
    made = run("anonymize", "visits.parquet", *words, "-o", "o.parquet")
    assert made["released"] == ROWS
    assert 0 < made["lost_variance"] < 0.5
    assert run("check", "o.parquet", "--qi", "age,charge")["k"] >= 6
    with pytest.raises(DeniableError, match="knows no other model"):
        run("anonymize", "visits.parquet", *words, "--l", "diagnosis=2", "-o", "o.parquet")


def test_risks_before_and_after_and_usefulness_for_a_target_are_told(clinic: Path) -> None:
    made = run("anonymize", "-p", "clinic.yaml", "-o", "out.parquet", "--target", "sex")
    assert made["risk"]["before"]["prosecutor"]["at_risk"] > made["risk"]["after"]["prosecutor"]["at_risk"] == 0
    assert made["risk"]["after"]["prosecutor"]["highest"] <= 0.2
    assert 0.4 < made["accuracy"]["released"] < 0.7  # there is nothing to learn here but the commonest value
    with pytest.raises(DeniableError, match="Did you mean 'sex'"):
        run("anonymize", "-p", "clinic.yaml", "-o", "other.parquet", "--target", "sexx")


def test_a_killed_or_refused_run_leaves_no_release(clinic: Path) -> None:
    with pytest.raises(DeniableError):
        run("anonymize", "visits.parquet", "--qi", QI, "-o", "no/such/folder/out.parquet")
    assert not list(clinic.glob("*.recoding.json"))


@pytest.mark.parametrize("method", ["optimal", "mondrian", "local", "cells"])
def test_a_target_that_is_not_released_is_refused_before_anything_is_written(clinic: Path, method: str) -> None:
    for target in ("name", "charge"):  # an identifier, and a column that the policy does not declare
        with pytest.raises(ParameterError, match=f"'{target}' is not released"):
            run("anonymize", *UNDER, "--target", target, "--method", method, "-o", "out.csv")
    assert not list(clinic.glob("out.csv*"))
    assert not list(clinic.glob("*.sqlite"))  # no ledger begins with a refusal


RELEASES = {
    "optimal": ("visits.parquet", "--qi", QI),
    "mondrian": ("visits.parquet", "--qi", QI, "--method", "mondrian"),
    "microaggregate": ("visits.parquet", "--qi", "age", "--method", "microaggregate"),
    "grid": ("visits.parquet", "--grid", "age,charge", "--digits", "0", "--k", "2"),
    "update": ("--update", "before.csv", "visits.parquet"),
    "policy": ("visits.parquet", *UNDER),
}


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("failing", ["sealing", "measuring", "interrupted", "remembering"])
@pytest.mark.parametrize("way", RELEASES)
def test_whatever_fails_after_the_rows_were_written_removes_them(
    clinic: Path, monkeypatch: pytest.MonkeyPatch, way: str, failing: str
) -> None:
    if way == "update":
        run("anonymize", "visits.parquet", "--qi", QI, "-o", "before.csv")
    place, fault = {
        "sealing": ("deniable.release.seal", OSError()),
        "measuring": ("deniable.assess.certificate.certify", MemoryError()),
        "interrupted": ("deniable.curator.publish.find_signing_key", KeyboardInterrupt()),
        "remembering": (
            f"deniable.curator.anonymize.releases.remember_{'map' if way == 'grid' else 'release'}",
            OSError(),
        ),
    }[failing]

    def fail(*_: Any, **__: Any) -> None:
        assert Path("out.csv").exists()
        raise fault

    monkeypatch.setattr(place, fail)
    result = CliRunner().invoke(app, ["anonymize", *RELEASES[way], "-o", "out.csv"])
    assert result.exit_code != 0
    assert not list(clinic.glob("out.csv*"))


def test_a_recoding_does_not_outlive_the_rows_it_is_of(clinic: Path) -> None:
    run("anonymize", "visits.parquet", "--qi", QI, "-o", "out.csv")
    run("anonymize", "visits.parquet", "--qi", QI, "--method", "mondrian", "-o", "out.csv")
    with pytest.raises(DataError, match="no recoding"):
        run("anonymize", "--update", "out.csv", "visits.parquet", "-o", "more.csv")


def change_policy(clinic: Path, old: str, new: str) -> None:
    assert old in POLICY
    (clinic / "clinic.yaml").write_text(POLICY.replace(old, new))


def test_rows_are_not_added_without_the_policy_of_the_release(clinic: Path) -> None:
    run("anonymize", *UNDER, "-o", "out.csv")
    with pytest.raises(DeniableError, match="made under a policy, of 'clinic/visits'"):
        run("anonymize", "--update", "out.csv", "visits.parquet", "-o", "more.csv")
    change_policy(clinic, "dataset: clinic", "dataset: other")
    with pytest.raises(DeniableError, match="these rows are of 'other/visits'"):
        run("anonymize", "--update", "out.csv", "visits.parquet", *UNDER, "--ledger", "o.sqlite", "-o", "more.csv")
    assert not list(clinic.glob("more.csv*"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("diagnosis: {role: sensitive", "diagnosis: {role: undecided", "undecided"),
        ("diagnosis: {role: sensitive", "diagnosis: {role: identifier", "'diagnosis'.*no longer lets leave"),
        ("diagnosis: {role: sensitive", "diagnosis: {role: quasi-identifier", "'diagnosis'.*no longer lets leave"),
        ("sex:       {role: quasi-identifier", "sex:       {role: identifier", "'sex'.*no longer lets leave"),
        ("k: 5", "k: 300", "classes of the release before do not meet 300-anonymity"),
        ("l: {diagnosis: 2}", "l: {diagnosis: 5}", "do not meet distinct 5-diversity"),
        ("suppress: 0.02}", "suppress: 0.02}\n  joint: {most: 0}", "single"),
    ],
)
def test_added_rows_pass_the_policy_of_today(clinic: Path, old: str, new: str, told: str) -> None:
    run("anonymize", *UNDER, "-o", "out.csv")
    change_policy(clinic, old, new)
    if "role: " in new:  # what leaves is asked about by l no more
        text = (clinic / "clinic.yaml").read_text()
        (clinic / "clinic.yaml").write_text(text.replace("l: {diagnosis: 2}, ", ""))
    with pytest.raises(DeniableError, match=told):
        run("anonymize", "--update", "out.csv", "visits.parquet", *UNDER, "-o", "more.csv")
    assert not list(clinic.glob("more.csv*"))


def test_added_rows_meet_the_larger_k_of_the_command(clinic: Path) -> None:
    run("anonymize", "visits.parquet", "--qi", "sex", "--k", "5", "-o", "out.csv")
    few = pq.read_table("visits.parquet").slice(0, 40)
    pq.write_table(few, "few.parquet")
    words = ("anonymize", "--update", "out.csv", "few.parquet")
    assert run(*words, "-o", "a.csv")["shown"] == 40
    assert run(*words, "--k", "100", "-o", "b.csv")["shown"] == 0
    with pytest.raises(DeniableError, match="do not meet 900-anonymity"):
        run(*words, "--k", "900", "-o", "c.csv")


def test_people_are_counted_in_added_rows_where_each_had_one_before(clinic: Path) -> None:
    """Eight rows of one person are one person, whether a policy or the command says who the people are."""
    change_policy(clinic, "unit: row", "unit: {column: name}")
    one = pq.read_table("visits.parquet").slice(0, 1)
    pq.write_table(pa.concat_tables([one] * 8), "eight.parquet")
    named = ("--qi", QI, "--sensitive", "diagnosis", "--person", "name")
    for words, more in (((*UNDER,), UNDER), (named, ())):
        made = run("anonymize", "visits.parquet", *words, "-o", "out.csv")
        assert not any("k counts rows" in told for told in made["warnings"])
        assert verify("out.csv").body["guarantee"]["unit"] == "all rows of one name"
        found = run("anonymize", "--update", "out.csv", "eight.parquet", *more, "-o", "more.csv")
        assert (found["shown"], found["waiting"]) == (0, 8)
        everybody = run("anonymize", "--update", "out.csv", "visits.parquet", *more, "-o", "more.csv")
        assert everybody["shown"] > 1000
        assert verify("more.csv").body["guarantee"]["unit"] == "all rows of one name"


def test_a_larger_share_to_suppress_than_the_policy_says_is_refused(clinic: Path) -> None:
    with pytest.raises(DeniableError, match=r"suppress is asked to be 0.5, and the policy says 0.02"):
        run("anonymize", *UNDER, "--suppress", "0.5", "-o", "out.csv")
    assert not list(clinic.glob("out.csv*"))
    run("anonymize", *UNDER, "--suppress", "0.01", "-o", "out.csv")


def test_a_map_counts_people_without_a_policy_too(clinic: Path) -> None:
    places = {
        "lat": [40.71] * 12 + [40.75] * 12,
        "lon": [-74.0] * 24,
        "who": ["one"] * 12 + [f"p{n}" for n in range(12)],
    }
    pq.write_table(pa.table(places), "rides.parquet")
    words = ("anonymize", "rides.parquet", "--grid", "lat,lon", "--k", "10", "-o", "map.csv")
    assert run(*words)["cells"] == 2
    assert run(*words, "--person", "who")["cells"] == 1
    assert verify("map.csv").body["guarantee"]["unit"] == "all rows of one who"


def test_a_map_shows_only_cells_with_k_rows(clinic: Path) -> None:
    chance = np.random.default_rng(0)
    rides = pa.table({"lat": 40.7 + chance.normal(0, 0.02, 900), "lon": -74.0 + chance.normal(0, 0.02, 900)})
    pq.write_table(rides, "rides.parquet")
    made = run("anonymize", "rides.parquet", "--grid", "lat,lon", "--digits", "2", "--k", "10", "-o", "map.csv")
    cells = csv.read_csv("map.csv")
    assert min(cells["count"].to_pylist()) >= 10
    assert sum(cells["count"].to_pylist()) + made["dropped"] == 900
    assert verify("map.csv").body["details"]["cells"] == cells.num_rows
    with pytest.raises(DeniableError, match="Latitude and longitude"):
        run("anonymize", "rides.parquet", "--grid", "lat", "-o", "map.csv")
    with pytest.raises(DeniableError, match="latt"):
        run("anonymize", "rides.parquet", "--grid", "latt,lon", "-o", "map.csv")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--k", "1"), "k is at least 2"),
        (("--top", "age=nan"), "--top COLUMN=NUMBER"),
        (("--bottom", "age=-inf"), "--bottom COLUMN=NUMBER"),
        (("--suppressed", "zz"), "One of drop, star"),
        (("--form", "zz"), "There is no form 'zz'"),
        (("--seconds", "nan"), "More than 0"),
        (("--seconds", "-1"), "More than 0"),
        (("--l", "nope=2"), "There is no column 'nope'"),
        (("--t", "nope=0.5"), "There is no column 'nope'"),
        (("--hierarchy", "age=intervals:x"), "Numbers, above 0"),
        (("--hierarchy", "age=intervals:nan"), "Numbers, above 0"),
        (("--hierarchy", "age=order:0"), "Whole numbers, at least 2"),
        (("--hierarchy", "age=brackets:0,x"), "Numbers, separated by commas"),
        (("--hierarchy", "age=withhold:1"), "There is no hierarchy 'withhold'"),
        (("--hierarchy", "nope=intervals:5"), "There is no column 'nope'"),
        (("--population", "blank.csv"), "begins with an empty line"),
    ],
    ids=" ".join,
)
def test_an_option_that_means_nothing_is_refused_in_plain_words(
    clinic: Path, words: tuple[str, ...], told: str
) -> None:
    (clinic / "blank.csv").write_text("\n\n")
    found = CliRunner().invoke(app, ["anonymize", "visits.csv", "--qi", QI, "-o", "o.csv", *words])
    assert isinstance(found.exception, DeniableError)
    assert not isinstance(found.exception, InternalError)
    assert told in found.exception.message
    assert not (clinic / "o.csv").exists()


@pytest.mark.parametrize("words", [("--t", "diagnosis=nan"), ("--l", "diagnosis=nan"), ("--t", "diagnosis=inf")])
def test_a_threshold_that_is_no_number_is_not_met_by_everything(clinic: Path, words: tuple[str, str]) -> None:
    found = CliRunner().invoke(app, ["check", "visits.csv", "--qi", QI, "--keep", "name,charge", *words])
    assert isinstance(found.exception, ParameterError)


@pytest.mark.parametrize("text", ["\n", "\n\n\n", "\r\n\r\n"])
@pytest.mark.parametrize("command", ["anonymize", "check"])
def test_a_file_of_empty_lines_is_refused_for_what_it_is(clinic: Path, text: str, command: str) -> None:
    (clinic / "blank.csv").write_bytes(text.encode())
    out = ("-o", "o.csv") if command == "anonymize" else ()
    found = CliRunner().invoke(app, [command, "blank.csv", "--qi", "age", *out])
    assert isinstance(found.exception, DataError)
    assert "no header" in found.exception.message


@pytest.mark.parametrize("out", ["o.csv", "o.parquet"])
def test_a_column_named_like_a_formula_is_released(clinic: Path, out: str) -> None:
    pq.write_table(pa.table({"=x": [n % 4 for n in range(80)], "zip": [str(n % 3) for n in range(80)]}), "odd.parquet")
    found = CliRunner().invoke(app, ["anonymize", "odd.parquet", "--qi", "=x,zip", "-o", out])
    assert found.exit_code == 0, found.exception
    assert verify(clinic / out).body["details"]["measured"]["rows"] == 80


def test_infinite_numbers_are_generalized_like_others_and_have_no_mean(clinic: Path) -> None:
    ages = [float("inf") if n % 20 == 3 else float(20 + n % 40) for n in range(80)]
    pq.write_table(pa.table({"age": ages}), "far.parquet")
    found = CliRunner().invoke(app, ["anonymize", "far.parquet", "--qi", "age", "-o", "o.csv"])
    assert found.exit_code == 0, found.exception
    words = ["anonymize", "far.parquet", "--qi", "age", "--method", "microaggregate", "-o", "o.csv"]
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, DataError)
    assert "infinite" in refused.exception.message


def test_the_command_line_of_one_command_has_that_command_alone_and_of_a_slip_has_all() -> None:
    assert [each.name for each in narrow_app(["anonymize", "x.csv"]).registered_commands] == ["anonymize"]
    assert [each.name for each in narrow_app(["policy", "check"]).registered_groups] == ["policy"]
    for shown in (narrow_app(["anonimize"]), narrow_app([])):
        assert [each.name for each in shown.registered_commands] == [each.name for each in app.registered_commands]
        assert [each.name for each in shown.registered_groups] == [each.name for each in app.registered_groups]
    assert len(app.registered_commands) > 10


def test_what_counts_rows_beside_people_is_told(clinic: Path) -> None:
    rows = pq.read_table("visits.parquet")
    pq.write_table(rows.append_column("who", pa.array([n // 2 for n in range(ROWS)])), "visits.parquet")
    words = ["anonymize", "visits.parquet", "--qi", QI, "--person", "who", "--sensitive", "diagnosis", "-o", "o.csv"]
    asked = (("--l", "diagnosis=2", "--t", "diagnosis=0.9"), ("--model", "average_risk:most=0.5"))
    people, rows_too = (CliRunner().invoke(app, [*words, *more, "--json"]) for more in asked)
    assert not any("count rows" in told for told in json.loads(people.stdout)["warnings"])
    assert any("count rows" in told for told in json.loads(rows_too.stdout)["warnings"])


@pytest.mark.parametrize("method", ["optimal", "mondrian"])
def test_the_table_that_is_read_is_not_written_over(tmp_path: Path, method: str) -> None:
    """The source was deleted, with a message that it could not be read."""
    rows = "zip,sex,dx\n" + "".join(f"{10000 + i % 3},{'FM'[i % 2]},d{i % 4}\n" for i in range(60))
    source = tmp_path / "people.csv"
    source.write_text(rows)
    words = ["anonymize", str(source), "--qi", "zip,sex", "--sensitive", "dx", "--k", "2", "--method", method]
    done = CliRunner().invoke(app, [*words, "-o", str(source)])
    assert done.exit_code != 0
    assert source.read_text() == rows


COPIED = """\
version: 1
dataset: copied
tables:
  people:
    source: people.csv
    unit: row
    columns:
      mrn: {role: identifier, mask: redact}
      sex: {role: quasi-identifier}
      old_number: {role: sensitive}
      dx: {role: sensitive}
release: {anonymize: {k: 2}}
"""


@pytest.mark.parametrize("command", ["anonymize", "mask"])
@pytest.mark.parametrize("copied", [True, False])
def test_a_copy_of_an_identifier_in_another_column_does_not_leave(tmp_path: Path, command: str, copied: bool) -> None:
    lines = (
        f"{900000 + i},{'FM'[i % 2]},{900000 + (i * 7 % 60) if copied else 100000 + i},d{i % 4}\n" for i in range(60)
    )
    (tmp_path / "people.csv").write_text("mrn,sex,old_number,dx\n" + "".join(lines))
    (tmp_path / "policy.yaml").write_text(COPIED)
    out = tmp_path / "out.csv"
    done = CliRunner().invoke(app, [command, "-p", str(tmp_path / "policy.yaml"), "-o", str(out)])
    left = [each for each in tmp_path.rglob("*") if each.is_file() and "out" in str(each.relative_to(tmp_path))]
    assert (done.exit_code == 0, bool(left)) == (not copied, not copied), done.output
    if copied:
        assert "'old_number' has the values of the identifier 'mrn'" in str(done.exception)


def test_rows_whose_policy_was_accepted_do_not_leave_without_it(clinic: Path) -> None:
    words = ("--qi", QI, "--sensitive", "diagnosis", "--k", "2", "-o", "out.csv")
    run("anonymize", "visits.parquet", *words)
    run("policy", "accept", "clinic.yaml", "--by", "A. Steward")
    (clinic / "copy.parquet").write_bytes((clinic / "visits.parquet").read_bytes())
    for source in ("visits.parquet", "copy.parquet"):
        for more in ((), ("--grid", "age,charge"), ("--update", "out.csv")):
            refused = CliRunner().invoke(app, ["anonymize", source, *words, *more])
            assert isinstance(refused.exception, AccessRefused), refused.output
            assert f"--policy {clinic / 'clinic.yaml'}" in str(refused.exception)
        told = run("check", source, "--qi", QI)
        assert told["policy"] == str(clinic / "clinic.yaml")
    for attacked in (("copy.parquet",), ("out.csv", "--original", "visits.parquet")):
        assert run("attack", *attacked, "--knows", QI)["policy"] == str(clinic / "clinic.yaml")
    assert run("scan", "copy.parquet")["policy"] == str(clinic / "clinic.yaml")
    assert run("check", "out.csv", "--qi", QI)["policy"] is None
    assert "policy" not in run("attack", "visits.parquet", "--knows", QI, "-p", "clinic.yaml")
    named = f"say --policy {clinic / 'clinic.yaml'}"
    for words, said in (
        (("attack", "visits.parquet", "--knows", QI), named),
        (("scan", "visits.parquet"), "accepted:"),
    ):
        assert said in CliRunner().invoke(app, words).output.replace("\n", "")


MISTAKES: dict[str, tuple[str, ...]] = {
    "weight of no column": ("--weight", "nope=3"),
    "weight of a secret": ("--weight", "diagnosis=3"),
    "negative weight": ("--weight", "zip=-1"),
    "all weights zero": ("--weight", "zip=0", "--weight", "age=0", "--weight", "sex=0"),
    "weight that is no number": ("--weight", "zip=much"),
    "weights of a measure without": ("--weight", "zip=2", "--measure", "discernibility"),
    "weight of no column, other method": ("--weight", "nope=3", "--method", "mondrian"),
    "hierarchy file that is not there": ("--hierarchy", "zip=gone.csv"),
    "hierarchy of no column": ("--hierarchy", "nope=intervals:5"),
    "hierarchy that does not fit": ("--hierarchy", "sex=intervals:5,10"),
    "hierarchy without its values": ("--hierarchy", "zip=other.csv"),
    "intervals that do not nest": ("--hierarchy", "age=intervals:3,7"),
    "unknown standard": ("--hierarchy", "zip=standard:nope"),
    "microaggregation under l": ("--method", "microaggregate"),
    "unknown method": ("--method", "best"),
    "unknown measure": ("--measure", "beauty"),
    "unknown form": ("--form", "xml"),
    "unknown word for suppressed rows": ("--suppressed", "hide"),
    "k below the policy": ("--k", "2"),
    "k above all rows": ("--k", "5000"),
    "l of no column": ("--l", "nope=2"),
    "l of zero": ("--l", "diagnosis=0"),
    "t beyond one": ("--t", "diagnosis=2"),
    "t that is negative": ("--t", "diagnosis=-1"),
    "unknown model": ("--model", "safety:most=1"),
    "model without its column": ("--model", "entropy_diversity:l=2"),
    "model of no column": ("--model", "entropy_diversity:column=nope,l=2"),
    "k-map without population": ("--model", "k_map:k=5"),
    "population that is not there": ("--model", "k_map:k=5", "--population", "gone.csv"),
    "population without the columns": ("--model", "k_map:k=5", "--population", "other.csv"),
    "share to suppress beyond one": ("--suppress", "1.5"),
    "no time": ("--seconds", "0"),
    "earlier release that is not there": ("--earlier", "gone.recoding.json"),
    "earlier release that is none": ("--earlier", "other.csv"),
    "target of no column": ("--target", "nope"),
    "target that does not leave": ("--target", "name"),
    "top of words": ("--top", "sex=5"),
    "top of no column": ("--top", "nope=5"),
    "bottom above top": ("--top", "age=20", "--bottom", "age=80"),
    "people of no column": ("--person", "nope"),
    "unknown quasi-identifier": ("--qi", "zip,nope"),
    "unknown table": ("--table", "nope"),
    "grid of words": ("--grid", "zip,sex"),
    "grid of one column": ("--grid", "age"),
    "grid of far too many digits": ("--grid", "age,charge", "--digits", "400"),
    "a form that nobody writes": ("-o", "out.docx"),
    "a page where there is no folder": ("--report", "gone/page.html"),
}


@pytest.mark.slow
def test_a_mistake_in_what_is_asked_leaves_ledger_and_folder_as_they_are(clinic: Path) -> None:
    (clinic / "other.csv").write_text("value,group\na,b\n")
    before = {path.name: path.read_bytes() for path in clinic.iterdir()}
    left = {}
    for mistake, words in MISTAKES.items():
        try:
            run("anonymize", "visits.parquet", *UNDER, "-o", "out.csv", *words)
            left[mistake] = "it was taken"
        except InternalError as refused:
            left[mistake] = str(refused)
        except DeniableError as refused:
            if refused.charged not in ("", NOTHING_CHARGED):
                left[mistake] = refused.charged
        if before != (after := {path.name: path.read_bytes() for path in clinic.iterdir() if path.is_file()}):
            left[mistake] = f"{left.get(mistake, '')} {sorted(after.keys() ^ before.keys())}"
            for name in after.keys() - before.keys():
                (clinic / name).unlink()
    assert left == {}


def test_a_mistake_after_a_release_leaves_no_entry(clinic: Path) -> None:
    run("anonymize", *UNDER, "-o", "first.csv")
    entries = run("ledger", "show", *UNDER)
    for mistake in ("weight of no column", "hierarchy file that is not there", "microaggregation under l"):
        with pytest.raises(DeniableError):
            run("anonymize", *UNDER, "-o", "out.csv", *MISTAKES[mistake])
    assert run("ledger", "show", *UNDER) == entries


def test_rows_of_an_accepted_policy_are_known_in_any_order_format_part_and_under_any_names(clinic: Path) -> None:
    run("policy", "accept", "clinic.yaml", "--by", "A. Steward")
    rows = pq.read_table("visits.parquet")
    mixed = rows.take(np.random.default_rng(2).permutation(ROWS))
    csv.write_csv(mixed, "mixed.csv")
    pq.write_table(mixed.slice(0, ROWS * 7 // 10), "most.parquet")
    csv.write_csv(mixed.slice(0, ROWS * 3 // 10), "some.csv")
    csv.write_csv(mixed.rename_columns(["a", "zip", "age", "sex", "b", "c"]), "renamed.csv")
    csv.write_csv(mixed.select(["charge", "zip", "age", "sex"]), "fewer.csv")
    for source in ("mixed.csv", "most.parquet", "some.csv", "renamed.csv", "fewer.csv"):
        with pytest.raises(AccessRefused, match="have a policy that was accepted"):
            run("anonymize", source, "--qi", QI, "--k", "2", "-o", "out.csv")
        assert run("check", source, "--qi", QI)["policy"] == str(clinic / "clinic.yaml")
    with pytest.raises(AccessRefused, match="have a policy that was accepted"):
        run("start", "mixed.csv", "--yes", "--out", "begun")
    others = mixed.set_column(0, "name", pa.array([f"human {n}" for n in range(ROWS)]))
    shuffled = np.random.default_rng(3).permutation(ROWS)
    others = others.set_column(5, "charge", others["charge"].take(shuffled)).set_column(2, "age", rows["age"])
    csv.write_csv(others, "others.csv")
    run("anonymize", "others.csv", "--qi", QI, "--k", "2", "--suppress", "0.1", "-o", "out.csv")


def test_another_policy_over_a_copy_of_accepted_rows_may_protect_no_less(clinic: Path) -> None:
    run("policy", "accept", "clinic.yaml", "--by", "A. Steward")
    csv.write_csv(pq.read_table("visits.parquet").slice(100), "copy.csv")
    other = POLICY.replace("visits.parquet", "copy.csv").replace("dataset: clinic", "dataset: other")
    Path("weaker.yaml").write_text(other.replace("k: 5", "k: 2"))
    Path("alike.yaml").write_text(other.replace("  visits:", "  stays:"))
    with pytest.raises(AccessRefused, match="protects them less: release: anonymize: k 5 became 2"):
        run("anonymize", "-p", "weaker.yaml", "-o", "out.csv")
    with pytest.raises(AccessRefused, match="protects them less"):
        run("mask", "-p", "weaker.yaml", "--table", "visits", "-o", "masked.csv")
    run("anonymize", "-p", "alike.yaml", "-o", "out.csv")
    run("policy", "accept", "weaker.yaml", "--by", "A. Steward")
    run("anonymize", "-p", "weaker.yaml", "-o", "out.csv")


def test_nothing_is_measured_of_a_table_without_rows_and_that_is_an_error(clinic: Path) -> None:
    Path("empty.csv").write_text("zip,age,sex\n")
    for words in (("check", "empty.csv", "--qi", QI), ("attack", "empty.csv", "--knows", QI), ("scan", "empty.csv")):
        with pytest.raises(DataError, match="has no rows, and nothing was measured"):
            run(*words)
