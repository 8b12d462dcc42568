"""People with rows in several tables: every link holds, one person moves no table by more than is priced, and rows
remember as far back as they are told to."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deniable.curator import Curator
from deniable.curator.synthesize.run import Order, plan_linked
from deniable.errors import IntegrityError, ParameterError, PolicyError
from deniable.policy.budget import ZCDP, ApproxDP
from deniable.policy.document import parse
from deniable.synth.describe import domain_of, encode_table
from deniable.synth.domain import Surrogate
from deniable.synth.linked import (
    FamilyModel,
    describe_family,
    describe_linked,
    dump_family,
    generate,
    load_linked,
    save_linked,
    split_budget,
)
from deniable.synth.linked.generate import generate_family, generate_linked, generate_people_batches
from deniable.synth.linked.link import (
    Link,
    context_attributes,
    derive_family_tables,
    free_attributes,
    link_of,
    person_attributes,
    rows_attributes,
)
from deniable.synth.marginal import convert_budget, count

VISITS, DRUGS, TESTS = 3, 2, 4
POLICY_TEXT = f"""
version: 1
dataset: clinic
tables:
  patients:
    source: patients.parquet
    unit: {{column: patient, max_rows_per_group: 1}}
    columns:
      patient: {{role: identifier}}
      sex:     {{categories: [F, M], nullable: false}}
  visits:
    source: visits.parquet
    unit: {{column: patient, max_rows_per_group: {VISITS}}}
    parent: patients
    sequence: day
    columns:
      visit:   {{role: identifier, type: integer}}
      patient: {{role: identifier}}
      day:     {{type: integer, between: [0, 99], nullable: false}}
      ward:    {{categories: [births, bones, eyes], nullable: false}}
  drugs:
    source: drugs.parquet
    unit: {{column: patient, max_rows_per_group: {DRUGS}}}
    parent: patients
    columns:
      patient: {{role: identifier}}
      drug:    {{categories: [iron, none, zinc], nullable: false}}
  tests:
    source: tests.parquet
    unit: {{column: patient, max_rows_per_group: {TESTS}}}
    parent: visits
    columns:
      patient: {{role: identifier}}
      visit:   {{role: identifier, type: integer}}
      kind:    {{categories: [blood, scan, sight], nullable: false}}
      day:     {{type: integer, between: [0, 99], nullable: false}}
