"""What others read about a release: the expert's determination of its risk, and the catalog of what is in it.

HIPAA lets data go either by removing listed identifiers or because an expert determines that the risk is very small,
and documents methods and results (45 CFR 164.514(b)(1)). The report gathers what that document needs from the release's
statement, the policy and a motivated-intruder test; the judgment and the signature are the expert's. The catalog tells
researchers and buyers what a k-anonymous release holds. Neither holds a row. Tables of counts are checked before they
are published without noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator import attack
from deniable.errors import ParameterError
from deniable.release.record import Record, SparseRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.policy.document import Policy
    from deniable.release import Statement

METHOD = (
    "The released file was read back; every figure here was computed from it, and from the original rows where those "
    "were at hand.",
    "A motivated intruder was played: every attack that applies was run, each beside a control or beside guessing. "
    "Rates have exact 95% intervals (Clopper and Pearson).",
    "Risks of re-identification were counted over classes of rows that are alike in all columns an intruder is taken "
    "to know: prosecutor, journalist, marketer, and the expected score of one guess under a stated prior.",
    "Columns are to be judged by three principles: whether a value occurs again in relation to the person, whether "
    "others can find it in another source, and how far it tells people apart. Only the last can be measured here.",
)
LIMITS = (
    "An attack bounds the risk from below: a stronger intruder, or one who knows other things, may do better.",
    "What others hold now or will hold later is not known here. The determination should name the day until which it "
    "stands.",
    "Contracts, access controls and the recipient's own safeguards are outside these measurements.",
    "The report computes and documents. It does not determine that a risk is very small: the expert does.",
)


@dataclass(frozen=True, slots=True, eq=False)
class ExpertReport(SparseRecord):
    """All that an expert determination documents, without rows; `verdict` is about stated thresholds alone."""

    subject: str
    release: dict[str, Any]
    flow: list[dict[str, str]]
    recipients: list[str]
    columns: list[dict[str, Any]]
    test: dict[str, Any]
    residual: dict[str, Any] | None
    verdict: str
    method: list[str]
    limits: list[str]
    risks: dict[str, Any] | None = None

    @property
    def failed(self) -> bool:
        """Whether a threshold is passed."""
        return bool(self.test["failed"])


def document_risk(
    order: attack.Order, recipients: Sequence[str] = (), progress: attack.Progress | None = None
) -> ExpertReport:
    """Test a release as a motivated intruder would, and gather what an expert determination documents."""
    from deniable.policy.document import read

    statement = _read_statement(order.source)
    policy = read(order.policy) if order.policy else None
    test = attack.attack(replace(order, everything=True), progress).to_dict()
    test.pop("weakest", None)  # positions of rows are for the steward alone
    released = attack.read_release(order)
    return ExpertReport(
        Path(order.source).name,
        _describe_release(order, statement, released),
        _describe_flow(order, statement, policy),
        list(recipients),
        _describe_columns(order, policy, released, test["knows"]),
        test,
        _find_residual(test),
        _judge(test),
        list(METHOD),
        [*LIMITS, *_list_gaps(statement, policy, test)],
        _measure_risks(released, test["knows"]),
    )


def _read_statement(source: str) -> Statement | None:
    """The statement of a release; a file that has none may be examined too, one that was changed may not."""
    from deniable.release import statement_path, verify

    return verify(source) if statement_path(source).exists() else None


def _describe_release(order: attack.Order, statement: Statement | None, released: pa.Table) -> dict[str, Any]:
    told = {"file": Path(order.source).name, "rows": released.num_rows, "columns": released.column_names}
    if statement is None:
        return {**told, "technique": "not stated", "promises": []}
    body = statement.body
    written = {"sha256": body["file"]["sha256"], "made": body["provenance"]["time"]}
    return {**told, **written, "technique": body["guarantee"]["technique"], "promises": list(statement.words)}


def _describe_flow(order: attack.Order, statement: Statement | None, policy: Policy | None) -> list[dict[str, str]]:
    """From the source to the release, a step a line."""
    steps: list[tuple[str, str]] = []
    if policy is not None:
        schema = attack.find_schema(order, policy)
        tables = schema.name if schema else ", ".join(table.name for table in policy.private)
        steps += [("Source", f"table {tables} of the dataset {policy.dataset}"), ("Policy", policy.hash)]
    if statement is None:
        return [{"step": step, "what": what} for step, what in steps]
    body = statement.body
    origin, details = body["provenance"], body["details"]
    steps += [("Data read", f"{name}, version {version}") for name, version in origin["data_versions"].items()]
    chosen = "; ".join(f"{name}: {_say(value)}" for name, value in origin["parameters"].items())
    steps.append(("Transformation", f"{body['guarantee']['technique']}" + (f" ({chosen})" if chosen else "")))
    if "suppressed" in details:
        steps.append(("Withheld", f"{details['suppressed']} rows"))
    steps.append(("Release", f"{body['file']['name']}, written {origin['time']} by {origin['code_version']}"))
    return [{"step": step, "what": what} for step, what in steps]


def _say(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _describe_columns(
    order: attack.Order, policy: Policy | None, released: pa.Table, knows: Sequence[str]
) -> list[dict[str, Any]]:
    """Each released column: its role, whether an intruder is taken to know it, and whom it singles out by itself."""
    from deniable.attacks.uniqueness import measure_uniqueness

    schema = attack.find_schema(order, policy) if policy else None
    roles = {column.name: str(column.role) for column in schema.columns} if schema else {}
    return [
        {"column": name, "role": roles.get(name, "not declared"), "taken as known": name in knows,
         "singles out": measure_uniqueness(released, [name]).attack.share}
        for name in released.column_names
    ]  # fmt: skip


def _measure_risks(released: pa.Table, knows: Sequence[str]) -> dict[str, Any] | None:
    from deniable.kanonymity.risk import examine

    shown = tuple(name for name in knows if name in released.column_names)
    if not shown or not released.num_rows:
        return None
    found = examine(released, shown, blames=False)
    return {**asdict(found.risks), "k": found.k, "classes": found.classes}


def _find_residual(test: Mapping[str, Any]) -> dict[str, Any] | None:
    """The attack that gains most beyond its control or guessing, with the most people its interval allows."""
    every = [outcome for made in test["attacks"] for outcome in made["outcomes"] if outcome["exposed"]["trials"]]
    if not every:
        return None
    worst = max(every, key=lambda outcome: (outcome["excess"], outcome["exposed"]["high"]))
    rate = worst["exposed"]
    without = (worst["control"] or worst["baseline"])["share"]
    return {
        "attack": worst["attack"], "scenario": worst["scenario"], "share": rate["share"], "low": rate["low"],
        "high": rate["high"], "without_the_release": without, "excess": worst["excess"],
        "rows_at_most": math.ceil(rate["high"] * test["rows"]),
    }  # fmt: skip


def _judge(test: Mapping[str, Any]) -> str:
    if test["untried"]:
        return f"A stated threshold was not measured: {', '.join(test['untried'])}."
    if not test["verdicts"]:
        return "No threshold was stated: the expert must say what is very small."
    return "A stated threshold is passed." if test["failed"] else "Every stated threshold is met."


def _list_gaps(statement: Statement | None, policy: Policy | None, test: Mapping[str, Any]) -> list[str]:
    """What could not be documented, and why."""
    gaps = []
    if statement is None:
        gaps.append("The file has no statement beside it: how it was made is not documented here.")
    if policy is None:
        gaps.append("No policy was given: roles of columns and thresholds are not documented here.")
    if skipped := [made["attack"] for made in test["attacks"] if made["skipped"]]:
        gaps.append(f"Attacks that were not tried, for want of what they need: {', '.join(skipped)}.")
    return gaps


MOST_VALUES = 1_000
MOST_GROUPS = 20_000
"""A catalog lists so many values of a column and so many groups, the largest first, and counts the others."""


@dataclass(frozen=True, slots=True, eq=False)
class Catalog(Record):
    """What is in a k-anonymous release: columns with values, and groups of rows that look alike. No row.

    A value or group is listed with its count if at least k rows have it. `rarer` values of a column and `unlisted` rows
    are counted only.
    """

    file: str
    sha256: str
    made: str
    rows: int
    k: int
    quasi_identifiers: list[str]
    columns: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    unlisted: int
    promises: list[str]


def build_catalog(file: Path) -> Catalog:
    """The catalog of a k-anonymous release, from the file itself, after checking its statement."""
    import pyarrow as pa

    from deniable.assess.released_rows import open_released
    from deniable.release import verify

    statement = verify(file)
    body, k = statement.body, _read_k(statement)
    path = statement.path.with_name(body["file"]["name"])
    names, batches = open_released(path)
    empty = pa.table({name: pa.array([], pa.string()) for name in names})
    rows = pa.concat_tables(list(batches) or [empty], promote_options="default")
    known = [part for name in body["provenance"]["parameters"]["quasi_identifiers"] for part in _spell(name, names)]
    groups = _count_groups(rows, known, k)
    unlisted = rows.num_rows - sum(each["rows"] for each in groups)
    columns = [_describe_values(rows, name, name in known, k) for name in names]
    return Catalog(
        path.name, body["file"]["sha256"], body["provenance"]["time"], rows.num_rows, k, known, columns, groups,
        unlisted, list(statement.words),
    )  # fmt: skip


def _read_k(statement: Statement) -> int:
    for one in statement.body["guarantee"]["properties"]:
        if one["name"] == "k-anonymity":
            return int(one["parameters"]["k"])
    raise ParameterError(
        f"'{statement.body['file']['name']}' is not stated to be k-anonymous",
        expected="A release of deniable anonymize with k",
        remedy="A catalog of rows that stand alone would be a list of people",
    )


def _spell(name: str, names: Sequence[str]) -> list[str]:
    """A column as it stands in the file: under its name, or as two ends of intervals."""
    return [name] if name in names else [end for end in (f"{name}_low", f"{name}_high") if end in names]


def _count_groups(rows: pa.Table, known: list[str], k: int) -> list[dict[str, Any]]:
    if not known:
        return []
    counted = rows.group_by(known).aggregate([([], "count_all")]).sort_by([("count_all", "descending")])
    listed = counted.filter(_at_least(counted, k)).slice(0, MOST_GROUPS).to_pylist()
    return [{"values": {name: _show(row[name]) for name in known}, "rows": row["count_all"]} for row in listed]


def _describe_values(rows: pa.Table, name: str, known: bool, k: int) -> dict[str, Any]:
    counted = rows.group_by([name]).aggregate([([], "count_all")]).sort_by([("count_all", "descending")])
    shown = counted.filter(_at_least(counted, k)).slice(0, MOST_VALUES).to_pylist()
    values = [{"value": _show(row[name]), "rows": row["count_all"]} for row in shown]
    return {"column": name, "quasi_identifier": known, "values": values, "rarer": counted.num_rows - len(values)}


def _at_least(counted: pa.Table, k: int) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    return pc.greater_equal(counted["count_all"], k)


def _show(value: Any) -> str | None:
    return None if value is None else str(value)


@dataclass(frozen=True, slots=True, eq=False)
class TablesReport(Record):
    """What published tables of counts give away together: suppressed cells with their bounds, and small cells.

    `recovered` suppressed cells have one possible count. `pinned` names cells of the tables' cross that are certain.
    """

    tables: list[str]
    people: int
    cells: int
    exact: int
    given_away: int
    small: int
    suppressed: int
    recovered: int
    hidden: list[dict[str, Any]]
    pinned: list[dict[str, Any]]
    warnings: list[str]
    failed: bool


def check_tables(sources: Sequence[str], order: attack.Order, small: int) -> TablesReport:
    """Whether tables of counts may be published together: no suppressed cell, and no cell of few, follows from them."""
    outcome = attack.bound_tables(sources, order, small)
    names = ("cells", "exact", "given_away", "small", "suppressed", "recovered", "hidden", "pinned")
    figures = {name: outcome.figures[name] for name in names}
    failed = bool(figures["recovered"] or figures["small"])
    tables = [Path(source).name for source in sources]
    return TablesReport(tables, outcome.attack.trials, **figures, warnings=list(outcome.warnings), failed=failed)
