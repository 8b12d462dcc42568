"""`deniable tabulate`: one charge, whole numbers that add up, exact totals where they are declared, and refusals."""

from __future__ import annotations

import csv
import json
import shlex
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable import Curator
from deniable.assess.released_rows import certify_cells, certify_totals, read_released
from deniable.cli.main import app
from deniable.curator.query import tabulate
from deniable.dp.accounting import from_dict
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import (
    AccessRefused,
    BudgetExceeded,
    DeniableError,
    ExecutionFailed,
    InternalError,
    ParameterError,
    PolicyError,
    QueryRefused,
)
from deniable.governance.grants import Asker, Role
from deniable.policy.budget import budget
from deniable.policy.document import read_unaccepted
from deniable.policy.tabulation import Areas, Infer, Measure, Partition, Select, Tabulation
from deniable.release import verify
from noise_spy import additive_noise, check_noise_was_added, drawn_noise, flatten, share_of_claim, watch_noise

POLICY = """
version: 1
dataset: census
tables:
  people:
    source: people.csv
    unit: %(unit)s
    columns:
      pid: {type: integer, role: identifier}
      town: {categories: [a1, a2, a3, b1, b2, b9]}
      sex: {categories: [F, M]}
      age: {type: integer, between: [0, 99]}
  towns: {source: towns.csv, public: true}
tabulation:
  census:
    table: people
    areas: {levels: [state, town], table: towns}
    cells: [sex, age]
    breaks: {age: [0, 18, 65]}
    %(more)s
budgets: {dataset: {rho: 1000, delta: 1e-6}}
"""
TOWNS = ("a1", "a2", "a3", "b1", "b2")
PERSON = "{column: pid, max_groups: 1, max_rows_per_group: 1}"


def make(folder: Path, more: str = "rho: 400", unit: str = PERSON) -> Path:
    (folder / "towns.csv").write_text("state,town\n" + "".join(f"{t[0]},{t}\n" for t in (*TOWNS, "b9")))
    rows = [f"{i},{TOWNS[i % 5]},{'FM'[i % 3 == 0]},{i * 7 % 90}\n" for i in range(600)]
    (folder / "people.csv").write_text("pid,town,sex,age\n" + "".join(rows))
    (folder / "policy.yaml").write_text(POLICY % {"unit": unit, "more": more})
    return folder / "policy.yaml"


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DENIABLE_LEDGER", raising=False)
    return tmp_path


def opened(policy: Path) -> Curator:
    return Curator.open(policy, ledger=policy.with_suffix(".ledger.sqlite"))


def count_exactly(folder: Path) -> Counter[tuple[str, str, str]]:
    def group(age: str) -> str:
        return "0-17" if int(age) < 18 else "18-64" if int(age) < 65 else "65-99"

    with (folder / "people.csv").open() as file:
        return Counter((row["town"], row["sex"], group(row["age"])) for row in csv.DictReader(file))


