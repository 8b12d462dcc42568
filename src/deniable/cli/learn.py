"""`deniable learn`: lessons with toys, as files, or served to a class with phones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.terminal import JsonFlag, emit, open_output

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.server.classroom import ClassServer

EXAMPLES = """\b
Examples:
  deniable learn                                     write the lessons, and say which file to open
  deniable learn --out course --open
  deniable learn --serve --host 0.0.0.0              a class takes part with phones
"""


def learn(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the lessons.")] = Path("lessons"),
    show: Annotated[bool, typer.Option("--open", help="Open the first page in a browser.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the lessons instead, with a page for phones.")] = False,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 lets phones in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8768,
    as_json: JsonFlag = False,
) -> None:
    """Learn privacy in thirteen lessons: each has a toy, its mathematics, an exercise and real commands.

    The pages need no server and no network. With --serve a class answers a question with phones: each phone randomizes
    its answer, and only that is sent. Nothing is stored.
    """
    if serve:
        _serve_class(host, port, show, as_json)
        return
    from deniable.reports.lessons import list_titles, write_lessons

    first, *_ = written = write_lessons(out)
    told = {"open": str(first), "files": [str(path) for path in written], "lessons": dict(list_titles())}
    emit(told, as_json, lambda console: _print_lessons(console, first, list(list_titles().values())))
    if show:
        typer.launch(first.resolve().as_uri())


def _print_lessons(console: Console, first: Path, titles: list[str]) -> None:
    for number, title in enumerate(titles, start=1):
        console.print(f"{number:3}  {title}", markup=False)
    console.print(f"\nOpen {first} in a browser. Notes for teachers: {first.with_name('teacher.html')}", markup=False)


def _serve_class(host: str, port: int, show: bool, as_json: bool) -> None:
    from deniable.server.classroom import start_server

    with start_server(host, port) as server:
        teacher = f"{server.place}/class.html#{server.classroom.key}"
        told = {"teacher": teacher, "phones": server.phones_place, "lessons": f"{server.place}/index.html"}
        emit(told, as_json, lambda console: _print_places(console, told, server))
        if show:
            typer.launch(teacher)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            open_output().print("Ended. Nothing was stored.") if not as_json else None


def _print_places(console: Console, told: dict[str, str], server: ClassServer) -> None:
    console.print(f"Lessons:           {told['lessons']}", markup=False)
    console.print(f"For the teacher:   {told['teacher']}", markup=False)
    console.print(f"For phones:        {told['phones']}", markup=False)
    if server.phones_place == server.place:
        console.print("Only this computer can open it. With --host 0.0.0.0 phones in the network can, too.")
    console.print("Nothing is stored. Control-C ends it.")
