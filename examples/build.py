"""Make the notebooks of this folder from pages of the documentation, with what each block really printed.

    python examples/build.py [PAGE ...]

A page's `sh` blocks become cells that begin with `%%sh`, its `python` blocks ordinary cells, `yaml` blocks with a file
name cells that write the file. Blocks run in a temporary folder, in their order, each in a process of its own; so no
cell needs what another one left in memory. Paths of the machine and tokens are taken out of what was printed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PAGES = {
    "hospital-week": "tutorials/hospital-week.md",
    "public-file": "tutorials/public-file.md",
    "notebook": "tutorials/notebook.md",
    "lessons": "tutorials/lessons.md",
    "continuous-integration": "tutorials/continuous-integration.md",
    "assistant": "tutorials/assistant.md",
    "first-release": "how-to/start.md",
    "from-smartnoise": "compare/smartnoise.md",
    "from-arx": "compare/arx.md",
    "mask-a-file": "how-to/mask-a-file.md",
}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"^# ([\w.-]+\.\w+)\n")
TOKEN = re.compile(r"deniable_[A-Za-z0-9_-]{20,}")
MOST_LINES = 60


def build(page: Path) -> dict[str, object]:
    """One page as a notebook."""
    text, cells, last = page.read_text(encoding="utf-8"), [], 0
    with tempfile.TemporaryDirectory() as folder:
        for block in BLOCK.finditer(text):
            cell = _build_code(block[1], block[2], Path(folder), len(cells))
            if cell is not None:
                cells += [*_build_words(text[last : block.start()], page), cell]
                last = block.end()
    cells += _build_words(text[last:], page)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    for place, each in enumerate(cells):
        each["id"] = f"cell-{place}"
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _build_words(text: str, page: Path) -> list[dict[str, object]]:
    """A cell of words; links to other pages lead into the documentation."""
    start = os.path.relpath(page.parent, HERE)
    linked = re.sub(r"\]\((?!https?:|#)([^)]+)\)", rf"]({start}/\1)", text.strip())
    return [{"cell_type": "markdown", "metadata": {}, "source": linked}] if linked else []


def _build_code(kind: str, source: str, folder: Path, number: int) -> dict[str, object] | None:
    """A cell that was run, or None for a block that readers only read."""
    named = FILE_NAME.match(source) if kind == "yaml" else None
    if kind not in ("sh", "python") and named is None:
        return None
    if named is not None:
        (folder / named[1]).write_text(source, encoding="utf-8")
        return _make_cell(f"%%writefile {named[1]}\n{source}", f"Writing {named[1]}\n", number)
    printed = _run([sys.executable, "-c", source] if kind == "python" else ["sh", "-ec", source], folder)
    return _make_cell(source if kind == "python" else f"%%sh\n{source}", printed, number)


def _run(command: list[str], folder: Path) -> str:
    place = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{place}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    environment["DENIABLE_STATE"] = str(folder / ".state")
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"a block failed:\n{done.stdout}")
    shown = TOKEN.sub("deniable_...", done.stdout.replace(f"{folder}/", "").replace(str(folder), "."))
    lines = shown.splitlines(keepends=True)
    return "".join(lines[:MOST_LINES]) + ("...\n" if len(lines) > MOST_LINES else "")


def _make_cell(source: str, printed: str, number: int) -> dict[str, object]:
    outputs = [{"name": "stdout", "output_type": "stream", "text": printed}] if printed else []
    text = source.rstrip("\n")
    return {"cell_type": "code", "execution_count": number + 1, "metadata": {}, "outputs": outputs, "source": text}


def main(names: list[str]) -> None:
    """Write the notebooks that were named, or all."""
    for name in names or PAGES:
        made = build(DOCS / PAGES[name])
        (HERE / f"{name}.ipynb").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
