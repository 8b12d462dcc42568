"""Parity: what counts as kept, how findings are found, and planted findings through the whole workflow."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from deniable import world
from deniable.assess.parity import (
    Finding,
    evaluate_finding,
    is_same_conclusion,
    load_findings,
    require_conclusions,
    tally_runs,
)
from deniable.curator import Curator
from deniable.curator.synthesize.parity import Comparison, compare
from deniable.errors import DataError, DeniableError, IntegrityError, ParameterError
from deniable.policy.document import parse
from deniable.synth.methods import METHODS

POLICY = """
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: row
    columns:
      smoker: {role: sensitive, type: boolean, nullable: false}
      ill:    {role: sensitive, type: boolean, nullable: false}
      coin:   {role: insensitive, type: boolean, nullable: false}
"""
FINDINGS = '''
import pyarrow.compute as pc

def _share(rows, name, value):
    chosen = rows.filter(pc.equal(rows[name], value))
    return pc.mean(chosen["ill"].cast("int8")).as_py()

def smokers_fall_ill(rows):
    """Smokers are ill more often."""
    return _share(rows, "smoker", True) - _share(rows, "smoker", False)

def the_coin_has_nothing_to_do_with_it(rows):
    """Illness differs by less than a tenth between heads and tails."""
    return abs(_share(rows, "coin", True) - _share(rows, "coin", False)) < 0.1
'''


@pytest.mark.parametrize(
    ("real", "made", "kept"),
    [
        (True, True, True),
        (True, False, False),
        (2.0, 0.1, True),
        (2.0, -0.1, False),
        (0.0, 0.1, False),
        (1.0, None, False),
    ],
)
def test_a_conclusion_is_kept_when_its_answer_or_sign_is(
    real: bool | float, made: bool | float | None, kept: bool
) -> None:
    assert is_same_conclusion(real, made) is kept


def test_a_finding_that_fails_on_a_table_says_nothing() -> None:
    empty = Finding("mean", "", lambda rows: 1 / rows.num_rows)
    assert evaluate_finding(empty, pa.table({"a": []})) is None
    with pytest.raises(DataError, match="says nothing"):
        require_conclusions([empty], pa.table({"a": []}))


def test_findings_are_the_public_functions_of_a_file_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "findings.py").write_text(FINDINGS)
    found = load_findings(tmp_path / "findings.py")
    assert [finding.name for finding in found] == ["smokers_fall_ill", "the_coin_has_nothing_to_do_with_it"]
    assert found[0].text == "Smokers are ill more often."
    (tmp_path / "none.py").write_text("x = 1\n")
    with pytest.raises(ParameterError, match="no finding"):
        load_findings(tmp_path / "none.py")


def test_tallies_have_intervals() -> None:
    (kept,) = tally_runs({"f": True}, [{"method": "m", "epsilon": 1, "said": {"f": i < 8}} for i in range(10)])
    assert (kept.kept, kept.runs, kept.share) == (8, 10, 0.8)
    assert kept.low < 0.8 < kept.high


def _people(count: int = 4000) -> pa.Table:
    return pa.table(
        {
            "smoker": [i % 2 == 0 for i in range(count)],
            "ill": [(i % 2 == 0) == (i % 10 < 8) for i in range(count)],
            "coin": [i % 3 == 0 for i in range(count)],
        }
    )


def _curator(rows: pa.Table | None = None) -> Curator:
    return Curator(parse(POLICY), sources={"people": _people() if rows is None else rows})


def test_a_planted_effect_is_kept_and_runs_are_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "findings.py").write_text(FINDINGS)
    wanted = Comparison(None, (tmp_path / "findings.py",), ("auto",), ("2",), runs=4, journal=tmp_path / "runs")
    with _curator() as curator:
        found = compare(curator.context, wanted)
        assert {k.finding: k.kept for k in found.kept} == {
            "smokers_fall_ill": 4,
            "the_coin_has_nothing_to_do_with_it": 4,
        }
        assert found.averages == {("auto", 2.0): 1.0}
        assert found.findings[0][1] == "Smokers are ill more often."
        before = (tmp_path / "runs").read_text()
        assert compare(curator.context, wanted) == found
        assert (tmp_path / "runs").read_text() == before


def test_a_comparison_that_was_killed_in_the_middle_of_a_line_runs_that_turn_again(tmp_path: Path) -> None:
    (tmp_path / "findings.py").write_text(FINDINGS)
    wanted = Comparison(None, (tmp_path / "findings.py",), ("mst",), ("2",), runs=3, journal=tmp_path / "runs")
    with _curator() as curator:
        compare(curator.context, wanted)
        whole = (tmp_path / "runs").read_text().splitlines(keepends=True)
        (tmp_path / "runs").write_text("".join(whole[:-1]) + whole[-1][:20])
        assert {k.runs for k in compare(curator.context, wanted).kept} == {3}
    lines = [json.loads(line) for line in (tmp_path / "runs").read_text().splitlines()]
    assert [line.get("run") for line in lines] == [None, 0, 1, 2]


def test_a_journal_of_other_rows_or_findings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "findings.py").write_text(FINDINGS)
    wanted = Comparison(None, (tmp_path / "findings.py",), ("mst",), ("2",), runs=1, journal=tmp_path / "runs")
    with _curator() as curator:
        compare(curator.context, wanted)
    with _curator(_people(3000)) as other, pytest.raises(IntegrityError, match="another comparison"):
        compare(other.context, wanted)
    (tmp_path / "findings.py").write_text(FINDINGS.replace("0.1", "0.2"))
    with _curator() as curator, pytest.raises(IntegrityError, match="another comparison"):
        compare(curator.context, wanted)


def test_all_means_every_registered_method_and_processes_share_the_turns(tmp_path: Path) -> None:
    (tmp_path / "findings.py").write_text(FINDINGS)
    wanted = Comparison(None, (tmp_path / "findings.py",), ("all",), ("4",), runs=2, workers=2)
    shares: list[float] = []
    with _curator() as curator:
        found = compare(curator.context, wanted, shares.append)
    suited = {method for method in METHODS if method not in dict(found.unsuited)}
    assert {k.method for k in found.kept} == suited
    assert suited >= {"independent", "correlated", "mst", "auto"}
    assert {k.runs for k in found.kept} == {2}
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_findings_may_be_statements(tmp_path: Path) -> None:
    (tmp_path / "findings.sql").write_text(
        "-- smokers_fall_ill: Smokers are ill more often.\n"
        "SELECT avg(ill::INT) FILTER (smoker) - avg(ill::INT) FILTER (NOT smoker) FROM people;\n\n"
        "-- half_smoke: About half of the people smoke.\n"
        "-- (a remark)\n"
        "SELECT abs(avg(smoker::INT) - 0.5) < 0.1 FROM people\n"
    )
    wanted = Comparison("people", (tmp_path / "findings.sql",), ("mst",), ("2",), runs=2, workers=2)
    with _curator() as curator:
        found = compare(curator.context, wanted)
    assert [name for name, _, _ in found.findings] == ["smokers_fall_ill", "half_smoke"]
    assert found.findings[1][2] is True
    assert all(k.kept == 2 for k in found.kept)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-- broken: It is.\nSELEC 1", "says nothing"),
        ("-- nothing: It is.\nSELECT NULL", "says nothing"),
        ("-- file: A file.\nSELECT count(*) FROM read_text('findings.sql')", "says nothing"),
        ("SELECT 1", "no finding"),
        ("-- a: A.\nSELECT 1\n-- a: A.\nSELECT 2", "two findings 'a'"),
    ],
)
def test_statements_that_find_nothing_are_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "findings.sql").write_text(text)
    with _curator() as curator, pytest.raises(DeniableError, match=said):
        compare(curator.context, Comparison(None, (tmp_path / "findings.sql",), ("mst",), ("2",), runs=1))


def test_an_effect_that_is_not_there_is_made_in_either_direction_as_chance_has_it(tmp_path: Path) -> None:
    # Illness is exactly as frequent with heads as with tails. A sign made of noise is positive or negative alike: of 80
    # runs 40 with a deviation of 4.5, and at most 17 or at least 63 has a probability below 1e-6. An effect of a tenth
    # would take noise of dozens of records in 500, whose deviation at epsilon 2 is below 10.
    (tmp_path / "findings.py").write_text(
        FINDINGS.replace("abs(_share(rows", "(_share(rows").replace(") < 0.1", ")") + _MADE
    )
    rows = pa.table(
        {
            "smoker": [i % 2 == 0 for i in range(2000)],
            "ill": [i // 2 % 2 == 0 for i in range(2000)],
            "coin": [i // 4 % 2 == 0 for i in range(2000)],
        }
    )
    runs = tmp_path / "runs"
    with _curator(rows) as curator:
        compare(
            curator.context, Comparison(None, (tmp_path / "findings.py",), ("auto",), ("2",), runs=80, journal=runs)
        )
    said = [json.loads(line)["said"] for line in runs.read_text().splitlines()[1:]]
    signs = [one["the_coin_has_nothing_to_do_with_it"] for one in said]
    nothing = sum(sign == 0 for sign in signs)
    assert 17 - nothing < sum(sign > 0 for sign in signs) < 63
    assert not any(one["an_effect_was_made"] for one in said)


_MADE = '''
def an_effect_was_made(rows):
    """Heads and tails differ by a tenth."""
    return abs(_share(rows, "coin", True) - _share(rows, "coin", False)) >= 0.1
'''


@pytest.mark.parametrize(
    ("kind", "table", "people", "sure"),
    [
        ("salaries", "salaries", None, {"faculty_earn_more_than_staff", "most_are_faculty"}),
        ("survey", "survey", None, {"the_young_use_more_drugs", "income_grows_with_education"}),
        ("hospital", "visits", 20_000, {"medicare_pays_for_the_old", "women_and_men_are_charged_alike"}),
    ],
)
def test_the_findings_that_come_with_a_world_are_true_of_it_and_the_plain_ones_are_kept(
    kind: str, table: str, people: int | None, sure: set[str], tmp_path: Path
) -> None:
    (tmp_path / "findings.py").write_text(world.findings_of(kind))
    found = load_findings(tmp_path / "findings.py")
    assert len(found) >= 7
    rows = world.make(kind, people)[table]
    assert all(value > 0 for value in require_conclusions(found, rows).values())
    assert all(evaluate_finding(finding, rows.slice(0, 0)) in (None, False) for finding in found)
    declared = parse(world.policy(kind))
    wanted = Comparison(table, (tmp_path / "findings.py",), ("auto",), ("10",), runs=2)
    with Curator(declared, sources={table: rows}) as curator:
        kept = {k.finding: k.kept for k in compare(curator.context, wanted).kept}
    # These effects are a hundred times the deviation of the noise at epsilon 10.
    assert {name: kept[name] for name in sure} == dict.fromkeys(sure, 2)
