"""People with their rows from the command line: histories in one table, and a parent table with its children."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from forked_commands import run_command

BUDGET = ("--epsilon", "1", "--delta", "1e-6")
PERSON = ("zip", "birth_date", "sex", "ethnicity")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("histories")
    assert run_command("world", "make", "hospital", "--people", "2000", "-o", ".", cwd=folder).returncode == 0
    return folder


def _two_tables(town: Path) -> None:
    """The same town with its patients in a table of their own."""
    visits = pq.read_table(town / "visits.parquet")
    people = visits.group_by("patient_id").aggregate([(name, "min") for name in PERSON])
    people = people.rename_columns([name.removesuffix("_min") for name in people.column_names])
    pq.write_table(people, town / "patients.parquet")
    pq.write_table(visits.select(["patient_id", "admission", "discharge", "payer"]), town / "stays.parquet")
    (town / "two.yaml").write_text("""
version: 1
dataset: hospital
tables:
  patients:
    source: patients.parquet
    unit: {column: patient_id, max_rows_per_group: 1}
    columns:
      patient_id: {role: identifier}
      zip:        {}
      birth_date: {type: date, between: [1924-01-01, 2008-12-31]}
      sex:        {categories: [F, M], nullable: false}
      ethnicity:  {categories: [Asian, Black, Hispanic, Other, White]}
  stays:
    source: stays.parquet
    unit: {column: patient_id, max_rows_per_group: 3}
    parent: patients
    sequence: admission
    columns:
      patient_id: {role: identifier}
      admission:  {type: date, between: [2025-01-01, 2025-12-31], nullable: false}
      discharge:  {type: date, between: [2025-01-01, 2026-03-01]}
      payer:      {categories: [Medicaid, Medicare, private, self-pay]}
  staff:
    source: staff.csv
    unit: row
    columns: {sex: {categories: [F, M]}}