"""
POLICY = parse(POLICY_TEXT)
BUDGET = ApproxDP(4, 1e-6)


def _links(memory: int = 1) -> tuple[Link, ...]:
    patients, visits, drugs, tests = (POLICY.table(name) for name in ("patients", "visits", "drugs", "tests"))
    rest: Any = {"alone": False, "memory": memory}
    return (
        link_of(visits, patients, (), **rest),
        link_of(drugs, patients, (), **rest),
        link_of(tests, visits, (), root=False, **rest),
    )


def _town(people: int) -> tuple[pa.Table, tuple[pa.Table, ...]]:
    """Women come up to three times and take iron, men come once and take zinc; a ward decides the tests."""
    patients: list[dict[str, Any]] = []
    visits: list[dict[str, Any]] = []
    drugs: list[dict[str, Any]] = []
    tests: list[dict[str, Any]] = []
    for i in range(people):
        who, sex = f"secret-{i}", "FM"[i % 2]
        patients.append({"patient": who, "sex": sex})
        drugs += [{"patient": who, "drug": "iron" if sex == "F" else "zinc"}] * (i % 3)
        for k in range(1 + (i // 2) % 3 if sex == "F" else 1):
            ward = ("births" if i % 4 else "eyes") if sex == "F" else "bones"
            # Everybody's first visit is 0: a number that tells visits apart within one person alone.
            visits.append({"visit": k, "patient": who, "day": 10 * k + i % 10, "ward": ward})
            kind = {"births": "blood", "bones": "scan", "eyes": "sight"}[ward]
            many = 2 if ward == "bones" else 1
            tests += [{"patient": who, "visit": k, "kind": kind, "day": 10 * k + i % 10}] * many
    return pa.Table.from_pylist(patients), tuple(pa.Table.from_pylist(each) for each in (visits, drugs, tests))


@pytest.fixture(scope="module")
def model() -> FamilyModel:
    people, tables = _town(6000)
    return describe_family(tables, people, _links(), BUDGET)


@pytest.fixture(scope="module")
def made(model: FamilyModel) -> tuple[pa.Table, tuple[pa.Table, ...]]:
    return generate_family(model, 4000, 3)


def test_every_row_belongs_to_a_person_and_every_test_to_a_visit_of_that_person(made: Any) -> None:
    people, (visits, drugs, tests) = made
    keys = set(people["patient"].to_pylist())
    assert len(keys) == people.num_rows == 4000
    assert {*visits["patient"].to_pylist(), *drugs["patient"].to_pylist()} <= keys
    assert visits.column_names == ["patient", "visit", "day", "ward"]
    assert set(tests.column_names) == {"patient", "visit", "kind", "day"}
    assert len(set(visits["visit"].to_pylist())) == visits.num_rows
    owners = dict(zip(visits["visit"].to_pylist(), visits["patient"].to_pylist(), strict=True))
    assert all(owners[row["visit"]] == row["patient"] for row in tests.to_pylist())
    for table, most in ((visits, VISITS), (drugs, DRUGS)):
        assert max(Counter(table["patient"].to_pylist()).values()) <= most


def test_rows_of_each_table_follow_what_they_belong_to(made: Any) -> None:
    people, (visits, drugs, tests) = made
    sex = dict(zip(people["patient"].to_pylist(), people["sex"].to_pylist(), strict=True))
    ward = dict(zip(visits["visit"].to_pylist(), visits["ward"].to_pylist(), strict=True))
    wanted = {"F": "iron", "M": "zinc"}
    # Drawn alone, each of these would hold for a half at most.
    assert np.mean([row["drug"] == wanted[sex[row["patient"]]] for row in drugs.to_pylist()]) > 0.8
    assert np.mean([(row["ward"] == "bones") == (sex[row["patient"]] == "M") for row in visits.to_pylist()]) > 0.8
    kinds = {"births": "blood", "bones": "scan", "eyes": "sight"}
    assert np.mean([row["kind"] == kinds[ward[row["visit"]]] for row in tests.to_pylist()]) > 0.75
    times = Counter(tests["visit"].to_pylist())
    assert np.mean([times[visit] for visit in ward if ward[visit] == "bones"]) > 1.6
    assert np.mean([times[visit] for visit in ward if ward[visit] != "bones"]) < 1.4


@pytest.mark.parametrize(
    "spoil",
    [
        lambda held: held["children"][0].__setitem__("memory", 10**7),
        lambda held: held["children"][0].__setitem__("most", 10**9),
        lambda held: held["children"][0]["columns"]["rows"][0].__setitem__("name", "odd"),
        lambda held: held["children"][0]["rows"]["attributes"][0].__setitem__("name", "odd"),
        lambda held: held["people"]["attributes"][1].__setitem__("name", "odd"),
        lambda held: held["children"][0].__setitem__("child", "\ud800"),
        lambda held: held["children"][0]["columns"]["rows"][1].__setitem__("step", "1e30000000"),
        lambda held: held["children"][0]["columns"]["rows"][1].__setitem__("step", str(10**30)),
    ],
)
def test_a_changed_file_of_people_is_refused(model: FamilyModel, tmp_path: Path, spoil: Callable[[Any], None]) -> None:
    """They ended in an internal error, or never."""
    held = json.loads(json.dumps(dump_family(model)))
    spoil(held)
    (path := tmp_path / "family.json").write_text(json.dumps(held), encoding="utf-8")
    with pytest.raises(IntegrityError, match=r"'family.json' is not a model of ours"):
        load_linked(path)


def test_people_alone_and_a_model_from_its_file_are_the_same(model: FamilyModel, made: Any, tmp_path: Path) -> None:
    assert pa.Table.from_batches(list(generate_people_batches(model, 4000, 3))).equals(made[0])
    save_linked(model, tmp_path / "m.json")
    assert "secret" not in (tmp_path / "m.json").read_text()
    people, tables = generate_family(load_linked(tmp_path / "m.json"), 4000, 3)
    assert people.equals(made[0])
    assert all(here.equals(there) for here, there in zip(tables, made[1], strict=True))


def test_conditions_keep_people_who_have_such_rows_and_all_links(model: FamilyModel) -> None:
    people, (visits, drugs, tests) = generate_family(model, 100, 1, {"sex": "F", "drug": "iron", "tests.day": "3"})
    assert people.num_rows == 100
    assert set(people["sex"].to_pylist()) == {"F"}
    assert set(drugs["drug"].to_pylist()) == {"iron"}
    assert set(tests["day"].to_pylist()) == {3}
    keys = set(people["patient"].to_pylist())
    assert set(drugs["patient"].to_pylist()) == set(tests["patient"].to_pylist()) == keys
    assert set(visits["patient"].to_pylist()) <= keys
    assert set(tests["visit"].to_pylist()) <= set(visits["visit"].to_pylist())
    few, (eyes, _, theirs) = generate_family(model, 50, 1, {"ward": "eyes"})
    assert few.num_rows == 50
    assert set(eyes["ward"].to_pylist()) == {"eyes"}
    assert set(theirs["visit"].to_pylist()) <= set(eyes["visit"].to_pylist())
    with pytest.raises(ParameterError, match="day"):  # visits and tests have one
        generate_family(model, 10, 1, {"day": "3"})


def _codes(people: pa.Table, tables: tuple[pa.Table, ...], memory: int) -> list[tuple[Any, Any, int]]:
    """Each described table in codes, with the most rows of a person that it is priced for."""
    links = _links(memory)
    persons, owned = derive_family_tables(links, people, tables)
    attributes = {"patients": person_attributes(*links[:2])}
    every = [(persons, attributes["patients"], 1)]
    for link, table in zip(links, owned, strict=True):
        free = (*free_attributes(link), *rows_attributes(each for each in links if each.parent == link.child))
        attributes[link.child] = (*context_attributes(link, attributes[str(link.parent)], free), *free)
        every.append((table, attributes[link.child], link.most))
    coded = ([a for a in own if not isinstance(a, Surrogate)] for _, own, _ in every)
    return [(encode_table(t, c), domain_of(own), m) for (t, own, m), c in zip(every, coded, strict=True)]


names = st.sampled_from(["ann", "bob", "cid", "dan", None])
visit_lists = st.lists(
    st.tuples(names, st.integers(0, 2) | st.none(), st.integers(0, 99), st.sampled_from(["births", "eyes"])),
    max_size=12,
)
test_lists = st.lists(
    st.tuples(names, st.integers(0, 3) | st.none(), st.sampled_from(["blood", "sight"]), st.integers(0, 99)),
    max_size=12,
)


def _bound(table: pa.Table, most: int) -> pa.Table:
    """At most so many rows of each person, as the curator reads them."""
    seen: Counter[Any] = Counter()
    kept = []
    for place, who in enumerate(table["patient"].to_pylist()):
        seen[who] += 1
        if seen[who] <= most:
            kept.append(place)
    return table.take(pa.array(kept, pa.int64()))


@example([("ann", 0, 1, "births"), ("bob", 0, 2, "eyes")], [("bob", 0, "sight", 3)], [], "ann", 1)
@given(visit_lists, test_lists, st.lists(names, max_size=6), st.sampled_from(["ann", "bob", "cid"]), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_one_person_moves_every_marginal_of_every_table_by_no_more_than_is_priced(
    came: list[Any], tested: list[Any], took: list[Any], gone: str, memory: int
) -> None:
    """Sensitivity by brute force: all one- and two-way marginals. Visits of several people have the same number."""
    people = pa.table({"patient": ["ann", "bob", "cid"], "sex": ["F", "M", "F"]})
    text, whole = pa.string(), pa.int64()
    visits = pa.table([pa.array([r[0] for r in came], text), pa.array([r[1] for r in came], whole),
                       pa.array([r[2] for r in came], whole), pa.array([r[3] for r in came], text)],
                      names=["patient", "visit", "day", "ward"])  # fmt: skip
    drugs = pa.table([pa.array(took, text), pa.array(["iron"] * len(took), text)], names=["patient", "drug"])
    tests = pa.table([pa.array([r[0] for r in tested], text), pa.array([r[1] for r in tested], whole),
                      pa.array([r[2] for r in tested], text), pa.array([r[3] for r in tested], whole)],
                     names=["patient", "visit", "kind", "day"])  # fmt: skip
    tables = (_bound(visits, VISITS), _bound(drugs, DRUGS), _bound(tests, TESTS))

    def without(table: pa.Table) -> pa.Table:
        return table.filter(pc.fill_null(pc.not_equal(table["patient"], gone), True))

    full, less = _codes(people, tables, memory), _codes(without(people), tuple(map(without, tables)), memory)
    for (here, domain, most), (there, _, _) in zip(full, less, strict=True):
        for way in (1, 2):
            for clique in itertools.combinations(range(len(domain)), way):
                moved = (count(here, domain, clique) - count(there, domain, clique)).astype(float)
                assert np.sqrt((moved**2).sum()) <= most
                assert (moved >= 0).all()


@pytest.mark.parametrize("neighbors", [1, 2])
def test_all_tables_together_are_priced_as_the_whole_budget(neighbors: int) -> None:
    budget = ZCDP("0.7")
    links = _links()
    shares = [split_budget(convert_budget(budget, k.most * neighbors), k.most, neighbors, len(links)) for k in links]
    spent = [shares[0][0], *(rows for _, rows in shares)]
    assert [each.rows for each in spent] == [neighbors * most for most in (1, VISITS, DRUGS, TESTS)]
    worth = sum((Fraction(each.rows**2) / each.variance(1.0) for each in spent), Fraction(0))
    assert worth <= convert_budget(budget, 1).amount
    assert worth > convert_budget(budget, 1).amount * Fraction(99, 100)


@pytest.mark.parametrize("kept", [0, 1, 30])
def test_edges_are_described_and_drawn(kept: int) -> None:
    people, tables = _town(60)
    model = describe_family([each.slice(0, kept) for each in tables], people.slice(0, kept), _links(), BUDGET)
    for wanted in (0, 1, 30):
        made, rows = generate_family(model, wanted, 1)
        assert made.num_rows == wanted
        assert len(rows) == 3


def test_a_second_level_needs_one_identifier_in_common() -> None:
    with pytest.raises(ParameterError, match=r"0 identifiers in common.*let whoever asks name it"):
        link_of(POLICY.table("drugs"), POLICY.table("visits"), (), root=False)


def _alternating(people: int) -> pa.Table:
    """Wards that repeat from the visit before the last: the last alone says nothing of the next."""
    rng, rows = np.random.default_rng(5), []
    for i in range(people):
        first, second = rng.integers(0, 3, 2)
        rows += [{"visit": len(rows) + k, "patient": f"p{i}", "day": 5 * k + int(rng.integers(0, 4)),
                  "ward": ("births", "bones", "eyes")[(first, second)[k % 2]]} for k in range(6)]  # fmt: skip
    return pa.Table.from_pylist(rows)


def _share_repeated(rows: pa.Table, lag: int) -> float:
    found = []
    for _, visits in itertools.groupby(rows.to_pylist(), key=lambda row: row["patient"]):
        wards = [visit["ward"] for visit in visits]
        found += [one == other for one, other in zip(wards, wards[lag:], strict=False)]
    return float(np.mean(found))


def test_rows_remember_as_many_rows_before_as_they_are_told_to() -> None:
    table = POLICY.table("visits")
    people = pa.table({"patient": [f"p{i}" for i in range(2000)], "sex": ["F", "M"] * 1000})
    rows = _alternating(2000)
    shares = {}
    for memory in (1, 2):
        link = link_of(table, POLICY.table("patients"), (), memory=memory)
        wide = Link(link.child, link.parent, link.key, 6, link.people, link.rows, link.sequence, (), memory)
        made = generate_linked(describe_linked(rows, people, wide, ApproxDP(8, 1e-6)), 2000, 1)[1]
        shares[memory] = _share_repeated(made, 2)
    # The rows repeat after two visits always; by chance, a third would.
    assert _share_repeated(rows, 2) == 1.0
    assert shares[1] < 0.5
    assert shares[2] > 0.75


@pytest.mark.parametrize("memory", [0, 6])
def test_a_memory_of_no_row_or_of_very_many_is_refused(memory: int) -> None:
    with pytest.raises(ParameterError, match="rows before it"):
        link_of(POLICY.table("visits"), POLICY.table("patients"), (), memory=memory)


def test_nobody_synthetic_has_more_rows_in_a_table_than_a_person_may(made: Any) -> None:
    """Tests were bounded for each visit: with three visits, a person had up to three times as many."""
    _, (visits, drugs, tests) = made
    for table, most in ((visits, VISITS), (drugs, DRUGS), (tests, TESTS)):
        assert max(Counter(table["patient"].to_pylist()).values()) <= most


def test_identifiers_of_rows_under_a_condition_are_given_once(
    model: FamilyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was drawn and not kept had numbers, too: the next batch gave them again."""
    monkeypatch.setattr(generate, "CHUNK", 40)
    for seed in range(4):
        _, (visits, _, _) = generate_family(model, 60, seed, where={"visits.ward": "eyes"})
        assert len(set(visits["visit"].to_pylist())) == visits.num_rows


