"""What to do about an exposure: which columns are to blame, how much knowledge is enough, which rows are weakest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deniable.attacks.uniqueness import (
    JointRisk,
    blame_columns,
    find_identifying_sets,
    find_weakest_rows,
    measure_joint_risk,
    measure_uniqueness,
    sweep_knowledge,
)
from deniable.errors import Infeasible
from deniable.policy.budget import format_number
from deniable.release.record import Record

if TYPE_CHECKING:
    from deniable.assess.evidence import Evidence
    from deniable.engines.base import Engine
    from deniable.policy.access import JointLimit

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
        curve=[
            {"known": len(chosen), "columns": list(chosen)} | rate.as_dict()
            for chosen, rate in sweep_knowledge(release, columns, unit=unit)
        ],
        blame=[{"column": name, "unique_without": share} for name, share in blame_columns(release, knows, unit=unit)],
        weakest=[{"row": row, "alike": alike} for row, alike in find_weakest_rows(release, knows)],
    )


def find_untouched_columns(evidence: Evidence) -> list[UntouchedColumn]:
    """Columns that no one was taken to know, which still single people out as they are released, the worst first.

    With the original at hand a column counts where it was left as it is (or nearly: a tenth of its values may differ);
    without it, every column that singles out.
    """
    from deniable.assess.evidence import COUNT

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


JOINT_ROWS = 200_000
"""Sets of columns are searched on so many rows of a release; all columns together are counted on every row."""


@dataclass(frozen=True, slots=True, eq=False)
class JointExposure(Record):
    """What somebody could do who knows several released columns of a person, or all, in numbers and in one sentence.

    `accepted_by` is who stands for it where it is beyond the policy's limit.
    """

    columns: int
    together: float
    sets: list[dict[str, Any]]
    searched_columns: int
    rows_searched: int
    words: str
    accepted_by: str | None = None


class Whose(NamedTuple):
    """Whose rows these are: the column of an attached table that has the same rows, in the same order."""

    table: str
    column: str


PERSON = "whose row it is"


def tell_people(engine: Engine, name: str, unit: str | Whose | None) -> tuple[str, str | None]:
    """The rows of an attached table as words of a query, and their column that tells people apart, if there is one."""
    from deniable.engines.base import quote, tell_apart

    if unit is None:
        return quote(name), None
    if not isinstance(unit, Whose):
        return f"(SELECT *, {tell_apart(engine, name, unit)} AS {quote(PERSON)} FROM {quote(name)})", PERSON  # noqa: S608
    told = tell_apart(engine, unit.table, unit.column)
    people = f"SELECT {told} AS {quote(PERSON)} FROM {quote(unit.table)}"  # noqa: S608  quoted names
    return f"(SELECT * FROM {quote(name)} POSITIONAL JOIN ({people}) AS people)", PERSON  # noqa: S608


def measure_joint_exposure(
    engine: Engine, name: str, columns: Sequence[str], unit: str | Whose | None = None
) -> JointExposure | None:
    """What the released columns of an attached table single out together; None where nothing is released."""
    from deniable.engines.base import quote

    source, person = tell_people(engine, name, unit)
    count = engine.count(name)
    named = tuple(column for column in dict.fromkeys(columns) if column not in (person, unit))
    if not named or not count:
        return None
    # As text, in which columns of every type can be compared.
    listed = ", ".join(f"CAST({quote(column)} AS VARCHAR) AS {quote(column)}" for column in (*named, person) if column)
    # A seed, so that one release is told one number.
    part = f" USING SAMPLE reservoir({JOINT_ROWS} ROWS) REPEATABLE (1)" if count > JOINT_ROWS else ""
    rows = engine.run(f"SELECT {listed} FROM {source}{part}")  # noqa: S608  our own words and quoted names
    risk = measure_joint_risk(rows, named, unit=person)
    together = risk.together if not part else _count_together(engine, source, named, person)
    return describe_joint_risk(replace(risk, together=together), rows.num_rows, "people" if person else "rows")


def _count_together(engine: Engine, source: str, columns: Sequence[str], unit: str | None) -> float:
    """The share that all columns single out, counted by the engine over every row; rows of nobody are one person's."""
    from deniable.engines.base import quote

    person = f"coalesce(CAST({quote(unit)} AS VARCHAR), '')" if unit else "row_number() OVER ()"
    combined = f"hash({', '.join(map(quote, columns))})"
    numbered = f"SELECT {combined} AS h, {person} AS u FROM {source}"  # noqa: S608  quoted names
    alone = f"SELECT min(u) AS u FROM ({numbered}) GROUP BY h HAVING min(u) = max(u)"  # noqa: S608
    found = engine.run(
        f"SELECT (SELECT count(DISTINCT u) FROM ({alone})) / (SELECT count(DISTINCT u) FROM ({numbered}))"  # noqa: S608
    )
    return float(found.column(0)[0].as_py() or 0.0)


