"""Rows are measured and attacked before they leave: by all columns together, and by what the policy limits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.assess import exposure
from deniable.assess.exposure import measure_joint_exposure, measure_joint_rows
from deniable.attacks.uniqueness import measure_joint_risk
from deniable.cli.attack import describe_limited
from deniable.curator.anonymize.request import Asked, Order
from deniable.curator.anonymize.run import anonymize, update
from deniable.curator.attack import Order as AttackOrder
from deniable.curator.attack import attack
from deniable.curator.mask.run import mask, request_for
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import NOTHING_CHARGED, DeniableError, Infeasible
from deniable.ledger.ledger import open_ledger
from deniable.policy.document import read
from deniable.policy.layout.release import ATTACKS
from deniable.policy.schema import Spec

DIABETES = Path(__file__).parents[3] / "shared" / "data" / "diabetes130" / "diabetic_data.parquet"


def count_alone(rows: pa.Table, columns: Sequence[str], unit: str | None = None) -> float:
    """The naive twin: people who have a combination that nobody else has."""
    people = rows[unit].to_pylist() if unit else list(range(rows.num_rows))
    keys = list(zip(*(rows[name].to_pylist() for name in columns), strict=True))
    owners: dict[object, set[object]] = {}
    for key, person in zip(keys, people, strict=True):
        owners.setdefault(key, set()).add(person)
    return len({next(iter(who)) for who in owners.values() if len(who) == 1}) / len(set(people))


def make_rows(seed: int, count: int = 120, width: int = 6) -> pa.Table:
    draw = np.random.default_rng(seed)
    columns = {f"c{i}": draw.integers(0, 2 + i, count).tolist() for i in range(width)}
    columns["c1"] = [None if value == 0 else value for value in columns["c1"]]
    return pa.table(columns | {"who": draw.integers(0, count // 2, count).tolist()})


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("unit", [None, "who"])
def test_joint_risk_is_what_brute_force_finds(seed: int, unit: str | None) -> None:
    rows = make_rows(seed)
    names = [name for name in rows.column_names if name != "who"]
    found = measure_joint_risk(rows, names, unit=unit)
    assert found.exhaustive
    assert found.together == pytest.approx(count_alone(rows, names, unit))
    for one in found.sets:
        shares = [count_alone(rows, chosen, unit) for chosen in combinations(names, len(one.columns))]
        assert one.share == pytest.approx(max(shares))
        assert one.share == pytest.approx(count_alone(rows, one.columns, unit))
    assert [len(one.columns) for one in found.sets] == [2, 3, 5]


def test_sets_that_are_too_many_to_try_are_grown_from_the_strongest() -> None:
    rows = make_rows(7, 300, 40)
    names = [name for name in rows.column_names if name != "who"]
    found = measure_joint_risk(rows, names)
    assert not found.exhaustive
    for one in found.sets:
        drawn = [tuple(np.random.default_rng(i).choice(names, len(one.columns), replace=False)) for i in range(60)]
        assert one.share >= max(count_alone(rows, chosen) for chosen in drawn)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_empty_and_tiny_tables_are_no_trouble(rows: int) -> None:
    table = pa.table({"a": pa.array([1] * rows, pa.int64()), "b": pa.array([None] * rows, pa.string())})
    assert measure_joint_risk(table).together == (1.0 if rows == 1 else 0.0)


@pytest.mark.skipif(not DIABETES.exists(), reason="the real table is not here")
def test_the_joint_risk_of_a_hospital_table_is_that_of_brute_force() -> None:
    rows = pq.read_table(DIABETES)
    names = ["race", "gender", "age", "time_in_hospital", "num_lab_procedures", "num_medications", "diag_1"]
    found = measure_joint_risk(rows, names)
    counts = Counter(zip(*(rows[name].to_pylist() for name in names), strict=True))
    assert found.together == pytest.approx(sum(n == 1 for n in counts.values()) / rows.num_rows, abs=0.01)
    assert found.together > 0.9


def test_large_tables_are_counted_whole_and_searched_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "JOINT_ROWS", 50)
    rows = make_rows(3, 400)
    names = [name for name in rows.column_names if name != "who"]
    with DuckDBEngine() as engine:
        engine.attach("t", rows)
        for unit in (None, "who"):
            found = measure_joint_exposure(engine, "t", names, unit)
            assert found is not None
            assert found.rows_searched == 50
            assert found.together == pytest.approx(count_alone(rows, names, unit))


POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: row
    columns:
      age: {type: integer, role: quasi-identifier, hierarchy: {intervals: [10, 50]}}
      ward: {role: insensitive}
      steps: {type: integer, role: insensitive}
release:
  anonymize: {k: 5}
LIMIT"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    rows = "".join(f"{20 + i % 40},{'abc'[i % 3]},{i % 50}\n" for i in range(200))
    (tmp_path / "visits.csv").write_text("age,ward,steps\n" + rows)
    return tmp_path / "clinic.yaml"


def release(policy: Path, how: str, out: Path) -> dict[str, object]:
    ledger = str(policy.with_suffix(".ledger.sqlite"))
    if how != "mask":
        method = how if how == "mondrian" else "optimal"
        order = Order(None, out, policy, "visits", ledger=ledger, method=method, count_rows=how == "rows")
        return anonymize(order).to_dict()
    return mask(request_for(policy, None, "visits", out, ledger=ledger)).to_dict()["tables"]["visits"]


def read_stated(out: Path, detail: str = "joint") -> dict[str, object]:
    """What the statement beside a file says of its joint risk, or of another detail."""
    stated = json.loads(out.with_name(out.name + ".release.json").read_text())
    found: dict[str, object] = stated.get("statement", stated)["details"][detail]
    return found


@pytest.mark.parametrize("how", ["anonymize", "mask"])
def test_the_joint_risk_is_told_in_one_sentence_with_the_release_and_its_statement(clinic: Path, how: str) -> None:
    clinic.write_text(POLICY.replace("LIMIT", ""))
    out = clinic.parent / "out.parquet"
    told = release(clinic, how, out)["joint"]
    released = pq.read_table(out)
    assert told["together"] == pytest.approx(count_alone(released, released.column_names))  # type: ignore[index]
    assert told["words"].startswith(
        f"Whoever knows all 3 released columns of somebody singles out {told['together']:.1%}"
    )  # type: ignore[index]
    assert read_stated(out)["together"] == told["together"]  # type: ignore[index]


LIMITS = {
    "joint": "  joint: {most: 0.001WHO}\n",
    "attack": "  attack: {knows: [steps], most: {uniqueness: 0.001}WHO}\n",
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("how", ["anonymize", "mondrian", "mask"])
def test_a_release_beyond_a_limit_is_refused_and_nothing_is_left(clinic: Path, how: str, limit: str) -> None:
    clinic.write_text(POLICY.replace("LIMIT", LIMITS[limit].replace("WHO", "")))
    rows = "".join(f"{20 + i % 40},{'abc'[i % 3]},{i}\n" for i in range(200))
    (clinic.parent / "visits.csv").write_text("age,ward,steps\n" + rows)
    with pytest.raises(Infeasible) as refused:
        release(clinic, how, clinic.parent / "out.parquet")
    assert refused.value.fields["limit"] == limit
    assert "100.0%" in refused.value.happened
    assert "Nothing was charged" in str(refused.value)
    assert not list(clinic.parent.glob("out.parquet*"))


@pytest.mark.parametrize("how", ["anonymize", "mask"])
def test_the_attacks_that_a_policy_limits_are_stated_with_what_they_expose_or_lack(clinic: Path, how: str) -> None:
    out, limits = clinic.parent / "out.parquet", "uniqueness: 0.9, inference: 0.9, linkage: 0.1, tables: 0.1"
    clinic.write_text(
        POLICY.replace("LIMIT", f"  attack: {{most: {{{limits}}}}}\n").replace("ward: {role: in", "ward: {role: ")
    )
    told = release(clinic, how, out)["attacks"]
    assert read_stated(out, "attacks") == told
    original = str(clinic.parent / "visits.csv")
    found = attack(AttackOrder(str(out), original=original, policy=clinic, table="visits"))
    assert told["exposed"] == {name: found.exposed[name] for name in ("uniqueness", "inference")}  # type: ignore[index]
    assert told["limits"] == dict.fromkeys(told["exposed"], 0.9)  # type: ignore[index]
    assert told["unmeasured"] == {"linkage": "needs a register with names (--register)"}  # type: ignore[index]
    assert told["inapplicable"] == {"tables": "it attacks published statistics and logs of questions"}  # type: ignore[index]
    assert told["accepted_by"] is None  # type: ignore[index]


def test_rows_are_judged_as_whoever_receives_them_attacks_them_and_by_people(clinic: Path) -> None:
    """One person has half of the rows, each with a number that no other has: of the people that is one."""
    rows = [f"{20 + i % 40},a,{i if i < 100 else 500},{0 if i < 100 else i}\n" for i in range(200)]
    (clinic.parent / "visits.csv").write_text("age,ward,steps,who\n" + "".join(rows))
    text = POLICY.replace("unit: row", "unit: {column: who}").replace("age: {", "who: {role: identifier}\n      age: {")
    out, limit = clinic.parent / "out.parquet", "  attack: {knows: [steps], most: {uniqueness: MOST}}\n"
    clinic.write_text(text.replace("k: 5", "k: 2").replace("LIMIT", limit.replace("MOST", "0.6")))
    told = release(clinic, "anonymize", out)["attacks"]
    found = attack(AttackOrder(str(out), original=str(clinic.parent / "visits.csv"), policy=clinic, table="visits"))
    assert told["exposed"]["uniqueness"] == found.exposed["uniqueness"] > 0.4  # type: ignore[index]
    clinic.write_text(text.replace("k: 5", "k: 2").replace("LIMIT", limit.replace("MOST", "0.1")))
    with pytest.raises(Infeasible, match="uniqueness exposes"):
        release(clinic, "anonymize", clinic.parent / "other.parquet")


@pytest.mark.parametrize("how", ["anonymize", "mask"])
def test_a_limit_that_cannot_be_measured_is_passed_unless_the_steward_stands_for_it(clinic: Path, how: str) -> None:
    (clinic.parent / "visits.csv").write_text("age,ward,steps\n" + ",a,1\n" * 40)
    limit = "  attack: {most: {uniqueness: 0.9}WHO}\n"
    text, out = POLICY.replace("{intervals: [10, 50]}", "withhold"), clinic.parent / "out.parquet"
    clinic.write_text(text.replace("LIMIT", limit.replace("WHO", "")))
    with pytest.raises(Infeasible, match="uniqueness is limited, and could not be measured: it needs values"):
        release(clinic, how, out)
    assert not list(clinic.parent.glob("*out.parquet*"))
    clinic.write_text(text.replace("LIMIT", limit.replace("WHO", ", accepted_by: Dr. Steward")))
    assert release(clinic, how, out)["attacks"]["accepted_by"] == "Dr. Steward"  # type: ignore[index]


def test_every_limited_attack_without_a_figure_is_told_or_refused(clinic: Path) -> None:
    """Of each attack that a policy can limit there is a figure, what it lacked, or why it finds nothing to attack."""
    limits = ", ".join(f"{name}: 1" for name in ATTACKS)
    text = POLICY.replace("LIMIT", f"  attack: {{most: {{{limits}}}}}\n")
    clinic.write_text(text.replace("ward: {role: in", "ward: {role: "))
    out = clinic.parent / "out.csv"
    told = release(clinic, "anonymize", out)["attacks"]
    parts = [told[part] for part in ("exposed", "unmeasured", "inapplicable")]  # type: ignore[index]
    assert sorted(name for part in parts for name in part) == sorted(ATTACKS)
    assert all(why for part in parts[1:] for why in part.values())
    found = attack(AttackOrder(str(out), original=str(clinic.parent / "visits.csv"), policy=clinic, table="visits"))
    assert sorted((*found.exposed, *found.untried, *found.inapplicable)) == sorted(ATTACKS)
    assert {"tokens", "projection", "downcoding", "reconstruction", "tables"} <= set(found.inapplicable)
    printed = "\n".join(describe_limited(told))  # type: ignore[arg-type]
    assert all(f"not limited here: {name} does not apply: " in printed for name in parts[2])


def test_a_limit_on_links_that_cannot_be_judged_is_not_met(clinic: Path) -> None:
    """Numbers as two ends are in no column of the original: linkability has no figure, and the rows stay."""
    clinic.write_text(POLICY.replace("LIMIT", "  attack: {most: {linkability: 1}}\n").replace("k: 5", "k: 30"))
    order = Order(None, clinic.parent / "out.csv", clinic, "visits", form="bounds")
    with pytest.raises(Infeasible, match="linkability is limited, and could not be measured: it needs what"):
        anonymize(order)


def test_numbers_that_are_written_as_two_ends_are_attacked_too(clinic: Path) -> None:
    text = POLICY.replace("LIMIT", "  attack: {most: {uniqueness: 0}}\n").replace("ward: {role: in", "ward: {role: ")
    clinic.write_text(text.replace("k: 5", "k: 30"))
    order = Order(None, clinic.parent / "out.parquet", clinic, "visits", form="bounds")
    told = anonymize(order).to_dict()["attacks"]
    assert "age_low" in pq.read_table(clinic.parent / "out.parquet").column_names
    assert told["exposed"] == {"uniqueness": 0.0}
    out = str(clinic.parent / "out.parquet")
    found = attack(AttackOrder(out, original=str(clinic.parent / "visits.csv"), policy=clinic, table="visits"))
    assert (found.failed, found.exposed["uniqueness"]) == (False, 0.0)


JOINT, ATTACK = (LIMITS[name].replace("WHO", "") for name in ("joint", "attack"))


@pytest.mark.parametrize(
    ("asked", "limit"),
    [
        ({"method": "magic"}, ""),
        ({"target": "nothing"}, ""),
        ({"encoding": "klingon"}, ""),
        ({"method": "microaggregate", "asked": Asked(l={"ward": Fraction(2)})}, ""),
        ({"asked": Asked(l={"ward": Fraction(4)})}, ""),
        ({"asked": Asked(l={"steps": Fraction(2)})}, ""),
        ({"asked": Asked(t={"steps": Fraction(1, 2)})}, ""),
        ({"asked": Asked(models=(Spec("closeness", {"column": "nope", "t": "0.3"}),))}, ""),
        ({"identifiers": ("nope",)}, ""),
        ({"sensitive": ("steps",)}, ""),
        ({"sensitive": ("age",)}, ""),
        ({"quasi_identifiers": ("steps",)}, ""),
        ({"quasi_identifiers": ("age",), "identifiers": ("age",)}, ""),
        ({"sensitive": ("ward",), "identifiers": ("ward",)}, ""),
        ({"hierarchies": {"ward": Spec("redact", {"from": "right"})}}, ""),
        ({"tails": {"top": {"nope": 5.0}}}, ""),
        ({"tails": {"top": {"ward": 5.0}}}, ""),
        ({"person": "nope"}, ""),
        ({"person": "ward", "count_rows": True}, ""),
        ({"weights": {"ward": 2.0}}, ""),
        ({}, JOINT),
        ({}, ATTACK),
        ({"mode": "magic"}, ""),
        ({"columns": ["nothing"]}, ""),
        ({"mode": "pseudonymize"}, JOINT),
        ({"mode": "pseudonymize"}, ATTACK),
    ],
)
def test_a_refusal_under_a_policy_leaves_the_folder_and_the_ledger_as_they_were(
    clinic: Path, asked: dict[str, Any], limit: str
) -> None:
    rows = "".join(f"{20 + i % 40},{'abc'[i % 3]},{i}\n" for i in range(200))
    (clinic.parent / "visits.csv").write_text("age,ward,steps\n" + rows)
    whole = POLICY.replace("[10, 50]", "[10]")
    if not limit:
        whole = whole.replace("steps: {type: integer, role: insensitive}", "steps: {role: identifier, mask: redact}")
    out, masked = clinic.parent / "out.csv", {"mode", "columns"} & set(asked)
    ledger = str(clinic.with_suffix(".ledger.sqlite"))
    clinic.write_text(whole.replace("LIMIT", "").replace("k: 5", "k: 2"))
    if masked:
        mask(request_for(clinic, None, "visits", out, ledger=ledger))
    else:
        anonymize(Order(None, out, clinic, "visits", ledger=ledger))
    clinic.write_text(whole.replace("LIMIT", limit).replace("k: 5", "k: 2" if limit else "k: 5"))

    def see() -> tuple[object, ...]:
        files = {
            path.name: path.read_bytes() for path in clinic.parent.iterdir() if path.name.startswith(("out", ".out"))
        }
        return files, [entry.hash for entry in open_ledger(ledger, read(clinic)).entries()]

    before = see()

    def release_wrongly() -> None:
        if masked:
            mask(request_for(clinic, None, "visits", out, ledger=ledger, **asked))
        else:
            anonymize(Order(None, out, clinic, "visits", ledger=ledger, **asked))

    with pytest.raises(DeniableError) as refused:
        release_wrongly()
    assert str(refused.value).endswith(NOTHING_CHARGED)
    assert see() == before


def test_rows_added_to_a_release_are_attacked_before_they_leave(clinic: Path) -> None:
    clinic.write_text(POLICY.replace("LIMIT", ""))
    release(clinic, "anonymize", clinic.parent / "out.parquet")
    clinic.write_text(POLICY.replace("LIMIT", LIMITS["attack"].replace("WHO", "")))
    (clinic.parent / "more.csv").write_text("age,ward,steps\n" + "".join(f"{20 + i % 8},a,{i}\n" for i in range(40)))
    more = Order(str(clinic.parent / "more.csv"), clinic.parent / "more.parquet", clinic, "visits")
    with pytest.raises(Infeasible, match="the rows were attacked, and do not leave"):
        update(clinic.parent / "out.parquet", more)
    assert not list(clinic.parent.glob("more.parquet*"))


PEOPLE = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: who}
    columns:
      who: {role: identifier, mask: MASK}
      age: {type: integer, role: quasi-identifier, hierarchy: {intervals: [10, 50]}}
      town: {role: insensitive}
release:
  anonymize: {k: 5}
LIMIT"""


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("rows_searched", [exposure.JOINT_ROWS, 50])
@pytest.mark.parametrize("how", ["anonymize", "mondrian", "rows", "mask"])
def test_people_are_counted_by_the_tables_own_column_whatever_is_released_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, rows_searched: int, own: bool
) -> None:
    """Each person has two equal rows: no row is alone with its town, and everybody is who has a town of their own."""
    monkeypatch.setattr(exposure, "JOINT_ROWS", rows_searched)
    towns = [f"t{n if own else n % 5}" for n in range(60)]
    rows = "".join(f"p{n},{20 + n % 4},{town}\n" for n, town in enumerate(towns) for _ in range(2))
    (tmp_path / "visits.csv").write_text("who,age,town\n" + rows)
    policy, out = tmp_path / "clinic.yaml", tmp_path / "out.parquet"
    attacked = "  attack: {knows: [town], most: {uniqueness: 1}}\n"
    for mask_of_who in ("redact", "{regex: {find: '.*', put: 'x'}}")[: 2 if how == "mask" else 1]:
        text = PEOPLE.replace("MASK", mask_of_who)
        policy.write_text(text.replace("LIMIT", f"  joint: {{most: 0.05, accepted_by: A. Steward}}\n{attacked}"))
        made = release(policy, how, out)
        assert made["joint"]["together"] == (1.0 if own else 0.0)  # type: ignore[index]
        assert "of the people" in made["joint"]["words"]  # type: ignore[index]
        assert made["attacks"]["exposed"] == {"uniqueness": 1.0 if own else 0.0}  # type: ignore[index]
        policy.write_text(text.replace("LIMIT", "  joint: {most: 0.05}\n"))
        with pytest.raises(Infeasible) if own else nullcontext():
            release(policy, how, out)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("how", ["anonymize", "mask"])
