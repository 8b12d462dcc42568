"""`deniable scan`: what identifies people in a table, and why we think so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.screen import Encoding, JsonFlag, emit, err, progress

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = "Examples: deniable scan people.csv  |  deniable scan visits.parquet --unit patient_id --draft clinic.yaml"


def scan(
    table: Annotated[str, typer.Argument(help="A file, folder, pattern or duckdb:FILE#TABLE.", show_default=False)],
    unit: Annotated[str | None, typer.Option(help="The column that tells people apart.")] = None,
    save: Annotated[Path | None, typer.Option(help="Keep the report as JSON here.")] = None,
    draft: Annotated[Path | None, typer.Option(help="Draft a policy from what was found, and write it here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a draft that is there.")] = False,
    encoding: Encoding = None,
    as_json: JsonFlag = False,
) -> None:
    """Find identifiers: by names, types, check digits, patterns, word lists and uniqueness. No value is shown."""
    from deniable.curator import drafting, scanning

    with progress("Looking at the columns") as told:
        report = scanning.scan(table, unit, told, encoding=encoding)
    if save is not None:
        scanning.save(report, save)
    if draft is not None:
        drafting.save(scanning.draft(report, draft.parent), draft, replace_it=force)
        err().print(f"Drafted {draft}: confirm every role and mask in it.", markup=False)
    emit(report, as_json, lambda console: _show(console, report))


def _show(console: Console, report: dict[str, Any]) -> None:
    from rich.table import Table

    looked = report["rows_looked_at"]
    console.print(f"{report['source']}: {report['rows']} rows, {looked} looked at.", markup=False)
    shown = Table("column", "kind", "role", "sure", "evidence", box=None, pad_edge=False)
    for one in report["findings"]:
        shown.add_row(one["column"], one["kind"], one["role"], f"{one['confidence']:.0%}", "; ".join(one["evidence"]))
    console.print(shown)
    _show_text(console, report)
    for one in report["singling_out"]:
        share = f"{one['singled_out']:.1%}"
        console.print(f"Together {', '.join(one['columns'])} single out {share} of the people.", markup=False)
    console.print("\nHIPAA Safe Harbor, the 18 categories:")
    for line in report["safe_harbor"]:
        console.print(f"  ({line['category']}) {line['name']}: {', '.join(line['found']) or 'not found'}", markup=False)


def _show_text(console: Console, report: dict[str, Any]) -> None:
    for column, counts in report["free_text"].items():
        inside = ", ".join(f"{count} x {kind}" for kind, count in counts.items()) or "nothing that patterns know"
        console.print(f"Inside the text of {column}: {inside}.", markup=False)
