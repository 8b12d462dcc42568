"""`deniable demo` and `deniable world`: the story of one town, and generated populations to try things on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, emit, open_output, show_progress, stress

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.curator.demo import Chapter


def demo(
    folder: Annotated[Path, typer.Option("--out", "-o", help="Where the town and the page are written.")] = Path(
        "demo-output"
    ),
    people: Annotated[int, typer.Option(min=1000, help="How many voters the town has.")] = 54_000,
    as_json: JsonFlag = False,
) -> None:
    """Tell the story of one town: who is exposed, and what a curator does about it."""
    from deniable.curator.demo import run_demo
    from deniable.reports.demo import build_demo_page
    from deniable.reports.page import write

    chapters: list[Chapter] = []
    with show_progress("Making the town") as tick:
        for number, chapter in enumerate(run_demo(folder, people, tick), start=1):
            chapters.append(chapter)
            if not as_json:
                _print_chapter(open_output(), number, chapter)
    told = [_build_document(chapter) for chapter in chapters]
    written = write(build_demo_page("The story of one town", told), folder / "story.html")
    emit(told, as_json, lambda console: console.print(f"\nThe story as a page: {written}"))


def _build_document(chapter: Chapter) -> dict[str, Any]:
    return {
        "title": chapter.title,
        "sentences": list(chapter.sentences),
        "table": [dict(row) for row in chapter.table],
        "people": list(chapter.people) if chapter.people else None,
        "bars": list(chapter.bars),
        "commands": list(chapter.commands),
    }


def _print_chapter(console: Console, number: int, chapter: Chapter) -> None:
    from rich.table import Table

    console.print(stress(f"{number}. {chapter.title}", before="\n"))
    for sentence in chapter.sentences:
        console.print(f"   {sentence}", markup=False)
    if chapter.table:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in chapter.table[0]:
            table.add_column(name)
        for row in chapter.table:
            table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()))
        from rich.padding import Padding

        console.print(Padding(table, (0, 0, 0, 3)))
    for command in chapter.commands:
        console.print(f"   $ {command}", style="dim", markup=False)


world_app = typer.Typer(no_args_is_help=True, help="Make a generated population to try things on; nobody in it exists.")


@world_app.command(epilog="Example: deniable world make hospital --people 54000 -o town")
def make(
    kind: Annotated[str, typer.Argument(help="hospital, salaries, survey, ratings, taxi or county.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.", metavar="DIR")],
    people: Annotated[int | None, typer.Option("--people", help="How many people (up to 10 million).")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Same seed, same rows.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a world's tables as Parquet, its public lists as CSV, and a policy for them."""
    from deniable.curator import demo

    with show_progress(f"Making the {kind} world") as share:
        made = demo.make_world(kind, people, seed, out, share)
    emit(made.to_dict(), as_json, lambda console: _print_world(console, made))


@world_app.command("list", epilog="Example: deniable world list")
def list_(as_json: JsonFlag = False) -> None:
    """Tell which worlds there are."""
    from deniable.curator import demo

    kinds = demo.world_kinds()
    emit([kind.to_dict() for kind in kinds], as_json, lambda console: _print_worlds(console, kinds))


def _print_world(console: Console, made: Mapping[str, Any]) -> None:
    console.print(f"Made the {made['world']} world of {made['people']:,} people (seed {made['seed']}):", markup=False)
    for table, rows in made["rows"].items():
        console.print(f"  {table:<12}{rows:>14,} rows", markup=False)
    console.print(f"Next: deniable policy check {Path(made['folder']) / made['policy']}", markup=False)


def _print_worlds(console: Console, kinds: Sequence[Mapping[str, Any]]) -> None:
    for kind in kinds:
        tables = ", ".join(kind["tables"] + kind["lists"])
        console.print(f"{kind['world']:<10} {kind['summary']}", markup=False)
        console.print(f"{'':<10} tables: {tables}; usually {kind['usual_people']:,} people", markup=False)
