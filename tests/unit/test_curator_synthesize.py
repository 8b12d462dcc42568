"""Synthesis in Python goes through the curator: charged, bounded, refused like everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable import Curator
from deniable.curator.synthesize.inspect import steward
from deniable.errors import AccessRefused, BudgetExceeded, DeniableError, ParameterError
from deniable.governance.grants import Asker, Role
from deniable.policy.document import parse
from deniable.release import verify
from deniable.synth.model import SynthModel

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: {column: who, max_rows_per_group: 2}
    columns:
      who:  {role: identifier}
      sex:  {categories: [F, M], role: sensitive, nullable: false}
      ward: {categories: [a, b, c], role: sensitive, nullable: false}
budgets:
  dataset: {epsilon: 10, delta: 1e-4, accounting: zcdp}
  purposes: {research: {epsilon: 5, delta: 1e-4}}
  analysts: {ana: {purposes: [research]}}
"""
ROWS = pa.table(
    {
        "who": [f"p{i // 50}" for i in range(2000)],
        "sex": ["FM"[i // 50 % 2] for i in range(2000)],
        "ward": ["abc"[i % 3] for i in range(2000)],
    }
)


@pytest.fixture
def curator() -> Curator:
    return Curator(parse(POLICY), sources={"visits": ROWS})


def test_a_model_is_charged_and_sees_no_more_rows_of_a_unit_than_the_policy_says(curator: Curator) -> None:
    model = curator.describe("visits", epsilon=9, delta=1e-5)
    assert isinstance(model, SynthModel)
    assert model.description.estimates.total == pytest.approx(80, abs=40)  # 40 units, two rows each, of 2,000
    charged = [entry.technique for entry in curator.ledger.entries() if entry.technique]
    assert charged == ["differentially private synthesis"]
    with pytest.raises(BudgetExceeded):
        curator.describe("visits", epsilon=9, delta=1e-5)


def test_rows_are_drawn_from_a_model_or_its_file_and_both_are_the_same(curator: Curator, tmp_path: Path) -> None:
    model = curator.describe("visits", tmp_path / "model.json", epsilon=1, delta=1e-5, method="independent")
    made = Curator.generate(model, 30, seed=4, where={"sex": "F"})
    assert made.num_rows == 30
    assert set(made["sex"].to_pylist()) == {"F"}
    assert made.equals(Curator.generate(tmp_path / "model.json", 30, seed=4, where="sex=F"))


def test_a_release_of_an_analyst_has_a_statement_and_is_charged_to_the_analyst(tmp_path: Path) -> None:
    ana, out = Asker("ana", "research", Role.ANALYST), tmp_path / "made.parquet"
    with Curator(parse(POLICY), sources={"visits": ROWS}) as curator:
        released = curator.synthesize("visits", out, epsilon=1, delta=1e-5, rows=20, who=ana, columns=("sex", "ward"))
        assert pq.read_table(out).num_rows == 20
        assert verify(out).body["guarantee"]["epsilon"] == "1"
        assert released.details["columns"] == ["sex", "ward"]
        assert {entry.analyst for entry in curator.ledger.entries() if entry.technique} == {"ana"}


def test_a_model_is_inspected_by_anyone_and_beside_real_rows_by_the_steward_alone(curator: Curator) -> None:
    model = curator.describe("visits", epsilon=5, delta=1e-5)
    shown = curator.inspect(model, marginals=(("sex", "ward"),))
    assert shown.asked_marginals == 1  # type: ignore[union-attr]
    assert "utility" in curator.inspect(model, against="visits").to_dict()
    with pytest.raises(AccessRefused, match="without noise"):
        steward(curator.context.speak_for(Asker("ana", "research", Role.ANALYST)), model, "visits")


def test_a_model_without_tables_of_several_columns_has_no_noise_in_one(curator: Curator) -> None:
    assert (
        curator.inspect(curator.describe("visits", epsilon=1, delta=1e-5, method="independent"))["noise_in_a_table"]
        is None
    )
    drowned, clear = (curator.describe("visits", rho=rho, method="independent") for rho in ("1e-9", "1/2"))
    assert curator.inspect(drowned)["noise_in_a_column"] > 0.2
    assert curator.inspect(clear)["noise_in_a_column"] < 0.1
    measured = curator.describe("visits", epsilon=5, delta=1e-5, workload=[("sex", "ward")], method="mwem")
    assert curator.inspect(measured)["method"] == "mwem"


@pytest.mark.parametrize("call", ["describe", "synthesize", "train", "query"])
def test_a_budget_that_protects_nobody_is_refused_by_all_and_charged_by_none(call: str, tmp_path: Path) -> None:
    policy = parse(POLICY.replace("epsilon: 10,", "epsilon: 1000000,"))
    with Curator(policy, sources={"visits": ROWS}) as curator:
        calls = {
            "describe": lambda: curator.describe("visits", epsilon=1e5, delta=1e-5),
            "synthesize": lambda: curator.synthesize("visits", tmp_path / "made.csv", epsilon=1e5, delta=1e-5),
            "train": lambda: curator.train("visits", "sex", epsilon=1e5, delta="1e-5"),
            "query": lambda: curator.query("SELECT COUNT(*) FROM visits", epsilon=1e5),
        }
        with pytest.raises(DeniableError, match="above 10,000, which protects nobody"):
            calls[call]()
        assert not [entry for entry in curator.ledger.entries() if entry.technique]


@pytest.mark.parametrize(
    "wrong",
    [{"where": "sex"}, {"where": "sex=X"}, {"where": {"age": "1"}}, {"where": 5}, {"rows": "3"}, {"rows": -1}],
)
def test_a_refused_drawing_says_that_nothing_was_charged(curator: Curator, wrong: dict[str, Any]) -> None:
    model = curator.describe("visits", epsilon=1, delta=1e-5, method="independent")
    with pytest.raises(ParameterError, match=r"Nothing was charged\.$"):
        Curator.generate(model, **wrong)


def test_what_could_never_be_kept_is_refused_before_the_charge() -> None:
    told = POLICY + "release: {truths: [{determines: {from: [sex], to: [who]}}]}\n"
    with Curator(parse(told), sources={"visits": ROWS}) as curator:
        with pytest.raises(ParameterError, match="'who' is made anew for every row"):
            curator.describe("visits", epsilon=1, delta=1e-5)
        assert not [entry for entry in curator.ledger.entries() if entry.technique]


LINKED = """
version: 1
dataset: clinic
tables:
  patients:
    source: patients.csv
    unit: {column: id, max_rows_per_group: 1}
    columns:
      id:  {role: identifier}
      sex: {categories: [F, M]}
      zip: {categories: [a, b]}
  stays:
    source: stays.csv
    unit: {column: id, max_rows_per_group: 3}
    parent: patients
    columns:
      id:    {role: identifier}
      payer: {categories: [p, q]}
      ward:  {categories: [x, y]}
  beds: {source: beds.csv, unit: row, columns: {bed: {categories: [u, v]}}}
budgets:
  dataset: {epsilon: 3, delta: 1e-5, accounting: zcdp}
  purposes:
    study: {epsilon: 3, delta: 1e-5}
  analysts:
    ana: {purposes: [study], columns: [payer, sex]}
    ben: {purposes: [study], columns: [patients.sex]}
    cem: {purposes: [study], columns: [beds.bed]}
"""


def test_a_linked_model_speaks_of_the_askers_columns_alone() -> None:
    from deniable.curator.context import open_context
    from deniable.curator.synthesize.run import place_order, plan_linked

    context, order = open_context(parse(LINKED)), place_order("stays", "1", "1e-6", linked=True)
    ana, *others = (context.speak_for(Asker(name, "study", Role.ANALYST)) for name in ("ana", "ben", "cem"))
    whole, own = plan_linked(context, order)[0].links[0], plan_linked(ana, order)[0].links[0]
    assert [[each.name for each in part] for part in (whole.people, whole.rows)] == [
        ["id", "sex", "zip"], ["payer", "ward"],
    ]  # fmt: skip
    assert [[each.name for each in part] for part in (own.people, own.rows)] == [["id", "sex"], ["payer"]]
    for other in others:
        with pytest.raises(ParameterError, match="no column of the rows of 'stays' is described"):
            plan_linked(other, order)
    with pytest.raises(AccessRefused, match="column 'ward' of 'stays' is not among those of this analyst"):
        plan_linked(ana, place_order("stays", "1", "1e-6", linked=True, columns=("payer", "ward")))


@pytest.mark.parametrize("drawing", [{"rows": 1.5}, {"rows": -1}, {"seed": 1.5}, {"seed": -1}], ids=str)
def test_rows_and_seeds_that_are_not_whole_are_refused_before_the_charge(
    drawing: dict[str, float], tmp_path: Path
) -> None:
    with Curator(parse(LINKED), sources={}) as curator:
        with pytest.raises(ParameterError, match="A whole number from 0 up"):
            curator.synthesize("stays", tmp_path / "out.csv", epsilon="1", delta="1e-6", **drawing)
        assert not list(curator.context.ledger.entries())
