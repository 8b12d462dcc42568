"""Parity: what counts as kept, how findings are found, and planted findings through the whole journey."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from deniable.assess.parity import Finding, concluded, conclusions, findings_in, same, tallied
from deniable.curator import Curator
from deniable.curator.parity import Comparison, compare
from deniable.errors import DataError, ParameterError
from deniable.policy.document import parse

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
    assert same(real, made) is kept


def test_a_finding_that_fails_on_a_table_says_nothing() -> None:
    empty = Finding("mean", "", lambda rows: 1 / rows.num_rows)
    assert concluded(empty, pa.table({"a": []})) is None
    with pytest.raises(DataError, match="says nothing"):
        conclusions([empty], pa.table({"a": []}))


def test_findings_are_the_public_functions_of_a_file_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "findings.py").write_text(FINDINGS)
    found = findings_in(tmp_path / "findings.py")
    assert [finding.name for finding in found] == ["smokers_fall_ill", "the_coin_has_nothing_to_do_with_it"]
    assert found[0].text == "Smokers are ill more often."
    (tmp_path / "none.py").write_text("x = 1\n")
    with pytest.raises(ParameterError, match="no finding"):
        findings_in(tmp_path / "none.py")


def test_tallies_have_intervals() -> None:
    (kept,) = tallied([{"finding": "f", "method": "m", "epsilon": 1, "kept": i < 8} for i in range(10)])
    assert (kept.kept, kept.runs, kept.share) == (8, 10, 0.8)
    assert kept.low < 0.8 < kept.high


def test_a_planted_effect_is_kept_and_a_false_one_is_not_made_and_runs_are_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "findings.py").write_text(FINDINGS)
    rows = pa.table(
        {
            "smoker": [i % 2 == 0 for i in range(4000)],
            "ill": [(i % 2 == 0) == (i % 10 < 8) for i in range(4000)],
            "coin": [i % 3 == 0 for i in range(4000)],
        }
    )
    wanted = Comparison("people", tmp_path / "findings.py", ("auto",), ("2",), runs=4, journal=tmp_path / "runs")
    with Curator(parse(POLICY), sources={"people": rows}) as curator:
        kept = {(k.finding, k.method): k for k in compare(curator, wanted)}
        assert kept["smokers_fall_ill", "auto"].kept == 4
        assert kept["the_coin_has_nothing_to_do_with_it", "auto"].kept == 4
        before = (tmp_path / "runs").read_text()
        assert compare(curator, wanted) == tuple(kept.values())
        assert (tmp_path / "runs").read_text() == before
