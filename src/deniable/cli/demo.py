"""`deniable demo`: the story of one town, in the terminal and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.screen import JsonFlag, emit, out, progress

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
    from deniable.curator.demo import tell
    from deniable.reports.page import write
    from deniable.reports.story import page

    chapters: list[Chapter] = []
    with progress("Making the town") as tick:
        for number, chapter in enumerate(tell(folder, people, tick), start=1):
            chapters.append(chapter)
            if not as_json:
                _told(out(), number, chapter)
    told = [_document(chapter) for chapter in chapters]
    written = write(page("The story of one town", told), folder / "story.html")
    emit(told, as_json, lambda console: console.print(f"\nThe story as a page: {written}"))


def _document(chapter: Chapter) -> dict[str, Any]:
    return {
        "title": chapter.title,
        "sentences": list(chapter.sentences),
        "table": [dict(row) for row in chapter.table],
        "people": list(chapter.people) if chapter.people else None,
        "bars": list(chapter.bars),
        "commands": list(chapter.commands),
    }


def _told(console: Console, number: int, chapter: Chapter) -> None:
    from rich.table import Table

    console.print(f"\n[bold]{number}. {chapter.title}[/]")
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
