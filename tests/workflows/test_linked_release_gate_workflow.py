"""Attack before release of people with their rows: copied people are stopped on either table, private ones leave."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.curator import Curator
from deniable.curator.synthesize.gate import Proof, synthesize_checked
from deniable.curator.synthesize.run import Order
from deniable.policy.budget import budget
from deniable.policy.document import parse
from deniable.synth.describe import split_people
from deniable.synth.linked import load_linked
from deniable.synth.linked.link import COUNT, build_intruder_tables, link_of

COUNT_OF_PEOPLE = 400
PLACES = ", ".join(f"s{i}" for i in range(COUNT_OF_PEOPLE))
POLICY = f"""
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: {{column: name, max_rows_per_group: 1}}
    columns:
      name:   {{role: identifier}}
      street: {{role: quasi-identifier, nullable: false, categories: [{PLACES}]}}
  visits:
    source: visits.parquet
    unit: {{column: name, max_rows_per_group: 2}}
    parent: people
    columns:
      name:   {{role: identifier}}
      secret: {{role: sensitive, nullable: false, categories: [{", ".join(f"t{i}" for i in range(10))}]}}
budgets:
  dataset: {{epsilon: 1000000, delta: 1e-5, accounting: zcdp}}
release:
  attack: {{most: {{membership: 0.3}}}}
"""


def _people() -> pa.Table:
    """Everybody lives in a street of their own: whoever is held out is like nobody in the model."""
    return pa.table({"name": [f"n{i}" for i in range(COUNT_OF_PEOPLE)],
                     "street": [f"s{i}" for i in range(COUNT_OF_PEOPLE)]})  # fmt: skip


def _visits() -> pa.Table:
    rows = [(f"n{i}", f"t{7 * i % 10}") for i in range(COUNT_OF_PEOPLE) for _ in range(1 + i % 2)]
    return pa.table({"name": [name for name, _ in rows], "secret": [secret for _, secret in rows]})


def _curator(tmp_path: Path) -> Curator:
    sources = {"people": _people(), "visits": _visits()}
    return Curator(parse(POLICY), sources=sources, ledger=tmp_path / "ledger.db")


def _order(epsilon: float) -> Order:
    return Order("visits", budget(epsilon, "1e-6"), "mst", linked=True)


def test_copied_people_are_stopped_and_neither_table_is_written(tmp_path: Path) -> None:
    # At this epsilon the deviation of the noise is far below a half, so rounded noise is 0 and every street of a
    # person who was seen is drawn, and no other: members stand at distance 0, the others at 1 or more.
    out = tmp_path / "out.parquet"
    with _curator(tmp_path) as curator:
        release, proved = synthesize_checked(curator.context, _order(500_000), out, Proof(held_out=0.3, attacks=100))
    assert release is None
    assert proved is not None
    assert proved["exposed"]["membership"] > 0.3
    assert {"membership (people)", "membership (visits)"} <= {
        outcome["attack"] for made in proved["attacks"] for outcome in made["outcomes"]
    }
    assert not out.exists()
    assert not (tmp_path / "people.parquet").exists()


def test_private_people_leave_in_both_tables_with_a_statement_that_says_nothing_of_the_attack(tmp_path: Path) -> None:
    # At epsilon 1 nobody's street stands out of the noise. Chance alone would have to tell 30 points of 120 people on
    # each side apart, and the same for their rows.
    out = tmp_path / "out.parquet"
    with _curator(tmp_path) as curator:
        release, proved = synthesize_checked(curator.context, _order(1), out, Proof(held_out=0.3, attacks=100))
    assert release is not None
    assert proved is not None
    assert not proved["failed"]
    assert set(release.details["files"]) == {"out.parquet", "people.parquet"}
    assert release.details["held_out"] == 0.3
    people, rows = pq.read_table(tmp_path / "people.parquet"), pq.read_table(out)
    assert set(rows["name"].to_pylist()) <= set(people["name"].to_pylist())
    assert load_linked(tmp_path / "out.parquet.model.json").link.parent == "people"


def test_whoever_is_held_out_is_so_in_both_tables() -> None:
    (people, [rows]), (others, [their]) = split_people(_people(), [_visits()], "name", 0.3)
    assert people is not None
    assert others is not None
    assert people.num_rows + others.num_rows == COUNT_OF_PEOPLE
    assert rows.num_rows + their.num_rows == _visits().num_rows
    assert set(rows["name"].to_pylist()) == set(people["name"].to_pylist())
    assert set(their["name"].to_pylist()) == set(others["name"].to_pylist())
    (nobody, [seen]), (_, [held]) = split_people(None, [_visits()], "name", 0.3)
    assert nobody is None
    assert not set(seen["name"].to_pylist()) & set(held["name"].to_pylist())


@pytest.mark.parametrize("alone", [False, True])
def test_the_intruder_sees_people_with_how_many_rows_they_have_and_rows_with_their_people(alone: bool) -> None:
    text = POLICY
    rows = _visits()
    if alone:
        text = POLICY.replace("    parent: people\n", "    sequence: day\n").replace(
            "      secret:",
            "      day: {type: integer, between: [0, 9], nullable: false}\n"
            f"      street: {{categories: [{PLACES}]}}\n      secret:",
        )
        text = text.replace("release:", "release:\n  truths: [{determines: {from: [name], to: [street]}}]")
        rows = rows.append_column("street", pa.array([f"s{name[1:]}" for name in rows["name"].to_pylist()]))
        rows = rows.append_column("day", pa.array([0] * rows.num_rows))
    policy = parse(text)
    link = link_of(policy.table("visits"), None if alone else policy.table("people"), policy.release.truths)
    persons, owned = build_intruder_tables(link, None if alone else _people(), rows)
    assert persons.column_names == ["street", COUNT]
    counts = dict(zip(persons["street"].to_pylist(), persons[COUNT].to_pylist(), strict=True))
    assert counts["s0"] == 1
    assert counts["s1"] == 2
    assert owned.num_rows == rows.num_rows
    assert set(owned.column_names) == {"street", "secret"} | ({"day"} if alone else set())
    assert ("s3", "t1") in set(zip(owned["street"].to_pylist(), owned["secret"].to_pylist(), strict=True))
