"""The salary and job-code example from the command line: randomize, estimate, and the epsilon ladder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.curator.survey import estimate_released, randomize, sweep_epsilon
from deniable.errors import BudgetExceeded, DataError, DeniableError, IntegrityError, ParameterError

POLICY = """\
version: 1
dataset: university
budgets: {dataset: {epsilon: 1000}}
tables:
  salaries:
    source: salaries.parquet
    unit: row
    columns:
      name:   {role: identifier}
      job:    {role: sensitive, categories: [administration, athletics, faculty, staff], nullable: false}
      sex:    {role: quasi-identifier, categories: [F, M]}
      salary: {role: sensitive, type: integer, between: [0, 200000], step: 1000, nullable: false}
      bonus:  {role: sensitive, type: integer, between: [0, 10000], step: 100}
"""
JOBS = {"administration": 367, "athletics": 97, "faculty": 2920, "staff": 2085}
PAY = {"administration": 120_000, "athletics": 60_000, "faculty": 140_000, "staff": 70_000}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("university")
    jobs = [job for job, count in JOBS.items() for _ in range(count)]
    table = pa.table(
        {
            "name": [f"person {i}" for i in range(len(jobs))],
            "job": jobs,
            "sex": ["F" if i % 2 else "M" for i in range(len(jobs))],
            "salary": [PAY[job] + 1000 * (i % 11 - 5) for i, job in enumerate(jobs)],
            "bonus": [None if i % 4 == 0 else 4000 for i in range(len(jobs))],
        }
    )
    pq.write_table(table, folder / "salaries.parquet")
    (folder / "policy.yaml").write_text(POLICY)
    return folder


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Any]:
    """Run a command in this process and in the folder, through the same entry point as the command line; its JSON."""
    from deniable.cli.main import main

    def command(line: str) -> Any:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["deniable", *line.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        assert not ended.value.code, told
        return json.loads(told.out)

    return command


def test_job_codes_and_salaries_come_back_from_a_randomized_table(folder, run):
    run("randomize salaries.parquet -p policy.yaml -e 4 -c job=1 -c salary -o told.parquet --json")
    told = pq.read_table(folder / "told.parquet")
    assert told.column_names == ["job", "salary"]
    assert told.num_rows == 5469
    found = run("estimate told.parquet --mean salary --by job --confidence 0.9999999 --json")
    counts = {row["label"]: row for row in found["columns"][0]["counts"]}
    for job, count in JOBS.items():
        assert counts[job]["low"] <= count <= counts[job]["high"]
    mean = found["columns"][1]["mean"]
    truth = sum(JOBS[job] * PAY[job] for job in JOBS) / 5469
    assert mean["low"] <= truth <= mean["high"]
    faculty = next(row for row in found["means"] if row["group"] == "faculty")
    assert faculty["low"] <= PAY["faculty"] <= faculty["high"]
    assert faculty["high"] - faculty["low"] < 90_000


def test_the_statement_says_local_epsilon_and_a_changed_table_is_refused(folder):
    randomize(None, folder / "policy.yaml", folder / "changed.parquet", 2, columns=["job"])
    statement = json.loads((folder / "changed.parquet.release.json").read_text())
    assert '"local_epsilon": "2"' in json.dumps(statement)
    pq.write_table(pa.table({"job": ["staff"] * 10}), folder / "changed.parquet")
    with pytest.raises(IntegrityError):
        estimate_released(folder / "changed.parquet")


def test_no_randomized_record_is_bound_to_its_true_one_and_their_order_is_lost(folder):
    randomize(None, folder / "policy.yaml", folder / "two.parquet", 16, columns=["job"])
    told = pq.read_table(folder / "two.parquet").column("job").to_pylist()
    jobs = pq.read_table(folder / "salaries.parquet").column("job").to_pylist()
    assert sorted(told) == pytest.approx(sorted(jobs)) or abs(told.count("faculty") - 2920) < 10
    kept = sum(a == b for a, b in zip(told, jobs, strict=True)) / len(jobs)
    assert kept < 0.6  # by chance 0.44: the sum of squared shares


def test_missing_values_are_an_answer_of_their_own(folder):
    randomize(None, folder / "policy.yaml", folder / "bonus.parquet", 6, columns=["bonus", "sex"])
    told = pq.read_table(folder / "bonus.parquet")
    assert told.column_names == ["bonus", "bonus_given", "sex"]
    found = {one["column"]: one for one in estimate_released(folder / "bonus.parquet", 0.9999999)["columns"]}
    assert found["bonus"]["mean"]["low"] <= 4000 <= found["bonus"]["mean"]["high"]
    assert [row["label"] for row in found["sex"]["counts"]] == ["F", "M", None]


def test_csv_travels_as_well(folder):
    randomize(None, folder / "policy.yaml", folder / "told.csv", 4, columns=["job", "salary"])
    found = estimate_released(folder / "told.csv", 0.9999999)
    assert found["rows"] == 5469
    assert found["columns"][0]["counts"][2]["low"] <= 2920 <= found["columns"][0]["counts"][2]["high"]


def test_the_ladder_keeps_the_smallest_acceptable_epsilon_and_draws_itself(folder, run):
    rungs = "--epsilons 16,8,0.1 --repeats 2 -o ladder.html --json"
    found = run(f"ladder salaries.parquet -p policy.yaml --label job -f salary --accuracy 0.8 {rungs}")
    assert found["baseline"] > 0.9
    assert [rung["epsilon"] for rung in found["rungs"]] == [16, 8, 0.1]
    assert found["rungs"][0]["accuracy"] > 0.85
    assert found["rungs"][2]["accuracy"] < 0.8
    assert found["chosen"] in (16, 8)
    page = (folder / "ladder.html").read_text()
    assert "Epsilon ladder for job" in page


def test_training_on_randomized_records_as_if_they_were_true_is_worse(folder):
    from fractions import Fraction

    import numpy as np

    from deniable.localdp import records
    from deniable.localdp.epsilon_sweep import train
    from deniable.localdp.records import CategoryPlan
    from deniable.policy.document import read

    schema = read(folder / "policy.yaml").table("salaries")
    clean = pq.read_table(folder / "salaries.parquet")
    made = records.plan_records(schema, Fraction(6), ["job", "sex"], {"sex": Fraction(1)})
    told = records.randomize(made, clean)
    joint = records.estimate_joint_counts(made, told, "job", "sex")
    seen = np.histogram2d(
        records.read_labels(made.column("job"), told), records.read_labels(made.column("sex"), told), bins=joint.shape
    )[0]
    truth = np.array([[count / 2, count / 2, 0] for count in JOBS.values()])
    assert np.abs(joint - truth).sum() < np.abs(seen - truth).sum()
    assert isinstance(train(made, told, "job").label, CategoryPlan)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"columns": ["jop"]}, ParameterError, "Did you mean 'job'"),
        ({"columns": ["name"]}, ParameterError, "neither categories"),
        ({"epsilon": 0}, ParameterError, "epsilon"),
        ({"epsilon": "much"}, ParameterError, "number"),
        ({"own": {"job": 9}, "columns": ["job", "sex"]}, ParameterError, "use up"),
        ({"table": "salarys"}, ParameterError, "Did you mean 'salaries'"),
    ],
)
def test_what_a_newcomer_gets_wrong_is_told(folder, change, error, words):
    arguments = {"source": None, "policy_file": folder / "policy.yaml", "out": folder / "x.parquet", "epsilon": 2}
    with pytest.raises(error, match=words):
        randomize(**(arguments | change))
    assert not (folder / "x.parquet").exists()


def test_no_row_can_make_it_fail(folder, tmp_path):
    """A refusal would tell that there is such a row; undeclared, missing and odd values are randomized like others."""
    table = pq.read_table(folder / "salaries.parquet").slice(0, 50)
    odd = {"job": ["spy", None] * 25, "sex": [None] * 50, "salary": [None, 10**12, -5, 7, 0] * 10}
    for name, values in odd.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    pq.write_table(table, tmp_path / "salaries.parquet")
    out = tmp_path / "o.parquet"
    randomize(str(tmp_path / "salaries.parquet"), folder / "policy.yaml", out, 2, columns=["job", "sex", "salary"])
    told = pq.read_table(out)
    assert told.num_rows == 50
    assert set(told.column("job").to_pylist()) <= set(JOBS)
    assert told.column("salary").null_count == 0


VISITS = """\
version: 1
dataset: clinic
budgets: {dataset: {epsilon: 1}}
tables:
  visits:
    source: visits.parquet
    unit: {column: pid, max_groups: 1, max_rows_per_group: 2}
    columns:
      pid:     {role: identifier, type: integer}
      smokes:  {role: sensitive, categories: ["no", "yes"], nullable: false}
