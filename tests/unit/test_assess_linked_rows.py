"""Rows of one person that a token links are measured together: a person is what all their rows say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.assess.exposure import measure_joint_exposure, measure_joint_rows
from deniable.curator.attack import Order as AttackOrder
from deniable.curator.attack import attack
from deniable.curator.mask import keys
from deniable.curator.mask.run import mask, request_for
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import Infeasible


def count_profiles(rows: pa.Table, columns: Sequence[str], link: str, unit: str | None) -> float:
    """The naive twin: people (or rows, without people) who alone have what some linked rows say."""
    places = range(rows.num_rows)
    whose = rows[unit].to_pylist() if unit else [None] * rows.num_rows
    said = list(zip(*(rows[name].to_pylist() for name in columns), strict=True))
    groups: dict[object, list[int]] = {}
    for place, value in zip(places, rows[link].to_pylist(), strict=True):
        groups.setdefault(("alone", place) if value is None else value, []).append(place)
    profiles: dict[object, list[list[int]]] = {}
    for group in groups.values():
        profiles.setdefault(tuple(sorted(Counter(map(repr, (said[i] for i in group))).items())), []).append(group)
    if unit is None:
        return sum(len(held[0]) for held in profiles.values() if len(held) == 1) / rows.num_rows
    owners = [{whose[i] for group in held for i in group} for held in profiles.values()]
    return len({next(iter(who)) for who in owners if len(who) == 1}) / len(set(whose))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("unit", [None, "who"])
@pytest.mark.parametrize("link", ["who", "household", "visit"])
def test_linked_rows_are_measured_as_brute_force_does(seed: int, unit: str | None, link: str) -> None:
    draw = np.random.default_rng(seed)
    who = draw.integers(0, 60, 150)
    household = [None if person % 7 == 0 else int(person) // 2 for person in who]
    held = {"who": who.tolist(), "household": household, "visit": list(range(150))}
    rows = pa.table({"a": draw.integers(0, 3, 150).tolist(), "b": draw.integers(0, 2, 150).tolist(), **held})
    expected = count_profiles(rows, ["a", "b"], link, unit)
    with DuckDBEngine() as engine:
        engine.attach("t", rows)
        ways = [measure_joint_exposure(engine, "t", ["a", "b"], unit, [link])]
    ways.append(measure_joint_rows(rows, ["a", "b"], unit, [link]))
    for found in ways:
        assert found is not None
        if link == "visit":  # a number of the row links none
            assert (found.linked_by, found.of_one_row) == ([], None)
        else:
            assert found.together == pytest.approx(max(expected, found.of_one_row or 0.0))
            assert found.linked_by == [link]
            assert f"{found.together:.1%}" in found.words
            assert f"since {link} links the rows" in found.words


def test_tokens_of_two_names_link_as_one() -> None:
    """Neither name is one person's, both together are: Ann Lee, Ann Poe, Bob Lee, Bob Poe."""
    people = [("ann", "lee", "xxy"), ("ann", "poe", "xyy"), ("bob", "lee", "xxx"), ("bob", "poe", "yyy")]
    held = [(i, first, last, said) for i, (first, last, says) in enumerate(people) for said in says]
    rows = pa.table(dict(zip(("who", "first", "last", "says"), map(list, zip(*held, strict=True)), strict=True)))
    with DuckDBEngine() as engine:
        engine.attach("t", rows)
        by_engine = measure_joint_exposure(engine, "t", ["says"], "who", ["first", "last"])
    by_rows = measure_joint_rows(rows, ["says"], "who", ["first", "last"])
    assert by_engine is not None
    assert by_rows is not None
    assert by_engine.together == by_rows.together == 1.0
    assert by_rows.of_one_row == 0.0


