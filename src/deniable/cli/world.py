"""`deniable world`: generated populations to try everything on; nobody in them exists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.screen import JsonFlag, emit, progress

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Make a generated population to try things on; nobody in it exists.")


@app.command(epilog="Example: deniable world make hospital --people 54000 -o town")
def make(
    kind: Annotated[str, typer.Argument(help="hospital, salaries, survey, ratings or taxi.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.", metavar="DIR")],
    people: Annotated[int | None, typer.Option("--people", help="How many people (up to 10 million).")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Same seed, same rows.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a world's tables as Parquet, its public lists as CSV, and a policy for them."""
    from deniable.curator import worldmaking

    with progress(f"Making the {kind} world") as share:
        made = worldmaking.make(kind, people, seed, out, share)
    emit(made, as_json, lambda console: _made(console, made))


@app.command("list", epilog="Example: deniable world list")
def list_(as_json: JsonFlag = False) -> None:
    """Tell which worlds there are."""
    from deniable.curator import worldmaking

    kinds = worldmaking.kinds()
    emit(kinds, as_json, lambda console: _listed(console, kinds))


def _made(console: Console, made: dict[str, Any]) -> None:
    console.print(f"Made the {made['world']} world of {made['people']:,} people (seed {made['seed']}):", markup=False)
    for table, rows in made["rows"].items():
        console.print(f"  {table:<12}{rows:>14,} rows", markup=False)
    console.print(f"Next: deniable policy check {Path(made['folder']) / made['policy']}", markup=False)


def _listed(console: Console, kinds: list[dict[str, Any]]) -> None:
    for kind in kinds:
        tables = ", ".join(kind["tables"] + kind["lists"])
        console.print(f"{kind['world']:<10} {kind['summary']}", markup=False)
        console.print(f"{'':<10} tables: {tables}; usually {kind['usual_people']:,} people", markup=False)