"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """Forty people with fifty rows each, all of a person's alike."""
    people = [person for person in range(40) for _ in range(50)]
    smokes = ["yes" if person % 2 else "no" for person in people]
    pq.write_table(pa.table({"pid": people, "smokes": smokes}), tmp_path / "visits.parquet")
    (tmp_path / "policy.yaml").write_text(VISITS)
    return tmp_path


def test_a_person_with_many_rows_is_bounded_by_the_unit_so_that_no_vote_tells_the_truth(clinic):
    done = randomize(None, clinic / "policy.yaml", clinic / "told.parquet", "1/2")
    assert done["rows"] == 80  # two of fifty
    assert "what the rows of one pid say, at most 2 kept (not that they are there)" in " ".join(done["words"])
    statement = (clinic / "told.parquet.release.json").read_text()
    assert '"local_epsilon": "1"' in statement


def test_categories_that_a_spreadsheet_would_run_are_estimated_from_a_csv_file(clinic):
    """They stand there with a quote before them, which is no part of them."""
    rows = pq.read_table(clinic / "visits.parquet")
    told = ["=yes" if each == "yes" else "-no" for each in rows["smokes"].to_pylist()]
    pq.write_table(pa.table({"pid": rows["pid"], "@smokes": told}), clinic / "visits.parquet")
    policy = VISITS.replace("smokes: ", '"@smokes": ').replace('"no", "yes"', '"-no", "=yes"')
    (clinic / "policy.yaml").write_text(policy)
    found = []
    for name in ("told.csv", "told.parquet"):
        randomize(None, clinic / "policy.yaml", clinic / name, "1/2")
        found.append(estimate_released(clinic / name).to_dict())
    assert found[0] == found[1]
    assert [each["label"] for each in found[0]["columns"][0]["counts"]] == ["-no", "=yes"]


