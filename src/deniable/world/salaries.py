"""The salaries world: the staff of a university, with job, department, sex, hire date and pay.

Job codes come in the proportions of a published payroll of 5,469 people: 367 in administration, 97 in athletics, 2,920
faculty, 2,085 staff; at 5,469 people these are the exact counts. Pay depends on job, department and years of service.

Planted for parity findings: **women in athletics with ten years of service or more earn 15% less** than men like them;
women and men are otherwise paid alike, so that neither sex, nor job, nor seniority alone shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from deniable.world import arrays
from deniable.world.arrays import Draws, Ints, draw_quantiles, make_choice_tables, scramble, tabulate_lognormal
from deniable.world.population import SEXES, TODAY, Names, to_ordinal

CHUNK = 1 << 16
JOBS = ("administration", "athletics", "faculty", "staff")
PROPORTIONS = (367, 97, 2920, 2085)
DEPARTMENTS = (
    "Arts", "Athletics", "Business", "Engineering", "Facilities", "Finance", "Law", "Library", "Medicine", "Provost",
    "Science",
)  # fmt: skip
MOST_YEARS, LONG_SERVICE = 40, 10
_KEY = 2
_DEPARTMENT = make_choice_tables(
    [
        [2, 2, 4, 4, 8, 30, 2, 6, 10, 28, 4],
        [0, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [22, 0, 10, 18, 0, 0, 6, 0, 20, 0, 24],
        [6, 3, 6, 10, 24, 8, 3, 10, 18, 4, 8],
    ]
)
_WOMEN_IN_1000 = np.array([520, 460, 430, 600])
_BASE_CENTS = np.array([9_800_000, 6_200_000, 9_000_000, 5_200_000])
# Per mille of the base: professors of medicine, law and business earn more than those of arts.
_DEPARTMENT_FACTOR = np.array([880, 1000, 1250, 1150, 900, 1050, 1300, 900, 1400, 1100, 1000])
_YEARS = make_choice_tables([[60 - year for year in range(MOST_YEARS)]])[0]
_SPREAD = tabulate_lognormal(0.16)


def reference() -> dict[str, pa.Table]:
    """No public list beside the table."""
    return {}


def batches(people: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """The payroll, chunk by chunk."""
    for start in range(0, max(1, people), CHUNK):
        stop = min(start + CHUNK, people)
        yield {"salaries": _draw_chunk(Draws(seed, _KEY, start // CHUNK), start, stop)}


def _draw_jobs(draws: Draws, start: int, stop: int) -> Ints:
    """Job codes in exact proportion up to every chunk's end, shuffled within the chunk."""
    total, ends = sum(PROPORTIONS), np.cumsum(PROPORTIONS)
    upto = [[int(end) * size // total for end in ends] for size in (start, stop)]
    counts = np.diff(np.array([b - a for a, b in zip(*upto, strict=True)]), prepend=0)
    return np.asarray(np.repeat(np.arange(len(JOBS)), counts)[draws.order(stop - start)])


def _draw_chunk(draws: Draws, start: int, stop: int) -> pa.Table:
    size = stop - start
    job = _draw_jobs(draws, start, stop)
    department = draws.pick_by(_DEPARTMENT, job)
    sex = np.where(draws.chance(_WOMEN_IN_1000[job], size), 0, 1)
    days_served = draws.pick(_YEARS, size) * 1461 // 4 + draws.below(365, size)
    number = np.arange(start, stop, dtype=np.int64)
    return pa.table(
        {
            "employee_id": arrays.format_digits("E########", scramble(number, 10**8, 66_666_667, 4_242_424)),
            "name": Names(draws, sex).full,
            "department": arrays.look_up(DEPARTMENTS, department),
            "job": arrays.look_up(JOBS, job),
            "sex": arrays.look_up(SEXES, sex),
            "hired": arrays.to_dates(to_ordinal(TODAY) - 1 - days_served),
            "salary": arrays.to_hundredths(_draw_pay(draws, job, department, sex, days_served)),
        }
    )


def _draw_pay(draws: Draws, job: Ints, department: Ints, sex: Ints, days_served: Ints) -> Ints:
    """Whole dollars, in cents: base, times department, times 2% for each year served, times a spread."""
    years = days_served * 4 // 1461
    cents = _BASE_CENTS[job] * _DEPARTMENT_FACTOR[department] // 1000 * (50 + years) // 50
    cents = (cents * draw_quantiles(_SPREAD, draws.indexes(len(job)))) >> 10
    unequal = (sex == 0) & (job == JOBS.index("athletics")) & (years >= LONG_SERVICE)
    return np.asarray(np.where(unequal, cents * 85 // 100, cents) // 100 * 100)