def run(*words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def spent(curator: Curator) -> Any:
    return curator.context.ledger.balance()[0].spent


def test_cells_come_out_whole_and_add_up_and_nearly_exact_for_a_large_budget(at: Path) -> None:
    make(at, "rho: 400")
    told = run("tabulate", "census", "-o", "out.csv", "--totals", "totals.csv", "--report", "page.html")
    exact = count_exactly(at)
    with (at / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = {(row["town"], row["sex"], row["age"]): int(row["count"]) for row in rows}
    assert found == dict(exact)
    assert all(row["state"] == row["town"][0] for row in rows)
    with (at / "totals.csv").open() as file:
        totals = {(row["level"], row["area"]): int(row["total"]) for row in csv.DictReader(file)}
    assert totals["all", "all"] == 600 == told["total"]
    assert totals["town", "b / b9"] == 0  # nobody lives there, and it is listed all the same
    assert totals["state", "a"] == sum(n for (town, _, _), n in exact.items() if town[0] == "a")
    assert "Errors by size of area" in (at / "page.html").read_text()
    assert told["certified"]["out.csv"]["broken"] == []
    assert verify(at / "out.csv").body["guarantee"]["neighbors"] == "add-remove"


def test_with_much_noise_numbers_add_up_and_exact_totals_are_met_and_stated(at: Path) -> None:
    policy = make(at, "invariants: {state: total}\n    rho: 0.001")
    with opened(policy) as curator:
        report = curator.tabulate("census", out=at / "out.parquet", totals=at / "totals.parquet")
        acts = [(entry.act, entry.details.get("asked", "")) for entry in curator.context.ledger.entries()]
    cells = pq.read_table(at / "out.parquet").to_pylist()
    exact = count_exactly(at)
    assert min(row["count"] for row in cells) > 0
    for state in "ab":
        assert sum(row["count"] for row in cells if row["state"] == state) == (
            sum(n for (town, _, _), n in exact.items() if town[0] == state)
        )  # fmt: skip
    assert {(row["town"], row["sex"], row["age"]): row["count"] for row in cells} != dict(exact)
    totals = {(row["level"], row["area"]): row for row in pq.read_table(at / "totals.parquet").to_pylist()}
    by_town = Counter[str]()
    for row in cells:
        by_town[row["town"]] += row["count"]
    assert all(totals["town", f"{t[0]} / {t}"]["total"] == by_town[t] for t in TOWNS)
    assert totals["state", "a"]["low"] == totals["state", "a"]["high"] == totals["state", "a"]["total"]
    assert totals["town", "a / a1"]["low"] < totals["town", "a / a1"]["high"]
    assert "not private" in report.protects
    stated = verify(at / "out.parquet").body
    assert stated["guarantee"]["neighbors"] == "replace"
    assert "exact numbers" in stated["guarantee"]["unit"]
    assert ("release", "exact numbers beside a tabulation of people: the total of each state") in acts


def test_asked_again_it_gives_what_it_gave_and_charges_nothing(at: Path) -> None:
    policy = make(at, "rho: 0.01")
    with opened(policy) as curator:
        first = curator.tabulate("census", out=at / "one.csv")
        paid = spent(curator)
        again = curator.tabulate("census", out=at / "two.csv")
        assert first.charged
        assert not again.charged
        assert spent(curator) == paid
        assert paid.rho == Fraction(1, 100)
        curator.new_epoch("new data")
        assert curator.tabulate("census", out=at / "three.csv").charged
    assert (at / "one.csv").read_text() == (at / "two.csv").read_text() != (at / "three.csv").read_text()


def test_a_run_that_dies_after_its_charge_is_started_again_under_it(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make(at, "rho: 0.5")
    from deniable.geography import spine

    with opened(policy) as curator:
        with monkeypatch.context() as patched:
            patched.setattr(spine, "infer", lambda *_: 1 / 0)
            with pytest.raises(ExecutionFailed):
                curator.tabulate("census", out=at / "out.csv")
        assert not (at / "out.csv").exists()
        assert spent(curator).rho == Fraction(1, 2)
        curator.tabulate("census", out=at / "out.csv")
        assert spent(curator).rho == Fraction(1, 2)
    assert (at / "out.csv").exists()


def test_the_price_of_each_operator_is_told_without_reading_a_row(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(
        at,
        "measure: [{weight: 2}, {by: [sex]}]\n    levels: {all: 1, state: 1, town: 2}\n"
        "    where: age >= 10\n    rho: 8",
    )
    seen: list[str] = []
    streamed = DuckDBEngine.stream
    monkeypatch.setattr(DuckDBEngine, "stream", lambda e, sql, *a, **k: seen.append(sql) or streamed(e, sql, *a, **k))
    told = run("tabulate", "census", "--explain")
    assert not seen
    assert not (at / "policy.ledger.sqlite").exists()
    operators = [(each["operator"], each["price"]) for each in told["operators"]]
    assert operators[:3] == [("select", "free"), ("partition", "free"), ("measure", "rho 1")]
    priced = [float(price.split()[1]) for kind, price in operators if kind == "measure"]
    assert len(priced) == 9
    assert sum(priced) == pytest.approx(8)
    shares = {each["what"]: each["share"] for each in told["operators"]}
    assert shares["the total, each town"] == pytest.approx(0.25)
    assert [level["areas"] for level in told["levels"]] == [1, 2, 6]


def test_a_plan_of_operators_in_python_and_in_a_file_is_the_plan_of_the_policy(at: Path) -> None:
    policy = make(
        at, "where: age >= 10\n    measure: [{}, {by: [age], weight: 3}]\n    invariants: {all: [sex]}\n    rho: 2"
    )
    plan = (
        Tabulation("mine", "people", budget(rho=2))
        | Select("age >= 10")
        | Partition(("sex", "age"), Areas(("state", "town"), "town", "towns"), {"age": (0, 18, 65)})
        | Measure()
        | Measure(("age",), Fraction(3))
        | Infer({"all": ("sex",)})
    )
    (at / "plan.yaml").write_text(
        "table: people\nareas: {levels: [state, town], table: towns}\ncells: [sex, age]\nbreaks: {age: [0, 18, 65]}\n"
        "where: age >= 10\nmeasure: [{}, {by: [age], weight: 3}]\ninvariants: {all: [sex]}\nrho: 2\n"
    )
    with opened(policy) as curator:
        told = [curator.explain_tabulate(each).to_dict() for each in ("census", plan, "plan.yaml")]
        assert told[0]["operators"] == told[1]["operators"] == told[2]["operators"]
        report = curator.tabulate(plan, out=at / "out.parquet")
        cells = pq.read_table(at / "out.parquet").to_pylist()
        with (at / "people.csv").open() as file:
            women = sum(row["sex"] == "F" and int(row["age"]) >= 10 for row in csv.DictReader(file))
        assert sum(row["count"] for row in cells if row["sex"] == "F") == women
        assert not curator.tabulate("census").charged  # the same plan under another name
        assert report.charged


AREAS = Areas(("state", "town"), "town", "towns")
PLAN = Tabulation("mine", "people", budget(rho=2))
UNFIT: dict[str, Any] = {
    "a column twice": lambda: PLAN | Partition(("sex", "sex"), AREAS),
    "no cells": lambda: PLAN | Partition((), AREAS),
    "cells as a text": lambda: PLAN | Partition("sex", AREAS),  # type: ignore[arg-type]
    "cells that are no names": lambda: PLAN | Partition((1,), AREAS),  # type: ignore[arg-type]
    "areas as a text": lambda: PLAN | Partition(("sex",), "towns"),  # type: ignore[arg-type]
    "a level twice": lambda: PLAN | Partition(("sex",), Areas(("town", "town"), "town", "towns")),
    "levels as a text": lambda: PLAN | Partition(("sex",), Areas("town", "town", "towns")),  # type: ignore[arg-type]
    "no partition": lambda: PLAN,
    "two partitions": lambda: PLAN | Partition(("sex",), AREAS) | Partition(("sex",), AREAS),
    "a number": lambda: PLAN | Partition(("sex",), AREAS) | 5,  # type: ignore[operator]
    "a text": lambda: PLAN | Partition(("sex",), AREAS) | "junk",  # type: ignore[operator]
    "nothing": lambda: PLAN | Partition(("sex",), AREAS) | None,  # type: ignore[operator]
    "a class": lambda: PLAN | Partition(("sex",), AREAS) | Measure,  # type: ignore[operator]
    "areas alone": lambda: PLAN | Partition(("sex",), AREAS) | AREAS,  # type: ignore[operator]
    "parts that are none": lambda: Tabulation("mine", "people", budget(rho=2), (Partition(("sex",), AREAS), 5)),  # type: ignore[arg-type]
    "no budget": lambda: Tabulation("mine", "people", 2) | Partition(("sex",), AREAS),  # type: ignore[arg-type]
    "a sample of 0": lambda: PLAN | Select("", sample=Fraction(0)) | Partition(("sex",), AREAS),
    "a sample of no number": lambda: PLAN | Select("", sample=float("nan")) | Partition(("sex",), AREAS),  # type: ignore[arg-type]
    "a sample above 1": lambda: PLAN | Select("", sample=2) | Partition(("sex",), AREAS),  # type: ignore[arg-type]
    "a sample of 2 in 3": lambda: (
        Tabulation("mine", "people", budget(1)) | Select("", sample="2/3") | Partition(("sex",), AREAS)  # type: ignore[arg-type]
    ),
    "two samples": lambda: (
        Tabulation("mine", "people", budget(1)) | Select("", Fraction(1, 2)) | Select("", Fraction(1, 2))
        | Partition(("sex",), AREAS)
    ),
    "a condition that is no text": lambda: PLAN | Select(5) | Partition(("sex",), AREAS),  # type: ignore[arg-type]
    "a margin that is no margin": lambda: PLAN | Partition(("sex",), AREAS) | Measure(("age",)),
    "a margin twice": lambda: PLAN | Partition(("sex",), AREAS) | Measure(("sex", "sex")),
    "a weight of 0": lambda: PLAN | Partition(("sex",), AREAS) | Measure((), Fraction(0)),
    "a weight that is none": lambda: PLAN | Partition(("sex",), AREAS) | Measure((), "much"),  # type: ignore[arg-type]
    "invariants by no name": lambda: PLAN | Partition(("sex",), AREAS) | Infer(("state",)),  # type: ignore[arg-type]
    "invariants as a text": lambda: PLAN | Partition(("sex",), AREAS) | Infer({"state": "sex"}),  # type: ignore[dict-item]
    "a level that is not there": lambda: PLAN | Partition(("sex",), AREAS) | Infer({"county": ()}),
    "a level without weight": lambda: PLAN | Partition(("sex",), AREAS) | Infer(levels={"town": Fraction(0)}),
    "two of one kind": lambda: PLAN | Partition(("sex",), AREAS) | Infer() | Infer(),
    "breaks of no cell": lambda: PLAN | Partition(("sex",), AREAS, {"age": (0, 18)}),
    "breaks that are not whole": lambda: PLAN | Partition(("age",), AREAS, {"age": (0, 17.5)}),  # type: ignore[dict-item]
    "breaks twice": lambda: PLAN | Partition(("age",), AREAS, {"age": (0, 18, 18)}),
    "a budget that protects nobody": lambda: (
        Tabulation("mine", "people", budget(rho=10_001)) | Partition(("sex",), AREAS)
    ),
    "no plan": lambda: None,
    "an operator alone": lambda: Partition(("sex",), AREAS),
}  # fmt: skip


@pytest.mark.parametrize("what", UNFIT)
def test_a_plan_in_python_is_refused_where_one_of_the_policy_would_be(at: Path, what: str) -> None:
    """Before, some of these were charged, and ended in an unforeseen error, zeros, or something ignored."""
    with opened(make(at)) as curator:
        for run in (curator.explain_tabulate, curator.tabulate):
            with pytest.raises(ParameterError):
                run(UNFIT[what]())
        assert not list(curator.context.ledger.entries(acts=("charge",)))


def test_a_plan_in_python_takes_lists_and_numbers_as_the_policy_does(at: Path) -> None:
    plan = (
        Tabulation("mine", "people", budget(epsilon=1))
        | Select("age >= 10", "0.25")  # type: ignore[arg-type]
        | Partition(["sex", "age"], Areas(["state", "town"], "town", "towns"), {"age": [0, 18, 65]})  # type: ignore[arg-type, dict-item]
        | Measure(["age"], "3")  # type: ignore[arg-type]
        | Infer(levels={"all": 1, "town": 0.5})  # type: ignore[dict-item]
    )
    same = make(at, "epsilon: 1\n    where: age >= 10\n    sample: 0.25\n    measure: [{by: [age], weight: 3}]\n    "
                    "levels: {all: 1, town: 0.5}")  # fmt: skip
    with opened(same) as curator:
        told = [curator.explain_tabulate(each).to_dict() for each in ("census", plan)]
        assert told[0]["operators"] == told[1]["operators"]
        assert curator.tabulate(plan).charged
        assert not curator.tabulate("census").charged  # it is one plan, and has one charge
        with pytest.raises(ParameterError, match="no file of them"):
            curator.tabulate("census", of={"sex": "F"})


def test_without_areas_it_is_a_table_of_everybody_and_prefixes_make_areas(at: Path) -> None:
    policy = make(at, "rho: 400")
    whole = Tabulation("whole", "people", budget(epsilon=50)) | Partition(("sex",))
    coded = Tabulation("coded", "people", budget(rho=400)) | Partition(
        ("sex",), Areas(("state", "town"), "town", "", (1,))
    )
    with opened(policy) as curator:
        assert curator.tabulate(whole, out=at / "whole.csv").total == 600
        assert "pure" not in (at / "whole.csv").read_text()
        report = curator.tabulate(coded, out=at / "coded.csv")
    assert (at / "whole.csv").read_text().splitlines()[0] == '"sex","count"'
    assert {row.area: row.total for row in report.totals}["b / b9"] == 0
    assert (at / "coded.csv").read_text().splitlines()[1].startswith('"a","a1"')


RUN_BY_SPREADSHEETS = ("=a", "@b", "-c", "+d", "\t=e", "- none -", "'=f", "-5")


def test_areas_and_cells_that_a_spreadsheet_would_run_are_certified_in_every_format(at: Path) -> None:
    """The quote that stands before them in a CSV file is no part of them: the certifier undoes it."""
    policy = make(at, "rho: 400\n    invariants: {state: [kind]}").read_text()
    kinds = ", ".join(json.dumps(name) for name in RUN_BY_SPREADSHEETS)
    columns = f"      kind: {{categories: [{kinds}]}}\n      age: {{type: integer, between: [-5, 5]}}"
    policy = policy.replace("      age: {type: integer, between: [0, 99]}", columns).replace(
        "[a1, a2, a3, b1, b2, b9]", f"[{kinds}]"
    )
    policy = policy.replace("cells: [sex, age]", "cells: [kind, age]").replace("[0, 18, 65]", "[-5, 0, 3]")
    (at / "policy.yaml").write_text(policy)
    with (at / "towns.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("state", "town"), *((f"-S{name[1:2]}", name) for name in RUN_BY_SPREADSHEETS)])
    with (at / "people.csv").open("w", newline="") as file:
        every = [(i, RUN_BY_SPREADSHEETS[i % 8], "F", i % 11 - 5, RUN_BY_SPREADSHEETS[i % 5]) for i in range(600)]
        csv.writer(file).writerows([("pid", "town", "sex", "age", "kind"), *every])
    with opened(at / "policy.yaml") as curator:
        report = curator.tabulate(
            "census", out="cells.csv", totals="totals.csv", shares="shares.csv", of={"kind": "=a"}
        )
        assert set(report.certified) == {"cells.csv", "totals.csv"}
        curator.tabulate("census", out="cells.parquet")
    plain = pq.read_table(at / "cells.parquet").cast(read_released(at / "cells.csv").schema)
    assert read_released(at / "cells.csv").equals(plain)
    assert {"-5--1", "0-2", "3-5"} == set(plain["age"].to_pylist())
    assert set(RUN_BY_SPREADSHEETS) == set(plain["town"].to_pylist())
    with (at / "cells.csv").open(newline="") as file:
        written = {row["town"] for row in csv.DictReader(file)}
    assert written == {*(f"'{name}" for name in RUN_BY_SPREADSHEETS[:-1]), "-5"}


def test_a_person_counts_with_as_many_rows_as_the_noise_is_made_for(at: Path) -> None:
    policy = make(at, "rho: 400", unit="{column: pid, bounding: rows, max_rows: 3}")
    (at / "people.csv").write_text("pid,town,sex,age\n" + "1,a1,F,30\n" * 50 + "2,b1,M,40\n")
    with opened(policy) as curator:
        report = curator.tabulate("census", out=at / "out.csv")
        plan = tabulate.plan_tabulation(curator.context, "census")
    assert report.total == 4
    assert plan.reach == 3
    assert plan.design.noises[0] is not None
    assert plan.design.noises[0][0].event.sensitivity_squared == 9


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("rho: 0", "rho"),
        ("cells: [pid]\n    rho: 1", "twice"),
        ("invariants: {block: total}\n    rho: 1", "level 'block'"),
        ("invariants: {state: [sex], town: [age]}\n    rho: 1", "leave out columns"),
        ("levels: {town: 1, tonw: 2}\n    rho: 1", "tonw"),
        ("measure: [{by: [town]}]\n    rho: 1", "not a margin"),
        ("epsilon: 1\n    rho: 1", "epsilon"),
        ("areas: {levels: [sex, town], table: towns}\n    rho: 1", "twice"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_its_place(at: Path, more: str, words: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        read_unaccepted(make(at, more))
    assert words in " ".join(each.message for each in refusal.value.mistakes)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ("a,a1\na,a1\n", ParameterError, "listed twice"),
        ("a,a1\n,a2\n", ParameterError, "no name"),
        ("a,1\na,2\n", ParameterError, "'town' is integer in 'towns', and 'town' is text"),
    ],
)
def test_a_list_of_areas_that_is_no_tree_is_refused_before_anything_is_charged(
    at: Path, change: str, kind: type[DeniableError], words: str
) -> None:
    policy = make(at, "rho: 1")
    (at / "towns.csv").write_text("state,town\n" + change)
    with opened(policy) as curator:
        with pytest.raises(kind, match=words):
            curator.tabulate("census")
        assert not list(curator.context.ledger.entries(acts=("charge",)))


def test_levels_in_another_order_and_an_empty_list_are_refused_before_anything_is_charged(at: Path) -> None:
    policy = make(at)
    text = policy.read_text().replace("levels: [state, town]", "levels: [county, state, town]")
    policy.write_text(text)
    (at / "towns.csv").write_text("state,county,town\n" + "".join(f"{t[0]},{t[0]}-{t > 'a1'},{t}\n" for t in TOWNS))
    with opened(policy) as curator, pytest.raises(ParameterError, match=r"\[state, county, town\]"):
        curator.explain_tabulate("census")
    policy.write_text(text.replace("[county, state, town]", "[state, county, town]"))
    with opened(policy) as curator:
        assert curator.tabulate("census").total == 600
    (at / "towns.csv").write_text("state,county,town\n")
    text = policy.read_text().replace("source: towns.csv, public: true", TYPED)
    policy.write_text(text)
    with opened(policy) as curator:
        before = spent(curator)
        with pytest.raises(ParameterError, match="list of areas is empty"):
            curator.tabulate("census")
        assert spent(curator) == before


TYPED = "source: towns.csv, public: true, columns: {state: {}, county: {}, town: {}}"


def test_a_value_outside_its_bounds_counts_nowhere(at: Path) -> None:
    for more in ("epsilon: 400", "epsilon: 400\n    where: age > -10"):
        policy = make(at, more)
        policy.write_text(policy.read_text().replace("rho: 1000, delta: 1e-6", "epsilon: 4000"))
        (at / "people.csv").write_text("pid,town,sex,age\n1,a1,F,150\n2,a1,F,-5\n3,a1,F,99\n4,a1,F,0\n5,a1,F,100\n")
        with Curator.open(policy, ledger=None) as curator:
            assert curator.tabulate("census", out=at / "out.csv").total == 2
        with (at / "out.csv").open() as file:
            assert sorted((row["age"], row["count"]) for row in csv.DictReader(file)) == [("0-17", "1"), ("65-99", "1")]


@pytest.mark.parametrize("epsilon", ["0.1", "2", "3", "8", "30", "80", "4000"])
def test_every_epsilon_is_priced_as_asked_with_a_delta_and_without(at: Path, epsilon: str) -> None:
    for more in (f"epsilon: {epsilon}\n    delta: 1e-7", f"epsilon: {epsilon}"):
        policy = make(at, more)
        policy.write_text(policy.read_text().replace("rho: 1000", "epsilon: 9000, accounting: zcdp"))
        with Curator.open(policy, ledger=None) as curator:
            curator.explain_tabulate("census")
            assert curator.tabulate("census").epsilon <= Fraction(epsilon)


@pytest.mark.parametrize("accounting", ["pure", "pld"])
def test_a_plan_that_the_ledger_cannot_price_is_refused_when_it_is_explained(at: Path, accounting: str) -> None:
    policy = make(at, "epsilon: 50\n    delta: 1e-7")
    policy.write_text(policy.read_text().replace("rho: 1000", f"epsilon: 9000, accounting: {accounting}"))
    with Curator.open(policy, ledger=None) as curator, pytest.raises(ParameterError, match="cannot price"):
        curator.explain_tabulate("census")


def test_who_may_not_and_what_does_not_fit_is_refused(at: Path) -> None:
    policy = make(at, "rho: 400")
    with opened(policy) as curator:
        with pytest.raises(AccessRefused, match="steward"):
            curator.tabulate("census", who=Asker("ana", "", Role.ANALYST))
        with pytest.raises(ParameterError, match="no tabulation 'cencus'"):
            curator.tabulate("cencus")
        over = Tabulation("over", "people", budget(rho=1001)) | Partition(("sex",))
        with pytest.raises(BudgetExceeded):
            curator.tabulate(over)
        nested = Tabulation("n", "people", budget(rho=1)) | Select("age > 1) OR (age < 5") | Partition(("sex",))
        with pytest.raises(DeniableError):
            curator.tabulate(nested)
        assert spent(curator).rho == 0
    scaled = make(at, "rho: 1", unit="{column: pid, bounding: scale, max_groups: 2, max_rows_per_group: 2}")
    with opened(scaled) as curator, pytest.raises(QueryRefused, match="scaled"):
        curator.explain_tabulate("census")


def test_noise_for_less_than_one_unit_moves_is_found_before_anything_runs(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deniable.geography import spine

    policy = make(at, "rho: 1")
    honest = spine.make_noise
    for broken in (
        lambda b, share, reach, replaced: honest(b, share, reach, replaced) if share > Fraction(1, 7) else (
            type(honest(b, share, reach, replaced))(Fraction(1, 100), Fraction(1, 100))
        ),
        lambda b, share, reach, replaced: honest(b, share * 2, reach, replaced),
    ):  # fmt: skip
        with monkeypatch.context() as patched, opened(policy) as curator:
            patched.setattr(spine, "make_noise", broken)
            with pytest.raises(InternalError):
                curator.tabulate("census")
            assert not list(curator.context.ledger.entries(acts=("charge",)))


def test_a_file_that_was_changed_is_not_certified(at: Path) -> None:
    make(at, "invariants: {state: total}\n    rho: 0.1")
    run("tabulate", "census", "-o", "out.csv", "--totals", "totals.csv")
    exact = count_exactly(at)
    states = Counter[tuple[str, ...]]()
    for (town, _, _), n in exact.items():
        states[(town[0],)] += n
    areas = {"state": [t[0] for t in (*TOWNS, "b9")], "town": [*TOWNS, "b9"]}
    labels = {"sex": ("F", "M"), "age": ("0-17", "18-64", "65-99")}

    def check(text: str) -> tuple[str, ...]:
        (at / "changed.csv").write_text(text)
        return certify_cells(at / "changed.csv", areas, labels, {"state": ((), states)}, "count").broken

    honest = (at / "out.csv").read_text()
    head, first, *rest = honest.splitlines()
    number = int(first.rsplit(",", 1)[1])
    assert check(honest) == ()
    for changed in (
        first.rsplit(",", 1)[0] + f",{number + 1}",
        first.rsplit(",", 1)[0] + ",-3",
        first.rsplit(",", 1)[0] + ",1.5",
        first.replace('"F"', '"X"').replace('"M"', '"X"'),
        '"b"' + first[3:],
        first.replace('"a1"', '"zz"'),
        f"{first}\n{first}",
    ):
        assert check("\n".join([head, changed, *rest]) + "\n"), changed
    sizes = {"all": 1, "state": 2, "town": 6}
    assert certify_totals(at / "totals.csv", sizes).broken == ()
    lines = (at / "totals.csv").read_text().splitlines()
    (at / "totals2.csv").write_text("\n".join([*lines[:-1], lines[-1].replace("b9", "b8")]).replace(",600,", ",601,"))
    assert certify_totals(at / "totals2.csv", sizes).broken


def test_exact_margins_are_met_in_the_file_and_a_file_that_misses_one_is_found(at: Path) -> None:
    make(at, "invariants: {state: [sex], town: total}\n    rho: 0.01")
    told = run("tabulate", "census", "-o", "out.csv")
    assert told["certified"]["out.csv"]["invariants"] == ["all", "state", "town"]
    exact = count_exactly(at)
    with (at / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    for state in "ab":
        for sex in "FM":
            wanted = sum(n for (town, s, _), n in exact.items() if (town[0], s) == (state, sex))
            assert sum(int(row["count"]) for row in rows if (row["state"], row["sex"]) == (state, sex)) == wanted
    women = sum(n for (town, sex, _), n in exact.items() if (town[0], sex) == ("a", "F"))
    men = sum(n for (town, sex, _), n in exact.items() if (town[0], sex) == ("a", "M"))
    areas = {"state": [t[0] for t in (*TOWNS, "b9")], "town": [*TOWNS, "b9"]}
    labels = {"sex": ("F", "M"), "age": ("0-17", "18-64", "65-99")}
    rest = {("b", s): sum(n for (t, x, _), n in exact.items() if (t[0], x) == ("b", s)) for s in "FM"}
    for off, broken in ((0, False), (1, True)):
        wanted = {("a", "F"): women + off, ("a", "M"): men - off, **rest}
        found = certify_cells(at / "out.csv", areas, labels, {"state": (("sex",), wanted)}, "count")
        assert bool(found.broken) is broken


def test_shares_of_people_are_written_for_every_area_and_refused_before_the_charge_where_nobody_can_be(
    at: Path,
) -> None:
    make(at, "rho: 40")
    told = run("tabulate", "census", "--shares", "shares.csv", "--of", "age=65-99")
    with (at / "shares.csv").open() as file:
        rows = {(row["level"], row["area"]): row for row in csv.DictReader(file)}
    assert told["charged"]
    assert len(rows) == 2 + 6
    exact = count_exactly(at)
    old = sum(n for (town, _, age), n in exact.items() if (town, age) == ("a1", "65-99"))
    whole = sum(n for (town, _, _), n in exact.items() if town == "a1")
    assert abs(float(rows["town", "a / a1"]["share"]) - old / whole) < 0.02
    assert 0.1 < float(rows["town", "b / b9"]["smoothed"]) < 0.5  # nobody lives there: its state's share
    with opened(at / "policy.yaml") as curator:
        charges = len(list(curator.context.ledger.entries(acts=("charge",))))
        other = Tabulation("t", "people", budget(rho=1)) | Partition(("sex",))
        with pytest.raises(ParameterError, match="no cell"):
            curator.tabulate(other, shares=at / "s.csv", of={"sex": "X"})
        assert len(list(curator.context.ledger.entries(acts=("charge",)))) == charges


def test_shares_of_exact_numbers_have_no_error_and_others_have_one(at: Path) -> None:
    make(at, "rho: 40\n    invariants: {state: [age]}")
    run("tabulate", "census", "--shares", "old.csv", "--of", "age=65-99")
    run("tabulate", "census", "--shares", "women.csv", "--of", "sex=F")
    found = {}
    for name in ("old", "women"):
        with (at / f"{name}.csv").open() as file:
            found |= {(name, row["level"], row["area"]): row for row in csv.DictReader(file)}
    errors = {key: float(row["error"]) for key, row in found.items()}
    assert errors["old", "state", "a"] == errors["old", "state", "b"] == 0
    assert min(errors["old", "town", "a / a1"], errors["women", "state", "a"], errors["women", "town", "a / a1"]) > 0
    counts = count_exactly(at)
    people = {old: sum(n for (town, _, age), n in counts.items() if town[0] == "a" and (age == "65-99" or not old))
              for old in (True, False)}  # fmt: skip
    row = found["old", "state", "a"]
    assert float(row["share"]) == float(row["smoothed"]) == pytest.approx(people[True] / people[False], abs=1e-5)


def test_a_name_that_would_stand_for_two_columns_is_refused(at: Path) -> None:
    policy = make(at, "rho: 1")
    plan = Tabulation("t", "people", budget(rho=1)) | Partition(("sex",), Areas(("sex", "town"), "town", "towns"))
    with opened(policy) as curator, pytest.raises(ParameterError, match="names two columns"):
        curator.explain_tabulate(plan)


def test_booleans_and_whole_numbers_are_cells_and_codes_with_zeros_are_areas(at: Path) -> None:
    (at / "areas.csv").write_text("state,town\n" + "".join(f"0{i // 3},0{i // 3}{i:03d}\n" for i in range(6)))
    rows = [f"{i},0{i % 6 // 3}{i % 6:03d},{'true' if i % 2 else 'false'},{i % 3}\n" for i in range(300)]
    (at / "people.csv").write_text("pid,town,member,kind\n" + "".join(rows))
    (at / "policy.yaml").write_text(
        "version: 1\ndataset: d\ntables:\n  people:\n    source: people.csv\n    unit: row\n    columns:\n"
        "      pid: {type: integer, role: identifier}\n      town: {}\n      member: {type: boolean}\n"
        "      kind: {type: integer, categories: [0, 1, 2]}\n  areas: {source: areas.csv, public: true}\n"
        "tabulation:\n  t:\n    table: people\n    areas: {levels: [state, town], table: areas, prefixes: [2]}\n"
        "    cells: [member, kind]\n    invariants: {town: [member]}\n    epsilon: 1\n"
        "budgets: {dataset: {epsilon: 2}}\n"
    )
    for out in ("t.csv", "t.parquet"):
        told = run("tabulate", "t", "-o", out)
        assert told["certified"][out]["invariants"] == ["all", "state", "town"]
    found = Counter[tuple[str, bool]]()
    for row in pq.read_table(at / "t.parquet").to_pylist():
        found[row["town"], row["member"]] += row["count"]
    exact = Counter((f"0{i % 6 // 3}{i % 6:03d}", bool(i % 2)) for i in range(300))
    assert found == exact


@pytest.mark.parametrize(
    ("more", "unit", "stranger"),
    [
        ("measure: [{}, {by: [sex]}]\n    rho: 0.5", PERSON, "9999,a1,F,30\n" * 4),
        ("epsilon: 1", "{column: pid, bounding: rows, max_rows: 3}", "9999,a1,F,30\n" * 9),
    ],
    ids=["gaussian", "laplace, three rows"],
)
def test_what_is_drawn_is_what_is_charged_and_the_file_follows_from_noisy_numbers_alone(
    at: Path, more: str, unit: str, stranger: str
) -> None:
    """Recorded on one table and replayed on a neighbor: the same bytes, and no number moves more than was paid for."""
    seen = []
    for place, extra in (("here", ""), ("there", stranger)):
        (at / place).mkdir()
        policy = make(at / place, more, unit)
        with (at / place / "people.csv").open("a") as file:
            file.write(extra)
        with watch_noise(seen[0].recorded() if seen else None) as spy, opened(policy) as curator:
            curator.tabulate("census", out=at / place / "out.csv")
            events = flatten(from_dict(next(iter(curator.context.ledger.entries(acts=("charge",)))).event))
        seen.append(spy)
    assert additive_noise(events) == drawn_noise(seen[0].draws)
    check_noise_was_added(seen[0])
    assert (at / "here" / "out.csv").read_bytes() == (at / "there" / "out.csv").read_bytes()
    moved = [share_of_claim(now, then) for now, then in zip(seen[1].measured, seen[0].measured, strict=True)]
    assert len(moved) == len(events)
    assert max(moved) == 1 == min(moved)


def test_over_http_the_steward_prices_and_measures_and_analysts_read_what_was_published(
    tmp_path: Path, serve: Any
) -> None:
    import httpx

    make(tmp_path, "rho: 400")
    people = "  purposes: {research: {rho: 1}, care: {rho: 1}}\n  analysts:\n"
    people += "    ana: {purposes: [research]}\n    ben: {purposes: [care]}\n"
    before, after = "budgets: {dataset: {rho: 1000, delta: 1e-6}}", "budgets:\n  dataset: {rho: 1000, delta: 1e-6}\n"
    policy = (tmp_path / "policy.yaml").read_text().replace(before, after + people)
    (tmp_path / "towns.csv").rename(tmp_path / "areas.csv")  # the server's own example has a file of that name
    with serve(policy=policy.replace("towns.csv", "areas.csv")) as up:

        def ask(method: str, path: str, who: str = "ana", **more: str) -> httpx.Response:
            place = up.steward if who == "steward" and method != "READ" else up.http
            headers = {"authorization": f"Bearer {up.tokens[who]}", **more}
            return httpx.request(method.replace("READ", "GET"), f"{place}/v1/{path}", headers=headers, timeout=60)

        told = ask("GET", "tabulations/census/explain", "steward").json()
        assert {each["operator"] for each in told["operators"]} >= {"partition", "measure", "infer"}
        early = ask("GET", "tabulations/census").json()
        assert "nothing of 'census' was published in this epoch" in early["happened"]
        assert early["charged"] is False
        assert ask("POST", "tabulations/census").status_code == 405  # it is for the steward's port
        assert list(up.curator.ledger.entries(acts=("charge",))) == []
        first, again = (ask("POST", "tabulations/census", "steward") for _ in range(2))
        assert [each.headers["x-deniable-charged"] for each in (first, again)] == ["true", "false"]
        assert first.json()["totals"] == again.json()["totals"]
        read = ask("GET", "tabulations/census").json()
        assert (read["total"], read["charged"]) == (600, False)
        cells = ask("READ", "tabulations/census/cells").json()["rows"]
        assert {(row["town"], row["sex"], row["age"]): row["count"] for row in cells} == dict(count_exactly(tmp_path))
        shown = ask("READ", "tabulations/census/cells", accept="text/csv").text.splitlines()
        assert shown[0] == "state,town,sex,age,count"
        assert len(shown) == 1 + len(cells)
        assert len(list(up.curator.ledger.entries(acts=("charge",)))) == 1
        # A path names a tabulation of the policy, never a file of the server.
        (tmp_path / "plan.yaml").write_text("table: people\ncells: [sex]\nrho: 1\n")
        for name in ("nobody", "plan.yaml", "..%2Fplan.yaml"):
            for method, who in (("GET", "ana"), ("POST", "steward")):
                assert 400 <= ask(method, f"tabulations/{name}", who).status_code < 500
        up.curator.new_epoch("other people")
        assert "in this epoch" in ask("GET", "tabulations/census").text


@pytest.mark.parametrize("how", ["purge", "loss"])
def test_a_tabulation_whose_numbers_are_gone_is_made_again_as_it_is_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    policy = make(tmp_path)
    text, backup, out = policy.read_text(), tmp_path / "backup", tmp_path / "out.csv"

    def run(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words])
        return done.exception

    if how == "purge":
        assert run("tabulate", "census", "-o", str(out)) is None
        policy.write_text(f"{text}expires: 2020-01-01\n")
        assert run("purge") is None
        policy.write_text(text)
    else:
        with pytest.MonkeyPatch.context() as dying:  # charged, and not stored when the backup was made
            dying.setattr(tabulate, "_measure", lambda *_: 1 / 0)
            assert isinstance(run("tabulate", "census", "-o", str(out)), ExecutionFailed)
        assert run("ledger", "backup", str(backup)) is None
        assert run("tabulate", "census", "-o", str(out)) is None
        for each in tmp_path.glob("policy.*sqlite*"):
            each.unlink()
        assert run("ledger", "restore", str(backup), "--lost", "--by", "sam", "--reason", "a disk broke") is None
        assert run("ledger", "settle", "--everything", "--withdrawals-entered", "--by", "sam", "--reason", "x") is None
    out.unlink()
    refused = run("tabulate", "census", "-o", str(out))
    assert isinstance(refused, AccessRefused)
    advised = shlex.split(str(refused.remedy).partition(": ")[2])
    assert advised[:2] == ["deniable", "epoch"]
    assert run(*advised[1:]) is None
    if how == "purge":
        assert run("tabulate", "census", "-o", str(out)) is None
    else:  # the budget was settled as spent: it would be charged anew
        assert isinstance(run("tabulate", "census", "-o", str(out)), BudgetExceeded)
