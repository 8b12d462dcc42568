"""`deniable policy` and `deniable scan`: find what identifies people, draft a policy, check it, print its schema."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import Encoding, JsonFlag, LedgerOption, emit, open_errors, show_progress
from deniable.errors import pluralize

if TYPE_CHECKING:
    from rich.console import Console


PolicyFile = Annotated[Path, typer.Argument(help="The policy file.", show_default=False)]
app = typer.Typer(no_args_is_help=True, help="Write and check the file that says what is protected.")


@app.command(epilog="Example: deniable policy check clinic.yaml --data")
def check(
    file: PolicyFile,
    data: Annotated[
        bool, typer.Option("--data", help="Also compare with the rows; shows shares and names, to the steward only.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say who is protected and how much, or list every mistake with its line."""
    from deniable.curator.policy.check import check_policy

    found = check_policy(file, data=data)
    emit(found.to_dict(), as_json, lambda console: _print_summary(console, found))
    if found.is_open:
        raise typer.Exit(2)


@app.command(epilog="Example: deniable policy accept clinic.yaml --by 'A. Steward'")
def accept(
    file: PolicyFile,
    by: Annotated[str, typer.Option(help="Who accepts it.", show_default=False)],
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Accept a policy: from now on one that protects less is refused until it is accepted in turn.

    The policy is kept in the user's state folder and its digest in the ledger: removing the folder does not undo it.
    """
    from deniable.curator.policy.check import accept_policy

    loosened = accept_policy(file, by, ledger)
    emit(
        {"accepted": str(file), "loosened": list(loosened)},
        as_json,
        lambda console: _print_list(
            console, f"Accepted {file}. Less protected than before:" if loosened else f"Accepted {file}.", loosened
        ),
    )


@app.command(epilog="Example: deniable policy init visits.parquet -o clinic.yaml")
def init(
    table: Annotated[str, typer.Argument(help="A file, folder, pattern, or table of a database.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write the draft.", show_default="screen")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    unit: Annotated[str | None, typer.Option(help="The column that tells people apart.")] = None,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Add values read from the data, in comments marked as not public.")
    ] = False,
    encoding: Encoding = None,
    as_json: JsonFlag = False,
) -> None:
    """Draft a policy from a table: types, and roles where the evidence is strong; the rest is for you to decide."""
    from deniable.curator.policy.draft import draft, save

    with show_progress("Looking at the columns") as told:
        folder = out.parent if out else None
        text = draft(table, folder, unit=unit, show_values=show_values, encoding=encoding, progress=told)
    if out is not None:
        save(text, out, replace_it=force)
    written = {"policy": text, "written": str(out) if out else None}
    emit(written, as_json, lambda console: _print_draft(console, text, out))


IMPORT_EXAMPLES = """\b
Examples:
  deniable policy import PUMS.yaml --source pums.csv -o pums-policy.yaml
  deniable policy import d.json
  deniable policy import study.deid --source patients.csv -o policy.yaml    # roles, hierarchies and k of ARX
"""


@app.command("import", epilog=IMPORT_EXAMPLES)
def import_file(
    file: Annotated[
        Path, typer.Argument(help="SmartNoise's metadata, DataSynthesizer's description, or a project of ARX.")
    ],
    source: Annotated[str | None, typer.Option(help="Where the rows are.", show_default="TABLE.csv")] = None,
    table: Annotated[str | None, typer.Option(help="Which table, if the file has several.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write the draft.", show_default="screen")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Draft a policy from another tool's file: the bounds, roles and hierarchies that it declares, and the person.

    The hierarchies of a project of ARX are written beside the draft; its rows stay in it.
    """
    from deniable.curator.policy.imports import import_metadata, write_imported

    imported = import_metadata(file, source, table, out.parent if out else None)
    text = imported.text
    if out is not None:
        write_imported(imported, out, replace_it=force)
    emit(
        {"policy": text, "written": str(out) if out else None},
        as_json,
        lambda console: _print_draft(console, text, out),
    )


@app.command(epilog="Example: deniable policy schema > policy.schema.json")
def schema() -> None:
    """Print the JSON Schema of policy files, for editors that check while you type."""
    from deniable.curator.policy.check import policy_schema

    emit(policy_schema(), True, lambda _console: None)


def _print_draft(console: Console, text: str, out: Path | None) -> None:
    if out is None:
        console.print(text, markup=False, end="")
    else:
        open_errors().print(
            f"Drafted {out}. Confirm the roles, decide on what is undecided, fill in the bounds, then: "
            f"deniable policy check {shlex.quote(str(out))}",
            markup=False,
        )


def _print_summary(console: Console, found: Mapping[str, Any]) -> None:
    until = f", until {found['expires']}" if found["expires"] else ""
    console.print(f"{found['dataset']}: a valid policy{until}\n", markup=False)
    console.print("Who is protected")
    for table in found["tables"]:
        roles = ", ".join(f"{count} {role}" for role, count in table["roles"].items())
        listed = f"; {pluralize(table['columns'], 'column')}: {roles}" if roles else ""
        console.print(f"  {table['name']}: {table['protects']}{listed}", markup=False)
    console.print("How much may be asked")
    for line in _list_allowances(found["budgets"]):
        console.print(f"  {line}", markup=False)
    if found["notes"]:
        _print_list(console, "To consider", found["notes"])
    if found["data"] is not None:
        seen = [_describe_finding(one) for one in found["data"]]
        _print_list(console, "What the rows say", seen or ["nothing against the policy"])
    if found["doubts"]:
        doubts = [f"{name}: {words}" for name, words in found["doubts"].items()]
        _print_list(console, "Needs the steward's word: change it, or list its name under accepts:", doubts)
    if found["loosened"]:
        remedy = f"deniable policy accept {shlex.quote(found['policy'])} --by NAME"
        _print_list(console, f"Less protected than what was accepted. To accept it: {remedy}", found["loosened"])
    console.print(f"\n{found['hash']}", markup=False)


def _print_list(console: Console, title: str, lines: Sequence[str]) -> None:
    console.print(title, markup=False)
    for line in lines:
        console.print(f"  {line}", markup=False)


def _describe_finding(one: Mapping[str, Any]) -> str:
    where = one["table"] if one["column"] is None else f"{one['table']}.{one['column']}"
    return f"{where}: in {one['share']:.2%} of the rows {one['words']}."


def _list_allowances(budgets: Mapping[str, Any] | None) -> list[str]:
    if budgets is None:
        return ["nothing: no budgets are declared"]
    total = f"in total {budgets['dataset']}, {budgets['accounting']} accounting"
    purposes = [f"for {name}: {amount}" for name, amount in budgets["purposes"].items()]
    return [total, *purposes, *(f"by {name}: {amount}" for name, amount in budgets["analysts"].items())]


SCAN_EXAMPLES = """\b
Examples:
  deniable scan people.csv
  deniable scan visits.parquet --unit patient_id --draft clinic.yaml
"""


def scan(
    table: Annotated[str, typer.Argument(help="A file, folder, pattern, or table of a database.", show_default=False)],
    unit: Annotated[str | None, typer.Option(help="The column that tells people apart.")] = None,
    save: Annotated[Path | None, typer.Option(help="Keep the report as JSON here.")] = None,
    draft: Annotated[Path | None, typer.Option(help="Draft a policy from what was found, and write it here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a draft that is there.")] = False,
    encoding: Encoding = None,
    as_json: JsonFlag = False,
) -> None:
    """Find identifiers: by names, types, check digits, patterns, word lists and uniqueness. No value is shown."""
    from deniable.curator.policy import draft as policy_draft
    from deniable.curator.policy import scan as policy_scan
    from deniable.storage import refuse_other_than_json

    refuse_other_than_json(save)
    with show_progress("Looking at the columns") as told:
        report = policy_scan.scan(table, unit, told, encoding=encoding)
    if save is not None:
        policy_scan.save(report, save)
    if draft is not None:
        text = policy_draft.draft(table, draft.parent, unit=unit, encoding=encoding)
        policy_draft.save(text, draft, replace_it=force)
        open_errors().print(f"Drafted {draft}: confirm every role and mask in it.", markup=False)
    emit(report.to_dict(), as_json, lambda console: _print_findings(console, report))


def _print_findings(console: Console, report: Mapping[str, Any]) -> None:
    from rich.table import Table

    looked = report["rows_looked_at"]
    console.print(f"{report['source']}: {report['rows']} rows, {looked} looked at.", markup=False)
    if report["policy"] is not None:
        console.print(f"These rows have a policy that was accepted: {report['policy']}", markup=False)
    if report["without_values"]:
        names = ", ".join(report["without_values"])
        console.print(f"Nothing is known of {names}: no row that was looked at has a value there.", markup=False)
    shown = Table("column", "kind", "role", "sure", "evidence", box=None, pad_edge=False)
    for one in report["findings"]:
        shown.add_row(one["column"], one["kind"], one["role"], f"{one['confidence']:.0%}", "; ".join(one["evidence"]))
    console.print(shown)
    _print_text_findings(console, report)
    for one in report["singling_out"]:
        share, columns = f"{one['singled_out']:.1%}", one["columns"]
        known = f"Together {', '.join(columns)} single out" if len(columns) > 1 else f"{columns[0]} alone singles out"
        console.print(f"{known} {share} of the people.", markup=False)
    console.print("\nHIPAA Safe Harbor, the 18 categories:")
    for line in report["safe_harbor"]:
        console.print(f"  ({line['category']}) {line['name']}: {', '.join(line['found']) or 'not found'}", markup=False)


def _print_text_findings(console: Console, report: Mapping[str, Any]) -> None:
    for column, counts in report["free_text"].items():
        inside = ", ".join(f"{count} x {kind}" for kind, count in counts.items()) or "nothing that patterns know"
        console.print(f"Inside the text of {column}: {inside}.", markup=False)
