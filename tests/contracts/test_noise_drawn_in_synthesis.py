"""Synthesis, seen while it runs: each event in a model's bill drew its noise, and nothing else was read of the rows.

The spy notes draws and exact values; the tape gives neighbors the same noisy answers. What must then hold of every
method: as many draws as events, each of its event's scale; the same model of both neighbors to the last digit, so that
nothing reached it but noisy answers; and no exact value moved farther than its noise was made for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deniable.dp.accounting import ComposedEvent, Event, GaussianEvent, NoOpEvent
from deniable.dp.mechanisms import GaussianMechanism
from deniable.policy.budget import ZCDP, ApproxDP, Budget
from deniable.policy.document import parse
from deniable.synth import measure
from deniable.synth.describe import describe_table, price_description
from deniable.synth.linked import describe_family, describe_linked, dump_family, dump_linked
from deniable.synth.linked.link import link_of
from deniable.synth.marginal import GaussianBudget, Marginal, convert_budget
from deniable.synth.methods import METHODS, published
from deniable.synth.model import to_plain
from noise_spy import (
    Measurement,
    additive_noise,
    check_noise_was_added,
    drawn_noise,
    flatten,
    put_twin,
    share_of_claim,
    watch_noise,
)

POLICY = """
version: 1
dataset: clinic
tables:
  people:
    source: people.csv
    unit: row
    columns:
      ward:   {role: quasi-identifier, nullable: false, categories: [a, b, c, d], hierarchy: {order: [2]}}
      blood:  {role: sensitive, nullable: false, categories: [x, y]}
      smoker: {role: sensitive, nullable: false, type: boolean}
      ill:    {role: sensitive, nullable: false, type: boolean}
      age:    {role: quasi-identifier, nullable: false, type: integer, between: [0, 4095]}
      code:   {nullable: false}
