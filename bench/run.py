"""Run every benchmark, or those named: `python bench/run.py [NAME ...]`. Each prints ratios measured in one run.

First the machine and the date; at the end one table with what each script took and whether its bars were met. The whole
output is kept in `bench/results/`.
"""

from __future__ import annotations

import datetime
import os
import platform
import resource
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def describe_machine() -> str:
    """The machine, the versions and the day, in one line each."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    now = datetime.datetime.now(datetime.UTC)
    return "\n".join(
        [
            f"date     {now:%Y-%m-%d %H:%M} UTC",
            f"machine  {platform.system()} {platform.machine()}, {cores} cores",
            f"python   {platform.python_version()}, deniable {version('deniable')}, duckdb {version('duckdb')}",
        ]
    )


def run_script(path: Path, kept: list[str]) -> tuple[str, float, int]:
    """Run one script, show and keep what it prints; its name, CPU seconds and exit code."""
    before = _count_seconds()
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            kept.append(line)
    return path.stem, _count_seconds() - before, process.returncode


def _count_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_table(rows: list[tuple[str, float, int]]) -> str:
    """One line a script."""
    lines = [f"{'benchmark':<16} {'CPU s':>8}  outcome", f"{'-' * 16} {'-' * 8}  {'-' * 24}"]
    for name, seconds, code in rows:
        lines.append(f"{name:<16} {seconds:>8.1f}  {'done' if code == 0 else f'{code} missed or failed'}")
    return "\n".join(lines)


def main(names: list[str]) -> int:
    """Run the scripts one after the other; the exit code counts those that failed."""
    scripts = sorted(path for path in HERE.glob("*.py") if path.name != "run.py" and not path.name.startswith("_"))
    machine = describe_machine()
    print(machine, flush=True)
    kept, rows = [f"{machine}\n"], []
    for path in (path for path in scripts if not names or path.stem in names):
        title = f"\n== {path.stem} ==\n"
        print(title, end="", flush=True)
        kept.append(title)
        rows.append(run_script(path, kept))
    table = write_table(rows)
    print(f"\n{machine}\n{table}")
    RESULTS.mkdir(exist_ok=True)
    name = f"{datetime.date.today():%Y-%m-%d}.txt"
    (RESULTS / name).write_text("".join(kept) + f"\n{table}\n", encoding="utf-8")
    return sum(code != 0 for _, _, code in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
