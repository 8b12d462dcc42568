"""Findings of the kind that papers report, about the generated university: each from a table to an effect or yes/no.

deniable world make salaries -o university
deniable parity examples/findings_salaries.py --table salaries -p university/policy.yaml --epsilon 0.5,1,2 --runs 20
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def _mean(rows: pa.Table, **wanted: str) -> float:
    for name, value in wanted.items():
        rows = rows.filter(pc.equal(rows[name], value))
    return float(pc.mean(rows["salary"]).as_py())


def faculty_earn_more_than_staff(rows: pa.Table) -> float:
    """Faculty are paid more than staff."""
    return _mean(rows, job="faculty") - _mean(rows, job="staff")


def administration_earns_most(rows: pa.Table) -> bool:
    """No job code is paid more than administration."""
    jobs = ("athletics", "faculty", "staff")
    return _mean(rows, job="administration") > max(_mean(rows, job=job) for job in jobs)


def most_are_faculty(rows: pa.Table) -> bool:
    """More than half of the employees are faculty."""
    return pc.sum(pc.equal(rows["job"], "faculty")).as_py() * 2 > rows.num_rows


def early_hires_earn_more(rows: pa.Table) -> float:
    """Those hired before 2010 are paid more than those hired after."""
    early = pc.less(pc.year(rows["hired"]), 2010)
    return pc.mean(rows.filter(early)["salary"]).as_py() - pc.mean(rows.filter(pc.invert(early))["salary"]).as_py()


def women_and_men_of_the_staff_earn_alike(rows: pa.Table) -> bool:
    """Within the staff, women and men differ by less than a twentieth."""
    women, men = _mean(rows, job="staff", sex="F"), _mean(rows, job="staff", sex="M")
    return abs(women - men) < 0.05 * men
