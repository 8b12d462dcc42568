"""Rows of one person that a token links are measured together: a person is what all their rows say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.assess.exposure import LinkedRows, measure_joint_exposure, measure_joint_rows, measure_linked_tables
from deniable.curator import Curator
from deniable.curator.attack import Order as AttackOrder
from deniable.curator.attack import attack
from deniable.curator.context import ledger_of
from deniable.curator.mask import keys, linked
from deniable.curator.mask.run import mask, request_for
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import Infeasible, StorageError


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
    for table in ("drugs", "tests"):  # each alone singles out nobody, and says that it can be joined; no ledger is kept
        told = mask(request_for(clinic, None, table, clinic.parent / f"{table}.parquet")).tables[table]
        assert told["joint"]["together"] == 0.0
        assert any("releases that another ledger recorded" in each for each in told["remaining_attacks"])
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


def ask_columns(policy: Path, name: str, *columns: str, table: str = "people") -> dict[str, Any]:
    """Mask some columns of the people into a file of their own."""
    ledger = ledger_of(policy, None)
    return mask(request_for(policy, None, table, policy.parent / name, columns=columns, ledger=ledger)).tables[table]


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
    assert "this release and earlier ones with the same tokens (people)" in str(no.value)
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
    town.write_text(WIDE.replace("WHO", "").replace("YEAR", ""))  # another mask today: what left is what it was
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


def count_linked_tables(tables: Sequence[tuple[pa.Table, str | None]]) -> float:
    """The naive twin: for each table the people whose linked rows, of all tables, no other of its people has."""
    groups: dict[object, list[tuple[int, int]]] = {}
    for number, (rows, _) in enumerate(tables):
        for place, value in enumerate(rows["token"].to_pylist()):
            groups.setdefault(("alone", number, place) if value is None else value, []).append((number, place))
    said = [rows["says"].to_pylist() for rows, _ in tables]
    profiles: dict[object, list[list[tuple[int, int]]]] = {}
    for group in groups.values():
        content = tuple(sorted(Counter((number, said[number][place]) for number, place in group).items()))
        profiles.setdefault(content, []).append(group)
    shares = []
    for number, (rows, unit) in enumerate(tables):
        whose = rows[unit].to_pylist() if unit else None
        alone, people = set(), set()
        for held in profiles.values():
            owners = {whose[i] if whose else id(group) for group in held for table, i in group if table == number}
            people |= owners
            if len(owners) == 1:
                alone |= owners
        shares.append(len(alone) / len(people))
    return max(shares)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("units", [("who", "who"), ("who", None), (None, "who")])
def test_tables_that_a_token_links_are_measured_as_brute_force_does(seed: int, units: tuple[str | None, ...]) -> None:
    draw = np.random.default_rng(seed)

    def make(people: int, rows: int, kind: type) -> pa.Table:
        who = draw.integers(0, people, rows)
        token = [None if person % 9 == 0 else f"t{int(person) // (1 + seed % 2)}" for person in who]
        says = draw.integers(0, 3, rows).tolist()
        return pa.table({"who": [kind(int(person)) for person in who], "token": token, "says": says})

    held = (make(60, 90, str), make(25, 40, int))  # other people, and other types of their numbers
    expected = count_linked_tables([(held[0], units[0]), (held[1], units[1])])
    with DuckDBEngine() as engine:
        engine.attach("a", held[0])
        engine.attach("b", held[1])
        tables = [LinkedRows(name, name, ["says"], "token", unit) for name, unit in zip("ab", units, strict=True)]
        for order in (tables, tables[::-1]):
            found = measure_linked_tables(engine, order)
            assert found is not None
            assert found.together == pytest.approx(expected), "whichever left first"
            assert found.together > 0


@pytest.fixture
def halves(clinic: Path) -> Path:
    """Sixty people: two drugs divide them into halves, and tests into pairs; both single everybody out."""
    few = "".join(f"{i},d{i % 2}\n{i},d{i % 2}\n" for i in range(60))
    (clinic.parent / "drugs.csv").write_text("patient,drug\n" + few)
    pairs = "".join(f"{i},r{i // 2}\n{i},r{i // 2}\n" for i in range(60))
    (clinic.parent / "tests.csv").write_text("patient,result\n" + pairs)
    clinic.write_text(write_clinic())
    return clinic


def write_clinic(who: str = "", **masks: str) -> str:
    """The clinic's policy, with a mask for the patient in each table."""
    begun, drugs, tests = POLICY.replace("WHO", who).split("{MASK}")
    words = [masks.get(table, "token: {key: people}") for table in ("drugs", "tests")]
    return f"{begun}{{{words[0]}}}{drugs}{{{words[1]}}}{tests}"


REFUSED = (
    r"single out 100.0%.*all 2 released columns.*earlier ones with the same tokens \(drugs\).*people in (drugs|tests)"
)
SHORT, FOR_OTHERS = "token: {key: people, length: 10}", "token: {key: people, domain: others}"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("masks", [{}, {"tests": SHORT}, {"drugs": SHORT}])
def test_two_tables_that_are_masked_in_two_runs_are_measured_together(halves: Path, masks: dict[str, str]) -> None:
    halves.write_text(write_clinic(**masks))
    assert "joint_with_earlier" not in ask_columns(halves, "one.parquet", "patient", "drug", table="drugs")
    with pytest.raises(Infeasible, match=REFUSED):
        ask_columns(halves, "two.parquet", "patient", "result", table="tests")
    assert not list(halves.parent.glob("*two*"))
    ask_columns(halves, "one.parquet", "patient", "drug", table="drugs")  # what was refused is not remembered
    halves.write_text(write_clinic(", accepted_by: Dr. Steward", **masks))
    told = ask_columns(halves, "two.parquet", "patient", "result", table="tests")
    assert (told["joint_with_earlier"]["together"], told["joint_with_earlier"]["accepted_by"]) == (1.0, "Dr. Steward")


