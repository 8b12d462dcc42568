"""Models counted in people: against twins in exact fractions, by the search, by the checker, and at the command."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable import Curator
from deniable.assess.certificate import certify, measure_properties
from deniable.assess.released_rows import COUNT, OF, Claim, count_people, count_values
from deniable.assess.released_rows import weigh_rows as weigh_rows_again
from deniable.cli.main import app
from deniable.errors import Infeasible, ParameterError
from deniable.kanonymity.anonymize import anonymize
from deniable.kanonymity.models import (
    BetaLikeness,
    Closeness,
    DeltaDisclosure,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    PrivacyModel,
    RecursiveDiversity,
)
from deniable.kanonymity.request import Request, prepare, to_spec, weigh_rows
from deniable.kanonymity.search.check import Checker
from deniable.kanonymity.update import update_recoding
from deniable.policy.document import parse
from deniable.policy.schema import Spec

Row = tuple[int, int, str | None, int]
"""Two quasi-identifiers, a person and a value."""
Rows = list[Row]
VALUES = 4
TREES = {name: Spec("order", {"sizes": (2, 4)}) for name in "ab"}


def draw_table(seed: int) -> Rows:
    """People of one to four rows, most of whom move between cells; one of them has no name."""
    dice = random.Random(seed)
    rows = []
    for person in [None, *(f"p{n}" for n in range(dice.randint(4, 9)))]:
        home = dice.randint(0, 3), dice.randint(0, 3)
        for _ in range(dice.choice([1, 1, 2, 3, 4])):
            cells = home if dice.random() < 0.6 else (dice.randint(0, 3), dice.randint(0, 3))
            rows.append((*cells, person, dice.randint(0, VALUES - 1)))
    return rows


SPELLINGS: list[Callable[[str], str]] = [str, str.upper, lambda p: f" {p}\u200b", lambda p: p.replace("p", "\uff50")]


def to_table(rows: Rows) -> pa.Table:
    """The rows as a table in which nearly every row spells its person, or nobody, in another way."""
    a, b, person, value = zip(*rows, strict=True)
    spelled = [
        (None, "", " ")[i % 3] if p is None else SPELLINGS[i * 7 % 11 % len(SPELLINGS)](p) for i, p in enumerate(person)
    ]
    return pa.table({"a": a, "b": b, "person": pa.array(spelled, pa.string()), "s": value})


def weigh(rows: Rows, whole: Rows) -> list[Fraction]:
    """The weight of each value: a row is the n-th part of a person who has n rows in the whole table."""
    of = defaultdict(int)
    for row in whole:
        of[row[2]] += 1
    held = [Fraction(0)] * VALUES
    for _, _, person, value in rows:
        held[value] += Fraction(1, of[person])
    return held


def match(rows: Rows) -> int:
    """The most people who can each be given another value of theirs, by trying."""
    people = sorted({row[2] or "" for row in rows})
    having = [[*sorted({row[3] for row in rows if (row[2] or "") == p}), None] for p in people]
    given = ([v for v in each if v is not None] for each in itertools.product(*having))
    return max(len(each) for each in given if len(set(each)) == len(each))


def share(held: list[Fraction]) -> list[Fraction]:
    return [each / sum(held) for each in held]


def measure_ordered(rows: Rows, whole: Rows) -> Fraction:
    present = sorted({row[3] for row in whole})
    gaps = [p - q for p, q in zip(share(weigh(rows, whole)), share(weigh(whole, whole)), strict=True)]
    sums = itertools.accumulate(gaps[v] for v in present)
    return sum((abs(each) for each in sums), Fraction(0)) / max(len(present) - 1, 1)


def measure_equal(rows: Rows, whole: Rows) -> Fraction:
    both = zip(share(weigh(rows, whole)), share(weigh(whole, whole)), strict=True)
    return sum((abs(p - q) for p, q in both), Fraction(0)) / 2


def measure_entropy(rows: Rows, whole: Rows) -> float:
    return math.exp(-sum(float(p) * math.log(p) for p in share(weigh(rows, whole)) if p))


def is_recursive(rows: Rows, whole: Rows, c: Fraction, rank: int) -> bool:
    falling = sorted(weigh(rows, whole), reverse=True)
    return falling[0] < c * sum(falling[rank - 1 :])


def gains(rows: Rows, whole: Rows) -> list[Fraction]:
    both = zip(share(weigh(rows, whole)), share(weigh(whole, whole)), strict=True)
    return [p / q for p, q in both if p]


TWINS: list[tuple[PrivacyModel, Callable[[Rows, Rows], bool]]] = [
    (KAnonymity(3, "person"), lambda r, _: len({row[2] for row in r}) >= 3),
    (DistinctDiversity("s", 2, "person"), lambda r, _: match(r) >= 2),
    (DistinctDiversity("s", 3, "person"), lambda r, _: match(r) >= 3),
    (EntropyDiversity("s", 1.8, "person"), lambda r, w: measure_entropy(r, w) >= 1.8 - 1e-9),
    (RecursiveDiversity("s", 2.0, 2, "person"), lambda r, w: is_recursive(r, w, Fraction(2), 2)),
    (Closeness("s", 0.4, person="person"), lambda r, w: measure_equal(r, w) <= Fraction(2, 5) + Fraction(1, 10**12)),
    (
        Closeness("s", 0.25, Distance.ORDERED, "person"),
        lambda r, w: measure_ordered(r, w) <= Fraction(1, 4) + Fraction(1, 10**12),
    ),
    (BetaLikeness("s", 0.9, person="person"), lambda r, w: max(gains(r, w)) <= 1.9 + 1e-12),
    (DeltaDisclosure("s", 1.1, person="person"), lambda r, w: all(abs(math.log2(g)) < 1.1 for g in gains(r, w))),
]
NODES = list(itertools.product(range(3), repeat=2))


def split_rows(rows: Rows, levels: tuple[int, int]) -> dict[tuple[int, int], Rows]:
    """The classes of a node: values in pairs at the second level, all in one at the third."""
    held = defaultdict(list)
    for row in rows:
        held[row[0] // (1, 2, 4)[levels[0]], row[1] // (1, 2, 4)[levels[1]]].append(row)
    return held


def pose(rows: Rows, model: PrivacyModel, suppress: float = 0.0) -> Request:
    about = ("s",) if hasattr(model, "column") else ()
    return Request(("a", "b"), (model,), about, suppress=suppress)


def every_value(rows: Rows) -> Rows:
    """The table with rows of nobody in particular that have all cells, so that hierarchies are of four values."""
    return rows + [(n, n, None, n) for n in range(4)]


@pytest.mark.parametrize(("model", "twin"), TWINS, ids=lambda x: str(x) if hasattr(x, "meets") else "")
def test_a_model_counts_people_as_its_definition_does_at_every_node(
    model: PrivacyModel, twin: Callable[[Rows, Rows], bool]
) -> None:
    for seed in range(12):
        rows = every_value(draw_table(seed))
        checker = Checker(prepare(to_table(rows), pose(rows, model, 0.99), TREES).problem)
        for levels in NODES:
            grouped, released = checker.release_classes(levels)
            expected = sorted(len(held) for held in split_rows(rows, levels).values() if twin(held, rows))
            assert sorted(grouped.sizes[released].tolist()) == expected, (seed, levels)


@pytest.mark.parametrize(("model", "twin"), TWINS, ids=lambda x: str(x) if hasattr(x, "meets") else "")
@pytest.mark.parametrize("suppress", [0.0, 0.3])
def test_the_search_finds_the_best_node_when_people_are_counted(
    model: PrivacyModel, twin: Callable[[Rows, Rows], bool], suppress: float
) -> None:
    for seed in range(12):
        rows = every_value(draw_table(seed))
        prepared = prepare(to_table(rows), pose(rows, model, suppress), TREES)
        costs = []
        for levels in NODES:
            gone = sum(len(held) for held in split_rows(rows, levels).values() if not twin(held, rows))
            if gone <= prepared.problem.limit:
                costs.append(Checker(prepared.problem).check(levels).cost)
        if not costs:
            with pytest.raises(Infeasible):
                anonymize(to_table(rows), pose(rows, model, suppress), TREES)
            continue
        found = anonymize(to_table(rows), pose(rows, model, suppress), TREES)
        assert found.solution.proof.complete
        assert found.solution.cost == pytest.approx(min(costs), abs=1e-12)


@pytest.mark.parametrize(("model", "twin"), TWINS, ids=lambda x: str(x) if hasattr(x, "meets") else "")
def test_what_is_declared_monotone_is_so_when_people_are_counted(
    model: PrivacyModel, twin: Callable[[Rows, Rows], bool]
) -> None:
    """Classes of people who move: two that hold are merged, and one that holds with any other."""
    for seed in range(400):
        rows = draw_table(seed)
        first, second, *_ = [*split_rows(rows, (1, 1)).values(), [], []]
        if not first or not second:
            continue
        union, held = twin(first + second, rows), (twin(first, rows), twin(second, rows))
        if model.under_generalization:
            assert union or not all(held)
        if model.under_suppression:
            assert union or not any(held)


@pytest.mark.parametrize(("model", "twin"), TWINS, ids=lambda x: str(x) if hasattr(x, "meets") else "")
def test_the_checker_counts_people_as_the_definition_does(
    model: PrivacyModel, twin: Callable[[Rows, Rows], bool]
) -> None:
    verdicts = set()
    for seed in range(40):
        rows = draw_table(seed)
        coarse = [(a // 2, b // 4, person, value) for a, b, person, value in rows]
        (found,) = measure_properties(to_table(coarse), ("a", "b"), (to_spec(model),), person="person")
        assert found.holds == all(twin(held, coarse) for held in split_rows(coarse, (0, 0)).values())
        verdicts.add(found.holds)
    assert verdicts == {True, False}


def test_one_person_with_many_values_does_not_make_a_class_diverse() -> None:
    rows: Rows = [(0, 0, "ann", 0), (0, 0, "ann", 1), (0, 0, "ann", 2), (0, 0, "bob", 0), (0, 0, "cid", 0)]
    specs = (Spec("distinct_diversity", {"column": "s", "l": 3}),)
    assert measure_properties(to_table(rows), ("a",), specs)[0].measured == 3
    counted = (Spec("distinct_diversity", {"column": "s", "l": 3, "person": "person"}),)
    assert measure_properties(to_table(rows), ("a",), counted, person="person")[0].measured == 2


def test_rows_weigh_the_same_for_search_and_checker_however_many_people_have() -> None:
    dice = np.random.default_rng(1)
    for most in (3, 12, 90):
        totals = dice.integers(1, most, 500)
        everyone = pa.chunked_array([np.repeat(np.arange(500), totals)])
        again = weigh_rows_again(count_values(everyone, everyone))
        weights = weigh_rows(totals)
        assert [again[int(n)] for n in totals] == weights.tolist()
        assert int((weights * totals).sum()) <= 2**53
        assert abs(1 - (weights * totals).min() / (weights * totals).max()) < 1e-9


def test_a_release_whose_people_were_counted_with_other_rows_is_found_out() -> None:
    rows = to_table(draw_table(3)).select(["a", "person", "s"])
    shown = rows.select(["a", "s"]).set_column(0, "a", pa.array(["*"] * rows.num_rows))
    cells = shown.select(["a"])
    specs = (Spec("distinct_diversity", {"column": "s", "l": 1, "person": "person"}),)
    claim: dict[str, Any] = {
        "columns": {"a": None, "s": pa.int64()},
        "quasi_identifiers": ("a",),
        "sensitive": ("s",),
        "models": specs,
        "whole": {"s": count_values(rows["s"], rows["person"])},
    }
    right = count_people(cells, rows.select(["s"]), rows["person"])
    assert certify(shown, Claim(**claim, people=right)).broken == ()
    others = rows.select(["s"]).take(pa.array([1, *range(1, rows.num_rows)]))
    wrong = count_people(cells, others, rows["person"])
    assert certify(shown, Claim(**claim, people=wrong)).broken
    fewer = right.set_column(right.column_names.index(COUNT), COUNT, pa.array([7] * right.num_rows))
    assert certify(shown, Claim(**claim, people=fewer)).broken
    assert OF in right.column_names


PEOPLE = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: {column: patient}
    columns:
      patient: {role: identifier}
      zip: {role: quasi-identifier, hierarchy: {redact: right}}
      age: {role: quasi-identifier, type: integer, between: [0, 120], hierarchy: {intervals: [10, 20, 40]}}
      illness: {role: sensitive}
release: {anonymize: {k: 3, l: {illness: 3}, t: {illness: 0.5}, suppress: 0.2}}
"""


