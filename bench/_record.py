"""What the last runs of the benchmarks printed (`docs/benchmarks.json`), and the tables that are made of it.

`docs/benchmarks.toml` says which line of which run becomes which row of `docs/benchmarks.md` and of the README. A
figure that no run has printed cannot appear in them. `docs/generate.py` imports this module too.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "docs" / "benchmarks.json"
LAYOUT = ROOT / "docs" / "benchmarks.toml"
BEGIN, END = "<!-- figures: written by docs/generate.py -->", "<!-- end of figures -->"
SKIPPED = ("run", "train_names")
"""Scripts that measure nothing: this one, and the one that writes the weights of names into the source."""


class NotPrinted(Exception):
    """A row asks for a line that its run has not printed."""


def read_runs(path: Path = RUNS) -> dict[str, dict[str, Any]]:
    """The last run of each command."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def keep_run(command: str, run: dict[str, Any], path: Path = RUNS) -> None:
    """Replace the last run of one command; the others stay."""
    kept = read_runs(path) | {command: run}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(dict(sorted(kept.items())), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)


def find_missing(layout: dict[str, Any], command: str, run: dict[str, Any]) -> str:
    """What a page shows of this command and the run has not printed, as where it broke off; empty if all is there."""
    try:
        for row in _rows(layout):
            if row["run"] == command:
                if not run["lines"]:  # else `otherwise` would say that something is not installed
                    return f"the run of `{command}` has printed nothing"
                fill(row, {command: run})
    except NotPrinted as lacks:
        return str(lacks)
    return ""


def read_layout(path: Path = LAYOUT) -> dict[str, Any]:
    """The sections of the page, and the sentence of the README."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def list_commands(layout: dict[str, Any]) -> list[str]:
    """Every command of `make bench`: those of the layout first, then scripts that it does not name."""
    named = dict.fromkeys(row["run"] for row in _rows(layout))
    scripts = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py") if path.stem not in SKIPPED)
    return [*named, *(stem for stem in scripts if stem not in {command.split()[0] for command in named})]


def write_page(layout: dict[str, Any], runs: dict[str, dict[str, Any]]) -> str:
    """The page of all figures, section by section, each with the day and the machine of its run."""
    lines = [f"# {layout['title']}\n", f"{BEGIN}\n", f"{layout['words'].strip()}\n"]
    for section in layout["section"]:
        lines += [f"## {section['title']}\n"]
        if "words" in section:
            lines += [f"{section['words'].strip()}\n"]
        lines += _write_table(section, runs)
        lines += [f"{_describe_run(command, runs.get(command))}" for command in _commands(section)]
        lines[-1] += "\n"
        if "after" in section:
            lines += [f"{section['after'].strip()}\n"]
    return "\n".join(lines).rstrip() + "\n"


def write_readme(text: str, layout: dict[str, Any], runs: dict[str, dict[str, Any]]) -> str:
    """The README with its figures between the two marks replaced."""
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"README.md has no {BEGIN} and {END}")
    rows = [dict(row, cells=row["readme"]) for row in _rows(layout) if "readme" in row and _is_measured(row, runs)]
    table = _write_table({"head": layout["readme"]["head"], "row": rows}, runs)
    days = sorted({runs[row["run"]]["date"] for row in rows})
    machines = sorted({runs[row["run"]]["machine"] for row in rows})
    told = f"Measured from {days[0]} to {days[-1]}" if len(days) > 1 else f"Measured {''.join(days)}"
    words = f"{layout['readme']['words'].strip()} {told} on {' and '.join(machines)}."
    return f"{before}{BEGIN}\n\n" + "\n".join(table) + f"\n{words}\n\n{END}{after}"


def write_pages(layout: dict[str, Any], runs: dict[str, dict[str, Any]]) -> None:
    """Write the page and the README anew."""
    readme = ROOT / "README.md"
    (ROOT / "docs" / "benchmarks.md").write_text(write_page(layout, runs), encoding="utf-8")
    readme.write_text(write_readme(readme.read_text(encoding="utf-8"), layout, runs), encoding="utf-8")


def write_text(layout: dict[str, Any], runs: dict[str, dict[str, Any]]) -> str:
    """The same figures for a terminal: one table of all sections."""
    lines = []
    for section in layout["section"]:
        lines.append(f"\n{section['title']}")
        filled = [[cell.replace("`", "") for cell in fill(row, runs)] for row in section["row"]]
        widths = [max(map(len, column)) for column in zip(*filled, strict=True)]
        lines += ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in filled]
    return "\n".join(lines)


def fill(row: dict[str, Any], runs: dict[str, dict[str, Any]]) -> list[str]:
    """The cells of a row with the figures of its run; `otherwise` where the run could not measure them."""
    run = runs.get(row["run"])
    if run is None:
        return [cell if place == 0 else "not run yet" for place, cell in enumerate(row["cells"])]
    text, groups = "\n".join(run["lines"]), [""]
    for pattern in [row["find"]] if isinstance(row["find"], str) else row["find"]:
        found = re.search(pattern, text, re.MULTILINE)
        if found is None:
            if "otherwise" in row:
                return [row["cells"][0], *row["otherwise"]]
            raise NotPrinted(f"the run of `{row['run']}` has printed nothing like {pattern!r}")
        groups += found.groups()
    return [cell.format(*groups) for cell in row["cells"]]


def _is_measured(row: dict[str, Any], runs: dict[str, dict[str, Any]]) -> bool:
    if row["run"] not in runs:
        return False
    try:
        fill({name: value for name, value in row.items() if name != "otherwise"}, runs)
    except NotPrinted:
        return False
    return True


def _rows(layout: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for section in layout["section"] for row in section["row"]]


def _commands(section: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(row["run"] for row in section["row"]))


def _write_table(section: dict[str, Any], runs: dict[str, dict[str, Any]]) -> list[str]:
    head = section["head"]
    rows = [f"| {' | '.join(fill(row, runs))} |" for row in section["row"]]
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows, ""]


def _describe_run(command: str, run: dict[str, Any] | None) -> str:
    """How a figure is printed again, and when and where it was."""
    script, _, options = command.partition(" ")
    told = f"`python bench/{script}.py{' ' + options if options else ''}`"
    if run is None:
        return f"{told}: not run yet."
    met = "" if run["exit_code"] == 0 else "; not all bars were met"
    return (
        f"{told}: {run['date']}, {run['machine']}, Python {run['python']}, deniable {run['deniable']}; "
        f"{run['cpu_seconds']:,.0f} CPU seconds in all{met}."
    )
