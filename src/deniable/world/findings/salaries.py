"""Findings about the generated university's payroll: functions from a table to an effect, or to yes or no.

deniable parity findings.py --methods all --epsilon 0.5,1,2,4,10 --runs 20
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def _of(rows: pa.Table, **wanted: str) -> pa.Table:
    for name, value in wanted.items():
        rows = rows.filter(pc.equal(rows[name], value))
    return rows


def _mean(rows: pa.Table, **wanted: str) -> float:
    return float(pc.mean(_of(rows, **wanted)["salary"]).as_py())


def _years(rows: pa.Table) -> Numbers:
    """Years of service at the end of 2025."""
    return np.asarray(2026 - pc.year(rows["hired"]).to_numpy(zero_copy_only=False), dtype=np.float64)


def faculty_earn_more_than_staff(rows: pa.Table) -> float:
    """Faculty are paid more than staff (difference of means)."""
    return _mean(rows, job="faculty") - _mean(rows, job="staff")


def most_are_faculty(rows: pa.Table) -> bool:
    """More than half of the employees are faculty (a share)."""
    return bool(_of(rows, job="faculty").num_rows * 2 > rows.num_rows)


def pay_ranks_by_job(rows: pa.Table) -> bool:
    """Administration is paid best, then faculty, then athletics, then staff (a rank order)."""
    pay = [_mean(rows, job=job) for job in ("administration", "faculty", "athletics", "staff")]
    return pay == sorted(pay, reverse=True)


def professors_of_medicine_earn_most(rows: pa.Table) -> bool:
    """Among faculty no department pays better than Medicine (the top of a ranking)."""
    faculty = _of(rows, job="faculty")
    pay = {name: _mean(faculty, department=name) for name in ("Arts", "Business", "Engineering", "Law", "Science")}
    return _mean(faculty, department="Medicine") > max(pay.values())


def a_year_of_service_pays(rows: pa.Table) -> float:
    """Within jobs, salary grows with years of service (a regression coefficient)."""
    jobs = rows["job"].to_numpy(zero_copy_only=False)
    design = [
        _years(rows),
        *((jobs == job).astype(float) for job in ("administration", "athletics", "faculty", "staff")),
    ]
    pay = rows["salary"].cast(pa.float64()).to_numpy(zero_copy_only=False)
    return float(np.linalg.lstsq(np.stack(design, axis=1), pay, rcond=None)[0][0])


def women_are_more_frequent_in_the_staff_than_in_the_faculty(rows: pa.Table) -> float:
    """The odds of being a woman are higher in the staff than in the faculty (a log odds ratio)."""
    odds = [_of(rows, job=job, sex="F").num_rows / _of(rows, job=job, sex="M").num_rows for job in ("staff", "faculty")]
    return float(np.log(odds[0] / odds[1]))


def women_and_men_of_the_staff_earn_alike(rows: pa.Table) -> bool:
    """Within the staff, women and men differ by less than a twentieth (nothing to find)."""
    women, men = _mean(rows, job="staff", sex="F"), _mean(rows, job="staff", sex="M")
    return abs(women - men) < 0.05 * men


def women_long_in_athletics_earn_less(rows: pa.Table) -> float:
    """In athletics, after ten years, women earn less than men (an effect of three columns together)."""
    old = rows.filter(pa.array(_years(rows) > 10))
    return _mean(old, job="athletics", sex="M") - _mean(old, job="athletics", sex="F")