POLICY = """
version: 1
dataset: clinic
tables:
  drugs:
    source: drugs.csv
    unit: {column: patient, max_rows: 6}
    columns:
      patient: {role: identifier, mask: {MASK}}
      drug: {role: quasi-identifier}
  tests:
    source: tests.csv
    unit: {column: patient, max_rows: 6}
    columns:
      patient: {role: identifier, mask: {MASK}}
      result: {role: quasi-identifier}
keys: {people: {file: people.key}}
release:
  joint: {most: 0.05WHO}
"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """Sixty people with six drugs each of eight: nobody is alone with one, nearly everybody with all six."""
    draw = np.random.default_rng(3)
    drugs = "".join(f"{i},d{d}\n" for i in range(60) for d in sorted(draw.integers(0, 8, 6)))
    (tmp_path / "drugs.csv").write_text("patient,drug\n" + drugs)
    tests = "".join(f"{i},r{i % 8}\n{i},r{8 + i // 8}\n" for i in range(60))
    (tmp_path / "tests.csv").write_text("patient,result\n" + tests)
    keys.new("people", tmp_path / "people.key")
    return tmp_path / "clinic.yaml"


@pytest.mark.parametrize("mask_words", ["token: {key: people}", "fake: {kind: name, key: people}"])
def test_masked_rows_that_a_token_links_are_refused_beyond_the_limit(clinic: Path, mask_words: str) -> None:
    clinic.write_text(POLICY.replace("MASK", mask_words).replace("WHO", ""))
    out = clinic.parent / "out.parquet"
    with pytest.raises(Infeasible, match=r"All released columns together single out 8.\..%") as refused:
        mask(request_for(clinic, None, "drugs", out))
    assert "by all their rows, since patient links the rows of a person, and 0.0% by one row" in str(refused.value)
    assert not list(clinic.parent.glob("*out*"))
    clinic.write_text(POLICY.replace("MASK", mask_words).replace("WHO", ", accepted_by: Dr. Steward"))
    told = mask(request_for(clinic, None, "drugs", out)).tables["drugs"]
    released = pq.read_table(out)
    assert told["joint"]["together"] == pytest.approx(count_profiles(released, ["drug"], "patient", "patient"))
    assert told["joint"]["accepted_by"] == "Dr. Steward"
    found = attack(AttackOrder(str(out), policy=clinic, table="drugs"))
    assert found.joint.together == told["joint"]["together"]


def test_rows_whose_token_is_removed_are_not_linked(clinic: Path) -> None:
    clinic.write_text(POLICY.replace("MASK", "nullify: {}").replace("WHO", ""))
    told = mask(request_for(clinic, None, "drugs", clinic.parent / "out.parquet")).tables["drugs"]
    assert (told["joint"]["together"], told["joint"]["linked_by"]) == (0.0, [])
    assert not any(each.startswith("joining by") for each in told["remaining_attacks"])


def test_rows_of_a_person_in_several_tables_of_a_release_are_linked_by_their_token(clinic: Path) -> None:
    few = "".join(f"{i},d{i % 2}\n{i},d{i % 2}\n" for i in range(60))
    (clinic.parent / "drugs.csv").write_text("patient,drug\n" + few)
    halves = "".join(f"{i},r{i // 2}\n{i},r{i // 2}\n" for i in range(60))
    (clinic.parent / "tests.csv").write_text("patient,result\n" + halves)
    clinic.write_text(POLICY.replace("MASK", "token: {key: people}").replace("WHO", ""))
    for table in ("drugs", "tests"):  # each alone singles out nobody, and says that it can be joined
        told = mask(request_for(clinic, None, table, clinic.parent / f"{table}.parquet")).tables[table]
        assert told["joint"]["together"] == 0.0
        assert any(each.startswith("joining by patient: other tables") for each in told["remaining_attacks"])
    drugs, tests = (
        set(pq.read_table(clinic.parent / f"{name}.parquet")["patient"].to_pylist()) for name in ("drugs", "tests")
    )
    assert drugs == tests
    with pytest.raises(Infeasible, match=r"single out 100.0%.*of somebody in all 2 tables"):
        mask(request_for(clinic, None, None, clinic.parent / "both"))
    assert not list((clinic.parent / "both").glob("*.parquet"))
    clinic.write_text(POLICY.replace("MASK", "token: {key: people}").replace("WHO", ", accepted_by: Dr. Steward"))
    told = mask(request_for(clinic, None, None, clinic.parent / "both")).tables
    assert all(one["joint_of_tables"]["together"] == 1.0 for one in told.values())


WIDE = """
version: 1
dataset: town
tables:
  people:
    source: people.csv
    unit: {column: id, max_rows: 1}
    columns:
      id: {role: identifier, mask: {token: {key: people}}}
      town: {role: quasi-identifier}
      job: {role: quasi-identifier, mask: {token: {key: people}}}
      year: {type: integer, role: quasi-identifierYEAR}
keys: {people: {file: people.key}}
release:
  joint: {most: 0.05WHO}
"""


def ask_columns(policy: Path, name: str, *columns: str) -> dict[str, object]:
    """Mask some columns of the people into a file of their own."""
    return mask(request_for(policy, None, "people", policy.parent / name, columns=columns)).tables["people"]


@pytest.fixture
def town(tmp_path: Path) -> Path:
    """Sixty people: nobody is alone with a town or with a year, everybody with both."""
    lines = "".join(f"{i},t{i // 6},j{i % 2},{1950 + i % 6}\n" for i in range(60))
    (tmp_path / "people.csv").write_text("id,town,job,year\n" + lines)
    keys.new("people", tmp_path / "people.key")
    policy = tmp_path / "town.yaml"
    policy.write_text(WIDE.replace("WHO", "").replace("YEAR", ""))
    return policy


def test_two_releases_of_a_table_with_the_same_tokens_are_measured_together(town: Path) -> None:
    told = ask_columns(town, "one.parquet", "id", "town")
    assert told["joint"]["together"] == 0.0
    assert "joint_with_earlier" not in told
    with pytest.raises(Infeasible, match=r"single out 100.0%.*knows all 2 released columns") as no:
        ask_columns(town, "two.parquet", "id", "year")
    assert "this release and earlier ones with the same tokens" in str(no.value)
    assert not (town.parent / "two.parquet").exists()
    assert ask_columns(town, "one.parquet", "id", "town")["joint"]["together"] == 0.0  # the same again is nothing new
    ask_columns(town, "three.parquet", "year")  # without tokens nothing links it
    town.write_text(WIDE.replace("WHO", ", accepted_by: Dr. Steward").replace("YEAR", ""))
    told = ask_columns(town, "two.parquet", "id", "year")
    assert told["joint_with_earlier"]["together"] == 1.0
    assert told["joint_with_earlier"]["accepted_by"] == "Dr. Steward"


def test_what_left_before_is_measured_as_it_left(town: Path) -> None:
    coarse = WIDE.replace("WHO", "").replace("YEAR", ", mask: {round: 100}")
    town.write_text(coarse)
    ask_columns(town, "one.parquet", "id", "year")
    told = ask_columns(town, "two.parquet", "id", "town")
    assert told["joint_with_earlier"]["together"] == 0.0


def test_another_key_links_nothing_with_what_left_before(town: Path) -> None:
    ask_columns(town, "one.parquet", "id", "town")
    (town.parent / "people.key").unlink()
    keys.checks_path(town).write_text(
        "\n".join(line for line in keys.checks_path(town).read_text().splitlines() if '"people"' not in line)
    )
    keys.new("people", town.parent / "people.key")
    assert "joint_with_earlier" not in ask_columns(town, "two.parquet", "id", "year")
