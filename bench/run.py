"""Run every benchmark, or those named, and write what they print into `docs/benchmarks.json` and the pages made of it.

    python bench/run.py [--again] [--list] [COMMAND ...]

A command is the name of a script, with its options in quotes: `query`, `"query --full"`. A name alone stands for all
commands of that script. What was run today is not run again unless `--again` is said, so a stopped run goes on where it
was. The machine and the date come first, one table of all figures last.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import resource
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import _record

HERE = Path(__file__).parent


def describe_machine() -> dict[str, str]:
    """The machine, the versions and the day."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "machine": f"{platform.system()} {platform.machine()}, {cores} cores",
        "python": platform.python_version(),
        "deniable": version("deniable"),
        "duckdb": version("duckdb"),
    }


def run_command(command: str) -> dict[str, Any]:
    """Run one command, show and keep what it prints."""
    script, *options = shlex.split(command)
    before, lines = _count_seconds(), []
    whole = [sys.executable, "-u", str(HERE / f"{script}.py"), *options]
    with subprocess.Popen(whole, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    used = round(_count_seconds() - before, 1)
    return {**describe_machine(), "cpu_seconds": used, "exit_code": process.returncode, "lines": lines}


def _count_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def choose(commands: list[str], named: list[str]) -> list[str]:
    """The commands that are asked for; a script with options that no page shows may be named too."""
    if not named:
        return commands
    chosen: dict[str, None] = {}
    for name in named:
        known = [command for command in commands if name in (command, command.split()[0])]
        if not known and not (HERE / f"{name.split()[0]}.py").is_file():
            sys.exit(f"There is no benchmark {name!r}. They are: {', '.join(commands)}.")
        chosen |= dict.fromkeys(known or [name])
    return list(chosen)


def main(arguments: list[str]) -> int:
    """Run the commands one after the other; the exit code counts those that failed or missed a bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", metavar="COMMAND")
    parser.add_argument("--again", action="store_true", help="also what was run today")
    parser.add_argument("--list", action="store_true", help="print the commands and run nothing")
    asked = parser.parse_args(arguments)
    layout = _record.read_layout()
    commands = _record.list_commands(layout)
    chosen, machine, missed = choose(commands, asked.commands), describe_machine(), 0
    if asked.list:
        print("\n".join(chosen))
        return 0
    print("\n".join(f"{name:9}{value}" for name, value in machine.items()), flush=True)
    for command in chosen:
        kept = _record.read_runs().get(command)
        if kept and not asked.again and all(kept[name] == machine[name] for name in machine):
            print(f"\n== {command} == was run today; --again runs it again", flush=True)
        else:
            print(f"\n== {command} ==", flush=True)
            kept = run_command(command)
            if lacks := _record.find_missing(layout, command, kept):
                print(f"== {command} == is not kept, its last run stays: {lacks}", flush=True)
                kept["exit_code"] = kept["exit_code"] or 1
            elif command in commands:  # with other options it is only shown
                _record.keep_run(command, kept)
        missed += kept["exit_code"] != 0
    runs = _record.read_runs()
    print(_record.write_text(layout, runs))
    _record.write_pages(layout, runs)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