"""
TABLE = parse(POLICY).table("people")
MOST = 3
"""Rows of one unit: where it is forgotten, noise is a third of what it should be."""
PAID = [name for name, method in METHODS.items() if not method.free]
BUDGETS: dict[str, Budget] = {
    "a small epsilon": ApproxDP(Fraction(1, 2), Fraction(1, 10**6)),
    "an epsilon": ApproxDP(4, Fraction(1, 10**6)),
    "a rho": ZCDP(Fraction(1, 2)),
    "a large rho": ZCDP(50),
}
WORKLOAD = (("ward", "blood", "ill"),)
MEASURING = ("marginal.measure_counts", "measure.score_distances")
"""The two places of this package where exact numbers become noisy ones."""
FEW = ("ward", "blood", "smoker", "ill")


def _people(count: int = 1500) -> pa.Table:
    """Blood follows the ward, illness is decided by blood and smoking together; nobody is in ward d."""
    draw = np.random.default_rng(3)
    ward, smoker = draw.integers(0, 3, count), draw.random(count) < 0.5
    blood = np.where(draw.random(count) < 0.9, ward % 2, draw.integers(0, 2, count))
    age = np.where(draw.random(count) < 0.5, 1000 + 17 * ward, draw.integers(0, 3000, count))
    columns = {"ward": [f"{'abc'[w]}" for w in ward], "blood": ["xy"[b] for b in blood], "smoker": smoker}
    codes = [f"A-{i % 10}" if i % 3 else "bb" for i in range(count)]
    return pa.table(columns | {"ill": (blood == 1) ^ smoker, "age": age, "code": codes})


PEOPLE = _people()


def _with_unit(**values: Any) -> pa.Table:
    unit = pa.table({name: [value] * MOST for name, value in values.items()})
    return pa.concat_tables([PEOPLE, unit.cast(PEOPLE.schema)])


NEIGHBORS = {
    "like many others": _with_unit(ward="a", blood="x", smoker=True, ill=True, age=1000, code="A-1"),
    "like nobody": _with_unit(ward="d", blood="y", smoker=False, ill=False, age=4000, code="???-Zed"),
}


@dataclass(frozen=True, slots=True)
class Proof:
    """What a run and its replay on a neighbor showed: the exact values that went in, and what was charged."""

    here: Sequence[Measurement]
    there: Sequence[Measurement]
    charged: GaussianEvent

    @property
    def shares(self) -> list[Fraction]:
        """How much of its claim each measurement moved."""
        return [share_of_claim(a, b) for a, b in zip(self.here, self.there, strict=True)]

    @property
    def scores(self) -> list[Fraction]:
        """The same of scores alone."""
        return [share for share, found in zip(self.shares, self.here, strict=True) if "score" in found.by]


def _prove(run: Callable[[Any], Any], rows: Any, neighbor: Any, charged: Event, told: Callable[[Any], Any]) -> Proof:
    """Run on both neighbors, the second time with the first one's noisy answers, and hold what must hold.

    `told` gives, of what was made, its bill and all that leaves.
    """
    with watch_noise() as spy:
        bill, made = told(run(rows))
    events = flatten(bill)
    assert additive_noise(events) == drawn_noise(spy.draws), "the bill does not list the draws that were made"
    assert all(isinstance(event, GaussianEvent) for event in events)
    assert not spy.loose
    assert not spy.salts
    check_noise_was_added(spy)
    with watch_noise(spy.recorded()) as again:
        assert told(run(neighbor)) == (bill, made), "with the same noisy answers another model was made"
    assert not again.draws, "the neighbor drew noise beyond the same answers"
    assert isinstance(charged, GaussianEvent)
    proof = Proof(spy.measured, again.measured, charged)
    assert max(proof.shares) <= 1, "a value moved farther than its noise was made for"
    _check_price(proof, events)
    return proof


def _check_price(proof: Proof, events: Sequence[Any]) -> None:
    """All measurements are worth no more than was charged: as they claim, and as this one unit moved them."""
    paid = proof.charged.sensitivity_squared / proof.charged.variance
    assert sum(event.sensitivity_squared / event.variance for event in events) <= paid
    moved = 0
    for here, there in zip(proof.here, proof.there, strict=True):
        moves = (a - b for a, b in zip(here.entries, there.entries, strict=True))
        moved += sum(move * move for move in moves) / here.mechanism.variance
    assert moved <= paid


def _prove_table(method: str, budget: Budget, neighbor: pa.Table, **rest: Any) -> Proof:
    def run(rows: pa.Table) -> Any:
        return describe_table(rows, TABLE, budget, method, most_rows=MOST, **rest)

    def told(model: Any) -> tuple[Event, Any]:
        return model.description.event, to_plain(model)

    return _prove(run, PEOPLE, neighbor, price_description(method, budget, MOST), told)


@pytest.mark.quick_cases(9)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("method", PAID)
def test_a_description_drew_what_its_bill_says_and_read_nothing_else(method: str, budget: str) -> None:
    neighbor = "like nobody" if "small" in budget or budget == "a rho" else "like many others"
    proof = _prove_table(method, BUDGETS[budget], NEIGHBORS[neighbor])
    assert {found.by for found in proof.here} <= {f"deniable.synth.{step}" for step in MEASURING}


@pytest.mark.parametrize("method", ["auto", "mwem"])
def test_a_workload_is_measured_within_the_bill(method: str) -> None:
    for budget in BUDGETS.values():
        _prove_table(method, budget, NEIGHBORS["like many others"], workload=WORKLOAD)


@pytest.mark.parametrize("method", [name for name in PAID if name != "independent"])
def test_the_scores_of_one_unit_move_nearly_as_far_as_they_are_priced_for(method: str) -> None:
    """So the bound above is one that a forgotten factor would break: three rows, or the root of ten pairs."""
    proof = _prove_table(method, ZCDP(50), NEIGHBORS["like many others"])
    assert proof.scores
    assert max(proof.scores) > Fraction(1, 2)
    counts = [share for share, found in zip(proof.shares, proof.here, strict=True) if "score" not in found.by]
    assert max(counts) == 1


def test_cliques_of_three_are_scored_and_measured_within_the_bill() -> None:
    """Illness depends on two columns together, which no pair shows: what `auto` does last is in the proof too."""
    proof = _prove_table("auto", ZCDP(50), NEIGHBORS["like many others"], columns=FEW)
    assert len(proof.scores) == 2
    measured = [found.output.size for found in proof.here]
    assert 2 * 2 * 2 in measured[-3:]


def test_a_method_that_costs_nothing_draws_nothing_and_reads_nothing() -> None:
    with watch_noise() as spy:
        models = [describe_table(rows, TABLE, ZCDP(0), "random") for rows in (PEOPLE, NEIGHBORS["like nobody"])]
    assert to_plain(models[0]) == to_plain(models[1])
    assert flatten(models[0].description.event) == []
    assert not spy.draws
    assert not spy.measured


LINKED = f"""
version: 1
dataset: clinic
tables:
  patients:
    source: patients.parquet
    unit: {{column: patient, max_rows_per_group: 1}}
    columns:
      patient: {{role: identifier}}
      sex:     {{categories: [F, M], nullable: false}}
      weight:  {{type: integer, between: [0, 2000], nullable: false}}
  visits:
    source: visits.parquet
    unit: {{column: patient, max_rows_per_group: {MOST}}}
    parent: patients
    sequence: came
    columns:
      visit:   {{role: identifier, type: integer}}
      patient: {{role: identifier}}
      came:    {{type: date, between: [2025-01-01, 2025-12-31], nullable: false}}
      ward:    {{categories: [births, bones, eyes], nullable: false}}
      charge:  {{type: decimal, between: [0, 900], step: 0.01}}
      note:    {{nullable: false}}