budgets: {dataset: {epsilon: 3, delta: 1e-5, accounting: zcdp}}
release: {truths: [{order: [admission, discharge]}]}
""")


def test_histories_of_people_are_written_released_and_drawn_again(town: Path) -> None:
    done = run_command("synthesize", "visits", *BUDGET, "--linked", "-o", "histories.parquet", "--json", cwd=town)
    assert done.returncode == 0, done.stderr
    told, made = json.loads(done.stdout), pq.read_table(town / "histories.parquet")
    assert made.num_rows == told["rows"]
    real = pq.read_table(town / "visits.parquet")
    assert set(made.column_names) == set(real.column_names)
    for name in PERSON:
        each = made.group_by("patient_id").aggregate([(name, "count_distinct")])
        assert pc.max(each[f"{name}_count_distinct"]).as_py() == 1
    assert pc.all(pc.less_equal(made["admission"], made["discharge"]).drop_null()).as_py()
    assert not pc.any(pc.is_in(made["patient_id"], pa.array(real["patient_id"].unique()))).as_py()
    assert run_command("release", "verify", "histories.parquet", cwd=town).returncode == 0
    drawn = run_command("generate", "histories.parquet.model.json", "--rows", "25", "-o", "few.parquet", cwd=town)
    assert drawn.returncode == 0, drawn.stderr
    assert len(pq.read_table(town / "few.parquet")["patient_id"].unique()) == 25
    words = ("generate", "histories.parquet.model.json", "--rows", "30", "--where", "sex=F,payer=private")
    only = run_command(*words, "-o", "women.parquet", cwd=town)
    assert only.returncode == 0, only.stderr
    women = pq.read_table(town / "women.parquet")
    assert len(women["patient_id"].unique()) == 30
    assert set(women["sex"].to_pylist()) == {"F"}
    assert set(women["payer"].to_pylist()) == {"private"}
    refused = run_command("generate", "histories.parquet.model.json", "--where", "sx=F", "-o", "none.parquet", cwd=town)
    assert refused.returncode == 2
    assert "Did you mean 'sex'" in refused.stderr
    assert not (town / "none.parquet").exists()


def test_a_parent_and_its_children_are_written_from_one_charge(town: Path) -> None:
    _two_tables(town)
    (town / "made").mkdir(exist_ok=True)
    words = ("synthesize", "stays", "-p", "two.yaml", *BUDGET, "--linked", "-o", "made/stays.parquet", "--json")
    done = run_command(*words, "--ledger", "two.db", cwd=town)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["files"]) == {"stays.parquet", "patients.parquet"}
    people, stays = (pq.read_table(town / "made" / f"{name}.parquet") for name in ("patients", "stays"))
    assert set(stays["patient_id"].to_pylist()) <= set(people["patient_id"].to_pylist())
    assert len(people["patient_id"].unique()) == people.num_rows
    for name in ("patients", "stays"):
        assert run_command("release", "verify", f"made/{name}.parquet", cwd=town).returncode == 0
    shown = run_command("ledger", "show", "-p", "two.yaml", "--ledger", "two.db", "--json", cwd=town)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("differentially private synthesis") == 1


@pytest.mark.slow
def test_both_tables_are_attacked_compared_and_shown_on_one_page(town: Path) -> None:
    _two_tables(town)
    (town / "proved").mkdir(exist_ok=True)
    words = ("synthesize", "stays", "-p", "two.yaml", *BUDGET, "--linked", "--attack", "--attacks", "100", "--assess")
    done = run_command(*words, "--report", "proof.html", "-o", "proved/stays.parquet", "--json", cwd=town)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    named = {outcome["attack"] for made in told["attack"]["attacks"] for outcome in made["outcomes"]}
    assert {"membership (patients)", "membership (stays)", "singling out (stays)"} <= named
    assert told["held_out"] == 0.1
    assert {part: found["variation"][0]["way"] for part, found in told["utility"].items()} == {"people": 1, "rows": 1}
    assert "membership (patients)" in (town / "proof.html").read_text()
    for name in ("patients", "stays"):
        assert "attack" not in (town / "proved" / f"{name}.parquet.release.json").read_text()
    shown = run_command(
        "inspect", "proved/stays.parquet.model.json", "--marginal", "sex,payer", "--report", "m.html", cwd=town
    )
    assert shown.returncode == 0, shown.stderr
    assert "(person) sex x payer" in shown.stdout
    page = (town / "m.html").read_text()
    assert "patients: In short" in page
    assert "patients: What was measured" in page
    assert "stays: What was measured" in page
    against = ("inspect", "proved/stays.parquet.model.json", "-p", "two.yaml", "--against", "stays", "--json")
    view = json.loads(run_command(*against, "--target", "sex", cwd=town).stdout)
    assert view["utility"]["people"]["classifier"]["target"] == "sex"
    assert all("real" in bar for part in ("people", "rows") for h in view[part]["histograms"] for bar in h["bars"])
    wrong = run_command(*against, "--marginal", "sex,payr", cwd=town)
    assert wrong.returncode == 2
    assert "Did you mean 'payer'" in wrong.stdout


def test_some_columns_of_people_and_rows_and_a_workload_of_both(town: Path) -> None:
    _two_tables(town)
    (town / "some").mkdir(exist_ok=True)
    words = ("synthesize", "stays", "-p", "two.yaml", *BUDGET, "--linked", "-o", "some/stays.parquet", "--json")
    asked = ("--columns", "sex,payer,admission", "--workload", "sex,payer", "--ledger", "some.db")
    done = run_command(*words, *asked, cwd=town)
    assert done.returncode == 0, done.stderr
    assert "(person) sex x payer" in json.loads(done.stdout)["measured"]
    assert pq.read_table(town / "some" / "stays.parquet").column_names == ["patient_id", "admission", "payer"]
    assert pq.read_table(town / "some" / "patients.parquet").column_names == ["patient_id", "sex"]


@pytest.mark.slow
def test_rows_of_other_people_are_the_control_of_histories_in_one_table(tmp_path: Path) -> None:
    for people, seed, folder in (("600", "1", "."), ("300", "11", "others")):
        made = ("world", "make", "hospital", "--people", people, "--seed", seed, "-o", folder)
        assert run_command(*made, cwd=tmp_path).returncode == 0
    words = ("synthesize", "visits", "--epsilon", "0.5", "--delta", "1e-7", "--linked", "--attack", "--attacks", "50")
    some = ("--columns", "sex,payer,admission,charge", "--json")
    done = run_command(*words, *some, "--control", "others/visits.parquet", "-o", "controlled.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["attack"]["control"] == "rows of other people that the steward gave"
    assert told["held_out"] == 0
    same = run_command(*words, *some, "--control", "visits.parquet", "-o", "same.parquet", cwd=tmp_path)
    assert same.returncode == 2
    assert "more than chance explains" in same.stdout + same.stderr
    assert not (tmp_path / "same.parquet").exists()


def test_the_name_of_the_parents_file_is_refused_before_the_charge(town: Path) -> None:
    _two_tables(town)
    words = ("synthesize", "stays", "-p", "two.yaml", *BUDGET, "--linked", "-o", "patients.parquet")
    done = run_command(*words, "--ledger", "clash.db", cwd=town)
    assert done.returncode == 2
    assert "parent's file" in done.stderr or "is read by this work" in done.stderr
    shown = run_command("ledger", "show", "-p", "two.yaml", "--ledger", "clash.db", "--json", cwd=town)
    assert "differentially private synthesis" not in shown.stdout


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("stays", "-p", "two.yaml", "--columns", "payr"), "Did you mean 'payer'"),
        (("stays", "-p", "two.yaml", "--columns", "sex"), "no column of the rows of 'stays' is described"),
        (("stays", "-p", "two.yaml", "--columns", "payer", "--workload", "payer,sex"), "'sex' is not among"),
        (("stays", "-p", "two.yaml", "--areas", "payer"), "Leave out --areas"),
        (("staff", "-p", "two.yaml"), "does not link"),
        (("stays", "-p", "two.yaml", "--memory", "9"), "1 to 5"),
        (("stays", "-p", "two.yaml", "--attack", "--control", "stays.csv"), "held out with their rows"),
        (("stays", "-p", "two.yaml", "--attack", "--held-out", "0.7"), "at most a half"),
        (("stays", "-p", "two.yaml", "--method", "random"), "measure"),
    ],
)
def test_what_cannot_be_linked_is_refused_before_anything_is_written(
    town: Path, words: tuple[str, ...], message: str
) -> None:
    _two_tables(town)
    (town / "refused").mkdir(exist_ok=True)
    done = run_command("synthesize", *words, *BUDGET, "--linked", "-o", "refused/stays.parquet", cwd=town)
    assert done.returncode == 2
    assert message in done.stderr
    assert not list((town / "refused").iterdir())


def _several_tables(town: Path) -> None:
    """The same with what patients are given, and the bills of their stays."""
    _two_tables(town)
    stays = pq.read_table(town / "stays.parquet")
    stays = stays.append_column("stay", pa.array(range(stays.num_rows)))
    pq.write_table(stays, town / "stays.parquet")
    bills = stays.select(["patient_id", "stay"])
    items = pa.array(["bed", "meal"]).take(pa.array([i % 2 for i in range(stays.num_rows)]))
    pq.write_table(bills.append_column("item", items), town / "bills.parquet")
    people = pq.read_table(town / "patients.parquet", columns=["patient_id", "sex"])
    drugs = pa.table(
        {"patient_id": people["patient_id"], "drug": pc.if_else(pc.equal(people["sex"], "F"), "iron", "zinc")}
    )
    pq.write_table(drugs, town / "drugs.parquet")
    text = (
        (town / "two.yaml")
        .read_text()
        .replace("      admission:", "      stay:       {role: identifier, type: integer}\n      admission:", 1)
    )
    more = """
  drugs:
    source: drugs.parquet
    unit: {column: patient_id, max_rows_per_group: 2}
    parent: patients
    columns:
      patient_id: {role: identifier}
      drug:       {categories: [iron, zinc], nullable: false}
  bills:
    source: bills.parquet
    unit: {column: patient_id, max_rows_per_group: 3}
    parent: stays
    columns:
      patient_id: {role: identifier}
      stay:       {role: identifier, type: integer}
      item:       {categories: [bed, meal], nullable: false}
