"""Conditions on people with their rows: who is kept, with which rows, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from deniable.errors import Infeasible, ParameterError
from deniable.policy.budget import ApproxDP
from deniable.policy.document import parse
from deniable.synth.linked import LinkedModel, describe_linked, generate
from deniable.synth.linked.generate import generate_linked, generate_people_batches
from deniable.synth.linked.link import link_of

POLICY = parse("""
version: 1
dataset: clinic
tables:
  patients:
    source: patients.parquet
    unit: {column: patient, max_rows_per_group: 1}
    columns:
      patient: {role: identifier}
      sex:     {categories: [F, M], nullable: false}
  visits:
    source: visits.parquet
    unit: {column: patient, max_rows_per_group: 2}
    parent: patients
    columns:
      patient: {role: identifier}
      ward:    {categories: [births, bones, eyes]}
      charge:  {type: decimal, between: [0, 9], step: 1}
""")


@pytest.fixture(scope="module")
def model() -> LinkedModel:
    """Half of the people are women; women lie in births or eyes (null at times), men in bones; every third has none."""
    people = [{"patient": f"p{i}", "sex": "FM"[i % 2]} for i in range(3000)]
    rows = [
        {"patient": f"p{i}", "ward": "bones" if i % 2 else ("births", "eyes", None)[(i // 2 + k) % 3], "charge": 5.0}
        for i in range(3000)
        for k in range(i // 2 % 3)
    ]
    link = link_of(POLICY.table("visits"), POLICY.table("patients"), POLICY.release.truths)
    return describe_linked(pa.Table.from_pylist(rows), pa.Table.from_pylist(people), link, ApproxDP(20, 1e-6))


def test_a_condition_on_people_keeps_so_many_of_them_with_all_their_rows(model: LinkedModel) -> None:
    people, rows = generate_linked(model, 200, where={"sex": "F"})
    assert people["sex"].to_pylist() == ["F"] * 200
    assert len(people["patient"].unique()) == 200
    assert set(rows["patient"].to_pylist()) < set(people["patient"].to_pylist())
    # Women lie in births and eyes by far: at this epsilon noise moves next to nobody to bones.
    assert pc.sum(pc.equal(rows["ward"], "bones")).as_py() < 0.2 * rows.num_rows


def test_a_condition_on_rows_keeps_these_rows_and_whoever_has_one(model: LinkedModel) -> None:
    people, rows = generate_linked(model, 150, where={"ward": "eyes"})
    assert people.num_rows == 150
    assert set(rows["ward"].to_pylist()) == {"eyes"}
    assert set(rows["patient"].to_pylist()) == set(people["patient"].to_pylist())


def test_both_at_once_and_null_as_a_value(model: LinkedModel) -> None:
    people, rows = generate_linked(model, 20, where={"sex": "F", "ward": "null"})
    assert set(people["sex"].to_pylist()) == {"F"}
    assert rows["ward"].null_count == rows.num_rows > 0


def test_without_a_number_everybody_is_drawn_and_those_who_fit_are_kept(model: LinkedModel) -> None:
    everybody, _ = generate_linked(model)
    women, _ = generate_linked(model, where={"sex": "F"})
    assert women.num_rows == pc.sum(pc.equal(everybody["sex"], "F")).as_py()


def test_people_are_numbered_on_across_batches(model: LinkedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "CHUNK", 100)
    for where in ({}, {"sex": "F"}, {"ward": "eyes"}):
        people, rows = generate_linked(model, 150, where=where)
        assert len(people["patient"].unique()) == people.num_rows == 150
        assert set(rows["patient"].to_pylist()) <= set(people["patient"].to_pylist())


@pytest.mark.parametrize("where", [{}, {"sex": "F"}, {"ward": "eyes", "sex": "F"}])
def test_people_by_themselves_are_the_people_of_the_rows(model: LinkedModel, where: dict[str, str]) -> None:
    people, _ = generate_linked(model, 120, 5, where)
    assert pa.Table.from_batches(list(generate_people_batches(model, 120, 5, where))).equals(people)


def test_what_no_one_can_be_is_refused_with_the_nearest(model: LinkedModel) -> None:
    with pytest.raises(ParameterError, match="Did you mean 'ward'"):
        generate_linked(model, 5, where={"wrd": "eyes"})
    with pytest.raises(ParameterError, match="'patient'"):
        generate_linked(model, 5, where={"patient": "p1"})
    with pytest.raises(ParameterError, match="not a value of column 'ward'"):
        generate_linked(model, 5, where={"ward": "teeth"})


def test_a_condition_that_nobody_meets_is_given_up(model: LinkedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "CHUNK", 50)
    monkeypatch.setattr(generate, "MOST_DRAWN", 2)
    with pytest.raises(Infeasible, match="people drawn met the condition, and 4,000 were asked for"):
        generate_linked(model, 4000, where={"charge": "5", "ward": "births", "sex": "M"})


def test_a_condition_that_too_few_meet_is_given_up_as_soon_as_that_is_seen(
    model: LinkedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20 batches that might be drawn, the first shows that a hundredth of those asked for would be found."""
    monkeypatch.setattr(generate, "CHUNK", 500)
    with pytest.raises(Infeasible, match=r"only \d+ of 500 people drawn") as refused:
        generate_linked(model, 9000, where={"charge": "5", "ward": "births", "sex": "M"})
    assert "9,000 were asked for" in str(refused.value)


@pytest.mark.parametrize(("kept", "given_up"), [(0, True), (50, True), (75, False), (100, False)])
def test_what_may_still_be_found_is_waited_for(kept: int, given_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 of 10,000 that may be drawn are wanted: 100 of the first 1,000, or some deviations fewer."""
    monkeypatch.setattr(generate, "CHUNK", 500)
    assert generate._is_hopeless(1000, kept, 1000) is given_up
    assert not generate._is_hopeless(1000, 0, 400)
    assert generate._is_hopeless(1000, 900, 10_000)


def test_the_same_seed_gives_the_same_rows(model: LinkedModel) -> None:
    first, second = (generate_linked(model, 40, 9, {"sex": "M"})[1] for _ in range(2))
    assert first.equals(second)
    assert np.unique(first["charge"].to_numpy()).size > 0
