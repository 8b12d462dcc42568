"""What to do about an exposure: which columns are to blame, how much knowledge is enough, which rows are weakest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pyarrow as pa

from deniable.assess.risk import Evidence
from deniable.attacks.linkage import linkage
from deniable.attacks.uniqueness import blame, identifying_sets, uniqueness, weakest

MOST_COLUMNS = 8
"""So many known columns are tried in all combinations; more would take too long to be worth it."""


def details(
    release: pa.Table, knows: Sequence[str], *, unit: str | None = None, seconds: float | None = None
) -> dict[str, Any]:
    """Smallest identifying sets, the curve of knowledge, column blame and weakest records, as plain values."""
    unit = unit if unit in release.column_names else None
    columns = tuple(knows)[:MOST_COLUMNS]
    sets = identifying_sets(release, columns, share=0.5, unit=unit, seconds=seconds) if release.num_rows else ()
    return {
        "identifying_sets": [{"columns": list(one.columns), "share": one.share} for one in sets],
        "curve": _curve(release, columns, unit),
        "blame": [{"column": name, "unique_without": share} for name, share in blame(release, knows, unit=unit)],
        "weakest": [{"row": row, "alike": alike} for row, alike in weakest(release, knows)],
    }


def _curve(release: pa.Table, columns: Sequence[str], unit: str | None) -> list[dict[str, Any]]:
    """For each number of known columns the worst choice of so many, and the share of people it singles out."""
    found = []
    for size in range(1, len(columns) + 1):
        tried = [(uniqueness(release, chosen, unit=unit).attack, chosen) for chosen in combinations(columns, size)]
        worst, chosen = max(tried, key=lambda pair: pair[0].share)
        found.append({"known": size, "columns": list(chosen)} | worst.as_dict())
    return found


def before(evidence: Evidence) -> dict[str, Any]:
    """Uniqueness and linkage of the original rows, as if they had been released as they are."""
    assert evidence.original is not None
    original = evidence.original
    unit = evidence.unit if evidence.unit in original.column_names else None
    found = {"uniqueness": uniqueness(original, evidence.knows, unit=unit).as_dict()}
    if evidence.register is not None:
        found["linkage"] = linkage(original, evidence.register, evidence.knows, unit=unit).as_dict()
    return found