def test_people_with_very_many_drawn_rows_keep_as_many_as_a_person_may() -> None:
    people, (visits, drugs, tests) = _town(40)
    many = [{"patient": f"secret-{i}", "visit": k, "kind": "scan", "day": 1} for i in range(40) for k in range(3)] * 2
    model = describe_family(
        (visits, drugs, pa.Table.from_pylist(many, tests.schema)), people, _links(), ApproxDP(200, 1e-6)
    )
    _, (_, _, drawn) = generate_family(model, 300, seed=3)
    assert max(Counter(drawn["patient"].to_pylist()).values()) == TESTS


@pytest.mark.parametrize("epsilon", [1, 8, 12, 20, 100])
@pytest.mark.parametrize("neighbors", [1, 2])
def test_tables_with_different_bounds_share_one_accountant(epsilon: int, neighbors: int) -> None:
    """Each part chose the accountant by its own bound: shares of two amounts added up to more than the budget."""
    people, rows = _town(30)
    links = tuple(replace(link, most=most) for link, most in zip(_links(), (1, 2, 40), strict=True))
    describe_family(rows, people, links, ApproxDP(epsilon, 1e-6), neighbors=neighbors)


def _open_clinic(**changes: str) -> Curator:
    text = POLICY_TEXT
    for old, new in changes.values():
        text = text.replace(old, new)
    people, (visits, drugs, tests) = _town(60)
    sources = {"patients": people, "visits": visits, "drugs": drugs, "tests": tests}
    return Curator(parse(text + "budgets: {dataset: {epsilon: 50, delta: 1e-4, accounting: zcdp}}\n"), sources=sources)


