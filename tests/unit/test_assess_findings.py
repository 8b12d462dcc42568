"""Which columns findings ask for, read from their text alone."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from deniable.assess.parity import derive_workload, find_columns_named, load_findings

COLUMNS = ("sex", "job", "salary", "hired", "department")

PYTHON = '''
def _mean(rows, **wanted):
    return rows["salary"]

def women_earn_less(rows):
    """By sex, never by department."""
    return _mean(rows, sex="F") < _mean(rows, sex="M")

def everything(rows):
    return rows["sex"], rows["job"], rows["hired"], rows["department"], _mean(rows)

def one_column(rows):
    return rows["job"]
'''

SQL = """-- pay_by_job: Pay depends on the job.
SELECT avg(salary) FILTER (job = 'staff') > 1 FROM staff;
"""


def test_a_finding_asks_for_the_columns_that_it_and_its_helpers_name_and_not_for_those_of_its_docstring(
    tmp_path: Path,
) -> None:
    (tmp_path / "findings.py").write_text(PYTHON)
    named = {f.name: find_columns_named(f.function, COLUMNS) for f in load_findings(tmp_path / "findings.py", "staff")}
    assert named == {"women_earn_less": ("sex", "salary"), "everything": COLUMNS, "one_column": ("job",)}


def test_a_statement_asks_for_the_columns_in_its_text(tmp_path: Path) -> None:
    (tmp_path / "findings.sql").write_text(SQL)
    (finding,) = load_findings(tmp_path / "findings.sql", "staff")
    assert find_columns_named(finding.function, COLUMNS) == ("job", "salary")


def test_single_columns_and_more_than_ten_ask_for_nothing_and_none_is_asked_twice(tmp_path: Path) -> None:
    (tmp_path / "findings.py").write_text(PYTHON)
    functions = [f.function for f in load_findings(tmp_path / "findings.py", "staff")]
    assert derive_workload([*functions, *functions], COLUMNS) == (("sex", "salary"), COLUMNS)
    more = tuple(f"column_{place}" for place in range(6))
    (tmp_path / "many.sql").write_text(f"-- much: Much.\nSELECT {' + '.join((*COLUMNS, *more))} FROM staff")
    (many,) = load_findings(tmp_path / "many.sql", "staff")
    assert derive_workload([many.function], (*COLUMNS, *more)) == ()


def test_a_finding_of_more_than_five_columns_asks_for_every_two_of_them(tmp_path: Path) -> None:
    (tmp_path / "findings.py").write_text(PYTHON)
    functions = [f.function for f in load_findings(tmp_path / "findings.py", "staff")]
    six = (*COLUMNS, "rows")
    assert derive_workload(functions, six) == (("sex", "salary", "rows"), *combinations(six, 2))
