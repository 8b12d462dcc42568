"""What to do about an exposure: which columns are to blame, how much knowledge is enough, which rows are weakest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deniable.attacks.uniqueness import (
    SAME,
    JointRisk,
    blame_columns,
    find_identifying_sets,
    find_weakest_rows,
    list_linking_sets,
    measure_joint_risk,
    measure_uniqueness,
    sweep_knowledge,
)
from deniable.errors import NOTHING_CHARGED, Infeasible
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

    `together` is the share of people whom all columns single out: of one of their rows, or, where columns such as a
    token link the rows of a person (`linked_by`), of all of them. `of_one_row` is then the share of one row alone.
    `accepted_by` is who stands for it where it is beyond the policy's limit.
    """

    columns: int
    together: float
    sets: list[dict[str, Any]]
    searched_columns: int
    rows_searched: int
    words: str
    accepted_by: str | None = None
    linked_by: list[str] = field(default_factory=list)
    of_one_row: float | None = None


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
    engine: Engine,
    name: str,
    columns: Sequence[str],
    unit: str | Whose | None = None,
    links: Sequence[str] = (),
) -> JointExposure | None:
    """What the released columns of an attached table single out together; None where nothing is released.

    `links` are columns that nobody knows, and that show which rows are of one person, such as tokens.
    """
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
    linked = _count_linked(engine, source, named, person, links) if links else None
    found = replace(risk, together=together, linked=linked)
    return describe_joint_risk(found, rows.num_rows, "people" if person else "rows", links)


def _count_linked(
    engine: Engine, source: str, columns: Sequence[str], person: str | None, links: Sequence[str]
) -> float | None:
    """The largest share whom all their linked rows single out, by any column that links; None where none does."""
    from deniable.engines.base import quote

    same = [name for name in links if person and _stays_same(engine, source, name, person)]
    owner = f"coalesce(CAST({quote(person)} AS VARCHAR), '')" if person else None
    chosen = list_linking_sets(links, same)
    shares = [
        count_profiles(engine, number_rows(source, columns, link, owner), by_person=bool(person)) for link in chosen
    ]
    return max((share for share in shares if share is not None), default=None)


def _stays_same(engine: Engine, source: str, name: str, person: str) -> bool:
    """Whether a column has one value for each of nearly all people."""
    from deniable.engines.base import quote

    held = f"SELECT count(DISTINCT {quote(name)}) AS held FROM {source} GROUP BY {quote(person)}"  # noqa: S608
    share = engine.run(f"SELECT avg(CASE WHEN held = 1 THEN 1 ELSE 0 END) FROM ({held})").column(0)[0]  # noqa: S608
    return bool((share.as_py() or 0.0) >= SAME)


def number_rows(
    source: str, columns: Sequence[str], links: Sequence[str], owner: str | None = None, about: str = ""
) -> str:
    """The query of a number for what each row says (`h`), of a number for the rows linked with it (`g`), of the owner.

    A row without a value in any of the columns that link is linked with none. Without an owner the linked rows are
    their own.
    """
    from deniable.engines.base import quote

    texts = [f"CAST({quote(name)} AS VARCHAR)" for name in links]
    said = ", ".join(f"CAST({quote(name)} AS VARCHAR)" for name in columns)
    nowhere = f"coalesce({', '.join(texts)}) IS NULL"
    linked = f"CASE WHEN {nowhere} THEN hash('{about}', row_number() OVER ()) ELSE hash({', '.join(texts)}) END"
    return f"SELECT hash('{about}', {said}) AS h, {linked} AS g, {owner or linked} AS u FROM {source}"  # noqa: S608


def count_profiles(engine: Engine, numbered: str, *, by_person: bool) -> float | None:
    """The share of owners who alone have some linked rows, or of rows without owners; None where no rows are linked.

    Linked rows are compared in whatever order: by how many they are, and by the sum of their numbers.
    """
    size = "count(*) AS size, sum(CAST(h AS HUGEINT)) AS content"
    groups = f"SELECT min(u) AS lowest, max(u) AS highest, {size} FROM ({numbered}) GROUP BY g"  # noqa: S608
    alone = "min(lowest) AS owner, min(lowest) = max(highest) AS alone, sum(size) AS held, max(size) AS largest"
    profiles = f"SELECT {alone} FROM ({groups}) GROUP BY size, content"  # noqa: S608
    share = (
        f"count(DISTINCT owner) FILTER (alone) / (SELECT count(DISTINCT u) FROM ({numbered}))"  # noqa: S608
        if by_person
        else "coalesce(sum(held) FILTER (alone), 0) / sum(held)"
    )
    found = engine.run(f"SELECT {share} AS share, max(largest) AS most FROM ({profiles})").to_pylist()[0]  # noqa: S608
    return float(found["share"] or 0.0) if (found["most"] or 0) > 1 else None


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


class LinkedRows(NamedTuple):
    """An attached table with a column of tokens that others have too: what somebody may know of it, and whose it is."""

    table: str
    """What it is called in words."""
    name: str
    """What it is attached as."""
    columns: Sequence[str]
    link: str
    unit: Whose | str | None = None


