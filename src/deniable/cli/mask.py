"""`deniable mask`: a pseudonymized or Safe Harbor release of one table or of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import DEFAULT_POLICY, JsonFlag, LedgerOption, PolicyOption, emit, show_progress

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = (
    "Examples: deniable mask people.csv --policy hr.yaml -o out.parquet  |  "
    "deniable mask --policy clinic.yaml -o released/ --mode safe-harbor"
)


def mask(
    out: Annotated[Path, typer.Option("--out", "-o", help="A .parquet, .csv or .arrow file; a folder for all tables.")],
    source: Annotated[
        str | None, typer.Argument(help="The table's file; without it, all tables of the policy.", show_default=False)
    ] = None,
    policy: PolicyOption = DEFAULT_POLICY,
    table: Annotated[str | None, typer.Option(help="Which table of the policy the file is.")] = None,
    mode: Annotated[
        str, typer.Option(help="pseudonymize, or safe-harbor (all 18 identifiers removed).")
    ] = "pseudonymize",
    key: Annotated[
        list[str] | None,
        typer.Option(help="Where a key is: NAME=file:PATH, NAME=env:VARIABLE or NAME=command:PROGRAM."),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Release only these columns, separated by commas.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of continuing a killed run.")] = False,
    keep_order: Annotated[
        bool, typer.Option("--keep-order", help="Leave rows in the table's own order, which joins releases.")
    ] = False,
    presidio: Annotated[
        bool, typer.Option("--presidio", help="Let Presidio search free text as well (names), if it is installed.")
    ] = False,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Mask identifiers as the policy says, keep joins working, and state plainly what remains.

    Columns that the policy does not declare are not released. A run that was killed goes on where it was.
    """
    from deniable.curator.context import ledger_of
    from deniable.curator.mask import run

    only = None if columns is None else [name.strip() for name in columns.split(",")]
    request = run.request_for(
        policy,
        source,
        table,
        out,
        mode=mode,
        keys=key or (),
        columns=only,
        fresh=fresh,
        keep_order=keep_order,
        presidio=presidio,
        ledger=ledger_of(policy, ledger),
    )
    with show_progress("Masking") as told:
        report = run.mask(request, told)
    emit(report.to_dict(), as_json, lambda console: _print_report(console, report))


def _print_report(console: Console, report: Mapping[str, Any]) -> None:
    from deniable.cli.attack import describe_limited

    for name, table in report["tables"].items():
        console.print(f"{name}: {table['rows']} rows written to {table['output']}", markup=False)
        for column, described in table["masks"].items():
            console.print(f"  {column}: {described}", markup=False)
        if table["withheld"]:
            console.print(f"  not released: {', '.join(table['withheld'])}", markup=False)
        for column, probability in table["token_collision_probability"].items():
            console.print(
                f"  two values of {column} share a token with probability {probability:.1e} at most", markup=False
            )
        for column, count in table["placeholder_dates"].items():
            console.print(
                f"  warning: {count} rows of {column} hold a placeholder such as 1900-01-01 or 9999-12-31. They were "
                "not shifted; write null for an unknown date",
                markup=False,
            )
        console.print(f"No formal guarantee: {table['guarantee']}.", markup=False)
        if table["joint"] is not None:
            console.print(f"  {table['joint']['words']}", markup=False)
        for line in describe_limited(table.get("attacks")):
            console.print(f"  {line}", markup=False)
        for attack in table["remaining_attacks"]:
            console.print(f"  remains: {attack}", markup=False)
    _print_checks(console, report)


def _print_checks(console: Console, report: Mapping[str, Any]) -> None:
    for join in report["joins"]:
        console.print(
            f"{join['left']} and {join['right']} share {join['shared_after']} values, as before masking.", markup=False
        )
    for line in report["safe_harbor"]:
        columns = ", ".join(f"{column} {how}" for column, how in line["columns"].items())
        console.print(f"  ({line['category']}) {line['name']}: {line['status']}. {columns}", markup=False)