def spent(policy: Path) -> float:
    from deniable.curator.governance import steward

    return float(steward.register(policy, None)["standing"]["spent"]["epsilon"])


def test_randomizing_is_charged_for_all_rows_of_a_person_and_refused_beyond_the_budget(clinic):
    randomize(None, clinic / "policy.yaml", clinic / "told.parquet", "1/4")
    assert spent(clinic / "policy.yaml") == pytest.approx(0.5)
    for _ in range(3):
        with pytest.raises(BudgetExceeded, match="Nothing was charged"):
            randomize(None, clinic / "policy.yaml", clinic / "more.parquet", 16)
    assert not (clinic / "more.parquet").exists()
    assert spent(clinic / "policy.yaml") == pytest.approx(0.5)


def test_the_same_order_gives_the_same_rows_again_and_costs_nothing_more(clinic):
    for name in ("one.parquet", "two.parquet"):
        randomize(None, clinic / "policy.yaml", clinic / name, "1/2")
    assert pq.read_table(clinic / "one.parquet") == pq.read_table(clinic / "two.parquet")
    assert spent(clinic / "policy.yaml") == pytest.approx(1)


def test_a_table_is_the_same_one_however_its_file_is_named_and_a_copy_is_another(clinic, monkeypatch):
    monkeypatch.chdir(clinic)
    (clinic / "linked.parquet").symlink_to(clinic / "visits.parquet")
    for place, source in enumerate((None, "visits.parquet", str(clinic / "visits.parquet"), "linked.parquet")):
        randomize(source, clinic / "policy.yaml", clinic / f"{place}.parquet", "1/2", table="visits")
        assert pq.read_table(clinic / f"{place}.parquet") == pq.read_table(clinic / "0.parquet")
    assert spent(clinic / "policy.yaml") == pytest.approx(1)
    (clinic / "copy.parquet").write_bytes((clinic / "visits.parquet").read_bytes())
    with pytest.raises(BudgetExceeded):
        randomize("copy.parquet", clinic / "policy.yaml", clinic / "more.parquet", "1/2", table="visits")