def visits() -> pa.Table:
    """A few people have visits of every illness, all others of one."""
    dice = random.Random(1)
    rows = []
    for person in range(160):
        cells = {"patient": f"p{person:03}", "zip": f"0213{dice.randint(0, 5)}", "age": dice.randint(20, 70)}
        own = dice.choice(["flu", "flu", "cold", "cough"])
        held = ["flu", "cold", "cough", "fever"] if person % 5 == 0 else [own] * dice.randint(1, 3)
        rows += [cells | {"illness": illness} for illness in held]
    return pa.Table.from_pylist(rows)


def count_by_class(shown: pa.Table, table: pa.Table) -> list[int]:
    """For each class, how many people have different values; the rows are paired by their order."""
    classes = defaultdict(list)
    for cells, row in zip(shown.to_pylist(), table.to_pylist(), strict=True):
        classes[cells["zip"], cells["age"]].append((0, 0, row["patient"], row["illness"]))
    having = [{(row[2], row[3]) for row in held} for held in classes.values()]
    return [_match_greedily(pairs) for pairs in having]


def _match_greedily(pairs: set[tuple[str, str]]) -> int:
    """By scipy's matching, another implementation."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    people, values = ({name: i for i, name in enumerate(sorted({p[side] for p in pairs}))} for side in (0, 1))
    ends = np.array([(people[p], values[v]) for p, v in pairs])
    graph = csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(people), len(values)))
    return int((maximum_bipartite_matching(graph, perm_type="column") >= 0).sum())


@pytest.mark.parametrize("method", ["optimal", "mondrian", "mondrian-relaxed", "local", "cells"])
def test_l_and_t_count_people_where_the_policy_protects_people(method: str) -> None:
    table = visits()
    with Curator(parse(PEOPLE.replace("suppress: 0.2", "suppress: 0")), sources={"visits": table}) as curator:
        release = curator.anonymize("visits", method=method, keep_order=True)
    assert isinstance(release.rows, pa.Table)
    assert min(count_by_class(release.rows, table)) >= 3
    assert all("counted in people" in model for model in release.details["models"])
    measured = {each["name"]: each for each in release.details["measured"]["properties"]}
    assert measured["distinct-diversity"]["parameters"]["person"] == "patient"
    assert not [words for words in release.details["warnings"] if "count rows" in words]


def test_a_steward_may_count_rows_and_is_told(tmp_path: Path) -> None:
    with Curator(parse(PEOPLE), sources={"visits": visits()}) as curator:
        release = curator.anonymize("visits", count_rows=True)
        checked = curator.check("visits")
    assert any("counts rows" in words for words in release.details["warnings"])
    assert [each.name for each in checked.properties] == ["k-anonymity", "distinct-diversity", "closeness"]
    assert not all(each.holds for each in checked.properties)


@pytest.mark.parametrize(
    ("asked", "said", "remedy"),
    [
        (("--person", "patient"), "k is to be counted in people", "Leave --person out"),
        (("--l", "illness=2"), "distinct 2-diversity of illness is asked too", "Leave the other models out"),
        (("-p", "clinic.yaml", "--table", "visits"), "k is to be counted in people", "--count-rows"),
    ],
)
def test_microaggregation_counts_rows_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], said: str, remedy: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"patient": i // 2, "age": 20 + i % 30, "illness": "ab"[i % 2]} for i in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), "visits.parquet")
    policy = (
        "version: 1\ndataset: clinic\nrelease: {anonymize: {k: 3}}\ntables:\n  visits:\n    source: visits.parquet\n"
    )
    policy += "    unit: {column: patient}\n    columns: {patient: {role: identifier}, illness: {role: sensitive},\n"
    Path("clinic.yaml").write_text(policy + "      age: {type: integer, role: quasi-identifier}}\n")
    under = () if "-p" in asked else ("visits.parquet", "--qi", "age", "--sensitive", "illness", "--k", "3")
    done = CliRunner().invoke(app, ["anonymize", *under, *asked, "--method", "microaggregate", "-o", "out.csv"])
    assert isinstance(done.exception, ParameterError)
    assert said in done.exception.happened
    assert remedy in done.exception.remedy


def test_added_rows_must_be_of_enough_people_with_enough_values() -> None:
    rows = every_value(draw_table(5)) * 2
    models = (KAnonymity(2, "person"), DistinctDiversity("s", 2, "person"))
    recoding = anonymize(to_table(rows), Request(("a", "b"), models, ("s",), suppress=0.5), TREES).recoding
    one = [(0, 0, "ann", 0), (0, 0, "ann", 1)]
    assert update_recoding(recoding, to_table(one), models).shown == 0
    assert update_recoding(recoding, to_table([*one, (0, 0, "bob", 1)]), models).shown == 3
    with pytest.raises(ParameterError, match="cannot be judged"):
        update_recoding(recoding, to_table(one), (EntropyDiversity("s", 1.5, "person"),))


def test_check_counts_people_at_the_command(tmp_path: Path) -> None:
    rows = to_table([(0, 0, "ann", 0), (0, 0, "ann", 1), (0, 0, "bob", 0), (0, 0, "bob", 0)])
    pq.write_table(rows, tmp_path / "t.parquet")
    asked = ["check", str(tmp_path / "t.parquet"), "--qi", "a,b", "--sensitive", "s", "--k", "3", "--l", "s=2"]
    counted = CliRunner().invoke(app, [*asked, "--person", "person"])
    assert counted.exit_code == 2
    assert "k-anonymity (k = 3, person = person) does not hold: it is 2" in counted.output
    assert "distinct-diversity (column = s, l = 2, person = person): holds, measured 2" in counted.output
    assert CliRunner().invoke(app, [*asked, "--keep", "person"]).exit_code == 0