def test_what_the_steward_stands_for_leaves_with_the_name_in_statement_and_ledger(
    clinic: Path, how: str, limit: str
) -> None:
    rows = "".join(f"{20 + i % 40},{'abc'[i % 3]},{i}\n" for i in range(200))
    (clinic.parent / "visits.csv").write_text("age,ward,steps\n" + rows)
    clinic.write_text(POLICY.replace("LIMIT", LIMITS[limit].replace("WHO", ", accepted_by: A. Steward")))
    release(clinic, how, clinic.parent / "out.parquet")
    stated = read_stated(clinic.parent / "out.parquet", {"joint": "joint", "attack": "attacks"}[limit])
    assert stated["accepted_by"] == "A. Steward"
    opened = open_ledger(str(clinic.with_suffix(".ledger.sqlite")), read(clinic))
    assert any("A. Steward" in str(entry) for entry in opened.entries())


def test_a_set_of_all_columns_is_told_once() -> None:
    rows = pa.table({"age": [30, 31, 32, 32], "sex": ["F", "M", "F", "F"], "ward": ["a", "b", "c", "c"]})
    for names, others in ((("age", "sex"), ""), (("age", "sex", "ward"), "2 of them")):
        told = measure_joint_rows(rows, names)
        assert told is not None
        assert f"all {len(names)} released columns" in told.words
        assert f"{len(names)} of them" not in told.words
        assert others in told.words