@pytest.mark.parametrize(
    "change",
    [("role: sensitive, categories", "categories"), ("tables:", "release: {minimize: {columns: [pid]}}\ntables:")],
    ids=["undecided", "minimized"],
)
def test_where_no_column_may_leave_none_is_randomized_and_nothing_is_charged(clinic, change):
    """An empty list of columns was read as all of them."""
    (clinic / "policy.yaml").write_text(VISITS.replace(*change))
    with pytest.raises(DeniableError, match="no column of 'visits'"):
        randomize(None, clinic / "policy.yaml", clinic / "told.parquet", "1/2")
    assert not (clinic / "told.parquet").exists()
    assert not (clinic / "policy.ledger.sqlite").exists()  # it begins with the first charge


def test_a_ladder_without_epsilons_or_with_an_accuracy_beyond_one_is_refused(folder):
    for epsilons, accuracy, words in (([], 0.5, "no epsilon"), (["1"], 1.5, "accuracy")):
        with pytest.raises(ParameterError, match=words):
            sweep_epsilon(None, folder / "policy.yaml", "job", ["salary"], epsilons, accuracy)


@pytest.mark.parametrize(("epsilon", "own"), [("0", {}), ("-1", {}), ("1", {"smokes": "0"}), ("1", {"smokes": "-1"})])
def test_an_epsilon_that_is_none_is_refused_as_such(clinic, epsilon, own):
    with pytest.raises(ParameterError, match="not above 0"):
        randomize(None, clinic / "policy.yaml", clinic / "told.parquet", epsilon, own=own)
    assert not (clinic / "told.parquet").exists()


def test_a_policy_without_budgets_lets_nothing_be_randomized(clinic):
    (clinic / "policy.yaml").write_text(VISITS.replace("budgets: {dataset: {epsilon: 1}}\n", ""))
    with pytest.raises(BudgetExceeded, match="no budgets"):
        randomize(None, clinic / "policy.yaml", clinic / "told.parquet", "1/2")


