"""`deniable release`: check a released file, and read what is promised of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, emit

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Check a released file, and read what is promised of it.")

ReleasedFile = Annotated[Path, typer.Argument(help="The released file, or its statement NAME.release.json.")]


@app.command(epilog="Example: deniable release verify out.parquet")
def verify(file: ReleasedFile, as_json: JsonFlag = False) -> None:
    """Check that a released file and its statement are what was written (exit code 2 when one was changed)."""
    from deniable.curator.governance.reports import verify_file as workflow

    found = workflow(file)
    emit(found.to_dict(), as_json, lambda console: _print_verification(console, found))


@app.command(epilog="Example: deniable release show out.parquet")
def show(file: ReleasedFile, as_json: JsonFlag = False) -> None:
    """Say in plain words what a release promises, and where it came from."""
    from deniable.curator.governance.reports import show_statement as workflow

    statement = workflow(file)
    found = {**statement.body, "statement_sha256": statement.sha256}
    emit(found, as_json, lambda console: _print_statement(console, found))


def _print_verification(console: Console, found: Mapping[str, Any]) -> None:
    console.print(f"'{found['file']}' and its statement are what was written.", markup=False)
    console.print(f"file       sha256 {found['sha256']}", markup=False)
    console.print(f"statement  sha256 {found['statement_sha256']}", markup=False)


def _print_statement(console: Console, found: Mapping[str, Any]) -> None:
    origin = found["provenance"]
    console.print(f"{found['file']['name']}: {found['guarantee']['technique']}", style="bold", markup=False)
    for sentence in found["words"]:
        console.print(f"- {sentence}", markup=False)
    console.print(f"\nWritten {origin['time']} by {origin['code_version']}.", markup=False)
    console.print(f"Policy {origin['policy_hash'] or 'none'}", markup=False)
    if origin.get("epoch"):
        console.print(f"Epoch {origin['epoch']}", markup=False)
    for table, version in origin["data_versions"].items():
        console.print(f"Data {table} {version}", markup=False)
    for name, value in (origin["parameters"] | found["details"]).items():
        console.print(f"{name}: {value}", markup=False)