budgets:"""
    (town / "several.yaml").write_text(text.replace("\nbudgets:", more, 1))


def test_a_parent_with_several_children_and_their_rows_is_one_release_and_one_charge(town: Path) -> None:
    _several_tables(town)
    (town / "family").mkdir(exist_ok=True)
    policy = ("-p", "several.yaml", "--ledger", "several.db")
    words = ("synthesize", "patients", *policy, *BUDGET, "--linked", "--memory", "2", "--workload", "sex,drug")
    done = run_command(*words, "-o", "family/patients.parquet", "--json", cwd=town)
    assert done.returncode == 0, done.stderr
    tables = ("patients", "stays", "drugs", "bills")
    assert set(json.loads(done.stdout)["files"]) == {f"{name}.parquet" for name in tables}
    people, stays, drugs, bills = (pq.read_table(town / "family" / f"{name}.parquet") for name in tables)
    keys = set(people["patient_id"].to_pylist())
    assert {*stays["patient_id"].to_pylist(), *drugs["patient_id"].to_pylist()} <= keys
    owners = dict(zip(stays["stay"].to_pylist(), stays["patient_id"].to_pylist(), strict=True))
    assert all(owners[row["stay"]] == row["patient_id"] for row in bills.to_pylist())
    for name in tables:
        assert run_command("release", "verify", f"family/{name}.parquet", cwd=town).returncode == 0
    shown = run_command("ledger", "show", *policy, "--json", cwd=town)
    assert shown.stdout.count("differentially private synthesis") == 1
    (town / "few").mkdir(exist_ok=True)
    model = "family/patients.parquet.model.json"
    drawn = run_command("generate", model, "--rows", "40", "--where", "drug=iron", "-o", "few/patients.csv", cwd=town)
    assert drawn.returncode == 0, drawn.stderr
    assert "beside it stays.csv, drugs.csv, bills.csv" in " ".join(drawn.stdout.split())
    assert {path.name for path in (town / "few").iterdir()} == {f"{name}.csv" for name in tables}
    against = ("--against", "patients", "--scores", "--json")
    seen = run_command("inspect", model, "-p", "several.yaml", *against, cwd=town)
    assert seen.returncode == 0, seen.stderr
    utility = json.loads(seen.stdout)["utility"]
    assert set(utility) == {"people", "stays", "drugs", "bills"}
    for found in utility.values():  # columns that only other parts of the model describe are not missing here
        structure = [each for each in found["scores"]["diagnostic"]["properties"] if each["name"] == "data structure"]
        assert [each["value"] for each in structure] == [1.0]
    refused = run_command("synthesize", "bills", *policy, *BUDGET, "--linked", "-o", "family/b.csv", cwd=town)
    assert refused.returncode == 2
    assert "name the table of people" in " ".join(refused.stderr.split())
    apart = run_command(*words[:-1], "drug,item", "-o", "family/patients.parquet", cwd=town)
    assert apart.returncode == 2
    assert "columns of several tables of rows" in " ".join(apart.stderr.split())


@pytest.mark.slow
def test_several_tables_are_attacked_beside_a_folder_of_other_people(town: Path) -> None:
    _several_tables(town)
    others = ("world", "make", "hospital", "--people", "500", "--seed", "9", "-o", "others")
    assert run_command(*others, cwd=town).returncode == 0
    _several_tables(town / "others")
    (town / "attacked").mkdir(exist_ok=True)
    policy = ("-p", "several.yaml", "--ledger", "attacked.db")
    words = ("synthesize", "patients", *policy, *BUDGET, "--linked", "--attack", "--attacks", "50", "--json")
    done = run_command(*words, "--control", "others", "-o", "attacked/patients.parquet", cwd=town)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["attack"]
    named = {outcome["attack"] for made in found["attacks"] for outcome in made["outcomes"]}
    assert {"membership (patients)", "membership (stays)", "membership (drugs)", "membership (bills)"} <= named
    (town / "others" / "bills.parquet").unlink()
    refused = run_command(*words, "--control", "others", "-o", "attacked/patients.parquet", cwd=town)
    assert refused.returncode == 2
    assert "has no table 'bills'" in refused.stdout