def measure_linked_tables(
    engine: Engine, tables: Sequence[LinkedRows], of: str = "", known: int | None = None
) -> JointExposure | None:
    """What all rows of a person in several attached tables single out, which a token in each of them links.

    None for fewer than two tables. The share is that of the table whose people are exposed most: in it people are told
    apart by its own unit, which another table need not know. `of` says in words what the tables are, `known` how many
    columns they have together.
    """
    parts = [[_number_linked(engine, each, place, whose) for place, each in enumerate(tables)] for whose in tables]
    counted = [
        count_profiles(engine, " UNION ALL ".join(each), by_person=True) if len(tables) > 1 else None for each in parts
    ]
    shares = [(share, each.table) for each, share in zip(tables, counted, strict=True) if share is not None]
    if not shares:
        return None
    share, worst = max(shares)
    count = known if known is not None else sum(len(each.columns) for each in tables)
    links = list(dict.fromkeys(each.link for each in tables))
    told = (
        f"Whoever knows all {count} released columns of somebody in {of or f'all {len(tables)} tables'} singles out "
        f"{share:.1%} of the people in {worst}, since {', '.join(links)} "
        f"{'links' if len(links) == 1 else 'link'} their rows."
    )
    rows = sum(engine.count(each.name) for each in tables)
    return JointExposure(count, share, [], 0, rows, told, linked_by=links)


def _number_linked(engine: Engine, rows: LinkedRows, place: int, whose: LinkedRows) -> str:
    """The numbered rows of one of several tables; with owners where it is the one whose people are counted."""
    from deniable.engines.base import quote

    source, person = tell_people(engine, rows.name, rows.unit if rows is whose else None)
    owner = "NULL" if rows is not whose else f"coalesce(CAST({quote(person)} AS VARCHAR), '')" if person else None
    return number_rows(source, rows.columns, [rows.link], owner, str(place))


def measure_joint_rows(
    rows: pa.Table, columns: Sequence[str], unit: str | None = None, links: Sequence[str] = ()
) -> JointExposure | None:
    """What columns of rows at hand single out together; None where there are none. `links` show whose rows are one."""
    named = [name for name in dict.fromkeys(columns) if name != unit]
    if not named or not rows.num_rows:
        return None
    as_text = pa.table({name: rows[name].cast(pa.string()) for name in dict.fromkeys((*named, unit, *links)) if name})
    risk = measure_joint_risk(as_text, named, unit=unit, links=links)
    return describe_joint_risk(risk, rows.num_rows, "people" if unit else "rows", links)


def describe_joint_exposure(evidence: Evidence) -> JointExposure | None:
    """What all columns of a release single out together, whatever the intruder was taken to know."""
    from deniable.assess.evidence import COUNT

    release, unit = evidence.release, evidence.unit if evidence.unit in evidence.release.column_names else None
    links = [unit] if unit else []
    return None if COUNT in release.column_names else measure_joint_rows(release, release.column_names, unit, links)


def describe_joint_risk(risk: JointRisk, rows: int, of: str = "people", links: Sequence[str] = ()) -> JointExposure:
    """The numbers of a joint risk with the sentence that tells them."""
    sets = [{"columns": list(one.columns), "singled_out": one.share} for one in risk.sets]
    told = explain_joint_risk(risk, of, links)
    found = JointExposure(len(risk.columns), risk.worst, sets, risk.searched, rows, told)
    return found if risk.linked is None else replace(found, linked_by=list(links), of_one_row=risk.together)


def explain_joint_risk(risk: JointRisk, of: str = "people", links: Sequence[str] = ()) -> str:
    """One sentence: what somebody could do who knows all released columns, or a few of them."""
    fewer = [one for one in reversed(risk.sets) if len(one.columns) < len(risk.columns)]
    some = [f"{len(one.columns)} of them ({', '.join(one.columns)}) {one.share:.1%}" for one in fewer]
    known = f"all {len(risk.columns)} released columns" if len(risk.columns) > 1 else f"{risk.columns[0]} alone"
    added = f"; whoever knows {', '.join(some)}" if some else ""
    begun = f"Whoever knows {known} of somebody singles out"
    if risk.linked is None:
        return f"{begun} {risk.together:.1%} of the {of}{added}."
    linking = f"{', '.join(links)} {'links' if len(links) == 1 else 'link'} the rows of a person"
    all_rows = f"{risk.worst:.1%} of the {of} by all their rows, since {linking}, and {risk.together:.1%} by one row"
    return f"{begun} {all_rows}{added}."


def judge_joint_exposure(found: JointExposure | None, limit: JointLimit | None) -> JointExposure | None:
    """What all released columns single out, with the name of who stands for it beyond the limit; refused without."""
    if found is None or limit is None or found.together <= limit.most:
        return found
    if limit.accepted_by is None:
        linking = ", ".join(found.linked_by)
        unlink = f"Remove {linking} (mask: nullify), so that nothing links the rows of a person, r" if linking else "R"
        raise Infeasible(
            f"All released columns together single out {found.together:.1%}, and the policy allows "
            f"{float(limit.most):.1%} at most",
            expected=found.words,
            remedy=f"{unlink}elease fewer columns, generalize more of them, or let the steward stand for it in the "
            f"policy: release: {{joint: {{most: {format_number(limit.most)}, accepted_by: NAME}}}}",
            charge=NOTHING_CHARGED,
            limit="joint",
        )
    return replace(found, accepted_by=limit.accepted_by)


def attack_original(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """By the attack's name: uniqueness and linkage of the original rows, as if they had been released as they are."""
    from deniable.attacks.linkage import link_register

    assert evidence.original is not None
    original = evidence.original
    unit = evidence.unit if evidence.unit in original.column_names else None
    knows = [name for name in evidence.knows if name in original.column_names]  # not the ends of intervals
    if not knows:
        return {}
    found = {"uniqueness": measure_uniqueness(original, knows, unit=unit).as_dict()}
    if evidence.register is not None:
        found["linkage"] = link_register(original, evidence.register, knows, unit=unit).as_dict()
    return found
