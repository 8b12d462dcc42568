"""How fast worlds are made, beside plain numpy drawing as many values.

    python bench/world.py [--full]

The floor draws, for every value of every table, one number with a numpy Generator, and keeps nothing: no text, no
correlation, no file. The bar: one million people with their visits in under 30 CPU seconds, written to Parquet.
`--full` adds 480,000 viewers with 100 million ratings, streamed.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from deniable import world

BAR = 30.0
REPEATS = 3


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall seconds of one run."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def best(work: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
    """The least CPU seconds of several runs, with the wall seconds of that run."""
    return min(timed(work) for _ in range(repeats))


def floor(values: int) -> None:
    """Draw as many values, a million at a time."""
    generator = np.random.default_rng(1)
    for start in range(0, values, 1_000_000):
        generator.integers(0, 1 << 30, min(1_000_000, values - start))


def measure(kind: str, people: int, repeats: int = REPEATS) -> float:
    """Print one line for a world; return its CPU seconds."""
    columns = {name: table.num_columns for name, table in world.make(kind, 1).items()}
    with tempfile.TemporaryDirectory() as folder:
        rows: dict[str, int] = {}
        cpu, wall = best(lambda: rows.update(world.write(kind, people, 1, folder)), repeats)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    values = sum(rows[name] * columns[name] for name in rows)
    least, _ = best(lambda: floor(values))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{kind:<9} {people:>10,} people {sum(rows.values()):>12,} rows {values:>13,} values  "
        f"cpu {cpu:6.2f} s  wall {wall:6.2f} s  floor {least:5.2f} s  ratio {cpu / least:5.1f}  "
        f"{size / 2**20:6.0f} MB written  peak {peak} MB"
    )
    return cpu


def main() -> None:
    """All worlds, then the bar."""
    for kind in ("salaries", "survey", "taxi"):
        measure(kind, 100_000)
    measure("ratings", 48_000)
    if "--full" in sys.argv:
        measure("ratings", 480_000, repeats=1)
    cpu = measure("hospital", 1_000_000)
    verdict = "met" if cpu < BAR else "MISSED"
    print(f"bar: one million people with their visits in under {BAR:.0f} CPU s: {cpu:.2f} s, {verdict}")


if __name__ == "__main__":
    main()
