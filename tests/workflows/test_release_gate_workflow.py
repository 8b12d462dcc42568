"""Attack before release: a model that copies people is stopped, a private one leaves, and nothing of it is sealed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.assess.evidence import equalize_sides
from deniable.curator import Curator
from deniable.curator.synthesize.gate import Proof, synthesize_checked
from deniable.curator.synthesize.run import Order
from deniable.errors import BudgetExceeded, DataError, ParameterError
from deniable.policy.budget import budget
from deniable.policy.document import parse
from deniable.synth.describe import split_rows
from deniable.synth.model import load
from forked_commands import run_command

COUNT = 1000
POLICY = f"""
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: row
    columns:
      name:   {{role: identifier}}
      street: {{role: quasi-identifier, nullable: false, categories: [{", ".join(f"s{i}" for i in range(COUNT))}]}}
      secret: {{role: sensitive, nullable: false, categories: [{", ".join(f"t{i}" for i in range(10))}]}}
budgets:
  dataset: {{epsilon: 1000000, delta: 1e-5, accounting: zcdp}}
release:
  attack: {{most: {{membership: 0.3, inference: 0.5}}}}
"""


def _people(count: int = COUNT, first: int = 0) -> pa.Table:
    """Everybody lives in a street of their own: whoever is held out is like nobody in the model."""
    people = [(first + i) % COUNT for i in range(count)]
    columns = {"name": [f"n{i}" for i in people], "street": [f"s{i}" for i in people]}
    return pa.table(columns | {"secret": [f"t{7 * i % 10}" for i in people]})


def _curator(tmp_path: Path, rows: pa.Table | None = None, text: str = POLICY) -> Curator:
    return Curator(parse(text), sources={"people": _people() if rows is None else rows}, ledger=tmp_path / "ledger.db")


def _order(epsilon: float) -> Order:
    return Order("people", budget(epsilon, "1e-6"), "mst")


def test_a_model_without_noise_to_speak_of_copies_people_and_is_stopped(tmp_path: Path) -> None:
    # At this epsilon the deviation of the noise is below a thousandth, so rounded noise is 0 but with a probability
    # under exp(-1/2 / 1e-6): every member is found at distance 0 and every other at 1 or more.
    with _curator(tmp_path) as curator:
        release, found = synthesize_checked(curator.context, _order(50000), tmp_path / "made.parquet", Proof())
        assert found is not None
        assert release is None
        assert found["failed"]
        assert [one["attack"] for one in found["verdicts"] if one["failed"]] == ["membership", "inference"]
        assert found["charged"] == "epsilon 50000 and delta 1e-06"
        spent = curator.balance()[0].spent
    assert spent.rho > 1  # type: ignore[union-attr]
    assert not list(tmp_path.glob("made*"))


def test_a_private_model_leaves_and_the_rates_are_in_no_released_file(tmp_path: Path) -> None:
    out = tmp_path / "made.parquet"
    with _curator(tmp_path) as curator:
        release, found = synthesize_checked(curator.context, _order(1), out, Proof())
    # Of 1,000 streets with one person each nothing is left at epsilon 1: all count as rare. Members claimed are then as
    # others are, 1% of about 100: 30 of them has a probability below 1e-25; so have 50 right guesses at one in ten.
    assert found is not None
    assert release is not None
    assert not found["failed"]
    assert {one["attack"] for one in found["attacks"]} == {"membership", "singling_out", "linkability", "inference"}
    assert all(outcome["control"] for one in found["attacks"] for outcome in one["outcomes"])
    assert release.details["held_out"] == 0.1
    sealed = (tmp_path / "made.parquet.release.json").read_text() + (tmp_path / "made.parquet.model.json").read_text()
    assert "membership" not in sealed
    assert "people_held_out" not in sealed
    # As many rows as the whole table is estimated to have, not as the nine tenths that were described.
    model = load(tmp_path / "made.parquet.model.json")
    assert pq.read_table(out).num_rows == round(model.description.estimates.total / 0.9)


def test_rows_of_other_people_serve_as_control_and_nobody_is_held_out(tmp_path: Path) -> None:
    pq.write_table(_people(300, first=700), tmp_path / "others.parquet")
    with _curator(tmp_path, _people(700)) as curator:
        release, found = synthesize_checked(
            curator.context, _order(1), tmp_path / "made.csv", Proof(control=str(tmp_path / "others.parquet"))
        )
    assert found is not None
    assert release is not None
    assert release.details["held_out"] == 0
    assert found["people_held_out"] == found["people_seen"] == 300


def test_a_control_that_holds_people_of_the_table_is_refused_after_the_charge(tmp_path: Path) -> None:
    """An attack does as well on them as on the others, so that every limit would be met; before the charge it would
    tell for nothing who is in the table."""
    pq.write_table(_people(300), tmp_path / "others.parquet")
    with _curator(tmp_path) as curator:
        with pytest.raises(DataError, match="more than chance explains") as refusal:
            synthesize_checked(
                curator.context, _order(1), tmp_path / "made.csv", Proof(control=str(tmp_path / "others.parquet"))
            )
        assert "Nothing was charged" not in str(refusal.value)
        assert curator.balance()[0].spent.rho > 0  # type: ignore[union-attr]
    assert not list(tmp_path.glob("made*"))


@pytest.mark.parametrize("rows", [0, 1, 15])
def test_too_few_people_to_try_a_limited_attack_stop_the_release(tmp_path: Path, rows: int) -> None:
    with _curator(tmp_path, _people(rows)) as curator:
        release, found = synthesize_checked(curator.context, _order(1), tmp_path / "made.parquet", Proof())
    assert found is not None
    assert release is None
    assert found["untried"] == ["membership", "inference"]
    assert not (tmp_path / "made.parquet").exists()


def test_without_limits_few_people_leave_with_a_word_that_nothing_was_tried(tmp_path: Path) -> None:
    with _curator(tmp_path, _people(15), POLICY.split("release:")[0]) as curator:
        release, found = synthesize_checked(curator.context, _order(1), tmp_path / "made.parquet", Proof())
    assert found is not None
    assert release is not None
    assert all(one["skipped"] for one in found["attacks"])


def test_what_cannot_be_right_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    from fractions import Fraction

    with pytest.raises(ParameterError, match="held out"):
        Proof(held_out=0)
    with _curator(tmp_path) as curator:
        with pytest.raises(ParameterError, match="no attack 'membrship'"):
            synthesize_checked(
                curator.context, _order(1), tmp_path / "m.csv", Proof(limits={"membrship": Fraction(1, 10)})
            )
        with pytest.raises(DataError):
            synthesize_checked(
                curator.context, _order(1), tmp_path / "m.csv", Proof(control=str(tmp_path / "nothing.parquet"))
            )
        with pytest.raises(BudgetExceeded):
            synthesize_checked(curator.context, _order(1e8), tmp_path / "m.csv", Proof())
        assert not list(curator.ledger.entries(acts=("charge",)))
    assert not (tmp_path / "m.csv").exists()


def test_people_are_held_out_whole() -> None:
    rows = pa.table({"who": [i // 4 for i in range(4000)] + [None], "x": list(range(4001))})
    seen, held = split_rows(rows, "who", 0.3)
    assert not set(seen["who"].to_pylist()) & set(held["who"].to_pylist())
    assert sorted(seen["x"].to_pylist() + held["x"].to_pylist()) == list(range(4001))
    # 300 of 1,001 people expected, deviation below 15: beyond 100 is more than 6 deviations (1e-9).
    assert abs(held.num_rows / 4 - 300) < 100
    everybody, nobody = split_rows(rows.slice(0, 0), None, 0.3)
    assert (everybody.num_rows, nobody.num_rows) == (0, 0)


def test_both_sides_of_a_comparison_have_as_many_people() -> None:
    many, few = pa.table({"a": list(range(50)), "b": [1] * 50}), pa.table({"b": [2] * 7, "a": list(range(7))})
    one, other = equalize_sides(many, few, ("a",))
    assert (one.num_rows, other.num_rows) == (7, 7)
    assert one.column_names == other.column_names == ["a"]
    with pytest.raises(DataError, match="no column 'c'"):
        equalize_sides(many, few, ("c",))


def test_the_command_shows_the_attacks_writes_the_page_and_exits_with_two(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    pq.write_table(_people(), tmp_path / "people.parquet")
    words = ("synthesize", "people", "--delta", "1e-6", "--method", "mst", "--attack", "--report", "proof.html")
    stopped = run_command(*words, "--epsilon", "10000", "-o", "made.parquet", "--json", cwd=tmp_path)
    assert stopped.returncode == 2, stopped.stderr
    told = json.loads(stopped.stdout)
    assert told["file"] is None
    assert told["attack"]["failed"]
    page = (tmp_path / "proof.html").read_text()
    assert "Not released" in page
    assert not (tmp_path / "made.parquet").exists()
    left = run_command(*words, "--epsilon", "1", "-o", "made.parquet", cwd=tmp_path)
    assert left.returncode == 0, left.stderr
    assert "met: membership" in left.stdout
    assert "not differentially private" in left.stdout
    assert "Every attack that the policy limits" in (tmp_path / "proof.html").read_text()
    assert (tmp_path / "made.parquet").exists()
