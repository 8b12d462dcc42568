"""What to do about an exposure: which columns are to blame, how much knowledge is enough, which rows are weakest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deniable.assess.risk import COUNT, Evidence
from deniable.attacks.linkage import link_register
from deniable.attacks.uniqueness import blame_columns, find_identifying_sets, find_weakest_rows, measure_uniqueness
from deniable.release.record import Record

MOST_COLUMNS = 8
"""So many known columns are tried in all combinations; more would take too long to be worth it."""
HIGH_SHARE = 0.05
"""A column by which so large a share of people is alone is worth a word."""
KEPT = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Exposure(Record):
    """What exposes people: smallest identifying sets, the curve of knowledge, column blame and weakest records."""

    identifying_sets: list[dict[str, Any]]
    curve: list[dict[str, Any]]
    blame: list[dict[str, Any]]
    weakest: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class UntouchedColumn(Record):
    """A column that is released as it is, and the share of people whom it singles out by itself."""

    column: str
    singled_out: float


def describe_exposure(
    release: pa.Table, knows: Sequence[str], *, unit: str | None = None, seconds: float | None = None
) -> Exposure:
    """Smallest identifying sets, the curve of knowledge, column blame and weakest records, as plain values."""
    unit = unit if unit in release.column_names else None
    columns = tuple(knows)[:MOST_COLUMNS]
    sets = find_identifying_sets(release, columns, share=0.5, unit=unit, seconds=seconds) if release.num_rows else ()
    return Exposure(
        identifying_sets=[{"columns": list(one.columns), "share": one.share} for one in sets],
        curve=_sweep_knowledge(release, columns, unit),
        blame=[{"column": name, "unique_without": share} for name, share in blame_columns(release, knows, unit=unit)],
        weakest=[{"row": row, "alike": alike} for row, alike in find_weakest_rows(release, knows)],
    )


def _sweep_knowledge(release: pa.Table, columns: Sequence[str], unit: str | None) -> list[dict[str, Any]]:
    """For each number of known columns the worst choice of so many, and the share of people it singles out."""
    found = []
    for size in range(1, len(columns) + 1):
        tried = [
            (measure_uniqueness(release, chosen, unit=unit).attack, chosen) for chosen in combinations(columns, size)
        ]
        worst, chosen = max(tried, key=lambda pair: pair[0].share)
        found.append({"known": size, "columns": list(chosen)} | worst.as_dict())
    return found


def find_untouched_columns(evidence: Evidence) -> list[UntouchedColumn]:
    """Columns that no one was taken to know, which still single people out as they are released, the worst first.

    With the original at hand a column counts where it was left as it is (or nearly: a tenth of its values may differ);
    without it, every column that singles out.
    """
    found = []
    release, unit = evidence.release, evidence.unit if evidence.unit in evidence.release.column_names else None
    for name in release.column_names:
        if name in (*evidence.knows, unit, COUNT) or not release.num_rows or not _is_untouched(evidence, name):
            continue
        share = measure_uniqueness(release, [name], unit=unit).attack.share
        if share >= HIGH_SHARE:
            found.append(UntouchedColumn(name, share))
    return sorted(found, key=lambda one: (-one.singled_out, one.column))


def _is_untouched(evidence: Evidence, name: str) -> bool:
    """Whether a released column holds the original's own values."""
    if evidence.original is None:
        return True
    if name not in evidence.original.column_names:
        return False
    ours, theirs = (table[name].cast(pa.string()) for table in (evidence.release, evidence.original))
    same = pc.is_in(ours, value_set=theirs.combine_chunks())
    return bool((pc.mean(same.cast(pa.float64())).as_py() or 0.0) >= KEPT)


def explain_columns(columns: Sequence[Mapping[str, Any]]) -> str:
    """One sentence: which columns expose people although an intruder was taken not to know them, and what to do."""
    if not columns:
        return ""
    named = ", ".join(f"{one['column']} ({one['singled_out']:.0%})" for one in columns[:5])
    return (
        f"Columns released as they are single people out by themselves: {named}; whoever saw such a value elsewhere "
        "finds the row. Leave them out, or name them as quasi-identifiers so that they are generalized."
    )


def attack_original(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """By the attack's name: uniqueness and linkage of the original rows, as if they had been released as they are."""
    assert evidence.original is not None
    original = evidence.original
    unit = evidence.unit if evidence.unit in original.column_names else None
    found = {"uniqueness": measure_uniqueness(original, evidence.knows, unit=unit).as_dict()}
    if evidence.register is not None:
        found["linkage"] = link_register(original, evidence.register, evidence.knows, unit=unit).as_dict()
    return found