"""
FIRST_DAY = date(2025, 1, 1)


def _patient(number: int, ward: str | None = None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    sex = "FM"[number % 2]
    person = {"patient": f"p{number}", "sex": sex, "weight": 600 + number % 5}
    own = ward or ("bones" if sex == "M" else "births" if number % 4 else "eyes")
    rows = [
        {"visit": MOST * number + k, "patient": f"p{number}", "came": FIRST_DAY + timedelta(number % 90 + 30 * k),
         "ward": own, "charge": 10.0 * k, "note": f"{own} {k}"}
        for k in range(MOST if ward else number % (MOST + 1))
    ]  # fmt: skip
    return person, rows


def _town(numbers: Sequence[int], more: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]] = ()) -> Any:
    made = [*(_patient(number) for number in numbers), *more]
    people = pa.Table.from_pylist([person for person, _ in made])
    return people, pa.Table.from_pylist([row for _, rows in made for row in rows])


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("neighbors", "numbers"), [(1, range(300)), (2, range(1, 300))], ids=["added", "replaced"])
@pytest.mark.parametrize("method", [name for name in PAID if not METHODS[name].areas])
def test_people_with_their_rows_are_described_within_one_bill(method: str, neighbors: int, numbers: range) -> None:
    """Both tables together, and what is learned of open columns before: one person more, or another in her place."""
    policy = parse(LINKED)
    link = link_of(policy.table("visits"), policy.table("patients"), ())
    budget = ApproxDP(4, Fraction(1, 10**6))

    def run(town: Any) -> Any:
        return describe_linked(town[1], town[0], link, budget, method, neighbors=neighbors)

    def told(model: Any) -> tuple[Event, Any]:
        parts = (model.people.description.event, model.rows.description.event)
        return ComposedEvent(parts), dump_linked(model)

    charged = convert_budget(budget, neighbors * MOST).event
    proof = _prove(run, _town(range(300)), _town(numbers, [_patient(1000, "eyes")]), charged, told)
    assert {found.mechanism.sensitivity_squared for found in proof.here} >= {neighbors**2, (neighbors * MOST) ** 2}


SEVERAL = (
    LINKED
    + f"""
  drugs:
    source: drugs.parquet
    unit: {{column: patient, max_rows_per_group: 2}}
    parent: patients
    columns:
      patient: {{role: identifier}}
      drug:    {{categories: [iron, zinc], nullable: false}}
      dose:    {{type: integer, between: [0, 5000], nullable: false}}
  tests:
    source: tests.parquet
    unit: {{column: patient, max_rows_per_group: {MOST + 1}}}
    parent: visits
    columns:
      patient: {{role: identifier}}
      visit:   {{role: identifier, type: integer}}
      kind:    {{categories: [blood, sight], nullable: false}}
