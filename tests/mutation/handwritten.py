"""Mutants written by hand, for what no operator makes: each replaces a text that stands once in one file.

A Python file is changed in the live process as any mutant is. Another file, such as the JavaScript client, is changed
in a copy, and programs that are started with its path get the copy.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from mutation.operators import Mutant
from mutation.record import ROOT, functions_of

LIST = Path(__file__).with_name("handwritten.json")


def handwritten_mutants(path: Path = LIST) -> list[Mutant]:
    """The mutants of the list; one whose text is gone from its file is an error of the list."""
    return [read_entry(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def read_entry(entry: dict[str, str]) -> Mutant:
    """One entry: file, old, new, about, and a test that should notice where records cannot tell."""
    source = (ROOT / entry["file"]).read_text(encoding="utf-8")
    if source.count(entry["old"]) != 1:
        raise ValueError(
            f"{entry['file']}: this text stands {source.count(entry['old'])} times, not once: {entry['old']}"
        )
    start = source.index(entry["old"])
    first = source.count("\n", 0, start) + 1
    last = first + entry["old"].rstrip("\n").count("\n")
    functions = functions_of(ROOT / entry["file"]) if entry["file"].endswith(".py") else {}
    function = next((name for name, (begin, end, _) in functions.items() if begin <= first <= end), "")
    return Mutant(
        *(
            entry["file"],
            function,
            "handwritten",
            first,
            last,
            0,
            entry["about"],
            "",
            source.splitlines()[first - 1],
            -1,
        ),
        texts=(entry["old"], entry["new"]),
        tests=(entry["test"],) if "test" in entry else (),
    )


def substitute_file(mutant: Mutant) -> None:
    """From now on, programs that are started with the path of the file get its changed copy."""
    assert mutant.texts is not None
    path = ROOT / mutant.file
    copy = Path(tempfile.mkdtemp()) / path.name
    copy.write_text(path.read_text(encoding="utf-8").replace(*mutant.texts, 1), encoding="utf-8")
    start = subprocess.Popen.__init__

    def started(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        given = [str(copy) if str(each) == str(path) else each for each in args] if isinstance(args, list) else args
        start(self, given, *rest, **options)

    subprocess.Popen.__init__ = started  # type: ignore[method-assign]