def measure_joint_rows(rows: pa.Table, columns: Sequence[str], unit: str | None = None) -> JointExposure | None:
    """What columns of rows at hand single out together; None where there are none."""
    named = [name for name in dict.fromkeys(columns) if name != unit]
    if not named or not rows.num_rows:
        return None
    as_text = pa.table({name: rows[name].cast(pa.string()) for name in (*named, unit) if name})
    risk = measure_joint_risk(as_text, named, unit=unit)
    return describe_joint_risk(risk, rows.num_rows, "people" if unit else "rows")


def describe_joint_exposure(evidence: Evidence) -> JointExposure | None:
    """What all columns of a release single out together, whatever the intruder was taken to know."""
    from deniable.assess.evidence import COUNT

    release, unit = evidence.release, evidence.unit if evidence.unit in evidence.release.column_names else None
    return None if COUNT in release.column_names else measure_joint_rows(release, release.column_names, unit)


def describe_joint_risk(risk: JointRisk, rows: int, of: str = "people") -> JointExposure:
    """The numbers of a joint risk with the sentence that tells them."""
    sets = [{"columns": list(one.columns), "singled_out": one.share} for one in risk.sets]
    return JointExposure(len(risk.columns), risk.together, sets, risk.searched, rows, explain_joint_risk(risk, of))


def explain_joint_risk(risk: JointRisk, of: str = "people") -> str:
    """One sentence: what somebody could do who knows all released columns, or a few of them."""
    fewer = [one for one in reversed(risk.sets) if len(one.columns) < len(risk.columns)]
    some = [f"{len(one.columns)} of them ({', '.join(one.columns)}) {one.share:.1%}" for one in fewer]
    known = f"all {len(risk.columns)} released columns" if len(risk.columns) > 1 else f"{risk.columns[0]} alone"
    added = f"; whoever knows {', '.join(some)}" if some else ""
    return f"Whoever knows {known} of somebody singles out {risk.together:.1%} of the {of}{added}."


def judge_joint_exposure(found: JointExposure | None, limit: JointLimit | None) -> JointExposure | None:
    """What all released columns single out, with the name of who stands for it beyond the limit; refused without."""
    if found is None or limit is None or found.together <= limit.most:
        return found
    if limit.accepted_by is None:
        raise Infeasible(
            f"All released columns together single out {found.together:.1%}, and the policy allows "
            f"{float(limit.most):.1%} at most",
            expected=found.words,
            remedy="Release fewer columns, generalize more of them, or let the steward stand for it in the policy: "
            f"release: {{joint: {{most: {format_number(limit.most)}, accepted_by: NAME}}}}",
            charge="Nothing was charged. The ledger names a release that did not leave.",
            limit="joint",
        )
    return replace(found, accepted_by=limit.accepted_by)


def attack_original(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """By the attack's name: uniqueness and linkage of the original rows, as if they had been released as they are."""
    from deniable.attacks.linkage import link_register

    assert evidence.original is not None
    original = evidence.original
    unit = evidence.unit if evidence.unit in original.column_names else None
    found = {"uniqueness": measure_uniqueness(original, evidence.knows, unit=unit).as_dict()}
    if evidence.register is not None:
        found["linkage"] = link_register(original, evidence.register, evidence.knows, unit=unit).as_dict()
    return found