"""
)


def _wide_town(numbers: Sequence[int], more: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]] = ()) -> Any:
    people, visits = _town(numbers, more)
    drugs = [{"patient": who, "drug": "iron", "dose": 7} for who in people["patient"].to_pylist() for _ in range(2)]
    tests = [{"patient": row["patient"], "visit": row["visit"], "kind": "blood"} for row in visits.to_pylist()]
    return people, (visits, pa.Table.from_pylist(drugs), pa.Table.from_pylist(tests))


@pytest.mark.parametrize(("neighbors", "numbers"), [(1, range(300)), (2, range(1, 300))], ids=["added", "replaced"])
@pytest.mark.parametrize("memory", [1, 2])
def test_people_with_rows_in_several_tables_are_described_within_one_bill(
    memory: int, neighbors: int, numbers: range
) -> None:
    policy = parse(SEVERAL)
    patients, visits, drugs, tests = (policy.table(name) for name in ("patients", "visits", "drugs", "tests"))
    rest: Any = {"alone": False, "memory": memory}
    links = [link_of(visits, patients, (), **rest), link_of(drugs, patients, (), **rest)]
    links.append(link_of(tests, visits, (), root=False, **rest))
    budget = ApproxDP(4, Fraction(1, 10**6))

    def run(town: Any) -> Any:
        return describe_family(town[1], town[0], links, budget, neighbors=neighbors)

    def told(model: Any) -> tuple[Event, Any]:
        rows = (child.rows.description.event for child in model.children)
        return ComposedEvent((model.people.description.event, *rows)), dump_family(model)

    charged = convert_budget(budget, neighbors * (MOST + 1)).event
    proof = _prove(run, _wide_town(range(300)), _wide_town(numbers, [_patient(1000, "eyes")]), charged, told)
    wanted = {(neighbors * most) ** 2 for most in (1, 2, MOST, MOST + 1)}
    assert {found.mechanism.sensitivity_squared for found in proof.here} >= wanted


# Broken twins: mistakes that no accountant can see, because the bill is as it should be, or hangs together.


def _score_without_noise(distances: Any, spend: GaussianBudget, share: float, entropy: Any) -> Any:
    if not distances:
        return np.zeros(0), 0.0, NoOpEvent()
    mechanism = _mechanism(spend, share, spend.rows**2 * len(distances) * measure.FINENESS**2)
    return np.array(distances), float(mechanism.variance) ** 0.5 / measure.FINENESS, mechanism.event


def _score_off_the_bill(distances: Any, spend: GaussianBudget, share: float, entropy: Any) -> Any:
    found, deviation, _ = HONEST_SCORES(distances, spend, share, entropy)
    return found, deviation, NoOpEvent()


def _score_for_one_row(distances: Any, spend: GaussianBudget, share: float, entropy: Any) -> Any:
    found, deviation, event = HONEST_SCORES(distances, replace(spend, rows=1), share, entropy)
    return found, deviation, event


def _score_for_one_table(distances: Any, spend: GaussianBudget, share: float, entropy: Any) -> Any:
    if not distances:
        return np.zeros(0), 0.0, NoOpEvent()
    mechanism = _mechanism(spend, share, (spend.rows * measure.FINENESS + 1) ** 2)
    noisy = mechanism.release(np.array([math.floor(d * measure.FINENESS) for d in distances]), entropy)
    return noisy / measure.FINENESS, float(mechanism.variance) ** 0.5 / measure.FINENESS, mechanism.event


def _mechanism(spend: GaussianBudget, share: float, squared: int) -> GaussianMechanism:
    return GaussianMechanism(spend.variance(share, squared), Fraction(squared))


HONEST_SCORES = measure.score_distances
SCORES = {
    "scores without noise": _score_without_noise,
    "scores that nobody pays for": _score_off_the_bill,
    "scores made for one row of a unit": _score_for_one_row,
    "scores made for one table": _score_for_one_table,
}


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize("twin", SCORES)
@pytest.mark.parametrize("method", [name for name in PAID if name != "independent"])
def test_scores_that_cheat_are_caught(method: str, twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_twin(monkeypatch, HONEST_SCORES, SCORES[twin])
    with pytest.raises(AssertionError):
        _prove_table(method, ZCDP(50), NEIGHBORS["like many others"], columns=FEW)


def _shown_as_counted(exact: Any, clique: Any, variance: Fraction, *rest: Any) -> Marginal:
    """Noise is drawn, priced, and left out of what is shown."""
    found = HONEST_COUNTS(exact, clique, variance, *rest)
    return replace(found, counts=exact.astype(np.float64))


def _marked_where_nobody_is(exact: Any, clique: Any, variance: Fraction, *rest: Any) -> Marginal:
    """Cells without records get a number that noise never gives."""
    found = HONEST_COUNTS(exact, clique, variance, *rest)
    return replace(found, counts=np.where(exact == 0, -0.5, found.counts))


def _counted_for_one_row(exact: Any, clique: Any, variance: Fraction, rows: int, *rest: Any) -> Marginal:
    return HONEST_COUNTS(exact, clique, variance / rows**2, 1, *rest)


HONEST_COUNTS = measure.measure_counts
COUNTS = {
    "exact counts behind drawn noise": _shown_as_counted,
    "cells that tell where nobody is": _marked_where_nobody_is,
    "counts made for one row of a unit": _counted_for_one_row,
}


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("twin", COUNTS)
@pytest.mark.parametrize("method", PAID)
def test_counts_that_cheat_are_caught(method: str, twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_twin(monkeypatch, HONEST_COUNTS, COUNTS[twin])
    with pytest.raises(AssertionError):
        _prove_table(method, ZCDP(50), NEIGHBORS["like nobody"], columns=FEW)


def test_a_total_that_is_counted_and_not_estimated_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many records there are is a number of the data like any other."""

    def peek(codes: Any, domain: Any, one_way: Any, *rest: Any) -> Any:
        found = published.independent(codes, domain, one_way, *rest)
        return replace(found, estimates=replace(found.estimates, total=float(codes.shape[1])))

    monkeypatch.setitem(METHODS, "independent", replace(METHODS["independent"], run=peek))
    with pytest.raises(AssertionError, match="another model"):
        _prove_table("independent", ZCDP(50), NEIGHBORS["like nobody"])