def test_tokens_of_another_domain_link_no_tables(halves: Path) -> None:
    halves.write_text(write_clinic(tests=FOR_OTHERS))
    ask_columns(halves, "one.parquet", "patient", "drug", table="drugs")
    assert "joint_with_earlier" not in ask_columns(halves, "two.parquet", "patient", "result", table="tests")


def test_rows_that_are_masked_in_memory_are_measured_with_other_releases(halves: Path) -> None:
    with Curator.open(halves) as curator:
        assert curator.mask("drugs").rows.num_rows == 120
        with pytest.raises(Infeasible, match=REFUSED):
            curator.mask("tests")
    with pytest.raises(Infeasible, match=REFUSED):
        ask_columns(halves, "two.parquet", "patient", "result", table="tests")
    halves.write_text(write_clinic(", accepted_by: Dr. Steward"))
    with Curator.open(halves) as curator:
        assert curator.mask("tests").details["joint_with_earlier"]["together"] == 1.0


def test_a_small_table_is_not_lost_among_the_people_of_a_large_one(halves: Path) -> None:
    drugs = (halves.parent / "drugs.csv").read_text().splitlines()[:5]  # two people of sixty
    (halves.parent / "drugs.csv").write_text("\n".join([*drugs, "2,d0", "2,d0", "3,d1", "3,d1"]) + "\n")
    ask_columns(halves, "one.parquet", "patient", "drug", table="drugs")
    with pytest.raises(Infeasible, match=r"100.0% of the people in drugs"):
        ask_columns(halves, "two.parquet", "patient", "result", table="tests")


def test_an_earlier_release_that_cannot_be_read_is_not_taken_for_harmless(halves: Path) -> None:
    ask_columns(halves, "one.parquet", "patient", "drug", table="drugs")
    (halves.parent / "drugs.csv").unlink()
    with pytest.raises(Infeasible, match="rows of 'drugs' left before with the same tokens, and cannot be read now"):
        ask_columns(halves, "two.parquet", "patient", "result", table="tests")
    assert not (halves.parent / "two.parquet").exists()
    halves.write_text(write_clinic(", accepted_by: Dr. Steward"))
    told = ask_columns(halves, "two.parquet", "patient", "result", table="tests")
    assert any("with releases of drugs, which cannot be read any more" in t for t in told["remaining_attacks"])


def test_a_file_that_was_given_is_read_again_beside_the_table_of_the_policy(halves: Path) -> None:
    given = halves.parent / "given.csv"
    (halves.parent / "drugs.csv").rename(given)
    (halves.parent / "drugs.csv").write_text("patient,drug\n" + "".join(f"{i},d0\n" for i in range(60)))
    ledger = ledger_of(halves, None)
    mask(request_for(halves, str(given), "drugs", halves.parent / "one.parquet", ledger=ledger))
    with pytest.raises(Infeasible, match=REFUSED):
        ask_columns(halves, "two.parquet", "patient", "result", table="tests")


def test_of_two_releases_at_one_moment_neither_leaves_unmeasured(halves: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, ledger = linked._measure_linked, ledger_of(halves, None)

    def measure_late(*arguments: Any) -> dict[str, Any]:
        """Another process masks the other table once this one has looked at what left before."""
        monkeypatch.setattr(linked, "_measure_linked", measure)
        ask_columns(halves, "one.parquet", "patient", "drug", table="drugs")
        return measure(*arguments)

    monkeypatch.setattr(linked, "_measure_linked", measure_late)
    with pytest.raises(StorageError, match="another release with the same tokens was made meanwhile"):
        ask_columns(halves, "two.parquet", "patient", "result", table="tests")
    assert not (halves.parent / "two.parquet").exists()
    with pytest.raises(Infeasible, match=REFUSED):
        mask(request_for(halves, None, "tests", halves.parent / "two.parquet", ledger=ledger))


BRIDGE = """
version: 1
dataset: town
tables:
  people:
    source: people.csv
    unit: {column: id, max_rows: 1}
    columns:
      id: {role: identifier, mask: {token: {key: people}}}
      card: {role: identifier, mask: {token: {key: cards}}}
      town: {role: quasi-identifier}
      year: {type: integer, role: quasi-identifier}
keys: {people: {file: people.key}, cards: {file: cards.key}}
LIMIT
"""
PARTS = (("id", "town"), ("card", "year"), ("id", "card"))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("order", list(permutations(PARTS)), ids=str)
def test_rows_that_two_kinds_of_tokens_join_through_a_third_release_do_not_leave_unmeasured(
    town: Path, order: tuple[tuple[str, str], ...]
) -> None:
    lines = "".join(f"{i},c{i},t{i // 6},{1950 + i % 6}\n" for i in range(60))
    (town.parent / "people.csv").write_text("id,card,town,year\n" + lines)
    keys.new("cards", town.parent / "cards.key")
    town.write_text(BRIDGE.replace("LIMIT", "release: {joint: {most: 0.05}}"))
    for place, columns in enumerate(order[:2]):
        ask_columns(town, f"{place}.parquet", *columns)
    with pytest.raises(Infeasible, match=r"rows of 'people' that have no token in common.*one column of tokens out"):
        ask_columns(town, "2.parquet", *order[2])
    assert not list(town.parent.glob("*2.parquet*"))
    ask_columns(town, "3.parquet", *order[0])  # what was refused is not remembered
    town.write_text(BRIDGE.replace("LIMIT", ""))
    told = ask_columns(town, "4.parquet", *order[2])
    assert any("people" in each for each in told["remaining_attacks"]), "without a limit it is told"