def test_a_disk_that_fails_after_the_charge_says_that_the_charge_stands(clinic, monkeypatch):
    from deniable.errors import CHARGED, DeniableError, StorageError

    def refuse(*_args: Any, **_more: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr("deniable.release.write_release", refuse)
    with pytest.raises(DeniableError) as refusal:
        randomize(None, clinic / "policy.yaml", clinic / "told.parquet", "1/2")
    assert CHARGED in str(refusal.value)
    assert spent(clinic / "policy.yaml") == pytest.approx(1)
    monkeypatch.undo()
    randomize(None, clinic / "policy.yaml", clinic / "told.parquet", "1/2")  # what was paid for is written now
    assert spent(clinic / "policy.yaml") == pytest.approx(1)


def test_estimating_what_was_never_randomized_is_refused(folder):
    with pytest.raises(IntegrityError, match="no statement"):
        estimate_released(folder / "salaries.parquet")
    randomize(str(folder / "salaries.parquet"), folder / "policy.yaml", folder / "two.parquet", 2, columns=["job"])
    with pytest.raises(ParameterError, match="two columns"):
        estimate_released(folder / "two.parquet", number="salary")
    with pytest.raises(ParameterError):
        sweep_epsilon(None, folder / "policy.yaml", "salary", ["job"], [1], 0.5)


def test_an_empty_table_is_randomized_to_an_empty_one_and_cannot_be_estimated(folder, tmp_path):
    pq.write_table(pq.read_table(folder / "salaries.parquet").slice(0, 0), tmp_path / "salaries.parquet")
    randomize(str(tmp_path / "salaries.parquet"), folder / "policy.yaml", tmp_path / "o.parquet", 2, columns=["job"])
    with pytest.raises(DataError, match="no rows"):
        estimate_released(tmp_path / "o.parquet")


def test_a_regression_on_randomized_records_is_that_of_the_people_and_a_naive_one_is_not(folder, tmp_path):
    import numpy as np

    rng = np.random.default_rng(5)
    n = 40_000
    bonus, job = rng.integers(0, 101, n) * 100, rng.integers(0, 4, n)
    salary = 40_000 + 8 * bonus + 30_000 * (job == 2) + rng.integers(-5, 6, n) * 1000
    table = {
        "name": ["x"] * n,
        "job": [sorted(JOBS)[j] for j in job],
        "sex": ["F"] * n,
        "salary": salary,
        "bonus": bonus,
    }
    pq.write_table(pa.table(table), tmp_path / "salaries.parquet")
    (tmp_path / "policy.yaml").write_text(POLICY.replace("step: 100}", "step: 100, nullable: false}"))
    out = tmp_path / "told.parquet"
    randomize(None, tmp_path / "policy.yaml", out, 30, columns=["job", "salary", "bonus"])
    found = estimate_released(out, 0.9999999, regress="salary", on=["bonus", "job"])
    terms = {row["term"]: row for row in found["coefficients"]}
    truth = {"bonus": 8, "job = faculty": 30_000, "job = staff": 0, "job = athletics": 0}
    for term, value in truth.items():
        assert terms[term]["low"] <= value <= terms[term]["high"], term
    assert terms["bonus"]["high"] - terms["bonus"]["low"] < 3
    told = pq.read_table(out)
    naive = np.polyfit(told.column("bonus").to_numpy(), told.column("salary").to_numpy(), 1)[0]
    assert naive < terms["bonus"]["low"]
    with pytest.raises(ParameterError, match="regressed"):
        estimate_released(out, regress="job", on=["bonus"])
    with pytest.raises(ParameterError, match="the column 'bonus' is named twice"):
        estimate_released(out, regress="salary", on=["bonus", "bonus"])


@pytest.mark.parametrize(("epsilon", "rows", "least"), [(16, 20, 0.1), (1, 20, 0.0), (16, 200, 1.0)])
def test_a_regression_of_few_records_has_intervals_that_hold_or_none(epsilon, rows, least):
    """A feature whose spread its noise hides has no interval. Of few records about 1 interval in 100 misses."""
    import numpy as np

    from deniable.localdp.postprocessing import regress
    from deniable.localdp.records import plan_records, randomize
    from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema

    rng, tables = np.random.default_rng(3), 30
    ends = {"age": 100, "pay": 200}
    columns = tuple(Column(c, ColumnType.INTEGER, bounds=Bounds(0, e), nullable=False) for c, e in ends.items())
    own = {"age": Fraction(epsilon), "pay": Fraction(16)}
    made = plan_records(TableSchema("t", "t.parquet", columns), sum(own.values(), Fraction(0)), own=own)
    age = rng.integers(0, 101, tables * rows)
    told = randomize(made, pa.table({"age": age, "pay": 20 + age + rng.integers(-20, 21, len(age))}))
    found = [regress(made, told.slice(rows * each, rows), "pay", ["age"])[1].interval for each in range(tables)]
    given = [ends for ends in found if ends is not None]
    assert len(given) >= least * tables
    assert len(given) <= 5 or least > 0, "epsilon 1 tells nothing of 20 ages"
    assert sum(not low <= 1 <= high for low, high in given) <= 6, "more than 1 in 20 miss"


CARDS = """\
version: 1
dataset: clinic
budgets: {dataset: {epsilon: 3}}
tables:
  visits:
    source: visits.parquet
    unit: {column: pid, max_groups: 2, max_rows_per_group: 2}
    columns:
      pid:  {role: identifier, type: integer, between: [0, 1000], nullable: false}
      card: {role: identifier, type: integer, between: [0, 1000], nullable: false}
      pay:  {role: sensitive, type: integer, between: [0, 100], nullable: false}
"""


def test_no_epsilon_is_spent_on_who_somebody_is_and_advice_is_of_one_record(tmp_path: Path) -> None:
    pq.write_table(pa.table({"pid": [1, 1, 2], "card": [7, 7, 8], "pay": [1, 2, 3]}), tmp_path / "visits.parquet")
    (tmp_path / "policy.yaml").write_text(CARDS)
    for name in ("pid", "card"):
        with pytest.raises(ParameterError, match=f"column '{name}' only says whose row it is"):
            randomize(None, tmp_path / "policy.yaml", tmp_path / "o.parquet", 1, columns=[name, "pay"])
    out, policy = tmp_path / "o.parquet", tmp_path / "policy.yaml"
    with pytest.raises(BudgetExceeded, match=r"2 records of one pid are charged: ask for at most epsilon 1.5 a record"):
        randomize(None, policy, out, 2)
    randomize(None, policy, out, "1.5")
    assert pq.read_table(out).column_names == ["pay"]


def test_no_whole_number_makes_randomizing_fail_and_bounds_too_large_are_refused_before_the_charge(
    tmp_path: Path,
) -> None:
    (tmp_path / "pay.csv").write_text("a\n7\n9007199254740993\n-9223372036854775808\n\n")
    policy = tmp_path / "p.yaml"
    text = """version: 1
dataset: pay
budgets: {dataset: {epsilon: 10}}
tables:
  t: {source: pay.csv, unit: row, columns: {a: {role: sensitive, type: integer, between: [%s], nullable: false}}}
"""
    policy.write_text(text % f"{2**60}, {2**60 + 100}")
    with pytest.raises(ParameterError, match="too large"):
        randomize(None, policy, tmp_path / "told.parquet", 1)
    policy.write_text(text % "0, 100")
    randomize(None, policy, tmp_path / "told.parquet", 1)
    told = pq.read_table(tmp_path / "told.parquet")["a"].to_pylist()
    assert len(told) >= 3
    assert all(abs(value) < 10_000 for value in told)  # noise of scale 100: farther once in e^100


def test_a_column_that_is_named_twice_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="named twice"):
        randomize(str(folder / "salaries.parquet"), folder / "policy.yaml", tmp_path / "x.csv", 1, None, ["sex", "sex"],
                  {"sex": "0.2"})  # fmt: skip