def test_the_keys_of_rows_of_rows_are_described_whatever_columns_are_named() -> None:
    with _open_clinic() as curator:
        model = curator.describe(
            "patients", epsilon=4, delta=1e-6, linked=True, columns=["sex", "ward", "kind", "drug"]
        )
        made = curator.generate(model, 50, seed=1)
    known = {(row["patient"], row["visit"]) for row in made["visits"].to_pylist()}
    assert all((row["patient"], row["visit"]) in known for row in made["tests"].to_pylist())


REPLACED = (
    "{column: patient, max_rows_per_group: 1}",
    "{column: patient, max_rows_per_group: 1, neighboring: replace}",
)


@pytest.mark.parametrize(("changes", "neighbors"), [({}, 1), ({"people": REPLACED}, 2)])
def test_one_table_in_which_people_are_replaced_is_priced_so_in_all(changes: Any, neighbors: int) -> None:
    """Only the tables of rows were looked at: that of people got half of the noise that its guarantee needs."""
    with _open_clinic(**changes) as curator:
        source, _ = plan_linked(curator.context, Order("patients", ApproxDP(4, 1e-6)))
        assert source.neighbors == neighbors


@pytest.mark.parametrize(
    ("changes", "order", "said"),
    [
        ({}, {"method": "hierarchical"}, "'hierarchical' does not describe people with their rows"),
        ({"a": ("drug:    {", '"(number of tests)": {')}, {}, "the name of the column '(number of tests)'"),
        ({"a": ("kind:    {", '"(person) sex": {')}, {}, "the name of the column '(person) sex'"),
    ],
)
def test_what_the_policy_shows_to_fail_is_refused_before_the_charge(changes: Any, order: Any, said: str) -> None:
    with _open_clinic(**changes) as curator:
        with pytest.raises(ParameterError, match=re.escape(said)):
            curator.describe("patients", epsilon=4, delta=1e-6, linked=True, **order)
        assert not list(curator.ledger.entries(acts=("charge",)))


def test_parents_that_lead_back_to_a_table_are_a_mistake() -> None:
    with pytest.raises(PolicyError, match="the parents of 'visits' lead back to it"):
        parse(POLICY_TEXT.replace("parent: patients\n    sequence", "parent: tests\n    sequence"))


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": "zzz"},
        {"after": ["zzz"]},
        {"alone": True},
        {"key": "zzz"},
        {"most": 10},
        {"child": "../../evil"},
        {"child": "drugs"},
    ],
    ids=str,
)
def test_a_model_file_that_was_changed_is_refused(model: FamilyModel, tmp_path: Path, change: dict[str, Any]) -> None:
    save_linked(model, tmp_path / "model.json")
    plain = json.loads((tmp_path / "model.json").read_text())
    plain["children"][0] |= change
    (tmp_path / "model.json").write_text(json.dumps(plain))
    with pytest.raises(IntegrityError, match="or was changed"):
        load_linked(tmp_path / "model.json")
