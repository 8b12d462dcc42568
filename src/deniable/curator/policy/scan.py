"""Scan: what identifies people in a table, and by which evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.mask.run import sample
from deniable.errors import DataError, ParameterError, nearest
from deniable.policy.schema import make_dialect
from deniable.release.record import Record

if TYPE_CHECKING:
    from deniable.engines.base import Engine
    from deniable.masking.identifiers import Finding

SCAN_ROWS = 200_000
SINGLING_ROWS = 50_000  # hundreds of column sets are tried on these
NO_QUASI = ("free text", "url", "street address")

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True, eq=False)
class ScanReport(Record):
    """What identifies people in a table: names, counts and shares, and no value of it."""

    source: str
    encoding: str | None
    unit: str | None
    rows: int
    rows_looked_at: int
    columns: dict[str, str]
    findings: list[dict[str, object]]
    free_text: dict[str, dict[str, int]]
    singling_out: list[dict[str, object]]
    safe_harbor: list[dict[str, Any]]
    policy: str | None = None
    """The policy that was accepted for these rows."""
    without_values: list[str] = field(default_factory=list)
    """Columns of which nothing is known: no row that was looked at has a value there."""


def scan(
    source: Any, unit: str | None = None, progress: Progress | None = None, *, encoding: str | None = None
) -> ScanReport:
    """Look at a table: findings with their evidence, the 18 categories of Safe Harbor, and smallest singling-out sets.

    The report holds names, counts and shares; no value of the table is in it.
    """
    from deniable.curator.policy.accepted_rows import find_policy_of
    from deniable.curator.sources import name_source, refuse_no_rows
    from deniable.engines.fetching import FetchingEngine
    from deniable.masking import identifiers, safe_harbor

    with FetchingEngine() as engine:
        engine.attach("table", source, csv=make_dialect(encoding))
        rows = sample(engine, "table", rows=SCAN_ROWS)
        refuse_no_rows(rows, source)
        if unit is not None and unit not in rows.schema.names:
            raise ParameterError(
                f"the table has no column '{unit}'",
                expected=f"One of {', '.join(rows.schema.names)}",
                remedy=nearest(unit, rows.schema.names),
            )
        empty = _list_without_values(rows, name_source(source))
        _report_progress(progress, 0.4)
        findings = identifiers.detect(rows)
        _report_progress(progress, 0.6)
        lines = safe_harbor.build_checklist({"table": findings}, {"table": dict.fromkeys(rows.schema.names)})
        report = ScanReport(
            source=name_source(source),
            encoding=encoding,
            unit=unit,
            rows=engine.count("table"),
            rows_looked_at=rows.num_rows,
            columns=_columns(engine),
            findings=[finding.as_dict() for finding in findings],
            free_text=_texts(rows, findings),
            singling_out=_measure_singling_out(rows, findings, unit),
            safe_harbor=[_short(line.as_dict()) for line in lines],
            policy=find_policy_of(source, encoding=encoding),
            without_values=empty,
        )
        _report_progress(progress, 1.0)
    return report


def save(report: ScanReport, path: Path) -> None:
    """Keep a report as JSON."""
    import json

    from deniable.storage import write_whole

    write_whole(path, (json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n").encode())


def _columns(engine: Engine) -> dict[str, str]:
    return {column.name: str(column.type) for column in engine.describe("table")}


def _list_without_values(rows: Any, source: str) -> list[str]:
    """The columns without any value, or with empty texts alone; a table of only such columns is refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def is_empty(values: Any) -> bool:
        if values.null_count == len(values) or not pa.types.is_string(values.type):
            return bool(values.null_count == len(values))
        return bool(pc.max(pc.utf8_length(pc.utf8_trim_whitespace(values))).as_py() == 0)

    found = [name for name in rows.schema.names if is_empty(rows.column(name))]
    if len(found) == len(rows.schema.names):
        raise DataError(
            f"'{source}' has no value in any column, and nothing was measured",
            expected="A table with values",
            remedy="See whether it is the right file, and whether it was written to its end",
        )
    return found


def _texts(rows: Any, findings: tuple[Finding, ...]) -> dict[str, dict[str, int]]:
    """What hides inside free text: how many of each kind, column by column."""
    from collections import Counter

    from deniable.masking import replacement

    counts = {}
    for finding in findings:
        if finding.kind == "free text":
            values = rows.column(finding.column).drop_null().unique().to_pylist()[:20_000]
            counts[finding.column] = dict(
                Counter(span.kind for spans in replacement.find_spans(values) for span in spans)
            )
    return counts


def _measure_singling_out(rows: Any, findings: tuple[Finding, ...], unit: str | None) -> list[dict[str, object]]:
    """The smallest sets among columns that are not identifiers by themselves."""
    from deniable.masking import residual_risk
    from deniable.policy.schema import Role

    direct = {f.column for f in findings if f.about.role is Role.IDENTIFIER or f.kind in NO_QUASI}
    names = tuple(name for name in rows.schema.names if name not in direct and name != unit)
    return [one.as_dict() for one in residual_risk.find_smallest_sets(rows.slice(0, SINGLING_ROWS), names, unit)]


def _short(line: dict[str, Any]) -> dict[str, Any]:
    """A line of the checklist for a table that nothing was done to yet: where it was found."""
    columns = [name.removeprefix("table.") for name in line["columns"]]
    return {"category": line["category"], "name": line["name"], "found": columns}


def _report_progress(progress: Progress | None, share: float) -> None:
    if progress:
        progress(share)