FEW = """\
version: 1
dataset: few
budgets: {dataset: {epsilon: 1000}}
tables:
  few:
    source: few.parquet
    unit: row
    columns:
      job: {role: sensitive, categories: [a, b, c], nullable: false}
      pay: {role: sensitive, type: integer, between: [0, 10], nullable: false}
      has: {role: sensitive, type: integer, between: [0, 1]}
"""


@pytest.fixture
def few(tmp_path: Path) -> Callable[..., Path]:
    """Randomize a table of these rows."""
    (tmp_path / "policy.yaml").write_text(FEW)

    def make(epsilon: int, **columns: list[Any]) -> Path:
        pq.write_table(pa.table(columns), tmp_path / "few.parquet")
        randomize(None, tmp_path / "policy.yaml", tmp_path / "told.parquet", epsilon)
        return tmp_path / "told.parquet"

    return make


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [1, 30])
def test_every_number_that_an_estimate_tells_is_finite_or_unknown_however_few_rows_there_are(few, run, rows, epsilon):
    told = few(epsilon, job=["a"] * rows, pay=[3] * rows, has=[None, 1, 0][:rows])
    found = run(f"estimate {told} --mean has --by job --json")
    assert "NaN" not in json.dumps(found)
    assert "Infinity" not in json.dumps(found)
    for group in found["means"]:
        assert 0 <= group["low"] <= group["high"] <= 1
        assert group["mean"] is None or 0 <= group["mean"] <= 1
    if epsilon == 30:  # nobody is in this group, so that nothing is known of it
        assert found["means"][2] == {"group": "c", "mean": None, "low": 0, "high": 1}
    with pytest.raises(DataError, match="fewer records"):
        estimate_released(told, regress="pay", on=["job", "has"])


