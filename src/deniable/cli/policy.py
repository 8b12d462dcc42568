"""`deniable policy`: check a policy file, draft one from a table, print the JSON Schema for editors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.screen import Encoding, JsonFlag, emit, err, progress

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Write and check the file that says what is protected.")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The policy file.", show_default=False)],
    as_json: JsonFlag = False,
) -> None:
    """Say who is protected and how much, or list every mistake with its line.

    Example: deniable policy check clinic.yaml
    """
    from deniable.curator.policies import check as check_policy

    found = check_policy(file)
    emit(found, as_json, lambda console: _summary(console, found))


@app.command()
def init(
    table: Annotated[str, typer.Argument(help="A file, folder, pattern or duckdb:FILE#TABLE.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write the draft.", show_default="screen")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    suggest: Annotated[
        bool, typer.Option(help="Add values read from the data, in comments marked as not public.")
    ] = True,
    encoding: Encoding = None,
    as_json: JsonFlag = False,
) -> None:
    """Draft a policy from a table: types and suspected roles; bounds are for you to fill in.

    Example: deniable policy init visits.parquet -o clinic.yaml
    """
    from deniable.curator.drafting import draft, save

    with progress("Looking at the columns") as told:
        text = draft(table, out.parent if out else None, suggest=suggest, encoding=encoding, progress=told)
    if out is not None:
        save(text, out, replace_it=force)
    written = {"policy": text, "written": str(out) if out else None}
    emit(written, as_json, lambda console: _drafted(console, text, out))


@app.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors that check while you type.

    Example: deniable policy schema > policy.schema.json
    """
    from deniable.curator.policies import schema as policy_schema

    emit(policy_schema(), True, lambda _console: None)


def _drafted(console: Console, text: str, out: Path | None) -> None:
    if out is None:
        console.print(text, markup=False, end="")
    else:
        err().print(
            f"Drafted {out}. Confirm the roles, fill in the bounds, then: deniable policy check {out}", markup=False
        )


def _summary(console: Console, found: dict[str, Any]) -> None:
    until = f", until {found['expires']}" if found["expires"] else ""
    console.print(f"{found['dataset']}: a valid policy{until}\n", markup=False)
    console.print("Who is protected")
    for table in found["tables"]:
        roles = ", ".join(f"{count} {role}" for role, count in table["roles"].items())
        listed = f"; {table['columns']} columns: {roles}" if roles else ""
        console.print(f"  {table['name']}: {table['protects']}{listed}", markup=False)
    console.print("How much may be asked")
    for line in _allowances(found["budgets"]):
        console.print(f"  {line}", markup=False)
    if found["notes"]:
        console.print("To consider")
        for note in found["notes"]:
            console.print(f"  {note}", markup=False)
    console.print(f"\n{found['hash']}", markup=False)


def _allowances(budgets: dict[str, Any] | None) -> list[str]:
    if budgets is None:
        return ["nothing: no budgets are declared"]
    total = f"in total {budgets['dataset']}, {budgets['accounting']} accounting"
    purposes = [f"for {name}: {amount}" for name, amount in budgets["purposes"].items()]
    return [total, *purposes, *(f"by {name}: {amount}" for name, amount in budgets["analysts"].items())]
