"""The diagnoses of the hospital: ICD-10-like codes, what they cost, and whom they meet.

The weights in `diagnoses.csv` are plausible, not measured: they plant the dependence of diagnosis on age and sex that
attacks, synthesis and parity findings are tested against. Ages come in five bands: 18 to 29, 30 to 44, 45 to 59, 60 to
74, 75 and over.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files

import pyarrow as pa

BANDS = (18, 30, 45, 60, 75)  # each band begins at this age


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A code with its chapter; weights by age band; weight factors for women and men; stay and cost; procedures."""

    code: str
    name: str
    category: str
    by_age: tuple[int, ...]
    women: int
    men: int
    nights: int  # of a typical stay
    dollars: int  # charged beside the nights
    winter: bool  # whether it comes more often in winter
    procedures: tuple[str, ...]  # three, the usual one first
    complaint: str  # what brings the patient, in the words of a note


def _read() -> tuple[Diagnosis, ...]:
    with (files("deniable.world") / "diagnoses.csv").open(encoding="utf-8") as lines:
        return tuple(_diagnosis(row) for row in csv.DictReader(lines))


def _diagnosis(row: dict[str, str]) -> Diagnosis:
    return Diagnosis(
        code=row["code"],
        name=row["name"],
        category=row["category"],
        by_age=tuple(int(row[f"age_{band}"]) for band in BANDS),
        women=int(row["women"]),
        men=int(row["men"]),
        nights=int(row["nights"]),
        dollars=int(row["dollars"]),
        winter=row["winter"] == "yes",
        procedures=tuple(row["procedures"].split(" / ")),
        complaint=row["complaint"],
    )


DIAGNOSES = _read()
CODES = tuple(diagnosis.code for diagnosis in DIAGNOSES)


def place(code: str) -> int:
    """Where a code stands in the list."""
    return CODES.index(code)


def table() -> pa.Table:
    """The public list of codes: code, name, category."""
    return pa.table(
        {
            "code": list(CODES),
            "name": [diagnosis.name for diagnosis in DIAGNOSES],
            "category": [diagnosis.category for diagnosis in DIAGNOSES],
        }
    )
