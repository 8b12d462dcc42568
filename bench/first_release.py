"""First releases: `deniable start --yes` on every real table, and policies of thousands of columns.

    python bench/first_release.py [TABLE ...]

Every table of people in ../shared/data is taken from the file to a release without a word of advice. The bar: a
release, certified as it was written and read back, and no attack on it passes a limit of its policy; the command that
is printed makes it as well. Then `policy init` of 5,000 columns (bar: 10 CPU seconds, 1 GB) and `policy check` of
20,000: name them with `wide`. Times are CPU seconds of the whole command in a new process.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REAL = ROOT.parent / "shared" / "data"
TABLES = (
    "adult/adult.csv",
    "adult14/adult.csv",
    "census_kdd/census_income_kdd_1994_1995.parquet",
    "diabetes130/diabetic_data.parquet",
    "nist_acs/national/national2019.csv",
    "nist_acs/massachusetts/ma2019.csv",
    "nist_acs/texas/tx2019.csv",
    "officials/congress-terms.csv",
    "military/openintro_military.parquet",
    "linkage/historical_figures_with_errors_50k.parquet",
    "flights/nycflights13_flights.parquet",
)
LATIN = ("officials/congress-terms.csv",)
GIGABYTE = 1_000_000
"""In kilobytes, as the system counts memory."""


def run(words: list[str], folder: Path) -> tuple[int, str, str, float, int]:
    """One command in a new process: its exit code, what it printed, CPU seconds and kilobytes at most."""
    environment = {**os.environ, "DENIABLE_STATE": str(folder / "state")}
    with subprocess.Popen(
        [sys.executable, "-m", "deniable", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        said: list[str] = []
        assert process.stderr is not None
        assert process.stdout is not None
        reader = threading.Thread(target=lambda: said.append(process.stderr.read()))  # type: ignore[union-attr]
        reader.start()
        printed = process.stdout.read()
        reader.join()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, printed, said[0], used.ru_utime + used.ru_stime, used.ru_maxrss


def release_first(name: str, folder: Path) -> bool:
    """Take one table from the file to a release, and say whether the bar is met."""
    table = REAL / name
    words = ["start", str(table), "--yes", "--out", "first", "--json"]
    code, printed, said, seconds, memory = run([*words, *(["--encoding", "latin-1"] if name in LATIN else [])], folder)
    if code:
        print(f"first {name}: exit code {code}, {seconds:.1f} CPU s: {said.strip().splitlines()[-1][:300]}: NOT MET")
        return False
    found = json.loads(printed)
    verdicts = found["after"].get("verdicts", [])
    certified = found["verified"].get("digest_matches", bool(found["verified"]))
    again = remake(found, folder)
    met = not found["after"]["failed"] and bool(found["verified"]) and again
    attacked = ", ".join(f"{one['attack']} {one['exposed']:.1%} of at most {one['most']:.1%}" for one in verdicts)
    print(
        f"first {name}: {found['technique']}, {found['release']['released']:,} of {found['rows']:,} rows, "
        f"{len(leaving(found))} of {len(found['columns'])} columns; read back: {'yes' if certified else 'NO'}; "
        f"attacked: {attacked or found['after'].get('audit', {}).get('audit', {}).get('sentence', 'nothing limited')}; "
        f"again by the printed command: {'yes' if again else 'NO'}; {seconds:.1f} CPU s, {memory / 1024:.0f} MB: "
        f"{'met' if met else 'NOT MET'}"
    )
    return met


def leaving(found: dict[str, Any]) -> list[str]:
    """The columns that leave."""
    return [one["column"] for one in found["columns"] if one["after"] not in ("withheld", "removed")]


def remake(found: dict[str, Any], folder: Path) -> bool:
    """Whether the printed command makes the release as well; one that is charged is not given twice."""
    (command,) = [one["command"] for one in found["commands"] if one["step"].startswith(("Release,", "Ask"))] or [
        one["command"] for one in found["commands"] if one["step"] == "Release"
    ]
    words = shlex.split(command)[1:]
    return words[0] not in ("anonymize", "mask") or run(words, folder)[0] == 0


def draft_wide(folder: Path) -> bool:
    """A policy drafted of 5,000 columns, and one of 20,000 checked."""
    rows = [",".join(str((i * j) % 11) for i in range(5_000)) for j in range(20)]
    (folder / "wide.csv").write_text(",".join(f"c{i}" for i in range(5_000)) + "\n" + "\n".join(rows) + "\n")
    code, _, _, seconds, memory = run(["policy", "init", "wide.csv", "--out", "wide.yaml"], folder)
    met = code == 0 and seconds <= 10 and memory <= GIGABYTE
    print(f"first policy init of 5,000 columns and 20 rows: {seconds:.1f} CPU s (bar 10), {memory / 1024:.0f} MB (bar "
          f"977): {'met' if met else 'NOT MET'}")  # fmt: skip
    columns = "".join(f"      c{i}: {{type: text, role: sensitive, nullable: true}}\n" for i in range(20_000))
    head = "version: 1\ndataset: wide\ntables:\n  wide:\n    source: wide.csv\n    unit: row\n    columns:\n"
    (folder / "long.yaml").write_text(head + columns)
    code, _, _, seconds, memory = run(["policy", "check", "long.yaml"], folder)
    print(f"first policy check of 20,000 columns: exit code {code}, {seconds:.1f} CPU s, {memory / 1024:.0f} MB")
    return met and code == 0


def main() -> None:
    """Every table, or those named, and the wide policies."""
    chosen = [name for name in TABLES if not sys.argv[1:] or any(word in name for word in sys.argv[1:])]
    met = []
    for name in (name for name in chosen if (REAL / name).exists()):
        with tempfile.TemporaryDirectory() as folder:
            met.append(release_first(name, Path(folder)))
    if "wide" in sys.argv[1:] or not sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            met.append(draft_wide(Path(folder)))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"first {sum(met)} of {len(met)} bars are met, {used.ru_utime + used.ru_stime:.0f} CPU seconds in all")
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