def test_a_mean_that_is_unknown_is_printed_as_such(few, monkeypatch, capsys):
    from deniable.cli.main import main

    told = few(30, job=["a"] * 5, pay=[3] * 5, has=[1] * 5)
    monkeypatch.setattr(sys, "argv", ["deniable", "estimate", str(told), "--mean", "pay", "--by", "job"])
    with pytest.raises(SystemExit):
        main()
    assert "mean of c: unknown  [0.00, 10.00]" in capsys.readouterr().out


def test_missing_numbers_of_a_scale_without_a_middle_step_move_no_mean(few):
    told = few(48, job=["a"] * 6000, pay=[3] * 6000, has=[1, None, None] * 2000)
    found = estimate_released(told, 0.9999999, number="has", by="job")
    (mean,) = (column["mean"]["mean"] for column in found["columns"] if column["column"] == "has")
    assert mean == pytest.approx(1, abs=0.05)
    assert found["means"][0]["mean"] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("epsilon", "people", "rare", "runs"),
    [("32", 40, 0.04, 300)]
    + [pytest.param(*case, 1500, marks=pytest.mark.slow)
       for case in (("1", 20, 0.5), ("4", 200, 0.5), ("16", 20, 0.04), ("32", 20, 0.01), ("32", 60, 0.1))],
)  # fmt: skip
def test_intervals_of_means_by_group_cover_from_twenty_records_on_where_few_differ(epsilon, people, rare, runs):
    """Ten people of whom one earns 10 rarely show it: their own spread is no measure of what is possible."""
    from fractions import Fraction

    import numpy as np

    from deniable.localdp import records
    from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema

    columns = (Column("job", categories=("a", "b"), nullable=False),
               Column("pay", ColumnType.INTEGER, bounds=Bounds(0, 10), nullable=False))  # fmt: skip
    made, rng = (
        records.plan_records(TableSchema("t", "t.parquet", columns), Fraction(epsilon)),
        np.random.default_rng(5),
    )
    job, chance = rng.choice(["a", "b"], runs * people), rng.random(runs * people)
    pay = np.where(job == "a", 10 * (chance < rare), 10 * (chance < 0.5))
    told = records.randomize(made, pa.table({"job": job, "pay": pay}))
    ends = [records.estimate_means_by(made, told.slice(run * people, people), "pay", "job")[0][1].interval()
            for run in range(runs)]  # fmt: skip
    hit = np.mean([low <= 10 * rare <= high for low, high in ends])
    assert hit > 0.95 - 5.5 * (0.05 * 0.95 / runs) ** 0.5  # a false alarm in 5e-8
